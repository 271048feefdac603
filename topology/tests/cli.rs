//! The command, from outside.

use std::{
    fs,
    io::{Read as _, Write as _},
    process::{Command, Output, Stdio},
};

use windlass_topology::live::{LIVE_SCHEMA, Live, LiveP, LiveRuntime};

use crate::util::{Dir, expect, synthetic};

mod util;

const EXE: &str = env!("CARGO_BIN_EXE_windlass-topology");
const TWO: &str = "--synthetic=pack:2 [numa] l3:1 core:2 pu:2";
const FOUR: &str = "--synthetic=pack:2 group:2 [numa] l3:2 core:1 pu:2";
const FOUR_SLIT: &str = "--slit=10,12,32,32;12,10,32,32;32,32,10,12;32,32,12,10";

fn run(args: &[&str]) -> Output {
    let mut command = Command::new(EXE);
    command
        .args(args)
        .env_remove("NO_COLOR")
        .env("COLUMNS", "100");
    command.output().unwrap()
}

/// Standard output of a run that ends with this code.
fn ends(args: &[&str], code: i32) -> String {
    let output = run(args);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {stderr}");
    assert!(stderr.is_empty(), "{args:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

fn good(args: &[&str]) -> String {
    ends(args, 0)
}

/// Standard error of a run that fails: one line.
fn bad(args: &[&str]) -> String {
    let output = run(args);
    assert_eq!(output.status.code(), Some(2), "{args:?}");
    assert!(output.stdout.is_empty(), "{args:?}");
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.starts_with("windlass-topology: "), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    error
}

fn json(args: &[&str]) -> serde_json::Value {
    let text = good(&[args, &["--format=json"]].concat());
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["schema"], 1);
    json
}

fn machine_file(name: &str) -> String {
    format!("{}/tests/machines/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn this_machine() {
    let shown = good(&["show"]);
    assert!(shown.starts_with("machine    this machine: "), "{shown}");
    for word in ["kernel     Linux ", "io_uring ", "processors ", "node "] {
        assert!(shown.contains(word), "{word}: {shown}");
    }
    // Free memory moves from one call to the next.
    let heads = |text: &str| text.lines().take(2).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(heads(&good(&[])), heads(&shown));
    assert!(good(&["tree"]).starts_with("machine (this machine): "));
    assert!(good(&["art"]).contains("┌ package "));
    assert!(good(&["ps"]).contains("     P   CPU"));
    assert!(good(&["steal"]).starts_with("steal order\n"));
    assert!(good(&["distances"]).starts_with("distances ("));
    assert!(good(&["limits"]).contains("processors: "));
    let show = json(&["show"]);
    assert_eq!(show["view"], "show");
    assert!(show["host"]["kernel"].is_string());
}

#[test]
fn text_of_every_view() {
    let views: &[(&str, &[&str])] = &[
        ("show", &["show", FOUR, FOUR_SLIT]),
        ("tree", &["tree", TWO]),
        ("art", &["art", TWO, "--ascii"]),
        ("ps", &["ps", TWO, "--procs=5", "--cpus=0-6"]),
        ("steal", &["steal", "2", FOUR, FOUR_SLIT]),
        ("matrix", &["steal", "--matrix", FOUR, FOUR_SLIT]),
        ("distances", &["distances", FOUR, FOUR_SLIT]),
    ];
    for (name, args) in views {
        expect(&format!("cli-{name}.txt"), &good(args));
    }
    let container = format!("--recorded={}", machine_file("container.json"));
    expect("cli-limits.txt", &good(&["limits", &container]));
    expect("cli-container.txt", &good(&["show", &container]));
    for name in [
        "odd",
        "qemu-2-nodes-smt",
        "qemu-4-nodes",
        "qemu-4-nodes-last-without-memory",
    ] {
        let machine = format!("--recorded={}", machine_file(&format!("{name}.json")));
        expect(&format!("cli-show-{name}.txt"), &good(&["show", &machine]));
    }
    let hybrid = format!("--recorded={}", machine_file("hybrid.json"));
    expect("cli-hybrid.txt", &good(&["ps", &hybrid, "--procs=7"]));
}

#[test]
fn without_a_command_it_is_show() {
    let show = |args: &[&str]| {
        let shown = good(&[&["show"], args].concat());
        assert_eq!(good(args), shown, "{args:?}");
        shown
    };
    assert!(show(&[FOUR, FOUR_SLIT]).contains("4 nodes"));
    let container = format!("--recorded={}", machine_file("container.json"));
    assert!(show(&[&container, "--procs=3"]).contains("processors 3"));
    assert!(show(&[TWO, "--format=json"]).contains("\"view\": \"show\""));
    assert!(bad(&[TWO, "tree"]).contains("cannot be used with"));
}

#[test]
fn steal_lists_of_256_ps_fit_a_terminal() {
    for machine in [
        "--synthetic=pack:2 [numa] l3:4 core:16 pu:2",
        "--synthetic=pack:2 [numa] l3:16 core:4 pu:2",
        "--synthetic=pack:4 group:2 [numa] l3:2 core:8 pu:2",
    ] {
        let text = good(&["steal", machine]);
        let p = |name: &str| {
            let start = text.find(name).unwrap();
            text[start..].split("\n  P ").next().unwrap().to_owned()
        };
        let longest = text.lines().map(str::len).max().unwrap();
        assert!(longest <= 100, "{longest} in {machine}");
        // From the middle of its group a list wraps round.
        assert!(p("P 130 ").contains("core    10: 131\n"), "{}", p("P 130 "));
    }
    let text = good(&["steal", "2", "--synthetic=pack:2 [numa] l3:4 core:16 pu:2"]);
    assert!(text.contains("L3      10: 4-31 0 1\n"), "{text}");
    assert!(text.contains("remote  20: 128-255\n"), "{text}");
}

#[test]
fn pictures_and_graphs() {
    let views: &[(&str, &[&str])] = &[
        ("tree", &["tree", TWO]),
        ("ps", &["ps", TWO, "--procs=5"]),
        ("steal", &["steal", "2", FOUR, FOUR_SLIT]),
        ("matrix", &["steal", FOUR, FOUR_SLIT]),
        ("distances", &["distances", FOUR, FOUR_SLIT]),
    ];
    for (name, args) in views {
        for format in ["svg", "dot"] {
            let text = good(&[args, &["--format", format][..]].concat());
            expect(&format!("cli-{name}.{format}"), &text);
        }
    }
}

#[test]
fn json_of_every_view() {
    let tree = json(&["tree", TWO]);
    assert_eq!(tree["view"], "tree");
    assert_eq!(tree["machine"]["pus"].as_array().unwrap().len(), 8);

    let ps = json(&["ps", TWO, "--policy=pack", "--procs=3", "--nodes=1"]);
    assert_eq!(ps["nodes"][0]["os_id"], 1);
    assert_eq!(ps["nodes"][0]["memory_node"], 1);
    assert_eq!(ps["ps"][2]["cpu"], 6);
    assert_eq!(ps["dropped"][0]["reason"], "other-node");
    assert_eq!(ps["dropped"][4]["reason"], "fewer-ps");

    let steal = json(&["steal", "1", FOUR, FOUR_SLIT]);
    assert_eq!(steal["ps"].as_array().unwrap().len(), 1);
    assert_eq!(steal["ps"][0]["levels"][0]["kind"], "smt");
    assert_eq!(steal["ps"][0]["levels"][2]["patience_us"], 20);
    assert_eq!(steal["ps"][0]["levels"][3]["gated"], true);
    assert_eq!(steal["ps"][0]["wakes"][0]["ps"][0], 0);
    // Of one P its row alone, and a list of numbers is one line.
    assert_eq!(steal["matrix"].as_array().unwrap().len(), 1);
    assert_eq!(steal["matrix"][0][1], 0);
    assert_eq!(steal["matrix"][0][15], 4);
    let text = good(&["steal", "1", FOUR, FOUR_SLIT, "--format=json"]);
    assert!(
        text.contains("\"victims\": [8, 9, 10, 11, 12, 13, 14, 15],\n"),
        "{text}"
    );
    let all = json(&["steal", FOUR, FOUR_SLIT]);
    assert_eq!(all["matrix"].as_array().unwrap().len(), 16);

    let distances = json(&["distances", FOUR, FOUR_SLIT]);
    assert_eq!(distances["distances"]["rows"][0][3], 32);
    assert_eq!(distances["measured"], serde_json::Value::Null);

    let container = format!("--recorded={}", machine_file("container.json"));
    let limits = json(&["limits", &container]);
    assert_eq!(limits["capped_by"], "quota");
    assert_eq!(limits["processors"], 4);
    assert_eq!(limits["steps"][3]["processors"], 9);
}

#[test]
fn nodes_and_cpus_and_threads_bound_the_default_number_of_ps() {
    let numa = "--synthetic=numa:2 core:4 pu:2";
    let n_ps = |args: &[&str]| {
        let text = good(&[&["ps", numa], args].concat());
        text.lines().next().unwrap().to_owned()
    };
    assert_eq!(n_ps(&[]), "16 Ps");
    assert_eq!(n_ps(&["--nodes=1"]), "8 Ps");
    assert_eq!(n_ps(&["--threads=never"]), "8 Ps");
    assert_eq!(n_ps(&["--cpus=0-1,9"]), "3 Ps");
    assert_eq!(n_ps(&["--cpus=0-1,9", "--nodes=1"]), "1 P");
    let container = format!("--recorded={}", machine_file("container.json"));
    assert!(good(&["ps", &container]).starts_with("4 Ps\n"));
    assert!(good(&["ps", &container, "--nodes=1"]).starts_with("3 Ps\n"));
}

#[test]
fn measured_distances() {
    let text = good(&["distances", "--measured"]);
    assert!(
        text.contains("a cache line between nodes, ns one way (measured)"),
        "{text}"
    );
    let json = json(&["distances", "--measured"]);
    let groups = json["measured"]["nodes"]["groups"].as_array().unwrap();
    assert!(!groups.is_empty());
    assert!(bad(&["distances", "--measured", TWO]).contains("only this machine can be measured"));
}

#[test]
fn the_doctor_ends_as_it_finds() {
    let output = run(&["doctor", "--format=json"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let fails = json["worst"] == "failure";
    assert_eq!(output.status.code(), Some(i32::from(fails)));
    let strict = run(&["doctor", "--strict"]);
    let warns = fails || json["worst"] == "warning";
    assert_eq!(strict.status.code(), Some(i32::from(warns)));
    let text = String::from_utf8(strict.stdout).unwrap();
    assert!(text.contains("io_uring"), "{text}");
    assert!(text.lines().last().unwrap().contains(" ok, "), "{text}");
}

#[test]
fn the_doctor_says_of_a_machine_elsewhere_what_can_be_said() {
    let container = format!("--recorded={}", machine_file("container.json"));
    expect("cli-doctor.txt", &good(&["doctor", &container]));
    // A quota of 3.5 CPUs is worth a warning.
    ends(&["doctor", &container, "--strict"], 1);
    let described = json(&["doctor", TWO]);
    assert_eq!(described["host"], serde_json::Value::Null);
    assert_eq!(described["findings"][0]["check"], "kernel");
    assert_eq!(described["findings"][0]["status"], "unknown");
    assert!(bad(&["doctor", "--recorded=/no/such/file"]).contains("/no/such/file"));
}

#[test]
fn two_machines_differ_or_not() {
    let file = machine_file("qemu-4-nodes.json");
    assert_eq!(good(&["diff", &file, &file]), "");
    let other = machine_file("qemu-4-nodes-last-without-memory.json");
    expect("cli-diff.txt", &ends(&["diff", &file, &other], 1));
    let text = ends(
        &[
            "diff",
            "synthetic:core:2 pu:1",
            "synthetic:core:2 pu:2",
            "--format=json",
        ],
        1,
    );
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["changes"][0]["what"], "CPUs");
    assert_eq!(json["changes"][0]["b"], "0-3");
    assert_eq!(good(&["diff", "this", "this"]), "");
    let xml = machine_file("two-nodes.xml");
    assert!(ends(&["diff", &xml, "synthetic:pu:1"], 1).contains("- node 1: CPUs: 4-7"));
    assert!(bad(&["diff", "this", "/no/such/file"]).contains("/no/such/file"));
}

#[test]
fn what_is_recorded_can_be_read() {
    let dir = Dir::new();
    let file = dir.path().join("machine.json");
    let file = file.to_str().unwrap();
    let described = "numa:2 core:2 pu:1";
    assert_eq!(
        good(&["record", "--synthetic", described, "--output", file]),
        ""
    );
    let recorded = fs::read_to_string(file).unwrap();
    assert_eq!(recorded, synthetic(described).to_json());
    assert_eq!(good(&["record", "--synthetic", described]), recorded);
    // For hwloc: as XML, and as a description.
    let xml = dir.path().join("machine.xml");
    let xml = xml.to_str().unwrap();
    assert_eq!(
        good(&["record", "--recorded", file, "--format=xml", "-o", xml]),
        ""
    );
    assert_eq!(good(&["diff", file, xml]), "");
    let description = good(&["record", "--recorded", file, "--format=synthetic"]);
    let same = format!("synthetic:{}", description.trim());
    assert_eq!(good(&["diff", file, &same]), "");
    let odd = format!("--recorded={}", machine_file("odd.json"));
    assert!(
        bad(&["record", &odd, "--format=synthetic"]).contains("cannot describe this machine: ")
    );
    assert_eq!(
        good(&["steal", "--synthetic", described]),
        good(&["steal", "--recorded", file])
    );
    // This machine, without private names.
    let here = good(&["record"]);
    assert!(!here.contains("_group"), "{here}");
    fs::write(file, &here).unwrap();
    assert_eq!(good(&["diff", "this", file]), "");
    assert_eq!(
        good(&["record", "--recorded", file]),
        here.replace("this-machine", "recorded")
    );
}

/// A file of a stranger can neither command the terminal nor make the program allocate by its numbers.
#[test]
fn a_recorded_file_is_not_believed() {
    let dir = Dir::new();
    let file = dir.path().join("machine.json");
    let name = file.to_str().unwrap();
    let recorded = good(&["record", TWO]);
    let machine: serde_json::Value = serde_json::from_str(&recorded).unwrap();
    let mut commands = machine.clone();
    let escapes = "\x1b]0;title\x07\u{9b}2J";
    commands["packages"][0]["model"] = escapes.into();
    commands["distances"]["note"] = escapes.into();
    commands["source"]["synthetic"]["description"] = escapes.into();
    fs::write(&file, commands.to_string()).unwrap();
    for view in ["show", "tree", "ps", "steal", "distances"] {
        let text = good(&[view, "--recorded", name]);
        assert!(
            !text.chars().any(|c| c.is_control() && c != '\n'),
            "{view}: {text:?}"
        );
    }
    for (list, id) in [("nodes", "os_id"), ("pus", "cpu")] {
        let mut far = machine.clone();
        *far[list]
            .as_array_mut()
            .unwrap()
            .last_mut()
            .unwrap()
            .get_mut(id)
            .unwrap() = (1_u64 << 31).into();
        fs::write(&file, far.to_string()).unwrap();
        let error = bad(&["record", "--format", "xml", "--recorded", name]);
        assert!(error.contains("2147483648: no kernel numbers"), "{error}");
    }
}

#[test]
fn hwloc_xml_with_its_distances() {
    let file = machine_file("two-nodes.xml");
    let parts = ["tree", "distances", "ps", "steal"].map(|view| good(&[view, "--xml", &file]));
    expect("cli-xml.txt", &parts.join("\n"));
}

#[test]
fn colours_only_where_they_are_wanted() {
    let escape = '\u{1b}';
    assert!(!good(&["tree", TWO]).contains(escape));
    let painted = good(&["tree", TWO, "--color=always"]);
    assert!(painted.contains(escape));
    // Without the escapes it is the same text.
    let mut plain = String::new();
    for (nth, part) in painted.split(escape).enumerate() {
        plain += if nth == 0 {
            part
        } else {
            part.split_once('m').unwrap().1
        };
    }
    assert_eq!(plain, good(&["tree", TWO]));
    for view in ["show", "art", "ps", "steal", "distances"] {
        assert!(
            good(&[view, TWO, "--color=always"]).contains(escape),
            "{view}"
        );
        assert!(
            !good(&[view, TWO, "--color=never"]).contains(escape),
            "{view}"
        );
    }
}

#[test]
fn help_manual_and_completions() {
    let help = good(&["--help"]);
    assert!(
        help.contains("Examples:") && help.contains("doctor"),
        "{help}"
    );
    assert!(good(&["steal", "--help"]).contains("--matrix"));
    assert!(good(&["man"]).contains(".TH windlass-topology 1"));
    assert!(good(&["man", "steal"]).contains(".TH windlass-topology-steal 1"));
    assert!(bad(&["man", "nonsense"]).contains("no command \"nonsense\""));
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        assert!(
            good(&["completions", shell]).contains("distances"),
            "{shell}"
        );
    }
    assert!(good(&["--version"]).starts_with("windlass-topology "));
}

#[test]
fn bad_input_is_one_line_and_exit_code_2() {
    let dir = Dir::new();
    dir.write("text", "this is no machine\n");
    let file = dir.path().join("text");
    let file = file.to_str().unwrap();
    let folder = dir.path().to_str().unwrap();
    let numa = "--synthetic=numa:2 core:2 pu:1";
    let cases: &[(&[&str], &str)] = &[
        (
            &["tree", "--synthetic", "pack:2"],
            "bad synthetic description \"pack:2\": ",
        ),
        (&["tree", "--synthetic", ""], "hwloc does not understand it"),
        (
            &["tree", "--synthetic", "pack:9999 pu:9999"],
            "more than 8192 CPUs",
        ),
        (
            &["ps", numa, "--procs", "0"],
            "0 processors asked for; ask for 1 or more",
        ),
        (&["ps", numa, "--procs", "99999"], "ask for 4096 or fewer"),
        (&["ps", numa, "--nodes", "0,5"], "no node 5; there are 0-1"),
        (
            &["ps", numa, "--cpus", "0-1", "--nodes", "1"],
            "no CPU of node 1 is allowed",
        ),
        (&["ps", numa, "--cpus", "9"], "no CPU 9; there are 0-3"),
        (&["steal", "4", numa], "no P 4; there are 0-3"),
        (
            &["distances", numa, "--slit", "10,20"],
            "1 rows for 2 nodes",
        ),
        (
            &["distances", numa, "--slit", "10,20;20,300"],
            "300 in row 1",
        ),
        (
            &["show", "--recorded", "/no/such/file"],
            "cannot read /no/such/file: No such file",
        ),
        (&["show", "--recorded", file], "not a recorded machine: "),
        (&["show", "--recorded", folder], "cannot read "),
        (
            &["limits", "--xml", "/no/such/file"],
            "cannot read /no/such/file: No such file",
        ),
        (&["limits", "--xml", file], "is not hwloc's XML"),
        (&["limits", "--xml", folder], "not a file"),
        (
            &["art", "--sysfs", folder],
            "sys/devices/system/cpu/online: no online CPUs",
        ),
        (
            &["record", numa, "--output", "/no/such/folder/file"],
            "cannot write /no/such/folder/file: ",
        ),
        (&["ps", "--procs", "many"], "invalid value 'many'"),
        (
            &["ps", "--nodes", "1-"],
            "not a list of nodes, such as 0-3,8",
        ),
        (&["ps", "--nodes", ""], "the list of nodes is empty"),
        (&["ps", "--cpus", "x"], "not a list of CPUs"),
        (
            &["ps", "--slit", "10,x"],
            "\"x\" is not a distance such as 21",
        ),
        (&["ps", "--policy", "random"], "invalid value 'random'"),
        (
            &["ps", "--synthetic", "pu:1", "--recorded", "x"],
            "cannot be used with",
        ),
        (&["limits", "--format", "svg"], "invalid value 'svg'"),
        (
            &["diff", "this"],
            "required arguments were not provided: <B>",
        ),
        (&["--no-such-flag"], "unexpected argument"),
        (&["no-such-command"], "unrecognized subcommand"),
        (
            &["tre"],
            "unrecognized subcommand 'tre'; did you mean 'tree'? See --help",
        ),
        (
            &["--json"],
            "unexpected argument '--json' found; did you mean '--format json'?",
        ),
        (&["tree", "--svg"], "did you mean '--format svg'?"),
        (&["ps", "--proc", "4"], "did you mean '--procs'?"),
        (&["ps", "--policy", "spred"], "did you mean 'spread'?"),
        (
            &["show", "--synthetc", "pu:1"],
            "did you mean '--synthetic'?",
        ),
    ];
    for (args, message) in cases {
        let error = bad(args);
        assert!(error.contains(message), "{args:?}: {error}");
    }
}

#[test]
fn damaged_xml_is_one_line_though_libhwloc_crashes() {
    let dir = Dir::new();
    let good_text = fs::read_to_string(machine_file("two-nodes.xml")).unwrap();
    let path = dir.path().join("machine.xml");
    let path = path.to_str().unwrap();
    // hwloc 2.9 dies of this with signal 11. Whatever another version does, it is no signal here.
    let damaged = good_text.replacen("complete_cpuset=\"0x000000c0\" ", "", 1);
    assert_ne!(damaged, good_text);
    fs::write(path, &damaged).unwrap();
    for args in [
        &["show", "--xml", path][..],
        &["ps", "--xml", path, "--format=json"],
        &["record", "--xml", path],
        &["diff", path, path],
    ] {
        let output = run(args);
        let error = String::from_utf8(output.stderr).unwrap();
        match output.status.code() {
            Some(0) => assert_eq!(error, "", "{args:?}"),
            Some(2) => {
                assert_eq!(error.lines().count(), 1, "{error}");
                assert!(error.contains(path), "{error}");
            }
            other => panic!("{args:?} ended with {other:?}: {error}"),
        }
    }
    // The child does not change what is read.
    fs::write(path, &good_text).unwrap();
    let recorded = good(&["record", "--xml", path]);
    assert_eq!(
        recorded,
        windlass_topology::Topology::from_xml_file(path)
            .unwrap()
            .to_json()
    );
}

#[test]
fn a_closed_pipe_is_no_error() {
    for format in ["text", "json", "svg", "dot"] {
        let mut child = Command::new(EXE)
            .args([
                "steal",
                "--synthetic",
                "numa:8 core:32 pu:1",
                "--format",
                format,
            ])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // More than a pipe holds is still to come when the reader goes away.
        let mut start = [0; 10];
        let mut pipe = child.stdout.take().unwrap();
        pipe.read_exact(&mut start).unwrap();
        drop(pipe);
        let output = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
        assert!(output.status.success());
    }
}

#[test]
fn a_full_disk_is_an_error() {
    let full = fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let output = Command::new(EXE)
        .args(["tree", "--synthetic", "pu:1"])
        .stdout(full)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(
        error.contains("cannot write to standard output: No space left"),
        "{error}"
    );
}

/// Answers as a program with a runtime would, `n` times, each time after 1000 more switches.
fn tell(n: u64) -> std::thread::JoinHandle<()> {
    let address = Live::address(std::process::id()).unwrap();
    let listener = std::os::unix::net::UnixListener::bind_addr(&address).unwrap();
    std::thread::spawn(move || {
        for i in 1..=n {
            let p = LiveP {
                dispatches: i * 1000,
                ..LiveP::default()
            };
            let live = Live {
                schema: LIVE_SCHEMA,
                pid: std::process::id(),
                at_ns: i * 1_000_000_000,
                runtimes: vec![LiveRuntime {
                    name: "told".to_owned(),
                    ps: vec![p],
                    ..LiveRuntime::default()
                }],
            };
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(live.to_json().as_bytes()).unwrap();
        }
    })
}

#[test]
fn top_shows_rates_until_the_process_has_ended() {
    let pid = std::process::id().to_string();
    let teller = tell(3);
    let text = good(&["top", &pid, "--interval", "0.01"]);
    teller.join().unwrap();
    assert_eq!(text.matches("runtime told").count(), 2, "{text}");
    assert!(text.contains(" 1000 "), "{text}");

    let teller = tell(2);
    let text = good(&["top", &pid, "--interval=0.01", "--count=2", "--format=json"]);
    teller.join().unwrap();
    let lines: Vec<serde_json::Value> = text
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    assert_eq!(lines[1]["runtimes"][0]["ps"][0]["dispatches"], 2000);

    // A child that has ended and was waited for; and a number that no process has.
    let mut child = Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    for gone in [child.id(), u32::MAX] {
        let error = bad(&["top", &gone.to_string()]);
        assert_eq!(
            error,
            format!("windlass-topology: there is no process {gone}\n")
        );
    }
    let error = bad(&["top", &pid]);
    assert!(error.contains("WINDLASS_DEBUG=live=1"), "{error}");
    assert!(bad(&["top", &pid, "--interval=0"]).contains("0.01"));
}

//! The command, from outside.

use std::{
    fs,
    io::Read as _,
    process::{Command, Output, Stdio},
};

use crate::util::{Dir, synthetic};

mod util;

const EXE: &str = env!("CARGO_BIN_EXE_windlass-topology");

fn run(args: &[&str]) -> Output {
    Command::new(EXE).args(args).output().unwrap()
}

/// Standard output of a run that succeeds.
fn good(args: &[&str]) -> String {
    let output = run(args);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && stderr.is_empty(),
        "{args:?}: {stderr}"
    );
    String::from_utf8(output.stdout).unwrap()
}

/// Standard error of a run that fails.
fn bad(args: &[&str]) -> String {
    let output = run(args);
    assert_eq!(output.status.code(), Some(2), "{args:?}");
    assert!(output.stdout.is_empty(), "{args:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn this_machine() {
    let text = good(&[]);
    assert!(text.starts_with("machine (this machine): "), "{text}");
    assert!(text.contains("distances ("));
    assert!(!text.contains("steal order"));
    assert!(good(&["--steal"]).contains("steal order"));
}

#[test]
fn a_synthetic_machine_with_distances() {
    let text = good(&[
        "--synthetic",
        "pack:2 [numa] l3:1 core:2 pu:2",
        "--slit",
        "10,21; 22,10",
        "--procs",
        "4",
        "--steal",
    ]);
    util::expect("cli-synthetic.txt", &text);
}

#[test]
fn json_is_the_plan_in_full() {
    let text = good(&[
        "--format=json",
        "--synthetic=numa:2 core:4 pu:1",
        "--policy=pack",
        "--procs=3",
        "--nodes=1",
    ]);
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["schema"], 1);
    assert_eq!(json["machine"]["pus"].as_array().unwrap().len(), 8);
    assert_eq!(json["plan"]["nodes"][0]["os_id"], 1);
    assert_eq!(json["plan"]["ps"][2]["cpu"], 6);
    assert_eq!(json["plan"]["ps"][0]["levels"][0]["kind"], "node");
    assert_eq!(json["cpu_quota"], serde_json::Value::Null);
}

#[test]
fn nodes_and_cpus_bound_the_default_number_of_ps() {
    let synthetic = "--synthetic=numa:2 core:4 pu:1";
    assert!(good(&[synthetic, "--nodes", "1"]).contains("\n4 Ps\n"));
    assert!(good(&[synthetic, "--cpus", "0-1,7"]).contains("\n3 Ps\n"));
    assert!(good(&[synthetic, "--cpus", "0-1,7", "--nodes", "1"]).contains("\n1 P\n"));
}

#[test]
fn what_is_recorded_can_be_read() {
    let dir = Dir::new();
    let file = dir.path().join("machine.json");
    let file = file.to_str().unwrap();
    let args = ["--procs", "3", "--steal"];
    let made = good(
        &[
            &["--synthetic", "numa:2 core:2 pu:1", "--record", file],
            &args[..],
        ]
        .concat(),
    );
    assert_eq!(
        fs::read_to_string(file).unwrap(),
        synthetic("numa:2 core:2 pu:1").to_json()
    );
    assert_eq!(made, good(&[&["--machine", file], &args[..]].concat()));
}

#[test]
fn hwloc_xml_with_its_distances() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/machines/two-nodes.xml");
    util::expect("cli-xml.txt", &good(&["--xml", file, "--steal"]));
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
            &["--synthetic", "pack:2"],
            "bad synthetic description \"pack:2\": ",
        ),
        (&["--synthetic", ""], "hwloc does not understand it"),
        (&["--synthetic", "pack:9999 pu:9999"], "more than 8192 CPUs"),
        (
            &[numa, "--procs", "0"],
            "0 processors asked for; ask for 1 or more",
        ),
        (&[numa, "--procs", "99999"], "ask for 4096 or fewer"),
        (&[numa, "--nodes", "0,5"], "no node 5; there are 0-1"),
        (
            &[numa, "--cpus", "0-1", "--nodes", "1"],
            "no CPU of node 1 is allowed",
        ),
        (&[numa, "--cpus", "9"], "no CPU 9; there are 0-3"),
        (&[numa, "--slit", "10,20"], "1 rows for 2 nodes"),
        (&[numa, "--slit", "10,20;20,300"], "300 in row 1"),
        (
            &["--machine", "/no/such/file"],
            "cannot read /no/such/file: No such file",
        ),
        (&["--machine", file], "not a recorded machine: "),
        (&["--machine", folder], "cannot read "),
        (
            &["--xml", "/no/such/file"],
            "cannot read /no/such/file: No such file",
        ),
        (&["--xml", file], "is not hwloc's XML"),
        (&["--xml", folder], "not a file"),
        (
            &["--sysfs", folder],
            "sys/devices/system/cpu/online: no online CPUs",
        ),
        (
            &[numa, "--record", "/no/such/folder/file"],
            "cannot write /no/such/folder/file: ",
        ),
    ];
    for (args, message) in cases {
        let error = bad(args);
        assert!(error.starts_with("windlass-topology: "), "{error}");
        assert!(error.contains(message), "{args:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn arguments_are_checked_by_clap() {
    let cases: &[(&[&str], &str)] = &[
        (&["--procs", "many"], "invalid value 'many'"),
        (&["--nodes", "1-"], "not a list of nodes, such as 0-3,8"),
        (&["--nodes", ""], "the list of nodes is empty"),
        (&["--cpus", "x"], "not a list of CPUs"),
        (&["--slit", "10,x"], "\"x\" is not a distance such as 21"),
        (&["--policy", "random"], "invalid value 'random'"),
        (
            &["--synthetic", "pu:1", "--machine", "x"],
            "cannot be used with",
        ),
        (&["--no-such-flag"], "unexpected argument"),
    ];
    for (args, message) in cases {
        let error = bad(args);
        assert!(error.contains(message), "{args:?}: {error}");
    }
}

#[test]
fn a_closed_pipe_is_no_error() {
    for format in ["text", "json"] {
        let mut child = Command::new(EXE)
            .args([
                "--synthetic",
                "numa:8 core:32 pu:1",
                "--steal",
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
        .args(["--synthetic", "pu:1"])
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

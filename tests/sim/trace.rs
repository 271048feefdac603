//! Traces of simulated runs: the file is what the format asks for, shows what happened, and is that of
//! the run that it should be.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;
use windlass::channel::{bounded, unbounded};
use windlass::net::{TcpListener, UdpSocket};
use windlass::sim::{self, Failure, Network, Sim};
use windlass::sync::{Arc, Mutex};
use windlass::time::{Duration, sleep};

use crate::temp::TempDir;
use crate::util;
use crate::util::PROMISE;

const SECOND: Duration = Duration::from_secs(1);

/// A row: the numbers of its process and of itself.
type Row = (u64, u64);

#[derive(Clone, Debug)]
struct Slice {
    from: u64,
    to: u64,
    name: String,
    args: Value,
}

#[derive(Debug, Default)]
struct File {
    processes: BTreeMap<u64, String>,
    names: BTreeMap<Row, String>,
    slices: BTreeMap<Row, Vec<Slice>>,
    /// Instants: the row, the name, the moment.
    marks: Vec<(Row, String, u64)>,
    /// Ends of arrows and of regions.
    ends: Vec<(String, Row, u64)>,
}

/// Microseconds with three digits, as exact nanoseconds.
fn ns(value: &Value) -> u64 {
    let text = value.to_string();
    let (us, ns) = text.split_once('.').unwrap_or((&text, "0"));
    us.parse::<u64>().unwrap() * 1000 + format!("{ns:0<3}").parse::<u64>().unwrap()
}

impl File {
    /// Reads a file, and checks what the format wants.
    fn read(path: &Path) -> File {
        let json = std::fs::read(path).unwrap();
        let root: Value = serde_json::from_slice(&json).expect("valid JSON");
        let mut file = File::default();
        for e in root["traceEvents"].as_array().unwrap() {
            let pid = e["pid"].as_u64().unwrap();
            let row = (pid, e["tid"].as_u64().unwrap_or(0));
            let name = e["name"].as_str().unwrap().to_owned();
            let said = || e["args"]["name"].as_str().unwrap().to_owned();
            match (e["ph"].as_str().unwrap(), name.as_str()) {
                ("M", "process_name") => drop(file.processes.insert(pid, said())),
                ("M", "thread_name") => drop(file.names.insert(row, said())),
                ("M", _) => assert!(e["args"]["sort_index"].is_u64()),
                ("X", _) => file.slices.entry(row).or_default().push(Slice {
                    from: ns(&e["ts"]),
                    to: ns(&e["ts"]) + ns(&e["dur"]),
                    name,
                    args: e["args"].clone(),
                }),
                ("i", _) => file.marks.push((row, name, ns(&e["ts"]))),
                (ph @ ("s" | "f" | "b" | "e"), _) => {
                    file.ends.push((ph.to_owned(), row, ns(&e["ts"])));
                }
                other => panic!("an event of type {other:?}"),
            }
        }
        file.check();
        file
    }

    fn check(&self) {
        for (row, slices) in &self.slices {
            assert!(self.names.contains_key(row), "a row without a name");
            for slice in slices {
                assert!(slice.from < slice.to, "an empty slice: {slice:?}");
            }
            for pair in slices.windows(2) {
                assert!(pair[0].to <= pair[1].from, "they overlap: {pair:?}");
            }
        }
        for (row, ..) in &self.marks {
            assert!(self.names.contains_key(row), "a row without a name");
        }
        for (ph, row, at) in self
            .ends
            .iter()
            .filter(|(ph, ..)| matches!(&**ph, "s" | "f"))
        {
            let mut slices = self.slices[row].iter();
            let is_inside = slices.any(|s| s.name == "running" && s.from <= *at && *at <= s.to);
            assert!(is_inside, "an arrow ({ph}) begins or ends nowhere: {at}");
        }
    }

    fn row(&self, name: &str) -> Row {
        let found = self.names.iter().find(|(_, its)| **its == name);
        *found
            .unwrap_or_else(|| panic!("no row {name}: {:?}", self.names))
            .0
    }

    /// The states that a row shows, in order; equal neighbours count once.
    fn shows(&self, name: &str) -> Vec<&str> {
        let slices = self
            .slices
            .get(&self.row(name))
            .map_or(&[][..], Vec::as_slice);
        let mut names: Vec<&str> = slices.iter().map(|s| s.name.as_str()).collect();
        names.dedup();
        names
    }

    fn has_mark(&self, text: &str) -> bool {
        self.marks.iter().any(|(_, name, _)| name == text)
    }

    fn host_of(&self, row: &str) -> &str {
        &self.processes[&self.row(row).0]
    }
}

fn one() -> Sim {
    Sim::new(PROMISE).seed(1).seeds(1)
}

fn named<T: Send + 'static>(
    name: &str,
    f: impl FnOnce() -> T + Send + 'static,
) -> windlass::task::JoinHandle<T> {
    windlass::task::Builder::new().name(name).spawn(f).unwrap()
}

/// Hosts that crash, stand still and lose one another.
fn world() {
    let server = sim::host("server", [10, 0, 0, 1], || {
        let listener = TcpListener::bind("0.0.0.0:80").unwrap();
        drop(named("sleeper", || sleep(100 * SECOND)));
        let _ = listener.accept();
    });
    let paused = sim::host("paused", [10, 0, 0, 2], || {
        let socket = UdpSocket::bind("0.0.0.0:7").unwrap();
        let _ = socket.recv(&mut [0]);
    });
    let (sender, receiver) = bounded(0);
    let worker = named("worker", move || {
        let _region = windlass::debug::region("work");
        sleep(SECOND);
        sender.send(()).unwrap();
    });
    receiver.recv().unwrap();
    worker.join().unwrap();
    paused.pause();
    sleep(SECOND);
    Network::partition(server, paused);
    Network::partition_one_way(server, sim::this_host());
    sleep(SECOND);
    paused.resume();
    server.crash();
    sleep(SECOND);
    Network::heal_all();
    server.restart();
    paused.crash_disk();
    sleep(SECOND);
}

#[test]
fn a_trace_shows_goroutines_hosts_and_faults() {
    let dir = TempDir::new();
    let path = dir.join("trace.json");
    one().trace(&path).run(world).unwrap();
    let file = File::read(&path);
    let processes: Vec<&str> = file.processes.values().map(String::as_str).collect();
    assert!(
        processes[0].starts_with("run with seed 1 ("),
        "{processes:?}"
    );
    assert_eq!(
        processes[1..],
        [
            "host main (192.0.2.1)",
            "host server (10.0.0.1)",
            "host paused (10.0.0.2)"
        ]
    );
    assert_eq!(file.host_of("main (G1)"), "host main (192.0.2.1)");
    assert_eq!(file.host_of("server (G2)"), "host server (10.0.0.1)");
    assert_eq!(file.host_of("paused (G3)"), "host paused (10.0.0.2)");
    assert_eq!(file.host_of("worker (G4)"), "host main (192.0.2.1)");
    let sleeper = file.names.values().find(|name| name.starts_with("sleeper"));
    assert_eq!(file.host_of(sleeper.unwrap()), "host server (10.0.0.1)");

    let of_worker = file.shows("worker (G4)");
    assert_eq!(of_worker[..2], ["runnable", "running"]);
    assert!(of_worker.contains(&"sleep"), "{of_worker:?}");
    assert!(file.shows("main (G1)").contains(&"sleep"));
    assert!(file.shows("server (G2)").contains(&"IO wait"));
    let schedule = file.shows("schedule");
    for name in ["main (G1)", "server (G2)", "paused (G3)", "worker (G4)"] {
        assert!(schedule.contains(&name), "{schedule:?}");
    }

    assert_eq!(file.shows("link from server to paused"), ["cut"]);
    assert_eq!(file.shows("link from paused to server"), ["cut"]);
    assert_eq!(file.shows("link from server to main"), ["cut"]);
    let hosts = file.names.iter().filter(|(_, name)| *name == "host");
    let hosts: Vec<_> = hosts
        .map(|(row, _)| (file.processes[&row.0].as_str(), &file.slices[row]))
        .collect();
    let [(first, down), (second, still)] = &hosts[..] else {
        panic!("{hosts:?}")
    };
    assert!(first.contains("server") && second.contains("paused"));
    let length = |slices: &[Slice], name: &str| {
        assert_eq!((slices.len(), slices[0].name.as_str()), (1, name));
        Duration::from_nanos(slices[0].to - slices[0].from).as_secs_f64()
    };
    // The clock of the file is a little ahead of virtual time while that stands still.
    assert!((length(down, "down") - 1.0).abs() < 0.01);
    assert!((length(still, "stands still") - 2.0).abs() < 0.01);
    for text in [
        "host paused stands still",
        "the link from server to main is cut",
        "host server crashes",
        "host paused goes on",
        "the link between server and paused stands again",
        "the link from server to main stands again",
        "host server restarts",
        "the disk of paused loses its power",
        "the run ends",
    ] {
        assert!(file.has_mark(text), "no {text:?} in {:?}", file.marks);
    }
    let n = |what: &str| file.ends.iter().filter(|(ph, ..)| ph == what).count();
    assert_eq!((n("b"), n("e")), (1, 1));
    assert!(n("s") > 0 && n("s") == n("f"));
}

#[test]
fn the_same_seed_gives_the_same_file_and_no_other_run() {
    let dir = TempDir::new();
    let paths = [dir.join("a.json"), dir.join("b.json")];
    for seed in [1, 2, 3] {
        let sim = Sim::new(PROMISE).seed(seed).seeds(1);
        let runs = paths
            .each_ref()
            .map(|path| sim.clone().trace(path).run(world));
        let files = paths.each_ref().map(|path| std::fs::read(path).unwrap());
        assert!(files[0] == files[1]);
        let without = sim.run(world).unwrap();
        assert!(runs.into_iter().all(|run| run.unwrap() == without));
    }
}

#[test]
fn steps_of_one_instant_lie_one_after_another() {
    let dir = TempDir::new();
    let path = dir.join("trace.json");
    let report = one().trace(&path).run(|| {
        let (sender, receiver) = bounded(0);
        let other = windlass::spawn(move || (0..20).for_each(|n| sender.send(n).unwrap()));
        assert_eq!(receiver.iter().count(), 20);
        other.join().unwrap();
    });
    let run = &report.unwrap().runs[0];
    assert_eq!(run.elapsed, Duration::ZERO);
    let file = File::read(&path);
    let schedule = &file.slices[&file.row("schedule")];
    assert!(schedule.len() >= 20);
    for slice in schedule {
        let steps = ["step", "last step"].map(|name| slice.args[name].as_u64().unwrap());
        assert_eq!(slice.from, steps[0] * 1000, "{slice:?}");
        assert!(steps[0] <= steps[1] && steps[1] <= run.steps);
        assert_eq!(slice.args["virtual time"], "0ns");
    }
    let (_, _, end) = file
        .marks
        .iter()
        .find(|mark| mark.1 == "the run ends")
        .unwrap();
    assert_eq!(*end, (run.steps + 1) * 1000);
}

fn lost_update() {
    let n = Arc::new(Mutex::new(0));
    let adders = [(); 2].map(|()| {
        let n = Arc::clone(&n);
        windlass::spawn(move || {
            let seen = *n.lock().unwrap();
            *n.lock().unwrap() = seen + 1;
        })
    });
    adders.into_iter().for_each(|adder| adder.join().unwrap());
    assert_eq!(*n.lock().unwrap(), 2);
}

/// Noise that has nothing to do with the failure, and takes more steps if its goroutines meet.
fn lost_update_among_others() {
    let (sender, receiver) = unbounded();
    let turn = Arc::new(Mutex::new(()));
    let others = [1, 2, 3].map(|n| {
        let (sender, turn) = (sender.clone(), Arc::clone(&turn));
        windlass::spawn(move || {
            let _turn = turn.lock().unwrap();
            sender.send(n).unwrap();
        })
    });
    others.into_iter().for_each(|other| other.join().unwrap());
    assert_eq!(receiver.len(), 3);
    lost_update();
}

/// The last step of a file.
fn last_step(file: &File) -> u64 {
    let schedule = &file.slices[&file.row("schedule")];
    schedule.last().unwrap().args["last step"].as_u64().unwrap()
}

fn fails(sim: &Sim, f: impl Fn()) -> Failure {
    sim.run(f).expect_err("the run fails")
}

#[test]
fn after_many_seeds_it_is_the_shortest_run() {
    let dir = TempDir::new();
    let path = dir.join("trace.json");
    let sim = Sim::new(PROMISE).seed(1).seeds(1_000).trace(&path);
    let failure = fails(&sim, lost_update_among_others);
    let text = failure.to_string();
    let says = format!("the trace of the shortest run is in {path:?}");
    assert!(text.contains(&says), "{text}");
    let file = File::read(&path);
    assert!(file.has_mark("the run fails: Panic"), "{:?}", file.marks);
    assert!(file.has_mark("main (G1) panics"));
    let shortest = failure.shortest().unwrap();
    let again = fails(
        &Sim::new(PROMISE).replay(shortest),
        lost_update_among_others,
    );
    assert_eq!(last_step(&file), again.until().steps);
    assert_ne!(again.until().steps, failure.until().steps);

    // The steps of the text are those of the file.
    let mut n_waits = 0;
    for line in text
        .lines()
        .filter_map(|line| line.strip_prefix("    step "))
    {
        let (step, what) = line.split_once(": goroutine ").unwrap();
        let (id, what) = what.split_once(' ').unwrap();
        if let Some((_, reason)) = what.split_once(" (").filter(|_| what.starts_with("waits")) {
            let row = file
                .names
                .iter()
                .find(|(row, _)| row.0 > 1 && row.1.to_string() == id);
            let slices = &file.slices[row.unwrap().0];
            let step: u64 = step.parse().unwrap();
            let begins = |slice: &&Slice| slice.args["step"] == step;
            let found = slices.iter().filter(begins);
            let found: Vec<_> = found
                .filter(|s| s.name == reason.trim_end_matches(')'))
                .collect();
            assert_eq!(found.len(), 1, "{line}: {slices:?}");
            let place = found[0].args["at"].as_str().unwrap();
            assert!(what.contains(place), "{line}: {place}");
            n_waits += 1;
        }
    }
    assert!(n_waits > 0, "{text}");
}

#[test]
fn with_one_seed_it_is_that_run() {
    let dir = TempDir::new();
    let path = dir.join("trace.json");
    let failure = fails(
        &Sim::new(PROMISE).seeds(1_000).shorten(false),
        lost_update_among_others,
    );
    let sim = Sim::new(PROMISE).seed(failure.seed()).seeds(1).trace(&path);
    let again = fails(&sim, lost_update_among_others);
    assert!(again.to_string().contains("the trace of this run is in "));
    assert!(again.shortest().is_some());
    assert_eq!(last_step(&File::read(&path)), failure.until().steps);
    let sim = Sim::new(PROMISE).replay(failure.schedule()).trace(&path);
    fails(&sim, lost_update_among_others);
    assert_eq!(last_step(&File::read(&path)), failure.until().steps);
}

#[test]
fn if_no_run_fails_it_is_the_last_one() {
    let dir = TempDir::new();
    let path = dir.join("trace.json");
    let report = Sim::new(PROMISE)
        .seed(5)
        .seeds(20)
        .trace(&path)
        .run(world)
        .unwrap();
    let file = File::read(&path);
    assert!(file.processes[&1].starts_with("run with seed 24 ("));
    assert_eq!(last_step(&file), report.runs[19].steps);
}

#[test]
fn a_long_run_keeps_its_end() {
    let dir = TempDir::new();
    let path = dir.join("trace.json");
    // An optimised run has more events than a trace keeps.
    let steps = if cfg!(debug_assertions) {
        10_000
    } else {
        300_000
    };
    let sim = one().trace(&path).steps(steps);
    let failure = fails(&sim, || {
        let spins = || loop {
            windlass::yield_now();
        };
        let _ = [windlass::spawn(spins), windlass::spawn(spins)];
        spins();
    });
    assert!(failure.to_string().contains("the trace of this run is in "));
    let file = File::read(&path);
    assert!(file.has_mark("the run fails: StepLimit"));
    assert_eq!(last_step(&file), steps);
}

#[test]
fn a_file_that_cannot_be_written_is_no_secret() {
    let panics = |sim: Sim| {
        let outcome = std::panic::catch_unwind(|| sim.run(|| ()));
        *outcome.unwrap_err().downcast::<String>().unwrap()
    };
    // Before anything is run.
    let nowhere = one().trace("/nowhere/trace.json");
    let text = panics(nowhere.clone());
    let says = "the trace cannot be written to \"/nowhere/trace.json\": No such file";
    assert!(text.contains(says), "{text}");
    // Later: the device is always full.
    let full = one().trace("/dev/full");
    let text = panics(full.clone());
    let says = "the trace cannot be written to \"/dev/full\": No space left";
    assert!(text.contains(says), "{text}");
    let failure = fails(&full, || panic!("oh"));
    let text = failure.to_string();
    assert!(text.contains(says) && text.contains("oh"), "{text}");
}

/// All simulations of a process write to the file of the variable, but the trace of a failure stays.
#[test]
fn the_environment_names_a_file() {
    if util::child_case().is_some() {
        let before = Sim::new(PROMISE).seed(1).seeds(3).run(world);
        before.unwrap();
        let failure = fails(&Sim::new(PROMISE).seed(1).seeds(1_000), lost_update);
        assert!(
            failure
                .to_string()
                .contains("the trace of the shortest run is in ")
        );
        Sim::new(PROMISE).seed(1).seeds(3).run(world).unwrap();
        return;
    }
    let dir = TempDir::new();
    let path = dir.join("trace.json");
    let env = [("WINDLASS_SIM_TRACE", path.to_str().unwrap())];
    let output = util::child_with_env("the_environment_names_a_file", "traces", &env);
    assert!(output.status.success(), "{output:?}");
    let file = File::read(&path);
    assert!(file.has_mark("the run fails: Panic"));
    assert_eq!(file.processes.len(), 2);
}

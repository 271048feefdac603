//! Whether the same seed gives the same run: one seed in 16 is run twice.

use std::collections::{BTreeMap, HashMap};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::random::Random;
use windlass::fs::{self, File};
use windlass::net::{TcpListener, TcpStream};
use windlass::sim::{self, Disk, Failure, FailureKind, Faults, Link, Sim, Strategy};
use windlass::sync::{Arc, Mutex};
use windlass::time::{Duration, Instant, SystemTime, sleep};

use crate::util::PROMISE;

const SECOND: Duration = Duration::from_secs(1);
const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

/// One goroutine for each name, in the order given. Each sleeps for as long as its name says.
fn in_order<'a>(names: impl Iterator<Item = &'a &'static str>) {
    let all: Vec<_> = names
        .map(|name| {
            let seconds = u32::from(name.as_bytes()[0]);
            windlass::spawn(move || sleep(seconds * SECOND))
        })
        .collect();
    all.into_iter().for_each(|one| one.join().unwrap());
}

#[track_caller]
fn is_not_deterministic(f: impl Fn()) -> Failure {
    let failure = Sim::new(PROMISE).seed(3).seeds(50).run(f).unwrap_err();
    assert_eq!(failure.kind(), FailureKind::NotDeterministic, "{failure}");
    failure
}

#[test]
fn one_seed_in_16_is_run_twice() {
    let calls = AtomicU32::new(0);
    let report = Sim::new(PROMISE).seeds(33).run(|| {
        calls.fetch_add(1, Ordering::Relaxed);
    });
    assert_eq!(report.unwrap().runs.len(), 33);
    assert_eq!(calls.into_inner(), 36);
}

#[test]
fn the_order_of_a_hash_map_is_found() {
    let failure = is_not_deterministic(|| {
        let all: HashMap<&str, ()> = NAMES.map(|name| (name, ())).into();
        in_order(all.keys());
    });
    let text = failure.to_string();
    for part in [
        "two runs with this seed differed",
        "the order of a HashMap",
        " differs: ",
        "in the first run, ",
        "WINDLASS_SIM_SEED=",
    ] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
}

#[test]
fn the_order_of_a_sorted_map_is_the_same() {
    let sim = Sim::new(PROMISE).seed(3).seeds(50);
    let all: BTreeMap<&str, ()> = NAMES.map(|name| (name, ())).into();
    let report = sim.run(|| in_order(all.keys())).unwrap();
    assert_eq!(report, sim.run(|| in_order(all.keys())).unwrap());
}

#[test]
fn the_clocks_of_std_are_found() {
    is_not_deterministic(|| {
        let now = std::time::SystemTime::now();
        let since = now.duration_since(std::time::UNIX_EPOCH).unwrap();
        sleep(Duration::from_nanos(u64::from(since.subsec_nanos())));
    });
}

/// Nothing that windlass gives differs: clocks, numbers, names, what is chosen.
#[test]
fn what_windlass_gives_is_the_same() {
    for strategy in [Strategy::Mixed, Strategy::RoundRobin] {
        let seen: std::sync::Mutex<BTreeMap<u64, String>> = std::sync::Mutex::default();
        let sim = Sim::new(PROMISE).seed(9).seeds(20).strategy(strategy);
        let with_log = |compare: bool| {
            let log = std::sync::Mutex::new(Vec::new());
            let report = sim.run(|| {
                let start = Instant::now();
                let text = Arc::new(Mutex::new(String::new()));
                let add = |name: &'static str| {
                    let text = Arc::clone(&text);
                    windlass::spawn(move || {
                        let id = windlass::task::current().id();
                        sleep(SECOND);
                        let at = (start.elapsed(), SystemTime::now());
                        *text.lock().unwrap() += &format!("{name} {id} {at:?}\n");
                    })
                };
                let all = NAMES.map(add);
                all.into_iter().for_each(|one| one.join().unwrap());
                log.lock().unwrap().push(text.lock().unwrap().clone());
            });
            for (n, text) in log.into_inner().unwrap().into_iter().enumerate() {
                let mut seen = seen.lock().unwrap();
                let before = seen.insert(n as u64, text.clone());
                assert!(!compare || before == Some(text));
            }
            report.unwrap()
        };
        assert_eq!(with_log(false), with_log(true));
    }
}

#[test]
fn a_state_that_outlives_the_run_is_found() {
    let calls = AtomicU32::new(0);
    is_not_deterministic(|| {
        if calls.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) {
            sleep(SECOND);
        } else {
            windlass::spawn(|| ()).join().unwrap();
        }
    });
}

#[test]
fn a_second_run_that_fails_is_found() {
    let calls = AtomicU32::new(0);
    let failure = is_not_deterministic(|| {
        sim::settle();
        assert_eq!(calls.fetch_add(1, Ordering::Relaxed), 0, "the second");
    });
    let text = failure.to_string();
    assert!(text.contains("only the second run failed"), "{text}");
    assert!(text.contains("the second"), "{text}");
}

/// A failure that its own choices do not repeat is printed all the same.
#[test]
fn a_failure_that_is_not_repeated_says_so() {
    let calls = AtomicU32::new(0);
    let outcome = Sim::new(PROMISE).seed(3).run(|| {
        assert!(calls.fetch_add(1, Ordering::Relaxed) > 0, "the first");
    });
    let failure = outcome.unwrap_err();
    assert_eq!(failure.kind(), FailureKind::Panic);
    assert!(failure.shortest().is_none());
    let text = failure.to_string();
    assert!(text.contains("did not fail like this"), "{text}");
}

/// Runs twice what a seed decides; the runs are the same.
#[track_caller]
fn is_the_same_twice(sim: impl Fn() -> Sim, f: impl Fn()) {
    let run = || {
        let report = sim().run(&f);
        report.unwrap_or_else(|failure| panic!("{failure}")).runs
    };
    assert_eq!(run(), run());
}

/// Where `join` changes stacks is a matter of the program, and not of where its stacks lie.
#[test]
fn a_recursion_on_small_stacks() {
    fn deep(n: u32) -> u32 {
        match n {
            0 => 0,
            _ => windlass::join(|| deep(n - 1), || 1).0 + 1,
        }
    }
    for _ in 0..8 {
        is_the_same_twice(
            || Sim::new(PROMISE).seed(16).seeds(1),
            || {
                let small = windlass::task::Builder::new().stack_size(16 << 10);
                assert_eq!(small.spawn(|| deep(300)).unwrap().join().unwrap(), 300);
            },
        );
    }
}

/// The work of a drawn program on each of its hosts: files, names, connections, sleeps.
fn live(random: &mut Random, n_hosts: usize) {
    let mut below = |n: usize| (random.next() >> 33) as usize % n;
    let mut files = Vec::new();
    for step in 0..30 {
        let path = format!("/{}", NAMES[below(4)]);
        let bytes = vec![step; below(9000)];
        let _ = match below(12) {
            0 => fs::write(&path, &bytes),
            1 => fs::rename(&path, format!("/{}", NAMES[below(4)])),
            2 => fs::remove_file(&path),
            3 => File::open("/").and_then(|root| root.sync_all()),
            4 => File::options()
                .read(true)
                .write(true)
                .create(true)
                .open(&path)
                .map(|file| files.push(file)),
            5..=7 => files.last().map_or(Ok(()), |file: &File| {
                file.write_all_at(&bytes, below(5000) as u64)?;
                file.sync_data()
            }),
            8 => fs::read_dir("/").map(|entries| {
                for entry in entries {
                    let _ = entry.and_then(|entry| fs::read(entry.path()));
                }
            }),
            9 | 10 => TcpStream::connect((format!("host{}", below(n_hosts)), 80)).and_then(
                |mut stream| {
                    stream.set_read_timeout(Some(SECOND))?;
                    stream.write_all(&bytes)?;
                    stream.read_exact(&mut [0; 10])
                },
            ),
            _ => {
                sleep(Duration::from_millis(below(3000) as u64));
                Ok(())
            }
        };
    }
}

fn serve() {
    let Ok(listener) = TcpListener::bind("0.0.0.0:80") else {
        return;
    };
    windlass::spawn(move || {
        for stream in listener.incoming().flatten() {
            windlass::spawn(move || {
                let mut stream = stream;
                let _ = stream.read(&mut [0; 100]);
                let names = fs::read_dir("/").map_or(0, Iterator::count);
                let _ = fs::write("/served", names.to_string());
                let _ = stream.write_all(&[names as u8; 10]);
            });
        }
    });
}

#[test]
fn drawn_programs_of_files_and_sockets_with_crashes() {
    const HOSTS: usize = 3;
    for seed in 0..30 {
        let faults = || {
            let network = Faults::network().partitions(4.0).resets(4.0);
            network
                .crashes(6.0)
                .pauses(4.0)
                .slow_disks(2.0)
                .failing_disks(2.0)
        };
        let link = || Link::new().latency_between(Duration::ZERO, Duration::from_millis(20));
        let disk = || {
            Disk::new()
                .short_reads(0.1)
                .short_writes(0.1)
                .sync_errors(0.05)
        };
        is_the_same_twice(
            || {
                Sim::new(PROMISE)
                    .seed(seed)
                    .seeds(1)
                    .faults(faults())
                    .link(link())
                    .disk(disk())
            },
            || {
                for n in 0..HOSTS {
                    let starts = AtomicU32::new(0);
                    sim::host(&format!("host{n}"), [10, 0, 0, n as u8 + 1], move || {
                        // After a restart it does something else.
                        let k = starts.fetch_add(1, Ordering::Relaxed);
                        let mut random =
                            Random::new(seed * 1000 + n as u64 * 100 + u64::from(k) + 1);
                        for _ in 0..20 {
                            random.next();
                        }
                        serve();
                        live(&mut random, HOSTS);
                    });
                }
                sleep(120 * SECOND);
            },
        );
    }
}

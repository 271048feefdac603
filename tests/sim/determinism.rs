//! Whether the same seed gives the same run: one seed in 16 is run twice.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU32, Ordering};

use windlass::sim::{self, Failure, FailureKind, Sim, Strategy};
use windlass::sync::{Arc, Mutex};
use windlass::time::{Duration, Instant, SystemTime, sleep};

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
    let failure = Sim::new().seed(3).seeds(50).run(f).unwrap_err();
    assert_eq!(failure.kind(), FailureKind::NotDeterministic, "{failure}");
    failure
}

#[test]
fn one_seed_in_16_is_run_twice() {
    let calls = AtomicU32::new(0);
    let report = Sim::new().seeds(33).run(|| {
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
    let sim = Sim::new().seed(3).seeds(50);
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
        let sim = Sim::new().seed(9).seeds(20).strategy(strategy);
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
    let outcome = Sim::new().seed(3).run(|| {
        assert!(calls.fetch_add(1, Ordering::Relaxed) > 0, "the first");
    });
    let failure = outcome.unwrap_err();
    assert_eq!(failure.kind(), FailureKind::Panic);
    assert!(failure.shortest().is_none());
    let text = failure.to_string();
    assert!(text.contains("did not fail like this"), "{text}");
}

//! The schedule: seeds, strategies, fairness of choices.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use windlass::channel::{bounded, unbounded};
use windlass::sim::{FailureKind, Report, Sim, Strategy};
use windlass::sync::{Arc, Mutex};

use crate::util;
use crate::util::PROMISE;

const STRATEGIES: [Strategy; 4] = [
    Strategy::Mixed,
    Strategy::RandomWalk,
    Strategy::Pct { depth: 3 },
    Strategy::RoundRobin,
];

/// Goroutines that use a lock and a channel.
fn some_traffic() {
    let (sender, receiver) = bounded(2);
    let total = Arc::new(Mutex::new(0));
    let senders = [1, 2, 3].map(|n| {
        let (sender, total) = (sender.clone(), Arc::clone(&total));
        windlass::spawn(move || {
            *total.lock().unwrap() += n;
            sender.send(n).unwrap();
        })
    });
    drop(sender);
    assert_eq!(receiver.iter().sum::<i32>(), 6);
    senders
        .into_iter()
        .for_each(|sender| sender.join().unwrap());
    assert_eq!(*total.lock().unwrap(), 6);
}

fn schedules(report: &Report) -> Vec<u64> {
    report.runs.iter().map(|run| run.schedule).collect()
}

#[test]
fn a_seed_repeats_its_schedule() {
    for strategy in STRATEGIES {
        let sim = Sim::new(PROMISE).seed(7).seeds(20).strategy(strategy);
        let first = sim.run(some_traffic).unwrap();
        let again = sim.run(some_traffic).unwrap();
        assert_eq!(first, again, "{strategy:?}");
        let last = Sim::new(PROMISE).seed(26).seeds(1).strategy(strategy);
        let last = last.run(some_traffic).unwrap();
        assert_eq!(last.runs[0], first.runs[19], "{strategy:?}");
    }
}

#[test]
fn seeds_have_different_schedules() {
    for strategy in &STRATEGIES[..3] {
        let sim = Sim::new(PROMISE).seed(1).seeds(50).strategy(*strategy);
        let report = sim.run(some_traffic).unwrap();
        let all: BTreeSet<u64> = schedules(&report).into_iter().collect();
        assert!(all.len() > 20, "{strategy:?}: {}", all.len());
    }
}

#[test]
fn round_robin_draws_no_schedule() {
    let sim = Sim::new(PROMISE).seeds(20).strategy(Strategy::RoundRobin);
    let all: BTreeSet<u64> = schedules(&sim.run(some_traffic).unwrap())
        .into_iter()
        .collect();
    assert_eq!(all.len(), 1);
}

#[test]
fn each_call_has_new_seeds() {
    let seed = || Sim::new(PROMISE).seeds(1).run(|| {}).unwrap().runs[0].seed;
    assert_ne!(seed(), seed());
}

#[test]
fn a_select_takes_each_branch() {
    for strategy in STRATEGIES {
        let taken = std::sync::Mutex::new([0; 3]);
        let sim = Sim::new(PROMISE).seed(3).seeds(300).strategy(strategy);
        sim.run(|| {
            let channels = [0, 1, 2].map(|_| unbounded());
            for (sender, _) in &channels {
                sender.send(()).unwrap();
            }
            let at = windlass::select! {
                recv(channels[0].1) -> _ => 0,
                recv(channels[1].1) -> _ => 1,
                recv(channels[2].1) -> _ => 2,
            };
            taken.lock().unwrap()[at] += 1;
        })
        .unwrap();
        let taken = taken.into_inner().unwrap();
        assert!(taken.iter().all(|n| (60..=160).contains(n)), "{taken:?}");
    }
}

#[test]
fn every_order_of_two_goroutines_comes() {
    let orders = std::sync::Mutex::new(BTreeSet::new());
    // A hundred seeds miss an order once in fifteen times.
    let report = Sim::new(PROMISE).seed(1).seeds(1_000).run(|| {
        let order = Arc::new(Mutex::new(Vec::new()));
        let both = ["a", "b"].map(|name| {
            let order = Arc::clone(&order);
            windlass::spawn(move || {
                for _ in 0..2 {
                    order.lock().unwrap().push(name);
                }
            })
        });
        both.into_iter().for_each(|one| one.join().unwrap());
        orders
            .lock()
            .unwrap()
            .insert(order.lock().unwrap().concat());
    });
    report.unwrap();
    assert_eq!(orders.into_inner().unwrap().len(), 6);
}

/// Two goroutines that read and write in two steps.
fn a_lost_update() {
    let n = Arc::new(Mutex::new(0));
    let both = [(); 2].map(|()| {
        let n = Arc::clone(&n);
        windlass::spawn(move || {
            let seen = *n.lock().unwrap();
            *n.lock().unwrap() = seen + 1;
        })
    });
    both.into_iter().for_each(|one| one.join().unwrap());
    assert_eq!(*n.lock().unwrap(), 2);
}

#[test]
fn an_exhaustive_search_comes_to_its_end() {
    let search = |preemptions| Sim::new(PROMISE).strategy(Strategy::Exhaustive { preemptions });
    let orders = std::sync::Mutex::new(BTreeSet::new());
    let report = search(4).run(|| {
        let order = Arc::new(Mutex::new(Vec::new()));
        let both = ["a", "b"].map(|name| {
            let order = Arc::clone(&order);
            windlass::spawn(move || {
                for _ in 0..2 {
                    order.lock().unwrap().push(name);
                }
            })
        });
        both.into_iter().for_each(|one| one.join().unwrap());
        let order = order.lock().unwrap().concat();
        orders.lock().unwrap().insert(order);
    });
    let report = report.unwrap();
    assert!(report.is_complete);
    assert_eq!(orders.into_inner().unwrap().len(), 6);
    let all: BTreeSet<u64> = schedules(&report).into_iter().collect();
    assert_eq!(all.len(), report.runs.len(), "no schedule comes twice");
    // A bound on the number of runs ends it early.
    let report = search(4).seeds(3).run(some_traffic).unwrap();
    assert!(!report.is_complete && report.runs.len() == 3);
}

/// A goroutine that yields lets others run: otherwise there would be no end of schedules.
#[test]
fn an_exhaustive_search_of_a_loop_that_yields_ends() {
    let search = Sim::new(PROMISE).strategy(Strategy::Exhaustive { preemptions: 1 });
    let report = search.seeds(5_000).run(|| {
        let n = Arc::new(Mutex::new(0));
        let own = Arc::clone(&n);
        let sets = windlass::spawn(move || *own.lock().unwrap() += 1);
        while *n.lock().unwrap() == 0 {
            windlass::yield_now();
        }
        sets.join().unwrap();
    });
    let report = report.unwrap();
    assert!(report.is_complete, "{} runs", report.runs.len());
}

#[test]
fn an_exhaustive_search_finds_what_so_many_preemptions_show() {
    let search = |preemptions| Sim::new(PROMISE).strategy(Strategy::Exhaustive { preemptions });
    assert!(search(0).run(a_lost_update).unwrap().is_complete);
    let failure = search(1).run(a_lost_update).unwrap_err();
    let again = Sim::new(PROMISE)
        .replay(failure.schedule())
        .run(a_lost_update);
    assert_eq!(
        again.unwrap_err().until().schedule,
        failure.until().schedule
    );
}

#[test]
fn a_schedule_repeats_its_run_without_the_seed() {
    for strategy in &STRATEGIES[..3] {
        let sim = Sim::new(PROMISE).seed(1).seeds(1_000).strategy(*strategy);
        let failure = sim.run(a_lost_update).unwrap_err();
        let text = failure.schedule().to_string();
        let again = Sim::new(PROMISE)
            .replay(&text.parse().unwrap())
            .run(a_lost_update);
        let again = again.unwrap_err();
        assert_eq!(again.until().schedule, failure.until().schedule);
        assert_eq!(again.panics(), failure.panics());
    }
}

/// A schedule of another program, or of this one before a change, says nothing of a run that passes.
#[test]
fn a_schedule_that_does_not_fit_fails() {
    let yields = || windlass::yield_now();
    for (schedule, f, misfit) in [
        (
            "0,7",
            some_traffic as fn(),
            "choice 2 of its 2 is 7, where only ",
        ),
        ("0x40000,1", some_traffic, " of its 40001 choices"),
        ("1", yields, "the run ended after 0 of its 1 choices"),
    ] {
        let replay = Sim::new(PROMISE).replay(&schedule.parse().unwrap());
        let failure = replay.run(f).unwrap_err();
        assert_eq!(failure.kind(), FailureKind::ScheduleMismatch);
        let text = failure.to_string();
        assert!(text.contains("the schedule does not fit"), "{text}");
        assert!(text.contains(misfit), "{text}");
    }
    // One that fails in another way says so as well.
    let fails = Sim::new(PROMISE).replay(&"1".parse().unwrap());
    let failure = fails.run(|| panic!("found")).unwrap_err();
    assert_eq!(failure.kind(), FailureKind::Panic);
    assert!(failure.to_string().contains("the schedule does not fit: "));
}

/// It names the run as one that was not drawn, and the schedule repeats it.
#[test]
fn a_run_that_was_not_drawn_is_repeated_by_its_schedule() {
    let search = Sim::new(PROMISE).strategy(Strategy::Exhaustive { preemptions: 1 });
    let found = search.run(a_lost_update).unwrap_err();
    let replay = Sim::new(PROMISE).replay(found.schedule());
    for failure in [&found, &replay.run(a_lost_update).unwrap_err()] {
        let text = failure.to_string();
        let repeats = format!("WINDLASS_SIM_SCHEDULE={} repeats it", found.schedule());
        assert!(text.contains(&repeats), "{text}");
        assert!(!text.contains("WINDLASS_SIM_SEED"), "{text}");
        assert!(!text.contains("does not fit"), "{text}");
    }
}

/// The variable holds for a test, which fails.
#[test]
fn a_schedule_of_the_environment_that_does_not_fit_fails() {
    const NAME: &str = "a_schedule_of_the_environment_that_does_not_fit_fails";
    if util::child_case().is_some() {
        windlass::sim::check(PROMISE, some_traffic);
        return;
    }
    let run = |schedule| util::child_with_env(NAME, "", &[("WINDLASS_SIM_SCHEDULE", schedule)]);
    let fits = run("0");
    assert!(fits.status.success(), "{fits:?}");
    let output = run("0x500,1");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{text}");
    assert!(
        text.contains("simulation failed: the schedule does not fit the program"),
        "{text}"
    );
}

/// A goroutine that tries for ever, if no choice interrupts it, keeps the search from no end.
#[test]
fn a_shorter_schedule_that_never_ends_is_given_up() {
    let calls = AtomicU64::new(0);
    let n_tries = AtomicU64::new(0);
    let sim = Sim::new(PROMISE)
        .seed(1)
        .seeds(1_000)
        .strategy(Strategy::RandomWalk);
    let failure = sim.run(|| {
        calls.fetch_add(1, Ordering::Relaxed);
        let lock = Arc::new(Mutex::new(()));
        let own = Arc::clone(&lock);
        let holder = windlass::spawn(move || {
            for _ in 0..3 {
                drop(own.lock().unwrap());
            }
            panic!("found");
        });
        while !holder.is_finished() {
            n_tries.fetch_add(1, Ordering::Relaxed);
            drop(lock.try_lock());
        }
    });
    assert!(failure.unwrap_err().shortest().is_some());
    let (calls, n_tries) = (calls.into_inner(), n_tries.into_inner());
    assert!(n_tries < 2_000 * calls, "{n_tries} tries in {calls} runs");
}

#[test]
fn the_shortest_schedule_has_the_choices_that_matter() {
    let sim = Sim::new(PROMISE)
        .seed(1)
        .seeds(1_000)
        .strategy(Strategy::RandomWalk);
    let failure = sim.run(|| {
        // Traffic that has nothing to do with it.
        some_traffic();
        a_lost_update();
    });
    let failure = failure.unwrap_err();
    let shortest = failure.shortest().expect("one was searched for");
    assert!(shortest.n_choices() <= 2, "{failure}");
    assert!(failure.schedule().n_choices() > 2);
    // It is told as well.
    let text = failure.to_string();
    let events = text
        .split_once(&format!("={shortest} repeats it\n"))
        .unwrap()
        .1;
    let (events, _) = events.split_once("\n\n").unwrap();
    for part in ["goroutine 1 waits", "is interrupted", " ends"] {
        assert!(events.contains(part), "no {part:?} in {events}");
    }
    let again = Sim::new(PROMISE).replay(shortest).run(|| {
        some_traffic();
        a_lost_update();
    });
    assert_eq!(again.unwrap_err().panics()[0].at, failure.panics()[0].at);
    assert!(
        failure
            .to_string()
            .contains(&format!("WINDLASS_SIM_SCHEDULE={shortest}"))
    );
}

//! The workloads: programs of the public interface, which run on the twin and on this machine alike.

use std::sync::Arc;
use std::time::Duration;

use windlass::channel::bounded;
use windlass::sync::Mutex;
use windlass::{Builder, Runtime, sleep, spawn, yield_now};

#[cfg(explore)]
use crate::clock::current_cpu;
use crate::clock::{charge, forget_costs, now_ns};

/// Rounds of all Ps together: the more Ps, the fewer has each.
const MOST_ROUNDS: u64 = 20_000;

/// A workload, for so many Ps and rounds on each.
#[derive(Clone, Copy)]
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    /// One operation.
    #[cfg_attr(
        not(explore),
        allow(dead_code, reason = "the tables of the twin have it")
    )]
    pub(crate) what: &'static str,
    /// Rounds on each P, at most.
    pub(crate) rounds: u64,
    run: fn(u64, u64) -> u64,
}

pub(crate) const ALL: &[Workload] = &[
    Workload {
        name: "spawn",
        what: "a goroutine is spawned and joined, on each P by one",
        rounds: 2_000,
        run: spawn_and_join,
    },
    Workload {
        name: "yield",
        what: "a goroutine yields, two on each P",
        rounds: 2_000,
        run: yields,
    },
    Workload {
        name: "pairs",
        what: "a value goes to and fro between two goroutines, a pair on each P",
        rounds: 1_000,
        run: pairs,
    },
    Workload {
        name: "mutex",
        what: "one lock for all is taken for 100 ns, then 1 µs of work without it",
        rounds: 400,
        run: mutex,
    },
    Workload {
        name: "sleepers",
        what: "a goroutine sleeps for 100 µs, four on each P",
        rounds: 40,
        run: sleepers,
    },
    Workload {
        name: "one-to-all",
        what: "one goroutine sends work of 5 µs, one on each P receives",
        rounds: 100,
        run: one_to_all,
    },
];

/// The outcome of a workload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) n_ops: u64,
    pub(crate) ns: u64,
}

impl Workload {
    /// Runs it as the program of a runtime with so many Ps.
    pub(crate) fn run(&self, rt: &Runtime, n_ps: usize) -> Outcome {
        let run = self.run;
        let n_ps = n_ps as u64;
        let rounds = self.rounds.min(MOST_ROUNDS / n_ps);
        rt.run(move || {
            // The Ms and the slots of goroutines are there then.
            run(n_ps, rounds / 10);
            forget_costs();
            let begin_ns = now_ns();
            let n_ops = run(n_ps, rounds);
            Outcome {
                n_ops,
                ns: now_ns() - begin_ns,
            }
        })
    }
}

#[expect(unsafe_code, reason = "the builder's contract")]
pub(crate) fn build(builder: Builder) -> Runtime {
    // SAFETY: nothing here keeps a thread-local across a call that parks.
    unsafe { builder.build() }.expect("a runtime")
}

/// Runs `f` in `n` goroutines, and waits for them.
fn on_each(n: u64, f: impl Fn() + Send + Sync + 'static) {
    let f = Arc::new(f);
    let start = |_| {
        let f = Arc::clone(&f);
        spawn(move || f())
    };
    let all: Vec<_> = (0..n).map(start).collect();
    all.into_iter().for_each(|g| g.join().expect("it ends"));
}

fn spawn_and_join(n_ps: u64, rounds: u64) -> u64 {
    on_each(n_ps, move || {
        (0..rounds).for_each(|_| spawn(|| ()).join().expect("it ends"));
    });
    n_ps * rounds
}

fn yields(n_ps: u64, rounds: u64) -> u64 {
    on_each(2 * n_ps, move || (0..rounds).for_each(|_| yield_now()));
    2 * n_ps * rounds
}

fn pairs(n_ps: u64, rounds: u64) -> u64 {
    on_each(n_ps, move || {
        let (to, at) = bounded::<u64>(1);
        let (back, answer) = bounded::<u64>(1);
        let other = spawn(move || {
            at.iter()
                .for_each(|n| back.send(n).expect("it is received"))
        });
        for n in 0..rounds {
            to.send(n).expect("it is received");
            assert_eq!(answer.recv(), Ok(n));
        }
        drop(to);
        other.join().expect("it ends");
    });
    n_ps * rounds
}

fn mutex(n_ps: u64, rounds: u64) -> u64 {
    let n = Arc::new(Mutex::new(0));
    let number = Arc::clone(&n);
    on_each(n_ps, move || {
        for _ in 0..rounds {
            let mut held = number.lock().expect("nobody panics");
            charge(Duration::from_nanos(100));
            *held += 1;
            drop(held);
            charge(Duration::from_micros(1));
        }
    });
    let n = *n.lock().expect("nobody panics");
    assert_eq!(n, n_ps * rounds);
    n
}

fn sleepers(n_ps: u64, rounds: u64) -> u64 {
    on_each(4 * n_ps, move || {
        (0..rounds).for_each(|_| sleep(Duration::from_micros(100)));
    });
    4 * n_ps * rounds
}

fn one_to_all(n_ps: u64, rounds: u64) -> u64 {
    let (to, at) = bounded::<()>(256);
    let sender = spawn(move || {
        (0..n_ps * rounds).for_each(|_| to.send(()).expect("it is received"));
    });
    on_each(n_ps, move || {
        at.iter().for_each(|()| charge(Duration::from_micros(5)));
    });
    sender.join().expect("it ends");
    n_ps * rounds
}

/// Goroutines of a burst, and how long each computes.
#[cfg(explore)]
const BURST: u64 = 10_000;
#[cfg(explore)]
const BURST_WORK: Duration = Duration::from_micros(50);

/// A burst: times in ns since its first spawn.
#[cfg(explore)]
#[derive(Debug)]
pub(crate) struct Burst {
    /// All goroutines are spawned.
    pub(crate) spawned_ns: u64,
    /// The first goroutine on each CPU begins, in order of time. The first of all is the one that spawns.
    pub(crate) begun_ns: Vec<u64>,
    /// All goroutines have ended.
    pub(crate) ended_ns: u64,
}

/// Spawns 10,000 goroutines into an idle machine.
#[cfg(explore)]
pub(crate) fn burst(rt: &Runtime) -> Burst {
    rt.run(|| {
        // All Ms fall asleep.
        sleep(Duration::from_millis(20));
        forget_costs();
        let begin_ns = now_ns();
        let mut first = std::collections::BTreeMap::from([(current_cpu(), 0)]);
        let work = move || {
            let seen = (current_cpu(), now_ns() - begin_ns);
            charge(BURST_WORK);
            seen
        };
        let all: Vec<_> = (0..BURST).map(|_| spawn(work)).collect();
        let spawned_ns = now_ns() - begin_ns;
        let mut ended_ns = 0;
        for g in all {
            let (cpu, at_ns) = g.join().expect("it ends");
            let seen_ns = first.entry(cpu).or_insert(at_ns);
            *seen_ns = at_ns.min(*seen_ns);
            ended_ns = ended_ns.max(at_ns + BURST_WORK.as_nanos() as u64);
        }
        let mut begun_ns: Vec<_> = first.into_values().collect();
        begun_ns.sort_unstable();
        Burst {
            spawned_ns,
            begun_ns,
            ended_ns,
        }
    })
}

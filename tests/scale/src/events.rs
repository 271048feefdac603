//! Events that come seldom, and so are in no curve: a stop of the world, a change of the number of Ps, the end of a run,
//! sysmon's look, an idle machine, goroutines that compute on and on, work for all that comes from one.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use windlass::channel::unbounded;
use windlass::explore::lines::Thefts;
use windlass::explore::twin::{cpu_times, current_cpu, now_ns, thefts};
use windlass::explore::{advance, charge};
use windlass::metrics::PMetrics;
use windlass::task::park;
use windlass::{Builder, Runtime, blocking, sleep, spawn, yield_now};

use crate::clock::{begin_costs, end_costs};
use crate::table::receiver;
use crate::workloads::build;

/// A figure of an event: its name, its value in a unit, and the most that it is to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figure {
    name: &'static str,
    value: f64,
    unit: &'static str,
    goal: Option<f64>,
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Figure {
            name, value, unit, ..
        } = self;
        write!(f, "{name}: {value:.2} {unit}")?;
        match self.goal {
            None => Ok(()),
            Some(goal) if *value <= goal => write!(f, ", goal {goal} {unit}: met"),
            Some(goal) => write!(f, ", goal {goal} {unit}: missed"),
        }
    }
}

/// An event on all Ps of a machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    pub(crate) run: fn(Builder) -> Vec<Figure>,
}

pub(crate) const ALL: &[Event] = &[
    Event {
        name: "stop",
        what: "the world stops and goes on beside two goroutines on each P that yield every 20 µs, and 2,000 that wait",
        run: |builder| change_ps(builder, |n| n, 2_000.0),
    },
    Event {
        name: "set_processors",
        what: "half of the Ps leave, and come back, under the same load",
        run: |builder| change_ps(builder, |n| n.div_ceil(2), 5_000.0),
    },
    Event {
        name: "end",
        what: "a run ends while goroutines wait",
        run: end,
    },
    Event {
        name: "sections",
        what: "1,000 goroutines go from one blocking section of 5 ms to the next",
        run: sections,
    },
    Event {
        name: "idle",
        what: "one goroutine sleeps for a second, and there is no other",
        run: idle,
    },
    Event {
        name: "hogs",
        what: "a goroutine on each P computes for 60 ms, and others have to run",
        run: hogs,
    },
    Event {
        name: "producer",
        what: "one goroutine sends 5 pieces of work of 50 µs for each P, for which one waits on each",
        run: producer,
    },
    Event {
        name: "wakes",
        what: "a channel closes for which 16 goroutines on each P wait, that then compute for 5 µs",
        run: wakes,
    },
];

fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

fn figure(name: &'static str, value: f64, unit: &'static str) -> Figure {
    Figure {
        name,
        value,
        unit,
        goal: None,
    }
}

fn with_goal(goal: f64, figure: Figure) -> Figure {
    Figure {
        goal: Some(goal),
        ..figure
    }
}

/// CPU time so far: of sysmon, and of all threads.
fn cpu_ns() -> (u64, u64) {
    let times = cpu_times();
    let sysmon = times.iter().filter(|(name, _)| name.ends_with("-sysmon"));
    (
        sysmon.map(|(_, ns)| ns).sum(),
        times.iter().map(|(_, ns)| ns).sum(),
    )
}

/// The part of `span` that sysmon had a CPU, and the CPUs that all threads had, while `f` ran.
fn watched(f: impl FnOnce()) -> [Figure; 2] {
    begin_costs();
    let (begin_ns, begin) = (now_ns(), cpu_ns());
    f();
    let (end_ns, end) = (now_ns(), cpu_ns());
    end_costs();
    let span_ns = (end_ns - begin_ns) as f64;
    let percent = |from: u64, to: u64| 100.0 * (to - from) as f64 / span_ns;
    [
        with_goal(1.0, figure("sysmon", percent(begin.0, end.0), "% of a CPU")),
        figure("all threads", percent(begin.1, end.1), "% of a CPU"),
    ]
}

/// The median and the longest of three changes to `to(n)` Ps and of those back. Each is to take `goal_us` at most.
fn change_ps(builder: Builder, to: fn(usize) -> usize, goal_us: f64) -> Vec<Figure> {
    let rt = build(builder);
    let n_ps = rt.processors();
    rt.run(|| {
        let ends = Arc::new(AtomicBool::new(false));
        let load = || {
            let ends = Arc::clone(&ends);
            spawn(move || {
                while !ends.load(Ordering::Relaxed) {
                    charge(Duration::from_micros(20));
                    yield_now();
                }
            })
        };
        let all: Vec<_> = (0..2 * n_ps).map(|_| load()).collect();
        let (open, gate) = unbounded::<()>();
        let wait = || {
            let gate = gate.clone();
            spawn(move || gate.recv().is_err())
        };
        let waiting: Vec<_> = (0..2_000).map(|_| wait()).collect();
        // Each P has some by then: sysmon, which stops the world, has started 511 threads of 512, 15 µs each.
        sleep(Duration::from_millis(20));
        let timed = |n: usize| {
            let begin_ns = now_ns();
            rt.set_processors(n).expect("there are so many");
            let took_us = us(now_ns() - begin_ns);
            sleep(Duration::from_millis(1));
            took_us
        };
        begin_costs();
        let mut times: Vec<_> = (0..3)
            .flat_map(|_| [timed(to(n_ps)), timed(n_ps)])
            .collect();
        end_costs();
        times.sort_unstable_by(f64::total_cmp);
        ends.store(true, Ordering::Relaxed);
        drop(open);
        all.into_iter().for_each(|g| g.join().expect("it ends"));
        (waiting.into_iter()).for_each(|g| assert!(g.join().expect("it ends")));
        vec![
            with_goal(goal_us, figure("median", times[times.len() / 2], "µs")),
            with_goal(goal_us, figure("longest", times[times.len() - 1], "µs")),
        ]
    })
}

/// Ends runs with goroutines that are parked, each by itself: the time for each goroutine is to stay the same.
fn end(builder: Builder) -> Vec<Figure> {
    let rt = build(builder);
    let timed = |n: u64| {
        let returned_ns = rt.run(move || {
            for _ in 0..n {
                drop(spawn(|| {
                    loop {
                        park();
                    }
                }));
            }
            sleep(Duration::from_millis(20));
            now_ns()
        });
        (now_ns() - returned_ns) as f64
    };
    let few = timed(2_000);
    let many = timed(16_000);
    vec![
        figure("2,000 goroutines", few / 1e3, "µs"),
        figure("16,000 goroutines", many / 1e3, "µs"),
        with_goal(
            1.2,
            figure(
                "for each of the many, against the few",
                many / 8.0 / few,
                "times",
            ),
        ),
    ]
}

fn sections(builder: Builder) -> Vec<Figure> {
    let rt = build(builder.max_threads(2_000));
    rt.run(|| {
        let ends = Arc::new(AtomicBool::new(false));
        let begin = || {
            let ends = Arc::clone(&ends);
            spawn(move || {
                while !ends.load(Ordering::Relaxed) {
                    blocking(|| advance(Duration::from_millis(5)));
                }
            })
        };
        let all: Vec<_> = (0..1_000).map(|_| begin()).collect();
        sleep(Duration::from_millis(50));
        let figures = watched(|| sleep(Duration::from_millis(50)));
        ends.store(true, Ordering::Relaxed);
        all.into_iter().for_each(|g| g.join().expect("it ends"));
        figures.to_vec()
    })
}

fn idle(builder: Builder) -> Vec<Figure> {
    let rt = build(builder);
    rt.run(|| {
        sleep(Duration::from_millis(100));
        watched(|| sleep(Duration::from_secs(1))).to_vec()
    })
}

fn hogs(builder: Builder) -> Vec<Figure> {
    let rt = build(builder);
    let n_ps = rt.processors();
    rt.run(|| {
        let compute = || (0..3_000).for_each(|_| charge(Duration::from_micros(20)));
        let hog = |_| spawn(compute);
        let all: Vec<_> = (0..n_ps).map(hog).collect();
        sleep(Duration::from_millis(10));
        let spawned_ns = now_ns();
        let others: Vec<_> = (0..n_ps).map(|_| spawn(now_ns)).collect();
        let mut late_us: Vec<_> = others
            .into_iter()
            .map(|g| us(g.join().expect("it ends").saturating_sub(spawned_ns)))
            .collect();
        late_us.sort_unstable_by(f64::total_cmp);
        let all_have_run = watched(|| sleep(Duration::from_millis(10)));
        let nothing_else_runs = watched(|| sleep(Duration::from_millis(20)));
        all.into_iter().for_each(|g| g.join().expect("it ends"));
        let mut all = vec![
            figure(
                "half of the others have begun after",
                late_us[n_ps / 2],
                "µs",
            ),
            figure("the last has begun after", late_us[n_ps - 1], "µs"),
        ];
        all.extend(all_have_run);
        all.extend(nothing_else_runs);
        all
    })
}

/// What thieves have done so far beside their own nodes.
pub(crate) struct Searches {
    sums: PMetrics,
    thefts: Thefts,
}

impl Searches {
    pub(crate) fn so_far(rt: &Runtime) -> Searches {
        Searches {
            sums: rt.metrics().total(),
            thefts: thefts(),
        }
    }

    /// Lines of other nodes that thieves have read until `after`: for each search of other nodes, and for each
    /// goroutine that they brought from there. Of the latter, those that came for the visits that brought it, and for
    /// the visits in vain.
    pub(crate) fn until(&self, after: &Searches) -> [Figure; 4] {
        let Searches { sums, thefts } = self;
        let n_probes = (after.sums.remote_probes - sums.remote_probes) as f64;
        let n_searches = after.sums.remote_searches - sums.remote_searches;
        let n_stolen = after.sums.stolen.remote - sums.stolen.remote;
        let n_before = |at| thefts.lines.get(at).copied().unwrap_or(0);
        let mut lines: Vec<_> = (after.thefts.lines.iter())
            .map(|(at, n)| (n - n_before(at), *at))
            .collect();
        lines.sort_unstable_by(|one, other| other.cmp(one));
        let n_lines = lines.iter().map(|(n, _)| *n).sum::<u64>() as f64;
        let each = |n: f64, of: u64| n / of.max(1) as f64;
        let n_in_vain = (after.thefts.n_lines_in_vain - thefts.n_lines_in_vain) as f64;
        for (n, (file, line, column)) in lines.into_iter().take(6).filter(|(n, _)| *n > 0) {
            println!(
                "  theft {}: {:.2} transfers for a goroutine at {file}:{line}",
                receiver(file, line, column),
                each(n as f64, n_stolen)
            );
        }
        [
            figure(
                "lines read by a search of other nodes",
                each(n_probes, n_searches),
                "",
            ),
            figure(
                "lines read for a goroutine from another node",
                each(n_probes, n_stolen),
                "",
            ),
            with_goal(
                3.0,
                figure(
                    "transfers of the theft for such a goroutine",
                    each(n_lines, n_stolen),
                    "",
                ),
            ),
            figure(
                "transfers of visits in vain for such a goroutine",
                each(n_in_vain, n_stolen),
                "",
            ),
        ]
    }
}

/// How long after the channel was closed half of the goroutines and all of them have gone on.
fn wakes(builder: Builder) -> Vec<Figure> {
    let rt = build(builder);
    let n = 16 * rt.processors();
    rt.run(|| {
        let (open, gate) = unbounded::<()>();
        let wait = |_| {
            let gate = gate.clone();
            spawn(move || {
                assert!(gate.recv().is_err());
                let woken_ns = now_ns();
                charge(Duration::from_micros(5));
                woken_ns
            })
        };
        let all: Vec<_> = (0..n).map(wait).collect();
        sleep(Duration::from_millis(20));
        let before = Searches::so_far(&rt);
        begin_costs();
        let begin_ns = now_ns();
        drop(open);
        let closed_us = us(now_ns() - begin_ns);
        let mut late_us: Vec<_> = all
            .into_iter()
            .map(|g| us(g.join().expect("it ends") - begin_ns))
            .collect();
        end_costs();
        late_us.sort_unstable_by(f64::total_cmp);
        let mut figures = vec![
            figure("it is closed after", closed_us, "µs"),
            figure("half of them have gone on after", late_us[n / 2], "µs"),
            figure("the last has gone on after", late_us[n - 1], "µs"),
        ];
        figures.extend(before.until(&Searches::so_far(&rt)));
        figures
    })
}

/// How long after the first was sent half of the CPUs and all of them work.
fn producer(builder: Builder) -> Vec<Figure> {
    let rt: Runtime = build(builder);
    let n_ps = rt.processors();
    rt.run(|| {
        let (send, receive) = unbounded::<()>();
        let consumer = |_| {
            let receive = receive.clone();
            spawn(move || {
                let mut begun = Vec::new();
                for () in receive.iter() {
                    begun.push((now_ns(), current_cpu()));
                    charge(Duration::from_micros(50));
                }
                begun
            })
        };
        let all: Vec<_> = (0..n_ps).map(consumer).collect();
        // All have come to wait, and all Ms sleep: their searches were in vain.
        let searching = Searches::so_far(&rt);
        sleep(Duration::from_millis(20));
        let asleep = Searches::so_far(&rt);
        begin_costs();
        let begin_ns = now_ns();
        (0..5 * n_ps).for_each(|_| send.send(()).expect("some receive"));
        let sent_ns = now_ns();
        end_costs();
        drop(send);
        let mut first = std::collections::BTreeMap::new();
        for g in all {
            for (at_ns, cpu) in g.join().expect("it ends") {
                let seen_ns = first.entry(cpu).or_insert(at_ns);
                *seen_ns = at_ns.min(*seen_ns);
            }
        }
        let mut begun: Vec<u64> = first.into_values().collect();
        begun.sort_unstable();
        // The P of the producer has one only when that is done.
        let after = |n: usize| begun.get(n).map_or(f64::INFINITY, |&ns| us(ns - begin_ns));
        let mut figures = vec![
            figure("half of the Ps work after", after(n_ps / 2 - 1), "µs"),
            with_goal(
                300.0,
                figure("all but one work after", after(n_ps - 2), "µs"),
            ),
            figure("all is sent after", us(sent_ns - begin_ns), "µs"),
        ];
        let [in_vain, ..] = searching.until(&asleep);
        figures.push(Figure {
            name: "lines read by a search in vain",
            ..in_vain
        });
        figures.extend(asleep.until(&Searches::so_far(&rt)));
        figures
    })
}

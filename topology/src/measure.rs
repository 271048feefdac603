//! Measures how long a cache line takes from one CPU to another.
//!
//! The firmware's distances are coarse and often wrong, and do not cover the level 3 caches of a node.
//! Here two threads, each pinned to a CPU, hand a number to and fro in one cache line; half
//! of a round trip is the time one way. The fastest of several rounds counts, because other
//! load on the machine only makes a round slower.
//!
//! A group (a node, a level 3 cache) is represented by one of its cores. Inside a group the line goes
//! between two cores of it, or between two threads of the only core.

use std::{
    hint,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

#[cfg(feature = "json")]
use serde::Serialize;

use crate::{Pu, Topology, affinity};

/// Round trips of one round.
const TRIPS: u32 = 1000;
const ROUNDS: u32 = 20;
/// Where a CPU is busy with others, one round may take as long as their time slices.
const PAIR_TIME: Duration = Duration::from_millis(200);
/// How often a waiting thread reads the line before it reads the clock.
const LOOKS: u32 = 4096;
/// Of more groups than this only the first are measured; the time grows with the square.
pub const MAX_GROUPS: usize = 64;

/// Measurements between nodes and between level 3 caches.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "json", derive(Serialize))]
pub struct Measured {
    /// Between nodes, by OS id.
    pub nodes: Table,
    /// Between level 3 caches; empty where the machine has none or only one for each node.
    pub l3s: Table,
}

/// Times between groups of CPUs.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "json", derive(Serialize))]
pub struct Table {
    /// The groups, each with the CPUs that represent it.
    pub groups: Vec<Group>,
    /// `ns[from][to]`, one way; `None` where a group has one CPU only, or the threads could not
    /// meet.
    pub ns: Vec<Vec<Option<f64>>>,
}

/// A group of CPUs, and the two that represent it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(Serialize))]
pub struct Group {
    /// The kernel's number of the node or cache, or `#` and its position.
    pub name: String,
    /// OS id of the CPU that represents it.
    pub cpu: usize,
    /// OS id of another of its CPUs, if there is one: on another core if possible.
    pub other: Option<usize>,
}

/// Measures between all pairs of nodes and of level 3 caches; `progress` is called with the
/// number of pairs done and the number of all pairs.
///
/// Only CPUs that this process may use take part. The result is meaningless for a machine other than
/// this one.
///
/// # Blocking
///
/// Blocks the calling thread: some ms for each pair, up to 0.2 s where the CPUs are busy.
pub fn measure(topology: &Topology, mut progress: impl FnMut(usize, usize)) -> Measured {
    let nodes = groups(
        topology,
        |pu| Some(pu.node),
        |position| topology.nodes()[position].os_id.to_string(),
    );
    let mut l3s = groups(
        topology,
        |pu| pu.l3,
        |position| {
            let os_id = topology.l3s()[position].os_id;
            os_id.map_or_else(|| format!("#{position}"), |id| id.to_string())
        },
    );
    let same: Vec<usize> = nodes.iter().map(|group| group.cpu).collect();
    if l3s.iter().map(|group| group.cpu).eq(same) {
        l3s.clear(); // as many caches as nodes: the same figures again
    }
    let pairs = |n: usize| n * (n + 1) / 2;
    let n_all = pairs(nodes.len()) + pairs(l3s.len());
    let mut n_done = 0;
    progress(0, n_all);
    let mut step = || {
        n_done += 1;
        progress(n_done, n_all);
    };
    Measured {
        nodes: table(nodes, &mut step),
        l3s: table(l3s, &mut step),
    }
}

/// The groups that have CPUs to use.
fn groups(
    topology: &Topology,
    group_of: impl Fn(&Pu) -> Option<usize>,
    name: impl Fn(usize) -> String,
) -> Vec<Group> {
    let mut members = std::collections::BTreeMap::<usize, Vec<&Pu>>::new();
    for pu in topology.pus().iter().filter(|pu| pu.allowed) {
        if let Some(group) = group_of(pu) {
            members.entry(group).or_default().push(pu);
        }
    }
    let group = |(position, pus): (usize, Vec<&Pu>)| {
        let first = pus[0];
        let mut others = pus[1..].iter();
        let on_other_core = others.find(|pu| pu.core != first.core);
        Group {
            name: name(position),
            cpu: first.cpu,
            other: on_other_core.or(pus.get(1)).map(|pu| pu.cpu),
        }
    };
    members.into_iter().take(MAX_GROUPS).map(group).collect()
}

fn table(groups: Vec<Group>, step: &mut impl FnMut()) -> Table {
    let n = groups.len();
    let mut ns = vec![vec![None; n]; n];
    for from in 0..n {
        for to in from..n {
            let other = if from == to {
                groups[from].other
            } else {
                Some(groups[to].cpu)
            };
            let time = other.and_then(|other| ping_pong(groups[from].cpu, other));
            let time = time.map(|time| (time.as_secs_f64() * 1e10).round() / 10.0);
            ns[from][to] = time;
            ns[to][from] = time;
            step();
        }
    }
    Table { groups, ns }
}

/// The time a cache line takes from one CPU to another; `None` if this process may not use them.
///
/// # Blocking
///
/// Blocks the calling thread for some ms, up to 0.2 s where the CPUs are busy.
///
/// # Examples
///
/// ```
/// // No machine has this CPU.
/// assert_eq!(windlass_topology::measure::ping_pong(0, 1 << 19), None);
/// ```
#[must_use]
pub fn ping_pong(a: usize, b: usize) -> Option<Duration> {
    if a == b {
        return None;
    }
    let court = Arc::new(Court {
        line: AtomicU32::new(0),
        end: AtomicBool::new(false),
    });
    let answerer = {
        let court = Arc::clone(&court);
        thread::spawn(move || {
            if affinity::pin(b).is_ok() {
                court.answer();
            }
            court.end.store(true, Ordering::Relaxed);
        })
    };
    let server = {
        let court = Arc::clone(&court);
        thread::spawn(move || {
            let best = affinity::pin(a).ok().and_then(|()| court.serve());
            court.end.store(true, Ordering::Relaxed);
            best
        })
    };
    // Neither thread panics; were one to, nothing was measured.
    let best = server.join().ok().flatten();
    answerer.join().ok()?;
    best
}

/// State that the two threads share.
#[derive(Debug)]
#[repr(align(128))]
struct Court {
    /// Even: the server's turn; odd: the answerer's.
    ///
    /// Ordering: Relaxed, it publishes no other data.
    line: AtomicU32,
    /// One of them has ended.
    ///
    /// Ordering: Relaxed, it only ends the other's waiting.
    end: AtomicBool,
}

impl Court {
    /// The fastest round.
    fn serve(&self) -> Option<Duration> {
        let deadline = Instant::now() + PAIR_TIME;
        let mut best = None;
        let mut turn = 0;
        // The first round, in which the other thread starts, does not count.
        for round in 0..=ROUNDS {
            let start = Instant::now();
            for _ in 0..TRIPS {
                self.line.store(turn + 1, Ordering::Relaxed);
                turn += 2;
                if !self.wait_for(turn, Some(deadline)) {
                    return best;
                }
            }
            let one_way = start.elapsed() / (2 * TRIPS);
            if round > 0 {
                best = best.into_iter().chain([one_way]).min();
            }
        }
        best
    }

    fn answer(&self) {
        let mut turn = 1;
        while self.wait_for(turn, None) {
            self.line.store(turn + 1, Ordering::Relaxed);
            turn += 2;
        }
    }

    /// Waits for the line to hold this number; false when it never will.
    fn wait_for(&self, turn: u32, deadline: Option<Instant>) -> bool {
        loop {
            for _ in 0..LOOKS {
                if self.line.load(Ordering::Relaxed) == turn {
                    return true;
                }
                hint::spin_loop();
            }
            let is_late = deadline.is_some_and(|deadline| Instant::now() > deadline);
            if is_late || self.end.load(Ordering::Relaxed) {
                return false;
            }
            // Two threads on one CPU, or more threads than CPUs: let the other one run.
            thread::yield_now();
        }
    }
}

#[cfg(all(test, feature = "hwloc"))]
mod tests {
    use super::*;

    #[test]
    fn two_cpus_hand_a_line_to_and_fro() {
        let machine = Topology::detect().unwrap();
        let cpus = machine.allowed_cpus();
        let [a, b, ..] = cpus[..] else { return };
        let time = ping_pong(a, b);
        // On a busy machine the two may hardly meet; if they do, it takes time.
        assert!(time.is_none_or(|time| time > Duration::ZERO));
        assert_eq!(ping_pong(a, a), None);
    }

    #[test]
    fn groups_are_stood_for_by_two_cores() {
        let machine = Topology::synthetic("pack:2 [numa] l3:2 core:2 pu:2").unwrap();
        let l3s = groups(&machine, |pu| pu.l3, |position| position.to_string());
        let pairs: Vec<_> = l3s.iter().map(|group| (group.cpu, group.other)).collect();
        assert_eq!(
            pairs,
            [(0, Some(2)), (4, Some(6)), (8, Some(10)), (12, Some(14))]
        );
        let smt = Topology::synthetic("numa:2 core:1 pu:2").unwrap();
        let nodes = groups(&smt, |pu| Some(pu.node), |position| position.to_string());
        assert_eq!((nodes[1].cpu, nodes[1].other), (2, Some(3)));
        let single = groups(
            &Topology::synthetic("pu:1").unwrap(),
            |pu| Some(pu.node),
            |position| position.to_string(),
        );
        assert_eq!(single[0].other, None);
    }

    #[test]
    fn progress_counts_every_pair() {
        let machine = Topology::detect().unwrap();
        let mut seen = Vec::new();
        let measured = measure(&machine, |done, all| seen.push((done, all)));
        let n_all = seen[0].1;
        assert_eq!(
            seen,
            (0..=n_all).map(|done| (done, n_all)).collect::<Vec<_>>()
        );
        assert_eq!(measured.nodes.ns.len(), measured.nodes.groups.len());
    }
}

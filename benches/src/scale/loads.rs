//! The workloads of `scale`. Where tasks do not depend on one another, their number grows with the
//! CPUs; one lock, one channel and one tree are the same size on any number of them.

use std::path::Path;
use std::time::Duration;

use crate::runtimes::Tokio;
use crate::workloads::chan_ping_pong::{self, Shape};
use crate::workloads::{echo, fork_join, mpmc, mutex, reads, scan, skynet, sleepers, spawn_join};

/// A round of work: on how many CPUs, and where files lie.
#[derive(Clone, Copy, Debug)]
pub struct Round<'a> {
    /// How many workers the runtime has.
    pub workers: usize,
    /// The file of [`reads`].
    pub file: &'a Path,
}

impl Round<'_> {
    fn pairs(self) -> Shape {
        Shape {
            cap: 0,
            pairs: PAIRS_PER_CPU * self.workers,
        }
    }
}

/// A workload.
#[derive(Debug)]
pub struct Load {
    /// Its name on the command line; with `scale-` before it, Go's.
    pub name: &'static str,
    /// For a reader.
    pub title: &'static str,
    /// What is counted.
    pub unit: &'static str,
    /// The operations of a round on so many CPUs.
    pub operations: fn(u64) -> u64,
    /// A round.
    pub windlass: fn(&windlass::Runtime, Round<'_>) -> Duration,
    /// A round.
    pub tokio: fn(&Tokio, Round<'_>) -> Duration,
}

// The sizes are those of benches/go/scale.go.
const BATCH: usize = 100;
const BATCHES: u64 = 100;
const LEAVES: u64 = 100_000;
const PAIRS_PER_CPU: usize = 100;
const ROUND_TRIPS: u64 = 100;
const MESSAGES: u64 = 10_000;
const SENDERS_PER_CPU: usize = 4;
const LOCKERS: usize = 64;
const LOCKS: u64 = 2_000;
const SLEEPERS_PER_CPU: usize = 10_000;
const CONNECTIONS_PER_CPU: usize = 32;
const REQUESTS: u64 = 50;
const SCANNERS_PER_CPU: usize = 16;
const READERS_PER_CPU: usize = 32;
const READS: u64 = 100;

/// All of them.
pub const LOADS: [Load; 11] = [
    Load {
        name: "spawn",
        title: "spawn and join, a spawner for each CPU",
        unit: "tasks",
        operations: |cpus| cpus * BATCH as u64 * BATCHES,
        windlass: |rt, round| spawn_join::windlass_many(rt, round.workers, BATCH, BATCHES),
        tokio: |rt, round| spawn_join::tokio_many(rt, round.workers, BATCH, BATCHES),
    },
    Load {
        name: "skynet",
        title: "skynet, 100,000 leaves",
        unit: "leaves",
        operations: |_| LEAVES,
        windlass: |rt, _| skynet::windlass(rt, LEAVES),
        tokio: |rt, _| skynet::tokio(rt, LEAVES),
    },
    Load {
        name: "pairs",
        title: "channels, 100 pairs for each CPU",
        unit: "round trips",
        operations: |cpus| cpus * PAIRS_PER_CPU as u64 * ROUND_TRIPS,
        windlass: |rt, round| chan_ping_pong::windlass(rt, round.pairs(), ROUND_TRIPS),
        tokio: |rt, round| chan_ping_pong::tokio(rt, round.pairs(), ROUND_TRIPS),
    },
    Load {
        name: "mpmc",
        title: "one channel, 4 senders and 4 receivers",
        unit: "messages",
        operations: |_| mpmc::SIDE * MESSAGES,
        windlass: |rt, _| mpmc::windlass(rt, MESSAGES),
        tokio: |rt, _| mpmc::tokio(rt, MESSAGES),
    },
    Load {
        name: "to-one",
        title: "one channel, all to one, 4 senders for each CPU",
        unit: "messages",
        operations: |cpus| cpus * SENDERS_PER_CPU as u64 * MESSAGES,
        windlass: |rt, round| mpmc::windlass_to_one(rt, SENDERS_PER_CPU * round.workers, MESSAGES),
        tokio: |rt, round| mpmc::tokio_to_one(rt, SENDERS_PER_CPU * round.workers, MESSAGES),
    },
    Load {
        name: "mutex",
        title: "one lock, 64 tasks",
        unit: "locks",
        operations: |_| LOCKERS as u64 * LOCKS,
        windlass: |rt, _| mutex::windlass(rt, LOCKERS, LOCKS),
        tokio: |rt, _| mutex::tokio(rt, LOCKERS, LOCKS),
    },
    Load {
        name: "sleepers",
        title: "sleepers of 1 to 100 ms, 10,000 for each CPU",
        unit: "sleeps",
        operations: |cpus| cpus * SLEEPERS_PER_CPU as u64,
        windlass: |rt, round| sleepers::windlass(rt, SLEEPERS_PER_CPU * round.workers, 1),
        tokio: |rt, round| sleepers::tokio(rt, SLEEPERS_PER_CPU * round.workers, 1),
    },
    Load {
        name: "echo",
        title: "echo over TCP, 32 connections for each CPU",
        unit: "requests",
        operations: |cpus| cpus * CONNECTIONS_PER_CPU as u64 * REQUESTS,
        windlass: |rt, round| echo::windlass(rt, CONNECTIONS_PER_CPU * round.workers, REQUESTS),
        tokio: |rt, round| echo::tokio(rt, CONNECTIONS_PER_CPU * round.workers, REQUESTS),
    },
    Load {
        name: "fork-join",
        title: "fork-join, fib(27)",
        unit: "forks",
        operations: |_| fork_join::forks(),
        windlass: |rt, _| fork_join::windlass(rt),
        tokio: |rt, _| fork_join::tokio(rt),
    },
    Load {
        name: "scan",
        title: "memory, written and read, 16 MiB for each CPU",
        unit: "MiB",
        operations: |cpus| cpus * SCANNERS_PER_CPU as u64,
        windlass: |rt, round| scan::windlass(rt, SCANNERS_PER_CPU * round.workers),
        tokio: |rt, round| scan::tokio(rt, SCANNERS_PER_CPU * round.workers),
    },
    Load {
        name: "reads",
        title: "file reads of 4 KiB from the page cache, 32 tasks for each CPU",
        unit: "reads",
        operations: |cpus| cpus * READERS_PER_CPU as u64 * READS,
        windlass: |rt, round| {
            reads::windlass(rt, round.file, READERS_PER_CPU * round.workers, READS)
        },
        tokio: |rt, round| reads::tokio(rt, round.file, READERS_PER_CPU * round.workers, READS),
    },
];

//! The workloads of the criterion benches, one at a time in a process of its own,
//! so that they can take turns with their twins in Go.
//!
//! `micro yield windlass` prints `ns=..` and `cpu_ns=..`, both per operation:
//! wall time, and CPU time of the whole process.
#![expect(clippy::print_stdout, reason = "the result")]

use std::time::Duration;

use clap::{Parser, ValueEnum};
use windlass_benches::process;
use windlass_benches::runtimes::{self, Name};
use windlass_benches::workloads::{ping_pong, skynet, spawn_join, stream, yields};

// The sizes are those of benches/go.
const YIELD_TASKS: usize = 1_000;
const YIELD_ROUNDS: u64 = 1_000;
const SPAWN_ONE: u64 = 100_000;
const SPAWN_BATCH: usize = 1_000;
const SPAWN_BATCHES: u64 = 200;
const ROUND_TRIPS: u64 = 200_000;
const LEAVES: u64 = 1_000_000;
const STREAM_16K_MESSAGES: u64 = 5_000;
const STREAM_512_MESSAGES: u64 = 50_000;

/// A workload is repeated for so long, at least.
const DURATION: Duration = Duration::from_secs(1);

#[derive(Parser)]
struct Args {
    workload: Workload,
    runtime: Name,
    #[arg(long, default_value_t = runtimes::workers())]
    workers: usize,
}

#[derive(Clone, Copy, ValueEnum)]
enum Workload {
    /// Per yield: 1,000 tasks yielding.
    Yield,
    /// Per task: start one, join it.
    SpawnOne,
    /// Per task: start 1,000, join them.
    SpawnBatch,
    /// Per round trip of two tasks waking each other.
    PingPong,
    /// Per leaf: a tree of tasks with 1,000,000 leaves.
    Skynet,
    /// Per message: 16 KiB, streamed over each of 4 connections.
    #[value(name = "stream-16k")]
    Stream16k,
    /// Per message: 512 bytes, streamed over each of 4 connections.
    #[value(name = "stream-512")]
    Stream512,
}

impl Workload {
    /// How large it is, in its own measure, and the operations this comes to.
    fn size(self) -> (u64, u64) {
        match self {
            Workload::Yield => (YIELD_ROUNDS, YIELD_ROUNDS * YIELD_TASKS as u64),
            Workload::SpawnOne => (SPAWN_ONE, SPAWN_ONE),
            Workload::SpawnBatch => (SPAWN_BATCHES, SPAWN_BATCHES * SPAWN_BATCH as u64),
            Workload::PingPong => (ROUND_TRIPS, ROUND_TRIPS),
            Workload::Skynet => (LEAVES, LEAVES),
            Workload::Stream16k => (
                STREAM_16K_MESSAGES,
                STREAM_16K_MESSAGES * stream::CONNECTIONS as u64,
            ),
            Workload::Stream512 => (
                STREAM_512_MESSAGES,
                STREAM_512_MESSAGES * stream::CONNECTIONS as u64,
            ),
        }
    }

    /// The workload on a runtime that has been started, to be called more than once.
    fn on(self, runtime: Name, workers: usize) -> Box<dyn Fn(u64) -> Duration> {
        match runtime {
            Name::Windlass => {
                let windlass = runtimes::windlass(workers);
                Box::new(move |n| match self {
                    Workload::Yield => yields::windlass(&windlass, YIELD_TASKS, n),
                    Workload::SpawnOne => spawn_join::windlass(&windlass, 1, n),
                    Workload::SpawnBatch => spawn_join::windlass(&windlass, SPAWN_BATCH, n),
                    Workload::PingPong => ping_pong::windlass(&windlass, n),
                    Workload::Skynet => skynet::windlass(&windlass, n),
                    Workload::Stream16k => stream::windlass(&windlass, 16 << 10, n),
                    Workload::Stream512 => stream::windlass(&windlass, 512, n),
                })
            }
            Name::Tokio => {
                let tokio = runtimes::tokio(workers);
                Box::new(move |n| match self {
                    Workload::Yield => yields::tokio(&tokio, YIELD_TASKS, n),
                    Workload::SpawnOne => spawn_join::tokio(&tokio, 1, n),
                    Workload::SpawnBatch => spawn_join::tokio(&tokio, SPAWN_BATCH, n),
                    Workload::PingPong => ping_pong::tokio(&tokio, n),
                    Workload::Skynet => skynet::tokio(&tokio, n),
                    Workload::Stream16k => stream::tokio(&tokio, 16 << 10, n),
                    Workload::Stream512 => stream::tokio(&tokio, 512, n),
                })
            }
            Name::May => {
                let may = runtimes::may(workers);
                Box::new(move |n| match self {
                    Workload::Yield => yields::may(&may, YIELD_TASKS, n),
                    Workload::SpawnOne => spawn_join::may(&may, 1, n),
                    Workload::SpawnBatch => spawn_join::may(&may, SPAWN_BATCH, n),
                    Workload::PingPong => ping_pong::may(&may, n),
                    Workload::Skynet => skynet::may(&may, n),
                    Workload::Stream16k => stream::may(&may, 16 << 10, n),
                    Workload::Stream512 => stream::may(&may, 512, n),
                })
            }
        }
    }
}

fn main() {
    let Args {
        workload,
        runtime,
        workers,
    } = Args::parse();
    let (size, operations) = workload.size();
    let many_stacks = matches!(workload, Workload::Skynet) && runtime == Name::May;
    if many_stacks && operations * 10 / 9 > runtimes::may_coroutines() as u64 {
        println!("skipped: vm.max_map_count is too low for so many stacks of may's");
        return;
    }
    let run = workload.on(runtime, workers);
    run(size); // warm
    let cpu_before = process::own_cpu_time();
    let mut elapsed = Duration::ZERO;
    let mut done = 0;
    while elapsed < DURATION {
        elapsed += run(size);
        done += operations;
    }
    let cpu = process::own_cpu_time() - cpu_before;
    println!(
        "ns={:.1} cpu_ns={:.1}",
        elapsed.as_nanos() as f64 / done as f64,
        cpu.as_nanos() as f64 / done as f64,
    );
}

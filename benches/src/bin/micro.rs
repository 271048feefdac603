//! The workloads of the criterion benches, one at a time in a process of its own,
//! so that they can take turns with their twins in Go.
//!
//! `micro yield windlass` prints `ns=..` and `cpu_ns=..`, both per operation:
//! wall time, and CPU time of the whole process. monoio and compio take part in the
//! streams, by programs of their own: `bench_monoio micro stream-16k`.
#![expect(clippy::print_stdout, reason = "why it is left out")]

use std::time::Duration;

use clap::{Parser, ValueEnum};
use windlass_benches::micro::{
    self, FEWER_SLEEPERS, SLEEPERS, SLEEPS, STREAM_16K, STREAM_512, Size,
};
use windlass_benches::runtimes::{self, Name};
use windlass_benches::workloads::chan_ping_pong::{self, Shape};
use windlass_benches::workloads::{
    deadlines, mpmc, mutex, ping_pong, skynet, sleepers, spawn_join, stream, yields,
};

// The sizes are those of benches/go.
const YIELD_TASKS: usize = 1_000;
const YIELD_ROUNDS: u64 = 1_000;
const SPAWN_ONE: u64 = 100_000;
const SPAWN_BATCH: usize = 1_000;
const SPAWN_BATCHES: u64 = 200;
const ROUND_TRIPS: u64 = 200_000;
const LEAVES: u64 = 1_000_000;
const MUTEX_ALONE: u64 = 10_000_000;
const MUTEX_TASKS: usize = 64;
const MUTEX_ROUNDS: u64 = 20_000;
const DEADLINE_PAIRS: usize = 500;
const ROUND_TRIPS_PER_PAIR: u64 = 400;
const CHAN_PAIRS: usize = 1_000;
const CHAN_PAIR_ROUND_TRIPS: u64 = 200;
const CHAN_MESSAGES: u64 = 100_000;

const UNBUFFERED: Shape = Shape { cap: 0, pairs: 1 };
const BUFFERED: Shape = Shape { cap: 1, pairs: 1 };
const PAIRS: Shape = Shape {
    cap: 0,
    pairs: CHAN_PAIRS,
};

#[derive(Parser)]
struct Args {
    workload: Workload,
    runtime: Name,
    #[arg(long, default_value_t = runtimes::workers())]
    workers: usize,
    /// Keep windlass's flight recorder on, with this many bytes for each P.
    #[arg(long)]
    flight_recorder: Option<usize>,
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
    /// Per round trip of a number through two channels of capacity 0.
    ChanUnbuffered,
    /// As before, of capacity 1.
    ChanBuffered,
    /// Per round trip of 1,000 pairs, through channels of capacity 0.
    ChanPairs,
    /// Per message from 4 senders to 4 receivers, through a channel of capacity 128.
    ChanMpmc,
    /// Per lock and unlock: nobody else at the lock.
    MutexAlone,
    /// Per lock and unlock: 64 tasks at one lock.
    MutexContended,
    /// Per sleep: 100,000 tasks that sleep 5 times.
    Sleepers,
    /// As before: 10,000 tasks.
    #[value(name = "sleepers-10k")]
    Sleepers10k,
    /// Per round trip of 500 pairs of tasks whose waits have deadlines.
    Deadlines,
    /// Per message: 16 KiB, streamed over each of 4 connections.
    #[value(name = "stream-16k")]
    Stream16k,
    /// Per message: 512 bytes, streamed over each of 4 connections.
    #[value(name = "stream-512")]
    Stream512,
}

impl Workload {
    fn size(self) -> Size {
        let (n, operations) = match self {
            Workload::Yield => (YIELD_ROUNDS, YIELD_ROUNDS * YIELD_TASKS as u64),
            Workload::SpawnOne => (SPAWN_ONE, SPAWN_ONE),
            Workload::SpawnBatch => (SPAWN_BATCHES, SPAWN_BATCHES * SPAWN_BATCH as u64),
            Workload::PingPong => (ROUND_TRIPS, ROUND_TRIPS),
            Workload::Skynet => (LEAVES, LEAVES),
            Workload::ChanUnbuffered | Workload::ChanBuffered => (ROUND_TRIPS, ROUND_TRIPS),
            Workload::ChanPairs => (
                CHAN_PAIR_ROUND_TRIPS,
                CHAN_PAIR_ROUND_TRIPS * CHAN_PAIRS as u64,
            ),
            Workload::ChanMpmc => (CHAN_MESSAGES, CHAN_MESSAGES * mpmc::SIDE),
            Workload::MutexAlone => (MUTEX_ALONE, MUTEX_ALONE),
            Workload::MutexContended => (MUTEX_ROUNDS, MUTEX_ROUNDS * MUTEX_TASKS as u64),
            Workload::Sleepers => (SLEEPS, SLEEPS * SLEEPERS as u64),
            Workload::Sleepers10k => (SLEEPS, SLEEPS * FEWER_SLEEPERS as u64),
            Workload::Deadlines => (
                ROUND_TRIPS_PER_PAIR,
                ROUND_TRIPS_PER_PAIR * DEADLINE_PAIRS as u64,
            ),
            Workload::Stream16k => return STREAM_16K.1,
            Workload::Stream512 => return STREAM_512.1,
        };
        Size { n, operations }
    }

    /// The workload on a runtime that has been started, to be called more than once.
    fn on(
        self,
        runtime: Name,
        workers: usize,
        recorder: Option<usize>,
    ) -> Box<dyn Fn(u64) -> Duration> {
        match runtime {
            Name::Windlass => {
                let windlass = match recorder {
                    None => runtimes::windlass(workers),
                    Some(bytes) => runtimes::windlass_recording(workers, bytes),
                };
                Box::new(move |n| match self {
                    Workload::Yield => yields::windlass(&windlass, YIELD_TASKS, n),
                    Workload::SpawnOne => spawn_join::windlass(&windlass, 1, n),
                    Workload::SpawnBatch => spawn_join::windlass(&windlass, SPAWN_BATCH, n),
                    Workload::PingPong => ping_pong::windlass(&windlass, n),
                    Workload::Skynet => skynet::windlass(&windlass, n),
                    Workload::ChanUnbuffered => chan_ping_pong::windlass(&windlass, UNBUFFERED, n),
                    Workload::ChanBuffered => chan_ping_pong::windlass(&windlass, BUFFERED, n),
                    Workload::ChanPairs => chan_ping_pong::windlass(&windlass, PAIRS, n),
                    Workload::ChanMpmc => mpmc::windlass(&windlass, n),
                    Workload::MutexAlone => mutex::windlass_alone(&windlass, n),
                    Workload::MutexContended => mutex::windlass(&windlass, MUTEX_TASKS, n),
                    Workload::Sleepers => sleepers::windlass(&windlass, SLEEPERS, n),
                    Workload::Sleepers10k => sleepers::windlass(&windlass, FEWER_SLEEPERS, n),
                    Workload::Deadlines => deadlines::windlass(&windlass, DEADLINE_PAIRS, n),
                    Workload::Stream16k => stream::windlass(&windlass, STREAM_16K.0, n),
                    Workload::Stream512 => stream::windlass(&windlass, STREAM_512.0, n),
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
                    Workload::ChanUnbuffered => chan_ping_pong::tokio(&tokio, UNBUFFERED, n),
                    Workload::ChanBuffered => chan_ping_pong::tokio(&tokio, BUFFERED, n),
                    Workload::ChanPairs => chan_ping_pong::tokio(&tokio, PAIRS, n),
                    Workload::ChanMpmc => mpmc::tokio(&tokio, n),
                    Workload::MutexAlone => mutex::tokio_alone(&tokio, n),
                    Workload::MutexContended => mutex::tokio(&tokio, MUTEX_TASKS, n),
                    Workload::Sleepers => sleepers::tokio(&tokio, SLEEPERS, n),
                    Workload::Sleepers10k => sleepers::tokio(&tokio, FEWER_SLEEPERS, n),
                    Workload::Deadlines => deadlines::tokio(&tokio, DEADLINE_PAIRS, n),
                    Workload::Stream16k => stream::tokio(&tokio, STREAM_16K.0, n),
                    Workload::Stream512 => stream::tokio(&tokio, STREAM_512.0, n),
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
                    Workload::ChanUnbuffered => chan_ping_pong::may(&may, UNBUFFERED, n),
                    Workload::ChanBuffered => chan_ping_pong::may(&may, BUFFERED, n),
                    Workload::ChanPairs => chan_ping_pong::may(&may, PAIRS, n),
                    Workload::ChanMpmc => mpmc::may(&may, n),
                    Workload::MutexAlone => mutex::may_alone(&may, n),
                    Workload::MutexContended => mutex::may(&may, MUTEX_TASKS, n),
                    Workload::Sleepers => sleepers::may(&may, SLEEPERS, n),
                    Workload::Sleepers10k => sleepers::may(&may, FEWER_SLEEPERS, n),
                    Workload::Deadlines => deadlines::may(&may, DEADLINE_PAIRS, n),
                    Workload::Stream16k => stream::may(&may, STREAM_16K.0, n),
                    Workload::Stream512 => stream::may(&may, STREAM_512.0, n),
                })
            }
            other => other.has_no_twin(),
        }
    }
}

fn main() {
    let Args {
        workload,
        runtime,
        workers,
        flight_recorder,
    } = Args::parse();
    let size = workload.size();
    let stacks = match workload {
        Workload::Skynet => size.operations * 10 / 9,
        Workload::Sleepers => SLEEPERS as u64,
        Workload::Sleepers10k => FEWER_SLEEPERS as u64,
        _ => 0,
    };
    if runtime == Name::May && stacks > runtimes::may_coroutines() as u64 {
        println!("skipped: vm.max_map_count is too low for so many stacks of may's");
        return;
    }
    let run = workload.on(runtime, workers, flight_recorder);
    micro::measure(size, run);
}

//! How long until all tasks have ended that waited in a channel, when it is closed?
//!
//! All have begun and receive from one channel (tokio: async-channel's); then its sender
//! goes. Also tells the memory of each that waits, channel and all. A million tasks;
//! fewer for may, which cannot have so many stacks.
//!
//! `close_parked windlass` prints `bytes=.. close_ns=.. tasks=..`, the times per task
#![expect(clippy::print_stdout, reason = "the result")]

use std::io;
use std::process;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use windlass_benches::process::resident_bytes;
use windlass_benches::runtimes::{self, Name};

#[derive(Parser)]
struct Args {
    runtime: Name,
    #[arg(long, default_value_t = runtimes::workers())]
    workers: usize,
    #[arg(long, default_value_t = 1_000_000)]
    tasks: usize,
}

/// How many tasks have begun, and ended. Statics, so that a task carries nothing.
static BEGUN: AtomicUsize = AtomicUsize::new(0);
static ENDED: AtomicUsize = AtomicUsize::new(0);

fn count(counter: &AtomicUsize) {
    counter.fetch_add(1, Ordering::Relaxed);
}

fn is_below(counter: &AtomicUsize, tasks: usize) -> bool {
    counter.load(Ordering::Relaxed) < tasks
}

/// How often to look whether all have begun, or ended.
const POLL: Duration = Duration::from_millis(1);
/// The last ones have begun, and are about to wait.
const SETTLE: Duration = Duration::from_millis(200);

fn main() -> io::Result<()> {
    let Args {
        runtime,
        workers,
        tasks,
    } = Args::parse();
    match runtime {
        Name::Windlass => runtimes::windlass(workers).run(move || windlass(tasks)),
        Name::Tokio => runtimes::tokio(workers).run(tokio(tasks)),
        Name::May => {
            let tasks = tasks.min(runtimes::may_coroutines());
            runtimes::may(workers).run(move || may(tasks))
        }
        other => other.has_no_twin(),
    }
}

fn windlass(tasks: usize) -> io::Result<()> {
    let before = resident_bytes()?;
    let (s, r) = windlass::channel::bounded::<()>(0);
    for _ in 0..tasks {
        let r = r.clone();
        windlass::spawn(move || {
            count(&BEGUN);
            r.recv().unwrap_err();
            count(&ENDED);
        });
    }
    while is_below(&BEGUN, tasks) {
        windlass::sleep(POLL);
    }
    windlass::sleep(SETTLE);
    let parked = resident_bytes()?;
    let start = Instant::now();
    drop(s);
    while is_below(&ENDED, tasks) {
        windlass::sleep(POLL);
    }
    finish(start.elapsed(), parked.saturating_sub(before), tasks)
}

async fn tokio(tasks: usize) -> io::Result<()> {
    let before = resident_bytes()?;
    let (s, r) = async_channel::bounded::<()>(1);
    for _ in 0..tasks {
        let r = r.clone();
        tokio::spawn(async move {
            count(&BEGUN);
            r.recv().await.unwrap_err();
            count(&ENDED);
        });
    }
    while is_below(&BEGUN, tasks) {
        tokio::time::sleep(POLL).await;
    }
    tokio::time::sleep(SETTLE).await;
    let parked = resident_bytes()?;
    let start = Instant::now();
    drop(s);
    while is_below(&ENDED, tasks) {
        tokio::time::sleep(POLL).await;
    }
    finish(start.elapsed(), parked.saturating_sub(before), tasks)
}

fn may(tasks: usize) -> io::Result<()> {
    let before = resident_bytes()?;
    let (s, r) = may::sync::mpmc::channel::<()>();
    for _ in 0..tasks {
        let r = r.clone();
        runtimes::go(move || {
            count(&BEGUN);
            r.recv().unwrap_err();
            count(&ENDED);
        });
    }
    while is_below(&BEGUN, tasks) {
        may::coroutine::sleep(POLL);
    }
    may::coroutine::sleep(SETTLE);
    let parked = resident_bytes()?;
    let start = Instant::now();
    drop(s);
    while is_below(&ENDED, tasks) {
        may::coroutine::sleep(POLL);
    }
    finish(start.elapsed(), parked.saturating_sub(before), tasks)
}

/// Prints the figures and ends the process: taking the runtime down is another question.
fn finish(close: Duration, bytes: u64, tasks: usize) -> io::Result<()> {
    let per_task = |n: f64| n / tasks.max(1) as f64;
    println!(
        "bytes={:.0} close_ns={:.1} tasks={tasks}",
        per_task(bytes as f64),
        per_task(close.as_nanos() as f64)
    );
    process::exit(0)
}

//! How much memory does a task take that waits, and one that has not begun?
//!
//! - `parked`: on all workers, all have begun and wait for ever
//! - `future`: as `parked`, in a future that is spawned: `future::spawn(pending())`
//! - `when`: as `parked`, in `task::spawn_when`, until a pipe is readable, which is one for all:
//!   the kernel's part of a connection is not counted
//! - `cold`: as `parked`, windlass only, for longer than the time after which their stacks are given to swap; it
//!   ends with an error where there is no zram (`zramctl --find --size 8G`, `mkswap`, `swapon`, as root, and nobody else
//!   may use it). `swap` is what zram takes for each, beside `bytes`; `--stack-kib` is the size of stacks
//! - `spawned`: on one worker, the main task starts others without giving way;
//!   those that the runtime began all the same, as the main task took long, have
//!   ended by then and are not counted
//!
//! Each is what the process has in memory more than before, divided by the
//! tasks, without and with the page tables: 100,000 that wait, fewer for may, which cannot have so many stacks, and
//! 20,000 that have not begun: more take longer to start than windlass and Go leave
//! a worker to one task.
//!
//! `parked_memory parked windlass` prints `bytes=.. with_tables=.. tasks=..`
#![expect(clippy::print_stdout, reason = "the result")]

use std::io;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use clap::{Parser, ValueEnum};
use windlass::task::When;
use windlass_benches::process::{page_table_bytes, resident_bytes};
use windlass_benches::runtimes::{self, Name};

#[derive(Parser)]
struct Args {
    state: State,
    runtime: Name,
    #[arg(long, default_value_t = runtimes::workers())]
    workers: usize,
    /// The size of the stacks of `cold`.
    #[arg(long, default_value_t = 256)]
    stack_kib: usize,
    /// 100,000 that wait, or 20,000 that have not begun, if it is not given.
    #[arg(long)]
    tasks: Option<usize>,
}

#[derive(Clone, Copy, ValueEnum)]
enum State {
    /// Begun and waiting.
    Parked,
    /// The same, as a future.
    Future,
    /// Waiting for a descriptor, to begin then.
    When,
    /// Waiting for long, with its stack in swap.
    Cold,
    /// Not begun.
    Spawned,
}

/// After so long a wait stacks of `cold` are given to swap.
const COLD_AFTER: Duration = Duration::from_secs(5);

/// How many tasks have begun. A static, so that a task carries nothing.
static BEGUN: AtomicUsize = AtomicUsize::new(0);

fn begin() {
    BEGUN.fetch_add(1, Ordering::Relaxed);
}

fn begun() -> usize {
    BEGUN.load(Ordering::Relaxed)
}

/// How often to look whether all have begun.
const POLL: Duration = Duration::from_millis(5);

fn main() -> io::Result<()> {
    let Args {
        state,
        runtime,
        workers,
        stack_kib,
        tasks,
    } = Args::parse();
    let (workers, default_tasks) = match state {
        State::Spawned => (1, 20_000),
        _ => (workers, 100_000),
    };
    let tasks = tasks.unwrap_or(default_tasks);
    match (runtime, state) {
        (Name::Windlass, State::Cold) => {
            runtimes::windlass_cold(workers, stack_kib << 10, COLD_AFTER)
                .run(move || windlass(state, tasks))
        }
        (other, State::Cold) => other.has_no_twin(),
        (Name::Windlass, _) => runtimes::windlass(workers).run(move || windlass(state, tasks)),
        (Name::Tokio, _) => runtimes::tokio(workers).run(tokio(state, tasks)),
        (Name::May, _) => {
            let tasks = tasks.min(runtimes::may_coroutines());
            runtimes::may(workers).run(move || may(state, tasks))
        }
        (other, _) => other.has_no_twin(),
    }
}

fn windlass(state: State, tasks: usize) -> io::Result<()> {
    let before = Memory::now()?;
    match state {
        State::Spawned => {
            for _ in 0..tasks {
                windlass::spawn(begin);
            }
            finish(before, tasks - begun())
        }
        State::Parked | State::Cold => {
            let zram = zram_bytes();
            for _ in 0..tasks {
                windlass::spawn(|| {
                    begin();
                    loop {
                        windlass::task::park();
                    }
                });
            }
            while begun() < tasks {
                windlass::sleep(POLL);
            }
            if matches!(state, State::Cold) {
                let paged_out = || windlass::Handle::current().metrics().stacks_paged_out;
                let before = zram?;
                while paged_out() < tasks as u64 {
                    windlass::sleep(COLD_AFTER);
                }
                let swap = zram_bytes()?.saturating_sub(before);
                print!("swap={:.0} ", swap as f64 / tasks as f64);
            }
            finish(before, tasks)
        }
        State::Future => {
            for _ in 0..tasks {
                drop(windlass::future::spawn(async {
                    begin();
                    std::future::pending::<()>().await;
                }));
            }
            while begun() < tasks {
                windlass::sleep(POLL);
            }
            finish(before, tasks)
        }
        State::When => {
            let (reader, _writer) = windlass::io::pipe()?;
            let reader = Arc::new(reader);
            let parks = || windlass::Handle::current().metrics().total().parks;
            let parked = parks();
            for _ in 0..tasks {
                let when = When::readable(Arc::clone(&reader));
                drop(windlass::task::spawn_when(when, |_, _| ()));
            }
            while parks() - parked < tasks as u64 {
                windlass::yield_now();
            }
            finish(before, tasks)
        }
    }
}

async fn tokio(state: State, tasks: usize) -> io::Result<()> {
    let before = Memory::now()?;
    match state {
        State::Spawned => {
            for _ in 0..tasks {
                tokio::spawn(async { begin() });
            }
            finish(before, tasks - begun())
        }
        _ => {
            for _ in 0..tasks {
                tokio::spawn(async {
                    begin();
                    std::future::pending::<()>().await;
                });
            }
            while begun() < tasks {
                tokio::time::sleep(POLL).await;
            }
            finish(before, tasks)
        }
    }
}

fn may(state: State, tasks: usize) -> io::Result<()> {
    let before = Memory::now()?;
    match state {
        State::Spawned => {
            for _ in 0..tasks {
                runtimes::go(begin);
            }
            finish(before, tasks - begun())
        }
        _ => {
            for _ in 0..tasks {
                runtimes::go(|| {
                    begin();
                    loop {
                        may::coroutine::park();
                    }
                });
            }
            while begun() < tasks {
                may::coroutine::sleep(POLL);
            }
            finish(before, tasks)
        }
    }
}

/// The memory that zram takes.
fn zram_bytes() -> io::Result<u64> {
    let stat = std::fs::read_to_string("/sys/block/zram0/mm_stat")?;
    let used = stat
        .split_whitespace()
        .nth(2)
        .and_then(|word| word.parse().ok());
    used.ok_or_else(|| io::Error::other("no sum in mm_stat of zram0"))
}

/// What the process takes.
struct Memory {
    resident: u64,
    page_tables: u64,
}

impl Memory {
    fn now() -> io::Result<Memory> {
        Ok(Memory {
            resident: resident_bytes()?,
            page_tables: page_table_bytes()?,
        })
    }
}

/// Prints the figures and ends the process: taking the tasks down is another question.
fn finish(before: Memory, tasks: usize) -> io::Result<()> {
    let now = Memory::now()?;
    let bytes = now.resident.saturating_sub(before.resident);
    let with_tables = bytes + now.page_tables.saturating_sub(before.page_tables);
    let each = |bytes: u64| bytes as f64 / tasks.max(1) as f64;
    println!(
        "bytes={:.0} with_tables={:.0} tasks={tasks}",
        each(bytes),
        each(with_tables)
    );
    process::exit(0)
}

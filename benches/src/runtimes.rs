//! The runtimes, each started with a number of workers. Those of one thread for each core
//! are in `per_core`.
//!
//! The three here do their work on the workers: a closure given to `run` is the main
//! goroutine, task or coroutine, never a guest on the thread that waits for it.
#![expect(
    unsafe_code,
    reason = "windlass is built and may spawns through an unsafe fn"
)]

use std::env;
use std::fmt;
use std::thread;
use std::time::Duration;

/// The name of a runtime, as the programs take it on their command line.
///
/// Tasks and connections are for the first five; not every program has a twin for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Name {
    /// This project.
    Windlass,
    /// tokio, multi-threaded.
    Tokio,
    /// may: stackful coroutines over epoll.
    May,
    /// monoio: a thread and a ring for each core.
    Monoio,
    /// compio: the same.
    Compio,
    /// No runtime: threads that block.
    Threads,
    /// No runtime: an epoll instance on each worker's thread.
    EpollLoop,
}

impl Name {
    /// All of them, in the order in which tables show them.
    pub const ALL: &[Name] = &[
        Name::Windlass,
        Name::Tokio,
        Name::May,
        Name::Monoio,
        Name::Compio,
        Name::Threads,
        Name::EpollLoop,
    ];

    /// One of the programs on this runtime: the name of the executable, and its arguments.
    /// `words` are the program and what comes before the runtime on its command line.
    ///
    /// monoio and compio have an executable each, for all the programs.
    pub fn command_line(self, words: &[&str]) -> (String, Vec<String>) {
        let owned = words.iter().map(ToString::to_string);
        match self {
            Name::Monoio | Name::Compio => (format!("bench_{self}"), owned.collect()),
            _ => (
                words.first().copied().unwrap_or_default().to_owned(),
                owned.skip(1).chain([self.to_string()]).collect(),
            ),
        }
    }

    /// Ends this program, which has no twin for the runtime.
    pub fn has_no_twin(self) -> ! {
        eprintln!("there is no twin of this program for {self}");
        std::process::exit(2)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Name::Windlass => "windlass",
            Name::Tokio => "tokio",
            Name::May => "may",
            Name::Monoio => "monoio",
            Name::Compio => "compio",
            Name::Threads => "threads",
            Name::EpollLoop => "epoll-loop",
        })
    }
}

/// The number of workers of every runtime: `WINDLASS_BENCH_WORKERS`, or one
/// for each CPU that this process may run on.
///
/// # Panics
///
/// If the variable does not hold a positive number.
pub fn workers() -> usize {
    match env::var("WINDLASS_BENCH_WORKERS") {
        Ok(text) => match text.parse() {
            Ok(workers) if workers > 0 => workers,
            _ => panic!("WINDLASS_BENCH_WORKERS must be a positive number, not {text:?}"),
        },
        Err(_) => thread::available_parallelism().map_or(1, usize::from),
    }
}

/// The runtimes of the criterion benches, each with [`workers`].
#[derive(Debug)]
pub struct Runtimes {
    /// This project.
    pub windlass: windlass::Runtime,
    /// tokio, multi-threaded.
    pub tokio: Tokio,
    /// may.
    pub may: May,
}

impl Runtimes {
    /// Starts all.
    ///
    /// # Panics
    ///
    /// If one does not start.
    pub fn start() -> Runtimes {
        let workers = workers();
        Runtimes {
            windlass: windlass(workers),
            tokio: tokio(workers),
            may: may(workers),
        }
    }
}

/// windlass with this many Ps.
///
/// # Panics
///
/// If the runtime does not start.
pub fn windlass(workers: usize) -> windlass::Runtime {
    build(windlass::Builder::new().processors(workers))
}

/// As [`windlass`](fn@windlass), with the flight recorder on: so many bytes for each P.
///
/// # Panics
///
/// If the runtime does not start.
pub fn windlass_recording(workers: usize, bytes: usize) -> windlass::Runtime {
    let builder = windlass::Builder::new().processors(workers);
    build(builder.flight_recorder(bytes))
}

/// As [`windlass`](fn@windlass), with stacks of this size, which go to swap after so long a wait.
///
/// # Panics
///
/// If the runtime does not start.
pub fn windlass_cold(workers: usize, stack_bytes: usize, after: Duration) -> windlass::Runtime {
    let builder = windlass::Builder::new().processors(workers);
    build(builder.stack_size(stack_bytes).page_out_after(after))
}

/// windlass with a policy for NUMA nodes, on another machine than this if one is given.
///
/// # Panics
///
/// If the runtime does not start.
pub fn windlass_numa(
    workers: usize,
    policy: windlass::NumaPolicy,
    machine: Option<windlass::topology::Topology>,
) -> windlass::Runtime {
    let builder = windlass::Builder::new().processors(workers).numa(policy);
    build(match machine {
        Some(machine) => builder.topology(machine),
        None => builder,
    })
}

fn build(builder: windlass::Builder) -> windlass::Runtime {
    // SAFETY:
    // - no goroutine in this crate keeps a borrow of a thread-local across a call that can park;
    // - none shares a `!Send` value through a thread-local.
    unsafe { builder.build() }.expect("windlass should start")
}

/// tokio's multi-threaded runtime with this many workers.
///
/// # Panics
///
/// If the runtime does not start.
pub fn tokio(workers: usize) -> Tokio {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers)
        .enable_all()
        .build()
        .expect("tokio should start");
    Tokio { runtime }
}

/// A tokio runtime whose main task runs on a worker.
#[derive(Debug)]
pub struct Tokio {
    runtime: tokio::runtime::Runtime,
}

impl Tokio {
    /// Runs `main` as a task and waits for it.
    ///
    /// `Runtime::block_on` alone would poll it on the calling thread, whose wakes
    /// are dearer than a worker's.
    ///
    /// # Panics
    ///
    /// If `main` does.
    pub fn run<F>(&self, main: F) -> F::Output
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.runtime
            .block_on(self.runtime.spawn(main))
            .expect("the main task should not panic")
    }
}

/// may with this many workers. The first call in a process decides, as may has
/// one scheduler for the whole of it.
pub fn may(workers: usize) -> May {
    may::config().set_workers(workers);
    May(())
}

/// The process's may scheduler.
#[derive(Debug)]
pub struct May(());

impl May {
    /// Runs `main` as a coroutine and waits for it.
    ///
    /// # Panics
    ///
    /// If `main` does.
    pub fn run<T, F>(&self, main: F) -> T
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        go(main)
            .join()
            .expect("the main coroutine should not panic")
    }
}

/// may's spawn. Its own macro `go!` hides the same `unsafe` at every call.
pub fn go<T, F>(f: F) -> may::coroutine::JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    // SAFETY:
    // - no coroutine in this crate uses thread-local storage across a switch;
    // - none needs more stack than may's default of 32 KiB.
    unsafe { may::coroutine::spawn(f) }
}

/// How many coroutines may can have at a time: a stack is two mappings of the
/// kernel's `vm.max_map_count`, and running out of these ends the process.
pub fn may_coroutines() -> usize {
    let max_maps = std::fs::read_to_string("/proc/sys/vm/max_map_count")
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(65_530);
    // Half of them for the program itself and for what may leaves in its pool.
    max_maps / 4
}

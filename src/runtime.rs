//! From the builder's words to running threads, and back: the only part that
//! knows everything.
#![allow(unsafe_code)]

use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::time::Duration;

use windlass_topology::placement::PlannedP;
use windlass_topology::{Level, Plan, Source, Topology};

use crate::config::{Config, MAX_PROCESSORS, NumaPolicy};
use crate::debug::dump::Dump;
use crate::debug::trace::{self, Trace};
use crate::debug::{deadlock, env, live, panics, schedtrace, shutdown, sigquit, stall};
use crate::g::header;
use crate::g::slab::DepotId;
use crate::g::stack::{Stack, StackPool};
use crate::loom::native::atomic::AtomicUsize;
use crate::loom::native::{Arc, Mutex, PoisonError};
use crate::metrics::{MemoryPlacement, RuntimeMetrics};
use crate::netpoll::choose;
use crate::netpoll::poller::Poller;
use crate::sched::border::Border;
use crate::sched::children;
use crate::sched::current;
use crate::sched::fault;
use crate::sched::global::NodeQueue;
use crate::sched::idle::IdleSet;
use crate::sched::m::M;
use crate::sched::near;
use crate::sched::p::{P, StealLevel};
use crate::sched::park::Cancelled;
use crate::sched::place::Place;
use crate::sched::run;
use crate::sched::spawn::{self, Options};
use crate::sched::stall::OnStall;
use crate::sched::state::{Node, Phase, Sched};
use crate::sched::sysmon;
use crate::sched::wake;
use crate::sched::watch::{Check, Print, Watch};
use crate::sys::signal::{self, AltStack};
use crate::sys::{affinity, clock, mmap, sched as threads};
use crate::task::JoinHandle;
use crate::util::chaos;
use crate::util::padded::Padded;
use crate::util::placed::Placed;

/// The stack of the main goroutine: like a program's main thread.
const MAIN_STACK_BYTES: usize = 8 * 1024 * 1024;

/// How often `set_processors` tries again to stop the world.
const STOP_TRIES: u32 = 7;

/// Chooses the properties of a [`Runtime`].
///
/// # Examples
///
/// ```
/// // SAFETY: the program keeps no thread-local borrow across a call that parks.
/// let rt = unsafe { windlass::Builder::new().processors(2).pin(false).build()? };
/// assert_eq!(rt.run(|| 6 * 7), 42);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "a builder does nothing until it builds"]
pub struct Builder {
    config: Config,
}

impl Builder {
    /// A builder with the defaults: a P on every CPU that the process may use, up to
    /// its CPU quota, each pinned.
    pub fn new() -> Builder {
        Builder::default()
    }

    /// Sets the number of Ps: how many goroutines run at the same time. May exceed
    /// the CPUs; at most 4096. If not set: the environment variable `WINDLASS_PROCS`,
    /// else the CPUs that the process may use (affinity, cpuset), up to its CPU quota,
    /// both of which are then followed while the runtime runs. A number that was chosen stays when
    /// the CPUs change; the Ps then share what CPUs there are.
    pub fn processors(mut self, n: usize) -> Builder {
        self.config.processors = Some(n);
        self
    }

    /// Sets how many Ps there may ever be, by [`Runtime::set_processors`] or because the process
    /// may use more CPUs later. If not set: as many as the machine has CPUs (as the process
    /// may use, with [`pin(false)`](Self::pin) or a given [`topology`](Self::topology)), but at
    /// least the number of Ps it begins with.
    pub fn max_processors(mut self, n: usize) -> Builder {
        self.config.max_processors = Some(n);
        self
    }

    /// Restricts the Ps to NUMA nodes, by the kernel's numbers. Should the process lose all CPUs
    /// of them while it runs, its Ps go to those that it has.
    pub fn nodes(mut self, os_ids: &[u32]) -> Builder {
        self.config.nodes = Some(os_ids.to_vec());
        self
    }

    /// How work is spread over NUMA nodes (default: [`NumaPolicy::Levels`]).
    pub fn numa(mut self, policy: NumaPolicy) -> Builder {
        self.config.numa = policy;
        self
    }

    /// Whether the threads of a P are pinned to its CPU (default: yes). Then changes of the CPUs
    /// that the process may use (cpuset, affinity, CPUs offline) are followed: once a second, Ps
    /// are placed anew if there are any, and their threads pinned again. Without pins none is.
    ///
    /// What a goroutine starts, a `std::thread` or a process, is not pinned (docs/SAFETY.md says
    /// where that does not hold).
    pub fn pin(mut self, pin: bool) -> Builder {
        self.config.pin = pin;
        self
    }

    /// Sets the default virtual size of goroutine stacks in bytes, between 16 KiB
    /// and 4 GiB; 256 KiB if not set. Only touched pages use memory.
    pub fn stack_size(mut self, bytes: usize) -> Builder {
        self.config.stack_bytes = bytes;
        self
    }

    /// Bounds the threads that run goroutines; 10,000 if not set.
    pub fn max_threads(mut self, n: usize) -> Builder {
        self.config.max_threads = n;
        self
    }

    /// Names the runtime: the prefix of its threads' names.
    pub fn name(mut self, name: impl Into<String>) -> Builder {
        self.config.name = name.into();
        self
    }

    /// Whether `build` fails where io_uring cannot be used (default: no). Otherwise such
    /// a runtime works over epoll, at a higher cost per operation, and says so once on
    /// stderr: see docs/CONTAINERS.md. The environment variable `WINDLASS_IO` chooses
    /// for a whole process: `uring` or `epoll`.
    pub fn require_io_uring(mut self, yes: bool) -> Builder {
        self.config.require_io_uring = yes;
        self
    }

    /// Prints a line about the scheduler on stderr at this interval, as
    /// `WINDLASS_DEBUG=schedtrace=..` does (which has precedence); zero for never. The
    /// runtime's monitor thread then wakes up for it also while the runtime is idle.
    pub fn schedtrace(mut self, every: Duration) -> Builder {
        self.config.schedtrace = Some(every);
        self
    }

    /// Whether SIGQUIT (`Ctrl-\\` in a terminal) prints a dump of this runtime on stderr, as
    /// with Go (default: no).
    ///
    /// Then, as with Go, the process exits with status 2, also if SIGQUIT was ignored, as
    /// shells have it for what they start in the background. If it had a handler when the first
    /// such runtime was built, that is called after the dump, and the process goes on.
    pub fn dump_on_sigquit(mut self, yes: bool) -> Builder {
        self.config.dump_on_sigquit = yes;
        self
    }

    /// Whether a line on stderr names the goroutine that panics, before the panic's message,
    /// which names a thread (default: yes):
    ///
    /// ```text
    /// goroutine 18 [name "worker"], spawned at src/main.rs:12:9, panicked:
    ///
    /// thread 'main' (4711) panicked at src/main.rs:13:13:
    /// ```
    ///
    /// This sets the process's panic hook, once, around the one that is there when the first
    /// such runtime is built. That one, std's or the program's, is called as before. A hook that
    /// the program sets later replaces both, unless it calls its predecessor. Hooks run on the
    /// goroutine, so a program's own can ask [`task::current`](crate::task::current) who it is.
    pub fn name_panics(mut self, yes: bool) -> Builder {
        self.config.name_panics = yes;
        self
    }

    /// Bounds the end of a run: if goroutines still live this long after the main goroutine has
    /// ended, a message that begins with "shutdown", and a dump, are printed on stderr, and the
    /// process ends at once with status 2. If not set, [`Runtime::run`] waits for ever.
    ///
    /// All goroutines are cancelled at the end of a run, but one that computes, or blocks its
    /// thread, without calling windlass cannot be, nor one that catches the unwinding each time
    /// ([`Cancelled`]). There is no milder way: a thread cannot be killed, as it may hold any
    /// lock, and `run` cannot return before nobody uses what its goroutines borrow.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// # // SAFETY: nothing here keeps a thread-local across a call that parks.
    /// # let rt = unsafe {
    /// windlass::Builder::new()
    /// #   .processors(2)
    ///     .shutdown_timeout(Duration::from_secs(30))
    ///     .build()
    /// # }?;
    /// # rt.run(|| {
    /// #    windlass::spawn(windlass::task::park);
    /// # });
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn shutdown_timeout(mut self, most: Duration) -> Builder {
        self.config.shutdown_timeout = Some(most);
        self
    }

    /// Whether other programs of the same user, and root's, may ask what the runtime does, as
    /// `windlass-topology top` does (default: no). `WINDLASS_DEBUG=live=1` or `live=0` has
    /// precedence.
    ///
    /// A thread of the process answers on a Unix socket whose abstract name is
    /// `windlass-live-` and the process id. It sleeps while nobody asks.
    pub fn live_metrics(mut self, yes: bool) -> Builder {
        self.config.live_metrics = yes;
        self
    }

    /// Keeps what has happened lately on every P, in up to `bytes` of memory for each, to be
    /// written when it is wanted: [`Runtime::write_flight_record`]. An event takes 24 bytes,
    /// and a goroutine that waits and is woken makes three. At most 1 GiB.
    ///
    /// `bytes` is also the size of the logs that [`Runtime::trace`] uses (4 MiB if not set).
    pub fn flight_recorder(mut self, bytes: usize) -> Builder {
        self.config.trace_bytes = bytes;
        self.config.flight_recorder = true;
        self
    }

    /// Whether a deadlock ends the process (default: no): all goroutines are parked, and
    /// no timer, operation or thread is left that could wake one. Then a message that begins
    /// with "deadlock", and a dump, are printed on stderr, and the exit status is 2.
    ///
    /// There is no false alarm: a process with any thread that is not this runtime's own
    /// (the one that calls [`Runtime::run`] is) is never said to be in a deadlock, as that
    /// thread may be about to wake a goroutine.
    ///
    /// An idle runtime wakes up ten times a second for this.
    pub fn deadlock_detection(mut self, yes: bool) -> Builder {
        self.config.deadlock_detection = yes;
        self
    }

    /// Reports, on stderr, a goroutine that has computed, or blocked its thread, for longer
    /// than `after` without coming to the scheduler: its name, where it was spawned, and,
    /// with the feature `backtrace`, where it is just then. Zero for never (the default).
    ///
    /// A goroutine whose P was taken meanwhile (after 10 ms, if others wait for it) is
    /// reported, too. [`blocking`](crate::blocking) sections are not. There is one report of
    /// a stall, and at most ten in a second; the next one says how many were left out.
    ///
    /// For the stack the thread is sent SIGURG, as Go does to preempt: a system call that it
    /// blocks in, and that the kernel does not restart by itself (`nanosleep`,
    /// `epoll_wait`), gives `EINTR`, which `std` handles. A handler that the program has
    /// installed before the runtime was built gets all others of these signals.
    pub fn stall_reports(mut self, after: Duration) -> Builder {
        self.config.stall_reports = Some(after);
        self
    }

    /// Uses a given machine instead of looking at this one. Threads are pinned only
    /// if it is this machine, and changes of its CPUs are not followed.
    pub fn topology(mut self, topology: Topology) -> Builder {
        self.config.topology = Some(topology);
        self
    }

    /// What the environment says goes before what the program says.
    fn read_environment(&mut self) {
        let settings = env::settings();
        let config = &mut self.config;
        config.schedtrace = settings.schedtrace.or(config.schedtrace);
        config.scheddetail = settings.scheddetail.unwrap_or(config.scheddetail);
        config.live_metrics = settings.live.unwrap_or(config.live_metrics);
    }

    /// Builds the runtime: finds out what the machine and the kernel offer, plans
    /// where the Ps go, and makes their pollers. Starts no thread.
    ///
    /// # Safety
    ///
    /// This is the one promise that windlass needs and the compiler cannot check.
    /// A goroutine may go on running on another thread after any call into windlass.
    /// So, in every goroutine of this runtime:
    ///
    /// - no borrow of a thread-local (inside `LocalKey::with`, or an address taken
    ///   from one) lives across a call into windlass that can park;
    /// - no value that is not `Send`, and that is shared with other code of the same
    ///   thread through a thread-local (a guard of a re-entrant lock, an entered
    ///   `tracing` span, an `Rc` clone kept in a thread-local), lives across one.
    ///
    /// docs/SAFETY.md explains each hazard with an example.
    ///
    /// # Errors
    ///
    /// - `InvalidInput` for settings that make no sense.
    /// - If io_uring is required ([`Builder::require_io_uring`]): what keeps it from
    ///   working here (`PermissionDenied`, `Unsupported`, `OutOfMemory`), with the cause
    ///   and the cure in the message.
    /// - The kernel's when memory or descriptors are short.
    ///
    /// Nothing is left behind: no thread, no mapping, no descriptor.
    ///
    /// # Panics
    ///
    /// Inside a goroutine.
    pub unsafe fn build(mut self) -> io::Result<Runtime> {
        assert!(
            current::m().is_none(),
            "windlass: Builder::build was called inside a goroutine of a windlass runtime"
        );
        self.config.check()?;
        self.read_environment();
        chaos::begin();
        let chosen = self.config.processors.or_else(processors_from_env);
        let place = Place::new(&self.config, chosen.is_none())?;
        let n_ps = chosen.unwrap_or_else(|| place.default_processors(&place.topology));
        // Also an early no to what cannot be planned.
        place.check(n_ps)?;
        let max = self.config.max_processors;
        let max = max.unwrap_or_else(|| place.max_processors());
        let watch = watch(&self.config);
        let (wants_sigquit, is_live) = (self.config.dump_on_sigquit, self.config.live_metrics);
        let sched = make_sched(self.config, place, max.max(n_ps))?;
        sched.resize(n_ps)?;
        children::install();
        let first = sched.watch.set(watch);
        debug_assert!(first.is_ok(), "a scheduler is watched from its beginning");
        #[cfg(feature = "backtrace")]
        if sched.config.stall_reports.is_some() {
            crate::sys::sample::install(crate::sched::stall::goroutine_here);
        }
        if sched.config.flight_recorder {
            sched.start_tracing();
        }
        signal::install_fault_handler(fault::report);
        if sched.config.name_panics {
            panics::install();
        }
        if wants_sigquit {
            sigquit::register(&sched)?;
        }
        if is_live {
            live::register(&sched)?;
        }
        Ok(Runtime {
            sched,
            running: Mutex::new(()),
        })
    }
}

/// What `WINDLASS_PROCS` says. A value that makes no sense is told of and not heeded.
#[allow(
    clippy::print_stderr,
    reason = "a wrong setting should not go unnoticed"
)]
fn processors_from_env() -> Option<usize> {
    let value = std::env::var_os("WINDLASS_PROCS").filter(|v| !v.is_empty())?;
    let n = value.to_str().and_then(|v| v.trim().parse().ok());
    let n = n.filter(|n| (1..=MAX_PROCESSORS).contains(n));
    if n.is_none() {
        eprintln!(
            "windlass: WINDLASS_PROCS={} is not heeded: it must be a number from 1 to \
             {MAX_PROCESSORS}",
            value.to_string_lossy()
        );
    }
    n
}

/// What sysmon does for those who look on.
fn watch(config: &Config) -> Watch {
    let print: Print = if config.scheddetail {
        schedtrace::print_detail
    } else {
        schedtrace::print
    };
    let every = config.schedtrace.filter(|every| !every.is_zero());
    let check: Option<Check> = config.deadlock_detection.then_some(deadlock::check);
    let stalls = config.stall_reports.filter(|after| !after.is_zero());
    let stalls = stalls.map(|after| {
        let reporter: Box<dyn OnStall> = Box::<stall::Reporter>::default();
        (after, reporter)
    });
    let shutdown = config.shutdown_timeout;
    let shutdown = shutdown.map(|most| (most, shutdown::give_up as Check));
    Watch::new(every.map(|every| (every, print)), check, stalls, shutdown)
}

/// Makes nodes and Ps for up to `max` Ps, none of them in use; those of a node on its
/// memory, and by a thread of its own, which is the first to touch the rest of them.
fn make_sched(config: Config, place: Place, max: usize) -> io::Result<Arc<Sched>> {
    let plan = place.structure(max)?;
    let topology = &place.topology;
    let pin = config.pin && *topology.source() == Source::ThisMachine;
    let pollers = choose::choose(config.require_io_uring)?;
    let guard = mmap::probe_guard()?;
    let mut nodes = Placed::new();
    let mut ps = Placed::new();
    for (node_idx, planned) in plan.nodes.iter().enumerate() {
        // On a machine of one node there is nothing to choose.
        let memory = planned
            .memory_node
            .filter(|_| pin && topology.nodes().len() > 1);
        let node = Node {
            os_id: planned.os_id,
            memory,
            depot: DepotId::of(memory),
            ps: planned.ps[0]..planned.ps[planned.ps.len() - 1] + 1,
            queue: Padded(NodeQueue::new()),
            idle: Padded(IdleSet::new(planned.ps.len())),
            stacks: StackPool::new(node_idx, memory, guard, plan.nodes.len()),
            border: border(topology, &plan, node_idx),
            n_live: AtomicUsize::new(0),
        };
        let first = planned.ps[0];
        let make =
            |&idx: &usize| make_p(&plan, &plan.ps[idx], idx - first, memory, pollers.poller());
        // A CPU that is not ours is left alone.
        let mut cpus = planned.ps.iter().map(|&idx| plan.ps[idx].cpu);
        let ours = cpus.find(|&cpu| topology.pu(cpu).is_some_and(|pu| pu.allowed));
        near::on_node(ours, memory, || {
            nodes.push_group(memory, std::iter::once(node))?;
            ps.push_group(memory, planned.ps.iter().map(make))
        })?;
    }
    let membarrier = threads::membarrier_register().is_ok();
    Ok(Sched::new(config, pin, nodes, ps, place, membarrier))
}

fn make_p(
    plan: &Plan,
    planned: &PlannedP,
    at_in_node: usize,
    memory: Option<u32>,
    poller: Poller,
) -> P {
    P::new(
        planned.index,
        planned.cpu,
        planned.node,
        at_in_node,
        planned
            .levels
            .iter()
            .map(|l| steal_level(plan, l))
            .collect(),
        memory,
        poller,
    )
}

/// What a node must know of the others.
fn border(topology: &Topology, plan: &Plan, node_idx: usize) -> Border {
    let own = plan.nodes[node_idx].index;
    let nodes = plan.nodes.iter();
    let distances: Vec<_> = nodes.map(|n| topology.distance(own, n.index)).collect();
    Border::new(node_idx, &distances)
}

fn steal_level(plan: &Plan, level: &Level) -> StealLevel {
    StealLevel::new(level.kind, level.distance, level.victims.clone(), |p| {
        plan.ps[p].node
    })
}

/// A runtime: Ps with their pollers, ready to run goroutines.
///
/// Dropping it disposes of goroutines that were queued and never run.
pub struct Runtime {
    sched: Arc<Sched>,
    /// Held by the one call of `run`.
    running: Mutex<()>,
}

impl Runtime {
    /// Runs `f` as the main goroutine and gives its value. The calling thread is the
    /// first of the runtime's threads meanwhile, pinned like the others; its affinity
    /// is given back. `f` begins on it, and stays there if it begins with
    /// [`lock_thread`](crate::task::lock_thread).
    ///
    /// When `f` returns, the goroutines that still live are cancelled: their
    /// operations are cancelled and awaited, their stacks unwound, and all threads are
    /// joined. A goroutine that never calls windlass again cannot be cancelled, and is
    /// waited for, for as long as [`Builder::shutdown_timeout`] says.
    ///
    /// May be called again, with goroutines anew; between two runs spawning is refused.
    ///
    /// # Blocking
    ///
    /// Blocks the calling thread until all is over.
    ///
    /// # Panics
    ///
    /// With `f`'s panic; inside a goroutine; if another thread is in `run` of this
    /// runtime; if the kernel gives no thread for the runtime's monitor, or no memory for
    /// the main goroutine's stack of 8 MiB. In the last two cases nothing has run, and
    /// `run` may be called again.
    #[track_caller]
    pub fn run<F, T>(&self, f: F) -> T
    where
        F: FnOnce() -> T + Send,
        T: Send,
    {
        assert!(
            current::m().is_none(),
            "windlass: Runtime::run was called inside a goroutine of a windlass runtime"
        );
        let Ok(running) = self.running.try_lock().map_err(|e| match e {
            std::sync::TryLockError::Poisoned(_) => unreachable!("a run's panic leaves no guard"),
            std::sync::TryLockError::WouldBlock => {}
        }) else {
            panic!("windlass: Runtime::run was called while this runtime runs already");
        };
        let started = run_to_end(&self.sched, f, Location::caller());
        // A panic that met the guard would poison the lock, and with it the next run.
        drop(running);
        match started {
            Ok(outcome) => outcome.unwrap_or_else(|payload| resume_unwind(payload)),
            Err(why) => panic!("windlass: {why}"),
        }
    }

    /// A handle to spawn goroutines from other threads.
    #[must_use]
    pub fn handle(&self) -> Handle {
        Handle {
            sched: Arc::clone(&self.sched),
        }
    }

    /// The counters of the runtime.
    #[must_use]
    pub fn metrics(&self) -> RuntimeMetrics {
        RuntimeMetrics::of(&self.sched)
    }

    /// On which NUMA nodes the runtime's memory lies: a sample of the pages of Ps, goroutines,
    /// stacks, rings and buffers, asked of the kernel with `move_pages(2)`, which moves
    /// nothing here. On a machine of one node all of it is at home.
    ///
    /// # Blocking
    ///
    /// Does not park. A page costs about a microsecond, and at most some thousands are looked
    /// at on each node; the runtime works on meanwhile.
    ///
    /// # Examples
    ///
    /// ```
    /// # // SAFETY: nothing here keeps a thread-local across a call that parks.
    /// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
    /// rt.run(|| windlass::spawn(|| ()).join().unwrap());
    /// for node in rt.memory_placement().nodes {
    ///     let stacks = node.pages.stacks;
    ///     println!("node {}: {} pages of stacks at home, {} away", node.os_id, stacks.home, stacks.away);
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn memory_placement(&self) -> MemoryPlacement {
        MemoryPlacement::of(&self.sched)
    }

    /// All goroutines, with what they wait for, for how long, and their stacks.
    ///
    /// Nothing is stopped: a parked goroutine is held still for the microseconds in which
    /// its stack is copied, one after the other. A goroutine that runs, or is in a queue,
    /// comes without its stack. Stacks need the feature `backtrace`, and names need debug
    /// information (`debug = "line-tables-only"` is enough).
    ///
    /// # Blocking
    ///
    /// Does not park. Reading the names, the first time from the program's file, may take
    /// a second: in a goroutine, take a dump inside [`blocking`](crate::blocking).
    #[must_use]
    pub fn dump(&self) -> Dump {
        Dump::take(&self.sched)
    }

    /// Takes an execution trace for `duration` and writes it in the format of Chrome's
    /// trace events, which ui.perfetto.dev opens: [`debug::Trace`](crate::debug::Trace)
    /// tells more.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine, or blocks the thread, for `duration`; then writes, which
    /// blocks as `writer` does.
    ///
    /// # Errors
    ///
    /// The writer's.
    ///
    /// # Examples
    ///
    /// ```
    /// # // SAFETY: nothing here keeps a thread-local across a call that parks.
    /// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
    /// let mut json = Vec::new();
    /// let handle = rt.handle();
    /// rt.run(|| handle.trace(std::time::Duration::from_millis(5), &mut json))?;
    /// assert!(json.starts_with(b"{"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn trace(&self, duration: Duration, writer: impl io::Write) -> io::Result<()> {
        trace::take(&self.sched, duration, writer)
    }

    /// Begins an execution trace, which ends when what this gives is dropped.
    ///
    /// # Blocking
    ///
    /// Never.
    pub fn start_trace(&self) -> Trace {
        Trace::start(&self.sched)
    }

    /// Writes what the flight recorder has ([`Builder::flight_recorder`]), as
    /// [`trace`](Self::trace) does. It goes on recording.
    ///
    /// # Blocking
    ///
    /// As `writer` does.
    ///
    /// # Errors
    ///
    /// The writer's; `Unsupported` if there is no flight recorder.
    pub fn write_flight_record(&self, writer: impl io::Write) -> io::Result<()> {
        if !self.sched.config.flight_recorder {
            return Err(trace::no_recorder());
        }
        trace::write(&self.sched, 0, writer)
    }

    /// The machine as it was when the runtime was built.
    #[must_use]
    pub fn topology(&self) -> &Topology {
        &self.sched.place.topology
    }

    /// Which P goes to which CPU of which node, and whom it steals from, for the
    /// number of Ps in use now, on the CPUs that the process may use now.
    #[must_use]
    #[expect(clippy::missing_panics_doc, reason = "what is in use was planned")]
    pub fn plan(&self) -> Plan {
        let place = &self.sched.place;
        place
            .plan(self.sched.n_procs())
            .expect("it was planned before")
    }

    /// The number of Ps in use.
    #[must_use]
    pub fn processors(&self) -> usize {
        self.sched.n_procs()
    }

    /// Changes the number of Ps, also while goroutines run: the world is stopped for a
    /// moment. Goroutines, timers and operations of Ps that go are taken over by those
    /// that stay. From here on the number follows neither the CPU quota nor the CPUs that the
    /// process may use any more; where the Ps are does.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine, blocks a plain thread, until it is done.
    ///
    /// # Errors
    ///
    /// Then nothing has changed:
    ///
    /// - `InvalidInput` for none, or more than [`Builder::max_processors`].
    /// - `TimedOut` if the world does not stop, tried eight times: for a second each on a
    ///   machine that gives the runtime's threads no CPU; for 10 ms each where
    ///   `membarrier(2)` is denied and a goroutine computes all the while without a call
    ///   into windlass. Anywhere else a goroutine that computes does not hold it up: it
    ///   goes on, and waits for a P at its next call.
    /// - What keeps the kernel from making a ring for a new P.
    ///
    /// # Examples
    ///
    /// ```
    /// // SAFETY: the program keeps no thread-local borrow across a call that parks.
    /// let rt = unsafe { windlass::Builder::new().processors(1).max_processors(4).build()? };
    /// rt.run(|| {
    ///     rt.set_processors(3)?;
    ///     assert_eq!(rt.processors(), 3);
    ///     rt.set_processors(2)
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_processors(&self, n: usize) -> io::Result<()> {
        if n == 0 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "set_processors(0): a runtime needs at least one P",
            ));
        }
        let change = move |sched: &Sched, stopped: io::Result<()>| -> io::Result<()> {
            stopped?;
            sched.resize(n)?;
            let is_default = &sched.place.is_default;
            is_default.store(false, crate::loom::Ordering::Relaxed);
            Ok(())
        };
        let mut n_tries = 0;
        loop {
            {
                // Without a run nobody holds a P.
                let _shape = self.sched.world.shape();
                if matches!(self.sched.phase(), Phase::Ready | Phase::Ended) {
                    change(&self.sched, Ok(()))?;
                    self.sched.bury_all();
                    return Ok(());
                }
            }
            let done = crate::task::offload(|| self.sched.in_stopped_world(change));
            match done {
                Some(Err(e)) if e.kind() == io::ErrorKind::TimedOut && n_tries < STOP_TRIES => {
                    n_tries += 1;
                }
                Some(result) => return result,
                // The run is about to end, or only begins.
                None => clock::nap(100_000),
            }
        }
    }
}

#[cfg(test)]
impl Runtime {
    pub(crate) fn sched(&self) -> &Sched {
        &self.sched
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        let sched = &self.sched;
        // Between two runs or before the first: no M exists. From here on handles are refused.
        sched.set_phase(Phase::Ended);
        while sched.n_entering.load(crate::loom::Ordering::SeqCst) != 0 {
            crate::loom::spin_loop();
        }
        for node in &sched.nodes {
            while let Some(g) = node.queue.pop() {
                spawn::abandon(g);
                // It was spawned by `Handle::spawn`, before the first run, and has now ended.
                let n_foreign = &sched.n_foreign;
                n_foreign.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
            }
        }
        for p in &sched.ps {
            p.drain_caches();
            p.poller.close();
        }
        for node in &sched.nodes {
            // SAFETY: no goroutine has a stack: all have ended or never ran; the caches are empty.
            unsafe { node.stacks.unmap() };
        }
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime")
            .field("name", &self.sched.config.name)
            .field("processors", &self.processors())
            .finish_non_exhaustive()
    }
}

/// Runs the main goroutine on M0 and everything until the last thread is joined.
///
/// # Errors
///
/// Why the run could not begin; then everything is as it was before.
fn run_to_end<F, T>(
    sched: &Arc<Sched>,
    f: F,
    site: &'static Location<'static>,
) -> Result<std::thread::Result<T>, String>
where
    F: FnOnce() -> T + Send,
    T: Send,
{
    let first_in_use = || sched.ps_in_use().next().expect("at least one P is in use");
    // Before anything else: only the main goroutine can end the run, so without a stack for it
    // the run must not begin.
    let pool = &sched.node_of(first_in_use()).stacks;
    let stack = match pool.take(main_stack_bytes(sched)) {
        Ok(stack) => stack,
        Err(e) => return Err(format!("cannot start the main goroutine: {e}")),
    };
    let outcome = Mutex::new(None);
    let main = {
        let sched: &Sched = sched;
        let outcome = &outcome;
        move || {
            let result = catch_unwind(AssertUnwindSafe(f));
            *outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
            sched.set_phase(Phase::Cancelling);
            sched.sysmon.note.wake();
        }
    };
    let mut borrowed = Borrowed::take();
    let (mask, after) = sched.place.masks_of_run(borrowed.mask.take());
    sched.offload.set_mask(mask.clone().or(after.clone()));
    borrowed.mask = after;
    // Sysmon inherits it.
    if let Some(mask) = mask {
        affinity::restore(&mask);
    }
    // The previous run's goroutines are counted as ended; M ids start anew with the threads.
    let phase_before = {
        let _shape = sched.world.shape();
        let before = sched.phase();
        sched.set_phase(Phase::Running);
        before
    };
    // The first goroutine runs before a P looks at the clock, and its wait is dated by this.
    let now_ns = clock::now_ns();
    sched.ps.iter().for_each(|p| p.local.now_ns.set(now_ns));
    // Before sysmon, which starts threads up to the limit.
    let m0 = Box::new(M::new(
        sched.next_m.fetch_add(1, crate::loom::Ordering::Relaxed),
        &raw const **sched,
    ));
    let m0_ptr: *const M = &raw const *m0;
    {
        sched.n_ms.fetch_add(1, crate::loom::Ordering::Relaxed);
        sched.ms.lock().all.push(m0);
    }
    // Before sysmon, which gives all others away. Only now: before the run began, another thread
    // might still have changed which Ps are in use.
    let first = first_in_use();
    first
        .owner
        .store(m0_ptr.cast_mut(), crate::loom::Ordering::Release);
    let sysmon = {
        let sched = Arc::clone(sched);
        crate::loom::thread::Builder::new()
            .name(format!("{}-sysmon", sched.config.name))
            .spawn(move || sysmon::main(&sched))
    };
    let sysmon = match sysmon {
        Ok(thread) => thread,
        Err(e) => {
            wake::wait_for_outside_wakers();
            end_ms(sched);
            sched.set_phase(phase_before);
            sched.refuse_jobs();
            pool.give([stack]);
            drop(borrowed);
            return Err(format!("cannot start the runtime's monitor thread: {e}"));
        }
    };
    // SAFETY: the box lies in `Sched::ms` until it is cleared below, after this thread's last use.
    let m0 = unsafe { &*m0_ptr };
    run::take_p(m0, first);
    spawn_main(sched, m0, main, stack, site);
    run::m_loop(m0);
    // M0 leaves its loop when sysmon has found that nothing lives.
    join(sysmon);
    let threads = std::mem::take(&mut sched.ms.lock().threads);
    threads.into_iter().for_each(join);
    for p in &sched.ps {
        let left = wake::send_out(sched, p.poller.drain());
        debug_assert!(left.is_empty(), "a goroutine waits after the end");
    }
    sched.offload.close();
    wake::wait_for_outside_wakers();
    end_ms(sched);
    run::tell_of_failed_starts(sched);
    sched.set_phase(Phase::Ended);
    drop(borrowed);
    let outcome = outcome.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(outcome.unwrap_or_else(|| Err(Box::new(Cancelled))))
}

fn join(thread: crate::loom::thread::JoinHandle<()>) {
    // The runtime's threads abort on a panic, so joining cannot fail.
    let _ = thread.join();
}

/// Forgets the Ms of a run.
fn end_ms(sched: &Sched) {
    let mut ms = sched.ms.lock();
    ms.spare.clear();
    ms.all.clear();
    sched.n_ms.store(0, crate::loom::Ordering::Relaxed);
    sched.n_retired.store(0, crate::loom::Ordering::Relaxed);
    for p in &sched.ps {
        // A locked thread may have left it so.
        p.syscall.store(0, crate::loom::Ordering::Relaxed);
        p.owner
            .store(std::ptr::null_mut(), crate::loom::Ordering::Release);
    }
    sched.bury_all();
}

/// What the main goroutine asks for.
fn main_stack_bytes(sched: &Sched) -> usize {
    MAIN_STACK_BYTES.max(sched.config.stack_bytes)
}

/// Makes the main goroutine the first that M0 runs: no other thread begins it.
fn spawn_main<F: FnOnce() + Send>(
    sched: &Sched,
    m0: &M,
    f: F,
    stack: Stack,
    site: &'static Location<'static>,
) {
    let p = m0.p();
    let node = sched.node_of(p);
    let g = p.take_slot(header::class_of::<F, ()>(), node.depot);
    header::init(
        g,
        f,
        header::Spawn {
            id: p.next_id(),
            parent: 0,
            name: Some("main".into()),
            site,
            stack_bytes: main_stack_bytes(sched),
            home: p.node_idx,
            is_bound: false,
            sched: std::ptr::from_ref(sched).cast_mut().cast(),
            refs: 1,
        },
    );
    p.stats.spawned.add(1);
    spawn::begin_on(m0, g, stack);
    g.status.set_runnable();
    m0.mail.post(g);
}

/// What `run` borrows of the calling thread, given back when dropped.
struct Borrowed {
    mask: Option<affinity::Mask>,
    slack_ns: u64,
    _stack: Option<AltStack>,
}

impl Borrowed {
    fn take() -> Borrowed {
        Borrowed {
            mask: affinity::current(),
            slack_ns: clock::tighten_timer_slack(),
            _stack: AltStack::install().ok(),
        }
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        if let Some(mask) = &self.mask {
            affinity::restore(mask);
        }
        clock::restore_timer_slack(self.slack_ns);
    }
}

/// A handle to a runtime, for threads outside it.
#[derive(Clone)]
pub struct Handle {
    sched: Arc<Sched>,
}

impl Handle {
    /// Spawns a goroutine from any thread. Before the first run it is queued; after a
    /// run has ended it is refused: the closure is dropped, and joining gives
    /// [`Cancelled`](crate::task::Cancelled).
    ///
    /// # Blocking
    ///
    /// Never.
    #[track_caller]
    pub fn spawn<F, T>(&self, f: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let task =
            spawn::spawn_foreign(&self.sched, None, f, Options::default(), Location::caller());
        JoinHandle::new(task, header::take_fn::<F, T>())
    }

    /// The counters of the runtime.
    #[must_use]
    pub fn metrics(&self) -> RuntimeMetrics {
        RuntimeMetrics::of(&self.sched)
    }

    /// The machine as it was when the runtime was built.
    #[must_use]
    pub fn topology(&self) -> &Topology {
        &self.sched.place.topology
    }

    /// Takes an execution trace: see [`Runtime::trace`].
    ///
    /// # Blocking
    ///
    /// As there.
    ///
    /// # Errors
    ///
    /// The writer's.
    pub fn trace(&self, duration: Duration, writer: impl io::Write) -> io::Result<()> {
        trace::take(&self.sched, duration, writer)
    }

    /// Begins an execution trace: see [`Runtime::start_trace`].
    ///
    /// # Blocking
    ///
    /// Never.
    pub fn start_trace(&self) -> Trace {
        Trace::start(&self.sched)
    }

    /// Writes what the flight recorder has: see [`Runtime::write_flight_record`].
    ///
    /// # Blocking
    ///
    /// As `writer` does.
    ///
    /// # Errors
    ///
    /// The writer's; `Unsupported` if there is no flight recorder.
    pub fn write_flight_record(&self, writer: impl io::Write) -> io::Result<()> {
        if !self.sched.config.flight_recorder {
            return Err(trace::no_recorder());
        }
        trace::write(&self.sched, 0, writer)
    }

    /// All goroutines: see [`Runtime::dump`].
    ///
    /// # Blocking
    ///
    /// As there.
    #[must_use]
    pub fn dump(&self) -> Dump {
        Dump::take(&self.sched)
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle")
            .field("name", &self.sched.config.name)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
#[path = "runtime_denied_tests.rs"]
mod denied_tests;

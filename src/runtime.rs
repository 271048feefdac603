//! Builds a runtime from its settings, runs it, and shuts it down. The only module that
//! knows all the others.
#![allow(unsafe_code)]

use std::io;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::time::Duration;

use windlass_ground::padded::Padded;
use windlass_ground::placed::Placed;
use windlass_ground::run_on_node;
use windlass_ground::stack::{self, Stack, StackPool};
use windlass_ground::std_traits::debug_fields;
use windlass_ground::usable_cpus::{UsableCpus, Wanted};
use windlass_topology::{Level, Plan, Source, Topology};

use crate::config::{Config, NumaPolicy};
use crate::context::Context;
use crate::debug::dump::Dump;
use crate::debug::goroutines::{self, Goroutine};
use crate::debug::leaks::{self, Leaks};
use crate::debug::profile::{self, Profile};
use crate::debug::trace::{self, Trace};
use crate::debug::waits::{self, WaitProfile};
use crate::debug::{env, observers};
use crate::g::details::Details;
use crate::g::header;
use crate::g::slab::DepotId;
use crate::lock::rank;
#[cfg(feature = "sim")]
use crate::loom::native::LazyLock;
use crate::loom::native::atomic::{AtomicUsize, Ordering};
use crate::loom::native::{Arc, Mutex};
use crate::metrics::{MemoryPlacement, RuntimeMetrics};
use crate::netpoll::choose::{self, Choice};
use crate::sched::monitor::stack_overflow;
use crate::sched::numa::remote_peers::RemotePeers;
use crate::sched::proc::{run, spare, threads as threads_of_ms};
use crate::sched::queue::global::NodeQueue;
use crate::sched::queue::idle::IdleSet;
use crate::sched::types::current;
use crate::sched::types::m::M;
use crate::sched::types::p::P;
#[cfg(feature = "sim")]
use crate::sched::types::simulation::Simulation;
use crate::sched::types::steal_levels::StealLevel;
use crate::sched::wait::children;
use crate::sched::wait::points::Cancelled;
use crate::sched::wait::spawn::{self, Options};

use crate::sched::monitor::resize;
use crate::sched::monitor::sysmon;
use crate::sched::monitor::world;
use crate::sched::types::state::{Node, Phase, Sched};
use crate::sched::wait::wake;
use crate::sys::signal::{self, AltStack};
use crate::sys::{affinity, clock, mmap, sched as threads};
use crate::task::{self, JoinHandle};
use crate::util::chaos;

/// How many times `set_processors` retries to stop the world.
const STOP_TRIES: u32 = 7;

/// Configures and builds a [`Runtime`].
///
/// The setters only record values. [`build`](Builder::build) checks them.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// // SAFETY: the program keeps no thread-local borrow across a call that parks.
/// let rt = unsafe {
///     windlass::Builder::new()
///         .name("app")
///         .processors(2)
///         .pin(false)
///         .stack_size(64 * 1024)
///         .max_threads(100)
///         .stall_reports(Duration::from_millis(100))
///         .build()?
/// };
/// assert_eq!(rt.run(|| 6 * 7), 42);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// A service that can be observed, and that ends if it hangs:
///
/// ```no_run
/// use std::time::Duration;
///
/// // SAFETY: the program keeps no thread-local borrow across a call that parks.
/// let rt = unsafe {
///     windlass::Builder::new()
///         .dump_on_sigquit(true)
///         .live_metrics(true)
///         .flight_recorder(4 << 20)
///         .schedtrace(Duration::from_secs(60))
///         .deadlock_detection(true)
///         .shutdown_timeout(Duration::from_secs(30))
///         .build()?
/// };
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "a builder does nothing until it builds"]
pub struct Builder {
    config: Config,
}

impl Builder {
    /// Creates a builder with the defaults: one P for each CPU that the process may use, up to its
    /// CPU quota, each pinned.
    pub fn new() -> Builder {
        Builder::default()
    }

    /// Sets the number of Ps, which is how many goroutines run at the same time. It may exceed the
    /// number of CPUs; the limit is 4096.
    ///
    /// If it is not set, the environment variable `WINDLASS_PROCS` sets it. If that is not set
    /// either, there is a P for each CPU that the process may use (affinity, cpuset), up to its CPU
    /// quota, and the number follows changes of both while the runtime runs. A number that was set
    /// does not change with the CPUs; the Ps then share the CPUs that remain.
    pub fn processors(mut self, n: usize) -> Builder {
        self.config.processors = Some(n);
        self
    }

    /// Sets the maximum number of Ps, which bounds [`Runtime::set_processors`] and the growth when
    /// the process may use more CPUs later.
    ///
    /// The default is the number of CPUs of the machine; with [`pin(false)`](Self::pin) or a given
    /// [`topology`](Self::topology) it is the number of CPUs that the process may use. It is never
    /// less than the initial number of Ps.
    pub fn max_processors(mut self, n: usize) -> Builder {
        self.config.max_processors = Some(n);
        self
    }

    /// Restricts the Ps to these NUMA nodes, by the kernel's numbers. If the process loses all CPUs
    /// of these nodes while it runs, the Ps move to the CPUs that it still has.
    ///
    /// # Examples
    ///
    /// ```
    /// # // SAFETY: nothing here keeps a thread-local across a call that parks.
    /// # let all = unsafe { windlass::Builder::new().build()? };
    /// # let node = all.plan().nodes[0].os_id;
    /// // SAFETY: the program keeps no thread-local borrow across a call that parks.
    /// let rt = unsafe { windlass::Builder::new().nodes(&[node]).build()? };
    /// assert_eq!(rt.plan().nodes.len(), 1);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn nodes(mut self, os_ids: &[u32]) -> Builder {
        self.config.nodes = Some(os_ids.to_vec());
        self
    }

    /// Sets how work is spread over NUMA nodes. The default is [`NumaPolicy::Levels`]; the
    /// documentation of [`NumaPolicy::Flat`] says when that may be the better choice.
    pub fn numa(mut self, policy: NumaPolicy) -> Builder {
        self.config.numa = policy;
        self
    }

    /// Sets whether the thread of a P is pinned to the P's CPU (default: yes).
    ///
    /// With pinning, the runtime checks once a second whether the CPUs that the process may use
    /// have changed (cpuset, affinity, CPUs offline). If so, it places the Ps again and pins their
    /// threads again. Without pinning it does not.
    ///
    /// A `std::thread` or a process that a goroutine starts is not pinned; docs/SAFETY.md lists the
    /// exceptions.
    pub fn pin(mut self, pin: bool) -> Builder {
        self.config.pin = pin;
        self
    }

    /// Sets the default virtual size of goroutine stacks in bytes, between 16 KiB and 4 GiB. The
    /// default is 256 KiB. Only touched pages use memory.
    pub fn stack_size(mut self, bytes: usize) -> Builder {
        self.config.stack_bytes = bytes;
        self
    }

    /// Limits the number of threads that run goroutines. The default is 10,000. Where blocking calls hold all but some
    /// of them, those run all other goroutines; where all of them compute or block without end, nothing else runs.
    pub fn max_threads(mut self, n: usize) -> Builder {
        self.config.max_threads = n;
        self
    }

    /// Names the runtime. The name is the prefix of its threads' names and appears in reports. The
    /// default is `windlass`.
    pub fn name(mut self, name: impl Into<String>) -> Builder {
        self.config.name = name.into();
        self
    }

    /// Sets whether `build` fails where io_uring cannot be used (default: no).
    ///
    /// By default the runtime then uses epoll, at a higher cost per operation, and prints one line
    /// on stderr: see docs/CONTAINERS.md. The environment variable `WINDLASS_IO` (`uring` or
    /// `epoll`) decides for a whole process.
    ///
    /// # Examples
    ///
    /// ```
    /// # // SAFETY: nothing here keeps a thread-local across a call that parks.
    /// # let built = unsafe {
    /// windlass::Builder::new()
    /// #   .processors(1)
    ///     .require_io_uring(true)
    ///     .build()
    /// # };
    /// # use windlass::metrics::Poller;
    /// # assert!(built.is_err() || built?.metrics().poller == Poller::IoUring);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn require_io_uring(mut self, yes: bool) -> Builder {
        self.config.require_io_uring = yes;
        self
    }

    /// Prints a line about the scheduler on stderr at this interval; zero means never (the
    /// default). `WINDLASS_DEBUG=schedtrace=milliseconds` does the same and has precedence. The
    /// runtime's monitor thread then also wakes up while the runtime is idle.
    pub fn schedtrace(mut self, every: Duration) -> Builder {
        self.config.schedtrace = Some(every);
        self
    }

    /// Sets whether SIGQUIT (`Ctrl-\` in a terminal) prints a dump of this runtime on stderr, as in
    /// Go (default: no).
    ///
    /// After the dump the process exits with status 2, as in Go. It does so even if SIGQUIT was
    /// ignored, as it is in programs that a shell starts in the background. If SIGQUIT had a
    /// handler when the first such runtime was built, that handler is called after the dump
    /// instead, and the process continues.
    pub fn dump_on_sigquit(mut self, yes: bool) -> Builder {
        self.config.dump_on_sigquit = yes;
        self
    }

    /// Sets whether a line on stderr names the goroutine that panics (default: yes). It comes
    /// before the panic's message, which names only a thread:
    ///
    /// ```text
    /// goroutine 18 [name "worker"], spawned at src/main.rs:12:9, panicked:
    ///
    /// thread 'main' (4711) panicked at src/main.rs:13:13:
    /// ```
    ///
    /// A test harness that captures output does not capture this line.
    ///
    /// The first such runtime sets the process's panic hook. The hook calls the one that was set
    /// before, which is std's or the program's. A hook that the program sets later replaces both,
    /// unless it calls its predecessor. Hooks run on the goroutine, so a hook of the program can
    /// use [`task::current`](crate::task::current) to identify it.
    pub fn name_panics(mut self, yes: bool) -> Builder {
        self.config.name_panics = yes;
        self
    }

    /// Limits how long the end of a run may take. If goroutines still live this long after the main
    /// goroutine has ended, the runtime prints a message that begins with "shutdown" and a dump on
    /// stderr, and ends the process with status 2. By default [`Runtime::run`] waits without limit.
    ///
    /// All goroutines are cancelled at the end of a run. Cancellation cannot reach a goroutine that
    /// computes or blocks its thread without calling windlass, or one that catches the unwinding
    /// ([`Cancelled`]) each time. Only the end of the process helps then: a thread cannot be
    /// killed, because it may hold any lock, and `run` cannot return while a goroutine uses data
    /// that it borrows from the caller.
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

    /// Sets whether other programs of the same user, and of root, may read the runtime's counters,
    /// as `windlass-topology top` does (default: no). `WINDLASS_DEBUG=live=1` or `live=0` has
    /// precedence.
    ///
    /// A thread of the process answers on a Unix socket whose abstract name has the PID namespace and the
    /// process id. It sleeps until a client connects. If another process has taken that name,
    /// a line on stderr says so, and the runtime is built without.
    pub fn live_metrics(mut self, yes: bool) -> Builder {
        self.config.live_metrics = yes;
        self
    }

    /// Records the latest events of every P, in up to `bytes` of memory for each P (at most 1 GiB).
    /// [`Runtime::write_flight_record`] writes them. An event takes 24 bytes; a wait and its
    /// wake-up are three events.
    ///
    /// `bytes` is also the size of the logs that [`Runtime::trace`] uses, which is 4 MiB by
    /// default.
    pub fn flight_recorder(mut self, bytes: usize) -> Builder {
        self.config.trace_bytes = bytes;
        self.config.flight_recorder = true;
        self
    }

    /// Asks the kernel to swap the stacks of goroutines that have waited for longer than `time` (default: never). For
    /// programs with many goroutines that wait for minutes, on machines whose swap is compressed memory (zram, zswap): a
    /// stack of some hundred bytes that takes a page of 4 KiB takes about as many bytes there.
    ///
    /// Sysmon asks for each stack once in a wait (`MADV_PAGEOUT`), some seconds after `time`, or minutes if a million
    /// become cold at once: it works for half a millisecond in 20 ms. The content stays. The next access to a page
    /// reads it back, in some µs from zram: when the goroutine goes on, and also when another one
    /// wakes it or waits behind it, as the list of waiters leads through their stacks. A dump that shows stacks brings
    /// them back until the next wait. With swap on a disk all of these wait for the disk, and so does sysmon: do not use it there.
    /// Scopes and calls of [`offload`](crate::offload) that wait are left out, because others use their frames meanwhile.
    ///
    /// Without swap nothing happens; where the cgroup may not use it (`memory.swap.max`), the stacks stay in memory.
    /// `windlass-topology doctor` says how it is. [`RuntimeMetrics::stacks_paged_out`](crate::metrics::RuntimeMetrics::stacks_paged_out)
    /// counts the stacks.
    ///
    /// [`Builder::build`] fails with [`InvalidInput`](io::ErrorKind::InvalidInput) if `time` is shorter than a second.
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
    ///     .page_out_after(Duration::from_secs(30))
    ///     .build()
    /// # }?;
    /// # rt.run(|| {});
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn page_out_after(mut self, time: Duration) -> Builder {
        self.config.page_out_after = Some(time);
        self
    }

    /// Sets whether the CPU time of goroutines is measured (default: no). Dumps then show that of each
    /// goroutine, and the metrics that of each P and of each [label](crate::task::Builder::label).
    ///
    /// The clock is read when a goroutine begins to run and when it parks, yields or ends. Where this
    /// is off, a switch costs one instruction for it; where it is on, two readings of the clock. The
    /// time is that on a thread of the runtime, without [`blocking`](crate::blocking) sections and
    /// what [`offload`](crate::offload) runs elsewhere. If the machine has more threads to run than
    /// CPUs, the time in which the kernel ran others is included.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use windlass::task;
    ///
    /// // SAFETY: the program keeps no thread-local borrow across a call that parks.
    /// let rt = unsafe { windlass::Builder::new().processors(2).cpu_accounting(true).build()? };
    /// rt.run(|| {
    ///     let parser = task::Builder::new().label("parse").spawn(|| {
    ///         let begin = Instant::now();
    ///         while begin.elapsed() < Duration::from_millis(5) {}
    ///     })?;
    ///     parser.join().unwrap();
    ///     let metrics = rt.metrics();
    ///     let parse = metrics.labels.iter().find(|l| l.name == "parse").unwrap();
    ///     assert!(parse.cpu_time >= Duration::from_millis(5));
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn cpu_accounting(mut self, yes: bool) -> Builder {
        self.config.cpu_accounting = yes;
        self
    }

    /// Sets whether a deadlock ends the process (default: no; in
    /// [`#[windlass::test]`](macro@crate::test): yes). `WINDLASS_DEBUG=deadlock=1` or `deadlock=0`
    /// has precedence. A deadlock means that all goroutines are parked, and that no timer, operation
    /// or thread is left that could wake one. The runtime then prints Go's message, `fatal error: all
    /// goroutines are asleep - deadlock!`, and a dump on stderr, and ends the process with status
    /// 2.
    ///
    /// There are no false alarms. If the process has any thread that does not belong to this
    /// runtime, no deadlock is reported, because that thread may wake a goroutine later. The thread
    /// that calls [`Runtime::run`] belongs to the runtime. Threads of other runtimes do not
    /// count while those are stuck as well. In a `#[windlass::test]` the main thread does not
    /// count, in which the harness waits.
    ///
    /// For this check an idle runtime wakes up ten times a second.
    pub fn deadlock_detection(mut self, yes: bool) -> Builder {
        self.config.deadlock_detection = yes;
        self
    }

    /// The runtime is that of a `#[test]` function, called by libtest: see `debug::deadlock`.
    #[doc(hidden)]
    pub fn in_test_harness(mut self) -> Builder {
        self.config.in_test_harness = true;
        self
    }

    /// Reports on stderr each goroutine that computes or blocks its thread for longer than `after`
    /// without entering the scheduler. The report has the goroutine's name, where it was spawned
    /// and, with the feature `backtrace`, its stack. Zero means never (the default).
    ///
    /// A goroutine whose P was retaken meanwhile (after 10 ms, if other goroutines wait for the P)
    /// is reported, too. [`blocking`](crate::blocking) sections are not, and time in which the process
    /// was stopped (SIGSTOP, a debugger) does not count. Each stall is reported
    /// once, and there are at most ten reports a second; the next report has the number of those
    /// that were left out.
    ///
    /// To copy the stack, the runtime sends SIGURG to the thread, the signal that Go uses for
    /// preemption. A blocking system call that the kernel does not restart (`nanosleep`,
    /// `epoll_wait`) then returns `EINTR`, which `std` handles. SIGURGs from other sources go to
    /// the handler that the program had installed before the runtime was built.
    pub fn stall_reports(mut self, after: Duration) -> Builder {
        self.config.stall_reports = Some(after);
        self
    }

    /// Uses this description of a machine instead of reading that of the host. Threads are pinned
    /// only if it describes this machine, and changes of its CPUs are not followed.
    ///
    /// # Examples
    ///
    /// A runtime for a machine with two NUMA nodes, on any host:
    ///
    /// ```
    /// use windlass::topology::Topology;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let machine = Topology::synthetic("numa:2 core:2 pu:1")?;
    /// // SAFETY: the program keeps no thread-local borrow across a call that parks.
    /// let rt = unsafe { windlass::Builder::new().topology(machine).build()? };
    /// assert_eq!(rt.topology().nodes().len(), 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn topology(mut self, topology: Topology) -> Builder {
        self.config.topology = Some(topology);
        self
    }

    /// Applies `WINDLASS_DEBUG`, which overrides the program's settings.
    fn read_environment(&mut self) {
        env::warn_of_names();
        let settings = env::settings();
        let config = &mut self.config;
        config.schedtrace = settings.schedtrace.or(config.schedtrace);
        config.scheddetail = settings.scheddetail.unwrap_or(config.scheddetail);
        config.deadlock_detection = settings.deadlock.unwrap_or(config.deadlock_detection);
        config.live_metrics = settings.live.unwrap_or(config.live_metrics);
    }

    /// Builds the runtime: reads what the machine and the kernel offer, assigns the Ps to CPUs, and
    /// creates their pollers. Starts no thread.
    ///
    /// # Safety
    ///
    /// This is the only rule of windlass that the compiler cannot check. A goroutine may continue
    /// on another thread after any call into windlass. Therefore, in every goroutine of this
    /// runtime:
    ///
    /// - No borrow of a thread-local (inside `LocalKey::with`, or an address taken from one) may
    ///   live across a call into windlass that can park.
    /// - No value may live across such a call that is not `Send` and is shared, through a
    ///   thread-local, with other code of the same thread. Examples are a guard of a re-entrant
    ///   lock, an entered `tracing` span, and an `Rc` whose clone is stored in a thread-local.
    /// - No scope may be open across such a call that changed a thread-local and restores it at its
    ///   end, and no handle of the current `std` thread may be kept for the goroutine's own.
    ///
    /// docs/SAFETY.md explains each hazard with an example.
    ///
    /// # Blocking
    ///
    /// Does not wait for events. Reading the machine's description and creating the pollers takes
    /// milliseconds.
    ///
    /// # Errors
    ///
    /// - `InvalidInput` for invalid settings.
    /// - `PermissionDenied`, `Unsupported` or `OutOfMemory` if io_uring is required
    ///   ([`Builder::require_io_uring`]) and cannot be used. The message has the cause and the
    ///   remedy.
    /// - The kernel's error if memory or descriptors are short.
    ///
    /// After an error no thread, mapping or descriptor is left behind.
    ///
    /// # Panics
    ///
    /// If it is called inside a goroutine.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::io::ErrorKind;
    ///
    /// // SAFETY: the program keeps no thread-local borrow across a call that parks.
    /// let rt = unsafe { windlass::Builder::new().processors(2).build()? };
    /// assert_eq!(rt.processors(), 2);
    ///
    /// // SAFETY: as above.
    /// let none = unsafe { windlass::Builder::new().processors(0).build() };
    /// assert_eq!(none.unwrap_err().kind(), ErrorKind::InvalidInput);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub unsafe fn build(mut self) -> io::Result<Runtime> {
        assert!(
            current::m().is_none(),
            "windlass: Builder::build was called inside a goroutine of a windlass runtime"
        );
        self.config.check()?;
        self.read_environment();
        chaos::begin();
        let chosen = self.config.processors.or_else(env::processors);
        let wanted = Wanted {
            topology: self.config.topology.clone(),
            pin: self.config.pin,
            nodes: self.config.nodes.clone(),
            grows: self.config.max_processors.is_none(),
        };
        let place = UsableCpus::new(wanted, chosen.is_none())?;
        let n_ps = chosen.unwrap_or_else(|| place.default_processors(&place.topology));
        // Fail before anything is created.
        place.check(n_ps)?;
        let max = self.config.max_processors;
        let max = max.unwrap_or_else(|| place.max_processors());
        let sched = make_sched(self.config, place, max.max(n_ps))?;
        resize::resize(&sched, n_ps)?;
        children::install();
        observers::install(&sched)?;
        // SAFETY: the function formats into a fixed buffer and writes it; it takes no lock and does not allocate.
        unsafe { signal::install_fault_handler(stack_overflow::report) };
        Ok(Runtime {
            sched,
            running: Mutex::new(()),
        })
    }
}

/// Creates the nodes and up to `max` Ps, none of them in use. The Ps of a node are made on the
/// node's memory, by a thread on that node, because a page goes to the node that touches it first.
fn make_sched(config: Config, place: UsableCpus, max: usize) -> io::Result<Arc<Sched>> {
    let plan = place.structure(max)?;
    let topology = &place.topology;
    let pin = config.pin && *topology.source() == Source::ThisMachine;
    let pollers = match config.is_simulated() {
        // Nothing is ever in flight.
        true => Choice::Epoll,
        false => threads::on_own_thread(|| choose::choose(config.require_io_uring))?,
    };
    let guard = mmap::probe_guard()?;
    let mut nodes = Placed::new();
    let mut ps = Placed::new();
    for (node_idx, planned) in plan.nodes.iter().enumerate() {
        // With one node there is no choice of memory.
        let memory = planned
            .memory_node
            .filter(|_| pin && topology.nodes().len() > 1);
        let node = Node {
            os_id: planned.os_id,
            memory,
            depot: DepotId::of(memory),
            ps: planned.ps[0]..planned.ps[planned.ps.len() - 1] + 1,
            queue: Padded(NodeQueue::new()),
            idle: Padded(IdleSet::new(node_idx, planned.ps.len())),
            stacks: StackPool::new(rank::STACKS, node_idx, memory, guard, plan.nodes.len()),
            remote_peers: remote_peers_of(topology, &plan, node_idx),
            n_live: AtomicUsize::new(0),
        };
        let first = planned.ps[0];
        let make = |&idx: &usize| {
            let planned = &plan.ps[idx];
            let levels = planned.levels.iter().map(|l| steal_level(&plan, l));
            let poller = pollers.poller();
            P::new(planned, idx - first, levels.collect(), memory, poller)
        };
        // Use only a CPU that the process may run on.
        let mut cpus = planned.ps.iter().map(|&idx| plan.ps[idx].cpu);
        let ours = cpus.find(|&cpu| topology.pu(cpu).is_some_and(|pu| pu.allowed));
        run_on_node::on_node(ours, memory, || {
            nodes.push_group(memory, std::iter::once(node))?;
            ps.push_group(memory, planned.ps.iter().map(make))
        })?;
    }
    let membarrier = threads::membarrier_register().is_ok();
    Ok(Sched::new(config, pin, nodes, ps, place, membarrier))
}

/// The state with which a node steals from the others.
fn remote_peers_of(topology: &Topology, plan: &Plan, node_idx: usize) -> RemotePeers {
    let own = plan.nodes[node_idx].index;
    let nodes = plan.nodes.iter();
    let distances: Vec<_> = nodes.map(|n| topology.distance(own, n.index)).collect();
    RemotePeers::new(node_idx, &distances)
}

fn steal_level(plan: &Plan, level: &Level) -> StealLevel {
    StealLevel::new(level.kind, level.distance, level.victims.clone(), |p| {
        plan.ps[p].node
    })
}

/// A runtime: Ps with their pollers, ready to run goroutines. Built by [`Builder::build`].
///
/// Dropping it also drops the goroutines that were queued by [`Handle::spawn`] and never ran.
///
/// # Examples
///
/// ```
/// // SAFETY: the program keeps no thread-local borrow across a call that parks.
/// let rt = unsafe { windlass::Builder::new().processors(2).build()? };
/// let words = ["a", "bb", "ccc"];
/// let n_bytes = rt.run(|| {
///     windlass::scope(|s| {
///         let tasks: Vec<_> = words.iter().map(|word| s.spawn(|| word.len())).collect();
///         tasks.into_iter().map(|task| task.join().unwrap()).sum::<usize>()
///     })
/// });
/// assert_eq!(n_bytes, 6);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Runtime {
    sched: Arc<Sched>,
    /// Held during `run`, so that a second call is refused.
    running: Mutex<()>,
}

impl Runtime {
    /// Runs `f` as the main goroutine and returns its value.
    ///
    /// During the run the calling thread is the first of the runtime's threads and is pinned like
    /// the others. Its affinity is restored afterwards. `f` begins on this thread, and stays on it
    /// if the first thing it does is to call [`lock_thread`](crate::task::lock_thread).
    ///
    /// When `f` returns, the goroutines that still live are cancelled: their operations are
    /// cancelled and awaited, their stacks are unwound, and all threads are joined. A goroutine
    /// that never calls windlass again cannot be cancelled. `run` waits for it, up to
    /// [`Builder::shutdown_timeout`].
    ///
    /// `run` may be called again on the same runtime. Between two runs
    /// [`Handle::spawn`] refuses goroutines.
    ///
    /// # Blocking
    ///
    /// Blocks the calling thread until the run has ended.
    ///
    /// # Panics
    ///
    /// - With `f`'s panic.
    /// - Inside a goroutine.
    /// - If another thread is in `run` of the same runtime.
    /// - In a child that was forked after [`Builder::build`]: build the runtime in the child.
    /// - If the kernel provides no thread for the runtime's monitor, or no memory for the main
    ///   goroutine's stack of 8 MiB. In these cases `f` has not run, and `run` may be called again.
    ///
    /// # Examples
    ///
    /// ```
    /// // SAFETY: the program keeps no thread-local borrow across a call that parks.
    /// let rt = unsafe { windlass::Builder::new().processors(2).build()? };
    /// let sum = rt.run(|| {
    ///     let tasks: Vec<_> = (0..4).map(|n| windlass::spawn(move || n * n)).collect();
    ///     tasks.into_iter().map(|task| task.join().unwrap()).sum::<u32>()
    /// });
    /// assert_eq!(sum, 14);
    /// // Again, with new goroutines.
    /// rt.run(windlass::yield_now);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn run<F, T>(&self, f: F) -> T
    where
        F: FnOnce() -> T + Send,
        T: Send,
    {
        let (mut f, mut outcome) = (Some(f), None);
        self.run_main(
            &mut || {
                let f = f.take().expect("the main goroutine runs once");
                outcome = Some(catch_unwind(AssertUnwindSafe(f)));
            },
            Location::caller(),
        );
        let outcome = outcome.unwrap_or_else(|| Err(Box::new(Cancelled)));
        outcome.unwrap_or_else(|payload| resume_unwind(payload))
    }

    /// The part of [`Runtime::run`] that is compiled once, and not for each closure.
    #[track_caller]
    fn run_main(&self, main: &mut (dyn FnMut() + Send), site: &'static Location<'static>) {
        assert!(
            current::m().is_none(),
            "windlass: Runtime::run was called inside a goroutine of a windlass runtime"
        );
        expect_its_process(&self.sched);
        let Ok(running) = self.running.try_lock().map_err(|e| match e {
            std::sync::TryLockError::Poisoned(_) => unreachable!("a run's panic leaves no guard"),
            std::sync::TryLockError::WouldBlock => {}
        }) else {
            panic!("windlass: Runtime::run was called while this runtime runs already");
        };
        let started = run_to_end(&self.sched, main, site);
        // A panic that unwinds through the guard would poison the lock and prevent the next run.
        drop(running);
        if let Err(why) = started {
            panic!("windlass: {why}");
        }
    }

    /// Returns a handle, with which any thread can spawn goroutines and read the counters.
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

    /// Returns on which NUMA nodes the runtime's memory lies. It queries the kernel about a sample
    /// of the pages of Ps, goroutines, stacks, rings and buffers with `move_pages(2)`, which moves
    /// no page here. On a machine with one node all pages are at home.
    ///
    /// # Blocking
    ///
    /// Does not park. A page costs about a microsecond, and at most some thousands of pages are
    /// queried on each node. The runtime continues meanwhile.
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

    /// Returns all goroutines, with what they wait for, for how long, and their stacks.
    ///
    /// The runtime is not stopped. Stacks are copied one after the other, and a parked goroutine
    /// cannot resume for the microseconds in which its stack is copied. A goroutine that runs, or
    /// is in a queue, is listed without its stack. Stacks need the feature `backtrace`, and names
    /// need debug information (`debug = "line-tables-only"` is enough).
    ///
    /// # Blocking
    ///
    /// Does not park. The first dump reads names from the program's file, which may take a second:
    /// in a goroutine, take a dump inside [`blocking`](crate::blocking).
    ///
    /// # Examples
    ///
    /// ```
    /// # // SAFETY: nothing here keeps a thread-local across a call that parks.
    /// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
    /// rt.run(|| {
    ///     let worker = windlass::task::Builder::new()
    ///         .name("worker")
    ///         .spawn(windlass::task::park)
    ///         .unwrap();
    ///     let dump = windlass::blocking(|| rt.dump());
    ///     assert!(dump.goroutines.iter().any(|g| g.name.as_deref() == Some("worker")));
    ///     worker.task().unpark();
    /// });
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn dump(&self) -> Dump {
        Dump::take(&self.sched)
    }

    /// Takes an execution trace for `duration` and writes it as Chrome trace events, which
    /// ui.perfetto.dev opens. See [`debug::Trace`](crate::debug::Trace).
    ///
    /// # Blocking
    ///
    /// Parks the goroutine, or blocks the plain thread, for `duration`. Then it blocks as `writer`
    /// does.
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

    /// Begins an execution trace, which ends when the returned value is dropped.
    ///
    /// # Blocking
    ///
    /// Never.
    pub fn start_trace(&self) -> Trace {
        Trace::start(&self.sched)
    }

    /// Writes the events in the flight recorder ([`Builder::flight_recorder`]), in the format of
    /// [`trace`](Self::trace). Recording continues.
    ///
    /// # Blocking
    ///
    /// As `writer` does.
    ///
    /// # Errors
    ///
    /// - The writer's error.
    /// - `Unsupported` if the runtime was built without a flight recorder.
    ///
    /// # Examples
    ///
    /// ```
    /// // SAFETY: the program keeps no thread-local borrow across a call that parks.
    /// let rt = unsafe {
    ///     windlass::Builder::new().processors(2).flight_recorder(64 * 1024).build()?
    /// };
    /// rt.run(|| windlass::spawn(|| ()).join().unwrap());
    /// // When something went wrong:
    /// let mut record = Vec::new();
    /// rt.write_flight_record(&mut record)?;
    /// assert!(record.starts_with(b"{"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
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

    /// The CPU, the node and the steal order of each P, for the number of Ps in use and the CPUs
    /// that the process may use now.
    ///
    /// # Examples
    ///
    /// ```
    /// # // SAFETY: nothing here keeps a thread-local across a call that parks.
    /// let rt = unsafe { windlass::Builder::new().processors(2).build()? };
    /// for p in rt.plan().ps {
    ///     println!("P{} runs on CPU {}", p.index, p.cpu);
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn plan(&self) -> Plan {
        plan_of(&self.sched)
    }

    /// The number of Ps in use.
    #[must_use]
    pub fn processors(&self) -> usize {
        self.sched.n_procs()
    }

    /// Changes the number of Ps, also while goroutines run. The world is stopped for a moment. The
    /// remaining Ps take over the goroutines, timers and operations of the Ps that are removed.
    ///
    /// From then on the number of Ps no longer follows the CPU quota or the CPUs that the process
    /// may use. The placement of the Ps still does.
    ///
    /// There may be more Ps than [`Builder::max_threads`] and locked threads leave threads for: those that are
    /// left serve all Ps, and [`lock_thread`](crate::task::lock_thread) locks no more.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine, or blocks the plain thread, until the change is done.
    ///
    /// # Errors
    ///
    /// After an error nothing has changed.
    ///
    /// - `InvalidInput` for 0, or for more than [`Builder::max_processors`].
    /// - `TimedOut` if the world does not stop in eight attempts. An attempt takes a second on a
    ///   machine that gives the runtime's threads no CPU. It takes 10 ms where `membarrier(2)` is
    ///   denied and a goroutine computes all the while without a call into windlass. Otherwise a
    ///   goroutine that computes does not delay the stop: it continues, and waits for a P at its
    ///   next call.
    /// - The kernel's error if it cannot create a ring for a new P.
    ///
    /// # Panics
    ///
    /// In a child that was forked after [`Builder::build`].
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
    #[track_caller]
    pub fn set_processors(&self, n: usize) -> io::Result<()> {
        expect_its_process(&self.sched);
        if n == 0 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "set_processors(0): a runtime needs at least one P",
            ));
        }
        let change = move |sched: &Sched, stopped: io::Result<()>| -> io::Result<()> {
            stopped?;
            resize::resize(sched, n)?;
            let is_default = &sched.place.is_default;
            is_default.store(false, Ordering::Relaxed);
            Ok(())
        };
        let mut n_tries = 0;
        loop {
            {
                // Outside a run no thread holds a P.
                let _shape = self.sched.world.shape();
                if matches!(self.sched.phase(), Phase::Ready | Phase::Ended) {
                    change(&self.sched, Ok(()))?;
                    resize::end_all_leaving(&self.sched);
                    return Ok(());
                }
            }
            let done = crate::task::offload(|| world::in_stopped_world(&self.sched, change));
            match done {
                Some(Err(e)) if e.kind() == io::ErrorKind::TimedOut && n_tries < STOP_TRIES => {
                    n_tries += 1;
                }
                Some(result) => return result,
                // The run is about to end, or is just beginning.
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
        if !sched.is_in_its_process() {
            // The child has no mappings of the rings; what is at their addresses now is not theirs.
            std::mem::forget(Arc::clone(sched));
            return;
        }
        // No run is under way, so no M exists. From here on handles refuse to spawn.
        sched.set_phase(Phase::Ended);
        while sched.n_entering.load(Ordering::SeqCst) != 0 {
            crate::loom::spin_loop();
        }
        for node in &sched.nodes {
            while let Some(g) = node.queue.pop() {
                spawn::abandon(g);
                // `Handle::spawn` queued it before the first run. It counts as ended now.
                let n_foreign = &sched.n_foreign;
                n_foreign.fetch_sub(1, Ordering::SeqCst);
            }
        }
        for p in &sched.ps {
            p.local.caches.end();
            p.poller.close();
        }
        for node in &sched.nodes {
            // SAFETY: no goroutine has a stack: all have ended or never ran; the caches are empty.
            unsafe { node.stacks.unmap() };
        }
    }
}

/// # Panics
///
/// In a forked child.
#[track_caller]
fn expect_its_process(sched: &Sched) {
    assert!(
        sched.is_in_its_process(),
        "windlass: the runtime was built before this process was forked, and a child has neither its \
         threads nor its rings: build it after the fork"
    );
}

debug_fields!(Runtime, |this| name: this.sched.config.name, processors: this.processors(), ..);

/// Runs the main goroutine on M0 and returns when the last thread is joined.
///
/// # Errors
///
/// The reason why the run could not begin. Then nothing has changed.
fn run_to_end(
    sched: &Arc<Sched>,
    f: &mut (dyn FnMut() + Send),
    site: &'static Location<'static>,
) -> Result<(), String> {
    let first_in_use = || sched.ps_in_use().next().expect("at least one P is in use");
    // Take the stack first: only the main goroutine can end the run, so without a stack for it the
    // run must not begin.
    let pool = &sched.node_of(first_in_use()).stacks;
    let stack = match pool.take(main_stack_bytes(sched)) {
        Ok(stack) => stack,
        Err(e) => return Err(format!("cannot start the main goroutine: {e}")),
    };
    let main = {
        let sched: &Sched = sched;
        move || {
            f();
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
    // The previous run's goroutines are counted as ended.
    let phase_before = {
        let _shape = sched.world.shape();
        let before = sched.phase();
        sched.set_phase(Phase::Running);
        before
    };
    // The first goroutine runs before its P reads the clock; its waits are stamped with this time.
    let now_ns = clock::now_ns();
    sched
        .ps
        .iter()
        .for_each(|p| p.local.pace.set_now_ns(now_ns));
    // Count M0 before sysmon runs, which starts threads up to the limit.
    let m0 = threads_of_ms::list_m(sched, sched.next_m.fetch_add(1, Ordering::Relaxed));
    // Take the first P before sysmon runs, which hands off all the others. Not earlier: until the
    // phase is Running, another thread may change which Ps are in use.
    let first = first_in_use();
    let owner = std::ptr::from_ref(m0).cast_mut();
    first.owner.store(owner, Ordering::Release);
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
            world::refuse_jobs(sched);
            pool.give([stack]);
            drop(borrowed);
            return Err(format!("cannot start the runtime's monitor thread: {e}"));
        }
    };
    spare::take_p(m0, first);
    spawn_main(sched, m0, main, stack, site);
    run::m_loop(m0);
    if m0.retired.get() {
        threads_of_ms::make_room(m0);
    }
    // Else M0 leaves its loop when sysmon has found that nothing lives.
    join(sysmon);
    let threads = std::mem::take(&mut sched.ms.lock().threads);
    threads.into_iter().for_each(join);
    for p in &sched.ps {
        p.poller.drain();
    }
    sched.offload.close();
    wake::wait_for_outside_wakers();
    end_ms(sched);
    run::tell_of_failed_starts(sched);
    sched.set_phase(Phase::Ended);
    drop(borrowed);
    Ok(())
}

/// A runtime for simulated runs: one P, no rings, on a machine with one CPU.
#[cfg(feature = "sim")]
pub(crate) fn build_simulated(stack_bytes: usize) -> io::Result<Runtime> {
    static MACHINE: LazyLock<Topology> =
        LazyLock::new(|| Topology::synthetic("core:1 pu:1").expect("the description is valid"));
    let mut builder = Builder::new()
        .name("simulation")
        .topology(MACHINE.clone())
        .processors(1)
        .max_processors(1)
        .pin(false)
        .stack_size(stack_bytes);
    builder.config.is_simulated = true;
    // SAFETY: the contract is about what happens when a goroutine continues on another thread. A
    // simulated runtime has one P and one M, which is the thread that calls `run_simulated`, and
    // no sysmon, which alone starts threads and moves Ps. `offload` and `lock_thread`, which would
    // need them, are refused. So all goroutines of a run stay on one thread from their first
    // instruction to their last.
    unsafe { builder.build() }
}

/// Runs `f` as the main goroutine of `sim`, on a runtime of [`build_simulated`], until no goroutine
/// is left.
///
/// # Errors
///
/// If there is no stack for the main goroutine.
#[cfg(feature = "sim")]
pub(crate) fn run_simulated(
    runtime: &Runtime,
    sim: &Simulation,
    f: impl FnOnce(),
    site: &'static Location<'static>,
) -> Result<(), String> {
    assert!(
        current::m().is_none(),
        "windlass: a simulation was started inside a goroutine"
    );
    let _running = runtime
        .running
        .try_lock()
        .expect("a simulation has its runtime to itself");
    let sched = &runtime.sched;
    let p = sched.ps_in_use().next().expect("one P is in use");
    let stack = sched.node_of(p).stacks.take(main_stack_bytes(sched));
    let stack = stack.map_err(|e| format!("cannot start the main goroutine: {e}"))?;
    let main = || {
        f();
        sim.bubble.end();
        sched.set_phase(Phase::Cancelling);
    };
    let alt_stack = AltStack::install().ok();
    let entered = sim.bubble.enter();
    sched.met_outside.store(false, Ordering::Relaxed);
    sched.set_phase(Phase::Running);
    p.begin_simulation(clock::now_ns());
    let m0 = threads_of_ms::list_m(sched, 1);
    m0.simulation.set(sim);
    if sim.recording.is_some() {
        sched.start_tracing();
    }
    spare::take_p(m0, p);
    spawn_main(sched, m0, main, stack, site);
    run::m_loop(m0);
    if sim.recording.is_some() {
        sched.stop_tracing();
    }
    world::refuse_jobs(sched);
    wake::wait_for_outside_wakers();
    end_ms(sched);
    sched.set_phase(Phase::Ended);
    drop(entered);
    drop(alt_stack);
    Ok(())
}

fn join(thread: crate::loom::thread::JoinHandle<()>) {
    // The runtime's threads abort on a panic, so joining cannot fail.
    let _ = thread.join();
}

/// Removes the Ms of a run that has ended.
fn end_ms(sched: &Sched) {
    let mut ms = sched.ms.lock();
    ms.spare.clear();
    ms.retired.clear();
    ms.all.clear();
    sched.n_ms.store(0, Ordering::Relaxed);
    sched.n_retired.store(0, Ordering::Relaxed);
    for p in &sched.ps {
        // A locked thread may have ended inside a blocking section.
        p.syscall.store(0, Ordering::Relaxed);
        p.owner.store(std::ptr::null_mut(), Ordering::Release);
    }
    resize::end_all_leaving(sched);
}

/// The stack size of the main goroutine: 8 MiB, as large as that of a program's main thread, less
/// what keeps it among the stacks that are pooled.
fn main_stack_bytes(sched: &Sched) -> usize {
    stack::largest_pooled().max(sched.config.stack_bytes)
}

/// Makes the main goroutine the first that M0 runs. No other thread can start it.
fn spawn_main<F: FnOnce()>(
    sched: &Sched,
    m0: &M,
    f: F,
    stack: Stack,
    site: &'static Location<'static>,
) {
    let options = Options {
        details: Some(Box::new(Details::new(Some("main".into()), None))),
        stack_bytes: Some(main_stack_bytes(sched)),
    };
    let g = spawn::make_here(m0, f, options, site, 1);
    spawn::begin_on(m0, g, stack);
    g.status.set_runnable();
    m0.handed_work.post(g);
}

/// State of the calling thread that `run` changes. Restored when this is dropped.
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

fn plan_of(sched: &Sched) -> Plan {
    sched
        .place
        .plan(sched.n_procs())
        .expect("it was planned before")
}

/// A handle to a runtime, for use by any thread. Made by [`Runtime::handle`].
///
/// # Examples
///
/// ```
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
/// let handle = rt.handle();
/// rt.run(|| {
///     let thread = std::thread::spawn(move || handle.spawn(|| 6 * 7).join().unwrap());
///     assert_eq!(windlass::blocking(|| thread.join().unwrap()), 42);
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct Handle {
    sched: Arc<Sched>,
}

impl Handle {
    /// Spawns a goroutine from any thread. Before the first run the goroutine is queued. After a
    /// run has ended it is refused: the closure is dropped, and joining returns
    /// [`Cancelled`](crate::task::Cancelled).
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Panics
    ///
    /// In a child that was forked after [`Builder::build`].
    ///
    /// # Examples
    ///
    /// ```
    /// # // SAFETY: nothing here keeps a thread-local across a call that parks.
    /// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
    /// let early = rt.handle().spawn(|| 7);
    /// assert_eq!(rt.run(|| early.join().unwrap()), 7);
    /// // The run has ended.
    /// assert!(rt.handle().spawn(|| 7).join().is_err());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn spawn<F, T>(&self, f: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        self.spawn_at(f, Location::caller())
    }

    /// Spawns a goroutine that runs in a context of its own, as
    /// [`task::spawn_in`](crate::task::spawn_in) does, from any thread.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Panics
    ///
    /// As [`spawn`](Handle::spawn).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::context::Context;
    ///
    /// # // SAFETY: nothing here keeps a thread-local across a call that parks.
    /// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
    /// let sleeper = rt.handle().spawn_in(&Context::background(), || {
    ///     windlass::sleep(Duration::from_secs(3600));
    ///     "cancelled"
    /// });
    /// assert!(sleeper.cancel()); // before it starts: its sleep returns at once
    /// assert_eq!(rt.run(|| sleeper.join().unwrap()), "cancelled");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn spawn_in<F, T>(&self, ctx: &Context, f: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let (f, own) = task::in_own_context(ctx, f);
        self.spawn_at(f, Location::caller()).with_own(own)
    }

    #[track_caller]
    fn spawn_at<F: FnOnce() -> T, T>(
        &self,
        f: F,
        site: &'static Location<'static>,
    ) -> JoinHandle<T> {
        expect_its_process(&self.sched);
        let task = spawn::spawn_foreign(&self.sched, None, f, Options::default(), site);
        JoinHandle::new(task, header::take_fn::<F, T>())
    }

    /// Returns a handle to the runtime of the calling goroutine. It lets code that the goroutine
    /// starts on other threads spawn goroutines.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Panics
    ///
    /// If the caller is not a goroutine; see [`try_current`](Handle::try_current).
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::Handle;
    ///
    /// # // SAFETY: nothing here keeps a thread-local across a call that parks.
    /// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
    /// rt.run(|| {
    ///     let handle = Handle::current();
    ///     let answer = windlass::offload(move || handle.spawn(|| 6 * 7).join().unwrap());
    ///     assert_eq!(answer, 42);
    /// });
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    #[track_caller]
    pub fn current() -> Handle {
        Handle::try_current().expect(
            "windlass: Handle::current was called on a thread outside any windlass runtime: \
             pass it a handle, or use Handle::try_current",
        )
    }

    /// As [`current`](Handle::current). `None` if the caller is not a goroutine.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Examples
    ///
    /// ```
    /// assert!(windlass::Handle::try_current().is_none());
    /// ```
    #[must_use]
    pub fn try_current() -> Option<Handle> {
        spawn::current_sched().map(|sched| Handle { sched })
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

    /// The name of the runtime: [`Builder::name`].
    #[must_use]
    pub fn name(&self) -> &str {
        &self.sched.config.name
    }

    /// The CPU, the node and the steal order of each P: see [`Runtime::plan`].
    #[must_use]
    pub fn plan(&self) -> Plan {
        plan_of(&self.sched)
    }

    /// Returns all goroutines, without their stacks, in the order of their numbers. Cheaper than
    /// [`Handle::dump`]: some hundred nanoseconds for each goroutine, and none is held still.
    ///
    /// # Blocking
    ///
    /// Does not park.
    ///
    /// # Examples
    ///
    /// ```
    /// # // SAFETY: nothing here keeps a thread-local across a call that parks.
    /// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
    /// let handle = rt.handle();
    /// let n_waiting = rt.run(|| {
    ///     let all = handle.goroutines();
    ///     all.iter().filter(|g| g.wait_reason.is_some()).count()
    /// });
    /// assert_eq!(n_waiting, 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn goroutines(&self) -> Vec<Goroutine> {
        goroutines::all(&self.sched)
    }

    /// Takes a CPU profile for `duration`: a hundred times a second, each thread of the runtime that
    /// uses a CPU is asked which goroutine runs there, and where. Needs the feature `backtrace`.
    ///
    /// The runtime sends SIGURG to such a thread, as for
    /// [`stall_reports`](Builder::stall_reports), whose documentation says what that means for blocking
    /// system calls. A sample costs the thread some microseconds.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine, or blocks the plain thread, for `duration` and the time to look names up.
    ///
    /// # Errors
    ///
    /// - `InvalidInput` for a duration of zero, or above an hour.
    /// - `Unsupported` without the feature `backtrace`.
    /// - `ResourceBusy` while another profile is taken in this process.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::task;
    ///
    /// # // SAFETY: nothing here keeps a thread-local across a call that parks.
    /// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
    /// let handle = rt.handle();
    /// rt.run(|| match handle.profile(Duration::from_millis(20)) {
    ///     Ok(profile) => println!("{} places used CPU time", profile.samples.len()),
    ///     Err(e) => println!("{e}"), // without the feature
    /// });
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn profile(&self, duration: Duration) -> io::Result<Profile> {
        self.profile_while(duration, || true)
    }

    /// Takes a profile as [`profile`](Handle::profile) does, and ends it early when `goes_on` returns
    /// `false`. It is called a hundred times a second, on the thread that takes the profile.
    ///
    /// # Blocking
    ///
    /// As [`profile`](Handle::profile), until the profile ends.
    ///
    /// # Errors
    ///
    /// As [`profile`](Handle::profile).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// # // SAFETY: nothing here keeps a thread-local across a call that parks.
    /// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
    /// let handle = rt.handle();
    /// let mut n_looks = 0;
    /// let profile = handle.profile_while(Duration::from_secs(60), || {
    ///     n_looks += 1;
    ///     n_looks < 3
    /// });
    /// if let Ok(profile) = profile {
    ///     assert!(profile.duration < Duration::from_secs(60)); // with the feature
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn profile_while(
        &self,
        duration: Duration,
        goes_on: impl FnMut() -> bool + Send,
    ) -> io::Result<Profile> {
        crate::task::offload(|| profile::take(&self.sched, duration, goes_on))
    }

    /// Takes a wait profile, for `duration` or until `goes_on` returns `false`: a hundred times a second it is looked
    /// for goroutines that wait for a lock, a channel, a semaphore, the end of a goroutine or the like. Waits for the
    /// kernel, for time and for `unpark` are left out. Needs the feature `backtrace`.
    ///
    /// Goroutines pay nothing for it before and after. While it is taken, one that is looked at cannot resume for some
    /// microseconds, as in a [`dump`](Handle::dump).
    ///
    /// # Blocking
    ///
    /// Parks the goroutine, or blocks the plain thread, until the profile ends, and for the time to look names up.
    ///
    /// # Errors
    ///
    /// - `InvalidInput` for a duration of zero, or above an hour.
    /// - `Unsupported` without the feature `backtrace`.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// # // SAFETY: nothing here keeps a thread-local across a call that parks.
    /// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
    /// let handle = rt.handle();
    /// rt.run(|| match handle.profile_waits(Duration::from_millis(20), || true) {
    ///     Ok(profile) => {
    ///         for sample in &profile.samples {
    ///             println!("{:?} of {}", sample.waited, sample.reason);
    ///         }
    ///     }
    ///     Err(e) => println!("{e}"), // without the feature
    /// });
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn profile_waits(
        &self,
        duration: Duration,
        goes_on: impl FnMut() -> bool + Send,
    ) -> io::Result<WaitProfile> {
        crate::task::offload(|| waits::take(&self.sched, duration, goes_on))
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

    /// Writes the events in the flight recorder: see [`Runtime::write_flight_record`].
    ///
    /// # Blocking
    ///
    /// As `writer` does.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn write_flight_record(&self, writer: impl io::Write) -> io::Result<()> {
        if !self.sched.config.flight_recorder {
            return Err(trace::no_recorder());
        }
        trace::write(&self.sched, 0, writer)
    }

    /// Returns all goroutines: see [`Runtime::dump`].
    ///
    /// # Blocking
    ///
    /// As there.
    #[must_use]
    pub fn dump(&self) -> Dump {
        Dump::take(&self.sched)
    }

    /// Finds leaked goroutines: those that wait, without a deadline and outside of a context, for what cannot happen any
    /// more.
    ///
    /// It proves that a goroutine is leaked which parks, or polls a future, while nobody has a handle or a waker to wake it, or
    /// which joins one of these, or is in a ring of joins. With the feature `leaks` it also finds goroutines that wait for a
    /// channel, a [`Mutex`](crate::sync::Mutex), a [`Semaphore`](crate::sync::Semaphore) or a
    /// [`WaitGroup`](crate::sync::WaitGroup) all of whose senders, receivers, guards, permits or handles are held by
    /// themselves or by other leaked goroutines, or were forgotten. This is a
    /// [suspicion](crate::debug::Verdict::Suspected). docs/OBSERVABILITY.md says what is found, and what is not.
    ///
    /// The runtime is not stopped; a parked goroutine cannot resume for the microsecond in which it is looked at. In a
    /// simulation it works as on a runtime.
    ///
    /// # Blocking
    ///
    /// Does not park. With the feature `leaks` the memory of the process is read up to twice, which takes some tenths of a
    /// second for each GiB: in a goroutine, call it inside [`blocking`](crate::blocking).
    ///
    /// # Errors
    ///
    /// Those of `/proc/self/maps` and `/proc/self/mem`, with the feature `leaks`, if the process may not read them.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::debug::Verdict;
    ///
    /// # // SAFETY: nothing here keeps a thread-local across a call that parks.
    /// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
    /// let handle = rt.handle();
    /// rt.run(|| {
    ///     // Nobody can unpark it: the handle is dropped.
    ///     drop(windlass::task::Builder::new().name("lost").spawn(windlass::task::park)?);
    ///     let mut found = handle.leaks()?;
    ///     while found.leaks.is_empty() {
    ///         windlass::yield_now(); // it has not parked yet
    ///         found = windlass::blocking(|| handle.leaks())?;
    ///     }
    ///     assert_eq!(found.leaks[0].goroutine.name.as_deref(), Some("lost"));
    ///     assert_eq!(found.leaks[0].verdict, Verdict::Proved);
    ///     println!("{found}");
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[inline(never)]
    pub fn leaks(&self) -> io::Result<Leaks> {
        leaks::find(&self.sched, windlass_ground::cpu::stack_pointer())
    }
}

debug_fields!(Handle, |this| name: this.sched.config.name, ..);

#[cfg(all(test, not(loom)))]
#[path = "runtime_denied_tests.rs"]
mod denied_tests;

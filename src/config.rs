//! What the builder's words mean, as plain data, checked once.

use std::io;
use std::time::Duration;

use windlass_topology::Topology;

use crate::g::stack::{MAX_STACK_BYTES, MIN_STACK_BYTES};

/// Default virtual size of a goroutine's stack. Untouched pages cost nothing.
pub(crate) const DEFAULT_STACK_BYTES: usize = 256 * 1024;

/// Go's limit on threads.
pub(crate) const DEFAULT_MAX_THREADS: usize = 10_000;

/// The log of a P, for an execution trace: 170,000 events. Memory that is not written is
/// not used.
pub(crate) const DEFAULT_TRACE_BYTES: usize = 4 * 1024 * 1024;

const MAX_TRACE_BYTES: usize = 1 << 30;

/// How a runtime spreads work over NUMA nodes. On a machine with one node all of them do
/// the same, but that [`Flat`](NumaPolicy::Flat) also forgets the caches.
///
/// docs/NUMA.md tells what they do and why; `cargo bench --bench numa` compares them.
///
/// # Examples
///
/// ```
/// use windlass::{Builder, NumaPolicy};
///
/// // SAFETY: the program keeps no thread-local borrow across a call that parks.
/// let rt = unsafe { Builder::new().processors(2).numa(NumaPolicy::Flat).build()? };
/// assert_eq!(rt.run(|| 1 + 1), 2);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum NumaPolicy {
    /// Nearest first, a gate before other nodes, and goroutines wake at home.
    #[default]
    Levels,
    /// All Ps are alike, as in Go: victims at random, whatever they share with the thief.
    /// To compare with.
    Flat,
    /// Of [`Levels`](NumaPolicy::Levels) only the order of victims. To compare with.
    OrderOnly,
    /// Of [`Levels`](NumaPolicy::Levels) the order and the gate. To compare with.
    OrderAndGate,
    /// As [`OrderAndGate`](NumaPolicy::OrderAndGate), and a goroutine gets its stack when it
    /// first runs, on the node where that is; under the policies before, when it is spawned, on
    /// the node of the spawner. To compare with: what [`Levels`](NumaPolicy::Levels) adds is that
    /// goroutines wake at home.
    LateStacks,
}

impl NumaPolicy {
    pub(crate) fn is_flat(self) -> bool {
        self == NumaPolicy::Flat
    }

    /// Whether there is a gate before other nodes.
    pub(crate) fn has_gate(self) -> bool {
        self == NumaPolicy::OrderAndGate || self.binds_stacks_late()
    }

    /// Whether a goroutine gets its stack when it first runs, and not when it is spawned.
    pub(crate) fn binds_stacks_late(self) -> bool {
        matches!(self, NumaPolicy::Levels | NumaPolicy::LateStacks)
    }

    /// Whether goroutines go home when they are woken elsewhere.
    pub(crate) fn wakes_at_home(self) -> bool {
        self == NumaPolicy::Levels
    }
}

/// Everything a runtime is built from.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) processors: Option<usize>,
    pub(crate) max_processors: Option<usize>,
    pub(crate) nodes: Option<Vec<u32>>,
    pub(crate) numa: NumaPolicy,
    pub(crate) pin: bool,
    pub(crate) stack_bytes: usize,
    pub(crate) max_threads: usize,
    pub(crate) require_io_uring: bool,
    pub(crate) name: String,
    pub(crate) topology: Option<Topology>,
    /// How often to print a line about the scheduler, and whether with all details.
    pub(crate) schedtrace: Option<Duration>,
    pub(crate) scheddetail: bool,
    pub(crate) deadlock_detection: bool,
    /// After what time a goroutine that keeps its P is reported.
    pub(crate) stall_reports: Option<Duration>,
    pub(crate) dump_on_sigquit: bool,
    /// Whether a line names the goroutine that panics.
    pub(crate) name_panics: bool,
    /// How long goroutines have to end when the main goroutine has.
    pub(crate) shutdown_timeout: Option<Duration>,
    pub(crate) live_metrics: bool,
    /// How large the log of a P is, and whether it is written all the time.
    pub(crate) trace_bytes: usize,
    pub(crate) flight_recorder: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            processors: None,
            max_processors: None,
            nodes: None,
            numa: NumaPolicy::default(),
            pin: true,
            stack_bytes: DEFAULT_STACK_BYTES,
            max_threads: DEFAULT_MAX_THREADS,
            require_io_uring: false,
            name: "windlass".to_owned(),
            topology: None,
            schedtrace: None,
            scheddetail: false,
            deadlock_detection: false,
            stall_reports: None,
            dump_on_sigquit: false,
            name_panics: true,
            shutdown_timeout: None,
            live_metrics: false,
            trace_bytes: DEFAULT_TRACE_BYTES,
            flight_recorder: false,
        }
    }
}

impl Config {
    /// Says what is wrong with the numbers, before anything is made of them.
    pub(crate) fn check(&self) -> io::Result<()> {
        if self.processors == Some(0) {
            return Err(invalid("processors(0): a runtime needs at least one P"));
        }
        if self
            .processors
            .max(self.max_processors)
            .is_some_and(|n| n > MAX_PROCESSORS)
        {
            return Err(invalid(&format!(
                "processors: at most {MAX_PROCESSORS} Ps are supported"
            )));
        }
        if !(MIN_STACK_BYTES..=MAX_STACK_BYTES).contains(&self.stack_bytes) {
            return Err(invalid(&format!(
                "stack_size({}): choose between {MIN_STACK_BYTES} and {MAX_STACK_BYTES} bytes",
                self.stack_bytes
            )));
        }
        if self.max_threads == 0 {
            return Err(invalid(
                "max_threads(0): a runtime needs at least one thread",
            ));
        }
        if !(1..=MAX_TRACE_BYTES).contains(&self.trace_bytes) {
            return Err(invalid(&format!(
                "flight_recorder({}): choose between 1 and {MAX_TRACE_BYTES} bytes",
                self.trace_bytes
            )));
        }
        if self.name.contains('\0') {
            return Err(invalid("name: a thread name cannot hold a zero byte"));
        }
        Ok(())
    }
}

/// More Ps than any machine has CPUs; a bound for the tables sized by it.
pub(crate) const MAX_PROCESSORS: usize = 4096;

/// How long a chain of hand-overs through runnext may keep a P to itself.
pub(crate) const RUNNEXT_SLICE_NS: u64 = 200_000;

/// A queued ring entry is flushed at the latest this long after it was queued.
pub(crate) const FLUSH_AFTER_NS: u64 = 20_000;

/// Queued ring entries are flushed when this many wait.
pub(crate) const FLUSH_AT: u32 = 32;

/// Operations in flight from which a P sends and receives in batches, through its ring.
pub(crate) const BATCHES_FROM: u32 = 8;

/// A goroutine that computes or blocks this long loses its P.
pub(crate) const HOG_AFTER: Duration = Duration::from_millis(10);

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

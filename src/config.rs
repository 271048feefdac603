//! The settings of a runtime, as plain data, and the check of their values.

use std::io;
use std::time::Duration;

use windlass_topology::Topology;

/// The smallest stack a goroutine may ask for: room for a signal frame, a panic
/// and its message.
pub(crate) const MIN_STACK_BYTES: usize = 16 * 1024;

/// The largest stack a goroutine may ask for.
pub(crate) const MAX_STACK_BYTES: usize = 1 << 32;

/// Default virtual size of a goroutine's stack. Untouched pages cost nothing.
pub(crate) const DEFAULT_STACK_BYTES: usize = 256 * 1024;

/// Go's limit on threads.
pub(crate) const DEFAULT_MAX_THREADS: usize = 10_000;

/// The default size of a P's event log: 170,000 events. Pages that are never written use no memory.
pub(crate) const DEFAULT_TRACE_BYTES: usize = 4 * 1024 * 1024;

/// The shortest time for [`Builder::page_out_after`](crate::Builder::page_out_after).
const LEAST_PAGE_OUT: Duration = Duration::from_secs(1);

const MAX_TRACE_BYTES: usize = 1 << 30;

/// How a runtime spreads work over NUMA nodes. Set with [`Builder::numa`](crate::Builder::numa).
///
/// On a machine with one node all policies do the same, except that [`Flat`](NumaPolicy::Flat) also
/// ignores which caches Ps share. docs/NUMA.md explains the mechanisms; `cargo bench --bench numa`
/// measures what each of them is worth.
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
    /// A P steals from the nearest victims first, and from another node only if that node has a
    /// surplus. A goroutine gets its stack when it first runs, and is woken on its home node.
    #[default]
    Levels,
    /// All Ps are equal, as in Go: victims are chosen at random, and a goroutine is woken where its
    /// waker runs.
    ///
    /// Choose it if other nodes' memory is hardly slower (the nodes of one socket, as with sub-NUMA
    /// clustering), and the program's load is so uneven that the conditions of
    /// [`Levels`](NumaPolicy::Levels) leave CPUs idle: the metrics count those
    /// ([`PMetrics::gate_denials`](crate::metrics::PMetrics::gate_denials)). Measure both.
    Flat,
}

impl NumaPolicy {
    pub(crate) fn is_flat(self) -> bool {
        self == NumaPolicy::Flat
    }
}

/// All settings of a runtime.
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
    /// The interval of lines about the scheduler, and whether they have all details.
    pub(crate) schedtrace: Option<Duration>,
    pub(crate) scheddetail: bool,
    pub(crate) deadlock_detection: bool,
    /// Whether libtest calls the program's code, and the program has no main function of its own.
    pub(crate) in_test_harness: bool,
    /// The time after which a goroutine that holds its P is reported.
    pub(crate) stall_reports: Option<Duration>,
    pub(crate) dump_on_sigquit: bool,
    /// Whether a line on stderr names the goroutine that panics.
    pub(crate) name_panics: bool,
    /// The time that goroutines have to end after the main goroutine has ended.
    pub(crate) shutdown_timeout: Option<Duration>,
    pub(crate) live_metrics: bool,
    /// The size of a P's event log, and whether events are recorded all the time.
    pub(crate) trace_bytes: usize,
    pub(crate) flight_recorder: bool,
    /// The time after which the stack of a goroutine that waits is given to swap.
    pub(crate) page_out_after: Option<Duration>,
    /// Whether the CPU time of goroutines is measured.
    pub(crate) cpu_accounting: bool,
    /// Whether its runs are simulated: one thread, a virtual clock, no I/O.
    #[cfg(feature = "sim")]
    pub(crate) is_simulated: bool,
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
            in_test_harness: false,
            stall_reports: None,
            dump_on_sigquit: false,
            name_panics: true,
            shutdown_timeout: None,
            live_metrics: false,
            trace_bytes: DEFAULT_TRACE_BYTES,
            flight_recorder: false,
            page_out_after: None,
            cpu_accounting: false,
            #[cfg(feature = "sim")]
            is_simulated: false,
        }
    }
}

impl Config {
    /// Whether its runs are simulated. Without the feature `sim` this is known at compile time.
    #[inline(always)]
    pub(crate) fn is_simulated(&self) -> bool {
        #[cfg(feature = "sim")]
        return self.is_simulated;
        #[cfg(not(feature = "sim"))]
        false
    }

    /// Checks the values, before anything is built from them.
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
        if self.page_out_after.is_some_and(|d| d < LEAST_PAGE_OUT) {
            return Err(invalid(
                "page_out_after: a stack that is used again within a second is not cold: choose a longer time",
            ));
        }
        if self.name.contains('\0') {
            return Err(invalid("name: a thread name cannot hold a zero byte"));
        }
        Ok(())
    }
}

/// The maximum number of Ps. It exceeds the CPUs of any machine, and bounds tables sized by it.
pub(crate) const MAX_PROCESSORS: usize = 4096;

/// With at least this many operations in flight, a P whose goroutines do not compute sends and
/// receives in batches through its ring.
pub(crate) const BATCHES_FROM: u32 = 8;

/// Nice value of a hog's thread without a P, so that the P's new M keeps the core.
pub(crate) const HOG_NICE: i32 = 10;

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

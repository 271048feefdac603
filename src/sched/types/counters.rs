//! The counters of a P.

use windlass_ground::counter::{Counter, SleptTime};
use windlass_ground::histogram::Times;

use super::steal_levels::N_LEVELS;
use crate::loom::native::atomic::AtomicU64;
use crate::sched::numa::policy::N_DENIALS;

/// Counters of a P. Written by the M that holds it, read by any thread.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    pub(crate) dispatches: Counter,
    pub(crate) runnext_dispatches: Counter,
    pub(crate) spawned: Counter,
    /// Goroutines that got a stack here.
    pub(crate) started: Counter,
    pub(crate) finished: Counter,
    pub(crate) parks: Counter,
    pub(crate) idles: Counter,
    pub(crate) wakes_sent: Counter,
    pub(crate) overflows: Counter,
    pub(crate) preemptions: Counter,
    pub(crate) steals: [Counter; N_LEVELS],
    pub(crate) stolen: [Counter; N_LEVELS],
    pub(crate) steal_failures: Counter,
    /// Denied remote steals, by `policy::StealDenied`.
    pub(crate) gate_denials: [Counter; N_DENIALS],
    /// Searches of other nodes, and cache lines of other nodes read for them.
    pub(crate) remote_searches: Counter,
    pub(crate) remote_probes: Counter,
    /// Goroutines brought from another node for other Ps of this node.
    pub(crate) surplus_pushes: Counter,
    /// Goroutines stolen from another node though they had run there.
    pub(crate) stolen_started: Counter,
    /// Goroutines made runnable away from home: sent home, kept here, and rehomed here.
    pub(crate) home_wakes: Counter,
    pub(crate) pulled: Counter,
    pub(crate) rehomes: Counter,
    pub(crate) runs_home: Counter,
    pub(crate) runs_away: Counter,
    pub(crate) wakes_remote: Counter,
    pub(crate) cancels: Counter,
    pub(crate) wakes_received: Counter,
    pub(crate) wakes_useless: Counter,
    /// Time that its M slept; since when it sleeps, 0 while it is awake.
    pub(crate) slept: SleptTime,
    pub(crate) asleep_since_ns: Counter,
    /// CPU time of goroutines here, and how long each ran at a time, if that is measured.
    pub(crate) cpu_ns: Counter,
    pub(crate) run_slices: Times,
    pub(crate) queue_delays: Times,
    pub(crate) poll_gaps: Times,
}

/// Counters of a P written by other threads: sysmon, and Ms that hand it on. Ordering: relaxed,
/// statistics.
#[derive(Debug, Default)]
pub(crate) struct RetakeCounts {
    pub(crate) from_sections: AtomicU64,
    pub(crate) from_hogs: AtomicU64,
    /// Of those, for a timer that was due or for the poller.
    pub(crate) for_due: AtomicU64,
    pub(crate) handoffs: AtomicU64,
}

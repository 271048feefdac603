//! Callbacks that sysmon runs for observability: periodic status lines, and checks for deadlocks,
//! stalls and slow shutdowns.
//!
//! The printing is done above (`debug`), which knows public names; the builder passes its functions
//! down. Sysmon has no P and holds no lock when it calls them, so they may take long.

use std::time::Duration;

use super::m::{Carrier, RETAKEN};
use super::p::P;
use super::state::Sched;
use crate::g::header::GRef;
use crate::loom::native::atomic::{AtomicU64, Ordering};
use crate::sys::clock::{self, NEVER};
use crate::util::ladder;

/// Checks whether the run can ever make progress, or end; does not return if not.
pub(crate) type Check = fn(&Sched);

/// Interval of deadlock checks while the runtime is idle: a thread that could have woken a
/// goroutine may end without any event.
const CHECK_NS: u64 = 10 * ladder::HOG_NS;

/// Prints status lines about the scheduler.
pub(crate) type Print = fn(&Sched, since_begin: Duration);

/// The requested callbacks. Created once, when the runtime is built.
#[derive(Debug, Default)]
pub(crate) struct DebugHooks {
    /// The interval of status lines, and the function that prints them.
    pub(crate) schedtrace: Option<(Duration, Print)>,
    /// Called when all Ps are idle.
    pub(crate) deadlock: Option<Check>,
    /// After what time a goroutine that does not enter the scheduler is reported, and to which
    /// receiver.
    pub(crate) stalls: Option<(Duration, Box<dyn OnStall>)>,
    /// How long the end of a run may take, and the function to call after that.
    pub(crate) shutdown: Option<(Duration, Check)>,
    /// When this run began, and when the next status lines are due. Ordering: relaxed; only sysmon
    /// accesses them.
    begin_ns: AtomicU64,
    due_ns: AtomicU64,
}

impl DebugHooks {
    pub(crate) fn new(
        schedtrace: Option<(Duration, Print)>,
        deadlock: Option<Check>,
        stalls: Option<(Duration, Box<dyn OnStall>)>,
        shutdown: Option<(Duration, Check)>,
    ) -> DebugHooks {
        DebugHooks {
            schedtrace,
            deadlock,
            stalls,
            shutdown,
            ..DebugHooks::default()
        }
    }

    /// Starts the clock of a new run.
    pub(crate) fn begin(&self) {
        let now_ns = clock::now_ns();
        self.begin_ns.store(now_ns, Ordering::Relaxed);
        let due_ns = match self.schedtrace {
            Some((every, _)) => now_ns.saturating_add(every.as_nanos() as u64),
            None => NEVER,
        };
        self.due_ns.store(due_ns, Ordering::Relaxed);
    }

    /// Called when all Ps are idle: checks for a deadlock, if requested. Returns how long sysmon
    /// may sleep.
    pub(crate) fn look_at_idle(&self, sched: &Sched) -> u64 {
        match self.deadlock {
            None => NEVER,
            Some(check) => {
                check(sched);
                CHECK_NS
            }
        }
    }

    /// Called while a run ends, since `began_ns`: gives up if that takes longer than the limit, if
    /// there is one.
    pub(crate) fn look_at_end(&self, sched: &Sched, began_ns: u64) {
        if let Some((most, give_up)) = self.shutdown
            && u128::from(clock::now_ns() - began_ns) >= most.as_nanos()
        {
            give_up(sched);
        }
    }

    /// Prints status lines if they are due. Returns how long sysmon may sleep, [`NEVER`] for no
    /// limit.
    pub(crate) fn look(&self, sched: &Sched) -> u64 {
        let due_ns = self.due_ns.load(Ordering::Relaxed);
        if due_ns == NEVER {
            return NEVER;
        }
        let now_ns = clock::now_ns();
        if now_ns < due_ns {
            return due_ns - now_ns;
        }
        let Some((every, print)) = self.schedtrace else {
            return NEVER;
        };
        let begin_ns = self.begin_ns.load(Ordering::Relaxed);
        print(sched, Duration::from_nanos(now_ns - begin_ns));
        // From now on, not from when it was due: missed lines do not come in a burst.
        let every_ns = every.as_nanos() as u64;
        self.due_ns.store(now_ns + every_ns, Ordering::Relaxed);
        every_ns
    }
}

/// A goroutine that has not come to the scheduler for long.
#[derive(Debug)]
pub(crate) struct Stall<'a> {
    pub(crate) g: GRef,
    pub(crate) m: &'a Carrier,
    /// The P that it holds, and the dispatches there; `None` once that was taken.
    pub(crate) holds: Option<(&'a P, u64)>,
    pub(crate) since_ns: u64,
    /// How often it has been reported in vain.
    pub(crate) n_tries: u32,
    pub(crate) is_told: bool,
}

impl Stall<'_> {
    /// Whether it goes on: the goroutine has been on its M all the time.
    pub(crate) fn is_still(&self) -> bool {
        let on_m = self.m.curg.get() == Some(self.g);
        on_m && match self.holds {
            Some((p, dispatches)) => {
                std::ptr::eq(p.owner().cast(), self.m) && p.stats.dispatches.get() == dispatches
            }
            None => self.m.access.load(Ordering::Relaxed) == RETAKEN,
        }
    }

    pub(crate) fn held_ns(&self) -> u64 {
        clock::now_ns().saturating_sub(self.since_ns)
    }

    pub(crate) fn has_p(&self) -> bool {
        self.holds.is_some()
    }
}

/// The receiver of stall reports.
pub(crate) trait OnStall: std::fmt::Debug + Send + Sync {
    /// A goroutine has stalled. `false` to be told once more a little later, if it goes
    /// on. Called by sysmon, which waits meanwhile.
    fn stalled(&self, sched: &Sched, stall: &Stall<'_>) -> bool;

    /// The run is over, and nothing of it may be used any more.
    fn end_run(&self);
}

//! What sysmon does for whoever looks on: lines about the scheduler now and then.
//!
//! The printing is done above (`debug`), which knows how things are called; the
//! builder hands its functions down. Sysmon has no P and holds no lock when it calls
//! them, so they may take their time.

use std::time::Duration;

use super::m::{M, RETAKEN};
use super::p::P;
use super::state::Sched;
use crate::g::header::GRef;
use crate::loom::native::atomic::{AtomicU64, Ordering};
use crate::sys::clock::{self, NEVER};

/// Looks whether anything can ever happen again, or come to an end, and does not come back
/// if not.
pub(crate) type Check = fn(&Sched);

/// How often an idle runtime is looked at for a deadlock: a thread that could have woken
/// somebody may end without a word.
const CHECK_NS: u64 = 100_000_000;

/// Prints lines about the scheduler.
pub(crate) type Print = fn(&Sched, since_begin: Duration);

/// What sysmon has been asked for. Made once, when the runtime is built.
#[derive(Debug, Default)]
pub(crate) struct DebugHooks {
    /// How often to print, and how.
    pub(crate) schedtrace: Option<(Duration, Print)>,
    /// What to call when all Ps are idle.
    pub(crate) deadlock: Option<Check>,
    /// After what time a goroutine that does not come to the scheduler is told of, and whom.
    pub(crate) stalls: Option<(Duration, Box<dyn OnStall>)>,
    /// How long the end of a run may take, and what to call then.
    pub(crate) shutdown: Option<(Duration, Check)>,
    /// When this run began, and when the next lines are due.
    /// Ordering: relaxed; only sysmon touches them.
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

    /// A run begins.
    pub(crate) fn begin(&self) {
        let now_ns = clock::now_ns();
        self.begin_ns.store(now_ns, Ordering::Relaxed);
        let due_ns = match self.schedtrace {
            Some((every, _)) => now_ns.saturating_add(every.as_nanos() as u64),
            None => NEVER,
        };
        self.due_ns.store(due_ns, Ordering::Relaxed);
    }

    /// All Ps are idle: looks for a deadlock, if that was asked for. Says how long
    /// sysmon may sleep.
    pub(crate) fn look_at_idle(&self, sched: &Sched) -> u64 {
        match self.deadlock {
            None => NEVER,
            Some(check) => {
                check(sched);
                CHECK_NS
            }
        }
    }

    /// The run has been ending since `began_ns`: gives it up if that takes too long, if that
    /// was asked for.
    pub(crate) fn look_at_end(&self, sched: &Sched, began_ns: u64) {
        if let Some((most, give_up)) = self.shutdown
            && u128::from(clock::now_ns() - began_ns) >= most.as_nanos()
        {
            give_up(sched);
        }
    }

    /// Does what is due, and says how long sysmon may sleep, [`NEVER`] for ever.
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
        // From now on, not from when it was due: lines that were missed do not come in a burst.
        let every_ns = every.as_nanos() as u64;
        self.due_ns.store(now_ns + every_ns, Ordering::Relaxed);
        every_ns
    }
}

/// A goroutine that has not come to the scheduler for long.
#[derive(Debug)]
pub(crate) struct Stall<'a> {
    pub(crate) g: GRef,
    pub(crate) m: &'a M,
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
                std::ptr::eq(p.owner(), self.m) && p.stats.dispatches.get() == dispatches
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

/// Who is told of stalls.
pub(crate) trait OnStall: std::fmt::Debug + Send + Sync {
    /// A goroutine has stalled. `false` to be told once more a little later, if it goes
    /// on. Called by sysmon, which waits meanwhile.
    fn stalled(&self, sched: &Sched, stall: &Stall<'_>) -> bool;

    /// The run is over, and nothing of it may be used any more.
    fn end_run(&self);
}

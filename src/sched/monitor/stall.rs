//! Detecting stalls: goroutines that do not enter the scheduler for long.
//!
//! Sysmon sees that a P's dispatch count does not change, and calls this module. A stalled
//! goroutine whose P was retaken is watched further, until it enters the scheduler. The reaction to
//! a stall is decided above (`debug::stall`).
#![allow(unsafe_code)]

use super::p_record::PRecord;
use crate::loom::Ordering;
use crate::sched::types::debug_hooks::{OnStall, Stall};
use crate::sched::types::m::{Carrier, HAS_P, PREEMPT};
use crate::sched::types::p::P;
use crate::sched::types::state::Sched;

/// Sysmon's duty to report stalls. Those on a P are in the P's record.
#[derive(Debug)]
pub(crate) struct Stalls<'a> {
    after_ns: u64,
    on_stall: &'a dyn OnStall,
    /// Stalls of goroutines whose P was retaken.
    without_p: Vec<Stall<'a>>,
}

impl<'a> Stalls<'a> {
    /// The record of a run, if reports of stalls were requested.
    pub(crate) fn new(sched: &'a Sched) -> Option<Stalls<'a>> {
        let (after, on_stall) = sched.debug_hooks.get()?.stalls.as_ref()?;
        Some(Stalls {
            after_ns: u64::try_from(after.as_nanos()).unwrap_or(u64::MAX),
            on_stall: &**on_stall,
            without_p: Vec::new(),
        })
    }

    /// Longest nap of sysmon that still notices a stall in time.
    pub(crate) fn longest_nap_ns(&self) -> u64 {
        self.after_ns
    }

    /// Whether every stall of a goroutine without a P has been reported.
    pub(crate) fn is_quiet(&self) -> bool {
        self.without_p.iter().all(|stall| stall.is_told)
    }

    /// Called for a P held by `m` that has dispatched nothing between two looks: reports its goroutine, if it has run
    /// there for long.
    pub(crate) fn check(
        &self,
        sched: &Sched,
        p: &'a P,
        m: &'a Carrier,
        record: &mut PRecord<'a>,
        now_ns: u64,
    ) {
        let since_ns = record.outside_since_ns;
        if now_ns - since_ns < self.after_ns {
            return;
        }
        let known = record.stall.as_ref();
        if !known.is_some_and(|stall| stall.since_ns == since_ns && stall.is_still()) {
            record.stall = stall_on(p, m, record.dispatches(), since_ns);
        }
        if let Some(stall) = &mut record.stall {
            self.report(sched, stall, now_ns);
        }
    }

    /// The P was retaken from `m`, whose goroutine had not entered the scheduler since `since_ns`; `before` is the
    /// stall that was noticed on the P.
    pub(crate) fn lost_p(&mut self, before: Option<Stall<'a>>, m: &'a Carrier, since_ns: u64) {
        let Some(g) = m.curg.get() else { return };
        let told = before.filter(|stall| stall.g == g && stall.since_ns == since_ns);
        self.without_p.push(Stall {
            g,
            m,
            holds: None,
            since_ns,
            n_tries: 0,
            is_told: told.is_some_and(|stall| stall.is_told),
        });
    }

    /// The process was stopped, for which stalls count as begun `later`.
    pub(crate) fn begin_later(&mut self, later: impl Fn(&mut u64)) {
        let without_p = self.without_p.iter_mut();
        without_p.for_each(|stall| later(&mut stall.since_ns));
    }

    /// Checks stalls whose P was retaken.
    pub(crate) fn check_without_p(&mut self, sched: &Sched, now_ns: u64) {
        let mut stalls = std::mem::take(&mut self.without_p);
        stalls.retain(Stall::is_still);
        for stall in &mut stalls {
            self.report(sched, stall, now_ns);
        }
        self.without_p = stalls;
    }

    /// Reports a stall that is long enough, once. `now_ns` is when the round began: the process may have been
    /// stopped since.
    fn report(&self, sched: &Sched, stall: &mut Stall<'_>, now_ns: u64) {
        if !stall.is_told && now_ns.saturating_sub(stall.since_ns) >= self.after_ns {
            stall.is_told = self.on_stall.stalled(sched, stall);
            stall.n_tries += 1;
        }
    }
}

impl Drop for Stalls<'_> {
    fn drop(&mut self) {
        self.on_stall.end_run();
    }
}

/// A stall of the goroutine that runs on `m`, if there is one and `m` holds `p`.
fn stall_on<'a>(p: &'a P, m: &'a Carrier, dispatches: u64, since_ns: u64) -> Option<Stall<'a>> {
    // Inside the scheduler, the M is looking for work or sleeping.
    let is_out = m.in_runtime.load(Ordering::Relaxed) == 0;
    let has_p = matches!(m.access.load(Ordering::Relaxed), HAS_P | PREEMPT);
    let stall = Stall {
        g: m.curg.get()?,
        m,
        holds: Some((p, dispatches)),
        since_ns,
        n_tries: 0,
        is_told: false,
    };
    (is_out && has_p && stall.is_still()).then_some(stall)
}

/// Lets threads of runtimes be sampled ([`windlass_unwind::take`]).
#[cfg(feature = "backtrace")]
pub(crate) fn allow_samples() {
    // SAFETY: `runs_here` reads words of the thread and of its goroutine, and passes on the stack on which this one runs.
    unsafe { windlass_unwind::install(runs_here) };
}

/// Passes to `f` the goroutine that runs on the calling thread, or 0 for the loop of its M. Safe in a signal
/// handler: the goroutine stays on its thread meanwhile, so what its header points at stays, too.
#[cfg(feature = "backtrace")]
fn runs_here(f: &mut dyn FnMut(&windlass_unwind::Seen<'_>)) {
    let Some(m) = crate::sched::types::current::m() else {
        return;
    };
    let Some(g) = m.curg.get() else {
        // While no goroutine is current, the thread is on the stack of the loop, which is not deep.
        let end = m.loop_end.get();
        return f(&windlass_unwind::Seen {
            g: 0,
            name: "",
            label: None,
            span: end.saturating_sub(1 << 16)..end,
        });
    };
    if let Some(span) = g.stack_span() {
        f(&windlass_unwind::Seen {
            g: g.as_ptr().addr(),
            name: g.name().unwrap_or(""),
            label: g.label().map(|label| label.idx),
            span,
        });
    }
}

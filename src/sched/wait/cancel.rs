//! Ending waits from outside: deadlines of operations, contexts, and the end of a run.
#![allow(unsafe_code)]

use super::handoff::Section;
use super::wake;
use crate::g::cancel_wait::CancelScope;
use crate::g::header::GRef;
use crate::g::slab;
use crate::g::status::{GKind, Reason, Status, WaitId};
use crate::loom::Ordering;
use crate::loom::oracle;
use crate::netpoll::op::Op;
use crate::race;
use crate::sched::types::current;
use crate::sched::types::m::M;
use crate::sched::types::state::{Phase, Sched};
use crate::sys::clock;
use crate::util::ladder;

/// When to retry the cancel of an operation that was not yet known to its poller.
const RETRY_NS: u64 = ladder::SLICE_NS / 2;

/// The outcome of a cancel.
enum CancelOutcome {
    /// The completion will come, or has come; nothing is left to do.
    Settled,
    /// The operation had completed while the wait was held: the caller must queue its G.
    Ready,
    /// The operation is about to be queued or submitted, or its poller is handling it now.
    TooEarly,
}

/// Cancels the operation that `g` waits for.
fn cancel_op(g: GRef, wait: WaitId, timed_out: bool) -> CancelOutcome {
    if !g.status.begin_cancel(wait) {
        return CancelOutcome::Settled;
    }
    let op = g.op.load(Ordering::Acquire).cast::<Op>();
    // SAFETY: the wait is held, so the frame with the operation stays (`netpoll::op`).
    let op = unsafe { &*op };
    if timed_out {
        op.set_timed_out();
    }
    // SAFETY: the wait is held.
    let known = unsafe { op.withdraw() };
    race::readies(g.as_ptr());
    g.status.end_cancel(wait);
    // The operation may be gone from here on; its completion mark is in the G.
    if g.op_done.load(Ordering::SeqCst) != 0 {
        return if g.status.wake(wait) {
            CancelOutcome::Ready
        } else {
            CancelOutcome::Settled
        };
    }
    if known {
        CancelOutcome::Settled
    } else {
        CancelOutcome::TooEarly
    }
}

/// Cancels operations whose deadline has passed, on an M that holds a P.
pub(crate) fn deadlines(m: &M, due: Vec<(GRef, WaitId)>) {
    if due.is_empty() {
        return;
    }
    let p = m.p();
    if p.poller.pending() > 0 {
        p.poller.flush();
    }
    for (g, wait) in due {
        p.stats.cancels.add(1);
        match cancel_op(g, wait, true) {
            CancelOutcome::Settled => {}
            CancelOutcome::Ready => wake::ready(m, g),
            CancelOutcome::TooEarly => p.timers.add(clock::now_ns() + RETRY_NS, g, wait),
        }
    }
}

/// Ends the wait of the goroutine or thread of `frame`, if its context may end that wait.
///
/// The caller holds the lock of the context, so the frame stays, and has set its word. `section` is
/// the caller's scheduler section, if it has entered. `false` means that the caller must retry a
/// moment later: an operation is on its way to the kernel.
#[must_use]
pub(crate) fn end_wait(frame: &CancelScope, section: Option<&Section<'_>>) -> bool {
    let Some(g) = frame.who else {
        frame.word.wake_thread();
        return true;
    };
    let Some(status) = frame.word.wait_to_cancel(|| g.status.load()) else {
        return true;
    };
    let Some(wait) = Status::wait_of(status) else {
        return true;
    };
    if status.reason() == Reason::Io {
        return end_op_wait(g, wait, section);
    }
    if g.status.wake(wait) {
        wake::ready_cancelled(g, |sched| wait_for_commit(sched, g));
    }
    true
}

fn end_op_wait(g: GRef, wait: WaitId, section: Option<&Section<'_>>) -> bool {
    let here = section.filter(|s| s.m().sched().owns(g));
    if let Some(section) = here {
        let poller = &section.m().p().poller;
        if poller.pending() > 0 {
            poller.flush();
        }
    }
    match cancel_op(g, wait, false) {
        CancelOutcome::Settled => true,
        CancelOutcome::Ready => {
            wake::ready_cancelled(g, |_| {});
            true
        }
        CancelOutcome::TooEarly => match here {
            Some(section) => {
                let timers = &section.m().p().timers;
                timers.add(clock::now_ns() + RETRY_NS, g, wait);
                true
            }
            None => false,
        },
    }
}

/// Ends a wait for an operation at `at_ns` (or earlier), from any thread: the goroutine then checks
/// its deadline again, and continues to wait if that has not passed. Never parks.
pub(crate) fn wake_by(g: GRef, wait: WaitId, at_ns: u64) {
    let is_own = current::m().is_some_and(|m| m.sched().owns(g));
    if is_own && let Some(section) = Section::enter() {
        section.m().p().timers.add(at_ns, g, wait);
        return;
    }
    // A wait for the network of a simulation, in which this thread takes part: there is no operation
    // to cancel.
    if g.status.load().reason() == Reason::SimulatedIo {
        if g.status.wake(wait) {
            wake::ready_cancelled(g, |sched| wait_for_commit(sched, g));
        }
        return;
    }
    // This thread has no timers to defer to.
    loop {
        match cancel_op(g, wait, true) {
            CancelOutcome::Settled => return,
            CancelOutcome::Ready => return wake::ready_from_outside(g),
            // The M submits its queued operations within 50 µs.
            CancelOutcome::TooEarly => clock::nap(RETRY_NS),
        }
    }
}

/// One sweep of the end of a run: wakes every goroutine whose wait can be ended. Called by
/// sysmon until no goroutine is left.
pub(crate) fn cancel_waiting(sched: &Sched) {
    debug_assert_eq!(sched.phase(), Phase::Cancelling);
    slab::all().for_each(|g| {
        let status = g.status.load();
        if status.kind() != GKind::Waiting || !sched.owns(g) {
            return;
        }
        let Some(wait) = Status::wait_of(status) else {
            return;
        };
        match status.reason() {
            Reason::Io => {
                if let CancelOutcome::Ready = cancel_op(g, wait, false) {
                    wake::inject(sched, g);
                }
            }
            reason if reason.ends_by_token() && g.status.wake(wait) => {
                wait_for_commit(sched, g);
                wake::inject(sched, g);
            }
            _ => {}
        }
    });
}

/// Whether a thread has woken a goroutine, and not queued it yet: one is runnable. The caller is
/// the M of a simulation, with nothing queued.
#[cfg(feature = "sim")]
pub(crate) fn is_any_on_its_way(sched: &Sched) -> bool {
    let mut is_any = false;
    slab::all().for_each(|g| {
        let is_runnable = g.status.load().kind() == GKind::Runnable;
        is_any = is_any || is_runnable && sched.owns(g);
    });
    is_any
}

/// Waits until no M is committing the park of `g`, whose token the caller has.
fn wait_for_commit(sched: &Sched, g: GRef) {
    let ms = sched.ms.lock();
    for m in &ms.all {
        while m.committing.load(Ordering::Acquire) == g.as_ptr() {
            crate::loom::spin_loop();
        }
    }
    oracle::commit_is_over(g.as_ptr());
}

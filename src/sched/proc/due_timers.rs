//! Expires due timers: readies goroutines, and ends waits whose deadline has passed.

use crate::sched::types::m::M;
use crate::sched::types::p::P;
use crate::sched::wait::cancel;
use crate::sched::wait::wake;
use crate::sys::clock;

/// Runs the due timers of a P: the caller's own, or a victim's.
pub(crate) fn run_timers_of(m: &M, p: &P) {
    let expired = p.timers.expire(clock::now_ns());
    let n_woken = expired.ready.len() + expired.cancel.len();
    m.p().local.timers.note_woken(n_woken);
    cancel::deadlines(m, expired.cancel);
    wake::ready_expired(m, expired.ready);
}

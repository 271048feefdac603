//! Due timers: readies the goroutines that wait for them, and cuts waits whose deadline has passed.

use super::cancel;
use super::m::M;
use super::p::P;
use super::wake;
use crate::sys::clock;

/// Runs the due timers of a P: the caller's own, or a victim's.
pub(crate) fn run_timers_of(m: &M, p: &P) {
    let expired = p.timers.expire(clock::now_ns());
    cancel::deadlines(m, expired.cancel);
    wake::ready_expired(m, expired.ready);
}

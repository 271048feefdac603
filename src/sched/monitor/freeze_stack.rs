//! Keeping a parked goroutine from running while its stack is copied.
#![allow(unsafe_code)]

use std::ops::Range;

use crate::g::header::GRef;
use crate::g::snapshot::{Rest, StackCopy};
#[cfg(feature = "sim")]
use crate::g::status::GKind;
use crate::g::status::{Status, WaitId};
use crate::loom::Ordering;
#[cfg(feature = "sim")]
use crate::sched::types::current;
use crate::sched::types::state::Sched;

/// How often to try, if a goroutine is being woken or parked at the time.
const TRIES: u32 = 3;

/// Copies the stack of `g`, if it is parked. The caller has a reference to it.
///
/// The goroutine cannot be woken meanwhile (`Status::hold`), so it does not run, does not end,
/// and keeps its stack.
///
/// The list of Ms is locked before the hold begins: a waker that spins on the hold may have a
/// lock, so the holder must not wait for one. If the M that parked the goroutine is still in
/// the commit of the wait, which uses the stack, nothing is copied.
pub(crate) fn copy_stack(sched: &Sched, g: GRef, copy: &mut StackCopy) -> bool {
    // SAFETY: `while_at_rest` lets no thread resume it meanwhile.
    while_at_rest(sched, g, |g| unsafe { copy.take(g) })
}

/// Reads which part of the stack of `g` is in use, and for which handles it waits, if it is parked. Otherwise as
/// [`copy_stack`].
pub(crate) fn read_rest(sched: &Sched, g: GRef, rest: &mut Rest) -> bool {
    // SAFETY: `while_at_rest` lets no thread resume it meanwhile.
    while_at_rest(sched, g, |g| unsafe { rest.read(g) })
}

/// The address range of the stack of `g` without the guard, if it is parked in `wait`. The caller needs no reference: the
/// number of the wait tells that it is the same goroutine.
pub(crate) fn span_in_wait(sched: &Sched, g: GRef, wait: WaitId) -> Option<Range<usize>> {
    while_in_wait(sched, g, |now| now == wait, GRef::stack_span)
}

/// Calls `read` while no thread resumes `g`; `false` if that cannot be had, or `read` returns it.
fn while_at_rest(sched: &Sched, g: GRef, mut read: impl FnMut(GRef) -> bool) -> bool {
    #[cfg(feature = "sim")]
    if is_at_rest_here(sched, g) {
        // The caller is the M that ran it last, as there is only one.
        return read(g);
    }
    while_in_wait(sched, g, |_| true, |g| read(g).then_some(())).is_some()
}

/// Calls `read` while no thread resumes `g`, if `is_it` accepts its wait.
fn while_in_wait<T>(
    sched: &Sched,
    g: GRef,
    is_it: impl Fn(WaitId) -> bool,
    mut read: impl FnMut(GRef) -> Option<T>,
) -> Option<T> {
    (0..TRIES).find_map(|_| {
        let ms = sched.ms.lock();
        let wait = Status::wait_of(g.status.load()).filter(|&wait| is_it(wait))?;
        if !g.status.hold(wait) {
            return None;
        }
        let committing = ms
            .all
            .iter()
            .any(|m| m.committing.load(Ordering::Acquire) == g.as_ptr());
        // The wait is held, and no M commits it.
        let taken = if committing { None } else { read(g) };
        g.status.let_go(wait);
        taken
    })
}

/// Whether `g` is runnable in a simulation, and the caller is its one M: nothing resumes `g`
/// meanwhile.
#[cfg(feature = "sim")]
fn is_at_rest_here(sched: &Sched, g: GRef) -> bool {
    let is_here = || current::m().is_some_and(|m| std::ptr::eq(m.sched(), sched));
    sched.config.is_simulated() && is_here() && g.status.load().kind() == GKind::Runnable
}

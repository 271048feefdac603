//! The door into waiting: a goroutine switches to its M, and the M makes the wait
//! visible on its own stack.
//!
//! Registering a waiter before the switch would let a waker resume a goroutine
//! whose registers are not saved yet. So the registration is a closure, the
//! *commit*, that the M runs after the switch (Go's unlock function of `gopark`):
//!
//! | G                                 | M                                         |
//! |-----------------------------------|-------------------------------------------|
//! | 1. record {reason, commit} on the | 3. move the commit off the G's stack      |
//! |    stack                          | 4. status = Waiting(n)                    |
//! | 2. switch out                     | 5. commit(g, n): publish n to wakers; if  |
//! |                                   |    it says false, the wait is over        |
//! |                                   |    already: take the token, resume        |
//!
//! From step 4 on any waker that knows `n` may take the token, also in the middle
//! of step 5: the commit must not touch the G's stack after it has published. The
//! one waker that needs no publication is the cancellation at the end of a run; it
//! waits until no M is in a commit of the G it has taken (`M::committing`).
#![allow(unsafe_code)]

use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::current;
use super::handoff::Section;
use super::m::{BLOCKING, M};
use super::state::Phase;
use super::trace::Kind;
use super::wake;
use crate::g::coro::Switch;
use crate::g::header::GRef;
use crate::g::status::{Reason, WaitId};
use crate::sys::clock::{self, NEVER};

/// The goroutine is being cancelled: its runtime ends. Unwinds the goroutine, and
/// is what `join` then gives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cancelled;

impl std::fmt::Display for Cancelled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the goroutine was cancelled because its runtime ended")
    }
}

impl std::error::Error for Cancelled {}

/// Who waits: what a blocking call does with its caller.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Caller {
    /// A goroutine, to be parked.
    Goroutine(GRef),
    /// A plain thread, a goroutine in a blocking section, or one that unwinds: its
    /// thread is blocked.
    Thread,
}

/// Who runs on this thread now.
#[inline]
pub(crate) fn caller() -> Caller {
    match current::m() {
        Some(m) if m.access.load(Ordering::Relaxed) != BLOCKING && !std::thread::panicking() => {
            m.curg.get().map_or(Caller::Thread, Caller::Goroutine)
        }
        _ => Caller::Thread,
    }
}

/// The goroutine that runs on this thread, also in a blocking section or unwinding.
pub(crate) fn current_g() -> Option<GRef> {
    current::m().and_then(|m| m.curg.get())
}

/// Whether the calling goroutine's runtime is ending.
#[inline]
pub(crate) fn is_cancelled() -> bool {
    current::m().is_some_and(|m| m.sched().phase() >= Phase::Cancelling)
}

/// A place where a goroutine notices that its runtime ends: unwinds it, unless
/// it unwinds already (then `Err`, and the caller fails at once).
///
/// # Errors
///
/// [`Cancelled`], only while unwinding.
pub(crate) fn cancel_point() -> Result<(), Cancelled> {
    if is_cancelled() && current_g().is_some() {
        unwind_cancelled()
    } else {
        Ok(())
    }
}

#[cold]
fn unwind_cancelled() -> Result<(), Cancelled> {
    if std::thread::panicking() {
        return Err(Cancelled);
    }
    std::panic::resume_unwind(Box::new(Cancelled))
}

/// What a parking goroutine leaves on its stack for its M.
#[repr(C)]
pub(crate) struct Record {
    commit: unsafe fn(NonNull<Record>, GRef, &M) -> bool,
    reason: Reason,
}

#[repr(C)]
struct Typed<F> {
    head: Record,
    f: ManuallyDrop<F>,
}

/// Parks the calling goroutine. `commit` runs on the M's stack once the wait has
/// begun; it gives `false` if there is nothing to wait for.
///
/// The caller is a goroutine ([`Caller::Goroutine`]), and what `commit` refers to
/// on its stack stays there until the wait is over, because it is parked.
#[inline]
pub(crate) fn park<F: FnOnce(GRef, WaitId, &M) -> bool>(reason: Reason, commit: F) {
    let section = Section::enter().expect("a goroutine that may park has or gets a P");
    park_in(section, reason, commit);
}

/// As [`park`], for a goroutine that is inside the scheduler already.
#[inline]
pub(crate) fn park_in<F: FnOnce(GRef, WaitId, &M) -> bool>(
    section: Section<'_>,
    reason: Reason,
    commit: F,
) {
    let record = Typed {
        head: Record {
            commit: commit_typed::<F>,
            reason,
        },
        f: ManuallyDrop::new(commit),
    };
    section.switch_out(Switch::park(NonNull::from(&record)));
}

/// # Safety
///
/// `record` is the head of a `Typed<F>` on the stack of `g`, which has switched out.
unsafe fn commit_typed<F: FnOnce(GRef, WaitId, &M) -> bool>(
    record: NonNull<Record>,
    g: GRef,
    m: &M,
) -> bool {
    // SAFETY: by this function's contract; the closure is read once, and the goroutine does not
    // touch it again (ManuallyDrop).
    let (f, reason) = unsafe {
        let typed = record.cast::<Typed<F>>();
        (
            std::ptr::read(&raw const (*typed.as_ptr()).f),
            (*typed.as_ptr()).head.reason,
        )
    };
    let wait = g.status.set_waiting(reason, m.p().local.now_ns.get());
    if ManuallyDrop::into_inner(f)(g, wait, m) {
        return true;
    }
    // Somebody else may have the token: then the G is queued, and not ours.
    !g.status.wake(wait)
}

/// The M's side of a park: `false` means that the G goes on at once.
///
/// # Safety
///
/// `record` was passed by `g` in its switch, and `m` ran it.
pub(crate) unsafe fn commit(record: NonNull<Record>, g: GRef, m: &M) -> bool {
    // SAFETY: by this function's contract the record lies on the stack of `g`.
    let f = unsafe { record.as_ref().commit };
    if m.p().is_traced() {
        // SAFETY: as above.
        unsafe { trace_park(record, m) };
    }
    // SAFETY: as above.
    unsafe { f(record, g, m) }
}

/// # Safety
///
/// As [`commit`].
#[cold]
#[inline(never)]
unsafe fn trace_park(record: NonNull<Record>, m: &M) {
    // SAFETY: by this function's contract the record lies on a stack at rest.
    let reason = unsafe { record.as_ref().reason };
    m.p().trace(Kind::Park, reason, 0, 0);
}

/// Lets the goroutine sleep until `deadline_ns`.
///
/// # Errors
///
/// [`Cancelled`], only while unwinding.
pub(crate) fn sleep_until(deadline_ns: u64) -> Result<(), Cancelled> {
    cancel_point()?;
    match caller() {
        Caller::Goroutine(_) => park(Reason::Sleep, move |g, wait, m| {
            if deadline_ns != NEVER {
                m.p().timers.add(deadline_ns, g, wait);
            }
            true
        }),
        #[expect(
            clippy::disallowed_methods,
            reason = "here a thread waits, not a goroutine"
        )]
        Caller::Thread => {
            std::thread::sleep(Duration::from_nanos(
                deadline_ns.saturating_sub(clock::now_ns()),
            ));
        }
    }
    cancel_point()
}

/// Parks until the goroutine's token is there, and takes it; or until the
/// deadline. May return early.
///
/// # Errors
///
/// [`Cancelled`], only while unwinding.
#[inline]
pub(crate) fn park_token(g: GRef, deadline_ns: u64) -> Result<(), Cancelled> {
    cancel_point()?;
    if !g.token.take() {
        let timer_on = timer_home();
        park(Reason::Park, move |g, wait, m| {
            if g.token.is_there() {
                return false;
            }
            if deadline_ns != NEVER {
                m.p().timers.add(deadline_ns, g, wait);
            }
            true
        });
        let woken = g.token.take();
        if woken && deadline_ns != NEVER {
            note_stale_timer(timer_on);
        }
    }
    cancel_point()
}

/// The P whose heap a timer of the coming park will most likely lie in.
pub(crate) fn timer_home() -> Option<usize> {
    current::m().filter(|m| m.has_p()).map(|m| m.p().idx)
}

/// Counts a timer that its goroutine did not wait for: see `Timers::note_stale`.
pub(crate) fn note_stale_timer(home: Option<usize>) {
    if let (Some(home), Some(m)) = (home, current::m()) {
        m.sched().ps[home].timers.note_stale();
    }
}

/// Gives `g` its token and wakes it if it parks for one.
pub(crate) fn unpark(g: GRef) {
    if let Some(wait) = g.token.give(&g.status) {
        wake::wake(g, wait);
    }
}

/// Sends the calling goroutine to the tail of its queue; yields the thread where
/// there is no goroutine.
///
/// # Errors
///
/// [`Cancelled`], only while unwinding.
#[inline]
pub(crate) fn yield_now() -> Result<(), Cancelled> {
    if let Caller::Goroutine(_) = caller()
        && let Some(section) = Section::enter()
    {
        section.switch_out(Switch::YIELD);
        return cancel_point();
    }
    #[expect(
        clippy::disallowed_methods,
        reason = "here a thread yields, not a goroutine"
    )]
    std::thread::yield_now();
    cancel_point()
}

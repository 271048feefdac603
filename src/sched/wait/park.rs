//! Parking: a goroutine switches to its M, and the M makes the wait visible to wakers, on its own
//! stack.
//!
//! Registering a waiter before the switch would let a waker resume a goroutine whose registers are
//! not saved yet. So the registration is a closure, the *commit*, which the M runs after the switch
//! (the unlock function of Go's `gopark`):
//!
//! | G                                 | M                                         |
//! |-----------------------------------|-------------------------------------------|
//! | 1. record {reason, commit} on the | 3. move the commit off the G's stack      |
//! |    stack                          | 4. status = Waiting(n)                    |
//! | 2. switch out                     | 5. commit(g, n): publish n to wakers; if  |
//! |                                   |    it returns false, the wait is already  |
//! |                                   |    over: take the token, resume           |
//!
//! From step 4 on, any waker that knows `n` may take the wake token, even during step 5: the commit
//! must not touch the G's stack after it has published `n`.
//!
//! Some wakers need no publication, because they find `n` in the status word. Each of them must
//! keep the G from running while a commit may still read its stack:
//!
//! | finds the wait by its status        | why the stack stays                            |
//! |-------------------------------------|------------------------------------------------|
//! | `unpark`, against `park_token`      | in a context, the commit reads the stack, so   |
//! |                                     | the wait begins held ([`park_held`]): `unpark` |
//! |                                     | spins                                          |
//! | a future's waker, [`POLLED`]        | the commit reads the G's header only           |
//! | a context, by `cancel::end_wait`    | waits for the commit (`M::committing`)         |
//! | the end of a run                    | waits for the commit                           |
//! | a dump (`freeze_stack`)             | wakes no G; skips a G in a commit              |
//! | cancel of an operation              | wakes only once the operation is complete: the |
//! |                                     | commit publishes the operation last            |
#![allow(unsafe_code)]

use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use super::handoff::Section;
use super::points::{Cancelled, cancel_point};
use super::wake;
use crate::g::cancel_wait::ScopeChain;
use crate::g::coro::Switch;
use crate::g::goroutine_locals::GoroutineLocals;
use crate::g::header::{GRef, OffStack};
use crate::g::status::{Reason, WaitId, WakeKind, Why};
use crate::loom::Ordering;
use crate::loom::oracle;
use crate::sched::types::current;
use crate::sched::types::events::EventKind;
use crate::sched::types::m::{BLOCKING, M};
use crate::sys::clock::NEVER;
use crate::util::chaos::{self, Point};

/// The way in which a blocking call makes its caller wait.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Caller {
    /// A goroutine: it is parked.
    Goroutine(GRef),
    /// A plain thread, a goroutine in a blocking section, or one that unwinds: the thread blocks.
    Thread,
}

/// How the caller of a blocking call is to wait.
#[inline]
pub(crate) fn caller() -> Caller {
    match current::m() {
        Some(m) if m.access.load(Ordering::Relaxed) != BLOCKING && !std::thread::panicking() => {
            m.curg.get().map_or(Caller::Thread, Caller::Goroutine)
        }
        _ => Caller::Thread,
    }
}

/// Whether to spin on a lock before waiting for it: its holder may be running on another P now, and
/// no goroutine waits for this P. A plain thread may always spin.
pub(crate) fn may_spin() -> bool {
    let Some(section) = Section::enter() else {
        return true;
    };
    let p = section.m().p();
    p.runq.is_empty() && !section.m().sched().is_alone(p)
}

/// The record that a parking goroutine leaves for the M: on its stack, or beside its body if it waits
/// without a stack. It comes first in what `commit` reads.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Record {
    /// Begins the wait, on the M's stack. `false` means that it is over already.
    ///
    /// # Safety
    ///
    /// The record is the one that holds this function, and was left by the goroutine, which has switched out of
    /// the M.
    pub(crate) commit: Commit,
    pub(crate) why: Why,
}

pub(crate) type Commit = unsafe fn(NonNull<Record>, GRef, &M) -> bool;

/// The wait for a waker of the goroutine to give the poll token.
pub(crate) static POLLED: Record = Record {
    commit: commit_polled,
    why: Why::cancellable(Reason::Future, false),
};

#[repr(C)]
struct CommitCall<F> {
    head: Record,
    f: ManuallyDrop<F>,
}

/// Enters the scheduler, to park.
#[inline(always)]
pub(crate) fn enter<'a>() -> Section<'a> {
    Section::enter_to(true).expect("a goroutine that may park has or gets a P")
}

/// Parks the calling goroutine, which has entered the scheduler. `commit` runs on the M's stack once the wait has
/// begun; it returns `false` if there is nothing to wait for.
///
/// Everything on its stack that `commit` refers to stays valid until the wait is over, because the goroutine
/// is parked.
#[inline]
pub(crate) fn park_in<F: FnOnce(GRef, WaitId, &M) -> bool>(
    section: Section<'_>,
    why: impl Into<Why>,
    commit: F,
) {
    leave_record(section, commit_typed::<F>, why.into(), commit);
}

/// As [`park_in`], for a commit that reads the goroutine's stack while a waker may find the wait
/// without a publication: the commit runs while the wait is held. This costs one more atomic
/// exchange.
fn park_held<F: FnOnce(GRef, WaitId, &M) -> bool>(
    section: Section<'_>,
    why: impl Into<Why>,
    commit: F,
) {
    leave_record(section, commit_held::<F>, why.into(), commit);
}

#[inline(always)]
fn leave_record<F>(section: Section<'_>, commit: Commit, why: Why, f: F) {
    let record = CommitCall {
        head: Record { commit, why },
        f: ManuallyDrop::new(f),
    };
    section.switch_out(Switch::park(NonNull::from(&record)));
}

/// Parks the calling goroutine until a waker, `until_ns` or a context of `chain` ends the wait. All
/// waits that a deadline or a context may end begin here.
///
/// `until_ns`, `NEVER` for none, includes the deadline of the chain. It is a function because a
/// deadline may be moved until the wait begins.
///
/// `begin` runs in the commit. It publishes the wait to its wakers, unless there is nothing to wait
/// for: then it returns `false`. It must do that if its last argument is `true`, because a context
/// is done. The timer is armed after it, for the wait may have ended by then, and the frame with
/// it. `was_woken` says afterwards whether a waker ended the wait, so that the timer is stale.
///
/// `HELD`: there is a waker that needs no publication ([`park_held`]).
#[inline(always)]
pub(crate) fn park_until<const HELD: bool>(
    section: Section<'_>,
    reason: Reason,
    until_ns: impl Fn() -> u64 + Copy,
    chain: ScopeChain,
    begin: impl FnOnce(GRef, WaitId, &M, bool) -> bool,
    was_woken: impl FnOnce() -> bool,
) {
    let timer_on = section.m().p().idx;
    let frame = NonNull::from(&timer_on);
    let commit = move |g: GRef, wait, m: &M| {
        // Read where the status is Waiting (`poll::limit`), and before the frame may be gone.
        let (until_ns, is_done) = (until_ns(), chain.is_set());
        let waits = begin(g, wait, m, is_done);
        if waits && until_ns != NEVER {
            g.note_frame(frame);
            m.p().timers.add(until_ns, g, wait);
        }
        waits
    };
    let why = Why::cancellable(reason, chain.is_some());
    if HELD && chain.is_some() {
        park_held(section, why, commit);
    } else {
        park_in(section, why, commit);
    }
    if until_ns() != NEVER && (chain.is_set() || was_woken()) {
        note_stale_timer(timer_on);
    }
}

/// # Safety
///
/// As [`commit_typed`].
unsafe fn commit_held<F: FnOnce(GRef, WaitId, &M) -> bool>(
    record: NonNull<Record>,
    g: GRef,
    m: &M,
) -> bool {
    // SAFETY: by this function's contract.
    let (f, why) = unsafe { take_record::<F>(record) };
    let (wait, waits) = g
        .status
        .set_waiting_held(why, m.p().local.pace.now_ns(), |wait| {
            chaos::pause(Point::Commit);
            let waits = f(g, wait, m);
            oracle::committed(m);
            waits
        });
    waits || !g.status.wake(wait)
}

/// Moves the commit off the stack of the goroutine that has switched out.
///
/// # Safety
///
/// As [`commit_typed`]; once.
#[inline(always)]
unsafe fn take_record<F>(record: NonNull<Record>) -> (F, Why) {
    // SAFETY: by this function's contract; the closure is read once, and the goroutine does not
    // touch it again (ManuallyDrop).
    unsafe {
        let typed = record.cast::<CommitCall<F>>();
        let f = std::ptr::read(&raw const (*typed.as_ptr()).f);
        (ManuallyDrop::into_inner(f), (*typed.as_ptr()).head.why)
    }
}

/// # Safety
///
/// `record` is the head of a `CommitCall<F>` on the stack of `g`, which has switched out.
unsafe fn commit_typed<F: FnOnce(GRef, WaitId, &M) -> bool>(
    record: NonNull<Record>,
    g: GRef,
    m: &M,
) -> bool {
    // SAFETY: by this function's contract.
    let (f, why) = unsafe { take_record::<F>(record) };
    begin_wait(g, why, m, |wait| f(g, wait, m))
}

/// Begins a wait of `g`, which has switched out of `m`, and publishes it by `publish`, unless that returns `false`:
/// then there is nothing to wait for. `false` if the wait is over, and `g` the caller's.
#[inline(always)]
pub(crate) fn begin_wait(g: GRef, why: Why, m: &M, publish: impl FnOnce(WaitId) -> bool) -> bool {
    let wait = g.status.set_waiting(why, m.p().local.pace.now_ns());
    chaos::pause(Point::Commit);
    // Another waker may have the token: it has then queued the G, which is no longer ours.
    publish(wait) || !g.status.wake(wait)
}

/// As [`commit_typed`], for [`POLLED`].
fn commit_polled(_: NonNull<Record>, g: GRef, m: &M) -> bool {
    begin_wait(g, POLLED.why, m, |_| !g.token.is_there(WakeKind::Poll))
}

/// The M's side of a park. `false` means that the G resumes at once.
///
/// # Safety
///
/// `record` was passed by `g` in its switch, or as it left its stack, and `g` ran on `m`.
pub(crate) unsafe fn commit(record: NonNull<Record>, g: GRef, m: &M) -> bool {
    // SAFETY: by this function's contract the record is there.
    let f = unsafe { record.as_ref().commit };
    if m.p().is_traced() {
        // SAFETY: as above.
        trace_park(unsafe { record.as_ref().why }, m);
    }
    // SAFETY: as above.
    unsafe { f(record, g, m) }
}

#[cold]
#[inline(never)]
fn trace_park(why: Why, m: &M) {
    m.p().trace(EventKind::Park, why.reason(), 0, 0);
}

/// The scopes of the current context of `g`, which is the caller.
#[inline(always)]
pub(crate) fn chain_of(g: GRef) -> ScopeChain {
    // SAFETY: the caller is the code of `g`; the chain is copied.
    ScopeChain::from_raw(unsafe { g.locals() }.cancel_scope())
}

/// The locals of the calling goroutine or plain thread; `None` on a thread that is about to end.
/// The reference must not be used after the next switch.
#[inline]
pub(crate) fn locals<'a>() -> Option<&'a GoroutineLocals> {
    match current::g() {
        // SAFETY: the M runs the code of this goroutine, which is the caller.
        Some(g) => Some(unsafe { g.locals() }),
        // SAFETY: the calling thread uses it at once, and has not yet ended.
        None => unsafe { current::thread_locals().as_ref() },
    }
}

/// Drops the task-locals of the calling goroutine, whose closure has returned or was unwound. For bodies
/// that report the end of their goroutine, which has not come while a destructor waits.
#[inline]
pub(crate) fn end_locals() {
    if let Some(locals) = locals() {
        locals.values.end();
    }
}

/// The cancel scopes around the caller, goroutine or thread.
#[inline]
pub(crate) fn current_chain() -> ScopeChain {
    locals().map_or(ScopeChain::NONE, |it| {
        ScopeChain::from_raw(it.cancel_scope())
    })
}

/// Parks until the goroutine's park token is available, and takes it; or until the deadline, or
/// until the current context is done. May return early.
///
/// # Errors
///
/// [`Cancelled`], only while unwinding.
#[inline]
pub(crate) fn park_token(g: GRef, deadline_ns: u64) -> Result<(), Cancelled> {
    cancel_point()?;
    if !g.token.take(WakeKind::Park) {
        let chain = chain_of(g);
        if chain.is_some() {
            park_token_in_context(g, deadline_ns, chain);
        } else {
            park_until_token(g, deadline_ns, ScopeChain::NONE);
            g.token.take(WakeKind::Park);
        }
    }
    cancel_point()
}

#[inline(never)]
fn park_token_in_context(g: GRef, deadline_ns: u64, chain: ScopeChain) {
    if chain.over().is_some() {
        return;
    }
    park_until_token(g, deadline_ns.min(chain.deadline_ns()), chain);
    if !g.token.take(WakeKind::Park) {
        // If the context's deadline has ended the wait, this records it in the context.
        chain.over();
    }
}

#[inline(always)]
fn park_until_token(g: GRef, until_ns: u64, chain: ScopeChain) {
    let begin = |g: GRef, _, _: &M, is_done: bool| !is_done && !g.token.is_there(WakeKind::Park);
    let was_woken = || g.token.is_there(WakeKind::Park);
    park_until::<true>(
        enter(),
        Reason::Park,
        move || until_ns,
        chain,
        begin,
        was_woken,
    );
}

/// Parks until a waker of this goroutine gives the poll token, and takes it. A context does not end
/// this wait: the polled future has to finish by itself.
///
/// # Errors
///
/// [`Cancelled`], only while unwinding.
pub(crate) fn park_polling(g: GRef) -> Result<(), Cancelled> {
    cancel_point()?;
    while !g.token.take(WakeKind::Poll) {
        park_by(polled());
        cancel_point()?;
    }
    Ok(())
}

/// The wait [`POLLED`].
pub(crate) fn polled() -> OffStack {
    OffStack::new(NonNull::from(&POLLED))
}

/// Parks the calling goroutine on its stack for a wait for which it could leave it.
pub(crate) fn park_by(wait: OffStack) {
    enter().switch_out(Switch::park(wait.record::<Record>()));
}

/// Counts a timer whose goroutine was woken before it expired: see `Timers::note_stale`.
pub(crate) fn note_stale_timer(timer_p: usize) {
    if let Some(m) = current::m() {
        m.sched().ps[timer_p].timers.note_stale();
    }
}

/// Gives `g` its park token, and wakes it if it is parked for one.
pub(crate) fn unpark(g: GRef) {
    give(g, WakeKind::Park);
}

/// Gives `g` the token of kind `whose`, and wakes it if it is parked for that.
pub(crate) fn give(g: GRef, whose: WakeKind) {
    if let Some(wait) = g.token.give(whose, &g.status) {
        wake::wake(g, wait);
    }
}

/// Moves the calling goroutine to the tail of its queue; outside a goroutine, yields the thread.
///
/// # Errors
///
/// [`Cancelled`], only while unwinding.
#[inline]
pub(crate) fn yield_now() -> Result<(), Cancelled> {
    // `caller` asks this and `enter` does not: the latter refuses threads and blocking sections.
    if !std::thread::panicking()
        && let Some(section) = Section::enter_to(true)
    {
        section.switch_out(Switch::YIELD);
        return cancel_point();
    }
    #[expect(
        clippy::disallowed_methods,
        reason = "here a thread yields, not a goroutine"
    )]
    crate::loom::thread::yield_now();
    cancel_point()
}

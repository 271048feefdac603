//! Ends waits whose context is done: the scopes of contexts on a goroutine's stack, and the word by
//! which a canceller and a waiter synchronise.
//!
//! A goroutine inside `Context::run` has a [`CancelScope`] on its stack, to which its
//! `GoroutineLocals` point; nested scopes are chained. A canceller finds the scope in the context's
//! list.
//!
//! | waiter                                | canceller, under the context's lock     |
//! |---------------------------------------|-----------------------------------------|
//! | 1. a flag on the chain set, or a      | 1. flag = set                           |
//! |    deadline passed? then do not wait  | 2. read the status: Waiting(n), and     |
//! | 2. status = Waiting(n), cancellable   |    cancellable?                         |
//! | 3. a flag set? take the token         | 3. flag masked? then stop               |
//! |    itself                             | 4. take the token of n (an operation:   |
//! | 4. woken: as 1, to find the reason    |    cancel it in the kernel)             |
//!
//! The flag and the status are sequentially consistent, so at least one side sees the other's
//! write. Waits whose status does not say that they are cancellable are left alone. A shield masks the
//! flags of the scopes outside it. A wait inside the shield may still be cancellable, by a
//! context inside the shield; so the canceller reads the mask after the status.
//!
//! Deadlines need no canceller: a waiter arms its timer for the earliest on the chain.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::ptr;

use super::header::GRef;
use super::status::{Snapshot, Status};
use crate::loom::{AtomicU32, Ordering, after_seq_cst, futex_wait, futex_wake_one};
use crate::sys::clock::{self, NEVER};
use crate::util::chaos::{self, Point};

const SET: u32 = 1;
const MASKED: u32 = 2;

/// Whether waits in a scope must end. See the table above.
///
/// Ordering: sequentially consistent against the status word.
#[derive(Debug, Default)]
pub(crate) struct CancelFlag(AtomicU32);

impl CancelFlag {
    /// Whether a canceller has set the flag. The waiter asks this after it has published its wait.
    #[inline]
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::SeqCst) & SET != 0
    }

    /// The canceller's step 1.
    pub(crate) fn set(&self) {
        self.0.fetch_or(SET, Ordering::SeqCst);
        after_seq_cst();
        chaos::pause(Point::Cancel);
    }

    /// The canceller's steps 2 and 3: returns the wait to end, if any.
    #[inline]
    pub(crate) fn wait_to_cancel(&self, status: impl FnOnce() -> Snapshot) -> Option<Snapshot> {
        let now = status();
        let waits = now.is_cancellable() && Status::wait_of(now).is_some();
        (waits && self.0.load(Ordering::SeqCst) & MASKED == 0).then_some(now)
    }

    fn mask(&self) {
        self.0.fetch_or(MASKED, Ordering::SeqCst);
    }

    fn unmask(&self) {
        self.0.fetch_and(!MASKED, Ordering::SeqCst);
    }

    /// Blocks a plain thread until the flag is set or for `timeout_ns`; may return early.
    pub(crate) fn sleep(&self, timeout_ns: u64) {
        futex_wait(&self.0, 0, timeout_ns);
    }

    /// Wakes the thread that sleeps on the flag, if any.
    pub(crate) fn wake_thread(&self) {
        futex_wake_one(&raw const self.0);
    }
}

/// A context's scope, on the stack of the call that made the context current. It does not move.
#[derive(Debug, Default)]
pub(crate) struct CancelScope {
    outer: Cell<*const CancelScope>,
    /// The deadline of its context.
    deadline_ns: Cell<u64>,
    pub(crate) word: CancelFlag,
    is_shield: bool,
    /// Whether a wait of the owner ended, or did not begin, because of this scope's deadline.
    was_late: Cell<bool>,
    /// The goroutine, `None` for a plain thread.
    pub(crate) who: Option<GRef>,
    /// Its context, `None` for a deadline alone or a shield.
    source: Cell<Option<*const dyn CancelSource>>,
    /// The scope's links in its context's list. Ordering: guarded by the context's lock.
    queued: Cell<bool>,
    prev: Cell<*const CancelScope>,
    next: Cell<*const CancelScope>,
    /// [`ALIVE`] until the scope is left.
    #[cfg(explore)]
    alive: Cell<u64>,
}

/// Marks a scope that may still be read.
#[cfg(explore)]
const ALIVE: u64 = 0x11fe_11fe_f4a3_e001;

/// A context, which ends waits in the scopes in its list.
pub(crate) trait CancelSource: Send + Sync {
    /// Adds a scope to its list.
    ///
    /// # Safety
    ///
    /// The scope is in no list, and stays in place until it is removed.
    unsafe fn add(&self, scope: &CancelScope);

    /// Removes a scope that was added.
    fn remove(&self, scope: &CancelScope);

    /// When it is done at the latest, `NEVER` if it may never be.
    fn deadline_ns(&self) -> u64;

    /// Whether it may be done before that.
    fn has_canceller(&self) -> bool;
}

impl CancelScope {
    /// A scope for the calling goroutine `who`, or plain thread, whose waits end at `deadline_ns`
    /// at the latest.
    pub(crate) fn new(who: Option<GRef>, deadline_ns: u64) -> CancelScope {
        CancelScope {
            deadline_ns: Cell::new(deadline_ns),
            who,
            #[cfg(explore)]
            alive: Cell::new(ALIVE),
            ..CancelScope::default()
        }
    }

    /// Names its context, so that forks made inside the scope can enter it, too.
    ///
    /// # Safety
    ///
    /// The context stays in place while the scope is entered.
    pub(crate) unsafe fn set_source(&self, source: *const dyn CancelSource) {
        self.source.set(Some(source));
    }

    pub(crate) fn source(&self) -> Option<*const dyn CancelSource> {
        self.source.get()
    }

    /// The deadline of its context has passed, perhaps by a clock that was ahead of this one. Called
    /// before the scope is entered.
    pub(crate) fn set_late(&self) {
        self.deadline_ns.set(0);
    }

    /// A scope that shields the waits inside it from the contexts outside it.
    pub(crate) fn shield(who: Option<GRef>) -> CancelScope {
        CancelScope {
            is_shield: true,
            ..CancelScope::new(who, NEVER)
        }
    }

    /// Enters the scope inside `outer`; null for none.
    pub(crate) fn enter(&self, outer: ScopeChain) {
        self.outer.set(outer.0);
        if self.is_shield {
            for frame in outer.frames() {
                frame.word.mask();
            }
        }
    }

    /// Undoes [`CancelScope::enter`], and returns the outer chain.
    pub(crate) fn leave(&self) -> ScopeChain {
        let outer = ScopeChain(self.outer.get());
        if self.is_shield {
            outer.frames().for_each(|frame| frame.word.unmask());
        }
        #[cfg(explore)]
        self.alive.set(0);
        outer
    }

    /// Lets its context end no wait of the owner until the guard is dropped.
    pub(crate) fn masked(&self) -> Masked<'_> {
        self.word.mask();
        Masked(self)
    }

    /// Whether the scopes outside it apply to the waits inside it.
    fn is_followed(&self) -> bool {
        #[cfg(explore)]
        crate::loom::oracle::must(self.alive.get() == ALIVE, "a popped frame is read");
        !self.is_shield
    }

    /// Whether a wait ended because of this scope's deadline.
    pub(crate) fn was_late(&self) -> bool {
        self.was_late.get()
    }
}

/// See [`CancelScope::masked`].
#[derive(Debug)]
pub(crate) struct Masked<'a>(&'a CancelScope);

impl Drop for Masked<'_> {
    fn drop(&mut self) {
        self.0.word.unmask();
    }
}

/// The reason why waits end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    Cancelled,
    Late,
}

/// The scopes around the waits of a goroutine or thread, innermost first, up to a shield. Valid
/// until the call that made the innermost one returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScopeChain(*const CancelScope);

impl ScopeChain {
    pub(crate) const NONE: ScopeChain = ScopeChain(ptr::null());

    #[inline(always)]
    pub(crate) fn from_raw(frame: *const ()) -> ScopeChain {
        ScopeChain(frame.cast())
    }

    pub(crate) fn of(frame: &CancelScope) -> ScopeChain {
        ScopeChain(frame)
    }

    pub(crate) fn as_raw(self) -> *const () {
        self.0.cast()
    }

    /// Whether anything but a deadline may end the waits.
    pub(crate) fn has_canceller(self) -> bool {
        // SAFETY: the context stays in place while its scope is entered.
        self.sources()
            .any(|source| unsafe { &*source }.has_canceller())
    }

    /// The contexts of all scopes, innermost first. Valid as long as the chain.
    pub(crate) fn sources(self) -> impl Iterator<Item = *const dyn CancelSource> {
        self.frames().filter_map(|frame| frame.source.get())
    }

    #[inline(always)]
    fn frames<'a>(self) -> impl Iterator<Item = &'a CancelScope> {
        // SAFETY: the owner's `GoroutineLocals`, or an inner scope, point to a scope only while it
        // exists.
        let deref =
            |frame: *const CancelScope| unsafe { frame.as_ref() }.filter(|f| f.is_followed());
        std::iter::successors(deref(self.0), move |frame| deref(frame.outer.get()))
    }

    /// Whether there is any scope: waits are cancellable.
    #[inline(always)]
    pub(crate) fn is_some(self) -> bool {
        self.frames().next().is_some()
    }

    /// The only scope, if there is exactly one.
    pub(crate) fn only<'a>(self) -> Option<&'a CancelScope> {
        let mut frames = self.frames();
        frames.next().filter(|_| frames.next().is_none())
    }

    /// The earliest deadline of all scopes, or `NEVER`.
    #[inline(always)]
    pub(crate) fn deadline_ns(self) -> u64 {
        self.frames()
            .fold(NEVER, |ns, frame| ns.min(frame.deadline_ns.get()))
    }

    /// Whether a context was cancelled.
    #[inline]
    pub(crate) fn is_set(self) -> bool {
        self.frames().any(|frame| frame.word.is_set())
    }

    /// Which of the innermost 64 scopes have ended a wait by their deadline, a bit for each.
    pub(crate) fn late(self) -> u64 {
        let bits = self.frames().take(64).enumerate();
        bits.fold(0, |late, (i, frame)| {
            late | u64::from(frame.was_late()) << i
        })
    }

    /// Takes back what was recorded since [`late`](ScopeChain::late) has returned `late`: the wait has succeeded after all.
    pub(crate) fn forgive(self, late: u64) {
        for (i, frame) in self.frames().take(64).enumerate() {
            frame.was_late.set(late >> i & 1 == 1);
        }
    }

    /// Whether waits must end, and why. Scopes whose own deadline has passed record that.
    #[inline]
    pub(crate) fn over(self) -> Option<Over> {
        if self.is_some() {
            self.why_over()
        } else {
            None
        }
    }

    /// The innermost scope that is over says why. A context that was cancelled in time stays
    /// cancelled when its deadline passes.
    #[cold]
    fn why_over(self) -> Option<Over> {
        let now_ns = match self.deadline_ns() {
            NEVER => 0,
            _ => clock::now_ns(),
        };
        let mut why = None;
        for frame in self.frames() {
            let is_late = frame.deadline_ns.get() <= now_ns;
            if is_late {
                frame.was_late.set(true);
            }
            let own = match frame.word.is_set() {
                true => Some(Over::Cancelled),
                false => is_late.then_some(Over::Late),
            };
            why = why.or(own);
        }
        why
    }
}

/// The scopes of a context, as a queue. Guarded by the context's lock, which must be held for every
/// method.
#[derive(Debug)]
pub(crate) struct CancelScopes {
    head: Cell<*const CancelScope>,
    tail: Cell<*const CancelScope>,
}

// SAFETY: the scopes are accessed only under the context's lock, and stay until they are removed.
unsafe impl Send for CancelScopes {}

impl CancelScopes {
    pub(crate) const fn new() -> CancelScopes {
        CancelScopes {
            head: Cell::new(ptr::null()),
            tail: Cell::new(ptr::null()),
        }
    }

    /// Appends a scope.
    ///
    /// # Safety
    ///
    /// The context's lock is held; the scope is in no list, and stays in place until it is removed.
    pub(crate) unsafe fn push(&self, frame: &CancelScope) {
        frame.queued.set(true);
        frame.prev.set(self.tail.get());
        frame.next.set(ptr::null());
        // SAFETY: scopes in the list are alive, by the contract of this function.
        match unsafe { self.tail.get().as_ref() } {
            Some(tail) => tail.next.set(frame),
            None => self.head.set(frame),
        }
        self.tail.set(frame);
    }

    /// Removes a scope, if it is still in the list.
    pub(crate) fn remove(&self, frame: &CancelScope) {
        if !frame.queued.replace(false) {
            return;
        }
        // SAFETY: as in `push`.
        let (prev, next) = unsafe { (frame.prev.get().as_ref(), frame.next.get().as_ref()) };
        match prev {
            Some(prev) => prev.next.set(frame.next.get()),
            None => self.head.set(frame.next.get()),
        }
        match next {
            Some(next) => next.prev.set(frame.prev.get()),
            None => self.tail.set(frame.prev.get()),
        }
    }

    /// The first scope, valid while the lock is held.
    pub(crate) fn first<'a>(&self) -> Option<&'a CancelScope> {
        // SAFETY: as in `push`.
        unsafe { self.head.get().as_ref() }
    }
}

#[cfg(all(test, any(loom, miri)))]
#[path = "cancel_wait_loom_tests.rs"]
mod loom_tests;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::g::status::{Reason, WaitId, Why};

    #[test]
    fn what_is_forgiven_is_what_came_since() {
        let outer = CancelScope::new(None, 0);
        outer.enter(ScopeChain::NONE);
        assert_eq!(ScopeChain::of(&outer).over(), Some(Over::Late));
        let inner = CancelScope::new(None, 0);
        inner.enter(ScopeChain::of(&outer));
        let chain = ScopeChain::of(&inner);
        let late = chain.late();
        assert_eq!(chain.over(), Some(Over::Late));
        assert!(outer.was_late() && inner.was_late());
        chain.forgive(late);
        assert!(outer.was_late() && !inner.was_late());
        inner.leave();
        outer.leave();
    }

    #[test]
    fn the_earliest_deadline_counts_up_to_a_shield() {
        let outer = CancelScope::new(None, 50);
        outer.enter(ScopeChain::NONE);
        let inner = CancelScope::new(None, 70);
        inner.enter(ScopeChain::of(&outer));
        assert_eq!(ScopeChain::of(&inner).deadline_ns(), 50);
        let shield = CancelScope::shield(None);
        shield.enter(ScopeChain::of(&inner));
        assert_eq!(ScopeChain::of(&shield).deadline_ns(), NEVER);
        assert!(!ScopeChain::of(&shield).is_some());
        let within = CancelScope::new(None, NEVER);
        within.enter(ScopeChain::of(&shield));
        outer.word.set();
        assert!(!ScopeChain::of(&within).is_set());
        within.leave();
        assert_eq!(shield.leave(), ScopeChain::of(&inner));
        assert!(ScopeChain::of(&inner).is_set());
        assert_eq!(ScopeChain::of(&inner).over(), Some(Over::Late));
        assert!(outer.was_late() && inner.was_late());
    }

    fn sleeps(status: &Status) -> WaitId {
        status.set_waiting(Why::cancellable(Reason::Sleep, true), 0)
    }

    #[test]
    fn a_shield_counts_that_is_entered_before_the_wait() {
        let (status, word) = (Status::running(), CancelFlag::default());
        word.set();
        let wait = word.wait_to_cancel(|| {
            word.mask();
            sleeps(&status);
            status.load()
        });
        assert!(wait.is_none());
    }

    #[test]
    fn a_masked_word_lets_waits_be() {
        let status = Status::running();
        let wait = sleeps(&status);
        let word = CancelFlag::default();
        word.mask();
        word.set();
        assert!(word.wait_to_cancel(|| status.load()).is_none());
        word.unmask();
        let found = word
            .wait_to_cancel(|| status.load())
            .and_then(Status::wait_of);
        assert_eq!(found, Some(wait));
    }

    #[test]
    fn frames_leave_from_anywhere() {
        let frames = [0, 1, 2].map(|i| CancelScope::new(None, i));
        let list = CancelScopes::new();
        for frame in &frames {
            // SAFETY: no other thread has the list, and the scopes outlive it.
            unsafe { list.push(frame) };
        }
        list.remove(&frames[1]);
        list.remove(&frames[1]);
        list.remove(&frames[2]);
        assert!(list.first().is_some_and(|f| ptr::eq(f, &frames[0])));
        list.remove(&frames[0]);
        assert!(list.first().is_none());
    }
}

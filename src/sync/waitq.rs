//! The wait queue of channels, select, locks, condition variables and semaphores. Its waiters are
//! goroutines and plain threads, in first-in, first-out order.
//!
//! ```text
//!  queue (in a channel, under its lock)       stack frames of the waiters
//!  head --> WaitNode{tag, slot} ------------>  Waiter{who, wait, chosen}
//!            |                                   ^
//!  tail --> WaitNode{tag, slot} -----------------|   a select: one waiter,
//!                                                    a node in each queue
//! ```
//!
//! Nodes and waiters lie on the stack frame of the waiting function, so nothing is allocated. The
//! frame stays valid, because its owner removes its nodes under the lock of each queue before it
//! returns.
//!
//! | waiter                                 | taker                                 |
//! |----------------------------------------|---------------------------------------|
//! | 1. enter the scheduler ([`WaitCtx`]), so | 1. lock                               |
//! |    that its P is not taken from here   | 2. unlink the first node              |
//! |    on                                  | 3. take the wake token of its waiter; |
//! | 2. lock (a select: all, by address)    |    if another waker has it: go to 2   |
//! | 3. not possible yet: push nodes        | 4. move the value from or to `slot`,  |
//! | 4. switch; the M makes the wait        |    store the node's `tag` in `chosen` |
//! |    visible, unlocks, arms the timer    | 5. unlock                             |
//! | 5. resumed: `chosen` is the tag. If no | 6. ready the waiter                   |
//! |    taker set it (timer, shutdown), or  |                                       |
//! |    there are several nodes: lock and   |                                       |
//! |    remove the nodes                    |                                       |
//!
//! The wake token (`g::status`) decides a select, and a race between a value and a timer: the taker
//! that gets the token has exclusive access to the waiter until it readies it. For a thread, a word
//! in the waiter is the token.
//!
//! The unlock in step 4 is the M's last access to the frame. With several locks, the goroutine
//! needs all of them in step 5, so it cannot leave the frame before the last one is released.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::ptr::{self, NonNull};

use crate::bubble;
use crate::g::cancel_wait::ScopeChain;
use crate::g::coro::Switch;
use crate::g::header::GRef;
use crate::g::list::GList;
use crate::g::status::{Reason, WaitId};
use crate::loom::{self, AtomicU32, AtomicU64, Ordering};
use crate::sched::types::current;
use crate::sched::types::m::M;
use crate::sched::types::state::Phase;
use crate::sched::wait::handoff::Section;
use crate::sched::wait::park;
use crate::sched::wait::points;
use crate::sched::wait::sleep;
use crate::sched::wait::turn;
use crate::sched::wait::wake;
use crate::sys::clock::{self, NEVER};
use crate::util::chaos::{self, Point};
use crate::util::choice;

/// Reason of a wait, and the events that end it besides a taker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitOptions {
    pub(crate) reason: Reason,
    pub(crate) deadline_ns: u64,
    /// Whether the ambient context ends the wait. Only for waits that can report that to their
    /// caller.
    pub(crate) by_context: bool,
}

impl WaitOptions {
    /// The options of a wait that only a taker or a shutdown ends.
    #[inline]
    pub(crate) fn new(reason: Reason) -> WaitOptions {
        WaitOptions {
            reason,
            deadline_ns: NEVER,
            by_context: false,
        }
    }

    /// The deadline ends the wait, too.
    #[inline]
    pub(crate) fn until(self, deadline_ns: u64) -> WaitOptions {
        WaitOptions {
            deadline_ns,
            ..self
        }
    }

    /// The ambient context ends the wait, too, if `yes`.
    #[inline]
    pub(crate) fn by_context(self, yes: bool) -> WaitOptions {
        WaitOptions {
            by_context: yes,
            ..self
        }
    }
}

/// The caller of code that holds a queue's lock: a goroutine inside the scheduler, or a plain
/// thread. While a goroutine is inside, its P is not taken, so the holder of a lock always has a P.
/// Created before the lock is taken, and dropped after it is released.
///
/// While it exists, the caller parks only by [`WaitCtx::wait`] and runs no user code.
#[derive(Debug)]
pub(crate) struct WaitCtx<'a> {
    section: Option<Section<'a>>,
    g: Option<GRef>,
}

impl WaitCtx<'_> {
    /// Enters the scheduler. If the goroutine's P was taken, it may first move to another thread.
    #[inline]
    pub(crate) fn enter<'a>() -> WaitCtx<'a> {
        let section = Section::enter();
        let g = match &section {
            // An unwinding goroutine waits as a thread does: it must not switch stacks.
            Some(section) if !std::thread::panicking() => section.m().curg.get(),
            _ => None,
        };
        WaitCtx { section, g }
    }

    /// As [`WaitCtx::enter`], but leaves the goroutine on its thread: for a caller that does not
    /// wait. Not one function with `enter`: the compiler then inlines `enter` less well.
    pub(crate) fn enter_in_place<'a>() -> WaitCtx<'a> {
        let section = Section::enter_in_place();
        let g = match &section {
            Some(section) if !std::thread::panicking() => section.m().curg.get(),
            _ => None,
        };
        WaitCtx { section, g }
    }

    /// That of a commit, whose M holds its P.
    pub(crate) fn of_commit<'a>() -> WaitCtx<'a> {
        WaitCtx {
            section: None,
            g: None,
        }
    }

    /// Waits until a taker chooses one of the waiter's nodes, or until the deadline. Returns the
    /// tag of the chosen node, or `None`.
    ///
    /// The caller has pushed the nodes under the locks of their queues, which are still held;
    /// `unlock` releases them. After `None`, or after a choice among several nodes, the caller
    /// locks again and removes its nodes before it leaves the frame.
    ///
    /// `None` before the deadline means that the wait was cut short: see [`points::cancel_point`],
    /// and `current_context::check` for waits that a context ends.
    #[inline]
    pub(crate) fn wait(
        self,
        waiter: &Waiter,
        options: WaitOptions,
        unlock: impl FnOnce(),
    ) -> Option<usize> {
        match (self.g, self.section) {
            (Some(g), Some(section)) => {
                let chain = if options.by_context {
                    park::chain_of(g)
                } else {
                    ScopeChain::NONE
                };
                let until_ns = options.deadline_ns.min(chain.deadline_ns());
                let begin = move |_, wait, _: &M, is_done: bool| {
                    waiter.wait.set(wait);
                    unlock();
                    !is_done
                };
                let was_woken = || waiter.chosen().is_some();
                park::park_until::<false>(
                    section,
                    options.reason,
                    move || until_ns,
                    chain,
                    begin,
                    was_woken,
                );
                let chosen = waiter.chosen();
                chaos::pause(Point::Claim);
                chosen
            }
            (_, section) => {
                // A sleeping thread is outside the scheduler: its P may be taken.
                unlock();
                drop(section);
                waiter.wait_on_thread(options);
                waiter.chosen()
            }
        }
    }

    /// Leaves the scheduler, and lets the goroutine that was readied last run before the caller
    /// continues. Only leaves if the caller is not a goroutine.
    pub(crate) fn yield_to_readied(self) {
        if let (Some(_), Some(section)) = (self.g, self.section) {
            section.switch_out(Switch::YIELD);
        }
    }

    /// Whether the runtime of the calling goroutine shuts down, so that a wait would be cut short.
    /// Then [`points::cancel_point`] unwinds the goroutine, once this `WaitCtx` is dropped.
    #[inline]
    pub(crate) fn is_cancelled(&self) -> bool {
        match &self.section {
            Some(section) => {
                let m = section.m();
                let ends = m.sched().phase() >= Phase::Cancelling || bubble::is_lost();
                ends && m.curg.get().is_some()
            }
            None => points::is_cancelled() && current::g().is_some(),
        }
    }

    /// A random number below `n`, which must not be 0.
    #[inline]
    pub(crate) fn random_below(&self, n: usize) -> usize {
        let section = self.section.as_ref();
        choice::below(n, section.map(|section| &section.m().p().local.random))
    }
}

#[derive(Debug)]
enum WaiterKind {
    Goroutine(GRef),
    Thread,
}

const NOTHING_CHOSEN: u64 = u64::MAX;

/// States of a thread's word. WAITING: the thread polls the word. SLEEPING: it sleeps on the word.
const WAITING: u32 = 0;
const SLEEPING: u32 = WAITING | ASLEEP;
/// A taker has claimed the waiter and will store READY soon, unless the kernel preempts the taker.
const TAKEN_WAITING: u32 = 2;
const TAKEN_SLEEPING: u32 = TAKEN_WAITING | ASLEEP;
/// The taker that stores READY has to wake the thread.
const ASLEEP: u32 = 1;
/// The thread may continue.
const READY: u32 = 4;
/// The thread gave up: takers can no longer claim it.
const GONE: u32 = 5;

/// Number of checks of the word before the thread sleeps on it.
const SPINS: u32 = if cfg!(loom) { 1 } else { 64 };

/// A waiting goroutine or thread, one per wait, on its stack frame.
#[derive(Debug)]
pub(crate) struct Waiter {
    who: WaiterKind,
    /// Written by the park commit under all locks, read by takers under one of them.
    wait: Cell<WaitId>,
    /// Tag of the node that was taken. Written by the taker, which has exclusive access to the
    /// waiter; read after the wake. Ordering: relaxed, the wake publishes it.
    chosen: AtomicU64,
    /// Used for threads. Ordering: the taker claims it by a CAS under the queue's lock; READY
    /// releases the taker's writes, and the thread acquires them.
    word: AtomicU32,
}

impl Waiter {
    /// A waiter for the goroutine or thread of `ctx`.
    #[inline]
    pub(crate) fn new(ctx: &WaitCtx<'_>) -> Waiter {
        Waiter::of_kind(ctx.g.map_or(WaiterKind::Thread, WaiterKind::Goroutine))
    }

    /// A waiter for a goroutine that is to wait without a stack.
    pub(crate) fn of(g: GRef) -> Waiter {
        Waiter::of_kind(WaiterKind::Goroutine(g))
    }

    #[inline(always)]
    fn of_kind(who: WaiterKind) -> Waiter {
        Waiter {
            who,
            wait: Cell::new(WaitId::default()),
            chosen: AtomicU64::new(NOTHING_CHOSEN),
            word: AtomicU32::new(WAITING),
        }
    }

    /// Binds it to its wait, in the commit, before its nodes are in a queue.
    pub(crate) fn bind(&self, wait: WaitId) {
        self.wait.set(wait);
    }

    /// Whether a taker has ended its wait.
    pub(crate) fn was_taken(&self) -> bool {
        self.chosen().is_some()
    }

    #[inline]
    fn chosen(&self) -> Option<usize> {
        let tag = self.chosen.load(Ordering::Relaxed);
        (tag != NOTHING_CHOSEN).then_some(tag as usize)
    }

    /// The taker's claim. The caller holds the lock of a queue that the waiter is in.
    #[inline]
    fn claim(&self) -> bool {
        match self.who {
            WaiterKind::Goroutine(g) => g.status.wake(self.wait.get()),
            WaiterKind::Thread => [(WAITING, TAKEN_WAITING), (SLEEPING, TAKEN_SLEEPING)]
                .into_iter()
                .any(|(from, to)| {
                    self.word
                        .compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed)
                        .is_ok()
                }),
        }
    }

    /// Blocks the thread until a taker has served this waiter, or the thread has given up.
    fn wait_on_thread(&self, options: WaitOptions) {
        // Neither a shutdown nor a context wakes a thread. So a thread that they concern polls for
        // them.
        let chain = if options.by_context {
            park::current_chain()
        } else {
            ScopeChain::NONE
        };
        let deadline_ns = options.deadline_ns.min(chain.deadline_ns());
        let look_up_ns = sleep::look_up_ns(chain);
        let looks_up = look_up_ns != NEVER;
        let mut spins = SPINS;
        loop {
            match self.word.load(Ordering::Acquire) {
                READY => return,
                WAITING | TAKEN_WAITING if spins > 0 => {
                    spins -= 1;
                    loom::spin_loop();
                }
                awake @ (WAITING | TAKEN_WAITING) => {
                    self.swap_word(awake, awake | ASLEEP);
                }
                SLEEPING => {
                    let left_ns = clock::left_ns(deadline_ns);
                    if left_ns == 0 || looks_up && (chain.is_set() || is_cut_short(options.reason))
                    {
                        if self.swap_word(SLEEPING, GONE) {
                            return;
                        }
                    } else {
                        if turn::block_thread(deadline_ns) {
                            continue;
                        }
                        loom::futex_wait(&self.word, SLEEPING, left_ns.min(look_up_ns));
                    }
                }
                taken => loom::futex_wait(&self.word, taken, NEVER),
            }
        }
    }

    /// A step of the waiting thread itself. It publishes nothing.
    fn swap_word(&self, from: u32, to: u32) -> bool {
        self.word
            .compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }
}

/// Whether a goroutine that waits as a thread stops waiting because its runtime shuts down. A wait
/// for a lock in a destructor goes on, because it has no other result to return.
fn is_cut_short(reason: Reason) -> bool {
    points::is_cancelled() && !(reason.is_lock() && std::thread::panicking())
}

/// A waiter's entry in one queue, on the waiter's stack frame.
#[derive(Debug)]
pub(crate) struct WaitNode {
    waiter: *const Waiter,
    /// Identifies this entry to the waiter.
    tag: usize,
    /// Defined by the owner of the queue: the address of the value, or the amount requested.
    slot: Cell<*mut ()>,
    /// Ordering: this flag and the two pointers are guarded by the queue's lock.
    queued: Cell<bool>,
    prev: Cell<*const WaitNode>,
    next: Cell<*const WaitNode>,
}

impl WaitNode {
    #[inline]
    pub(crate) fn new(waiter: &Waiter, tag: usize, slot: *mut ()) -> WaitNode {
        WaitNode {
            waiter,
            tag,
            slot: Cell::new(slot),
            queued: Cell::new(false),
            prev: Cell::new(ptr::null()),
            next: Cell::new(ptr::null()),
        }
    }
}

/// Waiters in order of arrival. Guarded by the lock of its owner, which the caller of every method
/// must hold.
#[derive(Debug)]
pub(crate) struct WaitQueue {
    head: Cell<*const WaitNode>,
    tail: Cell<*const WaitNode>,
}

// SAFETY: the nodes are followed only under the owner's lock, and a frame stays valid until its
// nodes are out of the queue.
unsafe impl Send for WaitQueue {}

impl WaitQueue {
    pub(crate) const fn new() -> WaitQueue {
        WaitQueue {
            head: Cell::new(ptr::null()),
            tail: Cell::new(ptr::null()),
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.head.get().is_null()
    }

    /// Appends a node.
    ///
    /// # Safety
    ///
    /// - The owner's lock is held, and the node is in no queue.
    /// - The node and its waiter are not moved or dropped until the node was taken by
    ///   [`WaitQueue::take`] and its waiter readied, or until the node was removed.
    #[inline]
    pub(crate) unsafe fn push_back(&self, node: &WaitNode) {
        debug_assert!(!node.queued.get(), "a node is in one queue");
        node.queued.set(true);
        node.next.set(ptr::null());
        node.prev.set(self.tail.get());
        // SAFETY: nodes in the queue are alive by the contract of this function.
        match unsafe { self.tail.get().as_ref() } {
            Some(tail) => tail.next.set(node),
            None => self.head.set(node),
        }
        self.tail.set(node);
    }

    /// Prepends a node.
    ///
    /// # Safety
    ///
    /// As [`WaitQueue::push_back`].
    pub(crate) unsafe fn push_front(&self, node: &WaitNode) {
        debug_assert!(!node.queued.get(), "a node is in one queue");
        node.queued.set(true);
        node.prev.set(ptr::null());
        node.next.set(self.head.get());
        // SAFETY: nodes in the queue are alive by the contract of this function.
        match unsafe { self.head.get().as_ref() } {
            Some(head) => head.prev.set(node),
            None => self.tail.set(node),
        }
        self.head.set(node);
    }

    /// Removes a node, if it is still in the queue.
    #[inline]
    pub(crate) fn remove(&self, node: &WaitNode) {
        if !node.queued.replace(false) {
            return;
        }
        // SAFETY: nodes in the queue are alive, by the contract of `push_back`.
        let (prev, next) = unsafe { (node.prev.get().as_ref(), node.next.get().as_ref()) };
        match prev {
            Some(prev) => prev.next.set(node.next.get()),
            None => self.head.set(node.next.get()),
        }
        match next {
            Some(next) => next.prev.set(node.prev.get()),
            None => self.tail.set(node.prev.get()),
        }
    }

    /// Takes the first waiter that can still be claimed. The caller then has exclusive access to
    /// it, may read and write the value that its slot points to, unlocks, and readies the waiter.
    #[inline]
    pub(crate) fn take(&self) -> Option<Dequeued> {
        self.take_if(|_| true)
    }

    /// As [`WaitQueue::take`], but only of waiters that are wanted: a select does not meet itself.
    #[inline]
    pub(crate) fn take_if(&self, is_wanted: impl Fn(&Waiter) -> bool) -> Option<Dequeued> {
        let mut at = self.head.get();
        // SAFETY: as in `remove`.
        while let Some(node) = unsafe { at.as_ref() } {
            at = node.next.get();
            // SAFETY: a queued node's waiter is alive as the node is.
            let waiter = unsafe { &*node.waiter };
            if !is_wanted(waiter) {
                continue;
            }
            if let Some(taken) = self.claim(node, waiter) {
                return Some(taken);
            }
        }
        None
    }

    /// Takes the first waiter, if its request (the slot) can be served. A waiter that cannot be
    /// served blocks all waiters behind it, even while it is giving up; when it has left the queue,
    /// it checks itself whether the next one can be served.
    pub(crate) fn take_front_if(&self, can_be_given: impl Fn(*mut ()) -> bool) -> Option<Dequeued> {
        // SAFETY: as in `remove`.
        while let Some(node) = unsafe { self.head.get().as_ref() } {
            if !can_be_given(node.slot.get()) {
                return None;
            }
            // SAFETY: a queued node's waiter is alive as the node is.
            let waiter = unsafe { &*node.waiter };
            if let Some(taken) = self.claim(node, waiter) {
                return Some(taken);
            }
        }
        None
    }

    /// Takes all waiters that can still be claimed.
    pub(crate) fn take_all(&self) -> DequeuedList {
        let mut all = DequeuedList::new();
        while let Some(taken) = self.take() {
            all.push(taken);
        }
        all
    }

    /// Removes a node, and returns its waiter if it can be claimed. If the claim fails, another
    /// waker has woken the waiter, which will find this node removed.
    #[inline]
    fn claim(&self, node: &WaitNode, waiter: &Waiter) -> Option<Dequeued> {
        self.remove(node);
        chaos::pause(Point::Claim);
        if !waiter.claim() {
            return None;
        }
        waiter.chosen.store(node.tag as u64, Ordering::Relaxed);
        Some(Dequeued {
            waiter: NonNull::from(waiter),
            node: NonNull::from(node),
        })
    }
}

impl Drop for WaitQueue {
    fn drop(&mut self) {
        debug_assert!(self.is_empty(), "somebody waits in a queue that goes away");
    }
}

/// A waiter whose wake token the caller owns. Its frame stays valid until it is readied.
#[must_use = "it sleeps for ever unless it is readied"]
#[derive(Debug)]
pub(crate) struct Dequeued {
    waiter: NonNull<Waiter>,
    node: NonNull<WaitNode>,
}

impl Dequeued {
    /// The slot of the waiter's node.
    #[inline]
    pub(crate) fn slot(&self) -> *mut () {
        // SAFETY: the frame with the node stays valid until the waiter is readied.
        unsafe { self.node.as_ref() }.slot.get()
    }

    /// Gives the waiter a result, in place of the tag of the node that was chosen.
    #[inline]
    pub(crate) fn report(&self, tag: usize) {
        // SAFETY: as for the node.
        let waiter = unsafe { self.waiter.as_ref() };
        waiter.chosen.store(tag as u64, Ordering::Relaxed);
    }

    /// Whether the waiter is a goroutine, not a thread.
    pub(crate) fn is_goroutine(&self) -> bool {
        // SAFETY: as for the node.
        let waiter = unsafe { self.waiter.as_ref() };
        matches!(waiter.who, WaiterKind::Goroutine(_))
    }

    /// Readies the waiter. The caller must not hold a lock that the waiter needs: a woken thread
    /// would contend for it at once.
    #[inline]
    pub(crate) fn ready(self, ctx: &WaitCtx<'_>) {
        let Some(g) = self.wake_thread() else {
            return;
        };
        match ctx.section_of(g) {
            Some(section) => wake::ready(section.m(), g),
            None => wake::ready_from_outside(g),
        }
    }

    /// Wakes a thread. Returns a goroutine, which the caller has to queue.
    fn wake_thread(self) -> Option<GRef> {
        chaos::pause(Point::Claim);
        // SAFETY: the frame of a taken waiter stays valid until it is readied: a thread below, a
        // goroutine by the caller.
        let waiter = unsafe { self.waiter.as_ref() };
        if let WaiterKind::Goroutine(g) = waiter.who {
            return Some(g);
        }
        let word = &raw const waiter.word;
        // The frame may be invalid after this swap.
        if waiter.word.swap(READY, Ordering::AcqRel) == TAKEN_SLEEPING {
            loom::futex_wake_one(word);
        }
        None
    }
}

impl<'a> WaitCtx<'a> {
    /// The caller's section, if it is in the scheduler that `g` belongs to.
    #[inline]
    fn section_of(&self, g: GRef) -> Option<&Section<'a>> {
        self.section
            .as_ref()
            .filter(|section| ptr::eq(section.m().sched.cast(), g.sched()))
    }
}

/// Waiters that were taken together, in order, chained through their nodes. They are taken under a
/// lock and readied after it is released.
#[must_use = "they sleep for ever unless they are readied"]
#[derive(Debug)]
pub(crate) struct DequeuedList {
    head: *const WaitNode,
    tail: *const WaitNode,
}

impl DequeuedList {
    pub(crate) const fn new() -> DequeuedList {
        DequeuedList {
            head: ptr::null(),
            tail: ptr::null(),
        }
    }

    #[inline]
    pub(crate) fn push(&mut self, taken: Dequeued) {
        let node = taken.node;
        // SAFETY: frames of taken waiters stay valid until they are readied, and only this list
        // uses their nodes: they are in no queue, and their waiters do not run.
        unsafe { node.as_ref() }.next.set(ptr::null());
        // SAFETY: as above.
        match unsafe { self.tail.as_ref() } {
            Some(tail) => tail.next.set(node.as_ptr()),
            None => self.head = node.as_ptr(),
        }
        self.tail = node.as_ptr();
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.head.is_null()
    }

    /// Appends the waiters of `other`.
    #[inline]
    pub(crate) fn append(&mut self, mut other: DequeuedList) {
        while let Some(taken) = other.pop() {
            self.push(taken);
        }
    }

    fn pop(&mut self) -> Option<Dequeued> {
        // SAFETY: as in `push`.
        let node = unsafe { self.head.as_ref() }?;
        self.head = node.next.get();
        if self.head.is_null() {
            self.tail = ptr::null();
        }
        Some(Dequeued {
            waiter: NonNull::new(node.waiter.cast_mut())?,
            node: NonNull::from(node),
        })
    }

    /// Readies all waiters, as [`Dequeued::ready`].
    #[inline]
    pub(crate) fn ready(mut self, ctx: &WaitCtx<'_>) {
        if !self.is_empty() {
            self.ready_all(ctx);
        }
    }

    fn ready_all(&mut self, ctx: &WaitCtx<'_>) {
        let mut gs = GList::new();
        while let Some(taken) = self.pop() {
            match taken.wake_thread() {
                Some(g) if ctx.section_of(g).is_some() => gs.push(g),
                Some(g) => wake::ready_from_outside(g),
                None => {}
            }
        }
        if let (Some(section), false) = (&ctx.section, gs.is_empty()) {
            wake::ready_all(section.m(), gs);
        }
    }
}

#[cfg(all(test, any(loom, miri)))]
#[path = "waitq_loom_tests.rs"]
mod loom_tests;

#[cfg(all(test, not(loom)))]
#[path = "waitq_tests.rs"]
mod tests;

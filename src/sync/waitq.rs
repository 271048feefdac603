//! The one waiting list: goroutines and plain threads, first in, first out, under
//! channels, select, locks, condition variables and semaphores.
//!
//! ```text
//!  queue (in a channel, under its lock)       frames of those who wait
//!  head --> Link{tag, slot} ---------------->  Waiter{who, wait, chosen}
//!            |                                   ^
//!  tail --> Link{tag, slot} ---------------------|   a select: one waiter,
//!                                                    a link in each queue
//! ```
//!
//! Links and waiters lie on the waiting frame: nothing is allocated. A frame stays
//! because its owner removes its links, under the lock of each queue, before it goes on.
//!
//! | waiter                                 | taker                                 |
//! |----------------------------------------|---------------------------------------|
//! | 1. inside the scheduler ([`Here`]), so | 1. lock                               |
//! |    no one takes its P from here on     | 2. unlink the first                   |
//! | 2. lock (a select: all, by address)    | 3. take its wake token; if that       |
//! | 3. nothing to be had: push links       |    fails, somebody else woke it: 2.   |
//! | 4. switch; the M makes the wait        | 4. move the value from or to `slot`,  |
//! |    visible, arms the timer, unlocks    |    say which `tag` it was             |
//! | 5. resumed: `chosen` says by whom; by  | 5. unlock                             |
//! |    nobody (timer, shutdown) or one of  | 6. ready it                           |
//! |    several: lock, remove the links     |                                       |
//!
//! The wake token (`g::status`) is the one winner of a select and of a race between
//! a value and a timer: who has it has the waiter to itself until it readies it. For a
//! thread a word on its frame does the same.
//!
//! The unlocking in step 4 is the last access to the frame: of several locks the
//! goroutine needs all in step 5, so it cannot leave before the last one is free.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::ptr::{self, NonNull};

use crate::g::coro::Switch;
use crate::g::cut::Chain;
use crate::g::header::GRef;
use crate::g::list::GList;
use crate::g::status::{Reason, WaitId, Why};
use crate::loom::{self, AtomicU32, AtomicU64, Ordering};
use crate::sched::handoff::Section;
use crate::sched::park;
use crate::sched::state::Phase;
use crate::sched::wake;
use crate::sys::clock::{self, NEVER};
use crate::util::chaos::{self, Point};
use crate::util::random;

/// What a wait is for, and what ends it if no taker does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) reason: Reason,
    pub(crate) deadline_ns: u64,
    /// The ambient context ends it. Not a wait whose caller could not tell the difference.
    pub(crate) by_context: bool,
}

impl Terms {
    /// Only a taker ends it, or the end of the run.
    #[inline]
    pub(crate) fn new(reason: Reason) -> Terms {
        Terms {
            reason,
            deadline_ns: NEVER,
            by_context: false,
        }
    }

    /// So does the deadline.
    #[inline]
    pub(crate) fn until(self, deadline_ns: u64) -> Terms {
        Terms {
            deadline_ns,
            ..self
        }
    }

    /// So does the ambient context, if `yes`.
    #[inline]
    pub(crate) fn by_context(self, yes: bool) -> Terms {
        Terms {
            by_context: yes,
            ..self
        }
    }
}

/// Where the code runs that holds a queue's lock: a goroutine, which then is inside the
/// scheduler (nobody takes its P, so a lock's holder is never without one), or a plain
/// thread. Made before the lock is taken and dropped after it is free.
///
/// In it nothing parks but by [`Here::wait`], and no user code is called.
#[derive(Debug)]
pub(crate) struct Here<'a> {
    section: Option<Section<'a>>,
    g: Option<GRef>,
}

impl Here<'_> {
    /// Enters. May first move a goroutine to another thread, if its P was taken.
    #[inline]
    pub(crate) fn enter<'a>() -> Here<'a> {
        let section = Section::enter();
        let g = match &section {
            // While it unwinds, a goroutine waits as a thread does: no switch then.
            Some(section) if !std::thread::panicking() => section.m().curg.get(),
            _ => None,
        };
        Here { section, g }
    }

    /// Waits until a taker chooses one of the waiter's links, or the deadline.
    /// Gives the tag of the link, or `None`.
    ///
    /// The caller has pushed the links under their queues' locks, which are still held;
    /// `unlock` gives them back. After `None`, and after a choice among several, the
    /// caller locks again and removes the links before it leaves the frame.
    ///
    /// A `None` before the deadline means that the wait was cut short: see
    /// [`park::cancel_point`], and `sched::ambient::check` for waits that a context ends.
    #[inline]
    pub(crate) fn wait(
        self,
        waiter: &Waiter,
        terms: Terms,
        unlock: impl FnOnce(),
    ) -> Option<usize> {
        match (self.g, self.section) {
            (Some(g), Some(section)) => {
                let chain = if terms.by_context {
                    park::chain_of(g)
                } else {
                    Chain::NONE
                };
                let deadline_ns = terms.deadline_ns.min(chain.deadline_ns());
                let timer_on = section.m().p().idx;
                let why = Why::may_cut(terms.reason, chain.is_some());
                park::park_in(section, why, move |g, wait, m| {
                    waiter.wait.set(wait);
                    let is_cut = chain.is_set();
                    if deadline_ns != NEVER && !is_cut {
                        m.p().timers.add(deadline_ns, g, wait);
                    }
                    unlock();
                    !is_cut
                });
                let chosen = waiter.chosen();
                chaos::pause(Point::Claim);
                if deadline_ns != NEVER && (chosen.is_some() || chain.is_set()) {
                    park::note_stale_timer(Some(timer_on));
                }
                chosen
            }
            (_, section) => {
                // A thread that sleeps has left the scheduler: its P may be taken.
                unlock();
                drop(section);
                waiter.wait_on_thread(terms);
                waiter.chosen()
            }
        }
    }

    /// Leaves, and lets the goroutine that was readied last run before the caller goes
    /// on. Does no more than leave where the caller is no goroutine.
    pub(crate) fn give_way(self) {
        if let (Some(_), Some(section)) = (self.g, self.section) {
            section.switch_out(Switch::YIELD);
        }
    }

    /// Whether the runtime of the goroutine here ends, so that a wait would be cut short:
    /// [`park::cancel_point`] then unwinds it, once this is dropped.
    #[inline]
    pub(crate) fn is_cancelled(&self) -> bool {
        match &self.section {
            Some(section) => {
                let m = section.m();
                m.sched().phase() >= Phase::Cancelling && m.curg.get().is_some()
            }
            None => park::is_cancelled() && park::current_g().is_some(),
        }
    }

    /// A random number below `n`, which is not 0.
    #[inline]
    pub(crate) fn random_below(&self, n: usize) -> usize {
        match &self.section {
            Some(section) => section.m().p().local.random.below(n),
            None => random::shared_below(n),
        }
    }
}

#[derive(Debug)]
enum Who {
    Goroutine(GRef),
    Thread,
}

const NOTHING_CHOSEN: u64 = u64::MAX;

/// A thread's word: it waits, and looks at the word; it sleeps on the word.
const WAITING: u32 = 0;
const SLEEPING: u32 = WAITING | ASLEEP;
/// A taker has it, and will say READY soon, unless the kernel interrupts it.
const TAKEN_WAITING: u32 = 2;
const TAKEN_SLEEPING: u32 = TAKEN_WAITING | ASLEEP;
/// Whoever says READY has to wake it.
const ASLEEP: u32 = 1;
/// It may go on.
const READY: u32 = 4;
/// It gave up: too late for takers.
const GONE: u32 = 5;

/// Looks at the word before sleeping on it.
const SPINS: u32 = if cfg!(loom) { 1 } else { 64 };

/// Who waits, once per wait: on the waiting frame.
#[derive(Debug)]
pub(crate) struct Waiter {
    who: Who,
    /// Set by the commit under all locks, read by takers under one of them.
    wait: Cell<WaitId>,
    /// The tag of the link that was taken. Written by the taker, who has the waiter to
    /// itself; read after the wake. Ordering: relaxed, the wake publishes it.
    chosen: AtomicU64,
    /// For a thread. Ordering: the taker's claim is a relaxed CAS under the queue's
    /// lock; READY releases the taker's writes, and the thread acquires them.
    word: AtomicU32,
}

impl Waiter {
    /// For whoever is `here`.
    #[inline]
    pub(crate) fn new(here: &Here<'_>) -> Waiter {
        Waiter {
            who: here.g.map_or(Who::Thread, Who::Goroutine),
            wait: Cell::new(WaitId::default()),
            chosen: AtomicU64::new(NOTHING_CHOSEN),
            word: AtomicU32::new(WAITING),
        }
    }

    #[inline]
    fn chosen(&self) -> Option<usize> {
        let tag = self.chosen.load(Ordering::Relaxed);
        (tag != NOTHING_CHOSEN).then_some(tag as usize)
    }

    /// The taker's claim, under the lock of a queue that the waiter is in.
    #[inline]
    fn claim(&self) -> bool {
        match self.who {
            Who::Goroutine(g) => g.status.wake(self.wait.get()),
            Who::Thread => [(WAITING, TAKEN_WAITING), (SLEEPING, TAKEN_SLEEPING)]
                .into_iter()
                .any(|(from, to)| {
                    self.word
                        .compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed)
                        .is_ok()
                }),
        }
    }

    /// Blocks the thread until a taker is done with this waiter, or it gave up.
    fn wait_on_thread(&self, terms: Terms) {
        // The end of a run wakes no thread, nor does a context: whoever has to look for them does.
        let chain = if terms.by_context {
            park::current_chain()
        } else {
            Chain::NONE
        };
        let deadline_ns = terms.deadline_ns.min(chain.deadline_ns());
        let looks_up = park::current_g().is_some() || chain.is_some();
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
                    let left_ns = left_ns(deadline_ns);
                    if left_ns == 0 || looks_up && (chain.is_set() || is_cut_short(terms.reason)) {
                        if self.swap_word(SLEEPING, GONE) {
                            return;
                        }
                    } else {
                        let nap_ns = if looks_up { park::LOOK_UP_NS } else { NEVER };
                        loom::futex_wait(&self.word, SLEEPING, left_ns.min(nap_ns));
                    }
                }
                taken => loom::futex_wait(&self.word, taken, NEVER),
            }
        }
    }

    /// The thread's own steps; they publish nothing.
    fn swap_word(&self, from: u32, to: u32) -> bool {
        self.word
            .compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }
}

fn left_ns(deadline_ns: u64) -> u64 {
    match deadline_ns {
        NEVER => NEVER,
        _ => deadline_ns.saturating_sub(clock::now_ns()),
    }
}

/// Whether a goroutine that waits as a thread stops waiting because its runtime ends.
/// A lock in a destructor cannot: it has nothing to give back instead.
fn is_cut_short(reason: Reason) -> bool {
    park::is_cancelled() && !(reason.is_lock() && std::thread::panicking())
}

/// A waiter's place in one queue: on the waiting frame.
#[derive(Debug)]
pub(crate) struct Link {
    waiter: *const Waiter,
    /// What the waiter calls this place.
    tag: usize,
    /// What the owner of the queue wants of it: where the value is, or what is asked for.
    slot: Cell<*mut ()>,
    /// Ordering: this and the links are guarded by the queue's lock.
    queued: Cell<bool>,
    prev: Cell<*const Link>,
    next: Cell<*const Link>,
}

impl Link {
    #[inline]
    pub(crate) fn new(waiter: &Waiter, tag: usize, slot: *mut ()) -> Link {
        Link {
            waiter,
            tag,
            slot: Cell::new(slot),
            queued: Cell::new(false),
            prev: Cell::new(ptr::null()),
            next: Cell::new(ptr::null()),
        }
    }
}

/// Who waits for one thing, in order of arrival. Guarded by its owner's lock, which every
/// method needs held.
#[derive(Debug)]
pub(crate) struct WaitQueue {
    head: Cell<*const Link>,
    tail: Cell<*const Link>,
}

// SAFETY: the links are followed only under the owner's lock, and frames stay until theirs are
// out of the queue.
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

    /// Appends a link.
    ///
    /// # Safety
    ///
    /// - The owner's lock is held, and the link is in no queue.
    /// - The link and its waiter stay where they are until the link was taken by
    ///   [`WaitQueue::take`] and its waiter readied, or it was removed.
    #[inline]
    pub(crate) unsafe fn push_back(&self, link: &Link) {
        debug_assert!(!link.queued.get(), "a link is in one queue");
        link.queued.set(true);
        link.next.set(ptr::null());
        link.prev.set(self.tail.get());
        // SAFETY: links in the queue are alive by the contract of this function.
        match unsafe { self.tail.get().as_ref() } {
            Some(tail) => tail.next.set(link),
            None => self.head.set(link),
        }
        self.tail.set(link);
    }

    /// Puts a link before all others.
    ///
    /// # Safety
    ///
    /// As [`WaitQueue::push_back`].
    pub(crate) unsafe fn push_front(&self, link: &Link) {
        debug_assert!(!link.queued.get(), "a link is in one queue");
        link.queued.set(true);
        link.prev.set(ptr::null());
        link.next.set(self.head.get());
        // SAFETY: links in the queue are alive by the contract of this function.
        match unsafe { self.head.get().as_ref() } {
            Some(head) => head.prev.set(link),
            None => self.tail.set(link),
        }
        self.head.set(link);
    }

    /// Removes a link, if it is still there.
    #[inline]
    pub(crate) fn remove(&self, link: &Link) {
        if !link.queued.replace(false) {
            return;
        }
        // SAFETY: links in the queue are alive, by the contract of `push_back`.
        let (prev, next) = unsafe { (link.prev.get().as_ref(), link.next.get().as_ref()) };
        match prev {
            Some(prev) => prev.next.set(link.next.get()),
            None => self.head.set(link.next.get()),
        }
        match next {
            Some(next) => next.prev.set(link.prev.get()),
            None => self.tail.set(link.prev.get()),
        }
    }

    /// Takes the first waiter that can still be had. The caller then has it to itself,
    /// may read and write what its slot names, gives the lock back, and readies it.
    #[inline]
    pub(crate) fn take(&self) -> Option<Taken> {
        self.take_if(|_| true)
    }

    /// As [`WaitQueue::take`], but only waiters that are wanted: a select does not meet
    /// itself.
    #[inline]
    pub(crate) fn take_if(&self, is_wanted: impl Fn(&Waiter) -> bool) -> Option<Taken> {
        let mut at = self.head.get();
        // SAFETY: as in `remove`.
        while let Some(link) = unsafe { at.as_ref() } {
            at = link.next.get();
            // SAFETY: a queued link's waiter is alive as the link is.
            let waiter = unsafe { &*link.waiter };
            if !is_wanted(waiter) {
                continue;
            }
            if let Some(taken) = self.claim(link, waiter) {
                return Some(taken);
            }
        }
        None
    }

    /// Takes the first waiter, if what its slot asks for can be given. One that cannot be
    /// served is in the way of all behind it, also when it is about to give up: then it
    /// looks itself whether the next can be served.
    pub(crate) fn take_front_if(&self, can_be_given: impl Fn(*mut ()) -> bool) -> Option<Taken> {
        // SAFETY: as in `remove`.
        while let Some(link) = unsafe { self.head.get().as_ref() } {
            if !can_be_given(link.slot.get()) {
                return None;
            }
            // SAFETY: a queued link's waiter is alive as the link is.
            let waiter = unsafe { &*link.waiter };
            if let Some(taken) = self.claim(link, waiter) {
                return Some(taken);
            }
        }
        None
    }

    /// Takes all waiters that can still be had.
    pub(crate) fn take_all(&self) -> TakenList {
        let mut all = TakenList::new();
        while let Some(taken) = self.take() {
            all.push(taken);
        }
        all
    }

    /// Removes a link, and gives its waiter if it can be had. Without the token it was
    /// woken by somebody else, who is no taker of this link: it will find it removed.
    #[inline]
    fn claim(&self, link: &Link, waiter: &Waiter) -> Option<Taken> {
        self.remove(link);
        chaos::pause(Point::Claim);
        if !waiter.claim() {
            return None;
        }
        waiter.chosen.store(link.tag as u64, Ordering::Relaxed);
        Some(Taken {
            waiter: NonNull::from(waiter),
            link: NonNull::from(link),
        })
    }
}

impl Drop for WaitQueue {
    fn drop(&mut self) {
        debug_assert!(self.is_empty(), "somebody waits in a queue that goes away");
    }
}

/// A waiter whose wake token the caller has. Its frame stays until it is readied.
#[must_use = "it sleeps for ever unless it is readied"]
#[derive(Debug)]
pub(crate) struct Taken {
    waiter: NonNull<Waiter>,
    link: NonNull<Link>,
}

impl Taken {
    /// What the waiter said in its link.
    #[inline]
    pub(crate) fn slot(&self) -> *mut () {
        // SAFETY: the frame with the link stays until the waiter is readied.
        unsafe { self.link.as_ref() }.slot.get()
    }

    /// Lets the waiter be told another tag than its link's: what became of it.
    #[inline]
    pub(crate) fn tell(&self, tag: usize) {
        // SAFETY: as for the link.
        let waiter = unsafe { self.waiter.as_ref() };
        waiter.chosen.store(tag as u64, Ordering::Relaxed);
    }

    /// Whether it is a goroutine, and no thread.
    pub(crate) fn is_goroutine(&self) -> bool {
        // SAFETY: as for the link.
        matches!(unsafe { self.waiter.as_ref() }.who, Who::Goroutine(_))
    }

    /// Lets it go on. No lock that it may need is held: a thread would meet it at once.
    #[inline]
    pub(crate) fn ready(self, here: &Here<'_>) {
        let Some(g) = self.wake_thread() else {
            return;
        };
        match here.section_of(g) {
            Some(section) => wake::ready(section.m(), g),
            None => wake::ready_from_outside(g),
        }
    }

    /// Readies a thread; gives a goroutine back, which is still to be queued.
    fn wake_thread(self) -> Option<GRef> {
        chaos::pause(Point::Claim);
        // SAFETY: whoever was taken stays on its frame until it is readied: a thread here, a
        // goroutine by the caller.
        let waiter = unsafe { self.waiter.as_ref() };
        if let Who::Goroutine(g) = waiter.who {
            return Some(g);
        }
        let word = &raw const waiter.word;
        // The frame may be gone after this.
        if waiter.word.swap(READY, Ordering::AcqRel) == TAKEN_SLEEPING {
            loom::futex_wake_one(word);
        }
        None
    }
}

impl<'a> Here<'a> {
    /// The caller's place in the scheduler that `g` belongs to.
    #[inline]
    fn section_of(&self, g: GRef) -> Option<&Section<'a>> {
        self.section
            .as_ref()
            .filter(|section| ptr::eq(section.m().sched.cast(), g.sched()))
    }
}

/// Waiters that were taken together, in order, chained through their links: taken under
/// a lock, to be readied when it is free.
#[must_use = "they sleep for ever unless they are readied"]
#[derive(Debug)]
pub(crate) struct TakenList {
    head: *const Link,
    tail: *const Link,
}

impl TakenList {
    pub(crate) const fn new() -> TakenList {
        TakenList {
            head: ptr::null(),
            tail: ptr::null(),
        }
    }

    #[inline]
    pub(crate) fn push(&mut self, taken: Taken) {
        let link = taken.link;
        // SAFETY: frames of taken waiters stay until they are readied, and the links of this list
        // are nobody else's: they are in no queue, and their waiters do not run.
        unsafe { link.as_ref() }.next.set(ptr::null());
        // SAFETY: as above.
        match unsafe { self.tail.as_ref() } {
            Some(tail) => tail.next.set(link.as_ptr()),
            None => self.head = link.as_ptr(),
        }
        self.tail = link.as_ptr();
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.head.is_null()
    }

    fn pop(&mut self) -> Option<Taken> {
        // SAFETY: as in `push`.
        let link = unsafe { self.head.as_ref() }?;
        self.head = link.next.get();
        if self.head.is_null() {
            self.tail = ptr::null();
        }
        Some(Taken {
            waiter: NonNull::new(link.waiter.cast_mut())?,
            link: NonNull::from(link),
        })
    }

    /// Lets all of them go on, as [`Taken::ready`].
    #[inline]
    pub(crate) fn ready(mut self, here: &Here<'_>) {
        if !self.is_empty() {
            self.ready_all(here);
        }
    }

    fn ready_all(&mut self, here: &Here<'_>) {
        let mut gs = GList::new();
        while let Some(taken) = self.pop() {
            match taken.wake_thread() {
                Some(g) if here.section_of(g).is_some() => gs.push(g),
                Some(g) => wake::ready_from_outside(g),
                None => {}
            }
        }
        if let (Some(section), false) = (&here.section, gs.is_empty()) {
            wake::ready_all(section.m(), gs);
        }
    }
}

#[cfg(all(test, loom))]
#[path = "waitq_loom_tests.rs"]
mod loom_tests;

#[cfg(all(test, not(loom)))]
#[path = "waitq_tests.rs"]
mod tests;

//! The raw lock of a mutex, with Go's algorithm (`internal/sync/mutex.go`).
//!
//! Without contention, locking is one compare-and-swap. Otherwise the caller first spins for a
//! while, if the holder may be running on another P, and then queues. There are two modes:
//!
//! - *normal*: unlocking frees the lock and wakes the first waiter, which must compete with callers
//!   that are already running (*barging*). That is fast, because the lock does not stay free while
//!   a waiter wakes up. A waiter that loses goes back to the front of the queue. After 1024
//!   acquisitions past the waiters the lock is handed over to the first waiter nevertheless
//!   (below).
//! - *starving*: begins when a waiter has waited for more than 1 ms. Unlocking hands the lock over
//!   to the first waiter. New callers queue at the tail, even if the lock looks free. The mode ends
//!   with the first new holder that queued after the mode began and waited for less than 1 ms, or
//!   when the queue is empty.
//!
//! Two things differ from Go, so that each of many contenders gets its share of the lock, and not
//! only its turn:
//!
//! - The holder that ends starving mode hands the lock over once more. This holder is usually the
//!   one that barged before: it queued when starving mode began, so it has waited for less time
//!   than all others. In Go it goes on barging and gets nearly all acquisitions between rounds in
//!   which each other contender has the lock once. Here its successor barges next.
//! - The lock is taken past its waiters at most 1024 times in a row. Only the first waiter can
//!   detect its own starvation, and it cannot if it was woken on a P whose thread the kernel does
//!   not run.
//!
//! | bit      | meaning                                       | set and cleared by            |
//! |----------|-----------------------------------------------|-------------------------------|
//! | LOCKED   | held                                          | holders; a holder that hands  |
//! |          |                                               | the lock over sets it         |
//! | QUEUED   | the queue is not empty                        | under the list's lock         |
//! | WOKEN    | a woken waiter or a spinner is about to take  | set by its waker, or by the   |
//! |          | the lock: no other waiter need be woken       | spinner; cleared by itself    |
//! | STARVING | starving mode; a lock that is free in it is   | set by the starving waiter;   |
//! |          | about to be handed over                       | cleared by a holder, or when  |
//! |          |                                               | the queue becomes empty       |
//!
//! No wake-up is lost: a waiter sets QUEUED only while the lock is held or is being handed over,
//! and under the list's lock, which it holds until its wait is visible. The holder's unlock then
//! sees QUEUED and takes the list's lock. WOKEN is a duty to continue: its owner either gets the
//! lock, or sets QUEUED as above and clears WOKEN in the same step. A woken waiter is never cut
//! short before that.

use super::owner::Owner;
use super::tag;
use super::waitlist::{Queue, QueueEnd, TAKEN, WaitError, WaitList};
use super::waitq::{Dequeued, DequeuedList, WaitCtx, WaitOptions};
use crate::g::status::Reason;
use crate::loom::{self, AtomicU32, AtomicU64, Ordering, const_fn};
use crate::sched::wait::park;
use crate::sched::wait::points;
use crate::sys::clock::{self, NEVER};
use crate::util::ladder;

const LOCKED: u32 = 1;
const QUEUED: u32 = 2;
const WOKEN: u32 = 4;
const STARVING: u32 = 8;

/// Result reported to a waiter that was given the lock and need not compete for it.
const HANDED_OVER: usize = TAKEN + 1;

/// Number of acquisitions past the waiters before the lock is handed over.
const TURNS: u32 = if cfg!(loom) { 2 } else { 1024 };

/// A waiter that has waited for longer starves. Disabled in loom models, which must not depend on a
/// clock.
const STARVES_AFTER_NS: u64 = if cfg!(loom) { NEVER } else { ladder::LATE_NS };

/// Number of checks of a spinner, and number of pauses between two checks: Go's numbers.
const SPINS: u32 = if cfg!(loom) { 1 } else { 4 };
const PAUSES: u32 = if cfg!(loom) { 1 } else { 30 };

/// The raw lock. See the table above.
///
/// Ordering: locking acquires, unlocking releases; the other bits publish nothing.
#[derive(Debug)]
pub(crate) struct RawMutex {
    state: AtomicU32,
    /// Number of acquisitions past the fast path since the last hand-over. Written by the holder of
    /// the lock.
    turns: AtomicU32,
    /// When starving mode began. Ordering: relaxed; written under the list's lock, and read by a
    /// holder that was given the lock by a holder of the list's lock.
    starving_since_ns: AtomicU64,
    list: WaitList,
    owner: Owner,
}

/// State of a caller of the slow path.
struct Contender {
    /// Whether WOKEN is set on behalf of this caller.
    woken: bool,
    /// When it first queued, if it did.
    since_ns: Option<u64>,
    /// When it was found to have waited for more than 1 ms, if it was.
    starves_at_ns: Option<u64>,
}

impl RawMutex {
    const_fn! {
        pub(crate) const fn new() -> RawMutex {
            RawMutex {
                state: AtomicU32::new(0),
                turns: AtomicU32::new(0),
                starving_since_ns: AtomicU64::new(0),
                list: WaitList::new(),
                owner: Owner::new(),
            }
        }
    }

    /// Takes the lock.
    ///
    /// # Errors
    ///
    /// If the wait was cut short, and the caller has to unwind. Never while the caller is
    /// unwinding.
    #[inline]
    pub(crate) fn lock(&self) -> Result<(), WaitError> {
        points::switch_point();
        if self.swap(0, LOCKED) {
            self.owner.set();
            Ok(())
        } else {
            self.lock_contended(WaitOptions::new(Reason::Mutex))
        }
    }

    /// As [`RawMutex::lock`], but the wait also ends when the ambient context is done.
    ///
    /// # Errors
    ///
    /// The reason why the lock was not taken.
    #[cold]
    pub(crate) fn lock_in_context(&self) -> Result<(), WaitError> {
        points::switch_point();
        self.lock_contended(WaitOptions::new(Reason::Mutex).by_context(true))
    }

    /// Takes the lock if it is free and not in starving mode.
    #[inline]
    pub(crate) fn try_lock(&self) -> bool {
        points::switch_point();
        self.try_lock_in_place()
    }

    /// As [`RawMutex::try_lock`], but leaves the goroutine on its thread in any case.
    #[inline]
    pub(crate) fn try_lock_in_place(&self) -> bool {
        let is_locked = self.swap(0, LOCKED) || self.take(false);
        if is_locked {
            self.owner.set();
        }
        is_locked
    }

    #[inline]
    fn swap(&self, from: u32, to: u32) -> bool {
        self.state
            .compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// Takes the lock if it is free and not in starving mode. Clears WOKEN too, if `woken`.
    fn take(&self, woken: bool) -> bool {
        let mut now = self.state.load(Ordering::Relaxed);
        while now & (LOCKED | STARVING) == 0 {
            let duty = if woken { WOKEN } else { 0 };
            match self.state.compare_exchange_weak(
                now,
                (now | LOCKED) & !duty,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => {
                    let turns = self.turns.load(Ordering::Relaxed);
                    self.turns.store(turns.saturating_add(1), Ordering::Relaxed);
                    return true;
                }
                Err(other) => now = other,
            }
        }
        false
    }

    #[cold]
    fn lock_contended(&self, options: WaitOptions) -> Result<(), WaitError> {
        let contend = || self.owner.while_waiting(|| self.contend(options));
        tag::while_waiting(tag::Handle::Guard, std::ptr::from_ref(self).addr(), contend)?;
        self.owner.set();
        Ok(())
    }

    #[inline(always)]
    fn contend(&self, options: WaitOptions) -> Result<(), WaitError> {
        let mut me = Contender {
            woken: false,
            since_ns: None,
            starves_at_ns: None,
        };
        loop {
            self.spin(&mut me);
            if self.take(me.woken) {
                return Ok(());
            }
            let place = match me.since_ns {
                None => QueueEnd::Last,
                Some(_) => QueueEnd::First,
            };
            let since_ns = *me.since_ns.get_or_insert_with(clock::now_ns);
            let ctx = WaitCtx::enter();
            let queue = self.list.lock(&ctx);
            if self.take_or_queue(&me) {
                return Ok(());
            }
            let result = queue.wait(ctx, place, 0, options, |q| self.leave(q))?;
            let now_ns = clock::now_ns();
            if now_ns.saturating_sub(since_ns) > STARVES_AFTER_NS {
                me.starves_at_ns = Some(now_ns);
            }
            if result == HANDED_OVER {
                self.note_holder(&me);
                return Ok(());
            }
            me.woken = true;
        }
    }

    /// Spins while the lock is held, and sets WOKEN so that the holder does not wake a waiter
    /// meanwhile.
    fn spin(&self, me: &mut Contender) {
        for _ in 0..SPINS {
            let now = self.state.load(Ordering::Relaxed);
            if now & (LOCKED | STARVING) != LOCKED || !park::may_spin() {
                return;
            }
            if !me.woken && now & (QUEUED | WOKEN) == QUEUED {
                me.woken = self.swap(now, now | WOKEN);
            }
            (0..PAUSES).for_each(|_| loom::spin_loop());
        }
    }

    /// Takes the lock, or sets QUEUED. The caller holds the list's lock.
    fn take_or_queue(&self, me: &Contender) -> bool {
        let mut now = self.state.load(Ordering::Relaxed);
        loop {
            let free = now & (LOCKED | STARVING) == 0;
            let mut new = now | if free { LOCKED } else { QUEUED };
            if me.starves_at_ns.is_some() && now & LOCKED != 0 {
                new |= STARVING;
            }
            if me.woken {
                new &= !WOKEN;
            }
            match self
                .state
                .compare_exchange_weak(now, new, Ordering::Acquire, Ordering::Relaxed)
            {
                Ok(_) => {
                    if let (Some(at_ns), STARVING) = (me.starves_at_ns, new & !now & STARVING) {
                        self.starving_since_ns.store(at_ns, Ordering::Relaxed);
                    }
                    return free;
                }
                Err(other) => now = other,
            }
        }
    }

    /// Clears the marks of the queue, if the waiter that has just left it was the last. The wait of that one was cut
    /// short, so nobody else is to be woken.
    fn leave(&self, queue: &Queue<'_>) -> DequeuedList {
        if queue.is_empty() {
            self.state
                .fetch_and(!(QUEUED | STARVING), Ordering::Relaxed);
        }
        DequeuedList::new()
    }

    /// Called by a new holder that was given the lock. Ends starving mode if this holder did not
    /// starve and queued after the mode began. Then the next holder may barge.
    fn note_holder(&self, me: &Contender) {
        let began_ns = self.starving_since_ns.load(Ordering::Relaxed);
        if me.starves_at_ns.is_none() && me.since_ns > Some(began_ns) {
            self.state.fetch_and(!STARVING, Ordering::Relaxed);
            self.turns.store(TURNS, Ordering::Relaxed);
        }
    }

    /// Unlocks. The caller holds the lock. A goroutine that hands the lock over lets the new holder
    /// run first; else it stays on its thread.
    #[inline]
    pub(crate) fn unlock(&self) {
        self.owner.clear();
        let before = self.state.fetch_sub(LOCKED, Ordering::Release);
        if before != LOCKED {
            self.unlock_contended(before - LOCKED, true);
        }
    }

    /// As [`RawMutex::unlock`], but leaves the goroutine on its thread in any case.
    pub(crate) fn unlock_in_place(&self) {
        self.owner.clear();
        let before = self.state.fetch_sub(LOCKED, Ordering::Release);
        self.unlock_contended(before - LOCKED, false);
    }

    #[cold]
    fn unlock_contended(&self, now: u32, may_yield: bool) {
        if !self.is_for_unlocker(now) {
            return;
        }
        let ctx = WaitCtx::enter_in_place();
        if let Some((taken, handed_over)) = self.pick(&ctx) {
            let yields = may_yield && handed_over && taken.is_goroutine();
            taken.ready(&ctx);
            if yields {
                ctx.yield_to_readied();
            }
        }
    }

    /// As [`RawMutex::unlock`], for a caller that is already inside the scheduler.
    pub(crate) fn unlock_in(&self, ctx: &WaitCtx<'_>) {
        self.owner.clear();
        let before = self.state.fetch_sub(LOCKED, Ordering::Release);
        if self.is_for_unlocker(before - LOCKED)
            && let Some((taken, _)) = self.pick(ctx)
        {
            taken.ready(ctx);
        }
    }

    /// Whether the unlocker has to take a waiter from the queue.
    fn is_for_unlocker(&self, now: u32) -> bool {
        now & (QUEUED | LOCKED) == QUEUED && (now & WOKEN == 0 || self.hands_over(now))
    }

    /// Whether the lock is handed over to the first waiter, instead of waking it to compete.
    fn hands_over(&self, now: u32) -> bool {
        now & STARVING != 0 || self.turns.load(Ordering::Relaxed) >= TURNS
    }

    /// Takes the waiter to wake; `true` if it was given the lock.
    fn pick(&self, ctx: &WaitCtx<'_>) -> Option<(Dequeued, bool)> {
        let queue = self.list.lock(ctx);
        let mut now = self.state.load(Ordering::Relaxed);
        let mine = loop {
            // The current holder will serve the queue when it unlocks.
            if !self.is_for_unlocker(now) {
                return None;
            }
            let mine = if self.hands_over(now) { LOCKED } else { WOKEN };
            match self.state.compare_exchange_weak(
                now,
                now | mine,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => break mine,
                Err(other) => now = other,
            }
        };
        let taken = queue.take();
        if taken.is_some() && mine == LOCKED {
            self.turns.store(0, Ordering::Relaxed);
        }
        if queue.is_empty() {
            // If all waiters gave up, the bit set above is unused: the lock is free.
            let unused = if taken.is_none() { mine } else { 0 };
            self.state
                .fetch_and(!(QUEUED | STARVING | unused), Ordering::Release);
        }
        let taken = taken?;
        if mine == LOCKED {
            taken.report(HANDED_OVER);
        }
        Some((taken, mine == LOCKED))
    }
}

#[cfg(all(test, any(loom, miri)))]
#[path = "raw_mutex_loom_tests.rs"]
mod loom_tests;

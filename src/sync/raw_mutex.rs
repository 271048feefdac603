//! The lock of a mutex: Go's algorithm (`internal/sync/mutex.go`).
//!
//! One compare-and-swap where nobody contends. Else a while of spinning, if the holder may
//! be running on another P, then the queue. Two modes:
//!
//! - *normal*: unlocking frees the lock and wakes the first waiter, who must compete with
//!   whoever runs already (*barging*). That is fast, as the lock is never free for the time
//!   of a wake; a waiter that loses goes back to the front.
//!   Every 1024th time it is handed over to the first waiter all the same (below).
//! - *starving*: begins when a waiter has waited for more than 1 ms. Unlocking hands the
//!   lock over to the first waiter; others queue at the tail, even if it looks free. Ends
//!   with the first holder that came after it began and waited for less, or with the queue.
//!
//! Two things are not Go's, so that each of many at a lock has its share of it, and not
//! only its turn:
//!
//! - The holder with whom the starving ends hands the lock over once more. It is mostly the
//!   one that barged before: it queued when the starving began, so it has waited for less
//!   than all others. In Go it goes on barging, and gets nearly all there is, between
//!   rounds in which each of the others has the lock once. Here its successor does.
//! - One barges at most 1024 times. That the first waiter starves only itself can tell, and
//!   it cannot if it was woken on a P whose thread the kernel does not run.
//!
//! | bit      | meaning                                       | set and cleared by            |
//! |----------|-----------------------------------------------|-------------------------------|
//! | LOCKED   | held                                          | holders; by who hands it over |
//! | QUEUED   | somebody is in the queue                      | under the list's lock         |
//! | WOKEN    | one who was woken, or spins, is on its way:   | set by its waker or spinner,  |
//! |          | no other need be woken                        | cleared by itself             |
//! | STARVING | the mode; a lock that is free in it is about  | set by the starving waiter;   |
//! |          | to be handed over                             | cleared by a holder, or with  |
//! |          |                                               | the queue                     |
//!
//! Who loses no wake-up: a waiter sets QUEUED only while the lock is held or being handed
//! over, under the list's lock, which it keeps until it waits. The holder's unlock then
//! sees QUEUED, and takes that lock. WOKEN is the duty to go on: whoever has it ends up
//! with the lock, or sets QUEUED as above and clears it in the same step. A woken waiter
//! is never cut short before that.

use super::waitlist::{GaveUp, Place, Queue, TAKEN, WaitList};
use super::waitq::{Here, Taken, TakenList, Terms};
use crate::g::status::Reason;
use crate::loom::{self, AtomicU32, AtomicU64, Ordering, const_fn};
use crate::sched::park;
use crate::sys::clock::{self, NEVER};

const LOCKED: u32 = 1;
const QUEUED: u32 = 2;
const WOKEN: u32 = 4;
const STARVING: u32 = 8;

/// What a waiter is told that has the lock, and need not compete for it.
const HANDED_OVER: usize = TAKEN + 1;

/// So often a lock that others wait for is taken by whoever comes, before it is handed over.
const TURNS: u32 = if cfg!(loom) { 2 } else { 1024 };

/// A waiter that has waited longer starves. Not in models, where no clock may decide.
const STARVES_AFTER_NS: u64 = if cfg!(loom) { NEVER } else { 1_000_000 };

/// How often a spinner looks, and how long it pauses between looks: Go's numbers.
const SPINS: u32 = if cfg!(loom) { 1 } else { 4 };
const PAUSES: u32 = if cfg!(loom) { 1 } else { 30 };

/// See the table above.
///
/// Ordering: taking the lock acquires, giving it releases; the other bits publish nothing.
#[derive(Debug)]
pub(crate) struct RawMutex {
    state: AtomicU32,
    /// How often it was taken past the fast path since it was handed over. Written by who
    /// has the lock.
    turns: AtomicU32,
    /// When the starving began. Ordering: relaxed; written under the list's lock, read by
    /// who got the lock from one who had that.
    starving_since_ns: AtomicU64,
    list: WaitList,
}

/// What a caller of the slow path is to the lock.
struct Contender {
    /// WOKEN is set for it.
    woken: bool,
    /// It was in the queue before: since when.
    since_ns: Option<u64>,
    /// It waits for more than 1 ms: when that was found.
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
            }
        }
    }

    /// Takes the lock.
    ///
    /// # Errors
    ///
    /// If the wait was cut short: the caller then unwinds. Never while unwinding.
    #[inline]
    pub(crate) fn lock(&self) -> Result<(), GaveUp> {
        park::perturb();
        if self.swap(0, LOCKED) {
            Ok(())
        } else {
            self.lock_contended(Terms::new(Reason::Mutex))
        }
    }

    /// As [`RawMutex::lock`], but the wait ends when the ambient context does.
    ///
    /// # Errors
    ///
    /// Why it has not got the lock.
    #[cold]
    pub(crate) fn lock_in_context(&self) -> Result<(), GaveUp> {
        self.lock_contended(Terms::new(Reason::Mutex).by_context(true))
    }

    /// Takes the lock if it is free, and nobody starves for it.
    #[inline]
    pub(crate) fn try_lock(&self) -> bool {
        self.swap(0, LOCKED) || self.take(false)
    }

    #[inline]
    fn swap(&self, from: u32, to: u32) -> bool {
        self.state
            .compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// Takes the lock if it is free; whoever was woken is there then.
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
    fn lock_contended(&self, terms: Terms) -> Result<(), GaveUp> {
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
                None => Place::Last,
                Some(_) => Place::First,
            };
            let since_ns = *me.since_ns.get_or_insert_with(clock::now_ns);
            let here = Here::enter();
            let queue = self.list.lock(&here);
            if self.take_or_queue(&me) {
                return Ok(());
            }
            let told = queue.wait(here, place, 0, terms, |q| self.leave(q))?;
            let now_ns = clock::now_ns();
            if now_ns.saturating_sub(since_ns) > STARVES_AFTER_NS {
                me.starves_at_ns = Some(now_ns);
            }
            if told == HANDED_OVER {
                self.note_holder(&me);
                return Ok(());
            }
            me.woken = true;
        }
    }

    /// Looks at a held lock for a while, and keeps its holder from waking another waiter
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

    /// Takes the lock, or says in the state that one more waits. Under the list's lock.
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

    /// A waiter whose wait was cut short has left the queue.
    fn leave(&self, queue: &Queue<'_>) -> TakenList {
        if queue.is_empty() {
            self.state
                .fetch_and(!(QUEUED | STARVING), Ordering::Relaxed);
        }
        TakenList::new()
    }

    /// By the one to whom the lock was handed over: ends the starving if it did not starve,
    /// and came when that had begun. Then it is the next one's turn to barge.
    fn note_holder(&self, me: &Contender) {
        let began_ns = self.starving_since_ns.load(Ordering::Relaxed);
        if me.starves_at_ns.is_none() && me.since_ns > Some(began_ns) {
            self.state.fetch_and(!STARVING, Ordering::Relaxed);
            self.turns.store(TURNS, Ordering::Relaxed);
        }
    }

    /// Gives the lock back, which the caller holds. A goroutine that hands it over lets the
    /// new holder run first.
    #[inline]
    pub(crate) fn unlock(&self) {
        let before = self.state.fetch_sub(LOCKED, Ordering::Release);
        if before != LOCKED {
            self.unlock_contended(before - LOCKED);
        }
        park::perturb();
    }

    #[cold]
    fn unlock_contended(&self, now: u32) {
        if !self.is_for_unlocker(now) {
            return;
        }
        let here = Here::enter();
        if let Some((taken, handed_over)) = self.pick(&here) {
            let give_way = handed_over && taken.is_goroutine();
            taken.ready(&here);
            if give_way {
                here.give_way();
            }
        }
    }

    /// As [`RawMutex::unlock`], by one who is in the scheduler already.
    pub(crate) fn unlock_in(&self, here: &Here<'_>) {
        let before = self.state.fetch_sub(LOCKED, Ordering::Release);
        if self.is_for_unlocker(before - LOCKED)
            && let Some((taken, _)) = self.pick(here)
        {
            taken.ready(here);
        }
    }

    /// Whether a lock that was given back needs its unlocker to look for a waiter.
    fn is_for_unlocker(&self, now: u32) -> bool {
        now & (QUEUED | LOCKED) == QUEUED && (now & WOKEN == 0 || self.hands_over(now))
    }

    /// Whether the first waiter gets the lock itself, and not a chance of it.
    fn hands_over(&self, now: u32) -> bool {
        now & STARVING != 0 || self.turns.load(Ordering::Relaxed) >= TURNS
    }

    /// Takes who is to have the lock, or to try for it; `true` if it has it.
    fn pick(&self, here: &Here<'_>) -> Option<(Taken, bool)> {
        let queue = self.list.lock(here);
        let mut now = self.state.load(Ordering::Relaxed);
        let mine = loop {
            // Whoever has it now sees to the queue when it unlocks.
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
            // All may have given up: then it is free.
            let unused = if taken.is_none() { mine } else { 0 };
            self.state
                .fetch_and(!(QUEUED | STARVING | unused), Ordering::Release);
        }
        let taken = taken?;
        if mine == LOCKED {
            taken.tell(HANDED_OVER);
        }
        Some((taken, mine == LOCKED))
    }
}

#[cfg(all(test, loom))]
#[path = "raw_mutex_loom_tests.rs"]
mod loom_tests;

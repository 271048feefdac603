//! The run queue of a P: a bounded first-in first-out ring and, ahead of it, one slot, `runnext`,
//! for the goroutine that should run next.
//!
//! The owner pushes at the tail and pops at the head; a thief takes the older half. Rejected:
//! crossbeam's `Worker` (unbounded, so there is no natural moment to share the surplus with the
//! node; 1.6 times the cost on queues that swing to 200; docs/decisions/scheduler.md has the
//! numbers) and Go's ring (thieves retry on a half-stolen queue). This is tokio's queue: the head
//! packs two positions, so a steal in progress is visible. Other thieves give up at once, and the
//! owner never waits.
//!
//! ```text
//!  head = (steal, real)          tail
//!        steal    real            |
//!  ....[ being   ][ ready to run ]....      len = tail - real <= 256
//!        copied                             room: tail - steal < 256
//! ```
//!
//! The two sides of the race:
//!
//! | owner's pop                       | thief                                     |
//! |-----------------------------------|-------------------------------------------|
//! | 1. read head (s, r)               | 1. read head; if s != r, give up          |
//! | 2. read slot r                    | 2. CAS (s, s) → (s, s + n): n are claimed |
//! | 3. CAS (s, r) → (r + 1, r + 1) if | 3. copy the n slots                       |
//! |    s == r, else (s, r + 1)        | 4. CAS (s, r) → (r, r): slots are free    |
//!
//! The owner does not write to a slot between `steal` and `real`, so the copy in step 3 reads the
//! slots that step 2 claimed. Positions are 32 bits and wrap. The owner may also push a G before
//! the oldest, while no steal is in progress: this moves the head back by one. So a thief's CAS may
//! succeed on a head that has changed and changed back (ABA). This is harmless: the thief reads the
//! slots only after the claim, and there are no fewer of them.
#![allow(unsafe_code)]

use std::ptr::NonNull;

use windlass_ground::padded::Padded;
use windlass_ground::std_traits::debug_fields;

use crate::g::header::{GRef, Header};
use crate::g::list::GList;
use crate::loom::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use crate::sched::numa::summary::Published;
use crate::util::chaos::{self, Point};

/// Slots of a local queue (Go's number).
#[cfg(not(loom))]
pub(crate) const CAPACITY: u32 = 256;
#[cfg(loom)]
pub(crate) const CAPACITY: u32 = 4;
const MASK: u32 = CAPACITY - 1;

/// Half of a queue, as long as one is outside of models.
pub(crate) const HALF: usize = 128;

/// Goroutines that a push found no room for, for the node queue: the older half of the queue and
/// the new G.
pub(crate) type Overflow = GList;

/// The queue of one P.
pub(crate) struct RunQueue {
    /// `steal << 32 | real`. Ordering: thieves claim with acquire-release; the owner's pop releases
    /// the slots it read, so that its later push may overwrite them.
    head: AtomicU64,
    /// Ordering: only the owner stores, with release, after the slots; thieves acquire.
    tail: AtomicU32,
    /// Ordering: only the owner stores a G, with release; the thread that takes it acquires.
    runnext: AtomicPtr<Header>,
    /// The part of its node's summary that concerns it: on the line that a thief has anyway.
    pub(crate) published: Published,
    slots: Padded<[AtomicPtr<Header>; CAPACITY as usize]>,
}

debug_fields!(RunQueue, |this| len: this.len(), ..);

fn pack(steal: u32, real: u32) -> u64 {
    (u64::from(steal) << 32) | u64::from(real)
}

fn unpack(head: u64) -> (u32, u32) {
    ((head >> 32) as u32, head as u32)
}

fn raw(g: GRef) -> *mut Header {
    g.as_ptr()
}

/// # Safety
///
/// `p` came from [`raw`].
unsafe fn cooked(p: *mut Header) -> Option<GRef> {
    // SAFETY: by this function's contract a non-null pointer is a G.
    NonNull::new(p).map(|p| unsafe { GRef::from_raw(p) })
}

impl RunQueue {
    pub(crate) fn new() -> RunQueue {
        RunQueue {
            head: AtomicU64::new(0),
            tail: AtomicU32::new(0),
            runnext: AtomicPtr::new(std::ptr::null_mut()),
            published: Published::default(),
            slots: Padded(std::array::from_fn(
                |_| AtomicPtr::new(std::ptr::null_mut()),
            )),
        }
    }

    /// Number of goroutines in the ring (without runnext); a snapshot.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        let (_, real) = unpack(self.head.load(Ordering::Acquire));
        self.tail.load(Ordering::Acquire).wrapping_sub(real) as usize
    }

    /// Whether the ring is empty (runnext does not count); a snapshot.
    #[inline]
    pub(crate) fn is_ring_empty(&self) -> bool {
        let (_, real) = unpack(self.head.load(Ordering::Acquire));
        self.tail.load(Ordering::Acquire) == real
    }

    #[inline]
    pub(crate) fn has_runnext(&self) -> bool {
        !self.runnext.load(Ordering::Relaxed).is_null()
    }

    /// Whether there is no goroutine to run or steal, runnext included.
    ///
    /// Checks ring, runnext, ring again: a G that moves from runnext to the ring between two checks
    /// is seen by the third.
    pub(crate) fn is_empty(&self) -> bool {
        self.is_ring_empty() && !self.has_runnext() && self.is_ring_empty()
    }

    #[inline]
    fn slot(&self, at: u32) -> &AtomicPtr<Header> {
        &self.slots[(at & MASK) as usize]
    }

    // The owner's end.

    /// Puts `g` into runnext and returns the G that it displaces.
    ///
    /// Owner only.
    #[inline]
    pub(crate) fn set_runnext(&self, g: GRef) -> Option<GRef> {
        let kicked = self.runnext.swap(raw(g), Ordering::AcqRel);
        // SAFETY: runnext holds only what this function put in.
        unsafe { cooked(kicked) }
    }

    /// Takes the G in runnext, unless a thief has taken it.
    #[inline]
    pub(crate) fn take_runnext(&self) -> Option<GRef> {
        let p = self.runnext.load(Ordering::Relaxed);
        if p.is_null() {
            return None;
        }
        let taken = self
            .runnext
            .compare_exchange(
                p,
                std::ptr::null_mut(),
                Ordering::Acquire,
                Ordering::Relaxed,
            )
            .ok()?;
        // SAFETY: as in `set_runnext`.
        unsafe { cooked(taken) }
    }

    /// How many Gs can be appended before the queue is full; thieves may make room for more.
    ///
    /// Owner only.
    pub(crate) fn room(&self) -> usize {
        let tail = self.tail.load(Ordering::Relaxed);
        let (steal, _) = unpack(self.head.load(Ordering::Acquire));
        CAPACITY.saturating_sub(tail.wrapping_sub(steal)) as usize
    }

    /// Appends `g`; a full queue returns its older half and `g` as overflow.
    ///
    /// Owner only.
    #[inline]
    pub(crate) fn push(&self, g: GRef) -> Result<(), Overflow> {
        let tail = self.tail.load(Ordering::Relaxed);
        let (steal, real) = unpack(self.head.load(Ordering::Acquire));
        if tail.wrapping_sub(steal) < CAPACITY {
            self.slot(tail).store(raw(g), Ordering::Relaxed);
            self.tail.store(tail.wrapping_add(1), Ordering::Release);
            return Ok(());
        }
        self.overflow(g, steal, real, tail)
    }

    #[cold]
    fn overflow(&self, g: GRef, steal: u32, real: u32, tail: u32) -> Result<(), Overflow> {
        let mut out = GList::new();
        // While a thief is copying, the queue will soon have room: pass on only this G.
        if steal == real && tail.wrapping_sub(real) == CAPACITY {
            match self.take_older(real, CAPACITY / 2) {
                Some(older) => out = older,
                None => return self.push(g),
            }
        }
        out.push(g);
        Err(out)
    }

    /// Takes the `n` oldest Gs, the first of which is at `real`. There must be as many. `None` if a
    /// thief has claimed some in between.
    fn take_older(&self, real: u32, n: u32) -> Option<GList> {
        let after = real.wrapping_add(n);
        self.head
            .compare_exchange(
                pack(real, real),
                pack(after, after),
                Ordering::AcqRel,
                Ordering::Relaxed,
            )
            .ok()?;
        let mut out = GList::new();
        for i in 0..n {
            let p = self.slot(real.wrapping_add(i)).load(Ordering::Relaxed);
            // SAFETY: the claimed slots hold Gs, and no other thread takes them.
            out.extend_one(unsafe { cooked(p) });
        }
        Some(out)
    }

    /// Takes the older half of the ring, for the node queue, if less than `room` is free and no
    /// steal is in progress.
    ///
    /// Owner only.
    pub(crate) fn make_room(&self, room: usize) -> Overflow {
        let (steal, real) = unpack(self.head.load(Ordering::Acquire));
        match steal == real && self.room() < room {
            true => self.take_older(real, self.len() as u32 / 2),
            false => None,
        }
        .unwrap_or_default()
    }

    /// Puts `g` before the oldest G of the ring. Returns it if the ring is full or a steal is in
    /// progress.
    ///
    /// Owner only.
    pub(crate) fn push_first(&self, g: GRef) -> Result<(), GRef> {
        let tail = self.tail.load(Ordering::Relaxed);
        let head = self.head.load(Ordering::Acquire);
        let (steal, real) = unpack(head);
        if steal != real || tail.wrapping_sub(real) >= CAPACITY {
            return Err(g);
        }
        // This slot is free: every slot before `steal` is, and the ring is not full. It stays free
        // if a thief claims meanwhile, which only moves the head forward.
        let first = real.wrapping_sub(1);
        self.slot(first).store(raw(g), Ordering::Relaxed);
        // ORDERING: release: a thread that claims from the new head sees the slot.
        self.head
            .compare_exchange(
                head,
                pack(first, first),
                Ordering::AcqRel,
                Ordering::Relaxed,
            )
            .map(drop)
            .map_err(|_| g)
    }

    /// Takes the oldest G of the ring.
    ///
    /// Owner only.
    #[inline]
    pub(crate) fn pop(&self) -> Option<GRef> {
        let mut head = self.head.load(Ordering::Acquire);
        loop {
            let (steal, real) = unpack(head);
            if real == self.tail.load(Ordering::Relaxed) {
                return None;
            }
            let p = self.slot(real).load(Ordering::Relaxed);
            let next = real.wrapping_add(1);
            let after = if steal == real {
                pack(next, next)
            } else {
                pack(steal, next)
            };
            match self
                .head
                .compare_exchange_weak(head, after, Ordering::AcqRel, Ordering::Acquire)
            {
                // SAFETY: the slot held a G, and the CAS gave it to this caller alone.
                Ok(_) => return unsafe { cooked(p) },
                Err(now) => head = now,
            }
        }
    }

    /// The Gs that [`RunQueue::pop`] will return next and after that, if any: a hint, because
    /// thieves may take them.
    ///
    /// Owner only.
    #[inline]
    pub(crate) fn peek_two(&self) -> [Option<GRef>; 2] {
        let (_, real) = unpack(self.head.load(Ordering::Relaxed));
        let len = self.tail.load(Ordering::Relaxed).wrapping_sub(real);
        [0, 1].map(|i| {
            if i >= len {
                return None;
            }
            let at = real.wrapping_add(i);
            // SAFETY: slots hold only what `push` and `steal_into` put in.
            unsafe { cooked(self.slot(at).load(Ordering::Relaxed)) }
        })
    }

    /// The G that was pushed last, if the ring holds any: a hint, because a thief may take it.
    ///
    /// Owner only.
    pub(crate) fn peek_last(&self) -> Option<GRef> {
        if self.is_ring_empty() {
            return None;
        }
        let last = self.tail.load(Ordering::Relaxed).wrapping_sub(1);
        // SAFETY: slots hold only what `push` and `steal_into` put in.
        unsafe { cooked(self.slot(last).load(Ordering::Relaxed)) }
    }

    // The thief's end.

    /// Moves the older half of this ring (rounded up), at most `max`, to the end of `into`, which
    /// belongs to the caller. Returns one of them to run, and the number taken in all.
    pub(crate) fn steal_into(&self, into: &RunQueue, max: u32) -> Option<(GRef, u32)> {
        let dst_tail = into.tail.load(Ordering::Relaxed);
        let (dst_steal, _) = unpack(into.head.load(Ordering::Acquire));
        // A thief steals when its queue is empty, but another thief that is stealing from it may
        // still hold slots.
        let room = CAPACITY - dst_tail.wrapping_sub(dst_steal).min(CAPACITY);
        let (first, n) = self.claim(max.min(room.saturating_add(1)))?;
        chaos::pause(Point::Steal);
        // All but the last go to the thief's ring; the last is run at once.
        for i in 0..n - 1 {
            let p = self.slot(first.wrapping_add(i)).load(Ordering::Relaxed);
            into.slot(dst_tail.wrapping_add(i))
                .store(p, Ordering::Relaxed);
        }
        let last = self.slot(first.wrapping_add(n - 1)).load(Ordering::Relaxed);
        chaos::pause(Point::Steal);
        self.free_claimed();
        into.tail
            .store(dst_tail.wrapping_add(n - 1), Ordering::Release);
        // SAFETY: the claimed slots held Gs and are this thief's.
        unsafe { cooked(last) }.map(|g| (g, n))
    }

    /// Takes up to half of this ring (rounded up), at most `max`, the oldest first, as a list:
    /// for a thief that shares them with others.
    pub(crate) fn steal_list(&self, max: u32) -> GList {
        let mut gs = GList::new();
        let Some((first, n)) = self.claim(max) else {
            return gs;
        };
        for i in 0..n {
            let p = self.slot(first.wrapping_add(i)).load(Ordering::Relaxed);
            // SAFETY: the claimed slots held Gs and are this thief's.
            gs.extend_one(unsafe { cooked(p) });
        }
        self.free_claimed();
        gs
    }

    /// A thief's step 2. Returns the first claimed position, and the number of slots.
    #[inline]
    fn claim(&self, max: u32) -> Option<(u32, u32)> {
        let mut head = self.head.load(Ordering::Acquire);
        loop {
            let (steal, real) = unpack(head);
            if steal != real {
                return None;
            }
            let len = self.tail.load(Ordering::Acquire).wrapping_sub(real);
            // The two loads are not a snapshot: a length beyond the capacity is stale.
            if len > CAPACITY {
                head = self.head.load(Ordering::Acquire);
                continue;
            }
            let n = (len - len / 2).min(max);
            if n == 0 {
                return None;
            }
            let claim = pack(steal, real.wrapping_add(n));
            match self
                .head
                .compare_exchange(head, claim, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => return Some((real, n)),
                Err(now) => head = now,
            }
        }
    }

    /// A thief's step 4.
    #[inline]
    fn free_claimed(&self) {
        let mut head = self.head.load(Ordering::Acquire);
        loop {
            let (_, real) = unpack(head);
            let free = pack(real, real);
            match self
                .head
                .compare_exchange_weak(head, free, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => break,
                Err(now) => head = now,
            }
        }
    }

    /// The older half of the ring, at most `max`, for a thief of another node: hints, because other threads may take
    /// them.
    pub(crate) fn peek_oldest(&self, max: u32) -> impl Iterator<Item = GRef> + '_ {
        // The thief is about to claim: a read alone would bring the line, and the claim would bring it once more.
        let (_, real) = unpack(self.head.fetch_or(0, Ordering::AcqRel));
        let len = self.tail.load(Ordering::Acquire).wrapping_sub(real);
        let n = (len.min(CAPACITY) - len.min(CAPACITY) / 2).min(max);
        (0..n).filter_map(move |i| {
            let p = self.slot(real.wrapping_add(i)).load(Ordering::Relaxed);
            // SAFETY: slots hold only what `push` and `steal_into` put in, or null.
            unsafe { cooked(p) }
        })
    }

    /// How many Gs have left the ring at its head: an unchanged number means that the oldest one
    /// still waits.
    pub(crate) fn n_left(&self) -> u32 {
        unpack(self.head.load(Ordering::Acquire)).1
    }

    /// Takes the G in runnext, as a thief: only on the last pass, after giving the owner a moment
    /// to run it (see `sched::proc::steal`).
    pub(crate) fn steal_runnext(&self) -> Option<GRef> {
        self.take_runnext()
    }

    /// Whether the G in runnext is bound to its node: a hint.
    pub(crate) fn is_runnext_bound(&self) -> bool {
        // SAFETY: runnext holds only what `set_runnext` put in.
        unsafe { cooked(self.peek_runnext()) }.is_some_and(GRef::is_bound)
    }

    /// The address in runnext, to check whether it stays there.
    pub(crate) fn peek_runnext(&self) -> *mut Header {
        self.runnext.load(Ordering::Relaxed)
    }
}

#[cfg(all(test, not(loom)))]
#[path = "runq_tests.rs"]
mod tests;

#[cfg(all(test, any(loom, miri)))]
#[path = "runq_loom_tests.rs"]
mod loom_tests;

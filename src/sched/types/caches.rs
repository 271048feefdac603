//! A P's caches: goroutine numbers, G slots and stacks. With them a goroutine begins and ends without a lock.
#![allow(unsafe_code)]

use std::cell::{Cell, UnsafeCell};

use windlass_ground::counter::Counter;
use windlass_ground::stack::{self, Stack, StackPool};

use crate::g::header::{self, GRef, SLOT_BYTES};
use crate::g::list::GList;
use crate::g::slab::{self, DepotId};
use crate::loom::oracle;

/// Free stacks that nobody has used for this long go back: from a P's cache to its node, and their pages
/// from there to the kernel.
pub(crate) const AGE_NS: u64 = 5_000_000_000;

/// Goroutine numbers that a P reserves at first. Each time it takes four times as many as before, at most so many: else
/// Ps that do nothing but spawn would stand in line for the counter (docs/SCALE.md).
const FIRST_IDS: u64 = 16;
const MOST_IDS: u64 = 4096;
const STACKS_KEPT: usize = 64;
const SLOTS_KEPT: usize = 256;
const SLOTS_PER_REFILL: usize = 64;
/// How many slots of other nodes a P collects before it returns them.
const SLOTS_AWAY: usize = 32;

/// The caches of one P, for its holder.
#[derive(Debug, Default)]
pub(crate) struct Caches {
    next_id: Cell<u64>,
    ids_left: Cell<u64>,
    /// How many numbers were reserved last.
    ids_reserved: Cell<u64>,
    stacks: UnsafeCell<[Vec<Stack>; stack::CLASSES.len()]>,
    n_stacks: Counter,
    slots: UnsafeCell<[Vec<GRef>; SLOT_BYTES.len()]>,
    /// Slots of goroutines that were spawned on another node and have ended here.
    away: UnsafeCell<GList>,
}

impl Caches {
    /// The number of a new goroutine.
    pub(crate) fn next_id(&self) -> u64 {
        if self.ids_left.get() == 0 {
            self.reserve_ids();
        }
        self.ids_left.set(self.ids_left.get() - 1);
        self.next_id.replace(self.next_id.get() + 1)
    }

    #[cold]
    fn reserve_ids(&self) {
        let n = (4 * self.ids_reserved.get()).clamp(FIRST_IDS, MOST_IDS);
        self.next_id.set(header::reserve_ids(n));
        self.ids_left.set(n);
        self.ids_reserved.set(n);
    }

    /// Numbers goroutines from 1 on, for a simulated run.
    #[cfg(feature = "sim")]
    pub(crate) fn number_from_1(&self) {
        self.next_id.set(1);
        self.ids_left.set(u32::MAX as _);
    }

    /// A free G slot of a class, from here or from the node's depot.
    #[inline]
    pub(crate) fn take_slot(&self, class: usize, depot: DepotId) -> GRef {
        // SAFETY: the caller holds the P, and the borrow ends in this function.
        let slots = unsafe { &mut (&mut *self.slots.get())[class] };
        if let Some(g) = slots.pop() {
            return g;
        }
        slab::take(depot, class, SLOTS_PER_REFILL, |g| slots.push(g));
        slots.pop().expect("a refill gives at least one slot")
    }

    /// Takes back the empty slot of a goroutine that has ended; `depot` is this P's node's.
    #[inline]
    pub(crate) fn give_slot(&self, g: GRef, depot: DepotId) {
        if !depot.has(g) {
            return self.send_home(g);
        }
        // SAFETY: the caller holds the P, and the borrow ends in this function.
        let slots = unsafe { &mut (&mut *self.slots.get())[g.slot_class()] };
        if slots.len() >= SLOTS_KEPT {
            slots.drain(SLOTS_KEPT / 2..).for_each(slab::give);
        }
        slots.push(g);
    }

    /// Takes back a slot of another node, and returns such slots in batches. They are common,
    /// because thieves bring goroutines that have not started; returning each one alone would touch
    /// a remote depot every time.
    #[cold]
    fn send_home(&self, g: GRef) {
        // SAFETY: the caller holds the P, and the borrow ends in this function.
        let away = unsafe { &mut *self.away.get() };
        away.push(g);
        if away.len() >= SLOTS_AWAY {
            slab::give_all(std::mem::take(away));
        }
    }

    /// Takes a stack for a goroutine's first run, preferably one still in the CPU's caches.
    ///
    /// # Errors
    ///
    /// As [`StackPool::take`].
    #[inline]
    pub(crate) fn take_stack(&self, bytes: usize, pool: &StackPool) -> std::io::Result<Stack> {
        let Some(class) = stack::class_for(bytes) else {
            return pool.take(bytes);
        };
        // SAFETY: the caller holds the P, and the borrow ends in this function.
        let stacks = unsafe { &mut (&mut *self.stacks.get())[class] };
        let n_cached = &self.n_stacks;
        if let Some(stack) = stacks.pop() {
            n_cached.set(n_cached.get() - 1);
            return Ok(stack);
        }
        pool.take_free(class, STACKS_KEPT / 2, stacks);
        let stack = stacks.pop();
        n_cached.set(n_cached.get() + stacks.len() as u64);
        match stack {
            Some(stack) => Ok(stack),
            None => pool.take(bytes),
        }
    }

    /// Takes back the stack of a goroutine that ended. One of another node is returned at once to the pool of that:
    /// started goroutines rarely leave their node, and a stack cached here would be missing there.
    #[inline(always)]
    pub(crate) fn give_stack<'a>(
        &self,
        stack: Stack,
        is_of_own_node: bool,
        pool: impl FnOnce() -> &'a StackPool,
    ) {
        let (Some(class), true) = (stack.class(), is_of_own_node) else {
            return pool().give([stack]);
        };
        // SAFETY: the caller holds the P, and the borrow ends in this function.
        let stacks = unsafe { &mut (&mut *self.stacks.get())[class] };
        let n_cached = &self.n_stacks;
        if stacks.len() >= STACKS_KEPT {
            // Returns the half at the bottom: the one that was used longest ago.
            pool().give(stacks.drain(..STACKS_KEPT / 2));
            n_cached.set(n_cached.get() - (STACKS_KEPT / 2) as u64);
        }
        stacks.push(stack);
        n_cached.set(n_cached.get() + 1);
    }

    /// The number of stacks here. Any thread may call this.
    pub(crate) fn n_stacks(&self) -> u64 {
        self.n_stacks.get()
    }

    /// Returns the stacks to the pool of the P's node.
    pub(crate) fn give_stacks(&self, pool: &StackPool) {
        self.empty_stacks(|stacks| pool.give(stacks.drain(..)));
    }

    /// Returns everything to the pools of the P's node.
    pub(crate) fn flush(&self, pool: &StackPool) {
        self.give_stacks(pool);
        self.give_slots();
    }

    /// Empties the caches, at the end of the runtime: the arenas of the stacks are unmapped as a whole, and
    /// stacks of a mapping of their own are never cached.
    pub(crate) fn end(&self) {
        self.empty_stacks(|stacks| {
            oracle::stacks(-stacks.len().cast_signed());
            stacks.clear();
        });
        self.give_slots();
    }

    fn empty_stacks(&self, stacks_go: impl FnMut(&mut Vec<Stack>)) {
        // SAFETY: the caller holds the P (or is alone), and the borrow ends in this function.
        let stacks = unsafe { &mut *self.stacks.get() };
        stacks.iter_mut().for_each(stacks_go);
        self.n_stacks.set(0);
    }

    fn give_slots(&self) {
        // SAFETY: the caller holds the P (or is alone), and the borrows end in this function.
        let (slots, away) = unsafe { (&mut *self.slots.get(), &mut *self.away.get()) };
        let slots = slots.iter_mut();
        slots.for_each(|s| s.drain(..).for_each(slab::give));
        slab::give_all(std::mem::take(away));
    }
}

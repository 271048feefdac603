//! Idle Ps and spinning Ms: the protocol that loses no wake-up.
//!
//! An M that finds no work may *spin* (search again for a while) or *sleep* (in its ring or on its
//! P's word). A thread that makes work wakes at most one M, and only if none spins: the spinner
//! will find the work, and on finding it wakes the next M. So wake-ups chain while there is work,
//! and stop when there is none. On a node with many idle Ps an M that leaves two goroutines or more
//! wakes two Ms, also while others spin (`policy::wakes_two`): a tree in place of the chain.
//!
//! | pusher                              | M going to sleep                      |
//! |-------------------------------------|---------------------------------------|
//! | 1. push the G                       | 1. insert P into the idle set         |
//! | 2. full fence                       | 2. if it was spinning: n_spinning - 1 |
//! | 3. n_spinning != 0? leave it to the | 3. check all queues once more; if     |
//! |    spinner                          |    there is work, take P out of the   |
//! | 4. n_spinning 0 → 1, take an idle P |    set and spin (if it was taken out  |
//! |    out of the set, notify its M,    |    already, a notification is coming) |
//! |    which now spins; if no P is idle |                                       |
//! |    any more: n_spinning - 1, and if | 4. sleep until notified               |
//! |    that was the last, from 3 again  |                                       |
//!
//! An M that finds work in step 3 spins, because pushers may have left more than one goroutine to it. Step 4 begins
//! again because a P may have become idle, and a pusher have seen the spinner count, while the waker looked. An M that
//! moves goroutines from one queue to another is a pusher, as a sleeper may look while they are in neither (`proc::node_batch`).
//! `tests/liveness` checks that work which waits is run, and finds the runs in which it would not without either.
//!
//! All of it is sequentially consistent: either the pusher sees no spinner and the P idle, or the
//! sleeper sees the push. Queues are read with acquire loads, so each side has a fence between its
//! steps. The loom model is below.
//!
//! A pusher does not read the set of each node. It reads one word with a bit for each node that may have idle Ps
//! ([`IdleNodes`]), between 2 and 3. The sleeper sets the bit of its node between 2 and 3, unless it is set. No M that
//! wakes clears it: so Ps that fall asleep and wake all the time do not write that word, which all Ps read. A waker
//! that finds no idle P behind a bit takes it back ([`IdleNodes::take_back`]):
//!
//! | waker                               | M going to sleep                      |
//! |-------------------------------------|---------------------------------------|
//! | 1. clear the bit                    | 1. insert P into the idle set         |
//! | 2. look at the set again; if a P is | 2. set the bit unless it is set       |
//! |    idle, set the bit, and wake an M | 3. check all queues once more         |
//!
//! Either the sleeper finds the bit cleared, or the waker finds the P. Pushers that saw no bit in between wake nobody:
//! the waker wakes an M for them, which finds what they pushed.
//!
//! The P's *word* says how its M sleeps, so that a notifier makes no system call for an M that is
//! awake.

use crate::loom::{AtomicU32, AtomicU64, Ordering, after_seq_cst, fence};
use crate::sched::numa::policy;
use crate::util::bitset::BitSet;

/// The idle Ps and spinning Ms of one node.
#[derive(Debug)]
pub(crate) struct IdleSet {
    /// Indexes of Ps within the node.
    idle: BitSet,
    /// Ordering: sequentially consistent; see the table above.
    n_spinning: AtomicU32,
    /// The bit of the node in [`IdleNodes`].
    node_bit: u64,
}

impl IdleSet {
    pub(crate) fn new(node_idx: usize, n_ps: usize) -> IdleSet {
        IdleSet {
            idle: BitSet::new(n_ps),
            n_spinning: AtomicU32::new(0),
            node_bit: 1 << node_idx.min(LAST_BIT),
        }
    }

    pub(crate) fn n_spinning(&self) -> u32 {
        self.n_spinning.load(Ordering::SeqCst)
    }

    pub(crate) fn any_idle(&self) -> bool {
        self.idle.any()
    }

    /// Number of idle Ps of the node; a snapshot.
    pub(crate) fn n_idle(&self) -> usize {
        self.idle.len()
    }

    /// Number of Ps of the node that sleep or spin; a snapshot.
    pub(crate) fn n_without_work(&self) -> usize {
        self.n_idle() + self.n_spinning() as usize
    }

    pub(crate) fn is_idle(&self, at: usize) -> bool {
        self.idle.contains(at)
    }

    /// The sleeper's steps 1 and 2.
    pub(crate) fn go_idle(&self, at: usize, was_spinning: bool) {
        self.idle.insert(at);
        if was_spinning {
            self.n_spinning.fetch_sub(1, Ordering::SeqCst);
        }
        after_seq_cst();
    }

    /// Takes a P out of the set: `true` for exactly one of the P's own M, which wakes by itself,
    /// and the notifiers.
    #[must_use]
    pub(crate) fn claim(&self, at: usize) -> bool {
        self.idle.remove(at)
    }

    /// The pusher's steps 3 and 4, for which `most` is 1: nothing is begun if so many Ms spin. With
    /// `true` the caller must claim and notify an idle P, or call [`IdleSet::stop_spinning`] if there
    /// is none.
    #[must_use]
    pub(crate) fn begin_wake(&self, most: u32) -> bool {
        let mut n = self.n_spinning.load(Ordering::SeqCst);
        while n < most && self.idle.any() {
            let counted =
                self.n_spinning
                    .compare_exchange(n, n + 1, Ordering::SeqCst, Ordering::SeqCst);
            match counted {
                Ok(_) => return true,
                Err(now) => n = now,
            }
        }
        false
    }

    /// Counts one more spinner unconditionally: a notified M counts as one, also where it is
    /// notified for another reason than work.
    pub(crate) fn add_spinner(&self) {
        self.n_spinning.fetch_add(1, Ordering::SeqCst);
    }

    /// An M that found no work tries to become a spinner: at most half of the busy Ps may.
    #[must_use]
    pub(crate) fn begin_spinning(&self, n_busy: usize) -> bool {
        let n_spinning = self.n_spinning.load(Ordering::SeqCst) as usize;
        if !policy::may_spin(n_spinning, n_busy) {
            return false;
        }
        self.n_spinning.fetch_add(1, Ordering::SeqCst);
        true
    }

    /// A spinner found work (or a wake found no P). `true` if it was the last: it must then check
    /// the queues and wake another M, for work that was pushed while it was spinning.
    pub(crate) fn stop_spinning(&self) -> bool {
        let was_last = self.n_spinning.fetch_sub(1, Ordering::SeqCst) == 1;
        after_seq_cst();
        was_last
    }
}

/// Nodes from this one on share a bit, which is never taken back.
const LAST_BIT: usize = 63;

/// A bit for each node that may have idle Ps. One that has some has its bit.
///
/// Ordering: sequentially consistent; see the second table above.
#[derive(Debug, Default)]
pub(crate) struct IdleNodes(AtomicU64);

impl IdleNodes {
    /// The sleeper, between its steps 2 and 3.
    pub(crate) fn add(&self, node: &IdleSet) {
        // ORDERING: a fence stands behind the insertion into the set (`IdleSet::go_idle`).
        if !self.has(node) {
            self.0.fetch_or(node.node_bit, Ordering::SeqCst);
            after_seq_cst();
        }
    }

    /// The pusher's step 2, and whether any P may be idle: if none is, there is nobody to wake.
    #[inline(always)]
    pub(crate) fn any_after_push(&self) -> bool {
        fence(Ordering::SeqCst);
        self.any()
    }

    /// Whether any P may be idle; a hint.
    #[inline(always)]
    pub(crate) fn any(&self) -> bool {
        self.bits() != 0
    }

    /// The bits; a hint.
    #[inline(always)]
    pub(crate) fn bits(&self) -> u64 {
        // ORDERING: relaxed: behind a push's fence, or a hint.
        self.0.load(Ordering::Relaxed)
    }

    /// Whether a P of `node` may be idle; a hint.
    pub(crate) fn has(&self, node: &IdleSet) -> bool {
        self.0.load(Ordering::SeqCst) & node.node_bit != 0
    }

    /// Whether a P of `node` is idle. If none is, this is noted for those that push from now on. If one falls asleep just
    /// then, `wakes` must wake an M of `node`, unless one spins there.
    pub(crate) fn any_idle(&self, node: &IdleSet, wakes: impl FnOnce()) -> bool {
        if !self.has(node) {
            return false;
        }
        if !node.any_idle() {
            if !self.take_back(node) {
                return false;
            }
            wakes();
        }
        true
    }

    /// A waker has found no idle P in `node`. `true` if there is one by now.
    #[cold]
    #[must_use]
    fn take_back(&self, node: &IdleSet) -> bool {
        if !self.has(node) || node.node_bit == 1 << LAST_BIT {
            return false;
        }
        self.0.fetch_and(!node.node_bit, Ordering::SeqCst);
        after_seq_cst();
        let any_idle = node.any_idle();
        if any_idle {
            self.0.fetch_or(node.node_bit, Ordering::SeqCst);
            after_seq_cst();
        }
        any_idle
    }
}

/// The P's M is awake.
const AWAKE: u32 = 0;
/// The M sleeps on the word with a futex.
pub(crate) const ON_FUTEX: u32 = 1;
/// The M sleeps in the ring.
pub(crate) const IN_RING: u32 = 2;
/// The M was notified: it must wake up, as a spinner.
const NOTIFIED: u32 = 3;

/// The step by which a notifier wakes the sleeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WakeMethod {
    Nothing,
    Futex,
    Ring,
}

/// How a P's M sleeps.
///
/// Ordering: swaps are acquire-release, so the M sees what the notifier wrote.
#[derive(Debug)]
pub(crate) struct IdleWord(AtomicU32);

impl IdleWord {
    pub(crate) fn new() -> IdleWord {
        IdleWord(AtomicU32::new(AWAKE))
    }

    /// The sleeper records how it will sleep, before it becomes claimable.
    pub(crate) fn prepare(&self, how: u32) {
        self.0.store(how, Ordering::SeqCst);
    }

    pub(crate) fn is_notified(&self) -> bool {
        self.0.load(Ordering::Acquire) == NOTIFIED
    }

    /// Notifies the M of a P that the caller claimed.
    #[must_use]
    pub(crate) fn notify(&self) -> WakeMethod {
        match self.0.swap(NOTIFIED, Ordering::AcqRel) {
            ON_FUTEX => WakeMethod::Futex,
            IN_RING => WakeMethod::Ring,
            _ => WakeMethod::Nothing,
        }
    }

    /// The M is awake again; `true` if it was notified.
    pub(crate) fn awake(&self) -> bool {
        self.0.swap(AWAKE, Ordering::AcqRel) == NOTIFIED
    }

    /// The word itself, for the futex.
    #[cfg(not(loom))]
    pub(crate) fn futex(&self) -> &crate::loom::native::atomic::AtomicU32 {
        &self.0
    }

    #[cfg(loom)]
    pub(crate) fn futex(&self) -> &crate::loom::native::atomic::AtomicU32 {
        unreachable!("loom models never sleep on a futex")
    }
}

#[cfg(all(test, any(loom, miri)))]
#[path = "idle_loom_tests.rs"]
mod loom_tests;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_woken_beside_a_spinner() {
        let set = IdleSet::new(0, 4);
        set.go_idle(1, false);
        set.go_idle(2, false);
        assert!(set.begin_wake(1));
        assert!(!set.begin_wake(1));
        assert!(set.begin_wake(2));
        assert!(!set.begin_wake(2));
        assert!(!set.stop_spinning() && set.stop_spinning());
        assert!(set.claim(1) && set.claim(2));
        assert!(!set.begin_wake(1), "no P is idle");
    }
}

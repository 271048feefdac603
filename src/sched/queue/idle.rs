//! Who sleeps, who spins: the protocol that loses no wake-up.
//!
//! An M that finds nothing may *spin* (look again for a while) or *park* (sleep in
//! its ring or on its P's word). Whoever makes work wakes at most one M, and only
//! if none spins: the spinner will find it, and on finding it wakes the next, so
//! wake-ups chain while there is work and stop when there is none.
//!
//! | pusher                              | M going to sleep                      |
//! |-------------------------------------|---------------------------------------|
//! | 1. push the G                       | 1. insert P into the idle set         |
//! | 2. full fence                       | 2. if it spun: n_spinning - 1         |
//! | 3. n_spinning != 0? leave it to the | 3. look at all queues once more; if   |
//! |    spinner                          |    there is work, take P out of the   |
//! | 4. n_spinning 0 → 1, take an idle P |    set and go on (if it was taken out |
//! |    out of the set, notify its M,    |    already, a notification is coming) |
//! |    which now spins                  | 4. sleep until notified               |
//!
//! All of it is sequentially consistent: either the pusher sees the spinner gone
//! and the P idle, or the sleeper sees the push. A queue is looked at with acquire loads,
//! so each side has a fence between its steps. The loom model is below. A pusher's first look
//! is at `Sched::n_idle`, which the sleeper raises between 2 and 3, with a fence of its own.
//!
//! The P's *word* says how its M sleeps, so that a notifier makes no system call
//! for one that is awake.

use crate::loom::{AtomicU32, Ordering, after_seq_cst};
use crate::sched::numa::policy;
use crate::util::bitset::BitSet;

/// The idle Ps and spinning Ms of one node.
#[derive(Debug)]
pub(crate) struct IdleSet {
    /// Indexes of Ps within the node.
    idle: BitSet,
    /// Ordering: sequentially consistent; see the table above.
    n_spinning: AtomicU32,
}

impl IdleSet {
    pub(crate) fn new(n_ps: usize) -> IdleSet {
        IdleSet {
            idle: BitSet::new(n_ps),
            n_spinning: AtomicU32::new(0),
        }
    }

    pub(crate) fn n_spinning(&self) -> u32 {
        self.n_spinning.load(Ordering::SeqCst)
    }

    pub(crate) fn any_idle(&self) -> bool {
        self.idle.any()
    }

    /// How many Ps of the node are idle, as of now.
    pub(crate) fn n_idle(&self) -> usize {
        self.idle.len()
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

    /// Takes a P out of the set: `true` for exactly one of the M that wakes by
    /// itself and the notifiers.
    #[must_use]
    pub(crate) fn claim(&self, at: usize) -> bool {
        self.idle.remove(at)
    }

    /// The pusher's steps 3 and 4: `true` gives the duty to claim and notify an
    /// idle P, or to call [`IdleSet::stop_spinning`] if there is none.
    #[must_use]
    pub(crate) fn begin_wake(&self) -> bool {
        self.n_spinning.load(Ordering::SeqCst) == 0
            && self.idle.any()
            && self
                .n_spinning
                .compare_exchange(0, 1, Ordering::SeqCst, Ordering::SeqCst)
                .is_ok()
    }

    /// Counts a spinner whatever the others do: at the end of a run every idle P is
    /// notified, and a notified M counts as one.
    pub(crate) fn add_spinner(&self) {
        self.n_spinning.fetch_add(1, Ordering::SeqCst);
    }

    /// An M that found nothing wants to spin: at most half of the busy Ps do.
    #[must_use]
    pub(crate) fn begin_spinning(&self, n_busy: usize) -> bool {
        let n_spinning = self.n_spinning.load(Ordering::SeqCst) as usize;
        if !policy::may_spin(n_spinning, n_busy) {
            return false;
        }
        self.n_spinning.fetch_add(1, Ordering::SeqCst);
        true
    }

    /// A spinner found work (or a wake found no P). `true` if it was the last: it
    /// then looks at the queues and wakes another, for work that was pushed while it spun.
    pub(crate) fn stop_spinning(&self) -> bool {
        let was_last = self.n_spinning.fetch_sub(1, Ordering::SeqCst) == 1;
        after_seq_cst();
        was_last
    }
}

/// The P's M is awake.
const AWAKE: u32 = 0;
/// It sleeps on the word with a futex.
pub(crate) const ON_FUTEX: u32 = 1;
/// It sleeps in the ring.
pub(crate) const IN_RING: u32 = 2;
/// It was told to wake up, as a spinner.
const NOTIFIED: u32 = 3;

/// What a notifier must do to make the sleeper run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WakeMethod {
    Nothing,
    Futex,
    Ring,
}

/// How a P's M sleeps.
///
/// Ordering: swaps are acquire-release: what the notifier wrote is seen by the M.
#[derive(Debug)]
pub(crate) struct IdleWord(AtomicU32);

impl IdleWord {
    pub(crate) fn new() -> IdleWord {
        IdleWord(AtomicU32::new(AWAKE))
    }

    /// The sleeper says how it will sleep, before it becomes claimable.
    pub(crate) fn prepare(&self, how: u32) {
        self.0.store(how, Ordering::SeqCst);
    }

    pub(crate) fn is_notified(&self) -> bool {
        self.0.load(Ordering::Acquire) == NOTIFIED
    }

    /// Tells the M of a P that the caller claimed to wake up.
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

#[cfg(all(test, loom))]
#[path = "idle_loom_tests.rs"]
mod loom_tests;

//! One word between those who read from a descriptor and the poller that tells of what
//! comes: Go's `pollDesc`, with a number in each word of the poller.
//!
//! | reader                              | poller                          | canceller      |
//! |-------------------------------------|---------------------------------|----------------|
//! | 1. told of anything? remember which | 1. a new number                 | 1. CAS waiter  |
//! | 2. attempt                          | 2. swap it in; got a waiter?    |    → nothing;  |
//! | 3. nothing left: CAS what it        |    its wait is the poller's to  |    if it was   |
//! |    remembered → nothing             |    end                          |    there, end  |
//! | 4. CAS nothing → itself, and wait;  |                                 |    its wait    |
//! |    told meanwhile? begin again      |                                 |                |
//!
//! What comes between 2 and 3 has another number, so that 3 does not wipe it out; what comes
//! between 3 and 4 makes 4 fail. Others may read, too: whoever leaves something leaves the
//! word as it is, so nobody waits beside it.

use crate::loom::{AtomicPtr, AtomicU64, Ordering};

/// Set in what the poller says; addresses of waiters are even.
const READY: usize = 1;

/// What a reader saw the poller say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SeenEvents(*mut ());

/// What came of wanting to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PollWait {
    /// The poller or a canceller ends it.
    Waits,
    /// The poller has told of something: an attempt is worth while.
    Told,
    /// Somebody else waits already, and there is place for one.
    Taken,
}

/// The word.
#[derive(Debug)]
pub(crate) struct PollDesc {
    /// Null for nothing; odd: the poller told of something; else a waiter.
    /// Ordering: release by the waiter, whose frame the poller then uses; release by the
    /// poller, too, and acquire by both. That the attempt comes before the CAS of step 3 is the
    /// matter of the system call.
    word: AtomicPtr<()>,
    /// How often the poller has told of something. Ordering: relaxed; only its own value counts.
    n_events: AtomicU64,
}

impl PollDesc {
    pub(crate) fn new() -> PollDesc {
        PollDesc {
            word: AtomicPtr::new(std::ptr::null_mut()),
            n_events: AtomicU64::new(0),
        }
    }

    /// The reader's first step.
    #[inline]
    pub(crate) fn look(&self) -> Option<SeenEvents> {
        let word = self.word.load(Ordering::Acquire);
        (word.addr() & READY != 0).then_some(SeenEvents(word))
    }

    /// The reader's third step.
    #[inline]
    pub(crate) fn forget(&self, seen: SeenEvents) {
        // A failure means that more has come, or that another reader has found nothing.
        let _ = self.word.compare_exchange(
            seen.0,
            std::ptr::null_mut(),
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
    }

    /// The reader's fourth step. Once this gives [`PollWait::Waits`] the waiter may be gone.
    #[inline]
    pub(crate) fn wait(&self, waiter: *const ()) -> PollWait {
        debug_assert!(waiter.addr() & READY == 0 && !waiter.is_null());
        match self.word.compare_exchange(
            std::ptr::null_mut(),
            waiter.cast_mut(),
            Ordering::AcqRel,
            Ordering::Acquire,
        ) {
            Ok(_) => PollWait::Waits,
            Err(word) if word.addr() & READY != 0 => PollWait::Told,
            Err(_) => PollWait::Taken,
        }
    }

    /// The poller's side. Gives who waited, whose wait is the caller's to end, and what a
    /// reader would see from here on: the poller may also take the reader's steps for it.
    #[inline]
    pub(crate) fn set_ready(&self) -> (Option<*const ()>, SeenEvents) {
        let n = self.n_events.fetch_add(1, Ordering::Relaxed) as usize;
        let told = std::ptr::without_provenance_mut(n << 1 | READY);
        let before = self.word.swap(told, Ordering::AcqRel);
        let waited = before.addr() & READY == 0 && !before.is_null();
        (waited.then_some(before.cast_const()), SeenEvents(told))
    }

    /// Where the waiter lies, if there is one: it may be gone.
    pub(crate) fn waiter(&self) -> *const () {
        self.word.load(Ordering::Relaxed)
    }

    /// How often the poller has told of something, as of now.
    pub(crate) fn n_events(&self) -> u64 {
        self.n_events.load(Ordering::Relaxed)
    }

    /// The canceller's side: `true` if `waiter` waited, and its wait is the caller's to end.
    pub(crate) fn withdraw(&self, waiter: *const ()) -> bool {
        self.word
            .compare_exchange(
                waiter.cast_mut(),
                std::ptr::null_mut(),
                Ordering::AcqRel,
                Ordering::Relaxed,
            )
            .is_ok()
    }
}

#[cfg(all(test, loom))]
#[path = "poll_desc_loom_tests.rs"]
mod loom_tests;

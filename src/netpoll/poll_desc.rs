//! The readiness of one descriptor in one word, shared by its readers and the poller: Go's
//! `pollDesc`, with a sequence number in each readiness event.
//!
//! | reader                              | poller                          | canceller      |
//! |-------------------------------------|---------------------------------|----------------|
//! | 1. ready? remember the event        | 1. take a new number            | 1. CAS waiter  |
//! | 2. attempt                          | 2. swap it in; was there a      |    → nothing;  |
//! | 3. nothing left: CAS the remembered |    waiter? the poller ends its  |    on success  |
//! |    event → nothing                  |    wait                         |    end its     |
//! | 4. CAS nothing → itself, and wait;  |                                 |    wait        |
//! |    an event meanwhile? start again  |                                 |                |
//!
//! An event between steps 2 and 3 has a new number, so the CAS of step 3 fails and the event stays.
//! An event between steps 3 and 4 makes the CAS of step 4 fail. Other readers may read at the same
//! time: a reader that leaves data behind leaves the word as it is, so no reader waits while data
//! is there.

use std::num::NonZero;
use std::ptr::NonNull;

use crate::loom::{AtomicPtr, AtomicU64, Ordering};

/// Set in the poller's events; addresses of waiters are even.
const READY: usize = 1;

/// The readiness event that a reader saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SeenEvents(NonNull<()>);

impl SeenEvents {
    pub(super) fn as_raw(self) -> *const () {
        self.0.as_ptr()
    }

    pub(super) fn from_raw(raw: *const ()) -> Option<SeenEvents> {
        NonNull::new(raw.cast_mut()).map(SeenEvents)
    }
}

/// The result of [`PollDesc::wait`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PollWait {
    /// The waiter is registered; the poller or a canceller ends the wait.
    Waits,
    /// There is an event: an attempt is worthwhile.
    Ready,
    /// Another waiter is registered, and there is room for one only.
    Taken,
}

/// The word of one descriptor.
#[derive(Debug)]
pub(crate) struct PollDesc {
    /// Null for nothing; odd: a readiness event; else the address of a waiter. Ordering: release by
    /// the waiter, whose frame the poller then uses; release by the poller, too, and acquire by
    /// both. The order of the attempt and the CAS of step 3 rests on the attempt being a system
    /// call.
    word: AtomicPtr<()>,
    /// Readiness events so far. Ordering: relaxed; only its own value counts.
    n_events: AtomicU64,
}

impl PollDesc {
    pub(crate) fn new() -> PollDesc {
        PollDesc {
            word: AtomicPtr::new(std::ptr::null_mut()),
            n_events: AtomicU64::new(0),
        }
    }

    /// The reader's step 1.
    #[inline]
    pub(crate) fn look(&self) -> Option<SeenEvents> {
        let word = self.word.load(Ordering::Acquire);
        let seen = NonNull::new(word).filter(|word| word.addr().get() & READY != 0);
        seen.map(SeenEvents)
    }

    /// The reader's step 3.
    #[inline]
    pub(crate) fn forget(&self, seen: SeenEvents) {
        // A failure means a newer event, or that another reader found nothing as well.
        let _ = self.word.compare_exchange(
            seen.0.as_ptr(),
            std::ptr::null_mut(),
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
    }

    /// The reader's step 4. Once this has returned [`PollWait::Waits`] the waiter's frame may be
    /// gone.
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
            Err(word) if word.addr() & READY != 0 => PollWait::Ready,
            Err(_) => PollWait::Taken,
        }
    }

    /// The poller's side. Returns the waiter, if any, whose wait the caller must end, and the new
    /// event: the poller may take the reader's steps on the waiter's behalf.
    #[inline]
    pub(crate) fn set_ready(&self) -> (Option<*const ()>, SeenEvents) {
        let n = self.n_events.fetch_add(1, Ordering::Relaxed) as usize;
        let ready = NonNull::without_provenance(NonZero::<usize>::MIN | n << 1);
        let before = self.word.swap(ready.as_ptr(), Ordering::AcqRel);
        let waited = before.addr() & READY == 0 && !before.is_null();
        (waited.then_some(before.cast_const()), SeenEvents(ready))
    }

    /// The address of the waiter, or null. Its frame may be gone.
    pub(crate) fn waiter(&self) -> *const () {
        self.word.load(Ordering::Relaxed)
    }

    /// Readiness events so far.
    pub(crate) fn n_events(&self) -> u64 {
        self.n_events.load(Ordering::Relaxed)
    }

    /// The canceller's side. `true` if `waiter` was registered; the caller must then end its wait.
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

#[cfg(all(test, any(loom, miri)))]
#[path = "poll_desc_loom_tests.rs"]
mod loom_tests;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const READER: *const () = std::ptr::without_provenance(16);
    const OTHER: *const () = std::ptr::without_provenance(32);

    #[test]
    fn an_event_that_nobody_has_seen_stays() {
        let word = PollDesc::new();
        assert_eq!(word.set_ready().0, None);
        let seen = word.look().unwrap();
        let (_, newer) = word.set_ready();
        word.forget(seen);
        assert_eq!(word.look(), Some(newer));
        assert_eq!(word.wait(READER), PollWait::Ready);
        word.forget(newer);
        assert_eq!(word.wait(READER), PollWait::Waits);
    }

    #[test]
    fn one_waits_and_is_told_or_withdrawn() {
        let word = PollDesc::new();
        assert_eq!(word.wait(READER), PollWait::Waits);
        assert_eq!(word.wait(OTHER), PollWait::Taken);
        assert!(!word.withdraw(OTHER));
        let (told, event) = word.set_ready();
        assert_eq!(told, Some(READER));
        assert!(!word.withdraw(READER));
        assert_eq!(word.look(), Some(event));
        word.forget(event);
        assert_eq!(word.wait(OTHER), PollWait::Waits);
        assert!(word.withdraw(OTHER));
        assert_eq!(word.set_ready().0, None);
    }
}

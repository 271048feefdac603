//! A goroutine handed to one particular M, which alone may run it: a word in the M.
//!
//! Used for Ms that goroutines have locked (`locked`), and when a P is given away together with the
//! goroutine to run on it. There are two races, both modelled with loom:
//!
//! | giver                         | M that gives its P away   | M that falls asleep with its P |
//! |-------------------------------|---------------------------|--------------------------------|
//! | 1. swap the G in (`post`)     | 1. nothing → `WAITING`    | 1. mark the P as idle          |
//! | 2. it was `WAITING`? give the |    (`begin_waiting`); if  | 2. check here (`is_there`)     |
//! |    M this P, too              |    there is a G, keep the |                                |
//! | 3. else: its P is idle? wake  |    P and run that G       |                                |
//! |    the M                      |                           |                                |
#![allow(unsafe_code)]

use std::ptr::NonNull;

use crate::g::header::{GRef, Header};
use crate::loom::{AtomicPtr, Ordering, after_seq_cst};

/// The slot for the handed goroutine.
///
/// | holds     | while                                            | changed by                   |
/// |-----------|--------------------------------------------------|------------------------------|
/// | nothing   | the M holds a P, or is not locked                | a giver, with a G; or the M  |
/// | `WAITING` | it is locked and has no P: it sleeps on its note | a giver, with a G and a P    |
/// | a G       | it holds a P, and has not checked yet            | the M                        |
/// | a G, and  | it has no P yet; one is there for it, or is      | the M, once it has the P     |
/// | `WAITING` | about to come                                    |                              |
///
/// Ordering: sequentially consistent, as the idle protocol: a giver stores the G and then checks
/// whether the M sleeps; the M marks itself as asleep and then checks here.
#[derive(Debug, Default)]
pub(crate) struct HandedWork(AtomicPtr<Header>);

const WAITING: *mut Header = std::ptr::without_provenance_mut(1);

/// How a goroutine was posted to its M.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Posted {
    /// The M has a P to run it on.
    ToHolder,
    /// The M waits without a P: the caller must give it one.
    ToWaiter,
}

impl HandedWork {
    pub(crate) fn new() -> HandedWork {
        HandedWork(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// Posts a G to this M. The caller owns it, and there is no other G for this M. What the caller reads
    /// next, it reads after this.
    pub(crate) fn post(&self, g: GRef) -> Posted {
        let mut now = self.0.load(Ordering::SeqCst);
        let before = loop {
            debug_assert!(now.addr() <= WAITING.addr(), "two goroutines for one M");
            // The `WAITING` bit is kept.
            let marked = g.as_ptr().map_addr(|at| at | now.addr());
            match self.swap_if(now, marked) {
                Ok(before) => break before,
                Err(other) => now = other,
            }
        };
        after_seq_cst();
        match before {
            WAITING => Posted::ToWaiter,
            _ => Posted::ToHolder,
        }
    }

    fn swap_if(&self, now: *mut Header, new: *mut Header) -> Result<*mut Header, *mut Header> {
        self.0
            .compare_exchange(now, new, Ordering::SeqCst, Ordering::SeqCst)
    }

    #[inline(always)]
    pub(crate) fn is_there(&self) -> bool {
        self.0.load(Ordering::SeqCst).addr() > WAITING.addr()
    }

    /// Called by the M: takes the G, if there is one.
    #[inline]
    pub(crate) fn take(&self) -> Option<GRef> {
        if !self.is_there() {
            return None;
        }
        unmarked(self.0.swap(std::ptr::null_mut(), Ordering::SeqCst))
    }

    /// Called by a locked M that has got its P: clears `WAITING`. If the M loses the P before it
    /// takes the G, the G must be posted again.
    pub(crate) fn end_waiting(&self) {
        let now = self.0.load(Ordering::SeqCst);
        // No thread posts to an M that has its G.
        self.0
            .store(now.map_addr(|at| at & !WAITING.addr()), Ordering::SeqCst);
    }

    /// Called by a locked M that is about to give its P away: from here on its G comes with a P.
    /// `false` if the G is already there.
    #[must_use]
    pub(crate) fn begin_waiting(&self) -> bool {
        self.swap_if(std::ptr::null_mut(), WAITING).is_ok()
    }

    /// Called by a locked M that has no P, however it lost it: the M waits from here on. Returns a
    /// G that was posted while the M had a P: it has to be queued again.
    #[must_use]
    pub(crate) fn wait_on(&self) -> Option<GRef> {
        let mut now = self.0.load(Ordering::SeqCst);
        while now.addr() & WAITING.addr() == 0 {
            match self.swap_if(now, WAITING) {
                Ok(g) => return unmarked(g),
                Err(other) => now = other,
            }
        }
        None
    }
}

fn unmarked(g: *mut Header) -> Option<GRef> {
    let g = NonNull::new(g.map_addr(|at| at & !WAITING.addr()))?;
    // SAFETY: only `post` stores addresses here, those of Gs.
    Some(unsafe { GRef::from_raw(g) })
}

#[cfg(all(test, any(loom, miri)))]
#[path = "handed_work_loom_tests.rs"]
mod loom_tests;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::g::slab;

    fn g() -> GRef {
        let mut g = None;
        slab::take(slab::DepotId::ANY, 0, 1, |slot| g = Some(slot));
        g.unwrap()
    }

    #[test]
    fn a_holder_finds_what_was_posted() {
        let (mail, g) = (HandedWork::new(), g());
        assert_eq!(mail.take(), None);
        assert_eq!(mail.post(g), Posted::ToHolder);
        assert!(!mail.begin_waiting(), "it is there already");
        assert_eq!(mail.take(), Some(g));
        assert_eq!(mail.take(), None);
    }

    #[test]
    fn who_waits_needs_a_p_too() {
        let (mail, g) = (HandedWork::new(), g());
        assert!(mail.begin_waiting() && !mail.is_there());
        assert_eq!(mail.wait_on(), None, "it waits already");
        assert_eq!(mail.post(g), Posted::ToWaiter);
        // The P is there.
        mail.end_waiting();
        assert!(mail.is_there());
        // And was lost again: the goroutine goes elsewhere.
        assert_eq!(mail.wait_on(), Some(g));
        assert_eq!(mail.post(g), Posted::ToWaiter);
        mail.end_waiting();
        assert_eq!(mail.take(), Some(g));
    }
}

//! Goroutines that one M is to run and no other: a word in the M.
//!
//! It serves Ms that goroutines have locked (`locked`), and whoever gives a P away together
//! with what is to run on it. Two things could go wrong, both modelled with loom:
//!
//! | giver                         | M that gives its P away   | M that falls asleep with its P |
//! |-------------------------------|---------------------------|--------------------------------|
//! | 1. swap the G in (`post`)     | 1. nothing → `WAITING`    | 1. say that the P is idle      |
//! | 2. it was `WAITING`? give the |    (`begin_waiting`); if  | 2. look here (`is_there`)      |
//! |    M this P, too              |    there is a G, keep the |                                |
//! | 3. else: its P is idle? wake  |    P and run that         |                                |
//! |    the M                      |                           |                                |
#![allow(unsafe_code)]

use std::ptr::NonNull;

use crate::g::header::{GRef, Header};
use crate::loom::{AtomicPtr, Ordering};

/// A letter box.
///
/// | holds     | while                                            | moved on by                  |
/// |-----------|--------------------------------------------------|------------------------------|
/// | nothing   | it holds a P, or is no locked one                | a giver, with a G; or itself |
/// | `WAITING` | it is locked and has no P: it sleeps on its note | a giver, with a G and a P    |
/// | a G       | it has not looked; it holds a P                  | itself                       |
/// | a G, and  | it has no P yet; one for it is there, or is      | itself, once it has the P    |
/// | `WAITING` | about to come                                    |                              |
///
/// Ordering: sequentially consistent, as the idle protocol: a giver puts the G in and then
/// looks whether the M sleeps; the M says that it sleeps and then looks here.
#[derive(Debug)]
pub(crate) struct HandedWork(AtomicPtr<Header>);

const WAITING: *mut Header = std::ptr::without_provenance_mut(1);

/// How a goroutine reached its M.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Posted {
    /// The M has a P to run it on.
    ToHolder,
    /// The M needs one.
    ToWaiter,
}

impl HandedWork {
    pub(crate) fn new() -> HandedWork {
        HandedWork(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// A G for this M. The caller owns it, and no other is on its way.
    pub(crate) fn post(&self, g: GRef) -> Posted {
        let mut now = self.0.load(Ordering::SeqCst);
        loop {
            debug_assert!(now.addr() <= WAITING.addr(), "two goroutines for one M");
            // What was there stays as a mark.
            let marked = g.as_ptr().map_addr(|at| at | now.addr());
            match self.swap_if(now, marked) {
                Ok(WAITING) => return Posted::ToWaiter,
                Ok(_) => return Posted::ToHolder,
                Err(other) => now = other,
            }
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

    /// By the M: takes what is there.
    #[inline]
    pub(crate) fn take(&self) -> Option<GRef> {
        if !self.is_there() {
            return None;
        }
        unmarked(self.0.swap(std::ptr::null_mut(), Ordering::SeqCst))
    }

    /// By a locked M that has got the P: were it to lose that before it looks here, its G
    /// has to come once more.
    pub(crate) fn end_waiting(&self) {
        let now = self.0.load(Ordering::SeqCst);
        // Nobody posts to an M that has its G.
        self.0
            .store(now.map_addr(|at| at & !WAITING.addr()), Ordering::SeqCst);
    }

    /// By a locked M that is about to give its P away: from here on its G comes with one.
    /// `false` if it is there.
    #[must_use]
    pub(crate) fn begin_waiting(&self) -> bool {
        self.swap_if(std::ptr::null_mut(), WAITING).is_ok()
    }

    /// By a locked M that has no P, whatever became of it: it waits from here on. Gives the
    /// G that was sent to it while it had one: that goes to another M first.
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
    // SAFETY: only `post` puts addresses here, those of Gs.
    Some(unsafe { GRef::from_raw(g) })
}

#[cfg(all(test, loom))]
#[path = "handed_work_loom_tests.rs"]
mod loom_tests;

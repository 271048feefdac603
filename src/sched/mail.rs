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
/// | a G       | it has not looked                                | itself                       |
///
/// Ordering: sequentially consistent, as the idle protocol: a giver puts the G in and then
/// looks whether the M sleeps; the M says that it sleeps and then looks here.
#[derive(Debug)]
pub(crate) struct Mail(AtomicPtr<Header>);

const WAITING: *mut Header = std::ptr::without_provenance_mut(1);

/// How a goroutine reached its M.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Posted {
    /// The M has a P to run it on.
    ToHolder,
    /// The M needs one.
    ToWaiter,
}

impl Mail {
    pub(crate) fn new() -> Mail {
        Mail(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// A G for this M. The caller owns it, and no other is on its way.
    pub(crate) fn post(&self, g: GRef) -> Posted {
        match self.0.swap(g.as_ptr(), Ordering::SeqCst) {
            WAITING => Posted::ToWaiter,
            before => {
                debug_assert!(before.is_null(), "two goroutines for one M");
                Posted::ToHolder
            }
        }
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
        let g = NonNull::new(self.0.swap(std::ptr::null_mut(), Ordering::SeqCst))?;
        // SAFETY: only `post` puts addresses here, those of Gs.
        Some(unsafe { GRef::from_raw(g) })
    }

    /// By a locked M that is about to give its P away: from here on its G comes with one.
    /// `false` if it is there.
    #[must_use]
    pub(crate) fn begin_waiting(&self) -> bool {
        self.0
            .compare_exchange(
                std::ptr::null_mut(),
                WAITING,
                Ordering::SeqCst,
                Ordering::SeqCst,
            )
            .is_ok()
    }
}

#[cfg(all(test, loom))]
#[path = "mail_loom_tests.rs"]
mod loom_tests;

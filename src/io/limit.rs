//! `Limit`: an absolute deadline that may be moved while goroutines wait under it.
//!
//! A goroutine arms a timer for the deadline when it begins to wait. Whoever brings
//! the deadline forward must reach those that wait already: it ends their waits at the
//! new time, and they look again. (Putting it off needs nothing: their timers end their
//! waits, they look, and wait on.)
//!
//! | goroutine                            | whoever moves the deadline             |
//! |--------------------------------------|----------------------------------------|
//! | 1. enter: name itself as waiting     | 1. deadline = new                      |
//! | 2. status = Waiting(n)               | 2. read who waits                      |
//! | 3. read the deadline, arm a timer    | 3. status Waiting(n)? and still named? |
//! |    for n                             |    then arm a timer for n              |
//!
//! Sequential consistency: a mover that does not find the name, or finds another status,
//! came before the goroutine's 3, which reads the new deadline. The second look at the
//! name makes sure that n is a wait under this limit: a goroutine that has left it has
//! left every wait that was seen before.
#![allow(unsafe_code)]

use std::ptr::{self, NonNull};

use crate::g::header::Header;
use crate::g::status::{Reason, Status, WaitId};
use crate::lock::{Lock, Rank};
use crate::loom::{AtomicPtr, AtomicU64, Ordering, after_seq_cst};
use crate::sys::clock::NEVER;

/// Something that has a goroutine's status.
pub(crate) trait HasStatus {
    fn status(&self) -> &Status;
}

impl HasStatus for Header {
    fn status(&self) -> &Status {
        &self.status
    }
}

/// A waiting goroutine, by address.
struct Name<W>(NonNull<W>);

impl<W> Clone for Name<W> {
    fn clone(&self) -> Name<W> {
        Name(self.0)
    }
}

impl<W> PartialEq for Name<W> {
    fn eq(&self, other: &Name<W>) -> bool {
        self.0 == other.0
    }
}

// SAFETY: headers of goroutines are type-stable and shared by all threads.
unsafe impl<W> Send for Name<W> {}

/// A deadline, and who waits under it.
pub(crate) struct Limit<W = Header> {
    /// `NEVER` for none. Ordering: sequentially consistent, as the table says.
    at_ns: AtomicU64,
    /// One that waits: most often there are no others. Ordering: as `at_ns`.
    first: AtomicPtr<W>,
    others: Lock<Vec<Name<W>>>,
}

impl<W> std::fmt::Debug for Limit<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Limit")
            .field("at_ns", &self.at_ns)
            .finish_non_exhaustive()
    }
}

impl<W: HasStatus> Limit<W> {
    pub(crate) fn new() -> Limit<W> {
        Limit {
            at_ns: AtomicU64::new(NEVER),
            first: AtomicPtr::new(ptr::null_mut()),
            others: Lock::new(Rank::Waiters, Vec::new()),
        }
    }

    #[inline]
    pub(crate) fn ns(&self) -> u64 {
        self.at_ns.load(Ordering::SeqCst)
    }

    /// Names a goroutine as waiting, until what this gives is dropped.
    ///
    /// # Safety
    ///
    /// `who` is the calling goroutine, in a slot that stays memory for ever.
    #[inline]
    pub(crate) unsafe fn enter(&self, who: NonNull<W>) -> Waiting<'_, W> {
        let took = self.first.compare_exchange(
            ptr::null_mut(),
            who.as_ptr(),
            Ordering::SeqCst,
            Ordering::Relaxed,
        );
        if took.is_err() {
            self.others.lock().push(Name(who));
        }
        after_seq_cst();
        Waiting { limit: self, who }
    }

    #[cold]
    fn leave_others(&self, who: NonNull<W>) {
        let mut others = self.others.lock();
        if let Some(at) = others.iter().position(|name| name.0 == who) {
            others.swap_remove(at);
        }
    }

    /// Sets the deadline. Gives every wait that it must end at the new time to `end`.
    pub(crate) fn set(&self, at_ns: u64, mut end: impl FnMut(NonNull<W>, WaitId)) {
        self.at_ns.store(at_ns, Ordering::SeqCst);
        after_seq_cst();
        if let Some(who) = NonNull::new(self.first.load(Ordering::SeqCst))
            && let Some(wait) = self.wait_of(who)
            && self.first.load(Ordering::SeqCst) == who.as_ptr()
        {
            end(who, wait);
        }
        // Copied: `end` may switch stacks.
        let others = self.others.lock().clone();
        for name in others {
            if let Some(wait) = self.wait_of(name.0)
                && self.others.lock().contains(&name)
            {
                end(name.0, wait);
            }
        }
    }

    fn wait_of(&self, who: NonNull<W>) -> Option<WaitId> {
        // SAFETY: by the contract of `enter` the slot stays.
        let status = unsafe { who.as_ref() }.status().load();
        (status.reason() == Reason::Io)
            .then(|| Status::wait_of(status))
            .flatten()
    }
}

/// A goroutine is named as waiting.
#[derive(Debug)]
pub(crate) struct Waiting<'a, W: HasStatus = Header> {
    limit: &'a Limit<W>,
    who: NonNull<W>,
}

impl<W: HasStatus> Drop for Waiting<'_, W> {
    #[inline]
    fn drop(&mut self) {
        let first = &self.limit.first;
        if first.load(Ordering::Relaxed) == self.who.as_ptr() {
            first.store(ptr::null_mut(), Ordering::SeqCst);
        } else {
            self.limit.leave_others(self.who);
        }
    }
}

#[cfg(all(test, loom))]
#[path = "limit_loom_tests.rs"]
mod loom_tests;

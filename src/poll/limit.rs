//! `MovableDeadline`: an absolute deadline that may be moved while goroutines wait under it.
//!
//! A goroutine arms a timer for the deadline when it begins to wait. When the deadline is moved to
//! an earlier time, goroutines that wait already must learn of it: the mover arms timers that end
//! their waits at the new time, and the goroutines check again. A move to a later time needs no
//! such step: the old timers end the waits, and the goroutines check and wait again.
//!
//! | goroutine                            | mover of the deadline                  |
//! |--------------------------------------|----------------------------------------|
//! | 1. enter: register as waiting        | 1. deadline = new                      |
//! | 2. status = Waiting(n)               | 2. read the registered goroutines      |
//! | 3. read the deadline, arm a timer    | 3. status Waiting(n), and registered   |
//! |    for n                             |    still? then arm a timer for n       |
//!
//! All these are sequentially consistent. A mover that does not find the goroutine, or finds
//! another status, came before the goroutine's step 3, which then reads the new deadline. The
//! second check of the registration makes sure that n is a wait under this deadline: a goroutine
//! that has left the deadline has left every wait that was seen before.
#![allow(unsafe_code)]

use std::ptr::{self, NonNull};

use crate::g::header::{GRef, Header};
use crate::g::status::{Reason, Status, WaitId};
use crate::lock::{Lock, Rank};
use crate::loom::{AtomicPtr, AtomicU64, Ordering, after_seq_cst};
use crate::sys::clock::{self, NEVER};
use crate::util::fmt_as::debug_fields;

/// A type with a goroutine's status.
pub(crate) trait HasStatus {
    fn status(&self) -> &Status;
}

impl HasStatus for Header {
    fn status(&self) -> &Status {
        &self.status
    }
}

/// The address of a waiting goroutine.
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

/// A deadline, and the goroutines that wait under it.
pub(crate) struct MovableDeadline<W = Header> {
    /// `NEVER` for none. Ordering: sequentially consistent, as the table says.
    at_ns: AtomicU64,
    /// The only waiting goroutine, in most cases. Ordering: as `at_ns`; removing it releases, so a
    /// thread that sees a later wait of the goroutine also sees that it has left.
    first: AtomicPtr<W>,
    others: Lock<Vec<Name<W>>>,
}

debug_fields!([W] MovableDeadline<W>, |this| at_ns: this.at_ns, ..);

impl<W: HasStatus> MovableDeadline<W> {
    pub(crate) fn new() -> MovableDeadline<W> {
        MovableDeadline {
            at_ns: AtomicU64::new(NEVER),
            first: AtomicPtr::new(ptr::null_mut()),
            others: Lock::new(Rank::Waiters, Vec::new()),
        }
    }

    #[inline]
    pub(crate) fn ns(&self) -> u64 {
        self.at_ns.load(Ordering::SeqCst)
    }

    /// Registers a goroutine as waiting, until the guard is dropped.
    ///
    /// # Safety
    ///
    /// `who` is the calling goroutine, in a slot that is never unmapped.
    #[inline]
    pub(crate) unsafe fn enter(&self, who: NonNull<W>) -> DeadlineWait<'_, W> {
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
        DeadlineWait { limit: self, who }
    }

    #[cold]
    fn leave_others(&self, who: NonNull<W>) {
        let mut others = self.others.lock();
        if let Some(at) = others.iter().position(|name| name.0 == who) {
            others.swap_remove(at);
        }
    }

    /// Sets the deadline. Calls `end` with every wait that must end at the new time; there is none
    /// if the deadline moves to a later time.
    pub(crate) fn set(&self, at_ns: u64, mut end: impl FnMut(NonNull<W>, WaitId)) {
        let before_ns = self.at_ns.swap(at_ns, Ordering::SeqCst);
        if at_ns >= before_ns {
            return;
        }
        after_seq_cst();
        if let Some(who) = NonNull::new(self.first.load(Ordering::SeqCst))
            && let Some(wait) = self.wait_of(who)
            && self.first.load(Ordering::SeqCst) == who.as_ptr()
        {
            end(who, wait);
        }
        // Copied, as `end` may switch stacks.
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
        // SAFETY: by the contract of `enter` the slot is never unmapped.
        let status = unsafe { who.as_ref() }.status().load();
        matches!(status.reason(), Reason::Io | Reason::SimulatedIo)
            .then(|| Status::wait_of(status))
            .flatten()
    }
}

/// Registers a goroutine as waiting while it exists.
#[derive(Debug)]
pub(crate) struct DeadlineWait<'a, W: HasStatus = Header> {
    limit: &'a MovableDeadline<W>,
    who: NonNull<W>,
}

impl<W: HasStatus> Drop for DeadlineWait<'_, W> {
    #[inline]
    fn drop(&mut self) {
        let first = &self.limit.first;
        if first.load(Ordering::Relaxed) == self.who.as_ptr() {
            first.store(ptr::null_mut(), Ordering::Release);
        } else {
            self.limit.leave_others(self.who);
        }
    }
}

/// The time limit of an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline<'a> {
    /// The deadline of this call; `NEVER` for none.
    pub(crate) at_ns: u64,
    /// The deadline of the descriptor, which may be moved meanwhile.
    pub(crate) limit: Option<&'a MovableDeadline>,
}

impl<'a> Deadline<'a> {
    /// Registers the calling goroutine `g` as waiting until the guard is dropped, so that a change
    /// of the deadline reaches it.
    #[inline]
    pub(super) fn enter(self, g: GRef) -> Option<DeadlineWait<'a>> {
        // SAFETY: the G is the calling goroutine, which drops the guard when it returns or unwinds,
        // and slots are never unmapped.
        let enter = |limit: &'a MovableDeadline| unsafe { limit.enter(NonNull::from(&*g)) };
        self.limit.map(enter)
    }

    /// A deadline that does not move; `NEVER` for none.
    pub(crate) const fn at(at_ns: u64) -> Deadline<'static> {
        Deadline { at_ns, limit: None }
    }

    /// The current value; `NEVER` for none.
    #[inline]
    pub(crate) fn ns(self) -> u64 {
        self.limit
            .map_or(self.at_ns, |limit| limit.ns().min(self.at_ns))
    }

    #[inline]
    pub(crate) fn has_passed(self) -> bool {
        let ns = self.ns();
        ns != NEVER && ns <= clock::now_ns()
    }
}

#[cfg(all(test, any(loom, miri)))]
#[path = "limit_loom_tests.rs"]
mod loom_tests;

#[cfg(all(test, not(loom)))]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::g::slab;

    fn running_g() -> GRef {
        let mut g = None;
        slab::take(slab::DepotId::ANY, 0, 1, |slot| g = Some(slot));
        let g = g.unwrap();
        g.status.set_new();
        g.status.set_runnable();
        g.status.set_running();
        g
    }

    fn ended_by(limit: &MovableDeadline, at_ns: u64) -> Vec<(NonNull<Header>, WaitId)> {
        let mut ended = Vec::new();
        limit.set(at_ns, |who, wait| ended.push((who, wait)));
        ended
    }

    #[test]
    fn everyone_who_waits_is_ended_when_the_deadline_comes_forward() {
        let limit = MovableDeadline::new();
        let gs: Vec<_> = (0..4).map(|_| running_g()).collect();
        let names: Vec<_> = gs.iter().map(|g| NonNull::from(&**g)).collect();
        // SAFETY: slots are never unmapped.
        let mut waiting: Vec<_> = names
            .iter()
            .map(|&name| unsafe { limit.enter(name) })
            .collect();
        // The first and the third wait for an operation, the second for something else.
        let first = gs[0].status.set_waiting(Reason::Io, 0);
        let _ = gs[1].status.set_waiting(Reason::Sleep, 0);
        let third = gs[2].status.set_waiting(Reason::Io, 0);
        assert_eq!(
            ended_by(&limit, 100),
            [(names[0], first), (names[2], third)]
        );
        assert_eq!(limit.ns(), 100);
        // Moved to a later time, or to the same: their timers suffice.
        assert_eq!(ended_by(&limit, 200), []);
        assert_eq!(ended_by(&limit, 200), []);
        assert_eq!(ended_by(&limit, NEVER), []);
        // The last one begins to wait.
        let fourth = gs[3].status.set_waiting(Reason::Io, 0);
        drop(waiting.drain(..3));
        assert_eq!(ended_by(&limit, 50), [(names[3], fourth)]);
        waiting.clear();
        assert_eq!(ended_by(&limit, 0), []);
        // The first entry is free again.
        // SAFETY: as above.
        let again = unsafe { limit.enter(names[2]) };
        assert_eq!(limit.first.load(Ordering::SeqCst), names[2].as_ptr());
        drop(again);
        assert!(limit.others.lock().is_empty());
    }

    /// A goroutine that leaves the deadline, and waits for something else, when the mover is about to read its
    /// status.
    struct Leaver {
        status: Status,
        waiting: Cell<Option<DeadlineWait<'static, Leaver>>>,
    }

    impl HasStatus for Leaver {
        fn status(&self) -> &Status {
            if self.waiting.take().is_some() {
                let wait = Status::wait_of(self.status.load()).unwrap();
                assert!(self.status.wake(wait));
                self.status.set_running();
                let _ = self.status.set_waiting(Reason::Io, 0);
            }
            &self.status
        }
    }

    #[test]
    fn a_wait_that_is_not_under_the_deadline_is_left_alone() {
        // The first goroutine, and another.
        for n_before in [0, 1] {
            let limit: &MovableDeadline<Leaver> = Box::leak(Box::new(MovableDeadline::new()));
            let leavers: Vec<_> = (0..=n_before)
                .map(|_| Leaver {
                    status: Status::running(),
                    waiting: Cell::new(None),
                })
                .collect();
            // SAFETY: the goroutines outlive their guards, which they drop or which are dropped here.
            let mut guards = leavers
                .iter()
                .map(|it| unsafe { limit.enter(NonNull::from(it)) });
            let before: Vec<_> = guards.by_ref().take(n_before).collect();
            let leaver = &leavers[n_before];
            leaver.waiting.set(guards.next());
            let _ = leaver.status.set_waiting(Reason::Io, 0);
            limit.set(7, |_, _| panic!("this wait is not under the deadline"));
            drop(before);
        }
    }
}

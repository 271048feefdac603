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
//!
//! Most descriptors never get a deadline. So it is made, with all else that handles share, when it is
//! first needed ([`Made`]). Until then one word holds the goroutine that waits alone:
//!
//! | goroutine                            | who makes it                           |
//! |--------------------------------------|----------------------------------------|
//! | 1. word: nobody → the goroutine      | 1. word: nobody → it, or               |
//! | 2. status = Waiting(n)               |    the goroutine → it, with the        |
//! | 3. word: is it made? then the        |    goroutine registered                |
//! |    deadline, as above                | 2. as the mover above                  |
//! | 4. word: the goroutine → nobody; if  |                                        |
//! |    it is made, leave it there        |                                        |
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use windlass_ground::std_traits::debug_fields;

use crate::g::header::{GRef, Header};
use crate::g::status::{Reason, Status, WaitId};
use crate::lock::{Lock, rank};
use crate::loom::native::Arc;
use crate::loom::{AtomicPtr, AtomicU64, Ordering, after_seq_cst};
use crate::sys::clock::{self, NEVER};

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
    /// With a goroutine that is registered already.
    pub(crate) fn new(first: Option<NonNull<W>>) -> MovableDeadline<W> {
        MovableDeadline {
            at_ns: AtomicU64::new(NEVER),
            first: AtomicPtr::new(first.map_or(ptr::null_mut(), NonNull::as_ptr)),
            others: Lock::new(rank::WAITERS, Vec::new()),
        }
    }

    #[inline]
    pub(crate) fn ns(&self) -> u64 {
        self.at_ns.load(Ordering::SeqCst)
    }

    /// Registers a goroutine as waiting, until it [leaves](MovableDeadline::leave).
    #[inline(always)]
    fn enter(&self, who: NonNull<W>) {
        let took = self.first.compare_exchange(
            ptr::null_mut(),
            who.as_ptr(),
            Ordering::SeqCst,
            Ordering::Relaxed,
        );
        if took.is_err() {
            self.enter_others(who);
        }
        after_seq_cst();
    }

    #[cold]
    fn enter_others(&self, who: NonNull<W>) {
        self.others.lock().push(Name(who));
    }

    #[inline(always)]
    fn leave(&self, who: NonNull<W>) {
        if self.first.load(Ordering::Relaxed) == who.as_ptr() {
            self.first.store(ptr::null_mut(), Ordering::Release);
        } else {
            self.leave_others(who);
        }
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

/// One of the two deadlines of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Read,
    Write,
}

/// The part of a [`Made`] that is made when it is needed.
pub(crate) trait Limits<W = Header> {
    /// With a goroutine that is registered already, in this direction.
    fn new(first: Option<(Direction, NonNull<W>)>) -> Self;

    fn limit(&self, direction: Direction) -> &MovableDeadline<W>;
}

/// The deadlines of a descriptor, and what else its handles share: made when it is first needed.
pub(crate) struct Made<S: Limits<W>, W: HasStatus = Header> {
    /// Nobody (null); the only waiting goroutine, with [`READS`] or [`WRITES`]; or what was made, which stays.
    /// Ordering: sequentially consistent, as the table says; who leaves releases, as in [`MovableDeadline`].
    word: AtomicPtr<W>,
    made: PhantomData<Arc<S>>,
}

const READS: usize = 1;
const WRITES: usize = 2;

debug_fields!([S: Limits<W>, W: HasStatus] Made<S, W>, |this| is_made: this.get().is_some());

// SAFETY: it holds an `Arc<S>`. Headers of goroutines are type-stable and shared by all threads.
unsafe impl<S: Limits<W> + Send + Sync, W: HasStatus> Send for Made<S, W> {}
// SAFETY: as for Send.
unsafe impl<S: Limits<W> + Send + Sync, W: HasStatus> Sync for Made<S, W> {}

impl<S: Limits<W>, W: HasStatus> Made<S, W> {
    pub(crate) fn nothing() -> Made<S, W> {
        Made::of_word(ptr::null_mut())
    }

    fn of_word(word: *mut W) -> Made<S, W> {
        const { assert!(align_of::<W>() > (READS | WRITES) && align_of::<S>() > (READS | WRITES)) };
        Made {
            word: AtomicPtr::new(word),
            made: PhantomData,
        }
    }

    #[inline]
    pub(crate) fn get(&self) -> Option<&S> {
        let made = Self::made_in(self.word.load(Ordering::SeqCst));
        // SAFETY: this holds a reference to it from then on.
        made.map(|made| unsafe { &*made })
    }

    #[inline]
    fn made_in(word: *mut W) -> Option<*const S> {
        let is_made = !word.is_null() && word.addr() & (READS | WRITES) == 0;
        is_made.then_some(word.cast_const().cast())
    }

    /// Makes it, if it is not made.
    #[inline]
    pub(crate) fn make(&self) -> &S {
        match self.get() {
            Some(made) => made,
            None => self.make_now(),
        }
    }

    #[cold]
    #[inline(never)]
    fn make_now(&self) -> &S {
        let mut word = self.word.load(Ordering::SeqCst);
        loop {
            if let Some(made) = Self::made_in(word) {
                // SAFETY: as in `get`.
                return unsafe { &*made };
            }
            let direction = match word.addr() & READS {
                0 => Direction::Write,
                _ => Direction::Read,
            };
            let who = word.map_addr(|at| at & !(READS | WRITES));
            let first = NonNull::new(who).map(|who| (direction, who));
            let made = Arc::into_raw(Arc::new(S::new(first)));
            let new = made.cast_mut().cast();
            match self
                .word
                .compare_exchange(word, new, Ordering::SeqCst, Ordering::SeqCst)
            {
                // SAFETY: as in `get`.
                Ok(_) => return unsafe { &*made },
                Err(now) => {
                    word = now;
                    // SAFETY: nobody else has it.
                    drop(unsafe { Arc::from_raw(made) });
                }
            }
        }
    }

    /// Another handle of the same descriptor.
    pub(crate) fn share(&self) -> Made<S, W> {
        self.make();
        // Not by the reference, through which the counts of the `Arc` may not be reached.
        let made = Self::made_in(self.word.load(Ordering::SeqCst)).expect("it was just made");
        // SAFETY: this holds a reference to it, and the other one holds the one that is added.
        unsafe { Arc::increment_strong_count(made) };
        Made::of_word(made.cast_mut().cast())
    }

    fn ns(&self, direction: Direction) -> u64 {
        self.get().map_or(NEVER, |made| made.limit(direction).ns())
    }

    /// Registers a goroutine as waiting, in a slot that is never unmapped, until it leaves.
    fn enter(&self, direction: Direction, who: NonNull<W>) {
        let (nobody, alone) = (ptr::null_mut(), alone(direction, who));
        let took = self
            .word
            .compare_exchange(nobody, alone, Ordering::SeqCst, Ordering::Relaxed);
        match took {
            Ok(_) => after_seq_cst(),
            Err(_) => self.make().limit(direction).enter(who),
        }
    }

    fn leave(&self, direction: Direction, who: NonNull<W>) {
        let (alone, nobody) = (alone(direction, who), ptr::null_mut());
        let left = self
            .word
            .compare_exchange(alone, nobody, Ordering::Release, Ordering::Relaxed);
        if left.is_err()
            && let Some(made) = self.get()
        {
            made.limit(direction).leave(who);
        }
    }
}

/// The word while `who` waits alone.
#[inline]
fn alone<W>(direction: Direction, who: NonNull<W>) -> *mut W {
    let tag = match direction {
        Direction::Read => READS,
        Direction::Write => WRITES,
    };
    who.as_ptr().map_addr(|at| at | tag)
}

impl<S: Limits<W>, W: HasStatus> Drop for Made<S, W> {
    fn drop(&mut self) {
        if let Some(made) = Self::made_in(self.word.load(Ordering::SeqCst)) {
            // SAFETY: this holds a reference to it, which ends here.
            drop(unsafe { Arc::from_raw(made) });
        }
    }
}

/// A [`Made`] without its type.
trait Deadlines: std::fmt::Debug + Send + Sync {
    fn ns(&self, direction: Direction) -> u64;
    fn enter(&self, direction: Direction, who: NonNull<Header>);
    fn leave(&self, direction: Direction, who: NonNull<Header>);
}

impl<S: Limits + Send + Sync> Deadlines for Made<S> {
    fn ns(&self, direction: Direction) -> u64 {
        self.ns(direction)
    }

    fn enter(&self, direction: Direction, who: NonNull<Header>) {
        self.enter(direction, who);
    }

    fn leave(&self, direction: Direction, who: NonNull<Header>) {
        self.leave(direction, who);
    }
}

/// Registers a goroutine as waiting while it exists.
#[derive(Debug)]
pub(crate) struct DeadlineWait<'a> {
    limit: Movable<'a>,
    who: NonNull<Header>,
}

impl Drop for DeadlineWait<'_> {
    #[inline]
    fn drop(&mut self) {
        match self.limit {
            Movable::Made(limit) => limit.leave(self.who),
            Movable::Not(made, direction) => made.leave(direction, self.who),
        }
    }
}

/// A deadline of a descriptor, which was made when the call began, or was not.
#[derive(Clone, Copy, Debug)]
enum Movable<'a> {
    Made(&'a MovableDeadline),
    Not(&'a dyn Deadlines, Direction),
}

/// The time limit of an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline<'a> {
    /// The deadline of this call; `NEVER` for none.
    pub(crate) at_ns: u64,
    /// The deadline of the descriptor, which may be moved meanwhile.
    limit: Option<Movable<'a>>,
}

impl<'a> Deadline<'a> {
    /// The deadline of a call, and that of its descriptor.
    #[inline]
    pub(super) fn movable(at_ns: u64, limit: &'a MovableDeadline) -> Deadline<'a> {
        let limit = Some(Movable::Made(limit));
        Deadline { at_ns, limit }
    }

    /// That of a descriptor whose deadlines were not made when the call began.
    #[inline]
    pub(super) fn not_made<S>(of: &'a Made<S>, direction: Direction) -> Deadline<'a>
    where
        S: Limits + Send + Sync,
    {
        Deadline {
            at_ns: NEVER,
            limit: Some(Movable::Not(of, direction)),
        }
    }

    /// Registers the calling goroutine `g` as waiting until the guard is dropped, so that a change
    /// of the deadline reaches it.
    #[inline]
    pub(super) fn enter(self, g: GRef) -> Option<DeadlineWait<'a>> {
        self.limit.map(|limit| {
            let who = NonNull::from(&*g);
            match limit {
                Movable::Made(limit) => limit.enter(who),
                Movable::Not(made, direction) => made.enter(direction, who),
            }
            DeadlineWait { limit, who }
        })
    }

    /// A deadline that does not move; `NEVER` for none.
    pub(crate) const fn at(at_ns: u64) -> Deadline<'static> {
        Deadline { at_ns, limit: None }
    }

    /// The current value; `NEVER` for none.
    #[inline]
    pub(crate) fn ns(self) -> u64 {
        let limit_ns = match self.limit {
            None => NEVER,
            Some(Movable::Made(limit)) => limit.ns(),
            Some(Movable::Not(made, direction)) => made.ns(direction),
        };
        limit_ns.min(self.at_ns)
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
        g.status.set_new(false);
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
        let limit = MovableDeadline::new(None);
        let gs: Vec<_> = (0..4).map(|_| running_g()).collect();
        let names: Vec<_> = gs.iter().map(|g| NonNull::from(&**g)).collect();
        names.iter().for_each(|&name| limit.enter(name));
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
        names[..3].iter().for_each(|&name| limit.leave(name));
        assert_eq!(ended_by(&limit, 50), [(names[3], fourth)]);
        limit.leave(names[3]);
        assert_eq!(ended_by(&limit, 0), []);
        // The first entry is free again.
        limit.enter(names[2]);
        assert_eq!(limit.first.load(Ordering::SeqCst), names[2].as_ptr());
        limit.leave(names[2]);
        assert!(limit.others.lock().is_empty());
    }

    /// A goroutine that leaves the deadline, and waits for something else, when the mover is about to read its
    /// status.
    struct Leaver {
        status: Status,
        is_under: Cell<Option<&'static MovableDeadline<Leaver>>>,
    }

    impl HasStatus for Leaver {
        fn status(&self) -> &Status {
            if let Some(limit) = self.is_under.take() {
                limit.leave(NonNull::from(self));
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
            let limit: &MovableDeadline<Leaver> = Box::leak(Box::new(MovableDeadline::new(None)));
            let leavers: Vec<_> = (0..=n_before)
                .map(|_| Leaver {
                    status: Status::running(),
                    is_under: Cell::new(None),
                })
                .collect();
            leavers.iter().for_each(|it| limit.enter(NonNull::from(it)));
            let leaver = &leavers[n_before];
            leaver.is_under.set(Some(limit));
            let _ = leaver.status.set_waiting(Reason::Io, 0);
            limit.set(7, |_, _| panic!("this wait is not under the deadline"));
        }
    }

    struct Both([MovableDeadline; 2]);

    impl Limits for Both {
        fn new(first: Option<(Direction, NonNull<Header>)>) -> Both {
            Both([Direction::Read, Direction::Write].map(|direction| {
                MovableDeadline::new(first.filter(|f| f.0 == direction).map(|f| f.1))
            }))
        }

        fn limit(&self, direction: Direction) -> &MovableDeadline {
            &self.0[direction as usize]
        }
    }

    #[test]
    fn one_that_waits_alone_is_found_when_the_deadline_is_made() {
        use Direction::{Read, Write};
        let (g, other) = (running_g(), running_g());
        let names = [&g, &other].map(|g| NonNull::from(&**g));
        for direction in [Read, Write] {
            let made = Made::<Both>::nothing();
            made.enter(direction, names[0]);
            assert!(made.get().is_none());
            assert_eq!(made.ns(direction), NEVER);
            let wait = g.status.set_waiting(Reason::Io, 0);
            let limit = made.make().limit(direction);
            assert_eq!(ended_by(limit, 7), [(names[0], wait)]);
            assert_eq!(made.share().ns(direction), 7);
            made.leave(direction, names[0]);
            assert!(limit.first.load(Ordering::SeqCst).is_null());
            assert!(g.status.wake(wait));
            g.status.set_running();
        }
        // Of two, both are found.
        let made = Made::<Both>::nothing();
        made.enter(Read, names[0]);
        made.leave(Read, names[0]);
        assert!(made.word.load(Ordering::SeqCst).is_null());
        made.enter(Read, names[0]);
        made.enter(Write, names[1]);
        let waits = [&g, &other].map(|g| g.status.set_waiting(Reason::Io, 0));
        assert_eq!(ended_by(made.make().limit(Read), 7), [(names[0], waits[0])]);
        assert_eq!(
            ended_by(made.make().limit(Write), 7),
            [(names[1], waits[1])]
        );
        made.leave(Read, names[0]);
        made.leave(Write, names[1]);
        assert_eq!(ended_by(made.make().limit(Read), 1), []);
    }
}

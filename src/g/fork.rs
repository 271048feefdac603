//! The forks of a goroutine: the second closures of its calls of `join` that nobody has begun.
//!
//! A [`Fork`] lies in the frame of its call, and is linked into the goroutine's [`ForkList`], the
//! oldest first. The list lies in the frame of the outermost call; `M::forks` points to it while the
//! goroutine runs.
//!
//! ```text
//!   frames of one goroutine         list
//!   join  [ ForkList ] ------------ first -- next --> Fork --> Fork --> Fork
//!         [ Fork     ]                                  ^ oldest          ^ newest
//!   join  [ Fork     ]              newest -------------------------------'
//!   join  [ Fork     ]
//! ```
//!
//! Only the owner of the goroutine accesses the list: the goroutine itself while it runs, its M
//! between the switch out of the goroutine and the commit of its park. So all of it is plain
//! memory. `sched::wait::fork` makes goroutines of forks; from then on such a fork is in no list,
//! and its two sides meet in `Fork::done`, a `completion`.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::panic::Location;
use std::ptr::{self, NonNull};

use super::cancel_wait::ScopeChain;
use crate::loom::AtomicPtr;

/// The links of a list's members, and of its head.
#[derive(Debug)]
struct Links {
    /// The next older one, or the head.
    prev: Cell<*const Links>,
    /// The next younger one. Meaningless in the newest.
    next: Cell<*const Links>,
}

impl Links {
    const fn new() -> Links {
        Links {
            prev: Cell::new(ptr::null()),
            next: Cell::new(ptr::null()),
        }
    }
}

/// The part of a fork that does not depend on its closure. It does not move while it is in a list,
/// or a goroutine runs it.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Fork {
    links: Links,
    /// Runs the closure and stores its outcome; called once, by the goroutine that was made for it.
    run: unsafe fn(NonNull<Fork>),
    site: &'static Location<'static>,
    /// The cancel scopes around its call.
    scopes: ScopeChain,
    /// Whether a goroutine was made for it. Written by the owner of the list only.
    is_promoted: Cell<bool>,
    /// Whether that goroutine has run the closure. Ordering: written before `done` is set, and read
    /// after it.
    has_run: Cell<bool>,
    /// Whether a wait of that goroutine ended because of a deadline around the call. Ordering: as
    /// `has_run`.
    was_late: Cell<bool>,
    /// Set when that goroutine accesses the fork no more: see `sched::wait::completion`.
    pub(crate) done: AtomicPtr<()>,
}

impl Fork {
    #[inline(always)]
    pub(crate) fn new(
        run: unsafe fn(NonNull<Fork>),
        site: &'static Location<'static>,
        scopes: ScopeChain,
    ) -> Fork {
        Fork {
            links: Links::new(),
            run,
            site,
            scopes,
            is_promoted: Cell::new(false),
            has_run: Cell::new(false),
            was_late: Cell::new(false),
            done: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// Whether a goroutine was made for it, so that it is in no list.
    #[inline(always)]
    pub(crate) fn is_promoted(&self) -> bool {
        self.is_promoted.get()
    }

    /// Whether the closure was run by a goroutine. Called once `done` is set.
    pub(crate) fn has_run(&self) -> bool {
        self.has_run.get()
    }

    /// Whether a deadline around the call ended a wait of the goroutine that ran the closure. Called
    /// once `done` is set.
    pub(crate) fn was_late(&self) -> bool {
        self.was_late.get()
    }

    /// Records that a deadline around the call ended a wait of the closure. Called by the goroutine that runs it.
    pub(crate) fn set_late(&self) {
        self.was_late.set(true);
    }

    pub(crate) fn site(&self) -> &'static Location<'static> {
        self.site
    }

    pub(crate) fn scopes(&self) -> ScopeChain {
        self.scopes
    }

    /// Runs the closure.
    ///
    /// # Safety
    ///
    /// The caller is the goroutine made for this fork, which calls this once, before it sets `done`.
    pub(crate) unsafe fn run(this: NonNull<Fork>) {
        // SAFETY: the frame of the fork stays until `done` is set.
        let fork = unsafe { this.as_ref() };
        // SAFETY: by this function's contract; `run` was made for the type that `this` begins.
        unsafe { (fork.run)(this) };
        fork.has_run.set(true);
    }
}

/// The forks of a goroutine, in the order in which they were made.
#[derive(Debug)]
pub(crate) struct ForkList {
    /// Its `next` is the oldest fork, unless the list is empty.
    first: Links,
    /// The youngest fork; null until [`ForkList::begin`], then `first` if the list is empty.
    newest: Cell<*const Links>,
    /// The lowest address of the stack pointer at which a call goes on on this stack.
    lowest_sp: Cell<usize>,
}

impl ForkList {
    pub(crate) fn new(lowest_sp: usize) -> ForkList {
        ForkList {
            first: Links::new(),
            newest: Cell::new(ptr::null()),
            lowest_sp: Cell::new(lowest_sp),
        }
    }

    /// Makes it an empty list. It must not move any more.
    pub(crate) fn begin(&self) {
        self.newest.set(&raw const self.first);
    }

    #[inline(always)]
    pub(crate) fn lowest_sp(&self) -> usize {
        self.lowest_sp.get()
    }

    /// Returns the one before.
    pub(crate) fn set_lowest_sp(&self, lowest_sp: usize) -> usize {
        self.lowest_sp.replace(lowest_sp)
    }

    /// Adds the youngest fork.
    ///
    /// # Safety
    ///
    /// The caller owns the list, which has begun. The fork stays in place until it is taken out.
    #[inline(always)]
    pub(crate) unsafe fn push(&self, fork: NonNull<Fork>) {
        let newest = self.newest.get();
        let links: *const Links = fork.as_ptr().cast();
        // SAFETY: the caller's fork; and the newest member, or the head, stays in place while it is
        // in the list.
        unsafe {
            (*links).prev.set(newest);
            (*newest).next.set(links);
        }
        self.newest.set(links);
    }

    /// Takes out the youngest fork.
    ///
    /// # Safety
    ///
    /// The caller owns the list, and `fork` is its youngest member: it was not promoted, and each
    /// younger one was taken out or promoted. An older one is promoted before a younger one, so then
    /// there is no younger one.
    #[inline(always)]
    pub(crate) unsafe fn pop(&self, fork: NonNull<Fork>) {
        debug_assert!(ptr::eq(self.newest.get(), fork.as_ptr().cast()));
        // SAFETY: the caller's fork.
        self.newest.set(unsafe { fork.as_ref() }.links.prev.get());
    }

    /// Takes out the oldest fork and marks it as promoted.
    ///
    /// # Safety
    ///
    /// The caller owns the list, which has begun, and makes a goroutine for the fork.
    pub(crate) unsafe fn promote_oldest(&self) -> Option<NonNull<Fork>> {
        let first = &raw const self.first;
        let newest = self.newest.get();
        if ptr::eq(newest, first) {
            return None;
        }
        let oldest = self.first.next.get();
        if ptr::eq(oldest, newest) {
            self.newest.set(first);
        } else {
            // SAFETY: both are members, which stay in place while they are in the list; the oldest
            // is not the newest, so its `next` is a member.
            unsafe {
                let second = (*oldest).next.get();
                (*second).prev.set(first);
                self.first.next.set(second);
            }
        }
        let oldest = NonNull::new(oldest.cast_mut().cast::<Fork>())?;
        // SAFETY: every member but the head is the first field of a fork (`repr(C)`).
        unsafe { oldest.as_ref() }.is_promoted.set(true);
        Some(oldest)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    unsafe fn never(_: NonNull<Fork>) {
        unreachable!("no goroutine is made here");
    }

    /// The number of the fork that is promoted next.
    fn promote(list: &ForkList, forks: &[Fork]) -> Option<usize> {
        // SAFETY: the test owns the list, and its forks stay in place.
        let oldest = unsafe { list.promote_oldest() }?;
        forks.iter().position(|f| ptr::eq(f, oldest.as_ptr()))
    }

    /// Pushes and pops in every order of five steps, and promotes now and then: the list gives what
    /// a queue would.
    #[test]
    fn the_oldest_is_promoted_and_the_youngest_popped() {
        const STEPS: u32 = if cfg!(miri) { 4 } else { 7 };
        for steps in 0..3_u32.pow(STEPS) {
            let forks: Vec<_> = (0..8)
                .map(|_| Fork::new(never, Location::caller(), ScopeChain::NONE))
                .collect();
            let list = ForkList::new(0);
            list.begin();
            // The forks in the list, and the calls that are active.
            let mut queue = std::collections::VecDeque::new();
            let mut calls = Vec::new();
            let mut n_made = 0;
            for i in 0..STEPS {
                match steps / 3_u32.pow(i) % 3 {
                    0 => {
                        // SAFETY: the test owns the list, and the fork stays in place.
                        unsafe { list.push(NonNull::from(&forks[n_made])) };
                        queue.push_back(n_made);
                        calls.push(n_made);
                        n_made += 1;
                    }
                    1 => {
                        let Some(call) = calls.pop() else { continue };
                        assert_eq!(forks[call].is_promoted(), !queue.contains(&call));
                        if !forks[call].is_promoted() {
                            // SAFETY: it is the youngest, because calls end in order.
                            unsafe { list.pop(NonNull::from(&forks[call])) };
                            assert_eq!(queue.pop_back(), Some(call));
                        }
                    }
                    _ => assert_eq!(promote(&list, &forks), queue.pop_front()),
                }
            }
            while let Some(oldest) = queue.pop_front() {
                assert_eq!(promote(&list, &forks), Some(oldest));
            }
            assert_eq!(promote(&list, &forks), None);
        }
    }
}

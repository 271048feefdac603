//! A wait queue with its lock, and a complete wait in it: the common part of the locks in this
//! module.
//!
//! Each lock has an atomic word for its fast paths. The word's bit for a non-empty queue, and all
//! that depends on it, change only under the list's lock.
#![allow(unsafe_code)]

use std::cell::{Cell, UnsafeCell};
use std::mem;
use std::ops::{Deref, DerefMut};
use std::ptr;

use windlass_ground::std_traits::fmt_as;

use super::waitq::{Dequeued, DequeuedList, WaitCtx, WaitNode, WaitOptions, WaitQueue, Waiter};
use crate::bubble;
use crate::lock::RawLock;
use crate::loom::const_fn;
use crate::sched::wait::current_context::{self, Error};
use crate::sched::wait::points;
use crate::sys::clock::{self, NEVER};
use crate::util::choice;

/// Result of a wait that a taker ended, unless the taker reports another one.
pub(crate) const TAKEN: usize = 0;

/// Why a wait ended without a taker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitError {
    /// The deadline has passed.
    TimedOut,
    /// The ambient context is done. Only for waits with `by_context`.
    Over(Error),
    /// The runtime of the calling goroutine shuts down. The goroutine unwinds
    /// ([`points::cancel_point`]); if it is unwinding already, the call fails at once.
    CutShort,
}

/// Unwinds a goroutine whose wait for a lock was cut short: the lock's API has no other result.
/// While a goroutine is unwinding already, such waits are not cut short.
#[cold]
pub(crate) fn unwind() -> ! {
    let unwinding = points::cancel_point();
    unreachable!("a lock's wait was cut short, though nothing ended: {unwinding:?}")
}

/// The end of the queue at which a waiter is inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueEnd {
    First,
    Last,
}

/// A queue and its lock.
#[derive(Debug)]
pub(crate) struct WaitList {
    lock: RawLock,
    queue: WaitQueue,
}

// SAFETY: the queue is reached only through `Queue`, which holds the lock.
unsafe impl Sync for WaitList {}

impl WaitList {
    const_fn! {
        pub(crate) const fn new() -> WaitList {
            WaitList {
                lock: RawLock::new(),
                queue: WaitQueue::new(),
            }
        }
    }

    /// Takes the lock, until the returned queue is dropped or waited in.
    #[inline]
    pub(crate) fn lock(&self, _ctx: &WaitCtx<'_>) -> Queue<'_> {
        self.lock.lock();
        Queue(self)
    }

    /// Wakes the longest waiting waiter; `false` if there is none.
    pub(crate) fn wake_one(&self) -> bool {
        let ctx = WaitCtx::enter_in_place();
        let taken = self.lock(&ctx).take();
        let found = taken.is_some();
        if let Some(taken) = taken {
            taken.ready(&ctx);
        }
        found
    }

    /// Wakes all current waiters.
    pub(crate) fn wake_all(&self) {
        let ctx = WaitCtx::enter_in_place();
        let all = self.lock(&ctx).take_all();
        all.ready(&ctx);
    }
}

/// The queue of a list, locked.
#[derive(Debug)]
pub(crate) struct Queue<'a>(&'a WaitList);

impl Queue<'_> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.queue.is_empty()
    }

    /// Takes the first waiter; in a simulation, any.
    pub(crate) fn take(&self) -> Option<Dequeued> {
        let queue = &self.0.queue;
        if bubble::is_inside() && !queue.is_empty() {
            let n = Cell::new(0);
            let counted = queue.take_if(|_| {
                n.set(n.get() + 1);
                false
            });
            debug_assert!(counted.is_none());
            let left = Cell::new(choice::unusual(n.get()));
            let drawn = queue.take_if(|_| left.replace(left.get().saturating_sub(1)) == 0);
            if drawn.is_some() {
                return drawn;
            }
        }
        queue.take()
    }

    pub(crate) fn take_all(&self) -> DequeuedList {
        self.0.queue.take_all()
    }

    /// As [`WaitQueue::take_front_if`], with the number that the waiter passed as `asks`.
    pub(crate) fn take_front_if(&self, can_be_given: impl Fn(usize) -> bool) -> Option<Dequeued> {
        self.0.queue.take_front_if(|slot| can_be_given(slot.addr()))
    }

    /// Waits, and returns the result that the taker reported. The lock is released during the wait.
    ///
    /// If no taker ends the wait, `leave` is called under the lock again, after the waiter was
    /// removed from the queue: the waiters behind it may be served now.
    ///
    /// # Errors
    ///
    /// The reason why the wait ended without a taker.
    #[inline]
    pub(crate) fn wait(
        self,
        ctx: WaitCtx<'_>,
        place: QueueEnd,
        asks: usize,
        options: WaitOptions,
        leave: impl FnOnce(&Queue<'_>) -> DequeuedList,
    ) -> Result<usize, WaitError> {
        let list = self.0;
        let waiter = Waiter::new(&ctx);
        let node = WaitNode::new(&waiter, TAKEN, ptr::without_provenance_mut(asks));
        // SAFETY:
        // - the lock is held, and the node is new;
        // - node and waiter stay on this frame until the waiter was readied by its taker, or the
        //   node was removed below.
        unsafe {
            match place {
                QueueEnd::First => list.queue.push_front(&node),
                QueueEnd::Last => list.queue.push_back(&node),
            }
        }
        std::mem::forget(self);
        if let Some(result) = ctx.wait(&waiter, options, || list.lock.unlock()) {
            return Ok(result);
        }
        let ctx = WaitCtx::enter();
        let queue = list.lock(&ctx);
        list.queue.remove(&node);
        let next = leave(&queue);
        drop(queue);
        next.ready(&ctx);
        drop(ctx);
        Err(why_it_gave_up(options))
    }
}

fn why_it_gave_up(options: WaitOptions) -> WaitError {
    if points::is_cancelled() {
        return WaitError::CutShort;
    }
    let WaitOptions { deadline_ns, .. } = options;
    let is_late = deadline_ns != NEVER && clock::now_ns() >= deadline_ns;
    if options.by_context
        && !is_late
        && let Err(over) = current_context::check()
    {
        return WaitError::Over(over);
    }
    match deadline_ns {
        NEVER => WaitError::CutShort,
        _ => WaitError::TimedOut,
    }
}

impl Drop for Queue<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.lock.unlock();
    }
}

/// A value that the lock of a wait list guards, together with the waiters for its changes.
///
/// The lock blocks the M, so the sections that hold it are short, do not wait and call no user code:
/// what is to be dropped is moved out.
pub(crate) struct WaitCell<T> {
    list: WaitList,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only through `Held`, which holds the lock: one thread at a time has
// it, so T is Send.
unsafe impl<T: Send> Sync for WaitCell<T> {}

impl<T> WaitCell<T> {
    const_fn! {
        pub(crate) const fn new(value: T) -> WaitCell<T> {
            WaitCell {
                list: WaitList::new(),
                value: UnsafeCell::new(value),
            }
        }
    }

    /// Takes the lock, until the result is dropped or waited in.
    #[inline]
    pub(crate) fn lock(&self, ctx: &WaitCtx<'_>) -> Held<'_, T> {
        Held {
            queue: self.list.lock(ctx),
            value: &self.value,
        }
    }

    /// Calls `f` with the lock held. Leaves the goroutine on its thread.
    #[inline]
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        let ctx = WaitCtx::enter_in_place();
        let result = f(&mut self.lock(&ctx));
        drop(ctx);
        result
    }

    /// Calls `f` with the lock held, and then wakes the waiters that it took.
    pub(crate) fn update<R>(
        &self,
        f: impl FnOnce(&mut Held<'_, T>, &WaitCtx<'_>, &mut DequeuedList) -> R,
    ) -> R {
        self.update_in(WaitCtx::enter(), f)
    }

    /// As [`WaitCell::update`], but leaves the goroutine on its thread: for destructors.
    pub(crate) fn update_in_place<R>(
        &self,
        f: impl FnOnce(&mut Held<'_, T>, &WaitCtx<'_>, &mut DequeuedList) -> R,
    ) -> R {
        self.update_in(WaitCtx::enter_in_place(), f)
    }

    fn update_in<R>(
        &self,
        ctx: WaitCtx<'_>,
        f: impl FnOnce(&mut Held<'_, T>, &WaitCtx<'_>, &mut DequeuedList) -> R,
    ) -> R {
        let mut woken = DequeuedList::new();
        let result = f(&mut self.lock(&ctx), &ctx, &mut woken);
        woken.ready(&ctx);
        drop(ctx);
        result
    }

    /// Calls `poll` with the lock held, now and after each wake-up, until it returns a value.
    ///
    /// A wait that ended without a taker calls it once more: what came in the last moment counts.
    ///
    /// # Errors
    ///
    /// The reason why the last wait ended without a taker.
    pub(crate) fn wait_for<R>(
        &self,
        options: WaitOptions,
        mut poll: impl FnMut(&mut T, &WaitCtx<'_>) -> Option<R>,
    ) -> Result<R, WaitError> {
        let mut gave_up = None;
        loop {
            let ctx = WaitCtx::enter();
            let mut held = self.lock(&ctx);
            let found = poll(&mut held, &ctx);
            if found.is_some() || gave_up.is_some() {
                drop(held);
                drop(ctx);
                return found.ok_or(gave_up.unwrap_or(WaitError::CutShort));
            }
            let leave = |_: &Queue<'_>| DequeuedList::new();
            gave_up = held.wait(ctx, 0, options, leave).err();
        }
    }
}

fmt_as!([T] Debug for WaitCell<T>, "WaitCell { .. }");

/// The value of a [`WaitCell`], with the lock held.
#[derive(Debug)]
pub(crate) struct Held<'a, T> {
    queue: Queue<'a>,
    value: &'a UnsafeCell<T>,
}

impl<'a, T> Held<'a, T> {
    /// The queue of the waiters.
    pub(crate) fn queue(&self) -> &Queue<'a> {
        &self.queue
    }

    /// Waits at the end of the queue: see [`Queue::wait`].
    ///
    /// # Errors
    ///
    /// As [`Queue::wait`].
    pub(crate) fn wait(
        self,
        ctx: WaitCtx<'_>,
        asks: usize,
        options: WaitOptions,
        leave: impl FnOnce(&Queue<'_>) -> DequeuedList,
    ) -> Result<usize, WaitError> {
        self.queue.wait(ctx, QueueEnd::Last, asks, options, leave)
    }
}

impl<T> Deref for Held<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the lock is held.
        unsafe { &*self.value.get() }
    }
}

impl<T> DerefMut for Held<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock is held, and this is borrowed exclusively.
        unsafe { &mut *self.value.get() }
    }
}

/// Waiters that were taken, and are readied when this is dropped, even by an unwind.
#[derive(Debug)]
pub(crate) struct Woken(DequeuedList);

impl Woken {
    pub(crate) fn new(taken: DequeuedList) -> Woken {
        Woken(taken)
    }
}

impl Drop for Woken {
    fn drop(&mut self) {
        if !self.0.is_empty() {
            let ctx = WaitCtx::enter_in_place();
            mem::replace(&mut self.0, DequeuedList::new()).ready(&ctx);
        }
    }
}

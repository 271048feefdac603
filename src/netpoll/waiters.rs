//! The operations that wait in an epoll poller: a list for each direction of each descriptor, first
//! in, first out.
//!
//! ```text
//!  descriptor -> Queue { read:  op -> op,      the ops lie on their goroutines' stacks
//!                        write: op,
//!                        events: -           polls, for any set of events
//!                        armed: the events that epoll was asked for }
//! ```
//!
//! A descriptor is in the table only while an operation waits for it. So its number may be closed
//! and reused in between: nothing is remembered of the earlier descriptor. A late event of that one
//! causes, at worst, an attempt that finds nothing.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::op::Op;
use crate::sys::request::{Interest, READ_EVENTS, WRITE_EVENTS};

/// In place of a descriptor: operations that no event announces, and that are retried after a
/// while.
pub(crate) const UNANNOUNCED: i32 = -1;

#[derive(Debug, Default)]
struct List {
    head: Option<*const Op>,
    tail: Option<*const Op>,
}

impl List {
    /// All its operations, in order.
    fn iter(&self) -> impl Iterator<Item = *const Op> + '_ {
        std::iter::successors(self.head, |&op| {
            // SAFETY: an operation in the list is still alive.
            let next = unsafe { (*op).next.get() };
            (!next.is_null()).then_some(next)
        })
    }
}

#[derive(Debug, Default)]
struct FdQueue {
    read: List,
    write: List,
    events: List,
    /// The events that epoll was asked for, since this entry was made.
    armed: u32,
}

impl FdQueue {
    fn list(&mut self, direction: Interest) -> &mut List {
        match direction {
            Interest::Read => &mut self.read,
            Interest::Write => &mut self.write,
            Interest::Events => &mut self.events,
        }
    }

    fn is_empty(&self) -> bool {
        self.read.head.is_none() && self.write.head.is_none() && self.events.head.is_none()
    }

    fn wanted(&self) -> u32 {
        let read = self.read.head.map_or(0, |_| READ_EVENTS);
        let write = self.write.head.map_or(0, |_| WRITE_EVENTS);
        // SAFETY: an operation in the list is still alive.
        let polled = |op: *const Op| unsafe { (*op).queued().polled_events() };
        self.events
            .iter()
            .fold(read | write, |all, op| all | polled(op))
    }
}

/// The lists of one poller.
///
/// An operation in a list stays in place until it is removed: that is the contract of
/// [`Waiters::push_back`].
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    fds: HashMap<i32, FdQueue, BuildHasherDefault<FdHasher>>,
}

// SAFETY: the pointers name operations of parked goroutines, which any thread may read; lists and
// links are read and written under the lock around this struct.
unsafe impl Send for Waiters {}

impl Waiters {
    /// Appends an operation to the list of a descriptor.
    ///
    /// # Safety
    ///
    /// `op` is in no list, and stays in place until it is removed.
    pub(crate) unsafe fn push_back(&mut self, fd: i32, direction: Interest, op: *const Op) {
        let list = self.fds.entry(fd).or_default().list(direction);
        // SAFETY: by this function's contract.
        unsafe { link(op, fd, direction, None) };
        match list.tail.replace(op) {
            // SAFETY: an operation in the list is still alive.
            Some(tail) => unsafe { (*tail).next.set(op) },
            None => list.head = Some(op),
        }
    }

    /// Puts an operation that was removed back at the head of its list.
    ///
    /// # Safety
    ///
    /// As [`Waiters::push_back`].
    pub(crate) unsafe fn push_front(&mut self, fd: i32, direction: Interest, op: *const Op) {
        let list = self.fds.entry(fd).or_default().list(direction);
        let next = list.head.replace(op);
        // SAFETY: by this function's contract.
        unsafe { link(op, fd, direction, next) };
        if next.is_none() {
            list.tail = Some(op);
        }
    }

    /// Removes the operation that has waited longest.
    pub(crate) fn pop(&mut self, fd: i32, direction: Interest) -> Option<*const Op> {
        let op = self.fds.get_mut(&fd)?.list(direction).head?;
        self.unlink(fd, direction, None, op);
        Some(op)
    }

    /// Removes an operation from the list that it is in. `false` if it is in none.
    ///
    /// # Safety
    ///
    /// `op` stays in place during the call.
    pub(crate) unsafe fn remove(&mut self, op: *const Op) -> bool {
        // SAFETY: by this function's contract.
        let (fd, list) = unsafe { ((*op).list_fd.get(), (*op).list.get()) };
        let Some(direction) = list else {
            return false;
        };
        let before = self
            .fds
            .get_mut(&fd)
            .map(|queue| queue.list(direction))
            .and_then(|list| list.iter().take_while(|&other| other != op).last());
        self.unlink(fd, direction, before, op);
        true
    }

    /// Removes `op`, which comes after `before`, from its list.
    fn unlink(&mut self, fd: i32, direction: Interest, before: Option<*const Op>, op: *const Op) {
        let Some(queue) = self.fds.get_mut(&fd) else {
            return;
        };
        let list = queue.list(direction);
        // SAFETY: an operation in the list is still alive.
        let next = unsafe {
            (*op).list.set(None);
            (*op).next.get()
        };
        let next = (!next.is_null()).then_some(next);
        match before {
            // SAFETY: as above.
            Some(before) => unsafe {
                (*before).next.set(next.unwrap_or(std::ptr::null()));
            },
            None => list.head = next,
        }
        if next.is_none() {
            list.tail = before;
        }
        if queue.is_empty() {
            self.fds.remove(&fd);
        }
    }

    /// Removes any operation.
    pub(crate) fn pop_any(&mut self) -> Option<*const Op> {
        let fd = *self.fds.keys().next()?;
        [Interest::Read, Interest::Write, Interest::Events]
            .into_iter()
            .find_map(|direction| self.pop(fd, direction))
    }

    /// The length of a list.
    pub(crate) fn len(&mut self, fd: i32, direction: Interest) -> usize {
        self.fds
            .get_mut(&fd)
            .map_or(0, |queue| queue.list(direction).iter().count())
    }

    /// Records that epoll reported the descriptor, which disarms it (one-shot).
    pub(crate) fn note_event(&mut self, fd: i32) {
        if let Some(queue) = self.fds.get_mut(&fd) {
            queue.armed = 0;
        }
    }

    /// The events to ask epoll for, if they are not all armed already.
    pub(crate) fn arm(&mut self, fd: i32) -> Option<u32> {
        let queue = self.fds.get_mut(&fd)?;
        let wanted = queue.wanted();
        if queue.armed & wanted == wanted {
            return None;
        }
        queue.armed |= wanted;
        Some(queue.armed)
    }
}

/// Notes in `op` the list that it is in, and the next one there.
///
/// # Safety
///
/// `op` is in place.
unsafe fn link(op: *const Op, fd: i32, direction: Interest, next: Option<*const Op>) {
    // SAFETY: by this function's contract.
    let op = unsafe { &*op };
    op.list_fd.set(fd);
    op.list.set(Some(direction));
    op.next.set(next.unwrap_or(std::ptr::null()));
}

/// Hashes descriptors, which are small numbers, over the table.
#[derive(Debug, Default)]
pub(crate) struct FdHasher(u64);

impl Hasher for FdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes
            .iter()
            .for_each(|&byte| self.write_i32((self.0 as i32) << 8 | i32::from(byte)));
    }

    fn write_i32(&mut self, fd: i32) {
        // Knuth's multiplier: the high bits, which the table uses too, depend on all of the input.
        self.0 = u64::from(fd.cast_unsigned()).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

#[cfg(all(test, not(loom)))]
mod tests;

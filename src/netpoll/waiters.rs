//! Who waits for which descriptor in an epoll poller: a list of operations for each
//! direction of each descriptor, first come first served.
//!
//! ```text
//!  descriptor -> Queue { read:  op -> op,      the ops lie on their goroutines' stacks
//!                        write: op,
//!                        events: -           polls, whatever they are for
//!                        armed: what epoll was asked to tell }
//! ```
//!
//! A descriptor is here only while somebody waits for it. So the number may be
//! closed and used again in between: nothing is remembered of its earlier life, and
//! an event that still comes from there makes, at worst, a call that finds nothing.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::op::{Interest, Op};

/// Not a descriptor: operations that no event will announce, and that are tried
/// again after a while.
pub(crate) const UNANNOUNCED: i32 = -1;

/// Events that let an operation of a direction go on. An error or a hang-up, which
/// epoll always tells, lets both.
const READ_EVENTS: u32 = (libc::EPOLLIN | libc::EPOLLRDHUP) as u32;
const WRITE_EVENTS: u32 = libc::EPOLLOUT as u32;
const BOTH_EVENTS: u32 = (libc::EPOLLERR | libc::EPOLLHUP) as u32;

impl Interest {
    /// What `poll(2)` is asked for where an operation of this direction waits.
    pub(crate) fn poll_events(self) -> u32 {
        match self {
            Interest::Read => libc::POLLIN as u32,
            Interest::Write => libc::POLLOUT as u32,
            Interest::Events => (libc::POLLIN | libc::POLLOUT) as u32,
        }
    }

    /// Whether one of `events` may have made this direction ready.
    pub(crate) fn is_in(self, events: u32) -> bool {
        let own = match self {
            Interest::Read => READ_EVENTS,
            Interest::Write => WRITE_EVENTS,
            Interest::Events => u32::MAX,
        };
        events & (own | BOTH_EVENTS) != 0
    }
}

#[derive(Debug, Default)]
struct List {
    head: Option<*const Op>,
    tail: Option<*const Op>,
}

impl List {
    /// All in it, from the head on.
    fn iter(&self) -> impl Iterator<Item = *const Op> + '_ {
        std::iter::successors(self.head, |&op| {
            // SAFETY: what is in the list is there still.
            let next = unsafe { (*(*op).waiting()).next };
            (!next.is_null()).then_some(next)
        })
    }
}

#[derive(Debug, Default)]
struct FdQueue {
    read: List,
    write: List,
    events: List,
    /// What epoll will tell of the descriptor, as far as it was asked in this life of
    /// the entry.
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
        // SAFETY: what is in the list is there still.
        let polled = |op: *const Op| unsafe { (*(*op).waiting()).request.polled_events() };
        self.events
            .iter()
            .fold(read | write, |all, op| all | polled(op))
    }
}

/// The lists of one poller.
///
/// An operation that is in a list stays where it is until it was taken out: that is
/// the contract of those who put it in.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    fds: HashMap<i32, FdQueue, BuildHasherDefault<FdHasher>>,
}

// SAFETY: the pointers name operations of parked goroutines, which any thread may look at; lists and
// links are read and written under the lock that these waiters are behind.
unsafe impl Send for Waiters {}

impl Waiters {
    /// Appends an operation to the list of a descriptor.
    ///
    /// # Safety
    ///
    /// `op` has its `waiting` filled in, is in no list, and stays until it is taken out.
    pub(crate) unsafe fn push_back(&mut self, fd: i32, direction: Interest, op: *const Op) {
        let list = self.fds.entry(fd).or_default().list(direction);
        // SAFETY: by this function's contract.
        unsafe {
            let waiting = (*op).waiting();
            (*waiting).list = Some((fd, direction));
            (*waiting).next = std::ptr::null();
        }
        match list.tail.replace(op) {
            // SAFETY: what is in the list is there still.
            Some(tail) => unsafe { (*(*tail).waiting()).next = op },
            None => list.head = Some(op),
        }
    }

    /// Puts an operation that was taken out back to where it was.
    ///
    /// # Safety
    ///
    /// As [`Waiters::push_back`].
    pub(crate) unsafe fn push_front(&mut self, fd: i32, direction: Interest, op: *const Op) {
        let list = self.fds.entry(fd).or_default().list(direction);
        let next = list.head.replace(op);
        // SAFETY: by this function's contract.
        unsafe {
            let waiting = (*op).waiting();
            (*waiting).list = Some((fd, direction));
            (*waiting).next = next.unwrap_or(std::ptr::null());
        }
        if next.is_none() {
            list.tail = Some(op);
        }
    }

    /// Takes out the operation that has waited longest.
    pub(crate) fn pop(&mut self, fd: i32, direction: Interest) -> Option<*const Op> {
        let op = self.fds.get_mut(&fd)?.list(direction).head?;
        self.unlink(fd, direction, None, op);
        Some(op)
    }

    /// Takes an operation out of the list that it is in. `false` if it is in none.
    ///
    /// # Safety
    ///
    /// `op` has its `waiting` filled in, and stays during the call.
    pub(crate) unsafe fn remove(&mut self, op: *const Op) -> bool {
        // SAFETY: by this function's contract.
        let Some((fd, direction)) = (unsafe { (*(*op).waiting()).list }) else {
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

    /// Takes `op`, which comes after `before`, out of its list.
    fn unlink(&mut self, fd: i32, direction: Interest, before: Option<*const Op>, op: *const Op) {
        let Some(queue) = self.fds.get_mut(&fd) else {
            return;
        };
        let list = queue.list(direction);
        // SAFETY: what is in the list is there still.
        let next = unsafe {
            let waiting = (*op).waiting();
            (*waiting).list = None;
            (*waiting).next
        };
        let next = (!next.is_null()).then_some(next);
        match before {
            // SAFETY: as above.
            Some(before) => unsafe {
                (*(*before).waiting()).next = next.unwrap_or(std::ptr::null());
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

    /// Takes out some operation, whatever it waits for.
    pub(crate) fn pop_any(&mut self) -> Option<*const Op> {
        let fd = *self.fds.keys().next()?;
        [Interest::Read, Interest::Write, Interest::Events]
            .into_iter()
            .find_map(|direction| self.pop(fd, direction))
    }

    /// How many wait in a list.
    pub(crate) fn len(&mut self, fd: i32, direction: Interest) -> usize {
        self.fds
            .get_mut(&fd)
            .map_or(0, |queue| queue.list(direction).iter().count())
    }

    /// Notes that epoll told of a descriptor, which it does once for each asking.
    pub(crate) fn note_told(&mut self, fd: i32) {
        if let Some(queue) = self.fds.get_mut(&fd) {
            queue.armed = 0;
        }
    }

    /// What epoll must be asked to tell of a descriptor, if it was not asked already.
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

/// Spreads descriptors, which are small and given by the kernel, over a table.
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
        // Knuth's multiplier: the high bits, which the table looks at too, depend on all.
        self.0 = u64::from(fd.cast_unsigned()).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

#[cfg(all(test, not(loom)))]
mod tests;

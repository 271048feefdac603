//! Receiving into buffers of the runtime.
//!
//! A receive that waits holds no memory: on a ring the kernel takes a slot of the P's
//! pool when data has come (`netpoll::pool`). Where there is no slot (all are out, no
//! ring, an old kernel, a plain thread) the wait is for readiness, and the buffer comes
//! from the allocator afterwards.
//!
//! The receives are one-shot, so any goroutine may ask at any time, and nothing is taken
//! for one that does not. For streams of much data there is `io::recv_stream`.
#![allow(unsafe_code)]

use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use super::fd::{Direction, Fd, is_would_block, retry};
use super::op::{self, Deadline};
use super::ready;
use crate::g::header::GRef;
use crate::netpoll::pool::{self, Pool, SLOT_BYTES};
use crate::netpoll::sqe::{Request, left_something};
use crate::sched::park::{self, Caller};
use crate::sys::socket;

/// Bytes that were received, in a buffer that the runtime gave: what `recv_owned` of a
/// stream gives.
///
/// Dereferences to the bytes. Dropping it, on any thread and also after the runtime has
/// ended, gives the memory back. Each P has a limited number of buffers; who keeps many
/// for long makes later receives allocate, and nothing else.
pub struct RecvBuf {
    memory: Memory,
    len: usize,
}

enum Memory {
    Slot { pool: Arc<Pool>, slot: u16 },
    Heap(Vec<u8>),
}

impl RecvBuf {
    /// Whether the memory is from the pool of a P, not from the allocator.
    #[must_use]
    pub fn is_pooled(&self) -> bool {
        matches!(self.memory, Memory::Slot { .. })
    }

    /// The first bytes of a slot, which becomes this value's.
    pub(super) fn in_slot(pool: Arc<Pool>, slot: u16, len: usize) -> RecvBuf {
        RecvBuf {
            memory: Memory::Slot { pool, slot },
            len,
        }
    }

    pub(super) fn empty() -> RecvBuf {
        RecvBuf {
            memory: Memory::Heap(Vec::new()),
            len: 0,
        }
    }
}

impl Deref for RecvBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.memory {
            // SAFETY: the kernel has written so many bytes, and the slot is this value's alone.
            Memory::Slot { pool, slot } => unsafe {
                std::slice::from_raw_parts(pool.slot(*slot), self.len)
            },
            Memory::Heap(bytes) => bytes,
        }
    }
}

impl DerefMut for RecvBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.memory {
            // SAFETY: as in `deref`; the borrow is exclusive.
            Memory::Slot { pool, slot } => unsafe {
                std::slice::from_raw_parts_mut(pool.slot(*slot), self.len)
            },
            Memory::Heap(bytes) => bytes,
        }
    }
}

impl AsRef<[u8]> for RecvBuf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for RecvBuf {
    fn drop(&mut self) {
        if let Memory::Slot { pool, slot } = &self.memory {
            pool.give(*slot);
        }
    }
}

impl fmt::Debug for RecvBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecvBuf")
            .field("len", &self.len)
            .field("is_pooled", &self.is_pooled())
            .finish()
    }
}

impl Fd {
    /// Receives what has come, at most [`SLOT_BYTES`].
    pub(crate) fn recv_owned(&self) -> io::Result<RecvBuf> {
        if self.is_nonblocking() {
            return self.recv_to_heap();
        }
        let deadline = self.deadline(Direction::Read)?;
        if let Caller::Goroutine(g) = park::caller()
            && let Some(pool) = op::pool_here()
        {
            match self.recv_pooled(g, pool, deadline) {
                // No slot is free, or the goroutine was on another P. Nothing was taken out of the
                // socket, which has something.
                Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) => {
                    self.set_maybe_readable(true);
                }
                r => return r,
            }
        }
        self.recv_when_ready(deadline)
    }

    fn recv_pooled(&self, g: GRef, pool: Arc<Pool>, deadline: Deadline<'_>) -> io::Result<RecvBuf> {
        let request = Request::RecvPooled {
            fd: self.as_fd().as_raw_fd(),
            pool: Arc::as_ptr(&pool),
            group: pool.group(),
            poll_first: !self.maybe_readable(),
        };
        // SAFETY: the request points at the pool, which is kept until this returns.
        let done = unsafe { op::run_until(g, request, deadline) }?;
        self.set_maybe_readable(left_something(done.flags));
        // At the end of the stream there may be none.
        Ok(match pool::slot_of(done.flags) {
            Some(slot) => RecvBuf::in_slot(pool, slot, done.n),
            None => RecvBuf::empty(),
        })
    }

    /// Waits until something has come before it allocates.
    pub(super) fn recv_when_ready(&self, deadline: Deadline<'_>) -> io::Result<RecvBuf> {
        if !self.maybe_readable() {
            ready::wait_until(self.as_fd(), libc::POLLIN, deadline)?;
        }
        loop {
            let r = self.recv_to_heap();
            if !is_would_block(&r) {
                return r;
            }
            ready::wait_until(self.as_fd(), libc::POLLIN, deadline)?;
        }
    }

    /// An attempt.
    fn recv_to_heap(&self) -> io::Result<RecvBuf> {
        let mut bytes = Vec::with_capacity(SLOT_BYTES);
        let ptr = bytes.as_mut_ptr();
        let r = retry(|| socket::recv_now(self.as_fd(), ptr, SLOT_BYTES, 0));
        let n = *r.as_ref().unwrap_or(&0);
        // A full buffer has hardly emptied the socket.
        self.set_maybe_readable(n == SLOT_BYTES);
        r?;
        // SAFETY: the kernel has written so many bytes, and there is room for them.
        unsafe { bytes.set_len(n) };
        if n <= SLOT_BYTES / 4 {
            bytes.shrink_to_fit();
        }
        Ok(RecvBuf {
            memory: Memory::Heap(bytes),
            len: n,
        })
    }
}

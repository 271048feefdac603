//! Receiving into buffers of the runtime.
//!
//! A receive that waits holds no memory. With a ring, the kernel takes a slot of the P's pool when
//! data arrives (`netpoll::pool`). If there is no slot (all are in use, no ring, an old kernel, a
//! plain thread), the receive waits for readiness, and then allocates the buffer.
//!
//! The receives are one-shot: any goroutine may receive at any time, and the kernel takes no data
//! without a receive.
#![allow(unsafe_code)]

use std::io;
use std::io::IoSliceMut;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use windlass_ground::std_traits::debug_fields;

use super::fd::{Direction, Fd};
use super::op::{self, Deadline};
use super::waits::Waits;
use crate::g::header::GRef;
use crate::netpoll::pool::{self, BufferRing, SLOT_BYTES};
use crate::sched::wait::park::{self, Caller};
use crate::sys::errno::{is_would_block, retry};
use crate::sys::request::{Request, left_something};
use crate::sys::socket;

/// Received bytes in a buffer that the runtime provides. Returned by `recv_owned` of a stream, for
/// example [`TcpStream::recv_owned`](crate::net::TcpStream::recv_owned).
///
/// It dereferences to the bytes. Dropping it returns the memory, on any thread, also after the
/// runtime has ended. Each P has a limited number of buffers. A program that holds many of them for
/// long makes later receives allocate, and has no other disadvantage.
///
/// # Examples
///
/// ```
/// use std::io::Write;
/// use windlass::net::UnixStream;
///
/// let (mut here, there) = UnixStream::pair()?;
/// here.write_all(b"hello")?;
/// let mut bytes = there.recv_owned()?;
/// bytes.make_ascii_uppercase();
/// assert_eq!(&bytes[..], b"HELLO");
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct RecvBuf {
    memory: Memory,
    len: usize,
}

enum Memory {
    Slot { pool: Arc<BufferRing>, slot: u16 },
    Heap(Vec<u8>),
}

impl RecvBuf {
    /// Returns whether the memory is from the pool of a P (`true`) or from the allocator.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::io::Write;
    /// use windlass::net::UnixStream;
    ///
    /// // A plain thread has no P.
    /// let (mut here, there) = UnixStream::pair()?;
    /// here.write_all(b"hello")?;
    /// assert!(!there.recv_owned()?.is_pooled());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn is_pooled(&self) -> bool {
        matches!(self.memory, Memory::Slot { .. })
    }
}

impl Deref for RecvBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.memory {
            // SAFETY: the kernel has written `len` bytes, and only this value owns the slot.
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

debug_fields!(RecvBuf, |this| len: this.len, is_pooled: this.is_pooled());

impl Fd {
    /// Receives what is in the socket, at most [`SLOT_BYTES`]. Waits if that is nothing.
    pub(crate) fn recv_owned(&self) -> io::Result<RecvBuf> {
        if let Some(sim) = self.sim_socket() {
            let mut bytes = vec![0; SLOT_BYTES];
            let len = sim.read(
                self.sim_deadline(Direction::Read)?,
                &mut [IoSliceMut::new(&mut bytes)],
                false,
            )?;
            bytes.truncate(len);
            bytes.shrink_to_fit();
            let memory = Memory::Heap(bytes);
            return Ok(RecvBuf { memory, len });
        }
        if self.is_nonblocking() {
            return self.recv_to_heap();
        }
        let deadline = self.deadline(Direction::Read)?;
        if let Caller::Goroutine(g) = park::caller()
            && let Some(pool) = op::pool_here()
        {
            match self.recv_pooled(g, pool, deadline) {
                // No slot is free, or the goroutine has moved to another P. The socket has
                // bytes, and they are still there.
                Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) => {
                    self.set_maybe_readable(true);
                }
                r => return r,
            }
        }
        self.recv_when_ready(deadline)
    }

    fn recv_pooled(
        &self,
        g: GRef,
        pool: Arc<BufferRing>,
        deadline: Deadline<'_>,
    ) -> io::Result<RecvBuf> {
        let request = Request::RecvPooled {
            fd: self.as_fd().as_raw_fd(),
            pool: Arc::as_ptr(&pool).cast(),
            group: pool.group(),
            poll_first: !self.maybe_readable(),
        };
        // SAFETY: the request points at the pool, which `pool` keeps alive until this returns.
        let done = unsafe { op::run_until(g, request, deadline) }?;
        self.set_maybe_readable(left_something(done.flags));
        let (len, slot) = (done.n, pool::slot_of(done.flags));
        // At the end of the stream the kernel may take no slot.
        let memory = slot.map_or(Memory::Heap(Vec::new()), |slot| Memory::Slot { pool, slot });
        Ok(RecvBuf { memory, len })
    }

    /// Receives into a heap buffer, which is allocated only after bytes have arrived.
    pub(super) fn recv_when_ready(&self, deadline: Deadline<'_>) -> io::Result<RecvBuf> {
        let mut waits = Waits::new(libc::POLLIN, deadline);
        if !self.maybe_readable() {
            waits.wait(self.as_fd())?;
        }
        loop {
            let r = self.recv_to_heap();
            if !is_would_block(&r) {
                return r;
            }
            waits.wait(self.as_fd())?;
        }
    }

    /// Attempts once, without waiting, to receive into a heap buffer.
    fn recv_to_heap(&self) -> io::Result<RecvBuf> {
        let mut bytes = Vec::with_capacity(SLOT_BYTES);
        let ptr = bytes.as_mut_ptr();
        // SAFETY: the vector has that capacity.
        let r = retry(|| unsafe { socket::recv_now(self.as_fd(), ptr, SLOT_BYTES, 0) });
        let n = *r.as_ref().unwrap_or(&0);
        // If the buffer is full, the socket most likely has more.
        self.set_maybe_readable(n == SLOT_BYTES);
        r?;
        // SAFETY: the kernel has written `n` bytes, which is at most the capacity.
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

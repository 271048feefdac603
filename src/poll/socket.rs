//! Receiving and sending.
//!
//! **Receiving.** The last completion says whether there was more in the socket (`SOCK_NONEMPTY`).
//! If so, try inline first; else queue a receive that polls first: an attempt that finds nothing
//! costs a quarter more than it could save. Of packets no completion says it: after one that was
//! waited for, try inline until there is none ([`Fd::note_waited_packet`]). A TCP stream whose reader
//! has waited several times gets a multishot poll (`netpoll::multishot_poll`). After its events the
//! ring receives for a reader that waits, without a further poll; a reader that comes later receives
//! by system call.
//!
//! **Sending.** Inline first while the P has few operations in flight: a socket buffer nearly
//! always has room, and the data reaches the peer at once. A P with many operations in flight is a
//! busy server: there the ring sends for its goroutines in one batch, which saves system calls and
//! wakes (docs/decisions/netpoller.md). Unix datagrams, and messages with descriptors, are sent by
//! system calls only: a ring that repeats such a send does not send all of it.
#![allow(unsafe_code)]

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use socket2::{Domain, SockAddr, SockAddrStorage, Socket, Type};

use super::fd::{Direction, Fd};
use super::op::{self, Deadline, PollOutcome};
use super::ready;
use super::waits::Waits;
use crate::g::header::GRef;
use crate::netpoll::multishot_poll::MultishotPoll;
use crate::sched::wait::checkpoint::checkpoint;
use crate::sched::wait::park::{self, Caller};
use crate::sys::errno::{is_would_block, retry};
use crate::sys::request::{MAX_BUFFERS, MAX_LEN, Request, left_something};
use crate::sys::rights::{self, Control};
use crate::sys::{clock, socket};
use crate::util::chaos::{self, Point};

/// The received bytes stay in the socket.
pub(crate) const PEEK: i32 = libc::MSG_PEEK;

/// Where a sender finds out that there is room for what it sends.
#[derive(Clone, Copy, Debug)]
enum Room<'a> {
    /// By polling the socket that it sends from.
    Here,
    /// By polling another socket, one that is connected to the receiver at this address. The socket that it
    /// sends from is not, so a poll of that one does not tell whether the receiver has room.
    At(&'a SockAddr),
}

/// How long a sender waits for a poll before it tries again: a socket that has sent to another one
/// before may have room for a packet before its poll reports it.
const LOOK_AGAIN_NS: u64 = 1_000_000_000;

impl Fd {
    /// Reads from a stream. An empty buffer returns 0 at once.
    #[inline]
    pub(crate) fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        on_sim_socket!(self, sim => sim.read(
            self.sim_deadline(Direction::Read)?,
            &mut [IoSliceMut::new(buf)],
            false,
        ));
        match self.multishot_poll() {
            Some(poll) => self.read_polled(poll, buf),
            None => self.recv(buf, 0),
        }
    }

    /// Reads from a stream that has a multishot poll.
    fn read_polled(&self, poll: &Arc<MultishotPoll>, buf: &mut [u8]) -> io::Result<usize> {
        let g = match park::caller() {
            Caller::Goroutine(g) if !self.is_nonblocking() && !op::is_epoll_here() => g,
            _ => return self.recv(buf, 0),
        };
        let deadline = self.deadline(Direction::Read)?;
        let fd = self.as_fd().as_raw_fd();
        let (len, ptr) = (buf.len().min(MAX_LEN), buf.as_mut_ptr());
        let receive = recv_request(fd, ptr, len, libc::MSG_DONTWAIT);
        loop {
            let seen = poll.look();
            if seen.is_some() || chaos::coin(Point::Receive) {
                let r = match op::batches_here() {
                    // SAFETY: the buffer is borrowed by the caller until this returns.
                    true => unsafe { op::recv_left(g, receive, deadline) },
                    // SAFETY: as above.
                    false => unsafe { self.recv_left_now(ptr, len) },
                };
                let is_empty = match &r {
                    Ok((n, left)) => *n > 0 && *left == Some(0),
                    Err(e) => e.raw_os_error() == Some(libc::EAGAIN),
                };
                if let Some(seen) = seen.filter(|_| is_empty) {
                    poll.found_empty(seen);
                }
                if r.is_ok() || !is_empty {
                    checkpoint()?;
                    return r.map(|(n, _)| n);
                }
            }
            // SAFETY: the buffer is borrowed by the caller until this returns.
            match unsafe { op::wait_for_event(g, (fd, poll), receive, deadline) }? {
                PollOutcome::Received(n) => return Ok(n),
                PollOutcome::Event if poll.is_over() => {
                    self.set_maybe_readable(true);
                    return self.recv(buf, 0);
                }
                PollOutcome::Event => {}
                // SAFETY: the buffer is borrowed by the caller until this returns.
                PollOutcome::Elsewhere => unsafe {
                    return self.recv_parked(g, recv_request(fd, ptr, len, 0), len, deadline);
                },
            }
        }
    }

    /// Receives from a stream; with `MSG_PEEK` the data stays in the socket.
    pub(crate) fn recv(&self, buf: &mut [u8], flags: i32) -> io::Result<usize> {
        self.recv_any(buf, flags, buf.len().clamp(1, MAX_LEN))
    }

    /// Receives a packet, possibly empty; with `MSG_PEEK` it stays in the socket.
    pub(crate) fn recv_packet(&self, buf: &mut [u8], flags: i32) -> io::Result<usize> {
        self.recv_any(buf, flags, 0)
    }

    /// Receives. After at least `more_from` bytes there may be more in the socket: of a stream after a
    /// full buffer, of packets (0) always.
    #[inline]
    fn recv_any(&self, buf: &mut [u8], flags: i32, more_from: usize) -> io::Result<usize> {
        on_sim_socket!(self, sim => sim.read(
            self.sim_deadline(Direction::Read)?,
            &mut [IoSliceMut::new(buf)],
            flags & PEEK != 0,
        ));
        let len = buf.len().min(MAX_LEN);
        let ptr = buf.as_mut_ptr();
        // SAFETY: the buffer is borrowed by the caller until this returns.
        let now = || retry(|| unsafe { socket::recv_now(self.as_fd(), ptr, len, flags) });
        let request = || recv_request(self.as_fd().as_raw_fd(), ptr, len, flags);
        // SAFETY: as above.
        unsafe { self.receive(more_from, now, request) }
    }

    /// Receives inline or by a request, on a plain thread by system calls.
    ///
    /// # Safety
    ///
    /// As [`op::run`], for the request that `request` returns.
    #[inline(always)]
    unsafe fn receive(
        &self,
        more_from: usize,
        now: impl Fn() -> io::Result<usize>,
        request: impl FnOnce() -> Request,
    ) -> io::Result<usize> {
        if self.is_nonblocking() {
            return now();
        }
        let deadline = self.deadline(Direction::Read)?;
        let g = match park::caller() {
            Caller::Thread => return self.recv_on_thread(deadline, now),
            Caller::Goroutine(g) => g,
        };
        if let Some(r) = self.recv_inline(more_from, now) {
            return r;
        }
        // SAFETY: by this function's contract.
        unsafe { self.recv_parked(g, request(), more_from, deadline) }
    }

    /// # Safety
    ///
    /// As [`op::run`].
    unsafe fn recv_parked(
        &self,
        g: GRef,
        request: Request,
        more_from: usize,
        deadline: Deadline<'_>,
    ) -> io::Result<usize> {
        // SAFETY: by this function's contract.
        let done = unsafe { op::run_until(g, request, deadline) }?;
        let left_more = if more_from == 0 {
            self.note_waited_packet()
        } else {
            self.note_waited();
            left_something(done.flags)
        };
        if left_more {
            self.set_maybe_readable(true);
        }
        Ok(done.n)
    }

    /// Attempts to receive, if the socket had more the last time. `None` if there was nothing.
    fn recv_inline(
        &self,
        more_from: usize,
        now: impl FnOnce() -> io::Result<usize>,
    ) -> Option<io::Result<usize>> {
        if self.maybe_readable() == chaos::coin(Point::Receive) {
            return None;
        }
        let r = now();
        op::note_transfer();
        // After a short read the socket is empty; a full one leaves the hint set.
        if r.as_ref().map_or(true, |&n| n < more_from) {
            self.set_maybe_readable(false);
        } else if more_from == 0 {
            self.note_found_packet();
        }
        (!is_would_block(&r)).then_some(r)
    }

    /// Receives on a plain thread, as a blocking receive would.
    fn recv_on_thread(
        &self,
        deadline: Deadline<'_>,
        mut now: impl FnMut() -> io::Result<usize>,
    ) -> io::Result<usize> {
        self.on_thread(libc::POLLIN, deadline, || match now() {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                socket::recv_after_shutdown(self.as_fd(), &mut now).unwrap_or(Err(e))
            }
            r => r,
        })
    }

    /// Reads from a stream into several buffers.
    pub(crate) fn read_vectored(&self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        match bufs.iter_mut().filter(|b| !b.is_empty()).count() {
            0 => return Ok(0),
            1 => {
                let one = bufs.iter_mut().find(|b| !b.is_empty());
                return one.map_or(Ok(0), |b| self.recv(b, 0));
            }
            _ => {}
        }
        on_sim_socket!(self, sim => sim.read(self.sim_deadline(Direction::Read)?, bufs, false));
        let len = bufs.iter().map(|b| b.len()).sum();
        let mut msg = header(bufs.as_mut_ptr().cast(), bufs.len());
        // SAFETY: the buffers are borrowed by the caller until this returns.
        unsafe { self.recv_msg(&raw mut msg, 0, len) }
    }

    /// Receives into a message, as [`Fd::recv_any`] does.
    ///
    /// # Safety
    ///
    /// The message and what it names stay valid until this returns.
    unsafe fn recv_msg(
        &self,
        msg: *mut libc::msghdr,
        flags: i32,
        more_from: usize,
    ) -> io::Result<usize> {
        // SAFETY: by this function's contract.
        let now = || retry(|| unsafe { socket::recvmsg_now(self.as_fd(), msg, flags) });
        let fd = self.as_fd().as_raw_fd();
        // SAFETY: by this function's contract.
        unsafe { self.receive(more_from, now, || Request::RecvMsg { fd, msg, flags }) }
    }

    /// Receives a packet, possibly empty, and the address of its sender.
    pub(crate) fn recv_from(&self, buf: &mut [u8], flags: i32) -> io::Result<(usize, SockAddr)> {
        on_sim_socket!(self, sim => sim.receive_from(self.sim_deadline(Direction::Read)?, buf, flags & PEEK != 0));
        let mut storage = SockAddrStorage::zeroed();
        let mut iov = libc::iovec {
            iov_base: buf.as_mut_ptr().cast(),
            iov_len: buf.len().min(MAX_LEN),
        };
        let mut msg = header(&raw mut iov, 1);
        msg.msg_name = (&raw mut storage).cast();
        msg.msg_namelen = storage.size_of();
        // SAFETY: the header and the address are on this frame, the buffer is the caller's.
        let n = unsafe { self.recv_msg(&raw mut msg, flags, 0) }?;
        // SAFETY: the kernel wrote an address of this length, or left zeros.
        Ok((n, unsafe { SockAddr::new(storage, msg.msg_namelen) }))
    }

    /// Writes as much to a stream as fits, at least a byte; an empty buffer returns 0.
    #[inline]
    pub(crate) fn write(&self, buf: &[u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        self.send(buf)
    }

    /// Sends, including an empty packet.
    pub(crate) fn send(&self, buf: &[u8]) -> io::Result<usize> {
        on_sim_socket!(self, sim => sim.write(
            self.sim_deadline(Direction::Write)?,
            &[IoSlice::new(buf)],
            None,
        ));
        let buf = &buf[..buf.len().min(MAX_LEN)];
        let now = || retry(|| socket::send_now(self.as_fd(), buf));
        let request = || Request::Send {
            fd: self.as_fd().as_raw_fd(),
            buf: buf.as_ptr(),
            len: buf.len() as u32,
        };
        let by_calls = self.sends_by_calls().then_some(Room::Here);
        // SAFETY: the buffer is borrowed by the caller until this returns.
        unsafe { self.send_request(now, request, by_calls) }
    }

    /// Sends inline or by a request, or only by system calls.
    ///
    /// # Safety
    ///
    /// As [`op::run`], for the request that `request` returns.
    #[inline(always)]
    unsafe fn send_request(
        &self,
        now: impl Fn() -> io::Result<usize>,
        request: impl FnOnce() -> Request,
        by_calls: Option<Room<'_>>,
    ) -> io::Result<usize> {
        if self.is_nonblocking() {
            return now();
        }
        let deadline = self.deadline(Direction::Write)?;
        // A plain thread must try it here: in a destructor it may not wait.
        let is_perturbed =
            chaos::coin(Point::Send) && matches!(park::caller(), Caller::Goroutine(_));
        if by_calls.is_some() || !op::batches_here() && !is_perturbed {
            let first = now();
            if !is_would_block(&first) {
                op::note_transfer();
                return first;
            }
        }
        match park::caller() {
            Caller::Thread => self.on_thread(libc::POLLOUT, deadline, now),
            Caller::Goroutine(g) => match by_calls {
                Some(room) => self.send_by_calls(g, deadline, room, now),
                // SAFETY: by this function's contract.
                None => unsafe { op::run_until(g, request(), deadline) }.map(|done| done.n),
            },
        }
    }

    /// Waits for room, and sends by system calls.
    #[cold]
    fn send_by_calls(
        &self,
        g: GRef,
        deadline: Deadline<'_>,
        room: Room<'_>,
        now: impl Fn() -> io::Result<usize>,
    ) -> io::Result<usize> {
        let stand_in = match room {
            Room::Here => None,
            Room::At(addr) => Some(sender_to(addr)),
        };
        let polled = match &stand_in {
            None => Some(self.as_fd()),
            Some(socket) => socket.as_ref().ok().map(AsFd::as_fd),
        };
        let is_full = |fd: &BorrowedFd<'_>| matches!(socket::poll_now(*fd, libc::POLLOUT), Ok(0));
        let mut waits = Waits::new(libc::POLLOUT, deadline);
        loop {
            if let Some(fd) = polled.filter(is_full) {
                let mut soon = deadline;
                soon.at_ns = soon.at_ns.min(clock::now_ns() + LOOK_AGAIN_NS);
                match ready::wait_until(fd, libc::POLLOUT, soon) {
                    Err(e) if e.kind() != io::ErrorKind::WouldBlock => return Err(e),
                    _ => {}
                }
            }
            op::check(g)?;
            let r = now();
            if !is_would_block(&r) || deadline.has_passed() {
                return r;
            }
            // Another sender took the room, or nothing reports it. The kernel wakes all senders at
            // once, so those that wait in vain stay away for a while.
            waits.pause()?;
        }
    }

    /// Writes to a stream from several buffers.
    pub(crate) fn write_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        if bufs.iter().all(|b| b.is_empty()) {
            return Ok(0);
        }
        on_sim_socket!(self, sim => sim.write(self.sim_deadline(Direction::Write)?, bufs, None));
        let msg = header(bufs.as_ptr().cast_mut().cast(), bufs.len());
        let by_calls = self.sends_by_calls().then_some(Room::Here);
        // SAFETY: the buffers are borrowed by the caller until this returns.
        unsafe { self.send_msg(&raw const msg, by_calls) }
    }

    /// Sends a message.
    ///
    /// # Safety
    ///
    /// The message and what it names stay valid until this returns.
    unsafe fn send_msg(
        &self,
        msg: *const libc::msghdr,
        by_calls: Option<Room<'_>>,
    ) -> io::Result<usize> {
        // SAFETY: by this function's contract.
        let now = || retry(|| unsafe { socket::sendmsg_now(self.as_fd(), msg) });
        let request = || Request::SendMsg {
            fd: self.as_fd().as_raw_fd(),
            msg,
        };
        // SAFETY: by this function's contract.
        unsafe { self.send_request(now, request, by_calls) }
    }

    /// Sends a packet, possibly empty, to an address.
    pub(crate) fn send_to(&self, buf: &[u8], addr: &SockAddr) -> io::Result<usize> {
        on_sim_socket!(self, sim => sim.write(
            self.sim_deadline(Direction::Write)?,
            &[IoSlice::new(buf)],
            Some(addr),
        ));
        let mut iov = libc::iovec {
            iov_base: buf.as_ptr().cast_mut().cast(),
            iov_len: buf.len().min(MAX_LEN),
        };
        let mut msg = header(&raw mut iov, 1);
        msg.msg_name = addr.as_ptr().cast_mut().cast();
        msg.msg_namelen = addr.len();
        let by_calls = self.sends_by_calls().then_some(Room::At(addr));
        // SAFETY: the header is on this frame, buffer and address are the caller's.
        unsafe { self.send_msg(&raw const msg, by_calls) }
    }

    /// Receives a packet that is there, in a simulation; `WouldBlock` elsewhere.
    pub(crate) fn recv_from_now(&self, buf: &mut [u8]) -> io::Result<(usize, SockAddr)> {
        on_sim_socket!(self, sim => sim.receive_from(None, buf, false));
        Err(io::ErrorKind::WouldBlock.into())
    }

    /// Receives several packets by attempts of `now`, which has room for `n`.
    pub(crate) fn recv_many(
        &self,
        n: usize,
        mut now: impl FnMut() -> io::Result<usize>,
    ) -> io::Result<usize> {
        let mut now = || retry(&mut now);
        if self.is_nonblocking() {
            return now();
        }
        let deadline = self.deadline(Direction::Read)?;
        let Caller::Goroutine(g) = park::caller() else {
            return self.recv_on_thread(deadline, now);
        };
        if let Some(r) = self.recv_inline(n, &mut now) {
            return r;
        }
        let mut waits = Waits::new(libc::POLLIN, deadline);
        loop {
            waits.wait(self.as_fd())?;
            op::check(g)?;
            let r = now();
            if !is_would_block(&r) {
                self.set_maybe_readable(matches!(r, Ok(received) if received == n));
                return r;
            }
        }
    }

    /// Sends several packets by attempts of `now`. There is no operation of a ring for this.
    pub(crate) fn send_many(&self, now: impl Fn() -> io::Result<usize>) -> io::Result<usize> {
        let request = || unreachable!("it is sent by calls");
        // SAFETY: no request is made.
        unsafe { self.send_request(|| retry(&now), request, Some(Room::Here)) }
    }

    /// Sends bytes together with descriptors, at least one and at most [`rights::MAX_FDS`].
    pub(crate) fn send_fds(&self, buf: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
        on_sim_socket!(self, sim => sim.write_fds(self.sim_deadline(Direction::Write)?, buf, fds));
        let fds: Vec<i32> = fds.iter().map(AsRawFd::as_raw_fd).collect();
        let mut control = Control::new();
        let mut iov = libc::iovec {
            iov_base: buf.as_ptr().cast_mut().cast(),
            iov_len: buf.len().min(MAX_LEN),
        };
        let mut msg = header(&raw mut iov, 1);
        control.put(&mut msg, &fds);
        // SAFETY: all parts are on this frame or the caller's.
        unsafe { self.send_msg(&raw const msg, Some(Room::Here)) }
    }

    /// Receives bytes and the descriptors that came with them, close-on-exec. If some descriptors
    /// were lost on the way, closes the others and fails.
    pub(crate) fn recv_fds(&self, buf: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
        on_sim_socket!(self, sim => sim.receive_fds(self.sim_deadline(Direction::Read)?, buf));
        let mut control = Control::new();
        let mut iov = libc::iovec {
            iov_base: buf.as_mut_ptr().cast(),
            iov_len: buf.len().min(MAX_LEN),
        };
        let mut msg = header(&raw mut iov, 1);
        control.give_room(&mut msg);
        // SAFETY: all parts are on this frame or the caller's.
        let n = unsafe { self.recv_msg(&raw mut msg, libc::MSG_CMSG_CLOEXEC, buf.len().max(1)) }?;
        // SAFETY: the kernel has just filled the header and its control part in.
        let fds = unsafe { rights::received(&msg) };
        if msg.msg_flags & libc::MSG_CTRUNC != 0 {
            drop(fds);
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "descriptors sent with a message were lost: too many of them, or none left here",
            ));
        }
        Ok((n, fds))
    }
}

/// A socket of which a poll reports whether the Unix datagram socket on `addr` has room.
fn sender_to(addr: &SockAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::UNIX, Type::DGRAM, None)?;
    socket.connect(addr)?;
    Ok(socket)
}

fn recv_request(fd: i32, buf: *mut u8, len: usize, flags: i32) -> Request {
    Request::Recv {
        fd,
        buf,
        len: len as u32,
        flags,
    }
}

fn header(iov: *mut libc::iovec, len: usize) -> libc::msghdr {
    // SAFETY: all-zero is a valid msghdr.
    let mut msg: libc::msghdr = unsafe { std::mem::zeroed() };
    msg.msg_iov = iov;
    msg.msg_iovlen = len.min(MAX_BUFFERS);
    msg
}

//! Moving bytes from one descriptor to another inside the kernel.
//!
//! `splice(2)` needs a pipe at one end. Between two sockets a pipe is in the middle as long as
//! bytes are in it (`pipe_pool`). If no pipe is available, because descriptors or memory are short,
//! a buffer replaces it for that round. The ring's polls do the waiting: the sockets are in
//! non-blocking mode (`Fd::splicing`), so no splice waits.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use super::pipe_pool::{Middle, PIPE_BYTES};
use crate::poll::bytes;
use crate::poll::fd::{Direction, Fd, Splicing, is_would_block, retry};
use crate::poll::op::Deadline;
use crate::poll::ready;
use crate::sched::wait::park;
use crate::sys::clock::NEVER;
use crate::sys::{file, signal, socket};

/// Bytes moved at a time if no pipe is available.
const BUFFER_BYTES: usize = 64 << 10;

/// A copy that does not wait yields after this many bytes, which is after about 100 µs.
const TURN_BYTES: usize = 1 << 20;

/// One end of a copy.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End<'a> {
    Socket(&'a Fd),
    Pipe(BorrowedFd<'a>),
}

impl<'a> End<'a> {
    fn fd(self) -> BorrowedFd<'a> {
        match self {
            End::Socket(fd) => fd.as_fd(),
            End::Pipe(fd) => fd,
        }
    }

    fn non_blocking(self) -> io::Result<Option<Splicing<'a>>> {
        match self {
            End::Socket(fd) => fd.splicing().map(Some),
            End::Pipe(_) => Ok(None),
        }
    }

    fn deadline(self, direction: Direction) -> io::Result<Deadline<'a>> {
        match self {
            End::Socket(fd) => fd.deadline(direction),
            End::Pipe(_) => Ok(Deadline::at(NEVER)),
        }
    }

    fn wait(self, direction: Direction) -> io::Result<()> {
        let deadline = self.deadline(direction)?;
        let events = match direction {
            Direction::Read => libc::POLLIN,
            Direction::Write => libc::POLLOUT,
        };
        if let End::Socket(fd) = self
            && fd.is_nonblocking()
        {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        ready::wait_until(self.fd(), events, deadline)
    }
}

/// Whether the error means that the kernel does not splice these descriptors at all.
fn is_refused(e: &io::Error) -> bool {
    matches!(
        e.raw_os_error(),
        Some(libc::EINVAL | libc::ENOSYS | libc::EPERM | libc::EOPNOTSUPP)
    )
}

/// Whether the error means that the kernel has no memory for splicing now.
fn is_short(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::ENOMEM | libc::ENOBUFS))
}

/// How a copy inside the kernel ended.
#[derive(Debug)]
pub(crate) enum CopyEnd {
    /// The source has ended.
    End,
    /// The kernel does not splice these descriptors. No byte is lost; the caller copies the rest
    /// through a buffer.
    Refused,
}

/// Moves all bytes from `from` to `to`, and adds their number to `n_copied`.
pub(crate) fn splice_all(from: End<'_>, to: End<'_>, n_copied: &mut u64) -> io::Result<CopyEnd> {
    if let End::Socket(_) = to
        && !signal::is_ignored(libc::SIGPIPE)
    {
        // `splice(2)` has no MSG_NOSIGNAL: it would raise SIGPIPE if the peer is gone.
        return Ok(CopyEnd::Refused);
    }
    let _modes = (from.non_blocking()?, to.non_blocking()?);
    if let (End::Socket(from), End::Socket(to)) = (from, to) {
        return through_a_pipe(from, to, n_copied);
    }
    // One end is a pipe already.
    let mut turn = Turn::default();
    loop {
        match step(from, to, PIPE_BYTES) {
            Ok(0) => return Ok(CopyEnd::End),
            Ok(n) => {
                *n_copied += n as u64;
                turn.has_moved(n)?;
            }
            Err(e) if is_refused(&e) => return Ok(CopyEnd::Refused),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                // The error does not say which end was not ready: wait for both.
                from.wait(Direction::Read)?;
                to.wait(Direction::Write)?;
            }
            Err(e) => return Err(e),
        }
    }
}

/// Bytes that a copy has moved since it last yielded.
#[derive(Debug, Default)]
struct Turn {
    bytes: usize,
}

impl Turn {
    fn has_moved(&mut self, n: usize) -> io::Result<()> {
        self.bytes += n;
        if self.bytes >= TURN_BYTES {
            self.bytes = 0;
            park::yield_now()?;
        }
        Ok(())
    }
}

/// Fails if the goroutine is cancelled, the ambient context is done, or a deadline has passed.
fn attempt(from: End<'_>, to: End<'_>) -> io::Result<()> {
    park::cancel_point()?;
    from.deadline(Direction::Read)?;
    to.deadline(Direction::Write)?;
    Ok(())
}

fn step(from: End<'_>, to: End<'_>, len: usize) -> io::Result<usize> {
    attempt(from, to)?;
    retry(|| file::splice(from.fd(), to.fd(), len))
}

/// The result of one round between two sockets. No byte is in the pipe after it.
enum Round {
    /// The number of bytes moved; 0 at the end of the source.
    Moved(usize),
    /// The source has no bytes now.
    Empty,
    /// The kernel does not splice these sockets.
    Refused,
    /// The kernel has no memory for the pipe now. Nothing was moved.
    Short,
}

/// Moves all bytes between two sockets. The copy holds a pipe only while bytes are in it, and none
/// while it waits for the source.
fn through_a_pipe(from: &Fd, to: &Fd, n_copied: &mut u64) -> io::Result<CopyEnd> {
    let mut turn = Turn::default();
    // Used if no pipe is available.
    let mut buf = Vec::new();
    loop {
        let by_pipe = match Middle::take() {
            Some(middle) => round_by_pipe(from, to, middle, n_copied)?,
            None => Round::Short,
        };
        let round = match by_pipe {
            Round::Short => round_by_buffer(from, to, &mut buf, n_copied)?,
            round => round,
        };
        match round {
            Round::Moved(0) => return Ok(CopyEnd::End),
            Round::Moved(n) => turn.has_moved(n)?,
            Round::Empty => {
                buf = Vec::new();
                End::Socket(from).wait(Direction::Read)?;
            }
            Round::Refused | Round::Short => return Ok(CopyEnd::Refused),
        }
    }
}

/// Moves the bytes that the source has, at most a full pipe.
fn round_by_pipe(from: &Fd, to: &Fd, mut middle: Middle, n_copied: &mut u64) -> io::Result<Round> {
    match step(End::Socket(from), End::Pipe(middle.writer()), PIPE_BYTES) {
        Ok(n) => middle.add(n),
        Err(e) if is_refused(&e) => return Ok(Round::Refused),
        Err(e) if is_short(&e) => return Ok(Round::Short),
        // The pipe is empty, so the source is the end that was not ready.
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(Round::Empty),
        Err(e) => return Err(e),
    }
    let n = middle.n_inside();
    while middle.n_inside() > 0 {
        let (reader, sink) = (End::Pipe(middle.reader()), End::Socket(to));
        match step(reader, sink, middle.n_inside()) {
            Ok(n) => {
                middle.remove(n);
                *n_copied += n as u64;
            }
            Err(e) if is_short(&e) => write_out(&mut middle, to, n_copied)?,
            Err(e) if is_refused(&e) => {
                write_out(&mut middle, to, n_copied)?;
                return Ok(Round::Refused);
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => sink.wait(Direction::Write)?,
            Err(e) => return Err(e),
        }
    }
    Ok(Round::Moved(n))
}

/// Does the same as [`round_by_pipe`] through a buffer.
fn round_by_buffer(from: &Fd, to: &Fd, buf: &mut Vec<u8>, n_copied: &mut u64) -> io::Result<Round> {
    attempt(End::Socket(from), End::Socket(to))?;
    buf.resize(BUFFER_BYTES, 0);
    let received = retry(|| socket::recv_now(from.as_fd(), buf.as_mut_ptr(), buf.len(), 0));
    if is_would_block(&received) {
        return Ok(Round::Empty);
    }
    let n = received?;
    send_all(to, &buf[..n], n_copied)?;
    Ok(Round::Moved(n))
}

/// Writes the bytes in the pipe to a socket that cannot be spliced to now.
fn write_out(middle: &mut Middle, to: &Fd, n_copied: &mut u64) -> io::Result<()> {
    let mut buf = vec![0; middle.n_inside().min(BUFFER_BYTES)];
    while middle.n_inside() > 0 {
        let n = bytes::read(middle.reader(), &mut buf)?;
        middle.remove(n);
        send_all(to, &buf[..n], n_copied)?;
    }
    Ok(())
}

fn send_all(to: &Fd, mut bytes: &[u8], n_copied: &mut u64) -> io::Result<()> {
    let sink = End::Socket(to);
    while !bytes.is_empty() {
        park::cancel_point()?;
        sink.deadline(Direction::Write)?;
        let sent = retry(|| socket::send_now(to.as_fd(), bytes));
        if is_would_block(&sent) {
            sink.wait(Direction::Write)?;
            continue;
        }
        let n = sent?;
        bytes = &bytes[n..];
        *n_copied += n as u64;
    }
    Ok(())
}

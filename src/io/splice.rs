//! Moving bytes from one descriptor to another inside the kernel.
//!
//! `splice(2)` needs a pipe at one end. Between two sockets a pipe is in the middle as long as
//! bytes are in it (`pipe_pool`). If no pipe is available, because descriptors or memory are short,
//! a buffer replaces it for that round. The ring's polls do the waiting: the sockets are in
//! non-blocking mode (`Fd::splicing`), so no splice waits.
//!
//! `splice(2)` does not see all bytes that a read would return. At urgent data of a TCP stream it
//! stops for good, and returns 0 or `EAGAIN`, until a read has passed the mark. So it decides nothing
//! by itself: where it returns 0, or finds nothing after a wait, the next round goes through a buffer.
//! Only a read of 0 bytes is the end of the source.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use super::pipe_pool::{Middle, PIPE_BYTES};
use crate::poll::bytes::{self, Stream};
use crate::poll::fd::{Direction, Fd, NonBlocking};
use crate::poll::limit::Deadline;
use crate::poll::waits::Waits;
use crate::sched::wait::park;
use crate::sched::wait::points;
use crate::sys::clock::NEVER;
use crate::sys::errno::{is_would_block, retry};
use crate::sys::{file, signal, socket};

/// Bytes moved at a time through a buffer.
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

    fn non_blocking(self) -> io::Result<Option<NonBlocking<'a>>> {
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

    /// Fails if the goroutine is cancelled, the ambient context is done, or the deadline has passed.
    fn check(self, direction: Direction) -> io::Result<()> {
        points::cancel_point()?;
        self.deadline(direction).map(drop)
    }

    /// Whether its owner wants single attempts.
    fn is_nonblocking(self) -> bool {
        matches!(self, End::Socket(fd) if fd.is_nonblocking())
    }

    /// Waits until it is ready. `waits` are the waits since bytes were last moved, which is when a
    /// read or write would have begun.
    fn wait(self, direction: Direction, waits: &mut Option<Waits<'a>>) -> io::Result<()> {
        if self.is_nonblocking() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let waits = match waits {
            Some(waits) => waits,
            None => waits.insert(Waits::new(
                direction.poll_events(),
                self.deadline(direction)?,
            )),
        };
        waits.wait(self.fd())
    }

    /// Reads without waiting from a socket. A pipe's end waits: whether a pipe has bytes, splicing
    /// has found out.
    fn read(self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            End::Socket(fd) => retry(|| socket::recv_into_now(fd.as_fd(), buf)),
            End::Pipe(fd) => bytes::read(Stream::of_pipe(fd), buf),
        }
    }

    /// Writes all bytes, and adds their number to `n_copied`.
    fn write_all(self, mut bytes: &[u8], n_copied: &mut u64) -> io::Result<()> {
        let mut waits = None;
        while !bytes.is_empty() {
            self.check(Direction::Write)?;
            let written = match self {
                End::Socket(fd) => retry(|| socket::send_now(fd.as_fd(), bytes)),
                End::Pipe(fd) => bytes::write(Stream::of_pipe(fd), bytes),
            };
            if is_would_block(&written) {
                self.wait(Direction::Write, &mut waits)?;
                continue;
            }
            let n = written?;
            if n == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            waits = None;
            bytes = &bytes[n..];
            *n_copied += n as u64;
        }
        Ok(())
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

/// The result of one round. No byte is on its way after it.
enum Round {
    /// The number of bytes moved. 0 is the end of the source, if a read has returned it.
    Moved(usize),
    /// The source has no bytes now, or the pipe to copy to has no room.
    Empty,
    /// The kernel does not splice these descriptors.
    Refused,
    /// The kernel has no memory or no descriptors for splicing now. Nothing was moved.
    Short,
}

/// Moves all bytes from `from` to `to`, and adds their number to `n_copied`. Between two sockets it
/// holds a pipe only while bytes are in it, and none while it waits for the source.
pub(crate) fn splice_all(from: End<'_>, to: End<'_>, n_copied: &mut u64) -> io::Result<CopyEnd> {
    if let End::Socket(_) = to
        && !signal::is_ignored(libc::SIGPIPE)
    {
        // `splice(2)` has no MSG_NOSIGNAL: it would raise SIGPIPE if the peer is gone.
        return Ok(CopyEnd::Refused);
    }
    if [from, to]
        .iter()
        .any(|end| matches!(end, End::Pipe(fd) if !file::is_pipe(*fd)))
    {
        // A terminal or a socket, say, of which a splice would wait.
        return Ok(CopyEnd::Refused);
    }
    let are_sockets = matches!((from, to), (End::Socket(_), End::Socket(_)));
    let _modes = (from.non_blocking()?, to.non_blocking()?);
    let mut turn = Turn::default();
    // Of the source and the sink, since bytes were last moved.
    let mut waits = (None, None);
    let mut by_buffer = false;
    let mut buf = Vec::new();
    loop {
        let round = match (by_buffer, from, to) {
            (true, ..) => round_by_buffer(from, to, &mut buf, n_copied)?,
            (false, End::Socket(from), End::Socket(to)) => round_by_pipe(from, to, n_copied)?,
            // One end is a pipe already.
            (false, ..) => round_at_once(from, to, n_copied)?,
        };
        match round {
            Round::Moved(0) if by_buffer => return Ok(CopyEnd::End),
            Round::Moved(0) | Round::Short => by_buffer = true,
            Round::Moved(n) => {
                turn.has_moved(n)?;
                waits = (None, None);
                by_buffer = false;
            }
            // A wait was in vain, or there will be none.
            Round::Empty if !by_buffer && (waits.0.is_some() || from.is_nonblocking()) => {
                by_buffer = true;
            }
            Round::Empty => {
                by_buffer = false;
                buf = Vec::new();
                from.wait(Direction::Read, &mut waits.0)?;
                if !are_sockets {
                    // The splice did not say which end was not ready.
                    to.wait(Direction::Write, &mut waits.1)?;
                }
            }
            Round::Refused => return Ok(CopyEnd::Refused),
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

/// The result of a splice that must not wait.
fn round(spliced: io::Result<usize>) -> io::Result<Round> {
    match spliced {
        Ok(n) => Ok(Round::Moved(n)),
        Err(e) if is_refused(&e) => Ok(Round::Refused),
        Err(e) if is_short(&e) => Ok(Round::Short),
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(Round::Empty),
        Err(e) => Err(e),
    }
}

/// Moves bytes where one end is a pipe.
fn round_at_once(from: End<'_>, to: End<'_>, n_copied: &mut u64) -> io::Result<Round> {
    from.check(Direction::Read)?;
    to.check(Direction::Write)?;
    let round = round(retry(|| file::splice(from.fd(), to.fd(), PIPE_BYTES)))?;
    if let Round::Moved(n) = round {
        *n_copied += n as u64;
    }
    Ok(round)
}

/// Moves the bytes that one socket has, at most a full pipe, to another one.
fn round_by_pipe(from: &Fd, to: &Fd, n_copied: &mut u64) -> io::Result<Round> {
    let Some(mut middle) = Middle::take() else {
        return Ok(Round::Short);
    };
    End::Socket(from).check(Direction::Read)?;
    // The pipe is empty: an end that is not ready is the source.
    let filled = retry(|| file::splice(from.as_fd(), middle.writer(), PIPE_BYTES));
    let filled = round(filled)?;
    let Round::Moved(n) = filled else {
        return Ok(filled);
    };
    middle.add(n);
    let sink = End::Socket(to);
    let mut waits = None;
    while middle.n_inside() > 0 {
        sink.check(Direction::Write)?;
        let left = middle.n_inside();
        match round(retry(|| file::splice(middle.reader(), to.as_fd(), left)))? {
            Round::Moved(n @ 1..) => {
                middle.remove(n);
                *n_copied += n as u64;
                waits = None;
            }
            Round::Empty => sink.wait(Direction::Write, &mut waits)?,
            Round::Moved(0) | Round::Short => write_out(&mut middle, sink, n_copied)?,
            Round::Refused => {
                write_out(&mut middle, sink, n_copied)?;
                return Ok(Round::Refused);
            }
        }
    }
    Ok(Round::Moved(n))
}

/// Moves bytes through a buffer, between ends of any kind.
fn round_by_buffer(
    from: End<'_>,
    to: End<'_>,
    buf: &mut Vec<u8>,
    n_copied: &mut u64,
) -> io::Result<Round> {
    from.check(Direction::Read)?;
    buf.resize(BUFFER_BYTES, 0);
    let read = from.read(buf);
    if is_would_block(&read) {
        return Ok(Round::Empty);
    }
    let n = read?;
    to.write_all(&buf[..n], n_copied)?;
    Ok(Round::Moved(n))
}

/// Writes the bytes in the pipe to a socket that cannot be spliced to now.
fn write_out(middle: &mut Middle, to: End<'_>, n_copied: &mut u64) -> io::Result<()> {
    let mut buf = vec![0; middle.n_inside().min(BUFFER_BYTES)];
    while middle.n_inside() > 0 {
        let n = bytes::read(Stream::of_pipe(middle.reader()), &mut buf)?;
        middle.remove(n);
        to.write_all(&buf[..n], n_copied)?;
    }
    Ok(())
}

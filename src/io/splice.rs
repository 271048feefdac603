//! Moving bytes from one descriptor to another inside the kernel, by way of a pipe.
//!
//! `splice(2)` needs a pipe at one end. Between two sockets a pipe lies in the middle:
//! one of a few that are kept, empty, for the next copy. Waiting is done by polls of
//! the ring: with the sockets in non-blocking mode (`Fd::splicing`) no splice waits.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::bytes;
use super::fd::{Direction, Fd, Splicing, is_would_block, retry};
use super::op::Deadline;
use super::ready;
use crate::loom::native::{Mutex, PoisonError};
use crate::sched::park;
use crate::sys::clock::NEVER;
use crate::sys::{file, signal};

/// What a pipe in the middle holds: it bounds the bytes of one round.
const PIPE_BYTES: usize = 256 << 10;

/// After how many bytes without a wait others get their turn: some 100 µs.
const TURN_BYTES: usize = 1 << 20;

/// Empty pipes that are kept.
const MAX_KEPT: usize = 32;

static KEPT: Mutex<Vec<(OwnedFd, OwnedFd)>> = Mutex::new(Vec::new());

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

/// Whether the kernel refuses to splice these descriptors at all.
fn is_refused(e: &io::Error) -> bool {
    matches!(
        e.raw_os_error(),
        Some(libc::EINVAL | libc::ENOSYS | libc::EPERM | libc::EOPNOTSUPP)
    )
}

/// How a copy inside the kernel ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The source has ended.
    End,
    /// The kernel does not splice these descriptors: nothing is lost, the rest is to be
    /// copied otherwise.
    Refused,
}

/// Moves all that comes from `from` to `to`, and counts it in `n_copied`.
pub(crate) fn splice_all(from: End<'_>, to: End<'_>, n_copied: &mut u64) -> io::Result<Outcome> {
    if let End::Socket(_) = to
        && !signal::is_ignored(libc::SIGPIPE)
    {
        // A splice cannot say MSG_NOSIGNAL: if the peer is gone it would be raised.
        return Ok(Outcome::Refused);
    }
    let _modes = (from.non_blocking()?, to.non_blocking()?);
    if let (End::Socket(_), End::Socket(_)) = (from, to) {
        return through_a_pipe(from, to, n_copied);
    }
    // One end is a pipe: no other is needed.
    let mut turn = Turn::default();
    loop {
        match step(from, to, PIPE_BYTES) {
            Ok(0) => return Ok(Outcome::End),
            Ok(n) => {
                *n_copied += n as u64;
                turn.has_moved(n)?;
            }
            Err(e) if is_refused(&e) => return Ok(Outcome::Refused),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                // Whichever end it was: both are waited for.
                from.wait(Direction::Read)?;
                to.wait(Direction::Write)?;
            }
            Err(e) => return Err(e),
        }
    }
}

/// What a copy that never waits has moved since it let others run.
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

fn step(from: End<'_>, to: End<'_>, len: usize) -> io::Result<usize> {
    park::cancel_point()?;
    from.deadline(Direction::Read)?;
    to.deadline(Direction::Write)?;
    retry(|| file::splice(from.fd(), to.fd(), len))
}

fn through_a_pipe(from: End<'_>, to: End<'_>, n_copied: &mut u64) -> io::Result<Outcome> {
    let middle = Middle::take()?;
    let (reader, writer) = (
        End::Pipe(middle.reader.as_fd()),
        End::Pipe(middle.writer.as_fd()),
    );
    let mut turn = Turn::default();
    loop {
        let n = match step(from, writer, PIPE_BYTES) {
            Ok(0) => {
                middle.keep();
                return Ok(Outcome::End);
            }
            Ok(n) => n,
            Err(e) if is_refused(&e) => {
                middle.keep();
                return Ok(Outcome::Refused);
            }
            // The pipe is empty, so it was the source.
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                from.wait(Direction::Read)?;
                continue;
            }
            Err(e) => return Err(e),
        };
        turn.has_moved(n)?;
        let mut left = n;
        while left > 0 {
            match step(reader, to, left) {
                Ok(n) => {
                    left -= n;
                    *n_copied += n as u64;
                }
                Err(e) if is_refused(&e) => {
                    write_out(reader.fd(), to, left, n_copied)?;
                    middle.keep();
                    return Ok(Outcome::Refused);
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => to.wait(Direction::Write)?,
                Err(e) => return Err(e),
            }
        }
    }
}

/// Writes what lies in the pipe to an end that does not splice.
fn write_out(
    reader: BorrowedFd<'_>,
    to: End<'_>,
    mut left: usize,
    n_copied: &mut u64,
) -> io::Result<()> {
    let mut buf = vec![0; left.min(PIPE_BYTES)];
    while left > 0 {
        let n = bytes::read(reader, &mut buf)?;
        let mut at = 0;
        while at < n {
            let r = match to {
                End::Socket(fd) => fd.write(&buf[at..n]),
                End::Pipe(fd) => bytes::write(fd, &buf[at..n]),
            };
            if is_would_block(&r) {
                to.wait(Direction::Write)?;
                continue;
            }
            let written = r?;
            at += written;
            *n_copied += written as u64;
        }
        left -= n;
    }
    Ok(())
}

/// The pipe between two sockets. Dropped with bytes in it, it is closed.
struct Middle {
    reader: OwnedFd,
    writer: OwnedFd,
}

impl Middle {
    fn take() -> io::Result<Middle> {
        let kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner).pop();
        if let Some((reader, writer)) = kept {
            return Ok(Middle { reader, writer });
        }
        let (reader, writer) = io::pipe()?;
        file::set_pipe_bytes(writer.as_fd(), PIPE_BYTES as i32);
        Ok(Middle {
            reader: reader.into(),
            writer: writer.into(),
        })
    }

    /// Gives the pipe, which is empty, to the next copy.
    fn keep(self) {
        let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < MAX_KEPT {
            kept.push((self.reader, self.writer));
        }
    }
}

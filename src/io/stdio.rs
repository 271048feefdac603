//! The standard streams, parking.
#![allow(unsafe_code)]

use std::io::{self, IoSlice, IoSliceMut, IsTerminal, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use super::bytes;

/// The standard input of the process. See [`Stdin`].
#[must_use]
pub fn stdin() -> Stdin {
    Stdin(())
}

/// The standard output of the process. See [`Stdout`].
#[must_use]
pub fn stdout() -> Stdout {
    Stdout(())
}

/// The standard error of the process. See [`Stderr`].
#[must_use]
pub fn stderr() -> Stderr {
    Stderr(())
}

/// The standard input: a pipe, a terminal, or a file at its own position.
///
/// Not buffered, unlike `std`'s, and apart from its buffer: use one of the two. Wrap it
/// in a [`BufReader`](std::io::BufReader) for lines. All handles read the same stream.
///
/// # Blocking
///
/// Reading parks the goroutine until something comes; it blocks a plain thread. The
/// process's end does not wait for a read of a goroutine.
///
/// # Examples
///
/// ```no_run
/// use windlass::io::{self, BufRead};
///
/// for line in io::BufReader::new(io::stdin()).lines() {
///     println!("{}", line?.len());
/// }
/// # Ok::<(), io::Error>(())
/// ```
#[derive(Debug)]
pub struct Stdin(());

/// The standard output: a pipe, a terminal, or a file at its own position.
///
/// Not buffered, unlike `std`'s: each write is an operation. Wrap it in a
/// [`LineWriter`](std::io::LineWriter) or a [`BufWriter`](std::io::BufWriter) for many
/// small ones.
///
/// # Blocking
///
/// Writing parks the goroutine until there is room; it blocks a plain thread.
#[derive(Debug)]
pub struct Stdout(());

/// The standard error: a pipe, a terminal, or a file at its own position. Not buffered,
/// as `std`'s.
///
/// # Blocking
///
/// As [`Stdout`].
#[derive(Debug)]
pub struct Stderr(());

/// What all three have.
macro_rules! standard {
    ($type:ident, $fd:expr) => {
        impl AsFd for $type {
            fn as_fd(&self) -> BorrowedFd<'_> {
                // SAFETY: the standard streams are open as long as the process, as `std` has it.
                unsafe { BorrowedFd::borrow_raw($fd) }
            }
        }

        impl AsRawFd for $type {
            fn as_raw_fd(&self) -> RawFd {
                self.as_fd().as_raw_fd()
            }
        }

        impl $type {
            /// Whether it is a terminal.
            #[must_use]
            pub fn is_terminal(&self) -> bool {
                self.as_fd().is_terminal()
            }
        }
    };
}

standard!(Stdin, 0);
standard!(Stdout, 1);
standard!(Stderr, 2);

/// A stream that was closed before the program began is empty, and swallows what is
/// written to it, as `std` has it.
fn unless_closed<T>(r: io::Result<T>, closed: T) -> io::Result<T> {
    match r {
        Err(e) if e.raw_os_error() == Some(libc::EBADF) => Ok(closed),
        r => r,
    }
}

impl Read for &Stdin {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        unless_closed(bytes::read(self.as_fd(), buf), 0)
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        unless_closed(bytes::read_vectored(self.as_fd(), bufs), 0)
    }
}

impl Read for Stdin {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buf)
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&*self).read_vectored(bufs)
    }
}

/// Writing, for the two outputs.
macro_rules! output {
    ($type:ident) => {
        impl Write for &$type {
            fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
                unless_closed(bytes::write(self.as_fd(), buf), buf.len())
            }

            fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
                let all = bufs.iter().map(|buf| buf.len()).sum();
                unless_closed(bytes::write_vectored(self.as_fd(), bufs), all)
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }

        impl Write for $type {
            fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
                (&*self).write(buf)
            }

            fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
                (&*self).write_vectored(bufs)
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
    };
}

output!(Stdout);
output!(Stderr);

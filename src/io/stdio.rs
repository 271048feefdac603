//! The standard streams, which park the goroutine.
#![allow(unsafe_code)]

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::process::Stdio;

use crate::poll::bytes;

/// Returns the standard input of the process. For an example see [`Stdin`].
///
/// # Blocking
///
/// Never. Reading from it waits.
#[must_use]
pub fn stdin() -> Stdin {
    Stdin(())
}

/// Returns the standard output of the process. For an example see [`Stdout`].
///
/// # Blocking
///
/// Never. Writing to it waits.
#[must_use]
pub fn stdout() -> Stdout {
    Stdout(())
}

/// Returns the standard error of the process. For an example see [`Stderr`].
///
/// # Blocking
///
/// Never. Writing to it waits.
#[must_use]
pub fn stderr() -> Stderr {
    Stderr(())
}

/// The standard input: a pipe, a terminal, or a file read at its own position.
///
/// It is not buffered, unlike `std`'s, and does not see the bytes in the buffer of `std`'s: use
/// only one of the two. To read lines, wrap it in a [`BufReader`](std::io::BufReader). All handles
/// read the same stream. If the stream was closed before the program began, it is empty.
///
/// # Blocking
///
/// Reading parks the goroutine until bytes arrive; it blocks a plain thread. The process exits
/// without waiting for a goroutine that reads.
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

/// The standard output: a pipe, a terminal, or a file written at its own position.
///
/// It is not buffered, unlike `std`'s: each write is one operation. For many small writes, wrap it
/// in a [`LineWriter`](std::io::LineWriter) or a [`BufWriter`](std::io::BufWriter). If the stream
/// was closed before the program began, writes succeed and the bytes are discarded.
///
/// # Blocking
///
/// Writing parks the goroutine while a pipe or a terminal has no room; it blocks a plain thread.
///
/// # Examples
///
/// ```no_run
/// use windlass::io::{self, Write};
///
/// let mut out = io::BufWriter::new(io::stdout());
/// for i in 0..1000 {
///     writeln!(out, "{i}")?;
/// }
/// out.flush()?;
/// # Ok::<(), io::Error>(())
/// ```
#[derive(Debug)]
pub struct Stdout(());

/// The standard error: a pipe, a terminal, or a file written at its own position. It is not
/// buffered, as `std`'s. If the stream was closed before the program began, writes succeed and the
/// bytes are discarded.
///
/// # Blocking
///
/// As [`Stdout`].
///
/// # Examples
///
/// ```no_run
/// use windlass::io::{self, Write};
///
/// writeln!(io::stderr(), "cannot open the log")?;
/// # Ok::<(), io::Error>(())
/// ```
#[derive(Debug)]
pub struct Stderr(());

/// Whether a descriptor is a terminal: `std::io::IsTerminal`, which only `std`'s types can have. All
/// types with a descriptor have this one.
///
/// # Examples
///
/// ```
/// use windlass::fs::File;
/// use windlass::io::IsTerminal;
///
/// assert!(!File::open("/dev/null")?.is_terminal());
/// # Ok::<(), std::io::Error>(())
/// ```
pub trait IsTerminal {
    /// Returns whether it is a terminal.
    ///
    /// # Blocking
    ///
    /// Never.
    fn is_terminal(&self) -> bool;
}

impl<T: AsFd + ?Sized> IsTerminal for T {
    fn is_terminal(&self) -> bool {
        std::io::IsTerminal::is_terminal(&self.as_fd())
    }
}

/// Methods and traits of all three.
macro_rules! standard {
    ($type:ident, $fd:expr) => {
        impl AsFd for $type {
            fn as_fd(&self) -> BorrowedFd<'_> {
                // SAFETY: as in `std`, the standard streams are taken to be open for the whole
                // life of the process.
                unsafe { BorrowedFd::borrow_raw($fd) }
            }
        }

        impl AsRawFd for $type {
            fn as_raw_fd(&self) -> RawFd {
                self.as_fd().as_raw_fd()
            }
        }

        impl $type {
            /// Returns whether the stream is a terminal, as [`IsTerminal`].
            ///
            /// # Examples
            ///
            /// ```
            /// let has_colors = windlass::io::stdout().is_terminal();
            /// # let _ = has_colors;
            /// ```
            #[must_use]
            pub fn is_terminal(&self) -> bool {
                std::io::IsTerminal::is_terminal(&self.as_fd())
            }
        }
    };
}

standard!(Stdin, 0);
standard!(Stdout, 1);
standard!(Stderr, 2);

/// Returns `closed` if the stream was closed before the program began (`EBADF`). As in `std`, such
/// a stream is empty, and writes to it succeed.
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

/// `Write` for the two outputs.
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

impl From<Stdout> for Stdio {
    /// Gives a child this process' standard output.
    fn from(_: Stdout) -> Stdio {
        std::io::stdout().into()
    }
}

impl From<Stderr> for Stdio {
    /// Gives a child this process' standard error.
    fn from(_: Stderr) -> Stdio {
        std::io::stderr().into()
    }
}

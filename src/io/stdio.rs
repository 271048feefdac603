//! The standard streams, which park the goroutine.
#![allow(unsafe_code)]

use std::fmt;
use std::io::{self, BufRead, BufReader, IoSlice, IoSliceMut, Read, Write};
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::process::Stdio;

use super::reentrant::Reentrant;
use crate::bubble;
use crate::loom::native::{LazyLock, PoisonError};
use crate::poll::bytes::{self, Stream};
use crate::sched::wait::points;
use crate::sync::waitlist::WaitError;
use crate::sync::{Mutex, MutexGuard};
use crate::task::blocking;

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
/// All handles share one buffer, as in `std`. It is not the buffer of `std`'s handles: use only one
/// of the two. If the stream was closed before the program began, it is empty.
///
/// # Blocking
///
/// Reading parks the goroutine until bytes arrive; it blocks a plain thread. While another reads, or
/// holds the [lock](Stdin::lock), it waits for that. The process exits without waiting for a
/// goroutine that reads.
///
/// # Examples
///
/// ```no_run
/// use windlass::io;
///
/// for line in io::stdin().lines() {
///     println!("{}", line?.len());
/// }
/// # Ok::<(), io::Error>(())
/// ```
#[derive(Debug)]
pub struct Stdin(());

/// The standard output: a pipe, a terminal, or a file written at its own position.
///
/// It is not buffered, unlike `std`'s: each write is one operation, and formatted text (`write!`)
/// is one write. For many small writes, wrap it in a [`BufWriter`](std::io::BufWriter). What
/// `print!` has written before, and holds in the buffer of `std`, comes first. If the stream was
/// closed before the program began, writes succeed and the bytes are discarded.
///
/// # Blocking
///
/// Writing parks the goroutine while a pipe or a terminal has no room; it blocks a plain thread. A
/// terminal that takes a part of the text only, as after Ctrl-S, blocks the goroutine's thread for the rest,
/// in a [`blocking`](crate::blocking) section.
/// While another holds the [lock](Stdout::lock), it waits for that.
///
/// # Examples
///
/// ```no_run
/// use windlass::io::{self, Write};
///
/// let mut out = io::BufWriter::new(io::stdout().lock());
/// for i in 0..1000 {
///     writeln!(out, "{i}")?;
/// }
/// out.flush()?;
/// # Ok::<(), io::Error>(())
/// ```
#[derive(Debug)]
pub struct Stdout(());

/// The standard error: a pipe, a terminal, or a file written at its own position. It is not
/// buffered, as `std`'s; formatted text (`write!`) is one write. If the stream was closed before the
/// program began, writes succeed and the bytes are discarded.
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

/// The locked standard input, made by [`Stdin::lock`]. Nobody else reads before it is dropped.
#[derive(Debug)]
pub struct StdinLock<'a>(MutexGuard<'a, BufReader<RawInput>>);

/// The locked standard output, made by [`Stdout::lock`]. No other goroutine or thread writes to it
/// before it is dropped.
#[derive(Debug)]
pub struct StdoutLock<'a> {
    _held: Held<'a>,
}

/// The locked standard error, made by [`Stderr::lock`]. No other goroutine or thread writes to it
/// before it is dropped.
#[derive(Debug)]
pub struct StderrLock<'a> {
    _held: Held<'a>,
}

static INPUT: LazyLock<Mutex<BufReader<RawInput>>> =
    LazyLock::new(|| Mutex::new(BufReader::new(RawInput)));
static OUTPUT: LazyLock<Reentrant> = LazyLock::new(Reentrant::new);
static ERRORS: LazyLock<Reentrant> = LazyLock::new(Reentrant::new);

/// A lock of an output that its holder has taken. It stays with the holder.
#[derive(Debug)]
struct Held<'a> {
    lock: &'a Reentrant,
    not_send: PhantomData<*const ()>,
}

// SAFETY: what can be done through a shared reference, nothing, concerns no thread.
unsafe impl Sync for Held<'_> {}

impl Held<'_> {
    fn new(lock: &Reentrant) -> Held<'_> {
        Held {
            lock,
            not_send: PhantomData,
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.lock.unlock();
    }
}

/// The error of a call whose wait for a lock was cut short.
fn failed(why: WaitError) -> io::Error {
    match why {
        WaitError::TimedOut => io::ErrorKind::TimedOut.into(),
        WaitError::Over(e) => e.into(),
        WaitError::CutShort => match points::cancel_point() {
            Err(cancelled) => cancelled.into(),
            Ok(()) => io::ErrorKind::Interrupted.into(),
        },
    }
}

impl Stdin {
    /// Locks the stream, so that several reads are one.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine until no other reads; blocks a plain thread. Locking it twice waits for
    /// ever, as in `std`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use windlass::io::{self, BufRead};
    ///
    /// let mut name = String::new();
    /// io::stdin().lock().read_line(&mut name)?;
    /// # Ok::<(), io::Error>(())
    /// ```
    #[must_use]
    pub fn lock(&self) -> StdinLock<'static> {
        StdinLock(INPUT.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads a line with its end, and appends it. Returns the number of bytes; 0 at the end of the
    /// stream.
    ///
    /// # Blocking
    ///
    /// As every read of [`Stdin`].
    ///
    /// # Errors
    ///
    /// The errors of `read(2)`; `InvalidData` if the line is not UTF-8.
    pub fn read_line(&self, buf: &mut String) -> io::Result<usize> {
        self.for_read()?.read_line(buf)
    }

    /// Returns an iterator over the lines. It holds the lock.
    ///
    /// # Blocking
    ///
    /// As [`lock`](Stdin::lock), and reading as every read of [`Stdin`].
    #[must_use]
    pub fn lines(self) -> io::Lines<StdinLock<'static>> {
        self.lock().lines()
    }

    /// Locks it for one read, which the ambient context ends.
    fn for_read(&self) -> io::Result<StdinLock<'static>> {
        if let Ok(guard) = INPUT.try_lock() {
            return Ok(StdinLock(guard));
        }
        let locked = INPUT.lock_in_context().map_err(failed)?;
        Ok(StdinLock(locked.unwrap_or_else(PoisonError::into_inner)))
    }
}

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
    ($type:ident, $lock:ident, $fd:expr) => {
        standard!($type, $fd);
        standard!($lock<'_>, $fd);
    };
    ($type:ty, $fd:expr) => {
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

standard!(Stdin, StdinLock, 0);
standard!(Stdout, StdoutLock, 1);
standard!(Stderr, StderrLock, 2);

/// Returns `closed` if the stream was closed before the program began (`EBADF`). As in `std`, such
/// a stream is empty, and writes to it succeed.
fn unless_closed<T>(r: io::Result<T>, closed: T) -> io::Result<T> {
    match r {
        Err(e) if e.raw_os_error() == Some(libc::EBADF) => Ok(closed),
        r => r,
    }
}

/// The standard input without its buffer. Its descriptor may be another one's at any time (`dup2`), so its
/// kind is not remembered. It is the same with the other streams.
#[derive(Debug)]
struct RawInput;

impl Read for RawInput {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        refuse_in_simulation();
        unless_closed(bytes::read(Stream::of(Stdin(()).as_fd()), buf), 0)
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        refuse_in_simulation();
        unless_closed(bytes::read_vectored(Stream::of(Stdin(()).as_fd()), bufs), 0)
    }
}

/// Reads by another reader of the same stream.
macro_rules! read_by {
    ($type:ty, $self:ident, $reader:expr) => {
        impl Read for $type {
            fn read(&mut $self, buf: &mut [u8]) -> io::Result<usize> {
                $reader.read(buf)
            }

            fn read_vectored(&mut $self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
                $reader.read_vectored(bufs)
            }

            fn read_to_end(&mut $self, buf: &mut Vec<u8>) -> io::Result<usize> {
                $reader.read_to_end(buf)
            }

            fn read_to_string(&mut $self, buf: &mut String) -> io::Result<usize> {
                $reader.read_to_string(buf)
            }

            fn read_exact(&mut $self, buf: &mut [u8]) -> io::Result<()> {
                $reader.read_exact(buf)
            }
        }
    };
}

read_by!(StdinLock<'_>, self, self.0);
read_by!(&Stdin, self, self.for_read()?);
read_by!(Stdin, self, self.for_read()?);

impl BufRead for StdinLock<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.0.fill_buf()
    }

    fn consume(&mut self, n: usize) {
        self.0.consume(n);
    }
}

/// The streams are the process's, and so are their locks: several simulations would meet there.
#[track_caller]
fn refuse_in_simulation() {
    bubble::refuse(
        "a standard stream of windlass::io",
        "in a simulation, print with println!, or hand the code under test something that implements \
         Read or Write",
    );
}

/// Writes what `print!` has left in the buffer of `std`, so that the order is kept.
fn flush_std() {
    refuse_in_simulation();
    // If the pipe refuses these bytes, our own write fails with that error, too.
    let _ = blocking(|| std::io::stdout().flush());
}

/// `Write` by another writer to the same stream.
macro_rules! write_by {
    ($type:ty, $self:ident, $writer:expr) => {
        impl Write for $type {
            fn write(&mut $self, buf: &[u8]) -> io::Result<usize> {
                $writer.write(buf)
            }

            fn write_vectored(&mut $self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
                $writer.write_vectored(bufs)
            }

            fn write_all(&mut $self, buf: &[u8]) -> io::Result<()> {
                $writer.write_all(buf)
            }

            fn write_fmt(&mut $self, args: fmt::Arguments<'_>) -> io::Result<()> {
                // Before the lock: an argument may write to the same stream.
                let mut text = Vec::new();
                text.write_fmt(args)?;
                $writer.write_all(&text)
            }

            fn flush(&mut $self) -> io::Result<()> {
                $writer.flush()
            }
        }
    };
}

/// Locks of the two outputs, and `Write` for both.
macro_rules! output {
    ($type:ident, $lock:ident, $held:expr, $before:ident) => {
        impl $type {
            /// Locks the stream, so that several writes are one. Whoever holds the lock may lock it
            /// again, and may write through other handles.
            ///
            /// # Blocking
            ///
            /// Parks the goroutine until no other holds the lock; blocks a plain thread.
            ///
            /// # Examples
            ///
            /// ```
            /// use windlass::io::{self, Write};
            ///
            /// let mut out = io::stdout().lock();
            /// out.write_all(b"first")?;
            /// out.write_all(b" and second\n")?;
            /// # Ok::<(), io::Error>(())
            /// ```
            #[must_use]
            pub fn lock(&self) -> $lock<'static> {
                $held.lock();
                let _held = Held::new(&$held);
                $lock { _held }
            }

            /// Locks it for one write, which the ambient context ends.
            fn for_write(&self) -> io::Result<$lock<'static>> {
                $held.lock_in_context().map_err(failed)?;
                let _held = Held::new(&$held);
                Ok($lock { _held })
            }
        }

        impl Write for $lock<'_> {
            fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
                $before();
                unless_closed(bytes::write(Stream::of(self.as_fd()), buf), buf.len())
            }

            fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
                $before();
                let all = bufs.iter().map(|buf| buf.len()).sum();
                unless_closed(bytes::write_vectored(Stream::of(self.as_fd()), bufs), all)
            }

            fn write_fmt(&mut self, args: fmt::Arguments<'_>) -> io::Result<()> {
                let mut text = Vec::new();
                text.write_fmt(args)?;
                self.write_all(&text)
            }

            fn flush(&mut self) -> io::Result<()> {
                $before();
                Ok(())
            }
        }

        write_by!(&$type, self, self.for_write()?);
        write_by!($type, self, self.for_write()?);
    };
}

output!(Stdout, StdoutLock, *OUTPUT, flush_std);
// `std` has no buffer for the standard error.
output!(Stderr, StderrLock, *ERRORS, refuse_in_simulation);

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

//! `Async`: makes a foreign descriptor park the goroutine.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, PipeReader, PipeWriter, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::process::ChildStdin;

use crate::poll::fd::Direction;
use crate::poll::limit::Deadline;
use crate::poll::ready::{wait_readable, wait_writable};
use crate::poll::waits::Waits;
use crate::sys::clock::NEVER;
use crate::sys::errno::is_would_block;
use crate::sys::file;

/// Makes a foreign type with a descriptor park the goroutine instead of blocking its thread.
///
/// It works with any descriptor that `poll(2)` supports: a TUN device, an inotify or netlink
/// socket, a timerfd, the socket of a database client library.
///
/// The descriptor is put into non-blocking mode. [`Async::read_with`] and [`Async::write_with`]
/// make a call on the value, and wait and repeat it while it fails with `WouldBlock`. `Async`
/// implements `Read` and `Write` if the value does. References to it do for streams, files and pipe
/// ends of `std`. For another type that is read by reference, wrap a reference: `Async::new(&value)`.
///
/// # Examples
///
/// ```
/// use std::io::Read;
/// use std::os::unix::net::UnixDatagram;
/// use windlass::io::Async;
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(1).build()? };
/// rt.run(|| {
///     let (a, b) = UnixDatagram::pair()?;
///     let a = Async::new(a)?;
///     windlass::spawn(move || b.send(b"hello"));
///     let mut buf = [0; 16];
///     let n = a.read_with(|a| a.recv(&mut buf))?;
///     assert_eq!(&buf[..n], b"hello");
///     Ok::<(), std::io::Error>(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Async<T> {
    inner: T,
}

impl<T: AsFd> Async<T> {
    /// Wraps a value, and puts its descriptor into non-blocking mode.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Errors
    ///
    /// The errors of `fcntl(2)`.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::io::{PipeReader, Read, Write};
    /// use windlass::io::Async;
    ///
    /// let (reader, mut writer) = std::io::pipe()?;
    /// let mut reader: Async<PipeReader> = Async::new(reader)?;
    /// writer.write_all(b"!")?;
    /// reader.read_exact(&mut [0])?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn new(inner: T) -> io::Result<Async<T>> {
        file::set_nonblocking(inner.as_fd(), true)?;
        Ok(Async { inner })
    }

    /// Returns a reference to the wrapped value.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::os::unix::net::UnixStream;
    /// use windlass::io::Async;
    ///
    /// let (a, _b) = UnixStream::pair()?;
    /// let mut a = Async::new(a)?;
    /// assert!(a.get_ref().peer_addr()?.is_unnamed());
    /// assert!(a.get_mut().take_error()?.is_none());
    /// let a: UnixStream = a.into_inner();
    /// a.set_nonblocking(false)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn get_ref(&self) -> &T {
        &self.inner
    }

    /// Returns a mutable reference to the wrapped value. Its descriptor must stay in non-blocking
    /// mode. For an example see [`Async::get_ref`].
    #[must_use]
    pub fn get_mut(&mut self) -> &mut T {
        &mut self.inner
    }

    /// Returns the wrapped value. Its descriptor is still in non-blocking mode. For an example see
    /// [`Async::get_ref`].
    #[must_use]
    pub fn into_inner(self) -> T {
        self.inner
    }

    /// Waits until the descriptor is readable.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine; blocks a plain thread.
    ///
    /// # Errors
    ///
    /// The errors of `poll(2)`.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::io::{PipeReader, Write};
    /// use windlass::io::Async;
    ///
    /// let (reader, mut writer) = std::io::pipe()?;
    /// let reader: Async<PipeReader> = Async::new(reader)?;
    /// writer.write_all(b"!")?;
    /// reader.readable()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn readable(&self) -> io::Result<()> {
        wait_readable(self)
    }

    /// Waits until the descriptor is writable.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine; blocks a plain thread.
    ///
    /// # Errors
    ///
    /// The errors of `poll(2)`.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::io::Async;
    ///
    /// let (_reader, writer) = std::io::pipe()?;
    /// Async::new(writer)?.writable()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn writable(&self) -> io::Result<()> {
        wait_writable(self)
    }

    /// Calls `f` until it returns anything other than `WouldBlock`. Between two calls it waits
    /// until the descriptor is readable.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine; blocks a plain thread. `f` itself must not block.
    ///
    /// # Errors
    ///
    /// The errors of `f`, and of [`Async::readable`].
    ///
    /// # Examples
    ///
    /// ```
    /// use std::os::unix::net::UnixDatagram;
    /// use windlass::io::Async;
    ///
    /// let (a, b) = UnixDatagram::pair()?;
    /// let b = Async::new(b)?;
    /// a.send(b"hello")?;
    /// let mut buf = [0; 16];
    /// assert_eq!(b.read_with(|b| b.recv(&mut buf))?, 5);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn read_with<R>(&self, mut f: impl FnMut(&T) -> io::Result<R>) -> io::Result<R> {
        repeat(&mut &self.inner, Direction::Read, |inner| f(inner))
    }

    /// Calls `f` until it returns anything other than `WouldBlock`. Between two calls it waits
    /// until the descriptor is writable.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine; blocks a plain thread. `f` itself must not block.
    ///
    /// # Errors
    ///
    /// The errors of `f`, and of [`Async::writable`].
    ///
    /// # Examples
    ///
    /// ```
    /// use std::os::unix::net::UnixDatagram;
    /// use windlass::io::Async;
    ///
    /// let (a, _b) = UnixDatagram::pair()?;
    /// let a = Async::new(a)?;
    /// assert_eq!(a.write_with(|a| a.send(b"hello"))?, 5);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn write_with<R>(&self, mut f: impl FnMut(&T) -> io::Result<R>) -> io::Result<R> {
        repeat(&mut &self.inner, Direction::Write, |inner| f(inner))
    }
}

/// Calls `f` until it returns anything other than `WouldBlock`. Between two calls it waits until the
/// descriptor is ready.
fn repeat<T: AsFd, R>(
    inner: &mut T,
    direction: Direction,
    mut f: impl FnMut(&mut T) -> io::Result<R>,
) -> io::Result<R> {
    let mut waits = Waits::new(direction.poll_events(), Deadline::at(NEVER));
    loop {
        let r = f(inner);
        if !is_would_block(&r) {
            return r;
        }
        waits.wait(inner.as_fd())?;
    }
}

impl<T: AsFd> AsFd for Async<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.as_fd()
    }
}

impl<T: AsFd> AsRawFd for Async<T> {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl<T: AsFd + Read> Read for Async<T> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        repeat(&mut self.inner, Direction::Read, |inner| inner.read(buf))
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        repeat(&mut self.inner, Direction::Read, |inner| {
            inner.read_vectored(bufs)
        })
    }
}

impl<T: AsFd + Write> Write for Async<T> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        repeat(&mut self.inner, Direction::Write, |inner| inner.write(buf))
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        repeat(&mut self.inner, Direction::Write, |inner| {
            inner.write_vectored(bufs)
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        repeat(&mut self.inner, Direction::Write, T::flush)
    }
}

// One for each type, because a clause `where for<'a> &'a T: Read` refers to this trait again: the
// compiler would follow it without end wherever it looks for a reference that reads, also in crates
// that do not name `Async`.
macro_rules! by_reference {
    (Read: $($reads:ty),*; Write: $($writes:ty),*;) => {
        $(
            impl Read for &Async<$reads> {
                fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
                    self.read_with(|mut inner| inner.read(buf))
                }

                fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
                    self.read_with(|mut inner| inner.read_vectored(bufs))
                }
            }
        )*
        $(
            impl Write for &Async<$writes> {
                fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
                    self.write_with(|mut inner| inner.write(buf))
                }

                fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
                    self.write_with(|mut inner| inner.write_vectored(bufs))
                }

                fn flush(&mut self) -> io::Result<()> {
                    self.write_with(|mut inner| inner.flush())
                }
            }
        )*
    };
}

by_reference! {
    Read: File, TcpStream, UnixStream, PipeReader;
    Write: File, TcpStream, UnixStream, PipeWriter, ChildStdin;
}

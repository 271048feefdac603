//! `Async`: a foreign descriptor in non-blocking mode, made to park.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use super::fd::is_would_block;
use super::ready::{wait_readable, wait_writable};
use crate::sys::file;

/// Makes something that is not windlass's own, and that has a descriptor which `poll(2)`
/// knows, park the goroutine instead of blocking its thread: a TUN device, an inotify
/// or netlink socket, a timerfd, the socket of a database's client library.
///
/// The descriptor is put into non-blocking mode. Calls are made through
/// [`Async::read_with`] and [`Async::write_with`], which wait and repeat them while they
/// give `WouldBlock`; `Read` and `Write` come through if the value has them.
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
    /// Puts the descriptor of `inner` into non-blocking mode.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn new(inner: T) -> io::Result<Async<T>> {
        file::set_nonblocking(inner.as_fd(), true)?;
        Ok(Async { inner })
    }

    /// What it was made from.
    #[must_use]
    pub fn get_ref(&self) -> &T {
        &self.inner
    }

    /// What it was made from. Its descriptor has to stay in non-blocking mode.
    #[must_use]
    pub fn get_mut(&mut self) -> &mut T {
        &mut self.inner
    }

    /// Gives back what it was made from, in non-blocking mode still.
    #[must_use]
    pub fn into_inner(self) -> T {
        self.inner
    }

    /// Waits until there is something to read.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine; blocks a plain thread.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn readable(&self) -> io::Result<()> {
        wait_readable(self)
    }

    /// Waits until there is room to write.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine; blocks a plain thread.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn writable(&self) -> io::Result<()> {
        wait_writable(self)
    }

    /// Calls `f` until it gives something else than `WouldBlock`, and waits for something
    /// to read in between.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine; blocks a plain thread.
    ///
    /// # Errors
    ///
    /// Those of `f`, and of the waiting.
    pub fn read_with<R>(&self, mut f: impl FnMut(&T) -> io::Result<R>) -> io::Result<R> {
        repeat(|| f(&self.inner), || self.readable())
    }

    /// Calls `f` until it gives something else than `WouldBlock`, and waits for room to
    /// write in between.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine; blocks a plain thread.
    ///
    /// # Errors
    ///
    /// Those of `f`, and of the waiting.
    pub fn write_with<R>(&self, mut f: impl FnMut(&T) -> io::Result<R>) -> io::Result<R> {
        repeat(|| f(&self.inner), || self.writable())
    }
}

fn repeat<R>(
    mut f: impl FnMut() -> io::Result<R>,
    mut wait: impl FnMut() -> io::Result<()>,
) -> io::Result<R> {
    loop {
        let r = f();
        if !is_would_block(&r) {
            return r;
        }
        wait()?;
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
        loop {
            let r = self.inner.read(buf);
            if !is_would_block(&r) {
                return r;
            }
            self.readable()?;
        }
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        loop {
            let r = self.inner.read_vectored(bufs);
            if !is_would_block(&r) {
                return r;
            }
            self.readable()?;
        }
    }
}

impl<T: AsFd> Read for &Async<T>
where
    for<'a> &'a T: Read,
{
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.read_with(|mut inner| inner.read(buf))
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.read_with(|mut inner| inner.read_vectored(bufs))
    }
}

impl<T: AsFd + Write> Write for Async<T> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        loop {
            let r = self.inner.write(buf);
            if !is_would_block(&r) {
                return r;
            }
            self.writable()?;
        }
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        loop {
            let r = self.inner.write_vectored(bufs);
            if !is_would_block(&r) {
                return r;
            }
            self.writable()?;
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        loop {
            let r = self.inner.flush();
            if !is_would_block(&r) {
                return r;
            }
            self.writable()?;
        }
    }
}

impl<T: AsFd> Write for &Async<T>
where
    for<'a> &'a T: Write,
{
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

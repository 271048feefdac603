//! Macros for methods and impls that several socket types share.

/// Conversions from and to descriptors and `std`'s type. The type is a tuple of one `Fd`.
macro_rules! descriptors {
    ($type:ident, $std:ty) => {
        windlass_ground::std_traits::fd_traits!($type, |this| this.0);
        windlass_ground::std_traits::from_raw_fd!($type);

        impl From<std::os::fd::OwnedFd> for $type {
            /// Takes over a socket with its mode (`O_NONBLOCK`) and its timeouts.
            fn from(fd: std::os::fd::OwnedFd) -> $type {
                $type(crate::poll::fd::Fd::adopt(fd))
            }
        }

        impl From<$type> for std::os::fd::OwnedFd {
            /// Returns the socket with its mode and its timeouts. Deadlines are lost.
            fn from(socket: $type) -> std::os::fd::OwnedFd {
                socket.0.into()
            }
        }

        impl From<$std> for $type {
            /// Takes over the socket with its mode (`set_nonblocking`) and its timeouts.
            fn from(socket: $std) -> $type {
                $type::from(std::os::fd::OwnedFd::from(socket))
            }
        }

        impl From<$type> for $std {
            /// Returns the socket with its mode and its timeouts. Deadlines are lost: `std` has
            /// none.
            ///
            /// On a goroutine, calls of the type of `std` that wait block the thread, and hold the P
            /// for up to 10 ms; convert it back, or make them in [`blocking`](crate::blocking).
            fn from(socket: $type) -> $std {
                <$std>::from(std::os::fd::OwnedFd::from(socket))
            }
        }
    };
}

/// Settings of every socket type.
macro_rules! settings {
    ($type:ident) => {
        impl $type {
            /// Returns another handle to the same socket. All handles share timeouts and deadlines.
            ///
            /// The socket stays open as long as one handle exists. So a call that waits through one
            /// handle is not woken when another handle is dropped.
            ///
            /// # Errors
            ///
            /// The errors of `fcntl(2)`, if no descriptor is free.
            ///
            /// # Examples
            ///
            /// With a Unix stream; every socket type does the same:
            ///
            /// ```
            /// use std::io::{Read, Write};
            /// use windlass::net::UnixStream;
            ///
            /// let (a, mut b) = UnixStream::pair()?;
            /// let mut other = a.try_clone()?;
            /// drop(a);
            /// other.write_all(b"!")?;
            /// b.read_exact(&mut [0])?;
            /// # Ok::<(), std::io::Error>(())
            /// ```
            pub fn try_clone(&self) -> std::io::Result<$type> {
                self.0.try_clone().map($type)
            }

            /// Returns the pending error of the socket, and clears it (`SO_ERROR`).
            ///
            /// # Errors
            ///
            /// The errors of `getsockopt(2)`.
            ///
            /// # Examples
            ///
            /// With a Unix stream; every socket type does the same:
            ///
            /// ```
            /// use windlass::net::UnixStream;
            ///
            /// let (a, _b) = UnixStream::pair()?;
            /// assert!(a.take_error()?.is_none());
            /// # Ok::<(), std::io::Error>(())
            /// ```
            pub fn take_error(&self) -> std::io::Result<Option<std::io::Error>> {
                self.0.take_error()
            }

            /// Sets whether calls fail with `WouldBlock` instead of waiting, on all handles to the
            /// socket.
            ///
            /// # Errors
            ///
            /// The errors of `fcntl(2)`.
            ///
            /// # Examples
            ///
            /// With a Unix stream; every socket type does the same:
            ///
            /// ```
            /// use std::io::{self, Read};
            /// use windlass::net::UnixStream;
            ///
            /// let (mut a, _b) = UnixStream::pair()?;
            /// a.set_nonblocking(true)?;
            /// let error = a.read(&mut [0; 16]).unwrap_err();
            /// assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
            /// # Ok::<(), io::Error>(())
            /// ```
            pub fn set_nonblocking(&self, nonblocking: bool) -> std::io::Result<()> {
                self.0.set_nonblocking(nonblocking)
            }
        }
    };
}

/// Timeouts and deadlines of socket types that read and write.
macro_rules! timeouts {
    ($type:ident) => {
        impl $type {
            /// Sets the longest time that a later read or receive may wait. `None` removes the
            /// limit.
            ///
            /// After that time the call fails with `WouldBlock`, as in `std` on Linux. No received
            /// byte is lost.
            ///
            /// # Errors
            ///
            /// `InvalidInput` if the timeout is zero.
            ///
            /// # Examples
            ///
            /// With a Unix stream; every socket type does the same:
            ///
            /// ```
            /// use std::io::{self, Read};
            /// use std::time::Duration;
            /// use windlass::net::UnixStream;
            ///
            /// let (mut a, _b) = UnixStream::pair()?;
            /// a.set_read_timeout(Some(Duration::from_millis(1)))?;
            /// assert_eq!(a.read_timeout()?, Some(Duration::from_millis(1)));
            /// let error = a.read(&mut [0; 16]).unwrap_err();
            /// assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
            /// # Ok::<(), io::Error>(())
            /// ```
            pub fn set_read_timeout(
                &self,
                timeout: Option<std::time::Duration>,
            ) -> std::io::Result<()> {
                self.0
                    .set_timeout(crate::poll::fd::Direction::Read, timeout)
            }

            /// Sets the longest time that a later write or send may wait, as
            #[doc = concat!("[`", stringify!($type), "::set_read_timeout`] does reads.")]
            ///
            /// # Errors
            ///
            /// `InvalidInput` for a zero duration.
            pub fn set_write_timeout(
                &self,
                timeout: Option<std::time::Duration>,
            ) -> std::io::Result<()> {
                self.0
                    .set_timeout(crate::poll::fd::Direction::Write, timeout)
            }

            /// Returns the read timeout.
            ///
            /// # Errors
            ///
            /// Never fails; the signature is `std`'s.
            pub fn read_timeout(&self) -> std::io::Result<Option<std::time::Duration>> {
                Ok(self.0.get_timeout(crate::poll::fd::Direction::Read))
            }

            /// Returns the write timeout.
            ///
            /// # Errors
            ///
            /// Never fails; the signature is `std`'s.
            pub fn write_timeout(&self) -> std::io::Result<Option<std::time::Duration>> {
                Ok(self.0.get_timeout(crate::poll::fd::Direction::Write))
            }

            /// Sets the time at which reads and receives begin to fail with `WouldBlock`. `None`
            /// removes the deadline.
            ///
            /// A deadline limits many reads together, where a timeout limits each one. After the
            /// deadline a read fails at once, also if bytes are there. The call also applies to
            /// reads that wait now: a deadline in the past ends them. (A plain thread that waits
            /// uses the deadline that it began with.) If both are set, the earlier of timeout and
            /// deadline ends the wait.
            ///
            /// # Examples
            ///
            /// With a Unix stream; every socket type does the same:
            ///
            /// ```
            /// use std::io::{self, Read};
            /// use windlass::time::Instant;
            /// use windlass::net::UnixStream;
            /// # // SAFETY: nothing here keeps a thread-local across a call that parks.
            /// # let rt = unsafe { windlass::Builder::new().processors(1).build()? };
            /// rt.run(|| {
            ///     let (a, _b) = UnixStream::pair()?;
            ///     let mut reader = a.try_clone()?;
            ///     let task = windlass::spawn(move || reader.read(&mut [0; 16]));
            ///     windlass::yield_now(); // the reader waits
            ///     a.set_read_deadline(Some(Instant::now())); // and is woken
            ///     let error = task.join().unwrap().unwrap_err();
            ///     assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
            ///     Ok::<(), io::Error>(())
            /// })?;
            /// # Ok::<(), io::Error>(())
            /// ```
            pub fn set_read_deadline(&self, deadline: Option<crate::time::Instant>) {
                self.0
                    .set_deadline(crate::poll::fd::Direction::Read, deadline.map(Into::into));
            }

            /// Sets the time at which writes and sends begin to fail with `WouldBlock`, as
            #[doc = concat!("[`", stringify!($type), "::set_read_deadline`] for reads.")]
            pub fn set_write_deadline(&self, deadline: Option<crate::time::Instant>) {
                self.0
                    .set_deadline(crate::poll::fd::Direction::Write, deadline.map(Into::into));
            }
        }
    };
}

/// `Read` and `Write`, by value and by reference, and receiving into the runtime's buffers. The
/// functions that do it stand at the type, where a reader looks for them.
macro_rules! stream {
    ($type:ident, fn read = $read:expr, fn write = $write:expr, fn recv_owned = $recv_owned:expr) => {
        impl std::io::Read for &$type {
            fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
                $read(&self.0, buf)
            }

            fn read_vectored(
                &mut self,
                bufs: &mut [std::io::IoSliceMut<'_>],
            ) -> std::io::Result<usize> {
                self.0.read_vectored(bufs)
            }
        }

        impl std::io::Write for &$type {
            fn write(&mut self, buf: &[u8]) -> std::io::Result<usize> {
                $write(&self.0, buf)
            }

            fn write_vectored(&mut self, bufs: &[std::io::IoSlice<'_>]) -> std::io::Result<usize> {
                self.0.write_vectored(bufs)
            }

            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }

        windlass_ground::std_traits::read_by_reference!($type);
        windlass_ground::std_traits::write_by_reference!($type);

        impl $type {
            /// Receives up to 16 KiB into a buffer that the runtime provides. An empty buffer means
            /// the end of the stream.
            ///
            /// A goroutine that waits here holds no buffer. When data arrives, the kernel takes one
            /// of the P's buffers, in memory of the P's NUMA node. That saves memory if many
            /// connections are idle, and copies if received bytes are passed on.
            ///
            /// # Blocking
            ///
            /// As reading: parks the goroutine until bytes arrive; blocks a plain thread.
            ///
            /// # Errors
            ///
            /// As reading; `WouldBlock` after the read timeout or at the read deadline.
            ///
            /// # Examples
            ///
            /// ```
            /// use std::io::Write;
            /// use windlass::net::UnixStream;
            ///
            /// let (mut here, there) = UnixStream::pair()?;
            /// here.write_all(b"hello")?;
            /// assert_eq!(&there.recv_owned()?[..], b"hello");
            /// # Ok::<(), std::io::Error>(())
            /// ```
            pub fn recv_owned(&self) -> std::io::Result<crate::poll::recv_buf::RecvBuf> {
                $recv_owned(&self.0)
            }

            pub(crate) fn fd(&self) -> &crate::poll::fd::Fd {
                &self.0
            }
        }
    };
}

/// The connections, the deadline and the end of a listener.
macro_rules! listener {
    ($type:ident, $stream:ident, $example:literal) => {
        impl $type {
            /// Returns an iterator that accepts all connections; see
            /// [`AcceptStream`](super::AcceptStream). The listener's deadline applies. Accepting is the
            /// same as calling
            #[doc = concat!("[`", stringify!($type), "::accept`].")]
            ///
            /// # Blocking
            ///
            /// This call never waits. Accepting does.
            ///
            /// # Examples
            ///
            /// ```
            #[doc = $example]
            /// # Ok::<(), std::io::Error>(())
            /// ```
            #[must_use]
            pub fn accept_stream(&self) -> crate::net::accept_stream::AcceptStream<'_, $stream> {
                self.0.accept_stream($stream)
            }

            /// Sets the time at which `accept` begins to fail with `WouldBlock`. `None` removes the
            /// deadline.
            ///
            /// The call also applies to goroutines that wait now: a deadline in the past ends their
            /// waits.
            ///
            /// # Examples
            ///
            /// With a TCP listener; a Unix listener does the same:
            ///
            /// ```
            /// use std::io;
            /// use windlass::time::Instant;
            /// use windlass::net::TcpListener;
            ///
            /// let listener = TcpListener::bind("127.0.0.1:0")?;
            /// listener.set_deadline(Some(Instant::now()));
            /// let error = listener.accept().unwrap_err();
            /// assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
            /// # Ok::<(), io::Error>(())
            /// ```
            pub fn set_deadline(&self, deadline: Option<crate::time::Instant>) {
                self.0
                    .set_deadline(crate::poll::fd::Direction::Read, deadline.map(Into::into));
            }

            /// Ends listening, for all handles to the socket. Calls that wait in `accept`, and
            /// later ones, fail with `InvalidInput`. Connections that are not accepted yet are
            /// refused.
            ///
            /// # Errors
            ///
            /// The errors of `shutdown(2)`; `NotConnected` if a TCP listener was shut down before.
            ///
            /// # Examples
            ///
            /// A server that stops on request; with a TCP listener, a Unix listener does the same:
            ///
            /// ```
            /// use std::io;
            /// use std::sync::Arc;
            /// use windlass::net::TcpListener;
            /// # // SAFETY: nothing here keeps a thread-local across a call that parks.
            /// # let rt = unsafe { windlass::Builder::new().processors(1).build()? };
            /// rt.run(|| {
            ///     let listener = Arc::new(TcpListener::bind("127.0.0.1:0")?);
            ///     let server = windlass::spawn({
            ///         let listener = Arc::clone(&listener);
            ///         move || listener.accept().map(drop)
            ///     });
            ///     listener.shutdown()?;
            ///     let error = server.join().unwrap().unwrap_err();
            ///     assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            ///     Ok::<(), io::Error>(())
            /// })?;
            /// # Ok::<(), io::Error>(())
            /// ```
            pub fn shutdown(&self) -> std::io::Result<()> {
                self.0.shutdown(std::net::Shutdown::Both)
            }
        }
    };
}

/// Implements `Debug` for a socket as `std` does: its descriptor, and those of its addresses that it has.
macro_rules! debug_socket {
    ($type:ident, |$this:ident| $($field:ident: $value:expr),+) => {
        impl std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let $this = self;
                let mut fields = f.debug_struct(stringify!($type));
                $(let value: std::io::Result<_> = $value;
                if let Ok(value) = value {
                    fields.field(stringify!($field), &value);
                })+
                fields.finish()
            }
        }
    };
}

pub(super) use {debug_socket, descriptors, listener, settings, stream, timeouts};

//! What the socket types have in common.

/// The conversions that every socket type has. The type is a tuple of one `Fd`.
macro_rules! descriptors {
    ($type:ident, $std:ty) => {
        impl std::os::fd::AsFd for $type {
            fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
                self.0.as_fd()
            }
        }

        impl std::os::fd::AsRawFd for $type {
            fn as_raw_fd(&self) -> std::os::fd::RawFd {
                std::os::fd::AsRawFd::as_raw_fd(&self.0.as_fd())
            }
        }

        impl From<std::os::fd::OwnedFd> for $type {
            /// Takes a socket as it is: with its mode (`O_NONBLOCK`) and its timeouts.
            fn from(fd: std::os::fd::OwnedFd) -> $type {
                $type(crate::io::fd::Fd::adopt(fd))
            }
        }

        impl From<$type> for std::os::fd::OwnedFd {
            /// Gives the socket away with its mode and its timeouts, but without deadlines.
            fn from(socket: $type) -> std::os::fd::OwnedFd {
                socket.0.into()
            }
        }

        impl std::os::fd::IntoRawFd for $type {
            fn into_raw_fd(self) -> std::os::fd::RawFd {
                std::os::fd::OwnedFd::from(self).into_raw_fd()
            }
        }

        impl std::os::fd::FromRawFd for $type {
            #[allow(unsafe_code)]
            unsafe fn from_raw_fd(fd: std::os::fd::RawFd) -> $type {
                // SAFETY: by the caller's contract the descriptor is open and its own.
                $type::from(unsafe { std::os::fd::OwnedFd::from_raw_fd(fd) })
            }
        }

        impl From<$std> for $type {
            /// Takes the socket with its mode (`set_nonblocking`) and its timeouts.
            fn from(socket: $std) -> $type {
                $type::from(std::os::fd::OwnedFd::from(socket))
            }
        }

        impl From<$type> for $std {
            /// Gives the socket away with its mode and its timeouts, but without deadlines, of
            /// which `std` knows nothing.
            fn from(socket: $type) -> $std {
                <$std>::from(std::os::fd::OwnedFd::from(socket))
            }
        }
    };
}

/// The settings that every socket type has.
macro_rules! settings {
    ($type:ident) => {
        impl $type {
            /// Another handle to the same socket. Timeouts and deadlines are shared.
            ///
            /// A goroutine that waits through one handle is not woken when another is
            /// dropped: the socket stays open as long as one of them is.
            ///
            /// # Errors
            ///
            /// The kernel's, when no descriptor is left.
            pub fn try_clone(&self) -> std::io::Result<$type> {
                self.0.try_clone().map($type)
            }

            /// Takes the error that is pending on the socket.
            ///
            /// # Errors
            ///
            /// The kernel's.
            pub fn take_error(&self) -> std::io::Result<Option<std::io::Error>> {
                socket2::SockRef::from(&self.0).take_error()
            }

            /// Makes calls return `WouldBlock` instead of waiting.
            ///
            /// # Errors
            ///
            /// The kernel's.
            pub fn set_nonblocking(&self, nonblocking: bool) -> std::io::Result<()> {
                self.0.set_nonblocking(nonblocking)
            }
        }
    };
}

/// Timeouts and deadlines, for what reads and writes.
macro_rules! timeouts {
    ($type:ident) => {
        impl $type {
            /// Bounds each later read: after `timeout` it gives `WouldBlock`, as `std` does
            /// on Linux. Nothing that was received is lost.
            ///
            /// # Errors
            ///
            /// `InvalidInput` for a zero duration.
            pub fn set_read_timeout(
                &self,
                timeout: Option<std::time::Duration>,
            ) -> std::io::Result<()> {
                self.0.set_timeout(crate::io::fd::Direction::Read, timeout)
            }

            /// Bounds each later write, as
            #[doc = concat!("[`", stringify!($type), "::set_read_timeout`] does reads.")]
            ///
            /// # Errors
            ///
            /// `InvalidInput` for a zero duration.
            pub fn set_write_timeout(
                &self,
                timeout: Option<std::time::Duration>,
            ) -> std::io::Result<()> {
                self.0.set_timeout(crate::io::fd::Direction::Write, timeout)
            }

            /// The bound on reads.
            ///
            /// # Errors
            ///
            /// None now; the signature is `std`'s.
            pub fn read_timeout(&self) -> std::io::Result<Option<std::time::Duration>> {
                Ok(self.0.get_timeout(crate::io::fd::Direction::Read))
            }

            /// The bound on writes.
            ///
            /// # Errors
            ///
            /// None now; the signature is `std`'s.
            pub fn write_timeout(&self) -> std::io::Result<Option<std::time::Duration>> {
                Ok(self.0.get_timeout(crate::io::fd::Direction::Write))
            }

            /// Sets the moment from which reads fail with `WouldBlock`, at once and also
            /// where something could be read; `None` takes it away.
            ///
            /// Unlike a timeout it bounds many reads together, and it holds for those that
            /// wait now: a moment that has passed ends them. (A plain thread that waits
            /// keeps the deadline that it began with.) Timeouts hold as well: whichever is
            /// first.
            pub fn set_read_deadline(&self, deadline: Option<std::time::Instant>) {
                self.0
                    .set_deadline(crate::io::fd::Direction::Read, deadline);
            }

            /// Sets the moment from which writes fail with `WouldBlock`, as
            #[doc = concat!("[`", stringify!($type), "::set_read_deadline`] for reads.")]
            pub fn set_write_deadline(&self, deadline: Option<std::time::Instant>) {
                self.0
                    .set_deadline(crate::io::fd::Direction::Write, deadline);
            }
        }
    };
}

/// `Read` and `Write`, by value and by reference.
macro_rules! stream {
    ($type:ident) => {
        impl std::io::Read for &$type {
            fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
                self.0.read(buf)
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
                self.0.write(buf)
            }

            fn write_vectored(&mut self, bufs: &[std::io::IoSlice<'_>]) -> std::io::Result<usize> {
                self.0.write_vectored(bufs)
            }

            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }

        impl std::io::Read for $type {
            fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
                self.0.read(buf)
            }

            fn read_vectored(
                &mut self,
                bufs: &mut [std::io::IoSliceMut<'_>],
            ) -> std::io::Result<usize> {
                self.0.read_vectored(bufs)
            }
        }

        impl std::io::Write for $type {
            fn write(&mut self, buf: &[u8]) -> std::io::Result<usize> {
                self.0.write(buf)
            }

            fn write_vectored(&mut self, bufs: &[std::io::IoSlice<'_>]) -> std::io::Result<usize> {
                self.0.write_vectored(bufs)
            }

            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }

        impl $type {
            /// Receives into a buffer that the runtime gives, at most 16 KiB; an empty one is
            /// the end of the stream.
            ///
            /// A goroutine that waits here holds no buffer: the kernel takes one of its P's,
            /// from memory of the P's node, when data has come. That pays where many
            /// connections are mostly idle, or where received bytes are handed on.
            ///
            /// # Blocking
            ///
            /// As reading.
            ///
            /// # Errors
            ///
            /// As reading.
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
            pub fn recv_owned(&self) -> std::io::Result<crate::io::RecvBuf> {
                self.0.recv_owned()
            }

            /// Receives everything that comes, in buffers of the runtime's, with one request that
            /// stays armed instead of one for each piece. That pays where much comes and
            /// the pieces are handed on ([`RecvStream`](crate::io::RecvStream) says more). On a plain thread, over epoll,
            /// and while the runtime is out of buffers it is the same as calling
            #[doc = concat!("[`", stringify!($type), "::recv_owned`].")]
            ///
            /// # Examples
            ///
            /// ```
            /// use std::io::Write;
            /// use windlass::net::UnixStream;
            ///
            /// let (mut here, there) = UnixStream::pair()?;
            /// here.write_all(b"hello")?;
            /// drop(here);
            /// let mut all = Vec::new();
            /// for piece in there.recv_stream() {
            ///     all.extend_from_slice(&piece?);
            /// }
            /// assert_eq!(all, b"hello");
            /// # Ok::<(), std::io::Error>(())
            /// ```
            #[must_use]
            pub fn recv_stream(&self) -> crate::io::RecvStream<'_> {
                self.0.recv_stream()
            }

            pub(crate) fn fd(&self) -> &crate::io::fd::Fd {
                &self.0
            }
        }
    };
}

/// A listener's deadline and end.
macro_rules! listener {
    ($type:ident, $stream:ident, $example:literal) => {
        impl $type {
            /// Accepts all that come, with one request that stays armed instead of one for each
            /// connection: that pays where connections come fast and do little
            /// ([`AcceptStream`](super::AcceptStream) says more). Deadlines are the
            /// listener's. On a plain thread and over epoll it is the same as calling
            #[doc = concat!("[`", stringify!($type), "::accept`].")]
            ///
            /// # Examples
            ///
            /// ```
            #[doc = $example]
            /// # Ok::<(), std::io::Error>(())
            /// ```
            #[must_use]
            pub fn accept_stream(&self) -> crate::io::accept_stream::AcceptStream<'_, $stream> {
                self.0
                    .accept_stream(|fd| $stream(crate::io::fd::Fd::from(fd)))
            }

            /// Sets the moment from which accepting fails with `WouldBlock`; `None` takes it
            /// away. It holds for goroutines that wait now, too: a moment that has passed
            /// ends their waits.
            pub fn set_deadline(&self, deadline: Option<std::time::Instant>) {
                self.0
                    .set_deadline(crate::io::fd::Direction::Read, deadline);
            }

            /// Ends listening, for all handles: whoever waits in an accept gets
            /// `InvalidInput`, and connections that nobody has accepted are refused.
            ///
            /// # Errors
            ///
            /// The kernel's.
            pub fn shutdown(&self) -> std::io::Result<()> {
                socket2::SockRef::from(&self.0).shutdown(std::net::Shutdown::Both)
            }
        }
    };
}

pub(super) use {descriptors, listener, settings, stream, timeouts};

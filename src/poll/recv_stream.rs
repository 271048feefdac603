//! Receiving everything that arrives on a stream, with one multishot request (`netpoll::multishot`)
//! that fills slots of the P's pool.

use std::error::Error;
use std::fmt;
use std::io;
use std::os::fd::AsFd;

use super::fd::{Direction, Fd};
use super::op;
use super::recv_buf::RecvBuf;
use super::subscription::{RequestKind, Subscription};
use crate::netpoll::multishot::Came;

/// The bytes that arrive on a stream, piece by piece. Made by `recv_stream` of a stream, for
/// example [`TcpStream::recv_stream`](crate::net::TcpStream::recv_stream).
///
/// The kernel receives ahead of the goroutine, into buffers of the P that the goroutine waits on.
/// When 16 filled buffers wait, the kernel is made to stop until they have been taken. Bytes that
/// it receives before it stops are stored as well, at most the 2 MiB of the P's buffers.
///
/// While a `RecvStream` exists, nothing else should read from the stream.
/// [`RecvStream::finish`] ends receiving without losing a byte. Dropping the value discards bytes
/// that have been received but not taken.
///
/// As an iterator it returns pieces that are not empty, until the end of the stream. After an error
/// it may be called again.
///
/// # Examples
///
/// ```
/// use std::io::Write;
/// use windlass::net::{TcpListener, TcpStream};
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(1).build()? };
/// rt.run(|| {
///     let listener = TcpListener::bind("127.0.0.1:0")?;
///     let mut client = TcpStream::connect(listener.local_addr()?)?;
///     let (server, _) = listener.accept()?;
///     client.write_all(&[b'.'; 100_000])?;
///     drop(client);
///
///     let mut n_bytes = 0;
///     for piece in server.recv_stream() {
///         n_bytes += piece?.len();
///     }
///     assert_eq!(n_bytes, 100_000);
///     Ok::<(), std::io::Error>(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct RecvStream<'a> {
    pieces: Subscription<'a>,
    is_over: bool,
}

impl Fd {
    /// Receives everything that arrives.
    pub(crate) fn recv_stream(&self) -> RecvStream<'_> {
        RecvStream {
            pieces: Subscription::new(self, RequestKind::Bytes),
            is_over: false,
        }
    }
}

impl RecvStream<'_> {
    /// Receives the next piece, at most 16 KiB. An empty buffer means the end of the stream.
    ///
    /// # Blocking
    ///
    /// As reading: parks the goroutine until bytes arrive; blocks a plain thread.
    ///
    /// # Errors
    ///
    /// As reading; `WouldBlock` after the read timeout or at the read deadline. If a timeout, a
    /// deadline or a context ends the wait, no byte is lost: the next call returns what arrives
    /// later.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::io::Write;
    /// use windlass::net::UnixStream;
    ///
    /// let (mut here, there) = UnixStream::pair()?;
    /// let mut pieces = there.recv_stream();
    /// here.write_all(b"hello")?;
    /// assert_eq!(&pieces.recv()?[..], b"hello");
    /// drop(here);
    /// assert!(pieces.recv()?.is_empty());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn recv(&mut self) -> io::Result<RecvBuf> {
        if self.is_over {
            return Ok(RecvBuf::empty());
        }
        let fd = self.pieces.fd;
        let deadline = fd.deadline(Direction::Read)?;
        match self.pieces.next(deadline)? {
            Some(Came::Bytes { pool, slot, len }) => Ok(RecvBuf::in_slot(pool, slot, len)),
            Some(Came::End) => {
                self.is_over = true;
                Ok(RecvBuf::empty())
            }
            // The bytes are still in the socket.
            Some(Came::Starved) => fd.recv_when_ready(deadline),
            Some(Came::Failed(errno)) if op::is_denied_receive(errno)? => {
                fd.recv_when_ready(deadline)
            }
            Some(Came::Failed(errno)) => Err(io::Error::from_raw_os_error(errno)),
            Some(Came::Accepted(_)) => unreachable!("a stream accepts nothing"),
            None => fd.recv_owned(),
        }
    }

    /// Ends receiving, and returns the pieces that were received but not taken. Bytes that arrive
    /// later stay in the socket.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine, or blocks the thread, until the kernel has stopped receiving, which
    /// takes some microseconds.
    ///
    /// # Errors
    ///
    /// If the stream has failed: the error, with the pieces that arrived before it. The socket
    /// reports an error only once, so a later receive does not return it again.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::io::{Read, Write};
    /// use windlass::net::UnixStream;
    /// # // SAFETY: nothing here keeps a thread-local across a call that parks.
    /// # let rt = unsafe { windlass::Builder::new().processors(1).build()? };
    /// rt.run(|| {
    ///     let (mut here, mut there) = UnixStream::pair()?;
    ///     here.write_all(b"header")?;
    ///     let mut pieces = there.recv_stream();
    ///     let header = pieces.recv()?;
    ///     let rest = pieces.finish()?;
    ///     assert_eq!((&header[..], rest.len()), (&b"header"[..], 0));
    ///
    ///     // From here on the stream is read as usual.
    ///     here.write_all(b"body")?;
    ///     there.read_exact(&mut [0; 4])?;
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn finish(self) -> Result<Vec<RecvBuf>, FinishError> {
        self.pieces.stop();
        let mut pieces = Vec::new();
        while let Some(came) = self.pieces.take() {
            match came {
                Came::Bytes { pool, slot, len } => pieces.push(RecvBuf::in_slot(pool, slot, len)),
                Came::End | Came::Starved | Came::Accepted(_) => {}
                // A failure is always the last piece.
                Came::Failed(errno) => {
                    let error = io::Error::from_raw_os_error(errno);
                    return Err(FinishError { pieces, error });
                }
            }
        }
        Ok(pieces)
    }
}

impl Iterator for RecvStream<'_> {
    type Item = io::Result<RecvBuf>;

    fn next(&mut self) -> Option<io::Result<RecvBuf>> {
        match self.recv() {
            Ok(bytes) if bytes.is_empty() => None,
            received => Some(received),
        }
    }
}

impl fmt::Debug for RecvStream<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecvStream")
            .field("fd", &self.pieces.fd.as_fd())
            .field("is_armed", &self.pieces.is_armed())
            .finish_non_exhaustive()
    }
}

/// The error of [`RecvStream::finish`] on a stream that has failed: the error, and the pieces that
/// arrived before it. Converts into an [`io::Error`], without the pieces.
///
/// # Examples
///
/// ```no_run
/// use windlass::io::RecvStream;
///
/// fn stop(pieces: RecvStream<'_>) -> std::io::Result<usize> {
///     match pieces.finish() {
///         Ok(rest) => Ok(rest.len()),
///         Err(e) => {
///             println!("{} after {} pieces", e.error(), e.pieces().len());
///             let (_pieces, error) = e.into_parts();
///             Err(error)
///         }
///     }
/// }
/// ```
#[derive(Debug)]
pub struct FinishError {
    pieces: Vec<RecvBuf>,
    error: io::Error,
}

impl FinishError {
    /// Returns the pieces that arrived before the error and were not taken. There may be none.
    #[must_use]
    pub fn pieces(&self) -> &[RecvBuf] {
        &self.pieces
    }

    /// Returns the error that a later receive would have failed with.
    #[must_use]
    pub fn error(&self) -> &io::Error {
        &self.error
    }

    /// Returns the pieces and the error.
    #[must_use]
    pub fn into_parts(self) -> (Vec<RecvBuf>, io::Error) {
        (self.pieces, self.error)
    }
}

impl fmt::Display for FinishError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n_bytes: usize = self.pieces.iter().map(|piece| piece.len()).sum();
        write!(f, "{}, after {n_bytes} bytes", self.error)
    }
}

impl Error for FinishError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.error)
    }
}

/// Discards the pieces.
impl From<FinishError> for io::Error {
    fn from(e: FinishError) -> io::Error {
        e.error
    }
}

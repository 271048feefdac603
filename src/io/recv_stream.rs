//! Receiving all that comes on a stream, with one request that stays armed
//! (`netpoll::multi`): into slots of the P's pool.

use std::error::Error;
use std::fmt;
use std::io;
use std::os::fd::AsFd;

use super::fd::{Direction, Fd};
use super::op::is_denial;
use super::recv_buf::RecvBuf;
use super::subscription::{Kind, Subscription};
use crate::netpoll::multi::Came;

/// What comes on a stream, piece by piece: what `recv_stream` of a stream gives.
///
/// The kernel receives ahead of the goroutine that asks, into buffers of the P on which it
/// waits. With 16 of them filled it is told to stop until they have been taken; what it has
/// filled by then, at most the 2 MiB of the P, is kept. So nothing else should read from the
/// stream meanwhile. [`RecvStream::finish`] ends receiving without
/// losing a byte; dropping the value throws away what has come and was not asked for.
///
/// As an iterator it gives pieces that are not empty, to the end of the stream; after an
/// error it may be asked again.
pub struct RecvStream<'a> {
    pieces: Subscription<'a>,
    is_over: bool,
}

impl Fd {
    /// Receives all that comes.
    pub(crate) fn recv_stream(&self) -> RecvStream<'_> {
        RecvStream {
            pieces: Subscription::new(self, Kind::Bytes),
            is_over: false,
        }
    }
}

impl RecvStream<'_> {
    /// Receives what has come, at most 16 KiB; an empty buffer is the end of the stream.
    ///
    /// # Blocking
    ///
    /// As reading.
    ///
    /// # Errors
    ///
    /// As reading. A timeout, a deadline or a context that ends the wait takes nothing: what
    /// comes later is given by the next call.
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
            // Nothing was taken out of the socket.
            Some(Came::Starved) => fd.recv_when_ready(deadline),
            // The ring may be denied such requests; if it is the socket's error this fails, too.
            Some(Came::Failed(errno)) if is_denial(errno) => fd.recv_when_ready(deadline),
            Some(Came::Failed(errno)) => Err(io::Error::from_raw_os_error(errno)),
            Some(Came::Accepted(_)) => unreachable!("a stream accepts nothing"),
            None => fd.recv_owned(),
        }
    }

    /// Ends receiving: gives what has come and was not asked for. What comes later stays in
    /// the socket.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine, or blocks the thread, until the kernel has stopped, which takes
    /// some microseconds.
    ///
    /// # Errors
    ///
    /// What would have been the error of a later receive, with the pieces that came before it.
    /// The socket tells it once only, so it is not met again.
    pub fn finish(self) -> Result<Vec<RecvBuf>, FinishError> {
        self.pieces.stop();
        let mut pieces = Vec::new();
        while let Some(came) = self.pieces.take() {
            match came {
                Came::Bytes { pool, slot, len } => pieces.push(RecvBuf::in_slot(pool, slot, len)),
                Came::End | Came::Starved | Came::Accepted(_) => {}
                // It was the last.
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

/// The stream had failed when [`RecvStream::finish`] ended receiving: the error, and what came
/// before it.
#[derive(Debug)]
pub struct FinishError {
    pieces: Vec<RecvBuf>,
    error: io::Error,
}

impl FinishError {
    /// What has come before the error and was not asked for; may be nothing.
    #[must_use]
    pub fn pieces(&self) -> &[RecvBuf] {
        &self.pieces
    }

    /// What a later receive would have failed with.
    #[must_use]
    pub fn error(&self) -> &io::Error {
        &self.error
    }

    /// The pieces and the error.
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

/// Gives up the pieces.
impl From<FinishError> for io::Error {
    fn from(e: FinishError) -> io::Error {
        e.error
    }
}

//! The two halves of a stream, with `std`'s traits.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use quinn_proto::{Connection, ReadError, ReadableError, StreamId, VarInt, WriteError};

use super::endpoint::Inner;

/// The half of a stream that is written to. Dropped before [`SendStream::finish`], it is reset.
#[derive(Debug)]
pub(crate) struct SendStream {
    connection: Arc<Inner>,
    id: StreamId,
    is_finished: bool,
}

/// The half of a stream that is read.
#[derive(Debug)]
pub(crate) struct RecvStream {
    connection: Arc<Inner>,
    id: StreamId,
    is_over: bool,
}

impl SendStream {
    pub(super) fn new(connection: Arc<Inner>, id: StreamId) -> SendStream {
        SendStream {
            connection,
            id,
            is_finished: false,
        }
    }

    /// The number of the stream.
    pub(super) fn id(&self) -> u64 {
        self.id.into()
    }

    /// Ends the stream. The bytes are sent again until they have arrived, or the connection is over.
    ///
    /// # Errors
    ///
    /// The peer has stopped the stream, or it has been finished.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        self.is_finished = true;
        self.connection
            .with(|proto, _| proto.send_stream(self.id).finish())
            .map_err(io::Error::other)
    }

    /// Ends the stream, whose bytes are sent no more.
    pub(super) fn reset(&mut self, code: VarInt) {
        self.is_finished = true;
        self.connection.with(|proto, _| {
            // It may be over already.
            let _ = proto.send_stream(self.id).reset(code);
        });
    }

    /// As [`Write::write`], for a future.
    pub(super) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let id = self.id;
        let written = self
            .connection
            .poll_for(cx, |proto, _| write(proto, id, buf));
        written.map(|written| written?)
    }
}

/// Writes what there is room for. `None` if there is none.
fn write(proto: &mut Connection, id: StreamId, buf: &[u8]) -> Option<io::Result<usize>> {
    match proto.send_stream(id).write(buf) {
        Err(WriteError::Blocked) => None,
        done => Some(done.map_err(io::Error::other)),
    }
}

impl Write for SendStream {
    /// Parks the goroutine while the peer, or the congestion window, has no room.
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        self.connection
            .wait_for(|proto, _| write(proto, self.id, buf))?
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for SendStream {
    fn drop(&mut self) {
        if !self.is_finished {
            self.reset(VarInt::from_u32(0));
        }
    }
}

impl RecvStream {
    pub(super) fn new(connection: Arc<Inner>, id: StreamId) -> RecvStream {
        RecvStream {
            connection,
            id,
            is_over: false,
        }
    }

    /// The number of the stream.
    pub(super) fn id(&self) -> u64 {
        self.id.into()
    }

    /// Asks the peer to send no more.
    pub(super) fn stop(&mut self, code: VarInt) {
        self.is_over = true;
        self.connection.with(|proto, _| {
            // It may be over already.
            let _ = proto.recv_stream(self.id).stop(code);
        });
    }

    /// The next bytes, at most `max`, for a future. `None` at the end of the stream.
    pub(super) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        max: usize,
    ) -> Poll<io::Result<Option<Bytes>>> {
        if self.is_over {
            return Poll::Ready(Ok(None));
        }
        let id = self.id;
        let read = self
            .connection
            .poll_for(cx, |proto, _| read(proto, id, max));
        read.map(|read| {
            let read = read??;
            self.is_over = read.is_none();
            Ok(read)
        })
    }
}

/// Takes the next bytes. `None` if there are none yet; no bytes at the end of the stream.
fn read(proto: &mut Connection, id: StreamId, max: usize) -> Option<io::Result<Option<Bytes>>> {
    let mut stream = proto.recv_stream(id);
    let mut chunks = match stream.read(true) {
        Ok(chunks) => chunks,
        Err(ReadableError::ClosedStream) => return Some(Ok(None)),
        Err(error) => return Some(Err(io::Error::other(error))),
    };
    let next = chunks.next(max);
    // Whether credit is to be sent: `wait_for` sends what there is in any case.
    let _ = chunks.finalize();
    match next {
        Ok(chunk) => Some(Ok(chunk.map(|chunk| chunk.bytes))),
        Err(ReadError::Blocked) => None,
        Err(error) => Some(Err(io::Error::other(error))),
    }
}

impl Read for RecvStream {
    /// Parks the goroutine until bytes have come, or the end of the stream.
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if buf.is_empty() || self.is_over {
            return Ok(0);
        }
        let read = self
            .connection
            .wait_for(|proto, _| read(proto, self.id, buf.len()))??;
        self.is_over = read.is_none();
        let bytes = read.unwrap_or_default();
        buf[..bytes.len()].copy_from_slice(&bytes);
        Ok(bytes.len())
    }
}

impl Drop for RecvStream {
    fn drop(&mut self) {
        if !self.is_over {
            self.stop(VarInt::from_u32(0));
        }
    }
}

//! The two halves of a stream, with `std`'s traits.

use std::io::{self, Read, Write};
use std::sync::Arc;

use quinn_proto::{ReadError, ReadableError, StreamId, VarInt, WriteError};

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

pub(super) fn halves(connection: &Arc<Inner>, id: StreamId) -> (SendStream, RecvStream) {
    let send = SendStream {
        connection: Arc::clone(connection),
        id,
        is_finished: false,
    };
    let receive = RecvStream {
        connection: Arc::clone(connection),
        id,
        is_over: false,
    };
    (send, receive)
}

impl SendStream {
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
}

impl Write for SendStream {
    /// Parks the goroutine while the peer, or the congestion window, has no room.
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        self.connection
            .wait_for(|proto, _| match proto.send_stream(self.id).write(buf) {
                Err(WriteError::Blocked) => None,
                done => Some(done.map_err(io::Error::other)),
            })?
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for SendStream {
    fn drop(&mut self) {
        if !self.is_finished {
            self.connection.with(|proto, _| {
                // It may be over already.
                let _ = proto.send_stream(self.id).reset(VarInt::from_u32(0));
            });
        }
    }
}

impl Read for RecvStream {
    /// Parks the goroutine until bytes have come, or the end of the stream.
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if buf.is_empty() || self.is_over {
            return Ok(0);
        }
        let read = self.connection.wait_for(|proto, _| {
            let mut stream = proto.recv_stream(self.id);
            let mut chunks = match stream.read(true) {
                Ok(chunks) => chunks,
                Err(ReadableError::ClosedStream) => return Some(Ok(0)),
                Err(error) => return Some(Err(io::Error::other(error))),
            };
            let next = chunks.next(buf.len());
            // Whether credit is to be sent: `wait_for` sends what there is in any case.
            let _ = chunks.finalize();
            match next {
                Ok(Some(chunk)) => {
                    buf[..chunk.bytes.len()].copy_from_slice(&chunk.bytes);
                    Some(Ok(chunk.bytes.len()))
                }
                Ok(None) => Some(Ok(0)),
                Err(ReadError::Blocked) => None,
                Err(error) => Some(Err(io::Error::other(error))),
            }
        })??;
        self.is_over = read == 0;
        Ok(read)
    }
}

impl Drop for RecvStream {
    fn drop(&mut self) {
        if !self.is_over {
            self.connection.with(|proto, _| {
                // It may be over already.
                let _ = proto.recv_stream(self.id).stop(VarInt::from_u32(0));
            });
        }
    }
}

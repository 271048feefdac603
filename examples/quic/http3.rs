//! HTTP/3: the crate h3 has its frames and the compression of its headers, and asks for the streams of QUIC by traits with
//! futures. They are implemented here for the streams of this example.
//!
//! A goroutine accepts the requests of a connection, and each request has one of its own. Both drive their futures by
//! `block_on`, which parks the goroutine.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use h3::error::Code;
use h3::quic::{self, ConnectionErrorIncoming, StreamErrorIncoming, StreamId, WriteBuf};
use h3::server;
use http::{Method, Response, StatusCode};
use quinn_proto::{ConnectionError, Dir, ReadError, VarInt, WriteError};
use windlass::future::block_on;

use super::{Connection, GREETING, MAX_PAGE_BYTES, RecvStream, SendStream};

/// The most bytes of a frame, and of a read.
const CHUNK_BYTES: usize = 64 << 10;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Serves a connection until its client or the endpoint closes it.
pub(super) fn serve(connection: Connection) -> io::Result<()> {
    let mut http = block_on(server::Connection::new(Quic(connection))).map_err(io::Error::other)?;
    while let Some(request) = block_on(http.accept()).map_err(io::Error::other)? {
        // Errors of a request concern only its stream.
        drop(windlass::spawn(move || block_on(answer(request))));
    }
    Ok(())
}

/// As [`super::answer`]; a page that is not there is an error.
async fn answer(request: server::RequestResolver<Quic, Bytes>) -> Result<(), Error> {
    let (request, mut stream) = request.resolve_request().await?;
    let path = request.uri().path();
    let n = path.strip_prefix("/bytes/").map(str::parse::<u64>);
    let is_echo = path == "/echo" && request.method() == Method::POST;
    let is_page = request.method() == Method::GET && (path == "/" || matches!(n, Some(Ok(_))));
    let mut response = Response::new(());
    if !is_echo && !is_page {
        *response.status_mut() = StatusCode::NOT_FOUND;
    }
    stream.send_response(response).await?;
    if is_echo {
        while let Some(mut part) = stream.recv_data().await? {
            stream
                .send_data(part.copy_to_bytes(part.remaining()))
                .await?;
        }
    } else if let Some(Ok(n)) = n.filter(|_| is_page) {
        let chunk = Bytes::from(vec![b'w'; CHUNK_BYTES]);
        let mut left = n.min(MAX_PAGE_BYTES);
        while left > 0 {
            let some = left.min(CHUNK_BYTES as u64);
            stream.send_data(chunk.slice(..some as usize)).await?;
            left -= some;
        }
    } else if is_page {
        stream.send_data(Bytes::from_static(GREETING)).await?;
    }
    stream.finish().await?;
    // The answer needs no more of the request. Without this code it would count as an error.
    stream.stop_sending(Code::H3_NO_ERROR);
    Ok(())
}

/// A connection with h3's traits.
#[derive(Clone, Debug)]
pub(crate) struct Quic(pub(crate) Connection);

/// The half of a stream that is written to, and the bytes that are to be written next.
pub(crate) struct Sender {
    stream: SendStream,
    writing: Option<WriteBuf<Bytes>>,
}

/// A stream of both directions.
pub(crate) struct Both(Sender, RecvStream);

impl Quic {
    fn both(&self, id: quinn_proto::StreamId) -> Both {
        let (send, receive) = self.0.0.halves(id);
        Both(Sender::new(send), receive)
    }
}

impl quic::Connection<Bytes> for Quic {
    type RecvStream = RecvStream;
    type OpenStreams = Quic;

    fn poll_accept_recv(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<RecvStream, ConnectionErrorIncoming>> {
        let accept = |proto: &mut quinn_proto::Connection, _| proto.streams().accept(Dir::Uni);
        let id = ready!(self.0.0.poll_for(cx, accept)).map_err(of_connection)?;
        Poll::Ready(Ok(RecvStream::new(Arc::clone(&self.0.0), id)))
    }

    fn poll_accept_bidi(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Both, ConnectionErrorIncoming>> {
        let accept = |proto: &mut quinn_proto::Connection, _| proto.streams().accept(Dir::Bi);
        let id = ready!(self.0.0.poll_for(cx, accept)).map_err(of_connection)?;
        Poll::Ready(Ok(self.both(id)))
    }

    fn opener(&self) -> Quic {
        self.clone()
    }
}

impl quic::OpenStreams<Bytes> for Quic {
    type BidiStream = Both;
    type SendStream = Sender;

    fn poll_open_bidi(&mut self, cx: &mut Context<'_>) -> Poll<Result<Both, StreamErrorIncoming>> {
        let open = |proto: &mut quinn_proto::Connection, _| proto.streams().open(Dir::Bi);
        let id = ready!(self.0.0.poll_for(cx, open)).map_err(of_stream)?;
        Poll::Ready(Ok(self.both(id)))
    }

    fn poll_open_send(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Sender, StreamErrorIncoming>> {
        let open = |proto: &mut quinn_proto::Connection, _| proto.streams().open(Dir::Uni);
        let id = ready!(self.0.0.poll_for(cx, open)).map_err(of_stream)?;
        let stream = SendStream::new(Arc::clone(&self.0.0), id);
        Poll::Ready(Ok(Sender::new(stream)))
    }

    fn close(&mut self, code: Code, reason: &[u8]) {
        self.0
            .0
            .close(number(code.value()), Bytes::copy_from_slice(reason));
    }
}

impl Sender {
    fn new(stream: SendStream) -> Sender {
        Sender {
            stream,
            writing: None,
        }
    }
}

impl quic::SendStream<Bytes> for Sender {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        while let Some(bytes) = self.writing.as_mut().filter(|bytes| bytes.has_remaining()) {
            match ready!(self.stream.poll_write(cx, bytes.chunk())) {
                Ok(n) => bytes.advance(n),
                Err(e) => {
                    self.writing = None;
                    return Poll::Ready(Err(of_stream(e)));
                }
            }
        }
        self.writing = None;
        Poll::Ready(Ok(()))
    }

    fn send_data<T: Into<WriteBuf<Bytes>>>(&mut self, data: T) -> Result<(), StreamErrorIncoming> {
        if self.writing.is_some() {
            return Err(of_stream(io::Error::other("the stream is not ready")));
        }
        self.writing = Some(data.into());
        Ok(())
    }

    fn poll_finish(&mut self, _: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        Poll::Ready(self.stream.finish().map_err(of_stream))
    }

    fn reset(&mut self, code: u64) {
        self.stream.reset(number(code));
    }

    fn send_id(&self) -> StreamId {
        id(self.stream.id())
    }
}

impl quic::RecvStream for RecvStream {
    type Buf = Bytes;

    fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        self.poll_read(cx, CHUNK_BYTES).map_err(of_stream)
    }

    fn stop_sending(&mut self, code: u64) {
        self.stop(number(code));
    }

    fn recv_id(&self) -> StreamId {
        id(self.id())
    }
}

impl quic::SendStream<Bytes> for Both {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.0.poll_ready(cx)
    }

    fn send_data<T: Into<WriteBuf<Bytes>>>(&mut self, data: T) -> Result<(), StreamErrorIncoming> {
        self.0.send_data(data)
    }

    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.0.poll_finish(cx)
    }

    fn reset(&mut self, code: u64) {
        self.0.reset(code);
    }

    fn send_id(&self) -> StreamId {
        self.0.send_id()
    }
}

impl quic::RecvStream for Both {
    type Buf = Bytes;

    fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        self.1.poll_data(cx)
    }

    fn stop_sending(&mut self, code: u64) {
        self.1.stop_sending(code);
    }

    fn recv_id(&self) -> StreamId {
        self.1.recv_id()
    }
}

impl quic::BidiStream<Bytes> for Both {
    type SendStream = Sender;
    type RecvStream = RecvStream;

    fn split(self) -> (Sender, RecvStream) {
        (self.0, self.1)
    }
}

/// Numbers of QUIC have 62 bits, and h3 has no others.
fn number(code: u64) -> VarInt {
    VarInt::from_u64(code).unwrap_or(VarInt::MAX)
}

fn id(id: u64) -> StreamId {
    id.try_into().expect("both have QUIC's numbers")
}

/// The error of a connection, as h3 wants it.
fn of_connection(e: io::Error) -> ConnectionErrorIncoming {
    let inner = e.get_ref().and_then(|inner| inner.downcast_ref());
    match inner {
        Some(ConnectionError::ApplicationClosed(close)) => {
            ConnectionErrorIncoming::ApplicationClose {
                error_code: close.error_code.into_inner(),
            }
        }
        Some(ConnectionError::TimedOut) => ConnectionErrorIncoming::Timeout,
        _ => ConnectionErrorIncoming::Undefined(Arc::new(e)),
    }
}

/// The error of a stream: the peer wants no more of it, or the connection is over.
fn of_stream(e: io::Error) -> StreamErrorIncoming {
    let inner = e.get_ref();
    if let Some(WriteError::Stopped(code)) = inner.and_then(|inner| inner.downcast_ref()) {
        let error_code = code.into_inner();
        return StreamErrorIncoming::StreamTerminated { error_code };
    }
    if let Some(ReadError::Reset(code)) = inner.and_then(|inner| inner.downcast_ref()) {
        let error_code = code.into_inner();
        return StreamErrorIncoming::StreamTerminated { error_code };
    }
    if inner.is_some_and(|inner| inner.is::<ConnectionError>()) {
        let connection_error = of_connection(e);
        return StreamErrorIncoming::ConnectionErrorIncoming { connection_error };
    }
    StreamErrorIncoming::Unknown(Box::new(e))
}

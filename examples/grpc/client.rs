//! A gRPC client in blocking style: tonic's, over a channel of hyper on a socket of windlass.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::http::uri::{PathAndQuery, Uri};
use axum::http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper::rt::Timer as _;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::body::Body;
use tonic::client::Grpc;
use tonic::{Status, Streaming};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_prost::ProstCodec;
use tower_service::Service;
use windlass::future::{self, block_on};
use windlass::net::{TcpStream, ToSocketAddrs};
use windlass_hyper::{Executor, Io, Timer};

use super::messages::{self, Counts, Text};

/// The requests of a stream that wait for the connection.
const MAX_AHEAD: usize = 16;
/// The interval of pings, and the time limit for their answers.
const PING: Duration = Duration::from_secs(20);

/// A connection of HTTP/2, which all clones share. It takes the place of tonic's own `Channel`.
#[derive(Clone)]
pub(crate) struct Channel(SendRequest<Body>);

impl Channel {
    /// Connects. A goroutine drives the connection until the last clone is dropped.
    pub(crate) fn connect(addr: impl ToSocketAddrs) -> io::Result<Channel> {
        let stream = TcpStream::connect(addr)?;
        stream.set_nodelay(true)?;
        let mut builder = http2::Builder::new(Executor::new());
        builder
            .timer(Timer::new())
            .keep_alive_interval(PING)
            .keep_alive_timeout(PING);
        let made = block_on(builder.handshake(Io::new(stream)));
        let (sender, connection) = made.map_err(io::Error::other)?;
        drop(future::spawn(connection));
        Ok(Channel(sender))
    }
}

impl Service<Request<Body>> for Channel {
    type Response = Response<Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Incoming>, hyper::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), hyper::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}

/// Waits for the answer of a call, but not longer than the limit. The call is then cancelled.
pub(crate) fn within<T>(
    limit: Duration,
    call: impl Future<Output = Result<T, Status>>,
) -> Result<T, Status> {
    let mut call = pin!(call);
    let mut sleep = Timer::new().sleep(limit);
    block_on(poll_fn(|cx| {
        let answer = call.as_mut().poll(cx);
        if answer.is_pending() && sleep.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(Status::deadline_exceeded("no answer in time")));
        }
        answer
    }))
}

/// A client of the service. Its functions park the goroutine.
#[derive(Clone)]
pub(crate) struct Words(Grpc<Channel>);

impl Words {
    pub(crate) fn new(channel: Channel) -> Words {
        // The host of the requests, which a server with one service does not ask for.
        Words(Grpc::with_origin(channel, origin()))
    }

    pub(crate) fn count(&mut self, text: &str) -> Result<Counts, Status> {
        let request = tonic::Request::new(message(text));
        block_on(async {
            self.ready().await?;
            let path = PathAndQuery::from_static(messages::COUNT);
            let answer = self.0.unary(request, path, ProstCodec::default()).await?;
            Ok(answer.into_inner())
        })
    }

    pub(crate) fn split(&mut self, text: &str) -> Result<Texts, Status> {
        let request = tonic::Request::new(message(text));
        block_on(async {
            self.ready().await?;
            let path = PathAndQuery::from_static(messages::SPLIT);
            let codec = ProstCodec::default();
            let answer = self.0.server_streaming(request, path, codec).await?;
            Ok(Texts(answer.into_inner()))
        })
    }

    /// A stream in both directions.
    pub(crate) fn shout(&mut self) -> Result<(Shouts, Texts), Status> {
        let (sender, receiver) = mpsc::channel(MAX_AHEAD);
        let request = tonic::Request::new(ReceiverStream::new(receiver));
        block_on(async {
            self.ready().await?;
            let path = PathAndQuery::from_static(messages::SHOUT);
            let codec = ProstCodec::<Text, Text>::default();
            let answer = self.0.streaming(request, path, codec).await?;
            Ok((Shouts(sender), Texts(answer.into_inner())))
        })
    }

    /// A call of a method that the service does not have.
    pub(crate) fn mistake(&mut self) -> Result<(), Status> {
        block_on(async {
            self.ready().await?;
            let path = PathAndQuery::from_static("/windlass.example.Words/None");
            let codec = ProstCodec::<Text, Text>::default();
            let request = tonic::Request::new(Text::default());
            self.0.unary(request, path, codec).await.map(drop)
        })
    }

    async fn ready(&mut self) -> Result<(), Status> {
        let ready = self.0.ready().await;
        ready.map_err(|error| Status::unavailable(error.to_string()))
    }
}

/// Asks the health service for the state of the words' service, with the client that tonic's
/// compiler has written.
pub(crate) fn health(channel: Channel, limit: Duration) -> Result<ServingStatus, Status> {
    let mut client = HealthClient::with_origin(channel, origin());
    let request = HealthCheckRequest {
        service: messages::NAME.to_owned(),
    };
    let answer = within(limit, client.check(request))?;
    Ok(answer.into_inner().status())
}

fn origin() -> Uri {
    Uri::from_static("http://localhost")
}

fn message(text: &str) -> Text {
    Text {
        text: text.to_owned(),
    }
}

/// The sending half of a stream. Dropping it ends the stream.
pub(crate) struct Shouts(mpsc::Sender<Text>);

impl Shouts {
    /// Parks while the connection is slow.
    pub(crate) fn send(&self, text: &str) -> Result<(), Status> {
        let sent = block_on(self.0.send(message(text)));
        sent.map_err(|_| Status::cancelled("the server has ended the stream"))
    }
}

/// The answers of a stream. Each step parks until the next one has arrived.
pub(crate) struct Texts(Streaming<Text>);

impl Iterator for Texts {
    type Item = Result<String, Status>;

    fn next(&mut self) -> Option<Self::Item> {
        let answer = block_on(self.0.message()).transpose()?;
        Some(answer.map(|text| text.text))
    }
}

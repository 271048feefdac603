//! A gRPC service whose methods are blocking functions, and the health service of tonic-health.
//!
//! Without tonic's feature `transport`, which needs tokio's sockets: tonic's routes are a `Router` of
//! axum, and examples/support/routes.rs serves them with hyper.

pub(crate) mod client;
pub(crate) mod messages;

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::http;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::body::Body;
use tonic::server::{Grpc, NamedService, ServerStreamingService, StreamingService, UnaryService};
use tonic::service::Routes;
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;
use tower_service::Service;
use windlass::future::block_on;
use windlass::net::TcpListener;

use messages::{Counts, Text};

/// How long the server waits for its connections after the stop.
const STOP_LIMIT: Duration = Duration::from_secs(10);
/// The answers of a stream that wait for the connection.
const MAX_AHEAD: usize = 16;

/// Serves until `stop` returns. From then on the service is reported not to serve.
pub(crate) fn serve(
    listener: TcpListener,
    stop: impl FnOnce() -> io::Result<()> + Send + 'static,
) -> io::Result<()> {
    let (reporter, health) = tonic_health::server::health_reporter();
    block_on(reporter.set_serving::<Words>());
    let routes = Routes::new(Words).add_service(health).prepare();
    let router = routes.into_axum_router();
    crate::routes::serve_until(listener, router, STOP_LIMIT, move || {
        let stopped = stop();
        block_on(reporter.set_not_serving::<Words>());
        stopped
    })
}

/// Counts the words.
///
/// # Errors
///
/// There are none.
fn count(request: Request<Text>) -> Result<Response<Counts>, Status> {
    let mut words = HashMap::new();
    for word in request.get_ref().text.split_whitespace() {
        *words.entry(word.to_owned()).or_default() += 1;
    }
    match words.is_empty() {
        true => Err(Status::invalid_argument("no words")),
        false => Ok(Response::new(Counts { words })),
    }
}

/// Sends the words one by one.
fn split(request: Request<Text>) -> Result<Response<Answers<Text>>, Status> {
    Ok(answers(move |sender| {
        for word in request.get_ref().text.split_whitespace() {
            sender.send(Text {
                text: word.to_owned(),
            })?;
        }
        Ok(())
    }))
}

/// Answers each text of a stream, while it arrives.
fn shout(request: Request<Streaming<Text>>) -> Result<Response<Answers<Text>>, Status> {
    let mut texts = request.into_inner();
    Ok(answers(move |sender| {
        while let Some(Text { text }) = block_on(texts.message())? {
            if text.is_empty() {
                return Err(Status::invalid_argument("nothing to shout"));
            }
            sender.send(Text {
                text: text.to_uppercase(),
            })?;
        }
        Ok(())
    }))
}

type Answers<T> = ReceiverStream<Result<T, Status>>;

/// Where a goroutine sends the answers of a stream.
struct Sender<T>(mpsc::Sender<Result<T, Status>>);

impl<T> Sender<T> {
    /// Parks while the connection is slow. The sender's own `blocking_send` would block the thread.
    fn send(&self, answer: T) -> Result<(), Status> {
        let sent = block_on(self.0.send(Ok(answer)));
        sent.map_err(|_| Status::cancelled("the client has gone"))
    }
}

/// A stream whose answers are made by `f` in a goroutine of its own. An error ends it.
fn answers<T: Send + 'static>(
    f: impl FnOnce(&Sender<T>) -> Result<(), Status> + Send + 'static,
) -> Response<Answers<T>> {
    let (sender, receiver) = mpsc::channel(MAX_AHEAD);
    windlass::spawn(move || {
        let sender = Sender(sender);
        if let Err(status) = f(&sender) {
            let _ = block_on(sender.0.send(Err(status)));
        }
    });
    Response::new(ReceiverStream::new(receiver))
}

/// The service, as tonic's compiler would write it. From here on there is nothing of windlass.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Words;

impl NamedService for Words {
    const NAME: &'static str = messages::NAME;
}

impl Service<http::Request<Body>> for Words {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<http::Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async move {
            Ok(match request.uri().path() {
                messages::COUNT => {
                    let mut grpc = Grpc::new(ProstCodec::default());
                    grpc.unary(Count, request).await
                }
                messages::SPLIT => {
                    let mut grpc = Grpc::new(ProstCodec::default());
                    grpc.server_streaming(Split, request).await
                }
                messages::SHOUT => {
                    let mut grpc = Grpc::new(ProstCodec::default());
                    grpc.streaming(Shout, request).await
                }
                _ => Status::unimplemented("no such method").into_http(),
            })
        })
    }
}

struct Count;

impl UnaryService<Text> for Count {
    type Response = Counts;
    type Future = Ready<Result<Response<Counts>, Status>>;

    fn call(&mut self, request: Request<Text>) -> Self::Future {
        ready(count(request))
    }
}

struct Split;

impl ServerStreamingService<Text> for Split {
    type Response = Text;
    type ResponseStream = Answers<Text>;
    type Future = Ready<Result<Response<Answers<Text>>, Status>>;

    fn call(&mut self, request: Request<Text>) -> Self::Future {
        ready(split(request))
    }
}

struct Shout;

impl StreamingService<Text> for Shout {
    type Response = Text;
    type ResponseStream = Answers<Text>;
    type Future = Ready<Result<Response<Answers<Text>>, Status>>;

    fn call(&mut self, request: Request<Streaming<Text>>) -> Self::Future {
        ready(shout(request))
    }
}

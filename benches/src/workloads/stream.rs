//! TCP streaming over loopback, senders and receivers in one runtime: on each of some
//! connections one task sends messages as fast as it can, another receives them one
//! by one.
//!
//! Connections are made before the clock starts; it stops when all has arrived.
//!
//! Where each core has a runtime of its own, both ends of a connection are on one core.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use ::tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::runtimes::{self, May, Tokio};

#[cfg(feature = "programs")]
pub use per_core::per_core;

/// How many connections there are.
pub const CONNECTIONS: usize = 4;

const ANY_PORT: &str = "127.0.0.1:0";

fn send(mut stream: impl Write, bytes: usize, messages: u64) {
    let message = vec![b'.'; bytes];
    for _ in 0..messages {
        stream.write_all(&message).unwrap();
    }
}

fn receive(mut stream: impl Read, bytes: usize, messages: u64) {
    let mut message = vec![0; bytes];
    for _ in 0..messages {
        stream.read_exact(&mut message).unwrap();
    }
}

/// Goroutines, over [`windlass::net`].
pub fn windlass(runtime: &windlass::Runtime, bytes: usize, messages: u64) -> Duration {
    use windlass::net::{TcpListener, TcpStream};

    runtime.run(move || {
        let listener = TcpListener::bind(ANY_PORT).unwrap();
        let pairs: Vec<_> = (0..CONNECTIONS)
            .map(|_| {
                let sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                sender.set_nodelay(true).unwrap();
                (sender, listener.accept().unwrap().0)
            })
            .collect();
        let start = Instant::now();
        let receivers: Vec<_> = pairs
            .into_iter()
            .map(|(sender, receiver)| {
                windlass::spawn(move || send(sender, bytes, messages));
                windlass::spawn(move || receive(receiver, bytes, messages))
            })
            .collect();
        for receiver in receivers {
            receiver.join().unwrap();
        }
        start.elapsed()
    })
}

/// tokio's tasks, over [`::tokio::net`].
pub fn tokio(runtime: &Tokio, bytes: usize, messages: u64) -> Duration {
    use ::tokio::net::{TcpListener, TcpStream};

    runtime.run(async move {
        let listener = TcpListener::bind(ANY_PORT).await.unwrap();
        let mut pairs = Vec::new();
        for _ in 0..CONNECTIONS {
            let sender = TcpStream::connect(listener.local_addr().unwrap())
                .await
                .unwrap();
            sender.set_nodelay(true).unwrap();
            pairs.push((sender, listener.accept().await.unwrap().0));
        }
        let start = Instant::now();
        let receivers: Vec<_> = pairs
            .into_iter()
            .map(|(mut sender, mut receiver)| {
                ::tokio::spawn(async move {
                    let message = vec![b'.'; bytes];
                    for _ in 0..messages {
                        sender.write_all(&message).await.unwrap();
                    }
                });
                ::tokio::spawn(async move {
                    let mut message = vec![0; bytes];
                    for _ in 0..messages {
                        receiver.read_exact(&mut message).await.unwrap();
                    }
                })
            })
            .collect();
        for receiver in receivers {
            receiver.await.unwrap();
        }
        start.elapsed()
    })
}

/// may's coroutines, over [`::may::net`].
pub fn may(runtime: &May, bytes: usize, messages: u64) -> Duration {
    use ::may::net::{TcpListener, TcpStream};

    runtime.run(move || {
        let listener = TcpListener::bind(ANY_PORT).unwrap();
        let pairs: Vec<_> = (0..CONNECTIONS)
            .map(|_| {
                let sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                sender.set_nodelay(true).unwrap();
                (sender, listener.accept().unwrap().0)
            })
            .collect();
        let start = Instant::now();
        let receivers: Vec<_> = pairs
            .into_iter()
            .map(|(sender, receiver)| {
                runtimes::go(move || send(sender, bytes, messages));
                runtimes::go(move || receive(receiver, bytes, messages))
            })
            .collect();
        for receiver in receivers {
            receiver.join().unwrap();
        }
        start.elapsed()
    })
}

#[cfg(feature = "programs")]
mod per_core {
    use std::net;
    use std::sync::{Arc, Barrier};
    use std::time::{Duration, Instant};

    use super::{ANY_PORT, CONNECTIONS};
    use crate::per_core::{self, PerCore};

    /// Tasks of a runtime for each of `workers` cores, which share the connections evenly.
    pub fn per_core<R: PerCore>(workers: usize, bytes: usize, messages: u64) -> Duration {
        async fn send<R: PerCore>(mut stream: R::Stream, bytes: usize, messages: u64) {
            let mut message = vec![b'.'; bytes];
            for _ in 0..messages {
                let (sent, same) = R::write_all(&mut stream, message).await;
                sent.unwrap();
                message = same;
            }
        }

        async fn receive<R: PerCore>(mut stream: R::Stream, bytes: usize, messages: u64) {
            let mut message = vec![0; bytes].into_boxed_slice();
            for _ in 0..messages {
                let (received, same) = R::read_exact(&mut stream, message).await;
                received.unwrap();
                message = same;
            }
        }

        let start = Arc::new(Barrier::new(workers));
        let spans = per_core::on_each_core::<R, _, _>(workers, |worker| {
            let start = Arc::clone(&start);
            async move {
                let listener = net::TcpListener::bind(ANY_PORT).unwrap();
                let pairs: Vec<_> = (worker..CONNECTIONS)
                    .step_by(workers)
                    .map(|_| {
                        let sender =
                            net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                        sender.set_nodelay(true).unwrap();
                        let (receiver, _) = listener.accept().unwrap();
                        (R::stream(sender).unwrap(), R::stream(receiver).unwrap())
                    })
                    .collect();
                start.wait();
                let began = Instant::now();
                let receivers: Vec<_> = pairs
                    .into_iter()
                    .map(|(sender, receiver)| {
                        R::go(send::<R>(sender, bytes, messages));
                        R::spawn(receive::<R>(receiver, bytes, messages))
                    })
                    .collect();
                for receiver in receivers {
                    receiver.await;
                }
                (began, Instant::now())
            }
        });
        let began = spans.iter().map(|&(began, _)| began).min().unwrap();
        let ended = spans.iter().map(|&(_, ended)| ended).max().unwrap();
        ended - began
    }
}

//! TCP echo over loopback, server and clients in one runtime: each connection is
//! one task that sends 64 bytes and waits for them, and one that sends them back.
//!
//! Connections are made before the clock starts.

use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

use ::tokio::io::{AsyncReadExt, AsyncWriteExt};

#[cfg(feature = "programs")]
use crate::per_core::PerCore;
use crate::runtimes::{self, May, Tokio};

/// The length of a message.
pub const MESSAGE_BYTES: usize = 64;
/// The most bytes that a server reads at a time.
const BUFFER_BYTES: usize = 4096;

const ANY_PORT: &str = "127.0.0.1:0";

/// Sends back all that comes, until the other side ends.
///
/// # Errors
///
/// Those of the stream.
pub fn serve(mut stream: impl Read + Write) -> io::Result<()> {
    let mut buffer = [0; BUFFER_BYTES];
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            n => stream.write_all(&buffer[..n])?,
        }
    }
}

/// Sends messages and waits for each to come back.
fn request(mut stream: impl Read + Write, round_trips: u64) -> io::Result<()> {
    let mut message = [b'.'; MESSAGE_BYTES];
    for _ in 0..round_trips {
        stream.write_all(&message)?;
        stream.read_exact(&mut message)?;
    }
    Ok(())
}

/// Goroutines, over [`windlass::net`].
pub fn windlass(runtime: &windlass::Runtime, connections: usize, round_trips: u64) -> Duration {
    use windlass::net::{TcpListener, TcpStream};

    runtime.run(move || {
        let listener = TcpListener::bind(ANY_PORT).unwrap();
        let streams: Vec<_> = (0..connections)
            .map(|_| {
                let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                let (server, _) = listener.accept().unwrap();
                client.set_nodelay(true).unwrap();
                server.set_nodelay(true).unwrap();
                windlass::spawn(move || serve(server));
                client
            })
            .collect();
        let start = Instant::now();
        let clients: Vec<_> = streams
            .into_iter()
            .map(|stream| windlass::spawn(move || request(stream, round_trips)))
            .collect();
        for client in clients {
            client.join().unwrap().unwrap();
        }
        start.elapsed()
    })
}

/// tokio's tasks, over [`::tokio::net`].
pub fn tokio(runtime: &Tokio, connections: usize, round_trips: u64) -> Duration {
    use ::tokio::net::{TcpListener, TcpStream};

    async fn request(mut stream: TcpStream, round_trips: u64) -> io::Result<()> {
        let mut message = [b'.'; MESSAGE_BYTES];
        for _ in 0..round_trips {
            stream.write_all(&message).await?;
            stream.read_exact(&mut message).await?;
        }
        Ok(())
    }

    runtime.run(async move {
        let listener = TcpListener::bind(ANY_PORT).await.unwrap();
        let mut streams = Vec::new();
        for _ in 0..connections {
            let client = TcpStream::connect(listener.local_addr().unwrap())
                .await
                .unwrap();
            let (server, _) = listener.accept().await.unwrap();
            client.set_nodelay(true).unwrap();
            server.set_nodelay(true).unwrap();
            ::tokio::spawn(serve_tokio(server));
            streams.push(client);
        }
        let start = Instant::now();
        let clients: Vec<_> = streams
            .into_iter()
            .map(|stream| ::tokio::spawn(request(stream, round_trips)))
            .collect();
        for client in clients {
            client.await.unwrap().unwrap();
        }
        start.elapsed()
    })
}

/// [`serve`] for tokio.
///
/// # Errors
///
/// Those of the stream.
pub async fn serve_tokio(mut stream: ::tokio::net::TcpStream) -> io::Result<()> {
    let mut buffer = [0; BUFFER_BYTES];
    loop {
        match stream.read(&mut buffer).await? {
            0 => return Ok(()),
            n => stream.write_all(&buffer[..n]).await?,
        }
    }
}

/// may's coroutines, over [`::may::net`].
pub fn may(runtime: &May, connections: usize, round_trips: u64) -> Duration {
    use ::may::net::{TcpListener, TcpStream};

    runtime.run(move || {
        let listener = TcpListener::bind(ANY_PORT).unwrap();
        let streams: Vec<_> = (0..connections)
            .map(|_| {
                let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                let (server, _) = listener.accept().unwrap();
                client.set_nodelay(true).unwrap();
                server.set_nodelay(true).unwrap();
                runtimes::go(move || serve(server));
                client
            })
            .collect();
        let start = Instant::now();
        let clients: Vec<_> = streams
            .into_iter()
            .map(|stream| runtimes::go(move || request(stream, round_trips)))
            .collect();
        for client in clients {
            client.join().unwrap().unwrap();
        }
        start.elapsed()
    })
}

/// [`serve`] for a runtime of one thread for each core.
///
/// # Errors
///
/// Those of the stream.
#[cfg(feature = "programs")]
pub async fn serve_per_core<R: PerCore>(mut stream: R::Stream) -> io::Result<()> {
    let mut buffer = Vec::with_capacity(BUFFER_BYTES);
    loop {
        let (received, received_in) = R::read(&mut stream, buffer).await;
        if received? == 0 {
            return Ok(());
        }
        let (sent, sent_from) = R::write_all(&mut stream, received_in).await;
        sent?;
        buffer = sent_from;
        buffer.clear();
    }
}

//! An HTTP/1.1 server on a runtime of choice: `GET /plaintext`, keep-alive and
//! pipelining, parsed with httparse; says on which address it listens.
//!
//! `http_server windlass --workers 2 127.0.0.1:0`; monoio and compio have programs of their own:
//! `bench_monoio http_server`.
#![expect(
    clippy::print_stdout,
    reason = "the address is for whoever started this"
)]

use std::io::{self, Read, Write};
use std::net::SocketAddr;

use ::tokio::io::{AsyncReadExt, AsyncWriteExt};
use clap::Parser;
use windlass_benches::http::Connection;
use windlass_benches::runtimes::{self, Name};

#[derive(Parser)]
struct Args {
    runtime: Name,
    #[arg(default_value = "127.0.0.1:0")]
    address: SocketAddr,
    #[arg(long, default_value_t = runtimes::workers())]
    workers: usize,
}

fn main() -> io::Result<()> {
    let Args {
        runtime,
        address,
        workers,
    } = Args::parse();
    match runtime {
        Name::Windlass => runtimes::windlass(workers).run(move || windlass(address)),
        Name::Tokio => runtimes::tokio(workers).run(tokio(address)),
        Name::May => runtimes::may(workers).run(move || may(address)),
        other => other.has_no_twin(),
    }
}

/// Answers requests until the client goes.
fn serve(mut stream: impl Read + Write) -> io::Result<()> {
    let mut connection = Connection::new();
    loop {
        let n = stream.read(connection.space())?;
        if n == 0 {
            return Ok(());
        }
        stream.write_all(connection.received(n)?)?;
    }
}

fn windlass(address: SocketAddr) -> io::Result<()> {
    let listener = windlass::net::TcpListener::bind(address)?;
    println!("{}", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        windlass::spawn(move || serve(stream));
    }
}

async fn serve_tokio(mut stream: ::tokio::net::TcpStream) -> io::Result<()> {
    let mut connection = Connection::new();
    loop {
        let n = stream.read(connection.space()).await?;
        if n == 0 {
            return Ok(());
        }
        stream.write_all(connection.received(n)?).await?;
    }
}

async fn tokio(address: SocketAddr) -> io::Result<()> {
    let listener = ::tokio::net::TcpListener::bind(address).await?;
    println!("{}", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        ::tokio::spawn(serve_tokio(stream));
    }
}

fn may(address: SocketAddr) -> io::Result<()> {
    let listener = may::net::TcpListener::bind(address)?;
    println!("{}", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        runtimes::go(move || serve(stream));
    }
}

//! A TCP echo server on a runtime of choice; says on which address it listens.
//!
//! `echo_server windlass --workers 2 127.0.0.1:0`; monoio and compio have programs of their own:
//! `bench_monoio echo_server`.
#![expect(
    clippy::print_stdout,
    reason = "the address is for whoever started this"
)]

use std::io;
use std::net::SocketAddr;

use clap::Parser;
use windlass_benches::runtimes::{self, Name};
use windlass_benches::workloads::echo;

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

fn windlass(address: SocketAddr) -> io::Result<()> {
    let listener = windlass::net::TcpListener::bind(address)?;
    println!("{}", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        windlass::spawn(move || echo::serve(stream));
    }
}

async fn tokio(address: SocketAddr) -> io::Result<()> {
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("{}", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(echo::serve_tokio(stream));
    }
}

fn may(address: SocketAddr) -> io::Result<()> {
    let listener = may::net::TcpListener::bind(address)?;
    println!("{}", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        runtimes::go(move || echo::serve(stream));
    }
}

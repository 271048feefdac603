//! A closed loop of clients: each connection sends a request, waits for the whole
//! answer, and sends the next. Cheap per request, so that the server is measured:
//! a thread has one epoll, and a request is one write and one read.
//!
//! `load 127.0.0.1:7000 --connections 64 --threads 2 --seconds 5`
//! prints `requests=.. per_second=.. mean_us=.. p50_us=.. p99_us=.. max_us=..`
#![expect(clippy::print_stdout, reason = "the result")]

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use mio::{Events, Poll};
use windlass_benches::clients::{Protocol, connect_all};
use windlass_benches::latencies::Latencies;

#[derive(Parser)]
struct Args {
    address: SocketAddr,
    #[arg(long, default_value_t = 64)]
    connections: usize,
    #[arg(long, default_value_t = 2)]
    threads: usize,
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    #[arg(long, value_enum, default_value_t = Protocol::Echo)]
    protocol: Protocol,
}

fn main() -> io::Result<()> {
    let Args {
        address,
        connections,
        threads,
        seconds,
        protocol,
    } = Args::parse();
    let threads = threads.clamp(1, connections);
    let duration = Duration::from_secs_f64(seconds);

    let connected = Arc::new(Barrier::new(threads + 1));
    let clients: Vec<_> = (0..threads)
        .map(|i| {
            let share = connections / threads + usize::from(i < connections % threads);
            let connected = Arc::clone(&connected);
            thread::spawn(move || run(address, protocol, share, &connected, duration))
        })
        .collect();
    connected.wait();
    let start = Instant::now();
    let mut latencies = Latencies::new();
    for client in clients {
        latencies.merge(&client.join().expect("a client thread should not panic")?);
    }
    println!(
        "requests={} per_second={:.0} mean_us={:.1} p50_us={:.1} p99_us={:.1} max_us={:.1}",
        latencies.len(),
        latencies.len() as f64 / start.elapsed().as_secs_f64(),
        latencies.mean_us(),
        latencies.quantile_us(0.50),
        latencies.quantile_us(0.99),
        latencies.longest_us(),
    );
    Ok(())
}

/// One thread's connections, for `duration` from when all threads have theirs: where the queue of a
/// listener is short, a connection may take a second.
fn run(
    address: SocketAddr,
    protocol: Protocol,
    connections: usize,
    connected: &Barrier,
    duration: Duration,
) -> io::Result<Latencies> {
    let mut poll = Poll::new()?;
    let mut events = Events::with_capacity(connections);
    let clients = connect_all(&poll, address, protocol, connections);
    connected.wait();
    let mut clients = clients?;
    let end = Instant::now() + duration;
    for client in &mut clients {
        client.send()?;
    }
    let mut latencies = Latencies::new();
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(latencies);
        }
        match poll.poll(&mut events, Some(left)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            result => result?,
        }
        for event in &events {
            let client = &mut clients[event.token().0];
            if let Some(latency) = client.receive()? {
                latencies.record(latency);
                client.send()?;
            }
        }
    }
}

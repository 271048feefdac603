//! A closed loop of clients: each connection sends a request, waits for the whole
//! answer, and sends the next. Cheap per request, so that the server is measured:
//! a thread has one epoll, and a request is one write and one read.
//!
//! `load 127.0.0.1:7000 --connections 64 --threads 2 --seconds 5`
//! prints `requests=.. per_second=.. p50_us=.. p99_us=..`
#![expect(clippy::print_stdout, reason = "the result")]

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use windlass_benches::latencies::Latencies;
use windlass_benches::workloads::echo::MESSAGE_BYTES;

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

#[derive(Clone, Copy, ValueEnum)]
enum Protocol {
    /// 64 bytes that come back.
    Echo,
    /// `GET /plaintext`; all answers must be of one length.
    Http,
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

    let start = Instant::now();
    let clients: Vec<_> = (0..threads)
        .map(|i| {
            let share = connections / threads + usize::from(i < connections % threads);
            thread::spawn(move || run(address, protocol, share, start + duration))
        })
        .collect();
    let mut latencies = Latencies::new();
    for client in clients {
        latencies.merge(&client.join().expect("a client thread should not panic")?);
    }
    println!(
        "requests={} per_second={:.0} p50_us={:.1} p99_us={:.1}",
        latencies.len(),
        latencies.len() as f64 / start.elapsed().as_secs_f64(),
        latencies.quantile_us(0.50),
        latencies.quantile_us(0.99),
    );
    Ok(())
}

/// One thread's connections, until `end`.
fn run(
    address: SocketAddr,
    protocol: Protocol,
    connections: usize,
    end: Instant,
) -> io::Result<Latencies> {
    let mut poll = Poll::new()?;
    let mut events = Events::with_capacity(connections);
    let mut clients = Vec::with_capacity(connections);
    for i in 0..connections {
        let mut client = Client::connect(address, protocol)?;
        let registry = poll.registry();
        registry.register(&mut client.stream, Token(i), Interest::READABLE)?;
        clients.push(client);
    }
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

struct Client {
    stream: TcpStream,
    request: &'static [u8],
    /// The length of an answer.
    expected: usize,
    /// How much of the answer has come.
    received: usize,
    sent_at: Instant,
}

impl Client {
    /// Connects, and for HTTP sends one request to learn how long the answer is.
    fn connect(address: SocketAddr, protocol: Protocol) -> io::Result<Client> {
        const GET: &[u8] = b"GET /plaintext HTTP/1.1\r\nHost: bench\r\n\r\n";

        let mut stream = std::net::TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        let (request, expected): (&[u8], _) = match protocol {
            Protocol::Echo => (&[b'.'; MESSAGE_BYTES], MESSAGE_BYTES),
            Protocol::Http => {
                stream.write_all(GET)?;
                (GET, answer_length(&mut stream)?)
            }
        };
        stream.set_nonblocking(true)?;
        let stream = TcpStream::from_std(stream);
        Ok(Client {
            stream,
            request,
            expected,
            received: 0,
            sent_at: Instant::now(),
        })
    }

    fn send(&mut self) -> io::Result<()> {
        self.received = 0;
        self.sent_at = Instant::now();
        // The socket's buffer is empty: the last request has been answered.
        let n = self.stream.write(self.request)?;
        if n == self.request.len() {
            Ok(())
        } else {
            Err(io::ErrorKind::WriteZero.into())
        }
    }

    /// Reads what has come. Events are edges, but no read is needed to see that
    /// there is no more: the next bytes come with an event of their own.
    fn receive(&mut self) -> io::Result<Option<Duration>> {
        let mut buffer = [0; 4096];
        match self.stream.read(&mut buffer) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => self.received += n,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
        }
        if self.received > self.expected {
            return Err(io::Error::other("an answer is longer than the first one"));
        }
        Ok((self.received == self.expected).then(|| self.sent_at.elapsed()))
    }
}

/// Reads one HTTP answer and gives its length, head and body.
fn answer_length(stream: &mut std::net::TcpStream) -> io::Result<usize> {
    let mut answer = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => answer.extend_from_slice(&buffer[..n]),
        }
        let mut headers = [httparse::EMPTY_HEADER; 16];
        let mut response = httparse::Response::new(&mut headers);
        let head = response.parse(&answer).map_err(io::Error::other)?;
        let httparse::Status::Complete(head) = head else {
            continue;
        };
        let body: usize = response
            .headers
            .iter()
            .find(|header| header.name.eq_ignore_ascii_case("content-length"))
            .and_then(|header| str::from_utf8(header.value).ok()?.parse().ok())
            .ok_or_else(|| io::Error::other("no content-length"))?;
        if response.code != Some(200) {
            return Err(io::Error::other("the answer is not 200"));
        }
        if answer.len() >= head + body {
            return Ok(head + body);
        }
    }
}

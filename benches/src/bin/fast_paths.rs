//! When do the calls beside `std`'s pay? CPU time of this process, both ends included,
//! for each operation; contenders in turn, medians of the rounds, least and most.
//!
//! - `echo`: 64 bytes there and back on 64 and 1,000 connections; the server reads into
//!   a buffer of its own, or calls `recv_owned`
//! - `stream`: messages of 4 KiB to 1 MiB on one connection; the reader reads into a buffer of
//!   16 KiB or of 256 KiB, or calls `recv_owned`
//! - `idle-read`, `idle-owned`: memory of a connection whose goroutine waits for its first
//!   bytes, with a buffer of 16 KiB, or in `recv_owned`
//! - `accept`: connections made and closed; one goroutine at one listener, one for each worker at one
//!   listener, one for each worker at a listener of its own
//!
//! With the server in a process of its own, whose CPU time alone counts:
//!
//! - `recv`: messages of 512 bytes and 16 KiB on 1, 64 and 1,000 connections, answered with a byte
//!   (`ask`) or only at the end (`flow`), received by `read` (a buffer of 16 KiB for each
//!   connection) or `recv_owned`
//! - `storm`: 8,000 connections by 32 goroutines, closed at once or after a request and an answer of
//!   512 bytes; accepted by one goroutine, or by one for each CPU
//! - `idle-served`: memory of a server's connection that has had a message and waits for the next
#![expect(clippy::print_stdout, reason = "the result")]

use std::io::{self, BufRead, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use windlass::net::{TcpListener, TcpOptions, TcpStream, UnixStream};
use windlass_benches::process::{own_cpu_time, resident_bytes, resident_bytes_of, run_time};
use windlass_benches::runtimes;

#[derive(Parser)]
struct Args {
    what: What,
    #[arg(long, default_value_t = runtimes::workers())]
    workers: usize,
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// How `serve` serves.
    #[arg(long, default_value = "read")]
    how: How,
}

/// How a server receives or accepts.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum How {
    Read,
    Owned,
    Accept,
    /// A goroutine for each CPU accepts.
    AcceptEach,
}

#[derive(Clone, Copy, ValueEnum)]
enum What {
    Echo,
    Stream,
    IdleRead,
    IdleOwned,
    Accept,
    Recv,
    Storm,
    IdleServed,
    /// Serves as `--how` says, and prints its address first.
    Serve,
}

const ANY_PORT: &str = "127.0.0.1:0";
const BUFFER_BYTES: usize = 16 << 10;

fn main() -> io::Result<()> {
    let args = Args::parse();
    let runtime = runtimes::windlass(args.workers);
    runtime.run(|| match args.what {
        What::Echo => echo(args.rounds),
        What::Stream => stream(args.rounds),
        What::IdleRead => idle(wait_with_buffer),
        What::IdleOwned => idle(wait_owned),
        What::Accept => accept(args.rounds, args.workers),
        What::Recv => recv(args.rounds),
        What::Storm => storm(args.rounds),
        What::IdleServed => idle_served(),
        What::Serve => serve(args.how),
    })
}

/// One contender: its name, and a call that does so many operations.
type Contender<'a> = (&'a str, &'a dyn Fn(usize) -> io::Result<()>);

/// Runs each in turn, and prints CPU time of an operation.
fn race(title: &str, rounds: usize, ops: usize, contenders: &[Contender<'_>]) -> io::Result<()> {
    let mut all = vec![Vec::new(); contenders.len()];
    for round in 0..=rounds {
        for i in 0..contenders.len() {
            let i = (i + round) % contenders.len();
            let before = own_cpu_time();
            contenders[i].1(ops)?;
            let ns = (own_cpu_time() - before).as_nanos() as u64 / ops as u64;
            // The first is to warm up.
            if round > 0 {
                all[i].push(ns);
            }
        }
    }
    for ((name, _), mut ns) in contenders.iter().zip(all) {
        ns.sort_unstable();
        let (median, least, most) = (ns[ns.len() / 2], ns[0], ns[ns.len() - 1]);
        println!("{title} {name}: cpu_ns={median} least={least} most={most}");
    }
    Ok(())
}

fn pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind(ANY_PORT)?;
    let client = TcpStream::connect(listener.local_addr()?)?;
    client.set_nodelay(true)?;
    let (server, _) = listener.accept()?;
    server.set_nodelay(true)?;
    Ok((client, server))
}

fn serve_read(mut stream: TcpStream) -> io::Result<()> {
    let mut buf = vec![0; BUFFER_BYTES];
    loop {
        match stream.read(&mut buf)? {
            0 => return Ok(()),
            n => stream.write_all(&buf[..n])?,
        }
    }
}

fn serve_owned(mut stream: TcpStream) -> io::Result<()> {
    loop {
        let bytes = stream.recv_owned()?;
        if bytes.is_empty() {
            return Ok(());
        }
        stream.write_all(&bytes)?;
    }
}

/// Echoes in a round.
const ECHOES: usize = 40_000;

fn echo(rounds: usize) -> io::Result<()> {
    for connections in [64, 1000] {
        let open = |serve: fn(TcpStream) -> io::Result<()>| {
            (0..connections)
                .map(|_| {
                    let (client, server) = pair()?;
                    windlass::spawn(move || serve(server));
                    Ok(client)
                })
                .collect::<io::Result<Vec<_>>>()
        };
        let (read, owned) = (open(serve_read)?, open(serve_owned)?);
        race(
            &format!("echo_{connections}"),
            rounds,
            ECHOES,
            &[
                ("read", &|ops| ask(&read, ops)),
                ("recv_owned", &|ops| ask(&owned, ops)),
            ],
        )?;
    }
    Ok(())
}

/// A goroutine for each connection asks and waits for the answer.
fn ask(clients: &[TcpStream], ops: usize) -> io::Result<()> {
    let each = ops / clients.len();
    windlass::scope(|s| {
        for mut client in clients {
            s.spawn(move || {
                let mut message = [b'.'; 64];
                for _ in 0..each {
                    client.write_all(&message).unwrap();
                    client.read_exact(&mut message).unwrap();
                }
            });
        }
    });
    Ok(())
}

/// Reads to the end, and says of each piece how long it is.
type ReadAll = fn(&TcpStream, &mut dyn FnMut(usize));

fn stream(rounds: usize) -> io::Result<()> {
    let readers: [(&str, ReadAll); 3] = [
        ("read 16 KiB", |stream, took| {
            read_in(stream, BUFFER_BYTES, took)
        }),
        ("read 256 KiB", |stream, took| {
            read_in(stream, 256 << 10, took)
        }),
        ("recv_owned", |stream, took| {
            while let Ok(bytes) = stream.recv_owned()
                && !bytes.is_empty()
            {
                took(bytes.len());
            }
        }),
    ];
    for bytes in [4 << 10, 64 << 10, 1 << 20] {
        let message = vec![b'.'; bytes];
        let send = |read_all: ReadAll, ops: usize| {
            let (mut client, server) = pair()?;
            let reader = windlass::spawn(move || {
                let mut n_left = bytes;
                read_all(&server, &mut |n| {
                    // An answer for each message: the sender waits for it.
                    n_left -= n.min(n_left);
                    if n_left == 0 {
                        n_left = bytes;
                        let _ = (&server).write_all(b"!");
                    }
                });
            });
            for _ in 0..ops {
                client.write_all(&message)?;
                client.read_exact(&mut [0])?;
            }
            drop(client);
            reader
                .join()
                .map_err(|_| io::Error::other("the reader panicked"))
        };
        let contenders = readers.map(|(name, read_all)| {
            let send = &send;
            (name, move |ops: usize| send(read_all, ops))
        });
        let contenders: Vec<Contender<'_>> = contenders
            .iter()
            .map(|(name, run)| (*name, run as &dyn Fn(usize) -> io::Result<()>))
            .collect();
        let ops = ((512 << 20) / bytes).min(20_000);
        race(&format!("stream_{bytes}"), rounds, ops, &contenders)?;
    }
    Ok(())
}

fn read_in(mut stream: &TcpStream, buffer_bytes: usize, took: &mut dyn FnMut(usize)) {
    let mut buf = vec![0; buffer_bytes];
    while let Ok(n) = stream.read(&mut buf)
        && n > 0
    {
        took(n);
    }
}

fn idle(serve: fn(UnixStream)) -> io::Result<()> {
    const CONNECTIONS: usize = 5_000;
    let mut peers = Vec::with_capacity(CONNECTIONS);
    let before = resident_bytes()?;
    for _ in 0..CONNECTIONS {
        let (peer, stream) = UnixStream::pair()?;
        peers.push(peer);
        windlass::spawn(move || serve(stream));
    }
    // Until all wait.
    windlass::sleep(Duration::from_millis(500));
    let bytes = resident_bytes()?.saturating_sub(before) / CONNECTIONS as u64;
    println!("bytes={bytes}");
    drop(peers);
    Ok(())
}

fn wait_with_buffer(mut stream: UnixStream) {
    let mut buf = vec![b'.'; BUFFER_BYTES];
    let _ = stream.read(&mut buf);
}

fn wait_owned(stream: UnixStream) {
    let _ = stream.recv_owned();
}

/// A server in a process of its own.
struct Server {
    child: Child,
    addr: SocketAddr,
}

impl Server {
    /// Starts this program to serve.
    fn start(how: How) -> io::Result<Server> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["serve", "--how"])
            .arg(
                how.to_possible_value()
                    .map_or_else(String::new, |v| v.get_name().to_owned()),
            )
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        if let Some(out) = child.stdout.take() {
            io::BufReader::new(out).read_line(&mut line)?;
        }
        let addr = line.trim().parse().map_err(io::Error::other)?;
        Ok(Server { child, addr })
    }

    fn connect(&self) -> io::Result<TcpStream> {
        let stream = TcpStream::connect(self.addr)?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Serves until it is killed: each connection begins with the length of its messages and the
/// number of messages to an answer, as two `u32`.
fn serve(how: How) -> io::Result<()> {
    let listener = TcpListener::bind(ANY_PORT)?;
    println!("{}", listener.local_addr()?);
    match how {
        How::Accept => accept_plainly(&listener),
        How::AcceptEach => windlass::scope(|s| {
            for _ in 0..runtimes::workers() {
                s.spawn(|| accept_plainly(&listener));
            }
        }),
        How::Read | How::Owned => {
            for stream in listener.incoming() {
                let stream = stream?;
                windlass::spawn(move || answer(stream, how));
            }
        }
    }
    Ok(())
}

fn accept_plainly(listener: &TcpListener) {
    while let Ok((stream, _)) = listener.accept() {
        welcome(stream);
    }
}

/// Closes a connection at once, or answers its one request, as its first byte says.
fn welcome(mut stream: TcpStream) {
    windlass::spawn(move || {
        let mut request = [0; 512];
        if stream.read(&mut request).is_ok_and(|n| n > 1) {
            let _ = stream.write_all(&request);
        }
    });
}

fn answer(mut stream: TcpStream, how: How) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut head = [0; 8];
    stream.read_exact(&mut head)?;
    let number =
        |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let each = number(0) as usize * number(4) as usize;
    let mut n_left = each;
    let mut took = |n: usize| {
        n_left -= n.min(n_left);
        if n_left == 0 {
            n_left = each;
            let _ = (&stream).write_all(b"!");
        }
    };
    match how {
        How::Owned => {
            while let Ok(bytes) = stream.recv_owned()
                && !bytes.is_empty()
            {
                took(bytes.len());
            }
        }
        _ => read_in(&stream, BUFFER_BYTES, &mut took),
    }
    Ok(())
}

const RECEIVERS: [(&str, How); 2] = [("read", How::Read), ("recv_owned", How::Owned)];

/// A name, a server, and what gives it so many operations to do.
type ContendingServer<'a> = (&'a str, &'a Server, &'a dyn Fn(usize) -> io::Result<()>);

/// As [`race`], with servers whose CPU time counts. Also prints how many operations there were in a
/// second: noisy where others use the machine.
fn race_servers(
    title: &str,
    rounds: usize,
    ops: usize,
    contenders: &[ContendingServer<'_>],
) -> io::Result<()> {
    let mut all = vec![Vec::new(); contenders.len()];
    for round in 0..=rounds {
        for i in 0..contenders.len() {
            let i = (i + round) % contenders.len();
            let (_, server, work) = contenders[i];
            let (before, start) = (run_time(server.child.id())?, Instant::now());
            work(ops)?;
            let wall = start.elapsed();
            let ns = (run_time(server.child.id())? - before).as_nanos() as u64 / ops as u64;
            if round > 0 {
                all[i].push((ns, (ops as f64 / wall.as_secs_f64()) as u64));
            }
        }
    }
    for ((name, ..), mut all) in contenders.iter().zip(all) {
        let mut rates: Vec<_> = all.iter().map(|(_, rate)| *rate).collect();
        rates.sort_unstable();
        all.sort_unstable();
        let (median, least, most) = (all[all.len() / 2].0, all[0].0, all[all.len() - 1].0);
        let rate = rates[rates.len() / 2];
        println!("{title} {name}: cpu_ns={median} least={least} most={most} per_second={rate}");
    }
    Ok(())
}

fn recv(rounds: usize) -> io::Result<()> {
    let servers: Vec<_> = RECEIVERS
        .iter()
        .map(|(name, how)| Ok((*name, Server::start(*how)?)))
        .collect::<io::Result<_>>()?;
    for (kind, bytes, connections, ops) in [
        ("ask", 512, 1, 10_000),
        ("ask", 512, 64, 40_000),
        ("ask", 512, 1000, 40_000),
        ("ask", 16 << 10, 1, 5_000),
        ("ask", 16 << 10, 64, 20_000),
        ("ask", 16 << 10, 1000, 20_000),
        ("flow", 512, 1, 40_000),
        ("flow", 512, 64, 64_000),
        ("flow", 512, 1000, 100_000),
        ("flow", 16 << 10, 1, 10_000),
        ("flow", 16 << 10, 64, 19_200),
        ("flow", 16 << 10, 1000, 20_000),
    ] {
        let each = ops / connections;
        // So many are sent before an answer is waited for.
        let in_a_row = if kind == "ask" { 1 } else { each };
        let all: Vec<_> = servers
            .iter()
            .map(|(_, server)| {
                let open = |_| {
                    let mut stream = server.connect()?;
                    stream.write_all(&(bytes as u32).to_ne_bytes())?;
                    stream.write_all(&(in_a_row as u32).to_ne_bytes())?;
                    Ok(stream)
                };
                (0..connections).map(open).collect::<io::Result<Vec<_>>>()
            })
            .collect::<io::Result<_>>()?;
        let works: Vec<_> = all
            .iter()
            .map(|clients| move |_| send_all(clients, bytes, in_a_row, each / in_a_row))
            .collect();
        let contenders: Vec<_> = servers
            .iter()
            .zip(&works)
            .map(|((name, server), work)| (*name, server, work as &dyn Fn(usize) -> io::Result<()>))
            .collect();
        let title = format!("recv_{kind}_{bytes}_{connections}");
        race_servers(&title, rounds, each * connections, &contenders)?;
    }
    Ok(())
}

fn send_all(
    clients: &[TcpStream],
    bytes: usize,
    in_a_row: usize,
    n_answers: usize,
) -> io::Result<()> {
    let message = &vec![b'.'; bytes][..];
    windlass::scope(|s| {
        for mut client in clients {
            s.spawn(move || {
                for _ in 0..n_answers {
                    for _ in 0..in_a_row {
                        client.write_all(message).unwrap();
                    }
                    client.read_exact(&mut [0]).unwrap();
                }
            });
        }
    });
    Ok(())
}

fn idle_served() -> io::Result<()> {
    const CONNECTIONS: usize = 4_000;
    for (name, how) in RECEIVERS {
        let server = Server::start(how)?;
        let mut clients = Vec::new();
        let before = resident_bytes_of(server.child.id())?;
        for _ in 0..CONNECTIONS {
            let mut stream = server.connect()?;
            stream.write_all(&512_u32.to_ne_bytes())?;
            stream.write_all(&1_u32.to_ne_bytes())?;
            clients.push(stream);
        }
        send_all(&clients, 512, 1, 5)?;
        windlass::sleep(Duration::from_millis(500));
        let bytes = resident_bytes_of(server.child.id())?.saturating_sub(before);
        println!("idle_served {name}: bytes={}", bytes / CONNECTIONS as u64);
    }
    Ok(())
}

fn storm(rounds: usize) -> io::Result<()> {
    let (one, each) = (Server::start(How::Accept)?, Server::start(How::AcceptEach)?);
    // A byte, and the connection is closed; or a request, and an answer.
    for (title, bytes) in [("storm_close", 1), ("storm_request", 512)] {
        race_servers(
            title,
            rounds,
            8_000,
            &[
                ("accept", &one, &|ops| knock_with(one.addr, bytes, ops)),
                ("accept, several", &each, &|ops| {
                    knock_with(each.addr, bytes, ops)
                }),
            ],
        )?;
    }
    Ok(())
}

/// Connects so often, by 32 goroutines, sends a request, and reads to the end.
fn knock_with(addr: SocketAddr, bytes: usize, ops: usize) -> io::Result<()> {
    let request = &vec![b'.'; bytes][..];
    windlass::scope(|s| {
        for _ in 0..32 {
            s.spawn(move || {
                for _ in 0..ops / 32 {
                    let mut stream = TcpOptions::new()
                        .linger(Duration::ZERO)
                        .connect(addr)
                        .unwrap();
                    stream.write_all(request).unwrap();
                    let mut buf = [0; 1024];
                    while stream.read(&mut buf).is_ok_and(|n| n > 0) {}
                }
            });
        }
    });
    Ok(())
}

fn accept(rounds: usize, workers: usize) -> io::Result<()> {
    let serve = |listeners: Vec<TcpListener>, each: usize, accept_all: fn(&TcpListener)| {
        let addr = listeners[0].local_addr()?;
        for listener in listeners {
            let listener = Arc::new(listener);
            for _ in 0..each {
                let listener = Arc::clone(&listener);
                windlass::spawn(move || accept_all(&listener));
            }
        }
        Ok::<_, io::Error>(addr)
    };
    let listener = || TcpListener::bind(ANY_PORT).map(|listener| vec![listener]);
    let one = serve(listener()?, 1, one_by_one)?;
    let shared = serve(listener()?, workers, one_by_one)?;
    let listeners = TcpOptions::new().listen_group(ANY_PORT, workers)?;
    let group = serve(listeners, 1, one_by_one)?;
    race(
        "accept",
        rounds,
        8_000,
        &[
            ("one goroutine", &|ops| knock(one, ops)),
            ("one listener", &|ops| knock(shared, ops)),
            ("a listener each", &|ops| knock(group, ops)),
        ],
    )
}

fn one_by_one(listener: &TcpListener) {
    while let Ok((stream, _)) = listener.accept() {
        windlass::spawn(move || greet(stream));
    }
}

/// The little that a connection is for.
fn greet(mut stream: TcpStream) {
    let _ = stream.write_all(b"!");
    let _ = stream.shutdown(Shutdown::Write);
    let _ = stream.read(&mut [0]);
}

/// Connects so often, by 32 goroutines.
fn knock(addr: SocketAddr, ops: usize) -> io::Result<()> {
    let left = AtomicUsize::new(ops);
    let next = || {
        let take = |left: usize| left.checked_sub(1);
        left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
            .is_ok()
    };
    windlass::scope(|s| {
        for _ in 0..32 {
            s.spawn(|| {
                while next() {
                    // Closed with a reset: else thousands of ports would wait for late packets.
                    let stream = TcpOptions::new()
                        .linger(Duration::ZERO)
                        .connect(addr)
                        .unwrap();
                    (&stream).read_exact(&mut [0]).unwrap();
                }
            });
        }
    });
    Ok(())
}

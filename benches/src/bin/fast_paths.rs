//! When do the calls beside `std`'s pay? CPU time of this process, both ends included,
//! for each operation; contenders in turn, medians of the rounds, least and most.
//!
//! - `echo`: 64 bytes there and back on 64 and 1,000 connections; the server reads into
//!   a buffer of its own, calls `recv_owned`, or takes what comes from `recv_stream`
//! - `stream`: messages of 4 KiB to 1 MiB on one connection; the reader reads into a buffer of
//!   16 KiB or of 256 KiB, calls `recv_owned`, or takes them from `recv_stream`
//! - `idle-read`, `idle-owned`: memory of a connection whose goroutine waits for its first
//!   bytes, with a buffer of 16 KiB, or in `recv_owned`
//! - `send`: `write` and `send_zc` of messages of 16 KiB to 1 MiB, to a reader in this
//!   process, or with `--to` to a `fast_paths sink` on another machine: over loopback the
//!   kernel copies all the same
//! - `accept`: connections made and closed; one goroutine at one listener, which accepts one by
//!   one or takes them from `accept_stream`, one for each worker at one listener, one for each
//!   worker at a listener of its own
#![expect(clippy::print_stdout, reason = "the result")]

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use clap::{Parser, ValueEnum};
use windlass::net::{TcpListener, TcpOptions, TcpStream, UnixStream};
use windlass_benches::process::{own_cpu_time, resident_bytes};
use windlass_benches::runtimes;

#[derive(Parser)]
struct Args {
    what: What,
    #[arg(long, default_value_t = runtimes::workers())]
    workers: usize,
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Where a sink listens.
    #[arg(long)]
    to: Option<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum What {
    Echo,
    Stream,
    IdleRead,
    IdleOwned,
    Send,
    Accept,
    /// Reads what comes, and prints its address first.
    Sink,
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
        What::Send => send(args.rounds, args.to.as_deref()),
        What::Accept => accept(args.rounds, args.workers),
        What::Sink => sink(&TcpListener::bind("0.0.0.0:0")?),
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

fn serve_stream(stream: TcpStream) -> io::Result<()> {
    for bytes in stream.recv_stream() {
        (&stream).write_all(&bytes?)?;
    }
    Ok(())
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
        let streamed = open(serve_stream)?;
        race(
            &format!("echo_{connections}"),
            rounds,
            ECHOES,
            &[
                ("read", &|ops| ask(&read, ops)),
                ("recv_owned", &|ops| ask(&owned, ops)),
                ("recv_stream", &|ops| ask(&streamed, ops)),
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
    let readers: [(&str, ReadAll); 4] = [
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
        ("recv_stream", |stream, took| {
            stream
                .recv_stream()
                .map_while(Result::ok)
                .for_each(|bytes| took(bytes.len()));
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

fn send(rounds: usize, to: Option<&str>) -> io::Result<()> {
    for bytes in [16 << 10, 64 << 10, 256 << 10, 1 << 20] {
        let message = vec![b'.'; bytes];
        let connect = || match to {
            Some(to) => TcpStream::connect(to),
            None => {
                let (client, server) = pair()?;
                windlass::spawn(move || read_all(server));
                Ok(client)
            }
        };
        let (plain, zc) = (connect()?, connect()?);
        race(
            &format!("send_{bytes}"),
            rounds,
            (256 << 20) / bytes,
            &[
                ("write", &|ops| {
                    (0..ops).try_for_each(|_| (&plain).write_all(&message))
                }),
                ("send_zc", &|ops| {
                    (0..ops).try_for_each(|_| {
                        let mut rest = &message[..];
                        while !rest.is_empty() {
                            rest = &rest[zc.send_zc(rest)?..];
                        }
                        Ok(())
                    })
                }),
            ],
        )?;
    }
    Ok(())
}

fn read_all(mut stream: TcpStream) {
    let mut buf = vec![0; 256 << 10];
    while stream.read(&mut buf).is_ok_and(|n| n > 0) {}
}

fn sink(listener: &TcpListener) -> io::Result<()> {
    println!("{}", listener.local_addr()?);
    for stream in listener.incoming() {
        let stream = stream?;
        windlass::spawn(move || read_all(stream));
    }
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
    let stays = serve(listener()?, 1, as_a_stream)?;
    let shared = serve(listener()?, workers, one_by_one)?;
    let listeners = TcpOptions::new().listen_group(ANY_PORT, workers)?;
    let group = serve(listeners, 1, one_by_one)?;
    race(
        "accept",
        rounds,
        8_000,
        &[
            ("one goroutine", &|ops| knock(one, ops)),
            ("accept_stream", &|ops| knock(stays, ops)),
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

fn as_a_stream(listener: &TcpListener) {
    for stream in listener.accept_stream().map_while(Result::ok) {
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
fn knock(addr: std::net::SocketAddr, ops: usize) -> io::Result<()> {
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

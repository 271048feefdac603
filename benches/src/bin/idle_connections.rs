//! How much memory does an idle connection take, and how much CPU time its next request?
//!
//! - `requests`: `Graceful::serve_requests`, without a stack between two requests
//! - `parked`: `Graceful::serve` with `Member::idle`, or a task for each connection
//!
//! A process of its own connects over a Unix socket, as many times as this process may have
//! descriptors, if no number is given. Printed is what the server's process has in memory more than before, divided by
//! the connections: of those that have sent nothing, without and with the page tables, and of those that have sent 5
//! requests each. Then the CPU time of the server for each of 10 more requests: the clients send 64 requests on 64
//! connections, and then wait for the answers. The kernel's memory for sockets and polls is not counted.
//!
//! `idle_connections requests windlass` prints `bytes=.. with_tables=.. after=.. cpu_us=.. connections=..`
#![expect(clippy::print_stdout, reason = "the result")]

use std::env;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream as StdStream;
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use rustix::process::{Resource, getrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use windlass::net::{Graceful, Next, UnixListener, UnixStream};
use windlass_benches::process::{own_cpu_time, page_table_bytes, resident_bytes};
use windlass_benches::runtimes::{self, Name};

#[derive(Parser)]
struct Args {
    server: Server,
    runtime: Name,
    #[arg(long, default_value_t = runtimes::workers())]
    workers: usize,
    #[arg(long)]
    connections: Option<usize>,
    /// Connect to this server instead of being one.
    #[arg(long, hide = true)]
    to: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Server {
    Requests,
    Parked,
}

/// Descriptors for other things than connections.
const SPARE: u64 = 300;
const WARM_UP: usize = 5;
const ROUNDS: usize = 10;
const BATCH: usize = 64;

fn main() -> io::Result<()> {
    let args = Args::parse();
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(1 << 20);
    let n = args
        .connections
        .unwrap_or(usize::try_from(limit.saturating_sub(SPARE)).unwrap_or(usize::MAX));
    if let Some(path) = &args.to {
        return clients(path, n);
    }
    let path = env::temp_dir().join(format!("idle_connections.{}", process::id()));
    match args.runtime {
        Name::Windlass => runtimes::windlass(args.workers).run(|| windlass(args.server, &path, n)),
        Name::Tokio => runtimes::tokio(args.workers).run(tokio(path, n)),
        other => other.has_no_twin(),
    }
}

/// Connects `n` times. Then makes one request on each connection for each line that is read.
fn clients(path: &Path, n: usize) -> io::Result<()> {
    let connect = |_| StdStream::connect(path);
    let mut streams = (0..n).map(connect).collect::<io::Result<Vec<_>>>()?;
    println!("connected");
    for line in io::stdin().lines() {
        line?;
        for batch in streams.chunks_mut(BATCH) {
            for stream in batch.iter_mut() {
                stream.write_all(b"?")?;
            }
            for stream in batch {
                stream.read_exact(&mut [0])?;
            }
        }
        println!("answered");
    }
    Ok(())
}

fn windlass(server: Server, path: &Path, n: usize) -> io::Result<()> {
    let listener = UnixListener::bind(path)?;
    measure(path, n)?;
    let graceful = Graceful::new();
    match server {
        Server::Requests => {
            let answer = |stream: &UnixStream, (): &mut ()| {
                Ok(match answer(stream)? {
                    true => Next::Request,
                    false => Next::Close,
                })
            };
            let patience = Duration::from_secs(3600);
            graceful.serve_requests(listener, patience, |_| Ok(()), answer)
        }
        Server::Parked => graceful.serve(listener, |stream, member| {
            while let Ok(Some(true)) = member.idle(|| answer(&stream)) {}
        }),
    }
}

/// Answers a request. `false` at the end of the stream.
fn answer(mut stream: &UnixStream) -> io::Result<bool> {
    let mut byte = [0];
    if stream.read(&mut byte)? == 0 {
        return Ok(false);
    }
    stream.write_all(b"!").map(|()| true)
}

async fn tokio(path: PathBuf, n: usize) -> io::Result<()> {
    let listener = tokio::net::UnixListener::bind(&path)?;
    measure(&path, n)?;
    loop {
        let (mut stream, _) = listener.accept().await?;
        tokio::spawn(async move {
            let mut byte = [0];
            while stream.read(&mut byte).await? != 0 {
                stream.write_all(b"!").await?;
            }
            io::Result::Ok(())
        });
    }
}

/// Starts the clients, and ends the process with the result.
fn measure(path: &Path, n: usize) -> io::Result<()> {
    let before = (resident_bytes()?, page_table_bytes()?);
    let clients = Command::new(env::current_exe()?)
        .args(env::args_os().skip(1).take(2))
        .arg("--connections")
        .arg(n.to_string())
        .arg("--to")
        .arg(path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let path = path.to_owned();
    thread::spawn(move || {
        let result = print(clients, before, n);
        let _ = fs::remove_file(path);
        match result {
            Ok(()) => process::exit(0),
            Err(error) => panic!("{error}"),
        }
    });
    Ok(())
}

fn print(mut clients: Child, before: (u64, u64), n: usize) -> io::Result<()> {
    let gone = || io::Error::other("the clients have ended");
    let mut lines = BufReader::new(clients.stdout.take().ok_or_else(gone)?).lines();
    let mut asks = clients.stdin.take().ok_or_else(gone)?;
    lines.next().ok_or_else(gone)??;
    // The last are still being accepted.
    thread::sleep(Duration::from_secs(1));
    let more = |now: u64, before: u64| now.saturating_sub(before) as f64 / n as f64;
    let bytes = more(resident_bytes()?, before.0);
    let with_tables = bytes + more(page_table_bytes()?, before.1);
    let mut rounds = |n_rounds| {
        for _ in 0..n_rounds {
            asks.write_all(b"\n")?;
            lines.next().ok_or_else(gone)??;
        }
        io::Result::Ok(())
    };
    rounds(WARM_UP)?;
    thread::sleep(Duration::from_secs(1));
    let after = more(resident_bytes()?, before.0);
    let cpu_before = own_cpu_time();
    rounds(ROUNDS)?;
    let cpu_us = (own_cpu_time() - cpu_before).as_secs_f64() * 1e6 / (ROUNDS * n) as f64;
    println!(
        "bytes={bytes:.0} with_tables={with_tables:.0} after={after:.0} cpu_us={cpu_us:.2} connections={n}"
    );
    clients.kill()
}

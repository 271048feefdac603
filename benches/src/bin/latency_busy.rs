//! Does a network event get through to its task while all workers are busy?
//!
//! One task sends a byte over loopback to another and waits for it to come back:
//! first on an idle runtime, then while four pairs of tasks per worker wake each
//! other in turn without end, so that no run queue is ever empty and nothing ever
//! waits for the network but these two.
//!
//! `latency_busy windlass` prints `idle_p50_us=.. idle_p99_us=..`, then the same
//! for `busy`, which is `inf` where a byte did not come back for ten seconds: may
//! looks at the network only when a worker has nothing else to do.
#![expect(clippy::print_stdout, reason = "the result")]

use std::io::{self, Read, Write};
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ::tokio::io::{AsyncReadExt, AsyncWriteExt};
use ::tokio::sync::Notify;
use clap::Parser;
use windlass_benches::latencies::Latencies;
use windlass_benches::runtimes::{self, Name};
use windlass_benches::workloads::echo;

const PAIRS_PER_WORKER: usize = 4;
const SETTLE: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_secs(10);
const ANY_PORT: &str = "127.0.0.1:0";

#[derive(Parser)]
struct Args {
    runtime: Name,
    #[arg(long, default_value_t = runtimes::workers())]
    workers: usize,
    /// For each of the two states.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
}

fn main() -> io::Result<()> {
    let Args {
        runtime,
        workers,
        seconds,
    } = Args::parse();
    let duration = Duration::from_secs_f64(seconds);
    let pairs = workers * PAIRS_PER_WORKER;
    match runtime {
        Name::Windlass => runtimes::windlass(workers).run(move || windlass(pairs, duration)),
        Name::Tokio => runtimes::tokio(workers).run(tokio(pairs, duration)),
        Name::May => runtimes::may(workers).run(move || may(pairs, duration)),
        other => other.has_no_twin(),
    }
}

fn print(state: &str, latencies: &Latencies) {
    let (p50, p99) = (latencies.quantile_us(0.50), latencies.quantile_us(0.99));
    println!("{state}_p50_us={p50:.1} {state}_p99_us={p99:.1}");
}

/// Ends the program, on a thread of its own, if the busy runtime does not answer.
#[expect(
    clippy::disallowed_methods,
    reason = "a thread that belongs to no runtime"
)]
fn give_up_after(patience: Duration) {
    thread::spawn(move || {
        thread::sleep(patience);
        println!("busy_p50_us=inf busy_p99_us=inf");
        process::exit(0);
    });
}

/// Tells the pairs to end. Who sees it wakes the other one once more, for it to
/// see it too.
type Stop = Arc<AtomicBool>;

fn stopped(stop: &Stop) -> bool {
    stop.load(Ordering::Relaxed)
}

/// Round trips of one byte, one after the other, for `duration`.
fn round_trips(mut stream: impl Read + Write, duration: Duration) -> io::Result<Latencies> {
    let mut latencies = Latencies::new();
    let begin = Instant::now();
    while begin.elapsed() < duration {
        let start = Instant::now();
        stream.write_all(b".")?;
        stream.read_exact(&mut [0])?;
        latencies.record(start.elapsed());
    }
    Ok(latencies)
}

fn windlass(pairs: usize, duration: Duration) -> io::Result<()> {
    use windlass::net::{TcpListener, TcpStream};
    use windlass::task;

    let listener = TcpListener::bind(ANY_PORT)?;
    let client = TcpStream::connect(listener.local_addr()?)?;
    let (server, _) = listener.accept()?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    windlass::spawn(move || echo::serve(server));

    windlass::sleep(SETTLE);
    print("idle", &round_trips(&client, duration)?);
    give_up_after(duration + PATIENCE);

    let stop = Stop::default();
    let handles: Vec<_> = (0..pairs)
        .map(|_| {
            let stop = Stop::clone(&stop);
            windlass::spawn(move || {
                let first = task::current();
                let handle = windlass::spawn({
                    let stop = Stop::clone(&stop);
                    move || {
                        while !stopped(&stop) {
                            task::park();
                            first.unpark();
                        }
                        first.unpark();
                    }
                });
                let second = handle.task();
                loop {
                    second.unpark();
                    if stopped(&stop) {
                        break;
                    }
                    task::park();
                }
                handle.join().unwrap();
            })
        })
        .collect();
    windlass::sleep(SETTLE);
    print("busy", &round_trips(&client, duration)?);
    stop.store(true, Ordering::Relaxed);
    for handle in handles {
        handle.join().unwrap();
    }
    Ok(())
}

async fn tokio(pairs: usize, duration: Duration) -> io::Result<()> {
    use ::tokio::net::{TcpListener, TcpStream};

    async fn round_trips(stream: &mut TcpStream, duration: Duration) -> io::Result<Latencies> {
        let mut latencies = Latencies::new();
        let begin = Instant::now();
        while begin.elapsed() < duration {
            let start = Instant::now();
            stream.write_all(b".").await?;
            stream.read_exact(&mut [0]).await?;
            latencies.record(start.elapsed());
        }
        Ok(latencies)
    }

    let listener = TcpListener::bind(ANY_PORT).await?;
    let mut client = TcpStream::connect(listener.local_addr()?).await?;
    let (server, _) = listener.accept().await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    ::tokio::spawn(echo::serve_tokio(server));

    ::tokio::time::sleep(SETTLE).await;
    print("idle", &round_trips(&mut client, duration).await?);
    give_up_after(duration + PATIENCE);

    let stop = Stop::default();
    let handles: Vec<_> = (0..pairs)
        .map(|_| {
            let stop = Stop::clone(&stop);
            ::tokio::spawn(async move {
                let first = Arc::new(Notify::new());
                let second = Arc::new(Notify::new());
                let handle = ::tokio::spawn({
                    let (stop, first, second) = (stop.clone(), first.clone(), second.clone());
                    async move {
                        while !stopped(&stop) {
                            second.notified().await;
                            first.notify_one();
                        }
                        first.notify_one();
                    }
                });
                loop {
                    second.notify_one();
                    if stopped(&stop) {
                        break;
                    }
                    first.notified().await;
                }
                handle.await.unwrap();
            })
        })
        .collect();
    ::tokio::time::sleep(SETTLE).await;
    print("busy", &round_trips(&mut client, duration).await?);
    stop.store(true, Ordering::Relaxed);
    for handle in handles {
        handle.await.unwrap();
    }
    Ok(())
}

fn may(pairs: usize, duration: Duration) -> io::Result<()> {
    use ::may::coroutine;
    use ::may::net::{TcpListener, TcpStream};

    let listener = TcpListener::bind(ANY_PORT)?;
    let mut client = TcpStream::connect(listener.local_addr()?)?;
    let (server, _) = listener.accept()?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    runtimes::go(move || echo::serve(server));

    coroutine::sleep(SETTLE);
    print("idle", &round_trips(&mut client, duration)?);
    give_up_after(duration + PATIENCE);

    let stop = Stop::default();
    let handles: Vec<_> = (0..pairs)
        .map(|_| {
            let stop = Stop::clone(&stop);
            runtimes::go(move || {
                let first = coroutine::current();
                let second = runtimes::go({
                    let stop = Stop::clone(&stop);
                    move || {
                        while !stopped(&stop) {
                            coroutine::park();
                            first.unpark();
                        }
                        first.unpark();
                    }
                });
                loop {
                    second.coroutine().unpark();
                    if stopped(&stop) {
                        break;
                    }
                    coroutine::park();
                }
                second.join().unwrap();
            })
        })
        .collect();
    coroutine::sleep(SETTLE);
    print("busy", &round_trips(&mut client, duration)?);
    stop.store(true, Ordering::Relaxed);
    for handle in handles {
        handle.join().unwrap();
    }
    Ok(())
}

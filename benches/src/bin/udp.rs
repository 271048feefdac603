//! UDP over loopback: the CPU time of a datagram of 1,200 bytes, from a sender to a receiver in one runtime.
//!
//! The sender sends a window of datagrams, and waits until the receiver has answered with one; so none is lost.
//! windlass sends them one by one, in batches (`send_many`, `recv_many`), and in batches that the kernel cuts and joins
//! (GSO, GRO); tokio has calls for one datagram only. The contenders take turns in one process. `cpu_ns` is the
//! CPU time of the whole process per datagram, the median of the rounds, and `ns` the wall time.
#![expect(clippy::print_stdout, reason = "the result")]

use std::time::{Duration, Instant};

use clap::Parser;
use windlass::net::{UdpRecv, UdpSend, UdpSocket};
use windlass_benches::process;
use windlass_benches::runtimes::{self, Tokio};

/// As QUIC sends before it knows the path.
const BYTES: usize = 1200;
/// What a message has that the kernel cuts.
const SEGMENTS: usize = 32;
/// Buffers of a receive.
const BUFFERS: usize = 32;
const ANY_PORT: &str = "127.0.0.1:0";

#[derive(Parser)]
struct Args {
    #[arg(long, default_value_t = runtimes::workers())]
    workers: usize,
    /// The windows of a round.
    #[arg(long, default_value_t = 5_000)]
    windows: usize,
    /// Datagrams that are on their way at most, a power of two: the default receive buffer has room for 64.
    #[arg(long, default_value_t = 64)]
    window: usize,
    #[arg(long, default_value_t = 7)]
    rounds: usize,
}

/// How windlass makes its calls.
#[derive(Clone, Copy, PartialEq)]
enum Calls {
    OneByOne,
    Batches,
    Segments,
}

fn main() {
    let args = Args::parse();
    let of_windlass = runtimes::windlass(args.workers);
    let of_tokio = runtimes::tokio(args.workers);
    let by = |calls| windlass(&of_windlass, calls, &args);
    let contenders: [(&str, &dyn Fn()); 4] = [
        ("tokio, one by one", &|| tokio(&of_tokio, &args)),
        ("windlass, one by one", &|| by(Calls::OneByOne)),
        ("windlass, batches", &|| by(Calls::Batches)),
        ("windlass, batches with GSO and GRO", &|| {
            by(Calls::Segments)
        }),
    ];
    let mut figures = vec![Vec::new(); contenders.len()];
    for _ in 0..args.rounds {
        for ((_, run), figures) in contenders.iter().zip(&mut figures) {
            let (cpu, start) = (process::own_cpu_time(), Instant::now());
            run();
            figures.push((process::own_cpu_time() - cpu, start.elapsed()));
        }
    }
    let per_datagram =
        |time: Duration| time.as_nanos() as f64 / (args.windows * args.window) as f64;
    for ((name, _), mut figures) in contenders.iter().zip(figures) {
        figures.sort();
        let (cpu, _) = figures[figures.len() / 2];
        figures.sort_by_key(|&(_, wall)| wall);
        let (_, wall) = figures[figures.len() / 2];
        println!(
            "{name}: cpu_ns={:.0} ns={:.0}",
            per_datagram(cpu),
            per_datagram(wall)
        );
    }
}

fn windlass(runtime: &windlass::Runtime, calls: Calls, args: &Args) {
    let (windows, window_len) = (args.windows, args.window);
    runtime.run(move || {
        let pair = [0, 1].map(|_| UdpSocket::bind(ANY_PORT).unwrap());
        let [a, b] = pair;
        a.connect(b.local_addr().unwrap()).unwrap();
        b.connect(a.local_addr().unwrap()).unwrap();
        b.set_gro(calls == Calls::Segments).unwrap();
        let sends = windlass::spawn(move || {
            let segments = SEGMENTS.min(window_len);
            let bytes = vec![b'.'; segments * BYTES];
            let one = UdpSend::to_peer(&bytes[..BYTES]);
            let window = match calls {
                Calls::Segments => {
                    vec![UdpSend::to_peer(&bytes).segments(BYTES as u16); window_len / segments]
                }
                _ => vec![one; window_len],
            };
            for _ in 0..windows {
                if calls == Calls::OneByOne {
                    for _ in 0..window_len {
                        a.send(&bytes[..BYTES]).unwrap();
                    }
                } else {
                    let mut rest = &window[..];
                    while !rest.is_empty() {
                        rest = &rest[a.send_many(rest).unwrap()..];
                    }
                }
                a.recv(&mut [0]).unwrap();
            }
        });
        let len = if calls == Calls::Segments {
            65_535
        } else {
            BYTES
        };
        let mut room = vec![0; len * BUFFERS];
        for _ in 0..windows {
            let mut n = 0;
            while n < window_len {
                if calls == Calls::OneByOne {
                    b.recv(&mut room[..BYTES]).unwrap();
                    n += 1;
                } else {
                    let mut bufs: Vec<_> = room.chunks_mut(len).map(UdpRecv::new).collect();
                    let received = b.recv_many(&mut bufs).unwrap();
                    n += bufs[..received]
                        .iter()
                        .map(|buf| buf.packets().count())
                        .sum::<usize>();
                }
            }
            b.send(b"!").unwrap();
        }
        sends.join().unwrap();
    });
}

fn tokio(runtime: &Tokio, args: &Args) {
    use ::tokio::net::UdpSocket;

    let (windows, window_len) = (args.windows, args.window);
    runtime.run(async move {
        let a = UdpSocket::bind(ANY_PORT).await.unwrap();
        let b = UdpSocket::bind(ANY_PORT).await.unwrap();
        a.connect(b.local_addr().unwrap()).await.unwrap();
        b.connect(a.local_addr().unwrap()).await.unwrap();
        let sends = ::tokio::spawn(async move {
            let bytes = vec![b'.'; BYTES];
            for _ in 0..windows {
                for _ in 0..window_len {
                    a.send(&bytes).await.unwrap();
                }
                a.recv(&mut [0]).await.unwrap();
            }
        });
        let mut buf = vec![0; BYTES];
        for _ in 0..windows {
            for _ in 0..window_len {
                b.recv(&mut buf).await.unwrap();
            }
            b.send(b"!").await.unwrap();
        }
        sends.await.unwrap();
    });
}

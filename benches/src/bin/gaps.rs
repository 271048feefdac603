//! Programs at which Go's scheduler is slow, in the same shapes as in benches/go/gaps.go.
//!
//! Each probe prints times in µs, `p50_us=.. p99_us=..` and the like. Go is the only
//! peer: tokio and may are in the other programs.
//!
//! `gaps echo-pairs-2 windlass`
#![expect(clippy::print_stdout, reason = "the result")]

use std::hint::{black_box, spin_loop};
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use windlass::channel::{self, Sender};
use windlass::net::{TcpListener, TcpStream};
use windlass::{sleep, spawn, task, yield_now};
use windlass_benches::latencies::Latencies;
use windlass_benches::process;
use windlass_benches::runtimes::{self, Name};
use windlass_benches::workloads::echo;

// The sizes are those of benches/go/gaps.go.
const SETTLE: Duration = Duration::from_millis(200);
const DURATION: Duration = Duration::from_secs(2);
const SLEEPS_US: [u64; 5] = [50, 200, 800, 1_500, 2_900];
const WAKES: usize = 2_000;
const STAYS_BUSY: Duration = Duration::from_micros(500);
const ROUND_TRIPS: u64 = 50_000;
const LOOP_STEPS: u64 = 2_000;
const FORK_DEPTH: u32 = 10;

#[derive(Parser)]
struct Args {
    probe: Probe,
    runtime: Name,
    #[arg(long, default_value_t = runtimes::workers())]
    workers: usize,
}

#[derive(Clone, Copy, ValueEnum)]
enum Probe {
    /// A byte over loopback and back, beside two pairs per P that wake each other.
    #[value(name = "echo-pairs-2")]
    EchoPairs2,
    /// As before, with four pairs per P.
    #[value(name = "echo-pairs-4")]
    EchoPairs4,
    /// A byte over loopback and back, beside two loops per P that yield every few µs.
    #[value(name = "echo-yields-2")]
    EchoYields2,
    /// As before, with four loops per P.
    #[value(name = "echo-yields-4")]
    EchoYields4,
    /// How late sleeps of 50 µs to 2.9 ms are when nothing else goes on.
    Sleeps,
    /// From a wake to the run on another P, while the waker stays busy.
    WakeElsewhere,
    /// There and back over channels, to a peer that has locked its thread.
    LockedPeer,
    /// How late a sleep of 1 ms is beside one goroutine per P that only computes.
    #[value(name = "sleep-hogs-1")]
    SleepHogs1,
    /// As before, with two per P.
    #[value(name = "sleep-hogs-2")]
    SleepHogs2,
    /// As before, with four per P.
    #[value(name = "sleep-hogs-4")]
    SleepHogs4,
    /// How late a sleep of 1 ms is beside one goroutine per P that computes by `join`.
    #[value(name = "sleep-forks-1")]
    SleepForks1,
    /// As before, with two per P.
    #[value(name = "sleep-forks-2")]
    SleepForks2,
}

fn main() {
    let Args {
        probe,
        runtime,
        workers,
    } = Args::parse();
    if runtime != Name::Windlass {
        runtime.has_no_twin();
    }
    let rt = runtimes::windlass(workers);
    rt.run(move || match probe {
        Probe::EchoPairs2 => beside_load(2 * workers, pair),
        Probe::EchoPairs4 => beside_load(4 * workers, pair),
        Probe::EchoYields2 => beside_load(2 * workers, yields),
        Probe::EchoYields4 => beside_load(4 * workers, yields),
        Probe::Sleeps => sleeps(),
        Probe::WakeElsewhere => wake_elsewhere(),
        Probe::LockedPeer => locked_peer(),
        Probe::SleepHogs1 => beside_hogs(workers, compute),
        Probe::SleepHogs2 => beside_hogs(2 * workers, compute),
        Probe::SleepHogs4 => beside_hogs(4 * workers, compute),
        Probe::SleepForks1 => beside_hogs(workers, |n| n ^ fork(FORK_DEPTH, n)),
        Probe::SleepForks2 => beside_hogs(2 * workers, |n| n ^ fork(FORK_DEPTH, n)),
    });
}

/// A load ends when it is told to, so that the program can.
type Stop = Arc<AtomicBool>;

fn print(latencies: &Latencies) {
    println!(
        "p50_us={:.1} p99_us={:.1} max_us={:.1}",
        latencies.quantile_us(0.50),
        latencies.quantile_us(0.99),
        latencies.quantile_us(1.0),
    );
}

/// Echo round trips of one byte, beside `n` loads of a kind.
fn beside_load(n: usize, load: fn(&Stop)) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port should be free");
    let address = listener.local_addr().expect("it is bound");
    let mut client = TcpStream::connect(address).expect("the listener is there");
    let (server, _) = listener.accept().expect("the client has connected");
    client.set_nodelay(true).expect("it is a TCP socket");
    server.set_nodelay(true).expect("it is a TCP socket");
    spawn(move || echo::serve(server));
    let stop = Stop::default();
    (0..n).for_each(|_| load(&stop));
    sleep(SETTLE);
    let mut latencies = Latencies::new();
    let begin = Instant::now();
    while begin.elapsed() < DURATION {
        let start = Instant::now();
        client.write_all(b".").expect("the server reads");
        client.read_exact(&mut [0]).expect("the server answers");
        latencies.record(start.elapsed());
    }
    stop.store(true, Ordering::Relaxed);
    print(&latencies);
}

/// Two goroutines that send each other a token over channels of capacity 0.
fn pair(stop: &Stop) {
    let (there, receiver) = channel::bounded(0);
    let (sender, back) = channel::bounded(0);
    let stop = Stop::clone(stop);
    spawn(move || receiver.iter().try_for_each(|()| sender.send(())));
    spawn(
        move || {
            while !stop.load(Ordering::Relaxed) && there.send(()).is_ok() && back.recv().is_ok() {}
        },
    );
}

/// A goroutine that computes for some µs and yields.
fn yields(stop: &Stop) {
    let stop = Stop::clone(stop);
    spawn(move || {
        let mut n = 1;
        while !stop.load(Ordering::Relaxed) {
            n = compute(n);
            yield_now();
        }
        black_box(n);
    });
}

fn compute(mut n: u64) -> u64 {
    for _ in 0..LOOP_STEPS {
        n = black_box(n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    }
    n
}

fn sleeps() {
    for us in SLEEPS_US {
        let length = Duration::from_micros(us);
        let late = late(length, DURATION / SLEEPS_US.len() as u32);
        let (p50, p99) = (late.quantile_us(0.50), late.quantile_us(0.99));
        print!("late_{us}_p50_us={p50:.1} late_{us}_p99_us={p99:.1} ");
    }
    println!();
}

/// How late sleeps of that length are.
fn late(length: Duration, duration: Duration) -> Latencies {
    let mut latencies = Latencies::new();
    let begin = Instant::now();
    while begin.elapsed() < duration {
        let start = Instant::now();
        sleep(length);
        latencies.record(start.elapsed().saturating_sub(length));
    }
    latencies
}

/// The waker sends the time and computes on, so another P has to come for the woken one.
fn wake_elsewhere() {
    let (sender, receiver) = channel::bounded::<Instant>(1);
    let woken = spawn(move || {
        let mut latencies = Latencies::new();
        for sent in receiver {
            latencies.record(sent.elapsed());
        }
        latencies
    });
    sleep(SETTLE);
    let waker = spawn(move || wake_and_stay(&sender));
    waker.join().expect("it does not panic");
    print(&woken.join().expect("it does not panic"));
}

fn wake_and_stay(sender: &Sender<Instant>) {
    for _ in 0..WAKES {
        let now = Instant::now();
        sender.send(now).expect("the other one receives");
        while now.elapsed() < STAYS_BUSY {
            spin_loop();
        }
    }
}

fn locked_peer() {
    let (there, receiver) = channel::bounded::<u64>(0);
    let (sender, back) = channel::bounded(0);
    let peer = spawn(move || {
        let _tied = task::lock_thread();
        receiver.iter().try_for_each(|n| sender.send(n))
    });
    let round_trips = |n| {
        for i in 0..n {
            there.send(i).expect("the peer receives");
            back.recv().expect("the peer answers");
        }
    };
    round_trips(ROUND_TRIPS / 10); // warm
    let (cpu, start) = (process::own_cpu_time(), Instant::now());
    round_trips(ROUND_TRIPS);
    let (elapsed, cpu) = (start.elapsed(), process::own_cpu_time() - cpu);
    println!(
        "ns={:.1} cpu_ns={:.1}",
        elapsed.as_nanos() as f64 / ROUND_TRIPS as f64,
        cpu.as_nanos() as f64 / ROUND_TRIPS as f64,
    );
    drop(there);
    peer.join()
        .expect("it does not panic")
        .expect("all was received");
}

/// Computes at the leaves of a tree of forks.
fn fork(depth: u32, n: u64) -> u64 {
    if depth == 0 {
        return compute(n);
    }
    let (a, b) = windlass::join(|| fork(depth - 1, n), || fork(depth - 1, n));
    a ^ b
}

/// How late sleeps of 1 ms are beside `n` goroutines that compute and never wait.
fn beside_hogs(n: usize, compute: fn(u64) -> u64) {
    let stop = Stop::default();
    for _ in 0..n {
        let stop = Stop::clone(&stop);
        spawn(move || {
            let mut n = 1;
            while !stop.load(Ordering::Relaxed) {
                n = compute(n);
            }
            black_box(n);
        });
    }
    sleep(SETTLE);
    let late = late(Duration::from_millis(1), DURATION);
    stop.store(true, Ordering::Relaxed);
    print(&late);
}

//! The hot paths: each row repeats one of them.

use std::future::poll_fn;
use std::hint::black_box;
use std::io::{Read, Write};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use windlass::channel;
use windlass::fs;
use windlass::net::{TcpListener, TcpStream};
use windlass::sync::Mutex;
use windlass::time::sleep_until;
use windlass::{Builder, future, spawn, task, yield_now};

/// A hot path.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    /// Repeats it so often.
    pub(crate) repeat: fn(u64),
    /// How often it is repeated in the shorter of two runs; three times that in the longer.
    pub(crate) times: u64,
    /// By how many percent its count may differ. More where the kernel or the clock has a say.
    pub(crate) tolerance: f64,
}

const fn row(name: &'static str, times: u64, repeat: fn(u64)) -> Row {
    Row {
        name,
        repeat,
        times,
        tolerance: 2.0,
    }
}

/// Each with one P, so that nothing is stolen and nobody looks for work.
pub(crate) const ROWS: &[Row] = &[
    row("spawn and join", 5_000, spawn_and_join),
    row("spawn and join 100", 100, spawn_and_join_100),
    row("yield, 10 goroutines", 5_000, yield_among_10),
    row("ping-pong by park and unpark", 5_000, park_and_unpark),
    row("future, wake and poll", 5_000, future_woken),
    row("unbuffered channel, round trip", 5_000, unbuffered),
    row("buffered channel, send and receive", 10_000, buffered),
    row("mutex, uncontended", 20_000, mutex_alone),
    row("mutex, held by another", 10_000, mutex_contended),
    Row {
        tolerance: 4.0,
        ..row("echo over TCP, request", 1_000, echo)
    },
    row("cached read of 4 KiB", 10_000, cached_read),
    Row {
        tolerance: 4.0,
        ..row("sleep, 1,000 at once", 8, sleeps)
    },
];

/// Runs a row's workload as the main goroutine.
pub(crate) fn run(row: &Row, times: u64) {
    // SAFETY: this program has no thread-locals that goroutines use, and no signal handlers.
    #[expect(unsafe_code, reason = "the contract of `build`")]
    let runtime = unsafe { Builder::new().processors(1).build() };
    runtime
        .expect("the runtime starts")
        .run(|| (row.repeat)(times));
}

fn spawn_and_join(times: u64) {
    for i in 0..times {
        let sum = spawn(move || black_box(i)).join();
        black_box(sum.expect("it does not panic"));
    }
}

/// A future that was spawned is woken and polled, and the main goroutine goes on.
fn future_woken(times: u64) {
    let (sender, receiver) = channel::bounded(1);
    let mut sender = Some(sender);
    drop(future::spawn(poll_fn(move |cx| {
        if let Some(sender) = sender.take() {
            sender.send(cx.waker().clone()).expect("it is awaited");
        }
        Poll::<()>::Pending
    })));
    let waker: Waker = receiver.recv().expect("it is sent");
    for _ in 0..times {
        waker.wake_by_ref();
        yield_now();
    }
}

fn spawn_and_join_100(times: u64) {
    let mut all = Vec::with_capacity(100);
    for i in 0..times {
        all.extend((0..100).map(|_| spawn(move || black_box(i))));
        for goroutine in all.drain(..) {
            goroutine.join().expect("it does not panic");
        }
    }
}

fn yield_among_10(times: u64) {
    let all: Vec<_> = (0..10)
        .map(|_| {
            spawn(move || {
                for _ in 0..times / 10 {
                    yield_now();
                }
            })
        })
        .collect();
    all.into_iter()
        .for_each(|g| g.join().expect("it does not panic"));
}

fn park_and_unpark(times: u64) {
    let ping = task::current();
    let pong = spawn(move || {
        for _ in 0..times {
            task::park();
            ping.unpark();
        }
    });
    for _ in 0..times {
        pong.task().unpark();
        task::park();
    }
    pong.join().expect("it does not panic");
}

fn unbuffered(times: u64) {
    let (ping, pinged) = channel::bounded(0);
    let (pong, ponged) = channel::bounded(0);
    let other = spawn(move || {
        for i in pinged {
            let i: u64 = i;
            pong.send(i).expect("it is received");
        }
    });
    for i in 0..times {
        ping.send(i).expect("it is received");
        black_box(ponged.recv().expect("it is sent"));
    }
    drop(ping);
    other.join().expect("it does not panic");
}

fn buffered(times: u64) {
    let (sender, receiver) = channel::bounded(16);
    for i in 0..times {
        sender.send(i).expect("there is room");
        black_box(receiver.recv().expect("it was sent"));
    }
}

fn mutex_alone(times: u64) {
    let mutex = Mutex::new(0);
    for i in 0..times {
        *mutex.lock().expect("it is not poisoned") += black_box(i);
    }
}

fn mutex_contended(times: u64) {
    let mutex = Mutex::new(0);
    windlass::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| {
                for i in 0..times / 2 {
                    let mut sum = mutex.lock().expect("it is not poisoned");
                    // The other one meets the lock.
                    yield_now();
                    *sum += black_box(i);
                }
            });
        }
    });
}

fn echo(times: u64) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let addr = listener.local_addr().expect("it is bound");
    let server = spawn(move || {
        let (mut stream, _) = listener.accept().expect("somebody connects");
        let mut request = [0; 64];
        while stream.read_exact(&mut request).is_ok() {
            stream.write_all(&request).expect("the client reads");
        }
    });
    let mut stream = TcpStream::connect(addr).expect("the server listens");
    stream.set_nodelay(true).expect("it is a TCP stream");
    let mut answer = [0; 64];
    for _ in 0..times {
        stream.write_all(&[1; 64]).expect("the server reads");
        stream.read_exact(&mut answer).expect("the server answers");
    }
    drop(stream);
    server.join().expect("it does not panic");
}

fn cached_read(times: u64) {
    use std::os::unix::fs::FileExt as _;
    // This program lies in the page cache, as it runs.
    let program = std::env::current_exe().expect("this program has a path");
    let file = fs::File::open(program).expect("it can be read");
    let mut page = [0; 4096];
    for i in 0..times {
        let read = file.read_at(&mut page, i % 16 * 4096);
        assert_eq!(read.expect("it is in memory"), 4096);
    }
}

/// All sleep before the first wakes, however slow the machine is, and all are due at once: else the number of
/// times that the P looks at its timers would be that of the clock.
fn sleeps(times: u64) {
    for _ in 0..times {
        let end = Instant::now() + Duration::from_millis(200);
        let all: Vec<_> = (0..1_000)
            .map(|_| spawn(move || sleep_until(end)))
            .collect();
        all.into_iter()
            .for_each(|g| g.join().expect("it does not panic"));
    }
}

//! Everything at once, for a bounded number of rounds, with a sum of all the work done: goroutines
//! that spawn, park, sleep, block, compute, lock their thread, talk over sockets and channels;
//! plain threads that wake them; a number of Ps that changes, and dumps that are taken meanwhile.

use crate::util;

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use windlass::net::{TcpListener, TcpStream};
use windlass::sync::Mutex;
use windlass::{Builder, Runtime, channel, task};

const ROUNDS: u64 = 40;

/// The work that was done, and the work that was meant to be.
#[derive(Default)]
struct Sums {
    done: AtomicU64,
    meant: AtomicU64,
}

impl Sums {
    /// Announces work that adds up to `n`.
    fn mean(&self, n: u64) {
        self.meant.fetch_add(n, Ordering::Relaxed);
    }

    fn add(&self, n: u64) {
        self.done.fetch_add(n, Ordering::Relaxed);
    }
}

/// Children that yield, sleep and block, and are joined.
fn spawns(sums: &Arc<Sums>) {
    for round in 0..ROUNDS {
        let children: Vec<_> = (0..10)
            .map(|i| {
                sums.mean(i);
                let sums = Arc::clone(sums);
                windlass::spawn(move || {
                    match (i + round) % 4 {
                        0 => windlass::yield_now(),
                        1 => windlass::sleep(Duration::from_micros(300)),
                        2 => windlass::blocking(|| pause(Duration::from_micros(200))),
                        _ => task::checkpoint(),
                    }
                    sums.add(i);
                })
            })
            .collect();
        children.into_iter().for_each(|child| child.join().unwrap());
    }
}

#[expect(clippy::disallowed_methods, reason = "blocks its thread on purpose")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// Computes without a call into the runtime for longer than a slice, now and then.
fn hogs(sums: &Arc<Sums>) {
    for _ in 0..ROUNDS / 8 {
        sums.mean(1);
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(12) {
            std::hint::spin_loop();
        }
        sums.add(1);
        windlass::yield_now();
    }
}

/// Runs on one thread all the time, though it waits in every way.
fn locked(sums: &Arc<Sums>, addr: std::net::SocketAddr) {
    let _lock = task::lock_thread();
    let thread = std::thread::current().id();
    let mut stream = TcpStream::connect(addr).unwrap();
    for round in 0..ROUNDS {
        sums.mean(1);
        match round % 3 {
            0 => windlass::sleep(Duration::from_micros(200)),
            1 => windlass::yield_now(),
            _ => {
                let mut byte = [round as u8];
                stream.write_all(&byte).unwrap();
                stream.read_exact(&mut byte).unwrap();
                assert_eq!(byte, [round as u8]);
            }
        }
        assert_eq!(std::thread::current().id(), thread);
        sums.add(1);
    }
}

/// Bytes to and fro.
fn asks(sums: &Arc<Sums>, addr: std::net::SocketAddr) {
    let mut stream = TcpStream::connect(addr).unwrap();
    for round in 0..ROUNDS * 4 {
        sums.mean(round);
        let sent = round.to_ne_bytes();
        stream.write_all(&sent).unwrap();
        let mut got = [0; 8];
        stream.read_exact(&mut got).unwrap();
        sums.add(u64::from_ne_bytes(got));
    }
}

fn serves(listener: &TcpListener) {
    while let Ok((mut stream, _)) = listener.accept() {
        windlass::spawn(move || {
            let mut buf = [0; 64];
            while let Ok(n @ 1..) = stream.read(&mut buf) {
                if stream.write_all(&buf[..n]).is_err() {
                    break;
                }
            }
        });
    }
}

/// A plain thread sends, goroutines receive, add under a lock, and are unparked by it.
fn meets_threads(sums: &Arc<Sums>) {
    let (sender, receiver) = channel::bounded(3);
    let total = Arc::new(Mutex::new(0));
    let receivers: Vec<_> = (0..3)
        .map(|_| {
            let (receiver, total) = (receiver.clone(), Arc::clone(&total));
            windlass::spawn(move || {
                for n in receiver {
                    *total.lock().unwrap() += n;
                }
                task::park();
            })
        })
        .collect();
    let tasks: Vec<_> = receivers.iter().map(|r| r.task().clone()).collect();
    let thread = std::thread::spawn(move || {
        (0..ROUNDS * 10).for_each(|n| sender.send(n).unwrap());
        drop(sender);
        tasks.iter().for_each(task::Task::unpark);
    });
    sums.mean((0..ROUNDS * 10).sum());
    receivers.into_iter().for_each(|r| r.join().unwrap());
    windlass::blocking(|| thread.join().unwrap());
    sums.add(*total.lock().unwrap());
}

/// Changes the number of Ps and takes dumps until the others are done.
fn disturbs(runtime: &Runtime, is_over: &AtomicBool) {
    for i in 0.. {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        util::set_processors(runtime, 1 + i % 4);
        let dump = runtime.dump();
        assert!(!dump.goroutines.is_empty());
        windlass::sleep(Duration::from_millis(3));
    }
}

#[test]
fn all_the_work_is_done() {
    let _guard = util::hang_guard();
    let builder = Builder::new().processors(2).max_processors(4);
    let runtime = util::build(builder).unwrap();
    let sums = Arc::new(Sums::default());
    runtime.run(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let server = windlass::spawn(move || serves(&listener));
        let is_over = AtomicBool::new(false);
        task::scope(|scope| {
            scope.spawn(|| disturbs(&runtime, &is_over));
            task::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| spawns(&sums));
                    scope.spawn(|| hogs(&sums));
                    scope.spawn(|| locked(&sums, addr));
                    scope.spawn(|| asks(&sums, addr));
                    scope.spawn(|| meets_threads(&sums));
                }
            });
            is_over.store(true, Ordering::Relaxed);
        });
        drop(server);
    });
    let meant = sums.meant.load(Ordering::Relaxed);
    assert!(meant > 0);
    assert_eq!(sums.done.load(Ordering::Relaxed), meant);
}

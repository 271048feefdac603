//! Deadlines, which unlike timeouts are moments, bound many calls together, and reach
//! calls that wait already.
#![allow(clippy::disallowed_methods, reason = "plain threads take part")]

use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use windlass::time::{Duration, Instant};

use crate::util::{Pattern, hang_guard, pair, run, runtime, wait_until};
use windlass::net::{TcpListener, TcpStream, UdpSocket};
use windlass::{blocking, spawn};

fn passed() -> Option<Instant> {
    Some(Instant::now())
}

fn would_block<T: std::fmt::Debug>(r: std::io::Result<T>) {
    assert_eq!(r.unwrap_err().kind(), ErrorKind::WouldBlock);
}

/// A deadline that has passed fails calls before they do anything.
#[test]
fn a_deadline_in_the_past_fails_at_once() {
    let _guard = hang_guard();
    let check = || {
        let (mut a, mut b) = pair();
        a.write_all(b"there").unwrap();
        b.peek(&mut [0]).unwrap();
        b.set_read_deadline(passed());
        for _ in 0..3 {
            would_block(b.read(&mut [0; 8]));
            would_block(b.peek(&mut [0; 8]));
            would_block(b.read_vectored(&mut [
                std::io::IoSliceMut::new(&mut [0]),
                std::io::IoSliceMut::new(&mut [0]),
            ]));
        }
        // Long ago is no other.
        let long_ago = Instant::now().checked_sub(Duration::from_secs(1));
        b.set_read_deadline(long_ago);
        would_block(b.read(&mut [0; 8]));
        // The other direction is free.
        b.write_all(b"x").unwrap();
        b.set_write_deadline(passed());
        would_block(b.write(b"y"));
        would_block(b.write_vectored(&[std::io::IoSlice::new(b"y")]));
        b.set_read_deadline(None);
        b.set_write_deadline(None);
        let mut all = [0; 5];
        b.read_exact(&mut all).unwrap();
        assert_eq!(all, *b"there");
        b.write_all(b"z").unwrap();
        let mut two = [0; 2];
        a.read_exact(&mut two).unwrap();
        assert_eq!(two, *b"xz");
    };
    crate::util::on_thread_and_goroutine(2, check);
}

#[test]
fn a_deadline_bounds_several_calls_together() {
    let _guard = hang_guard();
    let check = || {
        let (mut a, mut b) = pair();
        let start = Instant::now();
        b.set_read_deadline(Some(start + Duration::from_millis(40)));
        a.write_all(&[1]).unwrap();
        b.read_exact(&mut [0]).unwrap();
        would_block(b.read(&mut [0]));
        assert!(start.elapsed() >= Duration::from_millis(40));
        would_block(b.read(&mut [0]));
        // Whichever is first: the timeout.
        b.set_read_deadline(Some(Instant::now() + Duration::from_secs(3600)));
        b.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        would_block(b.read(&mut [0]));
        // Or the deadline.
        b.set_read_timeout(Some(Duration::from_secs(3600))).unwrap();
        b.set_read_deadline(Some(Instant::now() + Duration::from_millis(5)));
        would_block(b.read(&mut [0]));
        // One that will not be seen.
        let far = Instant::now().checked_add(Duration::from_secs(1 << 36));
        b.set_read_deadline(far);
        a.write_all(&[2]).unwrap();
        b.read_exact(&mut [0]).unwrap();
    };
    crate::util::on_thread_and_goroutine(1, check);
}

/// A goroutine that waits without limit notices, wherever the deadline is set from.
#[test]
fn a_deadline_reaches_who_waits() {
    let _guard = hang_guard();
    for n_ps in [1, 2] {
        runtime(n_ps).run(|| {
            for i in 0..200 {
                let (a, b) = pair();
                let b = Arc::new(b);
                let (reader, begun) = (Arc::clone(&b), Arc::new(AtomicBool::new(false)));
                let flag = Arc::clone(&begun);
                let reads = spawn(move || {
                    flag.store(true, Ordering::SeqCst);
                    (&*reader).read(&mut [0]).unwrap_err().kind()
                });
                wait_until(|| begun.load(Ordering::SeqCst));
                if i % 2 == 0 {
                    // Perhaps it is parked by then, perhaps not yet.
                    windlass::sleep(Duration::from_micros(i * 2));
                }
                match i % 4 {
                    0 | 1 => b.set_read_deadline(passed()),
                    2 => b.set_read_deadline(Some(Instant::now() + Duration::from_micros(300))),
                    _ => {
                        let same = Arc::clone(&b);
                        let sets = std::thread::spawn(move || same.set_read_deadline(passed()));
                        blocking(|| sets.join()).unwrap();
                    }
                }
                assert_eq!(reads.join().unwrap(), ErrorKind::WouldBlock);
                drop(a);
            }
        });
    }
}

/// A connection wakes all plain threads that wait for it. Those that do not get it wait until their
/// deadline, and goroutines accept from that listener as before.
#[test]
fn threads_that_accept_too_late_are_in_time() {
    let _guard = hang_guard();
    for _ in 0..6 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        listener.set_deadline(Some(Instant::now() + Duration::from_millis(100)));
        let n_accepted = std::thread::scope(|scope| {
            let accepts: Vec<_> = (0..4).map(|_| scope.spawn(|| listener.accept())).collect();
            let _client = std::net::TcpStream::connect(address).unwrap();
            let results = accepts.into_iter().map(|accept| accept.join().unwrap());
            results.filter(Result::is_ok).count()
        });
        // On a busy machine it comes after the deadline.
        assert!(n_accepted <= 1);
        listener.set_deadline(None);
        runtime(1).run(|| {
            let connects = spawn(move || {
                windlass::sleep(Duration::from_millis(2));
                TcpStream::connect(address).unwrap()
            });
            listener.accept().unwrap();
            connects.join().unwrap();
        });
    }
}

/// A later deadline set from a plain thread ends the wait when its time comes.
#[test]
fn a_coming_deadline_from_a_plain_thread() {
    run(2, || {
        let (_a, b) = pair();
        let b = Arc::new(b);
        let reader = Arc::clone(&b);
        let reads = spawn(move || (&*reader).read(&mut [0]).unwrap_err().kind());
        windlass::sleep(Duration::from_millis(2));
        let start = Instant::now();
        let sets = std::thread::spawn(move || {
            b.set_read_deadline(Some(start + Duration::from_millis(20)));
        });
        assert_eq!(reads.join().unwrap(), ErrorKind::WouldBlock);
        assert!(start.elapsed() >= Duration::from_millis(20));
        blocking(|| sets.join()).unwrap();
    });
}

#[test]
fn a_deadline_reaches_everyone_who_waits() {
    run(2, || {
        let socket = Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
        let n = Arc::new(AtomicUsize::new(0));
        let all: Vec<_> = (0..20)
            .map(|_| {
                let (socket, n) = (socket.try_clone().unwrap(), Arc::clone(&n));
                spawn(move || {
                    n.fetch_add(1, Ordering::SeqCst);
                    socket.recv(&mut [0]).unwrap_err().kind()
                })
            })
            .collect();
        wait_until(|| n.load(Ordering::SeqCst) == 20);
        windlass::sleep(Duration::from_millis(1));
        socket.set_read_deadline(passed());
        for one in all {
            assert_eq!(one.join().unwrap(), ErrorKind::WouldBlock);
        }
    });
}

#[test]
fn a_deadline_that_is_put_off() {
    run(2, || {
        for to in [None, Some(Duration::from_secs(3600))] {
            let (mut a, b) = pair();
            let b = Arc::new(b);
            b.set_read_deadline(Some(Instant::now() + Duration::from_millis(400)));
            let reader = Arc::clone(&b);
            let reads = spawn(move || {
                let mut byte = [0];
                (&*reader).read_exact(&mut byte).map(|()| byte)
            });
            windlass::sleep(Duration::from_millis(1));
            b.set_read_deadline(to.map(|d| Instant::now() + d));
            windlass::sleep(Duration::from_millis(500));
            a.write_all(&[8]).unwrap();
            assert_eq!(reads.join().unwrap().unwrap(), [8]);
        }
    });
}

#[test]
fn a_blocked_writer_and_an_accept() {
    run(2, || {
        let (a, b) = pair();
        let a = Arc::new(a);
        let writer = Arc::clone(&a);
        let pattern = Arc::new(Pattern::new());
        let same = Arc::clone(&pattern);
        let writes = spawn(move || {
            let mut at = 0;
            loop {
                match (&*writer).write(same.bytes(at, 100_000)) {
                    Ok(n) => at += n,
                    Err(e) => return (at, e.kind()),
                }
            }
        });
        windlass::sleep(Duration::from_millis(20));
        a.set_write_deadline(passed());
        let (n, kind) = writes.join().unwrap();
        assert_eq!(kind, ErrorKind::WouldBlock);
        // The bytes that were reported as written arrive.
        drop(a);
        assert_eq!(pattern.check(&mut &b, 10_000).unwrap(), n);

        let listener = Arc::new(TcpListener::bind("127.0.0.1:0").unwrap());
        let same = Arc::clone(&listener);
        let accepts = spawn(move || same.accept().unwrap_err().kind());
        windlass::sleep(Duration::from_millis(2));
        listener.set_deadline(passed());
        assert_eq!(accepts.join().unwrap(), ErrorKind::WouldBlock);
        listener.set_deadline(None);
        let connects = spawn({
            let addr = listener.local_addr().unwrap();
            move || TcpStream::connect(addr).unwrap()
        });
        listener.accept().unwrap();
        connects.join().unwrap();
    });
}

/// A cancelled receive that had its bytes already gives them: none is lost, none comes
/// twice.
#[test]
fn short_deadlines_against_a_trickling_peer() {
    const N: usize = 60_000;
    run(2, || {
        let pattern = Arc::new(Pattern::new());
        let (mut a, b) = pair();
        let b = Arc::new(b);
        let over = Arc::new(AtomicBool::new(false));
        let same = Arc::clone(&pattern);
        let writes = spawn(move || {
            let mut at = 0;
            while at < N {
                let n = (at % 13 + 1).min(N - at);
                a.write_all(same.bytes(at, n)).unwrap();
                at += n;
                windlass::sleep(Duration::from_micros((at % 40) as u64));
            }
        });
        // Two of them move the deadline about, a goroutine and a thread.
        let move_about = |step: u64| {
            let (b, over) = (Arc::clone(&b), Arc::clone(&over));
            move || {
                let mut i = 0;
                while !over.load(Ordering::SeqCst) {
                    i += step;
                    b.set_read_deadline(match i % 5 {
                        0 => None,
                        1 => passed(),
                        n => Some(Instant::now() + Duration::from_micros(n * 20)),
                    });
                    windlass::sleep(Duration::from_micros(i % 70));
                }
            }
        };
        let goroutine = spawn(move_about(1));
        let thread = std::thread::spawn(move_about(3));
        let (mut at, mut n_cut) = (0, 0);
        let mut buf = [0; 9];
        loop {
            match (&*b).read(&mut buf) {
                Ok(0) => break,
                Ok(n) => {
                    assert!(buf[..n] == *pattern.bytes(at, n), "wrong bytes behind {at}");
                    at += n;
                }
                Err(e) => {
                    assert_eq!(e.kind(), ErrorKind::WouldBlock);
                    n_cut += 1;
                    windlass::yield_now();
                }
            }
        }
        over.store(true, Ordering::SeqCst);
        goroutine.join().unwrap();
        blocking(|| thread.join()).unwrap();
        writes.join().unwrap();
        assert_eq!(at, N, "after {n_cut} reads that were cut short");
    });
}

/// An accept that is cut short loses no connection.
#[test]
fn short_deadlines_against_many_connects() {
    const N: usize = 500;
    run(2, || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let connects = spawn(move || {
            for i in 0..N {
                let mut stream = TcpStream::connect(addr).unwrap();
                windlass::sleep(Duration::from_micros((i % 90) as u64));
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
            }
        });
        let (mut n, mut i) = (0, 0);
        while n < N {
            i += 1;
            listener.set_deadline(Some(Instant::now() + Duration::from_micros(i % 60)));
            match listener.accept() {
                Ok((mut stream, _)) => {
                    n += 1;
                    stream.write_all(&[1]).unwrap();
                }
                Err(e) => assert_eq!(e.kind(), ErrorKind::WouldBlock),
            }
        }
        connects.join().unwrap();
    });
}

/// Deadlines are the socket's: clones share them.
#[test]
fn clones_share_their_deadlines() {
    run(1, || {
        let (_a, b) = pair();
        let mut clone = b.try_clone().unwrap();
        b.set_read_deadline(passed());
        would_block(clone.read(&mut [0]));
    });
}

#[cfg(feature = "sim")]
crate::inside::tests! {
    a_deadline_in_the_past_fails_at_once,
    a_deadline_bounds_several_calls_together,
    a_deadline_reaches_who_waits: "it uses threads",
    threads_that_accept_too_late_are_in_time: "it uses threads",
    a_coming_deadline_from_a_plain_thread: "it uses threads",
    a_deadline_reaches_everyone_who_waits,
    a_deadline_that_is_put_off,
    a_blocked_writer_and_an_accept / 10,
    short_deadlines_against_a_trickling_peer: "it uses threads",
    short_deadlines_against_many_connects / 50,
    clones_share_their_deadlines,
}

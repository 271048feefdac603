//! Connections that are read again and again: from some receives on a poll stays armed for
//! them. Nothing of that may show but in the metrics.
#![allow(clippy::disallowed_methods, reason = "plain threads take part")]
#![allow(unsafe_code)]

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use windlass::time::{Duration, Instant};

use crate::util;
use crate::util::{Pattern, hang_guard, has_rings, is_chaotic, pair, run, runtime, wait_until};
use windlass::net::TcpStream;
use windlass::time::sleep;
use windlass::{Handle, spawn, yield_now};

/// Polls that stay, in the runtime of `handle`.
fn n_armed(handle: &Handle) -> u64 {
    handle.metrics().total().ring_armed
}

/// Receives many messages on `reader`, each when it is asked for, so that it is watched.
fn warm_up(mut writer: &TcpStream, mut reader: &TcpStream) {
    for _ in 0..12 {
        writer.write_all(b"0123456789").unwrap();
        let mut message = [0; 10];
        reader.read_exact(&mut message).unwrap();
        assert_eq!(&message, b"0123456789");
    }
}

/// Two ends, of which the second is watched.
fn watched(handle: &Handle) -> (TcpStream, TcpStream) {
    let before = n_armed(handle);
    let (a, b) = pair();
    warm_up(&a, &b);
    // With disorder the reader may find everything there.
    if has_rings() && !is_chaotic() {
        assert_eq!(n_armed(handle), before + 1, "the reader is not watched");
    }
    (a, b)
}

#[test]
fn bytes_come_in_order_whatever_is_read_at_once() {
    let _guard = hang_guard();
    let runtime = runtime(2);
    let handle = runtime.handle();
    runtime.run(move || {
        let (mut a, mut b) = watched(&handle);
        const TOTAL: usize = 2_000_000;
        let writer = spawn(move || {
            let pattern = Pattern::new();
            let (mut sent, mut step) = (0, 1);
            while sent < TOTAL {
                let n = step.min(TOTAL - sent);
                a.write_all(pattern.bytes(sent, n)).unwrap();
                sent += n;
                step = step % 5000 + 37;
                if step.is_multiple_of(7) {
                    yield_now();
                }
            }
        });
        let pattern = Pattern::new();
        let (mut got, mut step) = (0, 1);
        let mut buf = vec![0; 8192];
        loop {
            let n = b.read(&mut buf[..step]).unwrap();
            if n == 0 {
                break;
            }
            assert_eq!(&buf[..n], pattern.bytes(got, n));
            got += n;
            step = step * 3 % 8192 + 1;
        }
        assert_eq!(got, TOTAL);
        writer.join().unwrap();
    });
}

#[test]
fn what_peek_leaves_is_read() {
    let _guard = hang_guard();
    let runtime = runtime(2);
    let handle = runtime.handle();
    runtime.run(move || {
        let (mut a, mut b) = watched(&handle);
        for _ in 0..50 {
            let writer = spawn({
                let a = a.try_clone().unwrap();
                move || (&a).write_all(b"abcdef").unwrap()
            });
            let mut buf = [0; 16];
            assert!(b.peek(&mut buf).unwrap() > 0);
            b.read_exact(&mut buf[..2]).unwrap();
            let mut rest = [0; 4];
            let parts = &mut [std::io::IoSliceMut::new(&mut rest)];
            assert!(b.read_vectored(parts).unwrap() > 0);
            assert_eq!(&buf[..2], b"ab");
            assert_eq!(&rest, b"cdef");
            writer.join().unwrap();
        }
        a.write_all(b"x").unwrap();
        b.read_exact(&mut [0]).unwrap();
    });
}

/// A reader that was told how much is left need not find that.
#[test]
fn a_clone_takes_what_was_left() {
    let _guard = hang_guard();
    let runtime = runtime(2);
    let handle = runtime.handle();
    runtime.run(move || {
        let (mut a, mut b) = watched(&handle);
        let mut clone = b.try_clone().unwrap();
        for taken in [1, 50, 89, 90] {
            a.write_all(&[7; 100]).unwrap();
            b.read_exact(&mut [0; 10]).unwrap();
            let mut rest = vec![0; taken];
            clone.read_exact(&mut rest).unwrap();
            assert_eq!(rest, vec![7; taken]);
            let reader = spawn(move || {
                let mut rest = vec![0; 91 - taken];
                b.read_exact(&mut rest).unwrap();
                assert_eq!(rest.pop(), Some(8));
                assert_eq!(rest, vec![7; 90 - taken]);
                b
            });
            // It waits for the last byte; mostly.
            sleep(Duration::from_millis(5));
            a.write_all(&[8]).unwrap();
            b = reader.join().unwrap();
        }
        let mut buf = [0; 10];
        a.write_all(&[7; 100]).unwrap();
        b.read_exact(&mut buf).unwrap();
        drop(a);
        let mut rest = Vec::new();
        b.read_to_end(&mut rest).unwrap();
        assert_eq!(rest, [7; 90]);
    });
}

/// The poll holds the file; closing ends it.
#[test]
fn the_peer_learns_of_a_close() {
    let _guard = hang_guard();
    let runtime = runtime(2);
    let handle = runtime.handle();
    runtime.run(move || {
        for how in 0..3 {
            wait_until(|| n_armed(&handle) == 0);
            let (mut a, b) = watched(&handle);
            match how {
                0 => drop(b),
                1 => spawn(move || drop(b)).join().unwrap(),
                _ => std::thread::spawn(move || drop(b)).join().unwrap(),
            }
            assert_eq!(a.read(&mut [0]).unwrap(), 0, "way {how}");
        }
        wait_until(|| n_armed(&handle) == 0);
    });
}

#[test]
fn a_clone_is_watched_on() {
    let _guard = hang_guard();
    let runtime = runtime(2);
    let handle = runtime.handle();
    runtime.run(move || {
        let (mut a, b) = watched(&handle);
        let mut clone = b.try_clone().unwrap();
        drop(b);
        for _ in 0..20 {
            let reader = spawn(move || {
                clone.read_exact(&mut [0; 3]).unwrap();
                clone
            });
            yield_now();
            a.write_all(b"abc").unwrap();
            clone = reader.join().unwrap();
        }
        drop(clone);
        assert_eq!(a.read(&mut [0]).unwrap(), 0);
    });
}

/// Each byte goes to one of them, and none is waited for in vain.
#[test]
fn several_readers_share_a_connection() {
    const READERS: usize = 4;
    const TOTAL: usize = 20_000;
    let _guard = hang_guard();
    let runtime = runtime(2);
    let handle = runtime.handle();
    runtime.run(move || {
        let (mut a, b) = watched(&handle);
        let readers: Vec<_> = (0..READERS)
            .map(|i| {
                let b = b.try_clone().unwrap();
                spawn(move || {
                    let (mut sum, mut buf) = (0, vec![0; 1 + 5 * i]);
                    loop {
                        match (&b).read(&mut buf).unwrap() {
                            0 => return sum,
                            n => sum += n,
                        }
                    }
                })
            })
            .collect();
        let mut sent = 0;
        while sent < TOTAL {
            let n = (sent % 23 + 1).min(TOTAL - sent);
            a.write_all(&vec![7; n]).unwrap();
            sent += n;
            yield_now();
        }
        a.shutdown(Shutdown::Write).unwrap();
        let got: usize = readers.into_iter().map(|r| r.join().unwrap()).sum();
        assert_eq!(got, TOTAL);
    });
}

#[test]
fn the_end_of_the_stream_comes_behind_all_bytes() {
    let _guard = hang_guard();
    let runtime = runtime(2);
    let handle = runtime.handle();
    runtime.run(move || {
        for n in [0, 1, 10, 5000] {
            wait_until(|| n_armed(&handle) == 0);
            let (mut a, mut b) = watched(&handle);
            let writer = spawn(move || {
                a.write_all(&vec![1; n]).unwrap();
                a.shutdown(Shutdown::Write).unwrap();
                // The other direction stays.
                let mut last = [0; 3];
                a.read_exact(&mut last).unwrap();
                last
            });
            let mut all = Vec::new();
            b.read_to_end(&mut all).unwrap();
            assert_eq!(all.len(), n);
            for _ in 0..3 {
                assert_eq!(b.read(&mut [0; 8]).unwrap(), 0);
            }
            b.write_all(b"end").unwrap();
            assert_eq!(&writer.join().unwrap(), b"end");
        }
    });
}

#[test]
fn a_reset_is_an_error() {
    let _guard = hang_guard();
    let runtime = runtime(2);
    let handle = runtime.handle();
    runtime.run(move || {
        let (a, mut b) = watched(&handle);
        let reader = spawn(move || b.read(&mut [0; 8]));
        yield_now();
        socket2::SockRef::from(&a)
            .set_linger(Some(Duration::ZERO))
            .unwrap();
        drop(a);
        let e = reader.join().unwrap().unwrap_err();
        assert_eq!(e.kind(), ErrorKind::ConnectionReset);
    });
}

#[test]
fn shutting_the_read_side_ends_a_wait() {
    let _guard = hang_guard();
    let runtime = runtime(2);
    let handle = runtime.handle();
    runtime.run(move || {
        for bytes in [0, 5] {
            wait_until(|| n_armed(&handle) == 0);
            let (mut a, b) = watched(&handle);
            let waits = std::sync::Arc::new(AtomicUsize::new(0));
            let reader = spawn({
                let (b, waits) = (b.try_clone().unwrap(), waits.clone());
                move || {
                    let mut got = 0;
                    loop {
                        waits.fetch_add(1, Ordering::SeqCst);
                        match (&b).read(&mut [0; 16]).unwrap() {
                            0 => return got,
                            n => got += n,
                        }
                    }
                }
            });
            wait_until(|| waits.load(Ordering::SeqCst) > 0);
            a.write_all(&[1; 5][..bytes]).unwrap();
            b.shutdown(Shutdown::Read).unwrap();
            assert!(reader.join().unwrap() <= bytes);
        }
    });
}

#[test]
fn a_deadline_loses_no_byte() {
    let _guard = hang_guard();
    let runtime = runtime(2);
    let handle = runtime.handle();
    runtime.run(move || {
        let (mut a, mut b) = watched(&handle);
        let pattern = Pattern::new();
        for round in 0..200 {
            let bytes = pattern.bytes(3 * round, 3).to_vec();
            b.set_read_deadline(Some(
                Instant::now() + Duration::from_micros(10 * round as u64),
            ));
            let writer = spawn({
                let (a, bytes) = (a.try_clone().unwrap(), bytes.clone());
                move || (&a).write_all(&bytes).unwrap()
            });
            let (mut got, mut buf) = (Vec::new(), [0; 3]);
            while got.len() < 3 {
                match b.read(&mut buf) {
                    Ok(n) => got.extend_from_slice(&buf[..n]),
                    Err(e) => {
                        assert_eq!(e.kind(), ErrorKind::WouldBlock);
                        b.set_read_deadline(None);
                    }
                }
            }
            assert_eq!(got, bytes);
            writer.join().unwrap();
        }
        b.set_read_deadline(None);
        b.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        let e = b.read(&mut [0]).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::WouldBlock);
        b.set_read_timeout(None).unwrap();
        a.write_all(b"x").unwrap();
        b.read_exact(&mut [0]).unwrap();
    });
}

/// It becomes an ordinary descriptor.
#[test]
fn a_watched_connection_can_be_given_away() {
    let _guard = hang_guard();
    let runtime = runtime(2);
    let handle = runtime.handle();
    runtime.run(move || {
        let (mut a, b) = watched(&handle);
        let fd = OwnedFd::from(b);
        wait_until(|| n_armed(&handle) == 0);
        let mut plain = std::net::TcpStream::from(fd);
        a.write_all(b"hello").unwrap();
        std::thread::scope(|s| {
            s.spawn(|| {
                let mut buf = [0; 5];
                plain.read_exact(&mut buf).unwrap();
                assert_eq!(&buf, b"hello");
                drop(plain);
            });
        });
        assert_eq!(a.read(&mut [0]).unwrap(), 0);
    });
}

/// A receive stops in front of urgent data, though there is more behind it.
#[test]
fn bytes_behind_urgent_ones_are_not_waited_for() {
    let _guard = hang_guard();
    let runtime = runtime(2);
    let handle = runtime.handle();
    runtime.run(move || {
        let (mut a, mut b) = watched(&handle);
        let mut all = Vec::new();
        for _ in 0..20 {
            let writer = spawn({
                let a = a.try_clone().unwrap();
                move || {
                    (&a).write_all(b"before").unwrap();
                    let urgent = socket2::SockRef::from(&a).send_out_of_band(b"!").unwrap();
                    assert_eq!(urgent, 1);
                    (&a).write_all(b"behind").unwrap();
                }
            });
            let mut buf = [0; 64];
            while !all.ends_with(b"beforebehind") {
                let n = b.read(&mut buf).unwrap();
                assert_ne!(n, 0);
                all.extend_from_slice(&buf[..n]);
            }
            all.clear();
            writer.join().unwrap();
        }
        a.write_all(b"x").unwrap();
        b.read_exact(&mut [0]).unwrap();
    });
}

/// Readers move between Ps, and Ps between threads.
#[test]
fn polls_follow_their_readers() {
    const PAIRS: usize = 6;
    const ROUNDS: usize = 300;
    let _guard = hang_guard();
    let runtime = runtime(3);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| {
            for n in [1, 3, 2].into_iter().cycle() {
                if is_over.load(Ordering::SeqCst) {
                    return;
                }
                util::set_processors(&runtime, n);
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        runtime.run(|| {
            let echoes: Vec<_> = (0..PAIRS).map(|_| spawn(|| echo(pair(), ROUNDS))).collect();
            echoes.into_iter().for_each(|e| e.join().unwrap());
        });
        is_over.store(true, Ordering::SeqCst);
    });
}

/// Sends a message, and expects it back.
fn ask(mut stream: &TcpStream, message: usize) {
    stream.write_all(&message.to_ne_bytes()).unwrap();
    let mut back = [0; 8];
    stream.read_exact(&mut back).unwrap();
    assert_eq!(usize::from_ne_bytes(back), message);
}

/// Messages there and back; now and then the P of the one who sends goes to another thread.
fn echo((a, mut b): (TcpStream, TcpStream), rounds: usize) {
    let echo = spawn(move || {
        let mut buf = [0; 64];
        while let n @ 1.. = b.read(&mut buf).unwrap() {
            b.write_all(&buf[..n]).unwrap();
        }
    });
    for i in 0..rounds {
        ask(&a, i);
        if i % 50 == 7 {
            windlass::blocking(|| std::thread::sleep(Duration::from_millis(2)));
        }
    }
    drop(a);
    echo.join().unwrap();
}

/// More connections than are heard of at once, and than a local queue has place for.
#[test]
fn many_connections_are_watched() {
    const PAIRS: usize = 300;
    let _guard = hang_guard();
    let runtime = runtime(1);
    let handle = runtime.handle();
    let polls = runtime.run(move || {
        let pairs: Vec<_> = (0..PAIRS).map(|_| pair()).collect();
        for rounds in [12, 40] {
            let echoes: Vec<_> = pairs
                .iter()
                .map(|(a, b)| (a.try_clone().unwrap(), b.try_clone().unwrap()))
                .map(|pair| spawn(move || exchange(pair, rounds)))
                .collect();
            echoes.into_iter().for_each(|e| e.join().unwrap());
        }
        let polls = n_armed(&handle);
        drop(pairs);
        polls
    });
    if has_rings() && !is_chaotic() {
        // How many find their data already there depends on what else the machine does.
        assert!(polls as usize > PAIRS / 4, "{polls} of {} ends", 2 * PAIRS);
    }
}

/// Messages of two ends to each other, in turn, each by a goroutine of its own.
fn exchange((a, mut b): (TcpStream, TcpStream), rounds: usize) {
    let other = spawn(move || {
        for i in 0..rounds {
            let mut message = [0; 8];
            b.read_exact(&mut message).unwrap();
            assert_eq!(usize::from_ne_bytes(message), i);
            b.write_all(&message).unwrap();
        }
    });
    for i in 0..rounds {
        ask(&a, i);
    }
    other.join().unwrap();
}

/// Goroutines that never wait for anything, and connections: both get on, whatever polls
/// have to tell.
#[test]
fn what_polls_tell_is_heard_beside_goroutines_that_yield() {
    let _guard = hang_guard();
    let runtime = runtime(1);
    runtime.run(move || {
        let is_over = std::sync::Arc::new(AtomicBool::new(false));
        let yielders: Vec<_> = (0..200)
            .map(|_| {
                let is_over = is_over.clone();
                spawn(move || {
                    while !is_over.load(Ordering::SeqCst) {
                        yield_now();
                    }
                })
            })
            .collect();
        let echoes: Vec<_> = (0..50).map(|_| spawn(|| exchange(pair(), 40))).collect();
        echoes.into_iter().for_each(|e| e.join().unwrap());
        is_over.store(true, Ordering::SeqCst);
        yielders.into_iter().for_each(|y| y.join().unwrap());
    });
}

/// A P that goes from thread to thread between any two messages: arming anew each time costs
/// more than it saves, so it is given up.
#[test]
fn a_connection_whose_poll_never_stays_is_not_watched() {
    let _guard = hang_guard();
    let runtime = runtime(1);
    let handle = runtime.handle();
    runtime.run(move || {
        let (mut a, mut b) = watched(&handle);
        let mut is_watched = || {
            for _ in 0..3 {
                a.write_all(b"abc").unwrap();
                b.read_exact(&mut [0; 3]).unwrap();
            }
            let is_watched = n_armed(&handle) > 0;
            // Longer than sysmon lets a blocked thread keep its P.
            windlass::blocking(|| std::thread::sleep(Duration::from_millis(1)));
            is_watched
        };
        if has_rings() && !is_chaotic() {
            // Sooner or later, as a sysmon that gets no CPU leaves the P where it is. Then it stays so.
            let mut n_unwatched = 0;
            while n_unwatched < 20 {
                n_unwatched = if is_watched() { 0 } else { n_unwatched + 1 };
            }
        }
    });
}

/// A run ends beside one that waits, and one that does not; the connection outlives it and
/// is watched in the next.
#[test]
fn the_end_of_a_run_ends_polls() {
    let _guard = hang_guard();
    let kept = {
        let runtime = runtime(2);
        let handle = runtime.handle();
        runtime.run(move || {
            let (a, mut b) = watched(&handle);
            let (c, d) = watched(&handle);
            spawn(move || {
                let _a = a;
                let _ = b.read(&mut [0]);
                unreachable!("nothing comes, and the end unwinds");
            });
            yield_now();
            (c, d)
        })
    };
    run(2, move || {
        let (mut c, mut d) = kept;
        for _ in 0..20 {
            c.write_all(b"abc").unwrap();
            d.read_exact(&mut [0; 3]).unwrap();
        }
        warm_up(&c, &d);
        drop(d);
        assert_eq!(c.read(&mut [0]).unwrap(), 0);
    });
}

/// The option that a watched socket has stays out of sight.
#[test]
fn nobody_sees_what_a_receive_says() {
    let _guard = hang_guard();
    let runtime = runtime(1);
    let handle = runtime.handle();
    runtime.run(move || {
        let (mut a, b) = watched(&handle);
        a.write_all(b"hello").unwrap();
        let fd = OwnedFd::from(b);
        let mut on: libc::c_int = -1;
        let mut len = size_of_val(&on) as libc::socklen_t;
        // SAFETY: the integer is valid for writes of its length.
        let r = unsafe {
            use std::os::fd::AsRawFd;
            libc::getsockopt(
                fd.as_fd().as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INQ,
                (&raw mut on).cast(),
                &raw mut len,
            )
        };
        assert_eq!((r, on), (0, 0));
    });
}

#[cfg(feature = "sim")]
crate::inside::tests! {
    bytes_come_in_order_whatever_is_read_at_once: "it has a runtime of its own",
    what_peek_leaves_is_read: "it has a runtime of its own",
    a_clone_takes_what_was_left: "it has a runtime of its own",
    the_peer_learns_of_a_close: "it uses threads",
    a_clone_is_watched_on: "it has a runtime of its own",
    several_readers_share_a_connection: "it has a runtime of its own",
    the_end_of_the_stream_comes_behind_all_bytes: "it has a runtime of its own",
    a_reset_is_an_error: "it has a runtime of its own",
    shutting_the_read_side_ends_a_wait: "it has a runtime of its own",
    a_deadline_loses_no_byte: "it has a runtime of its own",
    a_watched_connection_can_be_given_away: "it uses threads",
    bytes_behind_urgent_ones_are_not_waited_for: "it has a runtime of its own",
    polls_follow_their_readers: "it uses threads",
    many_connections_are_watched: "it has a runtime of its own",
    what_polls_tell_is_heard_beside_goroutines_that_yield: "it has a runtime of its own",
    a_connection_whose_poll_never_stays_is_not_watched: "it uses threads",
    the_end_of_a_run_ends_polls: "it has a runtime of its own",
    nobody_sees_what_a_receive_says: "it has a runtime of its own",
}

//! `send_zc`: whoever sends has the buffer back when the call returns.
#![allow(clippy::disallowed_methods, reason = "plain threads take part")]

use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::both::{on_each, settle};
use crate::util::{Pattern, hang_guard, has_rings, pair, run, runtime};
use socket2::SockRef;
use windlass::context::Context;
use windlass::net::TcpStream;
use windlass::{blocking, spawn};

/// More than the buffers of both sides take, when nobody reads.
const TOO_MUCH: usize = 64 << 20;

fn send_all(stream: &TcpStream, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let n = stream.send_zc(bytes).unwrap();
        assert!(n > 0, "a send of something sends something");
        bytes = &bytes[n..];
    }
}

/// Each size on a connection of its own: on one, later sends would be ordinary ones.
#[test]
fn what_is_sent_comes() {
    on_each(|kind| {
        for len in [0, 1, 16_383, 16_384, 100_000, 1 << 20] {
            let (a, mut b) = pair();
            let sender = kind.spawn(move || {
                send_all(&a, Pattern::new().bytes(0, len));
                assert_eq!(a.send_zc(&[]).unwrap(), 0);
            });
            assert_eq!(Pattern::new().check(&mut b, 10_000).unwrap(), len);
            sender.join();
        }
    });
}

/// What the caller does to the buffer afterwards does not reach the peer, which reads
/// late and slowly.
#[test]
fn the_buffer_is_free_when_the_call_returns() {
    run(2, || {
        for round in 0..20u8 {
            let (a, mut b) = pair();
            let sender = spawn(move || {
                let mut bytes = vec![round; 300_000];
                for _ in 0..3 {
                    send_all(&a, &bytes);
                    bytes.fill(!round);
                    bytes.fill(round);
                }
                bytes.fill(!round);
            });
            settle();
            let mut all = Vec::new();
            let mut some = [0; 7_000];
            loop {
                let n = b.read(&mut some).unwrap();
                if n == 0 {
                    break;
                }
                assert!(some[..n].iter().all(|&byte| byte == round));
                all.extend_from_slice(&some[..n]);
                windlass::yield_now();
            }
            assert_eq!(all.len(), 900_000);
            sender.join().unwrap();
        }
    });
}

#[test]
fn a_stream_of_many_sends_keeps_its_order() {
    run(2, || {
        let (a, mut b) = pair();
        let total = 5_000_000;
        let sender = spawn(move || {
            let pattern = Pattern::new();
            let mut at = 0;
            while at < total {
                let len = (total - at).min(40_000);
                at += a.send_zc(pattern.bytes(at, len)).unwrap();
            }
        });
        assert_eq!(Pattern::new().check(&mut b, 30_000).unwrap(), total);
        sender.join().unwrap();
    });
}

/// Reads what is left; whether that ended with a reset.
fn ends_with_reset(mut stream: &TcpStream) -> bool {
    let mut some = vec![0; 1 << 20];
    loop {
        match stream.read(&mut some) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::ConnectionReset);
                return true;
            }
        }
    }
}

/// The kernel still has bytes of the buffer when the time is up: it gives them back by a
/// reset. Over epoll it has copied some.
#[test]
fn a_timeout_gives_the_buffer_back() {
    run(2, || {
        let (a, b) = pair();
        a.set_write_timeout(Some(Duration::from_millis(20)))
            .unwrap();
        let mut bytes = vec![1; TOO_MUCH];
        let start = Instant::now();
        let sent = a.send_zc(&bytes);
        bytes.fill(2);
        if has_rings() {
            assert_eq!(sent.unwrap_err().kind(), ErrorKind::WouldBlock);
            assert!(start.elapsed() >= Duration::from_millis(20));
            assert!(ends_with_reset(&b));
            assert!(a.send_zc(&bytes).is_err());
        } else {
            assert!(sent.unwrap() < TOO_MUCH);
        }
    });
}

/// One that is set while the call waits, too.
#[test]
fn a_deadline_reaches_a_call_that_waits() {
    run(2, || {
        let (a, b) = pair();
        let sender = {
            let a = a.try_clone().unwrap();
            spawn(move || {
                let bytes = vec![1; TOO_MUCH];
                let mut sent = Ok(1);
                // Over epoll each call sends what there is room for.
                while sent.is_ok() {
                    sent = a.send_zc(&bytes);
                }
                sent.unwrap_err().kind()
            })
        };
        windlass::sleep(Duration::from_millis(10));
        a.set_write_deadline(Some(Instant::now()));
        assert_eq!(sender.join().unwrap(), ErrorKind::WouldBlock);
        drop(b);
    });
}

/// The peer takes nothing more, so that a send is accepted by the socket and lies there.
fn with_a_closed_window() -> (TcpStream, TcpStream) {
    let (mut a, b) = pair();
    SockRef::from(&b).set_recv_buffer_size(32 << 10).unwrap();
    SockRef::from(&a).set_send_buffer_size(4 << 20).unwrap();
    a.write_all(&vec![0; 200_000]).unwrap();
    (a, b)
}

/// The bytes are in the socket, and the call waits only until the peer has acknowledged them:
/// a deadline that is set meanwhile, by a goroutine or a thread, ends that, by a reset.
#[test]
fn a_deadline_reaches_a_call_that_waits_for_the_kernel_to_let_go() {
    for by_goroutine in [true, false] {
        run(2, || {
            let (a, b) = with_a_closed_window();
            let sender = {
                let a = a.try_clone().unwrap();
                spawn(move || a.send_zc(&[1; 20_000]))
            };
            // Long enough for the result to be there, or this tests less.
            windlass::sleep(Duration::from_millis(30));
            let set = move || a.set_write_deadline(Some(Instant::now()));
            match by_goroutine {
                true => set(),
                false => std::thread::scope(|s| blocking(|| s.spawn(set).join().unwrap())),
            }
            let sent = sender.join().unwrap();
            if has_rings() {
                assert_eq!(sent.unwrap_err().kind(), ErrorKind::WouldBlock);
                assert!(ends_with_reset(&b));
            }
        });
    }
}

/// As above, with a deadline that is brought forward.
#[test]
fn a_deadline_that_comes_forward_reaches_it() {
    run(2, || {
        let (a, b) = with_a_closed_window();
        a.set_write_deadline(Some(Instant::now() + Duration::from_secs(3600)));
        let sender = {
            let a = a.try_clone().unwrap();
            spawn(move || a.send_zc(&[1; 20_000]))
        };
        windlass::sleep(Duration::from_millis(30));
        let at = Instant::now() + Duration::from_millis(30);
        a.set_write_deadline(Some(at));
        let sent = sender.join().unwrap();
        if has_rings() {
            assert_eq!(sent.unwrap_err().kind(), ErrorKind::WouldBlock);
            assert!(Instant::now() >= at);
        }
        drop(b);
    });
}

#[test]
fn a_context_ends_a_send() {
    run(2, || {
        let (a, b) = pair();
        let ctx = Context::background().with_timeout(Duration::from_millis(10));
        let bytes = vec![1; TOO_MUCH];
        let e = ctx.run(|| {
            loop {
                if let Err(e) = a.send_zc(&bytes) {
                    return e;
                }
            }
        });
        assert_eq!(e.kind(), ErrorKind::TimedOut);
        drop(b);
    });
}

#[test]
fn the_end_of_a_run_ends_sends() {
    let _guard = hang_guard();
    let (a, b) = pair();
    let bytes = Arc::new(vec![1; TOO_MUCH]);
    runtime(2).run(|| {
        for _ in 0..10 {
            let ((a, b), bytes) = (pair(), Arc::clone(&bytes));
            spawn(move || {
                while a.send_zc(&bytes).is_ok() {}
                drop(b);
            });
        }
        spawn(move || while a.send_zc(&bytes).is_ok() {});
        windlass::sleep(Duration::from_millis(10));
    });
    // Whichever it was, the peer is told.
    ends_with_reset(&b);
}

#[test]
fn a_peer_that_goes_away_is_an_error() {
    run(2, || {
        let (a, mut b) = pair();
        let sender = spawn(move || {
            let bytes = vec![1; TOO_MUCH];
            loop {
                if let Err(e) = a.send_zc(&bytes) {
                    return e.kind();
                }
            }
        });
        b.read_exact(&mut [0; 100]).unwrap();
        drop(b);
        let kind = sender.join().unwrap();
        assert!(
            [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe].contains(&kind),
            "{kind:?}"
        );
    });
}

/// Sends whose threads lose their P meanwhile, and many at once.
#[test]
fn many_send_while_goroutines_move() {
    run(4, || {
        let sessions: Vec<_> = (0..60)
            .map(|i| {
                let (a, mut b) = pair();
                spawn(move || {
                    let pattern = Pattern::new();
                    if i % 5 == 0 {
                        blocking(|| std::thread::sleep(Duration::from_micros(200)));
                    }
                    send_all(&a, pattern.bytes(0, 200_000));
                });
                spawn(move || Pattern::new().check(&mut b, 20_000).unwrap())
            })
            .collect();
        for session in sessions {
            assert_eq!(session.join().unwrap(), 200_000);
        }
    });
}

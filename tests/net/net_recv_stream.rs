//! `recv_stream`: one receive that stays armed. No byte is lost or comes twice, whoever ends
//! it and when, and a reader that does not ask takes no more than its share.
#![allow(clippy::disallowed_methods, reason = "plain threads take part")]

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv6Addr, Shutdown, SocketAddr};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use crate::both::{on_each, settle};
use crate::util;
use crate::util::{Pattern, hang_guard, has_rings, pair, run, runtime, wait_until};
use socket2::{Domain, Protocol, Socket, Type};
use windlass::context::Context;
use windlass::io::{RecvBuf, RecvStream};
use windlass::net::{TcpListener, TcpOptions, TcpStream, UnixStream};
use windlass::{blocking, spawn};

/// Slots of a P's pool, and what each holds.
const SLOTS: usize = 128;
const SLOT_BYTES: usize = 16 << 10;

fn all_of(pieces: impl Iterator<Item = std::io::Result<RecvBuf>>) -> Vec<u8> {
    let mut all = Vec::new();
    pieces.for_each(|piece| all.extend_from_slice(&piece.unwrap()));
    all
}

/// Sends the numbers below `n`, at an uneven pace, and then the end.
fn send_numbers(mut to: impl Write, n: u32) {
    for i in 0..n {
        to.write_all(&i.to_ne_bytes()).unwrap();
        match i % 11 {
            0 => windlass::sleep(Duration::from_micros(u64::from(i % 7) * 20)),
            1 => windlass::yield_now(),
            _ => {}
        }
    }
}

fn numbers(n: u32) -> Vec<u8> {
    (0..n).flat_map(u32::to_ne_bytes).collect()
}

#[test]
fn what_is_sent_comes_and_then_the_end() {
    on_each(|kind| {
        let (mut a, b) = pair();
        let receiver = kind.spawn(move || {
            let mut pieces = b.recv_stream();
            let all = all_of(&mut pieces);
            // And the end stays.
            assert!(pieces.recv().unwrap().is_empty());
            assert!(pieces.next().is_none());
            all
        });
        settle();
        a.write_all(b"hello").unwrap();
        settle();
        a.write_all(b" again").unwrap();
        a.shutdown(Shutdown::Write).unwrap();
        assert_eq!(receiver.join(), b"hello again");
    });
}

#[test]
fn pieces_are_in_buffers_of_the_pool() {
    run(1, || {
        let (mut a, b) = UnixStream::pair().unwrap();
        let mut pieces = b.recv_stream();
        for _ in 0..3 * SLOTS {
            a.write_all(b"x").unwrap();
            assert_eq!(pieces.recv().unwrap().is_pooled(), has_rings());
        }
    });
}

/// Much more than all slots hold, through buffers that are kept for a while: all slots are
/// out again and again.
#[test]
fn a_long_stream_keeps_its_order() {
    for n_kept in [0, 20, 2 * SLOTS] {
        run(2, || {
            let total = SLOTS * SLOT_BYTES * 3 + 12_345;
            let (a, b) = pair();
            let sender = spawn(move || {
                Pattern::new().write(&mut &a, 0, total, 50_000).unwrap();
            });
            let pattern = Pattern::new();
            let mut kept = std::collections::VecDeque::new();
            let mut at = 0;
            let mut check = |bytes: RecvBuf| {
                assert!(bytes.len() <= SLOT_BYTES);
                assert_eq!(&bytes[..], pattern.bytes(at, bytes.len()), "at {at}");
                at += bytes.len();
            };
            for bytes in b.recv_stream() {
                kept.push_back(bytes.unwrap());
                // What is kept is not written over.
                if kept.len() > n_kept {
                    check(kept.pop_front().unwrap());
                }
            }
            kept.into_iter().for_each(&mut check);
            assert_eq!(at, total);
            sender.join().unwrap();
        });
    }
}

/// Who asks once and then does something else.
#[test]
fn a_slow_reader_bounds_what_is_taken() {
    run(2, || {
        const N_BYTES: usize = 12 << 20;
        let (a, b) = pair();
        let sender = spawn(move || {
            let mut a = &a;
            Pattern::new().write(&mut a, 0, N_BYTES, 60_000).unwrap();
        });
        let pattern = Pattern::new();
        let mut pieces = b.recv_stream();
        let first = pieces.recv().unwrap();
        assert_eq!(&first[..], pattern.bytes(0, first.len()));
        let mut at = first.len();
        drop(first);
        // Long enough for all of it, if nothing held it up.
        windlass::sleep(Duration::from_millis(100));
        assert!(!sender.is_finished());
        let ahead = pieces.finish().unwrap();
        assert!(ahead.len() <= SLOTS, "{} pieces", ahead.len());
        for bytes in ahead {
            assert_eq!(&bytes[..], pattern.bytes(at, bytes.len()));
            at += bytes.len();
        }
        // The rest is in the socket, for whoever reads it how ever.
        let mut buf = vec![0; 100_000];
        while at < N_BYTES {
            let n = (&b).read(&mut buf).unwrap();
            assert!(n > 0);
            assert_eq!(buf[..n], *pattern.bytes(at, n));
            at += n;
        }
        sender.join().unwrap();
    });
}

/// One that does not ask leaves the others some.
#[test]
fn streams_that_nobody_asks_do_not_stop_others() {
    run(1, || {
        let lazy: Vec<_> = (0..20)
            .map(|_| {
                let (a, b) = pair();
                // Sends until nobody takes it any more.
                spawn(move || while (&a).write_all(&[7; 60_000]).is_ok() {});
                b
            })
            .collect();
        let mut pieces: Vec<_> = lazy.iter().map(TcpStream::recv_stream).collect();
        for stream in &mut pieces {
            assert!(!stream.recv().unwrap().is_empty());
        }
        settle();
        let (a, b) = pair();
        spawn(move || send_numbers(a, 1000));
        assert_eq!(all_of(b.recv_stream()), numbers(1000));
        // Those who ask again get on.
        for stream in &mut pieces {
            for _ in 0..3 * SLOTS {
                assert!(stream.recv().unwrap().iter().all(|&byte| byte == 7));
            }
        }
    });
}

#[test]
fn a_deadline_ends_the_wait_and_takes_nothing() {
    on_each(|kind| {
        let (mut a, b) = pair();
        let receiver = kind.spawn(move || {
            let mut pieces = b.recv_stream();
            b.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
            let late = pieces.recv().unwrap_err();
            assert_eq!(late.kind(), ErrorKind::WouldBlock);
            b.set_read_timeout(None).unwrap();
            b.set_read_deadline(Some(Instant::now()));
            assert!(pieces.recv().is_err());
            b.set_read_deadline(None);
            drop(pieces);
            b
        });
        let b = receiver.join();
        a.write_all(b"late").unwrap();
        assert_eq!(&b.recv_stream().recv().unwrap()[..], b"late");
    });
}

/// It reaches one who waits already.
#[test]
fn a_deadline_that_is_brought_forward() {
    run(2, || {
        let (mut a, b) = pair();
        let b = std::sync::Arc::new(b);
        let same = std::sync::Arc::clone(&b);
        let waits = spawn(move || {
            let mut pieces = same.recv_stream();
            let cut = pieces.recv().unwrap_err().kind();
            same.set_read_deadline(None);
            (cut, pieces.recv().unwrap().to_vec())
        });
        settle();
        b.set_read_deadline(Some(Instant::now()));
        windlass::sleep(Duration::from_millis(5));
        a.write_all(b"more").unwrap();
        let (cut, bytes) = waits.join().unwrap();
        assert_eq!(cut, ErrorKind::WouldBlock);
        assert_eq!(bytes, b"more");
    });
}

/// Deadlines, contexts and ends in a race with the data: each byte comes once.
#[test]
fn no_byte_is_lost_to_who_ends_the_wait() {
    const N: u32 = 3_000;
    run(2, || {
        let (a, b) = pair();
        let sender = spawn(move || send_numbers(a, N));
        b.set_read_timeout(Some(Duration::from_micros(60))).unwrap();
        let mut all = Vec::new();
        let mut pieces = b.recv_stream();
        for round in 0.. {
            let short = Context::background().with_timeout(Duration::from_micros(round % 50));
            let piece = match round % 3 {
                0 => short.run(|| pieces.recv()),
                _ => pieces.recv(),
            };
            match piece {
                Ok(bytes) if bytes.is_empty() => break,
                Ok(bytes) => all.extend_from_slice(&bytes),
                Err(e) => assert!(
                    [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&e.kind()),
                    "{e}"
                ),
            }
            if round % 40 == 39 {
                // Another one goes on where this one ended.
                let ahead = std::mem::replace(&mut pieces, b.recv_stream())
                    .finish()
                    .unwrap();
                ahead.iter().for_each(|bytes| all.extend_from_slice(bytes));
            }
        }
        sender.join().unwrap();
        assert!(all == numbers(N), "{} bytes of {}", all.len(), 4 * N);
    });
}

/// A goroutine asks, and a thread goes on; and the other way round.
#[test]
fn threads_and_goroutines_take_turns() {
    let _guard = hang_guard();
    let (a, b) = pair();
    let sender = std::thread::spawn(move || send_numbers(a, 600));
    let mut all = Vec::new();
    let mut pieces = b.recv_stream();
    let rt = runtime(2);
    let mut take = |pieces: &mut RecvStream<'_>, n: usize| {
        for _ in 0..n {
            match pieces.recv().unwrap() {
                bytes if bytes.is_empty() => return true,
                bytes => all.extend_from_slice(&bytes),
            }
        }
        false
    };
    while !rt.run(|| {
        let is_over = take(&mut pieces, 5);
        // A blocking section is a thread as well.
        is_over || blocking(|| take(&mut pieces, 3))
    }) && !take(&mut pieces, 4)
    {}
    sender.join().unwrap();
    assert!(all == numbers(600), "{} bytes", all.len());
}

#[test]
fn a_stream_that_is_dropped_lets_go_of_its_socket() {
    run(2, || {
        for i in 0..100 {
            let (mut a, b) = pair();
            if i % 2 == 0 {
                a.write_all(b"some").unwrap();
            }
            let mut pieces = b.recv_stream();
            b.set_read_timeout(Some(Duration::from_micros(10))).unwrap();
            let _ = pieces.recv();
            drop(pieces);
            drop(b);
            // The end, or a reset for what was not read.
            assert!(matches!(a.read(&mut [0]), Ok(0) | Err(_)));
        }
    });
}

#[test]
fn a_non_blocking_stream_does_not_wait() {
    let check = || {
        let (mut a, b) = pair();
        b.set_nonblocking(true).unwrap();
        let mut pieces = b.recv_stream();
        assert_eq!(pieces.recv().unwrap_err().kind(), ErrorKind::WouldBlock);
        a.write_all(b"now").unwrap();
        wait_until(|| b.peek(&mut [0]).is_ok());
        assert_eq!(&pieces.recv().unwrap()[..], b"now");
    };
    check();
    run(1, check);
}

#[test]
fn errors_are_those_of_reading() {
    run(2, || {
        let (mut a, b) = pair();
        let mut pieces = b.recv_stream();
        a.write_all(b"before").unwrap();
        assert_eq!(&pieces.recv().unwrap()[..], b"before");
        let mut options = TcpOptions::new();
        options.linger(Duration::ZERO).apply(&a).unwrap();
        let waits = spawn(move || {
            windlass::sleep(Duration::from_millis(1));
            drop(a);
        });
        let e = pieces.recv().unwrap_err();
        assert_eq!(e.kind(), ErrorKind::ConnectionReset);
        // It is the socket's once only, as for reads.
        assert!(pieces.recv().unwrap().is_empty());
        waits.join().unwrap();
    });
}

fn set_option(stream: &TcpStream, level: i32, option: i32, value: i32) -> bool {
    // SAFETY: the option is a number of this length.
    #[allow(unsafe_code)]
    let r = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            size_of_val(&value) as u32,
        )
    };
    r == 0
}

/// The number of the next byte that the stream sends; `None` where it may not be asked for.
fn next_number(stream: &TcpStream) -> Option<u32> {
    const TCP_REPAIR_OFF_NO_WP: i32 = -1;
    const SEND_QUEUE: i32 = 2;
    if !set_option(stream, libc::SOL_TCP, libc::TCP_REPAIR, 1) {
        return None;
    }
    assert!(set_option(
        stream,
        libc::SOL_TCP,
        libc::TCP_REPAIR_QUEUE,
        SEND_QUEUE
    ));
    let (mut number, mut len) = (0_u32, 4);
    // SAFETY: the place for the answer is as long as `len` says.
    #[allow(unsafe_code)]
    let r = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_TCP,
            libc::TCP_QUEUE_SEQ,
            (&raw mut number).cast(),
            &raw mut len,
        )
    };
    assert_eq!(r, 0);
    assert!(set_option(
        stream,
        libc::SOL_TCP,
        libc::TCP_REPAIR,
        TCP_REPAIR_OFF_NO_WP
    ));
    Some(number)
}

/// Tells a stream over the IPv6 loopback, as a router would, that its segments are forbidden.
fn forbid(stream: &TcpStream, number: u32) {
    let raw = Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6)).unwrap();
    // Destination unreachable, administratively prohibited; the kernel fills the sum in.
    let mut told = vec![1, 1, 0, 0, 0, 0, 0, 0];
    // What was sent: IPv6, the header of a segment, and these.
    told.extend([0x60, 0, 0, 0, 0, 20, 6, 64]);
    told.extend([Ipv6Addr::LOCALHOST.octets(); 2].concat());
    for addr in [stream.local_addr().unwrap(), stream.peer_addr().unwrap()] {
        told.extend(addr.port().to_be_bytes());
    }
    told.extend(number.to_be_bytes());
    told.extend([0, 0, 0, 0, 0x50, 0x10, 0, 0, 0, 0, 0, 0]);
    let to = SocketAddr::from((Ipv6Addr::LOCALHOST, 0));
    assert_eq!(raw.send_to(&told, &to.into()).unwrap(), told.len());
}

/// EACCES is what a ring answers that may not receive. If it is the socket's error, it is returned:
/// the socket reports it only once, so another receive would wait.
#[test]
fn an_error_that_looks_like_a_denial_is_returned() {
    fn check() {
        let Ok(listener) = TcpListener::bind("[::1]:0") else {
            return eprintln!("skipped: no IPv6 here");
        };
        let mut a = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (b, _) = listener.accept().unwrap();
        let Some(number) = next_number(&b) else {
            return eprintln!("skipped: a stream's numbers may not be asked for here");
        };
        assert!(set_option(&b, libc::SOL_IPV6, libc::IPV6_RECVERR, 1));
        b.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut pieces = b.recv_stream();
        a.write_all(b"before").unwrap();
        assert_eq!(&pieces.recv().unwrap()[..], b"before");
        let clone = b.try_clone().unwrap();
        let tells = spawn(move || {
            windlass::sleep(Duration::from_millis(20));
            forbid(&clone, number);
        });
        let e = pieces.recv().unwrap_err();
        assert_eq!(e.kind(), ErrorKind::PermissionDenied, "{e}");
        tells.join().unwrap();
        a.write_all(b"after").unwrap();
        assert_eq!(&pieces.recv().unwrap()[..], b"after");
    }
    run(2, check);
}

/// An error that comes behind bytes nobody has asked for takes none of them along, and is told:
/// the socket tells it once only.
#[test]
fn an_error_that_ends_a_stream_leaves_what_came_before() {
    let mut n_both = 0;
    run(2, || {
        // The reset may overtake the bytes, which the kernel then drops.
        for _ in 0..1000 {
            let (mut a, b) = pair();
            let mut pieces = b.recv_stream();
            a.write_all(b"first").unwrap();
            assert_eq!(&pieces.recv().unwrap()[..], b"first");
            b.set_read_timeout(Some(Duration::from_micros(10))).unwrap();
            pieces.recv().unwrap_err();
            a.write_all(b"second").unwrap();
            settle();
            let mut options = TcpOptions::new();
            options.linger(Duration::ZERO).apply(&a).unwrap();
            drop(a);
            settle();
            let Err(e) = pieces.finish() else {
                // Over epoll nothing comes ahead.
                assert!(!has_rings());
                return;
            };
            assert_eq!(e.error().kind(), ErrorKind::ConnectionReset);
            assert!(e.pieces().iter().all(|piece| **piece == *b"second"));
            let said = e.to_string();
            let (pieces, error) = e.into_parts();
            assert!(said.contains(&error.to_string()), "{said}");
            n_both += pieces.len();
            if n_both == 10 {
                return;
            }
        }
    });
    assert!(n_both == 10 || !has_rings(), "{n_both}");
}

/// A P loses its thread to a goroutine that blocks, and its number changes: what is armed is
/// armed again elsewhere.
#[test]
fn receives_survive_what_happens_to_their_p() {
    let _guard = hang_guard();
    let rt = runtime(3);
    let over = std::sync::atomic::AtomicBool::new(false);
    rt.run(|| {
        windlass::scope(|s| {
            let receivers: Vec<_> = (0..12)
                .map(|i| {
                    let (a, b) = pair();
                    s.spawn(move || {
                        for n in 0..60_u32 {
                            (&a).write_all(&n.to_ne_bytes()).unwrap();
                            windlass::sleep(Duration::from_millis(1));
                        }
                    });
                    s.spawn(move || {
                        let mut all = Vec::new();
                        for bytes in b.recv_stream() {
                            all.extend_from_slice(&bytes.unwrap());
                            if (all.len() + i) % 40 == 0 {
                                // Undeclared: longer than a P is left to it.
                                std::thread::sleep(Duration::from_millis(12));
                            }
                        }
                        assert!(all == numbers(60), "{} bytes", all.len());
                    })
                })
                .collect();
            let resizes = s.spawn(|| {
                for n in [1, 3, 2, 1, 3].into_iter().cycle() {
                    if over.load(std::sync::atomic::Ordering::SeqCst) {
                        return;
                    }
                    util::set_processors(&rt, n);
                    windlass::sleep(Duration::from_millis(3));
                }
            });
            receivers.into_iter().for_each(|j| j.join().unwrap());
            over.store(true, std::sync::atomic::Ordering::SeqCst);
            resizes.join().unwrap();
        });
    });
}

/// Nothing of a receive that is armed when its run ends stays: neither its memory nor the
/// pool's. In a process of its own, where nobody else maps anything.
#[test]
fn the_end_of_a_run_leaves_nothing_armed() {
    if util::child_case().is_none() {
        util::child_passes("the_end_of_a_run_leaves_nothing_armed", "");
        return;
    }
    let round = || {
        let (mut a, b) = UnixStream::pair().unwrap();
        let rt = runtime(2);
        let mut kept = b.recv_stream();
        for _ in 0..2 {
            rt.run(|| {
                for _ in 0..20 {
                    let (peer, stream) = UnixStream::pair().unwrap();
                    spawn(move || {
                        let _peer = peer;
                        stream.recv_stream().recv()
                    });
                }
                a.write_all(b"x").unwrap();
                assert_eq!(&kept.recv().unwrap()[..], b"x");
                b.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
                kept.recv().unwrap_err();
                b.set_read_timeout(None).unwrap();
                settle();
            });
            // Armed by a run that is over.
            a.write_all(b"later").unwrap();
            assert_eq!(&kept.recv().unwrap()[..], b"later");
        }
        drop(kept);
        drop(rt);
        util::open_fds().len()
    };
    const ROUNDS: usize = 40;
    // The allocator makes some of its own.
    const SLACK: usize = ROUNDS / 2;
    let _guard = hang_guard();
    let (n_fds, n_mappings) = (round(), util::mappings().len());
    for _ in 0..ROUNDS {
        assert_eq!(round(), n_fds);
    }
    assert!(util::mappings().len() < n_mappings + SLACK);
}

/// Goroutines that lose their P between two receives, many at once, buffers dropped
/// elsewhere: what comes is what was sent.
#[test]
fn streams_keep_apart_while_goroutines_move() {
    run(4, || {
        let sessions: Vec<_> = (0..40u8)
            .map(|id| {
                let (a, b) = pair();
                spawn(move || {
                    for _ in 0..60 {
                        (&a).write_all(&[id; 700]).unwrap();
                        windlass::yield_now();
                    }
                });
                spawn(move || {
                    let (sender, receiver) = windlass::channel::bounded::<RecvBuf>(8);
                    let checker = spawn(move || {
                        let mut n = 0;
                        for bytes in receiver {
                            assert!(bytes.iter().all(|&byte| byte == id));
                            n += bytes.len();
                        }
                        n
                    });
                    for bytes in b.recv_stream() {
                        let bytes = bytes.unwrap();
                        // Longer than sysmon leaves a P to a blocking call.
                        if bytes.len() % 3 == 0 {
                            blocking(|| std::thread::sleep(Duration::from_micros(100)));
                        }
                        sender.send(bytes).unwrap();
                    }
                    drop(sender);
                    checker.join().unwrap()
                })
            })
            .collect();
        for session in sessions {
            assert_eq!(session.join().unwrap(), 60 * 700);
        }
    });
}

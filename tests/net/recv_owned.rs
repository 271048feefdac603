//! `recv_owned`: buffers of the runtime, which are given back by dropping.
#![allow(clippy::disallowed_methods, reason = "plain threads take part")]

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use windlass::time::{Duration, Instant};

use crate::both::{on_each, run_line, settle};
use crate::util::{Pattern, hang_guard, has_rings, pair, run, runtime, wait_until};
use windlass::io::RecvBuf;
use windlass::net::{TcpStream, UnixStream};
use windlass::{blocking, spawn};

/// Slots of a P's pool, and what each holds.
const SLOTS: usize = 128;
const SLOT_BYTES: usize = 16 << 10;

/// Receives to the end.
fn drain(stream: &TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    loop {
        let bytes = stream.recv_owned().unwrap();
        if bytes.is_empty() {
            return all;
        }
        all.extend_from_slice(&bytes);
    }
}

#[test]
fn what_is_sent_comes_and_then_the_end() {
    on_each(|kind| {
        let (mut a, b) = pair();
        let receiver = kind.spawn(move || drain(&b));
        settle();
        a.write_all(b"hello").unwrap();
        settle();
        a.write_all(b" again").unwrap();
        a.shutdown(Shutdown::Write).unwrap();
        assert_eq!(receiver.join(), b"hello again");
    });
}

#[test]
fn the_bytes_may_be_changed_and_shown() {
    let (mut a, b) = UnixStream::pair().unwrap();
    let check = move || {
        a.write_all(b"abc").unwrap();
        let mut bytes = b.recv_owned().unwrap();
        bytes.reverse();
        assert_eq!(&bytes[..], b"cba");
        assert_eq!(bytes.as_ref().len(), 3);
        assert!(format!("{bytes:?}").contains("len: 3"));
        bytes.is_pooled()
    };
    assert_eq!(run(1, check), has_rings());
}

/// Much more than all slots hold, through buffers that are kept for a while.
#[test]
fn a_long_stream_keeps_its_order() {
    run(2, || {
        let pattern = Pattern::new();
        let total = SLOTS * SLOT_BYTES * 3 + 12_345;
        let (a, b) = pair();
        let sender = spawn(move || {
            let pattern = Pattern::new();
            let mut a = &a;
            let mut at = 0;
            while at < total {
                let len = (total - at).min(50_000);
                a.write_all(pattern.bytes(at, len)).unwrap();
                at += len;
            }
        });
        let mut kept = std::collections::VecDeque::new();
        let (mut at, mut seen) = (0, 0);
        loop {
            let bytes = b.recv_owned().unwrap();
            assert!(bytes.len() <= SLOT_BYTES);
            let is_end = bytes.is_empty();
            seen += bytes.len();
            kept.push_back(bytes);
            // A buffer that is kept is not written over.
            while kept.len() > 20 || is_end && !kept.is_empty() {
                let bytes = kept.pop_front().unwrap();
                assert_eq!(&bytes[..], pattern.bytes(at, bytes.len()));
                at += bytes.len();
            }
            if is_end {
                break;
            }
        }
        assert_eq!((seen, at), (total, total));
        sender.join().unwrap();
    });
}

/// With every slot out, receives go on in memory of the allocator, and lose nothing;
/// slots that come back are used again.
#[test]
fn an_empty_pool_costs_no_byte() {
    run(1, || {
        let (mut a, b) = pair();
        let receive = |a: &mut TcpStream, i: usize| {
            a.write_all(&(i as u32).to_ne_bytes()).unwrap();
            let bytes = b.recv_owned().unwrap();
            assert_eq!(bytes[..], (i as u32).to_ne_bytes());
            bytes
        };
        let kept: Vec<RecvBuf> = (0..SLOTS * 2).map(|i| receive(&mut a, i)).collect();
        let n_pooled = kept.iter().filter(|bytes| bytes.is_pooled()).count();
        assert_eq!(n_pooled, if has_rings() { SLOTS } else { 0 });
        for (i, bytes) in kept.iter().enumerate() {
            assert_eq!(bytes[..], (i as u32).to_ne_bytes());
        }
        // Given back by a thread that the runtime does not know.
        blocking(|| std::thread::spawn(move || drop(kept)).join().unwrap());
        for i in 0..SLOTS * 3 {
            assert_eq!(receive(&mut a, i).is_pooled(), has_rings());
        }
    });
}

/// Waiting takes no slot: more goroutines wait than there are slots, and the one that is
/// served first finds one.
#[test]
fn those_who_wait_hold_no_buffer() {
    run_line(|line| {
        let n = SLOTS + 50;
        let mut peers = Vec::new();
        let waiting: Vec<_> = (0..n)
            .map(|_| {
                let (a, b) = UnixStream::pair().unwrap();
                peers.push(a);
                line.up(move || b.recv_owned().unwrap())
            })
            .collect();
        for (i, (mut peer, waiter)) in peers.into_iter().zip(waiting).enumerate() {
            peer.write_all(&(i as u32).to_ne_bytes()).unwrap();
            let bytes = waiter.join().unwrap();
            assert_eq!(bytes[..], (i as u32).to_ne_bytes());
            assert_eq!(bytes.is_pooled(), has_rings());
        }
    });
}

#[test]
fn a_deadline_ends_the_wait_and_takes_nothing() {
    on_each(|kind| {
        let (mut a, b) = pair();
        let receiver = kind.spawn(move || {
            b.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
            let late = b.recv_owned().unwrap_err();
            assert_eq!(late.kind(), ErrorKind::WouldBlock);
            b.set_read_timeout(None).unwrap();
            b.set_read_deadline(Some(Instant::now()));
            assert!(b.recv_owned().is_err());
            b.set_read_deadline(None);
            b
        });
        let b = receiver.join();
        a.write_all(b"late").unwrap();
        assert_eq!(&b.recv_owned().unwrap()[..], b"late");
    });
}

/// A deadline in a race with the data: each byte comes once.
#[test]
fn no_byte_is_lost_to_a_deadline() {
    run(2, || {
        let (a, b) = pair();
        let sender = spawn(move || {
            for i in 0..2_000u32 {
                (&a).write_all(&i.to_ne_bytes()).unwrap();
                windlass::sleep(Duration::from_micros(u64::from(i % 7) * 20));
            }
        });
        let mut all = Vec::new();
        b.set_read_timeout(Some(Duration::from_micros(60))).unwrap();
        loop {
            match b.recv_owned() {
                Ok(bytes) if bytes.is_empty() => break,
                Ok(bytes) => all.extend_from_slice(&bytes),
                Err(e) => assert_eq!(e.kind(), ErrorKind::WouldBlock),
            }
        }
        sender.join().unwrap();
        let sent: Vec<u8> = (0..2_000u32).flat_map(u32::to_ne_bytes).collect();
        assert_eq!(all, sent);
    });
}

#[test]
fn a_non_blocking_stream_does_not_wait() {
    let check = || {
        let (mut a, b) = pair();
        b.set_nonblocking(true).unwrap();
        assert_eq!(b.recv_owned().unwrap_err().kind(), ErrorKind::WouldBlock);
        a.write_all(b"now").unwrap();
        wait_until(|| b.peek(&mut [0]).is_ok());
        assert_eq!(&b.recv_owned().unwrap()[..], b"now");
    };
    check();
    run(1, check);
}

#[test]
fn errors_are_those_of_reading() {
    run(2, || {
        let (a, b) = pair();
        socket_reset(a);
        let mut kinds = Vec::new();
        while kinds.is_empty() {
            match b.recv_owned() {
                Ok(bytes) => assert!(bytes.is_empty(), "nothing was sent"),
                Err(e) => kinds.push(e.kind()),
            }
        }
        assert_eq!(kinds, [ErrorKind::ConnectionReset]);
    });
}

/// Closes with a reset.
fn socket_reset(stream: TcpStream) {
    let stream = socket2::Socket::from(std::net::TcpStream::from(stream));
    stream.set_linger(Some(Duration::ZERO)).unwrap();
}

/// Buffers may be kept when the run has ended, and when its runtime is gone.
#[test]
fn buffers_outlive_their_runtime() {
    let _guard = hang_guard();
    let rt = runtime(2);
    let receive = |text: &'static [u8]| {
        let (mut a, b) = pair();
        a.write_all(text).unwrap();
        let early = b.recv_owned().unwrap();
        // And one that waits when the run ends.
        spawn(move || b.recv_owned());
        settle();
        drop(a);
        early
    };
    let first = rt.run(|| receive(b"first"));
    let second = rt.run(|| receive(b"second"));
    drop(rt);
    assert_eq!(&first[..], b"first");
    std::thread::spawn(move || drop(first)).join().unwrap();
    assert_eq!(&second[..], b"second");
}

#[test]
fn the_end_of_a_run_ends_waits() {
    let (mut a, b) = UnixStream::pair().unwrap();
    let peer = b.try_clone().unwrap();
    run(2, move || {
        for _ in 0..50 {
            let b = b.try_clone().unwrap();
            spawn(move || b.recv_owned());
        }
        settle();
    });
    a.write_all(b"later").unwrap();
    let mut bytes = [0; 5];
    (&peer).read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"later");
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
                    loop {
                        let bytes = b.recv_owned().unwrap();
                        if bytes.is_empty() {
                            break;
                        }
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

#[cfg(feature = "sim")]
crate::inside::tests! {
    what_is_sent_comes_and_then_the_end,
    the_bytes_may_be_changed_and_shown: "it blocks its thread",
    a_long_stream_keeps_its_order / 200,
    an_empty_pool_costs_no_byte: "it asks that small reads are whole",
    those_who_wait_hold_no_buffer: "it blocks its thread",
    a_deadline_ends_the_wait_and_takes_nothing: "it asks that small reads are whole",
    no_byte_is_lost_to_a_deadline / 10,
    a_non_blocking_stream_does_not_wait: "it asks that small reads are whole",
    errors_are_those_of_reading,
    buffers_outlive_their_runtime: "it uses threads",
    the_end_of_a_run_ends_waits: "it is about the end of a run",
    streams_keep_apart_while_goroutines_move: "it uses threads",
}

//! TCP: listeners and streams, on goroutines and on plain threads, over loopback.
#![allow(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "plain threads take part")]

use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use windlass::time::{Duration, Instant};

use crate::util;
use crate::util::{Pattern, hang_guard, run, runtime, wait_until};
use windlass::context::Context;
use windlass::net::{
    TcpListener, TcpOptions, TcpStream, UdpSocket, UnixListener, UnixSocketAddr, UnixStream,
};
use windlass::{blocking, channel, spawn, task, yield_now};

fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    (listener, addr)
}

/// The two ends of a connection.
fn pair() -> (TcpStream, TcpStream) {
    let (listener, addr) = listener();
    let a = TcpStream::connect(addr).unwrap();
    let (b, from) = listener.accept().unwrap();
    assert_eq!(from, a.local_addr().unwrap());
    (a, b)
}

/// Writes until the pipe takes no more for a while. Gives the bytes it took.
fn fill(stream: &mut TcpStream, pattern: &Pattern) -> usize {
    fill_behind(
        0,
        pattern,
        Duration::from_millis(50),
        stream,
        |stream, bytes| stream.write(bytes),
    )
}

/// As [`fill`], going on behind the byte `n`. The kernel finds room now and then:
/// full is what refuses a little, several times over.
fn fill_behind(
    mut n: usize,
    pattern: &Pattern,
    timeout: Duration,
    stream: &mut TcpStream,
    write: impl Fn(&mut TcpStream, &[u8]) -> io::Result<usize>,
) -> usize {
    let before = stream.write_timeout().unwrap();
    stream.set_write_timeout(Some(timeout)).unwrap();
    let mut n_refused = 0;
    while n_refused < 3 {
        let len = if n_refused == 0 { 100_000 } else { 1000 };
        match write(stream, pattern.bytes(n, len)) {
            Ok(0) => panic!("a write of something gives something"),
            Ok(written) => n += written,
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::WouldBlock, "{e}");
                n_refused += 1;
            }
        }
    }
    stream.set_write_timeout(before).unwrap();
    n
}

#[test]
fn many_clients_and_an_echo() {
    run(4, || {
        let (listener, addr) = listener();
        let server = spawn(move || {
            for stream in listener.incoming().take(util::much(100, 10)) {
                let mut stream = stream.unwrap();
                spawn(move || {
                    let mut buf = [0; 512];
                    loop {
                        match stream.read(&mut buf).unwrap() {
                            0 => return,
                            n => stream.write_all(&buf[..n]).unwrap(),
                        }
                    }
                });
            }
        });
        let clients: Vec<_> = (0..util::much(100, 10) as u32)
            .map(|i| {
                spawn(move || {
                    let mut stream = TcpStream::connect(addr).unwrap();
                    stream.set_nodelay(true).unwrap();
                    for j in 0..50_u32 {
                        let sent = (i * 1000 + j).to_le_bytes();
                        let mut got = [0; 4];
                        stream.write_all(&sent).unwrap();
                        stream.read_exact(&mut got).unwrap();
                        assert_eq!(got, sent);
                    }
                })
            })
            .collect();
        clients.into_iter().for_each(|j| j.join().unwrap());
        server.join().unwrap();
    });
}

#[test]
fn much_data_both_ways_at_once() {
    let n_bytes = util::much(32 << 20, 200_000);
    run(4, || {
        let pattern = Arc::new(Pattern::new());
        let (a, b) = pair();
        let ends: Vec<_> = [a, b]
            .into_iter()
            .map(|end| {
                let end = Arc::new(end);
                let (writer, reader) = (Arc::clone(&end), end);
                let (pattern, same) = (Arc::clone(&pattern), Arc::clone(&pattern));
                // One goroutine writes while another reads, both through a shared reference.
                let writes = spawn(move || {
                    pattern.write(&mut &*writer, 0, n_bytes, 300_000).unwrap();
                    writer.shutdown(Shutdown::Write).unwrap();
                });
                let reads = spawn(move || same.check(&mut &*reader, 200_000).unwrap());
                (writes, reads)
            })
            .collect();
        for (writes, reads) in ends {
            writes.join().unwrap();
            assert_eq!(reads.join().unwrap(), n_bytes);
        }
    });
}

#[test]
fn much_data_in_several_buffers() {
    let n_bytes = util::much(16 << 20, 200_000);
    run(2, || {
        let pattern = Arc::new(Pattern::new());
        let (mut a, mut b) = pair();
        let same = Arc::clone(&pattern);
        let writes = spawn(move || {
            let mut at = 0;
            while at < n_bytes {
                let sizes = [1, 7000, 0, 100, 60_000].map(|size: usize| size.min(n_bytes - at));
                let mut from = at;
                let slices = sizes.map(|size| {
                    let slice = IoSlice::new(same.bytes(from, size.min(n_bytes - from)));
                    from += slice.len();
                    slice
                });
                let n = a.write_vectored(&slices).unwrap();
                assert!(n > 0 && n <= from - at);
                at += n;
            }
            at
        });
        let mut parts = [vec![0; 3], vec![], vec![0; 5000], vec![0; 50_000]];
        let mut at = 0;
        loop {
            let mut slices = parts.each_mut().map(|part| IoSliceMut::new(part));
            let n = b.read_vectored(&mut slices).unwrap();
            if n == 0 {
                break;
            }
            let mut left = n;
            for part in &parts {
                let len = left.min(part.len());
                assert!(
                    part[..len] == *pattern.bytes(at, len),
                    "wrong bytes behind {at}"
                );
                at += len;
                left -= len;
            }
        }
        assert_eq!(at, n_bytes);
        assert_eq!(writes.join().unwrap(), n_bytes);
    });
}

#[test]
fn more_buffers_than_the_kernel_takes() {
    run(2, || {
        let (mut a, mut b) = pair();
        let bytes: Vec<u8> = (0..5000_u32).map(|i| i as u8).collect();
        let slices: Vec<_> = bytes
            .iter()
            .map(|b| IoSlice::new(std::slice::from_ref(b)))
            .collect();
        let mut at = 0;
        while at < 5000 {
            at += a.write_vectored(&slices[at..]).unwrap();
        }
        drop(a);
        let mut got = vec![0_u8; 5000];
        let mut at = 0;
        while at < 5000 {
            let mut slices: Vec<_> = got[at..]
                .iter_mut()
                .map(|b| IoSliceMut::new(std::slice::from_mut(b)))
                .collect();
            let n = b.read_vectored(&mut slices).unwrap();
            assert!(n > 0);
            at += n;
        }
        assert_eq!(got, bytes);
        assert_eq!(b.read(&mut [0]).unwrap(), 0);
    });
}

#[test]
fn empty_buffers() {
    run(1, || {
        let (mut a, mut b) = pair();
        // None of these waits, though nothing was sent.
        assert_eq!(a.read(&mut []).unwrap(), 0);
        assert_eq!(a.peek(&mut []).unwrap(), 0);
        assert_eq!(a.read_vectored(&mut []).unwrap(), 0);
        assert_eq!(
            a.read_vectored(&mut [IoSliceMut::new(&mut []), IoSliceMut::new(&mut [])])
                .unwrap(),
            0
        );
        assert_eq!(a.write(&[]).unwrap(), 0);
        assert_eq!(a.write_vectored(&[]).unwrap(), 0);
        assert_eq!(a.write_vectored(&[IoSlice::new(&[])]).unwrap(), 0);
        a.flush().unwrap();
        a.write_all(&[7]).unwrap();
        assert_eq!(b.read(&mut []).unwrap(), 0);
        let mut byte = [0];
        assert_eq!(
            b.read_vectored(&mut [IoSliceMut::new(&mut []), IoSliceMut::new(&mut byte)])
                .unwrap(),
            1
        );
        assert_eq!(byte, [7]);
    });
}

#[test]
fn peek_takes_nothing_out() {
    run(2, || {
        let (mut a, mut b) = pair();
        let peeks = spawn(move || {
            let mut buf = [0; 8];
            for _ in 0..3 {
                let n = b.peek(&mut buf).unwrap();
                assert!(n >= 1 && buf[0] == b'a');
            }
            let mut all = String::new();
            b.read_to_string(&mut all).unwrap();
            assert_eq!(b.peek(&mut buf).unwrap(), 0);
            all
        });
        a.write_all(b"ahoy").unwrap();
        drop(a);
        assert_eq!(peeks.join().unwrap(), "ahoy");
    });
}

#[test]
fn a_read_timeout_gives_would_block_and_loses_nothing() {
    fn check() {
        let n_bytes = util::much(100_000, 2_000);
        let pattern = Pattern::new();
        let (mut a, mut b) = pair();
        let start = Instant::now();
        b.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
        for _ in 0..3 {
            assert_eq!(
                b.read(&mut [0; 10]).unwrap_err().kind(),
                ErrorKind::WouldBlock
            );
        }
        assert_eq!(
            b.peek(&mut [0; 10]).unwrap_err().kind(),
            ErrorKind::WouldBlock
        );
        let mut two = ([0; 5], [0; 5]);
        let mut slices = [IoSliceMut::new(&mut two.0), IoSliceMut::new(&mut two.1)];
        assert_eq!(
            b.read_vectored(&mut slices).unwrap_err().kind(),
            ErrorKind::WouldBlock
        );
        assert!(start.elapsed() >= Duration::from_millis(50));
        // The timeout and the data race, many times.
        b.set_read_timeout(Some(Duration::from_micros(100)))
            .unwrap();
        task::scope(|s| {
            s.spawn(|| {
                let mut at = 0;
                let mut i = 0_u64;
                while at < n_bytes {
                    let n = (i as usize * 31 % 200 + 1).min(n_bytes - at);
                    a.write_all(pattern.bytes(at, n)).unwrap();
                    at += n;
                    i += 1;
                    windlass::sleep(Duration::from_micros(i % 3 * 50 + 60));
                }
                drop(a);
            });
            let (mut at, mut n_timeouts) = (0, 0);
            let mut buf = [0; 300];
            loop {
                match b.read(&mut buf) {
                    Ok(0) => break,
                    Ok(n) => {
                        assert!(buf[..n] == *pattern.bytes(at, n), "wrong bytes behind {at}");
                        at += n;
                    }
                    Err(e) => {
                        assert_eq!(e.kind(), ErrorKind::WouldBlock, "{e}");
                        n_timeouts += 1;
                    }
                }
            }
            assert_eq!(at, n_bytes, "after {n_timeouts} timeouts");
        });
    }
    run(2, || {
        let several: Vec<_> = (0..4).map(|_| spawn(check)).collect();
        several.into_iter().for_each(|j| j.join().unwrap());
    });
}

#[test]
fn a_read_timeout_on_a_plain_thread() {
    let _guard = hang_guard();
    let (mut a, mut b) = pair();
    b.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
    let start = Instant::now();
    assert_eq!(b.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    assert!(start.elapsed() >= Duration::from_millis(10));
    a.write_all(&[5]).unwrap();
    let mut byte = [0];
    b.set_read_timeout(None).unwrap();
    assert_eq!(b.read(&mut byte).unwrap(), 1);
    assert_eq!(byte, [5]);
}

#[test]
fn a_write_timeout_on_a_full_pipe_loses_nothing() {
    run(2, || {
        let pattern = Arc::new(Pattern::new());
        let (mut a, mut b) = pair();
        let start = Instant::now();
        let n = fill(&mut a, &pattern);
        assert!(start.elapsed() >= Duration::from_millis(150));
        // Again, in several buffers.
        let short = Duration::from_millis(5);
        let n = fill_behind(n, &pattern, short, &mut a, |stream, bytes| {
            let (left, right) = bytes.split_at(bytes.len() / 2);
            stream.write_vectored(&[IoSlice::new(left), IoSlice::new(right)])
        });
        // Exactly what was said to be written arrives, and the stream goes on behind it.
        let same = Arc::clone(&pattern);
        let reads = spawn(move || same.check(&mut b, 50_000).unwrap());
        a.set_write_timeout(None).unwrap();
        let more = util::much(8 << 20, 200_000);
        pattern.write(&mut a, n, n + more, 70_000).unwrap();
        drop(a);
        assert_eq!(reads.join().unwrap(), n + more);
    });
}

#[test]
fn write_timeouts_race_with_a_slow_reader() {
    let n_bytes = util::much(8 << 20, 300_000);
    run(2, || {
        let pattern = Arc::new(Pattern::new());
        let (mut a, mut b) = pair();
        let same = Arc::clone(&pattern);
        let reads = spawn(move || {
            let mut buf = vec![0; 1 << 16];
            let mut at = 0;
            loop {
                let n = b.read(&mut buf).unwrap();
                if n == 0 {
                    return at;
                }
                assert!(buf[..n] == *same.bytes(at, n), "wrong bytes behind {at}");
                at += n;
                windlass::sleep(Duration::from_micros(200));
            }
        });
        a.set_write_timeout(Some(Duration::from_micros(150)))
            .unwrap();
        let (mut at, mut n_timeouts) = (0, 0);
        while at < n_bytes {
            match a.write(pattern.bytes(at, (1 << 20).min(n_bytes - at))) {
                Ok(n) => at += n,
                Err(e) => {
                    assert_eq!(e.kind(), ErrorKind::WouldBlock, "{e}");
                    n_timeouts += 1;
                }
            }
        }
        drop(a);
        assert_eq!(
            reads.join().unwrap(),
            n_bytes,
            "after {n_timeouts} timeouts"
        );
    });
}

#[test]
fn timeouts_of_zero_are_refused() {
    run(1, || {
        let (a, _b) = pair();
        for d in [
            None,
            Some(Duration::from_nanos(1)),
            Some(Duration::from_secs(5)),
            Some(Duration::MAX),
        ] {
            a.set_read_timeout(d).unwrap();
            a.set_write_timeout(d).unwrap();
            if d != Some(Duration::MAX) {
                assert_eq!(
                    (a.read_timeout().unwrap(), a.write_timeout().unwrap()),
                    (d, d)
                );
            }
        }
        a.set_read_timeout(Some(Duration::from_secs(7))).unwrap();
        for e in [
            a.set_read_timeout(Some(Duration::ZERO)),
            a.set_write_timeout(Some(Duration::ZERO)),
        ] {
            assert_eq!(e.unwrap_err().kind(), ErrorKind::InvalidInput);
        }
        assert_eq!(
            a.read_timeout().unwrap(),
            Some(Duration::from_secs(7)),
            "as it was"
        );
        let addr = a.local_addr().unwrap();
        let e = TcpStream::connect_timeout(&addr, Duration::ZERO).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::InvalidInput);
    });
}

#[test]
fn clones_share_their_timeouts_and_the_connection() {
    run(2, || {
        let (a, mut b) = pair();
        let mut clone = a.try_clone().unwrap();
        assert_ne!(a.as_raw_fd(), clone.as_raw_fd());
        a.set_read_timeout(Some(Duration::from_millis(3))).unwrap();
        clone
            .set_write_timeout(Some(Duration::from_secs(4)))
            .unwrap();
        assert_eq!(
            clone.read_timeout().unwrap(),
            Some(Duration::from_millis(3))
        );
        assert_eq!(a.write_timeout().unwrap(), Some(Duration::from_secs(4)));
        assert_eq!(
            clone.read(&mut [0]).unwrap_err().kind(),
            ErrorKind::WouldBlock
        );
        a.set_read_timeout(None).unwrap();
        b.write_all(b"x").unwrap();
        drop(a);
        let mut byte = [0];
        clone.read_exact(&mut byte).unwrap();
        clone.write_all(&byte).unwrap();
        b.read_exact(&mut byte).unwrap();
        assert_eq!(byte, *b"x");
    });
}

#[test]
fn shutdown_wakes_who_waits() {
    for how in [Shutdown::Read, Shutdown::Both] {
        run(2, || {
            let (a, _b) = pair();
            let a = Arc::new(a);
            let started = Arc::new(AtomicUsize::new(0));
            let reads: Vec<_> = (0..3)
                .map(|i| {
                    let (a, started) = (Arc::clone(&a), Arc::clone(&started));
                    spawn(move || {
                        started.fetch_add(1, Ordering::SeqCst);
                        if i == 2 {
                            a.peek(&mut [0; 4])
                        } else {
                            (&*a).read(&mut [0; 4])
                        }
                    })
                })
                .collect();
            wait_until(|| started.load(Ordering::SeqCst) == 3);
            windlass::sleep(Duration::from_millis(2));
            assert!(reads.iter().all(|j| !j.is_finished()));
            a.shutdown(how).unwrap();
            for join in reads {
                assert_eq!(join.join().unwrap().unwrap(), 0);
            }
        });
    }
}

#[test]
fn shutdown_for_writing_is_the_peers_end_of_file() {
    run(2, || {
        let (mut a, mut b) = pair();
        let answers = spawn(move || {
            let mut all = Vec::new();
            b.read_to_end(&mut all).unwrap();
            b.write_all(&all).unwrap();
        });
        a.write_all(b"half-closed").unwrap();
        a.shutdown(Shutdown::Write).unwrap();
        let mut back = String::new();
        a.read_to_string(&mut back).unwrap();
        assert_eq!(back, "half-closed");
        answers.join().unwrap();
        let e = a.write(b"x").unwrap_err();
        assert_eq!(e.kind(), ErrorKind::BrokenPipe);
    });
}

#[test]
fn a_blocked_writer_learns_of_the_close() {
    run(2, || {
        let pattern = Pattern::new();
        let (mut a, b) = pair();
        fill(&mut a, &pattern);
        let started = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&started);
        let writes = spawn(move || {
            let bytes = [0; 4096];
            flag.store(true, Ordering::SeqCst);
            loop {
                if let Err(e) = a.write(&bytes) {
                    return e.kind();
                }
            }
        });
        wait_until(|| started.load(Ordering::SeqCst));
        windlass::sleep(Duration::from_millis(1));
        drop(b);
        let kind = writes.join().unwrap();
        assert!(
            matches!(kind, ErrorKind::BrokenPipe | ErrorKind::ConnectionReset),
            "{kind}"
        );
    });
}

#[test]
fn connections_refused_and_addresses_in_use() {
    run(2, || {
        let (listener, addr) = listener();
        let e = TcpListener::bind(addr).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::AddrInUse);
        drop(listener);
        let addr = util::NOBODY;
        for _ in 0..3 {
            assert_eq!(
                TcpStream::connect(addr).unwrap_err().kind(),
                ErrorKind::ConnectionRefused
            );
            let e = TcpStream::connect_timeout(&addr, Duration::from_secs(60)).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::ConnectionRefused);
        }
        if !util::is_simulated() {
            let e = windlass::blocking(|| TcpStream::connect(addr)).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::ConnectionRefused);
        }
        let none: &[SocketAddr] = &[];
        assert_eq!(
            TcpStream::connect(none).unwrap_err().kind(),
            ErrorKind::InvalidInput
        );
        assert_eq!(
            TcpListener::bind(none).unwrap_err().kind(),
            ErrorKind::InvalidInput
        );
        // The first address that works is taken.
        let (listener, good) = self::listener();
        let stream = TcpStream::connect(&[addr, good][..]).unwrap();
        assert_eq!(stream.peer_addr().unwrap(), good);
        drop(listener);
    });
}

/// A listener that nobody accepts from, and its connections, so many that the kernel
/// answers no more.
fn full_listener() -> (std::net::TcpListener, SocketAddr, Vec<TcpStream>) {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket
        .bind(&"127.0.0.1:0".parse::<SocketAddr>().unwrap().into())
        .unwrap();
    socket.listen(1).unwrap();
    let listener = std::net::TcpListener::from(socket);
    let addr = listener.local_addr().unwrap();
    let mut streams = Vec::new();
    loop {
        match TcpStream::connect_timeout(&addr, Duration::from_millis(200)) {
            Ok(stream) => streams.push(stream),
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::TimedOut, "{e}");
                return (listener, addr, streams);
            }
        }
    }
}

#[test]
fn a_connect_timeout_gives_timed_out() {
    let _guard = hang_guard();
    let check = || {
        let (listener, addr, streams) = full_listener();
        let start = Instant::now();
        let e = TcpStream::connect_timeout(&addr, Duration::from_millis(30)).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::TimedOut);
        assert!(start.elapsed() >= Duration::from_millis(30));
        drop((listener, streams));
    };
    runtime(2).run(check);
    check();
    let (_listener, addr) = listener();
    runtime(1).run(|| TcpStream::connect_timeout(&addr, Duration::from_secs(60)).unwrap());
}

/// In a process of its own: it gives SIGPIPE back the effect it has in programs that
/// are not started by Rust's runtime.
#[test]
fn a_closed_peer_is_an_error_and_no_signal() {
    let Some(_) = util::child_case() else {
        util::child_passes("a_closed_peer_is_an_error_and_no_signal", "sigpipe");
        return;
    };
    // SAFETY: the default disposition of a signal is always valid.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    let check = || {
        for vectored in [false, true] {
            let (mut a, b) = pair();
            drop(b);
            let kind = loop {
                let r = if vectored {
                    a.write_vectored(&[IoSlice::new(b"ab"), IoSlice::new(b"c")])
                } else {
                    a.write(b"abc")
                };
                match r {
                    Ok(n) => assert!(n > 0),
                    Err(e) => break e.kind(),
                }
                yield_now();
            };
            assert!(
                matches!(kind, ErrorKind::BrokenPipe | ErrorKind::ConnectionReset),
                "{kind}"
            );
            let (a, mut b) = pair();
            a.shutdown(Shutdown::Write).unwrap();
            let kind = (&a).write(b"abc").unwrap_err().kind();
            assert_eq!(kind, ErrorKind::BrokenPipe);
            assert_eq!(b.read(&mut [0]).unwrap(), 0);
        }
        // A writer that waits when the peer goes.
        let (mut a, b) = pair();
        fill(&mut a, &Pattern::new());
        let closes = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            drop(b);
        });
        let kind = loop {
            if let Err(e) = a.write(&[0; 10_000]) {
                break e.kind();
            }
        };
        assert!(
            matches!(kind, ErrorKind::BrokenPipe | ErrorKind::ConnectionReset),
            "{kind}"
        );
        blocking(|| closes.join()).unwrap();
    };
    run(2, check);
    check();
}

#[test]
fn a_reset_is_told_to_the_reader() {
    run(2, || {
        let (a, mut b) = pair();
        let started = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&started);
        let reads = spawn(move || {
            flag.store(true, Ordering::SeqCst);
            b.read(&mut [0; 10]).unwrap_err().kind()
        });
        wait_until(|| started.load(Ordering::SeqCst));
        socket2::SockRef::from(&a)
            .set_linger(Some(Duration::ZERO))
            .unwrap();
        drop(a);
        assert_eq!(reads.join().unwrap(), ErrorKind::ConnectionReset);
    });
}

#[test]
fn conversions_to_and_from_std() {
    run(2, || {
        let (listener, addr) = listener();
        let std_listener: std::net::TcpListener = listener.into();
        assert_eq!(std_listener.local_addr().unwrap(), addr);
        let listener = TcpListener::from(std_listener);
        let std_client = blocking(|| std::net::TcpStream::connect(addr)).unwrap();
        let mut client = TcpStream::from(std_client);
        let (server, _) = listener.accept().unwrap();
        // By way of std, an owned descriptor and a raw one.
        let mut std_server: std::net::TcpStream = server.into();
        blocking(|| std_server.write_all(b"one")).unwrap();
        let mut server = TcpStream::from(OwnedFd::from(std_server));
        server.write_all(b"two").unwrap();
        let raw = server.into_raw_fd();
        // SAFETY: the descriptor was given up just now, so it is nobody else's.
        let mut server = unsafe { TcpStream::from_raw_fd(raw) };
        assert_eq!(server.as_raw_fd(), raw);
        server.write_all(b"three").unwrap();
        drop(server);
        let mut all = String::new();
        client.read_to_string(&mut all).unwrap();
        assert_eq!(all, "onetwothree");
        let text = format!("{client:?} {listener:?}");
        assert!(
            text.contains("TcpStream") && text.contains("TcpListener"),
            "{text}"
        );
    });
}

/// Over epoll a listener is in non-blocking mode, which is not its owner's wish: a duplicate waits
/// as the listener does.
#[test]
fn a_duplicate_of_a_listener_waits_as_it_does() {
    run(2, || {
        let (listener, addr) = listener();
        let connect = move |n: u64| {
            spawn(move || {
                windlass::sleep(Duration::from_millis(20 * n));
                TcpStream::connect(addr).unwrap();
            })
        };
        let first = connect(0);
        listener.accept().unwrap();
        let duplicate = || TcpListener::from(listener.as_fd().try_clone_to_owned().unwrap());
        let second = connect(1);
        let one = duplicate();
        one.accept().unwrap();
        drop(one);
        let third = connect(1);
        duplicate().accept().unwrap();
        // The mode that was asked for holds.
        listener.set_nonblocking(true).unwrap();
        let none = duplicate().accept().unwrap_err();
        assert_eq!(none.kind(), ErrorKind::WouldBlock);
        for connected in [first, second, third] {
            connected.join().unwrap();
        }
    });
}

/// The mode of listeners is as documented, and so is the way to hand one over.
#[test]
fn a_listener_over_epoll_can_be_handed_over() {
    use windlass::net::{UnixListener, UnixStream};

    fn is_nonblocking(socket: &impl std::os::fd::AsFd) -> bool {
        // SAFETY: takes a descriptor and plain numbers.
        let flags = unsafe { libc::fcntl(socket.as_fd().as_raw_fd(), libc::F_GETFL) };
        flags & libc::O_NONBLOCK != 0
    }
    fn accept_one(listener: &TcpListener) {
        let addr = listener.local_addr().unwrap();
        let connects = spawn(move || TcpStream::connect(addr).unwrap());
        listener.accept().unwrap();
        connects.join().unwrap();
    }
    let name = "a_listener_over_epoll_can_be_handed_over";
    if util::child_case().is_none() {
        util::child_passes_with_io(name, "epoll", Some("epoll"));
        return;
    }
    run(2, || {
        // Conversions.
        let (listener, _) = listener();
        accept_one(&listener);
        assert!(is_nonblocking(&listener));
        let std = std::net::TcpListener::from(listener);
        assert!(!is_nonblocking(&std));
        let listener = TcpListener::from(std);
        accept_one(&listener);
        // SAFETY: the descriptor was given up just now, so it is nobody else's.
        let raw = unsafe { OwnedFd::from_raw_fd(listener.into_raw_fd()) };
        assert!(!is_nonblocking(&raw));
        // A duplicate, as another process gets one.
        let listener = TcpListener::from(raw);
        accept_one(&listener);
        listener.set_nonblocking(false).unwrap();
        let (a, b) = UnixStream::pair().unwrap();
        a.send_with_fds(b"!", &[listener.as_fd()]).unwrap();
        let (_, mut fds) = b.recv_with_fds(&mut [0]).unwrap();
        assert!(!is_nonblocking(&fds[0]));
        accept_one(&TcpListener::from(fds.remove(0)));
        // It still accepts.
        accept_one(&listener);

        // A plain thread is told when one in that mode was shut down.
        let path = std::env::temp_dir().join(format!("windlass-mode-{}", std::process::id()));
        let listener = UnixListener::bind(&path).unwrap();
        let there = path.clone();
        let connects = spawn(move || UnixStream::connect(there).unwrap());
        listener.accept().unwrap();
        connects.join().unwrap();
        listener.shutdown().unwrap();
        let accepts = std::thread::spawn(move || listener.accept().unwrap_err().kind());
        let kind = blocking(|| accepts.join()).unwrap();
        assert_eq!(kind, ErrorKind::InvalidInput);
        std::fs::remove_file(&path).unwrap();
    });
}

/// Mode and timeouts come along from `std`, and go back.
#[test]
fn conversions_keep_the_mode_and_the_timeouts() {
    use std::os::unix::net as unix;
    use windlass::net::{UdpSocket, UnixDatagram, UnixListener, UnixStream};

    const READ: Option<Duration> = Some(Duration::from_millis(40));
    const WRITE: Option<Duration> = Some(Duration::from_secs(3));

    fn is_nonblocking(socket: &impl std::os::fd::AsFd) -> bool {
        // SAFETY: takes a descriptor and plain numbers.
        let flags = unsafe { libc::fcntl(socket.as_fd().as_raw_fd(), libc::F_GETFL) };
        flags & libc::O_NONBLOCK != 0
    }

    macro_rules! check {
        ($std:ty, $ours:ty, $socket:expr, $receive:expr) => {{
            let socket: $std = $socket;
            // Their values in the kernel: it counts in ticks.
            socket.set_read_timeout(READ).unwrap();
            socket.set_write_timeout(WRITE).unwrap();
            let (read, write) = (
                socket.read_timeout().unwrap(),
                socket.write_timeout().unwrap(),
            );
            let ours = <$ours>::from(socket);
            assert_eq!(ours.read_timeout().unwrap(), read);
            assert_eq!(ours.write_timeout().unwrap(), write);
            let receive: fn(&$ours) -> io::Result<()> = $receive;
            // Without the timeout it would hang.
            assert_eq!(receive(&ours).unwrap_err().kind(), ErrorKind::WouldBlock);
            // Back as they were, and as they were changed here.
            let socket = <$std>::from(ours);
            assert_eq!(socket.read_timeout().unwrap(), read);
            let ours = <$ours>::from(OwnedFd::from(socket));
            ours.set_read_timeout(None).unwrap();
            ours.set_write_timeout(READ).unwrap();
            let socket = <$std>::from(ours);
            assert_eq!(socket.read_timeout().unwrap(), None);
            assert_eq!(socket.write_timeout().unwrap(), read);
            // A timeout of less than the kernel's unit is not lost.
            let ours = <$ours>::from(socket);
            ours.set_read_timeout(Some(Duration::from_nanos(1)))
                .unwrap();
            ours.set_write_timeout(Some(Duration::from_nanos(999)))
                .unwrap();
            let socket = <$std>::from(ours);
            assert!(socket.read_timeout().unwrap().is_some());
            assert!(socket.write_timeout().unwrap().is_some());

            socket.set_nonblocking(true).unwrap();
            let ours = <$ours>::from(socket);
            assert_eq!(receive(&ours).unwrap_err().kind(), ErrorKind::WouldBlock);
            ours.set_nonblocking(false).unwrap();
            assert!(!is_nonblocking(&ours));
            ours.set_nonblocking(true).unwrap();
            assert!(is_nonblocking(&<$std>::from(ours)));
        }};
    }
    macro_rules! check_listener {
        ($std:ty, $ours:ty, $socket:expr) => {{
            let socket: $std = $socket;
            socket.set_nonblocking(true).unwrap();
            let ours = <$ours>::from(socket);
            // Without the mode it would hang.
            assert_eq!(ours.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
            assert!(is_nonblocking(&<$std>::from(ours)));
        }};
    }

    run(2, || {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        check!(
            std::net::TcpStream,
            TcpStream,
            listener.accept().unwrap().0,
            |mut s| s.read(&mut [0]).map(drop)
        );
        drop(peer);
        let (stream, _peer) = unix::UnixStream::pair().unwrap();
        check!(unix::UnixStream, UnixStream, stream, |mut s| s
            .read(&mut [0])
            .map(drop));
        let (datagram, _peer) = unix::UnixDatagram::pair().unwrap();
        check!(unix::UnixDatagram, UnixDatagram, datagram, |s| s
            .recv(&mut [0])
            .map(drop));
        let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        check!(std::net::UdpSocket, UdpSocket, udp, |s| s
            .recv(&mut [0])
            .map(drop));
        check_listener!(std::net::TcpListener, TcpListener, listener);
        let dir = std::env::temp_dir();
        let path = dir.join(format!("windlass-std-{}", std::process::id()));
        let listener = unix::UnixListener::bind(&path).unwrap();
        check_listener!(unix::UnixListener, UnixListener, listener);
        std::fs::remove_file(&path).unwrap();
    });
}

#[test]
fn a_stream_given_to_std_blocks_as_std_has_it() {
    run(2, || {
        let (a, mut b) = pair();
        let mut a: std::net::TcpStream = a.into();
        let reads = std::thread::spawn(move || {
            let mut word = String::new();
            a.read_to_string(&mut word).map(|_| word)
        });
        windlass::sleep(Duration::from_millis(2));
        b.write_all(b"later").unwrap();
        drop(b);
        assert_eq!(blocking(|| reads.join()).unwrap().unwrap(), "later");
    });
}

#[test]
fn nonblocking_makes_one_attempt() {
    let _guard = hang_guard();
    let check = || {
        let (listener, addr) = listener();
        listener.set_nonblocking(true).unwrap();
        assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
        let mut a = TcpStream::connect(addr).unwrap();
        let mut accepted = None;
        wait_until(|| {
            accepted = listener.accept().ok();
            accepted.is_some()
        });
        let (mut b, _) = accepted.unwrap();
        a.set_nonblocking(true).unwrap();
        let clone = a.try_clone().unwrap();
        assert_eq!(a.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
        assert_eq!(
            (&clone).read(&mut [0]).unwrap_err().kind(),
            ErrorKind::WouldBlock
        );
        assert_eq!(a.peek(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
        let e = loop {
            if let Err(e) = a.write(&[0; 100_000]) {
                break e;
            }
        };
        assert_eq!(e.kind(), ErrorKind::WouldBlock);
        b.write_all(&[3]).unwrap();
        let mut byte = [0];
        wait_until(|| a.read(&mut byte).is_ok());
        assert_eq!(byte, [3]);
        // And back: it waits again.
        a.set_nonblocking(false).unwrap();
        listener.set_nonblocking(false).unwrap();
        let sends = std::thread::spawn(move || b.write_all(&[4]).map(|()| b));
        a.read_exact(&mut byte).unwrap();
        assert_eq!(byte, [4]);
        drop(blocking(|| sends.join()).unwrap().unwrap());
    };
    crate::util::on_thread_and_goroutine(2, check);
}

/// Else it would block its thread, out of reach of deadlines and contexts, until a connection comes.
#[test]
fn an_accept_without_connections_ends_while_a_clone_changes_the_mode() {
    run(2, || {
        let (listener, _) = listener();
        let clone = listener.try_clone().unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let changes = std::thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                clone.set_nonblocking(true).unwrap();
                clone.set_nonblocking(false).unwrap();
            }
        });
        let moment = Duration::from_micros(50);
        for _ in 0..5000 {
            let ctx = Context::background().with_timeout(moment);
            let error = ctx.run(|| listener.accept()).unwrap_err();
            let kinds = [ErrorKind::WouldBlock, ErrorKind::TimedOut];
            assert!(kinds.contains(&error.kind()), "{error}");
        }
        is_over.store(true, Ordering::Relaxed);
        blocking(|| changes.join()).unwrap();
    });
}

/// As `std`'s receives into a buffer with room for it. (Over epoll, and with disorder, an attempt may come before
/// the wait, and takes the bytes that have come.)
#[test]
fn receives_that_wait_wait_for_the_low_water_mark() {
    if !util::has_rings() || util::is_chaotic() {
        return;
    }
    util::on_thread_and_goroutine(2, || {
        let (mut a, mut b) = pair();
        let mark: libc::c_int = 10;
        // SAFETY: the option is an integer, which is valid for reads during the call.
        let set = unsafe {
            libc::setsockopt(
                a.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_RCVLOWAT,
                (&raw const mark).cast(),
                size_of_val(&mark) as libc::socklen_t,
            )
        };
        assert_eq!(set, 0);
        let mut buf = [0; 100];
        // Also when the stream has a multishot poll.
        for _ in 0..8 {
            b.write_all(&[1; 5]).unwrap();
            a.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
            assert_eq!(a.read(&mut buf).unwrap_err().kind(), ErrorKind::WouldBlock);
            b.write_all(&[2; 5]).unwrap();
            a.set_read_timeout(None).unwrap();
            assert_eq!(a.read(&mut buf).unwrap(), 10);
        }
        // The end is not waited for.
        b.write_all(&[3]).unwrap();
        drop(b);
        assert_eq!(a.read(&mut buf).unwrap(), 1);
        assert_eq!(a.read(&mut buf).unwrap(), 0);
    });
}

/// A socket that was in non-blocking mode elsewhere waits after `set_nonblocking(false)`.
#[test]
fn nonblocking_sockets_of_std_can_be_made_to_wait() {
    let _guard = hang_guard();
    let check = || {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        listener.set_nonblocking(true).unwrap();
        let listener = TcpListener::from(listener);
        listener.set_nonblocking(false).unwrap();
        let connects = std::thread::spawn(move || std::net::TcpStream::connect(addr).unwrap());
        let (mut b, _) = listener.accept().unwrap();
        let a = blocking(|| connects.join()).unwrap();
        a.set_nonblocking(true).unwrap();
        let mut a = TcpStream::from(a);
        a.set_nonblocking(false).unwrap();
        a.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        let start = Instant::now();
        assert_eq!(a.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
        assert!(start.elapsed() >= Duration::from_millis(5));
        a.set_read_timeout(None).unwrap();
        let sends = std::thread::spawn(move || b.write_all(&[1]).map(|()| b));
        assert_eq!(a.read(&mut [0]).unwrap(), 1);
        drop(blocking(|| sends.join()).unwrap().unwrap());
    };
    crate::util::on_thread_and_goroutine(2, check);
}

#[test]
fn options() {
    run(1, || {
        let (a, b) = pair();
        assert!(!a.nodelay().unwrap());
        a.set_nodelay(true).unwrap();
        assert!(a.nodelay().unwrap() && !b.nodelay().unwrap());
        a.set_ttl(42).unwrap();
        assert_eq!(a.ttl().unwrap(), 42);
        assert!(a.take_error().unwrap().is_none());
        assert_eq!(a.peer_addr().unwrap(), b.local_addr().unwrap());
        assert_eq!(b.peer_addr().unwrap(), a.local_addr().unwrap());
        let (listener, _) = listener();
        listener.set_ttl(43).unwrap();
        assert_eq!(listener.ttl().unwrap(), 43);
        assert!(listener.take_error().unwrap().is_none());
    });
}

#[test]
fn ipv6_where_there_is_one() {
    run(2, || {
        let listener = match TcpListener::bind("[::1]:0") {
            Ok(listener) => listener,
            Err(e) => return eprintln!("skipped: no IPv6 loopback here ({e})"),
        };
        let mut a = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut b, from) = listener.accept().unwrap();
        assert!(from.is_ipv6());
        a.write_all(b"six").unwrap();
        let mut word = [0; 3];
        b.read_exact(&mut word).unwrap();
        assert_eq!(word, *b"six");
    });
}

#[test]
fn names_are_resolved() {
    run(1, || {
        // The name has the same first address for both.
        let listener = TcpListener::bind("localhost:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut a = TcpStream::connect(("localhost", port)).unwrap();
        let (mut b, _) = listener.accept().unwrap();
        a.write_all(b"!").unwrap();
        b.read_exact(&mut [0]).unwrap();
        TcpStream::connect("no such name").unwrap_err();
    });
}

#[test]
fn threads_and_goroutines_mix() {
    let _guard = hang_guard();
    let (listener, addr) = listener();
    // A server of plain threads for clients on goroutines, and the other way round.
    std::thread::scope(|s| {
        s.spawn(|| {
            for stream in listener.incoming().take(20) {
                let mut stream = stream.unwrap();
                s.spawn(move || {
                    let mut buf = [0; 100];
                    loop {
                        match stream.read(&mut buf).unwrap() {
                            0 => return,
                            n => stream.write_all(&buf[..n]).unwrap(),
                        }
                    }
                });
            }
        });
        let client = move |i: u32| {
            let mut stream = TcpStream::connect(addr).unwrap();
            for j in 0..50_u32 {
                let sent = (i << 16 | j).to_le_bytes();
                let mut got = [0; 4];
                stream.write_all(&sent).unwrap();
                stream.read_exact(&mut got).unwrap();
                assert_eq!(got, sent);
            }
        };
        s.spawn(move || (0..10).for_each(client));
        runtime(2).run(|| {
            let all: Vec<_> = (10..20).map(|i| spawn(move || client(i))).collect();
            all.into_iter().for_each(|j| j.join().unwrap());
        });
    });
}

#[test]
fn one_stream_shared_by_threads_and_goroutines() {
    const N: u64 = 4000;
    run(2, || {
        let (a, b) = pair();
        let (a, b) = (Arc::new(a), Arc::new(b));
        let (n_read, sum) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let reader = |b: Arc<TcpStream>| {
            let (n_read, sum) = (Arc::clone(&n_read), Arc::clone(&sum));
            move || {
                let mut byte = [0];
                while (&*b).read(&mut byte).unwrap() == 1 {
                    n_read.fetch_add(1, Ordering::SeqCst);
                    sum.fetch_add(usize::from(byte[0]), Ordering::SeqCst);
                }
            }
        };
        let goroutines: Vec<_> = (0..3).map(|_| spawn(reader(Arc::clone(&b)))).collect();
        let threads: Vec<_> = (0..2)
            .map(|_| std::thread::spawn(reader(Arc::clone(&b))))
            .collect();
        let writers: Vec<_> = (0..4)
            .map(|_| {
                let a = Arc::clone(&a);
                spawn(move || {
                    for i in 0..N / 4 {
                        (&*a).write_all(&[i as u8]).unwrap();
                    }
                })
            })
            .collect();
        writers.into_iter().for_each(|j| j.join().unwrap());
        a.shutdown(Shutdown::Write).unwrap();
        goroutines.into_iter().for_each(|j| j.join().unwrap());
        threads
            .into_iter()
            .for_each(|t| blocking(|| t.join()).unwrap());
        assert_eq!(n_read.load(Ordering::SeqCst) as u64, N);
        let one: u64 = (0..N / 4).map(|i| u64::from(i as u8)).sum();
        assert_eq!(sum.load(Ordering::SeqCst) as u64, 4 * one);
    });
}

#[test]
fn a_stream_outlives_its_runtime() {
    let _guard = hang_guard();
    let (mut a, mut b, listener) = runtime(2).run(|| {
        let (a, mut b) = pair();
        // Used by ring operations before it leaves.
        let reads = spawn(move || {
            b.read_exact(&mut [0]).unwrap();
            b
        });
        windlass::sleep(Duration::from_millis(1));
        (&a).write_all(&[1]).unwrap();
        (a, reads.join().unwrap(), listener().0)
    });
    a.write_all(&[9]).unwrap();
    let mut byte = [0];
    b.read_exact(&mut byte).unwrap();
    assert_eq!(byte, [9]);
    let addr = listener.local_addr().unwrap();
    let connects = std::thread::spawn(move || TcpStream::connect(addr).unwrap());
    listener.accept().unwrap();
    drop(connects.join().unwrap());
    // And into another runtime.
    runtime(1).run(move || {
        let reads = spawn(move || b.read(&mut [0]).unwrap());
        a.write_all(&[2]).unwrap();
        assert_eq!(reads.join().unwrap(), 1);
    });
}

#[test]
fn a_dropped_listener_refuses() {
    run(2, || {
        let listener = TcpListener::bind(util::own_addr()).unwrap();
        let addr = listener.local_addr().unwrap();
        let clone = listener.try_clone().unwrap();
        drop(listener);
        let accepts = spawn(move || {
            let (stream, _) = clone.accept().unwrap();
            drop(stream);
        });
        let mut stream = TcpStream::connect(addr).unwrap();
        accepts.join().unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
        util::wait_until_refused(|| TcpStream::connect(addr));
    });
}

#[test]
fn several_goroutines_accept_from_one_listener() {
    run(4, || {
        let (listener, addr) = listener();
        let listener = Arc::new(listener);
        let n = Arc::new(AtomicUsize::new(0));
        for _ in 0..5 {
            let (listener, n) = (Arc::clone(&listener), Arc::clone(&n));
            spawn(move || {
                loop {
                    let (mut stream, from) = listener.accept().unwrap();
                    assert_eq!(stream.peer_addr().unwrap(), from);
                    n.fetch_add(1, Ordering::SeqCst);
                    stream.write_all(&[1]).unwrap();
                }
            });
        }
        let clients: Vec<_> = (0..200)
            .map(|_| {
                spawn(move || {
                    let mut all = Vec::new();
                    TcpStream::connect(addr)
                        .unwrap()
                        .read_to_end(&mut all)
                        .unwrap();
                    assert_eq!(all, [1]);
                })
            })
            .collect();
        clients.into_iter().for_each(|j| j.join().unwrap());
        assert_eq!(n.load(Ordering::SeqCst), 200);
    });
}

/// A timeout drops what its closure returns if it has ended a wait in there. An accept that has a connection all the same was not
/// ended.
#[test]
fn a_connection_that_comes_as_a_timeout_ends_is_not_lost() {
    const N: usize = 1_000;
    run(2, || {
        let (listener, addr) = listener();
        let clients = spawn(move || {
            for i in 0..N {
                let mut stream = TcpStream::connect(addr).unwrap();
                let mut byte = [0];
                stream
                    .read_exact(&mut byte)
                    .expect("the connection was dropped");
                // Anywhere between two ends.
                windlass::sleep(Duration::from_micros(i as u64 * 7 % 150));
            }
        });
        while !clients.is_finished() {
            let limit = Duration::from_micros(150);
            if let Ok(accepted) = windlass::time::timeout(limit, || listener.accept()) {
                accepted.unwrap().0.write_all(b"x").unwrap();
            }
        }
        clients.join().unwrap();
    });
}

/// The kernel wakes the accept that has waited longest. Two runtimes stand for two processes with one listener.
#[test]
fn a_connection_that_wakes_an_accept_which_just_ends_is_not_left() {
    const WAIT: Duration = Duration::from_micros(300);
    const STEP: Duration = Duration::from_micros(1);
    let _guard = hang_guard();
    let (first, addr) = listener();
    let second = first.try_clone().unwrap();
    let (to_impatient, begins) = channel::bounded(0);
    let (to_patient, begins_too) = channel::bounded(0);
    let impatient = std::thread::spawn(move || {
        runtime(1).run(move || {
            while let Ok(until) = begins.recv() {
                match Context::background()
                    .with_deadline(until)
                    .run(|| first.accept())
                {
                    Ok((mut stream, _)) => stream.write_all(b"i").unwrap(),
                    Err(e) => assert_eq!(e.kind(), ErrorKind::TimedOut, "{e}"),
                }
            }
        });
    });
    let patient = std::thread::spawn(move || {
        runtime(1).run(move || {
            while let Ok(()) = begins_too.recv() {
                second.accept().unwrap().0.write_all(b"p").unwrap();
            }
        });
    });
    // Returns who answers.
    let ask = || {
        let mut stream = std::net::TcpStream::connect(addr).unwrap();
        let mut who = [0];
        stream.read_exact(&mut who).unwrap();
        who[0]
    };
    let mut n_impatient = 0;
    // How long before the end of the accept it connects: near the edge between the two answers.
    let mut early = WAIT / 3;
    for _ in 0..2_000 {
        let until = Instant::now() + WAIT;
        to_impatient.send(until).unwrap();
        to_patient.send(()).unwrap();
        while Instant::now() < until - early {
            std::hint::spin_loop();
        }
        if ask() == b'i' {
            n_impatient += 1;
            assert_eq!(ask(), b'p');
            early = early.saturating_sub(STEP);
        } else {
            early = WAIT.min(early + STEP);
        }
    }
    eprintln!("{n_impatient} connections came before the end of the accept");
    drop((to_impatient, to_patient));
    impatient.join().unwrap();
    patient.join().unwrap();
}

/// In a process of its own, because it uses up the process's descriptors.
#[test]
fn accept_without_descriptors_neither_spins_nor_dies() {
    let Some(case) = util::child_case() else {
        for case in ["goroutine", "thread"] {
            util::child_passes("accept_without_descriptors_neither_spins_nor_dies", case);
        }
        return;
    };
    let check = || {
        let (listener, addr) = listener();
        let mut clients: Vec<_> = (0..3).map(|_| TcpStream::connect(addr).unwrap()).collect();
        let (limit, _) = util::nofile_limits();
        let mut hoard = vec![];
        util::set_nofile_limit(400);
        while let Ok(file) = std::fs::File::open("/dev/null") {
            hoard.push(file);
        }
        let start = Instant::now();
        for _ in 0..20 {
            let e = listener.accept().unwrap_err();
            assert_eq!(e.raw_os_error(), Some(libc::EMFILE), "{e}");
        }
        // Each was held back for 5 ms.
        assert!(start.elapsed() >= Duration::from_millis(100));
        assert_eq!(
            TcpStream::connect(addr).unwrap_err().raw_os_error(),
            Some(libc::EMFILE)
        );
        // With room again, the connections are still there.
        drop(hoard);
        util::set_nofile_limit(limit);
        for client in &mut clients {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(&[6]).unwrap();
            drop(stream);
            let mut all = Vec::new();
            client.read_to_end(&mut all).unwrap();
            assert_eq!(all, [6]);
        }
    };
    match case.as_str() {
        "goroutine" => run(2, check),
        _ => check(),
    }
}

#[test]
fn errors_of_descriptors_that_are_no_sockets() {
    run(1, || {
        let file = std::fs::File::open("/dev/null").unwrap();
        let mut stream = TcpStream::from(OwnedFd::from(file));
        stream.read(&mut [0]).unwrap_err();
        let e = stream.write(&[0]).unwrap_err();
        assert_eq!(e.raw_os_error(), Some(libc::ENOTSOCK));
        stream.peer_addr().unwrap_err();
        let _: io::Error = stream.shutdown(Shutdown::Both).unwrap_err();
    });
}

/// An operator reads which of many addresses it is.
#[test]
fn errors_name_their_address() {
    #[track_caller]
    fn says<T: std::fmt::Debug>(result: io::Result<T>, errno: i32, begin: &str) {
        let e = result.unwrap_err();
        let of_std = io::Error::from_raw_os_error(errno);
        assert_eq!(e.to_string(), format!("{begin}: {of_std}"));
        assert_eq!(e.kind(), of_std.kind());
        assert_eq!(util::errno_of(&e), Some(errno));
    }
    let check = || {
        let (_listener, addr) = listener();
        let in_use = libc::EADDRINUSE;
        says(TcpListener::bind(addr), in_use, &format!("bind {addr}"));
        let listens = TcpOptions::new().listen(addr);
        says(listens, in_use, &format!("bind {addr}"));
        let addr = util::NOBODY;
        let (refused, peer) = (libc::ECONNREFUSED, format!("connect {addr}"));
        says(TcpStream::connect(addr), refused, &peer);
        says(TcpOptions::new().connect(addr), refused, &peer);
        let timeout = Duration::from_secs(100);
        says(TcpStream::connect_timeout(&addr, timeout), refused, &peer);
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let addr = socket.local_addr().unwrap();
        says(UdpSocket::bind(addr), in_use, &format!("bind {addr}"));
        let name = format!("windlass {}\n", addr.port());
        let unix = UnixSocketAddr::from_abstract_name(&name).unwrap();
        let peer = format!("connect @windlass {}\\n", addr.port());
        says(UnixStream::connect_addr(&unix), refused, &peer);
        let path = "/a folder that is missing/socket";
        let missing = libc::ENOENT;
        says(UnixListener::bind(path), missing, &format!("bind {path}"));
        // Where the address is not the cause, it is not named.
        let (ended, canceller) = Context::background().with_cancel();
        canceller.cancel();
        let e = ended.run(|| TcpStream::connect(addr)).unwrap_err();
        assert!(!e.to_string().contains("connect"), "{e}");
    };
    check();
    run(1, check);
}

#[cfg(feature = "sim")]
crate::inside::tests! {
    errors_name_their_address: "it has a path that is missing",
    many_clients_and_an_echo / 5,
    much_data_both_ways_at_once / 5,
    much_data_in_several_buffers / 5,
    more_buffers_than_the_kernel_takes,
    empty_buffers,
    peek_takes_nothing_out,
    a_read_timeout_gives_would_block_and_loses_nothing / 20,
    a_read_timeout_on_a_plain_thread,
    a_write_timeout_on_a_full_pipe_loses_nothing / 5,
    write_timeouts_race_with_a_slow_reader,
    timeouts_of_zero_are_refused,
    clones_share_their_timeouts_and_the_connection,
    shutdown_wakes_who_waits,
    shutdown_for_writing_is_the_peers_end_of_file,
    a_blocked_writer_learns_of_the_close / 5,
    connections_refused_and_addresses_in_use,
    a_connection_that_wakes_an_accept_which_just_ends_is_not_left: "it has runtimes of its own",
    a_connect_timeout_gives_timed_out: "it fills a queue of the kernel",
    a_closed_peer_is_an_error_and_no_signal: "it has a process of its own",
    a_reset_is_told_to_the_reader,
    conversions_to_and_from_std: "it calls std's sockets",
    a_duplicate_of_a_listener_waits_as_it_does,
    a_listener_over_epoll_can_be_handed_over: "it has a process of its own",
    conversions_keep_the_mode_and_the_timeouts: "it calls std's sockets",
    a_stream_given_to_std_blocks_as_std_has_it: "it uses threads",
    nonblocking_makes_one_attempt: "it uses threads",
    receives_that_wait_wait_for_the_low_water_mark: "it sets an option of the kernel's",
    an_accept_without_connections_ends_while_a_clone_changes_the_mode: "it uses threads",
    nonblocking_sockets_of_std_can_be_made_to_wait: "it calls std's sockets",
    options,
    ipv6_where_there_is_one,
    names_are_resolved / 10,
    threads_and_goroutines_mix: "it uses threads",
    one_stream_shared_by_threads_and_goroutines: "it uses threads",
    a_stream_outlives_its_runtime: "it uses threads",
    a_dropped_listener_refuses / 5,
    several_goroutines_accept_from_one_listener / 20,
    a_connection_that_comes_as_a_timeout_ends_is_not_lost / 20,
    accept_without_descriptors_neither_spins_nor_dies: "it has a process of its own",
    errors_of_descriptors_that_are_no_sockets: "it has a file of the kernel's",
}

//! One body of tests of sockets and pipes, run against the simulated network under many seeds, and against the
//! kernel: the same calls give the same results.
#![allow(
    clippy::disallowed_methods,
    reason = "what is asserted is the same on the kernel"
)]

use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr as UnixAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::util;
use crate::util::PROMISE;
use windlass::context::Context;
use windlass::io::{
    self, ErrorKind, IoSlice, IoSliceMut, Read, Write, pipe, wait_readable, wait_readable_timeout,
    wait_writable,
};
use windlass::net::{
    TcpListener, TcpOptions, TcpStream, UdpSocket, UnixDatagram, UnixListener, UnixStream,
};
use windlass::sim::Sim;
use windlass::time::{Duration, Instant, sleep};
use windlass::{scope, spawn};

const SEEDS: u64 = 40;
const MS: Duration = Duration::from_millis(1);

/// Runs `f` in simulations and on the kernel.
#[track_caller]
fn both(f: fn()) {
    if let Err(failure) = Sim::new(PROMISE).seeds(SEEDS).run(f) {
        panic!("{failure}");
    }
    util::run(2, f);
}

fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    (listener, addr)
}

/// The two ends of a connection.
fn tcp_pair() -> (TcpStream, TcpStream) {
    let (listener, addr) = listener();
    let a = TcpStream::connect(addr).unwrap();
    let (b, from) = listener.accept().unwrap();
    assert_eq!(from, a.local_addr().unwrap());
    (a, b)
}

fn unix_pair() -> (UnixStream, UnixStream) {
    UnixStream::pair().unwrap()
}

#[track_caller]
fn kind<T: std::fmt::Debug>(result: io::Result<T>) -> ErrorKind {
    result.unwrap_err().kind()
}

#[track_caller]
fn errno<T: std::fmt::Debug>(result: io::Result<T>) -> i32 {
    let e = result.unwrap_err();
    util::errno_of(&e).unwrap_or_else(|| panic!("{e:?} has no number"))
}

fn read_all(mut from: impl Read) -> String {
    let mut text = String::new();
    from.read_to_string(&mut text).unwrap();
    text
}

/// A path that no other test has.
fn path(name: &str) -> PathBuf {
    static N: AtomicU32 = AtomicU32::new(0);
    let n = match windlass::sim::is_simulated() {
        // Equal in each run.
        true => 0,
        false => N.fetch_add(1, Ordering::Relaxed),
    };
    std::env::temp_dir().join(format!("windlass-same-{}-{n}-{name}", std::process::id()))
}

#[test]
fn a_server_and_clients() {
    both(|| {
        let (listener, addr) = listener();
        let server = spawn(move || {
            for stream in listener.incoming().take(3) {
                let stream = stream.unwrap();
                spawn(move || io::copy(&mut &stream, &mut &stream).unwrap());
            }
        });
        let clients = [10, 1000, 100_000].map(|n| {
            spawn(move || {
                let stream = TcpStream::connect(addr).unwrap();
                let sent: Vec<u8> = (0..n).map(|i| (i % 251) as u8).collect();
                let mut got = vec![0; n];
                scope(|s| {
                    s.spawn(|| (&stream).write_all(&sent).unwrap());
                    (&stream).read_exact(&mut got).unwrap();
                });
                assert!(got == sent);
                stream.shutdown(Shutdown::Write).unwrap();
                assert_eq!((&stream).read(&mut [0]).unwrap(), 0);
            })
        });
        clients
            .into_iter()
            .for_each(|client| client.join().unwrap());
        server.join().unwrap();
    });
}

#[test]
fn addresses_of_a_connection() {
    both(|| {
        let (listener, addr) = listener();
        assert!(addr.ip().is_loopback() && addr.port() != 0);
        let a = TcpStream::connect(addr).unwrap();
        let (b, from) = listener.accept().unwrap();
        assert_eq!(a.peer_addr().unwrap(), addr);
        assert_eq!(b.local_addr().unwrap(), addr);
        assert_eq!(b.peer_addr().unwrap(), from);
        assert_eq!(a.local_addr().unwrap(), from);
        drop(b);
        // Only this direction still stands.
        assert_eq!(a.peer_addr().unwrap(), addr);
        assert!(format!("{a:?} {listener:?}").contains(&addr.to_string()));
        let any = TcpListener::bind("0.0.0.0:0").unwrap();
        let port = any.local_addr().unwrap().port();
        let a = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let b = any.accept().unwrap().0;
        assert_eq!(b.local_addr().unwrap(), a.peer_addr().unwrap());
    });
}

#[test]
fn both_families_at_one_listener() {
    both(|| {
        let listener = TcpListener::bind("[::]:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let v4 = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let (stream, from) = listener.accept().unwrap();
        assert_eq!(from.ip().to_canonical(), v4.local_addr().unwrap().ip());
        assert!(from.is_ipv6() && stream.local_addr().unwrap().is_ipv6());
        let v6 = TcpStream::connect(("::1", port)).unwrap();
        let (_, from) = listener.accept().unwrap();
        assert_eq!(from, v6.local_addr().unwrap());
        assert_eq!(
            errno(TcpListener::bind(("0.0.0.0", port))),
            libc_errno("EADDRINUSE")
        );
        let only = TcpOptions::new().only_v6(true).listen("[::]:0").unwrap();
        let port = only.local_addr().unwrap().port();
        assert_eq!(
            kind(TcpStream::connect(("127.0.0.1", port))),
            ErrorKind::ConnectionRefused
        );
    });
}

/// The number of an error, by its name.
fn libc_errno(name: &str) -> i32 {
    let all = [
        ("EPERM", 1),
        ("EBADF", 9),
        ("EINVAL", 22),
        ("EPIPE", 32),
        ("EDESTADDRREQ", 89),
        ("EMSGSIZE", 90),
        ("EADDRINUSE", 98),
        ("EADDRNOTAVAIL", 99),
        ("ECONNRESET", 104),
        ("EISCONN", 106),
        ("ENOTCONN", 107),
    ];
    all.iter()
        .find(|(n, _)| *n == name)
        .map(|(_, n)| *n)
        .unwrap()
}

#[test]
fn nobody_listens() {
    both(|| {
        let (listener, addr) = listener();
        drop(listener);
        assert_eq!(kind(TcpStream::connect(addr)), ErrorKind::ConnectionRefused);
        let soon = Duration::from_secs(5);
        assert_eq!(
            kind(TcpStream::connect_timeout(&addr, soon)),
            ErrorKind::ConnectionRefused
        );
        assert_eq!(
            kind(TcpStream::connect_timeout(&addr, Duration::ZERO)),
            ErrorKind::InvalidInput
        );
        assert_eq!(
            errno(TcpListener::bind("192.0.2.77:0")),
            libc_errno("EADDRNOTAVAIL")
        );
    });
}

#[test]
fn ports_are_taken_and_free_again() {
    both(|| {
        let (first, addr) = listener();
        assert_eq!(kind(TcpListener::bind(addr)), ErrorKind::AddrInUse);
        assert_eq!(
            kind(TcpListener::bind(("0.0.0.0", addr.port()))),
            ErrorKind::AddrInUse
        );
        // Connections do not keep it.
        let a = TcpStream::connect(addr).unwrap();
        let b = first.accept().unwrap().0;
        drop(first);
        let second = TcpListener::bind(addr).unwrap();
        drop((a, b));
        let again = second.try_clone().unwrap();
        drop(second);
        assert_eq!(kind(TcpListener::bind(addr)), ErrorKind::AddrInUse);
        drop(again);
        let mut options = TcpOptions::new();
        options.reuse_port(true);
        let group = options.listen_group(addr, 3).unwrap();
        assert_eq!(kind(TcpListener::bind(addr)), ErrorKind::AddrInUse);
        let _a = TcpStream::connect(addr).unwrap();
        drop(group);
    });
}

#[test]
fn a_queue_that_is_full() {
    both(|| {
        let listener = TcpOptions::new().backlog(1).listen("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let _queued = [(); 2].map(|()| TcpStream::connect(addr).unwrap());
        let third = TcpStream::connect_timeout(&addr, 50 * MS);
        assert_eq!(kind(third), ErrorKind::TimedOut);
        drop(listener.accept().unwrap());
        let _third = TcpStream::connect(addr).unwrap();
    });
}

#[test]
fn one_direction_ends() {
    both(|| {
        let (mut a, mut b) = tcp_pair();
        a.write_all(b"last words").unwrap();
        a.shutdown(Shutdown::Write).unwrap();
        a.shutdown(Shutdown::Write).unwrap();
        assert_eq!(kind(a.write(b"x")), ErrorKind::BrokenPipe);
        assert_eq!(read_all(&b), "last words");
        assert_eq!(b.read(&mut [0]).unwrap(), 0);
        b.write_all(b"answer").unwrap();
        drop(b);
        assert_eq!(read_all(&a), "answer");
    });
}

#[test]
fn a_connection_whose_directions_have_both_ended() {
    both(|| {
        let (a, b) = tcp_pair();
        a.shutdown(Shutdown::Both).unwrap();
        assert_eq!((&a).read(&mut [0]).unwrap(), 0);
        assert_eq!((&b).read(&mut [0]).unwrap(), 0);
        b.shutdown(Shutdown::Write).unwrap();
        assert_eq!(kind(a.peer_addr()), ErrorKind::NotConnected);
        assert_eq!(kind(b.peer_addr()), ErrorKind::NotConnected);
        assert_eq!(kind(b.shutdown(Shutdown::Both)), ErrorKind::NotConnected);
        assert!(a.local_addr().is_ok());
    });
}

/// It takes nothing more: the connection is reset at both ends.
#[test]
fn bytes_for_an_end_whose_directions_have_both_ended() {
    both(|| {
        let (a, b) = tcp_pair();
        a.shutdown(Shutdown::Both).unwrap();
        assert_eq!((&b).read(&mut [0]).unwrap(), 0);
        assert_eq!((&b).write(b"x").unwrap(), 1);
        // The answer is under way.
        let refused = loop {
            match (&b).write(b"x") {
                Ok(_) => sleep(MS),
                refused => break errno(refused),
            }
        };
        assert_eq!(refused, libc::EPIPE);
        assert_eq!(errno((&a).read(&mut [0])), libc::ECONNRESET);
        assert_eq!((&a).read(&mut [0]).unwrap(), 0);
        assert_eq!((&b).read(&mut [0]).unwrap(), 0);
    });
}

#[test]
fn a_reader_that_reads_no_more() {
    both(|| {
        let (mut a, mut b) = tcp_pair();
        b.shutdown(Shutdown::Read).unwrap();
        assert_eq!(b.read(&mut [0]).unwrap(), 0);
        a.write_all(b"abc").unwrap();
        wait_readable(&b).unwrap();
        // Bytes that come all the same can be read.
        let mut buf = [0; 3];
        b.read_exact(&mut buf).unwrap();
        assert_eq!(&buf, b"abc");
        assert_eq!(b.read(&mut [0]).unwrap(), 0);
    });
}

#[test]
fn unread_bytes_reset_the_connection() {
    both(|| {
        let (mut a, mut b) = tcp_pair();
        a.write_all(b"unread").unwrap();
        b.write_all(b"before").unwrap();
        wait_readable(&b).unwrap();
        drop(b);
        // The bytes before the reset are there.
        let mut buf = [0; 6];
        a.read_exact(&mut buf).unwrap();
        assert_eq!(kind(a.read(&mut [0])), ErrorKind::ConnectionReset);
        // It is reported once.
        assert_eq!(a.read(&mut [0]).unwrap(), 0);
        assert_eq!(kind(a.write(b"x")), ErrorKind::BrokenPipe);
        assert_eq!(kind(a.peer_addr()), ErrorKind::NotConnected);
        assert_eq!(kind(a.shutdown(Shutdown::Both)), ErrorKind::NotConnected);
    });
}

#[test]
fn writes_to_a_peer_that_has_gone() {
    both(|| {
        let (mut a, b) = tcp_pair();
        drop(b);
        assert_eq!(a.read(&mut [0]).unwrap(), 0);
        // The first one is answered by a reset.
        assert_eq!(a.write(b"x").unwrap(), 1);
        assert_eq!(kind(a.write(b"x")), ErrorKind::BrokenPipe);
        assert_eq!(a.read(&mut [0]).unwrap(), 0);
        assert!(a.take_error().unwrap().is_none());
        // Without a read before, too.
        let (mut a, b) = tcp_pair();
        drop(b);
        assert_eq!(a.write(b"x").unwrap(), 1);
        let error = a.take_error().unwrap().unwrap();
        assert_eq!(error.raw_os_error(), Some(libc_errno("EPIPE")));
        assert_eq!(kind(a.write(b"x")), ErrorKind::BrokenPipe);
    });
}

#[test]
fn lingering_for_no_time_resets() {
    both(|| {
        let (mut a, b) = tcp_pair();
        TcpOptions::new().linger(Duration::ZERO).apply(&b).unwrap();
        drop(b);
        assert_eq!(kind(a.read(&mut [0])), ErrorKind::ConnectionReset);
        assert_eq!(a.read(&mut [0]).unwrap(), 0);
        let (mut a, b) = tcp_pair();
        TcpOptions::new().linger(Duration::ZERO).apply(&b).unwrap();
        drop(b);
        assert_eq!(kind(a.write(b"x")), ErrorKind::ConnectionReset);
        assert_eq!(kind(a.write(b"x")), ErrorKind::BrokenPipe);
    });
}

#[test]
fn listeners_that_end() {
    both(|| {
        let (listener, addr) = listener();
        // One connection waits in the queue.
        let mut queued = TcpStream::connect(addr).unwrap();
        queued.write_all(b"x").unwrap();
        drop(listener);
        assert_eq!(kind(queued.read(&mut [0])), ErrorKind::ConnectionReset);
        let (listener, addr) = self::listener();
        let ended = scope(|s| {
            let accept = s.spawn(|| listener.accept());
            sleep(5 * MS);
            listener.shutdown().unwrap();
            accept.join().unwrap()
        });
        assert_eq!(errno(ended), libc_errno("EINVAL"));
        assert_eq!(errno(listener.accept()), libc_errno("EINVAL"));
        assert_eq!(kind(TcpStream::connect(addr)), ErrorKind::ConnectionRefused);
    });
}

#[test]
fn peeks_and_several_buffers() {
    both(|| {
        let (mut a, mut b) = tcp_pair();
        let parts = [
            IoSlice::new(b"one "),
            IoSlice::new(b""),
            IoSlice::new(b"two"),
        ];
        let mut n = a.write_vectored(&parts).unwrap();
        assert!((1..=7).contains(&n));
        while n < 7 {
            n += a.write(&b"one two"[n..]).unwrap();
        }
        let mut buf = [0; 16];
        let n = b.peek(&mut buf).unwrap();
        assert!(n >= 1 && b"one two".starts_with(&buf[..n]));
        assert!(b.peek(&mut buf).unwrap() >= 1);
        assert_eq!(b.peek(&mut []).unwrap(), 0);
        assert_eq!(b.read(&mut []).unwrap(), 0);
        let (mut x, mut y) = ([0; 2], [0; 5]);
        let n = b.read_vectored(&mut [IoSliceMut::new(&mut x), IoSliceMut::new(&mut y)]);
        let n = n.unwrap();
        let got = [&x[..], &y[..]].concat();
        assert!(n >= 1 && got[..n] == b"one two"[..n]);
        b.read_exact(&mut buf[n..7]).unwrap();
        assert_eq!(a.write(b"").unwrap(), 0);
        assert_eq!(a.write_vectored(&[]).unwrap(), 0);
    });
}

#[test]
fn timeouts_and_deadlines() {
    both(|| {
        let (mut a, b) = tcp_pair();
        assert_eq!(
            kind(a.set_read_timeout(Some(Duration::ZERO))),
            ErrorKind::InvalidInput
        );
        a.set_read_timeout(Some(20 * MS)).unwrap();
        assert_eq!(a.read_timeout().unwrap(), Some(20 * MS));
        let start = Instant::now();
        assert_eq!(kind(a.read(&mut [0])), ErrorKind::WouldBlock);
        assert!(start.elapsed() >= 20 * MS);
        a.set_read_timeout(None).unwrap();
        // A deadline that is moved while the read waits.
        a.set_read_deadline(Some(Instant::now() + Duration::from_secs(3600)));
        scope(|s| {
            let read = s.spawn(|| kind((&a).read(&mut [0])));
            sleep(5 * MS);
            a.set_read_deadline(Some(Instant::now() + 5 * MS));
            assert_eq!(read.join().unwrap(), ErrorKind::WouldBlock);
        });
        assert_eq!(kind((&a).read(&mut [0])), ErrorKind::WouldBlock);
        a.set_read_deadline(None);
        // A write that finds no room.
        b.set_write_timeout(Some(20 * MS)).unwrap();
        let error = loop {
            if let Err(e) = (&b).write(&[7; 100_000]) {
                break e;
            }
        };
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        // Room makes it go on.
        scope(|s| {
            b.set_write_timeout(None).unwrap();
            let write = s.spawn(|| (&b).write_all(&[7; 1000]));
            sleep(2 * MS);
            let mut buf = vec![0; 1 << 20];
            while !write.is_finished() {
                assert_ne!((&a).read(&mut buf).unwrap(), 0);
                windlass::yield_now();
            }
            write.join().unwrap().unwrap();
        });
    });
}

#[test]
fn accepts_and_receives_have_deadlines() {
    both(|| {
        let (listener, _) = listener();
        listener.set_deadline(Some(Instant::now() + 5 * MS));
        assert_eq!(kind(listener.accept()), ErrorKind::WouldBlock);
        assert_eq!(
            kind(listener.accept_stream().accept()),
            ErrorKind::WouldBlock
        );
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(5 * MS)).unwrap();
        assert_eq!(kind(socket.recv_from(&mut [0; 9])), ErrorKind::WouldBlock);
        let (a, _b) = UnixDatagram::pair().unwrap();
        a.set_read_timeout(Some(5 * MS)).unwrap();
        assert_eq!(kind(a.recv(&mut [0; 9])), ErrorKind::WouldBlock);
    });
}

#[test]
fn contexts_end_waits() {
    both(|| {
        let (mut a, mut b) = tcp_pair();
        let (context, cancel) = Context::background().with_cancel();
        scope(|s| {
            let read = s.spawn(|| context.run(|| (&a).read(&mut [0])));
            sleep(5 * MS);
            cancel.cancel();
            assert!(read.join().unwrap().is_err());
        });
        // Also before they begin.
        assert!(context.run(|| (&a).write(b"x")).is_err());
        let late = Context::background().with_timeout(5 * MS);
        assert!(late.run(|| a.read(&mut [0])).is_err());
        // Nothing was lost.
        b.write_all(b"x").unwrap();
        let mut buf = [0];
        a.read_exact(&mut buf).unwrap();
        assert_eq!(&buf, b"x");
        let (mut reader, _writer) = pipe().unwrap();
        let late = Context::background().with_timeout(5 * MS);
        assert!(late.run(|| reader.read(&mut [0])).is_err());
    });
}

#[test]
fn calls_that_do_not_wait() {
    both(|| {
        let (listener, addr) = listener();
        listener.set_nonblocking(true).unwrap();
        assert_eq!(kind(listener.accept()), ErrorKind::WouldBlock);
        let mut a = TcpStream::connect(addr).unwrap();
        wait_readable(&listener).unwrap();
        let (b, _) = listener.accept().unwrap();
        a.set_nonblocking(true).unwrap();
        assert_eq!(kind(a.read(&mut [0])), ErrorKind::WouldBlock);
        assert_eq!(kind(a.peek(&mut [0])), ErrorKind::WouldBlock);
        assert_eq!(kind(a.recv_owned()), ErrorKind::WouldBlock);
        (&b).write_all(b"x").unwrap();
        wait_readable(&a).unwrap();
        assert_eq!(a.read(&mut [0]).unwrap(), 1);
        wait_writable(&a).unwrap();
        assert_eq!(kind(wait_readable_timeout(&a, 5 * MS)), ErrorKind::TimedOut);
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        assert_eq!(kind(socket.recv(&mut [0])), ErrorKind::WouldBlock);
    });
}

#[test]
fn options_are_kept() {
    both(|| {
        let (a, _b) = tcp_pair();
        a.set_nodelay(true).unwrap();
        assert!(a.nodelay().unwrap());
        a.set_ttl(7).unwrap();
        assert_eq!(a.ttl().unwrap(), 7);
        let mut options = TcpOptions::new();
        options.nodelay(false).keepalive(Duration::from_secs(60));
        options.apply(&a).unwrap();
        assert!(!a.nodelay().unwrap());
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(!socket.broadcast().unwrap());
        socket.set_broadcast(true).unwrap();
        assert!(socket.broadcast().unwrap());
        let b = socket.try_clone().unwrap();
        assert!(b.broadcast().unwrap());
        assert_eq!(b.local_addr().unwrap(), socket.local_addr().unwrap());
    });
}

#[test]
fn connections_one_after_the_other() {
    both(|| {
        let (listener, addr) = listener();
        let clients: Vec<_> = (0..4).map(|_| TcpStream::connect(addr).unwrap()).collect();
        let mut connections = listener.accept_stream();
        let first = connections.accept().unwrap();
        assert_eq!(first.peer_addr().unwrap(), clients[0].local_addr().unwrap());
        let ahead = connections.finish().len();
        let rest: Vec<_> = (ahead..3).map(|_| listener.accept().unwrap()).collect();
        assert_eq!(rest.len() + ahead, 3);
        (&clients[0]).write_all(b"hello").unwrap();
        let mut got = Vec::new();
        while got.len() < 5 {
            got.extend_from_slice(&first.recv_owned().unwrap());
        }
        assert_eq!(got, b"hello");
        drop(clients);
        assert!(first.recv_owned().unwrap().is_empty());
    });
}

#[test]
fn descriptors_go_to_std_and_back() {
    both(|| {
        let (a, mut b) = tcp_pair();
        let addr = a.local_addr().unwrap();
        a.set_read_timeout(Some(Duration::from_secs(9))).unwrap();
        let fd = OwnedFd::from(a);
        let mut a = TcpStream::from(fd);
        assert_eq!(a.local_addr().unwrap(), addr);
        assert_eq!(a.read_timeout().unwrap(), Some(Duration::from_secs(9)));
        b.write_all(b"x").unwrap();
        assert_eq!(a.read(&mut [0]).unwrap(), 1);
        // A duplicate is the same socket.
        let other = TcpStream::from(a.as_fd().try_clone_to_owned().unwrap());
        drop(a);
        (&other).write_all(b"yz").unwrap();
        b.read_exact(&mut [0; 2]).unwrap();
        // std's value closes it.
        let other = std::net::TcpStream::from(other);
        assert!(other.as_raw_fd() >= 0);
        drop(other);
        assert_eq!(b.read(&mut [0]).unwrap(), 0);
        let (reader, mut writer) = pipe().unwrap();
        let reader = std::io::PipeReader::from(reader);
        let reader = windlass::io::PipeReader::from(reader);
        writer.write_all(b"through").unwrap();
        drop(std::io::PipeWriter::from(writer));
        assert_eq!(read_all(reader), "through");
        let a = UdpSocket::bind("127.0.0.1:0").unwrap();
        let addr = a.local_addr().unwrap();
        let a = UdpSocket::from(std::net::UdpSocket::from(a));
        a.send_to(b"self", addr).unwrap();
        assert_eq!(a.recv(&mut [0; 9]).unwrap(), 4);
    });
}

#[test]
fn datagrams() {
    both(|| {
        let a = UdpSocket::bind("127.0.0.1:0").unwrap();
        let b = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (at_a, at_b) = (a.local_addr().unwrap(), b.local_addr().unwrap());
        assert_eq!(kind(UdpSocket::bind(at_a)), ErrorKind::AddrInUse);
        assert_eq!(a.send_to(b"hello", at_b).unwrap(), 5);
        assert_eq!(a.send_to(b"", at_b).unwrap(), 0);
        assert_eq!(a.send_to(b"third", at_b).unwrap(), 5);
        let mut buf = [0; 16];
        assert_eq!(b.peek_from(&mut buf).unwrap(), (5, at_a));
        // The rest is lost.
        assert_eq!(b.recv_from(&mut buf[..2]).unwrap(), (2, at_a));
        assert_eq!(b.recv_from(&mut buf).unwrap(), (0, at_a));
        assert_eq!(b.recv(&mut buf).unwrap(), 5);
        assert_eq!(&buf[..5], b"third");
        assert_eq!(errno(a.send_to(&[0; 66_000], at_b)), libc_errno("EMSGSIZE"));
        assert_eq!(errno(a.send(b"x")), libc_errno("EDESTADDRREQ"));
        assert_eq!(kind(a.peer_addr()), ErrorKind::NotConnected);
        assert_eq!(
            kind(a.send_to(b"x", "255.255.255.255:9")),
            ErrorKind::PermissionDenied
        );
    });
}

#[test]
fn datagram_sockets_with_a_peer() {
    both(|| {
        let a = UdpSocket::bind("127.0.0.1:0").unwrap();
        let b = UdpSocket::bind("127.0.0.1:0").unwrap();
        let c = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (at_a, at_b) = (a.local_addr().unwrap(), b.local_addr().unwrap());
        a.connect(at_b).unwrap();
        assert_eq!(a.peer_addr().unwrap(), at_b);
        c.send_to(b"stranger", at_a).unwrap();
        b.send_to(b"peer", at_a).unwrap();
        let mut buf = [0; 16];
        assert_eq!(a.recv_from(&mut buf).unwrap(), (4, at_b));
        a.send(b"to peer").unwrap();
        assert_eq!(b.recv(&mut buf).unwrap(), 7);
        drop(b);
        a.send(b"x").unwrap();
        assert_eq!(kind(a.recv(&mut buf)), ErrorKind::ConnectionRefused);
        a.send(b"x").unwrap();
        assert_eq!(kind(a.send(b"x")), ErrorKind::ConnectionRefused);
        a.send(b"x").unwrap();
        let error = a.take_error().unwrap().unwrap();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        // One without a peer is not told.
        c.send_to(b"x", at_b).unwrap();
        c.send_to(b"x", at_b).unwrap();
        assert!(c.take_error().unwrap().is_none());
    });
}

/// An error of a datagram is told to a socket that is connected to where it was sent.
#[test]
fn errors_of_datagrams_to_others() {
    both(|| {
        let [socket, peer, gone] = [(); 3].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        let nobody = gone.local_addr().unwrap();
        drop(gone);
        socket.connect(peer.local_addr().unwrap()).unwrap();
        socket.send_to(b"lost", nobody).unwrap();
        socket.set_read_timeout(Some(20 * MS)).unwrap();
        assert_eq!(kind(socket.recv(&mut [0])), ErrorKind::WouldBlock);
        socket.connect(nobody).unwrap();
        // The kernel limits how often it tells.
        while socket.send(b"lost").is_ok() && kind(socket.recv(&mut [0])) == ErrorKind::WouldBlock {
        }
    });
}

/// The results of datagrams from each kind of socket to each kind of address, one a line.
fn datagrams_to_each_address() -> Vec<String> {
    let receiver = UdpSocket::bind("[::]:0").unwrap();
    receiver.set_read_timeout(Some(20 * MS)).unwrap();
    let port = receiver.local_addr().unwrap().port();
    let number = |e: io::Error| (e.kind(), util::errno_of(&e));
    let ip = |addr: io::Result<SocketAddr>| addr.map(|addr| addr.ip()).map_err(number);
    let mut results = Vec::new();
    for from in ["0.0.0.0:0", "127.0.0.1:0", "[::]:0", "[::1]:0"] {
        for to in [
            "0.0.0.0",
            "127.0.0.1",
            "[::]",
            "[::1]",
            "[::ffff:127.0.0.1]",
        ] {
            for port in [port, 0] {
                let to = format!("{to}:{port}").parse::<SocketAddr>().unwrap();
                let received = |sent: io::Result<usize>| match sent {
                    Ok(_) => Ok(ip(receiver.recv_from(&mut [0]).map(|(_, from)| from))),
                    Err(e) => Err(number(e)),
                };
                let socket = UdpSocket::bind(from).unwrap();
                let sent = received(socket.send_to(b"x", to));
                let connected = socket.connect(to).map_err(number);
                let (here, peer) = (ip(socket.local_addr()), ip(socket.peer_addr()));
                let then_sent = received(socket.send(b"x"));
                let (to, port) = (to.ip(), if port == 0 { "port 0" } else { "a port" });
                results.push(format!(
                    "{from} to {to}, {port}: sent {sent:?}, connected {connected:?} \
                     from {here:?} to {peer:?}, sent {then_sent:?}"
                ));
            }
        }
    }
    results
}

#[test]
fn datagrams_to_addresses_of_each_kind() {
    if util::run(1, || UdpSocket::bind("[::1]:0").is_err()) {
        return; // The machine has no IPv6.
    }
    let kernels = util::run(2, datagrams_to_each_address);
    let check = move || {
        for (simulated, kernels) in datagrams_to_each_address().iter().zip(&kernels) {
            assert_eq!(simulated, kernels);
        }
    };
    if let Err(failure) = Sim::new(PROMISE).seeds(2).run(check) {
        panic!("{failure}");
    }
}

#[test]
fn the_largest_datagrams() {
    both(|| {
        for (ip, most) in [("127.0.0.1:0", 65_507), ("[::1]:0", 65_527)] {
            let Ok(socket) = UdpSocket::bind(ip) else {
                continue; // The machine has no IPv6.
            };
            let own = socket.local_addr().unwrap();
            let too_long = vec![7; most + 1];
            assert_eq!(errno(socket.send_to(&too_long, own)), libc::EMSGSIZE);
            assert_eq!(socket.send_to(&too_long[1..], own).unwrap(), most);
            assert_eq!(socket.recv(&mut vec![0; most + 1]).unwrap(), most);
        }
    });
}

#[test]
fn abstract_names_of_streams_and_of_datagrams() {
    both(|| {
        let name = format!("windlass-same-types-{}", std::process::id());
        let name = UnixAddr::from_abstract_name(name).unwrap();
        let packets = UnixDatagram::bind_addr(&name).unwrap();
        let refused = errno(UnixStream::connect_addr(&name));
        assert_eq!(refused, libc::ECONNREFUSED);
        let listener = UnixListener::bind_addr(&name).unwrap();
        assert_eq!(errno(UnixDatagram::bind_addr(&name)), libc::EADDRINUSE);
        let _client = UnixStream::connect_addr(&name).unwrap();
        listener.accept().unwrap();
        let sender = UnixDatagram::unbound().unwrap();
        sender.send_to_addr(b"abc", &name).unwrap();
        assert_eq!(packets.recv(&mut [0; 3]).unwrap(), 3);
        drop(packets);
        assert_eq!(
            errno(sender.send_to_addr(b"abc", &name)),
            libc::ECONNREFUSED
        );
        // The receiver plays no part.
        sender.shutdown(Shutdown::Write).unwrap();
        assert_eq!(errno(sender.send_to_addr(b"abc", &name)), libc::EPIPE);
    });
}

#[test]
fn unix_streams_by_path_and_by_name() {
    both(|| {
        let path = path("stream");
        assert_eq!(kind(UnixStream::connect(&path)), ErrorKind::NotFound);
        let listener = UnixListener::bind(&path).unwrap();
        assert_eq!(kind(UnixListener::bind(&path)), ErrorKind::AddrInUse);
        assert_eq!(listener.local_addr().unwrap().as_pathname(), Some(&*path));
        let mut a = UnixStream::connect(&path).unwrap();
        let (b, from) = listener.accept().unwrap();
        assert!(from.is_unnamed() && a.local_addr().unwrap().is_unnamed());
        assert_eq!(a.peer_addr().unwrap().as_pathname(), Some(&*path));
        assert_eq!(b.local_addr().unwrap().as_pathname(), Some(&*path));
        a.write_all(b"hello").unwrap();
        drop(a);
        assert_eq!(read_all(&b), "hello");
        drop(listener);
        // The file stays.
        assert_eq!(
            kind(UnixStream::connect(&path)),
            ErrorKind::ConnectionRefused
        );
        assert_eq!(kind(UnixListener::bind(&path)), ErrorKind::AddrInUse);
        windlass::fs::remove_file(&path).unwrap();
        assert_eq!(kind(UnixStream::connect(&path)), ErrorKind::NotFound);
        drop(UnixListener::bind(&path).unwrap());
        windlass::fs::remove_file(&path).unwrap();
        let name = path.to_str().unwrap().replace('/', "-");
        let name = UnixAddr::from_abstract_name(name).unwrap();
        assert_eq!(
            kind(UnixStream::connect_addr(&name)),
            ErrorKind::ConnectionRefused
        );
        let listener = UnixListener::bind_addr(&name).unwrap();
        let a = UnixStream::connect_addr(&name).unwrap();
        assert_eq!(kind(UnixListener::bind_addr(&name)), ErrorKind::AddrInUse);
        // A connection that nobody accepts.
        drop(listener);
        assert_eq!(kind((&a).read(&mut [0])), ErrorKind::ConnectionReset);
        UnixListener::bind_addr(&name).unwrap();
    });
}

#[test]
fn unix_streams_end() {
    both(|| {
        let (mut a, mut b) = unix_pair();
        assert!(a.local_addr().unwrap().is_unnamed() && a.peer_addr().unwrap().is_unnamed());
        a.write_all(b"abc").unwrap();
        a.shutdown(Shutdown::Write).unwrap();
        assert_eq!(kind(a.write(b"x")), ErrorKind::BrokenPipe);
        assert_eq!(read_all(&b), "abc");
        b.write_all(b"def").unwrap();
        drop(b);
        assert_eq!(read_all(&a), "def");
        // Bytes that nobody read.
        let (mut a, b) = unix_pair();
        a.write_all(b"abc").unwrap();
        drop(b);
        assert_eq!(kind(a.read(&mut [0])), ErrorKind::ConnectionReset);
        assert_eq!(a.read(&mut [0]).unwrap(), 0);
        assert_eq!(kind(a.write(b"x")), ErrorKind::BrokenPipe);
        // A reader that reads no more.
        let (mut a, b) = unix_pair();
        b.shutdown(Shutdown::Read).unwrap();
        assert_eq!(kind(a.write(b"x")), ErrorKind::BrokenPipe);
        assert_eq!((&b).read(&mut [0]).unwrap(), 0);
    });
}

#[test]
fn unix_streams_and_pipes_fill_up() {
    both(|| {
        let (a, b) = unix_pair();
        a.set_write_timeout(Some(10 * MS)).unwrap();
        let mut n = 0;
        let error = loop {
            match (&a).write(&[1; 10_000]) {
                Ok(written) => n += written,
                Err(e) => break e,
            }
        };
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        drop(a);
        assert_eq!(read_all(b).len(), n);
        let (mut reader, mut writer) = pipe().unwrap();
        let write = spawn(move || writer.write_all(&[2; 200_000]));
        sleep(2 * MS);
        let mut got = Vec::new();
        reader.read_to_end(&mut got).unwrap();
        assert!(got.len() == 200_000 && got.iter().all(|&byte| byte == 2));
        write.join().unwrap().unwrap();
    });
}

#[test]
fn pipes() {
    both(|| {
        let (mut reader, mut writer) = pipe().unwrap();
        let other = writer.try_clone().unwrap();
        writer.write_all(b"one ").unwrap();
        drop(writer);
        let parts = [IoSlice::new(b"two "), IoSlice::new(b"three")];
        assert_eq!((&other).write_vectored(&parts).unwrap(), 9);
        drop(other);
        let again = reader.try_clone().unwrap();
        let mut two = [0; 2];
        reader.read_exact(&mut two).unwrap();
        assert_eq!(read_all(again), "e two three");
        assert_eq!(reader.read(&mut [0]).unwrap(), 0);
        let (reader, mut writer) = pipe().unwrap();
        drop(reader);
        assert_eq!(kind(writer.write(b"x")), ErrorKind::BrokenPipe);
        // A reader that waits sees the end.
        let (reader, writer) = pipe().unwrap();
        let read = spawn(move || read_all(reader));
        sleep(2 * MS);
        drop(writer);
        assert_eq!(read.join().unwrap(), "");
    });
}

#[test]
fn unix_datagrams() {
    both(|| {
        let (at_a, at_b) = (path("a"), path("b"));
        let a = UnixDatagram::bind(&at_a).unwrap();
        let b = UnixDatagram::bind(&at_b).unwrap();
        assert_eq!(kind(UnixDatagram::bind(&at_a)), ErrorKind::AddrInUse);
        assert_eq!(a.send_to(b"hello", &at_b).unwrap(), 5);
        let mut buf = [0; 16];
        let (n, from) = b.recv_from(&mut buf[..3]).unwrap();
        assert_eq!((n, from.as_pathname()), (3, Some(&*at_a)));
        assert_eq!(kind(a.send(b"x")), ErrorKind::NotConnected);
        assert_eq!(kind(a.send_to(b"x", path("none"))), ErrorKind::NotFound);
        a.connect(&at_b).unwrap();
        assert_eq!(a.peer_addr().unwrap().as_pathname(), Some(&*at_b));
        a.send(b"").unwrap();
        assert_eq!(b.recv(&mut buf).unwrap(), 0);
        // A socket with a peer takes packets from it only.
        let c = UnixDatagram::unbound().unwrap();
        assert_eq!(errno(c.send_to(b"x", &at_a)), libc_errno("EPERM"));
        c.send_to(b"x", &at_b).unwrap();
        let (n, from) = b.recv_from(&mut buf).unwrap();
        assert!(n == 1 && from.is_unnamed());
        drop(b);
        assert_eq!(kind(a.send(b"x")), ErrorKind::ConnectionRefused);
        assert_eq!(kind(a.send(b"x")), ErrorKind::NotConnected);
        assert_eq!(kind(c.send_to(b"x", &at_b)), ErrorKind::ConnectionRefused);
        for path in [at_a, at_b] {
            windlass::fs::remove_file(path).unwrap();
        }
        let (a, b) = UnixDatagram::pair().unwrap();
        a.shutdown(Shutdown::Write).unwrap();
        assert_eq!(kind(a.send(b"x")), ErrorKind::BrokenPipe);
        b.send(b"y").unwrap();
        assert_eq!(a.recv(&mut buf).unwrap(), 1);
        b.shutdown(Shutdown::Read).unwrap();
        assert_eq!(b.recv(&mut buf).unwrap(), 0);
    });
}

#[test]
fn unix_datagrams_wait_for_room() {
    both(|| {
        let (a, b) = UnixDatagram::pair().unwrap();
        let send = spawn(move || {
            for n in 0..500_u16 {
                a.send(&n.to_be_bytes()).unwrap();
            }
        });
        sleep(2 * MS);
        for n in 0..500_u16 {
            let mut buf = [0; 2];
            b.recv(&mut buf).unwrap();
            assert_eq!(u16::from_be_bytes(buf), n);
        }
        send.join().unwrap();
    });
}

#[test]
fn descriptors_are_passed() {
    both(|| {
        let (a, b) = unix_pair();
        let (reader, mut writer) = pipe().unwrap();
        let (c, d) = unix_pair();
        assert_eq!(
            a.send_with_fds(b"!", &[reader.as_fd(), c.as_fd()]).unwrap(),
            1
        );
        drop((reader, c));
        (&a).write_all(b"rest").unwrap();
        let mut buf = [0; 16];
        let (n, fds) = b.recv_with_fds(&mut buf).unwrap();
        assert!(n >= 1 && buf[0] == b'!');
        let [reader, c] = <[OwnedFd; 2]>::try_from(fds).unwrap();
        writer.write_all(b"hello").unwrap();
        drop(writer);
        assert_eq!(read_all(windlass::io::PipeReader::from(reader)), "hello");
        (&UnixStream::from(c)).write_all(b"x").unwrap();
        assert_eq!(read_all(d), "x");
        drop(a);
        let rest = read_all(&b);
        assert_eq!(n - 1 + rest.len(), 4);
        let (a, b) = UnixDatagram::pair().unwrap();
        let (c, d) = unix_pair();
        a.send_with_fds(b"", &[c.as_fd()]).unwrap();
        drop(c);
        let (n, fds) = b.recv_with_fds(&mut buf).unwrap();
        assert_eq!((n, fds.len()), (0, 1));
        drop(fds);
        assert_eq!(read_all(d), "");
    });
}

#[test]
fn unix_listeners_that_are_full_or_shut() {
    both(|| {
        let path = path("full");
        let listener = UnixListener::bind(&path).unwrap();
        let clients: Vec<_> = (0..3)
            .map(|_| UnixStream::connect(&path).unwrap())
            .collect();
        listener.shutdown().unwrap();
        assert_eq!(
            kind(UnixStream::connect(&path)),
            ErrorKind::ConnectionRefused
        );
        // Connections in the queue are accepted first.
        for _ in &clients {
            listener.accept().unwrap();
        }
        assert_eq!(errno(listener.accept()), libc_errno("EINVAL"));
        windlass::fs::remove_file(&path).unwrap();
    });
}

#[test]
fn sockets_in_goroutines_that_end_together() {
    both(|| {
        let (listener, addr) = listener();
        let echo = spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut n = 0;
            let mut buf = [0; 7];
            loop {
                match (&stream).read(&mut buf).unwrap() {
                    0 => return n,
                    read => n += read,
                }
            }
        });
        let stream = windlass::sync::Arc::new(TcpStream::connect(addr).unwrap());
        let writers: Vec<_> = (0..4)
            .map(|n| {
                let stream = windlass::sync::Arc::clone(&stream);
                spawn(move || (&*stream).write_all(&[n; 100]).unwrap())
            })
            .collect();
        writers
            .into_iter()
            .for_each(|writer| writer.join().unwrap());
        drop(stream);
        assert_eq!(echo.join().unwrap(), 400);
    });
}

/// The kernel looks at 1,024 buffers: if those are empty, a write has nothing to do, and does not wait.
#[test]
fn a_write_of_more_empty_buffers_than_the_kernel_looks_at() {
    both(|| {
        let (mut a, mut b) = unix_pair();
        let (mut c, mut d) = tcp_pair();
        let (mut reader, mut writer) = pipe().unwrap();
        let mut bufs = vec![IoSlice::new(&[]); 1024];
        bufs.push(IoSlice::new(b"behind"));
        assert_eq!(a.write_vectored(&bufs).unwrap(), 0);
        assert_eq!(c.write_vectored(&bufs).unwrap(), 0);
        assert_eq!(writer.write_vectored(&bufs).unwrap(), 0);
        let pairs: [(&mut dyn Write, &mut dyn Read); 3] = [
            (&mut a, &mut b),
            (&mut c, &mut d),
            (&mut writer, &mut reader),
        ];
        for (to, from) in pairs {
            to.write_all(b"more").unwrap();
            let mut bytes = [0; 4];
            from.read_exact(&mut bytes).unwrap();
            assert_eq!(&bytes, b"more");
        }
    });
}

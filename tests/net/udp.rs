//! UDP, on goroutines and on plain threads, over loopback.
#![allow(clippy::disallowed_methods, reason = "plain threads take part")]

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use windlass::time::{Duration, Instant};

use crate::util::{
    NOBODY, child_case, child_passes_with_io, hang_guard, has_rings, is_chaotic, run, runtime,
    thread_cpu, wait_until,
};
use socket2::{Domain, Protocol, Socket, Type};
use windlass::net::{UdpSocket, UnixDatagram};
use windlass::{blocking, spawn};

fn socket() -> UdpSocket {
    UdpSocket::bind("127.0.0.1:0").unwrap()
}

/// Two sockets that talk to one another.
fn pair() -> (UdpSocket, UdpSocket) {
    let (a, b) = (socket(), socket());
    a.connect(b.local_addr().unwrap()).unwrap();
    b.connect(a.local_addr().unwrap()).unwrap();
    (a, b)
}

/// Tells the socket at port `from` of the IPv6 loopback, as a router would, that its packets to
/// port `to` are forbidden. `false` where raw sockets are.
fn forbid(from: u16, to: u16) -> bool {
    let raw = Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6));
    let Ok(raw) = raw else { return false };
    // Destination unreachable, administratively prohibited; the kernel fills the sum in.
    let mut told = vec![1, 1, 0, 0, 0, 0, 0, 0];
    // The packets that were sent: IPv6, 9 bytes of UDP, and these.
    told.extend([0x60, 0, 0, 0, 0, 9, 17, 64]);
    told.extend(Ipv6Addr::LOCALHOST.octets());
    told.extend(Ipv6Addr::LOCALHOST.octets());
    told.extend([from.to_be_bytes(), to.to_be_bytes()].concat());
    told.extend([0, 9, 0, 0, 0]);
    let to = SocketAddr::from((Ipv6Addr::LOCALHOST, 0));
    assert_eq!(raw.send_to(&told, &to.into()).unwrap(), told.len());
    true
}

/// EACCES is what a ring says that is denied receives, too: that is no reason to receive once
/// more, as the socket tells of the error once only.
#[test]
fn a_receive_tells_that_packets_are_forbidden() {
    fn check() {
        let (Ok(a), Ok(b)) = (UdpSocket::bind("[::1]:0"), UdpSocket::bind("[::1]:0")) else {
            return eprintln!("skipped: no IPv6 here");
        };
        a.connect(b.local_addr().unwrap()).unwrap();
        a.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let (from, to) = (
            a.local_addr().unwrap().port(),
            b.local_addr().unwrap().port(),
        );
        let mut buf = [0; 8];
        for _ in 0..3 {
            if !forbid(from, to) {
                return eprintln!("skipped: raw sockets are not permitted here");
            }
            let e = a.recv(&mut buf).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::PermissionDenied, "{e}");
            // As it does of one that comes while a receive waits, and of none after that.
            let tells = spawn(move || {
                windlass::sleep(Duration::from_millis(20));
                forbid(from, to)
            });
            let e = a.recv(&mut buf).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::PermissionDenied, "{e}");
            assert!(tells.join().unwrap());
            assert_eq!(a.send(b"packet").unwrap(), 6);
        }
    }
    crate::util::run(1, check);
}

#[test]
fn packets_there_and_back() {
    fn check() {
        let (a, b) = (socket(), socket());
        let (to_a, to_b) = (a.local_addr().unwrap(), b.local_addr().unwrap());
        let echo = move || {
            let mut buf = [0; 2000];
            for _ in 0..500 {
                let (n, from) = b.recv_from(&mut buf).unwrap();
                assert_eq!(from, to_a);
                assert_eq!(b.send_to(&buf[..n], from).unwrap(), n);
            }
        };
        let ask = move || {
            let mut buf = [0; 2000];
            for i in 0..500_u16 {
                let sent = vec![i as u8; usize::from(i) + 1];
                assert_eq!(a.send_to(&sent, to_b).unwrap(), sent.len());
                let (n, from) = a.recv_from(&mut buf).unwrap();
                assert_eq!((&buf[..n], from), (&sent[..], to_b));
            }
        };
        std::thread::scope(|s| {
            // One of them on a plain thread.
            s.spawn(echo);
            ask();
        });
    }
    let _guard = hang_guard();
    check();
    runtime(2).run(|| blocking(check));
    // Both on goroutines.
    runtime(2).run(|| {
        let (a, b) = pair();
        let echo = spawn(move || {
            let mut buf = [0; 100];
            for _ in 0..2000 {
                let n = b.recv(&mut buf).unwrap();
                b.send(&buf[..n]).unwrap();
            }
        });
        for i in 0..2000_u32 {
            let mut buf = [0; 100];
            a.send(&i.to_le_bytes()).unwrap();
            assert_eq!(a.recv(&mut buf).unwrap(), 4);
            assert_eq!(buf[..4], i.to_le_bytes());
        }
        echo.join().unwrap();
    });
}

/// A goroutine that sends all the time does not keep one to itself whose packet has come: it can be stolen.
#[test]
fn a_sender_that_never_waits_makes_others_runnable() {
    if !has_rings() || is_chaotic() {
        return eprintln!("skipped: it is about completions of a ring");
    }
    let rt = runtime(1);
    let handle = rt.handle();
    rt.run(move || {
        let (a, b) = pair();
        let waiter = spawn(move || b.recv(&mut [0; 8]).unwrap());
        // The only P submits the receive before it sleeps.
        windlass::time::sleep(Duration::from_millis(5));
        assert_eq!(handle.metrics().total().ring_inflight, 1);
        // Few enough to take less time than after which a P is taken away.
        for _ in 0..130 {
            a.send(&[1]).unwrap();
        }
        let is_queued = handle.metrics().total().queue_depth > 0;
        assert!(is_queued || waiter.is_finished());
        assert_eq!(waiter.join().unwrap(), 1);
    });
}

/// An empty packet is a packet, and an empty buffer takes one, as `std` has it.
#[test]
fn empty_packets_and_empty_buffers() {
    let _guard = hang_guard();
    let check = || {
        let (a, b) = pair();
        let mut buf = [0; 10];
        assert_eq!(a.send(&[]).unwrap(), 0);
        assert_eq!(b.recv(&mut buf).unwrap(), 0);
        assert_eq!(a.send(&[]).unwrap(), 0);
        assert_eq!(b.recv_from(&mut buf).unwrap(), (0, a.local_addr().unwrap()));
        a.send(b"gone").unwrap();
        a.send(b"there").unwrap();
        assert_eq!(b.recv(&mut []).unwrap(), 0);
        assert_eq!(b.recv(&mut buf).unwrap(), 5);
        // The buffer is empty, but there is nothing to take.
        b.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        assert_eq!(b.recv(&mut []).unwrap_err().kind(), ErrorKind::WouldBlock);
        assert_eq!(
            b.recv_from(&mut []).unwrap_err().kind(),
            ErrorKind::WouldBlock
        );
    };
    crate::util::on_thread_and_goroutine(1, check);
}

#[test]
fn a_parked_receive_takes_an_empty_packet() {
    run(2, || {
        let (a, b) = pair();
        for len in [0, 3] {
            let (begun, b) = (Arc::new(AtomicBool::new(false)), b.try_clone().unwrap());
            let flag = Arc::clone(&begun);
            let receives = spawn(move || {
                flag.store(true, Ordering::SeqCst);
                b.recv(&mut [0; 8][..len]).unwrap()
            });
            wait_until(|| begun.load(Ordering::SeqCst));
            windlass::sleep(Duration::from_millis(1));
            a.send(&[]).unwrap();
            assert_eq!(receives.join().unwrap(), 0);
        }
    });
}

#[test]
fn what_does_not_fit_is_cut_off() {
    run(1, || {
        let (a, b) = pair();
        let mut buf = [0; 3];
        a.send(b"abcdef").unwrap();
        a.send(b"xyz").unwrap();
        assert_eq!(b.recv(&mut buf).unwrap(), 3);
        assert_eq!(buf, *b"abc");
        assert_eq!(b.recv_from(&mut buf).unwrap().0, 3);
        assert_eq!(buf, *b"xyz");
        let e = a.send(&vec![0; 70_000]).unwrap_err();
        assert_eq!(e.raw_os_error(), Some(libc::EMSGSIZE));
    });
}

#[test]
fn peek_takes_nothing_out() {
    run(2, || {
        let (a, b) = pair();
        let begun = Arc::new(AtomicBool::new(false));
        let said = Arc::clone(&begun);
        let peeks = spawn(move || {
            let mut buf = [0; 8];
            said.store(true, Ordering::SeqCst);
            assert_eq!(b.peek(&mut buf).unwrap(), 4);
            assert_eq!(b.peek_from(&mut buf).unwrap().0, 4);
            assert_eq!(b.recv(&mut buf).unwrap(), 4);
            assert_eq!(buf[..4], *b"ahoy");
            b.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
            b.peek(&mut buf).unwrap_err().kind()
        });
        wait_until(|| begun.load(Ordering::SeqCst));
        a.send(b"ahoy").unwrap();
        assert_eq!(peeks.join().unwrap(), ErrorKind::WouldBlock);
    });
}

#[test]
fn nobody_there_is_told() {
    let _guard = hang_guard();
    let check = || {
        let a = socket();
        a.connect(NOBODY).unwrap();
        a.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        a.send(b"anybody?").unwrap();
        let e = a.recv(&mut [0; 8]).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::ConnectionRefused);
        assert!(a.take_error().unwrap().is_none());
    };
    crate::util::on_thread_and_goroutine(1, check);
}

#[test]
fn timeouts_and_deadlines() {
    let _guard = hang_guard();
    let check = || {
        let (a, b) = pair();
        b.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
        assert_eq!(b.read_timeout().unwrap(), Some(Duration::from_millis(10)));
        let start = Instant::now();
        let mut buf = [0; 8];
        assert_eq!(b.recv(&mut buf).unwrap_err().kind(), ErrorKind::WouldBlock);
        assert_eq!(
            b.recv_from(&mut buf).unwrap_err().kind(),
            ErrorKind::WouldBlock
        );
        assert!(start.elapsed() >= Duration::from_millis(20));
        assert_eq!(
            b.set_write_timeout(Some(Duration::ZERO))
                .unwrap_err()
                .kind(),
            ErrorKind::InvalidInput
        );
        b.set_read_timeout(None).unwrap();
        a.send(b"kept").unwrap();
        b.set_read_deadline(Some(Instant::now()));
        assert_eq!(b.recv(&mut buf).unwrap_err().kind(), ErrorKind::WouldBlock);
        b.set_read_deadline(None);
        assert_eq!(b.recv(&mut buf).unwrap(), 4);
        a.set_write_deadline(Some(Instant::now()));
        assert_eq!(a.send(b"x").unwrap_err().kind(), ErrorKind::WouldBlock);
    };
    crate::util::on_thread_and_goroutine(2, check);
}

/// Every packet comes through, and once, however the receives are cut short.
#[test]
fn timeouts_lose_no_packet() {
    const N: u32 = 3000;
    run(2, || {
        let (a, b) = pair();
        b.set_read_timeout(Some(Duration::from_micros(80))).unwrap();
        let n_received = Arc::new(AtomicU32::new(0));
        let received = Arc::clone(&n_received);
        let sends = spawn(move || {
            for i in 0..N {
                // The kernel drops what the receive buffer has no room for.
                wait_until(|| i < received.load(Ordering::SeqCst) + 50);
                a.send(&i.to_le_bytes()).unwrap();
                if i % 4 == 0 {
                    windlass::sleep(Duration::from_micros(u64::from(i % 3) * 50));
                }
            }
            a
        });
        let mut next = 0;
        let mut buf = [0; 8];
        while next < N {
            match b.recv(&mut buf) {
                Ok(n) => {
                    assert_eq!(buf[..n], next.to_le_bytes());
                    next += 1;
                    n_received.store(next, Ordering::SeqCst);
                }
                Err(e) => assert_eq!(e.kind(), ErrorKind::WouldBlock),
            }
        }
        sends.join().unwrap();
    });
}

/// Packets that could not be delivered lie in the error queue, and the socket shows as ready: a
/// receive with a timeout ends all the same, and does not spin meanwhile.
#[test]
fn a_timeout_ends_a_receive_beside_a_full_error_queue() {
    fn check() {
        let a = socket();
        let on: libc::c_int = 1;
        // SAFETY: the option is a number of this length.
        #[allow(unsafe_code)]
        let r = unsafe {
            libc::setsockopt(
                a.as_raw_fd(),
                libc::SOL_IP,
                libc::IP_RECVERR,
                (&raw const on).cast(),
                size_of_val(&on) as u32,
            )
        };
        assert_eq!(r, 0);
        a.send_to(b"nobody", NOBODY).unwrap();
        a.set_read_timeout(Some(Duration::from_millis(300)))
            .unwrap();
        // The error itself is told once.
        let e = a.recv(&mut [0; 8]).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::ConnectionRefused);
        let e = a.recv(&mut [0; 8]).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::WouldBlock);
    }
    let name = "a_timeout_ends_a_receive_beside_a_full_error_queue";
    let Some(case) = child_case() else {
        child_passes_with_io(name, "goroutine", None);
        child_passes_with_io(name, "goroutine", Some("epoll"));
        child_passes_with_io(name, "thread", None);
        return;
    };
    if case == "goroutine" {
        return run(1, check);
    }
    let thread = std::thread::Builder::new().name("receives".to_owned());
    let measured = thread.spawn(|| {
        check();
        thread_cpu("receives")
    });
    // If it spun, it would use 300 ms.
    let used = measured.unwrap().join().unwrap();
    assert!(used < Duration::from_millis(150), "{used:?}");
}

#[test]
fn options() {
    run(1, || {
        let a = socket();
        assert!(!a.broadcast().unwrap());
        a.set_broadcast(true).unwrap();
        assert!(a.broadcast().unwrap());
        a.set_ttl(33).unwrap();
        assert_eq!(a.ttl().unwrap(), 33);
        a.set_multicast_ttl_v4(7).unwrap();
        assert_eq!(a.multicast_ttl_v4().unwrap(), 7);
        a.set_multicast_loop_v4(false).unwrap();
        assert!(!a.multicast_loop_v4().unwrap());
        assert_eq!(a.peer_addr().unwrap_err().kind(), ErrorKind::NotConnected);
        let (a, b) = pair();
        assert_eq!(a.peer_addr().unwrap(), b.local_addr().unwrap());
        // No group.
        let nobody = Ipv4Addr::new(10, 0, 0, 1);
        a.join_multicast_v4(&nobody, &Ipv4Addr::LOCALHOST)
            .unwrap_err();
        let group = Ipv4Addr::new(239, 1, 2, 3);
        a.leave_multicast_v4(&group, &Ipv4Addr::LOCALHOST)
            .unwrap_err();
        if let Ok(six) = UdpSocket::bind("[::1]:0") {
            six.set_multicast_loop_v6(false).unwrap();
            assert!(!six.multicast_loop_v6().unwrap());
            six.join_multicast_v6(&Ipv6Addr::LOCALHOST, 0).unwrap_err();
            six.leave_multicast_v6(&Ipv6Addr::LOCALHOST, 0).unwrap_err();
        }
    });
}

#[test]
fn multicast_where_there_is_one() {
    run(1, || {
        let group = Ipv4Addr::new(239, 77, 1, 9);
        let b = UdpSocket::bind("0.0.0.0:0").unwrap();
        if let Err(e) = b.join_multicast_v4(&group, &Ipv4Addr::LOCALHOST) {
            return eprintln!("skipped: no multicast here ({e})");
        }
        let a = socket();
        socket2::SockRef::from(&a)
            .set_multicast_if_v4(&Ipv4Addr::LOCALHOST)
            .unwrap();
        a.set_multicast_loop_v4(true).unwrap();
        let port = b.local_addr().unwrap().port();
        if let Err(e) = a.send_to(b"all of you", (group, port)) {
            return eprintln!("skipped: no route for multicast ({e})");
        }
        b.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        let mut buf = [0; 20];
        match b.recv(&mut buf) {
            Ok(n) => assert_eq!(buf[..n], *b"all of you"),
            Err(e) => return eprintln!("skipped: loopback carries no multicast ({e})"),
        }
        b.leave_multicast_v4(&group, &Ipv4Addr::LOCALHOST).unwrap();
    });
}

#[test]
fn conversions_and_clones() {
    run(1, || {
        let (a, b) = pair();
        let addr = b.local_addr().unwrap();
        let std: std::net::UdpSocket = b.into();
        assert_eq!(std.local_addr().unwrap(), addr);
        let b = UdpSocket::from(OwnedFd::from(std));
        let raw = b.into_raw_fd();
        // SAFETY: the descriptor was given up just now.
        #[allow(unsafe_code)]
        let b = unsafe { UdpSocket::from_raw_fd(raw) };
        assert_eq!(b.as_raw_fd(), raw);
        let clone = b.try_clone().unwrap();
        clone
            .set_read_timeout(Some(Duration::from_millis(7)))
            .unwrap();
        assert_eq!(b.read_timeout().unwrap(), Some(Duration::from_millis(7)));
        a.send(b"1").unwrap();
        assert_eq!(clone.recv(&mut [0; 4]).unwrap(), 1);
        assert_eq!(
            format!("{b:?}"),
            format!("UdpSocket {{ addr: {addr:?}, fd: {raw} }}")
        );
        b.set_nonblocking(true).unwrap();
        assert_eq!(
            b.recv(&mut [0; 4]).unwrap_err().kind(),
            ErrorKind::WouldBlock
        );
        b.set_nonblocking(false).unwrap();
    });
}

#[test]
fn addresses_that_are_none() {
    run(1, || {
        let a = socket();
        let none: &[std::net::SocketAddr] = &[];
        let e = a.send_to(b"x", none).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::InvalidInput);
        assert_eq!(e.to_string(), "no addresses to send data to");
        let e: io::Error = UdpSocket::bind(none).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::InvalidInput);
        assert_eq!(e.to_string(), "could not resolve to any addresses");
        a.send_to(b"x", "127.0.0.1").unwrap_err();
        let e = UdpSocket::bind(a.local_addr().unwrap()).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::AddrInUse);
        let port = a.local_addr().unwrap().port();
        a.send_to(b"y", ("localhost", port)).unwrap();
        a.send_to(b"y", format!("127.0.0.1:{port}")).unwrap();
    });
}

/// A ring does not say whether another packet is there, so an attempt finds it out.
#[test]
fn packets_that_are_there_are_received_without_the_ring() {
    const PACKETS: u8 = 64;
    // What a Unix socket has room for, everywhere.
    const UNIX_PACKETS: u8 = 8;
    // The first one; and again as a poll, where rings may do one thing less (`make test-restricted`).
    let most = match std::env::var_os("LEFT_OUT") {
        Some(operation) if operation != "none" => 2,
        _ => 1,
    };
    let _guard = hang_guard();
    let runtime = runtime(1);
    let handle = runtime.handle();
    runtime.run(move || {
        let received = |n: u8, send: &dyn Fn(&[u8]), receive: &dyn Fn(&mut [u8]) -> usize| {
            (0..n).for_each(|i| send(&[i]));
            let n_submitted = || handle.metrics().total().ring_submitted;
            let before = n_submitted();
            for i in 0..n {
                let mut buf = [0; 10];
                assert_eq!(receive(&mut buf), 1);
                assert_eq!(buf[0], i);
            }
            let submitted = n_submitted() - before;
            if has_rings() && !is_chaotic() {
                assert!(submitted <= most, "{submitted} of {n} packets");
            }
        };
        let (a, b) = pair();
        let send = |packet: &[u8]| assert_eq!(a.send(packet).unwrap(), packet.len());
        received(PACKETS, &send, &|buf| b.recv(buf).unwrap());
        let (a, b) = pair();
        let send = |packet: &[u8]| assert_eq!(a.send(packet).unwrap(), packet.len());
        received(PACKETS, &send, &|buf| b.recv_from(buf).unwrap().0);
        let (a, b) = UnixDatagram::pair().unwrap();
        let send = |packet: &[u8]| assert_eq!(a.send(packet).unwrap(), packet.len());
        received(UNIX_PACKETS, &send, &|buf| b.recv(buf).unwrap());
    });
}

#[cfg(feature = "sim")]
crate::inside::tests! {
    a_receive_tells_that_packets_are_forbidden: "it forges packets of the network below",
    packets_there_and_back: "it uses threads",
    a_sender_that_never_waits_makes_others_runnable: "it is about completions of a ring",
    empty_packets_and_empty_buffers,
    a_parked_receive_takes_an_empty_packet,
    what_does_not_fit_is_cut_off,
    peek_takes_nothing_out,
    nobody_there_is_told,
    timeouts_and_deadlines,
    timeouts_lose_no_packet / 10,
    a_timeout_ends_a_receive_beside_a_full_error_queue: "it has a process of its own",
    options,
    multicast_where_there_is_one,
    conversions_and_clones: "it calls std's sockets",
    addresses_that_are_none,
    packets_that_are_there_are_received_without_the_ring: "it counts what a ring is given",
}

//! Options for which `std` has no names.

use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

use crate::util::run;
use socket2::SockRef;
use windlass::net::{Ipv4Addr, TcpListener, TcpOptions, TcpStream, UdpOptions};
use windlass::spawn;

#[test]
fn options_of_listeners_are_inherited() {
    run(1, || {
        let listener = TcpOptions::new()
            .backlog(10)
            .nodelay(true)
            .keepalive(Duration::from_secs(77))
            .keepalive_interval(Duration::from_secs(7))
            .keepalive_retries(3)
            .recv_buffer_size(20_000)
            .send_buffer_size(30_000)
            .user_timeout(Duration::from_secs(9))
            .listen("127.0.0.1:0")
            .unwrap();
        let a = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (b, _) = listener.accept().unwrap();
        assert!(b.nodelay().unwrap() && !a.nodelay().unwrap());
        for socket in [SockRef::from(&b), SockRef::from(&listener)] {
            assert!(socket.keepalive().unwrap());
            assert_eq!(
                socket.tcp_keepalive_time().unwrap(),
                Duration::from_secs(77)
            );
            assert_eq!(
                socket.tcp_keepalive_interval().unwrap(),
                Duration::from_secs(7)
            );
            assert_eq!(socket.tcp_keepalive_retries().unwrap(), 3);
            // The kernel doubles them.
            assert_eq!(socket.recv_buffer_size().unwrap(), 40_000);
            assert_eq!(socket.send_buffer_size().unwrap(), 60_000);
        }
    });
}

#[test]
fn options_of_streams() {
    run(1, || {
        let listener = TcpOptions::new().listen("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let mut options = TcpOptions::new();
        options.nodelay(true).linger(Duration::from_secs(2));
        let a = options.connect(addr).unwrap();
        let b = options
            .connect_timeout(&addr, Duration::from_secs(5))
            .unwrap();
        for stream in [&a, &b] {
            assert!(stream.nodelay().unwrap());
            assert_eq!(
                SockRef::from(stream).linger().unwrap(),
                Some(Duration::from_secs(2))
            );
        }
        let plain = TcpStream::connect(addr).unwrap();
        options.apply(&plain).unwrap();
        assert!(plain.nodelay().unwrap());
        plain.set_quickack(true).unwrap();
        assert!(plain.quickack().unwrap());
        let e = options.connect_timeout(&addr, Duration::ZERO).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::InvalidInput);
        let text = format!("{options:?}");
        assert!(text.contains("nodelay: Some(true)"), "{text}");
    });
}

/// The kernel counts them in seconds, milliseconds and bytes, as an `int`, and zero is special.
#[test]
fn values_that_the_kernel_cannot_count() {
    run(1, || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let values = |linger, user_timeout| {
            let mut options = TcpOptions::new();
            options.linger(linger).user_timeout(user_timeout);
            let stream = options.connect(addr).unwrap();
            let socket = SockRef::from(&stream);
            let values = (socket.linger().unwrap(), socket.tcp_user_timeout().unwrap());
            // The drop waits for nothing.
            socket.set_linger(None).unwrap();
            values
        };
        let (second, ms) = (Duration::from_secs(1), Duration::from_millis(1));
        assert_eq!(
            values(ms, Duration::from_nanos(1)),
            (Some(second), Some(ms))
        );
        assert_eq!(values(1001 * ms, second), (Some(2 * second), Some(second)));
        assert_eq!(values(Duration::ZERO, ms).0, Some(Duration::ZERO));
        let (linger, user_timeout) = values(Duration::from_secs(1 << 32), Duration::MAX);
        assert!(linger > Some(second) && user_timeout > Some(second));

        let large = usize::MAX - 1;
        let mut options = TcpOptions::new();
        options.recv_buffer_size(1 << 32).send_buffer_size(large);
        let stream = options.connect(addr).unwrap();
        let mut options = UdpOptions::new();
        options.recv_buffer_size(1 << 32).send_buffer_size(large);
        let udp = options.bind("127.0.0.1:0").unwrap();
        for socket in [SockRef::from(&stream), SockRef::from(&udp)] {
            let (recv, send) = (socket.recv_buffer_size(), socket.send_buffer_size());
            // More than the least that there can be.
            assert!(recv.unwrap() > 10_000 && send.unwrap() > 10_000);
        }
    });
}

#[test]
fn listeners_that_share_a_port() {
    run(4, || {
        let one = TcpOptions::new().listen("127.0.0.1:0").unwrap();
        let addr = one.local_addr().unwrap();
        let e = TcpOptions::new().reuse_port(true).listen(addr).unwrap_err();
        assert_eq!(
            e.kind(),
            ErrorKind::AddrInUse,
            "the first one does not share"
        );

        let group = TcpOptions::new().listen_group("127.0.0.1:0", 4).unwrap();
        let addr = group[0].local_addr().unwrap();
        assert!(group.iter().all(|l| l.local_addr().unwrap() == addr));
        let accepts: Vec<_> = group
            .iter()
            .map(|listener| {
                let listener = listener.try_clone().unwrap();
                spawn(move || {
                    let mut n = 0;
                    for stream in listener.incoming() {
                        let Ok(mut stream) = stream else { break };
                        n += 1;
                        stream.write_all(&[9]).unwrap();
                    }
                    n
                })
            })
            .collect();
        let clients: Vec<_> = (0..400)
            .map(|_| {
                spawn(move || {
                    let mut all = Vec::new();
                    TcpStream::connect(addr)
                        .unwrap()
                        .read_to_end(&mut all)
                        .unwrap();
                    assert_eq!(all, [9]);
                })
            })
            .collect();
        clients.into_iter().for_each(|c| c.join().unwrap());
        for listener in &group {
            listener.shutdown().unwrap();
        }
        let counts: Vec<_> = accepts.into_iter().map(|a| a.join().unwrap()).collect();
        assert_eq!(counts.iter().sum::<i32>(), 400);
        // The kernel spreads by a hash of the addresses: none is left out.
        assert!(counts.iter().all(|&n| n > 0), "{counts:?}");
        let e = TcpOptions::new()
            .listen_group("127.0.0.1:0", 0)
            .unwrap_err();
        assert_eq!(e.kind(), ErrorKind::InvalidInput);
    });
}

#[test]
fn only_ipv6() {
    run(1, || {
        let mut options = TcpOptions::new();
        options.only_v6(true);
        // A port that is free for IPv6 may be taken for IPv4, which the option does not concern.
        for _ in 0..100 {
            let listener = match options.listen("[::]:0") {
                Ok(listener) => listener,
                Err(e) => return eprintln!("skipped: no IPv6 here ({e})"),
            };
            assert!(SockRef::from(&listener).only_v6().unwrap());
            let port = listener.local_addr().unwrap().port();
            match options.listen(("127.0.0.1", port)) {
                Err(e) if e.kind() == ErrorKind::AddrInUse => {}
                both => return drop(both.unwrap()),
            }
        }
        panic!("no port of 100 was free for IPv4");
    });
}

/// Whether data travels in the first packet is up to the system; that all arrives is
/// not.
#[test]
fn fast_open() {
    run(2, || {
        let listener = TcpOptions::new()
            .fast_open(16)
            .listen("127.0.0.1:0")
            .unwrap();
        let addr = listener.local_addr().unwrap();
        let accepts = spawn(move || {
            for stream in listener.incoming().take(3) {
                let mut stream = stream.unwrap();
                let mut word = String::new();
                stream.read_to_string(&mut word).unwrap();
                assert_eq!(word, "early");
            }
        });
        for _ in 0..3 {
            let mut a = TcpOptions::new().fast_open(1).connect(addr).unwrap();
            a.write_all(b"early").unwrap();
        }
        accepts.join().unwrap();
    });
}

#[test]
fn streams_are_bound_before_they_connect() {
    run(2, || {
        let listener = TcpOptions::new().listen("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let mut options = TcpOptions::new();
        options.bind("127.0.0.3:0".parse().unwrap());
        let stream = options.connect(addr).unwrap();
        let (_, peer) = listener.accept().unwrap();
        assert_eq!(peer, stream.local_addr().unwrap());
        assert_eq!(peer.ip().to_string(), "127.0.0.3");
        // The port is taken.
        options.bind(peer);
        let error = options.connect(addr).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
        options.bind("[::1]:0".parse().unwrap());
        let error = options.connect(addr).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains("family"), "{error}");
    });
}

#[test]
fn options_of_ip() {
    run(2, || {
        let listener = TcpOptions::new()
            .ttl(9)
            .tos(8)
            .listen("127.0.0.1:0")
            .unwrap();
        let addr = listener.local_addr().unwrap();
        let stream = TcpOptions::new().ttl(5).tos(16).connect(addr).unwrap();
        assert_eq!(stream.ttl().unwrap(), 5);
        assert_eq!(SockRef::from(&stream).tos_v4().unwrap(), 16);
        assert_eq!(SockRef::from(&listener).tos_v4().unwrap(), 8);
        let refused = TcpOptions::new().ttl(1000).connect(addr).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EINVAL));
        let refused = TcpOptions::new()
            .bind_device("no-such-device")
            .connect(addr);
        assert_eq!(refused.unwrap_err().raw_os_error(), Some(libc::ENODEV));
    });
}

#[test]
fn options_of_udp() {
    run(2, || {
        let mut options = UdpOptions::new();
        options
            .reuse_address(true)
            .reuse_port(true)
            .only_v6(true)
            .recv_buffer_size(20_000)
            .send_buffer_size(30_000)
            .broadcast(true)
            .multicast_loop(false)
            .multicast_ttl(3)
            .ttl(5)
            .tos(16);
        let first = options.bind("127.0.0.1:0").unwrap();
        let second = options.bind(first.local_addr().unwrap()).unwrap();
        for socket in [&first, &second] {
            assert!(socket.broadcast().unwrap() && !socket.multicast_loop_v4().unwrap());
            assert_eq!(
                (socket.multicast_ttl_v4().unwrap(), socket.ttl().unwrap()),
                (3, 5)
            );
            let socket = SockRef::from(socket);
            assert_eq!(socket.tos_v4().unwrap(), 16);
            assert_eq!(socket.recv_buffer_size().unwrap(), 40_000);
            assert_eq!(socket.send_buffer_size().unwrap(), 60_000);
        }
        let taken = UdpOptions::new().bind(first.local_addr().unwrap());
        assert_eq!(taken.unwrap_err().kind(), ErrorKind::AddrInUse);
        // A group, joined before the socket is bound.
        let group = Ipv4Addr::new(224, 0, 0, 251);
        let member = UdpOptions::new()
            .reuse_address(true)
            .join_multicast_v4(group, Ipv4Addr::LOCALHOST)
            .bind("127.0.0.1:0")
            .unwrap();
        member
            .leave_multicast_v4(&group, &Ipv4Addr::LOCALHOST)
            .unwrap();
        let not_one = UdpOptions::new()
            .join_multicast_v4(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST)
            .bind("127.0.0.1:0");
        assert_eq!(not_one.unwrap_err().raw_os_error(), Some(libc::EINVAL));
    });
}

#[cfg(feature = "sim")]
crate::inside::tests! {
    options_of_listeners_are_inherited,
    options_of_streams,
    listeners_that_share_a_port / 10,
    only_ipv6,
    fast_open,
    streams_are_bound_before_they_connect,
    options_of_ip: "it binds to a device",
    values_that_the_kernel_cannot_count: "options of the system's sockets",
    options_of_udp: "a simulation has no groups of multicast",
}

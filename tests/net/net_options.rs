//! What `std` has no names for.

use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

use crate::util::run;
use socket2::SockRef;
use windlass::net::{TcpOptions, TcpStream};
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
        let listener = match options.listen("[::]:0") {
            Ok(listener) => listener,
            Err(e) => return eprintln!("skipped: no IPv6 here ({e})"),
        };
        assert!(SockRef::from(&listener).only_v6().unwrap());
        let port = listener.local_addr().unwrap().port();
        // It does not concern IPv4.
        options.listen(("127.0.0.1", port)).unwrap();
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

#[cfg(feature = "sim")]
crate::inside::tests! {
    options_of_listeners_are_inherited,
    options_of_streams,
    listeners_that_share_a_port / 10,
    only_ipv6,
    fast_open,
}

//! Sockets where the process's descriptors run out, and that none is leaked. By
//! itself, as tests that look at all descriptors disturb others and are disturbed.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr as UnixAddr;
use std::time::Duration;

use crate::util;
use crate::util::{open_fds, run};
use windlass::net::{TcpOptions, UnixListener, UnixStream};
use windlass::spawn;

/// In a process of its own, because it uses up the process's descriptors.
#[test]
fn descriptors_that_find_no_room_are_an_error_and_closed() {
    if util::child_case().is_none() {
        util::child_passes("descriptors_that_find_no_room_are_an_error_and_closed", "");
        return;
    }
    run(1, || {
        let (a, mut b) = UnixStream::pair().unwrap();
        let file = std::fs::File::open("/dev/null").unwrap();
        a.send_with_fds(b"ab", &[file.as_fd(); 10]).unwrap();
        a.send_with_fds(b"cd", &[]).unwrap();
        let before = open_fds();
        let (limit, _) = util::nofile_limits();
        let next = file.try_clone().unwrap();
        // Room for three.
        util::set_nofile_limit(next.as_raw_fd() as u64 + 3);
        drop(next);
        let e = b.recv_with_fds(&mut [0; 2]).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::InvalidData, "{e}");
        util::set_nofile_limit(limit);
        assert_eq!(open_fds(), before);
        let mut rest = [0; 2];
        b.read_exact(&mut rest).unwrap();
        assert_eq!(rest, *b"cd");
    });
}

/// Connections come and go, and nothing of them stays. In a process of its own, where
/// nobody else opens anything.
#[test]
fn no_descriptor_is_leaked() {
    if util::child_case().is_none() {
        util::child_passes("no_descriptor_is_leaked", "");
        return;
    }
    // 100,000 in all where code is optimised.
    let per_client = if cfg!(debug_assertions) { 100 } else { 625 };
    const N_CLIENTS: usize = 80;
    run(4, || {
        let before = open_fds();
        // Resets, so that no port is kept waiting.
        let mut options = TcpOptions::new();
        options.linger(Duration::ZERO);
        let tcp = options.listen("127.0.0.1:0").unwrap();
        let tcp_addr = tcp.local_addr().unwrap();
        let name = format!("windlass-leak-{}", std::process::id());
        let unix_addr = UnixAddr::from_abstract_name(name).unwrap();
        let unix = UnixListener::bind_addr(&unix_addr).unwrap();
        let closes = tcp.try_clone().unwrap();
        // A reset may overtake its connection, which is then never seen here.
        let accepts_tcp = spawn(move || {
            for stream in tcp.incoming() {
                let Ok(mut stream) = stream else { return };
                spawn(move || {
                    let r = stream.read(&mut [0]);
                    assert!(r.as_ref().map_or_else(is_reset, |&n| n <= 1), "{r:?}");
                });
            }
        });
        let accepts_unix = spawn(move || {
            for stream in unix.incoming().take(N_CLIENTS * per_client) {
                let mut stream = stream.unwrap();
                spawn(move || assert_eq!(stream.read(&mut [0]).unwrap(), 1));
            }
        });
        let clients: Vec<_> = (0..N_CLIENTS)
            .map(|i| {
                let (options, unix_addr) = (options.clone(), unix_addr.clone());
                spawn(move || {
                    for j in 0..per_client {
                        let mut a = options.connect(tcp_addr).unwrap();
                        if (i + j) % 3 == 0 {
                            a.set_read_timeout(Some(Duration::from_micros(10))).unwrap();
                            a.read(&mut [0]).unwrap_err();
                        } else {
                            a.write_all(&[1]).unwrap();
                        }
                        let mut b = UnixStream::connect_addr(&unix_addr).unwrap();
                        b.write_all(&[2]).unwrap();
                    }
                })
            })
            .collect();
        clients.into_iter().for_each(|c| c.join().unwrap());
        closes.shutdown().unwrap();
        drop(closes);
        accepts_tcp.join().unwrap();
        accepts_unix.join().unwrap();
        // The last ones are closed by goroutines that nobody joins.
        util::wait_until(|| open_fds().len() <= before.len());
        assert_eq!(open_fds(), before);
    });
}

fn is_reset(e: &io::Error) -> bool {
    e.kind() == ErrorKind::ConnectionReset
}

#[cfg(feature = "sim")]
crate::inside::tests! {
    descriptors_that_find_no_room_are_an_error_and_closed: "it has a process of its own",
    no_descriptor_is_leaked: "it has a process of its own",
}

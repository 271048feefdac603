//! Networks that lose, delay and reorder packets, and that go away. Each test is a process
//! in a network namespace of its own, and is skipped, aloud, where none may be made.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use windlass::time::{Duration, Instant};

use crate::lossy::Link;
use crate::util::{Pattern, run};
use crate::{lossy, util};
use windlass::net::{TcpListener, TcpOptions, TcpStream, UdpSocket};
use windlass::spawn;

/// Runs `test` in a child with a bad network: with what a listener binds, the address it is
/// reached by, and the network.
fn on_a_bad_network(name: &str, test: impl FnOnce(IpAddr, &Link)) {
    if util::child_case().is_some() {
        match Link::new() {
            Ok(link) => {
                test(IpAddr::V4(lossy::THERE), &link);
                eprintln!("{} packets were lost", link.end());
            }
            Err(e) => eprintln!("SKIPPED: no TUN device may be made: {e}"),
        }
        return;
    }
    in_a_namespace(name);
}

/// Runs the test `name` of this program in a network namespace of its own.
fn in_a_namespace(name: &str) {
    let mut command = util::child_command(name, "isolated");
    lossy::isolate(&mut command);
    let output = match command.output() {
        Ok(output) => output,
        Err(e) => return eprintln!("SKIPPED: no network namespace may be made: {e}"),
    };
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    // The losses, and how bad they were.
    eprint!("{stderr}");
}

fn listen() -> (TcpListener, u16) {
    let listener = TcpListener::bind(lossy::HERE).unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

/// Four connections, much both ways on each, every byte checked at both ends.
fn talk_both_ways(listener: &TcpListener, addr: SocketAddr) {
    const N_BYTES: usize = 150_000;
    let pattern = Arc::new(Pattern::new());
    let talk = |stream: TcpStream, pattern: Arc<Pattern>| {
        let writer = stream.try_clone().unwrap();
        let same = Arc::clone(&pattern);
        let writes = spawn(move || {
            same.write(&mut &writer, 0, N_BYTES, 9_000).unwrap();
            writer.shutdown(std::net::Shutdown::Write).unwrap();
        });
        assert_eq!(pattern.check(&mut &stream, 5_000).unwrap(), N_BYTES);
        writes.join().unwrap();
    };
    windlass::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| talk(TcpStream::connect(addr).unwrap(), Arc::clone(&pattern)));
            s.spawn(|| talk(listener.accept().unwrap().0, Arc::clone(&pattern)));
        }
    });
}

#[test]
fn streams_lose_no_byte() {
    on_a_bad_network("streams_lose_no_byte", |there, link| {
        link.lose(30);
        run(2, || {
            let (listener, port) = listen();
            talk_both_ways(&listener, (there, port).into());
        });
    });
}

/// As before, with the kernel's own emulator.
#[test]
fn streams_lose_no_byte_under_netem() {
    if util::child_case().is_none() {
        return in_a_namespace("streams_lose_no_byte_under_netem");
    }
    if let Err(e) = lossy::netem_on_loopback() {
        return eprintln!("SKIPPED: netem is not to be had here: {e}");
    }
    run(2, || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        talk_both_ways(&listener, addr);
    });
}

/// Timeouts shorter than it takes to send a packet again: each may fall between any two.
#[test]
fn timeouts_lose_no_byte() {
    on_a_bad_network("timeouts_lose_no_byte", |there, _| {
        run(2, || {
            const N_BYTES: usize = 100_000;
            let (listener, port) = listen();
            let pattern = Arc::new(Pattern::new());
            let same = Arc::clone(&pattern);
            let n_cut = Arc::new(AtomicUsize::new(0));
            let n_seen = Arc::clone(&n_cut);
            let writes = spawn(move || {
                let mut stream = listener.accept().unwrap().0;
                let mut at = 0;
                while at < N_BYTES {
                    let len = 700.min(N_BYTES - at);
                    // On a busy machine the bytes may always be there before the reader is.
                    while at > N_BYTES / 2 && n_seen.load(Ordering::Relaxed) == 0 {
                        windlass::sleep(Duration::from_micros(500));
                    }
                    stream.write_all(same.bytes(at, len)).unwrap();
                    at += len;
                    windlass::sleep(Duration::from_micros(at as u64 % 700));
                }
            });
            let mut stream = TcpStream::connect((there, port)).unwrap();
            stream
                .set_read_timeout(Some(Duration::from_micros(500)))
                .unwrap();
            let (mut at, mut buf) = (0, [0; 999]);
            loop {
                match stream.read(&mut buf) {
                    Ok(0) => break,
                    Ok(n) => {
                        assert_eq!(buf[..n], *pattern.bytes(at, n), "behind {at}");
                        at += n;
                    }
                    Err(e) => {
                        assert_eq!(e.kind(), ErrorKind::WouldBlock);
                        n_cut.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
            assert_eq!(at, N_BYTES);
            writes.join().unwrap();
        });
    });
}

/// Packets that UDP loses are asked for again.
#[test]
fn packets_are_asked_for_again() {
    on_a_bad_network("packets_are_asked_for_again", |there, link| {
        link.lose(300);
        run(2, || {
            let server = UdpSocket::bind(lossy::HERE).unwrap();
            let port = server.local_addr().unwrap().port();
            spawn(move || {
                let mut buf = [0; 16];
                loop {
                    let (n, from) = server.recv_from(&mut buf).unwrap();
                    server.send_to(&buf[..n], from).unwrap();
                }
            });
            let client = UdpSocket::bind(lossy::HERE).unwrap();
            client.connect((there, port)).unwrap();
            client
                .set_read_timeout(Some(Duration::from_millis(10)))
                .unwrap();
            let mut n_lost = 0;
            for i in 1..100_u64 {
                let mut got = [0; 8];
                client.send(&i.to_le_bytes()).unwrap();
                // An answer to an earlier question may come late, or twice.
                while u64::from_le_bytes(got) != i {
                    match client.recv(&mut got) {
                        Ok(n) => assert_eq!(n, 8),
                        Err(e) => {
                            assert_eq!(e.kind(), ErrorKind::WouldBlock);
                            n_lost += 1;
                            client.send(&i.to_le_bytes()).unwrap();
                        }
                    }
                }
            }
            assert!(n_lost > 0, "nothing was lost");
        });
    });
}

/// Nothing comes back any more, not even a reset.
#[test]
fn a_network_that_goes_away() {
    on_a_bad_network("a_network_that_goes_away", |there, link| {
        run(2, || {
            let (listener, port) = listen();
            let patience = Duration::from_millis(500);
            let mut options = TcpOptions::new();
            let mut stream = options
                .user_timeout(patience)
                .connect((there, port))
                .unwrap();
            let mut peer = listener.accept().unwrap().0;
            peer.write_all(b"hello").unwrap();
            let mut word = [0; 5];
            stream.read_exact(&mut word).unwrap();
            link.lose(1000);
            // A wait ends at its deadline.
            let begin = Instant::now();
            stream.set_read_deadline(Some(begin + Duration::from_millis(50)));
            let e = stream.read(&mut word).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::WouldBlock);
            stream.set_read_deadline(None);
            // A connection, or one that is not there yet, when its time is over.
            let refused = TcpStream::connect_timeout(&(there, port).into(), patience);
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::TimedOut);
            stream.write_all(b"anybody there?").unwrap();
            let e = stream.read(&mut word).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::TimedOut);
            assert!(begin.elapsed() >= patience);
            // The other end knows nothing of it.
            peer.set_read_timeout(Some(Duration::from_millis(5)))
                .unwrap();
            let e = peer.read(&mut word).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::WouldBlock);
        });
    });
}

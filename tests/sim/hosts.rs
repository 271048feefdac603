//! Simulated hosts: their names, crashes, restarts and pauses, and the links between them.

use std::net::{IpAddr, Shutdown, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};

use windlass::channel::unbounded;
use windlass::io::{self, ErrorKind, Read, Write};
use windlass::net::{TcpListener, TcpOptions, TcpStream, UdpSocket, UnixListener, UnixStream};
use windlass::sim::{self, FailureKind, Faults, Host, Link, Network, Sim, Strategy};
use windlass::sync::{Arc, Mutex};
use windlass::time::{Duration, Instant, SystemTime, sleep};
use windlass::{spawn, task};

use crate::util::PROMISE;

const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

fn check(f: impl Fn()) {
    check_with(Sim::new(PROMISE), f);
}

#[track_caller]
fn check_with(sim: Sim, f: impl Fn()) {
    if let Err(failure) = sim.seeds(40).run(f) {
        panic!("{failure}");
    }
}

#[track_caller]
fn kind<T: std::fmt::Debug>(result: io::Result<T>) -> ErrorKind {
    result.unwrap_err().kind()
}

/// A host that sends back what it gets, over TCP at port 7 and over UDP.
fn echo(name: &str, n: u8) -> Host {
    let host = sim::host(name, [10, 0, 0, n], || {
        let socket = UdpSocket::bind("0.0.0.0:7").unwrap();
        spawn(move || {
            let mut buf = [0; 2000];
            loop {
                let (n, from) = socket.recv_from(&mut buf).unwrap();
                socket.send_to(&buf[..n], from).unwrap();
            }
        });
        let listener = TcpListener::bind("0.0.0.0:7").unwrap();
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            spawn(move || io::copy(&mut &stream, &mut &stream));
        }
    });
    sim::settle();
    host
}

/// Sends a byte, and waits for it.
fn ping(mut stream: &TcpStream) -> io::Result<()> {
    stream.write_all(b"x")?;
    stream.read_exact(&mut [0])
}

#[test]
fn names_and_addresses() {
    check(|| {
        let a = echo("a", 1);
        assert_eq!(
            (a.name().as_str(), a.ip()),
            ("a", IpAddr::from([10, 0, 0, 1]))
        );
        let here = sim::this_host();
        assert_eq!(here.name(), "main");
        assert_ne!(a, here);
        let stream = TcpStream::connect("a:7").unwrap();
        assert_eq!(stream.peer_addr().unwrap(), SocketAddr::new(a.ip(), 7));
        assert_eq!(stream.local_addr().unwrap().ip(), here.ip());
        ping(&stream).unwrap();
        ping(&TcpStream::connect(("a", 7)).unwrap()).unwrap();
        ping(&TcpStream::connect((String::from("a"), 7)).unwrap()).unwrap();
        ping(&TcpStream::connect(String::from("10.0.0.1:7")).unwrap()).unwrap();
        let mut found = windlass::net::lookup_host("a:80").unwrap();
        assert_eq!(found.next(), Some(SocketAddr::new(a.ip(), 80)));
        assert!(TcpStream::connect("nobody:7").is_err());
        assert_eq!(
            kind(TcpStream::connect("nonsense")),
            ErrorKind::InvalidInput
        );
        // Each host has its own loopback interface, and only its own address.
        assert_eq!(
            kind(TcpStream::connect("127.0.0.1:7")),
            ErrorKind::ConnectionRefused
        );
        assert_eq!(kind(TcpListener::bind("a:7")), ErrorKind::AddrNotAvailable);
        let _same_port = TcpListener::bind("0.0.0.0:7").unwrap();
        assert_eq!(
            kind(TcpStream::connect("10.9.9.9:1")),
            ErrorKind::HostUnreachable
        );
    });
}

#[test]
fn hosts_have_their_own_names_of_unix_sockets() {
    check(|| {
        let serve = || {
            let listener = UnixListener::bind("/run/service").unwrap();
            let here = UnixStream::connect("/run/service").unwrap();
            drop((listener.accept().unwrap(), here));
            task::park();
        };
        let a = sim::host("a", [10, 0, 0, 1], serve);
        let _b = sim::host("b", [10, 0, 0, 2], serve);
        sim::settle();
        assert_eq!(
            kind(UnixStream::connect("/run/service")),
            ErrorKind::NotFound
        );
        // The file survives a crash, as on a disk.
        a.crash();
        let refused = Arc::new(Mutex::new(None));
        let seen = Arc::clone(&refused);
        let _c = sim::host("c", [10, 0, 0, 3], move || {
            drop(UnixListener::bind("/run/c"));
            *seen.lock().unwrap() = Some(kind(UnixListener::bind("/run/c")));
            windlass::fs::remove_file("/run/c").unwrap();
            UnixListener::bind("/run/c").unwrap();
        });
        sim::settle();
        assert_eq!(*refused.lock().unwrap(), Some(ErrorKind::AddrInUse));
    });
}

#[test]
fn goroutines_inherit_their_host() {
    check(|| {
        let names = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&names);
        let _a = sim::host("a", [10, 0, 0, 1], move || {
            let note =
                |seen: &Mutex<Vec<String>>| seen.lock().unwrap().push(sim::this_host().name());
            note(&seen);
            let seen = Arc::clone(&seen);
            let child = spawn(move || {
                note(&seen);
                windlass::scope(|s| drop(s.spawn(|| note(&seen))));
            });
            child.join().unwrap();
        });
        sim::settle();
        assert_eq!(*names.lock().unwrap(), ["a", "a", "a"]);
        assert_eq!(sim::this_host().name(), "main");
    });
}

#[test]
fn clocks_are_skewed() {
    check(|| {
        let (sender, receiver) = unbounded();
        let a = sim::host("a", [10, 0, 0, 1], move || {
            loop {
                sender.send((SystemTime::now(), Instant::now())).unwrap();
                sleep(SECOND);
            }
        });
        a.set_clock_ahead(90 * SECOND);
        let (time, instant) = receiver.recv().unwrap();
        assert_eq!(time.duration_since(SystemTime::now()).unwrap(), 90 * SECOND);
        assert_eq!(instant, Instant::now());
        a.set_clock_behind(5 * SECOND);
        let (time, _) = receiver.recv().unwrap();
        assert_eq!(SystemTime::now().duration_since(time).unwrap(), 5 * SECOND);
    });
}

#[test]
fn latency_is_exact() {
    let link = Link::new().latency(30 * MS);
    check_with(Sim::new(PROMISE).link(link), || {
        let a = echo("a", 1);
        let start = Instant::now();
        let stream = TcpStream::connect("a:7").unwrap();
        assert_eq!(start.elapsed(), 60 * MS);
        ping(&stream).unwrap();
        assert_eq!(start.elapsed(), 120 * MS);
        // Both ways have their own.
        Network::set_link_one_way(a, sim::this_host(), Link::new().latency(5 * MS));
        ping(&stream).unwrap();
        assert_eq!(start.elapsed(), 155 * MS);
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        socket.send_to(b"hello", "a:7").unwrap();
        socket.recv(&mut [0; 9]).unwrap();
        assert_eq!(start.elapsed(), 190 * MS);
        // A connect that is refused learns it after the way there and back.
        assert_eq!(
            kind(TcpStream::connect("a:8")),
            ErrorKind::ConnectionRefused
        );
        assert_eq!(start.elapsed(), 225 * MS);
        // On one host nothing takes time.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert_eq!(start.elapsed(), 225 * MS);
        // The end of a stream takes as long as its bytes.
        stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!((&stream).read(&mut [0]).unwrap(), 0);
        assert_eq!(start.elapsed(), 260 * MS);
    });
}

#[test]
fn bandwidth_is_exact() {
    // A byte takes a microsecond.
    let link = Link::new().latency(10 * MS).bandwidth(1_000_000);
    check_with(Sim::new(PROMISE).link(link), || {
        let (sender, receiver) = unbounded();
        let _sink = sim::host("sink", [10, 0, 0, 1], move || {
            let listener = TcpListener::bind("0.0.0.0:7").unwrap();
            let (mut stream, _) = listener.accept().unwrap();
            stream.read_exact(&mut vec![0; 50_000]).unwrap();
            sender.send(Instant::now()).unwrap();
        });
        sim::settle();
        let mut stream = TcpStream::connect("sink:7").unwrap();
        let start = Instant::now();
        stream.write_all(&[0; 50_000]).unwrap();
        // It is on its way.
        assert_eq!(start.elapsed(), Duration::ZERO);
        let got = receiver.recv().unwrap();
        assert_eq!(got - start, 60 * MS);
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        let start = Instant::now();
        for _ in 0..3 {
            socket.send_to(&[0; 1000], "sink:9").unwrap();
        }
        sleep(20 * MS);
        assert_eq!(start.elapsed(), 20 * MS);
    });
}

#[test]
fn a_latency_that_is_drawn_keeps_the_order_of_a_stream() {
    let link = Link::new().latency_between(MS, 50 * MS);
    let round_trips = Arc::new(std::sync::Mutex::new(std::collections::BTreeSet::new()));
    check_with(Sim::new(PROMISE).link(link), || {
        let _a = echo("a", 1);
        let stream = TcpStream::connect("a:7").unwrap();
        let start = Instant::now();
        let sent: Vec<u8> = (0..200).collect();
        for byte in &sent {
            (&stream).write_all(&[*byte]).unwrap();
        }
        let mut got = [0; 200];
        (&stream).read_exact(&mut got).unwrap();
        assert_eq!(&got[..], &sent[..]);
        let took = start.elapsed();
        assert!((2 * MS..=100 * MS).contains(&took), "{took:?}");
        round_trips.lock().unwrap().insert(took);
    });
    assert!(round_trips.lock().unwrap().len() > 10);
}

/// Sends 100 datagrams to the echo; returns those that come back, in their order.
fn send_100() -> Vec<u8> {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    for n in 0..100 {
        socket.send_to(&[n], "a:7").unwrap();
    }
    socket.set_read_timeout(Some(SECOND)).unwrap();
    let mut got = Vec::new();
    let mut buf = [0; 2];
    while let Ok(n) = socket.recv(&mut buf) {
        assert_eq!(n, 1);
        got.push(buf[0]);
    }
    got
}

#[test]
fn datagrams_are_lost_doubled_and_overtaken() {
    let all: Vec<u8> = (0..100).collect();
    check(|| {
        let a = echo("a", 1);
        assert_eq!(send_100(), all);
        let here = sim::this_host();
        Network::set_link_one_way(here, a, Link::new().loss(0.3));
        let got = send_100();
        assert!((40..95).contains(&got.len()), "{} came", got.len());
        assert!(got.is_sorted());
        Network::set_link_one_way(here, a, Link::new().duplication(0.3));
        let mut got = send_100();
        assert!((105..160).contains(&got.len()), "{} came", got.len());
        assert!(got.is_sorted());
        got.dedup();
        assert_eq!(got, all);
        Network::set_link_one_way(here, a, Link::new().latency(MS).reordering(0.2));
        let mut got = send_100();
        assert!(!got.is_sorted());
        got.sort_unstable();
        assert_eq!(got, all);
        Network::set_all_links(Link::new().loss(1.0));
        assert!(send_100().is_empty());
        // TCP does not lose anything.
        ping(&TcpStream::connect("a:7").unwrap()).unwrap();
    });
}

#[test]
fn a_partition_delays_what_is_sent() {
    check(|| {
        let a = echo("a", 1);
        let stream = TcpStream::connect("a:7").unwrap();
        let start = Instant::now();
        Network::partition(a, sim::this_host());
        let healer = spawn(move || {
            sleep(SECOND);
            Network::heal(a, sim::this_host());
        });
        // Sent again after 0.2, 0.4 and 0.8 s.
        ping(&stream).unwrap();
        assert_eq!(start.elapsed(), 1400 * MS);
        ping(&stream).unwrap();
        assert_eq!(start.elapsed(), 1400 * MS);
        healer.join().unwrap();
        // Datagrams are lost.
        Network::partition(a, sim::this_host());
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        socket.send_to(b"x", "a:7").unwrap();
        Network::heal_all();
        socket.set_read_timeout(Some(SECOND)).unwrap();
        assert_eq!(kind(socket.recv(&mut [0])), ErrorKind::WouldBlock);
    });
}

#[test]
fn a_partition_of_one_way() {
    check(|| {
        let a = echo("a", 1);
        let here = sim::this_host();
        let socket = UdpSocket::bind("0.0.0.0:9").unwrap();
        socket.set_read_timeout(Some(SECOND)).unwrap();
        Network::partition_one_way(a, here);
        socket.send_to(b"x", "a:7").unwrap();
        assert_eq!(kind(socket.recv(&mut [0])), ErrorKind::WouldBlock);
        Network::heal_all();
        Network::partition_one_way(here, a);
        let (sender, receiver) = unbounded();
        let _b = sim::host("b", [10, 0, 0, 2], move || {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            socket.send_to(b"y", "main:9").unwrap();
            sender.send(()).unwrap();
        });
        receiver.recv().unwrap();
        // b is not concerned.
        assert_eq!(socket.recv(&mut [0]).unwrap(), 1);
    });
}

#[test]
fn connects_into_the_void() {
    check(|| {
        let a = echo("a", 1);
        a.crash();
        let start = Instant::now();
        assert_eq!(kind(TcpStream::connect("a:7")), ErrorKind::TimedOut);
        // 1 + 2 + 4 + 8 + 16 + 32 + 64 s.
        assert_eq!(start.elapsed(), 127 * SECOND);
        let start = Instant::now();
        let addr = SocketAddr::new(a.ip(), 7);
        assert_eq!(
            kind(TcpStream::connect_timeout(&addr, 5 * SECOND)),
            ErrorKind::TimedOut
        );
        assert_eq!(start.elapsed(), 5 * SECOND);
        // The third packet finds it.
        let start = Instant::now();
        let restart = spawn(move || {
            sleep(2 * SECOND);
            a.restart();
        });
        ping(&TcpStream::connect("a:7").unwrap()).unwrap();
        assert_eq!(start.elapsed(), 3 * SECOND);
        restart.join().unwrap();
    });
}

#[test]
fn a_connection_that_is_given_up() {
    check(|| {
        let a = echo("a", 1);
        let stream = TcpStream::connect("a:7").unwrap();
        a.crash();
        let start = Instant::now();
        (&stream).write_all(b"x").unwrap();
        assert_eq!(kind((&stream).read(&mut [0])), ErrorKind::TimedOut);
        // 0.2 + 0.4 + .. + 102.4 s, and six times 120 s.
        assert_eq!(start.elapsed(), 204_600 * MS + 6 * 120 * SECOND);
        assert_eq!(kind((&stream).write(b"x")), ErrorKind::BrokenPipe);
        a.restart();
        sim::settle();
        let stream = TcpStream::connect("a:7").unwrap();
        let mut options = TcpOptions::new();
        options.user_timeout(SECOND).apply(&stream).unwrap();
        a.crash();
        let start = Instant::now();
        (&stream).write_all(b"x").unwrap();
        assert_eq!(kind((&stream).read(&mut [0])), ErrorKind::TimedOut);
        assert_eq!(start.elapsed(), 1400 * MS);
    });
}

#[test]
fn a_silent_peer_is_asked() {
    check(|| {
        let a = echo("a", 1);
        let connect = || {
            let stream = TcpStream::connect("a:7").unwrap();
            let mut options = TcpOptions::new();
            options
                .keepalive(10 * SECOND)
                .keepalive_interval(2 * SECOND);
            options.keepalive_retries(3).apply(&stream).unwrap();
            ping(&stream).unwrap();
            stream
        };
        let stream = connect();
        sleep(4 * SECOND);
        a.crash();
        let start = Instant::now();
        assert_eq!(kind((&stream).read(&mut [0])), ErrorKind::TimedOut);
        assert_eq!(start.elapsed(), (6 + 3 * 2) * SECOND);
        a.restart();
        sim::settle();
        // A host that is back does not know the connection.
        let stream = connect();
        a.crash();
        a.restart();
        let start = Instant::now();
        assert_eq!(kind((&stream).read(&mut [0])), ErrorKind::ConnectionReset);
        assert_eq!(start.elapsed(), 10 * SECOND);
        sim::settle();
        // One that cannot be reached for a while does.
        let stream = connect();
        Network::partition(a, sim::this_host());
        sleep(13 * SECOND);
        Network::heal_all();
        sleep(100 * SECOND);
        ping(&stream).unwrap();
    });
}

#[test]
fn a_stream_survives_partitions() {
    let link = Link::new().latency_between(MS, 40 * MS).bandwidth(500_000);
    let faults = Faults::network()
        .partitions(20.0)
        .one_way_partitions(20.0)
        .at_most(SECOND);
    check_with(Sim::new(PROMISE).link(link).faults(faults), || {
        let _a = echo("a", 1);
        let stream = loop {
            if let Ok(stream) = TcpStream::connect("a:7") {
                break stream;
            }
        };
        let sent: Vec<u8> = (0..300_000_u32).map(|n| (n % 253) as u8).collect();
        let mut got = vec![0; sent.len()];
        windlass::scope(|s| {
            s.spawn(|| {
                (&stream).write_all(&sent).unwrap();
                stream.shutdown(Shutdown::Write).unwrap();
            });
            (&stream).read_exact(&mut got).unwrap();
        });
        assert!(got == sent);
        assert_eq!((&stream).read(&mut [0]).unwrap(), 0);
    });
}

#[test]
fn a_full_queue_of_a_listener_makes_clients_try_again() {
    check(|| {
        let listener = TcpOptions::new().backlog(1).listen("0.0.0.0:7").unwrap();
        let start = Instant::now();
        let _queued = [(); 2].map(|()| TcpStream::connect("main:7").unwrap());
        assert_eq!(start.elapsed(), Duration::ZERO);
        let third = spawn(|| TcpStream::connect("main:7").unwrap());
        sleep(500 * MS);
        assert!(!third.is_finished());
        drop(listener.accept().unwrap());
        let _third = third.join().unwrap();
        assert_eq!(start.elapsed(), SECOND);
    });
}

#[test]
fn broadcasts_and_groups() {
    check(|| {
        let heard = Arc::new(Mutex::new(Vec::new()));
        for n in 1..=3 {
            let heard = Arc::clone(&heard);
            sim::host(&format!("host{n}"), [10, 0, 0, n], move || {
                let socket = UdpSocket::bind("0.0.0.0:9").unwrap();
                if n > 1 {
                    let group = [239, 1, 2, 3].into();
                    socket
                        .join_multicast_v4(&group, &[0, 0, 0, 0].into())
                        .unwrap();
                }
                loop {
                    let mut buf = [0; 16];
                    let (len, _) = socket.recv_from(&mut buf).unwrap();
                    let text = String::from_utf8_lossy(&buf[..len]).into_owned();
                    heard.lock().unwrap().push((n, text));
                }
            });
        }
        sim::settle();
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        let take = || {
            sim::settle();
            let mut all = std::mem::take(&mut *heard.lock().unwrap());
            all.sort();
            all
        };
        socket.set_broadcast(true).unwrap();
        socket.send_to(b"all", "255.255.255.255:9").unwrap();
        let to = |n| (n, "all".to_owned());
        assert_eq!(take(), [to(1), to(2), to(3)]);
        socket.send_to(b"some", "239.1.2.3:9").unwrap();
        let to = |n| (n, "some".to_owned());
        assert_eq!(take(), [to(2), to(3)]);
        let member = UdpSocket::bind("0.0.0.0:9").unwrap();
        let group = [239, 1, 2, 3].into();
        let any = [0, 0, 0, 0].into();
        member.join_multicast_v4(&group, &any).unwrap();
        assert!(member.join_multicast_v4(&group, &any).is_err());
        socket.send_to(b"x", "239.1.2.3:9").unwrap();
        assert_eq!(member.recv(&mut [0; 2]).unwrap(), 1);
        socket.set_multicast_loop_v4(false).unwrap();
        socket.send_to(b"y", "239.1.2.3:9").unwrap();
        member.set_read_timeout(Some(SECOND)).unwrap();
        assert_eq!(kind(member.recv(&mut [0; 2])), ErrorKind::WouldBlock);
        member.leave_multicast_v4(&group, &any).unwrap();
        assert!(member.leave_multicast_v4(&group, &any).is_err());
        assert!(member.join_multicast_v4(&any, &any).is_err());
    });
}

#[test]
fn a_socket_that_is_full_loses_datagrams() {
    check(|| {
        let a = UdpSocket::bind("0.0.0.0:9").unwrap();
        let b = UdpSocket::bind("0.0.0.0:0").unwrap();
        for n in 0..1000_u16 {
            b.send_to(&[&n.to_be_bytes()[..], &[0; 998]].concat(), "main:9")
                .unwrap();
        }
        a.set_nonblocking(true).unwrap();
        let mut n = 0;
        let mut buf = [0; 1000];
        while a.recv(&mut buf).is_ok() {
            assert_eq!(u16::from_be_bytes([buf[0], buf[1]]), n);
            n += 1;
        }
        assert!((50..500).contains(&n), "{n} came");
    });
}

#[test]
fn a_group_of_listeners_shares_connections() {
    let seen = std::sync::Mutex::new(std::collections::BTreeSet::new());
    check(|| {
        let mut options = TcpOptions::new();
        let group = options
            .reuse_port(true)
            .listen_group("0.0.0.0:7", 3)
            .unwrap();
        let _stream = TcpStream::connect("main:7").unwrap();
        let mut accepted = group.iter().enumerate().filter(|(_, listener)| {
            listener.set_nonblocking(true).unwrap();
            listener.accept().is_ok()
        });
        seen.lock().unwrap().insert(accepted.next().unwrap().0);
        assert!(accepted.next().is_none());
    });
    assert_eq!(seen.lock().unwrap().len(), 3);
}

#[test]
fn a_crash_is_silent_until_the_host_is_back() {
    check(|| {
        let a = echo("a", 1);
        let stream = TcpStream::connect("a:7").unwrap();
        ping(&stream).unwrap();
        assert!(a.is_up());
        a.crash();
        a.crash();
        assert!(!a.is_up());
        stream.set_read_timeout(Some(3600 * SECOND)).unwrap();
        assert_eq!(kind((&stream).read(&mut [0])), ErrorKind::WouldBlock);
        a.restart();
        a.restart();
        assert!(a.is_up() && a.restarts() == 1);
        sim::settle();
        // It does not know the connection any more.
        assert_eq!(kind((&stream).read(&mut [0])), ErrorKind::WouldBlock);
        (&stream).write_all(b"x").unwrap();
        assert_eq!(kind((&stream).read(&mut [0])), ErrorKind::ConnectionReset);
        ping(&TcpStream::connect("a:7").unwrap()).unwrap();
    });
}

/// Notes when it is dropped, and whether it could still write.
struct Farewell(TcpStream, Arc<Mutex<Vec<bool>>>);

impl Drop for Farewell {
    fn drop(&mut self) {
        let sent = (&self.0).write(b"farewell").is_ok();
        self.1.lock().unwrap().push(sent);
    }
}

#[test]
fn destructors_of_a_crash_reach_nobody() {
    check(|| {
        let listener = TcpListener::bind("0.0.0.0:9").unwrap();
        let farewells = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&farewells);
        let (started, all_started) = unbounded();
        let a = sim::host("a", [10, 0, 0, 1], move || {
            let connect = || Farewell(TcpStream::connect("main:9").unwrap(), Arc::clone(&noted));
            let (first, second) = (connect(), connect());
            let (one, two, three) = (started.clone(), started.clone(), started.clone());
            // One waits for bytes, one for a token, one is in a loop of calls that never wait.
            windlass::scope(|s| {
                s.spawn(move || {
                    one.send(()).unwrap();
                    (&first.0).read(&mut [0]).unwrap()
                });
                s.spawn(move || {
                    two.send(()).unwrap();
                    let mutex = Mutex::new(0);
                    let _guard = mutex.lock().unwrap();
                    task::park();
                });
                s.spawn(move || {
                    let _second = second;
                    three.send(()).unwrap();
                    let mutex = Mutex::new(0);
                    loop {
                        *mutex.lock().unwrap() += 1;
                    }
                });
            });
        });
        let streams = [(); 2].map(|()| listener.accept().unwrap().0);
        for _ in 0..3 {
            all_started.recv().unwrap();
        }
        a.crash();
        // When crash returns, they have ended.
        assert_eq!(*farewells.lock().unwrap(), [false, false]);
        for mut stream in streams {
            stream.set_read_timeout(Some(SECOND)).unwrap();
            assert_eq!(kind(stream.read(&mut [0])), ErrorKind::WouldBlock);
        }
    });
}

/// Values that the closure of a host owns are dropped in the run, however that ends: its destructors write to the
/// disk of the simulation and not to the machine's.
#[test]
fn closures_of_hosts_are_dropped_in_the_run() {
    struct Guard(Arc<[AtomicU32; 2]>);
    impl Drop for Guard {
        fn drop(&mut self) {
            self.0[usize::from(sim::is_simulated())].fetch_add(1, Ordering::Relaxed);
        }
    }
    type Rest = fn(Host);
    let rests: [Rest; 5] = [
        |_| (),
        |_| sleep(SECOND),
        |host| {
            host.crash();
            host.restart();
        },
        |_| windlass::task::park(),
        |_| panic!("expected"),
    ];
    for rest in rests {
        let drops = Arc::new([0, 0].map(AtomicU32::new));
        let sim = Sim::new(PROMISE).seeds(1).shorten(false);
        let _failure = sim.run(|| {
            drops.iter().for_each(|n| n.store(0, Ordering::Relaxed));
            let guard = Guard(Arc::clone(&drops));
            rest(sim::host("server", [10, 0, 0, 1], move || {
                let _guard = &guard;
                sleep(SECOND / 2);
            }));
        });
        let [outside, inside] = [0, 1].map(|at| drops[at].load(Ordering::Relaxed));
        assert_eq!((outside, inside), (0, 1));
    }
}

#[test]
fn a_host_may_crash_and_restart_itself() {
    check(|| {
        let n = Arc::new(AtomicU32::new(0));
        let starts = Arc::clone(&n);
        let a = sim::host("a", [10, 0, 0, 1], move || {
            starts.fetch_add(1, Ordering::Relaxed);
            let _other = spawn(task::park);
            sim::this_host().crash();
            unreachable!("the call unwinds");
        });
        sim::settle();
        assert!(!a.is_up());
        a.restart();
        sim::settle();
        assert_eq!(
            (n.load(Ordering::Relaxed), a.restarts(), a.is_up()),
            (2, 1, false)
        );
    });
}

#[test]
fn joiners_of_a_crash_are_told() {
    check(|| {
        let handle = Arc::new(Mutex::new(None));
        let kept = Arc::clone(&handle);
        let a = sim::host("a", [10, 0, 0, 1], move || {
            *kept.lock().unwrap() = Some(spawn(|| sleep(3600 * SECOND)));
            task::park();
        });
        sim::settle();
        let sleeper = handle.lock().unwrap().take().unwrap();
        let start = Instant::now();
        a.crash();
        assert!(sleeper.join().unwrap_err().is::<task::Cancelled>());
        assert_eq!(start.elapsed(), Duration::ZERO);
    });
}

#[test]
fn a_pause_stops_time_for_nobody() {
    check(|| {
        let a = echo("a", 1);
        let stream = TcpStream::connect("a:7").unwrap();
        let ticks = Arc::new(AtomicU32::new(0));
        let n = Arc::clone(&ticks);
        let b = sim::host("b", [10, 0, 0, 2], move || {
            for _ in 0..100 {
                sleep(SECOND);
                n.fetch_add(1, Ordering::Relaxed);
            }
        });
        sleep(3500 * MS);
        assert_eq!(ticks.load(Ordering::Relaxed), 3);
        a.pause();
        b.pause();
        // Its sockets take what comes, and connections.
        (&stream).write_all(b"abc").unwrap();
        let second = TcpStream::connect("a:7").unwrap();
        stream.set_read_timeout(Some(10 * SECOND)).unwrap();
        assert_eq!(kind((&stream).read(&mut [0])), ErrorKind::WouldBlock);
        assert_eq!(ticks.load(Ordering::Relaxed), 3);
        a.resume();
        b.resume();
        (&stream).read_exact(&mut [0; 3]).unwrap();
        ping(&second).unwrap();
        sim::settle();
        assert_eq!(ticks.load(Ordering::Relaxed), 4);
        // A host that stands still may crash.
        b.pause();
        b.crash();
        b.restart();
        sleep(1500 * MS);
        assert_eq!(ticks.load(Ordering::Relaxed), 5);
    });
}

#[test]
fn a_host_may_pause_itself() {
    check(|| {
        let (sender, receiver) = unbounded();
        let a = sim::host("a", [10, 0, 0, 1], move || {
            sim::this_host().pause();
            sender.send(Instant::now()).unwrap();
        });
        let start = Instant::now();
        sleep(SECOND);
        assert!(receiver.is_empty());
        a.resume();
        assert_eq!(receiver.recv().unwrap() - start, SECOND);
    });
}

#[test]
fn resets() {
    check(|| {
        let a = echo("a", 1);
        let stream = TcpStream::connect("a:7").unwrap();
        ping(&stream).unwrap();
        Network::reset(sim::this_host(), a);
        assert_eq!(kind((&stream).read(&mut [0])), ErrorKind::ConnectionReset);
        assert_eq!(kind((&stream).write(b"x")), ErrorKind::BrokenPipe);
        Network::set_all_links(Link::new().resets(1.0));
        let stream = TcpStream::connect("a:7").unwrap();
        assert!(ping(&stream).is_err());
        Network::set_all_links(Link::new().resets(0.05));
        let stream = TcpStream::connect("a:7").unwrap();
        let n = (0..1000).take_while(|_| ping(&stream).is_ok()).count();
        assert!(n < 300, "{n} went well");
    });
}

#[test]
fn look_ups_fail() {
    check(|| {
        let _a = echo("a", 1);
        Network::fail_lookups(1.0);
        let error = TcpStream::connect("a:7").unwrap_err();
        assert!(error.to_string().contains("Temporary failure"), "{error}");
        // An address needs no look-up.
        ping(&TcpStream::connect("10.0.0.1:7").unwrap()).unwrap();
        Network::fail_lookups(0.0);
        ping(&TcpStream::connect("a:7").unwrap()).unwrap();
    });
}

/// A client that tries again, and a server that crashes, behind a network with all faults.
fn hard_times() -> u32 {
    let served = Arc::new(AtomicU32::new(0));
    let n = Arc::clone(&served);
    for id in 1..=2 {
        let n = Arc::clone(&n);
        sim::host(&format!("server{id}"), [10, 0, 0, id], move || {
            let listener = TcpListener::bind("0.0.0.0:7").unwrap();
            for stream in listener.incoming() {
                let n = Arc::clone(&n);
                let mut stream = stream.unwrap();
                spawn(move || {
                    let mut buf = [0; 4];
                    if stream.read_exact(&mut buf).is_ok() {
                        n.fetch_add(1, Ordering::Relaxed);
                        let _ = stream.write_all(&buf);
                    }
                });
            }
        });
    }
    let ask = |id: u8| -> io::Result<()> {
        let addr = SocketAddr::from(([10, 0, 0, id], 7));
        let mut stream = TcpStream::connect_timeout(&addr, 2 * SECOND)?;
        stream.set_read_timeout(Some(2 * SECOND))?;
        stream.write_all(b"ping")?;
        stream.read_exact(&mut [0; 4])
    };
    let mut n_failed = 0;
    for n in 0..60 {
        n_failed += u32::from(ask(1 + n % 2).is_err());
        sleep(SECOND);
    }
    // The network always comes back.
    sleep(30 * SECOND);
    n_failed
}

fn all_faults() -> Faults {
    let faults = Faults::network()
        .partitions(4.0)
        .one_way_partitions(2.0)
        .resets(6.0);
    faults.crashes(3.0).pauses(3.0).at_most(8 * SECOND)
}

#[test]
fn faults_are_drawn() {
    let (n_runs, n_failed) = (AtomicU32::new(0), AtomicU32::new(0));
    let link = Link::new().latency_between(MS, 20 * MS);
    let sim = || Sim::new(PROMISE).seed(5).seeds(30).link(link);
    sim()
        .faults(all_faults())
        .run(|| {
            n_runs.fetch_add(1, Ordering::Relaxed);
            n_failed.fetch_add(hard_times(), Ordering::Relaxed);
        })
        .unwrap_or_else(|failure| panic!("{failure}"));
    let (n_runs, n_failed) = (n_runs.into_inner(), n_failed.into_inner());
    assert!(
        (2 * n_runs..40 * n_runs).contains(&n_failed),
        "{n_failed} failed in {n_runs} runs"
    );
    // Without them nothing fails.
    sim()
        .run(|| assert_eq!(hard_times(), 0))
        .unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn the_same_seed_has_the_same_faults() {
    for strategy in [Strategy::Mixed, Strategy::RoundRobin] {
        let link = Link::new().latency_between(MS, 20 * MS);
        let sim = Sim::new(PROMISE)
            .seed(11)
            .seeds(20)
            .link(link)
            .faults(all_faults())
            .strategy(strategy);
        let run = || {
            sim.run(|| {
                hard_times();
            })
            .unwrap_or_else(|failure| panic!("{failure}"))
        };
        let (one, other) = (run(), run());
        assert_eq!(one, other);
        let hashes: std::collections::BTreeSet<u64> =
            one.runs.iter().map(|run| run.schedule).collect();
        assert_eq!(hashes.len(), one.runs.len());
    }
}

#[test]
fn a_failure_among_faults_is_shortened_and_repeated() {
    let sim = Sim::new(PROMISE)
        .seed(1)
        .seeds(200)
        .faults(Faults::network().crashes(2.0));
    let loses_what_it_had = || {
        let a = sim::host("a", [10, 0, 0, 1], || {
            let listener = TcpListener::bind("0.0.0.0:7").unwrap();
            let (mut stream, _) = listener.accept().unwrap();
            sleep(30 * SECOND);
            let _ = stream.write_all(b"x");
            task::park();
        });
        sim::settle();
        let stream = TcpStream::connect("a:7").unwrap();
        stream.set_read_timeout(Some(60 * SECOND)).unwrap();
        assert!((&stream).read_exact(&mut [0]).is_ok(), "no answer");
        assert_eq!(a.restarts(), 0);
    };
    let failure = sim.run(loses_what_it_had).unwrap_err();
    assert_eq!(failure.kind(), FailureKind::Panic);
    let shortest = failure.shortest().expect("it can be repeated");
    assert!(shortest.n_choices() <= 4, "{shortest}");
    let text = failure.to_string();
    assert!(text.contains("\n    host a crashes, at "), "{text}");
    let again = sim
        .clone()
        .replay(shortest)
        .run(loses_what_it_had)
        .unwrap_err();
    assert_eq!(again.kind(), FailureKind::Panic);
}

#[test]
fn an_exhaustive_search_draws_nothing_of_the_network() {
    let link = Link::new().latency_between(MS, 20 * MS);
    let sim = Sim::new(PROMISE).strategy(Strategy::Exhaustive { preemptions: 0 });
    let report = sim.link(link).faults(all_faults()).run(|| {
        let _a = sim::host("a", [10, 0, 0, 1], || {
            let listener = TcpListener::bind("0.0.0.0:7").unwrap();
            let (stream, _) = listener.accept().unwrap();
            io::copy(&mut &stream, &mut &stream).unwrap();
        });
        sim::settle();
        let start = Instant::now();
        let stream = TcpStream::connect("a:7").unwrap();
        (&stream).write_all(&[0; 100]).unwrap();
        (&stream).read_exact(&mut [0; 100]).unwrap();
        assert_eq!(start.elapsed(), 4 * MS);
    });
    let report = report.unwrap_or_else(|failure| panic!("{failure}"));
    assert!(report.is_complete && report.runs.len() < 1000);
}

#[test]
fn everybody_waiting_for_the_network_is_a_deadlock() {
    let failure = Sim::new(PROMISE).seeds(1).run(|| {
        let listener = TcpListener::bind("0.0.0.0:7").unwrap();
        let _ = listener.accept();
    });
    let failure = failure.unwrap_err();
    assert_eq!(failure.kind(), FailureKind::Deadlock);
    assert!(failure.to_string().contains("IO wait"), "{failure}");
    // Faults that would come some day change nothing.
    let failure = Sim::new(PROMISE).seeds(1).faults(all_faults()).run(|| {
        let a = echo("a", 1);
        let stream = TcpStream::connect("a:7").unwrap();
        a.crash();
        let _ = (&stream).read(&mut [0]);
    });
    assert_eq!(failure.unwrap_err().kind(), FailureKind::Deadlock);
}

#[test]
fn sockets_outlive_their_run() {
    let kept: std::sync::Mutex<Vec<(TcpListener, UdpSocket)>> = std::sync::Mutex::default();
    // There is no second run to compare with.
    let sim = Sim::new(PROMISE).replay(&sim::Schedule::default());
    sim.run(|| {
        let listener = TcpListener::bind("0.0.0.0:7").unwrap();
        let socket = UdpSocket::bind("0.0.0.0:7").unwrap();
        kept.lock().unwrap().push((listener, socket));
    })
    .unwrap();
    let (listener, socket) = kept.into_inner().unwrap().remove(0);
    assert!(listener.accept().is_err() && socket.local_addr().is_err());
    let both = std::sync::Mutex::new(Some((listener, socket)));
    sim.run(|| {
        let (listener, socket) = both.lock().unwrap().take().unwrap();
        assert!(listener.accept().is_err());
        assert!(socket.send_to(b"x", "127.0.0.1:7").is_err());
        // Their ports are free.
        TcpListener::bind("0.0.0.0:7").unwrap();
    })
    .unwrap();
}

/// The kernel's names of the files of descriptors.
fn files(fds: &[i32]) -> Vec<Option<std::path::PathBuf>> {
    let link = |fd| std::fs::read_link(format!("/proc/self/fd/{fd}")).ok();
    fds.iter().map(link).collect()
}

#[test]
fn a_run_leaves_no_descriptors() {
    use std::os::fd::{AsRawFd, IntoRawFd};
    let seen = std::sync::Mutex::new((Vec::new(), Vec::new()));
    let outcome = Sim::new(PROMISE).seeds(1).run(|| {
        let listener = TcpListener::bind("0.0.0.0:7").unwrap();
        let stream = TcpStream::connect("127.0.0.1:7").unwrap();
        let (reader, writer) = windlass::io::pipe().unwrap();
        let fds = [
            listener.as_raw_fd(),
            stream.as_raw_fd(),
            reader.as_raw_fd(),
            writer.as_raw_fd(),
        ];
        *seen.lock().unwrap() = (fds.to_vec(), files(&fds));
        // One goroutine never ends by itself, and one forgets what it has.
        spawn(move || listener.incoming().for_each(drop));
        std::mem::forget(stream);
        assert!(reader.into_raw_fd() >= 0);
        sim::settle();
    });
    outcome.unwrap();
    let (fds, before) = seen.into_inner().unwrap();
    let after = files(&fds);
    assert!(before.iter().all(Option::is_some));
    // Values that were forgotten stay forgotten.
    let leaked: Vec<bool> = before.iter().zip(&after).map(|(a, b)| a == b).collect();
    assert_eq!(leaked, [false, true, true, false]);
}

#[test]
fn misuse_is_refused() {
    let refused = |f: fn(), text: &str| {
        let failure = Sim::new(PROMISE).seeds(1).run(f).unwrap_err();
        assert!(
            failure.to_string().contains(text),
            "no {text:?} in {failure}"
        );
    };
    refused(
        || {
            sim::host("a:b", [10, 0, 0, 1], || ());
        },
        "cannot have the name",
    );
    refused(
        || {
            sim::host("a", [127, 0, 0, 1], || ());
        },
        "cannot have the address",
    );
    refused(
        || {
            sim::host("a", [10, 0, 0, 1], || ());
            sim::host("b", [10, 0, 0, 1], || ());
        },
        "has this name or address",
    );
    refused(|| sim::this_host().crash(), "cannot crash");
    refused(|| sim::this_host().pause(), "cannot be paused");
    refused(
        || {
            let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            drop(UdpSocket::from(socket));
        },
        "a socket of the system is not simulated",
    );
    let text = std::panic::catch_unwind(|| sim::host("a", [10, 0, 0, 1], || ())).unwrap_err();
    let text = text.downcast_ref::<String>().unwrap();
    assert!(text.contains("outside of a simulation"), "{text}");
    // std cannot use the descriptor of a simulated socket.
    check(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let stream = std::net::TcpStream::from(stream);
        assert_eq!(kind((&stream).read(&mut [0])), ErrorKind::NotConnected);
        assert_eq!(kind((&stream).write(b"x")), ErrorKind::BrokenPipe);
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let addr = socket.local_addr().unwrap();
        let socket = std::net::UdpSocket::from(socket);
        assert_eq!(socket.recv(&mut [0]).unwrap(), 0);
        assert_eq!(kind(socket.send_to(b"x", addr)), ErrorKind::BrokenPipe);
        let socket = UdpSocket::from(socket);
        assert_eq!(socket.send_to(b"x", addr).unwrap(), 1);
        assert_eq!(socket.recv(&mut [0]).unwrap(), 1);
    });
}

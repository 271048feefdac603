//! Leaks at the end of a run: descriptors and messages, found on request. Each program that leaves
//! something has a twin that does not.

use windlass::channel::{bounded, oneshot, unbounded};
use windlass::fs::{self, File};
use windlass::io::{self, Read, Write};
use windlass::net::{TcpListener, TcpStream, UdpSocket, UnixDatagram, UnixListener};
use windlass::sim::{self, Failure, FailureKind, Sim};
use windlass::sync::{Arc, Mutex, mpsc};
use windlass::time::{Duration, sleep};

use crate::util::PROMISE;

const SECOND: Duration = Duration::from_secs(1);

fn fails(sim: &Sim, f: impl Fn()) -> Failure {
    let failure = sim.run(f).expect_err("something is left");
    for line in failure.left() {
        let line = format!("left: {line}\n");
        assert!(failure.to_string().contains(&line), "{failure}");
    }
    failure
}

/// `f`, which is given whether it leaves something, does so under each of several seeds, and its twin does not.
fn twins(sim: &Sim, kind: FailureKind, f: impl Fn(bool)) -> Vec<String> {
    let mut left = Vec::new();
    for seed in 0..10 {
        // A descriptor that is forgotten stays open in the kernel, so it is not repeated often.
        let sim = sim.clone().seed(seed).seeds(1).shorten(seed == 0);
        let failure = fails(&sim, || f(true));
        assert_eq!(failure.kind(), kind, "{failure}");
        let without_steps = |line: &String| line.split(" at step ").next().unwrap().to_owned();
        let lines: Vec<String> = failure.left().iter().map(without_steps).collect();
        assert!(seed == 0 || lines.len() == left.len(), "{lines:?} {left:?}");
        left = lines;
    }
    sim.clone().seed(0).seeds(100).run(|| f(false)).unwrap();
    // Off by default.
    Sim::new(PROMISE).seed(0).seeds(10).run(|| f(true)).unwrap();
    left
}

fn descriptors() -> Sim {
    Sim::new(PROMISE).no_descriptors_left(true)
}

fn messages() -> Sim {
    Sim::new(PROMISE).no_messages_left(true)
}

/// A server whose connections are never closed, because a goroutine waits for a peer that has gone.
#[test]
fn a_connection_that_nobody_closes_is_named() {
    let left = twins(&descriptors(), FailureKind::DescriptorsLeft, |leaks| {
        let _server = sim::host("server", [10, 0, 0, 1], move || {
            let listener = TcpListener::bind("0.0.0.0:80").unwrap();
            let (mut stream, _) = listener.accept().unwrap();
            if !leaks {
                stream.set_read_timeout(Some(SECOND)).unwrap();
            }
            let _ = stream.read(&mut [0]);
        });
        sim::settle();
        let client = sim::host("client", [10, 0, 0, 2], || {
            let _stream = TcpStream::connect("server:80").unwrap();
            sleep(SECOND);
        });
        // It loses its power before it has closed anything, and is not there again.
        sleep(SECOND / 2);
        client.crash();
    });
    let [stream, listener] = &left[..] else {
        panic!("{left:?}")
    };
    let (connection, listens) = match stream.starts_with("TCP connection") {
        true => (stream, listener),
        false => (listener, stream),
    };
    let begins = "TCP connection from 10.0.0.1:80 to 10.0.0.2:";
    assert!(connection.starts_with(begins), "{left:?}");
    assert!(
        connection.ends_with(" on host server, opened by goroutine 2"),
        "{left:?}"
    );
    assert_eq!(
        listens,
        "TCP listener at 0.0.0.0:80 on host server, opened by goroutine 2"
    );
}

#[test]
fn everything_that_was_forgotten_is_named() {
    fn done<T>(leaks: bool, value: T) {
        if leaks {
            std::mem::forget(value);
        }
    }
    let left = twins(&descriptors(), FailureKind::DescriptorsLeft, |leaks| {
        done(leaks, UdpSocket::bind("127.0.0.1:53").unwrap());
        done(leaks, UnixListener::bind("/socket").unwrap());
        done(leaks, UnixDatagram::unbound().unwrap());
        done(leaks, TcpListener::bind("127.0.0.1:80").unwrap());
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        done(leaks, writer);
        let mut file = File::create("/tmp/file").unwrap();
        file.write_all(b"x").unwrap();
        done(leaks, file);
        // One that leaves windlass, and is closed or not.
        done(
            leaks,
            std::net::UdpSocket::from(UdpSocket::bind("127.0.0.1:54").unwrap()),
        );
    });
    let on_main = " on host main, opened by goroutine 1";
    let expected = [
        "UDP socket at 127.0.0.1:53",
        "Unix listener /socket",
        "Unix datagram socket without a name",
        "TCP listener at 127.0.0.1:80",
        "writing end of a pipe",
        "UDP socket at 127.0.0.1:54",
        "file /tmp/file",
    ];
    assert_eq!(left, expected.map(|what| format!("{what}{on_main}")));
}

#[test]
fn what_is_closed_in_time_is_not_left() {
    let sim = descriptors().seed(0).seeds(50);
    sim.run(|| {
        // Later than the main goroutine ends.
        drop(windlass::spawn(|| {
            let _socket = UdpSocket::bind("127.0.0.1:53").unwrap();
            let _file = File::create("/tmp/a").unwrap();
            sleep(100 * SECOND);
        }));
        // The descriptors of a host that crashes are gone.
        let host = sim::host("host", [10, 0, 0, 1], || {
            let listener = TcpListener::bind("0.0.0.0:80").unwrap();
            let _file = File::create("/tmp/b").unwrap();
            let _ = listener.accept();
        });
        sleep(SECOND);
        host.crash();
        // A file that was given to std does not count.
        fs::write("/tmp/c", "x").unwrap();
        drop(std::fs::File::from(std::os::fd::OwnedFd::from(
            File::open("/tmp/c").unwrap(),
        )));
    })
    .unwrap();
}

#[test]
fn a_message_that_nobody_receives_is_named() {
    let line = line!() + 2;
    let left = twins(&messages(), FailureKind::MessagesLeft, |leaks| {
        let (sender, receiver) = bounded(4);
        (1..=3).for_each(|n| sender.send(n).unwrap());
        drop(sender);
        let consumer = windlass::spawn(move || {
            for n in receiver {
                // It stops at the wrong moment.
                if leaks && n == 2 {
                    break;
                }
            }
        });
        consumer.join().unwrap();
    });
    let begins = format!("channel made at {}:{line}:", file!());
    assert!(left[0].starts_with(&begins), "{left:?}");
    let ends = " by goroutine 1: 1 message dropped with the last receiver";
    assert!(left[0].ends_with(ends), "{left:?}");
}

#[test]
fn messages_of_forgotten_channels_count() {
    let line = line!() + 2;
    let left = twins(&messages(), FailureKind::MessagesLeft, |leaks| {
        let (sender, receiver) = unbounded();
        let (other, others) = mpsc::channel();
        (1..=3).for_each(|n| sender.send(n).unwrap());
        (1..=2).for_each(|n| other.send(n).unwrap());
        assert_eq!(receiver.recv(), Ok(1));
        if leaks {
            std::mem::forget((sender, receiver));
            std::mem::forget((other, others));
        } else {
            assert_eq!(receiver.try_iter().count(), 2);
            assert_eq!(others.try_iter().count(), 2);
        }
    });
    let made = |line: u32| format!("channel made at {}:{line}:", file!());
    assert!(left[0].starts_with(&made(line)), "{left:?}");
    assert!(
        left[0].ends_with(" by goroutine 1: 2 messages not received"),
        "{left:?}"
    );
    assert!(left[1].starts_with(&made(line + 1)), "{left:?}");
    assert_eq!(left.len(), 2);
}

/// A consumer that waits for something else for ever, and a queue that fills.
#[test]
fn messages_for_a_goroutine_that_waits_for_ever_count() {
    let left = twins(&messages(), FailureKind::MessagesLeft, |leaks| {
        let (sender, receiver) = unbounded();
        let lock = Arc::new(Mutex::new(()));
        let held = lock.lock().unwrap();
        let consumer = Arc::clone(&lock);
        drop(windlass::spawn(move || {
            drop(consumer.lock());
            receiver.iter().count()
        }));
        (0..5).for_each(|n| sender.send(n).unwrap());
        if leaks {
            std::mem::forget(held);
        }
    });
    assert!(left[0].ends_with(": 5 messages not received"), "{left:?}");
}

#[test]
fn messages_that_need_not_be_received_do_not_count() {
    messages()
        .seed(0)
        .seeds(50)
        .run(|| {
            let (sender, _receiver) = oneshot();
            let _ = sender.send(1);
            let (sender, _receiver) = windlass::channel::watch(0);
            let _ = sender.send(1);
            let _after = windlass::channel::after(SECOND);
            let mut set = windlass::task::JoinSet::new();
            set.spawn(|| 1);
            sim::settle();
            drop(set);
            // A host takes its messages with it.
            let host = sim::host("host", [10, 0, 0, 1], || {
                let (sender, _receiver) = unbounded();
                sender.send(1).unwrap();
                windlass::task::park();
            });
            sim::settle();
            host.crash();
            // Cancelled at the end: what its destructors send counts for nothing.
            struct Tells(windlass::channel::Sender<u32>);
            impl Drop for Tells {
                fn drop(&mut self) {
                    let _ = self.0.send(1);
                }
            }
            let (sender, receiver) = unbounded();
            drop(windlass::spawn(move || {
                let _receiver = receiver;
                windlass::task::park();
            }));
            drop(windlass::spawn(move || {
                let _tells = Tells(sender);
                windlass::task::park();
            }));
        })
        .unwrap();
}

/// The choices of `select!`, which reserve messages before they are there.
#[test]
fn a_select_receives_what_it_takes() {
    messages()
        .seed(0)
        .seeds(200)
        .run(|| {
            let (a, from_a) = bounded(1);
            let (b, from_b) = bounded(0);
            // The senders stay until all is received: a receive might find that one is gone.
            let senders = (
                windlass::spawn(move || {
                    (0..5).for_each(|n| a.send(n).unwrap());
                    a
                }),
                windlass::spawn(move || {
                    for n in 0..5 {
                        windlass::select! { send(b, n) -> sent => sent.unwrap() }
                    }
                    b
                }),
            );
            for _ in 0..10 {
                windlass::select! {
                    recv(from_a) -> n => assert!(n.is_ok()),
                    recv(from_b) -> n => assert!(n.is_ok()),
                }
            }
            drop((senders.0.join().unwrap(), senders.1.join().unwrap()));
        })
        .unwrap();
}

#[test]
fn goroutines_descriptors_and_messages_are_looked_for_in_this_order() {
    let leaves_all = || {
        let (sender, receiver) = unbounded();
        sender.send(1).unwrap();
        drop(windlass::spawn(move || {
            let _socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            let _receiver = receiver;
            windlass::task::park();
        }));
        sim::settle();
    };
    let both = descriptors().no_messages_left(true);
    let kind = |sim: &Sim| fails(sim, leaves_all).kind();
    assert_eq!(kind(&messages()), FailureKind::MessagesLeft);
    assert_eq!(kind(&both), FailureKind::DescriptorsLeft);
    let all = both.no_goroutines_left(true);
    assert_eq!(kind(&all), FailureKind::GoroutinesLeft);
}

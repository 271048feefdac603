//! Unix streams, listeners and datagrams, and descriptors sent through them.
#![allow(clippy::disallowed_methods, reason = "plain threads take part")]

use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use windlass::time::{Duration, Instant};

use crate::util::{
    Census, Pattern, child_case, child_passes_with_io, hang_guard, run, runtime, wait_until_refused,
};
use windlass::io::{PipeReader, PipeWriter, pipe};
use windlass::net::{UnixDatagram, UnixListener, UnixStream};
use windlass::{blocking, spawn};

/// A path for a socket that is removed when this is dropped.
struct Place(PathBuf);

impl Place {
    fn new() -> Place {
        static N: AtomicU32 = AtomicU32::new(0);
        let n = N.fetch_add(1, Ordering::SeqCst);
        let name = format!("windlass-{}-{n}.sock", std::process::id());
        Place(std::env::temp_dir().join(name))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Never the same twice: a process that another test has forked keeps a closed listener open until
/// it executes its program.
fn abstract_addr(what: &str) -> SocketAddr {
    static N: AtomicU32 = AtomicU32::new(0);
    let n = N.fetch_add(1, Ordering::SeqCst);
    let name = format!("windlass-{}-{what}-{n}", std::process::id());
    SocketAddr::from_abstract_name(name).unwrap()
}

#[test]
fn a_listener_on_a_path() {
    let _guard = hang_guard();
    let check = || {
        let place = Place::new();
        let listener = UnixListener::bind(&place.0).unwrap();
        assert_eq!(
            listener.local_addr().unwrap().as_pathname(),
            Some(place.0.as_path())
        );
        let path = place.0.clone();
        let client = std::thread::spawn(move || {
            let mut stream = UnixStream::connect(&path).unwrap();
            assert_eq!(
                stream.peer_addr().unwrap().as_pathname(),
                Some(path.as_path())
            );
            assert!(stream.local_addr().unwrap().is_unnamed());
            stream.write_all(b"ahoy").unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            let mut all = String::new();
            stream.read_to_string(&mut all).unwrap();
            all
        });
        let (mut stream, from) = listener.accept().unwrap();
        assert!(from.is_unnamed());
        let mut all = String::new();
        stream.read_to_string(&mut all).unwrap();
        assert_eq!(all, "ahoy");
        stream.write_all(b"aye").unwrap();
        drop(stream);
        assert_eq!(blocking(|| client.join()).unwrap(), "aye");
        let e = UnixListener::bind(&place.0).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::AddrInUse);
    };
    crate::util::on_thread_and_goroutine(2, check);
}

#[test]
fn abstract_names() {
    run(2, || {
        let addr = abstract_addr("abstract_names");
        let listener = UnixListener::bind_addr(&addr).unwrap();
        assert_eq!(
            listener.local_addr().unwrap().as_abstract_name(),
            addr.as_abstract_name()
        );
        let echo = spawn(move || {
            for stream in listener.incoming().take(20) {
                let mut stream = stream.unwrap();
                spawn(move || {
                    std::io::copy(&mut stream.try_clone().unwrap(), &mut stream).unwrap()
                });
            }
            assert_eq!((&listener).into_iter().flatten().take(1).count(), 1);
        });
        let clients: Vec<_> = (0..20_u32)
            .map(|i| {
                let addr = addr.clone();
                spawn(move || {
                    let mut stream = UnixStream::connect_addr(&addr).unwrap();
                    assert_eq!(
                        stream.peer_addr().unwrap().as_abstract_name(),
                        addr.as_abstract_name()
                    );
                    for j in 0..50 {
                        let sent = (i * 100 + j).to_le_bytes();
                        let mut got = [0; 4];
                        stream.write_all(&sent).unwrap();
                        stream.read_exact(&mut got).unwrap();
                        assert_eq!(got, sent);
                    }
                })
            })
            .collect();
        clients.into_iter().for_each(|c| c.join().unwrap());
        drop(UnixStream::connect_addr(&addr).unwrap());
        echo.join().unwrap();
        wait_until_refused(|| UnixStream::connect_addr(&addr));
        // A name may have any bytes, also zeros.
        let odd = SocketAddr::from_abstract_name(b"a\0b\xff").unwrap();
        let socket = UnixDatagram::bind_addr(&odd).unwrap();
        assert_eq!(
            socket.local_addr().unwrap().as_abstract_name(),
            Some(&b"a\0b\xff"[..])
        );
    });
}

#[test]
fn bad_paths() {
    run(1, || {
        let long = "x".repeat(200);
        for path in ["a\0b", long.as_str()] {
            for e in [
                UnixListener::bind(path).unwrap_err(),
                UnixStream::connect(path).unwrap_err(),
                UnixDatagram::bind(path).unwrap_err(),
            ] {
                assert_eq!(e.kind(), ErrorKind::InvalidInput, "{e}");
            }
        }
        let e = UnixStream::connect("no/such/socket").unwrap_err();
        assert_eq!(e.kind(), ErrorKind::NotFound);
        // The longest path that fits.
        let place = Place::new();
        let dir = place.0.parent().unwrap().to_owned();
        let room = 107 - dir.as_os_str().len() - 1;
        let longest = Place(dir.join("l".repeat(room)));
        let listener = UnixListener::bind(&longest.0).unwrap();
        assert_eq!(
            listener.local_addr().unwrap().as_pathname(),
            Some(longest.0.as_path())
        );
    });
}

#[test]
fn much_data_through_a_pair() {
    const N: usize = 16 << 20;
    run(2, || {
        let pattern = Pattern::new();
        let (mut a, mut b) = UnixStream::pair().unwrap();
        windlass::scope(|s| {
            s.spawn(|| {
                pattern.write(&mut a, 0, N, 300_000).unwrap();
                a.shutdown(Shutdown::Write).unwrap();
            });
            assert_eq!(pattern.check(&mut b, 70_000).unwrap(), N);
        });
        b.write_all(b"ab").unwrap();
        let (mut x, mut y) = ([0], [0]);
        let n = a
            .read_vectored(&mut [IoSliceMut::new(&mut x), IoSliceMut::new(&mut y)])
            .unwrap();
        assert_eq!((n, x, y), (2, *b"a", *b"b"));
        assert_eq!(
            b.write_vectored(&[IoSlice::new(b"c"), IoSlice::new(b"de")])
                .unwrap(),
            3
        );
        let mut got = [0; 3];
        a.read_exact(&mut got).unwrap();
        assert_eq!(got, *b"cde");
    });
}

#[test]
fn a_full_listener_queue_is_waited_for() {
    let _guard = hang_guard();
    let check = || {
        let addr = abstract_addr("full");
        let listener = UnixListener::bind_addr(&addr).unwrap();
        socket2::SockRef::from(&listener).listen(1).unwrap();
        let clients: Vec<_> = (0..8)
            .map(|_| {
                let addr = addr.clone();
                std::thread::spawn(move || {
                    let mut all = Vec::new();
                    UnixStream::connect_addr(&addr)
                        .unwrap()
                        .read_to_end(&mut all)
                        .unwrap();
                    all
                })
            })
            .collect();
        for _ in 0..8 {
            std::thread::sleep(Duration::from_millis(1));
            listener.accept().unwrap().0.write_all(&[5]).unwrap();
        }
        for client in clients {
            assert_eq!(blocking(|| client.join()).unwrap(), [5]);
        }
    };
    crate::util::on_thread_and_goroutine(2, check);
    // And with clients on goroutines.
    runtime(2).run(|| {
        let addr = abstract_addr("full-too");
        let listener = UnixListener::bind_addr(&addr).unwrap();
        socket2::SockRef::from(&listener).listen(1).unwrap();
        let clients: Vec<_> = (0..8)
            .map(|_| {
                let addr = addr.clone();
                spawn(move || {
                    UnixStream::connect_addr(&addr)
                        .unwrap()
                        .read(&mut [0])
                        .unwrap()
                })
            })
            .collect();
        for _ in 0..8 {
            windlass::sleep(Duration::from_millis(1));
            listener.accept().unwrap().0.write_all(&[5]).unwrap();
        }
        for client in clients {
            assert_eq!(client.join().unwrap(), 1);
        }
    });
}

#[test]
fn datagrams() {
    let _guard = hang_guard();
    let check = || {
        let (here, there) = (Place::new(), Place::new());
        let a = UnixDatagram::bind(&here.0).unwrap();
        let b = UnixDatagram::bind(&there.0).unwrap();
        a.send_to(b"by path", &there.0).unwrap();
        let mut buf = [0; 20];
        let (n, from) = b.recv_from(&mut buf).unwrap();
        assert_eq!(
            (&buf[..n], from.as_pathname()),
            (&b"by path"[..], Some(here.0.as_path()))
        );
        a.send_to_addr(b"by address", &b.local_addr().unwrap())
            .unwrap();
        assert_eq!(b.recv(&mut buf).unwrap(), 10);
        let c = UnixDatagram::unbound().unwrap();
        assert_eq!(
            c.send(b"to whom?").unwrap_err().kind(),
            ErrorKind::NotConnected
        );
        c.connect(&there.0).unwrap();
        c.send(b"").unwrap();
        let (n, from) = b.recv_from(&mut buf).unwrap();
        assert!(n == 0 && from.is_unnamed());
        c.connect_addr(&a.local_addr().unwrap()).unwrap();
        assert_eq!(c.peer_addr().unwrap().as_pathname(), Some(here.0.as_path()));
        c.send(b"hello").unwrap();
        assert_eq!(a.recv(&mut [0; 2]).unwrap(), 2);
        drop(b);
        wait_until_refused(|| a.send_to(b"x", &there.0));
        a.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        assert_eq!(a.recv(&mut buf).unwrap_err().kind(), ErrorKind::WouldBlock);
    };
    crate::util::on_thread_and_goroutine(2, check);
}

#[test]
fn a_datagram_sender_waits_for_room() {
    run(2, || {
        let (a, b) = UnixDatagram::pair().unwrap();
        let sends = spawn(move || {
            for i in 0..2000_u32 {
                a.send(&i.to_le_bytes()).unwrap();
            }
            a.set_write_timeout(Some(Duration::from_millis(10)))
                .unwrap();
            // Nobody receives any more.
            loop {
                if let Err(e) = a.send(&[0; 1000]) {
                    return e.kind();
                }
            }
        });
        for i in 0..2000_u32 {
            let mut buf = [0; 8];
            assert_eq!(b.recv(&mut buf).unwrap(), 4);
            assert_eq!(buf[..4], i.to_le_bytes());
        }
        assert_eq!(sends.join().unwrap(), ErrorKind::WouldBlock);
        b.shutdown(Shutdown::Both).unwrap();
    });
}

type Send<'a> = &'a (dyn Fn(&UnixDatagram, &[u8], &Path) -> std::io::Result<usize> + Sync);

/// A queue takes 10 packets, so most sends here wait for room.
#[test]
fn datagrams_of_senders_that_wait_arrive_whole_and_in_order() {
    const SENDERS: u8 = 8;
    const EACH: u8 = 40;
    let as_stream =
        |socket: &UnixDatagram| UnixStream::from(OwnedFd::from(socket.try_clone().unwrap()));
    let ways: [(&str, bool, Send<'_>); 6] = [
        ("send", true, &|socket, bytes, _| socket.send(bytes)),
        ("send_to", false, &|socket, bytes, to| {
            socket.send_to(bytes, to)
        }),
        ("send_to while connected", true, &|socket, bytes, to| {
            socket.send_to(bytes, to)
        }),
        ("send_with_fds", true, &|socket, bytes, _| {
            socket.send_with_fds(bytes, &[std::io::stderr().as_fd()])
        }),
        ("a stream's write", true, &|socket, bytes, _| {
            as_stream(socket).write(bytes)
        }),
        ("a stream's write_vectored", true, &|socket, bytes, _| {
            let (a, b) = bytes.split_at(1);
            as_stream(socket).write_vectored(&[IoSlice::new(a), IoSlice::new(b)])
        }),
    ];
    for (way, is_connected, send) in ways {
        run(2, || {
            let place = Place::new();
            let receiver = UnixDatagram::bind(&place.0).unwrap();
            windlass::scope(|s| {
                for i in 0..SENDERS {
                    let place = &place;
                    s.spawn(move || {
                        let socket = UnixDatagram::unbound().unwrap();
                        if is_connected {
                            socket.connect(&place.0).unwrap();
                        }
                        for j in 0..EACH {
                            let sent = send(&socket, &[i, j, 7], &place.0);
                            assert_eq!(sent.unwrap(), 3, "{way}, sender {i}, packet {j}");
                        }
                    });
                }
                windlass::sleep(Duration::from_millis(5));
                let mut seen = [0; SENDERS as usize];
                for _ in 0..u32::from(SENDERS) * u32::from(EACH) {
                    let mut buf = [0; 8];
                    let (n, fds) = receiver.recv_with_fds(&mut buf).unwrap();
                    let next = &mut seen[usize::from(buf[0])];
                    assert_eq!((n, &buf[1..3]), (3, &[*next, 7][..]), "{way}");
                    assert_eq!(fds.len(), usize::from(way == "send_with_fds"));
                    *next += 1;
                }
            });
        });
    }
}

/// A sender to a receiver whose queue is full.
struct Waits {
    socket: UnixDatagram,
    /// `None` if it is connected.
    to: Option<PathBuf>,
}

impl Waits {
    fn new(place: &Place, is_connected: bool) -> Waits {
        let socket = UnixDatagram::unbound().unwrap();
        socket.set_nonblocking(true).unwrap();
        while socket.send_to(b"!", &place.0).is_ok() {}
        socket.set_nonblocking(false).unwrap();
        let to = match is_connected {
            true => socket.connect(&place.0).map(|()| None).unwrap(),
            false => Some(place.0.clone()),
        };
        Waits { socket, to }
    }

    fn send(&self) -> std::io::Result<usize> {
        match &self.to {
            None => self.socket.send(b"!"),
            Some(to) => self.socket.send_to(b"!", to),
        }
    }

    fn error(&self) -> ErrorKind {
        self.send().unwrap_err().kind()
    }
}

#[test]
fn the_wait_of_a_datagram_sender_ends() {
    let _guard = hang_guard();
    let short = Duration::from_millis(20);
    for is_connected in [true, false] {
        let (place, census) = (Place::new(), Census::default());
        let receiver = UnixDatagram::bind(&place.0).unwrap();
        let new = || Waits::new(&place, is_connected);
        runtime(2).run(|| {
            let waits = new();
            waits.socket.set_write_timeout(Some(short)).unwrap();
            assert_eq!(waits.error(), ErrorKind::WouldBlock);
            waits.socket.set_write_timeout(None).unwrap();
            assert!(windlass::time::timeout(short, || waits.send()).is_err());
            windlass::scope(|s| {
                let sends = s.spawn(|| waits.error());
                windlass::sleep(short);
                waits.socket.set_write_deadline(Some(Instant::now()));
                assert_eq!(sends.join().unwrap(), ErrorKind::WouldBlock);
            });
            let (waits, member) = (new(), census.member());
            spawn(move || {
                let _member = member;
                let _ = waits.send();
                unreachable!("the run ends first");
            });
            windlass::sleep(short);
        });
        census.assert_all_dropped(1);
        run(2, || {
            let waits = new();
            let sends = spawn(move || waits.error());
            windlass::sleep(short);
            drop(receiver);
            assert_eq!(sends.join().unwrap(), ErrorKind::ConnectionRefused);
        });
    }
}

/// The CPU time of this process so far.
#[allow(unsafe_code)]
fn cpu_time() -> Duration {
    let mut used = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the structure is valid for writes.
    let r = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut used) };
    assert_eq!(r, 0);
    Duration::new(used.tv_sec.cast_unsigned(), used.tv_nsec as u32)
}

/// Checks that `n` goroutines which wait need neither threads nor time.
fn wait_at_no_cost(n: usize) {
    windlass::sleep(Duration::from_millis(100));
    let before = cpu_time();
    windlass::sleep(Duration::from_secs(1));
    let used = cpu_time() - before;
    assert!(used < Duration::from_millis(300), "{used:?}");
    let n_threads = crate::util::n_threads();
    assert!(n_threads < n / 4, "{n_threads} threads");
}

#[test]
fn datagram_senders_that_wait_cost_nothing() {
    const SENDERS: usize = 200;
    if child_case().is_none() {
        crate::util::child_passes("datagram_senders_that_wait_cost_nothing", "");
        return;
    }
    run(2, || {
        let place = Place::new();
        let receiver = UnixDatagram::bind(&place.0).unwrap();
        for i in 0..SENDERS {
            let waits = Waits::new(&place, i % 2 == 0);
            spawn(move || drop(waits.send()));
        }
        wait_at_no_cost(SENDERS);
        drop(receiver);
    });
}

#[test]
fn connects_that_wait_cost_nothing() {
    const CLIENTS: usize = 100;
    if child_case().is_none() {
        crate::util::child_passes("connects_that_wait_cost_nothing", "");
        return;
    }
    run(2, || {
        let addr = abstract_addr("crowded");
        let listener = UnixListener::bind_addr(&addr).unwrap();
        socket2::SockRef::from(&listener).listen(1).unwrap();
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                let addr = addr.clone();
                spawn(move || UnixStream::connect_addr(&addr).unwrap())
            })
            .collect();
        wait_at_no_cost(CLIENTS);
        for _ in 0..CLIENTS {
            listener.accept().unwrap();
        }
        for client in clients {
            client.join().unwrap();
        }
    });
}

/// With reading shut down, every receive of `std` returns 0 after the packets that came before.
/// So it is on a plain thread, over io_uring and over epoll.
#[test]
fn a_datagram_socket_that_is_shut_for_reading_receives_nothing() {
    fn check() {
        let (a, b) = UnixDatagram::pair().unwrap();
        a.send(b"before").unwrap();
        b.shutdown(Shutdown::Read).unwrap();
        let mut buf = [0; 8];
        assert_eq!(b.recv(&mut buf).unwrap(), 6);
        assert_eq!(b.recv(&mut buf).unwrap(), 0);
        b.set_read_timeout(Some(Duration::from_secs(1000))).unwrap();
        assert_eq!(b.recv(&mut buf).unwrap(), 0);
        let (n, from) = b.recv_from(&mut buf).unwrap();
        assert!(n == 0 && from.is_unnamed());
        let (n, fds) = b.recv_with_fds(&mut buf).unwrap();
        assert!(n == 0 && fds.is_empty());
        b.set_nonblocking(true).unwrap();
        let e = b.recv(&mut buf).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::WouldBlock);
        let std = std::os::unix::net::UnixDatagram::from(OwnedFd::from(b));
        std.set_nonblocking(false).unwrap();
        assert_eq!(std.recv(&mut buf).unwrap(), 0);
        assert!(std.recv_from(&mut buf).unwrap().1.is_unnamed());
    }
    fn check_who_waits(spawn: impl FnOnce(UnixDatagram) -> Box<dyn FnOnce() -> usize>) {
        let (_a, b) = UnixDatagram::pair().unwrap();
        let ends = spawn(b.try_clone().unwrap());
        windlass::sleep(Duration::from_millis(2));
        b.shutdown(Shutdown::Read).unwrap();
        assert_eq!(ends(), 0);
    }
    let name = "a_datagram_socket_that_is_shut_for_reading_receives_nothing";
    let Some(case) = child_case() else {
        child_passes_with_io(name, "thread", None);
        child_passes_with_io(name, "goroutine", None);
        child_passes_with_io(name, "goroutine", Some("epoll"));
        return;
    };
    if case == "thread" {
        check();
        return check_who_waits(|b| {
            let thread = std::thread::spawn(move || b.recv(&mut [0]).unwrap());
            Box::new(|| thread.join().unwrap())
        });
    }
    run(1, || {
        check();
        check_who_waits(|b| {
            let receives = spawn(move || b.recv(&mut [0]).unwrap());
            Box::new(|| receives.join().unwrap())
        });
    });
}

fn is_cloexec(fd: BorrowedFd<'_>) -> bool {
    // SAFETY: takes plain numbers.
    #[allow(unsafe_code)]
    let flags = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFD) };
    flags & libc::FD_CLOEXEC != 0
}

#[test]
fn descriptors_travel() {
    let _guard = hang_guard();
    let check = || {
        let (a, b) = UnixStream::pair().unwrap();
        let (reader, mut writer) = pipe().unwrap();
        let n = a
            .send_with_fds(b"xyz", &[reader.as_fd(), writer.as_fd()])
            .unwrap();
        assert_eq!(n, 3);
        a.send_with_fds(b"none", &[]).unwrap();
        drop(reader);
        writer.write_all(b"kept open").unwrap();
        drop(writer);
        let mut buf = [0; 3];
        let (n, fds) = b.recv_with_fds(&mut buf).unwrap();
        assert_eq!((n, buf, fds.len()), (3, *b"xyz", 2));
        assert!(fds.iter().all(|fd| is_cloexec(fd.as_fd())));
        let mut fds = fds.into_iter();
        let mut reader = PipeReader::from(fds.next().unwrap());
        drop(PipeWriter::from(fds.next().unwrap()));
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "kept open");
        let (n, fds) = b.recv_with_fds(&mut [0; 10]).unwrap();
        assert_eq!((n, fds.len()), (4, 0));
        drop(a);
        let (n, fds) = b.recv_with_fds(&mut [0; 10]).unwrap();
        assert_eq!((n, fds.len()), (0, 0));
    };
    crate::util::on_thread_and_goroutine(2, check);
}

/// A receiver may ask the kernel for a pidfd of each sender, which is no descriptor that was sent.
#[test]
fn descriptors_of_senders_are_closed() {
    if child_case().is_none() {
        crate::util::child_passes("descriptors_of_senders_are_closed", "");
        return;
    }
    run(1, || {
        let (a, b) = UnixDatagram::pair().unwrap();
        let (c, d) = UnixStream::pair().unwrap();
        for fd in [b.as_fd(), d.as_fd()] {
            if !set_option(fd, libc::SO_PASSPIDFD) {
                eprintln!("skipped: SO_PASSPIDFD needs Linux 6.5");
                return;
            }
        }
        let before = crate::util::open_fds();
        for _ in 0..10 {
            for n in 0..2 {
                let sent = &[a.as_fd()][..n];
                a.send_with_fds(b"!", sent).unwrap();
                assert_eq!(b.recv_with_fds(&mut [0]).unwrap().1.len(), n);
                c.send_with_fds(b"!", sent).unwrap();
                assert_eq!(d.recv_with_fds(&mut [0]).unwrap().1.len(), n);
            }
        }
        assert_eq!(crate::util::open_fds(), before);
    });
}

/// Switches a socket option on; `false` if the kernel does not have it.
#[allow(unsafe_code)]
fn set_option(fd: BorrowedFd<'_>, name: i32) -> bool {
    let on = 1_i32;
    let (value, len) = ((&raw const on).cast(), size_of_val(&on) as libc::socklen_t);
    // SAFETY: the value is an integer, as `len` says.
    unsafe { libc::setsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, name, value, len) == 0 }
}

#[test]
fn descriptors_wait_with_the_receiver() {
    run(2, || {
        let (a, b) = UnixStream::pair().unwrap();
        let receives = spawn(move || b.recv_with_fds(&mut [0; 4]).unwrap());
        windlass::sleep(Duration::from_millis(2));
        let (reader, _writer) = pipe().unwrap();
        a.send_with_fds(b"!", &[reader.as_fd()]).unwrap();
        let (n, fds) = receives.join().unwrap();
        assert_eq!((n, fds.len()), (1, 1));
        // In packets, one of them empty.
        let (a, b) = UnixDatagram::pair().unwrap();
        a.send_with_fds(&[], &[reader.as_fd(), reader.as_fd()])
            .unwrap();
        a.send_with_fds(b"plain", &[]).unwrap();
        let (n, fds) = b.recv_with_fds(&mut [0; 4]).unwrap();
        assert_eq!((n, fds.len()), (0, 2));
        let (n, fds) = b.recv_with_fds(&mut [0; 4]).unwrap();
        assert_eq!((n, fds.len()), (4, 0));
    });
}

#[test]
fn too_many_descriptors_and_none_to_go_with() {
    run(1, || {
        let (a, b) = UnixStream::pair().unwrap();
        let file = std::fs::File::open("/dev/null").unwrap();
        let most = vec![file.as_fd(); 253];
        assert_eq!(a.send_with_fds(b"1", &most).unwrap(), 1);
        let (n, fds) = b.recv_with_fds(&mut [0; 4]).unwrap();
        assert_eq!((n, fds.len()), (1, 253));
        let e = a.send_with_fds(b"1", &vec![file.as_fd(); 254]).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::InvalidInput);
        let e = a.send_with_fds(b"", &[file.as_fd()]).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::InvalidInput);
        assert_eq!(a.send_with_fds(b"", &[]).unwrap(), 0);
        assert_eq!(b.recv_with_fds(&mut []).unwrap().0, 0);
    });
}

#[test]
fn a_listener_is_shut_down_under_an_accept() {
    run(2, || {
        let listener = UnixListener::bind_addr(&abstract_addr("shutdown")).unwrap();
        let clone = listener.try_clone().unwrap();
        let accepts = spawn(move || clone.accept().unwrap_err().kind());
        windlass::sleep(Duration::from_millis(2));
        listener.shutdown().unwrap();
        assert_eq!(accepts.join().unwrap(), ErrorKind::InvalidInput);
        assert_eq!(
            listener.accept().unwrap_err().kind(),
            ErrorKind::InvalidInput
        );
    });
}

#[test]
fn settings_and_conversions() {
    run(1, || {
        let (a, b) = UnixStream::pair().unwrap();
        a.set_read_timeout(Some(Duration::from_millis(3))).unwrap();
        assert_eq!(a.read_timeout().unwrap(), Some(Duration::from_millis(3)));
        let mut clone = a.try_clone().unwrap();
        assert_eq!(
            clone.read(&mut [0]).unwrap_err().kind(),
            ErrorKind::WouldBlock
        );
        a.set_read_timeout(None).unwrap();
        a.set_read_deadline(Some(Instant::now()));
        assert_eq!(
            clone.read(&mut [0]).unwrap_err().kind(),
            ErrorKind::WouldBlock
        );
        assert!(a.take_error().unwrap().is_none());
        assert!(a.peer_addr().unwrap().is_unnamed());
        let fd = b.as_raw_fd();
        assert_eq!(
            format!("{b:?}"),
            format!("UnixStream {{ fd: {fd}, local: (unnamed), peer: (unnamed) }}")
        );
        let std: std::os::unix::net::UnixStream = b.into();
        let mut b = UnixStream::from(OwnedFd::from(std));
        b.set_nonblocking(true).unwrap();
        assert_eq!(b.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
        let (c, d) = UnixDatagram::pair().unwrap();
        let c: std::os::unix::net::UnixDatagram = c.into();
        let c = UnixDatagram::from(c);
        c.set_nonblocking(true).unwrap();
        assert_eq!(c.recv(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
        drop(d);
        let place = Place::new();
        let listener = UnixListener::bind(&place.0).unwrap();
        let text = format!("{listener:?}");
        assert!(
            text.starts_with("UnixListener { fd: ") && text.contains("local"),
            "{text}"
        );
        listener.set_deadline(Some(Instant::now()));
        assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    });
}

#[cfg(feature = "sim")]
crate::inside::tests! {
    a_listener_on_a_path: "it uses threads",
    abstract_names / 5,
    bad_paths,
    much_data_through_a_pair: "it asks that small reads are whole",
    a_full_listener_queue_is_waited_for: "it uses threads",
    datagrams,
    a_datagram_sender_waits_for_room,
    datagrams_of_senders_that_wait_arrive_whole_and_in_order: "it converts sockets into others",
    the_wait_of_a_datagram_sender_ends: "it has runtimes of its own",
    datagram_senders_that_wait_cost_nothing: "it has a process of its own",
    connects_that_wait_cost_nothing: "it has a process of its own",
    a_datagram_socket_that_is_shut_for_reading_receives_nothing: "it has a process of its own",
    descriptors_travel: "it asks that small reads are whole",
    descriptors_of_senders_are_closed: "it has a process of its own",
    descriptors_wait_with_the_receiver,
    too_many_descriptors_and_none_to_go_with,
    a_listener_is_shut_down_under_an_accept,
    settings_and_conversions,
}

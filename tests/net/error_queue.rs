//! Sockets that show as ready, while every attempt finds nothing: an entry in the error queue is shown until
//! the program reads it.
#![allow(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "plain threads take part")]

use std::io::{ErrorKind, IoSliceMut, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use windlass::time::{Duration, Instant};

use crate::both::Kind;
use crate::util::{
    NOBODY, child_case, child_passes_with_io, hang_guard, has_io_uring, on_thread_and_goroutine,
    pair, process_cpu, run, runtime, set_nofile_limit, wait_until,
};
use windlass::context::Context;
use windlass::fs::File;
use windlass::io::{self, Async, pipe};
use windlass::net::{TcpStream, UdpSocket};
use windlass::spawn;
use windlass::sync::Barrier;

const LIMIT: Duration = Duration::from_millis(200);

fn shows(fd: &impl AsRawFd, event: i16) -> bool {
    let mut pollfd = libc::pollfd {
        fd: fd.as_raw_fd(),
        events: event,
        revents: 0,
    };
    // SAFETY: the array of one is valid during the call.
    assert!(unsafe { libc::poll(&raw mut pollfd, 1, 0) } >= 0);
    pollfd.revents & event != 0
}

fn set(socket: &impl AsRawFd, level: i32, option: i32, value: u32) {
    let len = size_of_val(&value) as u32;
    // SAFETY: the option is a number of this length.
    let r = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            len,
        )
    };
    assert_eq!(r, 0);
}

/// Puts an entry into the error queue of a stream: the time at which some bytes were sent.
fn fill_error_queue(mut stream: &TcpStream) {
    let stamps = libc::SOF_TIMESTAMPING_TX_SOFTWARE | libc::SOF_TIMESTAMPING_SOFTWARE;
    set(stream, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, stamps);
    stream.write_all(b"stamped").unwrap();
    wait_until(|| shows(stream, libc::POLLERR));
}

/// A stream with an entry in its error queue, and its peer.
fn stamped() -> (TcpStream, TcpStream) {
    let (stream, peer) = pair();
    fill_error_queue(&stream);
    (stream, peer)
}

fn refused() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    set(&socket, libc::SOL_IP, libc::IP_RECVERR, 1);
    wait_until(|| {
        // More than once: the kernel reports a limited number of refusals a second.
        let _ = socket.send_to(b"nobody", NOBODY);
        std::thread::sleep(Duration::from_millis(1));
        shows(&socket, libc::POLLERR)
    });
    // The error itself is reported once.
    assert!(socket.take_error().unwrap().is_some());
    socket
}

fn in_time<T>(f: impl FnOnce() -> T) -> T {
    Context::background().with_timeout(LIMIT).run(f)
}

/// Fills what a stream takes, so that a write waits. The first probes of a full receiver move some bytes.
fn full(stream: &TcpStream) {
    let socket = socket2::SockRef::from(stream);
    let send = || socket.send_with_flags(&[0; 60_000], libc::MSG_DONTWAIT);
    while send().is_ok() {
        while send().is_ok() {}
        windlass::sleep(Duration::from_millis(500));
    }
}

/// A stream to copy from, from which a copy gets 40,000 bytes, and its peer.
fn source() -> (TcpStream, TcpStream) {
    let (source, mut peer) = stamped();
    peer.write_all(&[1; 40_000]).unwrap();
    (source, peer)
}

/// A stream that takes no more, and whose peer has sent everything: `io_uring` says that it is ready.
fn half_closed() -> (TcpStream, TcpStream) {
    let (stream, peer) = pair();
    peer.shutdown(Shutdown::Write).unwrap();
    full(&stream);
    wait_until(|| shows(&stream, libc::POLLRDHUP));
    (stream, peer)
}

type Call = Box<dyn FnOnce() -> io::Result<()> + Send>;

/// A name, and how to set the call up.
type Wait = (&'static str, fn() -> Call);

/// A call that is to wait while `keep` lives.
fn call<K: Send + 'static>(
    keep: K,
    call: impl FnOnce() -> io::Result<()> + Send + 'static,
) -> Call {
    Box::new(move || {
        let _keep = keep;
        call()
    })
}

/// Each call waits for [`LIMIT`], and ends with an error.
const WAITS: &[Wait] = &[
    ("read", || {
        let (stream, peer) = stamped();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        call(peer, move || (&stream).read(&mut [0; 8]).map(drop))
    }),
    ("read_vectored, deadline", || {
        let (stream, peer) = stamped();
        call(peer, move || {
            stream.set_read_deadline(Some(Instant::now() + LIMIT));
            let (mut a, mut b) = ([0; 4], [0; 4]);
            let mut bufs = [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)];
            (&stream).read_vectored(&mut bufs).map(drop)
        })
    }),
    ("recv_owned", || {
        let (stream, peer) = stamped();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        call(peer, move || stream.recv_owned().map(drop))
    }),
    ("recv_owned, deadline", || {
        let (stream, peer) = stamped();
        call(peer, move || {
            stream.set_read_deadline(Some(Instant::now() + LIMIT));
            stream.recv_owned().map(drop)
        })
    }),
    ("write", || {
        let (stream, peer) = stamped();
        full(&stream);
        stream.set_write_timeout(Some(LIMIT)).unwrap();
        call(peer, move || (&stream).write(&[0; 60_000]).map(drop))
    }),
    ("recv_from", || {
        let socket = refused();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        call((), move || socket.recv_from(&mut [0; 8]).map(drop))
    }),
    ("a file's read, deadline", || {
        let (stream, peer) = stamped();
        let file = File::from(OwnedFd::from(stream));
        call(peer, move || {
            file.set_read_deadline(Some(Instant::now() + LIMIT));
            (&file).read(&mut [0; 8]).map(drop)
        })
    }),
    ("read_with, context", || {
        let (stream, peer) = stamped();
        let stream = Async::new(std::net::TcpStream::from(stream)).unwrap();
        call(peer, move || {
            let n_attempts = AtomicU32::new(0);
            let read = in_time(|| {
                stream.read_with(|mut stream| {
                    n_attempts.fetch_add(1, Ordering::Relaxed);
                    stream.read(&mut [0; 8])
                })
            });
            let n_attempts = n_attempts.into_inner();
            assert!(n_attempts < 10, "{n_attempts} attempts");
            read.map(drop)
        })
    }),
    ("copy", || {
        let ((mut from, peer), (mut to, sink)) = (source(), pair());
        from.set_read_timeout(Some(LIMIT)).unwrap();
        call((peer, sink), move || io::copy(&mut from, &mut to).map(drop))
    }),
    ("copy, deadline", || {
        let ((mut from, peer), (mut to, sink)) = (source(), pair());
        call((peer, sink), move || {
            from.set_read_deadline(Some(Instant::now() + LIMIT));
            io::copy(&mut from, &mut to).map(drop)
        })
    }),
    ("copy to a pipe, context", || {
        let ((mut from, peer), (reader, mut writer)) = (source(), pipe().unwrap());
        call((peer, reader), move || {
            in_time(|| io::copy(&mut from, &mut writer)).map(drop)
        })
    }),
    ("copy of urgent data", || {
        let ((peer, mut from), (mut to, sink)) = (pair(), pair());
        (&peer).write_all(&[1; 40_000]).unwrap();
        let urgent = socket2::SockRef::from(&peer).send_out_of_band(b"!");
        assert_eq!(urgent.unwrap(), 1);
        from.set_read_timeout(Some(LIMIT)).unwrap();
        call((peer, sink), move || io::copy(&mut from, &mut to).map(drop))
    }),
    ("wait_writable, half closed", || {
        let (stream, peer) = half_closed();
        call(peer, move || io::wait_writable_timeout(&stream, LIMIT))
    }),
    ("write_with, half closed, context", || {
        let (stream, peer) = half_closed();
        let stream = Async::new(std::net::TcpStream::from(stream)).unwrap();
        call(peer, move || {
            in_time(|| (&stream).write(&[0; 60_000])).map(drop)
        })
    }),
    ("copy, half closed", || {
        let ((mut from, peer), (mut to, sink)) = (source(), half_closed());
        from.set_read_timeout(Some(LIMIT)).unwrap();
        to.set_write_timeout(Some(LIMIT)).unwrap();
        call((peer, sink), move || io::copy(&mut from, &mut to).map(drop))
    }),
    ("copy to a full socket", || {
        let ((mut from, peer), (mut to, sink)) = (source(), stamped());
        from.set_read_timeout(Some(LIMIT)).unwrap();
        full(&to);
        to.set_write_timeout(Some(LIMIT)).unwrap();
        call((peer, sink), move || io::copy(&mut from, &mut to).map(drop))
    }),
    ("copy from a pipe to a full socket, context", || {
        let ((mut reader, mut writer), (mut to, sink)) = (pipe().unwrap(), stamped());
        writer.write_all(&[1; 40_000]).unwrap();
        full(&to);
        to.set_write_timeout(Some(LIMIT)).unwrap();
        call((writer, sink), move || {
            in_time(|| io::copy(&mut reader, &mut to)).map(drop)
        })
    }),
];

fn ends_in_time(name: &str, call: Call) {
    let begin = Instant::now();
    let error = call().expect_err(name);
    let waited = begin.elapsed();
    let is_late = [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind());
    assert!(is_late, "{name}: {error:?}");
    assert!(waited >= LIMIT, "{name}: ended after {waited:?}");
}

/// Makes all calls at once. Gives the CPU time of the process while they wait.
fn cpu_of(waits: &'static [Wait], kind: Kind) -> Duration {
    let are_set_up = Arc::new(Barrier::new(waits.len() + 1));
    let all = waits.iter().map(|&(name, set_up)| {
        let are_set_up = Arc::clone(&are_set_up);
        kind.spawn(move || {
            let call = set_up();
            are_set_up.wait();
            ends_in_time(name, call);
        })
    });
    let all: Vec<_> = all.collect();
    are_set_up.wait();
    let before = process_cpu();
    all.into_iter().for_each(|one| one.join());
    process_cpu() - before
}

/// A wait that spins uses its whole time.
fn end_in_time_without_spinning(waits: &'static [Wait], kind: Kind) {
    let used = cpu_of(waits, kind);
    if used > LIMIT / 2 {
        let alone = waits.iter().map(|wait| {
            let used = cpu_of(std::slice::from_ref(wait), kind);
            (wait.0, used)
        });
        let alone: Vec<_> = alone.collect();
        panic!("{used:?} of CPU in {LIMIT:?}, alone {alone:#?}");
    }
}

/// Runs `check` with goroutines over both pollers and with plain threads, in processes of its own.
#[track_caller]
fn in_children(name: &str, check: fn(Kind)) {
    match child_case().as_deref() {
        Some("goroutine") => run(2, || check(Kind::Goroutines)),
        Some(_) => check(Kind::Threads),
        None => {
            if has_io_uring() {
                child_passes_with_io(name, "goroutine", None);
            }
            child_passes_with_io(name, "goroutine", Some("epoll"));
            child_passes_with_io(name, "thread", None);
        }
    }
}

#[test]
fn waits_end_in_time_and_do_not_spin() {
    in_children("waits_end_in_time_and_do_not_spin", |kind| {
        end_in_time_without_spinning(WAITS, kind);
    });
}

/// Nor where no descriptor is left to watch for changes with.
#[test]
fn waits_do_not_spin_without_descriptors() {
    in_children("waits_do_not_spin_without_descriptors", |_| {
        let (stream, _peer) = stamped();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let (other, _other_peer) = stamped();
        let wait = Async::new(std::net::TcpStream::from(other)).unwrap();
        let mut taken = Vec::new();
        set_nofile_limit(200);
        while let Ok(one) = wait.get_ref().try_clone() {
            taken.push(one);
        }
        let (used, begin) = (process_cpu(), Instant::now());
        let read = in_time(|| wait.read_with(|mut stream| stream.read(&mut [0; 8])));
        let owned = stream.recv_owned().unwrap_err();
        let (used, waited) = (process_cpu() - used, begin.elapsed());
        assert_eq!(owned.kind(), ErrorKind::WouldBlock);
        assert_eq!(read.unwrap_err().kind(), ErrorKind::TimedOut);
        assert!(used < waited / 4, "{used:?} of CPU in {waited:?}");
    });
}

#[test]
fn both_directions_of_a_copy_end_in_time() {
    const WAITS: &[Wait] = &[("both directions", || {
        let ((a, client), (b, server)) = (source(), stamped());
        b.set_read_timeout(Some(LIMIT)).unwrap();
        call((client, server), move || {
            io::copy_bidirectional(&a, &b).map(drop)
        })
    })];
    let name = "both_directions_of_a_copy_end_in_time";
    match child_case() {
        Some(_) => run(2, || end_in_time_without_spinning(WAITS, Kind::Goroutines)),
        None => {
            child_passes_with_io(name, "", None);
            child_passes_with_io(name, "", Some("epoll"));
        }
    }
}

/// Data that comes is received while the error queue stays as it is, again and again.
#[test]
fn data_is_received_beside_an_error_queue() {
    let _guard = hang_guard();
    on_thread_and_goroutine(2, || {
        let (stream, mut peer) = stamped();
        let stream = Async::new(std::net::TcpStream::from(stream)).unwrap();
        peer.read_exact(&mut [0; 7]).unwrap();
        let echoes = std::thread::spawn(move || {
            let mut byte = [0];
            while peer.read(&mut byte).unwrap() > 0 {
                // The reader waits by now, most likely.
                std::thread::sleep(Duration::from_millis(2));
                peer.write_all(&byte).unwrap();
            }
        });
        for i in 0..30 {
            (&stream).write_all(&[i]).unwrap();
            let mut byte = [0];
            (&stream).read_exact(&mut byte).unwrap();
            assert_eq!(byte, [i]);
            assert!(shows(&stream, libc::POLLERR));
        }
        drop(stream);
        windlass::blocking(|| echoes.join()).unwrap();
    });
}

/// A deadline that is set while the call waits for a change ends that wait.
#[test]
fn a_deadline_is_moved_beside_an_error_queue() {
    let _guard = hang_guard();
    runtime(2).run(|| {
        let (stream, _peer) = stamped();
        let clone = stream.try_clone().unwrap();
        let reads = spawn(move || clone.recv_owned().map(drop).unwrap_err().kind());
        let copied = stream.try_clone().unwrap();
        let copies = spawn(move || {
            let (mut to, _sink) = pair();
            io::copy(&mut &copied, &mut to).unwrap_err().kind()
        });
        windlass::sleep(Duration::from_millis(20));
        stream.set_read_deadline(Some(Instant::now() + Duration::from_millis(20)));
        assert_eq!(reads.join().unwrap(), ErrorKind::WouldBlock);
        assert_eq!(copies.join().unwrap(), ErrorKind::WouldBlock);
    });
}

/// The kernel says that a datagram socket without a peer is writable, also if its receiver's queue is full.
#[test]
fn attempts_are_rare_where_the_kernel_is_wrong() {
    let _guard = hang_guard();
    on_thread_and_goroutine(2, || {
        use std::os::linux::net::SocketAddrExt;
        let name = format!(
            "windlass-full-{}-{:?}",
            std::process::id(),
            std::thread::current().id()
        );
        let addr = std::os::unix::net::SocketAddr::from_abstract_name(name).unwrap();
        let receiver = UnixDatagram::bind_addr(&addr).unwrap();
        let sender = Async::new(UnixDatagram::unbound().unwrap()).unwrap();
        let mut n_sent = 0;
        while sender.get_ref().send_to_addr(b"x", &addr).is_ok() {
            n_sent += 1;
        }
        let n_attempts = AtomicU32::new(0);
        let send = || {
            sender.write_with(|sender| {
                n_attempts.fetch_add(1, Ordering::Relaxed);
                sender.send_to_addr(b"y", &addr)
            })
        };
        let late = in_time(send).unwrap_err();
        assert_eq!(late.kind(), ErrorKind::TimedOut);
        let n = n_attempts.swap(0, Ordering::Relaxed);
        assert!(n < 100, "{n} attempts");
        // The receiver makes room while another send waits.
        let receives = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            let mut got = [0];
            for _ in 0..n_sent {
                receiver.recv(&mut got).unwrap();
            }
            receiver.recv(&mut got).unwrap();
            assert_eq!(got, *b"y");
        });
        send().unwrap();
        windlass::blocking(|| receives.join()).unwrap();
    });
}

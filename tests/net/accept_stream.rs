//! `accept_stream`: each connection to a listener comes once, wherever and whenever the iterator ends. An
//! iterator that is never asked takes no connection.
#![allow(clippy::disallowed_methods, reason = "plain threads take part")]

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr as UnixAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use windlass::time::{Duration, Instant};

use crate::both::{on_each, settle};
use crate::util;
use crate::util::{hang_guard, on_thread_and_goroutine, run, runtime, wait_until};
use windlass::context::Context;
use windlass::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use windlass::spawn;

fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    (listener, addr)
}

/// A connection that says its number. Kept open: so it is there when it is accepted.
fn call(addr: SocketAddr, number: u32) -> TcpStream {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.write_all(&number.to_ne_bytes()).unwrap();
    stream
}

fn number_of(mut stream: TcpStream) -> u32 {
    let mut number = [0; 4];
    stream.read_exact(&mut number).unwrap();
    u32::from_ne_bytes(number)
}

/// All numbers below `n`, each once, in whatever order.
fn assert_all(mut numbers: Vec<u32>, n: u32) {
    numbers.sort_unstable();
    assert_eq!(numbers, (0..n).collect::<Vec<_>>());
}

/// A spell in which connections that were announced have most likely come.
fn settle_long() {
    windlass::sleep(Duration::from_millis(20));
}

#[test]
fn connections_come_as_streams() {
    on_each(|kind| {
        let (listener, addr) = listener();
        let server = kind.spawn(move || {
            let mut connections = listener.accept_stream();
            let one = connections.accept().unwrap();
            let peer = one.peer_addr().unwrap();
            // As an iterator, which has no end.
            let mut all = vec![number_of(one)];
            all.extend(
                connections
                    .take(30)
                    .map(|stream| number_of(stream.unwrap())),
            );
            (all, peer)
        });
        settle();
        let first = call(addr, 0);
        settle();
        let _others: Vec<_> = (1..31).map(|i| call(addr, i)).collect();
        let (all, peer) = server.join();
        assert_all(all, 31);
        assert_eq!(peer, first.local_addr().unwrap());
    });
}

#[test]
fn unix_connections_come_as_well() {
    on_each(|kind| {
        let name = format!("windlass-accept-{}-{kind:?}", std::process::id());
        let addr = UnixAddr::from_abstract_name(name).unwrap();
        let listener = UnixListener::bind_addr(&addr).unwrap();
        let server = kind.spawn(move || {
            let mut connections = listener.accept_stream();
            for i in 0..40_u8 {
                let mut stream = connections.accept().unwrap();
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                assert_eq!(byte, [i]);
            }
            assert!(connections.finish().is_empty());
        });
        settle();
        for i in 0..40 {
            let mut stream = UnixStream::connect_addr(&addr).unwrap();
            stream.write_all(&[i]).unwrap();
            if i % 10 == 0 {
                settle();
            }
        }
        server.join();
    });
}

/// Neither an iterator that ends nor one whose wait was ended takes connections along: they come to the next
/// accept of either kind, in their order.
#[test]
fn connections_that_nobody_asks_for_stay_in_the_queue() {
    run(2, || {
        let n = util::much(600, 40) as u32;
        let (listener, addr) = listener();
        let mut connections = listener.accept_stream();
        let mut callers = vec![call(addr, 0)];
        assert_eq!(number_of(connections.accept().unwrap()), 0);
        listener.set_deadline(Some(Instant::now() + Duration::from_millis(1)));
        assert!(connections.accept().is_err());
        listener.set_deadline(None);
        callers.extend((1..n).map(|i| call(addr, i)));
        settle_long();
        assert!(connections.finish().is_empty());
        for (i, caller) in callers.iter().enumerate().skip(1) {
            let stream = match i % 3 {
                0 => listener.accept().unwrap().0,
                _ => listener.accept_stream().accept().unwrap(),
            };
            assert_eq!(stream.peer_addr().unwrap(), caller.local_addr().unwrap());
            assert_eq!(number_of(stream), i as u32);
        }
    });
}

#[test]
fn a_deadline_ends_the_wait_and_takes_nothing() {
    on_each(|kind| {
        let (listener, addr) = listener();
        let (tell, told) = windlass::channel::bounded(1);
        let server = kind.spawn(move || {
            let mut connections = listener.accept_stream();
            listener.set_deadline(Some(Instant::now() + Duration::from_millis(5)));
            let late = connections.accept().unwrap_err();
            assert_eq!(late.kind(), ErrorKind::WouldBlock);
            listener.set_deadline(Some(Instant::now()));
            assert!(connections.accept().is_err());
            listener.set_deadline(None);
            tell.send(()).unwrap();
            number_of(connections.accept().unwrap())
        });
        told.recv().unwrap();
        let _caller = call(addr, 77);
        assert_eq!(server.join(), 77);
    });
}

/// Deadlines, contexts and ends in a race with the connections: each comes once.
#[test]
fn no_connection_is_lost_to_who_ends_the_wait() {
    let n = util::much(600, 60) as u32;
    run(2, || {
        let (listener, addr) = listener();
        let callers = spawn(move || {
            (0..n)
                .map(|i| {
                    if i % 5 == 0 {
                        windlass::sleep(Duration::from_micros(u64::from(i % 7) * 40));
                    }
                    call(addr, i)
                })
                .collect::<Vec<_>>()
        });
        let mut all = Vec::new();
        let mut connections = listener.accept_stream();
        for round in 0.. {
            if all.len() == n as usize {
                break;
            }
            let short = Context::background().with_timeout(Duration::from_micros(round % 90));
            let until = Instant::now() + Duration::from_micros(round % 110);
            let connection = match round % 3 {
                0 => short.run(|| connections.accept()),
                _ => {
                    listener.set_deadline(Some(until));
                    let connection = connections.accept();
                    listener.set_deadline(None);
                    connection
                }
            };
            match connection {
                Ok(stream) => all.push(number_of(stream)),
                Err(e) => assert!(
                    [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&e.kind()),
                    "{e}"
                ),
            }
            if round % 40 == 39 {
                // Another one goes on where this one ended.
                let ahead = std::mem::replace(&mut connections, listener.accept_stream()).finish();
                all.extend(ahead.into_iter().map(number_of));
            }
        }
        drop(callers.join().unwrap());
        assert_all(all, n);
    });
}

/// The listener's mode and its end are those of the iterator.
#[test]
fn a_listener_that_does_not_wait_and_one_that_is_shut_down() {
    on_thread_and_goroutine(1, || {
        let (listener, addr) = listener();
        let mut connections = listener.accept_stream();
        listener.set_nonblocking(true).unwrap();
        assert_eq!(
            connections.accept().unwrap_err().kind(),
            ErrorKind::WouldBlock
        );
        let _caller = call(addr, 9);
        let mut came = None;
        wait_until(|| {
            came = connections.accept().ok();
            came.is_some()
        });
        assert_eq!(number_of(came.unwrap()), 9);
        listener.set_nonblocking(false).unwrap();
        listener.shutdown().unwrap();
        // And so is every later call.
        for _ in 0..2 {
            let over = connections.accept().unwrap_err();
            assert_eq!(over.kind(), ErrorKind::InvalidInput);
        }
    });
}

/// A P loses its thread to a goroutine that blocks, and its number changes.
#[test]
fn accepts_survive_what_happens_to_their_p() {
    const N: u32 = 60;
    let _guard = hang_guard();
    let rt = runtime(3);
    let over = AtomicBool::new(false);
    rt.run(|| {
        windlass::scope(|s| {
            let servers: Vec<_> = (0..8)
                .map(|i| {
                    let (listener, addr) = listener();
                    s.spawn(move || {
                        for n in 0..N {
                            // Its number is read before it is dropped: accepted by then.
                            let mut stream = call(addr, n);
                            let mut echo = [0; 4];
                            stream.read_exact(&mut echo).unwrap();
                            windlass::sleep(Duration::from_millis(1));
                        }
                    });
                    s.spawn(move || {
                        let mut all = Vec::new();
                        for stream in listener.accept_stream().take(N as usize) {
                            let mut stream = stream.unwrap();
                            let mut number = [0; 4];
                            stream.read_exact(&mut number).unwrap();
                            stream.write_all(&number).unwrap();
                            all.push(u32::from_ne_bytes(number));
                            if (all.len() + i).is_multiple_of(10) {
                                // Undeclared: longer than a P is left to it.
                                std::thread::sleep(Duration::from_millis(12));
                            }
                        }
                        assert_all(all, N);
                    })
                })
                .collect();
            let resizes = s.spawn(|| {
                for n in [1, 3, 2, 1, 3].into_iter().cycle() {
                    if over.load(Ordering::SeqCst) {
                        return;
                    }
                    util::set_processors(&rt, n);
                    windlass::sleep(Duration::from_millis(3));
                }
            });
            servers
                .into_iter()
                .for_each(|server| server.join().unwrap());
            over.store(true, Ordering::SeqCst);
            resizes.join().unwrap();
        });
    });
}

/// Nothing of an accept that waits when its run ends stays, and connections are there for the next. In a
/// process of its own, where nobody else opens anything.
#[test]
fn the_end_of_a_run_leaves_nothing() {
    if util::child_case().is_none() {
        util::child_passes("the_end_of_a_run_leaves_nothing", "");
        return;
    }
    let round = || {
        let (kept, addr) = listener();
        let rt = runtime(2);
        let mut connections = kept.accept_stream();
        for _ in 0..2 {
            let mut callers = Vec::new();
            rt.run(|| {
                for i in 0..10 {
                    let (listener, addr) = listener();
                    spawn(move || {
                        let first = listener.accept_stream().accept();
                        // The stream is gone; and one that stays until the end of the run.
                        let _second = listener.accept_stream().accept();
                        drop(first);
                    });
                    if i % 2 == 0 {
                        drop(call(addr, i));
                    }
                }
                callers.push(call(addr, 1));
                assert_eq!(number_of(connections.accept().unwrap()), 1);
                kept.set_deadline(Some(Instant::now() + Duration::from_millis(1)));
                connections.accept().unwrap_err();
                kept.set_deadline(None);
                callers.extend((2..5).map(|i| call(addr, i)));
                settle();
            });
            // Some came in a run that is over.
            callers.push(call(addr, 5));
            for i in 2..6 {
                assert_eq!(number_of(connections.accept().unwrap()), i);
            }
        }
        drop(kept);
        drop(rt);
        util::open_fds().len()
    };
    let _guard = hang_guard();
    let n_fds = round();
    for _ in 0..20 {
        assert_eq!(round(), n_fds);
    }
}

/// A connection that is accepted is closed when another program begins, as every descriptor is.
#[test]
fn connections_are_close_on_exec() {
    run(1, || {
        let (listener, addr) = listener();
        let mut connections = listener.accept_stream();
        let _callers: Vec<_> = (0..3).map(|i| call(addr, i)).collect();
        for _ in 0..3 {
            let stream = connections.accept().unwrap();
            let info = format!(
                "/proc/self/fdinfo/{}",
                std::os::fd::AsRawFd::as_raw_fd(&stream)
            );
            let info = std::fs::read_to_string(info).unwrap();
            let flags = info
                .lines()
                .find_map(|line| line.strip_prefix("flags:"))
                .unwrap();
            let flags = i32::from_str_radix(flags.trim(), 8).unwrap();
            assert_ne!(flags & libc::O_CLOEXEC, 0);
        }
    });
}

/// The kernel wakes one of those that wait at a listener. If that one is just being cancelled,
/// another gets the connection, and at once: nobody else calls.
#[test]
fn a_wait_that_is_cut_takes_no_connection_along() {
    run(3, || {
        let (listener, addr) = listener();
        let listener = Arc::new(listener);
        let same = Arc::clone(&listener);
        let server = spawn(move || {
            for connection in same.incoming() {
                match connection {
                    Ok(mut stream) => stream.write_all(b"!").unwrap(),
                    Err(e) => return assert_eq!(e.kind(), ErrorKind::InvalidInput),
                }
            }
        });
        let mut n_taken = 0;
        for round in 0..1500_u32 {
            let same = Arc::clone(&listener);
            let span = Duration::from_micros(u64::from(round % 80));
            let cut = spawn(move || {
                let context = Context::background().with_timeout(span);
                match round % 2 {
                    0 => context.run(|| same.accept().map(|(stream, _)| stream).ok()),
                    _ => {
                        let mut connections = same.accept_stream();
                        let first = context.run(|| connections.accept().ok());
                        first.or_else(|| connections.finish().pop())
                    }
                }
            });
            let mut caller = TcpStream::connect(addr).unwrap();
            if let Some(mut taken) = cut.join().unwrap() {
                n_taken += 1;
                taken.write_all(b"!").unwrap();
            }
            caller.read_exact(&mut [0]).unwrap();
        }
        listener.shutdown().unwrap();
        server.join().unwrap();
        assert!(n_taken < 1500);
    });
}

#[cfg(feature = "sim")]
crate::inside::tests! {
    connections_come_as_streams,
    unix_connections_come_as_well,
    connections_that_nobody_asks_for_stay_in_the_queue / 50,
    a_deadline_ends_the_wait_and_takes_nothing,
    no_connection_is_lost_to_who_ends_the_wait / 10,
    a_listener_that_does_not_wait_and_one_that_is_shut_down,
    accepts_survive_what_happens_to_their_p: "it has a runtime of its own",
    the_end_of_a_run_leaves_nothing: "it has a process of its own",
    connections_are_close_on_exec,
    a_wait_that_is_cut_takes_no_connection_along / 500,
}

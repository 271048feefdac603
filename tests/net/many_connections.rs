//! Ten thousand connections, and more operations at once than the queues of a ring have
//! room for. Each test is a process of its own: it takes all the descriptors that one may have.
#![allow(unsafe_code)]

use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use windlass::time::Instant;

use crate::util;
use crate::util::{child_case, child_passes, runtime, wait_until};
use windlass::context::Context;
use windlass::net::{TcpListener, TcpStream, UnixStream};
use windlass::{Handle, spawn, task};

/// Raises the limit on descriptors. Gives how many pairs of them may be open, `wanted` if
/// that can be had.
fn room_for_pairs(wanted: usize) -> usize {
    let (soft, hard) = util::nofile_limits();
    util::set_nofile_limit(hard.clamp(soft, soft.max(22_000)));
    let n = ((util::nofile_limits().0 as usize).saturating_sub(400) / 2).min(wanted);
    if n < wanted {
        eprintln!("{n} connections only: the hard limit on descriptors is {hard}");
    }
    assert!(n >= 100);
    n
}

#[test]
fn ten_thousand_connections() {
    if child_case().is_none() {
        child_passes("ten_thousand_connections", "");
        return;
    }
    let n = room_for_pairs(10_000);
    runtime(2).run(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let server = spawn(move || {
            for stream in listener.incoming().take(n) {
                let mut stream = stream.unwrap();
                spawn(move || {
                    let mut buf = [0; 16];
                    loop {
                        match stream.read(&mut buf).unwrap() {
                            0 => return,
                            n => stream.write_all(&buf[..n]).unwrap(),
                        }
                    }
                });
            }
        });
        let connected = Arc::new(AtomicUsize::new(0));
        let clients: Vec<_> = (0..n)
            .map(|i| {
                let connected = Arc::clone(&connected);
                spawn(move || {
                    let mut stream = TcpStream::connect(addr).unwrap();
                    connected.fetch_add(1, Ordering::SeqCst);
                    // Nobody goes on before all are there.
                    task::park();
                    while connected.load(Ordering::SeqCst) < n {
                        task::park();
                    }
                    for round in 0..3 {
                        let sent = (i * 3 + round).to_le_bytes();
                        let mut got = [0; 8];
                        stream.write_all(&sent).unwrap();
                        stream.read_exact(&mut got).unwrap();
                        assert_eq!(got, sent);
                    }
                })
            })
            .collect();
        wait_until(|| connected.load(Ordering::SeqCst) == n);
        server.join().unwrap();
        clients.iter().for_each(|j| j.task().unpark());
        clients.into_iter().for_each(|j| j.join().unwrap());
    });
}

/// Waits until so many operations are in flight.
fn wait_for_inflight(runtime: &Handle, n: usize) {
    wait_until(|| runtime.metrics().total().ring_inflight as usize >= n);
}

/// The queue for submissions has 256 places, and a cancel is not dropped for want of one;
/// what is not cancelled goes on.
#[test]
fn thousands_are_cancelled_while_thousands_are_queued() {
    if child_case().is_none() {
        child_passes("thousands_are_cancelled_while_thousands_are_queued", "");
        return;
    }
    let n = room_for_pairs(4_000) / 2;
    let runtime = runtime(1);
    let handle = runtime.handle();
    runtime.run(|| {
        let (context, canceller) = Context::background().with_cancel();
        let mut ends = Vec::new();
        let readers: Vec<_> = (0..n)
            .map(|i| {
                let (here, there) = UnixStream::pair().unwrap();
                ends.push((here.try_clone().unwrap(), there));
                let context = context.clone();
                spawn(move || {
                    let mut byte = [0];
                    let mut read = || (&here).read(&mut byte).unwrap_err();
                    // By a context or by a deadline.
                    match i % 2 {
                        0 => context.run(read),
                        _ => read(),
                    }
                })
            })
            .collect();
        wait_for_inflight(&handle, n);
        // Sends of a P with so many operations in flight are queued as well.
        let senders: Vec<_> = (0..n)
            .map(|_| {
                spawn(|| {
                    let (a, b) = UnixStream::pair().unwrap();
                    (&a).write_all(b"x").unwrap();
                    let mut byte = [0];
                    (&b).read_exact(&mut byte).unwrap();
                    assert_eq!(byte, *b"x");
                })
            })
            .collect();
        canceller.cancel();
        let now = Some(Instant::now());
        let late = ends.iter().skip(1).step_by(2);
        late.for_each(|(here, _)| here.set_read_deadline(now));
        senders.into_iter().for_each(|j| j.join().unwrap());
        for (i, reader) in readers.into_iter().enumerate() {
            let e = reader.join().unwrap();
            assert_eq!(e.kind() == ErrorKind::WouldBlock, i % 2 == 1, "{e}");
        }
        // Nothing of them is left in the sockets' way.
        for (i, (here, there)) in ends.iter().enumerate() {
            here.set_read_deadline(None);
            let sent = i.to_le_bytes();
            (&*there).write_all(&sent).unwrap();
            let mut got = [0; size_of::<usize>()];
            (&*here).read_exact(&mut got).unwrap();
            assert_eq!(got, sent);
        }
    });
}

/// The queue for completions has 4096 places. One goroutine keeps the only P while more
/// complete.
#[test]
fn more_completions_than_there_is_room_for() {
    const N: usize = 6_000;
    if child_case().is_none() {
        child_passes("more_completions_than_there_is_room_for", "");
        return;
    }
    room_for_pairs(1_000);
    let runtime = runtime(1);
    let handle = runtime.handle();
    runtime.run(|| {
        let (here, there) = UnixStream::pair().unwrap();
        let there = Arc::new(there);
        let readers: Vec<_> = (0..N)
            .map(|_| {
                let there = Arc::clone(&there);
                spawn(move || {
                    let mut byte = [0];
                    let n = (&*there).read(&mut byte).unwrap();
                    (n, u64::from(byte[0]))
                })
            })
            .collect();
        wait_for_inflight(&handle, N);
        let bytes: Vec<_> = (0..N / 2).map(|i| (i % 251) as u8).collect();
        // None of these parks: there is room in the socket.
        here.set_nonblocking(true).unwrap();
        let mut n_sent = 0;
        while n_sent < bytes.len() {
            n_sent += (&here).write(&bytes[n_sent..]).unwrap();
        }
        // And then the end, for the other half.
        here.shutdown(std::net::Shutdown::Write).unwrap();
        let ended: Vec<_> = readers.into_iter().map(|j| j.join().unwrap()).collect();
        assert_eq!(ended.iter().map(|(n, _)| n).sum::<usize>(), bytes.len());
        let sum: u64 = bytes.iter().map(|&byte| u64::from(byte)).sum();
        assert_eq!(ended.iter().map(|(_, byte)| byte).sum::<u64>(), sum);
    });
}

#[cfg(feature = "sim")]
crate::inside::tests! {
    ten_thousand_connections: "it has a process of its own",
    thousands_are_cancelled_while_thousands_are_queued: "it has a process of its own",
    more_completions_than_there_is_room_for: "it has a process of its own",
}

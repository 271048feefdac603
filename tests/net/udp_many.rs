//! Several packets of UDP in one call, on goroutines and on plain threads, over loopback.

use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram as StdUnixDatagram;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use windlass::time::{Duration, Instant};

use crate::both::run_line;
use crate::util::{child_case, child_passes_with_io, on_thread_and_goroutine, run, wait_until};
use windlass::context::{self, Context};
use windlass::net::{SocketAddr, UdpRecv, UdpSend, UdpSocket};
use windlass::spawn;

fn socket() -> UdpSocket {
    UdpSocket::bind("127.0.0.1:0").unwrap()
}

/// Two sockets that talk to one another.
fn pair() -> (UdpSocket, UdpSocket) {
    let (a, b) = (socket(), socket());
    a.connect(b.local_addr().unwrap()).unwrap();
    b.connect(a.local_addr().unwrap()).unwrap();
    (a, b)
}

fn addr(socket: &UdpSocket) -> SocketAddr {
    socket.local_addr().unwrap()
}

/// Sends all, in as many calls as it takes.
fn send_all(socket: &UdpSocket, packets: &[UdpSend<'_>]) {
    let mut rest = packets;
    while !rest.is_empty() {
        rest = &rest[socket.send_many(rest).unwrap()..];
    }
}

/// What one call receives into `n` buffers of `len` bytes, with the senders.
fn receive(
    socket: &UdpSocket,
    n: usize,
    len: usize,
) -> std::io::Result<Vec<(Vec<u8>, SocketAddr)>> {
    let mut room = vec![0; n * len];
    let mut bufs: Vec<_> = room.chunks_mut(len).map(UdpRecv::new).collect();
    let n = socket.recv_many(&mut bufs)?;
    let one = |buf: &UdpRecv<'_>| (buf.bytes().to_vec(), buf.from().unwrap());
    assert!(bufs[n..].iter().all(|buf| buf.from().is_none()));
    Ok(bufs[..n].iter().map(one).collect())
}

/// A call receives the packets that are in the socket, in order and with their senders, up to its number of buffers.
#[test]
fn batches_come_in_order() {
    on_thread_and_goroutine(1, || {
        let (a, b, c) = (socket(), socket(), socket());
        let (to, from_a, from_c) = (addr(&b), addr(&a), addr(&c));
        assert_eq!(a.send_many(&[]).unwrap(), 0);
        let texts = [b"one".to_vec(), Vec::new(), b"three".to_vec()];
        let packets: Vec<_> = texts.iter().map(|text| UdpSend::new(text, to)).collect();
        assert_eq!(a.send_many(&packets).unwrap(), 3);
        assert_eq!(c.send_many(&packets[2..]).unwrap(), 1);
        assert_eq!(b.recv_many(&mut []).unwrap(), 0);
        let first = receive(&b, 2, 100).unwrap();
        assert_eq!(
            first,
            [(texts[0].clone(), from_a), (texts[1].clone(), from_a)]
        );
        // What does not fit is cut off.
        let rest = receive(&b, 8, 4).unwrap();
        let cut = b"thre".to_vec();
        assert_eq!(rest, [(cut.clone(), from_a), (cut, from_c)]);
        // A connected socket takes either form.
        a.connect(to).unwrap();
        let both = [UdpSend::to_peer(b"peer"), UdpSend::new(b"named", to)];
        send_all(&a, &both);
        assert_eq!(receive(&b, 8, 9).unwrap().len(), 2);
        let named = UdpSend::to_peer(b"nobody");
        let e = c.send_many(&[named]).unwrap_err();
        assert_eq!(e.raw_os_error(), Some(libc::EDESTADDRREQ));
        assert!(UdpRecv::new(&mut [1, 2]).bytes().is_empty());
    });
}

#[test]
fn addresses_of_ipv6() {
    run(1, || {
        let (Ok(a), Ok(b)) = (UdpSocket::bind("[::1]:0"), UdpSocket::bind("[::1]:0")) else {
            return eprintln!("skipped: no IPv6 here");
        };
        send_all(&a, &[UdpSend::new(b"six", addr(&b))]);
        assert_eq!(
            receive(&b, 2, 9).unwrap(),
            [(b"six".to_vec(), a.local_addr().unwrap())]
        );
    });
}

/// A call takes 32 at most, in either direction.
#[test]
fn more_than_a_call_takes() {
    run(1, || {
        let (a, b) = pair();
        let texts: Vec<_> = (0..80_u8).map(|i| [i; 3]).collect();
        let packets: Vec<_> = texts.iter().map(|text| UdpSend::to_peer(text)).collect();
        send_all(&a, &packets);
        let mut received = Vec::new();
        while received.len() < 80 {
            received.extend(receive(&b, 80, 8).unwrap());
        }
        let bytes = received.into_iter().map(|(bytes, _)| bytes);
        assert!(bytes.eq(texts.iter().map(|text| text.to_vec())));
    });
}

/// The first packet ends the wait; a goroutine parks for it, so others run on its P.
#[test]
fn a_receive_waits_by_parking() {
    run_line(|line| {
        let (a, b) = pair();
        for round in 0..20_u8 {
            let b = b.try_clone().unwrap();
            let receives = line.up(move || receive(&b, 4, 8).unwrap());
            send_all(&a, &[UdpSend::to_peer(&[round])]);
            let received = receives.join().unwrap();
            assert_eq!(received, [(vec![round], addr(&a))]);
        }
    });
}

#[test]
fn timeouts_deadlines_and_contexts_end_it() {
    let check = || {
        let (a, b) = pair();
        let kind = |r: std::io::Result<Vec<_>>| r.unwrap_err().kind();
        b.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
        let start = Instant::now();
        assert_eq!(kind(receive(&b, 2, 8)), ErrorKind::WouldBlock);
        assert_eq!(kind(receive(&b, 2, 8)), ErrorKind::WouldBlock);
        assert!(start.elapsed() >= Duration::from_millis(20));
        b.set_read_timeout(None).unwrap();
        // As `recv` has it, a deadline that has passed hides a packet, and takes none.
        send_all(&a, &[UdpSend::to_peer(b"kept")]);
        b.set_read_deadline(Some(Instant::now()));
        assert_eq!(kind(receive(&b, 2, 8)), ErrorKind::WouldBlock);
        b.set_read_deadline(None);
        assert_eq!(receive(&b, 2, 8).unwrap().len(), 1);
        a.set_write_deadline(Some(Instant::now()));
        let e = a.send_many(&[UdpSend::to_peer(b"x")]).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::WouldBlock);
        b.set_nonblocking(true).unwrap();
        assert_eq!(kind(receive(&b, 2, 8)), ErrorKind::WouldBlock);
        b.set_nonblocking(false).unwrap();
        let ctx = Context::background().with_timeout(Duration::from_millis(10));
        let e = ctx.run(|| receive(&b, 2, 8)).unwrap_err();
        let why = e.get_ref().and_then(|e| e.downcast_ref::<context::Error>());
        assert!(why.is_some(), "{e:?}");
    };
    on_thread_and_goroutine(1, check);
}

/// Every packet comes through, and once, however the receives are cut short.
#[test]
fn timeouts_lose_no_packet() {
    const N: usize = 3000;
    run(2, || {
        let (a, b) = pair();
        b.set_read_timeout(Some(Duration::from_micros(80))).unwrap();
        let n_received = Arc::new(AtomicUsize::new(0));
        let received = Arc::clone(&n_received);
        let sends = spawn(move || {
            let mut next = 0;
            while next < N {
                // The kernel drops what the receive buffer has no room for.
                wait_until(|| next < received.load(Ordering::SeqCst) + 50);
                let numbers: Vec<_> = (next..N.min(next + 1 + next % 7))
                    .map(usize::to_le_bytes)
                    .collect();
                let packets: Vec<_> = numbers.iter().map(|n| UdpSend::to_peer(n)).collect();
                send_all(&a, &packets);
                next += packets.len();
                if next % 4 == 0 {
                    windlass::sleep(Duration::from_micros(next as u64 % 3 * 50));
                }
            }
            a
        });
        let mut next = 0;
        while next < N {
            match receive(&b, 5, 8) {
                Ok(packets) => {
                    for (bytes, _) in packets {
                        assert_eq!(bytes, next.to_le_bytes());
                        next += 1;
                    }
                    n_received.store(next, Ordering::SeqCst);
                }
                Err(e) => assert_eq!(e.kind(), ErrorKind::WouldBlock),
            }
        }
        sends.join().unwrap();
    });
}

/// The kernel cuts messages into packets. A simulation does, too.
#[test]
fn segments_are_packets() {
    run(1, || {
        let (a, b) = pair();
        let bytes: Vec<_> = (0..=249_u8).collect();
        let message = UdpSend::to_peer(&bytes);
        send_all(
            &a,
            &[
                message.segments(100),
                message,
                message.segments(250),
                UdpSend::to_peer(b"").segments(100),
                message.segments(0),
            ],
        );
        let mut lens = Vec::new();
        while lens.len() < 7 {
            lens.extend(
                receive(&b, 8, 300)
                    .unwrap()
                    .iter()
                    .map(|(bytes, _)| bytes.len()),
            );
        }
        assert_eq!(lens, [100, 100, 50, 250, 250, 0, 250]);
    });
}

/// The error of a later packet ends a call without it, and is reported by the next one.
#[test]
fn an_error_of_a_later_packet() {
    on_thread_and_goroutine(1, || {
        let (a, b) = pair();
        let long = vec![0; 70_000];
        let packets = [
            UdpSend::to_peer(b"fits"),
            UdpSend::to_peer(&long),
            UdpSend::to_peer(b"fits, too"),
        ];
        assert_eq!(a.send_many(&packets).unwrap(), 1);
        let e = a.send_many(&packets[1..]).unwrap_err();
        assert_eq!(e.raw_os_error(), Some(libc::EMSGSIZE));
        send_all(&a, &packets[2..]);
        assert_eq!(receive(&b, 4, 20).unwrap().len(), 2);
    });
}

/// The kernel joins packets of one length, and says of which.
#[test]
fn joined_packets_are_parted() {
    on_thread_and_goroutine(1, || {
        let (a, b) = pair();
        b.set_gro(true).unwrap();
        let bytes: Vec<_> = (0..100_000_u32).map(|i| (i % 251) as u8).collect();
        let message = UdpSend::to_peer(&bytes[..50_000]).segments(1200);
        let n_packets = 50_000_usize.div_ceil(1200);
        let rest = UdpSend::to_peer(&bytes[50_000..51_000]);
        send_all(&a, &[message, rest]);
        let mut room = vec![0; 4 * 65_535];
        let (mut received, mut n, mut n_joined) = (Vec::<u8>::new(), 0, 0);
        while received.len() < 51_000 {
            let mut bufs: Vec<_> = room.chunks_mut(65_535).map(UdpRecv::new).collect();
            let n_bufs = b.recv_many(&mut bufs).unwrap();
            for buf in &bufs[..n_bufs] {
                n_joined += usize::from(buf.segment_len() == Some(1200));
                n += buf.packets().count();
                buf.packets().for_each(|one| received.extend(one));
            }
        }
        assert_eq!(n, n_packets + 1);
        assert_eq!(received, bytes[..51_000]);
        assert!(n_joined > 0, "the kernel has joined none");
        b.set_gro(false).unwrap();
        send_all(&a, &[UdpSend::to_peer(&bytes[..2400]).segments(1200)]);
        assert_eq!(receive(&b, 1, 2400).unwrap()[0].0.len(), 1200);
    });
}

/// A Unix datagram socket has no room while its receiver has not received. (On loopback, packets of UDP that
/// have no room are lost.)
#[test]
fn a_send_waits_for_room() {
    fn check() {
        let (a, b) = StdUnixDatagram::pair().unwrap();
        let a = UdpSocket::from(OwnedFd::from(a));
        let texts: Vec<_> = (0..1000_u16).map(u16::to_le_bytes).collect();
        let packets: Vec<_> = texts.iter().map(|text| UdpSend::to_peer(text)).collect();
        a.set_write_timeout(Some(Duration::from_millis(5))).unwrap();
        let mut n_sent = 0;
        let e = loop {
            match a.send_many(&packets[n_sent..]) {
                Ok(n) => n_sent += n,
                Err(e) => break e,
            }
        };
        assert_eq!(e.kind(), ErrorKind::WouldBlock);
        a.set_write_timeout(None).unwrap();
        let is_waiting = Arc::new(AtomicBool::new(false));
        let waits = Arc::clone(&is_waiting);
        let receives = std::thread::spawn(move || {
            while !waits.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            let mut buf = [0; 8];
            for text in (0..1000_u16).map(u16::to_le_bytes) {
                let n = b.recv(&mut buf).unwrap();
                assert_eq!(buf[..n], text);
            }
        });
        is_waiting.store(true, Ordering::SeqCst);
        send_all(&a, &packets[n_sent..]);
        windlass::blocking(|| receives.join().unwrap());
        // A receive from such a socket has no address to return.
        let (a, b) = StdUnixDatagram::pair().unwrap();
        let b = UdpSocket::from(OwnedFd::from(b));
        a.send(b"x").unwrap();
        let e = receive(&b, 1, 8).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::InvalidInput);
    }
    on_thread_and_goroutine(2, check);
}

/// As `recv`, also over epoll, which this process has not.
#[test]
fn waits_over_epoll() {
    let name = "waits_over_epoll";
    if child_case().is_none() {
        child_passes_with_io(name, "epoll", Some("epoll"));
        return;
    }
    a_receive_waits_by_parking();
    timeouts_deadlines_and_contexts_end_it();
    a_send_waits_for_room();
}

/// The end of a run ends a receive.
#[test]
fn the_end_of_a_run_ends_it() {
    struct OnDrop(Arc<AtomicBool>);
    impl Drop for OnDrop {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let was_dropped = Arc::new(AtomicBool::new(false));
    let sign = OnDrop(Arc::clone(&was_dropped));
    run_line(move |line| {
        let b = socket();
        drop(line.up(move || {
            let _sign = sign;
            receive(&b, 2, 8).unwrap();
        }));
    });
    if !crate::util::is_simulated() {
        assert!(was_dropped.load(Ordering::SeqCst));
    }
}

#[cfg(feature = "sim")]
crate::inside::tests! {
    batches_come_in_order,
    addresses_of_ipv6,
    more_than_a_call_takes,
    a_receive_waits_by_parking,
    timeouts_deadlines_and_contexts_end_it,
    timeouts_lose_no_packet / 10,
    segments_are_packets,
    an_error_of_a_later_packet,
    joined_packets_are_parted: "the kernel joins them",
    a_send_waits_for_room: "it uses a thread",
    waits_over_epoll: "it has a process of its own",
    the_end_of_a_run_ends_it,
}

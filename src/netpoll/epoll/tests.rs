//! Tests of an epoll poller by itself, on a plain thread: the properties that the scheduler relies
//! on.

use std::io::{Read, Write};
use std::os::fd::{AsFd, FromRawFd};
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use super::*;
use crate::g::header::GRef;
use crate::g::slab;
use crate::g::status::Reason;
use crate::sys::socket;

/// A poller with its counts.
struct Counted {
    epoll: Epoll,
    counts: Counts,
}

// SAFETY: other threads use only what other threads may use: cancel and wake.
unsafe impl Sync for Counted {}

/// A goroutine that waits for an operation.
struct Waits {
    g: GRef,
    wait: WaitId,
    op: Box<Op>,
    _request: Box<Request>,
}

fn opened() -> Epoll {
    let epoll = Epoll::new();
    epoll.open().unwrap();
    epoll
}

fn poller() -> Counted {
    Counted {
        epoll: opened(),
        counts: Counts::default(),
    }
}

fn waiting_g() -> (GRef, WaitId) {
    let mut g = None;
    slab::take(slab::DepotId::ANY, 0, 1, |slot| g = Some(slot));
    let g = g.unwrap();
    g.status.set_new(false);
    g.status.set_runnable();
    g.status.set_running();
    (g, g.status.set_waiting(Reason::Io, 0))
}

impl Counted {
    fn queue(&self, request: Request, ready: &mut GList) -> Waits {
        let (g, wait) = waiting_g();
        let op = Box::new(Op::new(g));
        op.publish();
        let request = Box::new(request);
        let this = std::ptr::from_ref(self).cast();
        // SAFETY: the tests keep the buffer, the request and the operation until it has completed.
        unsafe {
            self.epoll
                .queue(&self.counts, &request, &op, wait, this, ready);
        }
        Waits {
            g,
            wait,
            op,
            _request: request,
        }
    }

    /// Collects and reaps once, without waiting. Returns how many completed.
    fn turn(&self, ready: &mut GList) -> usize {
        self.epoll.flush(&self.counts);
        self.epoll.reap(&self.counts, ready)
    }

    /// Waits until `n` have completed.
    fn wait_for(&self, n: usize, ready: &mut GList) {
        let mut got = 0;
        let deadline_ns = clock::now_ns() + 20_000_000_000;
        while got < n {
            assert!(clock::now_ns() < deadline_ns, "no completion came");
            self.epoll.wait(&self.counts, deadline_ns);
            got += self.epoll.reap(&self.counts, ready);
        }
        assert_eq!(got, n);
    }

    /// Cancels as `sched::wait::cancel` does. Returns whether the canceller must now ready the G.
    fn cancel(&self, waits: &Waits) -> bool {
        if !waits.g.status.begin_cancel(waits.wait) {
            return false;
        }
        self.epoll.cancel(&self.counts, &waits.op);
        waits.g.status.end_cancel(waits.wait);
        waits.g.op_done.load(Ordering::SeqCst) != 0 && waits.g.status.wake(waits.wait)
    }
}

fn recv(from: &impl AsRawFd, buf: &mut [u8]) -> Request {
    Request::Recv {
        fd: from.as_raw_fd(),
        buf: buf.as_mut_ptr(),
        len: buf.len() as u32,
        flags: 0,
    }
}

fn send(to: &impl AsRawFd, bytes: &[u8]) -> Request {
    Request::Send {
        fd: to.as_raw_fd(),
        buf: bytes.as_ptr(),
        len: bytes.len() as u32,
    }
}

/// Fills the buffers towards the peer. Returns the number of bytes written.
fn fill(to: &UnixStream) -> usize {
    let mut n = 0;
    while let Ok(more) = socket::send_now(to.as_fd(), &[9; 4096]) {
        n += more;
    }
    n
}

#[test]
fn a_receive_waits_for_its_data() {
    let p = poller();
    let (a, mut b) = UnixStream::pair().unwrap();
    let (mut buf, mut ready) = ([0; 8], GList::new());
    let waits = p.queue(recv(&a, &mut buf), &mut ready);
    assert_eq!(p.counts.inflight(), 1);
    assert_eq!(p.turn(&mut ready), 0);
    b.write_all(b"hi").unwrap();
    p.wait_for(1, &mut ready);
    assert_eq!(ready.pop(), Some(waits.g));
    assert_eq!(waits.op.result(), 2);
    assert_eq!(p.counts.inflight(), 0);
    assert_eq!(&buf[..2], b"hi");
    // The end of the stream ends a wait, too.
    let waits = p.queue(recv(&a, &mut buf), &mut ready);
    drop(b);
    p.wait_for(1, &mut ready);
    assert_eq!(waits.op.result(), 0);
}

#[test]
fn what_can_be_done_at_once_is() {
    let p = poller();
    let (a, mut b) = UnixStream::pair().unwrap();
    let mut ready = GList::new();
    let waits = p.queue(send(&a, b"word"), &mut ready);
    assert_eq!(ready.pop(), Some(waits.g));
    assert_eq!(waits.op.result(), 4);
    assert_eq!(p.counts.inflight(), 0);
    let mut word = [0; 4];
    b.read_exact(&mut word).unwrap();
    drop(b);
    let waits = p.queue(send(&a, b"word"), &mut ready);
    assert_eq!(waits.op.result(), -libc::EPIPE);
}

#[test]
fn several_that_wait_for_one_descriptor_are_served_in_turn() {
    let p = poller();
    let (a, mut b) = UnixStream::pair().unwrap();
    let mut bufs = [[0; 1]; 5];
    let mut ready = GList::new();
    let waits: Vec<_> = bufs
        .iter_mut()
        .map(|buf| p.queue(recv(&a, buf), &mut ready))
        .collect();
    for (i, one) in waits.iter().enumerate().take(3) {
        b.write_all(&[i as u8]).unwrap();
        p.wait_for(1, &mut ready);
        assert_eq!(ready.pop(), Some(one.g));
        assert_eq!(p.turn(&mut ready), 0);
    }
    b.write_all(&[3, 4]).unwrap();
    p.wait_for(2, &mut ready);
    assert_eq!(
        (ready.pop(), ready.pop()),
        (Some(waits[3].g), Some(waits[4].g))
    );
    assert_eq!(bufs, [[0], [1], [2], [3], [4]]);
}

#[test]
fn the_two_directions_do_not_mix() {
    let p = poller();
    let (a, mut b) = UnixStream::pair().unwrap();
    let mut ready = GList::new();
    let n_filled = fill(&a);
    let mut buf = [0; 1];
    let reads = p.queue(recv(&a, &mut buf), &mut ready);
    let writes = p.queue(send(&a, &[7]), &mut ready);
    assert_eq!(p.turn(&mut ready), 0);
    b.write_all(&[1]).unwrap();
    p.wait_for(1, &mut ready);
    assert_eq!(ready.pop(), Some(reads.g));
    assert_eq!(p.turn(&mut ready), 0, "there is no room yet");
    b.read_exact(&mut vec![0; n_filled]).unwrap();
    p.wait_for(1, &mut ready);
    assert_eq!(ready.pop(), Some(writes.g));
    assert_eq!(writes.op.result(), 1);
    // The reader of a later wait is woken, too.
    let reads = p.queue(recv(&a, &mut buf), &mut ready);
    b.write_all(&[2]).unwrap();
    p.wait_for(1, &mut ready);
    assert_eq!(ready.pop(), Some(reads.g));
}

#[test]
fn an_announcement_may_be_in_vain() {
    let p = poller();
    let (a, mut b) = UnixStream::pair().unwrap();
    let (mut buf, mut ready) = ([0; 4], GList::new());
    let waits = p.queue(recv(&a, &mut buf), &mut ready);
    for _ in 0..3 {
        b.write_all(b"x").unwrap();
        p.epoll.wait(&p.counts, clock::now_ns() + 10_000_000_000);
        // Another reader takes the data in between.
        socket::recv_into_now(a.as_fd(), &mut [0; 4]).unwrap();
        assert_eq!(p.epoll.reap(&p.counts, &mut ready), 0);
    }
    b.write_all(b"it").unwrap();
    p.wait_for(1, &mut ready);
    assert_eq!(waits.op.result(), 2);
}

#[test]
fn a_number_that_is_used_again_is_another_descriptor() {
    let p = poller();
    let (old, mut old_peer) = UnixStream::pair().unwrap();
    let (new, mut new_peer) = UnixStream::pair().unwrap();
    // A clone keeps the old socket open, and with it epoll's registration under the number.
    let clone = old.try_clone().unwrap();
    let number = old.as_raw_fd();
    let (mut buf, mut ready) = ([0; 8], GList::new());
    let waits = p.queue(recv(&old, &mut buf), &mut ready);
    assert!(p.cancel(&waits));
    // SAFETY: closes the old descriptor and gives its number to the new socket.
    assert_eq!(unsafe { libc::dup2(new.as_raw_fd(), number) }, number);
    // Nothing is armed now: events of the old socket have no waiter.
    old_peer.write_all(b"old").unwrap();
    assert_eq!(p.turn(&mut ready), 0);
    let waits = p.queue(recv(&old, &mut buf), &mut ready);
    old_peer.write_all(b"old").unwrap();
    assert_eq!(p.turn(&mut ready), 0);
    new_peer.write_all(b"fresh").unwrap();
    p.wait_for(1, &mut ready);
    assert_eq!(ready.pop(), Some(waits.g));
    assert_eq!(&buf[..5], b"fresh");
    drop(clone);
    // Closed while nothing waits, with its epoll registration.
    let (third, mut third_peer) = UnixStream::pair().unwrap();
    // SAFETY: as above.
    assert_eq!(unsafe { libc::dup2(third.as_raw_fd(), number) }, number);
    let waits = p.queue(recv(&old, &mut buf), &mut ready);
    new_peer.write_all(b"fresh").unwrap();
    assert_eq!(p.turn(&mut ready), 0);
    third_peer.write_all(b"z").unwrap();
    p.wait_for(1, &mut ready);
    assert_eq!(waits.op.result(), 1);
}

#[test]
fn a_cancelled_operation_completes_and_leaves_the_others() {
    let p = poller();
    let (a, mut b) = UnixStream::pair().unwrap();
    let mut bufs = [[0; 1]; 3];
    let mut ready = GList::new();
    let waits: Vec<_> = bufs
        .iter_mut()
        .map(|buf| p.queue(recv(&a, buf), &mut ready))
        .collect();
    assert!(p.cancel(&waits[1]));
    assert_eq!(waits[1].op.result(), -libc::ECANCELED);
    assert!(!p.cancel(&waits[1]), "it is over");
    assert_eq!(p.counts.inflight(), 2);
    b.write_all(&[1, 2]).unwrap();
    p.wait_for(2, &mut ready);
    assert_eq!(
        (ready.pop(), ready.pop()),
        (Some(waits[0].g), Some(waits[2].g))
    );
    assert_eq!(bufs, [[1], [0], [2]]);
}

#[test]
fn what_is_there_at_the_deadline_is_given() {
    let p = poller();
    let (a, mut b) = UnixStream::pair().unwrap();
    let (mut buf, mut ready) = ([0; 4], GList::new());
    let late = p.queue(recv(&a, &mut buf), &mut ready);
    b.write_all(b"data").unwrap();
    late.op.set_timed_out();
    assert!(p.cancel(&late));
    assert_eq!(late.op.result(), 4);
    assert_eq!(&buf, b"data");
    let late = p.queue(recv(&a, &mut buf), &mut ready);
    late.op.set_timed_out();
    assert!(p.cancel(&late));
    assert_eq!(late.op.result(), -libc::ECANCELED);
    // The end of a run does not wait for the operation.
    let ended = p.queue(recv(&a, &mut buf), &mut ready);
    b.write_all(b"data").unwrap();
    assert!(p.cancel(&ended));
    assert_eq!(ended.op.result(), -libc::ECANCELED);
}

#[test]
fn cancelling_against_data_loses_neither_byte_nor_completion() {
    const ROUNDS: usize = 20_000;
    let p = poller();
    let (a, mut b) = UnixStream::pair().unwrap();
    // The operation to cancel, null between two rounds; and the result.
    let target: AtomicPtr<Waits> = AtomicPtr::default();
    let is_cancellers = AtomicBool::new(false);
    let over = AtomicBool::new(false);
    let (mut n_read, mut n_cancelled) = (0, 0);
    std::thread::scope(|s| {
        let (target, is_cancellers, over, p) = (&target, &is_cancellers, &over, &p);
        s.spawn(move || {
            while !over.load(Ordering::SeqCst) {
                let waits = target.load(Ordering::SeqCst);
                if waits.is_null() {
                    std::thread::yield_now();
                    continue;
                }
                // SAFETY: the round lasts until this thread has cleared the target.
                let mine = p.cancel(unsafe { &*waits });
                is_cancellers.store(mine, Ordering::SeqCst);
                target.store(std::ptr::null_mut(), Ordering::SeqCst);
            }
        });
        let (mut buf, mut ready) = ([0; 1], GList::new());
        for round in 0..ROUNDS {
            let mut waits = p.queue(recv(&a, &mut buf), &mut ready);
            b.write_all(&[round as u8]).unwrap();
            p.epoll.flush(&p.counts);
            // One of the two is clearly first, or they race.
            if round % 4 == 0 {
                p.epoll.reap(&p.counts, &mut ready);
            }
            target.store(&raw mut waits, Ordering::SeqCst);
            while round % 4 == 1 && !target.load(Ordering::SeqCst).is_null() {
                std::thread::yield_now();
            }
            for _ in 0..round % 64 {
                std::hint::spin_loop();
            }
            p.epoll.reap(&p.counts, &mut ready);
            while !target.load(Ordering::SeqCst).is_null() {
                std::thread::yield_now();
            }
            if !is_cancellers.load(Ordering::SeqCst) && ready.is_empty() {
                // The cancel came while the owner worked on the operation; in the runtime it would
                // be retried.
                p.wait_for(1, &mut ready);
            }
            assert_ne!(
                ready.pop().is_some(),
                is_cancellers.load(Ordering::SeqCst),
                "one of the two has the G"
            );
            if waits.op.result() == -libc::ECANCELED {
                n_cancelled += 1;
                assert_eq!((&a).read(&mut buf).unwrap(), 1);
            } else {
                n_read += 1;
                assert_eq!(waits.op.result(), 1);
            }
            assert_eq!(buf, [round as u8]);
            assert_eq!(p.counts.inflight(), 0);
        }
        over.store(true, Ordering::SeqCst);
    });
    assert_eq!(n_read + n_cancelled, ROUNDS);
    assert!(n_read > 0 && n_cancelled > 0, "{n_read} {n_cancelled}");
}

#[test]
fn a_wake_ends_the_wait() {
    for precise in [true, false] {
        let p = poller();
        p.epoll.precise.set(precise);
        std::thread::scope(|s| {
            let p = &p;
            s.spawn(move || {
                #[expect(clippy::disallowed_methods, reason = "a plain thread of a test")]
                std::thread::sleep(std::time::Duration::from_millis(20));
                p.epoll.wake();
            });
            p.epoll.wait(&p.counts, NEVER);
        });
        assert!(!p.epoll.has_completions());
        // An early wake is not lost, and several count as one.
        for _ in 0..3 {
            p.epoll.wake();
        }
        p.epoll.wait(&p.counts, NEVER);
        assert!(!p.epoll.has_completions());
        let before = clock::now_ns();
        p.epoll.wait(&p.counts, before + 2_000_000);
        assert!(clock::now_ns() >= before + 2_000_000);
    }
}

#[test]
fn what_cannot_be_waited_for_says_why() {
    let p = poller();
    let (mut buf, mut ready) = ([0; 8], GList::new());
    // A file is always ready, and is no socket.
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    let waits = p.queue(recv(&file, &mut buf), &mut ready);
    assert_eq!(ready.pop(), Some(waits.g));
    assert_eq!(waits.op.result(), -libc::ENOTSOCK);
    // A number with no open descriptor.
    let closed = Request::Recv {
        fd: 999_999,
        buf: buf.as_mut_ptr(),
        len: 1,
        flags: 0,
    };
    let waits = p.queue(closed, &mut ready);
    assert_eq!(waits.op.result(), -libc::EBADF);
    assert_eq!(p.counts.inflight(), 0);
}

/// Entries in the error queue make a socket ready all the time: the operation completes at once.
#[test]
fn an_error_queue_that_nobody_reads_is_reported_once() {
    let p = poller();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let a = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut b, _) = listener.accept().unwrap();
    let flags = libc::SOF_TIMESTAMPING_TX_SOFTWARE | libc::SOF_TIMESTAMPING_SOFTWARE;
    // SAFETY: the option is a number of this length.
    let r = unsafe {
        libc::setsockopt(
            a.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_TIMESTAMPING,
            (&raw const flags).cast(),
            size_of_val(&flags) as u32,
        )
    };
    assert_eq!(r, 0);
    (&a).write_all(b"stamped").unwrap();
    let mut word = [0; 7];
    b.read_exact(&mut word).unwrap();
    let (mut buf, mut ready) = ([0; 8], GList::new());
    let waits = p.queue(recv(&a, &mut buf), &mut ready);
    p.wait_for(1, &mut ready);
    assert_eq!(ready.pop(), Some(waits.g));
    assert_eq!(waits.op.result(), IN_VAIN);
    assert_eq!(p.counts.inflight(), 0);
    // Nothing is armed any more.
    assert_eq!(p.turn(&mut ready), 0);
    // Data counts, and not what lies beside it.
    let waits = p.queue(recv(&a, &mut buf), &mut ready);
    b.write_all(b"data").unwrap();
    while socket::poll_now(a.as_fd(), libc::POLLIN).unwrap() & libc::POLLIN == 0 {}
    p.wait_for(1, &mut ready);
    assert_eq!(waits.op.result(), 4);
    assert_eq!(p.counts.inflight(), 0);
}

/// The address of a Unix socket as `connect` takes it: abstract names only.
fn sockaddr_un(addr: &SocketAddr) -> (libc::sockaddr_un, libc::socklen_t) {
    use std::os::linux::net::SocketAddrExt;
    let name = addr.as_abstract_name().unwrap();
    // SAFETY: all-zero is a valid address.
    let mut raw: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    raw.sun_family = libc::AF_UNIX as libc::sa_family_t;
    for (to, from) in raw.sun_path[1..].iter_mut().zip(name) {
        *to = *from as libc::c_char;
    }
    (raw, (3 + name.len()) as libc::socklen_t)
}

#[test]
fn a_connect_waits_for_room_in_a_unix_listeners_queue() {
    use std::os::linux::net::SocketAddrExt;
    let p = poller();
    let name = format!("windlass-epoll-test-{}", std::process::id());
    let addr = SocketAddr::from_abstract_name(name).unwrap();
    let listener = UnixListener::bind_addr(&addr).unwrap();
    // SAFETY: takes plain numbers; the queue is made short.
    assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 1) }, 0);
    let (raw, len) = sockaddr_un(&addr);
    let mut ready = GList::new();
    let mut sockets = Vec::new();
    let mut waits = Vec::new();
    while waits.len() < 3 {
        // SAFETY: takes plain numbers and returns a descriptor that has no other owner.
        let socket =
            unsafe { OwnedFd::from_raw_fd(libc::socket(libc::AF_UNIX, libc::SOCK_STREAM, 0)) };
        let request = Request::Connect {
            fd: socket.as_raw_fd(),
            addr: (&raw const raw).cast(),
            len,
        };
        let one = p.queue(request, &mut ready);
        match ready.pop() {
            Some(_) => assert_eq!(one.op.result(), 0),
            None => waits.push(one),
        }
        sockets.push(socket);
        assert!(sockets.len() < 100);
    }
    assert!(p.cancel(&waits[2]));
    for _ in 0..2 {
        listener.accept().unwrap();
    }
    p.wait_for(2, &mut ready);
    assert!(waits[..2].iter().all(|one| one.op.result() == 0));
    // SAFETY: asks about a descriptor that is open.
    let flags = unsafe { libc::fcntl(sockets[0].as_raw_fd(), libc::F_GETFL) };
    assert_eq!(flags & libc::O_NONBLOCK, 0, "blocking, as it was");
}

#[test]
fn connecting_over_tcp() {
    let p = poller();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let open = listener.local_addr().unwrap();
    // Bound, so that no other process gets the port, and not listening.
    let deaf = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    deaf.bind(&std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into())
        .unwrap();
    let shut = deaf.local_addr().unwrap().as_socket().unwrap();
    for (addr, expected) in [(open, 0), (shut, -libc::ECONNREFUSED)] {
        let mut ready = GList::new();
        // SAFETY: takes plain numbers and returns a descriptor that has no other owner.
        let socket =
            unsafe { OwnedFd::from_raw_fd(libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0)) };
        let raw = libc::sockaddr_in {
            sin_family: libc::AF_INET as libc::sa_family_t,
            sin_port: addr.port().to_be(),
            sin_addr: libc::in_addr {
                s_addr: u32::from_ne_bytes([127, 0, 0, 1]),
            },
            sin_zero: [0; 8],
        };
        let request = Request::Connect {
            fd: socket.as_raw_fd(),
            addr: (&raw const raw).cast(),
            len: size_of_val(&raw) as libc::socklen_t,
        };
        let waits = p.queue(request, &mut ready);
        if ready.is_empty() {
            p.wait_for(1, &mut ready);
        }
        assert_eq!(waits.op.result(), expected);
    }
}

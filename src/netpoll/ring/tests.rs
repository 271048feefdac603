//! Tests of a ring by itself, on a plain thread: the properties that the scheduler relies on.

use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

use super::*;
use crate::g::header::GRef;
use crate::g::slab;
use crate::g::status::{Reason, WaitId};
use crate::netpoll::multishot_poll::{RingThread, WaitStart};
use crate::sys::probe;
use crate::util::test_child;

thread_local!(
    /// Operations that are denied to the rings of runtimes built on this thread: a bit for each
    /// opcode.
    pub(crate) static DENIED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) }
);

/// A ring on which operations with an opcode in `denied` fail with EACCES, as those that a
/// container's filter forbids.
pub(super) fn restricted(denied: u64) -> io::Result<IoUring> {
    use io_uring::register::Restriction;

    if denied == 0 {
        return builder().build(ENTRIES);
    }
    let ring = builder().setup_r_disabled().build(ENTRIES)?;
    /// Opcodes of `io_uring_register(2)`: threads, buffers, cancelling.
    const REGISTERS: [u8; 4] = [19, 22, 23, 24];
    /// The number of opcodes that every supported kernel has.
    const OPERATIONS: u8 = 48;
    let mut allowed = vec![Restriction::sqe_flags_allowed(u8::MAX)];
    allowed.extend(REGISTERS.map(Restriction::register_op));
    let operations = (0..OPERATIONS).filter(|&op| denied >> op & 1 == 0);
    allowed.extend(operations.map(Restriction::sqe_op));
    ring.submitter().register_restrictions(&mut allowed)?;
    ring.submitter().register_enable_rings()?;
    Ok(ring)
}

/// A ring with its counts, as a poller has them.
struct Counted {
    ring: Ring,
    counts: Counts,
}

impl From<Ring> for Counted {
    fn from(ring: Ring) -> Counted {
        Counted {
            ring,
            counts: Counts::default(),
        }
    }
}

impl Counted {
    fn inflight(&self) -> u32 {
        self.counts.inflight()
    }

    fn flush(&self) {
        self.ring.flush(&self.counts);
    }

    fn wait(&self, deadline_ns: u64) {
        self.ring.wait(&self.counts, deadline_ns);
    }

    fn reap(&self, ready: &mut GList) -> usize {
        self.ring.reap(&self.counts, ready)
    }
}

impl std::ops::Deref for Counted {
    type Target = Ring;
    fn deref(&self) -> &Ring {
        &self.ring
    }
}

fn opened(features: Features) -> Counted {
    let ring = Ring::new(features);
    ring.open().unwrap();
    ring.into()
}

fn ring() -> Counted {
    let features = probe::probe().expect("these tests need io_uring");
    opened(features)
}

fn eventfd_ring() -> Counted {
    let features = Features {
        msg_wake: false,
        ..probe::probe().unwrap()
    };
    opened(features)
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

/// A goroutine that waits, and its operation.
fn waiting_op() -> (GRef, Box<Op>) {
    let (g, wait) = waiting_g();
    let op = Box::new(Op::new(g));
    op.publish();
    op.bind(wait);
    (g, op)
}

fn recv_into(from: &UnixStream, buf: &mut [u8], flags: i32) -> Request {
    Request::Recv {
        fd: from.as_raw_fd(),
        buf: buf.as_mut_ptr(),
        len: buf.len() as u32,
        flags,
    }
}

fn recv(ring: &Counted, from: &UnixStream, buf: &mut [u8], ready: &mut GList) -> (GRef, Box<Op>) {
    let (g, op) = waiting_op();
    let request = recv_into(from, buf, 0);
    // SAFETY: the tests keep the buffer and the operation until it has completed.
    unsafe { ring.queue(&ring.counts, &request, &op, 1, ready) };
    (g, op)
}

fn wait_for(ring: &Counted, n: usize, ready: &mut GList) {
    let mut got = ring.reap(ready);
    while got < n {
        ring.wait(clock::now_ns() + 5_000_000_000);
        let more = ring.reap(ready);
        assert!(more > 0, "no completion came");
        got += more;
    }
}

#[test]
fn a_completion_readies_the_g() {
    let ring = ring();
    let (a, mut b) = UnixStream::pair().unwrap();
    let mut buf = [0; 8];
    let mut ready = GList::new();
    let (g, op) = recv(&ring, &a, &mut buf, &mut ready);
    assert_eq!((ring.inflight(), ring.pending()), (1, 1));
    ring.flush();
    assert_eq!(ring.pending(), 0);
    b.write_all(b"hi").unwrap();
    wait_for(&ring, 1, &mut ready);
    assert_eq!(ready.pop(), Some(g));
    assert_eq!(op.result(), 2);
    assert_eq!(ring.inflight(), 0);
}

#[test]
fn a_full_submission_queue_is_flushed_and_loses_nothing() {
    let ring = ring();
    let n = ENTRIES as usize * 3;
    let (a, mut b) = UnixStream::pair().unwrap();
    let mut bufs = vec![[0u8; 1]; n];
    let mut ready = GList::new();
    let ops: Vec<_> = bufs
        .iter_mut()
        .map(|buf| recv(&ring, &a, buf, &mut ready))
        .collect();
    assert_eq!(ring.inflight() as usize + ready.len(), n);
    ring.flush();
    b.write_all(&vec![7; n]).unwrap();
    wait_for(&ring, n, &mut ready);
    assert_eq!(ready.len(), n);
    assert!(ops.iter().all(|(_, op)| op.result() == 1));
}

#[test]
fn completions_beyond_the_queue_are_kept() {
    let ring = ring();
    let n = COMPLETIONS as usize + 500;
    let (a, b) = UnixStream::pair().unwrap();
    let mut bufs = vec![[0u8; 1]; n];
    let mut ready = GList::new();
    let ops: Vec<_> = bufs
        .iter_mut()
        .map(|buf| recv(&ring, &a, buf, &mut ready))
        .collect();
    ring.flush();
    // Every receive completes at once, with the end of the stream.
    drop(b);
    wait_for(&ring, n, &mut ready);
    assert_eq!(ready.len(), n);
    assert!(ops.iter().all(|(_, op)| op.result() == 0));
    assert_eq!(ring.inflight(), 0);
}

#[test]
fn a_wake_ends_the_wait() {
    for ring in [ring(), eventfd_ring()] {
        std::thread::scope(|s| {
            // The waker is the only part of a ring that other threads use.
            let waker = WakerRef(ring.waker());
            s.spawn(move || {
                let waker = waker;
                std::thread::sleep(std::time::Duration::from_millis(20));
                waker.0.wake();
            });
            let mut ready = GList::new();
            ring.wait(NEVER);
            assert_eq!(ring.reap(&mut ready), 0);
            // An early wake is not lost.
            ring.waker().wake();
            ring.wait(NEVER);
            ring.reap(&mut ready);
        });
    }
}

struct WakerRef<'a>(&'a Waker);

#[test]
fn a_wake_that_is_refused_for_now_is_sent_again() {
    let tries = |errnos: &[i32]| {
        let mut n = 0;
        send_wake(|| {
            n += 1;
            let errno = errnos.get(n - 1);
            errno.map_or(Ok(()), |&e| Err(io::Error::from_raw_os_error(e)))
        });
        n
    };
    assert_eq!(tries(&[]), 1);
    assert_eq!(tries(&[libc::ENOMEM, libc::EAGAIN, libc::EINTR]), 4);
    assert_eq!(tries(&[libc::ENOMEM; 100]), WAKE_TRIES as usize, "bounded");
    assert_eq!(tries(&[libc::EBADF; 100]), 1, "closed");
    assert_eq!(tries(&[libc::EOVERFLOW; 100]), 1, "it has completions");
}

/// The state of one of this process's threads, from `/proc`.
fn thread_state(tid: i32) -> char {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{tid}/stat")).unwrap();
    stat.rsplit(')')
        .next()
        .unwrap()
        .trim()
        .chars()
        .next()
        .unwrap()
}

extern "C" fn sleep_and_exit(_: *mut libc::c_void) -> libc::c_int {
    let ts = libc::timespec {
        tv_sec: 4,
        tv_nsec: 0,
    };
    // SAFETY: plain system calls, in a child that shares this process's memory.
    unsafe {
        libc::syscall(libc::SYS_nanosleep, &raw const ts, 0);
        libc::syscall(libc::SYS_exit, 0);
    }
    0
}

/// Blocks the calling thread for some seconds, in a state that not even a signal interrupts.
fn block_uninterruptibly() {
    let mut stack = vec![0u128; 4096];
    // SAFETY: the stack outlives the child: the call returns when the child has ended.
    unsafe {
        let top = stack.as_mut_ptr().add(stack.len()).cast();
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        let pid = libc::clone(sleep_and_exit, top, flags, std::ptr::null_mut());
        assert!(pid > 0);
        libc::waitpid(pid, std::ptr::null_mut(), 0);
    }
}

/// The eventfd read that a thread left in the ring completes on that thread only. A thread that
/// takes the ring over does not wait for it.
#[test]
fn a_wake_reaches_the_thread_that_took_the_ring_over() {
    struct Moves(Counted);
    // SAFETY: the threads use it in turns.
    unsafe impl Sync for Moves {}

    let ring = Moves(eventfd_ring());
    let (send, received) = std::sync::mpsc::channel();
    let is_back = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|s| {
        let (ring, is_back) = (&ring, &is_back);
        s.spawn(move || {
            ring.0.wait(clock::now_ns() + 1_000_000);
            send.send(crate::sys::sched::gettid()).unwrap();
            block_uninterruptibly();
            is_back.store(true, Ordering::SeqCst);
        });
        let first = received.recv().unwrap();
        while thread_state(first) != 'D' {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let mut ready = GList::new();
        ring.0.ring.adopt();
        // What has completed by then.
        for _ in 0..3 {
            ring.0.wait(clock::now_ns() + 1_000_000);
            ring.0.reap(&mut ready);
        }
        let waker = WakerRef(ring.0.waker());
        s.spawn(move || {
            let waker = waker;
            std::thread::sleep(std::time::Duration::from_millis(20));
            waker.0.wake();
        });
        ring.0.wait(clock::now_ns() + 10_000_000_000);
        assert!(ring.0.has_unread());
        assert!(
            !is_back.load(Ordering::SeqCst),
            "woken by the first thread only"
        );
    });
}

#[test]
fn a_wait_ends_at_its_deadline() {
    let ring = ring();
    let before = clock::now_ns();
    ring.wait(before + 1_000_000);
    assert!(clock::now_ns() >= before + 1_000_000);
}

#[test]
fn a_cancelled_operation_completes() {
    let ring = ring();
    let (a, _b) = UnixStream::pair().unwrap();
    let mut buf = [0; 1];
    let mut ready = GList::new();
    let (_, op) = recv(&ring, &a, &mut buf, &mut ready);
    let early = crate::sys::uring::sync_cancel(ring.borrow(), op.user_data());
    assert_eq!(early.unwrap_err().raw_os_error(), Some(libc::ENOENT));
    ring.flush();
    crate::sys::uring::sync_cancel(ring.borrow(), op.user_data()).unwrap();
    wait_for(&ring, 1, &mut ready);
    assert_eq!(op.result(), -libc::ECANCELED);
}

/// Rings may be denied the operation that cancels others.
#[test]
fn all_is_cancelled_where_a_ring_may_not_cancel() {
    DENIED.set(1 << io_uring::opcode::AsyncCancel::CODE);
    let ring = ring();
    DENIED.set(0);
    let (a, _b) = UnixStream::pair().unwrap();
    let (mut bufs, mut ready) = ([[0; 8]; 2], GList::new());
    let receive = recv_into(&a, &mut bufs[0], libc::MSG_DONTWAIT);
    let (poll, _g, _polled) = polled(&ring, &a, &receive);
    // Queued, and not submitted.
    let (c, _d) = UnixStream::pair().unwrap();
    let (_, op) = recv(&ring, &c, &mut bufs[1], &mut ready);
    ring.cancel_all(&ring.counts);
    for _ in 0..50 {
        ring.wait(clock::now_ns() + 100_000_000);
        ring.reap(&mut ready);
        ring.dispatch_events(&ring.counts, usize::MAX, None, &mut ready);
        if ring.inflight() == 0 {
            break;
        }
    }
    assert_eq!((ring.inflight(), op.result()), (0, -libc::ECANCELED));
    assert_eq!(Arc::strong_count(&poll), 1, "the ring's reference");
}

/// In a process of its own, in which no other test opens descriptors that have the same numbers.
#[test]
fn closing_gives_the_descriptors_back() {
    const NAME: &str = "netpoll::ring::tests::closing_gives_the_descriptors_back";
    if test_child::case().is_none() {
        return test_child::passes(NAME, "close");
    }
    let ring = eventfd_ring();
    let fds = [ring.fd(), ring.waker().event_fd().unwrap()];
    ring.close();
    for fd in fds {
        // SAFETY: fcntl takes any number.
        assert_eq!(unsafe { libc::fcntl(fd, libc::F_GETFD) }, -1);
    }
}

/// A multishot poll on `from`, and its waiter: a goroutine that makes `receive`.
fn polled(
    ring: &Counted,
    from: &UnixStream,
    receive: &Request,
) -> (Arc<MultishotPoll>, GRef, Box<Op>) {
    let (g, op) = waiting_op();
    // SAFETY: the tests keep the request until it has completed.
    unsafe { op.set_request(receive) };
    let (poll, mut ready) = (Arc::new(MultishotPoll::new()), GList::new());
    let here = RingThread::new(ring.fd(), 0, std::ptr::null());
    let armed_on = (here, 1);
    // SAFETY: this thread owns the ring.
    unsafe {
        ring.ring
            .arm_multishot_poll(&ring.counts, from.as_raw_fd(), &poll, armed_on, &mut ready);
    }
    assert_eq!(poll.wait(&op, here), WaitStart::Waits);
    (poll, g, op)
}

/// Ends a poll, and dispatches its last completion.
fn end(ring: &Counted, poll: &Arc<MultishotPoll>) {
    let mut ready = GList::new();
    poll.stop();
    while ring.inflight() > 0 {
        ring.wait(clock::now_ns() + 5_000_000_000);
        ring.reap(&mut ready);
        ring.dispatch_events(&ring.counts, usize::MAX, None, &mut ready);
    }
    assert_eq!(Arc::strong_count(poll), 1, "the ring's reference");
}

#[test]
fn what_a_poll_tells_begins_the_receive_of_who_waits() {
    for begins in [true, false] {
        let ring = ring();
        let (a, mut b) = UnixStream::pair().unwrap();
        let (mut buf, mut ready) = ([0; 8], GList::new());
        let receive = recv_into(&a, &mut buf, libc::MSG_DONTWAIT);
        let (poll, g, op) = polled(&ring, &a, &receive);
        b.write_all(b"hello").unwrap();
        ring.wait(clock::now_ns() + 5_000_000_000);
        assert_eq!(ring.reap(&mut ready), 0, "no operation has completed");
        assert!(ring.has_pending_events() && ready.is_empty());
        assert_eq!(
            ring.dispatch_events(&ring.counts, 32, begins.then_some(1), &mut ready),
            1,
            "the result"
        );
        if begins {
            assert!(ready.is_empty());
            wait_for(&ring, 1, &mut ready);
            assert_eq!((op.result(), &buf[..5]), (5, &b"hello"[..]));
        } else {
            assert_eq!(op.result(), 0, "it is to receive by itself");
        }
        assert_eq!(op.seen().is_some(), begins);
        assert_eq!(ready.pop(), Some(g));
        end(&ring, &poll);
    }
}

#[test]
fn what_there_is_no_room_for_stays_in_the_queue() {
    const MORE: usize = 50;
    let ring = ring();
    let (a, mut b) = UnixStream::pair().unwrap();
    let (mut buf, mut ready) = ([0; 8], GList::new());
    let receive = recv_into(&a, &mut buf, libc::MSG_DONTWAIT);
    let (poll, g, _op) = polled(&ring, &a, &receive);
    for i in 0..PENDING_AT_MOST + MORE {
        b.write_all(b"x").unwrap();
        ring.flush();
        ring.reap(&mut ready);
        assert_eq!(ring.has_unread(), i >= PENDING_AT_MOST, "message {i}");
        // Makes room for more messages.
        std::io::Read::read_exact(&mut &a, &mut [0]).unwrap();
    }
    let hear = |ready: &mut GList| ring.dispatch_events(&ring.counts, usize::MAX, None, ready);
    assert_eq!(hear(&mut ready), PENDING_AT_MOST);
    assert_eq!(ready.pop(), Some(g));
    ring.reap(&mut ready);
    assert!(!ring.has_unread());
    assert_eq!(hear(&mut ready), MORE);
    end(&ring, &poll);
}

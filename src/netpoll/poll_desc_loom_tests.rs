//! Readers that wait for data, a poller that reports it, and a canceller.

use super::{PollDesc, PollWait};
use crate::loom::models::atomic::{AtomicUsize, Ordering};
use crate::loom::models::{self, Arc, UnsafeCell, thread};

/// A socket: the data in it, and its readiness word.
struct Socket {
    bytes: AtomicUsize,
    poll_desc: PollDesc,
    /// How often the wait of the only waiter was ended.
    ended: AtomicUsize,
    /// The waiter's frame: its own until it waits, then that of the thread that ends the wait.
    frame: UnsafeCell<u32>,
}

/// Stand-in for a waiter: an even address.
const WAITER: *const () = std::ptr::without_provenance(8);

impl Socket {
    fn new() -> Arc<Socket> {
        Arc::new(Socket {
            bytes: AtomicUsize::new(0),
            poll_desc: PollDesc::new(),
            ended: AtomicUsize::new(0),
            frame: UnsafeCell::new(0),
        })
    }

    /// A byte arrives: the kernel's side, and then the poller's.
    fn comes(&self) {
        self.bytes.fetch_add(1, Ordering::SeqCst);
        if let (Some(waiter), _) = self.poll_desc.set_ready() {
            assert_eq!(waiter, WAITER);
            self.end();
        }
    }

    /// Ends the wait: uses the frame, and gives it back.
    fn end(&self) {
        self.frame.with_mut(|_| {});
        self.ended.fetch_add(1, Ordering::Release);
    }

    /// As [`Socket::comes`], but the poller receives for the waiter. Returns how much it received.
    fn comes_for_waiter(&self) -> usize {
        self.bytes.fetch_add(1, Ordering::SeqCst);
        let (waiter, seen) = self.poll_desc.set_ready();
        if waiter.is_none() {
            return 0;
        }
        let n = self.receive();
        self.poll_desc.forget(seen);
        self.end();
        n
    }

    /// Receives everything.
    fn receive(&self) -> usize {
        self.bytes.swap(0, Ordering::SeqCst)
    }

    /// Reads until it has `n` bytes; waits while there is nothing. Returns the number of waits.
    fn read(&self, n: usize) -> usize {
        let (mut got, mut waits) = (0, 0);
        while got < n {
            if let Some(seen) = self.poll_desc.look() {
                got += self.receive();
                self.poll_desc.forget(seen);
                continue;
            }
            self.frame.with_mut(|_| {});
            if self.poll_desc.wait(WAITER) == PollWait::Waits {
                waits += 1;
                while self.ended.load(Ordering::Acquire) < waits {
                    thread::yield_now();
                }
                self.frame.with_mut(|_| {});
            }
        }
        waits
    }
}

#[test]
fn loom_edge_no_byte_is_waited_for_in_vain() {
    models::run(|| {
        let socket = Socket::new();
        let kernel = {
            let socket = Arc::clone(&socket);
            thread::spawn(move || {
                socket.comes();
                socket.comes();
            })
        };
        // A lost wake-up shows as a model that never ends.
        let waits = socket.read(2);
        kernel.join().unwrap();
        assert_eq!(socket.ended.load(Ordering::SeqCst), waits);
    });
}

#[test]
fn loom_edge_what_the_poller_receives_hides_nothing() {
    models::run(|| {
        let socket = Socket::new();
        assert_eq!(socket.poll_desc.wait(WAITER), PollWait::Waits);
        let kernel = {
            let socket = Arc::clone(&socket);
            thread::spawn(move || socket.comes_for_waiter() + socket.comes_for_waiter())
        };
        // Another reader, which does not wait.
        let mut got = 0;
        if let Some(seen) = socket.poll_desc.look() {
            got += socket.receive();
            socket.poll_desc.forget(seen);
        }
        got += kernel.join().unwrap();
        assert_eq!(socket.ended.load(Ordering::SeqCst), 1);
        // Data that was not received is known to be there.
        assert!(got == 2 || socket.poll_desc.look().is_some());
    });
}

#[test]
fn loom_edge_a_wait_is_ended_once() {
    models::run(|| {
        let socket = Socket::new();
        assert_eq!(socket.poll_desc.wait(WAITER), PollWait::Waits);
        let kernel = {
            let socket = Arc::clone(&socket);
            thread::spawn(move || socket.comes())
        };
        let cancelled = socket.poll_desc.withdraw(WAITER);
        kernel.join().unwrap();
        let ended = socket.ended.load(Ordering::SeqCst) + usize::from(cancelled);
        assert_eq!(ended, 1);
        // Whichever side ended it, the event is still known.
        assert!(socket.poll_desc.look().is_some());
    });
}

#[test]
fn loom_edge_two_readers_leave_nothing_unknown() {
    models::run(|| {
        let socket = Socket::new();
        let kernel = {
            let socket = Arc::clone(&socket);
            thread::spawn(move || socket.comes())
        };
        let other = {
            let socket = Arc::clone(&socket);
            thread::spawn(move || {
                socket.poll_desc.look().map_or(0, |seen| {
                    let n = socket.receive();
                    socket.poll_desc.forget(seen);
                    n
                })
            })
        };
        let mut got = 0;
        if let Some(seen) = socket.poll_desc.look() {
            got += socket.receive();
            socket.poll_desc.forget(seen);
        }
        kernel.join().unwrap();
        got += other.join().unwrap();
        // A reader that did not get the byte learns that it is there.
        assert!(got == 1 || socket.poll_desc.look().is_some());
    });
}

/// A canceller that withdraws a waiter uses its frame, as the poller does.
#[test]
fn loom_edge_a_withdrawn_frame_is_as_it_was_left() {
    models::run(|| {
        let socket = Socket::new();
        let canceller = {
            let socket = Arc::clone(&socket);
            thread::spawn(move || {
                if socket.poll_desc.withdraw(WAITER) {
                    socket.end();
                }
            })
        };
        socket.frame.with_mut(|_| {});
        assert_eq!(socket.poll_desc.wait(WAITER), PollWait::Waits);
        canceller.join().unwrap();
    });
}

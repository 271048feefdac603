//! A poll that ends and is armed again, a reader on another P that waits for it, and a third reader
//! that finds the stream empty.

use super::{EVENTS, MORE, MultishotPoll, RingThread, WaitStart};
use crate::loom::models::{self, thread};
use crate::loom::{AtomicU64, Ordering};
use std::sync::Arc;

/// Stand-in for a waiter: an even address.
const WAITER: *const () = std::ptr::without_provenance(8);

fn ring_thread(m_id: u64, runtime: usize) -> RingThread {
    // No ring: no call reaches the kernel.
    RingThread::new(
        -2 - m_id as i32,
        m_id,
        std::ptr::without_provenance(runtime),
    )
}

/// Every waiter is woken, by a completion that has come or one that will come.
#[test]
fn loom_watch_nobody_waits_for_a_poll_that_has_ended() {
    models::run(|| {
        let poll = Arc::new(MultishotPoll::new());
        let (p1, p2) = (ring_thread(1, 16), ring_thread(2, 16));
        assert!(poll.begin(p1, 8));
        let n_ended = Arc::new(AtomicU64::new(0));
        // P1 dispatches the last completion.
        let poller = {
            let (poll, n_ended) = (Arc::clone(&poll), Arc::clone(&n_ended));
            thread::spawn(move || {
                let event = poll.complete(-libc::ECANCELED, 0);
                assert!(event.is_last);
                if event.waiter.is_some() {
                    n_ended.fetch_add(1, Ordering::SeqCst);
                }
            })
        };
        // Reader 1 finds nothing, records that, and does not come back.
        let other = {
            let poll = Arc::clone(&poll);
            thread::spawn(move || {
                if let Some(seen) = poll.look() {
                    poll.found_empty(seen);
                }
            })
        };
        // Reader 2, on P2.
        let came = loop {
            match poll.wait_at(WAITER, p2) {
                WaitStart::ToArm => _ = poll.begin(p2, 8),
                WaitStart::Ready => poll.found_empty(poll.look().unwrap()),
                came => break came,
            }
        };
        poller.join().unwrap();
        other.join().unwrap();
        assert_eq!(came, WaitStart::Waits);
        let is_armed = poll.armed.lock().is_some();
        let has_ended = n_ended.load(Ordering::SeqCst) == 1;
        assert!(
            is_armed != has_ended,
            "armed: {is_armed}, woken: {has_ended}"
        );
    });
}

/// An event of a poll never reaches a waiter of another runtime.
#[test]
fn loom_watch_a_poll_serves_its_own_runtime() {
    models::run(|| {
        let poll = Arc::new(MultishotPoll::new());
        let (ours, elsewhere) = (ring_thread(1, 16), ring_thread(2, 16));
        assert!(poll.begin(ours, 8));
        // The other runtime arms the poll as soon as it is not armed.
        let them = {
            let poll = Arc::clone(&poll);
            thread::spawn(move || {
                if poll.begin(ring_thread(3, 32), 8) {
                    let event = poll.complete(EVENTS as i32, MORE);
                    assert!(event.waiter.is_none(), "a waiter of ours");
                }
            })
        };
        let poller = {
            let poll = Arc::clone(&poll);
            thread::spawn(move || {
                poll.complete(-libc::ECANCELED, 0);
            })
        };
        if let Some(seen) = poll.look() {
            poll.found_empty(seen);
        }
        let _ = poll.wait_at(WAITER, elsewhere);
        them.join().unwrap();
        poller.join().unwrap();
    });
}

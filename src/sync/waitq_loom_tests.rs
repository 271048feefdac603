//! Loom models of the wait queue, with threads as waiters. Goroutines differ only in the wake
//! token, which has models of its own in `g::status`.
#![allow(unsafe_code)]

use super::*;
use crate::lock::RawLock;
use crate::loom::models::atomic::{AtomicU32, Ordering};
use crate::loom::models::{self, Arc, UnsafeCell, thread};

/// A counter of available things, and the queue of waiters for them.
struct Shop {
    lock: RawLock,
    queue: WaitQueue,
    /// Guarded by the lock; loom reports unguarded accesses.
    things: UnsafeCell<u32>,
    handed_over: AtomicU32,
}

// SAFETY: queue and things are accessed only under the lock, which loom checks.
unsafe impl Sync for Shop {}
// SAFETY: as above.
unsafe impl Send for Shop {}

impl Shop {
    fn new() -> Arc<Shop> {
        Arc::new(Shop {
            lock: RawLock::new(),
            queue: WaitQueue::new(),
            things: UnsafeCell::new(0),
            handed_over: AtomicU32::new(0),
        })
    }

    /// Gets a thing, or waits for one until the deadline. A thing that is handed over is stored in
    /// the slot.
    fn get(&self, deadline_ns: u64) -> bool {
        let ctx = WaitCtx::enter();
        let slot = UnsafeCell::new(0_u32);
        let waiter = Waiter::new(&ctx);
        let node = WaitNode::new(&waiter, 3, (&raw const slot).cast_mut().cast());
        self.lock.lock();
        // SAFETY: the lock is held.
        let there = self.things.with_mut(|n| unsafe {
            let there = *n > 0;
            *n -= u32::from(there);
            there
        });
        if there {
            self.lock.unlock();
            return true;
        }
        // SAFETY: the lock is held; the node is taken and readied, or removed below.
        unsafe { self.queue.push_back(&node) };
        let options = WaitOptions::new(Reason::Semaphore).until(deadline_ns);
        let chosen = ctx.wait(&waiter, options, || self.lock.unlock());
        if let Some(tag) = chosen {
            assert_eq!(tag, 3);
            // SAFETY: the taker no longer accesses the slot.
            assert_eq!(
                slot.with(|n| unsafe { *n }),
                1,
                "readied before it was served"
            );
            return true;
        }
        self.lock.lock();
        self.queue.remove(&node);
        self.lock.unlock();
        false
    }

    fn put(&self) {
        let ctx = WaitCtx::enter();
        self.lock.lock();
        let taken = self.queue.take();
        match &taken {
            Some(taken) => {
                let slot = taken.slot().cast::<UnsafeCell<u32>>();
                // SAFETY: a taken waiter's frame stays valid, and only the taker accesses it.
                unsafe { (*slot).with_mut(|n| *n = 1) };
                self.handed_over.fetch_add(1, Ordering::Relaxed);
            }
            // SAFETY: the lock is held.
            None => self.things.with_mut(|n| unsafe { *n += 1 }),
        }
        self.lock.unlock();
        if let Some(taken) = taken {
            taken.ready(&ctx);
        }
    }

    fn left(&self) -> u32 {
        assert!(self.queue.is_empty());
        // SAFETY: all other threads have ended.
        self.things.with(|n| unsafe { *n })
    }
}

/// Two threads wait and two things are put: both waiters are served in every order.
#[test]
fn loom_waitq_loses_no_wake() {
    models::run(|| {
        let shop = Shop::new();
        let other = {
            let shop = Arc::clone(&shop);
            thread::spawn(move || assert!(shop.get(NEVER)))
        };
        let putter = {
            let shop = Arc::clone(&shop);
            thread::spawn(move || {
                shop.put();
                shop.put();
            })
        };
        assert!(shop.get(NEVER));
        other.join().unwrap();
        putter.join().unwrap();
        assert_eq!(shop.left(), 0);
    });
}

/// An expired deadline races with a taker: the waiter gets the thing, or the thing stays in the
/// shop.
#[test]
fn loom_waitq_deadline_and_taker() {
    models::run(|| {
        let shop = Shop::new();
        let putter = {
            let shop = Arc::clone(&shop);
            thread::spawn(move || shop.put())
        };
        let got = shop.get(0);
        putter.join().unwrap();
        assert_eq!(shop.left(), u32::from(!got));
    });
}

/// One waiter gives up, another waits on: the thing goes to a waiter that can still be claimed.
#[test]
fn loom_waitq_passes_over_who_gave_up() {
    models::run(|| {
        let shop = Shop::new();
        let hasty = {
            let shop = Arc::clone(&shop);
            thread::spawn(move || {
                if shop.get(0) {
                    shop.put();
                }
            })
        };
        let putter = {
            let shop = Arc::clone(&shop);
            thread::spawn(move || shop.put())
        };
        assert!(shop.get(NEVER));
        hasty.join().unwrap();
        putter.join().unwrap();
        assert_eq!(shop.left(), 0);
    });
}

/// All waiters are taken at once, while one gives up.
#[test]
fn loom_waitq_take_all() {
    models::run(|| {
        let shop = Shop::new();
        let hasty = {
            let shop = Arc::clone(&shop);
            thread::spawn(move || wait_once(&shop, 0))
        };
        let patient = {
            let shop = Arc::clone(&shop);
            thread::spawn(move || wait_once(&shop, NEVER))
        };
        // Ends when the patient waiter was woken.
        while shop.handed_over.load(Ordering::Acquire) == 0 {
            let ctx = WaitCtx::enter();
            shop.lock.lock();
            let all = shop.queue.take_all();
            shop.lock.unlock();
            all.ready(&ctx);
            thread::yield_now();
        }
        hasty.join().unwrap();
        patient.join().unwrap();
        assert_eq!(shop.left(), 0);
    });
}

fn wait_once(shop: &Shop, deadline_ns: u64) {
    let ctx = WaitCtx::enter();
    let waiter = Waiter::new(&ctx);
    let node = WaitNode::new(&waiter, 0, ptr::null_mut());
    shop.lock.lock();
    // SAFETY: the lock is held; the node is taken and readied, or removed below.
    unsafe { shop.queue.push_back(&node) };
    let options = WaitOptions::new(Reason::Condvar).until(deadline_ns);
    let chosen = ctx.wait(&waiter, options, || shop.lock.unlock());
    if chosen.is_none() {
        shop.lock.lock();
        shop.queue.remove(&node);
        shop.lock.unlock();
    }
    if deadline_ns == NEVER {
        assert!(chosen.is_some());
        shop.handed_over.fetch_add(1, Ordering::Release);
    }
}

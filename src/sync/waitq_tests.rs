//! The wait queue with plain threads as waiters.

use std::sync::atomic::AtomicUsize;
use std::thread;
use std::time::Duration;

use super::*;
use crate::lock::RawLock;
use crate::sys::clock::deadline_ns;

/// A queue behind a lock, as its owners use it.
struct Owner {
    lock: RawLock,
    queue: WaitQueue,
}

// SAFETY: the queue is accessed only under the lock.
unsafe impl Sync for Owner {}

impl Owner {
    fn new() -> Owner {
        Owner {
            lock: RawLock::new(),
            queue: WaitQueue::new(),
        }
    }

    fn locked<T>(&self, f: impl FnOnce(&WaitQueue) -> T) -> T {
        self.lock.lock();
        let result = f(&self.queue);
        self.lock.unlock();
        result
    }

    /// Waits with a node whose tag and slot are the same number.
    fn wait(&self, tag: usize, deadline_ns: u64) -> Option<usize> {
        let ctx = WaitCtx::enter();
        let waiter = Waiter::new(&ctx);
        let node = WaitNode::new(&waiter, tag, ptr::without_provenance_mut(tag));
        self.lock.lock();
        // SAFETY: the lock is held; the node stays valid until it was taken and readied, or removed
        // below.
        unsafe { self.queue.push_back(&node) };
        let options = WaitOptions::new(Reason::Mutex).until(deadline_ns);
        let chosen = ctx.wait(&waiter, options, || self.lock.unlock());
        self.locked(|queue| queue.remove(&node));
        chosen
    }

    fn len(&self) -> usize {
        self.locked(|queue| {
            let mut n = 0;
            let mut at = queue.head.get();
            // SAFETY: queued nodes are alive, and the lock is held.
            while let Some(node) = unsafe { at.as_ref() } {
                (n, at) = (n + 1, node.next.get());
            }
            n
        })
    }

    #[allow(clippy::disallowed_methods, reason = "plain threads wait here")]
    fn wait_for_len(&self, n: usize) {
        while self.len() != n {
            thread::yield_now();
        }
    }
}

fn waiters_in_order<'scope>(
    owner: &'scope Owner,
    scope: &'scope thread::Scope<'scope, '_>,
    n: usize,
) -> Vec<thread::ScopedJoinHandle<'scope, Option<usize>>> {
    (0..n)
        .map(|tag| {
            let handle = scope.spawn(move || owner.wait(tag, NEVER));
            owner.wait_for_len(tag + 1);
            handle
        })
        .collect()
}

#[test]
fn the_first_comes_first() {
    let owner = Owner::new();
    thread::scope(|scope| {
        for (tag, waiter) in waiters_in_order(&owner, scope, 5).into_iter().enumerate() {
            let taken = owner.locked(WaitQueue::take).expect("it waits");
            assert_eq!(taken.slot().addr(), tag);
            taken.ready(&WaitCtx::enter());
            assert_eq!(waiter.join().unwrap(), Some(tag));
        }
    });
    assert!(owner.locked(WaitQueue::take).is_none());
}

#[test]
fn links_leave_from_anywhere() {
    let waiter = Waiter::new(&WaitCtx::enter());
    let nodes: Vec<_> = (0..4)
        .map(|tag| WaitNode::new(&waiter, tag, ptr::null_mut()))
        .collect();
    for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2], [2, 0, 3, 1]] {
        let queue = WaitQueue::new();
        // SAFETY: no other code accesses the queue, and the nodes outlive it.
        nodes
            .iter()
            .rev()
            .for_each(|node| unsafe { queue.push_front(node) });
        for (n_gone, &at) in order.iter().enumerate() {
            assert!(nodes[at].queued.get());
            queue.remove(&nodes[at]);
            queue.remove(&nodes[at]);
            let left: Vec<_> = (0..4).filter(|at| !order[..=n_gone].contains(at)).collect();
            let mut found = Vec::new();
            let mut next = queue.head.get();
            // SAFETY: the nodes are alive.
            while let Some(node) = unsafe { next.as_ref() } {
                found.push(node.tag);
                next = node.next.get();
            }
            assert_eq!(found, left);
        }
        assert!(queue.is_empty());
        assert!(queue.tail.get().is_null());
    }
}

#[test]
fn a_deadline_ends_the_wait() {
    let owner = Owner::new();
    assert_eq!(owner.wait(0, 0), None);
    assert_eq!(owner.wait(0, deadline_ns(Duration::from_millis(2))), None);
    assert_eq!(owner.len(), 0);
}

#[test]
fn one_who_gave_up_is_passed_over() {
    let owner = Owner::new();
    let ctx = WaitCtx::enter();
    let gone = Waiter::new(&ctx);
    gone.word.store(GONE, Ordering::Relaxed);
    let node = WaitNode::new(&gone, 7, ptr::without_provenance_mut(7));
    // SAFETY: the node outlives its stay in the queue.
    owner.locked(|queue| unsafe { queue.push_back(&node) });
    thread::scope(|scope| {
        let waiter = scope.spawn(|| owner.wait(1, NEVER));
        owner.wait_for_len(2);
        owner
            .locked(WaitQueue::take)
            .expect("one waits")
            .ready(&ctx);
        assert_eq!(waiter.join().unwrap(), Some(1));
    });
    assert!(!node.queued.get());
    assert_eq!(gone.chosen(), None);
}

#[test]
fn the_front_is_taken_only_if_it_can_be_served() {
    let owner = Owner::new();
    thread::scope(|scope| {
        let waiters = waiters_in_order(&owner, scope, 3);
        let take =
            |most: usize| owner.locked(|queue| queue.take_front_if(|slot| slot.addr() <= most));
        let ctx = WaitCtx::enter();
        for tag in 0..3 {
            if tag > 0 {
                assert!(take(tag - 1).is_none());
            }
            let taken = take(tag).expect("it can be served");
            taken.report(10 + tag);
            taken.ready(&ctx);
        }
        let results: Vec<_> = waiters.into_iter().map(|w| w.join().unwrap()).collect();
        assert_eq!(results, [Some(10), Some(11), Some(12)]);
    });
}

#[test]
fn all_are_taken_in_order_and_readied_together() {
    let owner = Owner::new();
    thread::scope(|scope| {
        let waiters = waiters_in_order(&owner, scope, 6);
        let mut all = owner.locked(WaitQueue::take_all);
        assert!(owner.locked(WaitQueue::is_empty));
        let ctx = WaitCtx::enter();
        let first = all.pop().expect("six wait");
        assert_eq!(first.slot().addr(), 0);
        first.ready(&ctx);
        all.ready(&ctx);
        for (tag, waiter) in waiters.into_iter().enumerate() {
            assert_eq!(waiter.join().unwrap(), Some(tag));
        }
    });
}

/// Deadlines race with takers: each waiter is taken or gives up, never both, and no waiter is left
/// in the queue.
#[test]
fn takers_and_deadlines_agree() {
    const WAITS: usize = if cfg!(miri) { 20 } else { 3_000 };
    let owner = Owner::new();
    let (taken, chosen) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let waiting = AtomicUsize::new(3);
    thread::scope(|scope| {
        for i in 0..3 {
            let (owner, chosen, waiting) = (&owner, &chosen, &waiting);
            scope.spawn(move || {
                for n in 0..WAITS {
                    let deadline = deadline_ns(Duration::from_micros(((n * 7 + i) % 40) as u64));
                    if owner.wait(i, deadline).is_some() {
                        chosen.fetch_add(1, Ordering::Relaxed);
                    }
                }
                waiting.fetch_sub(1, Ordering::Relaxed);
            });
        }
        while waiting.load(Ordering::Relaxed) > 0 {
            if let Some(one) = owner.locked(WaitQueue::take) {
                taken.fetch_add(1, Ordering::Relaxed);
                one.ready(&WaitCtx::enter());
            }
            std::hint::spin_loop();
        }
    });
    assert_eq!(
        taken.load(Ordering::Relaxed),
        chosen.load(Ordering::Relaxed)
    );
    assert_eq!(owner.len(), 0);
}

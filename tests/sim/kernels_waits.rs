//! Bug kernels whose bug is a wait that never ends.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, Waker};

use crate::kernels::kernel;
use windlass::channel::{TrySendError, bounded, unbounded};
use windlass::sim::FailureKind;
use windlass::sync::{Arc, Barrier, Condvar, Mutex, OnceLock, RwLock, Semaphore, WaitGroup};
use windlass::task::JoinHandle;

fn join_all(all: impl IntoIterator<Item = JoinHandle<()>>) {
    all.into_iter().for_each(|one| one.join().unwrap());
}

/// A reader reads again while a writer waits, which lets no new reader pass.
#[test]
fn a_read_lock_taken_twice() {
    kernel("read lock taken twice", FailureKind::Deadlock, |fixed| {
        let table = Arc::new(RwLock::new(vec![1, 2, 3]));
        let reader = {
            let table = Arc::clone(&table);
            windlass::spawn(move || {
                let rows = table.read().unwrap();
                let n = match fixed {
                    true => rows.len(),
                    false => table.read().unwrap().len(),
                };
                assert!(n >= rows.len());
            })
        };
        table.write().unwrap().push(4);
        reader.join().unwrap();
    });
}

/// A message is sent under a lock that the receiver needs first.
#[test]
fn a_message_sent_under_a_lock() {
    kernel("send under a lock", FailureKind::Deadlock, |fixed| {
        let state = Arc::new(Mutex::new(0));
        let (events, inbox) = bounded(0);
        let own = Arc::clone(&state);
        let changes = windlass::spawn(move || {
            for _ in 0..2 {
                let mut now = own.lock().unwrap();
                *now += 1;
                if fixed {
                    drop(now);
                }
                events.send(()).unwrap();
            }
        });
        while let Ok(()) = inbox.recv() {
            assert!(*state.lock().unwrap() > 0);
        }
        changes.join().unwrap();
    });
}

/// The group is awaited under the lock that its members need.
#[test]
fn a_wait_for_a_group_under_a_lock() {
    kernel(
        "wait for a group under a lock",
        FailureKind::Deadlock,
        |fixed| {
            let done = Arc::new(Mutex::new(0));
            let group = WaitGroup::new();
            for _ in 0..2 {
                let done = Arc::clone(&done);
                group.go(move || *done.lock().unwrap() += 1);
            }
            let before = done.lock().unwrap();
            if fixed {
                drop(before);
            }
            group.wait();
            assert_eq!(*done.lock().unwrap(), 2);
        },
    );
}

/// All are counted at once, and the first is awaited before the second begins.
#[test]
fn a_wait_inside_the_loop() {
    kernel("wait inside the loop", FailureKind::Deadlock, |fixed| {
        let group = WaitGroup::new();
        group.add(2);
        for _ in 0..2 {
            let own = group.clone();
            drop(windlass::spawn(move || own.done()));
            if !fixed {
                group.wait();
            }
        }
        group.wait();
    });
}

/// The path of an error leaves without telling those that wait.
#[test]
fn an_error_that_wakes_nobody() {
    kernel("error without a signal", FailureKind::Deadlock, |fixed| {
        let pair = Arc::new((Mutex::new((0, false)), Condvar::new()));
        let worker = |n: i32| {
            let pair = Arc::clone(&pair);
            windlass::spawn(move || {
                let (state, changed) = &*pair;
                let mut now = state.lock().unwrap();
                // The second one in finds the work taken.
                if now.0 != 0 {
                    now.1 = true;
                    if fixed {
                        changed.notify_all();
                    }
                    return;
                }
                now.0 = n;
                drop(now);
                windlass::yield_now();
                changed.notify_all();
            })
        };
        let both = [worker(1), worker(2)];
        let (state, changed) = &*pair;
        drop(changed.wait_while(state.lock().unwrap(), |now| !now.1));
        join_all(both);
    });
}

/// The first error is returned, and the others wait for ever to be taken.
#[test]
fn errors_that_nobody_takes() {
    kernel("first error wins", FailureKind::GoroutinesLeft, |fixed| {
        let (errors, first) = bounded(if fixed { 3 } else { 1 });
        for n in 0..3 {
            let errors = errors.clone();
            drop(windlass::spawn(move || {
                let _ = errors.send(n);
            }));
        }
        // Somebody else holds the receiver, so it is not closed.
        let _ = first.recv();
        std::mem::forget(first);
    });
}

/// The consumer goes on until the channel is closed, and one producer never drops its end.
#[test]
fn a_channel_that_is_never_closed() {
    kernel("channel never closed", FailureKind::Deadlock, |fixed| {
        let (sender, receiver) = unbounded();
        let kept = Arc::new(Mutex::new(Vec::new()));
        let producers = [1, 2].map(|n| {
            let (sender, kept) = (sender.clone(), Arc::clone(&kept));
            windlass::spawn(move || {
                let is_first = kept.lock().unwrap().is_empty();
                sender.send(n).unwrap();
                // The one that comes later puts its end aside, to use it again.
                if !fixed && !is_first {
                    kept.lock().unwrap().push(sender);
                } else if is_first && let Ok(mut kept) = kept.lock() {
                    kept.push(sender.clone());
                    if fixed {
                        kept.clear();
                    }
                    kept.truncate(usize::from(n == 1));
                }
            })
        });
        drop(sender);
        assert_eq!(receiver.iter().sum::<i32>(), 3);
        join_all(producers);
    });
}

/// The signal is sent without waiting, and lost if nobody waits for it yet.
#[test]
fn a_signal_that_is_dropped() {
    kernel(
        "signal dropped by try_send",
        FailureKind::Deadlock,
        |fixed| {
            let (wake, wakes) = bounded(usize::from(fixed));
            let sleeper = windlass::spawn(move || wakes.recv().unwrap());
            // A pending signal is as good as another one.
            let sent = wake.try_send(());
            assert!(!matches!(sent, Err(TrySendError::Disconnected(()))));
            sleeper.join().unwrap();
            drop(wake);
        },
    );
}

/// The state changes without the lock, between the check and the wait.
#[test]
fn a_change_without_the_lock() {
    kernel(
        "state changed without the lock",
        FailureKind::Deadlock,
        |fixed| {
            let shared = Arc::new((AtomicBool::new(false), Mutex::new(()), Condvar::new()));
            let own = Arc::clone(&shared);
            let waiter = windlass::spawn(move || {
                let (is_ready, lock, changed) = &*own;
                let mut guard = lock.lock().unwrap();
                while !is_ready.load(Ordering::Relaxed) {
                    guard = changed.wait(guard).unwrap();
                }
            });
            let changes = windlass::spawn(move || {
                let (is_ready, lock, changed) = &*shared;
                let guard = fixed.then(|| lock.lock().unwrap());
                is_ready.store(true, Ordering::Relaxed);
                drop(guard);
                changed.notify_one();
            });
            join_all([waiter, changes]);
        },
    );
}

/// Two values that are set up lazily, each with the help of the other.
#[test]
fn lazy_values_that_need_each_other() {
    kernel("lazy values in a ring", FailureKind::Deadlock, |fixed| {
        let cells = Arc::new([const { OnceLock::<u32>::new() }; 2]);
        let users = [0, 1].map(|at| {
            let cells = Arc::clone(&cells);
            windlass::spawn(move || {
                let other = &cells[1 - at];
                let value = cells[at].get_or_init(|| match fixed {
                    true => 1,
                    // It is there already, unless the other one comes at the same time.
                    false if other.get().is_some() => 2,
                    false => {
                        windlass::yield_now();
                        2 + *other.get_or_init(|| 1)
                    }
                });
                assert!(*value > 0);
            })
        });
        join_all(users);
    });
}

/// One that fails early never comes to the barrier.
#[test]
fn a_barrier_that_one_does_not_reach() {
    kernel("barrier not reached", FailureKind::Deadlock, |fixed| {
        let barrier = Arc::new(Barrier::new(3));
        let budget = Arc::new(Mutex::new(3));
        let all = [2, 1, 1].map(|price| {
            let (barrier, budget) = (Arc::clone(&barrier), Arc::clone(&budget));
            windlass::spawn(move || {
                let mut left = budget.lock().unwrap();
                let pays = *left >= price;
                *left -= if pays { price } else { 0 };
                drop(left);
                if pays || fixed {
                    barrier.wait();
                }
            })
        });
        join_all(all);
    });
}

/// Permits that are taken one by one: each has one, and waits for another.
#[test]
fn permits_taken_one_by_one() {
    kernel("permits one by one", FailureKind::Deadlock, |fixed| {
        let permits = Arc::new(Semaphore::new(2));
        let both = [(); 2].map(|()| {
            let permits = Arc::clone(&permits);
            windlass::spawn(move || {
                let n = if fixed { 2 } else { 1 };
                let _first = permits.acquire(n).unwrap();
                let _second = permits.acquire(2 - n).unwrap();
            })
        });
        join_all(both);
    });
}

/// Dijkstra's philosophers.
#[test]
fn philosophers() {
    kernel("philosophers", FailureKind::Deadlock, |fixed| {
        let forks = Arc::new([const { Mutex::new(()) }; 4]);
        let all = [0, 1, 2, 3].map(|at: usize| {
            let forks = Arc::clone(&forks);
            windlass::spawn(move || {
                let (left, right) = (at, (at + 1) % 4);
                let swaps = fixed && right < left;
                let (first, second) = if swaps { (right, left) } else { (left, right) };
                let _first = forks[first].lock().unwrap();
                let _second = forks[second].lock().unwrap();
            })
        });
        join_all(all);
    });
}

/// Workers put new work into the queue that they empty.
#[test]
fn a_queue_that_feeds_itself() {
    kernel("queue feeds itself", FailureKind::Deadlock, |fixed| {
        let (tasks, queue) = if fixed { unbounded() } else { bounded(1) };
        let group = WaitGroup::new();
        for _ in 0..2 {
            let (tasks, queue, group) = (tasks.clone(), queue.clone(), group.clone());
            drop(windlass::spawn(move || {
                while let Ok(depth) = queue.recv() {
                    if depth == u32::MAX {
                        return;
                    }
                    for _ in 0..depth {
                        group.add(1);
                        tasks.send(depth - 1).unwrap();
                    }
                    group.done();
                }
            }));
        }
        for _ in 0..2 {
            group.add(1);
            tasks.send(2).unwrap();
        }
        group.wait();
        tasks.send(u32::MAX).unwrap();
        tasks.send(u32::MAX).unwrap();
    });
}

/// Each sends first, and receives afterwards.
#[test]
fn two_that_send_first() {
    kernel("both send first", FailureKind::Deadlock, |fixed| {
        let (to_a, of_a) = bounded(0);
        let (to_b, of_b) = bounded(0);
        let other = windlass::spawn(move || {
            let is_hurried = of_b.is_empty();
            if fixed || !is_hurried {
                assert_eq!(of_b.recv(), Ok(1));
                to_a.send(2).unwrap();
            } else {
                to_a.send(2).unwrap();
                assert_eq!(of_b.recv(), Ok(1));
            }
        });
        to_b.send(1).unwrap();
        assert_eq!(of_a.recv(), Ok(2));
        other.join().unwrap();
    });
}

/// A future looks for its value, and then leaves its waker: between the two the value comes.
#[test]
fn a_waker_left_too_late() {
    #[derive(Default)]
    struct Shared {
        value: Mutex<Option<u32>>,
        waker: Mutex<Option<Waker>>,
    }
    struct Value(Arc<Shared>, bool);
    impl Future for Value {
        type Output = u32;
        fn poll(self: Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> Poll<u32> {
            let leave = || *self.0.waker.lock().unwrap() = Some(cx.waker().clone());
            if self.1 {
                leave();
            }
            if let Some(value) = *self.0.value.lock().unwrap() {
                return Poll::Ready(value);
            }
            if !self.1 {
                leave();
            }
            Poll::Pending
        }
    }
    kernel("waker left too late", FailureKind::Deadlock, |fixed| {
        let shared = Arc::new(Shared::default());
        let own = Arc::clone(&shared);
        let sets = windlass::spawn(move || {
            *own.value.lock().unwrap() = Some(7);
            let waker = own.waker.lock().unwrap().take();
            waker.iter().for_each(Waker::wake_by_ref);
        });
        assert_eq!(windlass::future::block_on(Value(shared, fixed)), 7);
        sets.join().unwrap();
    });
}

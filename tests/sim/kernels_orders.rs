//! Bug kernels whose bug is an order of events that nobody thought of: a panic, or a wrong value.

use std::collections::{HashMap, VecDeque};

use crate::kernels::kernel;
use windlass::channel::{after, bounded, tick, unbounded};
use windlass::sim::FailureKind;
use windlass::sync::{Arc, Condvar, Mutex, RwLock, Semaphore, WaitGroup};
use windlass::task::JoinHandle;
use windlass::time::{Duration, sleep, timeout};

const SECOND: Duration = Duration::from_secs(1);

fn join_all(all: impl IntoIterator<Item = JoinHandle<()>>) {
    all.into_iter().for_each(|one| one.join().unwrap());
}

/// Two close the same thing, after both have seen that it is open.
#[test]
fn a_thing_closed_twice() {
    kernel("closed twice", FailureKind::Panic, |fixed| {
        let (sender, receiver) = bounded::<()>(0);
        let open = Arc::new(Mutex::new(Some(sender)));
        let closers = [(); 2].map(|()| {
            let open = Arc::clone(&open);
            windlass::spawn(move || {
                if fixed {
                    drop(open.lock().unwrap().take());
                } else if open.lock().unwrap().is_some() {
                    drop(
                        open.lock()
                            .unwrap()
                            .take()
                            .expect("close of a closed channel"),
                    );
                }
            })
        });
        assert!(receiver.recv().is_err());
        join_all(closers);
    });
}

/// Two miss the same entry of a cache, and both make it.
#[test]
fn an_entry_made_twice() {
    kernel("cache filled twice", FailureKind::Panic, |fixed| {
        let cache = Arc::new(Mutex::new(HashMap::new()));
        let made = Arc::new(Mutex::new(0));
        let users = [(); 2].map(|()| {
            let (cache, made) = (Arc::clone(&cache), Arc::clone(&made));
            windlass::spawn(move || {
                let connect = || {
                    *made.lock().unwrap() += 1;
                    "connection"
                };
                if fixed {
                    cache.lock().unwrap().entry("db").or_insert_with(connect);
                } else if !cache.lock().unwrap().contains_key("db") {
                    let new = connect();
                    cache.lock().unwrap().insert("db", new);
                }
            })
        });
        join_all(users);
        assert_eq!(*made.lock().unwrap(), 1);
    });
}

/// The length is read, and then used after another one has removed the last element.
#[test]
fn an_index_that_is_out_of_date() {
    kernel("stale index", FailureKind::Panic, |fixed| {
        let peers = Arc::new(RwLock::new(vec!["a", "b"]));
        let own = Arc::clone(&peers);
        let removes = windlass::spawn(move || {
            own.write().unwrap().pop();
        });
        let last = peers.read().unwrap().len() - 1;
        let peers = peers.read().unwrap();
        let peer = if fixed {
            peers.last()
        } else {
            Some(&peers[last])
        };
        assert!(peer.is_some());
        drop(peers);
        removes.join().unwrap();
    });
}

/// The store is closed when its user has been told to stop, and not when it has stopped.
#[test]
fn a_store_closed_too_early() {
    kernel(
        "closed before the user stopped",
        FailureKind::Panic,
        |fixed| {
            let store = Arc::new(Mutex::new(Some(Vec::new())));
            let (stop, stopped) = bounded::<()>(1);
            let own = Arc::clone(&store);
            let user = windlass::spawn(move || {
                for n in 0..3 {
                    if stopped.try_recv().is_ok() {
                        return;
                    }
                    own.lock()
                        .unwrap()
                        .as_mut()
                        .expect("the store is open")
                        .push(n);
                }
            });
            // It may have ended by itself.
            let _ = stop.send(());
            if fixed {
                user.join().unwrap();
                drop(store.lock().unwrap().take());
            } else {
                drop(store.lock().unwrap().take());
                user.join().unwrap();
            }
        },
    );
}

/// A thing is made known before it is complete.
#[test]
fn a_thing_published_too_early() {
    kernel(
        "published before it is complete",
        FailureKind::Panic,
        |fixed| {
            struct Server(Mutex<Option<&'static str>>);
            let registry: Arc<Mutex<Vec<Arc<Server>>>> = Arc::default();
            let own = Arc::clone(&registry);
            let starts = windlass::spawn(move || {
                let server = Arc::new(Server(Mutex::new(None)));
                if !fixed {
                    own.lock().unwrap().push(Arc::clone(&server));
                }
                *server.0.lock().unwrap() = Some("10.0.0.1:80");
                if fixed {
                    own.lock().unwrap().push(server);
                }
            });
            let found = registry.lock().unwrap().first().cloned();
            if let Some(server) = found {
                assert!(server.0.lock().unwrap().is_some(), "no address yet");
            }
            starts.join().unwrap();
        },
    );
}

/// The read lock is given back to get the write lock, and what was read is not read again.
#[test]
fn a_lock_upgraded_with_a_gap() {
    kernel("gap in a lock upgrade", FailureKind::Panic, |fixed| {
        let index = Arc::new(RwLock::new((None, 0)));
        let users = [(); 2].map(|()| {
            let index = Arc::clone(&index);
            windlass::spawn(move || {
                if index.read().unwrap().0.is_none() {
                    let mut index = index.write().unwrap();
                    if !fixed || index.0.is_none() {
                        index.0 = Some("built");
                        index.1 += 1;
                    }
                }
            })
        });
        join_all(users);
        assert_eq!(index.read().unwrap().1, 1);
    });
}

/// `if` instead of `while` around a wait: another consumer was faster.
#[test]
fn a_condition_checked_once() {
    kernel("if instead of while", FailureKind::Panic, |fixed| {
        let queue = Arc::new((Mutex::new(VecDeque::new()), Condvar::new()));
        let consumers = [(); 2].map(|()| {
            let queue = Arc::clone(&queue);
            windlass::spawn(move || {
                let (items, added) = &*queue;
                let mut items = items.lock().unwrap();
                if fixed {
                    items = added.wait_while(items, |items| items.is_empty()).unwrap();
                } else if items.is_empty() {
                    items = added.wait(items).unwrap();
                }
                let item: i32 = items.pop_front().expect("an item was added");
                assert!(item > 0);
            })
        });
        for n in 1..=2 {
            queue.0.lock().unwrap().push_back(n);
            queue.1.notify_all();
        }
        join_all(consumers);
    });
}

/// The buffer is copied and cleared in two steps, and what came between is lost.
#[test]
fn a_buffer_cleared_after_a_gap() {
    kernel(
        "flush loses what comes between",
        FailureKind::Panic,
        |fixed| {
            let buffer = Arc::new(Mutex::new(Vec::new()));
            let own = Arc::clone(&buffer);
            let adds = windlass::spawn(move || (0..3).for_each(|n| own.lock().unwrap().push(n)));
            let mut written = Vec::new();
            for _ in 0..2 {
                if fixed {
                    written.append(&mut buffer.lock().unwrap());
                } else {
                    written.extend(buffer.lock().unwrap().iter());
                    buffer.lock().unwrap().clear();
                }
            }
            adds.join().unwrap();
            written.append(&mut buffer.lock().unwrap());
            assert_eq!(written, [0, 1, 2]);
        },
    );
}

/// The last user frees, after it has given back the lock under which it saw that it was the last.
#[test]
fn a_resource_freed_while_it_is_taken_again() {
    kernel("freed while taken again", FailureKind::Panic, |fixed| {
        #[derive(Default)]
        struct Pool {
            users: Mutex<u32>,
            is_open: Mutex<bool>,
        }
        let pool = Arc::new(Pool::default());
        let users = [(); 2].map(|()| {
            let pool = Arc::clone(&pool);
            windlass::spawn(move || {
                let mut users = pool.users.lock().unwrap();
                *users += 1;
                *pool.is_open.lock().unwrap() = true;
                drop(users);
                assert!(*pool.is_open.lock().unwrap(), "used after it was freed");
                let mut users = pool.users.lock().unwrap();
                *users -= 1;
                let is_last = *users == 0;
                if !fixed {
                    drop(users);
                }
                if is_last {
                    *pool.is_open.lock().unwrap() = false;
                }
            })
        });
        join_all(users);
    });
}

/// The answer and the deadline come together, and both sides clean up.
#[test]
fn a_deadline_and_an_answer_at_once() {
    kernel("cleaned up by both sides", FailureKind::Panic, |fixed| {
        let pending = Arc::new(Mutex::new(vec![7]));
        let remove = move |pending: &Mutex<Vec<u32>>| {
            let mut pending = pending.lock().unwrap();
            let found = pending.iter().position(|&id| id == 7);
            match found {
                Some(at) => drop(pending.remove(at)),
                None => assert!(fixed, "no such request"),
            }
        };
        let own = Arc::clone(&pending);
        let (answer, answered) = bounded(1);
        let worker = windlass::spawn(move || {
            sleep(SECOND);
            remove(&own);
            let _ = answer.send(());
        });
        if answered.recv_timeout(SECOND).is_err() {
            remove(&pending);
        }
        worker.join().unwrap();
    });
}

/// A request that timed out is sent again, although the first one was carried out.
#[test]
fn a_retry_of_something_done() {
    kernel("retry of something done", FailureKind::Panic, |fixed| {
        let (requests, inbox) = unbounded::<(u32, windlass::channel::Sender<()>)>();
        let server = windlass::spawn(move || {
            let (mut balance, mut seen) = (0, Vec::new());
            for (id, done) in inbox {
                if !(fixed && seen.contains(&id)) {
                    balance += 10;
                    seen.push(id);
                }
                sleep(SECOND);
                let _ = done.send(());
            }
            assert_eq!(balance, 10, "carried out twice");
        });
        for _ in 0..2 {
            let (done, answer) = bounded(1);
            requests.send((1, done)).unwrap();
            if answer.recv_timeout(SECOND).is_ok() {
                break;
            }
        }
        drop(requests);
        server.join().unwrap();
    });
}

/// The path of an error gives a permit back that its guard gives back, too.
#[test]
fn a_permit_given_back_twice() {
    kernel("permit given back twice", FailureKind::Panic, |fixed| {
        let permits = Arc::new(Semaphore::new(1));
        let inside = Arc::new(Mutex::new(()));
        let users = [true, false, false].map(|fails| {
            let (permits, inside) = (Arc::clone(&permits), Arc::clone(&inside));
            windlass::spawn(move || {
                let permit = permits.acquire(1).unwrap();
                let alone = inside.try_lock().expect("two are inside");
                windlass::yield_now();
                drop(alone);
                if fails {
                    permits.add_permits(1);
                    if fixed {
                        permit.forget();
                    }
                }
            })
        });
        join_all(users);
    });
}

/// A tick and the stop are ready together, and the select takes the tick.
#[test]
fn a_tick_after_the_stop() {
    kernel("tick after the stop", FailureKind::Panic, |fixed| {
        let is_open = Arc::new(Mutex::new(true));
        let (stop, stopped) = bounded::<()>(1);
        let own = Arc::clone(&is_open);
        let reports = windlass::spawn(move || {
            let ticks = tick(SECOND);
            loop {
                windlass::select! {
                    recv(ticks) -> _ => {
                        if fixed && stopped.try_recv().is_ok() {
                            return;
                        }
                        assert!(*own.lock().unwrap() || fixed, "a report after the stop");
                    }
                    recv(stopped) -> _ => return,
                }
            }
        });
        sleep(3 * SECOND);
        stop.send(()).unwrap();
        *is_open.lock().unwrap() = false;
        reports.join().unwrap();
    });
}

/// Two that report through different channels are taken to report in order.
#[test]
fn messages_of_two_channels() {
    kernel("order across two channels", FailureKind::Panic, |fixed| {
        let (data, rows) = unbounded();
        let (end, ended) = unbounded();
        let producer = windlass::spawn(move || {
            data.send(1).unwrap();
            data.send(2).unwrap();
            drop(data);
            end.send(()).unwrap();
        });
        let mut sum = 0;
        loop {
            windlass::select! {
                recv(rows) -> row => match row {
                    Ok(n) => sum += n,
                    Err(_) => break,
                },
                recv(ended) -> _ => {
                    sum += if fixed { rows.iter().sum() } else { 0 };
                    break;
                }
            }
        }
        assert_eq!(sum, 3);
        producer.join().unwrap();
    });
}

/// A group is awaited, and members are still being added.
#[test]
fn a_group_that_still_grows() {
    kernel("group still grows", FailureKind::Panic, |fixed| {
        let group = WaitGroup::new();
        let sum = Arc::new(Mutex::new(0));
        let (own, total) = (group.clone(), Arc::clone(&sum));
        group.go(move || {
            for n in 1..=2 {
                let total = Arc::clone(&total);
                let adds = move || *total.lock().unwrap() += n;
                if fixed {
                    own.go(adds);
                } else {
                    // It counts itself as soon as it runs.
                    let own = own.clone();
                    drop(windlass::spawn(move || own.go(adds)));
                }
            }
        });
        group.wait();
        assert_eq!(*sum.lock().unwrap(), 3);
    });
}

/// A deadline for each message, where one for all of them was meant.
#[test]
fn a_deadline_that_begins_anew() {
    kernel("deadline begins anew", FailureKind::Panic, |fixed| {
        let (beat, beats) = bounded(0);
        let start = windlass::time::Instant::now();
        drop(windlass::spawn(move || {
            for _ in 0..4 {
                sleep(SECOND);
                if beat.send(()).is_err() {
                    return;
                }
            }
        }));
        let all = after(2 * SECOND);
        let mut n = 0;
        loop {
            let limit = if fixed {
                all.clone()
            } else {
                after(2 * SECOND)
            };
            windlass::select! {
                recv(beats) -> beat => match beat {
                    Ok(()) => n += 1,
                    Err(_) => break,
                },
                recv(limit) -> _ => break,
            }
        }
        assert!(start.elapsed() <= 2 * SECOND, "{n} beats took too long");
    });
}

/// A change is taken back when the caller gives up, and was seen meanwhile.
#[test]
fn a_change_taken_back() {
    kernel("dirty read", FailureKind::Panic, |fixed| {
        let account = Arc::new((Mutex::new(100), Mutex::new(())));
        let own = Arc::clone(&account);
        let pays = windlass::spawn(move || {
            let (balance, transaction) = &*own;
            let _transaction = fixed.then(|| transaction.lock().unwrap());
            *balance.lock().unwrap() -= 80;
            let paid = timeout(SECOND, || sleep(2 * SECOND));
            if paid.is_err() {
                *balance.lock().unwrap() += 80;
            }
        });
        let seen = {
            let (balance, transaction) = &*account;
            let _transaction = fixed.then(|| transaction.lock().unwrap());
            *balance.lock().unwrap()
        };
        assert_eq!(seen, 100, "it is never paid");
        pays.join().unwrap();
    });
}

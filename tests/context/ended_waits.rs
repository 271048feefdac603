//! Waits for locks, permits, notifications and ends of goroutines that a context cuts
//! short: what they give, and that what they were to have goes to the next in the queue.
#![allow(clippy::disallowed_methods, reason = "plain threads take part")]

use std::error::Error as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::util::{Census, Gate, hang_guard, is_simulated, run, runtime, wait_until};
use windlass::context::{Canceller, Context, Error, shield};
use windlass::sync::{
    Arc, Barrier, Condvar, LazyLock, Mutex, Once, OnceLock, RwLock, Semaphore, WaitGroup,
};
use windlass::task::{self, JoinHandle};
use windlass::time::{Duration, Instant, timeout};
use windlass::{sleep, spawn, yield_now};

const FOREVER: Duration = Duration::from_secs(1 << 30);
const MOMENT: Duration = Duration::from_millis(2);

type Table = LazyLock<u32, Box<dyn FnOnce() -> u32 + Send>>;
/// Gets something, and calls the closure while it has it.
type Keeper = fn(&Rooms, &dyn Fn());

/// Everything to wait for, none of it to be had before `keep` says so.
struct Rooms {
    mutex: Mutex<()>,
    lock: RwLock<()>,
    free: Mutex<u32>,
    changed: Condvar,
    semaphore: Semaphore,
    barrier: Barrier,
    group: WaitGroup,
    never: Once,
    running: Once,
    cell: OnceLock<u32>,
    table: Table,
    gate: Gate,
}

impl Rooms {
    fn new() -> Arc<Rooms> {
        Arc::new(Rooms {
            mutex: Mutex::new(()),
            lock: RwLock::new(()),
            free: Mutex::new(0),
            changed: Condvar::new(),
            semaphore: Semaphore::new(1),
            barrier: Barrier::new(usize::MAX),
            group: WaitGroup::new(),
            never: Once::new(),
            running: Once::new(),
            cell: OnceLock::new(),
            table: LazyLock::new(Box::new(|| 7)),
            gate: Gate::default(),
        })
    }

    /// Keeps everything closed until [`Rooms::let_go`], by as many threads as it takes.
    fn keep(self: &Arc<Rooms>) -> Vec<std::thread::JoinHandle<()>> {
        let n_kept = Arc::new(AtomicUsize::new(0));
        self.group.add(1);
        let keepers: [Keeper; 5] = [
            |rooms, stay| {
                let _held = rooms.mutex.lock();
                stay();
            },
            |rooms, stay| {
                let _held = rooms.lock.write();
                stay();
            },
            |rooms, stay| {
                let _held = rooms.semaphore.acquire(1);
                stay();
            },
            |rooms, stay| rooms.running.call_once(stay),
            |rooms, stay| {
                rooms.cell.get_or_init(|| {
                    stay();
                    5
                });
            },
        ];
        let all = keepers.map(|keeper| {
            let (rooms, n_kept) = (Arc::clone(self), Arc::clone(&n_kept));
            std::thread::spawn(move || {
                keeper(&rooms, &|| {
                    n_kept.fetch_add(1, Ordering::SeqCst);
                    rooms.gate.wait();
                });
            })
        });
        wait_until(|| n_kept.load(Ordering::SeqCst) == all.len());
        all.into()
    }

    fn let_go(&self, keepers: Vec<std::thread::JoinHandle<()>>) {
        self.gate.open();
        self.group.done();
        keepers.into_iter().for_each(|k| k.join().unwrap());
    }

    /// Everything can be had, so nobody who gave up has left anything behind.
    fn assert_free(&self) {
        assert!(self.mutex.try_lock().is_ok());
        assert!(self.lock.try_write().is_ok());
        assert!(self.free.try_lock().is_ok());
        assert_eq!(self.semaphore.available_permits(), 1);
        assert!(self.running.is_completed() && !self.never.is_completed());
        assert_eq!(self.cell.get(), Some(&5));
        self.group.wait();
    }
}

/// Every wait that is handed a context; each gives its error.
const WAYS: [fn(&Rooms, &Context) -> Option<Error>; 13] = [
    |r, ctx| r.mutex.lock_context(ctx).err(),
    |r, ctx| r.lock.read_context(ctx).err(),
    |r, ctx| r.lock.write_context(ctx).err(),
    |r, ctx| {
        let guard = r.free.lock().unwrap();
        r.changed.wait_context(guard, ctx).unwrap().1.err()
    },
    |r, ctx| {
        let guard = r.free.lock().unwrap();
        let waited = r.changed.wait_while_context(guard, ctx, |n| *n == 0);
        waited.unwrap().1.err()
    },
    |r, ctx| r.semaphore.acquire_context(1, ctx).err(),
    |r, ctx| r.semaphore.acquire_context(7, ctx).err(),
    |r, ctx| r.barrier.wait_context(ctx).err(),
    |r, ctx| r.group.wait_context(ctx).err(),
    |r, ctx| r.never.wait_context(ctx).err(),
    |r, ctx| {
        r.running
            .call_once_context(ctx, || panic!("it ran twice"))
            .err()
    },
    |r, ctx| {
        r.cell
            .get_or_init_context(ctx, || panic!("it was made twice"))
            .err()
    },
    |r, ctx| r.cell.wait_context(ctx).err(),
];

/// Waits in every way, goroutines and threads in turn; each must end with the error.
fn wait_in_every_way(
    rooms: &Arc<Rooms>,
    ctx: &Context,
    n_begun: &Arc<AtomicUsize>,
    expected: Error,
) -> (Vec<JoinHandle<()>>, Vec<std::thread::JoinHandle<()>>) {
    let body = |way: fn(&Rooms, &Context) -> Option<Error>| {
        let (rooms, ctx, n_begun) = (Arc::clone(rooms), ctx.clone(), Arc::clone(n_begun));
        move || {
            n_begun.fetch_add(1, Ordering::SeqCst);
            assert_eq!(way(&rooms, &ctx), Some(expected));
        }
    };
    (
        WAYS.map(|way| spawn(body(way))).into(),
        WAYS.map(|way| std::thread::spawn(body(way))).into(),
    )
}

#[test]
fn a_cancel_ends_every_wait_that_is_handed_a_context() {
    run(2, || {
        for pause in [Duration::ZERO, MOMENT] {
            let rooms = Rooms::new();
            let keepers = rooms.keep();
            let (ctx, canceller) = Context::background().with_cancel();
            let n_begun = Arc::default();
            let (tasks, threads) = wait_in_every_way(&rooms, &ctx, &n_begun, Error::Cancelled);
            wait_until(|| n_begun.load(Ordering::SeqCst) == 2 * WAYS.len());
            sleep(pause);
            canceller.cancel();
            tasks.into_iter().for_each(|t| t.join().unwrap());
            threads.into_iter().for_each(|t| t.join().unwrap());
            rooms.let_go(keepers);
            rooms.assert_free();
        }
    });
}

#[test]
fn a_deadline_ends_every_wait_that_is_handed_a_context() {
    run(2, || {
        let rooms = Rooms::new();
        let keepers = rooms.keep();
        let ctx = Context::background().with_timeout(Duration::from_millis(20));
        let late = Error::DeadlineExceeded;
        let (tasks, threads) = wait_in_every_way(&rooms, &ctx, &Arc::default(), late);
        tasks.into_iter().for_each(|t| t.join().unwrap());
        threads.into_iter().for_each(|t| t.join().unwrap());
        assert!(Instant::now() >= ctx.deadline().unwrap());
        rooms.let_go(keepers);
        rooms.assert_free();
    });
}

#[test]
fn an_ambient_context_ends_waits_that_are_handed_another() {
    run(1, || {
        let rooms = Rooms::new();
        let keepers = rooms.keep();
        let other = Context::background().with_timeout(FOREVER);
        for way in WAYS {
            for ctx in [&other, &Context::background()] {
                let outcome = timeout(MOMENT, || way(&rooms, ctx));
                assert!(outcome.is_err(), "the timeout was not noticed");
                let (ambient, canceller) = Context::background().with_cancel();
                drop(canceller);
                assert_eq!(ambient.run(|| way(&rooms, ctx)), Some(Error::Cancelled));
            }
        }
        rooms.let_go(keepers);
        rooms.assert_free();
    });
}

#[test]
fn what_can_be_had_at_once_is_given_when_the_context_is_done() {
    run(1, || {
        let rooms = Rooms::new();
        let ctx = Context::background().with_timeout(Duration::ZERO);
        assert!(ctx.is_done());
        drop(rooms.mutex.lock_context(&ctx).unwrap().unwrap());
        drop(rooms.lock.read_context(&ctx).unwrap().unwrap());
        drop(rooms.lock.write_context(&ctx).unwrap().unwrap());
        drop(rooms.semaphore.acquire_context(1, &ctx).unwrap().unwrap());
        rooms.group.wait_context(&ctx).unwrap();
        rooms.running.call_once_context(&ctx, || ()).unwrap();
        rooms.running.wait_context(&ctx).unwrap();
        assert_eq!(rooms.cell.get_or_init_context(&ctx, || 5), Ok(&5));
        assert_eq!(rooms.cell.wait_context(&ctx), Ok(&5));
        assert_eq!(LazyLock::force_context(&rooms.table, &ctx), Ok(&7));
        let leader = Barrier::new(1).wait_context(&ctx).unwrap();
        assert!(leader.is_leader());
        let task = spawn(|| 3);
        wait_until(|| task.is_finished());
        assert_eq!(task.join_context(&ctx).unwrap().unwrap(), 3);
        let guard = rooms.free.lock().unwrap();
        let (_guard, outcome) = rooms
            .changed
            .wait_while_context(guard, &ctx, |n| *n != 0)
            .unwrap();
        assert_eq!(outcome, Ok(()));
    });
}

#[test]
fn poison_and_closing_are_told_beside_the_context() {
    run(1, || {
        let ctx = Context::background().with_timeout(FOREVER);
        let (mutex, lock) = (Mutex::new(1), RwLock::new(2));
        let poisoned = catch_unwind(AssertUnwindSafe(|| {
            let _held = (mutex.lock().unwrap(), lock.write().unwrap());
            panic!("on purpose");
        }));
        assert!(poisoned.is_err());
        let guard = mutex.lock_context(&ctx).unwrap().unwrap_err().into_inner();
        assert_eq!(*guard, 1);
        assert!(lock.read_context(&ctx).unwrap().is_err());
        assert!(lock.write_context(&ctx).unwrap().is_err());
        let semaphore = Semaphore::new(0);
        semaphore.close();
        let closed = semaphore.acquire_context(1, &ctx).unwrap().unwrap_err();
        assert!(closed.is_closed());
    });
}

#[test]
fn an_ambient_context_ends_waits_for_permits_and_timed_notifications() {
    run(1, || {
        let semaphore = Semaphore::new(0);
        let (free, changed) = (Mutex::new(()), Condvar::new());
        let start = Instant::now();
        let (cancelled, canceller) = Context::background().with_cancel();
        drop(canceller);
        for ctx in [Context::background().with_timeout(MOMENT), cancelled] {
            ctx.run(|| {
                let e = semaphore.acquire(1).unwrap_err();
                assert!(!e.is_closed());
                let why = e.source().unwrap().downcast_ref::<Error>();
                assert_eq!(why.copied(), ctx.err());
                let e = semaphore.acquire_timeout(1, FOREVER).unwrap_err();
                assert_eq!(e, windlass::sync::AcquireTimeoutError::Timeout);
                let guard = free.lock().unwrap();
                let (guard, outcome) = changed.wait_timeout(guard, FOREVER).unwrap();
                assert!(outcome.timed_out());
                let (_guard, outcome) = changed
                    .wait_timeout_while(guard, FOREVER, |()| true)
                    .unwrap();
                assert!(outcome.timed_out());
            });
        }
        assert!(start.elapsed() < FOREVER);
        assert_eq!(semaphore.available_permits(), 0);
    });
}

/// A wait with a name of std that cannot report being cut short goes on.
#[test]
fn the_names_of_std_wait_in_a_context_that_is_done() {
    run(2, || {
        let rooms = Rooms::new();
        let keepers = rooms.keep();
        let ways: [fn(&Rooms); 6] = [
            |r| drop(r.mutex.lock().unwrap()),
            |r| drop(r.lock.read().unwrap()),
            |r| drop(r.lock.write().unwrap()),
            |r| r.group.wait(),
            |r| r.running.wait(),
            |r| _ = r.cell.wait(),
        ];
        let (n_begun, n_done) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let waiters = ways.map(|way| {
            let rooms = Arc::clone(&rooms);
            let (n_begun, n_done) = (Arc::clone(&n_begun), Arc::clone(&n_done));
            spawn(move || {
                let ctx = Context::background().with_timeout(Duration::ZERO);
                ctx.run(|| {
                    n_begun.fetch_add(1, Ordering::SeqCst);
                    way(&rooms);
                    n_done.fetch_add(1, Ordering::SeqCst);
                });
            })
        });
        wait_until(|| n_begun.load(Ordering::SeqCst) == waiters.len());
        sleep(MOMENT);
        assert_eq!(n_done.load(Ordering::SeqCst), 0);
        rooms.let_go(keepers);
        waiters.into_iter().for_each(|w| w.join().unwrap());
    });
}

#[test]
fn a_shield_keeps_contexts_from_permits() {
    run(2, || {
        let semaphore = Arc::new(Semaphore::new(0));
        let ctx = Context::background().with_timeout(Duration::ZERO);
        let giver = spawn({
            let semaphore = Arc::clone(&semaphore);
            move || {
                sleep(MOMENT);
                semaphore.add_permits(1);
            }
        });
        ctx.run(|| shield(|| semaphore.acquire(1).unwrap().forget()));
        giver.join().unwrap();
        assert_eq!(semaphore.available_permits(), 0);
    });
}

#[test]
fn a_join_that_is_cut_short_gives_the_handle_back() {
    run(2, || {
        let (ctx, canceller) = Context::background().with_cancel();
        let task = spawn(|| {
            task::park();
            5
        });
        let waker = task.task();
        let joiner = spawn(move || task.join_context(&ctx));
        sleep(MOMENT);
        canceller.cancel();
        let task = joiner.join().unwrap().unwrap_err();
        waker.unpark();
        assert_eq!(task.join().unwrap(), 5);

        let ctx = Context::background().with_timeout(MOMENT);
        task::scope(|s| {
            let task = s.spawn(task::park);
            let task = task.join_context(&ctx).unwrap_err();
            task.task().unpark();
            task.join_context(&Context::background()).unwrap().unwrap();
        });
    });
}

#[test]
fn an_initializer_does_not_run_in_the_context_of_its_caller() {
    run(1, || {
        let ctx = Context::background().with_timeout(Duration::ZERO);
        let slow = || {
            let start = Instant::now();
            sleep(MOMENT);
            start.elapsed() >= MOMENT
        };
        let cell = OnceLock::new();
        assert_eq!(cell.get_or_init_context(&ctx, slow), Ok(&true));
        let table = LazyLock::new(slow);
        assert_eq!(LazyLock::force_context(&table, &ctx), Ok(&true));
    });
}

/// One that asks for much is in the way of others; when it is cut they are served.
#[test]
fn those_behind_a_waiter_that_is_cut_are_served() {
    run(2, || {
        let semaphore = Arc::new(Semaphore::new(1));
        let lock = Arc::new(RwLock::new(()));
        let (ctx, canceller) = Context::background().with_cancel();
        let reader = lock.read().unwrap();
        let greedy = spawn({
            let (semaphore, ctx) = (Arc::clone(&semaphore), ctx.clone());
            move || assert!(semaphore.acquire_context(2, &ctx).is_err())
        });
        let writer = spawn({
            let (lock, ctx) = (Arc::clone(&lock), ctx.clone());
            move || assert!(lock.write_context(&ctx).is_err())
        });
        // Whoever waits keeps others from having it at once.
        wait_until(|| semaphore.try_acquire(1).is_err() && lock.try_read().is_err());
        let modest = spawn({
            let semaphore = Arc::clone(&semaphore);
            move || drop(semaphore.acquire(1).unwrap())
        });
        let other = spawn({
            let lock = Arc::clone(&lock);
            move || drop(lock.read().unwrap())
        });
        sleep(MOMENT);
        assert!(!modest.is_finished() && !other.is_finished());
        canceller.cancel();
        for task in [greedy, writer, modest, other] {
            task.join().unwrap();
        }
        drop(reader);
        assert!(lock.try_write().is_ok());
        assert_eq!(semaphore.available_permits(), 1);
    });
}

/// One who gave up at a barrier has not arrived.
#[test]
fn a_barrier_is_met_by_those_who_stay() {
    run(2, || {
        for _ in 0..100 {
            let barrier = Arc::new(Barrier::new(3));
            let (ctx, canceller) = Context::background().with_cancel();
            let hasty = spawn({
                let (barrier, ctx) = (Arc::clone(&barrier), ctx.clone());
                move || barrier.wait_context(&ctx).map(|met| met.is_leader())
            });
            let two = [0, 1].map(|_| {
                let barrier = Arc::clone(&barrier);
                spawn(move || barrier.wait().is_leader())
            });
            yield_now();
            canceller.cancel();
            let third = match hasty.join().unwrap() {
                Ok(leads) => leads,
                // It was not counted: one more is needed.
                Err(_) => barrier.wait().is_leader(),
            };
            let [a, b] = two.map(|t| t.join().unwrap());
            assert_eq!([a, b, third].iter().filter(|leads| **leads).count(), 1);
        }
    });
}

/// Cancels whatever context was put there last, again and again.
fn cancel_all_the_time(place: &Arc<std::sync::Mutex<Vec<Canceller>>>) -> Storm {
    let over = Arc::new(AtomicBool::new(false));
    let task = spawn({
        let (place, over) = (Arc::clone(place), Arc::clone(&over));
        move || {
            while !over.load(Ordering::SeqCst) {
                let due = std::mem::take(&mut *place.lock().unwrap());
                drop(due);
                yield_now();
            }
        }
    });
    Storm { over, task }
}

struct Storm {
    over: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl Storm {
    fn end(self) {
        self.over.store(true, Ordering::SeqCst);
        self.task.join().unwrap();
    }
}

/// A thing that several fight over, some of whom give up: what they got, and what there was.
struct Fight {
    mutex: Mutex<usize>,
    lock: RwLock<usize>,
    semaphore: Semaphore,
    n_inside: AtomicUsize,
    n_got: AtomicUsize,
    n_cut: AtomicUsize,
}

const PERMITS: usize = 3;

impl Fight {
    fn round(&self, i: usize, ctx: &Context) {
        let got = match i % 4 {
            0 => self.mutex.lock_context(ctx).map(|guard| {
                *guard.unwrap() += 1;
            }),
            1 => self.lock.write_context(ctx).map(|guard| {
                *guard.unwrap() += 1;
                yield_now();
            }),
            2 => self.lock.read_context(ctx).map(|guard| {
                let before = **guard.as_ref().unwrap();
                yield_now();
                assert_eq!(*guard.unwrap(), before, "a writer came between");
            }),
            _ => {
                let n = 1 + i % PERMITS;
                self.semaphore.acquire_context(n, ctx).map(|permits| {
                    let before = self.n_inside.fetch_add(n, Ordering::SeqCst);
                    assert!(before + n <= PERMITS, "more permits than there are");
                    yield_now();
                    self.n_inside.fetch_sub(n, Ordering::SeqCst);
                    drop(permits);
                })
            }
        };
        match got {
            Ok(()) => self
                .n_got
                .fetch_add(usize::from(i % 4 < 2), Ordering::SeqCst),
            Err(e) => {
                assert_eq!(e, Error::Cancelled);
                self.n_cut.fetch_add(1, Ordering::SeqCst)
            }
        };
    }
}

/// Cuts race with hand-overs: nobody is left behind, nothing is had twice, and in the end
/// all is free.
#[test]
fn cuts_race_with_hand_overs() {
    const ROUNDS: usize = 400;
    run(2, || {
        let fight = Arc::new(Fight {
            mutex: Mutex::new(0),
            lock: RwLock::new(0),
            semaphore: Semaphore::new(PERMITS),
            n_inside: AtomicUsize::new(0),
            n_got: AtomicUsize::new(0),
            n_cut: AtomicUsize::new(0),
        });
        let place = Arc::default();
        let storm = cancel_all_the_time(&place);
        let body = |at: usize| {
            let (fight, place) = (Arc::clone(&fight), Arc::clone(&place));
            move || {
                for i in at..at + ROUNDS {
                    if i % 3 == 0 {
                        // These are never cut, and must not be forgotten.
                        fight.round(i, &Context::background());
                        continue;
                    }
                    let (ctx, canceller) = Context::background().with_cancel();
                    place.lock().unwrap().push(canceller);
                    fight.round(i, &ctx);
                }
            }
        };
        let tasks: Vec<_> = (0..12).map(|i| spawn(body(i))).collect();
        let n_threads = if is_simulated() { 0 } else { 3 };
        let threads: Vec<_> = (0..n_threads)
            .map(|i| std::thread::spawn(body(i)))
            .collect();
        tasks.into_iter().for_each(|t| t.join().unwrap());
        wait_until(|| threads.iter().all(std::thread::JoinHandle::is_finished));
        threads.into_iter().for_each(|t| t.join().unwrap());
        storm.end();
        let written = *fight.mutex.try_lock().unwrap() + *fight.lock.try_write().unwrap();
        assert_eq!(written, fight.n_got.load(Ordering::SeqCst));
        assert_eq!(fight.semaphore.available_permits(), PERMITS);
        // A seed may let the storm run last.
        let n_cut = fight.n_cut.load(Ordering::SeqCst);
        assert!(n_cut > 0 || is_simulated(), "nothing was cut");
    });
}

/// A notification is taken by one who goes on, never by one who gave up.
#[test]
fn no_notification_is_lost_to_one_who_is_cut() {
    const THINGS: usize = 2_000;
    run(2, || {
        let store = Arc::new((Mutex::new(0_usize), Condvar::new()));
        let n_taken = Arc::new(AtomicUsize::new(0));
        let place = Arc::default();
        let storm = cancel_all_the_time(&place);
        let takers: Vec<_> = (0..8)
            .map(|i| {
                let (store, place) = (Arc::clone(&store), Arc::clone(&place));
                let n_taken = Arc::clone(&n_taken);
                spawn(move || {
                    while n_taken.load(Ordering::SeqCst) < THINGS {
                        let (ctx, canceller) = Context::background().with_cancel();
                        if i % 2 == 0 {
                            place.lock().unwrap().push(canceller);
                        } else {
                            canceller.detach();
                        }
                        let things = store.0.lock().unwrap();
                        let (mut things, outcome) = store
                            .1
                            .wait_while_context(things, &ctx, |n| {
                                *n == 0 && n_taken.load(Ordering::SeqCst) < THINGS
                            })
                            .unwrap();
                        if outcome.is_ok() && *things > 0 {
                            *things -= 1;
                            if n_taken.fetch_add(1, Ordering::SeqCst) + 1 == THINGS {
                                store.1.notify_all();
                            }
                        }
                    }
                })
            })
            .collect();
        for _ in 0..THINGS {
            *store.0.lock().unwrap() += 1;
            store.1.notify_one();
            yield_now();
        }
        takers.into_iter().for_each(|t| t.join().unwrap());
        storm.end();
        assert_eq!(*store.0.lock().unwrap(), 0);
    });
}

/// A hand-over in the starving mode, where the lock never looks free: those that are cut
/// meanwhile do not break the chain.
#[test]
fn a_starving_mutex_is_handed_on_past_those_who_are_cut() {
    run(2, || {
        let mutex = Arc::new(Mutex::new(0));
        for _ in 0..20 {
            let held = mutex.lock().unwrap();
            let (ctx, canceller) = Context::background().with_cancel();
            let n_begun = Arc::new(AtomicUsize::new(0));
            let waiters: Vec<_> = (0..6)
                .map(|i| {
                    let (mutex, n_begun) = (Arc::clone(&mutex), Arc::clone(&n_begun));
                    let ctx = if i % 2 == 0 {
                        ctx.clone()
                    } else {
                        Context::background()
                    };
                    spawn(move || {
                        n_begun.fetch_add(1, Ordering::SeqCst);
                        if let Ok(guard) = mutex.lock_context(&ctx) {
                            *guard.unwrap() += 1;
                        }
                    })
                })
                .collect();
            wait_until(|| n_begun.load(Ordering::SeqCst) == waiters.len());
            // Longer than it takes to starve.
            sleep(MOMENT);
            let before = *held;
            drop(held);
            canceller.cancel();
            waiters.into_iter().for_each(|w| w.join().unwrap());
            let after = *mutex.try_lock().unwrap();
            assert!((before + 3..=before + 6).contains(&after));
        }
    });
}

#[test]
fn the_end_of_a_run_unwinds_who_waits_in_a_context() {
    let _guard = hang_guard();
    let census = Census::default();
    let rooms = Rooms::new();
    let rt = runtime(2);
    let ctx = Context::background().with_timeout(FOREVER);
    let keepers = rooms.keep();
    let joins = rt.run(|| {
        let n_begun = Arc::new(AtomicUsize::new(0));
        let joins = WAYS.map(|way| {
            let (rooms, ctx, member) = (Arc::clone(&rooms), ctx.clone(), census.member());
            let n_begun = Arc::clone(&n_begun);
            spawn(move || {
                let _member = member;
                n_begun.fetch_add(1, Ordering::SeqCst);
                way(&rooms, &ctx);
                unreachable!("there is nothing to be had");
            })
        });
        wait_until(|| n_begun.load(Ordering::SeqCst) == joins.len());
        sleep(MOMENT);
        joins
    });
    census.assert_all_dropped(WAYS.len());
    for join in joins {
        assert!(join.join().unwrap_err().is::<task::Cancelled>());
    }
    rooms.let_go(keepers);
    rooms.assert_free();
}

#[cfg(feature = "sim")]
crate::inside::tests! {
    a_cancel_ends_every_wait_that_is_handed_a_context: "it uses threads",
    a_deadline_ends_every_wait_that_is_handed_a_context: "it uses threads",
    an_ambient_context_ends_waits_that_are_handed_another: "it uses threads",
    what_can_be_had_at_once_is_given_when_the_context_is_done,
    poison_and_closing_are_told_beside_the_context,
    an_ambient_context_ends_waits_for_permits_and_timed_notifications,
    the_names_of_std_wait_in_a_context_that_is_done: "it uses threads",
    a_shield_keeps_contexts_from_permits,
    a_join_that_is_cut_short_gives_the_handle_back,
    an_initializer_does_not_run_in_the_context_of_its_caller,
    those_behind_a_waiter_that_is_cut_are_served,
    a_barrier_is_met_by_those_who_stay,
    cuts_race_with_hand_overs / 4,
    no_notification_is_lost_to_one_who_is_cut / 10,
    a_starving_mutex_is_handed_on_past_those_who_are_cut,
    the_end_of_a_run_unwinds_who_waits_in_a_context: "it ends a run of its own",
}

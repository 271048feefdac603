//! `task::lock_thread`: a goroutine and a thread that belong together.
#![allow(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    reason = "what blocks or hogs a thread is a part of what is tested"
)]

use std::cell::Cell;
use std::collections::HashSet;
use std::io::{Read, Write};
use std::mem::forget;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use crate::util;
use crate::util::{Census, build, hang_guard, panic_text, run, runtime, thread_cpu, wait_until};
use windlass::channel::{Receiver, Sender, bounded, unbounded};
use windlass::net::{TcpListener, TcpStream};
use windlass::task::{self, lock_thread};
use windlass::{Builder, blocking, offload, sleep, spawn, yield_now};

/// On one P, on two, and on more than the machine may have.
const PS: [usize; 3] = [1, 2, 4];

/// The calling thread; not inlined, so that it is asked anew after each wait.
#[inline(never)]
fn here() -> ThreadId {
    // SAFETY: the empty assembly touches nothing.
    unsafe { std::arch::asm!("", options(nostack, preserves_flags)) };
    thread::current().id()
}

/// Goroutines that keep all Ps changing hands until they are stopped. They say which
/// threads they ran on.
struct Crowd {
    stop: Arc<AtomicBool>,
    seen: Arc<Mutex<HashSet<ThreadId>>>,
    tasks: Vec<task::JoinHandle<()>>,
}

impl Crowd {
    fn new(n: usize) -> Crowd {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::new(Mutex::new(HashSet::new()));
        let tasks = (0..n)
            .map(|i| {
                let (stop, seen) = (Arc::clone(&stop), Arc::clone(&seen));
                spawn(move || {
                    let mut mine = HashSet::new();
                    while !stop.load(Ordering::Relaxed) {
                        mine.insert(here());
                        match i % 3 {
                            0 => sleep(Duration::from_micros(50)),
                            1 => spawn(yield_now).join().unwrap(),
                            _ => yield_now(),
                        }
                    }
                    seen.lock().unwrap().extend(mine);
                })
            })
            .collect();
        Crowd { stop, seen, tasks }
    }

    /// Stops them, and gives the threads that they ran on.
    fn end(self) -> HashSet<ThreadId> {
        self.stop.store(true, Ordering::Relaxed);
        self.tasks.into_iter().for_each(|t| t.join().unwrap());
        std::mem::take(&mut *self.seen.lock().unwrap())
    }
}

/// One byte there and back, over a connection of its own.
fn echo() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let server = spawn(move || {
        let (mut peer, _) = listener.accept().unwrap();
        let mut byte = [0];
        peer.read_exact(&mut byte).unwrap();
        peer.write_all(&byte).unwrap();
    });
    let mut stream = TcpStream::connect(addr).unwrap();
    let mut answer = [0];
    stream.write_all(&[7]).unwrap();
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, [7]);
    server.join().unwrap();
}

/// Waits in each of the ways there are.
fn wait_in_all_ways() {
    yield_now();
    sleep(Duration::from_micros(200));
    assert_eq!(spawn(|| 5).join().unwrap(), 5);
    let (there, receiver) = bounded(0);
    let sender = spawn(move || there.send(6).unwrap());
    assert_eq!(receiver.recv(), Ok(6));
    sender.join().unwrap();
    let me = task::current();
    drop(spawn(move || me.unpark()));
    task::park();
    blocking(|| thread::sleep(Duration::from_micros(300)));
    assert_eq!(offload(|| 7), 7);
    task::scope(|s| {
        s.spawn(yield_now);
    });
    echo();
}

#[test]
fn a_goroutine_stays_on_the_thread_that_it_has_locked() {
    for n_ps in PS {
        run(n_ps, || {
            let crowd = Crowd::new(6);
            let _tied = lock_thread();
            let tied_to = here();
            for _ in 0..20 {
                wait_in_all_ways();
                assert_eq!(here(), tied_to);
            }
            // The crowd came to other threads only, if only from here on.
            crowd.seen.lock().unwrap().clear();
            let strange = crowd.end();
            assert!(n_ps > 1 || !strange.is_empty());
        });
    }
}

#[test]
fn the_thread_runs_nobody_else() {
    for n_ps in PS {
        run(n_ps, || {
            let tied = lock_thread();
            // All of them begin and end while it is tied.
            let crowd = Crowd::new(8);
            for _ in 0..30 {
                wait_in_all_ways();
            }
            assert!(!crowd.end().contains(&here()));
            drop(tied);
        });
    }
}

#[test]
fn what_it_spawns_is_not_tied() {
    run(2, || {
        let _tied = lock_thread();
        let tied_to = here();
        let child = spawn(|| {
            yield_now();
            here()
        });
        assert_ne!(child.join().unwrap(), tied_to);
        let mut borrowed = tied_to;
        task::scope(|s| {
            s.spawn(|| borrowed = here());
        });
        assert_ne!(borrowed, tied_to);
    });
}

#[test]
fn it_nests() {
    run(1, || {
        let first = lock_thread();
        let tied_to = here();
        let second = lock_thread();
        wait_in_all_ways();
        assert_eq!(here(), tied_to);
        // In whatever order they go.
        drop(first);
        wait_in_all_ways();
        assert_eq!(here(), tied_to);
        assert_ne!(spawn(here).join().unwrap(), tied_to);
        drop(second);
        // Free again: both run on one thread, as nothing else needs another.
        wait_until(|| spawn(here).join().unwrap() == here());
        let again = lock_thread();
        let tied_to = here();
        sleep(Duration::from_micros(100));
        assert_eq!(here(), tied_to);
        drop(again);
    });
}

thread_local!(static FOREIGN: Cell<usize> = const { Cell::new(0) });

/// As foreign code has them: never inlined, so that no address outlives a wait.
#[inline(never)]
fn remember(n: usize) {
    FOREIGN.set(n);
}

#[inline(never)]
fn recall() -> usize {
    // SAFETY: the empty assembly touches nothing.
    unsafe { std::arch::asm!("", options(nostack, preserves_flags)) };
    FOREIGN.get()
}

#[test]
fn foreign_thread_locals_are_its_own() {
    for n_ps in PS {
        run(n_ps, || {
            let all: Vec<_> = (1..=20)
                .map(|i| {
                    spawn(move || {
                        let _tied = lock_thread();
                        remember(i);
                        for round in 0..30 {
                            match round % 3 {
                                0 => yield_now(),
                                1 => sleep(Duration::from_micros(30)),
                                _ => assert_eq!(spawn(|| 1).join().unwrap(), 1),
                            }
                            assert_eq!(recall(), i);
                        }
                        remember(0);
                    })
                })
                .collect();
            all.into_iter().for_each(|t| t.join().unwrap());
        });
    }
}

/// Numbers go round a ring of goroutines, some of which are tied; each adds one.
fn pass_round(tied: fn(usize) -> bool, n: usize, rounds: u64) {
    let (first, mut receiver): (Sender<u64>, Receiver<u64>) = bounded(0);
    let mut all = Vec::new();
    for i in 0..n {
        let (sender, next) = bounded(0);
        let from = std::mem::replace(&mut receiver, next);
        all.push(spawn(move || {
            let _tied = tied(i).then(lock_thread);
            let begun_on = here();
            for number in from {
                assert!(!tied(i) || here() == begun_on);
                if sender.send(number + 1).is_err() {
                    break;
                }
            }
        }));
    }
    for number in 0..rounds {
        first.send(number).unwrap();
        assert_eq!(receiver.recv(), Ok(number + n as u64));
    }
    drop(first);
    all.into_iter().for_each(|t| t.join().unwrap());
}

#[test]
fn tied_and_free_ones_wake_each_other() {
    for n_ps in PS {
        run(n_ps, || {
            pass_round(|_| true, 2, 200);
            pass_round(|i| i % 2 == 0, 6, 100);
            pass_round(|_| true, 30, 20);
            let _main_too = lock_thread();
            pass_round(|i| i % 2 == 1, 5, 100);
            pass_round(|_| true, 5, 100);
        });
    }
}

#[test]
fn many_at_once_lose_nothing() {
    const TASKS: usize = 60;
    const ROUNDS: usize = 60;
    for n_ps in PS {
        run(n_ps, || {
            let crowd = Crowd::new(4);
            let (sender, receiver) = unbounded();
            let sum = Arc::new(AtomicUsize::new(0));
            let all: Vec<_> = (0..TASKS)
                .map(|i| {
                    let (sender, receiver, sum) =
                        (sender.clone(), receiver.clone(), Arc::clone(&sum));
                    spawn(move || {
                        for round in 0..ROUNDS {
                            // Tied in some rounds, free in others.
                            let _tied = ((i + round) % 3 != 0).then(lock_thread);
                            let begun_on = here();
                            sender.send(i).unwrap();
                            if round % 8 == 0 {
                                blocking(|| thread::sleep(Duration::from_micros(30)));
                            }
                            sum.fetch_add(receiver.recv().unwrap(), Ordering::Relaxed);
                            assert!(_tied.is_none() || begun_on == here());
                        }
                    })
                })
                .collect();
            all.into_iter().for_each(|t| t.join().unwrap());
            let expected = ROUNDS * TASKS * (TASKS - 1) / 2;
            assert_eq!(sum.load(Ordering::Relaxed), expected);
            crowd.end();
        });
    }
}

#[test]
fn a_tied_hog_loses_its_p_and_stays_on_its_thread() {
    for n_ps in [1, 2] {
        let _guard = hang_guard();
        let rt = runtime(n_ps);
        rt.run(|| {
            let crowd = Crowd::new(3);
            let hogs: Vec<_> = (0..n_ps)
                .map(|_| {
                    spawn(|| {
                        let _tied = lock_thread();
                        let tied_to = here();
                        for _ in 0..3 {
                            let begin = Instant::now();
                            while begin.elapsed() < Duration::from_millis(25) {
                                std::hint::spin_loop();
                            }
                            yield_now();
                            assert_eq!(here(), tied_to);
                            // Blocked without a word.
                            thread::sleep(Duration::from_millis(15));
                            drop(spawn(|| ()));
                            assert_eq!(here(), tied_to);
                        }
                    })
                })
                .collect();
            hogs.into_iter().for_each(|t| t.join().unwrap());
            crowd.end();
        });
        assert!(rt.metrics().retakes > 0);
    }
}

/// Alone on its P it keeps the P while it waits.
#[test]
fn alone_it_changes_no_threads() {
    let _guard = hang_guard();
    let rt = runtime(1);
    rt.run(|| {
        let _tied = lock_thread();
        let before = rt.metrics().handoffs;
        for _ in 0..50 {
            sleep(Duration::from_micros(20));
            yield_now();
        }
        assert_eq!(rt.metrics().handoffs, before);
    });
}

/// Where nothing else happens on the runtime, a round trip changes threads twice.
#[test]
fn a_round_trip_on_one_p_changes_threads_twice() {
    const ROUND_TRIPS: u64 = 200;
    let _guard = hang_guard();
    let rt = runtime(1);
    rt.run(|| {
        let (there, receiver) = bounded::<u64>(0);
        let (sender, back) = bounded(0);
        let peer = spawn(move || {
            let _tied = lock_thread();
            receiver.iter().for_each(|n| sender.send(n).unwrap());
        });
        there.send(0).unwrap();
        back.recv().unwrap();
        let before = rt.metrics().handoffs;
        for n in 0..ROUND_TRIPS {
            there.send(n).unwrap();
            assert_eq!(back.recv(), Ok(n));
        }
        let handoffs = rt.metrics().handoffs - before;
        // A few more where sysmon took the P from a thread that got no CPU, and many where each
        // gives way for no reason.
        let is_few = handoffs < 2 * ROUND_TRIPS + ROUND_TRIPS / 4;
        assert!(is_few || util::is_chaotic(), "{handoffs}");
        drop(there);
        peer.join().unwrap();
    });
}

#[test]
fn the_main_goroutine_begins_on_the_calling_thread() {
    let _guard = hang_guard();
    for n_ps in PS {
        let rt = runtime(n_ps);
        let caller = here();
        for _ in 0..5 {
            rt.run(|| {
                assert_eq!(here(), caller);
                let _tied = lock_thread();
                wait_in_all_ways();
                assert_eq!(here(), caller);
            });
        }
    }
}

#[test]
fn ending_while_tied_ends_the_thread() {
    let name = "ending_while_tied_ends_the_thread";
    if util::child_case().is_none() {
        util::child_passes(name, "alone");
        return;
    }
    for n_ps in PS {
        // The calling thread may be one of those that are left alone from then on: a new one.
        thread::spawn(move || taint_threads(n_ps)).join().unwrap();
    }
}

fn taint_threads(n_ps: usize) {
    let rt = runtime(n_ps);
    rt.run(|| {
        let mut tainted = HashSet::new();
        for i in 0..40 {
            let child = spawn(move || {
                forget(lock_thread());
                remember(i + 1);
                if i % 2 == 0 {
                    sleep(Duration::from_micros(50));
                }
                here()
            });
            tainted.insert(child.join().unwrap());
            // Nobody finds the traces that it left on the thread.
            assert_eq!(spawn(recall).join().unwrap(), 0);
        }
        assert_eq!(tainted.len(), 40);
        // They have ended, and were joined.
        wait_until(|| {
            sleep(Duration::from_millis(1));
            rt.metrics().threads < 20 && util::n_threads() < 30
        });
        echo();
    });
}

/// The nice value of the calling thread, which threads hand on to their children.
fn nice() -> i32 {
    // SAFETY: takes plain integers; 0 is the calling thread.
    unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
}

#[test]
fn new_threads_come_from_a_clean_one() {
    // No other part of the runtime sets this one.
    const TAINT: i32 = 3;
    let test = || {
        run(2, || {
            let _tied = lock_thread();
            // SAFETY: takes plain integers.
            let done = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, TAINT) };
            assert_eq!((done, nice()), (0, TAINT));
            assert_ne!(offload(nice), TAINT);
            let all: Vec<_> = (0..20)
                .map(|_| {
                    spawn(|| {
                        let held = blocking(|| {
                            thread::sleep(Duration::from_millis(2));
                            nice()
                        });
                        (held, offload(nice))
                    })
                })
                .collect();
            for task in all {
                let (held, offloaded) = task.join().unwrap();
                assert!(held != TAINT && offloaded != TAINT);
            }
            assert_eq!(nice(), TAINT);
        });
    };
    thread::spawn(test).join().unwrap();
}

#[test]
fn main_may_end_while_tied() {
    let _guard = hang_guard();
    let rt = runtime(2);
    for _ in 0..5 {
        let census = Census::default();
        let member = census.member();
        rt.run(|| {
            forget(lock_thread());
            drop(spawn(move || {
                let _member = member;
                task::park();
            }));
            sleep(Duration::from_micros(300));
        });
        census.assert_all_dropped(1);
    }
    assert_eq!(rt.run(|| spawn(|| 5).join().unwrap()), 5);
}

#[test]
fn a_panic_sets_the_thread_free() {
    run(1, || {
        let tied_to = Arc::new(Mutex::new(None));
        let told = Arc::clone(&tied_to);
        let child = spawn(move || {
            let _tied = lock_thread();
            sleep(Duration::from_micros(50));
            *told.lock().unwrap() = Some(here());
            panic!("as intended");
        });
        let payload = child.join().unwrap_err();
        assert_eq!(panic_text(&*payload), "as intended");
        let freed = tied_to.lock().unwrap().unwrap();
        // It runs others again, once it has its turn.
        wait_until(|| {
            blocking(|| thread::sleep(Duration::from_micros(200)));
            here() == freed || spawn(here).join().unwrap() == freed
        });
        // A panic that the goroutine catches itself leaves an outer lock as it is.
        let _outer = lock_thread();
        let here_now = here();
        let caught = catch_unwind(AssertUnwindSafe(|| {
            let _inner = lock_thread();
            sleep(Duration::from_micros(50));
            panic!("as intended, too");
        }));
        assert!(caught.is_err());
        wait_in_all_ways();
        assert_eq!(here(), here_now);
    });
}

#[test]
fn a_panic_with_the_thread_kept_ends_both() {
    // A thread of its own, which may be one that is left alone from then on.
    let test = || {
        run(2, || {
            for _ in 0..10 {
                let child = spawn(|| {
                    forget(lock_thread());
                    remember(99);
                    sleep(Duration::from_micros(50));
                    panic!("as intended");
                });
                assert!(child.join().is_err());
                assert_eq!(spawn(recall).join().unwrap(), 0);
            }
        })
    };
    thread::spawn(test).join().unwrap();
}

/// A value that is dropped on the thread for which it was made.
struct AtHome(ThreadId, Arc<AtomicUsize>);

impl Drop for AtHome {
    fn drop(&mut self) {
        assert_eq!(here(), self.0, "unwound on a foreign thread");
        self.1.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn the_end_of_a_run_unwinds_them_at_home() {
    let _guard = hang_guard();
    for n_ps in PS {
        let rt = runtime(n_ps);
        let n_unwound = Arc::new(AtomicUsize::new(0));
        let n_begun = AtomicUsize::new(0);
        let begun: &'static AtomicUsize = Box::leak(Box::new(n_begun));
        rt.run(|| {
            for i in 0..30 {
                let n_unwound = Arc::clone(&n_unwound);
                drop(spawn(move || {
                    let tied = lock_thread();
                    let _at_home = AtHome(here(), n_unwound);
                    if i % 5 == 0 {
                        forget(tied);
                    }
                    begun.fetch_add(1, Ordering::SeqCst);
                    match i % 4 {
                        0 => task::park(),
                        1 => sleep(Duration::from_secs(3600)),
                        2 => loop {
                            yield_now();
                        },
                        _ => drop(bounded::<()>(0).1.recv()),
                    }
                }));
            }
            wait_until(|| begun.load(Ordering::SeqCst) == 30);
        });
        // The last kind has a closed channel, and ends by itself.
        assert_eq!(n_unwound.load(Ordering::SeqCst), 30);
    }
}

#[test]
fn a_section_may_lock_and_unlock() {
    run(2, || {
        for _ in 0..20 {
            let tied = blocking(|| {
                let tied = lock_thread();
                thread::sleep(Duration::from_micros(100));
                (tied, here())
            });
            wait_in_all_ways();
            assert_eq!(here(), tied.1);
            blocking(move || {
                drop(tied);
                thread::sleep(Duration::from_micros(100));
            });
            assert_eq!(spawn(|| 3).join().unwrap(), 3);
        }
    });
}

#[test]
fn there_is_a_limit() {
    let _guard = hang_guard();
    let rt = build(Builder::new().processors(2).max_threads(4)).unwrap();
    rt.run(|| {
        let first = lock_thread();
        let (go, wait) = bounded::<()>(0);
        let (ready, is_ready) = bounded(0);
        let second = spawn(move || {
            let _tied = lock_thread();
            ready.send(()).unwrap();
            let _ = wait.recv();
        });
        is_ready.recv().unwrap();
        let third = spawn(|| drop(lock_thread())).join().unwrap_err();
        let text = panic_text(&*third);
        assert!(text.contains("max_threads"), "{text}");
        // Nothing is lost, and a place that is free may be taken.
        drop(go);
        second.join().unwrap();
        spawn(|| drop(lock_thread())).join().unwrap();
        echo();
        drop(first);
    });
    // Where there cannot be any.
    let rt = build(Builder::new().processors(1).max_threads(1)).unwrap();
    let text = rt.run(|| panic_text(&*catch_unwind(lock_thread).unwrap_err()).to_owned());
    assert!(text.contains("max_threads"), "{text}");
}

/// More Ps than there may be threads beside the locked ones: those that are left serve them.
#[test]
fn the_number_of_ps_may_rise_beyond_what_locked_threads_leave() {
    let _guard = hang_guard();
    let builder = Builder::new().processors(1).max_processors(4);
    let rt = build(builder.max_threads(2)).unwrap();
    rt.run(|| {
        let tied = lock_thread();
        util::set_processors(&rt, 4);
        let another = spawn(|| drop(lock_thread())).join().unwrap_err();
        assert!(panic_text(&*another).contains("max_threads"));
        let (to_main, from_others) = unbounded();
        for i in 0..100 {
            let to_main = to_main.clone();
            spawn(move || {
                sleep(Duration::from_millis(i % 3));
                echo();
                to_main.send(i).unwrap();
            });
        }
        let sum: u64 = (0..100).map(|_| from_others.recv().unwrap()).sum();
        assert_eq!(sum, 4950);
        util::set_processors(&rt, 1);
        assert_eq!(spawn(|| 3).join().unwrap(), 3);
        drop(tied);
    });
}

/// The thread that called `run` ends with its goroutine, as any other, and runs none any more.
#[test]
fn a_first_thread_that_ends_makes_room_for_another() {
    let _guard = hang_guard();
    let rt = build(Builder::new().processors(1).max_threads(2)).unwrap();
    rt.run(|| {
        spawn(|| forget(lock_thread())).join().unwrap();
        let (go, wait) = bounded(0);
        let (ready, is_ready) = bounded(0);
        let second = spawn(move || {
            let _tied = lock_thread();
            ready.send(()).unwrap();
            // The other goroutine needs the P, and a thread for it.
            wait.recv()
        });
        is_ready.recv().unwrap();
        go.send(3).unwrap();
        assert_eq!(second.join().unwrap(), Ok(3));
    });
}

#[test]
fn on_a_plain_thread_it_means_nothing() {
    let tied = lock_thread();
    let nested = lock_thread();
    drop(tied);
    drop(nested);
    // Kept across a run, which is another goroutine's.
    let outer = lock_thread();
    run(1, || {
        assert_eq!(spawn(|| 4).join().unwrap(), 4);
        let _tied = lock_thread();
        assert_eq!(spawn(|| 4).join().unwrap(), 4);
    });
    drop(outer);
}

/// The thread ends with its goroutine, and there is no other one to take the P: it becomes idle
/// nevertheless, and sysmon sleeps.
#[test]
fn a_p_that_is_left_without_work_becomes_idle() {
    let _guard = hang_guard();
    let rt = build(Builder::new().processors(1).name("left")).unwrap();
    rt.run(|| {
        let _lock = lock_thread();
        let main = task::current();
        let before = thread_cpu("left-sysmon");
        spawn(|| forget(lock_thread()));
        let waker = thread::spawn(move || {
            thread::sleep(Duration::from_millis(250));
            main.unpark();
        });
        task::park();
        let used = thread_cpu("left-sysmon") - before;
        assert!(used < Duration::from_millis(25), "{used:?}");
        waker.join().unwrap();
    });
}

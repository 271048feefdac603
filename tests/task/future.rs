//! Futures on goroutines and threads: waking, wakers that outlive all, crates that need
//! no reactor.
#![allow(clippy::disallowed_methods, reason = "plain threads take part")]

use std::future::{Future, pending, poll_fn, ready};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::util::{
    Census, child_case, child_passes, gettid, hang_guard, is_chaotic, memory_bytes, resident_bytes,
    run, run_with_one_thread, runtime, set_memory_limit, wait_until,
};
use futures::StreamExt;
use futures::channel::oneshot;
use futures::future::{join_all, select};
use futures::stream::FuturesUnordered;
use windlass::future::{block_on, spawn};
use windlass::task::{self, Cancelled};
use windlass::{Handle, blocking, sleep, task_local, yield_now};

/// Ready when somebody says so; counts its polls.
#[derive(Clone, Debug, Default)]
struct Flag(Arc<(AtomicBool, Mutex<Option<Waker>>, AtomicUsize)>);

impl Flag {
    fn set(&self) {
        self.0.0.store(true, Ordering::SeqCst);
        self.wake();
    }

    fn wake(&self) {
        let waker = self.0.1.lock().unwrap().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn is_waited_for(&self) -> bool {
        self.0.1.lock().unwrap().is_some()
    }

    fn n_polls(&self) -> usize {
        self.0.2.load(Ordering::SeqCst)
    }
}

impl Future for Flag {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.0.2.fetch_add(1, Ordering::SeqCst);
        *self.0.1.lock().unwrap() = Some(cx.waker().clone());
        match self.0.0.load(Ordering::SeqCst) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }
}

#[test]
fn waits_for_a_wake_and_only_for_it() {
    run(2, || {
        let flag = Flag::default();
        let waits = spawn(flag.clone());
        wait_until(|| flag.is_waited_for());
        // The token of park is another one.
        waits.task().unpark();
        sleep(Duration::from_millis(1));
        assert_eq!(flag.n_polls(), 1);
        flag.wake();
        wait_until(|| flag.n_polls() == 2);
        assert!(!waits.is_finished());
        flag.set();
        waits.join().unwrap();
    });
}

#[test]
fn block_on_keeps_the_token_of_park() {
    run(1, || {
        task::current().unpark();
        let flag = Flag::default();
        let sets = windlass::spawn({
            let flag = flag.clone();
            move || flag.set()
        });
        block_on(flag);
        task::park();
        sets.join().unwrap();
    });
}

#[test]
fn on_threads_and_in_blocking_sections() {
    let _guard = hang_guard();
    let through = || {
        let flag = Flag::default();
        let sets = std::thread::spawn({
            let flag = flag.clone();
            move || {
                while !flag.is_waited_for() {
                    std::thread::yield_now();
                }
                flag.wake();
                flag.set();
            }
        });
        block_on(flag);
        sets.join().unwrap();
        assert_eq!(block_on(ready(7)), 7);
    };
    through();
    runtime(1).run(|| blocking(through));
    runtime(1).run(|| windlass::offload(through));
}

#[test]
fn wakes_from_everywhere_race() {
    run(4, || {
        for _ in 0..300 {
            let flags: Vec<_> = (0..4).map(|_| Flag::default()).collect();
            let all = spawn(join_all(flags.clone()));
            let setters: Vec<_> = flags
                .into_iter()
                .enumerate()
                .map(|(i, flag)| {
                    windlass::spawn(move || {
                        if i % 2 == 0 {
                            yield_now();
                        }
                        flag.wake();
                        flag.set();
                    })
                })
                .collect();
            setters.into_iter().for_each(|j| j.join().unwrap());
            assert_eq!(all.join().unwrap().len(), 4);
        }
    });
}

#[test]
fn a_wake_for_the_outer_call_is_not_lost_to_an_inner_one() {
    run(1, || {
        let (outer, inner) = (Flag::default(), Flag::default());
        let sets = windlass::spawn({
            let (outer, inner) = (outer.clone(), inner.clone());
            move || {
                wait_until(|| outer.is_waited_for() && inner.is_waited_for());
                // Meant for the outer call, while the inner one waits.
                outer.set();
                yield_now();
                inner.set();
            }
        });
        let mut asked = outer.clone();
        let mut first = true;
        block_on(poll_fn(|cx| {
            let polled = Pin::new(&mut asked).poll(cx);
            if first {
                first = false;
                block_on(inner.clone());
                return Poll::Pending;
            }
            polled
        }));
        sets.join().unwrap();
    });
}

#[test]
fn wakers_outlive_goroutine_and_runtime() {
    let _guard = hang_guard();
    let flag = Flag::default();
    let waker = runtime(2).run(|| {
        let waker = block_on(poll_fn(|cx| Poll::Ready(cx.waker().clone())));
        assert!(waker.will_wake(&waker.clone()));
        let ended = spawn(poll_fn(|cx| Poll::Ready(cx.waker().clone()))).join();
        let ended = ended.unwrap();
        ended.wake_by_ref();
        let another = ended.clone();
        drop(ended);
        another.wake();
        let waits = spawn(flag.clone());
        wait_until(|| flag.is_waited_for());
        drop(waits);
        waker
    });
    // The future was dropped with its goroutine; its waker was not.
    assert!(flag.is_waited_for());
    flag.set();
    waker.wake();
}

#[test]
fn the_end_of_a_run_drops_futures() {
    let _guard = hang_guard();
    let census = Census::default();
    let join = runtime(2).run(|| {
        let (flag, second) = (Flag::default(), Flag::default());
        let member = census.member();
        let (waits, then, also) = (flag.clone(), second.clone(), census.member());
        let join = spawn(async move {
            let _member = member;
            waits.await;
            then.await;
        });
        let section = windlass::spawn(move || {
            let _member = also;
            blocking(|| block_on(pending::<()>()));
        });
        wait_until(|| flag.is_waited_for());
        flag.set();
        wait_until(|| second.is_waited_for());
        drop(section);
        join
    });
    assert!(join.join().unwrap_err().is::<Cancelled>());
    census.assert_all_dropped(2);
}

#[test]
fn a_panic_is_the_goroutines() {
    run(1, || {
        let join = spawn(async {
            std::panic::resume_unwind(Box::new(9));
        });
        let outcome: task::Result<()> = join.join();
        assert_eq!(outcome.unwrap_err().downcast_ref(), Some(&9));
        // The polling of a caught panic is over.
        let caught: task::Result<()> =
            std::panic::catch_unwind(|| block_on(async { std::panic::resume_unwind(Box::new(1)) }));
        assert!(caught.is_err());
        let (sender, receiver) = oneshot::channel();
        windlass::spawn(move || sender.send(3).unwrap());
        assert_eq!(block_on(receiver), Ok(3));
    });
}

#[test]
fn futures_may_call_what_blocks() {
    run(2, || {
        let all: FuturesUnordered<_> = (0..10_u64)
            .map(|i| async move {
                sleep(Duration::from_micros(i));
                i
            })
            .collect();
        let sum = block_on(all.fold(0, |sum, i| ready(sum + i)));
        assert_eq!(sum, 45);
        assert_eq!(futures::executor::block_on(ready(5)), 5);
    });
}

#[test]
fn async_channel_works() {
    run(4, || {
        for capacity in [1, 7] {
            let (sender, receiver) = async_channel::bounded(capacity);
            let producers: Vec<_> = (0..4_u64)
                .map(|p| {
                    let sender = sender.clone();
                    spawn(async move {
                        for i in 0..500 {
                            sender.send(p * 500 + i).await.unwrap();
                        }
                    })
                })
                .collect();
            drop(sender);
            let consumers: Vec<_> = (0..3)
                .map(|_| {
                    let receiver = receiver.clone();
                    spawn(async move {
                        let mut sum = 0;
                        while let Ok(n) = receiver.recv().await {
                            sum += n;
                        }
                        sum
                    })
                })
                .collect();
            producers.into_iter().for_each(|j| j.join().unwrap());
            let sum: u64 = consumers.into_iter().map(|j| j.join().unwrap()).sum();
            assert_eq!(sum, (0..2000).sum::<u64>());
        }
    });
}

#[test]
fn async_lock_works() {
    run(4, || {
        let count = Arc::new(async_lock::Mutex::new(0));
        let all: Vec<_> = (0..20)
            .map(|_| {
                let count = Arc::clone(&count);
                spawn(async move {
                    for _ in 0..50 {
                        let mut count = count.lock().await;
                        let seen = *count;
                        yield_now();
                        *count = seen + 1;
                    }
                })
            })
            .collect();
        all.into_iter().for_each(|j| j.join().unwrap());
        assert_eq!(*block_on(count.lock()), 1000);
        let barrier = Arc::new(async_lock::Barrier::new(2));
        let other = spawn({
            let barrier = Arc::clone(&barrier);
            async move { barrier.wait().await.is_leader() }
        });
        let leads = block_on(barrier.wait()).is_leader();
        assert_ne!(leads, other.join().unwrap());
    });
}

#[test]
fn select_drops_the_loser() {
    run(2, || {
        let (_keep, never) = oneshot::channel::<()>();
        let (sender, receiver) = oneshot::channel();
        windlass::spawn(move || {
            sleep(Duration::from_millis(1));
            sender.send(5).unwrap();
        });
        match block_on(select(receiver, never)) {
            futures::future::Either::Left((value, _)) => assert_eq!(value, Ok(5)),
            futures::future::Either::Right(_) => panic!("nobody sent that"),
        }
    });
}

/// Returns `Pending` so many times, and wakes itself each time before that.
struct Again(usize);

impl Future for Again {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.0 == 0 {
            return Poll::Ready(());
        }
        self.0 -= 1;
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

fn n_stacks_in_use(handle: &Handle) -> usize {
    let metrics = handle.metrics();
    metrics.nodes.iter().map(|node| node.stacks_live()).sum()
}

#[test]
fn a_pending_future_has_no_stack() {
    const N: usize = 1000;
    run(2, || {
        let handle = Handle::current();
        let flags: Vec<_> = (0..N).map(|_| Flag::default()).collect();
        let waits: Vec<_> = flags.iter().cloned().map(spawn).collect();
        wait_until(|| flags.iter().all(Flag::is_waited_for));
        // Each P may be in the last poll.
        wait_until(|| n_stacks_in_use(&handle) < 10);
        let started = handle.metrics().total().started;
        flags.iter().for_each(Flag::wake);
        wait_until(|| flags.iter().all(|flag| flag.n_polls() == 2));
        wait_until(|| n_stacks_in_use(&handle) < 10);
        assert_eq!(handle.metrics().total().started, started);
        flags.iter().for_each(Flag::set);
        waits.into_iter().for_each(|one| one.join().unwrap());
    });
}

#[test]
fn a_wake_during_the_poll_is_not_lost_and_lets_others_run() {
    run(1, || {
        let order = Arc::new(Mutex::new(Vec::new()));
        let (own, others) = (Arc::clone(&order), Arc::clone(&order));
        let polls = spawn(async move {
            for i in 0..3 {
                own.lock().unwrap().push(i);
                Again(1).await;
            }
            Again(1000).await;
        });
        let other = windlass::spawn(move || {
            for _ in 0..3 {
                others.lock().unwrap().push(9);
                yield_now();
            }
        });
        polls.join().unwrap();
        other.join().unwrap();
        let order = order.lock().unwrap();
        assert_eq!(order.len(), 6);
        // Chaos chooses an order of its own.
        assert!(is_chaotic() || order[..3] != [0, 1, 2], "{order:?}");
    });
}

#[test]
fn a_large_future_stays_in_place() {
    run(2, || {
        let flag = Flag::default();
        let waits = spawn({
            let flag = flag.clone();
            async move {
                let bytes = [7_u8; 4000];
                let at = bytes.as_ptr().addr();
                flag.await;
                (at == bytes.as_ptr().addr(), bytes.iter().all(|&b| b == 7))
            }
        });
        wait_until(|| flag.is_waited_for());
        flag.set();
        assert_eq!(waits.join().unwrap(), (true, true));
    });
}

#[test]
fn task_locals_and_the_number_stay_between_polls() {
    task_local!(static VALUE: AtomicUsize = const { AtomicUsize::new(0) });
    run(2, || {
        let flag = Flag::default();
        let waits = spawn({
            let flag = flag.clone();
            async move {
                VALUE.with(|value| value.store(5, Ordering::Relaxed));
                let id = task::current().id();
                flag.await;
                let is_same = id == task::current().id();
                (is_same, VALUE.with(|value| value.load(Ordering::Relaxed)))
            }
        });
        wait_until(|| flag.is_waited_for());
        flag.set();
        assert_eq!(waits.join().unwrap(), (true, 5));
    });
}

/// Notes where it is dropped: the goroutine's number and its task-local, and how a wait there ends.
struct TellsOnDrop(Arc<Mutex<Vec<(u64, usize, bool)>>>);

task_local!(static NOTED: AtomicUsize = const { AtomicUsize::new(0) });

impl Drop for TellsOnDrop {
    fn drop(&mut self) {
        let noted = NOTED.with(|noted| noted.load(Ordering::Relaxed));
        let waits = || sleep(Duration::from_micros(1));
        let has_waited = std::panic::catch_unwind(waits).is_ok();
        let told = (task::current().id(), noted, has_waited);
        self.0.lock().unwrap().push(told);
    }
}

#[test]
fn a_future_is_dropped_by_its_goroutine() {
    let _guard = hang_guard();
    let told = Arc::default();
    let polls = |told: &Arc<_>, n: usize, flag: Flag| {
        let tells = TellsOnDrop(Arc::clone(told));
        spawn(async move {
            let _tells = tells;
            NOTED.with(|noted| noted.store(n, Ordering::Relaxed));
            Again(2).await;
            flag.await;
        })
    };
    let ids = runtime(2).run(|| {
        let (flag, never) = (Flag::default(), Flag::default());
        let ends = polls(&told, 1, flag.clone());
        let is_cancelled = polls(&told, 2, never.clone());
        let ids = [ends.task().id(), is_cancelled.task().id()];
        flag.set();
        ends.join().unwrap();
        wait_until(|| never.is_waited_for());
        ids
    });
    let told = told.lock().unwrap();
    assert_eq!(*told, [(ids[0], 1, true), (ids[1], 2, false)]);
}

#[test]
fn a_wake_from_a_thread_is_not_lost() {
    const N: usize = 200;
    run(2, || {
        for _ in 0..N {
            let asked = Arc::new(AtomicUsize::new(0));
            let (sender, receiver) = std::sync::mpsc::channel();
            let seen = Arc::clone(&asked);
            let waits = spawn(poll_fn(move |cx| {
                sender.send(cx.waker().clone()).unwrap();
                match seen.load(Ordering::Relaxed) {
                    4 => Poll::Ready(()),
                    _ => Poll::Pending,
                }
            }));
            let waker: Waker = blocking(|| receiver.recv().unwrap());
            let asks = || {
                for _ in 0..2 {
                    asked.fetch_add(1, Ordering::Relaxed);
                    waker.wake_by_ref();
                }
            };
            blocking(|| {
                std::thread::scope(|s| {
                    s.spawn(asks);
                    s.spawn(|| runtime(1).run(asks));
                });
            });
            waits.join().unwrap();
        }
    });
}

/// In a process of its own, because it looks at the memory of the process.
#[test]
fn a_waiting_future_has_little_memory() {
    const N: usize = 20_000;
    if child_case().is_none() {
        child_passes("a_waiting_future_has_little_memory", "memory");
        return;
    }
    run(2, || {
        let before = resident_bytes();
        let begun = Arc::new(AtomicUsize::new(0));
        for _ in 0..N {
            let begun = Arc::clone(&begun);
            drop(spawn(async move {
                begun.fetch_add(1, Ordering::SeqCst);
                pending::<()>().await;
            }));
        }
        wait_until(|| begun.load(Ordering::SeqCst) == N);
        let each = (resident_bytes() - before) / N as u64;
        assert!(each <= 400, "{each} bytes");
    });
}

/// In a process of its own, because of the limit on memory.
#[test]
fn a_poll_that_gets_no_stack_ends_with_the_reason() {
    if child_case().is_none() {
        child_passes("a_poll_that_gets_no_stack_ends_with_the_reason", "limit");
        return;
    }
    run_with_one_thread(|| {
        let census = Census::default();
        let (flag, member) = (Flag::default(), census.member());
        let waits = spawn({
            let flag = flag.clone();
            async move {
                let _member = member;
                flag.await;
            }
        });
        wait_until(|| flag.is_waited_for());
        set_memory_limit(memory_bytes());
        // Each has a stack, until there is none.
        loop {
            let parks = windlass::spawn(task::park);
            yield_now();
            if parks.is_finished() {
                break;
            }
        }
        flag.wake();
        let reason = waits.join().unwrap_err();
        let reason = reason.downcast_ref::<String>().unwrap();
        assert!(reason.contains("cannot start"), "{reason}");
        census.assert_all_dropped(1);
    });
}

struct PanicsOnDrop;

impl Drop for PanicsOnDrop {
    fn drop(&mut self) {
        std::panic::resume_unwind(Box::new(4));
    }
}

#[test]
fn a_panic_of_a_later_poll_or_of_the_drop_is_the_goroutines() {
    run(1, || {
        let outcome: task::Result<()> = spawn(async {
            Again(2).await;
            std::panic::resume_unwind(Box::new(3));
        })
        .join();
        assert_eq!(outcome.unwrap_err().downcast_ref(), Some(&3));
        let mut held = Some(PanicsOnDrop);
        let outcome = spawn(poll_fn(move |_| {
            assert!(held.as_mut().is_some());
            Poll::Ready(())
        }))
        .join();
        assert_eq!(outcome.unwrap_err().downcast_ref(), Some(&4));
    });
}

#[test]
fn the_thread_stays_locked_between_polls() {
    run(2, || {
        let flag = Flag::default();
        let waits = spawn({
            let flag = flag.clone();
            async move {
                std::mem::forget(task::lock_thread());
                let thread = gettid();
                flag.await;
                thread == gettid()
            }
        });
        wait_until(|| flag.is_waited_for());
        flag.set();
        assert!(waits.join().unwrap());
    });
}

#[cfg(feature = "sim")]
crate::inside::tests! {
    waits_for_a_wake_and_only_for_it,
    block_on_keeps_the_token_of_park,
    on_threads_and_in_blocking_sections: "it uses threads",
    wakes_from_everywhere_race / 2,
    a_wake_for_the_outer_call_is_not_lost_to_an_inner_one,
    wakers_outlive_goroutine_and_runtime: "it ends a run of its own",
    the_end_of_a_run_drops_futures: "it ends a run of its own",
    a_panic_is_the_goroutines,
    futures_may_call_what_blocks,
    async_channel_works: "the crate waits for others in a loop",
    async_lock_works: "the crate asks for the real time",
    select_drops_the_loser,
    a_pending_future_has_no_stack: "it asks for the runtime's stacks",
    a_wake_during_the_poll_is_not_lost_and_lets_others_run: "it expects an order",
    a_large_future_stays_in_place,
    task_locals_and_the_number_stay_between_polls,
    a_future_is_dropped_by_its_goroutine: "it builds a runtime",
    a_wake_from_a_thread_is_not_lost: "threads take part",
    a_waiting_future_has_little_memory: "it looks at the process",
    a_poll_that_gets_no_stack_ends_with_the_reason: "it has a limit on the process's memory",
    a_panic_of_a_later_poll_or_of_the_drop_is_the_goroutines,
    the_thread_stays_locked_between_polls: "it is about threads",
}

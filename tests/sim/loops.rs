//! Loops that never wait: each reaches the limit of steps, and is ended after it.

use windlass::channel::{after, bounded, never, unbounded};
use windlass::context::Context;
use windlass::sim::{self, FailureKind, Sim};
use windlass::sync::{Barrier, Condvar, Mutex, Once, OnceLock, RwLock, Semaphore, WaitGroup};
use windlass::task;
use windlass::time::{Duration, Ticker, Timer, interval, sleep};

use crate::util::PROMISE;

const NOW: Duration = Duration::ZERO;
const SECOND: Duration = Duration::from_secs(1);

/// Takes the names and bodies of loops.
macro_rules! never_end {
    ($($name:literal { $($before:tt)* } $body:block)*) => {
        [$(($name, (|| {
            $($before)*
            loop $body
        }) as fn())),*]
    };
}

#[test]
fn loops_that_never_wait_are_ended() {
    let loops = never_end! {
        "try_recv" { let (_sender, receiver) = bounded::<u8>(1); } { let _ = receiver.try_recv(); }
        "recv_timeout" { let (_sender, receiver) = bounded::<u8>(1); } {
            let _ = receiver.recv_timeout(NOW);
        }
        "is_empty" { let (_sender, receiver) = bounded::<u8>(1); } { let _ = receiver.is_empty(); }
        "send and recv" { let (sender, receiver) = bounded(1); } {
            sender.send(1).unwrap();
            receiver.recv().unwrap();
        }
        "try_send" { let (sender, _receiver) = bounded(0); } { let _ = sender.try_send(1); }
        "a closed channel" { let (sender, receiver) = unbounded::<u8>(); drop(sender); } {
            let _ = receiver.recv();
        }
        "never" { let receiver = never::<u8>(); } { let _ = receiver.try_recv(); }
        "after" { let receiver = after(SECOND); } { let _ = receiver.try_recv(); }
        "select" { let (sender, receiver) = unbounded(); } {
            sender.send(1).unwrap();
            windlass::select! { recv(receiver) -> _ => {}, send(sender, 1) -> _ => {} }
        }
        "select with default" { let (_sender, receiver) = bounded::<u8>(1); } {
            windlass::select! { recv(receiver) -> _ => {}, default => {} }
        }
        "spawn and join" {} { let _ = windlass::spawn(|| 1).join(); }
        "spawn" {} { drop(windlass::spawn(|| 1)); }
        "scope" {} { windlass::scope(|s| drop(s.spawn(|| 1))); }
        "join" {} { windlass::join(|| 1, || 2); }
        "join_timeout" { let mut other = windlass::spawn(task::park); } {
            other = other.join_timeout(NOW).unwrap_err();
        }
        "is_finished" { let other = windlass::spawn(task::park); } { let _ = other.is_finished(); }
        "yield_now" {} { windlass::yield_now(); }
        "checkpoint" {} { task::checkpoint(); }
        "sleep" {} { sleep(NOW); }
        "park_timeout" {} { task::park_timeout(NOW); }
        "unpark and park" {} { task::current().unpark(); task::park(); }
        "settle" {} { sim::settle(); }
        "Mutex" { let lock = Mutex::new(0); } { *lock.lock().unwrap() += 1; }
        "try_lock" { let lock = Mutex::new(0); let _held = lock.lock(); } { drop(lock.try_lock()); }
        "RwLock" { let lock = RwLock::new(0); } { *lock.write().unwrap() += 1; drop(lock.read()); }
        "Condvar" { let condvar = Condvar::new(); } { condvar.notify_all(); }
        "wait_timeout" { let pair = (Mutex::new(0), Condvar::new()); } {
            let _ = pair.1.wait_timeout(pair.0.lock().unwrap(), NOW);
        }
        "Once" { let once = Once::new(); } { once.call_once(|| ()); }
        "OnceLock" { let lock = OnceLock::new(); } { lock.get_or_init(|| 1); }
        "Barrier" { let barrier = Barrier::new(1); } { barrier.wait(); }
        "WaitGroup" { let group = WaitGroup::new(); } { group.add(1); group.done(); group.wait(); }
        "Semaphore" { let permits = Semaphore::new(1); } { drop(permits.acquire(1)); }
        "acquire_timeout" { let permits = Semaphore::new(0); } {
            let _ = permits.acquire_timeout(1, NOW);
        }
        "block_on" {} { windlass::future::block_on(async {}); }
        "a future that wakes itself" {} {
            windlass::future::block_on(std::future::poll_fn::<(), _>(|cx| {
                cx.waker().wake_by_ref();
                std::task::Poll::Pending
            }));
        }
        "future::spawn" {} { let _ = windlass::future::spawn(async {}).join(); }
        "Context" {} {
            let (context, canceller) = Context::background().with_cancel();
            context.run(|| canceller.cancel());
        }
        "interval" { let mut interval = interval(SECOND); } { interval.tick(); }
        "Timer" { let timer = Timer::new(NOW); } {
            timer.reset(NOW);
            timer.channel().recv().unwrap();
        }
        "Ticker" { let ticker = Ticker::new(SECOND); } { ticker.channel().recv().unwrap(); }
    };
    for (name, program) in loops {
        let failure = Sim::new(PROMISE).seed(1).seeds(1).steps(5_000).run(program);
        let failure = failure.expect_err(name);
        assert_eq!(failure.kind(), FailureKind::StepLimit, "{name}: {failure}");
    }
}

/// No steps are taken by a clock that nobody waits for.
#[test]
fn a_ticker_that_nobody_hears_does_not_hide_a_deadlock() {
    let failure = Sim::new(PROMISE).seed(1).seeds(1).run(|| {
        let _ticks = windlass::channel::tick(SECOND);
        let _ticker = Ticker::new(Duration::from_nanos(1));
        task::park();
    });
    assert_eq!(failure.unwrap_err().kind(), FailureKind::Deadlock);
}

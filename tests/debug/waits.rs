//! Wait profiles: each wait for another goroutine is in them, with its time, reason and place.

use crate::util;

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use windlass::debug::{State, WaitProfile, WaitSample};
use windlass::sync::{Mutex, Semaphore};
use windlass::{Handle, channel, sleep, task};

#[inline(never)]
fn wants_the_lock(lock: &Mutex<u32>) {
    let n = lock.lock().unwrap();
    std::hint::black_box(*n);
}

/// Starts a goroutine that begins to wait.
fn waits(name: &str, f: impl FnOnce() + Send + 'static) -> task::JoinHandle<()> {
    let waiter = task::Builder::new()
        .name(name)
        .label("waits")
        .spawn(f)
        .unwrap();
    let id = waiter.task().id();
    util::wait_until(|| {
        let all = Handle::current().goroutines();
        all.iter().any(|g| g.id == id && g.state == State::Waiting)
    });
    waiter
}

fn of<'a>(profile: &'a WaitProfile, reason: &'a str) -> impl Iterator<Item = &'a WaitSample> {
    profile.samples.iter().filter(move |s| s.reason == reason)
}

fn sum<'a>(samples: impl Iterator<Item = &'a WaitSample>) -> Duration {
    samples.map(|s| s.waited).sum()
}

#[test]
fn waits_for_others_are_counted_with_reason_and_place() {
    let _guard = util::hang_guard();
    let rt = util::runtime(2);
    let handle = rt.handle();
    rt.run(|| {
        let lock = Arc::new(Mutex::new(1));
        let permits = Arc::new(Semaphore::new(0));
        let (sender, receiver) = channel::bounded::<()>(0);
        let held = lock.lock().unwrap();
        let mut waiters = Vec::new();
        for n in 0..3 {
            let lock = Arc::clone(&lock);
            let name = if n == 2 { "last" } else { "first" };
            waiters.push(waits(name, move || wants_the_lock(&lock)));
        }
        let wanted = Arc::clone(&permits);
        waiters.push(waits("acquirer", move || drop(wanted.acquire(1))));
        waiters.push(waits("receiver", move || assert!(receiver.recv().is_err())));
        let sleeper = waits("sleeper", || sleep(Duration::from_secs(3600)));
        let parker = waits("parker", task::park);
        let profile = handle
            .profile_waits(Duration::from_millis(100), || true)
            .unwrap();
        assert!(profile.duration >= Duration::from_millis(100));
        // They wait all the time. One whose stack cannot be had just then is in another sample.
        let locks: Vec<_> = of(&profile, "sync.Mutex.lock").collect();
        assert_eq!(
            sum(locks.iter().copied()),
            3 * profile.duration,
            "{profile:?}"
        );
        for (name, n) in [("first", 2), ("last", 1)] {
            let is_there =
                |s: &&&WaitSample| s.name.as_deref() == Some(name) && !s.stack.is_empty();
            let sample = locks.iter().find(is_there).unwrap();
            assert_eq!(sample.label.as_deref(), Some("waits"));
            assert!(sample.waited <= n * profile.duration);
            assert!(sample.count > 0);
            let functions = sample.stack.iter().filter_map(|f| f.function.as_deref());
            let functions: Vec<_> = functions.collect();
            // From the call of windlass on.
            let ours = functions
                .iter()
                .position(|f| f.contains("windlass::sync::"));
            let its = functions.iter().position(|f| f.ends_with("wants_the_lock"));
            assert!(ours == Some(0) && its > ours, "{functions:?}");
            assert!(
                functions.iter().all(|f| !f.contains("windlass::sched::")),
                "{functions:?}"
            );
        }
        for reason in ["sync.Semaphore.acquire", "chan receive"] {
            assert_eq!(sum(of(&profile, reason)), profile.duration, "{reason}");
        }
        let named = |name: &str| {
            profile
                .samples
                .iter()
                .any(|s| s.name.as_deref() == Some(name))
        };
        assert!(!named("sleeper") && !named("parker"), "{profile:?}");
        drop((held, sender));
        permits.add_permits(1);
        for waiter in waiters {
            waiter.join().unwrap();
        }
        parker.task().unpark();
        parker.join().unwrap();
        drop(sleeper);
    });
}

#[test]
fn each_of_some_stands_for_several_of_many() {
    const N: u32 = 1000;
    let _guard = util::hang_guard();
    let rt = util::runtime(2);
    let handle = rt.handle();
    rt.run(|| {
        let (sender, receiver) = channel::bounded::<()>(0);
        let mut waiters = Vec::new();
        for _ in 0..N {
            let receiver = receiver.clone();
            waiters.push(windlass::spawn(move || assert!(receiver.recv().is_err())));
        }
        util::wait_until(|| {
            let all = handle.goroutines();
            all.iter()
                .filter(|g| g.wait_reason == Some("chan receive"))
                .count()
                == N as usize
        });
        let mut n_looks = 0;
        let goes_on = || {
            n_looks += 1;
            n_looks <= 5
        };
        let profile = handle
            .profile_waits(Duration::from_secs(3600), goes_on)
            .unwrap();
        assert!(profile.duration < Duration::from_secs(3600));
        let waited = sum(of(&profile, "chan receive"));
        let all = N * profile.duration;
        assert!(
            waited > all * 9 / 10 && waited < all * 11 / 10,
            "{waited:?} of {all:?}"
        );
        // In five looks; the first took more, as it did not know how many there are.
        let n: u64 = of(&profile, "chan receive").map(|s| s.count).sum();
        assert!((4500..5500).contains(&n), "{n}");
        drop(sender);
        for waiter in waiters {
            waiter.join().unwrap();
        }
    });
    for duration in [Duration::ZERO, Duration::MAX] {
        let refused = handle.profile_waits(duration, || true).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    }
}

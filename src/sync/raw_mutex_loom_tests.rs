//! Loom models of the mutex: exclusion, no lost wake-up, hand-over; and of a condition variable on
//! top of it.
#![allow(unsafe_code)]

use super::super::waitlist::Queue;
use super::*;
use crate::loom::models::{self, Arc, UnsafeCell, thread};

struct Guarded {
    mutex: RawMutex,
    /// Loom reports concurrent accesses.
    value: UnsafeCell<u32>,
    list: WaitList,
}

// SAFETY: the value is accessed only under the mutex, which loom checks.
unsafe impl Sync for Guarded {}
// SAFETY: as above.
unsafe impl Send for Guarded {}

impl Guarded {
    fn new() -> Arc<Guarded> {
        Arc::new(Guarded {
            mutex: RawMutex::new(),
            value: UnsafeCell::new(0),
            list: WaitList::new(),
        })
    }

    /// Adds one and returns the sum. The caller holds the mutex.
    fn add(&self) -> u32 {
        // SAFETY: the mutex is held.
        self.value.with_mut(|n| unsafe {
            *n += 1;
            *n
        })
    }

    fn get(&self) -> u32 {
        // SAFETY: the mutex is held.
        self.value.with(|n| unsafe { *n })
    }

    fn lock_and_add(&self) {
        assert!(self.mutex.lock().is_ok());
        self.add();
        self.mutex.unlock();
    }

    fn assert_idle(&self) {
        assert_eq!(self.mutex.state.load(Ordering::Relaxed), 0);
    }
}

fn spawn(guarded: &Arc<Guarded>, f: impl Fn(&Guarded) + 'static) -> thread::JoinHandle<()> {
    let guarded = Arc::clone(guarded);
    thread::spawn(move || f(&guarded))
}

#[test]
fn loom_mutex_excludes_and_wakes() {
    models::run(|| {
        let guarded = Guarded::new();
        let others = [
            spawn(&guarded, Guarded::lock_and_add),
            spawn(&guarded, Guarded::lock_and_add),
        ];
        guarded.lock_and_add();
        others.into_iter().for_each(|t| t.join().unwrap());
        assert_eq!(guarded.get(), 3);
        guarded.assert_idle();
    });
}

#[test]
fn loom_mutex_locked_again_while_one_wakes() {
    models::run(|| {
        let guarded = Guarded::new();
        let other = spawn(&guarded, Guarded::lock_and_add);
        guarded.lock_and_add();
        if guarded.mutex.try_lock() {
            guarded.add();
            guarded.mutex.unlock();
        }
        guarded.lock_and_add();
        other.join().unwrap();
        assert!((3..=4).contains(&guarded.get()));
        guarded.assert_idle();
    });
}

/// Sets STARVING as a starving waiter does: the lock is handed over, and the mode ends.
#[test]
fn loom_mutex_hands_over() {
    models::run(|| {
        let guarded = Guarded::new();
        assert!(guarded.mutex.lock().is_ok());
        let others = [
            spawn(&guarded, Guarded::lock_and_add),
            spawn(&guarded, Guarded::lock_and_add),
        ];
        {
            let ctx = WaitCtx::enter();
            let queue = guarded.mutex.list.lock(&ctx);
            if !queue.is_empty() {
                guarded.mutex.state.fetch_or(STARVING, Ordering::Relaxed);
            }
        }
        guarded.mutex.unlock();
        others.into_iter().for_each(|t| t.join().unwrap());
        guarded.lock_and_add();
        assert_eq!(guarded.get(), 3);
        guarded.assert_idle();
    });
}

/// Waits until the condition holds, as `Condvar::wait_while` does. A deadline in the past ends the
/// wait at once.
fn wait_for(guarded: &Guarded, n: u32, deadline_ns: u64) {
    assert!(guarded.mutex.lock().is_ok());
    while guarded.get() < n {
        let ctx = WaitCtx::enter();
        let queue = guarded.list.lock(&ctx);
        guarded.mutex.unlock_in(&ctx);
        let leave = |_: &Queue<'_>| DequeuedList::new();
        let options = WaitOptions::new(Reason::Condvar).until(deadline_ns);
        let _ = queue.wait(ctx, QueueEnd::Last, 0, options, leave);
        assert!(guarded.mutex.lock().is_ok());
        if deadline_ns != NEVER {
            break;
        }
    }
    guarded.mutex.unlock();
}

#[test]
fn loom_condvar_loses_no_notification() {
    models::run(|| {
        let guarded = Guarded::new();
        let waiter = spawn(&guarded, |guarded| wait_for(guarded, 1, NEVER));
        guarded.lock_and_add();
        guarded.list.wake_one();
        waiter.join().unwrap();
        guarded.assert_idle();
    });
}

#[test]
fn loom_condvar_notifies_all() {
    models::run(|| {
        let guarded = Guarded::new();
        let waiters = [
            spawn(&guarded, |guarded| wait_for(guarded, 1, NEVER)),
            spawn(&guarded, |guarded| wait_for(guarded, 1, NEVER)),
        ];
        guarded.lock_and_add();
        guarded.list.wake_all();
        waiters.into_iter().for_each(|t| t.join().unwrap());
        guarded.assert_idle();
    });
}

/// A waiter that times out consumes no notification of another waiter.
#[test]
fn loom_condvar_timeout_and_notification() {
    models::run(|| {
        let guarded = Guarded::new();
        let hasty = spawn(&guarded, |guarded| wait_for(guarded, 1, 0));
        guarded.lock_and_add();
        guarded.list.wake_one();
        hasty.join().unwrap();
        guarded.assert_idle();
    });
}

/// Takes the lock, or gives up at once.
fn add_or_give_up(guarded: &Guarded) {
    let options = WaitOptions::new(Reason::Mutex).until(0);
    if guarded.mutex.lock_contended(options).is_ok() {
        guarded.add();
        guarded.mutex.unlock();
    }
}

/// A waiter gives up during an unlock: it gets the lock, or the waiter behind it does.
#[test]
fn loom_mutex_meets_one_that_gives_up() {
    models::run(|| {
        let guarded = Guarded::new();
        assert!(guarded.mutex.lock().is_ok());
        let hasty = spawn(&guarded, add_or_give_up);
        let other = spawn(&guarded, Guarded::lock_and_add);
        guarded.mutex.unlock();
        hasty.join().unwrap();
        other.join().unwrap();
        assert!((1..=2).contains(&guarded.get()));
        guarded.assert_idle();
    });
}

/// As above, in starving mode.
#[test]
fn loom_mutex_hands_over_past_one_that_gives_up() {
    models::run(|| {
        let guarded = Guarded::new();
        assert!(guarded.mutex.lock().is_ok());
        let hasty = spawn(&guarded, add_or_give_up);
        let other = spawn(&guarded, Guarded::lock_and_add);
        {
            let ctx = WaitCtx::enter();
            let queue = guarded.mutex.list.lock(&ctx);
            if !queue.is_empty() {
                guarded.mutex.state.fetch_or(STARVING, Ordering::Relaxed);
            }
        }
        guarded.mutex.unlock();
        hasty.join().unwrap();
        other.join().unwrap();
        guarded.lock_and_add();
        assert!((2..=3).contains(&guarded.get()));
        guarded.assert_idle();
    });
}

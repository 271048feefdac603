//! Loom models of notifications.

use super::*;
use crate::loom::models::{self, Arc, thread};
use crate::loom::{AtomicU32, Ordering};

fn spawn(notify: &Arc<Notify>, f: impl FnOnce(&Notify) + 'static) -> thread::JoinHandle<()> {
    let notify = Arc::clone(notify);
    thread::spawn(move || f(&notify))
}

/// Two notifications for two waiters that have registered: neither waits for ever.
#[test]
fn loom_notify_one_for_each_listener() {
    models::run(|| {
        let notify = Arc::new(Notify::new());
        let one = notify.listen();
        let other = spawn(&notify, |n| {
            n.notify_one();
            n.notify_one();
        });
        one.wait();
        notify.wait();
        other.join().unwrap();
        assert_eq!(notify.state().permits, 0);
    });
}

/// A listener registered before the check misses no change.
#[test]
fn loom_notify_waiters_after_a_check() {
    models::run(|| {
        let notify = Arc::new(Notify::new());
        let flag = Arc::new(AtomicU32::new(0));
        let other = {
            let flag = Arc::clone(&flag);
            spawn(&notify, move |n| {
                flag.store(1, Ordering::Relaxed);
                n.notify_waiters();
            })
        };
        let listener = notify.listen();
        if flag.load(Ordering::Relaxed) == 0 {
            listener.wait();
        }
        other.join().unwrap();
        let state = notify.state();
        assert_eq!(state.permits, 0);
    });
}

/// A listener that is dropped passes its notification on.
#[test]
fn loom_notify_passes_on() {
    models::run(|| {
        let notify = Arc::new(Notify::new());
        let listener = notify.listen();
        let waiter = spawn(&notify, Notify::wait);
        notify.notify_one();
        drop(listener);
        waiter.join().unwrap();
        assert_eq!(notify.state().permits, 0);
        assert_eq!(notify.state().listeners, 0);
    });
}

/// A notification that meets a waiter that gives up is received or stored.
#[test]
fn loom_notify_meets_one_that_gives_up() {
    models::run(|| {
        let notify = Arc::new(Notify::new());
        let hasty = spawn(&notify, |n| {
            if n.wait_until(None, 0, false).is_ok() {
                n.notify_one();
            }
        });
        notify.notify_one();
        hasty.join().unwrap();
        assert_eq!(notify.state().permits, 1);
    });
}

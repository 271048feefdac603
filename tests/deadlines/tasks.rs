//! Waits for time, for goroutines and for the caller's own turn.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use windlass::context::{self, Context};
use windlass::task::{self, Group, JoinHandle, JoinSet};
use windlass::time::{Instant, interval_at, sleep, sleep_until};
use windlass::{channel, future};

use super::{FOREVER, Row, Wait, ended, not_ended, not_ended_of_goroutines, until, wait};
use crate::util::Gate;

/// A goroutine that ends when the sender is dropped.
fn waiting() -> (channel::Sender<u8>, JoinHandle<()>) {
    let (tx, rx) = channel::unbounded::<u8>();
    (tx, windlass::spawn(move || assert!(rx.recv().is_err())))
}

/// A park that nobody ends. On a plain thread it may return early, as in `std`.
fn park_once(park: fn()) {
    park();
    while task::current().id() == 0 && context::check().is_ok() {
        park();
    }
}

fn unparked(park: impl FnOnce() + Send + 'static) -> Wait {
    wait((), move |_| park())
}

pub(crate) const ROWS: &[Row] = &[
    ended("sleep", || wait((), |_| sleep(FOREVER))),
    ended("sleep_until", || {
        wait((), |_| sleep_until(Instant::now() + FOREVER))
    }),
    ended("tick", || {
        let mut interval = interval_at(Instant::now() + FOREVER, FOREVER);
        wait((), move |_| assert!(interval.tick() > Instant::now()))
    }),
    ended("park", || unparked(|| park_once(task::park))),
    ended("park_timeout", || {
        unparked(|| park_once(|| task::park_timeout(FOREVER)))
    }),
    ended("thread::park", || {
        unparked(|| park_once(windlass::thread::park))
    }),
    ended("Context::wait", || {
        let (ctx, canceller) = Context::background().with_cancel();
        wait(canceller, move |_| ctx.wait())
    }),
    ended("Context::wait_timeout", || {
        let (ctx, canceller) = Context::background().with_cancel();
        wait(canceller, move |_| assert!(!ctx.wait_timeout(FOREVER)))
    }),
    ended("recv of Context::done", || {
        let (ctx, canceller) = Context::background().with_cancel();
        wait(canceller, move |_| assert!(ctx.done().recv().is_err()))
    }),
    ended("join_timeout", || {
        let (tx, handle) = waiting();
        wait(tx, move |_| assert!(handle.join_timeout(FOREVER).is_err()))
    }),
    ended("join_context", || {
        let (tx, handle) = waiting();
        let ctx = Context::background();
        wait(tx, move |_| assert!(handle.join_context(&ctx).is_err()))
    }),
    ended("join_next_timeout", || {
        let (tx, rx) = channel::unbounded::<u8>();
        let mut set = JoinSet::new();
        set.spawn(move || assert!(rx.recv().is_err()));
        wait(tx, move |_| {
            assert!(set.join_next_timeout(FOREVER).is_err())
        })
    }),
    ended("join_next_context", || {
        let (tx, rx) = channel::unbounded::<u8>();
        let mut set = JoinSet::new();
        set.spawn(move || assert!(rx.recv().is_err()));
        let ctx = Context::background();
        wait(tx, move |why| {
            assert_eq!(set.join_next_context(&ctx).err(), Some(why))
        })
    }),
    ended("both closures of windlass::join", || {
        let (tx, rx) = channel::unbounded::<u8>();
        let call = move |_| {
            let (a, b) = windlass::join(|| rx.recv(), || rx.recv());
            assert!(a.is_err() && b.is_err());
        };
        wait(tx, call)
    }),
    ended("a sleep in a blocking section", || {
        wait((), |_| windlass::blocking(|| sleep(FOREVER)))
    }),
    not_ended("join", || {
        let (tx, handle) = waiting();
        wait(tx, move |_| handle.join().unwrap())
    }),
    not_ended("join_next", || {
        let (tx, rx) = channel::unbounded::<u8>();
        let mut set = JoinSet::new();
        set.spawn(move || assert!(rx.recv().is_err()));
        wait(tx, move |_| set.join_next().unwrap().unwrap())
    }),
    not_ended("Group::wait", || {
        let (tx, rx) = channel::unbounded::<u8>();
        let group = Group::<()>::new();
        group.spawn(move || {
            let _ = rx.recv();
            Ok(())
        });
        wait(tx, move |_| group.wait().unwrap())
    }),
    not_ended("block_on", || {
        let state: Arc<(AtomicBool, Mutex<Option<Waker>>)> = Arc::default();
        let its = Arc::clone(&state);
        let release = move || {
            state.0.store(true, Ordering::SeqCst);
            if let Some(waker) = state.1.lock().unwrap().take() {
                waker.wake();
            }
        };
        let polled = std::future::poll_fn(move |cx| {
            *its.1.lock().unwrap() = Some(cx.waker().clone());
            match its.0.load(Ordering::SeqCst) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        });
        until(release, move |_| future::block_on(polled))
    }),
    not_ended("offload", || {
        let gate = Gate::default();
        let its = gate.clone();
        until(
            move || gate.open(),
            move |_| windlass::offload(|| its.wait()),
        )
    }),
    not_ended("blocking", || {
        let gate = Gate::default();
        let its = gate.clone();
        until(
            move || gate.open(),
            move |_| windlass::blocking(|| its.wait()),
        )
    }),
    not_ended("a sleep in a shield", || {
        let (tx, rx) = channel::unbounded::<u8>();
        wait(tx, move |_| assert!(context::shield(|| rx.recv()).is_err()))
    }),
    not_ended_of_goroutines("scope", || {
        let (tx, rx) = channel::unbounded::<u8>();
        wait(tx, move |_| {
            windlass::scope(|s| {
                s.spawn(|| rx.recv().unwrap_err());
            });
        })
    }),
    not_ended_of_goroutines("join of a scoped goroutine", || {
        let (tx, rx) = channel::unbounded::<u8>();
        wait(tx, move |_| {
            windlass::scope(|s| {
                s.spawn(|| rx.recv()).join().unwrap().unwrap_err();
            });
        })
    }),
];

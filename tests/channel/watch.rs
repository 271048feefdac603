//! Watch channels between goroutines, between threads, and across.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::both;
use crate::both::{on_each, panic_of, run_line};
use crate::util::{Census, Member, hang_guard, own_cpu, runtime, wait_until};
use windlass::channel::watch::{Receiver, Sender};
use windlass::channel::{RecvError, RecvTimeoutError, SendError, after, select, watch};
use windlass::context::{Context, Error};
use windlass::time::{Duration, Instant};
use windlass::{sleep, spawn, yield_now};

const SOON: Duration = Duration::from_millis(5);
const LONG: Duration = Duration::from_secs(1 << 20);

/// A receiver sees values in order, skips some, and always comes to see the last.
#[test]
fn every_receiver_comes_to_see_the_last_value() {
    on_each(|kind| {
        let (tx, rx) = watch(0);
        let receivers: Vec<_> = (0..3)
            .map(|_| {
                let rx = rx.clone();
                kind.spawn(move || {
                    let mut last = 0;
                    while rx.changed().is_ok() {
                        let now = *rx.borrow_and_update();
                        assert!(now >= last);
                        last = now;
                    }
                    last
                })
            })
            .collect();
        for n in 1..=300 {
            tx.send(n).unwrap();
            if n % 30 == 0 {
                yield_now();
            }
        }
        drop(tx);
        for receiver in receivers {
            assert_eq!(receiver.join(), 300);
        }
        assert_eq!(*rx.borrow(), 300);
    });
}

/// Sender and receiver take turns: a change that is not noticed would stop both.
#[test]
fn changes_go_to_and_fro() {
    on_each(|kind| {
        let (ping, pings) = watch(0);
        let (pong, pongs) = watch(0);
        let other = kind.spawn(move || {
            while pings.changed().is_ok() {
                let n = *pings.borrow_and_update();
                pong.send(n).unwrap();
            }
        });
        for n in 1..=300 {
            ping.send(n).unwrap();
            assert_eq!(*pongs.wait_for(|pong| *pong == n).unwrap(), n);
        }
        drop(ping);
        other.join();
    });
}

#[test]
fn what_is_seen_and_what_is_new() {
    let (tx, rx) = watch(1);
    assert_eq!(rx.has_changed(), Ok(false));
    let other = rx.clone();
    tx.send(2).unwrap();
    assert!(rx.borrow().has_changed());
    assert_eq!(rx.has_changed(), Ok(true));
    assert!(rx.borrow_and_update().has_changed());
    assert!(!rx.borrow_and_update().has_changed());
    // Each for itself; a clone has seen what its original has.
    assert_eq!(other.has_changed(), Ok(true));
    assert_eq!(other.clone().has_changed(), Ok(true));
    assert_eq!(tx.subscribe().has_changed(), Ok(false));
    other.mark_unchanged();
    assert_eq!(other.has_changed(), Ok(false));
    other.mark_changed();
    assert_eq!(other.changed(), Ok(()));
    assert_eq!(
        other.changed_timeout(Duration::ZERO),
        Err(RecvTimeoutError::Timeout)
    );
    assert_eq!(*tx.borrow(), 2);
    assert!(!tx.borrow().has_changed());
    // The last value is seen after the end.
    tx.send_modify(|n| *n += 1);
    drop(tx);
    assert_eq!(rx.has_changed(), Ok(true));
    assert_eq!(rx.changed(), Ok(()));
    assert_eq!(rx.has_changed(), Err(RecvError));
    assert_eq!(rx.changed(), Err(RecvError));
    assert_eq!(
        rx.changed_timeout(LONG),
        Err(RecvTimeoutError::Disconnected)
    );
    assert_eq!(*rx.wait_for(|n| *n == 3).unwrap(), 3);
    assert_eq!(rx.wait_for(|n| *n == 4).err(), Some(RecvError));
    assert!(rx.is_closed());
}

#[test]
fn changes_that_are_none_notify_nobody() {
    let (tx, rx) = watch(5);
    assert!(!tx.send_if_modified(|n| *n == 6));
    assert_eq!(rx.has_changed(), Ok(false));
    assert!(tx.send_if_modified(|n| {
        *n = 6;
        true
    }));
    assert_eq!(*rx.borrow_and_update(), 6);
    // A change that panics is no change, and the channel goes on.
    panic_of(|| {
        tx.send_modify(|n| {
            *n = 7;
            resume_unwind(Box::new("change"));
        });
    });
    assert_eq!(rx.has_changed(), Ok(false));
    assert_eq!(*rx.borrow(), 7);
    panic_of(|| {
        rx.wait_for(|_| resume_unwind(Box::new("condition")))
            .is_ok()
    });
    tx.send(8).unwrap();
    assert_eq!(*rx.borrow(), 8);
}

#[test]
fn the_numbers_of_a_channel() {
    let (tx, rx) = watch(1);
    let (tx2, rx2) = (tx.clone(), rx.clone());
    assert_eq!((tx.sender_count(), rx.sender_count()), (2, 2));
    assert_eq!(tx.receiver_count(), 2);
    assert!(tx.same_channel(&tx2) && rx.same_channel(&rx2));
    assert!(!tx.same_channel(&watch(1).0) && !rx.same_channel(&watch(1).1));
    drop((rx, rx2));
    assert!(tx.is_closed());
    assert_eq!(tx.send(2), Err(SendError(2)));
    assert_eq!(tx.send_replace(3), 1);
    assert_eq!(*tx2.subscribe().borrow(), 3);
    assert_eq!(format!("{tx:?} {:?}", tx.borrow()), "Sender { .. } 3");
    assert_eq!(Sender::<u8>::default().borrow().to_string(), "0");
}

#[test]
fn senders_wait_until_all_receivers_are_gone() {
    on_each(|kind| {
        let (tx, rx) = watch(());
        assert!(!tx.closed_timeout(Duration::ZERO));
        let other = tx.clone();
        let waiter = kind.spawn(move || other.closed());
        let late = rx.clone();
        drop(rx);
        yield_now();
        drop(late);
        waiter.join();
        assert!(tx.closed_timeout(LONG));
        let rx = tx.subscribe();
        assert!(!tx.is_closed());
        let waiter = kind.spawn(move || {
            select! {
                recv(tx.closed_channel()) -> _ => true,
                recv(after(LONG)) -> _ => false,
            }
        });
        yield_now();
        drop(rx);
        assert!(waiter.join());
    });
}

/// Its channel for a select is disconnected exactly while there is something new.
#[test]
fn ready_follows_the_value() {
    let (tx, rx) = watch(1);
    let is_ready = |rx: &Receiver<_>| rx.ready().try_recv().unwrap_err().is_disconnected();
    assert!(!is_ready(&rx));
    tx.send(2).unwrap();
    assert!(is_ready(&rx));
    assert_eq!(*rx.borrow(), 2);
    assert!(is_ready(&rx));
    rx.changed().unwrap();
    assert!(!is_ready(&rx));
    rx.mark_changed();
    assert!(is_ready(&rx) && is_ready(&rx.clone()));
    drop(rx.borrow_and_update());
    assert!(!is_ready(&rx));
    drop(tx);
    assert!(is_ready(&rx));
    rx.mark_unchanged();
    assert!(is_ready(&rx), "the end stays");
}

#[test]
fn selects_wait_for_changes() {
    on_each(|kind| {
        let (tx, rx) = watch(0);
        let receiver = kind.spawn(move || {
            let mut last = 0;
            while last < 100 {
                select! {
                    recv(rx.ready()) -> _ => {
                        let now = *rx.borrow_and_update();
                        assert!(now > last, "ready without a change");
                        last = now;
                    }
                    recv(after(LONG)) -> _ => unreachable!(),
                }
            }
            rx
        });
        for n in 1..=100 {
            tx.send(n).unwrap();
            if n % 7 == 0 {
                yield_now();
            }
        }
        drop(receiver.join());
    });
}

#[test]
fn waits_end_with_time_and_contexts() {
    on_each(|kind| {
        let (tx, rx) = watch(0);
        let waiter = kind.spawn(move || {
            let begin = Instant::now();
            assert_eq!(rx.changed_timeout(SOON), Err(RecvTimeoutError::Timeout));
            let never = rx.wait_for_timeout(SOON, |n| *n == 7);
            assert_eq!(never.err(), Some(RecvTimeoutError::Timeout));
            assert!(begin.elapsed() >= 2 * SOON);
            let late = rx.changed_deadline(Instant::now());
            assert_eq!(late, Err(RecvTimeoutError::Timeout));
            let ctx = Context::background().with_timeout(SOON);
            assert_eq!(ctx.run(|| rx.changed()), Err(RecvError));
            assert_eq!(ctx.run(|| rx.wait_for(|n| *n == 7).err()), Some(RecvError));
            assert_eq!(
                ctx.run(|| rx.changed_timeout(LONG)),
                Err(RecvTimeoutError::Timeout)
            );
            rx
        });
        let rx = waiter.join();
        assert_eq!(rx.has_changed(), Ok(false));
        tx.send(1).unwrap();
        let (ctx, canceller) = Context::background().with_cancel();
        canceller.cancel();
        assert_eq!(ctx.run(|| rx.changed()), Ok(()));
        assert!(!ctx.run(|| tx.closed_timeout(LONG)));
        assert_eq!(tx.closed_context(&ctx), Err(Error::Cancelled));
        drop(rx);
        assert_eq!(tx.closed_context(&ctx), Ok(()));
    });
}

/// A send waits for a borrow, and nobody sees a value that is half replaced.
#[test]
fn borrows_hold_the_value_still() {
    on_each(|kind| {
        let (tx, rx) = watch((0, 0));
        let senders = kind.spawn_all(2, {
            let tx = tx.clone();
            move |_| {
                for _ in 0..50 {
                    tx.send_modify(|(one, two)| {
                        *one += 1;
                        yield_now();
                        *two += 1;
                    });
                }
            }
        });
        let readers = kind.spawn_all(2, move |_| {
            for _ in 0..50 {
                let value = rx.borrow();
                let before = *value;
                assert_eq!(value.0, value.1);
                yield_now();
                assert_eq!(*value, before);
            }
        });
        senders.into_iter().for_each(both::Handle::join);
        readers.into_iter().for_each(both::Handle::join);
        assert_eq!(*tx.borrow(), (100, 100));
    });
}

/// Values may use their channel when they are dropped.
#[test]
fn values_may_call_their_channel() {
    struct Odd(Option<Sender<Odd>>, #[allow(dead_code)] Member);
    impl Drop for Odd {
        fn drop(&mut self) {
            if let Some(tx) = &self.0 {
                assert!(tx.borrow().0.is_none());
                assert_eq!(tx.subscribe().has_changed(), Ok(false));
            }
        }
    }
    on_each(|_| {
        let census = Census::default();
        let (tx, rx) = watch(Odd(None, census.member()));
        let odd = Odd(Some(tx.clone()), census.member());
        assert!(tx.send(odd).is_ok());
        assert!(tx.send(Odd(None, census.member())).is_ok());
        drop((tx, rx));
        census.assert_all_dropped(3);
    });
}

/// A shared receiver: one caller waits for a value while the other sees all of them.
#[test]
fn a_condition_is_checked_though_another_has_seen_the_value() {
    on_each(|kind| {
        let (tx, rx) = watch(0);
        let rx = Arc::new(rx);
        let waiters = kind.spawn_all(2, {
            let rx = Arc::clone(&rx);
            move |_| *rx.wait_for(|n| *n >= 100).unwrap()
        });
        let other = kind.spawn(move || while rx.changed().is_ok() {});
        for n in 1..=100 {
            tx.send(n).unwrap();
            if n % 10 == 0 {
                yield_now();
            }
        }
        for waiter in waiters {
            assert_eq!(waiter.join(), 100);
        }
        drop(tx);
        other.join();
    });
}

#[test]
fn all_who_wait_are_woken() {
    run_line(|line| {
        let (tx, rx) = watch(0);
        let got = Arc::new(AtomicUsize::new(0));
        let receivers: Vec<_> = (0..5)
            .map(|_| {
                let (rx, got) = (rx.clone(), Arc::clone(&got));
                line.up(move || {
                    rx.changed().unwrap();
                    got.fetch_add(1, Ordering::SeqCst);
                    assert_eq!(rx.changed(), Err(RecvError));
                })
            })
            .collect();
        tx.send(1).unwrap();
        wait_until(|| got.load(Ordering::SeqCst) == 5);
        drop(tx);
        receivers.into_iter().for_each(|r| r.join().unwrap());
    });
}

#[test]
fn waiters_unwind_when_the_run_ends() {
    let _guard = hang_guard();
    let census = Census::default();
    let (tx, rx) = watch(0);
    let inside = Arc::new(AtomicUsize::new(0));
    let handles = runtime(2).run(|| {
        let handles: Vec<_> = (0..12)
            .map(|i| {
                let (rx, tx, member) = (rx.clone(), tx.clone(), census.member());
                let inside = Arc::clone(&inside);
                spawn(move || {
                    let _member = member;
                    inside.fetch_add(1, Ordering::SeqCst);
                    match i % 4 {
                        0 => _ = rx.changed(),
                        1 => _ = rx.changed_timeout(LONG),
                        2 => tx.closed(),
                        _ => _ = rx.wait_for(|n| *n == 7),
                    }
                    unreachable!("there is nothing to be had");
                })
            })
            .collect();
        wait_until(|| inside.load(Ordering::SeqCst) == handles.len());
        sleep(Duration::from_millis(1));
        handles
    });
    for handle in handles {
        assert!(handle.join().unwrap_err().is::<windlass::task::Cancelled>());
    }
    census.assert_all_dropped(12);
    tx.send(1).unwrap();
    assert_eq!((tx.receiver_count(), *rx.borrow_and_update()), (1, 1));
}

/// A receiver with a channel for selects is dropped without a search among the others.
#[test]
fn many_receivers_come_and_go() {
    const N: usize = 60_000;
    let _guard = hang_guard();
    let (tx, rx) = watch(0);
    let receivers: Vec<_> = (0..N).map(|_| tx.subscribe()).collect();
    for receiver in &receivers {
        receiver.ready();
    }
    assert_eq!(tx.receiver_count(), N + 1);
    let before = own_cpu();
    receivers.into_iter().rev().for_each(drop);
    let used = own_cpu() - before;
    // A search costs ten times that in a build without optimisation.
    assert!(used < Duration::from_secs(2), "{used:?} for {N}");
    // The list still has those that stay.
    tx.send(1).unwrap();
    assert!(rx.ready().try_recv().unwrap_err().is_disconnected());
}

#[cfg(feature = "sim")]
crate::inside::tests! {
    every_receiver_comes_to_see_the_last_value,
    changes_go_to_and_fro,
    what_is_seen_and_what_is_new,
    changes_that_are_none_notify_nobody,
    the_numbers_of_a_channel,
    senders_wait_until_all_receivers_are_gone,
    ready_follows_the_value,
    selects_wait_for_changes,
    waits_end_with_time_and_contexts,
    borrows_hold_the_value_still,
    values_may_call_their_channel,
    a_condition_is_checked_though_another_has_seen_the_value,
    all_who_wait_are_woken,
    many_receivers_come_and_go: "it measures time",
    waiters_unwind_when_the_run_ends: "it ends a run of its own",
}

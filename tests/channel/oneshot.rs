//! Oneshot channels between goroutines, between threads, and across.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::both;
use crate::both::on_each;
use crate::util::{Census, hang_guard, runtime, wait_until};
use windlass::channel::{
    RecvError, RecvTimeoutError, TryRecvError, after, bounded, oneshot, select,
};
use windlass::context::{Context, Error};
use windlass::time::{Duration, Instant};
use windlass::{sleep, spawn, yield_now};

const SOON: Duration = Duration::from_millis(5);
const LONG: Duration = Duration::from_secs(1 << 20);

#[test]
fn each_request_gets_its_answer() {
    on_each(|kind| {
        let (requests, received) = bounded::<(u32, oneshot::Sender<u32>)>(2);
        let server = kind.spawn(move || {
            for (n, reply) in &received {
                reply.send(n * n).unwrap();
            }
        });
        let clients = kind.spawn_all(4, move |i| {
            for n in 0..50 {
                let n = n * 4 + i as u32;
                let (reply, answer) = oneshot();
                requests.send((n, reply)).unwrap();
                assert_eq!(answer.recv(), Ok(n * n));
            }
        });
        clients.into_iter().for_each(both::Handle::join);
        server.join();
    });
}

#[test]
fn there_is_one_message() {
    let (tx, rx) = oneshot();
    assert_eq!(rx.try_recv(), Err(TryRecvError::Empty));
    assert!(rx.is_empty() && !tx.is_closed());
    assert_eq!(tx.send(1), Ok(()));
    assert!(!rx.is_empty());
    assert_eq!(rx.recv_timeout(LONG), Ok(1));
    assert_eq!(rx.recv(), Err(RecvError));
    assert_eq!(rx.try_recv(), Err(TryRecvError::Disconnected));
    assert_eq!(
        rx.recv_deadline(Instant::now() + LONG),
        Err(RecvTimeoutError::Disconnected)
    );
    assert_eq!(
        format!("{rx:?} {:?}", oneshot::<u8>().0),
        "Receiver { .. } Sender { .. }"
    );
}

#[test]
fn a_message_that_nobody_wants_comes_back() {
    let census = Census::default();
    let (tx, rx) = oneshot();
    drop(rx);
    assert!(tx.is_closed());
    drop(tx.send(census.member()).unwrap_err());
    census.assert_all_dropped(1);
    // One that was sent is dropped with the receiver.
    let (tx, rx) = oneshot();
    assert!(tx.send(census.member()).is_ok());
    assert_eq!(census.dropped(), 1);
    drop(rx);
    census.assert_all_dropped(2);
}

/// Either the message arrives, or the sender has it back: it is never lost.
#[test]
fn a_message_is_received_or_comes_back() {
    on_each(|kind| {
        let census = Census::default();
        for n in 0..200 {
            let (tx, rx) = oneshot();
            let member = census.member();
            let sender = kind.spawn(move || {
                if n % 3 == 0 {
                    yield_now();
                }
                tx.send(member).err()
            });
            if n % 2 == 0 {
                yield_now();
            }
            let received = rx.try_recv().ok();
            let was_received = received.is_some();
            drop((received, rx));
            let back = sender.join();
            assert!(!(was_received && back.is_some()));
            drop(back);
            assert_eq!(census.dropped(), n + 1);
        }
    });
}

#[test]
fn the_sender_notices_that_the_receiver_is_gone() {
    on_each(|kind| {
        let (tx, rx) = oneshot::<()>();
        assert!(!tx.closed_timeout(Duration::ZERO));
        let worker = kind.spawn(move || {
            tx.closed();
            assert!(tx.is_closed());
            tx.send(())
        });
        yield_now();
        drop(rx);
        assert_eq!(worker.join(), Err(()));

        let (tx, rx) = oneshot::<()>();
        let worker = kind.spawn(move || {
            select! {
                recv(tx.closed_channel()) -> _ => tx.send(()),
                recv(after(LONG)) -> _ => unreachable!(),
            }
        });
        yield_now();
        drop(rx);
        assert_eq!(worker.join(), Err(()));
    });
}

#[test]
fn a_select_takes_the_message() {
    on_each(|kind| {
        for n in 0..50 {
            let (tx1, rx1) = oneshot();
            let (tx2, rx2) = oneshot();
            let sender = kind.spawn(move || {
                if n % 2 == 0 {
                    tx1.send(n).unwrap();
                    Err(tx2)
                } else {
                    tx2.send(n).unwrap();
                    Ok(tx1)
                }
            });
            select! {
                recv(rx1.channel()) -> got => assert_eq!((got, n % 2), (Ok(n), 0)),
                recv(rx2.channel()) -> got => assert_eq!((got, n % 2), (Ok(n), 1)),
            }
            // Neither end was dropped meanwhile, so no arm was disconnected.
            assert_eq!(sender.join().is_ok(), n % 2 == 1);
        }
    });
}

#[test]
fn waits_end_with_time_and_contexts() {
    on_each(|kind| {
        let (tx, rx) = oneshot::<u8>();
        let waiter = kind.spawn(move || {
            let begin = Instant::now();
            assert_eq!(rx.recv_timeout(SOON), Err(RecvTimeoutError::Timeout));
            assert!(begin.elapsed() >= SOON);
            let ctx = Context::background().with_timeout(SOON);
            assert_eq!(ctx.run(|| rx.recv()), Err(RecvError));
            assert_eq!(
                ctx.run(|| rx.recv_timeout(LONG)),
                Err(RecvTimeoutError::Timeout)
            );
            rx
        });
        let rx = waiter.join();
        let ctx = Context::background().with_timeout(SOON);
        assert!(!ctx.run(|| tx.closed_timeout(LONG)));
        assert_eq!(tx.closed_context(&ctx), Err(Error::DeadlineExceeded));
        // It can still come.
        tx.send(1).unwrap();
        assert_eq!(rx.recv(), Ok(1));
    });
}

#[test]
fn waiters_unwind_when_the_run_ends() {
    let _guard = hang_guard();
    let census = Census::default();
    let (tx, rx) = oneshot::<u8>();
    let (tx, rx) = (Arc::new(tx), Arc::new(rx));
    let inside = Arc::new(AtomicUsize::new(0));
    let handles = runtime(2).run(|| {
        let handles: Vec<_> = (0..9)
            .map(|i| {
                let (rx, tx, member) = (Arc::clone(&rx), Arc::clone(&tx), census.member());
                let inside = Arc::clone(&inside);
                spawn(move || {
                    let _member = member;
                    inside.fetch_add(1, Ordering::SeqCst);
                    match i % 3 {
                        0 => _ = rx.recv(),
                        1 => _ = tx.closed_timeout(LONG),
                        _ => tx.closed(),
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
    census.assert_all_dropped(9);
    Arc::into_inner(tx).unwrap().send(1).unwrap();
    assert_eq!(rx.recv(), Ok(1));
}

#[cfg(feature = "sim")]
crate::inside::tests! {
    each_request_gets_its_answer,
    there_is_one_message,
    a_message_that_nobody_wants_comes_back,
    a_message_is_received_or_comes_back,
    the_sender_notices_that_the_receiver_is_gone,
    a_select_takes_the_message,
    waits_end_with_time_and_contexts,
    waiters_unwind_when_the_run_ends: "it ends a run of its own",
}

//! Broadcast channels between goroutines, between threads, and across.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::both;
use crate::both::{on_each, panic_of, run_line};
use crate::util::{Census, Member, hang_guard, own_cpu, runtime, wait_until};
use windlass::channel::broadcast::{
    Lagged, Receiver, RecvError, RecvTimeoutError, Sender, TryRecvError,
};
use windlass::channel::{SendError, after, broadcast, never, select};
use windlass::context::{Context, Error};
use windlass::sync::Mutex;
use windlass::time::{Duration, Instant};
use windlass::{sleep, spawn, yield_now};

const SOON: Duration = Duration::from_millis(5);
const LONG: Duration = Duration::from_secs(1 << 20);

/// Every receiver gets every message, in order.
#[test]
fn every_receiver_gets_every_message() {
    on_each(|kind| {
        let (tx, rx) = broadcast(1000);
        let receivers: Vec<_> = std::iter::once(rx)
            .chain((1..4).map(|_| tx.subscribe()))
            .map(|rx| kind.spawn(move || rx.iter().collect::<Vec<_>>()))
            .collect();
        let sender = kind.spawn(move || {
            for n in 0..500 {
                assert!(tx.send(n).is_ok());
                if n % 50 == 0 {
                    yield_now();
                }
            }
        });
        sender.join();
        for receiver in receivers {
            assert!(receiver.join().into_iter().eq((0..500).map(Ok)));
        }
    });
}

/// A receiver learns how many messages it has missed: with those received they add up to all.
#[test]
fn receivers_that_lag_know_what_they_missed() {
    on_each(|kind| {
        let (tx, rx) = broadcast(4);
        let receivers: Vec<_> = std::iter::once(rx)
            .chain((1..3).map(|_| tx.subscribe()))
            .map(|rx| {
                kind.spawn(move || {
                    let mut next = 0;
                    for item in &rx {
                        match item {
                            Ok(n) => {
                                assert_eq!(n, next);
                                next += 1;
                            }
                            Err(Lagged(missed)) => {
                                assert!(missed > 0);
                                next += missed;
                            }
                        }
                        if next % 7 == 0 {
                            yield_now();
                        }
                    }
                    next
                })
            })
            .collect();
        let senders = kind.spawn_all(2, {
            let count = Mutex::new((tx, 0));
            move |_| {
                for _ in 0..300 {
                    let mut count = count.lock().unwrap();
                    let (tx, n) = &mut *count;
                    let _ = tx.send(*n);
                    *n += 1;
                    drop(count);
                    yield_now();
                }
            }
        });
        senders.into_iter().for_each(both::Handle::join);
        for receiver in receivers {
            assert_eq!(receiver.join(), 600);
        }
    });
}

#[test]
fn a_slow_receiver_goes_on_with_the_oldest_message() {
    let (tx, slow) = broadcast(3);
    let fast = tx.subscribe();
    for n in 0..10 {
        assert_eq!(tx.send(n), Ok(2));
        assert_eq!(fast.recv(), Ok(n));
        assert_eq!(slow.len(), n + 1);
    }
    assert_eq!((tx.len(), tx.capacity()), (3, 3));
    assert_eq!(slow.try_recv(), Err(TryRecvError::Lagged(7)));
    assert_eq!(slow.len(), 3);
    assert_eq!(slow.recv(), Ok(7));
    // It lags again, by what came since.
    (10..13).for_each(|n| _ = tx.send(n).unwrap());
    assert_eq!(slow.recv_timeout(LONG), Err(RecvTimeoutError::Lagged(2)));
    assert_eq!(slow.recv_deadline(Instant::now()), Ok(10));
    drop(tx);
    assert!(slow.iter().eq([Ok(11), Ok(12)]));
    // The other one has missed nothing.
    assert!(fast.into_iter().eq([Ok(10), Ok(11), Ok(12)]));
}

#[test]
fn messages_are_dropped_when_all_have_them() {
    let census = Census::default();
    let message = || Arc::new(census.member());
    let (tx, one) = broadcast(4);
    let two = tx.subscribe();
    tx.send(message()).unwrap();
    drop(one.recv().unwrap());
    assert_eq!((census.dropped(), tx.len()), (0, 1));
    drop(two.recv().unwrap());
    assert_eq!((census.dropped(), tx.len()), (1, 0));
    // A receiver that goes gives up what it has not received.
    (0..4).for_each(|_| _ = tx.send(message()).unwrap());
    drop((one.recv(), one.recv()));
    assert_eq!(census.dropped(), 1);
    drop(two);
    assert_eq!((census.dropped(), tx.len()), (3, 2));
    // A new receiver does not get the old messages, nor does it keep them.
    let late = tx.subscribe();
    assert!(late.is_empty());
    drop(one);
    assert_eq!((census.dropped(), tx.len()), (5, 0));
    // The oldest message of a full channel goes.
    (0..5).for_each(|_| _ = tx.send(message()).unwrap());
    assert_eq!(census.dropped(), 6);
    drop((tx, late));
    census.assert_all_dropped(10);
}

/// The last receiver of a message gets the message itself: nobody clones it.
#[test]
fn a_message_for_one_is_not_cloned() {
    #[derive(Debug)]
    struct Unclonable;
    impl Clone for Unclonable {
        fn clone(&self) -> Unclonable {
            panic!("it was cloned")
        }
    }
    let (tx, rx) = broadcast(4);
    tx.send(Unclonable).unwrap();
    assert!(rx.recv().is_ok());
}

#[test]
fn the_numbers_of_a_channel() {
    let (tx, rx) = broadcast::<u8>(2);
    let (tx2, rx2) = (tx.clone(), rx.resubscribe());
    assert_eq!((tx.sender_count(), rx.sender_count()), (2, 2));
    assert_eq!(tx.receiver_count(), 2);
    assert!(tx.same_channel(&tx2) && rx.same_channel(&rx2));
    assert!(!tx.same_channel(&broadcast(2).0) && !rx.same_channel(&broadcast(2).1));
    assert!(!tx.is_closed() && !rx.is_closed() && tx.is_empty());
    drop((rx, rx2));
    assert!(tx.is_closed());
    assert_eq!(tx.send(1), Err(SendError(1)));
    let rx = tx2.subscribe();
    assert!(!tx.is_closed());
    assert_eq!(tx.send(2), Ok(1));
    drop((tx, tx2));
    assert!(rx.is_closed());
    assert_eq!(rx.recv(), Ok(2));
    assert_eq!(rx.recv(), Err(RecvError::Disconnected));
    assert_eq!(rx.try_recv(), Err(TryRecvError::Disconnected));
    assert_eq!(rx.recv_timeout(LONG), Err(RecvTimeoutError::Disconnected));
    assert_eq!(
        format!("{rx:?} {:?}", rx.iter()),
        "Receiver { .. } Iter { .. }"
    );
    assert_eq!(
        RecvError::Lagged(3).to_string(),
        "the receiver lagged and missed 3 messages"
    );
    panic_of(|| broadcast::<u8>(0));
}

#[test]
fn a_shared_receiver_gives_each_message_once() {
    on_each(|kind| {
        let (tx, rx) = broadcast(64);
        let rx = Arc::new(rx);
        let sum = Arc::new(AtomicUsize::new(0));
        let receivers = kind.spawn_all(3, {
            let (rx, sum) = (Arc::clone(&rx), Arc::clone(&sum));
            move |_| {
                for n in &*rx {
                    sum.fetch_add(n.unwrap(), Ordering::Relaxed);
                    yield_now();
                }
            }
        });
        drop(rx);
        for n in 1..=50 {
            tx.send(n).unwrap();
            if n % 5 == 0 {
                yield_now();
            }
        }
        drop(tx);
        receivers.into_iter().for_each(both::Handle::join);
        assert_eq!(sum.load(Ordering::Relaxed), 1275);
    });
}

#[test]
fn senders_wait_until_all_receivers_are_gone() {
    on_each(|kind| {
        let (tx, rx) = broadcast::<()>(1);
        assert!(!tx.closed_timeout(Duration::ZERO));
        let other = tx.clone();
        let waiter = kind.spawn(move || other.closed());
        let late = rx.resubscribe();
        drop(rx);
        yield_now();
        drop(late);
        waiter.join();
        assert!(tx.closed_timeout(LONG));
        // There is one again.
        let rx = tx.subscribe();
        assert!(!tx.closed_timeout(Duration::ZERO));
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

/// Its channel for a select is disconnected exactly while there is something to receive.
#[test]
fn ready_follows_the_messages() {
    let (tx, rx) = broadcast(2);
    let is_ready = |rx: &Receiver<_>| rx.ready().try_recv().unwrap_err().is_disconnected();
    assert!(!is_ready(&rx));
    tx.send(1).unwrap();
    tx.send(2).unwrap();
    assert!(is_ready(&rx));
    rx.recv().unwrap();
    assert!(is_ready(&rx));
    rx.recv().unwrap();
    assert!(!is_ready(&rx));
    (0..3).for_each(|n| _ = tx.send(n).unwrap());
    assert_eq!(rx.try_recv(), Err(TryRecvError::Lagged(1)));
    assert!(is_ready(&rx));
    rx.try_iter().for_each(drop);
    assert!(!is_ready(&rx));
    // Asked for when there is something.
    tx.send(4).unwrap();
    let late = tx.subscribe();
    assert!(!is_ready(&late));
    tx.send(5).unwrap();
    assert!(is_ready(&late));
    drop(late);
    drop(tx);
    assert!(rx.try_iter().eq([Ok(4), Ok(5)]));
    assert!(is_ready(&rx), "the end is something to receive");
    assert!(is_ready(&rx.resubscribe()));
    // One that outlives its receiver keeps nobody waiting.
    let (_tx, rx) = broadcast::<u8>(1);
    let ready = rx.ready().clone();
    assert!(ready.try_recv().unwrap_err().is_empty());
    drop(rx);
    assert!(ready.recv().is_err());
}

/// Two channels in one select: no message is late, none is missed.
#[test]
fn selects_among_broadcast_channels() {
    on_each(|kind| {
        let (tx1, rx1) = broadcast(100);
        let (tx2, rx2) = broadcast(100);
        let receiver = kind.spawn(move || {
            let (mut one, mut two) = (Vec::new(), Vec::new());
            let (mut is_1, mut is_2) = (true, true);
            while is_1 || is_2 {
                let none = never();
                select! {
                    recv(if is_1 { rx1.ready() } else { &none }) -> _ => match rx1.try_recv() {
                        Ok(n) => one.push(n),
                        Err(e) => is_1 = e != TryRecvError::Disconnected,
                    },
                    recv(if is_2 { rx2.ready() } else { &none }) -> _ => match rx2.try_recv() {
                        Ok(n) => two.push(n),
                        Err(e) => is_2 = e != TryRecvError::Disconnected,
                    },
                }
            }
            (one, two)
        });
        let senders = [tx1, tx2].map(|tx| {
            kind.spawn(move || {
                for n in 0..100 {
                    tx.send(n).unwrap();
                    if n % 9 == 0 {
                        yield_now();
                    }
                }
            })
        });
        senders.into_iter().for_each(both::Handle::join);
        let all: Vec<_> = (0..100).collect();
        assert_eq!(receiver.join(), (all.clone(), all));
    });
}

#[test]
fn waits_end_with_time_and_contexts() {
    on_each(|kind| {
        let (tx, rx) = broadcast::<u8>(1);
        let waiter = kind.spawn(move || {
            let begin = Instant::now();
            assert_eq!(rx.recv_timeout(SOON), Err(RecvTimeoutError::Timeout));
            assert!(begin.elapsed() >= SOON);
            let ctx = Context::background().with_timeout(SOON);
            assert_eq!(ctx.run(|| rx.recv()), Err(RecvError::Disconnected));
            assert_eq!(
                ctx.run(|| rx.recv_timeout(LONG)),
                Err(RecvTimeoutError::Timeout)
            );
            rx
        });
        let rx = waiter.join();
        assert!(!rx.is_closed());
        // A message that is there can be received, although the context is done.
        tx.send(1).unwrap();
        let (ctx, canceller) = Context::background().with_cancel();
        canceller.cancel();
        assert_eq!(ctx.run(|| rx.recv()), Ok(1));
        assert!(!ctx.run(|| tx.closed_timeout(LONG)));
        assert_eq!(tx.closed_context(&ctx), Err(Error::Cancelled));
        drop(rx);
        assert_eq!(tx.closed_context(&ctx), Ok(()));
    });
}

/// A wait for the receivers to go ends only when they have gone, also if others come at that moment.
#[test]
fn receivers_that_come_back_are_not_a_context_that_ends() {
    on_each(|kind| {
        for _ in 0..20 {
            let (tx, rx) = broadcast::<u8>(1);
            let tx = Arc::new(tx);
            let waiters: Vec<_> = (0..2)
                .map(|i| {
                    let tx = Arc::clone(&tx);
                    kind.spawn(move || match i {
                        0 => tx.closed_context(&Context::background()) == Ok(()),
                        _ => tx.closed_timeout(Duration::MAX),
                    })
                })
                .collect();
            let mut rx = Some(rx);
            for _ in 0..5 {
                yield_now();
                drop(rx.take());
                rx = Some(tx.subscribe());
            }
            yield_now();
            drop(rx);
            assert!(waiters.into_iter().all(both::Handle::join));
        }
    });
}

/// A receive that a cancellation ends loses no message.
#[test]
fn a_cancelled_receive_loses_no_message() {
    on_each(|kind| {
        let (tx, rx) = broadcast(1000);
        let receiver = kind.spawn(move || {
            let mut next = 0;
            while next < 200 {
                let ctx = Context::background().with_timeout(Duration::from_micros(50));
                match ctx.run(|| rx.recv_timeout(LONG)) {
                    Ok(n) => {
                        assert_eq!(n, next);
                        next += 1;
                    }
                    Err(e) => assert_eq!(e, RecvTimeoutError::Timeout),
                }
            }
        });
        for n in 0..200 {
            tx.send(n).unwrap();
            if n % 20 == 0 {
                sleep(Duration::from_micros(100));
            }
        }
        receiver.join();
    });
}

/// A message that panics when it is cloned, or calls the channel when it is dropped or cloned.
struct Odd {
    panics: Arc<AtomicBool>,
    calls: Option<Sender<Odd>>,
    _member: Arc<Member>,
}

impl Clone for Odd {
    fn clone(&self) -> Odd {
        if self.panics.swap(false, Ordering::SeqCst) {
            resume_unwind(Box::new("clone"));
        }
        if let Some(tx) = &self.calls {
            assert!(tx.receiver_count() > 0);
        }
        Odd {
            panics: Arc::clone(&self.panics),
            calls: self.calls.clone(),
            _member: Arc::clone(&self._member),
        }
    }
}

impl Drop for Odd {
    fn drop(&mut self) {
        if let Some(tx) = &self.calls {
            // Neither a deadlock nor a message in the middle of another.
            let _ = (tx.len(), tx.subscribe().try_recv().is_err());
        }
    }
}

#[test]
fn a_clone_that_panics_is_one_receivers_loss() {
    on_each(|_| {
        let census = Census::default();
        let panics = Arc::new(AtomicBool::new(true));
        let (tx, one) = broadcast(4);
        let two = tx.subscribe();
        let odd = Odd {
            panics,
            calls: None,
            _member: Arc::new(census.member()),
        };
        assert!(tx.send(odd).is_ok());
        assert!(catch_unwind(AssertUnwindSafe(|| one.recv())).is_err());
        assert_eq!(one.try_recv().err(), Some(TryRecvError::Empty));
        assert!(two.recv().is_ok());
        assert!(tx.is_empty());
        drop((tx, one, two));
        census.assert_all_dropped(1);
    });
}

#[test]
fn messages_may_call_their_channel() {
    on_each(|_| {
        let census = Census::default();
        let odd = |tx: &Sender<Odd>| Odd {
            panics: Arc::default(),
            calls: Some(tx.clone()),
            _member: Arc::new(census.member()),
        };
        let (tx, one) = broadcast(2);
        let two = tx.subscribe();
        // Pushed out by others, received by one, by both, and left when the receivers go.
        (0..4).for_each(|_| assert!(tx.send(odd(&tx)).is_ok()));
        assert!(matches!(one.recv(), Err(RecvError::Lagged(2))));
        assert!(one.recv().is_ok());
        drop(two);
        drop(one);
        assert!(tx.is_empty());
        assert!(tx.send(odd(&tx)).is_err());
        drop(tx);
        census.assert_all_dropped(5);
    });
}

/// Receivers come and go while messages are sent: counts stay right, and nothing leaks.
#[test]
fn receivers_come_and_go() {
    on_each(|kind| {
        let census = Census::default();
        let (tx, rx) = broadcast(8);
        let rx = Arc::new(rx);
        let visitors = kind.spawn_all(3, {
            let rx = Arc::clone(&rx);
            move |i| {
                for n in 0..40 {
                    let visitor = rx.resubscribe();
                    if (n + i) % 3 == 0 {
                        let _ = visitor.ready();
                    }
                    yield_now();
                    for _ in 0..n % 4 {
                        let _ = visitor.try_recv();
                    }
                }
            }
        });
        for n in 0..100 {
            tx.send(Arc::new(census.member())).unwrap();
            if n % 3 == 0 {
                yield_now();
            }
        }
        visitors.into_iter().for_each(both::Handle::join);
        assert_eq!(tx.receiver_count(), 1);
        assert_eq!(tx.len(), 8);
        assert_eq!(census.dropped(), 92);
        assert!(matches!(rx.try_recv(), Err(TryRecvError::Lagged(92))));
        rx.try_iter().for_each(drop);
        assert!(tx.is_empty());
        drop((tx, rx));
        census.assert_all_dropped(100);
    });
}

/// All that wait are woken by one message, and by the end.
#[test]
fn all_who_wait_are_woken() {
    run_line(|line| {
        let (tx, rx) = broadcast(4);
        let got = Arc::new(AtomicUsize::new(0));
        let receivers: Vec<_> = (0..5)
            .map(|_| {
                let (rx, got) = (rx.resubscribe(), Arc::clone(&got));
                line.up(move || {
                    assert_eq!(rx.recv(), Ok("one"));
                    got.fetch_add(1, Ordering::SeqCst);
                    assert_eq!(rx.recv(), Err(RecvError::Disconnected));
                })
            })
            .collect();
        assert_eq!(tx.send("one"), Ok(6));
        wait_until(|| got.load(Ordering::SeqCst) == 5);
        drop(tx);
        receivers.into_iter().for_each(|r| r.join().unwrap());
    });
}

/// Waiters unwind when their runtime ends, and so do those whose senders went before them.
#[test]
fn waiters_unwind_when_the_run_ends() {
    let _guard = hang_guard();
    let census = Census::default();
    let (tx, rx) = broadcast::<Arc<Member>>(4);
    let inside = Arc::new(AtomicUsize::new(0));
    let handles = runtime(2).run(|| {
        let handles: Vec<_> = (0..12)
            .map(|i| {
                let (rx, tx, member) = (rx.resubscribe(), tx.clone(), census.member());
                let inside = Arc::clone(&inside);
                spawn(move || {
                    let _member = member;
                    inside.fetch_add(1, Ordering::SeqCst);
                    match i % 4 {
                        0 => _ = rx.recv(),
                        1 => _ = rx.recv_timeout(LONG),
                        2 => tx.closed(),
                        _ => {
                            select! {
                                recv(rx.ready()) -> _ => {}
                                recv(tx.closed_channel()) -> _ => {}
                            }
                        }
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
    assert_eq!((tx.receiver_count(), tx.sender_count()), (1, 1));
    tx.send(Arc::new(census.member())).unwrap();
    assert!(rx.recv().is_ok());
}

/// In the destructor of a goroutine that is cancelled, a receive fails at once.
#[test]
fn destructors_do_not_wait() {
    struct InDrop(Receiver<u8>, Arc<AtomicUsize>);
    impl Drop for InDrop {
        fn drop(&mut self) {
            assert_eq!(self.0.recv(), Err(RecvError::Disconnected));
            self.1.fetch_add(1, Ordering::SeqCst);
        }
    }
    let _guard = hang_guard();
    let (tx, rx) = broadcast::<u8>(4);
    let count = Arc::new(AtomicUsize::new(0));
    let in_drop = InDrop(rx, Arc::clone(&count));
    let has_begun = Arc::new(AtomicBool::new(false));
    let begun = Arc::clone(&has_begun);
    let waiter = runtime(1).run(move || {
        let waiter = spawn(move || {
            let in_drop = in_drop;
            has_begun.store(true, Ordering::SeqCst);
            let _ = in_drop.0.recv();
        });
        wait_until(|| begun.load(Ordering::SeqCst));
        waiter
    });
    assert!(waiter.join().unwrap_err().is::<windlass::task::Cancelled>());
    assert_eq!(count.load(Ordering::SeqCst), 1);
    drop(tx);
}

/// One panic comes out of the drop of a receiver; a second one would end the process.
#[test]
fn several_messages_panic_when_they_are_dropped() {
    #[derive(Clone)]
    struct Panics;
    impl Drop for Panics {
        fn drop(&mut self) {
            resume_unwind(Box::new("message"));
        }
    }
    for is_last in [true, false] {
        let (tx, rx) = broadcast(4);
        (0..3).for_each(|_| assert!(tx.send(Panics).is_ok()));
        let late = (!is_last).then(|| tx.subscribe());
        let payload = panic_of(|| drop(rx));
        assert_eq!(payload.downcast_ref(), Some(&"message"));
        assert_eq!((tx.len(), tx.receiver_count()), (0, usize::from(!is_last)));
        drop(late);
    }
}

/// A receiver with a channel for selects is dropped without a search among the others.
#[test]
fn many_receivers_come_and_go() {
    const N: usize = 60_000;
    let _guard = hang_guard();
    let (tx, rx) = broadcast::<u8>(1);
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
    every_receiver_gets_every_message,
    receivers_that_lag_know_what_they_missed,
    a_slow_receiver_goes_on_with_the_oldest_message,
    messages_are_dropped_when_all_have_them,
    a_message_for_one_is_not_cloned,
    the_numbers_of_a_channel,
    a_shared_receiver_gives_each_message_once,
    senders_wait_until_all_receivers_are_gone,
    ready_follows_the_messages,
    selects_among_broadcast_channels,
    waits_end_with_time_and_contexts,
    receivers_that_come_back_are_not_a_context_that_ends,
    a_cancelled_receive_loses_no_message,
    a_clone_that_panics_is_one_receivers_loss,
    messages_may_call_their_channel,
    several_messages_panic_when_they_are_dropped,
    receivers_come_and_go,
    all_who_wait_are_woken,
    many_receivers_come_and_go: "it measures time",
    waiters_unwind_when_the_run_ends: "it ends a run of its own",
    destructors_do_not_wait: "it ends a run of its own",
}

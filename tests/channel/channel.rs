//! Channels between goroutines, between threads, and across.
#![allow(
    clippy::disallowed_methods,
    reason = "these tests also block plain threads"
)]

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::util;
use crate::util::{Census, hang_guard, is_simulated, run, wait_until};
use windlass::channel::{
    Receiver, RecvError, RecvTimeoutError, SendError, SendTimeoutError, Sender, TryRecvError,
    TrySendError, bounded, unbounded,
};
use windlass::time::{Duration, Instant};
use windlass::{spawn, yield_now};

const SOON: Duration = Duration::from_millis(5);

/// Capacities that behave differently: rendezvous, one place, some, no limit.
fn channels<T>() -> Vec<(Sender<T>, Receiver<T>)> {
    vec![bounded(0), bounded(1), bounded(3), unbounded()]
}

/// Runs `f` in a goroutine or in a thread.
fn start<T: Send + 'static>(goroutine: bool, f: impl FnOnce() -> T + Send + 'static) -> Job<T> {
    if goroutine {
        Job::Goroutine(spawn(f))
    } else {
        Job::Thread(thread::spawn(f))
    }
}

enum Job<T> {
    Goroutine(windlass::task::JoinHandle<T>),
    Thread(thread::JoinHandle<T>),
}

impl<T: Send> Job<T> {
    fn join(self) -> T {
        match self {
            Job::Goroutine(job) => job.join().unwrap(),
            Job::Thread(job) => windlass::offload(|| job.join().unwrap()),
        }
    }
}

/// Runs `f` with goroutines only, threads only, and both mixed. In a simulation there are
/// goroutines only.
fn in_all_mixes(f: impl Fn(fn(usize) -> bool) + Send + Sync) {
    if is_simulated() {
        return f(|_| true);
    }
    for mix in [|_| true, |_| false, |i| i % 2 == 0, |i| i % 2 == 1] {
        run(3, || f(mix));
    }
}

#[test]
fn messages_come_in_order() {
    in_all_mixes(|mix| {
        for (s, r) in channels() {
            let sender = start(mix(0), move || (0..2000).for_each(|n| s.send(n).unwrap()));
            let receiver = start(mix(1), move || r.iter().collect::<Vec<i32>>());
            sender.join();
            assert_eq!(receiver.join(), (0..2000).collect::<Vec<_>>());
        }
    });
}

#[test]
fn every_message_has_one_receiver() {
    in_all_mixes(|mix| {
        for (s, r) in channels() {
            let senders: Vec<_> = (0..4)
                .map(|i| {
                    let s = s.clone();
                    start(mix(i), move || {
                        (0..500).for_each(|n| s.send(i * 500 + n).unwrap());
                    })
                })
                .collect();
            let receivers: Vec<_> = (0..4)
                .map(|i| {
                    let r = r.clone();
                    start(mix(i / 2), move || r.iter().collect::<Vec<usize>>())
                })
                .collect();
            drop((s, r));
            senders.into_iter().for_each(Job::join);
            let mut all = BTreeSet::new();
            for receiver in receivers {
                let got = receiver.join();
                // Of one sender, a receiver sees the messages in order.
                for sender in 0..4 {
                    assert!(got.iter().filter(|n| **n / 500 == sender).is_sorted());
                }
                got.into_iter().for_each(|n| assert!(all.insert(n)));
            }
            assert_eq!(all.len(), 2000);
        }
    });
}

#[test]
fn a_rendezvous_ends_when_both_have_come() {
    run(2, || {
        let (s, r) = bounded(0);
        let sent = Arc::new(AtomicUsize::new(0));
        let sender = spawn({
            let sent = Arc::clone(&sent);
            move || {
                for n in 0..100 {
                    s.send(n).unwrap();
                    sent.store(n + 1, Ordering::SeqCst);
                }
            }
        });
        for n in 0..100 {
            for _ in 0..5 {
                yield_now();
            }
            assert!(sent.load(Ordering::SeqCst) <= n);
            assert_eq!(r.recv(), Ok(n));
        }
        sender.join().unwrap();
    });
}

/// Starts a thread, and comes back when that sleeps.
fn start_sleeper<T: Send + 'static>(
    f: impl FnOnce() -> T + Send + 'static,
) -> thread::JoinHandle<T> {
    let (tid_s, tid_r) = std::sync::mpsc::channel();
    let sleeper = thread::spawn(move || {
        tid_s.send(util::gettid()).unwrap();
        f()
    });
    let stat = format!("/proc/self/task/{}/stat", tid_r.recv().unwrap());
    while !std::fs::read_to_string(&stat).unwrap().contains(") S ") {
        thread::yield_now();
    }
    sleeper
}

#[test]
fn those_who_wait_are_served_in_order() {
    let _guard = hang_guard();
    let (s, r) = bounded(0);
    let receivers = (0..20).map(|_| {
        let r = r.clone();
        start_sleeper(move || r.recv())
    });
    let receivers: Vec<_> = receivers.collect();
    (0..20).for_each(|n| s.send(n).unwrap());
    for (n, receiver) in receivers.into_iter().enumerate() {
        assert_eq!(receiver.join().unwrap(), Ok(n));
    }
    let senders = (0..20).map(|n| {
        let s = s.clone();
        start_sleeper(move || s.send(n))
    });
    let senders: Vec<_> = senders.collect();
    assert!(r.iter().take(20).eq(0..20));
    senders.into_iter().for_each(|s| s.join().unwrap().unwrap());
}

#[test]
fn a_place_that_becomes_free_is_the_waiting_senders() {
    let _guard = hang_guard();
    let (s, r) = bounded(1);
    s.send(1).unwrap();
    let waits = {
        let s = s.clone();
        start_sleeper(move || s.send(2))
    };
    assert_eq!(r.recv(), Ok(1));
    assert_eq!(s.try_send(3), Err(TrySendError::Full(3)));
    waits.join().unwrap().unwrap();
    assert_eq!(r.recv(), Ok(2));
}

#[test]
fn the_numbers_of_a_channel() {
    let (s, r) = bounded(2);
    let numbers = |s: &Sender<_>, r: &Receiver<_>| {
        assert_eq!(
            (s.len(), s.is_empty(), s.is_full()),
            (r.len(), r.is_empty(), r.is_full())
        );
        (r.len(), r.is_empty(), r.is_full())
    };
    assert_eq!(numbers(&s, &r), (0, true, false));
    s.send(1).unwrap();
    assert_eq!(numbers(&s, &r), (1, false, false));
    s.send(2).unwrap();
    assert_eq!(numbers(&s, &r), (2, false, true));
    assert_eq!(s.try_send(3), Err(TrySendError::Full(3)));
    assert_eq!(r.recv(), Ok(1));
    assert_eq!(numbers(&s, &r), (1, false, false));

    let (s, r) = bounded::<i32>(0);
    assert_eq!(numbers(&s, &r), (0, true, true));
    assert_eq!((s.capacity(), r.capacity()), (Some(0), Some(0)));
    let (s, r) = unbounded();
    (0..10_000).for_each(|n| s.send(n).unwrap());
    assert_eq!(numbers(&s, &r), (10_000, false, false));
    assert_eq!((s.capacity(), r.capacity()), (None, None));
    assert_eq!(format!("{s:?} {r:?}"), "Sender { .. } Receiver { .. }");
}

#[test]
fn a_channel_without_the_other_side() {
    for (s, r) in channels() {
        drop(r);
        assert_eq!(s.send(1), Err(SendError(1)));
        assert_eq!(s.try_send(2), Err(TrySendError::Disconnected(2)));
        assert_eq!(
            s.send_timeout(3, SOON),
            Err(SendTimeoutError::Disconnected(3))
        );
    }
    for (s, r) in channels::<i32>() {
        let n = s.capacity().map_or(2, |cap| cap.min(2)) as i32;
        (0..n).for_each(|i| s.send(i).unwrap());
        drop(s);
        assert!(r.iter().eq(0..n));
        assert_eq!(r.recv(), Err(RecvError));
        assert_eq!(r.try_recv(), Err(TryRecvError::Disconnected));
        assert_eq!(r.recv_timeout(SOON), Err(RecvTimeoutError::Disconnected));
    }
}

#[test]
fn losing_the_other_side_ends_every_wait() {
    in_all_mixes(|mix| {
        for (s, r) in channels::<usize>() {
            let waiting: Vec<_> = (0..100)
                .map(|i| {
                    let r = r.clone();
                    start(mix(i) && i < 90, move || r.recv())
                })
                .collect();
            drop(r);
            s.try_send(7).ok();
            drop(s);
            let got = waiting.into_iter().filter_map(|w| w.join().ok()).count();
            assert!(got <= 1);
        }
        for (s, r) in channels::<usize>().into_iter().take(3) {
            while s.try_send(0).is_ok() {}
            let waiting: Vec<_> = (0..100)
                .map(|i| {
                    let s = s.clone();
                    start(mix(i) && i < 90, move || (i, s.send(i)))
                })
                .collect();
            drop((s, r));
            for w in waiting {
                let (i, sent) = w.join();
                assert_eq!(sent, Err(SendError(i)));
            }
        }
    });
}

#[test]
fn a_wait_ends_at_its_deadline() {
    in_all_mixes(|mix| {
        let (s, r) = bounded(0);
        let start_of_wait = Instant::now();
        let job = start(mix(0), move || {
            assert_eq!(s.send_timeout(1, SOON), Err(SendTimeoutError::Timeout(1)));
            let deadline = Instant::now() + SOON;
            assert_eq!(
                s.send_deadline(2, deadline),
                Err(SendTimeoutError::Timeout(2))
            );
            assert!(Instant::now() >= deadline);
            s
        });
        let s = job.join();
        assert!(start_of_wait.elapsed() >= 2 * SOON);
        let job = start(mix(1), move || {
            assert_eq!(r.recv_timeout(SOON), Err(RecvTimeoutError::Timeout));
            assert_eq!(
                r.recv_deadline(Instant::now()),
                Err(RecvTimeoutError::Timeout)
            );
            r
        });
        let r = job.join();
        // Waiters that gave up are out of the queues, and the channel works.
        let job = start(mix(0), move || s.send_timeout(3, Duration::from_secs(60)));
        assert_eq!(r.recv_timeout(Duration::from_secs(60)), Ok(3));
        assert_eq!(job.join(), Ok(()));
    });
}

/// Senders and receivers give up at random; no message is lost or comes twice.
#[test]
fn giving_up_loses_nothing() {
    in_all_mixes(|mix| {
        for (s, r) in [bounded(0), bounded(1)] {
            let received = Arc::new(Mutex::new(BTreeSet::new()));
            let receivers: Vec<_> = (0..3)
                .map(|i| {
                    let (r, received) = (r.clone(), Arc::clone(&received));
                    start(mix(i), move || {
                        loop {
                            match r.recv_timeout(Duration::from_micros(20)) {
                                Ok(n) => assert!(received.lock().unwrap().insert(n)),
                                Err(RecvTimeoutError::Timeout) => {}
                                Err(RecvTimeoutError::Disconnected) => break,
                            }
                        }
                    })
                })
                .collect();
            let senders: Vec<_> = (0..3)
                .map(|i| {
                    let s = s.clone();
                    start(mix(i + 1), move || {
                        let mut sent = 0;
                        for n in 0..300 {
                            match s.send_timeout(i * 1000 + n, Duration::from_micros(30)) {
                                Ok(()) => sent += 1,
                                Err(e) => assert_eq!(e.into_inner(), i * 1000 + n),
                            }
                        }
                        sent
                    })
                })
                .collect();
            drop((s, r));
            let sent: usize = senders.into_iter().map(Job::join).sum();
            receivers.into_iter().for_each(Job::join);
            assert_eq!(received.lock().unwrap().len(), sent);
        }
    });
}

#[test]
fn every_message_is_dropped_once() {
    let _guard = hang_guard();
    let census = Census::default();
    for (s, r) in channels() {
        // Refused, received, left in the channel without a receiver, sent to nobody.
        while s.len() < 3 && s.try_send(census.member()).is_ok() {}
        let clone = r.clone();
        drop(r.try_recv());
        drop(r);
        drop(clone);
        assert_eq!(census.dropped(), census.made());
        drop(s.send(census.member()).unwrap_err().into_inner());
        assert_eq!(census.dropped(), census.made());
    }
    for (s, r) in channels() {
        // Left in the channel by a sender that is gone.
        while s.len() < 2 && s.try_send(census.member()).is_ok() {}
        drop(s);
        drop(r);
        assert_eq!(census.dropped(), census.made());
    }
    // A message that does not fit is refused once a channel.
    census.assert_all_dropped((2 + 3 + 4 + 4) + (1 + 2 + 2 + 2));
}

#[test]
fn a_message_with_a_destructor_that_sends() {
    struct SendsOnDrop(Sender<SendsOnDrop>, Arc<AtomicUsize>);
    impl Drop for SendsOnDrop {
        fn drop(&mut self) {
            self.1.fetch_add(1, Ordering::SeqCst);
            assert!(self.0.is_empty());
            if let Err(e) = self
                .0
                .try_send(SendsOnDrop(self.0.clone(), Arc::clone(&self.1)))
            {
                // It must not send for ever.
                std::mem::forget(e.into_inner());
            }
        }
    }
    let drops = Arc::new(AtomicUsize::new(0));
    let (s, r) = unbounded();
    for _ in 0..10 {
        s.send(SendsOnDrop(s.clone(), Arc::clone(&drops))).unwrap();
    }
    drop(r);
    assert_eq!(drops.load(Ordering::SeqCst), 10);
}

/// Messages of those who waited when the run ended, and of those who never began.
#[test]
fn the_end_of_a_run_drops_what_waits() {
    let census = Census::default();
    for (s, r) in channels() {
        let cap = s.capacity().unwrap_or(0);
        run(2, || {
            for _ in 0..50 {
                let (s, member) = (s.clone(), census.member());
                spawn(move || drop(s.send(member)));
                let r = r.clone();
                if cap == 0 {
                    continue;
                }
                spawn(move || {
                    while let Ok(m) = r.recv() {
                        drop(m);
                    }
                });
            }
            for _ in 0..20 {
                yield_now();
            }
        });
        drop((s, r));
        assert_eq!(census.made(), census.dropped());
    }
    census.assert_all_dropped(200);
}

#[test]
fn a_destructor_fails_at_once_when_the_run_ends() {
    struct Uses(
        Sender<i32>,
        Receiver<i32>,
        Sender<(Result<(), i32>, Result<i32, RecvError>)>,
    );
    impl Drop for Uses {
        fn drop(&mut self) {
            let sent = self.0.send(1).map_err(SendError::into_inner);
            let _ = self.2.try_send((sent, self.1.recv()));
        }
    }
    let (told, tells) = unbounded();
    run(2, || {
        let (s, r) = bounded(0);
        let (to, from) = bounded::<i32>(0);
        let (begun, began) = bounded(0);
        spawn(move || {
            let _uses = Uses(s, from, told);
            begun.send(()).unwrap();
            let _keep = to;
            r.recv()
        });
        began.recv().unwrap();
    });
    assert_eq!(tells.recv(), Ok((Err(1), Err(RecvError))));
}

#[test]
fn a_panicking_goroutine_may_use_channels() {
    struct Sends(Sender<i32>, Receiver<i32>);
    impl Drop for Sends {
        fn drop(&mut self) {
            self.0.send(self.1.recv().unwrap() + 1).unwrap();
        }
    }
    run(2, || {
        let (s, from) = bounded(0);
        let (to, r) = bounded(0);
        let panics = spawn(move || {
            let _sends = Sends(s, r);
            std::panic::resume_unwind(Box::new("on purpose"));
        });
        to.send(1).unwrap();
        assert_eq!(from.recv(), Ok(2));
        assert!(panics.join().is_err());
    });
}

#[test]
fn handles_may_be_used_after_a_panic() {
    let (s, r) = unbounded();
    let caught = catch_unwind(|| {
        s.send(1).unwrap();
        std::panic::resume_unwind(Box::new("on purpose"));
    });
    assert!(caught.is_err());
    assert_eq!(catch_unwind(|| r.recv()).unwrap(), Ok(1));
    drop(AssertUnwindSafe(r));
}

#[test]
fn large_and_empty_messages() {
    run(2, || {
        for (s, r) in channels::<[u64; 700]>() {
            let sender = spawn(move || (0..50).for_each(|n| s.send([n; 700]).unwrap()));
            (0..50).for_each(|n| assert_eq!(r.recv(), Ok([n; 700])));
            sender.join().unwrap();
        }
        for (s, r) in channels::<()>() {
            let sender = spawn(move || (0..5000).for_each(|_| s.send(()).unwrap()));
            assert_eq!(r.iter().count(), 5000);
            sender.join().unwrap();
        }
    });
}

/// Two goroutines that hand over for ever do not keep a third one from running.
#[test]
fn a_pair_of_hogs_leaves_time_for_others() {
    run(1, || {
        let (s1, r1) = bounded::<u64>(0);
        let (s2, r2) = bounded::<u64>(0);
        spawn(move || while r1.recv().is_ok_and(|n| s2.send(n + 1).is_ok()) {});
        let exchanges = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&exchanges);
        spawn(move || {
            while s1.send(0).is_ok() && r2.recv().is_ok() {
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        wait_until(|| exchanges.load(Ordering::Relaxed) > 10_000);
        for _ in 0..20 {
            yield_now();
        }
        let before = exchanges.load(Ordering::Relaxed);
        wait_until(|| exchanges.load(Ordering::Relaxed) > before);
    });
}

#[test]
fn many_goroutines_end_when_a_channel_closes() {
    run(4, || {
        let (s, r) = unbounded::<i32>();
        let waiting: Vec<_> = (0..5000)
            .map(|_| {
                let r = r.clone();
                spawn(move || r.recv())
            })
            .collect();
        for _ in 0..100 {
            yield_now();
        }
        drop(s);
        for w in waiting {
            assert_eq!(w.join().unwrap(), Err(RecvError));
        }
    });
}

#[cfg(feature = "sim")]
crate::inside::tests! {
    messages_come_in_order / 2,
    every_message_has_one_receiver / 4,
    a_rendezvous_ends_when_both_have_come,
    those_who_wait_are_served_in_order: "it uses threads",
    a_place_that_becomes_free_is_the_waiting_senders: "it uses threads",
    the_numbers_of_a_channel,
    a_channel_without_the_other_side,
    losing_the_other_side_ends_every_wait: "it uses threads",
    a_wait_ends_at_its_deadline,
    giving_up_loses_nothing,
    every_message_is_dropped_once,
    a_message_with_a_destructor_that_sends,
    the_end_of_a_run_drops_what_waits: "it ends a run of its own",
    a_destructor_fails_at_once_when_the_run_ends: "it ends a run of its own",
    a_panicking_goroutine_may_use_channels: "it waits in a destructor while it unwinds",
    handles_may_be_used_after_a_panic,
    large_and_empty_messages / 10,
    a_pair_of_hogs_leaves_time_for_others: "goroutines that never wait take too many steps",
    many_goroutines_end_when_a_channel_closes / 20,
}

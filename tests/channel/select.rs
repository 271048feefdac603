//! Select: fairness, losing arms, timeouts, readiness; goroutines, threads, and across.
#![allow(
    clippy::disallowed_methods,
    reason = "these tests also block plain threads"
)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use crate::util::{Census, panic_text, run, wait_until};
use windlass::channel::{
    Receiver, RecvError, Select, SelectTimeoutError, SendError, Sender, TryReadyError,
    TryRecvError, TrySelectError, after, at, bounded, never, select, select_biased, tick,
    unbounded,
};
use windlass::time::{Duration, Instant};
use windlass::{spawn, yield_now};

const SOON: Duration = Duration::from_millis(5);
const LATE: Duration = Duration::from_secs(60);

/// Within 10 standard deviations of a fair coin.
#[track_caller]
fn assert_fair(hits: [usize; 2]) {
    let n = hits[0] + hits[1];
    let off = hits[0].abs_diff(n / 2) as f64;
    assert!(off <= 10.0 * (n as f64 / 4.0).sqrt(), "{hits:?}");
}

/// Two channels that always have a message, an idle one between them.
fn choose_between_ready_ones() {
    let (s1, r1) = unbounded();
    let (s2, r2) = unbounded();
    let (_s3, r3) = unbounded::<()>();
    let mut hits = [0; 2];
    for _ in 0..20_000 {
        s1.send(()).unwrap();
        s2.send(()).unwrap();
        select! {
            recv(r1) -> _ => hits[0] += 1,
            recv(r3) -> _ => unreachable!(),
            recv(r2) -> _ => hits[1] += 1,
        }
    }
    assert_fair(hits);
}

#[test]
fn ready_channels_are_chosen_evenly() {
    choose_between_ready_ones();
    run(2, choose_between_ready_ones);
}

/// A message with which a select was woken has left the channel, also before the select comes to run:
/// an empty channel has a place.
#[test]
fn a_woken_select_holds_no_place() {
    run(1, || {
        let (s, r) = bounded(1);
        let (s2, r2) = bounded::<i32>(0);
        let receiver = spawn(move || {
            let chosen = select! {
                recv(r) -> msg => msg,
                recv(r2) -> msg => msg,
            };
            (chosen.unwrap(), r.recv().unwrap())
        });
        wait_until(|| {
            let mut select = Select::new();
            select.send(&s2);
            select.try_ready().is_ok()
        });
        // There is one P: the receiver does not run before this goroutine waits.
        s.try_send(1).unwrap();
        assert!(s.is_empty());
        s.try_send(2).unwrap();
        assert_eq!(receiver.join().unwrap(), (1, 2));
    });
}

/// The place of a message that a select has chosen goes to a sender that waits for one.
#[test]
fn choosing_a_message_lets_a_sender_go_on() {
    run(1, || {
        let (s, r) = bounded(1);
        s.send(1).unwrap();
        let sender = spawn({
            let s = s.clone();
            move || s.send(2).unwrap()
        });
        yield_now();
        let mut select = Select::new();
        select.recv(&r);
        let chosen = select.select();
        sender.join().unwrap();
        assert_eq!(chosen.recv(&r), Ok(1));
        assert_eq!(r.recv(), Ok(2));
    });
}

#[test]
fn a_waiting_select_starves_nobody() {
    run(2, || {
        let (s1, r1) = bounded(0);
        let (s2, r2) = bounded(0);
        let (to, hits) = bounded(0);
        let receiver = spawn(move || {
            let mut hits = [0; 2];
            for _ in 0..20_000 {
                select! {
                    recv(r1) -> msg => hits[0] += usize::from(msg.is_ok()),
                    recv(r2) -> msg => hits[1] += usize::from(msg.is_ok()),
                }
            }
            to.send(hits).unwrap();
        });
        let senders = [s1, s2].map(|s| spawn(move || while s.send(()).is_ok() {}));
        let hits = hits.recv().unwrap();
        assert!(hits.iter().all(|n| *n > 100), "{hits:?}");
        receiver.join().unwrap();
        for sender in senders {
            sender.join().unwrap();
        }
    });
}

#[test]
fn the_first_written_is_preferred() {
    let (s1, r1) = unbounded();
    let (s2, r2) = unbounded();
    for n in 0..100 {
        s1.send(n).unwrap();
        s2.send(n).unwrap();
    }
    for n in 0..200 {
        let from = select_biased! {
            recv(r1) -> msg => (1, msg.unwrap()),
            recv(r2) -> msg => (2, msg.unwrap()),
        };
        assert_eq!(from, (1 + n / 100, n % 100));
    }
}

/// Selects that send and selects that receive on two channels, on goroutines and threads:
/// each message arrives once.
#[test]
fn selects_that_meet_lose_nothing() {
    for cap in [0, 1] {
        run(3, || {
            let (s1, r1) = bounded(cap);
            let (s2, r2) = bounded(cap);
            let n_sent = Arc::new(AtomicUsize::new(0));
            let sum = Arc::new(AtomicUsize::new(0));
            let send = |s1: Sender<usize>, s2: Sender<usize>, n_sent: Arc<AtomicUsize>| {
                move || {
                    for n in 0..2000 {
                        let sent = select! {
                            send(s1, n) -> sent => sent.is_ok(),
                            send(s2, n) -> sent => sent.is_ok(),
                            default(Duration::from_micros(50)) => false,
                        };
                        n_sent.fetch_add(if sent { n + 1 } else { 0 }, Ordering::SeqCst);
                    }
                }
            };
            let recv = |r1: Receiver<usize>, r2: Receiver<usize>, sum: Arc<AtomicUsize>| {
                move || loop {
                    let msg = select! {
                        recv(r1) -> msg => msg,
                        recv(r2) -> msg => msg,
                        default(Duration::from_micros(50)) => continue,
                    };
                    match msg {
                        Ok(n) => sum.fetch_add(n + 1, Ordering::SeqCst),
                        Err(RecvError) => break,
                    };
                }
            };
            let senders = [0, 1].map(|_| spawn(send(s1.clone(), s2.clone(), Arc::clone(&n_sent))));
            let thread = thread::spawn(send(s1.clone(), s2.clone(), Arc::clone(&n_sent)));
            let receivers = [0, 1].map(|_| spawn(recv(r1.clone(), r2.clone(), Arc::clone(&sum))));
            let reader = thread::spawn(recv(r1.clone(), r2.clone(), Arc::clone(&sum)));
            for sender in senders {
                sender.join().unwrap();
            }
            windlass::offload(|| thread.join().unwrap());
            drop((s1, s2));
            for receiver in receivers {
                receiver.join().unwrap();
            }
            windlass::offload(|| reader.join().unwrap());
            // A channel of which one receiver saw the end may hold what others left.
            let left = r1
                .try_iter()
                .chain(r2.try_iter())
                .map(|n| n + 1)
                .sum::<usize>();
            assert_eq!(
                n_sent.load(Ordering::SeqCst),
                sum.load(Ordering::SeqCst) + left
            );
        });
    }
}

#[test]
fn a_losing_arm_keeps_its_message() {
    let census = Census::default();
    run(2, || {
        let (s1, r1) = bounded(0);
        let (s2, r2) = bounded(0);
        let member = census.member();
        let chooser = spawn(move || {
            select! {
                send(s1, member) -> sent => sent.unwrap(),
                recv(r2) -> msg => {
                    assert_eq!(msg, Ok(5));
                    // It was not sent, so it is still here.
                    drop(member);
                }
            }
        });
        s2.send(5).unwrap();
        chooser.join().unwrap();
        assert_eq!(r1.try_recv().map(drop), Err(TryRecvError::Disconnected));
    });
    census.assert_all_dropped(1);
}

#[test]
fn a_default_is_taken_when_nothing_is_possible() {
    let (s, r) = bounded::<i32>(0);
    select! {
        recv(r) -> _ => panic!("nobody sends"),
        send(s, 1) -> _ => panic!("nobody receives"),
        default => {}
    }
    let begin = Instant::now();
    select! {
        recv(r) -> _ => panic!("nobody sends"),
        send(s, 1) -> _ => panic!("nobody receives"),
        default(SOON) => {}
    }
    assert!(begin.elapsed() >= SOON);
    drop(s);
    select! {
        recv(r) -> msg => assert_eq!(msg, Err(RecvError)),
        default => panic!("a channel without senders fails at once"),
    }
    let (s, r) = bounded::<i32>(0);
    drop(r);
    select! {
        send(s, 1) -> sent => assert_eq!(sent, Err(SendError(1))),
        default(LATE) => panic!("a channel without receivers fails at once"),
    }
}

#[test]
fn messages_are_made_when_they_are_sent() {
    let (s1, _r1) = bounded(1);
    let (s2, _r2) = bounded(1);
    s2.send(0).unwrap();
    let made = AtomicUsize::new(0);
    let make = |n| {
        made.fetch_add(1, Ordering::SeqCst);
        n
    };
    select! {
        send(s1, make(1)) -> sent => sent.unwrap(),
        send(s2, make(2)) -> _ => panic!("full"),
    }
    assert_eq!(made.load(Ordering::SeqCst), 1);
}

#[test]
fn a_message_that_panics_while_it_is_made() {
    run(2, || {
        for (s, r) in [bounded::<i32>(0), bounded(1)] {
            let (begun, begin) = bounded(0);
            let receiver = spawn(move || {
                begun.send(()).unwrap();
                (r.recv(), r.recv())
            });
            begin.recv().unwrap();
            for _ in 0..10 {
                yield_now();
            }
            // The receiver has been chosen for this message, and gets another one.
            let not_made = || -> i32 { std::panic::resume_unwind(Box::new("not made")) };
            let panicked = catch_unwind(AssertUnwindSafe(|| {
                select! {
                    send(s, not_made()) -> _ => {}
                }
            }));
            assert!(panicked.is_err());
            s.send(1).unwrap();
            s.send(2).unwrap();
            assert_eq!(receiver.join().unwrap(), (Ok(1), Ok(2)));
        }
    });
}

#[test]
fn a_choice_that_is_not_completed() {
    let (s, r) = bounded(1);
    let dropped = |select: &mut Select<'_>| {
        let panic = catch_unwind(AssertUnwindSafe(|| drop(select.select()))).unwrap_err();
        let text = "dropped `SelectedOperation` without completing the operation";
        assert_eq!(panic_text(&*panic), text);
    };
    let mut select = Select::new();
    select.send(&s);
    dropped(&mut select);
    assert!(!s.is_full());
    s.send(1).unwrap();
    let mut select = Select::new();
    select.recv(&r);
    dropped(&mut select);
    assert_eq!(r.try_recv(), Ok(1));
}

#[test]
fn a_message_that_was_chosen_in_vain_goes_to_the_receiver_that_waits() {
    run(1, || {
        let (s, r) = bounded(1);
        s.send(1).unwrap();
        let mut select = Select::new();
        select.recv(&r);
        let chosen = select.select();
        let waits = spawn({
            let r = r.clone();
            move || r.recv()
        });
        (0..10).for_each(|_| yield_now());
        catch_unwind(AssertUnwindSafe(|| drop(chosen))).unwrap_err();
        assert_eq!(waits.join().unwrap(), Ok(1));
    });
}

/// A send that was selected and forgotten: a receiver that has met it waits until its deadline, and
/// the channel serves others as before.
#[test]
fn a_choice_that_is_forgotten() {
    run(2, || {
        for cap in [0, 1] {
            let (s, r) = bounded(cap);
            for is_early in [false, true] {
                let sender = s.clone();
                let forgets = move || {
                    let mut select = Select::new();
                    select.send(&sender);
                    std::mem::forget(select.select());
                };
                // The receiver meets the select, or the select the receiver.
                let forgets = match is_early {
                    true => {
                        let joined = spawn(forgets);
                        for _ in 0..10 {
                            yield_now();
                        }
                        joined
                    }
                    false => {
                        let waits = r.clone();
                        let timed = spawn(move || waits.recv_timeout(SOON));
                        let joined = spawn(forgets);
                        assert!(timed.join().unwrap().unwrap_err().is_timeout());
                        joined
                    }
                };
                assert!(r.recv_timeout(SOON).unwrap_err().is_timeout());
                forgets.join().unwrap();
            }
            // To and fro, with and without a select on either side.
            for n in 0..20 {
                let sender = s.clone();
                let sends = spawn(move || match n % 2 {
                    0 => sender.send(n),
                    _ => {
                        let mut select = Select::new();
                        select.send(&sender);
                        select.select().send(&sender, n)
                    }
                });
                let received = match n / 2 % 2 {
                    0 => r.recv_timeout(LATE).unwrap(),
                    _ => {
                        let mut select = Select::new();
                        select.recv(&r);
                        select.select_timeout(LATE).unwrap().recv(&r).unwrap()
                    }
                };
                assert_eq!(received, n);
                sends.join().unwrap().unwrap();
            }
            if cap > 0 {
                // The place is lost, too.
                assert!(s.try_send(0).unwrap_err().is_full());
                continue;
            }
            // A select that panics meanwhile gives its promise back.
            let (waits, sender) = (r.clone(), s.clone());
            let waits = spawn(move || waits.recv_timeout(LATE));
            let panics = spawn(move || {
                let mut select = Select::new();
                select.send(&sender);
                let _chosen = select.select();
                panic!("while the message is made");
            });
            assert!(panics.join().is_err());
            s.send(7).unwrap();
            assert_eq!(waits.join().unwrap(), Ok(7));
            assert!(r.try_recv().unwrap_err().is_empty());
            drop(s);
            assert!(r.recv().is_err());
        }
    });
}

/// The message of a select that is slow comes after the receiver has given up: nothing is lost.
#[test]
fn a_choice_that_is_completed_late() {
    run(2, || {
        let (s, r) = bounded(0);
        let (go, goes) = bounded::<()>(0);
        let has_chosen = Arc::new(AtomicBool::new(false));
        let chose = Arc::clone(&has_chosen);
        let slow = spawn(move || {
            let mut select = Select::new();
            select.send(&s);
            let chosen = select.select();
            chose.store(true, Ordering::SeqCst);
            goes.recv().unwrap();
            chosen.send(&s, 7).unwrap();
            s.send(8).unwrap();
        });
        while !has_chosen.load(Ordering::SeqCst) {
            assert!(r.recv_timeout(SOON).unwrap_err().is_timeout());
        }
        go.send(()).unwrap();
        assert_eq!((r.recv(), r.recv()), (Ok(7), Ok(8)));
        slow.join().unwrap();
        assert!(r.recv().is_err());
    });
}

/// A select that comes between a receiver's deadline and its next run has promised it a message that nobody may send. In some
/// rounds it does.
#[test]
fn a_promise_after_the_deadline() {
    for _ in 0..40 {
        run(1, || {
            let (s, r) = bounded(0);
            let (go, goes) = bounded::<()>(0);
            let receiver = r.clone();
            let receives = spawn(move || receiver.recv_timeout(Duration::from_millis(1)));
            yield_now();
            let slow = spawn(move || {
                let mut select = Select::new();
                select.send(&s);
                let chosen = select.select();
                goes.recv().unwrap();
                chosen.send(&s, 7).unwrap();
            });
            let began = Instant::now();
            while began.elapsed() < Duration::from_millis(2) {
                std::hint::spin_loop();
            }
            assert!(receives.join().unwrap().unwrap_err().is_timeout());
            let message = spawn(move || r.recv());
            go.send(()).unwrap();
            assert_eq!(message.join().unwrap(), Ok(7));
            slow.join().unwrap();
        });
    }
}

#[test]
fn the_wrong_end_is_refused() {
    let (s, r) = bounded::<i32>(1);
    let (s2, r2) = (s.clone(), r.clone());
    let mut select = Select::new();
    select.send(&s);
    let panic = catch_unwind(AssertUnwindSafe(|| select.select().send(&s2, 1))).unwrap_err();
    assert_eq!(panic_text(&*panic), "passed a sender that wasn't selected");
    s.send(1).unwrap();
    let mut select = Select::new();
    select.recv(&r);
    let panic = catch_unwind(AssertUnwindSafe(|| select.select().recv(&r2))).unwrap_err();
    assert_eq!(
        panic_text(&*panic),
        "passed a receiver that wasn't selected"
    );
    assert_eq!(r.recv(), Ok(1));
}

#[test]
fn a_list_of_many_operations() {
    run(2, || {
        let channels: Vec<_> = (0..40).map(|_| bounded(0)).collect();
        let ends: Vec<_> = channels
            .iter()
            .map(|(s, _): &(Sender<usize>, _)| s.clone())
            .collect();
        let sender = spawn(move || {
            for (i, s) in ends.iter().enumerate().rev() {
                s.send(i).unwrap();
            }
        });
        let mut select = Select::new();
        for (_, r) in &channels {
            select.recv(r);
        }
        for expected in (0..40).rev() {
            let chosen = select.select();
            let i = chosen.index();
            assert_eq!((i, chosen.recv(&channels[i].1)), (expected, Ok(expected)));
            select.remove(i);
        }
        assert_eq!(select.try_select().unwrap_err(), TrySelectError);
        sender.join().unwrap();
    });
}

#[test]
fn the_same_channel_in_several_arms() {
    let (s, r) = bounded(0);
    let mut select = Select::new();
    select.send(&s);
    select.recv(&r);
    select.recv(&r);
    // A select does not meet itself.
    assert_eq!(select.select_timeout(SOON).unwrap_err(), SelectTimeoutError);
    assert_eq!(select.try_ready(), Err(TryReadyError));
    let sender = thread::spawn({
        let s = s.clone();
        move || s.send(7).unwrap()
    });
    let chosen = select.select();
    assert!(chosen.index() > 0);
    assert_eq!(chosen.recv(&r), Ok(7));
    sender.join().unwrap();
}

#[test]
fn readiness_ends_a_wait() {
    run(2, || {
        for cap in [0, 1] {
            let (s, r) = bounded(cap);
            let watcher = spawn(move || {
                let mut got = 0;
                let mut select = Select::new();
                let index = select.recv(&r);
                loop {
                    assert_eq!(select.ready(), index);
                    match r.try_recv() {
                        Ok(()) => got += 1,
                        Err(TryRecvError::Empty) => {}
                        Err(TryRecvError::Disconnected) => return got,
                    }
                }
            });
            for _ in 0..500 {
                s.send(()).unwrap();
            }
            drop(s);
            assert_eq!(watcher.join().unwrap(), 500);

            let (s, r) = bounded(cap);
            let watcher = spawn(move || {
                let mut sent = 0;
                let mut select = Select::new();
                select.send(&s);
                while sent < 500 {
                    assert_eq!(select.ready_timeout(LATE), Ok(0));
                    sent += usize::from(s.try_send(()).is_ok());
                }
            });
            assert_eq!(r.iter().count(), 500);
            watcher.join().unwrap();
        }
    });
}

#[test]
fn several_watchers_all_learn() {
    run(2, || {
        let (s, r) = unbounded();
        let watchers: Vec<_> = (0..10)
            .map(|_| {
                let r = r.clone();
                spawn(move || {
                    let mut select = Select::new();
                    select.recv(&r);
                    select.ready()
                })
            })
            .collect();
        for _ in 0..20 {
            yield_now();
        }
        s.send(()).unwrap();
        for watcher in watchers {
            assert_eq!(watcher.join().unwrap(), 0);
        }
    });
}

#[test]
fn time_fills_channels() {
    fn check() {
        let begin = Instant::now();
        let when = begin + 2 * SOON;
        let (early, late) = (at(when), after(LATE));
        select! {
            recv(late) -> _ => panic!("too early"),
            recv(early) -> msg => assert_eq!(msg, Ok(when)),
            recv(never::<()>()) -> _ => panic!("never"),
        }
        assert!(Instant::now() >= when);
        assert_eq!(early.try_recv(), Err(TryRecvError::Empty));
        let ticks = tick(SOON);
        let first = ticks.recv().unwrap();
        assert!(first >= begin + SOON);
        let second = select! { recv(ticks) -> msg => msg.unwrap() };
        assert!(second >= first + SOON);
        assert_eq!(
            (ticks.capacity(), ticks.same_channel(&ticks.clone())),
            (Some(1), true)
        );
        assert_eq!(never::<()>().capacity(), Some(0));
        let after_all = after(Duration::ZERO);
        assert_eq!((after_all.len(), after_all.is_full()), (1, true));
        assert!(after(Duration::MAX).is_empty());
    }
    check();
    run(2, check);
}

#[test]
fn two_receivers_share_the_ticks() {
    run(2, || {
        let ticks = tick(Duration::from_millis(1));
        let others = ticks.clone();
        let other = spawn(move || (0..10).map(|_| others.recv().unwrap()).collect::<Vec<_>>());
        let mut all: Vec<_> = (0..10).map(|_| ticks.recv().unwrap()).collect();
        all.extend(other.join().unwrap());
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 20);
    });
}

#[test]
fn the_end_of_a_run_ends_selects() {
    struct Selects(Receiver<i32>, Sender<Result<i32, RecvError>>);
    impl Drop for Selects {
        fn drop(&mut self) {
            let got = select! { recv(self.0) -> msg => msg };
            let _ = self.1.try_send(got);
        }
    }
    let census = Census::default();
    let (told, tells) = unbounded();
    run(2, || {
        let n_begun = Arc::new(AtomicUsize::new(0));
        let (s, r) = bounded::<i32>(0);
        for _ in 0..50 {
            let (s, r, told, member) = (s.clone(), r.clone(), told.clone(), census.member());
            let n_begun = Arc::clone(&n_begun);
            spawn(move || {
                let (_never_s, never_r) = bounded(0);
                let _member = member;
                let _selects = Selects(never_r.clone(), told);
                n_begun.fetch_add(1, Ordering::SeqCst);
                let (full, _unread) = bounded(0);
                select! {
                    recv(r) -> _ => panic!("nobody sends"),
                    recv(never_r) -> _ => panic!("nobody sends"),
                    send(full, 1) -> _ => panic!("nobody receives"),
                    recv(after(LATE)) -> _ => panic!("too late"),
                }
            });
            drop(s);
        }
        wait_until(|| n_begun.load(Ordering::SeqCst) == 50);
        for _ in 0..20 {
            yield_now();
        }
    });
    drop(told);
    assert_eq!(tells.iter().filter(Result::is_err).count(), 50);
    census.assert_all_dropped(50);
}

#[test]
fn errors_have_crossbeams_texts() {
    let (s, r) = bounded(0);
    let mut select = Select::new();
    select.recv(&r);
    assert_eq!(
        select.try_select().unwrap_err().to_string(),
        "all operations in select would block"
    );
    assert_eq!(
        select.select_timeout(SOON).unwrap_err().to_string(),
        "timed out waiting on select"
    );
    assert_eq!(
        format!("{:?} {select:?}", select.try_ready()),
        "Err(TryReadyError) Select { .. }"
    );
    assert_eq!(
        s.try_send(1).unwrap_err().to_string(),
        "sending on a full channel"
    );
    assert_eq!(format!("{:?}", s.try_send(1)), "Err(Full(..))");
    assert_eq!(
        s.send_timeout(1, SOON).unwrap_err().to_string(),
        "timed out waiting on send operation"
    );
    assert_eq!(
        r.recv_timeout(SOON).unwrap_err().to_string(),
        "timed out waiting on receive operation"
    );
    drop(r);
    assert_eq!(
        s.send(1).unwrap_err().to_string(),
        "sending on a disconnected channel"
    );
    assert_eq!(format!("{:?}", s.send(1)), "Err(SendError(..))");
}

#[cfg(feature = "sim")]
crate::inside::tests! {
    ready_channels_are_chosen_evenly / 20,
    a_woken_select_holds_no_place,
    choosing_a_message_lets_a_sender_go_on,
    a_waiting_select_starves_nobody: "the seed draws who is served, and is not fair",
    the_first_written_is_preferred,
    selects_that_meet_lose_nothing: "it uses threads",
    a_losing_arm_keeps_its_message,
    a_default_is_taken_when_nothing_is_possible,
    messages_are_made_when_they_are_sent,
    a_message_that_panics_while_it_is_made,
    a_choice_that_is_not_completed,
    a_message_that_was_chosen_in_vain_goes_to_the_receiver_that_waits,
    a_choice_that_is_forgotten,
    a_choice_that_is_completed_late,
    a_promise_after_the_deadline: "it computes until a time",
    the_wrong_end_is_refused,
    a_list_of_many_operations,
    the_same_channel_in_several_arms: "it uses threads",
    readiness_ends_a_wait,
    several_watchers_all_learn,
    time_fills_channels,
    two_receivers_share_the_ticks,
    the_end_of_a_run_ends_selects: "it ends a run of its own",
    errors_have_crossbeams_texts,
}

//! Timers and tickers as channels, channels and contexts together.
#![allow(clippy::disallowed_methods, reason = "plain threads take part")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::util;
use crate::util::{hang_guard, run, runtime, wait_until};
use windlass::channel::{
    Receiver, RecvError, RecvTimeoutError, Select, SendError, SendTimeoutError, TryRecvError,
    after, bounded, never, tick, unbounded,
};
use windlass::context::{Context, Error};
use windlass::select;
use windlass::time::{Duration, Elapsed, Instant, Ticker, Timer, sleep, timeout};
use windlass::{spawn, yield_now};

const FOREVER: Duration = Duration::from_secs(1 << 30);
const MOMENT: Duration = Duration::from_millis(2);

/// Runs a test on a goroutine and on a plain thread.
fn on_both(test: impl Fn() + Send + Sync) {
    run(2, &test);
    let _guard = hang_guard();
    test();
}

#[test]
fn a_timer_sends_once() {
    on_both(|| {
        let start = Instant::now();
        let timer = Timer::new(MOMENT);
        assert_eq!(timer.channel().capacity(), Some(1));
        let sent = timer.channel().recv().unwrap();
        assert!(sent >= start + MOMENT && Instant::now() >= sent);
        assert_eq!(timer.channel().try_recv(), Err(TryRecvError::Empty));
        let more = timer.channel().recv_timeout(MOMENT);
        assert_eq!(more, Err(RecvTimeoutError::Timeout));
        assert!(!timer.stop());
        assert!(!timer.reset(Duration::ZERO));
        assert_eq!(timer.channel().len(), 1);
        assert!(timer.channel().recv().is_ok());
    });
}

#[test]
fn nothing_stale_comes_after_stop_or_reset() {
    on_both(|| {
        let timer = Timer::new(Duration::ZERO);
        wait_until(|| timer.channel().is_full());
        assert!(timer.stop());
        assert!(timer.channel().is_empty());
        assert_eq!(timer.channel().try_recv(), Err(TryRecvError::Empty));
        timer.reset(Duration::ZERO);
        wait_until(|| timer.channel().is_full());
        let start = Instant::now();
        assert!(timer.reset(MOMENT));
        assert!(timer.channel().recv().unwrap() >= start + MOMENT);
        let huge = Timer::new(Duration::MAX);
        assert_eq!(huge.channel().try_recv(), Err(TryRecvError::Empty));
        assert!(!huge.stop());
    });
}

#[test]
fn nothing_stale_comes_while_others_receive() {
    // Whatever is received after a reset is of that reset or a later one.
    run(4, || {
        let timer = Arc::new(Timer::new(Duration::ZERO));
        let over = Arc::new(AtomicBool::new(false));
        let receivers: Vec<_> = (0..3)
            .map(|_| {
                let (timer, over) = (Arc::clone(&timer), Arc::clone(&over));
                spawn(move || {
                    let mut n = 0;
                    while !over.load(Ordering::SeqCst) {
                        let r = timer.channel().recv_timeout(Duration::from_micros(100));
                        n += usize::from(r.is_ok());
                    }
                    n
                })
            })
            .collect();
        for i in 0..2000 {
            let before = Instant::now();
            timer.reset(Duration::from_micros(i % 50));
            if i % 3 == 0 {
                yield_now();
            }
            if timer.stop() {
                assert!(timer.channel().is_empty());
            }
            timer.reset(Duration::ZERO);
            if let Ok(sent) = timer.channel().try_recv() {
                assert!(sent >= before, "of before the reset");
            }
        }
        over.store(true, Ordering::SeqCst);
        let n: usize = receivers.into_iter().map(|j| j.join().unwrap()).sum();
        assert!(n <= 4000);
    });
}

#[test]
fn a_reset_reaches_those_who_wait() {
    on_both(|| {
        let timer = Arc::new(Timer::new(FOREVER));
        let begun = Arc::new(AtomicUsize::new(0));
        let waits = |receiver: Receiver<Instant>| {
            let begun = Arc::clone(&begun);
            std::thread::spawn(move || {
                begun.fetch_add(1, Ordering::SeqCst);
                receiver.recv().unwrap()
            })
        };
        let first = waits(timer.channel().clone());
        wait_until(|| begun.load(Ordering::SeqCst) == 1);
        let start = Instant::now();
        timer.reset(MOMENT);
        let sent = windlass::blocking(|| first.join().unwrap());
        assert!(sent >= start + MOMENT);

        timer.reset(MOMENT);
        timer.stop();
        let second = waits(timer.channel().clone());
        wait_until(|| begun.load(Ordering::SeqCst) == 2);
        sleep(2 * MOMENT);
        assert!(!second.is_finished());
        timer.reset(Duration::ZERO);
        windlass::blocking(|| second.join().unwrap());
    });
}

/// Each reset wakes all who wait, and they wait again at once.
#[test]
fn a_reset_does_not_wait_for_those_who_wait() {
    const N: usize = 100;
    let _guard = hang_guard();
    let timer = Timer::new(FOREVER);
    let (n_begun, n_ended) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|s| {
        for _ in 0..N {
            s.spawn(|| {
                n_begun.fetch_add(1, Ordering::SeqCst);
                let _ = timer.channel().recv_timeout(Duration::from_secs(5));
                n_ended.fetch_add(1, Ordering::SeqCst);
            });
        }
        wait_until(|| n_begun.load(Ordering::SeqCst) == N);
        // They come to their waits meanwhile.
        for _ in 0..100 {
            timer.reset(FOREVER);
        }
        assert_eq!(n_ended.load(Ordering::SeqCst), 0);
        for n in 1..=N {
            timer.reset(Duration::ZERO);
            wait_until(|| n_ended.load(Ordering::SeqCst) >= n);
        }
    });
}

#[test]
fn a_reset_reaches_selects() {
    run(2, || {
        let timer = Arc::new(Timer::new(FOREVER));
        let (sender, receiver) = bounded::<u32>(0);
        let all: Vec<_> = (0..40)
            .map(|i| {
                let (timer, receiver) = (Arc::clone(&timer), receiver.clone());
                spawn(move || {
                    if i % 2 == 0 {
                        select! {
                            recv(timer.channel()) -> _ => 1,
                            recv(receiver) -> _ => 2,
                        }
                    } else {
                        let mut select = Select::new();
                        select.recv(timer.channel());
                        select.recv(&receiver);
                        select.ready();
                        3
                    }
                })
            })
            .collect();
        sleep(MOMENT);
        timer.reset(2 * FOREVER);
        sleep(MOMENT);
        timer.reset(Duration::ZERO);
        // One gets the instant, and those that only look whether there is one go on.
        wait_until(|| all.iter().filter(|j| j.is_finished()).count() > 0);
        drop(sender);
        let ended: Vec<_> = all.into_iter().map(|j| j.join().unwrap()).collect();
        assert!(ended.iter().filter(|&&how| how == 1).count() <= 1);
        assert_eq!(ended.iter().filter(|&&how| how == 3).count(), 20);
    });
}

#[test]
fn a_timer_in_a_select() {
    on_both(|| {
        let (_sender, receiver) = unbounded::<u32>();
        let start = Instant::now();
        let timer = Timer::new(MOMENT);
        select! {
            recv(receiver) -> _ => panic!("nobody sends"),
            recv(timer.channel()) -> sent => assert!(sent.unwrap() >= start + MOMENT),
        }
        select! {
            recv(timer.channel()) -> _ => panic!("it has sent"),
            default(MOMENT) => {}
        }
    });
}

#[test]
fn a_ticker_ticks() {
    on_both(|| {
        let start = Instant::now();
        let period = Duration::from_micros(700);
        let ticker = Ticker::new(period);
        let mut last = None;
        for _ in 0..5 {
            let sent = ticker.channel().recv().unwrap();
            assert!(sent >= start + period && sent <= Instant::now());
            if let Some(last) = last {
                let between: Duration = sent - last;
                assert!(between >= period);
                // It keeps its rhythm.
                assert_eq!(between.as_nanos() % period.as_nanos(), 0);
            }
            last = Some(sent);
        }
        wait_until(|| ticker.channel().is_full());
        ticker.stop();
        assert_eq!(ticker.channel().try_recv(), Err(TryRecvError::Empty));
        let start = Instant::now();
        ticker.reset(MOMENT);
        assert!(ticker.channel().recv().unwrap() >= start + MOMENT);
    });
}

#[test]
fn who_is_late_gets_one_tick() {
    on_both(|| {
        let ticker = Ticker::new(Duration::from_millis(1));
        sleep(Duration::from_millis(6));
        let late = Instant::now();
        let first = ticker.channel().recv().unwrap();
        let second = ticker.channel().recv().unwrap();
        assert!(second - first >= Duration::from_millis(5));
        assert!(second > late);
    });
}

#[test]
fn periods_of_zero_are_refused() {
    for refused in [
        std::panic::catch_unwind(|| drop(Ticker::new(Duration::ZERO))),
        std::panic::catch_unwind(|| Ticker::new(FOREVER).reset(Duration::ZERO)),
    ] {
        assert!(util::panic_text(&*refused.unwrap_err()).contains("non-zero"));
    }
}

#[test]
fn a_million_timers_that_nobody_waits_for() {
    run(1, || {
        let timers: Vec<_> = (0..100_000).map(|_| Timer::new(MOMENT)).collect();
        for _ in 0..10 {
            for (i, timer) in timers.iter().enumerate() {
                if i % 100 != 0 {
                    timer.stop();
                } else {
                    timer.reset(MOMENT);
                }
            }
        }
        let n_sent = timers
            .iter()
            .step_by(100)
            .filter(|t| t.channel().recv().is_ok())
            .count();
        assert_eq!(n_sent, 1000);
        assert!(timers.iter().all(|t| t.channel().is_empty()));
    });
}

#[test]
fn timers_outlive_their_runtime() {
    let _guard = hang_guard();
    let timer = Timer::new(FOREVER);
    let channel = timer.channel().clone();
    let waiting = runtime(2).run(|| {
        let begun = Arc::new(AtomicBool::new(false));
        let says = Arc::clone(&begun);
        let waiting = spawn({
            let channel = channel.clone();
            move || {
                says.store(true, Ordering::SeqCst);
                channel.recv()
            }
        });
        wait_until(|| begun.load(Ordering::SeqCst));
        sleep(MOMENT);
        waiting
    });
    assert!(waiting.join().is_err());
    timer.reset(Duration::ZERO);
    assert!(channel.recv().is_ok());
    drop(timer);
    assert_eq!(channel.try_recv(), Err(TryRecvError::Empty));
}

/// Everything in a channel that a context ends.
fn channel_waits() -> Vec<fn()> {
    vec![
        || {
            let (_sender, receiver) = unbounded::<u32>();
            assert_eq!(receiver.recv(), Err(RecvError));
        },
        || {
            let (_sender, receiver) = bounded::<u32>(0);
            let r = receiver.recv_timeout(FOREVER);
            assert_eq!(r, Err(RecvTimeoutError::Timeout));
        },
        || {
            let (_sender, receiver) = bounded::<u32>(3);
            assert_eq!(receiver.iter().count(), 0);
        },
        || {
            let (sender, _receiver) = bounded(0);
            assert_eq!(sender.send("kept"), Err(SendError("kept")));
        },
        || {
            let (sender, receiver) = bounded(1);
            sender.send("first").unwrap();
            let r = sender.send_timeout("kept", FOREVER);
            assert_eq!(r, Err(SendTimeoutError::Timeout("kept")));
            assert_eq!(receiver.try_recv(), Ok("first"));
            assert!(receiver.is_empty());
        },
        || assert_eq!(never::<u32>().recv(), Err(RecvError)),
        || assert_eq!(after(FOREVER).recv(), Err(RecvError)),
        || assert_eq!(tick(FOREVER).recv(), Err(RecvError)),
        || assert_eq!(Timer::new(FOREVER).channel().recv(), Err(RecvError)),
        || {
            let r = Timer::new(FOREVER).channel().recv_timeout(FOREVER);
            assert_eq!(r, Err(RecvTimeoutError::Timeout));
        },
        || {
            let other = Context::background().with_timeout(FOREVER);
            assert_eq!(other.done().recv(), Err(RecvError));
        },
    ]
}

#[test]
fn a_context_ends_waits_in_channels() {
    run(2, || {
        let (ctx, canceller) = Context::background().with_cancel();
        let n_begun = Arc::new(AtomicUsize::new(0));
        let all: Vec<_> = channel_waits()
            .into_iter()
            .map(|wait| {
                let (ctx, n_begun) = (ctx.clone(), Arc::clone(&n_begun));
                spawn(move || {
                    ctx.run(|| {
                        n_begun.fetch_add(1, Ordering::SeqCst);
                        wait();
                    });
                })
            })
            .collect();
        wait_until(|| n_begun.load(Ordering::SeqCst) == all.len());
        sleep(MOMENT);
        assert!(all.iter().all(|j| !j.is_finished()));
        canceller.cancel();
        all.into_iter().for_each(|j| j.join().unwrap());
    });
    on_both(|| {
        for wait in channel_waits() {
            assert_eq!(timeout(MOMENT, wait), Err(Elapsed::default()));
            let (ctx, canceller) = Context::background().with_cancel();
            drop(canceller);
            ctx.run(wait);
        }
    });
}

#[test]
fn what_is_there_is_still_received() {
    on_both(|| {
        let late = Context::background().with_timeout(Duration::ZERO);
        late.run(|| {
            let (sender, receiver) = bounded(2);
            sender.send(1).unwrap();
            assert_eq!(receiver.recv(), Ok(1));
            assert_eq!(receiver.recv(), Err(RecvError));
        });
    });
}

#[test]
fn no_message_is_lost_or_doubled_by_cancels() {
    const N: usize = 3000;
    run(4, || {
        for capacity in [0, 1, 5] {
            let (sender, receiver) = bounded(capacity);
            let producer = spawn(move || {
                for i in 0..N {
                    let mut msg = i;
                    loop {
                        let ctx = Context::background()
                            .with_timeout(Duration::from_micros(i as u64 % 30));
                        match ctx.run(|| sender.send(msg)) {
                            Ok(()) => break,
                            Err(SendError(back)) => msg = back,
                        }
                    }
                }
            });
            let consumers: Vec<_> = (0..2)
                .map(|c| {
                    let receiver = receiver.clone();
                    spawn(move || {
                        let (mut got, mut n_tries) = (Vec::new(), c);
                        loop {
                            let (ctx, canceller) = Context::background().with_cancel();
                            let cancels = spawn(move || {
                                yield_now();
                                drop(canceller);
                            });
                            match ctx.run(|| receiver.recv()) {
                                Ok(i) => got.push(i),
                                Err(_) if ctx.err().is_none() => return got,
                                Err(_) => {}
                            }
                            cancels.join().unwrap();
                            n_tries += 1;
                            if receiver.is_empty() && n_tries % 50 == 0 {
                                sleep(Duration::from_micros(5));
                            }
                            if let Err(TryRecvError::Disconnected) =
                                receiver.try_recv().map(|i| got.push(i))
                            {
                                return got;
                            }
                        }
                    })
                })
                .collect();
            producer.join().unwrap();
            let mut all: Vec<usize> = consumers
                .into_iter()
                .flat_map(|j| j.join().unwrap())
                .collect();
            all.sort_unstable();
            assert!(all.iter().copied().eq(0..N), "of {N}: {}", all.len());
        }
    });
}

#[test]
fn done_in_a_select() {
    on_both(|| {
        let (_sender, receiver) = unbounded::<u32>();
        let (ctx, canceller) = Context::background().with_cancel();
        select! {
            recv(ctx.done()) -> _ => panic!("it is not done"),
            default => {}
        }
        let cancels = std::thread::spawn(move || {
            std::thread::sleep(MOMENT);
            canceller.cancel();
        });
        select! {
            recv(ctx.done()) -> r => assert_eq!(r.unwrap_err(), RecvError),
            recv(receiver) -> _ => panic!("nobody sends"),
        }
        assert_eq!(ctx.err(), Some(Error::Cancelled));
        cancels.join().unwrap();
        let late = Context::background().with_timeout(MOMENT);
        select! {
            recv(late.done()) -> _ => {}
            recv(receiver) -> _ => panic!("nobody sends"),
        }
        assert_eq!(late.err(), Some(Error::DeadlineExceeded));
        assert!(late.done().same_channel(late.clone().done()));
        select! {
            recv(Context::background().done()) -> _ => panic!("never"),
            default(MOMENT) => {}
        }
    });
}

#[test]
fn done_races_with_cancel() {
    run(4, || {
        for _ in 0..500 {
            let (ctx, canceller) = Context::background().with_cancel();
            let child = ctx.with_timeout(FOREVER);
            let waits = [ctx, child].map(|ctx| spawn(move || ctx.done().recv()));
            let cancels = spawn(move || canceller.cancel());
            for join in waits {
                assert_eq!(join.join().unwrap().unwrap_err(), RecvError);
            }
            cancels.join().unwrap();
        }
    });
}

#[test]
fn a_select_is_not_ended_by_the_ambient_context() {
    run(2, || {
        let (sender, receiver) = bounded(0);
        let late = Context::background().with_timeout(Duration::ZERO);
        let selects = spawn({
            let late = late.clone();
            move || {
                late.run(|| {
                    select! {
                        recv(receiver) -> msg => msg.unwrap(),
                        recv(never::<u32>()) -> _ => unreachable!("nobody sends"),
                    }
                })
            }
        });
        sleep(MOMENT);
        assert!(!selects.is_finished());
        sender.send(7).unwrap();
        assert_eq!(selects.join().unwrap(), 7);
        let r = late.run(|| Select::new().select_timeout(MOMENT).is_err());
        assert!(r);
    });
}

/// A receiver that waits for a tick has not taken it: if a context ends the wait, the tick comes to
/// the next receiver, and to another one that waits already.
#[test]
fn a_tick_is_not_lost_when_a_wait_for_it_is_cut_short() {
    const PERIOD: Duration = Duration::from_millis(300);
    fn cut(ticks: &Receiver<Instant>, after: Duration) -> Option<Instant> {
        timeout(after, || ticks.recv().ok()).ok().flatten()
    }
    run(2, || {
        for others_wait in [false, true] {
            let before = Instant::now();
            let ticks = tick(PERIOD);
            let first = before + PERIOD..=Instant::now() + PERIOD;
            let clone = ticks.clone();
            let waits = spawn(move || cut(&clone, 10 * MOMENT));
            if others_wait {
                sleep(MOMENT);
                let given = ticks.recv().unwrap();
                // A machine that stalls for long may let the tick through.
                let given = waits.join().unwrap().unwrap_or(given);
                assert!(first.contains(&given), "{given:?} in {first:?}");
            } else {
                let given = waits.join().unwrap();
                let given = given.unwrap_or_else(|| ticks.recv().unwrap());
                assert!(first.contains(&given), "{given:?} in {first:?}");
            }
        }
    });
}

#[cfg(feature = "sim")]
crate::inside::tests! {
    a_timer_sends_once,
    nothing_stale_comes_after_stop_or_reset,
    nothing_stale_comes_while_others_receive / 5,
    a_reset_reaches_those_who_wait: "it uses threads",
    a_reset_does_not_wait_for_those_who_wait: "it uses threads",
    a_reset_reaches_selects,
    a_timer_in_a_select,
    a_ticker_ticks,
    who_is_late_gets_one_tick,
    periods_of_zero_are_refused,
    a_million_timers_that_nobody_waits_for: "it takes too many steps",
    timers_outlive_their_runtime: "it ends a run of its own",
    a_context_ends_waits_in_channels,
    what_is_there_is_still_received,
    no_message_is_lost_or_doubled_by_cancels: "a wait of no time, tried again in a loop, takes too many steps",
    done_in_a_select: "it uses threads",
    done_races_with_cancel / 2,
    a_select_is_not_ended_by_the_ambient_context,
    a_tick_is_not_lost_when_a_wait_for_it_is_cut_short,
}

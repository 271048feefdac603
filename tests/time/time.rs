//! Timeouts, intervals, sleeping until an instant.
#![allow(clippy::disallowed_methods, reason = "plain threads take part")]

use std::io::{self, ErrorKind, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::util;
use crate::util::{hang_guard, pair, run};
use windlass::context::Context;
use windlass::time::{
    Duration, Elapsed, Instant, MissedTickBehavior, interval, interval_at, sleep, sleep_until,
    timeout, timeout_at,
};
use windlass::{channel, spawn, task};

const FOREVER: Duration = Duration::from_secs(1 << 30);
const MOMENT: Duration = Duration::from_millis(2);

/// Runs a test on a goroutine and on a plain thread.
fn on_both(test: impl Fn() + Send + Sync) {
    run(2, &test);
    let _guard = hang_guard();
    test();
}

#[test]
fn sleep_until_an_instant() {
    on_both(|| {
        for d in [Duration::ZERO, Duration::from_micros(50), MOMENT] {
            let until = Instant::now() + d;
            sleep_until(until);
            assert!(Instant::now() >= until);
        }
        if let Some(past) = Instant::now().checked_sub(MOMENT) {
            sleep_until(past);
        }
    });
}

#[test]
fn what_is_quick_gives_its_value() {
    on_both(|| {
        assert_eq!(timeout(FOREVER, || 7), Ok(7));
        assert_eq!(timeout(Duration::MAX, || sleep(MOMENT)), Ok(()));
        // It waits for nothing, so nothing is cut short.
        assert_eq!(timeout(Duration::ZERO, || 7), Ok(7));
        assert_eq!(timeout_at(Instant::now() + FOREVER, || 7), Ok(7));
    });
}

#[test]
fn what_is_slow_is_cut_short() {
    on_both(|| {
        let start = Instant::now();
        assert_eq!(timeout(MOMENT, || sleep(FOREVER)), Err(Elapsed::default()));
        assert!(start.elapsed() >= MOMENT);
        assert_eq!(
            timeout_at(start, || sleep(FOREVER))
                .unwrap_err()
                .to_string(),
            "deadline has elapsed"
        );
        let e = io::Error::from(Elapsed::default());
        assert_eq!(e.kind(), ErrorKind::TimedOut);
    });
}

#[test]
fn socket_calls_give_timed_out() {
    on_both(|| {
        let (mut a, _b) = pair();
        let mut kind = None;
        let r = timeout(MOMENT, || {
            kind = a.read(&mut [0; 5]).map_err(|e| e.kind()).err();
            let again = a.read_exact(&mut [0; 5]).unwrap_err();
            assert_eq!(again.kind(), ErrorKind::TimedOut);
        });
        assert_eq!(r, Err(Elapsed::default()));
        assert_eq!(kind, Some(ErrorKind::TimedOut));
        // Afterwards the socket is as before.
        a.set_read_timeout(Some(MOMENT)).unwrap();
        assert_eq!(
            a.read(&mut [0; 5]).unwrap_err().kind(),
            ErrorKind::WouldBlock
        );
    });
}

#[test]
fn a_stream_that_never_waits_is_cut_short_too() {
    run(2, || {
        let (mut a, mut b) = pair();
        let drain = spawn(move || io::copy(&mut b, &mut io::sink()).unwrap());
        let r = timeout(MOMENT, || {
            loop {
                if let Err(e) = a.write(&[0; 100]) {
                    return e.kind();
                }
            }
        });
        assert_eq!(r, Err(Elapsed::default()));
        drop(a);
        assert!(drain.join().unwrap() > 0);
    });
}

#[test]
fn a_result_is_not_lost_for_being_late() {
    on_both(|| {
        let late = timeout(Duration::from_micros(10), || {
            let start = Instant::now();
            while start.elapsed() < Duration::from_micros(500) {
                std::hint::spin_loop();
            }
            7
        });
        assert_eq!(late, Ok(7));
    });
}

#[test]
fn timeouts_nest() {
    on_both(|| {
        let inner_first = timeout(FOREVER, || timeout(MOMENT, || sleep(FOREVER)));
        assert_eq!(inner_first, Ok(Err(Elapsed::default())));
        let outer_first = timeout(MOMENT, || timeout(FOREVER, || sleep(FOREVER)));
        assert_eq!(outer_first, Err(Elapsed::default()));
        let after = timeout(FOREVER, || {
            let _ = timeout(MOMENT, || sleep(FOREVER));
            let start = Instant::now();
            sleep(MOMENT);
            start.elapsed() >= MOMENT
        });
        assert_eq!(after, Ok(true));
    });
}

#[test]
fn a_panic_comes_through() {
    on_both(|| {
        let r = catch_unwind(AssertUnwindSafe(|| {
            timeout(FOREVER, || std::panic::resume_unwind(Box::new(5)))
        }));
        let payload = r.map(|_: Result<(), _>| ()).unwrap_err();
        assert_eq!(payload.downcast_ref(), Some(&5));
        sleep(MOMENT);
    });
}

#[test]
fn join_timeout_gives_the_handle_back() {
    run(2, || {
        let join = spawn(|| {
            task::park();
            "done"
        });
        let mut join = join.join_timeout(Duration::ZERO).unwrap_err();
        for _ in 0..5 {
            join = join.join_timeout(Duration::from_micros(300)).unwrap_err();
        }
        let join = timeout(MOMENT, || join.join_timeout(FOREVER).unwrap_err());
        assert_eq!(join.map(drop), Err(Elapsed::default()));

        let join = spawn(|| 7);
        assert_eq!(join.join_timeout(FOREVER).unwrap().unwrap(), 7);
        let join = spawn(|| std::panic::resume_unwind(Box::new(8)));
        let outcome: task::Result<()> = join.join_timeout(FOREVER).unwrap();
        assert_eq!(outcome.unwrap_err().downcast_ref(), Some(&8));
        windlass::scope(|s| {
            let join = s.spawn(task::park);
            let join = join.join_timeout(MOMENT).unwrap_err();
            join.task().unpark();
            join.join_timeout(FOREVER).unwrap().unwrap();
        });
    });
}

#[test]
fn join_timeout_races_with_the_end() {
    run(4, || {
        let mut n_back = 0;
        for i in 0..3000_u64 {
            let mut join = spawn(move || {
                sleep(Duration::from_micros(i % 50));
                i
            });
            loop {
                match join.join_timeout(Duration::from_micros(i % 43)) {
                    Ok(value) => break assert_eq!(value.unwrap(), i),
                    Err(handle) => join = handle,
                }
                n_back += 1;
            }
        }
        assert!(n_back > 0);
    });
}

#[test]
fn join_timeout_on_a_plain_thread() {
    let _guard = hang_guard();
    let (to_thread, from_main) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        let join: task::JoinHandle<u32> = from_main.recv().unwrap();
        let mut join = join.join_timeout(MOMENT).unwrap_err();
        join.task().unpark();
        loop {
            match join.join_timeout(Duration::from_micros(20)) {
                Ok(value) => return value.unwrap(),
                Err(handle) => join = handle,
            }
        }
    });
    util::runtime(2).run(move || {
        let join = spawn(|| {
            task::park();
            5
        });
        to_thread.send(join).unwrap();
        assert_eq!(windlass::offload(|| thread.join().unwrap()), 5);
    });
}

#[test]
fn an_interval_ticks() {
    on_both(|| {
        let period = Duration::from_micros(500);
        let start = Instant::now();
        let mut ticks = interval_at(start, period);
        for i in 0..5 {
            assert_eq!(ticks.tick(), start + i * period);
            assert!(Instant::now() >= start + i * period);
        }
        ticks.reset();
        assert!(ticks.tick() >= start + 5 * period);
        assert_eq!(ticks.period(), period);
    });
}

#[test]
fn missed_ticks_by_behavior() {
    on_both(|| {
        let period = Duration::from_millis(1);
        let of = |missed| {
            let start = Instant::now();
            let mut ticks = interval_at(start, period);
            ticks.set_missed_tick_behavior(missed);
            assert_eq!(ticks.missed_tick_behavior(), missed);
            sleep_until(start + 5 * period / 2);
            let given: Vec<_> = (0..4).map(|_| ticks.tick() - start).collect();
            (given, ticks)
        };
        let (burst, _) = of(MissedTickBehavior::Burst);
        assert_eq!(burst, [0, 1, 2, 3].map(|i| i * period));
        let (skip, _) = of(MissedTickBehavior::Skip);
        assert!(skip[1] >= 3 * period, "{skip:?}");
        assert!(skip.iter().all(|d| d.as_nanos() % period.as_nanos() == 0));
        let (delay, _) = of(MissedTickBehavior::Delay);
        assert!(delay[1] >= 7 * period / 2, "{delay:?}");
        assert!(delay.windows(2).skip(1).all(|w| w[1] - w[0] >= period));
        assert_eq!(
            interval(period).missed_tick_behavior(),
            MissedTickBehavior::Burst
        );
    });
}

#[test]
fn an_interval_cut_short_keeps_its_tick() {
    run(1, || {
        let start = Instant::now();
        let due = start + Duration::from_millis(100);
        let mut ticks = interval_at(due, MOMENT);
        let given = timeout(MOMENT, || ticks.tick());
        // A machine that stalls for long may let the tick through.
        assert_eq!(given.unwrap_or_else(|_: Elapsed| ticks.tick()), due);
        assert!(Instant::now() >= due);
    });
}

#[test]
fn a_period_of_zero_is_refused() {
    let r = catch_unwind(|| interval(Duration::ZERO));
    assert!(util::panic_text(&*r.unwrap_err()).contains("non-zero"));
}

#[test]
fn a_deadline_is_of_either_type_and_what_is_returned_of_ours() {
    fn taken_by_all(at: impl Into<std::time::Instant> + Copy) {
        let (_s, r) = channel::bounded::<u8>(1);
        assert!(r.recv_deadline(at).is_err());
        assert!(timeout_at(at, || channel::never::<u8>().recv()).is_err());
        sleep_until(at);
        let given: Instant = channel::at(at).recv().unwrap();
        let of_context: Option<Instant> = Context::background().with_deadline(at).deadline();
        assert_eq!(of_context, Some(given));
        assert_eq!(given, at.into());
        assert_eq!(given.duration_since(at.into()), Duration::ZERO);
    }
    on_both(|| {
        taken_by_all(Instant::now());
        taken_by_all(std::time::Instant::now());
        let (a, _b) = pair();
        a.set_read_deadline(Some(Instant::now()));
        a.set_read_deadline(Some(std::time::Instant::now().into()));
        assert_eq!(
            (&a).read(&mut [0]).unwrap_err().kind(),
            ErrorKind::WouldBlock
        );
        a.set_read_deadline(None);
    });
}

#[cfg(feature = "sim")]
crate::inside::tests! {
    sleep_until_an_instant,
    what_is_quick_gives_its_value,
    what_is_slow_is_cut_short,
    socket_calls_give_timed_out,
    a_stream_that_never_waits_is_cut_short_too: "goroutines that never wait take too many steps",
    a_result_is_not_lost_for_being_late: "it computes until time has passed",
    timeouts_nest,
    a_panic_comes_through,
    join_timeout_gives_the_handle_back,
    join_timeout_races_with_the_end: "it takes too many steps",
    join_timeout_on_a_plain_thread: "it uses threads",
    an_interval_ticks,
    missed_ticks_by_behavior,
    an_interval_cut_short_keeps_its_tick,
    a_period_of_zero_is_refused,
    a_deadline_is_of_either_type_and_what_is_returned_of_ours: "it takes times of the real clock",
}

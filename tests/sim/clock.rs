//! Virtual time: it moves when nothing can run, and then to the next timer.

use windlass::channel::{RecvError, TryRecvError, after, bounded, oneshot, tick, watch};
use windlass::context::Context;
use windlass::sim::{self, Sim};
use windlass::sync::{Arc, Condvar, Mutex};
use windlass::time::{
    Duration, Instant, SystemTime, UNIX_EPOCH, interval, sleep, sleep_until, timeout,
};

use crate::util::PROMISE;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

#[test]
fn a_day_takes_no_time() {
    let real = std::time::Instant::now();
    sim::check(PROMISE, || {
        let start = Instant::now();
        sleep(DAY);
        assert_eq!(start.elapsed(), DAY);
        sleep_until(start + 2 * DAY);
        assert_eq!(start.elapsed(), 2 * DAY);
        sleep_until(std::time::Instant::from(start) + 3 * DAY);
        assert_eq!(start.elapsed(), 3 * DAY);
    });
    assert!(real.elapsed() < DAY / 1000);
}

#[test]
fn time_stands_still_while_goroutines_run() {
    sim::check(PROMISE, || {
        let start = Instant::now();
        for _ in 0..100 {
            windlass::spawn(windlass::yield_now).join().unwrap();
        }
        assert_eq!(start.elapsed(), Duration::ZERO);
    });
}

#[test]
fn each_run_begins_in_the_year_2000() {
    sim::check(PROMISE, || {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        assert_eq!(since, Duration::from_secs(946_684_800));
        sleep(DAY);
        let later = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        assert_eq!(later - since, DAY);
    });
}

/// A wait that has ended in a run has also ended by the clocks after it, which are behind.
#[test]
fn what_is_over_in_a_run_is_over_after_it() {
    let kept = std::sync::Mutex::new(Vec::new());
    let run = Sim::new(PROMISE).seeds(1).run(|| {
        sleep(DAY);
        let (sender, receiver) = oneshot::<u8>();
        let (level, levels) = watch(0);
        let (ctx, canceller) = Context::background().with_cancel();
        let done = ctx.done().clone();
        assert!(!sender.is_closed() && levels.ready().try_recv() == Err(TryRecvError::Empty));
        drop((receiver, level, canceller));
        kept.lock().unwrap().push((sender, levels, done));
    });
    run.unwrap();
    let kept = kept.into_inner().unwrap();
    for (sender, levels, done) in &kept {
        assert!(sender.is_closed());
        sender.closed();
        assert_eq!(levels.ready().recv(), Err(RecvError));
        assert_eq!(done.try_recv(), Err(TryRecvError::Disconnected));
    }
    // In another run, whose clock begins anew.
    sim::check(PROMISE, || {
        let begin = Instant::now();
        for (sender, levels, done) in &kept {
            sender.closed();
            assert_eq!(levels.ready().recv(), Err(RecvError));
            assert_eq!(done.recv(), Err(RecvError));
        }
        assert_eq!(begin.elapsed(), Duration::ZERO);
    });
}

#[test]
fn the_report_has_the_time_that_passed() {
    let report = Sim::new(PROMISE).seeds(2).run(|| sleep(DAY)).unwrap();
    assert!(report.runs.iter().all(|run| run.elapsed == DAY));
}

#[test]
fn timeouts_tickers_and_contexts_follow() {
    sim::check(PROMISE, || {
        let start = Instant::now();
        let (_sender, never) = bounded::<()>(0);
        assert!(never.recv_timeout(DAY).is_err());
        assert_eq!(start.elapsed(), DAY);
        assert!(never.recv_deadline(start + 2 * DAY).is_err());
        assert_eq!(start.elapsed(), 2 * DAY);

        let at = after(DAY).recv().unwrap();
        assert_eq!(at - start, 3 * DAY);

        let hours = tick(DAY / 24);
        for _ in 0..24 {
            hours.recv().unwrap();
        }
        assert_eq!(start.elapsed(), 4 * DAY);

        let mut days = interval(DAY);
        days.tick();
        days.tick();
        assert_eq!(start.elapsed(), 5 * DAY);

        assert!(timeout(DAY, || never.recv()).is_err());
        assert_eq!(start.elapsed(), 6 * DAY);

        let context = Context::background().with_timeout(DAY);
        context.run(|| sleep(10 * DAY));
        assert_eq!(start.elapsed(), 7 * DAY);

        let (lock, condvar) = (Mutex::new(()), Condvar::new());
        let guard = lock.lock().unwrap();
        assert!(condvar.wait_timeout(guard, DAY).unwrap().1.timed_out());
        assert_eq!(start.elapsed(), 8 * DAY);
    });
}

/// A timer whose wait has ended for another reason does not move the clock.
#[test]
fn a_stale_timer_takes_no_time() {
    sim::check(PROMISE, || {
        let start = Instant::now();
        let (sender, receiver) = bounded(1);
        let other = windlass::spawn(move || receiver.recv_timeout(DAY));
        sim::settle();
        sender.send(1).unwrap();
        assert_eq!(other.join().unwrap(), Ok(1));
        sleep(Duration::from_secs(1));
        assert_eq!(start.elapsed(), Duration::from_secs(1));
    });
}

#[test]
fn timers_of_the_same_instant_come_in_both_orders() {
    let orders = Arc::new(std::sync::Mutex::new(std::collections::BTreeSet::new()));
    let seen = Arc::clone(&orders);
    sim::check(PROMISE, move || {
        let order = Arc::new(Mutex::new(Vec::new()));
        let sleepers = [1, 2].map(|n| {
            let order = Arc::clone(&order);
            windlass::spawn(move || {
                sleep_until(Instant::now() + DAY);
                order.lock().unwrap().push(n);
            })
        });
        sleepers
            .into_iter()
            .for_each(|sleeper| sleeper.join().unwrap());
        seen.lock().unwrap().insert(order.lock().unwrap().clone());
    });
    assert_eq!(orders.lock().unwrap().len(), 2);
}

#[test]
fn plain_clocks_are_real_outside() {
    sim::check(PROMISE, || sleep(DAY));
    assert!(!sim::is_simulated());
    let since_2020 = SystemTime::now() > UNIX_EPOCH + 18_000 * DAY;
    assert!(since_2020);
    let start = Instant::now();
    sleep(Duration::from_millis(5));
    assert!((Duration::from_millis(5)..DAY).contains(&start.elapsed()));
}

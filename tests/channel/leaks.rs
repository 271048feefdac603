//! Every value that is sent is dropped exactly once, whatever becomes of the channel and of
//! those who wait in it: goroutines and plain threads, cut short, late, or left alone.
#![allow(clippy::disallowed_methods, reason = "plain threads take part")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::util::{Census, Member, hang_guard, run, wait_until};
use windlass::channel::{Receiver, Select, Sender, bounded, select, unbounded};
use windlass::context::{Canceller, Context};
use windlass::task::JoinHandle;
use windlass::{spawn, yield_now};

const MOMENT: Duration = Duration::from_millis(2);

/// Capacities that behave differently: rendezvous, one place, some, no limit.
fn channels<T>() -> [(Sender<T>, Receiver<T>); 4] {
    [bounded(0), bounded(1), bounded(3), unbounded()]
}

/// A goroutine or a thread.
enum Job {
    Goroutine(JoinHandle<()>),
    Thread(thread::JoinHandle<()>),
}

impl Job {
    /// Goroutines and threads in turn.
    fn start(i: usize, f: impl FnOnce() + Send + 'static) -> Job {
        match i % 2 {
            0 => Job::Goroutine(spawn(f)),
            _ => Job::Thread(thread::spawn(f)),
        }
    }

    fn join(self) {
        match self {
            Job::Goroutine(job) => job.join().unwrap(),
            Job::Thread(job) => windlass::offload(|| job.join().unwrap()),
        }
    }
}

/// The sender: each way to wait with a message, which comes back if it is not taken.
const SENDERS: [fn(&Sender<Member>, Member); 4] = [
    |s, member| drop(s.send(member)),
    |s, member| drop(s.send_timeout(member, Duration::from_secs(1000))),
    |s, member| {
        let (_never, never) = bounded::<()>(0);
        select! {
            send(s, member) -> sent => drop(sent),
            recv(never) -> _ => unreachable!("nobody sends"),
        }
    },
    |s, member| {
        let mut list = Select::new();
        list.send(s);
        let chosen = list.select();
        drop(chosen.send(s, member));
    },
];

#[test]
fn a_channel_that_loses_its_receivers_gives_back_what_waits() {
    let census = Census::default();
    run(2, || {
        for pause in [Duration::ZERO, MOMENT] {
            for (s, r) in channels() {
                let jobs: Vec<_> = (0..16)
                    .map(|i| {
                        let (s, member) = (s.clone(), census.member());
                        Job::start(i / 4, move || SENDERS[i % 4](&s, member))
                    })
                    .collect();
                windlass::sleep(pause);
                drop(r);
                jobs.into_iter().for_each(Job::join);
                drop(s);
                assert_eq!(census.made(), census.dropped());
            }
        }
    });
    census.assert_all_dropped(2 * 4 * 16);
}

#[test]
fn a_channel_that_loses_its_senders_hands_out_what_is_left() {
    let census = Census::default();
    run(2, || {
        for (s, r) in channels() {
            let n_got = Arc::new(AtomicUsize::new(0));
            let jobs: Vec<_> = (0..8)
                .map(|i| {
                    let (r, n_got) = (r.clone(), Arc::clone(&n_got));
                    Job::start(i, move || {
                        for member in &r {
                            n_got.fetch_add(1, Ordering::SeqCst);
                            drop(member);
                        }
                    })
                })
                .collect();
            drop(r);
            for _ in 0..50 {
                s.send(census.member()).unwrap();
            }
            drop(s);
            jobs.into_iter().for_each(Job::join);
            assert_eq!(n_got.load(Ordering::SeqCst), 50);
        }
    });
    census.assert_all_dropped(200);
}

/// Contexts and deadlines cut senders and receivers short while they are served.
#[test]
fn a_waiter_that_is_cut_short_loses_no_value_and_takes_none_twice() {
    const EACH: usize = 200;
    let census = Census::default();
    let n_received = Arc::new(AtomicUsize::new(0));
    let n_returned = Arc::new(AtomicUsize::new(0));
    run(2, || {
        for (s, r) in [bounded(0), bounded(1), bounded(3)] {
            let place: Arc<Mutex<Vec<Canceller>>> = Arc::default();
            let over = Arc::new(AtomicBool::new(false));
            let storm = spawn({
                let (place, over) = (Arc::clone(&place), Arc::clone(&over));
                move || {
                    while !over.load(Ordering::SeqCst) {
                        let due = std::mem::take(&mut *place.lock().unwrap());
                        drop(due);
                        yield_now();
                    }
                }
            });
            let n_returned_before = n_returned.load(Ordering::SeqCst);
            let senders: Vec<_> = (0..4)
                .map(|i| {
                    let (s, place) = (s.clone(), Arc::clone(&place));
                    let (census, n_returned) = (census.clone(), Arc::clone(&n_returned));
                    Job::start(i, move || {
                        for n in 0..EACH {
                            let (ctx, canceller) = Context::background().with_cancel();
                            place.lock().unwrap().push(canceller);
                            let sent = ctx.run(|| match n % 2 {
                                0 => s.send(census.member()).map_err(|e| e.into_inner()),
                                _ => s
                                    .send_timeout(census.member(), Duration::from_micros(50))
                                    .map_err(|e| e.into_inner()),
                            });
                            n_returned.fetch_add(usize::from(sent.is_err()), Ordering::SeqCst);
                        }
                    })
                })
                .collect();
            // Without receivers a send is cut short sooner or later, however slow this machine is.
            while n_returned.load(Ordering::SeqCst) == n_returned_before {
                yield_now();
            }
            let receivers: Vec<_> = (0..4)
                .map(|i| {
                    let (r, place) = (r.clone(), Arc::clone(&place));
                    let n_received = Arc::clone(&n_received);
                    Job::start(i, move || {
                        loop {
                            let (ctx, canceller) = Context::background().with_cancel();
                            place.lock().unwrap().push(canceller);
                            match ctx.run(|| r.recv()) {
                                Ok(member) => {
                                    drop::<Member>(member);
                                    n_received.fetch_add(1, Ordering::SeqCst);
                                }
                                Err(_) if ctx.is_done() && !ends(&r, &n_received) => {}
                                Err(_) => break,
                            }
                        }
                    })
                })
                .collect();
            drop((s, r));
            senders.into_iter().for_each(Job::join);
            receivers.into_iter().for_each(Job::join);
            over.store(true, Ordering::SeqCst);
            storm.join().unwrap();
        }
    });
    let n = 3 * 4 * EACH;
    census.assert_all_dropped(n);
    let (received, returned) = (
        n_received.load(Ordering::SeqCst),
        n_returned.load(Ordering::SeqCst),
    );
    assert_eq!(received + returned, n);
    assert!(received > 0 && returned > 0, "{received} and {returned}");
}

/// Whether the senders are gone, out of reach of any context. What comes instead counts.
fn ends(r: &Receiver<Member>, n_received: &AtomicUsize) -> bool {
    match r.try_recv() {
        Ok(member) => {
            drop(member);
            n_received.fetch_add(1, Ordering::SeqCst);
            false
        }
        Err(e) => e.is_disconnected(),
    }
}

/// Sends another value to where somebody waits, when it is dropped.
struct Echo {
    _member: Member,
    to: Sender<Member>,
    census: Census,
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.to.send(self.census.member()).unwrap();
    }
}

/// The lock of the channel is not held while destructors run: these wait for a receiver.
#[test]
fn destructors_that_send_run_when_their_channel_goes() {
    let census = Census::default();
    run(2, || {
        for (s, r) in [bounded(1), bounded(3), unbounded()] {
            let (to, echoes) = bounded(0);
            let n_echoes = spawn(move || {
                let mut n = 0;
                for echo in echoes {
                    drop::<Member>(echo);
                    n += 1;
                }
                n
            });
            let waiting: Vec<_> = (0..6)
                .map(|i| {
                    let echo = Echo {
                        _member: census.member(),
                        to: to.clone(),
                        census: census.clone(),
                    };
                    let s = s.clone();
                    Job::start(i, move || drop(s.send(echo)))
                })
                .collect();
            drop(to);
            wait_until(|| s.is_full() || s.len() == 6);
            // Messages in the buffer, and messages of senders that wait.
            drop(r);
            waiting.into_iter().for_each(Job::join);
            assert_eq!(n_echoes.join().unwrap(), 6);
        }
    });
    census.assert_all_dropped(3 * 6 * 2);
}

/// Sends itself's successor into the channel that drops it, which refuses it.
struct Heir {
    _member: Member,
    to: Sender<Heir>,
    census: Census,
    generation: u32,
}

impl Drop for Heir {
    fn drop(&mut self) {
        if self.generation > 0 {
            let heir = Heir {
                _member: self.census.member(),
                to: self.to.clone(),
                census: self.census.clone(),
                generation: self.generation - 1,
            };
            // Refused, it is dropped here, and sends in its turn.
            drop(self.to.send(heir));
        }
    }
}

#[test]
fn destructors_that_send_to_the_channel_that_goes_are_refused() {
    let _guard = hang_guard();
    let census = Census::default();
    for (s, r) in [bounded(2), bounded(5), unbounded()] {
        for _ in 0..2 {
            let heir = Heir {
                _member: census.member(),
                to: s.clone(),
                census: census.clone(),
                generation: 3,
            };
            assert!(s.send(heir).is_ok());
        }
        drop(r);
        drop(s);
    }
    census.assert_all_dropped(3 * 2 * 4);
}

/// Panics when it is dropped, once it is told to.
struct Bomb {
    _member: Member,
    is_armed: Arc<AtomicBool>,
}

impl Drop for Bomb {
    fn drop(&mut self) {
        if self.is_armed.swap(false, Ordering::SeqCst) {
            panic!("on purpose");
        }
    }
}

/// The channel is usable after a destructor of a message has panicked, and no value is
/// dropped twice.
#[test]
fn a_destructor_that_panics_takes_no_value_along() {
    let _guard = hang_guard();
    for (s, r) in channels::<Bomb>().into_iter().skip(1) {
        let census = Census::default();
        let is_armed = Arc::new(AtomicBool::new(false));
        let bomb = || Bomb {
            _member: census.member(),
            is_armed: Arc::clone(&is_armed),
        };
        s.send(bomb()).unwrap();
        is_armed.store(true, Ordering::SeqCst);
        let dropped = catch_unwind(AssertUnwindSafe(|| drop(r.recv().unwrap())));
        assert!(dropped.is_err());
        s.send(bomb()).unwrap();
        is_armed.store(true, Ordering::SeqCst);
        assert!(catch_unwind(AssertUnwindSafe(|| drop(r))).is_err());
        // Nobody receives any more.
        assert!(s.send(bomb()).is_err());
        drop(s);
        census.assert_all_dropped(3);
    }
}

#[test]
fn the_end_of_a_run_drops_what_selects_and_deadlines_hold() {
    let census = Census::default();
    let channels = channels();
    run(2, || {
        let n_begun = Arc::new(AtomicUsize::new(0));
        for (s, _) in &channels {
            for (i, sends) in SENDERS.into_iter().cycle().take(12).enumerate() {
                let (s, member, n_begun) = (s.clone(), census.member(), Arc::clone(&n_begun));
                let ctx = match i / 4 {
                    0 => Context::background(),
                    _ => Context::background().with_timeout(Duration::from_secs(1000)),
                };
                spawn(move || {
                    n_begun.fetch_add(1, Ordering::SeqCst);
                    ctx.run(|| sends(&s, member));
                });
            }
        }
        wait_until(|| n_begun.load(Ordering::SeqCst) == 48);
        (0..20).for_each(|_| yield_now());
    });
    // The messages lie in the channels still.
    let n_left: usize = channels.iter().map(|(_, r)| r.len()).sum();
    assert_eq!(census.dropped(), 48 - n_left);
    drop(channels);
    census.assert_all_dropped(48);
}

#[cfg(feature = "sim")]
crate::inside::tests! {
    a_channel_that_loses_its_receivers_gives_back_what_waits: "it uses threads",
    a_channel_that_loses_its_senders_hands_out_what_is_left: "it uses threads",
    a_waiter_that_is_cut_short_loses_no_value_and_takes_none_twice: "it uses threads",
    destructors_that_send_run_when_their_channel_goes: "it uses threads",
    destructors_that_send_to_the_channel_that_goes_are_refused,
    a_destructor_that_panics_takes_no_value_along,
    the_end_of_a_run_drops_what_selects_and_deadlines_hold: "it ends a run of its own",
}

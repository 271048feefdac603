//! Results of others that the twin should reproduce: programs of plain threads, with the locks of those systems.
//!
//! `docs/SCALE.md` has the sources, and how far the twin is from each.

use std::sync::Arc;
use std::time::Duration;

use windlass::explore::charge;
use windlass::explore::facade::Builder;
use windlass::explore::sync_atomic::{AtomicU32, AtomicUsize, Ordering};
use windlass::explore::twin::{now_ns, simulate};
use windlass::explore::{futex_wait, futex_wake_one, spin_loop};

use crate::machines::{self, Model};

const NEVER: u64 = u64::MAX;

/// An atomic with a line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Line<T>(T);

/// Runs `f` in so many threads of the machine with 72 CPUs, which have slices of so many ns if given, and gives what
/// they return.
fn on_threads<T: Send + 'static>(
    n: usize,
    slice_ns: Option<u64>,
    f: impl Fn(usize) -> T + Send + Sync + 'static,
) -> Vec<T> {
    let model = model_1x72();
    let mut machine = model.machine(&model.topology());
    machine.prices.slice = slice_ns.map_or(machine.prices.slice, |ns| 1_000 * ns);
    let program = move || {
        let f = Arc::new(f);
        let start = |at| {
            let f = Arc::clone(&f);
            let thread = Builder::new().name(format!("thread {at}"));
            thread.spawn(move || f(at)).expect("it starts")
        };
        let all: Vec<_> = (0..n).map(start).collect();
        let ends = all.into_iter().map(|t| t.join().expect("it ends"));
        ends.collect()
    };
    simulate(machine, program).0
}

fn model_1x72() -> &'static Model {
    let is_it = |model: &&Model| model.name == "1x72";
    machines::ALL.iter().find(is_it).expect("it is there")
}

/// Waits until all threads are there, and gives the time.
fn meet(n_missing: &AtomicUsize) -> u64 {
    n_missing.fetch_sub(1, Ordering::AcqRel);
    while n_missing.load(Ordering::Acquire) > 0 {
        spin_loop();
    }
    now_ns()
}

/// Operations a second of threads that each return when they began and ended.
fn per_second(n_ops: u64, spans: &[(u64, u64)]) -> f64 {
    let begin_ns = spans.iter().map(|s| s.0).min().unwrap_or(0);
    let end_ns = spans.iter().map(|s| s.1).max().unwrap_or(1);
    n_ops as f64 * 1e9 / (end_ns - begin_ns) as f64
}

/// A lock that threads take and give back.
trait RawLock: Default + Send + Sync + 'static {
    fn lock(&self);
    fn unlock(&self);
}

const FREE: u32 = 0;
const LOCKED: u32 = 1;
const SLEEPING: u32 = 2;

/// Rounds of a waiter, and pauses in each, as Go has them.
const SPINS: usize = 4;
const PAUSES: usize = 30;

/// Go's `lock_futex.go`: every waiter spins, then sleeps, and each unlock of a lock with sleepers wakes one.
#[derive(Debug, Default)]
struct ThreeStates(Line<AtomicU32>);

impl RawLock for ThreeStates {
    fn lock(&self) {
        let word = &self.0.0;
        let mut mine = word.swap(LOCKED, Ordering::Acquire);
        if mine == FREE {
            return;
        }
        // A waiter that has slept keeps the mark, as others may sleep.
        loop {
            for _ in 0..SPINS {
                while word.load(Ordering::Relaxed) == FREE {
                    let taken =
                        word.compare_exchange(FREE, mine, Ordering::Acquire, Ordering::Relaxed);
                    if taken.is_ok() {
                        return;
                    }
                }
                (0..PAUSES).for_each(|_| spin_loop());
            }
            if word.swap(SLEEPING, Ordering::Acquire) == FREE {
                return;
            }
            mine = SLEEPING;
            futex_wait(word, SLEEPING, NEVER);
        }
    }

    fn unlock(&self) {
        if self.0.0.swap(FREE, Ordering::Release) == SLEEPING {
            futex_wake_one(&self.0.0);
        }
    }
}

const SPINNING: u32 = 0x100;
const SLEEPER: u32 = 0x1_0000;
/// So many unlocks beside a spinner wake one sleeper, so that none sleeps for ever.
const FAIR_EVERY: u32 = 16;

/// Go's `lock_spinbit.go` in short: one waiter spins, others sleep at once, and an unlock wakes nobody while one
/// spins.
#[derive(Debug, Default)]
struct OneSpinner {
    word: Line<AtomicU32>,
    /// Wakes that no sleeper has taken as yet.
    wakes: Line<AtomicU32>,
    /// Written by the holder.
    unlocks: Line<AtomicU32>,
}

impl OneSpinner {
    fn take(&self) -> bool {
        self.word.0.fetch_or(LOCKED, Ordering::Acquire) & LOCKED == 0
    }

    /// Spins as the one who may: `true` if it took the lock. It spins no longer then, either way.
    fn spin(&self) -> bool {
        let mut taken = false;
        for _ in 0..SPINS {
            taken = self.word.0.load(Ordering::Relaxed) & LOCKED == 0 && self.take();
            if taken {
                break;
            }
            (0..PAUSES).for_each(|_| spin_loop());
        }
        self.word.0.fetch_and(!SPINNING, Ordering::Relaxed);
        taken
    }

    /// Sleeps if there is somebody who will wake it: a holder, or a spinner that will hold the lock.
    fn sleep(&self) {
        let (ok, no) = (Ordering::AcqRel, Ordering::Relaxed);
        let with_me = |word: u32| (word & (LOCKED | SPINNING) != 0).then_some(word + SLEEPER);
        if self.word.0.fetch_update(ok, no, with_me).is_err() {
            return;
        }
        let takes_one = |n: u32| n.checked_sub(1);
        while self.wakes.0.fetch_update(ok, no, takes_one).is_err() {
            futex_wait(&self.wakes.0, 0, NEVER);
        }
    }
}

impl RawLock for OneSpinner {
    fn lock(&self) {
        while !self.take() {
            let seen = self.word.0.load(Ordering::Relaxed);
            let may_spin = seen & SPINNING == 0
                && self.word.0.fetch_or(SPINNING, Ordering::Relaxed) & SPINNING == 0;
            if may_spin && self.spin() {
                return;
            }
            self.sleep();
        }
    }

    fn unlock(&self) {
        let n = self.unlocks.0.load(Ordering::Relaxed).wrapping_add(1);
        self.unlocks.0.store(n, Ordering::Relaxed);
        if self.word.0.fetch_and(!LOCKED, Ordering::Release) < SLEEPER {
            return;
        }
        let is_fair = n.is_multiple_of(FAIR_EVERY);
        let without_one = |word: u32| {
            let wakes = word >= SLEEPER && (word & SPINNING == 0 || is_fair);
            wakes.then(|| word - SLEEPER)
        };
        let (ok, no) = (Ordering::AcqRel, Ordering::Relaxed);
        if self.word.0.fetch_update(ok, no, without_one).is_ok() {
            self.wakes.0.fetch_add(1, Ordering::Release);
            futex_wake_one(&self.wakes.0);
        }
    }
}

/// The kernel's queued spin lock: those who wait stand in a queue, each with a line of its own.
#[derive(Debug)]
struct QueuedSpin {
    /// The last in the queue, from 1; 0 if the lock is free.
    tail: Line<AtomicUsize>,
    places: Box<[Line<Place>]>,
}

#[derive(Debug, Default)]
struct Place {
    next: AtomicUsize,
    is_first: AtomicU32,
}

impl QueuedSpin {
    fn new(n_threads: usize) -> QueuedSpin {
        QueuedSpin {
            tail: Line::default(),
            places: (0..n_threads).map(|_| Line::default()).collect(),
        }
    }

    fn lock(&self, me: usize) {
        let place = &self.places[me].0;
        place.next.store(0, Ordering::Relaxed);
        place.is_first.store(0, Ordering::Relaxed);
        let before = self.tail.0.swap(me + 1, Ordering::AcqRel);
        if before > 0 {
            self.places[before - 1]
                .0
                .next
                .store(me + 1, Ordering::Release);
            while place.is_first.load(Ordering::Acquire) == 0 {
                spin_loop();
            }
        }
    }

    fn unlock(&self, me: usize) {
        let (ok, no) = (Ordering::AcqRel, Ordering::Relaxed);
        if self.tail.0.compare_exchange(me + 1, 0, ok, no).is_ok() {
            return;
        }
        let next = &self.places[me].0.next;
        while next.load(Ordering::Acquire) == 0 {
            spin_loop();
        }
        let heir = next.load(Ordering::Acquire) - 1;
        self.places[heir].0.is_first.store(1, Ordering::Release);
    }
}

/// How long threads take turns under one lock.
const SPAN_NS: u64 = 2_000_000;

/// What threads do in turn under one lock: acquisitions a second in millions, with so much work beside each.
fn under_one_lock<L: RawLock>(n_threads: usize, lines: usize, work: Duration) -> f64 {
    let lock = L::default();
    let guarded: Vec<Line<AtomicUsize>> = (0..lines).map(|_| Line::default()).collect();
    let missing = AtomicUsize::new(n_threads);
    let rounds = on_threads(n_threads, None, move |_| {
        let end_ns = meet(&missing) + SPAN_NS;
        // The clock is read at every 16th.
        let batches = (1..).take_while(|_| {
            for _ in 0..16 {
                turn(&lock, &guarded, work);
            }
            now_ns() < end_ns
        });
        16 * batches.count() as u64
    });
    rounds.into_iter().sum::<u64>() as f64 * 1e3 / SPAN_NS as f64
}

fn turn(lock: &impl RawLock, guarded: &[Line<AtomicUsize>], work: Duration) {
    lock.lock();
    for line in guarded {
        let n = line.0.load(Ordering::Relaxed);
        line.0.store(n + 1, Ordering::Relaxed);
    }
    lock.unlock();
    if !work.is_zero() {
        charge(work);
    }
}

/// Goroutines of 1 µs from one queue of the runtime, as in Go before 2012: head, tail and link of it are behind its
/// lock, which is taken to pop and to push. Millions of goroutines a second.
fn one_queue(n_threads: usize) -> f64 {
    under_one_lock::<ThreeStates>(n_threads, 3, Duration::from_nanos(500)) / 2.0
}

/// A loop of lock and unlock, as golang/go#68578 measures it. Millions a second.
fn contended<L: RawLock>(n_threads: usize) -> f64 {
    under_one_lock::<L>(n_threads, 1, Duration::ZERO)
}

const N_CPUS: usize = 72;

/// Linux' workqueues: 72 threads each queue an item, wake a worker, and wait for the item's end; a pool has a lock,
/// under which workers are woken, and the workers of its CPUs.
#[derive(Debug)]
struct Pool {
    lock: QueuedSpin,
    /// Numbers of threads whose item waits, as a ring: head and tail are in the lock's care.
    head: Line<AtomicUsize>,
    tail: Line<AtomicUsize>,
    items: Box<[AtomicUsize]>,
    /// Workers that sleep, the last to fall asleep last.
    n_idle: Line<AtomicUsize>,
    idle: Box<[AtomicUsize]>,
}

const IS_OVER: usize = usize::MAX;

impl Pool {
    fn new() -> Pool {
        let list = || (0..2 * N_CPUS).map(|_| AtomicUsize::new(0)).collect();
        Pool {
            lock: QueuedSpin::new(2 * N_CPUS),
            head: Line::default(),
            tail: Line::default(),
            items: list(),
            n_idle: Line::default(),
            idle: list(),
        }
    }

    fn push(&self, me: usize, item: usize, words: &[Line<AtomicU32>]) {
        let relaxed = Ordering::Relaxed;
        self.lock.lock(me);
        let tail = self.tail.0.load(relaxed);
        self.items[tail % self.items.len()].store(item, relaxed);
        self.tail.0.store(tail + 1, relaxed);
        let n_idle = self.n_idle.0.load(relaxed);
        if n_idle > 0 {
            self.n_idle.0.store(n_idle - 1, relaxed);
            wake(&words[self.idle[n_idle - 1].load(relaxed)].0);
        }
        self.lock.unlock(me);
    }

    /// The next item; sleeps while there is none.
    fn pop(&self, me: usize, word: &AtomicU32) -> usize {
        let relaxed = Ordering::Relaxed;
        loop {
            self.lock.lock(me);
            let head = self.head.0.load(relaxed);
            if head != self.tail.0.load(relaxed) {
                let item = self.items[head % self.items.len()].load(relaxed);
                self.head.0.store(head + 1, relaxed);
                self.lock.unlock(me);
                return item;
            }
            let n_idle = self.n_idle.0.load(relaxed);
            self.idle[n_idle].store(me, relaxed);
            self.n_idle.0.store(n_idle + 1, relaxed);
            word.store(0, Ordering::Release);
            self.lock.unlock(me);
            sleep(word);
        }
    }
}

fn sleep(word: &AtomicU32) {
    while word.load(Ordering::Acquire) == 0 {
        futex_wait(word, 0, NEVER);
    }
}

fn wake(word: &AtomicU32) {
    word.store(1, Ordering::Release);
    futex_wake_one(word);
}

/// Items a second in millions, and the median time in µs to queue one.
fn work_queue(n_shards: usize) -> (f64, f64) {
    const EACH: usize = 30;
    let pools: Vec<_> = (0..n_shards).map(|_| Pool::new()).collect();
    // Workers have the lower half, as they start first, threads that queue the upper.
    let words: Vec<Line<AtomicU32>> = (0..2 * N_CPUS).map(|_| Line::default()).collect();
    let missing = AtomicUsize::new(N_CPUS);
    let n_left = AtomicUsize::new(N_CPUS);
    // A thread that waits for a spin lock of the kernel keeps its CPU: time slices are longer than the run.
    let spans = on_threads(2 * N_CPUS, Some(1_000_000_000), move |me| {
        let pool = &pools[me % N_CPUS * n_shards / N_CPUS];
        let mut queued_ns = Vec::new();
        if me < N_CPUS {
            loop {
                match pool.pop(me, &words[me].0) {
                    IS_OVER => return (NEVER, 0, queued_ns),
                    item => wake(&words[item].0),
                }
            }
        }
        let begin_ns = meet(&missing);
        for _ in 0..EACH {
            words[me].0.store(0, Ordering::Relaxed);
            let before_ns = now_ns();
            pool.push(me, me, &words);
            queued_ns.push(now_ns() - before_ns);
            sleep(&words[me].0);
        }
        let end_ns = now_ns();
        if n_left.fetch_sub(1, Ordering::AcqRel) == 1 {
            let all = (0..N_CPUS).map(|cpu| &pools[cpu * n_shards / N_CPUS]);
            all.for_each(|pool| pool.push(me, IS_OVER, &words));
        }
        (begin_ns, end_ns, queued_ns)
    });
    let queuers: Vec<_> = spans.into_iter().filter(|s| s.0 != NEVER).collect();
    let times: Vec<_> = queuers.iter().map(|s| (s.0, s.1)).collect();
    let mut queued_ns: Vec<_> = queuers.into_iter().flat_map(|s| s.2).collect();
    queued_ns.sort_unstable();
    let median_us = queued_ns[queued_ns.len() / 2] as f64 / 1e3;
    (per_second((EACH * N_CPUS) as u64, &times) / 1e6, median_us)
}

/// Prints all of them, and says whether the first two came out. The third does not.
pub(crate) fn show() -> bool {
    println!("one queue under one lock, goroutines of 1 µs: M/s");
    let rates = [1, 2, 4, 8, 16, 72].map(|n| (n, one_queue(n)));
    rates
        .iter()
        .for_each(|(n, rate)| println!("  {n:>3} threads {rate:>8.3}"));
    let collapses = rates[5].1 < rates[0].1;
    println!("  72 threads are slower than one: {collapses}");

    println!("a workqueue's pools, 72 threads: M items/s, µs to queue one (median)");
    let [one, shards] = [1, 9].map(work_queue);
    println!("  1 pool  {:>8.3} {:>6.1}", one.0, one.1);
    println!("  9 pools {:>8.3} {:>6.1}", shards.0, shards.1);
    let shards_win = shards.0 > 3.0 * one.0 && 3.0 * shards.1 < one.1;
    println!("  nine pools are more than three times as good in both: {shards_win}");

    println!("one lock, nothing else: M/s with three states, and with one spinner");
    let locks =
        [1, 2, 4, 8, 20].map(|n| (n, contended::<ThreeStates>(n), contended::<OneSpinner>(n)));
    for (n, three, one) in &locks {
        println!("  {n:>3} threads {three:>8.3} {one:>8.3}");
    }
    collapses && shards_win
}

//! The controller: which thread holds the baton, what each thread waits for, and the time.
//!
//! Threads are numbered in the order in which they start. Only the thread that holds the baton uses
//! this state. The lock around it is never contended; it avoids unsafe code.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::clock::Clocks;
use super::fiber;
use super::kernel::{Kernel, Woken};
use super::ledger::Ledger;
use super::lines::{Access, Lines, Thefts, Use};
use super::log::{Log, What, end_with_finding};
use super::machine::{Machine, Prices};
use super::strategy::{Options, Pick, Recorded, Rng, Strategy};

/// A deadline that never comes.
pub(super) const NEVER: u64 = u64::MAX;

/// The time that a point costs.
const POINT_NS: u64 = 100;
/// The time of a pause in a loop that waits for another thread, if nobody else can run.
const SPIN_NS: u64 = 1_000;

/// When a schedule begins. Not 0, as code may take that for no time at all.
const BEGIN_NS: u64 = 1_000_000_000;

/// The reason why a thread waits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    /// Only for time.
    Time,
    /// A word in memory: futexes, conditions.
    Address(usize),
    /// One of `std`'s locks.
    Lock(usize),
    /// The end of a thread.
    End(usize),
    /// The token of `thread::park`.
    Park(usize),
    /// A completion, or a wake, in a ring.
    Ring(usize),
    /// Events of an epoll instance.
    Epoll(i32),
}

/// Without addresses, which are not the same in every run.
impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Key::Time => f.write_str("time"),
            Key::Address(_) => f.write_str("a word in memory"),
            Key::Lock(_) => f.write_str("a lock"),
            Key::End(id) => write!(f, "the end of t{id}"),
            Key::Park(_) => f.write_str("its token"),
            Key::Ring(ring) => write!(f, "ring {ring}"),
            Key::Epoll(_) => f.write_str("epoll"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Runnable,
    Waiting {
        key: Key,
        deadline_ns: u64,
        since: u64,
    },
    Ended,
}

#[derive(Debug)]
struct Thread {
    name: String,
    state: State,
    /// The last wait ended by a wake, not by its deadline.
    woken: bool,
    /// `thread::park` returns at once.
    token: bool,
    os: Option<std::thread::Thread>,
    /// Where it was seen last.
    at: &'static Location<'static>,
}

/// One schedule.
pub(super) struct Control {
    threads: Vec<Thread>,
    /// The threads that wait for each key, the one that has waited for longest first.
    waiters: BTreeMap<Key, Vec<usize>>,
    now_ns: u64,
    step: u64,
    max_steps: u64,
    strategy: Box<dyn Strategy>,
    recorded: Recorded,
    /// For what is no choice of the strategy: the order in which the kernel completes.
    pub(super) rng: Rng,
    pub(super) log: Log,
    pub(super) kernel: Kernel,
    pub(super) oracle: Ledger,
    /// Of the twin: threads have clocks of their own, and what they do has a price.
    pub(super) twin: Option<Twin>,
}

/// The state of a machine with prices.
#[derive(Debug)]
pub(super) struct Twin {
    pub(super) clocks: Clocks,
    pub(super) lines: Lines,
    pub(super) thefts: Thefts,
}

impl Twin {
    pub(super) fn prices(&self) -> Prices {
        self.clocks.machine.prices
    }
}

/// A schedule of the twin goes on.
static IS_TWIN: AtomicBool = AtomicBool::new(false);

pub(super) fn is_twin() -> bool {
    IS_TWIN.load(Ordering::Relaxed)
}

static CONTROL: Mutex<Option<Control>> = Mutex::new(None);

/// The holder of the baton.
static TURN: AtomicUsize = AtomicUsize::new(usize::MAX);

const NOBODY: usize = usize::MAX;

thread_local!(
    static ME: Cell<usize> = const { Cell::new(NOBODY) };
    /// The words that the runtime keeps for each thread.
    static LOCALS: Cell<[usize; fiber::N_LOCALS]> = const { Cell::new([0; fiber::N_LOCALS]) };
);

/// The word `slot` of the calling thread, 0 at first.
#[inline(never)]
pub fn local(slot: usize) -> usize {
    std::hint::black_box(());
    LOCALS.with(Cell::get)[slot]
}

/// Sets the word `slot` of the calling thread.
#[inline(never)]
pub fn set_local(slot: usize, value: usize) {
    let mut words = LOCALS.with(Cell::get);
    words[slot] = value;
    LOCALS.with(|cell| cell.set(words));
}

/// The thread of the host becomes thread `id` of the twin until that suspends itself.
pub(super) fn resume(id: usize) {
    ME.with(|me| me.set(id));
    fiber::resume(id, |words| LOCALS.with(|cell| cell.replace(words)));
    ME.with(|me| me.set(NOBODY));
}

/// The number of the calling thread. Read anew each time: goroutines go from thread to thread.
#[inline(never)]
pub(super) fn me() -> Option<usize> {
    std::hint::black_box(());
    ME.try_with(Cell::get).ok().filter(|&me| me != NOBODY)
}

fn lock() -> MutexGuard<'static, Option<Control>> {
    CONTROL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gives the controller to `f`.
pub(super) fn with<T>(f: impl FnOnce(&mut Control) -> T) -> T {
    f(lock().as_mut().expect("a schedule has begun"))
}

/// Begins a schedule, with the calling thread as its first.
#[track_caller]
pub(super) fn begin(strategy: Box<dyn Strategy>, seed: u64, max_steps: u64, loud: bool) {
    ME.with(|me| me.set(0));
    TURN.store(0, Ordering::SeqCst);
    prepare(strategy, seed, max_steps, loud, None);
    started(0, Some(std::thread::current()));
}

/// Begins a schedule of the twin. Its first thread is a fiber, which is not made yet.
#[track_caller]
pub(super) fn begin_twin(strategy: Box<dyn Strategy>, seed: u64, machine: Machine) {
    let twin = Twin {
        clocks: Clocks::new(machine),
        lines: Lines::default(),
        thefts: Thefts::default(),
    };
    prepare(strategy, seed, u64::MAX, false, Some(twin));
    IS_TWIN.store(true, Ordering::Relaxed);
    with(|c| c.kernel.serves_twin());
}

#[track_caller]
fn prepare(strategy: Box<dyn Strategy>, seed: u64, max_steps: u64, loud: bool, twin: Option<Twin>) {
    base();
    let mut rng = Rng::new(seed ^ 0xE4B1_0E37);
    let mut control = Control {
        threads: Vec::new(),
        waiters: BTreeMap::new(),
        now_ns: BEGIN_NS,
        step: 0,
        max_steps,
        strategy,
        recorded: Recorded::default(),
        log: Log::default(),
        kernel: Kernel::new(&mut rng),
        rng,
        oracle: Ledger::default(),
        twin,
    };
    control.log.loud = loud;
    control.add_thread("main".to_owned());
    *lock() = Some(control);
}

/// Ends it: gives the number of points, the hash of the log, and the choices.
pub(super) fn end() -> (u64, u64, String) {
    ME.with(|me| me.set(NOBODY));
    let control = lock().take().expect("a schedule has begun");
    let alive = control
        .threads
        .iter()
        .skip(1)
        .filter(|t| t.state != State::Ended)
        .map(|t| t.name.clone())
        .collect::<Vec<_>>();
    if !alive.is_empty() {
        control.fail(&format!("threads are left: {}", alive.join(", ")));
    }
    if let Some(why) = control.oracle.leak() {
        control.fail(&why);
    }
    if let Some(why) = control.kernel.leak() {
        control.fail(why);
    }
    (control.step, control.log.hash(), control.recorded.line())
}

impl Control {
    #[track_caller]
    fn add_thread(&mut self, name: String) -> usize {
        let id = self.threads.len();
        if id == 64 && self.twin.is_none() {
            self.fail("more than 64 threads were started");
        }
        // Not before `started` does anybody give it the baton.
        let state = State::Waiting {
            key: Key::Time,
            deadline_ns: NEVER,
            since: self.step,
        };
        self.threads.push(Thread {
            name,
            state,
            woken: false,
            token: false,
            os: None,
            at: Location::caller(),
        });
        let now_ps = self.now_ps();
        if let Some(twin) = &mut self.twin {
            twin.clocks.add(now_ps);
        }
        id
    }

    /// The time of the calling thread.
    fn now_ps(&self) -> u64 {
        match (&self.twin, me()) {
            (Some(twin), Some(me)) => twin.clocks.now_ps(me),
            _ => self.now_ns * 1_000,
        }
    }

    /// Counts and records a point of `me`.
    fn note(&mut self, me: usize, what: What, at: &'static Location<'static>) {
        self.step += 1;
        self.now_ns += POINT_NS;
        self.threads[me].at = at;
        self.log.add(self.step, me, what, at, self.now_ns);
        if self.step > self.max_steps {
            self.fail("the schedule does not end");
        }
    }

    fn runnable(&self) -> u64 {
        let bit = |(at, t): (usize, &Thread)| u64::from(t.state == State::Runnable) << at;
        self.threads.iter().enumerate().map(bit).sum()
    }

    fn next_deadline(&self) -> Option<u64> {
        let deadline = |t: &Thread| match t.state {
            State::Waiting { deadline_ns, .. } if deadline_ns != NEVER => Some(deadline_ns),
            _ => None,
        };
        self.threads.iter().filter_map(deadline).min()
    }

    fn wake_the_late(&mut self) {
        for id in 0..self.threads.len() {
            if let State::Waiting { deadline_ns, .. } = self.threads[id].state
                && deadline_ns <= self.now_ns
            {
                self.ends_wait(id, false);
            }
        }
    }

    /// The thread waits no longer: it was woken, or its deadline has come.
    pub(super) fn ends_wait(&mut self, id: usize, woken: bool) -> Option<Key> {
        let thread = &mut self.threads[id];
        let State::Waiting { key, .. } = thread.state else {
            return None;
        };
        thread.state = State::Runnable;
        thread.woken = woken;
        if let Some(waiters) = self.waiters.get_mut(&key) {
            waiters.retain(|&other| other != id);
            if waiters.is_empty() {
                self.waiters.remove(&key);
            }
        }
        Some(key)
    }

    /// Wakes up to `n` threads that wait for `key`, those first that wait for longest.
    pub(super) fn wake(&mut self, key: Key, n: usize) -> usize {
        let mut n_woken = 0;
        while n_woken < n {
            let Some(&first) = self.waiters.get(&key).and_then(|all| all.first()) else {
                break;
            };
            self.ends_wait(first, true);
            self.charge_wake(first, key);
            n_woken += 1;
        }
        n_woken
    }

    /// Of the twin: the caller pays for a wake, and the woken thread goes on when it has got a CPU.
    fn charge_wake(&mut self, woken: usize, key: Key) {
        let Some(twin) = &mut self.twin else { return };
        let prices = twin.prices();
        let (cost_ps, latency_ps) = match key {
            // As if it had waited in a loop: for sections that are short.
            Key::Lock(_) => (0, prices.transfer[1]),
            _ => (prices.wake, prices.wake_latency),
        };
        let now_ps = match me() {
            Some(me) => {
                twin.clocks.charge(me, cost_ps);
                twin.clocks.now_ps(me)
            }
            None => self.now_ns * 1_000,
        };
        twin.clocks.ready(woken, now_ps + latency_ps);
    }

    /// The next holder of the baton. `current` is at a point and can go on, or there is none.
    fn next(&mut self, current: Option<usize>, yields: bool) -> usize {
        loop {
            self.wake_the_late();
            let runnable = self.runnable();
            let deadline = self.next_deadline();
            if runnable == 0 {
                self.wait_for_the_world(deadline);
                continue;
            }
            if yields && runnable.count_ones() == 1 {
                self.now_ns += SPIN_NS;
            }
            let at = self.threads[current.unwrap_or(0)].at;
            let pick = self.strategy.pick(&Options {
                step: self.step,
                current,
                runnable,
                yields,
                has_sleepers: deadline.is_some(),
                has_operations: self.kernel.has_operations(),
                at,
            });
            self.recorded.add(self.step, current, pick);
            match pick {
                Pick::Thread(thread) => {
                    if current != Some(thread) {
                        let at = self.threads[thread].at;
                        self.log.add(self.step, thread, What::Turn, at, self.now_ns);
                    }
                    return thread;
                }
                Pick::Clock => self.jump(deadline),
                Pick::Kernel => {
                    self.run_kernel(false);
                }
            }
        }
    }

    /// Nobody can run: an operation completes, or time passes, or this is a deadlock.
    fn wait_for_the_world(&mut self, deadline: Option<u64>) {
        // An operation may take its time.
        let is_slow = deadline.is_some() && self.rng.one_in(8);
        if is_slow || !self.run_kernel(true) {
            if deadline.is_none() {
                self.fail("deadlock: every thread waits");
            }
            self.jump(deadline);
        }
    }

    #[track_caller]
    fn jump(&mut self, deadline: Option<u64>) {
        self.now_ns = self.now_ns.max(deadline.unwrap_or(0));
        let at = Location::caller();
        self.log.add(self.step, 63, What::Clock, at, self.now_ns);
        self.step += 1;
        if self.step > self.max_steps {
            self.fail("the schedule does not end");
        }
    }

    /// The kernel completes an operation, if there is one that can be; rightly if every thread
    /// waits.
    #[track_caller]
    fn run_kernel(&mut self, stalled: bool) -> bool {
        self.check_operations();
        let Some(woken) = self.kernel.complete_one(&mut self.rng, stalled) else {
            return false;
        };
        // Descriptors are not the same in every run.
        let (number, key) = match woken {
            Woken::Ring(ring) => (ring, Key::Ring(ring)),
            Woken::Epoll(epfd) => (62, Key::Epoll(epfd)),
        };
        let at = Location::caller();
        self.log
            .add(self.step, number, What::Kernel, at, self.now_ns);
        self.wake(key, 1);
        true
    }

    /// Each operation in a ring has the frame still, or the armed request, that it is named after.
    pub(super) fn check_operations(&self) {
        if self.twin.is_none() && self.kernel.has_orphan(|at| self.oracle.number_of(at)) {
            self.fail("an operation is in a ring whose frame is gone");
        }
    }

    /// Reports a finding, and ends the process.
    pub(super) fn fail(&self, why: &str) -> ! {
        let mut text = format!("finding: {why}\n");
        text += "last points:\n";
        text += &self.log.tail();
        text += "threads:\n";
        for (at, thread) in self.threads.iter().enumerate() {
            text += &format!(
                "  t{at} {:<24} {:?} at {}:{}\n",
                thread.name,
                thread.state,
                thread.at.file(),
                thread.at.line()
            );
        }
        text += &self.oracle.describe();
        text += &format!("schedule: {}\n", self.recorded.line());
        text += &format!(
            "failed: at point {}, hash {:016x}: {why}\n",
            self.step,
            self.log.hash()
        );
        text += &format!("finding: {why}\n");
        end_with_finding(&text)
    }
}

fn base() -> Instant {
    static BASE: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    *BASE.get_or_init(Instant::now)
}

/// Hands the baton from `me` to `next`, and waits until it comes back.
fn switch(me: usize, next: usize) {
    if me != next {
        give(next);
        wait_for_turn(me);
    }
}

fn give(next: usize) {
    let os = with(|c| c.threads[next].os.clone()).expect("it was told of its thread");
    TURN.store(next, Ordering::SeqCst);
    os.unpark();
}

fn wait_for_turn(me: usize) {
    while TURN.load(Ordering::SeqCst) != me {
        std::thread::park();
    }
}

/// A point: the calling thread is about to do something that others may see.
#[track_caller]
#[inline]
pub(super) fn point(what: What) {
    if let Some(me) = me() {
        point_of(me, what, Location::caller(), false);
    }
}

/// A point before an access to memory.
#[track_caller]
#[inline]
pub(super) fn point_at(what: What, how: Use, address: usize) {
    let Some(me) = me() else { return };
    let at = Location::caller();
    if is_twin() {
        wait_for_time(me, what, at);
        with(|c| c.charge_access(me, how, address, at));
    } else {
        point_of(me, what, at, false);
    }
}

/// A point of the twin: the calling thread goes on when no other's clock is behind its own.
fn wait_for_time(me: usize, what: What, at: &'static Location<'static>) {
    with(|c| c.note(me, what, at));
    // A count of panics that is not zero is this thread's of the host, so others must not run.
    let gives_way = || !std::thread::panicking() && with(|c| c.gives_way(me));
    while gives_way() {
        fiber::suspend(me);
    }
}

impl Control {
    fn gives_way(&mut self, me: usize) -> bool {
        self.twin
            .as_mut()
            .is_some_and(|twin| twin.clocks.gives_way(me))
    }

    fn charge_access(
        &mut self,
        me: usize,
        how: Use,
        address: usize,
        place: &'static Location<'static>,
    ) {
        let Some(Twin { clocks, lines, .. }) = &mut self.twin else {
            return;
        };
        clocks.charge(me, clocks.machine.prices.between);
        if how == Use::Rmw {
            clocks.drain(me);
        }
        let access = Access {
            cpu: clocks.cpu(me),
            address,
            how,
            at_ps: clocks.now_ps(me),
            place,
        };
        let done = lines.access(&clocks.machine, &access);
        clocks.goes_on_at(me, done.thread_ps);
        clocks.stores_until(me, done.line_ps);
    }

    /// Of the twin: the names of the threads, and for how many nanoseconds each has had a CPU.
    pub(super) fn cpu_times(&mut self) -> Vec<(String, u64)> {
        let Some(twin) = &self.twin else {
            return Vec::new();
        };
        let ran_ns = |id| twin.clocks.ran_ps(id) / 1_000;
        let threads = self.threads.iter().enumerate();
        threads
            .map(|(id, t)| (t.name.clone(), ran_ns(id)))
            .collect()
    }

    /// What a point costs that is no access to memory.
    fn charge_point(&mut self, me: usize, what: What) {
        let Some(Twin { clocks, .. }) = &mut self.twin else {
            return;
        };
        let prices = clocks.machine.prices;
        clocks.drain(me);
        clocks.charge(
            me,
            match what {
                What::Fence => prices.rmw,
                What::Spin => prices.pause,
                What::Start => prices.start,
                What::Wait | What::Wake | What::Ring | What::Call | What::Barrier => prices.syscall,
                _ => prices.between,
            },
        );
    }

    fn sleep_in_twin(&mut self, me: usize) {
        let state = self.threads[me].state;
        let Some(twin) = &mut self.twin else { return };
        match state {
            State::Waiting {
                key, deadline_ns, ..
            } => {
                if !matches!(key, Key::Lock(_)) {
                    twin.clocks.charge(me, twin.clocks.machine.prices.sleep);
                }
                twin.clocks.sleep(me, deadline_ns.saturating_mul(1_000));
            }
            State::Runnable | State::Ended => twin.clocks.end(me),
        }
    }

    /// The clock of the twin moves on, and says who goes on. Nobody, if `first` is over.
    pub(super) fn next_of_twin(&mut self) -> Option<usize> {
        loop {
            if self.threads[0].state == State::Ended {
                return None;
            }
            let next = self.twin.as_mut().and_then(|twin| twin.clocks.next());
            let Some((at_ps, id)) = next else {
                if !self.run_kernel(true) {
                    self.fail("deadlock: every thread waits");
                }
                continue;
            };
            self.now_ns = at_ps / 1_000;
            if self.ends_wait(id, false).is_none() {
                return Some(id);
            }
            let twin = self.twin.as_mut()?;
            let latency_ps = twin.prices().wake_latency;
            twin.clocks.ready(id, at_ps + latency_ps);
        }
    }
}

#[inline(never)]
fn point_of(me: usize, what: What, at: &'static Location<'static>, yields: bool) {
    if is_twin() {
        wait_for_time(me, what, at);
        return with(|c| c.charge_point(me, what));
    }
    let next = with(|c| {
        c.note(me, what, at);
        c.next(Some(me), yields)
    });
    switch(me, next);
}

/// The calling thread will wait for `key` from now on: the first half of [`wait`], for those who
/// have to give something back in between.
#[track_caller]
pub(super) fn begin_wait(me: usize, key: Key, deadline_ns: u64) {
    let at = Location::caller();
    with(|c| {
        c.note(me, What::Wait, at);
        c.threads[me].state = State::Waiting {
            key,
            deadline_ns,
            since: c.step,
        };
        c.waiters.entry(key).or_default().push(me);
    });
}

/// Waits; `true` if it was woken, `false` after the deadline.
pub(super) fn end_wait(me: usize) -> bool {
    if is_twin() {
        with(|c| c.sleep_in_twin(me));
        fiber::suspend(me);
        return with(|c| c.threads[me].woken);
    }
    let next = with(|c| c.next(None, false));
    switch(me, next);
    with(|c| c.threads[me].woken)
}

/// Waits until `key` is woken or the time has come.
#[track_caller]
pub(super) fn wait(me: usize, key: Key, deadline_ns: u64) -> bool {
    begin_wait(me, key, deadline_ns);
    end_wait(me)
}

/// The instant `ns` from now.
pub(super) fn deadline(ns: u64) -> u64 {
    match ns {
        NEVER => NEVER,
        ns => with(|c| (c.now_ps() / 1_000).saturating_add(ns)),
    }
}

/// Announces a thread that is about to be started.
#[track_caller]
pub(super) fn announce(name: String) -> Option<usize> {
    me()?;
    point(What::Start);
    Some(with(|c| c.add_thread(name)))
}

/// The announced thread exists.
pub(super) fn started(id: usize, os: Option<std::thread::Thread>) {
    with(|c| {
        c.threads[id].os = os;
        c.threads[id].state = State::Runnable;
        let now_ps = c.now_ps();
        if let Some(twin) = &mut c.twin {
            let latency_ps = twin.prices().wake_latency;
            twin.clocks.ready(id, now_ps + latency_ps);
        }
    });
}

/// The announced thread could not be started.
pub(super) fn not_started(id: usize) {
    with(|c| c.threads[id].state = State::Ended);
}

/// The first thing that a new thread does.
pub(super) fn enter(id: usize) {
    ME.with(|me| me.set(id));
    wait_for_turn(id);
}

/// The last thing that a thread does.
#[track_caller]
pub(super) fn leave(id: usize) {
    let at = Location::caller();
    with(|c| {
        c.note(id, What::End, at);
        c.threads[id].state = State::Ended;
        c.wake(Key::End(id), usize::MAX);
    });
    if is_twin() {
        // The fiber ends with the call.
        return with(|c| c.sleep_in_twin(id));
    }
    let next = with(|c| c.next(None, false));
    ME.with(|me| me.set(NOBODY));
    give(next);
}

pub(super) fn has_ended(id: usize) -> bool {
    with(|c| c.threads[id].state == State::Ended)
}

pub(super) fn set_token(id: usize) {
    with(|c| {
        c.threads[id].token = true;
        c.wake(Key::Park(id), 1);
    });
}

pub(super) fn take_token(id: usize) -> bool {
    with(|c| std::mem::take(&mut c.threads[id].token))
}

/// Nanoseconds of the schedule's clock; the real clock outside of schedules.
pub fn now_ns() -> u64 {
    match me() {
        Some(me) => with(|c| {
            if let Some(twin) = &mut c.twin {
                twin.clocks.charge(me, twin.clocks.machine.prices.clock);
            }
            c.now_ps() / 1_000
        }),
        None => base().elapsed().as_nanos() as u64,
    }
}

/// The present as `std` names it.
pub fn instant_now() -> Instant {
    match me() {
        Some(_) => base() + Duration::from_nanos(now_ns()),
        None => Instant::now(),
    }
}

/// Of the twin: the calling thread computes for so long. It keeps its CPU, unlike one that sleeps.
#[track_caller]
pub fn charge(duration: Duration) {
    charge_ps(|_| duration.as_nanos() as u64 * 1_000);
    point(What::Load);
}

/// Of the twin: the calling thread pays a price.
pub(super) fn charge_ps(price: impl FnOnce(&Prices) -> u64) {
    let Some(me) = me().filter(|_| is_twin()) else {
        return;
    };
    with(|c| {
        if let Some(twin) = &mut c.twin {
            let ps = price(&twin.clocks.machine.prices);
            twin.clocks.charge(me, ps);
        }
    });
}

/// Of the twin: the calling thread runs on this CPU from now on.
pub(super) fn pin(cpu: usize) {
    let Some(me) = me().filter(|_| is_twin()) else {
        return;
    };
    let has_moved = with(|c| c.twin.as_mut().is_some_and(|twin| twin.clocks.pin(me, cpu)));
    if has_moved {
        fiber::suspend(me);
    }
}

/// How many points there have been.
pub fn steps() -> u64 {
    with(|c| c.step)
}

/// The calling thread computes for so long: it comes to no point meanwhile, and time passes.
#[track_caller]
pub fn advance(duration: Duration) {
    sleep_ns(duration.as_nanos() as u64);
}

/// A number below `n`, which is not 0, that the seed draws.
pub fn draw(n: u64) -> u64 {
    with(|c| c.rng.below(n))
}

/// Sleeps.
#[track_caller]
pub fn sleep_ns(ns: u64) {
    match me() {
        Some(me) => {
            wait(me, Key::Time, deadline(ns));
        }
        None => std::thread::sleep(Duration::from_nanos(ns)),
    }
}

/// A pause in a loop that waits for another thread: others go first.
#[track_caller]
pub fn spin_loop() {
    match me() {
        Some(me) => point_of(me, What::Spin, Location::caller(), true),
        None => std::hint::spin_loop(),
    }
}

/// `std::sync::atomic::fence`.
#[track_caller]
pub fn fence(order: Ordering) {
    point(What::Fence);
    std::sync::atomic::fence(order);
}

/// A system call that others may notice is about to be made.
#[track_caller]
pub fn point_of_call() {
    point(What::Call);
}

/// One thread at a time needs no barrier: the point is what is left of `membarrier(2)`.
#[track_caller]
pub fn point_of_membarrier() {
    point(What::Barrier);
}

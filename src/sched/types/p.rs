//! P: the right to run goroutines on one core, and everything that running them needs.
//!
//! Split by the threads that access it: data read by thieves, sysmon and notifiers lies on cache
//! lines of its own; data used only by the M that holds the P is in [`Local`].
#![allow(unsafe_code)]

use std::cell::{Cell, UnsafeCell};

use windlass_topology::LevelKind;

use super::m::M;
use super::pace;
use super::trace::PLog;
use crate::g::header::{self, GRef, SLOT_BYTES};
use crate::g::list::GList;
use crate::g::slab::{self, DepotId};
use crate::g::stack::{self, Stack, StackPool};
use crate::loom::native::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use crate::loom::oracle;
use crate::netpoll::poller::Poller;
use crate::sched::numa::policy::N_DENIALS;
use crate::sched::numa::summary::Published;
use crate::sched::queue::idle::IdleWord;
use crate::sched::queue::p_status::PStatus;
use crate::sched::queue::runq::RunQueue;
use crate::sys::clock::{self, NEVER};
use crate::timer::Timers;
use crate::util::counter::{CoarseTime, Counter};
use crate::util::histogram::Times;
use crate::util::ladder;
use crate::util::padded::Padded;
use crate::util::placed::Placed;
use crate::util::random::Random;

/// Victims of equal distance.
#[derive(Clone, Debug)]
pub(crate) struct StealLevel {
    pub(crate) kind: LevelKind,
    pub(crate) distance: u32,
    pub(crate) victims: Vec<usize>,
    /// The nodes of the victims.
    pub(crate) nodes: Vec<usize>,
    /// Victim of the last successful steal; `usize::MAX` at first. Owner only.
    pub(crate) last: Cell<usize>,
}

/// The other Ps, by distance.
#[derive(Debug)]
pub(crate) struct Levels {
    all: Vec<StealLevel>,
    /// The levels, limited to Ps in use: a thief that may use two CPUs of a large machine does not
    /// probe hundreds of Ps without an M.
    live: UnsafeCell<Vec<StealLevel>>,
}

impl Levels {
    fn new(all: Vec<StealLevel>) -> Levels {
        Levels {
            all,
            live: UnsafeCell::default(),
        }
    }

    /// All other Ps, in use or not.
    pub(crate) fn all(&self) -> &[StealLevel] {
        &self.all
    }

    /// Limits the victims to Ps in use. Before the first call there are none.
    ///
    /// # Safety
    ///
    /// The world is stopped and the caller is sysmon; or there is no run, and none begins.
    pub(crate) unsafe fn keep(
        &self,
        is_in_use: impl Fn(usize) -> bool,
        node_of: impl Fn(usize) -> usize,
    ) {
        let of_those = |level: &StealLevel| {
            let victims = level.victims.iter().copied().filter(|&i| is_in_use(i));
            StealLevel::new(level.kind, level.distance, victims.collect(), &node_of)
        };
        let live = self.all.iter().map(of_those);
        let live = live.filter(|level| !level.victims.is_empty()).collect();
        // SAFETY: by this function's contract no other thread reads it meanwhile.
        unsafe { *self.live.get() = live };
    }
}

impl std::ops::Deref for Levels {
    type Target = [StealLevel];
    #[inline]
    fn deref(&self) -> &[StealLevel] {
        // SAFETY: it is written only while there is no reader.
        unsafe { &*self.live.get() }
    }
}

impl StealLevel {
    pub(crate) fn new(
        kind: LevelKind,
        distance: u32,
        victims: Vec<usize>,
        node_of: impl Fn(usize) -> usize,
    ) -> StealLevel {
        let mut nodes: Vec<_> = victims.iter().map(|&victim| node_of(victim)).collect();
        nodes.sort_unstable();
        nodes.dedup();
        StealLevel {
            kind,
            distance,
            victims,
            nodes,
            last: Cell::new(usize::MAX),
        }
    }
}

/// Number of steal levels that the metrics distinguish.
pub(crate) const N_LEVELS: usize = 5;

pub(crate) fn level_idx(kind: LevelKind) -> usize {
    match kind {
        LevelKind::Smt => 0,
        LevelKind::L2 => 1,
        LevelKind::L3 => 2,
        LevelKind::Node => 3,
        LevelKind::Remote => 4,
    }
}

/// Counters of a P. Written by the M that holds it, read by any thread.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    pub(crate) dispatches: Counter,
    pub(crate) runnext_dispatches: Counter,
    pub(crate) spawned: Counter,
    /// Goroutines that got a stack here, and stacks in this P's cache.
    pub(crate) started: Counter,
    pub(crate) stacks_cached: Counter,
    pub(crate) finished: Counter,
    pub(crate) parks: Counter,
    pub(crate) idles: Counter,
    pub(crate) wakes_sent: Counter,
    pub(crate) overflows: Counter,
    pub(crate) preemptions: Counter,
    pub(crate) steals: [Counter; N_LEVELS],
    pub(crate) stolen: [Counter; N_LEVELS],
    pub(crate) steal_failures: Counter,
    /// Denied remote steals, by `policy::StealDenied`.
    pub(crate) gate_denials: [Counter; N_DENIALS],
    /// Searches of other nodes, and cache lines of other nodes read for them.
    pub(crate) remote_searches: Counter,
    pub(crate) remote_probes: Counter,
    /// Goroutines brought from another node for other Ps of this node.
    pub(crate) surplus_pushes: Counter,
    /// Goroutines stolen from another node though they had run there.
    pub(crate) stolen_started: Counter,
    /// Goroutines made runnable away from home: sent home, kept here, and rehomed here.
    pub(crate) home_wakes: Counter,
    pub(crate) pulled: Counter,
    pub(crate) rehomes: Counter,
    pub(crate) runs_home: Counter,
    pub(crate) runs_away: Counter,
    pub(crate) wakes_remote: Counter,
    pub(crate) cancels: Counter,
    pub(crate) wakes_received: Counter,
    pub(crate) wakes_useless: Counter,
    /// Time asleep up to the last wake-up; since when its M sleeps, 0 while it is awake.
    pub(crate) idle_ns: Counter,
    pub(crate) asleep_since_ns: Counter,
    /// CPU time of goroutines here, and how long each ran at a time, if that is measured.
    pub(crate) cpu_ns: Counter,
    pub(crate) run_slices: Times,
    pub(crate) queue_delays: Times,
    pub(crate) poll_gaps: Times,
}

/// Counters of a P written by other threads: sysmon, and Ms that hand it on. Ordering: relaxed,
/// statistics.
#[derive(Debug, Default)]
pub(crate) struct RetakeCounts {
    pub(crate) from_sections: AtomicU64,
    pub(crate) from_hogs: AtomicU64,
    /// Of those, for a timer that was due or for the poller.
    pub(crate) for_due: AtomicU64,
    pub(crate) handoffs: AtomicU64,
}

/// Sizes of a P's caches: ids, stacks, G slots.
const IDS_PER_BATCH: u64 = 16;
const STACKS_KEPT: usize = 64;
const SLOTS_KEPT: usize = 256;
const SLOTS_PER_REFILL: usize = 64;
/// How many slots of other nodes a P collects before it returns them.
const SLOTS_AWAY: usize = 32;

/// State used only by the M that holds the P.
#[derive(Debug)]
pub(crate) struct Local {
    /// Dispatches until the next reading of the clock, and of the P's status. Ordering: relaxed
    /// loads and stores of the holder; sysmon stores 0 for an earlier check, and stores it again if
    /// the holder has just overwritten it.
    budget: AtomicU32,
    /// Dispatches between two readings of the tick counter: see `pace`.
    pub(crate) interval: Cell<u32>,
    /// The tick counter, and the rest of the budget, when dispatches were last measured. The next
    /// measurement starts from these.
    pub(crate) measured_ticks: Cell<u64>,
    pub(crate) measured_from: Cell<u32>,
    /// The tick counter when `find::attend_to` last ran, and dispatches since.
    pub(crate) attended_ticks: Cell<u64>,
    pub(crate) since_attended: Cell<u32>,
    /// Ticks after which it runs again.
    pub(crate) attend_after: u64,
    /// The tick counter when [`P::note_run`] was last called, or its M woke or left the kernel.
    running_from: Cell<u64>,
    /// The dispatch count at the last long dispatch, and until which nothing is queued for a batch.
    long_at: Cell<Option<u64>>,
    at_once_until: Counter,
    /// Number of goroutines that timers have woken since it slept last.
    pub(crate) woken_by_timers: Cell<usize>,
    /// Before this time no timer ends its sleep: see [`pace::earliest_wake`].
    pub(crate) earliest_wake_ns: Cell<u64>,
    /// Dispatch count from which the share of expired timers is counted: see [`P::overtakers`].
    pub(crate) overtakes_from: Cell<u64>,
    /// Dispatches since the node queue was last tried.
    pub(crate) since_node_queue: Cell<u32>,
    /// When that was.
    pub(crate) node_queue_seen_ns: Cell<u64>,
    /// Dispatches since the ring was last considered for a system call.
    pub(crate) since_enter: Cell<u32>,
    /// When poll events were last dispatched, whether that was a full batch, and how often
    /// dispatching has been deferred since.
    pub(crate) dispatched_ns: Cell<u64>,
    pub(crate) dispatched_many: Cell<bool>,
    pub(crate) n_deferred: Cell<u32>,
    /// The time of the last clock reading. Sysmon updates it for a P whose goroutine runs for long.
    pub(crate) now_ns: CoarseTime,
    /// When the goroutine that began the current chain of runnext dispatches was dispatched.
    pub(crate) slice_start_ns: Cell<u64>,
    /// How long that chain may last: see [`P::adapt_slice`].
    slice_ns: Cell<u64>,
    /// Whether operations have completed since the last tick.
    has_completions: Cell<bool>,
    /// How many have run since through runnext, up to [`pace::MEASURE_CHAIN_AT`].
    pub(crate) handed_on: Cell<u8>,
    /// For `sched::types::sampling`, with the fields below: ticks, the gap being measured, whether the M
    /// slept since the last tick, the dispatch count when it was last woken.
    pub(crate) ticks: Cell<u8>,
    /// Reasons for extra work per goroutine: [`TRACED`], [`NUMA`], [`TIMED`], [`LABELLED`]. They share
    /// one word, so that a P with none pays for one test. Ordering: relaxed; set by other threads, and a delay does no
    /// harm.
    pub(crate) watched: AtomicU32,
    pub(crate) gap: Cell<u8>,
    pub(crate) gap_from_ns: Cell<u64>,
    pub(crate) slept: Cell<bool>,
    /// The last remote steal from here that passed the gate found nothing it may take.
    pub(crate) came_back_empty: Cell<bool>,
    pub(crate) woken_at: Cell<u64>,
    next_id: Cell<u64>,
    ids_left: Cell<u64>,
    stacks: UnsafeCell<[Vec<Stack>; stack::CLASSES.len()]>,
    slots: UnsafeCell<[Vec<GRef>; SLOT_BYTES.len()]>,
    /// Slots of goroutines that were spawned on another node and have ended here.
    away: UnsafeCell<GList>,
    pub(crate) random: Random,
}

/// In [`Local::watched`]: the P is traced (`trace`).
pub(crate) const TRACED: u32 = 1;
/// In [`Local::watched`]: several nodes have Ps in use, so goroutines have a home (`home`).
pub(crate) const NUMA: u32 = 2;
/// In [`Local::watched`]: CPU times are measured (`accounting`).
pub(crate) const TIMED: u32 = 4;
/// In [`Local::watched`]: a goroutine may have a label for its children to inherit.
pub(crate) const LABELLED: u32 = 8;

/// A processor.
#[derive(Debug)]
pub(crate) struct P {
    pub(crate) idx: usize,
    /// The CPU that it was created for, on its own node.
    pub(crate) own_cpu: usize,
    /// The CPU that its Ms are pinned to. It differs from `own_cpu` only while there are more Ps
    /// than usable CPUs of their own. Ordering: relaxed; written in a stopped world or without a
    /// run, when no M uses the P.
    cpu: AtomicUsize,
    /// The index of its node, and its index within that node.
    pub(crate) node_idx: usize,
    pub(crate) at_in_node: usize,
    pub(crate) levels: Levels,

    pub(crate) runq: Padded<RunQueue>,
    pub(crate) timers: Padded<Timers>,
    pub(crate) word: Padded<IdleWord>,
    /// The M that holds it. Ordering: release by the thread that passes the P on, acquire by
    /// sysmon.
    pub(crate) owner: AtomicPtr<M>,
    /// 0 while an M runs it; the M's id while that M is in a blocking section; `handoff::LEFT` if
    /// its M has given it up. Ordering: the section begins with a release store and ends with an
    /// acquire CAS; sysmon retakes the P by an acquire CAS.
    pub(crate) syscall: AtomicU64,
    /// Counts blocking sections. Ordering: relaxed; sysmon compares two readings.
    pub(crate) syscalltick: AtomicU32,
    pub(crate) status: PStatus,
    pub(crate) taken: RetakeCounts,
    pub(crate) log: PLog,
    /// The part of its node's summary that concerns its queue.
    pub(crate) published: Padded<Published>,

    pub(crate) poller: Padded<Poller>,
    pub(crate) local: Padded<Local>,
    pub(crate) stats: Padded<Stats>,
}

// SAFETY:
// - The owner-only parts of `poller`, and `local`, are accessed only by the M that holds the P;
//   passing the P on goes through a release store and an acquire load (owner, note, syscall).
// - `levels` are read by the P's holder, in the scheduler, and by sysmon, and written while neither
//   reads them (`Levels::keep`).
// - Everything else is atomic or locked.
unsafe impl Sync for P {}
// SAFETY: as for Sync; a P holds nothing bound to the thread that created it.
unsafe impl Send for P {}

impl Local {
    #[inline(always)]
    pub(crate) fn budget(&self) -> u32 {
        self.budget.load(Ordering::Relaxed)
    }

    #[inline(always)]
    pub(crate) fn set_budget(&self, n: u32) {
        self.budget.store(n, Ordering::Relaxed);
    }

    /// Restarts the measurement of dispatches at `now_ns`.
    #[inline]
    pub(crate) fn measure_from(&self, now_ns: u64) {
        self.now_ns.set(now_ns);
        self.measured_from.set(self.budget());
        let ticks = clock::ticks();
        self.measured_ticks.set(ticks);
        self.running_from.set(ticks);
    }

    /// No goroutine has run up to now: its M slept.
    pub(crate) fn runs_from_now(&self) {
        self.running_from.set(clock::ticks());
    }

    /// Called at the second dispatch of a runnext chain: measures it together with the first,
    /// whatever the interval is. Earlier goroutines give no estimate of how long these take.
    #[inline]
    pub(crate) fn lengthen_chain(&self) {
        let n = self.handed_on.get() + 1;
        self.handed_on.set(n);
        if n == pace::MEASURE_CHAIN_AT {
            self.measure_chain();
        }
    }

    /// The next dispatch is the last before the P is measured.
    #[inline(never)]
    fn measure_chain(&self) {
        let cut = self.budget();
        if cut != 0 && cut < self.interval.get() {
            self.set_budget(0);
            self.interval.set(self.interval.get() - cut);
            self.measured_from
                .set(self.measured_from.get().saturating_sub(cut));
        }
    }

    /// Makes `find::attend_to` run before the next dispatch.
    #[inline]
    pub(crate) fn attend_soon(&self) {
        self.set_budget(0);
        let long_ago = clock::ticks().wrapping_sub(self.attend_after);
        self.attended_ticks.set(long_ago);
    }
}

impl P {
    /// Whether goroutines send and receive in batches of its ring. Beside goroutines that compute
    /// they do not: what is queued would wait until those are done. Any thread.
    #[inline]
    pub(crate) fn has_batches(&self) -> bool {
        self.poller.batches_pay() && self.stats.dispatches.get() >= self.local.at_once_until.get()
    }

    /// Goroutines have run until now. Returns the tick counter.
    #[inline]
    pub(crate) fn note_run(&self) -> u64 {
        let (local, ticks) = (&self.local, clock::ticks());
        let elapsed = ticks.wrapping_sub(local.running_from.replace(ticks));
        if pace::is_long(elapsed, local.attend_after) {
            self.note_long_run();
        }
        ticks
    }

    #[cold]
    #[inline(never)]
    fn note_long_run(&self) {
        let (local, n) = (&self.local, self.stats.dispatches.get());
        if let Some(until) = pace::at_once_until(local.long_at.replace(Some(n)), n) {
            local.at_once_until.set(until);
        }
    }

    /// Enters the kernel: submits the ring's queued entries, and collects completions. Time in the
    /// kernel is charged to no goroutine, so the measurement restarts. Timers that expired
    /// meanwhile run before the next dispatch.
    pub(crate) fn submit_and_poll(&self) {
        self.note_run();
        self.poller.flush();
        let (local, now_ns) = (&self.local, clock::now_ns());
        if self.timers.next_ns() <= now_ns {
            local.attend_soon();
        }
        local.measure_from(now_ns);
    }

    /// Whether a chain of runnext dispatches has used up its time slice, while other goroutines
    /// wait.
    #[inline(always)]
    pub(crate) fn slice_is_over(&self) -> bool {
        self.local.now_ns.get() > self.local.slice_start_ns.get() + self.local.slice_ns.get()
            && !self.runq.is_ring_empty()
    }

    /// Operations have completed: the chain that their goroutines join may last longer.
    pub(crate) fn note_completions(&self) {
        self.local.has_completions.set(true);
        self.local.slice_ns.set(ladder::SLICE_NS);
    }

    /// Decides at a tick how long chains may last, until the next one: if operations are in flight,
    /// and none has completed since the last tick, then not for long.
    pub(crate) fn adapt_slice(&self) {
        let local = &self.local;
        let may_wait = !local.has_completions.replace(false) && self.poller.inflight() > 0;
        local.slice_ns.set(match may_wait {
            true => ladder::TICK_NS,
            false => ladder::SLICE_NS,
        });
    }

    /// How many of `n` goroutines with expired timers may run before those in the queue: at most
    /// half of all dispatches, or the queue would starve.
    pub(crate) fn overtakers(&self, n: usize) -> usize {
        let from = &self.local.overtakes_from;
        let (share, next) = pace::overtakers(from.get(), self.stats.dispatches.get(), n);
        from.set(next);
        share
    }

    /// The CPU that its Ms are pinned to.
    #[inline]
    pub(crate) fn cpu(&self) -> usize {
        self.cpu.load(Ordering::Relaxed)
    }

    pub(crate) fn set_cpu(&self, cpu: usize) {
        self.cpu.store(cpu, Ordering::Relaxed);
    }

    /// Whether there is extra work for a goroutine that is made runnable.
    #[inline(always)]
    pub(crate) fn is_watched(&self) -> bool {
        self.local.watched.load(Ordering::Relaxed) & (TRACED | NUMA) != 0
    }

    /// Whether there is extra work for a goroutine that is about to run.
    #[inline(always)]
    pub(crate) fn observes_dispatches(&self) -> bool {
        self.local.watched.load(Ordering::Relaxed) & (TRACED | NUMA | TIMED) != 0
    }

    /// Whether there is extra work for a new goroutine.
    #[inline(always)]
    pub(crate) fn observes_spawns(&self) -> bool {
        self.local.watched.load(Ordering::Relaxed) & (TRACED | NUMA | LABELLED) != 0
    }

    #[inline(always)]
    pub(crate) fn is_numa(&self) -> bool {
        self.local.watched.load(Ordering::Relaxed) & NUMA != 0
    }

    pub(crate) fn new(
        idx: usize,
        cpu: usize,
        node_idx: usize,
        at_in_node: usize,
        levels: Vec<StealLevel>,
        memory: Option<u32>,
        poller: Poller,
    ) -> P {
        P {
            idx,
            own_cpu: cpu,
            cpu: AtomicUsize::new(cpu),
            node_idx,
            at_in_node,
            levels: Levels::new(levels),
            runq: Padded(RunQueue::new()),
            timers: Padded(Timers::new(memory)),
            word: Padded(IdleWord::new()),
            owner: AtomicPtr::new(std::ptr::null_mut()),
            syscall: AtomicU64::new(0),
            syscalltick: AtomicU32::new(0),
            status: PStatus::new(),
            taken: RetakeCounts::default(),
            log: PLog::new(),
            published: Padded(Published::default()),
            poller: Padded(poller),
            local: Padded(Local {
                budget: AtomicU32::new(0),
                interval: Cell::new(1),
                measured_ticks: Cell::new(0),
                measured_from: Cell::new(0),
                attended_ticks: Cell::new(0),
                since_attended: Cell::new(0),
                attend_after: clock::ticks_in(ladder::TICK_NS),
                running_from: Cell::new(clock::ticks()),
                long_at: Cell::new(None),
                at_once_until: Counter::default(),
                woken_by_timers: Cell::new(0),
                earliest_wake_ns: Cell::new(0),
                overtakes_from: Cell::new(0),
                since_node_queue: Cell::new(0),
                node_queue_seen_ns: Cell::new(0),
                since_enter: Cell::new(0),
                dispatched_ns: Cell::new(0),
                dispatched_many: Cell::new(false),
                n_deferred: Cell::new(0),
                now_ns: CoarseTime::default(),
                slice_start_ns: Cell::new(0),
                slice_ns: Cell::new(ladder::SLICE_NS),
                has_completions: Cell::new(false),
                handed_on: Cell::new(pace::MEASURE_CHAIN_AT),
                ticks: Cell::new(0),
                watched: AtomicU32::new(0),
                gap: Cell::new(0),
                gap_from_ns: Cell::new(0),
                slept: Cell::new(false),
                came_back_empty: Cell::new(false),
                woken_at: Cell::new(u64::MAX),
                next_id: Cell::new(0),
                ids_left: Cell::new(0),
                stacks: UnsafeCell::default(),
                slots: UnsafeCell::default(),
                away: UnsafeCell::default(),
                random: Random::new(idx as u64 + 1),
            }),
            stats: Padded(Stats::default()),
        }
    }

    /// Whether an M could do anything useful with this P: sysmon's reason to retake it from an M
    /// that is stuck.
    pub(crate) fn has_work(&self) -> bool {
        !self.runq.is_empty() || self.poller.inflight() > 0 || self.timers.next_ns() != NEVER
    }

    /// Prepares for a simulated run, in which nothing is left of the run before: goroutines are
    /// numbered from 1.
    #[cfg(feature = "sim")]
    pub(crate) fn begin_simulation(&self, now_ns: u64) {
        self.local.next_id.set(1);
        self.local.ids_left.set(u32::MAX as _);
        self.local.now_ns.set(now_ns);
        self.timers.drop_stale();
    }

    pub(crate) fn next_id(&self) -> u64 {
        let local = &self.local;
        if local.ids_left.get() == 0 {
            local.next_id.set(header::reserve_ids(IDS_PER_BATCH));
            local.ids_left.set(IDS_PER_BATCH);
        }
        local.ids_left.set(local.ids_left.get() - 1);
        local.next_id.replace(local.next_id.get() + 1)
    }

    /// A free G slot of a class, from this P's cache or its node's depot.
    ///
    /// Owner only.
    #[inline]
    pub(crate) fn take_slot(&self, class: usize, depot: DepotId) -> GRef {
        // SAFETY: the caller holds the P, and the borrow ends in this function.
        let slots = unsafe { &mut (&mut *self.local.slots.get())[class] };
        if let Some(g) = slots.pop() {
            return g;
        }
        slab::take(depot, class, SLOTS_PER_REFILL, |g| slots.push(g));
        slots.pop().expect("a refill gives at least one slot")
    }

    /// Takes back the empty slot of a goroutine that has ended; `depot` is this P's node's.
    ///
    /// Owner only.
    #[inline]
    pub(crate) fn give_slot(&self, g: GRef, depot: DepotId) {
        if !depot.has(g) {
            return self.send_home(g);
        }
        // SAFETY: the caller holds the P, and the borrow ends in this function.
        let slots = unsafe { &mut (&mut *self.local.slots.get())[g.slot_class()] };
        if slots.len() >= SLOTS_KEPT {
            slots.drain(SLOTS_KEPT / 2..).for_each(slab::give);
        }
        slots.push(g);
    }

    /// Takes back a slot of another node, and returns such slots in batches. They are common,
    /// because thieves bring goroutines that have not started; returning each one alone would touch
    /// a remote depot every time.
    ///
    /// Owner only.
    #[cold]
    fn send_home(&self, g: GRef) {
        // SAFETY: the caller holds the P, and the borrow ends in this function.
        let away = unsafe { &mut *self.local.away.get() };
        away.push(g);
        if away.len() >= SLOTS_AWAY {
            slab::give_all(std::mem::take(away));
        }
    }

    /// Takes a stack for a goroutine's first run, preferably one still in the caches.
    ///
    /// Owner only.
    #[inline]
    pub(crate) fn take_stack(&self, bytes: usize, pool: &StackPool) -> std::io::Result<Stack> {
        let Some(class) = stack::class_for(bytes) else {
            return pool.take(bytes);
        };
        // SAFETY: the caller holds the P, and the borrow ends in this function.
        let stacks = unsafe { &mut (&mut *self.local.stacks.get())[class] };
        let n_cached = &self.stats.stacks_cached;
        if let Some(stack) = stacks.pop() {
            n_cached.set(n_cached.get() - 1);
            return Ok(stack);
        }
        pool.take_free(class, STACKS_KEPT / 2, stacks);
        let stack = stacks.pop();
        n_cached.set(n_cached.get() + stacks.len() as u64);
        match stack {
            Some(stack) => Ok(stack),
            None => pool.take(bytes),
        }
    }

    /// Takes back the stack of a goroutine that ended. A stack of another node is returned at once:
    /// started goroutines rarely leave their node, and a stack cached here would be missing there.
    ///
    /// Owner only.
    #[inline]
    pub(crate) fn give_stack(&self, stack: Stack, pools: &Placed<super::state::Node>) {
        let home = stack.node().min(pools.len() - 1);
        let (Some(class), true) = (stack.class(), home == self.node_idx) else {
            return pools[home].stacks.give([stack]);
        };
        // SAFETY: the caller holds the P, and the borrow ends in this function.
        let stacks = unsafe { &mut (&mut *self.local.stacks.get())[class] };
        let n_cached = &self.stats.stacks_cached;
        if stacks.len() >= STACKS_KEPT {
            // Returns the half at the bottom: the one that was used longest ago.
            pools[home].stacks.give(stacks.drain(..STACKS_KEPT / 2));
            n_cached.set(n_cached.get() - (STACKS_KEPT / 2) as u64);
        }
        stacks.push(stack);
        n_cached.set(n_cached.get() + 1);
    }

    /// Returns everything in the caches to the node's pools.
    ///
    /// Owner only.
    pub(crate) fn flush_caches(&self, pool: &StackPool) {
        // SAFETY: the caller holds the P, and the borrow ends in this function.
        let slots = unsafe { &mut *self.local.slots.get() };
        slots
            .iter_mut()
            .for_each(|s| s.drain(..).for_each(slab::give));
        self.give_stacks(pool);
        self.send_all_home();
    }

    /// Returns the stacks in the cache to the node's pool.
    ///
    /// Owner only.
    pub(crate) fn give_stacks(&self, pool: &StackPool) {
        // SAFETY: the caller holds the P, and the borrow ends in this function.
        let stacks = unsafe { &mut *self.local.stacks.get() };
        stacks.iter_mut().for_each(|s| pool.give(s.drain(..)));
        self.stats.stacks_cached.set(0);
    }

    /// Owner only.
    fn send_all_home(&self) {
        // SAFETY: the caller holds the P (or is alone), and the borrow ends in this function.
        let away = unsafe { &mut *self.local.away.get() };
        slab::give_all(std::mem::take(away));
    }

    /// Empties the caches, at the end of the runtime.
    ///
    /// Owner only.
    pub(crate) fn drain_caches(&self) {
        // SAFETY: the caller holds the P (or is alone), and the borrows end in this function.
        let (slots, stacks) =
            unsafe { (&mut *self.local.slots.get(), &mut *self.local.stacks.get()) };
        slots
            .iter_mut()
            .for_each(|s| s.drain(..).for_each(slab::give));
        // The arenas are unmapped as a whole; stacks of a mapping of their own are never cached.
        oracle::stacks(-stacks.iter().map(Vec::len).sum::<usize>().cast_signed());
        stacks.iter_mut().for_each(Vec::clear);
        self.send_all_home();
        self.stats.stacks_cached.set(0);
    }

    pub(crate) fn owner(&self) -> *mut M {
        self.owner.load(Ordering::Acquire)
    }
}

//! P: the right to run goroutines on one core, and everything that running them needs.
//!
//! Split by the threads that access it: data read by thieves, sysmon and notifiers lies on cache
//! lines of its own; data used only by the M that holds the P is in [`Local`].
#![allow(unsafe_code)]

use std::cell::Cell;

use windlass_ground::padded::Padded;
use windlass_ground::random::Random;
use windlass_topology::placement::PlannedP;

use super::caches::Caches;
use super::counters::{RetakeCounts, Stats};
use super::events::Log;
use super::extra_work::{ExtraWork, LABELLED, NUMA, TIMED, TRACED};
use super::m::M;
use super::samples::Samples;
use super::steal_levels::{Levels, StealLevel};
use crate::loom::native::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use crate::netpoll::poller::Poller;
use crate::sched::pacing::kernel_visits::{Moment, Visits};
use crate::sched::pacing::node_queue_turns::NodeQueueTurns;
use crate::sched::pacing::pace::Pace;
use crate::sched::pacing::slice::Slice;
use crate::sched::pacing::timer_pace::TimerPace;
use crate::sched::queue::idle::IdleWord;
use crate::sched::queue::p_status::PStatus;
use crate::sched::queue::runq::RunQueue;
use crate::sys::clock::{self, NEVER};
use crate::timer::Timers;
use crate::util::ladder;

/// State used by the M that holds the P. Methods of its parts say what any thread may call.
#[derive(Debug)]
pub(crate) struct Local {
    pub(crate) pace: Pace,
    pub(crate) slice: Slice,
    pub(crate) node_queue: NodeQueueTurns,
    pub(crate) visits: Visits,
    pub(crate) timers: TimerPace,
    pub(crate) extra: ExtraWork,
    pub(crate) samples: Samples,
    pub(crate) caches: Caches,
    /// The last remote steal from here that passed the gate found nothing it may take.
    pub(crate) came_back_empty: Cell<bool>,
    pub(crate) random: Random,
}

impl Local {
    fn new(idx: usize) -> Local {
        Local {
            pace: Pace::new(clock::ticks_in(ladder::TICK_NS)),
            slice: Slice::new(),
            node_queue: NodeQueueTurns::default(),
            visits: Visits::default(),
            timers: TimerPace::default(),
            extra: ExtraWork::default(),
            samples: Samples::new(),
            caches: Caches::default(),
            came_back_empty: Cell::new(false),
            random: Random::new(idx as u64 + 1),
        }
    }
}

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
    pub(crate) log: Log,

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

impl P {
    /// Whether goroutines send and receive in batches of its ring. Any thread may call this.
    #[inline]
    pub(crate) fn batches_operations(&self) -> bool {
        self.poller.batches_pay() && !self.local.pace.computes()
    }

    /// Enters the kernel if it is time for that: submits the ring's queued entries, and collects completions.
    #[inline(always)]
    pub(crate) fn visit_kernel(&self, at: Moment) {
        if at.enters(self.poller.pending(), || self.poller.wants_enter()) {
            self.submit_and_poll();
        }
    }

    /// Enters the kernel: submits the ring's queued entries, and collects completions. Time in the
    /// kernel is charged to no goroutine. Timers that expired meanwhile run before the next dispatch.
    pub(crate) fn submit_and_poll(&self) {
        let (pace, from) = (&self.local.pace, clock::ticks());
        self.poller.flush();
        let (now_ns, to) = (clock::now_ns(), clock::ticks());
        pace.leave_out(from, to);
        pace.set_now_ns(now_ns);
        if self.timers.next_ns() <= now_ns {
            pace.tick_soon(to);
        }
    }

    /// The goroutine that ran gives the P up, or has lost it, because others wait: timers and the poller come next,
    /// with a slice of their own, and then the local queue. For the holder, or sysmon while there is none.
    pub(crate) fn put_due_first(&self) {
        self.local.pace.tick_soon(clock::ticks());
        self.local.slice.begin(clock::now_ns());
        self.local.node_queue.put_off(self.stats.dispatches.get());
    }

    /// Whether a chain of runnext dispatches has used up its time slice, while other goroutines
    /// wait.
    #[inline(always)]
    pub(crate) fn slice_is_over(&self) -> bool {
        self.local.slice.is_over(self.local.pace.now_ns()) && !self.runq.is_ring_empty()
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
    pub(crate) fn observes_wakes(&self) -> bool {
        self.local.extra.has(TRACED | NUMA)
    }

    /// Whether there is extra work for a goroutine that is about to run.
    #[inline(always)]
    pub(crate) fn observes_dispatches(&self) -> bool {
        self.local.extra.has(TRACED | NUMA | TIMED)
    }

    /// Whether there is extra work for a new goroutine.
    #[inline(always)]
    pub(crate) fn observes_spawns(&self) -> bool {
        self.local.extra.has(TRACED | NUMA | LABELLED)
    }

    /// Whether the borders of a blocking section concern anybody.
    #[inline(always)]
    pub(crate) fn observes_sections(&self) -> bool {
        self.local.extra.has(TRACED | TIMED)
    }

    /// Whether tracing is on.
    #[inline(always)]
    pub(crate) fn is_traced(&self) -> bool {
        self.local.extra.has(TRACED)
    }

    /// Whether several nodes have Ps in use.
    #[inline(always)]
    pub(crate) fn is_numa(&self) -> bool {
        self.local.extra.has(NUMA)
    }

    /// Whether CPU times are measured.
    #[inline(always)]
    pub(crate) fn is_timed(&self) -> bool {
        self.local.extra.has(TIMED)
    }

    /// Whether some goroutine of the runtime has a label.
    pub(crate) fn is_labelled(&self) -> bool {
        self.local.extra.has(LABELLED)
    }

    pub(crate) fn new(
        planned: &PlannedP,
        at_in_node: usize,
        levels: Vec<StealLevel>,
        memory: Option<u32>,
        poller: Poller,
    ) -> P {
        let idx = planned.index;
        P {
            idx,
            own_cpu: planned.cpu,
            cpu: AtomicUsize::new(planned.cpu),
            node_idx: planned.node,
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
            log: Log::default(),
            poller: Padded(poller),
            local: Padded(Local::new(idx)),
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
        self.local.caches.number_from_1();
        self.local.pace.set_now_ns(now_ns);
        self.timers.drop_stale();
    }

    pub(crate) fn owner(&self) -> *mut M {
        self.owner.load(Ordering::Acquire)
    }
}

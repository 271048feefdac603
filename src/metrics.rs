//! What the runtime counts, read out as plain values.

use crate::sched::p::{N_LEVELS, P};
use crate::sched::state::Sched;

/// Distances at which a P steals, nearest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByLevel {
    /// From the sibling hardware thread of the same core.
    pub smt: u64,
    /// From a core that shares the second-level cache.
    pub l2: u64,
    /// From a core that shares the third-level cache.
    pub l3: u64,
    /// From elsewhere on the same NUMA node.
    pub node: u64,
    /// From another NUMA node.
    pub remote: u64,
}

impl ByLevel {
    /// All levels together.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.smt + self.l2 + self.l3 + self.node + self.remote
    }

    fn of(counts: &[crate::util::counter::Counter; N_LEVELS]) -> ByLevel {
        let [smt, l2, l3, node, remote] = counts.each_ref().map(|c| c.get());
        ByLevel {
            smt,
            l2,
            l3,
            node,
            remote,
        }
    }

    fn add(&mut self, other: &ByLevel) {
        self.smt += other.smt;
        self.l2 += other.l2;
        self.l3 += other.l3;
        self.node += other.node;
        self.remote += other.remote;
    }
}

/// What tells a runtime that its sockets are ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Poller {
    /// An io_uring ring per P.
    #[default]
    IoUring,
    /// An epoll instance per P: io_uring cannot be used here, or `WINDLASS_IO` says so.
    Epoll,
}

impl std::fmt::Display for Poller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Poller::IoUring => "io_uring",
            Poller::Epoll => "epoll",
        })
    }
}

/// Counters since the runtime was built. Each is read by itself: together they are
/// no snapshot of one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PMetrics {
    /// Goroutines switched to.
    pub dispatches: u64,
    /// Of those, from runnext: hand-overs that share a time slice.
    pub runnext_dispatches: u64,
    /// Goroutines spawned here.
    pub spawned: u64,
    /// Goroutines that ended here.
    pub finished: u64,
    /// Times a goroutine began to wait.
    pub parks: u64,
    /// Times the P's thread went to sleep.
    pub idles: u64,
    /// Times this P woke another.
    pub wakes: u64,
    /// Times the local queue was full and half of it went to the node's.
    pub overflows: u64,
    /// Successful steals by distance.
    pub steals: ByLevel,
    /// Goroutines they brought.
    pub stolen: ByLevel,
    /// Operations cancelled because their deadline passed.
    pub io_timeouts: u64,
    /// `io_uring_enter` calls; with epoll, calls of `epoll_wait`.
    pub ring_enters: u64,
    /// Operations submitted; with epoll, all that were not done before a goroutine
    /// parked.
    pub ring_submitted: u64,
    /// Operations completed.
    pub ring_completed: u64,
    /// Times the completion queue was read and held something; with epoll, times that
    /// descriptors were ready and operations completed.
    pub ring_batches: u64,
}

impl PMetrics {
    fn of(p: &P) -> PMetrics {
        let s = &p.stats;
        let r = &p.poller.counts;
        PMetrics {
            dispatches: s.dispatches.get(),
            runnext_dispatches: s.runnext_dispatches.get(),
            spawned: s.spawned.get(),
            finished: s.finished.get(),
            parks: s.parks.get(),
            idles: s.idles.get(),
            wakes: s.wakes_sent.get(),
            overflows: s.overflows.get(),
            steals: ByLevel::of(&s.steals),
            stolen: ByLevel::of(&s.stolen),
            io_timeouts: s.cancels.get(),
            ring_enters: r.enters.get(),
            ring_submitted: r.submitted.get(),
            ring_completed: r.completed.get(),
            ring_batches: r.batches.get(),
        }
    }

    fn add(&mut self, o: &PMetrics) {
        self.dispatches += o.dispatches;
        self.runnext_dispatches += o.runnext_dispatches;
        self.spawned += o.spawned;
        self.finished += o.finished;
        self.parks += o.parks;
        self.idles += o.idles;
        self.wakes += o.wakes;
        self.overflows += o.overflows;
        self.steals.add(&o.steals);
        self.stolen.add(&o.stolen);
        self.io_timeouts += o.io_timeouts;
        self.ring_enters += o.ring_enters;
        self.ring_submitted += o.ring_submitted;
        self.ring_completed += o.ring_completed;
        self.ring_batches += o.ring_batches;
    }
}

/// The counters of a runtime.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RuntimeMetrics {
    /// Which poller the Ps have.
    pub poller: Poller,
    /// One entry per P.
    pub ps: Vec<PMetrics>,
    /// Goroutines spawned from outside the runtime.
    pub spawned_outside: u64,
    /// Goroutines that have not ended.
    pub live_goroutines: u64,
    /// Threads that run goroutines.
    pub threads: usize,
    /// Goroutine stacks that exist, in use or kept for reuse.
    pub stacks: usize,
    /// Times a P was taken from a goroutine that blocked or computed for too long.
    pub retakes: u64,
    /// Times a P was given to another thread.
    pub handoffs: u64,
}

impl RuntimeMetrics {
    pub(crate) fn of(sched: &Sched) -> RuntimeMetrics {
        use std::sync::atomic::Ordering::Relaxed;
        RuntimeMetrics {
            poller: match sched.ps.iter().any(|p| p.poller.is_epoll()) {
                true => Poller::Epoll,
                false => Poller::IoUring,
            },
            ps: sched.ps.iter().map(PMetrics::of).collect(),
            spawned_outside: sched.n_foreign.load(Relaxed),
            live_goroutines: sched.n_live(),
            threads: sched.n_ms.load(Relaxed),
            stacks: sched.nodes.iter().map(|n| n.stacks.n_made()).sum(),
            retakes: sched.retakes.load(Relaxed),
            handoffs: sched.handoffs.load(Relaxed),
        }
    }

    /// All Ps together.
    #[must_use]
    pub fn total(&self) -> PMetrics {
        let mut total = PMetrics::default();
        self.ps.iter().for_each(|p| total.add(p));
        total
    }
}

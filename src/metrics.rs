//! What the runtime counts, read out as plain values.
//!
//! Counting costs a P a few plain stores on lines of its own; there is no switch to
//! turn it off. Reading stops nobody. Where tokio-metrics or Go's `runtime/metrics`
//! count the same thing, the documentation of a field gives their name for it.

mod placement;

use std::ops::Range;
use std::time::Duration;

use crate::loom::native::atomic::Ordering::Relaxed;
use crate::sched::p::{N_LEVELS, P};
use crate::sched::policy::{Denial, N_DENIALS};
use crate::sched::state::{Node, Sched};
use crate::sys::{clock, numa};
use crate::util::histogram;

pub use placement::{MemoryPages, MemoryPlacement, NodeMemory, Pages};

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

/// Why a P that looked for work was turned away by another NUMA node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GateDenials {
    /// As many Ps were idle there as goroutines waited: they will fetch them.
    pub no_surplus: u64,
    /// As before, and what waited there had not waited long enough for the distance.
    pub too_young: u64,
    /// Another P of the same node was stealing there.
    pub pair_busy: u64,
    /// All that waited there is bound to its node.
    pub bound: u64,
}

impl GateDenials {
    /// All reasons together.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.no_surplus + self.too_young + self.pair_busy + self.bound
    }

    fn of(counts: &[crate::util::counter::Counter; N_DENIALS]) -> GateDenials {
        let of = |why: Denial| counts[why as usize].get();
        GateDenials {
            no_surplus: of(Denial::NoSurplus),
            too_young: of(Denial::TooYoung),
            pair_busy: of(Denial::PairBusy),
            bound: of(Denial::Bound),
        }
    }

    fn add(&mut self, other: &GateDenials) {
        self.no_surplus += other.no_surplus;
        self.too_young += other.too_young;
        self.pair_busy += other.pair_busy;
        self.bound += other.bound;
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

/// How often values of which size were seen, in steps of powers of two.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    shift: u32,
    counts: Vec<u64>,
}

impl Histogram {
    fn of<const N: usize, const SHIFT: u32>(h: &histogram::Histogram<N, SHIFT>) -> Histogram {
        Histogram {
            shift: SHIFT,
            counts: h.counts(),
        }
    }

    /// The buckets, the smallest values' first: which values, and how many were seen.
    /// The last bucket has no upper bound ([`u64::MAX`] stands for it).
    pub fn buckets(&self) -> impl Iterator<Item = (Range<u64>, u64)> + '_ {
        let bound = |i: usize| 1u64 << (self.shift as usize + i);
        let last = self.counts.len().saturating_sub(1);
        self.counts.iter().enumerate().map(move |(i, &n)| {
            let from = if i == 0 { 0 } else { bound(i - 1) };
            let to = if i == last { u64::MAX } else { bound(i) };
            (from..to, n)
        })
    }

    /// How many values were seen.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// A bound that a share `q` of the values lies below (0.5: the median), at most
    /// twice what it would be exactly; 0 if no value was seen, [`u64::MAX`] if it lies in
    /// the bucket without a bound.
    ///
    /// # Examples
    ///
    /// ```
    /// # // SAFETY: nothing here keeps a thread-local across a call that parks.
    /// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
    /// rt.run(|| windlass::sleep(std::time::Duration::from_millis(1)));
    /// let delays = rt.metrics().total().queue_delays;
    /// assert!(delays.quantile(0.5) <= delays.quantile(0.99));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn quantile(&self, q: f64) -> u64 {
        let n = self.count();
        let rank = ((n as f64 * q.clamp(0.0, 1.0)).ceil() as u64).max(1);
        let mut seen = 0;
        self.buckets()
            .find(|(_, here)| {
                seen += here;
                seen >= rank
            })
            .map_or(0, |(range, _)| range.end)
    }

    fn add(&mut self, other: &Histogram) {
        self.shift = other.shift;
        self.counts
            .resize(other.counts.len().max(self.counts.len()), 0);
        for (sum, n) in self.counts.iter_mut().zip(&other.counts) {
            *sum += n;
        }
    }
}

/// What happened on a P since the runtime was built. Each is read by itself: together
/// they are no snapshot of one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PMetrics {
    /// Goroutines switched to. (tokio: `polls_count`; Go: schedtick counts the slices)
    pub dispatches: u64,
    /// Of those, from runnext: hand-overs that share a time slice.
    pub runnext_dispatches: u64,
    /// Goroutines spawned here. (Go: `/sched/goroutines-created`)
    pub spawned: u64,
    /// Goroutines that ran for the first time here, and got a stack for it.
    pub started: u64,
    /// Goroutines that ended here.
    pub finished: u64,
    /// Times a goroutine began to wait.
    pub parks: u64,
    /// Times the P's thread went to sleep. (tokio: `park_count`)
    pub idles: u64,
    /// For how long it has slept in all. (Go: `/cpu/classes/idle`; tokio has its complement,
    /// `busy_duration`)
    pub idle_time: Duration,
    /// Times this P woke another.
    pub wakes: u64,
    /// Times another thread woke this one's.
    pub wakes_received: u64,
    /// Of those, the times that it went back to sleep without having run anything.
    /// (tokio: `noop_count`)
    pub wakes_useless: u64,
    /// Times the local queue was full and half of it went to the node's. (tokio:
    /// `overflow_count`)
    pub overflows: u64,
    /// Successful steals by distance. (tokio: `steal_operations`)
    pub steals: ByLevel,
    /// Goroutines they brought. (tokio: `steal_count`)
    pub stolen: ByLevel,
    /// Searches of all victims that found nothing.
    pub steal_failures: u64,
    /// Searches of other NUMA nodes, after the own one was dry twice.
    pub remote_searches: u64,
    /// Cache lines of other nodes that they read: one for each node that they asked, and where they
    /// were let in, one for each P that they looked at there.
    pub remote_probes: u64,
    /// Times such a node had something and did not give it.
    pub gate_denials: GateDenials,
    /// Goroutines stolen from another node for the other Ps of this one.
    pub surplus_pushes: u64,
    /// Goroutines stolen from another node that had run there: their stacks stay.
    pub stolen_started: u64,
    /// Goroutines woken here that went home to another node.
    pub home_wakes: u64,
    /// Goroutines of another node woken here that stayed: their home had no idle P.
    pub pulled: u64,
    /// Goroutines of another node that belong to this one from then on.
    pub rehomes: u64,
    /// On a machine with several nodes: dispatches of goroutines at home, and of those away.
    pub runs_home: u64,
    /// See [`runs_home`](PMetrics::runs_home).
    pub runs_away: u64,
    /// Of [`wakes`](PMetrics::wakes), those of a P of another node.
    pub wakes_remote: u64,
    /// Blocking sections entered ([`blocking`](crate::blocking)).
    pub blocking_sections: u64,
    /// Times the P was taken from a blocking section that lasted.
    pub retakes_blocking: u64,
    /// Times it was taken from a goroutine that computed, or blocked without telling.
    pub retakes_hogs: u64,
    /// Goroutines that gave way because they had gone from one call into the runtime to the
    /// next for 10 ms while others waited.
    pub preemptions: u64,
    /// Times it was given to another thread.
    pub handoffs: u64,
    /// Operations cancelled because their deadline passed.
    pub io_timeouts: u64,
    /// `io_uring_enter` calls; with epoll, calls of `epoll_wait`.
    pub ring_enters: u64,
    /// Operations submitted; with epoll, all that were not done before a goroutine
    /// parked.
    pub ring_submitted: u64,
    /// Operations completed. (tokio: `io_driver_ready_count`)
    pub ring_completed: u64,
    /// Times the completion queue was read and held something; with epoll, times that
    /// descriptors were ready and operations completed.
    pub ring_batches: u64,
    /// How many completions each of those brought.
    pub ring_batch_sizes: Histogram,
    /// How many operations each `io_uring_enter` that submitted any did.
    pub ring_submit_sizes: Histogram,
    /// For how long a completed operation may have lain unseen: nanoseconds between two
    /// looks at the ring while the P was busy and operations were in flight. A sample.
    pub poll_gaps: Histogram,
    /// For how long goroutines that could run waited for it, in nanoseconds. A sample.
    /// (Go: `/sched/latencies`)
    pub queue_delays: Histogram,

    /// Now in the local queue, runnext included. (tokio: `local_queue_depth`)
    pub queue_depth: u64,
    /// Operations now in flight.
    pub ring_inflight: u64,
    /// Those of them that stay whether somebody waits or not: polls of connections that are read
    /// again and again, and what `recv_stream` and `accept_stream` ask for.
    pub ring_standing: u64,
    /// Timers now armed, those included whose goroutine has gone on already.
    pub timers: u64,
    /// Free stacks in the P's cache.
    pub stacks_cached: u64,
}

impl PMetrics {
    /// Of the goroutines that were stolen, the share that came from another NUMA node; 0 if
    /// none were stolen.
    ///
    /// # Examples
    ///
    /// ```
    /// # // SAFETY: nothing here keeps a thread-local across a call that parks.
    /// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
    /// rt.run(|| windlass::spawn(|| ()).join().unwrap());
    /// assert!((0.0..=1.0).contains(&rt.metrics().total().remote_share()));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn remote_share(&self) -> f64 {
        self.stolen.remote as f64 / self.stolen.total().max(1) as f64
    }

    pub(crate) fn of(p: &P) -> PMetrics {
        let s = &p.stats;
        let r = &p.poller.counts;
        let since_ns = s.asleep_since_ns.get();
        let asleep_ns = match since_ns {
            0 => 0,
            _ => clock::now_ns().saturating_sub(since_ns),
        };
        PMetrics {
            dispatches: s.dispatches.get(),
            runnext_dispatches: s.runnext_dispatches.get(),
            spawned: s.spawned.get(),
            started: s.started.get(),
            finished: s.finished.get(),
            parks: s.parks.get(),
            idles: s.idles.get(),
            idle_time: Duration::from_nanos(s.idle_ns.get() + asleep_ns),
            wakes: s.wakes_sent.get(),
            wakes_received: s.wakes_received.get(),
            wakes_useless: s.wakes_useless.get(),
            overflows: s.overflows.get(),
            steals: ByLevel::of(&s.steals),
            stolen: ByLevel::of(&s.stolen),
            steal_failures: s.steal_failures.get(),
            remote_searches: s.remote_searches.get(),
            remote_probes: s.remote_probes.get(),
            gate_denials: GateDenials::of(&s.gate_denials),
            surplus_pushes: s.surplus_pushes.get(),
            stolen_started: s.stolen_started.get(),
            home_wakes: s.home_wakes.get(),
            pulled: s.pulled.get(),
            rehomes: s.rehomes.get(),
            runs_home: s.runs_home.get(),
            runs_away: s.runs_away.get(),
            wakes_remote: s.wakes_remote.get(),
            blocking_sections: p.syscalltick.load(Relaxed).into(),
            retakes_blocking: p.taken.from_sections.load(Relaxed),
            retakes_hogs: p.taken.from_hogs.load(Relaxed),
            preemptions: s.preemptions.get(),
            handoffs: p.taken.handoffs.load(Relaxed),
            io_timeouts: s.cancels.get(),
            ring_enters: r.enters.get(),
            ring_submitted: r.submitted.get(),
            ring_completed: r.completed.get(),
            ring_batches: r.batches.get(),
            ring_batch_sizes: Histogram::of(&r.batch_sizes),
            ring_submit_sizes: Histogram::of(&r.submit_sizes),
            poll_gaps: Histogram::of(&s.poll_gaps),
            queue_delays: Histogram::of(&s.queue_delays),
            queue_depth: p.runq.len() as u64 + u64::from(p.runq.has_runnext()),
            ring_inflight: p.poller.inflight().into(),
            ring_standing: p.poller.counts.standing().into(),
            timers: p.timers.len() as u64,
            stacks_cached: s.stacks_cached.get(),
        }
    }

    fn add(&mut self, o: &PMetrics) {
        let PMetrics {
            dispatches,
            runnext_dispatches,
            spawned,
            started,
            finished,
            parks,
            idles,
            idle_time,
            wakes,
            wakes_received,
            wakes_useless,
            overflows,
            steals,
            stolen,
            steal_failures,
            remote_searches,
            remote_probes,
            gate_denials,
            surplus_pushes,
            stolen_started,
            home_wakes,
            pulled,
            rehomes,
            runs_home,
            runs_away,
            wakes_remote,
            blocking_sections,
            retakes_blocking,
            retakes_hogs,
            preemptions,
            handoffs,
            io_timeouts,
            ring_enters,
            ring_submitted,
            ring_completed,
            ring_batches,
            ring_batch_sizes,
            ring_submit_sizes,
            poll_gaps,
            queue_delays,
            queue_depth,
            ring_inflight,
            ring_standing,
            timers,
            stacks_cached,
        } = self;
        *dispatches += o.dispatches;
        *runnext_dispatches += o.runnext_dispatches;
        *spawned += o.spawned;
        *started += o.started;
        *finished += o.finished;
        *parks += o.parks;
        *idles += o.idles;
        *idle_time += o.idle_time;
        *wakes += o.wakes;
        *wakes_received += o.wakes_received;
        *wakes_useless += o.wakes_useless;
        *overflows += o.overflows;
        steals.add(&o.steals);
        stolen.add(&o.stolen);
        *steal_failures += o.steal_failures;
        *remote_searches += o.remote_searches;
        *remote_probes += o.remote_probes;
        gate_denials.add(&o.gate_denials);
        *surplus_pushes += o.surplus_pushes;
        *stolen_started += o.stolen_started;
        *home_wakes += o.home_wakes;
        *pulled += o.pulled;
        *rehomes += o.rehomes;
        *runs_home += o.runs_home;
        *runs_away += o.runs_away;
        *wakes_remote += o.wakes_remote;
        *blocking_sections += o.blocking_sections;
        *retakes_blocking += o.retakes_blocking;
        *retakes_hogs += o.retakes_hogs;
        *preemptions += o.preemptions;
        *handoffs += o.handoffs;
        *io_timeouts += o.io_timeouts;
        *ring_enters += o.ring_enters;
        *ring_submitted += o.ring_submitted;
        *ring_completed += o.ring_completed;
        *ring_batches += o.ring_batches;
        ring_batch_sizes.add(&o.ring_batch_sizes);
        ring_submit_sizes.add(&o.ring_submit_sizes);
        poll_gaps.add(&o.poll_gaps);
        queue_delays.add(&o.queue_delays);
        *queue_depth += o.queue_depth;
        *ring_inflight += o.ring_inflight;
        *ring_standing += o.ring_standing;
        *timers += o.timers;
        *stacks_cached += o.stacks_cached;
    }
}

/// A NUMA node of a runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeMetrics {
    /// The kernel's number of the node.
    pub os_id: u32,
    /// Its Ps: positions in [`RuntimeMetrics::ps`].
    pub ps: Range<usize>,
    /// What its Ps count, together.
    pub total: PMetrics,
    /// Ps that are idle now.
    pub idle_ps: usize,
    /// Threads that look for work now.
    pub spinning: usize,
    /// Goroutines in the node's queue now. (tokio: `global_queue_depth`)
    pub queue_depth: usize,
    /// Times it was found idle for a millisecond while another node had more than it could
    /// do, and was let past that one's gate.
    pub starvations: u64,
    /// For how long it was idle while another node had more than it could do, as far as the
    /// runtime's monitor saw.
    pub idle_while_needed: Duration,
    /// Stacks that exist: those of goroutines, and free ones.
    pub stacks: usize,
    /// Of those, the free ones, with the node or its Ps.
    pub stacks_free: usize,
    /// Of the free ones, those whose pages went back to the kernel, as nobody had used them for
    /// more than five seconds. (Of locked memory the kernel keeps them.)
    pub stacks_returned: usize,
    /// The most stacks that there ever were.
    pub stacks_peak: usize,
}

impl NodeMetrics {
    fn of(node: &Node, range: Range<usize>, ps: &[PMetrics]) -> NodeMetrics {
        // Should the number of Ps be changed just now, some of them are missing.
        let own = ps.get(range.clone()).unwrap_or_default();
        let total = sum(own.iter().cloned());
        NodeMetrics {
            os_id: node.os_id,
            ps: range,
            idle_ps: node.idle.n_idle(),
            spinning: node.idle.n_spinning() as usize,
            queue_depth: node.queue.len(),
            starvations: node.border.starvations.load(Relaxed),
            idle_while_needed: Duration::from_nanos(node.border.idle_while_needed_ns.load(Relaxed)),
            stacks: node.stacks.n_made(),
            stacks_free: node.stacks.n_free() + total.stacks_cached as usize,
            stacks_returned: node.stacks.n_returned(),
            stacks_peak: node.stacks.n_peak(),
            total,
        }
    }

    /// Stacks that goroutines have now.
    #[must_use]
    pub fn stacks_live(&self) -> usize {
        // The three were read one after the other.
        self.stacks.saturating_sub(self.stacks_free)
    }
}

/// The counters of a runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RuntimeMetrics {
    /// Which poller the Ps have.
    pub poller: Poller,
    /// One entry per P in use. (Go: `/sched/gomaxprocs`, tokio: `num_workers`)
    pub ps: Vec<PMetrics>,
    /// What Ps counted that are in use no more.
    pub retired: PMetrics,
    /// One entry per NUMA node that Ps may be on.
    pub nodes: Vec<NodeMetrics>,
    /// Goroutines spawned from outside the runtime.
    pub spawned_outside: u64,
    /// Goroutines that have not ended. (Go: `/sched/goroutines`, tokio: `num_alive_tasks`)
    pub live_goroutines: u64,
    /// Threads that run goroutines. (Go: `/sched/threads/total`)
    pub threads: usize,
    /// Of those, the ones that sleep: spare ones, and those of idle Ps.
    pub threads_idle: usize,
    /// Goroutine stacks that exist, in use or kept for reuse.
    pub stacks: usize,
    /// Times the Ps were placed anew because the process may use other CPUs than before: its
    /// affinity or its cpuset was changed, or a CPU went offline or came back.
    pub replans: u64,
    /// Ps in use whose threads run on a CPU of another NUMA node than the Ps, and their memory,
    /// belong to: there are more Ps than CPUs that may be used, or other CPUs than when the
    /// runtime was built.
    pub ps_away: usize,
    /// Times a P was taken from a goroutine that blocked or computed for too long.
    pub retakes: u64,
    /// Times a P was given to another thread.
    pub handoffs: u64,
    /// Times the kernel refused, in this process, to place memory on a NUMA node (`mbind`,
    /// `set_mempolicy`), as under the seccomp filters of containers. That memory then lies
    /// where it was touched first, mostly by a thread of that node;
    /// [`Runtime::memory_placement`](crate::Runtime::memory_placement) tells.
    pub placement_refusals: u64,
}

impl RuntimeMetrics {
    pub(crate) fn of(sched: &Sched) -> RuntimeMetrics {
        let ps: Vec<_> = sched.ps_in_use().map(PMetrics::of).collect();
        let nodes: Vec<_> = sched
            .nodes
            .iter()
            .map(|node| NodeMetrics::of(node, in_use(sched, node), &ps))
            .collect();
        RuntimeMetrics {
            poller: match sched.ps.iter().any(|p| p.poller.is_epoll()) {
                true => Poller::Epoll,
                false => Poller::IoUring,
            },
            retired: sum(sched
                .ps
                .iter()
                .filter(|p| !p.fate.is_in_use())
                .map(PMetrics::of)),
            spawned_outside: sched.n_foreign.load(Relaxed),
            live_goroutines: sched.n_live(),
            threads: sched.n_ms.load(Relaxed),
            threads_idle: sched.n_spare_ms() + nodes.iter().map(|n| n.idle_ps).sum::<usize>(),
            stacks: nodes.iter().map(|n| n.stacks).sum(),
            replans: sched.place.replans.load(Relaxed),
            ps_away: sched.place.n_away.load(Relaxed),
            retakes: sched.retakes.load(Relaxed),
            handoffs: sched.handoffs.load(Relaxed),
            placement_refusals: numa::n_refused(),
            ps,
            nodes,
        }
    }

    /// All Ps together, also those that are in use no more.
    #[must_use]
    pub fn total(&self) -> PMetrics {
        sum(self.ps.iter().chain([&self.retired]).cloned())
    }
}

/// The Ps in use of a node, by their position among all in use.
fn in_use(sched: &Sched, node: &Node) -> Range<usize> {
    let n_before = |end: usize| {
        let before = sched.ps.range(0..end);
        before.filter(|p| p.fate.is_in_use()).count()
    };
    n_before(node.ps.start)..n_before(node.ps.end)
}

fn sum(all: impl Iterator<Item = PMetrics>) -> PMetrics {
    let mut total = PMetrics::default();
    all.for_each(|p| total.add(&p));
    total
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn histogram(counts: &[u64]) -> Histogram {
        Histogram {
            shift: 3,
            counts: counts.to_vec(),
        }
    }

    #[test]
    fn buckets_have_bounds() {
        let h = histogram(&[1, 2, 3]);
        let buckets: Vec<_> = h.buckets().collect();
        assert_eq!(buckets, [(0..8, 1), (8..16, 2), (16..u64::MAX, 3)]);
        assert_eq!(h.count(), 6);
    }

    #[test]
    fn quantiles_are_bounds_of_buckets() {
        let h = histogram(&[5, 4, 1]);
        assert_eq!(h.quantile(0.0), 8);
        assert_eq!(h.quantile(0.5), 8);
        assert_eq!(h.quantile(0.9), 16);
        assert_eq!(h.quantile(1.0), u64::MAX);
        assert_eq!(histogram(&[0, 0]).quantile(0.5), 0);
        assert_eq!(Histogram::default().quantile(0.5), 0);
    }
}

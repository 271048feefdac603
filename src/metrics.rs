//! The counters of a runtime, as plain values.
//!
//! Counting is always on. It costs a P a few plain stores on its own cache lines. Reading does not
//! stop the runtime. Counters only rise while the runtime exists: take the difference of two
//! readings. Where tokio-metrics or Go's `runtime/metrics` have the same counter, the documentation
//! of a field gives their name.
//!
//! # Examples
//!
//! ```
//! # // SAFETY: nothing here keeps a thread-local across a call that parks.
//! # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
//! rt.run(|| {
//!     let before = rt.metrics().total();
//!     let tasks: Vec<_> = (0..10).map(|_| windlass::spawn(|| ())).collect();
//!     tasks.into_iter().for_each(|task| task.join().unwrap());
//!     let after = rt.metrics().total();
//!     assert_eq!(after.spawned - before.spawned, 10);
//! });
//! # Ok::<(), std::io::Error>(())
//! ```

mod sum;
mod placement;

use std::ops::Range;
use std::time::Duration;

use windlass_ground::histogram;
use windlass_ground::std_traits::fmt_as;

use crate::g::details::Label;
use crate::loom::native::atomic::Ordering::Relaxed;
use crate::sched::numa::policy::{N_DENIALS, StealDenied};
use crate::sched::types::p::P;
use crate::sched::types::state::{Node, Sched};
use crate::sched::types::steal_levels::N_LEVELS;
use crate::sched::wait::spawn;
use crate::sys::{clock, numa};

pub use placement::{MemoryPages, MemoryPlacement, NodeMemory, Pages};
use sum::{Sum, sums};

sums! {
    /// A count for each distance at which a P steals, nearest first.
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
}

impl ByLevel {
    /// The sum of all levels.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.smt + self.l2 + self.l3 + self.node + self.remote
    }

    fn of(counts: &[windlass_ground::counter::Counter; N_LEVELS]) -> ByLevel {
        let [smt, l2, l3, node, remote] = counts.each_ref().map(|c| c.get());
        ByLevel {
            smt,
            l2,
            l3,
            node,
            remote,
        }
    }
}

sums! {
    /// How often another NUMA node denied a steal, by reason.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    #[non_exhaustive]
    pub struct GateDenials {
        /// The node had an idle P for each waiting goroutine.
        pub no_surplus: u64,
        /// The waiting goroutines had not waited long enough for the distance.
        pub too_young: u64,
        /// Another P of the thief's node was stealing there.
        pub pair_busy: u64,
        /// All waiting goroutines are bound to the node.
        pub bound: u64,
    }
}

impl GateDenials {
    /// The sum of all reasons.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.no_surplus + self.too_young + self.pair_busy + self.bound
    }

    fn of(counts: &[windlass_ground::counter::Counter; N_DENIALS]) -> GateDenials {
        let of = |why: StealDenied| counts[why as usize].get();
        GateDenials {
            no_surplus: of(StealDenied::NoSurplus),
            too_young: of(StealDenied::TooYoung),
            pair_busy: of(StealDenied::PairBusy),
            bound: of(StealDenied::Bound),
        }
    }
}

/// The kernel interface by which a runtime waits for I/O.
///
/// # Examples
///
/// ```
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(1).build()? };
/// println!("waiting by {}", rt.metrics().poller); // "io_uring" or "epoll"
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Poller {
    /// An io_uring ring per P.
    #[default]
    IoUring,
    /// An epoll instance per P, because io_uring cannot be used or `WINDLASS_IO` is `epoll`.
    Epoll,
}

fmt_as!(Display for Poller, |this| match this {
    Poller::IoUring => "io_uring",
    Poller::Epoll => "epoll",
});

/// A histogram whose buckets are powers of two.
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

    /// The buckets in rising order: the range of values, and the number of values in it. The last
    /// bucket has no upper bound, which is written as [`u64::MAX`].
    ///
    /// # Examples
    ///
    /// ```
    /// # // SAFETY: nothing here keeps a thread-local across a call that parks.
    /// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
    /// rt.run(|| windlass::spawn(|| ()).join().unwrap());
    /// let delays = rt.metrics().total().queue_delays;
    /// for (range, n) in delays.buckets().filter(|(_, n)| *n > 0) {
    ///     println!("{} to {} ns: {n} goroutines", range.start, range.end);
    /// }
    /// assert_eq!(delays.buckets().map(|(_, n)| n).sum::<u64>(), delays.count());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn buckets(&self) -> impl Iterator<Item = (Range<u64>, u64)> + '_ {
        let bound = |i: usize| 1u64 << (self.shift as usize + i);
        let last = self.counts.len().saturating_sub(1);
        self.counts.iter().enumerate().map(move |(i, &n)| {
            let from = if i == 0 { 0 } else { bound(i - 1) };
            let to = if i == last { u64::MAX } else { bound(i) };
            (from..to, n)
        })
    }

    /// The number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// An upper bound of the quantile `q` (0.5 is the median), at most twice the exact value. It is
    /// 0 if there are no values, and [`u64::MAX`] if the quantile is in the last bucket.
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
}

impl Sum for Histogram {
    fn add(&mut self, other: &Histogram) {
        // An empty sum knows no bounds.
        if other.counts.is_empty() {
            return;
        }
        self.shift = other.shift;
        self.counts
            .resize(other.counts.len().max(self.counts.len()), 0);
        for (sum, n) in self.counts.iter_mut().zip(&other.counts) {
            *sum += n;
        }
    }
}

sums! {
    /// The counters of a P since the runtime was built.
    ///
    /// Each counter is read by itself; together they are not a snapshot of one moment.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    #[non_exhaustive]
    pub struct PMetrics {
        /// Goroutines switched to. (tokio: `polls_count`; Go: schedtick counts the slices)
        pub dispatches: u64,
        /// Of those, the ones from runnext, which inherit the time slice.
        pub runnext_dispatches: u64,
        /// Goroutines spawned here. (Go: `/sched/goroutines-created`)
        pub spawned: u64,
        /// Goroutines that ran for the first time here, and got their stack.
        pub started: u64,
        /// Goroutines that ended here.
        pub finished: u64,
        /// Times that a goroutine parked.
        pub parks: u64,
        /// Times that the P's thread went to sleep. (tokio: `park_count`)
        pub idles: u64,
        /// How long it has slept in all, until now; never less than in an earlier reading. (Go: `/cpu/classes/idle`; tokio has its complement,
        /// `busy_duration`)
        pub idle_time: Duration,
        /// Times that this P woke another P.
        pub wakes: u64,
        /// Times that another thread woke this P's thread.
        pub wakes_received: u64,
        /// Of those, the times that it went back to sleep without having run a goroutine. (tokio:
        /// `noop_count`)
        pub wakes_useless: u64,
        /// Times that the local queue was full and half of it moved to the node's queue. (tokio:
        /// `overflow_count`)
        pub overflows: u64,
        /// Successful steals by distance. (tokio: `steal_operations`)
        pub steals: ByLevel,
        /// Goroutines stolen, by distance. (tokio: `steal_count`)
        pub stolen: ByLevel,
        /// Searches of all victims that found nothing.
        pub steal_failures: u64,
        /// Searches of other NUMA nodes, made after two searches of the P's own node found nothing.
        pub remote_searches: u64,
        /// Cache lines of other nodes that these searches read: one for each node, and one for each P
        /// of a node that allowed the steal.
        pub remote_probes: u64,
        /// Times that another node had waiting goroutines and denied the steal.
        pub gate_denials: GateDenials,
        /// Goroutines stolen from another node for the other Ps of this one.
        pub surplus_pushes: u64,
        /// Goroutines stolen from another node that had already run there. Their stacks stay there.
        pub stolen_started: u64,
        /// Goroutines woken here that returned to their home node.
        pub home_wakes: u64,
        /// Goroutines of another node woken here that ran here, because their home had no idle P.
        pub pulled: u64,
        /// Goroutines whose home changed to this P's node.
        pub rehomes: u64,
        /// Dispatches of goroutines on their home node. Counted on machines with several nodes.
        pub runs_home: u64,
        /// Dispatches of goroutines away from their home node. Counted on machines with several nodes.
        pub runs_away: u64,
        /// Of [`wakes`](PMetrics::wakes), those of a P of another node.
        pub wakes_remote: u64,
        /// Blocking sections entered ([`blocking`](crate::blocking)).
        pub blocking_sections: u64,
        /// Times that the P was retaken from a long blocking section.
        pub retakes_blocking: u64,
        /// Times that the P was retaken from a goroutine that computed, or blocked its thread outside a
        /// blocking section.
        pub retakes_hogs: u64,
        /// Of [`retakes_hogs`](PMetrics::retakes_hogs), those for goroutines whose timer was due, or for
        /// which the poller had completions: these do not wait until a goroutine has computed for 10 ms.
        pub retakes_due: u64,
        /// Times that a goroutine yielded in a call into the runtime, because it had run for 10 ms
        /// without parking while others waited; for less if a timer was due or the poller had completions.
        pub preemptions: u64,
        /// Times that the P was handed to another thread.
        pub handoffs: u64,
        /// Operations cancelled because their deadline passed.
        pub io_timeouts: u64,
        /// `io_uring_enter` calls; with epoll, calls of `epoll_wait`.
        pub ring_enters: u64,
        /// Operations submitted; with epoll, operations for which a goroutine had to park.
        pub ring_submitted: u64,
        /// Operations completed. (tokio: `io_driver_ready_count`)
        pub ring_completed: u64,
        /// Times that the completion queue was read and was not empty; with epoll, times that
        /// descriptors were ready and operations completed.
        pub ring_batches: u64,
        /// The number of completions in each such batch.
        pub ring_batch_sizes: Histogram,
        /// The number of operations submitted by each `io_uring_enter` that submitted any.
        pub ring_submit_sizes: Histogram,
        /// The CPU time of goroutines here, each up to its last switch, with
        /// [`cpu_accounting`](crate::Builder::cpu_accounting); else 0.
        pub cpu_time: Duration,
        /// How long goroutines ran at a time, in nanoseconds, with
        /// [`cpu_accounting`](crate::Builder::cpu_accounting). (tokio-metrics: `poll_time_histogram`)
        pub run_slices: Histogram,
        /// Nanoseconds between two checks of the ring while the P was busy and operations were in
        /// flight: how long a completion may have waited. A sample.
        pub poll_gaps: Histogram,
        /// Nanoseconds that goroutines spent runnable before they ran. A sample. (Go:
        /// `/sched/latencies`)
        pub queue_delays: Histogram,

        /// Goroutines now in the local queue, including runnext. (tokio: `local_queue_depth`)
        pub queue_depth: u64,
        /// Operations now in flight.
        pub ring_inflight: u64,
        /// Of those, the ones that stay armed without a waiting goroutine: multishot polls of
        /// connections that are read often.
        pub ring_armed: u64,
        /// Timers now armed, including stale ones, whose goroutine was woken before they expired.
        pub timers: u64,
        /// Free stacks now in the P's cache.
        pub stacks_cached: u64,
    }
}

impl PMetrics {
    /// The share of the stolen goroutines, 0 to 1, that came from another NUMA node; 0 if none were
    /// stolen.
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
        PMetrics {
            dispatches: s.dispatches.get(),
            runnext_dispatches: s.runnext_dispatches.get(),
            spawned: s.spawned.get(),
            started: s.started.get(),
            finished: s.finished.get(),
            parks: s.parks.get(),
            idles: s.idles.get(),
            idle_time: Duration::from_nanos(s.slept.until_now_ns(clock::now_ns)),
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
            retakes_due: p.taken.for_due.load(Relaxed),
            preemptions: s.preemptions.get(),
            handoffs: p.taken.handoffs.load(Relaxed),
            io_timeouts: s.cancels.get(),
            ring_enters: r.enters.get(),
            ring_submitted: r.submitted.get(),
            ring_completed: r.completed.get(),
            ring_batches: r.batches.get(),
            ring_batch_sizes: Histogram::of(&r.batch_sizes),
            ring_submit_sizes: Histogram::of(&r.submit_sizes),
            cpu_time: Duration::from_nanos(s.cpu_ns.get()),
            run_slices: Histogram::of(&s.run_slices),
            poll_gaps: Histogram::of(&s.poll_gaps),
            queue_delays: Histogram::of(&s.queue_delays),
            queue_depth: p.runq.len() as u64 + u64::from(p.runq.has_runnext()),
            ring_inflight: p.poller.inflight().into(),
            ring_armed: p.poller.counts.n_armed().into(),
            timers: p.timers.len() as u64,
            stacks_cached: p.local.caches.n_stacks(),
        }
    }
}

/// The counters of a NUMA node of a runtime.
///
/// # Examples
///
/// ```
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
/// rt.run(|| {
///     for node in rt.metrics().nodes {
///         println!("node {}: {} idle Ps, {} stacks in use", node.os_id, node.idle_ps, node.stacks_live());
///     }
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeMetrics {
    /// The kernel's number of the node.
    pub os_id: u32,
    /// Its Ps: positions in [`RuntimeMetrics::ps`].
    pub ps: Range<usize>,
    /// The sum of its Ps' counters, including Ps that are no longer in use.
    pub total: PMetrics,
    /// Ps that are idle now.
    pub idle_ps: usize,
    /// Threads that search for work now.
    pub spinning: usize,
    /// Goroutines in the node's queue now. (tokio: `global_queue_depth`)
    pub queue_depth: usize,
    /// Times that the node was idle for a millisecond while another node had a surplus, and was
    /// therefore allowed to steal from it.
    pub starvations: u64,
    /// How long the node was idle while another node had a surplus, as sampled by the runtime's
    /// monitor.
    pub idle_while_needed: Duration,
    /// Stacks that exist, in use or free.
    pub stacks: usize,
    /// Of those, the free ones, in the caches of the node and its Ps.
    pub stacks_free: usize,
    /// Of the free ones, those whose pages were returned to the kernel because they had not been
    /// used for more than five seconds. (The kernel keeps pages of locked memory.)
    pub stacks_returned: usize,
    /// The maximum number of stacks so far.
    pub stacks_peak: usize,
}

impl NodeMetrics {
    fn of(node: &Node, ps: Range<usize>, total: PMetrics) -> NodeMetrics {
        NodeMetrics {
            os_id: node.os_id,
            ps,
            idle_ps: node.idle.n_idle(),
            spinning: node.idle.n_spinning() as usize,
            queue_depth: node.queue.len(),
            starvations: node.remote_peers.starvations.load(Relaxed),
            idle_while_needed: Duration::from_nanos(
                node.remote_peers.idle_while_needed_ns.load(Relaxed),
            ),
            stacks: node.stacks.n_made(),
            stacks_free: node.stacks.n_free() + total.stacks_cached as usize,
            stacks_returned: node.stacks.n_returned(),
            stacks_peak: node.stacks.n_peak(),
            total,
        }
    }

    /// Stacks that are in use now.
    #[must_use]
    pub fn stacks_live(&self) -> usize {
        // The counters were read one after the other, so the difference could be negative.
        self.stacks.saturating_sub(self.stacks_free)
    }
}

/// The counters of a label of a runtime: see [`task::Builder::label`](crate::task::Builder::label).
///
/// # Examples
///
/// ```
/// use windlass::task;
///
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(2).cpu_accounting(true).build()? };
/// rt.run(|| {
///     let spawned = task::Builder::new().label("report").spawn(|| ())?;
///     spawned.join().unwrap();
///     for label in rt.metrics().labels {
///         println!("{}: {} goroutines, {:?}", label.name, label.spawned, label.cpu_time);
///     }
///     Ok::<(), std::io::Error>(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LabelMetrics {
    /// The label.
    pub name: String,
    /// Goroutines that were given it or have inherited it.
    pub spawned: u64,
    /// The CPU time of these goroutines, each up to its last switch, with
    /// [`cpu_accounting`](crate::Builder::cpu_accounting).
    pub cpu_time: Duration,
}

impl LabelMetrics {
    fn of(label: &Label) -> LabelMetrics {
        LabelMetrics {
            name: label.name.to_string(),
            spawned: label.spawned.load(Relaxed),
            cpu_time: Duration::from_nanos(label.cpu_ns()),
        }
    }
}

/// Which P an entry of [`RuntimeMetrics::ps`] is about, and where that P is.
///
/// # Examples
///
/// ```
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
/// let metrics = rt.metrics();
/// for (place, counters) in metrics.places.iter().zip(&metrics.ps) {
///     println!("P{} on CPU {}: {} dispatches", place.index, place.cpu, counters.dispatches);
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PPlace {
    /// The number of the P, as dumps and traces show it. It keeps it when other Ps come and go.
    pub index: usize,
    /// The CPU that its threads are pinned to, if they are.
    pub cpu: usize,
    /// Its NUMA node, by the kernel's number.
    pub node: u32,
}

impl PPlace {
    fn of(sched: &Sched, p: &P) -> PPlace {
        PPlace {
            index: p.idx,
            cpu: p.cpu(),
            node: sched.node_of(p).os_id,
        }
    }
}

/// The counters of a runtime. Made by [`Runtime::metrics`](crate::Runtime::metrics) and
/// [`Handle::metrics`](crate::Handle::metrics).
///
/// # Examples
///
/// ```
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
/// rt.run(|| {
///     let metrics = rt.metrics();
///     assert_eq!(metrics.ps.len(), 2);
///     assert_eq!(metrics.live_goroutines, 1);
///     assert!(metrics.total().dispatches >= 1);
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RuntimeMetrics {
    /// The poller of the Ps.
    pub poller: Poller,
    /// One entry per P in use. (Go: `/sched/gomaxprocs`, tokio: `num_workers`)
    pub ps: Vec<PMetrics>,
    /// Where these Ps are, in the same order.
    pub places: Vec<PPlace>,
    /// Where the Ps are that were in use and are not now, and their counters. A P that comes back counts on
    /// from there.
    pub retired: Vec<(PPlace, PMetrics)>,
    /// One entry per NUMA node on which Ps may be.
    pub nodes: Vec<NodeMetrics>,
    /// One entry per label, in the order in which they were first used.
    pub labels: Vec<LabelMetrics>,
    /// Whether CPU times are measured: [`cpu_accounting`](crate::Builder::cpu_accounting).
    pub cpu_accounting: bool,
    /// The CPU time of goroutines that computed on after their P was retaken. Not part of any P's.
    pub cpu_time_without_p: Duration,
    /// Goroutines spawned from outside the runtime.
    pub spawned_outside: u64,
    /// Goroutines that have not ended. (Go: `/sched/goroutines`, tokio: `num_alive_tasks`)
    pub live_goroutines: u64,
    /// Threads that run goroutines. (Go: `/sched/threads/total`)
    pub threads: usize,
    /// Of those, the sleeping ones: spare threads, and threads of idle Ps.
    pub threads_idle: usize,
    /// Goroutine stacks that exist, in use or free.
    pub stacks: usize,
    /// Stacks that the kernel was asked to swap, and did not refuse, each time counted: [`page_out_after`](crate::Builder::page_out_after).
    pub stacks_paged_out: u64,
    /// Times that the Ps were placed again because the CPUs that the process may use had changed:
    /// its affinity or cpuset was changed, or a CPU went offline or online.
    pub replans: u64,
    /// Ps in use whose threads run on a CPU of another NUMA node than the one that the P and its
    /// memory belong to. This happens if there are more Ps than usable CPUs, or if the CPUs have
    /// changed since the runtime was built.
    pub ps_away: usize,
    /// Times that a P was retaken from a goroutine that blocked or computed for too long.
    pub retakes: u64,
    /// Times that a P was handed to another thread.
    pub handoffs: u64,
    /// Times that the kernel refused, in this process, to place memory on a NUMA node (`mbind`,
    /// `set_mempolicy`), as under the seccomp filters of containers. The memory is then on the node
    /// that touched it first, which is mostly the right one;
    /// [`Runtime::memory_placement`](crate::Runtime::memory_placement) shows where.
    pub placement_refusals: u64,
    /// Goroutines of this process that ended by a panic which nobody was told of: their handle was dropped, before or after
    /// that. A panic in the destructor of a result that nobody takes counts, too. One that a `join`, a group or a scope
    /// passes on is not counted.
    pub detached_panics: u64,
}

impl RuntimeMetrics {
    pub(crate) fn of(sched: &Sched) -> RuntimeMetrics {
        // Asked once, so that each P is counted once, also one that comes or leaves now.
        let in_use: Vec<usize> = sched.ps_in_use().map(|p| p.idx).collect();
        let all: Vec<_> = sched.ps.iter().map(PMetrics::of).collect();
        let position = |idx: usize| in_use.partition_point(|&used| used < idx);
        let nodes: Vec<_> = sched
            .nodes
            .iter()
            .map(|node| {
                let total = sum(&all[node.ps.clone()]);
                NodeMetrics::of(node, position(node.ps.start)..position(node.ps.end), total)
            })
            .collect();
        let places = sched.ps.iter().map(|p| PPlace::of(sched, p));
        let (used, mut retired): (Vec<_>, Vec<_>) = places
            .zip(all)
            .partition(|(place, _)| in_use.binary_search(&place.index).is_ok());
        retired.retain(|(place, _)| sched.were_in_use.contains(place.index));
        let (places, ps) = used.into_iter().unzip();
        RuntimeMetrics {
            poller: match sched.ps.iter().any(|p| p.poller.is_epoll()) {
                true => Poller::Epoll,
                false => Poller::IoUring,
            },
            retired,
            labels: sched.labels().iter().map(|l| LabelMetrics::of(l)).collect(),
            cpu_accounting: sched.config.cpu_accounting,
            cpu_time_without_p: Duration::from_nanos(sched.accounts.without_p_ns.load(Relaxed)),
            spawned_outside: sched.n_foreign.load(Relaxed),
            live_goroutines: sched.n_live(),
            threads: sched.n_ms.load(Relaxed),
            threads_idle: sched.n_spare_ms() + nodes.iter().map(|n| n.idle_ps).sum::<usize>(),
            stacks: nodes.iter().map(|n| n.stacks).sum(),
            stacks_paged_out: sched.n_paged_out.load(Relaxed),
            replans: sched.place.replans.load(Relaxed),
            ps_away: sched.place.n_away.load(Relaxed),
            retakes: sched.retakes.load(Relaxed),
            handoffs: sched.handoffs.load(Relaxed),
            placement_refusals: numa::n_refused(),
            detached_panics: spawn::n_detached_panics(),
            ps,
            places,
            nodes,
        }
    }

    /// The sum of all Ps' counters, including Ps that are no longer in use.
    #[must_use]
    pub fn total(&self) -> PMetrics {
        sum(self.ps.iter().chain(self.retired.iter().map(|(_, p)| p)))
    }
}

fn sum<'a>(all: impl IntoIterator<Item = &'a PMetrics>) -> PMetrics {
    let mut total = PMetrics::default();
    all.into_iter().for_each(|p| total.add(p));
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
    fn a_sum_keeps_the_bounds() {
        let mut sum = Histogram::default();
        for part in [histogram(&[1, 2]), Histogram::default(), histogram(&[1, 0])] {
            sum.add(&part);
        }
        assert_eq!(sum, histogram(&[2, 2]));
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

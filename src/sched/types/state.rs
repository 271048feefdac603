//! The scheduler's state: nodes, Ps, Ms, and the locks that protect them.
#![allow(unsafe_code)]

use windlass_ground::numbered::numbered;
use windlass_ground::offload_pool::Offload;
use windlass_ground::padded::Padded;
use windlass_ground::placed::Placed;
use windlass_ground::rate_limit::RateLimit;
use windlass_ground::stack::StackPool;
use windlass_ground::usable_cpus::UsableCpus;

use super::accounts::Accounts;
use super::debug_hooks::DebugHooks;
use super::events::Tracing;
use super::m::{Carrier, M, Note};
use super::p::P;
use super::stop_requests::StopRequests;
use crate::config::Config;
use crate::g::header::GRef;
use crate::g::slab::DepotId;
use crate::lock::{Lock, rank};
use crate::loom::native::atomic::{
    AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};
use crate::loom::native::{Arc, OnceLock, Weak};
use crate::sched::numa::policy::NodeView;
use crate::sched::numa::remote_peers::RemotePeers;
use crate::sched::queue::global::NodeQueue;
use crate::sched::queue::idle::{IdleNodes, IdleSet};
use crate::sys::process;
use crate::util::bitset::BitSet;

/// A NUMA node, as the runtime uses it.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) os_id: u32,
    /// The node that its memory is allocated from, by the kernel's number: itself, or the nearest
    /// node with memory. `None` if any node will do.
    pub(crate) memory: Option<u32>,
    pub(crate) depot: DepotId,
    /// Indexes of its Ps, contiguous.
    pub(crate) ps: std::ops::Range<usize>,
    pub(crate) queue: Padded<NodeQueue>,
    pub(crate) idle: Padded<IdleSet>,
    pub(crate) stacks: StackPool,
    pub(crate) remote_peers: RemotePeers,
    /// Number of its Ps in use. Ordering: written in a stopped world; a reader with an old value
    /// queues work where another P will find it a moment later.
    pub(crate) n_live: AtomicUsize,
}

impl Node {
    /// Number of its Ps that are not idle; a snapshot.
    pub(crate) fn n_busy(&self) -> usize {
        let n_live = self.n_live.load(Ordering::Relaxed);
        n_live.saturating_sub(self.idle.n_idle())
    }

    /// The node as a thief sees it.
    pub(crate) fn view(&self, now_ns: u64) -> NodeView {
        self.queue
            .summary
            .view(now_ns, || self.idle.n_without_work())
    }
}

numbered! {
    /// Phase of a runtime's life.
    #[derive(PartialOrd, Ord)]
    pub(crate) enum Phase {
        /// Built, or between two runs: goroutines may be queued before the first run.
        Ready,
        Running,
        /// The main goroutine has ended: all others are being cancelled.
        Cancelling,
        /// No goroutine is left: Ms leave their loops.
        Stopping,
        /// A run has ended; spawning is refused until the next.
        Ended,
    }
}

/// All Ms, and the spare ones.
#[derive(Debug, Default)]
pub(crate) struct Ms {
    /// Boxed: other threads hold pointers to an M.
    #[allow(clippy::vec_box, reason = "Ms must not move")]
    pub(crate) all: Vec<Box<M>>,
    /// Ms that sleep on their note without a P, or are about to.
    pub(crate) spare: Vec<*const Carrier>,
    /// Ms of `all` whose threads have ended, for the next threads.
    pub(crate) retired: Vec<*const M>,
    /// A P waits for a thread, and there was none: who lists a spare or ends a thread wakes sysmon, which
    /// looks at long intervals meanwhile.
    pub(crate) is_wanted: bool,
    pub(crate) threads: Vec<crate::loom::thread::JoinHandle<()>>,
}

impl Ms {
    /// Lists an M as a spare, once. It may still be on its way to sleep.
    pub(crate) fn add_spare(&mut self, m: &Carrier) {
        debug_assert!(
            m.next_p.load(Ordering::Relaxed).is_null(),
            "a spare M has a P on its way"
        );
        if !self.spare.contains(&std::ptr::from_ref(m)) {
            self.spare.push(m);
        }
    }
}

// SAFETY: the pointers name boxes in `all`, which live until the run ends.
unsafe impl Send for Ms {}

/// How other threads wake sysmon.
#[derive(Debug, Default)]
pub(crate) struct SysmonState {
    pub(crate) note: Note,
    /// Sysmon sleeps without limit, because every P is idle. Ordering: sequentially consistent
    /// against the sets of idle Ps, as in `idle`.
    pub(crate) deep: AtomicBool,
    /// Sysmon naps for long: a blocking section that needs its 20 µs must wake it.
    pub(crate) slow: AtomicBool,
    /// Sysmon naps for long while a P without work is in a blocking section: a goroutine queued on
    /// a node, which may have no P left to run it, must wake sysmon. Ordering: sequentially
    /// consistent: set before sysmon checks the queues, and read after the push.
    pub(crate) awaits_work: AtomicBool,
    /// The poller of a P without a thread has something, and none can be started: an M that finds nothing
    /// to run gives its P up, to be a thread for that one. Ordering: relaxed; written before an M is woken
    /// for it.
    pub(crate) calls_ms: AtomicBool,
    /// The same, where no M is idle: one that has goroutines to run gives its P up. Ordering: relaxed, a hint; the M
    /// that clears it comes.
    pub(crate) calls_busy_m: AtomicBool,
    /// The kernel's number of sysmon's thread; 0 before its first run. Ordering: relaxed, as those of
    /// the Ms: a number that is not there yet is that of an unknown thread.
    pub(crate) tid: AtomicI32,
}

/// The scheduler of one runtime.
#[derive(Debug)]
pub(crate) struct Sched {
    /// Itself, for handles.
    pub(crate) me: Weak<Sched>,
    /// `n_forks` of the process that it was made in. A child has neither its threads nor its rings.
    n_forks: usize,
    pub(crate) config: Config,
    pub(crate) pin: bool,
    pub(crate) nodes: Placed<Node>,
    /// All Ps that may ever be in use; those not in use are dead.
    pub(crate) ps: Placed<P>,
    /// Which Ps are in use. Ordering: as `Node::n_live`.
    pub(crate) in_use: BitSet,
    /// Those that were in use at some time.
    pub(crate) were_in_use: BitSet,
    /// How many Ps are in use. Ordering: as `Node::n_live`.
    pub(crate) n_procs: AtomicUsize,
    pub(crate) place: UsableCpus,
    pub(crate) world: StopRequests,
    pub(crate) ms: Lock<Ms>,
    /// Ordering: sequentially consistent; a parker sets its status and then reads the phase, the
    /// canceller sets the phase and then reads the statuses.
    phase: AtomicU32,
    /// Read at each push, and hardly ever written.
    pub(crate) idle_nodes: Padded<IdleNodes>,
    /// Goroutines spawned by threads that are not Ms. Ordering: see `n_live`.
    pub(crate) n_foreign: AtomicU64,
    /// Threads in the middle of such a spawn. Ordering: sequentially consistent; raised before the
    /// phase is read, so a thread that sets the phase and then reads 0 here has seen the last of
    /// them.
    pub(crate) n_entering: AtomicUsize,
    pub(crate) sysmon: SysmonState,
    pub(crate) offload: Offload,
    pub(crate) next_m: AtomicU64,
    pub(crate) n_ms: AtomicUsize,
    /// Ms that goroutines have locked. Ordering: relaxed, a limit.
    pub(crate) n_locked: AtomicUsize,
    /// Threads that ended before the run and are not yet joined. Ordering: relaxed, a hint for
    /// sysmon.
    pub(crate) n_retired: AtomicUsize,
    /// Stacks that sysmon gave to swap. Ordering: relaxed, a statistic.
    pub(crate) n_paged_out: AtomicU64,
    /// Whether `membarrier(2)` works here; without it no P is retaken from a goroutine that
    /// computes.
    pub(crate) membarrier: bool,
    /// Ps retaken from stuck Ms, and Ps given to another M. Ordering: relaxed, statistics.
    pub(crate) retakes: AtomicU64,
    pub(crate) handoffs: AtomicU64,
    /// Moves of the timers of a P to another that have begun, and that have ended. Ordering: sequentially consistent, against the
    /// locks of the timers: if a reader finds as many begun after its look at all timers as ended before it, it has missed none.
    pub(crate) timer_moves: [AtomicU64; 2],
    pub(crate) warned_threads: AtomicBool,
    /// Limits the lines on stderr about goroutines that could not start.
    pub(crate) failed_starts: RateLimit,
    pub(crate) tracing: Tracing,
    pub(crate) accounts: Accounts,
    /// A thread outside of the simulation has woken or spawned a goroutine, or a goroutine has
    /// started a thread. Ordering: relaxed; the run is stopped a moment later.
    #[cfg(feature = "sim")]
    pub(crate) met_outside: AtomicBool,
    /// Sysmon's debug hooks; set when the runtime is built.
    pub(crate) debug_hooks: OnceLock<DebugHooks>,
}

// SAFETY: every field is atomic, locked, immutable, or a P (see there).
unsafe impl Sync for Sched {}
// SAFETY: as for Sync.
unsafe impl Send for Sched {}

impl Sched {
    /// How many Ps are in use.
    #[inline]
    pub(crate) fn n_procs(&self) -> usize {
        self.n_procs.load(Ordering::Relaxed)
    }

    /// Whether `g` belongs to this runtime. Only such goroutines may enter its queues and run on
    /// its Ms: their stacks, slots and counts are this runtime's.
    #[inline(always)]
    pub(crate) fn owns(&self, g: GRef) -> bool {
        std::ptr::eq(g.sched(), std::ptr::from_ref(self).cast())
    }

    #[allow(clippy::too_many_arguments, reason = "called once, by the builder")]
    pub(crate) fn new(
        config: Config,
        pin: bool,
        nodes: Placed<Node>,
        ps: Placed<P>,
        place: UsableCpus,
        membarrier: bool,
    ) -> Arc<Sched> {
        let tracing = Tracing::new(config.trace_bytes);
        Arc::new_cyclic(|me| Sched {
            me: Weak::clone(me),
            n_forks: process::n_forks(),
            config,
            pin,
            nodes,
            in_use: BitSet::new(ps.len()),
            were_in_use: BitSet::new(ps.len()),
            ps,
            n_procs: AtomicUsize::new(0),
            place,
            world: StopRequests::default(),
            ms: Lock::new(rank::MS, Ms::default()),
            phase: AtomicU32::new(Phase::Ready as u32),
            idle_nodes: Padded::default(),
            n_foreign: AtomicU64::new(0),
            n_entering: AtomicUsize::new(0),
            sysmon: SysmonState::default(),
            offload: Offload::new(),
            next_m: AtomicU64::new(1),
            n_ms: AtomicUsize::new(0),
            n_locked: AtomicUsize::new(0),
            n_retired: AtomicUsize::new(0),
            n_paged_out: AtomicU64::new(0),
            membarrier,
            retakes: AtomicU64::new(0),
            handoffs: AtomicU64::new(0),
            timer_moves: [const { AtomicU64::new(0) }; 2],
            warned_threads: AtomicBool::new(false),
            failed_starts: RateLimit::default(),
            tracing,
            accounts: Accounts::default(),
            #[cfg(feature = "sim")]
            met_outside: AtomicBool::new(false),
            debug_hooks: OnceLock::new(),
        })
    }

    /// Whether this is the process that it was made in, and not a fork of that.
    pub(crate) fn is_in_its_process(&self) -> bool {
        self.n_forks == process::n_forks()
    }

    /// Whether something outside of the simulation has taken part in it.
    #[cfg(feature = "sim")]
    #[inline]
    pub(crate) fn met_outside(&self) -> bool {
        self.met_outside.load(Ordering::Relaxed)
    }

    /// Ps in use.
    pub(crate) fn ps_in_use(&self) -> impl Iterator<Item = &P> {
        self.in_use.iter().map(|i| &self.ps[i])
    }

    /// Begins or ends a kind of extra work per goroutine, on all Ps.
    pub(super) fn set_extra_work(&self, reason: u32, is_on: bool) {
        let ps = self.ps.iter();
        ps.for_each(|p| p.local.extra.set(reason, is_on));
    }

    #[inline(always)]
    pub(crate) fn phase(&self) -> Phase {
        Phase::ALL[self.phase.load(Ordering::SeqCst) as usize]
    }

    pub(crate) fn set_phase(&self, phase: Phase) {
        self.phase.store(phase as u32, Ordering::SeqCst);
    }

    #[inline(always)]
    pub(crate) fn node_of(&self, p: &P) -> &Node {
        &self.nodes[p.node_idx]
    }

    /// Idle Ps of all nodes. Reads a line of each node: for threads that look seldom.
    pub(crate) fn n_idle(&self) -> usize {
        self.nodes.iter().map(|node| node.idle.n_idle()).sum()
    }

    /// Whether all Ps but `p` are idle. Reads lines of other nodes only if those of its own are.
    pub(crate) fn is_alone(&self, p: &P) -> bool {
        let own = self.node_of(p);
        own.n_busy() <= 1
            && (self.nodes.iter()).all(|node| std::ptr::eq(node, own) || node.n_busy() == 0)
    }

    /// Whether there is more than one node, with Ps in use or not.
    #[inline(always)]
    pub(crate) fn is_numa(&self) -> bool {
        self.nodes.len() > 1
    }

    /// Ms that sleep without a P.
    pub(crate) fn n_spare_ms(&self) -> usize {
        self.ms.lock().spare.len()
    }

    /// Kernel thread ids of the runtime's threads.
    pub(crate) fn thread_ids(&self) -> Vec<i32> {
        let mut ids = self.offload.thread_ids();
        ids.push(self.sysmon.tid.load(Ordering::Relaxed));
        let ms = self.ms.lock();
        ids.extend(ms.all.iter().map(|m| m.tid.load(Ordering::Relaxed)));
        ids
    }

    /// Goroutines that were spawned and have not ended. Never too low: the ended ones are counted
    /// before the spawned ones.
    pub(crate) fn n_live(&self) -> u64 {
        let finished: u64 = self.ps.iter().map(|p| p.stats.finished.get()).sum();
        crate::loom::native::atomic::fence(Ordering::SeqCst);
        let spawned: u64 = self.ps.iter().map(|p| p.stats.spawned.get()).sum();
        (spawned + self.n_foreign.load(Ordering::SeqCst)).saturating_sub(finished)
    }

    /// The node `idx`, or the next one that has a P in use.
    pub(crate) fn live_node(&self, idx: usize) -> &Node {
        &self.nodes[self.live_node_idx(idx)]
    }

    /// The index of the node that [`Sched::live_node`] returns.
    pub(crate) fn live_node_idx(&self, idx: usize) -> usize {
        let n = self.nodes.len();
        (0..n)
            .map(|i| (idx + i) % n)
            .find(|&i| self.nodes[i].n_live.load(Ordering::Relaxed) != 0)
            .unwrap_or(idx)
    }

    /// The runtime's node with this kernel node number.
    pub(crate) fn node_with(&self, os_id: u32) -> Option<usize> {
        self.nodes.iter().position(|n| n.os_id == os_id)
    }

    /// Publishes the length of `p`'s queue to the other nodes, or that it is empty, if Ps of its own node that have
    /// nothing to do can take all of it. `true` if it has grown.
    #[inline]
    pub(crate) fn publish(&self, p: &P) -> bool {
        let node = self.node_of(p);
        let len = match p.runq.len() {
            0 => 0,
            len if len <= node.idle.n_without_work() => 0,
            len => len,
        };
        p.runq
            .published
            .publish(p.at_in_node, len, &node.queue.summary)
    }

    /// As [`Sched::publish`], called by the holder of `p` between two goroutines.
    #[inline]
    pub(crate) fn publish_own(&self, p: &P) -> bool {
        let has_more = self.publish(p);
        p.runq.published.moves_on(&self.node_of(p).queue.summary);
        has_more
    }

    /// The index of the node that the calling thread runs on now, or of the next one in use.
    pub(crate) fn nearest_node(&self) -> usize {
        if self.nodes.len() == 1 {
            return 0;
        }
        let os_id = crate::sys::affinity::current_node();
        self.live_node_idx(self.node_with(os_id).unwrap_or(0))
    }
}

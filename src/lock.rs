//! The runtime's own locks. They block the M, so they guard short sections that do not park,
//! do not allocate much and do not call user code. A thread takes them only in rising rank.

pub(crate) use windlass_ground::lock::{Guard, Lock};
/// For wait queues: a goroutine that parks keeps it locked across the switch, and the M unlocks it on its own stack when
/// the wait is visible. It has no rank. A thread may hold several (a select takes them in the order of their
/// addresses). Ranked locks may be taken while one is held, but not the other way round.
pub(crate) use windlass_ground::raw_lock::RawLock;

/// The lock order: a thread that holds a lock takes only locks of later ranks.
pub(crate) mod rank {
    use windlass_ground::lock::Rank;

    /// The list of all Ms and the spare ones (`sched::types::state`).
    pub(crate) const MS: Rank = Rank(0);
    /// A P's timers.
    pub(crate) const TIMERS: Rank = Rank(1);
    /// A node's queue.
    pub(crate) const NODE_QUEUE: Rank = Rank(2);
    /// The free stacks of a node.
    pub(crate) const STACKS: Rank = Rank(3);
    /// The free G slots of a node.
    pub(crate) const SLAB: Rank = Rank(4);
    /// The goroutines that wait on one descriptor (`poll::limit`).
    pub(crate) const WAITERS: Rank = Rank(5);
    /// The mode of a socket's open file description (`poll::fd`).
    pub(crate) const MODE: Rank = Rank(6);
    /// The waiters of an epoll poller (`netpoll::waiters`).
    pub(crate) const POLLER: Rank = Rank(7);
    /// The multishot poll of a stream (`netpoll::multishot_poll`).
    pub(crate) const MULTISHOT_POLL: Rank = Rank(8);
    /// The free buffers of a P's pool (`netpoll::pool`).
    pub(crate) const BUFFERS: Rank = Rank(9);
}

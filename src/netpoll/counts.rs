//! The counters of a poller; the same for a ring and for epoll.

use windlass_ground::counter::Counter;
use windlass_ground::histogram::Sizes;

use crate::loom::native::atomic::{AtomicU32, Ordering};

/// Counts of one poller.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Operations that have not completed, queued ones included. Ordering: relaxed; on a ring only
    /// the owner writes it, and for other threads it is a hint.
    inflight: AtomicU32,
    /// The operations in flight that stay armed whether or not a goroutine waits: multishot polls and
    /// accepts. Ordering: as above.
    armed: AtomicU32,
    /// Calls into the kernel: `io_uring_enter`, or `epoll_wait`.
    pub(crate) enters: Counter,
    pub(crate) submitted: Counter,
    pub(crate) completed: Counter,
    /// Reaps that found at least one completion.
    pub(crate) batches: Counter,
    /// Completions per batch, and entries submitted per enter.
    pub(crate) batch_sizes: Sizes,
    pub(crate) submit_sizes: Sizes,
}

impl Counts {
    #[inline(always)]
    pub(crate) fn inflight(&self) -> u32 {
        self.inflight.load(Ordering::Relaxed)
    }

    /// Counts an operation that begins. Only the owner of the poller may call this.
    #[inline(always)]
    pub(crate) fn begin(&self) {
        self.inflight.store(self.inflight() + 1, Ordering::Relaxed);
    }

    /// Counts `n` operations that have completed. Only the owner of the poller may call this.
    #[inline(always)]
    pub(crate) fn end(&self, n: usize) {
        self.inflight
            .store(self.inflight() - n as u32, Ordering::Relaxed);
        self.completed.add(n as u64);
    }

    /// Operations that stay armed whether or not a goroutine waits. They count as in flight.
    pub(crate) fn n_armed(&self) -> u32 {
        self.armed.load(Ordering::Relaxed)
    }

    /// Counts an operation that begins, and stays armed. Only the owner of the poller may call this.
    pub(crate) fn begin_armed(&self) {
        self.begin();
        self.armed.store(self.n_armed() + 1, Ordering::Relaxed);
    }

    /// Counts the end of an operation that stayed armed. Only the owner of the poller may call this.
    pub(crate) fn end_armed(&self) {
        self.end(1);
        self.armed.store(self.n_armed() - 1, Ordering::Relaxed);
    }

    /// Counts an operation that begins, where other threads may count its end.
    pub(crate) fn begin_shared(&self) {
        self.inflight.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the end of an operation that [`Counts::begin_shared`] counted. Any thread may call this.
    pub(crate) fn end_shared(&self) {
        self.inflight.fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts a batch of `n` completed operations. Called by the owner.
    pub(crate) fn note_batch(&self, n: usize) {
        self.completed.add(n as u64);
        self.note_reap(n);
    }

    /// Counts a batch of `n` completions or events of multishot polls. Called by the owner.
    pub(crate) fn note_reap(&self, n: usize) {
        self.batches.add(1);
        self.batch_sizes.record(n as u64);
    }
}

//! What a poller counts, the same for a ring and for epoll.

use crate::loom::native::atomic::{AtomicU32, Ordering};
use crate::util::counter::Counter;
use crate::util::histogram::Sizes;

/// Counts of one poller.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Operations that have not completed, queued ones included.
    /// Ordering: relaxed; the owner of a ring counts alone, and for everybody else it is
    /// a hint.
    inflight: AtomicU32,
    /// Those of them that nobody may wait for: polls, receives and accepts that stay armed.
    /// Ordering: as above.
    armed: AtomicU32,
    /// Calls into the kernel: `io_uring_enter`, or `epoll_wait`.
    pub(crate) enters: Counter,
    pub(crate) submitted: Counter,
    pub(crate) completed: Counter,
    /// Reaps that found at least one completion.
    pub(crate) batches: Counter,
    /// How many each brought, and how many each enter submitted.
    pub(crate) batch_sizes: Sizes,
    pub(crate) submit_sizes: Sizes,
}

impl Counts {
    #[inline(always)]
    pub(crate) fn inflight(&self) -> u32 {
        self.inflight.load(Ordering::Relaxed)
    }

    /// One more, by the only thread that counts.
    #[inline(always)]
    pub(crate) fn begin(&self) {
        self.inflight.store(self.inflight() + 1, Ordering::Relaxed);
    }

    /// `n` less, by the only thread that counts.
    #[inline(always)]
    pub(crate) fn end(&self, n: usize) {
        self.inflight
            .store(self.inflight() - n as u32, Ordering::Relaxed);
        self.completed.add(n as u64);
    }

    /// Operations that stay armed whether somebody waits or not; they are in flight.
    pub(crate) fn standing(&self) -> u32 {
        self.armed.load(Ordering::Relaxed)
    }

    /// One more that stays, by the only thread that counts.
    pub(crate) fn begin_standing(&self) {
        self.begin();
        self.armed.store(self.standing() + 1, Ordering::Relaxed);
    }

    /// One that stayed is over, by the only thread that counts.
    pub(crate) fn end_standing(&self) {
        self.end(1);
        self.armed.store(self.standing() - 1, Ordering::Relaxed);
    }

    /// One more, where other threads take some out.
    pub(crate) fn begin_shared(&self) {
        self.inflight.fetch_add(1, Ordering::Relaxed);
    }

    /// One less, by any thread.
    pub(crate) fn end_shared(&self) {
        self.inflight.fetch_sub(1, Ordering::Relaxed);
    }

    /// Operations completed together, as the owner saw.
    pub(crate) fn note_batch(&self, n: usize) {
        self.completed.add(n as u64);
        self.note_reap(n);
    }

    /// So much came together, as the owner saw: operations that completed, and what polls
    /// that stay had to tell.
    pub(crate) fn note_reap(&self, n: usize) {
        self.batches.add(1);
        self.batch_sizes.record(n as u64);
    }
}

//! Who holds a lock, for dumps: with the feature `lock-owners`. Without it, nothing of this is compiled in.
//!
//! A lock has the number of the goroutine that locked it. One that waits for the lock has the address of that number among
//! its locals. A dump reads it while it holds the wait (`g::snapshot`): the frame that waits borrows the lock, so it is there.
#![cfg_attr(
    not(feature = "lock-owners"),
    expect(clippy::unused_self, reason = "as with the feature")
)]

#[cfg(feature = "lock-owners")]
use crate::loom::native::atomic::{AtomicU64, Ordering};
#[cfg(feature = "lock-owners")]
use crate::sched::{types::current, wait::park};

/// The number of the goroutine that holds a lock, 0 for none or a plain thread.
#[derive(Debug)]
pub(super) struct Owner {
    /// Ordering: relaxed; written by the holder of the lock. A reader wants to know only what it is at some moment.
    #[cfg(feature = "lock-owners")]
    id: AtomicU64,
}

impl Owner {
    pub(super) const fn new() -> Owner {
        Owner {
            #[cfg(feature = "lock-owners")]
            id: AtomicU64::new(0),
        }
    }

    /// The caller has the lock now.
    #[inline(always)]
    pub(super) fn set(&self) {
        #[cfg(feature = "lock-owners")]
        {
            let id = current::g().map_or(0, crate::g::header::GRef::id);
            self.id.store(id, Ordering::Relaxed);
        }
    }

    /// The caller is about to unlock.
    #[inline(always)]
    pub(super) fn clear(&self) {
        #[cfg(feature = "lock-owners")]
        self.id.store(0, Ordering::Relaxed);
    }

    /// Calls `f`, which may wait for the lock.
    #[inline(always)]
    pub(super) fn while_waiting<R>(&self, f: impl FnOnce() -> R) -> R {
        #[cfg(feature = "lock-owners")]
        let _wait = {
            set_wait(&raw const self.id);
            EndsWait
        };
        f()
    }
}

#[cfg(feature = "lock-owners")]
fn set_wait(owner: *const AtomicU64) {
    if let Some(locals) = park::locals() {
        locals.waits_for.set(owner);
    }
}

/// Ends the wait also where it unwinds.
#[cfg(feature = "lock-owners")]
struct EndsWait;

#[cfg(feature = "lock-owners")]
impl Drop for EndsWait {
    fn drop(&mut self) {
        set_wait(std::ptr::null());
    }
}

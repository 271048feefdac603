//! A lock that its holder may take again, for the standard outputs.

use std::panic::{RefUnwindSafe, UnwindSafe};

use crate::loom::native::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sched::types::current;
use crate::sync::raw_mutex::RawMutex;
use crate::sync::waitlist::{self, WaitError};
use crate::sys::sched::gettid;

/// The lock. The holder is a goroutine, wherever it runs, or a plain thread.
#[derive(Debug)]
pub(super) struct Reentrant {
    raw: RawMutex,
    /// The holder, as [`me`]; 0 if there is none. Ordering: relaxed. Everybody writes only its own
    /// number and takes it away again, so whoever reads its own number holds the lock.
    holder: AtomicU64,
    /// How often the holder has taken it. Ordering: relaxed, as only the holder accesses it.
    depth: AtomicU32,
}

// A lock protects nothing here but the order of writes.
impl UnwindSafe for Reentrant {}
impl RefUnwindSafe for Reentrant {}

impl Reentrant {
    pub(super) fn new() -> Reentrant {
        Reentrant {
            raw: RawMutex::new(),
            holder: AtomicU64::new(0),
            depth: AtomicU32::new(0),
        }
    }

    /// Takes the lock. Unwinds if the run of the caller ends.
    pub(super) fn lock(&self) {
        if !self.enter() {
            if self.raw.lock().is_err() {
                waitlist::unwind();
            }
            self.begin();
        }
    }

    /// As [`Reentrant::lock`], but the wait also ends when the ambient context is done.
    ///
    /// # Errors
    ///
    /// The reason why the lock was not taken.
    pub(super) fn lock_in_context(&self) -> Result<(), WaitError> {
        if !self.enter() {
            if !self.raw.try_lock() {
                self.raw.lock_in_context()?;
            }
            self.begin();
        }
        Ok(())
    }

    /// Takes the lock again if the caller holds it.
    fn enter(&self) -> bool {
        let is_mine = self.holder.load(Ordering::Relaxed) == me();
        if is_mine {
            let depth = self.depth.load(Ordering::Relaxed);
            self.depth.store(depth + 1, Ordering::Relaxed);
        }
        is_mine
    }

    fn begin(&self) {
        self.holder.store(me(), Ordering::Relaxed);
        self.depth.store(1, Ordering::Relaxed);
    }

    /// Ends one taking of the lock.
    pub(super) fn unlock(&self) {
        let depth = self.depth.load(Ordering::Relaxed) - 1;
        self.depth.store(depth, Ordering::Relaxed);
        if depth == 0 {
            self.holder.store(0, Ordering::Relaxed);
            self.raw.unlock();
        }
    }
}

/// A number of the calling goroutine or plain thread that no other has at the same time.
fn me() -> u64 {
    match current::g() {
        Some(g) => g.id() << 1,
        None => (gettid() as u64) << 1 | 1,
    }
}

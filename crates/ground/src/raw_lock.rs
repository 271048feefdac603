//! A lock of one word, which does not know its holder: the wait queues of channels and locks keep it over a switch.

use windlass_sys::clock::NEVER;

use crate::loom::{self, AtomicU32, Ordering, const_fn};

/// A lock without a value: one thread may lock it and another unlock it.
///
/// 0: free. 1: locked. 2: locked, and threads may sleep on it. Ordering: locking acquires,
/// unlocking releases.
#[derive(Debug)]
pub struct RawLock(AtomicU32);

const FREE: u32 = 0;
const LOCKED: u32 = 1;
const CONTENDED: u32 = 2;

/// How often a thread polls a locked lock before it sleeps on it. All polls together take some
/// 20 µs; the critical sections are far shorter than a system call.
const LOOKS: u32 = if cfg!(loom) { 0 } else { 7 };
/// PAUSE instructions (some 10 to 40 ns each) after the first poll. Each later wait is four times
/// as long, up to the maximum. A thread that polls often takes the lock's cache line from the
/// holder, and threads that alternate at the lock each begin with a cache miss. Backing off lets
/// the thread that has the line use it for a while.
const FIRST_PAUSES: u32 = 4;
const MOST_PAUSES: u32 = 256;

impl RawLock {
    const_fn! {
        /// A lock that is free.
        pub const fn new() -> RawLock {
            RawLock(AtomicU32::new(FREE))
        }
    }

    /// Locks it if it is free. `true` if it was.
    #[inline]
    pub fn try_lock(&self) -> bool {
        self.0
            .compare_exchange(FREE, LOCKED, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// Locks it, and sleeps until it can.
    #[inline]
    pub fn lock(&self) {
        if !self.try_lock() {
            self.lock_contended();
        }
    }

    #[cold]
    fn lock_contended(&self) {
        let mut pauses = FIRST_PAUSES;
        for _ in 0..LOOKS {
            if self.0.load(Ordering::Relaxed) == FREE && self.try_lock() {
                return;
            }
            for _ in 0..pauses {
                loom::spin_loop();
            }
            pauses = (pauses * 4).min(MOST_PAUSES);
        }
        while self.0.swap(CONTENDED, Ordering::Acquire) != FREE {
            loom::futex_wait(&self.0, CONTENDED, NEVER);
        }
    }

    /// Releases the lock, which the caller holds. Its memory may be freed as soon as it is
    /// unlocked, so nothing of it is read after that.
    #[inline]
    pub fn unlock(&self) {
        let word = &raw const self.0;
        if self.0.swap(FREE, Ordering::Release) == CONTENDED {
            loom::futex_wake_one(word);
        }
    }
}

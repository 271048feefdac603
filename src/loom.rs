//! The one door to atomics for the lock-free pieces that loom checks.
//!
//! Under `cfg(loom)` these are loom's model-checked twins, so the run queue, a
//! goroutine's status and the idle protocol are tested over every interleaving;
//! otherwise they are `std`'s, at no cost. Code that loom never models uses
//! `std` directly.

#[cfg(loom)]
pub(crate) use ::loom::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};

/// Stands behind sequentially consistent accesses that a later load must not pass.
/// loom takes such accesses for acquire-release ones and honours only fences, so its
/// models need one here; for the real atomics the accesses themselves suffice.
#[inline(always)]
pub(crate) fn after_seq_cst() {
    #[cfg(loom)]
    ::loom::sync::atomic::fence(Ordering::SeqCst);
}

/// A pause in a loop that waits for another thread.
#[inline(always)]
pub(crate) fn spin_loop() {
    #[cfg(not(loom))]
    std::hint::spin_loop();
    #[cfg(loom)]
    ::loom::thread::yield_now();
}

/// Sleeps while `word` holds `expected`, for at most `timeout_ns`; may return early. In a
/// model only a wait without limit sleeps.
pub(crate) fn futex_wait(word: &AtomicU32, expected: u32, timeout_ns: u64) {
    #[cfg(not(loom))]
    crate::sys::futex::wait(word, expected, timeout_ns);
    #[cfg(loom)]
    if timeout_ns == u64::MAX {
        futex::wait(word, expected);
    } else {
        ::loom::thread::yield_now();
    }
}

/// Wakes one thread that sleeps on the word at `word`, which may be gone.
#[cfg_attr(not(loom), inline(always))]
pub(crate) fn futex_wake_one(word: *const AtomicU32) {
    #[cfg(not(loom))]
    crate::sys::futex::wake_one(word);
    #[cfg(loom)]
    futex::wake(word);
}

/// The kernel's futexes for models, which so find a sleeper that nobody wakes: one lock
/// and one condition for all words, so that wakes are spurious for others.
#[cfg(loom)]
mod futex {
    use ::loom::sync::{Condvar, Mutex};

    use super::{AtomicU32, Ordering};

    ::loom::lazy_static! {
        static ref SLEEPERS: (Mutex<()>, Condvar) = (Mutex::new(()), Condvar::new());
    }

    pub(super) fn wait(word: &AtomicU32, expected: u32) {
        let table = SLEEPERS.0.lock().unwrap();
        if word.load(Ordering::Relaxed) == expected {
            drop(SLEEPERS.1.wait(table).unwrap());
        }
    }

    pub(super) fn wake(_word: *const AtomicU32) {
        let table = SLEEPERS.0.lock().unwrap();
        SLEEPERS.1.notify_all();
        drop(table);
    }
}

/// A `const fn`, but in models: loom's atomics cannot be made in constants.
macro_rules! const_fn {
    ($(#[$attribute:meta])* $vis:vis const fn $($rest:tt)*) => {
        #[cfg(not(loom))]
        $(#[$attribute])*
        $vis const fn $($rest)*

        #[cfg(loom)]
        $(#[$attribute])*
        $vis fn $($rest)*
    };
}
pub(crate) use const_fn;

//! The one door to atomics, locks, threads and waits of the runtime.
//!
//! Three back ends stand behind it:
//!
//! - `std`'s types and the kernel's futexes: every normal build, at no cost.
//! - loom's model-checked twins (`cfg(loom)`, `make loom`): single pieces, such as the run
//!   queue, a goroutine's status or the idle protocol, over every interleaving.
//! - the explorer's (`cfg(explore)`, `make explore`): the whole runtime with its real stacks,
//!   where every operation is a point at which the explorer chooses the next thread.
//!
//! loom replaces only what is named here at the top: the pieces that it models use these
//! names. Everything else uses [`native`], which stays `std`'s under `cfg(loom)`.
//! `tests/tidy.rs` checks that nobody goes around the door.

pub mod native;
#[cfg(any(loom, miri))]
pub mod models;
pub mod oracle;
#[cfg(all(loom, orders))]
mod weaker;

#[cfg(all(loom, not(orders)))]
pub use ::loom::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, fence};

#[cfg(not(loom))]
pub use native::atomic::{AtomicPtr, AtomicU32, AtomicU64, fence};

#[cfg(all(loom, orders))]
pub use weaker::{AtomicPtr, AtomicU32, AtomicU64, fence};

pub use native::atomic::Ordering;

/// A cell whose accesses an atomic orders: loom reports those that are concurrent.
#[cfg(loom)]
pub use ::loom::cell::Cell;

#[cfg(not(loom))]
pub use std::cell::Cell;

pub use native::thread;

#[cfg(loom)]
pub use ::loom::sync::{Mutex, MutexGuard};

#[cfg(not(loom))]
pub use native::{Mutex, MutexGuard};

/// Stands behind a sequentially consistent store or read-modify-write that a later load must not
/// pass. C++20 orders such an access with later sequentially consistent ones only, and aarch64
/// lets other loads pass its store; loom takes it for an acquire-release one. So this is a fence
/// there, and under Miri, which knows no CPU. On x86 the access itself is a full barrier, and only the
/// compiler has to be held back.
#[inline(always)]
#[cfg_attr(orders, track_caller)]
pub fn after_seq_cst() {
    #[cfg(all(loom, orders))]
    if weaker::is_x86() {
        return;
    }
    if cfg!(all(
        any(target_arch = "x86", target_arch = "x86_64"),
        not(any(loom, miri))
    )) {
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
    } else {
        fence(Ordering::SeqCst);
    }
}

/// A pause in a loop that waits for another thread.
#[inline(always)]
#[cfg_attr(explore, track_caller)]
pub fn spin_loop() {
    #[cfg(not(loom))]
    native::hint::spin_loop();
    #[cfg(loom)]
    ::loom::thread::yield_now();
}

/// Sleeps while `word` holds `expected`, for at most `timeout_ns`; may return early. In a
/// model only a wait without limit sleeps.
#[cfg_attr(explore, track_caller)]
pub fn futex_wait(word: &AtomicU32, expected: u32, timeout_ns: u64) {
    #[cfg(not(loom))]
    native::futex::wait(word, expected, timeout_ns);
    #[cfg(loom)]
    if timeout_ns == u64::MAX {
        futex::wait(word, expected);
    } else {
        ::loom::thread::yield_now();
    }
}

/// Wakes one thread that sleeps on the word at `word`, which may be gone.
#[cfg_attr(not(loom), inline(always))]
#[cfg_attr(explore, track_caller)]
pub fn futex_wake_one(word: *const AtomicU32) {
    #[cfg(not(loom))]
    native::futex::wake_one(word);
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
#[macro_export]
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
pub use const_fn;

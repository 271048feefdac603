//! Types that no model of loom replaces: `std`'s, under `cfg(loom)` too; the explorer's under
//! `cfg(explore)`.
//!
//! Each name means what it means in `std`, so a file needs to change nothing but its imports.

pub use std::sync::{Arc, LazyLock, Once, PoisonError, Weak};

#[cfg(not(explore))]
pub use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, RwLock, mpsc};

#[cfg(explore)]
pub use windlass_explorer::{
    Condvar, Mutex, MutexGuard, OnceLock, RwLock, facade as thread, sync_atomic as atomic,
    sync_mpsc as mpsc,
};

pub mod hint {
    //! `std::hint`.

    #[cfg(not(explore))]
    pub use std::hint::spin_loop;
    #[cfg(explore)]
    pub use windlass_explorer::spin_loop;
}

pub mod futex {
    //! The kernel's futexes.

    #[cfg(explore)]
    pub use windlass_explorer::{futex_wait as wait, futex_wake_one as wake_one};
    #[cfg(not(explore))]
    pub use windlass_sys::futex::{wait, wake_one};
}

#[cfg(not(explore))]
pub mod atomic {
    //! `std::sync::atomic`.

    pub use std::sync::atomic::{
        AtomicBool, AtomicI32, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize,
        Ordering, compiler_fence, fence,
    };
}

#[cfg(not(explore))]
pub mod thread {
    //! `std::thread`.

    pub use std::thread::{
        Builder, JoinHandle, Thread, ThreadId, current, park, park_timeout, sleep, yield_now,
    };
}

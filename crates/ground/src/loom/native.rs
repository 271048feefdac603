//! Types that no model of loom replaces: `std`'s, under `cfg(loom)` too; the explorer's under
//! `cfg(explore)`.
//!
//! Each name means what it means in `std`, so a file needs to change nothing but its imports.

pub(crate) use std::sync::{Arc, LazyLock, Once, PoisonError, Weak};

#[cfg(not(explore))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, RwLock, mpsc};

#[cfg(explore)]
pub(crate) use windlass_explorer::{
    Condvar, Mutex, MutexGuard, OnceLock, RwLock, facade as thread, sync_atomic as atomic,
    sync_mpsc as mpsc,
};

pub(crate) mod hint {
    //! `std::hint`.

    #[cfg(not(explore))]
    pub(crate) use std::hint::spin_loop;
    #[cfg(explore)]
    pub(crate) use windlass_explorer::spin_loop;
}

pub(crate) mod futex {
    //! The kernel's futexes.

    #[cfg(not(explore))]
    pub(crate) use crate::sys::futex::{wait, wake_one};
    #[cfg(explore)]
    pub(crate) use windlass_explorer::{futex_wait as wait, futex_wake_one as wake_one};
}

#[cfg(not(explore))]
pub(crate) mod atomic {
    //! `std::sync::atomic`.

    pub(crate) use std::sync::atomic::{
        AtomicBool, AtomicI32, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize,
        Ordering, compiler_fence, fence,
    };
}

#[cfg(not(explore))]
pub(crate) mod thread {
    //! `std::thread`.

    pub(crate) use std::thread::{
        Builder, JoinHandle, Thread, ThreadId, current, park, park_timeout, sleep, yield_now,
    };
}

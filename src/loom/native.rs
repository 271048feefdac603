//! What no model of loom replaces: `std`'s types, under `cfg(loom)` too.
//!
//! Each name means what it means in `std`, so a file needs to change nothing but its imports.

pub(crate) use std::sync::{
    Arc, Condvar, LazyLock, Mutex, MutexGuard, Once, OnceLock, PoisonError, RwLock, Weak, mpsc,
};

pub(crate) use std::hint;

pub(crate) use crate::sys::futex;

pub(crate) mod atomic {
    //! `std::sync::atomic`.

    pub(crate) use std::sync::atomic::{
        AtomicBool, AtomicI32, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize,
        Ordering, compiler_fence, fence,
    };
}

pub(crate) mod thread {
    //! `std::thread`.

    pub(crate) use std::thread::{
        Builder, JoinHandle, Thread, current, park, park_timeout, scope, sleep, yield_now,
    };
}

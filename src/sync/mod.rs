//! Synchronization for goroutines and plain threads: the types of `std::sync`, a [`Semaphore`] and
//! Go's [`WaitGroup`].
//!
//! They work between goroutines, between plain threads, and between both, so `use std::sync::X` can
//! be replaced by `use windlass::sync::X`. The items of `std::sync` that never wait ([`Arc`],
//! [`atomic`]) are re-exported.
//!
//! Waiters are served first in, first out, with one exception: a running goroutine or thread may
//! take a [`Mutex`] before its waiters, as long as no waiter has waited for 1 ms.
//!
//! # Contexts
//!
//! An ambient [`context`](crate::context) ends waits for the permits of a [`Semaphore`], and waits
//! of a [`Condvar`] that have a timeout. The other waits have a variant with a context argument:
//! [`Mutex::lock_context`], [`Condvar::wait_context`], [`WaitGroup::wait_context`] and so on.
//!
//! # Runtime shutdown
//!
//! A goroutine that waits here when its runtime shuts down unwinds. docs/SAFETY.md says what
//! happens to guards and waiters then.

pub(crate) mod waitq;
pub(crate) mod waitlist;
pub(crate) mod poison;
pub(crate) mod raw_mutex;
mod mutex;
mod condvar;
pub(crate) mod raw_rwlock;
mod rwlock;
mod semaphore;
mod barrier;
mod wait_group;
mod once;
mod once_lock;
mod lazy_lock;
// Channels are built on the locks here, so its code is with theirs.
#[path = "../channel/mpsc.rs"]
pub mod mpsc;

pub use std::sync::{Arc, LockResult, PoisonError, TryLockError, TryLockResult, Weak, atomic};

pub use barrier::{Barrier, BarrierWaitResult};
pub use condvar::{Condvar, WaitTimeoutResult};
pub use lazy_lock::LazyLock;
pub use mutex::{Mutex, MutexGuard};
pub use once::{Once, OnceState};
pub use once_lock::OnceLock;
pub use rwlock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use semaphore::{
    AcquireError, AcquireTimeoutError, Semaphore, SemaphorePermit, TryAcquireError,
};
pub use wait_group::WaitGroup;

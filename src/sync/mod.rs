//! Locks and other things to wait for, with the names of `std::sync`; and a semaphore, and
//! Go's wait group.
//!
//! They work between goroutines, between plain threads, and across the two, so that
//! `use std::sync::X` may become `use windlass::sync::X`. What waits for nothing is
//! `std`'s own, and re-exported here.
//!
//! Waiters are served first in, first out; but a [`Mutex`] may be taken by who comes later,
//! as long as nobody has waited for 1 ms.
//!
//! # Contexts
//!
//! An ambient [`context`](crate::context) ends waits for the permits of a [`Semaphore`] and
//! those of a [`Condvar`] that have a timeout. The others have a form that is handed one:
//! [`Mutex::lock_context`], [`Condvar::wait_context`], [`WaitGroup::wait_context`], ..
//!
//! # The end of a run
//!
//! A goroutine that waits here when its runtime ends unwinds. docs/SAFETY.md tells what
//! becomes of guards and waiters then.

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

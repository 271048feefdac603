//! Synchronization for goroutines and plain threads: the types of `std::sync`, a [`Semaphore`],
//! Go's [`WaitGroup`], [`SingleFlight`] and [`Pool`], and tokio's [`Notify`].
//!
//! They work between goroutines, between plain threads, and between both, so `use std::sync::X` can
//! be replaced by `use windlass::sync::X`. The items of `std::sync` that never wait ([`Arc`],
//! [`atomic`]) are re-exported.
//!
//! Waiters are served first in, first out, with one exception: a running goroutine or thread may
//! take a [`Mutex`] before its waiters, as long as no waiter has waited for 1 ms.
//!
//! # Owned guards
//!
//! A lock or semaphore in an [`Arc`] has a second form of its methods, named `_owned`, whose guard
//! borrows nothing and may outlive the caller's function: [`Mutex::lock_owned`],
//! [`RwLock::read_owned`], [`Semaphore::acquire_owned`] and so on.
//!
//! # A concurrent map
//!
//! There is none here, because crates serve. The reads of papaya take no lock, but what they return
//! lives as long as a guard: the one of `pin` belongs to its thread and must not be kept across a call
//! that parks, the one of `pin_owned` may be. dashmap and scc lock a part of the map in each call,
//! which blocks the thread for the time of a lookup or an insertion. That is fine as long as no
//! goroutine waits while it holds a reference into the map, such as dashmap's `Ref` or an entry of
//! scc: then the threads of others that need this part are blocked meanwhile.
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

pub(crate) mod tag;
pub(crate) mod waitq;
pub(crate) mod waitlist;
pub(crate) mod poison;
mod guard;
mod owner;
pub(crate) mod raw_mutex;
mod mutex;
mod condvar;
pub(crate) mod raw_rwlock;
mod rwlock;
mod semaphore;
mod owned_permit;
mod notify;
mod barrier;
mod wait_group;
mod once;
mod once_lock;
mod lazy_lock;
mod single_flight;
mod pool;
// Channels are built on the locks here, so its code is with theirs.
#[path = "../channel/mpsc.rs"]
pub mod mpsc;

pub use std::sync::{Arc, LockResult, PoisonError, TryLockError, TryLockResult, Weak, atomic};

pub use barrier::{Barrier, BarrierWaitResult};
pub use condvar::{Condvar, WaitTimeoutResult};
pub use lazy_lock::LazyLock;
pub use mutex::{Mutex, MutexGuard, OwnedMutexGuard};
pub use notify::{Listener, Notify};
pub use once::{Once, OnceState};
pub use once_lock::OnceLock;
pub use owned_permit::OwnedSemaphorePermit;
pub use pool::{Pool, Pooled};
pub use rwlock::{
    OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock, RwLockReadGuard, RwLockWriteGuard,
};
pub use semaphore::{
    AcquireError, AcquireTimeoutError, Semaphore, SemaphorePermit, TryAcquireError,
};
pub use single_flight::SingleFlight;
pub use wait_group::WaitGroup;

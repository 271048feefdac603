//! The netpoller: one io_uring ring per P.
//!
//! It is passive: the scheduler queues entries, flushes them, looks at the
//! completion queue and gets back a list of goroutines that are now runnable.
//! Nothing here schedules, parks or wakes an M.
//!
//! `ring` is the interface that another poller (epoll, where a container forbids
//! io_uring) will stand behind: queue an operation, flush, reap, wait, wake.

pub(crate) mod probe;
pub(crate) mod op;
pub(crate) mod sqe;
pub(crate) mod ring;

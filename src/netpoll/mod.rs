//! The netpoller: one poller per P, an io_uring ring, or epoll where that is denied.
//!
//! The netpoller is passive: the scheduler queues requests, flushes them, reaps completions and
//! gets back a list of goroutines that are now runnable. Nothing here schedules, parks or wakes an
//! M.
//!
//! `poller` is the interface; `ring` and `epoll` implement it. `choose` picks one of them from what
//! `sys::probe` finds.

pub(crate) mod pool;
pub(crate) mod poll_desc;
pub(crate) mod op;
pub(crate) mod multishot_poll;
pub(crate) mod counts;
pub(crate) mod ring;
mod dispatch_events;
pub(crate) mod waiters;
pub(crate) mod epoll;
pub(crate) mod poller;
mod owner;
pub(crate) mod choose;

//! Cancellation, deadlines and values, handed down a tree of calls: Go's context.
//!
//! A [`Context`] is a value to pass on and to clone. What comes from it (by
//! [`with_cancel`](Context::with_cancel), [`with_timeout`](Context::with_timeout), ..) is done at
//! the latest when it is. Code looks at [`err`](Context::err), waits with
//! [`wait`](Context::wait), or runs a part of itself in [`run`](Context::run): there the
//! waits themselves end when the context is done.
//!
//! # What a context ends
//!
//! Inside [`Context::run`], once the context is done:
//!
//! | a wait                                     | ends                            |
//! |--------------------------------------------|---------------------------------|
//! | of a socket                                | in an `io::Error`, below        |
//! | of `sleep`, `task::park`                   | early                           |
//! | for a message or room in a channel         | as if disconnected; one with a timeout as if the time was over |
//! | for permits of a `Semaphore`               | in its error; likewise          |
//! | of a `Condvar` with a timeout              | as if the time was over         |
//! | `join_timeout`                             | with the handle                 |
//! | of a `_context` form, below                | in its error                    |
//! | for anything else: a lock, a notification without a timeout, `Barrier`, `WaitGroup`, `Once` and its cells, `join`, a select | not at all: the names of `std` have no way to say so |
//!
//! A socket's error has the kind `TimedOut` for a deadline and `Other` for a
//! cancellation, and holds an [`Error`] ([`io::Error::get_ref`](std::io::Error::get_ref)).
//! No byte is lost: an operation that had moved any gives their number instead, and the
//! next one the error. Calls that would not need to wait fail, too. The buffer is the
//! caller's again when the call returns.
//!
//! Of nested calls of `run` all contexts count. [`shield`] keeps them from what runs in
//! it, to clean up. Goroutines that are spawned inside inherit nothing: hand them a clone
//! and let them call `run`. So does `offload`'s closure, which runs elsewhere.
//!
//! On a plain thread a deadline ends a wait as exactly as on a goroutine. A cancellation
//! is noticed within a millisecond.
//!
//! # Waits that are handed a context
//!
//! What waits without a word for "cut short" has a second form that is handed a context:
//! its name ends in `_context`, and it gives an [`Error`] or what the first form gives.
//! The context's end ends the wait, and so does that of the ambient ones:
//! [`Context::background`] leaves it to those alone.
//!
//! | of                                         | are                             |
//! |--------------------------------------------|---------------------------------|
//! | [`Mutex`], [`RwLock`]                      | `lock_context`, `read_context`, `write_context` |
//! | [`Condvar`]                                | `wait_context`, `wait_while_context` |
//! | [`Semaphore`]                              | `acquire_context`               |
//! | [`Barrier`], [`WaitGroup`]                 | `wait_context`                  |
//! | [`Once`], [`OnceLock`], [`LazyLock`]       | `call_once_context`, `wait_context`, `get_or_init_context`, `force_context` |
//! | [`JoinHandle`], [`ScopedJoinHandle`]       | `join_context`: with the handle, as `join_timeout` |
//!
//! For a select there is an arm: `recv(ctx.done())`.
//!
//! They end waits only: what can be had at once is given also when the context is done.
//! Whoever gives up is no longer in the queue when the call returns, and what was to be
//! its own goes to who waits behind it.
//!
//! [`Mutex`]: crate::sync::Mutex
//! [`RwLock`]: crate::sync::RwLock
//! [`Condvar`]: crate::sync::Condvar
//! [`Semaphore`]: crate::sync::Semaphore
//! [`Barrier`]: crate::sync::Barrier
//! [`WaitGroup`]: crate::sync::WaitGroup
//! [`Once`]: crate::sync::Once
//! [`OnceLock`]: crate::sync::OnceLock
//! [`LazyLock`]: crate::sync::LazyLock
//! [`JoinHandle`]: crate::task::JoinHandle
//! [`ScopedJoinHandle`]: crate::task::ScopedJoinHandle

mod tree;
mod waits;

pub use crate::sched::ambient::Error;

pub use tree::{Canceller, Context, shield};

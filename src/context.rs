//! Cancellation, deadlines and values for a tree of calls: Go's context.
//!
//! A [`Context`] is a value that callers pass on and clone. A child context, derived by
//! [`with_cancel`](Context::with_cancel), [`with_timeout`](Context::with_timeout) and the like, is
//! done at the latest when its parent is done. Code checks [`err`](Context::err), waits with
//! [`wait`](Context::wait), or calls a function in [`run`](Context::run): inside it, the context is
//! *ambient*, and the waits end when it is done.
//!
//! # What a context ends
//!
//! Inside [`Context::run`], after the context is done:
//!
//! | a wait                                     | ends                            |
//! |--------------------------------------------|---------------------------------|
//! | of a socket, pipe, FIFO, child or signal   | with an `io::Error`, see below  |
//! | of `sleep`, `task::park`                   | early, without an error         |
//! | of a channel, for a message or for room    | as if disconnected; with a timeout, as if the time was over |
//! | of a `Semaphore`, for permits              | with its error; with a timeout, as if the time was over |
//! | of a `Condvar` or a `Notify` with a timeout | as if the time was over        |
//! | of `closed_timeout` of a sender            | as if the time was over         |
//! | of `join_timeout`                          | with the handle                 |
//! | of a `_context` method, see below          | with an [`Error`]               |
//! | all others: a lock, a notification without a timeout, `Barrier`, `WaitGroup`, `Once` and its cells, `SingleFlight`, `join`, a sender's `closed`, a select | not at all: the signatures of `std` have no such error |
//!
//! This `io::Error` has the kind `TimedOut` for a deadline and `Other` for a cancellation. It
//! contains an [`Error`] ([`io::Error::get_ref`](std::io::Error::get_ref)). No byte is lost: an
//! operation that has moved bytes returns their number, and the next operation fails. A call that
//! would not have to wait fails, too. The buffer is free to use when the call returns.
//!
//! If calls of `run` are nested, all their contexts apply. [`shield`] hides them from a function,
//! for clean-up. Goroutines that are spawned inside do not inherit the ambient contexts: spawn them
//! with [`task::spawn_in`], or in a [`task::scope_in`]. Nor does the closure of `offload`, which
//! runs on another thread: pass it a clone on which it calls `run`.
//!
//! On a plain thread, in a [`blocking`](crate::blocking) section and in `offload`'s closure, a deadline
//! ends a wait as precisely as on a goroutine. A cancellation is noticed within a millisecond. There
//! `task::park` may also return early while the context is not done, and an open of a device is not
//! ended; nor is a read of a terminal or of a FIFO of which another reader has just taken the bytes.
//! Nowhere does a context end a write of which a terminal has taken a part only.
//!
//! # Waits with a context as argument
//!
//! A waiting method whose result cannot report an early end has a second form, named with the
//! suffix `_context`. It takes a context, and returns an [`Error`] or the result of the first form.
//! The wait ends when this context or an ambient context is done. With [`Context::background`],
//! only the ambient contexts end it.
//!
//! | type                                       | methods                         |
//! |--------------------------------------------|---------------------------------|
//! | [`Mutex`], [`RwLock`]                      | `lock_context`, `read_context`, `write_context`; `lock_owned_context` and so on |
//! | [`Condvar`]                                | `wait_context`, `wait_while_context` |
//! | [`Semaphore`]                              | `acquire_context`, `acquire_owned_context` |
//! | [`Notify`], [`Listener`]                   | `wait_context`                  |
//! | [`SingleFlight`]                           | `run_context`                   |
//! | [`oneshot::Sender`], [`broadcast::Sender`], [`watch::Sender`] | `closed_context` |
//! | [`Barrier`], [`WaitGroup`]                 | `wait_context`                  |
//! | [`Once`], [`OnceLock`], [`LazyLock`]       | `call_once_context`, `wait_context`, `get_or_init_context`, `force_context` |
//! | [`JoinHandle`], [`ScopedJoinHandle`]       | `join_context`: returns the handle, as `join_timeout` |
//!
//! A select uses the arm `recv(ctx.done())`.
//!
//! These methods end waits only: if they need not wait, they succeed even if the context is done. A
//! caller that gives up has left the queue when the call returns, and its grant goes to the next
//! waiter.
//!
//! [`task::spawn_in`]: crate::task::spawn_in
//! [`task::scope_in`]: crate::task::scope_in
//! [`Mutex`]: crate::sync::Mutex
//! [`RwLock`]: crate::sync::RwLock
//! [`Condvar`]: crate::sync::Condvar
//! [`Semaphore`]: crate::sync::Semaphore
//! [`Notify`]: crate::sync::Notify
//! [`Listener`]: crate::sync::Listener
//! [`SingleFlight`]: crate::sync::SingleFlight
//! [`oneshot::Sender`]: crate::channel::oneshot::Sender
//! [`broadcast::Sender`]: crate::channel::broadcast::Sender
//! [`watch::Sender`]: crate::channel::watch::Sender
//! [`Barrier`]: crate::sync::Barrier
//! [`WaitGroup`]: crate::sync::WaitGroup
//! [`Once`]: crate::sync::Once
//! [`OnceLock`]: crate::sync::OnceLock
//! [`LazyLock`]: crate::sync::LazyLock
//! [`JoinHandle`]: crate::task::JoinHandle
//! [`ScopedJoinHandle`]: crate::task::ScopedJoinHandle

mod tree;
mod waits;
mod after_func;

pub use crate::sched::wait::current_context::Error;

pub use after_func::{AfterFunc, after_func};
pub use tree::{Canceller, Context, check, shield};

pub(crate) use tree::CancelRef;

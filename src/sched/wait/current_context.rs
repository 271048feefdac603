//! The current context of the calling goroutine or thread: its cancel scopes, and the errors that
//! ended waits return.
use std::io;
use std::marker::PhantomData;

use super::park;
use crate::g::cancel_wait::{CancelScope, Over, ScopeChain};
use crate::sched::types::current;

/// Why a context is done.
///
/// # Examples
///
/// A failed I/O call carries it inside its error:
///
/// ```
/// use std::io;
/// use windlass::context::Error;
///
/// let e = io::Error::from(Error::DeadlineExceeded);
/// assert_eq!(e.kind(), io::ErrorKind::TimedOut);
/// assert!(e.get_ref().is_some_and(|e| e.is::<Error>()));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Error {
    /// It was cancelled, or an ancestor was.
    Cancelled,
    /// Its deadline has passed.
    DeadlineExceeded,
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Error::Cancelled => "the context was cancelled",
            Error::DeadlineExceeded => "the deadline of the context has passed",
        })
    }
}

impl std::error::Error for Error {}

impl From<Over> for Error {
    fn from(over: Over) -> Error {
        match over {
            Over::Cancelled => Error::Cancelled,
            Over::Late => Error::DeadlineExceeded,
        }
    }
}

/// Of kind `TimedOut` for a deadline and `Other` for a cancellation, never of kind `Interrupted`,
/// which makes `std`'s helpers retry.
impl From<Error> for io::Error {
    fn from(e: Error) -> io::Error {
        match e {
            Error::DeadlineExceeded => io::Error::new(io::ErrorKind::TimedOut, e),
            _ => io::Error::other(e),
        }
    }
}

/// Whether the current context permits the caller to wait.
///
/// # Errors
///
/// If the context is done.
#[inline]
pub(crate) fn check() -> Result<(), Error> {
    park::current_chain()
        .over()
        .map_or(Ok(()), |over| Err(over.into()))
}

/// Keeps a cancel scope around the caller until it is dropped.
#[derive(Debug)]
pub(crate) struct ContextGuard<'a> {
    frame: &'a CancelScope,
    /// Bound to the goroutine or thread that entered.
    not_send: PhantomData<*const ()>,
}

/// Enters a cancel scope: waits of the caller end with it.
pub(crate) fn enter(frame: &CancelScope) -> ContextGuard<'_> {
    frame.enter(park::current_chain());
    set(ScopeChain::of(frame));
    ContextGuard {
        frame,
        not_send: PhantomData,
    }
}

/// Leaves the innermost cancel scope of the caller.
pub(crate) fn leave(frame: &CancelScope) {
    set(frame.leave());
}

/// Runs `f` shielded from the cancel scopes around the caller.
pub(crate) fn shield<T>(f: impl FnOnce() -> T) -> T {
    let frame = CancelScope::shield(current::g());
    let _entered = enter(&frame);
    f()
}

/// Runs `f` inside the scopes of `chain`, for a caller that is in none.
pub(crate) fn run_in<T>(chain: ScopeChain, f: impl FnOnce() -> T) -> T {
    struct Leaves;
    impl Drop for Leaves {
        fn drop(&mut self) {
            set(ScopeChain::NONE);
        }
    }
    set(chain);
    let _leaves = Leaves;
    f()
}

impl Drop for ContextGuard<'_> {
    fn drop(&mut self) {
        leave(self.frame);
    }
}

fn set(chain: ScopeChain) {
    if let Some(locals) = park::locals() {
        locals.set_cancel_scope(chain.as_raw());
    }
}

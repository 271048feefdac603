//! The ambient context of whoever calls: which frames are around it, and what a call
//! says that they end.
use std::io;
use std::marker::PhantomData;

use super::park;
use crate::g::cancel_wait::{CancelScope, Over, ScopeChain};

/// Why a context is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Error {
    /// It was cancelled, or a context that it comes from was.
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

/// Of kind `TimedOut` for a deadline and `Other` for a cancellation, never of kind
/// `Interrupted`, which `std`'s helpers take as a reason to try again.
impl From<Error> for io::Error {
    fn from(e: Error) -> io::Error {
        match e {
            Error::DeadlineExceeded => io::Error::new(io::ErrorKind::TimedOut, e),
            _ => io::Error::other(e),
        }
    }
}

/// Whether the ambient context lets the caller wait.
///
/// # Errors
///
/// If it is done.
#[inline]
pub(crate) fn check() -> Result<(), Error> {
    park::current_chain()
        .over()
        .map_or(Ok(()), |over| Err(over.into()))
}

/// A frame is around the caller until this is dropped.
#[derive(Debug)]
pub(crate) struct ContextGuard<'a> {
    frame: &'a CancelScope,
    /// It belongs to the goroutine or thread that entered.
    not_send: PhantomData<*const ()>,
}

/// Puts a frame around the waits of the caller.
pub(crate) fn enter(frame: &CancelScope) -> ContextGuard<'_> {
    frame.enter(park::current_chain());
    set(ScopeChain::of(frame));
    ContextGuard {
        frame,
        not_send: PhantomData,
    }
}

/// Runs `f` out of reach of the frames around the caller.
pub(crate) fn shield<T>(f: impl FnOnce() -> T) -> T {
    let frame = CancelScope::shield(park::current_g());
    let _entered = enter(&frame);
    f()
}

impl Drop for ContextGuard<'_> {
    fn drop(&mut self) {
        set(self.frame.leave());
    }
}

fn set(chain: ScopeChain) {
    if let Some(own) = park::own() {
        own.set_frame(chain.as_raw());
    }
}

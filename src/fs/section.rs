//! System calls that end by themselves and have no asynchronous form: made in place, in a
//! blocking section, so that the P goes on elsewhere if one takes long.

use std::io;

use crate::io::fd::retry;
use crate::sched::checkpoint::checkpoint;
use crate::sched::handoff;
use crate::sched::park::{self, Cancelled};

/// Where a goroutine that makes one such call after the other gives way, after 200 µs if others
/// wait: before the call, so that nothing is lost if it unwinds.
///
/// # Errors
///
/// [`Cancelled`], only while unwinding.
#[inline]
pub(super) fn give_way() -> Result<(), Cancelled> {
    checkpoint()?;
    park::cancel_point()
}

/// Runs `call` in place. A goroutine whose runtime ends unwinds here, but its destructors
/// may make such calls: they do not wait for anybody.
///
/// Completions of the thread's own operations can interrupt a call (docs/SAFETY.md), so
/// one that says EINTR is repeated.
pub(super) fn in_place<T>(call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let _ = give_way();
    let mut call = call;
    retry(|| handoff::blocking(&mut call))
}

//! System calls that end by themselves and have no asynchronous form: made in place, in a
//! blocking section, so that the P goes on elsewhere if one takes long. Those that may wait for a
//! server (`mounts`) are made on a spare thread.

use std::io;
use std::path::Path;

use super::mounts;
use crate::io::fd::retry;
use crate::sched::checkpoint::checkpoint;
use crate::sched::current;
use crate::sched::handoff;
use crate::sched::m::M;
use crate::sched::offload::offload;
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

/// Makes a call on the file at `path`: in place, or on a spare thread if the call may wait for a
/// server.
#[inline]
pub(super) fn at_path<T: Send>(
    path: &Path,
    call: impl FnMut() -> io::Result<T> + Send,
) -> io::Result<T> {
    choose(mounts::is_remote(path), call)
}

/// The same for two paths.
pub(super) fn at_paths<T: Send>(
    paths: [&Path; 2],
    call: impl FnMut() -> io::Result<T> + Send,
) -> io::Result<T> {
    choose(paths.into_iter().any(mounts::is_remote), call)
}

/// The same where that is known.
#[inline]
pub(super) fn choose<T: Send>(
    is_remote: bool,
    call: impl FnMut() -> io::Result<T> + Send,
) -> io::Result<T> {
    if is_remote {
        elsewhere(call)
    } else {
        in_place(call)
    }
}

#[cold]
fn elsewhere<T: Send>(mut call: impl FnMut() -> io::Result<T> + Send) -> io::Result<T> {
    if current::m().is_some_and(M::is_locked) {
        // The goroutine keeps its thread for what is the thread's own: who it is for the server,
        // and which mounts it sees.
        return in_place(call);
    }
    let _ = give_way();
    offload(|| retry(&mut call))
}

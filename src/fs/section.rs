//! Runs system calls that end in bounded time and have no asynchronous form.
//!
//! They run in place, in a blocking section, so that another M takes over the P if a call is slow.
//! Calls that may wait for a server (`mounts`) run on a spare thread.

use std::io;
use std::path::Path;

use crate::bubble;
use crate::sched::wait::checkpoint::checkpoint;
use crate::sched::wait::handoff;
use crate::sched::wait::offload::offload_unless_locked;
use crate::sched::wait::points::{self, Cancelled};
use crate::sys::errno::retry;
use crate::sys::mounts;

/// Yields if the goroutine has run for 200 µs and others wait. Called before each such call, so
/// that no result is lost if the goroutine unwinds here.
///
/// # Errors
///
/// [`Cancelled`], only while unwinding.
#[inline]
#[track_caller]
pub(super) fn check_before_call() -> Result<(), Cancelled> {
    bubble::refuse(
        "a file of the kernel",
        "in a simulation, open it inside: there windlass::fs has a disk of its own; or use std::fs \
         if the file does not change",
    );
    checkpoint()?;
    points::cancel_point()
}

/// Runs `call` in place, and repeats it after EINTR, because completions of the thread's own ring
/// operations can interrupt a system call (docs/SAFETY.md).
///
/// A goroutine whose runtime ends unwinds here. Its destructors may still make such calls, because
/// the calls end by themselves.
pub(super) fn in_place<T>(call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let _ = check_before_call();
    let mut call = call;
    retry(|| handoff::blocking(&mut call))
}

/// Makes a call on the file at `path`: in place, or on a spare thread if it may wait for a server.
#[inline]
pub(super) fn at_path<T: Send>(
    path: &Path,
    call: impl FnMut() -> io::Result<T> + Send,
) -> io::Result<T> {
    choose(mounts::is_remote(path), call)
}

/// As [`at_path`], for a call on two paths.
pub(super) fn at_paths<T: Send>(
    paths: [&Path; 2],
    call: impl FnMut() -> io::Result<T> + Send,
) -> io::Result<T> {
    choose(paths.into_iter().any(mounts::is_remote), call)
}

/// As [`at_path`], if the caller knows whether the file is remote.
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
    let _ = check_before_call();
    offload_unless_locked(|| retry(&mut call))
}

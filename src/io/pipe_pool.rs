//! Empty pipes for copies inside the kernel.
//!
//! `splice(2)` between two sockets needs a pipe in the middle. A copy holds one only while bytes
//! are in it, so a copy that waits for its source costs no descriptor. Pipes are two descriptors
//! each, and the kernel bounds the memory of all pipes of a user, so there are never more than
//! [`limit`] of them in the process. A copy that gets none moves its bytes through a buffer.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::TryLockError;

use crate::loom::native::atomic::{AtomicUsize, Ordering};
use crate::loom::native::{Mutex, PoisonError};
use crate::sys::{file, process, sched as threads};

/// The capacity of a pipe. It bounds the bytes of one round.
pub(super) const PIPE_BYTES: usize = 256 << 10;

/// A pipe with less room than this is slower than a buffer. The kernel gives pipes of two pages to
/// users who have too much memory in pipes (`pipe-user-pages-soft`).
const LEAST_BYTES: usize = 64 << 10;

/// So many pipes of [`PIPE_BYTES`] are what an unprivileged user gets by default.
const MAX_PIPES: usize = 256;

/// Pipes take at most one of so many descriptors that the process may have.
const DESCRIPTORS_PER_PIPE: usize = 16;

/// Pools of empty pipes, chosen by CPU: copies on different CPUs do not meet at one lock.
const N_SHARDS: usize = 8;

/// Empty pipes that a shard keeps.
const MAX_KEPT: usize = 4;

#[repr(align(128))]
struct Shard(Mutex<Vec<Ends>>);

static SHARDS: [Shard; N_SHARDS] = [const { Shard(Mutex::new(Vec::new())) }; N_SHARDS];

/// Pipes that there are, kept and in use. Ordering: relaxed, a bound on a number; the pipes
/// themselves are handed on under a shard's lock.
static N_PIPES: AtomicUsize = AtomicUsize::new(0);

/// Both ends of a pipe, counted in [`N_PIPES`].
#[derive(Debug)]
struct Ends {
    reader: OwnedFd,
    writer: OwnedFd,
}

impl Ends {
    /// Makes a pipe; `None` if there are enough of them, or the kernel gives none that is of use.
    fn make() -> Option<Ends> {
        if N_PIPES.fetch_add(1, Ordering::Relaxed) >= limit() {
            N_PIPES.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let Ok((reader, writer)) = io::pipe() else {
            N_PIPES.fetch_sub(1, Ordering::Relaxed);
            return None;
        };
        // From here on the drop counts it out.
        let ends = Ends {
            reader: reader.into(),
            writer: writer.into(),
        };
        let has_room = file::set_pipe_bytes(ends.writer.as_fd(), PIPE_BYTES) >= LEAST_BYTES;
        has_room.then_some(ends)
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        N_PIPES.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How many pipes there may be.
fn limit() -> usize {
    let n = process::max_descriptors() / DESCRIPTORS_PER_PIPE;
    n.clamp(1, MAX_PIPES)
}

/// The pipe between two sockets. Dropped empty, it goes back to the pool; with bytes in it, it is
/// closed.
#[derive(Debug)]
pub(super) struct Middle {
    /// `None` only in the drop.
    ends: Option<Ends>,
    n_inside: usize,
}

impl Middle {
    /// Takes an empty pipe, or makes one; `None` if there is none to be had now.
    pub(super) fn take() -> Option<Middle> {
        let first = threads::current_cpu();
        let kept = (0..N_SHARDS).find_map(|i| pop(&SHARDS[(first + i) % N_SHARDS]));
        Some(Middle {
            ends: Some(kept.or_else(Ends::make)?),
            n_inside: 0,
        })
    }

    fn ends(&self) -> &Ends {
        self.ends.as_ref().expect("only the drop takes them")
    }

    pub(super) fn reader(&self) -> BorrowedFd<'_> {
        self.ends().reader.as_fd()
    }

    pub(super) fn writer(&self) -> BorrowedFd<'_> {
        self.ends().writer.as_fd()
    }

    /// Notes that so many bytes have gone in.
    pub(super) fn add(&mut self, n: usize) {
        self.n_inside += n;
    }

    /// Notes that so many bytes have come out.
    pub(super) fn remove(&mut self, n: usize) {
        self.n_inside -= n;
    }

    /// Bytes in the pipe.
    pub(super) fn n_inside(&self) -> usize {
        self.n_inside
    }
}

impl Drop for Middle {
    fn drop(&mut self) {
        let Some(ends) = self.ends.take() else {
            return;
        };
        if self.n_inside > 0 {
            return;
        }
        let shard = &SHARDS[threads::current_cpu() % N_SHARDS];
        let mut kept = shard.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < MAX_KEPT {
            kept.push(ends);
        }
    }
}

/// A pipe of this shard; `None` if it has none, or somebody is at it.
fn pop(shard: &Shard) -> Option<Ends> {
    match shard.0.try_lock() {
        Ok(mut kept) => kept.pop(),
        Err(TryLockError::Poisoned(kept)) => kept.into_inner().pop(),
        Err(TryLockError::WouldBlock) => None,
    }
}

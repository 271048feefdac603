//! Empty pipes for copies inside the kernel.
//!
//! `splice(2)` between two sockets needs a pipe in the middle. A copy holds one only while bytes
//! are in it, so a copy that waits for its source costs no descriptor. A pipe has two descriptors,
//! and the kernel limits the memory of all pipes of a user. So the process never has more than
//! [`limit`] of these pipes. A copy that gets none moves its bytes through a buffer.
//!
//! A process that forks between two runs shares the pipes of the pool with its child, and the
//! copies of both would meet in one pipe. So a pipe that was made before a fork is not used after it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::TryLockError;

use crate::loom::native::atomic::{AtomicUsize, Ordering};
use crate::loom::native::{Mutex, PoisonError};
use crate::sys::{file, process, sched as threads};

/// The capacity of a pipe. It limits the bytes of one round.
pub(super) const PIPE_BYTES: usize = 256 << 10;

/// A pipe with less capacity than this is slower than a buffer. A user with too much memory in
/// pipes (`pipe-user-pages-soft`) gets pipes of two pages.
const LEAST_BYTES: usize = 64 << 10;

/// The number of pipes of [`PIPE_BYTES`] that an unprivileged user gets by default.
const MAX_PIPES: usize = 256;

/// There is at most one pipe for each this many descriptors that the process may have.
const DESCRIPTORS_PER_PIPE: usize = 16;

/// Number of pools of empty pipes. The CPU chooses the pool, so that copies on different CPUs do
/// not contend for one lock.
const N_SHARDS: usize = 8;

/// The most empty pipes that one shard stores.
const MAX_KEPT: usize = 4;

#[repr(align(128))]
struct Shard(Mutex<Vec<Ends>>);

static SHARDS: [Shard; N_SHARDS] = [const { Shard(Mutex::new(Vec::new())) }; N_SHARDS];

/// Number of existing pipes, stored and in use. Ordering: relaxed, only a limit on a number; the
/// pipes themselves change hands under a shard's lock.
static N_PIPES: AtomicUsize = AtomicUsize::new(0);

/// Both ends of a pipe, counted in [`N_PIPES`].
#[derive(Debug)]
struct Ends {
    reader: OwnedFd,
    writer: OwnedFd,
    /// How many forks there were between the first process and this one when it was made.
    n_forks: usize,
}

impl Ends {
    /// Makes a pipe. `None` if the limit is reached, or the kernel gives none or too small a one.
    fn make() -> Option<Ends> {
        // Before there is a pipe: forks are counted from the first call on.
        let n_forks = process::n_forks();
        if N_PIPES.fetch_add(1, Ordering::Relaxed) >= limit() {
            N_PIPES.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let Ok((reader, writer)) = io::pipe() else {
            N_PIPES.fetch_sub(1, Ordering::Relaxed);
            return None;
        };
        // From here on the drop reduces the count.
        let ends = Ends {
            reader: reader.into(),
            writer: writer.into(),
            n_forks,
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

/// The most pipes that may exist.
fn limit() -> usize {
    let n = process::max_descriptors() / DESCRIPTORS_PER_PIPE;
    n.clamp(1, MAX_PIPES)
}

/// The pipe between two sockets. The drop returns an empty pipe to the pool, and closes one with
/// bytes in it.
#[derive(Debug)]
pub(super) struct Middle {
    /// `None` only in the drop.
    ends: Option<Ends>,
    n_inside: usize,
}

impl Middle {
    /// Takes an empty pipe, or makes one. `None` if neither is possible now.
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

    /// Records that `n` bytes were moved into the pipe.
    pub(super) fn add(&mut self, n: usize) {
        self.n_inside += n;
    }

    /// Records that `n` bytes were moved out of the pipe.
    pub(super) fn remove(&mut self, n: usize) {
        self.n_inside -= n;
    }

    /// Number of bytes in the pipe.
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

/// Takes a pipe from a shard. `None` if it has none, or its lock is taken. Pipes that are shared
/// with another process are closed.
fn pop(shard: &Shard) -> Option<Ends> {
    let mut kept = match shard.0.try_lock() {
        Ok(kept) => kept,
        Err(TryLockError::Poisoned(kept)) => kept.into_inner(),
        Err(TryLockError::WouldBlock) => return None,
    };
    std::iter::from_fn(|| kept.pop()).find(|ends| ends.n_forks == process::n_forks())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::HashSet;
    use std::fs::File;
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::process::ExitStatusExt;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::process::ExitStatus;

    use super::*;

    /// Runs `f` in a forked child. Whether it returned `true` there.
    #[allow(unsafe_code, reason = "a fork, which nothing else makes")]
    fn in_fork(f: impl FnOnce() -> bool) -> bool {
        // SAFETY: the child has only this thread. `f` does not wait for another one, and glibc's
        // allocator is usable in a forked child.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let is_well = catch_unwind(AssertUnwindSafe(f)).unwrap_or(false);
            // SAFETY: takes a plain number; runs no code of the parent.
            unsafe { libc::_exit(i32::from(!is_well)) };
        }
        assert!(pid > 0, "{}", io::Error::last_os_error());
        let mut status = 0;
        // SAFETY: the place is valid for writes, and the child is this thread's own.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        ExitStatus::from_raw(status).success()
    }

    fn inode(pipe: &Middle) -> u64 {
        let pipe = File::from(pipe.reader().try_clone_to_owned().unwrap());
        pipe.metadata().unwrap().ino()
    }

    #[test]
    fn a_child_does_not_use_the_pipes_of_its_parent() {
        let taken = Middle::take().unwrap();
        let kept = HashSet::from([inode(&taken)]);
        drop(taken);
        let ended = in_fork(|| {
            let all: Vec<_> = (0..N_SHARDS * MAX_KEPT)
                .map_while(|_| Middle::take())
                .collect();
            !all.is_empty() && all.iter().all(|pipe| !kept.contains(&inode(pipe)))
        });
        assert!(ended, "the child has a pipe of its parent's");
        assert!(Middle::take().is_some());
    }
}

//! The kernel: every libc call that windlass makes, with its contract.
//!
//! Nothing here knows goroutines. A function returns `io::Result` where the caller can act on the
//! error, and a plain value where failure is impossible or harmless (the comment then says so).

pub(crate) mod errno;
pub(crate) mod raw;
pub(crate) mod clock;
pub(crate) mod affinity;
pub(crate) mod epoll;
pub(crate) mod file;
pub(crate) mod futex;
pub(crate) mod mmap;
pub(crate) mod numa;
pub(crate) mod process;
pub(crate) mod sched;
pub(crate) mod signal;
pub(crate) mod socket;
pub(crate) mod uring;
pub(crate) mod wrap;

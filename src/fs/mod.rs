//! Files: `std::fs`, with goroutines that wait instead of threads that block.
//!
//! Names, semantics and errors are those of `std::fs`, and its types are used where they
//! hold plain values ([`Metadata`], [`Permissions`], [`FileType`], [`FileTimes`]). What is
//! more: deadlines ([`File::set_read_deadline`]), [`File::allocate`] and [`AlignedBuf`] for
//! `O_DIRECT`.
//!
//! # What waits where
//!
//! | call | how |
//! |---|---|
//! | reads that find their data in the page cache | in place, by one system call that does not wait |
//! | reads that do not, reads and writes with `O_DIRECT` | through the P's ring |
//! | reads and writes of pipes, FIFOs, terminals, sockets | through the ring, for as long as it takes |
//! | `sync_all`, `sync_data`, `allocate`, opening a device | through the ring, on a thread of the kernel |
//! | opening a FIFO for reading or for writing | without a thread; the other side is looked for, at first every 0.5 ms, later every 50 ms |
//! | buffered writes, names, metadata, directories | in place, in a [`blocking`](crate::blocking) section |
//! | `copy`, `remove_dir_all`, `lock` | on a spare thread ([`offload`](crate::offload)) |
//! | all calls on files of NFS, SMB, Ceph, FUSE and the like, but `O_DIRECT` transfers and `sync` | on a spare thread |
//!
//! In place, because that is cheaper and never worse: the kernel has no asynchronous form of
//! these calls, the ring gives each to a thread of its own. `statx` on the ring costs 1.4 µs of
//! CPU and a park, in place 0.2 µs; opening with `O_CREAT` 1.6 against 0.4 µs; a buffered write
//! on ext4 8.2 against 7.0 µs. If a call does take long, the P goes to another thread after 20 µs. A
//! goroutine that makes one such call after the other gives way before one, as by
//! [`checkpoint`](crate::task::checkpoint), if it has run for 200 µs and others wait.
//!
//! A server that does not answer puts a thread to a sleep from which nothing wakes it, so calls
//! on its files are made on spare threads, at the cost of two hand-overs. docs/SAFETY.md tells how
//! such files are known, and what is not covered.
//!
//! A file in `/proc` or `/sys` counts as one on a disk, although reading a few of them waits for
//! events: read those in [`offload`](crate::offload).
//!
//! Over epoll, where io_uring is denied, "through the ring" means: on a spare thread for what a
//! file's disk has to give or take, and for the rest when the descriptor is ready. Deadlines then
//! do not cut waits for a disk short.
//!
//! # At the end of a run
//!
//! A goroutine that waits for a pipe or FIFO unwinds; calls on files on a disk are waited for.
//! Destructors may still write to a file on a disk; a wait for a pipe fails there at once.

mod mounts;
mod section;
mod kind;
mod aligned;
mod transfer;
mod file;
mod fifo;
mod open_options;
mod dir;
mod paths;

pub use aligned::AlignedBuf;
pub use dir::{
    DirBuilder, DirEntry, ReadDir, create_dir, create_dir_all, read_dir, remove_dir, remove_dir_all,
};
pub use file::File;
pub(crate) use kind::Kind;
pub use open_options::OpenOptions;
pub use paths::{
    canonicalize, chown, copy, exists, hard_link, lchown, metadata, read, read_link,
    read_to_string, remove_file, rename, set_permissions, symlink, symlink_metadata, write,
};
pub use std::fs::{FileTimes, FileType, Metadata, Permissions, TryLockError};

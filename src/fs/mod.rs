//! Files: `std::fs` for goroutines.
//!
//! Names, semantics and errors are those of `std::fs`. Its types for plain values are reexported
//! ([`Permissions`], [`FileType`], [`FileTimes`]); [`Metadata`] has the interface of `std`'s. Additions are deadlines
//! ([`File::set_read_deadline`]), [`File::allocate`], and [`AlignedBuf`] for `O_DIRECT`.
//!
//! # Examples
//!
//! ```
//! use windlass::fs;
//!
//! # // SAFETY: nothing here keeps a thread-local across a call that parks.
//! # let rt = unsafe { windlass::Builder::new().processors(1).build()? };
//! # let path = std::env::temp_dir().join(format!("windlass-doc-fs-{}", std::process::id()));
//! rt.run(|| {
//!     fs::write(&path, "one line")?;
//!     assert_eq!(fs::read_to_string(&path)?, "one line");
//!     fs::remove_file(&path)
//! })?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # What waits where
//!
//! | call | how it waits |
//! |---|---|
//! | a read of data in the page cache | in place, by one system call that does not wait; after 512 such reads of a file in a row, by one that blocks the thread if the data is not there |
//! | any other read of a file; reads and writes with `O_DIRECT` | parked, through the P's ring |
//! | reads and writes of pipes, FIFOs, terminals, sockets | parked, through the ring, until ready |
//! | `sync_all`, `sync_data`, `allocate`, opening a device | parked, through the ring, on a kernel worker |
//! | opening a FIFO for reading or for writing | parked; polls for the other side, at first every 0.5 ms, later every 50 ms |
//! | buffered writes, names, metadata, directories | in place, in a [`blocking`](crate::blocking) section |
//! | `copy`, `remove_dir_all`, `lock` | parked, on a spare thread ([`offload`](crate::offload)) |
//! | all calls on files of NFS, SMB, Ceph, FUSE and the like, except `O_DIRECT` transfers and `sync` | parked, on a spare thread |
//!
//! A call runs in place where the kernel has no asynchronous form of it: the ring would pass it to
//! a kernel worker, which costs more. `statx` takes 1.4 µs of CPU and a park on the ring, and
//! 0.2 µs in place. Opening with `O_CREAT` takes 1.6 µs and 0.4 µs, a buffered write on ext4 8.2 µs
//! and 7.0 µs. If a call in place takes longer than 20 µs, another thread takes over the P. A
//! goroutine that makes many such calls yields before the next one, as by
//! [`checkpoint`](crate::task::checkpoint), if it has run for 200 µs and other goroutines wait.
//!
//! A file server that does not answer puts the calling thread into uninterruptible sleep. Calls on
//! its files therefore run on spare threads, at the cost of two thread hand-overs. docs/SAFETY.md
//! describes how such files are recognized and which cases are not covered.
//!
//! A file in `/proc` or `/sys` is treated as a file on a disk. A few of these files wait for events
//! when they are read: read them in [`offload`](crate::offload).
//!
//! If io_uring is denied, the runtime falls back to epoll. Transfers from and to a disk then run on
//! a spare thread, and all other operations run when the descriptor is ready. Deadlines do not cut
//! waits for a disk short in this mode.
//!
//! # At the end of a run
//!
//! A goroutine that waits for a pipe or FIFO unwinds. Calls on files on a disk complete first.
//! Destructors may still write to a file on a disk; in them, a wait for a pipe fails at once.

/// Inside a simulation, returns what the call gives on the simulated disk.
macro_rules! on_simulated_disk {
    ($disk:ident => $call:expr) => {
        #[cfg(feature = "sim")]
        if let Some($disk) = $crate::fs::memory::here() {
            return $call;
        }
    };
}

/// Returns what the call gives on the open file, if that is on a simulated disk.
macro_rules! on_simulated_file {
    ($raw:expr, $file:ident => $call:expr) => {
        #[cfg(feature = "sim")]
        if let Some($file) = &$raw.memory {
            return $call;
        }
    };
}

mod section;
mod kind;
mod aligned;
mod file_times;
#[cfg_attr(not(feature = "sim"), path = "no_memory.rs")]
pub(crate) mod memory;
mod metadata;
mod warmth;
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
pub use file_times::FileTimes;
pub(crate) use kind::Kind;
pub use metadata::Metadata;
pub use open_options::OpenOptions;
pub use paths::{
    canonicalize, chown, copy, exists, hard_link, lchown, metadata, read, read_link,
    read_to_string, remove_file, rename, set_permissions, symlink, symlink_metadata, write,
};
pub use std::fs::{FileType, Permissions, TryLockError};

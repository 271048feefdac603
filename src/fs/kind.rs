//! What an open file is, as far as waiting goes.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use super::mounts;
use crate::sys::file;

/// How calls on a file wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A file, directory or disk behind the page cache: calls end by themselves.
    Cached,
    /// The same with `O_DIRECT`: every transfer waits for the disk.
    Direct,
    /// A pipe, FIFO, terminal, socket or other device: a call may wait for ever.
    Stream,
    /// The same, opened with `O_NONBLOCK`: no call waits. The ring would.
    Nonblocking,
}

impl Kind {
    /// Asks the kernel, by two system calls, and says whether calls on the file may wait for a
    /// server. Only on such files these two may, too.
    pub(super) fn of(file: &fs::File) -> (Kind, bool) {
        let (Ok(metadata), Ok(flags)) = (file.metadata(), file::flags(file.as_fd())) else {
            return (Kind::Stream, false);
        };
        let kind = Kind::new(metadata.file_type(), flags);
        let is_remote = kind.is_on_disk() && mounts::is_remote_device(metadata.dev());
        (kind, is_remote)
    }

    /// Whether its calls end by themselves because of what it is.
    fn is_on_disk(self) -> bool {
        matches!(self, Kind::Cached | Kind::Direct)
    }

    /// The kind of a file of this type with these status flags.
    pub(super) fn new(file_type: fs::FileType, flags: i32) -> Kind {
        let t = file_type;
        if !(t.is_file() || t.is_dir() || t.is_block_device() || t.is_symlink()) {
            if flags & libc::O_NONBLOCK != 0 {
                Kind::Nonblocking
            } else {
                Kind::Stream
            }
        } else if flags & libc::O_DIRECT != 0 {
            Kind::Direct
        } else {
            Kind::Cached
        }
    }
}

//! Classifies open files by how their calls wait.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use crate::sys::file;
use crate::sys::mounts;

/// How calls on a file wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A file, directory or block device behind the page cache: calls end in bounded time.
    Cached,
    /// As `Cached`, opened with `O_DIRECT`: every transfer waits for the disk.
    Direct,
    /// A pipe, FIFO or socket: a call may wait forever.
    Stream,
    /// As `Stream`: a terminal or another device.
    Device,
    /// As `Stream` or `Device`, opened with `O_NONBLOCK`: no call waits. A request to the ring would wait.
    Nonblocking,
}

impl Kind {
    /// Returns the kind of the file, and whether calls on the file may wait for a server.
    ///
    /// Makes two system calls. They may wait for a server only if the file is on one.
    pub(super) fn of(file: &fs::File) -> (Kind, bool) {
        let (Ok(metadata), Ok(flags)) = (file.metadata(), file::flags(file.as_fd())) else {
            return (Kind::Device, false);
        };
        let kind = Kind::new(metadata.file_type(), flags);
        let is_remote = kind.is_on_disk() && mounts::is_remote_device(metadata.dev());
        (kind, is_remote)
    }

    /// Whether the file is on a disk, so that its calls end in bounded time.
    fn is_on_disk(self) -> bool {
        matches!(self, Kind::Cached | Kind::Direct)
    }

    /// Whether a call may wait for ever. Such a call is made by `poll::bytes`.
    pub(super) fn is_stream(self) -> bool {
        matches!(self, Kind::Stream | Kind::Device)
    }

    /// Returns the kind of a file from its type and its status flags.
    pub(super) fn new(file_type: fs::FileType, flags: i32) -> Kind {
        let t = file_type;
        if !(t.is_file() || t.is_dir() || t.is_block_device() || t.is_symlink()) {
            if flags & libc::O_NONBLOCK != 0 {
                Kind::Nonblocking
            } else if t.is_char_device() {
                Kind::Device
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

//! What an open file is, as far as waiting goes.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;

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
    /// Asks the kernel, by two system calls that never wait.
    pub(super) fn of(file: &fs::File) -> Kind {
        match (file.metadata(), file::flags(file.as_fd())) {
            (Ok(metadata), Ok(flags)) => Kind::new(metadata.file_type(), flags),
            _ => Kind::Stream,
        }
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

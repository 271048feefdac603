//! `OpenOptions`, and what it takes to open a FIFO without blocking a thread.
//!
//! Opening a FIFO waits for the other side, and opening a device may wait, too. So the file's
//! type is asked for first. `fifo.rs` opens FIFOs, without a thread. The ring opens devices, on a
//! thread of the kernel, where the wait can be cancelled. All others are opened in place. (A FIFO
//! that takes a file's place between the two calls blocks the goroutine's thread.)
//!
//! Turned down: opening a FIFO by the ring. Each open holds a thread of the kernel for as long as
//! the other side stays away, and these threads count against the limit of processes. Where that
//! is reached, writes of files that the ring has to carry out by such a thread stop, too.
//!
//! Turned down: opening with `O_NONBLOCK` to look at what it is, and once more to wait. The
//! first descriptor is a partner for the other side, which may be gone before the second open.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use super::fifo;
use super::file::File;
use super::section::at_path;
use crate::g::header::GRef;
use crate::io::op;
use crate::netpoll::sqe::Request;
use crate::sched::park::{self, Caller};
use crate::sys::clock::NEVER;

/// How to open a file: `std::fs::OpenOptions`, with the methods of its `OpenOptionsExt`.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    read: bool,
    write: bool,
    append: bool,
    truncate: bool,
    create: bool,
    create_new: bool,
    custom_flags: i32,
    mode: u32,
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions::new()
    }
}

impl OpenOptions {
    /// Nothing is set.
    #[must_use]
    pub fn new() -> OpenOptions {
        OpenOptions {
            read: false,
            write: false,
            append: false,
            truncate: false,
            create: false,
            create_new: false,
            custom_flags: 0,
            mode: 0o666,
        }
    }

    /// For reading.
    pub fn read(&mut self, read: bool) -> &mut OpenOptions {
        self.read = read;
        self
    }

    /// For writing.
    pub fn write(&mut self, write: bool) -> &mut OpenOptions {
        self.write = write;
        self
    }

    /// For writing at the end, wherever that is then.
    pub fn append(&mut self, append: bool) -> &mut OpenOptions {
        self.append = append;
        self
    }

    /// Empties the file.
    pub fn truncate(&mut self, truncate: bool) -> &mut OpenOptions {
        self.truncate = truncate;
        self
    }

    /// Makes the file if there is none.
    pub fn create(&mut self, create: bool) -> &mut OpenOptions {
        self.create = create;
        self
    }

    /// Makes the file; there must be none.
    pub fn create_new(&mut self, create_new: bool) -> &mut OpenOptions {
        self.create_new = create_new;
        self
    }

    /// The mode of a file that is made, before the umask.
    pub fn mode(&mut self, mode: u32) -> &mut OpenOptions {
        self.mode = mode;
        self
    }

    /// Further flags of `open(2)`, as `O_DIRECT` or `O_NOFOLLOW`.
    pub fn custom_flags(&mut self, flags: i32) -> &mut OpenOptions {
        self.custom_flags = flags;
        self
    }

    /// Opens the file.
    ///
    /// # Blocking
    ///
    /// As the calls of [`File`]; for a FIFO until the other side is opened.
    ///
    /// # Errors
    ///
    /// As `std::fs::OpenOptions::open`.
    pub fn open<P: AsRef<Path>>(&self, path: P) -> io::Result<File> {
        let path = path.as_ref();
        let waits_for_nobody = self.custom_flags & (libc::O_NONBLOCK | libc::O_PATH) != 0;
        match park::caller() {
            Caller::Goroutine(g) if !waits_for_nobody => self.open_parked(g, path),
            _ => at_path(path, || self.with_flags(0).open(path).map(File::from)),
        }
    }

    /// The same for `std`.
    fn with_flags(&self, more: i32) -> fs::OpenOptions {
        let mut options = fs::OpenOptions::new();
        options
            .read(self.read)
            .write(self.write)
            .append(self.append)
            .truncate(self.truncate)
            .create(self.create)
            .create_new(self.create_new)
            .mode(self.mode)
            .custom_flags(self.custom_flags | more);
        options
    }

    fn open_parked(&self, g: GRef, path: &Path) -> io::Result<File> {
        let options = self.with_flags(0);
        let opened = at_path(path, || {
            if !self.create_new && may_wait(path) {
                return Ok(None);
            }
            options.open(path).map(|file| Some(File::from(file)))
        })?;
        match opened {
            Some(file) => Ok(file),
            None => self.open_waiting(g, path).map(File::from),
        }
    }

    /// Opens a FIFO without a thread; a device on a thread of the kernel, or where there is no ring
    /// on a spare one.
    fn open_waiting(&self, g: GRef, path: &Path) -> io::Result<OwnedFd> {
        // Options that do not go together are an error before there is a path.
        if let Err(e) = self.with_flags(0).open("")
            && e.kind() != io::ErrorKind::NotFound
        {
            return Err(e);
        }
        if is_fifo(path) {
            if self.read && (self.write || self.append) {
                // Being both sides, it waits for nobody.
                return at_path(path, || self.with_flags(0).open(path)).map(OwnedFd::from);
            }
            let options = self.with_flags(libc::O_NONBLOCK);
            return fifo::open(!self.read, || options.open(path)).map(OwnedFd::from);
        }
        let path = CString::new(path.as_os_str().as_bytes())?;
        let request = Request::Open {
            path: path.as_ptr(),
            flags: self.flags(),
            mode: self.mode,
        };
        // SAFETY: the path is on this frame until this returns.
        let done = unsafe { op::run(g, request, NEVER) }?;
        // SAFETY: the kernel gave this descriptor to this call alone.
        Ok(unsafe { OwnedFd::from_raw_fd(done.n as i32) })
    }

    /// The flags of `open(2)`, for options that `std` has found to go together.
    fn flags(&self) -> i32 {
        let access = match (self.read, self.write, self.append) {
            (true, false, false) => libc::O_RDONLY,
            (false, true, false) => libc::O_WRONLY,
            (true, true, false) => libc::O_RDWR,
            (false, _, true) => libc::O_WRONLY | libc::O_APPEND,
            (true, _, true) => libc::O_RDWR | libc::O_APPEND,
            (false, false, false) => 0,
        };
        let creation = match (self.create, self.truncate, self.create_new) {
            (false, false, false) => 0,
            (true, false, false) => libc::O_CREAT,
            (false, true, false) => libc::O_TRUNC,
            (true, true, false) => libc::O_CREAT | libc::O_TRUNC,
            (_, _, true) => libc::O_CREAT | libc::O_EXCL,
        };
        libc::O_CLOEXEC | access | creation | (self.custom_flags & !libc::O_ACCMODE)
    }
}

fn is_fifo(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|m| m.file_type().is_fifo())
}

/// Whether opening the file may wait for somebody.
fn may_wait(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|m| m.file_type().is_fifo() || m.file_type().is_char_device())
}

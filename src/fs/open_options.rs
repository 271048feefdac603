//! `OpenOptions`, and opening files without blocking a thread.
//!
//! Opening a FIFO waits for the other side, and opening a device may wait, too. So the type of the
//! file is queried first. FIFOs are opened by `fifo.rs`, without a blocked thread. Devices are
//! opened by the ring on a kernel worker, where the wait can be cancelled. All other files are
//! opened in place. (A FIFO that replaces the file between the two calls blocks the goroutine's
//! thread.)
//!
//! Rejected: opening a FIFO through the ring. Each open holds a kernel worker until the other side
//! opens the FIFO, and these workers count against the process limit. At the limit, file writes
//! that need a kernel worker stop, too.
//!
//! Rejected: opening with `O_NONBLOCK` to find the type, and again to wait. The first descriptor
//! connects to the other side, which may have closed the FIFO before the second open.
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
use crate::poll::op;
use crate::sched::wait::offload::is_locked;
use crate::sched::wait::park::{self, Caller};
use crate::sched::wait::sleep;
use crate::sys::clock::NEVER;
use crate::sys::request::Request;

/// Options for opening a file: `std::fs::OpenOptions`, with the methods of its `OpenOptionsExt`.
///
/// # Examples
///
/// ```
/// use std::io::Write;
/// use windlass::fs::{self, OpenOptions};
///
/// # let path = std::env::temp_dir().join(format!("windlass-doc-open-{}", std::process::id()));
/// for line in ["one\n", "two\n"] {
///     let mut log = OpenOptions::new().append(true).create(true).mode(0o600).open(&path)?;
///     log.write_all(line.as_bytes())?;
/// }
/// assert_eq!(fs::read_to_string(&path)?, "one\ntwo\n");
///
/// let mut file = OpenOptions::new()
///     .read(true)
///     .write(true)
///     .truncate(true)
///     .custom_flags(libc::O_NOFOLLOW)
///     .open(&path)?;
/// assert_eq!(file.metadata()?.len(), 0);
/// assert!(OpenOptions::new().write(true).create_new(true).open(&path).is_err());
/// # fs::remove_file(&path)?;
/// # Ok::<(), std::io::Error>(())
/// ```
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
    /// Creates options with no access mode set, and mode 0666 before the umask.
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

    /// Opens the file for reading.
    pub fn read(&mut self, read: bool) -> &mut OpenOptions {
        self.read = read;
        self
    }

    /// Opens the file for writing.
    pub fn write(&mut self, write: bool) -> &mut OpenOptions {
        self.write = write;
        self
    }

    /// Opens the file for writing. Each write goes to the current end of the file.
    pub fn append(&mut self, append: bool) -> &mut OpenOptions {
        self.append = append;
        self
    }

    /// Truncates the file to zero bytes. Needs write access.
    pub fn truncate(&mut self, truncate: bool) -> &mut OpenOptions {
        self.truncate = truncate;
        self
    }

    /// Creates the file if it does not exist. Needs write or append access.
    pub fn create(&mut self, create: bool) -> &mut OpenOptions {
        self.create = create;
        self
    }

    /// Creates a new file. `open` fails with `AlreadyExists` if the file exists.
    pub fn create_new(&mut self, create_new: bool) -> &mut OpenOptions {
        self.create_new = create_new;
        self
    }

    /// Sets the mode of a file that `open` creates, before the umask. The default is 0666.
    pub fn mode(&mut self, mode: u32) -> &mut OpenOptions {
        self.mode = mode;
        self
    }

    /// Sets further flags of `open(2)`, such as `O_DIRECT` or `O_NOFOLLOW`.
    pub fn custom_flags(&mut self, flags: i32) -> &mut OpenOptions {
        self.custom_flags = flags;
        self
    }

    /// Opens the file.
    ///
    /// # Blocking
    ///
    /// Blocks the thread, in a [`blocking`](crate::blocking) section. For a device, parks the
    /// goroutine, unless it has locked its thread. For a FIFO, parks it until the other side is opened.
    /// With `O_NONBLOCK` or `O_PATH`, the open does not wait.
    ///
    /// # Errors
    ///
    /// As `std::fs::OpenOptions::open`.
    ///
    /// # Examples
    ///
    /// See [`OpenOptions`].
    pub fn open<P: AsRef<Path>>(&self, path: P) -> io::Result<File> {
        let path = path.as_ref();
        on_simulated_disk!(disk => {
            self.check()?;
            // First, so that nothing is created or cut where there are no descriptors.
            let placeholder = super::memory::placeholder()?;
            let opened = disk.open(path, self.flags(), self.mode)?;
            Ok(super::transfer::Raw::in_memory(placeholder, opened).into())
        });
        let waits_for_nobody = self.custom_flags & (libc::O_NONBLOCK | libc::O_PATH) != 0;
        // On a plain thread outside of contexts, nothing ends the wait for the other side of a FIFO.
        let is_thread = matches!(park::caller(), Caller::Thread);
        if waits_for_nobody || is_thread && !sleep::may_be_cancelled() {
            return at_path(path, || self.with_flags(0).open(path).map(File::from));
        }
        self.open_parked(path)
    }

    /// Returns the options for `std`, with the flags `more` added.
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

    fn open_parked(&self, path: &Path) -> io::Result<File> {
        let options = self.with_flags(0);
        let opened = at_path(path, || {
            if !self.create_new && may_wait(path) {
                return Ok(None);
            }
            options.open(path).map(|file| Some(File::from(file)))
        })?;
        match opened {
            Some(file) => Ok(file),
            None => self.open_waiting(path).map(File::from),
        }
    }

    /// Opens a FIFO by polling, and a device on a kernel worker or, without a ring, on a spare
    /// thread; on a plain thread, or one that the goroutine has locked, in place.
    fn open_waiting(&self, path: &Path) -> io::Result<OwnedFd> {
        self.check()?;
        if is_fifo(path) {
            if self.read && (self.write || self.append) {
                // This descriptor is both sides of the FIFO, so the open does not wait.
                return at_path(path, || self.with_flags(0).open(path)).map(OwnedFd::from);
            }
            let options = self.with_flags(libc::O_NONBLOCK);
            return fifo::open(!self.read, || options.open(path)).map(OwnedFd::from);
        }
        let g = match park::caller() {
            Caller::Goroutine(g) if !is_locked() => g,
            _ => return at_path(path, || self.with_flags(0).open(path)).map(OwnedFd::from),
        };
        let path = CString::new(path.as_os_str().as_bytes())?;
        let request = Request::Open {
            path: path.as_ptr(),
            flags: self.flags(),
            mode: self.mode,
        };
        // SAFETY: `path` lives in this stack frame until the operation has completed.
        let done = unsafe { op::run(g, request, NEVER) }?;
        // SAFETY: the kernel returned a new descriptor, which nothing else owns.
        Ok(unsafe { OwnedFd::from_raw_fd(done.n as i32) })
    }

    /// Checks the combination of options. `std` does so before it uses the path.
    fn check(&self) -> io::Result<()> {
        match self.with_flags(0).open("") {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        }
    }

    /// Returns the flags of `open(2)`. `std` has checked the combination of options.
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

/// Whether opening the file may wait: for the other side of a FIFO, or for a device.
fn may_wait(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|m| m.file_type().is_fifo() || m.file_type().is_char_device())
}

/// Opening files without options of one's own.
impl File {
    /// Opens a file for reading.
    ///
    /// # Blocking
    ///
    /// As [`OpenOptions::open`].
    ///
    /// # Errors
    ///
    /// As `std::fs::File::open`.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::io::Read;
    /// use windlass::fs::File;
    ///
    /// let mut start = [0; 5];
    /// File::open("/proc/version")?.read_exact(&mut start)?;
    /// assert_eq!(&start, b"Linux");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn open<P: AsRef<Path>>(path: P) -> io::Result<File> {
        OpenOptions::new().read(true).open(path)
    }

    /// Opens a file for writing. Creates it if it does not exist, and truncates it if it does.
    ///
    /// # Blocking
    ///
    /// As [`OpenOptions::open`].
    ///
    /// # Errors
    ///
    /// As `std::fs::File::create`.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::io::Write;
    /// use windlass::fs::{self, File};
    ///
    /// # let path = std::env::temp_dir().join(format!("windlass-create-{}", std::process::id()));
    /// File::create(&path)?.write_all(b"text")?;
    /// assert_eq!(fs::read(&path)?, b"text");
    /// # fs::remove_file(&path)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn create<P: AsRef<Path>>(path: P) -> io::Result<File> {
        OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .open(path)
    }

    /// Creates a new file, opened for reading and writing.
    ///
    /// # Blocking
    ///
    /// As [`OpenOptions::open`].
    ///
    /// # Errors
    ///
    /// As `std::fs::File::create_new`; `AlreadyExists` if the file exists.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::io::ErrorKind;
    /// use windlass::fs::File;
    ///
    /// # let path = std::env::temp_dir().join(format!("windlass-new-{}", std::process::id()));
    /// let lock_file = File::create_new(&path)?;
    /// assert_eq!(File::create_new(&path).unwrap_err().kind(), ErrorKind::AlreadyExists);
    /// # windlass::fs::remove_file(&path)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn create_new<P: AsRef<Path>>(path: P) -> io::Result<File> {
        OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(path)
    }

    /// Returns new [`OpenOptions`], as [`OpenOptions::new`] does.
    #[must_use]
    pub fn options() -> OpenOptions {
        OpenOptions::new()
    }
}

impl std::os::unix::fs::OpenOptionsExt for OpenOptions {
    fn mode(&mut self, mode: u32) -> &mut OpenOptions {
        self.mode(mode)
    }

    fn custom_flags(&mut self, flags: i32) -> &mut OpenOptions {
        self.custom_flags(flags)
    }
}

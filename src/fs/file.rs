//! `File`: the public face of an open file.

use std::fs;
use std::io::{self, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Instant, SystemTime};

use super::kind::Kind;
use super::open_options::OpenOptions;
use super::transfer::Raw;
use crate::loom::native::atomic::{AtomicU64, Ordering};
use crate::sched::offload::offload;
use crate::sys::clock::{self, NEVER};

/// An open file: `std::fs::File`, whose calls wait by parking the goroutine.
///
/// The methods, the traits ([`Read`], [`Write`], [`Seek`], [`FileExt`]) and their errors are
/// `std`'s. A read or write of a pipe, FIFO, terminal or other stream parks the goroutine for as
/// long as it takes; [deadlines](File::set_read_deadline) end such a wait. The module's page
/// tells what the other calls do.
///
/// # Blocking
///
/// Every method that makes a system call may park the goroutine, or block its thread in a
/// [`blocking`](crate::blocking) section; on a plain thread all block it, as in `std`.
///
/// # Examples
///
/// ```
/// use std::io::{Read, Seek, Write};
/// use windlass::fs::File;
///
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(1).build()? };
/// # let dir = std::env::temp_dir().join(format!("windlass-doc-{}", std::process::id()));
/// # std::fs::create_dir_all(&dir)?;
/// # let path = dir.join("notes");
/// rt.run(|| {
///     let mut file = File::options().read(true).write(true).create(true).open(&path)?;
///     file.write_all(b"one line\n")?;
///     file.sync_data()?;
///     file.rewind()?;
///     let mut text = String::new();
///     file.read_to_string(&mut text)?;
///     assert_eq!(text, "one line\n");
///     std::io::Result::Ok(())
/// })?;
/// # std::fs::remove_dir_all(&dir)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct File(Raw);

impl File {
    /// A file of a kind that is known.
    pub(crate) fn with_kind(file: impl Into<fs::File>, kind: Kind) -> File {
        File(Raw::new(file.into(), kind, false))
    }

    /// Opens a file for reading.
    ///
    /// # Errors
    ///
    /// As `std::fs::File::open`.
    pub fn open<P: AsRef<Path>>(path: P) -> io::Result<File> {
        OpenOptions::new().read(true).open(path)
    }

    /// Opens a file for writing: makes it, or empties it.
    ///
    /// # Errors
    ///
    /// As `std::fs::File::create`.
    pub fn create<P: AsRef<Path>>(path: P) -> io::Result<File> {
        OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .open(path)
    }

    /// Makes a file for reading and writing.
    ///
    /// # Errors
    ///
    /// As `std::fs::File::create_new`; `AlreadyExists` if there is one.
    pub fn create_new<P: AsRef<Path>>(path: P) -> io::Result<File> {
        OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(path)
    }

    /// What a file can be opened with.
    #[must_use]
    pub fn options() -> OpenOptions {
        OpenOptions::new()
    }

    /// Waits until data and metadata are on the disk.
    ///
    /// # Errors
    ///
    /// The disk's.
    pub fn sync_all(&self) -> io::Result<()> {
        self.0.sync(false)
    }

    /// Waits until the data is on the disk, and of the metadata what it takes to read it.
    ///
    /// # Errors
    ///
    /// The disk's.
    pub fn sync_data(&self) -> io::Result<()> {
        self.0.sync(true)
    }

    /// Cuts the file, or extends it with zeros.
    ///
    /// # Errors
    ///
    /// As `std::fs::File::set_len`.
    pub fn set_len(&self, size: u64) -> io::Result<()> {
        self.0.call(|| self.0.file.set_len(size))
    }

    /// Makes sure that there is room for `len` bytes from `offset` on, with `fallocate(2)`.
    /// A file that ends before them is extended with zeros.
    ///
    /// # Errors
    ///
    /// `StorageFull`; `Unsupported` where the file system cannot; `InvalidInput` if `len` is 0.
    pub fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        self.0.allocate(offset, len)
    }

    /// What the file system knows about the file.
    ///
    /// # Errors
    ///
    /// As `std::fs::File::metadata`.
    pub fn metadata(&self) -> io::Result<fs::Metadata> {
        self.0.call(|| self.0.file.metadata())
    }

    /// A second handle to the same open file, which shares its position. The deadlines
    /// are copied, and from then on each handle has its own.
    ///
    /// # Errors
    ///
    /// When no descriptor is left.
    pub fn try_clone(&self) -> io::Result<File> {
        let clone = self.0.file.try_clone()?;
        let clone = File(Raw::new(clone, self.0.kind, self.0.file.is_remote()));
        let copy = |from: &AtomicU64, to: &AtomicU64| {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        };
        copy(&self.0.read_deadline_ns, &clone.0.read_deadline_ns);
        copy(&self.0.write_deadline_ns, &clone.0.write_deadline_ns);
        Ok(clone)
    }

    /// Changes who may read and write the file.
    ///
    /// # Errors
    ///
    /// As `std::fs::File::set_permissions`.
    pub fn set_permissions(&self, perm: fs::Permissions) -> io::Result<()> {
        self.0.call(|| self.0.file.set_permissions(perm.clone()))
    }

    /// Changes the file's times.
    ///
    /// # Errors
    ///
    /// As `std::fs::File::set_times`.
    pub fn set_times(&self, times: fs::FileTimes) -> io::Result<()> {
        self.0.call(|| self.0.file.set_times(times))
    }

    /// Changes the time of the last modification.
    ///
    /// # Errors
    ///
    /// As `std::fs::File::set_modified`.
    pub fn set_modified(&self, time: SystemTime) -> io::Result<()> {
        self.0.call(|| self.0.file.set_modified(time))
    }

    /// Locks the file for this handle alone, against all that lock it too.
    ///
    /// # Blocking
    ///
    /// Parks until the lock is free, with a spare thread that waits in `flock(2)`; the end of a
    /// run does not cut that short.
    ///
    /// # Errors
    ///
    /// As `std::fs::File::lock`.
    pub fn lock(&self) -> io::Result<()> {
        match self.try_lock() {
            Err(fs::TryLockError::WouldBlock) => offload(|| self.0.file.lock()),
            Err(fs::TryLockError::Error(e)) => Err(e),
            Ok(()) => Ok(()),
        }
    }

    /// Locks the file beside others that only share it.
    ///
    /// # Blocking
    ///
    /// As [`File::lock`].
    ///
    /// # Errors
    ///
    /// As `std::fs::File::lock_shared`.
    pub fn lock_shared(&self) -> io::Result<()> {
        match self.try_lock_shared() {
            Err(fs::TryLockError::WouldBlock) => offload(|| self.0.file.lock_shared()),
            Err(fs::TryLockError::Error(e)) => Err(e),
            Ok(()) => Ok(()),
        }
    }

    /// Locks the file for this handle alone, if nobody has it.
    ///
    /// # Errors
    ///
    /// `TryLockError::WouldBlock` if somebody has.
    pub fn try_lock(&self) -> Result<(), fs::TryLockError> {
        self.0.lock_call(|| self.0.file.try_lock())
    }

    /// Locks the file beside others that only share it, if nobody has it alone.
    ///
    /// # Errors
    ///
    /// `TryLockError::WouldBlock` if somebody has.
    pub fn try_lock_shared(&self) -> Result<(), fs::TryLockError> {
        self.0.lock_call(|| self.0.file.try_lock_shared())
    }

    /// Gives all locks of this handle back.
    ///
    /// # Errors
    ///
    /// As `std::fs::File::unlock`.
    pub fn unlock(&self) -> io::Result<()> {
        self.0.lock_call(|| self.0.file.unlock())
    }

    /// Sets the time at which reads through this handle end with `WouldBlock`; `None`
    /// for never. Reads that begin after this follow it.
    ///
    /// A wait for a pipe, FIFO or terminal ends at that time, and no byte is lost: what comes
    /// later is there for the next read. A read from a disk that the disk has begun is waited for.
    pub fn set_read_deadline(&self, deadline: Option<Instant>) {
        let ns = deadline.map_or(NEVER, ns_of);
        self.0.read_deadline_ns.store(ns, Ordering::Relaxed);
    }

    /// Sets the time at which writes through this handle end with `WouldBlock`; see
    /// [`File::set_read_deadline`].
    pub fn set_write_deadline(&self, deadline: Option<Instant>) {
        let ns = deadline.map_or(NEVER, ns_of);
        self.0.write_deadline_ns.store(ns, Ordering::Relaxed);
    }

    /// The file for `std`'s own calls.
    pub(super) fn std(&self) -> &fs::File {
        &self.0.file
    }

    pub(crate) fn kind(&self) -> Kind {
        self.0.kind
    }
}

/// The time on the runtime's clock.
fn ns_of(at: Instant) -> u64 {
    clock::deadline_ns(at.saturating_duration_since(clock::now()))
}

impl Read for &File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf)
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.0.read_vectored(bufs)
    }

    fn read_to_end(&mut self, buf: &mut Vec<u8>) -> io::Result<usize> {
        if self.kind() == Kind::Cached && self.0.read_deadline_ns.load(Ordering::Relaxed) == NEVER {
            // `std` knows the size and asks for all at once.
            return self.0.call(|| (&*self.0.file).read_to_end(buf));
        }
        ByRead(self).read_to_end(buf)
    }

    fn read_to_string(&mut self, buf: &mut String) -> io::Result<usize> {
        if self.kind() == Kind::Cached && self.0.read_deadline_ns.load(Ordering::Relaxed) == NEVER {
            return self.0.call(|| (&*self.0.file).read_to_string(buf));
        }
        ByRead(self).read_to_string(buf)
    }
}

/// The trait's own `read_to_end`, which reads in steps.
struct ByRead<'a>(&'a File);

impl Read for ByRead<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.0.read(buf)
    }
}

impl Write for &File {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.write(buf)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.write_vectored(bufs)
    }

    /// Does nothing: a file has no buffer of its own.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for &File {
    fn seek(&mut self, pos: SeekFrom) -> io::Result<u64> {
        match pos {
            // It asks how long the file is.
            SeekFrom::End(_) if self.0.file.is_remote() => {
                self.0.call(|| (&*self.0.file).seek(pos))
            }
            _ => (&*self.0.file).seek(pos),
        }
    }
}

impl Read for File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buf)
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&*self).read_vectored(bufs)
    }

    fn read_to_end(&mut self, buf: &mut Vec<u8>) -> io::Result<usize> {
        (&*self).read_to_end(buf)
    }

    fn read_to_string(&mut self, buf: &mut String) -> io::Result<usize> {
        (&*self).read_to_string(buf)
    }
}

impl Write for File {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        (&*self).write(buf)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        (&*self).write_vectored(bufs)
    }

    fn flush(&mut self) -> io::Result<()> {
        (&*self).flush()
    }
}

impl Seek for File {
    fn seek(&mut self, pos: SeekFrom) -> io::Result<u64> {
        (&*self).seek(pos)
    }
}

impl FileExt for File {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        self.0.write_at(buf, offset)
    }
}

impl From<fs::File> for File {
    fn from(file: fs::File) -> File {
        let (kind, is_remote) = Kind::of(&file);
        File(Raw::new(file, kind, is_remote))
    }
}

impl From<OwnedFd> for File {
    fn from(fd: OwnedFd) -> File {
        fs::File::from(fd).into()
    }
}

impl From<File> for fs::File {
    fn from(file: File) -> fs::File {
        file.0.file.into_std()
    }
}

impl From<File> for OwnedFd {
    fn from(file: File) -> OwnedFd {
        file.0.file.into_std().into()
    }
}

impl From<File> for Stdio {
    fn from(file: File) -> Stdio {
        file.0.file.into_std().into()
    }
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.file.as_fd()
    }
}

impl AsRawFd for File {
    fn as_raw_fd(&self) -> RawFd {
        self.0.file.as_raw_fd()
    }
}

impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // As `std`: descriptor, path, access.
        self.0.file.fmt(f)
    }
}

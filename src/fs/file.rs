//! `File`, the public type of an open file.

use std::fs;
use std::io::{self, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::process::Stdio;

use windlass_ground::std_traits::{fd_traits, from_raw_fd, write_by_reference};

use super::file_times::FileTimes;
use super::kind::Kind;
use super::memory::Handle;
use super::metadata::Metadata;
use super::transfer::Raw;
use crate::context::shield;
use crate::loom::native::atomic::{AtomicU64, Ordering};
use crate::poll::bytes::Stream;
use crate::poll::ready::look_for;
use crate::sched::wait::offload::offload_long;
use crate::sys::clock::{self, NEVER};
use crate::time::{Instant, SystemTime};

/// An open file: `std::fs::File`, whose calls wait by parking the goroutine.
///
/// The methods, the traits ([`Read`], [`Write`], [`Seek`], [`FileExt`]) and their errors are
/// `std`'s. A read or write of a pipe, FIFO, terminal or other stream parks the goroutine until
/// the stream is ready; a [deadline](File::set_read_deadline) ends such a wait, unless another reader of
/// a terminal was faster: then the thread blocks until more is typed. A read at the file's own position
/// may return less than is left of the file, where only the first part is in the page cache. The
/// [module](crate::fs#what-waits-where) lists how every other call waits.
///
/// # Blocking
///
/// Every method that makes a system call may park the goroutine, or block its thread in a
/// [`blocking`](crate::blocking) section. On a plain thread every call blocks the thread, as in
/// `std`. Calls on a file of a network or FUSE file system park the goroutine while a spare thread
/// makes them.
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
    /// Wraps a file of known kind, without a system call.
    pub(crate) fn with_kind(file: impl Into<fs::File>, kind: Kind) -> File {
        File(Raw::new(file.into(), kind, false))
    }

    /// Writes the file's data and metadata to the disk, with `fsync(2)`.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine; blocks a plain thread.
    ///
    /// # Errors
    ///
    /// The errors of `fsync(2)`, such as a failed write to the disk.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::io::Write;
    /// use windlass::fs::File;
    ///
    /// # let path = std::env::temp_dir().join(format!("windlass-sync-{}", std::process::id()));
    /// let mut file = File::create(&path)?;
    /// file.write_all(b"committed")?;
    /// file.sync_all()?;
    /// # windlass::fs::remove_file(&path)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn sync_all(&self) -> io::Result<()> {
        self.0.sync(false)
    }

    /// Writes the file's data to the disk, with the metadata that is needed to read it back
    /// (`fdatasync(2)`).
    ///
    /// # Blocking
    ///
    /// As [`File::sync_all`].
    ///
    /// # Errors
    ///
    /// As [`File::sync_all`].
    ///
    /// # Examples
    ///
    /// See [`File`].
    pub fn sync_data(&self) -> io::Result<()> {
        self.0.sync(true)
    }

    /// Truncates the file to `size` bytes, or extends it with zeros.
    ///
    /// # Blocking
    ///
    /// Blocks the thread, in a [`blocking`](crate::blocking) section.
    ///
    /// # Errors
    ///
    /// As `std::fs::File::set_len`.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::fs::File;
    ///
    /// # let path = std::env::temp_dir().join(format!("windlass-len-{}", std::process::id()));
    /// let file = File::create(&path)?;
    /// file.set_len(100)?;
    /// assert_eq!(file.metadata()?.len(), 100);
    /// # windlass::fs::remove_file(&path)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_len(&self, size: u64) -> io::Result<()> {
        on_simulated_file!(self.0, file => file.set_len(size));
        self.0.call(|| self.0.file.set_len(size))
    }

    /// Allocates disk space for `len` bytes from `offset` on, with `fallocate(2)`.
    ///
    /// A file that ends before `offset + len` is extended with zeros.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine; blocks a plain thread.
    ///
    /// # Errors
    ///
    /// `StorageFull`; `Unsupported` if the file system does not implement `fallocate(2)`;
    /// `InvalidInput` if `len` is 0.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::fs::File;
    ///
    /// # let path = std::env::temp_dir().join(format!("windlass-alloc-{}", std::process::id()));
    /// let log = File::create(&path)?;
    /// log.allocate(0, 1 << 16)?; // no write to the first 64 KiB fails with StorageFull
    /// assert_eq!(log.metadata()?.len(), 1 << 16);
    /// # windlass::fs::remove_file(&path)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        self.0.allocate(offset, len)
    }

    /// Returns the metadata of the file.
    ///
    /// # Blocking
    ///
    /// Blocks the thread, in a [`blocking`](crate::blocking) section.
    ///
    /// # Errors
    ///
    /// As `std::fs::File::metadata`.
    ///
    /// # Examples
    ///
    /// See [`File::set_len`].
    pub fn metadata(&self) -> io::Result<Metadata> {
        on_simulated_file!(self.0, file => super::memory::InMemory::new(file.metadata()?).map(Metadata::of_simulation));
        self.0.call(|| self.0.file.metadata()).map(Metadata::from)
    }

    /// Creates a second handle to the same open file. Both share the file position and locks.
    ///
    /// The deadlines are copied. After that, each handle has its own.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Errors
    ///
    /// If the process has no free descriptor.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::io::{Read, Seek, Write};
    /// use windlass::fs::File;
    ///
    /// # let path = std::env::temp_dir().join(format!("windlass-clone-{}", std::process::id()));
    /// let mut file = File::options().read(true).write(true).create_new(true).open(&path)?;
    /// let mut second = file.try_clone()?;
    /// file.write_all(b"abc")?;
    /// assert_eq!(second.stream_position()?, 3);
    /// # windlass::fs::remove_file(&path)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn try_clone(&self) -> io::Result<File> {
        let clone = self.0.file.try_clone()?;
        let mut clone = File(Raw::new(clone, self.0.kind, self.0.file.is_remote()));
        clone.0.memory = self.0.memory.clone();
        let copy = |from: &AtomicU64, to: &AtomicU64| {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        };
        copy(&self.0.read_deadline_ns, &clone.0.read_deadline_ns);
        copy(&self.0.write_deadline_ns, &clone.0.write_deadline_ns);
        Ok(clone)
    }

    /// Changes the permissions of the file.
    ///
    /// # Blocking
    ///
    /// Blocks the thread, in a [`blocking`](crate::blocking) section.
    ///
    /// # Errors
    ///
    /// As `std::fs::File::set_permissions`.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::os::unix::fs::PermissionsExt;
    /// use windlass::fs::{File, Permissions};
    ///
    /// # let path = std::env::temp_dir().join(format!("windlass-fperm-{}", std::process::id()));
    /// let file = File::create(&path)?;
    /// file.set_permissions(Permissions::from_mode(0o600))?;
    /// assert_eq!(file.metadata()?.permissions().mode() & 0o777, 0o600);
    /// # windlass::fs::remove_file(&path)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_permissions(&self, perm: fs::Permissions) -> io::Result<()> {
        on_simulated_file!(self.0, file => file.set_mode(std::os::unix::fs::PermissionsExt::mode(&perm)));
        self.0.call(|| self.0.file.set_permissions(perm.clone()))
    }

    /// Changes the access and modification times of the file.
    ///
    /// # Blocking
    ///
    /// Blocks the thread, in a [`blocking`](crate::blocking) section.
    ///
    /// # Errors
    ///
    /// As `std::fs::File::set_times`.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::fs::{File, FileTimes};
    /// use windlass::time::{Duration, UNIX_EPOCH};
    ///
    /// # let path = std::env::temp_dir().join(format!("windlass-times-{}", std::process::id()));
    /// let file = File::create(&path)?;
    /// let time = UNIX_EPOCH + Duration::from_secs(1_000_000);
    /// file.set_times(FileTimes::new().set_accessed(time))?;
    /// file.set_modified(time)?;
    /// assert_eq!(file.metadata()?.accessed()?, time);
    /// assert_eq!(file.metadata()?.modified()?, time);
    /// # windlass::fs::remove_file(&path)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_times(&self, times: FileTimes) -> io::Result<()> {
        on_simulated_file!(self.0, file => file.set_times(times));
        self.0.call(|| self.0.file.set_times(times.into()))
    }

    /// Changes the modification time of the file.
    ///
    /// # Blocking
    ///
    /// Blocks the thread, in a [`blocking`](crate::blocking) section.
    ///
    /// # Errors
    ///
    /// As `std::fs::File::set_modified`.
    ///
    /// # Examples
    ///
    /// See [`File::set_times`].
    pub fn set_modified(&self, time: impl Into<SystemTime>) -> io::Result<()> {
        self.set_times(FileTimes::new().set_modified(time))
    }

    /// Acquires an exclusive advisory lock on the file, with `flock(2)`.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine until the lock is free, while a spare thread waits in `flock(2)`. The
    /// end of a run does not end this wait, and neither does a context. Blocks a plain thread.
    /// Where 256 goroutines wait already, or no thread can be started, the goroutine looks for the
    /// lock every 0.5 to 50 ms.
    ///
    /// # Errors
    ///
    /// As `std::fs::File::lock`.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::fs::{File, TryLockError};
    ///
    /// # let path = std::env::temp_dir().join(format!("windlass-lock-{}", std::process::id()));
    /// let first = File::create(&path)?;
    /// let second = File::open(&path)?;
    /// first.lock()?;
    /// assert!(matches!(second.try_lock_shared(), Err(TryLockError::WouldBlock)));
    /// first.unlock()?;
    /// second.try_lock()?;
    /// # windlass::fs::remove_file(&path)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn lock(&self) -> io::Result<()> {
        on_simulated_file!(self.0, file => file.lock(true));
        match self.try_lock() {
            Err(fs::TryLockError::WouldBlock) => {
                wait_for_lock(|| self.0.file.lock(), || self.try_lock())
            }
            Err(fs::TryLockError::Error(e)) => Err(e),
            Ok(()) => Ok(()),
        }
    }

    /// Acquires a shared advisory lock on the file. Several handles can hold one at a time.
    ///
    /// # Blocking
    ///
    /// As [`File::lock`].
    ///
    /// # Errors
    ///
    /// As `std::fs::File::lock_shared`.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::fs::{File, TryLockError};
    ///
    /// let (first, second) = (File::open("Cargo.toml")?, File::open("Cargo.toml")?);
    /// first.lock_shared()?;
    /// second.lock_shared()?;
    /// assert!(matches!(first.try_lock(), Err(TryLockError::WouldBlock)));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn lock_shared(&self) -> io::Result<()> {
        on_simulated_file!(self.0, file => file.lock(false));
        match self.try_lock_shared() {
            Err(fs::TryLockError::WouldBlock) => {
                wait_for_lock(|| self.0.file.lock_shared(), || self.try_lock_shared())
            }
            Err(fs::TryLockError::Error(e)) => Err(e),
            Ok(()) => Ok(()),
        }
    }

    /// Acquires an exclusive lock if no other handle holds a lock.
    ///
    /// # Blocking
    ///
    /// Never. Parks the goroutine for a call to a server if the file is on one.
    ///
    /// # Errors
    ///
    /// `TryLockError::WouldBlock` if another handle holds a lock.
    ///
    /// # Examples
    ///
    /// See [`File::lock`].
    pub fn try_lock(&self) -> Result<(), fs::TryLockError> {
        on_simulated_file!(self.0, file => file.try_lock(true));
        self.0.lock_call(|| self.0.file.try_lock())
    }

    /// Acquires a shared lock if no other handle holds an exclusive lock.
    ///
    /// # Blocking
    ///
    /// As [`File::try_lock`].
    ///
    /// # Errors
    ///
    /// `TryLockError::WouldBlock` if another handle holds an exclusive lock.
    ///
    /// # Examples
    ///
    /// See [`File::lock`].
    pub fn try_lock_shared(&self) -> Result<(), fs::TryLockError> {
        on_simulated_file!(self.0, file => file.try_lock(false));
        self.0.lock_call(|| self.0.file.try_lock_shared())
    }

    /// Releases the lock of this handle. Closing the last handle releases it, too.
    ///
    /// # Blocking
    ///
    /// As [`File::try_lock`].
    ///
    /// # Errors
    ///
    /// As `std::fs::File::unlock`.
    ///
    /// # Examples
    ///
    /// See [`File::lock`].
    pub fn unlock(&self) -> io::Result<()> {
        on_simulated_file!(self.0, file => file.unlock());
        self.0.lock_call(|| self.0.file.unlock())
    }

    /// Sets the time at which reads through this handle fail with `WouldBlock`; `None` for never.
    ///
    /// The deadline applies to reads that begin after this call. A wait for a pipe, FIFO or
    /// terminal ends at the deadline, and no byte is lost: later bytes are returned by the next
    /// read. A read that a disk has already begun is not cut short.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::io::{ErrorKind, Read};
    /// use std::os::fd::OwnedFd;
    /// use windlass::fs::File;
    /// use windlass::time::{Duration, Instant};
    ///
    /// # // SAFETY: nothing here keeps a thread-local across a call that parks.
    /// # let rt = unsafe { windlass::Builder::new().processors(1).build()? };
    /// let (reader, _writer) = std::io::pipe()?;
    /// let mut pipe = File::from(OwnedFd::from(reader));
    /// rt.run(|| {
    ///     pipe.set_read_deadline(Some(Instant::now() + Duration::from_millis(2)));
    ///     assert_eq!(pipe.read(&mut [0; 8]).unwrap_err().kind(), ErrorKind::WouldBlock);
    /// });
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_read_deadline(&self, deadline: Option<Instant>) {
        let ns = deadline.map_or(NEVER, ns_of);
        self.0.read_deadline_ns.store(ns, Ordering::Relaxed);
    }

    /// Sets the time at which writes through this handle fail with `WouldBlock`; `None` for never.
    ///
    /// As [`File::set_read_deadline`], for writes.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Examples
    ///
    /// See [`File::set_read_deadline`].
    pub fn set_write_deadline(&self, deadline: Option<Instant>) {
        let ns = deadline.map_or(NEVER, ns_of);
        self.0.write_deadline_ns.store(ns, Ordering::Relaxed);
    }

    /// Returns the file for calls of `std`.
    pub(super) fn std(&self) -> &fs::File {
        &self.0.file
    }

    pub(crate) fn kind(&self) -> Kind {
        self.0.kind
    }

    /// Returns the file for reads and writes that may wait for ever.
    pub(crate) fn stream(&self) -> Stream<'_> {
        self.0.stream()
    }
}

/// Waits for a lock on a spare thread. Its holder may need a spare thread before it unlocks, so where
/// none would be left, tries again and again instead.
fn wait_for_lock(
    lock: impl FnOnce() -> io::Result<()> + Send,
    try_lock: impl Fn() -> Result<(), fs::TryLockError>,
) -> io::Result<()> {
    offload_long(lock).unwrap_or_else(|_| {
        shield(|| {
            look_for(|| match try_lock() {
                Err(fs::TryLockError::WouldBlock) => Ok(None),
                Err(fs::TryLockError::Error(e)) => Err(e),
                Ok(()) => Ok(Some(())),
            })
        })
    })
}

/// Converts an instant to the runtime's clock.
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
        on_simulated_file!(self.0, file => {
            buf.try_reserve(file.bytes_left())?;
            ByRead(self).read_to_end(buf)
        });
        if self.kind() == Kind::Cached && self.0.read_deadline_ns.load(Ordering::Relaxed) == NEVER {
            // `std` knows the size and reads the whole file at once.
            return self.0.call(|| (&*self.0.file).read_to_end(buf));
        }
        ByRead(self).read_to_end(buf)
    }

    fn read_to_string(&mut self, buf: &mut String) -> io::Result<usize> {
        on_simulated_file!(self.0, file => {
            buf.try_reserve(file.bytes_left())?;
            ByRead(self).read_to_string(buf)
        });
        if self.kind() == Kind::Cached && self.0.read_deadline_ns.load(Ordering::Relaxed) == NEVER {
            return self.0.call(|| (&*self.0.file).read_to_string(buf));
        }
        ByRead(self).read_to_string(buf)
    }
}

/// Reads by [`File`]'s `read` only, so that the trait's default `read_to_end` applies.
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

    /// Does nothing, because a `File` has no buffer.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for &File {
    fn seek(&mut self, pos: SeekFrom) -> io::Result<u64> {
        on_simulated_file!(self.0, file => file.seek(pos));
        match pos {
            // Seeking from the end needs the file's length, which the server has.
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

write_by_reference!(File);

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

impl From<Raw> for File {
    fn from(raw: Raw) -> File {
        File(raw)
    }
}

impl From<fs::File> for File {
    fn from(file: fs::File) -> File {
        if let Some(handle) = Handle::of_descriptor(&file) {
            return Raw::in_memory(file, handle).into();
        }
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
        file.0.into_std()
    }
}

impl From<File> for OwnedFd {
    fn from(file: File) -> OwnedFd {
        file.0.into_std().into()
    }
}

impl From<File> for Stdio {
    fn from(file: File) -> Stdio {
        file.0.into_std().into()
    }
}

fd_traits!(File, |this| this.0.file);
from_raw_fd!(File);

impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        on_simulated_file!(self.0, file => file.fmt(f));
        // As `std`: descriptor, path, access mode.
        self.0.file.fmt(f)
    }
}

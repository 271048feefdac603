//! Reads and writes of files: chooses between a call in place and the ring.
//!
//! **Reads at a position** (`read_at`) first try the page cache in place (`preadv2` with
//! `RWF_NOWAIT`). A hit costs 0.15 µs more than a plain `pread`, and saves the park
//! and the 0.05 to 0.1 µs of the ring. A miss goes to the ring. A miss costs 0.3 µs, which is small
//! beside the disk access; still, after a miss the next few reads of the file go to the ring
//! directly, and after many hits reads no longer ask (`warmth`). With `O_DIRECT` the page cache is not tried.
//!
//! **Reads at the file's own position** must use `read(2)`, because only `read(2)` locks the
//! position, also against other processes that share it. The ring reads the position and writes it
//! back later, so two readers would get the same bytes, and two writers would overwrite each
//! other. On a cache miss, the ring therefore reads at that position to fill the cache, and
//! `read(2)` then returns the data. Readahead makes such misses rare.
//!
//! **Writes** to a cached file are made in place: they copy into memory. ext4 does not support
//! non-blocking buffered writes, so the ring would pass each one to a kernel worker.
//!
//! **Remote files** (`mounts`: NFS, FUSE and the like) are read and written on spare threads,
//! except with `O_DIRECT`, where the ring uses kernel workers.
//!
//! **Streams** go through the ring, which polls them. Calls for no bytes are made in place: they do not
//! wait, but a poll would.
#![allow(unsafe_code)]

use std::fmt;
use std::fs;
use std::io::{self, IoSlice, IoSliceMut, Read, Seek, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;

use super::kind::Kind;
use super::memory::Handle;
use super::section::{check_before_call, choose};
use super::warmth::{Warmth, Way};
use crate::g::header::GRef;
use crate::loom::native::LazyLock;
use crate::loom::native::atomic::{AtomicU64, Ordering};
use crate::poll::bytes::{self, Stream};
use crate::poll::op;
use crate::sched::wait::handoff;
use crate::sched::wait::offload::offload;
use crate::sched::wait::park::{self, Caller};
use crate::sys::clock::{self, NEVER};
use crate::sys::errno::retry;
use crate::sys::file::{self as sys_file, read_cached};
use crate::sys::request::{Buffers, HERE, MAX_LEN, Request};
use crate::util::ladder;

/// Copies of at least this many bytes are made in a blocking section, because they take long.
const LONG_COPY: usize = 64 * 1024;

/// A read in place that takes longer may have waited for the disk.
static LONG_READ_TICKS: LazyLock<u64> = LazyLock::new(|| clock::ticks_in(ladder::GRACE_NS));

/// An open file, its kind and its deadlines.
#[derive(Debug)]
pub(super) struct Raw {
    pub(super) file: Descriptor,
    pub(super) kind: Kind,
    /// Absolute time in ns, `NEVER` for none. Ordering: relaxed, a setting.
    pub(super) read_deadline_ns: AtomicU64,
    /// As `read_deadline_ns`.
    pub(super) write_deadline_ns: AtomicU64,
    warmth: Warmth,
    /// The file, if it is on a simulated disk. Then the descriptor only stands for it.
    pub(super) memory: Option<Handle>,
}

/// A descriptor that is closed on a spare thread if the close may wait for a server.
pub(super) struct Descriptor {
    /// `None` only after `into_std` or in `drop`.
    file: Option<fs::File>,
    /// Whether calls may wait for a server. They are then made on spare threads, even for data in
    /// the page cache, because these file systems do not support `RWF_NOWAIT`.
    is_remote: bool,
}

impl std::ops::Deref for Descriptor {
    type Target = fs::File;
    #[inline]
    fn deref(&self) -> &fs::File {
        self.file.as_ref().expect("it is there until the end")
    }
}

impl fmt::Debug for Descriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fs::File::fmt(self, f)
    }
}

impl Descriptor {
    #[inline]
    pub(super) fn is_remote(&self) -> bool {
        self.is_remote
    }

    pub(super) fn into_std(mut self) -> fs::File {
        self.file.take().expect("it is there until the end")
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // The last close writes back dirty data, so it may wait for the server.
        if self.is_remote
            && let Some(file) = self.file.take()
        {
            offload(move || drop(file));
        }
    }
}

impl Raw {
    pub(super) fn new(file: fs::File, kind: Kind, is_remote: bool) -> Raw {
        Raw {
            file: Descriptor {
                file: Some(file),
                is_remote,
            },
            kind,
            read_deadline_ns: AtomicU64::new(NEVER),
            write_deadline_ns: AtomicU64::new(NEVER),
            warmth: Warmth::default(),
            memory: None,
        }
    }

    /// A file of a simulated disk, for which `file` stands.
    pub(super) fn in_memory(file: fs::File, handle: Handle) -> Raw {
        let kind = if handle.is_direct() {
            Kind::Direct
        } else {
            Kind::Cached
        };
        Raw {
            memory: Some(handle),
            ..Raw::new(file, kind, false)
        }
    }

    /// Returns the descriptor.
    pub(super) fn into_std(self) -> fs::File {
        if let Some(memory) = self.memory {
            memory.take_out(&self.file);
        }
        self.file.into_std()
    }

    fn fd(&self) -> i32 {
        self.file.as_raw_fd()
    }

    /// Makes a call in place, or on a spare thread if the file is remote.
    #[inline]
    pub(super) fn call<T: Send>(
        &self,
        call: impl FnMut() -> io::Result<T> + Send,
    ) -> io::Result<T> {
        choose(self.file.is_remote, call)
    }

    /// Makes a call that does not wait, without a blocking section; on a spare thread if the file
    /// is remote.
    pub(super) fn lock_call<T: Send>(&self, call: impl FnOnce() -> T + Send) -> T {
        if self.file.is_remote {
            offload(call)
        } else {
            call()
        }
    }

    /// Returns the calling goroutine, if the caller is one that can park.
    fn goroutine(&self) -> Option<GRef> {
        match park::caller() {
            Caller::Goroutine(g) => Some(g),
            Caller::Thread => None,
        }
    }

    pub(super) fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
        let deadline_ns = check(&self.read_deadline_ns)?;
        on_simulated_file!(self, file => file.read(buf));
        let len = buf.len().min(MAX_LEN);
        let buf = &mut buf[..len];
        match (self.kind, self.goroutine()) {
            (kind, g) if kind.is_stream() && !buf.is_empty() => {
                // SAFETY: the buffer is borrowed by the caller until this returns.
                unsafe { self.read_into(g, Buffers::to_fill(buf), HERE, deadline_ns) }
            }
            (Kind::Cached, Some(g)) if !self.file.is_remote => {
                self.read_cursor(g, buf, deadline_ns)
            }
            _ => self.call(|| (&*self.file).read(buf)),
        }
    }

    /// Reads at the file's own position, from the page cache or with the ring's help.
    fn read_cursor(&self, g: GRef, buf: &mut [u8], deadline_ns: u64) -> io::Result<usize> {
        if buf.len() < LONG_COPY && self.warmth.next_in_place() == Way::InPlace {
            return self.read_warm(|| (&*self.file).read(buf));
        }
        match self.look_in_cache(buf, None) {
            Ok(n) => {
                self.warmth.note_hit();
                return Ok(n);
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                self.warmth.note_miss();
                let at = (&*self.file).stream_position()?;
                match self.read_ring(g, buf, at, deadline_ns) {
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Err(e),
                    // The `read` below reports any other error.
                    _ => {}
                }
            }
            // This file system cannot be asked.
            Err(_) => return self.call(|| self.timed(|| (&*self.file).read(buf))),
        }
        self.call(|| (&*self.file).read(buf))
    }

    /// Reads in place without asking whether the page cache has the data. Without a blocking section: beside a
    /// machine at its limit, a thread that had no CPU for 20 µs would lose its P.
    #[inline]
    fn read_warm(&self, mut read: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
        check_before_call()?;
        retry(|| self.timed(&mut read))
    }

    /// Reads, and notes how long that took.
    #[inline]
    fn timed(&self, read: impl FnOnce() -> io::Result<usize>) -> io::Result<usize> {
        let begin = clock::ticks();
        let r = read();
        match clock::ticks().wrapping_sub(begin) <= *LONG_READ_TICKS {
            true => self.warmth.note_hit(),
            false => self.warmth.note_long(),
        }
        r
    }

    fn look_in_cache(&self, buf: &mut [u8], offset: Option<u64>) -> io::Result<usize> {
        check_before_call()?;
        if buf.len() < LONG_COPY {
            return read_cached(self.file.as_fd(), buf, offset);
        }
        handoff::blocking(|| read_cached(self.file.as_fd(), buf, offset))
    }

    fn read_ring(
        &self,
        g: GRef,
        buf: &mut [u8],
        offset: u64,
        deadline_ns: u64,
    ) -> io::Result<usize> {
        // SAFETY: the buffer is borrowed by the caller until this returns.
        unsafe { self.read_into(Some(g), Buffers::to_fill(buf), offset, deadline_ns) }
    }

    pub(super) fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let deadline_ns = check(&self.read_deadline_ns)?;
        on_simulated_file!(self, file => file.read_at(buf, offset));
        let len = buf.len().min(MAX_LEN);
        let buf = &mut buf[..len];
        // The ring takes an offset above `i64::MAX` for "the file's own position".
        let valid = i64::try_from(offset).is_ok();
        match (self.kind, self.goroutine()) {
            (Kind::Cached, Some(g)) if valid && !self.file.is_remote => {
                self.read_at_cached(g, buf, offset, deadline_ns)
            }
            (Kind::Direct, Some(g)) if valid => self.read_ring(g, buf, offset, deadline_ns),
            // A stream with positions (a device) does not wait; on a pipe the call is an error.
            _ => self.call(|| self.file.read_at(buf, offset)),
        }
    }

    fn read_at_cached(
        &self,
        g: GRef,
        buf: &mut [u8],
        offset: u64,
        deadline_ns: u64,
    ) -> io::Result<usize> {
        match self.warmth.next_read() {
            Way::InPlace if buf.len() < LONG_COPY => {
                return self.read_warm(|| self.file.read_at(buf, offset));
            }
            Way::InPlace | Way::Ask => {}
            Way::Ring => return self.read_ring(g, buf, offset, deadline_ns),
        }
        match self.look_in_cache(buf, Some(offset)) {
            Ok(n) if n == 0 || n == buf.len() => {
                self.warmth.note_hit();
                Ok(n)
            }
            // A short read: at the end of the file, or at the end of the cached data.
            Ok(n) => {
                let rest = self.read_ring(g, &mut buf[n..], offset + n as u64, deadline_ns);
                Ok(n + rest.unwrap_or(0))
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                self.warmth.note_miss();
                self.read_ring(g, buf, offset, deadline_ns)
            }
            // This file system cannot be asked.
            Err(_) => self.call(|| self.timed(|| self.file.read_at(buf, offset))),
        }
    }

    pub(super) fn read_vectored(&self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let deadline_ns = check(&self.read_deadline_ns)?;
        on_simulated_file!(self, file => file.read_vectored(bufs));
        match (self.kind, self.goroutine()) {
            (kind, g) if kind.is_stream() && bufs.iter().any(|buf| !buf.is_empty()) => {
                // SAFETY: the buffers and their vector are borrowed by the caller until this returns.
                unsafe { self.read_into(g, Buffers::to_fill_each(bufs), HERE, deadline_ns) }
            }
            _ => self.call(|| (&*self.file).read_vectored(bufs)),
        }
    }

    pub(super) fn write(&self, buf: &[u8]) -> io::Result<usize> {
        let deadline_ns = check(&self.write_deadline_ns)?;
        on_simulated_file!(self, file => file.write(buf));
        let buf = &buf[..buf.len().min(MAX_LEN)];
        match (self.kind, self.goroutine()) {
            (kind, g) if kind.is_stream() && !buf.is_empty() => {
                // SAFETY: the buffer is borrowed by the caller until this returns.
                unsafe { self.write_from(g, Buffers::to_write(buf), HERE, deadline_ns) }
            }
            _ => self.call(|| (&*self.file).write(buf)),
        }
    }

    pub(super) fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        let deadline_ns = check(&self.write_deadline_ns)?;
        on_simulated_file!(self, file => file.write_at(buf, offset));
        let buf = &buf[..buf.len().min(MAX_LEN)];
        match (self.kind, self.goroutine()) {
            (Kind::Direct, Some(g)) if i64::try_from(offset).is_ok() => {
                // SAFETY: the buffer is borrowed by the caller until this returns.
                unsafe { self.write_from(Some(g), Buffers::to_write(buf), offset, deadline_ns) }
            }
            _ => self.call(|| self.file.write_at(buf, offset)),
        }
    }

    pub(super) fn write_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let deadline_ns = check(&self.write_deadline_ns)?;
        on_simulated_file!(self, file => file.write_vectored(bufs));
        match (self.kind, self.goroutine()) {
            (kind, g) if kind.is_stream() && bufs.iter().any(|buf| !buf.is_empty()) => {
                // SAFETY: the buffers and their vector are borrowed by the caller until this returns.
                unsafe { self.write_from(g, Buffers::to_write_each(bufs), HERE, deadline_ns) }
            }
            _ => self.call(|| (&*self.file).write_vectored(bufs)),
        }
    }

    pub(super) fn sync(&self, data_only: bool) -> io::Result<()> {
        on_simulated_file!(self, file => file.sync(data_only));
        let Some(g) = self.goroutine() else {
            return self.call(|| {
                if data_only {
                    self.file.sync_data()
                } else {
                    self.file.sync_all()
                }
            });
        };
        let request = Request::Fsync {
            fd: self.fd(),
            data_only,
        };
        // SAFETY: the request contains no pointer.
        unsafe { op::run(g, request, NEVER) }.map(drop)
    }

    pub(super) fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        on_simulated_file!(self, file => file.allocate(offset, len));
        let (Ok(start), Ok(length)) = (i64::try_from(offset), i64::try_from(len)) else {
            return Err(io::Error::from_raw_os_error(libc::EFBIG));
        };
        let Some(g) = self.goroutine() else {
            return self.call(|| sys_file::allocate(self.file.as_fd(), start, length));
        };
        let request = Request::Fallocate {
            fd: self.fd(),
            offset,
            len,
        };
        // SAFETY: the request contains no pointer.
        unsafe { op::run(g, request, NEVER) }.map(drop)
    }

    pub(super) fn stream(&self) -> Stream<'_> {
        Stream {
            fd: self.file.as_fd(),
            is_device: self.kind == Kind::Device,
        }
    }

    /// Reads through the ring, or blocks a plain thread.
    ///
    /// # Safety
    ///
    /// As [`Raw::run`].
    unsafe fn read_into(
        &self,
        g: Option<GRef>,
        bufs: Buffers,
        offset: u64,
        deadline_ns: u64,
    ) -> io::Result<usize> {
        let fd = self.fd();
        // SAFETY: by this function's contract.
        unsafe { self.run(g, Request::Read { fd, bufs, offset }, deadline_ns) }
    }

    /// As [`Raw::read_into`], writes.
    ///
    /// # Safety
    ///
    /// As [`Raw::run`].
    unsafe fn write_from(
        &self,
        g: Option<GRef>,
        bufs: Buffers,
        offset: u64,
        deadline_ns: u64,
    ) -> io::Result<usize> {
        let fd = self.fd();
        // SAFETY: by this function's contract.
        unsafe { self.run(g, Request::Write { fd, bufs, offset }, deadline_ns) }
    }

    /// Runs a read or write: parks the goroutine `g`, or blocks a plain thread.
    ///
    /// # Safety
    ///
    /// All memory that the request points at stays valid until this returns.
    unsafe fn run(&self, g: Option<GRef>, request: Request, deadline_ns: u64) -> io::Result<usize> {
        match g {
            // SAFETY: by this function's contract.
            Some(g) if self.kind.is_stream() => unsafe {
                bytes::run(g, self.stream(), request, deadline_ns)
            },
            // SAFETY: as above.
            Some(g) => unsafe { op::run(g, request, deadline_ns) }.map(|done| done.n),
            // SAFETY: as above.
            None => unsafe { bytes::run_on_thread(self.file.as_fd(), request, deadline_ns) },
        }
    }
}

/// Returns the deadline, or `WouldBlock` if it has passed.
fn check(deadline_ns: &AtomicU64) -> io::Result<u64> {
    match deadline_ns.load(Ordering::Relaxed) {
        NEVER => Ok(NEVER),
        ns if ns <= clock::now_ns() => Err(io::ErrorKind::WouldBlock.into()),
        ns => Ok(ns),
    }
}

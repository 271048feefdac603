//! Calls that any thread may make on any ring, and that therefore take a bare descriptor instead of
//! the owner's ring: two `io_uring_register(2)` operations, and further mappings of a ring's
//! queues.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
#[cfg(not(explore))]
use std::sync::OnceLock;
#[cfg(not(explore))]
use std::sync::atomic::{AtomicU32, Ordering};

use super::errno::cvt;

const REGISTER_SYNC_CANCEL: libc::c_uint = 24;
/// `IORING_ASYNC_CANCEL_ALL` and `.._ANY`: all operations, whatever they are named.
const CANCEL_EVERYTHING: u32 = 1 | 1 << 2;
const REGISTER_SEND_MSG_RING: libc::c_uint = 31;
const OP_MSG_RING: u8 = 40;

/// The offsets of a ring's queues for `mmap`: rings, entries (`io_uring.h`).
const OFFSETS: [libc::off_t; 2] = [0, 0x1000_0000];

#[repr(C)]
struct SyncCancelReg {
    addr: u64,
    fd: i32,
    flags: u32,
    timeout: [i64; 2],
    opcode: u8,
    pad: [u8; 7],
    pad2: [u64; 3],
}

/// The 64 bytes of a submission entry, with the fields that message passing uses.
#[repr(C)]
struct MsgSqe {
    opcode: u8,
    flags: u8,
    ioprio: u16,
    fd: i32,
    off: u64,
    addr: u64,
    len: u32,
    rest: [u32; 9],
}
const _: () = assert!(size_of::<MsgSqe>() == 64 && size_of::<SyncCancelReg>() == 64);

fn register(fd: i32, op: libc::c_uint, arg: *const libc::c_void) -> io::Result<()> {
    // SAFETY: each caller passes the argument that its operation reads, alive during the call.
    let r = unsafe { libc::syscall(libc::SYS_io_uring_register, fd, op, arg, 1) };
    cvt(r as libc::c_int).map(drop)
}

/// Cancels the operation with `user_data` that was submitted on the ring (Linux 6.0). Its
/// completion still comes, with ECANCELED or its result.
///
/// # Errors
///
/// `ENOENT` if the ring has no such operation (not submitted yet, or completed), `EALREADY` if it
/// is executing and will complete by itself, `ETIME` if it did not end at once.
#[cfg_attr(explore, allow(unreachable_code), track_caller)]
pub fn sync_cancel(ring: BorrowedFd<'_>, user_data: u64) -> io::Result<()> {
    #[cfg(explore)]
    return windlass_explorer::sync_cancel(ring.as_raw_fd(), Some(user_data));
    cancel(ring, user_data, 0)
}

/// Cancels all operations that were submitted on the ring (Linux 6.0), as [`sync_cancel`] does one. Entries that were
/// queued and not submitted are none.
///
/// # Errors
///
/// The kernel's.
#[cfg_attr(explore, allow(unreachable_code), track_caller)]
pub fn sync_cancel_all(ring: BorrowedFd<'_>) -> io::Result<()> {
    #[cfg(explore)]
    return windlass_explorer::sync_cancel(ring.as_raw_fd(), None);
    cancel(ring, 0, CANCEL_EVERYTHING)
}

fn cancel(ring: BorrowedFd<'_>, user_data: u64, flags: u32) -> io::Result<()> {
    let arg = SyncCancelReg {
        addr: user_data,
        fd: -1,
        flags,
        timeout: [0, 0],
        opcode: 0,
        pad: [0; 7],
        pad2: [0; 3],
    };
    register(
        ring.as_raw_fd(),
        REGISTER_SYNC_CANCEL,
        (&raw const arg).cast(),
    )
}

/// Posts a completion with `user_data` into the ring, from any thread and
/// without a ring (Linux 6.13).
///
/// # Errors
///
/// `EINVAL` on kernels without this operation.
#[cfg_attr(explore, allow(unreachable_code), track_caller)]
pub fn send_msg_ring(ring: BorrowedFd<'_>, user_data: u64) -> io::Result<()> {
    #[cfg(explore)]
    return windlass_explorer::send_msg_ring(ring.as_raw_fd(), user_data);
    let sqe = MsgSqe {
        opcode: OP_MSG_RING,
        flags: 0,
        ioprio: 0,
        fd: ring.as_raw_fd(),
        off: user_data,
        addr: 0,
        len: 0,
        rest: [0; 9],
    };
    register(-1, REGISTER_SEND_MSG_RING, (&raw const sqe).cast())
}

/// A further mapping of a ring's queues, besides the owner's.
#[derive(Debug)]
pub struct View {
    base: *mut libc::c_void,
    bytes: usize,
}

impl View {
    /// Its address range.
    pub fn span(&self) -> std::ops::Range<usize> {
        self.base.addr()..self.base.addr() + self.bytes
    }
}

impl Drop for View {
    fn drop(&mut self) {
        // SAFETY: this view owns the mapping.
        unsafe { libc::munmap(self.base, self.bytes) };
    }
}

/// Maps the first bytes of both parts of a ring again, for inspection.
///
/// # Errors
///
/// The kernel's: `EINVAL` if a part is shorter.
pub fn map_again(ring: BorrowedFd<'_>, bytes: [usize; 2]) -> io::Result<[View; 2]> {
    Ok([map_part(ring, 0, bytes[0])?, map_part(ring, 1, bytes[1])?])
}

fn map_part(ring: BorrowedFd<'_>, part: usize, bytes: usize) -> io::Result<View> {
    // SAFETY: a mapping at an address of the kernel's choice touches no existing memory.
    let base = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ,
            libc::MAP_SHARED | libc::MAP_POPULATE,
            ring.as_raw_fd(),
            OFFSETS[part],
        )
    };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    Ok(View { base, bytes })
}

/// The set-up of a ring, as the kernel fills it in (`struct io_uring_params`).
#[cfg(not(explore))]
#[repr(C)]
#[derive(Default)]
struct Params {
    sizes_and_features: [u32; 10],
    sq: QueueOffsets,
    cq: QueueOffsets,
}

/// Where a queue's words are (`struct io_sqring_offsets`, `struct io_cqring_offsets`).
#[cfg(not(explore))]
#[repr(C)]
#[derive(Default)]
struct QueueOffsets {
    head: u32,
    tail: u32,
    _mask: u32,
    _entries: u32,
    /// Of the submission queue only.
    flags: u32,
    _rest: [u32; 5],
}
#[cfg(not(explore))]
const _: () = assert!(size_of::<Params>() == 120);

/// Where the words of [`SharedWords`] are in the first part of a ring: the same in every ring of a
/// kernel. `None` if no ring can be made.
#[cfg(not(explore))]
fn offsets() -> Option<[usize; 5]> {
    static OFFSETS: OnceLock<Option<[usize; 5]>> = OnceLock::new();
    *OFFSETS.get_or_init(|| {
        let mut params = Params::default();
        // SAFETY: the kernel reads and writes a `struct io_uring_params`, which this is.
        let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, &raw mut params) };
        let fd = cvt(fd as libc::c_int).ok()?;
        // SAFETY: the call returned a descriptor that has no other owner.
        unsafe { libc::close(fd) };
        let Params { sq, cq, .. } = params;
        let all = [sq.head, sq.tail, sq.flags, cq.head, cq.tail].map(|at| at as usize);
        let are_words = |at: &usize| at.is_multiple_of(4) && *at < WORDS_BYTES;
        all.iter().all(are_words).then_some(all)
    })
}

/// The words of a ring lie in its first bytes, before the completions.
#[cfg(not(explore))]
const WORDS_BYTES: usize = 4096;
/// `IORING_SQ_CQ_OVERFLOW`, `IORING_SQ_TASKRUN`.
#[cfg(not(explore))]
const SQ_CQ_OVERFLOW: u32 = 1 << 1;
#[cfg(not(explore))]
const SQ_TASKRUN: u32 = 1 << 2;

/// The words that the owner of a ring and the kernel share, for other threads to read.
///
/// Ordering: relaxed; a reader takes them for hints, and the one that acts on them becomes the
/// owner of the ring first.
#[derive(Debug)]
pub struct SharedWords {
    #[cfg(not(explore))]
    view: View,
    #[cfg(not(explore))]
    offsets: [usize; 5],
    #[cfg(explore)]
    fd: i32,
}

impl SharedWords {
    /// Maps the words of the ring. `None` if the kernel refuses. The mapping keeps the ring
    /// open.
    #[cfg(not(explore))]
    pub fn map(ring: BorrowedFd<'_>) -> Option<SharedWords> {
        let offsets = offsets()?;
        let view = map_part(ring, 0, WORDS_BYTES).ok()?;
        // As the owner's mapping: a child process must not keep the ring open.
        // SAFETY: the range is a mapping of this function's own.
        unsafe { libc::madvise(view.base, view.bytes, libc::MADV_DONTFORK) };
        Some(SharedWords { view, offsets })
    }

    #[cfg(not(explore))]
    #[inline]
    fn word(&self, at: usize) -> u32 {
        // SAFETY: the view maps `WORDS_BYTES` bytes, and the offsets are those of words within
        // (`offsets`), which the kernel and the owner of the ring write as atomics.
        unsafe { &*self.view.base.byte_add(at).cast::<AtomicU32>() }.load(Ordering::Relaxed)
    }

    /// Whether the kernel has completions for a thread that has not collected them.
    #[cfg(not(explore))]
    #[inline]
    pub fn has_task_work(&self) -> bool {
        self.word(self.offsets[2]) & (SQ_TASKRUN | SQ_CQ_OVERFLOW) != 0
    }

    /// Whether the owner would find something to do: completions, task work, entries that it has
    /// not submitted.
    #[cfg(not(explore))]
    #[inline]
    pub fn has_news(&self) -> bool {
        let [sq_head, sq_tail, _, cq_head, cq_tail] = self.offsets.map(|at| self.word(at));
        self.has_task_work() || sq_head != sq_tail || cq_head != cq_tail
    }

    /// As the real one, which may fail.
    #[cfg(explore)]
    #[allow(clippy::unnecessary_wraps, reason = "the real one may fail")]
    pub fn map(ring: BorrowedFd<'_>) -> Option<SharedWords> {
        Some(SharedWords {
            fd: ring.as_raw_fd(),
        })
    }

    /// Whether the kernel has completions for a thread that has not collected them.
    #[cfg(explore)]
    pub fn has_task_work(&self) -> bool {
        windlass_explorer::ring_has_task_work(self.fd)
    }

    /// Whether the owner would find something to do.
    #[cfg(explore)]
    pub fn has_news(&self) -> bool {
        windlass_explorer::ring_has_news(self.fd)
    }
}

// SAFETY: a view is an address range, which any thread may read and unmap.
unsafe impl Send for SharedWords {}
// SAFETY: as for Send; the words are atomics.
unsafe impl Sync for SharedWords {}

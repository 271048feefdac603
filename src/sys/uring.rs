//! Calls that any thread may make on any ring, and that therefore take a bare descriptor instead of
//! the owner's ring: two `io_uring_register(2)` operations, and a further mapping of a ring's
//! queues.
#![allow(unsafe_code)]

use std::io;

use super::errno::cvt;

const REGISTER_SYNC_CANCEL: libc::c_uint = 24;
/// Cancels all operations on a descriptor, instead of one by its `user_data`.
const CANCEL_ALL_OF_FD: u32 = 1 | 1 << 1;
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

/// Cancels the operation with `user_data` that was submitted on ring `fd` (Linux 6.0). Its
/// completion still comes, with ECANCELED or its result.
///
/// # Errors
///
/// `ENOENT` if the ring has no such operation (not submitted yet, or completed), `EALREADY` if it
/// is executing and will complete by itself, `ETIME` if it did not end at once.
#[cfg_attr(explore, allow(unreachable_code), track_caller)]
pub(crate) fn sync_cancel(fd: i32, user_data: u64) -> io::Result<()> {
    #[cfg(explore)]
    return crate::explore::sync_cancel(fd, user_data, None);
    cancel(fd, user_data, -1, 0)
}

/// As [`sync_cancel`], for all operations on the descriptor `of`.
///
/// # Errors
///
/// `ENOENT` if there are none.
#[cfg_attr(explore, allow(unreachable_code), track_caller)]
pub(crate) fn sync_cancel_all_of(fd: i32, of: i32) -> io::Result<()> {
    #[cfg(explore)]
    return crate::explore::sync_cancel(fd, 0, Some(of));
    cancel(fd, 0, of, CANCEL_ALL_OF_FD)
}

fn cancel(fd: i32, user_data: u64, of: i32, flags: u32) -> io::Result<()> {
    let arg = SyncCancelReg {
        addr: user_data,
        fd: of,
        flags,
        timeout: [0, 0],
        opcode: 0,
        pad: [0; 7],
        pad2: [0; 3],
    };
    register(fd, REGISTER_SYNC_CANCEL, (&raw const arg).cast())
}

/// Posts a completion with `user_data` into ring `fd`, from any thread and
/// without a ring (Linux 6.13).
///
/// # Errors
///
/// `EINVAL` on kernels without this operation.
#[cfg_attr(explore, allow(unreachable_code), track_caller)]
pub(crate) fn send_msg_ring(fd: i32, user_data: u64) -> io::Result<()> {
    #[cfg(explore)]
    return crate::explore::send_msg_ring(fd, user_data);
    let sqe = MsgSqe {
        opcode: OP_MSG_RING,
        flags: 0,
        ioprio: 0,
        fd,
        off: user_data,
        addr: 0,
        len: 0,
        rest: [0; 9],
    };
    register(-1, REGISTER_SEND_MSG_RING, (&raw const sqe).cast())
}

/// A further mapping of a ring's queues, besides the owner's.
#[derive(Debug)]
pub(crate) struct View {
    base: *mut libc::c_void,
    bytes: usize,
}

impl View {
    /// Its address range.
    pub(crate) fn span(&self) -> std::ops::Range<usize> {
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
pub(crate) fn map_again(fd: i32, bytes: [usize; 2]) -> io::Result<[View; 2]> {
    let map = |offset, bytes| {
        // SAFETY: a mapping at an address of the kernel's choice touches no existing memory.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                fd,
                offset,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(View { base, bytes })
    };
    Ok([map(OFFSETS[0], bytes[0])?, map(OFFSETS[1], bytes[1])?])
}

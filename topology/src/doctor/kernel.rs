//! Questions that only system calls answer.
#![allow(unsafe_code)] // system calls that have no safe wrapper in our dependencies

use std::{ffi::c_int, ptr};

/// `MADV_GUARD_INSTALL`, Linux 6.13.
const MADV_GUARD_INSTALL: c_int = 102;
const MEMBARRIER_CMD_QUERY: c_int = 0;
const MEMBARRIER_CMD_PRIVATE_EXPEDITED: i64 = 1 << 3;

/// Whether guard pages cost no mapping of their own.
pub(super) fn has_guard_install() -> bool {
    with_page(|page, bytes| {
        // SAFETY: this function mapped the page, and no other code has its address.
        unsafe { libc::madvise(page, bytes, MADV_GUARD_INSTALL) == 0 }
    })
}

/// Whether memory may be bound to nodes; sandboxes forbid the call.
pub(super) fn can_bind_memory() -> bool {
    with_page(|page, bytes| {
        // SAFETY: the page is mapped and ours; the default policy needs no mask of nodes.
        let result = unsafe {
            libc::syscall(
                libc::SYS_mbind,
                page,
                bytes,
                libc::MPOL_DEFAULT,
                ptr::null::<libc::c_ulong>(),
                0_usize,
                0_usize,
            )
        };
        result == 0
    })
}

/// Whether one thread can have all others pass a memory barrier.
pub(super) fn has_membarrier() -> bool {
    // SAFETY: a query takes no address and changes nothing.
    let commands = unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0) };
    commands > 0 && commands & MEMBARRIER_CMD_PRIVATE_EXPEDITED != 0
}

/// Runs a question with a page of memory; "no" where there is none to be had.
fn with_page(ask: impl FnOnce(*mut libc::c_void, usize) -> bool) -> bool {
    // SAFETY: sysconf takes no address.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    let bytes = usize::try_from(bytes).unwrap_or(4096);
    // SAFETY: a new private mapping at an address of the kernel's choice touches no other memory.
    let page = unsafe {
        libc::mmap(
            ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if page == libc::MAP_FAILED {
        return false;
    }
    let answer = ask(page, bytes);
    // SAFETY: the page was mapped above with this length, and nothing refers to it any more.
    unsafe { libc::munmap(page, bytes) };
    answer
}

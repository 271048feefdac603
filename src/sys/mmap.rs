//! Address space: reserving and guarding memory.
#![allow(unsafe_code)]

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::errno::cvt;

/// Linux 6.13's guard regions: a page that faults, without a VMA of its own.
const MADV_GUARD_INSTALL: libc::c_int = 102;

/// The smallest page size of the architectures that there are.
pub(crate) const SMALLEST_PAGE_BYTES: usize = 4096;

/// The page size of this kernel: 4 KiB on x86-64; 4, 16 or 64 KiB on aarch64.
#[inline]
pub(crate) fn page_bytes() -> usize {
    if cfg!(target_arch = "x86_64") {
        return SMALLEST_PAGE_BYTES;
    }
    match PAGE_BYTES.load(Ordering::Relaxed) {
        0 => ask_page_bytes(),
        bytes => bytes,
    }
}

/// What the kernel said; 0 before it was asked.
/// Ordering: relaxed, one word that always gets the same value.
static PAGE_BYTES: AtomicUsize = AtomicUsize::new(0);

#[cold]
fn ask_page_bytes() -> usize {
    // SAFETY: sysconf takes a plain integer; _SC_PAGESIZE always succeeds.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    let bytes = usize::try_from(bytes).unwrap_or(SMALLEST_PAGE_BYTES);
    PAGE_BYTES.store(bytes, Ordering::Relaxed);
    bytes
}

/// Reserves `bytes` of private zeroed memory, not charged before it is touched
/// and never backed by huge pages.
///
/// # Errors
///
/// The kernel's, with `ENOMEM` where address space or the map count ran out.
pub(crate) fn reserve(bytes: usize) -> io::Result<*mut u8> {
    // SAFETY: an anonymous mapping at an address of the kernel's choice touches no existing memory.
    let p = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if p == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the range is the mapping made above. Failure (no THP in this kernel) is harmless.
    unsafe { libc::madvise(p, bytes, libc::MADV_NOHUGEPAGE) };
    Ok(p.cast())
}

/// Gives a range from [`reserve`] back.
///
/// # Safety
///
/// `base` and `bytes` name a whole mapping from [`reserve`] that nothing uses any more.
pub(crate) unsafe fn release(base: *mut u8, bytes: usize) {
    // SAFETY: by this function's contract.
    unsafe { libc::munmap(base.cast(), bytes) };
}

/// Makes a mapping longer; it may move, with its content and its policy.
///
/// # Safety
///
/// `base` and `bytes` name a whole mapping from [`reserve`] that nothing points into.
///
/// # Errors
///
/// The kernel's; then it is as it was.
pub(crate) unsafe fn resize(base: *mut u8, bytes: usize, new_bytes: usize) -> io::Result<*mut u8> {
    // SAFETY: by this function's contract.
    let p = unsafe { libc::mremap(base.cast(), bytes, new_bytes, libc::MREMAP_MAYMOVE) };
    if p == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    Ok(p.cast())
}

/// How guard pages are made here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GuardKind {
    /// `MADV_GUARD_INSTALL`: no cost in mappings.
    Madvise,
    /// `mprotect`: each guard splits a mapping, two towards `vm.max_map_count`.
    Mprotect,
}

/// Finds out which kind of guard page this kernel offers, by making one.
///
/// # Errors
///
/// The kernel's, if not even a few pages can be mapped.
pub(crate) fn probe_guard() -> io::Result<GuardKind> {
    let bytes = page_bytes() * 2;
    let base = reserve(bytes)?;
    // SAFETY: the page is the first of the mapping made above, unused so far.
    let kind = match unsafe { guard(base, GuardKind::Madvise) } {
        Ok(()) => GuardKind::Madvise,
        Err(_) => GuardKind::Mprotect,
    };
    // SAFETY: the mapping is this function's own and not used any more.
    unsafe { release(base, bytes) };
    Ok(kind)
}

/// Makes the page at `page` fault on any access.
///
/// # Safety
///
/// `page` is page-aligned, mapped by [`reserve`], and holds nothing in use.
///
/// # Errors
///
/// `EINVAL` for a kind that this kernel lacks, or does not have for locked memory (`mlockall`);
/// `ENOMEM` at `vm.max_map_count`.
pub(crate) unsafe fn guard(page: *mut u8, kind: GuardKind) -> io::Result<()> {
    let r = match kind {
        // SAFETY: by this function's contract.
        GuardKind::Madvise => unsafe {
            libc::madvise(page.cast(), page_bytes(), MADV_GUARD_INSTALL)
        },
        // SAFETY: by this function's contract.
        GuardKind::Mprotect => unsafe {
            libc::mprotect(page.cast(), page_bytes(), libc::PROT_NONE)
        },
    };
    cvt(r).map(drop)
}

/// Gives the pages of a range back to the kernel; they are zero when they are touched again.
/// Guards in it stay, of either kind. Where the kernel refuses (locked memory), nothing happens.
///
/// At once (`MADV_DONTNEED`), not when memory is short (`MADV_FREE`): what a process is seen to
/// use is what it uses.
///
/// # Safety
///
/// The range is page-aligned, mapped by [`reserve`], and holds nothing in use.
pub(crate) unsafe fn return_pages(base: *mut u8, bytes: usize) {
    // SAFETY: by this function's contract.
    unsafe { libc::madvise(base.cast(), bytes, libc::MADV_DONTNEED) };
}

/// Whether reading the byte at `addr` faults: the kernel is made to read it.
#[cfg(test)]
pub(crate) fn faults(addr: usize) -> bool {
    let mut byte = 0u8;
    let local = libc::iovec {
        iov_base: (&raw mut byte).cast(),
        iov_len: 1,
    };
    let remote = libc::iovec {
        iov_base: std::ptr::without_provenance_mut(addr),
        iov_len: 1,
    };
    // SAFETY: the kernel writes one byte to a place that is valid, and checks the other address.
    let n = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
    n != 1
}

/// The sysctl that bounds the number of mappings of a process.
pub(crate) fn max_map_count() -> usize {
    std::fs::read_to_string("/proc/sys/vm/max_map_count")
        .ok()
        .and_then(|s| s.trim().parse().ok())
        .unwrap_or(65_530)
}

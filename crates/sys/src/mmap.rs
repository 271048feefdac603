//! Address space: reserving, guarding and returning memory.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::errno::cvt;

/// Linux 6.13's guard regions: a page that faults, without a VMA of its own.
const MADV_GUARD_INSTALL: libc::c_int = 102;

/// The smallest page size of the supported architectures.
pub const SMALLEST_PAGE_BYTES: usize = 4096;

/// The page size of this kernel: 4 KiB on x86-64; 4, 16 or 64 KiB on aarch64.
#[inline]
pub fn page_bytes() -> usize {
    if cfg!(target_arch = "x86_64") {
        return SMALLEST_PAGE_BYTES;
    }
    match PAGE_BYTES.load(Ordering::Relaxed) {
        0 => ask_page_bytes(),
        bytes => bytes,
    }
}

/// The cached page size; 0 before it was read. Ordering: relaxed, one word that always gets the
/// same value.
static PAGE_BYTES: AtomicUsize = AtomicUsize::new(0);

#[cold]
fn ask_page_bytes() -> usize {
    // SAFETY: sysconf takes a plain integer; _SC_PAGESIZE always succeeds.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    let bytes = usize::try_from(bytes).unwrap_or(SMALLEST_PAGE_BYTES);
    PAGE_BYTES.store(bytes, Ordering::Relaxed);
    bytes
}

/// Miri knows neither this flag nor `madvise`.
const NO_RESERVE: libc::c_int = if cfg!(miri) { 0 } else { libc::MAP_NORESERVE };

/// Reserves `bytes` of private zeroed memory, which is not charged before it is touched and never
/// backed by huge pages.
///
/// # Errors
///
/// The kernel's: `ENOMEM` where address space or mappings have run out.
pub fn reserve(bytes: usize) -> io::Result<*mut u8> {
    // SAFETY: an anonymous mapping at an address of the kernel's choice touches no existing memory.
    let p = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | NO_RESERVE,
            -1,
            0,
        )
    };
    if p == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    if !cfg!(miri) {
        // SAFETY: the range is the mapping made above. Failure (no THP in this kernel) is harmless.
        unsafe { libc::madvise(p, bytes, libc::MADV_NOHUGEPAGE) };
    }
    Ok(p.cast())
}

/// Unmaps a range from [`reserve`].
///
/// # Safety
///
/// `base` and `bytes` are those of a whole mapping from [`reserve`] that is not used any more.
pub unsafe fn release(base: *mut u8, bytes: usize) {
    // SAFETY: by this function's contract.
    unsafe { libc::munmap(base.cast(), bytes) };
}

/// Extends a mapping; it may move, with its content and its policy.
///
/// # Safety
///
/// `base` and `bytes` are those of a whole mapping from [`reserve`] to which there are no pointers.
///
/// # Errors
///
/// The kernel's. Then the mapping is unchanged.
pub unsafe fn resize(base: *mut u8, bytes: usize, new_bytes: usize) -> io::Result<*mut u8> {
    // SAFETY: by this function's contract.
    let p = unsafe { libc::mremap(base.cast(), bytes, new_bytes, libc::MREMAP_MAYMOVE) };
    if p == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    Ok(p.cast())
}

/// The method by which guard pages are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuardKind {
    /// `MADV_GUARD_INSTALL`: no cost in mappings.
    Madvise,
    /// `mprotect`: each guard splits a mapping, so it counts as two in `vm.max_map_count`.
    Mprotect,
}

/// Finds the method that this kernel supports, by making a guard page.
///
/// # Errors
///
/// The kernel's, if not even a few pages can be mapped.
pub fn probe_guard() -> io::Result<GuardKind> {
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
/// `page` is page-aligned, mapped by [`reserve`], and holds nothing that is in use.
///
/// # Errors
///
/// `EINVAL` for a method that this kernel does not have, or not for locked memory (`mlockall`);
/// `ENOMEM` at `vm.max_map_count`.
pub unsafe fn guard(page: *mut u8, kind: GuardKind) -> io::Result<()> {
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

/// Returns the pages of a range to the kernel; they are zero when they are touched again. Guards in
/// the range stay, of either kind. Where the kernel refuses (locked memory), this has no effect.
///
/// The pages go at once (`MADV_DONTNEED`), not when memory is short (`MADV_FREE`), so that the
/// reported memory use of the process is its real use.
///
/// # Safety
///
/// The range is page-aligned, mapped by [`reserve`], and holds nothing that is in use.
pub unsafe fn return_pages(base: *mut u8, bytes: usize) {
    // SAFETY: by this function's contract.
    unsafe { libc::madvise(base.cast(), bytes, libc::MADV_DONTNEED) };
}

/// Gives a mapping a name, which /proc/PID/maps and smaps show. `false` where the kernel has no names (before Linux
/// 5.17, or built without them).
///
/// # Safety
///
/// The range is mapped by [`reserve`].
pub unsafe fn name(base: *mut u8, bytes: usize, name: &CStr) -> bool {
    // SAFETY: by this function's contract; the kernel copies the name.
    let r = unsafe {
        libc::prctl(
            libc::PR_SET_VMA,
            libc::PR_SET_VMA_ANON_NAME as libc::c_ulong,
            base.expose_provenance(),
            bytes,
            name.as_ptr(),
        )
    };
    r == 0
}

/// Asks the kernel to move the pages of a range out to swap. The content stays. The next access to a page, by any thread or
/// by the kernel, reads it back from swap. Pages that cannot be swapped, or any without swap, stay in memory. Returns whether
/// the kernel accepted it: it does not for locked memory, and before Linux 5.4.
pub fn page_out(range: Range<usize>) -> bool {
    let start = range.start.next_multiple_of(page_bytes());
    let bytes = range.end.saturating_sub(start);
    // SAFETY: this call changes no content. It accepts any range: memory that others use, and memory that is not mapped.
    let r = unsafe {
        libc::madvise(
            std::ptr::with_exposed_provenance_mut(start),
            bytes,
            libc::MADV_PAGEOUT,
        )
    };
    r == 0
}

/// Whether the system has swap.
pub fn has_swap() -> bool {
    let mut info = MaybeUninit::<libc::sysinfo>::zeroed();
    // SAFETY: the kernel fills the struct; all-zero bytes are a valid one.
    let info = unsafe {
        libc::sysinfo(info.as_mut_ptr());
        info.assume_init()
    };
    info.totalswap > 0
}

/// Whether a read of the byte at `addr` faults. The kernel makes the read. For tests.
pub fn faults(addr: usize) -> bool {
    let mut byte = 0u8;
    let local = libc::iovec {
        iov_base: (&raw mut byte).cast(),
        iov_len: 1,
    };
    let remote = libc::iovec {
        iov_base: std::ptr::without_provenance_mut(addr),
        iov_len: 1,
    };
    // SAFETY: the kernel writes one byte to a valid place, and checks the other address.
    let n = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
    n != 1
}

/// The limit on the number of mappings of a process (`vm.max_map_count`).
pub fn max_map_count() -> usize {
    std::fs::read_to_string("/proc/sys/vm/max_map_count")
        .ok()
        .and_then(|s| s.trim().parse().ok())
        .unwrap_or(65_530)
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_shown_where_the_kernel_has_names() {
        let bytes = 4 * page_bytes();
        let base = reserve(bytes).unwrap();
        // SAFETY: the range is the mapping made above.
        let has_names = unsafe { name(base, bytes, c"windlass test") };
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        assert_eq!(maps.contains("[anon:windlass test]"), has_names);
        // SAFETY: the mapping is this test's own and not used any more.
        unsafe { release(base, bytes) };
    }

    #[test]
    fn what_is_paged_out_is_there_again() {
        let bytes = 4 * page_bytes();
        let base = reserve(bytes).unwrap();
        // SAFETY: the mapping is this test's own, and so large.
        let words = unsafe { std::slice::from_raw_parts_mut(base.cast::<usize>(), bytes / 8) };
        words.iter_mut().enumerate().for_each(|(i, word)| *word = i);
        let at = base.addr();
        // From within the first page to within the last one, all, and what is not mapped.
        for range in [at + 100..at + bytes - 100, at..at + bytes, 0..bytes, 7..9] {
            page_out(range);
        }
        assert!(words.iter().enumerate().all(|(i, &word)| word == i));
        // SAFETY: the mapping is this test's own and not used any more.
        unsafe { release(base, bytes) };
    }
}

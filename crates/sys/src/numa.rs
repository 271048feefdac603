//! Memory and NUMA nodes: the preferred node of pages, and the node on which they are.
//!
//! Placing memory is a hint. If the kernel refuses it (seccomp in a container, no NUMA, a node that
//! went away) the cost is locality only. So a refusal is not an error here; refusals are counted
//! ([`n_refused`]).
#![allow(unsafe_code)]

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use windlass_topology::parse_cpu_list;

use super::errno::cvt;

/// "This node first, others if it is full" (`set_mempolicy(2)`).
const MPOL_PREFERRED: libc::c_long = 1;

/// The number of pages per system call: the kernel copies as many words in and out.
const PAGES_PER_QUERY: usize = 1024;

/// Ordering: relaxed, a statistic.
static N_REFUSED: AtomicU64 = AtomicU64::new(0);

/// How often the kernel has refused to place memory in this process.
pub fn n_refused() -> u64 {
    N_REFUSED.load(Ordering::Relaxed)
}

/// The location of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageAt {
    /// On this node, by the kernel's number.
    Node(u32),
    /// There is no page: it was never written, or the kernel does not report it.
    Nowhere,
}

/// Prefers a node for the pages of a range, while that node has free memory.
///
/// # Safety
///
/// The range is mapped and belongs to the caller.
pub unsafe fn prefer_node(base: *mut u8, bytes: usize, node: u32) -> bool {
    let mask = Mask::of(node);
    // SAFETY:
    // - the range is the caller's, by this function's contract.
    // - the mask holds at least the number of bits given.
    let r = unsafe {
        libc::syscall(
            libc::SYS_mbind,
            base,
            bytes,
            MPOL_PREFERRED,
            mask.as_ptr(),
            mask.n_bits(),
            0 as libc::c_ulong,
        )
    };
    noted(r)
}

/// Prefers a node for memory that the calling thread touches first, and that the kernel allocates
/// on its behalf. For threads that end soon.
pub fn prefer_node_here(node: u32) -> bool {
    let mask = Mask::of(node);
    // SAFETY: the mask holds at least the number of bits given.
    let r = unsafe {
        libc::syscall(
            libc::SYS_set_mempolicy,
            MPOL_PREFERRED,
            mask.as_ptr(),
            mask.n_bits(),
        )
    };
    noted(r)
}

/// Finds the locations of pages, each given by any address inside it. Moves nothing.
///
/// # Errors
///
/// `ENOSYS` and `EPERM` where the call does not exist or is not allowed.
pub fn where_are(pages: &[usize]) -> io::Result<Vec<PageAt>> {
    let mut places = Vec::with_capacity(pages.len());
    for some in pages.chunks(PAGES_PER_QUERY) {
        let mut status = vec![0 as libc::c_int; some.len()];
        // SAFETY: both arrays have as many words as the length says; without target nodes the call
        // only queries, and an address where nothing is mapped is answered with a status.
        let r = unsafe {
            libc::syscall(
                libc::SYS_move_pages,
                0 as libc::c_long,
                some.len(),
                some.as_ptr(),
                std::ptr::null::<libc::c_int>(),
                status.as_mut_ptr(),
                0 as libc::c_long,
            )
        };
        cvt(r as libc::c_int)?;
        places.extend(status.into_iter().map(|s| match u32::try_from(s) {
            Ok(node) => PageAt::Node(node),
            Err(_) => PageAt::Nowhere,
        }));
    }
    Ok(places)
}

/// The nodes in the kernel's list `have` (`has_cpu`, `has_memory`); empty on kernels without NUMA.
pub fn nodes_that(have: &str) -> Vec<u32> {
    let listed = std::fs::read_to_string(format!("/sys/devices/system/node/{have}"));
    let ids = listed.ok().and_then(|list| parse_cpu_list(list.trim()));
    let ids = ids.unwrap_or_default().into_iter();
    ids.filter_map(|id| u32::try_from(id).ok()).collect()
}

fn noted(r: libc::c_long) -> bool {
    if r != 0 {
        N_REFUSED.fetch_add(1, Ordering::Relaxed);
    }
    r == 0
}

/// A set of one node, in the kernel's form.
struct Mask(Vec<libc::c_ulong>);

impl Mask {
    fn of(node: u32) -> Mask {
        let bits = libc::c_ulong::BITS;
        let mut words = vec![0; (node / bits) as usize + 1];
        words[(node / bits) as usize] = 1 << (node % bits);
        Mask(words)
    }

    fn as_ptr(&self) -> *const libc::c_ulong {
        self.0.as_ptr()
    }

    /// The kernel ignores the last bit of the number that it is given.
    fn n_bits(&self) -> libc::c_ulong {
        self.0.len() as libc::c_ulong * libc::c_ulong::from(libc::c_ulong::BITS) + 1
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::mmap;

    #[test]
    fn a_page_is_nowhere_until_it_is_written() {
        let bytes = 2 * mmap::page_bytes();
        let base = mmap::reserve(bytes).unwrap();
        let pages = [base.addr(), base.addr() + mmap::page_bytes()];
        // SAFETY: the page is the first of the mapping made above.
        unsafe { base.write(1) };
        match where_are(&pages) {
            Ok(places) => {
                assert!(matches!(places[0], PageAt::Node(_)), "{places:?}");
                assert_eq!(places[1], PageAt::Nowhere);
            }
            Err(e) => eprintln!("where pages are cannot be asked here: {e}"),
        }
        // SAFETY: the mapping is this test's own.
        unsafe { mmap::release(base, bytes) };
    }

    #[test]
    fn what_the_kernel_refuses_is_counted() {
        let bytes = mmap::page_bytes();
        let base = mmap::reserve(bytes).unwrap();
        let before = n_refused();
        // SAFETY: the range is the mapping made above.
        let placed = unsafe { prefer_node(base, bytes, 1023) };
        assert!(!placed, "no machine at hand has a node 1023");
        assert!(n_refused() > before);
        // SAFETY: the mapping is this test's own.
        unsafe { mmap::release(base, bytes) };
    }
}

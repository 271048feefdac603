//! Memory and NUMA nodes: where pages shall come from, and where they are.
//!
//! Placing memory is a wish. A kernel that refuses it (seccomp in a container, no NUMA,
//! a node that went away) costs locality only, so nothing here is an error for it: refusals
//! are counted ([`n_refused`]).
#![allow(unsafe_code)]

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use windlass_topology::parse_cpu_list;

use super::errno::cvt;

/// "This node first, others if it is full" (`set_mempolicy(2)`).
const MPOL_PREFERRED: libc::c_long = 1;

/// How many pages one system call is asked about: the kernel copies as many words twice.
const PAGES_PER_QUERY: usize = 1024;

/// Ordering: relaxed, a statistic.
static N_REFUSED: AtomicU64 = AtomicU64::new(0);

/// How often the kernel refused, in this process, to place memory.
pub(crate) fn n_refused() -> u64 {
    N_REFUSED.load(Ordering::Relaxed)
}

/// Where a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageAt {
    /// On this node, by the kernel's number.
    Node(u32),
    /// There is none: it was never written, or it is no page that the kernel tells of.
    Nowhere,
}

/// Asks that pages of the range be taken from a node while it has any.
///
/// # Safety
///
/// The range is mapped and belongs to the caller.
pub(crate) unsafe fn prefer_node(base: *mut u8, bytes: usize, node: u32) -> bool {
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

/// Asks that memory which the calling thread is the first to touch, and that the kernel
/// takes on its behalf, comes from a node. For threads that end soon.
pub(crate) fn prefer_node_here(node: u32) -> bool {
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

/// Asks where pages are; any address inside a page stands for it. Nothing is moved.
///
/// # Errors
///
/// `ENOSYS` and `EPERM` where there is no such call, or none allowed.
pub(crate) fn where_are(pages: &[usize]) -> io::Result<Vec<PageAt>> {
    let mut places = Vec::with_capacity(pages.len());
    for some in pages.chunks(PAGES_PER_QUERY) {
        let mut status = vec![0 as libc::c_int; some.len()];
        // SAFETY: both arrays have as many words as is said; without nodes to move to the call
        // only looks, and an address where nothing is mapped is answered with a status.
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

/// The nodes that the kernel lists under a word of its own (`has_cpu`, `has_memory`); none
/// where it knows no nodes.
pub(crate) fn nodes_that(have: &str) -> Vec<u32> {
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

/// A set of one node, as the kernel wants it.
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

    /// The kernel leaves out the last bit of the number that it is given.
    fn n_bits(&self) -> libc::c_ulong {
        self.0.len() as libc::c_ulong * libc::c_ulong::from(libc::c_ulong::BITS) + 1
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sys::mmap;

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

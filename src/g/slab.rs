//! Type-stable memory for Gs: a slot once cut stays a G slot until the process
//! ends, so a late waker may always look at a status word (and then find that
//! its wait is over).
//!
//! One depot per NUMA node and slot size, shared by all runtimes of the process:
//! that way a `Task` or `JoinHandle` may outlive its runtime. A P keeps a small
//! cache before the depot (`sched::p`). Chunks are also the registry of all
//! goroutines: [`for_each`] walks them, so spawning writes to no list.
#![allow(unsafe_code)]

use std::ptr::NonNull;

use super::header::{GRef, HEADER_BYTES, Header};
use super::list::GList;
use crate::lock::{Lock, Rank};
use crate::sys::mmap;

/// Slot sizes; a closure or result that does not fit behind the header of the
/// last is boxed and takes the first.
pub(crate) const SLOT_BYTES: [usize; 2] = [256, 512];

/// Nodes with a depot of their own; higher ones share by remainder.
pub(crate) const MAX_SLAB_NODES: usize = 16;

const CHUNK_BYTES: usize = 256 * 1024;

/// The slot class for a payload of `bytes`, or `None` if it must be boxed.
#[inline]
pub(crate) const fn class_for(payload_bytes: usize) -> Option<usize> {
    if payload_bytes <= SLOT_BYTES[0].saturating_sub(HEADER_BYTES) {
        Some(0)
    } else if payload_bytes <= SLOT_BYTES[1].saturating_sub(HEADER_BYTES) {
        Some(1)
    } else {
        None
    }
}

struct Depot {
    free: [GList; SLOT_BYTES.len()],
    /// Every chunk: base address, class, slots cut so far. The last of a class
    /// is the one that new slots come from.
    chunks: Vec<(usize, usize, usize)>,
}

static DEPOTS: [Lock<Depot>; MAX_SLAB_NODES] = [const {
    Lock::new(
        Rank::Slab,
        Depot {
            free: [const { GList::new() }; SLOT_BYTES.len()],
            chunks: Vec::new(),
        },
    )
}; MAX_SLAB_NODES];

/// Takes up to `n` slots of a class from the depot of a node (by the kernel's
/// number); at least one.
///
/// Aborts when the kernel has no memory for headers, as `Box` would.
pub(crate) fn take(os_node: u32, prefer: bool, class: usize, n: usize, mut into: impl FnMut(GRef)) {
    let depot_idx = os_node as usize % MAX_SLAB_NODES;
    let mut depot = DEPOTS[depot_idx].lock();
    for _ in 0..n {
        let g = match depot.free[class].pop() {
            Some(g) => g,
            None => cut(&mut depot, depot_idx, os_node, prefer, class),
        };
        into(g);
    }
}

/// Takes free slots back into the depot that they came from.
pub(crate) fn give(g: GRef) {
    DEPOTS[g.slab_node()].lock().free[g.slot_class()].push(g);
}

/// Calls `f` for every slot that was ever cut, free ones too.
pub(crate) fn for_each(mut f: impl FnMut(GRef)) {
    for depot in &DEPOTS {
        let chunks = depot.lock().chunks.clone();
        for (base, class, n_cut) in chunks {
            for slot in 0..n_cut {
                // SAFETY: the slot was cut from this chunk, which is never unmapped.
                f(unsafe { slot_at(base, class, slot) });
            }
        }
    }
}

fn cut(depot: &mut Depot, depot_idx: usize, os_node: u32, prefer: bool, class: usize) -> GRef {
    let per_chunk = CHUNK_BYTES / SLOT_BYTES[class];
    let open = depot
        .chunks
        .iter()
        .rposition(|&(_, c, n)| c == class && n < per_chunk);
    let at = open.unwrap_or_else(|| {
        let Ok(base) = mmap::reserve(CHUNK_BYTES) else {
            std::alloc::handle_alloc_error(std::alloc::Layout::new::<[u8; CHUNK_BYTES]>())
        };
        if prefer {
            // SAFETY: the range is the mapping made above. Refusal costs locality only.
            unsafe { mmap::prefer_node(base, CHUNK_BYTES, os_node) };
        }
        depot.chunks.push((base.expose_provenance(), class, 0));
        depot.chunks.len() - 1
    });
    let (base, _, n_cut) = &mut depot.chunks[at];
    // SAFETY: the slot lies in the chunk and was not cut before; fresh pages are zero.
    let g = unsafe { slot_at(*base, class, *n_cut) };
    *n_cut += 1;
    g.init_slot(class, depot_idx);
    g
}

/// # Safety
///
/// `base` is a chunk of `class`, `slot` below its number of slots.
unsafe fn slot_at(base: usize, class: usize, slot: usize) -> GRef {
    let p = std::ptr::with_exposed_provenance_mut::<Header>(base + slot * SLOT_BYTES[class]);
    // SAFETY:
    // - a chunk's address is not 0.
    // - an all-zero slot is a valid Header (see there), and slots are cut at multiples of their size.
    unsafe { GRef::from_raw(NonNull::new_unchecked(p)) }
}

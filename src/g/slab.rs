//! Type-stable memory for Gs. A G slot stays a G slot until the process ends, so a late waker can
//! always read its status word and find that its wait is over.
//!
//! There is one depot per NUMA node and slot size, shared by all runtimes of the process. So a
//! `Task` or `JoinHandle` may outlive its runtime. A P has a small cache in front of the depot
//! (`sched::types::p`). The chunks are also the registry of all goroutines: [`for_each`] walks
//! them, so spawning writes to no list.
#![allow(unsafe_code)]

use std::ptr::NonNull;

use super::header::{GRef, Header, SLOT_BYTES};
use super::list::GList;
use crate::lock::{Lock, Rank};
use crate::loom::{const_fn, oracle};
use crate::sys::{mmap, numa};
use crate::util::padded::Padded;

/// The number of nodes with a depot of their own; higher node numbers share, modulo this.
const MAX_NODES: usize = 64;

/// Names a depot: that of a node, or the one for memory of any node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DepotId {
    /// The kernel's number of the node.
    node: Option<u32>,
    idx: u8,
}

impl DepotId {
    /// Memory of any node, for machines with one node and for Ps that are not pinned.
    pub(crate) const ANY: DepotId = DepotId {
        node: None,
        idx: MAX_NODES as u8,
    };

    /// The depot of `node`, by the kernel's number.
    pub(crate) fn of(node: Option<u32>) -> DepotId {
        match node {
            None => DepotId::ANY,
            Some(os_id) => DepotId {
                node,
                idx: (os_id as usize % MAX_NODES) as u8,
            },
        }
    }

    /// Whether a slot belongs to this depot.
    #[inline(always)]
    pub(crate) fn has(self, g: GRef) -> bool {
        g.slab_node() == usize::from(self.idx)
    }
}

const CHUNK_BYTES: usize = 256 * 1024;

struct Depot {
    free: [GList; SLOT_BYTES.len()],
    /// Every chunk: base address, class, number of slots cut. New slots are cut from the last chunk
    /// of a class.
    chunks: Vec<(usize, usize, usize)>,
}

type Depots = [Padded<Lock<Depot>>; MAX_NODES + 1];

const_fn! {
    const fn depot() -> Padded<Lock<Depot>> {
        Padded(Lock::new(
            Rank::Slab,
            Depot {
                free: [const { GList::new() }; SLOT_BYTES.len()],
                chunks: Vec::new(),
            },
        ))
    }
}

#[cfg(not(loom))]
static DEPOTS: Depots = [const { depot() }; MAX_NODES + 1];

// Loom models take no slots, and loom's locks cannot be constants.
#[cfg(loom)]
static DEPOTS: crate::loom::native::LazyLock<Depots> =
    crate::loom::native::LazyLock::new(|| std::array::from_fn(|_| depot()));

/// Takes at least one and up to `n` slots of a class from a depot.
///
/// Aborts when the kernel has no memory, as `Box` would.
pub(crate) fn take(id: DepotId, class: usize, n: usize, mut into: impl FnMut(GRef)) {
    let mut depot = DEPOTS[usize::from(id.idx)].lock();
    for _ in 0..n {
        let g = match depot.free[class].pop() {
            Some(g) => g,
            None => cut(&mut depot, id, class),
        };
        oracle::slots(1);
        into(g);
    }
}

/// Returns a free slot to its depot.
pub(crate) fn give(g: GRef) {
    oracle::slots(-1);
    DEPOTS[g.slab_node()].lock().free[g.slot_class()].push(g);
}

/// Returns free slots to their depots; each depot is locked once.
pub(crate) fn give_all(mut slots: GList) {
    oracle::slots(-slots.len().cast_signed());
    while let Some(g) = slots.pop() {
        let mut others = GList::new();
        let mut depot = DEPOTS[g.slab_node()].lock();
        let mut next = Some(g);
        while let Some(slot) = next {
            if slot.slab_node() == g.slab_node() {
                depot.free[slot.slot_class()].push(slot);
            } else {
                others.push(slot);
            }
            next = slots.pop();
        }
        slots = others;
    }
}

/// Passes to `f` an address in each of up to `n` pages of a depot's slots, evenly spread, in use or
/// free.
pub(crate) fn sample_pages(id: DepotId, n: usize, mut f: impl FnMut(usize)) {
    let page_bytes = mmap::page_bytes();
    let chunks = DEPOTS[usize::from(id.idx)].lock().chunks.clone();
    let pages_of = |&(base, class, n_cut): &(usize, usize, usize)| {
        let bytes = n_cut * SLOT_BYTES[class];
        (base..base + bytes).step_by(page_bytes)
    };
    let n_pages: usize = chunks.iter().map(|c| pages_of(c).len()).sum();
    let step = n_pages.div_ceil(n.max(1)).max(1);
    chunks
        .iter()
        .flat_map(pages_of)
        .step_by(step)
        .for_each(&mut f);
}

/// Calls `f` for every slot that was ever cut, including free ones.
pub(crate) fn for_each(mut f: impl FnMut(GRef)) {
    for depot in DEPOTS.iter() {
        let chunks = depot.lock().chunks.clone();
        for (base, class, n_cut) in chunks {
            for slot in 0..n_cut {
                // SAFETY: the slot was cut from this chunk, which is never unmapped.
                f(unsafe { slot_at(base, class, slot) });
            }
        }
    }
}

fn cut(depot: &mut Depot, id: DepotId, class: usize) -> GRef {
    let per_chunk = CHUNK_BYTES / SLOT_BYTES[class];
    let open = depot
        .chunks
        .iter()
        .rposition(|&(_, c, n)| c == class && n < per_chunk);
    let at = open.unwrap_or_else(|| {
        let Ok(base) = mmap::reserve(CHUNK_BYTES) else {
            std::alloc::handle_alloc_error(std::alloc::Layout::new::<[u8; CHUNK_BYTES]>())
        };
        if let Some(node) = id.node {
            // SAFETY: the range is the mapping made above. A refusal costs locality only.
            unsafe { numa::prefer_node(base, CHUNK_BYTES, node) };
        }
        depot.chunks.push((base.expose_provenance(), class, 0));
        depot.chunks.len() - 1
    });
    let (base, _, n_cut) = &mut depot.chunks[at];
    // SAFETY: the slot lies in the chunk and was not cut before; new pages are zero.
    let g = unsafe { slot_at(*base, class, *n_cut) };
    *n_cut += 1;
    g.init_slot(class, usize::from(id.idx));
    g
}

/// # Safety
///
/// `base` is a chunk of `class`, `slot` below its number of slots.
unsafe fn slot_at(base: usize, class: usize, slot: usize) -> GRef {
    let p = std::ptr::with_exposed_provenance_mut::<Header>(base + slot * SLOT_BYTES[class]);
    // SAFETY:
    // - a chunk's address is not 0.
    // - an all-zero slot is a valid Header (see there), and slots are cut at multiples of their
    //   size.
    unsafe { GRef::from_raw(NonNull::new_unchecked(p)) }
}

//! Type-stable memory for Gs. A G slot stays a G slot until the process ends, so a late waker can
//! always read its status word and find that its wait is over.
//!
//! There is one depot per NUMA node and slot size, shared by all runtimes of the process. So a
//! `Task` or `JoinHandle` may outlive its runtime. A P has a small cache in front of the depot
//! (`sched::types::p`). The chunks are also the registry of all goroutines: [`all`] walks
//! them, and so does a debugger, so spawning writes to no list.
#![allow(unsafe_code)]

use std::ptr::NonNull;

use windlass_ground::padded::Padded;

use super::header::{DEBUG_OFFSETS, GRef, Header, SLOT_BYTES};
use super::list::GList;
use crate::lock::{Lock, rank};
use crate::loom::native::atomic::{AtomicPtr, AtomicUsize, Ordering};
use crate::loom::{const_fn, oracle};
use crate::sys::{mmap, numa};

/// The number of depots for nodes. A node with a higher number uses the depot of its number modulo this.
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

/// Memory that slots of one size and one depot are cut from. Never freed.
#[repr(C)]
#[derive(Debug)]
struct Chunk {
    next: *const Chunk,
    base: usize,
    slot_bytes: usize,
    /// Ordering: release by the holder of the depot's lock, once the slot is valid; acquire by readers.
    n_cut: AtomicUsize,
    depot: usize,
}

/// All chunks, and the places of what a debugger reads of a goroutine: `debug/gdb.py` finds this
/// by its section, without a symbol and without types. Its fields are named there in this order.
#[repr(C)]
struct Registry {
    magic: [u8; 16],
    /// The newest chunk. Ordering: release when a chunk is added; acquire by readers.
    chunks: AtomicPtr<Chunk>,
    offsets: [u16; DEBUG_OFFSETS.len()],
}

#[used]
#[unsafe(link_section = ".windlass.gdb")]
static REGISTRY: Registry = Registry {
    magic: *b"windlass gdb 1\0\0",
    chunks: AtomicPtr::new(std::ptr::null_mut()),
    offsets: DEBUG_OFFSETS,
};

/// The chunks of all depots, and how many slots were cut from each.
fn chunks() -> impl Iterator<Item = (&'static Chunk, usize)> {
    let mut next = REGISTRY.chunks.load(Ordering::Acquire).cast_const();
    std::iter::from_fn(move || {
        // SAFETY: a chunk is complete when it is added, and is never freed or changed but for its counter.
        let chunk: &'static Chunk = unsafe { next.as_ref() }?;
        next = chunk.next;
        Some((chunk, chunk.n_cut.load(Ordering::Acquire)))
    })
}

struct Depot {
    free: [GList; SLOT_BYTES.len()],
    /// The chunk of each class that new slots are cut from.
    open: [Option<&'static Chunk>; SLOT_BYTES.len()],
}

// SAFETY: chunks are shared by all threads: see `chunks`.
unsafe impl Send for Depot {}

type Depots = [Padded<Lock<Depot>>; MAX_NODES + 1];

const_fn! {
    const fn depot() -> Padded<Lock<Depot>> {
        Padded(Lock::new(
            rank::SLAB,
            Depot {
                free: [const { GList::new() }; SLOT_BYTES.len()],
                open: [None; SLOT_BYTES.len()],
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
    let of_depot = |(chunk, _): &(&Chunk, usize)| chunk.depot == usize::from(id.idx);
    let pages_of = |(chunk, n_cut): (&Chunk, usize)| {
        let bytes = n_cut * chunk.slot_bytes;
        (chunk.base..chunk.base + bytes).step_by(page_bytes)
    };
    let pages = || chunks().filter(of_depot).flat_map(pages_of);
    let step = pages().count().div_ceil(n.max(1)).max(1);
    pages().step_by(step).take(n).for_each(&mut f);
}

/// Every slot that was ever cut, including free ones; those of chunks that are added meanwhile are not among them.
pub(crate) fn all() -> Slots {
    let newest = chunks().next();
    Slots {
        chunk: newest.map(|(chunk, _)| chunk),
        slot: 0,
    }
}

/// A walk over the slots: see [`all`]. The default is over.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    chunk: Option<&'static Chunk>,
    slot: usize,
}

impl Iterator for Slots {
    type Item = GRef;

    fn next(&mut self) -> Option<GRef> {
        loop {
            let chunk = self.chunk?;
            if self.slot < chunk.n_cut.load(Ordering::Acquire) {
                self.slot += 1;
                // SAFETY: the slot was cut from this chunk.
                return Some(unsafe { slot_at(chunk, self.slot - 1) });
            }
            // SAFETY: as in `chunks`.
            self.chunk = unsafe { chunk.next.as_ref() };
            self.slot = 0;
        }
    }
}

fn cut(depot: &mut Depot, id: DepotId, class: usize) -> GRef {
    let is_open =
        |chunk: &&Chunk| chunk.n_cut.load(Ordering::Relaxed) < CHUNK_BYTES / chunk.slot_bytes;
    let chunk = depot.open[class]
        .filter(is_open)
        .unwrap_or_else(|| add_chunk(id, class));
    depot.open[class] = Some(chunk);
    // The depot is locked, so no other thread cuts.
    let n_cut = chunk.n_cut.load(Ordering::Relaxed);
    // SAFETY: the slot lies in the chunk and was not cut before; new pages are zero.
    let g = unsafe { slot_at(chunk, n_cut) };
    g.init_slot(class, usize::from(id.idx));
    chunk.n_cut.store(n_cut + 1, Ordering::Release);
    g
}

fn add_chunk(id: DepotId, class: usize) -> &'static Chunk {
    let Ok(base) = mmap::reserve(CHUNK_BYTES) else {
        std::alloc::handle_alloc_error(std::alloc::Layout::new::<[u8; CHUNK_BYTES]>())
    };
    if let Some(node) = id.node {
        // SAFETY: the range is the mapping made above. A refusal costs locality only.
        unsafe { numa::prefer_node(base, CHUNK_BYTES, node) };
    }
    let mut next = REGISTRY.chunks.load(Ordering::Relaxed);
    let chunk = Box::into_raw(Box::new(Chunk {
        next,
        base: base.expose_provenance(),
        slot_bytes: SLOT_BYTES[class],
        n_cut: AtomicUsize::new(0),
        depot: usize::from(id.idx),
    }));
    // Other depots add chunks, too.
    while let Err(now) =
        REGISTRY
            .chunks
            .compare_exchange(next, chunk, Ordering::Release, Ordering::Relaxed)
    {
        next = now;
        // SAFETY: no other thread knows the chunk before it is added.
        unsafe { (*chunk).next = next };
    }
    // SAFETY: it is never freed, and never changed but for its counter.
    unsafe { &*chunk }
}

/// # Safety
///
/// `slot` is below the number of slots in the chunk.
unsafe fn slot_at(chunk: &Chunk, slot: usize) -> GRef {
    let p = std::ptr::with_exposed_provenance_mut::<Header>(chunk.base + slot * chunk.slot_bytes);
    // SAFETY:
    // - a chunk's address is not 0.
    // - an all-zero slot is a valid Header (see there), and slots are cut at multiples of their
    //   size.
    unsafe { GRef::from_raw(NonNull::new_unchecked(p)) }
}

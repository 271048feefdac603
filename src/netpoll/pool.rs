//! Provided buffers: the kernel picks one when data arrives. They are registered with the ring of
//! one P (`IORING_REGISTER_PBUF_RING`).
//!
//! ```text
//!  one mapping, on the P's node
//!  | entries: address, length, number; the tail | slot 0 | slot 1 | ..            |
//!      ^ give() puts a slot's entry at the tail     the kernel takes entries from the head,
//!        and moves it, under a lock                 and a completion names the slot
//! ```
//!
//! The group's number is that of the P, so no two rings of a runtime share a number. A goroutine
//! may move to another P between choosing the pool and queueing its receive. The receive then names
//! a group that its ring does not have and fails with `ENOBUFS`, instead of taking wrong buffers.
//!
//! The pool is reference-counted: slots still in use when the runtime ends keep it mapped.
//! Returning such a slot writes an entry that nothing reads any more.
#![allow(unsafe_code)]

use std::io;
use std::sync::Arc;

#[cfg(not(explore))]
use io_uring::Submitter;
use io_uring::cqueue;
use io_uring::types::BufRingEntry;

use crate::lock::{Lock, rank};
use crate::loom::native::atomic::{AtomicU16, Ordering};
use crate::sys::{mmap, numa};
#[cfg(explore)]
use windlass_explorer::Submitter;

/// The size of one slot: four pages, more than a typical request or most TLS records.
pub(crate) const SLOT_BYTES: usize = 16 << 10;

/// Slots of a pool; a power of two.
pub(crate) const SLOTS: u16 = 128;

/// The distance from one slot to the next. The extra cache line spreads the first bytes of the
/// slots, which are used most, over different cache sets.
const STRIDE: usize = SLOT_BYTES + 64;

/// The size of the entries, at the start of the mapping.
const ENTRIES_BYTES: usize = size_of::<BufRingEntry>() * SLOTS as usize;

/// The slot that a completion's flags name.
pub(crate) fn slot_of(flags: u32) -> Option<u16> {
    cqueue::buffer_select(flags)
}

/// Buffers for the receives of one P.
#[derive(Debug)]
pub(crate) struct BufferRing {
    base: *mut u8,
    bytes: usize,
    slots_at: usize,
    group: u16,
    /// The index of the next entry. The entries are written under this lock only.
    tail: Lock<u16>,
}

// SAFETY: the mapping is the pool's own; its entries are written under the lock, and a slot is used
// only by the receiver that the kernel gave it to, until it is given back.
unsafe impl Send for BufferRing {}
// SAFETY: as for Send.
unsafe impl Sync for BufferRing {}

impl BufferRing {
    /// Makes the pool of a ring, with memory of `node` if there is one.
    ///
    /// # Errors
    ///
    /// The kernel's: `EINVAL` before Linux 5.19, `ENOMEM`, or the error of a locked-memory limit.
    pub(crate) fn new(
        ring: &Submitter<'_>,
        group: u16,
        node: Option<u32>,
    ) -> io::Result<Arc<BufferRing>> {
        let slots_at = ENTRIES_BYTES.next_multiple_of(mmap::page_bytes());
        let bytes = (slots_at + STRIDE * usize::from(SLOTS)).next_multiple_of(mmap::page_bytes());
        let pool = BufferRing {
            base: mmap::reserve(bytes)?,
            bytes,
            slots_at,
            group,
            tail: Lock::new(rank::BUFFERS, 0),
        };
        if let Some(node) = node {
            // SAFETY: the range is the mapping made above.
            unsafe { numa::prefer_node(pool.base, bytes, node) };
        }
        // SAFETY: the entries are zeroed memory at the start of a page, and stay mapped as long as
        // the pool, which the ring's owner keeps until the ring is closed.
        unsafe {
            ring.register_buf_ring_with_flags(pool.base.expose_provenance() as u64, SLOTS, group, 0)
        }?;
        (0..SLOTS).for_each(|slot| pool.give(slot));
        Ok(Arc::new(pool))
    }

    /// The address range of its entries and slots.
    pub(crate) fn span(&self) -> std::ops::Range<usize> {
        self.base.addr()..self.base.addr() + self.bytes
    }

    /// The group number that requests use.
    pub(crate) fn group(&self) -> u16 {
        self.group
    }

    /// The start of a slot of [`SLOT_BYTES`] bytes.
    pub(crate) fn slot(&self, slot: u16) -> *mut u8 {
        assert!(slot < SLOTS, "the kernel gives numbers that it was given");
        // SAFETY: the mapping has room for so many slots.
        unsafe { self.base.add(self.slots_at + STRIDE * usize::from(slot)) }
    }

    /// Gives a slot to the kernel. Any thread may call this.
    pub(crate) fn give(&self, slot: u16) {
        let addr = self.slot(slot).expose_provenance() as u64;
        let entries = self.base.cast::<BufRingEntry>();
        let mut tail = self.tail.lock();
        // SAFETY:
        // - the entries lie at the start of the mapping, page-aligned, and all-zero entries are
        //   valid.
        // - they are written under the lock only, and the kernel reads an entry only once the tail
        //   is past it.
        unsafe {
            let entry = &mut *entries.add(usize::from(*tail % SLOTS));
            entry.set_addr(addr);
            entry.set_len(SLOT_BYTES as u32);
            entry.set_bid(slot);
        }
        *tail = tail.wrapping_add(1);
        // SAFETY: as above; the field is aligned for its size, and shared with the kernel alone,
        // which reads it atomically.
        let shared = unsafe { AtomicU16::from_ptr(BufRingEntry::tail(entries).cast_mut()) };
        // ORDERING: pairs with the kernel's acquire load, so that it sees the entry.
        shared.store(*tail, Ordering::Release);
    }
}

impl Drop for BufferRing {
    fn drop(&mut self) {
        // SAFETY: the mapping is the pool's own, no slot is in use, and the ring is closed: the
        // kernel pins the page of entries itself for as long as it needs it.
        unsafe { mmap::release(self.base, self.bytes) };
    }
}

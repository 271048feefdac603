//! Buffers that the kernel picks from when data has come: a ring of provided buffers,
//! registered with the ring of one P.
//!
//! ```text
//!  one mapping, on the P's node
//!  | entries: address, length, number; the tail | slot 0 | slot 1 | ..            |
//!      ^ give() puts a slot's entry at the tail     the kernel takes entries from the head,
//!        and moves it, under a lock                 and a completion names the slot
//! ```
//!
//! The group's number is that of the P, so it is registered with no other ring of the
//! runtime. A receive that names it and is queued on another ring after all, because
//! its goroutine has lost its P in between, finds no buffers (`ENOBUFS`) instead of
//! wrong ones.
//!
//! The pool is counted: slots that are out when the runtime ends keep it mapped. What
//! they give back then goes to entries that nobody reads.
#![allow(unsafe_code)]

use std::io;
use std::sync::Arc;

#[cfg(not(explore))]
use io_uring::Submitter;
use io_uring::cqueue;
use io_uring::types::BufRingEntry;

#[cfg(explore)]
use crate::explore::Submitter;
use crate::lock::{Lock, Rank};
use crate::loom::native::atomic::{AtomicU16, Ordering};
use crate::sys::{mmap, numa};

/// What one slot holds. Four pages: more than a request or most of TLS's records.
pub(crate) const SLOT_BYTES: usize = 16 << 10;

/// Slots of a pool; a power of two.
pub(crate) const SLOTS: u16 = 128;

/// From one slot to the next. The line more than its size keeps the slots' first bytes,
/// which all get the most use, from meeting in one set of a cache.
const STRIDE: usize = SLOT_BYTES + 64;

/// The entries' part of the mapping.
const ENTRIES_BYTES: usize = size_of::<BufRingEntry>() * SLOTS as usize;

/// The slot that a completion names by its flags.
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
    /// Where the next slot is given back. The entries are written under this lock only.
    tail: Lock<u16>,
}

// SAFETY: the mapping is the pool's own; its entries are written under the lock, and a slot is used
// by whoever the kernel gave it to, until that gives it back.
unsafe impl Send for BufferRing {}
// SAFETY: as for Send.
unsafe impl Sync for BufferRing {}

impl BufferRing {
    /// Makes the pool of a ring, with memory of `node` if that is said.
    ///
    /// # Errors
    ///
    /// The kernel's: `EINVAL` before Linux 5.19, `ENOMEM`, or a locked-memory limit's.
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
            tail: Lock::new(Rank::Buffers, 0),
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

    /// The addresses of its entries and slots.
    pub(crate) fn span(&self) -> std::ops::Range<usize> {
        self.base.addr()..self.base.addr() + self.bytes
    }

    /// The number that requests name it by.
    pub(crate) fn group(&self) -> u16 {
        self.group
    }

    /// Where a slot begins; it has [`SLOT_BYTES`].
    pub(crate) fn slot(&self, slot: u16) -> *mut u8 {
        assert!(slot < SLOTS, "the kernel gives numbers that it was given");
        // SAFETY: the mapping has room for so many slots.
        unsafe { self.base.add(self.slots_at + STRIDE * usize::from(slot)) }
    }

    /// Gives a slot to the kernel; any thread.
    pub(crate) fn give(&self, slot: u16) {
        let addr = self.slot(slot).expose_provenance() as u64;
        let entries = self.base.cast::<BufRingEntry>();
        let mut tail = self.tail.lock();
        // SAFETY:
        // - the entries lie at the start of the mapping, page-aligned, and zeros are valid ones.
        // - they are written under the lock only, and the kernel does not read the one behind the
        //   last before the tail says so.
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
        // ORDERING: with the kernel's acquire load: it sees the entry.
        shared.store(*tail, Ordering::Release);
    }
}

impl Drop for BufferRing {
    fn drop(&mut self) {
        // SAFETY: the mapping is the pool's own, no slot is out, and the ring is closed: the kernel
        // holds the entries' page by itself until it has noticed.
        unsafe { mmap::release(self.base, self.bytes) };
    }
}

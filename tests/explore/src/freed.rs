//! Memory that was freed is seen to be used: it is overwritten, and not given out again. A pointer in it leads nowhere.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};

/// As an address, it is none of x86-64 or aarch64.
const FREED: u8 = 0xDD;

/// From so many bytes on a block goes back to the system: a schedule would need too much memory.
const LARGE: usize = 64 << 10;

/// The system's memory, of which little is used twice: a schedule is a short process.
pub(crate) struct Freed;

// SAFETY: memory is taken from the system's allocator, and given back there or never.
unsafe impl GlobalAlloc for Freed {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller gives the whole block up.
        unsafe {
            block.write_bytes(FREED, layout.size());
            if layout.size() >= LARGE {
                System.dealloc(block, layout);
            }
        }
    }
}

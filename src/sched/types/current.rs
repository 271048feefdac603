//! This thread's M, and what a plain thread owns as a goroutine does: the runtime's only
//! thread-locals.
//!
//! A goroutine may wake on another thread, and compilers keep the addresses of
//! thread-locals in registers across a call that switches stacks
//! (llvm/llvm-project#98479; rust-lang/unsafe-code-guidelines#602). So the one
//! accessor is never inlined, gives a value and not an address, and holds a
//! volatile `asm!`, without which LLVM proves that it "reads no memory" and keeps
//! one call for two. tests/sched/migration.rs holds the patterns that break otherwise.
#![allow(unsafe_code)]

use std::cell::Cell;

use super::m::M;
use crate::g::goroutine_locals::GoroutineLocals;

thread_local!(static CURRENT: Cell<*const M> = const { Cell::new(std::ptr::null()) });

/// The M of the calling thread, or null on a thread that is none.
#[inline(never)]
pub(crate) fn m_ptr() -> *const M {
    // SAFETY: the empty assembly touches nothing; it keeps this function from being taken for
    // one whose calls may be merged.
    unsafe { std::arch::asm!("", options(nostack, preserves_flags)) };
    CURRENT.with(Cell::get)
}

/// Makes `m` the M of the calling thread; null when it stops being one.
#[inline(never)]
pub(crate) fn set_m(m: *const M) {
    CURRENT.with(|c| c.set(m));
}

/// The M of the calling thread. Used up before the next switch: the reference
/// must not live across a park.
#[inline(always)]
pub(crate) fn m<'a>() -> Option<&'a M> {
    // SAFETY: a thread's M outlives the thread's use of it (it is cleared before the M goes).
    unsafe { m_ptr().as_ref() }
}

thread_local!(static OWN: GoroutineLocals = const { GoroutineLocals::new() });

/// What the calling thread owns when no goroutine runs on it: its values of task-locals,
/// its ambient context. Null once the thread has dropped it, at its end.
#[inline(never)]
pub(crate) fn thread_own() -> *const GoroutineLocals {
    // SAFETY: as in `m_ptr`.
    unsafe { std::arch::asm!("", options(nostack, preserves_flags)) };
    OWN.try_with(std::ptr::from_ref).unwrap_or(std::ptr::null())
}

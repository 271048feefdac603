//! The calling thread's M, and the locals of a plain thread: the runtime's only thread-locals.
//!
//! A goroutine may wake on another thread, and compilers keep the addresses of thread-locals in
//! registers across a call that switches stacks (llvm/llvm-project#98479;
//! rust-lang/unsafe-code-guidelines#602). So the only accessor is never inlined, returns a value
//! and not an address, and contains a volatile `asm!`, without which LLVM proves that it "reads no
//! memory" and merges two calls into one. tests/sched/migration.rs has the patterns that break
//! otherwise.
#![allow(unsafe_code)]

#[cfg(not(explore))]
use std::cell::Cell;

use super::m::{Carrier, M};
use crate::g::goroutine_locals::GoroutineLocals;
use crate::g::header::GRef;

#[cfg(not(explore))]
thread_local!(static CURRENT: Cell<*const M> = const { Cell::new(std::ptr::null()) });

/// The explorer's twin has many threads on one of the host, and keeps such words itself.
#[cfg(explore)]
const CURRENT: usize = 0;

/// The M of the calling thread; null on a thread that is not an M.
#[inline(never)]
pub(crate) fn m_ptr() -> *const M {
    // SAFETY: the empty assembly touches nothing; it keeps the compiler from merging calls of this
    // function.
    #[cfg(not(miri))]
    unsafe {
        std::arch::asm!("", options(nostack, preserves_flags))
    };
    #[cfg(not(explore))]
    return CURRENT.with(Cell::get);
    #[cfg(explore)]
    std::ptr::with_exposed_provenance(windlass_explorer::local(CURRENT))
}

/// Makes `m` the M of the calling thread; null when the thread stops being an M.
#[inline(never)]
pub(crate) fn set_m(m: *const M) {
    #[cfg(not(explore))]
    CURRENT.with(|c| c.set(m));
    #[cfg(explore)]
    windlass_explorer::set_local(CURRENT, m.expose_provenance());
}

/// The M of the calling thread, which may have lost its P. The reference must not be used after the
/// next switch: it must not live across a park.
#[inline(always)]
pub(crate) fn m<'a>() -> Option<&'a Carrier> {
    Some(inside()?)
}

/// The goroutine that runs on this thread, even in a blocking section or while unwinding.
pub(crate) fn g() -> Option<GRef> {
    m().and_then(|m| m.curg.get())
}

/// As [`m`], for the code by which goroutines enter the scheduler, and in simulations, where no P is
/// taken from an M. tests/tidy.rs lists the callers.
#[inline(always)]
pub(crate) fn inside<'a>() -> Option<&'a M> {
    // SAFETY: a thread's M outlives the thread's use of it (the pointer is cleared before the M is
    // dropped).
    unsafe { m_ptr().as_ref() }
}

thread_local!(static OWN: GoroutineLocals = const { GoroutineLocals::new() });

/// The locals of the calling thread while no goroutine runs on it: its task-local values, its
/// current context. Null once the thread has dropped them, at its end.
#[inline(never)]
pub(crate) fn thread_locals() -> *const GoroutineLocals {
    // SAFETY: as in `m_ptr`.
    #[cfg(not(miri))]
    unsafe {
        std::arch::asm!("", options(nostack, preserves_flags))
    };
    OWN.try_with(std::ptr::from_ref).unwrap_or(std::ptr::null())
}

//! Threads and processes that a goroutine starts.
//!
//! An M is pinned to the CPU of its P, and what is started on its thread would inherit that: a
//! thread pool that is first used by a goroutine would have one CPU for ever. So the M has the mask
//! of the process while it starts a thread or a process (`sys::wrap`). That takes three system
//! calls more: it looks whether it is pinned, widens its mask, and pins itself again.
//!
//! A goroutine that has locked its thread may have given it another mask on purpose: that is
//! inherited, as anywhere.
//!
//! Meanwhile the M is marked as widened, so sysmon does not take its mask for one that was changed
//! from outside, and does not pin it for a new plan: it sets the CPU that the M pins itself to. A
//! few instructions remain: if sysmon reads the mark just before it is set, what is started then
//! may inherit one CPU; if the M reads its CPU just before that changes, it is pinned to the old
//! one until sysmon looks again (`cpu_mask`), at most two seconds.
//!
//! Nothing here takes memory from the heap: an allocator may ask for its CPUs in the middle of an
//! allocation, and handlers of `fork` may run while its locks are held.

use crate::loom::Ordering;
use crate::sched::types::current;
use crate::sched::types::m::M;
use crate::sys::affinity::{self, Mask};
use crate::sys::wrap::{self, Hooks};

/// Has what is started on Ms from now on get the mask of the process.
pub(crate) fn install() {
    wrap::install(Hooks {
        widen,
        narrow,
        write_process_mask,
    });
}

/// The calling thread's M, if it is pinned as the runtime has pinned it.
fn pinned_m<'a>() -> Option<&'a M> {
    let m = current::m()?;
    let cpu = m.cpu()?;
    affinity::is_just_here(cpu).then_some(m)
}

fn widen() -> bool {
    let Some(m) = pinned_m().filter(|m| !m.is_widened.load(Ordering::SeqCst)) else {
        return false;
    };
    // Before the mask is changed: whoever sees the new mask sees the mark.
    m.is_widened.store(true, Ordering::SeqCst);
    let is_wide = m.sched().offload.with_mask(affinity::restore).is_some();
    if !is_wide {
        m.is_widened.store(false, Ordering::SeqCst);
    }
    is_wide
}

fn narrow() {
    let Some(m) = current::m().filter(|m| m.is_widened.load(Ordering::SeqCst)) else {
        return;
    };
    if let Some(cpu) = m.cpu() {
        // It fails where the CPU has gone: then sysmon makes another plan.
        affinity::pin(cpu);
    }
    m.is_widened.store(false, Ordering::SeqCst);
}

fn write_process_mask(bytes: &mut [u8]) -> bool {
    let Some(m) = pinned_m() else {
        return false;
    };
    let mut write = |mask: &Mask| mask.write_to(bytes);
    // Where CPUs are not followed it is the mask that the caller of `run` had.
    let followed = m.sched().place.with_now(|now| write(&now.mask));
    followed
        .or_else(|| m.sched().offload.with_mask(write))
        .is_some()
}

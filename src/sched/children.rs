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
//! Sysmon may look at the M's mask just then, or pin it for a new plan. In the first case it pins
//! all Ms once more, in the second the M may pin itself where it was before; both is put right
//! within two seconds (`cpus`).
//!
//! Nothing here takes memory from the heap: an allocator may ask for its CPUs in the middle of an
//! allocation, and handlers of `fork` may run while its locks are held.

use super::current;
use super::m::M;
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
    if current::is_widened() {
        return false;
    }
    let offload = pinned_m().map(|m| &m.sched().offload);
    let is_wide = offload.and_then(|offload| offload.with_mask(affinity::restore));
    current::set_widened(is_wide.is_some());
    is_wide.is_some()
}

fn narrow() {
    if !current::is_widened() {
        return;
    }
    current::set_widened(false);
    if let Some(cpu) = current::m().and_then(M::cpu) {
        // It fails where the CPU has gone: then sysmon makes another plan.
        affinity::pin(cpu);
    }
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

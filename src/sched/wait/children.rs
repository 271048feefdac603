//! Threads and processes that a goroutine starts.
//!
//! An M is pinned to the CPU of its P, and a thread started there would inherit that: a thread pool
//! first used by a goroutine would be confined to one CPU. So the M takes on the process's mask
//! while it starts a thread or a process (`sys::wrap`). This costs three more system calls: one to
//! check that it is pinned, one to widen the mask, one to pin it again.
//!
//! The M's timer slack is the least one, and becomes the process's meanwhile, too: two more. Sysmon lowers
//! the priority of a thread that computes without a P: that is undone meanwhile. A program
//! that replaces this one (`exec`) would also keep the short time slice of the M's thread.
//!
//! A goroutine that has locked its thread may have given it another mask or slack on purpose: that is
//! inherited, as usual.
//!
//! Meanwhile the M is marked as widened. So sysmon neither mistakes its mask for one changed from
//! outside, nor pins the M for a new plan: it only sets the CPU that the M pins itself to. A window
//! of a few instructions remains. If sysmon reads the mark just before it is set, the started
//! thread may inherit one CPU. If the M reads its CPU just before that changes, it is pinned to the
//! old one until sysmon's next check (`cpu_mask`), for at most two seconds.
//!
//! A child of `fork` has the goroutine that has forked, and no scheduler: its M is marked ([`FORKED`]), so that the
//! goroutine's next entry ends the process with a line that says why (`handoff`).
//!
//! This code does not allocate: an allocator may query its CPUs in the middle of an allocation, and
//! `fork` handlers may run while its locks are held.

use crate::config::HOG_NICE;
use crate::loom::Ordering;
use crate::sched::types::current;
use crate::sched::types::m::{Carrier, FORKED};
use crate::sys::affinity::{self, Mask};
use crate::sys::clock;
use crate::sys::sched as threads;
use crate::sys::wrap::{self, Hooks};

/// Installs the hooks: threads and processes started on Ms get the process's mask from now on.
pub(crate) fn install() {
    wrap::install(Hooks {
        widen,
        narrow,
        become_usual,
        become_own,
        in_child,
        write_process_mask,
    });
}

/// The calling thread's M, if it is still pinned as the runtime has pinned it.
fn pinned_m<'a>() -> Option<&'a Carrier> {
    let m = current::m()?;
    let cpu = m.cpu()?;
    affinity::is_just_here(cpu).then_some(m)
}

fn widen() -> bool {
    #[cfg(feature = "sim")]
    if let Some(m) = current::m().filter(|m| m.sched().config.is_simulated()) {
        m.sched().met_outside.store(true, Ordering::Relaxed);
    }
    let Some(m) = current::m() else {
        return false;
    };
    let is_changed = m.is_loose.load(Ordering::Relaxed) || m.is_raised.load(Ordering::Relaxed);
    if is_changed || m.is_widened.load(Ordering::SeqCst) {
        return false;
    }
    let is_loose = clock::loosen_timer_slack();
    m.is_loose.store(is_loose, Ordering::Relaxed);
    let is_raised = m.demoted.load(Ordering::SeqCst) && m.set_nice(0, 0).is_ok();
    m.is_raised.store(is_raised, Ordering::Relaxed);
    let mut is_wide = false;
    if pinned_m().is_some() {
        // Before the mask is changed: a thread that sees the new mask also sees the mark.
        m.is_widened.store(true, Ordering::SeqCst);
        is_wide = m.sched().offload.with_mask(affinity::restore).is_some();
        if !is_wide {
            m.is_widened.store(false, Ordering::SeqCst);
        }
    }
    is_wide || is_loose || is_raised
}

fn narrow() {
    let Some(m) = current::m() else {
        return;
    };
    if m.is_loose.load(Ordering::Relaxed) {
        clock::tighten_timer_slack();
        m.is_loose.store(false, Ordering::Relaxed);
    }
    if m.is_raised.load(Ordering::Relaxed) {
        // It computes on without a P.
        let _ = m.set_nice(0, HOG_NICE);
        m.is_raised.store(false, Ordering::Relaxed);
    }
    if !m.is_widened.load(Ordering::SeqCst) {
        return;
    }
    if let Some(cpu) = m.cpu() {
        // It fails if the CPU has gone: then sysmon makes another plan.
        affinity::pin(cpu);
    }
    m.is_widened.store(false, Ordering::SeqCst);
}

fn become_usual() -> bool {
    let Some(m) = current::m() else {
        return false;
    };
    if threads::gettid() != m.tid.load(Ordering::Relaxed) {
        // A child of `fork`, which is as it should be: the M was widened as it began. Or a child of
        // `vfork`, which is not, and shares the memory of this process: its parent must find nothing
        // changed.
        clock::loosen_timer_slack();
        if m.demoted.load(Ordering::SeqCst) {
            let _ = threads::set_nice(0, 0);
        }
        if !m.is_widened.load(Ordering::SeqCst) && pinned_m().is_some() {
            m.sched().offload.with_mask(affinity::restore);
        }
        return false;
    }
    let is_changed = widen();
    is_changed | (m.has_short_slice.load(Ordering::Relaxed) && threads::lengthen_own_slice())
}

fn become_own() {
    narrow();
    if current::m().is_some_and(|m| m.has_short_slice.load(Ordering::Relaxed)) {
        threads::shorten_own_slice();
    }
}

/// On the only thread of a child. ORDERING: relaxed, as no other is there.
fn in_child() {
    let Some(m) = current::m() else {
        return;
    };
    m.access.store(FORKED, Ordering::Relaxed);
    if let Some(p) = m.last_p() {
        // A blocking section does not get the P back at its end, and leaves the mark.
        p.syscall.store(0, Ordering::Relaxed);
    }
}

fn write_process_mask(bytes: &mut [u8]) -> bool {
    let Some(m) = pinned_m() else {
        return false;
    };
    let mut write = |mask: &Mask| mask.write_to(bytes);
    // If CPUs are not followed, this is the mask that the caller of `run` had.
    let followed = m.sched().place.with_now(|now| write(&now.mask));
    followed
        .or_else(|| m.sched().offload.with_mask(write))
        .is_some()
}

//! The way of a P to an M that has none.
//!
//! An M without a P is a *spare*: it is in the list of spares and sleeps on its note. A P is given to one of them, by
//! sysmon (`monitor::retake`) or by an M that a goroutine has locked (`locked`).
//!
//! | giver                                    | spare M                                              |
//! |------------------------------------------|------------------------------------------------------|
//! | 1. lock the Ms, take it out of the list  | 1. next_p is there? Take it by a swap, and hold it   |
//! | 2. post the goroutine to run, if any     | 2. lock the Ms, look at next_p once more, be listed  |
//! | 3. the P's owner is the M                | 3. sleep until notified, and begin again             |
//! | 4. next_p is the P, unlock, notify       |                                                      |
//!
//! Sysmon may take the P back before step 1 of the M (`take_back`, to stop the world): by a CAS on `next_p`, so one of
//! the two has it. A new thread finds its P in `next_p` when it starts.
#![allow(unsafe_code)]

use crate::g::header::GRef;
use crate::lock::Guard;
use crate::loom::Ordering;
use crate::sched::types::m::{Carrier, HAS_P, M};
use crate::sched::types::p::P;
use crate::sched::types::state::{Ms, Phase, Sched};
use crate::sys::affinity;
use crate::util::chaos::{self, Point};

/// Gives a P to a spare M, preferably one on the P's CPU, and with it the goroutine to run
/// there. The caller wakes the M. `None` if there is no spare M.
pub(crate) fn give_to_spare<'a>(sched: &'a Sched, p: &P, g: Option<GRef>) -> Option<&'a Carrier> {
    let mut ms = sched.ms.lock();
    // SAFETY: spare Ms live in `all` until the run ends.
    let same_cpu = |&m: &*const Carrier| unsafe { (*m).cpu() } == Some(p.cpu());
    let at = ms
        .spare
        .iter()
        .rposition(same_cpu)
        .or(ms.spare.len().checked_sub(1));
    // Before sysmon finds that it cannot start a thread either.
    ms.is_wanted |= at.is_none();
    let at = at?;
    // SAFETY: as above; a spare M waits for a P.
    let m = unsafe { &*ms.spare.swap_remove(at) };
    if let Some(g) = g {
        debug_assert!(sched.owns(g), "a goroutine of another runtime");
        m.handed_work.post(g);
    }
    pass(p, m);
    Some(m)
}

/// Puts `p` where `m` takes it. From here on it belongs to that M: no other code may give the P away again.
pub(crate) fn pass(p: &P, m: &Carrier) {
    p.owner
        .store(std::ptr::from_ref(m).cast_mut().cast(), Ordering::Release);
    chaos::pause(Point::HandOff);
    m.next_p
        .store(std::ptr::from_ref(p).cast_mut(), Ordering::Release);
}

/// Takes back a P that was given to `m` but not yet picked up: `m` is a spare again. A P handed
/// over with a goroutine stays: only that M may run the goroutine.
pub(crate) fn take_back(sched: &Sched, m: &Carrier, p: &P) -> bool {
    let mut ms = sched.ms.lock();
    // ORDERING: the handed work is posted before the P is given.
    let is_on_its_way = std::ptr::eq(m.next_p.load(Ordering::Acquire), p);
    if !is_on_its_way || m.handed_work.is_there() {
        return false;
    }
    let taken = m
        .next_p
        .compare_exchange(
            std::ptr::from_ref(p).cast_mut(),
            std::ptr::null_mut(),
            Ordering::AcqRel,
            Ordering::Relaxed,
        )
        .is_ok();
    if taken {
        ms.add_spare(m);
    }
    taken
}

/// Picks up the P that was given to this M, or sleeps as a spare until there is one. `false` when
/// the run is over.
pub(crate) fn wait_for_p(m: &M) -> bool {
    loop {
        let p = m.next_p.swap(std::ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: Ps live as long as the scheduler, which outlives its Ms.
        if let Some(p) = unsafe { p.as_ref() } {
            take_p(m, p);
            if m.is_locked() {
                m.handed_work.end_waiting();
            }
            return true;
        }
        {
            let mut ms = m.sched().ms.lock();
            if m.sched().phase() == Phase::Stopping {
                return false;
            }
            if !m.next_p.load(Ordering::Relaxed).is_null() {
                continue;
            }
            if !m.is_locked() {
                ms.add_spare(m);
                tell_of_thread(m.sched(), ms);
            }
        }
        m.note.sleep();
    }
}

/// Makes `m` the holder of `p`.
pub(crate) fn take_p(m: &M, p: &P) {
    let cpu = p.cpu();
    if m.sched().pin && !m.is_pinned_to(cpu) && affinity::pin(cpu) {
        m.set_cpu(Some(cpu));
    }
    chaos::pause(Point::HandOff);
    m.set_p(Some(p));
    m.access.store(HAS_P, Ordering::Relaxed);
    p.local.pace.measure_next();
    p.owner
        .store(std::ptr::from_ref(m).cast_mut(), Ordering::Release);
    p.poller.adopt();
}

/// Wakes sysmon if a P has no M because no thread was available. The caller has just made one available.
pub(crate) fn tell_of_thread(sched: &Sched, mut ms: Guard<'_, Ms>) {
    let is_wanted = std::mem::take(&mut ms.is_wanted);
    drop(ms);
    if is_wanted {
        sched.sysmon.note.wake();
    }
}

#[cfg(all(test, not(loom)))]
#[path = "spare_tests.rs"]
mod tests;

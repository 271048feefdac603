//! Access to a P: how a goroutine enters the scheduler, and blocking sections. `monitor::retake` is the other
//! side, and takes the P from an M that is stuck.
//!
//! A goroutine's code runs on an M that holds a P. It enters the scheduler (to ready, spawn, park,
//! ...) for a few instructions at a time. In between, sysmon may retake the P and give it to
//! another M. Every entry must therefore check, at next to no cost, whether the M still has its P.
//! The barrier is asymmetric: sysmon, which is rare, pays for both sides with `membarrier(2)`.
//!
//! | M enters                          | sysmon retakes the P                    |
//! |-----------------------------------|-----------------------------------------|
//! | 1. in_runtime = 1                 | 1. access: HAS_P → RETAKING             |
//! | 2. compiler fence                 | 2. membarrier on all CPUs               |
//! | 3. read access                    | 3. the M holds another P? HAS_P         |
//! |    HAS_P: go on                   |    in_runtime == 1? PREEMPT: its        |
//! |    RETAKING: spin until decided   |    goroutine is to yield                |
//! |    PREEMPT: queue G               |    else RETAKEN: the P is retaken       |
//! |    RETAKEN: queue G, park the M   | 4. access: RETAKING → this, by a CAS    |
//!
//! Step 4 is a CAS because an M that was inside at step 1 may since have begun a blocking section
//! and left the scheduler: it then wrote BLOCKING over RETAKING. The P may now be retaken only
//! through that section, or the M has it again.
//!
//! The decision concerns the pair of M and P. An M that gives its P to another M (`locked`) and
//! then gets one itself may be outside again at step 1, with a different P. `access` explains why
//! the check of the M's P in step 3 covers that case, and has a model.
//!
//! The membarrier orders 1 before 3 on the M's CPU with respect to sysmon's 1 and 3: if the M reads
//! HAS_P, sysmon reads in_runtime == 1. Without membarrier (a sandbox denies it) no P is retaken
//! this way, only out of blocking sections.
//!
//! Destructors and `Debug` enter **in place** ([`Section::enter_in_place`]): what finds RETAKING or
//! RETAKEN goes on as a plain thread would, on the thread where it is.
//!
//! A goroutine that makes one short call into the scheduler after the other (it forks, or retries a
//! contended channel) is inside whenever sysmon checks: a membarrier takes longer than such a
//! goroutine stays outside. PREEMPT is a **request** to it. Sysmon makes it before it takes a P, and as
//! the verdict on an M that is inside. The goroutine sees it at its next entry, at the latest where it
//! waits for the verdict, and goes to its node's queue like a goroutine that lost its P. One that
//! parks goes there by itself. The request names the dispatch it is meant for, so that a goroutine
//! dispatched later is not preempted for its predecessor.
//!
//! A **blocking section** ([`blocking`]) is cheaper to leave and faster to retake from. The M
//! writes its id to `P::syscall`; both the M (on return) and sysmon (after 20 µs, or 10 ms if the P
//! has no work) claim the P by a CAS on that word. It is an id rather than a flag, so that an M
//! that returns cannot claim the P out of a later section of another M.
//!
//! A child that the goroutine has **forked** has no scheduler. `access` is FORKED there (`children`): the next entry ends the
//! process. In place, and while it unwinds, it goes on as a plain thread would.
//!
//! If there is no thread for the P of a goroutine that goes from one section to the next, sysmon makes a request
//! instead. At the end of its section the M finds the dispatch that the request names, and sets PREEMPT.
#![allow(unsafe_code)]

use crate::loom::native::atomic::{AtomicU32, Ordering};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::turn;
use crate::g::coro::Switch;
use crate::race;
use crate::sched::queue::access;
use crate::sched::types::accounting;
use crate::sched::types::current;
use crate::sched::types::m::{BLOCKING, Carrier, FORKED, HAS_P, M, PREEMPT, RETAKEN, RETAKING};
use crate::sched::types::p::P;
use crate::sched::types::simulation::Simulation;
use crate::sys::signal;
use crate::util::chaos::{self, Point};

/// Replaces an M's id in `P::syscall`: the M has given the P up, and sysmon must find another M for
/// it.
pub(crate) const LEFT: u64 = u64::MAX;

/// Proof that the calling goroutine is inside the scheduler: its M keeps the P until this is
/// dropped. Kept short: code in a section neither parks nor calls user code.
#[derive(Debug)]
pub(crate) struct Section<'a>(&'a M);

impl<'a> Section<'a> {
    /// Enters the scheduler, if the caller runs on an M that has its P. A goroutine whose P was
    /// retaken is first moved to another M, so this may return on another thread.
    ///
    /// `None` on a plain thread, in a blocking section, and while unwinding without a P: the caller
    /// is then treated as a plain thread.
    #[inline(always)]
    pub(crate) fn enter() -> Option<Section<'a>> {
        Section::enter_to(false)
    }

    /// As [`Section::enter`]. With `parks` the caller switches out in any case, so it need not do so
    /// first because it was asked to.
    #[inline(always)]
    pub(crate) fn enter_to(parks: bool) -> Option<Section<'a>> {
        let m = current::inside()?;
        mark_inside(m);
        if access::is_granted(&m.access) {
            if chaos::coin(Point::Enter) {
                return enter_after_others(m);
            }
            if let Some(sim) = m.simulation() {
                return enter_simulated(m, sim);
            }
            Some(Section(m))
        } else {
            enter_slow(m, parks)
        }
    }

    /// As [`Section::enter`], but the goroutine stays on its thread, and no other runs first: for
    /// destructors and `Debug`, which may run while the caller keeps something of its thread.
    ///
    /// `None` also if its P was retaken, or is about to be: the caller is then treated as a plain
    /// thread. A request to yield is left to the next entry.
    #[inline(always)]
    pub(crate) fn enter_in_place() -> Option<Section<'a>> {
        let m = current::inside()?;
        mark_inside(m);
        if access::is_granted(&m.access) {
            Some(Section(m))
        } else {
            enter_in_place_slow(m)
        }
    }

    #[inline(always)]
    pub(crate) fn m(&self) -> &'a M {
        self.0
    }

    /// Leaves by switching stacks instead of dropping: the M stays in the scheduler. Carries
    /// `errno` over to the next M.
    #[inline(always)]
    pub(crate) fn switch_out(self, why: Switch) {
        let g = self.0.curg.get().expect("only a goroutine's code enters");
        // SAFETY: `M::errno` was set when the M's loop began, and this is the M's thread.
        let errno = unsafe { *self.0.errno.get() };
        std::mem::forget(self);
        race::switches_out(g.as_ptr());
        // SAFETY: `out` was set when the goroutine began, and the caller runs on its stack.
        let m = unsafe { (*g.out()).suspend(why) };
        let m = std::ptr::with_exposed_provenance::<Carrier>(m);
        // SAFETY: an M resumes a goroutine with its own address, and is on its thread.
        unsafe { *(*m).errno.get() = errno };
        race::goes_on(g.as_ptr(), m);
    }

    /// As [`Section::switch_out`], for a switch that is no wait of the goroutine: its forks stay its
    /// own (`fork`).
    pub(crate) fn switch_out_with_forks(self, why: Switch) {
        let forks = self.0.forks.replace(std::ptr::null());
        self.switch_out(why);
        let m = current::inside().expect("a goroutine runs on an M");
        race::enter_runtime();
        m.forks.set(forks);
        race::leave_runtime();
    }

    /// Stays inside: the goroutine ends, and its M continues in the scheduler.
    pub(crate) fn stay(self) {
        std::mem::forget(self);
    }
}

impl Drop for Section<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        mark_outside(self.0);
    }
}

#[inline(always)]
fn mark_inside(m: &M) {
    debug_assert_eq!(
        m.in_runtime.load(Ordering::Relaxed),
        0,
        "the scheduler was entered twice"
    );
    access::mark_inside(&m.in_runtime);
    race::enter_runtime();
}

#[inline(always)]
fn mark_outside(m: &M) {
    race::leave_runtime();
    access::mark_outside(&m.in_runtime);
}

/// Chaos testing: other goroutines run first, as if the P had been retaken.
#[cold]
#[inline(never)]
fn enter_after_others<'a>(mut m: &'a M) -> Option<Section<'a>> {
    if !std::thread::panicking() {
        m = switch_and_enter(m, Switch::YIELD);
    }
    enter_slow(m, false)
}

/// Every entry is a switch point of a simulation: other goroutines may run first.
#[cold]
#[inline(never)]
fn enter_simulated<'a>(mut m: &'a M, sim: &Simulation) -> Option<Section<'a>> {
    if !std::thread::panicking() && turn::must_switch(m, sim) {
        m = switch_and_enter(m, Switch::YIELD);
    }
    Some(Section(m))
}

/// Switches out of `m` with a reason; returns inside the scheduler, on the M that resumed the
/// goroutine.
fn switch_and_enter<'a>(m: &M, why: Switch) -> &'a M {
    Section(m).switch_out_with_forks(why);
    let m = current::inside().expect("a goroutine runs on an M");
    mark_inside(m);
    m
}

#[cold]
#[inline(never)]
fn enter_slow<'a>(mut m: &'a M, parks: bool) -> Option<Section<'a>> {
    loop {
        match access::state(&m.access) {
            HAS_P => return Some(Section(m)),
            RETAKING => crate::loom::spin_loop(),
            PREEMPT => {
                if is_to_give_way(m) && !parks {
                    m = switch_and_enter(m, Switch::PREEMPTED);
                }
            }
            RETAKEN if !std::thread::panicking() => m = switch_and_enter(m, Switch::LOST_P),
            FORKED if !std::thread::panicking() => end_child(),
            _ => {
                mark_outside(m);
                return None;
            }
        }
    }
}

#[cold]
#[inline(never)]
fn enter_in_place_slow<'a>(m: &'a M) -> Option<Section<'a>> {
    if access::state(&m.access) == PREEMPT {
        return Some(Section(m));
    }
    // Sysmon that finds the M outside may retake the P, which the caller does without.
    mark_outside(m);
    None
}

/// Ends a child of `fork` whose goroutine goes on as if it had its scheduler.
#[cold]
#[inline(never)]
fn end_child() -> ! {
    signal::write_stderr(
        b"windlass: a process that a goroutine has forked uses the runtime, and has neither its threads nor its \
          rings: call exec or _exit in the child (docs/SAFETY.md, Fork)\n",
    );
    std::process::abort()
}

/// Acknowledges sysmon's preemption request. `true` if it is meant for the running goroutine.
fn is_to_give_way(m: &M) -> bool {
    access::acknowledge(&m.access) && is_asked(m, m.p()) && !std::thread::panicking()
}

/// Whether sysmon's last request is meant for the running goroutine.
fn is_asked(m: &M, p: &P) -> bool {
    m.preempt_at.load(Ordering::Relaxed) == p.stats.dispatches.get()
}

/// Runs `f` in place, in a blocking section: the P goes to another M after 20 µs if it has work,
/// and after 10 ms if not, to become idle. Outside the runtime it just runs `f`.
pub(crate) fn blocking<T>(f: impl FnOnce() -> T) -> T {
    let Some(section) = Section::enter() else {
        return f();
    };
    begin_blocking(section);
    let outcome = catch_unwind(AssertUnwindSafe(f));
    leave_blocking(false);
    outcome.unwrap_or_else(|payload| resume_unwind(payload))
}

/// As [`blocking`], but the goroutine stays on its thread: if its P is retaken meanwhile, it goes on
/// without one, as after a call that sysmon found to block, until it next enters the scheduler. So
/// a caller may keep thread-locals across this.
pub(crate) fn blocking_on_thread<T>(f: impl FnOnce() -> T) -> T {
    let Some(section) = Section::enter_in_place() else {
        return f();
    };
    // This discards a request to yield.
    begin_blocking(section);
    let _leaves = LeavesOnDrop;
    f()
}

/// Leaves the blocking section, without a switch, also if a panic drops it.
struct LeavesOnDrop;

impl Drop for LeavesOnDrop {
    fn drop(&mut self) {
        leave_blocking(true);
    }
}

fn begin_blocking(section: Section<'_>) {
    let m = section.m();
    let p = m.p();
    let sched = m.sched();
    let g = m.curg.get().expect("only a goroutine's code enters");
    g.status.set_blocked();
    let tell_sysmon = sched.sysmon.slow.load(Ordering::Relaxed) && p.has_work();
    if p.observes_sections() {
        accounting::begin_section(m);
    }
    bump(&p.syscalltick);
    m.access.store(BLOCKING, Ordering::Relaxed);
    chaos::pause(Point::Blocking);
    p.syscall.store(m.id(), Ordering::Release);
    chaos::pause(Point::Blocking);
    drop(section);
    if tell_sysmon {
        sched.sysmon.note.wake();
    }
}

/// With `stays`, without a switch.
fn leave_blocking(stays: bool) {
    // No switch can have happened in the section, so this is the M that began it.
    let m = current::inside().expect("a goroutine runs on an M");
    mark_inside(m);
    let (p, g) = (m.p(), m.curg.get().expect("a goroutine's code left"));
    chaos::pause(Point::Blocking);
    if p.syscall
        .compare_exchange(m.id(), 0, Ordering::AcqRel, Ordering::Acquire)
        .is_ok()
    {
        chaos::pause(Point::Blocking);
        let access = if is_asked(m, p) { PREEMPT } else { HAS_P };
        m.access.store(access, Ordering::Relaxed);
        if p.observes_sections() {
            accounting::end_section(m);
        }
        g.status.set_running();
        return mark_outside(m);
    }
    if access::state(&m.access) == FORKED {
        return mark_outside(m);
    }
    m.access.store(RETAKEN, Ordering::Relaxed);
    accounting::resume(m);
    g.status.set_running();
    if stays || std::thread::panicking() {
        // No switch while unwinding: the next call into the scheduler afterwards moves the
        // goroutine.
        return mark_outside(m);
    }
    Section(m).switch_out_with_forks(Switch::LOST_P);
}

/// Runs user code on the M's own stack, from within the M's loop. Calls from it see a plain thread,
/// as in a blocking section, but the M keeps its P.
pub(crate) fn as_outsider(m: &M, f: impl FnOnce()) {
    m.access.store(BLOCKING, Ordering::Relaxed);
    mark_outside(m);
    f();
    mark_inside(m);
    m.access.store(HAS_P, Ordering::Relaxed);
}

/// Increments without a locked instruction: only the owner of the P writes.
#[inline(always)]
pub(crate) fn bump(counter: &AtomicU32) {
    counter.store(
        counter.load(Ordering::Relaxed).wrapping_add(1),
        Ordering::Relaxed,
    );
}

#[cfg(all(test, not(loom)))]
#[path = "handoff_tests.rs"]
mod tests;

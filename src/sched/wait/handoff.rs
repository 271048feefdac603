//! Who may use a P: entering the scheduler from a goroutine, blocking sections,
//! and how a P is taken from an M that is stuck.
//!
//! A goroutine's code runs on an M that holds a P. It enters the scheduler (to
//! ready, spawn, park, ..) for a few instructions at a time; in between, sysmon
//! may take the P and give it to another M. Entering must therefore find out
//! whether the P is still there, at next to no cost, because it happens at every
//! call. The barrier is asymmetric: sysmon, which is rare, pays for both sides
//! with `membarrier(2)`.
//!
//! | M enters                          | sysmon takes the P                      |
//! |-----------------------------------|-----------------------------------------|
//! | 1. in_runtime = 1                 | 1. access: HAS_P → RETAKING             |
//! | 2. compiler fence                 | 2. membarrier on all CPUs               |
//! | 3. read access                    | 3. in_runtime == 1, or the M holds      |
//! |    HAS_P: go on                   |    another P? access = HAS_P: it has    |
//! |    RETAKING: wait for the verdict |    come to the scheduler by itself      |
//! |    RETAKEN: queue G, park the M   | 4. else RETAKING → RETAKEN by a CAS:    |
//! |                                   |    the P is taken                       |
//!
//! Step 4 is a CAS because an M that was inside at step 1 may have begun a declared
//! section since, and left: it wrote BLOCKING over the question, and the P may now be
//! taken from the section only, or is the M's again.
//!
//! The verdict is about the pair of M and P. An M that gives its P to another (`locked`) and gets
//! one itself may be outside again by step 1, with the wrong P. `access` has the reasons why the
//! look at the M's P in step 3 settles that, and a model.
//!
//! The membarrier orders 1 before 3 on the M's CPU with respect to sysmon's 1 and
//! 3: if the M reads HAS_P, sysmon reads in_runtime == 1. Without membarrier (a
//! sandbox denies it) no P is taken this way, only out of declared sections.
//!
//! A goroutine that goes from one short call into the scheduler to the next (tries of a
//! channel that others hold, say) is inside whenever sysmon looks. It is **asked**: access
//! HAS_P → PREEMPT, which it finds at its next call, and goes to the queue of its node like
//! one that lost its P. The request names the dispatch it is meant for: who comes to the
//! scheduler by himself is not sent away for what the one before him did.
//!
//! A **declared** blocking section ([`blocking`]) is cheaper to leave and quicker
//! to take from: the M writes its number to `P::syscall`, and both it (on return)
//! and sysmon (after 20 µs, or 10 ms if the P has no work) claim the P by a CAS on that word. The number, not a
//! flag, so that an M that returns cannot take the P out of a later section of
//! another M.
#![allow(unsafe_code)]

use crate::loom::native::atomic::{AtomicU32, Ordering};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::g::coro::Switch;
use crate::g::header::GRef;
use crate::sched::queue::access;
use crate::sched::types::current;
use crate::sched::types::m::{BLOCKING, HAS_P, M, PREEMPT, RETAKEN, RETAKING};
use crate::sched::types::p::P;
use crate::sched::types::state::Sched;
use crate::sched::types::trace::EventKind;
use crate::sys::sched::membarrier;
use crate::util::chaos::{self, Point};

/// In place of an M's number in `P::syscall`: the M has given the P up, and sysmon is to find
/// another one.
pub(crate) const LEFT: u64 = u64::MAX;

/// The calling goroutine is inside the scheduler: its M's P stays until this is
/// dropped. Short: nothing in it parks or calls user code.
#[derive(Debug)]
pub(crate) struct Section<'a>(&'a M);

impl<'a> Section<'a> {
    /// Enters, if the caller is an M that has its P. A goroutine whose P was taken
    /// is moved to another M first, so this may return on another thread.
    ///
    /// `None` on a plain thread, in a blocking section, and while unwinding
    /// without a P: then the caller is treated as a plain thread.
    #[inline(always)]
    pub(crate) fn enter() -> Option<Section<'a>> {
        let m = current::m()?;
        mark_inside(m);
        if m.access.load(Ordering::Relaxed) == HAS_P {
            if chaos::coin(Point::Enter) {
                return enter_after_others(m);
            }
            Some(Section(m))
        } else {
            enter_slow(m)
        }
    }

    #[inline(always)]
    pub(crate) fn m(&self) -> &'a M {
        self.0
    }

    /// Leaves by switching stacks instead of dropping: the M is in the scheduler anyway.
    /// `errno` goes along.
    #[inline(always)]
    pub(crate) fn switch_out(self, why: Switch) {
        let g = self.0.curg.get().expect("only a goroutine's code enters");
        // SAFETY: an M's errno is where it said when its loop began, and this is its thread.
        let errno = unsafe { *self.0.errno.get() };
        std::mem::forget(self);
        // SAFETY: `out` was set when the goroutine began, and the caller runs on its stack.
        let m = unsafe { (*g.out()).suspend(why) };
        let m = std::ptr::with_exposed_provenance::<M>(m);
        // SAFETY: an M resumes a goroutine with its own address, and is on its thread.
        unsafe { *(*m).errno.get() = errno };
    }

    /// Stays inside: the goroutine ends, and its M goes on in the scheduler.
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
}

#[inline(always)]
pub(crate) fn mark_outside(m: &M) {
    access::mark_outside(&m.in_runtime);
}

/// For disorder's sake: others run first, as if the P had been asked for.
#[cold]
#[inline(never)]
fn enter_after_others<'a>(mut m: &'a M) -> Option<Section<'a>> {
    if !std::thread::panicking() {
        m = switch_and_enter(m, Switch::YIELD);
    }
    enter_slow(m)
}

/// Leaves `m` for a reason, and is inside the scheduler again, on whichever M goes on.
fn switch_and_enter<'a>(m: &M, why: Switch) -> &'a M {
    Section(m).switch_out(why);
    let m = current::m().expect("a goroutine runs on an M");
    mark_inside(m);
    m
}

#[cold]
#[inline(never)]
fn enter_slow<'a>(mut m: &'a M) -> Option<Section<'a>> {
    loop {
        match m.access.load(Ordering::Acquire) {
            HAS_P => return Some(Section(m)),
            RETAKING => crate::loom::spin_loop(),
            PREEMPT => {
                if is_to_give_way(m) {
                    m = switch_and_enter(m, Switch::GIVE_WAY);
                }
            }
            RETAKEN if !std::thread::panicking() => m = switch_and_enter(m, Switch::LOST_P),
            _ => {
                mark_outside(m);
                return None;
            }
        }
    }
}

/// Takes note of sysmon's request, and says whether it is meant for the running goroutine.
fn is_to_give_way(m: &M) -> bool {
    // ORDERING: sysmon may put the P in question instead; if it does so after this, it
    // sees with HAS_P that the M was inside before.
    let noted = m
        .access
        .compare_exchange(PREEMPT, HAS_P, Ordering::AcqRel, Ordering::Relaxed)
        .is_ok();
    noted
        && m.preempt_at.load(Ordering::Relaxed) == m.p().stats.dispatches.get()
        && !std::thread::panicking()
}

/// Runs `f` in place in a declared blocking section: the P goes to another M after
/// 20 µs if it has work, and after 10 ms to become idle. Off the runtime it just runs `f`.
pub(crate) fn blocking<T>(f: impl FnOnce() -> T) -> T {
    let Some(section) = Section::enter() else {
        return f();
    };
    let m = section.m();
    let p = m.p();
    let sched = m.sched();
    m.curg
        .get()
        .expect("only a goroutine's code enters")
        .status
        .set_blocked();
    let tell_sysmon = sched.sysmon.slow.load(Ordering::Relaxed) && p.has_work();
    p.trace_if(EventKind::Block);
    bump(&p.syscalltick);
    m.access.store(BLOCKING, Ordering::Relaxed);
    chaos::pause(Point::Blocking);
    p.syscall.store(m.id(), Ordering::Release);
    chaos::pause(Point::Blocking);
    drop(section);
    if tell_sysmon {
        sched.sysmon.note.wake();
    }
    let outcome = catch_unwind(AssertUnwindSafe(f));
    leave_blocking();
    outcome.unwrap_or_else(|payload| resume_unwind(payload))
}

fn leave_blocking() {
    // No switch can have happened in the section, so this is the M that began it.
    let m = current::m().expect("a goroutine runs on an M");
    mark_inside(m);
    let p = m.p();
    chaos::pause(Point::Blocking);
    if p.syscall
        .compare_exchange(m.id(), 0, Ordering::AcqRel, Ordering::Acquire)
        .is_ok()
    {
        chaos::pause(Point::Blocking);
        m.access.store(HAS_P, Ordering::Relaxed);
        p.trace_if(EventKind::Unblock);
        m.curg
            .get()
            .expect("a goroutine's code left")
            .status
            .set_running();
        return mark_outside(m);
    }
    m.access.store(RETAKEN, Ordering::Relaxed);
    m.curg
        .get()
        .expect("a goroutine's code left")
        .status
        .set_running();
    if std::thread::panicking() {
        // No switch while unwinding: the next call after it moves the goroutine.
        return mark_outside(m);
    }
    Section(m).switch_out(Switch::LOST_P);
}

/// Runs code of the user's on the M's own stack, from within its loop: what it calls takes
/// it for a plain thread's, as in a blocking section, but the P stays.
pub(crate) fn as_outsider(m: &M, f: impl FnOnce()) {
    m.access.store(BLOCKING, Ordering::Relaxed);
    mark_outside(m);
    f();
    mark_inside(m);
    m.access.store(HAS_P, Ordering::Relaxed);
}

/// Counts up without a locked instruction: only the owner of the P writes.
#[inline(always)]
pub(crate) fn bump(counter: &AtomicU32) {
    counter.store(
        counter.load(Ordering::Relaxed).wrapping_add(1),
        Ordering::Relaxed,
    );
}

/// The M that holds `p`, or that it was given to.
pub(crate) fn owner_of<'a>(sched: &'a Sched, p: &P) -> Option<&'a M> {
    let owner = p.owner();
    let ms = sched.ms.lock();
    let found = ms
        .all
        .iter()
        .find(|m| std::ptr::eq(&raw const ***m, owner))?;
    // SAFETY: Ms live in boxes until the run has ended and sysmon has been joined.
    Some(unsafe { &*std::ptr::from_ref(&**found) })
}

impl Sched {
    /// Sysmon's side: takes `p` out of the blocking section of the M numbered `m_id`.
    pub(crate) fn retake_syscall(&self, p: &P, m_id: u64) -> bool {
        p.syscall
            .compare_exchange(m_id, 0, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Sysmon's side: takes `p` from `m`, whose goroutine has not come to the
    /// scheduler for long. `false` if it just did, if `m` holds another P by now, or if that
    /// cannot be known here.
    pub(crate) fn retake_running(&self, m: &M, p: &P) -> bool {
        self.membarrier && m.words().take(p, || membarrier().is_ok())
    }

    /// Sysmon's side: if `m` is inside the scheduler, from where its `p` cannot be taken, asks
    /// the goroutine that runs there to give way when it comes in next. `false` if it is not.
    pub(crate) fn request_preempt(&self, m: &M, p: &P) -> bool {
        if m.in_runtime.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let dispatches = p.stats.dispatches.get();
        let has_p = m.access.load(Ordering::Relaxed) == HAS_P && m.seems_to_hold(p);
        if m.curg.get().is_some() && has_p {
            m.preempt_at.store(dispatches, Ordering::Relaxed);
            // It may have been put in question, or have begun a section: then it needs no asking.
            let _ = m
                .access
                .compare_exchange(HAS_P, PREEMPT, Ordering::Release, Ordering::Relaxed);
        }
        true
    }

    /// Gives a P to an M that sleeps without one, on the P's CPU if there is one, and with
    /// it what that is to run there. The caller wakes the M. `None` if there is no spare M.
    pub(crate) fn give_to_spare(&self, p: &P, g: Option<GRef>) -> Option<&M> {
        let mut ms = self.ms.lock();
        // SAFETY: spare Ms live in `all` until the run ends.
        let same_cpu = |&m: &*const M| unsafe { (*m).cpu() } == Some(p.cpu());
        let at = ms
            .spare
            .iter()
            .rposition(same_cpu)
            .or(ms.spare.len().checked_sub(1))?;
        // SAFETY: as above; a spare M waits for just this.
        let m = unsafe { &*ms.spare.swap_remove(at) };
        if let Some(g) = g {
            debug_assert!(self.owns(g), "a goroutine of another runtime");
            m.handed_work.post(g);
        }
        // The new M's from here on: nobody may give the P away once more.
        p.owner
            .store(std::ptr::from_ref(m).cast_mut(), Ordering::Release);
        chaos::pause(Point::HandOff);
        m.next_p
            .store(std::ptr::from_ref(p).cast_mut(), Ordering::Release);
        Some(m)
    }

    /// Takes back a P that was handed to `m`, if that has not found it yet: `m` is a spare
    /// again. What came with mail stays: only that M may run it.
    pub(crate) fn take_back(&self, m: &M, p: &P) -> bool {
        let mut ms = self.ms.lock();
        // ORDERING: mail is posted before the P is given.
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
}

//! `task::lock_thread`, Go's `LockOSThread`: a goroutine and an M bound to each other.
//!
//! While a goroutine has locked its M, it runs on no other M, and the M runs no other goroutine.
//! The goroutine may lie in any queue and be stolen like any other: the M that dispatches it sends
//! it to its own M. The locked M finds goroutines as before, but sends other goroutines elsewhere.
//! So queueing, stealing and waking need no special case for locked threads, and for other
//! goroutines a dispatch costs one extra test.
//!
//! | dispatched by                        | is                    | what happens            |
//! |--------------------------------------|-----------------------|-------------------------|
//! | its own M                            | the locked G          | it runs                 |
//! | another M, while its own holds a P   | the locked G          | posted; its M is woken  |
//! | another M, while its own waits       | the locked G          | posted, with the P; the |
//! | (Go's `startlockedm`)                |                       | other M is a spare now  |
//! | the locked M (Go's `stoplockedm`)    | another G             | it and the P go to a    |
//! |                                      |                       | spare M; this one waits |
//!
//! In Go a locked M gives its P away whenever its goroutine waits. Here it keeps the P until
//! another goroutine is to run on it. So a goroutine that is alone on its P never changes threads
//! when it waits for I/O or yields. When the P does change Ms, both threads are pinned to the same
//! core, so each change is one futex wake and one sleep, without an interrupt to another core.
//!
//! A G may be on its way to an M that is just giving its P away, or falling asleep with it:
//! `handed_work` settles both races.
//!
//! Only sysmon starts threads. A goroutine may have changed its locked thread (priority, namespace,
//! signal mask), and a thread started there would inherit that.
#![allow(unsafe_code)]

use super::leave::leave_to_sysmon;
use super::spare;
use crate::g::header::GRef;
use crate::loom::native::atomic::Ordering;
use crate::race::InRuntime;
use crate::sched::queue::handed_work::Posted;
use crate::sched::types::current;
use crate::sched::types::events::EventKind;
use crate::sched::types::m::{Carrier, M};
use crate::sched::types::p::P;
use crate::sched::types::state::Sched;
use crate::sched::wait::wake;

/// Locks the calling goroutine to its thread, once more. `false` on a plain thread.
///
/// # Panics
///
/// If the lock would leave too few threads for the other goroutines.
#[track_caller]
pub(crate) fn lock() -> bool {
    // Does not enter the scheduler, so it works without a P, too.
    let Some((m, g)) = current::m().and_then(|m| Some((m, m.curg.get()?))) else {
        return false;
    };
    let _in_runtime = InRuntime::enter();
    if m.n_locks.get() == 0 {
        reserve(m.sched());
        m.locked_g.set(Some(g));
        g.lock_to(&m.out_link, std::ptr::from_ref(m).cast());
    }
    // Guards can be forgotten. A count that wrapped would unlock the thread too early.
    let n_locks = m.n_locks.get().checked_add(1);
    m.n_locks
        .set(n_locks.expect("windlass: lock_thread: too many guards of one goroutine"));
    true
}

/// Every P needs an M that is not locked; otherwise goroutines could wait for each other.
#[track_caller]
fn reserve(sched: &Sched) {
    let max = sched.config.max_threads;
    let n_locked = sched.n_locked.fetch_add(1, Ordering::Relaxed) + 1;
    if n_locked + sched.n_procs() > max {
        sched.n_locked.fetch_sub(1, Ordering::Relaxed);
        panic!(
            "windlass: lock_thread: {n_locked} locked threads and one for each of {} processors \
             are more than max_threads, {max}: raise Builder::max_threads",
            sched.n_procs()
        );
    }
}

/// Undoes one [`lock`] of the calling goroutine.
pub(crate) fn unlock() {
    let Some((m, g)) = current::m().and_then(|m| Some((m, m.curg.get()?))) else {
        return;
    };
    let _in_runtime = InRuntime::enter();
    if m.locked_g.get() != Some(g) {
        return;
    }
    m.n_locks.set(m.n_locks.get() - 1);
    if m.n_locks.get() == 0 {
        free(m, g);
    }
}

/// Dissolves the binding of `m` and `g`, which has ended or unlocks its thread.
pub(crate) fn free(m: &Carrier, g: GRef) {
    g.unlock();
    m.locked_g.set(None);
    m.n_locks.set(0);
    m.sched().n_locked.fetch_sub(1, Ordering::Relaxed);
}

/// `m` has found `g`, and one of the two is locked. Returns the goroutine that `m` is to run now,
/// if any. With `None`, `m` may have given its P away.
#[cold]
#[inline(never)]
pub(crate) fn route(m: &M, g: GRef) -> Option<GRef> {
    if m.locked_g.get() == Some(g) {
        return Some(g);
    }
    if m.is_locked() && !m.handed_work.begin_waiting() {
        // Its own goroutine has been posted meanwhile; the other one may run elsewhere.
        let own = m.handed_work.take();
        wake::push_and_wake(m, g);
        return own;
    }
    // From here on a locked `m` gives its P away.
    let to = g.locked_m().cast::<Carrier>();
    // SAFETY: Ms live until the run ends, and `g` is not over.
    let Some(to) = (unsafe { to.as_ref() }) else {
        make_way(m, Some(g));
        return None;
    };
    debug_assert!(m.sched().owns(g), "a goroutine of another runtime");
    match to.handed_work.post(g) {
        Posted::ToWaiter => give(m, to),
        Posted::ToHolder => {
            wake_sleeper(to);
            if m.is_locked() {
                make_way(m, None);
            }
        }
    }
    None
}

/// Wakes `m` if it sleeps with its P: a goroutine was posted to it.
fn wake_sleeper(m: &Carrier) {
    let Some(p) = m.last_p() else { return };
    let idle = &m.sched().node_of(p).idle;
    if idle.claim(p.at_in_node) {
        idle.add_spinner();
        wake::notify(p);
    }
}

/// Gives the P of `m` to `to`, which sleeps without one and which no other thread may wake.
fn give(m: &M, to: &Carrier) {
    let p = m.p();
    m.set_p(None);
    note_given(m, p);
    spare::pass(p, to);
    to.note.wake();
}

fn note_given(m: &M, p: &P) {
    m.sched().handoffs.fetch_add(1, Ordering::Relaxed);
    p.taken.handoffs.fetch_add(1, Ordering::Relaxed);
    m.sched().trace_other(EventKind::HandOff, Some(p), None);
}

/// Gives the P of `m` to a spare M, with `g` to run there.
fn make_way(m: &M, g: Option<GRef>) {
    let (sched, p) = (m.sched(), m.p());
    m.set_p(None);
    if let Some(to) = spare::give_to_spare(sched, p, g) {
        note_given(m, p);
        return to.note.wake();
    }
    m.set_p(Some(p));
    if let Some(g) = g {
        wake::push_local(m, g);
    }
    // It starts a thread.
    leave_to_sysmon(m, p);
}

/// `m` has no P and is about to sleep without one. A goroutine that was posted to it while it had a
/// P is queued elsewhere. A goroutine is posted to a spare M only together with a P.
pub(crate) fn begin_acquire(m: &M) {
    let g = if m.is_locked() {
        m.handed_work.wait_on()
    } else {
        m.handed_work.take()
    };
    if let Some(g) = g {
        wake::inject(m.sched(), g);
    }
}

/// A locked M has lost its P while its goroutine ran: the goroutine is about to be queued.
pub(crate) fn lost_p(m: &M) {
    let waits = m.handed_work.begin_waiting();
    debug_assert!(waits, "a goroutine that runs is not in the mail");
}

/// The goroutine of a locked M has ended: the thread ends as well, as in Go. Whatever the goroutine
/// changed about the thread affects no other goroutine.
#[cold]
#[inline(never)]
pub(crate) fn retire(m: &M) {
    m.retired.set(true);
    make_way(m, None);
}

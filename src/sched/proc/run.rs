//! The M's loop: find a goroutine, run it, obey the reason with which it switched out.
#![allow(unsafe_code)]

use windlass_ground::stack::Stack;

use super::find::find;
use super::leave::serve_request;
use super::locked;
use super::sleep::stop_spinning;
use super::spare;
use crate::g::coro::{Coroutine, Switch};
use crate::g::header::{self, GRef, OffStack};
use crate::loom::Ordering;
use crate::loom::oracle;
use crate::race;
use crate::sched::queue::access;
use crate::sched::types::accounting;
use crate::sched::types::current;
use crate::sched::types::events::EventKind;
use crate::sched::types::m::{HAS_P, M, PREEMPT, RETAKING};
use crate::sched::types::sampling;
use crate::sched::types::state::{Phase, Sched};
use crate::sched::wait::fork;
use crate::sched::wait::handoff;
use crate::sched::wait::park;
use crate::sched::wait::spawn;
use crate::sched::wait::wake;
use crate::sys::clock;
use crate::sys::errno;
use crate::sys::sched as threads;
use crate::sys::signal;

/// Minimum time between two lines about goroutines that cannot start.
const FAILED_STARTS_EVERY_NS: u64 = 1_000_000_000;

/// Makes the calling thread the M `m` until the run is over.
pub(crate) fn m_loop(m: &M) {
    // A panic in the scheduler would leave Ps without an M and goroutines that never run.
    let bomb = AbortOnUnwind;
    race::begin_m(m);
    m.tid.store(threads::gettid(), Ordering::Relaxed);
    m.errno.set(errno::location());
    #[cfg(feature = "backtrace")]
    let end = 0_usize;
    #[cfg(feature = "backtrace")]
    m.loop_end.set((&raw const end).addr());
    current::set_m(m);
    while (m.has_p() || acquire(m)) && Coroutine::schedule(m) {}
    current::set_m(std::ptr::null());
    race::end_m();
    std::mem::forget(bomb);
}

/// Ends the process if a panic drops it.
pub(crate) struct AbortOnUnwind;

impl Drop for AbortOnUnwind {
    fn drop(&mut self) {
        signal::write_stderr(b"windlass: the scheduler panicked; aborting\n");
        std::process::abort();
    }
}

/// The loop of an M, as a method of the coroutine's type: see there why.
trait Schedule {
    /// Runs goroutines while this M has its P. `false` when the run is over.
    fn schedule(m: &M) -> bool;
}

impl Schedule for Coroutine {
    #[inline(never)]
    fn schedule(m: &M) -> bool {
        while m.has_p() {
            match find(m) {
                Some(g) => execute(m, g),
                None if m.sched().phase() == Phase::Stopping => {
                    stop_spinning(m);
                    m.set_p(None);
                    return false;
                }
                None => serve_request(m),
            }
        }
        true
    }
}

/// Waits for the next P. `false` when the run is over, or when its goroutine ended with the thread locked
/// (`locked`).
///
/// Not inlined: that would take registers from the loop that runs goroutines.
#[cold]
#[inline(never)]
fn acquire(m: &M) -> bool {
    if m.retired.get() {
        return false;
    }
    locked::begin_acquire(m);
    spare::wait_for_p(m)
}

/// Runs `g` until it switches out, and obeys the reason.
#[inline(always)]
fn execute(m: &M, mut g: GRef) {
    debug_assert!(m.sched().owns(g), "a goroutine of another runtime");
    if g.is_locked() | m.is_locked() {
        match locked::route(m, g) {
            Some(own) => g = own,
            None => return,
        }
    }
    let p = m.p();
    p.stats.dispatches.add(1);
    if (g.status.is_stamped() || p.observes_dispatches()) && !admit_observed(m, g) {
        return;
    }
    // SAFETY: `g` was taken from a queue, so it is this M's.
    if unsafe { g.coro() }.is_none() && !bind_stack(m, g) {
        return;
    }
    m.curg.set(Some(g));
    loop {
        g.status.set_running();
        let what = || {
            (
                std::ptr::from_ref(m.p()),
                g.as_ptr().cast_const(),
                m.sched().owns(g),
            )
        };
        oracle::runs(m, what, &[HAS_P, RETAKING, PREEMPT]);
        access::mark_outside(&m.in_runtime);
        // SAFETY: as above, and now it is Running on this M.
        let coro = unsafe { g.coro() }.as_mut().expect("bound above");
        let why = coro.resume(std::ptr::from_ref(m).expose_provenance(), &g.fiber);
        oracle::ran(m);
        if m.has_switch_work() {
            after_switch(m, g, why);
        }
        let Some(why) = why else {
            m.curg.set(None);
            return match g.off_stack() {
                Some(wait) => wait_off_stack(m, g, wait),
                None => finish(m, g),
            };
        };
        if why == Switch::YIELD {
            m.curg.set(None);
            g.status.set_runnable();
            return wake::push_local(m, g);
        }
        match why.parked() {
            Some(record) => {
                m.p().stats.parks.add(1);
                m.curg.set(None);
                m.committing.store(g.as_ptr(), Ordering::Relaxed);
                oracle::commits(m, g.as_ptr());
                // SAFETY: the record was left by `g`, which this M just ran.
                let parked = race::commit_for(g.as_ptr(), || unsafe { park::commit(record, g, m) });
                oracle::committed(m);
                m.committing.store(std::ptr::null_mut(), Ordering::Release);
                if parked {
                    return;
                }
                m.curg.set(Some(g));
                accounting::resume(m);
                sampling::trace_start(m, g);
            }
            None => {
                m.curg.set(None);
                return if why == Switch::LOST_P {
                    lost_p(m, g)
                } else {
                    requeue_preempted(m, g)
                };
            }
        }
    }
}

/// As [`wake::admit_or_send_home`], where the dispatch is observed: the P has extra work, or the goroutine is
/// stamped.
#[cold]
#[inline(never)]
fn admit_observed(m: &M, g: GRef) -> bool {
    let may_run = wake::admit_or_send_home(m, g);
    if may_run && m.p().is_timed() {
        accounting::begin(m, g);
    }
    may_run
}

/// `g` has switched out of `m` with forks that nobody has begun, or its time is measured.
#[cold]
#[inline(never)]
fn after_switch(m: &M, g: GRef, why: Option<Switch>) {
    let has_p = why != Some(Switch::LOST_P);
    accounting::end(m, g, has_p.then(|| m.p()));
    if why.is_some() && !m.forks.get().is_null() {
        race::commit_for(g.as_ptr(), || fork::leave_behind(m, g));
    }
}

/// Gives `g` a stack, at its first run or for a poll. If there is none, the goroutine ends, with the reason as
/// its panic.
#[inline]
fn bind_stack(m: &M, g: GRef) -> bool {
    let p = m.p();
    let node = m.sched().node_of(p);
    match p.local.caches.take_stack(g.stack_bytes(), &node.stacks) {
        Ok(stack) => {
            spawn::begin_on(m, g, stack);
            true
        }
        Err(e) => {
            no_stack(m, g, &e);
            false
        }
    }
}

/// Releases the resources of a goroutine that has ended.
#[inline]
fn finish(m: &M, g: GRef) {
    let p = m.p();
    // No value lives across this branch to the log's code.
    p.trace_if(EventKind::End);
    g.status.set_dead();
    // SAFETY: the goroutine has ended; its coroutine is this M's.
    let coro = unsafe { g.coro() }.take().expect("it ran");
    give_stack(m, coro.into_stack());
    g.fiber.end();
    p.stats.finished.add(1);
    let keeps_thread = m.is_locked();
    if keeps_thread {
        locked::free(m, g);
    }
    spawn::release_on_m(g, m);
    if keeps_thread {
        locked::retire(m);
    }
}

/// A step of `g` has returned, and is not the last: gives its stack back, and begins the wait. One whose wait
/// is over already goes to the tail of the queue.
#[inline(never)]
fn wait_off_stack(m: &M, g: GRef, wait: OffStack) {
    // SAFETY: the coroutine has returned, and is this M's.
    let coro = unsafe { g.coro() }.take().expect("it ran");
    give_stack(m, coro.into_stack());
    m.p().stats.parks.add(1);
    m.committing.store(g.as_ptr(), Ordering::Relaxed);
    oracle::commits(m, g.as_ptr());
    let waits = race::commit_for(g.as_ptr(), || {
        g.fiber.renew(g.id(), || g.name());
        // SAFETY: the record was left by `g`, which this M just ran.
        unsafe { park::commit(wait.record(), g, m) }
    });
    oracle::committed(m);
    m.committing.store(std::ptr::null_mut(), Ordering::Release);
    if !waits {
        wake::push_local(m, g);
    }
}

/// Gives a stack back that has no goroutine any more.
#[inline(always)]
fn give_stack(m: &M, stack: Stack) {
    let (p, nodes) = (m.p(), &m.sched().nodes);
    let home = stack.node().min(nodes.len() - 1);
    let caches = &p.local.caches;
    caches.give_stack(stack, home == p.node_idx, || &nodes[home].stacks);
}

/// Ends a goroutine for which there is no stack. Its joiner gets the reason. Stderr gets at most
/// one line a second: without memory, goroutines fail by the thousand.
#[cold]
fn no_stack(m: &M, g: GRef, e: &std::io::Error) {
    let failed = &m.sched().failed_starts;
    if let Some(n_left_out) = failed.admit(clock::now_ns(), FAILED_STARTS_EVERY_NS) {
        let more = match n_left_out {
            0 => String::new(),
            n => format!(" ({n} more since the last such line)"),
        };
        signal::report(format_args!("goroutine {} cannot start: {e}{more}", g.id()));
    }
    g.status.set_running();
    let reason = Box::new(format!("goroutine cannot start: {e}"));
    // For the race detector it is the goroutine that goes on here, on a stack that others have used so.
    let m_fiber = g.fiber.enter();
    handoff::as_outsider(m, || {
        race::enter_runtime();
        race::goes_on(g.as_ptr(), std::ptr::from_ref(m));
        // SAFETY: the goroutine is Running, and has not ended; its closure or future is dropped on
        // this stack.
        unsafe { header::run(g, Some(reason)) };
        spawn::end(g);
    });
    race::ends();
    race::switches_out(std::ptr::from_ref(m).cast_mut());
    m_fiber.back();
    g.status.set_dead();
    if g.is_fresh() {
        m.p().stats.started.add(1);
    }
    m.p().stats.finished.add(1);
    spawn::release_on_m(g, m);
}

/// At the end of a run: reports goroutines that could not start and that no line has counted.
pub(crate) fn tell_of_failed_starts(sched: &Sched) {
    let n = sched.failed_starts.take_left_out();
    if n > 0 {
        signal::report(format_args!("{n} more goroutines could not start"));
    }
}

/// The goroutine was preempted because others wait: it goes to the tail of its node's queue.
#[cold]
#[inline(never)]
fn requeue_preempted(m: &M, g: GRef) {
    let p = m.p();
    p.stats.preemptions.add(1);
    p.put_due_first();
    g.status.set_runnable();
    wake::inject(m.sched(), g);
}

/// The goroutine found that its M has lost its P: it waits for a P in its node's queue, and the M
/// becomes a spare.
#[cold]
#[inline(never)]
fn lost_p(m: &M, g: GRef) {
    let sched = m.sched();
    m.set_p(None);
    let cpu_ns = clock::thread_cpu_ns(m.tid.load(Ordering::Relaxed));
    m.back_cpu_ns.store(cpu_ns.unwrap_or(0), Ordering::Relaxed);
    m.access.store(HAS_P, Ordering::SeqCst);
    if m.is_locked() {
        locked::lost_p(m);
    }
    // ORDERING: `stragglers::demote` is the partner.
    if m.demoted.load(Ordering::SeqCst) && m.set_nice(0, 0).is_ok() {
        m.demoted.store(false, Ordering::Relaxed);
    }
    g.status.set_runnable();
    sched.trace_other(EventKind::Lost, None, Some(g));
    wake::inject(sched, g);
}

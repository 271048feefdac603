//! The M of a simulation: finds the next goroutine by the strategy, moves the clock when none can
//! run, stops the run when none ever will, and ends it, as there is no sysmon.

use super::due_timers::run_timers_of;
use crate::g::header::GRef;
use crate::sched::types::m::M;
use crate::sched::types::simulation::{Simulation, Stop};
use crate::sched::types::state::Phase;
use crate::sched::wait::cancel;
use crate::sched::wait::turn::{collect, give_up};
use crate::sched::wait::{handoff, hosts, wake};
use crate::sys::clock::NEVER;

/// Finds the next goroutine for `m` to run. `None` when the run is over and no goroutine is left.
pub(crate) fn find(m: &M, sim: &Simulation) -> Option<GRef> {
    let sched = m.sched();
    loop {
        if let Some(g) = m.handed_work.take() {
            sim.runnable.borrow_mut().push(&sim.bubble, g);
        }
        collect(m, sim);
        if sim.has_lost.get() && !sim.bubble.is_over() {
            hosts::end_waits(m, sim);
        }
        if let Some(g) = sim.next.take() {
            return Some(begin(m, sim, g));
        }
        if sched.phase() == Phase::Stopping {
            return None;
        }
        if !sim.bubble.is_over() {
            if sched.met_outside() {
                stop(m, sim, Stop::Outside);
            } else if sim.bubble.is_exhausted() {
                stop(m, sim, Stop::Steps);
            }
        }
        if let Some(g) = choose(sim) {
            return Some(begin(m, sim, g));
        }
        if sched.phase() >= Phase::Cancelling {
            end_run(m, sim);
        } else if !wake_settling(m, sim)
            && !move_clock(m, sim)
            && !await_outside(m, sim)
            && !wake_lingering(m, sim)
        {
            stop(m, sim, Stop::Deadlock);
        }
    }
}

/// Takes the goroutine that the strategy chooses.
fn choose(sim: &Simulation) -> Option<GRef> {
    let mut list = sim.runnable.borrow_mut();
    if list.is_empty() {
        return None;
    }
    let last = sim.last.get();
    // Had it waited, another one would have run before it could run again.
    let yielded = list.order.contains(last).then_some(last);
    let at = sim.bubble.pick(None, yielded, &mut list.order);
    Some(list.remove(at.unwrap_or(0)))
}

fn begin(m: &M, sim: &Simulation, g: GRef) -> GRef {
    let last = sim.last.replace(g.id());
    if let Some(on_switch) = &sim.on_switch
        && last != g.id()
        && !sim.bubble.is_over()
    {
        // The choice of `g` was a step.
        let step = sim.bubble.step().saturating_sub(1);
        handoff::as_outsider(m, || on_switch(m.sched(), last, step));
    }
    sim.progress.step(sim.bubble.step(), g.id());
    sim.bubble.set_running(g.id(), g.parent());
    if g.is_fresh() {
        sim.bubble.note_site(g.id(), g.site());
    }
    g
}

/// All goroutines wait: those that wait for just that may go on. `false` if there are none.
fn wake_settling(m: &M, sim: &Simulation) -> bool {
    let settling = sim.settling.take();
    let mut any = false;
    for (g, wait) in settling {
        if g.status.wake(wait) {
            wake::ready(m, g);
            any = true;
        }
    }
    any
}

/// Moves the clock to the next timer, or to what happens next in the network, and readies whom that
/// wakes. `false` if there is nothing.
fn move_clock(m: &M, sim: &Simulation) -> bool {
    let (p, bubble) = (m.p(), &sim.bubble);
    // A timer whose goroutine has been woken must not move the clock.
    p.timers.drop_stale();
    let mut next_ns = p.timers.next_ns();
    if !bubble.is_over() {
        let event_ns = bubble.net(|net, _| net.next_event_ns());
        sim.wake_network();
        if !sim.runnable.borrow().is_empty() {
            // A descriptor that was given away has been closed.
            return true;
        }
        next_ns = next_ns.min(event_ns.unwrap_or(NEVER));
        if next_ns != NEVER {
            let fault_ns = bubble.net(|net, dice| net.next_fault_ns(dice));
            next_ns = next_ns.min(fault_ns.unwrap_or(NEVER));
        }
    }
    if next_ns == NEVER {
        return false;
    }
    bubble.advance(next_ns);
    p.local.pace.set_now_ns(bubble.now_ns());
    if !bubble.is_over() {
        for action in bubble.net(|net, dice| net.run_due(dice)) {
            hosts::act(m, sim, action);
        }
        sim.wake_network();
    }
    run_timers_of(m, p);
    true
}

/// No goroutine but the main one, which has nothing left to do, will ever run.
fn wake_lingering(m: &M, sim: &Simulation) -> bool {
    let Some((g, wait)) = sim.lingering.take() else {
        return false;
    };
    if sim.forbids_others && m.sched().n_live() > 1 {
        stop(m, sim, Stop::Left);
    }
    if g.status.wake(wait) {
        wake::ready(m, g);
    }
    true
}

/// Stops the run: from now on all goroutines are cancelled.
fn stop(m: &M, sim: &Simulation, why: Stop) {
    sim.stopped.set(Some(why));
    if let Some(on_switch) = &sim.on_switch {
        handoff::as_outsider(m, || {
            on_switch(m.sched(), sim.last.get(), sim.bubble.step());
        });
    }
    sim.bubble.end();
    let sched = m.sched();
    handoff::as_outsider(m, || (sim.on_stop)(sched));
    sched.set_phase(Phase::Cancelling);
}

/// One sweep of the end of a run, when no goroutine can run.
fn end_run(m: &M, sim: &Simulation) {
    let sched = m.sched();
    if sched.n_live() == 0 {
        sched.set_phase(Phase::Stopping);
        return;
    }
    cancel::cancel_waiting(sched);
    collect(m, sim);
    if sim.runnable.borrow().is_empty() && !move_clock(m, sim) && !await_outside(m, sim) {
        give_up("goroutines are left that nothing can end");
    }
}

/// Waits for a thread that has woken a goroutine and is about to queue it. `false` if there is
/// none.
#[expect(
    clippy::disallowed_methods,
    reason = "a thread gives way here, not a goroutine"
)]
fn await_outside(m: &M, sim: &Simulation) -> bool {
    while sim.runnable.borrow().is_empty() {
        if !cancel::is_any_on_its_way(m.sched()) {
            // It may have been queued just before.
            collect(m, sim);
            return !sim.runnable.borrow().is_empty();
        }
        crate::loom::native::thread::yield_now();
        collect(m, sim);
    }
    true
}

//! The choice of the goroutine that runs next in a simulation, at a switch point, where one enters the
//! scheduler.
//!
//! In a simulation the queues of the P only carry goroutines to the list from which the strategy
//! chooses ([`collect`]). The choice is made on the stack of the goroutine that enters, which
//! switches only if another one was chosen. When a goroutine waits or ends, `proc::simulate`
//! chooses.

use crate::bubble;
use crate::g::header::GRef;
use crate::sched::types::current;
use crate::sched::types::m::M;
use crate::sched::types::simulation::Simulation;
use crate::sys::clock::NEVER;

/// Moves all goroutines that have become runnable to the list of the simulation.
///
/// The caller is inside the scheduler.
#[inline]
pub(crate) fn collect(m: &M, sim: &Simulation) {
    let (sched, p) = (m.sched(), m.p());
    let mut list = sim.runnable.borrow_mut();
    let bubble = &sim.bubble;
    while let Some(g) = p.runq.take_runnext().or_else(|| p.runq.pop()) {
        list.push(bubble, g);
    }
    let queue = &sched.node_of(p).queue;
    if queue.len() > 0 {
        while let Some(g) = queue.pop() {
            list.push(bubble, g);
        }
    }
    let mut held = sim.held.borrow_mut();
    if bubble.is_over() {
        held.drain(..).for_each(|g| list.push(bubble, g));
    } else if bubble.net(|net, _| net.is_any_paused()) {
        list.move_to(&mut held, |g| bubble.is_paused(g.id(), g.parent()));
    }
}

/// Whether the calling goroutine, which is at a switch point, has to switch out so that another
/// runs first.
pub(crate) fn must_switch(m: &M, sim: &Simulation) -> bool {
    let Some(g) = m.curg.get() else {
        return false;
    };
    let bubble = &sim.bubble;
    if bubble.is_over() {
        count_late(sim, g, 1);
        return false;
    }
    // `proc::simulate` stops the run.
    if bubble.is_exhausted() || m.sched().met_outside() {
        return true;
    }
    // It then waits until its host goes on.
    if bubble.is_paused(g.id(), g.parent()) {
        return true;
    }
    collect(m, sim);
    let mut list = sim.runnable.borrow_mut();
    if list.is_empty() {
        bubble.go_on(g.id());
        sim.progress.step(bubble.step(), g.id());
        return false;
    }
    match bubble.pick(Some(g.id()), None, &mut list.order) {
        None => {
            sim.progress.step(bubble.step(), g.id());
            false
        }
        Some(at) => {
            sim.next.set(Some(list.remove(at)));
            true
        }
    }
}

/// Counts what a goroutine does after the end of the run, which cannot be torn down if a goroutine
/// does so for ever.
pub(crate) fn count_late(sim: &Simulation, g: GRef, n: u64) {
    if sim.count_late(n) {
        give_up(&format!(
            "goroutine {} goes on and on, although the run is over: end its loop when a call unwinds",
            g.id()
        ));
    }
}

/// A goroutine blocks its thread, which in a simulation is the only one: it waits in a destructor
/// while it unwinds, and must not switch stacks then. So the clock moves to the deadline. Without a
/// deadline, nothing can ever end the wait.
///
/// `false` outside of a simulation.
#[cold]
pub(crate) fn block_thread(until_ns: u64) -> bool {
    let Some(bubble) = bubble::current() else {
        return false;
    };
    let g = current::m().and_then(|m| m.curg.get());
    if until_ns == NEVER {
        give_up(&format!(
            "goroutine {} waits in a destructor while it unwinds, so that no other can run: \
             do not wait there, or end the other goroutines first",
            g.map_or(0, |g| g.id())
        ));
    }
    bubble.advance(until_ns);
    true
}

/// Ends the process: the simulation can neither go on nor be torn down.
#[cold]
pub(crate) fn give_up(why: &str) -> ! {
    let mut text = format!("windlass: simulation given up: {why}\n");
    if let Some(bubble) = bubble::current() {
        let run = match bubble.repeats() {
            Some(failure) => format!("It was about to shorten this failure:\n{failure}"),
            None => format!("WINDLASS_SIM_SEED={} repeats the run\n", bubble.seed()),
        };
        text.push_str(&run);
    }
    crate::sys::signal::write_stderr(text.as_bytes());
    std::process::abort()
}

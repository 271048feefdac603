//! The life of a simulated host's goroutines: it crashes and restarts, stops and goes on.
//!
//! A crash cannot free a stack on which values live, so the goroutines of the host unwind. By then
//! their host is down for good: its sockets are gone, and what destructors ask of the network
//! fails.

use std::panic::Location;

use super::spawn;
use crate::bubble::net::faults::DiskEvent;
use crate::bubble::net::network::Action;
use crate::g::details::Details;
use crate::g::header::GRef;
use crate::g::slab;
use crate::g::status::{GKind, Status};
use crate::sched::types::m::M;
use crate::sched::types::simulation::Simulation;

/// Carries out what the network has decided. The caller is inside the scheduler.
pub(crate) fn act(m: &M, sim: &Simulation, action: Action) {
    match action {
        Action::Crash(host) => drop(crash(m, sim, host)),
        Action::Restart(host) => drop(restart(m, sim, host)),
        Action::Pause(host) => sim.bubble.net(|net, dice| net.set_paused(dice, host, true)),
        Action::Resume(host) => resume(sim, host),
        Action::Disk(host, event) => (sim.on_disk)(host, event),
    }
}

/// Takes the power from a host. `false` if it has none.
pub(crate) fn crash(m: &M, sim: &Simulation, host: u32) -> bool {
    if !sim.bubble.net(|net, dice| net.crash(dice, host)) {
        return false;
    }
    (sim.on_disk)(host, DiskEvent::PowerLoss);
    // Goroutines that stand still go on, to end.
    release(sim, host);
    sim.has_lost.set(true);
    end_waits(m, sim);
    sim.wake_network();
    true
}

/// Ends the waits of goroutines that a crash has to end. Called again until there are none: one
/// that was just about to wait does so after the crash.
pub(crate) fn end_waits(m: &M, sim: &Simulation) {
    let lost = lost(m, sim);
    if lost.is_empty() {
        sim.has_lost.set(false);
    }
    for g in lost {
        let status = g.status.load();
        if status.kind() == GKind::Waiting
            && status.reason().ends_by_token()
            && let Some(wait) = Status::wait_of(status)
            && g.status.wake(wait)
        {
            sim.make_runnable(g);
        }
    }
}

/// Gives a host its power back, and starts its first goroutine. `false` if it has it.
pub(crate) fn restart(m: &M, sim: &Simulation, host: u32) -> bool {
    if !sim.bubble.net(|net, dice| net.restart(dice, host)) {
        return false;
    }
    start(m, sim, host, Location::caller());
    true
}

/// Starts the first goroutine of a host.
pub(crate) fn start(m: &M, sim: &Simulation, host: u32, site: &'static Location<'static>) {
    let (main, name) = sim
        .bubble
        .net(|net, _| (net.main_of(host), net.name_of(host)));
    if let Some(main) = main {
        let stack_bytes = m.sched().config.stack_bytes;
        let details = Details::new(Some(name.into_boxed_str()), None);
        let options = (Some(Box::new(details)), stack_bytes);
        let id = spawn::spawn_detached(m, move || main(), options, site);
        sim.bubble.set_home(id, host);
    }
}

/// Lets a host that stands still go on.
pub(crate) fn resume(sim: &Simulation, host: u32) {
    sim.bubble
        .net(|net, dice| net.set_paused(dice, host, false));
    release(sim, host);
}

fn release(sim: &Simulation, host: u32) {
    let is_its = |g: &mut GRef| sim.bubble.host_of(g.id(), g.parent()) == host;
    let released: Vec<GRef> = sim.held.borrow_mut().extract_if(.., is_its).collect();
    let mut list = sim.runnable.borrow_mut();
    let released = released.into_iter();
    released.for_each(|g| list.push(&sim.bubble, g));
}

/// The goroutines whose host has crashed since they were spawned, by their numbers.
fn lost(m: &M, sim: &Simulation) -> Vec<GRef> {
    let mut lost = Vec::new();
    slab::all().for_each(|g| {
        let lives = !matches!(
            g.status.load().kind(),
            GKind::Free | GKind::New | GKind::Dead
        );
        if lives && m.sched().owns(g) && sim.bubble.is_lost(g.id(), g.parent()) {
            lost.push(g);
        }
    });
    // The order of their slots is that of addresses.
    lost.sort_by_key(|g| g.id());
    lost
}

/// Whether a goroutine is left of those that a crash of the host has to end.
pub(crate) fn is_any_lost(m: &M, sim: &Simulation, host: u32) -> bool {
    let is_its = |g: &GRef| sim.bubble.host_of(g.id(), g.parent()) == host;
    sim.has_lost.get() && lost(m, sim).iter().any(is_its)
}

//! The home node of a goroutine, on a machine with several nodes.
//!
//! Its *home* is the node of its first run: its stack is allocated there, and most likely its data.
//! When it is made runnable on another node, it goes home if a P is idle there; otherwise it runs
//! where it was woken, at once. If this happens eight times in a row (it runs on another node, or
//! is woken there and sent home), it communicates mostly with goroutines elsewhere: that node
//! becomes its home. The pages of its stack stay where they are.
//!
//! A *bound* goroutine runs only on its home node. If that node loses all its Ps
//! ([`set_processors`](crate::Runtime::set_processors)), the goroutine runs on the next node that
//! has some, until its own has a P again. The binding is enforced in three places: where the
//! goroutine is made runnable (here), where thieves of other nodes search (`global`, `steal`), and,
//! for the remaining cases (a node that got its Ps back), where it is dispatched (here).
//!
//! None of this code runs on a machine with one node: see `P::observes_wakes`.

use crate::g::header::GRef;
use crate::g::status::Reason;
use crate::sched::numa::policy::{self, RemoteWake, TIMES_AWAY, WakePlacement};
use crate::sched::types::events::EventKind;
use crate::sched::types::m::M;
use crate::sched::types::p::P;
use crate::sched::types::sampling;
use crate::sched::types::state::Sched;

// The maximum that a goroutine's header can count.
const _: () = assert!(TIMES_AWAY <= 8);

/// Called when `g` was made runnable on this M's P: the node to queue it on, if that is another
/// one. The caller owns `g`.
pub(crate) fn when_ready(m: &M, g: GRef) -> Option<usize> {
    let (sched, p) = (m.sched(), m.p());
    let home = g.home();
    if home == p.node_idx {
        if g.times_away() != 0 {
            g.set_times_away(0);
        }
        return None;
    }
    if g.is_bound() || g.is_fresh() {
        return elsewhere(sched, p, home);
    }
    if sched.config.numa.is_flat() {
        return None;
    }
    let verdict = policy::where_to_run(RemoteWake {
        is_bound: false,
        has_run: true,
        home_is_idle: sched.nodes[home].idle.n_without_work() > 0,
        times_away: g.times_away(),
    });
    match verdict {
        WakePlacement::Home => {
            p.stats.home_wakes.add(1);
            note_away(p, g);
            trace_far(p, EventKind::SendHome, sched.nodes[home].os_id, g.id());
            elsewhere(sched, p, home)
        }
        WakePlacement::Here => {
            p.stats.pulled.add(1);
            None
        }
        WakePlacement::MovesHere => {
            move_here(p, g);
            None
        }
    }
}

/// Called when `g` is about to run on this M's P: the node to queue it on instead, if it may not
/// run here.
#[cold]
#[inline(never)]
pub(crate) fn when_dispatched(m: &M, g: GRef) -> Option<usize> {
    sampling::dispatch(m, g);
    let (sched, p) = (m.sched(), m.p());
    if !p.is_numa() {
        return None;
    }
    let is_home = g.home() == p.node_idx;
    if !is_home && g.is_bound() {
        let other = elsewhere(sched, p, g.home());
        if other.is_none() {
            p.stats.runs_away.add(1);
        }
        return other;
    }
    if !is_home && !g.has_stack() {
        // It gets its stack here.
        g.set_home(p.node_idx);
    } else if !is_home {
        p.stats.runs_away.add(1);
        if !sched.config.numa.is_flat() {
            note_away(p, g);
        }
        return None;
    }
    p.stats.runs_home.add(1);
    None
}

/// The node `home`, or its substitute while it has no Ps, if that is not the node of `p`.
fn elsewhere(sched: &Sched, p: &P, home: usize) -> Option<usize> {
    Some(sched.live_node_idx(home)).filter(|&idx| idx != p.node_idx)
}

/// Counts one more time away from home.
fn note_away(p: &P, g: GRef) {
    match policy::after_remote(g.times_away()) {
        Some(n) => g.set_times_away(n),
        None => move_here(p, g),
    }
}

fn move_here(p: &P, g: GRef) {
    g.set_home(p.node_idx);
    p.stats.rehomes.add(1);
    trace_far(p, EventKind::Rehome, 0, g.id());
}

/// Records a trace event about a goroutine and another node.
fn trace_far(p: &P, kind: EventKind, n: u32, g: u64) {
    if p.is_traced() {
        p.trace(kind, Reason::None, n, g);
    }
}

//! Taking work from other Ps, the nearest first.
//!
//! The levels come from the topology: SMT sibling, shared L2, shared L3, same
//! node, then remote nodes by distance. Between levels the order is strict; inside
//! one a sweep starts at random, so that thieves do not herd on one victim. Four
//! passes, as in Go: remote nodes are looked at from the third on, when two sweeps
//! of the own node found nothing. The last pass also runs a victim's due timers
//! and, on the own node only, may take its runnext: the goroutine there will most
//! likely run in a moment where it is, with its data in that core's cache, so it
//! is taken only if the victim has dispatched nothing for a while.

use std::time::Duration;

use windlass_topology::LevelKind;

use super::find::run_timers_of;
use super::m::M;
use super::p::{P, level_idx};
use super::trace::Kind;
use crate::g::header::GRef;
use crate::g::status::Reason;
use crate::sys::clock;
use crate::util::chaos::{self, Point};

const PASSES: u32 = 4;
const FIRST_REMOTE_PASS: u32 = 2;
/// The most that a thief takes from another node at once.
const REMOTE_MAX: u32 = 64;
/// How long a goroutine must have stayed in runnext, its owner busy with another.
const RUNNEXT_STAYS: Duration = Duration::from_micros(3);

/// Looks at all victims; `None` after all passes.
pub(crate) fn steal(m: &M) -> Option<GRef> {
    let p = m.p();
    for pass in 0..PASSES {
        for level in &p.levels {
            let remote = level.kind == LevelKind::Remote;
            if remote && pass < FIRST_REMOTE_PASS {
                break;
            }
            let n = level.victims.len();
            let start = p.local.random.below(n);
            let backwards = chaos::coin(Point::Victims);
            for i in 0..n {
                let i = if backwards { n - i } else { i };
                let victim = &m.sched().ps[level.victims[(start + i) % n]];
                let found = steal_from(m, p, victim, level.kind, pass == PASSES - 1);
                if found.is_some() {
                    return found;
                }
            }
        }
        // A ring that has something for us ends the search: it is nearer than any victim.
        if p.poller.inflight() > 0 && (p.poller.has_completions() || p.poller.has_task_work()) {
            return None;
        }
    }
    p.stats.steal_failures.add(1);
    None
}

fn steal_from(m: &M, p: &P, victim: &P, kind: LevelKind, last: bool) -> Option<GRef> {
    let remote = kind == LevelKind::Remote;
    let max = if remote { REMOTE_MAX } else { u32::MAX };
    if !victim.runq.is_ring_empty()
        && let Some((g, n)) = victim.runq.steal_into(&p.runq, max)
    {
        count(p, victim, kind, n);
        return Some(g);
    }
    if !last {
        return None;
    }
    if victim.timers.next_ns() <= clock::now_ns() {
        run_timers_of(m, victim);
        if let Some(g) = p.runq.take_runnext().or_else(|| p.runq.pop()) {
            return Some(g);
        }
    }
    if !remote && victim.runq.has_runnext() && stays(victim) {
        let g = victim.runq.steal_runnext()?;
        count(p, victim, kind, 1);
        return Some(g);
    }
    None
}

/// Whether a victim's runnext is not about to run: watches it for a moment with
/// PAUSE, never with a sleep (Go's `usleep(3)` lasts 18 to 82 µs).
fn stays(victim: &P) -> bool {
    let g = victim.runq.peek_runnext();
    let dispatches = victim.stats.dispatches.get();
    let until_ns = clock::now_ns() + RUNNEXT_STAYS.as_nanos() as u64;
    while clock::now_ns() < until_ns {
        for _ in 0..16 {
            std::hint::spin_loop();
        }
        if victim.runq.peek_runnext() != g || victim.stats.dispatches.get() != dispatches {
            return false;
        }
    }
    !g.is_null()
}

fn count(p: &P, victim: &P, kind: LevelKind, n: u32) {
    if p.is_traced() {
        p.trace(Kind::Steal, Reason::None, n, victim.idx as u64);
    }
    p.stats.steals[level_idx(kind)].add(1);
    p.stats.stolen[level_idx(kind)].add(u64::from(n));
}

//! Sysmon: a thread without a P and without a pin that watches the others.
//!
//! - Takes Ps out of blocking sections after 20 µs if they have work, and from
//!   goroutines that have computed or blocked for 10 ms without a call into the
//!   runtime ([`super::handoff`]).
//! - Wakes an idle P for a goroutine that sits in the runnext of a busy one.
//! - Cancels what still waits when the main goroutine has ended, and says when
//!   nothing is left.
//! - Starts threads: they inherit from it, not from a goroutine's thread.
//!
//! It looks every 20 µs while something happens in blocking sections, doubling to
//! 10 ms when nothing does (Go's numbers), and sleeps without limit while every P
//! is idle: an idle runtime makes no system call, unless lines about it or a look for
//! deadlocks were asked for (`watch`).

use std::sync::atomic::Ordering;

use super::m::M;
use super::p::P;
use super::stall::Stalls;
use super::state::{Phase, Sched};
use super::trace::Kind;
use super::watch::Watch;
use crate::config::HOG_AFTER;
use crate::sys::clock::{self, NEVER};
use crate::sys::sched as threads;

const SHORTEST_NS: u64 = 20_000;
const LONGEST_NS: u64 = 10_000_000;
/// Rounds without anything to do before the naps get longer.
const PATIENCE: u32 = 50;
/// Pause between two sweeps of the end of a run.
const SWEEP_NS: u64 = 500_000;
/// How long a node may be idle while another has more than it runs.
const IDLE_NODE_NS: u64 = 1_000_000;
/// A hog's thread runs at this nice value, so that the P's new M keeps the core.
const HOG_NICE: i32 = 10;

/// What sysmon saw of a P when it last looked.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    dispatches: u64,
    /// Since when that number stands still; 0 for not known.
    since_ns: u64,
    syscalltick: u32,
}

/// Sysmon's own state.
struct Sysmon<'a> {
    sched: &'a Sched,
    seen: Vec<Seen>,
    /// Ps that were taken and that no thread could be had for.
    orphans: Vec<&'a P>,
    can_renice: bool,
    /// If reports of stalls were asked for.
    stalls: Option<Stalls<'a>>,
}

/// Sysmon's thread, for one run. Hands all Ps but the first to new Ms, and
/// returns when no goroutine is left and every M was told to stop.
pub(crate) fn main(sched: &Sched) {
    clock::tighten_timer_slack();
    let mut sysmon = Sysmon {
        sched,
        seen: vec![Seen::default(); sched.ps.len()],
        orphans: sched.ps[1..]
            .iter()
            .filter(|p| !sched.hand_off(p))
            .collect(),
        can_renice: can_renice(),
        stalls: sched.watch.get().and_then(|w| w.stalls(sched)),
    };
    sysmon.watch();
    sysmon.end_run();
}

/// Whether a lowered priority can be raised again, tried out on this very thread.
fn can_renice() -> bool {
    let tid = threads::gettid();
    threads::set_nice(tid, 1).is_ok() && threads::set_nice(tid, 0).is_ok()
}

impl Sysmon<'_> {
    /// Looks at all Ps, again and again, until the main goroutine has ended.
    fn watch(&mut self) {
        let mut n_quiet = 0;
        let mut nap_ns = SHORTEST_NS;
        let watch = self.sched.watch.get_or_init(Watch::default);
        watch.begin();
        while self.sched.phase() == Phase::Running {
            let busy = self.look();
            let due_ns = watch.look(self.sched);
            if busy {
                n_quiet = 0;
                nap_ns = SHORTEST_NS;
            } else {
                n_quiet += 1;
                if n_quiet > PATIENCE {
                    nap_ns = (nap_ns * 2).min(LONGEST_NS);
                }
            }
            if nap_ns == LONGEST_NS && self.all_idle() {
                let ns = due_ns.min(watch.look_at_idle(self.sched));
                if self.sleep_deep(ns) {
                    n_quiet = 0;
                    // A short burst after a long silence needs no close watch.
                    nap_ns = LONGEST_NS / 8;
                }
                continue;
            }
            let part_idle = self.sched.is_numa() && self.sched.n_idle.load(Ordering::Relaxed) > 0;
            let ns = if part_idle && !self.all_idle() {
                nap_ns.min(IDLE_NODE_NS)
            } else {
                nap_ns
            };
            let ns = match &self.stalls {
                Some(stalls) => ns.min(stalls.longest_nap_ns()),
                None => ns,
            };
            self.nap(ns.min(due_ns), &mut n_quiet, &mut nap_ns);
        }
    }

    fn nap(&self, ns: u64, n_quiet: &mut u32, nap_ns: &mut u64) {
        let state = &self.sched.sysmon;
        if ns < 8 * SHORTEST_NS {
            return clock::nap(ns);
        }
        state.slow.store(true, Ordering::SeqCst);
        if state.note.sleep_timeout(ns) {
            *n_quiet = 0;
            *nap_ns = SHORTEST_NS;
        }
        state.slow.store(false, Ordering::SeqCst);
    }

    fn all_idle(&self) -> bool {
        self.orphans.is_empty()
            && self.stalls.as_ref().is_none_or(Stalls::is_quiet)
            && self.sched.n_idle.load(Ordering::SeqCst) == self.sched.ps.len()
    }

    /// Sleeps until a P leaves idleness, the run ends, or for `ns`, if that is not for
    /// ever; `false` after that time.
    fn sleep_deep(&self, ns: u64) -> bool {
        let mut woken = true;
        let state = &self.sched.sysmon;
        state.deep.store(true, Ordering::SeqCst);
        // ORDERING: a P that leaves idleness lowers n_idle and then reads `deep`.
        if self.all_idle() && self.sched.phase() == Phase::Running {
            if ns == NEVER {
                state.note.sleep();
            } else {
                woken = state.note.sleep_timeout(ns);
            }
        }
        state.deep.store(false, Ordering::SeqCst);
        woken
    }

    /// One round. `true` if there was something to do.
    fn look(&mut self) -> bool {
        let sched = self.sched;
        let now_ns = clock::now_ns();
        self.orphans.retain(|p| !sched.hand_off(p));
        if sched.is_numa() && sched.n_idle.load(Ordering::Relaxed) > 0 {
            sched.wake_idle_nodes();
        }
        let mut busy = !self.orphans.is_empty();
        for p in &sched.ps {
            busy |= self.look_at(p, now_ns);
        }
        if let Some(stalls) = &mut self.stalls {
            stalls.look(sched);
        }
        busy
    }

    fn look_at(&mut self, p: &P, now_ns: u64) -> bool {
        let m_id = p.syscall.load(Ordering::Acquire);
        if m_id != 0 {
            return self.retake_section(p, m_id);
        }
        let seen = &mut self.seen[p.idx];
        let dispatches = p.stats.dispatches.get();
        if seen.dispatches != dispatches || seen.since_ns == 0 {
            seen.dispatches = dispatches;
            seen.since_ns = now_ns;
            return false;
        }
        // What its goroutine does next, a wait say, is not to be dated to the last dispatch.
        if now_ns - seen.since_ns >= LONGEST_NS {
            p.local.now_ns.set(now_ns);
        }
        self.help_runnext(p);
        self.look_for_stall(p);
        let held_ns = now_ns - self.seen[p.idx].since_ns;
        if held_ns >= HOG_AFTER.as_nanos() as u64 {
            self.retake_hog(p, now_ns)
        } else {
            false
        }
    }

    /// A P in a blocking section since the last look loses to its work, if it has any.
    fn retake_section(&mut self, p: &P, m_id: u64) -> bool {
        let sched = self.sched;
        let tick = p.syscalltick.load(Ordering::Relaxed);
        let seen = &mut self.seen[p.idx];
        seen.since_ns = 0;
        if seen.syscalltick != tick {
            seen.syscalltick = tick;
            return true;
        }
        let wanted = p.has_work() || sched.node_of(p).queue.len() > 0;
        if wanted && self.thread_to_be_had() && sched.take_from_section(p, m_id) {
            p.taken.from_sections.fetch_add(1, Ordering::Relaxed);
            sched.trace_other(Kind::RetakeSection, Some(p), None);
            self.give(p);
        }
        true
    }

    /// Reports the goroutine on `p`, if it has been there for long.
    fn look_for_stall(&mut self, p: &P) {
        let Seen {
            dispatches,
            since_ns,
            ..
        } = self.seen[p.idx];
        let Some(stalls) = &mut self.stalls else {
            return;
        };
        if clock::now_ns() - since_ns >= stalls.longest_nap_ns()
            && let Some(m) = owner_of(self.sched, p)
        {
            stalls.look_at(self.sched, &self.sched.ps[p.idx], m, dispatches, since_ns);
        }
    }

    /// The same goroutine has run, or blocked its thread, for too long.
    fn retake_hog(&mut self, p: &P, now_ns: u64) -> bool {
        let sched = self.sched;
        let Some(m) = owner_of(sched, p) else {
            return false;
        };
        let wanted = p.has_work() || sched.nodes.iter().any(|n| n.queue.len() > 0);
        if m.in_runtime.load(Ordering::Relaxed) != 0 || !wanted || !self.thread_to_be_had() {
            return false;
        }
        let tid = m.tid.load(Ordering::Relaxed);
        let cpu_before_ns = clock::thread_cpu_ns(tid);
        if !sched.take_from_hog(m) {
            return false;
        }
        let since_ns = std::mem::replace(&mut self.seen[p.idx].since_ns, now_ns);
        if let Some(stalls) = &mut self.stalls {
            stalls.lost_p(p, m, since_ns);
        }
        // It computes if its CPU clock runs: then its thread must not cost the P half the core.
        let computes = clock::thread_cpu_ns(tid) > cpu_before_ns;
        if computes && self.can_renice && threads::set_nice(tid, HOG_NICE).is_ok() {
            m.demoted.store(true, Ordering::Relaxed);
        }
        p.taken.from_hogs.fetch_add(1, Ordering::Relaxed);
        sched.trace_other(Kind::RetakeHog, Some(p), None);
        self.give(p);
        true
    }

    /// A goroutine in the runnext of a P that keeps running another is nobody's
    /// while other Ps are idle: no push wakes anyone for it, so this does.
    fn help_runnext(&self, p: &P) {
        let sched = self.sched;
        if p.runq.has_runnext() && sched.n_idle.load(Ordering::Relaxed) > 0 {
            sched.wake_in(sched.node_of(p), Some(p));
        }
    }

    fn thread_to_be_had(&self) -> bool {
        self.sched.n_ms.load(Ordering::Relaxed) < self.sched.config.max_threads
            || !self.sched.ms.lock().spare.is_empty()
    }

    fn give(&mut self, p: &P) {
        self.sched.retakes.fetch_add(1, Ordering::Relaxed);
        if !self.sched.hand_off(p) {
            self.orphans.push(&self.sched.ps[p.idx]);
        }
    }

    /// Cancels what waits until no goroutine is left, then stops every M.
    fn end_run(&mut self) {
        let sched = self.sched;
        let mut n_sweeps = 0u32;
        while sched.n_live() > 0 {
            if n_sweeps.is_multiple_of(4) {
                sched.cancel_waiting();
            }
            // Cancelled goroutines need Ps that are not stuck.
            self.look();
            n_sweeps += 1;
            clock::nap(if n_sweeps < 20 {
                SHORTEST_NS * 2
            } else {
                SWEEP_NS
            });
        }
        sched.set_phase(Phase::Stopping);
        for p in &sched.ps {
            let idle = &sched.node_of(p).idle;
            if idle.claim(p.at_in_node) {
                idle.add_spinner();
                sched.notify(p);
            }
        }
        let ms = sched.ms.lock();
        ms.all.iter().for_each(|m| m.note.wake());
        drop(ms);
    }
}

/// The M that holds `p`, if it still exists.
fn owner_of<'a>(sched: &'a Sched, p: &P) -> Option<&'a M> {
    let owner = p.owner();
    let ms = sched.ms.lock();
    let found = ms
        .all
        .iter()
        .find(|m| std::ptr::eq(&raw const ***m, owner))?;
    // An M is boxed and stays until the run ends, after sysmon.
    Some(extend(found))
}

#[allow(unsafe_code)]
fn extend<'a>(m: &M) -> &'a M {
    // SAFETY: Ms live in boxes until the run has ended and sysmon has been joined.
    unsafe { &*std::ptr::from_ref(m) }
}

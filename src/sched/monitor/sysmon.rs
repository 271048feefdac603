//! Sysmon: a monitor thread without a P, not pinned to a CPU.
//!
//! - Retakes Ps from blocking sections, after 20 µs if they have work and after 10 ms if not, and
//!   from *hogs*: goroutines that have computed or blocked for 10 ms without a call into the
//!   runtime ([`crate::sched::wait::handoff`]). Requests preemption of goroutines that make one such call after
//!   the other.
//! - Wakes an idle P for a goroutine that waits behind another at a busy P.
//! - Cancels all waiting goroutines when the main goroutine has ended, and ends the run when no
//!   goroutine is left.
//! - Stops the world on request ([`super::world`]), and follows the CPUs that the process may use
//!   and its CPU quota ([`super::cpu_mask`]).
//! - Returns the pages of stacks that have been free for long ([`super::scavenge`]).
//! - Starts threads, so that they inherit from it and not from a goroutine's thread.
//!
//! It checks every 20 µs while a P with work is in a blocking section, backs off to 10 ms when
//! there is none (Go's numbers), and sleeps without limit while every P is idle. So an idle runtime
//! makes no system call once the pages of its free stacks are returned, unless periodic status
//! lines or deadlock detection were requested (`debug_hooks`). A P without work in a blocking
//! section is retaken so that it becomes idle: then sysmon may sleep, and a goroutine that becomes
//! runnable wakes the P.

use super::cpu_mask::Follower;
use super::rebalance::Rebalance;
use super::scavenge::Scavenger;
use super::stall::Stalls;
use super::world::UnownedPs;
use crate::config::HOG_AFTER;
use crate::loom::Ordering;
use crate::sched::proc::run::AbortOnUnwind;
use crate::sched::types::debug_hooks::DebugHooks;
use crate::sched::types::m::{M, RETAKEN};
use crate::sched::types::p::P;
use crate::sched::types::state::{Phase, Sched};
use crate::sched::types::trace::EventKind;
use crate::sched::wait::handoff::{LEFT, owner_of};
use crate::sys::clock::{self, NEVER};
use crate::sys::sched as threads;

const SHORTEST_NS: u64 = 20_000;
const LONGEST_NS: u64 = 10_000_000;
/// Rounds without work before the naps get longer.
const PATIENCE: u32 = 50;
/// Interval between two sweeps at the end of a run.
const SWEEP_NS: u64 = 500_000;
/// Longest nap while some P is idle: a node may be idle for this long while another is overloaded.
const IDLE_NODE_NS: u64 = 1_000_000;
/// Nice value of a hog's thread, so that the P's new M keeps the core.
const HOG_NICE: i32 = 10;

/// What sysmon saw of a P in its last round.
#[derive(Clone, Copy, Debug, Default)]
struct PSnapshot {
    dispatches: u64,
    /// Since when `dispatches` has not changed; 0 if unknown.
    since_ns: u64,
    /// Since when, in addition, its goroutine has not been in a blocking section; 0 while it is in
    /// one.
    outside_since_ns: u64,
    /// The blocking section in which the P was last seen, and since when.
    syscalltick: u32,
    section_since_ns: u64,
}

/// Sysmon's own state.
struct Sysmon<'a> {
    sched: &'a Sched,
    seen: Vec<PSnapshot>,
    /// Ps that were retaken: for a moment, or because no thread is available for them.
    unowned: UnownedPs<'a>,
    can_renice: bool,
    /// Some P is in a blocking section and has no work: a goroutine queued on its node has to wake
    /// sysmon.
    awaits_work: bool,
    follower: Follower,
    scavenger: Scavenger,
    /// Set if stall reports were requested.
    stalls: Option<Stalls<'a>>,
    rebalance: Rebalance,
}

/// Sysmon's thread, for one run. Hands all Ps but M0's to new Ms, and returns when no goroutine is
/// left and every M has been woken to stop.
pub(crate) fn main(sched: &Sched) {
    // A panic here would leave a run that never ends.
    let bomb = AbortOnUnwind;
    clock::tighten_timer_slack();
    let mut sysmon = Sysmon {
        sched,
        seen: vec![PSnapshot::default(); sched.ps.len()],
        unowned: UnownedPs::new(sched),
        can_renice: can_renice(),
        awaits_work: false,
        follower: Follower::default(),
        scavenger: Scavenger::default(),
        stalls: Stalls::new(sched),
        rebalance: Rebalance::default(),
    };
    sysmon.unowned.give_all();
    sysmon.run();
    sysmon.end_run();
    std::mem::forget(bomb);
}

/// Whether a thread may raise its priority again after lowering it; tried out on this thread.
fn can_renice() -> bool {
    let tid = threads::gettid();
    threads::set_nice(tid, 1).is_ok() && threads::set_nice(tid, 0).is_ok()
}

impl<'a> Sysmon<'a> {
    /// Checks all Ps, again and again, until the main goroutine has ended.
    fn run(&mut self) {
        let mut n_quiet = 0;
        let mut nap_ns = SHORTEST_NS;
        let hooks = self.sched.debug_hooks.get_or_init(DebugHooks::default);
        hooks.begin();
        while self.sched.phase() == Phase::Running {
            let busy = self.look();
            let due_ns = hooks.look(self.sched);
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
                let ns = due_ns.min(hooks.look_at_idle(self.sched));
                let now_ns = clock::now_ns();
                let ns = ns.min(self.scavenger.longest_sleep_ns(self.sched, now_ns));
                if self.sleep_deep(ns) {
                    n_quiet = 0;
                    // A short burst after a long silence does not need short naps.
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
        state.awaits_work.store(self.awaits_work, Ordering::SeqCst);
        // ORDERING: a pusher pushes to the queue before it reads `awaits_work` (`inject`).
        let has_work = self.awaits_work && self.sched.ps_in_use().any(|p| self.is_missed(p));
        if has_work || state.note.sleep_timeout(ns) {
            *n_quiet = 0;
            *nap_ns = SHORTEST_NS;
        }
        state.awaits_work.store(false, Ordering::SeqCst);
        state.slow.store(false, Ordering::SeqCst);
    }

    /// Whether a goroutine waits for a P that is in a blocking section.
    fn is_missed(&self, p: &P) -> bool {
        p.syscall.load(Ordering::Relaxed) != 0 && self.sched.node_of(p).queue.len() > 0
    }

    fn all_idle(&self) -> bool {
        self.unowned.is_empty()
            && self.stalls.as_ref().is_none_or(Stalls::is_quiet)
            && self.sched.n_idle.load(Ordering::SeqCst) == self.sched.n_procs()
    }

    /// Sleeps until a P stops being idle, the run ends, or `ns` have passed ([`NEVER`] for no
    /// limit); `false` after that time.
    fn sleep_deep(&self, ns: u64) -> bool {
        let mut woken = true;
        let state = &self.sched.sysmon;
        state.deep.store(true, Ordering::SeqCst);
        // ORDERING: a P that stops being idle lowers n_idle and then reads `deep`.
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

    /// One round. `true` if there was anything to do.
    fn look(&mut self) -> bool {
        let sched = self.sched;
        let now_ns = clock::now_ns();
        self.unowned.give_all();
        self.join_retired();
        sched.offload.start_wanted();
        if sched.is_numa() {
            sched.rescue_queues();
            if sched.n_idle.load(Ordering::Relaxed) > 0 {
                self.rebalance.wake_idle_nodes(sched);
            }
        }
        let mut busy = self.serve();
        self.follow(now_ns);
        self.scavenger.look(sched, now_ns);
        busy |= !self.unowned.is_empty();
        self.awaits_work = false;
        for p in sched.ps_in_use() {
            busy |= self.look_at(p, now_ns);
        }
        if !busy && self.runnext_waits() {
            // Only a second check can tell whether it has waited for long: a short one, a little
            // later.
            clock::nap(SHORTEST_NS);
            let now_ns = clock::now_ns();
            for p in sched.ps_in_use() {
                busy |= self.look_at(p, now_ns);
            }
        }
        if let Some(stalls) = &mut self.stalls {
            stalls.look(sched);
        }
        busy
    }

    /// Whether a goroutine waits in a runnext while a P is idle.
    fn runnext_waits(&self) -> bool {
        let sched = self.sched;
        sched.n_idle.load(Ordering::Relaxed) > 0 && sched.ps_in_use().any(|p| p.runq.has_runnext())
    }

    fn look_at(&mut self, p: &'a P, now_ns: u64) -> bool {
        let seen = &mut self.seen[p.idx];
        let dispatches = p.stats.dispatches.get();
        let moves_on = seen.dispatches != dispatches || seen.since_ns == 0;
        if moves_on {
            seen.dispatches = dispatches;
            seen.since_ns = now_ns;
        }
        let is_hog = now_ns - seen.since_ns >= HOG_AFTER.as_nanos() as u64;
        let m_id = p.syscall.load(Ordering::Acquire);
        if m_id != 0 {
            seen.outside_since_ns = 0;
            return self.retake_section(p, m_id, is_hog, now_ns);
        }
        if moves_on || seen.outside_since_ns == 0 {
            seen.outside_since_ns = now_ns;
        }
        // Keeps timestamps of the P's goroutine (the start of a wait, say) from being as old as its
        // last dispatch.
        if now_ns - seen.since_ns >= LONGEST_NS {
            p.local.now_ns.set(now_ns);
        }
        let mut helped = false;
        if !moves_on {
            helped = self.help_waiting(p);
            self.look_for_stall(p);
        }
        helped | (is_hog && self.retake_hog(p, now_ns))
    }

    /// Handles a P in a blocking section. If the P has work, it is retaken when it was in the same
    /// section in the last round, or when its goroutine has gone from one section to the next for
    /// 10 ms. Without work it is retaken after 10 ms, so that it becomes idle. `true` if sysmon
    /// should check again soon.
    fn retake_section(&mut self, p: &'a P, m_id: u64, is_hog: bool, now_ns: u64) -> bool {
        let sched = self.sched;
        let tick = p.syscalltick.load(Ordering::Relaxed);
        let seen = &mut self.seen[p.idx];
        let is_new = seen.syscalltick != tick;
        if is_new {
            seen.syscalltick = tick;
            seen.section_since_ns = now_ns;
        }
        let wanted = p.has_work() || sched.node_of(p).queue.len() > 0;
        let is_due = match (m_id == LEFT, wanted) {
            // The M has given it up, so no M will return for it.
            (true, _) => true,
            (false, true) => !is_new || is_hog,
            (false, false) => now_ns - seen.section_since_ns >= LONGEST_NS,
        };
        if is_due && self.thread_to_be_had() && sched.retake_syscall(p, m_id) {
            p.taken.from_sections.fetch_add(1, Ordering::Relaxed);
            sched.trace_other(EventKind::RetakeSection, Some(p), None);
            self.give(p);
        } else if !wanted {
            self.awaits_work = true;
        }
        wanted
    }

    /// Joins threads that ended with their goroutines, to release their memory.
    fn join_retired(&self) {
        if self.sched.n_retired.load(Ordering::Relaxed) == 0 {
            return;
        }
        let ended: Vec<_> = {
            let mut ms = self.sched.ms.lock();
            ms.threads.extract_if(.., |t| t.is_finished()).collect()
        };
        self.sched
            .n_retired
            .fetch_sub(ended.len(), Ordering::Relaxed);
        for thread in ended {
            // The runtime's threads abort on a panic, so joining cannot fail.
            let _ = thread.join();
        }
    }

    /// Reports the goroutine on `p`, if it has run there for long.
    fn look_for_stall(&mut self, p: &P) {
        let PSnapshot {
            dispatches,
            outside_since_ns: since_ns,
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

    /// The same goroutine has run, or blocked its thread, for too long: retakes its P.
    fn retake_hog(&mut self, p: &'a P, now_ns: u64) -> bool {
        let sched = self.sched;
        let Some(m) = owner_of(sched, p) else {
            return false;
        };
        let wanted = p.has_work() || sched.nodes.iter().any(|n| n.queue.len() > 0);
        if !wanted || sched.request_preempt(m, p) || !self.thread_to_be_had() {
            return false;
        }
        let tid = m.tid.load(Ordering::Relaxed);
        let cpu_before_ns = clock::thread_cpu_ns(tid);
        if !sched.retake_running(m, p) {
            return false;
        }
        let seen = &mut self.seen[p.idx];
        seen.since_ns = now_ns;
        let since_ns = seen.outside_since_ns;
        if let Some(stalls) = &mut self.stalls {
            stalls.lost_p(p, m, since_ns);
        }
        // It computes if its CPU clock advances: then its thread must not cost the P half the core.
        let computes = clock::thread_cpu_ns(tid) > cpu_before_ns;
        if computes && self.can_renice {
            demote(m, tid);
        }
        p.taken.from_hogs.fetch_add(1, Ordering::Relaxed);
        sched.trace_other(EventKind::RetakeHog, Some(p), None);
        self.give(p);
        true
    }

    /// Wakes an idle P for goroutines that wait behind another one on `p`: neither runnext nor a
    /// yield wakes an M for them. `true` if it did; sysmon then keeps checking at short intervals,
    /// as this may happen again.
    fn help_waiting(&self, p: &P) -> bool {
        let sched = self.sched;
        let is_stuck = !p.runq.is_empty() && sched.n_idle.load(Ordering::Relaxed) > 0;
        if is_stuck {
            sched.wake_in(sched.node_of(p), Some(p));
        }
        is_stuck
    }

    fn thread_to_be_had(&self) -> bool {
        self.sched.n_ms.load(Ordering::Relaxed) < self.sched.config.max_threads
            || !self.sched.ms.lock().spare.is_empty()
    }

    fn give(&mut self, p: &'a P) {
        self.sched.retakes.fetch_add(1, Ordering::Relaxed);
        self.unowned.take(p);
        self.unowned.give_all();
    }

    /// Runs the jobs that wait for a stopped world. `true` if there were any.
    fn serve(&mut self) -> bool {
        let jobs = self.sched.world.take_jobs();
        let any = !jobs.is_empty();
        for job in jobs {
            self.unowned.in_stopped_world(job);
        }
        any
    }

    /// Once a second: adapts the Ps to the usable CPUs, and their number to the CPU quota unless
    /// the number was set explicitly.
    fn follow(&mut self, now_ns: u64) {
        if let Some(change) = self.follower.look(self.sched, now_ns) {
            // Repeated in a second if the world does not stop.
            self.unowned
                .in_stopped_world(|sched, stopped| stopped.map_or((), |()| sched.apply(change)));
        }
    }

    /// Cancels waiting goroutines until none is left, then stops every M.
    fn end_run(&mut self) {
        let sched = self.sched;
        let mut n_sweeps = 0u32;
        let hooks = sched.debug_hooks.get_or_init(DebugHooks::default);
        let began_ns = clock::now_ns();
        while sched.n_live() > 0 {
            if n_sweeps.is_multiple_of(4) {
                sched.cancel_waiting();
                let ms = sched.ms.lock();
                let checks = ms.all.iter().map(|m| &m.checks.left);
                checks.for_each(|left| left.store(0, Ordering::Relaxed));
            }
            // Cancelled goroutines need Ps that are not stuck.
            self.look();
            n_sweeps += 1;
            clock::nap(if n_sweeps < 20 {
                SHORTEST_NS * 2
            } else {
                SWEEP_NS
            });
            hooks.look_at_end(sched, began_ns);
        }
        sched.set_phase(Phase::Stopping);
        sched.refuse_jobs();
        sched.ps_in_use().for_each(|p| sched.wake_sleeper(p));
        let ms = sched.ms.lock();
        ms.all.iter().for_each(|m| m.note.wake());
        drop(ms);
    }
}

/// Lowers the priority of a thread that computes without a P, so that the P's new M keeps the core.
/// The thread restores it when it enters the scheduler (`run::lost_p`).
fn demote(m: &M, tid: i32) {
    m.demoted.store(true, Ordering::SeqCst);
    let lowered = threads::set_nice(tid, HOG_NICE).is_ok();
    // ORDERING: the M stores `access` and then reads `demoted`. So either it reads `true`, after
    // the priority was lowered, or this load sees that it is back.
    if !lowered || m.access.load(Ordering::SeqCst) != RETAKEN {
        let _ = threads::set_nice(tid, 0);
        m.demoted.store(false, Ordering::Relaxed);
    }
}

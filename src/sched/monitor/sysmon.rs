//! Sysmon: a monitor thread without a P, not pinned to a CPU.
//!
//! - Retakes Ps from blocking sections, after 20 µs if they have work and after 10 ms if not, and
//!   from *hogs*: goroutines that have computed or blocked for 10 ms without a call into the
//!   runtime ([`crate::sched::wait::handoff`]). Those that make such calls yield at the next one.
//! - Does the same after 200 µs where a timer is due or the poller has something for other
//!   goroutines: sleepers and I/O do not wait for goroutines that compute for long. After 5 ms where
//!   goroutines compute briefly ([`super::due_work`]).
//! - Interrupts threads that compute without a P, if completions wait for them: the kernel posts
//!   the completion of an operation on the thread that submitted it.
//! - Wakes an idle P for a goroutine that waits behind another at a busy P.
//! - Cancels all waiting goroutines when the main goroutine has ended, and ends the run when no
//!   goroutine is left.
//! - Stops the world on request ([`super::world`]), and follows the CPUs that the process may use
//!   and its CPU quota ([`super::cpu_mask`]).
//! - Returns the pages of stacks that have been free for long ([`super::scavenge`]).
//! - Starts threads, so that they inherit from it and not from a goroutine's thread.
//!
//! While a P with work is in a blocking section, and there is a thread that could take the P, sysmon checks
//! every 20 µs. Otherwise it backs off to 10 ms (Go's numbers), or until the next timer may need help if that
//! is earlier. While every P is idle, it sleeps without limit. So an idle runtime
//! makes no system call once the pages of its free stacks are returned, unless periodic status
//! lines or deadlock detection were requested (`debug_hooks`). A P without work in a blocking
//! section is retaken so that it becomes idle: then sysmon may sleep, and a goroutine that becomes
//! runnable wakes the P.

use super::cpu_mask::Follower;
use super::due_work::{self, Help, Patience, PollerView, View};
use super::rebalance::Rebalance;
use super::retake::{
    UnownedPs, has_thread_for_p, owner_of, request_preempt, retake_running, retake_syscall,
};
use super::scavenge::Scavenger;
use super::stall::Stalls;
use super::world;
use crate::config::HOG_NICE;
use crate::loom::Ordering;
use crate::sched::proc::run::AbortOnUnwind;
use crate::sched::types::debug_hooks::DebugHooks;
use crate::sched::types::m::{Carrier, RETAKEN};
use crate::sched::types::p::P;
use crate::sched::types::state::{Phase, Sched};
use crate::sched::types::trace::EventKind;
use crate::sched::wait::handoff::LEFT;
use crate::sys::affinity;
use crate::sys::clock::{self, NEVER};
use crate::sys::sched as threads;
use crate::util::ladder;

/// Rounds without work before the naps get longer.
const PATIENCE: u32 = 50;
/// Interval between two sweeps at the end of a run.
const SWEEP_NS: u64 = ladder::LATE_NS / 2;
/// If sysmon has not looked for this long, it slept while all was idle, or the process was stopped.
const AWAY_NS: u64 = 10 * ladder::HOG_NS;
/// A thread that has lost its P is left as it is for this long. The kernel gives a thread a new time
/// slice when its priority or mask changes, so that the P's new M would wait for that slice.
const SETTLED_AFTER_NS: u64 = ladder::SLICE_NS / 2;
/// A thread without a P that has used no CPU time for this long blocks, or gets none.
const BLOCKS_AFTER_NS: u64 = 10 * ladder::HOG_NS;

/// The state of a P in sysmon's last round.
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

/// The state of a P when sysmon last looked for due work there.
#[derive(Clone, Copy, Debug, Default)]
struct DueSnapshot {
    dispatches: u64,
    /// The counts of calls of its M's goroutines, which a computation does not make.
    calls: Option<(u32, u32)>,
    /// When it last made progress, as far as is known.
    progress_ns: u64,
    /// The CPU time of its thread at the first look since then.
    cpu_ns: Option<u64>,
    /// The CPU time when its goroutine was asked to yield, if it was since then.
    asked_cpu_ns: Option<u64>,
    /// The due time of the timer for which an idle P was woken last.
    helped_due_ns: u64,
}

impl DueSnapshot {
    fn note_progress(&mut self, p: &P, m: Option<&Carrier>, now_ns: u64) {
        let dispatches = p.stats.dispatches.get();
        let calls = m.map(|m| {
            let transfers = m.transfers.load(Ordering::Relaxed);
            (m.checks.left.load(Ordering::Relaxed), transfers)
        });
        // The M's loop may take long, with a hundred thousand timers due. A goroutine's calls do not.
        let is_in_loop = m.is_some_and(|m| m.curg.get().is_none());
        let progress_ns = if is_in_loop || self.calls != calls {
            now_ns
        } else if self.dispatches != dispatches {
            // From its own readings of the clock, which may be older than the dispatch.
            p.local.now_ns.get().min(now_ns).max(self.progress_ns)
        } else {
            return;
        };
        *self = DueSnapshot {
            dispatches,
            calls,
            progress_ns,
            cpu_ns: None,
            asked_cpu_ns: None,
            ..*self
        };
    }
}

/// A thread that computes without a P.
#[derive(Debug)]
struct Straggler<'a> {
    m: &'a Carrier,
    tid: i32,
    /// Whether it has been demoted.
    is_demoted: bool,
    /// Its CPU time when its goroutine was first seen to compute, if it lost its P for what was due.
    /// `None` once [`Patience`] has been told.
    begin_cpu_ns: Option<u64>,
    /// Its CPU time when it lost its P.
    lost_cpu_ns: u64,
    /// Its CPU time, and when that was found to have advanced.
    cpu_ns: Option<u64>,
    advanced_ns: u64,
    /// When its CPU time was last read.
    read_ns: u64,
}

/// Sysmon's own state.
struct Sysmon<'a> {
    sched: &'a Sched,
    seen: Vec<PSnapshot>,
    due: Vec<DueSnapshot>,
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
    /// When the last round began, or its second part.
    looked_ns: u64,
    /// When a P or a straggler must be looked at again; [`NEVER`] if none needs it.
    look_at_ns: u64,
    /// Until when Ps are looked at more often.
    alert_until_ns: u64,
    patience: Patience,
    stragglers: Vec<Straggler<'a>>,
}

/// Sysmon's thread, for one run. Hands all Ps but M0's to new Ms, and returns when no goroutine is
/// left and every M has been woken to stop.
pub(crate) fn main(sched: &Sched) {
    // A panic here would leave a run that never ends.
    let bomb = AbortOnUnwind;
    clock::tighten_timer_slack();
    threads::shorten_own_slice();
    let tid = &sched.sysmon.tid;
    tid.store(threads::gettid(), Ordering::Relaxed);
    let mut sysmon = Sysmon {
        sched,
        seen: vec![PSnapshot::default(); sched.ps.len()],
        due: vec![DueSnapshot::default(); sched.ps.len()],
        unowned: UnownedPs::new(sched),
        can_renice: can_renice(),
        awaits_work: false,
        follower: Follower::default(),
        scavenger: Scavenger::default(),
        stalls: Stalls::new(sched),
        rebalance: Rebalance::default(),
        looked_ns: clock::now_ns(),
        look_at_ns: NEVER,
        alert_until_ns: 0,
        patience: Patience::default(),
        stragglers: Vec::new(),
    };
    sysmon.unowned.give_all();
    sysmon.run();
    sysmon.end_run();
    std::mem::forget(bomb);
}

/// Whether a thread may raise its priority again after lowering it; tried out on this thread. `false` in a
/// process of another priority than the usual one, which is left alone.
fn can_renice() -> bool {
    let tid = threads::gettid();
    threads::is_usual(tid) && threads::set_nice(tid, 1).is_ok() && threads::set_nice(tid, 0).is_ok()
}

impl<'a> Sysmon<'a> {
    /// Checks all Ps, again and again, until the main goroutine has ended.
    fn run(&mut self) {
        let mut n_quiet = 0;
        let mut nap_ns = ladder::GRACE_NS;
        let hooks = self.sched.debug_hooks.get_or_init(DebugHooks::default);
        hooks.begin();
        while self.sched.phase() == Phase::Running {
            let busy = self.look();
            let due_ns = hooks.look(self.sched);
            if busy {
                n_quiet = 0;
                nap_ns = ladder::GRACE_NS;
            } else {
                n_quiet += 1;
                if n_quiet > PATIENCE {
                    nap_ns = (nap_ns * 2).min(ladder::HOG_NS);
                }
            }
            if nap_ns == ladder::HOG_NS && self.look_at_ns == NEVER && self.all_idle() {
                let ns = due_ns.min(hooks.look_at_idle(self.sched));
                let now_ns = clock::now_ns();
                let ns = ns.min(self.scavenger.longest_sleep_ns(self.sched, now_ns));
                if self.sleep_deep(ns) {
                    n_quiet = 0;
                    // A short burst after a long silence does not need short naps.
                    nap_ns = ladder::HOG_NS / 8;
                }
                continue;
            }
            let part_idle = self.sched.is_numa() && self.sched.n_idle.load(Ordering::Relaxed) > 0;
            let ns = if part_idle && !self.all_idle() {
                nap_ns.min(ladder::LATE_NS)
            } else {
                nap_ns
            };
            let ns = match &self.stalls {
                Some(stalls) => ns.min(stalls.longest_nap_ns()),
                None => ns,
            };
            if self.wait(ns.min(due_ns)) {
                n_quiet = 0;
                nap_ns = ladder::GRACE_NS;
            }
        }
    }

    /// Waits for the next round, and looks for due work meanwhile. `true` if it was woken.
    fn wait(&mut self, ns: u64) -> bool {
        let until_ns = clock::now_ns() + ns;
        loop {
            let now_ns = clock::now_ns();
            if now_ns >= self.look_at_ns {
                self.look_for_due_work(now_ns);
            }
            let at_ns = until_ns.min(self.look_at_ns);
            let is_last = at_ns == until_ns;
            let ns = at_ns.saturating_sub(now_ns).max(ladder::GRACE_NS);
            let woken = self.nap(ns);
            if woken || is_last {
                return woken;
            }
        }
    }

    /// Between two rounds: looks at the stragglers, and whether due work waits at a P.
    fn look_for_due_work(&mut self, now_ns: u64) {
        self.look_at_ns = self.look_at_stragglers(now_ns);
        for p in self.sched.ps_in_use() {
            self.serve_due_work(p, now_ns);
        }
    }

    /// Sleeps. `true` if it was woken before the time.
    fn nap(&self, ns: u64) -> bool {
        let state = &self.sched.sysmon;
        if ns < 8 * ladder::GRACE_NS {
            clock::nap(ns);
            return false;
        }
        state.slow.store(true, Ordering::SeqCst);
        state.awaits_work.store(self.awaits_work, Ordering::SeqCst);
        // ORDERING: a pusher pushes to the queue before it reads `awaits_work` (`inject`).
        let has_work = self.awaits_work && self.sched.ps_in_use().any(|p| self.is_missed(p));
        let woken = has_work || state.note.sleep_timeout(ns);
        state.awaits_work.store(false, Ordering::SeqCst);
        state.slow.store(false, Ordering::SeqCst);
        woken
    }

    /// Whether a goroutine waits for a P that is in a blocking section.
    fn is_missed(&self, p: &P) -> bool {
        p.syscall.load(Ordering::Relaxed) != 0 && self.sched.node_of(p).queue.len() > 0
    }

    /// Whether nothing is to be done. Ps for which there is no thread count as idle, without work, where
    /// the idle Ps of the same node take what comes.
    fn all_idle(&self) -> bool {
        let sched = self.sched;
        let n_idle = sched.n_idle.load(Ordering::SeqCst);
        let is_all = |n_unowned| {
            n_idle + n_unowned == sched.n_procs() && (n_unowned == 0 || !sched.is_numa())
        };
        self.stalls.as_ref().is_none_or(Stalls::is_quiet)
            && self.unowned.n_idle().is_some_and(is_all)
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
        self.leave_out_absence(now_ns);
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
        self.awaits_work = false;
        self.look_at_ns = self.look_at_stragglers(now_ns);
        for p in sched.ps_in_use() {
            busy |= self.look_at(p, now_ns);
        }
        if !busy && self.runnext_waits() {
            // Only a second check can tell whether it has waited for long: a short one, a little
            // later.
            clock::nap(ladder::GRACE_NS);
            let now_ns = clock::now_ns();
            self.leave_out_absence(now_ns);
            for p in sched.ps_in_use() {
                busy |= self.look_at(p, now_ns);
            }
        }
        if let Some(stalls) = &mut self.stalls {
            stalls.look(sched, now_ns);
        }
        busy
    }

    /// A round, or the second part of one, begins. What lasted when the process was stopped (SIGSTOP, a
    /// debugger, a frozen control group) has not lasted for that time.
    fn leave_out_absence(&mut self, now_ns: u64) {
        let away_ns = now_ns - std::mem::replace(&mut self.looked_ns, now_ns);
        if away_ns < AWAY_NS {
            return;
        }
        let later = |since_ns: &mut u64| *since_ns = now_ns.min(*since_ns + away_ns);
        for seen in &mut self.seen {
            // 0 is unknown.
            let both = [&mut seen.since_ns, &mut seen.outside_since_ns];
            both.into_iter().filter(|ns| **ns != 0).for_each(later);
        }
        if let Some(stalls) = &mut self.stalls {
            stalls.begin_later(later);
        }
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
        let is_hog = now_ns - seen.since_ns >= ladder::HOG_NS;
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
        if now_ns - seen.since_ns >= ladder::HOG_NS {
            p.local.now_ns.set(now_ns);
        }
        let mut helped = false;
        if !moves_on {
            helped = self.help_waiting(p);
            self.look_for_stall(p, now_ns);
        }
        if self.serve_due_work(p, now_ns) {
            return helped;
        }
        helped | (is_hog && self.retake_hog(p, now_ns, false))
    }

    /// Helps the goroutines whose timer is due at `p`, or for which its poller has something, if
    /// the goroutine that runs there computes. `true` if the P was retaken for them.
    fn serve_due_work(&mut self, p: &'a P, now_ns: u64) -> bool {
        let (sched, idle) = (self.sched, &self.sched.node_of(p).idle);
        if idle.is_idle(p.at_in_node) {
            return false;
        }
        let seen = &mut self.due[p.idx];
        let owner = owner_of(p);
        seen.note_progress(p, owner, now_ns);
        let due_ns = p.timers.next_ns();
        let mut view = View {
            now_ns,
            since_ns: seen.progress_ns,
            due_ns,
            poller: match p.poller.inflight() {
                0 => PollerView::Unused,
                _ => PollerView::Quiet,
            },
            any_idle: idle.any_idle(),
            patience: self.patience,
            computes: false,
            was_helped: seen.helped_due_ns == due_ns,
            was_asked: seen.asked_cpu_ns.is_some(),
            computes_on: false,
            is_alert: now_ns < self.alert_until_ns,
        };
        // Only of a P that is stuck: its holder would have to fetch the words back.
        if view.poller == PollerView::Quiet && view.is_stuck() && p.poller.has_news() {
            view.poller = PollerView::Ready;
        }
        let cpu_ns = owner.and_then(|m| clock::thread_cpu_ns(m.tid.load(Ordering::Relaxed)));
        let before_ns = *seen.cpu_ns.get_or_insert(cpu_ns.unwrap_or(NEVER));
        let has_used = |since: u64, ns| cpu_ns.is_some_and(|cpu| cpu.saturating_sub(since) >= ns);
        view.computes = has_used(before_ns, self.patience.computes_ns());
        view.computes_on = seen
            .asked_cpu_ns
            .is_some_and(|asked_ns| has_used(asked_ns, ladder::TICK_NS));
        let help = view.help();
        if help != Help::Nothing {
            self.alert_until_ns = now_ns + due_work::ALERT_FOR_NS;
        }
        let is_retaken = match help {
            Help::Nothing => false,
            Help::WakeIdle => {
                seen.helped_due_ns = due_ns;
                sched.wake_in(sched.node_of(p), Some(p));
                false
            }
            Help::Ask => {
                seen.asked_cpu_ns.get_or_insert(cpu_ns.unwrap_or(NEVER));
                owner.inspect(|m| request_preempt(m, p));
                false
            }
            Help::Retake => self.retake_hog(p, now_ns, true),
        };
        if !is_retaken {
            self.look_at_ns = self.look_at_ns.min(view.look_again_ns());
        }
        is_retaken
    }

    /// Looks at the threads that compute without a P. They may have submitted operations, whose
    /// completions the kernel posts on these threads only, when they enter it or are interrupted:
    /// the membarrier does that. Returns when to look again.
    fn look_at_stragglers(&mut self, now_ns: u64) -> u64 {
        let (sched, can_renice) = (self.sched, self.can_renice);
        let patience = &mut self.patience;
        self.stragglers.retain_mut(|straggler| {
            // ORDERING: acquire; `tell` reads what the M has stored before this.
            let is_back = straggler.m.access.load(Ordering::Acquire) != RETAKEN;
            let is_one = !is_back && straggler.is_one(now_ns, can_renice);
            straggler.tell(patience, is_back);
            is_one
        });
        if self.stragglers.is_empty() {
            return NEVER;
        }
        let settled_ns = self
            .stragglers
            .iter()
            .filter(|straggler| !straggler.is_demoted)
            .map(|straggler| straggler.read_ns + SETTLED_AFTER_NS)
            .min();
        let in_flight = || sched.ps_in_use().filter(|p| p.poller.inflight() > 0);
        if in_flight().next().is_none() {
            return settled_ns.unwrap_or(NEVER);
        }
        if in_flight().any(|p| p.poller.owes_completions()) {
            // Without it the completions come at the next tick of the kernel's clock.
            let _ = threads::membarrier();
        }
        settled_ns
            .unwrap_or(NEVER)
            .min(now_ns + due_work::NUDGE_EVERY_NS)
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
            (false, false) => now_ns - seen.section_since_ns >= ladder::HOG_NS,
        };
        let may_take = is_due && has_thread_for_p(sched);
        if may_take && retake_syscall(p, m_id) {
            p.taken.from_sections.fetch_add(1, Ordering::Relaxed);
            sched.trace_other(EventKind::RetakeSection, Some(p), None);
            self.unowned.hand_on(p);
        } else if !wanted {
            self.awaits_work = true;
        }
        // Without a thread for the P, sysmon is woken when there is one.
        wanted && (may_take || !is_due)
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
    fn look_for_stall(&mut self, p: &'a P, now_ns: u64) {
        let PSnapshot {
            dispatches,
            outside_since_ns: since_ns,
            ..
        } = self.seen[p.idx];
        let Some(stalls) = &mut self.stalls else {
            return;
        };
        if now_ns - since_ns >= stalls.longest_nap_ns()
            && let Some(m) = owner_of(p)
        {
            stalls.look_at(self.sched, p, m, dispatches, since_ns, now_ns);
        }
    }

    /// One goroutine has run, or blocked its thread, for too long: retakes its P, if there is
    /// work for it. `is_due` says that a timer or the poller waits.
    fn retake_hog(&mut self, p: &'a P, now_ns: u64, is_due: bool) -> bool {
        let sched = self.sched;
        let Some(m) = owner_of(p) else {
            return false;
        };
        let wanted = is_due || p.has_work() || sched.nodes.iter().any(|n| n.queue.len() > 0);
        let tid = m.tid.load(Ordering::Relaxed);
        if !wanted || !retake_running(m, p, has_thread_for_p(sched)) {
            return false;
        }
        let cpu_ns = clock::thread_cpu_ns(tid);
        let seen = &mut self.seen[p.idx];
        seen.since_ns = now_ns;
        let since_ns = seen.outside_since_ns;
        if let Some(stalls) = &mut self.stalls {
            stalls.lost_p(p, m, since_ns);
        }
        self.stragglers.retain(|s| !std::ptr::eq(s.m, m));
        self.stragglers.push(Straggler {
            m,
            tid,
            is_demoted: false,
            begin_cpu_ns: self.due[p.idx].cpu_ns.filter(|_| is_due),
            lost_cpu_ns: cpu_ns.unwrap_or(0),
            cpu_ns,
            advanced_ns: now_ns,
            read_ns: now_ns,
        });
        p.taken.from_hogs.fetch_add(1, Ordering::Relaxed);
        if is_due {
            p.taken.for_due.fetch_add(1, Ordering::Relaxed);
            // What is due overtakes goroutines that wait in the node queue: they may be hogs that
            // lost their P. No M holds the P now.
            p.local.since_node_queue.set(0);
        }
        self.look_at_ns = self.look_at_ns.min(now_ns + SETTLED_AFTER_NS);
        sched.trace_other(EventKind::RetakeHog, Some(p), None);
        self.unowned.hand_on(p);
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

    /// Runs the jobs that wait for a stopped world. `true` if there were any.
    fn serve(&mut self) -> bool {
        let jobs = self.sched.world.take_jobs();
        let any = !jobs.is_empty();
        for job in jobs {
            world::run_stopped(&mut self.unowned, job);
        }
        any
    }

    /// Once a second: adapts the Ps to the usable CPUs, and their number to the CPU quota unless
    /// the number was set explicitly.
    fn follow(&mut self, now_ns: u64) {
        if let Some(change) = self.follower.look(self.sched, now_ns) {
            // Repeated in a second if the world does not stop.
            world::run_stopped(&mut self.unowned, |sched, stopped| {
                if stopped.is_ok() {
                    sched.apply(change);
                }
            });
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
                ladder::GRACE_NS * 2
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

impl Straggler<'_> {
    /// Whether it still computes without a P. Demotes it once that is known.
    fn is_one(&mut self, now_ns: u64, can_renice: bool) -> bool {
        // The clock of a thread is a system call away.
        let wait_ns = match self.is_demoted {
            true => BLOCKS_AFTER_NS / 2,
            false => SETTLED_AFTER_NS,
        };
        if now_ns.saturating_sub(self.read_ns) < wait_ns {
            return true;
        }
        self.read_ns = now_ns;
        let cpu_ns = clock::thread_cpu_ns(self.tid);
        if cpu_ns > self.cpu_ns {
            (self.cpu_ns, self.advanced_ns) = (cpu_ns, now_ns);
            // What it is starting would inherit the priority.
            if !self.is_demoted && !self.m.is_widened.load(Ordering::SeqCst) {
                demote(self.m, self.tid, can_renice);
                self.is_demoted = true;
            }
        }
        now_ns - self.advanced_ns < BLOCKS_AFTER_NS
    }

    /// Tells for how long its goroutine has computed, when it is back or that is known to be long. One
    /// that was back at once has computed beside nobody.
    fn tell(&mut self, patience: &mut Patience, is_back: bool) {
        let Some(begin_ns) = self.begin_cpu_ns else {
            return;
        };
        let cpu_ns = match is_back {
            true => self.m.back_cpu_ns.load(Ordering::Relaxed),
            false => self.cpu_ns.unwrap_or(0),
        };
        let computed_ns = cpu_ns.saturating_sub(begin_ns);
        if !is_back && due_work::is_brief(computed_ns) {
            return;
        }
        if cpu_ns.saturating_sub(self.lost_cpu_ns) >= due_work::SHORT_CPU_NS {
            patience.note(computed_ns);
        }
        self.begin_cpu_ns = None;
    }
}

/// Lowers the priority of a thread that computes without a P, so that the P's new M keeps the core, and
/// gives it a usual time slice, so that the M's is the shorter one. Lets it run on any CPU: several such
/// threads may have been pinned to one. The thread restores both when it enters the scheduler
/// (`run::lost_p`), and pins itself when it takes a P. What it starts gets the usual priority (`children`). A
/// thread whose priority is not the usual one keeps it: a goroutine may have locked it and set that.
fn demote(m: &Carrier, tid: i32, can_renice: bool) {
    let sched = m.sched();
    let can_renice = can_renice && threads::is_usual(tid);
    m.demoted.store(can_renice, Ordering::SeqCst);
    let is_lowered = can_renice && m.set_nice(tid, HOG_NICE).is_ok();
    // The mask of a thread that a goroutine has locked may have been set on purpose.
    let is_freed = sched.pin && !m.is_locked();
    if is_freed {
        m.doubt_pin();
        sched
            .offload
            .with_mask(|mask| affinity::restore_thread(tid, mask));
    }
    // ORDERING: the M stores `access` and then reads `demoted`. So either it reads `true`, after
    // the priority was lowered, or this load sees that it is back.
    let is_back = m.access.load(Ordering::SeqCst) != RETAKEN;
    if is_back || !is_lowered {
        if is_lowered {
            let _ = m.set_nice(tid, 0);
        }
        m.demoted.store(false, Ordering::Relaxed);
    }
    if is_back
        && is_freed
        && let Some(cpu) = m.cpu()
    {
        // If it pins itself to another CPU now, `cpu_mask` finds the wrong mask within seconds.
        affinity::pin_thread(tid, cpu);
    }
}

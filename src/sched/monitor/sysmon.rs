//! Sysmon: a monitor thread without a P, not pinned to a CPU. This is its loop; its duties are in files of their own.
//!
//! - Retakes Ps from blocking sections, after 20 µs if they have work and after 10 ms if not, and
//!   from *hogs*: goroutines that have computed or blocked for 10 ms without a call into the
//!   runtime ([`super::ps`], [`super::retake`]). Those that make such calls yield at the next one.
//! - Does the same after 200 µs where a timer is due or the poller has something for other
//!   goroutines: sleepers and I/O do not wait for goroutines that compute for long. After 5 ms where
//!   goroutines compute briefly ([`super::due_work`]).
//! - Interrupts threads that compute without a P, if completions wait for them ([`super::stragglers`]).
//! - Wakes an idle P for a goroutine that waits behind another at a busy P.
//! - Cancels all waiting goroutines when the main goroutine has ended, and ends the run when no
//!   goroutine is left.
//! - Stops the world on request ([`super::world`]), and follows the CPUs that the process may use
//!   and its CPU quota ([`super::cpu_mask`]).
//! - Returns the pages of stacks that have been free for long ([`super::scavenge`]), and gives those of goroutines that
//!   have waited for long to swap, on request ([`super::page_out`]).
//! - Starts threads, so that they inherit from it and not from a goroutine's thread.
//!
//! A round of sysmon serves all duties. While it finds something to do, for example a P with work in a blocking
//! section and a thread that could take the P, the next round comes 20 µs later. After 50 rounds without that it backs
//! off to 10 ms (Go's numbers), and only to 0.2 ms while goroutines go from one section to the next. A section that
//! begins at a P with work while sysmon naps for longer wakes it: if the section is still there, so that it may last,
//! the next round comes 20 µs later. Between two rounds it looks for work that is due, when [`super::due_work`] says.
//! While every P is idle, it sleeps without limit. So an idle runtime makes no system call once the pages of its free
//! stacks are returned and those of stacks that wait for long are paged out, unless periodic status lines or deadlock
//! detection were requested (`debug_hooks`). A P without work in a blocking section is retaken so that it becomes idle: then
//! sysmon may sleep, and a goroutine that becomes runnable wakes the P.

use super::cpu_mask::{self, Follower};
use super::due_work::next_tick_ns;
use super::page_out::PageOut;
use super::ps::{Findings, Ps};
use super::rebalance::Rebalance;
use super::resize;
use super::scavenge::Scavenger;
use super::stall::Stalls;
use super::world;
use crate::loom::Ordering;
use crate::loom::oracle;
use crate::sched::proc::run::AbortOnUnwind;
use crate::sched::proc::threads::warn_once;
use crate::sched::types::debug_hooks::DebugHooks;
use crate::sched::types::p::P;
use crate::sched::types::state::{Phase, Sched};
use crate::sched::wait::cancel;
use crate::sched::wait::offload;
use crate::sched::wait::wake;
use crate::sys::clock::{self, NEVER};
use crate::sys::sched as threads;
use crate::util::ladder;

/// Rounds in which nothing was to be done before sysmon backs off.
const QUIET_ROUNDS: u32 = 50;
/// Interval between two sweeps at the end of a run.
const SWEEP_NS: u64 = ladder::LATE_NS / 2;
/// If sysmon has not looked for this long, it slept while all was idle, or the process was stopped.
const AWAY_NS: u64 = 10 * ladder::HOG_NS;

/// The time from one round to the next.
#[derive(Debug)]
struct Pace {
    n_quiet: u32,
    nap_ns: u64,
    /// The next round comes soon, whatever `nap_ns` is.
    is_soon: bool,
}

impl Pace {
    /// Short naps, until nothing has been found for a while.
    const FAST: Pace = Pace {
        n_quiet: 0,
        nap_ns: ladder::GRACE_NS,
        is_soon: false,
    };
    /// A short burst after a silence does not need short naps.
    const AFTER_SILENCE: Pace = Pace {
        n_quiet: 0,
        nap_ns: ladder::HOG_NS / 8,
        is_soon: false,
    };

    /// Learns from a round.
    fn note(&mut self, found: Findings) {
        if found.is_busy {
            *self = Pace::FAST;
            return;
        }
        self.n_quiet += 1;
        let is_long_quiet = self.n_quiet > QUIET_ROUNDS;
        self.is_soon = found.has_new_section && !is_long_quiet;
        if is_long_quiet {
            let most_ns = match found.has_sections {
                true => ladder::SLICE_NS,
                false => ladder::HOG_NS,
            };
            self.nap_ns = (self.nap_ns * 2).min(most_ns);
        }
    }

    /// Sysmon was woken from a nap of `nap_ns`.
    fn note_wake(&mut self, nap_ns: u64) {
        // Sections that begin at shorter intervals than that go on, and use up the quiet rounds.
        if nap_ns >= 2 * ladder::SLICE_NS {
            *self = Pace::AFTER_SILENCE;
        }
    }

    fn nap_ns(&self) -> u64 {
        match self.is_soon {
            true => ladder::GRACE_NS,
            false => self.nap_ns,
        }
    }

    fn is_slowest(&self) -> bool {
        self.nap_ns == ladder::HOG_NS
    }
}

/// Sysmon's own state.
struct Sysmon<'a> {
    sched: &'a Sched,
    ps: Ps<'a>,
    follower: Follower,
    scavenger: Scavenger,
    page_out: PageOut,
    rebalance: Rebalance,
    pace: Pace,
    /// The last round's findings.
    found: Findings,
    /// When the last round began.
    began_ns: u64,
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
        ps: Ps::new(sched),
        follower: Follower::default(),
        scavenger: Scavenger::default(),
        page_out: PageOut::new(sched),
        rebalance: Rebalance::default(),
        pace: Pace::FAST,
        found: Findings::default(),
        began_ns: clock::now_ns(),
    };
    sysmon.ps.unowned.give_all();
    sysmon.run();
    sysmon.end_run();
    std::mem::forget(bomb);
}

/// The time of the round that is to come `pause_ns` after `now_ns`: not later, and if that is long, together with
/// the looks for due work, as waking up is most of what sysmon costs.
fn round_after(now_ns: u64, pause_ns: u64) -> u64 {
    match pause_ns >= ladder::LATE_NS {
        true => next_tick_ns(now_ns.saturating_add(pause_ns - ladder::LATE_NS)),
        false => now_ns + pause_ns,
    }
}

/// Whether `n_procs` Ps have nothing to do, of which `n_idle` are idle, and `n_unowned` have no work and no thread.
/// The idle ones of their node take what comes to those. If there is none, the next round looks for a thread.
fn are_idle(n_idle: usize, n_unowned: usize, n_procs: usize, is_numa: bool) -> bool {
    n_idle + n_unowned == n_procs && (n_unowned == 0 || n_idle > 0 && !is_numa)
}

impl Sysmon<'_> {
    /// Serves all duties, again and again, until the main goroutine has ended.
    fn run(&mut self) {
        let hooks = self.sched.debug_hooks.get_or_init(DebugHooks::default);
        hooks.begin();
        let mut round_at_ns = 0;
        while self.sched.phase() == Phase::Running {
            let now_ns = clock::now_ns();
            if now_ns >= round_at_ns {
                self.round(now_ns);
                let due_ns = hooks.look(self.sched);
                if self.may_sleep() {
                    self.sleep(due_ns, hooks);
                    round_at_ns = 0;
                    continue;
                }
                self.page_out.note_busy();
                round_at_ns = round_after(clock::now_ns(), self.pause_ns().min(due_ns));
            } else {
                self.ps.look_for_due_work(now_ns);
            }
            if let Some(nap_ns) = self.nap_until(round_at_ns.min(self.ps.look_at_ns())) {
                round_at_ns = 0;
                self.pace.note_wake(nap_ns);
            }
        }
    }

    /// One round: serves all duties.
    fn round(&mut self, now_ns: u64) {
        self.leave_out_absence(now_ns);
        self.serve_threads();
        self.serve_nodes();
        let was_stopped = self.stop_world();
        self.follow_cpus(now_ns);
        self.scavenger.serve(self.sched, now_ns);
        self.page_out.serve(self.sched, now_ns);
        if oracle::may_help() {
            self.found = self.ps.round(now_ns);
        }
        self.found.is_busy |= was_stopped;
        self.pace.note(self.found);
    }

    /// Takes the time for which the process was stopped (SIGSTOP, a debugger, a frozen control group) out of what
    /// Ps and stalls have lasted.
    fn leave_out_absence(&mut self, now_ns: u64) {
        let away_ns = now_ns - std::mem::replace(&mut self.began_ns, now_ns);
        if away_ns >= AWAY_NS {
            let later = |since_ns: &mut u64| *since_ns = now_ns.min(*since_ns + away_ns);
            self.ps.begin_later(later);
        }
    }

    /// Starts the threads that are wanted, and joins those that ended with their goroutines, to release their memory.
    fn serve_threads(&mut self) {
        let sched = self.sched;
        self.ps.unowned.give_all();
        if let Err(e) = offload::start_wanted(sched) {
            warn_once(sched, &format!("the kernel refuses another thread ({e})"));
        }
        if sched.n_retired.load(Ordering::Relaxed) == 0 {
            return;
        }
        let ended: Vec<_> = {
            let mut ms = sched.ms.lock();
            ms.threads.extract_if(.., |t| t.is_finished()).collect()
        };
        sched.n_retired.fetch_sub(ended.len(), Ordering::Relaxed);
        for thread in ended {
            // The runtime's threads abort on a panic, so joining cannot fail.
            let _ = thread.join();
        }
    }

    /// Finds Ps for goroutines of nodes that have none, or only busy ones.
    fn serve_nodes(&mut self) {
        let sched = self.sched;
        if sched.is_numa() {
            resize::rescue_queues(sched);
            if sched.n_idle() > 0 {
                self.rebalance.wake_idle_nodes(sched);
            }
        }
    }

    /// Runs the jobs that wait for a stopped world. `true` if there were any.
    fn stop_world(&mut self) -> bool {
        let jobs = self.sched.world.take_jobs();
        let any = !jobs.is_empty();
        for job in jobs {
            world::run_stopped(&mut self.ps.unowned, job);
        }
        any
    }

    /// Once a second: adapts the Ps to the usable CPUs, and their number to the CPU quota unless
    /// the number was set explicitly.
    fn follow_cpus(&mut self, now_ns: u64) {
        if let Some(change) = self.follower.find_change(self.sched, now_ns) {
            // Repeated in a second if the world does not stop.
            world::run_stopped(&mut self.ps.unowned, |sched, stopped| {
                if stopped.is_ok() {
                    cpu_mask::apply(sched, change);
                }
            });
        }
    }

    /// The time to the next round.
    fn pause_ns(&self) -> u64 {
        let part_idle = self.sched.is_numa() && self.sched.n_idle() > 0;
        let for_nodes_ns = if part_idle && !self.all_idle() {
            ladder::LATE_NS
        } else {
            NEVER
        };
        let for_stalls_ns = self.ps.stalls.as_ref().map(Stalls::longest_nap_ns);
        let pause_ns = self.pace.nap_ns().min(for_nodes_ns);
        pause_ns.min(for_stalls_ns.unwrap_or(NEVER))
    }

    /// Naps. If it was woken before the time, how long that was.
    fn nap_until(&self, at_ns: u64) -> Option<u64> {
        let begin_ns = clock::now_ns();
        let ns = at_ns.saturating_sub(begin_ns).max(ladder::GRACE_NS);
        let state = &self.sched.sysmon;
        let is_long = ns > ladder::SLICE_NS;
        // Stays set during rounds, and short naps between long ones: a section that begins then ends the long nap.
        let slow = is_long || self.pace.nap_ns > ladder::SLICE_NS;
        if state.slow.load(Ordering::Relaxed) != slow {
            state.slow.store(slow, Ordering::SeqCst);
        }
        if !is_long {
            clock::nap(ns);
            return None;
        }
        let awaits_work = self.found.awaits_work;
        state.awaits_work.store(awaits_work, Ordering::SeqCst);
        // ORDERING: a pusher pushes to the queue before it reads `awaits_work` (`inject`).
        let has_work = awaits_work && self.sched.ps_in_use().any(|p| self.is_missed(p));
        let woken = has_work || state.note.sleep_timeout(ns);
        state.awaits_work.store(false, Ordering::SeqCst);
        woken.then(|| clock::now_ns() - begin_ns)
    }

    /// Whether a goroutine waits for a P that is in a blocking section.
    fn is_missed(&self, p: &P) -> bool {
        p.syscall.load(Ordering::Relaxed) != 0 && self.sched.node_of(p).queue.len() > 0
    }

    /// Whether nothing is to be done.
    fn all_idle(&self) -> bool {
        let sched = self.sched;
        let n_idle = sched.n_idle();
        let is_all = |n_unowned| are_idle(n_idle, n_unowned, sched.n_procs(), sched.is_numa());
        self.ps.stalls.as_ref().is_none_or(Stalls::is_quiet)
            && self.ps.unowned.n_idle().is_some_and(is_all)
    }

    /// Whether sysmon may sleep until a P stops being idle.
    fn may_sleep(&self) -> bool {
        let is_served = self.ps.look_at_ns() == NEVER && !self.sched.offload.awaits_thread();
        self.pace.is_slowest() && is_served && self.all_idle()
    }

    /// Sleeps until a P stops being idle, the run ends, or a duty that does not need goroutines is due. Status lines
    /// are due in `due_ns`.
    fn sleep(&mut self, due_ns: u64, hooks: &DebugHooks) {
        let sched = self.sched;
        let ns = due_ns.min(hooks.look_at_idle(sched));
        let now_ns = clock::now_ns();
        let stacks_ns = self.scavenger.longest_sleep_ns(sched, now_ns);
        let ns = ns
            .min(stacks_ns)
            .min(self.page_out.longest_sleep_ns(now_ns));
        let mut woken = true;
        let state = &sched.sysmon;
        state.deep.store(true, Ordering::SeqCst);
        // ORDERING: a P that stops being idle leaves its set and then reads `deep`.
        if self.all_idle() && sched.phase() == Phase::Running {
            if ns == NEVER {
                state.note.sleep();
            } else {
                woken = state.note.sleep_timeout(ns);
            }
        }
        state.deep.store(false, Ordering::SeqCst);
        if woken {
            self.pace = Pace::AFTER_SILENCE;
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
                cancel::cancel_waiting(sched);
                let ms = sched.ms.lock();
                let checks = ms.all.iter().map(|m| &m.checks.left);
                checks.for_each(|left| left.store(0, Ordering::Relaxed));
            }
            // Cancelled goroutines need Ps that are not stuck.
            self.round(clock::now_ns());
            n_sweeps += 1;
            clock::nap(if n_sweeps < 20 {
                ladder::GRACE_NS * 2
            } else {
                SWEEP_NS
            });
            hooks.look_at_end(sched, began_ns);
        }
        sched.set_phase(Phase::Stopping);
        world::refuse_jobs(sched);
        sched.ps_in_use().for_each(|p| wake::wake_sleeper(sched, p));
        let ms = sched.ms.lock();
        ms.all.iter().for_each(|m| m.note.wake());
        drop(ms);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn nap_after(n_rounds: u32, found: Findings) -> u64 {
        let mut pace = Pace::FAST;
        (0..n_rounds).for_each(|_| pace.note(found));
        pace.nap_ns()
    }

    #[test]
    fn rounds_without_work_come_less_and_less_often() {
        let nothing = Findings::default();
        assert_eq!(nap_after(QUIET_ROUNDS, nothing), ladder::GRACE_NS);
        assert_eq!(nap_after(QUIET_ROUNDS + 1, nothing), 2 * ladder::GRACE_NS);
        assert_eq!(nap_after(QUIET_ROUNDS + 20, nothing), ladder::HOG_NS);
    }

    /// The kernel refuses a thread now and may grant it later.
    #[test]
    fn ps_without_threads_are_idle_beside_one_that_takes_what_comes() {
        assert!(are_idle(2, 0, 2, false) && are_idle(2, 0, 2, true));
        assert!(are_idle(1, 1, 2, false));
        assert!(!are_idle(1, 1, 2, true), "it may be of another node");
        assert!(!are_idle(1, 0, 2, false), "one runs");
        assert!(!are_idle(0, 2, 2, false), "nobody takes what comes");
    }

    #[test]
    fn rare_rounds_come_with_the_looks_for_due_work() {
        let ms = ladder::LATE_NS;
        assert_eq!(round_after(7 * ms + 1, ladder::SLICE_NS), 7 * ms + 200_001);
        assert_eq!(round_after(7 * ms + 1, ms), 8 * ms);
        assert_eq!(round_after(7 * ms + 1, 10 * ms - 2), 16 * ms);
        assert_eq!(round_after(7 * ms, 10 * ms), 17 * ms);
    }

    #[test]
    fn short_sections_slow_the_rounds_down_and_work_speeds_them_up() {
        let sections = Findings {
            has_sections: true,
            ..Findings::default()
        };
        assert_eq!(nap_after(1_000, sections), ladder::SLICE_NS);
        let begun = Findings {
            has_new_section: true,
            ..sections
        };
        assert_eq!(nap_after(1_000, begun), ladder::SLICE_NS);
        let busy = Findings {
            is_busy: true,
            ..sections
        };
        assert_eq!(nap_after(1_000, busy), ladder::GRACE_NS);
    }

    /// A section wakes sysmon from naps longer than [`ladder::SLICE_NS`].
    #[test]
    fn a_section_after_a_silence_is_looked_at_twice_only_if_it_is_still_there() {
        let ended = Findings {
            has_sections: true,
            ..Findings::default()
        };
        let begun = Findings {
            has_new_section: true,
            ..ended
        };
        let mut pace = Pace::FAST;
        for i in 0..10 * QUIET_ROUNDS {
            pace.note_wake(ladder::LATE_NS);
            if i % 2 == 0 {
                pace.note(begun);
                assert_eq!(pace.nap_ns(), ladder::GRACE_NS);
            }
            pace.note(ended);
            assert!(pace.nap_ns() > ladder::SLICE_NS);
        }
    }

    #[test]
    fn sections_that_wake_it_again_and_again_are_looked_for_instead() {
        let mut pace = Pace::AFTER_SILENCE;
        let begun = Findings {
            has_sections: true,
            has_new_section: true,
            ..Findings::default()
        };
        for _ in 0..QUIET_ROUNDS {
            pace.note_wake(ladder::SLICE_NS);
            pace.note(begun);
            assert_eq!(pace.nap_ns(), ladder::GRACE_NS);
        }
        pace.note_wake(ladder::SLICE_NS);
        pace.note(begun);
        assert_eq!(pace.nap_ns(), ladder::SLICE_NS);
    }
}

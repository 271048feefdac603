//! Sysmon's help for a P whose goroutine computes while a timer is due or the poller has
//! something for other goroutines, and when it looks at the P again. Functions of numbers.
//!
//! A P runs its due timers and reads its completions between two dispatches, so both wait while one
//! goroutine computes. Such a goroutine may keep its P for [`ladder::SLICE_NS`]. After that
//!
//! - an idle P of the node is woken for a due timer: a thief runs the timers of its victims;
//! - for the poller, which only the holder of the P may use, and for a timer for which no idle P was
//!   found, the goroutine is asked to yield. It does so when it next enters the scheduler: one that
//!   forks, or tries a channel again and again, does so at once, and costs nobody a thread;
//! - if it has computed on by the next look, the P is retaken.
//!
//! A goroutine computes if the CPU time of its thread advances. Where others keep the CPUs busy, the
//! thread of a P may get none for a while: such a P is left alone, as its new thread would get none
//! either.
//!
//! Taking a P costs others more than waiting does where goroutines compute for a millisecond and
//! then give way: the thread that lost its P computes on beside the new one, at a low priority. So
//! sysmon measures how long those compute that it takes a P from. After some brief ones in a row it
//! lets goroutines compute for [`LONG_NS`], until one does ([`Patience`]).
//!
//! The times of timers are known, so sysmon sleeps until the first one that may have to be served.
//! Completions are not announced: sysmon looks for them, the less often the longer the goroutine
//! has computed. A P that makes progress is looked at once in [`ladder::LATE_NS`], and more often
//! ([`ALERT_GAP_NS`]) for a while after a P was found that did not.

use crate::sys::clock::NEVER;
use crate::util::ladder;

/// A thread that has used this much CPU time since an earlier look computes.
pub(crate) const SHORT_CPU_NS: u64 = ladder::SLICE_NS / 4;
/// Both bounds where goroutines are expected to compute briefly.
const LONG_NS: u64 = ladder::HOG_NS / 2;
const LONG_CPU_NS: u64 = LONG_NS / 2;
/// After so many brief ones in a row, the next one is expected to be brief.
const BRIEF_IN_A_ROW: u32 = 4;
/// A P that makes progress runs a timer within this time.
const DUE_FOR_NS: u64 = 3 * ladder::TICK_NS;
/// The interval after help was needed.
const ALERT_GAP_NS: u64 = ladder::SLICE_NS / 2;
/// Longest interval between two looks at a P whose goroutine computes.
const STUCK_GAP_NS: u64 = ladder::LATE_NS / 2;
/// For how long sysmon is alert after help was needed.
pub(crate) const ALERT_FOR_NS: u64 = 2 * ladder::HOG_NS;
/// Interval at which sysmon looks for completions that wait for a thread without a P.
pub(crate) const NUDGE_EVERY_NS: u64 = STUCK_GAP_NS;

/// How long goroutines that compute may keep their P, by what became of those that lost theirs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Patience {
    /// Goroutines that have lost their P and computed briefly, since one that did not.
    n_brief: u32,
}

impl Patience {
    /// A goroutine that lost its P has computed for so much CPU time, and is done or goes on.
    pub(crate) fn note(&mut self, cpu_ns: u64) {
        self.n_brief = match is_brief(cpu_ns) {
            true => self.n_brief.saturating_add(1),
            false => 0,
        };
    }

    fn is_long(self) -> bool {
        self.n_brief >= BRIEF_IN_A_ROW
    }

    /// How long a goroutine may compute.
    fn outside_ns(self) -> u64 {
        if self.is_long() {
            LONG_NS
        } else {
            ladder::SLICE_NS
        }
    }

    /// The CPU time after which a thread computes.
    pub(crate) fn computes_ns(self) -> u64 {
        if self.is_long() {
            LONG_CPU_NS
        } else {
            SHORT_CPU_NS
        }
    }
}

/// Whether a goroutine that computes for so much CPU time would better have kept its P.
pub(crate) fn is_brief(cpu_ns: u64) -> bool {
    cpu_ns < LONG_CPU_NS
}

/// The known state of a P's poller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PollerView {
    /// Nothing is in flight.
    Unused,
    /// Operations are in flight.
    Quiet,
    /// There are completions, or entries that were not submitted.
    Ready,
}

/// Sysmon's view of a P that is neither idle nor in a blocking section.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    pub(crate) now_ns: u64,
    /// When the P last made progress, as far as is known.
    pub(crate) since_ns: u64,
    /// When its next timer is due; [`NEVER`] for none.
    pub(crate) due_ns: u64,
    pub(crate) poller: PollerView,
    /// Whether its node has an idle P.
    pub(crate) any_idle: bool,
    pub(crate) patience: Patience,
    /// Whether the thread has used [`Patience::computes_ns`] of CPU time since an earlier look.
    pub(crate) computes: bool,
    /// Whether an idle P was already woken for the timer that is due.
    pub(crate) was_helped: bool,
    /// Whether its goroutine was asked to yield, and whether it has computed since.
    pub(crate) was_asked: bool,
    pub(crate) computes_on: bool,
    /// Whether help was needed, here or elsewhere, in the last [`ALERT_FOR_NS`].
    pub(crate) is_alert: bool,
}

/// The help for the goroutines that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Help {
    Nothing,
    /// Wake an idle P, which will run the timer.
    WakeIdle,
    /// Ask the goroutine to yield at its next entry.
    Ask,
    Retake,
}

impl View {
    fn stuck_for_ns(&self) -> u64 {
        self.now_ns.saturating_sub(self.since_ns)
    }

    pub(crate) fn is_stuck(&self) -> bool {
        self.stuck_for_ns() >= self.patience.outside_ns()
    }

    /// The time from which on the P's next timer is late.
    fn late_from_ns(&self) -> u64 {
        self.due_ns.saturating_add(DUE_FOR_NS)
    }

    pub(crate) fn help(&self) -> Help {
        let timer_is_late = self.late_from_ns() <= self.now_ns;
        let is_ready = self.poller == PollerView::Ready;
        if !self.is_stuck() || !(is_ready || timer_is_late) {
            return Help::Nothing;
        }
        let only_its_holder_helps = is_ready && self.computes;
        match self.computes && self.computes_on {
            _ if !only_its_holder_helps && timer_is_late && self.any_idle && !self.was_helped => {
                Help::WakeIdle
            }
            true => Help::Retake,
            false => Help::Ask,
        }
    }

    /// When to look at the P again, if by then it has made no progress. In [`ladder::LATE_NS`] at the
    /// latest: it may make progress just after this look, start a timer or an operation, and give
    /// way to a goroutine that computes. If it has neither timers nor operations now, [`NEVER`]: the
    /// next round of sysmon will look.
    pub(crate) fn look_again_ns(&self) -> u64 {
        if self.due_ns == NEVER && self.poller == PollerView::Unused {
            return NEVER;
        }
        if self.computes && !self.was_asked && self.help() == Help::Ask {
            return self.now_ns + ladder::GRACE_NS;
        }
        let may_be_stuck_ns = self.since_ns + self.patience.outside_ns();
        let stuck_gap_ns = (self.stuck_for_ns() / 4).clamp(ALERT_GAP_NS, STUCK_GAP_NS);
        let timer_ns = match self.due_ns {
            NEVER => NEVER,
            _ => self.late_from_ns().max(may_be_stuck_ns),
        };
        let poller_ns = match self.poller {
            PollerView::Unused => NEVER,
            _ if self.is_stuck() => self.now_ns + stuck_gap_ns,
            _ => may_be_stuck_ns,
        };
        let gap_ns = match (self.is_stuck(), self.is_alert) {
            // Of a timer that is late already: help is on the way, or could not be had.
            (true, _) if timer_ns <= self.now_ns => stuck_gap_ns,
            (true, _) => 0,
            (false, true) => ALERT_GAP_NS,
            (false, false) => ladder::LATE_NS,
        };
        let at_ns = timer_ns.min(poller_ns);
        at_ns.clamp(self.now_ns + gap_ns, self.now_ns + ladder::LATE_NS)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const NOW_NS: u64 = 1_000_000_000;

    /// A P whose goroutine has computed for so long, with nothing that waits.
    fn stuck_for(ns: u64) -> View {
        View {
            now_ns: NOW_NS,
            since_ns: NOW_NS - ns,
            due_ns: NEVER,
            poller: PollerView::Unused,
            any_idle: false,
            patience: Patience::default(),
            computes: true,
            was_helped: false,
            was_asked: true,
            computes_on: true,
            is_alert: false,
        }
    }

    #[test]
    fn without_timers_and_operations_nothing_is_done() {
        for ns in [0, ladder::SLICE_NS, 100 * ladder::SLICE_NS] {
            let view = stuck_for(ns);
            assert_eq!((view.help(), view.look_again_ns()), (Help::Nothing, NEVER));
        }
    }

    #[test]
    fn a_late_timer_wakes_an_idle_p_or_takes_the_p() {
        let late = View {
            due_ns: NOW_NS - DUE_FOR_NS,
            ..stuck_for(ladder::SLICE_NS)
        };
        assert_eq!(late.help(), Help::Retake);
        let any_idle = true;
        assert_eq!(View { any_idle, ..late }.help(), Help::WakeIdle);
        // The idle P has not come: it is not waited for again.
        let helped = View {
            any_idle,
            was_helped: true,
            ..late
        };
        assert_eq!(helped.help(), Help::Retake);
        assert_eq!(helped.look_again_ns(), NOW_NS + ALERT_GAP_NS);
    }

    #[test]
    fn a_goroutine_is_asked_first() {
        let late = View {
            due_ns: NOW_NS - DUE_FOR_NS,
            ..stuck_for(ladder::SLICE_NS)
        };
        let ready = View {
            poller: PollerView::Ready,
            ..stuck_for(ladder::SLICE_NS)
        };
        for view in [late, ready] {
            let computes_on = false;
            let second = View {
                computes_on,
                ..view
            };
            let was_asked = false;
            let first = View {
                was_asked,
                ..second
            };
            assert_eq!(first.help(), Help::Ask);
            assert_eq!(first.look_again_ns(), NOW_NS + ladder::GRACE_NS);
            // It has had no CPU since.
            assert_eq!(second.help(), Help::Ask);
            assert_eq!(second.look_again_ns(), NOW_NS + ALERT_GAP_NS);
            assert_eq!(view.help(), Help::Retake);
        }
    }

    #[test]
    fn a_thread_that_gets_no_cpu_keeps_its_p() {
        let waits = View {
            due_ns: NOW_NS - DUE_FOR_NS,
            poller: PollerView::Ready,
            computes: false,
            ..stuck_for(ladder::SLICE_NS)
        };
        // Its goroutine yields when it gets one.
        assert_eq!(waits.help(), Help::Ask);
        assert_eq!(waits.look_again_ns(), NOW_NS + ALERT_GAP_NS);
        let any_idle = true;
        assert_eq!(View { any_idle, ..waits }.help(), Help::WakeIdle);
    }

    #[test]
    fn a_goroutine_keeps_its_p_for_a_while() {
        let late = View {
            due_ns: NOW_NS - 1_000_000,
            poller: PollerView::Ready,
            ..stuck_for(ladder::SLICE_NS - 1)
        };
        assert_eq!(late.help(), Help::Nothing);
    }

    #[test]
    fn where_goroutines_compute_briefly_they_keep_their_p() {
        let mut patience = Patience::default();
        let ready = |ns, patience| View {
            poller: PollerView::Ready,
            patience,
            ..stuck_for(ns)
        };
        for _ in 0..BRIEF_IN_A_ROW {
            assert_eq!(ready(ladder::SLICE_NS, patience).help(), Help::Retake);
            patience.note(LONG_CPU_NS - 1);
        }
        assert_eq!(ready(LONG_NS - 1, patience).help(), Help::Nothing);
        assert_eq!(ready(LONG_NS, patience).help(), Help::Retake);
        assert_eq!(patience.computes_ns(), LONG_CPU_NS);
        // One that computes on.
        patience.note(LONG_CPU_NS);
        assert_eq!(ready(ladder::SLICE_NS, patience).help(), Help::Retake);
        assert_eq!(patience.computes_ns(), SHORT_CPU_NS);
    }

    #[test]
    fn only_a_ready_poller_takes_the_p() {
        let quiet = View {
            poller: PollerView::Quiet,
            any_idle: true,
            ..stuck_for(ladder::SLICE_NS)
        };
        assert_eq!(quiet.help(), Help::Nothing);
        let ready = View {
            poller: PollerView::Ready,
            ..quiet
        };
        assert_eq!(ready.help(), Help::Retake);
    }

    #[test]
    fn the_next_look_at_a_stuck_p_is_when_its_timer_is_late() {
        let waits = View {
            due_ns: NOW_NS + 400_000,
            ..stuck_for(2 * ladder::SLICE_NS)
        };
        assert_eq!(waits.help(), Help::Nothing);
        assert_eq!(waits.look_again_ns(), NOW_NS + 400_000 + DUE_FOR_NS);
        let far = View {
            due_ns: NOW_NS + 3_000_000,
            ..waits
        };
        assert_eq!(far.look_again_ns(), NOW_NS + ladder::LATE_NS);
    }

    #[test]
    fn a_quiet_poller_is_looked_at_less_and_less_often() {
        let gap = |ns| {
            let view = View {
                poller: PollerView::Quiet,
                ..stuck_for(ns)
            };
            view.look_again_ns() - NOW_NS
        };
        assert_eq!(gap(ladder::SLICE_NS), ALERT_GAP_NS);
        assert_eq!(gap(1_000_000), 250_000);
        assert_eq!(gap(100_000_000), STUCK_GAP_NS);
    }

    #[test]
    fn a_p_that_makes_progress_is_looked_at_rarely() {
        let busy = View {
            due_ns: NOW_NS + 1_000,
            poller: PollerView::Quiet,
            ..stuck_for(0)
        };
        assert_eq!(busy.look_again_ns(), NOW_NS + ladder::LATE_NS);
        let alert = View {
            is_alert: true,
            ..busy
        };
        assert_eq!(alert.look_again_ns(), NOW_NS + ladder::SLICE_NS);
        let far = View {
            due_ns: NOW_NS + 5_000_000,
            poller: PollerView::Unused,
            ..busy
        };
        assert_eq!(far.look_again_ns(), NOW_NS + ladder::LATE_NS);
    }

    /// A goroutine computes for good: whenever a timer falls due or a completion comes, how long it
    /// takes until the P is taken.
    #[test]
    fn the_longest_wait_beside_a_hog_is_bounded() {
        for (is_alert, bound_ns) in [(true, 550_000), (false, 1_050_000)] {
            for event_ns in (0..5_000_000).step_by(10_000) {
                for is_timer in [true, false] {
                    let at = |now_ns: u64| View {
                        now_ns: NOW_NS + now_ns,
                        since_ns: NOW_NS,
                        due_ns: if is_timer { NOW_NS + event_ns } else { NEVER },
                        poller: match (is_timer, now_ns >= event_ns) {
                            (true, _) => PollerView::Unused,
                            (false, false) => PollerView::Quiet,
                            (false, true) => PollerView::Ready,
                        },
                        any_idle: false,
                        patience: Patience::default(),
                        computes: true,
                        was_helped: false,
                        was_asked: false,
                        computes_on: false,
                        is_alert,
                    };
                    let (mut now_ns, mut was_asked) = (0, false);
                    loop {
                        let view = View {
                            was_asked,
                            computes_on: was_asked,
                            ..at(now_ns)
                        };
                        match view.help() {
                            Help::Retake => break,
                            help => was_asked = help == Help::Ask,
                        }
                        let next_ns = view.look_again_ns() - NOW_NS;
                        assert!(next_ns > now_ns);
                        now_ns = next_ns;
                    }
                    let late_ns = now_ns - event_ns;
                    assert!(late_ns <= bound_ns, "{event_ns}: {late_ns} late");
                }
            }
        }
    }
}

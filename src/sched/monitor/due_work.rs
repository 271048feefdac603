//! Sysmon's help for a P whose goroutine computes while a timer is due or the poller has
//! something for other goroutines, and when it looks at the P again. Functions of numbers.
//!
//! A P runs its due timers and reads its completions between two dispatches, so both wait while one
//! goroutine computes. Such a goroutine may keep its P for [`ladder::SLICE_NS`]. After that
//!
//! - an idle P of the node is woken for a due timer: a thief runs the timers of its victims;
//! - for the poller, which only the holder of the P may use, and for a timer for which no idle P was
//!   found, the goroutine is asked to yield. It does so when it next enters the scheduler: one that
//!   tries a channel again and again does so at once, and costs nobody a thread;
//! - if it has computed on by the next look, the P is retaken.
//!
//! A goroutine computes if the CPU time of its thread advances. Where others keep the CPUs busy, the
//! thread of a P may get none for a while: such a P is left alone, as its new thread would get none
//! either. Reading that clock is a system call, so it is read only where the answer changes something
//! ([`View::needs_cpu_time`]): not of a P that makes progress.
//!
//! Taking a P costs others more than waiting does where goroutines compute for a millisecond and
//! then give way: the thread that lost its P computes on beside the new one, at a low priority. So
//! sysmon measures how long those compute that it takes a P from. After some brief ones in a row it
//! lets goroutines compute for [`LONG_NS`], until one does ([`RetakeDelay`]).
//!
//! The times of timers are known, so sysmon sleeps until the first one that may have to be served.
//! Completions are not announced: sysmon looks for them, the less often the longer the goroutine
//! has computed. A P that makes progress, and one whose thread gets no CPU, is looked at once in
//! [`ladder::LATE_NS`], at the same time as all others. For a while after a goroutine was found that computes while
//! others are due, it is looked at more often ([`ALERT_GAP_NS`]).

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
pub(crate) struct RetakeDelay {
    /// Goroutines that have lost their P and computed briefly, since one that did not.
    n_brief: u32,
}

impl RetakeDelay {
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
    fn longest_ns(self) -> u64 {
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
    pub(crate) delay: RetakeDelay,
    /// The CPU time of its thread since an earlier look; `None` if it was not read then or now.
    pub(crate) used_ns: Option<u64>,
    /// Whether an idle P was already woken for the timer that is due.
    pub(crate) was_helped: bool,
    /// The CPU time of its thread since its goroutine was asked to yield, if it was.
    pub(crate) asked_used_ns: Option<u64>,
    /// Whether a goroutine that computes needed help, here or elsewhere, in the last [`ALERT_FOR_NS`].
    pub(crate) is_alert: bool,
    /// Whether any help was given in that time: who waited may soon wait again.
    pub(crate) has_helped: bool,
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
        self.stuck_for_ns() >= self.delay.longest_ns()
    }

    /// The time from which on the P's next timer is late.
    fn late_from_ns(&self) -> u64 {
        self.due_ns.saturating_add(DUE_FOR_NS)
    }

    fn timer_is_late(&self) -> bool {
        self.late_from_ns() <= self.now_ns
    }

    /// Whether the CPU time of the thread changes what is done, or when to look again. The first reading, at a P
    /// where work may fall due, is for later ones to be compared with.
    pub(crate) fn needs_cpu_time(&self, is_first: bool) -> bool {
        let may_have_work = self.due_ns != NEVER || self.poller != PollerView::Unused;
        let matters = self.timer_is_late() || self.poller != PollerView::Unused;
        self.is_stuck() && may_have_work && (is_first || matters)
    }

    /// Whether the goroutine computes, by the CPU time of its thread.
    pub(crate) fn computes(&self) -> bool {
        self.used_ns
            .is_some_and(|used| used >= self.delay.computes_ns())
    }

    /// Whether it has computed since it was asked to yield.
    fn computes_on(&self) -> bool {
        self.asked_used_ns
            .is_some_and(|used| used >= ladder::TICK_NS)
    }

    /// Whether the thread had no CPU since an earlier look, or since its goroutine was asked to yield.
    fn had_no_cpu(&self) -> bool {
        let waits = self.asked_used_ns.is_some() && !self.computes_on();
        self.used_ns
            .is_some_and(|used| used < ladder::TICK_NS || waits)
    }

    pub(crate) fn help(&self) -> Help {
        let is_ready = self.poller == PollerView::Ready;
        if !self.is_stuck() || !(is_ready || self.timer_is_late()) {
            return Help::Nothing;
        }
        let only_its_holder_helps = is_ready && self.computes();
        let is_for_idle = self.timer_is_late() && self.any_idle && !self.was_helped;
        match self.computes() && self.computes_on() {
            _ if !only_its_holder_helps && is_for_idle => Help::WakeIdle,
            true => Help::Retake,
            false => Help::Ask,
        }
    }

    /// When to look at the P again, if by then it has made no progress. In [`ladder::LATE_NS`] at the
    /// latest: it may make progress just after this look, start a timer or an operation, and give
    /// way to a goroutine that computes. If it has neither timers nor operations now, and no help was given
    /// lately, [`NEVER`]: the next round of sysmon will look.
    pub(crate) fn next_look_ns(&self) -> u64 {
        if self.due_ns == NEVER && self.poller == PollerView::Unused {
            return match self.has_helped {
                true => next_tick_ns(self.now_ns),
                false => NEVER,
            };
        }
        let is_asked_now = self.help() == Help::Ask && self.asked_used_ns.is_none();
        if is_asked_now && (self.computes() || self.used_ns.is_none()) {
            return self.now_ns + self.until_computes_on_ns();
        }
        if self.is_stuck() {
            self.look_while_stuck_ns()
        } else {
            self.look_while_moving_ns()
        }
    }

    fn look_while_moving_ns(&self) -> u64 {
        let event_ns = match self.poller {
            PollerView::Unused => self.late_from_ns(),
            _ => 0,
        };
        let may_be_stuck_ns = self.since_ns + self.delay.longest_ns();
        match self.is_alert {
            true => event_ns
                .max(may_be_stuck_ns)
                .clamp(self.now_ns + ALERT_GAP_NS, self.latest_ns()),
            false => next_tick_ns(self.now_ns),
        }
    }

    fn look_while_stuck_ns(&self) -> u64 {
        let is_left_alone = self.had_no_cpu() || self.help() == Help::WakeIdle;
        if is_left_alone && !self.computes() {
            return match self.is_alert {
                true => self.now_ns + ALERT_GAP_NS,
                false => next_tick_ns(self.now_ns),
            };
        }
        let gap_ns = (self.stuck_for_ns() / 4).clamp(ALERT_GAP_NS, STUCK_GAP_NS);
        // A timer that is late already: help is on the way, or could not be had.
        let is_repeated = self.timer_is_late() || self.poller != PollerView::Unused;
        let again_ns = if is_repeated {
            self.now_ns + gap_ns
        } else {
            NEVER
        };
        let late_from_ns = match self.timer_is_late() {
            true => NEVER,
            false => self.late_from_ns(),
        };
        again_ns.min(late_from_ns).min(self.latest_ns())
    }

    fn latest_ns(&self) -> u64 {
        self.now_ns + ladder::LATE_NS
    }

    /// How long a goroutine that was asked to yield now needs to show that it computes on.
    fn until_computes_on_ns(&self) -> u64 {
        match self.computes() {
            true => ladder::GRACE_NS,
            false => ladder::LATE_NS.min(self.delay.computes_ns() + ladder::TICK_NS),
        }
    }
}

/// When all Ps are looked at next, if nothing calls for an earlier look: at one time, for one wake-up of sysmon.
pub(crate) fn next_tick_ns(now_ns: u64) -> u64 {
    (now_ns / ladder::LATE_NS + 1) * ladder::LATE_NS
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
            delay: RetakeDelay::default(),
            used_ns: Some(LONG_CPU_NS),
            was_helped: false,
            asked_used_ns: Some(ladder::TICK_NS),
            is_alert: false,
            has_helped: false,
        }
    }

    #[test]
    fn without_timers_and_operations_nothing_is_done() {
        for ns in [0, ladder::SLICE_NS, 100 * ladder::SLICE_NS] {
            let view = stuck_for(ns);
            assert_eq!((view.help(), view.next_look_ns()), (Help::Nothing, NEVER));
        }
    }

    /// A goroutine that sleeps again and again computes for a moment in between: a look may come then.
    #[test]
    fn after_help_was_given_the_next_look_is_soon() {
        let view = View {
            has_helped: true,
            ..stuck_for(ladder::SLICE_NS)
        };
        assert_eq!(view.next_look_ns(), NOW_NS + ladder::LATE_NS);
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
        assert_eq!(helped.next_look_ns(), NOW_NS + ALERT_GAP_NS);
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
            let first = View {
                asked_used_ns: None,
                ..view
            };
            assert_eq!(first.help(), Help::Ask);
            assert_eq!(first.next_look_ns(), NOW_NS + ladder::GRACE_NS);
            // It has had no CPU since.
            let second = View {
                asked_used_ns: Some(0),
                ..view
            };
            assert_eq!(second.help(), Help::Ask);
            assert_eq!(second.next_look_ns(), NOW_NS + ALERT_GAP_NS);
            assert_eq!(view.help(), Help::Retake);
        }
    }

    #[test]
    fn a_thread_that_gets_no_cpu_keeps_its_p() {
        let waits = View {
            due_ns: NOW_NS - DUE_FOR_NS,
            poller: PollerView::Ready,
            used_ns: Some(0),
            ..stuck_for(ladder::SLICE_NS)
        };
        // Its goroutine yields when it gets one.
        assert_eq!(waits.help(), Help::Ask);
        assert_eq!(waits.next_look_ns(), NOW_NS + ladder::LATE_NS);
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
        let mut delay = RetakeDelay::default();
        let ready = |ns, delay| View {
            poller: PollerView::Ready,
            delay,
            ..stuck_for(ns)
        };
        for _ in 0..BRIEF_IN_A_ROW {
            assert_eq!(ready(ladder::SLICE_NS, delay).help(), Help::Retake);
            delay.note(LONG_CPU_NS - 1);
        }
        assert_eq!(ready(LONG_NS - 1, delay).help(), Help::Nothing);
        assert_eq!(ready(LONG_NS, delay).help(), Help::Retake);
        assert_eq!(delay.computes_ns(), LONG_CPU_NS);
        // One that computes on.
        delay.note(LONG_CPU_NS);
        assert_eq!(ready(ladder::SLICE_NS, delay).help(), Help::Retake);
        assert_eq!(delay.computes_ns(), SHORT_CPU_NS);
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
        assert_eq!(waits.next_look_ns(), NOW_NS + 400_000 + DUE_FOR_NS);
        let far = View {
            due_ns: NOW_NS + 3_000_000,
            ..waits
        };
        assert_eq!(far.next_look_ns(), NOW_NS + ladder::LATE_NS);
    }

    #[test]
    fn a_quiet_poller_is_looked_at_less_and_less_often() {
        let gap = |ns| {
            let view = View {
                poller: PollerView::Quiet,
                ..stuck_for(ns)
            };
            view.next_look_ns() - NOW_NS
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
        assert_eq!(busy.next_look_ns(), NOW_NS + ladder::LATE_NS);
        let alert = View {
            is_alert: true,
            ..busy
        };
        assert_eq!(alert.next_look_ns(), NOW_NS + ladder::SLICE_NS);
        let far = View {
            due_ns: NOW_NS + 5_000_000,
            poller: PollerView::Unused,
            ..busy
        };
        assert_eq!(far.next_look_ns(), NOW_NS + ladder::LATE_NS);
    }

    #[test]
    fn the_cpu_time_is_read_where_it_matters() {
        let quiet = View {
            poller: PollerView::Quiet,
            ..stuck_for(ladder::SLICE_NS)
        };
        assert!(quiet.needs_cpu_time(true) && quiet.needs_cpu_time(false));
        let moving = View {
            since_ns: NOW_NS,
            due_ns: NOW_NS - 1_000_000,
            ..quiet
        };
        assert!(!moving.needs_cpu_time(true));
        let early = View {
            due_ns: NOW_NS + 1_000_000,
            ..stuck_for(ladder::SLICE_NS)
        };
        assert!(early.needs_cpu_time(true) && !early.needs_cpu_time(false));
        assert!(!stuck_for(ladder::SLICE_NS).needs_cpu_time(true));
    }

    #[test]
    fn a_goroutine_that_is_seen_for_the_first_time_shows_soon_whether_it_computes() {
        let first = View {
            poller: PollerView::Ready,
            used_ns: None,
            asked_used_ns: None,
            ..stuck_for(ladder::SLICE_NS)
        };
        assert_eq!(first.help(), Help::Ask);
        let again_ns = first.next_look_ns() - NOW_NS;
        assert_eq!(again_ns, SHORT_CPU_NS + ladder::TICK_NS);
        let second = View {
            now_ns: NOW_NS + again_ns,
            used_ns: Some(again_ns),
            asked_used_ns: Some(again_ns),
            ..first
        };
        assert_eq!(second.help(), Help::Retake);
    }

    #[test]
    fn ps_that_move_on_are_looked_at_together() {
        let at = |now_ns| View {
            now_ns,
            since_ns: now_ns,
            due_ns: now_ns + 1,
            ..stuck_for(0)
        };
        assert_eq!(at(NOW_NS + 1).next_look_ns(), NOW_NS + ladder::LATE_NS);
        assert_eq!(
            at(NOW_NS + 999_999).next_look_ns(),
            NOW_NS + ladder::LATE_NS
        );
    }

    /// A goroutine computes for good: whenever a timer falls due or a completion comes, and whenever sysmon
    /// looks first, how long it takes until the P is taken.
    #[test]
    fn the_longest_wait_beside_a_hog_is_bounded() {
        for (is_alert, bound_ns) in [(true, 570_000), (false, 1_070_000)] {
            for event_ns in (0..5_000_000).step_by(10_000) {
                for first_ns in [0, 10_000, 500_000, 990_000] {
                    for is_timer in [true, false] {
                        let taken_ns = taken_at(event_ns, first_ns, is_timer, is_alert);
                        let late_ns = taken_ns - event_ns.max(first_ns);
                        assert!(late_ns <= bound_ns, "{event_ns}: {late_ns} late");
                    }
                }
            }
        }
    }

    /// When the P of a goroutine is taken that computes from time 0 on.
    fn taken_at(event_ns: u64, first_ns: u64, is_timer: bool, is_alert: bool) -> u64 {
        let (mut now_ns, mut read_ns, mut asked_ns) = (first_ns, None, None);
        loop {
            let since = |before_ns: u64| now_ns - before_ns;
            let mut view = View {
                now_ns: NOW_NS + now_ns,
                since_ns: NOW_NS,
                due_ns: if is_timer { NOW_NS + event_ns } else { NEVER },
                poller: match (is_timer, now_ns >= event_ns) {
                    (true, _) => PollerView::Unused,
                    (false, false) => PollerView::Quiet,
                    (false, true) => PollerView::Ready,
                },
                any_idle: false,
                delay: RetakeDelay::default(),
                used_ns: None,
                was_helped: false,
                asked_used_ns: asked_ns.map(since),
                is_alert,
                has_helped: false,
            };
            if view.needs_cpu_time(read_ns.is_none()) {
                view.used_ns = read_ns.map(since);
                read_ns.get_or_insert(now_ns);
            }
            match view.help() {
                Help::Retake => return now_ns,
                Help::Ask => asked_ns = asked_ns.or(Some(now_ns)),
                Help::WakeIdle | Help::Nothing => {}
            }
            let next_ns = view.next_look_ns() - NOW_NS;
            assert!(next_ns > now_ns);
            now_ns = next_ns;
        }
    }
}

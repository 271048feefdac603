//! Sysmon's duties at the Ps. A *round* visits all of them; between rounds, sysmon looks only where work may be due.
//!
//! | sysmon sees at a P                                   | and                                                     |
//! |------------------------------------------------------|---------------------------------------------------------|
//! | the blocking section of the last round, and work     | retakes the P                                           |
//! | a section for 10 ms, and no work                     | retakes the P, so that it becomes idle                  |
//! | a goroutine in the queue, behind one that runs on    | wakes an idle P                                         |
//! | a timer or a completion that waits ([`due_work`])    | wakes an idle P, asks the goroutine to yield, or        |
//! |                                                      | retakes the P                                           |
//! | a goroutine that has run for 10 ms, and work         | asks the goroutine to yield, or retakes the P           |
//! | a goroutine that has run for longer than it should   | reports it ([`super::stall`])                           |

use super::due_work::{self, Help, PollerView, RetakeDelay, View};
use super::p_record::PRecord;
use super::retake::{self, UnownedPs, may_take, owner_of};
use super::stall::Stalls;
use super::stragglers::Stragglers;
use crate::loom::Ordering;
use crate::sched::types::events::EventKind;
use crate::sched::types::p::P;
use crate::sched::types::state::Sched;
use crate::sched::wait::handoff::LEFT;
use crate::sched::wait::wake;
use crate::sys::clock::{self, NEVER};
use crate::util::ladder;

/// A P whose last reading of the clock is this old runs one goroutine since.
const UNREAD_AFTER_NS: u64 = 2 * ladder::GRACE_NS;

/// Findings of a round at the Ps.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Findings {
    /// Something was done, or will be if the next look finds the same: that look should come soon.
    pub(crate) is_busy: bool,
    /// Goroutines go from one blocking section to the next, while others wait.
    pub(crate) has_sections: bool,
    /// A blocking section has begun at a P that has work: a look that comes soon tells whether it lasts.
    pub(crate) has_new_section: bool,
    /// Some P is in a blocking section and has no work: a goroutine queued on its node has to wake
    /// sysmon.
    pub(crate) awaits_work: bool,
}

/// The Ps, as sysmon knows them.
pub(crate) struct Ps<'a> {
    sched: &'a Sched,
    records: Vec<PRecord<'a>>,
    /// Ps that were retaken: for a moment, or because no thread is available for them.
    pub(crate) unowned: UnownedPs<'a>,
    stragglers: Stragglers<'a>,
    delay: RetakeDelay,
    /// Until when Ps are looked at more often.
    alert_until_ns: u64,
    /// Until when Ps are looked at though nothing waits there.
    helped_until_ns: u64,
    /// When a P or a straggler must be looked at again; [`NEVER`] if none needs it.
    look_at_ns: u64,
    /// Set if stall reports were requested.
    pub(crate) stalls: Option<Stalls<'a>>,
    found: Findings,
}

impl<'a> Ps<'a> {
    pub(crate) fn new(sched: &'a Sched) -> Ps<'a> {
        Ps {
            sched,
            records: sched.ps.iter().map(|_| PRecord::new()).collect(),
            unowned: UnownedPs::new(sched),
            stragglers: Stragglers::new(sched),
            delay: RetakeDelay::default(),
            alert_until_ns: 0,
            helped_until_ns: 0,
            look_at_ns: NEVER,
            stalls: Stalls::new(sched),
            found: Findings::default(),
        }
    }

    /// When to look for due work again; [`NEVER`] if only the next round needs to.
    pub(crate) fn look_at_ns(&self) -> u64 {
        self.look_at_ns
    }

    /// Visits all Ps.
    pub(crate) fn round(&mut self, now_ns: u64) -> Findings {
        self.found = Findings::default();
        self.look_at_ns = self.stragglers.serve(now_ns, &mut self.delay);
        for p in self.sched.ps_in_use() {
            self.visit(p, now_ns);
        }
        if let Some(stalls) = &mut self.stalls {
            stalls.check_without_p(self.sched, now_ns);
        }
        self.found
    }

    /// Between two rounds: serves the stragglers, and the Ps where work may be due.
    pub(crate) fn look_for_due_work(&mut self, now_ns: u64) {
        self.look_at_ns = self.stragglers.serve(now_ns, &mut self.delay);
        for p in self.sched.ps_in_use() {
            let is_outside = p.syscall.load(Ordering::Acquire) == 0;
            if is_outside && !self.is_idle(p) {
                let record = &mut self.records[p.idx];
                if record.is_to_be_looked_at(now_ns) {
                    record.note_outside(p, owner_of(p), now_ns);
                }
                self.serve_due_work(p, now_ns);
            }
        }
    }

    /// The process was stopped: what lasted then counts as begun `later`.
    pub(crate) fn begin_later(&mut self, later: impl Fn(&mut u64)) {
        let records = self.records.iter_mut();
        records.for_each(|record| record.begin_later(&later));
        if let Some(stalls) = &mut self.stalls {
            stalls.begin_later(later);
        }
    }

    fn is_idle(&self, p: &P) -> bool {
        self.sched.node_of(p).idle.is_idle(p.at_in_node)
    }

    /// Whether something waits for this P, or for any of its node.
    fn is_wanted(&self, p: &P) -> bool {
        p.has_work() || self.sched.node_of(p).queue.len() > 0
    }

    fn visit(&mut self, p: &'a P, now_ns: u64) {
        if self.is_idle(p) {
            return self.records[p.idx].note_idle();
        }
        let m_id = p.syscall.load(Ordering::Acquire);
        if m_id != 0 {
            return self.visit_section(p, m_id, now_ns);
        }
        let (owner, record) = (owner_of(p), &mut self.records[p.idx]);
        record.note_outside(p, owner, now_ns);
        let for_ns = now_ns - record.since_ns;
        let is_hog = for_ns >= ladder::HOG_NS;
        self.found.has_sections |= record.had_section(now_ns) && self.is_wanted(p);
        // A P that dispatches reads its clock about every 10 us, so one look tells.
        let unread_ns = now_ns.saturating_sub(p.local.pace.now_ns());
        if for_ns >= ladder::GRACE_NS || unread_ns >= UNREAD_AFTER_NS {
            self.found.is_busy |= self.help_waiting(p);
        }
        if for_ns >= ladder::GRACE_NS
            && let (Some(stalls), Some(m)) = (&self.stalls, owner)
        {
            stalls.check(self.sched, p, m, &mut self.records[p.idx], now_ns);
        }
        if is_hog {
            // Keeps timestamps of the P's goroutine (the start of a wait, say) from being as old as its
            // last dispatch.
            p.local.pace.set_now_ns(now_ns);
        }
        let was_asked = self.records[p.idx].asked_cpu_ns.is_some();
        let is_retaken = self.serve_due_work(p, now_ns);
        // One that was asked to yield just now may do so.
        let is_asked_now = !was_asked && self.records[p.idx].asked_cpu_ns.is_some();
        if is_hog && !is_retaken && !is_asked_now {
            self.found.is_busy |= self.retake_hog(p, now_ns, false);
        }
    }

    /// Wakes an idle P for goroutines that wait behind another one on `p`: neither runnext nor a
    /// yield wakes an M for them. `true` if it did: this may happen again.
    fn help_waiting(&self, p: &P) -> bool {
        let sched = self.sched;
        let is_stuck = !p.runq.is_empty() && sched.idle_nodes.any();
        if is_stuck {
            wake::wake_in(sched, sched.node_of(p), Some(p));
        }
        is_stuck
    }

    /// Handles a P in a blocking section. If the P has work, it is retaken when it was in the same
    /// section in the last round, or when its goroutine has gone from one section to the next for
    /// 10 ms; where it may not be taken, that goroutine is asked to yield. Without work it is retaken after 10 ms, so
    /// that it becomes idle.
    fn visit_section(&mut self, p: &'a P, m_id: u64, now_ns: u64) {
        let (sched, wanted) = (self.sched, self.is_wanted(p));
        let record = &mut self.records[p.idx];
        let is_new = record.note_inside(p, now_ns);
        record.look_at_ns = NEVER;
        let is_hog = now_ns - record.since_ns >= ladder::HOG_NS;
        let for_ns = now_ns - record.section_since_ns;
        self.found.has_sections |= wanted && record.had_section(now_ns);
        self.found.has_new_section |= wanted && is_new;
        let is_due = match (m_id == LEFT, wanted) {
            // The M has given it up, so no M will return for it.
            (true, _) => true,
            (false, true) => !is_new || is_hog,
            (false, false) => for_ns >= ladder::HOG_NS,
        };
        let is_taken = is_due && (m_id == LEFT || may_take(sched, p, now_ns));
        if is_taken && retake::retake_syscall(p, m_id) {
            p.taken.from_sections.fetch_add(1, Ordering::Relaxed);
            sched.trace_other(EventKind::RetakeSection, Some(p), None);
            self.unowned.hand_on(p);
        } else if !wanted {
            self.found.awaits_work = true;
        } else if is_hog && let Some(m) = owner_of(p) {
            // It is to let others run before its next section.
            retake::request_preempt(m, p);
        }
        // Without a thread for the P, sysmon is woken when there is one. A section that has just begun is no
        // reason to hurry: it may be one of many.
        self.found.is_busy |= wanted && is_taken;
    }

    /// Helps the goroutines whose timer is due at `p`, or for which its poller has something, if
    /// the goroutine that runs there computes. `true` if the P was retaken for them.
    fn serve_due_work(&mut self, p: &'a P, now_ns: u64) -> bool {
        let look_at_ns = match self.records[p.idx].is_to_be_looked_at(now_ns) {
            false => self.records[p.idx].look_at_ns,
            true => {
                let (view, cpu_ns) = self.view(p, now_ns);
                if self.help(p, &view, cpu_ns) {
                    return true;
                }
                view.next_look_ns()
            }
        };
        self.records[p.idx].look_at_ns = look_at_ns;
        self.look_at_ns = self.look_at_ns.min(look_at_ns);
        false
    }

    /// The numbers that decide about help at `p`, and the CPU time of its thread, if that was read.
    fn view(&mut self, p: &'a P, now_ns: u64) -> (View, Option<u64>) {
        let record = &mut self.records[p.idx];
        let due_ns = p.timers.next_ns();
        let mut view = View {
            now_ns,
            since_ns: record.progress_ns,
            due_ns,
            poller: match p.poller.inflight() {
                0 => PollerView::Unused,
                _ => PollerView::Quiet,
            },
            any_idle: self.sched.node_of(p).idle.any_idle(),
            delay: self.delay,
            used_ns: None,
            was_helped: record.helped_due_ns == due_ns,
            asked_used_ns: record.asked_cpu_ns.map(|_| 0),
            is_alert: now_ns < self.alert_until_ns,
            has_helped: now_ns < self.helped_until_ns,
        };
        // Only of a P that is stuck: its holder would have to fetch the words back.
        if view.poller == PollerView::Quiet && view.is_stuck() && p.poller.has_news() {
            view.poller = PollerView::Ready;
        }
        let needs_cpu_time = view.needs_cpu_time(record.cpu_ns.is_none());
        let owner = owner_of(p).filter(|_| needs_cpu_time);
        let cpu_ns = owner.and_then(|m| clock::thread_cpu_ns(m.tid.load(Ordering::Relaxed)));
        if let Some(cpu_ns) = cpu_ns {
            let since = |before_ns: u64| cpu_ns.saturating_sub(before_ns);
            view.used_ns = record.cpu_ns.map(since);
            view.asked_used_ns = record.asked_cpu_ns.map(since);
            record.cpu_ns.get_or_insert(cpu_ns);
        } else if needs_cpu_time {
            // No thread holds it.
            view.used_ns = Some(0);
        }
        (view, cpu_ns)
    }

    /// Gives the help that the view of `p` calls for. `true` if the P was retaken.
    fn help(&mut self, p: &'a P, view: &View, cpu_ns: Option<u64>) -> bool {
        let (help, record) = (view.help(), &mut self.records[p.idx]);
        if help != Help::Nothing {
            self.helped_until_ns = view.now_ns + due_work::ALERT_FOR_NS;
            if view.computes() {
                self.alert_until_ns = self.helped_until_ns;
            }
        }
        match help {
            Help::Nothing => {}
            Help::WakeIdle => {
                record.helped_due_ns = view.due_ns;
                wake::wake_in(self.sched, self.sched.node_of(p), Some(p));
            }
            Help::Ask => {
                record.asked_cpu_ns.get_or_insert(cpu_ns.unwrap_or(NEVER));
                owner_of(p).inspect(|m| retake::request_preempt(m, p));
            }
            Help::Retake => return self.retake_hog(p, view.now_ns, true),
        }
        false
    }

    /// One goroutine has run, or blocked its thread, for too long: retakes its P, if there is
    /// work for it. `is_due` says that a timer or the poller waits.
    fn retake_hog(&mut self, p: &'a P, now_ns: u64, is_due: bool) -> bool {
        let sched = self.sched;
        let Some(m) = owner_of(p) else {
            return false;
        };
        let wanted = is_due || p.has_work() || sched.nodes.iter().any(|n| n.queue.len() > 0);
        if !wanted || !retake::retake_running(m, p, may_take(sched, p, now_ns)) {
            return false;
        }
        let record = &mut self.records[p.idx];
        record.since_ns = now_ns;
        record.look_at_ns = NEVER;
        let stall = record.stall.take();
        if let Some(stalls) = &mut self.stalls {
            stalls.lost_p(stall, m, record.outside_since_ns);
        }
        let begin_cpu_ns = record.cpu_ns.filter(|_| is_due);
        let settled_ns = self.stragglers.add(m, begin_cpu_ns, now_ns);
        self.look_at_ns = self.look_at_ns.min(settled_ns);
        p.taken.from_hogs.fetch_add(1, Ordering::Relaxed);
        if is_due {
            p.taken.for_due.fetch_add(1, Ordering::Relaxed);
            // Goroutines in the node queue may be hogs that lost their P. No M holds the P now.
            p.put_due_first();
        }
        sched.trace_other(EventKind::RetakeHog, Some(p), None);
        self.unowned.hand_on(p);
        true
    }
}

#[cfg(all(test, not(loom)))]
#[path = "ps_tests.rs"]
mod tests;

//! The record that sysmon keeps of each P.

use crate::loom::Ordering;
use crate::sched::types::debug_hooks::Stall;
use crate::sched::types::m::Carrier;
use crate::sched::types::p::P;
use crate::sys::clock::NEVER;
use crate::util::ladder;

/// The state of a P when sysmon last looked, and since when it has been like that.
#[derive(Debug)]
pub(crate) struct PRecord<'a> {
    dispatches: u64,
    /// The counts of calls of its M's goroutines, which a computation does not make.
    calls: Option<(u32, u32)>,
    /// The time from which on it has dispatched nothing; 0 if unknown.
    pub(crate) since_ns: u64,
    /// The time from which on it has dispatched nothing and its goroutine was in no blocking section; 0 while it
    /// is in one.
    pub(crate) outside_since_ns: u64,
    /// The blocking section that it was in last, and since when.
    section: u32,
    pub(crate) section_since_ns: u64,
    /// When it last made progress: it dispatched, its goroutine called, or its M was in its loop.
    pub(crate) progress_ns: u64,
    /// The CPU time of its thread at the first reading since then, if there was one.
    pub(crate) cpu_ns: Option<u64>,
    /// The CPU time when its goroutine was asked to yield, if it was since then.
    pub(crate) asked_cpu_ns: Option<u64>,
    /// The due time of the timer for which an idle P was woken last.
    pub(crate) helped_due_ns: u64,
    /// When to look for due work there; [`NEVER`]: whenever sysmon is awake.
    pub(crate) look_at_ns: u64,
    /// The stall of its goroutine, if that was noticed.
    pub(crate) stall: Option<Stall<'a>>,
}

impl PRecord<'_> {
    pub(crate) fn new() -> Self {
        PRecord {
            dispatches: 0,
            calls: None,
            since_ns: 0,
            outside_since_ns: 0,
            section: 0,
            section_since_ns: 0,
            progress_ns: 0,
            cpu_ns: None,
            asked_cpu_ns: None,
            helped_due_ns: 0,
            look_at_ns: NEVER,
            stall: None,
        }
    }

    /// The dispatches up to the last look.
    pub(crate) fn dispatches(&self) -> u64 {
        self.dispatches
    }

    /// Whether it is time to look for due work there.
    pub(crate) fn is_to_be_looked_at(&self, now_ns: u64) -> bool {
        self.look_at_ns == NEVER || self.look_at_ns <= now_ns
    }

    /// Notes that the P's M sleeps.
    pub(crate) fn note_idle(&mut self) {
        self.since_ns = 0;
        self.outside_since_ns = 0;
        self.look_at_ns = NEVER;
    }

    /// Compares `p`, which `m` holds and whose goroutine is in no blocking section, with the last look.
    pub(crate) fn note_outside(&mut self, p: &P, m: Option<&Carrier>, now_ns: u64) {
        let dispatches = p.stats.dispatches.get();
        self.note_progress(p, m, dispatches, now_ns);
        let dispatched = self.note_dispatches(dispatches, now_ns);
        if dispatched || self.outside_since_ns == 0 {
            self.outside_since_ns = now_ns;
        }
        self.note_section(p, now_ns);
    }

    /// Compares `p`, whose goroutine is in a blocking section, with the last look. `true` if it was not in this one
    /// then. Leaves the M alone, which makes no progress in a section.
    pub(crate) fn note_inside(&mut self, p: &P, now_ns: u64) -> bool {
        if self.note_dispatches(p.stats.dispatches.get(), now_ns) {
            self.begin_progress(now_ns);
        }
        self.outside_since_ns = 0;
        self.note_section(p, now_ns)
    }

    /// Whether its goroutines have been in blocking sections at short intervals, up to now.
    pub(crate) fn had_section(&self, now_ns: u64) -> bool {
        now_ns - self.section_since_ns < 2 * ladder::SLICE_NS
    }

    /// `true` if `p` has dispatched since the last look.
    fn note_dispatches(&mut self, dispatches: u64, now_ns: u64) -> bool {
        let dispatched = self.dispatches != dispatches || self.since_ns == 0;
        if dispatched {
            self.dispatches = dispatches;
            self.since_ns = now_ns;
        }
        dispatched
    }

    /// `true` if its goroutine has begun a blocking section since the last look.
    fn note_section(&mut self, p: &P, now_ns: u64) -> bool {
        let section = p.syscalltick.load(Ordering::Relaxed);
        let is_new = std::mem::replace(&mut self.section, section) != section;
        if is_new {
            self.section_since_ns = now_ns;
        }
        is_new
    }

    fn note_progress(&mut self, p: &P, m: Option<&Carrier>, dispatches: u64, now_ns: u64) {
        let calls = m.map(|m| {
            let transfers = m.transfers.load(Ordering::Relaxed);
            (m.checks.left.load(Ordering::Relaxed), transfers)
        });
        // The M's loop may take long, with a hundred thousand timers due. A goroutine's calls do not.
        let is_in_loop = m.is_some_and(|m| m.curg.get().is_none());
        if is_in_loop || self.calls != calls {
            self.begin_progress(now_ns);
        } else if self.dispatches != dispatches {
            // From its own readings of the clock, which may be older than the dispatch.
            let read_ns = p.local.pace.now_ns().min(now_ns);
            self.begin_progress(read_ns.max(self.progress_ns));
        }
        self.calls = calls;
    }

    fn begin_progress(&mut self, at_ns: u64) {
        self.progress_ns = at_ns;
        self.cpu_ns = None;
        self.asked_cpu_ns = None;
    }

    /// The process was stopped: what lasted then counts as begun `later`.
    pub(crate) fn begin_later(&mut self, later: impl Fn(&mut u64)) {
        // 0 is unknown.
        let both = [&mut self.since_ns, &mut self.outside_since_ns];
        both.into_iter().filter(|ns| **ns != 0).for_each(&later);
        if let Some(stall) = &mut self.stall {
            later(&mut stall.since_ns);
        }
    }
}

//! Execution traces: recording of scheduler events (`events`).
//!
//! While tracing is off, a trace point costs the test of a word on a line that the M has in its
//! cache, and a branch not taken. The crate windlass-trace draws the events.

use super::current;
use super::events::{self, Event, EventKind, Log, NO_P};
use super::extra_work::TRACED;
use super::m::Carrier;
use super::p::P;
use super::state::Sched;
use crate::g::header::GRef;
use crate::g::status::Reason;

/// Keeps an event with the simulated run of the calling thread. `false` if there is none, or it is
/// not recorded.
fn recorded(event: Event) -> bool {
    let sim = current::m().and_then(Carrier::simulation);
    sim.is_some_and(|sim| sim.record(event))
}

/// Notes the name of a goroutine, if it is in a simulated run that is recorded.
pub(super) fn introduce(g: GRef) {
    if let Some(sim) = current::m().and_then(Carrier::simulation) {
        sim.introduce(g);
    }
}

impl P {
    /// Records an event on this P. Called by the M that holds it.
    pub(crate) fn trace(&self, kind: EventKind, reason: Reason, n: u32, g: u64) {
        let event = Event {
            reason: reason as u8,
            p: self.idx,
            n,
            g,
            ..events::now(kind)
        };
        if recorded(event) {
            return;
        }
        self.log.push(event);
    }

    /// Records an event without further data, if tracing is on.
    #[inline(always)]
    pub(crate) fn trace_if(&self, kind: EventKind) {
        if self.is_traced() {
            self.trace_kind(kind);
        }
    }

    #[cold]
    #[inline(never)]
    fn trace_kind(&self, kind: EventKind) {
        self.trace(kind, Reason::None, 0, 0);
    }

    /// Records that `g` was made runnable here, if tracing is on.
    #[inline(always)]
    pub(crate) fn trace_ready(&self, g: GRef) {
        if self.is_traced() {
            self.trace_g(EventKind::Ready, g);
        }
    }

    #[cold]
    #[inline(never)]
    fn trace_g(&self, kind: EventKind, g: GRef) {
        introduce(g);
        self.trace(kind, Reason::None, 0, g.id());
    }
}

impl Sched {
    /// As [`P::trace_if`], for threads without a P.
    pub(crate) fn trace_other(&self, kind: EventKind, p: Option<&P>, g: Option<GRef>) {
        if self.tracing.is_on() {
            self.tracing.push(Event {
                p: p.map_or(NO_P, |p| p.idx),
                g: g.map_or(0, GRef::id),
                ..events::now(kind)
            });
        }
    }

    /// Records that `g`, which calls this, begins or ends a region. Does not enter the scheduler, so it
    /// writes to the log of threads without a P.
    #[inline]
    pub(crate) fn trace_region(&self, kind: EventKind, g: GRef, name: impl FnOnce() -> u32) {
        if !self.tracing.is_on() {
            return;
        }
        let event = Event {
            n: name(),
            g: g.id(),
            ..events::now(kind)
        };
        if !recorded(event) {
            self.tracing.push(event);
        }
    }

    /// Turns tracing on until [`Sched::stop_tracing`]; calls nest.
    pub(crate) fn start_tracing(&self) {
        self.tracing
            .start(self.logs(), || self.set_extra_work(TRACED, true));
    }

    /// Undoes one [`Sched::start_tracing`].
    pub(crate) fn stop_tracing(&self) {
        self.tracing.stop(|| self.set_extra_work(TRACED, false));
    }

    /// The stored events since `from_ns`, in order of time.
    pub(crate) fn events(&self, from_ns: u64) -> Vec<Event> {
        self.tracing.events(self.logs(), from_ns)
    }

    fn logs(&self) -> impl Iterator<Item = &Log> {
        self.ps.iter().map(|p| &p.log)
    }
}

//! Execution traces: recording of scheduler events.
//!
//! Every P has a log that the M holding the P writes to, without a lock; sysmon and threads that
//! are not Ms share one. Logs are bounded and keep the newest events, so tracing may stay on
//! permanently (a flight recorder) and be read after a failure.
//!
//! While tracing is off, a trace point costs the test of a word on a line that the M has in its
//! cache, and a branch not taken. `debug::trace` writes the events to a file.

use super::p::{P, TRACED};
use super::state::Sched;
use super::{current, m::Carrier};
use crate::g::header::GRef;
use crate::g::status::Reason;
use crate::loom::native::atomic::{AtomicUsize, Ordering};
use crate::loom::native::{Mutex, MutexGuard, OnceLock, PoisonError};
use crate::sys::clock;
use crate::util::event_log::{self, EventLog};

/// Kinds of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum EventKind {
    /// `g` runs now; the goroutine that ran before has yielded.
    Start = 0,
    /// The goroutine on the P parks, for `reason`.
    Park,
    /// The goroutine on the P has ended.
    End,
    /// The P has no goroutine in its queue; the goroutine that ran before has yielded.
    Dry,
    /// `g` was made runnable, or spawned, here.
    Ready,
    /// The P's M goes to sleep; wakes up.
    Sleep,
    Awake,
    /// `n` goroutines were stolen; `g` is the index of the victim P, or a node.
    Steal,
    /// `n` completions were reaped.
    Ring,
    /// The goroutine on the P begins a blocking section; ends it.
    Block,
    Unblock,
    /// The P was retaken: from a blocking section; from a hog.
    RetakeSection,
    RetakeHog,
    /// The P was given to another M.
    HandOff,
    /// `g` found that its P was retaken, and is queued.
    Lost,
    /// `g` was woken here and is sent home, to node `n`.
    SendHome,
    /// `g` has been away for long, and this P's node becomes its home.
    Rehome,
    /// `n` goroutines stolen from another node go to the other Ps of this one.
    Surplus,
    /// `g` begins a region whose name has the number `n`; ends it.
    RegionBegin,
    RegionEnd,
}

impl EventKind {
    const ALL: [EventKind; 20] = [
        EventKind::Start,
        EventKind::Park,
        EventKind::End,
        EventKind::Dry,
        EventKind::Ready,
        EventKind::Sleep,
        EventKind::Awake,
        EventKind::Steal,
        EventKind::Ring,
        EventKind::Block,
        EventKind::Unblock,
        EventKind::RetakeSection,
        EventKind::RetakeHog,
        EventKind::HandOff,
        EventKind::Lost,
        EventKind::SendHome,
        EventKind::Rehome,
        EventKind::Surplus,
        EventKind::RegionBegin,
        EventKind::RegionEnd,
    ];
}

/// An event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub(crate) at_ns: u64,
    pub(crate) kind: EventKind,
    pub(crate) reason: Reason,
    /// The P that it concerns; [`NO_P`] for none.
    pub(crate) p: usize,
    pub(crate) n: u32,
    pub(crate) g: u64,
}

/// Added to the `g` of a [`EventKind::Steal`] that names a node (by its kernel number) instead of a
/// P.
pub(crate) const FROM_NODE: u64 = 1 << 32;

/// In [`Event::p`]: the event concerns no P.
pub(crate) const NO_P: usize = 0xffff;

impl Event {
    /// An event at the current time.
    pub(crate) fn now(kind: EventKind) -> Event {
        Event {
            at_ns: clock::now_ns(),
            kind,
            reason: Reason::None,
            p: NO_P,
            n: 0,
            g: 0,
        }
    }

    fn pack(self) -> event_log::Event {
        let p = self.p.min(NO_P) as u64;
        let head = self.kind as u64 | (self.reason as u64) << 8 | p << 16 | u64::from(self.n) << 32;
        [self.at_ns, head, self.g]
    }

    fn unpack([at_ns, head, g]: event_log::Event) -> Option<Event> {
        Some(Event {
            at_ns,
            kind: *EventKind::ALL.get((head & 0xff) as usize)?,
            reason: Reason::of((head >> 8) as u8),
            p: (head >> 16) as usize & 0xffff,
            n: (head >> 32) as u32,
            g,
        })
    }
}

/// The logs of a runtime.
#[derive(Debug)]
pub(crate) struct Tracing {
    /// Size of each log.
    bytes: usize,
    /// Number of active tracers. Ordering: relaxed; changed under the lock below.
    n_users: AtomicUsize,
    /// The log of threads without a P, which write one at a time.
    others: OnceLock<EventLog>,
    writers: Mutex<()>,
}

impl Tracing {
    pub(crate) fn new(bytes: usize) -> Tracing {
        Tracing {
            bytes,
            n_users: AtomicUsize::new(0),
            others: OnceLock::new(),
            writers: Mutex::new(()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.writers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

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

/// The log of a P, allocated at first use.
pub(crate) type PLog = OnceLock<EventLog>;

impl P {
    /// Whether tracing is on.
    #[inline(always)]
    pub(crate) fn is_traced(&self) -> bool {
        self.local.watched.load(Ordering::Relaxed) & TRACED != 0
    }

    /// Records an event on this P. Called by the M that holds it.
    pub(crate) fn trace(&self, kind: EventKind, reason: Reason, n: u32, g: u64) {
        let event = Event {
            reason,
            p: self.idx,
            n,
            g,
            ..Event::now(kind)
        };
        if recorded(event) {
            return;
        }
        if let Some(log) = self.log.get() {
            log.push(event.pack());
        }
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
        if self.tracing.n_users.load(Ordering::Relaxed) == 0 {
            return;
        }
        if let Some(log) = self.tracing.others.get() {
            let _writer = self.tracing.lock();
            log.push(
                Event {
                    p: p.map_or(NO_P, |p| p.idx),
                    g: g.map_or(0, GRef::id),
                    ..Event::now(kind)
                }
                .pack(),
            );
        }
    }

    /// Records that `g`, which calls this, begins or ends a region. Does not enter the scheduler, so it
    /// writes to the log of threads without a P.
    #[inline]
    pub(crate) fn trace_region(&self, kind: EventKind, g: GRef, name: impl FnOnce() -> u32) {
        if self.tracing.n_users.load(Ordering::Relaxed) == 0 {
            return;
        }
        let event = Event {
            n: name(),
            g: g.id(),
            ..Event::now(kind)
        };
        if recorded(event) {
            return;
        }
        if let Some(log) = self.tracing.others.get() {
            let _writer = self.tracing.lock();
            log.push(event.pack());
        }
    }

    /// Turns tracing on until [`Sched::stop_tracing`]; calls nest.
    pub(crate) fn start_tracing(&self) {
        let tracing = &self.tracing;
        let new = || EventLog::new(tracing.bytes);
        tracing.others.get_or_init(new);
        for p in &self.ps {
            p.log.get_or_init(new);
        }
        let _users = tracing.lock();
        tracing.n_users.fetch_add(1, Ordering::Relaxed);
        for p in &self.ps {
            p.local.watched.fetch_or(TRACED, Ordering::Relaxed);
        }
    }

    /// Undoes one [`Sched::start_tracing`]. The logs keep their events.
    pub(crate) fn stop_tracing(&self) {
        let tracing = &self.tracing;
        let _users = tracing.lock();
        if tracing.n_users.fetch_sub(1, Ordering::Relaxed) == 1 {
            for p in &self.ps {
                p.local.watched.fetch_and(!TRACED, Ordering::Relaxed);
            }
        }
    }

    /// The stored events since `from_ns`, in order of time.
    pub(crate) fn events(&self, from_ns: u64) -> Vec<Event> {
        let of_ps = self.ps.iter().filter_map(|p| p.log.get());
        let mut events: Vec<_> = of_ps
            .chain(self.tracing.others.get())
            .flat_map(EventLog::copy)
            .filter_map(Event::unpack)
            .filter(|e| e.at_ns >= from_ns)
            .collect();
        // Stable: events of one P within one nanosecond keep their order.
        events.sort_by_key(|e| e.at_ns);
        events
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_event_survives_its_packing() {
        for (i, kind) in EventKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, i);
            let event = Event {
                at_ns: u64::MAX - 1,
                kind,
                reason: Reason::Future,
                p: 4095,
                n: u32::MAX,
                g: 1 << 60,
            };
            assert_eq!(
                format!("{:?}", Event::unpack(event.pack())),
                format!("{:?}", Some(event))
            );
        }
        assert_eq!(
            Event::unpack(Event::now(EventKind::Dry).pack()).unwrap().p,
            NO_P
        );
        assert!(Event::unpack([0, 0xff, 0]).is_none());
    }
}

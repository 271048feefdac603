//! The events of execution traces, and the logs that keep them.
//!
//! Every P has a log that the M holding the P writes to, without a lock; sysmon and threads that
//! are not Ms share one. Logs are bounded and keep the newest events, so tracing may stay on
//! permanently (a flight recorder) and be read after a failure.

use crate::g::status::Reason;
use crate::loom::native::atomic::{AtomicUsize, Ordering};
use crate::loom::native::{Mutex, MutexGuard, OnceLock, PoisonError};
use crate::sys::clock;
use crate::util::event_log::{self, EventLog};
use crate::util::numbered::numbered;

numbered! {
    /// Kinds of events.
    pub(crate) enum EventKind {
        /// `g` runs now; the goroutine that ran before has yielded.
        Start,
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

/// A log, allocated at first use.
#[derive(Debug, Default)]
pub(crate) struct Log(OnceLock<EventLog>);

impl Log {
    fn start(&self, bytes: usize) {
        self.0.get_or_init(|| EventLog::new(bytes));
    }

    /// Adds an event, if tracing has ever been on. One thread at a time.
    pub(crate) fn push(&self, event: Event) {
        if let Some(log) = self.0.get() {
            log.push(event.pack());
        }
    }

    /// The events that it has.
    fn events(&self) -> impl Iterator<Item = Event> {
        let packed = self.0.get().map(EventLog::copy);
        packed.into_iter().flatten().filter_map(Event::unpack)
    }
}

/// The tracing of a runtime.
#[derive(Debug)]
pub(crate) struct Tracing {
    /// Size of each log.
    bytes: usize,
    /// Number of active tracers. Ordering: relaxed; changed under the lock below.
    n_users: AtomicUsize,
    /// The log of threads without a P, which write one at a time.
    others: Log,
    writers: Mutex<()>,
}

impl Tracing {
    pub(crate) fn new(bytes: usize) -> Tracing {
        Tracing {
            bytes,
            n_users: AtomicUsize::new(0),
            others: Log::default(),
            writers: Mutex::new(()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.writers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether some tracer is active.
    pub(crate) fn is_on(&self) -> bool {
        self.n_users.load(Ordering::Relaxed) != 0
    }

    /// Adds an event of a thread without a P.
    pub(crate) fn push(&self, event: Event) {
        let _writer = self.lock();
        self.others.push(event);
    }

    /// Counts one more tracer of the Ps with these logs. `turn_on` makes the Ps trace.
    pub(crate) fn start<'a>(&self, logs: impl Iterator<Item = &'a Log>, turn_on: impl FnOnce()) {
        self.others.start(self.bytes);
        logs.for_each(|log| log.start(self.bytes));
        let _users = self.lock();
        self.n_users.fetch_add(1, Ordering::Relaxed);
        turn_on();
    }

    /// Counts one tracer less. Calls `turn_off` if it was the last. The logs keep their events.
    pub(crate) fn stop(&self, turn_off: impl FnOnce()) {
        let _users = self.lock();
        if self.n_users.fetch_sub(1, Ordering::Relaxed) == 1 {
            turn_off();
        }
    }

    /// The events since `from_ns` in the logs of Ps and in that of other threads, in order of time.
    pub(crate) fn events<'a>(
        &'a self,
        logs: impl Iterator<Item = &'a Log>,
        from_ns: u64,
    ) -> Vec<Event> {
        let all = logs.chain([&self.others]).flat_map(Log::events);
        let mut events: Vec<_> = all.filter(|e| e.at_ns >= from_ns).collect();
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

//! The logs that keep the events of execution traces.
//!
//! Every P has a log that the M holding the P writes to, without a lock; sysmon and threads that
//! are not Ms share one. Logs are bounded and keep the newest events, so tracing may stay on
//! permanently (a flight recorder) and be read after a failure.

pub(crate) use windlass_trace::events::{Event, EventKind, FROM_NODE, NO_P};

use crate::loom::native::atomic::{AtomicUsize, Ordering};
use crate::loom::native::{Mutex, MutexGuard, OnceLock, PoisonError};
use crate::sys::clock;
use crate::util::event_log::EventLog;

/// An event at the current time.
pub(crate) fn now(kind: EventKind) -> Event {
    Event::new(clock::now_ns(), kind)
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

//! Execution traces: passes the events of `sched::types::trace` on to the crate windlass-trace, which draws them.

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use windlass_trace::names::Names;
use windlass_trace::runtime::{self, Runtime};

use super::goroutines::{self, reason_text};
use super::region;
use crate::g::status::Reason;
use crate::sched::types::p::P;
use crate::sched::types::state::Sched;
use crate::sys::clock;

/// An execution trace that is being recorded, from
/// [`Runtime::start_trace`](crate::Runtime::start_trace) until this is dropped.
///
/// The output is Chrome's trace-event format (JSON), which ui.perfetto.dev and chrome://tracing
/// open. It has a track for every P that shows which goroutines ran, blocking sections, sleeps,
/// steals, batches of completions and wake-ups. docs/OBSERVABILITY.md describes it.
///
/// # Examples
///
/// ```
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
/// let json = rt.run(|| {
///     let trace = rt.start_trace();
///     windlass::spawn(|| ()).join().unwrap();
///     let mut json = Vec::new();
///     trace.finish(&mut json).map(|()| json)
/// })?;
/// assert!(json.starts_with(b"{"));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "a trace ends when this is dropped"]
pub struct Trace {
    sched: Arc<Sched>,
    from_ns: u64,
}

impl Trace {
    pub(crate) fn start(sched: &Arc<Sched>) -> Trace {
        sched.start_tracing();
        Trace {
            sched: Arc::clone(sched),
            from_ns: clock::now_ns(),
        }
    }

    /// Writes the events so far. Recording continues.
    ///
    /// # Blocking
    ///
    /// As `writer` does. A file of `std` blocks the thread: call this inside
    /// [`blocking`](crate::blocking) in a goroutine.
    ///
    /// # Errors
    ///
    /// The writer's.
    ///
    /// # Examples
    ///
    /// ```
    /// # // SAFETY: nothing here keeps a thread-local across a call that parks.
    /// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
    /// # let path = std::env::temp_dir().join(format!("windlass-trace-{}.json", std::process::id()));
    /// rt.run(|| {
    ///     let trace = rt.start_trace();
    ///     windlass::spawn(|| ()).join().unwrap();
    ///     windlass::blocking(|| trace.write(std::fs::File::create(&path)?))
    /// })?;
    /// # std::fs::remove_file(path)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn write(&self, writer: impl Write) -> io::Result<()> {
        write(&self.sched, self.from_ns, writer)
    }

    /// Ends the trace and writes it.
    ///
    /// # Blocking
    ///
    /// As [`Trace::write`].
    ///
    /// # Errors
    ///
    /// The writer's.
    pub fn finish(self, writer: impl Write) -> io::Result<()> {
        self.write(writer)
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        self.sched.stop_tracing();
    }
}

/// Writes the events since `from_ns` that have not been overwritten.
pub(crate) fn write(sched: &Sched, from_ns: u64, writer: impl Write) -> io::Result<()> {
    let until_ns = clock::now_ns();
    let events = sched.events(from_ns);
    let mut named = HashMap::new();
    goroutines::for_each(sched, |g, _| named.extend(g.name.map(|name| (g.id, name))));
    let runtime = Runtime {
        name: &sched.config.name,
        ps: sched.ps.iter().map(|p| p_name(sched, p)).collect(),
        goroutines: named,
        names: NAMES,
    };
    runtime::write(&runtime, &events, (from_ns, until_ns), writer)
}

/// The words for what events have as numbers.
pub(crate) const NAMES: Names = Names {
    reason: |reason| reason_text(Reason::of(reason)).unwrap_or("wait"),
    region: region::name_at,
};

/// The name of a P's track. A P that is no longer in use may have events.
fn p_name(sched: &Sched, p: &P) -> Option<String> {
    let has_run = p.status.is_in_use() || p.stats.dispatches.get() > 0;
    let node = sched.node_of(p).os_id;
    has_run.then(|| format!("P{} (cpu {}, node {node})", p.idx, p.cpu()))
}

/// The error for a runtime without a flight recorder.
pub(crate) fn no_recorder() -> io::Error {
    io::Error::new(
        io::ErrorKind::Unsupported,
        "the runtime was built without Builder::flight_recorder",
    )
}

/// Takes a trace for a while and writes it.
pub(crate) fn take(sched: &Arc<Sched>, duration: Duration, writer: impl Write) -> io::Result<()> {
    let trace = Trace::start(sched);
    crate::task::sleep(duration);
    trace.finish(writer)
}

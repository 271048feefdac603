//! A logger for the crate log, and a formatter for tracing-subscriber, that name the goroutine.
//!
//! Both ask `windlass::task::current`, which leaves the goroutine on its thread: a formatter may have
//! borrowed a thread-local. Neither waits for anything but the descriptor.

use std::fmt;
use std::io::Write;
use std::sync::{Mutex, PoisonError};

use log::{Log, Metadata, Record};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use windlass::task::{self, Task};
use windlass_tracing::Goroutines;

/// A goroutine with its number, or a plain thread, as a line shows it.
struct Caller(Task);

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0.id(), self.0.name()) {
            (0, name) => write!(f, "[thread {}]", name.unwrap_or("?")),
            (id, Some(name)) => write!(f, "[G{id} {name}]"),
            (id, None) => write!(f, "[G{id}]"),
        }
    }
}

/// A logger that writes a line for each record: level, goroutine, message.
pub(crate) struct Lines<W>(Mutex<W>);

impl<W: Write + Send> Lines<W> {
    pub(crate) fn new(writer: W) -> Lines<W> {
        Lines(Mutex::new(writer))
    }
}

impl<W: Write + Send> Log for Lines<W> {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        let caller = Caller(task::current());
        let line = format!("{} {caller} {}\n", record.level(), record.args());
        let mut writer = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // There is nowhere else to report it.
        let _ = writer.write_all(line.as_bytes());
    }

    fn flush(&self) {}
}

/// tracing-subscriber's own lines, with the goroutine before them. Spans belong to their goroutine, and
/// are regions in execution traces.
pub(crate) fn subscriber<W>(writer: W) -> impl Subscriber + Send + Sync
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let format = tracing_subscriber::fmt::format()
        .without_time()
        .with_target(false);
    let lines = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        .with_writer(writer)
        .event_format(WithCaller(format));
    Goroutines::new(tracing_subscriber::registry().with(lines)).with_regions()
}

/// A format with the caller before it.
struct WithCaller<F>(F);

impl<S, N, F> FormatEvent<S, N> for WithCaller<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        write!(writer, "{} ", Caller(task::current()))?;
        self.0.format_event(context, writer, event)
    }
}

//! Stall reports: which goroutine has not entered the runtime for long, and where it is.
//!
//! Sysmon finds the goroutine (`sched::monitor::stall`) and calls this module. A signal handler on the
//! goroutine's thread copies its stack (the crate windlass-unwind). A separate thread walks the stack and
//! writes the report, because reading the debug information would delay sysmon for too long.

use std::fmt::{self, Write as _};
use std::time::Duration;

use super::goroutines::{self, Goroutine};
use super::stack::{self, Frame};
use crate::g::snapshot::StackCopy;
use crate::loom::Ordering;
use crate::loom::native::{Mutex, PoisonError};
use crate::loom::thread::JoinHandle;
use crate::sched::types::debug_hooks::{OnStall, Stall};
use crate::sched::types::state::Sched;
use crate::sys::clock;
use crate::sys::sched as threads;
use crate::sys::signal;

/// The minimum time between two reports. Stalls in between are only counted.
const BETWEEN_NS: u64 = 100_000_000;

/// Writes reports of stalls on stderr.
#[derive(Debug, Default)]
pub(crate) struct Reporter(Mutex<ReporterState>);

#[derive(Debug, Default)]
struct ReporterState {
    /// The thread that writes the latest report.
    thread: Option<JoinHandle<()>>,
    begun_ns: u64,
    /// The system call in which a thread waited at the first attempt to report its stall: the thread and the
    /// time of the stall, and the call.
    call: Option<((i32, u64), String)>,
    /// The number of stalls since then that were not reported.
    n_left_out: u64,
}

/// The contents of a report.
struct Report {
    runtime: String,
    goroutine: Goroutine,
    held: Duration,
    has_p: bool,
    /// The system call in which its thread waits.
    call: Option<String>,
    n_left_out: u64,
}

impl OnStall for Reporter {
    fn stalled(&self, sched: &Sched, stall: &Stall<'_>) -> bool {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now_ns = clock::now_ns();
        let is_writing = state.thread.as_ref().is_some_and(|t| !t.is_finished());
        if is_writing || now_ns.saturating_sub(state.begun_ns) < BETWEEN_NS {
            state.n_left_out += 1;
            return true;
        }
        let Some(goroutine) = goroutines::one(sched, stall.g) else {
            return true;
        };
        let held = Duration::from_nanos(stall.held_ns());
        // The first attempt to get the stack interrupts the thread, which a later one may find running.
        let tid = stall.m.tid.load(Ordering::Relaxed);
        let asked = (tid, stall.since_ns);
        if stall.n_tries == 0 || state.call.as_ref().is_none_or(|(of, _)| *of != asked) {
            state.call = call_of(tid).map(|call| (asked, call));
        }
        let copy = match sample::copy_stack(stall) {
            Ok(copy) => copy,
            Err(sample::TryAgain) => return false,
        };
        let report = Report {
            runtime: sched.config.name.clone(),
            goroutine,
            held,
            has_p: stall.has_p(),
            call: state.call.take().map(|(_, call)| call),
            n_left_out: std::mem::take(&mut state.n_left_out),
        };
        join(&mut state);
        state.begun_ns = now_ns;
        state.thread = crate::loom::thread::Builder::new()
            .name("windlass-stall".to_owned())
            .spawn(move || write(report, copy))
            .ok();
        true
    }

    fn end_run(&self) {
        join(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// In which call a thread waits, and what that says: windlass's own sockets and locks park instead.
fn call_of(tid: i32) -> Option<String> {
    let (name, first) = threads::waits_in(tid)?;
    if name == "futex" {
        return Some("futex, for a lock or a thread of std or of another library".to_owned());
    }
    let file = std::fs::read_link(format!("/proc/self/fd/{first}")).unwrap_or_default();
    match file.to_string_lossy().starts_with("socket:") {
        true => Some(format!(
            "{name} on a socket of std or of another library (descriptor {first})"
        )),
        false => Some(format!("{name} on descriptor {first}")),
    }
}

fn join(state: &mut ReporterState) {
    if let Some(thread) = state.thread.take() {
        // If it has panicked, the report is lost, and the panic's message is on stderr.
        let _ = thread.join();
    }
}

fn write(mut report: Report, copy: Option<StackCopy>) {
    if let Some(copy) = copy {
        report.goroutine.stack = super::dump::frames_of(&copy);
    }
    if report.is_in_std_scope() {
        report.call = Some(IN_STD_SCOPE.to_owned());
    }
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write!(out, "{report}");
    signal::write_stderr(out.as_bytes());
}

/// The call in which `std::thread::scope` waits, which may be for ever (docs/SAFETY.md).
const IN_STD_SCOPE: &str =
    "futex, in std::thread::scope, which may not end on a goroutine: use windlass::scope";

impl Report {
    /// Whether the thread waits for the threads of a scope of `std`, and for nothing inside it: then a closure
    /// would come before the scope.
    fn is_in_std_scope(&self) -> bool {
        let is_scopes = |frame: &&Frame| {
            let file = frame.file.as_deref();
            file.is_some_and(|file| file.ends_with("/std/src/thread/scoped.rs"))
        };
        let scope = self.goroutine.stack.iter().find(is_scopes);
        let function = scope.and_then(|frame| frame.function.as_deref().map(stack::without_types));
        let is_futex = self
            .call
            .as_deref()
            .is_some_and(|call| call.starts_with("futex"));
        is_futex && function.is_some_and(|name| !name.contains("closure"))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let g = &self.goroutine;
        write!(f, "{}: a goroutine has ", self.runtime.escape_debug())?;
        if self.has_p {
            write!(f, "held its P for {} ms", self.held.as_millis())?;
        } else {
            let ms = self.held.as_millis();
            write!(f, "run for {ms} ms without a call, and lost its P")?;
        }
        match self.n_left_out {
            0 => {}
            1 => f.write_str(" (1 more stall was not reported)")?,
            n => write!(f, " ({n} more stalls were not reported)")?,
        }
        write!(f, "\n{g}:\n")?;
        if let Some(call) = &self.call {
            writeln!(f, "\tits thread waits in {call}")?;
        }
        for frame in stack::shown_frames(&g.stack) {
            writeln!(f, "{frame}")?;
        }
        if g.stack.is_empty() {
            f.write_str(super::dump::NO_STACK_OF_RUNNING)?;
        }
        super::dump::origin(f, g)?;
        f.write_str(super::dump::NO_STACKS)
    }
}

#[cfg(feature = "backtrace")]
pub(super) mod sample {
    use crate::g::coro::Registers;
    use crate::g::snapshot::StackCopy;
    use crate::sched::types::debug_hooks::Stall;
    use windlass_unwind::{Sample, take};

    /// How long sysmon waits for the goroutine's thread, which answers in microseconds if it is on
    /// a CPU.
    const PATIENCE_NS: u64 = 2_000_000;
    /// The number of attempts before a report is made without a stack.
    const TRIES: u32 = 50;

    pub(crate) struct TryAgain;

    /// The stack in a sample.
    pub(crate) fn copy_of(mut sample: Sample) -> StackCopy {
        let registers = Registers {
            ip: sample.registers.ip,
            sp: sample.registers.sp,
            fp: sample.registers.fp,
            link: sample.registers.link,
        };
        StackCopy::of(registers, std::mem::take(&mut sample.words))
    }

    /// Copies the goroutine's current stack. `None` if that fails.
    pub(crate) fn copy_stack(stall: &Stall<'_>) -> Result<Option<StackCopy>, TryAgain> {
        let tid = stall.m.tid.load(crate::loom::Ordering::Relaxed);
        let taken = take(tid, PATIENCE_NS);
        // It runs on this thread before and after the sample, so it did when the sample was taken.
        if !stall.is_still() {
            return Ok(None);
        }
        match taken {
            Ok(Some(s)) if s.g == stall.g.as_ptr().addr() => Ok(Some(copy_of(s))),
            _ if stall.n_tries + 1 < TRIES => Err(TryAgain),
            _ => Ok(None),
        }
    }
}

#[cfg(not(feature = "backtrace"))]
mod sample {
    use crate::g::snapshot::StackCopy;
    use crate::sched::types::debug_hooks::Stall;

    pub(crate) struct TryAgain;

    /// Without the feature no stack is copied, since it could not be walked.
    #[expect(clippy::unnecessary_wraps, reason = "as its twin")]
    pub(crate) fn copy_stack(_: &Stall<'_>) -> Result<Option<StackCopy>, TryAgain> {
        Ok(None)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::debug::State;

    #[test]
    fn a_report_says_who_and_how_many_more() {
        let goroutine = Goroutine {
            id: 7,
            parent: 1,
            name: Some("hog".to_owned()),
            label: None,
            cpu_time: None,
            state: State::Running,
            wait_reason: None,
            waiting: Duration::ZERO,
            waits_for: None,
            spawned_at: std::panic::Location::caller(),
            p: Some(2),
            m: Some(3),
            node: None,
            stack: Vec::new(),
        };
        let mut report = Report {
            runtime: "app".to_owned(),
            goroutine,
            held: Duration::from_millis(120),
            has_p: true,
            call: Some("recvfrom on descriptor 7".to_owned()),
            n_left_out: 0,
        };
        let text = report.to_string();
        let begin = "app: a goroutine has held its P for 120 ms\n\
                     goroutine 7 [running, P2, M3, name \"hog\"]:\n\
                     \tits thread waits in recvfrom on descriptor 7\n\
                     \tgoroutine running on a thread; stack unavailable\n\
                     created in goroutine 1\n\t";
        assert!(text.starts_with(begin), "{text}");
        report.has_p = false;
        for (n, more) in [
            (1, "lost its P (1 more stall was not reported)\n"),
            (5, "lost its P (5 more stalls were not reported)\n"),
        ] {
            report.n_left_out = n;
            assert!(report.to_string().contains(more), "{report}");
        }
    }
}

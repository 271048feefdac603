//! The story of a schedule: the last points, and a hash of all.
//!
//! Only numbers that are the same in every run go in: threads by their order of birth, lines of
//! the source. No address, no time of the host.

use std::fmt::Write;
use std::io::Write as _;
use std::panic::Location;

/// The operation that a thread is about to do at a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum What {
    Load,
    Store,
    Swap,
    Cas,
    Fence,
    Lock,
    Wait,
    Wake,
    Start,
    End,
    Spin,
    Ring,
    Call,
    Barrier,
    /// The strategy let time pass.
    Clock,
    /// The simulated kernel completed an operation.
    Kernel,
    /// A thread got the baton.
    Turn,
}

/// The end of a schedule that found something.
const FOUND: i32 = 101;

#[derive(Clone, Copy, Debug)]
struct Event {
    step: u64,
    thread: usize,
    what: What,
    at: &'static Location<'static>,
    now_ns: u64,
}

/// The number of events that are kept for a report.
const KEPT: usize = 400;

#[derive(Debug, Default)]
pub(super) struct Log {
    events: std::collections::VecDeque<Event>,
    hash: u64,
    /// Everything is printed at once.
    pub(super) loud: bool,
}

impl Log {
    #[inline]
    pub(super) fn add(
        &mut self,
        step: u64,
        thread: usize,
        what: What,
        at: &'static Location<'static>,
        now_ns: u64,
    ) {
        // FNV-1a over words.
        let word = (thread as u64) << 48 | (what as u64) << 40 | u64::from(at.line());
        self.hash = (self.hash ^ word).wrapping_mul(0x0100_0000_01b3);
        let event = Event {
            step,
            thread,
            what,
            at,
            now_ns,
        };
        if self.loud {
            eprintln!("{}", line(&event));
        }
        if self.events.len() == KEPT {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    pub(super) fn hash(&self) -> u64 {
        self.hash
    }

    /// The last events, one a line.
    pub(super) fn tail(&self) -> String {
        let mut text = String::new();
        for event in &self.events {
            let _ = writeln!(text, "{}", line(event));
        }
        text
    }
}

/// Writes a report and ends the process, whatever its other threads do.
pub(super) fn end_with_finding(text: &str) -> ! {
    let _ = std::io::stderr().write_all(text.as_bytes());
    std::process::exit(FOUND)
}

fn line(event: &Event) -> String {
    format!(
        "{:>7} {:>10.3} us  t{:<2} {:<7} {}:{}",
        event.step,
        event.now_ns as f64 / 1e3,
        event.thread,
        format!("{:?}", event.what),
        event.at.file(),
        event.at.line()
    )
}

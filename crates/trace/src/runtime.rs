//! Execution traces: draws the events of a runtime as a file of `format`, which ui.perfetto.dev and chrome://tracing
//! open.
//!
//! - Every P has a track, with a slice for each time that a goroutine ran, for each blocking
//!   section inside it, and for each time that the P's thread slept.
//! - An arrow leads from where a goroutine was woken or spawned to where it ran next.
//! - Marks show steals, batches of completions, and Ps that were retaken or handed off.
//! - A track for each goroutine that has regions shows these, across waits.
//! - One more track has the events outside Ps: of threads that are no Ms, and of sysmon.
//!
//! A log holds only the newest events, and the logs of different Ps begin at different moments.
//! Slices and arrows whose beginning or end is lost are left out.

use std::collections::HashMap;
use std::io::{self, Write};

use crate::events::{Event, EventKind, FROM_NODE, NO_P};
use crate::format::{Output, Row, quoted};
use crate::names::{Names, goroutine_name};
use crate::regions::region_ends;

/// A runtime is one process of the file.
const PROCESS: u64 = 1;

/// The row of a track.
fn row(tid: usize) -> Row {
    Row {
        pid: PROCESS,
        tid: tid as u64,
    }
}

/// The length with which an instant is drawn as a slice.
const MOMENT_NS: u64 = 200;

/// The runtime whose events are drawn.
#[derive(Debug)]
pub struct Runtime<'a> {
    /// Its name.
    pub name: &'a str,
    /// The names of its Ps. `None` for one that is not in use and has had no events.
    pub ps: Vec<Option<String>>,
    /// The names of goroutines that have one.
    pub goroutines: HashMap<u64, String>,
    /// The words for numbers.
    pub names: Names,
}

/// Writes events, which are in the order of time, up to `until_ns`. The time 0 of the file is that of the first one;
/// `from_ns` if there is none.
///
/// # Errors
///
/// The writer's.
pub fn write(
    runtime: &Runtime<'_>,
    events: &[Event],
    (from_ns, until_ns): (u64, u64),
    writer: impl Write,
) -> io::Result<()> {
    let n_ps = runtime.ps.len();
    let from_ns = events.first().map_or(from_ns, |e| e.at_ns);
    let mut out = Output::new(writer, from_ns)?;
    out.process(PROCESS, runtime.name)?;
    out.row(row(0), "outside", 0)?;
    for (idx, name) in runtime.ps.iter().enumerate() {
        if let Some(name) = name {
            out.row(row(idx + 1), name, idx as u64 + 1)?;
        }
    }
    for track in tracks(n_ps, events, until_ns, runtime.names.reason) {
        track.write(&mut out, &runtime.goroutines)?;
    }
    for (i, flow) in flows(n_ps, events).into_iter().enumerate() {
        out.flow(i, flow.from, flow.to)?;
    }
    for end in region_ends(events, until_ns) {
        let name = (runtime.names.region)(end.name);
        out.region_end(row(0), end.g, name, end.is_begin, end.at_ns)?;
    }
    out.finish()
}

/// An interval of one activity on a track.
#[derive(Debug, PartialEq)]
struct Slice {
    from_ns: u64,
    to_ns: u64,
    what: What,
}

#[derive(Debug, PartialEq)]
enum What {
    /// A goroutine ran: its number, and why it stopped.
    Goroutine(u64, &'static str),
    Blocking,
    Asleep,
    /// Goroutines were made runnable while no goroutine ran on this track.
    Wakes,
}

/// An instant event.
#[derive(Debug)]
struct Mark {
    at_ns: u64,
    name: &'static str,
    args: String,
}

/// The track of a P, or of the events outside Ps.
#[derive(Debug, Default)]
struct Track {
    /// 0 for events outside Ps, then the Ps.
    tid: usize,
    slices: Vec<Slice>,
    marks: Vec<Mark>,
    /// The open slices: a goroutine with its start, a blocking section, a sleep.
    running: Option<(u64, u64)>,
    blocking: Option<u64>,
    asleep: Option<u64>,
}

/// The track of an event: its P's if it has one.
fn tid_of(e: &Event) -> usize {
    if e.p == NO_P { 0 } else { e.p + 1 }
}

fn tracks(
    n_ps: usize,
    events: &[Event],
    until_ns: u64,
    reason: fn(u8) -> &'static str,
) -> Vec<Track> {
    let mut tracks: Vec<Track> = (0..=n_ps)
        .map(|tid| Track {
            tid,
            ..Track::default()
        })
        .collect();
    for e in events {
        if let Some(track) = tracks.get_mut(tid_of(e)) {
            track.take(e, reason);
        }
    }
    for track in &mut tracks {
        track.close(until_ns, "still running");
        track.wake_up(until_ns);
        // Slices were pushed as they ended. Sort them by their start; of two with the same start
        // the longer one is the outer one.
        track
            .slices
            .sort_by_key(|s| (s.from_ns, u64::MAX - s.to_ns));
        track.keep_moments_apart();
    }
    tracks
}

impl Track {
    fn take(&mut self, e: &Event, reason: fn(u8) -> &'static str) {
        let at_ns = e.at_ns;
        match e.kind {
            EventKind::Start => {
                self.wake_up(at_ns);
                self.close(at_ns, "yield");
                self.running = Some((e.g, at_ns));
            }
            EventKind::Park => self.close(at_ns, reason(e.reason)),
            EventKind::End => self.close(at_ns, "end"),
            EventKind::Dry => self.close(at_ns, "yield"),
            EventKind::Sleep => self.asleep = Some(at_ns),
            EventKind::Awake => self.wake_up(at_ns),
            EventKind::Block if self.running.is_some() => self.blocking = Some(at_ns),
            EventKind::Unblock => self.unblock(at_ns),
            EventKind::Block => {}
            EventKind::RetakeSection | EventKind::RetakeHog => {
                self.close(at_ns, "P taken");
                let from = if e.kind == EventKind::RetakeHog {
                    "hog"
                } else {
                    "blocking section"
                };
                self.mark(at_ns, "P taken", format!("\"from\":\"{from}\""));
            }
            EventKind::HandOff => self.mark(at_ns, "P handed on", String::new()),
            EventKind::Lost => self.mark(
                at_ns,
                "goroutine without P",
                format!("\"goroutine\":{}", e.g),
            ),
            EventKind::Steal => self.mark(
                at_ns,
                "steal",
                format!("\"goroutines\":{},\"from\":\"{}\"", e.n, victim(e.g)),
            ),
            EventKind::SendHome => self.mark(
                at_ns,
                "sent home",
                format!("\"goroutine\":{},\"node\":{}", e.g, e.n),
            ),
            EventKind::Rehome => self.mark(at_ns, "moves here", format!("\"goroutine\":{}", e.g)),
            EventKind::Surplus => {
                self.mark(at_ns, "surplus shared", format!("\"goroutines\":{}", e.n));
            }
            EventKind::Ring => self.mark(at_ns, "ring batch", format!("\"completions\":{}", e.n)),
            // An arrow has to begin in a slice. If none is open, draw the instant as one.
            EventKind::Ready if self.running.is_none() && self.asleep.is_none() => {
                self.slices.push(Slice {
                    from_ns: at_ns,
                    to_ns: at_ns + MOMENT_NS,
                    what: What::Wakes,
                });
            }
            EventKind::Ready => {}
            // They are on tracks of goroutines.
            EventKind::RegionBegin | EventKind::RegionEnd => {}
        }
    }

    fn mark(&mut self, at_ns: u64, name: &'static str, args: String) {
        self.marks.push(Mark { at_ns, name, args });
    }

    fn unblock(&mut self, at_ns: u64) {
        if let Some(from_ns) = self.blocking.take() {
            self.slices.push(Slice {
                from_ns,
                to_ns: at_ns,
                what: What::Blocking,
            });
        }
    }

    /// Closes the slice of the goroutine that ran here, if its start is known.
    fn close(&mut self, at_ns: u64, why: &'static str) {
        self.unblock(at_ns);
        if let Some((g, from_ns)) = self.running.take() {
            self.slices.push(Slice {
                from_ns,
                to_ns: at_ns,
                what: What::Goroutine(g, why),
            });
        }
    }

    fn wake_up(&mut self, at_ns: u64) {
        if let Some(from_ns) = self.asleep.take() {
            self.slices.push(Slice {
                from_ns,
                to_ns: at_ns,
                what: What::Asleep,
            });
        }
    }

    /// Cuts instants that are drawn as slices at the start of the next slice.
    fn keep_moments_apart(&mut self) {
        let starts: Vec<u64> = self.slices.iter().skip(1).map(|s| s.from_ns).collect();
        for (slice, next_ns) in self.slices.iter_mut().zip(starts) {
            if slice.what == What::Wakes {
                slice.to_ns = slice.to_ns.min(next_ns);
            }
        }
    }

    fn write<W: Write>(&self, out: &mut Output<W>, names: &HashMap<u64, String>) -> io::Result<()> {
        for slice in &self.slices {
            let (name, args) = match slice.what {
                What::Goroutine(g, why) => (
                    goroutine_name(g, names),
                    format!("\"goroutine\":{g},\"until\":{}", quoted(why)),
                ),
                What::Blocking => ("blocking".to_owned(), String::new()),
                What::Asleep => ("asleep".to_owned(), String::new()),
                What::Wakes => ("ready".to_owned(), String::new()),
            };
            let category = match slice.what {
                What::Goroutine(..) => "goroutine",
                _ => "runtime",
            };
            let span = (slice.from_ns, slice.to_ns);
            out.slice(row(self.tid), span, category, &name, &args)?;
        }
        for mark in &self.marks {
            out.mark(row(self.tid), mark.at_ns, mark.name, &mark.args)?;
        }
        Ok(())
    }
}

/// The victim of a steal: a P, or the queue of a node.
fn victim(number: u64) -> String {
    match number {
        FROM_NODE.. => format!("node {}", number - FROM_NODE),
        _ => format!("P{number}"),
    }
}

/// An arrow from where a goroutine was made runnable to where it ran.
#[derive(Debug)]
struct Flow {
    from: (Row, u64),
    to: (Row, u64),
}

fn flows(n_ps: usize, events: &[Event]) -> Vec<Flow> {
    let mut ready = HashMap::new();
    let mut flows = Vec::new();
    for e in events.iter().filter(|e| tid_of(e) <= n_ps) {
        match e.kind {
            EventKind::Ready => {
                ready.insert(e.g, (row(tid_of(e)), e.at_ns));
            }
            EventKind::Start => {
                if let Some(from) = ready.remove(&e.g) {
                    flows.push(Flow {
                        from,
                        to: (row(tid_of(e)), e.at_ns),
                    });
                }
            }
            _ => {}
        }
    }
    flows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(at_ns: u64, kind: EventKind, g: u64) -> Event {
        Event {
            p: 0,
            g,
            ..Event::new(at_ns, kind)
        }
    }

    fn slices(events: &[Event]) -> Vec<(u64, u64, What)> {
        let track = tracks(1, events, 1000, |_| "sleep").pop().unwrap();
        track
            .slices
            .into_iter()
            .map(|s| (s.from_ns, s.to_ns, s.what))
            .collect()
    }

    #[test]
    fn a_goroutine_runs_until_the_next_event_that_says_so() {
        let found = slices(&[
            event(1, EventKind::Park, 0),
            event(10, EventKind::Start, 7),
            event(20, EventKind::Park, 0),
            event(30, EventKind::Start, 8),
            event(40, EventKind::Start, 9),
            event(50, EventKind::Dry, 0),
            event(60, EventKind::Sleep, 0),
            event(70, EventKind::Awake, 0),
            event(80, EventKind::Start, 7),
        ]);
        assert_eq!(
            found,
            [
                (10, 20, What::Goroutine(7, "sleep")),
                (30, 40, What::Goroutine(8, "yield")),
                (40, 50, What::Goroutine(9, "yield")),
                (60, 70, What::Asleep),
                (80, 1000, What::Goroutine(7, "still running")),
            ]
        );
    }

    #[test]
    fn a_blocking_section_lies_inside_its_goroutine() {
        let found = slices(&[
            event(5, EventKind::Block, 0),
            event(10, EventKind::Start, 7),
            event(20, EventKind::Block, 0),
            event(30, EventKind::RetakeSection, 0),
            event(40, EventKind::Unblock, 0),
        ]);
        assert_eq!(
            found,
            [
                (10, 30, What::Goroutine(7, "P taken")),
                (20, 30, What::Blocking)
            ]
        );
    }

    #[test]
    fn an_arrow_has_both_ends() {
        let events = [
            event(10, EventKind::Start, 1),
            event(20, EventKind::Ready, 2),
            event(30, EventKind::Ready, 3),
            event(40, EventKind::Start, 2),
            event(50, EventKind::Start, 4),
        ];
        let flows = flows(1, &events);
        assert_eq!(flows.len(), 1);
        assert_eq!(flows[0].from, (row(1), 20));
        assert_eq!(flows[0].to, (row(1), 40));
    }
}

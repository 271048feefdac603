//! Traces of simulated runs: what a recording has, as a file for ui.perfetto.dev.
//!
//! Virtual time is the clock of the file. It often stands still for many steps, which would then all lie
//! at one moment, so each step takes at least `STEP_NS`: the file's clock runs ahead of virtual time
//! while that stands still, and is in step again when that has moved farther. Each slice has the number
//! of its first step and the virtual time.
//!
//! - The first process is the run: a row with the goroutine that runs, a row with all events, and a row
//!   for each link that was cut.
//! - Each host is a process, with a row for each goroutine, and rows for the times at which the host was
//!   down or stood still and its disk had a fault.
//! - An arrow leads from where a goroutine woke or spawned another one to where that ran next.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::{self, Write};
use std::net::IpAddr;
use std::time::Duration;

use windlass_world::inside::Panicked;
use windlass_world::net::incidents::{Incident, Note};

use crate::events::{Event, EventKind};
use crate::format::{Output, Row, quoted};
use crate::names::{Names, goroutine_name};
use crate::recording::{Entry, Known};
use crate::regions::region_ends;

/// How long a step takes at least in the file, and where in it are the wake of another goroutine and
/// the end of a slice.
const STEP_NS: u64 = 1_000;
const MIDDLE_NS: u64 = 250;
const END_NS: u64 = 500;

/// The process of the run, and its rows. Those of hosts follow.
const RUN: u64 = 1;
const SCHEDULE: Row = Row { pid: RUN, tid: 0 };
/// Rows of goroutines have their numbers, others have larger ones.
const OTHER_ROWS: u64 = 2_000_000_000;
const EVENTS: Row = Row {
    pid: RUN,
    tid: OTHER_ROWS,
};

/// A run that is over.
#[derive(Debug)]
pub struct Run {
    /// All that was recorded, in order.
    pub entries: VecDeque<Entry>,
    /// How many older entries are lost.
    pub n_lost: u64,
    /// The goroutines, by their numbers.
    pub goroutines: BTreeMap<u64, Known>,
    /// The host of each goroutine.
    pub homes: BTreeMap<u64, u32>,
    /// The names and addresses of the hosts.
    pub hosts: Vec<(String, IpAddr)>,
    /// Notes of hosts, links and disks, with the words in which a failure prints them.
    pub notes: Vec<(Note, Option<String>)>,
    /// The panics that ended goroutines, in order.
    pub panics: Vec<Panicked>,
    /// The name of the run.
    pub title: String,
    /// The kind of failure with which it ended.
    pub failure: Option<String>,
    /// The virtual time at which it began.
    pub began_ns: u64,
    /// The last step, and when that was.
    pub end: (u64, u64),
    /// The words for numbers in events.
    pub names: Names,
}

impl Run {
    /// Writes the file.
    ///
    /// # Errors
    ///
    /// The writer's.
    pub fn write(&self, writer: impl Write) -> io::Result<()> {
        Drawing::of(self).write(writer)
    }

    /// The row of a goroutine.
    fn row(&self, g: u64) -> Row {
        let host = self.homes.get(&g).copied().unwrap_or(0);
        Row {
            pid: process_of(host),
            tid: g,
        }
    }
}

fn process_of(host: u32) -> u64 {
    RUN + 1 + u64::from(host)
}

/// The times in the file. They grow with virtual time, and by a little with each step.
#[derive(Debug)]
struct Clock {
    step: u64,
    now_ns: u64,
}

impl Clock {
    /// Returns the time in the file of a step that is taken after `elapsed_ns` of virtual time.
    fn at(&mut self, step: u64, elapsed_ns: u64) -> u64 {
        let n_steps = step.saturating_sub(self.step);
        self.now_ns = elapsed_ns.max(self.now_ns + n_steps * STEP_NS);
        self.step = self.step.max(step);
        self.now_ns
    }
}

/// The state of a goroutine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It is not there yet, or no longer.
    Gone,
    Runnable,
    Running,
    Waiting(&'static str),
}

impl State {
    fn name(self) -> &'static str {
        match self {
            State::Gone => "",
            State::Runnable => "runnable",
            State::Running => "running",
            State::Waiting(reason) => reason,
        }
    }
}

/// The state of a goroutine now, and since when.
#[derive(Debug)]
struct Activity {
    state: State,
    from_ns: u64,
    step: u64,
    elapsed_ns: u64,
    place: Option<String>,
}

/// A row that shows for how long something was so.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Lane {
    Link(u32, u32),
    Host(u32),
    Disk(u32, &'static str),
}

/// The span that a lane shows now.
#[derive(Debug)]
struct Condition {
    name: &'static str,
    from_ns: u64,
    elapsed_ns: u64,
    /// How many causes it has.
    n: u32,
}

#[derive(Debug)]
struct Slice {
    row: Row,
    from_ns: u64,
    to_ns: u64,
    category: &'static str,
    name: String,
    args: String,
}

/// A file in the making.
#[derive(Debug)]
struct Drawing<'a> {
    run: &'a Run,
    names: HashMap<u64, String>,
    clock: Clock,
    activities: BTreeMap<u64, Activity>,
    running: Option<u64>,
    /// Where each goroutine was woken.
    wakes: BTreeMap<u64, (Row, u64)>,
    /// The rows of lanes, by their first use.
    lanes: BTreeMap<Lane, Row>,
    conditions: BTreeMap<Lane, Condition>,
    slices: Vec<Slice>,
    marks: Vec<(Row, u64, String, String)>,
    flows: Vec<((Row, u64), (Row, u64))>,
    /// Begins and ends of regions, at the times of the file.
    regions: Vec<Event>,
}

impl<'a> Drawing<'a> {
    fn of(run: &'a Run) -> Drawing<'a> {
        let named = |(&g, known): (&u64, &Known)| Some((g, known.name.clone()?));
        let mut drawing = Drawing {
            run,
            names: run.goroutines.iter().filter_map(named).collect(),
            clock: Clock { step: 0, now_ns: 0 },
            activities: BTreeMap::new(),
            running: None,
            wakes: BTreeMap::new(),
            lanes: BTreeMap::new(),
            conditions: BTreeMap::new(),
            slices: Vec::new(),
            marks: Vec::new(),
            flows: Vec::new(),
            regions: Vec::new(),
        };
        drawing.draw();
        drawing
    }

    /// Goes through all that has happened, in order.
    fn draw(&mut self) {
        let run = self.run;
        if run.n_lost > 0 {
            self.skip();
        }
        let mut notes = run.notes.iter().peekable();
        let mut panics = run.panics.iter().peekable();
        for entry in &run.entries {
            let (step, event) = match entry {
                Entry::Place { g, text } => {
                    if let Some(activity) = self.activities.get_mut(g) {
                        activity.place = Some(text.clone());
                    }
                    continue;
                }
                Entry::Event { step, event } => (*step, *event),
            };
            let until = (step, event.at_ns);
            while let Some((note, text)) = notes.next_if(|(n, _)| (n.step, n.at_ns) <= until) {
                self.note(note, text.as_deref());
            }
            while let Some(panicked) = panics.next_if(|p| (p.step, p.at_ns) <= until) {
                self.panicked(panicked);
            }
            self.event(step, event);
        }
        for (note, text) in notes {
            self.note(note, text.as_deref());
        }
        panics.for_each(|panicked| self.panicked(panicked));
        self.end();
    }

    /// The beginning of the run is lost.
    fn skip(&mut self) {
        let first = self.run.entries.iter().find_map(|entry| match entry {
            Entry::Event { step, event } => Some((*step, event.at_ns)),
            Entry::Place { .. } => None,
        });
        if let Some((step, at_ns)) = first {
            let now_ns = self.elapsed_ns(at_ns);
            self.clock = Clock { step, now_ns };
        }
        let text = format!("{} earlier events are left out", self.run.n_lost);
        let at_ns = self.clock.now_ns;
        self.marks.push((EVENTS, at_ns, text, String::new()));
    }

    fn elapsed_ns(&self, at_ns: u64) -> u64 {
        at_ns.saturating_sub(self.run.began_ns)
    }

    fn event(&mut self, step: u64, event: Event) {
        let elapsed_ns = self.elapsed_ns(event.at_ns);
        let at_ns = self.clock.at(step, elapsed_ns);
        let g = event.g;
        match event.kind {
            EventKind::Start => {
                if self.running == Some(g) {
                    return;
                }
                if let Some(left) = self.running.replace(g) {
                    self.turn(left, State::Runnable, at_ns, step, elapsed_ns);
                }
                let from_ns = self.turn(g, State::Running, at_ns, step, elapsed_ns);
                if let Some(from) = self.wakes.remove(&g) {
                    self.flows.push((from, (self.run.row(g), from_ns)));
                }
            }
            EventKind::Park | EventKind::End => {
                if let Some(g) = self.running.take() {
                    let state = match event.kind {
                        EventKind::Park => State::Waiting((self.run.names.reason)(event.reason)),
                        _ => State::Gone,
                    };
                    self.turn(g, state, at_ns + END_NS, step, elapsed_ns);
                }
            }
            EventKind::Ready => {
                let is_running = self.running == Some(g);
                let state = self.activities.get(&g).map(|activity| activity.state);
                if is_running || state == Some(State::Runnable) {
                    return;
                }
                self.turn(g, State::Runnable, at_ns + MIDDLE_NS, step, elapsed_ns);
                if let Some(waker) = self.running {
                    let row = self.run.row(waker);
                    self.wakes.insert(g, (row, at_ns + MIDDLE_NS));
                }
            }
            EventKind::RegionBegin | EventKind::RegionEnd => self.regions.push(Event {
                at_ns: at_ns + MIDDLE_NS,
                ..event
            }),
            // There is one P, without a ring, and nothing to steal.
            _ => {}
        }
    }

    /// A goroutine does something else from now on. Returns the moment, which is not before that at
    /// which it began to do what it did.
    fn turn(&mut self, g: u64, state: State, at_ns: u64, step: u64, elapsed_ns: u64) -> u64 {
        let before = self.activities.get(&g).map_or(0, |before| before.from_ns);
        let from_ns = at_ns.max(before);
        let now = Activity {
            state,
            from_ns,
            step,
            elapsed_ns,
            place: None,
        };
        // A state that another goroutine's step ends has ended with the step before.
        let last_step = match state {
            State::Runnable => step.saturating_sub(1),
            _ => step,
        };
        if let Some(before) = self.activities.insert(g, now) {
            self.close(g, before, from_ns, last_step);
        }
        from_ns
    }

    fn close(&mut self, g: u64, activity: Activity, to_ns: u64, last_step: u64) {
        let Activity { state, from_ns, .. } = activity;
        if state == State::Gone || from_ns >= to_ns {
            return;
        }
        let mut args = format!("\"step\":{}", activity.step);
        if state == State::Running {
            let last_step = last_step.max(activity.step);
            args.push_str(&format!(",\"last step\":{last_step}"));
        }
        args.push(',');
        args.push_str(&virtual_time(activity.elapsed_ns));
        if let Some(place) = &activity.place {
            args.push_str(&format!(",\"at\":{}", quoted(place)));
        }
        if state == State::Running {
            self.slices.push(Slice {
                row: SCHEDULE,
                from_ns,
                to_ns,
                category: "goroutine",
                name: goroutine_name(g, &self.names),
                args: args.clone(),
            });
        }
        self.slices.push(Slice {
            row: self.run.row(g),
            from_ns,
            to_ns,
            category: "state",
            name: state.name().to_owned(),
            args,
        });
    }

    fn panicked(&mut self, panicked: &Panicked) {
        let elapsed_ns = self.elapsed_ns(panicked.at_ns);
        let at_ns = self.clock.at(panicked.step, elapsed_ns) + MIDDLE_NS;
        let mut args = at_step(panicked.step, elapsed_ns);
        args.push_str(&format!(",\"message\":{}", quoted(&panicked.message)));
        if let Some(place) = &panicked.at {
            args.push_str(&format!(",\"at\":{}", quoted(place)));
        }
        let text = format!("{} panics", goroutine_name(panicked.id, &self.names));
        for row in [EVENTS, self.run.row(panicked.id)] {
            self.marks.push((row, at_ns, text.clone(), args.clone()));
        }
    }

    fn note(&mut self, note: &Note, text: Option<&str>) {
        let elapsed_ns = self.elapsed_ns(note.at_ns);
        let at_ns = self.clock.at(note.step, elapsed_ns) + MIDDLE_NS;
        if let Some(text) = text {
            let args = at_step(note.step, elapsed_ns);
            self.marks.push((EVENTS, at_ns, text.to_owned(), args));
        }
        let (lane, name, begins) = match note.incident {
            Incident::Crash(host) => {
                // If it stood still, that is over.
                self.end_condition(&Lane::Host(host), at_ns);
                (Lane::Host(host), "down", true)
            }
            Incident::Restart(host) => (Lane::Host(host), "down", false),
            Incident::Pause(host) => (Lane::Host(host), "stands still", true),
            Incident::Resume(host) => (Lane::Host(host), "stands still", false),
            Incident::DiskTrouble {
                host,
                trouble,
                begins,
            } => (Lane::Disk(host, trouble.name()), trouble.name(), begins),
            Incident::Cut { from, to, is_cut } => (Lane::Link(from, to), "cut", is_cut),
            Incident::DiskPowerLoss(_) | Incident::Partition { .. } | Incident::Reset { .. } => {
                return;
            }
        };
        if begins {
            let n = OTHER_ROWS + 1 + self.lanes.len() as u64;
            self.lanes.entry(lane.clone()).or_insert_with(|| Row {
                pid: match lane {
                    Lane::Link(..) => RUN,
                    Lane::Host(host) | Lane::Disk(host, _) => process_of(host),
                },
                tid: n,
            });
            let condition = self.conditions.entry(lane).or_insert(Condition {
                name,
                from_ns: at_ns,
                elapsed_ns,
                n: 0,
            });
            condition.n += 1;
        } else {
            self.end_condition(&lane, at_ns);
        }
    }

    /// A cause of a condition is over.
    fn end_condition(&mut self, lane: &Lane, at_ns: u64) {
        let Some(condition) = self.conditions.get_mut(lane) else {
            return;
        };
        condition.n -= 1;
        if condition.n == 0 {
            self.close_condition(lane, at_ns);
        }
    }

    fn close_condition(&mut self, lane: &Lane, at_ns: u64) {
        if let Some(condition) = self.conditions.remove(lane) {
            self.slices.push(Slice {
                row: self.lanes[lane],
                from_ns: condition.from_ns,
                to_ns: at_ns,
                category: "fault",
                name: condition.name.to_owned(),
                args: virtual_time(condition.elapsed_ns),
            });
        }
    }

    /// The run is over: what goes on ends here.
    fn end(&mut self) {
        let (step, at_ns) = self.run.end;
        let elapsed_ns = self.elapsed_ns(at_ns);
        let at_ns = self.clock.at(step, elapsed_ns) + STEP_NS;
        for (g, activity) in std::mem::take(&mut self.activities) {
            self.close(g, activity, at_ns, step);
        }
        while let Some((lane, _)) = self.conditions.first_key_value() {
            let lane = lane.clone();
            self.close_condition(&lane, at_ns);
        }
        let text = match &self.run.failure {
            Some(kind) => format!("the run fails: {kind}"),
            None => "the run ends".to_owned(),
        };
        self.marks
            .push((EVENTS, at_ns, text, at_step(step, elapsed_ns)));
        let until_ns = at_ns;
        self.slices
            .sort_by_key(|slice| (slice.row, slice.from_ns, Reverse(slice.to_ns)));
        self.marks.sort_by_key(|&(row, at_ns, ..)| (row, at_ns));
        self.clock.now_ns = until_ns;
    }

    fn write(&self, writer: impl Write) -> io::Result<()> {
        let mut out = Output::new(writer, 0)?;
        self.describe(&mut out)?;
        for slice in &self.slices {
            let span = (slice.from_ns, slice.to_ns);
            out.slice(slice.row, span, slice.category, &slice.name, &slice.args)?;
        }
        for (row, at_ns, name, args) in &self.marks {
            out.mark(*row, *at_ns, name, args)?;
        }
        for (n, &(from, to)) in self.flows.iter().enumerate() {
            out.flow(n, from, to)?;
        }
        for end in region_ends(&self.regions, self.clock.now_ns) {
            let name = (self.run.names.region)(end.name);
            out.region_end(self.run.row(end.g), end.g, name, end.is_begin, end.at_ns)?;
        }
        out.finish()
    }

    /// Writes the names of processes and rows.
    fn describe<W: Write>(&self, out: &mut Output<W>) -> io::Result<()> {
        let run = self.run;
        out.process(RUN, &run.title)?;
        out.process_place(RUN, 0)?;
        out.row(SCHEDULE, "schedule", 0)?;
        out.row(EVENTS, "events", 1)?;
        for (host, (name, ip)) in (0_u32..).zip(&run.hosts) {
            let pid = process_of(host);
            out.process(pid, &format!("host {name} ({ip})"))?;
            out.process_place(pid, pid)?;
        }
        let host = |host: u32| run.hosts[host as usize].0.as_str();
        for (place, (lane, &row)) in (2..).zip(&self.lanes) {
            let name = match *lane {
                Lane::Link(from, to) => format!("link from {} to {}", host(from), host(to)),
                Lane::Host(_) => "host".to_owned(),
                Lane::Disk(_, trouble) => format!("disk is {trouble}"),
            };
            out.row(row, &name, place)?;
        }
        // Below the rows of faults.
        let n_lanes = self.lanes.len() as u64 + 2;
        for &g in run.goroutines.keys() {
            let name = goroutine_name(g, &self.names);
            out.row(run.row(g), &name, n_lanes + g)?;
        }
        Ok(())
    }
}

/// The arguments of an instant.
fn at_step(step: u64, elapsed_ns: u64) -> String {
    format!("\"step\":{step},{}", virtual_time(elapsed_ns))
}

fn virtual_time(elapsed_ns: u64) -> String {
    let elapsed = Duration::from_nanos(elapsed_ns);
    format!("\"virtual time\":\"{elapsed:?}\"")
}

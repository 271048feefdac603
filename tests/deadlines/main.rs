//! Every wait there is, ended by every kind of deadline, wherever it is made.
//!
//! The tables in the modules are data: a name, and how to set the wait up. A *cell* is one wait of a
//! table under one [`Ending`] in one [`Place`]. None would end by itself. `make test` runs all cells
//! over both pollers.
#![allow(clippy::disallowed_methods, reason = "plain threads take part")]

#[path = "../util/temp.rs"]
mod temp;
#[path = "../util/mod.rs"]
mod util;

mod channels;
mod locks;
mod resolver;
mod sockets;
mod streams;
mod tasks;

use std::fmt::Debug;
use std::io::{self, ErrorKind};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use windlass::channel::{self, Receiver, Sender};
use windlass::context::{Context, Error};
use windlass::time::{Duration, Instant, timeout, timeout_at};

const FOREVER: Duration = Duration::from_secs(1 << 30);

/// The time after which waits are ended.
const SHORT: Duration = Duration::from_millis(20);

/// The time after which a wait has not been ended: the others of its table have, and a busy machine
/// has had its turn.
const PATIENCE: Duration = Duration::from_secs(20);

/// A wait that has been set up.
struct Wait {
    /// Waits, and checks what the call gives, for the reason why the wait is ended.
    call: Box<dyn FnOnce(Error) + Send>,
    /// Lets the wait end by itself.
    release: Box<dyn FnOnce() + Send>,
}

/// A wait that would end if `keep` was dropped.
fn wait<K: Send + 'static>(keep: K, call: impl FnOnce(Error) + Send + 'static) -> Wait {
    until(move || drop(keep), call)
}

/// A wait that `release` would end.
fn until(
    release: impl FnOnce() + Send + 'static,
    call: impl FnOnce(Error) + Send + 'static,
) -> Wait {
    Wait {
        call: Box::new(call),
        release: Box::new(release),
    }
}

/// The error of a call of `std::io` whose wait was ended.
#[track_caller]
fn cut<T: Debug>(result: io::Result<T>, why: Error) {
    let e = result.unwrap_err();
    let kind = match why {
        Error::DeadlineExceeded => ErrorKind::TimedOut,
        _ => ErrorKind::Other,
    };
    let inner = e.get_ref().and_then(|e| e.downcast_ref());
    assert_eq!((e.kind(), inner), (kind, Some(&why)), "{e:?}");
}

/// A line of a table.
struct Row {
    name: &'static str,
    /// Whether deadlines and contexts end it. docs/SAFETY.md says which they do not.
    is_ended: bool,
    /// Whether a plain thread can make the call.
    is_for_threads: bool,
    set_up: fn() -> Wait,
}

const fn ended(name: &'static str, set_up: fn() -> Wait) -> Row {
    Row {
        name,
        is_ended: true,
        is_for_threads: true,
        set_up,
    }
}

const fn ended_of_goroutines(name: &'static str, set_up: fn() -> Wait) -> Row {
    Row {
        is_for_threads: false,
        ..ended(name, set_up)
    }
}

const fn not_ended(name: &'static str, set_up: fn() -> Wait) -> Row {
    Row {
        is_ended: false,
        ..ended(name, set_up)
    }
}

const fn not_ended_of_goroutines(name: &'static str, set_up: fn() -> Wait) -> Row {
    Row {
        is_for_threads: false,
        ..not_ended(name, set_up)
    }
}

/// The event that ends the waits.
#[derive(Clone, Copy, Debug)]
enum Ending {
    Timeout(Duration),
    At(Duration),
    Cancel,
}

const ENDINGS: [Ending; 4] = [
    Ending::Timeout(SHORT),
    Ending::Timeout(Duration::ZERO),
    Ending::At(SHORT),
    Ending::Cancel,
];

impl Ending {
    /// Calls `call` so that its waits are ended. Returns whether they are said to have been.
    fn apply(self, ctx: &Context, call: Box<dyn FnOnce(Error) + Send>) -> bool {
        match self {
            Ending::Timeout(time) => timeout(time, || call(Error::DeadlineExceeded)).is_err(),
            Ending::At(time) => {
                let at = Instant::now() + time;
                timeout_at(at, || call(Error::DeadlineExceeded)).is_err()
            }
            Ending::Cancel => {
                ctx.run(|| call(Error::Cancelled));
                ctx.err() == Some(Error::Cancelled)
            }
        }
    }
}

/// Where the wait is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Goroutine,
    Thread,
    Blocking,
    Offload,
}

impl Place {
    fn start(self, f: impl FnOnce() + Send + 'static) {
        match self {
            Place::Goroutine => drop(windlass::spawn(f)),
            Place::Thread => drop(std::thread::spawn(f)),
            Place::Blocking => drop(windlass::spawn(|| windlass::blocking(f))),
            Place::Offload => drop(windlass::spawn(|| windlass::offload(f))),
        }
    }

    fn is_a_thread(self) -> bool {
        matches!(self, Place::Thread | Place::Offload)
    }
}

/// Cells that do not hold yet, by name and place; `None` for all places.
const OPEN: &[(&str, Option<Place>)] = &[
    // A terminal polls as writable, and then blocks a write that is longer than its room.
    ("terminal write", None),
];

/// The environment variable that chooses one wait by its name, also one whose cells are open.
const ONLY: &str = "WINDLASS_TEST_WAIT";

fn is_open(name: &str, place: Place) -> bool {
    if let Ok(only) = std::env::var(ONLY) {
        return only != name;
    }
    OPEN.iter()
        .any(|&(open, at)| open == name && at.is_none_or(|at| at == place))
}

/// A wait that has begun.
struct Cell {
    row: &'static Row,
    release: Box<dyn FnOnce() + Send>,
    /// The result: whether it is said to have been ended, or the text of a panic. Once.
    outcome: Option<Result<bool, String>>,
}

/// The waits of a table in one place under one ending.
struct Cells {
    all: Vec<Cell>,
    reports: Receiver<(usize, Result<bool, String>)>,
    n_begun: Arc<AtomicUsize>,
    faults: Vec<String>,
}

impl Cells {
    fn start(
        rows: impl Iterator<Item = &'static Row>,
        place: Place,
        ending: Ending,
        ctx: &Context,
    ) -> Cells {
        let (report, reports) = channel::unbounded();
        let n_begun = Arc::new(AtomicUsize::new(0));
        let all = rows
            .filter(|row| row.is_for_threads || !place.is_a_thread())
            .filter(|row| !is_open(row.name, place))
            .enumerate()
            .map(|(number, row)| {
                let Wait { call, release } = (row.set_up)();
                let (ctx, n_begun): (_, Arc<AtomicUsize>) = (ctx.clone(), Arc::clone(&n_begun));
                let report: Sender<_> = report.clone();
                place.start(move || {
                    n_begun.fetch_add(1, Ordering::SeqCst);
                    let ended = catch_unwind(AssertUnwindSafe(|| ending.apply(&ctx, call)));
                    let ended = ended.map_err(|payload| util::panic_text(&*payload).to_owned());
                    report.send((number, ended)).unwrap();
                });
                Cell {
                    row,
                    release,
                    outcome: None,
                }
            })
            .collect();
        Cells {
            all,
            reports,
            n_begun,
            faults: Vec::new(),
        }
    }

    fn wait_until_begun(&self) {
        util::wait_until(|| self.n_begun.load(Ordering::SeqCst) == self.all.len());
    }

    fn fault(&mut self, row: &Row, text: &str) {
        self.faults.push(format!("{}: {text}", row.name));
    }

    /// Receives reports until `are_enough`, or for `time`.
    fn receive(&mut self, time: Duration, are_enough: impl Fn(&Cell) -> bool) {
        let until = Instant::now() + time;
        while !self.all.iter().all(&are_enough) {
            let Ok((number, ended)) = self.reports.recv_deadline(until) else {
                return;
            };
            let row = self.all[number].row;
            if self.all[number].outcome.replace(ended).is_some() {
                self.fault(row, "ended twice");
            }
        }
    }

    /// Waits until all have ended that are ended, and then for the others, which are let go.
    fn finish(mut self, ending: Ending) -> Vec<String> {
        self.receive(PATIENCE, |cell| {
            !cell.row.is_ended || cell.outcome.is_some()
        });
        // As long as it took for the first ones.
        self.receive(SHORT, |_| false);
        for at in 0..self.all.len() {
            let (row, outcome) = (self.all[at].row, self.all[at].outcome.clone());
            match outcome {
                None if row.is_ended => self.fault(row, "not ended"),
                Some(Ok(_)) if !row.is_ended => self.fault(row, "ended"),
                Some(Ok(false)) => self.fault(row, "ended, and nothing says so"),
                Some(Err(text)) => self.fault(row, &text),
                Some(Ok(true)) | None => {}
            }
        }
        for cell in &mut self.all {
            std::mem::replace(&mut cell.release, Box::new(|| {}))();
        }
        self.receive(PATIENCE, |cell| cell.outcome.is_some());
        for at in 0..self.all.len() {
            let (row, outcome) = (self.all[at].row, self.all[at].outcome.clone());
            match outcome {
                None => self.fault(row, "does not end by itself"),
                Some(Err(text)) if !row.is_ended => self.fault(row, &text),
                Some(Ok(true)) if !row.is_ended && !matches!(ending, Ending::Cancel) => {
                    self.fault(row, "not ended, but said to have been");
                }
                _ => {}
            }
        }
        self.faults
    }
}

fn rows() -> impl Iterator<Item = &'static Row> {
    let tables = [
        channels::ROWS,
        locks::ROWS,
        tasks::ROWS,
        sockets::ROWS,
        streams::ROWS,
    ];
    tables.into_iter().flatten()
}

fn each_ends(place: Place) {
    util::run(2, || {
        for ending in ENDINGS {
            let (ctx, canceller) = Context::background().with_cancel();
            let cells = Cells::start(rows(), place, ending, &ctx);
            cells.wait_until_begun();
            windlass::sleep(SHORT);
            canceller.cancel();
            let faults = cells.finish(ending);
            assert!(faults.is_empty(), "{place:?}, {ending:?}: {faults:#?}");
        }
    });
}

#[test]
fn each_wait_of_a_goroutine_ends() {
    each_ends(Place::Goroutine);
}

#[test]
fn each_wait_of_a_thread_ends() {
    each_ends(Place::Thread);
}

#[test]
fn each_wait_in_a_blocking_section_ends() {
    each_ends(Place::Blocking);
}

#[test]
fn each_wait_in_offloaded_work_ends() {
    each_ends(Place::Offload);
}

/// The CPU time of the process while these wait.
fn cpu_of(rows: impl Iterator<Item = &'static Row>, place: Place) -> Duration {
    const LONG: Duration = Duration::from_millis(500);
    const LOOK: Duration = Duration::from_millis(300);
    let ending = Ending::Timeout(LONG);
    let cells = Cells::start(rows, place, ending, &Context::background());
    cells.wait_until_begun();
    windlass::sleep(SHORT);
    let before = util::process_cpu();
    windlass::sleep(LOOK);
    let used = util::process_cpu() - before;
    let faults = cells.finish(ending);
    assert!(faults.is_empty(), "{place:?}: {faults:#?}");
    used
}

/// None of them polls in a loop. A process of its own, as the CPU time of all threads counts.
#[test]
fn no_wait_uses_the_cpu() {
    /// One that loops would use 300 ms. A hundred threads, of which some look at a context every
    /// millisecond, use 100 ms in a debug build.
    const MOST: Duration = Duration::from_millis(200);
    if util::child_case().is_none() {
        util::child_passes_with_io(
            "no_wait_uses_the_cpu",
            "",
            std::env::var("WINDLASS_IO").ok().as_deref(),
        );
        return;
    }
    util::run(2, || {
        for place in [
            Place::Goroutine,
            Place::Thread,
            Place::Blocking,
            Place::Offload,
        ] {
            let used = cpu_of(rows(), place);
            if used > MOST {
                let one_by_one: Vec<_> = rows()
                    .map(|row| (row.name, cpu_of(std::iter::once(row), place)))
                    .filter(|(_, used)| *used > MOST / 20)
                    .collect();
                panic!("{place:?}: {used:?}, alone {one_by_one:#?}");
            }
        }
    });
}

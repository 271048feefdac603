//! Settings of a simulation, and its runs.

use std::any::Any;
use std::cell::RefCell;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::path::PathBuf;
use std::rc::Rc;
use std::str::FromStr;

use windlass_trace::recording::Recording;

use super::events;
use super::failure::{Facts, Failure, FailureKind, Panic};
use super::faults::Faults;
use super::link::Link;
use super::report::{Report, Run};
use super::schedule::Schedule;
use super::settle::linger;
use super::strategy::Strategy;
use super::trace::Taken;
use super::trace_file::TraceFile;
use super::watch;
use crate::bubble::Bubble;
use crate::bubble::log::Event;
use crate::bubble::messages::Messages;
use crate::bubble::net::network::Network;
use crate::bubble::shorten::{MOST_RUNS, shorten};
use crate::bubble::strategy::{Choice, Script, next_script};
use crate::debug::dump::Dump;
use crate::fs::memory::settings::Disk;
use crate::fs::memory::sim_disk;
use crate::loom::native::Arc;
use crate::loom::native::atomic::{AtomicU64, Ordering};
use crate::promise::Promise;
use crate::runtime::{Runtime, build_simulated, run_simulated};
use crate::sched::types::current;
use crate::sched::types::progress::Progress;
use crate::sched::types::simulation::{Simulation, Stop};
use crate::sched::wait::points::Cancelled;
use crate::sched::wait::spawn::drop_payload;
use crate::sys::clock;

/// The number of seeds, unless it is set; and that of runs of an exhaustive search.
const SEEDS: u64 = 100;
const SEARCH_RUNS: u64 = 100_000;
/// A run with more choices is not shortened.
const SHORTEN_AT_MOST: usize = 100_000;
/// The search for a shorter run may leave so many descriptors open.
const MOST_LEAKS: usize = 100;
/// The number of steps of a run, unless it is set.
const STEPS: u64 = 1_000_000;
/// One seed in so many is run twice.
const TWICE_EVERY: u64 = 16;
/// The number of runs that this process has begun. Ordering: relaxed, a counter.
static N_RUNS: AtomicU64 = AtomicU64::new(0);
/// How many goroutines a report names as those with the most steps.
const HOTTEST: usize = 5;

/// Runs `f` as the main goroutine of a simulation, once for each of 100 seeds. The seeds are new in
/// each call.
///
/// [`Sim::run`] does the same without settings, and returns the failure.
///
/// # Blocking
///
/// Blocks the thread while it computes. Virtual time takes no time.
///
/// # Panics
///
/// If a run fails. The message is the text of the [`Failure`].
///
/// Also if it is called inside a goroutine, or the process is out of memory or descriptors.
///
/// # Examples
///
/// ```
/// use windlass::sync::{Arc, Mutex};
///
/// // SAFETY: nothing of a thread is kept across a call into windlass.
/// const PROMISE: windlass::Promise = unsafe { windlass::Promise::no_thread_local_across_waits() };
///
/// windlass::sim::check(PROMISE, || {
///     let total = Arc::new(Mutex::new(0));
///     let adders = [1, 2, 3].map(|n| {
///         let total = Arc::clone(&total);
///         windlass::spawn(move || *total.lock().unwrap() += n)
///     });
///     adders.map(|adder| adder.join().unwrap());
///     assert_eq!(*total.lock().unwrap(), 6);
/// });
/// ```
///
/// It does not compile without the promise:
///
/// ```compile_fail
/// windlass::sim::check(|| ());
/// ```
#[track_caller]
pub fn check(promise: Promise, f: impl Fn()) {
    if let Err(failure) = Sim::new(promise).run(f) {
        panic!("{failure}");
    }
}

/// Settings of a simulation.
///
/// # Examples
///
/// ```
/// # const PROMISE: windlass::Promise = unsafe { windlass::Promise::no_thread_local_across_waits() };
/// use windlass::sim::{Sim, Strategy};
///
/// let sim = Sim::new(PROMISE)
///     .seeds(20)
///     .steps(10_000)
///     .strategy(Strategy::Pct { depth: 3 })
///     .no_goroutines_left(true);
/// sim.run(|| drop(windlass::spawn(|| ()))).unwrap();
/// ```
#[derive(Clone, Debug)]
#[must_use = "settings do nothing until run is called"]
pub struct Sim {
    seed: Option<u64>,
    seeds: Option<u64>,
    steps: u64,
    strategy: Strategy,
    replay: Option<Schedule>,
    no_goroutines_left: bool,
    no_descriptors_left: bool,
    no_messages_left: bool,
    may_panic: bool,
    shortens: bool,
    link: Link,
    faults: Faults,
    disk: Disk,
    trace: Option<TraceFile>,
}

impl Sim {
    /// The settings of [`check`].
    ///
    /// The promise is that of a runtime ([`Promise`]). Goroutines of a simulation stay on one thread,
    /// but other goroutines run on it while one waits, and use the same thread-locals.
    pub fn new(_: Promise) -> Sim {
        Sim {
            seed: None,
            seeds: None,
            steps: STEPS,
            strategy: Strategy::default(),
            replay: None,
            no_goroutines_left: false,
            no_descriptors_left: false,
            no_messages_left: false,
            may_panic: false,
            shortens: true,
            link: Link::new(),
            faults: Faults::none(),
            disk: Disk::new(),
            trace: None,
        }
    }

    /// Sets the first seed. The runs have this seed and those that follow. By default the first
    /// seed is drawn from the system's random numbers.
    pub fn seed(mut self, first: u64) -> Sim {
        self.seed = Some(first);
        self
    }

    /// Sets the number of seeds, which is 100 by default.
    pub fn seeds(mut self, n: u64) -> Sim {
        self.seeds = Some(n);
        self
    }

    /// Sets the most steps that a run may take; the default is 1,000,000. A step is a choice of the
    /// next goroutine.
    pub fn steps(mut self, most: u64) -> Sim {
        self.steps = most;
        self
    }

    /// Sets how the next goroutine is chosen.
    pub fn strategy(mut self, strategy: Strategy) -> Sim {
        self.strategy = strategy;
        self
    }

    /// Sets whether it is a failure if goroutines wait for ever when the main goroutine has ended
    /// (default: no). By default they are cancelled, as at the end of any run. With this setting
    /// the others go on until they have ended, or until nothing can wake one.
    pub fn no_goroutines_left(mut self, yes: bool) -> Sim {
        self.no_goroutines_left = yes;
        self
    }

    /// Sets whether it is a failure if descriptors are open at the end (default: no): sockets, ends of
    /// pipes and files, of all hosts. [`Failure::left`] names them.
    ///
    /// The end is when the main goroutine has ended, and each other one has ended or waits for ever. So
    /// what a server that never ends has open is left over: end it, or [crash](super::Host::crash) its
    /// host. Values that were forgotten ([`std::mem::forget`]) or leaked count as well. A socket that was
    /// given to `std`, or sent over a Unix socket, counts while its descriptor is open. A file that was given
    /// to `std` does not count.
    ///
    /// # Examples
    ///
    /// ```
    /// # const PROMISE: windlass::Promise = unsafe { windlass::Promise::no_thread_local_across_waits() };
    /// use windlass::net::TcpListener;
    /// use windlass::sim::{FailureKind, Sim};
    ///
    /// let leaks = || std::mem::forget(TcpListener::bind("0.0.0.0:80").unwrap());
    /// let sim = Sim::new(PROMISE).no_descriptors_left(true);
    /// let failure = sim.run(leaks).unwrap_err();
    /// assert_eq!(failure.kind(), FailureKind::DescriptorsLeft);
    /// assert!(failure.left()[0].starts_with("TCP listener at 0.0.0.0:80 on host main"));
    /// ```
    pub fn no_descriptors_left(mut self, yes: bool) -> Sim {
        self.no_descriptors_left = yes;
        self
    }

    /// Sets whether it is a failure if a message was sent and never received (default: no).
    /// [`Failure::left`] names the channels.
    ///
    /// A message counts if it is in its channel at the end, which is that of
    /// [`Sim::no_descriptors_left`], or was in it when the last receiver was dropped. The channels are those of
    /// [`bounded`](crate::channel::bounded), [`unbounded`](crate::channel::unbounded) and
    /// [`sync::mpsc`](crate::sync::mpsc), also if their handles were forgotten or leaked. The others do not
    /// count: those of timers, and `oneshot`, `broadcast` and `watch`, whose messages need not be
    /// received. Nor do messages that a host takes with it when it crashes.
    ///
    /// # Examples
    ///
    /// ```
    /// # const PROMISE: windlass::Promise = unsafe { windlass::Promise::no_thread_local_across_waits() };
    /// use windlass::channel::unbounded;
    /// use windlass::sim::{FailureKind, Sim};
    ///
    /// let sim = Sim::new(PROMISE).no_messages_left(true);
    /// let failure = sim.run(|| {
    ///     let (sender, receiver) = unbounded();
    ///     sender.send(1).unwrap();
    ///     sender.send(2).unwrap();
    ///     assert_eq!(receiver.recv(), Ok(1));
    /// });
    /// let failure = failure.unwrap_err();
    /// assert_eq!(failure.kind(), FailureKind::MessagesLeft);
    /// assert!(failure.left()[0].ends_with("1 message dropped with the last receiver"));
    /// ```
    pub fn no_messages_left(mut self, yes: bool) -> Sim {
        self.no_messages_left = yes;
        self
    }

    /// Whether the run goes on until no goroutine can run.
    fn lingers(&self) -> bool {
        self.no_goroutines_left || self.no_descriptors_left || self.no_messages_left
    }

    /// The panics of the run that are errors.
    fn panics(&self, bubble: &Bubble) -> Vec<Panic> {
        let panics = bubble.panics().into_iter();
        panics
            .filter(|panicked| !self.may_panic || panicked.id == 1)
            .map(|panicked| Panic {
                goroutine: panicked.id,
                name: panicked.name,
                message: panicked.message,
                at: panicked.at,
            })
            .collect()
    }

    /// A leftover of the run that is an error.
    fn left(&self, bubble: &Bubble) -> Option<(FailureKind, Vec<String>)> {
        if self.no_descriptors_left {
            let mut lines = bubble.net(|net, _| net.leaks());
            lines.extend(sim_disk::leaks(bubble));
            if !lines.is_empty() {
                return Some((FailureKind::DescriptorsLeft, lines));
            }
        }
        let lines = bubble.messages().map(Messages::left).unwrap_or_default();
        (!lines.is_empty()).then_some((FailureKind::MessagesLeft, lines))
    }

    /// Sets whether goroutines other than the main one may panic (default: no). Their joiners get
    /// the panic in any case.
    ///
    /// # Examples
    ///
    /// ```
    /// # const PROMISE: windlass::Promise = unsafe { windlass::Promise::no_thread_local_across_waits() };
    /// windlass::sim::Sim::new(PROMISE).seeds(1).may_panic(true).run(|| {
    ///     let outcome = windlass::spawn(|| panic!("expected")).join();
    ///     assert!(outcome.is_err());
    /// })?;
    /// # Ok::<(), windlass::sim::Failure>(())
    /// ```
    pub fn may_panic(mut self, yes: bool) -> Sim {
        self.may_panic = yes;
        self
    }

    /// Sets whether the shortest schedule is searched for that fails as the first failure does
    /// (default: yes). The search repeats the run up to 500 times, which takes a while if the run is
    /// long.
    ///
    /// # Examples
    ///
    /// ```
    /// # const PROMISE: windlass::Promise = unsafe { windlass::Promise::no_thread_local_across_waits() };
    /// use windlass::sim::Sim;
    ///
    /// let failure = Sim::new(PROMISE).shorten(false).run(|| panic!("oh")).unwrap_err();
    /// assert!(failure.shortest().is_none());
    /// ```
    pub fn shorten(mut self, yes: bool) -> Sim {
        self.shortens = yes;
        self
    }

    /// Sets the properties of all links between hosts. By default they take no time, have no limit
    /// and lose nothing. [`Network`](super::Network) sets those of single links, while a run goes
    /// on.
    ///
    /// # Examples
    ///
    /// ```
    /// # const PROMISE: windlass::Promise = unsafe { windlass::Promise::no_thread_local_across_waits() };
    /// use windlass::net::UdpSocket;
    /// use windlass::sim::{self, Link, Sim};
    /// use windlass::time::{Duration, Instant};
    ///
    /// let link = Link::new().latency(Duration::from_millis(30));
    /// Sim::new(PROMISE).seeds(5).link(link).run(|| {
    ///     let _echo = sim::host("echo", [10, 0, 0, 1], || {
    ///         let socket = UdpSocket::bind("0.0.0.0:7").unwrap();
    ///         let mut buf = [0; 10];
    ///         let (n, from) = socket.recv_from(&mut buf).unwrap();
    ///         socket.send_to(&buf[..n], from).unwrap();
    ///     });
    ///     sim::settle();
    ///     let start = Instant::now();
    ///     let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    ///     socket.send_to(b"hello", "echo:7").unwrap();
    ///     assert_eq!(socket.recv(&mut [0; 10]).unwrap(), 5);
    ///     assert_eq!(start.elapsed(), Duration::from_millis(60));
    /// })?;
    /// # Ok::<(), sim::Failure>(())
    /// ```
    pub fn link(mut self, link: Link) -> Sim {
        self.link = link;
        self
    }

    /// Sets which faults are drawn from the seed; none by default.
    ///
    /// # Examples
    ///
    /// See [`Faults`].
    pub fn faults(mut self, faults: Faults) -> Sim {
        self.faults = faults;
        self
    }

    /// Sets what the disks of the simulated machines are like, for `windlass::fs`.
    ///
    /// # Examples
    ///
    /// See [`Disk`].
    pub fn disk(mut self, settings: Disk) -> Sim {
        self.disk = settings;
        self
    }

    /// Writes one run to a file that ui.perfetto.dev opens, as `WINDLASS_SIM_TRACE=file` does for each
    /// simulation of the process.
    ///
    /// It is the run that fails. If there are several seeds, it is the shortest one that was found to
    /// fail in the same way. If no run fails, it is the last one. A file that exists is replaced.
    /// docs/guide/simulation.md says what the file shows.
    ///
    /// # Examples
    ///
    /// ```
    /// # const PROMISE: windlass::Promise = unsafe { windlass::Promise::no_thread_local_across_waits() };
    /// use windlass::sim::Sim;
    ///
    /// # let file = std::env::temp_dir().join(format!("windlass-sim-{}.json", std::process::id()));
    /// Sim::new(PROMISE).seed(1).seeds(1).trace(&file).run(|| {
    ///     windlass::spawn(|| ()).join().unwrap();
    /// })?;
    /// # if std::env::vars_os().any(|(name, _)| name.to_string_lossy().starts_with("WINDLASS_SIM")) { return Ok(()) }
    /// assert!(std::fs::read_to_string(&file).unwrap().contains("schedule"));
    /// # std::fs::remove_file(file).unwrap();
    /// # Ok::<(), windlass::sim::Failure>(())
    /// ```
    pub fn trace(mut self, file: impl Into<PathBuf>) -> Sim {
        self.trace = Some(TraceFile::of_program(file.into()));
        self
    }

    /// Repeats one run by its choices: there is one run, and the strategy and the number of seeds
    /// play no part. If the run cannot make them all, it fails, as a [`FailureKind::ScheduleMismatch`] unless it fails in
    /// another way.
    ///
    /// # Examples
    ///
    /// ```
    /// # const PROMISE: windlass::Promise = unsafe { windlass::Promise::no_thread_local_across_waits() };
    /// use windlass::sim::Sim;
    ///
    /// let racy = || {
    ///     let (sender, receiver) = windlass::channel::unbounded();
    ///     for n in [1, 2] {
    ///         let sender = sender.clone();
    ///         drop(windlass::spawn(move || sender.send(n)));
    ///     }
    ///     assert_eq!(receiver.recv(), Ok(1));
    /// };
    /// # if std::env::vars_os().any(|(name, _)| name.to_string_lossy().starts_with("WINDLASS_SIM")) { return }
    /// let failure = Sim::new(PROMISE).run(racy).unwrap_err();
    /// let again = Sim::new(PROMISE).replay(failure.schedule()).run(racy).unwrap_err();
    /// assert_eq!(again.until().schedule, failure.until().schedule);
    /// ```
    pub fn replay(mut self, schedule: &Schedule) -> Sim {
        self.replay = Some(schedule.clone());
        self
    }

    /// Applies the environment variables.
    #[track_caller]
    fn with_environment(mut self) -> Sim {
        if let Some(n) = parsed("WINDLASS_SIM_SEEDS", "a number") {
            self.seeds = Some(n);
        }
        if let Some(seed) = parsed("WINDLASS_SIM_SEED", "a number") {
            self.seed = Some(seed);
            self.seeds = Some(1);
        }
        if let Some(schedule) = parsed("WINDLASS_SIM_SCHEDULE", "a schedule") {
            self.replay = Some(schedule);
        }
        let file = std::env::var_os("WINDLASS_SIM_TRACE").filter(|value| !value.is_empty());
        if let Some(file) = file {
            self.trace = Some(TraceFile::of_environment(file.into()));
        }
        self
    }

    /// Runs `f` as the main goroutine, once for each seed, until a run fails.
    ///
    /// All goroutines of a run stay on the calling thread. After a failure, those that are left are
    /// cancelled, as at the end of any run: the next simulation begins afresh. Then `f` runs again,
    /// up to 500 times and without its panics being printed, to find the shortest schedule that
    /// fails in the same way.
    ///
    /// # Blocking
    ///
    /// As [`check`].
    ///
    /// # Errors
    ///
    /// The first failure.
    ///
    /// # Panics
    ///
    /// If it is called inside a goroutine, or the process is out of memory or descriptors; if an
    /// environment variable `WINDLASS_SIM_..` has a value that cannot be used; and if the file of a trace ([`Sim::trace`]) cannot be written. If a run has failed, its text says so
    /// instead.
    ///
    /// # Examples
    ///
    /// ```
    /// # const PROMISE: windlass::Promise = unsafe { windlass::Promise::no_thread_local_across_waits() };
    /// use windlass::sim::{FailureKind, Sim};
    ///
    /// let never_ends = Sim::new(PROMISE).seeds(1).steps(1_000).run(|| {
    ///     loop {
    ///         windlass::yield_now();
    ///     }
    /// });
    /// assert_eq!(never_ends.unwrap_err().kind(), FailureKind::StepLimit);
    /// ```
    #[track_caller]
    pub fn run(&self, f: impl Fn()) -> Result<Report, Failure> {
        let site = Location::caller();
        assert!(
            current::m().is_none(),
            "windlass: a simulation was started inside a goroutine: start it from a plain thread, \
             such as that of a test"
        );
        let sim = self.clone().with_environment();
        if let Some(file) = &sim.trace
            && let Err(e) = file.check()
        {
            panic!("windlass: {e}");
        }
        let runtime = match build_simulated(crate::config::DEFAULT_STACK_BYTES) {
            Ok(runtime) => runtime,
            Err(e) => panic!("windlass: a simulation cannot start: {e}"),
        };
        let runner = Runner {
            sim: &sim,
            runtime: &runtime,
            f: &f,
            site,
            progress: watch::watched(),
            taken: RefCell::default(),
        };
        let outcome = match (&sim.replay, sim.strategy) {
            (Some(schedule), _) => runner.replay(schedule),
            (None, Strategy::Exhaustive { preemptions }) => runner.search(preemptions),
            (None, _) => runner.draw(),
        };
        match (&sim.trace, runner.taken.take()) {
            (Some(file), Some(taken)) => file.write(&taken, outcome),
            _ => outcome,
        }
    }

    /// Whether there is one run for sure.
    fn is_one(&self) -> bool {
        self.replay.is_some() || self.seeds == Some(1)
    }
}

/// Carries out runs.
struct Runner<'a, F> {
    sim: &'a Sim,
    runtime: &'a Runtime,
    f: &'a F,
    site: &'static Location<'static>,
    progress: Arc<Progress>,
    /// The run that is to be written as a trace.
    taken: RefCell<Option<Taken>>,
}

/// How one run is to be.
#[derive(Default)]
struct Plan {
    seed: u64,
    script: Option<Script>,
    /// All events are kept.
    keeps: bool,
    /// The failure that the run repeats, to shorten it. Then panics print nothing.
    repeats: Option<String>,
    /// The most steps, if they are not those of the settings.
    most_steps: Option<u64>,
    /// Gets a line for each switch.
    events: Option<events::Lines>,
    /// The run is recorded, if a trace is to be written.
    traces: bool,
}

impl<F: Fn()> Runner<'_, F> {
    /// One run for each seed.
    fn draw(&self) -> Result<Report, Failure> {
        let first = self.sim.seed;
        let first = first.unwrap_or_else(|| RandomState::new().hash_one(0_u8));
        let mut report = Report::default();
        for n in 0..self.sim.seeds.unwrap_or(SEEDS) {
            let seed = first.wrapping_add(n);
            let twice = n.is_multiple_of(TWICE_EVERY);
            let plan = |traces| Plan {
                seed,
                keeps: twice,
                traces,
                ..Plan::default()
            };
            let outcome = self.run_one(plan(true));
            let outcome = outcome.map_err(|failed| self.with_shortest(failed))?;
            if twice {
                let again = self.run_one(plan(false));
                again.map_or_else(
                    |failed| Err(outcome.differs(format!("only the second run failed: {failed}"))),
                    |again| outcome.compare(&again),
                )?;
            }
            report.runs.push(outcome.run);
        }
        Ok(report)
    }

    /// All schedules with so many preemptions.
    fn search(&self, preemptions: u32) -> Result<Report, Failure> {
        let mut report = Report::default();
        let mut next = Some(Vec::new());
        for _ in 0..self.sim.seeds.unwrap_or(SEARCH_RUNS) {
            let Some(choices) = next else { break };
            let mut outcome = self.run_one(Plan {
                script: Some(Script::new(choices, Some(preemptions))),
                traces: true,
                ..Plan::default()
            })?;
            next = next_script(std::mem::take(&mut outcome.choices));
            report.runs.push(outcome.run);
        }
        report.is_complete = next.is_none();
        Ok(report)
    }

    fn replay(&self, schedule: &Schedule) -> Result<Report, Failure> {
        let outcome = self.run_one(Plan {
            seed: self.sim.seed.unwrap_or(0),
            script: Some(Script::new(schedule.choices().to_vec(), None)),
            traces: true,
            ..Plan::default()
        })?;
        Ok(Report {
            runs: vec![outcome.run],
            ..Report::default()
        })
    }

    /// Searches for a shorter schedule that fails in the same way.
    fn with_shortest(&self, failed: Failure) -> Failure {
        let choices = failed.schedule().choices().to_vec();
        let is_worth = matches!(
            failed.kind(),
            FailureKind::Panic
                | FailureKind::Deadlock
                | FailureKind::GoroutinesLeft
                | FailureKind::DescriptorsLeft
                | FailureKind::MessagesLeft
        );
        if !is_worth || !self.sim.shortens || choices.len() > SHORTEN_AT_MOST {
            return failed;
        }
        let (seed, text) = (failed.seed(), failed.to_string());
        // Without the choices that end it, a loop that waits for another goroutine goes on for
        // ever.
        let most_steps = (4 * failed.until().steps + 1_000).min(self.sim.steps);
        let fails = |choices: Vec<u32>, events: Option<&events::Lines>, traces: bool| {
            let again = self.run_one(Plan {
                seed,
                script: Some(Script::new(choices, None)),
                repeats: Some(text.clone()),
                most_steps: Some(most_steps),
                events: events.cloned(),
                traces,
                ..Plan::default()
            });
            again.err().filter(|again| again.is_like(&failed))
        };
        if fails(choices.clone(), None, false).is_none() {
            return failed.without_repetition();
        }
        let mut n_steps = failed.until().steps;
        // A descriptor that was forgotten is one of the kernel's, and stays open after each run.
        let most_runs = match failed.kind() {
            FailureKind::DescriptorsLeft => MOST_LEAKS / failed.left().len().max(1),
            _ => MOST_RUNS,
        };
        let shortest = shorten(choices, most_runs, |choices| {
            let again = fails(choices, None, false)?;
            n_steps = n_steps.min(again.until().steps);
            Some(again.schedule().choices().to_vec())
        });
        let lines = events::Lines::default();
        let is_listed = n_steps <= events::MOST_STEPS;
        // A run that was asked for by its seed is written as it was.
        let traces = self.sim.trace.is_some() && !self.sim.is_one();
        if is_listed || traces {
            let before = self.taken.take();
            let again = fails(shortest.clone(), is_listed.then_some(&lines), traces);
            if !traces || again.is_none() {
                self.taken.replace(before);
            }
        }
        failed.with_shortest(Schedule::new(shortest), events::shown(&lines))
    }

    fn run_one(&self, plan: Plan) -> Result<Outcome, Failure> {
        let (sim, seed) = (self.sim, plan.seed);
        let is_scripted = plan.script.is_some();
        let dump = Rc::new(RefCell::new(None));
        let (simulation, strategy) = self.prepare(plan, &dump);
        let left = RefCell::new(None);
        let bubble = &simulation.bubble;
        sim_disk::install(bubble, &sim.disk);
        let main = || {
            let outcome = catch_unwind(AssertUnwindSafe(self.f));
            match outcome {
                Ok(()) if sim.lingers() && !bubble.is_over() => {
                    linger();
                    if !bubble.is_over() {
                        left.replace(sim.left(bubble));
                    }
                }
                Ok(()) => {}
                Err(payload) => note_panic_of_main(bubble, payload),
            }
            // In the run: their destructors use its files and sockets.
            let mains = bubble.net(|net, _| net.take_mains());
            if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(mains))) {
                note_panic_of_main(bubble, payload);
            }
            let m = current::m().expect("a goroutine runs on an M");
            // A thread that was started behind the last switch point, too.
            if m.sched().met_outside() && simulation.stopped.get().is_none() {
                simulation.stopped.set(Some(Stop::Outside));
                (simulation.on_stop)(m.sched());
            }
            let has_failed = !bubble.panics().is_empty() || left.borrow().is_some();
            if has_failed && simulation.stopped.get().is_none() {
                (simulation.on_stop)(m.sched());
            }
        };
        if let Err(e) = run_simulated(self.runtime, &simulation, main, self.site) {
            panic!("windlass: a simulation cannot start: {e}");
        }
        let run = Run {
            seed,
            steps: bubble.step(),
            schedule: bubble.hash(),
            elapsed: bubble.elapsed(),
        };
        let panics = sim.panics(bubble);
        let (kind_left, left) = left.take().unzip();
        let misfit = sim.replay.as_ref().and_then(|_| bubble.misfit());
        let kind = match simulation.stopped.get() {
            Some(Stop::Outside) => Some(FailureKind::Thread),
            _ if bubble.has_raced() => Some(FailureKind::DataRace),
            _ if !panics.is_empty() => Some(FailureKind::Panic),
            Some(Stop::Deadlock) => Some(FailureKind::Deadlock),
            Some(Stop::Steps) => Some(FailureKind::StepLimit),
            Some(Stop::Left) => Some(FailureKind::GoroutinesLeft),
            None if kind_left.is_none() && misfit.is_some() => Some(FailureKind::ScheduleMismatch),
            None => kind_left,
        };
        if let Some(recording) = &simulation.recording {
            let is_shorter = bubble.repeats().is_some();
            let taken = Taken::of(bubble, recording, &run, &strategy, kind, is_shorter);
            self.taken.replace(Some(taken));
        }
        if let Some(kind) = kind {
            return Err(Failure::new(Facts {
                kind,
                run,
                strategy,
                panics,
                hottest: bubble.hottest(HOTTEST),
                dump: dump.take(),
                left: left.unwrap_or_default(),
                is_scripted,
                misfit,
                schedule: Schedule::new(picked(&bubble.take_choices())),
                ..Facts::default()
            }));
        }
        Ok(Outcome {
            choices: bubble.take_choices(),
            run,
            strategy,
            events: bubble.take_events(),
            simulation,
        })
    }

    /// Makes the world of a run, in which nothing has happened yet. Returns it with the text for its strategy. A
    /// dump of a run that stops goes to `dump`.
    fn prepare(&self, plan: Plan, dump: &Rc<RefCell<Option<Dump>>>) -> (Simulation, String) {
        let sim = self.sim;
        let (chosen, strategy) = sim.strategy.of_seed(plan.seed);
        let mut bubble = Bubble::new(
            clock::now(),
            plan.seed,
            (chosen, plan.script),
            plan.most_steps.unwrap_or(sim.steps),
            plan.keeps,
            plan.repeats,
        )
        .with_network(
            Network::new(
                sim.link.quality(),
                sim.faults.drawn(),
                sim.faults.lookup_failures(),
            ),
            // Relaxed: see the static.
            N_RUNS.fetch_add(1, Ordering::Relaxed),
        );
        if sim.no_messages_left {
            bubble.count_messages();
        }
        self.progress.begin(plan.seed);
        let taken = Rc::clone(dump);
        let mut simulation = Simulation::new(
            bubble,
            Arc::clone(&self.progress),
            Box::new(move |sched| *taken.borrow_mut() = Some(Dump::take(sched))),
            sim_disk::on_event,
        );
        let traces = plan.traces && sim.trace.is_some();
        simulation.recording = traces.then(Recording::default);
        if traces || plan.events.is_some() {
            simulation.bubble.net(|net, _| net.keep_notes());
        }
        if let Some(lines) = &plan.events {
            simulation.on_switch = Some(Box::new(events::recorder(lines)));
        }
        simulation.forbids_others = sim.no_goroutines_left;
        let is_replay = sim.replay.is_some();
        (
            simulation,
            if is_replay {
                "replay".to_owned()
            } else {
                strategy
            },
        )
    }
}

/// A run that did not fail.
struct Outcome {
    run: Run,
    strategy: String,
    choices: Vec<Choice>,
    /// Empty unless they were kept.
    events: Vec<Event>,
    simulation: Simulation,
}

fn picked(choices: &[Choice]) -> Vec<u32> {
    choices.iter().map(|choice| choice.picked).collect()
}

impl Outcome {
    /// # Errors
    ///
    /// If the two runs, which had the same seed, were not the same.
    fn compare(&self, again: &Outcome) -> Result<(), Failure> {
        if self.run == again.run {
            return Ok(());
        }
        let second = (&*again.simulation.bubble, &again.events[..]);
        let bubble = &self.simulation.bubble;
        Err(self.differs(bubble.difference(&self.events, second)))
    }

    fn differs(&self, difference: String) -> Failure {
        Failure::new(Facts {
            kind: FailureKind::NotDeterministic,
            run: self.run.clone(),
            strategy: self.strategy.clone(),
            difference: Some(difference),
            schedule: Schedule::new(picked(&self.choices)),
            ..Facts::default()
        })
    }
}

fn note_panic_of_main(bubble: &Bubble, payload: Box<dyn Any + Send>) {
    // If it was cancelled, the run was stopped for another reason.
    if !(payload.is::<Cancelled>() && bubble.is_over()) {
        bubble.note_panic(1, Some("main"), &*payload);
    }
    // Its destructor may be the program's.
    drop_payload(payload);
}

/// The value of an environment variable. One that cannot be parsed makes the simulation panic: a
/// test that ran other seeds instead would pass, and its output is not shown.
#[track_caller]
fn parsed<T: FromStr>(name: &str, what: &str) -> Option<T> {
    let value = std::env::var_os(name).filter(|value| !value.is_empty())?;
    let parsed = value.to_str().and_then(|value| value.trim().parse().ok());
    assert!(
        parsed.is_some(),
        "windlass: {name}={} cannot be used: it must be {what}",
        value.to_string_lossy()
    );
    parsed
}

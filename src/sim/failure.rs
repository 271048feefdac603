//! Why a run failed.

use std::fmt;

use super::report::Run;
use super::schedule::Schedule;
use crate::debug::dump::Dump;

/// The kind of a [`Failure`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailureKind {
    /// A goroutine panicked.
    #[default]
    Panic,
    /// All goroutines waited, and no timer was left to wake one. A sleep or timeout of more than 584 years is none:
    /// virtual time ends there.
    Deadlock,
    /// The run took more steps than [`Sim::steps`](super::Sim::steps) allows: probably goroutines
    /// that wait for one another in loops.
    StepLimit,
    /// The main goroutine had ended, and others waited for ever
    /// ([`Sim::no_goroutines_left`](super::Sim::no_goroutines_left)).
    GoroutinesLeft,
    /// Descriptors were open at the end
    /// ([`Sim::no_descriptors_left`](super::Sim::no_descriptors_left)).
    DescriptorsLeft,
    /// Messages were sent and never received
    /// ([`Sim::no_messages_left`](super::Sim::no_messages_left)).
    MessagesLeft,
    /// The race detector has found a data race (feature `race`, docs/guide/data-races.md). Its report is on
    /// stderr. It reports each race once in a process, so the shortest schedule is not searched for.
    DataRace,
    /// A thread took part in the run, so that it cannot be repeated.
    Thread,
    /// A seed was run twice, and the runs differed.
    NotDeterministic,
    /// The run could not make the choices of [`Sim::replay`](super::Sim::replay), or of `WINDLASS_SIM_SCHEDULE`, and did not
    /// fail in another way: the schedule is of another program, or the program has changed since.
    ScheduleMismatch,
}

/// A panic that ended a goroutine.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Panic {
    /// The goroutine's number in this run; the main goroutine is 1.
    pub goroutine: u64,
    /// Its name, if it has one.
    pub name: Option<String>,
    /// The message.
    pub message: String,
    /// Where it panicked: file, line and column. Not known if the program has replaced the panic
    /// hook.
    pub at: Option<String>,
}

impl fmt::Display for Panic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "goroutine {}", self.goroutine)?;
        if let Some(name) = &self.name {
            write!(f, " [name {name:?}]")?;
        }
        f.write_str(" panicked")?;
        if let Some(at) = &self.at {
            write!(f, " at {at}")?;
        }
        write!(f, ": {}", self.message)
    }
}

/// A run that failed. Its text has all that is known, and how to repeat the run.
///
/// # Examples
///
/// ```
/// # const PROMISE: windlass::Promise = unsafe { windlass::Promise::no_thread_local_across_waits() };
/// use windlass::sim::{FailureKind, Sim};
/// use windlass::sync::{Arc, Mutex};
///
/// let failure = Sim::new(PROMISE).run(|| {
///     let (a, b) = (Arc::new(Mutex::new(())), Arc::new(Mutex::new(())));
///     let (a2, b2) = (Arc::clone(&a), Arc::clone(&b));
///     let other = windlass::spawn(move || {
///         let _b = b2.lock();
///         let _a = a2.lock();
///     });
///     {
///         let _a = a.lock();
///         let _b = b.lock();
///     }
///     other.join().unwrap();
/// });
/// # if std::env::var_os("WINDLASS_SIM_SEED").is_some() { return }
/// # if std::env::var_os("WINDLASS_SIM_SEEDS").is_some() { return }
/// let failure = failure.unwrap_err();
/// assert_eq!(failure.kind(), FailureKind::Deadlock);
/// let repeat = format!("WINDLASS_SIM_SEED={}", failure.seed());
/// assert!(failure.to_string().contains(&repeat));
/// ```
#[derive(Clone)]
pub struct Failure(Box<Facts>);

#[derive(Clone, Default)]
pub(super) struct Facts {
    pub(super) kind: FailureKind,
    pub(super) run: Run,
    pub(super) strategy: String,
    pub(super) panics: Vec<Panic>,
    /// Goroutines with the most steps: their numbers and steps.
    pub(super) hottest: Vec<(u64, u64)>,
    /// The difference between runs with one seed.
    pub(super) difference: Option<String>,
    /// A line for each descriptor or channel that is left.
    pub(super) left: Vec<String>,
    /// The goroutines when the run was stopped.
    pub(super) dump: Option<Dump>,
    pub(super) schedule: Schedule,
    /// The shortest schedule found that fails in the same way.
    pub(super) shortest: Option<Schedule>,
    /// The events of its run.
    pub(super) events: Vec<String>,
    /// Its choices were not drawn from the seed.
    pub(super) is_scripted: bool,
    /// Where it could not make the choices that it was to make.
    pub(super) misfit: Option<String>,
    /// Its choices did not fail again.
    pub(super) is_unrepeatable: bool,
    /// Where its trace is, or why there is none.
    pub(super) trace: Option<String>,
}

impl Failure {
    pub(super) fn new(facts: Facts) -> Failure {
        Failure(Box::new(facts))
    }

    /// Why the run failed.
    #[must_use]
    pub fn kind(&self) -> FailureKind {
        self.0.kind
    }

    /// The seed of the run.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.0.run.seed
    }

    /// The run up to the failure.
    #[must_use]
    pub fn until(&self) -> &Run {
        &self.0.run
    }

    /// All panics that ended goroutines, in order.
    #[must_use]
    pub fn panics(&self) -> &[Panic] {
        &self.0.panics
    }

    /// The goroutines when the run was stopped. For a panic these are the ones that were left when
    /// the main goroutine ended.
    #[must_use]
    pub fn dump(&self) -> Option<&Dump> {
        self.0.dump.as_ref()
    }

    /// A line for each descriptor that is left, or each channel with messages that are, for the kinds
    /// [`DescriptorsLeft`](FailureKind::DescriptorsLeft) and
    /// [`MessagesLeft`](FailureKind::MessagesLeft).
    #[must_use]
    pub fn left(&self) -> &[String] {
        &self.0.left
    }

    /// The choices of the run, for [`Sim::replay`](super::Sim::replay).
    #[must_use]
    pub fn schedule(&self) -> &Schedule {
        &self.0.schedule
    }

    /// The shortest schedule that fails in the same way, if one was searched for: after a panic, a
    /// deadlock, and if something is left, in runs drawn from seeds. It is the shortest of those
    /// that up to 500 runs tried.
    #[must_use]
    pub fn shortest(&self) -> Option<&Schedule> {
        self.0.shortest.as_ref()
    }

    /// Whether it is the same failure as another, in a run that may be another.
    pub(super) fn is_like(&self, other: &Failure) -> bool {
        let first = |failure: &Failure| failure.panics().first().map(|panic| panic.at.clone());
        self.kind() == other.kind() && first(self) == first(other)
    }

    pub(super) fn with_shortest(mut self, schedule: Schedule, events: Vec<String>) -> Failure {
        self.0.shortest = Some(schedule);
        self.0.events = events;
        self
    }

    pub(super) fn with_trace(mut self, text: String) -> Failure {
        self.0.trace = Some(text);
        self
    }

    pub(super) fn without_repetition(mut self) -> Failure {
        self.0.is_unrepeatable = true;
        self
    }

    fn what(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let facts = &self.0;
        match facts.kind {
            FailureKind::Panic => match facts.panics.len() {
                1 => f.write_str("a goroutine panicked"),
                n => write!(f, "{n} goroutines panicked"),
            },
            FailureKind::Deadlock => f.write_str(
                "deadlock: every goroutine waits, and no timer is left that would wake one",
            ),
            FailureKind::StepLimit => f.write_str(
                "the run takes too many steps: goroutines seem to wait for one another in loops; \
                 if not, raise Sim::steps",
            ),
            FailureKind::GoroutinesLeft => f.write_str(
                "goroutines are left that wait for ever, and the main goroutine has ended",
            ),
            FailureKind::DescriptorsLeft => {
                f.write_str("descriptors are open at the end of the run")
            }
            FailureKind::DataRace => {
                f.write_str("a data race: ThreadSanitizer's report is on stderr")
            }
            FailureKind::MessagesLeft => f.write_str("messages were sent and never received"),
            FailureKind::Thread => f.write_str(
                "a thread took part: threads are not simulated; use windlass::spawn, and keep \
                 threads away from what the simulation uses",
            ),
            FailureKind::NotDeterministic => f.write_str(
                "two runs with this seed differed: something is not drawn from the seed, such as \
                 the order of a HashMap, std's clock, an address, or a state that outlives the run",
            ),
            FailureKind::ScheduleMismatch => f.write_str(
                "the schedule does not fit the program, which is another one or has changed since",
            ),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Facts { run, .. } = &*self.0;
        write!(f, "simulation failed: ")?;
        self.what(f)?;
        write!(
            f,
            "\nseed {} ({}), step {}, schedule {:016x}, virtual time {:?}; ",
            run.seed, self.0.strategy, run.steps, run.schedule, run.elapsed
        )?;
        match self.0.is_scripted {
            true => writeln!(f, "WINDLASS_SIM_SCHEDULE={} repeats it", self.0.schedule)?,
            false => writeln!(f, "WINDLASS_SIM_SEED={} repeats it", run.seed)?,
        }
        if let Some(misfit) = &self.0.misfit {
            writeln!(f, "the schedule does not fit: {misfit}")?;
        }
        for panic in &self.0.panics {
            writeln!(f, "{panic}")?;
        }
        for line in &self.0.left {
            writeln!(f, "left: {line}")?;
        }
        if let Some(difference) = &self.0.difference {
            writeln!(f, "{difference}")?;
        }
        if let Some(shortest) = &self.0.shortest {
            writeln!(
                f,
                "the shortest run found (choices unlike those of the plainest run: {}); \
                 WINDLASS_SIM_SCHEDULE={shortest} repeats it",
                shortest.n_choices()
            )?;
            for event in &self.0.events {
                writeln!(f, "    {event}")?;
            }
        }
        if self.0.is_unrepeatable {
            writeln!(
                f,
                "a second run with the same choices did not fail like this: something is not drawn \
                 from the seed"
            )?;
        }
        if let Some(trace) = &self.0.trace {
            writeln!(f, "{trace}")?;
        }
        if self.0.kind == FailureKind::StepLimit {
            for (id, steps) in &self.0.hottest {
                writeln!(f, "goroutine {id} took {steps} steps")?;
            }
        }
        match &self.0.dump {
            Some(dump) if !dump.goroutines.is_empty() => write!(f, "\n{dump}"),
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for Failure {
    /// The text, as `unwrap` prints this.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl std::error::Error for Failure {}

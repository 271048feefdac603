//! The choices of one run, to repeat it without its seed.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

use crate::bubble::schedule;

/// The choices of one run: at each point where several things could happen, the number of the one
/// that did. 0 is the plain case: the running goroutine goes on.
///
/// It can be printed and parsed. [`Failure`](super::Failure) has the one that failed, and
/// [`Sim::replay`](super::Sim::replay) repeats it. A schedule fits the program that it comes from. In
/// another one it is another run, or [none](super::FailureKind::ScheduleMismatch).
///
/// # Examples
///
/// ```
/// let schedule: windlass::sim::Schedule = "0x12,2,1x3".parse()?;
/// assert_eq!(schedule.to_string(), "0x12,2,1x3");
/// # Ok::<(), std::num::ParseIntError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule(Vec<u32>);

impl Schedule {
    /// Choices after the last one that is not 0 need not be stored.
    pub(super) fn new(mut choices: Vec<u32>) -> Schedule {
        let used = choices.iter().rposition(|&choice| choice != 0);
        choices.truncate(used.map_or(0, |at| at + 1));
        Schedule(choices)
    }

    pub(super) fn choices(&self) -> &[u32] {
        &self.0
    }

    /// The number of choices that are not 0: those that make it differ from the plainest run.
    #[must_use]
    pub fn n_choices(&self) -> usize {
        self.0.iter().filter(|&&choice| choice != 0).count()
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        schedule::write(f, &self.0)
    }
}

impl FromStr for Schedule {
    type Err = ParseIntError;

    /// # Errors
    ///
    /// If a part is no number, or there are more than a hundred million choices.
    fn from_str(text: &str) -> Result<Schedule, ParseIntError> {
        schedule::parse(text).map(Schedule::new)
    }
}

//! The choices of one run, to repeat it without its seed.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

/// Text has no more choices than this: a wrong digit must not take all memory.
const MOST_CHOICES: usize = 100_000_000;

/// The choices of one run: at each point where several things could happen, the number of the one
/// that did. 0 is the plain case: the running goroutine goes on.
///
/// It can be printed and parsed. [`Failure`](super::Failure) has the one that failed, and
/// [`Sim::replay`](super::Sim::replay) repeats it. A schedule fits the program that it comes from: another
/// program gets other choices by it.
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
        if self.0.is_empty() {
            return f.write_str("0");
        }
        for (at, same) in self.0.chunk_by(|a, b| a == b).enumerate() {
            let comma = if at == 0 { "" } else { "," };
            match same.len() {
                1 => write!(f, "{comma}{}", same[0])?,
                n => write!(f, "{comma}{}x{n}", same[0])?,
            }
        }
        Ok(())
    }
}

impl FromStr for Schedule {
    type Err = ParseIntError;

    /// # Errors
    ///
    /// If a part is no number, or there are more than a hundred million choices.
    fn from_str(text: &str) -> Result<Schedule, ParseIntError> {
        let mut choices = Vec::new();
        for part in text.trim().split(',').filter(|part| !part.is_empty()) {
            let (choice, n) = part.split_once('x').unwrap_or((part, "1"));
            let n: usize = n.parse()?;
            if choices.len().saturating_add(n) > MOST_CHOICES {
                // The error of a number that is too large.
                return Err("256".parse::<u8>().expect_err("255 is the largest"));
            }
            choices.extend(std::iter::repeat_n(choice.parse::<u32>()?, n));
        }
        Ok(Schedule::new(choices))
    }
}

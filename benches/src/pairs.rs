//! Whether one thing takes longer than another, or whether the difference is noise.
//!
//! Both are measured in each round, so what else the machine does hits both. Each round gives a
//! ratio. The interval is that of the sign test for the median of the ratios, at 99 %: it needs no
//! assumption on how times are distributed. A difference counts only if the whole interval is on one
//! side of 0.

use std::fmt;

use crate::results::Summary;

/// The chance that the interval does not hold the true median.
const ERROR: f64 = 0.01;

/// Times of two things, compared round by round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pairs {
    /// The median time of what is compared.
    pub time: f64,
    /// The median time of what it is compared with.
    pub base: f64,
    /// The median of the rounds' differences, as a part of the base: 0.03 is 3 % slower.
    pub difference: f64,
    /// The ends of its interval; `None` if there are too few rounds for one.
    pub interval: Option<(f64, f64)>,
    /// How many rounds there were.
    pub rounds: usize,
}

/// How the first stands to the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It takes longer.
    Slower,
    /// It takes less time.
    Faster,
    /// The difference is within the noise.
    Level,
    /// There are too few rounds to tell.
    Unknown,
}

impl Pairs {
    /// Of the times of both, in the order of the rounds; `None` without any.
    pub fn of(times: &[f64], bases: &[f64]) -> Option<Pairs> {
        let ratios = times.iter().zip(bases).map(|(time, base)| time / base);
        let mut differences: Vec<_> = ratios.map(|ratio| ratio - 1.0).collect();
        differences.sort_unstable_by(f64::total_cmp);
        let rounds = differences.len();
        Some(Pairs {
            time: Summary::of(times)?.median,
            base: Summary::of(bases)?.median,
            difference: Summary::of(&differences)?.median,
            interval: outside(rounds).map(|n| (differences[n], differences[rounds - 1 - n])),
            rounds,
        })
    }

    /// By the interval.
    pub fn standing(&self) -> Standing {
        match self.interval {
            None => Standing::Unknown,
            Some((lower, _)) if lower > 0.0 => Standing::Slower,
            Some((_, upper)) if upper < 0.0 => Standing::Faster,
            Some(_) => Standing::Level,
        }
    }

    /// Whether it is slower by more than this part, without doubt.
    pub fn is_slower_by(&self, part: f64) -> bool {
        self.interval.is_some_and(|(lower, _)| lower > part)
    }

    /// `level with flat`, `slower than flat by 4.0 %` ..
    pub fn words(&self, base: &str) -> String {
        let percent = self.difference.abs() * 100.0;
        match self.standing() {
            Standing::Slower => format!("slower than {base} by {percent:.1} %"),
            Standing::Faster => format!("faster than {base} by {percent:.1} %"),
            Standing::Level => format!("level with {base}"),
            Standing::Unknown => format!("not to be told from {base} by so few rounds"),
        }
    }
}

/// The figures behind the words: medians, and the difference by pairs with its interval.
impl fmt::Display for Pairs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |part: f64| format!("{:+.1}", part * 100.0);
        write!(
            f,
            "medians {:.2} and {:.2} ms, {} % by {} pairs",
            self.time,
            self.base,
            percent(self.difference),
            self.rounds
        )?;
        match self.interval {
            Some((lower, upper)) => {
                let (lower, upper) = (percent(lower), percent(upper));
                write!(f, " (99 % interval {lower} to {upper})")
            }
            None => write!(f, " (an interval needs 8)"),
        }
    }
}

/// How many of the sorted rounds are outside of the interval at each end; `None` if even all of them
/// are too few.
fn outside(rounds: usize) -> Option<usize> {
    // The chance that at most so many of the rounds are on one side of the true median: coins.
    let (mut chance, mut probability) = (0.0, 0.5_f64.powi(rounds as i32));
    let mut outside = None;
    for n in 0..rounds / 2 {
        chance += probability;
        if 2.0 * chance > ERROR {
            break;
        }
        outside = Some(n);
        probability *= (rounds - n) as f64 / (n + 1) as f64;
    }
    outside
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 15 rounds of a base that the machine disturbs, and what it is compared with: so many times
    /// that, and noise of so many percent of it, up and down in turn.
    fn rounds(times: f64, noise: f64) -> Pairs {
        let bases: Vec<_> = (0..15).map(|i| 10.0 + f64::from(i * 7 % 5)).collect();
        let noise = |i: usize| 1.0 + noise / 100.0 * [1.0, -1.0, 0.5, -0.5, 0.0][i % 5];
        let slower = |(i, base): (usize, &f64)| base * times * noise(i);
        Pairs::of(
            &bases.iter().enumerate().map(slower).collect::<Vec<_>>(),
            &bases,
        )
        .unwrap()
    }

    #[test]
    fn a_clear_win_and_a_clear_loss_are_said_with_their_size() {
        assert_eq!(rounds(0.9, 2.0).words("flat"), "faster than flat by 10.0 %");
        assert_eq!(rounds(1.2, 2.0).words("flat"), "slower than flat by 20.0 %");
    }

    #[test]
    fn noise_is_level_in_either_direction() {
        for times in [0.98, 0.99, 1.0, 1.01, 1.02] {
            let pairs = rounds(times, 6.0);
            assert_eq!(pairs.words("flat"), "level with flat", "{pairs}");
        }
    }

    #[test]
    fn a_disturbance_of_both_is_no_difference() {
        // Twice as long in every second round, for both.
        let bases: Vec<_> = (0..16)
            .map(|i| if i % 2 == 0 { 5.0 } else { 10.0 })
            .collect();
        let times: Vec<_> = bases.iter().map(|base| base * 1.05).collect();
        let pairs = Pairs::of(&times, &bases).unwrap();
        assert_eq!(pairs.standing(), Standing::Slower);
        assert!(pairs.is_slower_by(0.03) && !pairs.is_slower_by(0.06));
    }

    #[test]
    fn the_figures_are_those_of_the_rounds() {
        let text = rounds(1.2, 0.0).to_string();
        assert_eq!(
            text,
            "medians 14.40 and 12.00 ms, +20.0 % by 15 pairs (99 % interval +20.0 to +20.0)"
        );
    }

    #[test]
    fn few_rounds_tell_nothing() {
        let pairs = Pairs::of(&[2.0; 7], &[1.0; 7]).unwrap();
        assert_eq!(pairs.standing(), Standing::Unknown);
        assert!(pairs.to_string().ends_with("(an interval needs 8)"));
        assert_eq!(
            Pairs::of(&[2.0; 8], &[1.0; 8]).unwrap().standing(),
            Standing::Slower
        );
        assert_eq!(Pairs::of(&[], &[]), None);
    }

    /// Against a table of the sign test: two sides, 1 %.
    #[test]
    fn the_interval_is_that_of_the_sign_test() {
        assert_eq!(
            [7, 8, 11, 12, 15, 31, 101].map(outside),
            [None, Some(0), Some(0), Some(1), Some(2), Some(7), Some(37)]
        );
    }
}

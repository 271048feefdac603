//! Searches for the shortest schedule that fails as a given one does: delta debugging (Zeller and
//! Hildebrandt, "Simplifying and isolating failure-inducing input", 2002) over the choices.

use std::ops::Range;

/// The most runs of a search, and the most choices of all its runs: about a second.
pub const MOST_RUNS: usize = 500;
const MOST_CHOICES: usize = 4_000_000;

/// How far the choices after one that is left out may move: the others before them need more or
/// fewer choices then.
const FARTHEST: usize = 8;

/// Shortens `choices`, which fail. `fails` runs other choices, and returns those that the run has
/// really made if it fails in the same way. It is called at most `most_runs` times.
pub fn shorten(
    choices: Vec<u32>,
    most_runs: usize,
    mut fails: impl FnMut(Vec<u32>) -> Option<Vec<u32>>,
) -> Vec<u32> {
    let mut left = most_runs.min(MOST_CHOICES / choices.len().max(1));
    let mut best = choices;
    let mut width = best.len().next_power_of_two();
    while width > 0 && left > 0 {
        let mut end = best.len();
        let mut is_better = false;
        // From the end: what comes later depends on what came before.
        while end > 0 && left > 0 {
            let begin = end.saturating_sub(width);
            for candidate in without(&best, begin..end) {
                if left == 0 {
                    break;
                }
                left -= 1;
                let made = fails(candidate).filter(|made| weight(made) < weight(&best));
                if let Some(made) = made {
                    best = made;
                    is_better = true;
                    break;
                }
            }
            end = begin.min(best.len());
        }
        // The last width is repeated while it helps.
        if width > 1 || !is_better {
            width /= 2;
        }
    }
    best
}

/// The choices without those in `part`. A single one is left out in several ways: those after it
/// stay where they are, or move.
fn without(choices: &[u32], part: Range<usize>) -> Vec<Vec<u32>> {
    let has_any = |part: &[u32]| part.iter().any(|&choice| choice != 0);
    if !has_any(&choices[part.clone()]) {
        return Vec::new();
    }
    let mut plain = choices.to_vec();
    plain[part.clone()].fill(0);
    let mut all = vec![plain.clone()];
    let after = part.end;
    if part.len() == 1 && has_any(&choices[after..]) {
        for n in 1..=FARTHEST {
            let mut later = plain.clone();
            later.splice(after..after, std::iter::repeat_n(0, n));
            all.push(later);
            if plain[after..].len() > n && !has_any(&plain[after..after + n]) {
                let mut sooner = plain.clone();
                sooner.drain(after..after + n);
                all.push(sooner);
            }
        }
    }
    all
}

/// The size that shortening reduces: first the choices that are not 0, then their number.
fn weight(choices: &[u32]) -> (usize, usize) {
    let n = choices.iter().filter(|&&choice| choice != 0).count();
    let used = choices.iter().rposition(|&choice| choice != 0);
    (n, used.map_or(0, |at| at + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_needed_stays() {
        let choices: Vec<u32> = (0..64).map(|n| n % 5).collect();
        let needed = |c: &[u32]| c[7] == 2 && c[43] == 3;
        assert!(needed(&choices));
        let shortest = shorten(choices, MOST_RUNS, |c| needed(&c).then_some(c));
        assert_eq!(weight(&shortest), (2, 44));
    }

    /// The first choice decides how many there are before the one that matters.
    #[test]
    fn choices_may_move() {
        let fails = |c: Vec<u32>| {
            let at = if c[0] == 0 { 3 } else { 6 };
            (c.get(at) == Some(&1)).then_some(c)
        };
        assert_eq!(
            shorten(vec![2, 0, 0, 0, 0, 0, 1, 4], MOST_RUNS, fails),
            [0, 0, 0, 1, 0]
        );
    }

    #[test]
    fn nothing_is_needed_by_a_failure_of_every_run() {
        assert_eq!(weight(&shorten(vec![1; 9], MOST_RUNS, Some)), (0, 0));
        assert_eq!(shorten(Vec::new(), MOST_RUNS, Some), Vec::<u32>::new());
    }
}

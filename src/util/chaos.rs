//! Perturbs scheduling for tests: the feature `chaos`.
//!
//! A scheduler has choices between equally correct alternatives: on which P a goroutine is queued,
//! whether a receive is tried before it is submitted, whether a goroutine continues or yields. It
//! also has races between two threads that nearly always end in the same order. With the feature,
//! such points call this module. [`coin`] decides whether to take the unusual alternative.
//! [`pause`] delays the thread between two steps of one side of a race, so that the other side can
//! overtake it.
//!
//! The seed determines how often each point is perturbed, from never to every fourth time. Many
//! runs that perturb a few points each find more bugs than runs that perturb all of them (Groce and
//! others, "Swarm testing", ISSTA 2012).
//!
//! `WINDLASS_CHAOS=seed` turns it on, `WINDLASS_CHAOS=random` chooses a seed. Either prints the
//! seed once on stderr, so that a failure can be repeated as far as the kernel's own decisions
//! permit. Without the feature the code is compiled out, and the variable is not read.
//!
//! The state is a counter that is read and written without an atomic read-modify-write. Such an
//! instruction would be a barrier at each point, and hide barriers that are missing there. So
//! concurrent threads may draw the same number.

use std::ffi::OsString;

use windlass_ground::chaos::{ChaosPlan, hold_up};
use windlass_ground::random::mix;

use crate::bubble;
use crate::loom::native::LazyLock;
use crate::sys::{clock, signal};

/// Whether the feature is enabled. It is off in loom models, which try every order anyway.
const IS_BUILT_IN: bool = cfg!(all(feature = "chaos", not(loom)));

/// The variable that turns it on.
const NAME: &str = "WINDLASS_CHAOS";

/// A point that can be perturbed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Point {
    // Choices.
    /// A goroutine that enters the scheduler yields first.
    Enter,
    /// A goroutine that became runnable goes to the tail of the queue, not to runnext.
    Tail,
    /// A thief visits its victims in the opposite order.
    Victims,
    /// An M that searches for work gives up early.
    Search,
    /// An M that is about to sleep does not.
    Sleep,
    /// A receive is tried inline against the socket's hint, or not tried despite the hint.
    Receive,
    /// A send is not tried inline.
    Send,

    // Pauses.
    /// Between a goroutine's Waiting and its announcement to wakers.
    Commit,
    /// Between taking a wake token and queueing the goroutine.
    Wake,
    /// Between pushing work and looking for a sleeper.
    Push,
    /// Between counting as a spinner and taking an idle P, and before its M is woken.
    Notify,
    /// Around an M's becoming idle: before it is published, and before the last check for work.
    Idle,
    /// Between ceasing to spin and the last check for other Ps' work.
    Unspin,
    /// Around the release of a P to a blocking section, and its re-acquisition.
    Blocking,
    /// Between requesting a hog's P and the decision.
    Retake,
    /// Between the steps of giving a P to another M, and those of that M's taking it.
    HandOff,
    /// Before an M reports that it has stopped.
    Stop,
    /// Between setting a context to cancelled and inspecting the waiter.
    Cancel,
    /// Between claiming a waiter and readying it; before a waiter cleans up.
    Claim,
    /// Between an event and the notification of its waiter.
    Event,
    /// Between a thief's claim and its copying, and after it.
    Steal,
}

const N_POINTS: usize = Point::Steal as usize + 1;

/// Whether to take the unusual alternative at this point.
#[inline(always)]
pub(crate) fn coin(at: Point) -> bool {
    IS_BUILT_IN && roll(at).is_some()
}

/// Sometimes delays the thread at this point, by some PAUSE instructions or up to a short sleep.
#[inline(always)]
pub(crate) fn pause(at: Point) {
    if IS_BUILT_IN && let Some(random) = roll(at) {
        hold_up(random);
    }
}

/// Reads the variable at a safe time, so that no point has to.
pub(crate) fn begin() {
    if IS_BUILT_IN {
        LazyLock::force(&PLAN);
    }
}

/// `None` if the variable is not set or not valid.
static PLAN: LazyLock<Option<ChaosPlan<N_POINTS>>> = LazyLock::new(|| {
    let value = std::env::var_os(NAME)?;
    let (seed, line) = match seed_of(&value, clock::now_ns()) {
        Some(seed) => (
            Some(seed),
            format!("windlass: chaos is on; {NAME}={seed} repeats it\n"),
        ),
        None => (
            None,
            format!(
                "windlass: {NAME}: {value:?} is not understood and is ignored; it takes a \
                 number or the word random\n"
            ),
        ),
    };
    signal::write_stderr(line.as_bytes());
    seed.map(ChaosPlan::new)
});

/// Parses the variable's value. `now_ns` is the source of a random seed.
fn seed_of(value: &OsString, now_ns: u64) -> Option<u64> {
    match value.to_str()?.trim() {
        "random" => Some(mix(now_ns) % 1_000_000),
        number => number.parse().ok(),
    }
}

#[inline(never)]
fn roll(at: Point) -> Option<u64> {
    // The choices of a simulation come from its own seed.
    PLAN.as_ref()
        .filter(|_| !bubble::is_inside())?
        .roll(at as usize)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn draws(seed: u64) -> Vec<Option<u64>> {
        let plan = ChaosPlan::<N_POINTS>::new(seed);
        (0..1000)
            .map(|i| plan.roll([Point::Enter, Point::Commit, Point::Steal][i % 3] as usize))
            .collect()
    }

    #[test]
    fn a_seed_repeats_itself_and_differs_from_others() {
        for seed in 0..50 {
            assert_eq!(draws(seed), draws(seed));
        }
        let all: std::collections::BTreeSet<_> = (0..50).map(draws).collect();
        assert!(all.len() > 40, "{} of 50 seeds differ", all.len());
    }

    #[test]
    fn places_are_touched_as_often_as_their_odds_say() {
        for seed in 0..20 {
            let plan = ChaosPlan::<N_POINTS>::new(seed);
            let n = (0..64_000)
                .filter(|_| plan.roll(Point::Enter as usize).is_some())
                .count() as u64;
            match plan.odds()[Point::Enter as usize] {
                0 => assert_eq!(n, 0),
                // 10 standard deviations.
                odds => {
                    let mean = 64_000 / odds;
                    assert!(n.abs_diff(mean) < 10 * mean.isqrt(), "{n} of {mean}");
                }
            }
        }
    }

    /// A seed perturbs only a part of the points, and every point is perturbed by some seed.
    #[test]
    fn seeds_choose_among_the_places() {
        let plans: Vec<_> = (0..100).map(ChaosPlan::<N_POINTS>::new).collect();
        for at in 0..N_POINTS {
            let n_off = plans.iter().filter(|plan| plan.odds()[at] == 0).count();
            assert!((5..60).contains(&n_off), "{n_off} of 100 leave {at} alone");
        }
    }

    /// The seeds of `make test-chaos` perturb every point.
    #[test]
    fn the_seeds_of_make_touch_every_place() {
        // Read at build time: the virtual machine of a test has no such file.
        let stages = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/make/stages.mk"));
        let seeds = stages
            .lines()
            .find_map(|l| l.strip_prefix("CHAOS_SEEDS ?= "));
        let plans: Vec<_> = seeds
            .unwrap()
            .split_whitespace()
            .map(|seed| ChaosPlan::<N_POINTS>::new(seed.parse().unwrap()))
            .collect();
        for at in 0..N_POINTS {
            let is_touched = plans.iter().any(|plan| matches!(plan.odds()[at], 4 | 16));
            assert!(is_touched, "no seed touches place {at}");
        }
    }

    #[test]
    fn the_variable_takes_a_number_or_a_word() {
        let seed = |value: &str| seed_of(&OsString::from(value), 5);
        assert_eq!(seed("7"), Some(7));
        assert_eq!(seed(" 18446744073709551615 "), Some(u64::MAX));
        assert!(seed("random").is_some_and(|seed| seed < 1_000_000));
        assert_eq!(seed(""), None);
        assert_eq!(seed("-1"), None);
        assert_eq!(seed("on"), None);
    }

    #[test]
    fn off_means_off() {
        if !IS_BUILT_IN {
            assert!((0..1000).all(|_| !coin(Point::Enter)));
        }
    }
}

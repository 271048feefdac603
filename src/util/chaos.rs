//! Disorder on purpose: the feature `chaos`, for tests that must not lean on luck.
//!
//! A scheduler has places where two ways are equally right (which P a goroutine is queued
//! on, whether a receive is tried before it is submitted, whether a goroutine goes on or
//! lets others run), and places where two threads race and nearly always come through in
//! the same order. With the feature such a place asks here. [`coin`] says whether to take
//! the unusual way; [`pause`] holds the thread up for a moment, between the two steps of
//! one side of a race, so that the other side gets through.
//!
//! How often which place is touched is drawn from the seed, from never to every fourth
//! time: many runs with a few kinds of disorder each find more than many with all of them
//! (Groce and others, "Swarm testing", ISSTA 2012).
//!
//! `WINDLASS_CHAOS=seed` turns it on, `WINDLASS_CHAOS=random` chooses a seed; either is said
//! once on stderr, so that a failure can be repeated as far as the kernel's own choices
//! permit. Without the feature nothing of this is left in the program, and the variable is
//! not read.
//!
//! The state is a counter that is read and written without a locked instruction: one would
//! be a barrier at each of these places, and hide the barriers that are missing there. So
//! threads that come at once may draw the same number.

use std::ffi::OsString;
use std::io::Write;

use crate::loom::native::LazyLock;
use crate::loom::native::atomic::{AtomicU64, Ordering};
use crate::sys::clock;

/// Whether the feature is there. Not in models, which try every order anyway.
const IS_BUILT_IN: bool = cfg!(all(feature = "chaos", not(loom)));

/// The variable that turns it on.
const NAME: &str = "WINDLASS_CHAOS";

/// A place that can be perturbed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Point {
    // Choices.
    /// A goroutine that enters the scheduler lets others run first.
    Enter,
    /// A goroutine that became runnable goes to the tail of the queue, not to runnext.
    Tail,
    /// A thief looks at its victims the other way round.
    Victims,
    /// An M that looks for work gives up early.
    Search,
    /// An M that is about to sleep does not.
    Sleep,
    /// A receive is tried inline against the socket's hint, or not tried in spite of it.
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
    /// Between counting as a spinner and taking an idle P, and before its M is told.
    Notify,
    /// Around an M's becoming idle: before it says so, and before its last look.
    Idle,
    /// Between being a spinner no more and the last look for others' work.
    Unspin,
    /// Around the release of a P to a blocking section, and its re-acquisition.
    Blocking,
    /// Between asking for a hog's P and the verdict.
    Retake,
    /// Between the steps of giving a P to another M, and of that M's taking it.
    HandOff,
    /// Before an M says that it has stopped.
    Stop,
    /// Between a canceller's word and its look at the waiter.
    Cut,
    /// Between a taker's claim of a waiter and its readying; before a waiter cleans up.
    Claim,
    /// Between the happening of an event and its waiter's hearing of it.
    Event,
    /// Between a thief's claim and its copying, and after it.
    Steal,
}

const N_POINTS: usize = Point::Steal as usize + 1;

/// Whether to take the unusual one of two ways here.
#[inline(always)]
pub(crate) fn coin(at: Point) -> bool {
    IS_BUILT_IN && roll(at).is_some()
}

/// Holds the thread up here, now and then: from some PAUSE instructions to a nap.
#[inline(always)]
pub(crate) fn pause(at: Point) {
    if IS_BUILT_IN && let Some(random) = roll(at) {
        hold_up(random);
    }
}

/// Reads the variable now, and not in the middle of something.
pub(crate) fn begin() {
    if IS_BUILT_IN {
        LazyLock::force(&PLAN);
    }
}

/// `None` if the variable does not ask for any.
static PLAN: LazyLock<Option<Plan>> = LazyLock::new(|| {
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
    // There is nobody else to tell.
    let _ = std::io::stderr().write_all(line.as_bytes());
    seed.map(Plan::new)
});

/// The seed that the variable's value means, `now_ns` being as good as any.
fn seed_of(value: &OsString, now_ns: u64) -> Option<u64> {
    match value.to_str()?.trim() {
        "random" => Some(mix(now_ns) % 1_000_000),
        number => number.parse().ok(),
    }
}

#[inline(never)]
fn roll(at: Point) -> Option<u64> {
    PLAN.as_ref()?.roll(at)
}

#[cold]
fn hold_up(random: u64) {
    let pauses = |n: u64| (0..n).for_each(|_| crate::loom::spin_loop());
    match random % 16 {
        0..8 => pauses(random >> 4 & 0x3f),
        8..12 => pauses(random >> 4 & 0x7ff),
        #[expect(
            clippy::disallowed_methods,
            reason = "a thread is held up, not a goroutine"
        )]
        12..15 => crate::loom::thread::yield_now(),
        _ => clock::nap(random >> 4 & 0xffff),
    }
}

/// What a seed makes of each place.
#[derive(Debug)]
struct Plan {
    seed: u64,
    /// One in so many times, 0 for never.
    odds: [u64; N_POINTS],
    /// Ordering: relaxed, and updates may be lost; see above.
    count: AtomicU64,
}

impl Plan {
    fn new(seed: u64) -> Plan {
        let odds = std::array::from_fn(|at| [0, 4, 16, 64][(mix(seed ^ salt(at)) % 4) as usize]);
        Plan {
            seed,
            odds,
            count: AtomicU64::new(0),
        }
    }

    /// A random number if the place is to be perturbed this time.
    fn roll(&self, at: Point) -> Option<u64> {
        let odds = self.odds[at as usize];
        if odds == 0 {
            return None;
        }
        let n = self.count.load(Ordering::Relaxed);
        self.count.store(n.wrapping_add(1), Ordering::Relaxed);
        let random = mix(self.seed.wrapping_add(n) ^ salt(at as usize));
        random.is_multiple_of(odds).then_some(random >> 8)
    }
}

/// Keeps the draws of one place apart from another's.
fn salt(at: usize) -> u64 {
    (at as u64 + 1) << 48
}

/// The finalizer of splitmix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number
/// generators", 2014).
fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn draws(seed: u64) -> Vec<Option<u64>> {
        let plan = Plan::new(seed);
        (0..1000)
            .map(|i| plan.roll([Point::Enter, Point::Commit, Point::Steal][i % 3]))
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
            let plan = Plan::new(seed);
            let n = (0..64_000)
                .filter(|_| plan.roll(Point::Enter).is_some())
                .count() as u64;
            match plan.odds[Point::Enter as usize] {
                0 => assert_eq!(n, 0),
                // 10 standard deviations.
                odds => {
                    let mean = 64_000 / odds;
                    assert!(n.abs_diff(mean) < 10 * mean.isqrt(), "{n} of {mean}");
                }
            }
        }
    }

    /// Of some twenty places a seed leaves a part alone, and some seed touches each.
    #[test]
    fn seeds_choose_among_the_places() {
        let plans: Vec<_> = (0..100).map(Plan::new).collect();
        for at in 0..N_POINTS {
            let n_off = plans.iter().filter(|plan| plan.odds[at] == 0).count();
            assert!((5..60).contains(&n_off), "{n_off} of 100 leave {at} alone");
        }
    }

    /// The seeds of `make test-chaos` leave nothing out.
    #[test]
    fn the_seeds_of_the_makefile_touch_every_place() {
        // Read at build time: in a virtual machine there is no Makefile.
        let makefile = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/Makefile"));
        let seeds = makefile
            .lines()
            .find_map(|l| l.strip_prefix("CHAOS_SEEDS ?= "));
        let plans: Vec<_> = seeds
            .unwrap()
            .split_whitespace()
            .map(|seed| Plan::new(seed.parse().unwrap()))
            .collect();
        for at in 0..N_POINTS {
            let is_touched = plans.iter().any(|plan| matches!(plan.odds[at], 4 | 16));
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

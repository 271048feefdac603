//! CPU profiles: which functions of which goroutines use the CPUs.
//!
//! A thread outside the runtime looks at the Ms in turn, a hundred times a second. An M that has used
//! CPU time since the last look is sampled (the crate windlass-unwind): the signal handler on its thread
//! copies the goroutine's number, name, label and stack, or the stack of the M's loop. The sample stands for all CPU
//! time since the last look, so the times of a profile add up to those that the kernel has counted. A thread that
//! waits for a CPU does not answer, and one that sleeps is not asked, as it used its time somewhere else: the next
//! sample stands for that time, too. Names of functions are looked up at the end.

use std::io;
use std::time::Duration;

use super::stack::Frame;
use crate::sched::types::state::Sched;

/// CPU time, by goroutine and stack. Made by [`Handle::profile`](crate::Handle::profile).
///
/// # Examples
///
/// ```no_run
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().build()? };
/// # let handle = rt.handle();
/// let profile = handle.profile(std::time::Duration::from_secs(5))?;
/// for sample in &profile.samples {
///     println!("{:?} in {:?}", sample.cpu_time, sample.label);
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Profile {
    /// The name of the runtime.
    pub runtime: String,
    /// How long the profile was taken.
    pub duration: Duration,
    /// The time between two samples of a thread.
    pub period: Duration,
    /// The samples, those with the most CPU time first.
    pub samples: Vec<Sample>,
}

/// The CPU time of goroutines with the same name and label in the same place. Part of a [`Profile`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Sample {
    /// Whether goroutines used the time. If not, it was the runtime, between two goroutines.
    pub is_goroutine: bool,
    /// The part of the runtime that used the time: `"ring enter"`, `"completions"`, `"search"`, `"sleep"`,
    /// `"timers"`, `"wake"` or `"switch"`. `None` for goroutines, and if the thread was not seen at work.
    pub runtime: Option<&'static str>,
    /// The name of the goroutines, up to its 64th byte.
    pub name: Option<String>,
    /// Their label.
    pub label: Option<String>,
    /// Their stack, the innermost call first, down to the function that they were spawned with; the scheduler's stack, if
    /// the runtime used the time. Functions that were inlined into another have its address.
    pub stack: Vec<Frame>,
    /// How many samples were taken there.
    pub count: u64,
    /// The CPU time for which these stand.
    pub cpu_time: Duration,
}

/// The longest profile.
const LONGEST: Duration = Duration::from_secs(3600);

/// Takes a profile of `sched`, until `goes_on` returns `false`. Blocks the thread.
///
/// # Errors
///
/// `InvalidInput` for a duration that is zero or too long, `Unsupported` without the feature
/// `backtrace`, `ResourceBusy` while another profile is taken.
pub(crate) fn take(
    sched: &Sched,
    duration: Duration,
    goes_on: impl FnMut() -> bool,
) -> io::Result<Profile> {
    check(duration)?;
    sampler::take(sched, duration, goes_on)
}

/// # Errors
///
/// `InvalidInput` for a duration that is zero or too long.
pub(super) fn check(duration: Duration) -> io::Result<()> {
    if duration.is_zero() || duration > LONGEST {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("profile({duration:?}): choose a time above zero, up to an hour"),
        ));
    }
    Ok(())
}

/// There are no stacks.
#[cfg(not(feature = "backtrace"))]
pub(super) fn unsupported() -> io::Error {
    io::Error::new(
        io::ErrorKind::Unsupported,
        "profiles need stacks: build windlass with its feature `backtrace`",
    )
}

#[cfg(not(feature = "backtrace"))]
mod sampler {
    use super::*;

    pub(super) fn take(_: &Sched, _: Duration, _: impl FnMut() -> bool) -> io::Result<Profile> {
        Err(unsupported())
    }
}

#[cfg(feature = "backtrace")]
mod sampler {
    use std::collections::HashMap;
    use std::sync::TryLockError;

    use windlass_unwind::Unanswered;

    use super::*;
    use crate::debug::stack::{Walker, without_root, work_of};
    use crate::debug::stall::sample::copy_of;
    use crate::loom::Ordering;
    use crate::loom::native::{Mutex, PoisonError};
    use crate::sched::monitor::stall;
    use crate::sched::types::m::M;
    use crate::sys::{clock, tasks};

    /// The time between two looks at a thread.
    const PERIOD: Duration = Duration::from_millis(10);

    /// How long to wait for a thread, which answers in microseconds if it is on a CPU.
    const PATIENCE_NS: u64 = 2_000_000;

    /// Held while a profile is taken: two would take each other's samples.
    static TURN: Mutex<()> = Mutex::new(());

    /// Data that all samples share.
    #[derive(PartialEq, Eq, Hash)]
    struct Place {
        is_goroutine: bool,
        name: Option<String>,
        label: Option<usize>,
        addresses: Vec<usize>,
    }

    impl Place {
        /// Somewhere in a goroutine, or in the runtime.
        fn unknown(is_goroutine: bool) -> Place {
            Place {
                is_goroutine,
                name: None,
                label: None,
                addresses: Vec::new(),
            }
        }
    }

    /// How often a place was seen, and for how much CPU time in nanoseconds.
    type Seen = HashMap<Place, (u64, u64)>;

    pub(super) fn take(
        sched: &Sched,
        duration: Duration,
        mut goes_on: impl FnMut() -> bool,
    ) -> io::Result<Profile> {
        let _turn = match TURN.try_lock() {
            Ok(turn) => turn,
            Err(TryLockError::Poisoned(turn)) => PoisonError::into_inner(turn),
            Err(TryLockError::WouldBlock) => {
                return Err(io::Error::new(
                    io::ErrorKind::ResourceBusy,
                    "another profile is being taken in this process",
                ));
            }
        };
        stall::allow_samples();
        let mut walker = Walker::new();
        let period_ns = PERIOD.as_nanos() as u64;
        let begin_ns = clock::now_ns();
        let end_ns = begin_ns + duration.as_nanos() as u64;
        let (mut used, mut seen) = (HashMap::new(), Seen::new());
        look(sched, &mut used, |_, _| true);
        let mut next_ns = begin_ns;
        loop {
            let now_ns = clock::now_ns();
            if now_ns >= end_ns || !goes_on() {
                break;
            }
            // A late look is not made up for.
            next_ns = (next_ns + period_ns).max(now_ns).min(end_ns);
            clock::nap((next_ns - now_ns).max(1));
            look(sched, &mut used, |(tid, has_g), ns| {
                let Ok(place) = place_on(tid, has_g, &mut walker) else {
                    return false;
                };
                count(&mut seen, place, ns);
                true
            });
        }
        // Threads that have not answered since: what ran there is not known, but that it was a goroutine.
        look(sched, &mut used, |(_, has_g), ns| {
            count(&mut seen, Place::unknown(has_g), ns);
            true
        });
        Ok(Profile {
            runtime: sched.config.name.clone(),
            duration: Duration::from_nanos(clock::now_ns() - begin_ns),
            period: PERIOD,
            samples: samples(sched, seen, &mut walker),
        })
    }

    fn count(seen: &mut Seen, place: Place, ns: u64) {
        let (count, sum_ns) = seen.entry(place).or_default();
        *count += 1;
        *sum_ns += ns;
    }

    /// Calls `f` for each M that has used CPU time since the last look: with its thread, whether a
    /// goroutine runs there, and the time. `used` has the times at that look. If `f` returns `false`, the
    /// time is part of that of the next look.
    fn look(
        sched: &Sched,
        used: &mut HashMap<i32, u64>,
        mut f: impl FnMut((i32, bool), u64) -> bool,
    ) {
        let threads: Vec<(i32, bool)> = {
            let ms = sched.ms.lock();
            let of = |m: &M| (m.tid.load(Ordering::Relaxed), m.curg.get().is_some());
            ms.all.iter().map(|m| of(m)).collect()
        };
        used.retain(|tid, _| threads.iter().any(|thread| thread.0 == *tid));
        for thread in threads.into_iter().filter(|&(tid, _)| tid != 0) {
            let Some(cpu_ns) = clock::thread_cpu_ns(thread.0) else {
                continue;
            };
            let before_ns = used.entry(thread.0).or_insert(cpu_ns);
            let ns = cpu_ns.saturating_sub(*before_ns);
            // Less waits for the next look.
            if ns >= PERIOD.as_nanos() as u64 / 20 && f(thread, ns) {
                *before_ns = cpu_ns;
            }
        }
    }

    /// The goroutine or work that runs on a thread.
    ///
    /// # Errors
    ///
    /// The thread does not answer, as it waits for a CPU, or sleeps.
    fn place_on(tid: i32, has_g: bool, walker: &mut Walker) -> Result<Place, Unanswered> {
        if tasks::is_asleep(tid) == Some(true) {
            return Err(Unanswered);
        }
        let taken = windlass_unwind::take(tid, PATIENCE_NS)?;
        Ok(match taken {
            Some(mut sample) => Place {
                name: sample.name.take(),
                label: sample.label,
                is_goroutine: sample.g != 0,
                addresses: walker.addresses(&copy_of(sample)),
            },
            None => Place::unknown(has_g),
        })
    }

    fn samples(sched: &Sched, seen: Seen, walker: &mut Walker) -> Vec<Sample> {
        let labels = sched.labels();
        let sample = |(place, (count, ns)): (Place, (u64, u64))| {
            let mut stack = walker.named(&place.addresses);
            if place.is_goroutine {
                stack.truncate(without_root(&stack).len());
            }
            let is_seen = !place.is_goroutine && !stack.is_empty();
            Sample {
                is_goroutine: place.is_goroutine,
                runtime: is_seen.then(|| work_of(&stack)),
                name: place.name,
                label: place
                    .label
                    .and_then(|idx| labels.get(idx))
                    .map(|l| l.name.to_string()),
                stack,
                count,
                cpu_time: Duration::from_nanos(ns),
            }
        };
        let mut samples: Vec<_> = seen.into_iter().map(sample).collect();
        samples.sort_by_key(|s| std::cmp::Reverse(s.cpu_time));
        samples
    }
}

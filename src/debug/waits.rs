//! Wait profiles: for what goroutines wait, and where. Go's block and mutex profiles.
//!
//! Go measures each wait at its end. Here a thread outside the runtime looks at the goroutines a hundred times a
//! second, and each that waits then stands for the time between two looks. So the waits cost nothing while no
//! profile is taken, a short wait counts as often as it is seen, and one that has not ended counts, too. Of many
//! goroutines a look takes the stacks of some, evenly: each then stands for those that were left out.

use std::io;
use std::time::Duration;

use super::stack::Frame;
use crate::g::status::Reason;
use crate::sched::types::state::Sched;

/// The time that goroutines waited, by reason and stack. Made by
/// [`Handle::profile_waits`](crate::Handle::profile_waits).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WaitProfile {
    /// The name of the runtime.
    pub runtime: String,
    /// How long the profile was taken.
    pub duration: Duration,
    /// The time between two looks.
    pub period: Duration,
    /// The samples, those with the longest waits first.
    pub samples: Vec<WaitSample>,
}

/// The waits of goroutines with the same name and label, for the same reason in the same place. Part of a
/// [`WaitProfile`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WaitSample {
    /// The reason, in the words of [`Goroutine::wait_reason`](super::Goroutine::wait_reason).
    pub reason: &'static str,
    /// The name of the goroutines that waited, if they have one.
    pub name: Option<String>,
    /// The label of these goroutines, if they have one.
    pub label: Option<String>,
    /// The stack of these goroutines, the innermost call first: from windlass's function that waits down to that
    /// which they were spawned with. None, if they went on while it was to be copied.
    pub stack: Vec<Frame>,
    /// How many waiting goroutines the looks have found there.
    pub count: u64,
    /// The time for which these stand. It is the sum over goroutines, so it may exceed the duration.
    pub waited: Duration,
}

/// Whether a wait is for another goroutine, by a lock, a channel or the like. Not for time or the kernel.
#[cfg_attr(
    not(feature = "backtrace"),
    expect(dead_code, reason = "only profiles ask")
)]
fn is_for_others(reason: Reason) -> bool {
    match reason {
        Reason::ChanSend | Reason::ChanRecv | Reason::Select => true,
        Reason::Mutex | Reason::RwLock | Reason::Condvar | Reason::Semaphore => true,
        Reason::Barrier | Reason::Once | Reason::WaitGroup | Reason::Join | Reason::Scope => true,
        Reason::None | Reason::Park | Reason::Sleep | Reason::Io | Reason::Offload => false,
        Reason::Future | Reason::Settle | Reason::SimulatedIo => false,
    }
}

/// Takes a profile of `sched`, until `goes_on` returns `false`. Blocks the thread.
///
/// # Errors
///
/// `InvalidInput` for a duration that is zero or too long, `Unsupported` without the feature `backtrace`.
pub(crate) fn take(
    sched: &Sched,
    duration: Duration,
    goes_on: impl FnMut() -> bool,
) -> io::Result<WaitProfile> {
    super::profile::check(duration)?;
    sampler::take(sched, duration, goes_on)
}

#[cfg(not(feature = "backtrace"))]
mod sampler {
    use super::*;

    pub(super) fn take(_: &Sched, _: Duration, _: impl FnMut() -> bool) -> io::Result<WaitProfile> {
        Err(super::super::profile::unsupported())
    }
}

#[cfg(feature = "backtrace")]
mod sampler {
    use std::collections::HashMap;

    use super::*;
    use crate::debug::goroutines::{self, reason_text};
    use crate::debug::stack::{self, Walker};
    use crate::g::snapshot::StackCopy;
    use crate::sched::monitor::freeze_stack;
    use crate::sys::clock;

    /// The time between two looks.
    const PERIOD: Duration = Duration::from_millis(10);
    /// About how many stacks a look takes: some 10 µs each.
    const STACKS: u64 = 64;

    #[derive(PartialEq, Eq, Hash)]
    struct Place {
        reason: &'static str,
        name: Option<String>,
        label: Option<String>,
        addresses: Vec<usize>,
    }

    /// How many goroutines were seen in a place, and for how long in nanoseconds.
    type Seen = HashMap<Place, (u64, u64)>;

    pub(super) fn take(
        sched: &Sched,
        duration: Duration,
        mut goes_on: impl FnMut() -> bool,
    ) -> io::Result<WaitProfile> {
        let (mut walker, mut copy, mut seen) = (Walker::new(), StackCopy::new(), Seen::new());
        let begin_ns = clock::now_ns();
        let end_ns = begin_ns + duration.as_nanos() as u64;
        let mut looked_ns = begin_ns;
        let (mut n_looks, mut n_before) = (0, 0);
        while looked_ns < end_ns && goes_on() {
            clock::nap((end_ns - looked_ns).min(PERIOD.as_nanos() as u64));
            // A late look stands for more.
            let now_ns = clock::now_ns();
            let ns = now_ns - looked_ns;
            looked_ns = now_ns;
            n_looks += 1;
            n_before = look(
                sched,
                (n_looks, n_before),
                |place, n| {
                    let (count, sum_ns) = seen.entry(place).or_default();
                    *count += n;
                    *sum_ns += n * ns;
                },
                &mut walker,
                &mut copy,
            );
        }
        let mut samples: Vec<_> = seen.into_iter().map(|s| sample(s, &mut walker)).collect();
        samples.sort_by_key(|s| std::cmp::Reverse(s.waited));
        Ok(WaitProfile {
            runtime: sched.config.name.clone(),
            duration: Duration::from_nanos(looked_ns - begin_ns),
            period: PERIOD,
            samples,
        })
    }

    /// Calls `f` with the places where goroutines wait now, and how many each stands for. Returns how many
    /// wait; the last look found `n_before`.
    fn look(
        sched: &Sched,
        (n_looks, n_before): (u64, u64),
        mut f: impl FnMut(Place, u64),
        walker: &mut Walker,
        copy: &mut StackCopy,
    ) -> u64 {
        let (mut n_found, mut n_taken) = (0, 0);
        // One of so many is taken, each time others.
        let mut one_in = 1 + n_before / STACKS;
        goroutines::for_each_waiting(sched, is_for_others, |g, reason| {
            n_found += 1;
            if !(n_found + n_looks).is_multiple_of(one_in) {
                return;
            }
            n_taken += 1;
            let is_there = freeze_stack::copy_stack(sched, g, copy);
            let place = Place {
                reason: reason_text(reason).unwrap_or("waiting"),
                name: g.name().map(str::to_owned),
                label: g.label().map(|label| label.name.to_string()),
                addresses: if is_there {
                    walker.addresses(copy)
                } else {
                    Vec::new()
                },
            };
            f(place, one_in);
            // There are more than before.
            if n_taken % (2 * STACKS) == 0 {
                one_in *= 2;
            }
        });
        n_found
    }

    fn sample((place, (count, ns)): (Place, (u64, u64)), walker: &mut Walker) -> WaitSample {
        let stack = walker.named(&place.addresses);
        WaitSample {
            reason: place.reason,
            name: place.name,
            label: place.label,
            stack: stack::without_runtime(&stack).to_vec(),
            count,
            waited: Duration::from_nanos(ns),
        }
    }
}

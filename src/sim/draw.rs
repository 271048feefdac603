//! Numbers from the seed, for the program.

use super::host::bubble;

/// A number below `n`, drawn from the seed of the run.
///
/// It is for what a test decides at random: which request comes next, how long a client thinks. The
/// plainest run draws 0, so 0 should stand for the plainest case: a failure is shortened to a run
/// with as many zeros as possible. An exhaustive search ([`Strategy::Exhaustive`](super::Strategy))
/// tries all numbers.
///
/// # Blocking
///
/// Never.
///
/// # Panics
///
/// Outside of a simulation, and if `n` is 0.
///
/// # Examples
///
/// ```
/// # const PROMISE: windlass::Promise = unsafe { windlass::Promise::no_thread_local_across_waits() };
/// use windlass::sim::{self, Sim};
/// use windlass::time::{Duration, sleep};
///
/// Sim::new(PROMISE).seeds(20).run(|| {
///     for _ in 0..10 {
///         match sim::draw(3) {
///             0 => {} // asks for something
///             n => sleep(Duration::from_secs(n.into())),
///         }
///     }
/// })?;
/// # Ok::<(), sim::Failure>(())
/// ```
#[track_caller]
#[must_use]
pub fn draw(n: u32) -> u32 {
    assert!(
        n > 0,
        "windlass: sim::draw was called with 0: no number is below it"
    );
    bubble("sim::draw was called").below(n as usize) as u32
}

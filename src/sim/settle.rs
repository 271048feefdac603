//! Waiting until all other goroutines wait.

use crate::bubble;
use crate::g::status::Reason;
use crate::sched::wait::park::{self, Caller};
use crate::sched::wait::points;

/// Whether the caller runs in a simulation.
///
/// # Blocking
///
/// Never.
///
/// # Examples
///
/// ```
/// # const PROMISE: windlass::Promise = unsafe { windlass::Promise::no_thread_local_across_waits() };
/// assert!(!windlass::sim::is_simulated());
/// windlass::sim::check(PROMISE, || assert!(windlass::sim::is_simulated()));
/// ```
#[must_use]
pub fn is_simulated() -> bool {
    bubble::is_inside()
}

/// Waits until every other goroutine waits, so that nothing will happen before time passes or the
/// caller does something. This is Go's `synctest.Wait`.
///
/// The clock does not move meanwhile. Several goroutines may call it at the same time: all of them
/// then go on.
///
/// # Blocking
///
/// Parks the goroutine. While the caller unwinds, it returns at once.
///
/// # Panics
///
/// Outside of a simulation.
///
/// # Examples
///
/// ```
/// # const PROMISE: windlass::Promise = unsafe { windlass::Promise::no_thread_local_across_waits() };
/// use std::sync::atomic::{AtomicU32, Ordering};
///
/// windlass::sim::check(PROMISE, || {
///     let n = AtomicU32::new(0);
///     windlass::scope(|s| {
///         s.spawn(|| n.fetch_add(1, Ordering::Relaxed));
///         windlass::sim::settle();
///         assert_eq!(n.load(Ordering::Relaxed), 1);
///     });
/// });
/// ```
#[track_caller]
pub fn settle() {
    assert!(
        is_simulated(),
        "windlass: sim::settle was called outside of a simulation: call it in the closure of sim::check"
    );
    // An error means that the goroutine already unwinds.
    if points::cancel_point().is_err() {
        return;
    }
    if let Caller::Goroutine(_) = park::caller() {
        park::park_in(park::enter(), Reason::Settle, |g, wait, m| {
            let sim = m.simulation().expect("the M carries out a simulation");
            sim.settling.borrow_mut().push((g, wait));
            true
        });
        let _ = points::cancel_point();
    }
}

/// Parks the main goroutine until no other one will ever run.
pub(crate) fn linger() {
    park::park_in(park::enter(), Reason::Settle, |g, wait, m| {
        let sim = m.simulation().expect("the M carries out a simulation");
        sim.lingering.set(Some((g, wait)));
        true
    });
}

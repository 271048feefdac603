//! Points at which a call of the runtime may unwind its goroutine, because the run ends, or may let others run first.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::handoff::Section;
use super::turn;
use crate::bubble;
use crate::g::header::GRef;
use crate::sched::types::current;
use crate::sched::types::m::Carrier;
use crate::sched::types::simulation::Simulation;
use crate::sched::types::state::Phase;
use crate::util::chaos::{self, Point};

/// The goroutine is being cancelled because its runtime ends. It is the payload of the unwind, and
/// `join` returns it.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use windlass::task::Cancelled;
///
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
/// let sleeper = rt.run(|| {
///     windlass::spawn(|| windlass::time::sleep(Duration::from_secs(3600)))
/// });
/// // The end of the run has cancelled the goroutine.
/// assert!(sleeper.join().unwrap_err().is::<Cancelled>());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cancelled;

impl std::fmt::Display for Cancelled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the goroutine was cancelled because its runtime ended")
    }
}

impl std::error::Error for Cancelled {}

/// Whether the calling goroutine must end: its runtime is ending, or its simulated host has crashed.
#[inline]
pub(crate) fn is_cancelled() -> bool {
    current::m().is_some_and(|m| m.sched().phase() >= Phase::Cancelling) || bubble::is_lost()
}

/// A cancellation point: unwinds the goroutine if its runtime ends. If it unwinds already, returns
/// `Err`, and the caller fails at once.
///
/// # Errors
///
/// [`Cancelled`], only while unwinding.
pub(crate) fn cancel_point() -> Result<(), Cancelled> {
    if is_cancelled() && current::g().is_some() {
        unwind_cancelled()
    } else {
        Ok(())
    }
}

#[cold]
fn unwind_cancelled() -> Result<(), Cancelled> {
    if std::thread::panicking() {
        return Err(Cancelled);
    }
    if let Some(g) = current::g() {
        g.set_unwinds_cancelled(true);
        if let Some(sim) = current::m()
            .and_then(Carrier::simulation)
            .filter(|sim| sim.is_over())
        {
            // An unwind takes as long as so many switch points.
            turn::count_late(sim, g, 100);
        }
    }
    resume_unwind(Box::new(Cancelled))
}

/// Calls `f`, which may wait, for a caller that must not unwind. At the end of the run `f` unwinds
/// to here, and the goroutine goes on: its next wait ends at once again.
///
/// # Errors
///
/// [`Cancelled`] if the run ends.
///
/// # Panics
///
/// If `f` panics for another reason.
pub(crate) fn without_unwinding<T>(f: impl FnOnce() -> T) -> Result<T, Cancelled> {
    if is_cancelled() {
        return Err(Cancelled);
    }
    catch_unwind(AssertUnwindSafe(f)).map_err(|payload| {
        if !payload.is::<Cancelled>() {
            resume_unwind(payload);
        }
        if let Some(g) = current::g() {
            g.set_unwinds_cancelled(false);
        }
        Cancelled
    })
}

/// Whether the calling goroutine, which unwinds, does so because its runtime ends and not because
/// of a panic of its own.
#[cold]
pub(crate) fn unwinds_cancelled() -> bool {
    current::g().is_some_and(GRef::unwinds_cancelled)
}

/// A call that need not enter the scheduler: under chaos, and in a simulation, it sometimes lets
/// other goroutines run first.
///
/// In a simulation that is over it unwinds a goroutine that goes on and on without a wait, which
/// nothing else can end.
#[inline(always)]
pub(crate) fn switch_point() {
    if chaos::coin(Point::Enter) || bubble::is_inside() {
        // Entering is what yields.
        drop(Section::enter());
        end_if_late();
    }
}

/// A call that may succeed for ever without a wait: in a simulation that is over it unwinds a
/// goroutine that goes on and on.
#[inline(always)]
pub(crate) fn end_if_late() {
    if bubble::is_inside()
        && (bubble::is_lost()
            || current::m().is_some_and(|m| m.simulation().is_some_and(Simulation::is_late)))
    {
        // While it unwinds, the caller goes on.
        let _ = unwind_cancelled();
    }
}

//! Regions of execution traces: intervals that the program names, as Go's `trace.StartRegion`.
//!
//! A region belongs to a goroutine and may last across waits. Its events go to the log of threads
//! without a P, by which a caller need not enter the scheduler. So the goroutine stays on its thread,
//! and subscribers of tracing may record regions while they borrow thread-locals.

use std::collections::BTreeMap;
use std::marker::PhantomData;

use crate::loom::native::{Mutex, MutexGuard, PoisonError};
use crate::sched::types::current;
use crate::sched::types::events::EventKind;

/// The names of regions. An event has a position in the list.
struct Names {
    list: Vec<&'static str>,
    positions: BTreeMap<&'static str, u32>,
}

static NAMES: Mutex<Names> = Mutex::new(Names {
    list: Vec::new(),
    positions: BTreeMap::new(),
});

fn names() -> MutexGuard<'static, Names> {
    NAMES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn position_of(name: &'static str) -> u32 {
    let mut names = names();
    let next = names.list.len() as u32;
    let position = *names.positions.entry(name).or_insert(next);
    if position == next {
        names.list.push(name);
    }
    position
}

/// The name of the region whose position an event has.
pub(crate) fn name_at(position: u32) -> &'static str {
    let name = names().list.get(position as usize).copied();
    name.unwrap_or("(unknown)")
}

/// Marks the time until the returned value is dropped as a region of the calling goroutine. An
/// execution trace ([`Runtime::trace`](crate::Runtime::trace), the flight recorder) shows it by this
/// name on a track of the goroutine, across waits and whichever P the goroutine runs on. Regions
/// may be nested.
///
/// While no trace is taken this costs a few nanoseconds. On a plain thread it has no effect.
///
/// # Blocking
///
/// Never. The goroutine stays on its thread.
///
/// # Examples
///
/// ```
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
/// let json = rt.run(|| {
///     let trace = rt.start_trace();
///     {
///         let _region = windlass::debug::region("load the index");
///         windlass::sleep(std::time::Duration::from_millis(1));
///     }
///     let mut json = Vec::new();
///     trace.finish(&mut json).map(|()| json)
/// })?;
/// assert!(String::from_utf8_lossy(&json).contains("load the index"));
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use = "the region ends when this is dropped"]
pub fn region(name: &'static str) -> Region {
    begin_region(name);
    Region {
        name,
        not_send: PhantomData,
    }
}

/// A region of the goroutine that called [`region`], which ends when this is dropped.
#[derive(Debug)]
pub struct Region {
    name: &'static str,
    /// It ends on the goroutine on which it began.
    not_send: PhantomData<*mut ()>,
}

impl Drop for Region {
    fn drop(&mut self) {
        end_region(self.name);
    }
}

/// Begins a region until [`end_region`] is called on the same goroutine with the same name. For
/// bridges to other interfaces; programs use [`region`].
///
/// # Blocking
///
/// Never. The goroutine stays on its thread.
///
/// # Examples
///
/// ```
/// use windlass::debug::{begin_region, end_region};
///
/// begin_region("parse");
/// // ..
/// end_region("parse");
/// ```
pub fn begin_region(name: &'static str) {
    record(EventKind::RegionBegin, name);
}

/// Ends the innermost region of the calling goroutine that has this name. Without one it has no
/// effect.
///
/// # Blocking
///
/// Never. The goroutine stays on its thread.
///
/// # Examples
///
/// See [`begin_region`].
pub fn end_region(name: &'static str) {
    record(EventKind::RegionEnd, name);
}

fn record(kind: EventKind, name: &'static str) {
    if let Some(m) = current::m()
        && let Some(g) = m.curg.get()
    {
        m.sched().trace_region(kind, g, || position_of(name));
    }
}

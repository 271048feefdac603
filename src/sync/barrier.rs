//! A place where several meet.

use std::cell::Cell;
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};

use super::waitlist::{GaveUp, Place, Queue, WaitList};
use super::waitq::{Here, TakenList, Terms};
use crate::g::status::Reason;
use crate::loom::native::atomic::AtomicUsize;
use crate::loom::{Ordering, const_fn};
use crate::sched::park;

/// Lets `n` goroutines or threads wait for each other, again and again, as
/// `std::sync::Barrier`.
///
/// # Blocking
///
/// [`wait`](Barrier::wait) parks a goroutine and blocks a plain thread.
///
/// # Examples
///
/// ```
/// use windlass::sync::{Arc, Barrier};
///
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
/// let leaders = rt.run(|| {
///     let barrier = Arc::new(Barrier::new(10));
///     let all: Vec<_> = (0..10)
///         .map(|_| {
///             let barrier = Arc::clone(&barrier);
///             windlass::spawn(move || barrier.wait().is_leader())
///         })
///         .collect();
///     all.into_iter().map(|one| one.join().unwrap()).filter(|l| *l).count()
/// });
/// assert_eq!(leaders, 1);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Barrier {
    n: usize,
    list: WaitList,
    /// How many have arrived of this generation, and how many generations have passed.
    /// Ordering: relaxed, both change under the list's lock.
    arrived: AtomicUsize,
    generation: AtomicUsize,
}

impl UnwindSafe for Barrier {}
impl RefUnwindSafe for Barrier {}

/// What [`Barrier::wait`] gives: whether the caller is the one leader of its generation.
pub struct BarrierWaitResult(bool);

impl Barrier {
    const_fn! {
        /// Makes a barrier for `n`; for 0 as for 1.
        #[inline]
        #[must_use]
        pub const fn new(n: usize) -> Barrier {
            Barrier {
                n,
                list: WaitList::new(),
                arrived: AtomicUsize::new(0),
                generation: AtomicUsize::new(0),
            }
        }
    }

    /// Waits until all `n` are here. The one that came last is the leader.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine; blocks a plain thread. On a goroutine whose runtime ends it
    /// unwinds, and has not arrived. In a destructor that runs while it unwinds the call
    /// returns at once, not as the leader.
    pub fn wait(&self) -> BarrierWaitResult {
        self.meet(false).unwrap_or_else(|_| {
            // Unwinds; in a destructor the call is over.
            let _ = park::cancel_point();
            BarrierWaitResult(false)
        })
    }

    /// Waits until all are here, or until the ambient context is done if `by_context`.
    ///
    /// # Errors
    ///
    /// Why they have not met. Then the caller has not arrived.
    pub(crate) fn meet(&self, by_context: bool) -> Result<BarrierWaitResult, GaveUp> {
        let here = Here::enter();
        let queue = self.list.lock(&here);
        let arrived = self.arrived.load(Ordering::Relaxed) + 1;
        let generation = self.generation.load(Ordering::Relaxed);
        if arrived >= self.n {
            self.arrived.store(0, Ordering::Relaxed);
            self.generation
                .store(generation.wrapping_add(1), Ordering::Relaxed);
            let all = queue.take_all();
            drop(queue);
            all.ready(&here);
            return Ok(BarrierWaitResult(true));
        }
        self.arrived.store(arrived, Ordering::Relaxed);
        let have_met = Cell::new(false);
        let leave = |_: &Queue<'_>| {
            // The others may have met all the same, and counted this one.
            have_met.set(self.generation.load(Ordering::Relaxed) != generation);
            if !have_met.get() {
                let arrived = self.arrived.load(Ordering::Relaxed);
                self.arrived.store(arrived - 1, Ordering::Relaxed);
            }
            TakenList::new()
        };
        let terms = Terms::new(Reason::Barrier).by_context(by_context);
        match queue.wait(here, Place::Last, 0, terms, leave) {
            Err(gave_up) if !have_met.get() => Err(gave_up),
            _ => Ok(BarrierWaitResult(false)),
        }
    }
}

impl BarrierWaitResult {
    /// Whether the caller is the leader.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.0
    }
}

impl fmt::Debug for Barrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Barrier").finish_non_exhaustive()
    }
}

impl fmt::Debug for BarrierWaitResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BarrierWaitResult")
            .field("is_leader", &self.is_leader())
            .finish()
    }
}

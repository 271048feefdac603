//! A barrier.

use std::cell::Cell;
use std::panic::{RefUnwindSafe, UnwindSafe};

use windlass_ground::std_traits::{debug_fields, fmt_as};

use super::waitlist::{Queue, QueueEnd, WaitError, WaitList};
use super::waitq::{DequeuedList, WaitCtx, WaitOptions};
use crate::g::status::Reason;
use crate::loom::native::atomic::AtomicUsize;
use crate::loom::{Ordering, const_fn};
use crate::sched::wait::points;

/// Lets `n` goroutines or threads wait for each other, repeatedly, as `std::sync::Barrier` does.
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
    /// Number of arrivals in this generation, and number of completed generations. Ordering:
    /// relaxed; both change only under the list's lock.
    arrived: AtomicUsize,
    generation: AtomicUsize,
}

impl UnwindSafe for Barrier {}
impl RefUnwindSafe for Barrier {}

/// Result of [`Barrier::wait`]: whether the caller is the leader of its generation.
pub struct BarrierWaitResult(bool);

impl Barrier {
    const_fn! {
        /// Creates a barrier for `n` goroutines or threads. With 0 it behaves as with 1.
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

    /// Waits until `n` callers have arrived. The last one to arrive is the leader.
    ///
    /// The barrier can be used again at once for the next `n` callers.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine; blocks a plain thread. If the runtime shuts down, a waiting goroutine
    /// unwinds and does not count as arrived. In a destructor that runs during this unwinding, the
    /// call returns at once, not as the leader.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::sync::{Arc, Barrier};
    ///
    /// let barrier = Arc::new(Barrier::new(2));
    /// let other = Arc::clone(&barrier);
    /// let thread = std::thread::spawn(move || other.wait().is_leader());
    /// let is_leader = barrier.wait().is_leader();
    /// assert_ne!(is_leader, thread.join().unwrap());
    /// ```
    pub fn wait(&self) -> BarrierWaitResult {
        points::end_if_late();
        self.meet(false).unwrap_or_else(|_| {
            // Unwinds the goroutine. In a destructor it returns, and so does this call.
            let _ = points::cancel_point();
            BarrierWaitResult(false)
        })
    }

    /// Waits until all have arrived, or, if `by_context`, until the ambient context is done.
    ///
    /// # Errors
    ///
    /// The reason why the wait ended early. The caller then does not count as arrived.
    pub(crate) fn meet(&self, by_context: bool) -> Result<BarrierWaitResult, WaitError> {
        let ctx = WaitCtx::enter();
        let queue = self.list.lock(&ctx);
        let arrived = self.arrived.load(Ordering::Relaxed) + 1;
        let generation = self.generation.load(Ordering::Relaxed);
        if arrived >= self.n {
            self.arrived.store(0, Ordering::Relaxed);
            self.generation
                .store(generation.wrapping_add(1), Ordering::Relaxed);
            let all = queue.take_all();
            drop(queue);
            all.ready(&ctx);
            return Ok(BarrierWaitResult(true));
        }
        self.arrived.store(arrived, Ordering::Relaxed);
        let have_met = Cell::new(false);
        let leave = |_: &Queue<'_>| {
            // The generation may have completed meanwhile. It then counted this caller.
            have_met.set(self.generation.load(Ordering::Relaxed) != generation);
            if !have_met.get() {
                let arrived = self.arrived.load(Ordering::Relaxed);
                self.arrived.store(arrived - 1, Ordering::Relaxed);
            }
            DequeuedList::new()
        };
        let options = WaitOptions::new(Reason::Barrier).by_context(by_context);
        match queue.wait(ctx, QueueEnd::Last, 0, options, leave) {
            Err(gave_up) if !have_met.get() => Err(gave_up),
            _ => Ok(BarrierWaitResult(false)),
        }
    }
}

impl BarrierWaitResult {
    /// Whether the caller is the leader: the last one that arrived.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.0
    }
}

fmt_as!(Debug for Barrier, "Barrier { .. }");

debug_fields!(BarrierWaitResult, |this| is_leader: this.is_leader());

//! A weighted counting semaphore. Waiters are served first in, first out.
//!
//! ```text
//!  bit   63 .. 2   1        0
//!       permits    CLOSED   QUEUED
//! ```
//!
//! While a waiter is queued, no caller takes permits before it: added permits go to the first
//! waiter, and stay in the state until they are enough for it. QUEUED is set and cleared under the
//! list's lock. A caller that adds permits and finds QUEUED set takes that lock to hand the permits
//! out.

use std::error::Error;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::time::Duration;

use windlass_ground::std_traits::{debug_fields, fmt_as};

use super::tag::{self, Tag};
use super::waitlist::{Queue, QueueEnd, TAKEN, WaitError, WaitList};
use super::waitq::{DequeuedList, WaitCtx, WaitOptions};
use crate::g::status::Reason;
use crate::loom::{AtomicU64, Ordering, const_fn};
use crate::sched::wait::{current_context, points};
use crate::sys::clock::{NEVER, deadline_ns};

const QUEUED: u64 = 1;
const CLOSED: u64 = 2;
const PERMIT: u64 = 4;

/// Result reported to waiters when the semaphore is closed.
const CLOSED_MEANWHILE: usize = TAKEN + 1;

/// A weighted counting semaphore: a number of permits, of which each caller acquires as many as it
/// needs.
///
/// It is fair: waiters are served in order of arrival, so a waiter that needs many permits is not
/// overtaken by later ones that need few.
///
/// # Blocking
///
/// [`acquire`](Semaphore::acquire) parks a goroutine and blocks a plain thread.
///
/// # Examples
///
/// At most four goroutines at a time run an expensive section:
///
/// ```
/// use windlass::sync::{Arc, Semaphore};
///
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
/// rt.run(|| {
///     let slots = Arc::new(Semaphore::new(4));
///     let all: Vec<_> = (0..100)
///         .map(|_| {
///             let slots = Arc::clone(&slots);
///             windlass::spawn(move || {
///                 let _slot = slots.acquire(1).unwrap();
///                 windlass::yield_now();
///             })
///         })
///         .collect();
///     all.into_iter().for_each(|one| one.join().unwrap());
///     assert_eq!(slots.available_permits(), 4);
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Semaphore {
    /// Ordering: acquiring permits acquires, adding permits releases; the two bits publish nothing.
    state: AtomicU64,
    list: WaitList,
}

impl UnwindSafe for Semaphore {}
impl RefUnwindSafe for Semaphore {}

/// Acquired permits of a [`Semaphore`]. Dropping it returns them to the semaphore.
#[must_use = "if unused the permits are given back at once"]
pub struct SemaphorePermit<'a> {
    semaphore: &'a Semaphore,
    n: usize,
    _tag: Tag,
}

/// Error of [`Semaphore::acquire`].
///
/// There are three causes:
///
/// - the semaphore was closed: see [`AcquireError::is_closed`];
/// - the ambient context was done: it is the [`source`](Error::source) of this error;
/// - the runtime shuts down, and the call was made in a destructor of an unwinding goroutine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcquireError(Refused);

/// Why a wait for permits failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refused {
    Closed,
    TimedOut,
    /// The ambient context is done.
    Over(current_context::Error),
    /// The runtime shuts down, and the caller is already unwinding.
    RunEnds,
}

/// Error of [`Semaphore::try_acquire`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TryAcquireError {
    /// The semaphore was closed.
    Closed,
    /// There are not enough permits, or a waiter is queued for them.
    NoPermits,
}

/// Error of [`Semaphore::acquire_timeout`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcquireTimeoutError {
    /// The semaphore was closed.
    Closed,
    /// The time limit passed, or the ambient context was done.
    Timeout,
}

impl Semaphore {
    /// Maximum number of permits of a semaphore.
    pub const MAX_PERMITS: usize = usize::MAX >> 3;

    const_fn! {
        /// Creates a semaphore with `permits` permits.
        ///
        /// # Panics
        ///
        /// If `permits` is more than [`Semaphore::MAX_PERMITS`].
        #[must_use]
        #[track_caller]
        pub const fn new(permits: usize) -> Semaphore {
            assert!(
                permits <= Semaphore::MAX_PERMITS,
                "a semaphore may not have more than MAX_PERMITS permits"
            );
            Semaphore {
                state: AtomicU64::new(permits as u64 * PERMIT),
                list: WaitList::new(),
            }
        }
    }

    /// Acquires `n` permits, waiting until they are available.
    ///
    /// If `n` is more than the semaphore has, the call waits until enough permits are added.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine; blocks a plain thread. The wait ends when the ambient
    /// [`context`](crate::context) is done. If the runtime shuts down, a waiting goroutine unwinds.
    /// In a destructor that runs during this unwinding, a call that would wait fails at once.
    ///
    /// # Errors
    ///
    /// If the semaphore was closed before or during the wait, or the ambient context ended the
    /// wait.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::sync::Semaphore;
    ///
    /// let semaphore = Semaphore::new(3);
    /// let two = semaphore.acquire(2).unwrap();
    /// assert_eq!(semaphore.available_permits(), 1);
    /// drop(two);
    /// assert_eq!(semaphore.available_permits(), 3);
    /// ```
    pub fn acquire(&self, n: usize) -> Result<SemaphorePermit<'_>, AcquireError> {
        self.acquire_until(n, NEVER).map_err(AcquireError)
    }

    /// Acquires `n` permits if that is possible without waiting.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Errors
    ///
    /// [`TryAcquireError::Closed`] if the semaphore is closed, [`TryAcquireError::NoPermits`] if
    /// there are not enough permits or a waiter is queued.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::sync::{Semaphore, TryAcquireError};
    ///
    /// let semaphore = Semaphore::new(1);
    /// let _permit = semaphore.try_acquire(1).unwrap();
    /// assert_eq!(semaphore.try_acquire(1).unwrap_err(), TryAcquireError::NoPermits);
    /// ```
    pub fn try_acquire(&self, n: usize) -> Result<SemaphorePermit<'_>, TryAcquireError> {
        points::switch_point();
        match self.take(n, false) {
            Step::Dequeued => Ok(self.permit(n)),
            Step::Closed => {
                note_closed();
                Err(TryAcquireError::Closed)
            }
            Step::MustWait => Err(TryAcquireError::NoPermits),
        }
    }

    /// As [`Semaphore::acquire`], but waits for at most `timeout`.
    ///
    /// # Blocking
    ///
    /// As [`Semaphore::acquire`].
    ///
    /// # Errors
    ///
    /// [`AcquireTimeoutError::Closed`] if the semaphore was closed before or during the wait.
    /// [`AcquireTimeoutError::Timeout`] if the time limit passed or the ambient context was done.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::sync::{AcquireTimeoutError, Semaphore};
    ///
    /// let semaphore = Semaphore::new(0);
    /// let acquired = semaphore.acquire_timeout(1, Duration::from_millis(1));
    /// assert_eq!(acquired.unwrap_err(), AcquireTimeoutError::Timeout);
    /// ```
    pub fn acquire_timeout(
        &self,
        n: usize,
        timeout: Duration,
    ) -> Result<SemaphorePermit<'_>, AcquireTimeoutError> {
        self.acquire_until(n, deadline_ns(timeout))
            .map_err(|refused| match refused {
                Refused::Closed => AcquireTimeoutError::Closed,
                _ => AcquireTimeoutError::Timeout,
            })
    }

    fn acquire_until(&self, n: usize, deadline_ns: u64) -> Result<SemaphorePermit<'_>, Refused> {
        points::switch_point();
        let acquired = match self.take(n, false) {
            Step::Dequeued => return Ok(self.permit(n)),
            Step::Closed => Err(Refused::Closed),
            Step::MustWait => self.wait(n, deadline_ns),
        };
        if let Err(Refused::Closed) = acquired {
            note_closed();
        }
        acquired
    }

    #[cold]
    fn wait(&self, n: usize, deadline_ns: u64) -> Result<SemaphorePermit<'_>, Refused> {
        let ctx = WaitCtx::enter();
        let queue = self.list.lock(&ctx);
        match self.take(n, true) {
            Step::Dequeued => return Ok(self.permit(n)),
            Step::Closed => return Err(Refused::Closed),
            Step::MustWait => {}
        }
        let leave = |queue: &Queue<'_>| self.hand_out(queue);
        let options = WaitOptions::new(Reason::Semaphore)
            .until(deadline_ns)
            .by_context(true);
        let wait = || queue.wait(ctx, QueueEnd::Last, n, options, leave);
        match tag::while_waiting(tag::Handle::Permit, std::ptr::from_ref(self).addr(), wait) {
            Ok(TAKEN) => Ok(self.permit(n)),
            Ok(_) => Err(Refused::Closed),
            Err(WaitError::TimedOut) => Err(Refused::TimedOut),
            Err(WaitError::Over(over)) => Err(Refused::Over(over)),
            Err(WaitError::CutShort) => {
                // Unwinds the goroutine. In a destructor it returns, and this call fails.
                let _ = points::cancel_point();
                Err(Refused::RunEnds)
            }
        }
    }

    fn permit(&self, n: usize) -> SemaphorePermit<'_> {
        SemaphorePermit {
            semaphore: self,
            n,
            _tag: self.tag(),
        }
    }

    #[inline(always)]
    pub(super) fn tag(&self) -> Tag {
        Tag::new(tag::Handle::Permit, std::ptr::from_ref(self).addr())
    }

    /// Takes permits if there are enough and no waiter is queued. Otherwise, if `waits`, sets
    /// QUEUED in the same atomic step. A caller that passes `waits` holds the list's lock.
    fn take(&self, n: usize, waits: bool) -> Step {
        let mut now = self.state.load(Ordering::Relaxed);
        loop {
            let there = now & QUEUED == 0 && now / PERMIT >= n as u64;
            let new = match (now & CLOSED != 0, there, waits) {
                (true, ..) => return Step::Closed,
                // Zero permits are always available.
                _ if n == 0 => return Step::Dequeued,
                (_, true, _) => now - n as u64 * PERMIT,
                (_, false, true) => now | QUEUED,
                (_, false, false) => return Step::MustWait,
            };
            match self
                .state
                .compare_exchange_weak(now, new, Ordering::Acquire, Ordering::Relaxed)
            {
                Ok(_) if there => return Step::Dequeued,
                Ok(_) => return Step::MustWait,
                Err(other) => now = other,
            }
        }
    }

    /// Adds `n` permits to the semaphore and serves waiters that can now proceed.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Panics
    ///
    /// If the semaphore would have more than [`Semaphore::MAX_PERMITS`] permits. None is added
    /// then.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::sync::Semaphore;
    ///
    /// let semaphore = Semaphore::new(1);
    /// semaphore.add_permits(2);
    /// assert_eq!(semaphore.available_permits(), 3);
    /// ```
    #[track_caller]
    pub fn add_permits(&self, n: usize) {
        points::switch_point();
        self.give_back(n);
    }

    /// As [`Semaphore::add_permits`]; leaves the goroutine on its thread.
    #[track_caller]
    pub(crate) fn give_back(&self, n: usize) {
        if n == 0 {
            return;
        }
        let mut now = self.state.load(Ordering::Relaxed);
        loop {
            assert!(
                n <= Semaphore::MAX_PERMITS
                    && now / PERMIT + n as u64 <= Semaphore::MAX_PERMITS as u64,
                "a semaphore may not have more than MAX_PERMITS permits"
            );
            let new = now + n as u64 * PERMIT;
            match self
                .state
                .compare_exchange_weak(now, new, Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) if now & QUEUED != 0 => return self.serve(),
                Ok(_) => return,
                Err(other) => now = other,
            }
        }
    }

    #[cold]
    fn serve(&self) {
        let ctx = WaitCtx::enter_in_place();
        let queue = self.list.lock(&ctx);
        let next = self.hand_out(&queue);
        drop(queue);
        next.ready(&ctx);
    }

    /// Takes the first waiters, as long as the available permits are enough for them.
    fn hand_out(&self, queue: &Queue<'_>) -> DequeuedList {
        let mut next = DequeuedList::new();
        let permits = || self.state.load(Ordering::Relaxed) / PERMIT;
        while let Some(taken) = queue.take_front_if(|asks| asks as u64 <= permits()) {
            // No other caller takes permits while QUEUED is set.
            // ORDERING: acquires the writes released with these permits; the wake passes them to
            // the waiter.
            self.state
                .fetch_sub(taken.slot().addr() as u64 * PERMIT, Ordering::Acquire);
            next.push(taken);
        }
        if queue.is_empty() {
            self.state.fetch_and(!QUEUED, Ordering::Relaxed);
        }
        next
    }

    /// Number of permits available now.
    #[must_use]
    pub fn available_permits(&self) -> usize {
        points::switch_point();
        self.permits()
    }

    fn permits(&self) -> usize {
        (self.state.load(Ordering::Relaxed) / PERMIT) as usize
    }

    /// Closes the semaphore: current waiters and later calls fail. Permits already acquired stay
    /// valid.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::sync::Semaphore;
    ///
    /// let semaphore = Semaphore::new(1);
    /// let permit = semaphore.acquire(1).unwrap();
    /// semaphore.close();
    /// assert!(semaphore.acquire(1).unwrap_err().is_closed());
    /// assert_eq!(permit.num_permits(), 1);
    /// ```
    pub fn close(&self) {
        let ctx = WaitCtx::enter();
        let queue = self.list.lock(&ctx);
        self.state.fetch_or(CLOSED, Ordering::Relaxed);
        let mut refused = DequeuedList::new();
        while let Some(taken) = queue.take() {
            taken.report(CLOSED_MEANWHILE);
            refused.push(taken);
        }
        self.state.fetch_and(!QUEUED, Ordering::Relaxed);
        drop(queue);
        refused.ready(&ctx);
    }

    /// Whether [`Semaphore::close`] was called.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.state.load(Ordering::Relaxed) & CLOSED != 0
    }
}

/// Called before a caller is informed that the semaphore is closed. During a shutdown, a goroutine
/// that was unwound may have closed it; then the caller unwinds too, as in a wait.
#[cold]
fn note_closed() {
    let _ = points::cancel_point();
}

/// Result of an attempt to take permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Dequeued,
    Closed,
    MustWait,
}

impl SemaphorePermit<'_> {
    /// Number of permits held. See [`SemaphorePermit::split`] for an example.
    #[must_use]
    pub fn num_permits(&self) -> usize {
        self.n
    }

    /// Forgets the permits: they are never returned to the semaphore.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::sync::Semaphore;
    ///
    /// let semaphore = Semaphore::new(3);
    /// semaphore.acquire(1).unwrap().forget();
    /// assert_eq!(semaphore.available_permits(), 2);
    /// ```
    pub fn forget(mut self) {
        self.n = 0;
    }
}

impl<'a> SemaphorePermit<'a> {
    /// Splits off `n` of the permits; `None` if there are fewer than `n`.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::sync::Semaphore;
    ///
    /// let semaphore = Semaphore::new(3);
    /// let mut permits = semaphore.acquire(3).unwrap();
    /// let one = permits.split(1).unwrap();
    /// assert_eq!((permits.num_permits(), one.num_permits()), (2, 1));
    /// permits.merge(one);
    /// assert_eq!(permits.num_permits(), 3);
    /// assert!(permits.split(4).is_none());
    /// ```
    #[must_use]
    pub fn split(&mut self, n: usize) -> Option<SemaphorePermit<'a>> {
        self.n = self.n.checked_sub(n)?;
        Some(self.semaphore.permit(n))
    }

    /// Merges permits of the same semaphore into these. See [`SemaphorePermit::split`] for an
    /// example.
    ///
    /// # Panics
    ///
    /// If `other` belongs to another semaphore, or if the sum exceeds `usize::MAX`.
    #[track_caller]
    pub fn merge(&mut self, mut other: SemaphorePermit<'a>) {
        assert!(
            std::ptr::eq(self.semaphore, other.semaphore),
            "merging permits of different semaphores"
        );
        let sum = self.n.checked_add(other.n);
        self.n = sum.expect("too many permits in one SemaphorePermit");
        other.n = 0;
    }
}

impl Drop for SemaphorePermit<'_> {
    fn drop(&mut self) {
        self.semaphore.give_back(self.n);
    }
}

debug_fields!(Semaphore, |this| permits: this.permits(), closed: this.is_closed(), ..);

debug_fields!(SemaphorePermit<'_>, |this| permits: this.n, ..);

impl AcquireError {
    /// Whether the semaphore was closed. If not, the wait was cut short by a context or by the
    /// shutdown of the runtime.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.0 == Refused::Closed
    }

    /// The error of the ambient context, if it ended the wait.
    pub(crate) fn over(&self) -> Option<current_context::Error> {
        match self.0 {
            Refused::Over(over) => Some(over),
            _ => None,
        }
    }
}

fmt_as!(Display for AcquireError, |this| match this.0 {
    Refused::Closed => "semaphore closed",
    Refused::Over(_) => "the wait for the semaphore was cut short by a context",
    _ => "the wait for the semaphore was cut short because the runtime ends",
});

fmt_as!(Display for TryAcquireError, |this| match this {
    TryAcquireError::Closed => "semaphore closed",
    TryAcquireError::NoPermits => "no permits available",
});

fmt_as!(Display for AcquireTimeoutError, |this| match this {
    AcquireTimeoutError::Closed => "semaphore closed",
    AcquireTimeoutError::Timeout => "timed out waiting for permits",
});

impl Error for AcquireError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.0 {
            Refused::Over(over) => Some(over),
            _ => None,
        }
    }
}

impl Error for TryAcquireError {}
impl Error for AcquireTimeoutError {}

#[cfg(all(test, any(loom, miri)))]
#[path = "semaphore_loom_tests.rs"]
mod loom_tests;

//! A counting semaphore: weighted, first in, first out.
//!
//! ```text
//!  bit   63 .. 2   1        0
//!       permits    CLOSED   QUEUED
//! ```
//!
//! While somebody waits, nobody overtakes: permits that come back go to the first in the
//! queue, and stay in the state until they are enough for it. QUEUED is set and cleared
//! under the list's lock; whoever adds permits and sees it takes that lock to hand them out.

use std::error::Error;
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::time::Duration;

use super::waitlist::{GaveUp, Place, Queue, TAKEN, WaitList};
use super::waitq::{Here, TakenList, Terms};
use crate::g::status::Reason;
use crate::loom::{AtomicU64, Ordering, const_fn};
use crate::sched::{ambient, park};
use crate::sys::clock::{NEVER, deadline_ns};

const QUEUED: u64 = 1;
const CLOSED: u64 = 2;
const PERMIT: u64 = 4;

/// What waiters are told when the semaphore is closed.
const TOLD_CLOSED: usize = TAKEN + 1;

/// A number of permits, to be acquired in any amount and given back.
///
/// Fair: waiters are served in order of arrival, and one that asks for much is not
/// overtaken by others that ask for little.
///
/// # Blocking
///
/// [`acquire`](Semaphore::acquire) parks a goroutine and blocks a plain thread.
///
/// # Examples
///
/// At most four goroutines at a time do something dear:
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
    /// Ordering: acquiring permits acquires, giving them back releases; the two bits
    /// publish nothing.
    state: AtomicU64,
    list: WaitList,
}

impl UnwindSafe for Semaphore {}
impl RefUnwindSafe for Semaphore {}

/// Permits of a [`Semaphore`]; dropping it gives them back.
#[must_use = "if unused the permits are given back at once"]
pub struct SemaphorePermit<'a> {
    semaphore: &'a Semaphore,
    n: usize,
}

/// Why permits could not be waited for.
///
/// The semaphore was closed; or the ambient context was done, which then is the
/// [`source`](Error::source); or, in a destructor of a goroutine whose runtime ends,
/// nothing is waited for any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcquireError(Refused);

/// Why a wait for permits has ended without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refused {
    Closed,
    TimedOut,
    /// The ambient context is done.
    Over(ambient::Error),
    /// The runtime ends, and the caller unwinds already.
    RunEnds,
}

/// Why permits could not be had at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TryAcquireError {
    /// The semaphore was closed.
    Closed,
    /// There are not enough permits, or others wait for them.
    NoPermits,
}

/// Why permits could not be had in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcquireTimeoutError {
    /// The semaphore was closed.
    Closed,
    /// The time was over, or the ambient context was done.
    Timeout,
}

impl Semaphore {
    /// A semaphore has at most so many permits.
    pub const MAX_PERMITS: usize = usize::MAX >> 3;

    const_fn! {
        /// Makes a semaphore with this many permits.
        ///
        /// # Panics
        ///
        /// If they are more than [`Semaphore::MAX_PERMITS`].
        #[must_use]
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

    /// Waits for `n` permits, and takes them.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine; blocks a plain thread. On a goroutine whose runtime ends a wait
    /// unwinds. A wait ends when the ambient context ([`context`](crate::context)) is done.
    /// More permits than there are is no error: they may be added.
    ///
    /// # Errors
    ///
    /// If the semaphore is or gets closed, or the ambient context ended the wait.
    pub fn acquire(&self, n: usize) -> Result<SemaphorePermit<'_>, AcquireError> {
        self.acquire_until(n, NEVER).map_err(AcquireError)
    }

    /// Takes `n` permits, if they can be had at once.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Errors
    ///
    /// If they cannot.
    pub fn try_acquire(&self, n: usize) -> Result<SemaphorePermit<'_>, TryAcquireError> {
        match self.take(n, false) {
            Step::Taken => Ok(self.permit(n)),
            Step::Closed => {
                note_closed();
                Err(TryAcquireError::Closed)
            }
            Step::MustWait => Err(TryAcquireError::NoPermits),
        }
    }

    /// As [`Semaphore::acquire`], for at most `timeout`.
    ///
    /// # Blocking
    ///
    /// As [`Semaphore::acquire`].
    ///
    /// # Errors
    ///
    /// If the semaphore is or gets closed, or the time is over. That it is, too, when the
    /// ambient context is done.
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
        let acquired = match self.take(n, false) {
            Step::Taken => return Ok(self.permit(n)),
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
        let here = Here::enter();
        let queue = self.list.lock(&here);
        match self.take(n, true) {
            Step::Taken => return Ok(self.permit(n)),
            Step::Closed => return Err(Refused::Closed),
            Step::MustWait => {}
        }
        let leave = |queue: &Queue<'_>| self.hand_out(queue);
        let terms = Terms::new(Reason::Semaphore)
            .until(deadline_ns)
            .by_context(true);
        match queue.wait(here, Place::Last, n, terms, leave) {
            Ok(TAKEN) => Ok(self.permit(n)),
            Ok(_) => Err(Refused::Closed),
            Err(GaveUp::TimedOut) => Err(Refused::TimedOut),
            Err(GaveUp::Over(over)) => Err(Refused::Over(over)),
            Err(GaveUp::CutShort) => {
                // Unwinds; in a destructor the call fails instead.
                let _ = park::cancel_point();
                Err(Refused::RunEnds)
            }
        }
    }

    fn permit(&self, n: usize) -> SemaphorePermit<'_> {
        SemaphorePermit { semaphore: self, n }
    }

    /// Takes permits if they are there and nobody waits. If not, and the caller is to wait
    /// (it holds the list's lock), the state says so in the same step.
    fn take(&self, n: usize, waits: bool) -> Step {
        let mut now = self.state.load(Ordering::Relaxed);
        loop {
            let there = now & QUEUED == 0 && now / PERMIT >= n as u64;
            let new = match (now & CLOSED != 0, there, waits) {
                (true, ..) => return Step::Closed,
                // Nothing is nothing.
                _ if n == 0 => return Step::Taken,
                (_, true, _) => now - n as u64 * PERMIT,
                (_, false, true) => now | QUEUED,
                (_, false, false) => return Step::MustWait,
            };
            match self
                .state
                .compare_exchange_weak(now, new, Ordering::Acquire, Ordering::Relaxed)
            {
                Ok(_) if there => return Step::Taken,
                Ok(_) => return Step::MustWait,
                Err(other) => now = other,
            }
        }
    }

    /// Adds `n` permits.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Panics
    ///
    /// If there were more than [`Semaphore::MAX_PERMITS`] then; none is added.
    pub fn add_permits(&self, n: usize) {
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
        let here = Here::enter();
        let queue = self.list.lock(&here);
        let next = self.hand_out(&queue);
        drop(queue);
        next.ready(&here);
    }

    /// Gives the permits that are there to the first waiters they are enough for.
    fn hand_out(&self, queue: &Queue<'_>) -> TakenList {
        let mut next = TakenList::new();
        let permits = || self.state.load(Ordering::Relaxed) / PERMIT;
        while let Some(taken) = queue.take_front_if(|asks| asks as u64 <= permits()) {
            // Nobody else takes any while QUEUED is set.
            // ORDERING: acquires what was released with them; the waiter gets it by its wake.
            self.state
                .fetch_sub(taken.slot().addr() as u64 * PERMIT, Ordering::Acquire);
            next.push(taken);
        }
        if queue.is_empty() {
            self.state.fetch_and(!QUEUED, Ordering::Relaxed);
        }
        next
    }

    /// How many permits can be had now.
    #[must_use]
    pub fn available_permits(&self) -> usize {
        (self.state.load(Ordering::Relaxed) / PERMIT) as usize
    }

    /// Refuses all who wait for permits and all who come later. Those that were acquired
    /// stay valid.
    ///
    /// # Blocking
    ///
    /// Never.
    pub fn close(&self) {
        let here = Here::enter();
        let queue = self.list.lock(&here);
        self.state.fetch_or(CLOSED, Ordering::Relaxed);
        let mut refused = TakenList::new();
        while let Some(taken) = queue.take() {
            taken.tell(TOLD_CLOSED);
            refused.push(taken);
        }
        self.state.fetch_and(!QUEUED, Ordering::Relaxed);
        drop(queue);
        refused.ready(&here);
    }

    /// Whether [`Semaphore::close`] was called.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.state.load(Ordering::Relaxed) & CLOSED != 0
    }
}

/// A caller is about to learn that the semaphore is closed. While a run ends, that may be
/// the work of a goroutine that was unwound: then the caller unwinds, too, as in a wait.
#[cold]
fn note_closed() {
    let _ = park::cancel_point();
}

/// What an attempt came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Taken,
    Closed,
    MustWait,
}

impl SemaphorePermit<'_> {
    /// How many permits these are.
    #[must_use]
    pub fn num_permits(&self) -> usize {
        self.n
    }

    /// Keeps them for good: the semaphore has so many less.
    pub fn forget(mut self) {
        self.n = 0;
    }
}

impl<'a> SemaphorePermit<'a> {
    /// Takes `n` of the permits out; `None` if they are not so many.
    #[must_use]
    pub fn split(&mut self, n: usize) -> Option<SemaphorePermit<'a>> {
        self.n = self.n.checked_sub(n)?;
        Some(self.semaphore.permit(n))
    }

    /// Adds permits of the same semaphore to these.
    ///
    /// # Panics
    ///
    /// If they are another semaphore's; if together they would be more than `usize::MAX`.
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
        self.semaphore.add_permits(self.n);
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Semaphore")
            .field("permits", &self.available_permits())
            .field("closed", &self.is_closed())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for SemaphorePermit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SemaphorePermit")
            .field("permits", &self.n)
            .finish_non_exhaustive()
    }
}

impl AcquireError {
    /// Whether the semaphore was closed. If not, the wait was cut short.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.0 == Refused::Closed
    }

    /// Why the ambient context was done, if it ended the wait.
    pub(crate) fn over(&self) -> Option<ambient::Error> {
        match self.0 {
            Refused::Over(over) => Some(over),
            _ => None,
        }
    }
}

impl fmt::Display for AcquireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Refused::Closed => "semaphore closed",
            Refused::Over(_) => "the wait for the semaphore was cut short by a context",
            _ => "the wait for the semaphore was cut short because the runtime ends",
        })
    }
}

impl fmt::Display for TryAcquireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TryAcquireError::Closed => "semaphore closed",
            TryAcquireError::NoPermits => "no permits available",
        })
    }
}

impl fmt::Display for AcquireTimeoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AcquireTimeoutError::Closed => "semaphore closed",
            AcquireTimeoutError::Timeout => "timed out waiting for permits",
        })
    }
}

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

#[cfg(all(test, loom))]
#[path = "semaphore_loom_tests.rs"]
mod loom_tests;

//! One-time initialization.
//!
//! Callers that find the state RUNNING wait in the list. The caller whose run ends changes the
//! state and wakes all waiters, which check the state again. No wake-up is lost: a waiter checks
//! the state under the list's lock, and the end of a run changes the state before it takes that
//! lock.

use std::panic::{RefUnwindSafe, UnwindSafe};

use windlass_ground::std_traits::{debug_fields, fmt_as};

use super::waitlist::{self, Queue, QueueEnd, WaitError, WaitList};
use super::waitq::{DequeuedList, WaitCtx, WaitOptions};
use crate::g::status::Reason;
use crate::loom::{AtomicU32, Ordering, const_fn};
use crate::sched::wait::points;

const INCOMPLETE: u32 = 0;
const POISONED: u32 = 1;
const RUNNING: u32 = 2;
const COMPLETE: u32 = 3;

/// Runs an initialization once, as `std::sync::Once`.
///
/// # Poisoning
///
/// As in `std`: a panic in the closure poisons it. If the closure's goroutine unwinds because its
/// runtime shuts down, the closure counts as not run, and another call may run its own.
///
/// # Blocking
///
/// The closure may wait for anything except this `Once` itself: calling it from its own closure
/// waits forever. Other callers wait while the closure runs: a goroutine parks, a plain thread
/// blocks. If the runtime shuts down, a waiting goroutine unwinds.
///
/// # Examples
///
/// ```
/// use windlass::sync::Once;
///
/// static START: Once = Once::new();
///
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
/// rt.run(|| {
///     let other = windlass::spawn(|| START.call_once(windlass::yield_now));
///     START.call_once(windlass::yield_now);
///     other.join().unwrap();
/// });
/// assert!(START.is_completed());
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Once {
    /// Ordering: the end of a run releases the writes of the closure; all other accesses acquire.
    state: AtomicU32,
    list: WaitList,
}

impl UnwindSafe for Once {}
impl RefUnwindSafe for Once {}

/// State that the closure of [`Once::call_once_force`] receives.
pub struct OnceState {
    poisoned: bool,
}

/// Ends a run when it is dropped, because the closure may panic.
struct Run<'a> {
    once: &'a Once,
    end: u32,
}

impl Once {
    const_fn! {
        /// Creates a `Once` that has not run.
        #[inline]
        #[must_use]
        #[allow(clippy::new_without_default, reason = "std's has none either")]
        pub const fn new() -> Once {
            Once {
                state: AtomicU32::new(INCOMPLETE),
                list: WaitList::new(),
            }
        }
    }

    /// Runs `f` unless a closure has completed before. If another call is running its closure,
    /// waits for it.
    ///
    /// # Blocking
    ///
    /// See [`Once`].
    ///
    /// # Panics
    ///
    /// If the closure of an earlier call panicked, or if `f` panics.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::sync::Once;
    /// use windlass::sync::atomic::{AtomicU32, Ordering};
    ///
    /// static RUNS: AtomicU32 = AtomicU32::new(0);
    /// static ONCE: Once = Once::new();
    /// for _ in 0..2 {
    ///     ONCE.call_once(|| _ = RUNS.fetch_add(1, Ordering::Relaxed));
    /// }
    /// assert_eq!(RUNS.load(Ordering::Relaxed), 1);
    /// ```
    #[inline]
    #[track_caller]
    pub fn call_once<F: FnOnce()>(&self, f: F) {
        if self.is_completed() {
            return;
        }
        let mut f = Some(f);
        self.call(false, &mut |_| f.take().expect("a run happens once")());
    }

    /// As [`Once::call_once`], but also runs `f` if an earlier closure panicked.
    ///
    /// # Blocking
    ///
    /// See [`Once`].
    ///
    /// # Panics
    ///
    /// If `f` panics.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::sync::Once;
    ///
    /// static ONCE: Once = Once::new();
    /// let panicked = std::thread::spawn(|| ONCE.call_once(|| panic!("poisons it"))).join();
    /// assert!(panicked.is_err());
    /// ONCE.call_once_force(|state| assert!(state.is_poisoned()));
    /// assert!(ONCE.is_completed());
    /// ```
    #[inline]
    pub fn call_once_force<F: FnOnce(&OnceState)>(&self, f: F) {
        if self.is_completed() {
            return;
        }
        let mut f = Some(f);
        self.call(true, &mut |state| {
            f.take().expect("a run happens once")(state)
        });
    }

    /// Whether a closure has completed.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::sync::Once;
    ///
    /// let once = Once::new();
    /// assert!(!once.is_completed());
    /// once.call_once(|| ());
    /// assert!(once.is_completed());
    /// ```
    #[inline]
    #[must_use]
    pub fn is_completed(&self) -> bool {
        points::switch_point();
        self.is_completed_in_place()
    }

    /// As [`Once::is_completed`]; leaves the goroutine on its thread.
    #[inline]
    pub(super) fn is_completed_in_place(&self) -> bool {
        self.state.load(Ordering::Acquire) == COMPLETE
    }

    /// Waits until a closure has completed, without running one.
    ///
    /// # Blocking
    ///
    /// See [`Once`].
    ///
    /// # Panics
    ///
    /// If a closure panicked.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::sync::Once;
    ///
    /// static ONCE: Once = Once::new();
    /// std::thread::spawn(|| ONCE.call_once(|| println!("initialized")));
    /// ONCE.wait();
    /// assert!(ONCE.is_completed());
    /// ```
    #[track_caller]
    pub fn wait(&self) {
        self.wait_while(|state| state == INCOMPLETE || state == RUNNING);
        if !self.is_completed() {
            poisoned();
        }
    }

    /// As [`Once::wait`], but if a closure panicked, waits until a later one has completed.
    ///
    /// # Blocking
    ///
    /// See [`Once`].
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::sync::Once;
    ///
    /// static ONCE: Once = Once::new();
    /// std::thread::spawn(|| ONCE.call_once_force(|_| println!("initialized")));
    /// ONCE.wait_force();
    /// assert!(ONCE.is_completed());
    /// ```
    pub fn wait_force(&self) {
        self.wait_while(|state| state != COMPLETE);
    }

    #[cold]
    #[track_caller]
    fn call(&self, force: bool, f: &mut dyn FnMut(&OnceState)) {
        let called = self.call_or(force, f, &mut || {
            self.wait_while(|state| state == RUNNING);
            Ok(())
        });
        called.unwrap_or_else(|_| waitlist::unwind());
    }

    /// Runs `f` unless a closure has completed. While another call runs its closure, calls `wait`.
    ///
    /// # Errors
    ///
    /// The error of `wait`. `f` has not run then and will not run.
    #[track_caller]
    pub(crate) fn call_or(
        &self,
        force: bool,
        f: &mut dyn FnMut(&OnceState),
        wait: &mut dyn FnMut() -> Result<(), WaitError>,
    ) -> Result<(), WaitError> {
        points::switch_point();
        loop {
            match self.state.load(Ordering::Acquire) {
                COMPLETE => return Ok(()),
                POISONED if !force => poisoned(),
                RUNNING => wait()?,
                before => {
                    let begun = self.state.compare_exchange(
                        before,
                        RUNNING,
                        Ordering::Acquire,
                        Ordering::Acquire,
                    );
                    if begun.is_ok() {
                        self.run(before == POISONED, f);
                        return Ok(());
                    }
                }
            }
        }
    }

    fn run(&self, poisoned: bool, f: &mut dyn FnMut(&OnceState)) {
        let mut run = Run {
            once: self,
            end: POISONED,
        };
        f(&OnceState { poisoned });
        run.end = COMPLETE;
    }

    /// Waits until no call runs its closure, or the ambient context is done.
    ///
    /// # Errors
    ///
    /// The reason why the wait ended early.
    pub(crate) fn wait_run_in_context(&self) -> Result<(), WaitError> {
        self.wait_while_on(WaitOptions::new(Reason::Once).by_context(true), |state| {
            state == RUNNING
        })
    }

    /// As [`Once::wait`] or [`Once::wait_force`], but the wait also ends when the ambient context
    /// is done.
    ///
    /// # Errors
    ///
    /// The reason why the wait ended early.
    #[track_caller]
    pub(crate) fn wait_in_context(&self, force: bool) -> Result<(), WaitError> {
        let options = WaitOptions::new(Reason::Once).by_context(true);
        self.wait_while_on(options, |state| {
            state != COMPLETE && (force || state != POISONED)
        })?;
        if !self.is_completed() {
            poisoned();
        }
        Ok(())
    }

    /// Waits while the state is `unwanted`.
    fn wait_while(&self, unwanted: impl Fn(u32) -> bool) {
        let waited = self.wait_while_on(WaitOptions::new(Reason::Once), unwanted);
        waited.unwrap_or_else(|_| waitlist::unwind());
    }

    fn wait_while_on(
        &self,
        options: WaitOptions,
        unwanted: impl Fn(u32) -> bool,
    ) -> Result<(), WaitError> {
        while unwanted(self.state.load(Ordering::Acquire)) {
            let ctx = WaitCtx::enter();
            let queue = self.list.lock(&ctx);
            // ORDERING: the end of a run stores the state before it takes the list's lock.
            if !unwanted(self.state.load(Ordering::Acquire)) {
                break;
            }
            let leave = |_: &Queue<'_>| DequeuedList::new();
            queue.wait(ctx, QueueEnd::Last, 0, options, leave)?;
        }
        Ok(())
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        // The closure was unwound by a shutdown and did not panic: another call may run its own.
        if self.end == POISONED && points::unwinds_cancelled() {
            self.end = INCOMPLETE;
        }
        self.once.state.store(self.end, Ordering::Release);
        self.once.list.wake_all();
    }
}

#[cold]
#[track_caller]
fn poisoned() -> ! {
    // During a shutdown the closure may have been unwound for that reason; then this caller
    // unwinds, too.
    let _ = points::cancel_point();
    panic!("Once instance has previously been poisoned");
}

impl OnceState {
    /// Whether an earlier closure panicked. See [`Once::call_once_force`] for an example.
    #[inline]
    #[must_use]
    pub fn is_poisoned(&self) -> bool {
        self.poisoned
    }
}

fmt_as!(Debug for Once, "Once { .. }");

debug_fields!(OnceState, |this| poisoned: this.is_poisoned());

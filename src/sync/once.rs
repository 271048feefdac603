//! Running something once.
//!
//! The state says who is at it; those who find RUNNING wait in the list, and whoever ends
//! the run wakes them all, to look at the state again. A waiter looks at it under the
//! list's lock, the ender changes it before it takes that lock: none is forgotten.

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};

use super::waitlist::{self, GaveUp, Place, Queue, WaitList};
use super::waitq::{Here, TakenList, Terms};
use crate::g::status::Reason;
use crate::loom::{AtomicU32, Ordering, const_fn};
use crate::sched::park;

const INCOMPLETE: u32 = 0;
const POISONED: u32 = 1;
const RUNNING: u32 = 2;
const COMPLETE: u32 = 3;

/// For an initialization that is to run once, as `std::sync::Once`.
///
/// # Poisoning
///
/// As in `std`: a panic in the closure poisons it. If the closure's goroutine unwinds
/// because its runtime ends, it counts as not run, and another call may run it.
///
/// # Blocking
///
/// The closure may wait for anything but this `Once` itself: calling it from within waits
/// for ever. Who comes meanwhile waits for it: a goroutine parks, a plain thread blocks;
/// a goroutine whose runtime ends unwinds.
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
    /// Ordering: the ender releases what the closure did, everybody else acquires.
    state: AtomicU32,
    list: WaitList,
}

impl UnwindSafe for Once {}
impl RefUnwindSafe for Once {}

/// What the closure of [`Once::call_once_force`] is told.
pub struct OnceState {
    poisoned: bool,
}

/// Ends a run: by its drop, as the closure may panic.
struct Run<'a> {
    once: &'a Once,
    end: u32,
}

impl Once {
    const_fn! {
        /// Makes one that has not run.
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

    /// Runs `f`, unless a call has done so; if one is at it, waits for it.
    ///
    /// # Blocking
    ///
    /// See [`Once`].
    ///
    /// # Panics
    ///
    /// If the closure of an earlier call panicked, and if `f` does.
    #[inline]
    #[track_caller]
    pub fn call_once<F: FnOnce()>(&self, f: F) {
        if self.is_completed() {
            return;
        }
        let mut f = Some(f);
        self.call(false, &mut |_| f.take().expect("a run happens once")());
    }

    /// As [`Once::call_once`], but does not mind an earlier panic.
    ///
    /// # Blocking
    ///
    /// See [`Once`].
    ///
    /// # Panics
    ///
    /// If `f` does.
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

    /// Whether a run has come to its end.
    #[inline]
    #[must_use]
    pub fn is_completed(&self) -> bool {
        self.state.load(Ordering::Acquire) == COMPLETE
    }

    /// Waits until a run has come to its end, without beginning one.
    ///
    /// # Blocking
    ///
    /// See [`Once`].
    ///
    /// # Panics
    ///
    /// If a closure panicked.
    #[track_caller]
    pub fn wait(&self) {
        self.wait_while(|state| state == INCOMPLETE || state == RUNNING);
        if !self.is_completed() {
            poisoned();
        }
    }

    /// As [`Once::wait`], but does not mind a panic: waits until a later run has ended well.
    ///
    /// # Blocking
    ///
    /// See [`Once`].
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

    /// Runs `f` unless that was done; while another call is at it, `wait`s.
    ///
    /// # Errors
    ///
    /// `wait`'s. `f` has not run then, nor will it.
    #[track_caller]
    pub(crate) fn call_or(
        &self,
        force: bool,
        f: &mut dyn FnMut(&OnceState),
        wait: &mut dyn FnMut() -> Result<(), GaveUp>,
    ) -> Result<(), GaveUp> {
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

    /// Waits until nobody is in a run, or the ambient context is done.
    ///
    /// # Errors
    ///
    /// Why it has not waited so long.
    pub(crate) fn wait_run_in_context(&self) -> Result<(), GaveUp> {
        self.wait_while_on(Terms::new(Reason::Once).by_context(true), |state| {
            state == RUNNING
        })
    }

    /// As [`Once::wait`], or [`Once::wait_force`], but the wait ends when the ambient
    /// context does.
    ///
    /// # Errors
    ///
    /// Why no run has come to its end.
    #[track_caller]
    pub(crate) fn wait_in_context(&self, force: bool) -> Result<(), GaveUp> {
        let terms = Terms::new(Reason::Once).by_context(true);
        self.wait_while_on(terms, |state| {
            state != COMPLETE && (force || state != POISONED)
        })?;
        if !self.is_completed() {
            poisoned();
        }
        Ok(())
    }

    /// Waits as long as the state is so.
    fn wait_while(&self, unwanted: impl Fn(u32) -> bool) {
        let waited = self.wait_while_on(Terms::new(Reason::Once), unwanted);
        waited.unwrap_or_else(|_| waitlist::unwind());
    }

    fn wait_while_on(&self, terms: Terms, unwanted: impl Fn(u32) -> bool) -> Result<(), GaveUp> {
        while unwanted(self.state.load(Ordering::Acquire)) {
            let here = Here::enter();
            let queue = self.list.lock(&here);
            // ORDERING: the ender's store comes before it takes the list's lock.
            if !unwanted(self.state.load(Ordering::Acquire)) {
                break;
            }
            let leave = |_: &Queue<'_>| TakenList::new();
            queue.wait(here, Place::Last, 0, terms, leave)?;
        }
        Ok(())
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        // Not run to the end, and nobody panicked: another call may.
        if self.end == POISONED && park::unwinds_cancelled() {
            self.end = INCOMPLETE;
        }
        self.once.state.store(self.end, Ordering::Release);
        self.once.list.wake_all();
    }
}

#[cold]
#[track_caller]
fn poisoned() -> ! {
    // While a run ends, the run of this may have been unwound for that reason.
    let _ = park::cancel_point();
    panic!("Once instance has previously been poisoned");
}

impl OnceState {
    /// Whether an earlier closure panicked.
    #[inline]
    #[must_use]
    pub fn is_poisoned(&self) -> bool {
        self.poisoned
    }
}

impl fmt::Debug for Once {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Once").finish_non_exhaustive()
    }
}

impl fmt::Debug for OnceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnceState")
            .field("poisoned", &self.is_poisoned())
            .finish()
    }
}

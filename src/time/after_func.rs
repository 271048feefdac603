//! `after_func`: a function that is called after some time.
//!
//! A goroutine parks until the time has come, and calls the function. The handle sets the time under
//! a lock that is held for a few instructions, and then unparks the goroutine, which looks again.

use std::panic::Location;
use std::time::Duration;

use windlass_ground::std_traits::fmt_as;

use crate::loom::native::{Arc, Mutex, MutexGuard, PoisonError};
use crate::sched::wait::points;
use crate::sys::clock::{self, NEVER};
use crate::task::{self, Task};

/// Calls `f` in a goroutine of its own after `delay`: Go's `time.AfterFunc`.
///
/// The result can [stop](AfterFunc::stop) the call, and [reset](AfterFunc::reset) the time; after a
/// call, `reset` makes `f` be called again. Calls of `f` do not overlap: one that takes longer than
/// its next time delays the next call. Dropping the result does not stop the call.
///
/// If the run ends first, `f` is dropped. A panic of `f` ends its goroutine; `f` is not called again
/// then. The ambient contexts of the caller do not apply to `f`.
///
/// Until the call, and as long as the result exists, this costs a parked goroutine.
///
/// # Blocking
///
/// Never.
///
/// # Panics
///
/// If the caller is not a goroutine.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use windlass::{channel, time};
///
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
/// rt.run(|| {
///     let (sender, receiver) = channel::bounded(1);
///     let alarm = time::after_func(Duration::from_millis(2), move || sender.send("late").unwrap());
///     assert_eq!(receiver.recv(), Ok("late"));
///     assert!(!alarm.stop()); // it has been called
///
///     let never = time::after_func(Duration::from_secs(3600), || unreachable!("it was stopped"));
///     assert!(never.stop());
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
#[track_caller]
pub fn after_func<F>(delay: Duration, f: F) -> AfterFunc
where
    F: FnMut() + Send + 'static,
{
    let state = Arc::new(Mutex::new(State {
        due_ns: clock::deadline_ns(delay),
        is_set: true,
        is_held: true,
        is_over: false,
    }));
    let caller = Caller(Arc::clone(&state));
    let goroutine = task::spawn_at(move || caller.run(f), Location::caller());
    AfterFunc {
        state,
        goroutine: goroutine.task(),
    }
}

/// The state that the goroutine and the handle share.
struct State {
    /// When the next call is due.
    due_ns: u64,
    /// Whether there is a next call.
    is_set: bool,
    /// Whether the handle exists.
    is_held: bool,
    /// Whether the goroutine that makes the calls has ended.
    is_over: bool,
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The goroutine that calls the function.
struct Caller(Arc<Mutex<State>>);

impl Caller {
    fn run(self, mut f: impl FnMut()) {
        // Dropped before the function, whose destructor may be noticed.
        let caller = self;
        loop {
            match caller.next() {
                Next::Call => f(),
                Next::WaitUntil(NEVER) => task::park(),
                Next::WaitUntil(due_ns) => {
                    let left_ns = due_ns.saturating_sub(clock::now_ns());
                    task::park_timeout(Duration::from_nanos(left_ns));
                }
                Next::End => return,
            }
        }
    }

    fn next(&self) -> Next {
        let mut state = lock(&self.0);
        if !state.is_set {
            return match state.is_held {
                true => Next::WaitUntil(NEVER),
                false => Next::End,
            };
        }
        if clock::now_ns() < state.due_ns {
            return Next::WaitUntil(state.due_ns);
        }
        state.is_set = false;
        Next::Call
    }
}

/// The goroutine's next step.
enum Next {
    Call,
    WaitUntil(u64),
    End,
}

impl Drop for Caller {
    fn drop(&mut self) {
        lock(&self.0).is_over = true;
    }
}

/// A function that will be called after some time. Made by [`after_func`].
pub struct AfterFunc {
    state: Arc<Mutex<State>>,
    goroutine: Task,
}

impl AfterFunc {
    /// Prevents the next call. Returns `false` if there was none to prevent: the function has been
    /// called or is running, or was stopped before.
    ///
    /// It does not wait for a call that is running.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Examples
    ///
    /// See [`after_func`].
    pub fn stop(&self) -> bool {
        points::switch_point();
        let was_set = {
            let mut state = lock(&self.state);
            std::mem::take(&mut state.is_set) && !state.is_over
        };
        if was_set {
            // Its timer is no longer needed.
            self.goroutine.unpark();
        }
        was_set
    }

    /// Sets the time of the next call to `delay` from now, also if the function has been called or
    /// was stopped. Returns whether that replaced the time of a call.
    ///
    /// It has no effect after a panic of the function, or after the run has ended.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::{channel, time};
    ///
    /// # // SAFETY: nothing here keeps a thread-local across a call that parks.
    /// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
    /// rt.run(|| {
    ///     let (sender, receiver) = channel::unbounded();
    ///     let call = move || sender.send(()).unwrap();
    ///     let after = time::after_func(Duration::from_secs(3600), call);
    ///     assert!(after.reset(Duration::from_millis(1))); // earlier
    ///     receiver.recv().unwrap();
    ///     assert!(!after.reset(Duration::from_millis(1))); // once more
    ///     receiver.recv().unwrap();
    /// });
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn reset(&self, delay: Duration) -> bool {
        points::switch_point();
        let was_set = {
            let mut state = lock(&self.state);
            if state.is_over {
                return false;
            }
            state.due_ns = clock::deadline_ns(delay);
            std::mem::replace(&mut state.is_set, true)
        };
        self.goroutine.unpark();
        was_set
    }
}

impl Drop for AfterFunc {
    fn drop(&mut self) {
        lock(&self.state).is_held = false;
        // If no call is left, the goroutine ends.
        self.goroutine.unpark_in_place();
    }
}

fmt_as!(Debug for AfterFunc, "AfterFunc { .. }");

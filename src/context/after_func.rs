//! `after_func`: a function that is called when a context is done.
//!
//! A goroutine waits for the context, because a context that ends by its deadline has no timer of
//! its own: each waiter has one. The thread that takes the function out of its place calls it, or prevents the
//! call.

use std::panic::Location;

use windlass_ground::std_traits::fmt_as;

use super::tree::{CancelRef, Context};
use crate::loom::native::{Arc, Mutex, PoisonError, Weak};
use crate::sched::wait::{points, spawn};

type Func = Box<dyn FnOnce() + Send>;

/// Calls `f` in a goroutine of its own when `ctx` is done: Go's `context.AfterFunc`.
///
/// If `ctx` is done already, that happens now. The result can [stop](AfterFunc::stop) it; dropping
/// the result does not.
///
/// `f` does not run inside `ctx`, nor inside the ambient contexts of the caller. If the run ends
/// first, `f` is dropped. A panic of `f` ends its goroutine only.
///
/// Until `ctx` is done, this costs a parked goroutine.
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
/// use windlass::context::{self, Context};
/// use windlass::sync::{Condvar, Mutex};
/// use std::sync::Arc;
///
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
/// rt.run(|| {
///     // Ends the wait for a condition, which takes no context.
///     let shared = Arc::new((Mutex::new(false), Condvar::new()));
///     let (ctx, canceller) = Context::background().with_cancel();
///     let after = context::after_func(&ctx, {
///         let shared = Arc::clone(&shared);
///         move || {
///             *shared.0.lock().unwrap() = true;
///             shared.1.notify_all();
///         }
///     });
///     canceller.cancel();
///     let is_over = shared.1.wait_while(shared.0.lock().unwrap(), |is_over| !*is_over);
///     assert!(*is_over.unwrap());
///     assert!(!after.stop()); // too late
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
#[track_caller]
pub fn after_func<F>(ctx: &Context, f: F) -> AfterFunc
where
    F: FnOnce() + Send + 'static,
{
    let (ctx, own) = ctx.with_cancel_ref();
    let func = Arc::new(Mutex::new(Some(Box::new(f) as Func)));
    let place = Place(Arc::clone(&func));
    let wait_and_call = move || {
        ctx.wait();
        if let Some(f) = place.take() {
            f();
        }
    };
    spawn::spawn_unjoined(wait_and_call, Location::caller());
    AfterFunc {
        func: Arc::downgrade(&func),
        own,
    }
}

/// Where the function is until it is called or stopped.
struct Place(Arc<Mutex<Option<Func>>>);

impl Place {
    /// The caller calls or drops it without the lock.
    fn take(&self) -> Option<Func> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Drop for Place {
    /// Nobody else would call it.
    fn drop(&mut self) {
        drop(self.take());
    }
}

/// A function that will be called when a context is done. Made by [`after_func`].
pub struct AfterFunc {
    func: Weak<Mutex<Option<Func>>>,
    /// Ends the wait of the goroutine.
    own: CancelRef,
}

impl AfterFunc {
    /// Prevents the call, and drops the function. Returns `false` if the function has been called
    /// already, is running, or was stopped before.
    ///
    /// It does not wait for a function that is running.
    ///
    /// # Blocking
    ///
    /// As [`Canceller::cancel`](super::Canceller::cancel).
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::context::{self, Context};
    ///
    /// # // SAFETY: nothing here keeps a thread-local across a call that parks.
    /// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
    /// rt.run(|| {
    ///     let (ctx, canceller) = Context::background().with_cancel();
    ///     let after = context::after_func(&ctx, || unreachable!("it was stopped"));
    ///     assert!(after.stop());
    ///     assert!(!after.stop());
    ///     canceller.cancel();
    /// });
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn stop(&self) -> bool {
        points::switch_point();
        // If the goroutine is gone, so is the function.
        let f = self.func.upgrade().and_then(|func| Place(func).take());
        self.own.cancel();
        f.is_some()
    }
}

fmt_as!(Debug for AfterFunc, "AfterFunc { .. }");

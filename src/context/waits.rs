//! The `_context` methods: waits of locks and of the other types in `sync`.
//!
//! Each method first tries without waiting, and otherwise runs the wait inside the context. For the
//! wait queues, this is the same as a wait that a deadline ends.

use std::hash::Hash;
use std::sync::{Arc, LockResult, TryLockError, TryLockResult};
use std::time::Duration;

use super::tree::Context;
use crate::channel::{broadcast, oneshot, watch};
use crate::loom::native::PoisonError;
use crate::sched::wait::current_context::{self, Error};
use crate::sched::wait::points;
use crate::sync::waitlist::WaitError;
use crate::sync::{
    AcquireError, Barrier, BarrierWaitResult, Condvar, LazyLock, Listener, Mutex, MutexGuard,
    Notify, Once, OnceLock, OwnedMutexGuard, OwnedRwLockReadGuard, OwnedRwLockWriteGuard,
    OwnedSemaphorePermit, RwLock, RwLockReadGuard, RwLockWriteGuard, Semaphore, SemaphorePermit,
    SingleFlight, WaitGroup,
};

/// Returns the error of a wait that was given up. Unwinds if the goroutine's runtime ends.
fn over(gave_up: WaitError) -> Error {
    if let WaitError::Over(error) = gave_up {
        return error;
    }
    // In a destructor, which must not unwind again, the call fails instead.
    let _ = points::cancel_point();
    Error::Cancelled
}

/// Returns the guard if the try succeeded, and otherwise the result of the wait.
fn or_wait<G>(
    tried: TryLockResult<G>,
    ctx: &Context,
    wait: impl FnOnce() -> Result<LockResult<G>, WaitError>,
) -> Result<LockResult<G>, Error> {
    match tried {
        Ok(guard) => Ok(Ok(guard)),
        Err(TryLockError::Poisoned(e)) => Ok(Err(e)),
        Err(TryLockError::WouldBlock) => ctx.run(wait).map_err(over),
    }
}

impl<T: ?Sized> Mutex<T> {
    /// As [`Mutex::lock`], but the wait also ends when `ctx` or an ambient context
    /// ([`context`](crate::context)) is done.
    ///
    /// # Blocking
    ///
    /// As [`Mutex::lock`], until a context is done.
    ///
    /// # Errors
    ///
    /// The reason why the context is done. The `Ok` value is the result of [`Mutex::lock`].
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::context::{Context, Error};
    /// use windlass::sync::Mutex;
    ///
    /// let ctx = Context::background().with_timeout(Duration::from_millis(2));
    /// let total = Mutex::new(7);
    /// let held = total.lock_context(&ctx)?.unwrap();
    /// assert_eq!(total.lock_context(&ctx).unwrap_err(), Error::DeadlineExceeded);
    /// drop(held);
    /// // Without a wait, the call succeeds although the context is done.
    /// assert_eq!(*total.lock_context(&ctx)?.unwrap(), 7);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn lock_context(&self, ctx: &Context) -> Result<LockResult<MutexGuard<'_, T>>, Error> {
        or_wait(self.try_lock(), ctx, || self.lock_in_context())
    }

    /// As [`Mutex::lock_context`], with a guard that borrows nothing.
    ///
    /// # Blocking
    ///
    /// As [`Mutex::lock_context`].
    ///
    /// # Errors
    ///
    /// As [`Mutex::lock_context`].
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::context::{Context, Error};
    /// use windlass::sync::{Arc, Mutex};
    ///
    /// let (ctx, canceller) = Context::background().with_cancel();
    /// let total = Arc::new(Mutex::new(7));
    /// let held = total.lock_owned_context(&ctx)?.unwrap();
    /// canceller.cancel();
    /// assert_eq!(total.lock_owned_context(&ctx).unwrap_err(), Error::Cancelled);
    /// # drop(held);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn lock_owned_context(
        self: &Arc<Self>,
        ctx: &Context,
    ) -> Result<LockResult<OwnedMutexGuard<T>>, Error> {
        or_wait(self.try_lock_owned(), ctx, || self.lock_owned_in_context())
    }
}

impl<T: ?Sized> RwLock<T> {
    /// As [`RwLock::read`], but the wait also ends when `ctx` or an ambient context
    /// ([`context`](crate::context)) is done.
    ///
    /// # Blocking
    ///
    /// As [`RwLock::read`], until a context is done.
    ///
    /// # Errors
    ///
    /// The reason why the context is done. The `Ok` value is the result of [`RwLock::read`].
    ///
    /// # Panics
    ///
    /// As [`RwLock::read`].
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::context::{Context, Error};
    /// use windlass::sync::RwLock;
    ///
    /// let (ctx, canceller) = Context::background().with_cancel();
    /// let names = RwLock::new(vec!["a"]);
    /// let mut writer = names.write_context(&ctx)?.unwrap();
    /// writer.push("b");
    /// canceller.cancel();
    /// assert_eq!(names.read_context(&ctx).unwrap_err(), Error::Cancelled);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn read_context(&self, ctx: &Context) -> Result<LockResult<RwLockReadGuard<'_, T>>, Error> {
        or_wait(self.try_read(), ctx, || self.read_in_context())
    }

    /// As [`RwLock::write`], but the wait also ends when `ctx` or an ambient context
    /// ([`context`](crate::context)) is done.
    ///
    /// Readers that were queued behind this writer then get the lock.
    ///
    /// # Blocking
    ///
    /// As [`RwLock::write`], until a context is done.
    ///
    /// # Errors
    ///
    /// The reason why the context is done. The `Ok` value is the result of [`RwLock::write`].
    ///
    /// # Examples
    ///
    /// See [`RwLock::read_context`].
    pub fn write_context(
        &self,
        ctx: &Context,
    ) -> Result<LockResult<RwLockWriteGuard<'_, T>>, Error> {
        or_wait(self.try_write(), ctx, || self.write_in_context())
    }

    /// As [`RwLock::read_context`], with a guard that borrows nothing.
    ///
    /// # Blocking
    ///
    /// As [`RwLock::read_context`].
    ///
    /// # Errors
    ///
    /// As [`RwLock::read_context`].
    ///
    /// # Panics
    ///
    /// As [`RwLock::read`].
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::context::{Context, Error};
    /// use windlass::sync::{Arc, RwLock};
    ///
    /// let (ctx, canceller) = Context::background().with_cancel();
    /// let names = Arc::new(RwLock::new(vec!["a"]));
    /// let writer = names.write_owned_context(&ctx)?.unwrap();
    /// canceller.cancel();
    /// assert_eq!(names.read_owned_context(&ctx).unwrap_err(), Error::Cancelled);
    /// # drop(writer);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn read_owned_context(
        self: &Arc<Self>,
        ctx: &Context,
    ) -> Result<LockResult<OwnedRwLockReadGuard<T>>, Error> {
        or_wait(self.try_read_owned(), ctx, || self.read_owned_in_context())
    }

    /// As [`RwLock::write_context`], with a guard that borrows nothing.
    ///
    /// # Blocking
    ///
    /// As [`RwLock::write_context`].
    ///
    /// # Errors
    ///
    /// As [`RwLock::write_context`].
    ///
    /// # Examples
    ///
    /// See [`RwLock::read_owned_context`].
    pub fn write_owned_context(
        self: &Arc<Self>,
        ctx: &Context,
    ) -> Result<LockResult<OwnedRwLockWriteGuard<T>>, Error> {
        or_wait(self.try_write_owned(), ctx, || {
            self.write_owned_in_context()
        })
    }
}

impl Condvar {
    /// As [`Condvar::wait`], but the wait also ends when `ctx` or an ambient context
    /// ([`context`](crate::context)) is done.
    ///
    /// The second result is then an error, and no notification was consumed. The call still locks
    /// the mutex again before it returns, as after a timeout.
    ///
    /// # Blocking
    ///
    /// See [`Condvar`].
    ///
    /// # Errors
    ///
    /// As [`Condvar::wait`].
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::context::{Context, Error};
    /// use windlass::sync::{Condvar, Mutex};
    ///
    /// let ctx = Context::background().with_timeout(Duration::from_millis(2));
    /// let (queue, filled) = (Mutex::new(Vec::<u8>::new()), Condvar::new());
    /// let guard = queue.lock().unwrap();
    /// let (guard, outcome) = filled
    ///     .wait_while_context(guard, &ctx, |queue| queue.is_empty())
    ///     .unwrap();
    /// assert!(guard.is_empty());
    /// assert_eq!(outcome, Err(Error::DeadlineExceeded));
    /// ```
    #[allow(clippy::type_complexity, reason = "as wait_timeout's, with an error")]
    pub fn wait_context<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        ctx: &Context,
    ) -> LockResult<(MutexGuard<'a, T>, Result<(), Error>)> {
        let (guard, notified) = ctx.run(|| self.wait_in_context(guard));
        let outcome = notified.map_err(over);
        match guard {
            Ok(guard) => Ok((guard, outcome)),
            Err(e) => Err(PoisonError::new((e.into_inner(), outcome))),
        }
    }

    /// Waits until `condition` is false, or until `ctx` or an ambient context is done.
    ///
    /// The second result is an error if the context ended the wait and `condition` is still true.
    ///
    /// # Blocking
    ///
    /// See [`Condvar`].
    ///
    /// # Errors
    ///
    /// As [`Condvar::wait`].
    ///
    /// # Examples
    ///
    /// See [`Condvar::wait_context`].
    #[allow(
        clippy::type_complexity,
        reason = "as wait_timeout_while's, with an error"
    )]
    pub fn wait_while_context<'a, T, F>(
        &self,
        mut guard: MutexGuard<'a, T>,
        ctx: &Context,
        mut condition: F,
    ) -> LockResult<(MutexGuard<'a, T>, Result<(), Error>)>
    where
        F: FnMut(&mut T) -> bool,
    {
        let mut outcome = Ok(());
        while condition(&mut *guard) {
            if outcome.is_err() {
                return Ok((guard, outcome));
            }
            (guard, outcome) = self.wait_context(guard, ctx)?;
        }
        Ok((guard, Ok(())))
    }
}

impl Semaphore {
    /// As [`Semaphore::acquire`], but the wait also ends when `ctx` or an ambient context
    /// ([`context`](crate::context)) is done.
    ///
    /// # Blocking
    ///
    /// As [`Semaphore::acquire`], until a context is done.
    ///
    /// # Errors
    ///
    /// The reason why the context is done. The `Ok` value is the result of [`Semaphore::acquire`],
    /// which is an error if the semaphore is closed.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::context::{Context, Error};
    /// use windlass::sync::Semaphore;
    ///
    /// let ctx = Context::background().with_timeout(Duration::from_millis(2));
    /// let slots = Semaphore::new(1);
    /// let _slot = slots.acquire_context(1, &ctx)?.unwrap();
    /// assert_eq!(slots.acquire_context(1, &ctx).unwrap_err(), Error::DeadlineExceeded);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn acquire_context(
        &self,
        n: usize,
        ctx: &Context,
    ) -> Result<Result<SemaphorePermit<'_>, AcquireError>, Error> {
        match ctx.run(|| self.acquire(n)) {
            Err(e) if !e.is_closed() => Err(e.over().unwrap_or(Error::Cancelled)),
            acquired => Ok(acquired),
        }
    }

    /// As [`Semaphore::acquire_context`], with a permit that borrows nothing.
    ///
    /// # Blocking
    ///
    /// As [`Semaphore::acquire_context`].
    ///
    /// # Errors
    ///
    /// As [`Semaphore::acquire_context`].
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::context::{Context, Error};
    /// use windlass::sync::{Arc, Semaphore};
    ///
    /// let ctx = Context::background().with_timeout(Duration::from_millis(2));
    /// let slots = Arc::new(Semaphore::new(1));
    /// let _slot = slots.acquire_owned_context(1, &ctx)?.unwrap();
    /// let late = slots.acquire_owned_context(1, &ctx);
    /// assert_eq!(late.unwrap_err(), Error::DeadlineExceeded);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn acquire_owned_context(
        self: &Arc<Self>,
        n: usize,
        ctx: &Context,
    ) -> Result<Result<OwnedSemaphorePermit, AcquireError>, Error> {
        let acquired = self.acquire_context(n, ctx)?;
        Ok(acquired.map(|permit| self.own(permit)))
    }
}

impl Notify {
    /// As [`Notify::wait`], but the wait also ends when `ctx` or an ambient context
    /// ([`context`](crate::context)) is done.
    ///
    /// # Blocking
    ///
    /// As [`Notify::wait`], until a context is done.
    ///
    /// # Errors
    ///
    /// The reason why the context is done. No notification was consumed then.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::context::{Context, Error};
    /// use windlass::sync::Notify;
    ///
    /// let ctx = Context::background().with_timeout(Duration::from_millis(2));
    /// let changed = Notify::new();
    /// assert_eq!(changed.wait_context(&ctx), Err(Error::DeadlineExceeded));
    /// changed.notify_one();
    /// assert_eq!(changed.wait_context(&ctx), Ok(()));
    /// ```
    pub fn wait_context(&self, ctx: &Context) -> Result<(), Error> {
        points::switch_point();
        ctx.run(|| self.wait_in_context()).map_err(over)
    }
}

impl Listener<'_> {
    /// As [`Listener::wait`], but the wait also ends when `ctx` or an ambient context
    /// ([`context`](crate::context)) is done.
    ///
    /// # Blocking
    ///
    /// As [`Notify::wait`], until a context is done.
    ///
    /// # Errors
    ///
    /// The reason why the context is done. No notification was consumed then.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::context::{Context, Error};
    /// use windlass::sync::Notify;
    ///
    /// let ctx = Context::background().with_timeout(Duration::from_millis(2));
    /// let changed = Notify::new();
    /// let listener = changed.listen();
    /// assert_eq!(listener.wait_context(&ctx), Err(Error::DeadlineExceeded));
    /// ```
    pub fn wait_context(self, ctx: &Context) -> Result<(), Error> {
        points::switch_point();
        ctx.run(|| self.wait_in_context()).map_err(over)
    }
}

impl<K: Eq + Hash + Clone, V: Clone> SingleFlight<K, V> {
    /// As [`SingleFlight::run`], but a wait for another caller's closure also ends when `ctx` or an
    /// ambient context ([`context`](crate::context)) is done.
    ///
    /// `f` itself does not run inside `ctx`, because other callers wait for its result.
    ///
    /// # Blocking
    ///
    /// As [`SingleFlight::run`].
    ///
    /// # Errors
    ///
    /// The reason why the context is done. `f` was not called then, and the other caller's closure
    /// goes on.
    ///
    /// # Panics
    ///
    /// As [`SingleFlight::run`].
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::context::Context;
    /// use windlass::sync::SingleFlight;
    ///
    /// let squares = SingleFlight::new();
    /// assert_eq!(squares.run_context(&Context::background(), 7, || 7 * 7), Ok(49));
    /// ```
    pub fn run_context<F: FnOnce() -> V>(&self, ctx: &Context, key: K, f: F) -> Result<V, Error> {
        self.run_or(key, f, |call| ctx.run(|| call.wait_in_context()))
            .map_err(over)
    }
}

impl Barrier {
    /// As [`Barrier::wait`], but the wait also ends when `ctx` or an ambient context
    /// ([`context`](crate::context)) is done.
    ///
    /// The caller then does not count as arrived: the barrier waits for one more.
    ///
    /// # Blocking
    ///
    /// As [`Barrier::wait`], until a context is done.
    ///
    /// # Errors
    ///
    /// The reason why the context is done.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::context::{Context, Error};
    /// use windlass::sync::Barrier;
    ///
    /// let ctx = Context::background().with_timeout(Duration::from_millis(2));
    /// let barrier = Barrier::new(2);
    /// assert_eq!(barrier.wait_context(&ctx).unwrap_err(), Error::DeadlineExceeded);
    /// ```
    pub fn wait_context(&self, ctx: &Context) -> Result<BarrierWaitResult, Error> {
        ctx.run(|| self.meet(true)).map_err(over)
    }
}

impl WaitGroup {
    /// As [`WaitGroup::wait`], but the wait also ends when `ctx` or an ambient context
    /// ([`context`](crate::context)) is done.
    ///
    /// # Blocking
    ///
    /// As [`WaitGroup::wait`], until a context is done.
    ///
    /// # Errors
    ///
    /// The reason why the context is done.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::context::{Context, Error};
    /// use windlass::sync::WaitGroup;
    ///
    /// let ctx = Context::background().with_timeout(Duration::from_millis(2));
    /// let group = WaitGroup::new();
    /// group.add(1);
    /// assert_eq!(group.wait_context(&ctx), Err(Error::DeadlineExceeded));
    /// group.done();
    /// assert_eq!(group.wait_context(&ctx), Ok(()));
    /// ```
    pub fn wait_context(&self, ctx: &Context) -> Result<(), Error> {
        ctx.run(|| self.wait_in_context()).map_err(over)
    }
}

impl Once {
    /// As [`Once::call_once`], but a wait for another caller's closure also ends when `ctx` or an
    /// ambient context ([`context`](crate::context)) is done.
    ///
    /// `f` itself does not run inside `ctx`, because other callers wait until it completes.
    ///
    /// # Blocking
    ///
    /// See [`Once`].
    ///
    /// # Errors
    ///
    /// The reason why the context is done. `f` was not called then.
    ///
    /// # Panics
    ///
    /// As [`Once::call_once`].
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::context::Context;
    /// use windlass::sync::Once;
    ///
    /// static START: Once = Once::new();
    /// assert_eq!(START.call_once_context(&Context::background(), || ()), Ok(()));
    /// assert!(START.is_completed());
    /// ```
    #[track_caller]
    pub fn call_once_context<F: FnOnce()>(&self, ctx: &Context, f: F) -> Result<(), Error> {
        let mut f = Some(f);
        self.call_or(
            false,
            &mut |_| f.take().expect("a run happens once")(),
            &mut || ctx.run(|| self.wait_run_in_context()),
        )
        .map_err(over)
    }

    /// As [`Once::wait`], but the wait also ends when `ctx` or an ambient context
    /// ([`context`](crate::context)) is done.
    ///
    /// # Blocking
    ///
    /// See [`Once`].
    ///
    /// # Errors
    ///
    /// The reason why the context is done.
    ///
    /// # Panics
    ///
    /// If the closure of the `Once` has panicked.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::context::{Context, Error};
    /// use windlass::sync::Once;
    ///
    /// let ctx = Context::background().with_timeout(Duration::from_millis(2));
    /// let never = Once::new();
    /// assert_eq!(never.wait_context(&ctx), Err(Error::DeadlineExceeded));
    /// ```
    #[track_caller]
    pub fn wait_context(&self, ctx: &Context) -> Result<(), Error> {
        ctx.run(|| self.wait_in_context(false)).map_err(over)
    }
}

impl<T> OnceLock<T> {
    /// As [`OnceLock::wait`], but the wait also ends when `ctx` or an ambient context
    /// ([`context`](crate::context)) is done.
    ///
    /// # Blocking
    ///
    /// See [`OnceLock`].
    ///
    /// # Errors
    ///
    /// The reason why the context is done.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::context::{Context, Error};
    /// use windlass::sync::OnceLock;
    ///
    /// let ctx = Context::background().with_timeout(Duration::from_millis(2));
    /// let config = OnceLock::<String>::new();
    /// assert_eq!(config.wait_context(&ctx), Err(Error::DeadlineExceeded));
    /// config.set("verbose".to_owned()).unwrap();
    /// assert_eq!(config.wait_context(&ctx).unwrap(), "verbose");
    /// ```
    #[allow(clippy::missing_panics_doc, reason = "a completed cell has a value")]
    pub fn wait_context(&self, ctx: &Context) -> Result<&T, Error> {
        ctx.run(|| self.once().wait_in_context(true))
            .map_err(over)?;
        Ok(self.get().expect("a completed cell has a value"))
    }

    /// As [`OnceLock::get_or_init`], but a wait for another caller's closure also ends when `ctx` or
    /// an ambient context ([`context`](crate::context)) is done.
    ///
    /// `f` itself does not run inside `ctx`, because other callers wait for its value.
    ///
    /// # Blocking
    ///
    /// See [`OnceLock`].
    ///
    /// # Errors
    ///
    /// The reason why the context is done. `f` was not called then.
    ///
    /// # Panics
    ///
    /// As [`OnceLock::get_or_init`].
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::context::Context;
    /// use windlass::sync::OnceLock;
    ///
    /// let cell = OnceLock::new();
    /// assert_eq!(cell.get_or_init_context(&Context::background(), || 7), Ok(&7));
    /// ```
    pub fn get_or_init_context<F: FnOnce() -> T>(&self, ctx: &Context, f: F) -> Result<&T, Error> {
        self.get_or_init_or(f, |once| ctx.run(|| once.wait_run_in_context()))
            .map_err(over)
    }
}

impl<T, F: FnOnce() -> T> LazyLock<T, F> {
    /// As [`LazyLock::force`], but a wait for another caller's run of the initializer also ends when
    /// `ctx` or an ambient context ([`context`](crate::context)) is done.
    ///
    /// The initializer itself does not run inside `ctx`.
    ///
    /// # Blocking
    ///
    /// See [`LazyLock`].
    ///
    /// # Errors
    ///
    /// The reason why the context is done. This call has not run the initializer then.
    ///
    /// # Panics
    ///
    /// As [`LazyLock::force`].
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::context::Context;
    /// use windlass::sync::LazyLock;
    ///
    /// static TABLE: LazyLock<Vec<u32>> = LazyLock::new(|| (0..10).collect());
    /// let ctx = Context::background();
    /// assert_eq!(LazyLock::force_context(&TABLE, &ctx).unwrap().len(), 10);
    /// ```
    pub fn force_context<'a>(this: &'a LazyLock<T, F>, ctx: &Context) -> Result<&'a T, Error> {
        LazyLock::force_or(this, |once| ctx.run(|| once.wait_run_in_context())).map_err(over)
    }
}

/// Implements `closed_context` for the senders of some channels.
macro_rules! closed_context {
    (@ oneshot) => { "let (tx, rx) = oneshot::<()>();" };
    (@ broadcast) => { "let (tx, rx) = broadcast::<()>(16);" };
    (@ watch) => { "let (tx, rx) = watch(0);" };
    ($($channel:ident)*) => {$(
        impl<T> $channel::Sender<T> {
            #[doc = concat!("As [`", stringify!($channel), "::Sender::closed`], but the wait also ends")]
            /// when `ctx` or an ambient context ([`context`](crate::context)) is done.
            ///
            /// # Blocking
            ///
            #[doc = concat!("As [`", stringify!($channel), "::Sender::closed`], until a context is done.")]
            ///
            /// # Errors
            ///
            /// The reason why the context is done.
            ///
            /// # Examples
            ///
            /// ```
            /// use std::time::Duration;
            #[doc = concat!("use windlass::channel::", stringify!($channel), ";")]
            /// use windlass::context::{Context, Error};
            ///
            /// let ctx = Context::background().with_timeout(Duration::from_millis(2));
            #[doc = closed_context!(@ $channel)]
            /// assert_eq!(tx.closed_context(&ctx), Err(Error::DeadlineExceeded));
            /// drop(rx);
            /// assert_eq!(tx.closed_context(&ctx), Ok(()));
            /// ```
            pub fn closed_context(&self, ctx: &Context) -> Result<(), Error> {
                ctx.run(|| {
                    if self.closed_timeout(Duration::MAX) {
                        return Ok(());
                    }
                    let _ = points::cancel_point();
                    Err(current_context::check().err().unwrap_or(Error::Cancelled))
                })
            }
        }
    )*};
}

closed_context! { oneshot broadcast watch }

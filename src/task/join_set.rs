//! A set of goroutines that are joined as they end.
//!
//! Each goroutine holds a sender of the set's channel, and sends its number when its code has ended, or
//! was dropped. The set then joins it, so results and panics come through the goroutine itself. The channel
//! is unbounded, so the send never waits.
//!
//! A set and its goroutines know each other through that channel only. So the set may be dropped
//! while they run, and while they spawn into other sets.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::time::Duration;

use windlass_ground::std_traits::{debug_fields, fmt_as};

use super::goroutine::{self, Builder, JoinHandle, Result, Task, spawn_at};
use crate::channel::{self, Receiver, Sender};
use crate::context::{self, Context, shield};
use crate::sched::wait::{park, points};

/// A set of goroutines whose results are taken in the order in which they end, as tokio's
/// `JoinSet`.
///
/// Each goroutine runs in a context of its own, so the set can cancel it.
///
/// Dropping the set cancels its goroutines, and does not wait for them: a destructor may run while a
/// goroutine unwinds, when a wait would block its thread. Use [`shutdown`](JoinSet::shutdown) to wait,
/// and [`detach_all`](JoinSet::detach_all) to let them go on.
///
/// # Examples
///
/// ```
/// use windlass::task::JoinSet;
///
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
/// rt.run(|| {
///     let mut set = JoinSet::new();
///     for n in 1..=10_u64 {
///         set.spawn(move || n * n);
///     }
///     let mut sum = 0;
///     while let Some(square) = set.join_next() {
///         sum += square.unwrap();
///     }
///     assert_eq!(sum, 385);
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// The first of several answers:
///
/// ```
/// use std::time::Duration;
/// use windlass::task::JoinSet;
///
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
/// rt.run(|| {
///     let mut set = JoinSet::new();
///     for seconds in [3600, 0, 1800] {
///         set.spawn(move || {
///             windlass::sleep(Duration::from_secs(seconds));
///             seconds
///         });
///     }
///     assert_eq!(set.join_next().unwrap().unwrap(), 0);
///     set.shutdown(); // the others' sleeps end
///     assert!(set.is_empty());
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct JoinSet<T> {
    context: Context,
    handles: BTreeMap<u64, JoinHandle<T>>,
    /// By the number of the goroutine: that in the set.
    numbers: BTreeMap<u64, u64>,
    /// The numbers of goroutines that have ended.
    ended: (Sender<u64>, Receiver<u64>),
    n_spawned: u64,
}

/// [`JoinSet::join_next_timeout`] gave up, or a context was done: goroutines are left, and none has
/// ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TimedOut;

fmt_as!(Display for TimedOut, "no goroutine of the set has ended in time");

impl std::error::Error for TimedOut {}

/// Reports the end of a goroutine when it is dropped: after its closure, or with it.
struct ReportsEnd {
    /// Both ends of the set's channel. It sends on the first; the second keeps the channel connected, because a
    /// send to a channel without receivers unwinds when the run ends.
    ended: (Sender<u64>, Receiver<u64>),
    number: u64,
}

impl Drop for ReportsEnd {
    fn drop(&mut self) {
        let (sender, _) = &self.ended;
        let _ = sender.try_send(self.number);
    }
}

impl<T> JoinSet<T> {
    /// Creates an empty set.
    ///
    /// # Blocking
    ///
    /// Never.
    #[must_use]
    pub fn new() -> JoinSet<T> {
        JoinSet::with_context(&Context::background())
    }

    /// Creates an empty set whose goroutines run in children of `ctx`.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::context::{self, Context, Error};
    /// use windlass::task::JoinSet;
    ///
    /// # // SAFETY: nothing here keeps a thread-local across a call that parks.
    /// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
    /// rt.run(|| {
    ///     let ctx = Context::background().with_timeout(Duration::from_millis(2));
    ///     let mut set = JoinSet::with_context(&ctx);
    ///     set.spawn(|| {
    ///         windlass::sleep(Duration::from_secs(3600)); // returns early
    ///         context::check()
    ///     });
    ///     assert_eq!(set.join_next().unwrap().unwrap(), Err(Error::DeadlineExceeded));
    /// });
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn with_context(ctx: &Context) -> JoinSet<T> {
        JoinSet {
            context: ctx.clone(),
            handles: BTreeMap::new(),
            numbers: BTreeMap::new(),
            ended: channel::internal(None),
            n_spawned: 0,
        }
    }

    /// Spawns a goroutine into the set.
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
    /// See [`JoinSet`].
    #[track_caller]
    pub fn spawn<F>(&mut self, f: F) -> Task
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let (number, f) = self.reporting(f);
        let (f, own) = goroutine::in_own_context(&self.context, f);
        let handle = spawn_at(f, Location::caller()).with_own(own);
        self.add(number, handle)
    }

    /// Spawns a goroutine with a name, a stack size and so on into the set. A
    /// [context](Builder::context) of the builder replaces that of the set.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Errors
    ///
    /// As [`Builder::spawn`].
    ///
    /// # Panics
    ///
    /// If the caller is not a goroutine.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::task::{Builder, JoinSet};
    ///
    /// # // SAFETY: nothing here keeps a thread-local across a call that parks.
    /// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
    /// rt.run(|| {
    ///     let mut set = JoinSet::new();
    ///     let task = set.spawn_with(Builder::new().name("parser"), || 7)?;
    ///     assert_eq!(task.name(), Some("parser"));
    ///     assert_eq!(set.join_next().unwrap().unwrap(), 7);
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn spawn_with<F>(&mut self, builder: Builder, f: F) -> std::io::Result<Task>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        // The last that may fail: a closure that is dropped reports an end.
        let ready = builder.context_or(&self.context).prepare()?;
        let (number, f) = self.reporting(f);
        let handle = ready.spawn(f, Location::caller());
        Ok(self.add(number, handle))
    }

    /// Numbers the next goroutine, and returns the closure that it is to run: `f`, and then the report of its end.
    fn reporting<F>(&mut self, f: F) -> (u64, impl FnOnce() -> T + use<F, T>)
    where
        F: FnOnce() -> T,
    {
        self.n_spawned += 1;
        let number = self.n_spawned;
        let ended = self.ended.clone();
        let report = ReportsEnd { ended, number };
        let run = move || {
            let result = catch_unwind(AssertUnwindSafe(f));
            shield(park::end_locals);
            drop(report);
            result.unwrap_or_else(|payload| resume_unwind(payload))
        };
        (number, run)
    }

    fn add(&mut self, number: u64, handle: JoinHandle<T>) -> Task {
        let task = handle.task();
        self.numbers.insert(task.id(), number);
        self.handles.insert(number, handle);
        task
    }

    /// Waits until one of the goroutines has ended, removes it from the set and returns its result.
    /// `None` if the set is empty.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine; blocks a plain thread. Unwinds if the goroutine's runtime ends. As
    /// [`JoinHandle::join`], it is not ended by a context; [`join_next_timeout`] is.
    ///
    /// [`join_next_timeout`]: JoinSet::join_next_timeout
    ///
    /// # Examples
    ///
    /// See [`JoinSet`].
    pub fn join_next(&mut self) -> Option<Result<T>> {
        while !self.handles.is_empty() {
            // The set has a sender, so this fails in a destructor of a cancelled goroutine only.
            let number = shield(|| self.ended.1.recv()).ok()?;
            if let Some(result) = self.take(number) {
                return Some(result);
            }
        }
        None
    }

    /// As [`join_next`](JoinSet::join_next), but waits for at most `timeout`.
    ///
    /// # Blocking
    ///
    /// As [`join_next`](JoinSet::join_next). It fails early when an ambient context
    /// ([`context`](mod@crate::context)) is done.
    ///
    /// # Errors
    ///
    /// [`TimedOut`] if goroutines are left, and none has ended in time.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::task::{self, JoinSet, TimedOut};
    ///
    /// # // SAFETY: nothing here keeps a thread-local across a call that parks.
    /// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
    /// rt.run(|| {
    ///     let mut set = JoinSet::new();
    ///     let task = set.spawn(task::park);
    ///     let early = set.join_next_timeout(Duration::from_millis(2));
    ///     assert!(matches!(early, Err(TimedOut { .. })));
    ///     task.unpark();
    ///     assert!(set.join_next_timeout(Duration::MAX).unwrap().unwrap().is_ok());
    ///     assert!(set.join_next_timeout(Duration::MAX).unwrap().is_none());
    /// });
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn join_next_timeout(
        &mut self,
        timeout: Duration,
    ) -> std::result::Result<Option<Result<T>>, TimedOut> {
        while !self.handles.is_empty() {
            // Of the goroutines that have ended, those come later that end later.
            let number = match self.ended.1.recv_timeout(timeout) {
                Ok(number) => number,
                // One that has ended counts, also if a context is done.
                Err(_) => self.ended.1.try_recv().map_err(|_| TimedOut)?,
            };
            if let Some(result) = self.take(number) {
                return Ok(Some(result));
            }
        }
        Ok(None)
    }

    /// As [`join_next`](JoinSet::join_next), but the wait also ends when `ctx` or an ambient context
    /// is done.
    ///
    /// # Blocking
    ///
    /// As [`join_next`](JoinSet::join_next), until a context is done.
    ///
    /// # Errors
    ///
    /// The reason why the context is done, if goroutines are left and none has ended.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::context::{Context, Error};
    /// use windlass::task::{self, JoinSet};
    ///
    /// # // SAFETY: nothing here keeps a thread-local across a call that parks.
    /// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
    /// rt.run(|| {
    ///     let ctx = Context::background().with_timeout(Duration::from_millis(2));
    ///     let mut set = JoinSet::new();
    ///     set.spawn(|| windlass::sleep(Duration::from_secs(3600)));
    ///     let late = set.join_next_context(&ctx);
    ///     assert_eq!(late.unwrap_err(), Error::DeadlineExceeded);
    /// });
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn join_next_context(
        &mut self,
        ctx: &Context,
    ) -> std::result::Result<Option<Result<T>>, context::Error> {
        ctx.run(|| {
            self.join_next_timeout(Duration::MAX)
                .map_err(|TimedOut| context::check().err().unwrap_or(context::Error::Cancelled))
        })
    }

    /// Takes the result of a goroutine that has ended. `None` if there is none.
    ///
    /// # Blocking
    ///
    /// Never for long: the goroutine may still be at its last instructions.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::task::JoinSet;
    ///
    /// # // SAFETY: nothing here keeps a thread-local across a call that parks.
    /// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
    /// rt.run(|| {
    ///     let mut set = JoinSet::new();
    ///     set.spawn(|| 7);
    ///     let result = loop {
    ///         match set.try_join_next() {
    ///             Some(result) => break result,
    ///             None => windlass::yield_now(), // other work
    ///         }
    ///     };
    ///     assert_eq!(result.unwrap(), 7);
    /// });
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn try_join_next(&mut self) -> Option<Result<T>> {
        loop {
            let number = self.ended.1.try_recv().ok()?;
            if let Some(result) = self.take(number) {
                return Some(result);
            }
        }
    }

    /// Joins a goroutine that has reported its end: its closure is over.
    fn take(&mut self, number: u64) -> Option<Result<T>> {
        let handle = self.handles.remove(&number)?;
        self.numbers.remove(&handle.id());
        Some(handle.join())
    }

    /// The number of goroutines whose results were not taken.
    #[must_use]
    pub fn len(&self) -> usize {
        self.handles.len()
    }

    /// Whether no result is left to be taken.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.handles.is_empty()
    }

    /// Cancels all goroutines of the set, as [`JoinHandle::cancel`] does. They stay in the set, and
    /// their results can be taken. Goroutines that are spawned later are not affected.
    ///
    /// # Blocking
    ///
    /// As [`JoinHandle::cancel`]: does not wait for the goroutines.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::task::JoinSet;
    ///
    /// # // SAFETY: nothing here keeps a thread-local across a call that parks.
    /// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
    /// rt.run(|| {
    ///     let mut set = JoinSet::new();
    ///     set.spawn(|| windlass::sleep(Duration::from_secs(3600)));
    ///     set.cancel_all();
    ///     assert_eq!(set.len(), 1);
    ///     assert!(set.join_next().unwrap().is_ok());
    /// });
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn cancel_all(&mut self) {
        for handle in self.handles.values() {
            let _ = handle.cancel();
        }
    }

    /// Cancels the goroutine `task`. `false` if it is not in the set.
    ///
    /// # Blocking
    ///
    /// As [`JoinHandle::cancel`].
    #[must_use = "if this is `false`, the goroutine is not in the set"]
    pub fn cancel(&mut self, task: &Task) -> bool {
        let number = self.numbers.get(&task.id());
        let handle = number.and_then(|number| self.handles.get(number));
        handle.is_some_and(JoinHandle::cancel)
    }

    /// Cancels all goroutines of the set, and waits until they have ended. Drops their results.
    ///
    /// # Blocking
    ///
    /// As [`join_next`](JoinSet::join_next). It waits for ever for a goroutine that does not end.
    ///
    /// # Examples
    ///
    /// See [`JoinSet`].
    pub fn shutdown(&mut self) {
        self.cancel_all();
        while self.join_next().is_some() {}
    }

    /// Removes all goroutines from the set without cancelling them: they go on, and their results
    /// are dropped.
    ///
    /// # Blocking
    ///
    /// Never.
    pub fn detach_all(&mut self) {
        points::switch_point();
        self.handles.clear();
        self.numbers.clear();
        // Nobody waits for the results of the detached ones.
        self.ended = channel::internal(None);
    }
}

impl<T> Default for JoinSet<T> {
    fn default() -> JoinSet<T> {
        JoinSet::new()
    }
}

impl<T> Drop for JoinSet<T> {
    fn drop(&mut self) {
        for handle in self.handles.values() {
            handle.cancel_in_place();
        }
    }
}

debug_fields!([T] JoinSet<T>, |this| len: this.len(), ..);

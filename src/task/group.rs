//! A group of goroutines of which the first error ends all: Go's errgroup.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::result::Result;

use windlass_ground::std_traits::debug_fields;

use super::goroutine::{Builder, Cancelled, note_kept_panic};
use super::join::drop_contained;
use crate::context::{CancelRef, Context, shield};
use crate::loom::native::{Arc, Mutex, PoisonError};
use crate::sched::wait::{park, points, spawn};
use crate::sync::{OwnedSemaphorePermit, Semaphore, WaitGroup};

/// Goroutines that work on one task, of which the first error cancels the others: Go's
/// `errgroup.Group`.
///
/// The goroutines run in the context of the group, which is done when one of them has failed or
/// panicked, and when [`wait`](Group::wait) returns. A clone is another handle of the same group;
/// goroutines of the group may hold one, to spawn others.
///
/// Dropping the last handle without `wait` cancels the goroutines, and does not wait for them.
///
/// # Examples
///
/// ```
/// use std::io;
/// use std::time::Duration;
/// use windlass::task::Group;
///
/// fn fetch(n: u64) -> io::Result<()> {
///     if n == 3 {
///         return Err(io::Error::other("no such page"));
///     }
///     windlass::sleep(Duration::from_secs(n * 60)); // ends early once one has failed
///     Ok(())
/// }
///
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
/// rt.run(|| {
///     let group = Group::new();
///     for n in 1..=5 {
///         group.spawn(move || fetch(n));
///     }
///     assert_eq!(group.wait().unwrap_err().to_string(), "no such page");
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// At most two at a time:
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicUsize, Ordering};
/// use windlass::task::Group;
///
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
/// rt.run(|| {
///     let n_running = Arc::new(AtomicUsize::new(0));
///     let group = Group::new().limit(2);
///     for _ in 0..10 {
///         let n_running = Arc::clone(&n_running);
///         group.spawn(move || {
///             assert!(n_running.fetch_add(1, Ordering::SeqCst) < 2);
///             windlass::yield_now();
///             n_running.fetch_sub(1, Ordering::SeqCst);
///             Ok::<(), String>(())
///         });
///     }
///     group.wait()
/// })
/// .unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Group<E> {
    owned: Arc<Owned<E>>,
    /// A permit for each goroutine that may run.
    slots: Option<Arc<Semaphore>>,
}

/// The part that the handles share, and the goroutines do not hold.
struct Owned<E>(Arc<Shared<E>>);

struct Shared<E> {
    context: Context,
    canceller: CancelRef,
    running: WaitGroup,
    failure: Mutex<Failure<E>>,
}

/// The failure that has ended the group, if any.
struct Failure<E> {
    error: Option<E>,
    panic: Option<Box<dyn Any + Send>>,
}

impl<E> Group<E> {
    /// Creates a group with a context of its own.
    ///
    /// # Blocking
    ///
    /// Never.
    #[must_use]
    pub fn new() -> Group<E> {
        Group::with_context(&Context::background())
    }

    /// Creates a group whose context is a child of `ctx`.
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
    /// use windlass::task::Group;
    ///
    /// # // SAFETY: nothing here keeps a thread-local across a call that parks.
    /// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
    /// rt.run(|| {
    ///     let ctx = Context::background().with_timeout(Duration::from_millis(2));
    ///     let group = Group::with_context(&ctx);
    ///     group.spawn(|| {
    ///         windlass::sleep(Duration::from_secs(3600)); // returns early
    ///         context::check()
    ///     });
    ///     assert_eq!(group.wait(), Err(Error::DeadlineExceeded));
    /// });
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn with_context(ctx: &Context) -> Group<E> {
        let (context, canceller) = ctx.with_cancel_ref();
        let shared = Shared {
            context,
            canceller,
            running: WaitGroup::new(),
            failure: Mutex::new(Failure {
                error: None,
                panic: None,
            }),
        };
        Group {
            owned: Arc::new(Owned(Arc::new(shared))),
            slots: None,
        }
    }

    /// Limits the number of goroutines that run at the same time: [`spawn`](Group::spawn) then waits
    /// for one to end. Clones that were made before have no limit.
    ///
    /// # Panics
    ///
    /// If `n` is 0: no goroutine could ever run.
    #[must_use = "the group that is returned has the limit"]
    #[track_caller]
    pub fn limit(mut self, n: usize) -> Group<E> {
        assert!(
            n > 0,
            "a group with a limit of 0 could run no goroutine: choose at least 1"
        );
        let n = n.min(Semaphore::MAX_PERMITS);
        self.slots = Some(Arc::new(Semaphore::new(n)));
        self
    }

    /// The context of the group, for calls that take one.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.shared().context
    }

    /// Spawns a goroutine in the group, and in its context. If it returns the first error of the
    /// group, the context is cancelled.
    ///
    /// After an error, goroutines are still spawned; their waits end at once.
    ///
    /// # Blocking
    ///
    /// Never without a [limit](Group::limit). With one, it parks the goroutine until fewer run.
    /// Contexts do not end this wait: those of the group end when the context is done.
    ///
    /// # Panics
    ///
    /// If the caller is not a goroutine.
    ///
    /// # Examples
    ///
    /// See [`Group`].
    #[track_caller]
    pub fn spawn<F>(&self, f: F)
    where
        F: FnOnce() -> Result<(), E> + Send + 'static,
        E: Send + 'static,
    {
        spawn::expect_runtime();
        let member = self.member(self.wait_for_slot());
        spawn::spawn_unjoined(move || member.run(f), Location::caller());
    }

    /// Spawns a goroutine with a name, a stack size and so on, as [`spawn`](Group::spawn) does. A
    /// [context](Builder::context) of the builder ends its waits, too.
    ///
    /// # Blocking
    ///
    /// As [`spawn`](Group::spawn).
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
    /// use windlass::task::{Builder, Group};
    ///
    /// # // SAFETY: nothing here keeps a thread-local across a call that parks.
    /// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
    /// rt.run(|| {
    ///     let group = Group::<String>::new();
    ///     group.spawn_with(Builder::new().name("parser"), || Ok(()))?;
    ///     assert_eq!(group.wait(), Ok(()));
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn spawn_with<F>(&self, builder: Builder, f: F) -> io::Result<()>
    where
        F: FnOnce() -> Result<(), E> + Send + 'static,
        E: Send + 'static,
    {
        spawn::expect_runtime();
        // Refused at once, and not after a wait.
        builder.check()?;
        let slot = self.wait_for_slot();
        // The last that may fail: a member whose goroutine does not run ends the group.
        let ready = builder.prepare()?;
        let member = self.member(slot);
        drop(ready.spawn(move || member.run(f), Location::caller()));
        Ok(())
    }

    /// Spawns a goroutine as [`spawn`](Group::spawn) does, unless the limit is reached.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Errors
    ///
    /// `f`, if as many goroutines run as the [limit](Group::limit) permits.
    ///
    /// # Panics
    ///
    /// If the caller is not a goroutine.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::task::{self, Group};
    ///
    /// # // SAFETY: nothing here keeps a thread-local across a call that parks.
    /// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
    /// rt.run(|| {
    ///     let group = Group::<String>::new().limit(1);
    ///     let (sender, receiver) = windlass::channel::bounded::<()>(0);
    ///     group.spawn(move || receiver.recv().map_err(|e| e.to_string()));
    ///     assert!(group.try_spawn(|| Ok(())).is_err());
    ///     sender.send(()).unwrap();
    ///     assert_eq!(group.wait(), Ok(()));
    /// });
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn try_spawn<F>(&self, f: F) -> Result<(), F>
    where
        F: FnOnce() -> Result<(), E> + Send + 'static,
        E: Send + 'static,
    {
        spawn::expect_runtime();
        let slot = match &self.slots {
            None => None,
            Some(slots) => match slots.try_acquire_owned(1) {
                Ok(slot) => Some(slot),
                Err(_) => return Err(f),
            },
        };
        let member = self.member(slot);
        spawn::spawn_unjoined(move || member.run(f), Location::caller());
        Ok(())
    }

    /// Waits until all goroutines of the group have ended, also those that are spawned meanwhile.
    /// Then cancels the context of the group.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine; blocks a plain thread. Unwinds if the goroutine's runtime ends. It is not
    /// ended by a context: the goroutines are, if theirs is done. A goroutine of the group that waits
    /// for it waits for ever.
    ///
    /// # Errors
    ///
    /// The first error that a goroutine returned. If another handle has waited before, that call has
    /// got it.
    ///
    /// # Panics
    ///
    /// If a goroutine of the group has panicked, with the first such payload. If one could not begin
    /// for lack of memory, with a text. If the run of the goroutines has ended before they did, with
    /// [`Cancelled`].
    ///
    /// A destructor that runs while the goroutine unwinds, after the end of the run, does not panic
    /// here, and gets `Ok` if no goroutine has returned an error.
    ///
    /// # Examples
    ///
    /// See [`Group`].
    pub fn wait(self) -> Result<(), E> {
        let shared = self.shared();
        shared.running.wait();
        shared.canceller.cancel();
        let (panic, error) = {
            let mut failure = shared.failure();
            (failure.panic.take(), failure.error.take())
        };
        if let Some(payload) = panic {
            if std::thread::panicking() && points::is_cancelled() {
                spawn::drop_untold(payload);
                return error.map_or(Ok(()), Err);
            }
            // Before the panic goes on: a destructor that panics then would end the process.
            drop_contained(error);
            resume_unwind(payload);
        }
        error.map_or(Ok(()), Err)
    }

    fn shared(&self) -> &Arc<Shared<E>> {
        &self.owned.0
    }

    /// Takes a permit, which the new goroutine gives back.
    fn wait_for_slot(&self) -> Option<OwnedSemaphorePermit> {
        let slots = self.slots.as_ref()?;
        // It fails in a destructor of a cancelled goroutine only, which spawns nothing.
        shield(|| slots.acquire_owned(1)).ok()
    }

    fn member(&self, slot: Option<OwnedSemaphorePermit>) -> Member<E> {
        let shared = Arc::clone(self.shared());
        shared.running.add(1);
        Member {
            shared,
            slot,
            is_over: false,
        }
    }
}

/// A goroutine of a group, until it has ended.
struct Member<E> {
    shared: Arc<Shared<E>>,
    slot: Option<OwnedSemaphorePermit>,
    /// Whether it needs no entry in the group's failure any more.
    is_over: bool,
}

impl<E> Member<E> {
    fn run<F: FnOnce() -> Result<(), E>>(mut self, f: F) {
        let result = catch_unwind(AssertUnwindSafe(|| self.shared.context.run(f)));
        note_kept_panic(&result);
        park::end_locals();
        match result {
            Ok(Ok(())) => {}
            Ok(Err(error)) => self.shared.fail(error),
            Err(payload) => {
                let unwinds_on = payload.is::<Cancelled>();
                self.shared.end_by_panic(payload);
                self.is_over = true;
                if unwinds_on {
                    // The end of the run.
                    drop(self);
                    resume_unwind(Box::new(Cancelled));
                }
            }
        }
        self.is_over = true;
    }
}

const NOT_BEGUN: &str = "a goroutine of the group could not begin: there was no memory for its \
                         stack, as a line on stderr says; limit the group, or give it smaller stacks";

impl<E> Drop for Member<E> {
    fn drop(&mut self) {
        if !self.is_over {
            // It never ran.
            self.shared.end_by_panic(match points::is_cancelled() {
                true => Box::new(Cancelled),
                false => Box::new(NOT_BEGUN),
            });
        }
        // A caller that waits for the group finds the slot free.
        self.slot = None;
        self.shared.running.done();
    }
}

impl<E> Shared<E> {
    fn fail(&self, error: E) {
        let mut failure = self.failure();
        let another = match failure.error {
            None => failure.error.replace(error),
            Some(_) => Some(error),
        };
        drop(failure);
        self.canceller.cancel();
        // Its destructor is the program's code.
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(another))) {
            self.end_by_panic(payload);
        }
    }

    fn end_by_panic(&self, payload: Box<dyn Any + Send>) {
        let mut failure = self.failure();
        let another = match failure.panic {
            None => failure.panic.replace(payload),
            Some(_) => Some(payload),
        };
        drop(failure);
        if let Some(payload) = another {
            spawn::drop_untold(payload);
        }
        self.canceller.cancel();
    }

    fn failure(&self) -> crate::loom::native::MutexGuard<'_, Failure<E>> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<E> Drop for Failure<E> {
    fn drop(&mut self) {
        if let Some(payload) = self.panic.take() {
            spawn::drop_untold(payload);
        }
    }
}

impl<E> Clone for Group<E> {
    fn clone(&self) -> Group<E> {
        Group {
            owned: Arc::clone(&self.owned),
            slots: self.slots.clone(),
        }
    }
}

impl<E> Default for Group<E> {
    fn default() -> Group<E> {
        Group::new()
    }
}

impl<E> Drop for Owned<E> {
    fn drop(&mut self) {
        self.0.canceller.cancel();
    }
}

debug_fields!([E] Group<E>, |this| context: this.context(), ..);

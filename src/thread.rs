//! [`task`] with the names of `std::thread` alone: a port changes `use std::thread` to
//! `use windlass::thread`, and each thread becomes a goroutine.
//!
//! Goroutines have more methods in [`task`]: nodes, joins with a timeout, contexts. Both
//! modules may be used in one program.
//!
//! # Examples
//!
//! ```
//! use windlass::thread;
//!
//! # // SAFETY: nothing here keeps a thread-local across a call that parks.
//! # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
//! rt.run(|| {
//!     let adder = thread::Builder::new().name("adder".into()).spawn(|| 1 + 1)?;
//!     assert_eq!(adder.thread().name(), Some("adder"));
//!     assert_ne!(adder.thread().id(), thread::current().id());
//!     assert_eq!(adder.join().unwrap(), 2);
//!     Ok::<(), std::io::Error>(())
//! })?;
//! # Ok::<(), std::io::Error>(())
//! ```
#![allow(unsafe_code)]

use std::fmt;
use std::io;

use windlass_ground::std_traits::debug_fields;

use crate::loom::native::OnceLock;
use crate::loom::thread as native;
use crate::task::{self, Task};

pub use crate::task::{AccessError, LocalKey, Result, park, park_timeout, sleep, yield_now};
pub use std::thread::{available_parallelism, panicking};

/// Spawns a goroutine and returns a handle to join it: [`task::spawn`] with the handle of this
/// module.
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
/// use windlass::thread;
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
/// rt.run(|| assert_eq!(thread::spawn(|| 7).join().unwrap(), 7));
/// # Ok::<(), std::io::Error>(())
/// ```
#[track_caller]
pub fn spawn<F, T>(f: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    JoinHandle::new(task::spawn(f))
}

/// Returns the calling goroutine, or on a plain thread that thread.
///
/// # Examples
///
/// ```
/// use windlass::thread;
///
/// // On a plain thread.
/// let here = thread::current().id();
/// let there = std::thread::spawn(|| thread::current().id()).join().unwrap();
/// assert_ne!(here, there);
/// assert_eq!(here, thread::current().id());
/// ```
#[must_use]
pub fn current() -> Thread {
    let task = task::current();
    let id = match task.id() {
        0 => ThreadId(Identity::Thread(native::current().id())),
        n => ThreadId(Identity::Goroutine(n)),
    };
    Thread { task, id }
}

/// Runs a closure that may spawn goroutines which borrow from the caller, and waits for them:
/// [`task::scope`] with the handles of this module.
///
/// # Blocking
///
/// Parks the goroutine until all goroutines of the scope have ended.
///
/// # Panics
///
/// As [`task::scope`].
///
/// # Examples
///
/// ```
/// use windlass::thread;
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
/// rt.run(|| {
///     let text = String::from("borrowed");
///     let n = thread::scope(|s| {
///         let counter = s.spawn(|| text.len());
///         assert_eq!(counter.thread().name(), None);
///         counter.join().unwrap()
///     });
///     assert_eq!(n, 8);
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
#[track_caller]
pub fn scope<'env, F, T>(f: F) -> T
where
    F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T,
{
    task::scope(|scope| f(Scope::of(scope)))
}

/// Configures a new goroutine, as `std::thread::Builder` does a thread. [`task::Builder`] can do
/// more.
///
/// # Examples
///
/// See the [module](self).
#[derive(Debug, Default)]
#[must_use = "a builder does nothing until it spawns"]
pub struct Builder(task::Builder);

impl Builder {
    /// Creates a builder with the runtime's defaults.
    pub fn new() -> Builder {
        Builder::default()
    }

    /// Names the goroutine.
    pub fn name(self, name: String) -> Builder {
        Builder(self.0.name(name))
    }

    /// Sets the virtual size of the stack in bytes, between 16 KiB and 4 GiB.
    pub fn stack_size(self, size: usize) -> Builder {
        Builder(self.0.stack_size(size))
    }

    /// Spawns the goroutine.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a stack size out of range.
    ///
    /// # Panics
    ///
    /// If the caller is not a goroutine, and, as in `std`, if the name contains a null byte.
    #[track_caller]
    pub fn spawn<F, T>(self, f: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        self.check_name();
        Ok(JoinHandle::new(self.0.spawn(f)?))
    }

    /// Spawns the goroutine in a scope.
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
    /// As [`Builder::spawn`].
    #[track_caller]
    pub fn spawn_scoped<'scope, F, T>(
        self,
        scope: &'scope Scope<'scope, '_>,
        f: F,
    ) -> io::Result<ScopedJoinHandle<'scope, T>>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        self.check_name();
        Ok(ScopedJoinHandle::new(self.0.spawn_scoped(&scope.0, f)?))
    }

    #[track_caller]
    fn check_name(&self) {
        let has_null = self.0.name_given().is_some_and(|name| name.contains('\0'));
        assert!(!has_null, "thread name may not contain interior null bytes");
    }
}

/// A scope in which goroutines may borrow. Made by [`scope`].
#[derive(Debug)]
#[repr(transparent)]
pub struct Scope<'scope, 'env>(task::Scope<'scope, 'env>);

impl<'scope, 'env> Scope<'scope, 'env> {
    fn of<'a>(scope: &'a task::Scope<'scope, 'env>) -> &'a Scope<'scope, 'env> {
        // SAFETY: the type is a transparent wrapper.
        unsafe { &*std::ptr::from_ref(scope).cast() }
    }

    /// Spawns a goroutine that may borrow what outlives the scope.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Panics
    ///
    /// If the caller is not a goroutine.
    #[track_caller]
    pub fn spawn<F, T>(&'scope self, f: F) -> ScopedJoinHandle<'scope, T>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        ScopedJoinHandle::new(self.0.spawn(f))
    }
}

/// Methods of both handles.
macro_rules! handle {
    ($($of:tt)*) => {
        impl<T> $($of)* {
            /// Waits for the goroutine to end and returns its value.
            ///
            /// # Blocking
            ///
            /// Parks the goroutine; blocks a plain thread. If the run of the calling goroutine ends
            /// meanwhile, the call unwinds.
            ///
            /// # Errors
            ///
            /// The panic's payload if the goroutine panicked. [`Cancelled`](task::Cancelled) if its
            /// run ended.
            ///
            /// # Panics
            ///
            /// If a goroutine joins itself, as in `std`.
            #[track_caller]
            pub fn join(self) -> Result<T> {
                self.handle.join()
            }

            /// Whether the goroutine has ended. Never blocks.
            #[must_use]
            pub fn is_finished(&self) -> bool {
                self.handle.is_finished()
            }

            /// The goroutine that this handle joins.
            #[must_use]
            pub fn thread(&self) -> &Thread {
                self.thread.get_or_init(|| Thread::goroutine(self.handle.task()))
            }
        }

        impl<T> fmt::Debug for $($of)* {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.handle.fmt(f)
            }
        }
    };
}

/// A handle to join a goroutine. Dropping it detaches the goroutine, which then runs on by itself.
pub struct JoinHandle<T> {
    handle: task::JoinHandle<T>,
    /// Made when it is asked for, so that it costs nothing before.
    thread: OnceLock<Thread>,
}

impl<T> JoinHandle<T> {
    fn new(handle: task::JoinHandle<T>) -> JoinHandle<T> {
        let thread = OnceLock::new();
        JoinHandle { handle, thread }
    }
}

impl<T> From<task::JoinHandle<T>> for JoinHandle<T> {
    fn from(handle: task::JoinHandle<T>) -> JoinHandle<T> {
        JoinHandle::new(handle)
    }
}

impl<T> From<JoinHandle<T>> for task::JoinHandle<T> {
    fn from(handle: JoinHandle<T>) -> task::JoinHandle<T> {
        handle.handle
    }
}

handle!(JoinHandle<T>);

/// A handle to join a goroutine of a [`scope`].
pub struct ScopedJoinHandle<'scope, T> {
    handle: task::ScopedJoinHandle<'scope, T>,
    thread: OnceLock<Thread>,
}

impl<'scope, T> ScopedJoinHandle<'scope, T> {
    fn new(handle: task::ScopedJoinHandle<'scope, T>) -> ScopedJoinHandle<'scope, T> {
        let thread = OnceLock::new();
        ScopedJoinHandle { handle, thread }
    }
}

handle!(ScopedJoinHandle<'_, T>);

/// A reference to a goroutine or a plain thread. Made by [`current`] and [`JoinHandle::thread`].
#[derive(Clone)]
pub struct Thread {
    task: Task,
    id: ThreadId,
}

impl Thread {
    fn goroutine(task: Task) -> Thread {
        let id = ThreadId(Identity::Goroutine(task.id()));
        Thread { task, id }
    }

    /// The identity of the goroutine or thread.
    #[must_use]
    pub fn id(&self) -> ThreadId {
        self.id
    }

    /// The name given to it, if any.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.task.name()
    }

    /// Sets the token of the goroutine or thread, so that its current or next [`park`] returns.
    ///
    /// # Blocking
    ///
    /// Never.
    pub fn unpark(&self) {
        self.task.unpark();
    }
}

debug_fields!(Thread, |this| id: this.id(), name: this.name(), ..);

impl From<Thread> for Task {
    fn from(thread: Thread) -> Task {
        thread.task
    }
}

/// The identity of a goroutine or a plain thread. No other one of the process has or will have the
/// same.
///
/// # Examples
///
/// ```
/// use std::collections::HashMap;
/// use windlass::thread::{self, ThreadId};
///
/// let mut calls: HashMap<ThreadId, u32> = HashMap::new();
/// *calls.entry(thread::current().id()).or_default() += 1;
/// assert_eq!(calls[&thread::current().id()], 1);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ThreadId(Identity);

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Identity {
    Goroutine(u64),
    Thread(native::ThreadId),
}

impl fmt::Debug for ThreadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Identity::Goroutine(n) => write!(f, "ThreadId(goroutine {n})"),
            // `std` writes `ThreadId(1)`.
            Identity::Thread(id) => id.fmt(f),
        }
    }
}

//! Task-locals: variables of which each goroutine has its own value, as each thread has of a
//! thread-local.
#![allow(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;

use windlass_ground::std_traits::fmt_as;

use crate::g::goroutine_locals::GoroutineLocals;
use crate::local_values::Lookup;
use crate::sched::wait::park;

/// Declares task-locals: variables of which each goroutine has its own value. The syntax is that of
/// [`std::thread_local!`]. See [`LocalKey`](crate::task::LocalKey).
///
/// # Examples
///
/// ```
/// use std::cell::{Cell, RefCell};
/// use windlass::task_local;
///
/// task_local! {
///     static DEPTH: Cell<u32> = const { Cell::new(0) };
///     pub static TRACE: RefCell<Vec<String>> = RefCell::new(vec!["start".to_owned()]);
/// }
///
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
/// rt.run(|| {
///     DEPTH.set(7);
///     windlass::yield_now();
///     let others = windlass::spawn(|| DEPTH.get()).join().unwrap();
///     assert_eq!((DEPTH.get(), others), (7, 0));
///     TRACE.with_borrow(|trace| assert_eq!(trace, &["start"]));
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
#[macro_export]
macro_rules! task_local {
    () => {};

    ($(#[$attr:meta])* $vis:vis static $name:ident: $t:ty = const $init:block; $($rest:tt)*) => {
        $crate::task_local!($(#[$attr])* $vis static $name: $t = const $init);
        $crate::task_local!($($rest)*);
    };

    ($(#[$attr:meta])* $vis:vis static $name:ident: $t:ty = const $init:block) => {
        $(#[$attr])*
        $vis static $name: $crate::task::LocalKey<$t> = {
            fn init() -> $t {
                const INIT: $t = $init;
                INIT
            }
            $crate::task::LocalKey::new(init)
        };
    };

    ($(#[$attr:meta])* $vis:vis static $name:ident: $t:ty = $init:expr; $($rest:tt)*) => {
        $crate::task_local!($(#[$attr])* $vis static $name: $t = $init);
        $crate::task_local!($($rest)*);
    };

    ($(#[$attr:meta])* $vis:vis static $name:ident: $t:ty = $init:expr) => {
        $(#[$attr])*
        $vis static $name: $crate::task::LocalKey<$t> = {
            fn init() -> $t {
                $init
            }
            $crate::task::LocalKey::new(init)
        };
    };
}

pub use task_local;

/// A variable of which each goroutine has its own value. Declared by [`task_local!`].
///
/// The value is initialised when the goroutine first accesses it. It belongs to the goroutine and
/// moves with it from thread to thread. So, unlike the value of a thread-local, it may be borrowed
/// while the goroutine waits.
///
/// Values are dropped when the goroutine ends, the latest first. Their destructors run on the
/// goroutine's stack and may wait.
///
/// On a plain thread the value is the thread's. That includes the closure of
/// [`offload`](crate::offload), which runs on another thread.
///
/// An access searches the list of the goroutine's values, so it is meant for a handful of
/// variables, not for hundreds. A goroutine that uses none pays nothing.
///
/// # Examples
///
/// A goroutine keeps its borrow while it sleeps:
///
/// ```
/// use std::cell::RefCell;
/// use std::time::Duration;
///
/// windlass::task_local!(static LOG: RefCell<Vec<u32>> = RefCell::default());
///
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
/// rt.run(|| {
///     LOG.with_borrow_mut(|log| {
///         log.push(1);
///         windlass::sleep(Duration::from_millis(1));
///         log.push(2);
///     });
///     assert_eq!(LOG.take(), [1, 2]);
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct LocalKey<T: 'static> {
    init: fn() -> T,
    /// Invariant: keys of different types have different values.
    invariant: PhantomData<fn(T) -> T>,
}

/// The error of [`LocalKey::try_with`]: the value has been dropped, because the goroutine or thread
/// is ending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AccessError;

fmt_as!(Display for AccessError, "already destroyed");

impl std::error::Error for AccessError {}

fmt_as!([T] Debug for LocalKey<T>, "LocalKey { .. }");

impl<T: 'static> LocalKey<T> {
    /// Called by the macro. Sound for any static: see [`LocalKey::key`].
    #[doc(hidden)]
    pub const fn new(init: fn() -> T) -> LocalKey<T> {
        LocalKey {
            init,
            invariant: PhantomData,
        }
    }

    /// Runs `f` with the value, which is initialised first if needed.
    ///
    /// # Blocking
    ///
    /// Never by itself; `f` and the initialiser may wait.
    ///
    /// # Panics
    ///
    /// If the value has been dropped, because the goroutine or thread is ending. With the panic of
    /// `f` or of the initialiser.
    ///
    /// # Examples
    ///
    /// ```
    /// windlass::task_local!(static NAME: String = String::from("unnamed"));
    /// // Off the runtime the value is the thread's.
    /// assert_eq!(NAME.with(|name| name.len()), 7);
    /// ```
    #[track_caller]
    pub fn with<R>(&'static self, f: impl FnOnce(&T) -> R) -> R {
        self.try_with(f).unwrap_or_else(|e| destroyed(e))
    }

    /// As [`with`](LocalKey::with), but returns an error if the value has been dropped. For code
    /// that destructors call.
    ///
    /// # Blocking
    ///
    /// As [`with`](LocalKey::with).
    ///
    /// # Errors
    ///
    /// If the value has been dropped, because the goroutine or thread is ending.
    ///
    /// # Panics
    ///
    /// With the panic of `f` or of the initialiser.
    ///
    /// # Examples
    ///
    /// ```
    /// windlass::task_local!(static ID: u32 = 7);
    /// assert_eq!(ID.try_with(|id| *id), Ok(7));
    /// ```
    pub fn try_with<R>(&'static self, f: impl FnOnce(&T) -> R) -> Result<R, AccessError> {
        let value = self.place(&mut None)?;
        // SAFETY: the value is not moved or dropped before the goroutine or thread has run all its
        // code, which includes this call.
        Ok(f(unsafe { &*value }))
    }

    /// As [`with`](LocalKey::with), but a value that does not exist yet becomes `first`.
    fn with_first<R>(&'static self, first: T, f: impl FnOnce(&T, Option<T>) -> R) -> R {
        let mut first = Some(first);
        let value = self.place(&mut first).unwrap_or_else(|e| destroyed(e));
        // SAFETY: as in `try_with`.
        f(unsafe { &*value }, first)
    }

    /// The address of the value. A value that does not exist yet is taken from `first`, or made by
    /// the declared initialiser.
    fn place(&'static self, first: &mut Option<T>) -> Result<*const T, AccessError> {
        if let Some(value) = self.find(owner()?)? {
            return Ok(value);
        }
        let value = first.take().unwrap_or_else(self.init);
        // The initialiser may itself have accessed the value, which made one: that one is used.
        match self.find(owner()?)? {
            Some(value) => Ok(value),
            None => Ok(owner()?.values.insert(self.key(), value)),
        }
    }

    fn find(&'static self, own: &GoroutineLocals) -> Result<Option<*const T>, AccessError> {
        match own.values.find(self.key()) {
            Lookup::Value(value) => Ok(Some(value)),
            Lookup::Destroyed => Err(AccessError),
            Lookup::Nothing => Ok(None),
        }
    }

    /// The key's address. It is unique among statics, which the macro declares. Constants may share
    /// an address, so a lookup compares the type as well (`g::goroutine_locals`).
    fn key(&'static self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

fn owner<'a>() -> Result<&'a GoroutineLocals, AccessError> {
    park::locals().ok_or(AccessError)
}

#[cold]
#[track_caller]
fn destroyed(e: AccessError) -> ! {
    panic!("cannot access a task-local value during or after its destruction: {e}");
}

impl<T: 'static> LocalKey<Cell<T>> {
    /// Sets the value. If there is none yet, the initialiser does not run.
    ///
    /// # Panics
    ///
    /// If the value has been dropped.
    ///
    /// # Examples
    ///
    /// The methods of a `Cell`:
    ///
    /// ```
    /// use std::cell::Cell;
    ///
    /// windlass::task_local!(static DEPTH: Cell<u32> = const { Cell::new(0) });
    ///
    /// DEPTH.set(7);
    /// assert_eq!(DEPTH.get(), 7);
    /// assert_eq!(DEPTH.replace(8), 7);
    /// assert_eq!(DEPTH.take(), 8);
    /// assert_eq!(DEPTH.get(), 0);
    /// ```
    #[track_caller]
    pub fn set(&'static self, value: T) {
        self.with_first(Cell::new(value), |cell, value| {
            if let Some(value) = value {
                cell.set(value.into_inner());
            }
        });
    }

    /// Returns a copy of the value.
    ///
    /// # Panics
    ///
    /// If the value has been dropped.
    #[track_caller]
    pub fn get(&'static self) -> T
    where
        T: Copy,
    {
        self.with(Cell::get)
    }

    /// Takes the value and leaves the default.
    ///
    /// # Panics
    ///
    /// If the value has been dropped.
    #[track_caller]
    pub fn take(&'static self) -> T
    where
        T: Default,
    {
        self.with(Cell::take)
    }

    /// Replaces the value and returns the old one.
    ///
    /// # Panics
    ///
    /// If the value has been dropped.
    #[track_caller]
    pub fn replace(&'static self, value: T) -> T {
        self.with(|cell| cell.replace(value))
    }
}

impl<T: 'static> LocalKey<RefCell<T>> {
    /// Runs `f` with a shared borrow of the value.
    ///
    /// # Panics
    ///
    /// If the value is mutably borrowed or has been dropped. With `f`'s panic.
    ///
    /// # Examples
    ///
    /// The methods of a `RefCell`:
    ///
    /// ```
    /// use std::cell::RefCell;
    ///
    /// windlass::task_local!(static PATH: RefCell<Vec<&'static str>> = RefCell::default());
    ///
    /// PATH.set(vec!["usr"]);
    /// PATH.with_borrow_mut(|path| path.push("bin"));
    /// PATH.with_borrow(|path| assert_eq!(path.len(), 2));
    /// assert_eq!(PATH.replace(Vec::new()), ["usr", "bin"]);
    /// assert!(PATH.take().is_empty());
    /// ```
    pub fn with_borrow<R>(&'static self, f: impl FnOnce(&T) -> R) -> R {
        self.with(|cell| f(&cell.borrow()))
    }

    /// Runs `f` with a mutable borrow of the value.
    ///
    /// # Panics
    ///
    /// If the value is borrowed or has been dropped. With `f`'s panic.
    pub fn with_borrow_mut<R>(&'static self, f: impl FnOnce(&mut T) -> R) -> R {
        self.with(|cell| f(&mut cell.borrow_mut()))
    }

    /// Sets the value. If there is none yet, the initialiser does not run.
    ///
    /// # Panics
    ///
    /// If the value is borrowed or has been dropped.
    #[track_caller]
    pub fn set(&'static self, value: T) {
        self.with_first(RefCell::new(value), |cell, value| {
            if let Some(value) = value {
                cell.replace(value.into_inner());
            }
        });
    }

    /// Takes the value and leaves the default.
    ///
    /// # Panics
    ///
    /// If the value is borrowed or has been dropped.
    #[track_caller]
    pub fn take(&'static self) -> T
    where
        T: Default,
    {
        self.with(RefCell::take)
    }

    /// Replaces the value and returns the old one.
    ///
    /// # Panics
    ///
    /// If the value is borrowed or has been dropped.
    #[track_caller]
    pub fn replace(&'static self, value: T) -> T {
        self.with(|cell| cell.replace(value))
    }
}

//! Task-locals: what `std::thread`'s thread-locals are to threads, to goroutines.
#![allow(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::fmt;
use std::marker::PhantomData;

use crate::g::own::{Found, Own};
use crate::sched::park;

/// Declares task-locals: each goroutine has values of its own, as each thread has of
/// [`std::thread_local!`]'s, whose form this has. See [`LocalKey`](crate::task::LocalKey).
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

/// A variable of which each goroutine has a value of its own, made when it first asks
/// for it. Declared by [`task_local!`].
///
/// On a plain thread it is the thread's; so it is in [`offload`](crate::offload)'s
/// closure, which runs on another thread.
///
/// The value belongs to the goroutine and moves with it from thread to thread, so unlike
/// a thread-local's it may be borrowed while the goroutine waits. It is dropped when the
/// goroutine ends, on its own stack, where it still may wait; the one made last is
/// dropped first. A goroutine that uses none pays nothing for it.
///
/// Looking for a value takes a few steps for each that the goroutine has: a handful is
/// meant, not hundreds.
pub struct LocalKey<T: 'static> {
    init: fn() -> T,
    /// A key of one type is not one of another, which would have other values.
    invariant: PhantomData<fn(T) -> T>,
}

/// The value was dropped already, because the goroutine or thread ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AccessError;

impl fmt::Display for AccessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("already destroyed")
    }
}

impl std::error::Error for AccessError {}

impl<T> fmt::Debug for LocalKey<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalKey").finish_non_exhaustive()
    }
}

impl<T: 'static> LocalKey<T> {
    /// For the macro. Safe with any key: see [`LocalKey::key`].
    #[doc(hidden)]
    pub const fn new(init: fn() -> T) -> LocalKey<T> {
        LocalKey {
            init,
            invariant: PhantomData,
        }
    }

    /// Runs `f` with the value, which is made first if need be.
    ///
    /// # Blocking
    ///
    /// As `f` does, which may.
    ///
    /// # Panics
    ///
    /// If the value was dropped already, because the goroutine or thread ends; with the
    /// panic of `f` or of the making.
    pub fn with<R>(&'static self, f: impl FnOnce(&T) -> R) -> R {
        self.try_with(f).unwrap_or_else(|e| destroyed(e))
    }

    /// As [`with`](LocalKey::with).
    ///
    /// # Blocking
    ///
    /// As [`with`](LocalKey::with).
    ///
    /// # Errors
    ///
    /// If the value was dropped already, because the goroutine or thread ends.
    ///
    /// # Panics
    ///
    /// With the panic of `f` or of the making.
    pub fn try_with<R>(&'static self, f: impl FnOnce(&T) -> R) -> Result<R, AccessError> {
        let value = self.place(&mut None)?;
        // SAFETY: the value stays where it is until the goroutine or thread has run all its code,
        // of which this call is a part.
        Ok(f(unsafe { &*value }))
    }

    /// As [`with`](LocalKey::with); a value that does not exist yet is made from `first`.
    fn with_first<R>(&'static self, first: T, f: impl FnOnce(&T, Option<T>) -> R) -> R {
        let mut first = Some(first);
        let value = self.place(&mut first).unwrap_or_else(|e| destroyed(e));
        // SAFETY: as in `try_with`.
        f(unsafe { &*value }, first)
    }

    /// Where the value is. If there is none yet it is made: from what is in `first`, or
    /// else by the declared initialiser.
    fn place(&'static self, first: &mut Option<T>) -> Result<*const T, AccessError> {
        if let Some(value) = self.find(owner()?)? {
            return Ok(value);
        }
        let value = first.take().unwrap_or_else(self.init);
        // The making may have waited, and may have asked for the value itself: the first counts.
        match self.find(owner()?)? {
            Some(value) => Ok(value),
            None => Ok(owner()?.insert(self.key(), value)),
        }
    }

    fn find(&'static self, own: &Own) -> Result<Option<*const T>, AccessError> {
        match own.find(self.key()) {
            Found::Value(value) => Ok(Some(value)),
            Found::Destroyed => Err(AccessError),
            Found::Nothing => Ok(None),
        }
    }

    /// Unique among statics, which is what the macro makes. Keys that are constants may share
    /// an address, so a value is found by its type, too (`g::own`).
    fn key(&'static self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

fn owner<'a>() -> Result<&'a Own, AccessError> {
    park::own().ok_or(AccessError)
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
    /// If the value was dropped already.
    pub fn set(&'static self, value: T) {
        self.with_first(Cell::new(value), |cell, value| {
            if let Some(value) = value {
                cell.set(value.into_inner());
            }
        });
    }

    /// A copy of the value.
    ///
    /// # Panics
    ///
    /// If the value was dropped already.
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
    /// If the value was dropped already.
    pub fn take(&'static self) -> T
    where
        T: Default,
    {
        self.with(Cell::take)
    }

    /// Puts `value` in the old one's place, and gives that.
    ///
    /// # Panics
    ///
    /// If the value was dropped already.
    pub fn replace(&'static self, value: T) -> T {
        self.with(|cell| cell.replace(value))
    }
}

impl<T: 'static> LocalKey<RefCell<T>> {
    /// Runs `f` with a shared borrow of the value.
    ///
    /// # Panics
    ///
    /// If it is mutably borrowed, or was dropped already; with `f`'s panic.
    pub fn with_borrow<R>(&'static self, f: impl FnOnce(&T) -> R) -> R {
        self.with(|cell| f(&cell.borrow()))
    }

    /// Runs `f` with a mutable borrow of the value.
    ///
    /// # Panics
    ///
    /// If it is borrowed, or was dropped already; with `f`'s panic.
    pub fn with_borrow_mut<R>(&'static self, f: impl FnOnce(&mut T) -> R) -> R {
        self.with(|cell| f(&mut cell.borrow_mut()))
    }

    /// Sets the value. If there is none yet, the initialiser does not run.
    ///
    /// # Panics
    ///
    /// If it is borrowed, or was dropped already.
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
    /// If it is borrowed, or was dropped already.
    pub fn take(&'static self) -> T
    where
        T: Default,
    {
        self.with(RefCell::take)
    }

    /// Puts `value` in the old one's place, and gives that.
    ///
    /// # Panics
    ///
    /// If it is borrowed, or was dropped already.
    pub fn replace(&'static self, value: T) -> T {
        self.with(|cell| cell.replace(value))
    }
}

//! A cell that is written once.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::fmt;
use std::mem::MaybeUninit;
use std::panic::{RefUnwindSafe, UnwindSafe};

use super::once::{Once, OnceState};
use super::waitlist::WaitError;
use crate::loom::const_fn;
use crate::sched::wait::points;

/// A cell that is written once, as `std::sync::OnceLock`.
///
/// # Blocking
///
/// An initializer may wait for anything except this cell itself: accessing the cell from its own
/// initializer waits forever. Other callers wait while the initializer runs: a goroutine parks, a
/// plain thread blocks. If the runtime shuts down, a waiting goroutine unwinds.
///
/// # Examples
///
/// ```
/// use windlass::sync::OnceLock;
///
/// static CONFIG: OnceLock<String> = OnceLock::new();
///
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
/// rt.run(|| {
///     let reader = windlass::spawn(|| CONFIG.wait().len());
///     CONFIG.get_or_init(|| "verbose".to_owned());
///     assert_eq!(reader.join().unwrap(), 7);
/// });
/// assert_eq!(CONFIG.set("again".to_owned()), Err("again".to_owned()));
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct OnceLock<T> {
    once: Once,
    /// Written by the one run of `once`; initialized if `once` is completed.
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY:
// - a shared cell gives out shared references: T is Sync;
// - one thread may set the value and another drop or take it: T is Send.
unsafe impl<T: Sync + Send> Sync for OnceLock<T> {}
// SAFETY: sending the cell sends the value.
unsafe impl<T: Send> Send for OnceLock<T> {}

impl<T: RefUnwindSafe + UnwindSafe> RefUnwindSafe for OnceLock<T> {}
impl<T: UnwindSafe> UnwindSafe for OnceLock<T> {}

impl<T> OnceLock<T> {
    const_fn! {
        /// Creates an empty cell.
        #[inline]
        #[must_use]
        pub const fn new() -> OnceLock<T> {
            OnceLock {
                once: Once::new(),
                value: UnsafeCell::new(MaybeUninit::uninit()),
            }
        }
    }

    /// Returns the value, if it is set. Does not wait for an initializer.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::sync::OnceLock;
    ///
    /// let cell = OnceLock::new();
    /// assert_eq!(cell.get(), None);
    /// cell.set(7).unwrap();
    /// assert_eq!(cell.get(), Some(&7));
    /// ```
    #[inline]
    #[must_use]
    pub fn get(&self) -> Option<&T> {
        points::switch_point();
        self.peek()
    }

    /// As [`OnceLock::get`]; leaves the goroutine on its thread.
    #[inline]
    pub(super) fn peek(&self) -> Option<&T> {
        if self.once.is_completed_in_place() {
            // SAFETY: the run of `once` has written the value, and it does not change while the
            // cell is borrowed.
            Some(unsafe { (*self.value.get()).assume_init_ref() })
        } else {
            None
        }
    }

    /// Returns a mutable reference to the value, if it is set.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::sync::OnceLock;
    ///
    /// let mut cell = OnceLock::from(6);
    /// *cell.get_mut().unwrap() += 1;
    /// assert_eq!(cell.get(), Some(&7));
    /// ```
    #[inline]
    #[must_use]
    pub fn get_mut(&mut self) -> Option<&mut T> {
        if self.once.is_completed_in_place() {
            // SAFETY: the run of `once` has written the value.
            Some(unsafe { self.value.get_mut().assume_init_mut() })
        } else {
            None
        }
    }

    /// Waits until the value is set and returns it.
    ///
    /// # Blocking
    ///
    /// See [`OnceLock`].
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::sync::OnceLock;
    ///
    /// static CELL: OnceLock<u32> = OnceLock::new();
    /// std::thread::spawn(|| CELL.set(7).unwrap());
    /// assert_eq!(CELL.wait(), &7);
    /// ```
    #[must_use]
    #[allow(clippy::missing_panics_doc, reason = "a completed cell has a value")]
    pub fn wait(&self) -> &T {
        self.once.wait_force();
        self.get().expect("a completed cell has a value")
    }

    /// Sets the value, unless it is set already.
    ///
    /// # Blocking
    ///
    /// As [`OnceLock::get_or_init`]: waits while an initializer runs.
    ///
    /// # Errors
    ///
    /// `value`, if the cell already had a value.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::sync::OnceLock;
    ///
    /// let cell = OnceLock::new();
    /// assert_eq!(cell.set("first"), Ok(()));
    /// assert_eq!(cell.set("second"), Err("second"));
    /// ```
    #[allow(clippy::missing_panics_doc, reason = "an initializer runs once")]
    pub fn set(&self, value: T) -> Result<(), T> {
        let mut value = Some(value);
        self.get_or_init(|| value.take().expect("an initializer runs once"));
        match value {
            None => Ok(()),
            Some(value) => Err(value),
        }
    }

    /// Returns the value. If it is not set, runs `f` and sets its result. Of several concurrent
    /// calls, one runs its `f`, and the others wait for it.
    ///
    /// # Blocking
    ///
    /// See [`OnceLock`].
    ///
    /// # Panics
    ///
    /// If `f` panics. The cell stays empty then, and another call may set it.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::sync::OnceLock;
    ///
    /// let cell = OnceLock::new();
    /// assert_eq!(cell.get_or_init(|| 7), &7);
    /// assert_eq!(cell.get_or_init(|| unreachable!("it is set")), &7);
    /// ```
    #[inline]
    pub fn get_or_init<F: FnOnce() -> T>(&self, f: F) -> &T {
        if let Some(value) = self.get() {
            return value;
        }
        self.once.call_once_force(|_| {
            let value = f();
            // SAFETY: this is the only run of `once`, and the value is not read before `once` is
            // completed.
            unsafe { (*self.value.get()).write(value) };
        });
        self.get().expect("a completed cell has a value")
    }

    /// As [`OnceLock::get_or_init`], but calls `wait` while another call runs its initializer.
    ///
    /// # Errors
    ///
    /// The error of `wait`. `f` has not run then and will not run.
    pub(crate) fn get_or_init_or<F: FnOnce() -> T>(
        &self,
        f: F,
        mut wait: impl FnMut(&Once) -> Result<(), WaitError>,
    ) -> Result<&T, WaitError> {
        let mut f = Some(f);
        let mut run = |_: &OnceState| {
            let value = f.take().expect("a run happens once")();
            // SAFETY: this is the only run of `once`, and the value is not read before `once` is
            // completed.
            unsafe { (*self.value.get()).write(value) };
        };
        self.once
            .call_or(true, &mut run, &mut || wait(&self.once))?;
        Ok(self.get().expect("a completed cell has a value"))
    }

    /// The `Once` whose completion means that the value is set.
    pub(crate) fn once(&self) -> &Once {
        &self.once
    }

    /// Consumes the cell and returns the value, if it is set.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::sync::OnceLock;
    ///
    /// assert_eq!(OnceLock::from(7).into_inner(), Some(7));
    /// assert_eq!(OnceLock::<u32>::new().into_inner(), None);
    /// ```
    #[must_use]
    pub fn into_inner(mut self) -> Option<T> {
        self.take()
    }

    /// Takes the value out of the cell, if it is set. The cell is then empty and can be set again.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::sync::OnceLock;
    ///
    /// let mut cell = OnceLock::from(7);
    /// assert_eq!(cell.take(), Some(7));
    /// assert_eq!(cell.set(8), Ok(()));
    /// ```
    #[must_use]
    pub fn take(&mut self) -> Option<T> {
        if !self.once.is_completed_in_place() {
            return None;
        }
        self.once = Once::new();
        // SAFETY: the value was set, and the new `once` marks it as moved out.
        Some(unsafe { self.value.get_mut().assume_init_read() })
    }
}

impl<T> Drop for OnceLock<T> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

impl<T> Default for OnceLock<T> {
    fn default() -> OnceLock<T> {
        OnceLock::new()
    }
}

impl<T> From<T> for OnceLock<T> {
    fn from(value: T) -> OnceLock<T> {
        let cell = OnceLock::new();
        cell.get_or_init(|| value);
        cell
    }
}

impl<T: Clone> Clone for OnceLock<T> {
    fn clone(&self) -> OnceLock<T> {
        self.get()
            .map_or_else(OnceLock::new, |value| OnceLock::from(value.clone()))
    }
}

impl<T: PartialEq> PartialEq for OnceLock<T> {
    fn eq(&self, other: &OnceLock<T>) -> bool {
        self.get() == other.get()
    }
}

impl<T: Eq> Eq for OnceLock<T> {}

impl<T: fmt::Debug> fmt::Debug for OnceLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_tuple("OnceLock");
        match self.peek() {
            Some(value) => out.field(value),
            None => out.field(&format_args!("<uninit>")),
        };
        out.finish()
    }
}

//! A value that is written once.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::fmt;
use std::mem::MaybeUninit;
use std::panic::{RefUnwindSafe, UnwindSafe};

use super::once::{Once, OnceState};
use super::waitlist::GaveUp;
use crate::loom::const_fn;

/// A cell that is written once, as `std::sync::OnceLock`.
///
/// # Blocking
///
/// An initializer may wait for anything but this cell itself: initializing it from within
/// waits for ever. Who comes meanwhile waits for it: a goroutine parks, a plain thread
/// blocks; a goroutine whose runtime ends unwinds.
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
    /// Written by the one run of `once`; initialized once that is completed.
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY:
// - shared, it gives out shared references: T is Sync;
// - a value that one thread sets, another may drop or take: T is Send.
unsafe impl<T: Sync + Send> Sync for OnceLock<T> {}
// SAFETY: the value goes with the cell.
unsafe impl<T: Send> Send for OnceLock<T> {}

impl<T: RefUnwindSafe + UnwindSafe> RefUnwindSafe for OnceLock<T> {}
impl<T: UnwindSafe> UnwindSafe for OnceLock<T> {}

impl<T> OnceLock<T> {
    const_fn! {
        /// Makes an empty cell.
        #[inline]
        #[must_use]
        pub const fn new() -> OnceLock<T> {
            OnceLock {
                once: Once::new(),
                value: UnsafeCell::new(MaybeUninit::uninit()),
            }
        }
    }

    /// The value, if it is there. Does not wait for an initializer.
    #[inline]
    #[must_use]
    pub fn get(&self) -> Option<&T> {
        if self.once.is_completed() {
            // SAFETY: the run of `once` has written the value, and nobody changes it while the cell
            // is borrowed.
            Some(unsafe { (*self.value.get()).assume_init_ref() })
        } else {
            None
        }
    }

    /// The value, if it is there, to be changed.
    #[inline]
    #[must_use]
    pub fn get_mut(&mut self) -> Option<&mut T> {
        if self.once.is_completed() {
            // SAFETY: the run of `once` has written the value.
            Some(unsafe { self.value.get_mut().assume_init_mut() })
        } else {
            None
        }
    }

    /// Waits until the value is there.
    ///
    /// # Blocking
    ///
    /// See [`OnceLock`].
    #[must_use]
    #[allow(clippy::missing_panics_doc, reason = "a completed cell has a value")]
    pub fn wait(&self) -> &T {
        self.once.wait_force();
        self.get().expect("a completed cell has a value")
    }

    /// Writes the value, unless there is one.
    ///
    /// # Blocking
    ///
    /// If an initializer is at work, waits for it.
    ///
    /// # Errors
    ///
    /// With `value`, if there was one already.
    #[allow(clippy::missing_panics_doc, reason = "an initializer runs once")]
    pub fn set(&self, value: T) -> Result<(), T> {
        let mut value = Some(value);
        self.get_or_init(|| value.take().expect("an initializer runs once"));
        match value {
            None => Ok(()),
            Some(value) => Err(value),
        }
    }

    /// The value; `f` makes it if it is not there.
    ///
    /// # Blocking
    ///
    /// See [`OnceLock`].
    ///
    /// # Panics
    ///
    /// If `f` does; the cell stays empty, and another call may fill it.
    #[inline]
    pub fn get_or_init<F: FnOnce() -> T>(&self, f: F) -> &T {
        if let Some(value) = self.get() {
            return value;
        }
        self.once.call_once_force(|_| {
            let value = f();
            // SAFETY: nobody else is in a run of `once`, and nobody reads before it is completed.
            unsafe { (*self.value.get()).write(value) };
        });
        self.get().expect("a completed cell has a value")
    }

    /// As [`OnceLock::get_or_init`], but `wait`s while another call makes the value.
    ///
    /// # Errors
    ///
    /// `wait`'s. `f` has not run then, nor will it.
    pub(crate) fn get_or_init_or<F: FnOnce() -> T>(
        &self,
        f: F,
        mut wait: impl FnMut(&Once) -> Result<(), GaveUp>,
    ) -> Result<&T, GaveUp> {
        let mut f = Some(f);
        let mut run = |_: &OnceState| {
            let value = f.take().expect("a run happens once")();
            // SAFETY: nobody else is in a run of `once`, and nobody reads before it is completed.
            unsafe { (*self.value.get()).write(value) };
        };
        self.once
            .call_or(true, &mut run, &mut || wait(&self.once))?;
        Ok(self.get().expect("a completed cell has a value"))
    }

    /// What says whether the value is there.
    pub(crate) fn once(&self) -> &Once {
        &self.once
    }

    /// Gives the value back.
    #[must_use]
    pub fn into_inner(mut self) -> Option<T> {
        self.take()
    }

    /// Takes the value out; the cell is empty then.
    #[must_use]
    pub fn take(&mut self) -> Option<T> {
        if !self.once.is_completed() {
            return None;
        }
        self.once = Once::new();
        // SAFETY: the value was there, and the new `once` says that it is no more.
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
        match self.get() {
            Some(value) => out.field(value),
            None => out.field(&format_args!("<uninit>")),
        };
        out.finish()
    }
}

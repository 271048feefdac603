//! A lazily initialized value.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::panic::{RefUnwindSafe, UnwindSafe};

use super::mutex::Mutex;
use super::once::Once;
use super::once_lock::OnceLock;
use super::waitlist::WaitError;
use crate::loom::const_fn;
use crate::sched::wait::points;

/// A value that is initialized on its first access, as `std::sync::LazyLock`.
///
/// # Poisoning
///
/// As in `std`: once the initializer has panicked, every access panics. So it is if the
/// initializer was unwound because the runtime of its goroutine shut down, as it can run only once.
///
/// # Blocking
///
/// As [`OnceLock`]: the initializer may wait for anything except this value itself.
///
/// # Examples
///
/// ```
/// use windlass::sync::LazyLock;
///
/// static WORDS: LazyLock<Vec<&str>> = LazyLock::new(|| "one two three".split(' ').collect());
///
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
/// let n = rt.run(|| windlass::spawn(|| WORDS.len()).join().unwrap());
/// assert_eq!(n, 3);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct LazyLock<T, F = fn() -> T> {
    cell: OnceLock<T>,
    /// Taken out when the initializer starts. The one run of the cell holds the lock only while it
    /// takes the initializer out.
    init: Mutex<Option<F>>,
}

impl<T: RefUnwindSafe + UnwindSafe, F: UnwindSafe> RefUnwindSafe for LazyLock<T, F> {}
impl<T: UnwindSafe, F: UnwindSafe> UnwindSafe for LazyLock<T, F> {}

impl<T, F: FnOnce() -> T> LazyLock<T, F> {
    const_fn! {
        /// Creates a value that `f` will initialize on the first access.
        ///
        /// # Examples
        ///
        /// ```
        /// use windlass::sync::LazyLock;
        ///
        /// let answer = LazyLock::new(|| 6 * 7);
        /// assert_eq!(LazyLock::get(&answer), None);
        /// assert_eq!(*answer, 42);
        /// assert_eq!(LazyLock::get(&answer), Some(&42));
        /// ```
        #[inline]
        pub const fn new(f: F) -> LazyLock<T, F> {
            LazyLock {
                cell: OnceLock::new(),
                init: Mutex::new(Some(f)),
            }
        }
    }

    /// Returns the value, initializing it if that has not happened yet. Dereferencing does the
    /// same.
    ///
    /// # Blocking
    ///
    /// See [`LazyLock`].
    ///
    /// # Panics
    ///
    /// If the initializer panics or has panicked.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::sync::LazyLock;
    ///
    /// let answer = LazyLock::new(|| 6 * 7);
    /// assert_eq!(LazyLock::force(&answer), &42);
    /// ```
    #[inline]
    pub fn force(this: &LazyLock<T, F>) -> &T {
        this.cell.get_or_init(|| this.take_init()())
    }

    /// As [`LazyLock::force`], but returns a mutable reference.
    ///
    /// # Blocking
    ///
    /// Only if the initializer waits.
    ///
    /// # Panics
    ///
    /// As [`LazyLock::force`].
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::sync::LazyLock;
    ///
    /// let mut words = LazyLock::new(|| vec!["one", "two"]);
    /// LazyLock::force_mut(&mut words).push("three");
    /// assert_eq!(words.len(), 3);
    /// ```
    pub fn force_mut(this: &mut LazyLock<T, F>) -> &mut T {
        LazyLock::force(this);
        this.cell.get_mut().expect("a forced value is there")
    }

    /// As [`LazyLock::force`], but calls `wait` while another call runs the initializer.
    ///
    /// # Errors
    ///
    /// The error of `wait`. This call has not run the initializer then.
    pub(crate) fn force_or(
        this: &LazyLock<T, F>,
        wait: impl FnMut(&Once) -> Result<(), WaitError>,
    ) -> Result<&T, WaitError> {
        this.cell.get_or_init_or(|| this.take_init()(), wait)
    }

    #[cold]
    fn take_init(&self) -> F {
        // The lock is not held while the initializer runs, so its panic does not poison the lock.
        let init = self.init.lock().map(|mut init| init.take());
        init.ok().flatten().unwrap_or_else(|| {
            // During a shutdown the initializer may have been unwound for that reason; then this
            // caller unwinds, too. A destructor that runs meanwhile cannot.
            if points::cancel_point().is_err() {
                panic!(
                    "windlass: LazyLock: a destructor asks for a value whose initializer was \
                     cancelled, because the run has ended: use LazyLock::get in destructors"
                )
            }
            panic!("LazyLock instance has previously been poisoned")
        })
    }
}

impl<T, F> LazyLock<T, F> {
    /// Returns the value, if it is initialized. Does not run the initializer.
    ///
    /// # Blocking
    ///
    /// Never.
    #[inline]
    #[must_use]
    pub fn get(this: &LazyLock<T, F>) -> Option<&T> {
        this.cell.get()
    }

    /// Returns a mutable reference to the value, if it is initialized. Does not run the
    /// initializer.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::sync::LazyLock;
    ///
    /// let mut answer = LazyLock::new(|| 6 * 7);
    /// assert_eq!(LazyLock::get_mut(&mut answer), None);
    /// *LazyLock::force_mut(&mut answer) += 1;
    /// assert_eq!(LazyLock::get_mut(&mut answer), Some(&mut 43));
    /// ```
    #[inline]
    #[must_use]
    pub fn get_mut(this: &mut LazyLock<T, F>) -> Option<&mut T> {
        this.cell.get_mut()
    }
}

impl<T, F: FnOnce() -> T> Deref for LazyLock<T, F> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        LazyLock::force(self)
    }
}

impl<T, F: FnOnce() -> T> DerefMut for LazyLock<T, F> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        LazyLock::force_mut(self)
    }
}

impl<T: Default> Default for LazyLock<T> {
    fn default() -> LazyLock<T> {
        LazyLock::new(T::default)
    }
}

impl<T: fmt::Debug, F> fmt::Debug for LazyLock<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_tuple("LazyLock");
        match self.cell.peek() {
            Some(value) => out.field(value),
            None => out.field(&format_args!("<uninit>")),
        };
        out.finish()
    }
}

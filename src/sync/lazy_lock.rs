//! A value that is made when it is first needed.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::panic::{RefUnwindSafe, UnwindSafe};

use super::mutex::Mutex;
use super::once::Once;
use super::once_lock::OnceLock;
use super::waitlist::GaveUp;
use crate::loom::const_fn;
use crate::sched::park;

/// A value that its initializer makes when it is first asked for, as
/// `std::sync::LazyLock`.
///
/// # Poisoning
///
/// As in `std`: once the initializer has panicked, every access panics. The same is true
/// if it was cut short because the runtime of its goroutine ended, as there is only one
/// initializer.
///
/// # Blocking
///
/// As [`OnceLock`]: the initializer may wait for anything but this value itself.
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
    /// Gone once it runs. Locked for as long as it takes to take it, by the one run of the
    /// cell.
    init: Mutex<Option<F>>,
}

impl<T: RefUnwindSafe + UnwindSafe, F: UnwindSafe> RefUnwindSafe for LazyLock<T, F> {}
impl<T: UnwindSafe, F: UnwindSafe> UnwindSafe for LazyLock<T, F> {}

impl<T, F: FnOnce() -> T> LazyLock<T, F> {
    const_fn! {
        /// Makes a value that `f` will make.
        #[inline]
        pub const fn new(f: F) -> LazyLock<T, F> {
            LazyLock {
                cell: OnceLock::new(),
                init: Mutex::new(Some(f)),
            }
        }
    }

    /// The value, made now if it was not.
    ///
    /// # Blocking
    ///
    /// See [`LazyLock`].
    ///
    /// # Panics
    ///
    /// If the initializer does or did.
    #[inline]
    pub fn force(this: &LazyLock<T, F>) -> &T {
        this.cell.get_or_init(|| this.take_init()())
    }

    /// As [`LazyLock::force`], to be changed.
    ///
    /// # Blocking
    ///
    /// Never, but for what the initializer does.
    ///
    /// # Panics
    ///
    /// As [`LazyLock::force`].
    pub fn force_mut(this: &mut LazyLock<T, F>) -> &mut T {
        LazyLock::force(this);
        this.cell.get_mut().expect("a forced value is there")
    }

    /// As [`LazyLock::force`], but `wait`s while another call makes the value.
    ///
    /// # Errors
    ///
    /// `wait`'s. The initializer has not run here then.
    pub(crate) fn force_or(
        this: &LazyLock<T, F>,
        wait: impl FnMut(&Once) -> Result<(), GaveUp>,
    ) -> Result<&T, GaveUp> {
        this.cell.get_or_init_or(|| this.take_init()(), wait)
    }

    #[cold]
    fn take_init(&self) -> F {
        // Not held while the initializer runs, so not poisoned by it.
        let init = self.init.lock().map(|mut init| init.take());
        init.ok().flatten().unwrap_or_else(|| {
            // While a run ends, the initializer may have been unwound for that reason.
            let _ = park::cancel_point();
            panic!("LazyLock instance has previously been poisoned")
        })
    }
}

impl<T, F> LazyLock<T, F> {
    /// The value, if it was made.
    #[inline]
    #[must_use]
    pub fn get(this: &LazyLock<T, F>) -> Option<&T> {
        this.cell.get()
    }

    /// The value, if it was made, to be changed.
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
        match LazyLock::get(self) {
            Some(value) => out.field(value),
            None => out.field(&format_args!("<uninit>")),
        };
        out.finish()
    }
}

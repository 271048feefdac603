//! The traits of a lock's guard.
#![allow(unsafe_code)]

/// Implements access to the value for a guard, the release of its lock when it is dropped, and `Debug`
/// and `Display` as those of the value. `exclusive` guards change the value, `shared` ones do not.
///
/// The first expression is a pointer to the value, valid as long as the guard holds the lock; the second
/// releases the lock.
macro_rules! guard {
    (exclusive $guard:ty, |$this:ident| $value:expr, $release:expr) => {
        $crate::sync::guard::guard!(shared $guard, |$this| $value, $release);

        impl<T: ?Sized> std::ops::DerefMut for $guard {
            #[inline]
            fn deref_mut(&mut self) -> &mut T {
                let $this = &*self;
                // SAFETY: the guard holds the lock exclusively and is borrowed exclusively.
                unsafe { &mut *$value }
            }
        }
    };
    (shared $guard:ty, |$this:ident| $value:expr, $release:expr) => {
        impl<T: ?Sized> std::ops::Deref for $guard {
            type Target = T;

            #[inline]
            fn deref(&self) -> &T {
                let $this = self;
                // SAFETY: the guard holds the lock, and keeps it alive with the value in it.
                unsafe { &*$value }
            }
        }

        impl<T: ?Sized> Drop for $guard {
            #[inline]
            fn drop(&mut self) {
                let $this = &*self;
                $release;
            }
        }

        impl<T: ?Sized + fmt::Debug> fmt::Debug for $guard {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                (**self).fmt(f)
            }
        }

        impl<T: ?Sized + fmt::Display> fmt::Display for $guard {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                (**self).fmt(f)
            }
        }
    };
}
pub(crate) use guard;

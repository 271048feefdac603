//! Implementations of `std`'s traits that are the same for several types. `Debug` and `Display` are those of errors, and of
//! types whose parts say nothing or cannot be read without a lock: as a text, or as a struct of a few values.

/// Implements the traits of a type that owns a descriptor and converts into `OwnedFd`. The expression
/// has the descriptor.
#[macro_export]
macro_rules! fd_traits {
    ($type:ty, |$this:ident| $owner:expr) => {
        impl std::os::fd::AsFd for $type {
            fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
                let $this = self;
                $owner.as_fd()
            }
        }

        impl std::os::fd::AsRawFd for $type {
            fn as_raw_fd(&self) -> std::os::fd::RawFd {
                std::os::fd::AsRawFd::as_raw_fd(&std::os::fd::AsFd::as_fd(self))
            }
        }

        impl std::os::fd::IntoRawFd for $type {
            fn into_raw_fd(self) -> std::os::fd::RawFd {
                std::os::fd::OwnedFd::from(self).into_raw_fd()
            }
        }
    };
}
pub use fd_traits;

/// Implements `FromRawFd` for a type that converts from `OwnedFd`.
#[macro_export]
macro_rules! from_raw_fd {
    ($type:ty) => {
        impl std::os::fd::FromRawFd for $type {
            #[allow(unsafe_code)]
            unsafe fn from_raw_fd(fd: std::os::fd::RawFd) -> $type {
                // SAFETY: by the caller's contract the descriptor is open and owned.
                <$type>::from(unsafe { std::os::fd::OwnedFd::from_raw_fd(fd) })
            }
        }
    };
}
pub use from_raw_fd;

/// Implements `Read` for a type by that of references to it.
#[macro_export]
macro_rules! read_by_reference {
    ($type:ty) => {
        impl std::io::Read for $type {
            fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
                (&*self).read(buf)
            }

            fn read_vectored(
                &mut self,
                bufs: &mut [std::io::IoSliceMut<'_>],
            ) -> std::io::Result<usize> {
                (&*self).read_vectored(bufs)
            }
        }
    };
}
pub use read_by_reference;

/// Implements `Write` for a type by that of references to it.
#[macro_export]
macro_rules! write_by_reference {
    ($type:ty) => {
        impl std::io::Write for $type {
            fn write(&mut self, buf: &[u8]) -> std::io::Result<usize> {
                (&*self).write(buf)
            }

            fn write_vectored(&mut self, bufs: &[std::io::IoSlice<'_>]) -> std::io::Result<usize> {
                (&*self).write_vectored(bufs)
            }

            fn flush(&mut self) -> std::io::Result<()> {
                (&*self).flush()
            }
        }
    };
}
pub use write_by_reference;

/// Implements what a clock's time has in common with the type of the same name of `std`, which it
/// wraps.
#[macro_export]
macro_rules! time_traits {
    ($type:ident) => {
        impl std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }

        impl From<std::time::$type> for $type {
            #[inline]
            fn from(time: std::time::$type) -> $type {
                $type(time)
            }
        }

        impl From<$type> for std::time::$type {
            #[inline]
            fn from(time: $type) -> std::time::$type {
                time.0
            }
        }

        impl PartialEq<std::time::$type> for $type {
            fn eq(&self, other: &std::time::$type) -> bool {
                self.0 == *other
            }
        }

        impl PartialEq<$type> for std::time::$type {
            fn eq(&self, other: &$type) -> bool {
                *self == other.0
            }
        }

        impl PartialOrd<std::time::$type> for $type {
            fn partial_cmp(&self, other: &std::time::$type) -> Option<std::cmp::Ordering> {
                self.0.partial_cmp(other)
            }
        }

        impl PartialOrd<$type> for std::time::$type {
            fn partial_cmp(&self, other: &$type) -> Option<std::cmp::Ordering> {
                self.partial_cmp(&other.0)
            }
        }

        impl std::ops::Add<std::time::Duration> for $type {
            type Output = $type;

            /// # Panics
            ///
            /// Past the clock's range.
            fn add(self, duration: std::time::Duration) -> $type {
                $type(self.0 + duration)
            }
        }

        impl std::ops::AddAssign<std::time::Duration> for $type {
            fn add_assign(&mut self, duration: std::time::Duration) {
                *self = *self + duration;
            }
        }

        impl std::ops::Sub<std::time::Duration> for $type {
            type Output = $type;

            /// # Panics
            ///
            /// Past the clock's range.
            fn sub(self, duration: std::time::Duration) -> $type {
                $type(self.0 - duration)
            }
        }

        impl std::ops::SubAssign<std::time::Duration> for $type {
            fn sub_assign(&mut self, duration: std::time::Duration) {
                *self = *self - duration;
            }
        }
    };
}
pub use time_traits;

/// Implements `Debug` or `Display` for a type as a text, which may depend on the value. Generic
/// parameters stand before it, in brackets.
#[macro_export]
macro_rules! fmt_as {
    ($([$($param:tt)*])? $trait:ident for $type:ty, |$this:ident| $text:expr) => {
        impl<$($($param)*)?> std::fmt::$trait for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let $this = self;
                f.pad($text)
            }
        }
    };
    ($([$($param:tt)*])? $trait:ident for $type:ty, $text:expr) => {
        $crate::std_traits::fmt_as!($([$($param)*])? $trait for $type, |_this| $text);
    };
}
pub use fmt_as;

/// Implements `Debug` for a type as a struct of the named values. Two dots at the end say that it has
/// more. Generic parameters stand before it, in brackets.
#[macro_export]
macro_rules! debug_fields {
    (@$finish:ident $(($($param:tt)*))? $name:ident $(<$($arg:tt),+>)?, $this:ident,
     $($field:ident: $value:expr),+) => {
        impl $(<$($param)*>)? std::fmt::Debug for $name $(<$($arg),+>)? {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let $this = self;
                let mut fields = f.debug_struct(stringify!($name));
                $(fields.field(stringify!($field), &$value);)+
                fields.$finish()
            }
        }
    };
    ($([$($param:tt)*])? $name:ident $(<$($arg:tt),+>)?, |$this:ident|
     $($field:ident: $value:expr),+ , ..) => {
        $crate::std_traits::debug_fields!(@finish_non_exhaustive
            $(($($param)*))? $name $(<$($arg),+>)?, $this, $($field: $value),+);
    };
    ($([$($param:tt)*])? $name:ident $(<$($arg:tt),+>)?, |$this:ident|
     $($field:ident: $value:expr),+) => {
        $crate::std_traits::debug_fields!(@finish
            $(($($param)*))? $name $(<$($arg),+>)?, $this, $($field: $value),+);
    };
}
pub use debug_fields;

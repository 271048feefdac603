//! `std`'s atomics with a point before each operation.
//!
//! Two threads never run at once, so the operations themselves are `std`'s.
#![allow(unsafe_code)]
#![allow(dead_code, reason = "the types have what `std`'s have, used or not")]

pub(crate) mod sync_atomic {
    //! What `crate::loom::native::atomic` is here.

    use std::fmt;
    use std::sync::atomic as std_atomic;

    pub(crate) use crate::explore::control::fence;
    use crate::explore::control::point;
    use crate::explore::log::What;
    pub(crate) use std_atomic::{Ordering, compiler_fence};

    macro_rules! common {
        ($name:ident [$($generic:ident)?] $value:ty) => {
            impl$(<$generic>)? $name$(<$generic>)? {
                pub(crate) const fn new(value: $value) -> Self {
                    $name(std_atomic::$name::new(value))
                }

                /// The value, at no point: for the explorer's own use.
                pub(crate) fn peek(&self) -> $value {
                    self.0.load(Ordering::SeqCst)
                }

                #[inline]
                #[track_caller]
                pub(crate) fn load(&self, order: Ordering) -> $value {
                    point(What::Load);
                    self.0.load(order)
                }

                #[inline]
                #[track_caller]
                pub(crate) fn store(&self, value: $value, order: Ordering) {
                    point(What::Store);
                    self.0.store(value, order);
                }

                #[inline]
                #[track_caller]
                pub(crate) fn swap(&self, value: $value, order: Ordering) -> $value {
                    point(What::Swap);
                    self.0.swap(value, order)
                }

                #[inline]
                #[track_caller]
                pub(crate) fn compare_exchange(
                    &self,
                    current: $value,
                    new: $value,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$value, $value> {
                    point(What::Cas);
                    self.0.compare_exchange(current, new, success, failure)
                }

                /// Never fails without a cause here.
                #[inline]
                #[track_caller]
                pub(crate) fn compare_exchange_weak(
                    &self,
                    current: $value,
                    new: $value,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$value, $value> {
                    self.compare_exchange(current, new, success, failure)
                }

                #[inline]
                #[track_caller]
                pub(crate) fn fetch_update<F>(
                    &self,
                    set: Ordering,
                    fetch: Ordering,
                    mut f: F,
                ) -> Result<$value, $value>
                where
                    F: FnMut($value) -> Option<$value>,
                {
                    let mut now = self.load(fetch);
                    while let Some(next) = f(now) {
                        match self.compare_exchange(now, next, set, fetch) {
                            Ok(old) => return Ok(old),
                            Err(other) => now = other,
                        }
                    }
                    Err(now)
                }

                pub(crate) fn get_mut(&mut self) -> &mut $value {
                    self.0.get_mut()
                }

                pub(crate) fn into_inner(self) -> $value {
                    self.0.into_inner()
                }

                pub(crate) const fn as_ptr(&self) -> *mut $value {
                    self.0.as_ptr()
                }
            }

            impl$(<$generic>)? fmt::Debug for $name$(<$generic>)? {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    self.0.fmt(f)
                }
            }

            impl$(<$generic>)? Default for $name$(<$generic>)? {
                fn default() -> Self {
                    $name(Default::default())
                }
            }
        };
    }

    macro_rules! fetches {
        ($name:ident $value:ty: $($op:ident)*) => {
            impl $name {
                $(
                    #[inline]
                    #[track_caller]
                    pub(crate) fn $op(&self, value: $value, order: Ordering) -> $value {
                        point(What::Swap);
                        self.0.$op(value, order)
                    }
                )*
            }
        };
    }

    macro_rules! integers {
        ($($name:ident $value:ty,)*) => {$(
            #[repr(transparent)]
            pub(crate) struct $name(std_atomic::$name);
            common!($name [] $value);
            fetches!($name $value: fetch_add fetch_sub fetch_and fetch_or fetch_xor fetch_max fetch_min);

            impl $name {
                /// # Safety
                ///
                /// As in `std`.
                pub(crate) const unsafe fn from_ptr<'a>(at: *mut $value) -> &'a $name {
                    // SAFETY: by this function's contract; the type is its one field's.
                    unsafe { &*at.cast::<$name>() }
                }
            }
        )*};
    }

    integers! {
        AtomicU8 u8,
        AtomicU16 u16,
        AtomicU32 u32,
        AtomicU64 u64,
        AtomicUsize usize,
        AtomicI32 i32,
    }

    #[repr(transparent)]
    pub(crate) struct AtomicBool(std_atomic::AtomicBool);
    common!(AtomicBool [] bool);
    fetches!(AtomicBool bool: fetch_and fetch_or fetch_xor);

    #[repr(transparent)]
    pub(crate) struct AtomicPtr<T>(std_atomic::AtomicPtr<T>);
    common!(AtomicPtr [T] *mut T);
}

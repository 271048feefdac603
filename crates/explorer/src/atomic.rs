//! `std`'s atomics with a point before each operation.
//!
//! Two threads never run at once, so the operations themselves are `std`'s.
#![allow(unsafe_code)]
#![allow(missing_docs, reason = "the names mean what they mean in `std`")]

pub mod sync_atomic {
    //! The explorer's side of `loom::native::atomic` of windlass.

    use std::fmt;
    use std::sync::atomic as std_atomic;

    pub use crate::control::fence;
    use crate::control::point_at;
    use crate::lines::Use;
    use crate::log::What;
    pub use std_atomic::{Ordering, compiler_fence};

    macro_rules! common {
        ($name:ident [$($generic:ident)?] $value:ty) => {
            impl$(<$generic>)? $name$(<$generic>)? {
                pub const fn new(value: $value) -> Self {
                    $name(std_atomic::$name::new(value))
                }

                /// The value, at no point: for the explorer's own use.
                pub fn peek(&self) -> $value {
                    self.0.load(Ordering::SeqCst)
                }

                #[inline]
                #[track_caller]
                pub fn load(&self, order: Ordering) -> $value {
                    point_at(What::Load, Use::Read, self.0.as_ptr().addr());
                    self.0.load(order)
                }

                #[inline]
                #[track_caller]
                pub fn store(&self, value: $value, order: Ordering) {
                    let how = match order {
                        Ordering::SeqCst => Use::Rmw,
                        _ => Use::Store,
                    };
                    point_at(What::Store, how, self.0.as_ptr().addr());
                    self.0.store(value, order);
                }

                #[inline]
                #[track_caller]
                pub fn swap(&self, value: $value, order: Ordering) -> $value {
                    point_at(What::Swap, Use::Rmw, self.0.as_ptr().addr());
                    self.0.swap(value, order)
                }

                #[inline]
                #[track_caller]
                pub fn compare_exchange(
                    &self,
                    current: $value,
                    new: $value,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$value, $value> {
                    point_at(What::Cas, Use::Rmw, self.0.as_ptr().addr());
                    self.0.compare_exchange(current, new, success, failure)
                }

                /// Never fails without a cause here.
                #[inline]
                #[track_caller]
                pub fn compare_exchange_weak(
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
                pub fn fetch_update<F>(
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

                pub fn get_mut(&mut self) -> &mut $value {
                    self.0.get_mut()
                }

                pub fn into_inner(self) -> $value {
                    self.0.into_inner()
                }

                pub const fn as_ptr(&self) -> *mut $value {
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
                    pub fn $op(&self, value: $value, order: Ordering) -> $value {
                        point_at(What::Swap, Use::Rmw, self.0.as_ptr().addr());
                        self.0.$op(value, order)
                    }
                )*
            }
        };
    }

    macro_rules! integers {
        ($($name:ident $value:ty,)*) => {$(
            #[repr(transparent)]
            pub struct $name(std_atomic::$name);
            common!($name [] $value);
            fetches!($name $value: fetch_add fetch_sub fetch_and fetch_or fetch_xor fetch_max fetch_min);

            impl $name {
                /// # Safety
                ///
                /// As in `std`.
                pub const unsafe fn from_ptr<'a>(at: *mut $value) -> &'a $name {
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
    pub struct AtomicBool(std_atomic::AtomicBool);
    common!(AtomicBool [] bool);
    fetches!(AtomicBool bool: fetch_and fetch_or fetch_xor);

    #[repr(transparent)]
    pub struct AtomicPtr<T>(std_atomic::AtomicPtr<T>);
    common!(AtomicPtr [T] *mut T);
}

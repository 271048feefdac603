//! Values that one owner makes by and by, each found by its key.
//!
//! A value is found by the address of its key and by its type. If keys were always statics the
//! address would suffice. But the linker may merge keys that are constants, and then a value must
//! not be found as one of another type.
//!
//! A value is boxed, so it stays in place while others are added. When the owner ends, its values
//! are dropped, the youngest first. The entry of a dropped value stays until all
//! values are dropped, so a destructor that looks for it finds it destroyed.
#![allow(unsafe_code)]

use std::any::TypeId;
use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

/// The values of one owner.
#[derive(Debug)]
pub struct LocalValues {
    /// The head of the list: the one that was made last.
    values: Cell<Option<NonNull<Head>>>,
}

/// The result of [`LocalValues::find`].
#[derive(Debug)]
pub enum Lookup<T> {
    /// The address of the value.
    Value(*const T),
    /// The value was dropped, because the owner ends.
    Destroyed,
    /// There is none.
    Nothing,
}

/// The part of a value's entry that does not depend on its type.
#[derive(Debug)]
struct Head {
    /// The address of the value's key, followed by its type: see above.
    key: usize,
    type_id: TypeId,
    next: Option<NonNull<Head>>,
    is_alive: Cell<bool>,
    value: *const (),
    drop_value: unsafe fn(NonNull<Head>),
    free: unsafe fn(NonNull<Head>),
}

#[repr(C)]
struct LocalValue<T> {
    head: Head,
    value: ManuallyDrop<T>,
}

impl<T> LocalValue<T> {
    /// # Safety
    ///
    /// `at` is the head of a `LocalValue<T>` whose value was not dropped and will not be used.
    unsafe fn drop_value(at: NonNull<Head>) {
        // SAFETY: by this function's contract.
        unsafe { ManuallyDrop::drop(&mut (*at.cast::<LocalValue<T>>().as_ptr()).value) };
    }

    /// # Safety
    ///
    /// `at` is the head of a `LocalValue<T>` made by [`LocalValues::insert`], to be used no
    /// more.
    unsafe fn free(at: NonNull<Head>) {
        // SAFETY: by this function's contract; `ManuallyDrop` does not drop the value again.
        drop(unsafe { Box::from_raw(at.cast::<LocalValue<T>>().as_ptr()) });
    }
}

impl LocalValues {
    /// No values.
    #[inline(always)]
    pub const fn new() -> LocalValues {
        LocalValues {
            values: Cell::new(None),
        }
    }

    /// Finds the value of the key of type `T` at `key`.
    #[inline]
    pub fn find<T: 'static>(&self, key: usize) -> Lookup<T> {
        let mut at = self.values.get();
        // SAFETY: entries in the list are freed only by `end`, which unlinks them first.
        while let Some(head) = at.map(|p| unsafe { p.as_ref() }) {
            if head.key == key && head.type_id == TypeId::of::<T>() {
                return match head.is_alive.get() {
                    true => Lookup::Value(head.value.cast()),
                    false => Lookup::Destroyed,
                };
            }
            at = head.next;
        }
        Lookup::Nothing
    }

    /// Adds the value of the key of type `T` at `key`, which has none, and returns its address: it
    /// stays there until [`LocalValues::end`].
    pub fn insert<T: 'static>(&self, key: usize, value: T) -> *const T {
        let place = Box::into_raw(Box::new(LocalValue {
            head: Head {
                key,
                type_id: TypeId::of::<T>(),
                next: self.values.get(),
                is_alive: Cell::new(true),
                value: std::ptr::null(),
                drop_value: LocalValue::<T>::drop_value,
                free: LocalValue::<T>::free,
            },
            value: ManuallyDrop::new(value),
        }));
        // SAFETY: the entry was just made, and no other code has its address.
        let value = unsafe {
            let value = (&raw const (*place).value).cast::<T>();
            (*place).head.value = value.cast();
            value
        };
        self.values.set(NonNull::new(place.cast()));
        value
    }

    /// Drops all values, the youngest first, and those that destructors add meanwhile. Never
    /// unwinds: the panic hook has reported a destructor's panic already.
    ///
    /// A destructor may call it, too: that drops the values that are left, and the one being dropped stays in place.
    #[inline]
    pub fn end(&self) {
        if self.values.get().is_some() {
            self.end_values();
        }
    }

    #[cold]
    fn end_values(&self) {
        // Dead entries are in the list only while a call is under way. That call frees them, when the destructor
        // that has called this one has returned.
        let is_nested = self.first(|head| !head.is_alive.get()).is_some();
        while let Some(head) = self.first(|head| head.is_alive.get()) {
            // SAFETY: entries in the list are freed only below.
            let place = unsafe { head.as_ref() };
            place.is_alive.set(false);
            // SAFETY: the value was alive until here, and can no longer be found.
            let drop_value = || unsafe { (place.drop_value)(head) };
            if let Err(payload) = catch_unwind(AssertUnwindSafe(drop_value)) {
                // The payload may have a destructor that panics, too; that panic is ignored.
                let drop_payload = AssertUnwindSafe(|| drop(payload));
                catch_unwind(drop_payload).unwrap_or_else(std::mem::forget);
            }
        }
        if is_nested {
            return;
        }
        let mut at = self.values.take();
        while let Some(head) = at {
            // SAFETY: no value is left, and the entries can no longer be found.
            unsafe {
                at = head.as_ref().next;
                (head.as_ref().free)(head);
            }
        }
    }

    /// The youngest entry for which `is_it` holds.
    fn first(&self, is_it: impl Fn(&Head) -> bool) -> Option<NonNull<Head>> {
        let mut at = self.values.get();
        while let Some(head) = at {
            // SAFETY: as in `find`.
            let place = unsafe { head.as_ref() };
            if is_it(place) {
                break;
            }
            at = place.next;
        }
        at
    }
}

impl Drop for LocalValues {
    #[inline]
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::rc::Rc;

    struct Says(Rc<RefCell<Vec<u32>>>, u32);

    impl Drop for Says {
        fn drop(&mut self) {
            self.0.borrow_mut().push(self.1);
        }
    }

    #[test]
    fn the_youngest_goes_first_and_each_once() {
        let said = Rc::default();
        let own = LocalValues::new();
        for i in 1..=3 {
            own.insert(i, Says(Rc::clone(&said), i as u32));
        }
        assert!(matches!(own.find::<Says>(2), Lookup::Value(_)));
        assert!(matches!(own.find::<Says>(9), Lookup::Nothing));
        own.end();
        assert!(matches!(own.find::<Says>(2), Lookup::Nothing));
        drop(own);
        assert_eq!(*said.borrow(), [3, 2, 1]);
    }

    /// Ends the values to which it belongs, and then says whether it is as it was.
    struct Ends(Rc<LocalValues>, Says, [u8; 32]);

    impl Drop for Ends {
        fn drop(&mut self) {
            self.0.end();
            // The allocator would give the place of this value to the next one that asks for as much.
            let others: [_; 4] = std::array::from_fn(|_| {
                let bytes = [0xaa_u8; size_of::<LocalValue<Ends>>()];
                std::hint::black_box(Box::new(bytes))
            });
            let is_kept = std::hint::black_box(&self.2).iter().all(|&byte| byte == 7);
            self.1.0.borrow_mut().push(u32::from(is_kept) * 100);
            drop(others);
        }
    }

    #[test]
    fn a_destructor_that_ends_them_all_keeps_its_own_place() {
        let said = Rc::default();
        let own = Rc::new(LocalValues::new());
        let says = |n| Says(Rc::clone(&said), n);
        own.insert(1, says(1));
        own.insert(2, Ends(Rc::clone(&own), says(2), [7; 32]));
        own.insert(3, says(3));
        own.end();
        assert_eq!(*said.borrow(), [3, 1, 100, 2]);
        assert!(matches!(own.find::<Ends>(2), Lookup::Nothing));
        assert_eq!(Rc::strong_count(&own), 1);
    }

    #[test]
    fn a_value_stays_where_it_is() {
        let own = LocalValues::new();
        let first = own.insert(1, 11_u64);
        (2..50).for_each(|i| {
            own.insert(i, [0_u8; 100]);
        });
        let Lookup::Value(found) = own.find::<u64>(1) else {
            panic!("the first is gone")
        };
        assert_eq!(found, first);
        // SAFETY: the value lives until `own` ends.
        assert_eq!(unsafe { *first }, 11);
    }

    /// Keys that are constants may have the same address.
    #[test]
    fn a_value_is_not_found_as_one_of_another_type() {
        let own = LocalValues::new();
        own.insert(1, 0x4141_u64);
        assert!(matches!(own.find::<String>(1), Lookup::Nothing));
        own.insert(1, "a string".to_owned());
        let (Lookup::Value(number), Lookup::Value(string)) = (own.find::<u64>(1), own.find(1))
        else {
            panic!("one of them is gone")
        };
        // SAFETY: both live until `own` ends.
        let (number, string): (u64, &String) = unsafe { (*number, &*string) };
        assert_eq!((number, string.as_str()), (0x4141, "a string"));
    }
}

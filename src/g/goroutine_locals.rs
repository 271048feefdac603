//! The data that a goroutine owns besides its stack while its code runs: the values of its task-locals, and
//! the scope of its current context.
//!
//! A goroutine that uses neither pays two stores: while the code runs, the payload in the G slot is
//! empty, and this struct lies there (`g::header`). Each plain thread has one too
//! (`sched::types::current`).
//!
//! A value is found by the address of its key and by its type. If keys were always statics the
//! address would suffice. But the linker may merge keys that are constants, and then a value must
//! not be found as one of another type.
//!
//! A value is boxed, so it stays in place while others are added. When the owner ends, its values
//! are dropped on its own stack, the youngest first. The entry of a dropped value stays until all
//! values are dropped, so a destructor that looks for it finds it destroyed.
#![allow(unsafe_code)]

use std::any::TypeId;
use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

/// The task-locals of one goroutine. Only its own code accesses them.
#[derive(Debug)]
pub(crate) struct GoroutineLocals {
    /// The innermost scope of the current context, null for none: see `g::cancel_wait`.
    cancel_scope: Cell<*const ()>,
    /// The head of the list of values: the one that was made last.
    values: Cell<Option<NonNull<Head>>>,
    /// The number of polls on the stack: calls of `block_on`, and the poll of a goroutine for a future.
    pub(crate) n_polling: Cell<u32>,
    /// Where the number of the goroutine is that holds the lock which this one waits for, null for none. A dump reads it
    /// while it holds the wait.
    #[cfg(feature = "lock-owners")]
    pub(crate) waits_for: Cell<*const crate::loom::native::atomic::AtomicU64>,
    /// The list of the handles that may end its wait (`sync::tag`); empty if it does not wait for such. The leak profile reads
    /// it while it holds the wait.
    #[cfg(feature = "leaks")]
    pub(crate) wanted: Cell<*const [usize]>,
}

/// The result of [`GoroutineLocals::find`].
#[derive(Debug)]
pub(crate) enum Lookup<T> {
    /// The address of the value.
    Value(*const T),
    /// The value was dropped, because the owner ends.
    Destroyed,
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
    /// `at` is the head of a `LocalValue<T>` made by [`GoroutineLocals::insert`], to be used no
    /// more.
    unsafe fn free(at: NonNull<Head>) {
        // SAFETY: by this function's contract; `ManuallyDrop` does not drop the value again.
        drop(unsafe { Box::from_raw(at.cast::<LocalValue<T>>().as_ptr()) });
    }
}

impl GoroutineLocals {
    #[inline(always)]
    pub(crate) const fn new() -> GoroutineLocals {
        GoroutineLocals {
            cancel_scope: Cell::new(std::ptr::null()),
            values: Cell::new(None),
            n_polling: Cell::new(0),
            #[cfg(feature = "lock-owners")]
            waits_for: Cell::new(std::ptr::null()),
            #[cfg(feature = "leaks")]
            wanted: Cell::new(&[]),
        }
    }

    /// The innermost scope of the current context.
    #[inline(always)]
    pub(crate) fn cancel_scope(&self) -> *const () {
        self.cancel_scope.get()
    }

    pub(crate) fn set_cancel_scope(&self, frame: *const ()) {
        self.cancel_scope.set(frame);
    }

    /// Finds the value of the key of type `T` at `key`.
    #[inline]
    pub(crate) fn find<T: 'static>(&self, key: usize) -> Lookup<T> {
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
    /// stays there until [`GoroutineLocals::end`].
    pub(crate) fn insert<T: 'static>(&self, key: usize, value: T) -> *const T {
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
    #[inline]
    pub(crate) fn end(&self) {
        if self.values.get().is_some() {
            self.end_values();
        }
    }

    #[cold]
    fn end_values(&self) {
        while let Some(head) = self.youngest_alive() {
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
        let mut at = self.values.take();
        while let Some(head) = at {
            // SAFETY: no value is left, and the entries can no longer be found.
            unsafe {
                at = head.as_ref().next;
                (head.as_ref().free)(head);
            }
        }
    }

    fn youngest_alive(&self) -> Option<NonNull<Head>> {
        let mut at = self.values.get();
        while let Some(head) = at {
            // SAFETY: as in `find`.
            let place = unsafe { head.as_ref() };
            if place.is_alive.get() {
                break;
            }
            at = place.next;
        }
        at
    }
}

impl Drop for GoroutineLocals {
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
        let own = GoroutineLocals::new();
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

    #[test]
    fn a_value_stays_where_it_is() {
        let own = GoroutineLocals::new();
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
        let own = GoroutineLocals::new();
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

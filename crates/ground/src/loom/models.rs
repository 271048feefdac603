//! Runs models of protocols (the files `*_loom_tests.rs`), by loom or by Miri.
//!
//! loom runs a model in every interleaving. Miri runs it with the real atomics, some times for each seed:
//! it draws the interleaving and the value of each weak load, and sees more than loom: plain
//! memory, references, and accesses that are sequentially consistent.

#[cfg(loom)]
pub use ::loom::{
    cell::UnsafeCell,
    model as run,
    sync::{Arc, atomic},
    thread,
};

#[cfg(miri)]
pub use super::native::{Arc, atomic};

/// How often Miri runs a model with one seed. Each time it draws anew.
#[cfg(miri)]
const RUNS: usize = 3;

/// Runs a model.
#[cfg(miri)]
pub fn run(model: impl Fn()) {
    (0..RUNS).for_each(|_| model());
}

#[cfg(miri)]
pub mod thread {
    //! `std`'s threads with loom's signatures.
    #![allow(unsafe_code)]

    pub use super::super::native::thread::yield_now;
    use super::super::native::thread::{self, Builder};

    /// A value that goes to another thread. Miri reports the accesses that make this wrong.
    struct Sent<T>(T);

    // SAFETY: models share values as the code that they model does, and Miri checks each access.
    unsafe impl<T> Send for Sent<T> {}

    impl<T> Sent<T> {
        fn get(self) -> T {
            self.0
        }
    }

    pub struct JoinHandle<T>(thread::JoinHandle<Sent<T>>);

    pub fn spawn<T: 'static>(f: impl FnOnce() -> T + 'static) -> JoinHandle<T> {
        let f = Sent(f);
        let thread = Builder::new().spawn(move || Sent(f.get()()));
        JoinHandle(thread.expect("Miri can start threads"))
    }

    impl<T> JoinHandle<T> {
        pub fn join(self) -> std::thread::Result<T> {
            self.0.join().map(Sent::get)
        }
    }
}

/// A cell of which each visit is an access, as in loom.
#[cfg(miri)]
#[derive(Debug)]
pub struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(miri)]
#[allow(unsafe_code)]
impl<T: Copy> UnsafeCell<T> {
    pub fn new(value: T) -> UnsafeCell<T> {
        UnsafeCell(std::cell::UnsafeCell::new(value))
    }

    pub fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        // SAFETY: Miri reports a read that is concurrent with a write.
        std::hint::black_box(unsafe { *self.0.get() });
        f(self.0.get())
    }

    pub fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        // SAFETY: Miri reports concurrent accesses.
        unsafe { *self.0.get() = *self.0.get() };
        f(self.0.get())
    }
}

//! The promise that runtimes and simulations need, as a value.
#![allow(unsafe_code)]

/// The promise of docs/SAFETY.md as a value, for simulations and attributes.
///
/// A crate makes it once, as a constant in its root with the name `PROMISE`. Simulations take the
/// constant (`sim::Sim::new`, `sim::check`). The attributes `#[windlass::main]` and
/// `#[windlass::test]` find it there, and need no promise of their own then.
///
/// It covers the code that the crate runs under it. Keep the constant private: code of another
/// crate that uses it would need no promise.
///
/// # Examples
///
/// ```standalone_crate
/// // SAFETY: nothing of a thread is kept across a call into windlass.
/// const PROMISE: windlass::Promise = unsafe { windlass::Promise::no_thread_local_across_waits() };
///
/// #[windlass::main]
/// fn main() {
///     windlass::yield_now();
/// }
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use = "a simulation or an attribute takes it"]
pub struct Promise(());

impl Promise {
    /// Makes the promise.
    ///
    /// # Safety
    ///
    /// The contract is that of [`Builder::build`](crate::Builder::build), for all goroutines of all
    /// runtimes and simulations that are made with this value. It holds in simulations, too: their
    /// goroutines stay on one thread, but take turns on it at each call.
    ///
    /// # Examples
    ///
    /// See [`Promise`].
    pub const unsafe fn no_thread_local_across_waits() -> Promise {
        Promise(())
    }
}

//! The module that suites use in place of threads when they run on goroutines: the names of
//! `std::thread` and of `crossbeam_utils::thread`, over windlass.

use std::panic::resume_unwind;
use std::sync::OnceLock;

use windlass::{Builder, Handle};

/// The functions of a thread: one of the tests drops a long chain of channels.
const STACK_BYTES: usize = 2 << 20;

/// Runs a test as a goroutine. All tests of a program share one runtime.
///
/// # Panics
///
/// With the test's panic.
pub fn run(test: fn()) {
    if let Err(panic) = handle().spawn(test).join() {
        resume_unwind(panic);
    }
}

/// The runtime, which lives until the process ends.
#[expect(unsafe_code, reason = "a runtime is built by an unsafe fn")]
fn handle() -> &'static Handle {
    static HANDLE: OnceLock<Handle> = OnceLock::new();
    HANDLE.get_or_init(|| {
        let builder = Builder::new().stack_size(STACK_BYTES);
        // SAFETY: the suites keep no borrow of a thread-local across a call that parks.
        let runtime = unsafe { builder.build() }.expect("the suites need io_uring");
        let handle = runtime.handle();
        std::thread::spawn(move || {
            runtime.run(|| {
                loop {
                    windlass::task::park()
                }
            })
        });
        handle
    })
}

/// As `std::thread`, on goroutines.
pub mod thread {
    pub use std::thread::{Result, panicking};
    pub use windlass::sleep;
    pub use windlass::task::{JoinHandle, current, park, spawn, yield_now};
}

/// As `crossbeam_utils::thread`, on goroutines.
pub mod scoped {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use windlass::task::ScopedJoinHandle;

    /// Starts goroutines that borrow from outside.
    #[derive(Debug)]
    pub struct Scope<'scope, 'env>(&'scope windlass::task::Scope<'scope, 'env>);

    /// Waits for the goroutines that `f` starts.
    ///
    /// # Errors
    ///
    /// The panic of `f`, or one that says that a goroutine panicked.
    pub fn scope<'env, F, T>(f: F) -> std::thread::Result<T>
    where
        F: for<'scope> FnOnce(&Scope<'scope, 'env>) -> T,
    {
        catch_unwind(AssertUnwindSafe(|| {
            windlass::scope(|scope| f(&Scope(scope)))
        }))
    }

    impl<'scope, 'env> Scope<'scope, 'env> {
        /// Starts a goroutine.
        pub fn spawn<F, T>(&self, f: F) -> ScopedJoinHandle<'scope, T>
        where
            F: FnOnce(&Scope<'scope, 'env>) -> T + Send + 'scope,
            T: Send + 'scope,
        {
            let scope = self.0;
            scope.spawn(move || f(&Scope(scope)))
        }
    }
}

//! The attributes `main` and `test` of the goroutine runtime windlass.
//!
//! windlass re-exports them with its feature `macros`, which is on by default. They are written
//! `#[windlass::main(..)]` and `#[windlass::test(..)]`.

mod error;
mod expand;
mod function;
mod options;

use proc_macro::TokenStream;

use options::Kind;

/// Makes `main` the main goroutine of a runtime.
///
/// ```
/// use windlass::net::TcpListener;
///
/// #[windlass::main(unsafe(no_thread_local_across_waits))]
/// fn main() -> std::io::Result<()> {
///     let listener = TcpListener::bind("127.0.0.1:0")?;
///     println!("{}", listener.local_addr()?);
///     Ok(())
/// }
/// ```
///
/// The function may return whatever `main` may return. When it returns, the other goroutines are
/// cancelled, as `Runtime::run` says. If the runtime cannot be built, the program prints the reason
/// on stderr and exits with status 1.
///
/// # The promise
///
/// `Builder::build` is `unsafe`, and `unsafe(no_thread_local_across_waits)` is its promise. It says: in
/// every goroutine of the program, across every call into windlass,
///
/// - no borrow of a thread-local is alive (inside `LocalKey::with`, or an address taken from one);
/// - no value is alive that is not `Send` and is shared, through a thread-local, with other code of
///   the same thread;
/// - no scope is open that changed a thread-local and restores it at its end, and no handle of the
///   current `std` thread is kept.
///
/// The reason is that a goroutine may continue on another thread after each such call, which the
/// compiler does not know. windlass's docs/SAFETY.md has an example of each hazard, and what to
/// write instead. The lint `unsafe_code` reports the word `unsafe` in the attribute as it reports an
/// `unsafe` block.
///
/// A crate with many attributes makes the promise once, as the constant `PROMISE` in its root. Then
/// the attributes need no words:
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
///
/// # Options
///
/// They are separated by commas, and may stand before or after the promise.
///
/// - The setters of `Builder`: `processors = 4`, `stack_size = 1 << 20`, `name = "app"`,
///   `pin = false`, `shutdown_timeout = Duration::from_secs(10)` and the others. Setters that take a
///   `bool` may stand alone: `require_io_uring`, `deadlock_detection`.
/// - `builder = expression`: the `Builder` to start from, for settings that are read at run time. The
///   setters are called on it.
/// - `hook`: installs the crate windlass-hook first, which must be a dependency, so that `std`'s own
///   sockets and sleeps park goroutines. The promise then covers its functions, too, and has to be
///   in the attribute. `hook = path` if the crate has another name.
/// - `crate = path`: where windlass is, if not at `::windlass`.
///
/// A value is any expression. One with a comma outside brackets, as in `f::<A, B>()`, needs
/// parentheses around it.
///
/// ```
/// # use windlass as goroutines;
/// use std::time::Duration;
///
/// #[goroutines::main(
///     unsafe(no_thread_local_across_waits),
///     builder = settings(),
///     name = "app",
///     deadlock_detection,
///     shutdown_timeout = Duration::from_secs(10),
///     crate = goroutines,
/// )]
/// fn main() {
///     assert_eq!(goroutines::spawn(|| 6 * 7).join().unwrap(), 42);
/// }
///
/// fn settings() -> goroutines::Builder {
///     goroutines::Builder::new().processors(2)
/// }
/// ```
///
/// # Errors
///
/// The attribute does not compile without the promise, in it or in the root of the crate:
///
/// ```compile_fail
/// #[windlass::main]
/// fn main() {}
/// ```
///
/// nor in front of an `async fn`, a function with arguments or generics, or one that is not `main`:
///
/// ```compile_fail
/// #[windlass::main(unsafe(no_thread_local_across_waits))]
/// async fn main() {}
/// ```
///
/// ```compile_fail
/// #[windlass::main(unsafe(no_thread_local_across_waits))]
/// fn main(arguments: Vec<String>) {}
/// ```
///
/// nor with an unknown option:
///
/// ```compile_fail
/// #[windlass::main(unsafe(no_thread_local_across_waits), worker_threads = 2)]
/// fn main() {}
/// ```
///
/// # Panics
///
/// The program panics where `Builder::build` and `Runtime::run` do, and with the function's panic.
///
/// # Blocking
///
/// The written `main` blocks its thread, which is the first that runs goroutines, until the run has
/// ended.
#[proc_macro_attribute]
pub fn main(args: TokenStream, item: TokenStream) -> TokenStream {
    expand::expand(Kind::Main, args, item)
}

/// Makes a function a test that runs as the main goroutine of a runtime, or in a simulation.
///
/// ```
/// #[windlass::test(unsafe(no_thread_local_across_waits))]
/// fn a_goroutine_answers() {
///     let (tx, rx) = windlass::channel::bounded(0);
///     windlass::spawn(move || tx.send(7).unwrap());
///     assert_eq!(rx.recv(), Ok(7));
/// }
///
/// #[windlass::test(sim, seeds = 20, unsafe(no_thread_local_across_waits))]
/// fn whatever_the_schedule() -> Result<(), std::io::Error> {
///     windlass::sleep(std::time::Duration::from_secs(3600)); // virtual: takes microseconds
///     Ok(())
/// }
/// ```
///
/// `#[test]` is part of it. Other attributes stay in effect: `#[ignore]`, `#[should_panic]`,
/// `#[cfg(..)]`, `#[allow(..)]`. The function may return what a test may return, a `Result` for
/// example.
///
/// # On a runtime
///
/// The promise and the options are those of `#[windlass::main]`. The defaults differ:
///
/// - 2 processors, unless `processors` or the environment variable `WINDLASS_PROCS` says otherwise,
///   and `pin = false`, because a test harness runs several tests at once. With `builder = ..` both
///   are as that builder says.
/// - `deadlock_detection` is on. When all goroutines wait, and nothing is left that could wake one,
///   the process ends with status 2, after `fatal error: all goroutines are asleep - deadlock!`
///   and a dump of the goroutines. This happens after all other tests have ended, because their threads
///   might still wake a goroutine; a second test that is stuck, too, is reported together with the
///   first. `deadlock_detection = false` or `WINDLASS_DEBUG=deadlock=0` turns it off.
///
/// # In a simulation
///
/// With `sim` the function runs under `windlass::sim::Sim` (windlass's feature `sim`), once for each
/// of many seeds, in virtual time. The promise is the same: all goroutines stay on one thread, but
/// take turns on it at each call. The options are the setters of `Sim`: `seeds = 20`, `seed`, `steps`,
/// `strategy`, `link`, `faults`, `disk`, `no_goroutines_left`, `no_descriptors_left`,
/// `no_messages_left`, `may_panic`, `replay`, `trace`; and `crate`.
///
/// # Errors
///
/// The test does not compile without the promise, in the attribute or in the root of the crate; nor
/// with an option that is unknown or out of place:
///
/// ```compile_fail
/// #[windlass::test(seeds = 3, unsafe(no_thread_local_across_waits))]
/// fn has_seeds_without_a_simulation() {}
/// # fn main() {}
/// ```
///
/// # Panics
///
/// The test panics if the runtime cannot be built, and with the function's panic.
///
/// # Blocking
///
/// The test blocks its thread, on which the first goroutine begins, until the run has ended.
#[proc_macro_attribute]
pub fn test(args: TokenStream, item: TokenStream) -> TokenStream {
    expand::expand(Kind::Test, args, item)
}

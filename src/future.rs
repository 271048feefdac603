//! Futures on goroutines: wait for a future in blocking code, or run one on its own goroutine.
//!
//! This module has no reactor and no executor. A goroutine that waits for a future parks, and the
//! future's waker makes it runnable. Futures that do not depend on an executor (channels, locks,
//! the combinators of `futures`) work unchanged. Futures that use tokio's reactor or timers need a
//! tokio runtime around them.
#![allow(unsafe_code)]

use std::mem::ManuallyDrop;
use std::panic::Location;
use std::pin::{Pin, pin};
use std::ptr::NonNull;
use std::sync::Arc;
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Wake, Waker};
use std::time::Duration;

use crate::g::header::{GRef, Header, OffStack, Step, Steps};
use crate::g::status::WakeKind;
use crate::loom::native::atomic::{AtomicBool, Ordering};
use crate::loom::thread::Thread;
use crate::sched::types::current;
use crate::sched::wait::park::{self, Caller};
use crate::sched::wait::points;
use crate::sched::wait::spawn::TaskRef;
use crate::sched::wait::turn;
use crate::sys::clock::NEVER;
use crate::task::{self, JoinHandle};
use crate::util::ladder;

/// Waits for `future` and returns its output.
///
/// May be called inside a future. It then blocks the goroutine that polls this future.
///
/// # Blocking
///
/// Parks the goroutine between two polls; blocks a plain thread. Unwinds and drops the future if
/// the goroutine's runtime ends. The ambient context ([`context`](crate::context)) does not end
/// this wait, because there would be no output to return. It does end waits inside the future.
///
/// # Panics
///
/// With the future's panic.
///
/// # Examples
///
/// ```
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
/// let sum = rt.run(|| {
///     let task = windlass::future::spawn(async { 40 });
///     windlass::future::block_on(async { task.join().unwrap() + 2 })
/// });
/// assert_eq!(sum, 42);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn block_on<F: IntoFuture>(future: F) -> F::Output {
    let mut future = pin!(future.into_future());
    // Wakers may outlive this call: each clone holds a counted reference.
    match park::caller() {
        Caller::Goroutine(g) => {
            let waker = goroutine_waker(g);
            let _polling = Polling::begin(g);
            loop {
                points::switch_point();
                if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker))
                {
                    return output;
                }
                if park::park_polling(g).is_err() {
                    unreachable!("who unwinds waits as a thread does");
                }
            }
        }
        Caller::Thread => {
            let signal = Arc::new(Signal::here());
            let waker = Waker::from(Arc::clone(&signal));
            loop {
                if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker))
                {
                    return output;
                }
                signal.wait();
            }
        }
    }
}

/// Spawns a goroutine that waits for `future`, and returns its join handle.
///
/// The goroutine has a stack while it polls, so the future may call functions that park it. Between
/// two polls it has none, and costs 256 bytes beside a future that is larger than 48 bytes. A poll for
/// which there is no stack ends it, with the reason as its panic.
///
/// # Blocking
///
/// Never.
///
/// # Panics
///
/// If called outside the runtime.
///
/// # Examples
///
/// ```
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
/// let answer = rt.run(|| windlass::future::spawn(async { 42 }).join().unwrap());
/// assert_eq!(answer, 42);
/// # Ok::<(), std::io::Error>(())
/// ```
#[track_caller]
pub fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    task::spawn_at(Steps(Polls(future)), Location::caller())
}

/// A future that is polled on a stack of its goroutine, which has none between two polls.
struct Polls<F>(F);

impl<F: Future> Step for Polls<F> {
    type Output = F::Output;

    fn step(self: Pin<&mut Self>, g: GRef) -> Result<F::Output, OffStack> {
        points::switch_point();
        // This poll sees what wakers have done so far.
        g.token.take(WakeKind::Poll);
        let _polling = Polling::begin(g);
        // SAFETY: as in `goroutine_waker`, but this waker has no reference, and is not dropped: the
        // goroutine lives while it polls.
        let waker = ManuallyDrop::new(unsafe { Waker::from_raw(raw(g)) });
        // SAFETY: the field does not move while `self` does not.
        let future = unsafe { self.map_unchecked_mut(|polls| &mut polls.0) };
        match future.poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => Ok(output),
            Poll::Pending => Err(park::polled()),
        }
    }
}

/// Counts the calls of `block_on` on the goroutine's stack.
struct Polling(GRef);

impl Polling {
    fn begin(g: GRef) -> Polling {
        // SAFETY: only the running goroutine `g` executes this code.
        let n = unsafe { &g.locals().n_polling };
        n.set(n.get() + 1);
        Polling(g)
    }
}

impl Drop for Polling {
    fn drop(&mut self) {
        // SAFETY: as above.
        let n = unsafe { &self.0.locals().n_polling };
        n.set(n.get() - 1);
        if n.get() > 0 {
            // This call may have consumed a wake for the outer call, so wake the outer one.
            park::give(self.0, WakeKind::Poll);
        }
    }
}

/// Creates a waker that gives the goroutine its token. It is the G's address and a counted
/// reference; it allocates nothing.
fn goroutine_waker(g: GRef) -> Waker {
    let task = ManuallyDrop::new(TaskRef::retain(g));
    // SAFETY: the functions of the vtable below meet the contract of `RawWaker`; the waker owns the
    // reference that was counted here.
    unsafe { Waker::from_raw(raw(task.g())) }
}

fn raw(g: GRef) -> RawWaker {
    const VTABLE: RawWakerVTable = RawWakerVTable::new(clone_raw, wake_raw, wake_by_ref, drop_raw);
    RawWaker::new(g.as_ptr().cast_const().cast(), &VTABLE)
}

/// # Safety
///
/// `data` is from a waker that was made by [`goroutine_waker`] or cloned from one. The waker holds
/// a counted reference to the goroutine.
unsafe fn g_of(data: *const ()) -> GRef {
    let header = data.cast_mut().cast::<Header>();
    // SAFETY: by this function's contract, `data` is the address of a live G.
    unsafe { GRef::from_raw(NonNull::new_unchecked(header)) }
}

/// # Safety
///
/// As [`g_of`].
unsafe fn clone_raw(data: *const ()) -> RawWaker {
    // SAFETY: by this function's contract.
    let g = unsafe { g_of(data) };
    g.retain();
    raw(g)
}

/// # Safety
///
/// As [`g_of`]. The call consumes the waker's reference.
unsafe fn wake_raw(data: *const ()) {
    // SAFETY: by this function's contract.
    unsafe {
        wake_by_ref(data);
        drop_raw(data);
    }
}

/// # Safety
///
/// As [`g_of`].
unsafe fn wake_by_ref(data: *const ()) {
    // SAFETY: by this function's contract.
    park::give(unsafe { g_of(data) }, WakeKind::Poll);
}

/// # Safety
///
/// As [`g_of`]. The call consumes the waker's reference.
unsafe fn drop_raw(data: *const ()) {
    // SAFETY: by this function's contract the waker holds a counted reference.
    drop(TaskRef::from_counted(unsafe { g_of(data) }));
}

/// The waker of a plain thread.
struct Signal {
    thread: Thread,
    /// Ordering: set with release before the thread is unparked, taken with acquire.
    is_set: AtomicBool,
}

impl Signal {
    fn here() -> Signal {
        Signal {
            thread: crate::loom::thread::current(),
            is_set: AtomicBool::new(false),
        }
    }

    /// Blocks the thread until the waker is called.
    #[allow(
        clippy::disallowed_methods,
        reason = "here a thread waits, not a goroutine"
    )]
    fn wait(&self) {
        while !self.is_set.swap(false, Ordering::Acquire) {
            if current::g().is_none() {
                crate::loom::thread::park();
            } else if !turn::block_thread(NEVER) {
                // In a blocking section, the end of a run does not unpark this thread, so poll
                // for it.
                crate::loom::thread::park_timeout(Duration::from_nanos(ladder::LATE_NS));
                let _ = points::cancel_point();
            }
        }
    }
}

impl Wake for Signal {
    fn wake(self: Arc<Signal>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Signal>) {
        self.is_set.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

//! Futures on goroutines: wait for one in plain code, or give one a goroutine of its own.
//!
//! There is no reactor and no executor here. A goroutine that waits for a future parks,
//! and the future's waker makes it runnable: so futures of crates that bring their own
//! wakers (channels, locks, `futures`' combinators) work as they are. Futures that need
//! tokio's reactor or timers need a tokio runtime around them.
#![allow(unsafe_code)]

use std::mem::ManuallyDrop;
use std::panic::Location;
use std::pin::pin;
use std::ptr::NonNull;
use std::sync::Arc;
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Wake, Waker};
use std::time::Duration;

use crate::g::header::{GRef, Header};
use crate::g::status::For;
use crate::loom::native::atomic::{AtomicBool, Ordering};
use crate::loom::thread::Thread;
use crate::sched::park::{self, Caller};
use crate::sched::spawn::TaskRef;
use crate::task::{self, JoinHandle};

/// Waits for `future`.
///
/// # Blocking
///
/// Parks the goroutine between two polls; blocks a plain thread. On a goroutine whose
/// runtime ends it unwinds, and drops the future. The ambient context
/// ([`context`](crate::context)) does not cut it short, as it has nothing to give instead;
/// but it does cut short what the future calls.
///
/// May be called while a future is polled, which then blocks its own goroutine.
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
    // What holds the waker outlives the wakers that are made from it: each counts.
    match park::caller() {
        Caller::Goroutine(g) => {
            let waker = goroutine_waker(g);
            let _polling = Polling::begin(g);
            loop {
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

/// Spawns a goroutine that waits for `future`, and gives a handle to join it.
///
/// A goroutine has a stack of its own, so this is dearer than a task of an async
/// runtime; but what the future calls may block as goroutines do.
///
/// # Blocking
///
/// Never.
///
/// # Panics
///
/// Off the runtime.
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
    task::spawn_at(move || block_on(future), Location::caller())
}

/// A call of `block_on` is on the goroutine's stack.
struct Polling(GRef);

impl Polling {
    fn begin(g: GRef) -> Polling {
        // SAFETY: the goroutine's own code runs here.
        let n = unsafe { &g.own().n_polling };
        n.set(n.get() + 1);
        Polling(g)
    }
}

impl Drop for Polling {
    fn drop(&mut self) {
        // SAFETY: as above.
        let n = unsafe { &self.0.own().n_polling };
        n.set(n.get() - 1);
        if n.get() > 0 {
            // A wake that was meant for the outer call may have been taken by this one.
            park::give(self.0, For::Poll);
        }
    }
}

/// A waker that gives the goroutine its token: an address and a count, nothing of its own.
fn goroutine_waker(g: GRef) -> Waker {
    let task = ManuallyDrop::new(TaskRef::retain(g));
    // SAFETY: the functions below do what a waker's must; the reference counted here is its data.
    unsafe { Waker::from_raw(raw(task.g())) }
}

fn raw(g: GRef) -> RawWaker {
    const VTABLE: RawWakerVTable = RawWakerVTable::new(clone_raw, wake_raw, wake_by_ref, drop_raw);
    RawWaker::new(g.as_ptr().cast_const().cast(), &VTABLE)
}

/// # Safety
///
/// `data` is that of a waker made by [`goroutine_waker`] or cloned from one, which holds a
/// reference to the goroutine.
unsafe fn g_of(data: *const ()) -> GRef {
    let header = data.cast_mut().cast::<Header>();
    // SAFETY: by this function's contract it is the address of a G.
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
/// As [`g_of`]; the waker's reference is used up.
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
    park::give(unsafe { g_of(data) }, For::Poll);
}

/// # Safety
///
/// As [`g_of`]; the waker's reference is used up.
unsafe fn drop_raw(data: *const ()) {
    // SAFETY: by this function's contract the waker holds a counted reference.
    drop(TaskRef::from_counted(unsafe { g_of(data) }));
}

/// What wakes a thread.
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

    /// Blocks the thread until somebody wakes it.
    #[allow(
        clippy::disallowed_methods,
        reason = "here a thread waits, not a goroutine"
    )]
    fn wait(&self) {
        while !self.is_set.swap(false, Ordering::Acquire) {
            if park::current_g().is_none() {
                crate::loom::thread::park();
            } else {
                // In a blocking section the end of a run wakes nobody: it is looked for.
                crate::loom::thread::park_timeout(Duration::from_nanos(park::LOOK_UP_NS));
                let _ = park::cancel_point();
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

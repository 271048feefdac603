//! `join`: two closures that may run in parallel, at the price of a function call where they do
//! not. `sched::wait::fork` says when the second one becomes a goroutine.
#![allow(unsafe_code)]

use std::any::Any;
use std::cell::UnsafeCell;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::ptr::NonNull;
use std::thread::Result;

use windlass_ground::cpu;

use crate::g::cancel_wait::ScopeChain;
use crate::g::fork::{Fork, ForkList};
use crate::sched::types::current;
use crate::sched::wait::fork::{self, AnotherStack};
use crate::sched::wait::points::{self, Cancelled};
use crate::sched::wait::spawn as make;

/// Runs two closures, if possible in parallel, and returns both results.
///
/// `a` runs on the calling goroutine, as if it was called. `b` becomes a goroutine of its own if
/// another P can run it meanwhile, or if `a` waits. Otherwise the calling goroutine runs it after
/// `a`, as a function: a call then costs a few nanoseconds instead of the price of a goroutine. So
/// divide the work as long as the parts are worth some 100 ns each; which of them run elsewhere is
/// decided while they run. The guide (docs/guide/tuning.md) compares this with [`spawn`] and
/// [`scope`].
///
/// `a` and `b` may borrow from the caller. They may wait: for I/O, locks, channels and each other.
/// When `a` parks, yields or enters a [`blocking`] section, every `b` that has not begun becomes a
/// goroutine, so `a` may wait for what its `b` does. `b` may run before, after or beside `a`.
///
/// No other way to wait for `b` is safe, because `b` may begin only after `a`: `a` may wait for ever
/// in a loop of [`checkpoint`](crate::task::checkpoint)s or without any call, in a channel or lock of
/// `std`, and in a destructor while it unwinds.
///
/// The [contexts](crate::context) and [timeouts](crate::time::timeout) around the call end the waits
/// of both closures.
///
/// Where a call runs `b` is not specified, so its task-locals, [`current`] and [`LockedThread`] may
/// be those of the caller or those of a new goroutine. Its stack is as large as the caller's.
///
/// Calls nest without limit. When the stack of the goroutine has little room left, it goes on on
/// another stack, so recursion is bounded by memory only. On a plain thread it is bounded by the
/// thread's stack, as always.
///
/// [`spawn`]: crate::task::spawn
/// [`scope`]: crate::task::scope
/// [`blocking`]: crate::task::blocking
/// [`current`]: crate::task::current
/// [`LockedThread`]: crate::task::LockedThread
///
/// # Blocking
///
/// Parks the goroutine if `b` became a goroutine that has not ended when `a` returns; also when the
/// run ends, which cancels `b`. At each call a goroutine whose P was retaken gets in line for
/// another, and now and then a call is a [`checkpoint`](crate::task::checkpoint). On a plain thread, in a
/// [`blocking`] section and while unwinding it runs `a` and then `b`.
///
/// # Panics
///
/// With the panic of `a` or, if `a` does not panic, with that of `b`. Both closures run to their
/// end in any case, except that `b` does not begin if `a` unwinds because the run ends.
///
/// # Examples
///
/// ```
/// fn sum(numbers: &[u64]) -> u64 {
///     if numbers.len() <= 1000 {
///         return numbers.iter().sum();
///     }
///     let (left, right) = numbers.split_at(numbers.len() / 2);
///     let (left, right) = windlass::join(|| sum(left), || sum(right));
///     left + right
/// }
///
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
/// let numbers: Vec<u64> = (0..100_000).collect();
/// assert_eq!(rt.run(|| sum(&numbers)), 4_999_950_000);
/// # Ok::<(), std::io::Error>(())
/// ```
#[track_caller]
#[inline]
pub fn join<A, B, RA, RB>(a: A, b: B) -> (RA, RB)
where
    A: FnOnce() -> RA + Send,
    B: FnOnce() -> RB + Send,
    RA: Send,
    RB: Send,
{
    points::end_if_late();
    join_at(a, b, Location::caller())
}

#[inline(always)]
fn join_at<A, B, RA, RB>(a: A, b: B, site: &'static Location<'static>) -> (RA, RB)
where
    A: FnOnce() -> RA,
    B: FnOnce() -> RB,
{
    let Some(m) = current::m() else {
        return in_turn(a, b);
    };
    // SAFETY: the list lies in the frame of a call of this goroutine that has not returned.
    let Some(list) = (unsafe { m.forks.get().as_ref() }) else {
        return join_first(a, b, site);
    };
    if cpu::stack_pointer() < list.lowest_sp() {
        return join_on_another_stack(list, a, b, site);
    }
    let call = Call::new(b, site, fork::scopes(m));
    // SAFETY: the goroutine owns its list. The fork stays in this frame: it is taken out before `b`
    // runs, and a promoted one is waited for; neither `is_due` nor `beat` unwinds.
    unsafe { list.push(call.fork()) };
    if fork::is_due(m) {
        fork::beat();
    }
    match catch_unwind(AssertUnwindSafe(a)) {
        Ok(ra) if !call.fork.is_promoted() => {
            // SAFETY: not promoted, so still in the list, with which the goroutine has not parked;
            // and the calls inside `a` have taken out theirs.
            unsafe { list.pop(call.fork()) };
            // SAFETY: no goroutine was made for it.
            let b = unsafe { call.take_closure() };
            (ra, b())
        }
        Ok(ra) => call.wait_beside(ra),
        Err(payload) => {
            if !call.fork.is_promoted() {
                // SAFETY: as above.
                unsafe { list.pop(call.fork()) };
            }
            call.finish_panicked(payload)
        }
    }
}

/// As [`join`], where nothing can run in parallel.
fn in_turn<A, B, RA, RB>(a: A, b: B) -> (RA, RB)
where
    A: FnOnce() -> RA,
    B: FnOnce() -> RB,
{
    match catch_unwind(AssertUnwindSafe(a)) {
        Ok(ra) => (ra, b()),
        Err(payload) => finish_panicked(payload, b),
    }
}

/// As [`join`], for a goroutine that has no list of forks.
#[cold]
#[inline(never)]
fn join_first<A, B, RA, RB>(a: A, b: B, site: &'static Location<'static>) -> (RA, RB)
where
    A: FnOnce() -> RA,
    B: FnOnce() -> RB,
{
    let Some(list) = fork::new_list() else {
        return in_turn(a, b);
    };
    let _ends = fork::begin(&list);
    join_at(a, b, site)
}

/// As [`join`], for a goroutine whose stack has little room left: it makes the call on another one.
#[cold]
#[inline(never)]
fn join_on_another_stack<A, B, RA, RB>(
    list: &ForkList,
    a: A,
    b: B,
    site: &'static Location<'static>,
) -> (RA, RB)
where
    A: FnOnce() -> RA,
    B: FnOnce() -> RB,
{
    let Ok(stack) = AnotherStack::take() else {
        if std::thread::panicking() {
            // This stack has to do.
            return in_turn(a, b);
        }
        let _ = points::cancel_point();
        panic!(
            "windlass: calls of join have used up the stack of a goroutine, and there is no memory \
             for another stack: give it more with task::Builder::stack_size, or all of them with \
             Builder::stack_size"
        )
    };
    let call = || catch_unwind(AssertUnwindSafe(|| join_at(a, b, site)));
    match stack.call(list, call) {
        Ok(both) => both,
        Err(payload) => resume_unwind(payload),
    }
}

/// `a` has panicked: runs `b`, and unwinds with the panic of `a`.
#[cold]
#[inline(never)]
fn finish_panicked<B: FnOnce() -> RB, RB>(payload: Box<dyn Any + Send>, b: B) -> ! {
    if payload.is::<Cancelled>() {
        drop_contained(b);
    } else {
        drop_outcome(catch_unwind(AssertUnwindSafe(b)));
    }
    resume_unwind(payload)
}

/// Unwinds with the panic of a closure that another goroutine ran.
#[cold]
fn unwind(payload: Box<dyn Any + Send>) -> ! {
    if payload.is::<Cancelled>() {
        // Its run has ended, and so has the caller's, which is the same.
        let _ = points::cancel_point();
    }
    resume_unwind(payload)
}

fn drop_outcome<T>(outcome: Result<T>) {
    match outcome {
        Ok(value) => drop_contained(value),
        Err(payload) => make::drop_payload(payload),
    }
}

/// Drops `value`; a panic of its destructor goes no further, because the caller unwinds with
/// another one, or goes on.
pub(super) fn drop_contained<T>(value: T) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(value))) {
        make::drop_payload(payload);
    }
}

/// A call of `join` with its fork, in the caller's frame.
#[repr(C)]
struct Call<B, RB> {
    fork: Fork,
    /// The closure, until it is moved out to run.
    b: UnsafeCell<ManuallyDrop<B>>,
    /// Its outcome, if a goroutine has run it.
    outcome: UnsafeCell<MaybeUninit<Result<RB>>>,
}

impl<B: FnOnce() -> RB, RB> Call<B, RB> {
    #[inline(always)]
    fn new(b: B, site: &'static Location<'static>, scopes: ScopeChain) -> Call<B, RB> {
        Call {
            fork: Fork::new(Self::run, site, scopes),
            b: UnsafeCell::new(ManuallyDrop::new(b)),
            outcome: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }

    /// Its fork, with the provenance of the whole.
    #[inline(always)]
    fn fork(&self) -> NonNull<Fork> {
        NonNull::from(self).cast()
    }

    /// # Safety
    ///
    /// No goroutine was made for the fork, or it has ended without running it. Called once.
    #[inline(always)]
    unsafe fn take_closure(&self) -> B {
        // SAFETY: by this function's contract the closure is there, and nobody else accesses it.
        unsafe { ManuallyDrop::take(&mut *self.b.get()) }
    }

    /// # Safety
    ///
    /// As [`Fork::run`], for the fork of a `Call<B, RB>`.
    unsafe fn run(fork: NonNull<Fork>) {
        // SAFETY: the fork is the first field (`repr(C)`), and the call stays until it is done.
        let call = unsafe { fork.cast::<Call<B, RB>>().as_ref() };
        // SAFETY: the goroutine that was made for the fork runs it once, and until it is done the
        // caller accesses neither cell.
        unsafe {
            let b = call.take_closure();
            let outcome = catch_unwind(AssertUnwindSafe(b));
            (*call.outcome.get()).write(outcome);
        }
    }

    /// Waits for the goroutine that was made for the fork, and returns its outcome; or the closure,
    /// if that goroutine ended before it began.
    fn wait(&self) -> std::result::Result<Result<RB>, B> {
        fork::wait_for(&self.fork);
        if self.fork.has_run() {
            // SAFETY: the goroutine has written it and accesses it no more; read once.
            Ok(unsafe { (*self.outcome.get()).assume_init_read() })
        } else {
            // SAFETY: it did not run, and will not.
            Err(unsafe { self.take_closure() })
        }
    }

    /// The end of a call whose fork became a goroutine: waits for it.
    #[cold]
    #[inline(never)]
    fn wait_beside<RA>(&self, ra: RA) -> (RA, RB) {
        match self.wait() {
            Ok(Ok(rb)) => (ra, rb),
            Ok(Err(payload)) => unwind(payload),
            Err(b) => {
                // Either the run ends, or there was no stack for the goroutine.
                let _ = points::cancel_point();
                (ra, b())
            }
        }
    }

    /// The end of a call whose `a` has panicked. The fork is in no list.
    #[cold]
    #[inline(never)]
    fn finish_panicked(&self, payload: Box<dyn Any + Send>) -> ! {
        let outcome = match self.fork.is_promoted() {
            true => self.wait(),
            // SAFETY: no goroutine was made for it.
            false => Err(unsafe { self.take_closure() }),
        };
        match outcome {
            Ok(outcome) => drop_outcome(outcome),
            Err(b) => finish_panicked(payload, b),
        }
        resume_unwind(payload)
    }
}

//! Signal handlers. A handler may run at any instruction of a goroutine, on its stack: inside malloc,
//! say. There the functions of this crate make the system call and nothing else, because a park would
//! leave the interrupted code halfway, for other goroutines to find.
//!
//! The kernel does not say whether a thread is in a handler. So the functions of libc that register one
//! are defined here, and register [`on_signal`] instead, which counts.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::ffi::{CStr, c_void};
use std::mem::transmute;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use libc::{c_int, siginfo_t};

use crate::calls::real;
use crate::wait::set_errno;

/// The numbers of signals are less.
const SIGNALS: usize = 65;

/// The program's handler of each signal, as an address.
///
/// Ordering: relaxed. The address of a function, whose code is there from the start; the system call
/// that registers [`on_signal`] comes after the store.
static HANDLERS: [AtomicUsize; SIGNALS] = [const { AtomicUsize::new(0) }; SIGNALS];

thread_local!(
    /// The handlers and sections that run on this thread. A goroutine changes threads only between them.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// The handlers that have run on this thread.
    static HANDLED: Cell<u32> = const { Cell::new(0) };
);

/// The number of handlers that have run on this thread, which the caller does not leave meanwhile.
pub(crate) fn handled() -> u32 {
    HANDLED.with(Cell::get)
}

/// Calls `f`, in which nothing parks. A goroutine that has lost its P is in no section of the scheduler's
/// while it is in one of this crate's.
pub(crate) fn without_parks<T>(f: impl FnOnce() -> T) -> T {
    DEPTH.with(|depth| depth.set(depth.get() + 1));
    let done = f();
    DEPTH.with(|depth| depth.set(depth.get() - 1));
    done
}

/// Whether the caller is called by a signal handler, or in a section. Not inlined, and with assembly that keeps
/// the compiler from merging two calls: the goroutine may be on another thread than a moment ago.
#[inline(never)]
pub(crate) fn is_inside() -> bool {
    // SAFETY: the empty assembly touches nothing.
    unsafe { std::arch::asm!("", options(nostack, preserves_flags)) };
    DEPTH.with(Cell::get) != 0
}

type Handler = extern "C" fn(c_int, *mut siginfo_t, *mut c_void);

/// Runs the program's handler. One that takes the number only finds it in the first argument.
extern "C" fn on_signal(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let handler = handler_of(signal).map_or(0, |handler| handler.load(Ordering::Relaxed));
    // SAFETY: the program has registered a function of this type, or with fewer arguments, under this
    // number before the kernel got this function to call.
    let handler = unsafe { transmute::<usize, Handler>(handler) };
    without_parks(|| handler(signal, info, context));
    HANDLED.with(|handled| handled.set(handled.get().wrapping_add(1)));
}

fn own() -> usize {
    (on_signal as Handler as *const ()).expose_provenance()
}

fn handler_of(signal: c_int) -> Option<&'static AtomicUsize> {
    HANDLERS.get(usize::try_from(signal).ok()?)
}

/// Registers `given` by `register`, which takes what the kernel is to call and returns what it called
/// before, if it succeeds. Returns what the program had registered before. Safe in a handler.
fn exchange(
    signal: c_int,
    given: Option<usize>,
    register: impl FnOnce(Option<usize>) -> Option<usize>,
) -> Option<usize> {
    let Some(handler) = handler_of(signal) else {
        return register(given);
    };
    let before = handler.load(Ordering::Relaxed);
    // The others are `SIG_DFL`, `SIG_IGN`, `SIG_HOLD` and `SIG_ERR`.
    let function = given.filter(|&given| (3..usize::MAX).contains(&given) && given != own());
    if let Some(function) = function {
        handler.store(function, Ordering::Relaxed);
    }
    let old = register(function.map(|_| own()).or(given));
    if let (None, Some(function)) = (old, function) {
        // It failed. Another thread may have registered one meanwhile.
        let _ = handler.compare_exchange(function, before, Ordering::Relaxed, Ordering::Relaxed);
    }
    old.map(|old| if old == own() { before } else { old })
}

/// # Safety
///
/// As `sigaction(2)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sigaction(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    type Real = unsafe extern "C" fn(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int;
    static FOUND: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
    let Some(real) = real(c"sigaction", &FOUND) else {
        set_errno(libc::ENOSYS);
        return -1;
    };
    // SAFETY: libc's function of this name has this type.
    let real = unsafe { transmute::<*mut c_void, Real>(real) };
    // SAFETY: by this function's contract.
    let mut action = unsafe { new.as_ref() }.copied();
    // SAFETY: all zeros is an action.
    let mut was: libc::sigaction = unsafe { std::mem::zeroed() };
    let given = action.map(|action| action.sa_sigaction);
    let before = exchange(signal, given, |registered| {
        if let (Some(action), Some(registered)) = (&mut action, registered) {
            action.sa_sigaction = registered;
        }
        let action = action.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: both actions are valid during the call.
        (unsafe { real(signal, action, &raw mut was) } == 0).then_some(was.sa_sigaction)
    });
    let Some(before) = before else {
        return -1;
    };
    // SAFETY: by this function's contract.
    if let Some(old) = unsafe { old.as_mut() } {
        was.sa_sigaction = before;
        *old = was;
    }
    0
}

/// # Safety
///
/// As `signal(2)`.
unsafe fn signal_by(
    name: &CStr,
    found: &AtomicPtr<c_void>,
    signal: c_int,
    handler: libc::sighandler_t,
) -> libc::sighandler_t {
    type Real = unsafe extern "C" fn(c_int, libc::sighandler_t) -> libc::sighandler_t;
    let Some(real) = real(name, found) else {
        set_errno(libc::ENOSYS);
        return libc::SIG_ERR;
    };
    // SAFETY: libc's functions of these names have this type.
    let real = unsafe { transmute::<*mut c_void, Real>(real) };
    exchange(signal, Some(handler), |registered| {
        // SAFETY: by this function's contract.
        let old = unsafe { real(signal, registered.unwrap_or(handler)) };
        (old != libc::SIG_ERR).then_some(old)
    })
    .unwrap_or(libc::SIG_ERR)
}

/// Other names of `signal(2)`.
macro_rules! signals {
    ($($name:ident $text:literal)*) => {
        $(
            /// # Safety
            ///
            /// As `signal(2)`.
            #[unsafe(no_mangle)]
            pub(crate) unsafe extern "C" fn $name(
                number: c_int,
                handler: libc::sighandler_t,
            ) -> libc::sighandler_t {
                static FOUND: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
                // SAFETY: by this function's contract.
                unsafe { signal_by($text, &FOUND, number, handler) }
            }
        )*
    };
}

signals! {
    signal c"signal"
    ssignal c"ssignal"
    sysv_signal c"sysv_signal"
    __sysv_signal c"__sysv_signal"
    sigset c"sigset"
}

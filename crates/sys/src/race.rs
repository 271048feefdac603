//! Tells ThreadSanitizer what goroutines are, so that it finds their data races (feature `race`,
//! docs/guide/data-races.md).
//!
//! The sanitizer keeps a call stack for each thread, and a clock: what of the others' work is ordered before
//! its own. A *fiber* is a thread in this sense without a thread of the kernel, and a thread switches
//! between fibers. A goroutine is a fiber from its spawn to its end, so its spawner's work is ordered before
//! its own, and a report shows the place of the spawn. One that leaves its stack ([`Fiber::renew`]) is another then.
//!
//! By goroutines (the default), as Go's detector does:
//!
//! - A switch orders nothing. Two goroutines are ordered by what they call, also if one thread has run
//!   both.
//! - The runtime's own accesses are not looked at: those of an M, and those of a goroutine inside the
//!   scheduler ([`enter_runtime`]). They rest on the ownership of Gs, Ms and Ps, which hand-over by queues
//!   and stack switches keeps, and the sanitizer does not see.
//! - A waker's work is ordered before that of the goroutine it wakes ([`readies`], [`goes_on`]). The commit of a
//!   park publishes what the goroutine did ([`commit_for`]).
//! - Stacks and slots are used again, and so is `errno`. For the sanitizer each use is new memory ([`renew`]).
//! - What is sent comes before what is received later ([`sends`], [`receives`]): one order for all bytes, as only the
//!   kernel knows where they go.
//!
//! By threads (`WINDLASS_RACE=threads`), to test the runtime itself: a switch orders what the thread does
//! before and after it, and all accesses are looked at.
//!
//! The sanitizer logs entries and exits of functions in the current fiber. So a switch of fibers lies in the
//! same function as the switch of stacks, and nothing that it calls in between may log: it is
//! inlined, or not compiled for the sanitizer.
#![allow(unsafe_code)]
#![allow(non_snake_case, reason = "the names are the sanitizer's")]

use std::arch::naked_asm;
use std::cell::Cell;
use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::ops::Range;
use std::ptr;
use std::sync::OnceLock;

/// Functions of LLVM's runtime (compiler-rt/include/sanitizer/tsan_interface.h and
/// lib/tsan/rtl/tsan_interface_{ann,java}.h) by weak symbols, so that a program links without it. A jump, which
/// the sanitizer does not log.
macro_rules! of_sanitizer {
    ($($name:ident($($arg:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        $(
            #[unsafe(naked)]
            unsafe extern "C" fn $name($($arg: $type),*) $(-> $result)? {
                naked_asm!(
                    concat!(".weak ", stringify!($name)),
                    concat!("mov r11, [rip + ", stringify!($name), "@GOTPCREL]"),
                    "jmp r11",
                )
            }
        )*
    };
}

of_sanitizer! {
    __tsan_create_fiber(flags: c_uint) -> *mut c_void;
    __tsan_destroy_fiber(fiber: *mut c_void);
    __tsan_switch_to_fiber(fiber: *mut c_void, flags: c_uint);
    __tsan_get_current_fiber() -> *mut c_void;
    __tsan_set_fiber_name(fiber: *mut c_void, name: *const c_char);
    __tsan_acquire(address: *mut c_void);
    __tsan_release(address: *mut c_void);
    __tsan_ignore_thread_begin();
    __tsan_ignore_thread_end();
    AnnotateIgnoreSyncBegin(file: *const c_char, line: c_int);
    AnnotateIgnoreSyncEnd(file: *const c_char, line: c_int);
    __tsan_java_alloc(address: usize, bytes: usize);
    __tsan_java_free(address: usize, bytes: usize);
}

/// The address of a function of the sanitizer; 0 if the program is not built for it.
#[unsafe(naked)]
extern "C" fn sanitizer() -> usize {
    naked_asm!("mov rax, [rip + __tsan_create_fiber@GOTPCREL]", "ret")
}

/// The flag of `__tsan_switch_to_fiber` for a switch that orders nothing.
const NO_SYNC: c_uint = 1;

/// Between which of them races are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// The program is not built for the sanitizer.
    Off,
    Threads,
    Goroutines,
}

static MODE: OnceLock<Mode> = OnceLock::new();

fn mode() -> Mode {
    *MODE.get_or_init(|| {
        let by_threads = std::env::var_os("WINDLASS_RACE").is_some_and(|mode| mode == "threads");
        match (is_in_vain(), by_threads) {
            (true, _) => Mode::Off,
            (false, true) => Mode::Threads,
            (false, false) => Mode::Goroutines,
        }
    })
}

fn by_goroutines() -> bool {
    mode() == Mode::Goroutines
}

/// Whether the program has this file, and no sanitizer.
pub fn is_in_vain() -> bool {
    sanitizer() == 0
}

/// The fiber of a goroutine, from its spawn to its end.
#[derive(Debug)]
pub struct Fiber(Cell<*mut c_void>);

/// The fiber from which a thread switched to a goroutine's, and the flags of both switches.
#[derive(Debug)]
pub struct From {
    fiber: *mut c_void,
    flags: c_uint,
}

impl Fiber {
    /// Makes the fiber of a goroutine that the caller spawns.
    pub fn begin<'a>(&self, id: u64, name: impl FnOnce() -> Option<&'a str>) {
        let name = match name() {
            None => format!("goroutine {id}"),
            Some(name) => format!("goroutine {id} {name:?}"),
        };
        let name = CString::new(name).unwrap_or_default();
        let by_goroutines = by_goroutines();
        if is_in_vain() {
            return;
        }
        // SAFETY: the runtime copies the name. The fiber was made just now, and nothing is called on it
        // that would log a function.
        unsafe {
            let fiber = __tsan_create_fiber(0);
            __tsan_set_fiber_name(fiber, name.as_ptr());
            if by_goroutines {
                // It begins, rests and ends inside the runtime.
                let from = __tsan_get_current_fiber();
                __tsan_switch_to_fiber(fiber, NO_SYNC);
                __tsan_ignore_thread_begin();
                __tsan_switch_to_fiber(from, NO_SYNC);
            }
            self.0.set(fiber);
        }
    }

    /// The goroutine has returned from its stack, and will go on on another. For the sanitizer, the functions at the
    /// root of the stack have not returned, so a fiber without calls takes the place of this one. It is made by
    /// the goroutine, whose work is ordered before its own.
    pub fn renew<'a>(&self, id: u64, name: impl FnOnce() -> Option<&'a str>) {
        let old = Fiber(self.0.clone());
        let from = old.enter();
        self.begin(id, name);
        from.back();
        old.end();
    }

    /// The goroutine has ended, or will never run. Idempotent.
    pub fn end(&self) {
        let fiber = self.0.replace(ptr::null_mut());
        if fiber.is_null() {
            return;
        }
        let by_goroutines = by_goroutines();
        // SAFETY: `begin` made it, and no thread is on it. As there for the switches.
        unsafe {
            if by_goroutines {
                let from = __tsan_get_current_fiber();
                __tsan_switch_to_fiber(fiber, NO_SYNC);
                __tsan_ignore_thread_end();
                __tsan_switch_to_fiber(from, NO_SYNC);
            }
            __tsan_destroy_fiber(fiber);
        }
    }

    /// The calling thread goes on as this goroutine, inside the runtime. It switches to the goroutine's stack and
    /// back before [`From::back`].
    #[inline(always)]
    pub fn enter(&self) -> From {
        if self.0.get().is_null() {
            let fiber = ptr::null_mut();
            return From { fiber, flags: 0 };
        }
        let flags = if by_goroutines() { NO_SYNC } else { 0 };
        // SAFETY: `begin` made the fiber; the caller owns the goroutine, so no other thread is on it.
        unsafe {
            let fiber = __tsan_get_current_fiber();
            __tsan_switch_to_fiber(self.0.get(), flags);
            From { fiber, flags }
        }
    }
}

impl From {
    /// Goes back there.
    #[inline(always)]
    pub fn back(self) {
        if self.fiber.is_null() {
            return;
        }
        // SAFETY: the thread itself, or the fiber on which it was.
        unsafe { __tsan_switch_to_fiber(self.fiber, self.flags) }
    }
}

/// The calling goroutine or M goes on inside the runtime: its accesses are not looked at. Nested.
#[inline]
pub fn enter_runtime() {
    if by_goroutines() {
        // SAFETY: always allowed.
        unsafe { __tsan_ignore_thread_begin() };
    }
}

/// Ends one [`enter_runtime`].
#[inline]
pub fn leave_runtime() {
    if by_goroutines() {
        // SAFETY: after `enter_runtime`, by the callers.
        unsafe { __tsan_ignore_thread_end() };
    }
}

/// Leaves the runtime when it is dropped.
#[derive(Debug)]
#[must_use = "its drop leaves the runtime"]
pub struct InRuntime(());

impl InRuntime {
    /// As [`enter_runtime`].
    pub fn enter() -> InRuntime {
        enter_runtime();
        InRuntime(())
    }
}

impl Drop for InRuntime {
    fn drop(&mut self) {
        leave_runtime();
    }
}

/// The calling thread is the M `m` from now on: what it does orders nothing, but in [`commit_for`].
pub fn begin_m<T>(m: &T) {
    if by_goroutines() {
        // SAFETY: only an address, and always allowed.
        unsafe {
            __tsan_release(ptr::from_ref(m).cast_mut().cast());
            __tsan_ignore_thread_begin();
            AnnotateIgnoreSyncBegin(ptr::null(), 0);
        }
    }
}

/// The calling thread is no M any more. All goroutines of the run have ended.
pub fn end_m() {
    if by_goroutines() {
        // SAFETY: after `begin_m`; only an address.
        unsafe {
            AnnotateIgnoreSyncEnd(ptr::null(), 0);
            __tsan_ignore_thread_end();
            __tsan_acquire(ended());
        }
    }
}

/// The goroutine whose header is at `g` is about to switch out: see [`commit_for`].
#[inline]
pub fn switches_out<T>(g: *mut T) {
    if by_goroutines() {
        // SAFETY: only an address, as below.
        unsafe { __tsan_release(g.cast()) };
    }
}

/// Runs `f` on the M, for a goroutine that has switched out: what it publishes, it publishes with all that the
/// goroutine did.
#[inline(always)]
pub fn commit_for<T, R>(g: *mut T, f: impl FnOnce() -> R) -> R {
    if !by_goroutines() {
        return f();
    }
    // SAFETY: the caller is an M, after `begin_m`.
    unsafe {
        AnnotateIgnoreSyncEnd(ptr::null(), 0);
        __tsan_acquire(g.cast());
    }
    let result = f();
    // SAFETY: as above.
    unsafe { AnnotateIgnoreSyncBegin(ptr::null(), 0) };
    result
}

/// The caller queues the goroutine whose header is at `g`, or lets its wait go on, after all that it did with its frame.
#[inline]
pub fn readies<T>(g: *mut T) {
    if by_goroutines() {
        // SAFETY: only an address.
        unsafe { __tsan_release(readied(g)) };
    }
}

/// The calling goroutine leaves the runtime after a switch, on the M `m`, whose `errno` is its own from now on. (A report
/// about it would even change it.)
#[inline]
pub fn goes_on<T, M>(g: *mut T, m: *const M) {
    if by_goroutines() {
        // SAFETY: only addresses. The goroutine was inside the runtime.
        unsafe {
            __tsan_acquire(readied(g));
            // The M and its thread were made before.
            __tsan_acquire(m.cast_mut().cast());
            let errno = libc::__errno_location().addr();
            renew(|| errno..errno + size_of::<usize>());
            __tsan_ignore_thread_end();
        }
    }
}

/// The calling goroutine has ended: see [`end_m`].
pub fn ends() {
    if by_goroutines() {
        // SAFETY: only an address.
        unsafe { __tsan_release(ended()) };
    }
}

/// The sanitizer's name for the hand-over of a goroutine. The header itself is that of its commits, which other
/// goroutines' commits on the same M precede.
fn readied<T>(g: *mut T) -> *mut c_void {
    g.wrapping_byte_add(1).cast()
}

/// The sanitizer's name for the ends of goroutines. Nobody accesses what lies there: an atomic would be ordered, too.
fn ended() -> *mut c_void {
    static ENDED: u64 = 0;
    (&raw const ENDED).cast_mut().cast()
}

/// Goroutines use these in turn, and none waits while it does: thread-locals of their thread (docs/SAFETY.md), what a
/// signal handler looks at, and the world of their simulation. A program has more of these in
/// a file that `TSAN_OPTIONS=suppressions=` names.
static SUPPRESSIONS: [u8; 221] = *b"\
    race:std::thread::local::LocalKey\n\
    race:windlass_unwind::sample\n\
    signal:windlass_unwind::sample\n\
    race:windlass_world::\n\
    race:windlass::poll::sim_socket::\n\
    race:windlass::fs::memory::\n\
    race:windlass::sched::types::simulation::\n\
    \0";

/// Called before the sanitizer has begun, so it must not be compiled for it: a naked function is not.
#[unsafe(no_mangle)]
#[unsafe(naked)]
extern "C" fn __tsan_default_suppressions() -> *const c_char {
    naked_asm!("lea rax, [rip + {}]", "ret", sym SUPPRESSIONS)
}

/// The memory is given to a new user: earlier accesses to it are forgotten.
pub fn renew(memory: impl FnOnce() -> Range<usize>) {
    if by_goroutines() {
        let memory = memory();
        // SAFETY: both only change what the sanitizer knows of the memory, which is the caller's alone.
        unsafe {
            __tsan_java_free(memory.start, memory.len());
            __tsan_java_alloc(memory.start, memory.len());
        }
    }
}

/// Bytes go to the kernel, or to another goroutine of the simulation: what the caller did before is ordered before
/// what follows any later [`receives`], also one that gets other bytes. Go's detector does the same.
#[inline]
pub fn sends() {
    if mode() != Mode::Off {
        // SAFETY: only an address.
        unsafe { __tsan_release(bytes()) };
    }
}

/// Bytes, or the news that there are some, have come when this is dropped: see [`sends`].
#[derive(Debug)]
#[must_use = "its drop is the order"]
pub struct Receives;

/// Its result stands for the bytes that are about to come.
#[inline]
pub fn receives() -> Receives {
    Receives
}

impl Drop for Receives {
    #[inline]
    fn drop(&mut self) {
        if mode() != Mode::Off {
            // SAFETY: only an address.
            unsafe { __tsan_acquire(bytes()) };
        }
    }
}

/// The sanitizer's name for all bytes.
fn bytes() -> *mut c_void {
    (&raw const SUPPRESSIONS).cast_mut().cast()
}

/// Calls `f` on behalf of the sanitizer, which reports a race: another report in `f` would wait for this one for ever.
pub fn in_report(f: impl FnOnce()) {
    // SAFETY: always allowed, in a program that has the sanitizer.
    unsafe { __tsan_ignore_thread_begin() };
    f();
    // SAFETY: after the call above.
    unsafe { __tsan_ignore_thread_end() };
}

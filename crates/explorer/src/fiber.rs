//! The twin's threads: coroutines on one thread of the host, so that a hand-over takes nanoseconds.
//!
//! A thread may be in the middle of a goroutine, on that one's stack, when it gives the baton back: a
//! switch saves the stack pointer, whatever stack it points to, and the way back to the controller lies at
//! the base of the fiber's own stack.
#![allow(unsafe_code)]

use std::num::NonZeroUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};

use corosensei::{Coroutine, CoroutineResult, Yielder};

/// Bytes of a fiber's stack. Only what is touched takes memory.
const STACK_BYTES: usize = 1 << 20;
/// Bytes at its lower end that nobody may touch.
const GUARD_BYTES: usize = 1 << 14;

/// Memory for a fiber.
#[derive(Debug)]
struct Stack(NonZeroUsize);

impl Stack {
    fn new() -> Option<Stack> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, of which the kernel chooses the place.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), STACK_BYTES, access, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            return None;
        }
        // SAFETY: the lower end of the mapping, which nobody uses yet.
        unsafe { libc::mprotect(at, GUARD_BYTES, libc::PROT_NONE) };
        NonZeroUsize::new(at.expose_provenance()).map(Stack)
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        let at = std::ptr::with_exposed_provenance_mut(self.0.get());
        // SAFETY: the mapping of `new`; the fiber has ended.
        unsafe { libc::munmap(at, STACK_BYTES) };
    }
}

// SAFETY:
// - the base is the upper end of a mapping of whole pages, so it is aligned.
// - the limit is its lower end; the guard lies inside.
unsafe impl corosensei::stack::Stack for Stack {
    fn base(&self) -> NonZeroUsize {
        self.0.saturating_add(STACK_BYTES)
    }

    fn limit(&self) -> NonZeroUsize {
        self.0
    }
}

/// Words of a thread that are its own.
pub(super) const N_LOCALS: usize = 2;

struct Fiber {
    /// Away while it runs, and when it has ended.
    coroutine: Option<Coroutine<(), (), (), Stack>>,
    /// Its way out, once it has begun.
    out: *const Yielder<(), ()>,
    /// Its thread-locals while it does not run.
    locals: [usize; N_LOCALS],
}

// SAFETY: fibers are made, resumed and dropped on one thread of the host.
unsafe impl Send for Fiber {}

static FIBERS: Mutex<Vec<Option<Fiber>>> = Mutex::new(Vec::new());

fn fibers() -> MutexGuard<'static, Vec<Option<Fiber>>> {
    FIBERS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn of<T>(id: usize, f: impl FnOnce(&mut Fiber) -> T) -> T {
    f(fibers()[id].as_mut().expect("it was made"))
}

/// Makes the fiber of thread `id`. `false` if there is no memory.
pub(super) fn make(id: usize, f: impl FnOnce() + 'static) -> bool {
    let Some(stack) = Stack::new() else {
        return false;
    };
    let coroutine = Coroutine::with_stack(stack, move |out: &Yielder<(), ()>, ()| {
        of(id, |fiber| fiber.out = out);
        f();
    });
    let mut all = fibers();
    if all.len() <= id {
        all.resize_with(id + 1, || None);
    }
    all[id] = Some(Fiber {
        coroutine: Some(coroutine),
        out: std::ptr::null(),
        locals: [0; N_LOCALS],
    });
    true
}

/// Runs a fiber until it suspends itself or ends. `locals` are those of the calling thread, which it has
/// meanwhile.
pub(super) fn resume(id: usize, locals: impl Fn([usize; N_LOCALS]) -> [usize; N_LOCALS]) {
    let mut coroutine = of(id, |fiber| fiber.coroutine.take()).expect("it does not run");
    locals(of(id, |fiber| fiber.locals));
    let result = coroutine.resume(());
    let own = locals([0; N_LOCALS]);
    if let CoroutineResult::Yield(()) = result {
        of(id, |fiber| {
            fiber.coroutine = Some(coroutine);
            fiber.locals = own;
        });
    }
}

/// The running fiber gives the baton back, until it is resumed.
pub(super) fn suspend(id: usize) {
    let out = of(id, |fiber| fiber.out);
    // SAFETY: the fiber runs, so its way out is on its stack.
    unsafe { (*out).suspend(()) };
}

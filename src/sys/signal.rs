//! Signals: an alternate stack for each M, the SIGSEGV handler, raw writes.
#![allow(unsafe_code)]

use std::io;
use std::sync::OnceLock;

use super::errno::cvt;
use super::mmap;

/// Bytes of an M's signal stack: the report formats numbers, nothing more, but
/// handlers chained behind ours may print a backtrace.
const ALT_STACK_BYTES: usize = 64 * 1024;

/// An alternate signal stack that belongs to the thread that made it.
#[derive(Debug)]
pub(crate) struct AltStack {
    base: *mut u8,
    before: libc::stack_t,
}

impl AltStack {
    /// Installs an alternate signal stack for the calling thread.
    ///
    /// # Errors
    ///
    /// The kernel's, when memory is short.
    pub(crate) fn install() -> io::Result<AltStack> {
        let base = mmap::reserve(ALT_STACK_BYTES)?;
        let stack = libc::stack_t {
            ss_sp: base.cast(),
            ss_flags: 0,
            ss_size: ALT_STACK_BYTES,
        };
        // SAFETY: an all-zero stack_t is a valid place for the old value.
        let mut before: libc::stack_t = unsafe { std::mem::zeroed() };
        // SAFETY: both places are valid, and the new stack is mapped until `drop` takes it out of use.
        if let Err(e) = cvt(unsafe { libc::sigaltstack(&stack, &mut before) }) {
            // SAFETY: the mapping was made above and never put to use.
            unsafe { mmap::release(base, ALT_STACK_BYTES) };
            return Err(e);
        }
        Ok(AltStack { base, before })
    }
}

impl Drop for AltStack {
    fn drop(&mut self) {
        // SAFETY:
        // - `before` is what sigaltstack returned for this very thread (an M drops its own).
        // - no handler runs on the stack now: this is not a signal context.
        unsafe {
            libc::sigaltstack(&self.before, std::ptr::null_mut());
            mmap::release(self.base, ALT_STACK_BYTES);
        }
    }
}

/// Looks at a fault address; gives `true` if it was a goroutine's overflow and
/// it has reported it.
pub(crate) type FaultFn = fn(addr: usize) -> bool;

struct Handler {
    report: FaultFn,
    before: libc::sigaction,
}

static HANDLER: OnceLock<Handler> = OnceLock::new();

/// Installs the process's SIGSEGV handler, once. `report` runs in
/// the handler and must be async-signal-safe.
pub(crate) fn install_fault_handler(report: FaultFn) {
    let mut first = false;
    HANDLER.get_or_init(|| {
        first = true;
        // SAFETY: an all-zero sigaction is a valid place for the old value.
        let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: a null new action only reads the old one into a valid place.
        unsafe { libc::sigaction(libc::SIGSEGV, std::ptr::null(), &mut before) };
        Handler { report, before }
    });
    if !first {
        return;
    }
    // SAFETY: an all-zero sigaction is valid; the fields that matter are set below.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_fault as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
    // SAFETY: the handler has the signature that SA_SIGINFO asks for.
    unsafe { libc::sigaction(libc::SIGSEGV, &action, std::ptr::null_mut()) };
}

/// Reports a goroutine's overflow and aborts; leaves any other fault to the
/// handler that was there before.
extern "C" fn on_fault(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    let Some(handler) = HANDLER.get() else { return };
    // SAFETY: the kernel passes a valid siginfo, whose address field is set for SIGSEGV.
    let addr = unsafe { (*info).si_addr() } as usize;
    if (handler.report)(addr) {
        // SAFETY: abort is async-signal-safe.
        unsafe { libc::abort() };
    }
    let before = handler.before.sa_sigaction;
    if before == libc::SIG_DFL || before == libc::SIG_IGN {
        // SAFETY: puts the default back; the faulting instruction then runs again and ends the process.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    } else if handler.before.sa_flags & libc::SA_SIGINFO != 0 {
        // SAFETY: with SA_SIGINFO the old handler has this signature.
        let f: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
            unsafe { std::mem::transmute(before) };
        f(signal, info, context);
    } else {
        // SAFETY: without SA_SIGINFO the old handler takes the signal's number alone.
        let f: extern "C" fn(libc::c_int) = unsafe { std::mem::transmute(before) };
        f(signal);
    }
}

/// Whether the process ignores a signal, as Rust's start-up code has it for SIGPIPE.
pub(crate) fn is_ignored(signal: libc::c_int) -> bool {
    // SAFETY: an all-zero sigaction is a valid place for the old value.
    let mut now: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: a null new action only reads the old one into a valid place.
    unsafe { libc::sigaction(signal, std::ptr::null(), &mut now) };
    now.sa_sigaction == libc::SIG_IGN
}

/// Writes bytes to stderr from a signal handler: no lock, no allocation.
pub(crate) fn write_stderr(bytes: &[u8]) {
    // SAFETY: write is async-signal-safe and the slice is valid; a failure cannot be told anyone.
    unsafe { libc::write(2, bytes.as_ptr().cast(), bytes.len()) };
}

/// Writes one byte to a non-blocking pipe from a signal handler, whose caller keeps
/// `errno`. A full pipe wakes its reader just as well.
pub(crate) fn write_byte(fd: std::os::fd::RawFd) {
    // SAFETY: write is async-signal-safe, and the byte is valid.
    unsafe { libc::write(fd, [0_u8].as_ptr().cast(), 1) };
}

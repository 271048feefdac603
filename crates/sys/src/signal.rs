//! Signals: alternate stacks for Ms, the SIGSEGV and SIGQUIT handlers, raw writes.
#![allow(unsafe_code)]

use std::fmt;
use std::io::{self, ErrorKind::Interrupted, ErrorKind::WouldBlock};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::errno::{cvt, cvt_len};
use super::futex;
use super::mmap;
use super::raw;

/// The size of an M's signal stack. The report only formats numbers, but handlers that ours calls
/// may print a backtrace.
const ALT_STACK_BYTES: usize = 64 * 1024;

/// An alternate signal stack that belongs to the thread that made it.
#[derive(Debug)]
pub struct AltStack {
    base: *mut u8,
    before: libc::stack_t,
}

impl AltStack {
    /// Installs an alternate signal stack for the calling thread.
    ///
    /// # Errors
    ///
    /// The kernel's, when memory is short.
    pub fn install() -> io::Result<AltStack> {
        let base = mmap::reserve(ALT_STACK_BYTES)?;
        let stack = libc::stack_t {
            ss_sp: base.cast(),
            ss_flags: 0,
            ss_size: ALT_STACK_BYTES,
        };
        // SAFETY: the new stack is mapped until `drop` uninstalls it.
        match unsafe { replace_stack(&stack) } {
            Ok(before) => Ok(AltStack { base, before }),
            Err(e) => {
                // SAFETY: the mapping was made above and never used.
                unsafe { mmap::release(base, ALT_STACK_BYTES) };
                Err(e)
            }
        }
    }
}

impl Drop for AltStack {
    /// Installs the one before again. Leaves all as it is, and the memory mapped, where another one was installed
    /// meanwhile, because that one may install this one again.
    fn drop(&mut self) {
        if !present_stack().is_ok_and(|now| now.ss_sp == self.base.cast()) {
            return;
        }
        // SAFETY:
        // - the stack is this thread's: the value has a pointer, so that it stays on the thread that made it.
        // - `before` was returned by sigaltstack for this thread. If it was another `AltStack`, that one has left its
        //   memory mapped, or is still there.
        // - no handler runs on the stack now: then the kernel refuses to change it, and the memory stays.
        unsafe {
            if replace_stack(&self.before).is_ok() {
                mmap::release(self.base, ALT_STACK_BYTES);
            }
        }
    }
}

/// Makes this the alternate stack of the calling thread, unless it is null. Returns the one before.
///
/// # Safety
///
/// It is null, or names memory that stays mapped, and that nothing else uses, as long as it is the thread's.
unsafe fn replace_stack(stack: *const libc::stack_t) -> io::Result<libc::stack_t> {
    // SAFETY: an all-zero stack_t is a valid output argument.
    let mut before: libc::stack_t = unsafe { std::mem::zeroed() };
    // SAFETY: both are valid or null, and the new stack is by this function's contract.
    cvt(unsafe { libc::sigaltstack(stack, &raw mut before) })?;
    Ok(before)
}

/// The alternate stack of the calling thread.
fn present_stack() -> io::Result<libc::stack_t> {
    // SAFETY: without a new stack the call only reads the present one.
    unsafe { replace_stack(std::ptr::null()) }
}

/// Examines a fault address. `true` if it was a goroutine's overflow, which the function has
/// reported.
pub type FaultFn = fn(addr: usize) -> bool;

struct Handler {
    report: FaultFn,
    before: libc::sigaction,
}

static HANDLER: OnceLock<Handler> = OnceLock::new();

/// Installs the process's SIGSEGV handler, once. `report` runs in the handler.
///
/// # Safety
///
/// `report` is async-signal-safe.
pub unsafe fn install_fault_handler(report: FaultFn) {
    let mut first = false;
    HANDLER.get_or_init(|| {
        first = true;
        // SAFETY: an all-zero sigaction is a valid output argument.
        let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: with a null new action the call only writes the old one to a valid structure.
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
    // SAFETY: the handler has the signature that SA_SIGINFO requires.
    unsafe { libc::sigaction(libc::SIGSEGV, &action, std::ptr::null_mut()) };
}

/// Reports a goroutine's overflow and aborts; passes any other fault to the previous handler.
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
    // SAFETY: the handler is called as the kernel would have called it.
    let called = unsafe { call_handler(&handler.before, signal, info, context) };
    if !called {
        // SAFETY: restores the default action; the faulting instruction then runs again and ends
        // the process.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// Whether the process ignores a signal, as Rust's start-up code sets SIGPIPE.
pub fn is_ignored(signal: libc::c_int) -> bool {
    // SAFETY: an all-zero sigaction is a valid output argument.
    let mut now: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: with a null new action the call only writes the old one to a valid structure.
    unsafe { libc::sigaction(signal, std::ptr::null(), &mut now) };
    now.sa_sigaction == libc::SIG_IGN
}

/// Sends a signal to thread `tid` of this process; `false` if there is no such thread.
pub fn send_to_thread(tid: i32, signal: libc::c_int) -> bool {
    // SAFETY: takes plain integers; the process's own id is not that of another process.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, signal) == 0 }
}

/// Calls the handler that was installed before ours; `false` if there was none.
///
/// # Safety
///
/// The caller is a handler of `signal` and passes the arguments that the kernel gave it; `before`
/// is from `sigaction`.
pub unsafe fn call_handler(
    before: &libc::sigaction,
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) -> bool {
    let f = before.sa_sigaction;
    if f == libc::SIG_DFL || f == libc::SIG_IGN {
        return false;
    }
    if before.sa_flags & libc::SA_SIGINFO != 0 {
        // SAFETY: with SA_SIGINFO the old handler has this signature.
        let f: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
            unsafe { std::mem::transmute(f) };
        f(signal, info, context);
    } else {
        // SAFETY: without SA_SIGINFO the old handler takes only the signal's number.
        let f: extern "C" fn(libc::c_int) = unsafe { std::mem::transmute(f) };
        f(signal);
    }
    true
}

/// Installs a handler by `register`, and makes it run on the alternate stack of the thread: the frame of a
/// signal has 3 KiB and more, for which a goroutine's stack may have no room. A handler that was there
/// before, and that `register` calls, too, may need the larger stack that it was installed for.
pub fn on_alternate_stack<T>(
    signal: i32,
    register: impl FnOnce() -> io::Result<T>,
) -> io::Result<T> {
    // SAFETY: all-zero sigactions are valid output arguments, and stay where the calls fail.
    let [mut before, mut now]: [libc::sigaction; 2] = unsafe { std::mem::zeroed() };
    // SAFETY: with a null new action the call only writes the old one to a valid structure.
    unsafe { libc::sigaction(signal, std::ptr::null(), &mut before) };
    let registered = register()?;
    // SAFETY: as above.
    unsafe { libc::sigaction(signal, std::ptr::null(), &mut now) };
    let is_own = [libc::SIG_DFL, libc::SIG_IGN, now.sa_sigaction].contains(&before.sa_sigaction);
    if is_own || before.sa_flags & libc::SA_ONSTACK != 0 {
        now.sa_flags |= libc::SA_ONSTACK;
        // SAFETY: the action is the present one but for the stack.
        unsafe { libc::sigaction(signal, &now, std::ptr::null_mut()) };
    }
    Ok(registered)
}

/// How often [`write_stderr`] waits for room, and for how long each time.
const STDERR_WAITS: usize = 10;
static STDERR_WAIT: libc::timespec = libc::timespec {
    tv_sec: 0,
    tv_nsec: 10_000_000,
};

/// Writes a line of the runtime to stderr, as [`write_stderr`] does. Not in a signal handler: it allocates.
pub fn report(what: impl fmt::Display) {
    write_stderr(format!("windlass: {what}\n").as_bytes());
}

/// Writes bytes to stderr. If stderr takes nothing for 100 ms (a pipe that nobody reads, a stopped terminal), the rest of
/// the bytes is lost. Later calls wait for 10 ms only, until stderr takes something again. So a call ends in bounded time.
/// Usable in a signal handler: takes no lock and does not allocate.
pub fn write_stderr(mut bytes: &[u8]) {
    /// Whether the last bytes were lost. Ordering: relaxed, a hint.
    static LOST: AtomicBool = AtomicBool::new(false);
    let mut n_waits = if LOST.load(Ordering::Relaxed) {
        1
    } else {
        STDERR_WAITS
    };
    while !bytes.is_empty() && n_waits > 0 {
        match write_where_room(bytes) {
            Ok(n) if n > 0 => (bytes, n_waits) = (&bytes[n..], STDERR_WAITS),
            Err(e) if matches!(e.kind(), WouldBlock | Interrupted) => n_waits -= 1,
            // A failure cannot be reported.
            _ => return,
        }
    }
    LOST.store(!bytes.is_empty(), Ordering::Relaxed);
}

/// Text for stderr, formatted in a fixed buffer that is written when it is full, and at the end. Usable in a signal handler.
#[derive(Debug)]
pub struct Line {
    bytes: [u8; 512],
    len: usize,
}

impl Line {
    /// An empty one.
    #[allow(clippy::new_without_default, reason = "windlass alone is the caller")]
    pub fn new() -> Line {
        Line {
            bytes: [0; 512],
            len: 0,
        }
    }

    fn flush(&mut self) {
        write_stderr(&self.bytes[..self.len]);
        self.len = 0;
    }
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for &byte in text.as_bytes() {
            if self.len == self.bytes.len() {
                self.flush();
            }
            self.bytes[self.len] = byte;
            self.len += 1;
        }
        Ok(())
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.flush();
    }
}

/// Writes a part of the bytes to stderr when there is room for it, else fails with `WouldBlock`.
fn write_where_room(bytes: &[u8]) -> io::Result<usize> {
    let mut stderr = libc::pollfd {
        fd: 2,
        events: libc::POLLOUT,
        revents: 0,
    };
    // SAFETY: one valid entry and a valid time.
    if cvt(unsafe { raw::ppoll(&raw mut stderr, 1, &raw const STDERR_WAIT) })? == 0 {
        return Err(WouldBlock.into());
    }
    // Then a pipe has room for this many. Another thread may be faster, which the first call bears, on files that know it.
    let n = bytes.len().min(libc::PIPE_BUF);
    let part = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: n,
    };
    // SAFETY: both calls are async-signal-safe and read the bytes of a valid slice.
    match cvt_len(unsafe { raw::pwritev2(2, &raw const part, 1, -1, libc::RWF_NOWAIT) }) {
        Err(e) if !matches!(e.kind(), WouldBlock | Interrupted) => {
            // SAFETY: as above.
            cvt_len(unsafe { raw::write(2, bytes.as_ptr().cast(), n) })
        }
        known => known,
    }
}

/// The number of SIGQUITs received: the futex word of [`wait_for_quit`]. Ordering: relaxed, a
/// count.
static QUITS: AtomicU32 = AtomicU32::new(0);

/// The previous action of SIGQUIT.
static BEFORE_QUIT: OnceLock<libc::sigaction> = OnceLock::new();

/// The action after a SIGQUIT was handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterQuit {
    /// There was no previous handler: exit.
    Exit,
    /// The previous handler has run: continue.
    GoOn,
}

extern "C" fn on_quit(_: libc::c_int) {
    let errno = super::errno::location();
    // SAFETY: the address is that of the calling thread's errno.
    let before = unsafe { *errno };
    QUITS.fetch_add(1, Ordering::Relaxed);
    futex::wake_one(&raw const QUITS);
    // SAFETY: as above. The interrupted code may be about to read it.
    unsafe { *errno = before };
}

fn quit_action() -> libc::sigaction {
    // SAFETY: an all-zero sigaction is valid; the fields that matter are set below.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_quit as *const () as usize;
    action.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
    action
}

fn set_quit_action(action: &libc::sigaction) -> libc::sigaction {
    // SAFETY: an all-zero sigaction is a valid output argument.
    let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: both structures are valid, and `on_quit` is async-signal-safe.
    unsafe { libc::sigaction(libc::SIGQUIT, action, &mut before) };
    before
}

/// Installs the process's SIGQUIT handler, once.
pub fn install_quit_handler() {
    BEFORE_QUIT.get_or_init(|| set_quit_action(&quit_action()));
}

/// Sleeps until more SIGQUITs than `seen` have been received, and returns their number.
pub fn wait_for_quit(seen: u32) -> u32 {
    loop {
        let n = QUITS.load(Ordering::Relaxed);
        if n != seen {
            return n;
        }
        futex::wait(&QUITS, seen, super::clock::NEVER);
    }
}

/// Calls the previous handler on the calling thread, or returns that the default action is to exit.
pub fn after_quit() -> AfterQuit {
    let Some(before) = BEFORE_QUIT.get() else {
        return AfterQuit::GoOn;
    };
    match before.sa_sigaction {
        libc::SIG_DFL | libc::SIG_IGN => AfterQuit::Exit,
        _ => {
            let ours = set_quit_action(before);
            // SAFETY: the set is initialised before it is used, and the mask is this thread's own.
            unsafe {
                let mut set: libc::sigset_t = std::mem::zeroed();
                libc::sigemptyset(&mut set);
                libc::sigaddset(&mut set, libc::SIGQUIT);
                libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut());
                // Delivered to this thread before the call returns.
                libc::raise(libc::SIGQUIT);
            }
            set_quit_action(&ours);
            AfterQuit::GoOn
        }
    }
}

/// Ends the process immediately, without running destructors or exit handlers.
pub fn exit_now(status: i32) -> ! {
    // SAFETY: ends the process without running any code of it.
    unsafe { libc::_exit(status) }
}

/// Writes one byte to a non-blocking pipe from a signal handler, which saves `errno`. If the pipe
/// is full its reader is woken anyway.
pub fn write_byte(fd: BorrowedFd<'_>) {
    // SAFETY: write is async-signal-safe, and the byte is valid.
    unsafe { raw::write(fd.as_raw_fd(), [0_u8].as_ptr().cast(), 1) };
}

#[cfg(all(test, not(loom), not(explore)))]
mod tests {
    use super::*;

    fn present() -> libc::stack_t {
        present_stack().unwrap()
    }

    #[test]
    fn an_alternate_stack_is_mapped_whatever_is_dropped_first() {
        let before = present();
        let [first, second] = [(), ()].map(|()| AltStack::install().unwrap());
        let place = first.base.addr();
        drop(first);
        assert_eq!(present().ss_sp, second.base.cast());
        drop(second);
        // A handler would run there.
        assert_eq!(present().ss_sp.addr(), place);
        assert!(!mmap::faults(place));
        // SAFETY: `before` was returned for this thread, and nobody uses the other one.
        unsafe { replace_stack(&before) }.unwrap();

        let (first, place) = (AltStack::install().unwrap(), present().ss_sp.addr());
        let second = AltStack::install().unwrap();
        drop(second);
        assert_eq!(present().ss_sp.addr(), place);
        drop(first);
        assert_eq!(present().ss_sp, before.ss_sp);
    }
}

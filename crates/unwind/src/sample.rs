//! Samples another thread: a copy of its registers and of the stack it runs on.
//!
//! A thread cannot be read from outside while it runs, so it takes the copy itself, in a signal
//! handler. The signal is SIGURG, as in Go: programs tolerate spurious ones, and its default action
//! is to be ignored. Signals that are not ours are passed to the handler that was installed before.
//!
//! | requester                                 | handler                               |
//! |-------------------------------------------|---------------------------------------|
//! | 1. takes the lock: one request at a time  | 1. state is WANTED, for this thread?  |
//! | 2. writes the thread id; state = n,       |    else not our signal                |
//! |    WANTED                                 | 2. n, WANTED → n, TAKING; if this     |
//! | 3. sends the signal                       |    fails, the request was withdrawn   |
//! | 4. waits for n, DONE; after a timeout     | 3. copies; state = n, DONE; wakes     |
//! |    n, WANTED → n, IDLE gives up           |                                       |
//!
//! The number n makes sure that a late handler answers only the request that it has read. All
//! shared data are atomics in static memory: a handler may run at any time.
#![allow(unsafe_code)]

use std::ops::Range;
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, TryLockError};
use std::time::{Duration, Instant};

use windlass_sys::{errno, futex, sched, signal as handlers};

use super::walk::Registers;

/// The most words copied from a stack: its innermost frames.
const MAX_WORDS: usize = 8 * 1024;

/// The goroutine on a thread.
#[derive(Debug)]
pub struct Seen<'a> {
    /// The address of the goroutine.
    pub g: usize,
    /// Its name, empty for none.
    pub name: &'a str,
    /// The position of its label.
    pub label: Option<usize>,
    /// Its stack.
    pub span: Range<usize>,
}

/// Passes on what runs on the calling thread, if that is known. Called in a signal handler.
pub type WhereFn = fn(&mut dyn FnMut(&Seen<'_>));

/// The most bytes copied from a name.
const NAME_BYTES: usize = 64;

/// In [`Desk::label`]: there is none.
const NO_LABEL: usize = usize::MAX;

/// A sample of a thread.
#[derive(Debug)]
pub struct Sample {
    /// The goroutine that ran there, as the [`WhereFn`] passed it on. Of a long name, the beginning.
    pub g: usize,
    /// See [`Seen::name`].
    pub name: Option<String>,
    /// See [`Seen::label`].
    pub label: Option<usize>,
    /// The registers where it was interrupted.
    pub registers: Registers,
    /// The stack from `sp` on.
    pub words: Vec<usize>,
}

const IDLE: u32 = 0;
const WANTED: u32 = 1;
const TAKING: u32 = 2;
const DONE: u32 = 3;
const NEXT: u32 = 4;

/// The request and its answer.
struct Desk {
    /// One of the four states above, and the number of the request in the other bits. Ordering: the
    /// side that passes the other fields on releases, the side that takes them over acquires.
    state: AtomicU32,
    /// Ordering: relaxed; the state publishes it.
    tid: AtomicI32,
    g: AtomicUsize,
    label: AtomicUsize,
    name_len: AtomicUsize,
    name: [AtomicU8; NAME_BYTES],
    registers: [AtomicUsize; 4],
    n_words: AtomicUsize,
    words: Box<[AtomicUsize]>,
    where_fn: WhereFn,
    before: libc::sigaction,
    turn: Mutex<()>,
}

static DESK: OnceLock<Desk> = OnceLock::new();

/// Installs the process's handler, once.
///
/// # Safety
///
/// `where_fn` is async-signal-safe. A span that it passes on and that contains the stack pointer of the calling thread is
/// mapped from there to its end.
pub unsafe fn install(where_fn: WhereFn) {
    let mut first = false;
    DESK.get_or_init(|| {
        first = true;
        // SAFETY: an all-zero sigaction is a valid output argument.
        let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: with a null new action the call only writes the old one to a valid structure.
        unsafe { libc::sigaction(libc::SIGURG, std::ptr::null(), &mut before) };
        Desk {
            state: AtomicU32::new(IDLE),
            tid: AtomicI32::new(0),
            g: AtomicUsize::new(0),
            label: AtomicUsize::new(NO_LABEL),
            name_len: AtomicUsize::new(0),
            name: [const { AtomicU8::new(0) }; NAME_BYTES],
            registers: [const { AtomicUsize::new(0) }; 4],
            n_words: AtomicUsize::new(0),
            words: (0..MAX_WORDS).map(|_| AtomicUsize::new(0)).collect(),
            where_fn,
            before,
            turn: Mutex::new(()),
        }
    });
    if !first {
        return;
    }
    // SAFETY: an all-zero sigaction is valid; the fields that matter are set below.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_urgent as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    // SAFETY: the handler has the signature that SA_SIGINFO requires.
    unsafe { libc::sigaction(libc::SIGURG, &action, std::ptr::null_mut()) };
}

/// There is no answer to a request.
#[derive(Debug)]
pub struct Unanswered;

/// Samples a thread of this process. `None` if what runs on it is not known.
///
/// # Errors
///
/// The thread does not answer within `patience_ns`, or another request is in progress.
pub fn take(tid: i32, patience_ns: u64) -> Result<Option<Sample>, Unanswered> {
    let desk = DESK.get().ok_or(Unanswered)?;
    let _turn = match desk.turn.try_lock() {
        Ok(turn) => turn,
        Err(TryLockError::Poisoned(turn)) => turn.into_inner(),
        Err(TryLockError::WouldBlock) => return Err(Unanswered),
    };
    desk.tid.store(tid, Ordering::Relaxed);
    let wanted = (desk.state.load(Ordering::Relaxed) & !(NEXT - 1)).wrapping_add(NEXT) | WANTED;
    desk.state.store(wanted, Ordering::Release);
    let answered = handlers::send_to_thread(tid, libc::SIGURG) && desk.wait(wanted, patience_ns);
    let sample = answered.then(|| desk.read()).ok_or(Unanswered);
    let idle = wanted & !(NEXT - 1);
    let given_up = desk
        .state
        .compare_exchange(wanted, idle, Ordering::Relaxed, Ordering::Relaxed);
    if given_up.is_err() {
        // It has answered, or is answering now, which is short.
        loop {
            let state = desk.state.load(Ordering::Acquire);
            if state & (NEXT - 1) != TAKING {
                break;
            }
            futex::wait(&desk.state, state, 10_000);
        }
        desk.state.store(idle, Ordering::Relaxed);
        desk.erase();
    }
    sample
}

/// A copy of a stack has marks of handles, too. A search of memory for these is to find the handles alone.
impl Drop for Sample {
    fn drop(&mut self) {
        self.words.fill(0);
        std::hint::black_box(self.words.as_ptr());
    }
}

impl Desk {
    /// Waits for the answer to the request `wanted`.
    fn wait(&self, wanted: u32, patience_ns: u64) -> bool {
        let until = Instant::now() + Duration::from_nanos(patience_ns);
        loop {
            let state = self.state.load(Ordering::Acquire);
            if state & (NEXT - 1) == DONE {
                return true;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() && state == wanted {
                return false;
            }
            // While the copy is being taken, the request cannot be withdrawn.
            let ns = (left.as_nanos() as u64).max(20_000);
            futex::wait(&self.state, state, ns);
        }
    }

    fn read(&self) -> Option<Sample> {
        let n_words = self.n_words.load(Ordering::Relaxed);
        let [ip, sp, fp, link] = [0, 1, 2, 3].map(|i| self.registers[i].load(Ordering::Relaxed));
        (n_words > 0).then(|| Sample {
            g: self.g.load(Ordering::Relaxed),
            name: self.name(),
            label: Some(self.label.load(Ordering::Relaxed)).filter(|&label| label != NO_LABEL),
            registers: Registers { ip, sp, fp, link },
            words: self.words[..n_words]
                .iter()
                .map(|w| w.load(Ordering::Relaxed))
                .collect(),
        })
    }

    /// Erases the copy of the stack: see [`Sample`]'s drop.
    fn erase(&self) {
        let n_words = self.n_words.load(Ordering::Relaxed);
        self.words[..n_words]
            .iter()
            .for_each(|word| word.store(0, Ordering::Relaxed));
    }

    /// The copied name, without a character that was cut.
    fn name(&self) -> Option<String> {
        let len = self.name_len.load(Ordering::Relaxed);
        let bytes = self.name[..len].iter().map(|b| b.load(Ordering::Relaxed));
        let bytes: Vec<u8> = bytes.collect();
        let whole = match std::str::from_utf8(&bytes) {
            Ok(name) => name,
            Err(e) => std::str::from_utf8(&bytes[..e.valid_up_to()]).unwrap_or_default(),
        };
        (!whole.is_empty()).then(|| whole.to_owned())
    }

    /// In the handler: stores what runs here.
    fn store(&self, seen: &Seen<'_>) {
        self.g.store(seen.g, Ordering::Relaxed);
        let label = seen.label.unwrap_or(NO_LABEL);
        self.label.store(label, Ordering::Relaxed);
        let name = seen.name.as_bytes();
        self.name_len
            .store(name.len().min(NAME_BYTES), Ordering::Relaxed);
        for (place, byte) in self.name.iter().zip(name) {
            place.store(*byte, Ordering::Relaxed);
        }
    }

    /// In the handler: answers, if the request is for this thread.
    fn answer(&self, context: *mut libc::c_void) -> bool {
        let wanted = self.state.load(Ordering::Acquire);
        if wanted & (NEXT - 1) != WANTED || self.tid.load(Ordering::Relaxed) != sched::gettid() {
            return false;
        }
        let taking = wanted - WANTED + TAKING;
        let taken =
            self.state
                .compare_exchange(wanted, taking, Ordering::Acquire, Ordering::Relaxed);
        if taken.is_err() {
            return false;
        }
        self.n_words.store(0, Ordering::Relaxed);
        (self.where_fn)(&mut |seen| {
            self.store(seen);
            // SAFETY: with SA_SIGINFO the kernel passes a valid context.
            let registers = unsafe { registers(context) };
            for (place, register) in self.registers.iter().zip(registers) {
                place.store(register, Ordering::Relaxed);
            }
            self.copy(registers[1], seen.span.clone());
        });
        self.state.store(taking - TAKING + DONE, Ordering::Release);
        futex::wake_one(&self.state);
        true
    }

    /// Copies this thread's stack from `sp` on, if that lies in `span`.
    fn copy(&self, sp: usize, span: Range<usize>) {
        const WORD: usize = size_of::<usize>();
        if !span.contains(&sp) || !sp.is_multiple_of(WORD) {
            return;
        }
        let n = ((span.end - sp) / WORD).min(MAX_WORDS);
        for (i, place) in self.words[..n].iter().enumerate() {
            let word = std::ptr::with_exposed_provenance::<usize>(sp + i * WORD);
            // SAFETY:
            // - by the contract of `install`, the stack that this thread runs on is mapped from `sp` to its end.
            // - other threads may be writing to parts that a frame has lent them: a volatile read
            //   takes any value.
            place.store(unsafe { word.read_volatile() }, Ordering::Relaxed);
        }
        self.n_words.store(n, Ordering::Relaxed);
    }
}

/// The registers at a signal: instruction, stack, frame, link.
///
/// # Safety
///
/// `context` is what the kernel passed to the handler.
unsafe fn registers(context: *mut libc::c_void) -> [usize; 4] {
    // SAFETY: by this function's contract.
    let machine = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext };
    #[cfg(target_arch = "x86_64")]
    {
        let register = |at: i32| machine.gregs[at as usize] as usize;
        [
            register(libc::REG_RIP),
            register(libc::REG_RSP),
            register(libc::REG_RBP),
            0,
        ]
    }
    #[cfg(target_arch = "aarch64")]
    {
        [
            machine.pc as usize,
            machine.sp as usize,
            machine.regs[29] as usize,
            machine.regs[30] as usize,
        ]
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        // No walk begins on a stack at 0.
        let _ = machine;
        [0; 4]
    }
}

extern "C" fn on_urgent(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    let errno = errno::location();
    // SAFETY: the address is that of the calling thread's errno.
    let before = unsafe { *errno };
    if let Some(desk) = DESK.get()
        && !desk.answer(context)
    {
        // SAFETY: the handler is called as the kernel would have called it.
        unsafe { handlers::call_handler(&desk.before, signal, info, context) };
    }
    // SAFETY: as above. The interrupted code may be about to read it.
    unsafe { *errno = before };
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    static SPAN: Mutex<Option<Range<usize>>> = Mutex::new(None);

    /// The handler runs while the thread below spins, which holds no lock.
    fn here(f: &mut dyn FnMut(&Seen<'_>)) {
        if let Ok(span) = SPAN.try_lock()
            && let Some(span) = span.clone()
        {
            f(&Seen {
                g: 7,
                // The last character is cut.
                name: concat!(
                    "0123456789012345678901234567890123456789",
                    "01234567890123456789012\u{fc}"
                ),
                label: Some(9),
                span,
            });
        }
    }

    struct SetOnDrop<'a>(&'a AtomicU32);

    impl Drop for SetOnDrop<'_> {
        fn drop(&mut self) {
            self.0.store(1, Ordering::Release);
        }
    }

    #[test]
    fn a_thread_says_where_it_is() {
        // SAFETY: `here` tries a lock that is free, and passes on a part of the frame of the thread that it names.
        unsafe { install(here) };
        let (ready, done) = (AtomicI32::new(0), AtomicU32::new(0));
        std::thread::scope(|s| {
            // Also if an assertion fails: otherwise the scope would wait for ever.
            let _done = SetOnDrop(&done);
            s.spawn(|| {
                let mark = 0x5eed_5eed_usize;
                let at = (&raw const mark).expose_provenance();
                *SPAN.lock().unwrap() = Some(at - 1024..at + size_of::<usize>());
                ready.store(sched::gettid(), Ordering::Release);
                while done.load(Ordering::Acquire) == 0 {
                    std::hint::black_box(&mark);
                }
            });
            let tid = loop {
                match ready.load(Ordering::Acquire) {
                    0 => std::thread::yield_now(),
                    tid => break tid,
                }
            };
            let sample = take(tid, 10_000_000_000).unwrap().unwrap();
            assert_eq!((sample.g, sample.label), (7, Some(9)));
            let name = sample.name.as_deref().unwrap();
            assert_eq!((name.len(), name.ends_with("9012")), (63, true));
            assert_eq!(sample.words.last(), Some(&0x5eed_5eed));
            let copy = &DESK.get().unwrap().words;
            assert!(copy.iter().all(|word| word.load(Ordering::Relaxed) == 0));
            // A thread that does not exist does not answer.
            assert!(take(i32::MAX, 1_000_000).is_err());
            assert!(take(tid, 10_000_000_000).unwrap().is_some());
            // The code that runs here is not known.
            *SPAN.lock().unwrap() = None;
            assert!(take(tid, 10_000_000_000).unwrap().is_none());
        });
    }
}

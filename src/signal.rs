//! Signals, as events that goroutines wait for.
//!
//! A handler can do next to nothing, so it notes the signal and writes a byte into a pipe,
//! which a goroutine reads. Turned down: `signalfd(2)` needs the signal blocked in every thread,
//! also those that windlass has not started, and every child would inherit that.
//!
//! Handlers are registered through the crate signal-hook, so that they get along with handlers of
//! others that use it, and with one that was there before: each is called.
//!
//! # Limits
//!
//! - Signals coalesce, as in the kernel: one that comes several times before it is received
//!   is received once. One that comes after it was received is never lost.
//! - SIGKILL, SIGSTOP, SIGSEGV, SIGILL and SIGFPE are refused: the first two cannot be caught,
//!   and the others end their thread's instruction, not an event somewhere else.
//! - A signal for which there once was a listener does not get its default action back when
//!   the listener is dropped: it is ignored then.

#![allow(unsafe_code)]

use std::borrow::Borrow;
use std::io::{self, PipeWriter, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process;

use signal_hook::SigId;
use signal_hook::consts::FORBIDDEN;
use signal_hook::low_level::{register, unregister};

use crate::fs::{File, Kind};
use crate::loom::native::atomic::{AtomicU64, Ordering};
use crate::loom::native::{Arc, Mutex, PoisonError};
use crate::sys::file;
use crate::sys::signal::write_byte;

pub use signal_hook::consts::{
    SIGALRM, SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGIO, SIGPIPE, SIGQUIT, SIGTERM, SIGTSTP, SIGTTIN,
    SIGTTOU, SIGURG, SIGUSR1, SIGUSR2, SIGWINCH,
};

/// The highest number of a signal on Linux.
const MAX_SIGNAL: i32 = 64;

/// What a handler touches.
#[derive(Debug)]
struct Inbox {
    /// A bit for each signal that came and was not received.
    /// Ordering: set before the byte is written, and taken after it was read; the pipe publishes.
    pending: AtomicU64,
    /// Never blocks.
    wake: PipeWriter,
    /// A child between fork and exec has the same pipe and handlers, and must not speak for us.
    pid: u32,
}

impl Inbox {
    /// The handler's side. One byte for each bit that is set, so that of several receivers as many
    /// wake as there are signals.
    fn put(&self, signal: i32) {
        let bit = 1 << (signal - 1);
        if process::id() == self.pid && self.pending.fetch_or(bit, Ordering::AcqRel) & bit == 0 {
            write_byte(self.wake.as_raw_fd());
        }
    }

    /// Takes the signal with the lowest number.
    fn take(&self) -> Option<i32> {
        loop {
            let pending = self.pending.load(Ordering::Acquire);
            let signal = (pending != 0).then(|| pending.trailing_zeros() as i32 + 1)?;
            let bit = 1 << (signal - 1);
            if self.pending.fetch_and(!bit, Ordering::AcqRel) & bit != 0 {
                return Some(signal);
            }
        }
    }
}

/// A listener to some signals. From its making on none is lost; every listener gets every
/// signal, and of several that receive from one listener each signal goes to one.
///
/// It is an endless iterator, too.
///
/// # Examples
///
/// ```no_run
/// use windlass::signal::{SIGHUP, SIGTERM, Signals};
///
/// # fn reload() {}
/// # fn main() -> std::io::Result<()> {
/// for signal in Signals::new([SIGHUP, SIGTERM])? {
///     match signal {
///         SIGHUP => reload(),
///         _ => break,
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Signals {
    inbox: Arc<Inbox>,
    pipe: File,
    registered: Mutex<Vec<(i32, SigId)>>,
}

impl Signals {
    /// Listens to `signals`.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for one that cannot be listened to; when no descriptors are left.
    pub fn new<I, S>(signals: I) -> io::Result<Signals>
    where
        I: IntoIterator<Item = S>,
        S: Borrow<i32>,
    {
        let (reader, wake) = io::pipe()?;
        let flags = file::flags(wake.as_fd())?;
        file::set_flags(wake.as_fd(), flags | libc::O_NONBLOCK)?;
        let listener = Signals {
            inbox: Arc::new(Inbox {
                pending: AtomicU64::new(0),
                wake,
                pid: process::id(),
            }),
            pipe: File::with_kind(OwnedFd::from(reader), Kind::Stream),
            registered: Mutex::default(),
        };
        for signal in signals {
            listener.add_signal(*signal.borrow())?;
        }
        Ok(listener)
    }

    /// Listens to one more. Listening to one twice is the same as once.
    ///
    /// # Errors
    ///
    /// As [`Signals::new`].
    pub fn add_signal(&self, signal: i32) -> io::Result<()> {
        check(signal)?;
        let mut registered = self
            .registered
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if registered.iter().any(|(known, _)| *known == signal) {
            return Ok(());
        }
        let inbox = Arc::clone(&self.inbox);
        // SAFETY: `put` calls only atomics, getpid and write, which are async-signal-safe, and it
        // does not panic: `signal` was checked.
        let id = unsafe { register(signal, move || inbox.put(signal)) }?;
        registered.push((signal, id));
        Ok(())
    }

    /// Waits for one of the signals and gives its number.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine; blocks a plain thread. On a goroutine whose runtime ends it unwinds.
    ///
    /// # Errors
    ///
    /// In a destructor of a goroutine that is being cancelled.
    pub fn recv(&self) -> io::Result<i32> {
        loop {
            if let Some(signal) = self.try_recv() {
                return Ok(signal);
            }
            // The byte of a signal that was taken without waiting ends this early, and the loop
            // goes round.
            match (&self.pipe).read(&mut [0]) {
                Err(e) if e.kind() != io::ErrorKind::Interrupted => return Err(e),
                _ => {}
            }
        }
    }

    /// One of the signals, if one has come. Does not block.
    #[must_use]
    pub fn try_recv(&self) -> Option<i32> {
        self.inbox.take()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        let registered = self
            .registered
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        for (_, id) in registered.drain(..) {
            unregister(id);
        }
    }
}

impl Iterator for Signals {
    type Item = i32;

    fn next(&mut self) -> Option<i32> {
        self.recv().ok()
    }
}

impl Iterator for &Signals {
    type Item = i32;

    fn next(&mut self) -> Option<i32> {
        self.recv().ok()
    }
}

fn check(signal: i32) -> io::Result<()> {
    if FORBIDDEN.contains(&signal) || !(1..=MAX_SIGNAL).contains(&signal) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("signal {signal} cannot be listened to"),
        ));
    }
    Ok(())
}

/// How many SIGINTs came since the first call of [`ctrl_c`], and how many of them calls have
/// returned for.
///
/// Ordering: sequentially consistent; the pipe that wakes a caller publishes the count, which
/// is registered before every listener and so counted before it hears of the signal.
static SEEN: AtomicU64 = AtomicU64::new(0);
static TAKEN: AtomicU64 = AtomicU64::new(0);

/// Waits for SIGINT, which ctrl-C sends. All that wait at the time return.
///
/// From the first call on SIGINT does not end the process any more. One that comes while
/// nobody waits ends the next call.
///
/// # Blocking
///
/// As [`Signals::recv`].
///
/// # Errors
///
/// As [`Signals::new`] and [`Signals::recv`].
pub fn ctrl_c() -> io::Result<()> {
    count_interrupts()?;
    let start = TAKEN.load(Ordering::SeqCst);
    let signals = Signals::new([SIGINT])?;
    loop {
        let seen = SEEN.load(Ordering::SeqCst);
        if seen > start {
            TAKEN.fetch_max(seen, Ordering::SeqCst);
            return Ok(());
        }
        signals.recv()?;
    }
}

/// Makes sure that SIGINTs are counted, from the first call on and for ever.
fn count_interrupts() -> io::Result<()> {
    static COUNTING: Mutex<bool> = Mutex::new(false);
    let mut counting = COUNTING.lock().unwrap_or_else(PoisonError::into_inner);
    if !*counting {
        let pid = process::id();
        let count = move || {
            if process::id() == pid {
                SEEN.fetch_add(1, Ordering::SeqCst);
            }
        };
        // SAFETY: the action is getpid and an atomic, which are async-signal-safe.
        unsafe { register(SIGINT, count) }?;
        *counting = true;
    }
    Ok(())
}

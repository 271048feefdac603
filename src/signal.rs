//! Signals as events that goroutines wait for.
//!
//! The signal handler records the signal and writes a byte to a pipe, which a goroutine reads. Few
//! other calls are allowed in a handler. Rejected: `signalfd(2)`, which needs the signal blocked in
//! every thread, also in threads that windlass has not started, and every child would inherit the
//! blocked signals.
//!
//! Handlers are registered through the crate signal-hook. Other handlers that use this crate, and a
//! handler that was installed earlier, are called, too.
//!
//! # Limits
//!
//! - Signals coalesce, as in the kernel: a signal that arrives several times before it is received
//!   is received once. A signal that arrives after the last one was received is never lost.
//! - SIGKILL, SIGSTOP, SIGSEGV, SIGILL and SIGFPE are refused. The first two cannot be caught. The
//!   others report a fault of the running thread, not an event.
//! - A child of `fork` needs listeners of its own: those of the parent hear nothing there.
//! - The default action of a signal is not restored when its last listener is dropped. The signal
//!   is then ignored.

#![allow(unsafe_code)]

use std::borrow::Borrow;
use std::fmt;
use std::io::{self, PipeWriter, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::panic::Location;
use std::process;

use signal_hook::SigId;
use signal_hook::consts::FORBIDDEN;
use signal_hook::low_level::{register, signal_name, unregister};

use crate::bubble;
use crate::context::{Canceller, Context};
use crate::fs::{File, Kind};
use crate::loom::native::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::loom::native::{Arc, Mutex, PoisonError};
use crate::sched::wait::spawn;
use crate::sys::file;
use crate::sys::process::n_forks;
use crate::sys::signal::{on_alternate_stack, write_byte};

pub use signal_hook::consts::{
    SIGALRM, SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGIO, SIGPIPE, SIGQUIT, SIGTERM, SIGTSTP, SIGTTIN,
    SIGTTOU, SIGURG, SIGUSR1, SIGUSR2, SIGWINCH,
};

/// The highest signal number on Linux.
const MAX_SIGNAL: i32 = 64;

/// The state that a handler shares with its listener.
#[derive(Debug)]
struct Inbox {
    /// One bit for each signal that has arrived and was not received.
    /// Ordering: set before the byte is written, and taken after it was read; the pipe publishes.
    pending: AtomicU64,
    /// The writing end of the pipe, with `O_NONBLOCK`.
    wake: PipeWriter,
    /// This process. A child between fork and exec has the same pipe and handlers, and must not
    /// write to the pipe.
    pid: u32,
}

impl Inbox {
    /// Records a signal; called by the handler. Writes one byte for each newly set bit, so that one
    /// receiver wakes for each signal.
    fn put(&self, signal: i32) {
        let bit = 1 << (signal - 1);
        if process::id() == self.pid && self.pending.fetch_or(bit, Ordering::AcqRel) & bit == 0 {
            write_byte(self.wake.as_fd());
        }
    }

    /// Takes the pending signal with the lowest number.
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

/// A listener for a set of signals.
///
/// No signal is lost after the listener was created. Every listener receives every signal. If
/// several goroutines receive from one listener, each signal goes to one of them.
///
/// The listener is also an endless iterator.
///
/// # Examples
///
/// ```
/// use signal_hook::low_level::raise;
/// use windlass::signal::{SIGHUP, SIGTERM, Signals};
///
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(1).build()? };
/// rt.run(|| {
///     let signals = Signals::new([SIGHUP, SIGTERM])?;
///     raise(SIGHUP)?;
///     raise(SIGTERM)?;
///     for signal in &signals {
///         match signal {
///             SIGHUP => println!("reload"),
///             _ => break,
///         }
///     }
///     assert_eq!(signals.try_recv(), None);
///     std::io::Result::Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Signals {
    inbox: Arc<Inbox>,
    pipe: File,
    registered: Mutex<Vec<(i32, SigId)>>,
    /// [`n_forks`] of the process that made it: in a child nothing comes.
    n_forks: usize,
}

impl Signals {
    /// Creates a listener for `signals`.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a signal that is refused or does not exist. An OS error if the process
    /// has no free descriptor.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::signal::{SIGUSR1, Signals};
    ///
    /// assert!(Signals::new([SIGUSR1]).is_ok());
    /// assert!(Signals::new([libc::SIGKILL]).is_err());
    /// ```
    pub fn new<I, S>(signals: I) -> io::Result<Signals>
    where
        I: IntoIterator<Item = S>,
        S: Borrow<i32>,
    {
        refuse();
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
            n_forks: n_forks(),
        };
        for signal in signals {
            listener.add_signal(*signal.borrow())?;
        }
        Ok(listener)
    }

    /// Adds a signal to the set. Has no effect if the signal is already in the set.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Errors
    ///
    /// As [`Signals::new`].
    ///
    /// # Examples
    ///
    /// ```
    /// use signal_hook::low_level::raise;
    /// use windlass::signal::{SIGUSR1, SIGWINCH, Signals};
    ///
    /// let signals = Signals::new([SIGUSR1])?;
    /// signals.add_signal(SIGWINCH)?;
    /// raise(SIGWINCH)?;
    /// assert_eq!(signals.recv()?, SIGWINCH);
    /// # Ok::<(), std::io::Error>(())
    /// ```
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
        // SAFETY: `put` uses only atomics, getpid and write, which are async-signal-safe. It does
        // not panic, because `signal` was checked.
        let add = || unsafe { register(signal, move || inbox.put(signal)) };
        let id = on_alternate_stack(signal, add)?;
        registered.push((signal, id));
        Ok(())
    }

    /// Waits for one of the signals and returns its number.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine; blocks a plain thread. Unwinds if the goroutine's runtime ends.
    ///
    /// # Errors
    ///
    /// If the ambient context ([`context`](crate::context)) is done, or if a destructor calls this
    /// while its goroutine unwinds. In a child of `fork`, for a listener that its parent has made.
    ///
    /// # Examples
    ///
    /// See [`Signals::add_signal`].
    pub fn recv(&self) -> io::Result<i32> {
        loop {
            if let Some(signal) = self.try_recv() {
                return Ok(signal);
            }
            if self.n_forks != n_forks() {
                return Err(io::Error::other(
                    "the listener belongs to the process that has forked this one: make one here",
                ));
            }
            // `try_recv` leaves the byte of its signal in the pipe. Such a byte ends the read
            // early, and the loop reads again.
            match (&self.pipe).read(&mut [0]) {
                Err(e) if e.kind() != io::ErrorKind::Interrupted => return Err(e),
                _ => {}
            }
        }
    }

    /// Returns one of the signals if one has arrived.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Examples
    ///
    /// See [`Signals`].
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

#[track_caller]
fn refuse() {
    bubble::refuse(
        "a signal",
        "in a simulation, send the event through a channel",
    );
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

/// The number of SIGINTs since the first call of [`ctrl_c`].
///
/// Ordering: sequentially consistent. The pipe that wakes a caller publishes the count: the
/// counting handler is registered before the listener of any call, so it runs first.
static SEEN: AtomicU64 = AtomicU64::new(0);
/// The value of [`SEEN`] up to which calls have returned. Ordering: as `SEEN`.
static TAKEN: AtomicU64 = AtomicU64::new(0);

/// Waits for SIGINT, which Ctrl-C sends. Every waiting call returns.
///
/// From the first call on, SIGINT no longer terminates the process. A SIGINT that arrives while no
/// call waits ends the next call at once.
///
/// # Blocking
///
/// As [`Signals::recv`].
///
/// # Errors
///
/// As [`Signals::new`] and [`Signals::recv`].
///
/// # Examples
///
/// ```no_run
/// # fn serve() {}
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().build()? };
/// rt.run(|| {
///     windlass::spawn(serve);
///     windlass::signal::ctrl_c()?;
///     println!("shutting down");
///     std::io::Result::Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn ctrl_c() -> io::Result<()> {
    // Before the action of SIGINT changes.
    refuse();
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

/// Derives a context that is cancelled when one of `signals` arrives: Go's `signal.NotifyContext`.
///
/// The [`cause`](Context::cause) is then a [`Received`]. Cancelling the context by the canceller, or
/// dropping that, ends the listening; a signal that arrives later is ignored, as the
/// [module](self#limits) says.
///
/// Until then, this costs a goroutine that waits.
///
/// # Blocking
///
/// Never.
///
/// # Errors
///
/// As [`Signals::new`].
///
/// # Panics
///
/// If the caller is not a goroutine.
///
/// # Examples
///
/// ```
/// use signal_hook::low_level::raise;
/// use windlass::context::Context;
/// use windlass::signal::{self, Received, SIGINT, SIGTERM};
///
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
/// rt.run(|| {
///     let background = Context::background();
///     let (ctx, _canceller) = signal::notify_context(&background, [SIGINT, SIGTERM])?;
///     raise(SIGTERM)?;
///     ctx.run(|| windlass::sleep(std::time::Duration::from_secs(3600))); // returns early
///     let cause = ctx.cause().unwrap();
///     assert_eq!(cause.downcast_ref::<Received>().unwrap().signal(), SIGTERM);
///     assert_eq!(cause.to_string(), "the signal SIGTERM was received");
///     std::io::Result::Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[track_caller]
pub fn notify_context<I, S>(ctx: &Context, signals: I) -> io::Result<(Context, Canceller)>
where
    I: IntoIterator<Item = S>,
    S: Borrow<i32>,
{
    // Before the actions of the signals change.
    spawn::expect_runtime();
    let signals = Signals::new(signals)?;
    let (ctx, canceller) = ctx.with_cancel();
    let (listens, own) = (ctx.clone(), canceller.to_ref());
    let listen = move || {
        if let (Ok(signal), Some(own)) = (listens.run(|| signals.recv()), own) {
            own.cancel_because(Received(signal));
        }
    };
    spawn::spawn_unjoined(listen, Location::caller());
    Ok((ctx, canceller))
}

/// The cause of a context that was cancelled by a signal: see [`notify_context`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Received(i32);

impl Received {
    /// The number of the signal.
    #[must_use]
    pub fn signal(&self) -> i32 {
        self.0
    }
}

impl fmt::Display for Received {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match signal_name(self.0) {
            Some(name) => write!(f, "the signal {name} was received"),
            None => write!(f, "the signal {} was received", self.0),
        }
    }
}

impl std::error::Error for Received {}

/// Registers the handler that counts SIGINTs, at the first call in a process: that of a parent does not
/// count in a child of `fork`. It stays registered forever.
fn count_interrupts() -> io::Result<()> {
    static COUNTING: Mutex<bool> = Mutex::new(false);
    /// The process that counts: not a child between fork and exec, but one that has called this.
    /// Ordering: relaxed; the handler compares it.
    static COUNTS: AtomicU32 = AtomicU32::new(0);
    let mut counting = COUNTING.lock().unwrap_or_else(PoisonError::into_inner);
    let pid = process::id();
    if COUNTS.swap(pid, Ordering::Relaxed) != pid {
        // Signals that the parent has not taken were not sent to the child.
        TAKEN.store(SEEN.load(Ordering::SeqCst), Ordering::SeqCst);
    }
    if !*counting {
        let count = || {
            if process::id() == COUNTS.load(Ordering::Relaxed) {
                SEEN.fetch_add(1, Ordering::SeqCst);
            }
        };
        // SAFETY: the action uses only getpid and atomics, which are async-signal-safe.
        let add = || unsafe { register(SIGINT, count) };
        on_alternate_stack(SIGINT, add)?;
        *counting = true;
    }
    Ok(())
}

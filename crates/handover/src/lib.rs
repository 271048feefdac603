//! Replaces a server by a new process of it, without a lost connection; takes sockets from systemd, and tells it of start
//! and stop.
//!
//! 1. The old process starts its program again, by the same path and arguments, and passes its listeners on ([`replace`]).
//!    Both have the same sockets, so the kernel's queue of connections belongs to both.
//! 2. The new process takes them ([`listen`], [`inherited`]) and says that it is ready ([`ready`]). If it ends before, or
//!    takes too long, the old one goes on as if nothing had been.
//! 3. The old one leaves the queue to the new one and finishes its requests
//!    ([`Graceful::hand_over`](windlass::net::Graceful::hand_over)).
//!
//! The copies of listeners that are kept for this must be closed at the stop, as below: the kernel would go on to take
//! connections, which nobody serves.
//!
//! # Examples
//!
//! A server that SIGTERM ends and SIGUSR2 replaces, by a program that was installed meanwhile, say:
//!
//! ```
//! use std::os::fd::AsFd;
//! use std::time::Duration;
//! use windlass::net::Graceful;
//! use windlass::signal::{Signals, SIGTERM, SIGUSR2};
//!
//! # // SAFETY: nothing here keeps a thread-local across a call that parks.
//! # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
//! rt.run(|| {
//!     let signals = Signals::new([SIGTERM, SIGUSR2])?;
//!     let listener = windlass_handover::listen("127.0.0.1:0")?;
//!     let (passed, server) = (listener.try_clone()?, Graceful::new());
//!     let stopper = server.clone();
//!     windlass::spawn(move || {
//!         loop {
//!             match signals.recv() {
//!                 Ok(SIGUSR2) => match windlass_handover::replace(&[passed.as_fd()], Duration::from_secs(60)) {
//!                     Ok(_) => break stopper.hand_over(),
//!                     Err(error) => eprintln!("the new process is not ready: {error}"),
//!                 },
//!                 _ => {
//!                     windlass_handover::stopping().ok();
//!                     break stopper.stop();
//!                 }
//!             }
//!         }
//!     });
//!     windlass_handover::ready()?;
//!     # server.stop();
//!     server.serve(listener, |_stream, _member| ())?;
//!     server.shutdown(Duration::from_secs(30)).map_err(std::io::Error::other)
//! })?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! A unit for systemd, which starts the server with its socket open; `systemctl reload` replaces it. The unit of the socket
//! has `ListenStream=` and no more:
//!
//! ```text
//! [Service]
//! Type=notify
//! ExecStart=/usr/local/bin/server
//! ExecReload=/bin/kill -USR2 $MAINPID
//! ```
#![allow(unsafe_code)]
#![allow(
    clippy::unnecessary_safety_comment,
    reason = "the one in the example above is for the reader"
)]

use std::env;
use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::net::ToSocketAddrs;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::os::unix::process::parent_id;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use windlass::context::Context;
use windlass::io::{PipeWriter, pipe};
use windlass::net::TcpListener;
use windlass::process::Command;

/// The variable by which a process passes descriptors to the one that replaces it: its number, the listeners, and the pipe
/// on which the new one says that it is ready.
const PASSED: &str = "WINDLASS_HANDOVER";
/// The first descriptor that systemd passes.
const FIRST: RawFd = 3;

/// Descriptors that were passed to this process, until somebody takes them.
static INHERITED: Mutex<Option<Inherited>> = Mutex::new(None);

#[derive(Default)]
struct Inherited {
    listeners: Vec<OwnedFd>,
    ready: Option<PipeWriter>,
}

/// Calls `f` with what was passed to the process, found out by the first call.
fn with_inherited<T>(f: impl FnOnce(&mut Inherited) -> T) -> T {
    let mut inherited = INHERITED.lock().unwrap_or_else(PoisonError::into_inner);
    f(inherited.get_or_insert_with(Inherited::of_environment))
}

impl Inherited {
    fn of_environment() -> Inherited {
        let of_process = || of_process(&env::var(PASSED).ok()?, parent_id());
        match of_process() {
            Some((listeners, ready)) => Inherited {
                listeners: listeners.into_iter().filter_map(owned).collect(),
                ready: owned(ready).map(PipeWriter::from),
            },
            // Whatever their number is said to be, they end where none was passed.
            None => Inherited {
                listeners: of_systemd().map_while(owned).collect(),
                ready: None,
            },
        }
    }
}

/// Reads `parent:listener,listener:pipe`. The variable may have come from a process further up.
fn of_process(text: &str, parent: u32) -> Option<(Vec<RawFd>, RawFd)> {
    let mut parts = text.split(':');
    if parts.next()?.parse() != Ok(parent) {
        return None;
    }
    let listeners = parts.next()?.split(',').filter(|fd| !fd.is_empty());
    let listeners = listeners.map(|fd| fd.parse().ok()).collect::<Option<_>>()?;
    Some((listeners, parts.next()?.parse().ok()?))
}

/// The descriptors of sd_listen_fds(3).
fn of_systemd() -> Range<RawFd> {
    let number = |name| env::var(name).ok()?.parse::<u32>().ok();
    let is_for_us = number("LISTEN_PID") == Some(std::process::id());
    let n = number("LISTEN_FDS").filter(|_| is_for_us).unwrap_or(0);
    FIRST..FIRST.saturating_add(n.try_into().unwrap_or(RawFd::MAX))
}

/// Takes a descriptor that was passed, and does not pass it on to other programs. `None` if none of that number was
/// passed: then it is not open, or it ends when a program begins. Such a one was opened here, as those of the runtime, or
/// somebody has taken it already.
fn owned(fd: RawFd) -> Option<OwnedFd> {
    // SAFETY: takes plain integers. The flags of one that is not open are -1.
    let was_passed = unsafe { libc::fcntl(fd, libc::F_GETFD) } == 0;
    was_passed.then(|| {
        // SAFETY: takes plain integers.
        unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
        // SAFETY: it is open, and was passed to this process for the taker to own; each is taken once, as the flag that
        // was set just now tells.
        unsafe { OwnedFd::from_raw_fd(fd) }
    })
}

/// Takes the descriptors that systemd (`LISTEN_FDS`) or the process before has passed, in their order. Each is returned
/// once, by this function or by [`listen`].
///
/// # Blocking
///
/// Never.
///
/// # Examples
///
/// ```
/// for socket in windlass_handover::inherited() {
///     let listener = windlass::net::TcpListener::from(socket);
/// #   drop(listener);
/// }
/// ```
#[must_use]
pub fn inherited() -> Vec<OwnedFd> {
    with_inherited(|inherited| std::mem::take(&mut inherited.listeners))
}

/// Returns the first listener that was passed and not taken yet, or else a new one at `addr`.
///
/// # Blocking
///
/// As [`TcpListener::bind`].
///
/// # Errors
///
/// As [`TcpListener::bind`].
///
/// # Examples
///
/// The [front page](crate) has one.
pub fn listen(addr: impl ToSocketAddrs) -> io::Result<TcpListener> {
    let passed = with_inherited(|inherited| {
        let is_there = !inherited.listeners.is_empty();
        is_there.then(|| inherited.listeners.remove(0))
    });
    match passed {
        Some(socket) => Ok(TcpListener::from(socket)),
        None => TcpListener::bind(addr),
    }
}

/// Says that the server can serve: to the process that it replaces, and to systemd (`READY=1`). Without either, nothing
/// happens.
///
/// # Blocking
///
/// A message of some bytes to systemd, which blocks only while its queue is full.
///
/// # Errors
///
/// The process before or systemd cannot be told.
///
/// # Examples
///
/// The [front page](crate) has one.
pub fn ready() -> io::Result<()> {
    // The process before tells systemd, which does not know this one yet.
    match with_inherited(|inherited| inherited.ready.take()) {
        Some(mut before) => before.write_all(b"\n"),
        None => notify("READY=1").map(drop),
    }
}

/// Tells systemd that the server ends (`STOPPING=1`). Not for one that is replaced.
///
/// # Blocking
///
/// As [`ready`].
///
/// # Errors
///
/// As [`notify`].
///
/// # Examples
///
/// The [front page](crate) has one.
pub fn stopping() -> io::Result<()> {
    notify("STOPPING=1").map(drop)
}

/// Sends a message of sd_notify(3) to the socket that `NOTIFY_SOCKET` names. Returns whether there is one.
///
/// # Blocking
///
/// As [`ready`].
///
/// # Errors
///
/// Those of the socket.
///
/// # Examples
///
/// ```
/// windlass_handover::notify("STATUS=loading the index")?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn notify(message: &str) -> io::Result<bool> {
    let Some(path) = env::var_os("NOTIFY_SOCKET") else {
        return Ok(false);
    };
    let address = match path.as_encoded_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(path)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.send_to_addr(message.as_bytes(), &address)?;
    Ok(true)
}

/// Starts the program of this process anew, with the same arguments, environment and streams, and passes the listeners to
/// it. When the new process has called [`ready`], tells systemd that it is the main process now (`MAINPID`), and returns
/// its process id.
///
/// The program is found by the path of this process's, so a new version that was installed there is started.
///
/// # Blocking
///
/// Parks the goroutine until the new process is ready, has ended, or `limit` has passed.
///
/// # Errors
///
/// - The program cannot be started.
/// - `UnexpectedEof` if it has ended before it was ready.
/// - `TimedOut` after `limit`; it is killed then.
///
/// # Panics
///
/// If the caller is not a goroutine.
///
/// # Examples
///
/// The [front page](crate) has one.
pub fn replace(listeners: &[BorrowedFd<'_>], limit: Duration) -> io::Result<u32> {
    let (mut reader, writer) = pipe()?;
    let listeners: Vec<RawFd> = listeners.iter().map(AsRawFd::as_raw_fd).collect();
    let list: Vec<String> = listeners.iter().map(RawFd::to_string).collect();
    let pipe = writer.as_raw_fd();
    let passed = format!("{}:{}:{pipe}", std::process::id(), list.join(","));
    let mut command = Command::new(program()?);
    command
        .args(env::args_os().skip(1))
        .env(PASSED, passed)
        .kill_on_drop(true);
    // SAFETY: fcntl is async-signal-safe, and nothing is allocated.
    unsafe {
        command.pre_exec(move || {
            let all = listeners.iter().chain([&pipe]);
            match all
                .copied()
                .all(|fd| libc::fcntl(fd, libc::F_SETFD, 0) == 0)
            {
                true => Ok(()),
                false => Err(io::Error::last_os_error()),
            }
        })
    };
    let mut child = command.spawn()?;
    drop(writer);
    let patience = Context::background().with_timeout(limit);
    match patience.run(|| reader.read_exact(&mut [0])) {
        Ok(()) => {}
        Err(_) if patience.is_done() => return Err(io::ErrorKind::TimedOut.into()),
        Err(error) => return Err(error),
    }
    child.kill_on_drop(false);
    // Whether or not systemd can be told, the new process serves.
    let _ = notify(&format!("MAINPID={}\nREADY=1", child.id()));
    Ok(child.id())
}

/// The path by which this program was started. If its file was replaced since, the kernel says so behind the name.
fn program() -> io::Result<PathBuf> {
    let path = env::current_exe()?.into_os_string();
    let bytes = path.as_encoded_bytes();
    let path = bytes.strip_suffix(b" (deleted)").unwrap_or(bytes);
    Ok(OsStr::from_bytes(path).into())
}

//! Running children, and waiting for them.

use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, OwnedFd};
use std::panic::Location;
use std::process as std_process;
use std::process::{ExitStatus, Output};

use super::stdio::{ChildStderr, ChildStdin, ChildStdout};
use crate::fs::File;
use crate::loom::native::{Mutex, PoisonError};
use crate::poll::op::Deadline;
use crate::poll::{bytes, ready};
use crate::sched::wait::park::{self, Caller};
use crate::sched::wait::points;
use crate::sched::wait::spawn;
use crate::sys::clock::NEVER;
use crate::sys::process::pidfd_open;
use crate::sys::{epoll, socket};

/// The most that a pipe holds, unless its capacity was changed.
const PIPE_BYTES: usize = 64 * 1024;

/// A child process: `std::process::Child`. Created by [`Command::spawn`](super::Command::spawn).
///
/// As in `std`, dropping it neither kills the child nor waits for it, unless
/// [`kill_on_drop`](Child::kill_on_drop) was called.
///
/// # Examples
///
/// ```
/// use std::io::{Read, Write};
/// use windlass::process::{Command, Stdio};
///
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(1).build()? };
/// rt.run(|| {
///     let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
///     let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
///     stdin.write_all(b"hello")?;
///     drop(stdin); // `cat` reads the end of its input
///     let mut text = String::new();
///     stdout.read_to_string(&mut text)?;
///     assert_eq!(text, "hello");
///     assert!(child.wait()?.success());
///     std::io::Result::Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Child {
    /// The pipe to the child's standard input, if it was set to a pipe.
    pub stdin: Option<ChildStdin>,
    /// The pipe from the child's standard output, if it was set to a pipe.
    pub stdout: Option<ChildStdout>,
    /// The pipe from the child's standard error, if it was set to a pipe.
    pub stderr: Option<ChildStderr>,
    child: Owned,
    /// `None` if the kernel or a sandbox denies pidfds. A wait then looks at the child again and again.
    pidfd: Option<OwnedFd>,
}

impl Child {
    /// Wraps a child that `std` has started. If `std` has its status already, the process id may be
    /// that of another process by now; no wait looks at the pidfd then.
    pub(super) fn new(mut child: std_process::Child) -> Child {
        Child {
            pidfd: pidfd_open(child.id()).ok(),
            stdin: child.stdin.take().map(ChildStdin::from),
            stdout: child.stdout.take().map(ChildStdout::from),
            stderr: child.stderr.take().map(ChildStderr::from),
            child: Owned {
                child: Some(child),
                kills_on_drop: false,
            },
        }
    }

    /// Sets whether dropping this kills the child with SIGKILL, as
    /// [`Command::kill_on_drop`](super::Command::kill_on_drop) does. The default is no.
    ///
    /// A killed child is waited for by a goroutine, so that it does not stay a zombie. Where none can
    /// be spawned, because the run ends, the goroutine panics, or the drop is on a plain thread, it is
    /// waited for when the next command is started. Conversion into `std`'s `Child` turns this off.
    ///
    /// # Blocking
    ///
    /// Never; nor does the drop.
    ///
    /// # Examples
    ///
    /// See [`Command::kill_on_drop`](super::Command::kill_on_drop).
    pub fn kill_on_drop(&mut self, yes: bool) {
        self.child.kills_on_drop = yes;
    }

    /// Returns the process id of the child.
    ///
    /// # Blocking
    ///
    /// Never.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Kills the child with SIGKILL. Does not wait for its end.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Errors
    ///
    /// As `std::process::Child::kill`.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::os::unix::process::ExitStatusExt;
    /// use windlass::process::Command;
    ///
    /// # // SAFETY: nothing here keeps a thread-local across a call that parks.
    /// # let rt = unsafe { windlass::Builder::new().processors(1).build()? };
    /// rt.run(|| {
    ///     let mut child = Command::new("sleep").arg("1000").spawn()?;
    ///     assert_eq!(child.try_wait()?, None);
    ///     child.kill()?;
    ///     assert_eq!(child.wait()?.signal(), Some(9));
    ///     std::io::Result::Ok(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn kill(&mut self) -> io::Result<()> {
        self.child.kill()
    }

    /// Waits until the child ends, and returns its exit status. Later calls return the same status.
    ///
    /// Closes the child's standard input first, so that the child does not wait for more input.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine; blocks a plain thread. Unwinds if the goroutine's runtime ends; the
    /// child continues to run.
    ///
    /// # Errors
    ///
    /// As `std::process::Child::wait`. `ECHILD` if other code of this process has waited for the
    /// child. The error of the ambient context ([`context`](crate::context)) if it is done.
    ///
    /// # Examples
    ///
    /// See [`Child`].
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        drop(self.stdin.take());
        if let Some(status) = self.child.try_wait()? {
            return Ok(status);
        }
        if let Some(pidfd) = &self.pidfd {
            ready::wait_until(pidfd.as_fd(), libc::POLLIN, Deadline::at(NEVER))?;
        }
        // A debugger gets the status of a child that it traces first, after the pidfd is readable.
        ready::look_for(|| self.child.try_wait())
    }

    /// Returns the exit status of the child, or `None` if it still runs.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Errors
    ///
    /// As `std::process::Child::try_wait`.
    ///
    /// # Examples
    ///
    /// See [`Child::kill`].
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Reads standard output and standard error to their ends, and waits until the child ends.
    ///
    /// Closes the child's standard input first. Reads both outputs by turns, as they come. An output
    /// ends when all processes that have it have closed it: the child, and those that it has started.
    ///
    /// If the call fails, or unwinds because the run ends, the child is killed with SIGKILL, because nobody has
    /// a handle to it any more. The processes that it has started are not killed. [`kill_on_drop`](Child::kill_on_drop) says
    /// what becomes of the killed child. To keep a child beyond a timeout, take its outputs, read them,
    /// and call [`wait`](Child::wait).
    ///
    /// # Blocking
    ///
    /// Parks the goroutine; blocks a plain thread. Unwinds if the goroutine's runtime ends.
    ///
    /// # Errors
    ///
    /// As `std::process::Child::wait_with_output`. The error of the ambient context
    /// ([`context`](crate::context)) if it is done before the child and its outputs have ended.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::process::{Command, Stdio};
    ///
    /// # // SAFETY: nothing here keeps a thread-local across a call that parks.
    /// # let rt = unsafe { windlass::Builder::new().processors(1).build()? };
    /// rt.run(|| {
    ///     let mut command = Command::new("sh");
    ///     command.args(["-c", "echo out; echo err >&2; exit 3"]);
    ///     let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    ///     let output = child.wait_with_output()?;
    ///     assert_eq!(output.status.code(), Some(3));
    ///     assert_eq!((&output.stdout[..], &output.stderr[..]), (&b"out\n"[..], &b"err\n"[..]));
    ///     std::io::Result::Ok(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn wait_with_output(self) -> io::Result<Output> {
        self.end_with(|child| {
            drop(child.stdin.take());
            let stdout = child.stdout.take().map(File::from);
            let stderr = child.stderr.take().map(File::from);
            let (stdout, stderr) = read_to_ends(stdout, stderr)?;
            let status = child.wait()?;
            Ok(Output {
                status,
                stdout,
                stderr,
            })
        })
    }

    /// Makes the last call on the child. If it fails or unwinds, the child is killed, because nobody else
    /// has a handle to it. If not, it has ended.
    pub(super) fn end_with<T>(
        mut self,
        last: impl FnOnce(&mut Child) -> io::Result<T>,
    ) -> io::Result<T> {
        self.child.kills_on_drop = true;
        last(&mut self)
    }
}

impl From<std_process::Child> for Child {
    /// Takes over a child that `std` has started.
    fn from(child: std_process::Child) -> Child {
        Child::new(child)
    }
}

impl From<Child> for std_process::Child {
    /// Returns the child for calls of `std`, with the pipes that were not taken.
    fn from(mut child: Child) -> std_process::Child {
        child.child.stdin = child.stdin.take().map(|end| OwnedFd::from(end).into());
        child.child.stdout = child.stdout.take().map(|end| OwnedFd::from(end).into());
        child.child.stderr = child.stderr.take().map(|end| OwnedFd::from(end).into());
        child.child.release()
    }
}

/// Children that were killed and could not be waited for then.
static ORPHANS: Mutex<Vec<std_process::Child>> = Mutex::new(Vec::new());

/// Waits for the orphans that have ended by now.
pub(super) fn reap_orphans() {
    let mut orphans = ORPHANS.lock().unwrap_or_else(PoisonError::into_inner);
    // An error means that other code has waited for the child.
    orphans.retain_mut(|orphan| matches!(orphan.try_wait(), Ok(None)));
}

/// A child of `std`'s, which may be killed when this is dropped.
#[derive(Debug)]
struct Owned {
    /// `None` once it was released.
    child: Option<std_process::Child>,
    kills_on_drop: bool,
}

impl Owned {
    fn release(&mut self) -> std_process::Child {
        self.child.take().expect("a child is released at the end")
    }
}

impl Deref for Owned {
    type Target = std_process::Child;

    fn deref(&self) -> &std_process::Child {
        self.child.as_ref().expect("a child is released at the end")
    }
}

impl DerefMut for Owned {
    fn deref_mut(&mut self) -> &mut std_process::Child {
        self.child.as_mut().expect("a child is released at the end")
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        if self.kills_on_drop
            && let Some(mut child) = self.child.take()
            && matches!(child.try_wait(), Ok(None))
        {
            // The child may end at this moment: it is waited for in either case.
            let _ = child.kill();
            let orphan = Orphan(Some(child));
            if matches!(park::caller(), Caller::Goroutine(_)) && !points::is_cancelled() {
                spawn::spawn_unjoined(move || orphan.wait(), Location::caller());
            }
        }
    }
}

/// A child that was killed. It is waited for, or put to the others when this is dropped.
struct Orphan(Option<std_process::Child>);

impl Orphan {
    fn wait(mut self) {
        if let Some(child) = self.0.take() {
            // If the run ends meanwhile, the drop of the child puts it to the others.
            let mut child = Child::new(child);
            child.child.kills_on_drop = true;
            let _ = child.wait();
        }
    }
}

impl Drop for Orphan {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take()
            && matches!(child.try_wait(), Ok(None))
        {
            let mut orphans = ORPHANS.lock().unwrap_or_else(PoisonError::into_inner);
            orphans.push(child);
        }
    }
}

/// Reads both pipes to their ends, by turns: the child may fill either one first.
fn read_to_ends(out: Option<File>, err: Option<File>) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let mut pipes = [out, err].map(|end| (end, Vec::new()));
    let mut both = None;
    while let [(Some(out), _), (Some(err), _)] = &pipes {
        let is_ready =
            |end: &File| socket::poll_now(end.as_fd(), libc::POLLIN).map(|shown| shown != 0);
        match both.get_or_insert_with(|| poll_both(out, err)) {
            Ok(both) => ready::wait_until(both.as_fd(), libc::POLLIN, Deadline::at(NEVER))?,
            // No descriptor is left, or one of them is a regular file, which is always ready.
            Err(_) => ready::look_for(|| {
                let is_one_ready = is_ready(out)? || is_ready(err)?;
                Ok(is_one_ready.then_some(()))
            })?,
        }
        for (end, bytes) in &mut pipes {
            if let Some(pipe) = end
                && is_ready(pipe)?
            {
                read_some(end, bytes)?;
            }
        }
    }
    for (end, bytes) in &mut pipes {
        while read_some(end, bytes)? > 0 {}
    }
    let [(_, out), (_, err)] = pipes;
    Ok((out, err))
}

/// An epoll instance that is readable when one of them is.
fn poll_both(out: &File, err: &File) -> io::Result<OwnedFd> {
    let both = epoll::create()?;
    for end in [out, err] {
        epoll::set(both.as_fd(), end.as_fd(), libc::EPOLLIN as u32, 0)?;
    }
    Ok(both)
}

/// Reads once, also where the pipe is in non-blocking mode, and closes it at its end.
fn read_some(end: &mut Option<File>, bytes: &mut Vec<u8>) -> io::Result<usize> {
    let Some(pipe) = end else {
        return Ok(0);
    };
    let before = bytes.len();
    bytes.resize(before + PIPE_BYTES, 0);
    let n = bytes::read(pipe.stream(), &mut bytes[before..]);
    bytes.truncate(before + *n.as_ref().unwrap_or(&0));
    if matches!(n, Ok(0)) {
        *end = None;
    }
    n
}

//! A running child, and waiting for it.
#![allow(unsafe_code)]

use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process as std_process;
use std::process::{ExitStatus, Output};

use super::stdio::{ChildStderr, ChildStdin, ChildStdout};
use crate::g::header::GRef;
use crate::io::op;
use crate::netpoll::sqe::Request;
use crate::sched::offload::offload;
use crate::sched::park::{self, Caller};
use crate::sys::clock::NEVER;
use crate::sys::process::pidfd_open;
use crate::task;

/// A child process: `std::process::Child`. As there, dropping it neither ends the child nor
/// waits for it.
#[derive(Debug)]
pub struct Child {
    /// The pipe to its standard input, if one was asked for.
    pub stdin: Option<ChildStdin>,
    /// The pipe from its standard output, if one was asked for.
    pub stdout: Option<ChildStdout>,
    /// The pipe from its standard error, if one was asked for.
    pub stderr: Option<ChildStderr>,
    child: std_process::Child,
    /// `None` where there are none to be had: then a spare thread waits.
    pidfd: Option<OwnedFd>,
}

impl Child {
    /// Takes over a child that `std` has started. Called before anybody can have waited for
    /// it, so its number is still its own.
    pub(super) fn new(mut child: std_process::Child) -> Child {
        Child {
            pidfd: pidfd_open(child.id()).ok(),
            stdin: child.stdin.take().map(ChildStdin::from),
            stdout: child.stdout.take().map(ChildStdout::from),
            stderr: child.stderr.take().map(ChildStderr::from),
            child,
        }
    }

    /// The number of the process.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Ends the child with SIGKILL. Does not block.
    ///
    /// # Errors
    ///
    /// As `std::process::Child::kill`.
    pub fn kill(&mut self) -> io::Result<()> {
        self.child.kill()
    }

    /// Waits until the child ends, and gives its status, however often it is asked. Closes the
    /// child's standard input first, so that it does not wait for more of it.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine; blocks a plain thread. On a goroutine whose runtime ends it unwinds,
    /// and the child runs on.
    ///
    /// # Errors
    ///
    /// As `std::process::Child::wait`; `ECHILD` if somebody else has waited for it.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        drop(self.stdin.take());
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            match (park::caller(), &self.pidfd) {
                (Caller::Goroutine(g), Some(pidfd)) => wait_readable(g, pidfd)?,
                (Caller::Goroutine(_), None) => return offload(|| self.child.wait()),
                (Caller::Thread, _) => {
                    park::cancel_point()?;
                    return self.child.wait();
                }
            }
        }
    }

    /// The child's status if it has ended. Does not block.
    ///
    /// # Errors
    ///
    /// As `std::process::Child::try_wait`.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Reads both outputs to their ends, at the same time, and waits until the child ends.
    /// Closes its standard input first.
    ///
    /// # Blocking
    ///
    /// As [`Child::wait`].
    ///
    /// # Errors
    ///
    /// As `std::process::Child::wait_with_output`.
    pub fn wait_with_output(mut self) -> io::Result<Output> {
        drop(self.stdin.take());
        if matches!(park::caller(), Caller::Thread) {
            return self.output_on_thread();
        }
        let (stdout, stderr) = match (self.stdout.take(), self.stderr.take()) {
            (Some(mut out), Some(mut err)) => task::scope(|scope| {
                let err = scope.spawn(move || read_all(&mut err));
                let out = read_all(&mut out)?;
                let err = err.join().unwrap_or_else(|panic| {
                    // A goroutine that only reads does not panic; it was cancelled, and then so
                    // is this one.
                    std::panic::resume_unwind(panic)
                })?;
                io::Result::Ok((out, err))
            })?,
            (out, err) => (
                out.map_or(Ok(Vec::new()), |mut out| read_all(&mut out))?,
                err.map_or(Ok(Vec::new()), |mut err| read_all(&mut err))?,
            ),
        };
        let status = self.wait()?;
        Ok(Output {
            status,
            stdout,
            stderr,
        })
    }

    /// The same by `std`, which polls both pipes.
    fn output_on_thread(mut self) -> io::Result<Output> {
        park::cancel_point()?;
        self.child.stdout = self.stdout.take().map(|end| OwnedFd::from(end).into());
        self.child.stderr = self.stderr.take().map(|end| OwnedFd::from(end).into());
        self.child.wait_with_output()
    }
}

impl From<Child> for std_process::Child {
    /// The child for `std`'s own calls, with the pipes that were not taken.
    fn from(mut child: Child) -> std_process::Child {
        child.child.stdin = child.stdin.take().map(|end| OwnedFd::from(end).into());
        child.child.stdout = child.stdout.take().map(|end| OwnedFd::from(end).into());
        child.child.stderr = child.stderr.take().map(|end| OwnedFd::from(end).into());
        child.child
    }
}

/// Parks until the descriptor is readable.
fn wait_readable(g: GRef, fd: &OwnedFd) -> io::Result<()> {
    let request = Request::PollAdd {
        fd: fd.as_raw_fd(),
        events: libc::POLLIN as u32,
    };
    // SAFETY: the request contains no pointer.
    unsafe { op::run(g, request, NEVER) }.map(drop)
}

fn read_all(from: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.read_to_end(&mut bytes)?;
    Ok(bytes)
}

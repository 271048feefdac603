//! Child processes: `std::process` for goroutines.
//!
//! Names, semantics and errors are those of `std::process`. [`ExitStatus`], [`Output`] and
//! [`Stdio`] are reexported from it.
//!
//! - `std`'s code starts a child, on a spare thread. The child inherits the CPU affinity and the
//!   priority of the caller of [`Runtime::run`](crate::Runtime::run), not those of a pinned
//!   thread. It inherits no ring: descriptors are close-on-exec, and `fork` does not copy the
//!   mappings. `PR_SET_PDEATHSIG` refers to the spare thread, which lives until the run ends. A
//!   goroutine that has locked its thread ([`lock_thread`](crate::task::lock_thread)) starts children
//!   on it: they have its credentials, name spaces and signal mask.
//! - A wait is for one child: the ring polls its pidfd, then `waitid(2)` collects the status of
//!   this child only. Other children of the process are not affected. No SIGCHLD handler is needed.
//!   Where a debugger gets the status first, or without pidfds, a wait asks for the status up to every
//!   50 ms.
//! - A timeout or a context ends a wait. [`Child::wait`] leaves the child as it is;
//!   [`Command::output`], [`Command::status`] and [`Child::wait_with_output`] kill it.
//! - A read or write of a pipe to a child parks the goroutine: [`ChildStdin`], [`ChildStdout`],
//!   [`ChildStderr`].

mod stdio;
mod child;
mod command;

pub use child::Child;
pub use command::{Command, CommandExt};
pub use std::process::{
    CommandArgs, CommandEnvs, ExitCode, ExitStatus, Output, Stdio, Termination, abort, exit, id,
};
pub use stdio::{ChildStderr, ChildStdin, ChildStdout};

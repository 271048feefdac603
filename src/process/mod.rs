//! Processes: `std::process`, with goroutines that wait for children and their pipes.
//!
//! Names, semantics and errors are those of `std::process`; [`ExitStatus`], [`Output`] and
//! [`Stdio`] are its own types.
//!
//! - A child is started by `std`'s own code, on a spare thread: it inherits the CPUs and the
//!   priority that the caller of [`Runtime::run`](crate::Runtime::run) had, not those of a
//!   pinned thread. Rings and their memory stay out of it: descriptors are close-on-exec, and
//!   the mappings are not copied by `fork`. `PR_SET_PDEATHSIG` speaks of that thread; it lives
//!   until the run ends.
//! - A wait is for one child: the ring polls its pidfd, and then `waitid(2)` is asked for this
//!   child alone. Other children of the process are left alone, and no SIGCHLD handler is needed.
//! - Pipes to a child are files that park: [`ChildStdin`], [`ChildStdout`], [`ChildStderr`].

mod stdio;
mod child;
mod command;

pub use child::Child;
pub use command::Command;
pub use std::process::{ExitCode, ExitStatus, Output, Stdio, abort, exit, id};
pub use stdio::{ChildStderr, ChildStdin, ChildStdout};

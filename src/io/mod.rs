//! Input and output with the names of `std::io`. A call that blocks the thread there parks the
//! goroutine here.
//!
//! This module exports everything in `std::io`, so `use windlass::io` can replace `use std::io`. It
//! replaces:
//!
//! - [`copy`], which splices inside the kernel where that is possible;
//! - [`pipe`], [`PipeReader`] and [`PipeWriter`];
//! - the standard streams ([`stdin`], [`stdout`], [`stderr`]) and their locks.
//!
//! It adds:
//!
//! - waits for the readiness of any descriptor ([`wait_readable`], [`wait_writable`] and their
//!   forms with a timeout or a deadline);
//! - [`copy_bidirectional`], which copies both ways between two streams;
//! - [`Async`], which makes a foreign type with a descriptor park;
//! - the results of streams' own methods: [`RecvBuf`].
//!
//! # Examples
//!
//! ```
//! use windlass::io::{self, Read, Write};
//! # // SAFETY: nothing here keeps a thread-local across a call that parks.
//! # let rt = unsafe { windlass::Builder::new().processors(1).build()? };
//! rt.run(|| {
//!     let (mut reader, mut writer) = io::pipe()?;
//!     windlass::spawn(move || writer.write_all(b"hello"));
//!     let mut text = String::new();
//!     reader.read_to_string(&mut text)?;
//!     assert_eq!(text, "hello");
//!     Ok::<(), io::Error>(())
//! })?;
//! # Ok::<(), io::Error>(())
//! ```

mod pipe;
mod reentrant;
mod stdio;
mod non_blocking;
mod pipe_pool;
mod splice;
mod copy;
mod bidirectional;

pub use std::io::*;

pub use crate::poll::ready::{
    wait_readable, wait_readable_deadline, wait_readable_timeout, wait_writable,
    wait_writable_deadline, wait_writable_timeout,
};
pub use crate::poll::recv_buf::RecvBuf;

pub use bidirectional::{Duplex, copy_bidirectional};
pub use copy::copy;
pub use non_blocking::Async;
pub use pipe::{PipeReader, PipeWriter, pipe};
pub use stdio::{
    IsTerminal, Stderr, StderrLock, Stdin, StdinLock, Stdout, StdoutLock, stderr, stdin, stdout,
};

//! Input and output: `std::io`, with what blocks a thread there parking a goroutine.
//!
//! Everything of `std::io` is here under its name, so that `use windlass::io` can stand
//! in for `use std::io`. In place of `std`'s are [`copy`], [`pipe`] and the standard
//! streams ([`stdin`], [`stdout`], [`stderr`]). Besides there are waits for the readiness
//! of any descriptor ([`wait_readable`], ..) and [`Async`] for foreign ones.

pub(crate) mod limit;
pub(crate) mod op;
pub(crate) mod ready;
pub(crate) mod fd;
pub(crate) mod socket;
mod recv_buf;
mod subscription;
mod recv_stream;
mod send_zc;
mod connect;
pub(crate) mod accept_stream;
pub(crate) mod bytes;
mod pipe;
mod stdio;
mod non_blocking;
mod pipe_pool;
mod splice;
mod copy;

pub use std::io::*;

pub use copy::copy;
pub use non_blocking::Async;
pub use pipe::{PipeReader, PipeWriter, pipe};
pub use ready::{
    wait_readable, wait_readable_deadline, wait_readable_timeout, wait_writable,
    wait_writable_deadline, wait_writable_timeout,
};
pub use recv_buf::RecvBuf;
pub use recv_stream::{FinishError, RecvStream};
pub use stdio::{Stderr, Stdin, Stdout, stderr, stdin, stdout};

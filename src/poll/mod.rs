//! Descriptors whose calls park the goroutine: Go's `internal/poll`.
//!
//! `op` runs one operation on the P's poller and parks. `Fd` is a socket with its timeouts, on which
//! `net` builds its types; `bytes` and `ready` do the same for pipes, terminals and foreign
//! descriptors, for `io`, `fs` and `process`.

/// Makes a call on the simulated socket of an `Fd` and returns its result, if it has one.
macro_rules! on_sim_socket {
    ($fd:expr, $sim:ident => $call:expr) => {
        if let Some($sim) = $fd.sim_socket() {
            return $call;
        }
    };
}

pub(crate) mod limit;
pub(crate) mod waits;
pub(crate) mod op;
#[cfg_attr(not(feature = "sim"), path = "no_sim_socket.rs")]
pub(crate) mod sim_socket;
pub(crate) mod ready;
pub(crate) mod off_stack;
pub(crate) mod fd;
pub(crate) mod socket;
pub(crate) mod recv_buf;
mod accept;
pub(crate) mod bytes;
pub mod foreign;

//! A key-value store on several servers, which goes on while most of them work.
//!
//! One server is the *primary*. It puts each change into its log, sends it to the *backups*, and
//! answers the client when a majority of the servers has the change on disk. If the primary fails,
//! the others elect a new one. The protocol is that of Raft (Ongaro and Ousterhout, "In search of an
//! understandable consensus algorithm", USENIX ATC 2014), without changes of membership and without
//! snapshots: the log grows for ever, and is replayed at each start.
//!
//! | file | what it has |
//! |---|---|
//! | `protocol.rs` | commands, messages, and their bytes |
//! | `connection.rs` | messages over TCP |
//! | `log.rs` | the log on disk: checksums, recovery |
//! | `store.rs` | the keys and values, and which requests were carried out already |
//! | `replica.rs` | the protocol, as a plain value without input and output |
//! | `server.rs` | the goroutines of a server |
//! | `client.rs` | the client: finds the primary, tries again |
//!
//! A client can count on this:
//!
//! - **Linearizable.** Each command takes effect at one instant between the call and its answer. A read
//!   is answered only after a majority has confirmed that no newer primary has been elected.
//! - **Durable.** What was answered survives the loss of power of all servers at once.
//! - **Once.** A client numbers its commands, so one that is sent again is not carried out again.
//!
//! All of it is ordinary blocking code. examples/tests/replicated.rs runs it in simulated clusters
//! whose hosts crash and whose links fail.

mod client;
mod connection;
mod log;
mod protocol;
mod replica;
mod server;
mod store;

use std::net::SocketAddr;
use std::path::PathBuf;

use windlass::time::Duration;

pub(crate) use client::Client;
pub(crate) use protocol::Command;
pub(crate) use server::serve;

/// The settings of a server.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// The addresses of all servers. The same list, in the same order, for each of them.
    pub(crate) cluster: Vec<SocketAddr>,
    /// The place of this server in the list.
    pub(crate) id: usize,
    /// The directory of the log.
    pub(crate) data: PathBuf,
    pub(crate) timing: Timing,
    /// Two servers with different seeds hardly ever stand for election at the same time.
    pub(crate) seed: u64,
    pub(crate) bug: Option<Bug>,
}

/// How long servers and clients wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    /// The longest silence of a primary.
    pub(crate) heartbeat: Duration,
    /// A backup that gets no message of a primary for this long, or up to twice as long, stands for
    /// election. A primary that cannot reach a majority for twice as long resigns. It must be well above
    /// the time of a sync on a busy disk.
    pub(crate) election: Duration,
    /// How long an answer may take, before the connection is closed.
    pub(crate) answer: Duration,
    /// The pause after a connection has failed.
    pub(crate) pause: Duration,
}

impl Default for Timing {
    /// For servers in one building.
    fn default() -> Timing {
        Timing {
            heartbeat: Duration::from_millis(200),
            election: Duration::from_millis(1500),
            answer: Duration::from_secs(3),
            pause: Duration::from_millis(50),
        }
    }
}

/// A mistake that the server makes on purpose. Simulations show that they find it.
#[allow(dead_code, reason = "only tests want bugs")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// A record that was written to the log counts as durable before `fsync` has returned.
    AcknowledgeBeforeSync,
    /// A primary answers reads from its own values, and does not ask whether it still is the primary.
    StaleRead,
    /// The goroutine that writes the log waits to be notified, without a look at what has come while
    /// it was writing.
    LostWake,
}

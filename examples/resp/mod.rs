//! A server that speaks RESP, the protocol of Redis, in versions 2 and 3.
//!
//! Each connection has a goroutine, which has no stack while the client is silent
//! ([`Graceful::serve_requests`]). When a request arrives, it reads, carries out all complete commands in its buffer, and
//! writes their answers together. The keys are spread over shards with a lock each, so goroutines
//! on all Ps work at the same time. A command on several keys locks their shards in order, and is
//! atomic as any other; so is a transaction. Passing the commands to one goroutine per shard
//! instead would cost two hand-overs for each.
//!
//! A connection that subscribes to a channel gets a second goroutine, which writes the messages
//! that others publish.

mod command;
mod connection;
mod hashes;
mod hub;
mod keys;
mod lists;
mod messages;
mod pattern;
mod protocol;
mod reply;
mod session;
mod store;
mod texts;
mod transaction;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use windlass::net::{Graceful, TcpListener, TcpStream};
use windlass::sync::Pool;

use connection::{Buffers, Connection};
use hub::Hub;
use session::Client;
use store::Store;

/// The interval at which expired keys are removed that no command uses.
const SWEEP_EVERY: Duration = Duration::from_millis(100);

/// The time limit for a whole request from its first byte, and for a client that does not read its
/// answers.
const PATIENCE: Duration = Duration::from_secs(60);

/// The state that all connections share.
pub(crate) struct Server {
    store: Store,
    hub: Hub,
    graceful: Graceful,
    patience: Duration,
    /// The number of the next connection. Ordering: relaxed, only uniqueness matters.
    next_id: AtomicU64,
}

/// Serves until the server is asked to stop.
///
/// # Errors
///
/// The listener cannot accept any more.
pub(crate) fn serve(listener: TcpListener, graceful: &Graceful) -> io::Result<()> {
    serve_with(listener, graceful, PATIENCE)
}

/// As [`serve`], with other timeouts.
pub(crate) fn serve_with(
    listener: TcpListener,
    graceful: &Graceful,
    patience: Duration,
) -> io::Result<()> {
    let server = Arc::new(Server {
        store: Store::new(),
        hub: Hub::default(),
        graceful: graceful.clone(),
        patience,
        next_id: AtomicU64::new(1),
    });
    let swept = Arc::clone(&server);
    windlass::spawn(move || {
        let mut interval = windlass::time::interval(SWEEP_EVERY);
        loop {
            interval.tick();
            swept.store.sweep();
        }
    });
    let joined = Arc::clone(&server);
    let start = move |stream: &TcpStream| {
        connection::prepare(stream, patience)?;
        let id = joined.next_id.fetch_add(1, Ordering::Relaxed);
        Ok(Client::new(&joined, id))
    };
    let buffers = Pool::new(Buffers::new);
    // Between requests a client may be silent for ever. Errors of a connection concern only its peer.
    graceful.serve_requests(listener, Duration::MAX, start, move |stream, client| {
        Connection::new(&server, stream, client, &mut buffers.get()).run()
    })
}

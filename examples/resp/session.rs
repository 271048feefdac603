//! The server's state of a client.

use std::collections::HashSet;
use std::sync::Arc;

use windlass::net::TcpStream;

use super::Server;
use super::hub::{Hub, Outbox};
use super::store::{Bytes, Store};

/// One client.
pub(super) struct Session {
    server: Arc<Server>,
    pub(super) stream: Arc<TcpStream>,
    pub(super) id: u64,
    pub(super) name: Bytes,
    pub(super) is_resp3: bool,
    /// The channels that it subscribes to.
    pub(super) channels: HashSet<Bytes>,
    /// The queue to its writer, once it has subscribed to a channel.
    pub(super) outbox: Option<Arc<Outbox>>,
    /// Whether to close the connection after the answers so far.
    pub(super) is_over: bool,
}

impl Session {
    pub(super) fn new(server: Arc<Server>, id: u64, stream: TcpStream) -> Session {
        Session {
            server,
            stream: Arc::new(stream),
            id,
            name: Bytes::default(),
            is_resp3: false,
            channels: HashSet::new(),
            outbox: None,
            is_over: false,
        }
    }

    pub(super) fn store(&self) -> &Store {
        &self.server.store
    }

    pub(super) fn hub(&self) -> &Hub {
        &self.server.hub
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        for channel in &self.channels {
            self.hub().unsubscribe(channel, self.id);
        }
    }
}

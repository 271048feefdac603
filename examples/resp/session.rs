//! The server's state of a client.

use std::collections::HashSet;
use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;

use windlass::net::{Member, TcpStream};
use windlass::sync::MutexGuard;

use super::Server;
use super::hub::{Hub, Outbox};
use super::store::{Bytes, Keys, Locked, Store};
use super::transaction::{Queue, Watch};

/// What is kept of a client between two requests.
pub(super) struct Client {
    server: Arc<Server>,
    pub(super) id: u64,
    pub(super) name: Bytes,
    pub(super) is_resp3: bool,
    /// The channels that it subscribes to.
    pub(super) channels: HashSet<Bytes>,
    /// The queue to its writer, once it has subscribed to a channel.
    pub(super) outbox: Option<Arc<Outbox>>,
    /// The commands since MULTI.
    pub(super) queue: Option<Queue>,
    pub(super) watch: Watch,
    /// Whether to close the connection after the answers so far.
    pub(super) is_over: bool,
}

impl Client {
    pub(super) fn new(server: &Arc<Server>, id: u64) -> Client {
        Client {
            server: Arc::clone(server),
            id,
            name: Bytes::default(),
            is_resp3: false,
            channels: HashSet::new(),
            outbox: None,
            queue: None,
            watch: Watch::default(),
            is_over: false,
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        for channel in &self.channels {
            self.server.hub.unsubscribe(channel, self.id);
        }
        let store = &self.server.store;
        for key in self.watch.keys() {
            if let Some(mut keys) = store.lock(store.shard_of(key)) {
                keys.unwatch(key, self.id);
            }
        }
    }
}

/// A client whose requests are carried out.
pub(super) struct Session<'s> {
    server: &'s Server,
    pub(super) stream: &'s TcpStream,
    client: &'s mut Client,
    /// The keys that a transaction has locked, while its commands are carried out.
    held: Option<Locked<'s>>,
}

impl Deref for Session<'_> {
    type Target = Client;

    fn deref(&self) -> &Client {
        self.client
    }
}

impl DerefMut for Session<'_> {
    fn deref_mut(&mut self) -> &mut Client {
        self.client
    }
}

impl<'s> Session<'s> {
    pub(super) fn new(
        server: &'s Server,
        stream: &'s TcpStream,
        client: &'s mut Client,
    ) -> Session<'s> {
        Session {
            server,
            stream,
            client,
            held: None,
        }
    }

    /// Locks the shard of one key.
    pub(super) fn lock(&mut self, key: &[u8]) -> One<'_> {
        self.lock_shard(self.store().shard_of(key))
            .expect("each key has a shard")
    }

    /// Locks a shard, if there are so many.
    pub(super) fn lock_shard(&mut self, shard: usize) -> Option<One<'_>> {
        match &mut self.held {
            None => self.server.store.lock(shard).map(One::Own),
            Some(_) if !self.server.store.all().contains(&shard) => None,
            Some(held) => Some(One::Held(held.at(shard))),
        }
    }

    /// Locks the shards of several keys.
    pub(super) fn lock_all<'k>(&mut self, keys: impl Iterator<Item = &'k [u8]>) -> Many<'_, 's> {
        match &mut self.held {
            None => {
                let store = &self.server.store;
                Many::Own(store.lock_all(keys.map(|key| store.shard_of(key)).collect()))
            }
            Some(held) => Many::Held(held),
        }
    }

    /// Every shard.
    pub(super) fn all_shards(&self) -> Range<usize> {
        self.store().all()
    }

    /// Locks shards for all commands until [`Session::release`].
    pub(super) fn hold(&mut self, shards: Vec<usize>) {
        self.held = Some(self.server.store.lock_all(shards));
    }

    pub(super) fn release(&mut self) {
        self.held = None;
    }

    pub(super) fn store(&self) -> &'s Store {
        &self.server.store
    }

    /// Counts a goroutine that a server waits for when it stops.
    pub(super) fn member(&self) -> Member {
        self.server.graceful.member()
    }

    pub(super) fn hub(&self) -> &'s Hub {
        &self.server.hub
    }
}

/// The locked shard of a key.
pub(super) enum One<'a> {
    Own(MutexGuard<'a, Keys>),
    /// The transaction holds it.
    Held(&'a mut Keys),
}

impl Deref for One<'_> {
    type Target = Keys;

    fn deref(&self) -> &Keys {
        match self {
            One::Own(keys) => keys,
            One::Held(keys) => keys,
        }
    }
}

impl DerefMut for One<'_> {
    fn deref_mut(&mut self) -> &mut Keys {
        match self {
            One::Own(keys) => keys,
            One::Held(keys) => keys,
        }
    }
}

/// The locked shards of several keys.
pub(super) enum Many<'a, 's> {
    Own(Locked<'s>),
    /// The transaction holds them.
    Held(&'a mut Locked<'s>),
}

impl Many<'_, '_> {
    /// The shard of one of the keys.
    pub(super) fn of(&mut self, key: &[u8]) -> &mut Keys {
        match self {
            Many::Own(locked) => locked.of(key),
            Many::Held(locked) => locked.of(key),
        }
    }
}

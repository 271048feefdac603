//! The keys and their values, in shards.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use windlass::sync::{Mutex, MutexGuard};

pub(super) type Bytes = Box<[u8]>;

/// A time in milliseconds since 1970, as Redis counts the lifetime of keys.
pub(super) type UnixMs = i64;

pub(super) fn now_ms() -> UnixMs {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as UnixMs)
}

/// More shards than Ps on most machines, so that two goroutines seldom need the same one.
const N_SHARDS: usize = 256;
/// The number of keys that a sweep removes before it releases the shard's lock.
const SWEEP_BATCH: usize = 256;

#[derive(Debug)]
pub(super) enum Value {
    Text(Vec<u8>),
    List(VecDeque<Bytes>),
    Hash(HashMap<Bytes, Bytes>),
}

impl Value {
    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Value::Text(_) => "string",
            Value::List(_) => "list",
            Value::Hash(_) => "hash",
        }
    }
}

#[derive(Debug)]
struct Entry {
    value: Value,
    expires: Option<UnixMs>,
}

/// All keys.
#[derive(Debug)]
pub(super) struct Store {
    shards: Box<[Shard]>,
    /// Seeded with a secret of this process, so that a client cannot choose keys of a single shard.
    hasher: RandomState,
}

/// On cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard(Mutex<Keys>);

impl Shard {
    fn lock(&self) -> MutexGuard<'_, Keys> {
        // No command leaves a shard half changed, so a panic while it was locked is harmless.
        self.0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Store {
    pub(super) fn new() -> Store {
        Store {
            shards: (0..N_SHARDS).map(|_| Shard::default()).collect(),
            hasher: RandomState::new(),
        }
    }

    /// The shard of a key.
    pub(super) fn shard_of(&self, key: &[u8]) -> usize {
        self.hasher.hash_one(key) as usize % N_SHARDS
    }

    /// Locks a shard, if there are so many.
    pub(super) fn lock(&self, shard: usize) -> Option<MutexGuard<'_, Keys>> {
        self.shards.get(shard).map(Shard::lock)
    }

    /// Locks several shards, in the same order for all commands, so that they cannot deadlock.
    pub(super) fn lock_all(&self, mut shards: Vec<usize>) -> Locked<'_> {
        shards.sort_unstable();
        shards.dedup();
        Locked {
            store: self,
            shards: shards
                .into_iter()
                .map(|at| (at, self.shards[at].lock()))
                .collect(),
        }
    }

    /// Every shard.
    pub(super) fn all(&self) -> std::ops::Range<usize> {
        0..self.shards.len()
    }

    /// Removes the expired keys.
    pub(super) fn sweep(&self) {
        for shard in &self.shards {
            while shard.lock().remove_due(now_ms(), SWEEP_BATCH) {}
        }
    }
}

/// Several locked shards.
pub(super) struct Locked<'a> {
    store: &'a Store,
    shards: Vec<(usize, MutexGuard<'a, Keys>)>,
}

impl Locked<'_> {
    /// The shard of one of the keys for which they were locked.
    pub(super) fn of(&mut self, key: &[u8]) -> &mut Keys {
        self.at(self.store.shard_of(key))
    }

    /// One of the shards that were locked.
    pub(super) fn at(&mut self, shard: usize) -> &mut Keys {
        let at = self.shards.binary_search_by_key(&shard, |(at, _)| *at);
        &mut self.shards[at.expect("it was locked")].1
    }
}

/// The keys of one shard.
#[derive(Debug, Default)]
pub(super) struct Keys {
    entries: HashMap<Bytes, Entry>,
    /// The keys that expire, by their time: exactly those entries that have one.
    ends: BTreeSet<(UnixMs, Bytes)>,
    /// The clients that must hear of changes of a key: their numbers, and the flags that tell them.
    watches: HashMap<Bytes, Vec<(u64, Arc<AtomicBool>)>>,
}

impl Keys {
    /// The value of a key that has not expired.
    pub(super) fn get(&mut self, key: &[u8]) -> Option<&mut Value> {
        self.end_if_due(key);
        self.entries.get_mut(key).map(|entry| &mut entry.value)
    }

    /// The value of a key; inserts the result of `make` if there is none.
    pub(super) fn get_or_insert(&mut self, key: &[u8], make: impl FnOnce() -> Value) -> &mut Value {
        self.end_if_due(key);
        if !self.entries.contains_key(key) {
            let (value, expires) = (make(), None);
            self.entries.insert(key.into(), Entry { value, expires });
        }
        let entry = self.entries.get_mut(key).expect("it was put there");
        &mut entry.value
    }

    pub(super) fn set(&mut self, key: &[u8], value: Value, expires: Option<UnixMs>) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.value = value;
        } else {
            let entry = Entry {
                value,
                expires: None,
            };
            self.entries.insert(key.into(), entry);
        }
        self.set_expires(key, expires);
        self.changed(key);
    }

    pub(super) fn remove(&mut self, key: &[u8]) -> Option<Value> {
        self.end_if_due(key);
        self.set_expires(key, None);
        let removed = self.entries.remove(key)?;
        self.changed(key);
        Some(removed.value)
    }

    /// The last millisecond in which the key exists.
    pub(super) fn expires(&self, key: &[u8]) -> Option<UnixMs> {
        self.entries.get(key)?.expires
    }

    /// Sets when a key expires, if it exists.
    pub(super) fn set_expires(&mut self, key: &[u8], expires: Option<UnixMs>) {
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        if let Some(before) = std::mem::replace(&mut entry.expires, expires) {
            self.ends.remove(&(before, key.into()));
        }
        if let Some(at) = expires {
            self.ends.insert((at, key.into()));
        }
    }

    /// The keys that have not expired.
    pub(super) fn each(&self) -> impl Iterator<Item = (&[u8], &Value)> {
        let now = now_ms();
        let is_there = move |(_, entry): &(_, &Entry)| entry.expires.is_none_or(|at| at >= now);
        let entries = self.entries.iter().filter(is_there);
        entries.map(|(key, entry)| (&**key, &entry.value))
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Removes all keys. Freeing them may take long, so it is left to the caller.
    pub(super) fn take_all(&mut self) -> impl Sized + use<> {
        for (key, clients) in &self.watches {
            if self.entries.contains_key(key) {
                tell(clients);
            }
        }
        (
            std::mem::take(&mut self.entries),
            std::mem::take(&mut self.ends),
        )
    }

    /// Sets `flag` at each change of a key from now on.
    pub(super) fn watch(&mut self, key: &[u8], client: u64, flag: &Arc<AtomicBool>) {
        // That an expired key is removed is no change.
        self.end_if_due(key);
        let clients = self.watches.entry(key.into()).or_default();
        clients.push((client, Arc::clone(flag)));
    }

    pub(super) fn unwatch(&mut self, key: &[u8], client: u64) {
        if let Some(clients) = self.watches.get_mut(key) {
            clients.retain(|(other, _)| *other != client);
            if clients.is_empty() {
                self.watches.remove(key);
            }
        }
    }

    /// Tells those who watch a key. Each command that changes a key calls it.
    pub(super) fn changed(&self, key: &[u8]) {
        // Most of the time nobody watches anything, and no hash is needed.
        if !self.watches.is_empty()
            && let Some(clients) = self.watches.get(key)
        {
            tell(clients);
        }
    }

    /// Removes a key that has expired.
    pub(super) fn end_if_due(&mut self, key: &[u8]) {
        // The clock is read only for keys that expire.
        let expires = self.entries.get(key).and_then(|entry| entry.expires);
        if let Some(at) = expires
            && at < now_ms()
        {
            self.ends.remove(&(at, key.into()));
            self.entries.remove(key);
            self.changed(key);
        }
    }

    /// Removes up to `n` expired keys; `true` if there may be more.
    fn remove_due(&mut self, now: UnixMs, n: usize) -> bool {
        for _ in 0..n {
            match self.ends.first() {
                Some((at, _)) if *at < now => {}
                _ => return false,
            }
            if let Some((_, key)) = self.ends.pop_first() {
                self.entries.remove(&key);
                self.changed(&key);
            }
        }
        true
    }
}

/// Ordering: relaxed. The flag is set and read under the lock of the key's shard.
fn tell(clients: &[(u64, Arc<AtomicBool>)]) {
    for (_, flag) in clients {
        flag.store(true, Ordering::Relaxed);
    }
}

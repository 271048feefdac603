//! The keys and their values, in shards.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::time::Instant;

use windlass::sync::{Mutex, MutexGuard};

pub(super) type Bytes = Box<[u8]>;

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
    expires: Option<Instant>,
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

    /// Locks the shard of one key.
    pub(super) fn lock(&self, key: &[u8]) -> MutexGuard<'_, Keys> {
        self.shards[self.shard_of(key)].lock()
    }

    /// Locks the shards of several keys, in the same order for all commands, so that they cannot
    /// deadlock.
    pub(super) fn lock_all<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) -> Locked<'_> {
        let mut positions: Vec<_> = keys.map(|key| self.shard_of(key)).collect();
        positions.sort_unstable();
        positions.dedup();
        Locked {
            store: self,
            shards: positions
                .into_iter()
                .map(|at| (at, self.shards[at].lock()))
                .collect(),
        }
    }

    /// Removes all keys.
    pub(super) fn clear(&self) {
        for shard in &self.shards {
            let keys = std::mem::take(&mut *shard.lock());
            // Freeing the keys may take long, so it is done after the lock is released.
            drop(keys);
        }
    }

    pub(super) fn len(&self) -> usize {
        let n_keys = |shard: &Shard| shard.lock().entries.len();
        self.shards.iter().map(n_keys).sum()
    }

    /// Removes the expired keys.
    pub(super) fn sweep(&self) {
        for shard in &self.shards {
            while shard.lock().remove_due(Instant::now(), SWEEP_BATCH) {}
        }
    }

    fn shard_of(&self, key: &[u8]) -> usize {
        self.hasher.hash_one(key) as usize % N_SHARDS
    }
}

/// The shards of several keys.
pub(super) struct Locked<'a> {
    store: &'a Store,
    shards: Vec<(usize, MutexGuard<'a, Keys>)>,
}

impl Locked<'_> {
    /// The shard of one of the keys.
    pub(super) fn of(&mut self, key: &[u8]) -> &mut Keys {
        let position = self.store.shard_of(key);
        let at = self.shards.binary_search_by_key(&position, |shard| shard.0);
        &mut self.shards[at.expect("it was locked for this key")].1
    }
}

/// The keys of one shard.
#[derive(Debug, Default)]
pub(super) struct Keys {
    entries: HashMap<Bytes, Entry>,
    /// The keys that expire, by their time: exactly those entries that have one.
    ends: BTreeSet<(Instant, Bytes)>,
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

    pub(super) fn set(&mut self, key: &[u8], value: Value, expires: Option<Instant>) {
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
    }

    pub(super) fn remove(&mut self, key: &[u8]) -> Option<Value> {
        self.end_if_due(key);
        self.set_expires(key, None);
        self.entries.remove(key).map(|entry| entry.value)
    }

    /// When the key expires.
    pub(super) fn expires(&self, key: &[u8]) -> Option<Instant> {
        self.entries.get(key)?.expires
    }

    /// Sets when a key expires, if it exists.
    pub(super) fn set_expires(&mut self, key: &[u8], expires: Option<Instant>) {
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

    fn end_if_due(&mut self, key: &[u8]) {
        // The clock is read only for keys that expire.
        let expires = self.entries.get(key).and_then(|entry| entry.expires);
        if let Some(at) = expires
            && at <= Instant::now()
        {
            self.ends.remove(&(at, key.into()));
            self.entries.remove(key);
        }
    }

    /// Removes up to `n` expired keys; `true` if there may be more.
    fn remove_due(&mut self, now: Instant, n: usize) -> bool {
        for _ in 0..n {
            match self.ends.first() {
                Some((at, _)) if *at <= now => {}
                _ => return false,
            }
            if let Some((_, key)) = self.ends.pop_first() {
                self.entries.remove(&key);
            }
        }
        true
    }
}

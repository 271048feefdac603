//! The keys and values, as the committed entries of the log make them.

use std::collections::BTreeMap;

use super::protocol::{Command, Entry};

/// The values, and the last command of each client with its answer. All servers that have applied
/// the same entries have the same store.
#[derive(Debug, Default)]
pub(super) struct Store {
    values: BTreeMap<String, String>,
    /// Clients that are gone stay here: their last commands might still come.
    sessions: BTreeMap<u64, (u64, Option<String>)>,
}

impl Store {
    /// Carries out an entry, unless the client's command was carried out before: a client that gets no
    /// answer sends its command again, and it may be in the log several times.
    pub(super) fn apply(&mut self, entry: &Entry) {
        if self.is_past(entry.client, entry.number) {
            return;
        }
        let before = match &entry.command {
            Command::Nothing => return,
            Command::Get { key } => self.get(key),
            Command::Put { key, value } => self.values.insert(key.clone(), value.clone()),
            Command::Swap {
                key,
                expected,
                value,
            } => {
                let before = self.get(key);
                if before == *expected {
                    self.values.insert(key.clone(), value.clone());
                }
                before
            }
        };
        self.sessions.insert(entry.client, (entry.number, before));
    }

    pub(super) fn get(&self, key: &str) -> Option<String> {
        self.values.get(key).cloned()
    }

    /// Whether this command of a client, or a later one, was carried out.
    pub(super) fn is_past(&self, client: u64, number: u64) -> bool {
        let last = self.sessions.get(&client);
        last.is_some_and(|(last, _)| *last >= number)
    }

    /// The answer to a client's last command, if it has this number.
    pub(super) fn answer(&self, client: u64, number: u64) -> Option<Option<String>> {
        let (last, answer) = self.sessions.get(&client)?;
        (*last == number).then(|| answer.clone())
    }
}

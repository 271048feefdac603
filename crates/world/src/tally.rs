//! Counts the messages of one channel (`messages`) while the run goes on: what destructors send and drop when it
//! is torn down plays no part.

use std::collections::BTreeMap;
use std::panic::Location;

use super::inside::current;
use super::messages::Channel;

/// Counts the messages of one channel.
#[derive(Debug)]
pub struct Tally {
    id: u64,
    /// The run that it belongs to.
    serial: u64,
}

impl Tally {
    /// For a new channel; `None` if the caller is in no run that counts.
    #[track_caller]
    pub fn new() -> Option<Tally> {
        let site = Location::caller();
        let bubble = current().filter(|bubble| !bubble.is_over())?;
        let mut channels = bubble.messages()?.channels.borrow_mut();
        // A channel that is gone was the last one, or others are there with higher numbers: no number is
        // there twice.
        let id = channels.last_key_value().map_or(0, |(last, _)| last + 1);
        channels.insert(
            id,
            Channel {
                site,
                by: bubble.running(),
                n_waiting: 0,
                n_lost: 0,
            },
        );
        Some(Tally {
            id,
            serial: bubble.serial(),
        })
    }

    fn with(&self, f: impl FnOnce(&mut BTreeMap<u64, Channel>)) {
        if let Some(bubble) = current()
            && bubble.serial() == self.serial
            && !bubble.is_over()
            && let Some(messages) = bubble.messages()
        {
            f(&mut messages.channels.borrow_mut());
        }
    }

    fn channel(&self, f: impl FnOnce(&mut Channel)) {
        self.with(|channels| {
            if let Some(channel) = channels.get_mut(&self.id) {
                f(channel);
            }
        });
    }

    /// A message was sent.
    pub fn sent(&self) {
        self.channel(|channel| channel.n_waiting += 1);
    }

    /// A message was received.
    pub fn received(&self) {
        self.channel(|channel| channel.n_waiting = channel.n_waiting.saturating_sub(1));
    }

    /// The last receiver is gone, and with it all messages. What a host takes with it when it crashes is
    /// no fault of the program.
    pub fn lost(&self) {
        let by_crash = current().is_some_and(|bubble| bubble.is_current_lost());
        self.channel(|channel| {
            let n = std::mem::take(&mut channel.n_waiting);
            channel.n_lost += if by_crash { 0 } else { n };
        });
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        self.with(|channels| {
            let is_empty = |channel: &Channel| channel.n_waiting + channel.n_lost == 0;
            if channels.get(&self.id).is_some_and(is_empty) {
                channels.remove(&self.id);
            }
        });
    }
}

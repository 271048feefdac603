//! Channels without messages that say whether something is the case: "there is something to
//! receive", "the other side is gone". They are disconnected while it is, so a select can wait for
//! it.
//!
//! The state that they follow is behind a lock of its own. They are changed with that lock held, so
//! they are never late. The waiters of a channel that was disconnected are readied after that lock
//! was released.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use super::alarm::Alarm;
use super::receiver::Receiver;
use crate::sync::waitq::{DequeuedList, WaitCtx};

/// The channels that say whether a receiver has something to receive, one for each receiver that asked
/// for it. The lock of the state that they follow guards this list.
#[derive(Debug, Default)]
pub(super) struct ReadyList {
    alarms: BTreeMap<u64, Arc<Alarm>>,
    n_added: u64,
}

/// Such a channel of one receiver, and its key in the [`ReadyList`].
#[derive(Debug)]
pub(super) struct Ready {
    pub(super) channel: Receiver<Infallible>,
    key: u64,
}

impl ReadyList {
    /// Makes the channel of a receiver. It is disconnected from the start if `is_ready`.
    pub(super) fn add(&mut self, is_ready: bool, ctx: &WaitCtx<'_>) -> Ready {
        let channel = Receiver::closing(None);
        let key = self.n_added;
        if let Some(alarm) = channel.alarm() {
            // Nobody waits in it yet.
            alarm.put(is_ready, ctx, &mut DequeuedList::new());
            self.alarms.insert(key, Arc::clone(alarm));
            self.n_added += 1;
        }
        Ready { channel, key }
    }

    /// Removes the channel of a receiver that is dropped. The channel is disconnected for good, because nobody
    /// will change it any more.
    pub(super) fn remove(&mut self, ready: &Ready, ctx: &WaitCtx<'_>, woken: &mut DequeuedList) {
        if let Some(removed) = self.alarms.remove(&ready.key) {
            removed.put(true, ctx, woken);
        }
    }

    /// Disconnects all channels: each receiver has something to receive.
    pub(super) fn raise(&self, ctx: &WaitCtx<'_>, woken: &mut DequeuedList) {
        for alarm in self.alarms.values() {
            alarm.put(true, ctx, woken);
        }
    }
}

/// Makes a channel disconnected, or connected again. See [`Alarm::put`].
pub(super) fn put(
    receiver: &Receiver<Infallible>,
    is_closed: bool,
    ctx: &WaitCtx<'_>,
    woken: &mut DequeuedList,
) {
    if let Some(alarm) = receiver.alarm() {
        alarm.put(is_closed, ctx, woken);
    }
}

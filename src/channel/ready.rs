//! Channels without messages that say whether something is the case: "there is something to
//! receive", "the other side is gone". They are disconnected while it is, so a select can wait for
//! it.
//!
//! The state that they follow is behind a lock of its own. They are changed with that lock held, so
//! they are never late. The waiters of a channel that was disconnected are readied after that lock
//! was released.

use std::convert::Infallible;
use std::sync::Arc;

use super::alarm::Alarm;
use super::receiver::Receiver;
use crate::sync::waitq::{DequeuedList, WaitCtx};

/// The channels of the receivers that asked for one. Guarded by the lock of the state that they
/// follow.
#[derive(Debug, Default)]
pub(super) struct ReadyList(Vec<Arc<Alarm>>);

impl ReadyList {
    /// Adds a channel of a receiver, which is disconnected now if `is_ready`.
    pub(super) fn add(&mut self, is_ready: bool, here: &WaitCtx<'_>) -> Receiver<Infallible> {
        let receiver = Receiver::closing(None);
        if let Some(alarm) = receiver.alarm() {
            // Nobody waits in it yet.
            alarm.put(is_ready, here, &mut DequeuedList::new());
            self.0.push(Arc::clone(alarm));
        }
        receiver
    }

    /// Removes the channel of a receiver that is dropped, and disconnects it: nobody will change it.
    pub(super) fn remove(
        &mut self,
        receiver: &Receiver<Infallible>,
        here: &WaitCtx<'_>,
        woken: &mut DequeuedList,
    ) {
        if let Some(removed) = receiver.alarm() {
            self.0.retain(|alarm| !Arc::ptr_eq(alarm, removed));
            removed.put(true, here, woken);
        }
    }

    /// Disconnects all channels: each receiver has something to receive.
    pub(super) fn raise(&self, here: &WaitCtx<'_>, woken: &mut DequeuedList) {
        for alarm in &self.0 {
            alarm.put(true, here, woken);
        }
    }
}

/// Makes a channel disconnected, or connected again. See [`Alarm::put`].
pub(super) fn put(
    receiver: &Receiver<Infallible>,
    is_closed: bool,
    here: &WaitCtx<'_>,
    woken: &mut DequeuedList,
) {
    if let Some(alarm) = receiver.alarm() {
        alarm.put(is_closed, here, woken);
    }
}

//! Channels without messages that say whether something is the case: "there is something to
//! receive", "the other side is gone". They are disconnected while it is, so a select can wait for
//! it.
//!
//! The state that they follow is behind a lock of its own. They are changed with that lock held, so
//! they are never late. The waiters of a channel that was disconnected are readied after that lock
//! was released.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use super::alarm::Alarm;
use super::err::{RecvTimeoutError, TryRecvError};
use super::receiver::Receiver;
use crate::sched::wait::{current_context, park};
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

/// Whether a channel is disconnected.
pub(super) fn is_closed(receiver: &Receiver<Infallible>) -> bool {
    receiver.try_recv() == Err(TryRecvError::Disconnected)
}

/// Waits until a channel is disconnected. A context does not end the wait.
pub(super) fn wait_closed(receiver: &Receiver<Infallible>) {
    let Err(_) = current_context::shield(|| receiver.recv());
}

/// Waits until a channel is disconnected, or until the time limit has passed or the ambient context
/// is done.
pub(super) fn wait_closed_timeout(receiver: &Receiver<Infallible>, timeout: Duration) -> bool {
    match receiver.recv_timeout(timeout) {
        Ok(never) => match never {},
        Err(RecvTimeoutError::Timeout) => is_closed(receiver),
        // Also the error of a wait that a context or the end of the run has ended. If neither has, the
        // channel was disconnected, and may be connected again by now.
        Err(RecvTimeoutError::Disconnected) => {
            let ended = park::is_cancelled() || current_context::check().is_err();
            !ended || is_closed(receiver)
        }
    }
}

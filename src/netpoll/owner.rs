//! Cancelling a wait for an operation: whatever would end the wait withdraws the operation.
#![allow(unsafe_code)]

use super::multishot_poll::MultishotPoll;
use super::op::{Op, OwnerKind};
use super::poller::Poller;

impl Op {
    /// Asks for the end of the operation, so that its wait ends. `false` if the operation is not
    /// queued yet, or is being handled now: the caller must retry.
    ///
    /// # Safety
    ///
    /// The caller holds the operation's wait (`Status::begin_cancel`).
    pub(crate) unsafe fn withdraw(&self) -> bool {
        let Some((kind, at)) = self.owner() else {
            return false;
        };
        match kind {
            OwnerKind::Poller => {
                // SAFETY: the address was stored with its kind. The poller belongs to a P of the
                // goroutine's runtime, which outlives the goroutine.
                let poller = unsafe { &*at.cast::<Poller>() };
                poller.cancel(self)
            }
            OwnerKind::MultishotPoll => {
                // SAFETY: the address was stored with its kind. While the wait is held, the
                // goroutine's frames stay, and one of them has a reference to the poll.
                let poll = unsafe { &*at.cast::<MultishotPoll>() };
                poll.withdraw(self)
            }
        }
    }
}

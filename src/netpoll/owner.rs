//! Cancelling a wait for an operation: whatever would end the wait withdraws the operation.
#![allow(unsafe_code)]

use super::multishot::Multishot;
use super::multishot_poll::MultishotPoll;
use super::op::{Op, OwnerKind};
use super::poller::Poller;

/// What ends the wait of an operation.
enum Owner<'a> {
    Poller(&'a Poller),
    Multishot(&'a Multishot),
    MultishotPoll(&'a MultishotPoll),
}

impl Owner<'_> {
    fn withdraw(&self, op: &Op) -> bool {
        match self {
            Owner::Poller(poller) => poller.cancel(op),
            Owner::Multishot(multishot) => {
                multishot.withdraw(op);
                true
            }
            Owner::MultishotPoll(poll) => poll.withdraw(op),
        }
    }
}

impl Op {
    /// Asks for the end of the operation, so that its wait ends. `false` if the operation is not
    /// queued yet, or is being handled now: the caller must retry.
    ///
    /// # Safety
    ///
    /// The caller holds the operation's wait (`Status::begin_cancel`).
    pub(crate) unsafe fn withdraw(&self) -> bool {
        // SAFETY: by this function's contract.
        unsafe { self.find_owner() }.is_some_and(|owner| owner.withdraw(self))
    }

    /// # Safety
    ///
    /// As [`Op::withdraw`], as long as the result is used.
    unsafe fn find_owner(&self) -> Option<Owner<'_>> {
        let (kind, at) = self.owner()?;
        // SAFETY: the address was stored with its kind. While the wait is held, the goroutine's
        // frames stay:
        // - a poller belongs to a P of the goroutine's runtime, which outlives the goroutine;
        // - a frame has a reference to the multishot request or poll that it waits for.
        Some(unsafe {
            match kind {
                OwnerKind::Poller => Owner::Poller(&*at.cast()),
                OwnerKind::Multishot => Owner::Multishot(&*at.cast()),
                OwnerKind::MultishotPoll => Owner::MultishotPoll(&*at.cast()),
            }
        })
    }
}

//! A timer: when, and which wait of which goroutine.

use crate::g::header::GRef;
use crate::g::status::{Status, WaitId};

#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) when_ns: u64,
    pub(super) g: GRef,
    pub(super) wait: WaitId,
}

impl Entry {
    /// Whether the wait has ended for another reason.
    pub(super) fn is_stale(&self) -> bool {
        Status::wait_of(self.g.status.load()) != Some(self.wait)
    }
}

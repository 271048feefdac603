//! Holding a parked goroutine still while its stack is copied.
#![allow(unsafe_code)]

use crate::g::header::GRef;
use crate::g::snapshot::StackCopy;
use crate::g::status::Status;
use crate::loom::Ordering;
use crate::sched::types::state::Sched;

/// How often a goroutine is tried that is woken or committed just then.
const TRIES: u32 = 3;

impl Sched {
    /// Copies the stack of `g`, if it is parked. The caller has a reference to it.
    ///
    /// The goroutine cannot be woken meanwhile (`Status::hold`), so it does not run, does
    /// not end, and its stack stays its own.
    ///
    /// The list of Ms is locked before and not during the hold: a waker that spins
    /// may have a lock, and a holder waits for nobody. The M that parked the goroutine
    /// may still be in the commit of the wait, which uses the stack: then it is left alone.
    pub(crate) fn copy_stack(&self, g: GRef, copy: &mut StackCopy) -> bool {
        (0..TRIES).any(|_| {
            let ms = self.ms.lock();
            let Some(wait) = Status::wait_of(g.status.load()) else {
                return false;
            };
            if !g.status.hold(wait) {
                return false;
            }
            let committing = ms
                .all
                .iter()
                .any(|m| m.committing.load(Ordering::Acquire) == g.as_ptr());
            // SAFETY: the wait is held, and no M commits it.
            let taken = !committing && unsafe { copy.take(g) };
            g.status.let_go(wait);
            taken
        })
    }
}

//! The data that a goroutine owns besides its stack while its code runs: the values of its task-locals, and
//! the scope of its current context.
//!
//! A goroutine that uses neither pays two stores: while the code runs, the payload in the G slot is
//! empty, and this struct lies there (`g::header`). Each plain thread has one too
//! (`sched::types::current`).
//!
//! When the goroutine ends, its values are dropped on its own stack.

use std::cell::Cell;

use crate::local_values::LocalValues;

/// The task-locals of one goroutine. Only its own code accesses them.
#[derive(Debug)]
pub(crate) struct GoroutineLocals {
    /// The innermost scope of the current context, null for none: see `g::cancel_wait`.
    cancel_scope: Cell<*const ()>,
    /// The values of its task-locals.
    pub(crate) values: LocalValues,
    /// The number of polls on the stack: calls of `block_on`, and the poll of a goroutine for a future.
    pub(crate) n_polling: Cell<u32>,
    /// Where the number of the goroutine is that holds the lock which this one waits for, null for none. A dump reads it
    /// while it holds the wait.
    #[cfg(feature = "lock-owners")]
    pub(crate) waits_for: Cell<*const crate::loom::native::atomic::AtomicU64>,
    /// The list of the handles that may end its wait (`sync::tag`); empty if it does not wait for such. The leak profile reads
    /// it while it holds the wait.
    #[cfg(feature = "leaks")]
    pub(crate) wanted: Cell<*const [usize]>,
}

impl GoroutineLocals {
    #[inline(always)]
    pub(crate) const fn new() -> GoroutineLocals {
        GoroutineLocals {
            cancel_scope: Cell::new(std::ptr::null()),
            values: LocalValues::new(),
            n_polling: Cell::new(0),
            #[cfg(feature = "lock-owners")]
            waits_for: Cell::new(std::ptr::null()),
            #[cfg(feature = "leaks")]
            wanted: Cell::new(&[]),
        }
    }

    /// The innermost scope of the current context.
    #[inline(always)]
    pub(crate) fn cancel_scope(&self) -> *const () {
        self.cancel_scope.get()
    }

    pub(crate) fn set_cancel_scope(&self, frame: *const ()) {
        self.cancel_scope.set(frame);
    }
}

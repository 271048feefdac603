//! A multishot accept, which completes many times until it is cancelled or fails.
//!
//! It belongs to no stack frame. The results are buffered here until they are taken, and the ring
//! has a reference of its own until the last completion. A goroutine that finds no result waits
//! with an [`Op`] that the kernel does not know: its poller is this struct.
//!
//! | goroutine, in its commit         | reaper                   | canceller of the wait   |
//! |----------------------------------|--------------------------|-------------------------|
//! | 1. Waiting(n)                    | 1. buffer the result     | 1. Waiting → Cancelling |
//! | 2. a result there? go on         | 2. remove the waiter     | 2. remove the waiter    |
//! | 3. not armed? arm, and start     | 3. complete its Op       | 3. if it was there,     |
//! |    again at 2                    |                          |    complete its Op      |
//! | 4. register itself as the waiter |                          |                         |
//!
//! The goroutine's steps 2 to 4, except for the arming, are one step under the lock, and so are
//! steps 1 and 2 of the reaper: the side that removes the waiter is the one that ends its wait.
//!
//! The kernel delivers results as fast as they come. When [`MAX_AHEAD`] results wait, the request
//! is stopped; it is armed again when they have been taken. The completions that were under way
//! still come: at most what had queued up at the listener.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr;

use super::op::{ERESTARTSYS, Op, OwnerKind};
use crate::g::list::GList;
use crate::lock::{Lock, Rank};
use crate::loom::oracle;
use crate::sys::uring::sync_cancel;

/// The most results that may wait before the request is stopped.
pub(crate) const MAX_AHEAD: usize = 16;

/// `IORING_CQE_F_MORE`: it stays armed.
const MORE: u32 = 1 << 1;

/// A result: a connection, or an error number.
pub(crate) type Came = Result<OwnedFd, i32>;

/// The thread that uses a ring, and its runtime, both as addresses that are only compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct By {
    pub(crate) m: *const (),
    pub(crate) runtime: *const (),
}

/// The request as it is armed in a ring.
#[derive(Debug)]
pub(crate) struct ArmedRequest {
    pub(super) ring_fd: i32,
    /// Its `user_data` in that ring.
    pub(super) name: u64,
    pub(crate) by: By,
}

/// The result of [`Multishot::expect`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Expect {
    /// A result is there: do not wait.
    Nothing,
    /// The request must be armed first; then call again.
    ToArm,
    /// The goroutine waits.
    Waiting,
}

#[derive(Debug)]
struct MultishotState {
    /// `None` before the request is queued, and after the last completion.
    armed: Option<ArmedRequest>,
    /// The kernel was asked to cancel it.
    is_stopping: bool,
    /// No goroutine will take results any more.
    is_closed: bool,
    came: VecDeque<Came>,
    /// Null if no goroutine waits.
    waiter: *const Op,
}

/// The multishot accept of one listener.
#[derive(Debug)]
pub(crate) struct Multishot {
    state: Lock<MultishotState>,
}

// SAFETY: the waiter is used only by the thread that removes it under the lock, while its frame
// waits for that; the addresses of the thread and the runtime are only compared.
unsafe impl Send for Multishot {}
// SAFETY: as for Send.
unsafe impl Sync for Multishot {}

impl Multishot {
    pub(crate) fn new() -> Multishot {
        Multishot {
            state: Lock::new(
                Rank::Multi,
                MultishotState {
                    armed: None,
                    is_stopping: false,
                    is_closed: false,
                    came: VecDeque::new(),
                    waiter: ptr::null(),
                },
            ),
        }
    }

    /// Takes the oldest result.
    pub(crate) fn take(&self) -> Option<Came> {
        self.state.lock().came.pop_front()
    }

    /// Whether results may come without arming it again.
    pub(crate) fn is_armed(&self) -> bool {
        self.state.lock().armed.is_some()
    }

    /// Registers `op` to be completed when a result comes, or the last completion. Only done once
    /// the request is armed; from then on a canceller may free the frame that holds this.
    ///
    /// `by` is the calling thread, and its runtime. A request that another thread has armed in ring
    /// `ring_fd` is stopped, as each of its completions would interrupt that thread. So is a
    /// request that another runtime has armed: `op` then waits for a result or the last completion,
    /// and the thread that reaps it returns the goroutine to its runtime (`wake::send_out`).
    pub(crate) fn expect(&self, op: &Op, ring_fd: i32, by: By) -> Expect {
        let mut state = self.state.lock();
        if !state.came.is_empty() {
            return Expect::Nothing;
        }
        let Some(armed) = &state.armed else {
            return Expect::ToArm;
        };
        let is_foreign = armed.by.runtime != by.runtime;
        if is_foreign || armed.ring_fd == ring_fd && armed.by.m != by.m {
            state.stop();
        }
        state.waiter = op;
        op.set_owner(OwnerKind::Multishot, ptr::from_ref(self).cast());
        Expect::Waiting
    }

    /// Records that the request is about to be queued.
    pub(super) fn begin(&self, armed: ArmedRequest) {
        oracle::lives(self);
        let mut state = self.state.lock();
        state.armed = Some(armed);
        state.is_stopping = false;
    }

    /// The reaper's side of a completion. The G that waits for it goes to `ready`. `true` if it was
    /// the last: the ring's reference must be dropped.
    pub(super) fn complete(&self, result: i32, flags: u32, ready: &mut GList) -> bool {
        oracle::touches(self);
        let is_last = flags & MORE == 0;
        let mut state = self.state.lock();
        let unwanted = state.add(result);
        if is_last {
            state.armed = None;
        } else if state.is_closed || state.came.len() >= MAX_AHEAD {
            state.stop();
        }
        let ends_wait = is_last || !state.came.is_empty();
        let waiter = match ends_wait {
            true => std::mem::replace(&mut state.waiter, ptr::null()),
            false => ptr::null(),
        };
        drop(state);
        // Closes the connection, so not under the lock.
        drop(unwanted);
        // SAFETY: it was removed under the lock, so only this code ends its wait, and its frame
        // stays until then.
        if let Some(op) = unsafe { waiter.as_ref() } {
            ready.extend_one(op.complete(0, 0));
        }
        is_last
    }

    /// Ends the wait of `op`, unless another thread is about to. The caller holds the wait
    /// (`Status::begin_cancel`), and checks its mark afterwards.
    pub(crate) fn withdraw(&self, op: &Op) {
        let mut state = self.state.lock();
        if !ptr::eq(state.waiter, op) {
            return;
        }
        state.waiter = ptr::null();
        drop(state);
        let g = op.complete(-libc::ECANCELED, 0);
        debug_assert!(g.is_none(), "the wait is held by the caller");
    }

    /// Asks the kernel to cancel the request. Results that have come can still be taken.
    pub(crate) fn stop(&self) {
        self.state.lock().stop();
    }

    /// No goroutine will take results any more: closes the connections that are here and those still
    /// to come.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        let came = std::mem::take(&mut state.came);
        state.stop();
        // Closes the connections, so not under the lock.
        drop(state);
        drop(came);
    }
}

/// The result in a completion, if any.
fn came(result: i32) -> Option<Came> {
    match -result {
        // SAFETY: the kernel gave this descriptor to this completion alone.
        ..=0 => Some(Ok(unsafe { OwnedFd::from_raw_fd(result) })),
        // The peer had gone before it was accepted: no caller needs to know.
        libc::ECONNABORTED => None,
        // Cancelled by us, or by the kernel because the thread that submitted it has ended.
        libc::ECANCELED | libc::EINTR | ERESTARTSYS => None,
        errno => Some(Err(errno)),
    }
}

impl MultishotState {
    /// Asks the kernel to cancel the request. Under the lock, so that the ring stays open.
    fn stop(&mut self) {
        if let Some(armed) = &self.armed
            && !self.is_stopping
        {
            // It was submitted when it was armed. So a failure means that the last completion is
            // there already, or that the request is being executed right now; then its next
            // completion calls this again.
            self.is_stopping = sync_cancel(armed.ring_fd, armed.name).is_ok();
        }
    }

    /// Buffers the result of a completion. Returns a result that will not be taken, for the caller
    /// to release.
    fn add(&mut self, result: i32) -> Option<Came> {
        let came = came(result)?;
        if self.is_closed {
            return Some(came);
        }
        self.came.push_back(came);
        None
    }
}

impl Drop for Multishot {
    fn drop(&mut self) {
        self.close();
        #[cfg(explore)]
        oracle::dies(self);
    }
}

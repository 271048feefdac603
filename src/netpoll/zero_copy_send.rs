//! An operation that completes twice: a send without copying.
//!
//! The first completion carries the result and ends a wait, like that of every
//! operation. The second, the *notice*, says that the kernel reads the buffer no more;
//! with TCP that may be as late as the peer's acknowledgement. Nothing cancels it. So
//! whoever waits for it may give up waiting, but not the frame: it has to make the
//! kernel drop what it holds, and wait on.
//!
//! The goroutine waits for the notice with an [`Op`] of its own that the kernel does not know:
//! its poller is this. So a deadline, a context or the end of the run ends that wait as it ends
//! every other wait for an operation.
//!
//! | goroutine, in its commit          | reaper of the notice             | canceller of the wait   |
//! |-----------------------------------|----------------------------------|-------------------------|
//! | 1. Waiting(n)                     | 1. swap in "over": if nobody was | 1. Waiting → Cancelling |
//! | 2. CAS nothing → its Op; if over: |    named the frame may go now    | 2. CAS the Op → nothing |
//! |    go on                          | 2. complete the Op that was      | 3. if it was there,     |
//! |                                   |    named                         |    complete it          |
use std::ptr;

use super::op::Op;
use crate::g::header::GRef;
use crate::g::list::GList;
use crate::loom::{AtomicPtr, AtomicU32, Ordering};

/// No waiter has this address.
const OVER: *mut () = ptr::without_provenance_mut(1);

/// The notice's result if the kernel has copied the bytes after all.
const COPIED: u32 = 1 << 31;

/// `IORING_CQE_F_MORE`: a notice follows.
const MORE: u32 = 1 << 1;
/// `IORING_CQE_F_NOTIF`: this is the notice.
const NOTIF: u32 = 1 << 3;

/// Whether the notice has come, and who waits for it.
#[derive(Debug)]
struct Notice {
    /// Null, the operation that the notice ends, or [`OVER`].
    /// Ordering: released by the commit and the reaper, acquired by the other and the canceller.
    word: AtomicPtr<()>,
}

impl Notice {
    fn new() -> Notice {
        Notice {
            word: AtomicPtr::new(ptr::null_mut()),
        }
    }

    fn is_over(&self) -> bool {
        self.word.load(Ordering::Acquire) == OVER
    }

    /// The goroutine's second step. `false` if the notice has come.
    fn expect(&self, waiter: *const ()) -> bool {
        self.swap_if(ptr::null_mut(), waiter.cast_mut())
    }

    /// The canceller's second step. `true` if `waiter` waited: its wait is the caller's to end.
    fn withdraw(&self, waiter: *const ()) -> bool {
        self.swap_if(waiter.cast_mut(), ptr::null_mut())
    }

    fn swap_if(&self, now: *mut (), new: *mut ()) -> bool {
        self.word
            .compare_exchange(now, new, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// The reaper's first step. Gives the waiter whose wait is the caller's to end.
    fn end(&self) -> *const () {
        self.word.swap(OVER, Ordering::AcqRel)
    }
}

/// An operation with a notice, on its goroutine's stack.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct ZeroCopySend {
    /// First, so that both have one address.
    pub(crate) op: Op,
    notice: Notice,
    /// The notice's result. Ordering: relaxed; written before the notice is over.
    usage: AtomicU32,
}

impl ZeroCopySend {
    /// An operation that `g` will park for.
    pub(crate) fn new(g: GRef) -> ZeroCopySend {
        ZeroCopySend {
            op: Op::new(g),
            notice: Notice::new(),
            usage: AtomicU32::new(0),
        }
    }

    /// Whether the kernel has let go of the buffer.
    pub(crate) fn is_over(&self) -> bool {
        self.notice.is_over()
    }

    /// Whether the kernel copied the bytes after all, once it is over.
    pub(crate) fn was_copied(&self) -> bool {
        self.usage.load(Ordering::Relaxed) & COPIED != 0
    }

    /// Names `waiter` as what the notice completes. `false` if it has come. After `true` the
    /// waiter and this may be gone.
    pub(crate) fn expect(&self, waiter: &Op) -> bool {
        waiter.set_notice(ptr::from_ref(self).cast());
        self.notice.expect(ptr::from_ref(waiter).cast())
    }

    /// Ends the wait of `waiter`, if nobody else is about to. The caller holds the wait
    /// (`Status::begin_cancel`), and looks at its mark afterwards. `false` if it does not wait:
    /// it is about to, or the notice has come, and whoever wants its end asks again.
    pub(crate) fn withdraw(&self, waiter: &Op) -> bool {
        let waited = self.notice.withdraw(ptr::from_ref(waiter).cast());
        if waited {
            let g = waiter.complete(-libc::ECANCELED, 0);
            debug_assert!(g.is_none(), "the wait is held by the caller");
        }
        waited
    }

    /// The reaper's side of the result; the G whose wait it ends goes to `ready`. `true` if no
    /// notice follows: the operation may be gone then.
    pub(crate) fn complete(&self, result: i32, flags: u32, ready: &mut GList) -> bool {
        let is_last = flags & MORE == 0;
        if is_last {
            // Nobody waits for a notice before the result is there.
            let waiter = self.notice.end();
            debug_assert!(waiter.is_null());
        }
        ready.extend_one(self.op.complete(result, flags));
        is_last
    }

    /// The reaper's side of the notice. Gives the operation that waited for it, which is the
    /// caller's to complete and stays until then; null if nobody did: then this may be gone.
    pub(crate) fn note_notice(&self, result: i32) -> *const Op {
        self.usage.store(result.cast_unsigned(), Ordering::Relaxed);
        self.notice.end().cast()
    }
}

/// Whether a completion is the notice.
pub(crate) fn is_notice(flags: u32) -> bool {
    flags & NOTIF != 0
}

#[cfg(all(test, loom))]
#[path = "zero_copy_send_loom_tests.rs"]
mod loom_tests;

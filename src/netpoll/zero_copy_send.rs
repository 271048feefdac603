//! A zero-copy send: an operation that completes twice.
//!
//! The first completion carries the result and ends a wait, like that of every operation. The
//! second, the *notice*, says that the kernel has released the buffer. With TCP that may be as late
//! as the peer's acknowledgement, and nothing cancels it. So a goroutine may stop waiting for it,
//! but must not leave the frame before the notice: it makes the kernel drop the data, and waits
//! again.
//!
//! The goroutine waits for the notice with an [`Op`] that the kernel does not know: its poller is
//! this struct. So a deadline, a context or the end of the run ends that wait as it ends every
//! other wait for an operation.
//!
//! | goroutine, in its commit          | reaper of the notice             | canceller of the wait   |
//! |-----------------------------------|----------------------------------|-------------------------|
//! | 1. Waiting(n)                     | 1. swap in "over": if there was  | 1. Waiting → Cancelling |
//! | 2. CAS null → its Op; if over:    |    no waiter, the frame may be   | 2. CAS the Op → null    |
//! |    go on                          |    gone now                      | 3. if it was there,     |
//! |                                   | 2. complete the waiter's Op      |    complete it          |
use std::ptr;

use super::op::Op;
use crate::g::header::GRef;
use crate::g::list::GList;
use crate::loom::{AtomicPtr, AtomicU32, Ordering};

/// No waiter has this address.
const OVER: *mut () = ptr::without_provenance_mut(1);

/// The bit in the notice's result that says that the kernel copied the bytes after all.
const COPIED: u32 = 1 << 31;

/// `IORING_CQE_F_MORE`: a notice follows.
const MORE: u32 = 1 << 1;
/// `IORING_CQE_F_NOTIF`: this is the notice.
const NOTIF: u32 = 1 << 3;

/// Whether the notice has come, and its waiter.
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

    /// The goroutine's step 2. `false` if the notice has come.
    fn expect(&self, waiter: *const ()) -> bool {
        self.swap_if(ptr::null_mut(), waiter.cast_mut())
    }

    /// The canceller's step 2. `true` if `waiter` was registered: the caller must end its wait.
    fn withdraw(&self, waiter: *const ()) -> bool {
        self.swap_if(waiter.cast_mut(), ptr::null_mut())
    }

    fn swap_if(&self, now: *mut (), new: *mut ()) -> bool {
        self.word
            .compare_exchange(now, new, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// The reaper's step 1. Returns the waiter whose wait the caller must end; null if there is
    /// none.
    fn end(&self) -> *const () {
        self.word.swap(OVER, Ordering::AcqRel)
    }
}

/// An operation with a notice, on its goroutine's stack.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct ZeroCopySend {
    /// First, so that both have the same address.
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

    /// Whether the kernel has released the buffer.
    pub(crate) fn is_over(&self) -> bool {
        self.notice.is_over()
    }

    /// Whether the kernel copied the bytes after all, once it is over.
    pub(crate) fn was_copied(&self) -> bool {
        self.usage.load(Ordering::Relaxed) & COPIED != 0
    }

    /// Registers `waiter` to be completed by the notice. `false` if the notice has come. After
    /// `true` the waiter and this struct may be gone.
    pub(crate) fn expect(&self, waiter: &Op) -> bool {
        waiter.set_notice(ptr::from_ref(self).cast());
        self.notice.expect(ptr::from_ref(waiter).cast())
    }

    /// Ends the wait of `waiter`, unless another thread is about to. The caller holds the wait
    /// (`Status::begin_cancel`), and checks its mark afterwards. `false` if it is not registered:
    /// it is about to wait, or the notice has come. The caller must then retry.
    pub(crate) fn withdraw(&self, waiter: &Op) -> bool {
        let waited = self.notice.withdraw(ptr::from_ref(waiter).cast());
        if waited {
            let g = waiter.complete(-libc::ECANCELED, 0);
            debug_assert!(g.is_none(), "the wait is held by the caller");
        }
        waited
    }

    /// The reaper's side of the result. The G whose wait it ends goes to `ready`. `true` if no
    /// notice follows: the operation may be gone then.
    pub(crate) fn complete(&self, result: i32, flags: u32, ready: &mut GList) -> bool {
        let is_last = flags & MORE == 0;
        if is_last {
            // No waiter registers for the notice before the result is there.
            let waiter = self.notice.end();
            debug_assert!(waiter.is_null());
        }
        ready.extend_one(self.op.complete(result, flags));
        is_last
    }

    /// The reaper's side of the notice. Returns the operation that waited for it, which stays until
    /// the caller completes it. Null if none did: then this struct may be gone.
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

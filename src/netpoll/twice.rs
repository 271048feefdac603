//! An operation that completes twice: a send without copying.
//!
//! The first completion carries the result and ends a wait, like that of every
//! operation. The second, the *notice*, says that the kernel reads the buffer no more;
//! with TCP that may be as late as the peer's acknowledgement. Nothing cancels it. So
//! whoever waits for it may give up waiting, but not the frame: it has to make the
//! kernel drop what it holds, and wait on.
//!
//! | goroutine                             | reaper of the notice                |
//! |---------------------------------------|-------------------------------------|
//! | 1. Waiting(n)                         | 1. read the G                       |
//! | 2. CAS nothing → n; if over: go on    | 2. swap in "over": from here on the |
//! | 3. woken early? CAS n → nothing; if   |    frame may go                     |
//! |    over: go on                        | 3. got an n? Waiting(n) → Runnable  |

use super::op::Op;
use crate::g::header::GRef;
use crate::g::list::GList;
use crate::g::status::WaitId;
use crate::loom::{AtomicU32, AtomicU64, Ordering};

const NOTHING: u64 = 0;
/// No wait has this number: its lowest byte would say that nobody waits.
const OVER: u64 = 1;

/// The notice's result if the kernel has copied the bytes after all.
const COPIED: u32 = 1 << 31;

/// `IORING_CQE_F_MORE`: a notice follows.
const MORE: u32 = 1 << 1;
/// `IORING_CQE_F_NOTIF`: this is the notice.
const NOTIF: u32 = 1 << 3;

/// Whether the notice has come, and which wait it ends.
#[derive(Debug)]
struct Notice {
    /// Nothing, the wait that the notice ends, or over.
    /// Ordering: released by the commit and the reaper, acquired by the other.
    word: AtomicU64,
}

impl Notice {
    fn new() -> Notice {
        Notice {
            word: AtomicU64::new(NOTHING),
        }
    }

    fn is_over(&self) -> bool {
        self.word.load(Ordering::Acquire) == OVER
    }

    /// The goroutine's first step. `false` if the notice has come.
    fn expect(&self, wait: WaitId) -> bool {
        self.word
            .compare_exchange(NOTHING, wait.raw(), Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// The goroutine's third step.
    fn withdraw(&self) {
        let named = self.word.load(Ordering::Acquire);
        if named != OVER {
            // A failure means that the notice has come meanwhile.
            let _ = self
                .word
                .compare_exchange(named, NOTHING, Ordering::AcqRel, Ordering::Acquire);
        }
    }

    /// The reaper's second step. Gives the wait to end, if one is named.
    fn end(&self) -> Option<WaitId> {
        let named = self.word.swap(OVER, Ordering::AcqRel);
        (named != NOTHING).then(|| WaitId::from_raw(named))
    }
}

/// An operation with a notice, on its goroutine's stack.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Twice {
    /// First, so that both have one address.
    pub(crate) op: Op,
    notice: Notice,
    /// The notice's result. Ordering: relaxed; written before the notice is over.
    usage: AtomicU32,
}

impl Twice {
    /// An operation that `g` will park for.
    pub(crate) fn new(g: GRef) -> Twice {
        Twice {
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

    /// Names the wait that the notice is to end. `false` if it has come.
    pub(crate) fn expect(&self, wait: WaitId) -> bool {
        self.notice.expect(wait)
    }

    /// Takes back what [`Twice::expect`] said, when the wait is over.
    pub(crate) fn withdraw(&self) {
        self.notice.withdraw();
    }

    /// The reaper's side of a completion; the Gs whose wait it ends go to `ready`.
    /// `true` if it was the last of the operation, which may be gone then.
    pub(crate) fn complete(&self, result: i32, flags: u32, ready: &mut GList) -> bool {
        if flags & NOTIF == 0 {
            let is_last = flags & MORE == 0;
            if is_last {
                self.notice.end();
            }
            ready.extend_one(self.op.complete(result, flags));
            return is_last;
        }
        let g = self.op.g();
        self.usage.store(result.cast_unsigned(), Ordering::Relaxed);
        if let Some(wait) = self.notice.end()
            && g.status.wake(wait)
        {
            ready.push(g);
        }
        true
    }
}

#[cfg(all(test, loom))]
#[path = "twice_loom_tests.rs"]
mod loom_tests;

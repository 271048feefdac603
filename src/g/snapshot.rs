//! A copy of a goroutine's stack, to be walked later.
#![allow(unsafe_code)]

use std::ops::Range;

use windlass_ground::cpu;

use super::coro::Registers;
use super::header::GRef;
use super::status::Reason;
#[cfg(feature = "lock-owners")]
use crate::loom::Ordering;

/// The most bytes copied from a stack: its innermost frames.
const MAX_BYTES: usize = 64 * 1024;

/// The goroutine that holds the lock for which `g` waits, if that is known; 0 for none.
///
/// # Safety
///
/// No thread resumes `g` during the call.
unsafe fn owner_for(g: GRef) -> u64 {
    #[cfg(feature = "lock-owners")]
    if g.status.load().reason() == Reason::Mutex {
        // SAFETY: its code is in a wait for a lock, so its locals are there; by this function's contract it does not
        // change them now.
        let owner = unsafe { g.locals() }.waits_for.get();
        // SAFETY: the frame that waits borrows the lock which this word is a part of.
        return unsafe { owner.as_ref() }.map_or(0, |id| id.load(Ordering::Relaxed));
    }
    let _ = g;
    0
}

/// The part of a parked goroutine's stack that is in use, and the handles for which it waits.
#[derive(Debug)]
pub(crate) struct Rest {
    pub(crate) stack: Range<usize>,
    /// The list of its wait: see `sync::tag`. Empty without the feature `leaks`.
    pub(crate) wanted: Vec<usize>,
    /// How many polls are on its stack.
    pub(crate) n_polling: u32,
}

impl Rest {
    /// One with room for most lists: reading allocates nothing.
    pub(crate) fn new() -> Rest {
        Rest {
            stack: 0..0,
            wanted: Vec::with_capacity(MAX_WANTED),
            n_polling: 0,
        }
    }

    /// Reads those of `g`. `false` if it is not parked on a stack.
    ///
    /// # Safety
    ///
    /// As that of [`StackCopy::take`].
    pub(crate) unsafe fn read(&mut self, g: GRef) -> bool {
        // SAFETY: by this function's contract no thread runs or accesses the coroutine.
        let coro = unsafe { g.coro() };
        let (Some(span), Some(coro)) = (g.stack_span(), coro.as_ref()) else {
            return false;
        };
        let Some(sp) = coro.saved_sp(span.clone()) else {
            return false;
        };
        self.stack = sp..span.end;
        self.wanted.clear();
        self.n_polling = 0;
        if waits_in_code(g.status.load().reason()) {
            // SAFETY: its code is in a wait, so its locals are there; by this function's contract it does not change
            // them now.
            let locals = unsafe { g.locals() };
            self.n_polling = locals.n_polling.get();
            #[cfg(feature = "leaks")]
            {
                // SAFETY: the frame that waits has the list, and takes it from the locals before it ends.
                let wanted = unsafe { &*locals.wanted.get() };
                // A longer list counts as one of what cannot be known.
                let is_short = wanted.len() <= MAX_WANTED;
                self.wanted
                    .extend_from_slice(if is_short { wanted } else { &[] });
            }
        }
        true
    }
}

/// The most handles that are read of a select.
const MAX_WANTED: usize = 64;

/// Whether it is the code of a goroutine that waits for this reason. All but these are left alone.
fn waits_in_code(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::Park
            | Reason::Future
            | Reason::ChanRecv
            | Reason::ChanSend
            | Reason::Select
            | Reason::Mutex
            | Reason::Semaphore
            | Reason::WaitGroup
    )
}

/// The innermost part of a stack, and the registers at which a walk begins.
#[derive(Debug)]
pub(crate) struct StackCopy {
    registers: Option<Registers>,
    /// The node that the stack belongs to, as an index into the runtime's nodes.
    node_idx: Option<usize>,
    /// The stack, from its lowest address to its highest.
    span: Range<usize>,
    /// The goroutine that holds the lock for which this one waits, if that is known; 0 for none.
    owner: u64,
    /// The original address of the first word.
    base: usize,
    words: Vec<usize>,
}

/// A copy has marks of handles, too: they are not to be found where no handle is (`sync::tag`).
#[cfg(feature = "leaks")]
impl Drop for StackCopy {
    fn drop(&mut self) {
        let n = self.words.capacity();
        self.words.clear();
        self.words.resize(n, 0);
        std::hint::black_box(self.words.as_ptr());
    }
}

impl StackCopy {
    /// An empty copy with room for any stack: taking a copy allocates nothing.
    pub(crate) fn new() -> StackCopy {
        StackCopy {
            registers: None,
            node_idx: None,
            span: 0..0,
            owner: 0,
            base: 0,
            words: Vec::with_capacity(MAX_BYTES / size_of::<usize>()),
        }
    }

    /// Copies the stack of `g`. `false` if it has none, or is not parked on it.
    ///
    /// # Safety
    ///
    /// No thread resumes `g` during the call: the caller holds its wait (`Status::hold`), and no M
    /// is committing it; or the caller is the M that ran it last.
    pub(crate) unsafe fn take(&mut self, g: GRef) -> bool {
        self.words.clear();
        // SAFETY: by this function's contract no thread runs or accesses the coroutine.
        let coro = unsafe { g.coro() };
        let (Some(span), Some(coro)) = (g.stack_span(), coro.as_ref()) else {
            return false;
        };
        let Some(sp) = coro.saved_sp(span.clone()) else {
            return false;
        };
        // SAFETY: by this function's contract.
        self.owner = unsafe { owner_for(g) };
        let end = span.end.min(sp + MAX_BYTES);
        for at in (sp..end).step_by(size_of::<usize>()) {
            // SAFETY: the stack stays mapped while its goroutine is alive, which it is, and `sp` lies in
            // it, a multiple of 8 as all that come after it.
            self.words.push(unsafe { cpu::word_at(at) });
        }
        self.base = sp;
        self.span = span;
        self.node_idx = Some(g.home());
        self.registers = Registers::saved_at(sp, &self.words);
        self.registers.is_some()
    }

    /// The stack of a running goroutine, from its stack pointer on.
    #[cfg(feature = "backtrace")]
    pub(crate) fn of(registers: Registers, words: Vec<usize>) -> StackCopy {
        StackCopy {
            registers: Some(registers),
            node_idx: None,
            span: 0..0,
            owner: 0,
            base: registers.sp,
            words,
        }
    }

    /// The whole stack.
    pub(crate) fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    /// The goroutine that holds the lock for which this one waits, if that is known; 0 for none.
    pub(crate) fn owner(&self) -> u64 {
        self.owner
    }

    /// The node that the stack belongs to.
    pub(crate) fn node(&self) -> Option<usize> {
        self.node_idx
    }

    /// The registers with which the goroutine will continue.
    #[cfg_attr(
        not(feature = "backtrace"),
        expect(dead_code, reason = "only a walk needs them")
    )]
    pub(crate) fn registers(&self) -> Option<Registers> {
        self.registers
    }

    /// The word that was at an address.
    #[cfg_attr(
        not(feature = "backtrace"),
        expect(dead_code, reason = "only a walk needs it")
    )]
    pub(crate) fn read(&self, at: usize) -> Option<usize> {
        let offset = at.checked_sub(self.base)?;
        if !offset.is_multiple_of(size_of::<usize>()) {
            return None;
        }
        self.words.get(offset / size_of::<usize>()).copied()
    }
}

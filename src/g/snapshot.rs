//! A copy of a goroutine's stack, to be walked later.
#![allow(unsafe_code)]

use super::coro::Registers;
use super::header::GRef;
use crate::loom::native::atomic::{AtomicUsize, Ordering};

/// The most bytes copied from a stack: its innermost frames.
const MAX_BYTES: usize = 64 * 1024;

/// The innermost part of a stack, and the registers at which a walk begins.
#[derive(Debug, Default)]
pub(crate) struct StackCopy {
    registers: Option<Registers>,
    /// The node that the stack belongs to, as an index into the runtime's nodes.
    node_idx: Option<usize>,
    /// The original address of the first word.
    base: usize,
    words: Vec<usize>,
}

impl StackCopy {
    /// An empty copy with room for any stack: taking a copy allocates nothing.
    pub(crate) fn new() -> StackCopy {
        StackCopy {
            words: Vec::with_capacity(MAX_BYTES / size_of::<usize>()),
            ..StackCopy::default()
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
        let end = span.end.min(sp + MAX_BYTES);
        for at in (sp..end).step_by(size_of::<usize>()) {
            let word = std::ptr::with_exposed_provenance_mut::<usize>(at);
            // SAFETY:
            // - the stack stays mapped while its goroutine is alive, which it is, and `sp` lies in
            //   it, a multiple of 8 as all that come after it.
            // - other threads may be writing to parts that a frame has lent them: words of the
            //   runtime (`completion`) are atomic, and so is this access. Of a buffer or a result
            //   any value will do, and no such word is used to walk the stack.
            let word = unsafe { AtomicUsize::from_ptr(word) };
            // ORDERING: relaxed; the words that a walk needs were written before the goroutine
            // switched out.
            self.words.push(word.load(Ordering::Relaxed));
        }
        self.base = sp;
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
            base: registers.sp,
            words,
        }
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

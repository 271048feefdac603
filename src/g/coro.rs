//! The only module that uses corosensei: it makes a coroutine on a stack, resumes it, and switches
//! out of it with a word that says why.
#![allow(unsafe_code)]

use std::borrow::Borrow;
use std::mem::MaybeUninit;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::ptr::NonNull;

use corosensei::{CoroutineResult, Yielder};
use windlass_ground::stack::Stack;
use windlass_ground::std_traits::fmt_as;

use crate::race::Fiber;

/// Why a goroutine switched back to its M, in one word: small numbers are tags, any other value is
/// the address of a park's commit record on its stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Switch(usize);

impl Switch {
    /// Queue it at the tail of the local queue.
    pub(crate) const YIELD: Switch = Switch(0);
    /// Its M has lost its P: queue the G, park the M.
    pub(crate) const LOST_P: Switch = Switch(1);
    /// Queue it on the node's queue: others have waited long.
    pub(crate) const PREEMPTED: Switch = Switch(2);

    /// A park with its commit record at `p`.
    pub(crate) fn park<T>(p: NonNull<T>) -> Switch {
        Switch(p.as_ptr().addr())
    }

    /// The address passed to [`Switch::park`], if this is a park.
    #[inline]
    pub(crate) fn parked<T>(self) -> Option<NonNull<T>> {
        if self.0 <= Switch::PREEMPTED.0 {
            None
        } else {
            NonNull::new(std::ptr::with_exposed_provenance_mut(self.0))
        }
    }
}

/// The word that an M passes when it resumes a goroutine: its own address.
pub(crate) type Resume = usize;

/// The yielder through which a goroutine switches out.
pub(crate) type Out = Yielder<Resume, Switch>;

/// A goroutine's own stack, or one that its owner takes back after a call.
pub(crate) struct OnStack<S>(S);

// SAFETY:
// - `base` is the 16-byte aligned top, `limit` the bottom of one arena slot.
// - the slot has a guard page at its bottom and more than MIN_STACK_SIZE above it (windlass-ground's `stack`).
unsafe impl<S: Borrow<Stack>> corosensei::stack::Stack for OnStack<S> {
    #[inline]
    fn base(&self) -> NonZeroUsize {
        self.0.borrow().top()
    }

    #[inline]
    fn limit(&self) -> NonZeroUsize {
        self.0.borrow().bottom()
    }
}

/// Calls `f`, which must not unwind, on `stack`. The goroutine may switch out meanwhile, and is resumed
/// there: a switch saves the stack pointer, whatever stack it points to.
pub(crate) fn on_stack<T>(stack: &Stack, f: impl FnOnce() -> T) -> T {
    corosensei::on_stack(OnStack(stack), f)
}

/// corosensei's type for a goroutine. rustc compiles a method of it in the codegen unit of the type's
/// module, with `Coroutine::resume`: the M's loop (`sched::proc::run`) is one, so that LLVM inlines
/// `resume` there. Elsewhere that would depend on the sizes of all codegen units.
pub(crate) type Coroutine = corosensei::Coroutine<Resume, Switch, (), OnStack<Stack>>;

/// A goroutine's stack with its saved registers.
pub(crate) struct Coro(Coroutine);

fmt_as!(Debug for Coro, "Coro(..)");

impl Coro {
    /// Makes a coroutine that will run `f` on `stack`. `f` must not unwind.
    #[inline]
    pub(crate) fn new<F: FnOnce(&Out, Resume) + 'static>(stack: Stack, f: F) -> Coro {
        Coro(Coroutine::with_stack(OnStack(stack), f))
    }

    /// Runs it, on its fiber, until it switches out (`Some`) or returns (`None`).
    #[inline(always)]
    pub(crate) fn resume(&mut self, with: Resume, fiber: &Fiber) -> Option<Switch> {
        let from = fiber.enter();
        let result = self.0.resume(with);
        from.back();
        match result {
            CoroutineResult::Yield(why) => Some(why),
            CoroutineResult::Return(()) => None,
        }
    }

    /// The address of a suspended coroutine's saved registers on its stack, which spans `span`.
    ///
    /// corosensei does not expose it, so this searches for it: of the words of a coroutine, two are
    /// addresses inside its stack, the start and the current position, and stacks grow down. The
    /// caller verifies the result by walking the stack.
    pub(crate) fn saved_sp(&self, span: Range<usize>) -> Option<usize> {
        const WORDS: usize = size_of::<Coro>() / size_of::<usize>();
        let words = std::ptr::from_ref(self).cast::<MaybeUninit<usize>>();
        let inside = |word: &usize| span.contains(word) && word.is_multiple_of(8);
        (0..WORDS)
            // SAFETY:
            // - the words are those of `self`; as integers they may have any value.
            // - all of them are initialised: the fields are words, so there is no padding.
            .map(|i| unsafe { words.add(i).read().assume_init() })
            .filter(inside)
            .min()
    }

    /// Takes the stack from a coroutine that has returned.
    #[inline]
    pub(crate) fn into_stack(self) -> Stack {
        debug_assert!(self.0.done());
        self.0.into_stack().0
    }
}

/// The registers at which a stack walk begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(feature = "backtrace"),
    allow(dead_code, reason = "only a walk of the stack needs them")
)]
pub(crate) struct Registers {
    /// The address where it will continue.
    pub(crate) ip: usize,
    /// The stack and frame pointers with which it will continue.
    pub(crate) sp: usize,
    pub(crate) fp: usize,
    /// The return address of the innermost function, if a register holds it (aarch64) and the
    /// function was interrupted; else 0.
    pub(crate) link: usize,
}

impl Registers {
    /// The registers that corosensei saved at `sp`. The comments at the top of its `arch` files
    /// show the layout.
    pub(crate) fn saved_at(sp: usize, words: &[usize]) -> Option<Registers> {
        #[cfg(target_arch = "x86_64")]
        let (ip, fp, n_saved) = (0, 2, 3);
        #[cfg(target_arch = "aarch64")]
        let (ip, fp, n_saved) = (2, 1, 4);
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        return None;
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        Some(Registers {
            ip: *words.get(ip)?,
            fp: *words.get(fp)?,
            link: 0,
            sp: sp + n_saved * size_of::<usize>(),
        })
    }
}

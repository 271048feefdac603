//! Marks on handles, for the leak profile: with the feature `leaks`. Without it, nothing of this is compiled in.
//!
//! A handle by which a wait can be ended (a sender, a guard, a permit ..) has a word that says to what it belongs, and on which
//! side. One that waits has a list of the handles that may end its wait among its locals. `debug::leaks` searches memory for
//! their words: a handle is where its word is. So the word is erased when its handle is dropped.

#[cfg(feature = "leaks")]
use crate::loom::native::atomic::{AtomicUsize, Ordering};
#[cfg(feature = "leaks")]
use crate::sched::wait::park;

/// The kind of a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handle {
    Sender,
    Receiver,
    Guard,
    Permit,
    Member,
}

impl Handle {
    /// The word of handles of this kind to what has this name, its address or a number. The upper bits are no address of a user's, and rare elsewhere.
    #[cfg(feature = "leaks")]
    #[inline(always)]
    fn word(self, name: usize) -> usize {
        (MARK + self as usize) << MARK_SHIFT | name & ((1 << MARK_SHIFT) - 1)
    }

    /// The kind in a word, if it is one of a handle.
    #[cfg(feature = "leaks")]
    #[inline(always)]
    pub(crate) fn of_word(word: usize) -> Option<Handle> {
        Handle::of_mark(word >> MARK_SHIFT)
    }

    /// The kind in an entry of a list of wanted handles. The word itself is not made: it would be left on the caller's stack.
    #[cfg(feature = "leaks")]
    pub(crate) fn of_wanted(wanted: usize) -> Option<Handle> {
        Handle::of_mark(wanted >> MARK_SHIFT ^ (usize::MAX >> MARK_SHIFT))
    }

    #[cfg(feature = "leaks")]
    #[inline(always)]
    fn of_mark(mark: usize) -> Option<Handle> {
        Some(match mark.wrapping_sub(MARK) {
            0 => Handle::Sender,
            1 => Handle::Receiver,
            2 => Handle::Guard,
            3 => Handle::Permit,
            4 => Handle::Member,
            _ => return None,
        })
    }
}

#[cfg(feature = "leaks")]
const MARK: usize = 0xb1d8;
#[cfg(feature = "leaks")]
const MARK_SHIFT: u32 = 48;

/// Whether an entry of a list of wanted handles names nothing.
#[cfg(feature = "leaks")]
pub(crate) fn is_nameless(wanted: usize) -> bool {
    let all = (1 << MARK_SHIFT) - 1;
    wanted & all == all
}

/// The name of a thing in the words of its handles: a number, where its address will be that of others.
#[derive(Debug)]
pub(crate) struct Name {
    #[cfg(feature = "leaks")]
    number: usize,
}

impl Name {
    pub(crate) fn new() -> Name {
        /// Ordering: relaxed, only uniqueness matters.
        #[cfg(feature = "leaks")]
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        Name {
            #[cfg(feature = "leaks")]
            number: NEXT.fetch_add(1, Ordering::Relaxed),
        }
    }

    #[inline(always)]
    #[cfg_attr(
        not(feature = "leaks"),
        expect(clippy::unused_self, reason = "as with the feature")
    )]
    pub(crate) fn get(&self) -> usize {
        #[cfg(feature = "leaks")]
        return self.number;
        #[cfg(not(feature = "leaks"))]
        0
    }
}

/// The mark of one handle.
#[derive(Clone, Debug)]
pub(crate) struct Tag {
    #[cfg(feature = "leaks")]
    word: usize,
}

impl Tag {
    /// That of what no wait depends on.
    pub(crate) const NONE: Tag = Tag {
        #[cfg(feature = "leaks")]
        word: 0,
    };

    #[inline(always)]
    pub(crate) fn new(kind: Handle, name: usize) -> Tag {
        let _ = (kind, name);
        Tag {
            #[cfg(feature = "leaks")]
            word: kind.word(name),
        }
    }
}

#[cfg(feature = "leaks")]
impl Drop for Tag {
    #[inline]
    fn drop(&mut self) {
        self.word = 0;
        // Not optimised away, although the memory is not read again by the program.
        std::hint::black_box(&raw const self.word);
    }
}

/// Calls `f`, which may wait until a handle of this kind acts.
#[inline(always)]
pub(crate) fn while_waiting<R>(kind: Handle, name: usize, f: impl FnOnce() -> R) -> R {
    let _ = (kind, name);
    #[cfg(feature = "leaks")]
    let words = [wanted(Some((kind, name)))];
    #[cfg(feature = "leaks")]
    let _wait = Wait::begin(&words);
    f()
}

/// As [`while_waiting`], for one of several handles. `None` is for what has none.
#[inline(always)]
pub(crate) fn while_waiting_for_any<R>(
    handles: impl Iterator<Item = Option<(Handle, usize)>>,
    f: impl FnOnce() -> R,
) -> R {
    let _ = &handles;
    #[cfg(feature = "leaks")]
    let words: Vec<usize> = handles.map(wanted).collect();
    #[cfg(feature = "leaks")]
    let _wait = Wait::begin(&words);
    f()
}

/// The entry of a list of wanted handles: the complement of their word, so that the list is not found as a handle.
#[cfg(feature = "leaks")]
fn wanted(handle: Option<(Handle, usize)>) -> usize {
    handle.map_or(0, |(kind, name)| !kind.word(name))
}

/// A wait: the list is among the goroutine's locals until this is dropped.
#[cfg(feature = "leaks")]
struct Wait<'a>(std::marker::PhantomData<&'a [usize]>);

#[cfg(feature = "leaks")]
impl<'a> Wait<'a> {
    fn begin(words: &'a [usize]) -> Wait<'a> {
        set(words);
        Wait(std::marker::PhantomData)
    }
}

#[cfg(feature = "leaks")]
impl Drop for Wait<'_> {
    fn drop(&mut self) {
        set(&[]);
    }
}

#[cfg(feature = "leaks")]
fn set(words: &[usize]) {
    if let Some(locals) = park::locals() {
        locals.wanted.set(words);
    }
}

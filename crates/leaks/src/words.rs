//! The words that mark handles.

/// The kind of a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handle {
    /// Sends to a channel.
    Sender,
    /// Receives from a channel.
    Receiver,
    /// Has locked a lock.
    Guard,
    /// Has a permit of a semaphore.
    Permit,
    /// Belongs to a wait group.
    Member,
}

const MARK: usize = 0xb1d8;
const MARK_SHIFT: u32 = 48;
/// The bits of the name.
const NAME: usize = (1 << MARK_SHIFT) - 1;

impl Handle {
    /// The word of handles of this kind to what has this name, its address or a number. The upper bits are no address
    /// of a user's, and rare elsewhere.
    #[inline(always)]
    #[must_use]
    pub fn word(self, name: usize) -> usize {
        (MARK + self as usize) << MARK_SHIFT | name & NAME
    }

    /// The kind in a word, if it is one of a handle.
    #[inline(always)]
    #[must_use]
    pub fn of_word(word: usize) -> Option<Handle> {
        Handle::of_mark(word >> MARK_SHIFT)
    }

    /// The kind in the complement of a word. The word itself is not made: it would be left on the caller's stack.
    #[must_use]
    pub(crate) fn of_wanted(wanted: usize) -> Option<Handle> {
        Handle::of_mark(wanted >> MARK_SHIFT ^ (usize::MAX >> MARK_SHIFT))
    }

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

/// Whether the complement of a word names nothing.
pub(crate) fn is_nameless(wanted: usize) -> bool {
    wanted & NAME == NAME
}

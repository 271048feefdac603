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

impl Handle {
    /// The word of handles of this kind to what has this name, its address or a number. The upper bits are no address
    /// of a user's, and rare elsewhere.
    #[inline(always)]
    #[must_use]
    pub fn word(self, name: usize) -> usize {
        (MARK + self as usize) << MARK_SHIFT | name_of_word(name)
    }

    /// The kind in a word, if it is one of a handle.
    #[inline(always)]
    #[must_use]
    pub fn of_word(word: usize) -> Option<Handle> {
        Some(match (word >> MARK_SHIFT).wrapping_sub(MARK) {
            0 => Handle::Sender,
            1 => Handle::Receiver,
            2 => Handle::Guard,
            3 => Handle::Permit,
            4 => Handle::Member,
            _ => return None,
        })
    }
}

/// The name in a word of a handle.
#[inline(always)]
pub(crate) fn name_of_word(word: usize) -> usize {
    word & ((1 << MARK_SHIFT) - 1)
}

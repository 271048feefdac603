//! Buffers for `O_DIRECT`.
#![allow(unsafe_code)]

use std::fmt;
use std::ops::{Deref, DerefMut};

/// What devices ask for at most: their logical block, and with it a page.
const ALIGNMENT: usize = 4096;

#[derive(Clone)]
#[repr(C, align(4096))]
struct Page([u8; ALIGNMENT]);

/// A buffer whose address is a multiple of 4096, as `O_DIRECT` wants it on any device. The
/// lengths and offsets of the transfers must be multiples of the device's block, too.
///
/// # Examples
///
/// ```no_run
/// use std::os::unix::fs::{FileExt, OpenOptionsExt};
/// use windlass::fs::{AlignedBuf, OpenOptions};
///
/// # fn main() -> std::io::Result<()> {
/// let file = OpenOptions::new().read(true).custom_flags(0x4000 /* O_DIRECT */).open("data")?;
/// let mut block = AlignedBuf::zeroed(4096);
/// file.read_exact_at(&mut block, 8192)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct AlignedBuf {
    pages: Vec<Page>,
    len: usize,
}

impl AlignedBuf {
    /// The alignment of every buffer.
    pub const ALIGNMENT: usize = ALIGNMENT;

    /// A buffer of `len` zero bytes. Its memory is rounded up to whole pages.
    #[must_use]
    pub fn zeroed(len: usize) -> AlignedBuf {
        AlignedBuf {
            pages: vec![Page([0; ALIGNMENT]); len.div_ceil(ALIGNMENT)],
            len,
        }
    }

    /// Shortens or lengthens the buffer; new bytes are what was there before, at first zero.
    ///
    /// # Panics
    ///
    /// If `len` needs more pages than the buffer has.
    pub fn set_len(&mut self, len: usize) {
        assert!(
            len <= self.pages.len() * ALIGNMENT,
            "an aligned buffer of {} pages cannot hold {len} bytes",
            self.pages.len()
        );
        self.len = len;
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: a page is its bytes and nothing else, and `len` bytes lie in the pages.
        unsafe { std::slice::from_raw_parts(self.pages.as_ptr().cast(), self.len) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; the pages are borrowed for as long as the slice.
        unsafe { std::slice::from_raw_parts_mut(self.pages.as_mut_ptr().cast(), self.len) }
    }
}

impl AsRef<[u8]> for AlignedBuf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl AsMut<[u8]> for AlignedBuf {
    fn as_mut(&mut self) -> &mut [u8] {
        self
    }
}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AlignedBuf")
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_hold_what_was_written() {
        for len in [0, 1, 4095, 4096, 4097, 1 << 20] {
            let mut buf = AlignedBuf::zeroed(len);
            assert_eq!(buf.len(), len);
            assert_eq!(buf.as_ptr() as usize % AlignedBuf::ALIGNMENT, 0);
            assert!(buf.iter().all(|&b| b == 0));
            buf.fill(7);
            assert_eq!(buf.clone()[..], vec![7; len]);
        }
        let mut buf = AlignedBuf::zeroed(5000);
        buf.set_len(8192);
        buf.set_len(1);
        assert_eq!(buf.len(), 1);
    }

    #[test]
    #[should_panic(expected = "cannot hold 4097 bytes")]
    fn a_buffer_does_not_grow_past_its_pages() {
        AlignedBuf::zeroed(1).set_len(4097);
    }
}

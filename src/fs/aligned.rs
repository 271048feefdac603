//! Buffers for `O_DIRECT`.
#![allow(unsafe_code)]

use std::ops::{Deref, DerefMut};

use windlass_ground::std_traits::debug_fields;

/// One page: at least as large as the logical block of any device.
const ALIGNMENT: usize = 4096;

#[derive(Clone)]
#[repr(C, align(4096))]
struct Page([u8; ALIGNMENT]);

/// A buffer aligned to 4096 bytes, as `O_DIRECT` requires.
///
/// The alignment suffices for every device. The length and the file offset of each transfer must
/// also be multiples of the device's logical block size. The buffer dereferences to `[u8]`.
///
/// # Examples
///
/// ```no_run
/// use std::os::unix::fs::{FileExt, OpenOptionsExt};
/// use windlass::fs::{AlignedBuf, OpenOptions};
///
/// # fn main() -> std::io::Result<()> {
/// let file = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open("data")?;
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
    /// The alignment of every buffer, in bytes.
    pub const ALIGNMENT: usize = ALIGNMENT;

    /// Creates a buffer of `len` zero bytes.
    ///
    /// The allocation is rounded up to whole pages.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::fs::AlignedBuf;
    ///
    /// let buf = AlignedBuf::zeroed(512);
    /// assert_eq!(buf.len(), 512);
    /// assert_eq!(buf.as_ptr().addr() % AlignedBuf::ALIGNMENT, 0);
    /// ```
    #[must_use]
    pub fn zeroed(len: usize) -> AlignedBuf {
        AlignedBuf {
            pages: vec![Page([0; ALIGNMENT]); len.div_ceil(ALIGNMENT)],
            len,
        }
    }

    /// Changes the length of the buffer within its pages.
    ///
    /// Bytes past the old length have the value that was last written there, or zero.
    ///
    /// # Panics
    ///
    /// If `len` needs more pages than the buffer has.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::fs::AlignedBuf;
    ///
    /// let mut buf = AlignedBuf::zeroed(4096);
    /// buf.fill(1);
    /// buf.set_len(512);
    /// assert_eq!(buf.len(), 512);
    /// buf.set_len(4096);
    /// assert_eq!(buf[4095], 1);
    /// ```
    #[track_caller]
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
        // SAFETY: a page consists of its bytes only, and `len` never exceeds the pages' bytes.
        unsafe { std::slice::from_raw_parts(self.pages.as_ptr().cast(), self.len) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and the slice borrows the pages exclusively.
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

debug_fields!(AlignedBuf, |this| len: this.len, ..);

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

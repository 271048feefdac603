//! A value on cache lines of its own.

use std::ops::Deref;

/// Aligned to 128 bytes: two lines, because the prefetcher of current x86
/// processors fetches lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Padded<T>(pub T);

impl<T> Deref for Padded<T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0
    }
}

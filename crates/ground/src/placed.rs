//! Values on pages of a NUMA node.
//!
//! Memory of the global allocator is on the node that touched its page first, and a page is shared
//! by many owners. So values that a node uses often are on separate pages:
//!
//! ```text
//!  group: one mapping, preferred on its node          the next group, another node
//!  | value 0 | value 1 | value 2 |  rest of a page |   | value 3 | value 4 |  ..
//! ```
//!
//! The values of a group are adjacent. If each began at a page, the same field of all of them would
//! map to the same cache set.
#![allow(unsafe_code)]

use std::fmt;
use std::io;
use std::ops::{Index, Range};
use std::ptr::NonNull;

use windlass_sys::{mmap, numa};

/// A mapping, unmapped when dropped.
struct Pages {
    base: *mut u8,
    bytes: usize,
}

impl Pages {
    /// `None` is more than can be counted.
    fn new(bytes: Option<usize>, node: Option<u32>) -> io::Result<Pages> {
        let pages = |bytes: usize| bytes.max(1).checked_next_multiple_of(mmap::page_bytes());
        let bytes = bytes.and_then(pages).ok_or(io::ErrorKind::OutOfMemory)?;
        let base = mmap::reserve(bytes)?;
        if let Some(node) = node {
            // SAFETY: the range is the mapping made above. Refusal costs locality only.
            unsafe { numa::prefer_node(base, bytes, node) };
        }
        Ok(Pages { base, bytes })
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping, and its owner has dropped the values on it.
        unsafe { mmap::release(self.base, self.bytes) };
    }
}

/// Values in groups, each group on pages of one node. The values do not move.
pub struct Placed<T> {
    values: Vec<NonNull<T>>,
    groups: Vec<Pages>,
}

// SAFETY: a `Placed` owns its values, as a `Vec<Box<T>>` would.
unsafe impl<T: Send> Send for Placed<T> {}
// SAFETY: as for Send.
unsafe impl<T: Sync> Sync for Placed<T> {}

impl<T> Placed<T> {
    /// No values.
    pub fn new() -> Placed<T> {
        Placed {
            values: Vec::new(),
            groups: Vec::new(),
        }
    }

    /// Adds values on pages of `node`, by the kernel's number. `None` uses the node of the calling
    /// thread.
    ///
    /// # Errors
    ///
    /// The kernel's, when it has no memory. Then `values` has not been advanced.
    pub fn push_group(
        &mut self,
        node: Option<u32>,
        values: impl ExactSizeIterator<Item = T>,
    ) -> io::Result<()> {
        let n = values.len();
        // A mapping begins at a page. Only a larger alignment needs slack.
        let slack = align_of::<T>().saturating_sub(mmap::page_bytes());
        let bytes = n.checked_mul(size_of::<T>());
        let pages = Pages::new(bytes.and_then(|bytes| bytes.checked_add(slack)), node)?;
        let base = pages.base;
        let first = base
            .wrapping_add(base.align_offset(align_of::<T>()))
            .cast::<T>();
        self.groups.push(pages);
        for (i, value) in values.take(n).enumerate() {
            let place = first.wrapping_add(i);
            // SAFETY: the place is inside the mapping, aligned, and not shared yet.
            unsafe { place.write(value) };
            // SAFETY: a mapping's addresses are not 0.
            self.values.push(unsafe { NonNull::new_unchecked(place) });
        }
        Ok(())
    }

    /// The number of values.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// The value at a position.
    #[inline]
    pub fn get(&self, idx: usize) -> Option<&T> {
        // SAFETY: the value lives as long as `self`.
        self.values.get(idx).map(|p| unsafe { p.as_ref() })
    }

    /// The values in order.
    pub fn iter(&self) -> Iter<'_, T> {
        // SAFETY: as in `get`.
        self.values.iter().map(|p| unsafe { p.as_ref() })
    }

    /// The values at these positions.
    pub fn range(&self, range: Range<usize>) -> Iter<'_, T> {
        // SAFETY: as in `get`.
        self.values[range].iter().map(|p| unsafe { p.as_ref() })
    }

    /// The values in order, to be changed.
    pub fn iter_mut(&mut self) -> impl ExactSizeIterator<Item = &mut T> {
        // SAFETY: as in `get`, and each value is yielded once.
        self.values.iter_mut().map(|p| unsafe { p.as_mut() })
    }

    /// The addresses of a value.
    pub fn span(&self, idx: usize) -> Range<usize> {
        let at = self.values[idx].as_ptr().addr();
        at..at + size_of::<T>()
    }
}

/// An iterator over the values of a [`Placed`].
pub type Iter<'a, T> = std::iter::Map<std::slice::Iter<'a, NonNull<T>>, fn(&NonNull<T>) -> &T>;

impl<'a, T> IntoIterator for &'a Placed<T> {
    type Item = &'a T;
    type IntoIter = Iter<'a, T>;
    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}

impl<T> Index<usize> for Placed<T> {
    type Output = T;
    #[inline(always)]
    fn index(&self, idx: usize) -> &T {
        // SAFETY: as in `get`.
        unsafe { self.values[idx].as_ref() }
    }
}

impl<T: fmt::Debug> fmt::Debug for Placed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self).finish()
    }
}

impl<T> Drop for Placed<T> {
    fn drop(&mut self) {
        // Remove each value from the list before it is dropped: if a destructor panics, the rest
        // leaks.
        while let Some(value) = self.values.pop() {
            // SAFETY: the value was written by `push_group` and is dropped once.
            unsafe { value.drop_in_place() };
        }
    }
}

/// A vector on pages of a node.
pub struct PageVec<T: Copy> {
    base: *mut T,
    len: usize,
    bytes: usize,
    node: Option<u32>,
}

// SAFETY: it owns its values.
unsafe impl<T: Copy + Send> Send for PageVec<T> {}

impl<T: Copy> PageVec<T> {
    /// An empty vector, without a page.
    pub const fn new(node: Option<u32>) -> PageVec<T> {
        PageVec {
            base: std::ptr::dangling_mut(),
            len: 0,
            bytes: 0,
            node,
        }
    }

    /// Adds a value at the end.
    ///
    /// # Panics
    ///
    /// If values are aligned to more than a page.
    #[inline]
    pub fn push(&mut self, value: T) {
        if (self.len + 1) * size_of::<T>() > self.bytes {
            self.grow();
        }
        // SAFETY: there is room for one more.
        unsafe { self.base.add(self.len).write(value) };
        self.len += 1;
    }

    /// Removes a value and moves the last one into its place.
    pub fn swap_remove(&mut self, idx: usize) -> T {
        let value = self[idx];
        let last = self.len - 1;
        self.swap(idx, last);
        self.len = last;
        value
    }

    /// Keeps some of the values, in their order.
    pub fn retain(&mut self, keep: impl Fn(&T) -> bool) {
        let mut n = 0;
        for i in 0..self.len {
            let value = self[i];
            if keep(&value) {
                self[n] = value;
                n += 1;
            }
        }
        self.len = n;
    }

    /// Removes all values, and keeps the pages.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// The addresses of its pages.
    pub fn span(&self) -> Range<usize> {
        self.base.addr()..self.base.addr() + self.bytes
    }

    /// Doubles the pages, or maps the first. Aborts if the kernel has no memory, as `Vec` does.
    #[cold]
    fn grow(&mut self) {
        assert!(
            align_of::<T>() <= mmap::page_bytes(),
            "a mapping begins at a page: it has no place for this alignment"
        );
        let bytes = (2 * self.bytes).max(size_of::<T>().next_multiple_of(mmap::page_bytes()));
        let base = if self.bytes == 0 {
            mmap::reserve(bytes)
        } else {
            // SAFETY: this vector owns the mapping, and no reference to it exists.
            unsafe { mmap::resize(self.base.cast(), self.bytes, bytes) }
        };
        let Ok(base) = base else {
            std::alloc::handle_alloc_error(std::alloc::Layout::new::<T>())
        };
        // A mapping keeps its policy when it grows.
        if let (Some(node), 0) = (self.node, self.bytes) {
            // SAFETY: the range is the mapping made above. Refusal costs locality only.
            unsafe { numa::prefer_node(base, bytes, node) };
        }
        (self.base, self.bytes) = (base.cast(), bytes);
    }
}

impl<T: Copy> std::ops::Deref for PageVec<T> {
    type Target = [T];
    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: `len` values were written; an empty vector has a dangling base.
        unsafe { std::slice::from_raw_parts(self.base, self.len) }
    }
}

impl<T: Copy> std::ops::DerefMut for PageVec<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`.
        unsafe { std::slice::from_raw_parts_mut(self.base, self.len) }
    }
}

impl<T: Copy> Extend<T> for PageVec<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, values: I) {
        values.into_iter().for_each(|value| self.push(value));
    }
}

impl<T: Copy> fmt::Debug for PageVec<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_struct("PageVec");
        fields.field("len", &self.len).finish_non_exhaustive()
    }
}

impl<T: Copy> Drop for PageVec<T> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            // SAFETY: this vector owns the mapping.
            unsafe { mmap::release(self.base.cast(), self.bytes) };
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::cell::Cell;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::random::Random;

    struct Counted<'a>(&'a Cell<usize>, u32);

    impl Drop for Counted<'_> {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
        }
    }

    #[test]
    fn values_stay_where_they_are_and_are_dropped_once() {
        let n = Cell::new(0);
        let mut placed = Placed::new();
        placed
            .push_group(None, (0..3_u32).map(|i| Counted(&n, i)))
            .unwrap();
        let first: *const Counted<'_> = &placed[0];
        placed
            .push_group(None, (3..5_u32).map(|i| Counted(&n, i)))
            .unwrap();
        assert_eq!(first, &raw const placed[0]);
        assert!(placed.iter().map(|c| c.1).eq(0..5));
        assert_eq!(placed.span(0).start % mmap::page_bytes(), 0);
        assert_eq!(placed.span(3).start % mmap::page_bytes(), 0);
        placed.iter_mut().for_each(|c| c.1 += 1);
        assert_eq!(placed.get(4).map(|c| c.1), Some(5));
        assert!(placed.get(5).is_none());
        drop(placed);
        assert_eq!(n.get(), 5);
    }

    #[test]
    fn a_maker_that_panics_leaves_nothing() {
        let n = Cell::new(0);
        let mut placed = Placed::new();
        let make = |i| {
            if i == 2 {
                panic!("no third")
            } else {
                Counted(&n, i)
            }
        };
        let made = catch_unwind(AssertUnwindSafe(|| {
            placed.push_group(None, (0..5_u32).map(make))
        }));
        assert!(made.is_err());
        assert_eq!(placed.len(), 2);
        drop(placed);
        assert_eq!(n.get(), 2);
    }

    /// The length is what the caller's iterator says: one that is too large to count must not become a small mapping.
    #[test]
    fn a_length_that_no_memory_holds_is_refused() {
        struct Says(usize);
        impl Iterator for Says {
            type Item = [u64; 8];
            fn next(&mut self) -> Option<[u64; 8]> {
                panic!("there is no room for one")
            }
            fn size_hint(&self) -> (usize, Option<usize>) {
                (self.0, Some(self.0))
            }
        }
        impl ExactSizeIterator for Says {}
        let mut placed = Placed::new();
        for n in [usize::MAX / 64 + 2, usize::MAX, usize::MAX / 64] {
            let refused = placed.push_group(None, Says(n)).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::OutOfMemory, "{n}");
        }
        assert_eq!(placed.len(), 0);
    }

    #[test]
    fn large_alignments_are_kept() {
        #[repr(align(16384))]
        struct Wide(u8);
        let mut placed = Placed::new();
        placed.push_group(None, (0..3).map(Wide)).unwrap();
        for (i, wide) in placed.iter().enumerate() {
            assert_eq!(usize::from(wide.0), i);
            assert_eq!(placed.span(i).start % 16384, 0);
        }
        let mut nothing = Placed::new();
        nothing
            .push_group(None, std::iter::repeat_n((), 7))
            .unwrap();
        assert_eq!(nothing.iter().count(), 7);
    }

    #[test]
    #[should_panic(expected = "no place for this alignment")]
    fn a_page_vec_refuses_what_it_cannot_align() {
        #[derive(Clone, Copy)]
        #[repr(align(131072))]
        struct Wide(u8);
        let mut all = PageVec::new(None);
        all.push(Wide(1));
        assert_eq!(all[0].0, 1, "pushed, though it is not aligned");
    }

    #[test]
    fn a_page_vec_does_what_a_vec_does() {
        let random = Random::new(7);
        let mut ours = PageVec::new(None);
        let mut model = Vec::new();
        for i in 0..20_000_u64 {
            match random.below(8) {
                0 if !model.is_empty() => {
                    let at = random.below(model.len());
                    assert_eq!(ours.swap_remove(at), model.swap_remove(at));
                }
                1 if i % 500 == 0 => {
                    ours.retain(|n| n % 3 != 0);
                    model.retain(|n| n % 3 != 0);
                }
                2 if i % 5_000 == 0 => {
                    ours.clear();
                    model.clear();
                }
                _ => {
                    ours.push(i);
                    model.push(i);
                }
            }
            assert_eq!(ours.len(), model.len());
        }
        assert_eq!(*ours, *model);
        assert!(ours.span().len() > mmap::page_bytes(), "it has grown");
    }
}

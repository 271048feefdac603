//! Loops, sums and sorts that use all CPUs: small helpers over [`join`].
//!
//! Each call divides its work into halves, as long as there is any, and the halves with
//! [`join`]. So it costs little more than the plain loop while all Ps are busy, and
//! the parts spread over the Ps that are idle. The closures may wait, for I/O or for locks;
//! several of them then wait at the same time. What [`join`] says about panics,
//! contexts and plain threads holds for all of these functions.
//!
//! A range or slice is divided into about 4,096 parts, or into single items if there are fewer; the
//! slice of [`chunks_mut`] into as many parts of whole chunks. For another grain use [`join`] itself,
//! or a range of the parts.
//!
//! # Examples
//!
//! ```
//! use windlass::par;
//!
//! # // SAFETY: nothing here keeps a thread-local across a call that parks.
//! # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
//! let largest = rt.run(|| {
//!     let mut numbers = vec![0_u64; 10_000];
//!     par::chunks_mut(&mut numbers, 100, |nth, chunk| chunk.fill(nth as u64));
//!     par::for_each_mut(&mut numbers, |n| *n *= 2);
//!     par::map_reduce(0..numbers.len(), |i| numbers[i], u64::max)
//! });
//! assert_eq!(largest, Some(198));
//! # Ok::<(), std::io::Error>(())
//! ```

use std::cmp::Ordering;
use std::ops::Range;

use crate::task::join;

/// The number of parts that work is divided into, at most: enough for many Ps, and few enough that
/// forks of some nanoseconds do not show.
const PARTS: usize = 4096;

fn grain(len: usize) -> usize {
    (len / PARTS).max(1)
}

/// Calls `f` with each number of the range, in any order.
///
/// # Blocking
///
/// As [`join`].
///
/// # Panics
///
/// With a panic of `f`. The calls for numbers of other [parts](self) are made all the same, those
/// for the rest of the part are not.
///
/// # Examples
///
/// ```
/// use std::sync::atomic::{AtomicUsize, Ordering};
///
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
/// let sum = AtomicUsize::new(0);
/// rt.run(|| {
///     windlass::par::for_each(0..100, |n| {
///         sum.fetch_add(n, Ordering::Relaxed);
///     });
/// });
/// assert_eq!(sum.into_inner(), 4950);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn for_each<F>(range: Range<usize>, f: F)
where
    F: Fn(usize) + Sync,
{
    fn divide<F: Fn(usize) + Sync>(range: Range<usize>, grain: usize, f: &F) {
        if range.len() <= grain {
            return range.for_each(f);
        }
        let mid = range.start + range.len() / 2;
        join(
            || divide(range.start..mid, grain, f),
            || divide(mid..range.end, grain, f),
        );
    }
    let grain = grain(range.len());
    divide(range, grain, &f);
}

/// Calls `f` with each item of the slice, in any order.
///
/// # Blocking
///
/// As [`join`].
///
/// # Panics
///
/// With a panic of `f`. The items of other [parts](self) are visited all the same, the rest of the
/// part is not.
///
/// # Examples
///
/// ```
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
/// let mut names = ["anna", "berta"].map(str::to_owned);
/// rt.run(|| windlass::par::for_each_mut(&mut names, |name| *name = name.to_uppercase()));
/// assert_eq!(names, ["ANNA", "BERTA"]);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn for_each_mut<T, F>(slice: &mut [T], f: F)
where
    T: Send,
    F: Fn(&mut T) + Sync,
{
    let grain = grain(slice.len());
    chunks_mut(slice, grain, |_, chunk| chunk.iter_mut().for_each(&f));
}

/// Divides the slice into chunks of `chunk_len` items, the last one perhaps shorter, and calls `f`
/// with the number and the items of each, in any order.
///
/// # Blocking
///
/// As [`join`].
///
/// # Panics
///
/// If `chunk_len` is 0. With a panic of `f`; the chunks of other [parts](self) are visited all the
/// same, the rest of the part is not.
///
/// # Examples
///
/// ```
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
/// let mut image = vec![0_u8; 640 * 480];
/// rt.run(|| {
///     windlass::par::chunks_mut(&mut image, 640, |y, line| line.fill(y as u8));
/// });
/// assert_eq!(image[3 * 640..4 * 640], [3; 640]);
/// # Ok::<(), std::io::Error>(())
/// ```
#[track_caller]
pub fn chunks_mut<T, F>(slice: &mut [T], chunk_len: usize, f: F)
where
    T: Send,
    F: Fn(usize, &mut [T]) + Sync,
{
    /// `first` is the number of the first chunk.
    fn divide<T, F>(slice: &mut [T], first: usize, len: usize, grain: usize, f: &F)
    where
        T: Send,
        F: Fn(usize, &mut [T]) + Sync,
    {
        let n = slice.len().div_ceil(len);
        if n <= grain {
            return (first..)
                .zip(slice.chunks_mut(len))
                .for_each(|(i, chunk)| f(i, chunk));
        }
        let (left, right) = slice.split_at_mut(n / 2 * len);
        join(
            || divide(left, first, len, grain, f),
            || divide(right, first + n / 2, len, grain, f),
        );
    }
    assert_ne!(chunk_len, 0, "par::chunks_mut: chunks of no items");
    let grain = grain(slice.len().div_ceil(chunk_len));
    divide(slice, 0, chunk_len, grain, &f);
}

/// Calls `map` with each number of the range, and combines the results by `reduce`, which must be
/// associative. Neighbours are combined, in the order of the range. `None` for an empty range.
///
/// # Blocking
///
/// As [`join`].
///
/// # Panics
///
/// With a panic of `map` or `reduce`.
///
/// # Examples
///
/// ```
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
/// let digits = rt.run(|| {
///     windlass::par::map_reduce(0..10, |n| n.to_string(), |left, right| left + &right)
/// });
/// assert_eq!(digits.as_deref(), Some("0123456789"));
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn map_reduce<T, M, R>(range: Range<usize>, map: M, reduce: R) -> Option<T>
where
    T: Send,
    M: Fn(usize) -> T + Sync,
    R: Fn(T, T) -> T + Sync,
{
    fn divide<T, M, R>(range: Range<usize>, grain: usize, map: &M, reduce: &R) -> Option<T>
    where
        T: Send,
        M: Fn(usize) -> T + Sync,
        R: Fn(T, T) -> T + Sync,
    {
        if range.len() <= grain {
            return range.map(map).reduce(reduce);
        }
        let mid = range.start + range.len() / 2;
        let (left, right) = join(
            || divide(range.start..mid, grain, map, reduce),
            || divide(mid..range.end, grain, map, reduce),
        );
        match (left, right) {
            (Some(left), Some(right)) => Some(reduce(left, right)),
            (one, other) => one.or(other),
        }
    }
    let grain = grain(range.len());
    divide(range, grain, &map, &reduce)
}

/// Sorts the slice, as [`slice::sort_unstable`] does: equal items may change places.
///
/// # Blocking
///
/// As [`join`].
///
/// # Panics
///
/// With a panic of the comparison; the slice then has its items in some order.
///
/// # Examples
///
/// ```
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
/// let mut numbers: Vec<u32> = (0..100_000).map(|n| n * 7919 % 100_003).collect();
/// rt.run(|| windlass::par::sort_unstable(&mut numbers));
/// assert!(numbers.is_sorted());
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn sort_unstable<T: Ord + Send>(slice: &mut [T]) {
    sort_unstable_by(slice, T::cmp);
}

/// Sorts the slice by a comparison, as [`slice::sort_unstable_by`] does.
///
/// # Blocking
///
/// As [`join`].
///
/// # Panics
///
/// As [`sort_unstable`], and as [`slice::sort_unstable_by`] if the comparison is no total order.
///
/// # Examples
///
/// ```
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
/// let mut words = ["three", "one", "fifteen"];
/// rt.run(|| windlass::par::sort_unstable_by(&mut words, |a, b| a.len().cmp(&b.len())));
/// assert_eq!(words, ["one", "three", "fifteen"]);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn sort_unstable_by<T, F>(slice: &mut [T], compare: F)
where
    T: Send,
    F: Fn(&T, &T) -> Ordering + Sync,
{
    // Twice what good pivots need.
    let n_bad = 2 * slice.len().checked_ilog2().unwrap_or(0);
    quicksort(slice, n_bad, &compare);
}

/// Slices of this length are sorted by the standard library: in some 20 µs, if comparing is cheap.
const SORTED_ALONE: usize = 2048;

/// Sorts by dividing, at most `n_left` times deep.
fn quicksort<T, F>(mut slice: &mut [T], mut n_left: u32, compare: &F)
where
    T: Send,
    F: Fn(&T, &T) -> Ordering + Sync,
{
    loop {
        if slice.len() <= SORTED_ALONE || n_left == 0 {
            return slice.sort_unstable_by(compare);
        }
        n_left -= 1;
        let pivot = pivot_of(slice, compare);
        slice.swap(0, pivot);
        let n_low = divide_by_first(slice, |item, pivot| compare(item, pivot).is_lt());
        if n_low == 0 {
            // The pivot is a least item: those that are equal to it are in their place, however many
            // there are.
            let n_equal = divide_by_first(slice, |item, pivot| compare(item, pivot).is_le());
            slice = &mut slice[n_equal + 1..];
            continue;
        }
        let (low, high) = slice.split_at_mut(n_low);
        let high = &mut high[1..];
        join(
            || quicksort(low, n_left, compare),
            || quicksort(high, n_left, compare),
        );
        return;
    }
}

/// The place of the median of nine items.
fn pivot_of<T>(slice: &[T], compare: &impl Fn(&T, &T) -> Ordering) -> usize {
    let median = |mut three: [usize; 3]| {
        three.sort_unstable_by(|&a, &b| compare(&slice[a], &slice[b]));
        three[1]
    };
    let step = slice.len() / 9;
    let of_three =
        |nth: usize| median([3 * nth * step, (3 * nth + 1) * step, (3 * nth + 2) * step]);
    median([of_three(0), of_three(1), of_three(2)])
}

/// Moves the items for which `is_low(item, first)` to the front, followed by the first item.
/// Returns their number.
fn divide_by_first<T>(slice: &mut [T], is_low: impl Fn(&T, &T) -> bool) -> usize {
    let Some((first, rest)) = slice.split_first_mut() else {
        return 0;
    };
    let mut n_low = 0;
    for i in 0..rest.len() {
        // Swaps always: a branch here would be mispredicted half of the time.
        let low = is_low(&rest[i], first);
        rest.swap(n_low, i);
        n_low += usize::from(low);
    }
    slice.swap(0, n_low);
    n_low
}

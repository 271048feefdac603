//! A pool of objects that are expensive to make.
//!
//! Each P has a list of its own, so goroutines on different Ps do not contend, and an object is
//! mostly used again by the core that used it last. The lists are bounded. An object that does not fit into
//! one goes to the list that all share, or is dropped if that is full. A caller whose own
//! list is empty looks into the shared list, and then into those of the other Ps.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::panic::{RefUnwindSafe, UnwindSafe};

use windlass_ground::padded::Padded;
use windlass_ground::std_traits::debug_fields;

use super::waitlist::WaitCell;
use crate::loom::const_fn;
use crate::loom::native::OnceLock;
use crate::loom::native::atomic::{AtomicUsize, Ordering};
use crate::sched::wait::handoff::Section;
use crate::sched::wait::points;

/// Objects to be used again, such as buffers and compressors, in a list for each P: Go's
/// `sync.Pool`.
///
/// [`get`](Pool::get) takes an idle object, or makes a new one, and returns a guard that puts it back
/// when it is dropped. An object comes as its last user left it: clear it before or after use.
///
/// # What is kept
///
/// Each P's list and one list that all share hold at most as many objects as the pool was created
/// with, [`Pool::DEFAULT_CAPACITY`] with [`Pool::new`]. An object is dropped
///
/// - when it is put back and neither the caller's list nor the shared one has room,
/// - when a guard is dropped by a panic, because the object may be half changed,
/// - by [`clear`](Pool::clear), and when the pool is dropped.
///
/// Nothing else drops objects: unlike Go's, where each garbage collection does, the pool does not
/// shrink by itself.
///
/// On plain threads, and in sections of [`blocking`](crate::blocking), the shared list is used.
///
/// # Blocking
///
/// Never, apart from the closure that makes objects.
///
/// # Examples
///
/// ```
/// use windlass::sync::Pool;
///
/// static BUFFERS: Pool<Vec<u8>> = Pool::new(|| Vec::with_capacity(4096));
///
/// let mut buffer = BUFFERS.get();
/// buffer.extend_from_slice(b"request");
/// buffer.clear();
/// drop(buffer); // goes back
/// assert!(BUFFERS.get().capacity() >= 4096);
/// ```
pub struct Pool<T, F = fn() -> T> {
    lists: Lists<T>,
    make: F,
}

impl<T, F: UnwindSafe> UnwindSafe for Pool<T, F> {}
impl<T, F: RefUnwindSafe> RefUnwindSafe for Pool<T, F> {}

struct Lists<T> {
    /// Maximum number of objects in a list.
    capacity: usize,
    shared: List<T>,
    /// One for each P. If there are more Ps, they share.
    own: OnceLock<Box<[Padded<List<T>>]>>,
}

struct List<T> {
    /// Number of objects, so that a search passes empty lists without their locks. Ordering:
    /// relaxed; written under the lock, and read elsewhere as a hint.
    n: AtomicUsize,
    objects: WaitCell<Vec<T>>,
}

/// An object of a [`Pool`]. Dropping it puts the object back.
pub struct Pooled<'a, T> {
    lists: &'a Lists<T>,
    /// `None` only after [`Pooled::into_inner`].
    object: Option<T>,
}

impl<T: UnwindSafe> UnwindSafe for Pooled<'_, T> {}
impl<T: RefUnwindSafe> RefUnwindSafe for Pooled<'_, T> {}

impl<T, F> Pool<T, F> {
    /// Capacity of each list of a pool made by [`Pool::new`].
    pub const DEFAULT_CAPACITY: usize = 64;

    const_fn! {
        /// Creates an empty pool, whose objects `make` makes.
        #[must_use]
        pub const fn new(make: F) -> Pool<T, F> {
            Pool::with_capacity(Self::DEFAULT_CAPACITY, make)
        }
    }

    const_fn! {
        /// Creates an empty pool whose lists hold at most `capacity` objects each. With 0 it keeps
        /// nothing.
        ///
        /// # Examples
        ///
        /// ```
        /// use windlass::sync::Pool;
        ///
        /// let pool = Pool::with_capacity(1, String::new);
        /// let (one, two) = (pool.get(), pool.get());
        /// drop((one, two)); // on a plain thread: one goes to the shared list, one is dropped
        /// assert_eq!(pool.idle(), 1);
        /// ```
        #[must_use]
        pub const fn with_capacity(capacity: usize, make: F) -> Pool<T, F> {
            Pool {
                lists: Lists {
                    capacity,
                    shared: List::new(),
                    own: OnceLock::new(),
                },
                make,
            }
        }
    }

    /// Puts an object into the pool: one of [`Pooled::into_inner`], or a new one.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::sync::Pool;
    ///
    /// let pool = Pool::new(|| 0);
    /// pool.put(7);
    /// assert_eq!(*pool.get(), 7);
    /// ```
    pub fn put(&self, object: T) {
        points::switch_point();
        self.lists.put(object);
    }

    /// Number of idle objects. Other goroutines may change it at any time.
    #[must_use]
    pub fn idle(&self) -> usize {
        self.lists.all().map(List::len).sum()
    }

    /// Drops all idle objects.
    ///
    /// # Blocking
    ///
    /// As the destructors of the objects do.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::sync::Pool;
    ///
    /// let pool = Pool::new(String::new);
    /// drop(pool.get());
    /// assert_eq!(pool.idle(), 1);
    /// pool.clear();
    /// assert_eq!(pool.idle(), 0);
    /// ```
    pub fn clear(&self) {
        for list in self.lists.all() {
            drop(list.take_all());
        }
    }
}

impl<T, F: Fn() -> T> Pool<T, F> {
    /// Takes an idle object, or makes a new one.
    ///
    /// # Blocking
    ///
    /// As the closure that makes objects does.
    ///
    /// # Panics
    ///
    /// If that closure panics.
    ///
    /// # Examples
    ///
    /// See [`Pool`].
    pub fn get(&self) -> Pooled<'_, T> {
        points::switch_point();
        let object = self.lists.take().unwrap_or_else(|| (self.make)());
        Pooled {
            lists: &self.lists,
            object: Some(object),
        }
    }
}

impl<T> Lists<T> {
    /// The lists of Ps: as many as the runtime has that uses the pool first. Ps of a larger one share them.
    fn own(&self, n_ps: usize) -> &[Padded<List<T>>] {
        self.own
            .get_or_init(|| (0..n_ps).map(|_| Padded(List::new())).collect())
    }

    fn all(&self) -> impl Iterator<Item = &List<T>> {
        let own = self.own.get().map_or(&[][..], |own| &**own);
        std::iter::once(&self.shared).chain(own.iter().map(|list| &**list))
    }

    /// The list of the caller's P; `None` on a plain thread. Leaves the goroutine on its thread.
    fn of_caller(&self) -> Option<&List<T>> {
        let section = Section::enter_in_place()?;
        let (p_idx, n_ps) = (section.m().p().idx, section.m().sched().ps.len());
        drop(section);
        let own = self.own(n_ps);
        Some(&own[p_idx % own.len()])
    }

    fn put(&self, object: T) {
        let mut left = Some(object);
        // An object for which no list has room is dropped at the end, when no lock is held.
        for list in self.of_caller().into_iter().chain([&self.shared]) {
            let Some(object) = left.take() else { break };
            left = list.put(object, self.capacity);
        }
    }

    fn take(&self) -> Option<T> {
        self.of_caller()
            .and_then(List::take)
            .or_else(|| self.all().find_map(List::take))
    }
}

impl<T> List<T> {
    const_fn! {
        const fn new() -> List<T> {
            List {
                n: AtomicUsize::new(0),
                objects: WaitCell::new(Vec::new()),
            }
        }
    }

    fn len(&self) -> usize {
        self.n.load(Ordering::Relaxed)
    }

    /// Calls `f` with the objects, and notes their number.
    fn with<R>(&self, f: impl FnOnce(&mut Vec<T>) -> R) -> R {
        self.objects.with(|objects| {
            let result = f(objects);
            self.n.store(objects.len(), Ordering::Relaxed);
            result
        })
    }

    /// Gives the object back if the list is full.
    fn put(&self, object: T, capacity: usize) -> Option<T> {
        self.with(|objects| {
            if objects.len() >= capacity {
                return Some(object);
            }
            objects.push(object);
            None
        })
    }

    fn take(&self) -> Option<T> {
        if self.len() == 0 {
            return None;
        }
        self.with(Vec::pop)
    }

    fn take_all(&self) -> Vec<T> {
        self.with(std::mem::take)
    }
}

impl<T> Pooled<'_, T> {
    /// Takes the object out of the guard: it does not go back. See [`Pool::put`].
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::sync::{Pool, Pooled};
    ///
    /// let pool = Pool::new(|| 7);
    /// assert_eq!(Pooled::into_inner(pool.get()), 7);
    /// assert_eq!(pool.idle(), 0);
    /// ```
    #[allow(clippy::missing_panics_doc, reason = "the object is there until then")]
    pub fn into_inner(mut guard: Self) -> T {
        guard.object.take().expect("a guard has its object")
    }
}

impl<T> Deref for Pooled<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.object.as_ref().expect("a guard has its object")
    }
}

impl<T> DerefMut for Pooled<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.object.as_mut().expect("a guard has its object")
    }
}

impl<T> Drop for Pooled<'_, T> {
    fn drop(&mut self) {
        if let Some(object) = self.object.take()
            && !std::thread::panicking()
        {
            self.lists.put(object);
        }
    }
}

debug_fields!([T, F] Pool<T, F>, |this| idle: this.idle(), ..);

impl<T: fmt::Debug> fmt::Debug for Pooled<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

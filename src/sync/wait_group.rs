//! A wait group: waits for a number of tasks.
//!
//! The state is the count and the bit WAITED_FOR, which is set while waiters are queued. A caller
//! that brings the count to 0 while that bit is set does so under the list's lock. So every waiter
//! queued then waits for exactly this 0, and later waiters see the new count.

use std::panic::Location;
use std::sync::Arc;

use windlass_ground::std_traits::debug_fields;

use super::tag::{self, Tag};
use super::waitlist::{Queue, QueueEnd, WaitError, WaitList};
use super::waitq::{DequeuedList, WaitCtx, WaitOptions};
use crate::g::status::Reason;
use crate::loom::{AtomicU64, Ordering};
use crate::sched::wait::{points, spawn};

const WAITED_FOR: u64 = 1;
const ONE: u64 = 2;
const MOST: u64 = u64::MAX / ONE / 2;

/// Counts unfinished tasks and lets callers wait until there are none, as Go's `sync.WaitGroup`.
///
/// A clone is another handle of the same group.
///
/// # Blocking
///
/// [`wait`](WaitGroup::wait) parks a goroutine and blocks a plain thread.
///
/// # Examples
///
/// ```
/// use windlass::sync::WaitGroup;
/// use windlass::sync::atomic::{AtomicUsize, Ordering};
///
/// static SUM: AtomicUsize = AtomicUsize::new(0);
///
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
/// rt.run(|| {
///     let group = WaitGroup::new();
///     for i in 1..=10 {
///         group.go(move || _ = SUM.fetch_add(i, Ordering::Relaxed));
///     }
///     group.wait();
///     assert_eq!(SUM.load(Ordering::Relaxed), 55);
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct WaitGroup {
    group: Arc<Group>,
    _tag: Tag,
}

struct Group {
    /// Ordering: a countdown releases the caller's writes and acquires those of earlier countdowns;
    /// a load that sees 0 acquires the writes of all.
    state: AtomicU64,
    list: WaitList,
}

impl Default for Group {
    fn default() -> Group {
        Group {
            state: AtomicU64::new(0),
            list: WaitList::new(),
        }
    }
}

impl Default for WaitGroup {
    fn default() -> WaitGroup {
        let group = Arc::<Group>::default();
        WaitGroup {
            _tag: Tag::new(tag::Handle::Member, Arc::as_ptr(&group).addr()),
            group,
        }
    }
}

impl WaitGroup {
    /// Creates a group with a count of 0.
    #[must_use]
    pub fn new() -> WaitGroup {
        WaitGroup::default()
    }

    /// Adds `n`, which may be negative, to the count. If it becomes 0, all waiters are woken.
    ///
    /// Tasks must be added before the wait for them begins.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Panics
    ///
    /// If the count would become negative or overflow. It does not change then.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::sync::WaitGroup;
    ///
    /// let group = WaitGroup::new();
    /// group.add(3);
    /// for _ in 0..3 {
    ///     let group = group.clone();
    ///     std::thread::spawn(move || group.done());
    /// }
    /// group.wait();
    /// ```
    #[track_caller]
    pub fn add(&self, n: isize) {
        points::switch_point();
        self.add_in_place(n);
    }

    /// As [`WaitGroup::add`]; leaves the goroutine on its thread.
    #[track_caller]
    fn add_in_place(&self, n: isize) {
        let n = n as i64;
        let added = match self.group.add(n, false) {
            Added::NeedsLock => self.group.add_and_wake(n),
            added => added,
        };
        assert!(added != Added::Negative, "negative WaitGroup counter");
        assert!(added != Added::TooMuch, "too large WaitGroup counter");
    }

    /// Subtracts 1 from the count: one task is done. See [`WaitGroup::add`] for an example.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Panics
    ///
    /// If the count is 0.
    #[track_caller]
    pub fn done(&self) {
        self.add(-1);
    }

    /// As [`WaitGroup::done`]; leaves the goroutine on its thread: for destructors.
    pub(crate) fn done_in_place(&self) {
        self.add_in_place(-1);
    }

    /// Waits until the count is 0.
    ///
    /// See [`WaitGroup`] for an example.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine; blocks a plain thread. If the runtime shuts down, a waiting goroutine
    /// unwinds. In a destructor that runs during this unwinding, the call returns at once.
    pub fn wait(&self) {
        points::switch_point();
        if !self.group.is_zero() {
            let _ = self.group.wait(false);
        }
        end_of_wait();
    }

    /// As [`WaitGroup::wait`], but the wait also ends when the ambient context is done.
    ///
    /// # Errors
    ///
    /// The reason why the wait ended early.
    pub(crate) fn wait_in_context(&self) -> Result<(), WaitError> {
        if !self.group.is_zero() {
            self.group.wait(true)?;
        }
        end_of_wait();
        Ok(())
    }

    /// Spawns a goroutine and counts it as one task: adds 1 now, and subtracts 1 when `f` has
    /// returned or panicked.
    ///
    /// See [`WaitGroup`] for an example.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Panics
    ///
    /// If the caller is not a goroutine.
    #[track_caller]
    pub fn go<F: FnOnce() + Send + 'static>(&self, f: F) {
        self.add(1);
        let done = Done(self.clone());
        let counted = move || {
            let _done = done;
            f();
        };
        spawn::spawn_unjoined(counted, Location::caller());
    }
}

/// Called after a wait. During a shutdown the count may be 0 only because goroutines that count
/// down in a destructor were unwound: their tasks are not done, so the caller unwinds, too. In a
/// destructor it returns.
fn end_of_wait() {
    let _ = points::cancel_point();
}

/// Counts down when it is dropped, even if its goroutine never ran.
struct Done(WaitGroup);

impl Drop for Done {
    fn drop(&mut self) {
        self.0.done();
    }
}

/// Result of an addition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Added {
    Yes,
    /// The count is 0 now, and the caller has to wake all waiters.
    WakesAll,
    NeedsLock,
    Negative,
    TooMuch,
}

impl Group {
    fn is_zero(&self) -> bool {
        self.state.load(Ordering::Acquire) / ONE == 0
    }

    /// Adds `n`. If that makes the count 0 while waiters are queued, the caller must hold the
    /// list's lock (`locked`); otherwise it changes nothing and returns `NeedsLock`.
    fn add(&self, n: i64, locked: bool) -> Added {
        let mut now = self.state.load(Ordering::Relaxed);
        loop {
            let Some(count) = (now / ONE).checked_add_signed(n) else {
                return Added::Negative;
            };
            let wakes = count == 0 && now & WAITED_FOR != 0;
            let new = match count {
                0 if wakes && !locked => return Added::NeedsLock,
                0 if wakes => 0,
                MOST.. => return Added::TooMuch,
                _ => (count * ONE) | (now & WAITED_FOR),
            };
            match self
                .state
                .compare_exchange_weak(now, new, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) if wakes => return Added::WakesAll,
                Ok(_) => return Added::Yes,
                Err(other) => now = other,
            }
        }
    }

    #[cold]
    fn add_and_wake(&self, n: i64) -> Added {
        let ctx = WaitCtx::enter_in_place();
        let queue = self.list.lock(&ctx);
        let added = self.add(n, true);
        let waiters = if added == Added::WakesAll {
            queue.take_all()
        } else {
            DequeuedList::new()
        };
        drop(queue);
        waiters.ready(&ctx);
        added
    }

    #[cold]
    fn wait(&self, by_context: bool) -> Result<(), WaitError> {
        let ctx = WaitCtx::enter();
        let queue = self.list.lock(&ctx);
        let waits = self
            .state
            .fetch_update(Ordering::Acquire, Ordering::Acquire, |now| {
                (now / ONE != 0).then_some(now | WAITED_FOR)
            });
        if waits.is_err() {
            return Ok(());
        }
        let leave = |queue: &Queue<'_>| {
            if queue.is_empty() {
                self.state.fetch_and(!WAITED_FOR, Ordering::Relaxed);
            }
            DequeuedList::new()
        };
        let options = WaitOptions::new(Reason::WaitGroup).by_context(by_context);
        let wait = || queue.wait(ctx, QueueEnd::Last, 0, options, leave);
        tag::while_waiting(tag::Handle::Member, std::ptr::from_ref(self).addr(), wait).map(drop)
    }
}

debug_fields!(WaitGroup, |this| count: this.group.state.load(Ordering::Relaxed) / ONE, ..);

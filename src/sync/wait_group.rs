//! Waiting for a number of things to be done.
//!
//! The state is the count and a bit that says that somebody waits. Whoever brings the
//! count to 0 and sees that bit does so under the list's lock: so whoever is in the queue
//! then waits for just this 0, and whoever comes later finds the new count.

use std::fmt;
use std::sync::Arc;

use super::waitlist::{GaveUp, Place, Queue, WaitList};
use super::waitq::{Here, TakenList, Terms};
use crate::g::status::Reason;
use crate::loom::{AtomicU64, Ordering};
use crate::sched::park;
use crate::task;

const WAITED_FOR: u64 = 1;
const ONE: u64 = 2;
const MOST: u64 = u64::MAX / ONE / 2;

/// Counts what is to be done, and lets others wait until it is: Go's `sync.WaitGroup`.
///
/// Cloning gives another handle of the same group.
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
#[derive(Clone, Default)]
pub struct WaitGroup(Arc<Group>);

struct Group {
    /// Ordering: whoever counts down releases what it did and acquires what others did
    /// before; whoever sees 0 acquires it all.
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

impl WaitGroup {
    /// Makes a group in which nothing is to be done.
    #[must_use]
    pub fn new() -> WaitGroup {
        WaitGroup::default()
    }

    /// Adds `n`, which may be negative, to what is to be done. What is waited for is added
    /// before the wait begins.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Panics
    ///
    /// If the count would be negative; it stays what it was.
    #[track_caller]
    pub fn add(&self, n: isize) {
        let n = n as i64;
        let added = match self.0.add(n, false) {
            Added::NeedsLock => self.0.add_and_wake(n),
            added => added,
        };
        assert!(added != Added::Negative, "negative WaitGroup counter");
        assert!(added != Added::TooMuch, "too large WaitGroup counter");
    }

    /// One of the things is done.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Panics
    ///
    /// If there was none.
    #[track_caller]
    pub fn done(&self) {
        self.add(-1);
    }

    /// Waits until nothing is to be done.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine; blocks a plain thread. On a goroutine whose runtime ends it
    /// unwinds. In a destructor that runs while it unwinds the call returns at once.
    pub fn wait(&self) {
        if !self.0.is_zero() {
            let _ = self.0.wait(false);
        }
        end_of_wait();
    }

    /// As [`WaitGroup::wait`], but the wait ends when the ambient context does.
    ///
    /// # Errors
    ///
    /// Why not everything is done.
    pub(crate) fn wait_in_context(&self) -> Result<(), GaveUp> {
        if !self.0.is_zero() {
            self.0.wait(true)?;
        }
        end_of_wait();
        Ok(())
    }

    /// Spawns a goroutine that is one of the things to be done: added now, done when `f`
    /// has returned or panicked.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Panics
    ///
    /// Off the runtime.
    #[track_caller]
    pub fn go<F: FnOnce() + Send + 'static>(&self, f: F) {
        self.add(1);
        let done = Done(self.clone());
        task::spawn(move || {
            let _done = done;
            f();
        });
    }
}

/// The wait is over. If the run ends it may be so because goroutines that count down in a
/// destructor were unwound: then what they were to do is not done, and the caller unwinds,
/// too. In a destructor the call is just over.
fn end_of_wait() {
    let _ = park::cancel_point();
}

/// Counts down when it is dropped, also if its goroutine never ran.
struct Done(WaitGroup);

impl Drop for Done {
    fn drop(&mut self) {
        self.0.done();
    }
}

/// What an addition came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Added {
    Yes,
    /// It is 0 now, and all in the queue are to be woken.
    WakesAll,
    NeedsLock,
    Negative,
    TooMuch,
}

impl Group {
    fn is_zero(&self) -> bool {
        self.state.load(Ordering::Acquire) / ONE == 0
    }

    /// Adds, but does not go to 0 while somebody waits, unless the caller holds the list's
    /// lock.
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
        let here = Here::enter();
        let queue = self.list.lock(&here);
        let added = self.add(n, true);
        let waiters = if added == Added::WakesAll {
            queue.take_all()
        } else {
            TakenList::new()
        };
        drop(queue);
        waiters.ready(&here);
        added
    }

    #[cold]
    fn wait(&self, by_context: bool) -> Result<(), GaveUp> {
        let here = Here::enter();
        let queue = self.list.lock(&here);
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
            TakenList::new()
        };
        let terms = Terms::new(Reason::WaitGroup).by_context(by_context);
        queue.wait(here, Place::Last, 0, terms, leave).map(drop)
    }
}

impl fmt::Debug for WaitGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.0.state.load(Ordering::Relaxed) / ONE;
        f.debug_struct("WaitGroup")
            .field("count", &count)
            .finish_non_exhaustive()
    }
}

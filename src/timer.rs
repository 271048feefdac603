//! The timers of one P: a [`TimerQueue`] under a short lock.
//!
//! A timer is an entry `(when, G, wait)`. It names one wait of one goroutine, so it needs no
//! allocation and no removal. If the goroutine wakes for another reason, its entry stays where it is
//! and is stale: the status word has another wait number. A stale entry is dropped when its
//! time comes, or when stale entries are a quarter of all. (This is Go's lazy deletion;
//! the wait number in the status word replaces Go's timer states.)
//!
//! This module schedules nothing: [`Timers::expire`] takes the wake tokens and returns the Gs that
//! are now runnable, and the waits whose operation must be cancelled.

use std::ops::Range;

use windlass_ground::timer_queue::{Entry, TimerQueue};

use crate::g::header::GRef;
use crate::g::list::GList;
use crate::g::status::{Reason, Status, WaitId};
use crate::lock::{Lock, rank};
use crate::loom::native::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::sys::clock::NEVER;

/// A wait that ends by time.
type Wait = (GRef, WaitId);

/// Whether the wait has ended for another reason.
fn is_stale(&(g, wait): &Wait) -> bool {
    Status::wait_of(g.status.load()) != Some(wait)
}

/// The result of [`Timers::expire`].
#[derive(Debug, Default)]
pub(crate) struct Expired {
    /// Goroutines whose wake token was taken. The caller queues them.
    pub(crate) ready: GList,
    /// Waits for an operation past its deadline. The caller cancels the operation.
    pub(crate) cancel: Vec<(GRef, WaitId)>,
}

/// Timers that move from one P to another.
#[derive(Debug)]
pub(crate) struct Moved(Vec<Entry<Wait>>);

/// The timers of a P.
#[derive(Debug)]
pub(crate) struct Timers {
    entries: Lock<TimerQueue<Wait>>,
    /// When the earliest entry is due, `NEVER` for none. Read without the lock.
    /// Ordering: release and acquire with the re-check before a P goes idle. A stealing P that
    /// reads an old value runs the timers a moment later.
    next_ns: AtomicU64,
    /// The number of stale entries. Ordering: relaxed, an estimate.
    n_stale: AtomicUsize,
}

impl Timers {
    /// Creates timers of which there are none yet. Their memory is on `node`, if one is given.
    pub(crate) fn new(node: Option<u32>) -> Timers {
        Timers {
            entries: Lock::new(rank::TIMERS, TimerQueue::new(node)),
            next_ns: AtomicU64::new(NEVER),
            n_stale: AtomicUsize::new(0),
        }
    }

    /// Returns when the earliest entry is due, or `NEVER`.
    #[inline(always)]
    pub(crate) fn next_ns(&self) -> u64 {
        self.next_ns.load(Ordering::Acquire)
    }

    /// Arms a timer for a wait that has begun.
    pub(crate) fn add(&self, when_ns: u64, g: GRef, wait: WaitId) {
        let mut entries = self.entries.lock();
        let n_stale = self.n_stale.load(Ordering::Relaxed);
        if n_stale > 64 && n_stale > entries.len() / 4 {
            self.purge(&mut entries);
        }
        entries.add(Entry {
            when_ns,
            value: (g, wait),
        });
        // Ordering: relaxed, as it is written under the lock only.
        if when_ns < self.next_ns.load(Ordering::Relaxed) {
            self.next_ns.store(when_ns, Ordering::Release);
        }
    }

    /// Counts an entry as stale: its goroutine woke for another reason.
    pub(crate) fn note_stale(&self) {
        self.n_stale.fetch_add(1, Ordering::Relaxed);
    }

    /// Removes all entries that are due at `now_ns`.
    #[cold]
    pub(crate) fn expire(&self, now_ns: u64) -> Expired {
        let mut expired = Expired::default();
        let mut entries = self.entries.lock();
        entries.advance(now_ns);
        while let Some((g, wait)) = entries.pop_due(now_ns) {
            entries.next_ones().for_each(|(g, _)| g.prefetch_status());
            let status = g.status.load();
            if Status::wait_of(status) != Some(wait) {
                let n = self.n_stale.load(Ordering::Relaxed);
                self.n_stale.store(n.saturating_sub(1), Ordering::Relaxed);
            } else if status.reason() == Reason::Io {
                expired.cancel.push((g, wait));
            } else if g.status.wake(wait) {
                expired.ready.push(g);
            }
        }
        self.publish(&entries);
        expired
    }

    /// Removes all entries, for another P.
    pub(crate) fn take_all(&self) -> Moved {
        let mut entries = self.entries.lock();
        self.n_stale.store(0, Ordering::Relaxed);
        self.next_ns.store(NEVER, Ordering::Release);
        Moved(entries.take_all())
    }

    /// Adds the entries of another P.
    pub(crate) fn adopt(&self, moved: Moved) {
        let mut entries = self.entries.lock();
        let live = moved.0.into_iter().filter(|e| !is_stale(&e.value));
        live.for_each(|e| entries.add(e));
        self.publish(&entries);
    }

    /// Removes the stale entries.
    pub(crate) fn drop_stale(&self) {
        self.purge(&mut self.entries.lock());
    }

    /// Passes the waits that end by time to `f`.
    pub(crate) fn for_each(&self, mut f: impl FnMut(GRef, WaitId)) {
        let entries = self.entries.lock();
        entries.iter().for_each(|e| f(e.value.0, e.value.1));
    }

    /// Returns the number of entries, including stale ones.
    pub(crate) fn len(&self) -> usize {
        self.entries.lock().len()
    }

    /// Returns the address ranges of the entries' pages.
    pub(crate) fn spans(&self) -> Vec<Range<usize>> {
        self.entries.lock().spans().collect()
    }

    fn purge(&self, entries: &mut TimerQueue<Wait>) {
        entries.retain(|wait| !is_stale(wait));
        self.n_stale.store(0, Ordering::Relaxed);
        self.publish(entries);
    }

    #[inline]
    fn publish(&self, entries: &TimerQueue<Wait>) {
        self.next_ns.store(entries.first_ns(), Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::g::slab;
    use crate::sys::clock;
    use windlass_ground::random::Random;

    fn waiting_g(reason: Reason) -> (GRef, WaitId) {
        let mut g = None;
        slab::take(slab::DepotId::ANY, 0, 1, |slot| g = Some(slot));
        let g = g.unwrap();
        g.status.set_new(false);
        g.status.set_runnable();
        g.status.set_running();
        (g, g.status.set_waiting(reason, 0))
    }

    #[test]
    fn comes_due_in_order_of_time() {
        let timers = Timers::new(None);
        let random = Random::new(3);
        let mut whens = Vec::new();
        for _ in 0..500 {
            let (g, wait) = waiting_g(Reason::Sleep);
            let when = random.below(1000) as u64;
            whens.push(when);
            timers.add(when, g, wait);
        }
        whens.sort_unstable();
        assert_eq!(timers.next_ns(), whens[0]);
        for now in 0..1000 {
            let due = whens.iter().filter(|&&w| w == now).count();
            assert_eq!(timers.expire(now).ready.len(), due);
        }
        assert_eq!(timers.next_ns(), NEVER);
    }

    /// The heap has room for a part of them only, and the times are of all magnitudes.
    #[test]
    fn times_of_all_magnitudes_come_due_in_order() {
        const ROUNDS: usize = if cfg!(miri) { 60 } else { 3_000 };
        let timers = Timers::new(None);
        let random = Random::new(11);
        // Below 2^bits.
        let below = |bits: u32| {
            let (high, low) = (random.below(1 << 31) as u64, random.below(1 << 31) as u64);
            (high << 33 | low << 2) >> (u64::BITS - bits)
        };
        let mut now_ns = clock::now_ns();
        let mut model = std::collections::BTreeMap::new();
        let mut n_left = 0;
        for round in 0..ROUNDS {
            let n_new = if round < ROUNDS / 3 { 10 } else { 0 };
            for _ in 0..n_new {
                let (g, wait) = waiting_g(Reason::Sleep);
                let after = below(1 + random.below(50) as u32);
                let when_ns = if random.below(50) == 0 {
                    NEVER - random.below(3) as u64
                } else {
                    now_ns + after
                };
                timers.add(when_ns, g, wait);
                *model.entry(when_ns).or_insert(0) += 1;
                n_left += 1;
            }
            let next_ns = model
                .first_key_value()
                .map_or(NEVER, |(&when_ns, _)| when_ns);
            assert_eq!(timers.next_ns(), next_ns, "round {round}");
            assert_eq!(timers.len(), n_left);
            // To the next one, just before it, or anywhere.
            let soon_ns = next_ns.min(now_ns + (1 << 50));
            now_ns = now_ns.max(match random.below(3) {
                0 => soon_ns,
                1 => soon_ns - 1,
                _ => now_ns + below(1 + random.below(50) as u32),
            });
            let later = model.split_off(&now_ns.saturating_add(1));
            let due = std::mem::replace(&mut model, later)
                .into_values()
                .sum::<usize>();
            assert_eq!(timers.expire(now_ns).ready.len(), due, "round {round}");
            n_left -= due;
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "too long for an interpreter")]
    fn buckets_keep_few_pages_after_a_burst() {
        let timers = Timers::new(None);
        let now_ns = clock::now_ns();
        let of_buckets = || {
            let spans = timers.spans().into_iter().skip(1);
            spans.map(|span| span.len()).max()
        };
        for _ in 0..10_000 {
            let (g, wait) = waiting_g(Reason::Sleep);
            timers.add(now_ns + (1 << 32), g, wait);
        }
        assert!(of_buckets() > Some(200_000));
        assert_eq!(timers.expire(now_ns + (1 << 32)).ready.len(), 10_000);
        assert!(of_buckets() <= Some(65_536));
    }

    #[test]
    #[cfg_attr(miri, ignore = "too long for an interpreter")]
    fn entries_of_all_buckets_move_to_another_p() {
        let (from, to) = (Timers::new(None), Timers::new(None));
        let now_ns = clock::now_ns();
        for i in 0..2_000_u64 {
            let (g, wait) = waiting_g(Reason::Sleep);
            // Near ones may all lie behind the end of the same bucket of a high level; far ones do not.
            let later_ns = if i % 2 == 0 {
                i * i * i * 1_000
            } else {
                i << 50
            };
            from.add(now_ns + later_ns, g, wait);
        }
        assert!(from.spans().iter().filter(|span| !span.is_empty()).count() > 10);
        to.adopt(from.take_all());
        assert_eq!((from.len(), from.next_ns()), (0, NEVER));
        assert_eq!((to.len(), to.next_ns()), (2_000, now_ns));
        assert_eq!(to.expire(NEVER - 1).ready.len(), 2_000);
    }

    #[test]
    fn a_stale_timer_wakes_nobody() {
        let timers = Timers::new(None);
        let (g, wait) = waiting_g(Reason::Park);
        timers.add(5, g, wait);
        assert!(g.status.wake(wait));
        timers.note_stale();
        assert!(timers.expire(9).ready.is_empty());
    }

    #[test]
    fn an_operation_is_cancelled_not_woken() {
        let timers = Timers::new(None);
        let (g, wait) = waiting_g(Reason::Io);
        timers.add(5, g, wait);
        let expired = timers.expire(5);
        assert!(expired.ready.is_empty());
        assert_eq!(expired.cancel, [(g, wait)]);
        assert!(g.status.wake(wait));
    }

    #[test]
    #[cfg_attr(miri, ignore = "too long for an interpreter")]
    fn a_million_of_which_few_last() {
        let timers = Timers::new(None);
        let random = Random::new(5);
        let (often, mut wait) = waiting_g(Reason::Park);
        let begin_ns = clock::now_ns();
        let mut n_live = 0;
        for i in 0..1_000_000_u64 {
            let when_ns = begin_ns + 1_000_000 + random.below(1 << 30) as u64;
            if i % 100 == 0 {
                let (g, wait) = waiting_g(Reason::Sleep);
                timers.add(when_ns, g, wait);
                n_live += 1;
            } else {
                timers.add(when_ns, often, wait);
                assert!(often.status.wake(wait));
                timers.note_stale();
                often.status.set_running();
                wait = often.status.set_waiting(Reason::Park, 0);
            }
            let len = timers.len();
            assert!(len <= n_live * 4 / 3 + 100, "{len} for {n_live}");
        }
        let (mut n_woken, mut now_ns) = (0, 0);
        while timers.next_ns() != NEVER {
            assert!(timers.next_ns() > now_ns);
            now_ns = timers.next_ns();
            n_woken += timers.expire(now_ns).ready.len();
        }
        assert_eq!(n_woken, n_live);
    }

    #[test]
    fn stale_entries_are_purged() {
        const ADDED: u64 = if cfg!(miri) { 500 } else { 10_000 };
        let timers = Timers::new(None);
        let begin_ns = clock::now_ns();
        for i in 0..ADDED {
            let (g, wait) = waiting_g(Reason::Park);
            timers.add(begin_ns + (i << 20), g, wait);
            assert!(g.status.wake(wait));
            timers.note_stale();
        }
        assert!(timers.len() < 200, "{} entries left", timers.len());
    }
}

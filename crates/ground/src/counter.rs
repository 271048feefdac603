//! Counters that one thread writes and any thread reads.

use crate::loom::native::atomic::{AtomicU64, Ordering};

/// A counter with one writer at a time.
///
/// Ordering: release and acquire, which are free on x86. A reader that sees a count also sees the
/// counts that were written before it.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds without an atomic read-modify-write, because only the owner writes.
    #[inline(always)]
    pub fn add(&self, n: u64) {
        self.0.store(
            self.0.load(Ordering::Relaxed).wrapping_add(n),
            Ordering::Release,
        );
    }

    /// Stores a value, for quantities that rise and fall.
    #[inline(always)]
    pub fn set(&self, n: u64) {
        self.0.store(n, Ordering::Release);
    }

    /// Reads it.
    #[inline(always)]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

/// How long a thread has slept in all, the sleep that it is in included.
///
/// One word has it: the time of past sleeps; or during a sleep that time less the moment when it began, with `ASLEEP`.
/// With two words, a reader between the writes of a thread that wakes counts that sleep twice.
#[derive(Debug, Default)]
pub struct SleptTime(Counter);

/// The thread sleeps; the other bits are a difference, modulo this.
const ASLEEP: u64 = 1 << 63;

impl SleptTime {
    /// The thread falls asleep at `now_ns`. Called by the one writer.
    pub fn begin(&self, now_ns: u64) {
        self.0.set(self.0.get().wrapping_sub(now_ns) | ASLEEP);
    }

    /// The thread is awake at `now_ns`, after a [`begin`](SleptTime::begin).
    pub fn end(&self, now_ns: u64) {
        self.0.set(self.0.get().wrapping_add(now_ns) & !ASLEEP);
    }

    /// The time until now. It never falls from one call to a later one: if the thread wakes while the clock is read,
    /// that reading is not used.
    pub fn until_now_ns(&self, now_ns: impl Fn() -> u64) -> u64 {
        loop {
            let word = self.0.get();
            if word & ASLEEP == 0 {
                return word;
            }
            let now_ns = now_ns();
            if self.0.get() == word {
                return word.wrapping_add(now_ns) & !ASLEEP;
            }
        }
    }
}

/// A cached reading of the clock. Its owner updates it from time to time; another thread does so if
/// the owner cannot. Ordering: relaxed; any recent reading serves.
#[derive(Debug, Default)]
pub struct CoarseTime(AtomicU64);

impl CoarseTime {
    /// The latest reading.
    #[inline(always)]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Updates it.
    #[inline(always)]
    pub fn set(&self, now_ns: u64) {
        self.0.store(now_ns, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn sleeps_add_up_with_the_one_that_lasts() {
        let slept = SleptTime::default();
        assert_eq!(slept.until_now_ns(|| unreachable!()), 0);
        slept.begin(1_000);
        assert_eq!(slept.until_now_ns(|| 1_300), 300);
        slept.end(1_400);
        assert_eq!(slept.until_now_ns(|| unreachable!()), 400);
        slept.begin(2_000);
        assert_eq!(slept.until_now_ns(|| 2_001), 401);
    }

    /// A reader that takes its time sees no more than there is: the next reading would be less.
    #[test]
    fn a_thread_that_wakes_while_it_is_read_is_not_counted_on() {
        let (slept, readings) = (SleptTime::default(), Cell::new(0));
        slept.begin(1_000);
        let total_ns = slept.until_now_ns(|| {
            readings.set(readings.get() + 1);
            slept.end(1_010);
            5_000
        });
        assert_eq!((total_ns, readings.get()), (10, 1));
        assert_eq!(slept.until_now_ns(|| 6_000), 10);
    }

    #[test]
    fn a_thread_that_falls_asleep_again_while_it_is_read_is_read_again() {
        let (slept, now_ns) = (SleptTime::default(), Cell::new(1_000));
        slept.begin(1_000);
        let total_ns = slept.until_now_ns(|| {
            if now_ns.replace(5_000) == 1_000 {
                slept.end(1_010);
                slept.begin(4_000);
            }
            now_ns.get()
        });
        assert_eq!(total_ns, 10 + 1_000);
    }
}

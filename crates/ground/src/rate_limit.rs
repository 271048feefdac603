//! Limits reports of a kind to one per interval, and counts those that were left out.

use crate::loom::native::atomic::{AtomicU64, Ordering};

/// Decides which events of a kind are reported.
#[derive(Debug, Default)]
pub struct RateLimit {
    /// The time of the next report. Ordering: relaxed; the CAS chooses one reporter.
    next_ns: AtomicU64,
    /// Events since the last report. Ordering: relaxed; the count publishes nothing.
    n_left_out: AtomicU64,
}

impl RateLimit {
    /// Decides on an event at `now_ns`. `Some` if it is to be reported: the number of events left
    /// out since the last report. Then no other event is reported for `every_ns`.
    pub fn admit(&self, now_ns: u64, every_ns: u64) -> Option<u64> {
        let next_ns = self.next_ns.load(Ordering::Relaxed);
        let is_due = now_ns >= next_ns
            && self
                .next_ns
                .compare_exchange(
                    next_ns,
                    now_ns.saturating_add(every_ns),
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                )
                .is_ok();
        if is_due {
            return Some(self.take_left_out());
        }
        self.n_left_out.fetch_add(1, Ordering::Relaxed);
        None
    }

    /// Returns the number of events left out since the last report, and resets it.
    pub fn take_left_out(&self) -> u64 {
        self.n_left_out.swap(0, Ordering::Relaxed)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn one_in_a_while_and_none_is_lost() {
        let limit = RateLimit::default();
        assert_eq!(limit.admit(5, 100), Some(0));
        assert_eq!(limit.admit(5, 100), None);
        assert_eq!(limit.admit(104, 100), None);
        assert_eq!(limit.admit(105, 100), Some(2));
        assert_eq!(limit.admit(106, 100), None);
        assert_eq!(limit.take_left_out(), 1);
        assert_eq!(limit.admit(1000, 100), Some(0));
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "plain threads take part")]
    fn of_several_threads_one_reports() {
        let limit = RateLimit::default();
        let reported: Vec<u64> = std::thread::scope(|scope| {
            let report = || (0..1000).filter_map(|_| limit.admit(7, 1)).collect();
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(report)).collect();
            let reports = threads.into_iter().map(|t| t.join().unwrap());
            reports.flat_map(|r: Vec<u64>| r).collect()
        });
        // Others may have been left out before the one that reports takes their number.
        assert_eq!(reported.len(), 1);
        assert_eq!(reported[0] + limit.take_left_out(), 3999);
    }
}

//! Faults that are drawn from the seed.

use std::time::Duration;

use super::link::{millionths, nanoseconds};
use crate::bubble::net::faults::{self, Kind, Trouble};

/// Faults of hosts, links and disks that are drawn from the seed. All are given as a mean number in a
/// minute of virtual time.
///
/// A fault comes only while something else is still to happen in virtual time: a timer, or a packet
/// that is on its way. An exhaustive search ([`Strategy::Exhaustive`](super::Strategy)) draws none.
///
/// # Examples
///
/// ```
/// # const PROMISE: windlass::Promise = unsafe { windlass::Promise::no_thread_local_across_waits() };
/// use std::time::Duration;
/// use windlass::sim::{self, Faults, Sim};
/// use windlass::sync::Arc;
/// use windlass::sync::atomic::{AtomicU32, Ordering};
/// use windlass::time::sleep;
///
/// let faults = Faults::network().crashes(6.0).at_most(Duration::from_secs(5));
/// let n_starts = Arc::new(AtomicU32::new(0));
/// Sim::new(PROMISE).seeds(20).faults(faults).run(|| {
///     let n = Arc::clone(&n_starts);
///     let _worker = sim::host("worker", [10, 0, 0, 1], move || {
///         n.fetch_add(1, Ordering::Relaxed);
///         sleep(Duration::from_secs(3600));
///     });
///     sleep(Duration::from_secs(120));
/// })?;
/// assert!(n_starts.load(Ordering::Relaxed) > 20);
/// # Ok::<(), sim::Failure>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "faults do nothing until a simulation has them"]
pub struct Faults {
    drawn: faults::Faults,
    lookups: u32,
}

impl Faults {
    pub(super) fn none() -> Faults {
        Faults {
            drawn: faults::Faults::default(),
            lookups: 0,
        }
    }

    /// No faults, to begin with. The methods add them.
    pub fn network() -> Faults {
        Faults::none()
    }

    pub(super) fn drawn(&self) -> faults::Faults {
        self.drawn.clone()
    }

    pub(super) fn lookup_failures(&self) -> u32 {
        self.lookups
    }

    #[track_caller]
    fn every(mut self, kind: Kind, per_minute: f64) -> Faults {
        assert!(
            per_minute >= 0.0 && per_minute.is_finite(),
            "windlass: {per_minute} faults in a minute: pass a number that is not negative"
        );
        // No fault within the lifetime of the clock is none.
        let every_ns = 60e9 / per_minute;
        let every_ns = if every_ns < 1e18 {
            (every_ns as u64).max(1)
        } else {
            0
        };
        self.drawn.set(kind, every_ns);
        self
    }

    /// Sets how often, in a minute on average, two hosts can no longer reach each other for a
    /// while.
    ///
    /// # Panics
    ///
    /// If the number is negative or not finite.
    #[track_caller]
    pub fn partitions(self, per_minute: f64) -> Faults {
        self.every(Kind::Partition, per_minute)
    }

    /// Sets how often one host can no longer reach another for a while, although that one still
    /// reaches it.
    ///
    /// # Panics
    ///
    /// As [`Faults::partitions`].
    #[track_caller]
    pub fn one_way_partitions(self, per_minute: f64) -> Faults {
        self.every(Kind::OneWay, per_minute)
    }

    /// Sets how often all TCP connections between two hosts are reset.
    ///
    /// # Panics
    ///
    /// As [`Faults::partitions`].
    #[track_caller]
    pub fn resets(self, per_minute: f64) -> Faults {
        self.every(Kind::Resets, per_minute)
    }

    /// Sets how often a host crashes. It restarts after a while. The host of the main goroutine
    /// never crashes.
    ///
    /// # Panics
    ///
    /// As [`Faults::partitions`].
    #[track_caller]
    pub fn crashes(self, per_minute: f64) -> Faults {
        self.every(Kind::Crash, per_minute)
    }

    /// Sets how often a host stands still for a while. That of the main goroutine never does.
    ///
    /// # Panics
    ///
    /// As [`Faults::partitions`].
    #[track_caller]
    pub fn pauses(self, per_minute: f64) -> Faults {
        self.every(Kind::Pause, per_minute)
    }

    /// Sets how often a disk is slow for a while: a transfer or a sync takes a hundred times as
    /// long as its settings say.
    ///
    /// The disk is that of a host that runs. That of the main goroutine's host has faults only if
    /// it is the only one.
    ///
    /// # Panics
    ///
    /// As [`Faults::partitions`].
    ///
    /// # Examples
    ///
    /// ```
    /// # const PROMISE: windlass::Promise = unsafe { windlass::Promise::no_thread_local_across_waits() };
    /// use std::time::Duration;
    /// use windlass::fs::File;
    /// use windlass::io::Write;
    /// use windlass::sim::{self, Faults, Sim};
    /// use windlass::time::{Instant, sleep};
    ///
    /// let faults = Faults::network().slow_disks(6.0);
    /// Sim::new(PROMISE).seeds(5).faults(faults).run(|| {
    ///     let mut file = File::create("/log").unwrap();
    ///     let mut slowest = Duration::ZERO;
    ///     for _ in 0..600 {
    ///         file.write_all(b"line").unwrap();
    ///         let start = Instant::now();
    ///         file.sync_data().unwrap();
    ///         slowest = slowest.max(start.elapsed());
    ///         sleep(Duration::from_secs(1));
    ///     }
    ///     assert!(slowest >= Duration::from_millis(100));
    /// })?;
    /// # Ok::<(), sim::Failure>(())
    /// ```
    #[track_caller]
    pub fn slow_disks(self, per_minute: f64) -> Faults {
        self.every(Kind::Disk(Trouble::Slow), per_minute)
    }

    /// Sets how often a disk fails for a while: half of all reads, writes, changes of names, and
    /// syncs give EIO. The disks are chosen as for [`Faults::slow_disks`].
    ///
    /// # Panics
    ///
    /// As [`Faults::partitions`].
    #[track_caller]
    pub fn failing_disks(self, per_minute: f64) -> Faults {
        self.every(Kind::Disk(Trouble::Failing), per_minute)
    }

    /// Sets how often a disk is full for a while. Whose disk it is, [`Faults::slow_disks`] says.
    ///
    /// # Panics
    ///
    /// As [`Faults::partitions`].
    #[track_caller]
    pub fn full_disks(self, per_minute: f64) -> Faults {
        self.every(Kind::Disk(Trouble::Full), per_minute)
    }

    /// Sets the probability that a look-up of a host's name fails.
    ///
    /// # Panics
    ///
    /// If it is not between 0 and 1.
    #[track_caller]
    pub fn lookups(mut self, probability: f64) -> Faults {
        self.lookups = millionths(probability);
        self
    }

    /// Sets the most time that a fault lasts, which is 10 s by default. The time is drawn, from a
    /// millisecond on.
    pub fn at_most(mut self, time: Duration) -> Faults {
        self.drawn.at_most_ns = nanoseconds(time);
        self
    }

    /// Sets how long after the beginning of the run the last fault may begin; by default there is
    /// no end. A test that sleeps until then, and for as long as a fault lasts, can ask whether all
    /// is well again.
    pub fn until(mut self, time: Duration) -> Faults {
        self.drawn.until_ns = nanoseconds(time);
        self
    }
}

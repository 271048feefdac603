//! Settings of a simulated disk.

use std::ops::RangeInclusive;
use std::time::Duration;

use windlass_world::disk::settings::Quality;

/// Settings of a simulated disk: its size, its speed, and how often it fails.
///
/// [`Sim::disk`](crate::sim::Sim::disk) sets them for all disks of a simulation, and
/// [`Host::set_disk`](crate::sim::Host::set_disk) for one host while a run goes on. By default a
/// disk has no end and never fails. A transfer takes 0.1 ms of virtual time, and a sync from 1 to
/// 10 ms.
///
/// A *probability* lies between 0 and 1. It is kept in millionths.
///
/// # Examples
///
/// ```
/// # const PROMISE: windlass::Promise = unsafe { windlass::Promise::no_thread_local_across_waits() };
/// use std::io::ErrorKind;
/// use windlass::fs;
/// use windlass::sim::{Disk, Sim};
///
/// Sim::new(PROMISE).seeds(5).disk(Disk::new().capacity(64 << 10)).run(|| {
///     let e = fs::write("/log", vec![7; 100 << 10]).unwrap_err();
///     assert_eq!(e.kind(), ErrorKind::StorageFull);
/// })?;
/// # Ok::<(), windlass::sim::Failure>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "settings do nothing until they are given to a simulation"]
pub struct Disk(pub(super) Quality);

impl Default for Disk {
    fn default() -> Disk {
        Disk::new()
    }
}

/// A probability in millionths.
#[track_caller]
fn millionths(probability: f64) -> u32 {
    assert!(
        (0.0..=1.0).contains(&probability),
        "a probability lies between 0 and 1: {probability}"
    );
    (probability * 1e6).round() as u32
}

#[track_caller]
fn in_order(range: RangeInclusive<Duration>) -> RangeInclusive<Duration> {
    assert!(
        range.start() <= range.end(),
        "the shortest time comes first: {range:?}"
    );
    range
}

impl Disk {
    /// The default settings.
    pub fn new() -> Disk {
        Disk(Quality::default())
    }

    /// Sets how many bytes there is room for. A file takes whole pages of 4096 bytes for what was
    /// written, and 256 bytes; a directory takes one page more. When the disk is full, a write is
    /// short, and the next one fails with `StorageFull` (ENOSPC).
    pub fn capacity(mut self, bytes: u64) -> Disk {
        self.0.capacity = bytes;
        self
    }

    /// Sets the time that a read takes whose bytes are not in the page cache, and a read or write
    /// with `O_DIRECT`. It is drawn between the two.
    ///
    /// # Panics
    ///
    /// If the first is longer than the second.
    #[track_caller]
    pub fn transfer_time(mut self, between: RangeInclusive<Duration>) -> Disk {
        self.0.transfer_time = in_order(between);
        self
    }

    /// Sets the time that a sync takes if there is something to write. It is drawn between the two.
    ///
    /// # Panics
    ///
    /// If the first is longer than the second.
    #[track_caller]
    pub fn sync_time(mut self, between: RangeInclusive<Duration>) -> Disk {
        self.0.sync_time = in_order(between);
        self
    }

    /// Sets the probability with which a read of a file fails with EIO.
    ///
    /// # Panics
    ///
    /// If it is no probability.
    #[track_caller]
    pub fn read_errors(mut self, probability: f64) -> Disk {
        self.0.read_errors = millionths(probability);
        self
    }

    /// Sets the probability with which a write, or a change of a name or an attribute, fails with EIO
    /// and does nothing.
    ///
    /// # Panics
    ///
    /// If it is no probability.
    #[track_caller]
    pub fn write_errors(mut self, probability: f64) -> Disk {
        self.0.write_errors = millionths(probability);
        self
    }

    /// Sets the probability with which a sync fails with EIO. As in Linux, each open file gets the
    /// error once, and the pages count as written: the next sync succeeds, although some of them are
    /// not on the disk. Some still have their new bytes when they are read, until the power goes.
    ///
    /// # Panics
    ///
    /// If it is no probability.
    #[track_caller]
    pub fn sync_errors(mut self, probability: f64) -> Disk {
        self.0.sync_errors = millionths(probability);
        self
    }

    /// Sets the probability with which a read returns fewer bytes than there are.
    ///
    /// # Panics
    ///
    /// If it is no probability.
    #[track_caller]
    pub fn short_reads(mut self, probability: f64) -> Disk {
        self.0.short_reads = millionths(probability);
        self
    }

    /// Sets the probability with which a write takes fewer bytes than it is given.
    ///
    /// # Panics
    ///
    /// If it is no probability.
    #[track_caller]
    pub fn short_writes(mut self, probability: f64) -> Disk {
        self.0.short_writes = millionths(probability);
        self
    }
}

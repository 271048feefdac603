//! The disk of a simulated machine: its settings while a run goes on, and the loss of its power.
//!
//! Inside a simulation `windlass::fs` works on a disk in memory. It begins with the directories `/`
//! and `/tmp`, and is as fast and as reliable as its settings say ([`Disk`], given to
//! [`Sim::disk`](super::Sim::disk)). As on a real machine, a write goes to the page cache; only
//! `sync_all` and `sync_data` bring it to the disk, and a new name needs a sync of its directory,
//! opened with [`File::open`](crate::fs::File::open).
//!
//! The model, and which file systems behave so: docs/decisions/simulation.md.

pub use crate::fs::memory::settings::Disk;

use crate::fs::memory::drive;
use crate::sched::wait::park;

const OUTSIDE: &str =
    "windlass: this concerns the disk of a simulation: call it in the closure of sim::check";

/// Changes the settings of the caller's disk.
///
/// # Blocking
///
/// Never.
///
/// # Panics
///
/// Outside of a simulation.
///
/// # Examples
///
/// ```
/// use std::io::ErrorKind;
/// use windlass::fs;
/// use windlass::sim::disk;
///
/// windlass::sim::check(|| {
///     fs::write("/full", [1; 4096]).unwrap();
///     disk::set(disk::settings().capacity(0)); // from now on there is no room
///     assert_eq!(fs::write("/more", [1]).unwrap_err().kind(), ErrorKind::StorageFull);
///     assert!(fs::read("/full").is_ok());
/// });
/// ```
#[track_caller]
pub fn set(settings: Disk) {
    assert!(
        drive::set(drive::current_host(), settings).is_some(),
        "{OUTSIDE}"
    );
}

/// The settings of the caller's disk.
///
/// # Blocking
///
/// Never.
///
/// # Panics
///
/// Outside of a simulation.
///
/// # Examples
///
/// See [`set`].
#[track_caller]
pub fn settings() -> Disk {
    drive::settings(drive::current_host()).expect(OUTSIDE)
}

/// Cuts the power of the caller's disk, and turns it on again.
///
/// All that was synced is there afterwards. The rest is lost, kept, or in part both, by the seed.
/// What a program has open is dead: each call on it fails with EIO. Locks are gone. Goroutines go
/// on: a test ends those of the machine itself, and then starts its program again.
///
/// # Blocking
///
/// Never.
///
/// # Panics
///
/// Outside of a simulation.
///
/// # Examples
///
/// ```
/// use std::io::Write;
/// use windlass::fs::{self, File};
/// use windlass::sim::disk;
///
/// windlass::sim::check(|| {
///     let mut file = File::create("/log").unwrap();
///     file.write_all(b"begin ").unwrap();
///     file.sync_all().unwrap(); // the bytes
///     File::open("/").unwrap().sync_all().unwrap(); // the name
///     file.write_all(b"end").unwrap();
///     disk::crash();
///     let left = fs::read("/log").unwrap();
///     assert!(left.starts_with(b"begin "));
///     assert!(left.len() <= 9);
///     file.write_all(b"more").unwrap_err();
/// });
/// ```
#[track_caller]
pub fn crash() {
    park::perturb();
    assert!(
        drive::crash_disk(drive::current_host()).is_some(),
        "{OUTSIDE}"
    );
}

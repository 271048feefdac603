//! The settings of a simulated disk, and the faults that change them for a while.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::net::faults::Trouble;

/// How much longer everything takes on a slow disk.
const SLOWER: u32 = 100;
/// How often a call on a failing disk fails, in millionths.
const FAILING: u32 = 500_000;

/// The properties of a disk. Probabilities are in millionths.
#[derive(Clone, Debug)]
pub struct Quality {
    /// Its size in bytes.
    pub capacity: u64,
    /// How long a transfer from or to the disk takes.
    pub transfer_time: RangeInclusive<Duration>,
    /// How long a sync takes.
    pub sync_time: RangeInclusive<Duration>,
    /// A read fails.
    pub read_errors: u32,
    /// A call that writes fails.
    pub write_errors: u32,
    /// A sync fails.
    pub sync_errors: u32,
    /// A read gets a part of the bytes only.
    pub short_reads: u32,
    /// A write takes a part of the bytes only.
    pub short_writes: u32,
}

impl Default for Quality {
    /// A disk without an end that never fails.
    fn default() -> Quality {
        Quality {
            capacity: u64::MAX,
            transfer_time: Duration::from_micros(100)..=Duration::from_micros(100),
            sync_time: Duration::from_millis(1)..=Duration::from_millis(10),
            read_errors: 0,
            write_errors: 0,
            sync_errors: 0,
            short_reads: 0,
            short_writes: 0,
        }
    }
}

/// The settings of a disk, and what is wrong with it for a while.
#[derive(Debug)]
pub(super) struct Settings {
    chosen: Quality,
    now: Quality,
    n_slow: u32,
    n_failing: u32,
    n_full: u32,
}

impl Settings {
    pub(super) fn new(chosen: Quality) -> Settings {
        Settings {
            now: chosen.clone(),
            chosen,
            n_slow: 0,
            n_failing: 0,
            n_full: 0,
        }
    }

    /// The settings that hold now.
    pub(super) fn now(&self) -> &Quality {
        &self.now
    }

    pub(super) fn chosen(&self) -> Quality {
        self.chosen.clone()
    }

    pub(super) fn set(&mut self, chosen: Quality) {
        self.chosen = chosen;
        self.refresh();
    }

    /// A fault begins or ends. There may be several of a kind at a time.
    pub(super) fn note(&mut self, trouble: Trouble, begins: bool) {
        let n = match trouble {
            Trouble::Slow => &mut self.n_slow,
            Trouble::Failing => &mut self.n_failing,
            Trouble::Full => &mut self.n_full,
        };
        *n = if begins { *n + 1 } else { n.saturating_sub(1) };
        self.refresh();
    }

    fn refresh(&mut self) {
        let mut now = self.chosen.clone();
        if self.n_slow > 0 {
            for between in [&mut now.transfer_time, &mut now.sync_time] {
                let slower = |time: &Duration| time.saturating_mul(SLOWER);
                *between = slower(between.start())..=slower(between.end());
            }
        }
        if self.n_failing > 0 {
            for errors in [
                &mut now.read_errors,
                &mut now.write_errors,
                &mut now.sync_errors,
            ] {
                *errors = FAILING.max(*errors);
            }
        }
        if self.n_full > 0 {
            now.capacity = 0;
        }
        self.now = now;
    }
}

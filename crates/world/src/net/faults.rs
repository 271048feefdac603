//! Which faults are drawn from the seed, and how often.

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Two hosts cannot reach each other.
    Partition,
    /// One host cannot reach another.
    OneWay,
    /// The connections between two hosts are reset.
    Resets,
    /// A host loses its power.
    Crash,
    /// A host stands still.
    Pause,
    /// Something is wrong with the disk of a host.
    Disk(Trouble),
}

pub(super) const KINDS: [Kind; 8] = [
    Kind::Partition,
    Kind::OneWay,
    Kind::Resets,
    Kind::Crash,
    Kind::Pause,
    Kind::Disk(Trouble::Slow),
    Kind::Disk(Trouble::Failing),
    Kind::Disk(Trouble::Full),
];

/// The trouble of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Everything takes longer.
    Slow,
    /// Calls fail.
    Failing,
    /// There is no room.
    Full,
}

impl Trouble {
    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Trouble::Slow => "slow",
            Trouble::Failing => "failing",
            Trouble::Full => "full",
        }
    }
}

/// An event of a host's disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskEvent {
    /// The power goes.
    PowerLoss,
    /// Something is wrong from now on.
    Begins(Trouble),
    /// It is over.
    Ends(Trouble),
}

/// A fault that lasts for some time.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
    Cut {
        from: u32,
        to: u32,
        is_both: bool,
    },
    /// The host lost its power, for the `life`-th time.
    Down {
        host: u32,
        life: u32,
    },
    Paused {
        host: u32,
    },
    Disk {
        host: u32,
        trouble: Trouble,
    },
}

/// Settings, and when the next fault of each kind comes.
#[derive(Clone, Debug)]
pub struct Faults {
    /// The mean time between two faults of a kind; 0 for none. By the place in `KINDS`.
    pub(super) every_ns: [u64; KINDS.len()],
    /// The most that a fault lasts.
    pub at_most_ns: u64,
    /// No fault begins later than so long after the beginning of the run.
    pub until_ns: u64,
    pub(super) next_ns: [Option<u64>; KINDS.len()],
}

impl Default for Faults {
    fn default() -> Faults {
        Faults {
            every_ns: [0; KINDS.len()],
            at_most_ns: 10_000_000_000,
            until_ns: u64::MAX,
            next_ns: [None; KINDS.len()],
        }
    }
}

impl Faults {
    /// Sets the mean time between two faults of a kind; 0 for none.
    pub fn set(&mut self, kind: Kind, every_ns: u64) {
        let at = KINDS.iter().position(|&other| other == kind);
        if let Some(at) = at {
            self.every_ns[at] = every_ns;
        }
    }
}

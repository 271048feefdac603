//! Which faults are drawn from the seed, and how often.

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Partition,
    OneWay,
    Resets,
    Crash,
    Pause,
}

pub(super) const KINDS: [Kind; 5] = [
    Kind::Partition,
    Kind::OneWay,
    Kind::Resets,
    Kind::Crash,
    Kind::Pause,
];

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
}

/// Settings, and when the next fault of each kind comes.
#[derive(Clone, Debug)]
pub(crate) struct Faults {
    /// The mean time between two faults of a kind; 0 for none. By the place in `KINDS`.
    pub(super) every_ns: [u64; KINDS.len()],
    /// The most that a fault lasts.
    pub(crate) at_most_ns: u64,
    pub(super) next_ns: [Option<u64>; KINDS.len()],
}

impl Default for Faults {
    fn default() -> Faults {
        Faults {
            every_ns: [0; KINDS.len()],
            at_most_ns: 10_000_000_000,
            next_ns: [None; KINDS.len()],
        }
    }
}

impl Faults {
    /// Sets the mean time between two faults of a kind; 0 for none.
    pub(crate) fn set(&mut self, kind: Kind, every_ns: u64) {
        let at = KINDS.iter().position(|&other| other == kind);
        if let Some(at) = at {
            self.every_ns[at] = every_ns;
        }
    }
}

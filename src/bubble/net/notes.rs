//! What happens to hosts, links and disks in a run, for the text of a failure and for traces.

use super::faults::Trouble;

/// Something that has happened. Hosts are named by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Crash(u32),
    Restart(u32),
    Pause(u32),
    Resume(u32),
    /// The disk alone loses its power.
    DiskPowerLoss(u32),
    DiskTrouble {
        host: u32,
        trouble: Trouble,
        begins: bool,
    },
    /// A partition begins or ends.
    Partition {
        from: u32,
        to: u32,
        is_both: bool,
        begins: bool,
    },
    Reset {
        a: u32,
        b: u32,
    },
    /// From now on packets from one host to another are lost, or no longer: all partitions together.
    Cut {
        from: u32,
        to: u32,
        is_cut: bool,
    },
}

/// A note, and when that was.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Note {
    pub(crate) step: u64,
    pub(crate) at_ns: u64,
    pub(crate) what: What,
}

/// The notes of a run, if it keeps any.
#[derive(Debug, Default)]
pub(super) struct Notes {
    pub(super) list: Option<Vec<Note>>,
    /// The directions that were cut at the last note about links.
    pub(super) cuts: Vec<(u32, u32)>,
}

//! Events of hosts, links and disks in a run, for the text of a failure and for traces.

use super::faults::Trouble;

/// Something that has happened. Hosts are named by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Incident {
    /// A host loses its power.
    Crash(u32),
    /// A host is started again.
    Restart(u32),
    /// A host stands still.
    Pause(u32),
    /// A host goes on.
    Resume(u32),
    /// The disk alone loses its power.
    DiskPowerLoss(u32),
    /// Something is wrong with a disk, or not any more.
    DiskTrouble {
        /// The host of the disk.
        host: u32,
        /// The kind of trouble.
        trouble: Trouble,
        /// Whether it begins.
        begins: bool,
    },
    /// A partition begins or ends.
    Partition {
        /// The host that cannot send.
        from: u32,
        /// The host that it cannot reach.
        to: u32,
        /// Whether the same holds in the other direction.
        is_both: bool,
        /// Whether it begins.
        begins: bool,
    },
    /// The connections between two hosts are reset.
    Reset {
        /// One of the hosts.
        a: u32,
        /// The other one.
        b: u32,
    },
    /// From now on packets from one host to another are lost, or no longer: all partitions together.
    Cut {
        /// The host that sends.
        from: u32,
        /// The host that receives.
        to: u32,
        /// Whether nothing comes through.
        is_cut: bool,
    },
}

/// A note, and when that was.
#[derive(Clone, Copy, Debug)]
pub struct Note {
    /// The number of steps before it.
    pub step: u64,
    /// The virtual time.
    pub at_ns: u64,
    /// The event.
    pub incident: Incident,
}

/// The notes of a run, if it keeps any.
#[derive(Debug, Default)]
pub(super) struct Notes {
    pub(super) list: Option<Vec<Note>>,
    /// The directions that were cut at the last note about links.
    pub(super) cuts: Vec<(u32, u32)>,
}

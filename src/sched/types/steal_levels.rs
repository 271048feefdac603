//! The other Ps as a thief sees them: by distance, and only those in use.
#![allow(unsafe_code)]

use std::cell::{Cell, UnsafeCell};

use windlass_topology::LevelKind;

/// Victims of equal distance.
#[derive(Clone, Debug)]
pub(crate) struct StealLevel {
    pub(crate) kind: LevelKind,
    pub(crate) distance: u32,
    pub(crate) victims: Vec<usize>,
    /// The nodes of the victims.
    pub(crate) nodes: Vec<usize>,
    /// Victim of the last successful steal; `usize::MAX` at first. Owner only.
    pub(crate) last: Cell<usize>,
}

/// The other Ps, by distance.
#[derive(Debug)]
pub(crate) struct Levels {
    all: Vec<StealLevel>,
    /// The levels, limited to Ps in use: a thief that may use two CPUs of a large machine does not
    /// probe hundreds of Ps without an M.
    live: UnsafeCell<Vec<StealLevel>>,
}

impl Levels {
    pub(crate) fn new(all: Vec<StealLevel>) -> Levels {
        Levels {
            all,
            live: UnsafeCell::default(),
        }
    }

    /// All other Ps, in use or not.
    pub(crate) fn all(&self) -> &[StealLevel] {
        &self.all
    }

    /// Limits the victims to Ps in use. Before the first call there are none.
    ///
    /// # Safety
    ///
    /// The world is stopped and the caller is sysmon; or there is no run, and none begins.
    pub(crate) unsafe fn keep(
        &self,
        is_in_use: impl Fn(usize) -> bool,
        node_of: impl Fn(usize) -> usize,
    ) {
        let of_those = |level: &StealLevel| {
            let victims = level.victims.iter().copied().filter(|&i| is_in_use(i));
            StealLevel::new(level.kind, level.distance, victims.collect(), &node_of)
        };
        let live = self.all.iter().map(of_those);
        let live = live.filter(|level| !level.victims.is_empty()).collect();
        // SAFETY: by this function's contract no other thread reads it meanwhile.
        unsafe { *self.live.get() = live };
    }
}

impl std::ops::Deref for Levels {
    type Target = [StealLevel];
    #[inline]
    fn deref(&self) -> &[StealLevel] {
        // SAFETY: it is written only while there is no reader.
        unsafe { &*self.live.get() }
    }
}

impl StealLevel {
    pub(crate) fn new(
        kind: LevelKind,
        distance: u32,
        victims: Vec<usize>,
        node_of: impl Fn(usize) -> usize,
    ) -> StealLevel {
        let mut nodes: Vec<_> = victims.iter().map(|&victim| node_of(victim)).collect();
        nodes.sort_unstable();
        nodes.dedup();
        StealLevel {
            kind,
            distance,
            victims,
            nodes,
            last: Cell::new(usize::MAX),
        }
    }
}

/// Number of steal levels that the metrics distinguish.
pub(crate) const N_LEVELS: usize = 5;

pub(crate) fn level_idx(kind: LevelKind) -> usize {
    match kind {
        LevelKind::Smt => 0,
        LevelKind::L2 => 1,
        LevelKind::L3 => 2,
        LevelKind::Node => 3,
        LevelKind::Remote => 4,
    }
}

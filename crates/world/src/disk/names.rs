//! Changes of names that may not be on the disk yet, and which of them need which.
//!
//! A change waits in memory until a sync of its directory. When the power goes, any of those that
//! wait may be on the disk: file systems write directories in different orders. But two changes of
//! the same name, or of the same file, keep their order, and a rename is there as a whole or not at
//! all: those promises every file system keeps that programs rely on. Directories that move keep
//! their order as well, since otherwise one could end up below itself.

use std::collections::BTreeSet;
use std::ffi::OsString;

use super::inode::Ino;

/// A place for a name: a directory, and a name in it.
pub(super) type Place = (Ino, OsString);

#[derive(Clone, Debug)]
pub(super) enum NameChange {
    Add {
        at: Place,
        ino: Ino,
    },
    Remove {
        at: Place,
        ino: Ino,
    },
    Move {
        from: Place,
        to: Place,
        ino: Ino,
        /// The file that had the name before.
        replaced: Option<Ino>,
        is_directory: bool,
    },
}

/// A change of names.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) id: u64,
    pub(super) what: NameChange,
}

impl Change {
    pub(super) fn places(&self) -> impl Iterator<Item = &Place> {
        let (one, other) = match &self.what {
            NameChange::Add { at, .. } | NameChange::Remove { at, .. } => (at, None),
            NameChange::Move { from, to, .. } => (from, Some(to)),
        };
        std::iter::once(one).chain(other)
    }

    /// The files whose names it changes.
    pub(super) fn files(&self) -> impl Iterator<Item = Ino> {
        let (ino, replaced) = match self.what {
            NameChange::Add { ino, .. } | NameChange::Remove { ino, .. } => (ino, None),
            NameChange::Move { ino, replaced, .. } => (ino, replaced),
        };
        std::iter::once(ino).chain(replaced)
    }

    fn moves_directory(&self) -> bool {
        matches!(
            self.what,
            NameChange::Move {
                is_directory: true,
                ..
            }
        )
    }
}

/// The names that some changes concern.
#[derive(Debug, Default)]
struct Concerned<'a> {
    places: BTreeSet<&'a Place>,
    files: BTreeSet<Ino>,
    moves_directory: bool,
}

impl<'a> Concerned<'a> {
    fn add(&mut self, change: &'a Change) {
        self.places.extend(change.places());
        self.files.extend(change.files());
        self.moves_directory |= change.moves_directory();
    }

    fn has(&self, change: &Change) -> bool {
        change.places().any(|place| self.places.contains(place))
            || change.files().any(|ino| self.files.contains(&ino))
            || self.moves_directory && change.moves_directory()
    }
}

/// The changes for which `is_wanted`, and all that must be on the disk before them.
pub(super) fn with_needed(
    changes: &[Change],
    is_wanted: impl Fn(&Change) -> bool,
) -> BTreeSet<u64> {
    let mut chosen = BTreeSet::new();
    let mut concerned = Concerned::default();
    for change in changes.iter().rev() {
        if concerned.has(change) || is_wanted(change) {
            concerned.add(change);
            chosen.insert(change.id);
        }
    }
    chosen
}

/// The changes that are on the disk if those for which `is_lost` are not: without those that need a
/// lost one.
pub(super) fn without_lost(changes: &[Change], mut is_lost: impl FnMut() -> bool) -> BTreeSet<u64> {
    let mut chosen = BTreeSet::new();
    let mut lost = Concerned::default();
    for change in changes {
        if lost.has(change) || is_lost() {
            lost.add(change);
        } else {
            chosen.insert(change.id);
        }
    }
    chosen
}

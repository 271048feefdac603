//! Files, directories and symbolic links of a simulated disk.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::SystemTime;

use super::content::Content;
use super::errno::{S_IFDIR, S_IFLNK, S_IFREG};

/// The number of a file.
pub type Ino = u64;

/// The kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A file with bytes.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
}

impl FileKind {
    /// The bits of the type in `st_mode`.
    pub fn bits(self) -> u32 {
        match self {
            FileKind::Regular => S_IFREG,
            FileKind::Directory => S_IFDIR,
            FileKind::Symlink => S_IFLNK,
        }
    }
}

/// The attributes that `chmod`, `chown` and `utimensat` change.
#[derive(Clone, Debug)]
pub struct Attributes {
    /// Permissions only.
    pub mode: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The time of the last access.
    pub accessed: SystemTime,
    /// The time of the last change of the bytes.
    pub modified: SystemTime,
    /// The time of the last change of anything.
    pub changed: SystemTime,
    /// The time at which it was made.
    pub created: SystemTime,
    /// Counts the changes: time may stand still between two.
    pub version: u64,
}

impl Attributes {
    /// Notes that they have changed.
    pub fn touch(&mut self, now: SystemTime) {
        self.changed = now;
        self.version += 1;
    }
}

/// The metadata of a file.
#[derive(Clone, Debug)]
pub struct Stat {
    /// Its kind.
    pub kind: FileKind,
    /// The number of the disk.
    pub device: u64,
    /// The number of the file.
    pub ino: Ino,
    /// How many names it has.
    pub n_links: u64,
    /// Its length in bytes.
    pub size: u64,
    /// Bytes of the disk that it takes.
    pub allocated: u64,
    /// The attributes that calls may change.
    pub attributes: Attributes,
}

/// The names in a directory.
#[derive(Debug)]
pub struct Directory {
    pub(super) entries: BTreeMap<OsString, Ino>,
    /// The values that are on the disk.
    pub(super) on_disk: BTreeMap<OsString, Ino>,
    pub(super) parent: Ino,
}

/// The contents of a file.
#[derive(Debug)]
pub enum Body {
    /// Bytes.
    Regular(Content),
    /// Names.
    Directory(Directory),
    /// The path that a link leads to.
    Symlink(PathBuf),
}

/// A file, directory or symbolic link.
#[derive(Debug)]
pub struct Inode {
    /// Its contents.
    pub body: Body,
    /// The attributes that programs see.
    pub attributes: Attributes,
    /// The values that are on the disk.
    pub attributes_on_disk: Attributes,
    /// How many names programs see.
    pub(super) n_links: u32,
    /// How many names are on the disk.
    pub(super) n_links_on_disk: u32,
    /// How many open files there are of it.
    pub n_open: u32,
    /// How many changes of names that are not on the disk yet concern it.
    pub(super) n_changes: u32,
    /// How many syncs have failed.
    pub n_errors: u64,
}

impl Inode {
    pub(super) fn new(body: Body, mode: u32, now: SystemTime) -> Inode {
        let attributes = Attributes {
            mode,
            uid: 0,
            gid: 0,
            accessed: now,
            modified: now,
            changed: now,
            created: now,
            version: 0,
        };
        Inode {
            body,
            attributes_on_disk: attributes.clone(),
            attributes,
            n_links: 0,
            n_links_on_disk: 0,
            n_open: 0,
            n_changes: 0,
            n_errors: 0,
        }
    }

    pub(super) fn directory(parent: Ino, mode: u32, now: SystemTime) -> Inode {
        let directory = Directory {
            entries: BTreeMap::new(),
            on_disk: BTreeMap::new(),
            parent,
        };
        Inode::new(Body::Directory(directory), mode, now)
    }

    pub(super) fn kind(&self) -> FileKind {
        match self.body {
            Body::Regular(_) => FileKind::Regular,
            Body::Directory(_) => FileKind::Directory,
            Body::Symlink(_) => FileKind::Symlink,
        }
    }

    pub(super) fn is_directory(&self) -> bool {
        self.kind() == FileKind::Directory
    }

    /// Its length in bytes.
    pub fn size(&self) -> u64 {
        match &self.body {
            Body::Regular(content) => content.size(),
            Body::Directory(_) => 4096,
            Body::Symlink(target) => target.as_os_str().len() as u64,
        }
    }

    pub(super) fn allocated(&self) -> u64 {
        match &self.body {
            Body::Regular(content) => content.allocated(),
            Body::Directory(_) => 4096,
            Body::Symlink(_) => 0,
        }
    }

    /// Notes that the bytes, or the names in it, have changed.
    pub fn touch(&mut self, now: SystemTime) {
        self.attributes.modified = now;
        self.attributes.touch(now);
    }

    /// Nothing names it, on the disk or in memory, and no program has it open.
    pub(super) fn is_garbage(&self) -> bool {
        self.n_links == 0 && self.n_links_on_disk == 0 && self.n_open == 0 && self.n_changes == 0
    }
}

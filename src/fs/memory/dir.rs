//! The entries of a directory of a simulated disk.

use std::ffi::OsString;
use std::fs::FileType;
use std::io;
use std::path::{Path, PathBuf};

use windlass_world::disk::inode::FileKind;
use windlass_world::disk::metadata::{InMemory, file_type};

use super::sim_disk::SimDisk;
use crate::loom::native::Arc;

#[derive(Debug)]
pub(crate) struct EntriesInMemory {
    disk: Arc<SimDisk>,
    directory: PathBuf,
    entries: std::vec::IntoIter<(OsString, u64, FileKind)>,
}

impl EntriesInMemory {
    pub(crate) fn new(disk: Arc<SimDisk>, path: &Path) -> io::Result<EntriesInMemory> {
        Ok(EntriesInMemory {
            entries: disk.read_dir(path)?.into_iter(),
            directory: path.to_owned(),
            disk,
        })
    }
}

impl Iterator for EntriesInMemory {
    type Item = EntryInMemory;

    fn next(&mut self) -> Option<EntryInMemory> {
        let (name, ino, kind) = self.entries.next()?;
        Some(EntryInMemory {
            disk: Arc::clone(&self.disk),
            path: self.directory.join(name),
            ino,
            kind,
        })
    }
}

#[derive(Debug)]
pub(crate) struct EntryInMemory {
    disk: Arc<SimDisk>,
    path: PathBuf,
    ino: u64,
    kind: FileKind,
}

impl EntryInMemory {
    pub(crate) fn path(&self) -> PathBuf {
        self.path.clone()
    }

    pub(crate) fn file_name(&self) -> OsString {
        self.path.file_name().unwrap_or_default().to_owned()
    }

    pub(crate) fn metadata(&self) -> io::Result<InMemory> {
        InMemory::new(self.disk.metadata(&self.path, false)?)
    }

    pub(crate) fn file_type(&self) -> io::Result<FileType> {
        file_type(self.kind)
    }

    pub(crate) fn ino(&self) -> u64 {
        self.ino
    }
}

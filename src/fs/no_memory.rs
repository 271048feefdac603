//! In the place of `memory` without the feature `sim`: no file is on a simulated disk.

use std::ffi::OsString;
use std::fs::{self, FileType};
use std::io;
use std::ops::Deref;
use std::path::PathBuf;

use crate::bubble::absent;

absent! { Handle {
    fn is_direct() -> bool;
    fn take_out(&fs::File);
} }

impl Handle {
    pub(crate) fn of_descriptor(_: &fs::File) -> Option<Handle> {
        None
    }
}

absent! { InMemory {} }

/// The methods of the simulated one have the names of these.
impl Deref for InMemory {
    type Target = fs::Metadata;

    fn deref(&self) -> &fs::Metadata {
        match *self {}
    }
}

absent! { EntriesInMemory {} }

impl Iterator for EntriesInMemory {
    type Item = EntryInMemory;

    fn next(&mut self) -> Option<EntryInMemory> {
        match *self {}
    }
}

absent! { EntryInMemory {
    fn path() -> PathBuf;
    fn file_name() -> OsString;
    fn metadata() -> io::Result<InMemory>;
    fn file_type() -> io::Result<FileType>;
    fn ino() -> u64;
} }

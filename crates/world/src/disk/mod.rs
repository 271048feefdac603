//! The files of a simulated disk.
//!
//! A file has a part on the disk and a part that is only in the page cache (`content`) or waits for the journal
//! (`names`). When the power goes, `chance::PowerLoss` decides how much of the second had become part of the first. Errors, and
//! the order in which the reasons for them are looked at, are those of Linux.

pub mod errno;
pub mod chance;
pub mod content;
pub mod inode;
pub mod metadata;
mod names;
pub mod tree;
pub mod settings;
pub mod files;
pub mod recursive;

//! Times for a file. `std::fs::FileTimes` does not say which times it has, so the kernel is asked to
//! set them on a file without a name.

use std::fs::{File, FileTimes};
use std::io;
use std::os::fd::OwnedFd;
use std::time::SystemTime;

use super::inode::Attributes;

/// The times of the last access and of the last change that a file with these attributes has after
/// `new` was set.
pub(super) fn resolve(
    new: FileTimes,
    attributes: &Attributes,
) -> io::Result<(SystemTime, SystemTime)> {
    let file = File::from(OwnedFd::from(io::pipe()?.1));
    let before = FileTimes::new()
        .set_accessed(attributes.accessed)
        .set_modified(attributes.modified);
    file.set_times(before)?;
    file.set_times(new)?;
    let metadata = file.metadata()?;
    Ok((metadata.accessed()?, metadata.modified()?))
}

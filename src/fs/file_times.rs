//! The times that `File::set_times` sets.

use std::fs;

use crate::time::SystemTime;

/// Times to set by [`File::set_times`](super::File::set_times). It has the interface of
/// [`std::fs::FileTimes`].
///
/// # Examples
///
/// See [`File::set_times`](super::File::set_times).
#[derive(Clone, Copy, Debug, Default)]
pub struct FileTimes {
    pub(super) accessed: Option<SystemTime>,
    pub(super) modified: Option<SystemTime>,
}

impl FileTimes {
    /// No time: what is not set here is left as it is.
    #[must_use]
    pub fn new() -> FileTimes {
        FileTimes::default()
    }

    /// With this time of the last access.
    #[must_use]
    pub fn set_accessed(self, time: impl Into<SystemTime>) -> FileTimes {
        let accessed = Some(time.into());
        FileTimes { accessed, ..self }
    }

    /// With this time of the last change.
    #[must_use]
    pub fn set_modified(self, time: impl Into<SystemTime>) -> FileTimes {
        let modified = Some(time.into());
        FileTimes { modified, ..self }
    }
}

impl From<FileTimes> for fs::FileTimes {
    fn from(times: FileTimes) -> fs::FileTimes {
        let mut of_std = fs::FileTimes::new();
        if let Some(time) = times.accessed {
            of_std = of_std.set_accessed(time.into());
        }
        if let Some(time) = times.modified {
            of_std = of_std.set_modified(time.into());
        }
        of_std
    }
}

//! Errors of reading a machine.

use std::{error, fmt, io, path::PathBuf};

/// Why there is no [`Topology`](crate::Topology).
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The hwloc library could not describe the machine.
    Hwloc(String),
    /// The synthetic description is not one that hwloc understands, or is too large.
    Synthetic {
        /// The description as given.
        description: String,
        /// The fault of the description.
        reason: String,
    },
    /// A file or folder could not be read.
    Io {
        /// Which one.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The JSON text is not a recorded machine (feature `json`).
    #[cfg(feature = "json")]
    Json(serde_json::Error),
    /// The parts of the machine contradict one another.
    Invalid(String),
    /// The distance matrix does not fit the machine.
    Distances(String),
    /// A restriction names something the machine lacks, or leaves it without CPUs.
    Restrict(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hwloc(reason) => write!(f, "hwloc failed: {reason}"),
            Self::Synthetic {
                description,
                reason,
            } => write!(
                f,
                "bad synthetic description {description:?}: {reason}; \
                 a good one is \"pack:2 [numa] l3:2 core:4 pu:2\""
            ),
            Self::Io { path, source } => write!(f, "cannot read {}: {source}", path.display()),
            #[cfg(feature = "json")]
            Self::Json(source) => write!(f, "not a recorded machine: {source}"),
            Self::Invalid(reason) => write!(f, "inconsistent machine: {reason}"),
            Self::Distances(reason) => write!(f, "bad distances: {reason}"),
            Self::Restrict(reason) => write!(f, "cannot restrict the machine: {reason}"),
        }
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            #[cfg(feature = "json")]
            Self::Json(source) => Some(source),
            _ => None,
        }
    }
}

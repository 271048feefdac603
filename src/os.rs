//! The modules of `std::os` that have to do with files, sockets and processes. What waits in `std`
//! is windlass's here; all else is `std`'s.
//!
//! # Examples
//!
//! ```
//! use windlass::os::unix::fs::OpenOptionsExt;
//! use windlass::fs::OpenOptions;
//!
//! let null = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open("/dev/null")?;
//! # drop(null);
//! # Ok::<(), std::io::Error>(())
//! ```

pub use std::os::fd;

/// Linux alone: `std::os::linux`.
pub mod linux {
    pub use std::os::linux::fs;

    /// Sockets: `std::os::linux::net`.
    pub mod net {
        pub use crate::net::TcpStreamExt;
        pub use std::os::linux::net::SocketAddrExt;
    }
}

/// Unix systems: `std::os::unix`.
pub mod unix {
    pub use std::os::unix::{ffi, io};

    /// Files: `std::os::unix::fs`.
    ///
    /// The traits are `std`'s, and the types of [`fs`](crate::fs) have them.
    pub mod fs {
        pub use crate::fs::{chown, lchown, symlink};
        pub use std::os::unix::fs::{
            DirBuilderExt, DirEntryExt, FileExt, FileTypeExt, MetadataExt, OpenOptionsExt,
            PermissionsExt, chroot, fchown,
        };
    }

    /// Unix sockets: `std::os::unix::net`, with the names that it has there.
    pub mod net {
        pub use crate::net::{
            UnixDatagram, UnixIncoming as Incoming, UnixListener, UnixSocketAddr as SocketAddr,
            UnixStream,
        };
    }

    /// Processes: `std::os::unix::process`.
    pub mod process {
        pub use crate::process::CommandExt;
        pub use std::os::unix::process::{ExitStatusExt, parent_id};
    }

    /// The traits of all modules: `std::os::unix::prelude`.
    pub mod prelude {
        pub use super::ffi::{OsStrExt, OsStringExt};
        pub use super::fs::{
            DirEntryExt, FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt,
        };
        pub use super::io::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
        pub use super::process::{CommandExt, ExitStatusExt};
    }
}

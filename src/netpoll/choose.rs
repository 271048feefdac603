//! Which poller the Ps of a runtime get: rings, or epoll where io_uring is denied.
//!
//! The environment variable `WINDLASS_IO` decides before anything is tried: `epoll`
//! takes epoll, `uring` takes rings or fails.

use std::ffi::OsStr;
use std::io;

use super::epoll::Epoll;
use super::poller::Poller;
use super::probe;
use super::ring::Features;
use super::ring::Ring;

use crate::loom::native::atomic::{AtomicBool, Ordering};

const VARIABLE: &str = "WINDLASS_IO";

/// What the environment asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    Any,
    Uring,
    Epoll,
}

/// What the Ps of a runtime get: all the same.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Choice {
    Rings(Features),
    Epoll,
}

impl Choice {
    /// A poller of this kind, yet to be opened.
    pub(crate) fn poller(self) -> Poller {
        match self {
            Choice::Rings(features) => Ring::new(features).into(),
            Choice::Epoll => Epoll::new().into(),
        }
    }
}

/// Chooses by what works here.
///
/// # Errors
///
/// - With `require_io_uring`, or if the environment asks for it, what keeps io_uring
///   from working here.
/// - The kernel's when descriptors or memory are short.
pub(crate) fn choose(require_io_uring: bool) -> io::Result<Choice> {
    let wish = wish(std::env::var_os(VARIABLE).as_deref());
    if wish == Wish::Epoll {
        return if require_io_uring {
            Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "cannot use io_uring, which require_io_uring(true) asks for: the environment variable \
                 WINDLASS_IO is epoll: unset it, or do not require io_uring",
            ))
        } else {
            Ok(Choice::Epoll)
        };
    }
    match probe::probe() {
        Err(e) if is_denied(&e) && wish == Wish::Any && !require_io_uring => {
            static TOLD: AtomicBool = AtomicBool::new(false);
            tell_once(
                &TOLD,
                &format!("{e}; epoll is used instead, at a higher cost per operation"),
            );
            Ok(Choice::Epoll)
        }
        probed => probed.map(Choice::Rings),
    }
}

/// Whether io_uring is not to be had here: then epoll most likely is. A process that
/// is out of descriptors has neither.
fn is_denied(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported | io::ErrorKind::OutOfMemory
    )
}

fn wish(value: Option<&OsStr>) -> Wish {
    match value.map(OsStr::as_encoded_bytes) {
        None | Some(b"") => Wish::Any,
        Some(b"uring") => Wish::Uring,
        Some(b"epoll") => Wish::Epoll,
        Some(_) => {
            static TOLD: AtomicBool = AtomicBool::new(false);
            let value = value.unwrap_or_default();
            tell_once(
                &TOLD,
                &format!(
                    "the environment variable {VARIABLE} is {value:?}, which is neither `uring` nor \
                     `epoll`: it is ignored"
                ),
            );
            Wish::Any
        }
    }
}

/// Writes a line to stderr, the first time in this process.
#[allow(
    clippy::print_stderr,
    reason = "nobody asked, so there is no one to return it to"
)]
fn tell_once(told: &AtomicBool, what: &str) {
    if !told.swap(true, Ordering::Relaxed) {
        eprintln!("windlass: {what}");
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_environment_is_understood() {
        let said = |value: &str| wish(Some(OsStr::new(value)));
        assert_eq!(wish(None), Wish::Any);
        assert_eq!(said(""), Wish::Any);
        assert_eq!(said("uring"), Wish::Uring);
        assert_eq!(said("epoll"), Wish::Epoll);
        assert_eq!(said("io_uring"), Wish::Any);
        assert_eq!(said("EPOLL"), Wish::Any);
    }

    #[test]
    fn only_what_keeps_io_uring_away_leads_to_epoll() {
        let denied = |errno| is_denied(&probe::explain_here(&io::Error::from_raw_os_error(errno)));
        for errno in [
            libc::EPERM,
            libc::EACCES,
            libc::ENOSYS,
            libc::EINVAL,
            libc::ENOMEM,
        ] {
            assert!(denied(errno), "{errno}");
        }
        for errno in [libc::EMFILE, libc::ENFILE] {
            assert!(!denied(errno), "{errno}");
        }
    }
}

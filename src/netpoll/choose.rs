//! Chooses the poller of a runtime's Ps: rings, or epoll where io_uring is denied.
//!
//! The environment variable `WINDLASS_IO` takes precedence: `epoll` forces epoll; `uring` forces
//! rings, and an error where they do not work.

use std::ffi::OsStr;
use std::io;

use super::epoll::Epoll;
use super::poller::Poller;
use super::ring::Ring;
use crate::sys::probe;
use crate::sys::probe::Features;
use crate::sys::signal;

use crate::loom::native::atomic::{AtomicBool, Ordering};

const VARIABLE: &str = "WINDLASS_IO";

/// The value of the environment variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    Any,
    Uring,
    Epoll,
}

/// The kind of poller; the same for all Ps of a runtime.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Choice {
    Rings(Features),
    Epoll,
}

impl Choice {
    /// Makes a poller of this kind. It is not open yet.
    pub(crate) fn poller(self) -> Poller {
        match self {
            Choice::Rings(features) => Ring::new(features).into(),
            Choice::Epoll => Epoll::new().into(),
        }
    }
}

/// Chooses what works on this machine.
///
/// # Errors
///
/// - If io_uring is required, by `require_io_uring` or by the environment: the reason why it does
///   not work.
/// - The kernel's error when descriptors or memory are short.
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
            report_once(
                &TOLD,
                &format!("{e}; epoll is used instead, at a higher cost per operation"),
            );
            Ok(Choice::Epoll)
        }
        probed => probed.map(Choice::Rings),
    }
}

/// Whether the error means that io_uring is not available, so that epoll is worth a try. A process
/// that is out of descriptors can open neither.
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
            report_once(
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
fn report_once(reported: &AtomicBool, what: &str) {
    if !reported.swap(true, Ordering::Relaxed) {
        signal::report(what);
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

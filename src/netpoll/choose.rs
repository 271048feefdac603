//! Which poller the Ps of a runtime get: rings, or epoll where io_uring is denied.
//!
//! The environment variable `WINDLASS_IO` decides before anything is tried: `epoll`
//! takes epoll, `uring` takes rings or fails.

use std::ffi::OsStr;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use super::epoll::Epoll;
use super::poller::Poller;
use super::probe;
use super::ring::Ring;

const VARIABLE: &str = "WINDLASS_IO";

/// What the environment asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    Any,
    Uring,
    Epoll,
}

/// Makes a poller for each of `n` Ps: all of a kind.
///
/// # Errors
///
/// - With `require_io_uring`, or if the environment asks for it, what keeps io_uring
///   from working here.
/// - The kernel's when descriptors or memory are short.
pub(crate) fn pollers(n: usize, require_io_uring: bool) -> io::Result<Vec<Poller>> {
    let wish = wish(std::env::var_os(VARIABLE).as_deref());
    if wish == Wish::Epoll {
        return if require_io_uring {
            Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "cannot use io_uring, which require_io_uring(true) asks for: the environment variable \
                 WINDLASS_IO is epoll: unset it, or do not require io_uring",
            ))
        } else {
            epolls(n)
        };
    }
    match rings(n) {
        Err(e) if is_denied(&e) && wish == Wish::Any && !require_io_uring => {
            static TOLD: AtomicBool = AtomicBool::new(false);
            tell_once(
                &TOLD,
                &format!("{e}; epoll is used instead, at a higher cost per operation"),
            );
            epolls(n)
        }
        rings => rings,
    }
}

fn rings(n: usize) -> io::Result<Vec<Poller>> {
    let features = probe::probe()?;
    (0..n)
        .map(|_| Ring::new(features).map(Poller::from))
        .collect::<io::Result<_>>()
        .map_err(|e| probe::explain_here(&e))
}

fn epolls(n: usize) -> io::Result<Vec<Poller>> {
    (0..n)
        .map(|_| Epoll::new().map(Poller::from))
        .collect::<io::Result<_>>()
        .map_err(|e| match e.raw_os_error() {
            Some(libc::EMFILE | libc::ENFILE) => io::Error::new(
                e.kind(),
                format!(
                    "no file descriptor is left for the epoll pollers: raise RLIMIT_NOFILE (ulimit -n) ({e})"
                ),
            ),
            _ => e,
        })
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

    #[test]
    fn pollers_are_all_of_a_kind() {
        assert!(epolls(3).unwrap().iter().all(Poller::is_epoll));
    }
}

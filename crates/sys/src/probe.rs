//! Finds out, once, which io_uring features this kernel and this container allow. Its errors name
//! the likely cause and the remedy.

use std::io;
#[cfg(not(explore))]
use std::os::fd::AsFd;

#[cfg(not(explore))]
use io_uring::{Builder, IoUring, Probe, opcode};
#[cfg(explore)]
use windlass_explorer::{IoUring, RingBuilder as Builder};

#[cfg(not(explore))]
use crate::uring::{send_msg_ring, sync_cancel};

/// Submission entries a P may queue before it must flush.
pub const ENTRIES: u32 = 256;
/// Completions that may be unread before the kernel moves further ones to its overflow list.
pub const COMPLETIONS: u32 = 4096;

/// The abilities of a runtime's rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// Wake a ring by message from any thread (Linux 6.13); else by eventfd.
    pub msg_wake: bool,
    /// Idle waits need not count as waiting for a disk (Linux 6.15).
    pub no_iowait: bool,
}

/// The set-up that every ring of the runtime shares.
pub fn builder() -> Builder {
    let mut b = IoUring::builder();
    b.dontfork()
        .setup_coop_taskrun()
        .setup_taskrun_flag()
        .setup_submit_all()
        .setup_cqsize(COMPLETIONS);
    b
}

/// The explorer simulates a new kernel with all features.
#[cfg(explore)]
#[allow(clippy::unnecessary_wraps, reason = "the real one may fail")]
pub fn probe() -> io::Result<Features> {
    Ok(Features {
        msg_wake: true,
        no_iowait: false,
    })
}

/// Makes a ring as a P does, and reads its features.
///
/// # Errors
///
/// The kernel's kind, with a message that says why io_uring cannot be used here and what to change.
#[cfg(not(explore))]
pub fn probe() -> io::Result<Features> {
    let ring = builder()
        .build(ENTRIES)
        .map_err(|e| explain(&e, &Surroundings::read()))?;
    // An enter with nothing to do: a seccomp filter may deny any of the three system calls.
    ring.submit()
        .map_err(|e| explain(&e, &Surroundings::read()))?;
    let mut probe = Probe::new();
    ring.submitter()
        .register_probe(&mut probe)
        .map_err(|e| explain(&e, &Surroundings::read()))?;
    let needed = [
        ("recv", opcode::Recv::CODE),
        ("send", opcode::Send::CODE),
        ("recvmsg", opcode::RecvMsg::CODE),
        ("sendmsg", opcode::SendMsg::CODE),
        ("accept", opcode::Accept::CODE),
        ("connect", opcode::Connect::CODE),
        ("poll_add", opcode::PollAdd::CODE),
        ("read", opcode::Read::CODE),
        ("write", opcode::Write::CODE),
        ("readv", opcode::Readv::CODE),
        ("writev", opcode::Writev::CODE),
        ("fsync", opcode::Fsync::CODE),
        ("fallocate", opcode::Fallocate::CODE),
        ("openat", opcode::OpenAt::CODE),
    ];
    if let Some((name, _)) = needed.iter().find(|(_, code)| !probe.is_supported(*code)) {
        return Err(unsupported(&format!(
            "this kernel's io_uring lacks the operation {name}"
        )));
    }
    if !ring.params().is_feature_ext_arg() || !ring.params().is_feature_nodrop() {
        return Err(unsupported(
            "this kernel's io_uring lacks timed waits (EXT_ARG) or NODROP",
        ));
    }
    if !can_cancel(&ring) {
        return Err(unsupported(
            "this kernel's io_uring lacks cancelling by register (SYNC_CANCEL)",
        ));
    }
    Ok(Features {
        msg_wake: can_send_msg(&ring),
        no_iowait: ring.params().is_feature_no_iowait(),
    })
}

/// Whether operations can be cancelled from other threads (Linux 6.0): tries to cancel one that
/// does not exist.
#[cfg(not(explore))]
fn can_cancel(ring: &IoUring) -> bool {
    sync_cancel(ring.as_fd(), u64::MAX).is_err_and(|e| e.raw_os_error() == Some(libc::ENOENT))
}

#[cfg(not(explore))]
fn can_send_msg(ring: &IoUring) -> bool {
    send_msg_ring(ring.as_fd(), 0).is_ok()
}

/// The facts that the error message depends on.
#[derive(Debug, Default)]
struct Surroundings {
    /// `/proc/sys/kernel/io_uring_disabled`, from Linux 6.6 on.
    disabled: Option<u32>,
    /// Whether a seccomp filter is on this thread.
    seccomp: bool,
}

impl Surroundings {
    fn read() -> Surroundings {
        let disabled = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled")
            .ok()
            .and_then(|s| s.trim().parse().ok());
        let seccomp = std::fs::read_to_string("/proc/thread-self/status").is_ok_and(|s| {
            s.lines()
                .any(|l| l.strip_prefix("Seccomp:").is_some_and(|v| v.trim() == "2"))
        });
        Surroundings { disabled, seccomp }
    }
}

/// Turns the kernel's error into one that names the remedy.
fn explain(e: &io::Error, around: &Surroundings) -> io::Error {
    let seccomp = "a seccomp filter denies io_uring, as the default profiles of container engines \
                   do: allow io_uring_setup, io_uring_enter and io_uring_register in the profile";
    let (kind, why) = match e.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            let why = match around.disabled {
                Some(n @ 1..) => format!(
                    "the sysctl kernel.io_uring_disabled is {n}: set it to 0, or with 1 run with \
                     CAP_SYS_ADMIN or in the group kernel.io_uring_group"
                ),
                _ if around.seccomp => seccomp.to_owned(),
                _ => "the kernel or a security module denies it: look at the sysctl \
                      kernel.io_uring_disabled, seccomp profiles and SELinux or AppArmor rules"
                    .to_owned(),
            };
            (io::ErrorKind::PermissionDenied, why)
        }
        Some(libc::ENOSYS) if around.seccomp => {
            (io::ErrorKind::Unsupported, format!("the call answers ENOSYS and {seccomp}"))
        }
        Some(libc::ENOSYS) => (
            io::ErrorKind::Unsupported,
            "this kernel was built without io_uring, or a sandbox hides it: use Linux 6.1 or later \
             with CONFIG_IO_URING"
                .to_owned(),
        ),
        Some(libc::EINVAL) => (
            io::ErrorKind::Unsupported,
            "this kernel's io_uring is too old: use Linux 6.1 or later".to_owned(),
        ),
        Some(libc::ENOMEM) => (
            io::ErrorKind::OutOfMemory,
            "the memory for the rings is refused: raise RLIMIT_MEMLOCK (ulimit -l) or the memory \
             cgroup's limit, or ask for fewer processors"
                .to_owned(),
        ),
        Some(libc::EMFILE | libc::ENFILE) => (
            e.kind(),
            "no file descriptor is left for the rings: raise RLIMIT_NOFILE (ulimit -n)".to_owned(),
        ),
        _ => (e.kind(), "the kernel refused the ring".to_owned()),
    };
    io::Error::new(kind, format!("cannot use io_uring: {why} ({e})"))
}

/// Explains an error from making a P's ring.
pub fn explain_here(e: &io::Error) -> io::Error {
    explain(e, &Surroundings::read())
}

#[cfg(not(explore))]
fn unsupported(why: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::Unsupported,
        format!("cannot use io_uring: {why}: use Linux 6.1 or later"),
    )
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn said(errno: i32, disabled: Option<u32>, seccomp: bool) -> (io::ErrorKind, String) {
        let e = explain(
            &io::Error::from_raw_os_error(errno),
            &Surroundings { disabled, seccomp },
        );
        (e.kind(), e.to_string())
    }

    #[test]
    fn each_cause_is_named_with_its_cure() {
        let cases = [
            (libc::EPERM, Some(2), false, "kernel.io_uring_disabled is 2"),
            (libc::EPERM, Some(0), true, "seccomp"),
            (libc::EPERM, None, false, "security module"),
            (libc::ENOSYS, None, true, "seccomp"),
            (libc::ENOSYS, None, false, "CONFIG_IO_URING"),
            (libc::EINVAL, None, false, "too old"),
            (libc::ENOMEM, None, false, "RLIMIT_MEMLOCK"),
            (libc::EMFILE, None, false, "RLIMIT_NOFILE"),
        ];
        for (errno, disabled, seccomp, words) in cases {
            let (_, message) = said(errno, disabled, seccomp);
            assert!(message.starts_with("cannot use io_uring: "), "{message}");
            assert!(message.contains(words), "{message}");
        }
        assert_eq!(
            said(libc::EPERM, Some(1), false).0,
            io::ErrorKind::PermissionDenied
        );
        assert_eq!(
            said(libc::ENOSYS, None, false).0,
            io::ErrorKind::Unsupported
        );
    }
}

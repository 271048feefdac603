//! Which process is at the other end of a Unix socket.
#![allow(unsafe_code)] // a system call that has no safe wrapper in our dependencies

use std::{io, mem, os::fd::AsRawFd as _, os::unix::net::UnixStream};

/// The id of the process that listened, or connected, at the other end; 0 if it is in another PID namespace.
pub(crate) fn pid(stream: &UnixStream) -> io::Result<u32> {
    let mut peer = libc::ucred {
        pid: 0,
        uid: 0,
        gid: 0,
    };
    let mut len = mem::size_of_val(&peer) as libc::socklen_t;
    // SAFETY: the structure is as long as `len` says, and both are valid for writes.
    let result = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut len,
        )
    };
    match result {
        0 => Ok(u32::try_from(peer.pid).unwrap_or(0)),
        _ => Err(io::Error::last_os_error()),
    }
}

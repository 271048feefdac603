//! Descriptors that are sent with a message (`SCM_RIGHTS`): the control part of its header.
#![allow(unsafe_code)]

use std::os::fd::{FromRawFd, OwnedFd};

/// The most descriptors in one message: `SCM_MAX_FD`.
pub const MAX_FDS: usize = 253;

/// Room for the largest message of descriptors, aligned for its header.
#[derive(Debug)]
pub struct Control([u64; CONTROL_WORDS]);

/// `CMSG_SPACE` of [`MAX_FDS`] descriptors and some other small part, in words.
const CONTROL_WORDS: usize = (16 + 4 * MAX_FDS).div_ceil(8) + 8;

impl Control {
    /// An empty one.
    #[allow(clippy::new_without_default, reason = "windlass alone is the caller")]
    pub fn new() -> Control {
        Control([0; CONTROL_WORDS])
    }

    /// Lets a message carry these descriptors, at most [`MAX_FDS`]. The header is of use while this stays.
    pub fn put(&mut self, msg: &mut libc::msghdr, fds: &[i32]) {
        assert!(fds.len() <= MAX_FDS, "too many descriptors");
        let bytes = size_of_val(fds) as u32;
        msg.msg_control = self.0.as_mut_ptr().cast();
        // SAFETY: takes and returns plain numbers; there is room for MAX_FDS.
        msg.msg_controllen = unsafe { libc::CMSG_SPACE(bytes) } as usize;
        // SAFETY: the buffer has room for one header and the descriptors, and is aligned for both.
        unsafe {
            let head = libc::CMSG_FIRSTHDR(&raw const *msg);
            (*head).cmsg_level = libc::SOL_SOCKET;
            (*head).cmsg_type = libc::SCM_RIGHTS;
            (*head).cmsg_len = libc::CMSG_LEN(bytes) as usize;
            let data = libc::CMSG_DATA(head);
            std::ptr::copy_nonoverlapping(fds.as_ptr().cast(), data, bytes as usize);
        }
    }

    /// Lets the kernel write descriptors that come with a message. The header is of use while this stays.
    pub fn give_room(&mut self, msg: &mut libc::msghdr) {
        msg.msg_control = self.0.as_mut_ptr().cast();
        msg.msg_controllen = size_of_val(&self.0);
    }
}

/// The descriptors that the sender sent. Closes those that the kernel added: a pidfd of the sender,
/// where `SO_PASSPIDFD` is set.
///
/// # Safety
///
/// `msg` was filled in by a receive that has just succeeded, and no other code takes its
/// descriptors.
pub unsafe fn received(msg: &libc::msghdr) -> Vec<OwnedFd> {
    /// `SCM_PIDFD` (Linux 6.5). It may hold a negated error number instead.
    const SCM_PIDFD: i32 = 4;
    let mut fds = Vec::new();
    // SAFETY: the kernel writes whole headers, each with as much data as it says.
    unsafe {
        let mut head = libc::CMSG_FIRSTHDR(msg);
        while !head.is_null() {
            let kind = ((*head).cmsg_level, (*head).cmsg_type);
            if let (libc::SOL_SOCKET, libc::SCM_RIGHTS | SCM_PIDFD) = kind {
                let bytes = (*head).cmsg_len - libc::CMSG_LEN(0) as usize;
                let data = libc::CMSG_DATA(head).cast::<i32>();
                for i in 0..bytes / size_of::<i32>() {
                    let fd = data.add(i).read_unaligned();
                    let fd = (fd >= 0).then(|| OwnedFd::from_raw_fd(fd));
                    fds.extend(fd.filter(|_| kind.1 == libc::SCM_RIGHTS));
                }
            }
            head = libc::CMSG_NXTHDR(msg, head);
        }
    }
    fds
}

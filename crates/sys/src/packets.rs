//! Several packets in one system call: `recvmmsg(2)` and `sendmmsg(2)`, each as one attempt.
//!
//! With a segment size the kernel cuts a message into packets (UDP_SEGMENT, Linux 4.18), or joins packets of one
//! sender into a message (UDP_GRO, Linux 5.0).
#![allow(unsafe_code)]

use std::io;
use std::mem::{MaybeUninit, offset_of};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd};

use super::errno::cvt;
use super::raw;

/// The most messages of one call. The kernel's records of them lie on the caller's stack, 4.7 KiB in all.
pub const MAX_MESSAGES: usize = 32;

/// A message to send.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// The bytes of the packet, or of several packets one after another.
    pub bytes: &'a [u8],
    /// The receiver; `None` for the peer that the socket is connected to.
    pub to: Option<SocketAddr>,
    /// The length of each packet but the last one; 0 for one packet.
    pub segment_len: u16,
}

/// A message that was received.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    /// The number of bytes in the buffer.
    pub len: usize,
    /// The sender. `None` if its address is of another family than IPv4 and IPv6.
    pub from: Option<SocketAddr>,
    /// The length of each packet but the last one; `None` for one packet.
    pub segment_len: Option<usize>,
}

/// Room for an address of either family.
type Name = libc::sockaddr_in6;

/// A control message with a size of segments: a `u16` when sent, an `int` when received.
#[repr(C)]
struct Control {
    head: libc::cmsghdr,
    value: [u8; 8],
}

/// The kernel's records of a call. Only those of its messages are written.
struct Records {
    messages: [MaybeUninit<libc::mmsghdr>; MAX_MESSAGES],
    buffers: [MaybeUninit<libc::iovec>; MAX_MESSAGES],
    names: [MaybeUninit<Name>; MAX_MESSAGES],
    controls: [MaybeUninit<Control>; MAX_MESSAGES],
}

impl Records {
    fn new() -> Records {
        Records {
            messages: [const { MaybeUninit::uninit() }; MAX_MESSAGES],
            buffers: [const { MaybeUninit::uninit() }; MAX_MESSAGES],
            names: [const { MaybeUninit::uninit() }; MAX_MESSAGES],
            controls: [const { MaybeUninit::uninit() }; MAX_MESSAGES],
        }
    }

    /// Writes the record of message `i` with a buffer, without an address and a control message.
    fn set(&mut self, i: usize, base: *mut u8, len: usize) -> &mut libc::msghdr {
        let buffer = self.buffers[i].write(libc::iovec {
            iov_base: base.cast(),
            iov_len: len,
        });
        // SAFETY: all-zero is a valid mmsghdr.
        let message = self.messages[i].write(unsafe { std::mem::zeroed() });
        message.msg_hdr.msg_iov = buffer;
        message.msg_hdr.msg_iovlen = 1;
        &mut message.msg_hdr
    }
}

/// Receives the messages that are there now, up to [`MAX_MESSAGES`], into the first of these buffers, or
/// `WouldBlock`. Returns their number, and calls `received` for each with its position.
pub fn recv_now<'a>(
    fd: BorrowedFd<'_>,
    bufs: impl Iterator<Item = &'a mut [u8]>,
    mut received: impl FnMut(usize, Received),
) -> io::Result<usize> {
    let mut records = Records::new();
    let mut n = 0;
    for buf in bufs.take(MAX_MESSAGES) {
        let name = records.names[n].as_mut_ptr();
        let control = records.controls[n].as_mut_ptr();
        let header = records.set(n, buf.as_mut_ptr(), buf.len());
        header.msg_name = name.cast();
        header.msg_namelen = size_of::<Name>() as libc::socklen_t;
        header.msg_control = control.cast();
        header.msg_controllen = size_of::<Control>();
        n += 1;
    }
    // SAFETY: the first `n` records are written; they name this frame and the caller's buffers.
    let n = cvt(unsafe {
        let messages = records.messages.as_mut_ptr().cast();
        raw::recvmmsg(fd.as_raw_fd(), messages, n as u32, libc::MSG_DONTWAIT)
    })? as usize;
    for i in 0..n {
        // SAFETY: the kernel has written as many records, and in each as much of the address and of the control
        // message as it says.
        let one = unsafe {
            let message = records.messages[i].assume_init_ref();
            let header = &message.msg_hdr;
            Received {
                len: message.msg_len as usize,
                from: address(records.names[i].as_ptr(), header.msg_namelen as usize),
                segment_len: segment_len(records.controls[i].as_ptr(), header.msg_controllen),
            }
        };
        received(i, one);
    }
    Ok(n)
}

/// Sends the first of these messages, as many as fit now, up to [`MAX_MESSAGES`], or `WouldBlock`. Returns their
/// number. The error of a message after the first is lost: the call for the rest reports it.
pub fn send_now<'a>(
    fd: BorrowedFd<'_>,
    messages: impl Iterator<Item = Outgoing<'a>>,
) -> io::Result<usize> {
    let mut records = Records::new();
    let mut n = 0;
    for message in messages.take(MAX_MESSAGES) {
        let name = records.names[n].as_mut_ptr();
        let control = records.controls[n].as_mut_ptr();
        let bytes = message.bytes;
        let header = records.set(n, bytes.as_ptr().cast_mut(), bytes.len());
        if let Some(to) = message.to {
            header.msg_name = name.cast();
            // SAFETY: there is room for an address of either family.
            header.msg_namelen = unsafe { set_address(name, to) };
        }
        if message.segment_len != 0 && bytes.len() > usize::from(message.segment_len) {
            header.msg_control = control.cast();
            header.msg_controllen = size_of::<Control>();
            let mut value = [0; 8];
            value[..2].copy_from_slice(&message.segment_len.to_ne_bytes());
            // SAFETY: an all-zero header is a valid one, and the record has room for it.
            unsafe {
                let mut head: libc::cmsghdr = std::mem::zeroed();
                head.cmsg_level = libc::SOL_UDP;
                head.cmsg_type = libc::UDP_SEGMENT;
                head.cmsg_len = (offset_of!(Control, value) + size_of::<u16>()) as _;
                control.write(Control { head, value });
            }
        }
        n += 1;
    }
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the first `n` records are written; they name this frame and the caller's bytes, which are only read.
    let n = cvt(unsafe {
        let messages = records.messages.as_mut_ptr().cast();
        raw::sendmmsg(fd.as_raw_fd(), messages, n as u32, flags)
    })?;
    Ok(n as usize)
}

/// Lets the kernel join packets of one sender that are of one length into a message (UDP_GRO).
pub fn set_gro(fd: BorrowedFd<'_>, on: bool) -> io::Result<()> {
    let on = libc::c_int::from(on);
    // SAFETY: the option is an integer, which is valid for reads during the call.
    cvt(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_UDP,
            libc::UDP_GRO,
            (&raw const on).cast(),
            size_of_val(&on) as libc::socklen_t,
        )
    })
    .map(drop)
}

/// The size of segments in a control message of `len` bytes.
///
/// # Safety
///
/// So many bytes are written.
unsafe fn segment_len(control: *const Control, len: usize) -> Option<usize> {
    if len < offset_of!(Control, value) + size_of::<libc::c_int>() {
        return None;
    }
    // SAFETY: by this function's contract, header and value are written.
    let (head, value) = unsafe {
        let value = (&raw const (*control).value).cast::<libc::c_int>();
        (&raw const (*control).head, value.read_unaligned())
    };
    // SAFETY: as above.
    let kind = unsafe { ((*head).cmsg_level, (*head).cmsg_type) };
    let is_size = kind == (libc::SOL_UDP, libc::UDP_GRO);
    usize::try_from(value).ok().filter(|&n| is_size && n > 0)
}

/// The address that the kernel has written, of `len` bytes.
///
/// # Safety
///
/// So many bytes are written, or as many as there is room for.
unsafe fn address(name: *const Name, len: usize) -> Option<SocketAddr> {
    if len < size_of::<libc::sa_family_t>() {
        return None;
    }
    // SAFETY: by this function's contract the family is written, and so is all of an address of this family and
    // length. An IPv4 address is shorter than the room, which is as aligned as it needs.
    unsafe {
        match libc::c_int::from((*name).sin6_family) {
            libc::AF_INET if len >= size_of::<libc::sockaddr_in>() => {
                let name = name.cast::<libc::sockaddr_in>().read();
                let ip = Ipv4Addr::from(u32::from_be(name.sin_addr.s_addr));
                Some(SocketAddrV4::new(ip, u16::from_be(name.sin_port)).into())
            }
            libc::AF_INET6 if len >= size_of::<libc::sockaddr_in6>() => {
                let name = name.read();
                let ip = Ipv6Addr::from(name.sin6_addr.s6_addr);
                let port = u16::from_be(name.sin6_port);
                let (flow, scope) = (name.sin6_flowinfo, name.sin6_scope_id);
                Some(SocketAddrV6::new(ip, port, flow, scope).into())
            }
            _ => None,
        }
    }
}

/// Writes an address, and returns its length.
///
/// # Safety
///
/// `name` is valid for writes.
unsafe fn set_address(name: *mut Name, addr: SocketAddr) -> libc::socklen_t {
    match addr {
        SocketAddr::V4(addr) => {
            let name = name.cast::<libc::sockaddr_in>();
            // SAFETY: by this function's contract; the address is shorter than the room. All-zero is a valid one.
            unsafe {
                let mut v4: libc::sockaddr_in = std::mem::zeroed();
                v4.sin_family = libc::AF_INET as libc::sa_family_t;
                v4.sin_port = addr.port().to_be();
                v4.sin_addr.s_addr = u32::from(*addr.ip()).to_be();
                name.write(v4);
            }
            size_of::<libc::sockaddr_in>() as libc::socklen_t
        }
        SocketAddr::V6(addr) => {
            // SAFETY: by this function's contract; all-zero is a valid address.
            unsafe {
                let mut v6: libc::sockaddr_in6 = std::mem::zeroed();
                v6.sin6_family = libc::AF_INET6 as libc::sa_family_t;
                v6.sin6_port = addr.port().to_be();
                v6.sin6_addr.s6_addr = addr.ip().octets();
                v6.sin6_flowinfo = addr.flowinfo();
                v6.sin6_scope_id = addr.scope_id();
                name.write(v6);
            }
            size_of::<libc::sockaddr_in6>() as libc::socklen_t
        }
    }
}

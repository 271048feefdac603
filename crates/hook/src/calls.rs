//! The functions of libc. Each makes the system call itself where nothing may park.
//!
//! Nothing is allocated before the first attempt, and nothing is read that the kernel has not read
//! before: signal handlers call many of these, and the kernel is to say what it thinks of an address.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_uint, c_void};
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::Duration;

use libc::{
    addrinfo, c_int, clockid_t, fd_set, iovec, mode_t, msghdr, nfds_t, pollfd, sigset_t, sockaddr,
    socklen_t, timespec, timeval, useconds_t,
};
use windlass::foreign::{self, NEVER};

use crate::by_number::syscall as by_number;
use crate::handlers::{__sysv_signal, sigaction, signal, sigset, ssignal, sysv_signal};
use crate::raw::sys;
use crate::wait::{
    self, For, How, Waited, Waits, give, in_section, is_nonblocking, option, parked, set_errno,
    socket_deadline,
};
use crate::{handlers, parks};

/// A function of another type, for the table.
#[derive(Debug)]
pub(crate) struct Address(#[expect(dead_code)] *const ());

// SAFETY: the address of a function, which nothing reads or writes through.
unsafe impl Sync for Address {}

macro_rules! all {
    ($($name:ident)*) => { [$(Address($name as *const ())),*] };
}

/// Keeps the linker from leaving the functions out.
pub(crate) static ALL: [Address; 50] = all![
    read write readv writev recv send recvfrom sendto recvmsg sendmsg connect accept accept4
    poll ppoll select pselect nanosleep clock_nanosleep usleep sleep getaddrinfo
    sendfile sendfile64 splice waitpid wait4 waitid pthread_join
    epoll_wait epoll_pwait epoll_pwait2 recvmmsg sendmmsg flock fsync fdatasync sem_wait by_number
    __read_chk __recv_chk __recvfrom_chk __poll_chk __ppoll_chk
    sigaction signal ssignal sysv_signal __sysv_signal sigset
];

/// Bytes of a size that the kernel counts with.
const MASK_LEN: usize = 8;

/// The most buffers of a call.
const BUFFERS: usize = 1024;

// Reading and writing.

/// # Safety
///
/// As `read(2)`. So it is with each function below: its contract is that of the manual.
#[unsafe(no_mangle)]
unsafe extern "C" fn read(fd: c_int, buf: *mut c_void, len: usize) -> isize {
    give(if may_wait(fd) && len > 0 {
        let iov = one(buf, len);
        // SAFETY: by this function's contract.
        unsafe { read_vectored(fd, &iov) }
    } else {
        // SAFETY: as above.
        unsafe { sys!(libc::SYS_read, fd, buf, len) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn readv(fd: c_int, iov: *const iovec, n: c_int) -> isize {
    // SAFETY: by this function's contract.
    give(match unsafe { buffers(fd, iov, n) } {
        // SAFETY: as above.
        Some(iov) => unsafe { read_vectored(fd, iov) },
        // SAFETY: as above.
        None => unsafe { sys!(libc::SYS_readv, fd, iov, n) },
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn write(fd: c_int, buf: *const c_void, len: usize) -> isize {
    give(if may_wait(fd) && len > 0 {
        let iov = one(buf.cast_mut(), len);
        // SAFETY: by this function's contract.
        unsafe { write_vectored(fd, &iov) }
    } else {
        // SAFETY: as above.
        unsafe { sys!(libc::SYS_write, fd, buf, len) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn writev(fd: c_int, iov: *const iovec, n: c_int) -> isize {
    // SAFETY: by this function's contract.
    give(match unsafe { buffers(fd, iov, n) } {
        // SAFETY: as above.
        Some(iov) => unsafe { write_vectored(fd, iov) },
        // SAFETY: as above.
        None => unsafe { sys!(libc::SYS_writev, fd, iov, n) },
    })
}

/// Whether a read or write may park. The descriptors of the standard streams never do: the locks of
/// `std` and C for them belong to a thread.
fn may_wait(fd: c_int) -> bool {
    fd > 2 && parks()
}

fn one(buf: *mut c_void, len: usize) -> [iovec; 1] {
    [iovec {
        iov_base: buf,
        iov_len: len,
    }]
}

/// The buffers. `None` if nothing may park, or if there is nothing to transfer.
///
/// # Safety
///
/// As `readv(2)`.
unsafe fn buffers<'a>(fd: c_int, iov: *const iovec, n: c_int) -> Option<&'a [iovec]> {
    let n = usize::try_from(n).ok().filter(|&n| n <= BUFFERS)?;
    if !may_wait(fd) || n == 0 || iov.is_null() {
        return None;
    }
    // SAFETY: by this function's contract.
    let iov = unsafe { std::slice::from_raw_parts(iov, n) };
    (total(iov) != 0).then_some(iov)
}

fn total(iov: &[iovec]) -> usize {
    iov.iter()
        .fold(0, |sum, one| sum.saturating_add(one.iov_len))
}

/// The buffers of a message that the kernel has read.
///
/// # Safety
///
/// As `sendmsg(2)`.
unsafe fn buffers_of(msg: &msghdr) -> &[iovec] {
    match msg.msg_iovlen {
        0 => &[],
        // SAFETY: by this function's contract.
        n => unsafe { std::slice::from_raw_parts(msg.msg_iov, n) },
    }
}

/// Takes the first `n` bytes away.
fn advance(iov: &mut [iovec], mut n: usize) -> &mut [iovec] {
    let mut done = 0;
    while done < iov.len() && n >= iov[done].iov_len {
        n -= iov[done].iov_len;
        done += 1;
    }
    let rest = &mut iov[done..];
    if let Some(first) = rest.first_mut() {
        first.iov_base = first.iov_base.wrapping_byte_add(n);
        first.iov_len -= n;
    }
    rest
}

/// A message of these buffers only, which the kernel does not change.
fn message(iov: &[iovec]) -> msghdr {
    // SAFETY: all zeros is a message without address, buffers and control data.
    let mut msg: msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    (msg.msg_iov, msg.msg_iovlen) = (iov.as_ptr().cast_mut(), iov.len());
    msg
}

/// # Safety
///
/// The buffers are valid for writes.
unsafe fn read_vectored(fd: c_int, iov: &[iovec]) -> Result<isize, c_int> {
    let mut msg = message(iov);
    // SAFETY: by this function's contract.
    match unsafe { receive(fd, &raw mut msg, 0) } {
        Err(errno) if is_no_message(errno) && is_pipe(fd) => read_pipe(fd, iov),
        Err(libc::ENOTSOCK) => plain_readv(fd, iov),
        Err(errno) if is_no_message(errno) => in_section(|| plain_readv(fd, iov)),
        done => done,
    }
}

/// # Safety
///
/// The buffers are valid for reads.
unsafe fn write_vectored(fd: c_int, iov: &[iovec]) -> Result<isize, c_int> {
    let msg = message(iov);
    // SAFETY: by this function's contract.
    match unsafe { send_message(fd, &msg, 0) } {
        Err(errno) if is_no_message(errno) && is_pipe(fd) => write_pipe(fd, iov),
        Err(libc::ENOTSOCK) => plain_writev(fd, iov),
        Err(errno) if is_no_message(errno) => in_section(|| plain_writev(fd, iov)),
        done => done,
    }
}

/// Whether it is the error of a message to or from no socket, or of any message in a sandbox that denies them.
fn is_no_message(errno: c_int) -> bool {
    matches!(
        errno,
        libc::ENOTSOCK | libc::ENOSYS | libc::EPERM | libc::EACCES
    )
}

fn plain_readv(fd: c_int, iov: &[iovec]) -> Result<isize, c_int> {
    // SAFETY: the buffers are the caller's, valid as for `readv(2)`.
    unsafe { sys!(libc::SYS_readv, fd, iov.as_ptr(), iov.len()) }
}

fn plain_writev(fd: c_int, iov: &[iovec]) -> Result<isize, c_int> {
    // SAFETY: the buffers are the caller's, valid as for `writev(2)`.
    unsafe { sys!(libc::SYS_writev, fd, iov.as_ptr(), iov.len()) }
}

fn is_pipe(fd: c_int) -> bool {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the kernel writes the structure if the call succeeds.
    let mode: mode_t = unsafe {
        if sys!(libc::SYS_fstat, fd, stat.as_mut_ptr()).is_err() {
            return false;
        }
        stat.assume_init().st_mode
    };
    mode & libc::S_IFMT == libc::S_IFIFO
}

/// The offset that makes `preadv2` and `pwritev2` use the file's position.
const HERE: usize = usize::MAX;

/// Errors of a kernel or a sandbox without attempts at pipes (Linux before 6.4).
fn has_no_attempts(errno: c_int) -> bool {
    matches!(
        errno,
        libc::EOPNOTSUPP | libc::ENOSYS | libc::EPERM | libc::EINVAL
    )
}

fn read_pipe(fd: c_int, iov: &[iovec]) -> Result<isize, c_int> {
    let now = |fd: c_int| {
        let (at, n, flags) = (iov.as_ptr(), iov.len(), libc::RWF_NOWAIT);
        // SAFETY: the buffers are the caller's, valid as for `readv(2)`.
        unsafe { sys!(libc::SYS_preadv2, fd, at, n, HERE, HERE, flags) }
    };
    let first = now(fd);
    if !matches!(first, Err(e) if e == libc::EAGAIN || has_no_attempts(e)) {
        return first;
    }
    if is_nonblocking(fd) {
        return plain_readv(fd, iov);
    }
    parked(|| {
        let mut waits = Waits::new(fd, For::Read);
        // SAFETY: as above, until this returns.
        if let Some(read) = unsafe { foreign::readv(fd, iov, waits.deadline_ns()) } {
            return read.map(usize::cast_signed);
        }
        waits.transfer(|fd, how| match (how, now(fd)) {
            // Another reader may be faster; then this one blocks its thread.
            (How::AtOnce, Err(e)) if has_no_attempts(e) => in_section(|| plain_readv(fd, iov)),
            (How::AtOnce, done) => done,
            (How::Blocking, _) => plain_readv(fd, iov),
        })
    })
}

fn write_pipe(fd: c_int, iov: &[iovec]) -> Result<isize, c_int> {
    let now = |fd: c_int, iov: &[iovec]| {
        let (at, n, flags) = (iov.as_ptr(), iov.len(), libc::RWF_NOWAIT);
        // SAFETY: the buffers are the caller's, valid as for `writev(2)`.
        unsafe { sys!(libc::SYS_pwritev2, fd, at, n, HERE, HERE, flags) }
    };
    let (whole, first) = (total(iov), now(fd, iov));
    match first {
        Ok(n) if n.cast_unsigned() < whole && !is_nonblocking(fd) => {}
        Err(e) if e == libc::EAGAIN || has_no_attempts(e) => {
            if is_nonblocking(fd) {
                return plain_writev(fd, iov);
            }
        }
        done => return done,
    }
    in_parts(fd, iov, first, |waits, left| {
        waits.transfer(|fd, how| match (how, now(fd, left)) {
            (How::AtOnce, Err(e)) if has_no_attempts(e) => {
                // This much fits into a pipe that is ready, unless another writer is faster.
                let part = left.iter().find(|one| one.iov_len > 0);
                let (at, len) = part.map_or((null_mut(), 0), |one| (one.iov_base, one.iov_len));
                in_section(|| plain_writev(fd, &one(at, len.min(libc::PIPE_BUF))))
            }
            (How::AtOnce, done) => done,
            (How::Blocking, _) => plain_writev(fd, left),
        })
    })
}

/// Transfers what is left after the attempt `first`, as a blocking call does: all of it. After an error
/// it returns what was transferred.
fn in_parts(
    fd: c_int,
    iov: &[iovec],
    first: Result<isize, c_int>,
    mut transfer: impl FnMut(&mut Waits, &mut [iovec]) -> Result<isize, c_int>,
) -> Result<isize, c_int> {
    parked(|| {
        let mut waits = Waits::new(fd, For::Write);
        let mut iov = iov.to_vec();
        let mut done = first.unwrap_or(0);
        let mut left = advance(&mut iov, done.cast_unsigned());
        // A message may be empty.
        let mut is_due = first.is_err();
        while is_due || total(left) > 0 {
            is_due = false;
            match transfer(&mut waits, left) {
                Ok(0) => break,
                Ok(n) => {
                    done += n;
                    left = advance(left, n.cast_unsigned());
                }
                Err(_) if done > 0 => break,
                Err(errno) => return Err(errno),
            }
        }
        Ok(done)
    })
}

/// Receives: an attempt, and if that finds nothing, a wait for another one.
///
/// # Safety
///
/// As `recvmsg(2)`.
unsafe fn receive(fd: c_int, msg: *mut msghdr, flags: c_int) -> Result<isize, c_int> {
    // SAFETY: by this function's contract.
    match unsafe { recvmsg_now(fd, msg, flags) } {
        // SAFETY: as above.
        Err(libc::EAGAIN) if !is_nonblocking(fd) => unsafe { wait_and_receive(fd, msg, flags) },
        done => done,
    }
}

/// # Safety
///
/// As `recvmsg(2)`.
unsafe fn recvmsg_now(fd: c_int, msg: *mut msghdr, flags: c_int) -> Result<isize, c_int> {
    // SAFETY: by this function's contract.
    unsafe { sys!(libc::SYS_recvmsg, fd, msg, flags | libc::MSG_DONTWAIT) }
}

/// Receives after an attempt that has found nothing, in blocking mode.
///
/// # Safety
///
/// As `recvmsg(2)`.
#[cold]
unsafe fn wait_and_receive(fd: c_int, msg: *mut msghdr, flags: c_int) -> Result<isize, c_int> {
    parked(|| {
        let mut waits = Waits::new(fd, For::Read);
        // It means nothing to the kernel where records are received. A ring would join them.
        let in_ring = flags & !libc::MSG_WAITALL;
        // SAFETY: by this function's contract.
        if let Some(done) = unsafe { foreign::recvmsg(fd, msg, in_ring, waits.deadline_ns()) } {
            return done.map(usize::cast_signed);
        }
        waits.transfer(|fd, how| match how {
            // SAFETY: as above.
            How::AtOnce => unsafe { recvmsg_now(fd, msg, flags) },
            // SAFETY: as above.
            How::Blocking => unsafe { sys!(libc::SYS_recvmsg, fd, msg, flags) },
        })
    })
}

/// `MSG_WAITALL` for a message without control data, on a stream: `first` is what an attempt says.
///
/// # Safety
///
/// As `recvmsg(2)`.
#[cold]
unsafe fn receive_all(
    fd: c_int,
    msg: &mut msghdr,
    flags: c_int,
    first: Result<isize, c_int>,
) -> Result<isize, c_int> {
    // SAFETY: by this function's contract; the kernel has read them.
    let mut iov = unsafe { buffers_of(msg) }.to_vec();
    let flags = flags & !libc::MSG_WAITALL;
    // The caller's have no meaning.
    let mut came = first.map_or(0, |_| msg.msg_flags);
    let received = parked(|| {
        let mut waits = Waits::new(fd, For::Read);
        let mut done = first.unwrap_or(0);
        let mut left = advance(&mut iov, done.cast_unsigned());
        if waits.hold().is_err() {
            let (mut rest, flags) = (message(left), flags | libc::MSG_WAITALL);
            // SAFETY: by this function's contract.
            let received =
                in_section(|| unsafe { sys!(libc::SYS_recvmsg, fd, &raw mut rest, flags) });
            came |= rest.msg_flags;
            return match received {
                Err(_) if done > 0 => Ok(done),
                received => received.map(|n| done + n),
            };
        }
        while !left.is_empty() {
            // The kernel ends such a call at the urgent mark, and before an error that it has not
            // returned yet.
            // The mark may come during the wait.
            if done > 0
                && (is_at_mark(waits.fd()) || !more_comes(&mut waits) || is_at_mark(waits.fd()))
            {
                break;
            }
            let mut part = message(left);
            if done == 0 {
                (part.msg_name, part.msg_namelen) = (msg.msg_name, msg.msg_namelen);
            }
            let at = &raw mut part;
            let received = if done > 0 {
                // SAFETY: by this function's contract.
                match unsafe { recvmsg_now(waits.fd(), at, flags) } {
                    Err(libc::EAGAIN) => continue,
                    received => received,
                }
            } else {
                waits.transfer(|fd, how| match how {
                    // SAFETY: as above.
                    How::AtOnce => unsafe { recvmsg_now(fd, at, flags) },
                    // SAFETY: as above.
                    How::Blocking => unsafe { sys!(libc::SYS_recvmsg, fd, at, flags) },
                })
            };
            match received {
                Ok(n) => {
                    if done == 0 {
                        msg.msg_namelen = part.msg_namelen;
                    }
                    came |= part.msg_flags;
                    if n == 0 {
                        break;
                    }
                    done += n;
                    left = advance(left, n.cast_unsigned());
                }
                Err(_) if done > 0 => break,
                Err(errno) => return Err(errno),
            }
        }
        Ok(done)
    });
    if received.is_ok() {
        msg.msg_flags = came;
    }
    received
}

/// Waits for the next part. `false` if there is none: the wait fails, the stream has ended, or it has an
/// error, which the next call is to return. A Unix stream loses that as a blocking call does.
fn more_comes(waits: &mut Waits) -> bool {
    if waits.ready().is_err() {
        return false;
    }
    let mut n: c_int = 0;
    // SAFETY: the kernel writes a number.
    let asked = unsafe { sys!(libc::SYS_ioctl, waits.fd(), libc::FIONREAD, &raw mut n) };
    let is_unix = option(waits.fd(), libc::SO_DOMAIN, 0) == Ok(libc::AF_UNIX);
    asked.is_err() || n > 0 || is_unix
}

fn is_at_mark(fd: c_int) -> bool {
    let mut is_there: c_int = 0;
    // SAFETY: the kernel writes a number.
    let asked = unsafe { sys!(libc::SYS_ioctl, fd, SIOCATMARK, &raw mut is_there) };
    asked.is_ok() && is_there != 0
}

const SIOCATMARK: u32 = 0x8905;

/// Sends all, as a blocking socket does.
///
/// # Safety
///
/// As `sendmsg(2)`.
unsafe fn send_message(fd: c_int, msg: *const msghdr, flags: c_int) -> Result<isize, c_int> {
    // SAFETY: by this function's contract.
    let first = unsafe { sys!(libc::SYS_sendmsg, fd, msg, flags | libc::MSG_DONTWAIT) };
    // SAFETY: as above.
    unsafe { send_rest(fd, msg, flags, first) }
}

/// Sends what is left after the attempt `first`.
///
/// # Safety
///
/// As `sendmsg(2)`.
unsafe fn send_rest(
    fd: c_int,
    msg: *const msghdr,
    mut flags: c_int,
    first: Result<isize, c_int>,
) -> Result<isize, c_int> {
    if !matches!(first, Ok(1..) | Err(libc::EAGAIN)) {
        return first;
    }
    // SAFETY: by this function's contract; the kernel has read it, and its buffers.
    let (mut msg, iov) = unsafe { (*msg, buffers_of(&*msg)) };
    let is_whole = first.is_ok_and(|n| n.cast_unsigned() >= total(iov));
    if is_whole || is_nonblocking(fd) {
        return first;
    }
    let mut is_first = first.is_err();
    let is_unix = option(fd, libc::SO_DOMAIN, 0) == Ok(libc::AF_UNIX);
    in_parts(fd, iov, first, |waits, left| {
        if !is_first {
            // Descriptors and credentials went with the first bytes. An error from here on is the
            // next call's, and so is its signal.
            (msg.msg_control, msg.msg_controllen) = (null_mut(), 0);
            flags |= libc::MSG_NOSIGNAL;
        }
        if is_unix {
            waits.begin_anew();
        }
        (msg.msg_iov, msg.msg_iovlen) = (left.as_mut_ptr(), left.len());
        let at = &raw const msg;
        let sent = waits.transfer(|fd, how| {
            // A send that waits looks at the socket's error first, one that begins at its end.
            if is_unix && let Ok(errno @ 1..) = option(fd, libc::SO_ERROR, 0) {
                return Err(errno);
            }
            // An attempt would take the error.
            if !is_first && !is_unix && wait::shows(fd, libc::POLLHUP) {
                return Ok(0);
            }
            let flags = match how {
                How::AtOnce => flags | libc::MSG_DONTWAIT,
                How::Blocking => flags,
            };
            // SAFETY: by this function's contract; the buffers are what is left of the message's.
            unsafe { sys!(libc::SYS_sendmsg, fd, at, flags) }
        });
        is_first = false;
        sent
    })
}

/// Flags of calls that never wait.
const RECEIVES_AT_ONCE: c_int = libc::MSG_DONTWAIT | libc::MSG_ERRQUEUE | libc::MSG_OOB;
/// Flags of calls that never wait, and TCP fast open, which connects.
const SENDS_AT_ONCE: c_int = libc::MSG_DONTWAIT | libc::MSG_FASTOPEN;

#[unsafe(no_mangle)]
unsafe extern "C" fn recv(fd: c_int, buf: *mut c_void, len: usize, flags: c_int) -> isize {
    // SAFETY: by this function's contract.
    unsafe { recvfrom(fd, buf, len, flags, null_mut(), null_mut()) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn recvfrom(
    fd: c_int,
    buf: *mut c_void,
    len: usize,
    flags: c_int,
    addr: *mut sockaddr,
    addr_len: *mut socklen_t,
) -> isize {
    let call = |flags: c_int| {
        // SAFETY: by this function's contract.
        unsafe { sys!(libc::SYS_recvfrom, fd, buf, len, flags, addr, addr_len) }
    };
    if !may_wait(fd) || flags & RECEIVES_AT_ONCE != 0 {
        return give(call(flags));
    }
    let first = call(flags | libc::MSG_DONTWAIT);
    let is_whole = flags & libc::MSG_WAITALL == 0 || first.is_ok_and(|n| n.cast_unsigned() >= len);
    if !matches!(first, Ok(1..) if !is_whole) && first != Err(libc::EAGAIN) {
        return give(first);
    }
    let iov = one(buf, len);
    let mut msg = message(&iov);
    if !addr.is_null() && first.is_err() {
        // SAFETY: by this function's contract.
        let len = unsafe { addr_len.as_ref() }.copied();
        // The kernel refuses others once it has received.
        let Some(addr_len) = len.filter(|&len| len.cast_signed() >= 0) else {
            return give(in_section(|| call(flags)));
        };
        (msg.msg_name, msg.msg_namelen) = (addr.cast(), addr_len);
    }
    // SAFETY: by this function's contract.
    let done = unsafe { receive_more(fd, &raw mut msg, flags, first) };
    if done.is_ok() && !msg.msg_name.is_null() {
        // SAFETY: as above.
        unsafe { addr_len.write(msg.msg_namelen) };
    }
    give(done)
}

/// Receives after an attempt that found nothing, or a part of what `MSG_WAITALL` is to receive.
///
/// # Safety
///
/// As `recvmsg(2)`.
#[cold]
unsafe fn receive_more(
    fd: c_int,
    msg: *mut msghdr,
    flags: c_int,
    first: Result<isize, c_int>,
) -> Result<isize, c_int> {
    let is_stream = || socket_type(fd) == Ok(libc::SOCK_STREAM);
    let is_all = flags & libc::MSG_WAITALL != 0 && is_stream();
    if is_nonblocking(fd) || (first.is_ok() && !is_all) {
        return first;
    }
    // SAFETY: by this function's contract; the kernel has read it, and its buffers.
    if total(unsafe { buffers_of(&*msg) }) == 0 && is_stream() {
        // A wait for the next event, whatever that is.
        // SAFETY: as above.
        return in_section(|| unsafe { sys!(libc::SYS_recvmsg, fd, msg, flags) });
    }
    if !is_all {
        // SAFETY: by this function's contract.
        return unsafe { wait_and_receive(fd, msg, flags) };
    }
    // SAFETY: as above; the kernel has read it.
    let message = unsafe { &mut *msg };
    if flags & libc::MSG_PEEK != 0 {
        // The bytes that were seen stay, so readiness says nothing about more.
        // SAFETY: as above.
        return in_section(|| unsafe { sys!(libc::SYS_recvmsg, fd, msg, flags) });
    }
    // SAFETY: as above.
    unsafe { receive_all(fd, message, flags, first) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn recvmsg(fd: c_int, msg: *mut msghdr, flags: c_int) -> isize {
    // SAFETY: by this function's contract.
    let call = |flags: c_int| unsafe { sys!(libc::SYS_recvmsg, fd, msg, flags) };
    if !may_wait(fd) || flags & RECEIVES_AT_ONCE != 0 {
        return give(call(flags));
    }
    // SAFETY: as above.
    let has_control = unsafe { msg.as_ref() }.is_some_and(|msg| msg.msg_controllen > 0);
    if flags & libc::MSG_WAITALL != 0
        && has_control
        && socket_type_if_waiting(fd) == Some(libc::SOCK_STREAM)
    {
        // Each part could have control data.
        return give(in_section(|| call(flags)));
    }
    let first = call(flags | libc::MSG_DONTWAIT);
    // SAFETY: as above; the kernel has read it, and its buffers.
    let is_part = |n: isize| n > 0 && n.cast_unsigned() < total(unsafe { buffers_of(&*msg) });
    give(match first {
        Ok(n) if flags & libc::MSG_WAITALL == 0 || !is_part(n) => Ok(n),
        // SAFETY: as above.
        Ok(_) | Err(libc::EAGAIN) => unsafe { receive_more(fd, msg, flags, first) },
        Err(errno) => Err(errno),
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn send(fd: c_int, buf: *const c_void, len: usize, flags: c_int) -> isize {
    // SAFETY: by this function's contract.
    unsafe { sendto(fd, buf, len, flags, null(), 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sendto(
    fd: c_int,
    buf: *const c_void,
    len: usize,
    flags: c_int,
    addr: *const sockaddr,
    addr_len: socklen_t,
) -> isize {
    let call = |flags: c_int| {
        // SAFETY: by this function's contract.
        unsafe { sys!(libc::SYS_sendto, fd, buf, len, flags, addr, addr_len) }
    };
    if !may_wait(fd) || flags & SENDS_AT_ONCE != 0 {
        return give(call(flags));
    }
    let first = call(flags | libc::MSG_DONTWAIT);
    let iov = one(buf.cast_mut(), len);
    let mut msg = message(&iov);
    (msg.msg_name, msg.msg_namelen) = (addr.cast_mut().cast(), addr_len);
    // SAFETY: by this function's contract.
    give(unsafe { send_rest(fd, &raw const msg, flags, first) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sendmsg(fd: c_int, msg: *const msghdr, flags: c_int) -> isize {
    give(if may_wait(fd) && flags & SENDS_AT_ONCE == 0 {
        // SAFETY: by this function's contract.
        unsafe { send_message(fd, msg, flags) }
    } else {
        // SAFETY: as above.
        unsafe { sys!(libc::SYS_sendmsg, fd, msg, flags) }
    })
}

/// `SO_TYPE`.
fn socket_type(fd: c_int) -> Result<c_int, c_int> {
    option(fd, libc::SO_TYPE, 0)
}

// Connections.

#[unsafe(no_mangle)]
unsafe extern "C" fn connect(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int {
    // SAFETY: by this function's contract.
    let plain = || unsafe { sys!(libc::SYS_connect, fd, addr, len) };
    let connects = matches!(socket_type_if_waiting(fd), Some(kind) if kind != libc::SOCK_DGRAM);
    if !connects {
        return give(plain()) as c_int;
    }
    let connected = parked(|| {
        let deadline_ns = socket_deadline(fd, For::Write);
        // SAFETY: by this function's contract.
        match unsafe { foreign::connect(fd, addr, len, deadline_ns) } {
            Some(Ok(())) => Ok(0),
            // A TCP socket goes on connecting; a Unix socket has not begun.
            Some(Err(libc::EAGAIN)) if option(fd, libc::SO_DOMAIN, 0) != Ok(libc::AF_UNIX) => {
                Err(libc::EINPROGRESS)
            }
            // A call before has begun it. A ring does not wait for that.
            Some(Err(libc::EALREADY)) => in_section(plain),
            Some(Err(errno)) => Err(errno),
            None => in_section(plain),
        }
    });
    give(connected) as c_int
}

/// The type of a socket for which the caller would park.
fn socket_type_if_waiting(fd: c_int) -> Option<c_int> {
    if !parks() || is_nonblocking(fd) {
        return None;
    }
    socket_type(fd).ok()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn accept(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int {
    // SAFETY: by this function's contract.
    unsafe { accept4(fd, addr, len, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn accept4(
    fd: c_int,
    addr: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
) -> c_int {
    // SAFETY: by this function's contract.
    let plain = |fd: c_int| unsafe { sys!(libc::SYS_accept4, fd, addr, len, flags) };
    const KNOWN: c_int = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    let waits = flags & !KNOWN == 0 && parks() && !is_nonblocking(fd);
    // The kernel has an error for what is no listener.
    if !waits || option(fd, libc::SO_ACCEPTCONN, 0) != Ok(1) {
        return give(plain(fd)) as c_int;
    }
    let accepted = parked(|| {
        let mut waits = Waits::new(fd, For::Read);
        // SAFETY: by this function's contract.
        match unsafe { foreign::accept(fd, addr, len, waits.deadline_ns()) } {
            Some(accepted) => accepted.map(|new| {
                set_flags(new, flags);
                new as isize
            }),
            // Another one may be faster: then this one blocks its thread.
            None => waits.transfer(|fd, _| in_section(|| plain(fd))),
        }
    });
    give(accepted) as c_int
}

/// Gives a new socket, which is close-on-exec, the flags of `accept4`.
fn set_flags(fd: c_int, flags: c_int) {
    // SAFETY: takes plain numbers.
    unsafe {
        if flags & libc::SOCK_CLOEXEC == 0 {
            libc::fcntl(fd, libc::F_SETFD, 0);
        }
        if flags & libc::SOCK_NONBLOCK != 0 {
            let old = libc::fcntl(fd, libc::F_GETFL);
            libc::fcntl(fd, libc::F_SETFL, old | libc::O_NONBLOCK);
        }
    }
}

// Waiting for several descriptors.

#[unsafe(no_mangle)]
unsafe extern "C" fn poll(fds: *mut pollfd, n: nfds_t, timeout_ms: c_int) -> c_int {
    let time = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
    // SAFETY: by this function's contract.
    unsafe { poll_for(fds, n, time) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ppoll(
    fds: *mut pollfd,
    n: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: by this function's contract.
    let time = unsafe { timeout.as_ref() }.copied();
    let valid = time.map(wait::duration_of);
    if !mask.is_null() || valid == Some(None) {
        // A mask belongs to the thread. An invalid time is the kernel's to refuse.
        let plain = || {
            let mut left = time;
            let left = left.as_mut().map_or(null_mut(), std::ptr::from_mut);
            // SAFETY: by this function's contract.
            unsafe { sys!(libc::SYS_ppoll, fds, n, left, mask, MASK_LEN) }
        };
        return give(in_section_if_parks(plain)) as c_int;
    }
    // SAFETY: by this function's contract.
    unsafe { poll_for(fds, n, valid.flatten()) }
}

fn in_section_if_parks<T>(f: impl FnOnce() -> T) -> T {
    if parks() { in_section(f) } else { f() }
}

/// `poll` for at most `time`.
///
/// # Safety
///
/// As `poll(2)`.
unsafe fn poll_for(fds: *mut pollfd, n: nfds_t, time: Option<Duration>) -> c_int {
    // The kernel's number is that long.
    let n = n as u32;
    // SAFETY: by this function's contract.
    let plain = |time| unsafe { wait::poll_for(fds, n, time) };
    if time == Some(Duration::ZERO) || !parks() {
        return give(plain(time)) as c_int;
    }
    let deadline_ns = time.map_or(NEVER, foreign::deadline_ns);
    let first = plain(Some(Duration::ZERO));
    if first != Ok(0) {
        return give(first) as c_int;
    }
    let polled = parked(|| {
        let all = match n as usize {
            0 => &[],
            // SAFETY: by this function's contract; the kernel has just written them.
            n => unsafe { std::slice::from_raw_parts(fds, n) },
        };
        let mut pace = wait::Pace::default();
        loop {
            match pace.wait(deadline_ns, || wait::wait_for_any(all, deadline_ns)) {
                Waited::Ready => {}
                Waited::TimedOut => return plain(Some(Duration::ZERO)),
                Waited::Failed(errno) => return Err(errno),
                Waited::Impossible => return in_section(|| plain(left_of(deadline_ns))),
            }
            let ready = plain(Some(Duration::ZERO));
            if ready != Ok(0) {
                return ready;
            }
        }
    });
    give(polled) as c_int
}

fn left_of(deadline_ns: u64) -> Option<Duration> {
    let left = deadline_ns.saturating_sub(foreign::now_ns());
    (deadline_ns != NEVER).then_some(Duration::from_nanos(left))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn select(
    n: c_int,
    reads: *mut fd_set,
    writes: *mut fd_set,
    excepts: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    // SAFETY: by this function's contract.
    let time = unsafe { timeout.as_ref() }.map(|time| timespec {
        // As the kernel does: microseconds may be more than a second.
        tv_sec: time.tv_sec.saturating_add(time.tv_usec / 1_000_000),
        tv_nsec: time.tv_usec % 1_000_000 * 1000,
    });
    let begin_ns = foreign::now_ns();
    // SAFETY: by this function's contract.
    let ready = unsafe { select_for(n, [reads, writes, excepts], time, null()) };
    let whole = time.and_then(wait::duration_of);
    // SAFETY: by this function's contract.
    if let (Some(whole), Some(timeout)) = (whole, unsafe { timeout.as_mut() }) {
        let spent = Duration::from_nanos(foreign::now_ns() - begin_ns);
        let left = wait::timespec_of(whole.saturating_sub(spent));
        timeout.tv_sec = left.tv_sec;
        timeout.tv_usec = left.tv_nsec / 1000;
    }
    ready
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pselect(
    n: c_int,
    reads: *mut fd_set,
    writes: *mut fd_set,
    excepts: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: by this function's contract.
    unsafe {
        let time = timeout.as_ref().copied();
        select_for(n, [reads, writes, excepts], time, mask)
    }
}

/// # Safety
///
/// As `pselect(2)`.
unsafe fn select_for(
    n: c_int,
    sets: [*mut fd_set; 3],
    time: Option<timespec>,
    mask: *const sigset_t,
) -> c_int {
    let plain = |mut time: Option<timespec>| {
        let time = time.as_mut().map_or(null_mut(), std::ptr::from_mut);
        let mask = (mask, MASK_LEN);
        let [r, w, e] = sets;
        let mask = &raw const mask;
        // SAFETY: by this function's contract; the mask and its length are as the kernel wants them.
        unsafe { sys!(libc::SYS_pselect6, n, r, w, e, time, mask) }
    };
    let now = || plain(Some(wait::timespec_of(Duration::ZERO)));
    let length = time.map(wait::duration_of);
    if !parks() || length == Some(Some(Duration::ZERO)) {
        return give(plain(time)) as c_int;
    }
    let n = match looked_at(n) {
        Some(n) if mask.is_null() && length != Some(None) => n,
        _ => return give(in_section(|| plain(time))) as c_int,
    };
    let deadline_ns = length.flatten().map_or(NEVER, foreign::deadline_ns);
    // SAFETY: by this function's contract.
    let wanted = sets.map(|set| Words::of(unsafe { words(set, n) }));
    let first = now();
    if first != Ok(0) {
        return give(first) as c_int;
    }
    let restore = || {
        for (set, wanted) in sets.into_iter().zip(&wanted) {
            // SAFETY: by this function's contract.
            let set = unsafe { words(set, n) };
            set.copy_from_slice(&wanted.as_slice()[..set.len()]);
        }
    };
    let selected = parked(|| {
        let fds = polled(&wanted, n);
        let mut pace = wait::Pace::default();
        loop {
            let waited = pace.wait(deadline_ns, || wait::wait_for_any(&fds, deadline_ns));
            restore();
            match waited {
                Waited::Ready => {}
                Waited::TimedOut => return now(),
                Waited::Failed(errno) => return Err(errno),
                Waited::Impossible => {
                    let left = left_of(deadline_ns).map(wait::timespec_of);
                    return in_section(|| plain(left));
                }
            }
            let ready = now();
            if ready != Ok(0) {
                return ready;
            }
        }
    });
    give(selected) as c_int
}

/// A copy of a set. One of the usual size needs no allocation, which a signal handler may not make.
#[derive(Debug)]
enum Words {
    Few([u64; libc::FD_SETSIZE / 64]),
    Many(Vec<u64>),
}

impl Words {
    fn of(set: &[u64]) -> Words {
        let mut few = [0; libc::FD_SETSIZE / 64];
        match few.get_mut(..set.len()) {
            Some(place) => {
                place.copy_from_slice(set);
                Words::Few(few)
            }
            None => Words::Many(set.to_vec()),
        }
    }

    fn as_slice(&self) -> &[u64] {
        match self {
            Words::Few(words) => words,
            Words::Many(words) => words,
        }
    }
}

/// How many descriptors the kernel looks at if it is asked for `n`: at most as many as the process's
/// table has places. Programs ask for all that they may ever open (`getdtablesize(3)`), and their sets
/// are shorter. `None` if it is not known.
fn looked_at(n: c_int) -> Option<c_int> {
    if n <= libc::FD_SETSIZE as c_int {
        return (n >= 0).then_some(n);
    }
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let mut lines = status.lines();
    // The table never shrinks, so the kernel looks at no fewer later.
    let places = lines.find_map(|line| line.strip_prefix("FDSize:"))?;
    Some(n.min(places.trim().parse().ok()?))
}

/// The words of a set that hold `n` descriptors; C clients make sets longer than `fd_set`.
///
/// # Safety
///
/// The set is null or holds `n` descriptors.
unsafe fn words<'a>(set: *mut fd_set, n: c_int) -> &'a mut [u64] {
    match set.is_null() {
        true => &mut [],
        // SAFETY: by this function's contract.
        false => unsafe { std::slice::from_raw_parts_mut(set.cast(), (n as usize).div_ceil(64)) },
    }
}

fn polled(sets: &[Words; 3], n: c_int) -> Vec<pollfd> {
    let events = [libc::POLLIN, libc::POLLOUT, libc::POLLPRI];
    let of = |fd: c_int| {
        let is_in = |set: &Words| {
            let word = set.as_slice().get(fd as usize / 64).copied().unwrap_or(0);
            word >> (fd % 64) & 1 == 1
        };
        let wanted = sets.iter().zip(events).filter(|(set, _)| is_in(set));
        let events = wanted.fold(0, |all, (_, events)| all | events);
        let revents = 0;
        (events != 0).then_some(pollfd {
            fd,
            events,
            revents,
        })
    };
    (0..n).filter_map(of).collect()
}

// Sleeping.

/// The end of the run or of the context ends a sleep early, and the caller learns nothing: `std`
/// panics at any error but `EINTR`, and sleeps on after that.
fn sleep_until(deadline_ns: u64) {
    let slept = || match foreign::sleep_until(deadline_ns) {
        true => Ok(()),
        false => Err(libc::ECANCELED),
    };
    let _ = parked(slept);
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nanosleep(time: *const timespec, left: *mut timespec) -> c_int {
    // SAFETY: by this function's contract.
    match unsafe { time.as_ref() }.and_then(|time| wait::duration_of(*time)) {
        Some(time) if parks() => {
            sleep_until(foreign::deadline_ns(time));
            0
        }
        // SAFETY: by this function's contract.
        _ => give(unsafe { sys!(libc::SYS_nanosleep, time, left) }) as c_int,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn clock_nanosleep(
    clock: clockid_t,
    flags: c_int,
    time: *const timespec,
    left: *mut timespec,
) -> c_int {
    // SAFETY: by this function's contract.
    let given = unsafe { time.as_ref() }.and_then(|time| wait::duration_of(*time));
    let deadline_ns = match (given, clock, flags) {
        (Some(time), libc::CLOCK_MONOTONIC | libc::CLOCK_REALTIME, 0) => {
            Some(foreign::deadline_ns(time))
        }
        (Some(time), libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME) => {
            Some(u64::try_from(time.as_nanos()).unwrap_or(NEVER))
        }
        _ => None,
    };
    match deadline_ns {
        Some(deadline_ns) if parks() => {
            sleep_until(deadline_ns);
            0
        }
        _ => {
            // SAFETY: by this function's contract.
            let plain = || unsafe { sys!(libc::SYS_clock_nanosleep, clock, flags, time, left) };
            // The result is the error.
            in_section_if_parks(plain).err().unwrap_or(0)
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn usleep(micros: useconds_t) -> c_int {
    let time = wait::timespec_of(Duration::from_micros(micros.into()));
    // SAFETY: the time is valid during the call.
    unsafe { nanosleep(&raw const time, null_mut()) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sleep(secs: c_uint) -> c_uint {
    let mut time = wait::timespec_of(Duration::from_secs(secs.into()));
    // SAFETY: the time is valid during the call; what is left may overwrite it.
    let slept = unsafe { nanosleep(&raw const time, &raw mut time) } == 0;
    // Rounded as glibc does.
    if slept {
        0
    } else {
        time.tv_sec as c_uint + c_uint::from(time.tv_nsec >= 500_000_000)
    }
}

// Names.

type GetAddrInfo = unsafe extern "C" fn(
    *const c_char,
    *const c_char,
    *const addrinfo,
    *mut *mut addrinfo,
) -> c_int;

#[unsafe(no_mangle)]
unsafe extern "C" fn getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: *const addrinfo,
    res: *mut *mut addrinfo,
) -> c_int {
    static FOUND: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
    let Some(real) = real(c"getaddrinfo", &FOUND) else {
        return libc::EAI_FAIL;
    };
    // SAFETY: libc's function of this name has this type.
    let real: GetAddrInfo = unsafe { std::mem::transmute(real) };
    let call = || {
        // SAFETY: by this function's contract.
        unsafe { real(node, service, hints, res) }
    };
    in_section_if_parks(call)
}

/// Finds libc's own function. `None` in a program without a dynamic loader.
pub(crate) fn real(name: &CStr, found: &AtomicPtr<c_void>) -> Option<*mut c_void> {
    // Ordering: relaxed. Every thread finds the same address, and code is there from the start.
    let mut address = found.load(Ordering::Relaxed);
    if address.is_null() {
        // SAFETY: the name ends with a null byte.
        address = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
        found.store(address, Ordering::Relaxed);
    }
    (!address.is_null()).then_some(address)
}

// Calls that have no form that does not wait.

#[unsafe(no_mangle)]
unsafe extern "C" fn sendfile(to: c_int, from: c_int, at: *mut libc::off_t, n: usize) -> isize {
    // SAFETY: by this function's contract.
    unsafe { sendfile64(to, from, at, n) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sendfile64(to: c_int, from: c_int, at: *mut libc::off64_t, n: usize) -> isize {
    // SAFETY: by this function's contract.
    give(in_section_if_parks(|| unsafe {
        sys!(libc::SYS_sendfile, to, from, at, n)
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn splice(
    from: c_int,
    from_at: *mut libc::off64_t,
    to: c_int,
    to_at: *mut libc::off64_t,
    n: usize,
    flags: c_uint,
) -> isize {
    // SAFETY: by this function's contract.
    let call = || unsafe { sys!(libc::SYS_splice, from, from_at, to, to_at, n, flags) };
    in_section_unless(flags & libc::SPLICE_F_NONBLOCK != 0, call)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn waitpid(pid: libc::pid_t, status: *mut c_int, options: c_int) -> libc::pid_t {
    // SAFETY: by this function's contract.
    unsafe { wait4(pid, status, options, null_mut()) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn wait4(
    pid: libc::pid_t,
    status: *mut c_int,
    options: c_int,
    usage: *mut libc::rusage,
) -> libc::pid_t {
    // SAFETY: by this function's contract.
    let call = || unsafe { sys!(libc::SYS_wait4, pid, status, options, usage) };
    in_section_unless(options & libc::WNOHANG != 0, call) as libc::pid_t
}

#[unsafe(no_mangle)]
unsafe extern "C" fn waitid(
    of: libc::idtype_t,
    id: libc::id_t,
    info: *mut libc::siginfo_t,
    options: c_int,
) -> c_int {
    let no_usage = null::<libc::rusage>();
    // SAFETY: by this function's contract.
    let call = || unsafe { sys!(libc::SYS_waitid, of, id, info, options, no_usage) };
    in_section_unless(options & libc::WNOHANG != 0, call) as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_join(thread: libc::pthread_t, value: *mut *mut c_void) -> c_int {
    type Join = unsafe extern "C" fn(libc::pthread_t, *mut *mut c_void) -> c_int;
    static FOUND: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
    let Some(join) = real(c"pthread_join", &FOUND) else {
        return libc::ENOSYS;
    };
    // SAFETY: libc's function of this name has this type.
    let join = unsafe { std::mem::transmute::<*mut c_void, Join>(join) };
    // SAFETY: by this function's contract. It returns its error.
    in_section_if_parks(|| unsafe { join(thread, value) })
}

// Calls in which programs wait while they keep thread-locals, as tokio's runtimes do, and calls that no ring can make.

#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_wait(
    set: c_int,
    events: *mut libc::epoll_event,
    n: c_int,
    timeout_ms: c_int,
) -> c_int {
    // SAFETY: by this function's contract.
    unsafe { epoll_pwait(set, events, n, timeout_ms, null()) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_pwait(
    set: c_int,
    events: *mut libc::epoll_event,
    n: c_int,
    timeout_ms: c_int,
    mask: *const sigset_t,
) -> c_int {
    let call = |left_ms: c_int| {
        // SAFETY: by this function's contract.
        unsafe {
            sys!(
                libc::SYS_epoll_pwait,
                set,
                events,
                n,
                left_ms,
                mask,
                MASK_LEN
            )
        }
    };
    let Ok(whole @ 1..) = u64::try_from(timeout_ms) else {
        return in_section_unless(timeout_ms == 0, || call(timeout_ms)) as c_int;
    };
    let deadline_ns = foreign::deadline_ns(Duration::from_millis(whole));
    let call = || {
        let left_ns = deadline_ns.saturating_sub(foreign::now_ns());
        call(c_int::try_from(left_ns.div_ceil(1_000_000)).unwrap_or(timeout_ms))
    };
    in_section_unless(false, call) as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_pwait2(
    set: c_int,
    events: *mut libc::epoll_event,
    n: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: by this function's contract.
    let time = unsafe { timeout.as_ref() }.copied();
    // An invalid time is the kernel's to refuse.
    let length = time.and_then(wait::duration_of);
    let deadline_ns = length.map(foreign::deadline_ns);
    let call = || {
        let mut left = deadline_ns
            .and_then(left_of)
            .map(wait::timespec_of)
            .or(time);
        let left = left.as_mut().map_or(null_mut(), std::ptr::from_mut);
        // SAFETY: by this function's contract.
        unsafe { sys!(libc::SYS_epoll_pwait2, set, events, n, left, mask, MASK_LEN) }
    };
    in_section_unless(length == Some(Duration::ZERO), call) as c_int
}

/// A wait that the kernel does not restart is repeated where no signal handler has interrupted it: a
/// completion for this thread has. `call` counts its time.
fn in_section_unless(at_once: bool, mut call: impl FnMut() -> Result<isize, c_int>) -> isize {
    if at_once || !parks() {
        return give(call());
    }
    give(in_section(|| {
        let handled = handlers::handled();
        loop {
            match call() {
                Err(libc::EINTR) if handlers::handled() == handled => {}
                done => return done,
            }
        }
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn recvmmsg(
    fd: c_int,
    msgs: *mut libc::mmsghdr,
    n: c_uint,
    flags: c_int,
    timeout: *mut timespec,
) -> c_int {
    let at_once = flags & RECEIVES_AT_ONCE != 0;
    // SAFETY: by this function's contract.
    let call = || unsafe { sys!(libc::SYS_recvmmsg, fd, msgs, n, flags, timeout) };
    in_section_unless(at_once, until_timeout(fd, For::Read, call)) as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sendmmsg(
    fd: c_int,
    msgs: *mut libc::mmsghdr,
    n: c_uint,
    flags: c_int,
) -> c_int {
    let at_once = flags & libc::MSG_DONTWAIT != 0;
    // SAFETY: by this function's contract.
    let call = || unsafe { sys!(libc::SYS_sendmmsg, fd, msgs, n, flags) };
    in_section_unless(at_once, until_timeout(fd, For::Write, call)) as c_int
}

/// A call that may be repeated until the socket's timeout: each time it would wait for all of it.
fn until_timeout(
    fd: c_int,
    direction: For,
    mut call: impl FnMut() -> Result<isize, c_int>,
) -> impl FnMut() -> Result<isize, c_int> {
    let begin_ns = foreign::now_ns();
    move || match call() {
        Err(libc::EINTR) => {
            let now_ns = foreign::now_ns();
            let whole_ns = socket_deadline(fd, direction).saturating_sub(now_ns);
            Err(if now_ns - begin_ns < whole_ns {
                libc::EINTR
            } else {
                libc::EAGAIN
            })
        }
        done => done,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn flock(fd: c_int, how: c_int) -> c_int {
    // SAFETY: takes plain numbers.
    let call = || unsafe { sys!(libc::SYS_flock, fd, how) };
    in_section_unless(how & (libc::LOCK_NB | libc::LOCK_UN) != 0, call) as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fsync(fd: c_int) -> c_int {
    // SAFETY: takes a plain number.
    in_section_unless(false, || unsafe { sys!(libc::SYS_fsync, fd) }) as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdatasync(fd: c_int) -> c_int {
    // SAFETY: takes a plain number.
    in_section_unless(false, || unsafe { sys!(libc::SYS_fdatasync, fd) }) as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sem_wait(sem: *mut libc::sem_t) -> c_int {
    type Wait = unsafe extern "C" fn(*mut libc::sem_t) -> c_int;
    static FOUND: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
    let Some(wait) = real(c"sem_wait", &FOUND) else {
        set_errno(libc::ENOSYS);
        return -1;
    };
    // SAFETY: libc's function of this name has this type.
    let wait = unsafe { std::mem::transmute::<*mut c_void, Wait>(wait) };
    // SAFETY: by this function's contract.
    in_section_if_parks(|| unsafe { wait(sem) })
}

// Calls of programs that were compiled with _FORTIFY_SOURCE. Each is given the size of the buffer.

fn check(fits: bool) {
    if !fits {
        std::process::abort();
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __read_chk(fd: c_int, buf: *mut c_void, len: usize, size: usize) -> isize {
    check(len <= size);
    // SAFETY: by this function's contract.
    unsafe { read(fd, buf, len) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __recv_chk(
    fd: c_int,
    buf: *mut c_void,
    len: usize,
    size: usize,
    flags: c_int,
) -> isize {
    check(len <= size);
    // SAFETY: by this function's contract.
    unsafe { recv(fd, buf, len, flags) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __recvfrom_chk(
    fd: c_int,
    buf: *mut c_void,
    len: usize,
    size: usize,
    flags: c_int,
    addr: *mut sockaddr,
    addr_len: *mut socklen_t,
) -> isize {
    check(len <= size);
    // SAFETY: by this function's contract.
    unsafe { recvfrom(fd, buf, len, flags, addr, addr_len) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __poll_chk(
    fds: *mut pollfd,
    n: nfds_t,
    timeout_ms: c_int,
    size: usize,
) -> c_int {
    check(n as usize <= size / size_of::<pollfd>());
    // SAFETY: by this function's contract.
    unsafe { poll(fds, n, timeout_ms) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __ppoll_chk(
    fds: *mut pollfd,
    n: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
    size: usize,
) -> c_int {
    check(n as usize <= size / size_of::<pollfd>());
    // SAFETY: by this function's contract.
    unsafe { ppoll(fds, n, timeout, mask) }
}

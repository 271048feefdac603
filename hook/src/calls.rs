//! The functions of libc. Each makes the system call itself where nothing may park.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_uint, c_void};
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::Duration;

use libc::{
    addrinfo, c_int, c_long, clockid_t, fd_set, iovec, mode_t, msghdr, nfds_t, pollfd, sigset_t,
    sockaddr, socklen_t, syscall, timespec, timeval, useconds_t,
};
use windlass::foreign::{self, NEVER};

use crate::by_number::syscall as by_number;
use crate::parks;
use crate::wait::{
    self, For, Waited, Waits, errno, fail, is_nonblocking, is_shut_for_reading, set_errno,
    socket_deadline,
};

/// A function of another type, for the table.
#[derive(Debug)]
pub(crate) struct Address(#[expect(dead_code)] *const ());

// SAFETY: the address of a function, which nothing reads or writes through.
unsafe impl Sync for Address {}

macro_rules! all {
    ($($name:ident)*) => { [$(Address($name as *const ())),*] };
}

/// Keeps the linker from leaving the functions out.
pub(crate) static ALL: [Address; 44] = all![
    read write readv writev recv send recvfrom sendto recvmsg sendmsg connect accept accept4
    poll ppoll select pselect nanosleep clock_nanosleep usleep sleep getaddrinfo
    sendfile sendfile64 splice waitpid wait4 waitid pthread_join
    epoll_wait epoll_pwait epoll_pwait2 recvmmsg sendmmsg flock fsync fdatasync sem_wait by_number
    __read_chk __recv_chk __recvfrom_chk __poll_chk __ppoll_chk
];

/// Bytes of a size that the kernel counts with.
const MASK_LEN: usize = 8;

// Reading and writing.

/// # Safety
///
/// As `read(2)`. So it is with each function below: its contract is that of the manual.
#[unsafe(no_mangle)]
unsafe extern "C" fn read(fd: c_int, buf: *mut c_void, len: usize) -> isize {
    if !may_wait(fd) || len == 0 {
        // SAFETY: by this function's contract.
        return unsafe { syscall(libc::SYS_read, fd as c_long, buf, len) as isize };
    }
    let mut iov = one(buf, len);
    // SAFETY: by this function's contract.
    unsafe { read_vectored(fd, &mut iov) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn readv(fd: c_int, iov: *const iovec, n: c_int) -> isize {
    // SAFETY: by this function's contract.
    match unsafe { copy_of(fd, iov, n) } {
        // SAFETY: as above.
        Some(mut iov) => unsafe { read_vectored(fd, &mut iov) },
        // SAFETY: as above.
        None => unsafe { syscall(libc::SYS_readv, fd as c_long, iov, n as c_long) as isize },
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn write(fd: c_int, buf: *const c_void, len: usize) -> isize {
    if !may_wait(fd) || len == 0 {
        // SAFETY: by this function's contract.
        return unsafe { syscall(libc::SYS_write, fd as c_long, buf, len) as isize };
    }
    let mut iov = one(buf.cast_mut(), len);
    // SAFETY: by this function's contract.
    unsafe { write_vectored(fd, &mut iov) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn writev(fd: c_int, iov: *const iovec, n: c_int) -> isize {
    // SAFETY: by this function's contract.
    match unsafe { copy_of(fd, iov, n) } {
        // SAFETY: as above.
        Some(mut iov) => unsafe { write_vectored(fd, &mut iov) },
        // SAFETY: as above.
        None => unsafe { syscall(libc::SYS_writev, fd as c_long, iov, n as c_long) as isize },
    }
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

/// A copy of the buffers, which a transfer in parts changes. `None` if nothing may park, or if there
/// is nothing to transfer.
///
/// # Safety
///
/// As `readv(2)`.
unsafe fn copy_of(fd: c_int, iov: *const iovec, n: c_int) -> Option<Vec<iovec>> {
    let n = usize::try_from(n).ok().filter(|&n| n <= 1024)?;
    if !may_wait(fd) || n == 0 || iov.is_null() {
        return None;
    }
    // SAFETY: by this function's contract.
    let iov = unsafe { std::slice::from_raw_parts(iov, n) }.to_vec();
    (total(&iov) != 0).then_some(iov)
}

fn total(iov: &[iovec]) -> usize {
    iov.iter()
        .fold(0, |sum, one| sum.saturating_add(one.iov_len))
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

/// A message of these buffers only.
fn message(iov: &mut [iovec]) -> msghdr {
    // SAFETY: all zeros is a message without address, buffers and control data.
    let mut msg: msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    msg.msg_iov = iov.as_mut_ptr();
    msg.msg_iovlen = iov.len();
    msg
}

/// # Safety
///
/// The buffers are valid for writes.
unsafe fn read_vectored(fd: c_int, iov: &mut [iovec]) -> isize {
    let mut msg = message(iov);
    // SAFETY: by this function's contract.
    let received = receive(fd, || unsafe { recvmsg_now(fd, &raw mut msg, 0) });
    match received {
        Ok(n) => n,
        Err(libc::ENOTSOCK) if is_pipe(fd) => or_fail(read_pipe(fd, iov)),
        Err(libc::ENOTSOCK) => plain_readv(fd, iov),
        Err(errno) => fail(errno),
    }
}

/// # Safety
///
/// The buffers are valid for reads.
unsafe fn write_vectored(fd: c_int, iov: &mut [iovec]) -> isize {
    let msg = message(iov);
    // SAFETY: by this function's contract.
    match unsafe { send_whole(fd, &msg, iov, 0) } {
        Ok(n) => n,
        Err(libc::ENOTSOCK) if is_pipe(fd) => or_fail(write_pipe(fd, iov)),
        Err(libc::ENOTSOCK) => {
            let n = iov.len() as c_long;
            // SAFETY: by this function's contract.
            unsafe { syscall(libc::SYS_writev, fd as c_long, iov.as_ptr(), n) as isize }
        }
        Err(errno) => fail(errno),
    }
}

fn plain_readv(fd: c_int, iov: &mut [iovec]) -> isize {
    let n = iov.len() as c_long;
    // SAFETY: the buffers are the caller's, valid as for `readv(2)`.
    unsafe { syscall(libc::SYS_readv, fd as c_long, iov.as_mut_ptr(), n) as isize }
}

fn or_fail(done: Result<isize, c_int>) -> isize {
    done.unwrap_or_else(fail)
}

/// -1 and `errno`, as a result.
fn checked(n: c_long) -> Result<isize, c_int> {
    if n < 0 { Err(errno()) } else { Ok(n as isize) }
}

fn is_pipe(fd: c_int) -> bool {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the kernel writes the structure if the call succeeds.
    let mode: mode_t = unsafe {
        if libc::fstat(fd, stat.as_mut_ptr()) != 0 {
            return false;
        }
        stat.assume_init().st_mode
    };
    mode & libc::S_IFMT == libc::S_IFIFO
}

/// The offset that makes `preadv2` and `pwritev2` use the file's position.
const HERE: c_long = -1;

fn read_pipe(fd: c_int, iov: &mut [iovec]) -> Result<isize, c_int> {
    let (n, flags) = (iov.len() as c_long, libc::RWF_NOWAIT as c_long);
    let now = || {
        // SAFETY: the buffers are the caller's, valid as for `readv(2)`.
        checked(unsafe {
            syscall(
                libc::SYS_preadv2,
                fd as c_long,
                iov.as_ptr(),
                n,
                HERE,
                HERE,
                flags,
            )
        })
    };
    let mut waits = Waits::new(fd, For::Read);
    loop {
        match now() {
            Err(libc::EAGAIN) => waits.ready()?,
            // Before Linux 6.4. Another reader may be faster; then this one blocks its thread.
            Err(libc::EOPNOTSUPP | libc::ENOSYS) => {
                if !is_nonblocking(fd) {
                    waits.ready()?;
                }
                return checked(plain_readv(fd, iov) as c_long);
            }
            done => return done,
        }
    }
}

fn write_pipe(fd: c_int, iov: &mut [iovec]) -> Result<isize, c_int> {
    let flags = libc::RWF_NOWAIT as c_long;
    let mut waits = Waits::new(fd, For::Write);
    let (whole, mut written, mut left) = (total(iov), 0, iov);
    loop {
        let (at, n) = (left.as_ptr(), left.len() as c_long);
        // SAFETY: the buffers are the caller's, valid as for `writev(2)`.
        let mut done =
            checked(unsafe { syscall(libc::SYS_pwritev2, fd as c_long, at, n, HERE, HERE, flags) });
        if let Err(libc::EOPNOTSUPP | libc::ENOSYS) = done {
            done = write_little(fd, left, &mut waits);
        }
        let waited = match done {
            Ok(n) => {
                written += n;
                if written as usize >= whole {
                    return Ok(written);
                }
                left = advance(left, n as usize);
                continue;
            }
            Err(libc::EAGAIN) => waits.ready(),
            Err(errno) => Err(errno),
        };
        match waited {
            Err(_) if written > 0 => return Ok(written),
            Err(errno) => return Err(errno),
            Ok(()) => {}
        }
    }
}

/// Before Linux 6.4: what fits for certain into a pipe that is ready, unless another writer is
/// faster.
fn write_little(fd: c_int, left: &[iovec], waits: &mut Waits) -> Result<isize, c_int> {
    if !is_nonblocking(fd) {
        waits.ready()?;
    }
    let first = left.iter().find(|one| one.iov_len > 0);
    let (at, len) = first.map_or((null_mut(), 0), |one| (one.iov_base, one.iov_len));
    let len = len.min(libc::PIPE_BUF);
    // SAFETY: the buffers are the caller's, valid as for `writev(2)`.
    checked(unsafe { syscall(libc::SYS_write, fd as c_long, at, len) })
}

/// Receives: an attempt, a wait, another attempt.
fn receive(fd: c_int, mut attempt: impl FnMut() -> c_long) -> Result<isize, c_int> {
    let mut waits = Waits::new(fd, For::Read);
    let mut shut = false;
    loop {
        match checked(attempt()) {
            // An attempt after the shutdown found nothing: there will be nothing.
            Err(libc::EAGAIN) if shut => return Ok(0),
            Err(libc::EAGAIN) => {
                shut = waits.has_waited() && is_shut_for_reading(fd);
                if !shut {
                    waits.ready()?;
                }
            }
            done => return done,
        }
    }
}

/// # Safety
///
/// As `recvmsg(2)`.
unsafe fn recvmsg_now(fd: c_int, msg: *mut msghdr, flags: c_int) -> c_long {
    let flags = (flags | libc::MSG_DONTWAIT) as c_long;
    // SAFETY: by this function's contract.
    unsafe { syscall(libc::SYS_recvmsg, fd as c_long, msg, flags) }
}

/// Sends all, as a blocking socket does. `iov` is a copy of the message's buffers.
///
/// # Safety
///
/// As `sendmsg(2)`.
unsafe fn send_whole(
    fd: c_int,
    msg: &msghdr,
    iov: &mut [iovec],
    mut flags: c_int,
) -> Result<isize, c_int> {
    let mut msg = *msg;
    let mut waits = Waits::new(fd, For::Write);
    let (whole, mut sent, mut left) = (total(iov), 0, iov);
    loop {
        (msg.msg_iov, msg.msg_iovlen) = (left.as_mut_ptr(), left.len());
        let now = (flags | libc::MSG_DONTWAIT) as c_long;
        // SAFETY: by this function's contract; the buffers are what is left of the message's.
        let done =
            checked(unsafe { syscall(libc::SYS_sendmsg, fd as c_long, &raw const msg, now) });
        let waited = match done {
            Ok(n) => {
                sent += n;
                if n == 0 || sent as usize >= whole {
                    return Ok(sent);
                }
                left = advance(left, n as usize);
                // Descriptors and credentials went with the first bytes. An error from here on is
                // the next call's, and so is its signal.
                (msg.msg_control, msg.msg_controllen) = (null_mut(), 0);
                flags |= libc::MSG_NOSIGNAL;
                continue;
            }
            Err(libc::EAGAIN) => waits.ready(),
            Err(errno) => Err(errno),
        };
        match waited {
            Err(_) if sent > 0 => return Ok(sent),
            Err(errno) => return Err(errno),
            Ok(()) => {}
        }
    }
}

/// What never waits.
const RECEIVES_AT_ONCE: c_int = libc::MSG_DONTWAIT | libc::MSG_ERRQUEUE | libc::MSG_OOB;
/// What never waits, and TCP fast open, which connects.
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
    let now = |done: usize, flags: c_int| {
        let (buf, flags) = (buf.wrapping_byte_add(done), flags as c_long);
        // SAFETY: by this function's contract.
        unsafe {
            let fd = fd as c_long;
            syscall(
                libc::SYS_recvfrom,
                fd,
                buf,
                len - done,
                flags,
                addr,
                addr_len,
            )
        }
    };
    if !may_wait(fd) || flags & RECEIVES_AT_ONCE != 0 {
        return now(0, flags) as isize;
    }
    let one_by_one = flags & !libc::MSG_WAITALL | libc::MSG_DONTWAIT;
    if flags & libc::MSG_WAITALL == 0 || socket_type(fd) != Ok(libc::SOCK_STREAM) {
        return or_fail(receive(fd, || now(0, one_by_one)));
    }
    if flags & libc::MSG_PEEK != 0 {
        // What was seen stays, so that readiness says nothing about more.
        return in_section(|| now(0, flags) as isize);
    }
    let mut done = 0;
    while done < len {
        match receive(fd, || now(done, one_by_one)) {
            Ok(0) => break,
            Ok(n) => done += n as usize,
            Err(_) if done > 0 => break,
            Err(errno) => return fail(errno),
        }
    }
    done as isize
}

#[unsafe(no_mangle)]
unsafe extern "C" fn recvmsg(fd: c_int, msg: *mut msghdr, flags: c_int) -> isize {
    let plain = || {
        // SAFETY: by this function's contract.
        unsafe { syscall(libc::SYS_recvmsg, fd as c_long, msg, flags as c_long) as isize }
    };
    if !may_wait(fd) || flags & RECEIVES_AT_ONCE != 0 {
        return plain();
    }
    if flags & libc::MSG_WAITALL != 0 && socket_type(fd) == Ok(libc::SOCK_STREAM) {
        // Parts of it could have control data each.
        return in_section(plain);
    }
    // SAFETY: by this function's contract.
    or_fail(receive(fd, || unsafe { recvmsg_now(fd, msg, flags) }))
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
    if !may_wait(fd) || flags & SENDS_AT_ONCE != 0 {
        let (fd, flags, addr_len) = (fd as c_long, flags as c_long, addr_len as c_long);
        // SAFETY: by this function's contract.
        return unsafe { syscall(libc::SYS_sendto, fd, buf, len, flags, addr, addr_len) as isize };
    }
    let mut iov = one(buf.cast_mut(), len);
    let mut msg = message(&mut iov);
    (msg.msg_name, msg.msg_namelen) = (addr.cast_mut().cast(), addr_len);
    // SAFETY: by this function's contract.
    or_fail(unsafe { send_whole(fd, &msg, &mut iov, flags) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sendmsg(fd: c_int, msg: *const msghdr, flags: c_int) -> isize {
    // SAFETY: by this function's contract.
    let readable = unsafe { msg.as_ref() }
        .filter(|msg| may_wait(fd) && flags & SENDS_AT_ONCE == 0 && msg.msg_iovlen <= 1024);
    let Some(readable) = readable else {
        // SAFETY: by this function's contract.
        return unsafe { syscall(libc::SYS_sendmsg, fd as c_long, msg, flags as c_long) as isize };
    };
    let mut iov = match readable.msg_iovlen {
        0 => Vec::new(),
        // SAFETY: by this function's contract.
        n => unsafe { std::slice::from_raw_parts(readable.msg_iov, n) }.to_vec(),
    };
    // SAFETY: by this function's contract.
    or_fail(unsafe { send_whole(fd, readable, &mut iov, flags) })
}

/// `SO_TYPE`.
fn socket_type(fd: c_int) -> Result<c_int, c_int> {
    let mut kind: c_int = 0;
    let mut len = size_of_val(&kind) as socklen_t;
    let (at, len) = ((&raw mut kind).cast(), &raw mut len);
    // SAFETY: the value is as long as `len` says.
    let r = unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_TYPE, at, len) };
    checked(r as c_long).map(|_| kind)
}

/// Calls `f`, which blocks, in a section in which the P is handed to another thread. The goroutine
/// stays on its own.
fn in_section(f: impl FnOnce() -> isize) -> isize {
    let (n, errno) = foreign::block(|| (f(), errno()));
    if n < 0 {
        set_errno(errno);
    }
    n
}

// Connections.

#[unsafe(no_mangle)]
unsafe extern "C" fn connect(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int {
    let plain = || {
        // SAFETY: by this function's contract.
        unsafe { syscall(libc::SYS_connect, fd as c_long, addr, len as c_long) as isize }
    };
    let connects = matches!(socket_type_if_waiting(fd), Some(kind) if kind != libc::SOCK_DGRAM);
    if !connects {
        return plain() as c_int;
    }
    let deadline_ns = socket_deadline(fd, For::Write);
    // SAFETY: by this function's contract.
    match unsafe { foreign::connect(fd, addr, len, deadline_ns) } {
        Some(Ok(())) => 0,
        Some(Err(errno)) => fail(errno) as c_int,
        None => in_section(plain) as c_int,
    }
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
    let plain = || {
        // SAFETY: by this function's contract.
        unsafe { syscall(libc::SYS_accept4, fd as c_long, addr, len, flags as c_long) as c_int }
    };
    const KNOWN: c_int = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    if flags & !KNOWN != 0 || socket_type_if_waiting(fd).is_none() {
        return plain();
    }
    let deadline_ns = socket_deadline(fd, For::Read);
    // SAFETY: by this function's contract.
    match unsafe { foreign::accept(fd, addr, len, deadline_ns) } {
        Some(Ok(new)) => {
            set_flags(new, flags);
            new
        }
        Some(Err(errno)) => fail(errno) as c_int,
        None => match Waits::new(fd, For::Read).ready() {
            Ok(()) => plain(),
            Err(errno) => fail(errno) as c_int,
        },
    }
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
            unsafe { syscall(libc::SYS_ppoll, fds, n, left, mask, MASK_LEN) as isize }
        };
        return in_section_if_parks(plain) as c_int;
    }
    // SAFETY: by this function's contract.
    unsafe { poll_for(fds, n, valid.flatten()) }
}

fn in_section_if_parks(f: impl FnOnce() -> isize) -> isize {
    if parks() { in_section(f) } else { f() }
}

/// `poll` for at most `time`.
///
/// # Safety
///
/// As `poll(2)`.
unsafe fn poll_for(fds: *mut pollfd, n: nfds_t, time: Option<Duration>) -> c_int {
    let plain = |time: Option<Duration>| {
        let mut left = time.map(wait::timespec_of);
        let left = left.as_mut().map_or(null_mut(), std::ptr::from_mut);
        let no_mask = null::<sigset_t>();
        // SAFETY: by this function's contract.
        unsafe { syscall(libc::SYS_ppoll, fds, n, left, no_mask, MASK_LEN) as isize }
    };
    if time == Some(Duration::ZERO) || !parks() {
        return plain(time) as c_int;
    }
    let deadline_ns = time.map_or(NEVER, foreign::deadline_ns);
    let mut pace = wait::Pace::default();
    loop {
        let ready = plain(Some(Duration::ZERO));
        if ready != 0 {
            return ready as c_int;
        }
        let all = match n as usize {
            0 => &[],
            // SAFETY: by this function's contract; the kernel has just written them.
            n => unsafe { std::slice::from_raw_parts(fds, n) },
        };
        match pace.wait(deadline_ns, || wait::wait_for_any(all, deadline_ns)) {
            Waited::Ready => {}
            Waited::TimedOut => return plain(Some(Duration::ZERO)) as c_int,
            Waited::Failed(errno) => return fail(errno) as c_int,
            Waited::Impossible => return in_section(|| plain(left_of(deadline_ns))) as c_int,
        }
    }
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
        unsafe { syscall(libc::SYS_pselect6, n as c_long, r, w, e, time, mask) as isize }
    };
    let now = || plain(Some(wait::timespec_of(Duration::ZERO)));
    let length = time.map(wait::duration_of);
    if !parks() || length == Some(Some(Duration::ZERO)) {
        return plain(time) as c_int;
    }
    let n = match looked_at(n) {
        Some(n) if mask.is_null() && length != Some(None) => n,
        _ => return in_section(|| plain(time)) as c_int,
    };
    let deadline_ns = length.flatten().map_or(NEVER, foreign::deadline_ns);
    // SAFETY: by this function's contract.
    let wanted = sets.map(|set| unsafe { words(set, n) }.to_vec());
    let fds = polled(&wanted, n);
    let restore = || {
        for (set, wanted) in sets.into_iter().zip(&wanted) {
            // SAFETY: by this function's contract.
            unsafe { words(set, n) }.copy_from_slice(wanted);
        }
    };
    let mut pace = wait::Pace::default();
    loop {
        let ready = now();
        if ready != 0 {
            return ready as c_int;
        }
        let waited = pace.wait(deadline_ns, || wait::wait_for_any(&fds, deadline_ns));
        restore();
        match waited {
            Waited::Ready => {}
            Waited::TimedOut => return now() as c_int,
            Waited::Failed(errno) => return fail(errno) as c_int,
            Waited::Impossible => {
                let left = left_of(deadline_ns).map(wait::timespec_of);
                return in_section(|| plain(left)) as c_int;
            }
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

fn polled(sets: &[Vec<u64>; 3], n: c_int) -> Vec<pollfd> {
    let events = [libc::POLLIN, libc::POLLOUT, libc::POLLPRI];
    let of = |fd: c_int| {
        let is_in = |set: &Vec<u64>| {
            let word = set.get(fd as usize / 64).copied().unwrap_or(0);
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
    if !foreign::sleep_until(deadline_ns) {
        wait::slow_down();
    }
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
        _ => unsafe { syscall(libc::SYS_nanosleep, time, left) as c_int },
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
            let (clock, flags) = (clock as c_long, flags as c_long);
            let plain = || {
                // SAFETY: by this function's contract.
                unsafe { syscall(libc::SYS_clock_nanosleep, clock, flags, time, left) as isize }
            };
            // The result is the error.
            if in_section_if_parks(plain) == 0 {
                0
            } else {
                errno()
            }
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
    if !parks() {
        return call();
    }
    let (result, errno) = foreign::block(|| (call(), errno()));
    if result == libc::EAI_SYSTEM {
        set_errno(errno);
    }
    result
}

/// Finds libc's own function. `None` in a program without a dynamic loader.
fn real(name: &CStr, found: &AtomicPtr<c_void>) -> Option<*mut c_void> {
    // Ordering: relaxed. Every thread finds the same address, and code is there from the start.
    let mut address = found.load(Ordering::Relaxed);
    if address.is_null() {
        // SAFETY: the name ends with a null byte.
        address = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
        found.store(address, Ordering::Relaxed);
    }
    (!address.is_null()).then_some(address)
}

// What has no form that does not wait.

#[unsafe(no_mangle)]
unsafe extern "C" fn sendfile(to: c_int, from: c_int, at: *mut libc::off_t, n: usize) -> isize {
    // SAFETY: by this function's contract.
    unsafe { sendfile64(to, from, at, n) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sendfile64(to: c_int, from: c_int, at: *mut libc::off64_t, n: usize) -> isize {
    let (to, from) = (to as c_long, from as c_long);
    // SAFETY: by this function's contract.
    in_section_if_parks(|| unsafe { syscall(libc::SYS_sendfile, to, from, at, n) as isize })
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
    let (from, to, how) = (from as c_long, to as c_long, flags as c_long);
    // SAFETY: by this function's contract.
    let call = || unsafe { syscall(libc::SYS_splice, from, from_at, to, to_at, n, how) as isize };
    if flags & libc::SPLICE_F_NONBLOCK != 0 {
        return call();
    }
    in_section_if_parks(call)
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
    let (who, how) = (pid as c_long, options as c_long);
    // SAFETY: by this function's contract.
    let call = || unsafe { syscall(libc::SYS_wait4, who, status, how, usage) as isize };
    let waits = options & libc::WNOHANG == 0;
    (if waits {
        in_section_if_parks(call)
    } else {
        call()
    }) as libc::pid_t
}

#[unsafe(no_mangle)]
unsafe extern "C" fn waitid(
    of: libc::idtype_t,
    id: libc::id_t,
    info: *mut libc::siginfo_t,
    options: c_int,
) -> c_int {
    let (of, id, how) = (of as c_long, id as c_long, options as c_long);
    let no_usage = null::<libc::rusage>();
    // SAFETY: by this function's contract.
    let call = || unsafe { syscall(libc::SYS_waitid, of, id, info, how, no_usage) as isize };
    let waits = options & libc::WNOHANG == 0;
    (if waits {
        in_section_if_parks(call)
    } else {
        call()
    }) as c_int
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
    in_section_if_parks(|| unsafe { join(thread, value) as isize }) as c_int
}

// What callers wait in while they keep thread-locals, as tokio's runtimes do, or what no ring can do.

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
    let (set, n, ms) = (set as c_long, n as c_long, timeout_ms as c_long);
    let call = || {
        // SAFETY: by this function's contract.
        unsafe { syscall(libc::SYS_epoll_pwait, set, events, n, ms, mask, MASK_LEN) as isize }
    };
    in_section_unless(ms == 0, call) as c_int
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
    let time = unsafe { timeout.as_ref() }.map(|time| (time.tv_sec, time.tv_nsec));
    let (set, n) = (set as c_long, n as c_long);
    let call = || {
        // SAFETY: by this function's contract.
        unsafe {
            let number = libc::SYS_epoll_pwait2;
            syscall(number, set, events, n, timeout, mask, MASK_LEN) as isize
        }
    };
    in_section_unless(time == Some((0, 0)), call) as c_int
}

fn in_section_unless(at_once: bool, call: impl FnOnce() -> isize) -> isize {
    if at_once {
        call()
    } else {
        in_section_if_parks(call)
    }
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
    let (fd, n, flags) = (fd as c_long, n as c_long, flags as c_long);
    // SAFETY: by this function's contract.
    let call = || unsafe { syscall(libc::SYS_recvmmsg, fd, msgs, n, flags, timeout) as isize };
    in_section_unless(at_once, call) as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sendmmsg(
    fd: c_int,
    msgs: *mut libc::mmsghdr,
    n: c_uint,
    flags: c_int,
) -> c_int {
    let at_once = flags & libc::MSG_DONTWAIT != 0;
    let (fd, n, flags) = (fd as c_long, n as c_long, flags as c_long);
    // SAFETY: by this function's contract.
    let call = || unsafe { syscall(libc::SYS_sendmmsg, fd, msgs, n, flags) as isize };
    in_section_unless(at_once, call) as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C" fn flock(fd: c_int, how: c_int) -> c_int {
    // SAFETY: takes plain numbers.
    let call = || unsafe { syscall(libc::SYS_flock, fd as c_long, how as c_long) as isize };
    in_section_unless(how & (libc::LOCK_NB | libc::LOCK_UN) != 0, call) as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fsync(fd: c_int) -> c_int {
    // SAFETY: takes a plain number.
    in_section_if_parks(|| unsafe { syscall(libc::SYS_fsync, fd as c_long) as isize }) as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdatasync(fd: c_int) -> c_int {
    // SAFETY: takes a plain number.
    in_section_if_parks(|| unsafe { syscall(libc::SYS_fdatasync, fd as c_long) as isize }) as c_int
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
    in_section_if_parks(|| unsafe { wait(sem) as isize }) as c_int
}

// What programs call that were compiled with _FORTIFY_SOURCE. Each knows the size of the buffer.

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

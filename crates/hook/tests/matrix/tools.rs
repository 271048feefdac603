//! Calls of libc that tell what they did, and files to make them on.

use std::ffi::CString;
use std::io;
use std::mem::{MaybeUninit, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use libc::{c_int, c_void, iovec, msghdr, pollfd, sockaddr, socklen_t, timespec, timeval};

/// An `errno` that no call sets.
const UNTOUCHED: c_int = 77;

#[inline(never)]
fn set_errno(value: c_int) {
    // SAFETY: the address is valid on this thread.
    unsafe { *libc::__errno_location() = value };
}

#[inline(never)]
fn errno() -> c_int {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// The text of an error, without its number.
fn text_of(errno: c_int) -> String {
    let text = io::Error::from_raw_os_error(errno).to_string();
    text.split(" (").next().unwrap_or_default().to_owned()
}

/// The result of a call: a number, or the error. A call that succeeds leaves `errno` alone.
pub(crate) fn got<N: Into<i64>>(call: impl FnOnce() -> N) -> String {
    set_errno(UNTOUCHED);
    let n = call().into();
    match (n, errno()) {
        (-1, errno) => text_of(errno),
        (n, UNTOUCHED) => n.to_string(),
        (n, errno) => format!("{n}, but errno is {errno}"),
    }
}

fn size(n: isize) -> i64 {
    n as i64
}

/// The result of a call that fills a buffer, and what it wrote.
fn filled(len: usize, call: impl FnOnce(*mut c_void) -> isize) -> String {
    let mut buf = vec![0; len.max(1)];
    let result = got(|| size(call(buf.as_mut_ptr().cast())));
    while buf.last() == Some(&0) {
        buf.pop();
    }
    match buf.len() {
        0 => result,
        1..=40 => format!("{result} {:?}", String::from_utf8_lossy(&buf)),
        n => format!("{result} of {n}"),
    }
}

// Reading and writing.

pub(crate) fn read(fd: RawFd, len: usize) -> String {
    // SAFETY: the buffer is as long as the call says.
    filled(len, |buf| unsafe { libc::read(fd, buf, len) })
}

/// Into an address that is not mapped.
pub(crate) fn read_nowhere(fd: RawFd) -> String {
    // SAFETY: nothing is mapped there, so that the kernel writes nothing.
    got(|| size(unsafe { libc::read(fd, nowhere().cast_mut(), 9) }))
}

pub(crate) fn nowhere() -> *const c_void {
    std::ptr::without_provenance(16)
}

/// Into buffers of these lengths.
pub(crate) fn readv(fd: RawFd, lens: &[usize]) -> String {
    filled(lens.iter().sum(), |buf| {
        let iov = parts(buf, lens);
        // SAFETY: the buffers are parts of one that is as long as all of them.
        unsafe { libc::readv(fd, iov.as_ptr(), iov.len() as c_int) }
    })
}

fn parts(buf: *mut c_void, lens: &[usize]) -> Vec<iovec> {
    let mut at = 0;
    let part = |&len: &usize| {
        let iov_base = buf.wrapping_byte_add(at);
        at += len;
        iovec {
            iov_base,
            iov_len: len,
        }
    };
    lens.iter().map(part).collect()
}

/// `readv` and `writev` of so many buffers, of which none is there.
pub(crate) fn vectors(fd: RawFd, n: c_int) -> String {
    let iov = parts(null_mut(), &[0; 2000]);
    // SAFETY: the array is longer than the numbers that the tests give.
    let [r, w] = unsafe {
        [
            got(|| size(libc::readv(fd, iov.as_ptr(), n))),
            got(|| size(libc::writev(fd, iov.as_ptr(), n))),
        ]
    };
    format!("{r} {w}")
}

pub(crate) fn write(fd: RawFd, bytes: &[u8]) -> String {
    // SAFETY: the buffer is as long as the call says.
    got(|| size(unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) }))
}

pub(crate) fn write_from_nowhere(fd: RawFd) -> String {
    // SAFETY: nothing is mapped there, so that the kernel reads nothing.
    got(|| size(unsafe { libc::write(fd, nowhere(), 9) }))
}

pub(crate) fn writev(fd: RawFd, bytes: &[u8], lens: &[usize]) -> String {
    let iov = parts(bytes.as_ptr().cast_mut().cast(), lens);
    // SAFETY: the buffers are parts of one that is as long as all of them.
    got(|| size(unsafe { libc::writev(fd, iov.as_ptr(), iov.len() as c_int) }))
}

pub(crate) fn recv(fd: RawFd, len: usize, flags: c_int) -> String {
    // SAFETY: the buffer is as long as the call says.
    filled(len, |buf| unsafe { libc::recv(fd, buf, len, flags) })
}

/// With the length of the sender's address; without a place for that if `addr` is null.
pub(crate) fn recvfrom(fd: RawFd, len: usize, flags: c_int, addr_len: Option<socklen_t>) -> String {
    let mut addr = [0_u8; 128];
    let mut n = addr_len.unwrap_or(0);
    let n_at = addr_len.map_or(null_mut(), |_| &raw mut n);
    let at = addr.as_mut_ptr().cast::<sockaddr>();
    let got = filled(len, |buf| {
        // SAFETY: the buffers are as long as the call says.
        unsafe { libc::recvfrom(fd, buf, len, flags, at, n_at) }
    });
    format!("{got} from {n}:{}", addr[0])
}

/// With a place for control data of so many bytes.
pub(crate) fn recvmsg(fd: RawFd, lens: &[usize], control: usize, flags: c_int) -> String {
    let (mut place, mut came) = ([0_u64; 64], (0, 0, 0));
    let got = filled(lens.iter().sum(), |buf| {
        let mut iov = parts(buf, lens);
        let mut msg = message(&mut iov);
        let mut addr = [0_u8; 128];
        (msg.msg_name, msg.msg_namelen) = (addr.as_mut_ptr().cast(), 128);
        // The kernel does not read them.
        msg.msg_flags = -1;
        if control > 0 {
            (msg.msg_control, msg.msg_controllen) = (place.as_mut_ptr().cast(), control);
        }
        // SAFETY: the buffers are as long as the message says.
        let n = unsafe { libc::recvmsg(fd, &raw mut msg, flags) };
        if n >= 0 {
            came = (msg.msg_namelen, msg.msg_controllen, msg.msg_flags);
            close_received(&msg);
        }
        n
    });
    format!("{got} {came:?}")
}

fn close_received(msg: &msghdr) {
    // SAFETY: the kernel has written the control data.
    unsafe {
        let first = libc::CMSG_FIRSTHDR(msg);
        if !first.is_null() && (*first).cmsg_type == libc::SCM_RIGHTS {
            libc::close(libc::CMSG_DATA(first).cast::<c_int>().read_unaligned());
        }
    }
}

pub(crate) fn message(iov: &mut [iovec]) -> msghdr {
    // SAFETY: all zeros is an empty message.
    let mut msg: msghdr = unsafe { zeroed() };
    (msg.msg_iov, msg.msg_iovlen) = (iov.as_mut_ptr(), iov.len());
    msg
}

pub(crate) fn send(fd: RawFd, bytes: &[u8], flags: c_int) -> String {
    // SAFETY: the buffer is as long as the call says.
    got(|| size(unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), flags) }))
}

pub(crate) fn sendto(fd: RawFd, bytes: &[u8], flags: c_int, to: &Addr) -> String {
    let (at, len) = (bytes.as_ptr().cast(), bytes.len());
    // SAFETY: the buffers are as long as the call says.
    got(|| size(unsafe { libc::sendto(fd, at, len, flags, to.at(), to.len) }))
}

/// With a descriptor as control data.
pub(crate) fn sendmsg(fd: RawFd, bytes: &[u8], lens: &[usize], passed: Option<RawFd>) -> String {
    let mut iov = parts(bytes.as_ptr().cast_mut().cast(), lens);
    let mut msg = message(&mut iov);
    let mut control = [0_u64; 8];
    if let Some(passed) = passed {
        msg.msg_control = control.as_mut_ptr().cast();
        // SAFETY: the place is longer than a header and a number.
        unsafe {
            msg.msg_controllen = libc::CMSG_SPACE(4) as usize;
            let first = libc::CMSG_FIRSTHDR(&raw const msg);
            (*first).cmsg_level = libc::SOL_SOCKET;
            (*first).cmsg_type = libc::SCM_RIGHTS;
            (*first).cmsg_len = libc::CMSG_LEN(4) as usize;
            libc::CMSG_DATA(first)
                .cast::<c_int>()
                .write_unaligned(passed);
        }
    }
    // SAFETY: the buffers are as long as the message says.
    got(|| size(unsafe { libc::sendmsg(fd, &raw const msg, 0) }))
}

// Connections.

pub(crate) fn accept(fd: RawFd) -> String {
    accept4(fd, 0)
}

/// Accepts, and returns the flags of the new socket, and the length of the address.
pub(crate) fn accept4(fd: RawFd, flags: c_int) -> String {
    let (mut addr, mut len) = ([0_u8; 128], 128);
    let mut new = -1;
    let got = got(|| {
        // SAFETY: the place is as long as the call says.
        new = unsafe { libc::accept4(fd, addr.as_mut_ptr().cast(), &raw mut len, flags) };
        new.min(0)
    });
    if new < 0 {
        return got;
    }
    // SAFETY: the call returned a descriptor that has no other owner.
    let new = unsafe { OwnedFd::from_raw_fd(new) };
    format!("{got} {} from {len}:{}", flags_of(new.as_raw_fd()), addr[0])
}

pub(crate) fn flags_of(fd: RawFd) -> String {
    // SAFETY: takes plain numbers.
    unsafe {
        let mode = libc::fcntl(fd, libc::F_GETFL) & libc::O_NONBLOCK;
        format!("{:x}/{}", mode, libc::fcntl(fd, libc::F_GETFD))
    }
}

pub(crate) fn connect(fd: RawFd, to: &Addr) -> String {
    // SAFETY: the address is as long as the call says.
    got(|| unsafe { libc::connect(fd, to.at(), to.len) })
}

/// An address.
pub(crate) struct Addr {
    bytes: [u64; 16],
    pub(crate) len: socklen_t,
}

impl Addr {
    fn at(&self) -> *const sockaddr {
        self.bytes.as_ptr().cast()
    }

    /// A Unix address without a file.
    pub(crate) fn unix() -> Addr {
        static N: AtomicU32 = AtomicU32::new(0);
        let n = N.fetch_add(1, Ordering::Relaxed);
        let name = format!("windlass-hook-matrix-{}-{n}", std::process::id());
        let mut bytes = [0; 128];
        bytes[0] = libc::AF_UNIX as u8;
        bytes[3..3 + name.len()].copy_from_slice(name.as_bytes());
        Addr {
            bytes: words(&bytes),
            len: 3 + name.len() as socklen_t,
        }
    }

    /// A port of this machine; 0 for any.
    pub(crate) fn loopback() -> Addr {
        let mut bytes = [0; 128];
        bytes[0] = libc::AF_INET as u8;
        bytes[4..8].copy_from_slice(&[127, 0, 0, 1]);
        Addr {
            bytes: words(&bytes),
            len: 16,
        }
    }

    /// Too short for its family.
    pub(crate) fn short() -> Addr {
        Addr {
            len: 3,
            ..Addr::loopback()
        }
    }

    /// Of a family that no socket has.
    pub(crate) fn strange() -> Addr {
        let mut addr = Addr::loopback();
        addr.bytes[0] |= 0xff;
        addr
    }

    /// The address of a socket.
    pub(crate) fn of(fd: RawFd) -> Addr {
        let mut addr = Addr {
            bytes: [0; 16],
            len: 128,
        };
        let at = addr.bytes.as_mut_ptr().cast();
        // SAFETY: the place is as long as the call says.
        assert_eq!(unsafe { libc::getsockname(fd, at, &raw mut addr.len) }, 0);
        addr
    }
}

fn words(bytes: &[u8; 128]) -> [u64; 16] {
    let mut words = [0; 16];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks(8)) {
        *word = u64::from_ne_bytes(bytes.try_into().unwrap());
    }
    words
}

// Waiting.

/// The result, and the events of each descriptor.
pub(crate) fn poll(fds: &[(RawFd, i16)], timeout_ms: c_int) -> String {
    let mut all = pollfds(fds);
    // SAFETY: the array is as long as the call says.
    let got = got(|| unsafe { libc::poll(all.as_mut_ptr(), all.len() as u64, timeout_ms) });
    shown(&got, &all)
}

pub(crate) fn ppoll(fds: &[(RawFd, i16)], time: (i64, i64), with_mask: bool) -> String {
    let mut all = pollfds(fds);
    let (time, mask) = (timespec_of(time), no_signals());
    let mask = if with_mask { &raw const mask } else { null() };
    // SAFETY: the array is as long as the call says.
    let got = got(|| unsafe { libc::ppoll(all.as_mut_ptr(), all.len() as u64, &time, mask) });
    shown(&got, &all)
}

fn pollfds(fds: &[(RawFd, i16)]) -> Vec<pollfd> {
    let one = |&(fd, events)| pollfd {
        fd,
        events,
        revents: 7,
    };
    fds.iter().map(one).collect()
}

fn shown(got: &str, all: &[pollfd]) -> String {
    let events: Vec<_> = all.iter().map(|one| format!("{:x}", one.revents)).collect();
    format!("{got} {events:?}")
}

/// `poll` of an array that is not there.
pub(crate) fn poll_nothing(n: u64, timeout_ms: c_int) -> String {
    // SAFETY: nothing is mapped there, so that the kernel writes nothing.
    got(|| unsafe { libc::poll(null_mut(), n, timeout_ms) })
}

fn no_signals() -> libc::sigset_t {
    // SAFETY: all zeros is an empty set.
    unsafe { zeroed() }
}

pub(crate) fn timespec_of((tv_sec, tv_nsec): (i64, i64)) -> timespec {
    timespec { tv_sec, tv_nsec }
}

/// `select` for these descriptors to read, write and except from, and whether each is ready.
pub(crate) fn select(n: c_int, sets: [&[RawFd]; 3], time: Option<(i64, i64)>) -> String {
    // SAFETY: all zeros is an empty set.
    let mut of: [libc::fd_set; 3] = unsafe { zeroed() };
    for (set, fds) in of.iter_mut().zip(sets) {
        // SAFETY: the numbers are less than those of a set.
        fds.iter().for_each(|&fd| unsafe { libc::FD_SET(fd, set) });
    }
    let mut time = time.map(|(tv_sec, tv_usec)| timeval { tv_sec, tv_usec });
    let time_at = time.as_mut().map_or(null_mut(), std::ptr::from_mut);
    let [r, w, e] = of.each_mut().map(std::ptr::from_mut);
    // SAFETY: the sets and the time are valid.
    let got = got(|| unsafe { libc::select(n, r, w, e, time_at) });
    let is_set = |(set, fds): (&libc::fd_set, &[RawFd])| {
        // SAFETY: as above.
        let ready = fds.iter().map(|&fd| unsafe { libc::FD_ISSET(fd, set) });
        ready.collect::<Vec<_>>()
    };
    let ready: Vec<_> = of.iter().zip(sets).map(is_set).collect();
    let left = time.map(|time| time.tv_sec);
    format!("{got} {ready:?} {left:?}")
}

pub(crate) fn pselect(n: c_int, reads: &[RawFd], time: (i64, i64), with_mask: bool) -> String {
    // SAFETY: all zeros is an empty set; the numbers are less than those of a set.
    let mut set: libc::fd_set = unsafe { zeroed() };
    // SAFETY: as above.
    reads
        .iter()
        .for_each(|&fd| unsafe { libc::FD_SET(fd, &mut set) });
    let (time, mask) = (timespec_of(time), no_signals());
    let mask = if with_mask { &raw const mask } else { null() };
    let (at, none) = (&raw mut set, null_mut());
    // SAFETY: the set, the time and the mask are valid.
    got(|| unsafe { libc::pselect(n, at, none, none, &raw const time, mask) })
}

pub(crate) fn nanosleep(time: (i64, i64)) -> String {
    let time = timespec_of(time);
    // SAFETY: the time is valid.
    got(|| unsafe { libc::nanosleep(&raw const time, null_mut()) })
}

pub(crate) fn clock_nanosleep(clock: c_int, flags: c_int, time: (i64, i64)) -> String {
    let time = timespec_of(time);
    // SAFETY: the time is valid. It returns the error.
    got(|| unsafe { libc::clock_nanosleep(clock, flags, &raw const time, null_mut()) })
}

/// `epoll_wait`, or `epoll_pwait2`, for so many events.
pub(crate) fn epoll_wait(set: RawFd, n: c_int, timeout_ms: c_int, is_2: bool) -> String {
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; 4];
    let time = timespec_of((0, i64::from(timeout_ms) * 1_000_000));
    let at = events.as_mut_ptr();
    let got = got(|| match is_2 {
        // SAFETY: there is room for the events.
        true => unsafe { libc::epoll_pwait2(set, at, n, &raw const time, null()) },
        // SAFETY: as above.
        false => unsafe { libc::epoll_wait(set, at, n, timeout_ms) },
    });
    let (shown, data) = (events[0].events, events[0].u64);
    format!("{got} {shown:x} {data}")
}

// Files. Each pair closes its descriptors when it is dropped.

pub(crate) struct Pair {
    pub(crate) a: RawFd,
    pub(crate) b: RawFd,
    own: [Option<OwnedFd>; 2],
}

impl Pair {
    fn new(fds: [RawFd; 2]) -> Pair {
        assert!(
            fds.iter().all(|&fd| fd >= 0),
            "{}",
            io::Error::last_os_error()
        );
        let [a, b] = fds;
        // SAFETY: the tests own the descriptors that they have just opened.
        let own = fds.map(|fd| Some(unsafe { OwnedFd::from_raw_fd(fd) }));
        Pair { a, b, own }
    }

    /// Closes the first, or hands it on to be closed later.
    pub(crate) fn take_a(&mut self) -> OwnedFd {
        self.own[0].take().unwrap()
    }

    pub(crate) fn take_b(&mut self) -> OwnedFd {
        self.own[1].take().unwrap()
    }
}

/// To read from, and to write to.
pub(crate) fn pipe() -> Pair {
    let mut fds = [-1; 2];
    // SAFETY: there is room for two.
    unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) };
    Pair::new(fds)
}

pub(crate) fn unix(kind: c_int) -> Pair {
    let mut fds = [-1; 2];
    let kind = kind | libc::SOCK_CLOEXEC;
    // SAFETY: there is room for two.
    unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, fds.as_mut_ptr()) };
    Pair::new(fds)
}

pub(crate) fn socket(family: c_int, kind: c_int) -> OwnedFd {
    // SAFETY: takes plain numbers; the call returns a descriptor that has no other owner.
    unsafe { OwnedFd::from_raw_fd(libc::socket(family, kind | libc::SOCK_CLOEXEC, 0)) }
}

/// A socket at an address of its own.
pub(crate) fn bound(kind: c_int, to: &Addr) -> OwnedFd {
    let family = (to.bytes[0] & 0xff) as c_int;
    let socket = socket(family, kind);
    // SAFETY: the address is as long as the call says.
    let done = unsafe { libc::bind(socket.as_raw_fd(), to.at(), to.len) };
    assert_eq!(done, 0);
    socket
}

pub(crate) fn listener(to: &Addr, backlog: c_int) -> OwnedFd {
    let socket = bound(libc::SOCK_STREAM, to);
    // SAFETY: takes plain numbers.
    assert_eq!(unsafe { libc::listen(socket.as_raw_fd(), backlog) }, 0);
    socket
}

/// A client and a server of TCP.
pub(crate) fn tcp() -> Pair {
    let listener = listener(&Addr::loopback(), 8);
    let client = socket(libc::AF_INET, libc::SOCK_STREAM);
    let to = Addr::of(listener.as_raw_fd());
    assert_eq!(connect(client.as_raw_fd(), &to), "0");
    // SAFETY: the address of the client is not asked for.
    let server = unsafe { libc::accept(listener.as_raw_fd(), null_mut(), null_mut()) };
    Pair::new([std::os::fd::IntoRawFd::into_raw_fd(client), server])
}

/// A terminal: its master, and its slave in raw mode.
pub(crate) fn terminal() -> Pair {
    // SAFETY: the calls take descriptors, plain numbers and places that are valid.
    unsafe {
        let master = libc::posix_openpt(libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC);
        assert_eq!((libc::grantpt(master), libc::unlockpt(master)), (0, 0));
        let mut name = [0; 64];
        assert_eq!(libc::ptsname_r(master, name.as_mut_ptr(), 64), 0);
        let slave = libc::open(
            name.as_ptr(),
            libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC,
        );
        let mut modes = MaybeUninit::<libc::termios>::uninit();
        assert_eq!(libc::tcgetattr(slave, modes.as_mut_ptr()), 0);
        let mut modes = modes.assume_init();
        libc::cfmakeraw(&raw mut modes);
        assert_eq!(libc::tcsetattr(slave, libc::TCSANOW, &raw const modes), 0);
        Pair::new([master, slave])
    }
}

pub(crate) fn eventfd(value: u32) -> OwnedFd {
    // SAFETY: takes plain numbers; the call returns a descriptor that has no other owner.
    unsafe { OwnedFd::from_raw_fd(libc::eventfd(value, libc::EFD_CLOEXEC)) }
}

pub(crate) fn timerfd(ms: i64) -> OwnedFd {
    let mut time = libc::itimerspec {
        it_interval: timespec_of((0, 0)),
        it_value: timespec_of((0, ms * 1_000_000)),
    };
    // SAFETY: the time is valid; the call returns a descriptor that has no other owner.
    unsafe {
        let fd = libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC);
        assert_eq!(libc::timerfd_settime(fd, 0, &raw mut time, null_mut()), 0);
        OwnedFd::from_raw_fd(fd)
    }
}

pub(crate) fn epoll() -> OwnedFd {
    // SAFETY: takes a plain number; the call returns a descriptor that has no other owner.
    unsafe { OwnedFd::from_raw_fd(libc::epoll_create1(libc::EPOLL_CLOEXEC)) }
}

pub(crate) fn watch(set: RawFd, fd: RawFd, events: c_int) {
    let mut event = libc::epoll_event {
        events: events as u32,
        u64: 5,
    };
    // SAFETY: the event is valid.
    let done = unsafe { libc::epoll_ctl(set, libc::EPOLL_CTL_ADD, fd, &raw mut event) };
    assert_eq!(done, 0);
}

pub(crate) fn open(path: &str, flags: c_int) -> OwnedFd {
    let path = CString::new(path).unwrap();
    // SAFETY: the path ends with a zero byte; the call returns a descriptor that has no other owner.
    unsafe { OwnedFd::from_raw_fd(libc::open(path.as_ptr(), flags | libc::O_CLOEXEC)) }
}

/// A file with this content, at its beginning.
pub(crate) fn file(content: &[u8]) -> OwnedFd {
    // SAFETY: the name ends with a zero byte; the call returns a descriptor that has no other owner.
    let fd = unsafe { OwnedFd::from_raw_fd(libc::memfd_create(c"f".as_ptr(), libc::MFD_CLOEXEC)) };
    put(fd.as_raw_fd(), content);
    // SAFETY: takes plain numbers.
    assert_eq!(unsafe { libc::lseek(fd.as_raw_fd(), 0, libc::SEEK_SET) }, 0);
    fd
}

pub(crate) fn nonblocking(fd: RawFd) {
    // SAFETY: takes plain numbers.
    let done = unsafe { libc::fcntl(fd, libc::F_SETFL, libc::O_RDWR | libc::O_NONBLOCK) };
    assert_eq!(done, 0);
}

/// `SO_RCVTIMEO` or `SO_SNDTIMEO`.
pub(crate) fn timeout(fd: RawFd, option: c_int, ms: i64) {
    let time = timeval {
        tv_sec: 0,
        tv_usec: ms * 1000,
    };
    set(fd, libc::SOL_SOCKET, option, &time);
}

pub(crate) fn set<T>(fd: RawFd, level: c_int, option: c_int, value: &T) {
    let len = size_of::<T>() as socklen_t;
    let at = std::ptr::from_ref(value).cast();
    // SAFETY: the value is as long as the call says.
    assert_eq!(unsafe { libc::setsockopt(fd, level, option, at, len) }, 0);
}

/// Closes a TCP socket by a reset.
pub(crate) fn reset(socket: OwnedFd) {
    let linger = libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    set(
        socket.as_raw_fd(),
        libc::SOL_SOCKET,
        libc::SO_LINGER,
        &linger,
    );
}

// Acts of another thread.

/// Writes bytes for which there is room.
pub(crate) fn put(fd: RawFd, bytes: &[u8]) {
    // SAFETY: the buffer is as long as the call says.
    let n = unsafe { libc::syscall(libc::SYS_write, fd, bytes.as_ptr(), bytes.len()) };
    assert_eq!(n, bytes.len() as i64, "{}", io::Error::last_os_error());
}

/// Sends until nothing more goes, and returns how many bytes went. The socket is non-blocking meanwhile.
pub(crate) fn fill(fd: RawFd) -> usize {
    let bytes = [7_u8; 1 << 12];
    let mut sum = 0;
    // SAFETY: the buffer is as long as the calls say.
    unsafe {
        let mode = libc::fcntl(fd, libc::F_GETFL);
        libc::fcntl(fd, libc::F_SETFL, mode | libc::O_NONBLOCK);
        // The kernel may still move bytes to the other end, which makes room here again.
        let mut was_full = false;
        loop {
            let n = libc::syscall(libc::SYS_write, fd, bytes.as_ptr(), bytes.len());
            match n {
                ..0 if was_full => break,
                ..0 => thread::sleep(Duration::from_millis(10)),
                _ => sum += n as usize,
            }
            was_full = n < 0;
        }
        libc::fcntl(fd, libc::F_SETFL, mode);
    }
    sum
}

/// Reads so many bytes, as a plain system call.
pub(crate) fn drain(fd: RawFd, mut n: usize) {
    let mut buf = [0_u8; 1 << 14];
    while n > 0 {
        let len = n.min(buf.len());
        // SAFETY: the buffer is as long as the call says.
        let got = unsafe { libc::syscall(libc::SYS_read, fd, buf.as_mut_ptr(), len) };
        if got <= 0 {
            return;
        }
        n -= got as usize;
    }
}

/// A thread that does something while a call waits. It is joined when this is dropped.
pub(crate) struct Later(Option<thread::JoinHandle<()>>);

/// Does it soon.
pub(crate) fn soon(f: impl FnOnce() + Send + 'static) -> Later {
    after(8, f)
}

/// Does it after so many milliseconds, fewer than a thousand.
pub(crate) fn after(ms: i64, f: impl FnOnce() + Send + 'static) -> Later {
    Later(Some(thread::spawn(move || {
        let time = timespec_of((0, ms * 1_000_000));
        // SAFETY: the time is valid.
        unsafe { libc::syscall(libc::SYS_nanosleep, &raw const time, null::<timespec>()) };
        f();
    })))
}

impl Drop for Later {
    fn drop(&mut self) {
        self.0.take().unwrap().join().unwrap();
    }
}

/// The call takes so long, at least.
pub(crate) fn lasts(ms: u64, call: impl FnOnce() -> String) -> String {
    let begin = Instant::now();
    let got = call();
    match begin.elapsed() >= Duration::from_millis(ms) {
        true => got,
        false => format!("{got}, too early"),
    }
}

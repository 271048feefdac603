//! Socket calls that `std` and socket2 do not offer in non-blocking form: single attempts, and a
//! wait for readiness on a plain thread.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use super::clock;
use super::errno::{cvt, cvt_len, retry};
use super::file;
use super::raw;

/// Receives the data that is available now, or `WouldBlock`.
///
/// # Safety
///
/// The buffer is valid for writes of `len` bytes.
#[inline]
pub unsafe fn recv_now(
    fd: BorrowedFd<'_>,
    buf: *mut u8,
    len: usize,
    flags: i32,
) -> io::Result<usize> {
    // SAFETY: by this function's contract.
    cvt_len(unsafe { raw::recv(fd.as_raw_fd(), buf.cast(), len, flags | libc::MSG_DONTWAIT) })
}

/// As [`recv_now`], into a slice.
#[inline]
pub fn recv_into_now(fd: BorrowedFd<'_>, buf: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the slice is valid for writes.
    unsafe { recv_now(fd, buf.as_mut_ptr(), buf.len(), 0) }
}

/// Makes a TCP socket report at each receive how much is left: see [`recv_left_now`].
///
/// # Errors
///
/// The kernel's, also for sockets other than TCP.
pub fn set_says_left(fd: BorrowedFd<'_>, on: bool) -> io::Result<()> {
    let on = libc::c_int::from(on);
    // SAFETY: the option is an integer, which is valid for reads during the call.
    cvt(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INQ,
            (&raw const on).cast(),
            size_of_val(&on) as libc::socklen_t,
        )
    })?;
    Ok(())
}

/// Receives the data that is available now, or `WouldBlock`, and the number of bytes left, where
/// the end of the stream counts as one. `None` if the socket does not report it
/// ([`set_says_left`]).
///
/// # Safety
///
/// As [`recv_now`].
#[inline]
pub unsafe fn recv_left_now(
    fd: BorrowedFd<'_>,
    buf: *mut u8,
    len: usize,
) -> io::Result<(usize, Option<u32>)> {
    /// A control message with one integer, of `CMSG_SPACE` bytes.
    #[repr(C)]
    struct Control {
        head: libc::cmsghdr,
        left: libc::c_int,
        pad: libc::c_int,
    }
    let mut iov = libc::iovec {
        iov_base: buf.cast(),
        iov_len: len,
    };
    let mut control = std::mem::MaybeUninit::<Control>::uninit();
    // SAFETY: all-zero is a valid msghdr.
    let mut msg: libc::msghdr = unsafe { std::mem::zeroed() };
    msg.msg_iov = &raw mut iov;
    msg.msg_iovlen = 1;
    msg.msg_control = control.as_mut_ptr().cast();
    msg.msg_controllen = size_of::<Control>();
    // SAFETY: the header and its control message are this function's own, and the buffer is the caller's.
    let n = unsafe { recvmsg_now(fd, &raw mut msg, 0) }?;
    // No other control message is long enough to hold an integer.
    if msg.msg_controllen < size_of::<Control>() {
        return Ok((n, None));
    }
    // SAFETY: the kernel has written as many bytes as it says; any bytes are valid integers.
    let (kind, left) = unsafe {
        let control = control.as_ptr();
        let head = &raw const (*control).head;
        (((*head).cmsg_level, (*head).cmsg_type), (*control).left)
    };
    let says = kind == (libc::IPPROTO_TCP, libc::TCP_CM_INQ);
    Ok((n, says.then_some(left.cast_unsigned())))
}

/// Sends as much as fits now, or `WouldBlock`. Never raises SIGPIPE.
#[inline]
pub fn send_now(fd: BorrowedFd<'_>, buf: &[u8]) -> io::Result<usize> {
    // SAFETY: the slice is valid for reads during the call.
    cvt_len(unsafe {
        raw::send(
            fd.as_raw_fd(),
            buf.as_ptr().cast(),
            buf.len(),
            libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
        )
    })
}

/// Receives the data that is available now into several buffers, or `WouldBlock`.
///
/// # Safety
///
/// The header and what it names are valid, as for `recvmsg(2)`.
#[inline]
pub unsafe fn recvmsg_now(
    fd: BorrowedFd<'_>,
    msg: *mut libc::msghdr,
    flags: i32,
) -> io::Result<usize> {
    // SAFETY: by this function's contract.
    cvt_len(unsafe { raw::recvmsg(fd.as_raw_fd(), msg, flags | libc::MSG_DONTWAIT) })
}

/// Sends as much of several buffers as fits now, or `WouldBlock`.
///
/// # Safety
///
/// The header and what it names are valid, as for `sendmsg(2)`.
#[inline]
pub unsafe fn sendmsg_now(fd: BorrowedFd<'_>, msg: *const libc::msghdr) -> io::Result<usize> {
    // SAFETY: by this function's contract.
    cvt_len(unsafe { raw::sendmsg(fd.as_raw_fd(), msg, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) })
}

/// Whether an attempt to send on the socket reads the data before it finds no room. A ring
/// repeats a send without going back to the start of the data, so it would send an empty packet: see
/// `docs/decisions/netpoller.md`. Only internet sockets, and Unix sockets other than for datagrams, are
/// known to look for room first.
pub fn reads_before_it_fails(fd: BorrowedFd<'_>) -> bool {
    let option = |name| -> io::Result<i32> {
        let (mut value, mut len) = (0, size_of::<libc::c_int>() as libc::socklen_t);
        // SAFETY: the integer is as long as `len` says.
        cvt(unsafe {
            let value = (&raw mut value).cast();
            libc::getsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, name, value, &raw mut len)
        })?;
        Ok(value)
    };
    match option(libc::SO_DOMAIN) {
        Ok(libc::AF_INET | libc::AF_INET6) => false,
        Ok(libc::AF_UNIX) => option(libc::SO_TYPE).is_ok_and(|kind| kind == libc::SOCK_DGRAM),
        _ => true,
    }
}

/// Repeats a receive that found nothing on a socket that was reported readable, if the socket was
/// shut down for reading. On such a datagram or packet socket a blocking receive returns 0, but an
/// attempt always fails with `WouldBlock`. `None` if the socket was not shut down.
///
/// # Errors
///
/// The errors of `again`, which makes another attempt: a packet may have arrived before the shutdown.
#[cold]
pub fn recv_after_shutdown(
    fd: BorrowedFd<'_>,
    again: impl FnOnce() -> io::Result<usize>,
) -> Option<io::Result<usize>> {
    let shown = poll_now(fd, libc::POLLRDHUP).ok()?;
    (shown & libc::POLLRDHUP != 0).then(|| match again() {
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(0),
        r => r,
    })
}

/// The effective user id of the process that connected a Unix stream socket.
///
/// # Errors
///
/// The kernel's, for other sockets.
pub fn peer_uid(fd: impl AsFd) -> io::Result<u32> {
    let mut peer = libc::ucred {
        pid: 0,
        uid: 0,
        gid: 0,
    };
    let mut len = size_of_val(&peer) as libc::socklen_t;
    // SAFETY: the structure is as long as `len` says.
    cvt(unsafe {
        libc::getsockopt(
            fd.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut len,
        )
    })?;
    Ok(peer.uid)
}

/// Accepts a connection with `accept4(2)`; blocks the thread on a blocking socket.
///
/// # Safety
///
/// Both places are valid for writes, and `len` is at most the size of `addr`.
pub unsafe fn accept(
    fd: BorrowedFd<'_>,
    addr: *mut libc::sockaddr_storage,
    len: *mut libc::socklen_t,
) -> io::Result<i32> {
    // SAFETY: by this function's contract.
    cvt(unsafe { raw::accept4(fd.as_raw_fd(), addr.cast(), len, libc::SOCK_CLOEXEC) })
}

/// Accepts a connection that is there now, or `WouldBlock`. The listener is put into non-blocking
/// mode and stays in it: `accept4(2)` has no flag for a single attempt, and an announced connection
/// may be gone, or taken by another, by the time of the call.
///
/// # Safety
///
/// As [`accept`].
pub unsafe fn accept_now(
    fd: BorrowedFd<'_>,
    addr: *mut libc::sockaddr_storage,
    len: *mut libc::socklen_t,
) -> io::Result<i32> {
    file::set_nonblocking(fd, true)?;
    // SAFETY: by this function's contract.
    unsafe { accept(fd, addr, len) }
}

/// Whether an error of accept concerns only the connection, or is a temporary shortage.
pub fn may_accept_again(e: &io::Error) -> bool {
    matches!(
        e.raw_os_error(),
        Some(
            libc::ECONNABORTED
                | libc::ECONNRESET
                | libc::EHOSTDOWN
                | libc::EHOSTUNREACH
                | libc::EMFILE
                | libc::ENETDOWN
                | libc::ENETUNREACH
                | libc::ENFILE
                | libc::ENOBUFS
                | libc::ENOMEM
                | libc::ENONET
                | libc::ENOPROTOOPT
                | libc::EPROTO
                | libc::ETIMEDOUT
        )
    )
}

/// Begins to connect, or checks a connect in progress: `EINPROGRESS` or `EALREADY` if it is not
/// finished. The socket's mode is the same afterwards.
///
/// # Safety
///
/// `addr` is valid for reads of `len` bytes.
pub unsafe fn connect_now(
    fd: BorrowedFd<'_>,
    addr: *const libc::sockaddr,
    len: libc::socklen_t,
) -> io::Result<()> {
    let was_nonblocking = file::set_nonblocking(fd, true)?;
    // SAFETY: by this function's contract.
    let r = cvt(unsafe { raw::connect(fd.as_raw_fd(), addr, len) }).map(drop);
    if !was_nonblocking {
        file::set_nonblocking(fd, false)?;
    }
    r
}

/// The subset of `events` for which a descriptor is ready now, and errors; 0 for none. A signal interrupts
/// `ppoll(2)` also when it does not wait, and this repeats it.
#[inline]
pub fn poll_now(fd: BorrowedFd<'_>, events: i16) -> io::Result<i16> {
    let mut pollfd = libc::pollfd {
        fd: fd.as_raw_fd(),
        events,
        revents: 0,
    };
    // SAFETY: `pollfd` outlives the call.
    retry(|| cvt(unsafe { raw::poll_now(&raw mut pollfd, 1) }))?;
    match pollfd.revents {
        libc::POLLNVAL => Err(io::Error::from_raw_os_error(libc::EBADF)),
        revents => Ok(revents),
    }
}

/// Blocks the calling thread until `fd` is ready for one of `events`, or until the deadline
/// (`false`). Signals do not end the wait.
pub fn poll(fd: BorrowedFd<'_>, events: i16, deadline_ns: u64) -> io::Result<bool> {
    loop {
        let mut pollfd = libc::pollfd {
            fd: fd.as_raw_fd(),
            events,
            revents: 0,
        };
        let ts = clock::timespec(deadline_ns.saturating_sub(clock::now_ns()));
        let ts_ptr: *const libc::timespec = if deadline_ns == clock::NEVER {
            std::ptr::null()
        } else {
            &raw const ts
        };
        // SAFETY: `pollfd` and the timeout outlive the call; a null mask is allowed.
        let r = cvt(unsafe { raw::ppoll(&raw mut pollfd, 1, ts_ptr) });
        match r {
            Ok(0) => return Ok(false),
            Ok(_) => return Ok(true),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

/// Lets a listener take up to `n` connections that begin with data (TCP Fast Open).
pub fn fast_open_listener(fd: BorrowedFd<'_>, n: u32) -> io::Result<()> {
    set_tcp_option(fd, libc::TCP_FASTOPEN, i32::try_from(n).unwrap_or(i32::MAX))
}

/// Lets a stream that is not connected yet send data with the first packet (TCP Fast Open).
pub fn fast_open_stream(fd: BorrowedFd<'_>) -> io::Result<()> {
    set_tcp_option(fd, libc::TCP_FASTOPEN_CONNECT, 1)
}

/// The listener of a group for packets handled on CPUs from this one up to the next range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FromCpu {
    /// The first CPU.
    pub cpu: u32,
    /// The number of the listener.
    pub listener: u32,
}

/// Makes the kernel choose the listener of a `SO_REUSEPORT` group by the CPU that handles a
/// connection's first packet. `ranges` are ascending; listeners are numbered in the order in which
/// they began to listen.
///
/// # Errors
///
/// The kernel's: it may not have the option, or a filter may forbid it. Then it still chooses by a
/// hash of the addresses.
pub fn choose_listener_by_cpu(fd: BorrowedFd<'_>, ranges: &[FromCpu]) -> io::Result<()> {
    let mut program = vec![this_cpu()];
    search(ranges, &mut program);
    attach(fd, libc::SO_ATTACH_REUSEPORT_CBPF, &mut program)
}

/// Attaches a program of classic BPF to a socket.
fn attach(fd: BorrowedFd<'_>, option: i32, program: &mut [libc::sock_filter]) -> io::Result<()> {
    let len = u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let program = libc::sock_fprog {
        len,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the program and its instructions are valid for reads during the call, with the
    // lengths given.
    cvt(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            (&raw const program).cast(),
            size_of_val(&program) as libc::socklen_t,
        )
    })
    .map(drop)
}

/// Makes the kernel drop the first packets of connections to a TCP listener, so that no further
/// connection begins. Those that have begun are still established, and those in the queue stay.
/// A client sends its packet again after a second. The socket has the filter, and so have its
/// duplicates in other processes: [`take_syns`] removes it.
///
/// # Errors
///
/// The kernel's. `EEXIST` if the socket has a filter.
pub fn drop_syns(fd: BorrowedFd<'_>) -> io::Result<()> {
    match filter_of(fd)?.is_empty() {
        true => attach(fd, libc::SO_ATTACH_FILTER, &mut syn_filter()),
        false => Err(io::Error::from_raw_os_error(libc::EEXIST)),
    }
}

/// Ends the effect of [`drop_syns`], also of a call by another process. Other filters stay.
pub fn take_syns(fd: BorrowedFd<'_>) -> io::Result<()> {
    let fields = |i: &libc::sock_filter| (i.code, i.jt, i.jf, i.k);
    if !filter_of(fd)?
        .iter()
        .map(fields)
        .eq(syn_filter().iter().map(fields))
    {
        return Ok(());
    }
    let unused: libc::c_int = 0;
    // SAFETY: the value is valid for reads during the call, with the length given.
    cvt(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_DETACH_FILTER,
            (&raw const unused).cast(),
            size_of_val(&unused) as libc::socklen_t,
        )
    })
    .map(drop)
}

/// A program that drops the packets with SYN and without ACK.
fn syn_filter() -> [libc::sock_filter; 5] {
    /// Where the flags are in a TCP header, and two of them.
    const FLAGS_AT: u32 = 13;
    const SYN: u32 = 0x02;
    const ACK: u32 = 0x10;
    let load_byte = libc::BPF_LD | libc::BPF_B | libc::BPF_ABS;
    let and = libc::BPF_ALU | libc::BPF_AND | libc::BPF_K;
    let is_equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let return_len = libc::BPF_RET | libc::BPF_K;
    [
        instruction(load_byte, FLAGS_AT, 0, 0),
        instruction(and, SYN | ACK, 0, 0),
        instruction(is_equal, SYN, 0, 1),
        instruction(return_len, 0, 0, 0),
        instruction(return_len, u32::MAX, 0, 0),
    ]
}

/// The filter of a socket. Without instructions if there is none.
fn filter_of(fd: BorrowedFd<'_>) -> io::Result<Vec<libc::sock_filter>> {
    /// The most instructions that the kernel takes.
    const MOST: usize = libc::BPF_MAXINSNS as usize;
    let mut filter = vec![instruction(0, 0, 0, 0); MOST];
    let mut len = MOST as libc::socklen_t;
    // SAFETY: the instructions are valid for writes, and as many as `len` says; the kernel writes how many there are.
    cvt(unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_GET_FILTER,
            filter.as_mut_ptr().cast(),
            &raw mut len,
        )
    })?;
    filter.truncate(len as usize);
    Ok(filter)
}

/// Loads the number of the CPU that the program runs on.
fn this_cpu() -> libc::sock_filter {
    let load_word = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    instruction(
        load_word,
        (libc::SKF_AD_OFF + libc::SKF_AD_CPU) as u32,
        0,
        0,
    )
}

/// Appends a binary search for the range of the CPU. A machine that numbers its CPUs round-robin
/// over the nodes has as many ranges as CPUs.
fn search(ranges: &[FromCpu], program: &mut Vec<libc::sock_filter>) {
    let (low, high) = ranges.split_at(ranges.len() / 2);
    let Some(first_high) = high.first() else {
        return;
    };
    if low.is_empty() {
        program.push(instruction(
            libc::BPF_RET | libc::BPF_K,
            first_high.listener,
            0,
            0,
        ));
        return;
    }
    // A comparison jumps over 255 instructions at most; the unconditional jump behind it has a
    // longer range.
    let at_least = libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K;
    program.push(instruction(at_least, first_high.cpu, 0, 1));
    let jump_at = program.len();
    program.push(instruction(libc::BPF_JMP | libc::BPF_JA, 0, 0, 0));
    search(low, program);
    program[jump_at].k = (program.len() - jump_at - 1) as u32;
    search(high, program);
}

fn instruction(code: u32, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    }
}

fn set_tcp_option(fd: BorrowedFd<'_>, name: i32, value: i32) -> io::Result<()> {
    // SAFETY: the value is valid for reads during the call, with the length given.
    cvt(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::IPPROTO_TCP,
            name,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    })
    .map(drop)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;

    /// Runs a program as the kernel would on a CPU.
    fn interpret(program: &[libc::sock_filter], cpu: u32) -> u32 {
        let mut at = 0;
        let mut value = 0;
        loop {
            let i = program[at];
            at += 1;
            match u32::from(i.code) {
                code if code == libc::BPF_LD | libc::BPF_W | libc::BPF_ABS => {
                    assert_eq!(i.k, 0xffff_f024);
                    value = cpu;
                }
                code if code == libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K => {
                    at += usize::from(if value >= i.k { i.jt } else { i.jf });
                }
                code if code == libc::BPF_JMP | libc::BPF_JA => at += i.k as usize,
                code if code == libc::BPF_RET | libc::BPF_K => return i.k,
                code => panic!("instruction {code:#x}"),
            }
        }
    }

    extern "C" fn no_effect(_: libc::c_int) {}

    /// Calls `f` on a thread that gets signals all the time.
    fn among_signals<T>(f: impl FnOnce() -> T) -> T {
        let is_over = &AtomicBool::new(false);
        // SAFETY: an all-zero action is valid, the handler has no effect, and no other test uses the signal.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = no_effect as *const () as usize;
            libc::sigaction(libc::SIGWINCH, &action, std::ptr::null_mut());
        }
        thread::scope(|s| {
            // SAFETY: takes nothing.
            let target = unsafe { libc::pthread_self() };
            s.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    // SAFETY: the scope keeps the thread.
                    unsafe { libc::pthread_kill(target, libc::SIGWINCH) };
                }
            });
            let done = f();
            is_over.store(true, Ordering::Relaxed);
            done
        })
    }

    /// Also a poll that does not wait fails if it comes upon a signal.
    #[test]
    fn a_signal_fails_no_look() {
        let (reader, _writer) = io::pipe().unwrap();
        let looks =
            || (0..10_000).try_for_each(|_| poll_now(reader.as_fd(), libc::POLLIN).map(drop));
        among_signals(looks).unwrap();
    }

    fn program_for(ranges: &[FromCpu]) -> Vec<libc::sock_filter> {
        let mut program = vec![this_cpu()];
        search(ranges, &mut program);
        program
    }

    #[test]
    fn every_cpu_finds_its_range() {
        for n in 1..=40 {
            let range = |i| FromCpu {
                cpu: 3 * i,
                listener: 7 * i % 11,
            };
            let ranges: Vec<_> = (0..n).map(range).collect();
            let program = program_for(&ranges);
            for cpu in 0..3 * n + 5 {
                let expected = ranges[(cpu as usize / 3).min(ranges.len() - 1)].listener;
                assert_eq!(
                    interpret(&program, cpu),
                    expected,
                    "CPU {cpu} of {n} ranges"
                );
            }
        }
    }

    /// CPUs numbered round-robin over the nodes: the most ranges that a machine can have. The
    /// kernel accepts 4096 instructions.
    #[test]
    fn a_large_machine_fits() {
        let range = |cpu| FromCpu {
            cpu,
            listener: cpu % 8,
        };
        let program = program_for(&(0..1024).map(range).collect::<Vec<_>>());
        assert!(program.len() <= 4096, "{}", program.len());
        for cpu in 0..1024 {
            assert_eq!(interpret(&program, cpu), cpu % 8);
        }
    }
}

//! Signal handlers that interrupt goroutines make the calls that POSIX allows them.

use std::hint::black_box;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use libc::{SIG_DFL, SIG_IGN, SIGUSR2, SIGWINCH, c_int, iovec, pollfd, timespec, timeval};

use super::run;
use super::tools::*;

static READS: AtomicI32 = AtomicI32::new(-1);
static WRITES: AtomicI32 = AtomicI32::new(-1);
static SOCKET: AtomicI32 = AtomicI32::new(-1);
static HANDLED: AtomicU32 = AtomicU32::new(0);
static MOVED: AtomicU32 = AtomicU32::new(0);

/// Makes one of the calls in turn. None has anything to transfer.
extern "C" fn on_signal(_: c_int) {
    let turn = HANDLED.load(Ordering::Relaxed);
    let [r, w, s] = [&READS, &WRITES, &SOCKET].map(|fd| fd.load(Ordering::Relaxed));
    let mut byte = 0_u8;
    let at = (&raw mut byte).cast();
    let mut iov = [iovec {
        iov_base: at,
        iov_len: 1,
    }; 2];
    // SAFETY: takes nothing; the buffers, sets and times are valid.
    unsafe {
        let errno = *libc::__errno_location();
        let thread = libc::gettid();
        let mut msg = message(&mut iov);
        let mut fds = [r, w].map(|fd| pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        });
        let short = timespec {
            tv_sec: 0,
            tv_nsec: 50_000,
        };
        let mut time = timeval {
            tv_sec: 0,
            tv_usec: 50,
        };
        let mut set: libc::fd_set = std::mem::zeroed();
        libc::FD_SET(r, &mut set);
        match turn % 12 {
            0 => libc::write(w, at, 1) as i64,
            1 => libc::writev(w, iov.as_ptr(), 2) as i64,
            2 => libc::read(r, at, 1) as i64,
            3 => libc::readv(r, iov.as_ptr(), 2) as i64,
            4 => libc::sendmsg(s, &raw const msg, 0) as i64,
            5 => libc::recvmsg(s, &raw mut msg, 0) as i64,
            6 => libc::poll(fds.as_mut_ptr(), 2, 1).into(),
            7 => libc::poll(fds.as_mut_ptr(), 1, 1).into(),
            8 => libc::select(r + 1, &raw mut set, null_mut(), null_mut(), &raw mut time).into(),
            9 => libc::nanosleep(&raw const short, null_mut()).into(),
            10 => libc::send(s, at, 1, 0) as i64,
            _ => libc::pselect(
                0,
                null_mut(),
                null_mut(),
                null_mut(),
                &raw const short,
                null(),
            )
            .into(),
        };
        MOVED.fetch_add(u32::from(libc::gettid() != thread), Ordering::Relaxed);
        *libc::__errno_location() = errno;
    }
    HANDLED.fetch_add(1, Ordering::Relaxed);
}

/// A handler interrupts goroutines that allocate and yield, at any of their instructions. If it parked or
/// allocated, the process would stop or be killed.
#[test]
fn handlers_do_not_park() {
    const SIGNALS: u32 = 2000;
    let (p, s) = (pipe(), unix(libc::SOCK_STREAM));
    // All but `nanosleep` and `poll` return at once.
    for fd in [p.a, p.b, s.a] {
        nonblocking(fd);
    }
    READS.store(p.a, Ordering::Relaxed);
    WRITES.store(p.b, Ordering::Relaxed);
    SOCKET.store(s.a, Ordering::Relaxed);
    let is_over = &AtomicBool::new(false);
    let m = &AtomicI32::new(0);
    let rounds = &AtomicU32::new(0);
    for flags in [libc::SA_RESTART, libc::SA_NODEFER] {
        // SAFETY: all zeros is an action; the handler is one.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_signal as extern "C" fn(c_int) as *const () as usize;
            action.sa_flags = flags;
            assert_eq!(libc::sigaction(SIGUSR2, &raw const action, null_mut()), 0);
        }
        let from = HANDLED.load(Ordering::Relaxed);
        is_over.store(false, Ordering::Relaxed);
        thread::scope(|s| {
            s.spawn(|| {
                while HANDLED.load(Ordering::Relaxed) - from < SIGNALS {
                    let tid = m.load(Ordering::Relaxed);
                    let before = HANDLED.load(Ordering::Relaxed);
                    // SAFETY: takes plain numbers; the thread, if it has been noted, is one of the runtime.
                    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, SIGUSR2) };
                    for _ in 0..100 {
                        if HANDLED.load(Ordering::Relaxed) != before {
                            break;
                        }
                        thread::sleep(Duration::from_micros(20));
                    }
                }
                is_over.store(true, Ordering::Relaxed);
            });
            run(|_| {
                windlass::scope(|s| {
                    for _ in 0..3 {
                        s.spawn(|| {
                            while !is_over.load(Ordering::Relaxed) {
                                for size in 1..200 {
                                    black_box(vec![1_u8; size * 13 % 3000]);
                                }
                                // SAFETY: takes nothing.
                                m.store(unsafe { libc::gettid() }, Ordering::Relaxed);
                                rounds.fetch_add(1, Ordering::Relaxed);
                                windlass::yield_now();
                            }
                        });
                    }
                });
            });
        });
    }
    assert!(rounds.load(Ordering::Relaxed) > 0);
    assert_eq!(MOVED.load(Ordering::Relaxed), 0);
}

extern "C" fn first(_: c_int) {}
extern "C" fn second(_: c_int) {}

/// A program finds the handlers that it has registered.
#[test]
fn handlers_are_the_programs() {
    let [first, second] = [first as extern "C" fn(c_int), second].map(|f| f as *const () as usize);
    // SAFETY: the handlers do nothing; all zeros is an action. No other test uses the signal.
    unsafe {
        let action = |handler| {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler;
            action.sa_flags = libc::SA_RESTART | libc::SA_SIGINFO;
            action
        };
        let change = |new: Option<usize>| {
            let (new, mut old) = (new.map(action), action(1));
            let new = new.as_ref().map_or(null(), std::ptr::from_ref);
            assert_eq!(libc::sigaction(SIGWINCH, new, &raw mut old), 0);
            (old.sa_sigaction, old.sa_flags & libc::SA_SIGINFO != 0)
        };
        change(Some(SIG_DFL));
        assert_eq!(change(Some(first)), (SIG_DFL, true));
        assert_eq!(change(None), (first, true));
        assert_eq!(change(Some(second)), (first, true));
        assert_eq!(libc::signal(SIGWINCH, first), second);
        assert_eq!(change(None), (first, false));
        assert_eq!(change(Some(SIG_IGN)), (first, false));
        assert_eq!(libc::signal(SIGWINCH, second), SIG_IGN);
        // A call that the kernel refuses changes nothing.
        let action = action(first);
        let of_kill = libc::sigaction(libc::SIGKILL, &raw const action, null_mut());
        assert_eq!((of_kill, libc::signal(1000, first)), (-1, libc::SIG_ERR));
        assert_eq!(change(Some(SIG_DFL)), (second, false));
    }
}

static RAN: AtomicU32 = AtomicU32::new(0);

extern "C" fn counted(_: c_int) {
    RAN.fetch_add(1, Ordering::Relaxed);
}

/// `epoll_wait`, which the kernel does not restart, ends by a handler. It does not end by a completion for a
/// goroutine that has waited on the thread before.
#[test]
fn only_handlers_interrupt_epoll_wait() {
    const READERS: usize = 20;
    // SAFETY: all zeros is an action; the handler counts. No other test uses the signal.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = counted as extern "C" fn(c_int) as *const () as usize;
        assert_eq!(
            libc::sigaction(libc::SIGURG, &raw const action, null_mut()),
            0
        );
    }
    run(|_| {
        windlass::scope(|s| {
            let all: Vec<_> = (0..READERS).map(|_| unix(libc::SOCK_STREAM)).collect();
            for of in &all {
                let fd = of.a;
                s.spawn(move || assert_eq!(read(fd, 9), "1 \"a\""));
            }
            // They begin to wait.
            windlass::sleep(Duration::from_millis(20));
            let set = epoll();
            thread::scope(|threads| {
                threads.spawn(|| {
                    for of in &all {
                        thread::sleep(Duration::from_millis(5));
                        put(of.b, b"a");
                    }
                });
                for is_2 in [false, true] {
                    let ended = lasts(100, || epoll_wait(of_set(&set), 1, 100, is_2));
                    assert_eq!(ended, "0 0 0");
                }
            });
            // SAFETY: takes nothing.
            let waiter = unsafe { libc::gettid() };
            let is_over = AtomicBool::new(false);
            thread::scope(|threads| {
                threads.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        thread::sleep(Duration::from_millis(5));
                        // SAFETY: takes plain numbers; the thread is one of the runtime.
                        unsafe {
                            libc::syscall(libc::SYS_tgkill, libc::getpid(), waiter, libc::SIGURG)
                        };
                    }
                });
                let ended = epoll_wait(of_set(&set), 1, -1, false);
                is_over.store(true, Ordering::Relaxed);
                assert_eq!(ended, "Interrupted system call 0 0");
            });
        });
    });
    assert!(RAN.load(Ordering::Relaxed) > 0);
}

fn of_set(set: &std::os::fd::OwnedFd) -> c_int {
    std::os::fd::AsRawFd::as_raw_fd(set)
}

//! The table: each case makes calls, and returns what they did.

use std::os::fd::{AsRawFd, RawFd};
use std::ptr::{null, null_mut};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use libc::{
    AF_INET, AF_UNIX, EFD_NONBLOCK, MSG_DONTWAIT, MSG_ERRQUEUE, MSG_NOSIGNAL, MSG_OOB, MSG_PEEK,
    MSG_TRUNC, MSG_WAITALL, O_NONBLOCK, O_RDONLY, O_WRONLY, POLLERR, POLLHUP, POLLIN, POLLOUT,
    POLLPRI, POLLRDHUP, SHUT_RD, SHUT_RDWR, SHUT_WR, SO_RCVTIMEO, SO_SNDTIMEO, SOCK_CLOEXEC,
    SOCK_DGRAM, SOCK_NONBLOCK, SOCK_SEQPACKET, SOCK_STREAM,
};

use super::tools::*;

pub(crate) type Case = (&'static str, fn() -> String);

/// Some results, as one.
macro_rules! these {
    ($($result:expr),* $(,)?) => { [$($result),*].join("; ") };
}

fn of(fd: &impl AsRawFd) -> RawFd {
    fd.as_raw_fd()
}

/// A number that no descriptor has.
const CLOSED: RawFd = 1_000_000;

fn shut(fd: RawFd, how: i32) -> String {
    // SAFETY: takes plain numbers.
    got(|| unsafe { libc::shutdown(fd, how) })
}

/// A receiver of Unix datagrams, its address, and a sender without a peer. The receiver is full.
fn full() -> (std::os::fd::OwnedFd, Addr, std::os::fd::OwnedFd) {
    let addr = Addr::unix();
    let receiver = bound(SOCK_DGRAM, &addr);
    let sender = socket(AF_UNIX, SOCK_DGRAM);
    while sendto(of(&sender), b"x", MSG_DONTWAIT, &addr) == "1" {}
    (receiver, addr, sender)
}

/// Signals for a thread, until this is dropped.
struct Interrupts {
    _until: mpsc::Sender<()>,
    _sender: Later,
}

/// A handler for `SIGUSR1` that does nothing and restarts nothing; the signal is sent to this thread again and again,
/// since the thread may get to its call after one of them.
fn interrupt() -> Interrupts {
    extern "C" fn nothing(_: i32) {}
    // SAFETY: the handler does nothing; all zeros is an action without flags.
    let thread = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(i32) as *const () as usize;
        assert_eq!(
            libc::sigaction(libc::SIGUSR1, &raw const action, null_mut()),
            0
        );
        libc::gettid()
    };
    let (until, ended) = mpsc::channel::<()>();
    // SAFETY: the thread waits until this has been done.
    let signal = move || unsafe {
        libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, libc::SIGUSR1);
    };
    let interval = Duration::from_millis(8);
    let sender = after(8, move || {
        while {
            signal();
            ended.recv_timeout(interval) == Err(mpsc::RecvTimeoutError::Timeout)
        } {}
    });
    Interrupts {
        _until: until,
        _sender: sender,
    }
}

pub(crate) fn all() -> Vec<Case> {
    [
        READS,
        WRITES,
        RECEIVES,
        SENDS,
        CONNECTIONS,
        POLLS,
        SLEEPS,
        SECTIONS,
    ]
    .concat()
}

const READS: &[Case] = &[
    ("read: a pipe", || {
        let p = pipe();
        put(p.b, b"abc");
        these![read(p.a, 2), read(p.a, 9)]
    }),
    ("read: a pipe, later", || {
        let p = pipe();
        let b = p.b;
        let _later = soon(move || put(b, b"abc"));
        read(p.a, 9)
    }),
    ("read: a pipe, non-blocking", || {
        let p = pipe();
        nonblocking(p.a);
        let empty = read(p.a, 9);
        put(p.b, b"abc");
        these![empty, read(p.a, 9)]
    }),
    ("read: a pipe that ends", || {
        let mut p = pipe();
        put(p.b, b"abc");
        drop(p.take_b());
        these![read(p.a, 9), read(p.a, 9)]
    }),
    ("read: a pipe that ends later", || {
        let mut p = pipe();
        let b = p.take_b();
        let _later = soon(|| drop(b));
        read(p.a, 9)
    }),
    ("read: a pipe, a signal", || {
        let p = pipe();
        let _interrupted = interrupt();
        let b = p.b;
        let _later = after(300, move || put(b, b"abc"));
        read(p.a, 9)
    }),
    ("read: a pipe's other end", || {
        let p = pipe();
        these![read(p.b, 9), write(p.a, b"abc")]
    }),
    ("read: no descriptor", || {
        these![read(CLOSED, 9), read(-1, 9)]
    }),
    ("read: nothing", || {
        let (p, s) = (pipe(), unix(SOCK_STREAM));
        these![read(p.a, 0), read(s.a, 0), read(CLOSED, 0)]
    }),
    ("read: to nowhere", || {
        let (p, s, t) = (pipe(), unix(SOCK_STREAM), tcp());
        put(p.b, b"abc");
        put(s.b, b"abc");
        put(t.b, b"abc");
        these![
            read_nowhere(p.a),
            read_nowhere(s.a),
            read_nowhere(t.a),
            read(p.a, 9)
        ]
    }),
    ("read: a directory", || read(of(&open("/", O_RDONLY)), 9)),
    ("read: a file", || {
        let f = file(b"content");
        these![read(of(&f), 4), read(of(&f), 9), read(of(&f), 9)]
    }),
    ("read: a file that is written only", || {
        read(of(&open("/dev/null", O_WRONLY)), 9)
    }),
    ("read: devices", || {
        let zeros = open("/dev/zero", O_RDONLY);
        these![
            read(of(&open("/dev/null", O_RDONLY)), 9),
            read(of(&zeros), 9)
        ]
    }),
    ("read: a terminal", || {
        let t = terminal();
        put(t.a, b"abc");
        these![read(t.b, 2), read(t.b, 9)]
    }),
    ("read: a terminal, later", || {
        let t = terminal();
        let a = t.a;
        let _later = soon(move || put(a, b"abc"));
        read(t.b, 9)
    }),
    ("read: a terminal that is hung up", || {
        let mut t = terminal();
        drop(t.take_a());
        these![read(t.b, 9), write(t.b, b"abc")]
    }),
    ("read: an eventfd", || {
        let e = eventfd(3);
        these![read(of(&e), 4), read(of(&e), 8)]
    }),
    ("read: an eventfd, later", || {
        let e = eventfd(0);
        let fd = of(&e);
        let _later = soon(move || put(fd, &5_u64.to_ne_bytes()));
        read(fd, 8)
    }),
    ("read: an eventfd, non-blocking", || {
        let e = eventfd(0);
        nonblocking(of(&e));
        read(of(&e), 8)
    }),
    ("read: a timerfd", || read(of(&timerfd(5)), 8)),
    ("read: an epoll instance", || read(of(&epoll()), 8)),
    ("read: a stream", || {
        let s = unix(SOCK_STREAM);
        put(s.b, b"abc");
        these![read(s.a, 2), read(s.a, 9)]
    }),
    ("read: a stream, later", || {
        let (s, t) = (unix(SOCK_STREAM), tcp());
        let (b, c) = (s.b, t.b);
        let _later = soon(move || {
            put(b, b"abc");
            put(c, b"def");
        });
        these![read(s.a, 9), read(t.a, 9)]
    }),
    ("read: a stream, non-blocking", || {
        let s = unix(SOCK_STREAM);
        nonblocking(s.a);
        read(s.a, 9)
    }),
    ("read: a stream that ends", || {
        let (mut s, mut t) = (unix(SOCK_STREAM), tcp());
        let ends = (s.take_b(), t.take_b());
        let _later = soon(|| drop(ends));
        these![read(s.a, 9), read(t.a, 9), read(t.a, 9)]
    }),
    ("read: a stream's timeout", || {
        let (s, t) = (unix(SOCK_STREAM), tcp());
        timeout(s.a, SO_RCVTIMEO, 9);
        timeout(t.a, SO_RCVTIMEO, 9);
        these![lasts(9, || read(s.a, 9)), lasts(9, || read(t.a, 9))]
    }),
    ("read: a stream that is reset", || {
        let mut t = tcp();
        let b = t.take_b();
        let _later = soon(|| reset(b));
        these![read(t.a, 9), read(t.a, 9), write(t.a, b"abc")]
    }),
    ("read: a stream that is shut down here", || {
        let (s, t) = (unix(SOCK_STREAM), tcp());
        let (a, c) = (s.a, t.a);
        let _later = soon(move || {
            shut(a, SHUT_RD);
            shut(c, SHUT_RD);
        });
        these![read(a, 9), read(c, 9)]
    }),
    ("read: a socket that is not connected", || {
        let s = socket(AF_INET, SOCK_STREAM);
        let l = listener(&Addr::loopback(), 1);
        these![
            read(of(&s), 9),
            read(of(&l), 9),
            read(of(&socket(AF_UNIX, SOCK_STREAM)), 9)
        ]
    }),
    ("read: datagrams", || {
        let s = unix(SOCK_DGRAM);
        put(s.b, b"first");
        put(s.b, b"second");
        these![read(s.a, 3), read(s.a, 9)]
    }),
    ("read: datagrams, later", || {
        let s = unix(SOCK_DGRAM);
        let b = s.b;
        let _later = soon(move || put(b, b"abc"));
        read(s.a, 9)
    }),
    ("read: datagrams whose sender ends", || {
        let mut s = unix(SOCK_DGRAM);
        timeout(s.a, SO_RCVTIMEO, 20);
        let b = s.take_b();
        let _later = soon(|| drop(b));
        these![read(s.a, 9), write(s.a, b"abc")]
    }),
    ("read: datagrams, shut down", || {
        let (s, u) = (unix(SOCK_DGRAM), bound(SOCK_DGRAM, &Addr::loopback()));
        let (a, c) = (s.a, of(&u));
        let _later = soon(move || {
            shut(a, SHUT_RD);
            shut(c, SHUT_RD);
        });
        read(a, 9)
    }),
    ("read: packets", || {
        let s = unix(SOCK_SEQPACKET);
        put(s.b, b"first");
        put(s.b, b"second");
        these![read(s.a, 3), read(s.a, 9)]
    }),
    ("read: packets that end", || {
        let mut s = unix(SOCK_SEQPACKET);
        let b = s.take_b();
        let _later = soon(|| drop(b));
        read(s.a, 9)
    }),
    ("readv: a pipe", || {
        let p = pipe();
        put(p.b, b"abcdefgh");
        these![readv(p.a, &[2, 0, 3]), readv(p.a, &[0, 9])]
    }),
    ("readv: a pipe, later", || {
        let p = pipe();
        let b = p.b;
        let _later = soon(move || put(b, b"abc"));
        readv(p.a, &[2, 0, 3])
    }),
    ("readv: a stream, later", || {
        let s = unix(SOCK_STREAM);
        let b = s.b;
        let _later = soon(move || put(b, b"abc"));
        readv(s.a, &[0, 2, 3])
    }),
    ("readv: nothing", || {
        let (p, s, d) = (pipe(), unix(SOCK_STREAM), unix(SOCK_DGRAM));
        put(d.b, b"abc");
        these![
            readv(p.a, &[0, 0]),
            readv(s.a, &[0]),
            readv(d.a, &[0]),
            read(d.a, 9)
        ]
    }),
    ("readv: numbers of buffers", || {
        let (p, s) = (pipe(), unix(SOCK_STREAM));
        let all = [0, -1, 1025, i32::MIN];
        let of_pipe = all.map(|n| vectors(p.a, n)).join(", ");
        these![
            of_pipe,
            all.map(|n| vectors(s.a, n)).join(", "),
            vectors(CLOSED, 1)
        ]
    }),
];

const WRITES: &[Case] = &[
    ("write: a pipe", || {
        let p = pipe();
        these![write(p.b, b"abc"), read(p.a, 9)]
    }),
    ("write: a pipe that is full, non-blocking", || {
        let p = pipe();
        let n = fill(p.b);
        nonblocking(p.b);
        let full = write(p.b, b"abc");
        drain(p.a, 4096);
        these![n.to_string(), full, write(p.b, &[1; 9000])]
    }),
    ("write: a pipe that is full", || {
        let p = pipe();
        let n = fill(p.b);
        let a = p.a;
        let _later = soon(move || drain(a, n));
        write(p.b, &[1; 9000])
    }),
    ("write: more than a pipe holds", || {
        let p = pipe();
        let a = p.a;
        let _later = soon(move || drain(a, 300_000));
        write(p.b, &[1; 300_000])
    }),
    ("write: a pipe without a reader", || {
        let mut p = pipe();
        drop(p.take_a());
        write(p.b, b"abc")
    }),
    ("write: a pipe whose reader ends", || {
        let mut p = pipe();
        fill(p.b);
        let a = p.take_a();
        let _later = soon(|| drop(a));
        write(p.b, b"abc")
    }),
    ("write: a pipe whose reader ends in the middle", || {
        let mut p = pipe();
        let a = p.take_a();
        let _later = soon(|| drop(a));
        these![write(p.b, &[1; 300_000]), write(p.b, b"abc")]
    }),
    ("write: nothing", || {
        let (p, s, d) = (pipe(), unix(SOCK_STREAM), unix(SOCK_DGRAM));
        let all = [p.b, s.b, d.b, CLOSED].map(|fd| write(fd, b"")).join(", ");
        these![all, recv(d.a, 9, MSG_DONTWAIT)]
    }),
    ("write: no descriptor", || {
        these![write(CLOSED, b"a"), write(-1, b"a")]
    }),
    ("write: from nowhere", || {
        let (p, s) = (pipe(), unix(SOCK_STREAM));
        these![
            write_from_nowhere(p.b),
            write_from_nowhere(s.b),
            write_from_nowhere(tcp().a)
        ]
    }),
    ("write: a file", || {
        let f = file(b"content");
        these![write(of(&f), b"CON"), read(of(&f), 9)]
    }),
    ("write: a file that is read only", || {
        write(of(&open("/dev/null", O_RDONLY)), b"a")
    }),
    ("write: a full device", || {
        write(of(&open("/dev/full", O_WRONLY)), b"a")
    }),
    ("write: a terminal", || {
        let t = terminal();
        these![
            write(t.b, b"abc"),
            read(t.a, 9),
            write(t.a, b"abc"),
            read(t.b, 9)
        ]
    }),
    ("write: an eventfd", || {
        let e = eventfd(0);
        these![
            write(of(&e), &5_u64.to_ne_bytes()),
            write(of(&e), b"few"),
            read(of(&e), 8)
        ]
    }),
    ("write: an eventfd that is full", || {
        let e = eventfd(0);
        let fd = of(&e);
        put(fd, &(u64::MAX - 1).to_ne_bytes());
        let _later = soon(move || drain(fd, 8));
        these![
            write(fd, &5_u64.to_ne_bytes()),
            write(fd, &u64::MAX.to_ne_bytes())
        ]
    }),
    ("write: a stream", || {
        let s = unix(SOCK_STREAM);
        these![write(s.a, b"abc"), read(s.b, 9)]
    }),
    ("write: a stream that is full", || {
        let t = tcp();
        let b = t.b;
        let _later = soon(move || drain(b, 8 << 20));
        write(t.a, &vec![1; 8 << 20])
    }),
    ("write: a stream that is full, non-blocking", || {
        let s = unix(SOCK_STREAM);
        fill(s.a);
        nonblocking(s.a);
        write(s.a, b"abc")
    }),
    ("write: a stream's timeout", || {
        let s = unix(SOCK_STREAM);
        fill(s.a);
        timeout(s.a, SO_SNDTIMEO, 9);
        lasts(9, || write(s.a, b"abc"))
    }),
    ("write: a stream's timeout after a part", || {
        let s = unix(SOCK_STREAM);
        timeout(s.a, SO_SNDTIMEO, 9);
        let n = lasts(9, || write(s.a, &vec![1; 4 << 20]));
        these![n, lasts(9, || write(s.a, b"abc"))]
    }),
    ("write: a stream whose reader ends", || {
        let mut s = unix(SOCK_STREAM);
        fill(s.a);
        let b = s.take_b();
        let _later = soon(|| drop(b));
        these![write(s.a, b"abc"), write(s.a, b"abc")]
    }),
    ("write: a stream that is reset", || {
        let mut t = tcp();
        fill(t.a);
        let b = t.take_b();
        let _later = soon(|| reset(b));
        these![write(t.a, b"abc"), write(t.a, b"abc"), read(t.a, 9)]
    }),
    ("write: a stream that is reset after a part", || {
        let mut t = tcp();
        let b = t.take_b();
        let all = vec![1; 8 << 20];
        let _later = soon(move || {
            poll(&[(of(&b), POLLIN)], 5000);
            drop(soon(|| reset(b)));
        });
        let part = write(t.a, &all);
        // How much fits is the kernel's to say.
        let is_part = part.parse().is_ok_and(|n: usize| n > 0 && n < 8 << 20);
        these![is_part.to_string(), read(t.a, 9), write(t.a, b"abc")]
    }),
    ("write: a Unix stream's timeout, with a slow reader", || {
        let s = unix(SOCK_STREAM);
        timeout(s.a, SO_SNDTIMEO, 900);
        let size = 16 * 4096;
        set(s.a, libc::SOL_SOCKET, libc::SO_SNDBUF, &4096);
        let b = s.b;
        // It takes longer than the timeout, but no part does.
        let _later = soon(move || {
            let mut left = size;
            for _ in 0..200 {
                thread::sleep(Duration::from_millis(40));
                let got = recv(b, left.min(2048), MSG_DONTWAIT);
                left -= got
                    .split(' ')
                    .next()
                    .and_then(|n| n.parse().ok())
                    .unwrap_or(0);
                if left == 0 {
                    break;
                }
            }
        });
        write(s.a, &vec![1; size])
    }),
    ("write: a stream that is shut down", || {
        let (s, t) = (unix(SOCK_STREAM), tcp());
        these![
            shut(s.a, SHUT_WR),
            write(s.a, b"a"),
            shut(t.a, SHUT_WR),
            write(t.a, b"a")
        ]
    }),
    ("write: datagrams and packets", || {
        let (d, p) = (unix(SOCK_DGRAM), unix(SOCK_SEQPACKET));
        let large = vec![1; 1 << 20];
        these![
            write(d.a, &large),
            write(p.a, &large),
            write(d.a, b"abc"),
            read(d.b, 9)
        ]
    }),
    ("write: datagrams, full", || {
        let d = unix(SOCK_DGRAM);
        let n = fill(d.a);
        let b = d.b;
        let _later = soon(move || drain(b, n));
        write(d.a, b"abc")
    }),
    ("write: datagrams, full, a timeout", || {
        let d = unix(SOCK_DGRAM);
        fill(d.a);
        timeout(d.a, SO_SNDTIMEO, 9);
        lasts(9, || write(d.a, b"abc"))
    }),
    ("write: packets, full", || {
        let p = unix(SOCK_SEQPACKET);
        let n = fill(p.a);
        let b = p.b;
        let _later = soon(move || drain(b, n));
        write(p.a, b"abc")
    }),
    ("writev: a pipe", || {
        let p = pipe();
        these![writev(p.b, b"abcdef", &[2, 0, 4]), read(p.a, 9)]
    }),
    ("writev: more than a pipe holds", || {
        let p = pipe();
        let a = p.a;
        let _later = soon(move || drain(a, 300_000));
        writev(p.b, &[1; 300_000], &[1, 99_999, 0, 200_000])
    }),
    ("writev: a stream that is full", || {
        let t = tcp();
        let b = t.b;
        let _later = soon(move || drain(b, 8 << 20));
        writev(t.a, &vec![1; 8 << 20], &[1, (4 << 20) - 1, 0, 4 << 20])
    }),
    ("writev: nothing", || {
        let (p, d) = (pipe(), unix(SOCK_DGRAM));
        these![
            writev(p.b, b"", &[0, 0]),
            writev(d.a, b"", &[0]),
            recv(d.b, 9, MSG_DONTWAIT),
        ]
    }),
    ("writev: a file", || {
        let f = file(b"content");
        these![writev(of(&f), b"CON", &[1, 2]), readv(of(&f), &[2, 9])]
    }),
];

const RECEIVES: &[Case] = &[
    ("recv: a stream", || {
        let t = tcp();
        put(t.b, b"abc");
        these![
            recv(t.a, 2, MSG_PEEK),
            recv(t.a, 2, 0),
            recv(t.a, 9, MSG_DONTWAIT)
        ]
    }),
    ("recv: a stream, later", || {
        let t = tcp();
        let b = t.b;
        let _later = soon(move || put(b, b"abc"));
        these![
            recv(t.a, 2, MSG_PEEK),
            recv(t.a, 9, 0),
            recv(t.a, 9, MSG_DONTWAIT)
        ]
    }),
    ("recv: nothing of a stream", || {
        let t = tcp();
        timeout(t.a, SO_RCVTIMEO, 9);
        let empty = recv(t.a, 0, 0);
        put(t.b, b"abc");
        these![
            empty,
            recv(t.a, 0, 0),
            recv(t.a, 0, MSG_DONTWAIT),
            recv(t.a, 9, 0)
        ]
    }),
    ("recv: nothing of a Unix stream", || {
        let s = unix(SOCK_STREAM);
        timeout(s.a, SO_RCVTIMEO, 9);
        let empty = recv(s.a, 0, 0);
        put(s.b, b"abc");
        these![empty, recv(s.a, 0, 0), recv(s.a, 9, 0)]
    }),
    ("recv: no urgent byte", || recv(tcp().a, 1, MSG_OOB)),
    ("recv: an urgent byte", || {
        let t = tcp();
        these![
            send(t.b, b"abc", MSG_OOB),
            poll(&[(t.a, POLLPRI)], 1000),
            recv(t.a, 9, MSG_OOB),
            recv(t.a, 9, 0),
        ]
    }),
    ("recv: past the urgent mark, later", || {
        let t = tcp();
        let b = t.b;
        let _later = soon(move || {
            send(b, b"abc", MSG_OOB);
            put(b, b"def");
        });
        let first = recv(t.a, 9, 0);
        these![first, recv(t.a, 9, 0)]
    }),
    ("recv: an error queue", || recv(tcp().a, 9, MSG_ERRQUEUE)),
    ("recv: all of a stream", || {
        let (s, t) = (unix(SOCK_STREAM), tcp());
        put(s.b, b"abc");
        put(t.b, b"abc");
        these![recv(s.a, 3, MSG_WAITALL), recv(t.a, 3, MSG_WAITALL)]
    }),
    ("recv: all of a stream, in parts", || {
        let (s, t) = (unix(SOCK_STREAM), tcp());
        let (b, c) = (s.b, t.b);
        put(b, b"ab");
        put(c, b"ab");
        let _later = soon(move || {
            put(b, b"cd");
            put(c, b"cd");
            drop(soon(move || {
                put(b, b"ef");
                put(c, b"ef");
            }));
        });
        these![recv(s.a, 6, MSG_WAITALL), recv(t.a, 6, MSG_WAITALL)]
    }),
    ("recv: all of a stream that ends", || {
        let (mut s, mut t) = (unix(SOCK_STREAM), tcp());
        put(s.b, b"abc");
        put(t.b, b"abc");
        let ends = (s.take_b(), t.take_b());
        let _later = soon(|| drop(ends));
        let all = |fd| these![recv(fd, 9, MSG_WAITALL), recv(fd, 9, MSG_WAITALL)];
        these![all(s.a), all(t.a)]
    }),
    ("recv: all of a stream that is reset", || {
        let mut t = tcp();
        put(t.b, b"abc");
        let b = t.take_b();
        let _later = soon(|| reset(b));
        let all = |_| recv(t.a, 9, MSG_WAITALL);
        [(); 3].map(all).join("; ")
    }),
    ("recv: all of a Unix stream that is reset", || {
        let mut s = unix(SOCK_STREAM);
        put(s.b, b"abc");
        // Bytes that its end has not read reset it.
        put(s.a, b"abc");
        let b = s.take_b();
        let _later = soon(|| drop(b));
        let all = |_| recv(s.a, 9, MSG_WAITALL);
        [(); 3].map(all).join("; ")
    }),
    ("recv: all of a stream, a timeout", || {
        let (s, t) = (unix(SOCK_STREAM), tcp());
        for fd in [s.a, t.a] {
            timeout(fd, SO_RCVTIMEO, 9);
        }
        put(s.b, b"abc");
        put(t.b, b"abc");
        let all = |fd| lasts(9, || recv(fd, 9, MSG_WAITALL));
        these![all(s.a), all(t.a), all(t.a)]
    }),
    ("recv: all of a stream, non-blocking", || {
        let t = tcp();
        nonblocking(t.a);
        put(t.b, b"abc");
        these![recv(t.a, 9, MSG_WAITALL), recv(t.a, 9, MSG_WAITALL)]
    }),
    ("recv: all of a stream with an urgent byte", || {
        let t = tcp();
        put(t.b, b"ab");
        these![send(t.b, b"c", MSG_OOB), {
            put(t.b, b"de");
            poll(&[(t.a, POLLPRI)], 1000);
            these![recv(t.a, 4, MSG_WAITALL), recv(t.a, 9, MSG_DONTWAIT)]
        }]
    }),
    ("recv: all of a stream with an urgent byte, later", || {
        let t = tcp();
        put(t.b, b"ab");
        let b = t.b;
        let _later = soon(move || {
            send(b, b"c", MSG_OOB);
            put(b, b"de");
        });
        these![recv(t.a, 4, MSG_WAITALL), recv(t.a, 9, 0)]
    }),
    (
        "recv: all of a stream with an urgent byte in line, later",
        || {
            let t = tcp();
            set(t.a, libc::SOL_SOCKET, libc::SO_OOBINLINE, &1);
            put(t.b, b"ab");
            let b = t.b;
            let _later = soon(move || {
                send(b, b"c", MSG_OOB);
                put(b, b"de");
            });
            these![recv(t.a, 4, MSG_WAITALL), recv(t.a, 3, MSG_WAITALL)]
        },
    ),
    ("recv: all of a stream, to look at", || {
        let s = unix(SOCK_STREAM);
        put(s.b, b"ab");
        let b = s.b;
        let _later = soon(move || put(b, b"cd"));
        these![recv(s.a, 4, MSG_WAITALL | MSG_PEEK), recv(s.a, 2, 0)]
    }),
    ("recv: all of a datagram", || {
        let d = unix(SOCK_DGRAM);
        put(d.b, b"abc");
        let b = d.b;
        let _later = soon(move || put(b, b"def"));
        these![recv(d.a, 9, MSG_WAITALL), recv(d.a, 9, MSG_WAITALL)]
    }),
    ("recv: all of a record", || {
        let d = unix(SOCK_SEQPACKET);
        let b = d.b;
        let _later = soon(move || {
            put(b, b"abc");
            put(b, b"def");
            shut(b, SHUT_WR);
        });
        these![recv(d.a, 9, MSG_WAITALL), recv(d.a, 9, MSG_WAITALL)]
    }),
    ("recv: a long datagram", || {
        let d = unix(SOCK_DGRAM);
        put(d.b, b"first");
        put(d.b, b"second");
        these![
            recv(d.a, 2, MSG_TRUNC),
            recv(d.a, 2, MSG_PEEK | MSG_TRUNC),
            recv(d.a, 9, 0)
        ]
    }),
    ("recv: no socket", || {
        these![recv(pipe().a, 9, 0), recv(CLOSED, 9, 0)]
    }),
    ("recv: a port that refuses", || {
        let (u, to) = (socket(AF_INET, SOCK_DGRAM), {
            let gone = bound(SOCK_DGRAM, &Addr::loopback());
            Addr::of(of(&gone))
        });
        these![
            connect(of(&u), &to),
            send(of(&u), b"abc", 0),
            recv(of(&u), 9, 0)
        ]
    }),
    ("recvfrom: a datagram", || {
        let u = bound(SOCK_DGRAM, &Addr::loopback());
        let (from, to) = (bound(SOCK_DGRAM, &Addr::loopback()), Addr::of(of(&u)));
        let first = sendto(of(&from), b"abc", 0, &to);
        let later = of(&from);
        let _later = soon(move || drop(sendto(later, b"def", 0, &to)));
        these![
            first,
            recvfrom(of(&u), 9, 0, Some(128)),
            recvfrom(of(&u), 9, 0, Some(128)),
        ]
    }),
    ("recvfrom: a short place for the address", || {
        let u = bound(SOCK_DGRAM, &Addr::loopback());
        let (from, to) = (bound(SOCK_DGRAM, &Addr::loopback()), Addr::of(of(&u)));
        let later = of(&from);
        let _later = soon(move || drop(sendto(later, b"def", 0, &to)));
        recvfrom(of(&u), 9, 0, Some(1))
    }),
    ("recvfrom: no place for the address", || {
        let d = unix(SOCK_DGRAM);
        let b = d.b;
        let _later = soon(move || put(b, b"abc"));
        recvfrom(d.a, 9, 0, None)
    }),
    ("recvfrom: a strange length of the address", || {
        let d = unix(SOCK_DGRAM);
        let b = d.b;
        put(b, b"abc");
        let _later = soon(move || put(b, b"abc"));
        let negative = Some(u32::MAX);
        these![recvfrom(d.a, 9, 0, negative), recvfrom(d.a, 9, 0, negative)]
    }),
    ("recvfrom: a stream", || {
        let t = tcp();
        put(t.b, b"abc");
        let b = t.b;
        let _later = soon(move || put(b, b"def"));
        these![
            recvfrom(t.a, 9, 0, Some(128)),
            recvfrom(t.a, 9, 0, Some(128))
        ]
    }),
    ("recvmsg: a stream", || {
        let s = unix(SOCK_STREAM);
        put(s.b, b"abc");
        let b = s.b;
        let _later = soon(move || put(b, b"def"));
        these![recvmsg(s.a, &[1, 9], 0, 0), recvmsg(s.a, &[1, 9], 0, 0)]
    }),
    ("recvmsg: a descriptor", || {
        let s = unix(SOCK_STREAM);
        let sent = sendmsg(s.b, b"abc", &[3], Some(s.b));
        let b = s.b;
        let _later = soon(move || drop(sendmsg(b, b"def", &[3], Some(b))));
        these![sent, recvmsg(s.a, &[9], 64, 0), recvmsg(s.a, &[9], 64, 0)]
    }),
    ("recvmsg: a descriptor without room", || {
        let s = unix(SOCK_STREAM);
        let b = s.b;
        let _later = soon(move || drop(sendmsg(b, b"abc", &[3], Some(b))));
        recvmsg(s.a, &[9], 0, 0)
    }),
    ("recvmsg: a long datagram", || {
        let d = unix(SOCK_DGRAM);
        let b = d.b;
        let _later = soon(move || put(b, b"abc"));
        recvmsg(d.a, &[1, 1], 0, 0)
    }),
    ("recvmsg: all of a stream", || {
        let t = tcp();
        put(t.b, b"ab");
        let b = t.b;
        let _later = soon(move || {
            put(b, b"cd");
            drop(soon(move || put(b, b"ef")));
        });
        recvmsg(t.a, &[1, 5], 0, MSG_WAITALL)
    }),
    ("recvmsg: all of a stream, later", || {
        let t = tcp();
        let b = t.b;
        let _later = soon(move || put(b, b"ab"));
        recvmsg(t.a, &[1, 1], 0, MSG_WAITALL)
    }),
    (
        "recvmsg: all of a stream, with room for a descriptor",
        || {
            let s = unix(SOCK_STREAM);
            put(s.b, b"ab");
            let b = s.b;
            let _later = soon(move || put(b, b"cd"));
            recvmsg(s.a, &[1, 3], 64, MSG_WAITALL)
        },
    ),
    ("recvmsg: no message", || {
        // SAFETY: there is no message.
        got(|| unsafe { libc::recvmsg(unix(SOCK_STREAM).a, null_mut(), 0) as i64 })
    }),
    ("recvmsg: too many buffers", || {
        recvmsg(unix(SOCK_STREAM).a, &[1; 1025], 0, 0)
    }),
];

const SENDS: &[Case] = &[
    ("send: a stream", || {
        let t = tcp();
        these![send(t.a, b"abc", 0), send(t.a, b"", 0), recv(t.b, 9, 0)]
    }),
    ("send: a stream that has ended", || {
        let mut s = unix(SOCK_STREAM);
        drop(s.take_b());
        these![send(s.a, b"abc", MSG_NOSIGNAL), send(s.a, b"abc", 0)]
    }),
    ("send: a socket without a peer", || {
        let all = [
            (AF_INET, SOCK_STREAM),
            (AF_INET, SOCK_DGRAM),
            (AF_UNIX, SOCK_STREAM),
            (AF_UNIX, SOCK_DGRAM),
        ];
        all.map(|(family, kind)| send(of(&socket(family, kind)), b"abc", MSG_NOSIGNAL))
            .join("; ")
    }),
    ("send: too long a datagram", || {
        let u = bound(SOCK_DGRAM, &Addr::loopback());
        sendto(of(&u), &[1; 70_000], 0, &Addr::of(of(&u)))
    }),
    ("send: no socket", || {
        these![send(pipe().b, b"a", 0), send(CLOSED, b"a", 0)]
    }),
    ("send: a full receiver", || {
        let d = unix(SOCK_DGRAM);
        let n = fill(d.a);
        let at_once = send(d.a, b"abc", MSG_DONTWAIT);
        let b = d.b;
        let _later = soon(move || drain(b, n));
        these![at_once, send(d.a, b"", 0)]
    }),
    ("send: a full receiver that ends", || {
        let mut d = unix(SOCK_DGRAM);
        fill(d.a);
        let b = d.take_b();
        let _later = soon(|| drop(b));
        send(d.a, b"abc", 0)
    }),
    ("send: an urgent byte to a full stream", || {
        let t = tcp();
        let n = fill(t.a);
        let b = t.b;
        let _later = soon(move || drain(b, n));
        send(t.a, b"abc", MSG_OOB)
    }),
    ("sendto: a full receiver", || {
        let (receiver, addr, sender) = full();
        let fd = of(&receiver);
        let _later = soon(move || drain(fd, 2));
        sendto(of(&sender), b"abc", 0, &addr)
    }),
    ("sendto: a full receiver, a timeout", || {
        let (_receiver, addr, sender) = full();
        timeout(of(&sender), SO_SNDTIMEO, 30);
        lasts(30, || sendto(of(&sender), b"abc", 0, &addr))
    }),
    ("sendto: a full receiver that ends", || {
        let (receiver, addr, sender) = full();
        let _later = soon(|| drop(receiver));
        sendto(of(&sender), b"abc", 0, &addr)
    }),
    ("sendto: strange addresses", || {
        let (u, d) = (socket(AF_INET, SOCK_DGRAM), socket(AF_UNIX, SOCK_DGRAM));
        these![
            sendto(of(&u), b"abc", 0, &Addr::strange()),
            sendto(of(&d), b"abc", 0, &Addr::unix()),
            sendto(of(&u), b"abc", 0, &Addr::short()),
            sendto(unix(SOCK_STREAM).a, b"abc", 0, &Addr::unix()),
        ]
    }),
    ("sendmsg: a stream", || {
        let s = unix(SOCK_STREAM);
        these![sendmsg(s.a, b"abcd", &[1, 0, 3], None), read(s.b, 9)]
    }),
    ("sendmsg: a stream that is full", || {
        let t = tcp();
        let b = t.b;
        let _later = soon(move || drain(b, 8 << 20));
        sendmsg(t.a, &vec![1; 8 << 20], &[1, (8 << 20) - 1], None)
    }),
    ("sendmsg: a descriptor to a full stream", || {
        let s = unix(SOCK_STREAM);
        let n = fill(s.a);
        let b = s.b;
        let later = soon(move || drain(b, n));
        let sent = sendmsg(s.a, b"abc", &[3], Some(s.a));
        drop(later);
        these![sent, recvmsg(s.b, &[9], 64, 0)]
    }),
    ("sendmsg: a bad descriptor", || {
        sendmsg(unix(SOCK_STREAM).a, b"abc", &[3], Some(CLOSED))
    }),
    ("sendmsg: an empty datagram", || {
        let d = unix(SOCK_DGRAM);
        these![sendmsg(d.a, b"", &[], None), recv(d.b, 9, MSG_DONTWAIT)]
    }),
    ("sendmsg: an empty datagram to a full receiver", || {
        let d = unix(SOCK_DGRAM);
        let n = fill(d.a);
        let b = d.b;
        let _later = soon(move || drain(b, n));
        sendmsg(d.a, b"", &[], None)
    }),
    ("sendmsg: too many buffers", || {
        sendmsg(unix(SOCK_STREAM).a, b"", &[0; 1025], None)
    }),
    ("sendmsg: no message", || {
        // SAFETY: there is no message.
        got(|| unsafe { libc::sendmsg(unix(SOCK_STREAM).a, null(), 0) as i64 })
    }),
];

const CONNECTIONS: &[Case] = &[
    ("accept: a connection", || {
        let l = listener(&Addr::loopback(), 4);
        let (c, to) = (socket(AF_INET, SOCK_STREAM), Addr::of(of(&l)));
        these![connect(of(&c), &to), accept(of(&l)), connect(of(&c), &to)]
    }),
    ("accept: a connection, later", || {
        let l = listener(&Addr::loopback(), 4);
        let to = Addr::of(of(&l));
        let _later = soon(move || drop(connect(of(&socket(AF_INET, SOCK_STREAM)), &to)));
        accept(of(&l))
    }),
    ("accept: a Unix connection, later", || {
        let to = Addr::unix();
        let l = listener(&to, 4);
        let _later = soon(move || drop(connect(of(&socket(AF_UNIX, SOCK_STREAM)), &to)));
        accept(of(&l))
    }),
    ("accept: flags", || {
        let l = listener(&Addr::loopback(), 4);
        let (c, to) = (socket(AF_INET, SOCK_STREAM), Addr::of(of(&l)));
        let first = connect(of(&c), &to);
        let _later = soon(move || drop(connect(of(&socket(AF_INET, SOCK_STREAM)), &to)));
        these![
            first,
            accept4(of(&l), SOCK_CLOEXEC | SOCK_NONBLOCK),
            accept4(of(&l), SOCK_NONBLOCK),
            accept4(of(&l), 1),
        ]
    }),
    ("accept: non-blocking", || {
        let l = listener(&Addr::loopback(), 4);
        nonblocking(of(&l));
        accept(of(&l))
    }),
    ("accept: a timeout", || {
        let (l, u) = (listener(&Addr::loopback(), 4), listener(&Addr::unix(), 4));
        timeout(of(&l), SO_RCVTIMEO, 9);
        timeout(of(&u), SO_RCVTIMEO, 9);
        these![lasts(9, || accept(of(&l))), lasts(9, || accept(of(&u)))]
    }),
    ("accept: a listener that is shut down", || {
        let (l, u) = (listener(&Addr::loopback(), 4), listener(&Addr::unix(), 4));
        let (a, b) = (of(&l), of(&u));
        let _later = soon(move || {
            shut(a, SHUT_RDWR);
            shut(b, SHUT_RDWR);
        });
        these![accept(a), accept(b)]
    }),
    ("accept: no listener", || {
        these![
            accept(of(&socket(AF_INET, SOCK_STREAM))),
            accept(of(&socket(AF_INET, SOCK_DGRAM))),
            accept(unix(SOCK_STREAM).a),
            accept(unix(SOCK_DGRAM).a),
            accept(pipe().a),
            accept(CLOSED),
        ]
    }),
    ("connect: nobody", || {
        let to = Addr::of(of(&bound(SOCK_STREAM, &Addr::loopback())));
        these![
            connect(of(&socket(AF_INET, SOCK_STREAM)), &to),
            connect(of(&socket(AF_UNIX, SOCK_STREAM)), &Addr::unix()),
            connect(of(&socket(AF_UNIX, SOCK_DGRAM)), &Addr::unix()),
        ]
    }),
    ("connect: strange addresses", || {
        let s = socket(AF_INET, SOCK_STREAM);
        let short = Addr::short();
        these![
            connect(of(&s), &Addr::strange()),
            connect(of(&s), &short),
            connect(of(&s), &Addr::unix()),
            connect(pipe().a, &Addr::loopback()),
            connect(CLOSED, &Addr::loopback()),
            // SAFETY: the address is not mapped.
            got(|| unsafe { libc::connect(of(&s), nowhere().cast(), 16) }),
        ]
    }),
    ("connect: datagrams", || {
        let (u, v) = (
            socket(AF_INET, SOCK_DGRAM),
            bound(SOCK_DGRAM, &Addr::loopback()),
        );
        these![
            connect(of(&u), &Addr::of(of(&v))),
            send(of(&u), b"abc", 0),
            read(of(&v), 9)
        ]
    }),
    ("connect: twice", || {
        let l = listener(&Addr::unix(), 4);
        let s = socket(AF_UNIX, SOCK_STREAM);
        let to = Addr::of(of(&l));
        these![
            connect(of(&s), &to),
            connect(of(&s), &to),
            connect(of(&l), &to)
        ]
    }),
    ("connect: a TCP listener that is full, twice", || {
        let l = listener(&Addr::loopback(), 0);
        let to = Addr::of(of(&l));
        let [first, second] = [(); 2].map(|()| socket(AF_INET, SOCK_STREAM));
        timeout(of(&second), SO_SNDTIMEO, 20);
        let again = || lasts(20, || connect(of(&second), &to));
        these![connect(of(&first), &to), again(), again()]
    }),
    ("connect: a Unix listener that is full", || {
        let l = listener(&Addr::unix(), 0);
        let to = Addr::of(of(&l));
        let [first, second, third] = [(); 3].map(|()| socket(AF_UNIX, SOCK_STREAM));
        nonblocking(of(&third));
        timeout(of(&second), SO_SNDTIMEO, 20);
        let full = these![
            connect(of(&first), &to),
            lasts(20, || connect(of(&second), &to)),
            connect(of(&third), &to),
        ];
        timeout(of(&second), SO_SNDTIMEO, 0);
        let fd = of(&l);
        let _later = soon(move || drop(accept(fd)));
        these![full, connect(of(&second), &to)]
    }),
    ("connect: a Unix listener that is full and ends", || {
        let l = listener(&Addr::unix(), 0);
        let to = Addr::of(of(&l));
        let [first, second] = [(); 2].map(|()| socket(AF_UNIX, SOCK_STREAM));
        let first = connect(of(&first), &to);
        let _later = soon(|| drop(l));
        these![first, connect(of(&second), &to)]
    }),
];

const POLLS: &[Case] = &[
    ("poll: ready", || {
        let p = pipe();
        put(p.b, b"abc");
        these![
            poll(&[(p.a, POLLIN), (p.b, POLLOUT)], -1),
            poll(&[(p.a, POLLIN)], 0)
        ]
    }),
    ("poll: later", || {
        let p = pipe();
        let b = p.b;
        let _later = soon(move || put(b, b"abc"));
        poll(&[(p.a, POLLIN)], -1)
    }),
    ("poll: several, later", || {
        let (p, s) = (pipe(), unix(SOCK_STREAM));
        let b = s.b;
        let _later = soon(move || put(b, b"abc"));
        poll(
            &[
                (p.a, POLLIN),
                (s.a, POLLIN | POLLRDHUP),
                (s.a, POLLIN),
                (-1, POLLIN),
            ],
            5000,
        )
    }),
    ("poll: a timeout", || {
        let p = pipe();
        these![
            lasts(9, || poll(&[(p.a, POLLIN)], 9)),
            lasts(9, || poll(&[(p.a, POLLIN), (p.a, POLLPRI)], 9)),
            lasts(9, || poll(&[], 9)),
            lasts(9, || poll(&[(-5, POLLIN)], 9)),
            poll(&[], 0),
        ]
    }),
    ("poll: no descriptor", || {
        these![
            poll(&[(CLOSED, POLLIN)], 9),
            poll(&[(CLOSED, 0), (pipe().a, POLLIN)], -1)
        ]
    }),
    ("poll: a hangup", || {
        let mut p = pipe();
        let b = p.take_b();
        let _later = soon(|| drop(b));
        poll(&[(p.a, 0)], -1)
    }),
    ("poll: a hangup of one of several", || {
        let (mut p, q) = (pipe(), pipe());
        let b = p.take_b();
        let _later = soon(|| drop(b));
        poll(&[(q.a, POLLIN), (p.a, 0)], -1)
    }),
    ("poll: a reset", || {
        let mut t = tcp();
        let b = t.take_b();
        let _later = soon(|| reset(b));
        poll(&[(t.a, 0)], 5000)
    }),
    ("poll: an error of a pipe", || {
        let mut p = pipe();
        fill(p.b);
        let a = p.take_a();
        let _later = soon(|| drop(a));
        poll(&[(p.b, POLLERR | POLLHUP)], 5000)
    }),
    ("poll: the peer's half", || {
        let s = unix(SOCK_STREAM);
        let b = s.b;
        let _later = soon(move || drop(shut(b, SHUT_WR)));
        poll(&[(s.a, POLLRDHUP)], 5000)
    }),
    ("poll: an urgent byte", || {
        let t = tcp();
        let b = t.b;
        let _later = soon(move || drop(send(b, b"x", MSG_OOB)));
        poll(&[(t.a, POLLPRI)], 5000)
    }),
    ("poll: an urgent byte, with others", || {
        let (t, p) = (tcp(), pipe());
        let b = t.b;
        let _later = soon(move || drop(send(b, b"x", MSG_OOB)));
        poll(&[(p.a, POLLIN), (t.a, POLLPRI)], 5000)
    }),
    ("poll: room", || {
        let s = unix(SOCK_STREAM);
        let n = fill(s.a);
        let b = s.b;
        let _later = soon(move || drain(b, n));
        poll(&[(s.a, POLLOUT)], -1)
    }),
    ("poll: files and directories", || {
        let (f, d) = (file(b"content"), open("/", O_RDONLY));
        poll(&[(of(&f), POLLIN | POLLOUT), (of(&d), POLLIN)], -1)
    }),
    ("poll: an eventfd, a timerfd, a terminal", || {
        let (e, f, t) = (eventfd(0), timerfd(5), terminal());
        these![
            poll(&[(of(&e), POLLIN | POLLOUT)], -1),
            poll(&[(of(&e), POLLIN), (of(&f), POLLIN), (t.a, POLLIN)], -1),
        ]
    }),
    ("poll: an epoll instance", || {
        let (set, p) = (epoll(), pipe());
        watch(of(&set), p.a, libc::EPOLLIN);
        let b = p.b;
        let _later = soon(move || put(b, b"abc"));
        these![
            poll(&[(of(&set), POLLIN)], -1),
            epoll_wait(of(&set), 4, -1, false)
        ]
    }),
    ("poll: no array", || {
        these![
            poll_nothing(0, 9),
            // The kernel's number has 32 bits.
            poll_nothing(1 << 40, 9),
            poll_nothing(3, 9),
            poll_nothing(3, 0),
            poll_nothing(u64::from(u32::MAX), 9),
        ]
    }),
    ("poll: a signal", || {
        let p = pipe();
        let _interrupted = interrupt();
        poll(&[(p.a, POLLIN)], 300)
    }),
    ("ppoll: times and masks", || {
        let p = pipe();
        let one = [(p.a, POLLIN)];
        these![
            lasts(9, || ppoll(&one, (0, 9_000_000), false)),
            lasts(9, || ppoll(&one, (0, 9_000_000), true)),
            ppoll(&one, (0, 0), true),
            ppoll(&one, (0, 1_000_000_000), false),
            ppoll(&one, (-1, 0), false),
        ]
    }),
    ("select: later", || {
        let (p, q) = (pipe(), pipe());
        let b = p.b;
        let _later = soon(move || put(b, b"abc"));
        let n = p.b.max(q.b) + 1;
        select(n, [&[p.a, q.a], &[], &[q.a]], Some((5, 0)))
    }),
    ("select: room", || {
        let p = pipe();
        select(p.b + 1, [&[p.a], &[p.b], &[]], None)
    }),
    ("select: an urgent byte", || {
        let t = tcp();
        let b = t.b;
        let _later = soon(move || drop(send(b, b"x", MSG_OOB)));
        select(t.a + 1, [&[], &[], &[t.a]], Some((5, 0)))
    }),
    ("select: a timeout", || {
        let p = pipe();
        these![
            lasts(9, || select(
                p.a + 1,
                [&[p.a], &[], &[p.a]],
                Some((0, 9000))
            )),
            lasts(9, || select(0, [&[], &[], &[]], Some((0, 9000)))),
            select(p.a + 1, [&[p.a], &[], &[]], Some((0, 0))),
        ]
    }),
    ("select: strange numbers", || {
        let p = pipe();
        these![
            select(-1, [&[p.a], &[], &[]], Some((0, 9000))),
            select(p.a + 1, [&[p.a], &[], &[]], Some((0, -1))),
            select(p.a + 1, [&[p.a], &[], &[]], Some((-1, 0))),
        ]
    }),
    ("select: a closed descriptor", || {
        let closed = of(&eventfd(0));
        these![select(closed + 1, [&[closed], &[], &[]], Some((0, 9000)))]
    }),
    ("select: a descriptor beyond the table", || {
        let p = pipe();
        these![
            select(1024, [&[1023], &[], &[]], Some((0, 9000))),
            select(1024, [&[1023, p.a], &[], &[]], Some((0, 9000))),
        ]
    }),
    ("pselect: times and masks", || {
        let p = pipe();
        these![
            lasts(9, || pselect(p.a + 1, &[p.a], (0, 9_000_000), false)),
            lasts(9, || pselect(p.a + 1, &[p.a], (0, 9_000_000), true)),
            pselect(p.a + 1, &[p.a], (0, 1_000_000_000), false),
            pselect(-1, &[], (0, 9_000_000), false),
        ]
    }),
];

const SLEEPS: &[Case] = &[
    ("nanosleep", || {
        these![
            lasts(5, || nanosleep((0, 5_000_000))),
            nanosleep((0, 0)),
            nanosleep((0, 1_000_000_000)),
            nanosleep((0, -1)),
            nanosleep((-1, 0)),
        ]
    }),
    ("nanosleep: a signal", || {
        let _interrupted = interrupt();
        nanosleep((0, 300_000_000))
    }),
    ("clock_nanosleep", || {
        let (real, mono) = (libc::CLOCK_REALTIME, libc::CLOCK_MONOTONIC);
        let at = libc::TIMER_ABSTIME;
        these![
            lasts(5, || clock_nanosleep(mono, 0, (0, 5_000_000))),
            lasts(5, || clock_nanosleep(real, 0, (0, 5_000_000))),
            clock_nanosleep(mono, at, (1, 0)),
            clock_nanosleep(real, at, (1, 0)),
            clock_nanosleep(libc::CLOCK_BOOTTIME, 0, (0, 1000)),
            clock_nanosleep(mono, 0, (0, -1)),
            clock_nanosleep(12345, 0, (0, 1000)),
            clock_nanosleep(libc::CLOCK_THREAD_CPUTIME_ID, 0, (0, 1000)),
        ]
    }),
    ("usleep and sleep", || {
        // SAFETY: they take plain numbers.
        unsafe {
            these![
                lasts(5, || got(|| libc::usleep(5000))),
                got(|| libc::usleep(0)),
                got(|| i64::from(libc::sleep(0))),
            ]
        }
    }),
];

const SECTIONS: &[Case] = &[
    ("waitpid: no child", || {
        // SAFETY: the places are null, which is allowed.
        unsafe {
            these![
                got(|| libc::waitpid(std::process::id() as i32, null_mut(), 0)),
                got(|| libc::waitpid(-1, null_mut(), 0x4000_0000 | 0x7fff)),
                got(|| libc::wait4(-1, null_mut(), 0x7fff, null_mut())),
                got(|| libc::waitid(libc::P_PID, 1, null_mut(), libc::WEXITED)),
                got(|| libc::waitid(libc::P_PID, 1, null_mut(), 0)),
            ]
        }
    }),
    ("flock", || {
        let exe = "/proc/self/exe";
        let (a, b) = (open(exe, O_RDONLY), open(exe, O_RDONLY));
        // SAFETY: takes plain numbers.
        let lock = |fd, how| got(|| unsafe { libc::flock(fd, how) });
        let (held, no_wait) = (of(&a), libc::LOCK_EX | libc::LOCK_NB);
        let first = these![lock(held, libc::LOCK_EX), lock(of(&b), no_wait)];
        let _later = soon(move || drop(lock(held, libc::LOCK_UN)));
        these![
            first,
            lock(of(&b), libc::LOCK_EX),
            lock(CLOSED, libc::LOCK_SH),
            lock(held, 77)
        ]
    }),
    ("fsync and fdatasync", || {
        let (p, f) = (pipe(), file(b"content"));
        // SAFETY: they take plain numbers.
        let sync = |fd| unsafe { these![got(|| libc::fsync(fd)), got(|| libc::fdatasync(fd))] };
        these![sync(p.b), sync(of(&f)), sync(CLOSED)]
    }),
    ("splice", || {
        let (p, q, f) = (pipe(), pipe(), file(b"content"));
        let splice = |from, to, flags| {
            // SAFETY: the places are null, which is allowed.
            got(|| unsafe { libc::splice(from, null_mut(), to, null_mut(), 9, flags) as i64 })
        };
        put(p.b, b"abc");
        let b = p.b;
        let _later = soon(move || put(b, b"abc"));
        these![
            splice(p.a, q.b, 0),
            splice(p.a, q.b, libc::SPLICE_F_NONBLOCK),
            splice(p.a, q.b, 0),
            splice(of(&f), of(&f), 0),
            splice(CLOSED, q.b, 0),
        ]
    }),
    ("sendfile", || {
        let (s, f) = (unix(SOCK_STREAM), file(b"content"));
        let copy = |to, from| {
            // SAFETY: the place is null, which is allowed.
            got(|| unsafe { libc::sendfile(to, from, null_mut(), 9) as i64 })
        };
        these![
            copy(s.a, of(&f)),
            read(s.b, 9),
            copy(s.a, of(&f)),
            copy(s.a, CLOSED)
        ]
    }),
    ("epoll_wait", || {
        let (set, p) = (epoll(), pipe());
        watch(of(&set), p.a, libc::EPOLLIN);
        let empty = these![
            epoll_wait(of(&set), 4, 0, false),
            epoll_wait(of(&set), 4, 9, false)
        ];
        let b = p.b;
        let _later = soon(move || put(b, b"abc"));
        these![
            empty,
            epoll_wait(of(&set), 4, -1, false),
            epoll_wait(of(&set), 4, 9, true),
            epoll_wait(of(&set), 0, 9, false),
            epoll_wait(p.a, 4, 9, false),
            epoll_wait(CLOSED, 4, 9, true),
        ]
    }),
    ("recvmmsg and sendmmsg", || {
        let d = unix(SOCK_DGRAM);
        let many = |flags: i32, receives: bool| {
            let mut bytes = *b"abcdef";
            let mut iov = bytes.chunks_mut(3).map(|part| libc::iovec {
                iov_base: part.as_mut_ptr().cast(),
                iov_len: part.len(),
            });
            let mut iov = [iov.next().unwrap(), iov.next().unwrap()];
            let mut msgs = iov.each_mut().map(|one| libc::mmsghdr {
                msg_hdr: message(std::slice::from_mut(one)),
                msg_len: 0,
            });
            let at = msgs.as_mut_ptr();
            let got = got(|| match receives {
                // SAFETY: the messages and their buffers are valid.
                true => unsafe { libc::recvmmsg(d.b, at, 2, flags as _, null_mut()) },
                // SAFETY: as above.
                false => unsafe { libc::sendmmsg(d.a, at, 2, flags as _) },
            });
            format!("{got} {:?}", msgs.map(|msg| msg.msg_len))
        };
        let a = d.a;
        let _later = soon(move || {
            put(a, b"x");
            put(a, b"yz");
        });
        these![
            many(0, true),
            many(MSG_DONTWAIT, true),
            many(0, false),
            many(0, true)
        ]
    }),
    ("sem_wait", || {
        let mut sem = std::mem::MaybeUninit::<libc::sem_t>::uninit();
        let sem = sem.as_mut_ptr();
        // SAFETY: the semaphore stays until the thread that posts it has ended.
        unsafe {
            libc::sem_init(sem, 0, 1);
            let at = sem.addr();
            let _later = soon(move || {
                libc::sem_post(std::ptr::with_exposed_provenance_mut(at));
            });
            let _ = sem.expose_provenance();
            these![got(|| libc::sem_wait(sem)), got(|| libc::sem_wait(sem))]
        }
    }),
    ("pthread_join", || {
        let thread = std::thread::spawn(|| 5);
        format!("{:?}", thread.join().ok())
    }),
    ("getaddrinfo", || {
        let look = |name: &std::ffi::CStr| {
            let mut found = null_mut();
            // SAFETY: the names end with zero bytes; what is found is freed.
            unsafe {
                let r = libc::getaddrinfo(name.as_ptr(), c"80".as_ptr(), null(), &raw mut found);
                if r == 0 {
                    libc::freeaddrinfo(found);
                }
                r.to_string()
            }
        };
        these![look(c"127.0.0.1"), look(c"::1"), look(c"\xff")]
    }),
    ("syscall: a futex", || {
        let word = std::sync::atomic::AtomicU32::new(5);
        let wait = |value: u32, ns: i64, op: i32| {
            let time = timespec_of((0, ns));
            let at = word.as_ptr();
            // SAFETY: the word and the time are valid.
            got(|| unsafe { libc::syscall(libc::SYS_futex, at, op, value, &raw const time, 0, !0) })
        };
        let private = libc::FUTEX_PRIVATE_FLAG;
        these![
            wait(4, 1, libc::FUTEX_WAIT | private),
            lasts(5, || wait(5, 5_000_000, libc::FUTEX_WAIT | private)),
            wait(5, 0, libc::FUTEX_WAIT_BITSET | private),
            wait(5, 2_000_000_000, libc::FUTEX_WAIT),
            wait(5, 0, 77),
        ]
    }),
    ("syscall: others", || {
        let none = null::<libc::c_void>();
        // SAFETY: they take plain numbers, and addresses that the kernel refuses.
        unsafe {
            these![
                got(|| libc::syscall(libc::SYS_close, CLOSED)),
                got(|| libc::syscall(100_000)),
                got(|| libc::syscall(libc::SYS_eventfd2, 0, O_NONBLOCK | EFD_NONBLOCK | 2)),
                got(|| libc::syscall(libc::SYS_clock_gettime, 0, nowhere())),
                got(|| libc::syscall(libc::SYS_futex, none, libc::FUTEX_WAIT, 0, none, none, 0)),
            ]
        }
    }),
];

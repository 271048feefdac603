//! `std`'s own sockets, pipes and sleeps, on goroutines.
#![allow(unsafe_code)]

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs, UdpSocket};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// Runs `f` as the first goroutine of a runtime with `ps` Ps. Ends the process if that takes longer
/// than a minute: nothing else would end a thread that waits in the kernel.
fn run<T: Send>(ps: usize, f: impl FnOnce() -> T + Send) -> T {
    let (done, ended) = mpsc::channel::<()>();
    let test = thread::current().name().unwrap_or("?").to_owned();
    let watch = thread::spawn(move || {
        if ended.recv_timeout(Duration::from_secs(60)) == Err(mpsc::RecvTimeoutError::Timeout) {
            eprintln!("{test} took a minute");
            std::process::abort();
        }
    });
    // SAFETY: the goroutines of these tests keep nothing of a thread across a call that waits.
    let result = unsafe {
        windlass_hook::install();
        let rt = windlass::Builder::new().processors(ps).build().unwrap();
        rt.run(f)
    };
    drop(done);
    watch.join().unwrap();
    result
}

/// Whether this process runs no other test. If it does, another one is started that runs `test` alone.
fn is_alone(test: &str) -> bool {
    const ALONE: &str = "WINDLASS_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command
        .args([test, "--exact", "--test-threads=1"])
        .env(ALONE, "");
    assert!(command.status().unwrap().success());
    false
}

fn errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap()
}

/// Waits until a condition holds that other goroutines make true. Many wait so at once: with a short
/// sleep they would leave no time to others.
fn until(done: impl Fn() -> bool) {
    while !done() {
        windlass::sleep(Duration::from_millis(50));
    }
}

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0)
}

/// The clients send nothing until all servers wait: with a thread blocked per wait, two Ps would
/// never get there. A neighbour gets on meanwhile.
#[test]
fn a_thousand_wait_at_tcp_streams() {
    const N: usize = 1000;
    run(2, || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let (go, waiting) = (AtomicBool::new(false), AtomicUsize::new(0));
        let turns = AtomicUsize::new(0);
        windlass::scope(|s| {
            s.spawn(|| {
                for _ in 0..N {
                    let (mut stream, _) = listener.accept().unwrap();
                    waiting.fetch_add(1, Ordering::Relaxed);
                    s.spawn(move || {
                        let mut buf = [0; 64];
                        loop {
                            let n = stream.read(&mut buf).unwrap();
                            if n == 0 {
                                break;
                            }
                            stream.write_all(&buf[..n]).unwrap();
                        }
                    });
                }
            });
            for i in 0..N {
                let (go, waiting) = (&go, &waiting);
                s.spawn(move || {
                    // No more than the listener's queue holds: the kernel tries others again after
                    // seconds.
                    until(|| waiting.load(Ordering::Relaxed) + 100 > i);
                    let mut stream = TcpStream::connect(addr).unwrap();
                    until(|| go.load(Ordering::Relaxed) && waiting.load(Ordering::Relaxed) == N);
                    let text = format!("hello {i}");
                    for _ in 0..3 {
                        stream.write_all(text.as_bytes()).unwrap();
                        let mut back = vec![0; text.len()];
                        stream.read_exact(&mut back).unwrap();
                        assert_eq!(back, text.as_bytes());
                    }
                });
            }
            until(|| waiting.load(Ordering::Relaxed) == N);
            for _ in 0..1000 {
                windlass::yield_now();
                turns.fetch_add(1, Ordering::Relaxed);
            }
            go.store(true, Ordering::Relaxed);
        });
        assert_eq!(turns.load(Ordering::Relaxed), 1000);
    });
}

/// On one P each read comes before its write.
#[test]
fn unix_streams_datagrams_and_pipes_park() {
    run(1, || {
        let (mut a, mut b) = UnixStream::pair().unwrap();
        let reader = windlass::spawn(move || {
            let mut text = String::new();
            a.read_to_string(&mut text).map(|_| text)
        });
        windlass::sleep(Duration::from_millis(5));
        b.write_all(b"stream").unwrap();
        drop(b);
        assert_eq!(reader.join().unwrap().unwrap(), "stream");

        let (a, b) = UnixDatagram::pair().unwrap();
        let reader = windlass::spawn(move || {
            let mut buf = [0; 16];
            a.recv(&mut buf).map(|n| buf[..n].to_vec())
        });
        windlass::sleep(Duration::from_millis(5));
        b.send(b"datagram").unwrap();
        assert_eq!(reader.join().unwrap().unwrap(), b"datagram");

        let a = UdpSocket::bind("127.0.0.1:0").unwrap();
        let b = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (to, from) = (a.local_addr().unwrap(), b.local_addr().unwrap());
        let reader = windlass::spawn(move || {
            let mut buf = [0; 16];
            a.recv_from(&mut buf)
                .map(|(n, who)| (buf[..n].to_vec(), who))
        });
        windlass::sleep(Duration::from_millis(5));
        b.send_to(b"udp", to).unwrap();
        assert_eq!(reader.join().unwrap().unwrap(), (b"udp".to_vec(), from));

        let (mut reader, mut writer) = io::pipe().unwrap();
        let reader = windlass::spawn(move || {
            let mut all = Vec::new();
            reader.read_to_end(&mut all).map(|_| all)
        });
        windlass::sleep(Duration::from_millis(5));
        let all: Vec<u8> = (0..300_000_u32).map(|n| n as u8).collect();
        // More than a pipe holds: the writer parks too.
        writer.write_all(&all).unwrap();
        drop(writer);
        assert_eq!(reader.join().unwrap().unwrap(), all);
    });
}

/// One `send` of a blocking socket sends all, and `MSG_WAITALL` receives all.
#[test]
fn a_blocking_send_sends_all() {
    run(1, || {
        let (client, server) = pair();
        let all = vec![7_u8; 8 << 20];
        windlass::scope(|s| {
            s.spawn(|| {
                let mut buf = vec![0_u8; all.len()];
                let (at, len) = (buf.as_mut_ptr().cast(), buf.len());
                // SAFETY: the buffer is valid for writes of its length.
                let n = unsafe { libc::recv(server.as_raw_fd(), at, len, libc::MSG_WAITALL) };
                assert_eq!((n as usize, buf == all), (all.len(), true));
            });
            let (at, len) = (all.as_ptr().cast(), all.len());
            // SAFETY: the buffer is valid for reads of its length.
            let n = unsafe { libc::send(client.as_raw_fd(), at, len, 0) };
            assert_eq!(n as usize, all.len());
        });
    });
}

/// In sequence it would be 1,000 times as long as one.
#[test]
fn a_thousand_sleeps_take_the_time_of_one() {
    let begin = Instant::now();
    run(2, || {
        windlass::scope(|s| {
            for _ in 0..1000 {
                s.spawn(|| thread::sleep(Duration::from_millis(100)));
            }
        });
    });
    let took = begin.elapsed();
    assert!(took >= Duration::from_millis(100));
    assert!(took < Duration::from_secs(25), "{took:?}");
}

#[test]
fn timeouts_of_sockets_end_waits() {
    run(1, || {
        let (mut client, _server) = pair();
        let time = Duration::from_millis(30);
        client.set_read_timeout(Some(time)).unwrap();
        let begin = Instant::now();
        let neighbour = windlass::spawn(|| {
            (0..10).for_each(|_| windlass::yield_now());
            Instant::now()
        });
        let e = client.read(&mut [0; 8]).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::WouldBlock);
        assert!(begin.elapsed() >= time);
        assert!(neighbour.join().unwrap() < begin + time + Duration::from_secs(5));

        client.set_write_timeout(Some(time)).unwrap();
        let full = vec![0; 1 << 20];
        let e = loop {
            if let Err(e) = client.write(&full) {
                break e;
            }
        };
        assert_eq!(e.kind(), ErrorKind::WouldBlock);
    });
}

fn flags_of(fd: RawFd) -> i32 {
    // SAFETY: takes plain numbers.
    unsafe { libc::fcntl(fd, libc::F_GETFL) }
}

#[test]
fn non_blocking_mode_is_left_alone() {
    run(1, || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
        let (mut client, mut server) = pair();
        client.set_nonblocking(true).unwrap();
        let e = client.read(&mut [0; 8]).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::WouldBlock);
        // A partial result, as without the crate.
        let all = vec![0; 64 << 20];
        assert!(client.write(&all).unwrap() < all.len());
        // The mode of a blocking socket never changes, not even while it waits.
        let before = flags_of(server.as_raw_fd());
        let fd = server.as_raw_fd();
        drop(client);
        let looker = windlass::spawn(move || flags_of(fd));
        let _ = server.read_to_end(&mut Vec::new());
        assert_eq!(looker.join().unwrap(), before);
        assert_eq!(flags_of(fd) & libc::O_NONBLOCK, 0);
    });
}

#[test]
fn plain_threads_block_as_before() {
    run(1, || ());
    let (mut client, mut server) = pair();
    let reader = thread::spawn(move || {
        let mut buf = [0; 4];
        client.read_exact(&mut buf).map(|()| buf)
    });
    thread::sleep(Duration::from_millis(20));
    server.write_all(b"text").unwrap();
    assert_eq!(&reader.join().unwrap().unwrap(), b"text");
    let (_client, mut server) = pair();
    server
        .set_read_timeout(Some(Duration::from_millis(5)))
        .unwrap();
    let e = server.read(&mut [0; 4]).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::WouldBlock);
}

/// The error is set on the thread on which the goroutine goes on.
#[test]
fn errno_is_right_after_a_migration() {
    run(2, || {
        let migrated = AtomicU64::new(0);
        windlass::scope(|s| {
            for _ in 0..200 {
                s.spawn(|| {
                    let (a, _b) = UnixStream::pair().unwrap();
                    a.set_read_timeout(Some(Duration::from_millis(3))).unwrap();
                    for _ in 0..10 {
                        // SAFETY: takes nothing; the buffer is valid for writes of its length.
                        let (before, n, e, after) = unsafe {
                            let before = libc::gettid();
                            let mut buf = [0_u8; 8];
                            let n = libc::recv(a.as_raw_fd(), buf.as_mut_ptr().cast(), 8, 0);
                            (before, n, errno(), libc::gettid())
                        };
                        assert_eq!((n, e), (-1, libc::EAGAIN));
                        migrated.fetch_add(u64::from(before != after), Ordering::Relaxed);
                    }
                });
            }
        });
    });
}

fn pollfd(fd: RawFd, events: i16) -> libc::pollfd {
    libc::pollfd {
        fd,
        events,
        revents: 0,
    }
}

#[test]
fn poll_and_select_wait_for_several() {
    run(1, || {
        let (a, to_a) = UnixStream::pair().unwrap();
        let (b, mut to_b) = UnixStream::pair().unwrap();
        let writer = windlass::spawn(move || {
            to_b.write_all(b"b").unwrap();
            (to_a, to_b)
        });
        let mut fds = [
            pollfd(a.as_raw_fd(), libc::POLLIN),
            pollfd(b.as_raw_fd(), libc::POLLIN),
        ];
        // SAFETY: the array is as long as the call says.
        assert_eq!(unsafe { libc::poll(fds.as_mut_ptr(), 2, -1) }, 1);
        assert_eq!((fds[0].revents, fds[1].revents), (0, libc::POLLIN));
        let (mut to_a, _to_b) = writer.join().unwrap();

        // The wait again, with nothing to come.
        let begin = Instant::now();
        // SAFETY: as above.
        assert_eq!(unsafe { libc::poll(fds.as_mut_ptr(), 1, 20) }, 0);
        assert!(begin.elapsed() >= Duration::from_millis(20));

        (&b).read_exact(&mut [0]).unwrap();
        let writer = windlass::spawn(move || to_a.write_all(b"a").map(|()| to_a));
        // A set as long as C clients make it: other tests have many descriptors open.
        let n = a.as_raw_fd().max(b.as_raw_fd()) + 1;
        let mut set = vec![0_u64; n as usize / 64 + 1];
        for fd in [a.as_raw_fd(), b.as_raw_fd()] {
            set[fd as usize / 64] |= 1 << (fd % 64);
        }
        let mut time = libc::timeval {
            tv_sec: 50,
            tv_usec: 0,
        };
        let (at, none, time_at) = (set.as_mut_ptr(), std::ptr::null_mut(), &raw mut time);
        // SAFETY: the set holds `n` descriptors; the time is valid.
        let ready = unsafe { libc::select(n, at.cast(), none, none, time_at) };
        assert_eq!(ready, 1);
        let is_set = |fd: RawFd| set[fd as usize / 64] >> (fd % 64) & 1 == 1;
        assert!(is_set(a.as_raw_fd()) && !is_set(b.as_raw_fd()));
        assert!(time.tv_sec < 50);
        drop(writer.join().unwrap());
    });
}

/// Programs ask for as many descriptors as they may open, with a set that is shorter: the kernel looks
/// at no more than there can be.
#[test]
fn select_looks_no_further_than_the_kernel() {
    const PAGE: usize = 4096;
    run(1, || {
        // SAFETY: a new mapping, whose second half cannot be accessed.
        let set = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let size = 2 * PAGE;
            let at = libc::mmap(std::ptr::null_mut(), size, libc::PROT_NONE, flags, -1, 0);
            let access = libc::PROT_READ | libc::PROT_WRITE;
            assert_eq!(libc::mprotect(at, PAGE, access), 0);
            at.cast::<u64>()
        };
        let (a, mut to_a) = UnixStream::pair().unwrap();
        let writer = windlass::spawn(move || to_a.write_all(b"a").map(|()| to_a));
        let fd = a.as_raw_fd() as usize;
        let none = std::ptr::null_mut();
        // SAFETY: the set has places for 32,768 descriptors, and fewer are open.
        let (ready, word) = unsafe {
            set.add(fd / 64).write(1 << (fd % 64));
            let ready = libc::select(1 << 20, set.cast(), none, none, std::ptr::null_mut());
            (ready, set.add(fd / 64).read())
        };
        assert_eq!((ready, word), (1, 1 << (fd % 64)));
        drop(writer.join().unwrap());
        // SAFETY: the mapping is that from above.
        unsafe { libc::munmap(set.cast(), 2 * PAGE) };
    });
}

#[test]
fn names_are_looked_up_off_the_p() {
    run(1, || {
        let addr = "localhost:80".to_socket_addrs().unwrap().next().unwrap();
        assert!(addr.ip().is_loopback());
        let e = TcpStream::connect("name.invalid:80");
        assert!(e.is_err());
    });
}

/// A child has the thread that forked, and no scheduler.
#[test]
fn a_child_of_fork_makes_the_system_call() {
    run(1, || {
        let (a, b) = UnixStream::pair().unwrap();
        // SAFETY: the child calls only functions that are async-signal-safe.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                let mut byte = 0_u8;
                let n = libc::recv(a.as_raw_fd(), (&raw mut byte).cast(), 1, 0);
                libc::_exit(if n == 1 && byte == 9 { 0 } else { 1 });
            }
            assert!(child > 0);
            thread::sleep(Duration::from_millis(20));
            assert_eq!(libc::send(b.as_raw_fd(), [9_u8].as_ptr().cast(), 1, 0), 1);
            let mut status = 0;
            let waited = windlass::blocking(|| libc::waitpid(child, &raw mut status, 0));
            assert_eq!((waited, status), (child, 0));
        }
    });
}

/// Goroutines of a runtime that the child builds park: each would have a thread of its own if its sleep
/// blocked.
#[test]
fn goroutines_of_a_child_of_fork_park() {
    const N: usize = 60;
    fn sleeps() -> bool {
        let n_threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
        run(1, || {
            windlass::scope(|s| {
                for _ in 0..N {
                    s.spawn(|| thread::sleep(Duration::from_millis(500)));
                }
                windlass::sleep(Duration::from_millis(400));
                n_threads() < N / 4
            })
        })
    }
    // The child has the locks that other threads hold at that moment, and would wait for them for ever.
    if !is_alone("goroutines_of_a_child_of_fork_park") {
        return;
    }
    // SAFETY: the child has this thread only, and waits for none of the others.
    let status = unsafe {
        windlass_hook::install();
        let child = libc::fork();
        if child == 0 {
            let is_well = std::panic::catch_unwind(sleeps).unwrap_or(false);
            libc::_exit(i32::from(!is_well));
        }
        assert!(child > 0);
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        status
    };
    assert_eq!(status, 0);
}

fn cpu_time() -> Duration {
    // SAFETY: all zeros is a time; the call writes it.
    let ts = unsafe {
        let mut ts: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut ts);
        ts
    };
    Duration::new(ts.tv_sec as u64, ts.tv_nsec as u32)
}

/// The waits fail, goroutines that try again do not spin, and their values are dropped.
#[test]
fn the_end_of_the_run_ends_waits() {
    let (ended, tries) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let held: Vec<_> = run(2, || {
        let mut held = Vec::new();
        for i in 0..100 {
            let (mut a, b) = UnixStream::pair().unwrap();
            held.push(b);
            let (ended, tries) = (Arc::clone(&ended), Arc::clone(&tries));
            windlass::spawn(move || {
                let mut left = 20;
                while left > 0 {
                    if i % 2 == 0 {
                        let e = a.read(&mut [0; 8]).unwrap_err();
                        assert_eq!(e.raw_os_error(), Some(libc::ECANCELED));
                    } else {
                        thread::sleep(Duration::from_secs(1000));
                    }
                    left -= 1;
                    tries.fetch_add(1, Ordering::Relaxed);
                }
                ended.fetch_add(1, Ordering::Relaxed);
            });
        }
        windlass::sleep(Duration::from_millis(50));
        assert_eq!(tries.load(Ordering::Relaxed), 0);
        held
    });
    assert_eq!(held.len(), 100);
    assert_eq!(
        (ended.load(Ordering::Relaxed), tries.load(Ordering::Relaxed)),
        (100, 2000)
    );
    let per_try = cpu_time() / 2000;
    assert!(per_try < Duration::from_secs(1), "{per_try:?}");
}

/// A C library of the program finds the functions of the executable.
#[test]
fn libraries_find_the_functions() {
    run(1, || ());
    for name in [
        c"recv",
        c"poll",
        c"nanosleep",
        c"connect",
        c"syscall",
        c"epoll_wait",
    ] {
        // SAFETY: the name ends with a null byte.
        let (first, next) = unsafe {
            let first = libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr());
            (first, libc::dlsym(libc::RTLD_NEXT, name.as_ptr()))
        };
        assert!(!first.is_null() && first != next, "{name:?}");
    }
}

#[test]
fn ureq_gets_200_pages_at_once() {
    const N: usize = 200;
    run(2, || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let here = AtomicUsize::new(0);
        windlass::scope(|s| {
            let here = &here;
            s.spawn(move || {
                for _ in 0..N {
                    let (mut stream, _) = listener.accept().unwrap();
                    here.fetch_add(1, Ordering::Relaxed);
                    s.spawn(move || {
                        let mut request = Vec::new();
                        while !request.ends_with(b"\r\n\r\n") {
                            let mut buf = [0; 512];
                            let n = stream.read(&mut buf).unwrap();
                            assert_ne!(n, 0);
                            request.extend(&buf[..n]);
                        }
                        // No answer before all have asked: all wait at once.
                        until(|| here.load(Ordering::Relaxed) == N);
                        let head =
                            "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\n";
                        stream.write_all(format!("{head}page").as_bytes()).unwrap();
                    });
                }
            });
            for _ in 0..N {
                let url = url.clone();
                s.spawn(move || {
                    let page = ureq::get(&url).call().unwrap().body_mut().read_to_string();
                    assert_eq!(page.unwrap(), "page");
                });
            }
        });
    });
}

/// A read says so; a sleep only ends.
#[test]
fn a_timeout_around_calls_ends_their_waits() {
    run(1, || {
        let time = Duration::from_millis(20);
        let (mut a, _b) = UnixStream::pair().unwrap();
        let begin = Instant::now();
        let mut kind = None;
        let over = windlass::time::timeout(time, || {
            kind = a.read(&mut [0; 8]).err().map(|e| e.kind());
        });
        assert_eq!((over.is_err(), kind), (true, Some(ErrorKind::TimedOut)));
        let over = windlass::time::timeout(time, || thread::sleep(Duration::from_secs(1000)));
        assert!(over.is_err());
        assert!(begin.elapsed() >= 2 * time && begin.elapsed() < Duration::from_secs(30));
    });
}

/// The kernel calls a datagram socket without a peer writable even if the receiver is full.
#[test]
fn a_full_receiver_of_datagrams_is_waited_for() {
    run(1, || {
        let path = std::env::temp_dir().join(format!("windlass-hook-{}", std::process::id()));
        let receiver = UnixDatagram::bind(&path).unwrap();
        let sender = UnixDatagram::unbound().unwrap();
        const N: usize = 2000;
        windlass::scope(|s| {
            s.spawn(|| {
                for _ in 0..N {
                    assert_eq!(sender.send_to(&[1; 100], &path).unwrap(), 100);
                }
            });
            windlass::sleep(Duration::from_millis(50));
            let mut buf = [0; 200];
            for _ in 0..N {
                assert_eq!(receiver.recv(&mut buf).unwrap(), 100);
            }
        });
        std::fs::remove_file(&path).unwrap();
    });
}

/// Denies the calling thread, and those that it starts, `recvmsg` and `sendmsg`.
fn deny_messages() {
    let by = |code: u32, k: i64, jf: u8| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf,
        k: k as u32,
    };
    let denies = by(
        libc::BPF_RET,
        i64::from(libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        0,
    );
    let equals = libc::BPF_JMP | libc::BPF_JEQ;
    let mut filter = [
        by(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        by(equals, libc::SYS_recvmsg, 1),
        denies,
        by(equals, libc::SYS_sendmsg, 1),
        denies,
        by(libc::BPF_RET, i64::from(libc::SECCOMP_RET_ALLOW), 0),
    ];
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: the filter is valid during the call.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
            | libc::prctl(
                libc::PR_SET_SECCOMP,
                libc::SECCOMP_MODE_FILTER,
                &raw const program,
            )
    };
    assert_eq!(done, 0, "{}", io::Error::last_os_error());
}

/// Reads and writes of files and pipes ask whether they have a socket by a message.
#[test]
fn files_and_pipes_work_where_a_sandbox_denies_messages() {
    let denied = || {
        deny_messages();
        run(1, || {
            assert!(!std::fs::read("/proc/self/status").unwrap().is_empty());
            io::Write::write_all(&mut std::fs::File::create("/dev/null").unwrap(), b"all").unwrap();
            let (mut reader, mut writer) = io::pipe().unwrap();
            let waiter = windlass::spawn(move || {
                let mut text = String::new();
                reader.read_to_string(&mut text).map(|_| text)
            });
            windlass::yield_now();
            writer.write_all(b"text").unwrap();
            drop(writer);
            assert_eq!(waiter.join().unwrap().unwrap(), "text");
        });
    };
    thread::spawn(denied).join().unwrap();
}

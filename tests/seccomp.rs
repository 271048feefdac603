//! A seccomp filter, as container engines install one, keeps system calls from the
//! runtime. In processes of their own: a filter cannot be taken off again.
#![allow(unsafe_code)]

#[path = "util/filter.rs"]
mod filter;
#[path = "util/profile.rs"]
mod profile;
#[path = "util/restricted.rs"]
mod restricted;
mod util;

use std::io::{self, BufRead, ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use filter::{deny, deny_for};
use io_uring::opcode;
use restricted::Allowed;
use util::{build, child_case, child_passes, child_passes_with_io, hang_guard, runtime};
use windlass::metrics::Poller;
use windlass::net::{TcpListener, TcpStream, UnixStream};
use windlass::{Builder, Runtime, spawn};

const SHORT: Duration = Duration::from_millis(1);

/// The descriptors of the process.
fn holdings() -> impl PartialEq + std::fmt::Debug {
    (util::open_fds(), util::n_threads(), util::mappings())
}

/// Builds where io_uring is required, which must fail, and leave nothing.
fn refused() -> io::Error {
    let builder = Builder::new().processors(2).require_io_uring(true);
    drop(build(builder.clone()));
    let before = holdings();
    let e = build(builder).expect_err("io_uring is denied");
    assert_eq!(holdings(), before);
    e
}

/// A runtime that may do without io_uring works, over epoll.
fn falls_back() {
    assert_eq!(runtime(2).metrics().poller, Poller::Epoll);
    works();
}

/// Runs a test in a child where nothing forces a poller. It writes one line, which names
/// the cause and the cure.
fn child_tells_once(name: &str, case: &str) {
    let stderr = child_passes_with_io(name, case, None);
    let lines: Vec<_> = stderr.lines().collect();
    assert_eq!(lines.len(), 1, "{stderr}");
    for words in [
        "windlass: cannot use io_uring: ",
        "seccomp",
        "allow io_uring_setup",
        "epoll is used instead",
    ] {
        assert!(lines[0].contains(words), "{stderr}");
    }
}

/// Calls of a program on a runtime.
fn works() {
    let _guard = hang_guard();
    runtime(2).run(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let server = spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut buf = [0; 4];
            stream.read_exact(&mut buf).unwrap();
            stream.write_all(&buf).unwrap();
        });
        let mut stream = TcpStream::connect(addr).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_millis(5)))
            .unwrap();
        assert_eq!(
            stream.read(&mut [0]).unwrap_err().kind(),
            ErrorKind::WouldBlock
        );
        stream.set_read_timeout(None).unwrap();
        stream.write_all(b"ping").unwrap();
        let mut buf = [0; 4];
        stream.read_exact(&mut buf).unwrap();
        assert_eq!(&buf, b"ping");
        server.join().unwrap();
        windlass::sleep(Duration::from_millis(1));
        let all: Vec<_> = (0..1000).map(|_| spawn(windlass::yield_now)).collect();
        all.into_iter().for_each(|j| j.join().unwrap());
        windlass::blocking(|| ());
        spawn(windlass::task::park);
    });
}

#[test]
fn io_uring_denied_with_eperm() {
    if child_case().is_none() {
        child_tells_once("io_uring_denied_with_eperm", "EPERM");
        return;
    }
    deny(libc::SYS_io_uring_setup, libc::EPERM);
    let e = refused();
    assert_eq!(e.kind(), ErrorKind::PermissionDenied);
    let text = e.to_string();
    assert!(
        text.contains("io_uring") && text.contains("seccomp"),
        "{text}"
    );
    assert!(
        text.contains("allow io_uring_setup"),
        "the cure is named: {text}"
    );
    falls_back();
}

#[test]
fn io_uring_denied_to_the_calling_thread_only() {
    if child_case().is_none() {
        child_tells_once("io_uring_denied_to_the_calling_thread_only", "EPERM");
        return;
    }
    // On a thread of its own, or the filter would be the main thread's.
    let thread = std::thread::spawn(|| {
        deny_for(0, libc::SYS_io_uring_setup, libc::EPERM);
        falls_back();
        refused()
    });
    let e = thread.join().unwrap();
    assert!(e.to_string().contains("seccomp"), "{e}");
}

#[test]
fn io_uring_denied_with_enosys() {
    if child_case().is_none() {
        child_tells_once("io_uring_denied_with_enosys", "ENOSYS");
        return;
    }
    deny(libc::SYS_io_uring_setup, libc::ENOSYS);
    let e = refused();
    assert_eq!(e.kind(), ErrorKind::Unsupported);
    let text = e.to_string();
    assert!(
        text.contains("io_uring") && text.contains("seccomp"),
        "{text}"
    );
    assert!(
        text.contains("allow io_uring_setup"),
        "the cure is named: {text}"
    );
    falls_back();
}

#[test]
fn io_uring_register_denied() {
    if child_case().is_none() {
        child_tells_once("io_uring_register_denied", "EPERM");
        return;
    }
    // The ring is there already when this fails.
    deny(libc::SYS_io_uring_register, libc::EPERM);
    let e = refused();
    assert_eq!(e.kind(), ErrorKind::PermissionDenied);
    assert!(e.to_string().contains("seccomp"), "{e}");
    falls_back();
}

#[test]
fn io_uring_enter_denied() {
    if child_case().is_none() {
        child_tells_once("io_uring_enter_denied", "EPERM");
        return;
    }
    deny(libc::SYS_io_uring_enter, libc::EPERM);
    assert!(refused().to_string().contains("seccomp"));
    falls_back();
}

/// As the default profiles of container engines have it.
#[test]
fn all_three_calls_denied() {
    if child_case().is_none() {
        child_tells_once("all_three_calls_denied", "EPERM");
        return;
    }
    deny_io_uring();
    assert!(refused().to_string().contains("seccomp"));
    falls_back();
}

const IO_URING: [libc::c_long; 3] = [
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
];

fn deny_io_uring() {
    for syscall in IO_URING {
        deny(syscall, libc::EPERM);
    }
}

/// A filter that a program inherits. `make test-filter` names the whole suite as the
/// command to run there.
#[test]
fn programs_that_are_started_under_a_filter() {
    let command = std::env::var("UNDER_FILTER").unwrap_or_else(|_| {
        let this = std::env::current_exe().unwrap();
        format!("'{}' --exact all_three_calls_denied", this.display())
    });
    // On a thread of its own, so that it is no other test's filter.
    let thread = std::thread::spawn(move || {
        for syscall in IO_URING {
            deny_for(0, syscall, libc::EPERM);
        }
        Command::new("sh")
            .args(["-c", &command])
            .env_remove("UNDER_FILTER")
            .status()
            .unwrap()
    });
    assert!(thread.join().unwrap().success());
}

const ALL_THREADS: libc::c_ulong = libc::SECCOMP_FILTER_FLAG_TSYNC;

/// What a program does that the profile is for: rings, and the other calls that windlass and `std` make.
fn works_by_rings() {
    let builder = Builder::new().processors(2).require_io_uring(true);
    let rt = build(builder).unwrap();
    assert_eq!(rt.metrics().poller, Poller::IoUring);
    drop(rt);
    works();
    let _guard = hang_guard();
    runtime(2).run(|| {
        let folder = std::env::temp_dir().join(format!("windlass-profile-{}", std::process::id()));
        windlass::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("file");
        windlass::fs::write(&file, b"bytes").unwrap();
        windlass::fs::rename(&file, folder.join("other")).unwrap();
        assert_eq!(windlass::fs::read(folder.join("other")).unwrap(), b"bytes");
        windlass::fs::remove_dir_all(&folder).unwrap();
        let echo = windlass::process::Command::new("echo")
            .arg("hello")
            .output();
        assert_eq!(echo.unwrap().stdout, b"hello\n");
        let (mut a, mut b) = UnixStream::pair().unwrap();
        a.write_all(b"x").unwrap();
        b.read_exact(&mut [0]).unwrap();
        let udp = windlass::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        udp.connect(udp.local_addr().unwrap()).unwrap();
        let packet = windlass::net::UdpSend::to_peer(b"packet");
        assert_eq!(udp.send_many(&[packet, packet]).unwrap(), 2);
        let mut buf = [0; 8];
        let mut bufs = [windlass::net::UdpRecv::new(&mut buf)];
        assert_eq!(udp.recv_many(&mut bufs).unwrap(), 1);
        let addrs = windlass::net::lookup_host("localhost:80").unwrap();
        assert!(addrs.count() > 0);
        let thread = windlass::blocking(|| std::thread::spawn(|| 7).join());
        assert_eq!(thread.unwrap(), 7);
        windlass::offload(|| std::thread::sleep(SHORT));
    });
}

/// Whether rings can be had without a filter.
fn has_rings() -> bool {
    let has = build(Builder::new().processors(1).require_io_uring(true)).is_ok();
    if !has {
        eprintln!("SKIPPED: there are no rings here");
    }
    has
}

/// docs/seccomp.json allows what a program with windlass needs, and denies what it does not name.
#[test]
fn the_profile_is_enough() {
    let profile = profile::profile();
    if child_case().is_none() {
        assert_eq!(profile::unknown(&profile), Vec::<&str>::new());
        if has_rings() {
            child_passes_with_io("the_profile_is_enough", "profile", None);
        }
        return;
    }
    profile::install(ALL_THREADS, &profile, &[]);
    // SAFETY: takes plain numbers, and fails.
    let r = unsafe { libc::unshare(libc::CLONE_NEWUSER) };
    assert_eq!(
        (r, io::Error::last_os_error().raw_os_error()),
        (-1, Some(libc::EPERM))
    );
    works_by_rings();
}

/// Each of the three calls is necessary: without it, the runtime uses epoll.
#[test]
fn a_profile_without_a_call_of_io_uring() {
    const NAME: &str = "a_profile_without_a_call_of_io_uring";
    const CALLS: [&str; 3] = ["io_uring_enter", "io_uring_register", "io_uring_setup"];
    let Some(case) = child_case() else {
        if has_rings() {
            for call in CALLS {
                child_passes_with_io(NAME, call, None);
            }
        }
        return;
    };
    profile::install(ALL_THREADS, &profile::profile(), &[&case]);
    falls_back();
}

/// Programs that inherit the profile: what `UNDER_PROFILE` says, as `make test-profile` does.
#[test]
fn programs_that_are_started_under_the_profile() {
    if !has_rings() {
        return;
    }
    let command = std::env::var("UNDER_PROFILE").unwrap_or_else(|_| "true".to_owned());
    // On a thread of its own, so that it is no other test's filter.
    let thread = std::thread::spawn(move || {
        profile::install(0, &profile::profile(), &[]);
        let mut program = Command::new("sh");
        program.args(["-c", &command]).env_remove("UNDER_PROFILE");
        program.status().unwrap()
    });
    assert!(thread.join().unwrap().success());
}

/// The operations that docs/CONTAINERS.md lists, with their numbers.
fn operations() -> Vec<(String, u8)> {
    let numbers = [
        ("ACCEPT", opcode::Accept::CODE),
        ("CONNECT", opcode::Connect::CODE),
        ("FALLOCATE", opcode::Fallocate::CODE),
        ("FSYNC", opcode::Fsync::CODE),
        ("MSG_RING", opcode::MsgRingData::CODE),
        ("OPENAT", opcode::OpenAt::CODE),
        ("POLL_ADD", opcode::PollAdd::CODE),
        ("READ", opcode::Read::CODE),
        ("READV", opcode::Readv::CODE),
        ("RECV", opcode::Recv::CODE),
        ("RECVMSG", opcode::RecvMsg::CODE),
        ("SEND", opcode::Send::CODE),
        ("SENDMSG", opcode::SendMsg::CODE),
        ("WRITE", opcode::Write::CODE),
        ("WRITEV", opcode::Writev::CODE),
    ];
    listed("operations", &numbers)
}

/// Those of `io_uring_register`. `SEND_MSG_RING` is made without a ring, so no restriction concerns it.
fn registers() -> Vec<(String, u8)> {
    let numbers = [
        ("IOWQ_MAX_WORKERS", 19),
        ("PBUF_RING", 22),
        ("PROBE", 8),
        ("SEND_MSG_RING", 31),
        ("SYNC_CANCEL", 24),
    ];
    listed("`io_uring_register`", &numbers)
}

/// The names in a row of the page, each with its number.
fn listed(row: &str, numbers: &[(&str, u8)]) -> Vec<(String, u8)> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/CONTAINERS.md");
    let page = std::fs::read_to_string(page).unwrap();
    let begin = format!("| {row} | ");
    let row = page.lines().find_map(|line| line.strip_prefix(&*begin));
    let names = row.unwrap().split('`').skip(1).step_by(2);
    names
        .map(|name| {
            let number = numbers.iter().find(|(known, _)| *known == name);
            (
                name.to_owned(),
                number.unwrap_or_else(|| panic!("{name}?")).1,
            )
        })
        .collect()
}

/// Rings that carry out the operations that the page lists, except the one of this name.
fn all_but(left_out: &str) -> Allowed {
    let without = |all: Vec<(String, u8)>| {
        let kept = all.into_iter().filter(|(name, _)| name != left_out);
        kept.map(|(_, number)| number).collect()
    };
    Allowed {
        operations: without(operations()),
        registers: without(registers()),
    }
}

/// With the operations of the page, and with one of them less, everything works, by rings, and under the profile.
/// `make test-restricted` names a suite as the command to run there. That is under no profile, as tests need more calls.
#[test]
fn programs_whose_rings_may_do_less() {
    const NAME: &str = "programs_whose_rings_may_do_less";
    if child_case().is_some() {
        return works_by_rings();
    }
    if !has_rings() {
        return;
    }
    let command = std::env::var("UNDER_RESTRICTIONS").ok();
    let mut names = vec!["none".to_owned()];
    names.extend(operations().into_iter().map(|(name, _)| name));
    for left_out in &names {
        restricted::with_rings(&all_but(left_out), || {
            let Some(command) = &command else {
                profile::install(0, &profile::profile(), &[]);
                child_passes_with_io(NAME, left_out, None);
                return;
            };
            let mut program = Command::new("sh");
            program
                .args(["-c", command])
                .env_remove("UNDER_RESTRICTIONS");
            let status = program.env("LEFT_OUT", left_out).status().unwrap();
            assert!(status.success(), "without {left_out}: {status}");
        });
    }
}

/// Of the operations of `io_uring_register` two are necessary, and without the others everything works by rings.
#[test]
fn programs_whose_rings_take_less() {
    const NAME: &str = "programs_whose_rings_take_less";
    match child_case().as_deref() {
        None => {
            if has_rings() {
                for (name, _) in registers() {
                    restricted::with_rings(&all_but(&name), || {
                        child_passes_with_io(NAME, &name, None)
                    });
                }
            }
        }
        Some("PROBE" | "SYNC_CANCEL") => falls_back(),
        Some(_) => works_by_rings(),
    }
}

#[test]
fn a_filter_that_is_older_than_epoll_pwait2() {
    if child_case().is_none() {
        child_tells_once("a_filter_that_is_older_than_epoll_pwait2", "EPERM");
        return;
    }
    deny_io_uring();
    deny(libc::SYS_epoll_pwait2, libc::EPERM);
    falls_back();
}

#[test]
fn rings_that_the_environment_asks_for_are_an_error() {
    if child_case().is_none() {
        let name = "rings_that_the_environment_asks_for_are_an_error";
        let stderr = child_passes_with_io(name, "EPERM", Some("uring"));
        assert_eq!(stderr, "");
        return;
    }
    deny_io_uring();
    let e = build(Builder::new().processors(2)).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::PermissionDenied);
    assert!(e.to_string().contains("allow io_uring_setup"), "{e}");
}

#[test]
fn a_runtime_without_membarrier_works() {
    if child_case().is_none() {
        child_passes("a_runtime_without_membarrier_works", "EPERM");
        return;
    }
    deny(libc::SYS_membarrier, libc::EPERM);
    works();
}

/// Then a goroutine that computes cannot be made to give up its P. Whoever wants the
/// world to stop is told, and nothing has changed.
#[test]
fn without_membarrier_a_hog_keeps_the_world_from_stopping() {
    const NAME: &str = "without_membarrier_a_hog_keeps_the_world_from_stopping";
    if child_case().is_none() {
        child_passes(NAME, "EPERM");
        return;
    }
    deny(libc::SYS_membarrier, libc::EPERM);
    let _guard = hang_guard();
    let rt = runtime(2);
    let [begun, stop] = [AtomicBool::new(false), AtomicBool::new(false)];
    rt.run(|| {
        windlass::scope(|s| {
            let hog = s.spawn(|| {
                begun.store(true, Ordering::Relaxed);
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            util::wait_until(|| begun.load(Ordering::Relaxed));
            let refused = rt.set_processors(1);
            stop.store(true, Ordering::Relaxed);
            let e = refused.unwrap_err();
            assert_eq!(e.kind(), ErrorKind::TimedOut);
            assert!(e.to_string().contains("membarrier"), "{e}");
            assert_eq!(rt.processors(), 2);
            hog.join().unwrap();
            // One that is asked and comes to the scheduler stops.
            util::set_processors(&rt, 1);
            assert_eq!(rt.processors(), 1);
        });
    });
}

#[test]
fn a_runtime_that_may_not_pin_works() {
    if child_case().is_none() {
        child_passes("a_runtime_that_may_not_pin_works", "EPERM");
        return;
    }
    deny(libc::SYS_sched_setaffinity, libc::EPERM);
    works();
}

/// Denies the threads of a runtime with two Ps, whose own have begun.
fn may_start_no_more(rt: &Runtime) {
    let two = || windlass::join(|| rt.metrics().threads, || windlass::sleep(SHORT));
    while two().0 < 2 {}
    for syscall in [libc::SYS_clone, libc::SYS_clone3] {
        deny(syscall, libc::EAGAIN);
    }
}

/// A goroutine that waits in the poller of the caller's P for a byte, and the socket to write it to.
fn read_one() -> (windlass::task::JoinHandle<()>, UnixStream) {
    let (mut a, b) = UnixStream::pair().unwrap();
    let reader = spawn(move || a.read_exact(&mut [0]).unwrap());
    windlass::yield_now();
    windlass::yield_now();
    (reader, b)
}

/// Blocks until a P has been retaken: that of the caller, if the others have none to lose.
fn block_until_retaken(rt: &Runtime) {
    let before = rt.metrics().retakes;
    windlass::blocking(|| {
        while rt.metrics().retakes == before {
            std::thread::sleep(SHORT);
        }
    });
}

/// Of the Ps that wait for a thread the one whose operations are in flight comes first.
#[test]
fn a_runtime_that_may_start_no_more_threads_does_its_io() {
    if child_case().is_none() {
        child_passes(
            "a_runtime_that_may_start_no_more_threads_does_its_io",
            "EAGAIN",
        );
        return;
    }
    let rt = runtime(2);
    rt.run(|| {
        may_start_no_more(&rt);
        let (ends, is_over) = std::sync::mpsc::channel::<()>();
        let blocks = spawn(move || windlass::blocking(|| is_over.recv()));
        while rt.metrics().retakes == 0 {
            windlass::sleep(SHORT);
        }
        let (reader, mut b) = read_one();
        block_until_retaken(&rt);
        b.write_all(&[1]).unwrap();
        let written = Instant::now();
        while !reader.is_finished() {
            assert!(written.elapsed() < Duration::from_secs(20));
            windlass::sleep(SHORT);
        }
        ends.send(()).unwrap();
        blocks.join().unwrap().unwrap();
    });
}

/// Two Ps have operations in flight, and there is one thread for both.
#[test]
fn a_thread_that_sleeps_at_one_p_serves_the_io_of_another() {
    if child_case().is_none() {
        child_passes(
            "a_thread_that_sleeps_at_one_p_serves_the_io_of_another",
            "EAGAIN",
        );
        return;
    }
    let _guard = hang_guard();
    let rt = runtime(2);
    rt.run(|| {
        may_start_no_more(&rt);
        let before = rt.metrics().retakes;
        let (ends, is_over) = std::sync::mpsc::channel::<()>();
        let blocks = spawn(move || {
            let first = read_one();
            windlass::blocking(|| is_over.recv()).unwrap();
            first
        });
        while rt.metrics().retakes == before {
            windlass::sleep(SHORT);
        }
        let (second, mut b) = read_one();
        block_until_retaken(&rt);
        // Now on the P of the first read.
        b.write_all(&[1]).unwrap();
        second.join().unwrap();
        ends.send(()).unwrap();
        let (first, mut b) = blocks.join().unwrap();
        b.write_all(&[1]).unwrap();
        first.join().unwrap();
    });
}

/// The one thread that is left always finds something to run at its own P.
#[test]
fn a_thread_that_is_busy_at_one_p_serves_the_io_of_another() {
    if child_case().is_none() {
        child_passes(
            "a_thread_that_is_busy_at_one_p_serves_the_io_of_another",
            "EAGAIN",
        );
        return;
    }
    let _guard = hang_guard();
    let rt = runtime(2);
    rt.run(|| {
        may_start_no_more(&rt);
        serve_io_of_a_blocked_p(&rt);
    });
}

/// The same at the runtime's own limit.
#[test]
fn at_the_limit_a_thread_that_is_busy_at_one_p_serves_the_io_of_another() {
    let _guard = hang_guard();
    let rt = build(Builder::new().processors(2).max_threads(2)).unwrap();
    rt.run(|| {
        while windlass::join(|| rt.metrics().threads, || windlass::sleep(SHORT)).0 < 2 {}
        serve_io_of_a_blocked_p(&rt);
    });
}

/// One of two threads blocks, with a read in flight at its P. The other yields until that read has ended.
fn serve_io_of_a_blocked_p(rt: &Runtime) {
    // One more may have begun just before the limit.
    let n_threads = rt.metrics().threads.max(2);
    let (ends, is_over) = std::sync::mpsc::channel::<()>();
    let (tell, others) = std::sync::mpsc::channel();
    let blocks = spawn(move || {
        tell.send(read_one()).unwrap();
        windlass::blocking(|| is_over.recv()).unwrap_err();
    });
    let (reader, mut b) = loop {
        match others.try_recv() {
            Ok(read) => break read,
            Err(_) => windlass::yield_now(),
        }
    };
    b.write_all(&[1]).unwrap();
    while !reader.is_finished() {
        windlass::yield_now();
    }
    drop(ends);
    blocks.join().unwrap();
    assert!(rt.metrics().threads <= n_threads);
}

/// The one thread that is left always finds something to run at its own P.
#[test]
fn a_thread_that_is_busy_at_one_p_runs_the_goroutines_and_timers_of_another() {
    if child_case().is_none() {
        child_passes(
            "a_thread_that_is_busy_at_one_p_runs_the_goroutines_and_timers_of_another",
            "EAGAIN",
        );
        return;
    }
    let _guard = hang_guard();
    let rt = runtime(2);
    rt.run(|| {
        may_start_no_more(&rt);
        let before = rt.metrics().retakes;
        let (ends, is_over) = std::sync::mpsc::channel::<()>();
        let (tell, others) = std::sync::mpsc::channel();
        let blocks = spawn(move || {
            let sleeper = spawn(|| windlass::sleep(100 * SHORT));
            windlass::yield_now();
            windlass::yield_now();
            tell.send([sleeper, spawn(|| ())]).unwrap();
            windlass::blocking(|| is_over.recv()).unwrap();
        });
        while rt.metrics().retakes == before {
            windlass::yield_now();
        }
        for other in others.recv().unwrap() {
            while !other.is_finished() {
                windlass::yield_now();
            }
        }
        ends.send(()).unwrap();
        blocks.join().unwrap();
    });
}

#[test]
fn a_runtime_that_may_not_renice_or_set_memory_policy_works() {
    if child_case().is_none() {
        child_passes(
            "a_runtime_that_may_not_renice_or_set_memory_policy_works",
            "EPERM",
        );
        return;
    }
    for syscall in [
        libc::SYS_setpriority,
        libc::SYS_mbind,
        libc::SYS_set_mempolicy,
        libc::SYS_get_mempolicy,
    ] {
        deny(syscall, libc::EPERM);
    }
    works();
    // Where there is a choice of nodes, it was asked for and not given.
    let rt = runtime(2);
    let asks = rt.memory_placement().nodes[0].memory_os_id.is_some();
    assert_eq!(rt.metrics().placement_refusals > 0, asks);
    // Whoever touched it first was on the right node all the same.
    let pages = rt.memory_placement().total();
    assert!(
        pages
            .processors
            .share_at_home()
            .is_none_or(|share| share > 0.99)
    );
    assert!(pages.rings.share_at_home().is_none_or(|share| share > 0.99));
}

#[test]
fn where_memory_lies_is_unknown_where_it_may_not_be_asked() {
    if child_case().is_none() {
        for case in ["EPERM", "ENOSYS"] {
            child_passes(
                "where_memory_lies_is_unknown_where_it_may_not_be_asked",
                case,
            );
        }
        return;
    }
    let errno = match child_case().as_deref() {
        Some("EPERM") => libc::EPERM,
        _ => libc::ENOSYS,
    };
    let rt = runtime(2);
    rt.run(|| spawn(|| ()).join().unwrap());
    deny(libc::SYS_move_pages, errno);
    let pages = rt.memory_placement().total();
    for kind in [pages.processors, pages.goroutines, pages.stacks] {
        assert_eq!((kind.home, kind.away), (0, 0));
        assert!(kind.unknown > 0);
    }
    assert_eq!(pages.all().share_at_home(), None);
    works();
}

/// Over epoll an accept is a call that a filter sees. What is short then is short for good,
/// and the loop that accepts again does not spin.
#[test]
fn accepting_while_the_kernel_is_short_of_something() {
    let errno = match child_case().as_deref() {
        None => {
            for case in ["ENFILE", "ENOMEM", "ENOBUFS"] {
                let name = "accepting_while_the_kernel_is_short_of_something";
                child_passes_with_io(name, case, Some("epoll"));
            }
            return;
        }
        Some("ENFILE") => libc::ENFILE,
        Some("ENOMEM") => libc::ENOMEM,
        Some(_) => libc::ENOBUFS,
    };
    const N: u32 = 10;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let theirs = TcpListener::from(listener.try_clone().unwrap());
    // On a thread of its own, and those that come from it.
    let thread = std::thread::spawn(move || {
        deny_for(0, libc::SYS_accept4, errno);
        let refused = |listener: &TcpListener| {
            let begin = Instant::now();
            for _ in 0..N {
                let e = listener.accept().unwrap_err();
                assert_eq!(e.raw_os_error(), Some(errno), "{e}");
            }
            // Each was held back for 5 ms.
            assert!(begin.elapsed() >= N * Duration::from_millis(5));
        };
        runtime(1).run(|| refused(&theirs));
        refused(&theirs);
        drop(std::net::TcpListener::from(theirs));
    });
    thread.join().unwrap();
    // The connection is still there.
    let (mut stream, _) = listener.accept().unwrap();
    stream.write_all(b"late").unwrap();
    let mut got = [0; 4];
    client.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"late");
}

/// Memory that is not to be had for rings leads to epoll; descriptors, which epoll needs as
/// well, are an error.
#[test]
fn rings_that_there_is_no_room_for() {
    let name = "rings_that_there_is_no_room_for";
    match child_case().as_deref() {
        None => {
            let stderr = child_passes_with_io(name, "ENOMEM", None);
            assert!(stderr.contains("RLIMIT_MEMLOCK"), "{stderr}");
            assert!(stderr.contains("epoll is used instead"), "{stderr}");
            child_passes_with_io(name, "ENFILE", None);
        }
        Some("ENOMEM") => {
            deny(libc::SYS_io_uring_setup, libc::ENOMEM);
            assert_eq!(refused().kind(), ErrorKind::OutOfMemory);
            falls_back();
        }
        Some(_) => {
            deny(libc::SYS_io_uring_setup, libc::ENFILE);
            let e = build(Builder::new().processors(2)).unwrap_err();
            assert!(e.to_string().contains("RLIMIT_NOFILE"), "{e}");
        }
    }
}

/// Attempts to read and write that do not wait. Whatever the error, it is not the file's.
#[test]
fn pipes_and_files_without_preadv2_and_pwritev2() {
    const NAME: &str = "pipes_and_files_without_preadv2_and_pwritev2";
    let errno = match child_case().as_deref() {
        None => {
            for case in ["EPERM", "ENOSYS", "EINVAL"] {
                assert_eq!(child_passes_with_io(NAME, case, Some("epoll")), "");
                child_passes(NAME, case);
            }
            return;
        }
        Some("EPERM") => libc::EPERM,
        Some("ENOSYS") => libc::ENOSYS,
        Some(_) => libc::EINVAL,
    };
    const MUCH: usize = 200_000;
    let _guard = hang_guard();
    for syscall in [libc::SYS_preadv2, libc::SYS_pwritev2] {
        deny(syscall, errno);
    }
    runtime(2).run(|| {
        let (mut reader, mut writer) = windlass::io::pipe().unwrap();
        // The reader waits first, then the writer, for room.
        let reads = spawn(move || {
            let mut first = [0];
            reader.read_exact(&mut first).unwrap();
            windlass::sleep(Duration::from_millis(5));
            let mut all = first.to_vec();
            reader.read_to_end(&mut all).unwrap();
            all
        });
        windlass::sleep(Duration::from_millis(5));
        let sent: Vec<u8> = (0..MUCH).map(|i| (i % 251) as u8).collect();
        writer.write_all(&sent).unwrap();
        drop(writer);
        assert!(reads.join().unwrap() == sent);
        let output = windlass::process::Command::new("echo")
            .arg("hello")
            .output();
        assert_eq!(output.unwrap().stdout, b"hello\n");
        let me = std::env::current_exe().unwrap();
        let read = windlass::fs::read(&me).unwrap();
        assert!(read == std::fs::read(&me).unwrap());
    });
}

/// Whether a stream is a device is asked when its handle is made.
#[test]
fn reads_and_writes_do_not_ask_what_a_stream_is() {
    if child_case().is_none() {
        let name = "reads_and_writes_do_not_ask_what_a_stream_is";
        child_passes_with_io(name, "io_uring", None);
        child_passes_with_io(name, "epoll", Some("epoll"));
        return;
    }
    let _guard = hang_guard();
    runtime(1).run(|| {
        let (mut reader, mut writer) = windlass::io::pipe().unwrap();
        let mut file =
            windlass::fs::File::from(std::os::fd::OwnedFd::from(reader.try_clone().unwrap()));
        for syscall in [
            libc::SYS_fstat,
            libc::SYS_newfstatat,
            libc::SYS_statx,
            libc::SYS_ioctl,
        ] {
            deny(syscall, libc::ENOSYS);
        }
        let mut byte = [0];
        for _ in 0..3 {
            writer.write_all(b"ab").unwrap();
            reader.read_exact(&mut byte).unwrap();
            file.read_exact(&mut byte).unwrap();
            assert_eq!(byte, *b"b");
        }
    });
}

/// One goroutine has locked the only thread: the others run when it unlocks the thread, and a line on stderr says why
/// they waited.
#[test]
fn no_thread_is_to_be_had_beside_a_locked_one() {
    if child_case().is_none() {
        child_passes("no_thread_is_to_be_had_beside_a_locked_one", "");
        return;
    }
    let _guard = hang_guard();
    runtime(1).run(|| {
        let (reader, writer) = io::pipe().unwrap();
        // SAFETY: takes descriptors. The standard error is this process's own.
        assert_eq!(unsafe { libc::dup2(writer.as_raw_fd(), 2) }, 2);
        // As at the limit of threads. Libraries try the old call where there is no new one.
        deny(libc::SYS_clone3, libc::ENOSYS);
        deny(libc::SYS_clone, libc::EAGAIN);
        let locked = windlass::task::lock_thread();
        let other = spawn(|| ());
        // Blocks the thread, so that the P needs another one.
        let mut told = String::new();
        io::BufReader::new(reader).read_line(&mut told).unwrap();
        assert!(told.contains("the kernel refuses another thread"), "{told}");
        assert!(!other.is_finished());
        drop(locked);
        other.join().unwrap();
    });
}

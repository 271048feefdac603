//! A call that waits holds its file, as a system call does: what another one does with the descriptor
//! meanwhile is about the descriptor only.

use std::os::fd::{AsRawFd, IntoRawFd, RawFd};
use std::time::Duration;

use libc::{SOCK_DGRAM, SOCK_STREAM};
use windlass::Runtime;

use super::run;
use super::tools::*;

/// Lets `call` wait in a goroutine, makes the change when it waits in the poller, and returns the result.
fn while_it_waits(
    rt: &Runtime,
    call: impl FnOnce() -> String + Send,
    change: impl FnOnce(),
) -> String {
    let in_flight = || {
        let all = rt.metrics().total();
        all.ring_submitted - all.ring_completed
    };
    let before = in_flight();
    windlass::scope(|s| {
        let waiter = s.spawn(call);
        while in_flight() == before {
            windlass::sleep(Duration::from_millis(2));
        }
        change();
        waiter.join().unwrap()
    })
}

/// Makes `fd` the file of `other`.
fn becomes(fd: RawFd, other: RawFd) {
    // SAFETY: takes plain numbers.
    assert_eq!(unsafe { libc::dup3(other, fd, libc::O_CLOEXEC) }, fd);
}

fn close(fd: RawFd) {
    // SAFETY: takes a plain number, which the caller owns.
    assert_eq!(unsafe { libc::close(fd) }, 0);
}

#[test]
fn a_read_holds_its_file() {
    run(|rt| {
        for (of, other) in [
            (tcp(), tcp()),
            (unix(SOCK_STREAM), unix(SOCK_STREAM)),
            (unix(SOCK_DGRAM), unix(SOCK_DGRAM)),
            (pipe(), pipe()),
        ] {
            put(other.b, b"others");
            let read_own = || read(of.a, 9);
            let own = while_it_waits(rt, read_own, || {
                becomes(of.a, other.a);
                put(of.b, b"own");
            });
            assert_eq!(own, "3 \"own\"");
            assert_eq!(read(other.a, 9), "6 \"others\"");
        }
    });
}

#[test]
fn a_read_outlives_its_descriptor() {
    run(|rt| {
        for mut of in [tcp(), unix(SOCK_STREAM), unix(SOCK_DGRAM), pipe()] {
            let fd = of.take_a().into_raw_fd();
            let own = while_it_waits(
                rt,
                || read(fd, 9),
                || {
                    close(fd);
                    put(of.b, b"own");
                },
            );
            assert_eq!(own, "3 \"own\"");
        }
        // The end of the other side, too.
        for mut of in [tcp(), unix(SOCK_STREAM), pipe()] {
            let fd = of.take_a().into_raw_fd();
            let end = of.take_b();
            let own = while_it_waits(
                rt,
                || recv_or_read(fd),
                || {
                    close(fd);
                    drop(end);
                },
            );
            assert_eq!(own, "0");
        }
    });
}

fn recv_or_read(fd: RawFd) -> String {
    match recv(fd, 9, libc::MSG_WAITALL) {
        not if not == "Socket operation on non-socket" => read(fd, 9),
        result => result,
    }
}

#[test]
fn a_part_of_a_message_holds_its_file() {
    run(|rt| {
        let (of, other) = (tcp(), tcp());
        put(of.b, b"ow");
        put(other.b, b"others");
        let own = while_it_waits(
            rt,
            || recv(of.a, 3, libc::MSG_WAITALL),
            || {
                becomes(of.a, other.a);
                put(of.b, b"n");
            },
        );
        assert_eq!(own, "3 \"own\"");
    });
}

#[test]
fn a_write_holds_its_file() {
    run(|rt| {
        for (of, other) in [
            ((unix(SOCK_STREAM)), unix(SOCK_STREAM)),
            (unix(SOCK_DGRAM), unix(SOCK_DGRAM)),
        ] {
            holds(rt, of.a, of.b, other.a);
            assert_eq!(
                recv(other.b, 9, libc::MSG_DONTWAIT),
                "Resource temporarily unavailable"
            );
        }
        let (of, other) = (pipe(), pipe());
        holds(rt, of.b, of.a, other.b);
        nonblocking(other.a);
        assert_eq!(read(other.a, 9), "Resource temporarily unavailable");
    });
}

/// Writes to `fd`, which is full until `reader` is read, and becomes `other` before.
fn holds(rt: &Runtime, fd: RawFd, reader: RawFd, other: RawFd) {
    let n = fill(fd);
    let written = while_it_waits(
        rt,
        || write(fd, b"own"),
        || {
            becomes(fd, other);
            drain(reader, n);
        },
    );
    assert_eq!(
        (written.as_str(), read(reader, 9)),
        ("3", "3 \"own\"".to_owned())
    );
}

#[test]
fn an_accept_holds_its_listener() {
    run(|rt| {
        let [of, other] = [(); 2].map(|()| listener(&Addr::loopback(), 4));
        let (fd, to) = (of.as_raw_fd(), Addr::of(of.as_raw_fd()));
        let client = socket(libc::AF_INET, SOCK_STREAM);
        let accepted = while_it_waits(
            rt,
            || accept(fd),
            || {
                becomes(fd, other.as_raw_fd());
                // The listener is open as long as it is waited for.
                let connected = windlass::offload(|| connect(client.as_raw_fd(), &to));
                assert_eq!(connected, "0");
            },
        );
        assert_eq!(accepted, "0 0/0 from 16:2");
    });
}

#[test]
fn waits_leave_no_descriptor_behind() {
    run(|_| {
        let of = unix(SOCK_STREAM);
        timeout(of.a, libc::SO_SNDTIMEO, 1);
        timeout(of.b, libc::SO_RCVTIMEO, 1);
        let n = fill(of.a);
        for _ in 0..20 {
            assert_eq!(write(of.a, b"x"), "Resource temporarily unavailable");
        }
        drain(of.b, n);
        for _ in 0..20 {
            assert_eq!(read(of.b, 9), "Resource temporarily unavailable");
        }
        for fd in [of.a, of.b] {
            let file = std::fs::read_link(format!("/proc/self/fd/{fd}")).unwrap();
            assert_eq!(descriptors_of(&file), 1);
            // The registrations of epoll instances of this process, by the number of the inode.
            let file = file.to_str().unwrap();
            let number: u64 = file["socket:[".len()..file.len() - 1].parse().unwrap();
            assert_eq!(registrations_of(number), 0);
        }
    });
}

fn descriptors_of(file: &std::path::Path) -> usize {
    let all = std::fs::read_dir("/proc/self/fd").unwrap();
    all.filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok())
        .filter(|other| other == file)
        .count()
}

fn registrations_of(inode: u64) -> usize {
    let wanted = format!("ino:{inode:x} ");
    let all = std::fs::read_dir("/proc/self/fdinfo").unwrap();
    all.filter_map(|fd| std::fs::read_to_string(fd.ok()?.path()).ok())
        .filter(|text| text.contains(&wanted))
        .count()
}

/// Where no descriptor is left, a call waits without a second one.
#[test]
fn without_a_descriptor_left_a_call_waits() {
    let exe = std::env::current_exe().unwrap();
    let child = std::process::Command::new(exe)
        .args([
            "--exact",
            "files::in_a_process_without_descriptors",
            "--ignored",
            "--nocapture",
        ])
        .status()
        .unwrap();
    assert!(child.success(), "{child}");
}

#[test]
#[ignore = "another test runs it in a process of its own"]
fn in_a_process_without_descriptors() {
    run(|_| {
        let (s, p) = (unix(SOCK_STREAM), pipe());
        let (n, m) = (fill(s.a), fill(p.b));
        let few = libc::rlimit {
            rlim_cur: 3,
            rlim_max: 3,
        };
        // SAFETY: the limit is valid.
        let done = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const few) };
        assert_eq!(done, 0);
        let (a, b) = (s.b, p.a);
        let _later = soon(move || {
            drain(a, n);
            drain(b, m);
            put_all(a);
        });
        assert_eq!(
            (write(s.a, b"own").as_str(), write(p.b, b"own").as_str()),
            ("3", "3")
        );
        assert_eq!(recv(s.a, 3, libc::MSG_WAITALL), "3 \"own\"");
    });
}

fn put_all(fd: RawFd) {
    put(fd, b"o");
    put(fd, b"wn");
}

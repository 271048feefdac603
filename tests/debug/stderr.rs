//! Reports on a stderr that takes nothing: what the runtime has to say is lost, and the program goes on, or ends.
#![allow(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    reason = "blocked threads are what is reported"
)]

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use crate::util::{Gate, build, child, child_case, hang_guard};
use windlass::{Builder, Runtime, blocking, spawn, task};

const MS: Duration = Duration::from_millis(1);

/// Makes stderr a pipe that is full and that nobody reads.
fn fill_stderr() -> OwnedFd {
    let (reader, writer) = std::io::pipe().unwrap();
    let set_flags = |flags: i32| {
        // SAFETY: takes a descriptor and plain integers.
        let r = unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETFL, flags) };
        assert_eq!(r, 0);
    };
    // SAFETY: takes descriptors. The standard error is this process's own.
    assert_eq!(unsafe { libc::dup2(writer.as_raw_fd(), 2) }, 2);
    set_flags(libc::O_NONBLOCK);
    let mut full = File::from(OwnedFd::from(writer.try_clone().unwrap()));
    while full.write(&[b'.'; 512]).is_ok() {}
    assert_eq!(full.write(b".").unwrap_err().kind(), ErrorKind::WouldBlock);
    set_flags(0);
    reader.into()
}

fn one_p(set: impl FnOnce(Builder) -> Builder) -> Runtime {
    build(set(Builder::new().processors(1))).unwrap()
}

/// A goroutine blocks its thread until the next one runs, for which sysmon has to retake the P.
fn wait_for_the_next() {
    let gate = Gate::default();
    let opened = gate.clone();
    std::thread::sleep(50 * MS);
    spawn(move || opened.open());
    gate.wait();
}

/// What has something to report, and the exit status.
const CASES: &[(&str, i32, fn())] = &[
    ("schedtrace", 0, || {
        one_p(|b| b.schedtrace(MS)).run(wait_for_the_next);
    }),
    ("stall report", 0, || {
        one_p(|b| b.stall_reports(MS)).run(wait_for_the_next);
    }),
    ("too few threads", 0, || {
        let gate = Gate::default();
        let opened = gate.clone();
        std::thread::spawn(move || {
            std::thread::sleep(100 * MS);
            opened.open();
        });
        one_p(|b| b.max_threads(1)).run(|| {
            let next = spawn(|| ());
            blocking(|| gate.wait());
            next.join().unwrap();
        });
    }),
    ("end of the run", 2, || {
        one_p(|b| b.shutdown_timeout(MS)).run(|| {
            let begun = Gate::default();
            let tell = begun.clone();
            spawn(move || {
                tell.open();
                std::thread::sleep(Duration::MAX);
            });
            begun.wait();
        });
    }),
    ("SIGQUIT", 2, || {
        let rt = one_p(|b| b.dump_on_sigquit(true));
        // SAFETY: takes a plain integer.
        rt.run(|| unsafe {
            libc::raise(libc::SIGQUIT);
            task::park();
        });
    }),
];

#[test]
fn reports_that_stderr_does_not_take_hold_nothing_up() {
    let Some(case) = child_case() else {
        for (name, status, _) in CASES {
            for how in ["full", "locked"] {
                let case = format!("{name}, {how}");
                let output = child("reports_that_stderr_does_not_take_hold_nothing_up", &case);
                assert_eq!(output.status.code(), Some(*status), "{case}: {output:?}");
            }
        }
        return;
    };
    let _guard = hang_guard();
    let (name, how) = case.split_once(", ").unwrap();
    let (.., act) = CASES.iter().find(|(known, ..)| *known == name).unwrap();
    match how {
        "full" => {
            let _unread = fill_stderr();
            act();
        }
        _ => {
            let _held = std::io::stderr().lock();
            act();
        }
    }
}

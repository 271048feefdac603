//! SIGQUIT: the dump of a process from outside. In processes of their own: a signal's
//! disposition is the whole process's.
#![allow(unsafe_code)]

mod util;

use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use windlass::{Builder, task, yield_now};

#[inline(never)]
fn somewhere_in_the_program() {
    task::park();
    std::hint::black_box(());
}

/// Parks a goroutine, says so, and waits until `done`.
fn wait_to_be_dumped(done: &AtomicBool) {
    let builder = Builder::new().processors(2).dump_on_sigquit(true);
    let runtime = util::build(builder).unwrap();
    let handle = runtime.handle();
    runtime.run(|| {
        let parked = task::Builder::new()
            .name("lost soul")
            .spawn(somewhere_in_the_program)
            .unwrap();
        util::wait_until(|| handle.metrics().total().parks >= 1);
        std::io::stdout().write_all(b"READY\n").unwrap();
        util::wait_until(|| done.load(Ordering::Acquire));
        parked.task().unpark();
        parked.join().unwrap();
    });
}

/// Runs the child, and sends it SIGQUIT as soon as it is ready.
fn quit_child(name: &str, case: &str) -> Output {
    quit(util::child_command(name, case))
}

fn quit(mut command: Command) -> Output {
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut seen = Vec::new();
    let mut stdout = child.stdout.take().unwrap();
    while !seen.ends_with(b"READY\n") {
        let mut byte = [0];
        let n = std::io::Read::read(&mut stdout, &mut byte).unwrap();
        assert_eq!(n, 1, "{}", String::from_utf8_lossy(&seen));
        seen.push(byte[0]);
    }
    // SAFETY: takes plain integers; the child has not been waited for, so the number is its own.
    let r = unsafe { libc::kill(child.id().cast_signed(), libc::SIGQUIT) };
    assert_eq!(r, 0);
    child.wait_with_output().unwrap()
}

fn check_dump(stderr: &str) {
    for wanted in [
        "SIGQUIT: quit\n",
        "goroutine ",
        ", name \"lost soul\"]:\n",
        "created in goroutine ",
        "tests/sigquit.rs:",
        ", name \"main\"]:\n",
    ] {
        assert!(stderr.contains(wanted), "no {wanted:?} in {stderr}");
    }
    if cfg!(debug_assertions) {
        assert!(
            stderr.contains("sigquit::somewhere_in_the_program"),
            "{stderr}"
        );
    }
}

#[test]
fn the_process_is_dumped_and_exits_with_status_2() {
    if util::child_case().is_some() {
        return wait_to_be_dumped(&AtomicBool::new(false));
    }
    let output = quit_child("the_process_is_dumped_and_exits_with_status_2", "exit");
    check_dump(&String::from_utf8_lossy(&output.stderr));
    assert_eq!(
        output.status.code(),
        Some(2),
        "{:?}",
        output.status.signal()
    );
}

/// As a shell starts what it puts into the background.
#[test]
fn so_is_one_that_was_started_with_the_signal_ignored() {
    if util::child_case().is_some() {
        return wait_to_be_dumped(&AtomicBool::new(false));
    }
    let name = "so_is_one_that_was_started_with_the_signal_ignored";
    let mut command = util::child_command(name, "ignored");
    let ignore = || {
        // SAFETY: takes plain integers.
        unsafe { libc::signal(libc::SIGQUIT, libc::SIG_IGN) };
        Ok(())
    };
    // SAFETY: the closure makes a system call only, which may be made between fork and exec.
    unsafe { command.pre_exec(ignore) };
    let output = quit(command);
    check_dump(&String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(2), "{:?}", output.status);
}

#[test]
fn a_handler_that_was_there_is_called_and_the_process_goes_on() {
    if util::child_case().is_some() {
        let called = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(libc::SIGQUIT, Arc::clone(&called)).unwrap();
        return wait_to_be_dumped(&called);
    }
    let name = "a_handler_that_was_there_is_called_and_the_process_goes_on";
    let output = quit_child(name, "handler");
    check_dump(&String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{:?}", output.status);
}

#[test]
fn who_has_not_asked_is_not_dumped() {
    if util::child_case().is_some() {
        let runtime = util::build(Builder::new().processors(1)).unwrap();
        return runtime.run(|| {
            std::io::stdout().write_all(b"READY\n").unwrap();
            util::wait_until(|| {
                yield_now();
                false
            });
        });
    }
    let output = quit_child("who_has_not_asked_is_not_dumped", "none");
    assert_eq!(output.status.signal(), Some(libc::SIGQUIT));
    assert!(!String::from_utf8_lossy(&output.stderr).contains("goroutine "));
}

#[test]
fn the_handler_disturbs_no_goroutine() {
    if util::child_case().is_some() {
        let called = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(libc::SIGQUIT, Arc::clone(&called)).unwrap();
        let builder = Builder::new().processors(1).dump_on_sigquit(true);
        util::build(builder).unwrap().run(|| {
            util::set_errno(libc::EDOM);
            // SAFETY: takes a plain integer; the signal has a handler.
            unsafe { libc::raise(libc::SIGQUIT) };
            assert_eq!(util::errno(), libc::EDOM);
            util::wait_until(|| called.load(Ordering::Acquire));
            windlass::sleep(Duration::from_millis(1));
        });
        return;
    }
    util::child_passes("the_handler_disturbs_no_goroutine", "errno");
}

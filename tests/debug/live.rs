//! Answers of a runtime to questions from outside.

use std::io::ErrorKind;
use std::time::Duration;

use crate::util;
use crate::util::{Gate, build, hang_guard, wait_until};
use windlass::topology::live::Live;
use windlass::{Builder, blocking, offload, spawn};

/// Asks the own process, on a thread that may block.
fn ask() -> std::io::Result<Live> {
    offload(|| Live::read(std::process::id()))
}

/// In a process of its own: the socket is one for all runtimes of a process.
#[test]
fn a_runtime_that_was_asked_to_tells_what_it_does() {
    let Some(_) = util::child_case() else {
        util::child_passes("a_runtime_that_was_asked_to_tells_what_it_does", "asked");
        return;
    };
    let _guard = hang_guard();
    let silent = build(Builder::new().processors(1).name("silent")).unwrap();
    assert_eq!(silent.run(ask).unwrap_err().kind(), ErrorKind::NotFound);

    let rt = build(Builder::new().processors(2).name("loud").live_metrics(true)).unwrap();
    rt.run(|| {
        let gate = Gate::default();
        let waiting: Vec<_> = (0..100)
            .map(|_| {
                let gate = gate.clone();
                spawn(move || gate.wait())
            })
            .collect();
        wait_until(|| rt.metrics().total().started > 100);
        let before = ask().unwrap();
        for _ in 0..50 {
            windlass::yield_now();
        }
        let now = ask().unwrap();
        assert_eq!((now.pid, now.runtimes.len()), (std::process::id(), 1));
        let (before, now) = (&before.runtimes[0], &now.runtimes[0]);
        assert_eq!((now.name.as_str(), now.ps.len()), ("loud", 2));
        assert_eq!(now.poller, rt.metrics().poller.to_string());
        assert_eq!(now.goroutines, 101);
        let dispatches = |of: &windlass::topology::live::LiveRuntime| -> u64 {
            of.ps.iter().map(|p| p.dispatches).sum()
        };
        assert!(dispatches(now) >= dispatches(before) + 50);
        assert!(
            now.nodes
                .iter()
                .all(|n| now.ps.iter().any(|p| p.node == n.os_id))
        );
        gate.open();
        waiting.into_iter().for_each(|j| j.join().unwrap());
    });
    drop(rt);
    assert_eq!(silent.run(ask).unwrap().runtimes, []);
}

/// Metrics are no reason not to run: here another socket has the name.
#[test]
fn a_name_that_is_taken_is_a_line_on_stderr() {
    let Some(_) = util::child_case() else {
        let said = util::child_passes("a_name_that_is_taken_is_a_line_on_stderr", "taken");
        assert_eq!(
            said.matches("windlass: no live metrics: ").count(),
            1,
            "{said}"
        );
        return;
    };
    let _guard = hang_guard();
    let address = Live::address(std::process::id()).unwrap();
    let taken = std::os::unix::net::UnixListener::bind_addr(&address).unwrap();
    let build_one = || build(Builder::new().processors(1).live_metrics(true)).unwrap();
    assert_eq!(build_one().run(|| 7), 7);
    drop(taken);
    // The next one has it.
    assert_eq!(build_one().run(ask).unwrap().runtimes.len(), 1);
}

/// A client that connects and does not read is waited for, but not for long.
#[test]
fn one_who_does_not_read_keeps_nobody_from_asking() {
    let Some(_) = util::child_case() else {
        util::child_passes("one_who_does_not_read_keeps_nobody_from_asking", "deaf");
        return;
    };
    let _guard = hang_guard();
    let rt = build(Builder::new().processors(1).live_metrics(true)).unwrap();
    rt.run(|| {
        blocking(|| {
            let address = Live::address(std::process::id()).unwrap();
            let deaf = std::os::unix::net::UnixStream::connect_addr(&address).unwrap();
            assert_eq!(Live::read(std::process::id()).unwrap().runtimes.len(), 1);
            drop(deaf);
        });
        windlass::sleep(Duration::from_millis(1));
    });
}

/// As another user: the numbers are not for everybody.
#[test]
#[allow(unsafe_code)]
fn another_user_gets_no_answer() {
    match util::child_case().as_deref() {
        None => {
            util::child_passes("another_user_gets_no_answer", "parent");
        }
        Some("parent") => {
            let rt = build(Builder::new().processors(1).live_metrics(true)).unwrap();
            let out = rt.run(|| {
                offload(|| {
                    util::child(
                        "another_user_gets_no_answer",
                        &std::process::id().to_string(),
                    )
                })
            });
            let text = String::from_utf8_lossy(&out.stderr).into_owned();
            assert!(out.status.success(), "{text}");
        }
        Some(pid) => {
            const NOBODY: u32 = 65534;
            // SAFETY: takes a plain number; this process has one thread that minds.
            if unsafe { libc::setuid(NOBODY) } != 0 {
                eprintln!("skipped: only root can be somebody else");
                return;
            }
            let e = Live::read(pid.parse().unwrap()).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::PermissionDenied, "{e}");
        }
    }
}

//! Which poller a runtime gets, where both are to be had. What happens where io_uring is
//! denied: tests/seccomp.rs. Each in a process of its own, for its environment.

mod util;

use std::io::ErrorKind;

use util::{build, child_case, child_passes_with_io};
use windlass::Builder;
use windlass::metrics::Poller;

fn built() -> Poller {
    build(Builder::new().processors(2))
        .unwrap()
        .metrics()
        .poller
}

fn is_silent(name: &str, io: Option<&str>) {
    assert_eq!(child_passes_with_io(name, "child", io), "");
}

#[test]
fn a_ring_if_nothing_is_said() {
    if child_case().is_none() {
        is_silent("a_ring_if_nothing_is_said", None);
        is_silent("a_ring_if_nothing_is_said", Some(""));
        return is_silent("a_ring_if_nothing_is_said", Some("uring"));
    }
    assert_eq!(built(), Poller::IoUring);
    build(Builder::new().require_io_uring(true)).unwrap();
}

#[test]
fn epoll_if_it_is_asked_for() {
    if child_case().is_none() {
        return is_silent("epoll_if_it_is_asked_for", Some("epoll"));
    }
    assert_eq!(built(), Poller::Epoll);
    let e = build(Builder::new().require_io_uring(true)).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unsupported);
    let text = e.to_string();
    assert!(
        text.contains("io_uring") && text.contains("WINDLASS_IO"),
        "{text}"
    );
}

#[test]
fn another_word_is_warned_of_once_and_ignored() {
    if child_case().is_none() {
        let name = "another_word_is_warned_of_once_and_ignored";
        let stderr = child_passes_with_io(name, "child", Some("kqueue"));
        let lines: Vec<_> = stderr.lines().collect();
        assert_eq!(lines.len(), 1, "{stderr}");
        for word in ["WINDLASS_IO", "\"kqueue\"", "`uring`", "`epoll`"] {
            assert!(lines[0].contains(word), "{stderr}");
        }
        return;
    }
    assert_eq!(built(), Poller::IoUring);
    assert_eq!(built(), Poller::IoUring);
}

//! A goroutine that runs over its stack is named before the process dies; other
//! faults are as they were. Each in a process of its own.
#![allow(unsafe_code)]

use std::os::unix::process::ExitStatusExt;
use std::process::Output;

use crate::util::{build, child, child_case, runtime};
use windlass::{Builder, task};

#[inline(never)]
fn recurse(n: u64) -> u64 {
    let frame = std::hint::black_box([n; 30]);
    if n == u64::MAX {
        return frame[3];
    }
    std::hint::black_box(recurse(n + 1)) + frame[7]
}

#[inline(never)]
fn recurse_with_large_frames(n: u64) -> u64 {
    let frame = std::hint::black_box([n; 3000]);
    if n == u64::MAX {
        return frame[3];
    }
    std::hint::black_box(recurse_with_large_frames(n + 1)) + frame[7]
}

/// Dies as it should: by abort, with the report. Gives the report's first line.
#[track_caller]
fn report(output: &Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(
        output.status.signal(),
        Some(libc::SIGABRT),
        "{:?}: {stderr}",
        output.status
    );
    let line = stderr
        .lines()
        .find(|line| line.contains("overflowed its stack"));
    let line = line
        .unwrap_or_else(|| panic!("no report: {stderr}"))
        .to_owned();
    assert!(stderr.contains("stack_size"), "the cure is named: {stderr}");
    line
}

/// Checks that the report has a number, the size, and a place in this file.
#[track_caller]
fn check_report(line: &str, bytes: usize, spawn_line: u32) {
    let id = line
        .strip_prefix("windlass: goroutine ")
        .and_then(|rest| rest.split([' ', ',']).next());
    assert!(
        id.is_some_and(|id| id.parse::<u64>().is_ok_and(|id| id > 0)),
        "{line}"
    );
    assert!(line.contains(&format!(" of {bytes} bytes")), "{line}");
    let site = format!("overflow.rs:{spawn_line}");
    assert!(line.contains(&site), "{line} does not name {site}");
}

#[test]
fn a_goroutines_overflow_is_reported() {
    let site = line!() + 2;
    if child_case().is_some() {
        runtime(2).run(|| windlass::spawn(|| recurse(0)).join().unwrap());
        unreachable!();
    }
    let line = report(&child("a_goroutines_overflow_is_reported", "default"));
    check_report(&line, 256 * 1024, site);
}

#[test]
fn its_name_is_told() {
    let site = line!() + 3;
    if child_case().is_some() {
        let named = task::Builder::new().name("deep diver");
        runtime(2).run(|| named.spawn(|| recurse(0)).unwrap().join().unwrap());
        unreachable!();
    }
    let line = report(&child("its_name_is_told", "named"));
    check_report(&line, 256 * 1024, site);
    assert!(line.contains("'deep diver'"), "{line}");
}

#[test]
fn stacks_of_other_sizes() {
    let site = line!() + 4;
    if let Some(size) = child_case() {
        let sized = task::Builder::new().stack_size(size.parse().unwrap());
        runtime(2).run(|| {
            sized.spawn(|| recurse(0)).unwrap().join().unwrap();
        });
        unreachable!();
    }
    // The size that is asked for, and the one to which it is rounded up.
    let sizes = [
        (16 << 10, 64 << 10),
        (64 << 10, 64 << 10),
        (1 << 20, 1 << 20),
        (2 << 20, 2 << 20),
        (3_000_000, 3_002_368),
    ];
    for (asked, bytes) in sizes {
        let line = report(&child("stacks_of_other_sizes", &asked.to_string()));
        check_report(&line, bytes, site);
    }
}

/// Calls `join` inside one another, and then a function that needs no end of stack.
fn recurse_by_join(n: u32) -> u64 {
    match n {
        0 => recurse(0),
        _ => windlass::join(|| recurse_by_join(n - 1), || 1).0,
    }
}

/// On the third or fourth stack of the goroutine.
#[test]
fn where_a_recursion_by_join_goes_on() {
    let site = line!() + 5;
    if child_case().is_some() {
        let small = task::Builder::new().stack_size(64 << 10);
        runtime(2).run(|| {
            small
                .spawn(|| recurse_by_join(500))
                .unwrap()
                .join()
                .unwrap();
        });
        unreachable!();
    }
    let line = report(&child("where_a_recursion_by_join_goes_on", "join"));
    check_report(&line, 64 << 10, site);
}

#[test]
fn the_builders_stack_size() {
    let site = line!() + 3;
    if child_case().is_some() {
        let rt = build(Builder::new().processors(2).stack_size(64 << 10)).unwrap();
        rt.run(|| windlass::spawn(|| recurse(0)).join().unwrap());
        unreachable!();
    }
    let line = report(&child("the_builders_stack_size", "64 KiB"));
    check_report(&line, 64 << 10, site);
}

#[test]
fn the_main_goroutine_is_one_too() {
    if child_case().is_some() {
        runtime(1).run(|| recurse(0));
        unreachable!();
    }
    let line = report(&child("the_main_goroutine_is_one_too", "main"));
    assert!(
        line.contains("'main'") && line.contains(&format!(" of {} bytes", 8 << 20)),
        "{line}"
    );
}

#[test]
fn frames_larger_than_the_guard_do_not_jump_it() {
    if child_case().is_some() {
        runtime(2).run(|| {
            windlass::spawn(|| recurse_with_large_frames(0))
                .join()
                .unwrap()
        });
        unreachable!();
    }
    report(&child(
        "frames_larger_than_the_guard_do_not_jump_it",
        "large",
    ));
}

#[test]
fn an_overflow_after_many_parks_and_in_a_used_stack() {
    if child_case().is_some() {
        runtime(2).run(|| {
            // Stacks are used again, and the goroutine has been on several threads.
            for _ in 0..200 {
                windlass::spawn(windlass::yield_now).join().unwrap();
            }
            let all: Vec<_> = (0..50)
                .map(|i| {
                    windlass::spawn(move || {
                        for _ in 0..50 {
                            windlass::yield_now();
                        }
                        if i == 33 { recurse(0) } else { 0 }
                    })
                })
                .collect();
            all.into_iter().for_each(|j| drop(j.join()));
        });
        unreachable!();
    }
    report(&child(
        "an_overflow_after_many_parks_and_in_a_used_stack",
        "used",
    ));
}

#[test]
fn a_blocking_section_is_still_the_goroutine() {
    if child_case().is_some() {
        runtime(1).run(|| {
            windlass::spawn(|| windlass::blocking(|| recurse(0)))
                .join()
                .unwrap()
        });
        unreachable!();
    }
    report(&child(
        "a_blocking_section_is_still_the_goroutine",
        "blocking",
    ));
}

#[inline(never)]
fn touch_a_bad_address() {
    let bad: *const u8 = std::ptr::without_provenance(std::hint::black_box(16));
    // SAFETY: none: the fault is what is tested, in a process that exists for it.
    std::hint::black_box(unsafe { bad.read_volatile() });
}

#[test]
fn another_fault_is_no_overflow() {
    if let Some(case) = child_case() {
        match case.as_str() {
            "goroutine" => runtime(2).run(|| windlass::spawn(touch_a_bad_address).join().unwrap()),
            "main" => runtime(2).run(touch_a_bad_address),
            "before" => {
                let _rt = runtime(1);
                touch_a_bad_address();
            }
            _ => {
                runtime(1).run(|| ());
                touch_a_bad_address();
            }
        }
        unreachable!();
    }
    for case in ["goroutine", "main", "before", "after"] {
        let output = child("another_fault_is_no_overflow", case);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            output.status.signal(),
            Some(libc::SIGSEGV),
            "{case}: {:?}: {stderr}",
            output.status
        );
        assert!(!stderr.contains("overflow"), "{case}: {stderr}");
    }
}

#[test]
fn the_overflow_of_a_plain_thread_is_stds() {
    if let Some(case) = child_case() {
        match case.as_str() {
            "beside" => {
                let _rt = runtime(1);
                std::thread::spawn(|| recurse(0)).join().unwrap();
            }
            "offload" => {
                runtime(1).run(|| windlass::offload(|| recurse(0)));
            }
            // The thread that ran the runtime has its own signal stack back.
            _ => {
                let thread = std::thread::spawn(|| {
                    runtime(1).run(|| ());
                    recurse(0)
                });
                thread.join().unwrap();
            }
        }
        unreachable!();
    }
    for case in ["beside", "offload", "after"] {
        let output = child("the_overflow_of_a_plain_thread_is_stds", case);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            output.status.signal(),
            Some(libc::SIGABRT),
            "{case}: {:?}: {stderr}",
            output.status
        );
        assert!(
            stderr.contains("has overflowed its stack"),
            "{case}: {stderr}"
        );
        assert!(!stderr.contains("goroutine"), "{case}: {stderr}");
    }
}

/// `MADV_GUARD_INSTALL` is not to be had for locked memory: stacks get guards of another kind.
#[test]
fn stacks_made_in_locked_memory_have_guards() {
    if let Some(case) = child_case() {
        runtime(1).run(|| {
            windlass::spawn(|| ()).join().unwrap();
            // SAFETY: takes plain numbers.
            if unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE) } != 0 {
                eprintln!("no memory can be locked: not tested");
                return;
            }
            let small: Vec<_> = (0..3)
                .map(|i| {
                    windlass::spawn(move || {
                        windlass::yield_now();
                        i
                    })
                })
                .collect();
            let small: Vec<_> = small.into_iter().map(|j| j.join().unwrap()).collect();
            assert_eq!(small, [0, 1, 2]);
            for _ in 0..3 {
                let large = task::Builder::new().stack_size(2 << 20);
                assert_eq!(large.spawn(|| 7).unwrap().join().unwrap(), 7);
            }
            if let Ok(bytes) = case.parse() {
                let sized = task::Builder::new().stack_size(bytes);
                sized.spawn(|| recurse(0)).unwrap().join().unwrap();
            }
        });
        return;
    }
    let test = "stacks_made_in_locked_memory_have_guards";
    let output = child(test, "no overflow");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    if stderr.contains("not tested") {
        eprintln!("{stderr}");
        return;
    }
    for bytes in [256 << 10, 2 << 20] {
        let line = report(&child(test, &bytes.to_string()));
        assert!(line.contains(&format!(" of {bytes} bytes")), "{line}");
    }
}

//! Pipes and standard streams of child processes. By itself: between fork and exec a
//! child holds whatever the process has open, which other tests would notice.
#![allow(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "the test waits for its children")]

use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::util;
use crate::util::{Pattern, run, wait_until};
use windlass::io::{self, BufRead, BufReader, PipeReader, PipeWriter, Read, Write, pipe};
use windlass::net::UnixStream;
use windlass::{blocking, spawn};

#[test]
fn pipes_of_and_for_others() {
    run(2, || {
        let (reader, writer) = pipe().unwrap();
        let std: std::io::PipeReader = reader.into();
        let mut reader = PipeReader::from(OwnedFd::from(std));
        let raw = writer.into_raw_fd();
        // SAFETY: the descriptor was given up just now.
        let writer = unsafe { PipeWriter::from_raw_fd(raw) };
        assert_eq!(writer.as_raw_fd(), raw);
        let text = format!("{writer:?}");
        assert!(text.starts_with("PipeWriter("), "{text}");
        let (input, mut feed) = pipe().unwrap();
        let mut child = Command::new("cat")
            .stdin(input)
            .stdout(writer)
            .spawn()
            .unwrap();
        feed.write_all(b"through a child").unwrap();
        drop(feed);
        let mut all = String::new();
        reader.read_to_string(&mut all).unwrap();
        assert_eq!(all, "through a child");
        assert!(blocking(|| child.wait()).unwrap().success());
    });
}

/// In a process of its own, whose standard streams are the test's.
#[test]
fn standard_streams() {
    if let Some(case) = util::child_case() {
        return standard_child(&case);
    }
    for case in ["goroutine", "thread"] {
        let mut child = standard_command(case)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        for line in ["one\n", "two\nth", "ree\n"] {
            stdin.write_all(line.as_bytes()).unwrap();
            std::thread::sleep(Duration::from_millis(2));
        }
        drop(stdin);
        let output = child.wait_with_output().unwrap();
        let (stdout, stderr) = (
            String::from_utf8_lossy(&output.stdout).into_owned(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        );
        assert!(output.status.success(), "{stdout}{stderr}");
        for word in ["got one", "got two", "got three", "end of 3"] {
            assert!(stdout.contains(word), "{case}: {stdout}");
        }
        assert!(stderr.contains("to stderr\n"), "{case}: {stderr}");
    }
}

fn standard_command(case: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([
            &*util::test_name("standard_streams"),
            "--exact",
            "--nocapture",
        ])
        .env("WINDLASS_TEST_CHILD", case);
    command
}

/// A file is read at its position, and a stream that is closed is empty.
#[test]
fn standard_streams_from_a_file_and_from_nowhere() {
    let path = std::env::temp_dir().join(format!("windlass-stdin-{}", std::process::id()));
    std::fs::write(&path, "one\ntwo\n".repeat(5000)).unwrap();
    for case in ["goroutine", "thread"] {
        let output = standard_command(case)
            .stdin(std::fs::File::open(&path).unwrap())
            .output()
            .unwrap();
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert!(stdout.contains("end of 10000"), "{case}: {stdout}");
    }
    std::fs::remove_file(&path).unwrap();
    let output = standard_command("closed")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(stdout.contains("end of 0"), "{stdout}");
}

fn standard_child(case: &str) {
    let check = || {
        let mut n = 0;
        for line in BufReader::new(io::stdin()).lines() {
            let line = line.unwrap();
            n += 1;
            if n < 10 {
                io::stdout()
                    .write_all(format!("got {line}\n").as_bytes())
                    .unwrap();
            }
        }
        io::stdout()
            .write_all(format!("end of {n}\n").as_bytes())
            .unwrap();
        io::stdout().flush().unwrap();
        io::stderr().write_all(b"to stderr\n").unwrap();
        assert!(!io::stdin().is_terminal());
    };
    match case {
        "thread" => check(),
        "closed" => run(1, || {
            // SAFETY: nobody else in this process reads from it, and the runtime is built, so
            // that nothing takes its place.
            unsafe { libc::close(0) };
            check();
        }),
        _ => run(2, check),
    }
}

/// The handles of the input share a buffer, the outputs have locks, and what `print!` has written
/// comes before what is written later.
#[test]
fn standard_streams_have_the_locks_and_the_order_of_std() {
    let name = "standard_streams_have_the_locks_and_the_order_of_std";
    match util::child_case().as_deref() {
        None => {}
        Some("goroutine") => return run(2, locking_child),
        Some(_) => return locking_thread(),
    }
    for case in ["goroutine", "thread"] {
        let mut child = util::child_command(name, case)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(b"one\ntwo\nthree\nfour\nfive").unwrap();
        drop(stdin);
        let output = child.wait_with_output().unwrap();
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{case}: {stdout}");
        let expected = "begin abc\n0-1-2-\nother 1\nend\n";
        assert!(stdout.contains(expected), "{case}: {stdout}");
        assert!(!stdout.contains("never"), "{case}: {stdout}");
    }
}

fn locking_child() {
    let mut text = String::new();
    assert_eq!(io::stdin().read_line(&mut text).unwrap(), 4);
    let mut lock = io::stdin().lock();
    lock.read_line(&mut text).unwrap();
    assert_eq!(text, "one\ntwo\n");
    let other = spawn(|| {
        let mut line = String::new();
        io::stdin().read_line(&mut line).unwrap();
        line
    });
    windlass::sleep(Duration::from_millis(5));
    lock.read_line(&mut text).unwrap();
    assert_eq!(text, "one\ntwo\nthree\n");
    assert!(!other.is_finished());
    drop(lock);
    assert_eq!(other.join().unwrap(), "four\n");
    let rest: Vec<_> = io::stdin().lines().map(Result::unwrap).collect();
    assert_eq!(rest, ["five"]);
    print_in_order();
    let mut lock = io::stdout().lock();
    let other = spawn(|| writeln!(io::stdout(), "other {}", 1));
    let short = Duration::from_millis(5);
    let ended = spawn(move || {
        let write = || io::stdout().write_all(b"never");
        windlass::time::timeout(short, write)
    });
    for n in 0..3 {
        write!(lock, "{n}").unwrap();
        // Whoever holds the lock may write by other handles, and lock it again.
        write!(io::stdout().lock(), "-").unwrap();
        windlass::sleep(Duration::from_millis(1));
    }
    assert!(!matches!(ended.join().unwrap(), Ok(Ok(()))));
    assert!(!other.is_finished());
    writeln!(lock).unwrap();
    drop(lock);
    other.join().unwrap().unwrap();
    io::stdout().write_all(b"end\n").unwrap();
}

#[allow(clippy::print_stdout)]
fn print_in_order() {
    print!("begin a");
    io::stdout().write_all(b"b").unwrap();
    println!("c");
}

/// On plain threads nothing is parked.
fn locking_thread() {
    let mut text = String::new();
    assert_eq!(io::stdin().read_line(&mut text).unwrap(), 4);
    let n = io::stdin().lines().map(Result::unwrap).count();
    assert_eq!(n, 4);
    print_in_order();
    let mut lock = io::stdout().lock();
    let other = std::thread::spawn(|| writeln!(io::stdout(), "other {}", 1));
    for n in 0..3 {
        write!(lock, "{n}").unwrap();
        write!(io::stdout(), "-").unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(!other.is_finished());
    writeln!(lock).unwrap();
    drop(lock);
    other.join().unwrap().unwrap();
    io::stdout().write_all(b"end\n").unwrap();
}

/// A program in which SIGPIPE kills, as many a command-line tool wants it: sockets do
/// not raise it.
#[test]
fn a_copy_to_a_peer_that_is_gone_does_not_kill() {
    if util::child_case().is_none() {
        util::child_passes("a_copy_to_a_peer_that_is_gone_does_not_kill", "");
        return;
    }
    // SAFETY: the default action is valid for every signal.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    run(2, || {
        let (mut a, mut from) = UnixStream::pair().unwrap();
        let (mut to, b) = UnixStream::pair().unwrap();
        let writes = windlass::spawn(move || while a.write(&[1; 100_000]).is_ok() {});
        let copies = windlass::spawn(move || io::copy(&mut from, &mut to).unwrap_err().kind());
        windlass::sleep(Duration::from_millis(10));
        drop(b);
        assert_eq!(copies.join().unwrap(), io::ErrorKind::BrokenPipe);
        writes.join().unwrap();
    });
}

/// Lets this process have so many descriptors.
fn limit_descriptors(n: libc::rlim_t) {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: both calls are given a valid structure.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit), 0);
        limit.rlim_cur = n;
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &limit), 0);
    }
}

/// Takes all descriptors that are left.
fn take_all_descriptors() -> Vec<OwnedFd> {
    std::iter::from_fn(|| std::fs::File::open("/dev/null").ok().map(OwnedFd::from)).collect()
}

/// Where no descriptor is left for a pipe, or one only now and then, every byte arrives all the
/// same.
#[test]
fn a_copy_goes_on_where_no_descriptor_is_left() {
    const LEN: usize = 6 << 20;
    if util::child_case().is_none() {
        util::child_passes("a_copy_goes_on_where_no_descriptor_is_left", "");
        return;
    }
    limit_descriptors(64);
    run(2, || {
        let pattern = Pattern::new();
        for comes_and_goes in [false, true] {
            let (mut way_in, mut from) = util::pair();
            let (mut to, mut way_out) = util::pair();
            let mut taken = take_all_descriptors();
            windlass::scope(|s| {
                let pattern = &pattern;
                s.spawn(move || pattern.write(&mut way_in, 0, LEN, 70_000).unwrap());
                let copied = s.spawn(move || io::copy(&mut from, &mut to).unwrap());
                let checked = s.spawn(move || pattern.check(&mut way_out, 50_000).unwrap());
                while comes_and_goes && !checked.is_finished() {
                    taken.truncate(taken.len().saturating_sub(2));
                    windlass::yield_now();
                    taken.append(&mut take_all_descriptors());
                    windlass::yield_now();
                }
                assert_eq!(checked.join().unwrap(), LEN);
                assert_eq!(copied.join().unwrap(), LEN as u64);
            });
        }
    });
}

/// The child has started, so to read its outputs must need no more.
#[test]
fn outputs_are_read_where_no_descriptor_is_left() {
    use windlass::process::{Command, Stdio};

    if util::child_case().is_none() {
        util::child_passes("outputs_are_read_where_no_descriptor_is_left", "");
        return;
    }
    limit_descriptors(64);
    let read = || {
        let mut command = Command::new("sh");
        // More than both pipes hold, one after the other.
        command.args([
            "-c",
            "head -c 200000 /dev/zero >&2; head -c 200000 /dev/zero; echo end >&2",
        ]);
        let child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let child = child.unwrap();
        let taken = take_all_descriptors();
        let output = child.wait_with_output();
        drop(taken);
        let output = output.unwrap();
        assert!(output.status.success());
        assert_eq!(
            (output.stdout.len(), output.stderr.len()),
            (200_000, 200_004)
        );
    };
    run(1, read);
    read();
}

fn n_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Copies that wait for their sources hold no pipes, and those that wait for their sinks, with
/// bytes in the pipes, not more than a part of the descriptors that the process may have.
#[test]
fn copies_that_wait_hold_few_descriptors() {
    const COPIES: usize = 120;
    const LEN: usize = 2 << 20;
    if util::child_case().is_none() {
        util::child_passes("copies_that_wait_hold_few_descriptors", "");
        return;
    }
    limit_descriptors(1024);
    run(2, || {
        let pattern = Pattern::new();
        let mut outer = Vec::new();
        let mut inner = Vec::new();
        for _ in 0..COPIES {
            let (way_in, from) = UnixStream::pair().unwrap();
            let (to, way_out) = UnixStream::pair().unwrap();
            outer.push((way_in, way_out));
            inner.push((from, to));
        }
        let before = n_descriptors();
        let copies: Vec<_> = inner
            .into_iter()
            .map(|(mut from, mut to)| spawn(move || io::copy(&mut from, &mut to).unwrap()))
            .collect();
        for (way_in, way_out) in &mut outer {
            way_in.write_all(&[1; 32 << 10]).unwrap();
            way_out.read_exact(&mut [0; 32 << 10]).unwrap();
        }
        // As many pipes are kept as a busy proxy has use for.
        wait_until(|| n_descriptors() <= before + 2 * 32);

        windlass::scope(|s| {
            let pattern = &pattern;
            let mut ways_out = Vec::new();
            for (mut way_in, way_out) in outer {
                s.spawn(move || pattern.write(&mut way_in, 0, LEN, 70_000).unwrap());
                ways_out.push(way_out);
            }
            // Nobody reads, so they fill up.
            let mut most = 0;
            for _ in 0..50 {
                windlass::sleep(Duration::from_millis(2));
                most = most.max(n_descriptors());
            }
            assert!(most <= before + 1024 / 8 + 8, "{before} and then {most}");
            for mut way_out in ways_out {
                s.spawn(move || assert_eq!(pattern.check(&mut way_out, 50_000).unwrap(), LEN));
            }
        });
        for copy in copies {
            assert_eq!(copy.join().unwrap(), (LEN + (32 << 10)) as u64);
        }
    });
}

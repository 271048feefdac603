//! Pipes and standard streams of child processes. By itself: between fork and exec a
//! child holds whatever the process has open, which other tests would notice.
#![allow(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "the test waits for its children")]

mod util;

use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::process::{Command, Stdio};
use std::time::Duration;

use util::run;
use windlass::blocking;
use windlass::io::{self, BufRead, BufReader, PipeReader, PipeWriter, Read, Write, pipe};
use windlass::net::UnixStream;

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
        .args(["standard_streams", "--exact", "--nocapture"])
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

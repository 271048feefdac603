//! For unit tests of code that ends the process, or that needs it for itself: the test runs again in a child process.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};

const CHILD: &str = "WINDLASS_UNIT_TEST_CHILD";

/// The case to run, if this process is such a child.
pub(crate) fn case() -> Option<String> {
    std::env::var(CHILD).ok()
}

/// Runs `case` of the test `name` in a child, which must abort and print `why` on stderr.
#[track_caller]
pub(crate) fn aborts(name: &str, case: &str, why: &str) {
    let output = run(name, case);
    let stderr = String::from_utf8_lossy(&output.stderr);
    // SIGABRT is 6 on every architecture of Linux.
    assert_eq!(output.status.signal(), Some(6), "{case}: {stderr}");
    assert!(stderr.contains(why), "{case}: {stderr}");
}

/// Runs `case` of the test `name` in a child, where it must pass.
#[track_caller]
pub(crate) fn passes(name: &str, case: &str) {
    let output = run(name, case);
    let [stdout, stderr] =
        [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    let has_passed = output.status.success() && stdout.contains("1 passed");
    assert!(has_passed, "{case}: {stdout}{stderr}");
}

fn run(name: &str, case: &str) -> Output {
    let program = std::env::current_exe().expect("a test knows its program");
    // A core file would be large and useless.
    Command::new("sh")
        .args(["-c", "ulimit -c 0; exec \"$0\" \"$@\""])
        .arg(program)
        .args([name, "--exact", "--nocapture", "--test-threads=1"])
        .env(CHILD, case)
        .output()
        .expect("a test can start its own program")
}

//! `#[windlass::test]` in the ordinary harness: what tests may be, and deadlocks that are found there.
//!
//! Tests in modules that begin with `child_` pass at once here. A test starts this program once more with a
//! variable that says which of them is meant.
#![allow(unsafe_code)]

#[path = "../../../tests/util/mod.rs"]
mod util;

use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use util::PROMISE;
use windlass::debug::Dump;
use windlass::{Handle, sleep, spawn, task, yield_now};

#[windlass::test(unsafe(no_thread_local_across_waits), name = "two")]
fn runs_on_a_goroutine_of_two_processors() {
    yield_now();
    assert_eq!(task::current().name(), Some("main"));
    let wanted = std::env::var("WINDLASS_PROCS").ok();
    has_processors("two", wanted.map_or(2, |n| n.parse().unwrap()));
}

#[windlass::test(
    unsafe(no_thread_local_across_waits),
    name = "three",
    processors = 3,
    stack_size = 32 << 10
)]
fn takes_options() -> io::Result<()> {
    has_processors("three", 3);
    Ok(())
}

#[windlass::test(
    unsafe(no_thread_local_across_waits),
    builder = windlass::Builder::new().processors(1).name("one"),
)]
fn starts_from_a_builder() {
    has_processors("one", 1);
}

/// Waits until a runtime has a thread for each of `n` Ps, which is so from the start but for the
/// thread of the test.
fn has_processors(name: &str, n: usize) {
    let prefix = format!("{name}-m");
    let mut n_threads = 0;
    util::wait_until(|| {
        let names = util::thread_names().into_iter();
        n_threads = names.filter(|name| name.starts_with(&prefix)).count();
        n_threads + 1 >= n
    });
    assert_eq!(n_threads + 1, n);
}

#[windlass::test(unsafe(no_thread_local_across_waits))]
fn returns_an_exit_code() -> ExitCode {
    ExitCode::SUCCESS
}

#[windlass::test(unsafe(no_thread_local_across_waits))]
#[should_panic(expected = "the text of the panic")]
fn may_have_to_panic() {
    spawn(|| panic!("the text of the panic"))
        .join()
        .unwrap_or_else(|e| std::panic::resume_unwind(e));
}

#[windlass::test(name = "crate")]
fn finds_the_promise_of_the_crate() {
    assert_eq!(task::current().name(), Some("main"));
}

#[windlass::test(sim, seeds = 1, unsafe(no_thread_local_across_waits))]
fn a_simulation_takes_the_words() {
    assert!(windlass::sim::is_simulated());
}

#[windlass::test(leaks)]
fn leaks_nothing() -> Result<(), String> {
    let parked = spawn(task::park);
    parked.task().unpark();
    parked.join().map_err(|_| "it has panicked".to_owned())
}

/// Nobody can unpark the goroutine.
fn leaks() {
    let lost = spawn(task::park);
    let id = lost.task().id();
    drop(lost);
    // A dump has its node when its thread has left it.
    let rests = |dump: &Dump| {
        let mut all = dump.goroutines.iter();
        all.any(|g| g.id == id && g.node.is_some())
    };
    while !rests(&Handle::current().dump()) {
        sleep(Duration::from_millis(1));
    }
}

#[windlass::test(leaks)]
#[should_panic(expected = "leaked: nobody has a handle by which to unpark it")]
fn fails_if_it_leaks() {
    leaks();
}

#[windlass::test]
fn may_leak_if_it_is_not_asked() {
    leaks();
}

#[windlass::test(sim, leaks, seeds = 2)]
#[should_panic(expected = "the test leaks goroutines: ")]
fn fails_if_it_leaks_in_a_simulation() {
    leaks();
}

#[windlass::test(sim, leaks, seeds = 2)]
fn leaks_nothing_in_a_simulation() {
    let waits = spawn(|| sleep(Duration::from_secs(1)));
    waits.join().unwrap();
}

static N_RUNS: AtomicUsize = AtomicUsize::new(0);

#[windlass::test(sim, seeds = 7, no_goroutines_left)]
fn runs_in_a_simulation() {
    N_RUNS.fetch_add(1, Ordering::SeqCst);
    assert!(windlass::sim::is_simulated());
    let begin = windlass::time::Instant::now();
    sleep(Duration::from_secs(3600));
    assert_eq!(begin.elapsed(), Duration::from_secs(3600));
}

#[windlass::test(sim, seed = 3, seeds = 1)]
fn a_simulation_returns_a_result() -> Result<(), String> {
    spawn(|| Ok(())).join().unwrap()
}

/// The functions that the attribute makes are ordinary ones.
#[test]
fn a_simulation_has_so_many_seeds() {
    runs_in_a_simulation();
    assert!(N_RUNS.load(Ordering::SeqCst) >= 7);
}

/// Whether this process is that of a case.
fn is(case: &str) -> bool {
    util::child_case().is_some_and(|this| this == case)
}

/// The tests of a module, in a process that is that of the case with the same name.
fn harness(module: &str, n_threads: u32) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let filter = format!("{module}::");
    command
        .args([
            &*filter,
            "--nocapture",
            &format!("--test-threads={n_threads}"),
        ])
        .env("WINDLASS_TEST_CHILD", module)
        .env("RUST_BACKTRACE", "0")
        .env_remove("WINDLASS_DEBUG")
        .env_remove("WINDLASS_CHAOS")
        .stdin(Stdio::null());
    command
}

/// Exit status, stdout and stderr.
fn outcome(mut command: Command) -> (Option<i32>, String, String) {
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

mod child_results {
    use super::is;

    #[windlass::test(unsafe(no_thread_local_across_waits))]
    fn is_an_error() -> Result<(), &'static str> {
        match is("child_results") {
            true => Err("no such file"),
            false => Ok(()),
        }
    }

    #[windlass::test(sim, seeds = 2)]
    fn is_an_error_in_a_simulation() -> Result<(), &'static str> {
        match is("child_results") {
            true => Err("no such host"),
            false => Ok(()),
        }
    }

    #[windlass::test(unsafe(no_thread_local_across_waits), processors = 1 - usize::from(is("child_results")))]
    fn is_no_runtime() {}

    #[windlass::test(unsafe(no_thread_local_across_waits))]
    fn is_a_panic() {
        assert!(!is("child_results"), "the text of the panic");
    }
}

#[test]
fn failures_are_those_of_the_harness() {
    let (status, stdout, stderr) = outcome(harness("child_results", 2));
    assert_eq!(status, Some(101), "{stdout}{stderr}");
    assert!(stdout.contains("0 passed; 4 failed"), "{stdout}");
    for wanted in [
        "no such file",
        "no such host",
        "the test returned an error",
        "the runtime of the test cannot be built: processors(0): a runtime needs at least one P",
        "the text of the panic",
    ] {
        assert!(stderr.contains(wanted), "no {wanted:?} in {stderr}");
    }
}

const HEADLINE: &str = "fatal error: all goroutines are asleep - deadlock!\n";

mod child_deadlock {
    use super::{Duration, is, task};

    #[windlass::test(unsafe(no_thread_local_across_waits))]
    fn is_one() {
        if is("child_deadlock") {
            task::park();
        }
    }

    /// Might still wake somebody.
    #[windlass::test(unsafe(no_thread_local_across_waits))]
    fn takes_a_while() {
        if is("child_deadlock") {
            windlass::sleep(Duration::from_millis(600));
        }
    }

    /// Knows nothing of windlass, as far as anybody can tell.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "on a plain thread")]
    fn takes_a_while_on_a_thread() {
        if is("child_deadlock") {
            std::thread::sleep(Duration::from_millis(700));
        }
    }
}

/// It is reported when the other tests have ended, and names its test.
#[test]
fn a_deadlock_is_found_beside_other_tests() {
    for n_threads in [2, 4] {
        let (status, stdout, stderr) = outcome(harness("child_deadlock", n_threads));
        assert_eq!(status, Some(2), "{stdout}{stderr}");
        let (_, report) = stderr.split_once(HEADLINE).expect(&stderr);
        assert_eq!(report.matches("name \"main\"]:").count(), 1, "{stderr}");
        assert!(report.contains("[park"), "{stderr}");
        let n_spawned = report.matches("\tcrates/macros/tests/harness.rs:").count();
        assert!(n_spawned >= 1, "{stderr}");
        for passed in ["takes_a_while", "takes_a_while_on_a_thread"] {
            let line = format!("test child_deadlock::{passed} ... ok");
            assert!(stdout.contains(&line), "{stdout}");
        }
    }
}

/// The harness is slow to begin the next test, here because nobody reads what it writes: at that moment
/// the only threads are its own and those of the test that is stuck.
#[test]
fn tests_that_have_not_begun_rule_a_deadlock_out() {
    /// The capacity of the pipe, in bytes.
    const PAGE: usize = 4096;
    let (mut reader, mut writer) = io::pipe().unwrap();
    // SAFETY: takes plain numbers.
    let set = unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETPIPE_SZ, PAGE) };
    assert_eq!(set as usize, PAGE);
    // There is room for `running 3 tests`, and not for the first result.
    let filler = vec![b'.'; PAGE - 30];
    writer.write_all(&filler).unwrap();
    let mut command = harness("child_deadlock", 2);
    command.stdout(writer).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    // The pipe's end of this process is closed.
    drop(command);
    // The first test that ends takes 600 ms. A deadlock is looked for every 100 ms.
    std::thread::sleep(Duration::from_millis(1500));
    let mut stdout = String::new();
    reader.read_to_string(&mut stdout).unwrap();
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stdout}{stderr}");
    assert!(stderr.contains(HEADLINE), "{stderr}");
    for passed in ["takes_a_while", "takes_a_while_on_a_thread"] {
        let line = format!("test child_deadlock::{passed} ... ok");
        assert!(stdout.contains(&line), "{stdout}{stderr}");
    }
}

/// With one test thread libtest calls the tests in the main thread, which is then a runtime's.
#[test]
fn a_deadlock_is_found_in_the_main_thread() {
    let mut command = harness("child_deadlock", 1);
    command.args(["--skip", "takes_a_while"]);
    let (status, stdout, stderr) = outcome(command);
    assert_eq!(status, Some(2), "{stdout}{stderr}");
    assert!(stderr.contains(HEADLINE), "{stderr}");
}

mod child_two_deadlocks {
    use windlass::channel::{Receiver, Sender, bounded};
    use windlass::sync::LazyLock;

    use super::is;

    type Ends = (Sender<u32>, Receiver<u32>);
    static THERE: LazyLock<Ends> = LazyLock::new(|| bounded(0));
    static BACK: LazyLock<Ends> = LazyLock::new(|| bounded(0));

    #[windlass::test(unsafe(no_thread_local_across_waits), name = "one")]
    fn one() {
        if is("child_two_deadlocks") {
            let _ = THERE.1.recv();
            BACK.0.send(1).unwrap();
        }
    }

    #[windlass::test(unsafe(no_thread_local_across_waits), name = "other")]
    fn other() {
        if is("child_two_deadlocks") {
            let _ = BACK.1.recv();
            THERE.0.send(1).unwrap();
        }
    }
}

/// Two tests wait for each other.
#[test]
fn two_deadlocks_are_found_together() {
    let (status, stdout, stderr) = outcome(harness("child_two_deadlocks", 2));
    assert_eq!(status, Some(2), "{stdout}{stderr}");
    let (_, report) = stderr.split_once(HEADLINE).expect(&stderr);
    for wanted in ["\none: 1 goroutines\n", "\nother: 1 goroutines\n"] {
        assert!(report.contains(wanted), "{stderr}");
    }
    assert_eq!(report.matches("name \"main\"]:").count(), 2, "{stderr}");
}

mod child_no_deadlock {
    use windlass::channel::{Receiver, Sender, bounded};
    use windlass::sync::{LazyLock, Mutex};

    use super::{Duration, is, sleep, spawn, task};

    /// Longer than it takes to find a deadlock.
    const LONG: Duration = Duration::from_millis(600);

    type Ends = (Sender<u32>, Receiver<u32>);
    static FROM_A_THREAD: LazyLock<Ends> = LazyLock::new(|| bounded(0));
    static FROM_A_RUNTIME: LazyLock<Ends> = LazyLock::new(|| bounded(0));
    static LOCK: Mutex<u32> = Mutex::new(0);

    #[windlass::test(unsafe(no_thread_local_across_waits))]
    fn receives_from_a_test_without_a_runtime() {
        if is("child_no_deadlock") {
            assert_eq!(FROM_A_THREAD.1.recv(), Ok(1));
        }
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "on a plain thread")]
    fn sends_without_a_runtime() {
        if is("child_no_deadlock") {
            std::thread::sleep(LONG);
            FROM_A_THREAD.0.send(1).unwrap();
        }
    }

    #[windlass::test(unsafe(no_thread_local_across_waits))]
    fn receives_from_another_runtime() {
        if is("child_no_deadlock") {
            assert_eq!(FROM_A_RUNTIME.1.recv(), Ok(2));
        }
    }

    #[windlass::test(unsafe(no_thread_local_across_waits))]
    fn sends_from_another_runtime() {
        if is("child_no_deadlock") {
            sleep(LONG);
            FROM_A_RUNTIME.0.send(2).unwrap();
        }
    }

    fn holds_the_lock() {
        if is("child_no_deadlock") {
            let mut n = LOCK.lock().unwrap();
            sleep(LONG / 2);
            *n += 1;
        }
    }

    /// Tests that use something one after the other.
    #[windlass::test(unsafe(no_thread_local_across_waits))]
    fn holds_the_lock_first() {
        holds_the_lock();
    }

    #[windlass::test(unsafe(no_thread_local_across_waits))]
    fn holds_the_lock_then() {
        holds_the_lock();
    }

    #[windlass::test(unsafe(no_thread_local_across_waits))]
    #[expect(clippy::disallowed_methods, reason = "on a plain thread")]
    fn is_woken_by_a_thread_of_its_own() {
        if is("child_no_deadlock") {
            let main = task::current();
            let thread = std::thread::spawn(move || {
                std::thread::sleep(LONG);
                main.unpark();
            });
            task::park();
            windlass::blocking(|| thread.join()).unwrap();
        }
    }

    #[windlass::test(unsafe(no_thread_local_across_waits))]
    #[expect(clippy::disallowed_methods, reason = "in a blocking section")]
    fn waits_for_a_blocking_section() {
        if is("child_no_deadlock") {
            spawn(|| windlass::blocking(|| std::thread::sleep(LONG)))
                .join()
                .unwrap();
            windlass::offload(|| std::thread::sleep(LONG));
        }
    }
}

/// Whatever may still wake a goroutine rules a deadlock out, whether the tests run beside each other
/// or in part after each other.
#[test]
fn what_others_may_wake_is_no_deadlock() {
    for n_threads in [8, 32] {
        let (status, stdout, stderr) = outcome(harness("child_no_deadlock", n_threads));
        assert_eq!(status, Some(0), "{stdout}{stderr}");
        assert!(!stderr.contains("deadlock!"), "{stderr}");
        assert!(stdout.contains("8 passed"), "{stdout}");
    }
}

mod child_option {
    use super::{is, stuck_until_the_alarm};

    #[windlass::test(unsafe(no_thread_local_across_waits), deadlock_detection = false)]
    fn is_stuck() {
        if is("child_option") {
            stuck_until_the_alarm();
        }
    }
}

mod child_environment {
    use super::{is, stuck_until_the_alarm};

    #[windlass::test(unsafe(no_thread_local_across_waits))]
    fn is_stuck() {
        if is("child_environment") {
            stuck_until_the_alarm();
        }
    }
}

/// The process ends by a signal after a second.
fn stuck_until_the_alarm() {
    // SAFETY: takes a number; the signal ends the process.
    unsafe { libc::alarm(1) };
    task::park();
}

#[test]
fn detection_can_be_turned_off() {
    let by_option = harness("child_option", 2);
    let mut by_environment = harness("child_environment", 2);
    by_environment.env("WINDLASS_DEBUG", "deadlock=0");
    for command in [by_option, by_environment] {
        let (status, stdout, stderr) = outcome(command);
        assert_eq!(status, None, "{stdout}{stderr}");
        assert!(!stderr.contains("deadlock!"), "{stderr}");
    }
}

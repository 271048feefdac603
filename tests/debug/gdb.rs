//! gdb's commands for goroutines, of live processes and of core files. The tests say so, and end, where there
//! is no gdb, or where it may not attach.

#![allow(unsafe_code)]

use crate::temp::TempDir;
use crate::util;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use windlass::debug::State;
use windlass::sync::Mutex;
use windlass::{Handle, channel, sleep, spawn, task};

/// The line with which a child says that it is as the test wants it.
const READY: &str = "the child is ready";

#[inline(never)]
fn waits_for_a_message(receiver: &channel::Receiver<u32>) {
    let _ = std::hint::black_box(receiver.recv());
}

#[inline(never)]
fn locks_both(first: &Mutex<()>, second: &Mutex<()>, others: &AtomicBool, has_first: &AtomicBool) {
    let _first = first.lock().unwrap();
    has_first.store(true, Ordering::SeqCst);
    util::wait_until(|| others.load(Ordering::SeqCst));
    let _second = second.lock().unwrap();
}

#[inline(never)]
fn writes_to_nothing() {
    // SAFETY: it is not safe: the process is to die of it.
    unsafe { std::ptr::without_provenance_mut::<u32>(16).write_volatile(1) };
}

fn named(name: &str, f: impl FnOnce() + Send + 'static) {
    drop(task::Builder::new().name(name).spawn(f).unwrap());
}

/// Starts `n` goroutines that wait for a message, one that sleeps and one that computes.
fn waiters(n: usize) {
    let (sender, receiver) = channel::bounded(1);
    for _ in 0..n {
        let receiver = receiver.clone();
        spawn(move || waits_for_a_message(&receiver));
    }
    std::mem::forget(sender);
    named("sleeper", || sleep(Duration::from_secs(3600)));
    drop(windlass::future::spawn(std::future::pending::<()>()));
    let computes = Arc::new(AtomicBool::new(false));
    let does = Arc::clone(&computes);
    named("computes", move || {
        does.store(true, Ordering::SeqCst);
        loop {
            std::hint::spin_loop();
        }
    });
    util::wait_until(|| computes.load(Ordering::SeqCst));
}

fn deadlock() {
    let locks = Arc::new((Mutex::new(()), Mutex::new(())));
    let has = Arc::new((AtomicBool::new(false), AtomicBool::new(false)));
    let (l, h) = (Arc::clone(&locks), Arc::clone(&has));
    named("left", move || locks_both(&l.0, &l.1, &h.1, &h.0));
    let (l, h) = (Arc::clone(&locks), Arc::clone(&has));
    named("right", move || locks_both(&l.1, &l.0, &h.0, &h.1));
    util::wait_until(|| has.0.load(Ordering::SeqCst) && has.1.load(Ordering::SeqCst));
}

/// Whether all goroutines wait, but for the one that computes and the main goroutine, which asks.
fn have_come_to_their_waits() -> bool {
    let all = Handle::current().goroutines();
    let mut others = all
        .iter()
        .filter(|g| !matches!(g.name.as_deref(), Some("main" | "computes")));
    others.all(|g| g.state == State::Waiting)
}

/// In a child: what it does, after which it waits for its end.
fn run_case(case: &str) {
    if matches!(case, "crash" | "deadlock") {
        leave_core();
    }
    util::runtime(2).run(|| {
        match case {
            "deadlock" => deadlock(),
            "crash" => waiters(1),
            "escapes" => named("red\u{1b}[31m\nforged", || sleep(Duration::from_secs(3600))),
            n => waiters(n.parse().unwrap()),
        }
        util::wait_until(have_come_to_their_waits);
        eprintln!("{READY}");
        if case == "crash" {
            named("crasher", writes_to_nothing);
        }
        sleep(Duration::from_secs(3600));
    });
}

/// A child that is killed in the end.
struct Subject(Child);

impl Subject {
    fn start(test: &str, case: &str, folder: Option<&Path>) -> Subject {
        let mut command = util::child_command(test, case);
        if let Some(folder) = folder {
            command.current_dir(folder);
        }
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let stderr = child.stderr.take().unwrap();
        let mut lines = BufReader::new(stderr).lines();
        assert!(lines.any(|line| line.unwrap() == READY));
        Subject(child)
    }

    fn kill(&mut self, signal: libc::c_int) {
        // SAFETY: takes plain integers.
        unsafe { libc::kill(self.0.id().cast_signed(), signal) };
        self.0.wait().unwrap();
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What this process may write into a core file.
fn core_limit() -> libc::rlimit {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the limit is valid for writes.
    unsafe { libc::getrlimit(libc::RLIMIT_CORE, &mut limit) };
    limit
}

/// Lets this process leave a core file, which children of tests do not.
fn leave_core() {
    let mut limit = core_limit();
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: the limit is valid for reads.
    unsafe { libc::setrlimit(libc::RLIMIT_CORE, &limit) };
}

/// Whether a process that dies leaves a file in its folder: `core`, or `core.PID`.
fn has_core_files() -> bool {
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    let has = pattern.trim() == "core" && core_limit().rlim_max == libc::RLIM_INFINITY;
    if !has {
        eprintln!("skipped: core files are limited here, or go elsewhere: {pattern:?}");
    }
    has
}

/// The output of gdb that runs `commands` on this program. `None` where there is no gdb, or where it may not
/// look at the process.
fn gdb(of: &[&str], commands: &[&str]) -> Option<String> {
    let program = std::env::current_exe().unwrap();
    let mut gdb = Command::new("gdb");
    gdb.args(["-batch", "-nx", "-iex", "add-auto-load-safe-path /"]);
    gdb.args(commands.iter().flat_map(|c| ["-ex", c]));
    let Ok(output) = gdb
        .arg(program)
        .args(of)
        .env_remove("DEBUGINFOD_URLS")
        .output()
    else {
        eprintln!("skipped: no gdb here");
        return None;
    };
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    if text.contains("ptrace: Operation not permitted") {
        eprintln!("skipped: gdb may not attach here");
        return None;
    }
    Some(text.into_owned())
}

/// In a child, runs the case `n`. Else what gdb says with `commands` of a child that does.
fn of_live(test: &str, n: &str, commands: &[&str]) -> Option<String> {
    if let Some(case) = util::child_case() {
        run_case(&case);
        return None;
    }
    let child = Subject::start(test, n, None);
    gdb(&["-p", &child.0.id().to_string()], commands)
}

/// In a child, runs the case. Else what gdb says of the core file of a child that did, and that `die` waited for.
fn of_core(test: &str, case: &str, die: impl FnOnce(&mut Subject)) -> Option<String> {
    if let Some(case) = util::child_case() {
        run_case(&case);
        return None;
    }
    if !has_core_files() {
        return None;
    }
    let folder = TempDir::new();
    die(&mut Subject::start(test, case, Some(folder.path())));
    let mut files = std::fs::read_dir(folder.path()).unwrap();
    let core = files.next().expect("a core file").unwrap().path();
    gdb(
        &[core.to_str().unwrap()],
        &["info goroutines", "goroutine all bt"],
    )
}

#[track_caller]
fn assert_has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
}

#[test]
fn goroutines_of_a_live_process() {
    let commands = [
        "info goroutines",
        "goroutine 2 bt",
        "goroutine all bt",
        "info goroutines leep",
    ];
    let Some(text) = of_live("goroutines_of_a_live_process", "3", &commands) else {
        return;
    };
    assert_has(
        &text,
        &[
            "goroutine 1 [sleep, name \"main\"], spawned at tests/debug/",
            "goroutine 2 [chan receive], spawned at tests/debug/gdb.rs:",
            "[sleep, name \"sleeper\"]",
            "name \"computes\"], spawned at",
            "[future without a stack], spawned at tests/debug/gdb.rs:",
            "    it has no stack\n",
            "3 chan receive",
            "gdb::waits_for_a_message\n",
            "3 goroutines [chan receive], spawned at tests/debug/gdb.rs:",
            ": 2, 3, 4\n",
        ],
    );
    let running = text.lines().find(|l| l.contains("\"computes\"")).unwrap();
    assert!(running.contains("[running, thread "), "{running}");
    // The way from the coroutine's root to the closure is not the program's.
    assert!(!text.contains("corosensei"), "{text}");
}

#[test]
fn a_goroutine_is_selected_and_left() {
    let commands = ["goroutine 2", "bt", "goroutine off", "echo [off]\\n", "bt"];
    let Some(text) = of_live("a_goroutine_is_selected_and_left", "1", &commands) else {
        return;
    };
    let (selected, thread) = text.split_once("[off]").unwrap();
    assert_has(
        selected,
        &[
            "goroutine 2 [chan receive]",
            "waits_for_a_message",
            "stack_init_trampoline",
        ],
    );
    assert!(!selected.contains("corrupt stack"), "{text}");
    assert!(thread.contains("#0 "), "{text}");
    assert!(!thread.contains("waits_for_a_message"), "{text}");
}

/// A name may come from a peer. It neither commands the terminal nor forges a line.
#[test]
fn control_characters_of_names_are_escaped() {
    let commands = ["info goroutines"];
    let test = "control_characters_of_names_are_escaped";
    let Some(text) = of_live(test, "escapes", &commands) else {
        return;
    };
    assert_has(&text, &["name \"red\\x1b[31m\\nforged\""]);
}

/// How many goroutines gdb lists in the test of many: `make test-long` sets it to a million.
fn many() -> usize {
    let said = std::env::var("WINDLASS_GDB_GOROUTINES");
    said.map_or(5_000, |n| n.parse().unwrap())
}

#[test]
fn equal_stacks_are_shown_once() {
    let commands = ["goroutine all bt", "info goroutines"];
    let n = many().to_string();
    let Some(text) = of_live("equal_stacks_are_shown_once", &n, &commands) else {
        return;
    };
    // The main goroutine, one that sleeps, a future and one that computes come to these, and 1,000 are listed.
    let n_more = many() + 4 - 1_000;
    assert_has(
        &text,
        &[
            &*format!("{n} goroutines [chan receive], "),
            &*format!("and {n_more} more: info goroutines -all lists them"),
        ],
    );
    assert_eq!(
        text.matches("gdb::waits_for_a_message").count(),
        1,
        "{text}"
    );
}

#[test]
fn what_cannot_be_is_said() {
    if let Some(case) = util::child_case() {
        return run_case(&case);
    }
    let child = Subject::start("what_cannot_be_is_said", "1", None);
    let pid = child.0.id().to_string();
    for (command, error) in [
        (
            "goroutine 987654",
            "there is no goroutine 987654: info goroutines lists them",
        ),
        ("goroutine two", "usage: goroutine N [bt [-full]], "),
        ("goroutine", "usage: "),
        ("goroutine 2 down", "usage: "),
    ] {
        let Some(text) = gdb(&["-p", &pid], &[command]) else {
            return;
        };
        assert_has(&text, &[error]);
    }
    let text = gdb(&[], &["info goroutines"]).unwrap();
    assert_has(
        &text,
        &["there is no process: use run, attach, or a core file"],
    );
}

/// Changes the process as a damaged core file would be, and looks at it: `damaged` changes one word of the newest
/// chunk of goroutines, `unlinked` the place where the stack of goroutine 2 begins.
const DAMAGE: &str = r#"
registry = Registry()
place = next(place for place in registry.places if registry.magic(place) == MAGIC)
newest = words(place + len(MAGIC), 1)[0]

def damage(at, value, commands):
    before = words(at, 1)[0]
    gdb.selected_inferior().write_memory(at, struct.pack("<Q", value))
    for command in commands:
        try:
            gdb.execute(command)
        except gdb.error as e:
            gdb.write(f"error: {e}\n")
    gdb.selected_inferior().write_memory(at, struct.pack("<Q", before))

def damaged(field, value):
    damage(newest + 8 * ["next", "base", "slot_bytes", "n_cut"].index(field), value, ["info goroutines"])

def unlinked():
    goroutine = one(2)
    base, slot_bytes, n_cut = words(newest + 8, 3)
    id_at, out_at = goroutine.offsets["id"], goroutine.offsets["out"]
    slot = next(at for at in range(base, base + slot_bytes * n_cut, slot_bytes) if words(at + id_at, 1)[0] == 2)
    damage(slot + out_at, 0x1000 | goroutine.offsets["linked"], ["goroutine 2", "goroutine 2 bt", "goroutine all bt"])

damaged("next", newest)
damaged("next", 8)
damaged("base", 8)
damaged("slot_bytes", 0)
damaged("n_cut", 1 << 60)
unlinked()
"#;

/// A core file that was cut off, or a process that has written where it should not: as much as can be read is
/// shown, once, and the rest is named.
#[test]
fn damaged_memory_is_named() {
    let _guard = util::hang_guard();
    let folder = TempDir::new();
    let script = folder.path().join("damage.py");
    std::fs::write(&script, DAMAGE).unwrap();
    let commands = [&*format!("source {}", script.display())];
    let Some(text) = of_live("damaged_memory_is_named", "2", &commands) else {
        return;
    };
    assert_has(
        &text,
        &[
            "the list of chunks is damaged: it comes to the one at 0x",
            "the chunk of goroutines at 0x8, and those after it, cannot be read, so",
            "goroutines at 0x8 cannot be read, so",
            " slots of 0 bytes, so",
            "is damaged: it has 1152921504606846976 slots of ",
            "error: the stack of goroutine 2 cannot be read: Cannot access memory at address 0x10",
            "goroutine 2 [chan receive], spawned at tests/debug/gdb.rs:",
            "    its stack cannot be read: Cannot access memory at address 0x10",
            "gdb::waits_for_a_message\n",
        ],
    );
    let n_listed = text.matches("6 goroutines: ").count();
    let n_unlisted = text.matches("no goroutines\n").count();
    assert_eq!((n_listed, n_unlisted), (2, 3), "{text}");
}

#[test]
fn a_core_of_a_deadlock() {
    let die = |child: &mut Subject| child.kill(libc::SIGABRT);
    let Some(text) = of_core("a_core_of_a_deadlock", "deadlock", die) else {
        return;
    };
    assert_has(
        &text,
        &[
            "[sync.Mutex.lock, name \"left\"]",
            "[sync.Mutex.lock, name \"right\"]",
            "gdb::locks_both\n",
        ],
    );
}

#[test]
fn a_core_of_a_crash() {
    let die = |child: &mut Subject| _ = child.0.wait().unwrap();
    let Some(text) = of_core("a_core_of_a_crash", "crash", die) else {
        return;
    };
    assert_has(
        &text,
        &[
            "[running, thread 1, name \"crasher\"]",
            "writes_to_nothing\n",
            "gdb::waits_for_a_message\n",
        ],
    );
}

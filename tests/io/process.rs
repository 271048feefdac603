//! `windlass::process`: children, their pipes, and waiting for them.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use windlass::time::{Duration, Instant};

use crate::temp::TempDir;
use crate::util;
use windlass::context::Context;
use windlass::fs::File;
use windlass::net::UnixStream;
use windlass::process::{ChildStderr, ChildStdout, Command, Stdio};
use windlass::time::{Elapsed, timeout};
use windlass::{spawn, yield_now};

/// How long a test waits for what does not come.
const SHORT: Duration = Duration::from_millis(20);

/// On a plain thread, and on a goroutine of a single P, which must not be blocked.
fn both(test: impl Fn() + Send + Sync) {
    let _guard = util::hang_guard();
    test();
    util::runtime(1).run(&test);
}

fn sh(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

#[test]
fn a_child_is_started_and_waited_for() {
    both(|| {
        assert!(sh("exit 0").status().unwrap().success());
        assert_eq!(sh("exit 7").status().unwrap().code(), Some(7));
        let mut child = sh("kill -9 $$").spawn().unwrap();
        let status = child.wait().unwrap();
        assert_eq!((status.code(), status.signal()), (None, Some(9)));
        // However often.
        assert_eq!(child.wait().unwrap(), status);
        assert_eq!(child.try_wait().unwrap(), Some(status));
        // A child that is waited for cannot be meant any more.
        child.kill().unwrap();

        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        assert_eq!(child.try_wait().unwrap(), None);
        assert!(Path::new(&format!("/proc/{}", child.id())).exists());
        child.kill().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
    });
}

#[test]
fn output_reads_both_pipes_at_once() {
    both(|| {
        // More than both pipes hold, one after the other and in turns.
        let output =
            sh("head -c 300000 /dev/zero >&2; head -c 300000 /dev/zero; echo end >&2; exit 3")
                .output()
                .unwrap();
        assert_eq!(output.status.code(), Some(3));
        assert_eq!(output.stdout, vec![0; 300_000]);
        assert_eq!(output.stderr.len(), 300_004);
        assert!(output.stderr.ends_with(b"end\n"));
        // Without a setting the input is empty.
        let output = Command::new("cat").output().unwrap();
        assert!(output.status.success() && output.stdout.is_empty());
        let output = sh("echo seen; echo unseen >&2")
            .stderr(Stdio::null())
            .output()
            .unwrap();
        assert_eq!(
            (&output.stdout[..], &output.stderr[..]),
            (&b"seen\n"[..], &b""[..])
        );
        // The settings that `output` assumes do not stay.
        let mut command = sh("cat");
        command.output().unwrap();
        let child = command.stdin(Stdio::null()).spawn().unwrap();
        assert!(child.stdout.is_none() && child.stdin.is_none());
        assert!(child.wait_with_output().unwrap().stdout.is_empty());
    });
}

#[test]
fn a_child_is_talked_to() {
    both(|| {
        let mut child = Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        for i in 0..50 {
            writeln!(stdin, "line {i}").unwrap();
            assert_eq!(lines.next().unwrap().unwrap(), format!("line {i}"));
        }
        // Waiting closes the input that was not taken; this one was.
        drop(stdin);
        assert!(child.wait().unwrap().success());
        assert!(lines.next().is_none());

        let mut child = Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        assert!(child.wait().unwrap().success());
        assert!(child.stdin.is_none());

        // One's output is the other's input.
        let mut first = sh("echo one; echo two")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = sh("cat; echo three")
            .stdin(first.stdout.take().unwrap())
            .output()
            .unwrap();
        assert_eq!(output.stdout, b"one\ntwo\nthree\n");
        assert!(first.wait().unwrap().success());
    });
}

#[test]
fn a_parked_wait_leaves_the_p_to_others() {
    util::run(1, || {
        let mut child = sh("read line; echo got $line")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let ended = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&ended);
        let waiter = spawn(move || {
            let output = child.wait_with_output().unwrap();
            flag.store(true, Ordering::SeqCst);
            output
        });
        windlass::sleep(SHORT);
        assert!(!ended.load(Ordering::SeqCst));
        stdin.write_all(b"it\n").unwrap();
        assert_eq!(waiter.join().unwrap().stdout, b"got it\n");
    });
}

#[test]
fn many_children_each_have_their_own_end() {
    util::run(2, || {
        let waiters: Vec<_> = (0..40)
            .map(|i| {
                spawn(move || {
                    let status = sh(&format!("exit {i}")).status().unwrap();
                    assert_eq!(status.code(), Some(i));
                })
            })
            .collect();
        // Someone else's child, started beside them: nobody takes its status.
        let mut other = std::process::Command::new("sh")
            .args(["-c", "exit 99"])
            .spawn()
            .unwrap();
        waiters.into_iter().for_each(|w| w.join().unwrap());
        assert_eq!(windlass::offload(|| other.wait()).unwrap().code(), Some(99));
    });
}

#[test]
fn a_command_is_set_up_as_std_does() {
    both(|| {
        let dir = TempDir::new();
        let mut command = sh("pwd; echo $A-$B-$0; env | grep -c . ");
        command
            .env_clear()
            .env("A", "1")
            .envs([("B", "2"), ("C", "3")])
            .env_remove("C");
        command.env("PATH", std::env::var_os("PATH").unwrap());
        command.current_dir(dir.path()).arg("zero");
        assert_eq!(command.get_program(), "sh");
        assert_eq!(command.get_args().count(), 3);
        assert_eq!(command.get_envs().filter(|(_, v)| v.is_some()).count(), 3);
        assert_eq!(command.get_current_dir(), Some(dir.path()));
        assert!(format!("{command:?}").contains("\"sh\""));
        let output = command.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let mut lines = text.lines();
        let here = std::fs::canonicalize(dir.path()).unwrap();
        assert_eq!(Path::new(lines.next().unwrap()), here);
        assert_eq!(lines.next(), Some("1-2-zero"));

        let mut child = Command::new("sleep")
            .arg("1000")
            .process_group(0)
            .spawn()
            .unwrap();
        let pid = child.id() as i32;
        // SAFETY: takes a plain integer.
        let group = unsafe { libc::getpgid(pid) };
        assert_eq!(group, pid);
        child.kill().unwrap();
        child.wait().unwrap();

        let to = File::create(dir.join("out")).unwrap();
        sh("echo to a file").stdout(to).status().unwrap();
        assert_eq!(std::fs::read(dir.join("out")).unwrap(), b"to a file\n");

        let mut command = sh("umask");
        // SAFETY: umask is async-signal-safe.
        unsafe {
            command.pre_exec(|| {
                libc::umask(0o27);
                Ok(())
            })
        };
        assert_eq!(command.output().unwrap().stdout, b"0027\n");
        // SAFETY: the closure does nothing.
        unsafe { command.pre_exec(|| Err(io::Error::from_raw_os_error(libc::EDOM))) };
        assert_eq!(
            command.spawn().unwrap_err().raw_os_error(),
            Some(libc::EDOM)
        );
        let ours = command.arg0("other").uid(0).gid(0).get_program().to_owned();
        assert_eq!(ours, "sh");
    });
}

#[test]
fn what_cannot_be_started_is_an_error_of_std() {
    both(|| {
        let mut std_command = std::process::Command::new("/no/such/program");
        let mut command = Command::new("/no/such/program");
        let (ours, theirs) = (
            command.spawn().unwrap_err(),
            std_command.spawn().unwrap_err(),
        );
        assert_eq!(ours.kind(), theirs.kind());
        assert_eq!(ours.to_string(), theirs.to_string());
        assert_eq!(command.output().unwrap_err().kind(), theirs.kind());
        assert_eq!(command.status().unwrap_err().kind(), theirs.kind());
        assert_eq!(command.exec().kind(), theirs.kind());
        let e = Command::new("sh").arg("a\0b").spawn().unwrap_err();
        assert_eq!(e.kind(), io::ErrorKind::InvalidInput);
        let e = Command::new("sh")
            .current_dir("/no/such/dir")
            .spawn()
            .unwrap_err();
        assert_eq!(e.kind(), io::ErrorKind::NotFound);
    });
}

/// Neither descriptors nor what was done to the threads: a child sees what one sees that was
/// started before there was a runtime. A process of its own, whose descriptors nobody else
/// opens meanwhile.
#[test]
fn a_child_inherits_nothing_of_the_runtime() {
    if util::child_case().is_none() {
        util::child_passes("a_child_inherits_nothing_of_the_runtime", "inherit");
        return;
    }
    let report = "ls /proc/self/fd; nproc; cut -d ' ' -f 18,19 /proc/self/stat; \
                  grep -E '^(Sig(Blk|Ign|Cgt)|Cpus_allowed_list):' /proc/self/status";
    let mut plain = std::process::Command::new("sh");
    let before = plain.args(["-c", report]).output().unwrap();
    assert!(before.status.success() && before.stdout.len() > 50);
    util::runtime(2).run(|| {
        // Beside rings: sockets, files, pipes and pidfds.
        let listener = windlass::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let file = File::open("/proc/self/status").unwrap();
        let mut waiting = sh("read line").stdin(Stdio::piped()).spawn().unwrap();
        let signals = windlass::signal::Signals::new([libc::SIGUSR1]).unwrap();
        let stdin = waiting.stdin.take().unwrap();
        let waiter = spawn(move || waiting.wait().unwrap());
        yield_now();
        for _ in 0..3 {
            let after = sh(report).output().unwrap();
            assert_eq!(
                String::from_utf8(after.stdout).unwrap(),
                String::from_utf8(before.stdout.clone()).unwrap()
            );
        }
        drop((listener, file, signals, stdin));
        waiter.join().unwrap();
    });
}

/// A process that a goroutine starts may run wherever the process may, though its own thread is pinned.
#[test]
fn threads_and_children_of_std_are_not_pinned() {
    use std::os::unix::process::CommandExt;
    use std::process::Command;
    use std::thread;

    let all = util::affinity();
    if all.len() < 2 {
        eprintln!("not tested: there is one CPU only");
        return;
    }
    let n = thread::available_parallelism().unwrap();
    let of_child = |command: &mut Command| {
        let command = command.args(["Cpus_allowed_list", "/proc/self/status"]);
        let output = command.output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let grep = || Command::new("grep");
    let expected = of_child(&mut grep());
    assert!(expected.contains("Cpus_allowed_list"), "{expected}");
    util::run(2, || {
        for _ in 0..20 {
            assert_eq!(util::affinity().len(), 1, "the thread itself is pinned");
            assert_eq!(thread::available_parallelism().unwrap(), n);
            let threads: Vec<_> = (0..3).map(|_| thread::spawn(util::affinity)).collect();
            for thread in threads {
                let there = windlass::blocking(|| thread.join()).unwrap();
                assert_eq!(there, all);
            }
            // By posix_spawn, and by fork.
            assert_eq!(windlass::blocking(|| of_child(&mut grep())), expected);
            let mut command = grep();
            // SAFETY: the function does nothing.
            unsafe { command.pre_exec(|| Ok(())) };
            assert_eq!(windlass::blocking(|| of_child(&mut command)), expected);
            yield_now();
        }
        // A mask that a goroutine chooses for its own thread is inherited, and told.
        let _lock = windlass::task::lock_thread();
        let here = util::affinity();
        let other = *all.iter().find(|cpu| !here.contains(cpu)).unwrap();
        util::pin(&[other]);
        let there = thread::spawn(util::affinity);
        assert_eq!(windlass::blocking(|| there.join()).unwrap(), [other]);
        assert_eq!(thread::available_parallelism().unwrap().get(), 1);
    });
    assert_eq!(util::affinity(), all);
}

/// As above, for the functions of libc that start a process behind those that others call.
#[test]
fn children_of_libc_are_not_pinned() {
    use std::ffi::{CString, c_char, c_int};

    const TELL: &str = "exec grep Cpus_allowed_list /proc/self/status";

    fn popen() -> String {
        let command = CString::new(TELL).unwrap();
        let mut text = vec![0; 4096];
        // SAFETY: the strings end with a zero byte, the buffer is as long as said, and the stream
        // is closed once.
        let n = unsafe {
            let stream = libc::popen(command.as_ptr(), c"r".as_ptr());
            assert!(!stream.is_null());
            let n = libc::fread(text.as_mut_ptr().cast(), 1, text.len(), stream);
            assert_eq!(libc::pclose(stream), 0);
            n
        };
        text.truncate(n);
        String::from_utf8(text).unwrap()
    }

    fn system() -> String {
        let dir = TempDir::new();
        let path = dir.join("mask");
        let command = CString::new(format!("{TELL} > {}", path.display())).unwrap();
        // SAFETY: the string ends with a zero byte.
        assert_eq!(unsafe { libc::system(command.as_ptr()) }, 0);
        std::fs::read_to_string(path).unwrap()
    }

    /// `None` where libc does not have it.
    fn pidfd_spawn() -> Option<String> {
        #[cfg(all(feature = "unpinned-children", target_env = "gnu"))]
        // As in libc; here the wrapper of the runtime is called.
        unsafe extern "C" {
            fn pidfd_spawnp(
                pidfd: *mut c_int,
                path: *const c_char,
                actions: *const libc::posix_spawn_file_actions_t,
                attr: *const libc::posix_spawnattr_t,
                argv: *const *const c_char,
                envp: *const *const c_char,
            ) -> c_int;
        }
        #[cfg(not(all(feature = "unpinned-children", target_env = "gnu")))]
        let pidfd_spawnp = |_: *mut c_int, _, _, _, _, _| libc::ENOSYS;
        let dir = TempDir::new();
        let path = dir.join("mask");
        let command = CString::new(format!("{TELL} > {}", path.display())).unwrap();
        let argv: [*const c_char; 4] = [
            c"sh".as_ptr(),
            c"-c".as_ptr(),
            command.as_ptr(),
            std::ptr::null(),
        ];
        let envp = [c"PATH=/usr/bin:/bin".as_ptr(), std::ptr::null()];
        let (mut pidfd, null) = (-1, std::ptr::null());
        let (actions, attr) = (null, std::ptr::null());
        let (argv, envp) = (argv.as_ptr(), envp.as_ptr());
        // SAFETY: all strings end with a zero byte, both lists with a null pointer.
        let r = unsafe { pidfd_spawnp(&raw mut pidfd, c"sh".as_ptr(), actions, attr, argv, envp) };
        if r == libc::ENOSYS {
            return None;
        }
        assert_eq!(r, 0);
        // SAFETY: the descriptor was given just now; the structure may be all zeros.
        unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let options = libc::WEXITED;
            let r = libc::waitid(libc::P_PIDFD, pidfd as u32, &raw mut info, options);
            assert_eq!((r, info.si_status()), (0, 0));
            libc::close(pidfd);
        }
        Some(std::fs::read_to_string(path).unwrap())
    }

    if util::affinity().len() < 2 {
        eprintln!("not tested: there is one CPU only");
        return;
    }
    let expected = popen();
    assert!(expected.contains("Cpus_allowed_list"), "{expected}");
    assert_eq!(system(), expected);
    util::run(2, || {
        for _ in 0..5 {
            assert_eq!(util::affinity().len(), 1, "the thread itself is pinned");
            assert_eq!(popen(), expected);
            assert_eq!(windlass::blocking(popen), expected);
            assert_eq!(system(), expected);
            assert_eq!(windlass::blocking(system), expected);
            match pidfd_spawn() {
                Some(mask) => assert_eq!(mask, expected),
                None => eprintln!("not tested: libc has no pidfd_spawn"),
            }
            yield_now();
        }
    });
}

/// The state that a program finds which a goroutine starts or becomes: the CPUs, the timer slack and the time slice
/// that it would have without a runtime.
#[test]
fn programs_inherit_nothing_of_the_thread() {
    use std::os::unix::process::CommandExt;

    const NAME: &str = "programs_inherit_nothing_of_the_thread";
    const WAYS: [&str; 17] = [
        "std",
        "fork",
        "posix_spawn",
        "popen",
        "system",
        "windlass",
        "windlass-exec",
        "std-exec",
        "execv",
        "execve",
        "execvp",
        "execvpe",
        "fexecve",
        "execveat",
        "failed",
        "vfork",
        "thread",
    ];
    let Some(way) = util::child_case() else {
        let (plain, _) = shown_by(std::process::Command::new("sh").args(["-c", REPORT]));
        assert!(
            plain.contains("Cpus_allowed_list") && plain.lines().count() >= 2,
            "{plain}"
        );
        for way in WAYS {
            let (shown, all) = shown_by(&mut util::child_command(NAME, way));
            assert_eq!(shown, plain, "{way}: {all}");
        }
        return;
    };
    util::runtime(2).run(|| {
        // By a thread of the runtime, which has a short slice, as well as by the first one.
        if way.len() % 2 == 0 {
            let other = windlass::spawn(move || start(&way));
            // The first thread is busy.
            while !other.is_finished() {
                std::hint::spin_loop();
            }
            other.join().unwrap();
        } else {
            start(&way);
        }
    });

    fn start(way: &str) {
        windlass::sleep(Duration::from_millis(2));
        let mut command = std::process::Command::new("sh");
        command.args(["-c", REPORT]);
        let argv = [
            c"sh".as_ptr(),
            c"-c".as_ptr(),
            C_REPORT.as_ptr(),
            std::ptr::null(),
        ];
        let envp = [c"PATH=/usr/bin:/bin".as_ptr(), std::ptr::null()];
        let (argv, envp, sh) = (argv.as_ptr(), envp.as_ptr(), c"/bin/sh".as_ptr());
        let path = libc::O_PATH;
        // SAFETY: all strings end with a zero byte, all lists with a null pointer; the functions in
        // children do nothing but what is allowed there.
        unsafe {
            match way {
                "std" => drop(command.status().unwrap()),
                "fork" => drop(command.pre_exec(|| Ok(())).status().unwrap()),
                "posix_spawn" => {
                    let (mut child, argv, envp) = (0, argv.cast(), envp.cast());
                    let (none, no_attr) = (std::ptr::null(), std::ptr::null());
                    let r = libc::posix_spawn(&raw mut child, sh, none, no_attr, argv, envp);
                    assert_eq!(r, 0);
                    libc::waitpid(child, std::ptr::null_mut(), 0);
                }
                "popen" => {
                    let stream = libc::popen(C_REPORT.as_ptr(), c"w".as_ptr());
                    assert_eq!(libc::pclose(stream), 0);
                }
                "system" => assert_eq!(libc::system(C_REPORT.as_ptr()), 0),
                "windlass" => {
                    let mut command = Command::new("sh");
                    command.args(["-c", REPORT]).status().unwrap();
                }
                "windlass-exec" => panic!("{}", Command::new("sh").args(["-c", REPORT]).exec()),
                "std-exec" => panic!("{}", command.exec()),
                "execv" => assert_eq!(libc::execv(sh, argv), 0),
                "execve" => assert_eq!(libc::execve(sh, argv, envp), 0),
                "execvp" => assert_eq!(libc::execvp(c"sh".as_ptr(), argv), 0),
                "execvpe" => assert_eq!(libc::execvpe(c"sh".as_ptr(), argv, envp), 0),
                "fexecve" => assert_eq!(libc::fexecve(libc::open(sh, path), argv, envp), 0),
                "execveat" => {
                    let r = libc::execveat(libc::AT_FDCWD, sh, argv.cast(), envp.cast(), 0);
                    assert_eq!(r, 0);
                }
                "failed" => {
                    // The thread is the runtime's again, and the error is the call's.
                    let own = (util::affinity(), slack(), slice());
                    let r = libc::execvp(c"/no/such/program".as_ptr(), argv);
                    let e = io::Error::last_os_error();
                    assert_eq!((r, e.kind()), (-1, io::ErrorKind::NotFound));
                    assert_eq!((util::affinity(), slack(), slice()), own);
                    assert_eq!(slack(), 1);
                    command.status().unwrap();
                }
                "vfork" => {
                    #[allow(deprecated, reason = "programs call it")]
                    let child = libc::vfork();
                    if child == 0 {
                        libc::execve(sh, argv, envp);
                        libc::_exit(1);
                    }
                    libc::waitpid(child, std::ptr::null_mut(), 0);
                    // The parent goes on as before.
                    assert_eq!(slack(), 1);
                    command.status().unwrap();
                }
                "thread" => {
                    // A thread that a goroutine starts, and what that one starts.
                    let thread = std::thread::spawn(move || command.status());
                    windlass::blocking(|| thread.join()).unwrap().unwrap();
                }
                _ => unreachable!("{way}"),
            }
        }
    }
}

const C_REPORT: &std::ffi::CStr = c"echo; grep Cpus_allowed_list /proc/self/status; \
    echo slack $(cat /proc/$$/timerslack_ns); grep -E 'se.slice|^policy' /proc/$$/sched; true";
const REPORT: &str = match C_REPORT.to_str() {
    Ok(report) => report,
    Err(_) => unreachable!(),
};

/// The lines that a command shows of a report, without repetitions; and all that it shows.
fn shown_by(command: &mut std::process::Command) -> (String, String) {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let reported = ["Cpus_allowed_list", "slack ", "se.slice", "policy "];
    let mut lines: Vec<_> = text
        .lines()
        .filter(|line| reported.iter().any(|start| line.starts_with(start)))
        .collect();
    lines.sort_unstable();
    lines.dedup();
    let all = format!("{text}{}", String::from_utf8_lossy(&output.stderr));
    (lines.join("\n"), all)
}

/// The timer slack of the calling thread.
fn slack() -> i32 {
    // SAFETY: takes a plain number.
    unsafe { libc::prctl(libc::PR_GET_TIMERSLACK) }
}

/// The time slice of the calling thread; 0 before Linux 6.12.
fn slice() -> u64 {
    let mut own = std::mem::MaybeUninit::<libc::sched_attr>::zeroed();
    let size = size_of::<libc::sched_attr>();
    // SAFETY: the place for the answer is as long as the call says, and may be all zeros.
    unsafe {
        libc::syscall(libc::SYS_sched_getattr, 0, own.as_mut_ptr(), size, 0);
        own.assume_init().sched_runtime
    }
}

/// An allocator that asks on how many CPUs the thread may run, where it is told to.
struct Asks;

thread_local! {
    static ASKS: Cell<bool> = const { Cell::new(false) };
    static IS_ASKING: Cell<bool> = const { Cell::new(false) };
    static N_ASKED_WHILE_ASKING: Cell<u32> = const { Cell::new(0) };
}

// SAFETY: it is the system's; on the way it calls a function that allocates nothing.
unsafe impl GlobalAlloc for Asks {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if ASKS.get() && IS_ASKING.get() {
            N_ASKED_WHILE_ASKING.set(N_ASKED_WHILE_ASKING.get() + 1);
        } else if ASKS.get() {
            IS_ASKING.set(true);
            // SAFETY: the set is valid for a write of its size.
            unsafe {
                let mut set: libc::cpu_set_t = std::mem::zeroed();
                libc::sched_getaffinity(0, size_of_val(&set), &raw mut set);
            }
            IS_ASKING.set(false);
        }
        // SAFETY: by the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: by the caller's contract.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Asks = Asks;

/// An allocator may ask for its CPUs, and must not be asked for memory then.
#[test]
fn asking_for_the_cpus_allocates_nothing() {
    util::run(1, || {
        ASKS.set(true);
        let something = std::hint::black_box(Box::new(1_u64));
        // SAFETY: the child makes one system call only.
        let child = unsafe {
            IS_ASKING.set(true);
            let child = libc::fork();
            if child == 0 {
                libc::_exit(0);
            }
            child
        };
        IS_ASKING.set(false);
        ASKS.set(false);
        // Here, on the thread that has counted.
        let n_asked = N_ASKED_WHILE_ASKING.get();
        drop(something);
        // SAFETY: a child of this process that nobody else waits for.
        let ended = windlass::blocking(|| unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) });
        assert_eq!(ended, child);
        assert_eq!(n_asked, 0);
    });
}

/// A program may have two versions of this crate: then each has the symbols that wrap libc's, and
/// the linker takes one of two only if they are weak.
#[test]
fn symbols_of_the_program_are_weak() {
    const NAMES: [&str; 6] = [
        "pthread_create",
        "posix_spawn",
        "posix_spawnp",
        "execvp",
        "sched_getaffinity",
        "windlass_interceptor",
    ];
    let program = std::env::current_exe().unwrap();
    let entries = std::fs::read_dir(program.parent().unwrap()).unwrap();
    let libraries = entries.flatten().filter(|entry| {
        let name = entry.file_name().into_string().unwrap_or_default();
        name.starts_with("libwindlass_sys-") && name.ends_with(".rlib")
    });
    // Others were built from older sources, or for link-time optimisation, without symbols.
    let mut libraries: Vec<_> = libraries.collect();
    libraries.sort_by_key(|entry| entry.metadata().unwrap().modified().unwrap());
    let mut lists = libraries.iter().rev().filter_map(|library| {
        let nm = std::process::Command::new("nm")
            .arg(library.path())
            .output();
        let listed = String::from_utf8_lossy(&nm.ok()?.stdout).into_owned();
        // Functions are in its text section, whatever their names.
        listed.contains(" T ").then_some(listed)
    });
    let Some(listed) = lists.next() else {
        eprintln!("not tested: there is no library with symbols, or no nm");
        return;
    };
    let mut n_found = 0;
    for line in listed.lines() {
        let mut fields = line.split_whitespace().rev();
        let (name, kind) = (fields.next().unwrap_or(""), fields.next().unwrap_or(""));
        if NAMES.contains(&name) && kind != "U" {
            assert!(["V", "W"].contains(&kind), "{line}");
            n_found += 1;
        }
    }
    assert!(
        cfg!(not(target_env = "gnu")) || n_found == NAMES.len(),
        "{n_found}"
    );
}

/// A process that forks and does not begin another program: the child has no ring to
/// disturb, and the parent's goes on. In a process of its own, where no other runtime begins meanwhile: for a moment a
/// new ring is one that a child would inherit.
#[test]
fn a_fork_without_exec_disturbs_nobody() {
    if util::child_case().is_none() {
        util::child_passes("a_fork_without_exec_disturbs_nobody", "");
        return;
    }
    let _guard = util::hang_guard();
    let ask = |stream: &mut UnixStream, byte: u8| {
        stream.write_all(&[byte]).unwrap();
        let mut got = [0];
        stream.read_exact(&mut got).unwrap();
        assert_eq!(got, [byte]);
    };
    let runtime = util::runtime(2);
    let is_ring = runtime.metrics().poller == windlass::metrics::Poller::IoUring;
    runtime.run(|| {
        let (mut here, mut there) = UnixStream::pair().unwrap();
        let echo = spawn(move || {
            let mut byte = [0];
            while there.read(&mut byte).unwrap() > 0 {
                there.write_all(&byte).unwrap();
            }
        });
        ask(&mut here, 1);
        // SAFETY: the child makes system calls only.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: takes plain numbers; the child waits for its end, at most so long.
            unsafe {
                libc::alarm(60);
                loop {
                    libc::pause();
                }
            }
        }
        let maps = |pid: &str| std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
        assert!(!is_ring || maps("self").contains("[io_uring]"));
        assert!(!maps(&child.to_string()).contains("[io_uring]"));
        ask(&mut here, 2);
        // A program of somebody else's, which std starts, gets nothing, either.
        let listed = windlass::blocking(|| {
            let mut ls = std::process::Command::new("ls");
            ls.args(["-l", "/proc/self/fd"]).output().unwrap()
        });
        let listed = String::from_utf8(listed.stdout).unwrap();
        assert!(
            listed.contains("/proc/") && !listed.contains("anon_inode"),
            "{listed}"
        );
        // SAFETY: plain numbers, and a child of this process that nobody else waits for.
        let ended = windlass::blocking(|| unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, std::ptr::null_mut(), 0)
        });
        assert_eq!(ended, child);
        ask(&mut here, 3);
        drop(here);
        echo.join().unwrap();
    });
}

#[test]
fn pipes_have_deadlines_as_files_and_go_back_to_std() {
    both(|| {
        let mut child = sh("read line; echo $line")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = File::from(child.stdout.take().unwrap());
        stdout.set_read_deadline(Some(Instant::now() + SHORT));
        let e = stdout.read(&mut [0; 1]).unwrap_err();
        assert_eq!(e.kind(), io::ErrorKind::WouldBlock);
        stdout.set_read_deadline(None);
        child.stdin.take().unwrap().write_all(b"x\n").unwrap();
        let mut stdout = ChildStdout::from(OwnedFd::from(stdout));
        let mut text = String::new();
        stdout.read_to_string(&mut text).unwrap();
        assert_eq!(text, "x\n");
        child.wait().unwrap();

        let child = sh("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut child = std::process::Child::from(child);
        child.stdin.take().unwrap().write_all(b"std").unwrap();
        assert_eq!(child.wait_with_output().unwrap().stdout, b"std");
    });
}

#[test]
fn an_output_in_non_blocking_mode_is_read_to_its_end() {
    both(|| {
        let mut child = sh("sleep 0.02; echo out")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (reader, mut writer) = io::pipe().unwrap();
        // SAFETY: takes a descriptor and plain numbers.
        unsafe { libc::fcntl(reader.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
        child.stderr = Some(ChildStderr::from(OwnedFd::from(reader)));
        let late = std::thread::spawn(move || {
            std::thread::sleep(2 * SHORT);
            writer.write_all(b"err")
        });
        let output = child.wait_with_output().unwrap();
        assert_eq!(
            (&*output.stdout, &*output.stderr),
            (&b"out\n"[..], &b"err"[..])
        );
        windlass::blocking(|| late.join()).unwrap().unwrap();
    });
}

#[test]
fn commands_and_children_of_std_are_taken_over() {
    both(|| {
        let mut command = std::process::Command::new("sh");
        command
            .args(["-c", "cat; echo $A; echo err >&2"])
            .env("A", "1");
        let mut command = Command::from(command);
        // A setting that `std` was not given is that of `output`.
        let output = command.output().unwrap();
        assert_eq!(
            (&*output.stdout, &*output.stderr),
            (&b"1\n"[..], &b"err\n"[..])
        );
        command.env("A", "2").stderr(Stdio::null());
        let output = command.output().unwrap();
        assert_eq!((&*output.stdout, &*output.stderr), (&b"2\n"[..], &b""[..]));
        let mut command = std::process::Command::new("cat");
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        let mut command = Command::from(command);
        let output = command.output().unwrap();
        assert_eq!(output.stdout, b"");
        let mut child = command.spawn().unwrap();
        drop(child.stdin.take().unwrap());
        assert!(child.stdout.is_none());
        assert!(child.wait().unwrap().success());

        let mut child = std::process::Command::new("cat");
        child.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = windlass::process::Child::from(child.spawn().unwrap());
        child.stdin.take().unwrap().write_all(b"hello").unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(
            (output.status.code(), &*output.stdout),
            (Some(0), &b"hello"[..])
        );
        // One that `std` has waited for.
        let mut child = std::process::Command::new("sh");
        let mut child = child.args(["-c", "exit 7"]).spawn().unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(7));
        let mut child = windlass::process::Child::from(child);
        assert_eq!(child.wait().unwrap().code(), Some(7));
        // Its pipes go back to `std` and come again.
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let stdin = std::process::ChildStdin::from(child.stdin.take().unwrap());
        drop(windlass::process::ChildStdin::from(stdin));
        assert!(child.wait().unwrap().success());
    });
}

#[test]
fn a_run_ends_with_waits_for_children() {
    let _guard = util::hang_guard();
    let census = util::Census::default();
    let mut pids = Vec::new();
    util::runtime(2).run(|| {
        for _ in 0..4 {
            let mut child = Command::new("sleep")
                .arg("1000")
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            pids.push(child.id() as i32);
            let member = census.member();
            spawn(move || {
                let _member = member;
                drop(child.wait());
                unreachable!("the child sleeps");
            });
        }
        yield_now();
        windlass::sleep(SHORT);
    });
    census.assert_all_dropped(4);
    for pid in pids {
        // Still there, and ours.
        // SAFETY: the children of this test, which nobody has waited for.
        unsafe {
            assert_eq!(libc::kill(pid, libc::SIGKILL), 0);
            assert_eq!(libc::waitpid(pid, std::ptr::null_mut(), 0), pid);
        }
    }
}

/// Needs a process of its own: what it does to SIGCHLD is the process's.
#[test]
fn without_a_status_to_be_had_waiting_is_an_error() {
    if util::child_case().is_none() {
        util::child_passes("without_a_status_to_be_had_waiting_is_an_error", "sigchld");
        return;
    }
    both(|| {
        // SAFETY: no handler, only the wish that the kernel reaps.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
        let mut child = sh("read line").stdin(Stdio::piped()).spawn().unwrap();
        let e = child.wait().unwrap_err();
        assert_eq!(e.raw_os_error(), Some(libc::ECHILD));
        // SAFETY: the default again.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    });
}

/// Whether the process exists, if only as a zombie.
fn exists(pid: u32) -> bool {
    // SAFETY: sends no signal.
    unsafe { libc::kill(pid as i32, 0) == 0 }
}

#[test]
fn a_child_is_killed_when_it_is_dropped() {
    both(|| {
        let mut command = sh("echo begun; exec sleep 1000");
        command.stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let (pid, mut stdout) = (child.id(), child.stdout.take().unwrap());
        stdout.read_exact(&mut [0; 6]).unwrap();
        drop(child);
        assert_eq!(
            stdout.read(&mut [0]).unwrap(),
            0,
            "it holds the pipe until it is dead"
        );
        // It does not stay a zombie: at the latest, the start of another child ends that.
        while exists(pid) {
            sh("exit 0").status().unwrap();
            yield_now();
        }
        // Nothing is killed that has ended, or was released, or is not to be killed any more.
        let mut child = command.spawn().unwrap();
        child.kill().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
        drop(child);
        let mut child = command.spawn().unwrap();
        child.kill_on_drop(false);
        // Its pipe stays open: what the child writes must not end it.
        let (pid, _stdout) = (child.id(), child.stdout.take());
        drop(child);
        assert!(exists(pid));
        // SAFETY: the child of this test, which nobody has waited for.
        unsafe {
            assert_eq!(libc::kill(pid as i32, libc::SIGTERM), 0);
            let mut status = 0;
            assert_eq!(libc::waitpid(pid as i32, &raw mut status, 0), pid as i32);
            assert_eq!(libc::WTERMSIG(status), libc::SIGTERM);
        }
        let mut child = std::process::Child::from(command.spawn().unwrap());
        let pid = child.id();
        assert!(exists(pid) && child.try_wait().unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
    });
}

#[test]
fn the_end_of_a_run_kills_children() {
    let _guard = util::hang_guard();
    let mut ends = util::runtime(2).run(|| {
        let (sender, receiver) = windlass::channel::unbounded();
        for waits in [false, true] {
            let sender = sender.clone();
            spawn(move || {
                let mut command = sh("exec sleep 1000");
                command.stdout(Stdio::piped()).kill_on_drop(true);
                let mut child = command.spawn().unwrap();
                sender.send(child.stdout.take().unwrap()).unwrap();
                match waits {
                    true => drop(child.wait()),
                    false => windlass::sleep(Duration::from_secs(1000)),
                }
            });
        }
        [receiver.recv().unwrap(), receiver.recv().unwrap()]
    });
    for end in &mut ends {
        assert_eq!(end.read(&mut [0]).unwrap(), 0);
    }
}

/// No handle is left to a child whose end a call awaits that takes it, or has started it.
#[test]
fn the_end_of_a_run_kills_children_to_which_it_leaves_no_handle() {
    let _guard = util::hang_guard();
    let mut readers = util::runtime(2).run(|| {
        [0, 1, 2].map(|way| {
            let (mut reader, stderr) = std::io::pipe().unwrap();
            spawn(move || {
                let mut command = sh("echo >&2; exec sleep 1000");
                command.stdout(Stdio::piped()).stderr(stderr);
                match way {
                    0 => drop(command.output()),
                    1 => drop(command.status()),
                    _ => drop(command.spawn().unwrap().wait_with_output()),
                }
            });
            windlass::blocking(|| reader.read_exact(&mut [0])).unwrap();
            reader
        })
    });
    for reader in &mut readers {
        assert_eq!(
            reader.read(&mut [0]).unwrap(),
            0,
            "it holds the pipe until it is dead"
        );
    }
}

/// On a goroutine, a plain thread, in a blocking section, and on a thread to which work is offloaded.
fn everywhere(test: impl Fn() + Send + Sync) {
    both(&test);
    util::run(1, || windlass::blocking(&test));
    util::run(1, || windlass::offload(&test));
}

/// The child ends at once, but another process holds its pipe.
#[test]
fn a_timeout_ends_the_wait_for_output_that_does_not_end() {
    everywhere(|| {
        let (stdin, writer) = std::io::pipe().unwrap();
        let mut command = sh("exec 3<&0; cat <&3 & echo hi; echo ho >&2");
        let late = timeout(SHORT, || command.stdin(stdin).output());
        assert!(matches!(late, Err(Elapsed { .. })), "{late:?}");
        // Now it ends.
        drop(writer);
    });
}

#[test]
fn a_child_whose_end_is_not_waited_for_is_killed_and_what_it_started_is_not() {
    everywhere(|| {
        for way in 0..3 {
            let (stdin, mut writer) = std::io::pipe().unwrap();
            let (reader, stderr) = windlass::io::pipe().unwrap();
            let mut command = sh("exec 3<&0; cat <&3 >&2 & echo $$ >&2; exec sleep 1000");
            command.stdin(stdin).stdout(Stdio::piped()).stderr(stderr);
            let (ctx, canceller) = Context::background().with_cancel();
            let cancels = std::thread::spawn(move || {
                let mut lines = BufReader::new(reader).lines();
                let pid: u32 = lines.next().unwrap().unwrap().parse().unwrap();
                canceller.cancel();
                (pid, lines)
            });
            let cut = ctx.run(|| match way {
                0 => command.output().map(drop),
                1 => command.status().map(drop),
                _ => command.spawn()?.wait_with_output().map(drop),
            });
            assert_eq!(cut.unwrap_err().kind(), io::ErrorKind::Other);
            drop(command);
            let (pid, mut lines) = windlass::blocking(|| cancels.join()).unwrap();
            // One that is killed on a plain thread is waited for when another is started.
            util::wait_until(|| sh("").status().unwrap().success() && !exists(pid));
            writer.write_all(b"still here\n").unwrap();
            assert_eq!(lines.next().unwrap().unwrap(), "still here");
            drop(writer);
            assert!(lines.next().is_none());
        }
    });
}

#[test]
fn nothing_is_started_when_there_is_no_time_to_wait_for_it() {
    everywhere(|| {
        let dir = TempDir::new();
        let made = dir.join("made");
        let mut command = Command::new("mkdir");
        command.arg(&made);
        assert!(timeout(Duration::ZERO, || command.output()).is_err());
        assert!(timeout(Duration::ZERO, || command.status()).is_err());
        assert!(!made.exists());
    });
}

/// A process that traces `pid`, until what it reads is at its end.
fn trace(pid: u32) -> (libc::pid_t, std::io::PipeWriter) {
    let (mut begun, tell) = std::io::pipe().unwrap();
    let (until, writer) = std::io::pipe().unwrap();
    // SAFETY: the child of a process with several threads makes system calls only.
    let tracer = unsafe { libc::fork() };
    if tracer == 0 {
        // SAFETY: as above; the descriptors are open, and the buffer is as long as said.
        unsafe {
            libc::close(writer.as_raw_fd());
            let nothing = std::ptr::null_mut::<u8>();
            let seized = libc::ptrace(libc::PTRACE_SEIZE, pid as libc::pid_t, nothing, nothing);
            let mut byte = [u8::from(seized == 0)];
            libc::write(tell.as_raw_fd(), byte.as_ptr().cast(), 1);
            libc::read(until.as_raw_fd(), byte.as_mut_ptr().cast(), 1);
            libc::_exit(0);
        }
    }
    let mut is_traced = [0];
    begun.read_exact(&mut is_traced).unwrap();
    assert_eq!(is_traced, [1], "the child could not be traced");
    (tracer, writer)
}

/// The kernel gives the status to a debugger first, and to the parent when the debugger has let go.
/// A process of its own, as the CPU time of all threads counts.
#[test]
fn a_child_that_a_debugger_keeps_is_waited_for_without_spinning() {
    const LONG: Duration = Duration::from_millis(500);
    if util::child_case().is_none() {
        util::child_passes(
            "a_child_that_a_debugger_keeps_is_waited_for_without_spinning",
            "",
        );
        return;
    }
    everywhere(|| {
        let mut command = Command::new("sleep");
        // SAFETY: a system call that takes plain integers.
        unsafe {
            command.arg("1000").pre_exec(|| {
                libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY);
                Ok(())
            })
        };
        let mut child = command.spawn().unwrap();
        let (tracer, until) = trace(child.id());
        child.kill().unwrap();
        let before = util::process_cpu();
        assert!(timeout(LONG, || child.wait()).is_err());
        let used = util::process_cpu() - before;
        assert!(used < LONG / 5, "{used:?}");
        drop(until);
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
        // SAFETY: a child of this process that nobody else waits for.
        unsafe { libc::waitpid(tracer, std::ptr::null_mut(), 0) };
    });
}

//! Calls of a goroutine that has locked its thread: they see what it has changed in the thread.
#![allow(unsafe_code)]

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::temp::TempDir;
use crate::util;
use windlass::fs::File;
use windlass::net::{UnixListener, UnixStream, lookup_host};
use windlass::process::Command;
use windlass::{spawn, task, yield_now};

/// Runs `test` on a goroutine with a thread of its own, which is in `dir`. Others keep its P busy.
fn with_own_directory(dir: &Path, test: impl FnOnce() + Send + 'static) {
    let _guard = util::hang_guard();
    let dir = dir.to_owned();
    util::runtime(1).run(|| {
        let stop = Arc::new(AtomicBool::new(false));
        let busy = [(); 3].map(|()| {
            let stop = Arc::clone(&stop);
            spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    yield_now();
                }
            })
        });
        let locked = spawn(move || {
            // The thread ends with the goroutine.
            std::mem::forget(task::lock_thread());
            // Before the change, so that the kernel has a thread for such calls.
            drop(File::open("/dev/zero").unwrap());
            // SAFETY: takes a plain number, and concerns this thread only.
            assert_eq!(unsafe { libc::unshare(libc::CLONE_FS) }, 0);
            std::env::set_current_dir(dir).unwrap();
            test();
        });
        let ended = locked.join();
        stop.store(true, Ordering::Relaxed);
        busy.into_iter().for_each(|one| one.join().unwrap());
        ended.unwrap();
    });
}

#[test]
fn connects_are_made_on_the_thread() {
    let dir = TempDir::new();
    let listener = UnixListener::bind(dir.join("socket")).unwrap();
    with_own_directory(dir.path(), move || {
        spawn(move || {
            while let Ok((mut stream, _)) = listener.accept() {
                stream.write_all(b"!").unwrap();
            }
        });
        for _ in 0..100 {
            let mut stream = UnixStream::connect("socket").unwrap();
            stream.read_exact(&mut [0]).unwrap();
        }
    });
}

#[test]
fn paths_are_those_of_the_thread() {
    let dir = TempDir::new();
    fs::create_dir_all(dir.join("all/of/it")).unwrap();
    symlink("/dev/zero", dir.join("device")).unwrap();
    let all = dir.join("all");
    with_own_directory(dir.path(), || {
        for _ in 0..20 {
            let mut byte = [1];
            File::open("device").unwrap().read_exact(&mut byte).unwrap();
            assert_eq!(byte, [0]);
        }
        windlass::fs::remove_dir_all("all").unwrap();
    });
    assert!(!all.exists());
}

#[test]
fn names_are_looked_up_from_the_thread() {
    let dir = TempDir::new();
    fs::create_dir(dir.join("etc")).unwrap();
    fs::write(dir.join("etc/hosts"), "127.0.0.9 only-inside\n").unwrap();
    fs::write(dir.join("etc/nsswitch.conf"), "hosts: files\n").unwrap();
    with_own_directory(dir.path(), || {
        // SAFETY: the path ends with a zero byte.
        if unsafe { libc::chroot(c".".as_ptr()) } != 0 {
            eprintln!("not tested: chroot is denied");
            return;
        }
        let found = lookup_host("only-inside:80").unwrap();
        assert!(found.eq([([127, 0, 0, 9], 80).into()]));
    });
}

#[test]
fn children_have_the_state_of_the_thread() {
    const NAME: &str = "locked_thread::children_have_the_state_of_the_thread";
    let text = |output: Output| String::from_utf8(output.stdout).unwrap();
    let dir = TempDir::new();
    if util::child_case().is_some() {
        with_own_directory(Path::new("/proc"), || {
            panic!("{}", Command::new("pwd").exec());
        });
    }
    let shown = text(util::child_command(NAME, "exec").output().unwrap());
    assert!(shown.ends_with("/proc\n"), "{shown}");

    let path = dir.path().canonicalize().unwrap();
    with_own_directory(dir.path(), move || {
        // SAFETY: the set is initialised before it is used, and the mask is this thread's own.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigaddset(&raw mut set, libc::SIGUSR1);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        }
        let mut mask = std::process::Command::new("grep");
        mask.args(["SigBlk", "/proc/self/status"]);
        let expected = format!("SigBlk:\t{:016x}\n", 1 << (libc::SIGUSR1 - 1));
        assert_eq!(text(Command::from(mask).output().unwrap()), expected);
        let mut mask = Command::new("grep");
        mask.args(["SigBlk", "/proc/self/status"]);
        assert_eq!(text(mask.output().unwrap()), expected);
        let here = text(Command::new("pwd").output().unwrap());
        assert_eq!(Path::new(here.trim_end()), path);
    });
}

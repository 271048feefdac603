//! Callers that are left out. Each test counts the waits of goroutines that parked, on a runtime of its own.
#![allow(unsafe_code)]

use std::ffi::{CString, c_char, c_int};
use std::io::{self, PipeReader, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::process::Command;
use std::thread;
use std::time::Duration;

/// Runs `f` as the first goroutine of a runtime with one P.
fn run<T: Send>(f: impl FnOnce() -> T + Send) -> T {
    // SAFETY: the goroutines of these tests keep nothing of a thread across a call that waits.
    let rt = unsafe {
        windlass_hook::install();
        windlass::Builder::new().processors(1).build().unwrap()
    };
    rt.run(f)
}

/// A pipe into which a plain thread writes once its reader has most likely begun to wait.
fn late_pipe() -> PipeReader {
    let (reader, mut writer) = io::pipe().unwrap();
    drop(thread::spawn(move || {
        thread::sleep(Duration::from_millis(20));
        writer.write_all(b"!").unwrap();
    }));
    reader
}

/// How often `f` has parked its goroutine.
fn parks(f: impl FnOnce()) -> u64 {
    let handle = windlass::Handle::current();
    let before = handle.metrics().total().parks;
    f();
    handle.metrics().total().parks - before
}

fn reads(mut reader: impl Read) {
    assert_eq!(reader.read(&mut [0; 8]).unwrap(), 1);
}

#[test]
fn nothing_parks_while_it_is_paused() {
    run(|| {
        assert_ne!(parks(|| reads(late_pipe())), 0);
        let all = || {
            reads(late_pipe());
            thread::sleep(Duration::from_millis(1));
            let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            let time = Some(Duration::from_millis(1));
            socket.set_read_timeout(time).unwrap();
            socket.recv(&mut [0; 8]).unwrap_err();
        };
        assert_eq!(parks(|| windlass_hook::paused(all)), 0);
        // Nested, and after a panic.
        windlass_hook::paused(|| {
            let panics = || windlass_hook::paused(|| panic!("as planned"));
            std::panic::catch_unwind(panics).unwrap_err();
            assert_eq!(parks(|| reads(late_pipe())), 0);
        });
        assert_ne!(parks(|| reads(late_pipe())), 0);
    });
}

/// The pause is the goroutine's: it goes with it to other threads, and concerns no other goroutine.
#[test]
fn a_pause_belongs_to_its_goroutine() {
    run(|| {
        windlass_hook::paused(|| {
            let (mut reader, mut writer) = io::pipe().unwrap();
            // On the only P: the writer runs because the reader parks.
            let reads = windlass::spawn(move || reader.read(&mut [0; 8]).unwrap());
            let writes = windlass::spawn(move || {
                // Both have begun: neither is paused, although their spawner is.
                windlass::yield_now();
                writer.write_all(b"!").unwrap();
            });
            // windlass's own waits park.
            assert_ne!(parks(|| windlass::sleep(Duration::from_millis(1))), 0);
            assert_eq!(reads.join().unwrap(), 1);
            writes.join().unwrap();
        });
        let many: Vec<_> = (0..1000)
            .map(|_| windlass::spawn(|| windlass_hook::paused(windlass::yield_now)))
            .collect();
        many.into_iter().for_each(|one| one.join().unwrap());
        assert_ne!(parks(|| reads(late_pipe())), 0);
    });
    // On a plain thread it is a call.
    assert_eq!(windlass_hook::paused(|| 7), 7);
}

/// A library in C that reads, by its own call of libc.
fn library(folder: &std::path::Path, name: &str) -> Option<extern "C" fn(RawFd) -> c_int> {
    let (source, library) = (folder.join("reads.c"), folder.join(name));
    let text = "#include <unistd.h>\nint reads(int fd) { char c; return (int) read(fd, &c, 1); }\n";
    std::fs::write(&source, text).unwrap();
    // Resolved and sealed when it is loaded, as distributions build.
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-O1", "-Wl,-z,relro,-z,now", "-o"])
        .args([&library, &source]);
    match cc.status() {
        Ok(status) => assert!(status.success()),
        Err(e) => {
            eprintln!("SKIPPED: no C compiler: {e}");
            return None;
        }
    }
    let path = CString::new(library.to_str().unwrap()).unwrap();
    // SAFETY: the library has no initialiser, and a function of this type under this name.
    unsafe {
        let handle = libc::dlopen(path.as_ptr(), libc::RTLD_NOW);
        assert!(!handle.is_null());
        let name: *const c_char = c"reads".as_ptr();
        let function = libc::dlsym(handle, name);
        assert!(!function.is_null());
        Some(std::mem::transmute::<
            *mut libc::c_void,
            extern "C" fn(RawFd) -> c_int,
        >(function))
    }
}

#[test]
fn a_library_is_left_out() {
    let folder = std::env::temp_dir().join(format!("windlass-left-out-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let loaded = library(&folder, "libleftout.so.3");
    std::fs::remove_dir_all(&folder).unwrap();
    let Some(reads_in_c) = loaded else { return };
    run(move || {
        let by_library = || {
            let reader = late_pipe();
            assert_eq!(reads_in_c(reader.as_raw_fd()), 1);
        };
        assert_ne!(parks(by_library), 0);
        let e = windlass_hook::leave_out("libleft.so").unwrap_err();
        assert_eq!(e.kind(), io::ErrorKind::NotFound);
        assert_eq!(windlass_hook::leave_out("libleftout.so").unwrap(), 1);
        assert_eq!(parks(by_library), 0);
        // Others are as before.
        assert_ne!(parks(|| reads(late_pipe())), 0);
    });
}

//! A file system whose server stops when it is asked to: as much of FUSE's protocol as one
//! file takes.

#![allow(unsafe_code)]

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender};

const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const SETATTR: u32 = 4;
const OPEN: u32 = 14;
pub(crate) const READ: u32 = 15;
pub(crate) const WRITE: u32 = 16;
const RELEASE: u32 = 18;
pub(crate) const FLUSH: u32 = 25;
const INIT: u32 = 26;
const INTERRUPT: u32 = 36;
const BATCH_FORGET: u32 = 42;

const ROOT: u64 = 1;
const FILE: u64 = 2;

/// Mounts the file system at `dir`, which only the calling thread and those that it starts see.
///
/// # Errors
///
/// Where the process may not do that.
pub(crate) fn mount(dir: &Path) -> io::Result<File> {
    let fuse = File::options().read(true).write(true).open("/dev/fuse")?;
    let dir = CString::new(dir.to_str().unwrap()).unwrap();
    let options = format!(
        "fd={},rootmode=40000,user_id=0,group_id=0",
        fuse.as_raw_fd()
    );
    let options = CString::new(options).unwrap();
    let (name, none) = (c"fuse", std::ptr::null());
    // SAFETY: all strings are valid; the new namespace is the calling thread's alone.
    unsafe {
        if libc::unshare(libc::CLONE_NEWNS) != 0
            || libc::mount(
                none,
                c"/".as_ptr(),
                none,
                libc::MS_REC | libc::MS_PRIVATE,
                none.cast(),
            ) != 0
            || libc::mount(
                name.as_ptr(),
                dir.as_ptr(),
                name.as_ptr(),
                0,
                options.as_ptr().cast(),
            ) != 0
        {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(fuse)
}

/// Ends what [`mount`] began.
pub(crate) fn unmount(dir: &Path) {
    let dir = CString::new(dir.to_str().unwrap()).unwrap();
    // SAFETY: the path is a valid string.
    let r = unsafe { libc::umount2(dir.as_ptr(), libc::MNT_DETACH) };
    assert_eq!(r, 0, "{}", io::Error::last_os_error());
}

/// Answers until the file system is gone. The file "slow" makes it stop: it says so to
/// `stopped`, with the request's number, and waits for `go`. "file" is there, and its requests
/// `READ`, `WRITE` and `FLUSH` stop it, too.
pub(crate) fn serve(mut fuse: File, stopped: &Sender<u32>, go: &Receiver<()>) {
    let mut request = vec![0; 1 << 20];
    loop {
        let n = match fuse.read(&mut request) {
            Ok(n) => n,
            Err(e) if e.raw_os_error() == Some(libc::ENODEV) => return,
            Err(_) => continue,
        };
        let request = &request[..n];
        let word = |at: usize| u32::from_ne_bytes(request[at..at + 4].try_into().unwrap());
        let long = |at: usize| u64::from_ne_bytes(request[at..at + 8].try_into().unwrap());
        let (opcode, unique, node) = (word(4), long(8), long(16));
        let body = &request[40..];
        let is_slow = opcode == LOOKUP && body.starts_with(b"slow\0");
        if is_slow || matches!(opcode, READ | WRITE | FLUSH) {
            stopped.send(opcode).unwrap();
            go.recv().unwrap();
        }
        let reply = match opcode {
            FORGET | BATCH_FORGET | INTERRUPT => continue,
            INIT => {
                let mut init = words(&[7, 31, 0, 0, 0, 1 << 16, 1]);
                init.resize(64, 0);
                Ok(init)
            }
            LOOKUP if body.starts_with(b"file\0") => {
                let mut entry = longs(&[FILE, 0, 0, 0, 0]);
                entry.extend(attributes(FILE));
                Ok(entry)
            }
            LOOKUP => Err(libc::ENOENT),
            GETATTR | SETATTR => {
                let mut found = longs(&[0, 0]);
                found.extend(attributes(node));
                Ok(found)
            }
            // Past the page cache (FOPEN_DIRECT_IO).
            OPEN => Ok(words(&[0, 0, 1, 0])),
            READ => Ok(b"data".to_vec()),
            WRITE => Ok(words(&[word(40 + 16), 0])),
            FLUSH | RELEASE => Ok(Vec::new()),
            _ => Err(libc::ENOSYS),
        };
        let (error, data) = match reply {
            Ok(data) => (0, data),
            Err(errno) => (errno, Vec::new()),
        };
        let mut answer = words(&[16 + data.len() as u32, 0u32.wrapping_sub(error as u32)]);
        answer.extend(unique.to_ne_bytes());
        answer.extend(data);
        // A request that was given up is not waited for.
        let _ = fuse.write(&answer);
    }
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_ne_bytes()).collect()
}

fn longs(longs: &[u64]) -> Vec<u8> {
    longs.iter().flat_map(|l| l.to_ne_bytes()).collect()
}

/// A `struct fuse_attr`.
fn attributes(node: u64) -> Vec<u8> {
    let mode = match node {
        ROOT => libc::S_IFDIR | 0o755,
        _ => libc::S_IFREG | 0o644,
    };
    let mut attributes = longs(&[node, 4, 1, 0, 0, 0]);
    attributes.extend(words(&[0, 0, 0, mode, 1, 0, 0, 0, 4096, 0]));
    attributes
}

//! A storm of signals: no call gives EINTR, none is cut short. By itself, because all
//! threads of the process are hit.
#![allow(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "plain threads take part")]

use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::util;
use crate::util::{Pattern, hang_guard, runtime};
use windlass::io::{self, pipe};
use windlass::net::{TcpListener, TcpStream, UdpSocket, UnixStream};
use windlass::process::Command;
use windlass::{fs, spawn};

static HITS: AtomicU64 = AtomicU64::new(0);

extern "C" fn count(_: i32) {
    HITS.fetch_add(1, Ordering::Relaxed);
}

/// Signals all threads but its own until it is told to stop.
fn storm(over: Arc<AtomicBool>) {
    let me = util::gettid();
    while !over.load(Ordering::SeqCst) {
        for entry in std::fs::read_dir("/proc/self/task").unwrap() {
            let tid: i32 = entry
                .unwrap()
                .file_name()
                .to_str()
                .unwrap()
                .parse()
                .unwrap();
            if tid != me {
                // SAFETY: takes plain numbers; a thread that has ended is an error that is
                // no matter.
                unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, libc::SIGUSR1) };
            }
        }
        std::thread::sleep(Duration::from_micros(50));
    }
}

fn echo(mut stream: impl Read + Write) {
    let mut buf = [0; 600];
    loop {
        match stream.read(&mut buf).unwrap() {
            0 => return,
            n => stream.write_all(&buf[..n]).unwrap(),
        }
    }
}

fn ask(mut stream: impl Read + Write, n: u32) {
    for i in 0..n {
        let mut got = [0; 4];
        stream.write_all(&i.to_le_bytes()).unwrap();
        stream.read_exact(&mut got).unwrap();
        assert_eq!(got, i.to_le_bytes());
    }
}

fn connections() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let server = spawn(move || {
        for stream in listener.incoming().take(30) {
            let stream = stream.unwrap();
            spawn(move || echo(stream));
        }
        // The others by requests that stay armed.
        for stream in listener.accept_stream().take(30) {
            let stream = stream.unwrap();
            spawn(move || {
                loop {
                    let bytes = stream.recv_owned().unwrap();
                    if bytes.is_empty() {
                        break;
                    }
                    (&stream).write_all(&bytes).unwrap();
                }
            });
        }
    });
    let clients: Vec<_> = (0..20)
        .map(|_| spawn(move || (0..3).for_each(|_| ask(TcpStream::connect(addr).unwrap(), 40))))
        .collect();
    clients.into_iter().for_each(|c| c.join().unwrap());
    server.join().unwrap();
}

fn streams_of_bytes() {
    const N: usize = 4 << 20;
    let pattern = Arc::new(Pattern::new());
    let (mut reader, mut writer) = pipe().unwrap();
    let (mut a, mut b) = UnixStream::pair().unwrap();
    let same = Arc::clone(&pattern);
    let writes = spawn(move || same.write(&mut writer, 0, N, 70_000).unwrap());
    let copies = spawn(move || io::copy(&mut reader, &mut a).unwrap());
    assert_eq!(pattern.check(&mut b, 50_000).unwrap(), N);
    writes.join().unwrap();
    assert_eq!(copies.join().unwrap(), N as u64);
}

/// Children and files, whose ends and bytes are waited for elsewhere.
fn children_and_files() {
    for _ in 0..5 {
        let output = Command::new("sh")
            .args(["-c", "echo out; exit 3"])
            .output()
            .unwrap();
        assert_eq!(
            (output.status.code(), &output.stdout[..]),
            (Some(3), &b"out\n"[..])
        );
    }
    let path = std::env::temp_dir().join(format!("windlass-signals-{}", std::process::id()));
    let bytes = vec![b'x'; 100_000];
    for _ in 0..10 {
        let mut file = fs::File::create(&path).unwrap();
        file.write_all(&bytes).unwrap();
        file.sync_data().unwrap();
        assert!(fs::read(&path).unwrap() == bytes);
    }
    fs::remove_file(&path).unwrap();
}

fn waits() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket
        .set_read_timeout(Some(Duration::from_millis(2)))
        .unwrap();
    for _ in 0..20 {
        let e = socket.recv(&mut [0]).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::WouldBlock);
        let e = io::wait_readable_timeout(&socket, Duration::from_millis(2)).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::TimedOut);
        windlass::sleep(Duration::from_millis(1));
    }
}

#[test]
fn nothing_is_interrupted() {
    let _guard = hang_guard();
    // SAFETY: the handler only counts; without SA_RESTART system calls do end early.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = count as *const () as usize;
        assert_eq!(
            libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()),
            0
        );
    }
    let over = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&over);
    let storm = std::thread::spawn(move || storm(flag));
    runtime(2).run(|| {
        let all = [
            spawn(connections),
            spawn(streams_of_bytes),
            spawn(waits),
            spawn(children_and_files),
        ];
        all.into_iter().for_each(|g| g.join().unwrap());
    });
    // These calls on plain threads.
    let (a, b) = UnixStream::pair().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    std::thread::scope(|s| {
        s.spawn(move || echo(b));
        s.spawn(move || ask(a, 2000));
        s.spawn(move || echo(listener.accept().unwrap().0));
        s.spawn(move || ask(TcpStream::connect(addr).unwrap(), 2000));
        s.spawn(waits);
    });
    over.store(true, Ordering::SeqCst);
    storm.join().unwrap();
    assert!(HITS.load(Ordering::Relaxed) > 100);
}

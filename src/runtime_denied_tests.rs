//! Rings that are denied some operations, as seccomp filters in containers do. Each operation
//! falls back to another call, and an error of the operation itself is returned unchanged.

use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

use io_uring::opcode;

use crate::context::Context;
use crate::net::{TcpListener, TcpStream, UdpSocket};
use crate::netpoll::ring::tests::DENIED;
use crate::time::Instant;
use crate::{Builder, fs, spawn};

const DENIABLE: [(&str, u8); 16] = [
    ("recv", opcode::Recv::CODE),
    ("send", opcode::Send::CODE),
    ("recvmsg", opcode::RecvMsg::CODE),
    ("sendmsg", opcode::SendMsg::CODE),
    ("accept", opcode::Accept::CODE),
    ("connect", opcode::Connect::CODE),
    ("poll_add", opcode::PollAdd::CODE),
    ("read", opcode::Read::CODE),
    ("write", opcode::Write::CODE),
    ("readv", opcode::Readv::CODE),
    ("writev", opcode::Writev::CODE),
    ("fsync", opcode::Fsync::CODE),
    ("fallocate", opcode::Fallocate::CODE),
    ("openat", opcode::OpenAt::CODE),
    ("timeout", opcode::Timeout::CODE),
    ("statx", opcode::Statx::CODE),
];

/// Runs `f` on a runtime whose rings are denied these operations.
fn denied(operations: &[(&str, u8)], f: impl FnOnce() + Send) {
    DENIED.set(operations.iter().fold(0, |all, (_, op)| all | 1 << op));
    // SAFETY: nothing here keeps a borrow of a thread-local across a call that parks.
    let runtime = unsafe { Builder::new().processors(2).require_io_uring(true).build() };
    DENIED.set(0);
    runtime.unwrap().run(f);
}

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let accepts = spawn(move || listener.accept().unwrap().0);
    let a = TcpStream::connect(addr).unwrap();
    (a, accepts.join().unwrap())
}

fn streams() {
    let (mut a, mut b) = pair();
    // Often enough that a multishot poll is armed.
    for i in 0..20u8 {
        let reads = spawn(move || {
            let mut message = [0; 3];
            b.read_exact(&mut message).unwrap();
            (b, message)
        });
        crate::yield_now();
        a.write_all(&[i; 3]).unwrap();
        let message;
        (b, message) = reads.join().unwrap();
        assert_eq!(message, [i; 3]);
    }
    // More than the socket buffers hold, so that both sides have to wait.
    let writes = spawn(move || {
        a.write_all(&vec![7; 8 << 20]).unwrap();
        a.write_all(&[8; 20_000]).unwrap();
        a
    });
    let mut all = vec![0; 8 << 20];
    b.read_exact(&mut all).unwrap();
    assert!(all.iter().all(|&byte| byte == 7));
    let mut some = [0; 20_000];
    b.read_exact(&mut some).unwrap();
    let mut a = writes.join().unwrap();
    // Deadlines and the end.
    b.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
    assert_eq!(b.read(&mut some).unwrap_err().kind(), ErrorKind::WouldBlock);
    b.set_read_timeout(None).unwrap();
    a.write_all(b"owned").unwrap();
    assert_eq!(&b.recv_owned().unwrap()[..], b"owned");
    drop(a);
    assert_eq!(b.read(&mut some).unwrap(), 0);
}

fn listeners() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let soon = Context::background().with_timeout(Duration::from_millis(5));
    let late = soon.run(|| listener.accept().unwrap_err());
    assert_eq!(late.kind(), ErrorKind::TimedOut);
    let connects = spawn(move || {
        for _ in 0..6 {
            TcpStream::connect(addr).unwrap();
        }
    });
    let mut connections = listener.accept_stream();
    for _ in 0..3 {
        connections.accept().unwrap();
    }
    let left = connections.finish().len();
    for _ in left..3 {
        listener.accept().unwrap();
    }
    connects.join().unwrap();
    // Deadlines that end beside a connection.
    const MANY: usize = 100;
    let connects = spawn(move || {
        for i in 0..MANY {
            TcpStream::connect(addr).unwrap();
            crate::sleep(Duration::from_micros(i as u64 % 90));
        }
    });
    let (mut accepted, mut round) = (0, 0);
    while accepted < MANY {
        round += 1;
        listener.set_deadline(Some(Instant::now() + Duration::from_micros(round % 60)));
        match listener.accept() {
            Ok(_) => accepted += 1,
            Err(e) => assert_eq!(e.kind(), ErrorKind::WouldBlock),
        }
    }
    connects.join().unwrap();
    drop(listener);
    let refused = TcpStream::connect(addr).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
}

fn packets() {
    let a = UdpSocket::bind("127.0.0.1:0").unwrap();
    let b = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = b.local_addr().unwrap();
    let reads = spawn(move || {
        let mut packet = [0; 16];
        let (n, from) = b.recv_from(&mut packet).unwrap();
        (packet[..n].to_vec(), from)
    });
    crate::yield_now();
    a.send_to(b"packet", to).unwrap();
    let (packet, from) = reads.join().unwrap();
    assert_eq!(
        (&packet[..], from),
        (&b"packet"[..], a.local_addr().unwrap())
    );
    // Without SO_BROADCAST this is the socket's own error.
    let e = a.send_to(b"packet", "255.255.255.255:9").unwrap_err();
    assert_eq!(e.kind(), ErrorKind::PermissionDenied);
}

fn files() {
    let dir = std::env::temp_dir().join(format!("windlass-denied-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let path = dir.join("file");
    let mut file = fs::File::create(&path).unwrap();
    file.write_all(b"what is written").unwrap();
    file.sync_all().unwrap();
    let mut text = String::new();
    fs::File::open(&path)
        .unwrap()
        .read_to_string(&mut text)
        .unwrap();
    assert_eq!(text, "what is written");
    std::fs::remove_dir_all(&dir).unwrap();
    assert_eq!(
        fs::File::open(&path).unwrap_err().kind(),
        ErrorKind::NotFound
    );
}

fn everything() {
    streams();
    listeners();
    packets();
    files();
}

#[test]
#[allow(clippy::print_stderr, reason = "says that nothing was tested")]
fn denied_operations_fall_back() {
    // SAFETY: as above.
    if let Err(e) = unsafe { Builder::new().require_io_uring(true).build() } {
        return eprintln!("not tested: {e}");
    }
    denied(&[], everything);
    for one in DENIABLE {
        denied(&[one], everything);
    }
    denied(&DENIABLE, everything);
}

//! Waits hold no threads. Its only test counts those of the process, so it has a process of its own.
#![allow(unsafe_code)]

use std::io::{self, Read};
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Threads of the process that run goroutines.
fn ms() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|t| std::fs::read_to_string(t.ok()?.path().join("comm")).ok());
    names.filter(|name| name.starts_with("windlass-m")).count()
}

/// 100 waits of each kind at once leave the process with few threads. Without the hook each holds one.
#[test]
fn waits_hold_no_threads() {
    const N: usize = 100;
    // SAFETY: the goroutines of this test keep nothing of a thread across a call that waits.
    let rt = unsafe {
        windlass_hook::install();
        windlass::Builder::new().processors(1).build().unwrap()
    };
    rt.run(|| {
        let (mut ends, mut udp) = (Vec::new(), Vec::new());
        windlass::scope(|s| {
            for _ in 0..N {
                let (mut reader, writer) = io::pipe().unwrap();
                s.spawn(move || assert_eq!(reader.read(&mut [0; 8]).unwrap(), 0));
                let (mut a, b) = UnixStream::pair().unwrap();
                s.spawn(move || assert_eq!(a.read(&mut [0; 8]).unwrap(), 0));
                let (c, d) = UnixStream::pair().unwrap();
                s.spawn(move || {
                    let mut fd = libc::pollfd {
                        fd: c.as_raw_fd(),
                        events: libc::POLLIN,
                        revents: 0,
                    };
                    // SAFETY: it is one `pollfd`, as the call says.
                    assert_eq!(unsafe { libc::poll(&mut fd, 1, -1) }, 1);
                });
                let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
                udp.push(socket.local_addr().unwrap());
                s.spawn(move || assert_eq!(socket.recv(&mut [0; 8]).unwrap(), 1));
                ends.push((writer, b, d));
            }
            windlass::sleep(Duration::from_millis(300));
            let threads = ms();
            drop(ends);
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            for addr in udp {
                socket.send_to(b"!", addr).unwrap();
            }
            assert!(threads < N / 2, "{threads} threads for {} waits", 4 * N);
        });
    });
}

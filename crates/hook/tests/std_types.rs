//! `std`'s own types on goroutines: each wait parks one, and the thread runs others.
#![allow(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "std's calls are what is tested")]

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use windlass::{Runtime, spawn};

/// Runs a test on `n` Ps, with the functions of this crate. A test that hangs ends the process.
fn run<T: Send>(n: usize, f: impl FnOnce() -> T + Send) -> T {
    let (done, ended) = mpsc::channel::<()>();
    let guard = thread::spawn(move || {
        if ended.recv_timeout(Duration::from_secs(120)) == Err(mpsc::RecvTimeoutError::Timeout) {
            eprintln!("the test hangs");
            std::process::abort();
        }
    });
    let result = runtime(n).run(f);
    drop(done);
    guard.join().unwrap();
    result
}

fn runtime(n: usize) -> Runtime {
    // SAFETY: no goroutine of these tests keeps a thread-local across a call that waits.
    unsafe { windlass_hook::install() };
    // SAFETY: as above.
    unsafe { windlass::Builder::new().processors(n).build() }.unwrap()
}

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0)
}

/// All are inside a read at once on one P, which threads blocked in the kernel could not be.
#[test]
fn a_thousand_readers_wait_on_one_p() {
    const N: usize = 1000;
    run(1, || {
        let reading = Arc::new(AtomicUsize::new(0));
        let (mut clients, readers): (Vec<_>, Vec<_>) = (0..N)
            .map(|i| {
                let (client, mut server) = UnixStream::pair().unwrap();
                let reading = reading.clone();
                let reader = spawn(move || {
                    reading.fetch_add(1, Ordering::Relaxed);
                    let mut buf = [0; 8];
                    server.read_exact(&mut buf).unwrap();
                    assert_eq!(usize::from_ne_bytes(buf), i);
                    server.write_all(b"thanks").unwrap();
                });
                (client, reader)
            })
            .unzip();
        while reading.load(Ordering::Relaxed) < N {
            windlass::yield_now();
        }
        for (i, client) in clients.iter_mut().enumerate() {
            client.write_all(&i.to_ne_bytes()).unwrap();
        }
        readers.into_iter().for_each(|r| r.join().unwrap());
        for client in &mut clients {
            let mut text = String::new();
            client.read_to_string(&mut text).unwrap();
            assert_eq!(text, "thanks");
        }
    });
}

#[test]
fn an_echo_server_of_std_serves_many_clients() {
    const CLIENTS: usize = 200;
    run(2, || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let server = spawn(move || {
            let serve = |mut stream: TcpStream| {
                let mut buf = [0; 4096];
                loop {
                    match stream.read(&mut buf).unwrap() {
                        0 => break,
                        n => stream.write_all(&buf[..n]).unwrap(),
                    }
                }
            };
            let all: Vec<_> = (0..CLIENTS)
                .map(|_| {
                    let (stream, _) = listener.accept().unwrap();
                    spawn(move || serve(stream))
                })
                .collect();
            all.into_iter().for_each(|s| s.join().unwrap());
        });
        let clients: Vec<_> = (0..CLIENTS)
            .map(|i| {
                spawn(move || {
                    let mut stream = TcpStream::connect(addr).unwrap();
                    for round in 0..20 {
                        let text = format!("{i} {round} {}", "x".repeat(i * round));
                        stream.write_all(text.as_bytes()).unwrap();
                        let mut back = vec![0; text.len()];
                        stream.read_exact(&mut back).unwrap();
                        assert_eq!(back, text.as_bytes());
                    }
                })
            })
            .collect();
        clients.into_iter().for_each(|c| c.join().unwrap());
        server.join().unwrap();
    });
}

/// A blocking send ends when all is sent, however little fits at a time.
#[test]
fn a_large_write_is_sent_as_a_whole() {
    const LEN: usize = 8 << 20;
    run(1, || {
        let (mut client, mut server) = pair();
        let writer = spawn(move || {
            let data: Vec<u8> = (0..LEN).map(|i| (i % 251) as u8).collect();
            // SAFETY: the buffer is valid during the call.
            let n = unsafe { libc::send(client.as_raw_fd(), data.as_ptr().cast(), LEN, 0) };
            assert_eq!(n, LEN as isize);
            let halves = data.split_at(LEN / 2);
            let parts = [IoSlice::new(halves.0), IoSlice::new(halves.1)];
            assert_eq!(client.write_vectored(&parts).unwrap(), LEN);
        });
        let (mut a, mut b) = (vec![0; 100_000], vec![0; 7]);
        let mut n = 0;
        while n < 2 * LEN {
            let mut parts = [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)];
            let got = server.read_vectored(&mut parts).unwrap();
            assert!(got > 0);
            for (i, byte) in a.iter().chain(&b).take(got).enumerate() {
                assert_eq!(usize::from(*byte), (n + i) % LEN % 251);
            }
            n += got;
        }
        writer.join().unwrap();
    });
}

#[test]
fn pipes_park() {
    run(1, || {
        let (mut from, mut to) = io::pipe().unwrap();
        let reader = spawn(move || {
            let mut all = Vec::new();
            from.read_to_end(&mut all).unwrap();
            all
        });
        windlass::yield_now();
        let data: Vec<u8> = (0..1_000_000).map(|i| (i % 253) as u8).collect();
        to.write_all(&data[..10]).unwrap();
        to.write_all(&data[10..]).unwrap();
        drop(to);
        assert!(reader.join().unwrap() == data);
    });
}

/// `recv` after a shutdown of a datagram socket returns 0, as on a thread.
#[test]
fn a_shutdown_ends_waits() {
    run(1, || {
        let (a, _b) = UnixDatagram::pair().unwrap();
        let socket = Arc::new(a);
        let other = socket.clone();
        let reader = spawn(move || other.recv(&mut [0; 8]).unwrap());
        windlass::yield_now();
        socket.shutdown(std::net::Shutdown::Read).unwrap();
        assert_eq!(reader.join().unwrap(), 0);
        let (client, mut server) = pair();
        let reader = spawn(move || server.read(&mut [0; 8]).unwrap());
        windlass::yield_now();
        client.shutdown(std::net::Shutdown::Both).unwrap();
        assert_eq!(reader.join().unwrap(), 0);
    });
}

/// `errno` belongs to the thread, and a goroutine may change its thread in each of these calls.
#[test]
fn errors_are_right_after_a_migration() {
    run(2, || {
        let all: Vec<_> = (0..100)
            .map(|i| {
                spawn(move || {
                    let (mut client, server) = pair();
                    client
                        .set_read_timeout(Some(Duration::from_millis(1)))
                        .unwrap();
                    for round in 0..20 {
                        let e = client.read(&mut [0]).unwrap_err();
                        assert_eq!(e.raw_os_error(), Some(libc::EAGAIN), "{i} {round}");
                        // SAFETY: the call fails before it looks at memory.
                        let r = unsafe { libc::read(-1, std::ptr::null_mut(), 1) };
                        assert_eq!(
                            (r, io::Error::last_os_error().raw_os_error()),
                            (-1, Some(libc::EBADF))
                        );
                    }
                    drop(server);
                })
            })
            .collect();
        all.into_iter().for_each(|t| t.join().unwrap());
    });
}

/// Threads and processes that the program starts by std are waited for in blocking sections.
#[test]
fn threads_and_children_are_joined() {
    run(1, || {
        let (sender, receiver) = windlass::channel::bounded(0);
        let other = spawn(move || sender.send(1).unwrap());
        let thread = thread::spawn(move || receiver.recv().unwrap());
        assert_eq!(thread.join().unwrap(), 1);
        other.join().unwrap();
        let output = std::process::Command::new("echo")
            .arg("hello")
            .output()
            .unwrap();
        assert_eq!(output.stdout, b"hello\n");
    });
}

/// The end of a run reaches goroutines that wait in calls of std: each call fails, and a sleep ends.
#[test]
fn the_end_of_a_run_ends_waits() {
    run(2, || {
        for _ in 0..10 {
            let (mut client, server) = pair();
            std::mem::forget(server);
            drop(spawn(move || {
                let e = client.read(&mut [0]).unwrap_err();
                assert_eq!(e.raw_os_error(), Some(libc::ECANCELED));
            }));
            drop(spawn(|| thread::sleep(Duration::from_secs(3600))));
            drop(spawn(|| {
                TcpListener::bind("127.0.0.1:0")
                    .unwrap()
                    .accept()
                    .unwrap_err()
            }));
        }
        thread::sleep(Duration::from_millis(10));
    });
}

//! Which poller a runtime gets, where both are to be had, and what is the same with
//! either. What happens where io_uring is denied: tests/seccomp.rs.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use crate::temp::TempDir;
use crate::util::{
    Pattern, build, child_case, child_passes_with_io, hang_guard, has_io_uring, refuse_threads,
    run, runtime,
};
use windlass::fs::{AlignedBuf, File};
use windlass::io::{PipeReader, PipeWriter, pipe, wait_readable, wait_writable};
use windlass::metrics::Poller;
use windlass::net::{TcpListener, TcpStream};
use windlass::task::scope;
use windlass::{Builder, blocking, spawn};

fn built() -> Poller {
    build(Builder::new().processors(2))
        .unwrap()
        .metrics()
        .poller
}

fn is_silent(name: &str, io: Option<&str>) {
    assert_eq!(child_passes_with_io(name, "child", io), "");
}

#[test]
fn a_ring_if_nothing_is_said() {
    if !has_io_uring() {
        return;
    }
    if child_case().is_none() {
        is_silent("a_ring_if_nothing_is_said", None);
        is_silent("a_ring_if_nothing_is_said", Some(""));
        return is_silent("a_ring_if_nothing_is_said", Some("uring"));
    }
    assert_eq!(built(), Poller::IoUring);
    build(Builder::new().require_io_uring(true)).unwrap();
}

#[test]
fn epoll_if_it_is_asked_for() {
    if child_case().is_none() {
        return is_silent("epoll_if_it_is_asked_for", Some("epoll"));
    }
    assert_eq!(built(), Poller::Epoll);
    let e = build(Builder::new().require_io_uring(true)).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unsupported);
    let text = e.to_string();
    assert!(
        text.contains("io_uring") && text.contains("WINDLASS_IO"),
        "{text}"
    );
}

#[test]
fn another_word_is_warned_of_once_and_ignored() {
    if !has_io_uring() {
        return;
    }
    if child_case().is_none() {
        let name = "another_word_is_warned_of_once_and_ignored";
        let stderr = child_passes_with_io(name, "child", Some("kqueue"));
        let lines: Vec<_> = stderr.lines().collect();
        assert_eq!(lines.len(), 1, "{stderr}");
        for word in ["WINDLASS_IO", "\"kqueue\"", "`uring`", "`epoll`"] {
            assert!(lines[0].contains(word), "{stderr}");
        }
        return;
    }
    assert_eq!(built(), Poller::IoUring);
    assert_eq!(built(), Poller::IoUring);
}

/// A connected pair.
fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let connects = spawn(move || TcpStream::connect(addr).unwrap());
    let (accepted, _) = listener.accept().unwrap();
    (connects.join().unwrap(), accepted)
}

#[test]
fn many_readers_of_one_stream_get_each_byte_once() {
    const READERS: usize = 20;
    const BYTES: usize = 20_000;
    for n_ps in [1, 4] {
        run(n_ps, || {
            let (mut from, to) = pair();
            let to = &to;
            let read: Vec<u8> = scope(|s| {
                let readers: Vec<_> = (0..READERS)
                    .map(|_| {
                        s.spawn(move || {
                            let (mut to, mut all, mut buf) = (to, Vec::new(), [0; 7]);
                            loop {
                                match to.read(&mut buf).unwrap() {
                                    0 => return all,
                                    n => all.extend_from_slice(&buf[..n]),
                                }
                            }
                        })
                    })
                    .collect();
                for chunk in (0..BYTES).collect::<Vec<_>>().chunks(10) {
                    let bytes: Vec<u8> = chunk.iter().map(|&i| (i % 251) as u8).collect();
                    from.write_all(&bytes).unwrap();
                    windlass::yield_now();
                }
                drop(from);
                readers
                    .into_iter()
                    .flat_map(|r| r.join().unwrap())
                    .collect()
            });
            let mut counts = [0; 251];
            read.iter().for_each(|&b| counts[usize::from(b)] += 1);
            let expected: Vec<_> = (0..251).map(|b| (b..BYTES).step_by(251).count()).collect();
            assert_eq!(counts.to_vec(), expected);
        });
    }
}

#[test]
fn timeouts_of_some_waiters_leave_the_others_of_the_same_stream() {
    run(2, || {
        let (mut a, b) = pair();
        b.set_read_timeout(Some(Duration::from_millis(3))).unwrap();
        let b = &b;
        let n_read: usize = scope(|s| {
            let readers: Vec<_> = (0..10)
                .map(|_| {
                    s.spawn(move || {
                        let (mut b, mut n) = (b, 0);
                        let mut n_timeouts = 0;
                        loop {
                            match b.read(&mut [0; 3]) {
                                Ok(0) => return n,
                                Ok(more) => n += more,
                                Err(e) if e.kind() == ErrorKind::WouldBlock => n_timeouts += 1,
                                Err(e) => panic!("{e}"),
                            }
                            assert!(n_timeouts < 100_000);
                        }
                    })
                })
                .collect();
            for i in 0..100 {
                a.write_all(&[1; 10]).unwrap();
                if i % 10 == 0 {
                    windlass::sleep(Duration::from_millis(4));
                }
            }
            drop(a);
            readers.into_iter().map(|r| r.join().unwrap()).sum()
        });
        assert_eq!(n_read, 1000);
    });
}

/// The number of a closed socket is given to the next one at once.
#[test]
fn sockets_closed_and_opened_again_and_again() {
    run(2, || {
        for round in 0..300 {
            let (mut a, mut b) = pair();
            let clone = b.try_clone().unwrap();
            b.set_read_timeout(Some(Duration::from_micros(100)))
                .unwrap();
            let first = b.read(&mut [0; 4]);
            assert_eq!(first.unwrap_err().kind(), ErrorKind::WouldBlock);
            drop(b);
            // The number that `b` had is another stream's now, while the clone lives.
            let (mut c, d) = pair();
            let reads = spawn(move || {
                let (mut d, mut buf) = (d, [0; 4]);
                d.read_exact(&mut buf).map(|()| buf)
            });
            a.write_all(b"old.").unwrap();
            windlass::yield_now();
            c.write_all(&u32::to_ne_bytes(round)).unwrap();
            assert_eq!(reads.join().unwrap().unwrap(), u32::to_ne_bytes(round));
            let mut old = [0; 4];
            clone.set_read_timeout(None).unwrap();
            (&clone).read_exact(&mut old).unwrap();
            assert_eq!(&old, b"old.");
        }
    });
}

#[test]
fn a_listener_given_to_std_blocks_as_std_has_it() {
    run(2, || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let first = spawn(move || TcpStream::connect(addr).map(drop));
        listener.accept().unwrap();
        first.join().unwrap().unwrap();
        let listener = std::net::TcpListener::from(listener);
        let accepts = std::thread::spawn(move || listener.accept().map(drop));
        windlass::sleep(Duration::from_millis(5));
        let _late = TcpStream::connect(addr).unwrap();
        blocking(|| accepts.join()).unwrap().unwrap();
    });
}

#[test]
fn who_waits_for_a_socket_makes_no_system_calls() {
    let _guard = hang_guard();
    let rt = runtime(2);
    let enters = || rt.metrics().total().ring_enters;
    std::thread::scope(|s| {
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let (begun, begins) = std::sync::mpsc::channel();
        let rt = &rt;
        s.spawn(move || {
            rt.run(move || {
                let (a, mut b) = pair();
                spawn(move || drop(b.read(&mut [0])));
                windlass::yield_now();
                begun.send(a).unwrap();
                blocking(|| stopped.recv().unwrap_err());
            });
        });
        let a = begins.recv().unwrap();
        std::thread::sleep(Duration::from_millis(20));
        let before = enters();
        std::thread::sleep(Duration::from_millis(100));
        let more = enters() - before;
        assert!(more < 20, "{more} calls while nothing happened");
        drop((a, stop));
    });
}

#[test]
fn files_have_no_readiness_and_are_read_and_written_all_the_same() {
    run(2, || {
        let pattern = Pattern::new();
        let path = std::env::temp_dir().join(format!("windlass-poller-{}", std::process::id()));
        let file = std::fs::File::options()
            .write(true)
            .create_new(true)
            .open(&path)
            .unwrap();
        wait_writable(&file).unwrap();
        let mut file = PipeWriter::from(OwnedFd::from(file));
        pattern.write(&mut file, 0, 3_000_000, 70_001).unwrap();
        drop(file);
        let file = std::fs::File::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        wait_readable(&file).unwrap();
        let mut file = PipeReader::from(OwnedFd::from(file));
        assert_eq!(pattern.check(&mut file, 33_333).unwrap(), 3_000_000);
        // At the end, and of the wrong kind.
        assert_eq!(file.read(&mut [0; 9]).unwrap(), 0);
        let dir = std::fs::File::open("/").unwrap();
        let mut dir = PipeReader::from(OwnedFd::from(dir));
        let e = dir.read(&mut [0; 9]).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::IsADirectory);
        let null = std::fs::File::options()
            .read(true)
            .write(true)
            .open("/dev/null")
            .unwrap();
        let null = OwnedFd::from(null);
        let mut reads = PipeReader::from(null.try_clone().unwrap());
        assert_eq!(reads.read(&mut [0; 9]).unwrap(), 0);
        assert_eq!(PipeWriter::from(null).write(b"gone").unwrap(), 4);
    });
}

#[test]
fn pipes_in_both_directions_with_many_at_each_end() {
    const EACH: usize = 20_000;
    run(2, || {
        let (reader, writer) = pipe().unwrap();
        let (reader, writer) = (&reader, writer);
        let n_read: usize = scope(|s| {
            let readers: Vec<_> = (0..4)
                .map(|_| {
                    s.spawn(move || {
                        let (mut reader, mut n, mut buf) = (reader, 0, [0; 999]);
                        loop {
                            match reader.read(&mut buf).unwrap() {
                                0 => return n,
                                more => n += more,
                            }
                        }
                    })
                })
                .collect();
            for _ in 0..4 {
                let mut writer = writer.try_clone().unwrap();
                s.spawn(move || {
                    for _ in 0..EACH / 1000 {
                        writer.write_all(&[1; 1000]).unwrap();
                    }
                });
            }
            drop(writer);
            readers.into_iter().map(|r| r.join().unwrap()).sum()
        });
        assert_eq!(n_read, 4 * EACH);
    });
}

#[test]
fn polls_for_reading_and_writing_of_one_descriptor() {
    run(2, || {
        let (a, mut b) = pair();
        let mut n_filled = 0;
        a.set_nonblocking(true).unwrap();
        while let Ok(n) = (&a).write(&[0; 60_000]) {
            n_filled += n;
        }
        let a = &a;
        scope(|s| {
            let readable: Vec<_> = (0..3).map(|_| s.spawn(|| wait_readable(a))).collect();
            let writable: Vec<_> = (0..3).map(|_| s.spawn(|| wait_writable(a))).collect();
            windlass::sleep(Duration::from_millis(2));
            assert!(readable.iter().all(|r| !r.is_finished()));
            b.write_all(&[1]).unwrap();
            readable
                .into_iter()
                .for_each(|r| r.join().unwrap().unwrap());
            b.read_exact(&mut vec![0; n_filled]).unwrap();
            writable
                .into_iter()
                .for_each(|r| r.join().unwrap().unwrap());
        });
    });
}

/// A ring needs a thread of the kernel for each of these, and gets none: it cancels them.
#[test]
fn operations_on_files_go_on_at_the_limit_of_threads() {
    const NAME: &str = "operations_on_files_go_on_at_the_limit_of_threads";
    if child_case().is_none() {
        // The runtime may report as well that it gets no thread.
        let n_reports = |io| {
            let stderr = child_passes_with_io(NAME, "", Some(io));
            stderr.matches("cannot start threads for io_uring").count()
        };
        assert_eq!(n_reports("epoll"), 0);
        if has_io_uring() {
            assert_eq!(n_reports("uring"), 1);
        }
        return;
    }
    let temp = TempDir::new();
    let file = File::create(temp.join("file")).unwrap();
    // Not every file system has them.
    let direct = File::options()
        .write(true)
        .create(true)
        .custom_flags(libc::O_DIRECT)
        .open(temp.join("direct"))
        .ok();
    drop(temp);
    run(2, || {
        spawn(|| windlass::sleep(Duration::from_millis(1)))
            .join()
            .unwrap();
        refuse_threads();
        for _ in 0..3 {
            file.sync_all().unwrap();
            file.sync_data().unwrap();
            File::open("/dev/null").unwrap();
        }
        if let Err(e) = file.allocate(0, 4096) {
            assert_eq!(e.kind(), ErrorKind::Unsupported, "the file system's");
        }
        if let Some(file) = direct {
            let block = AlignedBuf::zeroed(4096);
            for i in 0..5 {
                file.write_all_at(&block, i * 4096).unwrap();
            }
        }
    });
}

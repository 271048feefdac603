//! Pipes, readiness and foreign descriptors, on goroutines and on plain threads.
#![allow(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "plain threads take part")]

use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use windlass::time::{Duration, Instant};

use crate::util;
use crate::util::{Pattern, hang_guard, run, runtime, wait_until};
use windlass::io::{self, Async, PipeReader, PipeWriter, pipe};
use windlass::{blocking, spawn};

fn set_nonblocking(fd: impl AsFd) {
    // SAFETY: takes a descriptor and plain numbers.
    unsafe {
        let flags = libc::fcntl(fd.as_fd().as_raw_fd(), libc::F_GETFL);
        assert_eq!(
            libc::fcntl(
                fd.as_fd().as_raw_fd(),
                libc::F_SETFL,
                flags | libc::O_NONBLOCK
            ),
            0
        );
    }
}

#[test]
fn much_data_through_a_pipe() {
    const N: usize = 16 << 20;
    let _guard = hang_guard();
    let check = || {
        let pattern = Pattern::new();
        let (mut reader, mut writer) = pipe().unwrap();
        std::thread::scope(|s| {
            s.spawn(|| {
                // The end comes when the last writer is gone.
                let mut writer = writer.try_clone().unwrap();
                pattern.write(&mut writer, 0, N, 100_000).unwrap();
            });
            s.spawn(|| {
                let mut head = vec![0; N];
                reader.read_exact(&mut head).unwrap();
                for at in (0..N).step_by(1 << 20) {
                    assert!(head[at..at + (1 << 20)] == *pattern.bytes(at, 1 << 20));
                }
            });
        });
        writer.write_all(b"last").unwrap();
        drop(writer);
        let mut rest = String::new();
        reader.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "last");
    };
    check();
    runtime(2).run(|| {
        let pattern = Arc::new(Pattern::new());
        let (mut reader, mut writer) = pipe().unwrap();
        let same = Arc::clone(&pattern);
        let writes = spawn(move || same.write(&mut writer, 0, N, 100_000).unwrap());
        assert_eq!(pattern.check(&mut reader, 30_000).unwrap(), N);
        writes.join().unwrap();
    });
}

#[test]
fn several_buffers_and_empty_ones() {
    let _guard = hang_guard();
    let check = || {
        let (mut reader, mut writer) = pipe().unwrap();
        assert_eq!(reader.read(&mut []).unwrap(), 0);
        assert_eq!(reader.read_vectored(&mut []).unwrap(), 0);
        assert_eq!(writer.write(&[]).unwrap(), 0);
        assert_eq!(writer.write_vectored(&[IoSlice::new(&[])]).unwrap(), 0);
        let n = writer
            .write_vectored(&[IoSlice::new(b"ab"), IoSlice::new(&[]), IoSlice::new(b"cde")])
            .unwrap();
        assert_eq!(n, 5);
        let (mut x, mut y) = ([0; 3], [0; 3]);
        let n = (&reader)
            .read_vectored(&mut [IoSliceMut::new(&mut x), IoSliceMut::new(&mut y)])
            .unwrap();
        assert_eq!((n, x, y), (5, *b"abc", *b"de\0"));
        (&writer).flush().unwrap();
        // More than the kernel takes at once.
        let many: Vec<_> = (0..3000).map(|_| IoSlice::new(b"x")).collect();
        let n = writer.write_vectored(&many).unwrap();
        assert!(n > 0 && n <= 1024);
    };
    crate::util::on_thread_and_goroutine(1, check);
}

#[test]
fn a_reader_that_is_gone() {
    let _guard = hang_guard();
    let check = || {
        let (reader, mut writer) = pipe().unwrap();
        drop(reader);
        assert_eq!(
            writer.write(b"x").unwrap_err().kind(),
            ErrorKind::BrokenPipe
        );
    };
    crate::util::on_thread_and_goroutine(1, check);
    runtime(2).run(|| {
        // While the writer waits.
        let (reader, mut writer) = pipe().unwrap();
        let writes = spawn(move || writer.write_all(&vec![0; 1 << 20]).unwrap_err().kind());
        windlass::sleep(Duration::from_millis(2));
        drop(reader);
        assert_eq!(writes.join().unwrap(), ErrorKind::BrokenPipe);
    });
}

#[test]
fn pipes_of_others_in_non_blocking_mode_wait_here() {
    let _guard = hang_guard();
    let check = || {
        let (reader, writer) = std::io::pipe().unwrap();
        set_nonblocking(&reader);
        set_nonblocking(&writer);
        let (mut reader, mut writer) = (PipeReader::from(reader), PipeWriter::from(writer));
        let writes = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(3));
            writer.write_all(&vec![7; 1 << 20])
        });
        let mut all = Vec::new();
        reader.read_to_end(&mut all).unwrap();
        assert!(all.len() == 1 << 20 && all.iter().all(|&byte| byte == 7));
        blocking(|| writes.join()).unwrap().unwrap();
    };
    crate::util::on_thread_and_goroutine(2, check);
    runtime(2).run(|| {
        let (reader, writer) = std::io::pipe().unwrap();
        set_nonblocking(&reader);
        set_nonblocking(&writer);
        let (mut reader, mut writer) = (PipeReader::from(reader), PipeWriter::from(writer));
        let writes = spawn(move || writer.write_all(&vec![7; 1 << 20]));
        let mut all = Vec::new();
        reader.read_to_end(&mut all).unwrap();
        assert_eq!(all.len(), 1 << 20);
        writes.join().unwrap().unwrap();
    });
}

fn eventfd() -> OwnedFd {
    // SAFETY: the call gives a descriptor that nobody else owns.
    unsafe { OwnedFd::from_raw_fd(libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK)) }
}

fn add(fd: impl AsFd, n: u64) {
    let bytes = n.to_ne_bytes();
    // SAFETY: the bytes are valid.
    let r = unsafe { libc::write(fd.as_fd().as_raw_fd(), bytes.as_ptr().cast(), 8) };
    assert_eq!(r, 8);
}

#[test]
fn readiness_of_any_descriptor() {
    let _guard = hang_guard();
    let check = || {
        let event = eventfd();
        io::wait_writable(&event).unwrap();
        let start = Instant::now();
        let e = io::wait_readable_timeout(&event, Duration::from_millis(10)).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::TimedOut);
        let e = io::wait_readable_deadline(&event, Instant::now() + Duration::from_millis(10))
            .unwrap_err();
        assert_eq!(e.kind(), ErrorKind::TimedOut);
        assert!(start.elapsed() >= Duration::from_millis(20));
        // A time that has passed asks how it is now.
        let e = io::wait_readable_deadline(&event, start).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::TimedOut);
        io::wait_writable_deadline(&event, start).unwrap();
        io::wait_writable_timeout(&event, Duration::ZERO).unwrap();
        let same = event.try_clone().unwrap();
        let adds = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(3));
            add(same, 5);
        });
        io::wait_readable(&event).unwrap();
        io::wait_readable_deadline(&event, start).unwrap();
        blocking(|| adds.join()).unwrap();
        // The end of a stream is readable; a pipe without a reader writable, as an error.
        let (reader, writer) = std::io::pipe().unwrap();
        drop(writer);
        io::wait_readable(&reader).unwrap();
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        io::wait_writable(&writer).unwrap();
        // And a file always.
        io::wait_readable(std::fs::File::open("/dev/null").unwrap()).unwrap();
    };
    crate::util::on_thread_and_goroutine(2, check);
}

#[test]
fn many_wait_for_one() {
    run(2, || {
        let event = Arc::new(eventfd());
        let all: Vec<_> = (0..50)
            .map(|_| {
                let event = Arc::clone(&event);
                spawn(move || io::wait_readable(&*event).unwrap())
            })
            .collect();
        windlass::sleep(Duration::from_millis(1));
        add(&*event, 1);
        all.into_iter().for_each(|g| g.join().unwrap());
    });
}

/// A wait for readiness is cut short when the run ends.
#[test]
fn a_wait_ends_with_its_run() {
    let _guard = hang_guard();
    let census = util::Census::default();
    runtime(2).run(|| {
        let begun = Arc::new(AtomicBool::new(false));
        let (flag, member) = (Arc::clone(&begun), census.member());
        spawn(move || {
            let _member = member;
            flag.store(true, Ordering::SeqCst);
            io::wait_readable(eventfd()).unwrap();
        });
        let member = census.member();
        spawn(move || {
            let _member = member;
            let (mut reader, _writer) = pipe().unwrap();
            let _ = reader.read(&mut [0]);
        });
        wait_until(|| begun.load(Ordering::SeqCst));
        windlass::sleep(Duration::from_millis(1));
    });
    census.assert_all_dropped(2);
}

#[test]
fn foreign_sockets() {
    use std::os::unix::net::UnixStream;
    let _guard = hang_guard();
    let check = || {
        let (a, b) = UnixStream::pair().unwrap();
        let (mut a, b) = (Async::new(a).unwrap(), Async::new(b).unwrap());
        b.writable().unwrap();
        let writes = std::thread::spawn(move || {
            let data = vec![3; 1 << 20];
            (&b).write_all(&data).unwrap();
            b.write_with(|mut b| b.write_vectored(&[IoSlice::new(b"e"), IoSlice::new(b"nd")]))
                .unwrap();
            (&b).flush().unwrap();
            b
        });
        a.readable().unwrap();
        let mut all = vec![0; 1 << 20];
        a.read_exact(&mut all).unwrap();
        assert!(all.iter().all(|&byte| byte == 3));
        let mut end = [0; 3];
        (&a).read_exact(&mut end).unwrap();
        assert_eq!(end, *b"end");
        let b = blocking(|| writes.join()).unwrap();
        drop(b.into_inner());
        assert_eq!(a.read_with(|mut a| a.read(&mut end)).unwrap(), 0);
        assert_eq!(
            a.write_all(&[0; 10]).unwrap_err().kind(),
            ErrorKind::BrokenPipe
        );
        a.get_mut()
            .set_read_timeout(Some(Duration::from_secs(1)))
            .unwrap();
        assert!(a.get_ref().peer_addr().is_ok());
    };
    crate::util::on_thread_and_goroutine(2, check);
    runtime(2).run(|| {
        let (a, b) = UnixStream::pair().unwrap();
        let (mut a, mut b) = (Async::new(a).unwrap(), Async::new(b).unwrap());
        let echo = spawn(move || {
            let mut buf = [0; 4];
            for _ in 0..500 {
                b.read_exact(&mut buf).unwrap();
                b.write_all(&buf).unwrap();
            }
        });
        for i in 0..500_u32 {
            let mut got = [0; 4];
            a.write_all(&i.to_le_bytes()).unwrap();
            a.read_exact(&mut got).unwrap();
            assert_eq!(got, i.to_le_bytes());
        }
        echo.join().unwrap();
    });
}

/// References to it read and write without a clause that refers to itself: the compiler must find the
/// type behind a reference where windlass is in sight, too.
#[test]
fn readers_by_reference_are_found_by_inference() {
    use std::os::unix::net::UnixStream;

    fn exchange<T>(slot: &Option<T>) -> io::Result<u8>
    where
        for<'a> &'a T: Read + Write,
    {
        let mut byte = [7];
        let mut stream = slot.as_ref().ok_or(ErrorKind::NotConnected)?;
        stream.write_all(&byte)?;
        stream.read_exact(&mut byte)?;
        Ok(byte[0])
    }

    let (a, b) = UnixStream::pair().unwrap();
    (&b).write_all(&[9]).unwrap();
    let mut slot = None;
    // The type is not known yet.
    let missing = exchange(&slot).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotConnected);
    slot = Some(a);
    assert_eq!(exchange(&slot).unwrap(), 9);
    // One of ours does as well, and so does a reference in it.
    (&b).write_all(&[1, 2]).unwrap();
    let ours = Some(Async::new(slot.unwrap()).unwrap());
    assert_eq!(exchange(&ours).unwrap(), 1);
    let mut by_reference = Async::new(ours.as_ref().unwrap().get_ref()).unwrap();
    let mut byte = [0];
    by_reference.read_exact(&mut byte).unwrap();
    assert_eq!(byte, [2]);
}

/// A timer of the kernel, as an example of something that is no stream.
#[test]
fn a_foreign_timer() {
    run(1, || {
        // SAFETY: the call gives a descriptor that nobody else owns.
        let timer = unsafe {
            OwnedFd::from_raw_fd(libc::timerfd_create(
                libc::CLOCK_MONOTONIC,
                libc::TFD_CLOEXEC,
            ))
        };
        let timer = Async::new(timer).unwrap();
        let every = libc::timespec {
            tv_sec: 0,
            tv_nsec: 3_000_000,
        };
        let spec = libc::itimerspec {
            it_interval: every,
            it_value: every,
        };
        // SAFETY: the specification is valid.
        let r = unsafe {
            libc::timerfd_settime(timer.as_raw_fd(), 0, &raw const spec, std::ptr::null_mut())
        };
        assert_eq!(r, 0);
        let mut n = 0;
        while n < 5 {
            n += timer
                .read_with(|timer| {
                    let mut ticks = [0_u8; 8];
                    // SAFETY: the buffer is this long.
                    let r = unsafe { libc::read(timer.as_raw_fd(), ticks.as_mut_ptr().cast(), 8) };
                    if r == 8 {
                        Ok(u64::from_ne_bytes(ticks))
                    } else {
                        Err(io::Error::last_os_error())
                    }
                })
                .unwrap();
        }
    });
}

/// The lock of an output is for one goroutine or thread at a time, wherever it runs on, and counts
/// how often its holder has taken it. The guards may be dropped in any order.
#[test]
fn the_lock_of_an_output_has_one_holder() {
    const TURNS: usize = 300;
    let n = Arc::new(AtomicUsize::new(0));
    let add = |n: &AtomicUsize| {
        for turn in 0..TURNS {
            let outer = io::stderr().lock();
            // Two operations: an addition would be lost if another held the lock, too.
            let before = n.load(Ordering::Relaxed);
            let inner = io::stderr().lock();
            if turn % 2 == 0 {
                drop(outer);
                windlass::yield_now();
                n.store(before + 1, Ordering::Relaxed);
                drop(inner);
            } else {
                drop(inner);
                windlass::yield_now();
                n.store(before + 1, Ordering::Relaxed);
                drop(outer);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| add(&n));
        }
        let n = Arc::clone(&n);
        run(2, move || {
            windlass::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| add(&n));
                }
            });
        });
    });
    assert_eq!(n.load(Ordering::Relaxed), 6 * TURNS);
}

/// A terminal that nobody reads takes a part of a long text, and blocks the thread for the rest.
#[test]
fn a_terminal_that_takes_no_more_holds_up_nobody_else() {
    const BYTES: usize = 1 << 20;
    run(1, || {
        let (mut screen, mut terminal) = util::terminal();
        let writes = spawn(move || terminal.write_all(&[b'x'; BYTES]));
        for _ in 0..3 {
            windlass::sleep(Duration::from_millis(2));
        }
        let mut bytes = vec![0; BYTES];
        screen.read_exact(&mut bytes).unwrap();
        assert!(bytes.iter().all(|&byte| byte == b'x'));
        writes.join().unwrap().unwrap();
    });
}

/// As with `std`: a read of a terminal waits for input, but not if it is for no bytes.
#[test]
fn reads_and_writes_of_no_bytes_do_not_wait() {
    util::on_thread_and_goroutine(1, || {
        let (screen, terminal) = util::terminal();
        // SAFETY: takes plain numbers; the descriptor is new.
        let event = unsafe { OwnedFd::from_raw_fd(libc::eventfd(0, libc::EFD_CLOEXEC)) };
        for fd in [screen.as_fd(), terminal.as_fd(), event.as_fd()] {
            let mut of_std = std::fs::File::from(fd.try_clone_to_owned().unwrap());
            let mut of_here = windlass::fs::File::from(fd.try_clone_to_owned().unwrap());
            let kind = |r: io::Result<usize>| r.map_err(|e| e.kind());
            let (mut empty, more) = (IoSliceMut::new(&mut []), IoSlice::new(&[]));
            assert_eq!(kind(of_here.read(&mut [])), kind(of_std.read(&mut [])));
            assert_eq!(kind(of_here.write(&[])), kind(of_std.write(&[])));
            let (here, std) = (
                of_here.read_vectored(std::slice::from_mut(&mut empty)),
                of_std.read_vectored(&mut []),
            );
            assert_eq!(kind(here), kind(std));
            let (here, std) = (of_here.write_vectored(&[more]), of_std.write_vectored(&[]));
            assert_eq!(kind(here), kind(std));
        }
    });
}

/// One of several readers of a terminal gets the line. The others may block their own threads until
/// the next one, but nobody else.
#[test]
fn readers_of_one_terminal_block_nobody_else() {
    const MS: Duration = Duration::from_millis(1);
    run(2, || {
        let (mut screen, terminal) = util::terminal();
        for _ in 0..30 {
            let read = || windlass::time::timeout(15 * MS, || (&terminal).read(&mut [0; 9]));
            windlass::scope(|scope| {
                let readers: Vec<_> = (0..8).map(|_| scope.spawn(read)).collect();
                windlass::sleep(3 * MS);
                screen.write_all(b"x\n").unwrap();
                // The deadlines pass.
                windlass::sleep(20 * MS);
                while !readers.iter().all(|reader| reader.is_finished()) {
                    screen.write_all(b"x\n").unwrap();
                    windlass::sleep(2 * MS);
                }
            });
        }
    });
}

#[cfg(feature = "sim")]
crate::inside::tests! {
    much_data_through_a_pipe: "it uses threads",
    several_buffers_and_empty_ones: "it asks that small reads are whole",
    a_reader_that_is_gone: "it has a runtime of its own",
    pipes_of_others_in_non_blocking_mode_wait_here: "it uses threads",
    readiness_of_any_descriptor: "it uses threads",
    many_wait_for_one: "it has a descriptor of the kernel's",
    a_wait_ends_with_its_run: "it has a runtime of its own",
    foreign_sockets: "it uses threads",
    readers_by_reference_are_found_by_inference: "it uses std's sockets",
    a_foreign_timer: "it has a descriptor of the kernel's",
    the_lock_of_an_output_has_one_holder: "it uses threads",
    a_terminal_that_takes_no_more_holds_up_nobody_else: "it has a terminal of the kernel's",
    reads_and_writes_of_no_bytes_do_not_wait: "it has a terminal of the kernel's",
    readers_of_one_terminal_block_nobody_else: "it has a terminal of the kernel's",
}

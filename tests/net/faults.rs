//! Acts of peers, other handles and callers on a socket at the wrong moment.
#![allow(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "plain threads take part")]

use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::util::{hang_guard, own_addr, pair, run, runtime, wait_until};
use windlass::io::pipe;
use windlass::net::{TcpListener, TcpOptions, TcpStream, UdpSocket, UnixStream};
use windlass::spawn;

/// Resets the connection instead of ending it.
fn reset(stream: TcpStream) {
    let mut options = TcpOptions::new();
    options.linger(Duration::ZERO).apply(&stream).unwrap();
}

#[test]
fn a_peer_vanishes_in_mid_message() {
    run(2, || {
        // An end where there should be more.
        let (mut a, mut b) = pair();
        let reads = spawn(move || b.read_exact(&mut [0; 100]).unwrap_err().kind());
        a.write_all(&[1; 50]).unwrap();
        windlass::sleep(Duration::from_millis(1));
        drop(a);
        assert_eq!(reads.join().unwrap(), ErrorKind::UnexpectedEof);
        // A reset, with bytes before it or without them.
        let (mut a, mut b) = pair();
        let reads = spawn(move || b.read_exact(&mut [0; 100]).unwrap_err().kind());
        a.write_all(&[1; 50]).unwrap();
        windlass::sleep(Duration::from_millis(1));
        reset(a);
        assert_eq!(reads.join().unwrap(), ErrorKind::ConnectionReset);
    });
}

#[test]
fn a_reset_is_told_to_a_writer_that_waits() {
    run(2, || {
        let (mut a, b) = pair();
        let (begun, flag) = shared_flag();
        let writes = spawn(move || {
            flag.store(true, Ordering::SeqCst);
            loop {
                if let Err(e) = a.write(&[0; 100_000]) {
                    // And so is every later call.
                    let again = a.write(&[0]).unwrap_err().kind();
                    return (e.kind(), again);
                }
            }
        });
        wait_until(|| begun.load(Ordering::SeqCst));
        windlass::sleep(Duration::from_millis(20));
        reset(b);
        let (first, again) = writes.join().unwrap();
        assert_eq!(first, ErrorKind::ConnectionReset);
        assert_eq!(again, ErrorKind::BrokenPipe);
    });
}

fn shared_flag() -> (Arc<AtomicBool>, Arc<AtomicBool>) {
    let flag = Arc::new(AtomicBool::new(false));
    (Arc::clone(&flag), flag)
}

#[test]
fn a_half_closed_connection_goes_on_the_other_way() {
    run(2, || {
        let (mut a, mut b) = pair();
        a.write_all(b"the question").unwrap();
        a.shutdown(Shutdown::Write).unwrap();
        let answers = spawn(move || {
            let mut question = String::new();
            b.read_to_string(&mut question).unwrap();
            for _ in 0..200 {
                b.write_all(question.as_bytes()).unwrap();
                windlass::yield_now();
            }
        });
        let mut all = String::new();
        a.read_to_string(&mut all).unwrap();
        assert_eq!(all, "the question".repeat(200));
        answers.join().unwrap();
        assert_eq!(a.write(b"more").unwrap_err().kind(), ErrorKind::BrokenPipe);
    });
}

/// A handle that is dropped takes nothing from the others: the socket stays open as
/// long as one of them is, also for a goroutine that waits on it.
#[test]
fn a_clone_is_dropped_while_another_waits() {
    run(2, || {
        let (mut a, b) = pair();
        let mut clone = b.try_clone().unwrap();
        let (begun, flag) = shared_flag();
        let reads = spawn(move || {
            flag.store(true, Ordering::SeqCst);
            let mut word = [0; 4];
            clone.read_exact(&mut word).map(|()| word)
        });
        wait_until(|| begun.load(Ordering::SeqCst));
        windlass::sleep(Duration::from_millis(1));
        drop(b);
        windlass::sleep(Duration::from_millis(2));
        assert!(!reads.is_finished());
        a.write_all(b"safe").unwrap();
        assert_eq!(reads.join().unwrap().unwrap(), *b"safe");
        // Now the last handle is gone.
        assert_eq!(a.read(&mut [0]).unwrap(), 0);
    });
}

#[test]
fn a_shutdown_through_a_clone_wakes_readers_and_writers() {
    run(2, || {
        let (a, b) = pair();
        let (reader, writer) = (a.try_clone().unwrap(), a.try_clone().unwrap());
        let reads = spawn(move || (&reader).read(&mut [0]).unwrap());
        let writes = spawn(move || {
            loop {
                if let Err(e) = (&writer).write(&[0; 100_000]) {
                    return e.kind();
                }
            }
        });
        windlass::sleep(Duration::from_millis(20));
        a.shutdown(Shutdown::Both).unwrap();
        assert_eq!(reads.join().unwrap(), 0);
        assert_eq!(writes.join().unwrap(), ErrorKind::BrokenPipe);
        drop(b);
    });
}

#[test]
fn a_listener_is_shut_down_under_its_accepts() {
    run(2, || {
        let listener = Arc::new(TcpListener::bind(own_addr()).unwrap());
        let addr = listener.local_addr().unwrap();
        let accepts: Vec<_> = (0..5)
            .map(|_| {
                let listener = Arc::clone(&listener);
                spawn(move || listener.accept().unwrap_err().kind())
            })
            .collect();
        windlass::sleep(Duration::from_millis(2));
        listener.shutdown().unwrap();
        for accept in accepts {
            assert_eq!(accept.join().unwrap(), ErrorKind::InvalidInput);
        }
        assert_eq!(
            TcpStream::connect(addr).unwrap_err().kind(),
            ErrorKind::ConnectionRefused
        );
        assert_eq!(
            listener.accept().unwrap_err().kind(),
            ErrorKind::InvalidInput
        );
    });
}

/// Address space without memory behind it.
struct Huge(*mut u8);

/// In 32 bits it would be one.
const HUGE: usize = (4 << 30) + 1;

impl Huge {
    fn new() -> Huge {
        // SAFETY: a fresh mapping disturbs nobody.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                HUGE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        assert_ne!(at, libc::MAP_FAILED);
        Huge(at.cast())
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is this long, zeroed, and borrowed through `self` alone.
        unsafe { std::slice::from_raw_parts_mut(self.0, HUGE) }
    }
}

impl Drop for Huge {
    fn drop(&mut self) {
        // SAFETY: the mapping is this struct's, and nobody borrows it any more.
        unsafe { libc::munmap(self.0.cast(), HUGE) };
    }
}

/// The kernel moves 2 GiB at most at a time; a length does not become another one.
#[test]
fn buffers_longer_than_four_gib() {
    let _guard = hang_guard();
    let check = || {
        let mut huge = Huge::new();
        let huge = huge.bytes();
        let (mut a, mut b) = pair();
        let (mut c, mut d) = UnixStream::pair().unwrap();
        let (mut reader, mut writer) = pipe().unwrap();
        a.write_all(b"few").unwrap();
        assert_eq!(b.read(huge).unwrap(), 3);
        assert_eq!(huge[..4], *b"few\0");
        c.write_all(b"some").unwrap();
        assert_eq!(a.write(b"zc").unwrap(), 2);
        assert_eq!(b.peek(huge).unwrap(), 2);
        assert_eq!(b.recv_owned().unwrap().len(), 2);
        let (left, right) = huge.split_at_mut(HUGE / 2);
        let n = d
            .read_vectored(&mut [IoSliceMut::new(left), IoSliceMut::new(right)])
            .unwrap();
        assert_eq!(n, 4);
        writer.write_all(b"other").unwrap();
        assert_eq!(reader.read(huge).unwrap(), 5);
        for stream in [&a, &b] {
            stream
                .set_write_timeout(Some(Duration::from_secs(60)))
                .unwrap();
        }
        let n = a.write(huge).unwrap();
        assert!(n > 0 && n <= 0x7fff_f000, "{n}");
        let mut null = windlass::fs::OpenOptions::new()
            .write(true)
            .open("/dev/null")
            .unwrap();
        assert_eq!(null.write(huge).unwrap(), 0x7fff_f000);
        let mut few = windlass::fs::File::open("/proc/self/comm").unwrap();
        let n = few.read(huge).unwrap();
        assert!(n > 1 && n < 20, "{n}");
        let n = c
            .write_vectored(&[IoSlice::new(huge), IoSlice::new(huge)])
            .unwrap();
        assert!(n > 0 && n <= 0x7fff_f000, "{n}");
        let e = UdpSocket::bind("127.0.0.1:0")
            .unwrap()
            .send_to(huge, a.local_addr().unwrap())
            .unwrap_err();
        assert_eq!(e.raw_os_error(), Some(libc::EMSGSIZE));
    };
    runtime(1).run(check);
    // On a thread a pipe's write blocks until all is written, so it is left out there.
    let mut huge = Huge::new();
    let (mut a, mut b) = pair();
    a.write_all(b"few").unwrap();
    assert_eq!(b.read(huge.bytes()).unwrap(), 3);
    let n = a.write(huge.bytes()).unwrap();
    assert!(n > 0 && n <= 0x7fff_f000, "{n}");
}

/// The buffer of a call is the caller's again when it returns, also after a timeout:
/// nothing that comes later is written into it.
#[test]
fn a_buffer_is_free_after_a_read_that_timed_out() {
    run(2, || {
        let (mut a, mut b) = pair();
        b.set_read_timeout(Some(Duration::from_micros(50))).unwrap();
        let (over, flag) = shared_flag();
        let writes = spawn(move || {
            let mut n = 0;
            while !flag.load(Ordering::SeqCst) {
                a.write_all(&[1; 7]).unwrap();
                n += 7;
                windlass::sleep(Duration::from_micros(n % 130));
            }
            n
        });
        let mut buf = [0; 64];
        let (mut n_read, mut n_cut) = (0, 0);
        while n_cut < 1000 {
            match b.read(&mut buf) {
                Ok(n) => {
                    assert!(buf[..n].iter().all(|&byte| byte == 1));
                    n_read += n as u64;
                }
                Err(e) => {
                    assert_eq!(e.kind(), ErrorKind::WouldBlock);
                    n_cut += 1;
                }
            }
            buf.fill(0xee);
            windlass::sleep(Duration::from_micros(n_cut % 90));
            assert!(buf.iter().all(|&byte| byte == 0xee), "written to later");
        }
        over.store(true, Ordering::SeqCst);
        let n_written = writes.join().unwrap();
        b.set_read_timeout(None).unwrap();
        let mut rest = Vec::new();
        b.read_to_end(&mut rest).unwrap();
        assert_eq!(n_read + rest.len() as u64, n_written);
    });
}

/// And nothing is sent from it later.
#[test]
fn a_buffer_is_free_after_a_write_that_timed_out() {
    run(2, || {
        let (mut a, mut b) = UnixStream::pair().unwrap();
        a.set_write_timeout(Some(Duration::from_micros(50)))
            .unwrap();
        let reads = spawn(move || {
            let mut buf = vec![0; 30_000];
            let mut at = 0_usize;
            loop {
                let n = b.read(&mut buf).unwrap();
                if n == 0 {
                    return at;
                }
                assert!(buf[..n].iter().all(|&byte| byte == 1), "behind {at}");
                at += n;
                windlass::sleep(Duration::from_micros((at % 300) as u64));
            }
        });
        let mut buf = vec![1; 200_000];
        let (mut n_written, mut n_cut) = (0, 0);
        while n_cut < crate::util::much(500, 20) {
            match a.write(&buf) {
                Ok(n) => n_written += n,
                Err(e) => {
                    assert_eq!(e.kind(), ErrorKind::WouldBlock);
                    n_cut += 1;
                }
            }
            buf.fill(0xee);
            windlass::yield_now();
            buf.fill(1);
        }
        drop(a);
        assert_eq!(reads.join().unwrap(), n_written);
    });
}

#[cfg(feature = "sim")]
crate::inside::tests! {
    a_peer_vanishes_in_mid_message,
    a_reset_is_told_to_a_writer_that_waits,
    a_half_closed_connection_goes_on_the_other_way,
    a_clone_is_dropped_while_another_waits,
    a_shutdown_through_a_clone_wakes_readers_and_writers,
    a_listener_is_shut_down_under_its_accepts,
    buffers_longer_than_four_gib: "it has a runtime of its own",
    a_buffer_is_free_after_a_read_that_timed_out: "it takes too many steps",
    a_buffer_is_free_after_a_write_that_timed_out / 5,
}

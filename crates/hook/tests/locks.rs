//! Waits that block the thread, since what waits in them may keep thread-locals: locks of `std`, a
//! poller, locks on files. They hand the P over.
#![allow(unsafe_code)]

use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, RwLock, mpsc};
use std::thread;
use std::time::Duration;

use windlass::Runtime;

/// Runs `f` as the first goroutine of a runtime with one P. Ends the process if that takes longer than
/// a minute.
fn run<T: Send>(f: impl FnOnce(&Runtime) -> T + Send) -> T {
    let (done, ended) = mpsc::channel::<()>();
    let watch = thread::spawn(move || {
        if ended.recv_timeout(Duration::from_secs(60)) == Err(mpsc::RecvTimeoutError::Timeout) {
            eprintln!("a test took a minute");
            std::process::abort();
        }
    });
    // SAFETY: the goroutines of these tests keep nothing of a thread across a call that parks.
    let rt = unsafe {
        windlass_hook::install();
        windlass::Builder::new().processors(1).build().unwrap()
    };
    let result = rt.run(|| f(&rt));
    drop(done);
    watch.join().unwrap();
    result
}

fn sections(rt: &Runtime) -> u64 {
    rt.metrics().total().blocking_sections
}

/// Lets `wait` wait in a goroutine until `end` ends that. `true` if it did so in a blocking section; it
/// stays on one thread in any case.
fn waits_in_a_section<W: FnOnce() + Send>(rt: &Runtime, wait: W, end: impl FnOnce()) -> bool {
    let [begun, over] = &[AtomicBool::new(false), AtomicBool::new(false)];
    let before = sections(rt);
    windlass::scope(|s| {
        s.spawn(move || {
            let thread = thread::current().id();
            begun.store(true, Ordering::Relaxed);
            wait();
            assert_eq!(thread::current().id(), thread);
            over.store(true, Ordering::Relaxed);
        });
        // There is one P: it is here again when the other goroutine waits.
        while !begun.load(Ordering::Relaxed) {
            windlass::yield_now();
        }
        assert!(!over.load(Ordering::Relaxed), "it did not wait");
        let in_section = sections(rt) > before;
        end();
        in_section
    })
}

/// On a busy machine the P may be gone before the wait begins, so that there is no section.
#[track_caller]
fn soon(mut attempt: impl FnMut() -> bool) {
    assert!((0..20).any(|_| attempt()), "the wait held its P");
}

#[test]
fn locks_of_std_hand_the_p_over() {
    run(|rt| {
        soon(|| {
            let mutex = Mutex::new(0);
            let mut guard = mutex.lock().unwrap();
            *guard += 1;
            let in_section = waits_in_a_section(rt, || *mutex.lock().unwrap() += 1, || drop(guard));
            assert_eq!(*mutex.lock().unwrap(), 2);
            in_section
        });
        soon(|| {
            let lock = RwLock::new(0);
            let guard = lock.write().unwrap();
            waits_in_a_section(rt, || drop(lock.read()), || drop(guard))
        });
        soon(|| {
            let (ready, changed) = (Mutex::new(false), Condvar::new());
            let wait = || {
                let guard = ready.lock().unwrap();
                drop(changed.wait_while(guard, |ready| !*ready).unwrap());
            };
            let end = || {
                *ready.lock().unwrap() = true;
                changed.notify_all();
            };
            waits_in_a_section(rt, wait, end)
        });
        soon(|| {
            let (sender, receiver) = mpsc::channel();
            let wait = move || assert_eq!(receiver.recv(), Ok(7));
            waits_in_a_section(rt, wait, || sender.send(7).unwrap())
        });
        soon(|| {
            let (sender, receiver) = mpsc::channel();
            let wait = move || {
                sender.send(thread::current()).unwrap();
                thread::park();
            };
            waits_in_a_section(rt, wait, || receiver.recv().unwrap().unpark())
        });
    });
}

/// A time is the kernel's to keep, and `errno` arrives: `std` tells a timeout from a wake by it.
#[test]
fn waits_for_locks_end_at_their_time() {
    run(|rt| {
        let before = sections(rt);
        let (flag, changed) = (Mutex::new(()), Condvar::new());
        let guard = flag.lock().unwrap();
        let time = Duration::from_millis(5);
        let (_guard, outcome) = changed.wait_timeout_while(guard, time, |()| true).unwrap();
        assert!(outcome.timed_out());
        assert!(sections(rt) > before);
    });
}

#[test]
fn pollers_and_file_locks_hand_the_p_over() {
    run(|rt| {
        soon(|| {
            let (a, b) = UnixStream::pair().unwrap();
            let mut event = libc::epoll_event {
                events: libc::EPOLLIN as u32,
                u64: 5,
            };
            // SAFETY: the event is valid during the call.
            let set = unsafe {
                let set = libc::epoll_create1(libc::EPOLL_CLOEXEC);
                let r = libc::epoll_ctl(set, libc::EPOLL_CTL_ADD, a.as_raw_fd(), &raw mut event);
                assert_eq!(r, 0);
                set
            };
            let wait = move || {
                let mut event = libc::epoll_event { events: 0, u64: 0 };
                // SAFETY: as above.
                let n = unsafe { libc::epoll_wait(set, &raw mut event, 1, -1) };
                assert_eq!((n, { event.u64 }), (1, 5));
            };
            let in_section = waits_in_a_section(rt, wait, || drop(b));
            // SAFETY: this test has opened it.
            unsafe { libc::close(set) };
            in_section
        });
        let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("flock");
        soon(|| {
            let open = || std::fs::File::create(&path).unwrap();
            let (first, second) = (open(), open());
            first.lock().unwrap();
            waits_in_a_section(rt, || second.lock().unwrap(), || first.unlock().unwrap())
        });
        std::fs::remove_file(&path).unwrap();
    });
}

/// Calls by number that are not waits, and their errors.
#[test]
fn other_calls_by_number_are_made_as_before() {
    run(|_| {
        // SAFETY: plain numbers; the address of the last call is one that the kernel refuses.
        unsafe {
            let pid = libc::syscall(libc::SYS_getpid);
            assert_eq!(pid, libc::c_long::from(std::process::id()));
            assert_eq!(libc::syscall(libc::SYS_close, -1), -1);
            let errno = || std::io::Error::last_os_error().raw_os_error();
            assert_eq!(errno(), Some(libc::EBADF));
            let bad = std::ptr::null::<u32>();
            let r = libc::syscall(libc::SYS_futex, bad, libc::FUTEX_WAIT, 1, 0_usize);
            assert_eq!((r, errno()), (-1, Some(libc::EFAULT)));
        }
        // The sixth argument is the last in a register of C, the seventh lies on the stack.
        let page = 4096_usize;
        // SAFETY: maps a page of a file, which nobody reads, and unmaps it.
        unsafe {
            let file = std::fs::File::open("/proc/self/exe").unwrap();
            let at = libc::syscall(
                libc::SYS_mmap,
                0_usize,
                page,
                libc::PROT_READ as libc::c_long,
                libc::MAP_PRIVATE as libc::c_long,
                file.as_raw_fd() as libc::c_long,
                // Not a multiple of a page: refused, if it arrives.
                1_usize,
            );
            assert_eq!(at, -1);
            let errno = std::io::Error::last_os_error().raw_os_error();
            assert_eq!(errno, Some(libc::EINVAL));
        }
    });
}

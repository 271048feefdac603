//! `windlass::signal`. Signals are the whole process's: each test has its own.
#![allow(unsafe_code)]

mod util;

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::panic::catch_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use windlass::time::{Duration, Instant};

use windlass::context::{Context, Error};
use windlass::fs::{self, File};
use windlass::process::Command;
use windlass::signal::{
    Received, SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2, Signals, ctrl_c, notify_context,
};
use windlass::{Handle, spawn, yield_now};

/// How long a test waits for what does not come.
const SHORT: Duration = Duration::from_millis(20);

/// Runs a test in a process of its own.
fn alone(name: &str, test: impl FnOnce()) {
    if util::child_case().is_some() {
        test();
    } else {
        util::child_passes(name, "signal");
    }
}

/// On a plain thread, and on a goroutine of a single P, which must not be blocked.
fn both(test: impl Fn() + Send + Sync) {
    test();
    util::runtime(1).run(&test);
}

/// Sends to the calling thread: the handler has run when this returns.
fn raise(signal: i32) {
    // SAFETY: takes a plain integer.
    assert_eq!(unsafe { libc::raise(signal) }, 0);
}

/// Sends to the process: any thread may run the handler, a little later.
fn send(signal: i32) {
    // SAFETY: plain integers; the process is this one.
    assert_eq!(unsafe { libc::kill(libc::getpid(), signal) }, 0);
}

#[test]
fn a_signal_is_received() {
    alone("a_signal_is_received", || {
        both(|| {
            let mut signals = Signals::new([SIGUSR1, SIGTERM]).unwrap();
            assert_eq!(signals.try_recv(), None);
            for _ in 0..100 {
                raise(SIGUSR1);
                assert_eq!(signals.recv().unwrap(), SIGUSR1);
            }
            // One of each, however often they came.
            raise(SIGTERM);
            raise(SIGUSR1);
            raise(SIGTERM);
            assert_eq!(signals.next(), Some(SIGUSR1));
            assert_eq!((&signals).next(), Some(SIGTERM));
            assert_eq!(signals.try_recv(), None);
            signals.add_signal(SIGHUP).unwrap();
            signals.add_signal(SIGHUP).unwrap();
            raise(SIGHUP);
            assert_eq!(signals.try_recv(), Some(SIGHUP));
            assert_eq!(signals.try_recv(), None);
        });
    });
}

#[test]
fn a_signal_cancels_a_context() {
    alone("a_signal_cancels_a_context", || {
        util::runtime(2).run(|| {
            let background = Context::background();
            let (ctx, _canceller) = notify_context(&background, [SIGUSR1, SIGUSR2]).unwrap();
            assert_eq!(ctx.err(), None);
            send(SIGUSR2);
            ctx.wait();
            let cause = ctx.cause().unwrap().downcast_ref::<Received>();
            assert_eq!(cause.unwrap().signal(), SIGUSR2);
            // Nobody listens any more.
            let (ctx, canceller) = notify_context(&background, [SIGUSR1]).unwrap();
            drop(canceller);
            assert_eq!(ctx.err(), Some(Error::Cancelled));
            util::wait_until(|| Handle::current().goroutines().len() == 1);
            assert!(ctx.cause().is_none());
        });
    });
}

#[test]
fn a_context_off_the_runtime_leaves_the_signals_alone() {
    alone("a_context_off_the_runtime_leaves_the_signals_alone", || {
        let made = catch_unwind(|| notify_context(&Context::background(), [SIGUSR1]));
        assert!(made.is_err());
        // SAFETY: all zeros is an action, and the call only writes it.
        let action = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            libc::sigaction(SIGUSR1, std::ptr::null(), &raw mut action);
            action
        };
        assert_eq!(action.sa_sigaction, libc::SIG_DFL);
    });
}

#[test]
fn a_receiver_parks() {
    alone("a_receiver_parks", || {
        util::run(1, || {
            let signals = Signals::new([SIGUSR1]).unwrap();
            let task = spawn(move || (0..50).map(|_| signals.recv().unwrap()).collect::<Vec<_>>());
            while !task.is_finished() {
                send(SIGUSR1);
                windlass::sleep(Duration::from_micros(200));
            }
            assert_eq!(task.join().unwrap(), vec![SIGUSR1; 50]);
        });
    });
}

/// Whoever sends waits for the answer, so each signal is one by itself and counts.
#[test]
fn every_listener_hears_every_signal() {
    alone("every_listener_hears_every_signal", || {
        util::run(4, || {
            const LISTENERS: usize = 20;
            let heard = Arc::new(AtomicUsize::new(0));
            let tasks: Vec<_> = (0..LISTENERS)
                .map(|_| {
                    let heard = Arc::clone(&heard);
                    let signals = Signals::new([SIGUSR1, SIGUSR2]).unwrap();
                    spawn(move || {
                        for signal in signals {
                            if signal == SIGUSR2 {
                                return;
                            }
                            heard.fetch_add(1, Ordering::SeqCst);
                        }
                    })
                })
                .collect();
            for round in 1..=200 {
                send(SIGUSR1);
                util::wait_until(|| heard.load(Ordering::SeqCst) == round * LISTENERS);
            }
            send(SIGUSR2);
            tasks.into_iter().for_each(|t| t.join().unwrap());
            assert_eq!(heard.load(Ordering::SeqCst), 200 * LISTENERS);
        });
    });
}

#[test]
fn receivers_of_one_listener_share_its_signals() {
    alone("receivers_of_one_listener_share_its_signals", || {
        util::run(4, || {
            let signals = Arc::new(Signals::new([SIGUSR1, SIGUSR2, SIGHUP, SIGTERM]).unwrap());
            for _ in 0..100 {
                let tasks: Vec<_> = (0..4)
                    .map(|_| {
                        let signals = Arc::clone(&signals);
                        spawn(move || signals.recv().unwrap())
                    })
                    .collect();
                yield_now();
                [SIGUSR1, SIGUSR2, SIGHUP, SIGTERM]
                    .into_iter()
                    .for_each(raise);
                let mut got: Vec<_> = tasks.into_iter().map(|t| t.join().unwrap()).collect();
                got.sort_unstable();
                let mut all = [SIGUSR1, SIGUSR2, SIGHUP, SIGTERM];
                all.sort_unstable();
                assert_eq!(got, all);
            }
        });
    });
}

#[test]
fn ctrl_c_wakes_all_and_forgets_none() {
    alone("ctrl_c_wakes_all_and_forgets_none", || {
        util::run(2, || {
            let waiters: Vec<_> = (0..10).map(|_| spawn(|| ctrl_c().unwrap())).collect();
            // Once a waiter listens, SIGINT does not end the process. They all do when none
            // runs any more.
            windlass::sleep(SHORT);
            let guard = Signals::new([SIGINT]).unwrap();
            send(SIGINT);
            waiters.into_iter().for_each(|w| w.join().unwrap());
            drop(guard);
            // Nobody waits: it is there for the next one, once.
            send(SIGINT);
            ctrl_c().unwrap();
            let late = spawn(|| ctrl_c().unwrap());
            windlass::sleep(SHORT);
            assert!(!late.is_finished());
            send(SIGINT);
            late.join().unwrap();
        });
        send(SIGINT);
        ctrl_c().unwrap();
    });
}

/// Signals interrupt system calls; nobody may notice.
#[test]
fn a_storm_of_signals_disturbs_nobody() {
    alone("a_storm_of_signals_disturbs_nobody", || {
        let storm = Signals::new([SIGUSR1, SIGUSR2]).unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&over);
        let sender = std::thread::spawn(move || {
            while !until.load(Ordering::SeqCst) {
                send(SIGUSR1);
                send(SIGUSR2);
            }
        });
        let path = std::env::temp_dir().join(format!("windlass-storm-{}", std::process::id()));
        let work = || {
            let (reader, writer) = io::pipe().unwrap();
            let mut reader = File::from(OwnedFd::from(reader));
            let mut writer = File::from(OwnedFd::from(writer));
            for i in 0..30_u32 {
                fs::write(&path, vec![1; 100_000]).unwrap();
                assert_eq!(fs::read(&path).unwrap().len(), 100_000);
                File::open(&path).unwrap().sync_all().unwrap();
                fs::copy(&path, path.with_extension("copy")).unwrap();
                writer.write_all(&i.to_ne_bytes()).unwrap();
                let mut bytes = [0; 4];
                reader.read_exact(&mut bytes).unwrap();
                assert_eq!(u32::from_ne_bytes(bytes), i);
                reader.set_read_deadline(Some(Instant::now() + Duration::from_micros(300)));
                let e = reader.read(&mut bytes).unwrap_err();
                assert_eq!(e.kind(), io::ErrorKind::WouldBlock);
                reader.set_read_deadline(None);
                let output = Command::new("echo").arg("x").output().unwrap();
                assert_eq!(output.stdout, b"x\n");
                assert!(fs::metadata(&path).unwrap().is_file());
            }
        };
        work();
        util::runtime(2).run(|| {
            let other = spawn(move || {
                for _ in 0..200 {
                    storm.recv().unwrap();
                }
            });
            work();
            other.join().unwrap();
        });
        over.store(true, Ordering::SeqCst);
        sender.join().unwrap();
        fs::remove_file(&path).unwrap();
        fs::remove_file(path.with_extension("copy")).unwrap();
    });
}

#[test]
fn handlers_of_others_are_called_too() {
    static BEFORE: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn before(_: i32) {
        BEFORE.fetch_add(1, Ordering::SeqCst);
    }
    alone("handlers_of_others_are_called_too", || {
        // SAFETY: the handler has the right type and only touches an atomic.
        unsafe { libc::signal(SIGUSR1, before as *const () as usize) };
        let beside = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&beside);
        let signals = Signals::new([SIGUSR1]).unwrap();
        // SAFETY: the action only touches an atomic.
        unsafe {
            signal_hook::low_level::register(SIGUSR1, move || {
                count.fetch_add(1, Ordering::SeqCst);
            })
        }
        .unwrap();
        for i in 1..=10 {
            raise(SIGUSR1);
            assert_eq!(signals.recv().unwrap(), SIGUSR1);
            assert_eq!(BEFORE.load(Ordering::SeqCst), i);
            util::wait_until(|| beside.load(Ordering::SeqCst) == i);
        }
        // Its listener is gone: the process is not ended, and the others still hear.
        drop(signals);
        raise(SIGUSR1);
        util::wait_until(|| beside.load(Ordering::SeqCst) == 11);
        assert_eq!(BEFORE.load(Ordering::SeqCst), 11);
    });
}

/// A goroutine's stack may have no room for the frame of a signal: the kernel then discards the signal.
#[test]
fn handlers_leave_the_stack_of_the_goroutine_alone() {
    static AT: AtomicUsize = AtomicUsize::new(0);
    fn note() {
        let here = 0_u8;
        AT.store((&raw const here).addr(), Ordering::SeqCst);
    }
    alone("handlers_leave_the_stack_of_the_goroutine_alone", || {
        util::runtime(1).run(|| {
            for signal in [SIGUSR1, SIGINT] {
                let listener = match signal {
                    // It counts by a handler of its own.
                    SIGINT => windlass::time::timeout(SHORT, ctrl_c).err().map(|_| None),
                    _ => Signals::new([signal]).ok().map(Some),
                };
                assert!(listener.is_some());
                // SAFETY: the action stores to an atomic.
                unsafe { signal_hook::low_level::register(signal, note) }.unwrap();
                let sender = windlass::task::Builder::new().stack_size(64 * 1024);
                let sender = sender.spawn(move || {
                    let here = 0_u8;
                    raise(signal);
                    (&raw const here).addr()
                });
                let from = sender.unwrap().join().unwrap();
                let at = AT.swap(0, Ordering::SeqCst);
                // This stack goes on below, by less than its size.
                assert!(
                    at != 0 && !(from - 60 * 1024..from).contains(&at),
                    "{signal}"
                );
            }
        });
    });
}

/// As in a daemon. The child has the handlers of its parent, and hears by listeners of its own: on a plain thread
/// and on a goroutine.
#[test]
fn a_child_of_fork_hears_for_itself() {
    alone("a_child_of_fork_hears_for_itself", || {
        let of_parent = Signals::new([SIGUSR1]).unwrap();
        let waits = || windlass::time::timeout(SHORT, ctrl_c);
        assert!(util::runtime(1).run(waits).is_err());
        let hears = move || {
            std::thread::spawn(|| {
                loop {
                    windlass::sleep(SHORT);
                    raise(SIGINT);
                }
            });
            ctrl_c().unwrap();
            util::runtime(1).run(|| {
                ctrl_c().unwrap();
                raise(SIGUSR1);
                of_parent.recv().unwrap_err();
            });
        };
        // SAFETY: this thread alone runs windlass here, and the child has no other.
        match unsafe { libc::fork() } {
            0 => {
                // SAFETY: takes a number. It ends a child that hangs.
                unsafe { libc::alarm(60) };
                let is_well = catch_unwind(std::panic::AssertUnwindSafe(hears)).is_ok();
                // SAFETY: takes a number, and runs nothing of the parent.
                unsafe { libc::_exit(i32::from(!is_well)) };
            }
            pid => {
                let mut status = -1;
                // SAFETY: the status is valid for writes, and the child is this process's.
                assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
                assert_eq!(status, 0);
            }
        }
    });
}

#[test]
fn some_signals_are_refused() {
    let refused = [
        libc::SIGKILL,
        libc::SIGSTOP,
        libc::SIGSEGV,
        libc::SIGILL,
        libc::SIGFPE,
        0,
        -1,
        65,
        i32::MAX,
    ];
    for signal in refused {
        let e = Signals::new([signal]).unwrap_err();
        assert_eq!(e.kind(), io::ErrorKind::InvalidInput);
        assert_eq!(
            e.to_string(),
            format!("signal {signal} cannot be listened to")
        );
    }
    assert!(Signals::new([0; 0]).is_ok());
}

#[test]
fn a_run_ends_with_receivers_and_nothing_leaks() {
    alone("a_run_ends_with_receivers_and_nothing_leaks", || {
        let census = util::Census::default();
        drop(Signals::new([SIGUSR1, SIGINT]).unwrap());
        let fds = util::open_fds();
        for _ in 0..3 {
            util::runtime(2).run(|| {
                for i in 0..6 {
                    let member = census.member();
                    spawn(move || {
                        let _member = member;
                        match i % 2 {
                            0 => drop(Signals::new([SIGUSR1]).unwrap().recv()),
                            _ => drop(ctrl_c()),
                        }
                        unreachable!("nobody sends");
                    });
                }
                windlass::sleep(SHORT);
            });
        }
        census.assert_all_dropped(18);
        assert_eq!(util::open_fds(), fds);
    });
}

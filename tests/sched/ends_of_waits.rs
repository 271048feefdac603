//! Every way to wait, in a destructor: while the run ends, while the goroutine unwinds from a panic
//! of its own and the run ends, and while its context is cancelled; and in a blocking section while the run ends. None
//! may hang, and none may end the process: docs/SAFETY.md says how each ends. Each case is a process of its own, because
//! a destructor that panics there ends the process.

use std::io::{Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use crate::util::{child, child_case, child_command, pair, runtime, wait_until};
use windlass::channel::{self, Select};
use windlass::context::{Context, shield};
use windlass::net::{TcpListener, TcpStream, UdpSocket, UnixDatagram, UnixStream};
use windlass::process::Command;
use windlass::signal::Signals;
use windlass::sync::{
    Barrier, Condvar, LazyLock, Mutex, Notify, Once, OnceLock, RwLock, Semaphore, SingleFlight,
    WaitGroup, mpsc,
};
use windlass::task::{Cancelled, Group, JoinSet};
use windlass::time::{Timer, interval_at, timeout};
use windlass::{Handle, blocking, io, par, sleep, spawn, task, thread};

const FOREVER: Duration = Duration::from_secs(1 << 30);

/// The effect of the current context on a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InContext {
    Ends,
    Goes,
}
use InContext::{Ends, Goes};

/// A wait that nobody ends.
type Wait = Box<dyn FnOnce() + Send>;

/// Prepares a wait, in the main goroutine.
type Prepare = fn() -> Wait;

fn wait(f: impl FnOnce() + Send + 'static) -> Wait {
    Box::new(f)
}

/// Spawns a goroutine that takes something by `take` and keeps it until the run ends.
fn keep<T>(take: impl FnOnce() -> T + Send + 'static) {
    let has = Arc::new(AtomicBool::new(false));
    let says = Arc::clone(&has);
    spawn(move || {
        let _kept = take();
        says.store(true, Ordering::SeqCst);
        task::park_timeout(FOREVER);
    });
    wait_until(|| has.load(Ordering::SeqCst));
}

/// Spawns a goroutine that runs `f`, a function that calls its argument and is over after that, and
/// stays in it until the run ends.
fn keep_inside(f: impl FnOnce(&dyn Fn()) + Send + 'static) {
    let is_in = Arc::new(AtomicBool::new(false));
    let says = Arc::clone(&is_in);
    spawn(move || {
        f(&|| {
            says.store(true, Ordering::SeqCst);
            sleep(FOREVER);
        });
    });
    wait_until(|| is_in.load(Ordering::SeqCst));
}

/// Keeps the other end of what is waited for.
fn leak<T>(value: T) {
    std::mem::forget(value);
}

fn park_for_ever() {
    loop {
        task::park();
    }
}

const WAYS: &[(&str, InContext, Prepare)] = &[
    ("park", Ends, || wait(task::park)),
    ("park_timeout", Ends, || {
        wait(|| task::park_timeout(FOREVER))
    }),
    ("sleep", Ends, || wait(|| sleep(FOREVER))),
    ("sleep in a blocking section", Ends, || {
        wait(|| blocking(|| sleep(FOREVER)))
    }),
    ("sleep with a locked thread", Ends, || {
        wait(|| {
            let _locked = task::lock_thread();
            sleep(FOREVER);
        })
    }),
    ("park with a locked thread", Ends, || {
        wait(|| {
            let _locked = task::lock_thread();
            task::park();
        })
    }),
    ("timeout", Ends, || {
        wait(|| _ = timeout(FOREVER, || sleep(FOREVER)))
    }),
    ("join", Goes, || {
        let parked = spawn(park_for_ever);
        wait(move || assert!(parked.join().is_err()))
    }),
    ("join of another runtime", Goes, || {
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            runtime(1).run(|| {
                sender.send(Handle::current()).unwrap();
                park_for_ever();
            })
        });
        let parked = receiver.recv().unwrap().spawn(park_for_ever);
        wait(move || assert!(parked.join().is_err()))
    }),
    ("join_timeout", Ends, || {
        let parked = spawn(park_for_ever);
        wait(move || drop(parked.join_timeout(FOREVER)))
    }),
    ("scope", Goes, || {
        wait(|| {
            task::scope(|s| {
                s.spawn(|| sleep(FOREVER));
            });
        })
    }),
    ("scope_in", Ends, || {
        wait(|| {
            task::scope_in(&Context::background(), |s| {
                s.spawn(|| sleep(FOREVER));
            });
        })
    }),
    ("thread::scope", Goes, || {
        wait(|| {
            thread::scope(|s| {
                s.spawn(|| sleep(FOREVER));
            });
        })
    }),
    ("join in a scope", Goes, || {
        wait(|| task::scope(|s| assert!(s.spawn(park_for_ever).join().is_err())))
    }),
    ("fork-join", Ends, || {
        wait(|| _ = windlass::join(|| sleep(FOREVER), || sleep(FOREVER)))
    }),
    ("par", Ends, || {
        wait(|| par::for_each(0..3, |_| sleep(FOREVER)))
    }),
    ("Group::wait", Goes, || {
        let group = Group::<()>::new();
        group.spawn(|| {
            sleep(FOREVER);
            Ok(())
        });
        wait(move || assert_eq!(group.wait(), Ok(())))
    }),
    ("Group::spawn", Goes, || {
        let group = Group::<()>::new().limit(1);
        let member = || {
            sleep(FOREVER);
            Ok(())
        };
        group.spawn(member);
        wait(move || group.spawn(member))
    }),
    ("JoinSet::join_next", Goes, || {
        let mut set = JoinSet::new();
        set.spawn(park_for_ever);
        wait(move || drop(set.join_next()))
    }),
    ("JoinSet::join_next_timeout", Ends, || {
        let mut set = JoinSet::new();
        set.spawn(park_for_ever);
        wait(move || drop(set.join_next_timeout(FOREVER)))
    }),
    ("JoinSet::shutdown", Goes, || {
        let mut set = JoinSet::new();
        set.spawn(|| shield(park_for_ever));
        wait(move || set.shutdown())
    }),
    ("Interval::tick", Ends, || {
        let mut ticks = interval_at(Instant::now() + Duration::from_secs(3600), FOREVER);
        wait(move || _ = ticks.tick())
    }),
    ("Timer", Ends, || {
        let timer = Timer::new(FOREVER);
        wait(move || assert!(timer.channel().recv().is_err()))
    }),
    ("Context::wait", Ends, || {
        let (ctx, canceller) = Context::background().with_cancel();
        leak(canceller);
        wait(move || ctx.wait())
    }),
    ("Context::wait_timeout", Ends, || {
        let (ctx, canceller) = Context::background().with_cancel();
        leak(canceller);
        wait(move || assert!(!ctx.wait_timeout(FOREVER)))
    }),
    ("Context::done", Ends, || {
        let (ctx, canceller) = Context::background().with_cancel();
        leak(canceller);
        wait(move || assert!(ctx.done().recv().is_err()))
    }),
    ("Mutex::lock", Goes, || {
        let lock = Arc::new(Mutex::new(()));
        let theirs = Arc::clone(&lock);
        keep_inside(move |stay| {
            let _locked = theirs.lock().unwrap();
            stay();
        });
        wait(move || drop(lock.lock().unwrap()))
    }),
    ("RwLock::read", Goes, || {
        let lock = Arc::new(RwLock::new(()));
        let theirs = Arc::clone(&lock);
        keep_inside(move |stay| {
            let _locked = theirs.write().unwrap();
            stay();
        });
        wait(move || drop(lock.read().unwrap()))
    }),
    ("RwLock::write", Goes, || {
        let lock = Arc::new(RwLock::new(()));
        let theirs = Arc::clone(&lock);
        keep_inside(move |stay| {
            let _locked = theirs.read().unwrap();
            stay();
        });
        wait(move || drop(lock.write().unwrap()))
    }),
    ("Once::call_once", Goes, || {
        static ONCE: Once = Once::new();
        keep_inside(|stay| ONCE.call_once(stay));
        wait(|| ONCE.call_once(|| ()))
    }),
    ("OnceLock::get_or_init", Goes, || {
        static CELL: OnceLock<()> = OnceLock::new();
        keep_inside(|stay| _ = CELL.get_or_init(stay));
        wait(|| _ = CELL.get_or_init(|| ()))
    }),
    ("SingleFlight::run", Goes, || {
        static FLIGHTS: OnceLock<SingleFlight<u8, ()>> = OnceLock::new();
        FLIGHTS.get_or_init(SingleFlight::new);
        keep_inside(|stay| FLIGHTS.get().unwrap().run(7, stay));
        wait(|| FLIGHTS.get().unwrap().run(7, || ()))
    }),
    ("Condvar::wait", Goes, || {
        let both = Arc::new((Mutex::new(()), Condvar::new()));
        wait(move || drop(both.1.wait(both.0.lock().unwrap()).unwrap()))
    }),
    ("Condvar::wait_timeout", Ends, || {
        let both = Arc::new((Mutex::new(()), Condvar::new()));
        wait(move || {
            let (_guard, outcome) = both
                .1
                .wait_timeout(both.0.lock().unwrap(), FOREVER)
                .unwrap();
            assert!(outcome.timed_out());
        })
    }),
    ("Semaphore::acquire", Ends, || {
        wait(|| assert!(Semaphore::new(0).acquire(1).is_err()))
    }),
    ("Semaphore::acquire_timeout", Ends, || {
        wait(|| assert!(Semaphore::new(0).acquire_timeout(1, FOREVER).is_err()))
    }),
    ("Semaphore::acquire_owned", Ends, || {
        let none = Arc::new(Semaphore::new(0));
        wait(move || assert!(none.acquire_owned(1).is_err()))
    }),
    ("Barrier", Goes, || wait(|| _ = Barrier::new(2).wait())),
    ("WaitGroup", Goes, || {
        let group = WaitGroup::new();
        group.add(1);
        wait(move || group.wait())
    }),
    ("Notify::wait", Goes, || wait(|| Notify::new().wait())),
    ("Notify::wait_timeout", Ends, || {
        wait(|| assert!(!Notify::new().wait_timeout(FOREVER)))
    }),
    ("Listener::wait", Goes, || {
        wait(|| {
            let notify = Notify::new();
            notify.listen().wait();
        })
    }),
    ("send", Ends, || {
        let (sender, receiver) = channel::bounded(1);
        leak(receiver);
        sender.send(1).unwrap();
        wait(move || assert!(sender.send(2).is_err()))
    }),
    ("send_timeout", Ends, || {
        let (sender, receiver) = channel::bounded(0);
        leak(receiver);
        wait(move || assert!(sender.send_timeout(2, FOREVER).is_err()))
    }),
    ("recv", Ends, || {
        let (sender, receiver) = channel::bounded::<()>(0);
        leak(sender);
        wait(move || assert!(receiver.recv().is_err()))
    }),
    ("recv_timeout", Ends, || {
        let (sender, receiver) = channel::unbounded::<()>();
        leak(sender);
        wait(move || assert!(receiver.recv_timeout(FOREVER).is_err()))
    }),
    ("recv of a promise", Ends, || {
        let (sender, receiver) = channel::bounded::<()>(0);
        spawn(move || {
            let mut select = Select::new();
            select.send(&sender);
            leak(select.select());
            park_for_ever();
        });
        wait(move || assert!(receiver.recv().is_err()))
    }),
    ("Select::select", Goes, || {
        let (sender, receiver) = channel::bounded::<()>(0);
        leak(sender);
        wait(move || {
            let mut select = Select::new();
            select.recv(&receiver);
            assert!(select.select().recv(&receiver).is_err());
        })
    }),
    ("Select::ready", Goes, || {
        let (sender, receiver) = channel::bounded::<()>(0);
        leak(sender);
        wait(move || {
            let mut select = Select::new();
            select.recv(&receiver);
            assert_eq!(select.ready(), 0);
        })
    }),
    ("oneshot recv", Ends, || {
        let (sender, receiver) = channel::oneshot::<()>();
        leak(sender);
        wait(move || assert!(receiver.recv().is_err()))
    }),
    ("oneshot closed", Goes, || {
        let (sender, receiver) = channel::oneshot::<()>();
        leak(receiver);
        wait(move || sender.closed())
    }),
    ("broadcast recv", Ends, || {
        let (sender, receiver) = channel::broadcast::<()>(1);
        leak(sender);
        wait(move || assert!(receiver.recv().is_err()))
    }),
    ("watch changed", Ends, || {
        let (sender, receiver) = channel::watch(());
        leak(sender);
        wait(move || assert!(receiver.changed().is_err()))
    }),
    ("watch wait_for", Ends, || {
        let (sender, receiver) = channel::watch(());
        leak(sender);
        wait(move || assert!(receiver.wait_for(|()| false).is_err()))
    }),
    ("mpsc recv", Ends, || {
        let (sender, receiver) = mpsc::channel::<()>();
        leak(sender);
        wait(move || assert!(receiver.recv().is_err()))
    }),
    ("mpsc send", Ends, || {
        let (sender, receiver) = mpsc::sync_channel(0);
        leak(receiver);
        wait(move || assert!(sender.send(()).is_err()))
    }),
    ("TCP read", Ends, || {
        let (mut near, far) = pair();
        leak(far);
        wait(move || assert!(near.read(&mut [0]).is_err()))
    }),
    ("TCP peek", Ends, || {
        let (near, far) = pair();
        leak(far);
        wait(move || assert!(near.peek(&mut [0]).is_err()))
    }),
    ("TCP write", Ends, || {
        let (mut near, far) = pair();
        leak(far);
        wait(move || while near.write(&[0; 1 << 16]).is_ok() {})
    }),
    ("TCP recv_owned", Ends, || {
        let (near, far) = pair();
        leak(far);
        wait(move || assert!(near.recv_owned().is_err()))
    }),
    ("TCP accept", Ends, || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        wait(move || assert!(listener.accept().is_err()))
    }),
    ("TCP accept_stream", Ends, || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        wait(move || assert!(listener.accept_stream().accept().is_err()))
    }),
    ("TCP connect", Ends, || {
        let full = super::shutdown::full_listener();
        let addr = full.addr;
        leak(full);
        wait(move || assert!(TcpStream::connect(addr).is_err()))
    }),
    ("UDP recv", Ends, || {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        wait(move || assert!(socket.recv_from(&mut [0]).is_err()))
    }),
    ("Unix read", Ends, || {
        let (mut near, far) = UnixStream::pair().unwrap();
        leak(far);
        wait(move || assert!(near.read(&mut [0]).is_err()))
    }),
    ("Unix datagram recv", Ends, || {
        let (near, far) = UnixDatagram::pair().unwrap();
        leak(far);
        wait(move || assert!(near.recv(&mut [0]).is_err()))
    }),
    ("readable", Ends, || {
        let (near, far) = pair();
        leak(far);
        wait(move || assert!(io::wait_readable(&near).is_err()))
    }),
    ("copy", Ends, || {
        let (mut near, far) = pair();
        let (mut to, to_far) = pair();
        leak((far, to_far));
        wait(move || assert!(io::copy(&mut near, &mut to).is_err()))
    }),
    ("pipe read", Ends, || {
        let (mut reader, writer) = io::pipe().unwrap();
        leak(writer);
        wait(move || assert!(reader.read(&mut [0]).is_err()))
    }),
    ("pipe write", Ends, || {
        let (reader, mut writer) = io::pipe().unwrap();
        leak(reader);
        wait(move || while writer.write(&[0; 4096]).is_ok() {})
    }),
    ("Child::wait", Ends, || {
        let mut child = Command::new("sleep").arg("3600").spawn().unwrap();
        child.kill_on_drop(true);
        wait(move || assert!(child.wait().is_err()))
    }),
    ("Signals::recv", Ends, || {
        let signals = Signals::new([libc::SIGUSR1]).unwrap();
        wait(move || assert!(signals.recv().is_err()))
    }),
];

/// How the destructor comes to run, or that the wait is not in one.
const CASES: [&str; 4] = ["end", "panic", "context", "blocking"];

/// Those whose holder the end of the run may end first, so that the wait gets it.
const GIVEN_AT_THE_END: [&str; 7] = [
    "Group::spawn",
    "Mutex::lock",
    "RwLock::read",
    "RwLock::write",
    "Once::call_once",
    "OnceLock::get_or_init",
    "SingleFlight::run",
];

/// Waits when it is dropped.
struct WaitsOnDrop {
    wait: Option<Wait>,
    begun: Arc<AtomicBool>,
    ended: Arc<AtomicBool>,
}

impl Drop for WaitsOnDrop {
    fn drop(&mut self) {
        self.begun.store(true, Ordering::SeqCst);
        self.wait.take().unwrap()();
        self.ended.store(true, Ordering::SeqCst);
    }
}

/// Long enough for a wait to begin, and to end if it does.
const A_MOMENT: Duration = Duration::from_millis(30);

/// In a process of its own.
fn check(way: usize, case: &str) {
    let (name, in_context, prepare) = WAYS[way];
    let (begun, ended) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
    let is_set = |flag: &Arc<AtomicBool>| flag.load(Ordering::SeqCst);
    runtime(2).run(|| {
        let wait = prepare();
        if case == "blocking" {
            let (begins, ends) = (Arc::clone(&begun), Arc::clone(&ended));
            spawn(move || {
                begins.store(true, Ordering::SeqCst);
                let ended = match catch_unwind(AssertUnwindSafe(|| blocking(wait))) {
                    Ok(()) => GIVEN_AT_THE_END.contains(&name),
                    Err(payload) => payload.is::<Cancelled>(),
                };
                ends.store(ended, Ordering::SeqCst);
            });
            wait_until(|| is_set(&begun));
            return sleep(A_MOMENT);
        }
        let waits = WaitsOnDrop {
            wait: Some(wait),
            begun: Arc::clone(&begun),
            ended: Arc::clone(&ended),
        };
        if case == "end" {
            keep(move || waits);
            return;
        }
        let (mut ctx, canceller) = Context::background().with_cancel();
        if case == "panic" {
            ctx = Context::background();
        }
        spawn(move || {
            ctx.run(move || {
                let _waits = waits;
                resume_unwind(Box::new("a panic of its own"));
            });
        });
        wait_until(|| is_set(&begun));
        sleep(A_MOMENT);
        assert!(!is_set(&ended), "{name} does not wait");
        if case == "context" {
            canceller.cancel();
            match in_context {
                Ends => wait_until(|| is_set(&ended)),
                Goes => {
                    sleep(A_MOMENT);
                    assert!(!is_set(&ended), "a context ends {name}");
                }
            }
        }
    });
    assert!(is_set(&ended), "{name} was cut off");
}

/// Children at the same time for each CPU: they mostly wait.
const AT_ONCE: usize = 4;

#[test]
fn every_wait_in_a_destructor_or_a_blocking_section_ends() {
    if let Some(case) = child_case() {
        let (case, way) = case.split_once(' ').unwrap();
        return check(way.parse().unwrap(), case);
    }
    let all: Vec<_> = (0..WAYS.len())
        .flat_map(|way| CASES.map(|case| (way, case)))
        .collect();
    let next = AtomicUsize::new(0);
    let failures = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|s| {
        for _ in 0..AT_ONCE * available_parallelism().unwrap().get() {
            s.spawn(|| {
                while let Some(&(way, case)) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let mut child = child_command(
                        "every_wait_in_a_destructor_or_a_blocking_section_ends",
                        &format!("{case} {way}"),
                    );
                    let output = child.output().unwrap();
                    let is_well = output.status.success()
                        && String::from_utf8_lossy(&output.stdout).contains("1 passed");
                    if !is_well {
                        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
                        let last: Vec<_> = stderr.lines().rev().take(6).collect();
                        let what = format!("{} ({case}): {}, {last:?}", WAYS[way].0, output.status);
                        failures.lock().unwrap().push(what);
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{failures:#?}");
}

/// There is no value to return, and none will come: the process ends, and says why.
#[test]
fn a_lazy_lock_whose_initialiser_was_cancelled_says_so() {
    static HAS_BEGUN: AtomicBool = AtomicBool::new(false);
    static IS_OVER: AtomicBool = AtomicBool::new(false);
    static LAZY: LazyLock<()> = LazyLock::new(|| {
        struct SaysSo;
        impl Drop for SaysSo {
            fn drop(&mut self) {
                IS_OVER.store(true, Ordering::SeqCst);
            }
        }
        let _says_so = SaysSo;
        HAS_BEGUN.store(true, Ordering::SeqCst);
        sleep(FOREVER);
    });
    if child_case().is_some() {
        struct Forces;
        impl Drop for Forces {
            fn drop(&mut self) {
                while !IS_OVER.load(Ordering::SeqCst) {
                    std::thread::yield_now();
                }
                LazyLock::force(&LAZY);
            }
        }
        runtime(2).run(|| {
            keep(|| Forces);
            spawn(|| _ = LazyLock::force(&LAZY));
            wait_until(|| HAS_BEGUN.load(Ordering::SeqCst));
        });
        return;
    }
    let output = child("a_lazy_lock_whose_initialiser_was_cancelled_says_so", "");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        stderr.contains("use LazyLock::get in destructors"),
        "{}: {stderr}",
        output.status
    );
}

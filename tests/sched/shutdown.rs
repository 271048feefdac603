//! The end of a run: what is parked is cancelled, unwound, and leaves nothing.
#![allow(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    reason = "blocking is part of what is tested"
)]

use std::io::{IoSliceMut, Read, Write};
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::util;
use crate::util::{
    Census, Gate, OpensOnDrop, build, hang_guard, pair, panic_text, runtime, wait_until,
};
use windlass::channel::{Receiver, Select, Sender, bounded, select};
use windlass::net::{TcpListener, TcpStream};
use windlass::sync::{Semaphore, WaitGroup};
use windlass::task::{self, Cancelled, JoinHandle};
use windlass::{Builder, Handle, Runtime, blocking, offload, sleep, spawn, yield_now};

const FOREVER: Duration = Duration::from_secs(1 << 30);

/// A listener to which no further connection can be made, kept so by its streams.
pub(crate) struct Full {
    _listener: std::net::TcpListener,
    pub(crate) addr: SocketAddr,
    _streams: Vec<TcpStream>,
}

pub(crate) fn full_listener() -> Full {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket
        .bind(&"127.0.0.1:0".parse::<SocketAddr>().unwrap().into())
        .unwrap();
    socket.listen(1).unwrap();
    let listener = std::net::TcpListener::from(socket);
    let addr = listener.local_addr().unwrap();
    let mut streams = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&addr, Duration::from_millis(200)) {
        streams.push(stream);
    }
    Full {
        _listener: listener,
        addr,
        _streams: streams,
    }
}

/// A stream that takes no more bytes, and its other end.
fn full_pipe() -> (TcpStream, TcpStream) {
    let (mut a, b) = pair();
    a.set_nonblocking(true).unwrap();
    while a.write(&[0; 100_000]).is_ok() {}
    a.set_nonblocking(false).unwrap();
    (a, b)
}

/// Starts goroutines that wait in every way there is. Each holds members of the
/// census in its frame; gives the handles of those that cannot end by themselves.
fn wait_in_every_way(census: &Census, full: &Arc<Full>) -> Vec<JoinHandle<()>> {
    let started = Arc::new(AtomicUsize::new(0));
    let mut all = Vec::new();
    macro_rules! waits {
        ($body:expr) => {{
            let (captured, in_frame) = (census.member(), census.member());
            let started = Arc::clone(&started);
            #[allow(unused_mut, reason = "some write to what they capture")]
            let mut body = $body;
            all.push(spawn(move || {
                let _captured = captured;
                let _in_frame = Box::new(in_frame);
                started.fetch_add(1, Ordering::SeqCst);
                body();
            }));
        }};
    }
    // The thread's own waits end when the cancellation has come to the others.
    let gate = Gate::default();
    waits!({
        let opens = OpensOnDrop(gate.clone());
        move || {
            let _opens = opens;
            task::park();
            unreachable!("nobody unparks");
        }
    });
    waits!(|| task::park_timeout(FOREVER));
    waits!(|| sleep(FOREVER));
    waits!(|| sleep(Duration::MAX));
    let parked = spawn(task::park);
    waits!(move || {
        // Cancelled while it joins, or told that the other one was.
        drop(parked.join());
        task::park();
    });
    waits!(|| loop {
        yield_now();
    });
    waits!(|| loop {
        sleep(Duration::from_micros(50));
    });
    waits!(|| {
        while spawn(yield_now).join().is_ok() {}
        task::park();
    });
    for timeout in [None, Some(FOREVER)] {
        let (mut a, b) = pair();
        a.set_read_timeout(timeout).unwrap();
        waits!(move || {
            let _b = b;
            let mut buf = [0; 100];
            let _ = a.read(&mut buf);
            unreachable!("nothing is sent");
        });
    }
    let (a, b) = pair();
    waits!(move || {
        let _b = b;
        let mut parts = ([0; 10], [0; 10]);
        let _ =
            (&a).read_vectored(&mut [IoSliceMut::new(&mut parts.0), IoSliceMut::new(&mut parts.1)]);
        unreachable!("nothing is sent");
    });
    let (a, b) = pair();
    waits!(move || {
        let _b = b;
        let _ = a.peek(&mut [0]);
        unreachable!("nothing is sent");
    });
    let (a, b) = pair();
    let both = Arc::new((a, b));
    for _ in 0..2 {
        // Each keeps the far end, too: it must not close while the other one still reads.
        let both = Arc::clone(&both);
        waits!(move || {
            let _ = (&both.0).read(&mut [0]);
            unreachable!("nothing is sent");
        });
    }
    drop(both);
    // Operations that come and go: some complete just while they are cancelled.
    let (mut a, mut b) = pair();
    waits!(move || {
        while a.write_all(&[1]).is_ok() && a.read_exact(&mut [0]).is_ok() {}
        task::park();
    });
    waits!(move || {
        while b.read_exact(&mut [0]).is_ok() && b.write_all(&[1]).is_ok() {}
        task::park();
    });
    let (mut a, b) = pair();
    a.set_read_timeout(Some(Duration::from_micros(100)))
        .unwrap();
    waits!(move || {
        let _b = b;
        loop {
            let _ = a.read(&mut [0]);
        }
    });
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    waits!(move || {
        let _ = listener.accept();
        unreachable!("nobody connects");
    });
    let addr = full.addr;
    let keeps = Arc::clone(full);
    waits!(move || {
        let _keeps = keeps;
        let _ = TcpStream::connect(addr);
        unreachable!("nobody accepts");
    });
    waits!(move || {
        let _ = TcpStream::connect_timeout(&addr, FOREVER);
        unreachable!("nobody accepts");
    });
    let (mut a, b) = full_pipe();
    waits!(move || {
        let _b = b;
        let bytes = vec![0; 1 << 20];
        loop {
            a.write_all(&bytes).unwrap();
        }
    });
    let members = [census.member(), census.member()];
    waits!(move || {
        let [own, theirs] = &members;
        task::scope(|s| {
            let _own = own;
            s.spawn(move || {
                let _theirs = theirs;
                task::park();
            });
            s.spawn(|| sleep(FOREVER));
        });
    });
    waits!(move || task::scope(|s| {
        drop(s.spawn(task::park).join());
        task::park();
    }));
    let waits = gate.clone();
    waits!(move || {
        offload(|| waits.wait());
        task::park();
    });
    let waits = gate.clone();
    waits!(move || {
        blocking(|| waits.wait());
        task::park();
    });
    let waits = gate.clone();
    waits!(move || {
        // Undeclared.
        waits.wait();
        task::park();
    });
    let waits = gate.clone();
    waits!(move || blocking(|| {
        waits.wait();
        sleep(FOREVER);
    }));
    let n = all.len();
    wait_until(|| started.load(Ordering::SeqCst) == n);
    // Most of them wait by now; those that are still on their way must be met there.
    for _ in 0..3 {
        sleep(Duration::from_micros(200));
    }
    // And one that has not begun.
    let member = census.member();
    all.push(spawn(move || {
        let _member = member;
        task::park();
    }));
    all
}

fn check_one_end(rt: &Runtime, full: &Arc<Full>) {
    let census = Census::default();
    let joins = rt.run(|| wait_in_every_way(&census, full));
    census.assert_all_dropped(census.made());
    assert!(census.made() > 50);
    for (i, join) in joins.into_iter().enumerate() {
        assert!(join.is_finished());
        let outcome = join.join();
        let payload = outcome.expect_err(&format!("waiter {i} must have been cancelled"));
        assert!(payload.is::<Cancelled>(), "waiter {i} panicked");
    }
    assert_eq!(rt.metrics().live_goroutines, 0);
}

#[test]
fn everything_parked_is_unwound() {
    let _guard = hang_guard();
    let full = Arc::new(full_listener());
    for n_ps in [1, 2, 4] {
        check_one_end(&runtime(n_ps), &full);
    }
}

/// In a process of its own, because it counts what the process holds.
#[test]
fn fifty_ends_leave_nothing_behind() {
    let Some(_) = util::child_case() else {
        util::child_passes("fifty_ends_leave_nothing_behind", "count");
        return;
    };
    let full = Arc::new(full_listener());
    let rt = runtime(3);
    check_one_end(&rt, &full);
    let fds = util::open_fds();
    let threads = util::n_threads();
    for _ in 0..25 {
        check_one_end(&rt, &full);
        assert_eq!(util::open_fds(), fds);
        assert_eq!(util::n_threads(), threads);
    }
    drop(rt);
    let fds = util::open_fds();
    for _ in 0..25 {
        check_one_end(&runtime(3), &full);
        assert_eq!(util::open_fds(), fds);
        assert_eq!(util::n_threads(), threads);
    }
}

#[test]
fn a_panic_of_main_cancels_the_others() {
    let _guard = hang_guard();
    let census = Census::default();
    let rt = runtime(2);
    let payload = catch_unwind(AssertUnwindSafe(|| {
        rt.run(|| -> () {
            for _ in 0..50 {
                let member = census.member();
                spawn(move || {
                    let _member = member;
                    task::park();
                });
            }
            yield_now();
            panic!("main, on purpose");
        })
    }))
    .unwrap_err();
    assert_eq!(panic_text(&*payload), "main, on purpose");
    census.assert_all_dropped(50);
}

/// Does something when it is dropped.
struct OnDrop<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        self.0.take().unwrap()();
    }
}

/// Parks a goroutine whose destructor does `f` when the run ends, and waits until
/// it has begun.
fn at_the_end<F: FnOnce() + Send + 'static>(f: F) -> JoinHandle<()> {
    let begun = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&begun);
    let on_drop = OnDrop(Some(f));
    let join = spawn(move || {
        let _on_drop = on_drop;
        flag.store(true, Ordering::SeqCst);
        loop {
            task::park();
        }
    });
    wait_until(|| begun.load(Ordering::SeqCst));
    join
}

/// Runs a destructor with `f` during a cancellation; it must come to its end.
fn in_a_cancelled_destructor(f: impl FnOnce() + Send + 'static) {
    let _guard = hang_guard();
    let rt = runtime(1);
    let ended = Arc::new(AtomicBool::new(false));
    let says = Arc::clone(&ended);
    let join = rt.run(|| {
        at_the_end(move || {
            f();
            says.store(true, Ordering::SeqCst);
        })
    });
    assert!(ended.load(Ordering::SeqCst));
    assert!(join.join().unwrap_err().is::<Cancelled>());
}

#[test]
fn a_destructor_that_parks_or_sleeps_does_not_hang() {
    in_a_cancelled_destructor(|| {
        task::park();
        task::park_timeout(FOREVER);
        sleep(FOREVER);
        for _ in 0..100 {
            yield_now();
        }
    });
}

#[test]
fn a_destructor_that_reads_or_writes_fails_at_once() {
    let _guard = hang_guard();
    let rt = runtime(1);
    let errors = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&errors);
    let far_ends = rt.run(|| {
        let (mut reads, far_a) = pair();
        let (mut writes, far_b) = full_pipe();
        let (vectored, far_c) = pair();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        at_the_end(move || {
            let mut told = told.lock().unwrap();
            told.push(reads.read(&mut [0]).unwrap_err());
            told.push(reads.peek(&mut [0]).unwrap_err());
            told.push(writes.write_all(&[0; 1 << 20]).unwrap_err());
            let mut parts = ([0], [0]);
            let mut slices = [IoSliceMut::new(&mut parts.0), IoSliceMut::new(&mut parts.1)];
            told.push((&vectored).read_vectored(&mut slices).unwrap_err());
            told.push(listener.accept().unwrap_err());
        });
        [far_a, far_b, far_c]
    });
    drop(far_ends);
    let errors = errors.lock().unwrap();
    assert_eq!(errors.len(), 5);
    for e in errors.iter() {
        assert!(e.get_ref().is_some_and(|e| e.is::<Cancelled>()), "{e:?}");
    }
}

#[test]
fn a_destructor_that_connects_fails_at_once() {
    let full = full_listener();
    let addr = full.addr;
    in_a_cancelled_destructor(move || {
        TcpStream::connect(addr).unwrap_err();
        TcpStream::connect_timeout(&addr, Duration::from_secs(3600)).unwrap_err();
    });
    drop(full);
}

#[test]
fn a_destructor_may_still_write_what_fits() {
    let _guard = hang_guard();
    let (mut far, sent) = runtime(1).run(|| {
        let (mut near, far) = pair();
        let sent = Arc::new(AtomicBool::new(false));
        let says = Arc::clone(&sent);
        at_the_end(move || {
            near.write_all(b"goodbye").unwrap();
            says.store(true, Ordering::SeqCst);
        });
        (far, sent)
    });
    assert!(sent.load(Ordering::SeqCst));
    let mut last = String::new();
    far.read_to_string(&mut last).unwrap();
    assert_eq!(last, "goodbye");
}

#[test]
fn a_destructor_that_joins_does_not_hang() {
    let _guard = hang_guard();
    // The one joined is parked, too; on one P it needs the thread that the destructor is on.
    let outcome = Arc::new(Mutex::new(None));
    let told = Arc::clone(&outcome);
    runtime(1).run(|| {
        let parked = spawn(task::park);
        at_the_end(move || {
            let is_err = parked.join().is_err();
            *told.lock().unwrap() = Some(is_err);
        });
    });
    assert_eq!(*outcome.lock().unwrap(), Some(true));
}

#[test]
fn a_destructor_with_a_scope_or_a_section_does_not_hang() {
    in_a_cancelled_destructor(|| {
        assert_eq!(blocking(|| 1), 1);
        assert_eq!(offload(|| 2), 2);
        assert_eq!(task::scope(|_| 3), 3);
        let refused = task::scope(|s| s.spawn(|| 4).join().is_err());
        assert!(refused);
        blocking(|| sleep(FOREVER));
    });
}

/// Unwinding must not reach a frame of C: a callback catches it, and the goroutine unwinds behind.
#[test]
fn a_callback_of_c_that_catches_ends_with_the_run() {
    extern "C" fn compare(_: *const libc::c_void, _: *const libc::c_void) -> libc::c_int {
        catch_unwind(|| sleep(FOREVER)).map_or(0, |()| 1)
    }
    let _guard = hang_guard();
    let has_sorted = Arc::new(AtomicBool::new(false));
    let says = Arc::clone(&has_sorted);
    let sorts = runtime(2).run(|| {
        let begun = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&begun);
        let sorts = spawn(move || {
            flag.store(true, Ordering::SeqCst);
            let mut bytes = [3_u8, 1, 2];
            // SAFETY: the array has three items of a byte, and the callback does not unwind.
            unsafe { libc::qsort(bytes.as_mut_ptr().cast(), 3, 1, Some(compare)) };
            says.store(true, Ordering::SeqCst);
            task::park();
        });
        wait_until(|| begun.load(Ordering::SeqCst));
        sorts
    });
    assert!(has_sorted.load(Ordering::SeqCst));
    assert!(sorts.join().unwrap_err().is::<Cancelled>());
}

#[test]
fn many_destructors_that_wait_at_once() {
    let _guard = hang_guard();
    let census = Census::default();
    let rt = runtime(2);
    rt.run(|| {
        let before = Arc::new(Mutex::new(None::<JoinHandle<()>>));
        for i in 0..100 {
            let member = census.member();
            let previous = before.lock().unwrap().take();
            let join = at_the_end(move || {
                let _member = member;
                match i % 4 {
                    0 => sleep(FOREVER),
                    1 => task::park(),
                    2 => yield_now(),
                    _ => {}
                }
                if let Some(previous) = previous {
                    previous.join().unwrap_err();
                }
            });
            *before.lock().unwrap() = Some(join);
        }
    });
    census.assert_all_dropped(100);
}

#[test]
fn catching_the_cancellation_does_not_stop_it() {
    let _guard = hang_guard();
    let rt = runtime(2);
    let caught = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&caught);
    let join = rt.run(|| {
        let begun = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&begun);
        let (mut stream, far) = pair();
        let join = spawn(move || {
            let _far = far;
            flag.store(true, Ordering::SeqCst);
            let mut waits: Vec<Box<dyn FnMut() + Send>> = vec![
                Box::new(task::park),
                Box::new(|| sleep(FOREVER)),
                Box::new(yield_now),
                Box::new(move || drop(stream.read(&mut [0]))),
                Box::new(|| task::park_timeout(FOREVER)),
            ];
            for wait in &mut waits {
                let payload = catch_unwind(AssertUnwindSafe(wait)).unwrap_err();
                assert!(payload.is::<Cancelled>());
                counts.fetch_add(1, Ordering::SeqCst);
            }
            // It may end by itself, with a value.
            17
        });
        wait_until(|| begun.load(Ordering::SeqCst));
        join
    });
    assert_eq!(caught.load(Ordering::SeqCst), 5);
    assert_eq!(join.join().unwrap(), 17);
}

#[test]
fn spawning_during_the_cancellation_is_refused() {
    let _guard = hang_guard();
    let census = Census::default();
    let rt = runtime(2);
    let ran = Arc::new(AtomicBool::new(false));
    let n_refused = Arc::new(AtomicUsize::new(0));
    rt.run(|| {
        for _ in 0..20 {
            let members = [(); 3].map(|()| census.member());
            let (ran, n_refused) = (Arc::clone(&ran), Arc::clone(&n_refused));
            let handle: Handle = rt.handle();
            at_the_end(move || {
                let [a, b, c] = members.map(|member| {
                    let ran = Arc::clone(&ran);
                    move || {
                        ran.store(true, Ordering::SeqCst);
                        drop(member);
                    }
                });
                let joins = [
                    spawn(a),
                    handle.spawn(b),
                    task::Builder::new().name("late").spawn(c).unwrap(),
                ];
                for join in joins {
                    assert!(join.is_finished());
                    assert!(join.join().unwrap_err().is::<Cancelled>());
                    n_refused.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
    });
    assert!(!ran.load(Ordering::SeqCst));
    assert_eq!(n_refused.load(Ordering::SeqCst), 60);
    census.assert_all_dropped(60);
}

#[test]
fn a_scope_whose_goroutines_were_refused_is_not_left_as_if_they_had_run() {
    let _guard = hang_guard();
    let rt = runtime(2);
    let join = rt.run(|| {
        let gate = Gate::default();
        let waits = gate.clone();
        let begun = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&begun);
        let join = spawn(move || {
            offload(|| {
                flag.store(true, Ordering::SeqCst);
                waits.wait();
            });
            // The run is ending by now: nothing is spawned any more.
            let mut words = vec!["half", "done"];
            task::scope(|s| {
                s.spawn(|| words.clear());
            });
            assert!(words.is_empty(), "the scope ended without its work");
        });
        wait_until(|| begun.load(Ordering::SeqCst));
        at_the_end(move || gate.open());
        join
    });
    let payload = join.join().unwrap_err();
    assert!(payload.is::<Cancelled>(), "{}", panic_text(&*payload));
}

#[test]
fn threads_that_spawn_and_join_while_the_run_ends() {
    let _guard = hang_guard();
    let census = Census::default();
    let rt = runtime(2);
    for _ in 0..30 {
        let stop = Arc::new(AtomicBool::new(false));
        let threads: Vec<_> = rt.run(|| {
            let n = Arc::new(AtomicUsize::new(0));
            let threads: Vec<_> = (0..3)
                .map(|_| {
                    let (handle, stop, n) = (rt.handle(), Arc::clone(&stop), Arc::clone(&n));
                    let census = census.clone();
                    std::thread::spawn(move || {
                        while !stop.load(Ordering::SeqCst) {
                            let member = census.member();
                            let join = handle.spawn(move || {
                                yield_now();
                                drop(member);
                            });
                            let task = join.task();
                            let _ = join.join();
                            task.unpark();
                            n.fetch_add(1, Ordering::SeqCst);
                        }
                    })
                })
                .collect();
            wait_until(|| n.load(Ordering::SeqCst) > 20);
            threads
        });
        stop.store(true, Ordering::SeqCst);
        threads.into_iter().for_each(|t| t.join().unwrap());
    }
    census.assert_all_dropped(census.made());
}

#[test]
fn threads_that_unpark_while_the_run_ends() {
    let _guard = hang_guard();
    for _ in 0..50 {
        let stop = Arc::new(AtomicBool::new(false));
        let rt = runtime(2);
        let threads: Vec<_> = rt.run(|| {
            let n = Arc::new(AtomicUsize::new(0));
            let threads: Vec<_> = (0..2)
                .map(|_| {
                    let (woken, stop) = (Arc::clone(&n), Arc::clone(&stop));
                    let task = spawn(move || {
                        loop {
                            task::park();
                            woken.fetch_add(1, Ordering::SeqCst);
                        }
                    })
                    .task();
                    std::thread::spawn(move || {
                        while !stop.load(Ordering::SeqCst) {
                            task.unpark();
                        }
                    })
                })
                .collect();
            wait_until(|| n.load(Ordering::SeqCst) > 20);
            threads
        });
        drop(rt);
        stop.store(true, Ordering::SeqCst);
        threads.into_iter().for_each(|t| t.join().unwrap());
    }
}

#[test]
fn a_hog_is_waited_for() {
    let _guard = hang_guard();
    let done = Arc::new(AtomicBool::new(false));
    let says = Arc::clone(&done);
    // It sees the cancellation of the other one, and only then ends.
    runtime(1).run(|| {
        let stop = Arc::new(AtomicBool::new(false));
        let stops = Arc::clone(&stop);
        let begun = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&begun);
        at_the_end(move || stops.store(true, Ordering::SeqCst));
        spawn(move || {
            flag.store(true, Ordering::SeqCst);
            while !stop.load(Ordering::SeqCst) {
                std::hint::spin_loop();
            }
            says.store(true, Ordering::SeqCst);
        });
        wait_until(|| begun.load(Ordering::SeqCst));
    });
    assert!(done.load(Ordering::SeqCst));
}

#[test]
fn an_end_with_a_hundred_thousand_parked() {
    let _guard = hang_guard();
    let census = Census::default();
    runtime(2).run(|| {
        for _ in 0..100_000 {
            let member = census.member();
            spawn(move || {
                let _member = member;
                task::park();
            });
        }
        yield_now();
    });
    census.assert_all_dropped(100_000);
}

#[test]
fn an_end_with_few_threads() {
    let _guard = hang_guard();
    let census = Census::default();
    let rt = build(Builder::new().processors(2).max_threads(1)).unwrap();
    rt.run(|| {
        for i in 0..100 {
            let member = census.member();
            spawn(move || {
                let _member = member;
                if i % 2 == 0 {
                    task::park()
                } else {
                    sleep(FOREVER)
                }
            });
        }
        yield_now();
    });
    census.assert_all_dropped(100);
}

/// Says when the other ends of what others use are gone: dropped after them.
struct Ends {
    _sender: Sender<u32>,
    _receiver: Receiver<u32>,
    _closes: ClosesOnDrop,
    _group: DoneOnDrop,
    _gate: OpensOnDrop,
}

struct ClosesOnDrop(Arc<Semaphore>);

impl Drop for ClosesOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}

struct DoneOnDrop(WaitGroup);

impl Drop for DoneOnDrop {
    fn drop(&mut self) {
        self.0.done();
    }
}

/// The state of a goroutine that uses those ends.
struct Uses {
    r: Receiver<u32>,
    s: Sender<u32>,
    semaphore: Arc<Semaphore>,
    group: WaitGroup,
}

/// A call by its name.
type Call = (&'static str, fn(&Uses));

/// Calls that say that the other side is gone, or has done its part.
const CALLS: &[Call] = &[
    ("recv", |u| _ = u.r.recv().unwrap()),
    ("try_recv", |u| _ = u.r.try_recv().unwrap()),
    ("recv_timeout", |u| _ = u.r.recv_timeout(FOREVER).unwrap()),
    ("iter", |u| assert_eq!(u.r.iter().next(), Some(1))),
    ("send", |u| u.s.send(1).unwrap()),
    ("try_send", |u| u.s.try_send(1).unwrap()),
    ("send_timeout", |u| u.s.send_timeout(1, FOREVER).unwrap()),
    ("select", |u| {
        select! {
            recv(u.r) -> msg => _ = msg.unwrap(),
            send(u.s, 1) -> sent => sent.unwrap(),
        }
    }),
    ("Select", |u| {
        let mut select = Select::new();
        select.recv(&u.r);
        let _ = select.select().recv(&u.r).unwrap();
    }),
    ("acquire", |u| drop(u.semaphore.acquire(1).unwrap())),
    ("try_acquire", |u| drop(u.semaphore.try_acquire(1).unwrap())),
    ("acquire_timeout", |u| {
        drop(u.semaphore.acquire_timeout(1, FOREVER).unwrap());
    }),
    ("WaitGroup", |u| u.group.wait()),
];

/// Goroutines are unwound in no order. One that comes too late to be woken finds that the
/// others are gone: it unwinds as well, and has no error to panic about.
#[test]
fn who_finds_the_others_gone_unwinds_too() {
    let _guard = hang_guard();
    let (began, went_on) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let (began, went_on) = (Arc::new(began), Arc::new(went_on));
    let rt = runtime(2);
    let handles: Vec<JoinHandle<()>> = rt.run(|| {
        let start = |&(name, call): &Call| {
            let (s, r) = bounded(0);
            let (other_s, other_r) = bounded(0);
            let (semaphore, group, gate) = (
                Arc::new(Semaphore::new(0)),
                WaitGroup::new(),
                Gate::default(),
            );
            group.add(1);
            let ends = Ends {
                _sender: other_s,
                _receiver: r,
                _closes: ClosesOnDrop(Arc::clone(&semaphore)),
                _group: DoneOnDrop(group.clone()),
                _gate: OpensOnDrop(gate.clone()),
            };
            spawn(move || {
                let _ends = ends;
                task::park();
            });
            let uses = Uses {
                r: other_r,
                s,
                semaphore,
                group,
            };
            let (began, went_on) = (Arc::clone(&began), Arc::clone(&went_on));
            spawn(move || {
                began.fetch_add(1, Ordering::SeqCst);
                // Without a call that would notice the end by itself.
                gate.wait();
                call(&uses);
                went_on.lock().unwrap().push(name);
            })
        };
        let handles = CALLS.iter().map(start).collect();
        wait_until(|| began.load(Ordering::SeqCst) == CALLS.len());
        handles
    });
    for (handle, (name, _)) in handles.into_iter().zip(CALLS) {
        let payload = handle.join().err();
        assert!(
            payload.as_ref().is_some_and(|p| p.is::<Cancelled>()),
            "{name}: {:?}",
            payload.map(|p| panic_text(&*p).to_owned())
        );
    }
    assert!(went_on.lock().unwrap().is_empty());
}

/// Go's prime sieve: each stage takes what the one before gives.
#[test]
fn the_end_of_a_sieve_is_silent() {
    const NAME: &str = "the_end_of_a_sieve_is_silent";
    if util::child_case().is_none() {
        let stderr = util::child_passes(NAME, "sieve");
        assert!(!stderr.contains("panicked"), "{stderr}");
        return;
    }
    for _ in 0..20 {
        // The last receiver outlives the run: dropped before its end, it would be an error of the last
        // stage like any other.
        let _numbers = runtime(2).run(|| {
            let (s, mut numbers) = bounded(0);
            spawn(move || (2..u32::MAX).for_each(|n| s.send(n).unwrap()));
            for _ in 0..80 {
                let prime = numbers.recv().unwrap();
                let (s, r) = bounded(0);
                let before = std::mem::replace(&mut numbers, r);
                spawn(move || {
                    loop {
                        let n = before.recv().unwrap();
                        if n % prime != 0 {
                            s.send(n).unwrap();
                        }
                    }
                });
            }
            numbers
        });
    }
}

/// Some goroutines cannot be ended. Then the process ends, and says which, if that was asked
/// for; else the run waits.
#[test]
fn an_end_that_does_not_come_is_given_up() {
    const NAME: &str = "an_end_that_does_not_come_is_given_up";
    let bounded_by = |most| build(Builder::new().processors(2).shutdown_timeout(most)).unwrap();
    let stubborn = |name: &str, f: fn()| {
        let began = Arc::new(AtomicBool::new(false));
        let begins = Arc::clone(&began);
        let run = move || {
            begins.store(true, Ordering::SeqCst);
            f();
        };
        task::Builder::new().name(name).spawn(run).unwrap();
        wait_until(|| began.load(Ordering::SeqCst));
    };
    match util::child_case().as_deref() {
        Some("computes") => bounded_by(Duration::from_millis(20)).run(|| {
            stubborn("computer", || {
                loop {
                    std::hint::spin_loop();
                }
            });
        }),
        Some("swallows") => bounded_by(Duration::from_millis(20)).run(|| {
            stubborn("swallower", || {
                loop {
                    let _ = catch_unwind(task::park);
                }
            });
        }),
        Some(_) => bounded_by(Duration::MAX).run(|| {
            // Ends, though late.
            stubborn("sleeper", || std::thread::sleep(Duration::from_millis(50)));
            spawn(task::park);
        }),
        None => {
            for (case, name) in [("computes", "computer"), ("swallows", "swallower")] {
                let output = util::child(NAME, case);
                let stderr = util::without_fallback(&String::from_utf8_lossy(&output.stderr));
                assert_eq!(output.status.code(), Some(2), "{case}: {stderr}");
                let begin = "shutdown: goroutines of \"windlass\" still live 20ms after the main";
                assert!(stderr.starts_with(begin), "{case}: {stderr}");
                assert!(
                    stderr.contains(&format!("name {name:?}]:\n")),
                    "{case}: {stderr}"
                );
                assert!(
                    stderr.contains("tests/sched/shutdown.rs:"),
                    "{case}: {stderr}"
                );
            }
            assert_eq!(util::child_passes(NAME, "ends"), "");
        }
    }
}

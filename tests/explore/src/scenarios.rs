//! The scenarios: each scenario is a whole program, as small as it can be and still have its
//! race. It fails by a panic, a deadlock, or what the oracle finds.

use std::error::Error;
use std::future::{pending, poll_fn};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Poll, Waker};
use std::time::Duration;

use windlass::channel::{Select, Sender, bounded, never, select, unbounded};
use windlass::context::{Canceller, Context};
use windlass::explore::{Scenario, advance, draw, oracle, spawn_thread};
use windlass::io::RecvBuf;
use windlass::net::{Graceful, Next, TcpListener, TcpStream};
use windlass::sync::{Condvar, Mutex, Semaphore};
use windlass::task::{self, JoinHandle, When, lock_thread};
use windlass::time::Instant;
use windlass::topology::Topology;
use windlass::{Builder, Runtime, blocking, future, join, offload, sleep, spawn, yield_now};

macro_rules! scenarios {
    ($($(#[doc = $what:literal])+ $name:ident,)*) => {
        pub(crate) const ALL: &[Scenario] = &[
            $(Scenario { name: stringify!($name), run: $name, is_replayed: false },)*
        ];
    };
}

scenarios! {
    /// Goroutines begin, end and are joined.
    spawn_join,
    /// A plain thread spawns while the runtime falls asleep.
    spawn_from_outside,
    /// As many goroutines as Ps compute until all have begun, and sysmon does not help.
    hogs_at_once,
    /// A plain thread pushes one goroutine after the other while the one P falls asleep, and sysmon does not help.
    push_to_one,
    /// The same for two Ps, with two computations that wait for each other.
    push_to_two,
    /// A plain thread wakes a goroutine whose P sleeps in its ring.
    wake_in_the_ring,
    /// Plain threads wake goroutines with which their runs and their runtimes end.
    woken_at_the_end,
    /// Tokens given before, in and after a park, with a deadline.
    park_unpark,
    /// Futures are woken before, in and after their polls, and the run ends while others wait.
    futures,
    /// Tokens given to parks inside a context, whose frames go when they return.
    unpark_in_context,
    /// Contexts end waits while threads come and go.
    cancel_on_new_threads,
    /// A plain thread ends a wait on the one M, which has just been started.
    cancel_on_the_new_thread,
    /// A context, a deadline and a token end the same wait.
    cancel_or_deadline,
    /// A context ends waits that nothing else would end.
    cancelled_waits,
    /// A plain thread ends reads that are about to begin.
    cancelled_reads,
    /// The deadline of a stream comes forward while others begin to read, and leave for other waits.
    deadline_moves,
    /// An operation completes while its context and its deadline end it.
    cancel_or_completion,
    /// A completion, a context, a deadline and the end of the run end waits without a stack.
    spawn_when,
    /// The scenario above, over epoll.
    epoll_spawn_when,
    /// A plain thread ends contexts just before goroutines wait for that without a stack.
    spawn_when_done,
    /// A message, a context, a deadline and the end of the run end waits for messages without a stack.
    spawn_when_receivable,
    /// A server without stacks between requests stops amid them.
    serve_requests,
    /// A locked goroutine waits for good, and the others go on.
    locked_thread_waits,
    /// A locked goroutine is woken while its thread falls asleep.
    locked_thread_is_woken,
    /// Locked goroutines, hogs and hand-offs.
    locked_threads_and_hogs,
    /// Sections that block lose their P and come back.
    blocking_sections,
    /// Computations lose their P and come back.
    hogs,
    /// Computations lose their P for sleepers, and come back just then.
    hogs_and_timers,
    /// Computations that fork are asked to give way for sleepers, or lose their P.
    forks_and_timers,
    /// Computations lose their P for completions, and come back just then.
    hogs_and_completions,
    /// The scenario above, over epoll.
    epoll_hogs_and_completions,
    /// The number of Ps changes among all that.
    set_processors,
    /// Forks become goroutines, wait, give way and lose their P.
    forks,
    /// Work on other threads.
    offloads,
    /// Two runtimes wake each other's goroutines.
    two_runtimes,
    /// A goroutine of one runtime gives its token to another's.
    unpark_in_another_runtime,
    /// Two readers of one stream, which a poll watches.
    two_readers,
    /// Echo, in pieces of any size.
    echo,
    /// Receives into the runtime's buffers, which a context ends and others drop.
    recv_owned,
    /// Accepts that contexts end while clients connect.
    accept_in_contexts,
    /// A run ends while all of these are at it.
    end_of_run_of_streams,
    /// Echo over epoll.
    epoll_echo,
    /// An operation completes over epoll while its context and its deadline end it.
    epoll_cancel_or_completion,
    /// Clients connect, over epoll.
    epoll_accept,
    /// A run ends, over epoll.
    epoll_end_of_run,
    /// Select, with a channel that closes.
    select_and_close,
    /// A select looks while a message goes from one of its channels to the other.
    message_between_channels,
    /// Rendezvous.
    rendezvous,
    /// Permits.
    semaphore,
    /// Locks and conditions.
    condvar,
    /// A waiter that only one notification ends.
    notified_once,
    /// A run ends while goroutines are at anything.
    end_of_run,
    /// A run ends while many goroutines begin to wait.
    end_of_run_of_parks,
    /// A run ends while contexts end waits.
    end_of_run_in_contexts,
    /// A runtime runs twice.
    two_runs,
}

/// Two goroutines add to a number, and one may overwrite what the other has added: what the
/// explorer finds there it must find again.
pub(crate) const BROKEN: Scenario = Scenario {
    name: "lost_update",
    run: lost_update,
    is_replayed: true,
};

static MACHINE: OnceLock<Topology> = OnceLock::new();

/// Looks at the machine, once for all schedules.
pub(crate) fn prepare() {
    MACHINE.get_or_init(|| Topology::detect().expect("this machine can be described"));
}

fn builder(ps: usize) -> Builder {
    Builder::new()
        .processors(ps)
        .max_processors(4)
        .pin(false)
        .topology(MACHINE.get().expect("prepared").clone())
}

#[expect(unsafe_code, reason = "the builder's contract")]
fn build(builder: Builder) -> Runtime {
    // SAFETY: nothing here keeps a thread-local across a call that parks.
    unsafe { builder.build() }.expect("a runtime")
}

fn runtime(ps: usize) -> Runtime {
    build(builder(ps))
}

fn us(n: u64) -> Duration {
    Duration::from_micros(n)
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn yields(n: u64) {
    (0..n).for_each(|_| yield_now());
}

/// Spawns a goroutine that cancels after a few turns.
fn cancel_soon(canceller: Canceller) -> JoinHandle<()> {
    spawn(move || {
        yields(draw(4));
        canceller.cancel();
    })
}

fn spawn_join() {
    let rt = runtime(2);
    rt.run(|| {
        let all: Vec<_> = (0..3).map(|i| spawn(move || i * 2)).collect();
        let sum: i32 = all.into_iter().map(|g| g.join().unwrap()).sum();
        assert_eq!(sum, 6);
    });
}

fn spawn_from_outside() {
    let rt = runtime(2);
    let handle = rt.handle();
    rt.run(|| {
        let (tx, rx) = unbounded();
        let join = spawn_thread(move || {
            for i in 0..4 {
                let tx = tx.clone();
                drop(handle.spawn(move || tx.send(i).unwrap()));
            }
        });
        let sum: i32 = (0..4).map(|_| rx.recv().unwrap()).sum();
        assert_eq!(sum, 6);
        blocking(join);
    });
}

/// Computes until so many do.
fn hog(begun: &AtomicUsize, n: usize) {
    begun.fetch_add(1, Ordering::SeqCst);
    while begun.load(Ordering::SeqCst) < n {
        advance(us(1));
    }
}

fn hogs_at_once() {
    let n = 3 - draw(2) as usize;
    let rt = runtime(n);
    let handle = rt.handle();
    rt.run(|| {
        oracle::leave_out_help();
        for _ in 0..10 {
            let begun = Arc::new(AtomicUsize::new(0));
            let another = || {
                let begun = Arc::clone(&begun);
                move || hog(&begun, n)
            };
            let outside = (n == 3).then(|| {
                let (handle, another) = (handle.clone(), another());
                spawn_thread(move || drop(handle.spawn(another)))
            });
            let other = spawn(another());
            // It takes the place of the goroutine that only this P runs.
            let next = spawn(|| ());
            hog(&begun, n);
            other.join().unwrap();
            next.join().unwrap();
            outside.map(blocking);
        }
    });
}

/// A plain thread pushes as many computations as there are Ps, which wait for each other, again and again.
fn push_from_outside(n: usize) {
    let rt = runtime(n);
    let handle = rt.handle();
    rt.run(|| {
        oracle::leave_out_help();
        let (tx, rx) = unbounded();
        let pushes = spawn_thread(move || {
            for _ in 0..40 {
                let begun = Arc::new(AtomicUsize::new(0));
                for _ in 0..n {
                    let begun = Arc::clone(&begun);
                    drop(handle.spawn(move || hog(&begun, n)));
                }
                while begun.load(Ordering::SeqCst) < n {
                    advance(us(1));
                }
            }
            tx.send(()).unwrap();
        });
        rx.recv().unwrap();
        blocking(pushes);
    });
}

fn push_to_one() {
    push_from_outside(1);
}

fn push_to_two() {
    push_from_outside(2);
}

fn wake_in_the_ring() {
    let rt = runtime(1);
    rt.run(|| {
        let (mut reads, mut writes) = pair();
        let reader = spawn(move || fill(&mut reads, &mut [0]));
        let (tx, rx) = unbounded();
        let sends = spawn_thread(move || (0..3).for_each(|i| tx.send(i).unwrap()));
        assert_eq!(rx.into_iter().sum::<u32>(), 3);
        write(&mut writes, &[1]);
        reader.join().unwrap();
        blocking(sends);
    });
}

fn woken_at_the_end() {
    for _ in 0..3 {
        let rt = runtime(1);
        let unparks = rt.run(|| {
            let main = task::current();
            let unparks = spawn_thread(move || main.unpark());
            // Its thread is awake when the waker has queued the goroutine.
            drop(spawn(|| yields(8)));
            task::park();
            unparks
        });
        drop(rt);
        unparks();
    }
}

fn park_unpark() {
    let rt = runtime(2);
    rt.run(|| {
        let n = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&n);
        let parker = spawn(move || {
            while counter.load(Ordering::SeqCst) < 3 {
                match draw(3) {
                    0 => task::park_timeout(us(50)),
                    _ => task::park(),
                }
            }
        });
        let unparker = parker.task();
        for _ in 0..3 {
            n.fetch_add(1, Ordering::SeqCst);
            unparker.unpark();
            yields(draw(3));
        }
        parker.join().unwrap();
    });
}

/// Makes two polls that find nothing, and lets others wake it as often.
fn polled(wakers: Sender<Waker>) -> impl Future<Output = ()> + Send {
    let mut left = 2;
    poll_fn(move |cx| {
        if left == 0 {
            return Poll::Ready(());
        }
        left -= 1;
        wakers.send(cx.waker().clone()).unwrap();
        yields(draw(2));
        Poll::Pending
    })
}

fn futures() {
    let rt = runtime(2);
    rt.run(|| {
        drop(future::spawn(pending::<()>()));
        drop(future::spawn(poll_fn(|cx| {
            cx.waker().wake_by_ref();
            Poll::<()>::Pending
        })));
        let (tx, rx) = unbounded::<Waker>();
        let all: Vec<_> = (0..2).map(|_| future::spawn(polled(tx.clone()))).collect();
        drop(tx);
        let others = rx.clone();
        let join = spawn_thread(move || others.into_iter().for_each(Waker::wake));
        rx.into_iter().for_each(Waker::wake);
        all.into_iter().for_each(|g| g.join().unwrap());
        blocking(join);
    });
}

#[inline(never)]
fn park_in(ctx: &Context) {
    ctx.run(|| task::park_timeout(ms(20)));
}

fn unpark_in_context() {
    let rt = runtime(2);
    rt.run(|| {
        let over = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&over);
        let parker = spawn(move || {
            let (ctx, _canceller) = Context::background().with_cancel();
            // The outer scope is read after a point.
            let (inner, _canceller) = ctx.with_cancel();
            while !is_over.load(Ordering::SeqCst) {
                ctx.run(|| park_in(&inner));
            }
        });
        let unparker = parker.task();
        for _ in 0..4 {
            unparker.unpark();
            yields(draw(3));
        }
        over.store(true, Ordering::SeqCst);
        unparker.unpark();
        parker.join().unwrap();
    });
}

fn cancel_on_new_threads() {
    let rt = runtime(2);
    rt.run(|| {
        let waiters: Vec<_> = (0..2)
            .map(|_| {
                spawn(|| {
                    for _ in 0..3 {
                        let (ctx, canceller) = Context::background().with_cancel();
                        let cancels = cancel_soon(canceller);
                        ctx.run(|| sleep(Duration::from_secs(5)));
                        cancels.join().unwrap();
                    }
                })
            })
            .collect();
        // Each takes its thread with it, so that another is started.
        for _ in 0..2 {
            spawn(|| {
                std::mem::forget(lock_thread());
                yield_now();
            })
            .join()
            .unwrap();
        }
        waiters.into_iter().for_each(|g| g.join().unwrap());
    });
}

fn cancel_on_the_new_thread() {
    let rt = runtime(1);
    rt.run(|| {
        for _ in 0..2 {
            let (ctx, canceller) = Context::background().with_cancel();
            let waits = Arc::new(AtomicBool::new(false));
            let is_waiting = Arc::clone(&waits);
            let cancels = spawn_thread(move || {
                while !is_waiting.load(Ordering::SeqCst) {
                    advance(us(1));
                }
                canceller.cancel();
            });
            // It takes its thread with it, so that another runs what comes next.
            drop(spawn(|| std::mem::forget(lock_thread())));
            let waiter = spawn(move || {
                waits.store(true, Ordering::SeqCst);
                ctx.run(|| sleep(Duration::from_secs(5)));
            });
            waiter.join().unwrap();
            blocking(cancels);
        }
    });
}

fn cancel_or_deadline() {
    let rt = runtime(2);
    rt.run(|| {
        let (ctx, canceller) = Context::background().with_cancel();
        let waiters: Vec<_> = (0..3)
            .map(|i| {
                let ctx = ctx.clone();
                spawn(move || match i {
                    0 => ctx.run(|| task::park_timeout(us(30))),
                    1 => ctx.run(|| sleep(us(20))),
                    _ => {
                        let inner = ctx.with_timeout(us(25));
                        inner.run(|| ctx.with_timeout(us(10)).run(|| sleep(ms(1))));
                    }
                })
            })
            .collect();
        let first = waiters[0].task();
        let unparks = spawn(move || first.unpark());
        yields(draw(4));
        canceller.cancel();
        unparks.join().unwrap();
        waiters.into_iter().for_each(|g| g.join().unwrap());
    });
}

fn cancelled_waits() {
    let rt = runtime(2);
    rt.run(|| {
        let (mut a, _b) = pair();
        let (ctx, canceller) = Context::background().with_cancel();
        let same = ctx.clone();
        let parks = spawn(move || ctx.run(task::park));
        let reads = spawn(move || same.run(|| again(|| a.read(&mut [0]))));
        yields(draw(4));
        canceller.cancel();
        parks.join().unwrap();
        assert!(reads.join().unwrap().is_err(), "nobody writes");
    });
}

fn cancelled_reads() {
    let rt = runtime(1);
    rt.run(|| {
        let (mut a, _b) = pair();
        for _ in 0..3 {
            let (ctx, canceller) = Context::background().with_cancel();
            let cancels = spawn_thread(move || {
                advance(us(draw(4)));
                canceller.cancel();
            });
            assert!(ctx.run(|| again(|| a.read(&mut [0]))).is_err());
            blocking(cancels);
        }
    });
}

fn deadline_moves() {
    let rt = runtime(2);
    rt.run(|| {
        let (a, _b) = pair();
        let a = Arc::new(a);
        for _ in 0..3 {
            a.set_read_deadline(None);
            let stream = Arc::clone(&a);
            let reader = spawn(move || {
                let read = again(|| (&*stream).read(&mut [0]));
                assert!(read.is_err(), "nobody writes");
                // It waits for another operation, which the deadline does not concern.
                let began = Instant::now();
                sleep(us(50));
                assert!(began.elapsed() >= us(50));
            });
            yields(draw(4));
            a.set_read_deadline(Some(Instant::now()));
            reader.join().unwrap();
        }
    });
}

/// Whether the simulated kernel was short of something, and has done nothing of a call.
fn is_short(e: &io::Error) -> bool {
    // That of a connect names its address, and has the kernel's as its source.
    let of_source = || e.source()?.downcast_ref::<io::Error>()?.raw_os_error();
    matches!(
        e.raw_os_error().or_else(of_source),
        Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM)
    )
}

/// The result of a call, which is made again while the kernel is short of something.
fn again<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(e) if is_short(&e) => {}
            r => return r,
        }
    }
}

fn read(stream: &mut TcpStream, buf: &mut [u8]) -> io::Result<usize> {
    again(|| stream.read(buf))
}

/// Reads until `buf` is full.
fn fill(stream: &mut TcpStream, buf: &mut [u8]) {
    let mut n = 0;
    while n < buf.len() {
        let came = read(stream, &mut buf[n..]).unwrap();
        assert_ne!(came, 0, "the stream ends");
        n += came;
    }
}

fn write(stream: &mut TcpStream, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let n = again(|| stream.write(bytes)).unwrap();
        bytes = &bytes[n..];
    }
}

/// Two ends of a TCP connection.
fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let accepts = spawn(move || again(|| listener.accept()).unwrap().0);
    let ours = again(|| TcpStream::connect(address)).unwrap();
    let theirs = accepts.join().unwrap();
    // The kernel must not keep bytes back until its own time has passed, which is not virtual.
    ours.set_nodelay(true).unwrap();
    theirs.set_nodelay(true).unwrap();
    (ours, theirs)
}

fn cancel_or_completion() {
    let rt = runtime(2);
    rt.run(|| {
        let (mut a, mut b) = pair();
        let (ctx, canceller) = Context::background().with_cancel();
        let reader = spawn(move || {
            a.set_read_timeout(Some(us(100))).unwrap();
            let mut buf = [0; 8];
            let n = ctx.run(|| a.read(&mut buf)).unwrap_or(0);
            // The bytes that were not read are still there.
            a.set_read_timeout(None).unwrap();
            fill(&mut a, &mut buf[n..3]);
            assert_eq!(&buf[..3], b"abc");
        });
        let cancels = cancel_soon(canceller);
        yields(draw(4));
        write(&mut b, b"abc");
        cancels.join().unwrap();
        reader.join().unwrap();
    });
}

fn spawn_when() {
    let rt = runtime(2);
    rt.run(|| {
        let (a, mut b) = pair();
        let (ctx, canceller) = Context::background().with_cancel();
        let when = When::readable(a).or_done(&ctx).or_after(us(100));
        let waiter = task::spawn_when(when, |mut a, ready| {
            assert!(ready.is_err() || has_bytes(&a), "nothing is there to read");
            let mut buf = [0; 3];
            fill(&mut a, &mut buf);
            assert_eq!(&buf, b"abc");
        });
        let done = task::spawn_when(When::done(&ctx), |(), _| ());
        drop(task::spawn_when(
            When::writable(pair().0).or_done(&ctx),
            |_, _| (),
        ));
        let (silent, _other) = pair();
        drop(task::spawn_when(When::readable(silent), |_, _| ()));
        let cancels = cancel_soon(canceller);
        yields(draw(4));
        write(&mut b, b"abc");
        cancels.join().unwrap();
        done.join().unwrap();
        waiter.join().unwrap();
    });
}

/// Whether a read would find something.
#[expect(
    unsafe_code,
    reason = "asks the kernel itself, which fails no call of this kind"
)]
fn has_bytes(stream: &TcpStream) -> bool {
    let mut n = 0;
    // SAFETY: the descriptor is open, and the place valid.
    let r = unsafe { libc::ioctl(stream.as_raw_fd(), libc::FIONREAD, &raw mut n) };
    r == 0 && n > 0
}

fn epoll_spawn_when() {
    over_epoll();
    spawn_when();
}

fn spawn_when_done() {
    let rt = runtime(1);
    rt.run(|| {
        for _ in 0..4 {
            let (ctx, canceller) = Context::background().with_cancel();
            let cancels = spawn_thread(move || {
                advance(us(draw(4)));
                canceller.cancel();
            });
            let waiter = task::spawn_when(When::done(&ctx), |(), _| ());
            waiter.join().unwrap();
            blocking(cancels);
        }
    });
}

fn spawn_when_receivable() {
    let rt = runtime(2);
    rt.run(|| {
        let (s, r) = windlass::channel::bounded(1);
        let (ctx, canceller) = Context::background().with_cancel();
        let when = When::receivable(r.clone()).or_done(&ctx).or_after(us(100));
        drop(task::spawn_when(when, |_, _| ()));
        let waiter = task::spawn_when(When::receivable(r.clone()), |r, ready| {
            ready.unwrap();
            r.recv().unwrap()
        });
        let (_silent, forever) = windlass::channel::unbounded::<()>();
        drop(task::spawn_when(When::receivable(forever), |_, _| ()));
        let alarm = windlass::channel::after(us(50));
        let alarm = task::spawn_when(When::receivable(alarm), |r, _| r.try_recv().is_ok());
        let cancels = cancel_soon(canceller);
        yields(draw(4));
        s.send(7).unwrap();
        cancels.join().unwrap();
        assert_eq!(waiter.join().unwrap(), 7);
        assert!(alarm.join().unwrap());
        drop(s);
        let closed = task::spawn_when(When::receivable(r), |r, _| r.recv().is_err());
        assert!(closed.join().unwrap());
    });
}

fn serve_requests() {
    let rt = runtime(2);
    rt.run(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut client = again(|| TcpStream::connect(address)).unwrap();
        let server = Graceful::with_grace(Duration::MAX);
        let serving = server.clone();
        let ended = spawn(move || {
            let echo = |mut stream: &TcpStream, (): &mut ()| {
                let mut byte = [0];
                if again(|| stream.read(&mut byte))? == 0 {
                    return Ok(Next::Close);
                }
                yields(draw(3));
                again(|| stream.write(&byte)).map(|_| Next::Request)
            };
            serving.serve_requests(listener, Duration::MAX, |_| Ok(()), echo)
        });
        let stops = spawn({
            let server = server.clone();
            move || {
                yields(draw(12));
                server.stop();
            }
        });
        for byte in 0..2 {
            write(&mut client, &[byte]);
            let mut answer = [0];
            // If the kernel has no memory for a poll, the server closes the connection.
            if read(&mut client, &mut answer).unwrap_or(0) == 0 {
                break;
            }
            assert_eq!(answer, [byte]);
        }
        drop(client);
        stops.join().unwrap();
        ended.join().unwrap().unwrap();
        server.shutdown(Duration::MAX).unwrap();
    });
}

fn locked_thread_waits() {
    let rt = runtime(2);
    rt.run(|| {
        let (tx, rx) = bounded::<()>(0);
        let locked = spawn(move || {
            let _guard = lock_thread();
            tx.send(()).unwrap();
            task::park();
        });
        rx.recv().unwrap();
        // Nobody has anything to do: sysmon should not, either. It would come to too many points.
        sleep(Duration::from_secs(600));
        let both: Vec<_> = (0..2).map(|_| spawn(|| advance(us(100)))).collect();
        both.into_iter().for_each(|g| g.join().unwrap());
        locked.task().unpark();
        locked.join().unwrap();
    });
}

fn locked_thread_is_woken() {
    let rt = runtime(2);
    rt.run(|| {
        let (tx, rx) = unbounded();
        let locked = spawn(move || {
            let _guard = lock_thread();
            rx.into_iter().sum::<u32>()
        });
        for _ in 0..6 {
            tx.send(1).unwrap();
            yields(1 + draw(3));
        }
        drop(tx);
        assert_eq!(locked.join().unwrap(), 6);
    });
}

fn locked_threads_and_hogs() {
    let rt = runtime(2);
    rt.run(|| {
        let mut all = Vec::new();
        for i in 0..2 {
            all.push(spawn(move || {
                for _ in 0..2 {
                    advance(us(10_000 + draw(3) * 500));
                    sleep(us(100 * i));
                }
            }));
        }
        for i in 0..3 {
            all.push(spawn(move || {
                let _guard = lock_thread();
                for _ in 0..3 {
                    match i {
                        0 => sleep(us(30)),
                        _ => yield_now(),
                    }
                    advance(us(20));
                }
            }));
        }
        all.push(spawn(|| {
            for _ in 0..4 {
                advance(us(100));
                yield_now();
            }
        }));
        all.into_iter().for_each(|g| g.join().unwrap());
    });
}

fn blocking_sections() {
    let rt = runtime(2);
    rt.run(|| {
        let all: Vec<_> = (0..3)
            .map(|i| {
                spawn(move || {
                    for _ in 0..4 {
                        blocking(|| advance(us(15 * (1 + draw(4)))));
                        if i == 0 {
                            yield_now();
                        }
                    }
                })
            })
            .collect();
        all.into_iter().for_each(|g| g.join().unwrap());
    });
}

fn hogs() {
    let rt = runtime(2);
    rt.run(|| {
        let all: Vec<_> = (0..3)
            .map(|_| {
                spawn(|| {
                    advance(us(9_000 + draw(4) * 1_000));
                    yield_now();
                    advance(ms(draw(15)));
                })
            })
            .collect();
        all.into_iter().for_each(|g| g.join().unwrap());
    });
}

/// Computes for so long that sysmon may retake the P for what is due, or hardly so.
fn compute_a_while() {
    advance(us(100 + draw(6) * 50));
}

fn hogs_and_timers() {
    let rt = runtime(2);
    rt.run(|| {
        let all: Vec<_> = (0..4)
            .map(|i| {
                spawn(move || {
                    for _ in 0..6 {
                        match i {
                            0 => sleep(us(100 + draw(3) * 100)),
                            _ => compute_a_while(),
                        }
                        yield_now();
                    }
                })
            })
            .collect();
        all.into_iter().for_each(|g| g.join().unwrap());
    });
}

fn forks_and_timers() {
    fn tree(depth: u32) -> u32 {
        if depth == 0 {
            advance(us(20 + draw(4) * 40));
            return 1;
        }
        let (a, b) = join(|| tree(depth - 1), || tree(depth - 1));
        a + b
    }
    let rt = runtime(2);
    rt.run(|| {
        let forkers: Vec<_> = (0..2).map(|_| spawn(|| tree(3))).collect();
        for _ in 0..3 {
            sleep(us(100 + draw(3) * 100));
        }
        for forker in forkers {
            assert_eq!(forker.join().unwrap(), 8);
        }
    });
}

fn hogs_and_completions() {
    runtime(2).run(hogs_beside_echo);
}

fn epoll_hogs_and_completions() {
    over_epoll();
    hogs_and_completions();
}

fn hogs_beside_echo() {
    let (mut ours, mut theirs) = pair();
    let echo = spawn(move || {
        let mut buf = [0; 4];
        for _ in 0..2 {
            fill(&mut theirs, &mut buf);
            compute_a_while();
            write(&mut theirs, &buf);
        }
    });
    let hogs: Vec<_> = (0..2)
        .map(|_| {
            spawn(|| {
                for _ in 0..2 {
                    compute_a_while();
                    yield_now();
                }
            })
        })
        .collect();
    for i in 0..2 {
        let mut buf = [i; 4];
        write(&mut ours, &buf);
        fill(&mut ours, &mut buf);
        assert_eq!(buf, [i; 4]);
    }
    echo.join().unwrap();
    hogs.into_iter().for_each(|g| g.join().unwrap());
}

fn set_processors() {
    let rt = runtime(2);
    rt.run(|| {
        let all: Vec<_> = (0..3)
            .map(|i| {
                spawn(move || {
                    for _ in 0..3 {
                        match i {
                            0 => sleep(us(20)),
                            1 => advance(us(150)),
                            _ => blocking(|| advance(us(30))),
                        }
                        yield_now();
                    }
                })
            })
            .collect();
        for _ in 0..2 {
            rt.set_processors(1 + draw(3) as usize).unwrap();
            yield_now();
        }
        all.into_iter().for_each(|g| g.join().unwrap());
    });
}

fn forks() {
    fn tree(depth: u32, done: &Mutex<u32>) -> u32 {
        if depth == 0 {
            match draw(5) {
                0 => yield_now(),
                1 => sleep(us(draw(30))),
                2 => advance(us(draw(20_000))),
                3 => *done.lock().unwrap() += 1,
                _ => {}
            }
            return 1;
        }
        let (a, b) = join(|| tree(depth - 1, done), || tree(depth - 1, done));
        a + b
    }
    let rt = runtime(2);
    let leaves = rt.run(|| {
        let done = Mutex::new(0);
        let other = spawn(|| yields(draw(5)));
        let (s, r) = bounded(0);
        let ctx = Context::background().with_timeout(us(draw(100)));
        // The outermost fork does the work for which the innermost call waits.
        let (leaves, ()) = join(
            || {
                let (leaves, _) = join(|| tree(3, &done), || ctx.run(|| r.recv()));
                leaves
            },
            || {
                let _ = ctx.run(|| s.send(()));
            },
        );
        other.join().unwrap();
        leaves
    });
    assert_eq!(leaves, 8);
}

fn offloads() {
    let rt = runtime(2);
    rt.run(|| {
        let all: Vec<_> = (0..3)
            .map(|i| {
                spawn(move || {
                    let guard = (i == 0).then(lock_thread);
                    assert_eq!(offload(move || i + 1), i + 1);
                    drop(guard);
                })
            })
            .collect();
        all.into_iter().for_each(|g| g.join().unwrap());
    });
}

fn two_runtimes() {
    let (a, b) = (runtime(1), runtime(1));
    let (tx, rx) = bounded::<usize>(0);
    let (tx_back, rx_back) = bounded::<usize>(1);
    let other = spawn_thread(move || {
        b.run(|| {
            for n in rx {
                tx_back.send(n + 1).unwrap();
            }
        });
    });
    a.run(|| {
        for i in 0..3 {
            tx.send(i).unwrap();
            assert_eq!(rx_back.recv(), Ok(i + 1));
        }
        drop(tx);
    });
    drop(a);
    other();
}

fn unpark_in_another_runtime() {
    let (a, b) = (runtime(1), runtime(1));
    let (tx, rx) = unbounded();
    let other = spawn_thread(move || {
        b.run(|| {
            tx.send(task::current()).unwrap();
            task::park();
        });
    });
    a.run(|| rx.recv().unwrap().unpark());
    other();
}

fn two_readers() {
    // One P for each reader and one for the writer.
    let rt = runtime(3);
    rt.run(|| {
        let (mut ours, theirs) = pair();
        let (tx, rx) = unbounded();
        // Reads so many messages, then leaves the stream to others.
        let reader = |n: usize| {
            let (mut stream, tx) = (theirs.try_clone().unwrap(), tx.clone());
            spawn(move || {
                for _ in 0..n {
                    fill(&mut stream, &mut [0]);
                    tx.send(()).unwrap();
                }
            })
        };
        let mut message = || {
            write(&mut ours, &[1]);
            rx.recv().unwrap();
        };
        let first = reader(6);
        (0..6).for_each(|_| message());
        first.join().unwrap();
        // A poll stays by now.
        for _ in 0..5 {
            let both = [reader(1), reader(1)];
            for _ in &both {
                yields(draw(8));
                message();
            }
            both.into_iter().for_each(|g| g.join().unwrap());
        }
    });
}

fn echo() {
    let rt = runtime(2);
    rt.run(|| {
        let (mut ours, mut theirs) = pair();
        let server = spawn(move || {
            let mut buf = [0; 4];
            loop {
                match read(&mut theirs, &mut buf).unwrap() {
                    0 => return,
                    n => write(&mut theirs, &buf[..n]),
                }
            }
        });
        for i in 0..6u8 {
            let message = [i, i + 1, i + 2];
            write(&mut ours, &message);
            let mut answer = [0; 3];
            fill(&mut ours, &mut answer);
            assert_eq!(answer, message);
        }
        drop(ours);
        server.join().unwrap();
    });
}

/// The message of the scenarios below: in order, and long enough for a mistake to show.
fn message() -> Vec<u8> {
    (0..24).collect()
}

/// Writes a message in pieces, with a pause now and then, and ends the stream.
fn write_message(mut stream: TcpStream) {
    for piece in message().chunks(5) {
        write(&mut stream, piece);
        yields(draw(3));
    }
}

/// A context that is cancelled soon, by another goroutine.
fn soon_cancelled() -> Context {
    let (ctx, canceller) = Context::background().with_cancel();
    drop(spawn(move || {
        yields(draw(6));
        canceller.cancel();
    }));
    ctx
}

/// Receives a message by calls of `next`, of which the first few are cut short at any time: no
/// byte may be lost.
fn receive_message(mut next: impl FnMut() -> io::Result<RecvBuf>) {
    let (keep, drops) = unbounded::<RecvBuf>();
    // Another goroutine gives the buffers back.
    let dropper = spawn(move || drops.iter().for_each(drop));
    let ctx = soon_cancelled();
    let mut got = Vec::new();
    let mut n_cut = 0;
    loop {
        let came = match n_cut {
            0 => ctx.run(|| again(&mut next)),
            _ => again(&mut next),
        };
        match came {
            Ok(piece) if piece.is_empty() => break,
            Ok(piece) => {
                got.extend_from_slice(&piece);
                keep.send(piece).unwrap();
            }
            Err(e) => {
                assert_eq!(n_cut, 0, "{e}");
                n_cut += 1;
            }
        }
    }
    assert_eq!(got, message());
    drop(keep);
    dropper.join().unwrap();
}

fn recv_owned() {
    let rt = runtime(2);
    rt.run(|| {
        let (ours, theirs) = pair();
        let writer = spawn(move || write_message(ours));
        receive_message(|| theirs.recv_owned());
        writer.join().unwrap();
    });
}

/// Three clients, each of which sends its number and waits for an answer; `serve` is to accept
/// them.
fn three_clients(serve: impl FnOnce(&TcpListener)) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let clients: Vec<_> = (0..3)
        .map(|_| {
            spawn(move || {
                yields(draw(3));
                let mut stream = again(|| TcpStream::connect(address)).unwrap();
                fill(&mut stream, &mut [0]);
            })
        })
        .collect();
    serve(&listener);
    clients.into_iter().for_each(|g| g.join().unwrap());
}

fn accept_in_contexts() {
    let rt = runtime(2);
    rt.run(|| {
        three_clients(|listener| {
            let ctx = soon_cancelled();
            let mut accepted = Vec::new();
            // Nothing is lost if the context ends the wait.
            if let Ok((stream, _)) = ctx.run(|| again(|| listener.accept())) {
                accepted.push(stream);
            }
            while accepted.len() < 3 {
                accepted.push(again(|| listener.accept()).unwrap().0);
            }
            for stream in &mut accepted {
                write(stream, &[1]);
            }
        });
    });
}

fn end_of_run_of_streams() {
    let rt = runtime(2);
    rt.run(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (a, b) = pair();
        drop(spawn(move || while again(|| listener.accept()).is_ok() {}));
        drop(spawn(move || drop(again(|| TcpStream::connect(address)))));
        drop(spawn(move || while again(|| a.recv_owned()).is_ok() {}));
        let writer = spawn(move || write_message(b));
        yields(draw(10));
        drop(writer);
    });
}

/// The runtimes of this schedule use epoll.
#[expect(unsafe_code, reason = "sets an environment variable")]
fn over_epoll() {
    // SAFETY: no other thread has begun in this process.
    unsafe { std::env::set_var("WINDLASS_IO", "epoll") };
}

fn epoll_echo() {
    over_epoll();
    echo();
}

fn epoll_cancel_or_completion() {
    over_epoll();
    cancel_or_completion();
}

fn epoll_accept() {
    over_epoll();
    let rt = runtime(2);
    rt.run(|| {
        three_clients(|listener| {
            for _ in 0..3 {
                let mut stream = listener.accept().unwrap().0;
                write(&mut stream, &[1]);
            }
        });
    });
}

fn epoll_end_of_run() {
    over_epoll();
    end_of_run();
}

fn select_and_close() {
    let rt = runtime(2);
    rt.run(|| {
        let (tx_a, rx_a) = bounded::<u32>(0);
        let (tx_b, rx_b) = bounded::<u32>(1);
        let sends = spawn(move || (0..2).for_each(|i| tx_a.send(i).unwrap()));
        let closes = spawn(move || {
            yields(draw(3));
            tx_b.send(7).unwrap();
        });
        let (mut n, mut closed) = (0, 0);
        let (mut rx_a, mut rx_b) = (rx_a, rx_b);
        while closed < 2 {
            select! {
                recv(rx_a) -> got => match got {
                    Ok(_) => n += 1,
                    Err(_) => (rx_a, closed) = (never(), closed + 1),
                },
                recv(rx_b) -> got => match got {
                    Ok(_) => n += 1,
                    Err(_) => (rx_b, closed) = (never(), closed + 1),
                },
            }
        }
        assert_eq!(n, 3);
        sends.join().unwrap();
        closes.join().unwrap();
    });
}

fn message_between_channels() {
    let (to_a, a) = unbounded();
    let (to_b, b) = unbounded();
    to_a.send(()).unwrap();
    let (from_a, from_b) = (a.clone(), b.clone());
    // Plain threads, so that there is little between the looks.
    let moves = spawn_thread(move || {
        for _ in 0..16 {
            to_b.send(()).unwrap();
            from_a.recv().unwrap();
            to_a.send(()).unwrap();
            from_b.recv().unwrap();
        }
    });
    for _ in 0..32 {
        let mut select = Select::new();
        select.recv(&a);
        select.recv(&b);
        let why = "one of the channels has a message at any time";
        select.try_ready().expect(why);
    }
    moves();
}

fn rendezvous() {
    let rt = runtime(2);
    rt.run(|| {
        let (tx, rx) = bounded::<u32>(0);
        let senders: Vec<_> = (0..2)
            .map(|i| {
                let tx = tx.clone();
                spawn(move || {
                    for k in 0..2 {
                        if tx.send_timeout(i, us(10 + 20 * k)).is_err() {
                            tx.send(i).unwrap();
                        }
                    }
                })
            })
            .collect();
        drop(tx);
        assert_eq!(rx.iter().count(), 4);
        senders.into_iter().for_each(|g| g.join().unwrap());
    });
}

fn semaphore() {
    let rt = runtime(2);
    rt.run(|| {
        let permits = Arc::new(Semaphore::new(2));
        let inside = Arc::new(AtomicUsize::new(0));
        let all: Vec<_> = (0..3)
            .map(|i| {
                let (permits, inside) = (Arc::clone(&permits), Arc::clone(&inside));
                spawn(move || {
                    let n = 1 + i % 2;
                    if let Ok(permit) = permits.acquire_timeout(n, us(20)) {
                        let now = inside.fetch_add(n, Ordering::SeqCst) + n;
                        assert!(now <= 2, "{now} permits are out");
                        yield_now();
                        inside.fetch_sub(n, Ordering::SeqCst);
                        drop(permit);
                    }
                })
            })
            .collect();
        all.into_iter().for_each(|g| g.join().unwrap());
        assert_eq!(permits.available_permits(), 2);
    });
}

fn condvar() {
    let rt = runtime(2);
    rt.run(|| {
        let shared = Arc::new((Mutex::new(0), Condvar::new()));
        let waiters: Vec<_> = (0..2)
            .map(|_| {
                let shared = Arc::clone(&shared);
                spawn(move || {
                    let mut n = shared.0.lock().unwrap();
                    while *n == 0 {
                        n = match draw(2) {
                            0 => shared.1.wait(n).unwrap(),
                            _ => shared.1.wait_timeout(n, us(20)).unwrap().0,
                        };
                    }
                    *n -= 1;
                })
            })
            .collect();
        for _ in 0..2 {
            yields(draw(3));
            *shared.0.lock().unwrap() += 1;
            shared.1.notify_one();
        }
        waiters.into_iter().for_each(|g| g.join().unwrap());
    });
}

fn notified_once() {
    /// Counts on, in turn with another.
    fn takes_turns((turn, changed): &(Mutex<usize>, Condvar), mine: usize) {
        for _ in 0..16 {
            let mut turn = turn.lock().unwrap();
            while *turn % 2 != mine {
                turn = changed.wait(turn).unwrap();
            }
            *turn += 1;
            drop(turn);
            changed.notify_one();
        }
    }
    let shared = Arc::new((Mutex::new(0), Condvar::new()));
    let same = Arc::clone(&shared);
    // Plain threads, so that there is little between the steps of a wait.
    let other = spawn_thread(move || takes_turns(&same, 1));
    takes_turns(&shared, 0);
    other();
}

fn end_of_run() {
    let rt = runtime(2);
    rt.run(|| {
        let (tx, rx) = bounded::<u32>(0);
        let (ours, mut theirs) = pair();
        drop(spawn(task::park));
        drop(spawn(move || sleep(Duration::from_secs(100))));
        drop(spawn(move || {
            let _ = rx.recv();
        }));
        drop(spawn(move || {
            let _ = theirs.read(&mut [0; 4]);
        }));
        drop(spawn(|| blocking(|| advance(us(30)))));
        drop(spawn(|| {
            let _guard = lock_thread();
            loop {
                yield_now();
            }
        }));
        yields(draw(6));
        drop((tx, ours));
    });
}

fn end_of_run_of_parks() {
    let rt = runtime(2);
    rt.run(|| {
        for _ in 0..4 {
            drop(spawn(|| {
                loop {
                    task::park_timeout(us(1 + draw(3)));
                }
            }));
        }
        sleep(us(10 + draw(20)));
    });
}

fn end_of_run_in_contexts() {
    let rt = runtime(2);
    rt.run(|| {
        let (ctx, canceller) = Context::background().with_cancel();
        for i in 0..3 {
            let ctx = ctx.clone();
            drop(spawn(move || {
                loop {
                    match i {
                        0 => ctx.run(task::park),
                        1 => ctx.run(|| sleep(ms(1))),
                        _ => ctx.with_timeout(us(20)).run(|| sleep(ms(1))),
                    }
                    yield_now();
                }
            }));
        }
        let cancels = spawn(move || {
            yields(draw(3));
            canceller.cancel();
        });
        yields(draw(6));
        drop(cancels);
    });
}

fn two_runs() {
    let rt = runtime(2);
    for _ in 0..2 {
        rt.run(|| {
            drop(spawn(|| sleep(ms(1))));
            spawn(|| yields(2)).join().unwrap();
        });
    }
}

fn lost_update() {
    let rt = runtime(2);
    rt.run(|| {
        let n = Arc::new(Mutex::new(0));
        let all: Vec<_> = (0..2)
            .map(|_| {
                let n = Arc::clone(&n);
                spawn(move || {
                    let before = *n.lock().unwrap();
                    sleep(us(10 * draw(3)));
                    *n.lock().unwrap() = before + 1;
                })
            })
            .collect();
        all.into_iter().for_each(|g| g.join().unwrap());
        assert_eq!(*n.lock().unwrap(), 2, "an update is lost");
    });
}

//! Destructors, `Debug`, and what loggers ask leave a goroutine on its thread, although its P was
//! taken from it, and let no other goroutine run first in a simulation. Its caller may hold
//! something of the thread: a lock of `std`'s, a borrow in a thread-local that drops an old value.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use windlass::channel::{self, Select, bounded, broadcast, oneshot, unbounded, watch};
use windlass::context::{self, Context};
use windlass::fs::{self, File};
use windlass::net::{
    Graceful, TcpListener, TcpOptions, TcpStream, UdpOptions, UdpRecv, UdpSend, UdpSocket,
    UnixDatagram, UnixListener, UnixStream,
};
use windlass::numa::NodeLocal;
use windlass::sync::{
    Barrier, Condvar, LazyLock, Mutex, Notify, Once, OnceLock, Pool, RwLock, Semaphore,
    SingleFlight, WaitGroup, mpsc,
};
use windlass::task::{self, Group, JoinSet};
use windlass::time::{Ticker, Timer};
use windlass::{debug, io, process, signal, sleep, spawn, thread, time, yield_now};

use crate::temp::TempDir;
use crate::util::{self, gettid, run};

/// Asks of each call whether the goroutine has stayed where it was.
struct Probe {
    moved: Vec<String>,
    /// The names of the types that were formatted.
    shown: BTreeSet<String>,
    /// Counts how often another goroutine ran, in a simulation.
    others: Arc<AtomicUsize>,
}

impl Probe {
    fn new() -> Probe {
        let others = Arc::new(AtomicUsize::new(0));
        if util::is_simulated() {
            let others = Arc::clone(&others);
            drop(spawn(move || {
                loop {
                    others.fetch_add(1, Ordering::Relaxed);
                    yield_now();
                }
            }));
        }
        Probe {
            moved: Vec::new(),
            shown: BTreeSet::new(),
            others,
        }
    }

    fn place(&self) -> (i32, usize) {
        (gettid(), self.others.load(Ordering::Relaxed))
    }

    /// Calls `f` after the P was taken. Returns whether the goroutine has moved.
    fn moves<R>(&self, f: impl FnOnce() -> R) -> bool {
        if !util::is_simulated() {
            util::lose_p();
        }
        let before = self.place();
        let result = f();
        let after = self.place();
        drop(result);
        before != after
    }

    fn call<R>(&mut self, what: &str, f: impl FnOnce() -> R) {
        if self.moves(f) {
            self.moved.push(what.to_owned());
        }
    }

    fn drops<T>(&mut self, what: &str, value: T) {
        self.call(&format!("the drop of {what}"), || drop(value));
    }

    /// Formats the value while it holds the lock of `std`'s standard output, as `println!` does.
    fn shows<T: Debug>(&mut self, value: &T) {
        let what = std::any::type_name::<T>();
        let words = what.split(|c: char| !c.is_alphanumeric());
        self.shown.extend(words.map(str::to_owned));
        self.call(&format!("Debug of {what}"), || {
            let out = std::io::stdout().lock();
            let text = format!("{value:?} {value:#?}");
            drop(out);
            text
        });
    }

    /// Both.
    fn both<T: Debug>(&mut self, value: T) {
        self.shows(&value);
        self.drops(std::any::type_name::<T>(), value);
    }

    #[track_caller]
    fn end(self) {
        assert!(self.moved.is_empty(), "moved by {:#?}", self.moved);
    }
}

#[test]
fn another_call_moves() {
    run(1, || {
        let probe = Probe::new();
        assert!(probe.moves(yield_now));
        assert!(probe.moves(|| drop(spawn(|| ()))));
    });
}

#[test]
fn destructors_and_debug_stay() {
    run(1, || {
        let mut probe = Probe::new();
        values(&mut probe);
        of_the_kernel(&mut probe);
        let mut wrong = Vec::new();
        for name in public_types() {
            let is_plain = PLAIN.split_whitespace().any(|plain| plain == name);
            if probe.shown.contains(&name) == is_plain {
                wrong.push(name);
            }
        }
        assert!(
            wrong.is_empty(),
            "each of {wrong:?} is to be either formatted here or in the list of plain values"
        );
        probe.end();
    });
}

/// Types that are values without a lock, a wait or a descriptor; errors and reports; and those of
/// simulations, which are made by the plain thread that runs one.
const PLAIN: &str = "AcquireError AcquireTimeoutError ByLevel Disk Failure Faults FileTimes GaveUp Histogram Host Lagged Link LocalKey
    MissedTickBehavior Promise ReadyTimeoutError Received RecvError RecvTimeoutError Runtime Schedule
    SelectTimeoutError SendError SendTimeoutError Sim Supervisor TryReadyError TryRecvError TrySelectError WaitTimeoutResult";

/// The types of the public API that have a `Debug` of their own or a derived one.
fn public_types() -> BTreeSet<String> {
    let listing = include_str!("../../docs/api/windlass.txt").lines();
    let types = listing.filter_map(|line| {
        let path = ["pub struct ", "pub enum "]
            .iter()
            .find_map(|word| line.strip_prefix(word))?;
        let path = path
            .split(|c: char| !c.is_alphanumeric() && c != ':' && c != '_')
            .next()?;
        Some(path.rsplit("::").next()?.to_owned())
    });
    types.collect()
}

/// A drop that wakes another goroutine stays as well.
#[test]
fn destructors_that_wake_stay() {
    run(1, || {
        let mut probe = Probe::new();
        wake_others(&mut probe);
        probe.end();
    });
}

#[cfg(feature = "sim")]
#[test]
fn they_stay_in_a_simulation() {
    let sim = windlass::sim::Sim::new(util::PROMISE).seed(1).seeds(200);
    let report = sim.run(|| {
        let mut probe = Probe::new();
        values(&mut probe);
        probe.end();
    });
    report.unwrap();
    let wakes = sim.run(|| {
        let mut probe = Probe::new();
        wake_others(&mut probe);
        let held = File::create("/locked").unwrap();
        held.lock().unwrap();
        let other = spawn(|| File::open("/locked").unwrap().lock().unwrap());
        (0..20).for_each(|_| yield_now());
        probe.drops("a file whose lock another goroutine waits for", held);
        other.join().unwrap();
        probe.end();
    });
    wakes.unwrap();
    let moves = windlass::sim::Sim::new(util::PROMISE).seeds(20).run(|| {
        let probe = Probe::new();
        assert!((0..100).any(|_| probe.moves(yield_now)));
    });
    moves.unwrap();
}

/// The questions of loggers are among them.
fn values(probe: &mut Probe) {
    probe.call("current_node", task::current_node);
    probe.call("current", || task::current().id());
    probe.call("the name", || task::current().name().map(str::to_owned));
    probe.call("thread::current", || thread::current().id());
    probe.both(debug::region("region"));
    of_channels(probe);
    of_locks(probe);
    of_tasks(probe);
    of_time_and_contexts(probe);
    of_sockets(probe);
}

fn of_channels(probe: &mut Probe) {
    let (sender, receiver) = unbounded::<u32>();
    sender.send(1).unwrap();
    probe.both(sender.clone());
    probe.both(receiver.clone());
    probe.both(sender);
    probe.both(receiver);
    let (sender, receiver) = bounded::<String>(1);
    sender.send("unread".to_owned()).unwrap();
    probe.both(sender.try_send(String::new()).unwrap_err());
    probe.both(receiver.iter());
    probe.both(receiver.try_iter());
    probe.both(receiver);
    probe.both(sender);
    let (sender, receiver) = bounded::<u32>(0);
    probe.both(receiver.into_iter());
    probe.both(sender);
    for receiver in [
        channel::after(Duration::from_secs(1000)),
        channel::tick(Duration::from_secs(1000)),
        channel::never(),
    ] {
        probe.both(receiver);
    }
    let (sender, receiver) = mpsc::channel::<u32>();
    probe.both(receiver);
    probe.both(sender);
    let (sender, receiver) = mpsc::sync_channel::<u32>(1);
    probe.both(sender);
    probe.both(receiver);

    let (sender, receiver) = oneshot::<u32>();
    probe.both(receiver);
    probe.both(sender);
    let (sender, receiver) = oneshot::<u32>();
    probe.both(sender);
    probe.both(receiver);
    let (sender, receiver) = broadcast::<String>(2);
    sender.send("unread".to_owned()).unwrap();
    probe.both(sender.subscribe());
    probe.both(sender.clone());
    probe.both(receiver);
    probe.both(sender);
    let (sender, receiver) = watch(String::new());
    probe.shows(&*receiver.borrow());
    probe.both(receiver.borrow());
    probe.both(receiver.clone());
    probe.both(sender.clone());
    probe.both(sender);
    probe.both(receiver);

    let (sender, receiver) = bounded::<u32>(1);
    let mut select = Select::new();
    select.send(&sender);
    probe.shows(&select);
    let selected = select.select();
    probe.shows(&selected);
    selected.send(&sender, 1).unwrap();
    probe.both(select);
    drop(receiver);
}

fn of_locks(probe: &mut Probe) {
    let mutex = Arc::new(Mutex::new(vec![1, 2]));
    probe.shows(&mutex);
    probe.both(mutex.lock().unwrap());
    probe.both(mutex.lock_owned().unwrap());
    let held = mutex.lock().unwrap();
    probe.shows(&mutex);
    drop(held);
    probe.both(mutex);
    let lock = Arc::new(RwLock::new(vec![1, 2]));
    probe.shows(&lock);
    probe.both(lock.read().unwrap());
    probe.both(lock.write().unwrap());
    probe.both(lock.read_owned().unwrap());
    probe.both(lock.write_owned().unwrap());
    let held = lock.write().unwrap();
    probe.shows(&lock);
    drop(held);
    probe.both(lock);
    let semaphore = Arc::new(Semaphore::new(3));
    probe.both(semaphore.acquire(1).unwrap());
    probe.both(semaphore.acquire_owned(2).unwrap());
    probe.both(semaphore.try_acquire(4).unwrap_err());
    probe.both(semaphore);
    let notify = Notify::new();
    probe.both(notify.listen());
    notify.notify_one();
    probe.both(notify.listen());
    probe.both(notify);
    probe.both(Condvar::new());
    probe.both(Barrier::new(1).wait());
    probe.both(Barrier::new(2));
    Once::new().call_once_force(|state| probe.shows(state));
    probe.both(Once::new());
    let value = OnceLock::new();
    probe.shows(&value);
    value.set(1).unwrap();
    probe.both(value);
    let lazy = LazyLock::new(|| 7);
    probe.shows(&lazy);
    assert_eq!(*lazy, 7);
    probe.both(lazy);
    let pool = Pool::new(String::new);
    probe.both(pool.get());
    probe.both(pool);
    probe.both(SingleFlight::<u32, u32>::new());
    let group = WaitGroup::new();
    group.add(1);
    probe.both(group.clone());
    group.done();
    probe.both(group);
    probe.both(NodeLocal::new(|_| 7));
}

fn of_tasks(probe: &mut Probe) {
    probe.shows(&task::current());
    probe.shows(&thread::current());
    probe.shows(&thread::current().id());
    let ended = || {
        let handle = spawn(|| 7);
        while !handle.is_finished() {
            yield_now();
        }
        handle
    };
    probe.both(ended().task().clone());
    probe.both(ended());
    // Its last reference is a task.
    let last = ended();
    let task = last.task().clone();
    drop(last);
    probe.both(task);
    probe.both(spawn(|| sleep(Duration::from_secs(1000))));
    let waits = || task::spawn_in(&Context::background(), || sleep(Duration::from_secs(1000)));
    probe.both(waits());
    probe.both(waits().cancel_on_drop().unwrap());
    probe.both(thread::spawn(|| 7));
    probe.both(task::Builder::new());
    probe.both(thread::Builder::new());
    task::scope(|s| {
        probe.shows(&s);
        let handle = s.spawn(|| 7);
        while !handle.is_finished() {
            yield_now();
        }
        probe.both(handle);
    });
    let mut set = JoinSet::new();
    set.spawn(|| 1);
    probe.both(set);
    let mut set = JoinSet::new();
    set.spawn(|| sleep(Duration::from_secs(1000)));
    yield_now();
    probe.both(set);
    let group = Group::<u32>::new();
    group.spawn(|| Ok(()));
    probe.both(group.clone());
    assert_eq!(group.clone().wait(), Ok(()));
    probe.both(group);
    probe.both(windlass::Builder::new());
    let handle = windlass::Handle::current();
    probe.call("the runtime's name", || handle.name().len());
    probe.both(handle);
}

fn of_time_and_contexts(probe: &mut Probe) {
    let long = Duration::from_secs(1000);
    probe.both(Timer::new(long));
    probe.both(Ticker::new(long));
    probe.both(time::interval(long));
    probe.both(time::after_func(long, || ()));
    probe.both(time::Instant::now());
    probe.both(time::SystemTime::now());
    let (ctx, canceller) = Context::background().with_cancel();
    probe.both(task::When::done(&ctx).or_after(Duration::from_secs(1)));
    probe.shows(&ctx);
    let (child, of_child) = ctx.with_timeout(long).with_cancel();
    let waits = task::Builder::new()
        .context(&child)
        .spawn(move || sleep(long))
        .unwrap();
    yield_now();
    probe.both(context::after_func(&ctx, || ()));
    probe.both(child.with_value(7_u32));
    probe.both(of_child);
    probe.both(child);
    waits.join().unwrap();
    let _done = ctx.done().clone();
    probe.both(canceller);
    probe.both(ctx);
}

fn of_sockets(probe: &mut Probe) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let client = TcpStream::connect(at).unwrap();
    let (server, _) = listener.accept().unwrap();
    probe.both(client.try_clone().unwrap());
    probe.both(client);
    probe.both(server);
    probe.shows(&listener.incoming());
    probe.both(listener);
    probe.both(TcpOptions::new());
    probe.both(UdpOptions::new());
    probe.both(UdpSocket::bind("127.0.0.1:0").unwrap());
    probe.both(UdpSend::to_peer(b"packet"));
    probe.both(UdpRecv::new(&mut [0; 8]));
    let (a, b) = UnixStream::pair().unwrap();
    probe.both(a);
    probe.both(b);
    let (a, b) = UnixDatagram::pair().unwrap();
    probe.both(a);
    probe.both(b);
    let (reader, writer) = io::pipe().unwrap();
    probe.both(reader);
    probe.both(writer);
    let graceful = Graceful::new();
    probe.both(graceful.member());
    probe.both(graceful);
}

/// Types that simulations do not have, or have by other means.
fn of_the_kernel(probe: &mut Probe) {
    let folder = TempDir::new();
    let path = folder.join("file");
    let mut file = File::create(&path).unwrap();
    file.write_all(b"text").unwrap();
    probe.shows(&file.metadata().unwrap());
    probe.both(file);
    probe.both(fs::OpenOptions::new());
    probe.both(fs::DirBuilder::new());
    let mut entries = fs::read_dir(folder.path()).unwrap();
    let entry = entries.next().unwrap().unwrap();
    probe.both(entry);
    probe.both(entries);
    probe.both(fs::AlignedBuf::zeroed(4096));
    let listener = UnixListener::bind(folder.join("socket")).unwrap();
    probe.shows(&listener.incoming());
    probe.both(listener);
    probe.shows(&io::stdin());
    probe.shows(&io::stdout());
    probe.shows(&io::stderr());
    probe.both(io::stdin().lock());
    probe.both(io::stdout().lock());
    probe.both(io::stderr().lock());
    probe.both(process::Command::new("true"));
    let mut child = process::Command::new("true")
        .stdin(process::Stdio::piped())
        .stdout(process::Stdio::piped())
        .stderr(process::Stdio::piped())
        .spawn()
        .unwrap();
    probe.both(child.stdin.take());
    probe.both(child.stdout.take());
    probe.both(child.stderr.take());
    child.wait().unwrap();
    probe.both(child);
    probe.both(signal::Signals::new([libc::SIGUSR2]).unwrap());
    probe.both(task::lock_thread());
    let trace = windlass::Handle::current().start_trace();
    probe.both(trace);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    probe.shows(&listener.accept_stream());
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    client.write_all(b"text").unwrap();
    let (server, _) = listener.accept().unwrap();
    probe.both(server.recv_owned().unwrap());
    let on_nodes = TcpOptions::new()
        .listen_on_each_node("127.0.0.1:0")
        .unwrap();
    probe.both(on_nodes);
    let (a, _b) = std::os::unix::net::UnixStream::pair().unwrap();
    probe.both(io::Async::new(a).unwrap());
}

/// A goroutine waits for what is dropped.
fn wake_others(probe: &mut Probe) {
    let waits = |f: Box<dyn FnOnce() + Send>| {
        let handle = spawn(f);
        for _ in 0..20 {
            yield_now();
        }
        handle
    };
    let (sender, receiver) = bounded::<u32>(0);
    let other = waits(Box::new(move || assert!(receiver.recv().is_err())));
    probe.drops("a sender", sender);
    other.join().unwrap();
    let (sender, receiver) = bounded::<u32>(0);
    let other = waits(Box::new(move || assert!(sender.send(1).is_err())));
    probe.drops("a receiver", receiver);
    other.join().unwrap();
    let (sender, receiver) = broadcast::<u32>(1);
    let other = waits(Box::new(move || assert!(receiver.recv().is_err())));
    probe.drops("a sender of broadcasts", sender);
    other.join().unwrap();
    let (sender, receiver) = watch(1);
    let other = waits(Box::new(move || assert!(receiver.changed().is_err())));
    probe.drops("a sender of a watch", sender);
    other.join().unwrap();
    let mutex = Arc::new(Mutex::new(0));
    let guard = mutex.lock_owned().unwrap();
    let own = Arc::clone(&mutex);
    let other = waits(Box::new(move || *own.lock().unwrap() += 1));
    probe.drops("a guard", guard);
    other.join().unwrap();
    let lock = Arc::new(RwLock::new(0));
    let guard = lock.write_owned().unwrap();
    let own = Arc::clone(&lock);
    let other = waits(Box::new(move || assert_eq!(*own.read().unwrap(), 0)));
    probe.drops("a write guard", guard);
    other.join().unwrap();
    let semaphore = Arc::new(Semaphore::new(1));
    let permit = semaphore.acquire_owned(1).unwrap();
    let own = Arc::clone(&semaphore);
    let other = waits(Box::new(move || drop(own.acquire(1).unwrap())));
    probe.drops("a permit", permit);
    other.join().unwrap();
    let (ctx, canceller) = Context::background().with_cancel();
    let of_ctx = ctx.clone();
    let other = waits(Box::new(move || {
        of_ctx.run(|| sleep(Duration::from_secs(1000)));
    }));
    let selects = ctx.clone();
    let another = waits(Box::new(move || {
        assert!(selects.done().recv().is_err());
    }));
    probe.drops("a canceller", canceller);
    other.join().unwrap();
    another.join().unwrap();
}

// Uses of the names of `std` in programs. tests/std_names.rs includes this file twice: with `std`
// as `api`, and with windlass. `all` is run, in a thread or a goroutine; what follows it is only
// compiled.

pub(super) fn all() {
    threads();
    builders();
    channels();
    locks();
    files();
    pipes();
    children();
    sockets();
    unix_sockets();
    streams();
}

fn threads() {
    use api::thread::{self, JoinHandle, Thread, ThreadId};
    use std::collections::HashMap;

    let me: Thread = thread::current();
    let mut seen: HashMap<ThreadId, &str> = HashMap::new();
    seen.insert(me.id(), "me");
    let handle: JoinHandle<ThreadId> = thread::spawn(move || {
        me.unpark();
        thread::current().id()
    });
    thread::park();
    let id = handle.thread().id();
    assert!(!seen.contains_key(&id));
    assert!(format!("{:?} {id:?}", handle.thread()).contains("Thread"));
    assert_eq!(handle.join().unwrap(), id);
    let panicked: thread::Result<()> = thread::spawn(|| {
        std::panic::resume_unwind(Box::new("oops"));
    })
    .join();
    assert_eq!(panicked.unwrap_err().downcast_ref(), Some(&"oops"));
    let with_null = || thread::Builder::new().name("a\0b".into()).spawn(|| ());
    let refused = std::panic::catch_unwind(with_null).unwrap_err();
    let text = crate::util::panic_text(&*refused);
    assert!(text.starts_with("thread name may not contain interior null bytes"), "{text}");
    let text = String::from("borrowed");
    let n = thread::scope(|scope| {
        let inner = scope.spawn(|| text.len());
        let named = thread::Builder::new().name("named".into());
        let named = named.spawn_scoped(scope, || scope.spawn(|| text.len())).unwrap();
        assert_eq!(named.thread().name(), Some("named"));
        inner.join().unwrap() + named.join().unwrap().join().unwrap()
    });
    assert_eq!(n, 16);
    assert!(thread::available_parallelism().unwrap().get() > 0);
    assert!(!thread::panicking());
    thread::sleep(api::time::Duration::from_nanos(1));
    thread::park_timeout(api::time::Duration::from_nanos(1));
    thread::yield_now();
}

fn builders() {
    use api::thread::Builder;

    let builder = Builder::new().name("x".into()).stack_size(1 << 20);
    let handle = builder
        .spawn(|| api::thread::current().name().map(str::to_owned))
        .unwrap();
    while !handle.is_finished() {
        api::thread::yield_now();
    }
    assert_eq!(handle.join().unwrap().as_deref(), Some("x"));
}

fn channels() {
    use api::sync::mpsc::{
        self, Receiver, RecvError, RecvTimeoutError, SendError, Sender, SyncSender, TryRecvError,
        TrySendError,
    };
    use api::thread;

    let (sender, receiver): (Sender<u32>, Receiver<u32>) = mpsc::channel();
    thread::scope(|scope| {
        for n in 0..4 {
            let sender = sender.clone();
            scope.spawn(move || sender.send(n).unwrap());
        }
    });
    assert_eq!(receiver.try_iter().count(), 4);
    assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
    let soon = api::time::Duration::from_millis(1);
    assert_eq!(receiver.recv_timeout(soon), Err(RecvTimeoutError::Timeout));
    sender.send(5).unwrap();
    drop(sender);
    for n in &receiver {
        assert_eq!(n, 5);
    }
    assert_eq!(receiver.recv(), Err(RecvError));
    assert_eq!(receiver.into_iter().next(), None);

    let (sender, receiver): (SyncSender<u32>, _) = mpsc::sync_channel(1);
    sender.try_send(1).unwrap();
    assert_eq!(sender.try_send(2), Err(TrySendError::Full(2)));
    let waiting = thread::spawn({
        let sender = sender.clone();
        move || sender.send(3)
    });
    assert_eq!(receiver.iter().take(2).collect::<Vec<_>>(), [1, 3]);
    assert_eq!(waiting.join().unwrap(), Ok(()));
    drop(receiver);
    assert_eq!(sender.send(4), Err(SendError(4)));
    let error: Box<dyn std::error::Error + Send + Sync> = Box::new(sender.send(4).unwrap_err());
    assert_eq!(error.to_string(), "sending on a closed channel");
}

fn locks() {
    use api::sync::{Arc, Barrier, Condvar, LazyLock, Mutex, Once, OnceLock, RwLock};

    static ONCE: Once = Once::new();
    static CELL: OnceLock<u32> = OnceLock::new();
    static LAZY: LazyLock<u32> = LazyLock::new(|| 7);
    static LIST: Mutex<Vec<u32>> = Mutex::new(Vec::new());
    ONCE.call_once(|| {});
    assert!(ONCE.is_completed());
    assert_eq!(CELL.get_or_init(|| *LAZY), &7);
    LIST.lock().unwrap().push(1);
    let pair = Arc::new((Mutex::new(false), Condvar::new()));
    let other = Arc::clone(&pair);
    let handle = api::thread::spawn(move || {
        *other.0.lock().unwrap() = true;
        other.1.notify_one();
    });
    let guard = pair.0.lock().unwrap();
    let guard = pair.1.wait_while(guard, |is_set| !*is_set).unwrap();
    let (guard, timeout) = pair
        .1
        .wait_timeout_while(guard, api::time::Duration::from_millis(1), |set| *set)
        .unwrap();
    assert!(*guard && timeout.timed_out());
    drop(guard);
    handle.join().unwrap();
    assert!(!pair.0.is_poisoned());
    let lock = RwLock::new(1);
    assert_eq!(*lock.read().unwrap() + *lock.try_read().unwrap(), 2);
    *lock.write().unwrap() = 2;
    assert_eq!(lock.into_inner().unwrap(), 2);
    assert!(Barrier::new(1).wait().is_leader());
}

fn directory() -> std::path::PathBuf {
    static MADE: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let n = MADE.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let name = format!("{}-{n}-{}", std::process::id(), module_path!().replace("::", "-"));
    let dir = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&dir);
    dir
}

fn files() {
    use api::fs::{self, DirBuilder, File, OpenOptions};
    use api::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
    use api::os::fd::{AsFd, AsRawFd, IntoRawFd, OwnedFd};
    use api::os::unix::fs::{
        DirBuilderExt, DirEntryExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt,
    };

    let dir = directory();
    DirBuilder::new().recursive(true).mode(0o700).create(&dir).unwrap();
    let path = dir.join("a");
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).custom_flags(0);
    let mut file: File = options.open(&path).unwrap();
    writeln!(file, "one").unwrap();
    file.write_all_at(b"two\n", 4).unwrap();
    file.sync_all().unwrap();
    assert_eq!(file.metadata().unwrap().mode() & 0o777, 0o600);
    assert!(file.as_raw_fd() >= 0 && file.as_fd().as_raw_fd() >= 0);
    let mut file = File::open(&path).unwrap();
    file.seek(SeekFrom::Start(4)).unwrap();
    let mut text = String::new();
    (&file).read_to_string(&mut text).unwrap();
    assert_eq!(text, "two\n");
    file.rewind().unwrap();
    let lines: Vec<_> = BufReader::new(&file).lines().map(Result::unwrap).collect();
    assert_eq!(lines, ["one", "two"]);
    let raw = File::from(OwnedFd::from(file)).into_raw_fd();
    // SAFETY: the descriptor has no other owner.
    drop(unsafe { <File as api::os::fd::FromRawFd>::from_raw_fd(raw) });
    let entry = fs::read_dir(&dir).unwrap().next().unwrap().unwrap();
    assert_eq!(entry.ino(), fs::metadata(entry.path()).unwrap().ino());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
    api::os::unix::fs::symlink("a", dir.join("b")).unwrap();
    assert!(fs::symlink_metadata(dir.join("b")).unwrap().is_symlink());
    fs::remove_dir_all(&dir).unwrap();
}

fn pipes() {
    use api::io::{self, Read, Write};

    let (mut reader, mut writer): (io::PipeReader, io::PipeWriter) = io::pipe().unwrap();
    let other = writer.try_clone().unwrap();
    writer.write_all(b"hello").unwrap();
    drop((writer, other));
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes, b"hello");
    let mut copied = io::Cursor::new(Vec::new());
    assert_eq!(io::copy(&mut &b"abc"[..], &mut copied).unwrap(), 3);
}

fn children() {
    use api::io::{BufRead, BufReader, Write};
    use api::os::fd::OwnedFd;
    use api::os::unix::process::{CommandExt, ExitStatusExt};
    use api::process::{Child, ChildStdin, Command, CommandArgs, CommandEnvs, Output, Stdio};

    let mut command = Command::new("sh");
    command.args(["-c", "read line; echo $line $0"]).arg0("shell").env("A", "1");
    let args: CommandArgs<'_> = command.get_args();
    assert_eq!(args.len(), 2);
    let envs: CommandEnvs<'_> = command.get_envs();
    assert_eq!(envs.len(), 1);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
    let mut child: Child = command.spawn().unwrap();
    let mut stdin: ChildStdin = child.stdin.take().unwrap();
    writeln!(stdin, "hello").unwrap();
    drop(OwnedFd::from(stdin));
    let mut line = String::new();
    let stdout = child.stdout.take().unwrap();
    BufReader::new(stdout).read_line(&mut line).unwrap();
    assert_eq!(line, "hello shell\n");
    assert!(child.wait().unwrap().success());
    let output: Output = Command::new("sh").args(["-c", "kill -9 $$"]).output().unwrap();
    assert_eq!(output.status.signal(), Some(9));
    // The streams of this process as those of a child.
    let mut child = Command::new("true")
        .stdin(Stdio::null())
        .stdout(api::io::stderr())
        .stderr(api::io::stdout())
        .spawn()
        .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

fn sockets() {
    use api::io::{BufRead, BufReader, Write};
    use api::net::{Incoming, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
    use api::os::fd::{FromRawFd, IntoRawFd};
    use api::os::linux::net::TcpStreamExt;

    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let addr: SocketAddr = listener.local_addr().unwrap();
    let client = api::thread::spawn(move || {
        let mut stream = TcpStream::connect(addr).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_quickack(true).unwrap();
        writeln!(stream, "hello").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
    });
    let mut incoming: Incoming<'_> = listener.incoming();
    let stream = incoming.next().unwrap().unwrap();
    // SAFETY: the descriptor has no other owner.
    let stream = unsafe { TcpStream::from_raw_fd(stream.into_raw_fd()) };
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut line = String::new();
    assert_eq!(reader.read_line(&mut line).unwrap(), 6);
    client.join().unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(socket.local_addr().unwrap()).unwrap();
    socket.send(b"x").unwrap();
    assert_eq!(socket.recv(&mut [0; 2]).unwrap(), 1);
}

fn unix_sockets() {
    use api::io::{Read, Write};
    use api::os::linux::net::SocketAddrExt;
    use api::os::unix::net::{Incoming, SocketAddr, UnixDatagram, UnixListener, UnixStream};

    let name = format!("windlass-{}-{}", std::process::id(), module_path!());
    let addr = SocketAddr::from_abstract_name(name).unwrap();
    let listener = UnixListener::bind_addr(&addr).unwrap();
    let mut stream = UnixStream::connect_addr(&addr).unwrap();
    let mut incoming: Incoming<'_> = listener.incoming();
    let mut accepted = incoming.next().unwrap().unwrap();
    accepted.write_all(b"x").unwrap();
    drop(accepted);
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes, b"x");
    let (a, b) = UnixDatagram::pair().unwrap();
    a.send(b"y").unwrap();
    assert_eq!(b.recv(&mut [0; 2]).unwrap(), 1);
}

fn streams() {
    use api::io::{self, IsTerminal, Write};

    let _ = io::stdin().is_terminal() || io::stdout().is_terminal() || io::stderr().is_terminal();
    let mut lock: io::StdoutLock<'static> = io::stdout().lock();
    lock.write_all(b"").unwrap();
    // A lock does not keep its own goroutine or thread away.
    io::stdout().write_all(b"").unwrap();
    drop(lock);
    let mut lock: io::StderrLock<'static> = io::stderr().lock();
    lock.write_all(b"").unwrap();
    let empty = api::fs::File::open("/dev/null").unwrap();
    assert!(!empty.is_terminal());
}

#[allow(dead_code)]
fn standard_input() -> api::io::Result<()> {
    use api::io::{self, BufRead, Read};

    let mut line = String::new();
    io::stdin().read_line(&mut line)?;
    let mut lock: io::StdinLock<'static> = io::stdin().lock();
    lock.read_line(&mut line)?;
    lock.read_to_string(&mut line)?;
    drop(lock);
    for line in io::stdin().lines() {
        drop(line?);
    }
    io::stdin().read_exact(&mut [0])?;
    io::read_to_string(io::stdin()).map(drop)
}

#[allow(dead_code)]
fn main() -> api::process::ExitCode {
    use api::process::{ExitCode, Termination};
    use api::time::{Instant, SystemTime, SystemTimeError, UNIX_EPOCH};

    let since: Result<_, SystemTimeError> = SystemTime::now().duration_since(UNIX_EPOCH);
    let _ = (since, Instant::now().elapsed());
    let _ = ExitCode::SUCCESS.report();
    ExitCode::FAILURE
}

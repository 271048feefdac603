//! Functions that the tests share: runtimes, hang guards, child processes, counting of
//! what a process holds.
#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    reason = "these helpers block plain threads"
)]

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::{Duration, Instant};

use windlass::fs::File;
use windlass::metrics::Poller;
use windlass::net::{TcpListener, TcpStream};
use windlass::{Builder, Runtime};

/// A test that takes longer than this has hung. Generous: debug builds on a busy
/// machine with two cores pass long before.
const HANG_SECONDS: u32 = 120;

/// The environment variable that says otherwise, for machines that are slower than that.
const PATIENCE: &str = "WINDLASS_TEST_HANG_SECONDS";

fn hang_seconds() -> u32 {
    let said = std::env::var(PATIENCE).ok().and_then(|s| s.parse().ok());
    said.unwrap_or(HANG_SECONDS)
}

/// The environment variable that makes a test the child of another run of itself.
const CHILD: &str = "WINDLASS_TEST_CHILD";

/// The environment variable that perturbs the scheduler of tests that are built with the feature `chaos`.
const CHAOS: &str = "WINDLASS_CHAOS";

/// Whether the scheduler is perturbed: then nothing can be said of speed, nor of what it
/// would choose by itself.
pub(crate) fn is_chaotic() -> bool {
    std::env::var_os(CHAOS).is_some()
}

/// Settings for runtimes and simulations of tests.
// SAFETY: no test keeps a borrow of a thread-local, nor anything else of a thread, across a call into windlass.
pub(crate) const PROMISE: windlass::Promise =
    unsafe { windlass::Promise::no_thread_local_across_waits() };

/// Builds what the builder says.
pub(crate) fn build(builder: Builder) -> io::Result<Runtime> {
    // SAFETY: no test keeps a borrow of a thread-local across a call that parks.
    unsafe { builder.build() }
}

/// A runtime of `n` Ps.
pub(crate) fn runtime(n: usize) -> Runtime {
    build(Builder::new().processors(n)).expect("every machine has a poller")
}

/// Whether the test runs in a simulation: see the modules named `inside`.
pub(crate) fn is_simulated() -> bool {
    #[cfg(feature = "sim")]
    return windlass::sim::is_simulated();
    #[cfg(not(feature = "sim"))]
    false
}

/// Runs `f` as the main goroutine of a runtime of `n` Ps, with a hang guard. In a simulation, `f`
/// runs in the goroutine that is there.
pub(crate) fn run<T: Send>(n: usize, f: impl FnOnce() -> T + Send) -> T {
    if is_simulated() {
        return f();
    }
    let _guard = hang_guard();
    runtime(n).run(f)
}

/// How much a test does: `all`, and in a simulation, which has many runs, `few`.
pub(crate) fn much(all: usize, few: usize) -> usize {
    if is_simulated() { few } else { all }
}

/// Runs `f` on the calling thread, and as the main goroutine of a runtime of `n` Ps. In a simulation
/// it runs once, in the goroutine that is there.
pub(crate) fn on_thread_and_goroutine(n: usize, f: impl Fn() + Send + Sync) {
    if is_simulated() {
        return f();
    }
    let _guard = hang_guard();
    f();
    runtime(n).run(f);
}

/// Ends the process if it is not dropped in time.
#[derive(Debug)]
pub(crate) struct HangGuard {
    /// Without a thread, in a simulation: its steps are limited.
    over: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// Watches over the calling test.
pub(crate) fn hang_guard() -> HangGuard {
    let name = std::thread::current().name().unwrap_or("a test").to_owned();
    let over = Arc::new((Mutex::new(false), Condvar::new()));
    if is_simulated() {
        return HangGuard { over, thread: None };
    }
    let watched = Arc::clone(&over);
    let thread = std::thread::Builder::new()
        .name("hang-guard".to_owned())
        .spawn(move || {
            let (flag, changed) = &*watched;
            let limit = Duration::from_secs(u64::from(hang_seconds()));
            let flag = flag.lock().unwrap();
            let (flag, _) = changed
                .wait_timeout_while(flag, limit, |over| !*over)
                .unwrap();
            if !*flag {
                eprintln!("{name} has not ended after {limit:?}: it hangs");
                std::process::abort();
            }
        })
        .unwrap();
    HangGuard {
        over,
        thread: Some(thread),
    }
}

impl Drop for HangGuard {
    fn drop(&mut self) {
        *self.over.0.lock().unwrap() = true;
        self.over.1.notify_all();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

/// Changes the number of Ps, and tries again while a busy machine, or a goroutine that
/// cannot be made to stop, keeps the world from stopping.
pub(crate) fn set_processors(rt: &Runtime, n: usize) {
    loop {
        match rt.set_processors(n) {
            Err(e) if e.kind() == io::ErrorKind::TimedOut => {}
            changed => return changed.unwrap(),
        }
    }
}

/// Where no socket is, of UDP or of TCP. A port that was free a moment ago may be given to another one.
pub(crate) const NOBODY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1);

/// A loopback address that nobody else has, with any free port. No other test gets that port when it is given up.
pub(crate) fn own_addr() -> SocketAddr {
    static NEXT: AtomicU8 = AtomicU8::new(0);
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let ip = match is_simulated() {
        true => Ipv4Addr::LOCALHOST,
        false => Ipv4Addr::new(127, high, low, NEXT.fetch_add(1, Ordering::Relaxed)),
    };
    SocketAddr::new(ip.into(), 0)
}

/// Lets others run until `done` says so. On a goroutine and on a plain thread. In a simulation time
/// passes meanwhile.
pub(crate) fn wait_until(mut done: impl FnMut() -> bool) {
    while !done() {
        if is_simulated() {
            windlass::sleep(Duration::from_millis(1));
        }
        windlass::yield_now();
    }
}

/// Tries until the peer's socket is closed. A process that another test has forked keeps it open
/// until it executes its program.
pub(crate) fn wait_until_refused<T>(mut attempt: impl FnMut() -> io::Result<T>) {
    wait_until(|| {
        attempt().is_err_and(|e| {
            assert_eq!(e.kind(), io::ErrorKind::ConnectionRefused);
            true
        })
    });
}

/// Which child this process is, if it is one. It is killed if it hangs, and leaves
/// no core file, unless the limit is raised for it.
pub(crate) fn child_case() -> Option<String> {
    let case = std::env::var(CHILD).ok()?;
    let mut core = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the calls take plain values; the limit is a valid structure.
    unsafe {
        libc::alarm(hang_seconds());
        libc::getrlimit(libc::RLIMIT_CORE, &mut core);
        core.rlim_cur = 0;
        libc::setrlimit(libc::RLIMIT_CORE, &core);
    }
    Some(case)
}

/// The whole name of a test of the file that asks: `module::name`, where the file is a module.
#[track_caller]
pub(crate) fn test_name(name: &str) -> String {
    let file = std::path::Path::new(std::panic::Location::caller().file());
    let folder = file.parent().and_then(|p| p.file_name());
    let module = file.file_stem().and_then(|s| s.to_str()).unwrap();
    if name.contains("::") || module == "main" || folder.is_some_and(|f| f == "tests") {
        return name.to_owned();
    }
    format!("{module}::{name}")
}

/// Runs the test `name` of this test program in a process of its own.
#[track_caller]
pub(crate) fn child(name: &str, case: &str) -> Output {
    child_with_env(name, case, &[])
}

/// The number of an error of the kernel, also of one that names an address.
pub(crate) fn errno_of(error: &io::Error) -> Option<i32> {
    let of_source = || {
        let source = error.get_ref()?.source()?;
        source.downcast_ref::<io::Error>()?.raw_os_error()
    };
    error.raw_os_error().or_else(of_source)
}

/// As [`child`], with more variables in its environment.
#[track_caller]
pub(crate) fn child_with_env(name: &str, case: &str, env: &[(&str, &str)]) -> Output {
    child_command(name, case)
        .envs(env.iter().copied())
        .output()
        .unwrap()
}

/// The child, yet to be started.
#[track_caller]
pub(crate) fn child_command(name: &str, case: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([
            &*test_name(name),
            "--exact",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(CHILD, case)
        .env("RUST_BACKTRACE", "0")
        // The output of a child is compared word by word, and this would be one more line.
        .env_remove(CHAOS)
        .stdin(Stdio::null());
    // A shell starts what it puts into the background with these ignored, and so would the child.
    let as_in_the_foreground = || {
        for signal in [libc::SIGINT, libc::SIGQUIT] {
            // SAFETY: takes plain integers, and the default needs no handler to be valid.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        Ok(())
    };
    // SAFETY: the closure makes system calls only, which may be made between fork and exec.
    unsafe { command.pre_exec(as_in_the_foreground) };
    command
}

/// As [`child`]; the test must pass there. Gives what it wrote to stderr.
#[track_caller]
pub(crate) fn child_passes(name: &str, case: &str) -> String {
    without_fallback(&passed(name, case, &child(name, case)))
}

/// The output of a process, but for the line that tells of epoll where io_uring is denied.
pub(crate) fn without_fallback(stderr: &str) -> String {
    stderr
        .split_inclusive('\n')
        .filter(|line| !line.contains("; epoll is used instead"))
        .collect()
}

/// As [`child_passes`], where `WINDLASS_IO` is as said, whatever it is here.
#[track_caller]
pub(crate) fn child_passes_with_io(name: &str, case: &str, io: Option<&str>) -> String {
    let mut command = child_command(name, case);
    match io {
        Some(io) => command.env("WINDLASS_IO", io),
        None => command.env_remove("WINDLASS_IO"),
    };
    passed(name, case, &command.output().unwrap())
}

fn passed(name: &str, case: &str, output: &Output) -> String {
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.success() && stdout.contains("1 passed"),
        "the child {name} ({case}) ended with {:?}\n--- stdout\n{stdout}\n--- stderr\n{stderr}",
        output.status
    );
    stderr
}

/// Whether this process may use io_uring; says so if it may not.
pub(crate) fn has_io_uring() -> bool {
    let nothing = std::ptr::null_mut::<u8>();
    // SAFETY: asks for a ring of no entries, which is an error, and nothing is written.
    unsafe { libc::syscall(libc::SYS_io_uring_setup, 0, nothing) };
    let errno = io::Error::last_os_error().raw_os_error();
    let denied = matches!(errno, Some(libc::EPERM | libc::EACCES | libc::ENOSYS));
    if denied {
        eprintln!("io_uring is denied here: not tested");
    }
    !denied
}

/// Counts how many values live and how many were dropped.
#[derive(Clone, Debug, Default)]
pub(crate) struct Census(Arc<(AtomicUsize, AtomicUsize)>);

impl Census {
    /// One more value that is counted when it is dropped.
    pub(crate) fn member(&self) -> Member {
        self.0.0.fetch_add(1, Ordering::SeqCst);
        Member(self.clone())
    }

    pub(crate) fn made(&self) -> usize {
        self.0.0.load(Ordering::SeqCst)
    }

    pub(crate) fn dropped(&self) -> usize {
        self.0.1.load(Ordering::SeqCst)
    }

    /// Every value is gone, each once.
    #[track_caller]
    pub(crate) fn assert_all_dropped(&self, n: usize) {
        assert_eq!((self.made(), self.dropped()), (n, n), "(made, dropped)");
    }
}

/// A value whose drops are counted.
#[derive(Debug)]
pub(crate) struct Member(Census);

impl Drop for Member {
    fn drop(&mut self) {
        self.0.0.1.fetch_add(1, Ordering::SeqCst);
    }
}

/// Something that blocks threads until it is opened.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    pub(crate) fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }

    /// Blocks the thread, unknown to windlass.
    pub(crate) fn wait(&self) {
        let open = self.0.0.lock().unwrap();
        drop(self.0.1.wait_while(open, |open| !*open).unwrap());
    }
}

/// Opens a gate when it is dropped.
#[derive(Debug)]
pub(crate) struct OpensOnDrop(pub(crate) Gate);

impl Drop for OpensOnDrop {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// The descriptors that the process has open.
pub(crate) fn open_fds() -> BTreeMap<i32, String> {
    let mut fds = BTreeMap::new();
    for entry in std::fs::read_dir("/proc/self/fd").unwrap() {
        let entry = entry.unwrap();
        // The descriptor that reads the directory is gone when its link is read.
        if let Ok(target) = std::fs::read_link(entry.path()) {
            let target = target.to_string_lossy().into_owned();
            if !target.ends_with("/fd") {
                fds.insert(entry.file_name().to_string_lossy().parse().unwrap(), target);
            }
        }
    }
    fds
}

/// How many threads the process has that are not about to end: one that was joined is off the
/// kernel's list only a moment later.
pub(crate) fn n_threads() -> usize {
    /// The kernel's flag of such a thread; flags are the field 9 of its statistics.
    const PF_EXITING: u32 = 4;
    let is_exiting = |stat: &String| {
        let flags: u32 = fields_of(stat).nth(6).unwrap().parse().unwrap();
        flags & PF_EXITING != 0
    };
    thread_stats().filter(|stat| !is_exiting(stat)).count()
}

/// The kernel's statistics of each thread of the process, as text.
fn thread_stats() -> impl Iterator<Item = String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    // A thread may end meanwhile.
    tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("stat")).ok())
}

/// The fields behind the thread's name. The first is the state, which counts as the third of all.
fn fields_of(stat: &str) -> impl Iterator<Item = &str> {
    stat.rsplit_once(") ").unwrap().1.split(' ')
}

/// Computes without a call into windlass.
pub(crate) fn compute(time: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// The names of the process's threads.
pub(crate) fn thread_names() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| {
        // A thread may end meanwhile.
        std::fs::read_to_string(task.ok()?.path().join("comm")).ok()
    });
    names.map(|name| name.trim_end().to_owned()).collect()
}

/// CPU time that the thread of this name has used. Waits for the thread to begin.
pub(crate) fn thread_cpu(name: &str) -> Duration {
    let name = format!("({name})");
    let mut tid = None;
    wait_until(|| {
        let stat = thread_stats().find(|stat| stat.contains(&name));
        tid = stat.map(|stat| stat.split_once(' ').unwrap().0.parse::<i32>().unwrap());
        tid.is_some()
    });
    // The kernel's name for the clock that counts the CPU time of one thread.
    const PER_THREAD: i32 = 4;
    const SCHEDULED: i32 = 2;
    clock_of(!tid.unwrap() << 3 | PER_THREAD | SCHEDULED)
}

/// CPU time that all threads of the process have used.
pub(crate) fn process_cpu() -> Duration {
    clock_of(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// CPU time that the calling thread has used.
#[inline(never)]
pub(crate) fn own_cpu() -> Duration {
    clock_of(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn clock_of(clock: libc::clockid_t) -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the place for the answer is valid.
    assert_eq!(unsafe { libc::clock_gettime(clock, &raw mut time) }, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The mappings of the process: protection and name, without address and size,
/// because the allocator's grow.
pub(crate) fn mappings() -> Vec<String> {
    let mut all: Vec<String> = std::fs::read_to_string("/proc/self/maps")
        .unwrap()
        .lines()
        .map(|line| {
            let fields: Vec<_> = line.split_whitespace().collect();
            format!("{} {}", fields[1], fields.get(5).unwrap_or(&""))
        })
        .collect();
    all.sort();
    all
}

/// The CPUs that the calling thread may run on.
pub(crate) fn affinity() -> Vec<usize> {
    affinity_of(0)
}

/// As [`affinity`], of the thread with this number of the kernel's; 0 is the calling one.
#[inline(never)]
pub(crate) fn affinity_of(tid: i32) -> Vec<usize> {
    // SAFETY: an all-zero set is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // By the system call: libc's function tells goroutines of the whole process.
    let (place, len) = (&raw mut set, size_of_val(&set));
    // SAFETY: the set is valid and as long as is said.
    let n = unsafe { libc::syscall(libc::SYS_sched_getaffinity, tid, len, place) };
    assert!(n > 0);
    let n_bits = 8 * size_of_val(&set);
    // SAFETY: the position is inside the set.
    (0..n_bits)
        .filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) })
        .collect()
}

/// Restricts the calling thread to these CPUs.
pub(crate) fn pin(cpus: &[usize]) {
    set_affinity(0, cpus);
}

/// Restricts a thread of this process, 0 for the calling one, to these CPUs. One that has just
/// ended is none.
pub(crate) fn set_affinity(tid: i32, cpus: &[usize]) {
    // SAFETY: an all-zero set is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for &cpu in cpus {
        assert!(cpu < 8 * size_of_val(&set));
        // SAFETY: the position is inside the set.
        unsafe { libc::CPU_SET(cpu, &mut set) };
    }
    // SAFETY: the set is valid and as long as is said.
    let r = unsafe { libc::sched_setaffinity(tid, size_of_val(&set), &raw const set) };
    let e = io::Error::last_os_error();
    assert!(r == 0 || e.raw_os_error() == Some(libc::ESRCH), "{e}");
}

/// The kernel's number of the calling thread.
#[inline(never)]
pub(crate) fn gettid() -> i32 {
    // SAFETY: the call has no preconditions.
    unsafe { libc::gettid() }
}

#[inline(never)]
pub(crate) fn errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap()
}

#[inline(never)]
pub(crate) fn set_errno(errno: i32) {
    // SAFETY: the address is that of the calling thread's own errno, and used at once.
    unsafe { *libc::__errno_location() = errno };
}

/// The limit on descriptors: soft and hard.
pub(crate) fn nofile_limits() -> (u64, u64) {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the place for the answer is valid.
    let r = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    assert_eq!(r, 0);
    (limit.rlim_cur, limit.rlim_max)
}

/// The two ends of a connection.
pub(crate) fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let a = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (a, listener.accept().unwrap().0)
}

/// Whether runtimes have rings here, which have pools of buffers and may send without copying.
pub(crate) fn has_rings() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    let look = || runtime(1).metrics().poller == Poller::IoUring;
    // On a thread of its own: a goroutine cannot build another runtime.
    *HAS.get_or_init(|| windlass::blocking(|| std::thread::spawn(look).join().unwrap()))
}

/// A line of `/proc/self/status` that is in kB, in bytes.
pub(crate) fn status_bytes(field: &str) -> u64 {
    bytes_in("/proc/self/status", field)
}

/// A line of a file of `/proc` that is in kB, in bytes.
pub(crate) fn bytes_in(file: &str, field: &str) -> u64 {
    let text = std::fs::read_to_string(file).unwrap();
    let line = text.lines().find_map(|l| l.strip_prefix(field));
    let kib = line.and_then(|l| l.trim().strip_suffix(" kB")).unwrap();
    kib.parse::<u64>().unwrap() << 10
}

/// The memory that the process has, in bytes.
pub(crate) fn resident_bytes() -> u64 {
    status_bytes("VmRSS:")
}

/// The address space that the process uses, in bytes.
pub(crate) fn memory_bytes() -> u64 {
    status_bytes("VmSize:")
}

/// A runtime with one P and one thread, and its monitor; for goroutines that run out of memory. Begins with
/// the work `f`. A thread that starts while there is no memory left, to take over a P, would end
/// the process in `std` or in the allocator.
pub(crate) fn run_with_one_thread(f: impl FnOnce() + Send) {
    let builder = Builder::new().processors(1).max_threads(1);
    build(builder).unwrap().run(|| {
        windlass::offload(|| ());
        wait_for_naps_of("sysmon");
        f();
    });
}

/// Returns when the thread whose name ends so has slept a few times: then it has all that a thread
/// needs to start.
fn wait_for_naps_of(name: &str) {
    let naps = |task: std::fs::DirEntry| {
        let status = std::fs::read_to_string(task.path().join("status")).ok()?;
        let of = |key: &str| status.lines().find_map(|l| l.strip_prefix(key));
        let is_it = of("Name:")?.trim().ends_with(name);
        let n: u32 = of("voluntary_ctxt_switches:")?.trim().parse().ok()?;
        Some(is_it && n >= 3)
    };
    let tasks = || std::fs::read_dir("/proc/self/task").unwrap();
    while !tasks().any(|task| naps(task.unwrap()) == Some(true)) {
        std::hint::spin_loop();
    }
}

/// Sets the limit on the address space. Threads that start later share the allocator's arenas.
pub(crate) fn set_memory_limit(bytes: u64) {
    // SAFETY: takes plain integers.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1)
    };
    let limit = libc::rlimit {
        rlim_cur: bytes,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: the limit is a valid structure.
    let r = unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) };
    assert_eq!(r, 0, "{}", io::Error::last_os_error());
}

/// Sets the soft limit on descriptors.
pub(crate) fn set_nofile_limit(soft: u64) {
    let limit = libc::rlimit {
        rlim_cur: soft,
        rlim_max: nofile_limits().1,
    };
    // SAFETY: the limit is a valid structure.
    let r = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) };
    assert_eq!(r, 0, "{}", io::Error::last_os_error());
}

/// No thread of the process can start another one, until [`grant_threads`]. The limit does not bind root, so the process
/// is another user's from here on.
pub(crate) fn refuse_threads() {
    const NOBODY: libc::uid_t = 65534;
    set_thread_limit(|limit| limit.rlim_cur = 1);
    // SAFETY: the calls take plain numbers.
    unsafe {
        if libc::geteuid() == 0 {
            assert_eq!(libc::setuid(NOBODY), 0);
        }
    }
    let thread = std::thread::Builder::new().spawn(|| ());
    assert_eq!(thread.unwrap_err().kind(), io::ErrorKind::WouldBlock);
}

/// Threads can be started again.
pub(crate) fn grant_threads() {
    set_thread_limit(|limit| limit.rlim_cur = limit.rlim_max);
}

fn set_thread_limit(change: impl FnOnce(&mut libc::rlimit)) {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the limit is a valid structure that the call may write.
    let r = unsafe { libc::getrlimit(libc::RLIMIT_NPROC, &mut limit) };
    assert_eq!(r, 0);
    change(&mut limit);
    // SAFETY: the limit is a valid structure.
    let r = unsafe { libc::setrlimit(libc::RLIMIT_NPROC, &limit) };
    assert_eq!(r, 0);
}

/// The text of a panic.
pub(crate) fn panic_text(payload: &(dyn std::any::Any + Send)) -> &str {
    payload
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| payload.downcast_ref::<&str>().copied())
        .unwrap_or("(no text)")
}

/// A stream of bytes in which each place can be told from its neighbours.
#[derive(Debug)]
pub(crate) struct Pattern(Vec<u8>);

const PERIOD: usize = 65_521;
const LONGEST: usize = 1 << 20;

impl Pattern {
    pub(crate) fn new() -> Pattern {
        let mut state = 1_u32;
        let period: Vec<u8> = (0..PERIOD)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 24) as u8
            })
            .collect();
        Pattern(
            period
                .iter()
                .copied()
                .cycle()
                .take(PERIOD + LONGEST)
                .collect(),
        )
    }

    /// `len` bytes of the stream, at most a MiB, from position `at` on.
    pub(crate) fn bytes(&self, at: usize, len: usize) -> &[u8] {
        &self.0[at % PERIOD..][..len]
    }

    /// Writes the bytes `from..to` of the stream.
    pub(crate) fn write(
        &self,
        to: &mut impl Write,
        from: usize,
        end: usize,
        step: usize,
    ) -> io::Result<()> {
        let mut at = from;
        while at < end {
            at += to.write(self.bytes(at, step.min(end - at)))?;
        }
        Ok(())
    }

    /// Reads to the end of the stream and checks every byte. Gives their number.
    pub(crate) fn check(&self, from: &mut impl Read, step: usize) -> io::Result<usize> {
        let mut buf = vec![0; step];
        let mut at = 0;
        loop {
            let n = from.read(&mut buf)?;
            if n == 0 {
                return Ok(at);
            }
            assert!(
                buf[..n] == *self.bytes(at, n),
                "wrong bytes behind position {at}"
            );
            at += n;
        }
    }
}

/// The two sides of a terminal.
pub(crate) fn terminal() -> (File, File) {
    let (mut master, mut slave) = (-1, -1);
    let null = std::ptr::null_mut();
    // SAFETY: both places are valid, and null means no name and no settings.
    let r = unsafe { libc::openpty(&raw mut master, &raw mut slave, null, null as _, null as _) };
    assert_eq!(r, 0);
    // SAFETY: the call returned both, and nobody else has them.
    [master, slave]
        .map(|fd| File::from(unsafe { OwnedFd::from_raw_fd(fd) }))
        .into()
}

/// Blocks the thread until the only P was taken from this goroutine and runs another one.
pub(crate) fn lose_p() {
    let has_run = Arc::new(AtomicBool::new(false));
    let mark = Arc::clone(&has_run);
    drop(windlass::spawn(move || mark.store(true, Ordering::SeqCst)));
    let until = Instant::now() + Duration::from_secs(60);
    while !has_run.load(Ordering::SeqCst) {
        assert!(Instant::now() < until, "the P is not taken");
        std::thread::sleep(Duration::from_millis(1));
    }
}

//! Runtimes with a thread, a ring and a listener for each core, whose operations own their
//! buffers meanwhile, as a trait, so that a workload is written once for all of them. monoio and
//! compio have it in crates of their own (`benches/peers/`).
//!
//! They are used as their users deploy them: a runtime with its defaults on each of so many
//! threads, each thread pinned, and a listener of its own for each, on one port by
//! `SO_REUSEPORT`. A connection stays where it was accepted.

pub mod programs;

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::thread;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use socket2::{Domain, Protocol, Socket, Type};

/// The result of an operation, and the buffer that it was given.
pub type Lent<T, B> = (io::Result<T>, B);

/// Connections that may wait to be accepted, for each listener: tokio's default.
const BACKLOG: i32 = 1024;

/// A runtime of one thread.
///
/// The functions but `run` are called inside of it.
pub trait PerCore: 'static {
    /// A TCP listener.
    type Listener: 'static;
    /// A TCP stream.
    type Stream: 'static;
    /// A file.
    type File: 'static;

    /// Runs `main` on a runtime that the calling thread gets for it.
    fn run<F: Future + 'static>(main: F) -> F::Output
    where
        F::Output: 'static;

    /// Starts a task that nobody waits for.
    fn go(task: impl Future<Output = ()> + 'static);

    /// Starts a task to wait for.
    fn spawn<T: 'static>(task: impl Future<Output = T> + 'static) -> impl Future<Output = T>;

    /// Takes over a listener.
    ///
    /// # Errors
    ///
    /// Those of the runtime.
    fn listener(listener: TcpListener) -> io::Result<Self::Listener>;

    /// Accepts a connection, and sets `TCP_NODELAY` on it.
    fn accept(listener: &Self::Listener) -> impl Future<Output = io::Result<Self::Stream>>;

    /// Takes over a connection.
    ///
    /// # Errors
    ///
    /// Those of the runtime.
    fn stream(stream: TcpStream) -> io::Result<Self::Stream>;

    /// Reads what has come to the end of a buffer, as far as its capacity goes.
    fn read(
        stream: &mut Self::Stream,
        buffer: Vec<u8>,
    ) -> impl Future<Output = Lent<usize, Vec<u8>>>;

    /// Fills a buffer.
    fn read_exact(
        stream: &mut Self::Stream,
        buffer: Box<[u8]>,
    ) -> impl Future<Output = Lent<(), Box<[u8]>>>;

    /// Writes all of a buffer.
    fn write_all(
        stream: &mut Self::Stream,
        buffer: Vec<u8>,
    ) -> impl Future<Output = Lent<(), Vec<u8>>>;

    /// Opens a file for reading, with these flags of `open(2)`.
    fn open(path: &Path, flags: i32) -> impl Future<Output = io::Result<Self::File>>;

    /// Reads into so many bytes of a buffer from an offset on.
    fn read_at(
        file: &Self::File,
        buffer: Box<[u8]>,
        range: std::ops::Range<usize>,
        position: u64,
    ) -> impl Future<Output = Lent<usize, Box<[u8]>>>;
}

/// A runtime on each of so many threads, pinned to the CPUs of this process in turn; gives back
/// what each of them does.
///
/// # Panics
///
/// If one of them does, or cannot be pinned.
pub fn on_each_core<R, T, F>(workers: usize, main: impl Fn(usize) -> F + Sync) -> Vec<T>
where
    R: PerCore,
    T: Send + 'static,
    F: Future<Output = T> + 'static,
{
    let allowed = sched_getaffinity(None).expect("an affinity can be read");
    let cpus: Vec<_> = (0..CpuSet::MAX_CPU)
        .filter(|&cpu| allowed.is_set(cpu))
        .collect();
    let (main, cpus) = (&main, &cpus);
    thread::scope(|s| {
        let threads: Vec<_> = (0..workers)
            .map(|i| {
                s.spawn(move || {
                    let mut own = CpuSet::new();
                    own.set(cpus[i % cpus.len()]);
                    sched_setaffinity(None, &own).expect("a CPU that this process may use");
                    R::run(main(i))
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("a worker should not panic"))
            .collect()
    })
}

/// Listeners at one address, for so many workers.
///
/// # Errors
///
/// Those of `bind`.
pub fn listeners(address: SocketAddr, workers: usize) -> io::Result<Vec<TcpListener>> {
    let mut address = address;
    (0..workers)
        .map(|_| {
            let domain = Domain::for_address(address);
            let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
            socket.set_reuse_port(true)?;
            socket.set_reuse_address(true)?;
            socket.bind(&address.into())?;
            socket.listen(BACKLOG)?;
            let listener = TcpListener::from(socket);
            // The first one chooses the port, if that is open.
            address = listener.local_addr()?;
            Ok(listener)
        })
        .collect()
}

/// A server: accepts on every core, and has a task of `serve` for each connection. Says on
/// which address it listens, by `listening`.
///
/// # Errors
///
/// Those of the listeners. Otherwise it never ends.
pub fn serve<R, F>(
    address: SocketAddr,
    workers: usize,
    listening: impl FnOnce(SocketAddr),
    serve: impl Fn(R::Stream) -> F + Copy + Sync + 'static,
) -> io::Result<()>
where
    R: PerCore,
    F: Future<Output = io::Result<()>> + 'static,
{
    let listeners = listeners(address, workers)?;
    listening(listeners[0].local_addr()?);
    on_each_core::<R, _, _>(workers, |i| {
        let listener = listeners[i].try_clone();
        async move {
            let listener = R::listener(listener?)?;
            loop {
                let stream = R::accept(&listener).await?;
                // One that fails is over, as in the other runtimes' servers.
                R::go(async move { drop(serve(stream).await) });
            }
        }
    })
    .into_iter()
    .collect()
}

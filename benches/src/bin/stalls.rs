//! What do requests cost that make the server compute, for those beside them?
//!
//! The workload that ClickHouse published for its fibers (silk, docs/work-stealing.md): many
//! connections, and each request of 64 bytes says in its first four how many µs the server is to
//! compute before it answers. Most say 0; some a *stall*. The load is open: requests of a
//! connection are due at times of a Poisson process, are sent then whatever is unanswered, and
//! their latency counts from when they were due. A stall load of 1 is as much computing as the
//! server's workers can do.
//!
//! The server is a process of its own and shares the CPUs with the client:
//!
//! - `stalls windlass` prints for each stall load `load=.. per_second=.. p50_us=.. p99_us=..
//!   p999_us=.. plain_p99_us=..`, the last one of the requests that did not stall.
//! - `stalls windlass --alone` sends one stall of 8 ms to an otherwise idle server, a millisecond
//!   later a request on each other connection, and prints which share of these waited until the
//!   stall was over.
//! - `stalls --address 127.0.0.1:7000 go` measures a server that runs already. Without an address
//!   the server is started: for Go that is `gobench stalls`, which `compare` builds.
#![expect(clippy::print_stdout, reason = "the results")]
#![allow(
    clippy::disallowed_methods,
    reason = "the client and two of the servers are plain threads"
)]

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use mio::{Events, Interest, Poll, Token};
use windlass_benches::latencies::Latencies;
use windlass_benches::runtimes;
use windlass_benches::servers::Server;
use windlass_benches::stalls::{self, MESSAGE_BYTES, compute, compute_us_of};

const ANY_PORT: &str = "127.0.0.1:0";
const LOADS: [f64; 5] = [0.0, 0.15, 0.40, 0.64, 1.20];

/// Servers: the runtimes, and two without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    Windlass,
    Tokio,
    May,
    Monoio,
    Compio,
    /// A thread for each connection.
    Threads,
    /// On each worker's thread an epoll instance, with its share of the connections.
    EpollLoop,
    Go,
}

#[derive(Parser)]
struct Args {
    kind: Kind,
    #[arg(long, default_value_t = runtimes::workers())]
    workers: usize,
    #[arg(long, default_value_t = 256)]
    connections: usize,
    /// Requests a second, over all connections.
    #[arg(long, default_value_t = 4_000.0)]
    rate: f64,
    #[arg(long, default_value_t = 1_000)]
    stall_us: u32,
    /// Stall loads, instead of some from 0 to 1.2.
    #[arg(long)]
    load: Vec<f64>,
    /// For each load.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    #[arg(long)]
    alone: bool,
    #[arg(long, default_value_t = 50)]
    rounds: usize,
    /// A server that runs already.
    #[arg(long)]
    address: Option<SocketAddr>,
    /// Be the server.
    #[arg(long, hide = true)]
    serve: bool,
}

fn main() -> io::Result<()> {
    let args = Args::parse();
    if args.serve {
        return server::run(args.kind, args.workers);
    }
    let server = match args.address {
        Some(_) => None,
        None => {
            let this = std::env::current_exe()?;
            let beside = |program| Command::new(this.with_file_name(program));
            let workers = args.workers.to_string();
            let mut command = match args.kind {
                Kind::Monoio => beside("bench_monoio"),
                Kind::Compio => beside("bench_compio"),
                Kind::Go => beside("gobench"),
                _ => Command::new(&this),
            };
            match args.kind {
                Kind::Go => command.arg("stalls"),
                Kind::Monoio | Kind::Compio => {
                    command.args(["stall_server", "--workers", &workers])
                }
                kind => command.args([&kind_name(kind), "--serve", "--workers", &workers]),
            };
            command.env("WINDLASS_BENCH_WORKERS", &workers);
            Some(Server::start(command.stdin(Stdio::null()))?)
        }
    };
    let address = match (&server, args.address) {
        (Some(server), _) => server.address().parse().map_err(io::Error::other)?,
        (None, Some(address)) => address,
        (None, None) => unreachable!("one of the two"),
    };
    if args.alone {
        return client::alone(address, args.connections.min(64), args.rounds);
    }
    let loads = match args.load.as_slice() {
        [] => &LOADS,
        loads => loads,
    };
    for &load in loads {
        let stalls_per_second = load * args.workers as f64 * 1e6 / f64::from(args.stall_us);
        let share = (stalls_per_second / args.rate).min(1.0);
        let results = client::open_loop(
            address,
            args.connections,
            args.rate.max(stalls_per_second),
            (share, args.stall_us),
            Duration::from_secs_f64(args.seconds),
        )?;
        println!("load={load:.2} {results}");
    }
    Ok(())
}

fn kind_name(kind: Kind) -> String {
    let value = kind.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

/// The request, or answer, with this number of µs to compute.
fn message(compute_us: u32) -> [u8; MESSAGE_BYTES] {
    let mut bytes = [b'.'; MESSAGE_BYTES];
    bytes[..4].copy_from_slice(&compute_us.to_le_bytes());
    bytes
}

mod server {
    use super::*;

    use ::tokio::io::{AsyncReadExt, AsyncWriteExt};

    pub(super) fn run(kind: Kind, workers: usize) -> io::Result<()> {
        stalls::calibrate();
        match kind {
            Kind::Windlass => runtimes::windlass(workers).run(windlass),
            Kind::Tokio => runtimes::tokio(workers).run(tokio()),
            Kind::May => runtimes::may(workers).run(may),
            Kind::Threads => threads(),
            Kind::EpollLoop => epoll(workers),
            Kind::Monoio | Kind::Compio | Kind::Go => {
                Err(io::Error::other("its server is another program"))
            }
        }
    }

    fn serve(mut stream: impl Read + Write) -> io::Result<()> {
        let mut bytes = [0; MESSAGE_BYTES];
        loop {
            stream.read_exact(&mut bytes)?;
            compute(compute_us_of(&bytes));
            stream.write_all(&bytes)?;
        }
    }

    fn windlass() -> io::Result<()> {
        let listener = ::windlass::net::TcpListener::bind(ANY_PORT)?;
        println!("{}", listener.local_addr()?);
        loop {
            let (stream, _) = listener.accept()?;
            stream.set_nodelay(true)?;
            ::windlass::spawn(move || serve(stream));
        }
    }

    fn may() -> io::Result<()> {
        let listener = ::may::net::TcpListener::bind(ANY_PORT)?;
        println!("{}", listener.local_addr()?);
        loop {
            let (stream, _) = listener.accept()?;
            stream.set_nodelay(true)?;
            runtimes::go(move || serve(stream));
        }
    }

    fn threads() -> io::Result<()> {
        let listener = TcpListener::bind(ANY_PORT)?;
        println!("{}", listener.local_addr()?);
        loop {
            let (stream, _) = listener.accept()?;
            stream.set_nodelay(true)?;
            thread::spawn(move || serve(stream));
        }
    }

    async fn tokio() -> io::Result<()> {
        let listener = ::tokio::net::TcpListener::bind(ANY_PORT).await?;
        println!("{}", listener.local_addr()?);
        loop {
            let (mut stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            ::tokio::spawn(async move {
                let mut bytes = [0; MESSAGE_BYTES];
                while stream.read_exact(&mut bytes).await.is_ok() {
                    compute(compute_us_of(&bytes));
                    stream.write_all(&bytes).await?;
                }
                io::Result::Ok(())
            });
        }
    }

    /// Connections are dealt to the threads in turn.
    fn epoll(workers: usize) -> io::Result<()> {
        let listener = TcpListener::bind(ANY_PORT)?;
        println!("{}", listener.local_addr()?);
        let mut loops = Vec::new();
        for _ in 0..workers {
            let poll = Poll::new()?;
            loops.push((poll.registry().try_clone()?, Vec::new()));
            thread::spawn(move || epoll_loop(poll));
        }
        for i in 0.. {
            let (stream, _) = listener.accept()?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            let (registry, streams) = &mut loops[i % workers];
            let mut stream = mio::net::TcpStream::from_std(stream);
            let fd = std::os::fd::AsRawFd::as_raw_fd(&stream);
            registry.register(&mut stream, Token(fd as usize), Interest::READABLE)?;
            streams.push(stream);
        }
        Ok(())
    }

    fn epoll_loop(mut poll: Poll) -> io::Result<()> {
        let mut events = Events::with_capacity(256);
        loop {
            poll.poll(&mut events, None)?;
            for event in &events {
                let fd = event.token().0 as i32;
                let mut bytes = [0; MESSAGE_BYTES];
                // A client sends a request with one call, and no answer fills the socket.
                while let Ok(MESSAGE_BYTES) = socket::read(fd, &mut bytes) {
                    compute(compute_us_of(&bytes));
                    socket::write(fd, &bytes)?;
                }
            }
        }
    }

    mod socket {
        use std::io::{self, Read, Write};
        use std::mem::ManuallyDrop;
        use std::net::TcpStream;
        use std::os::fd::FromRawFd;

        #[expect(unsafe_code, reason = "the streams are another thread's")]
        fn borrow(fd: i32) -> ManuallyDrop<TcpStream> {
            // SAFETY: the thread that accepts keeps the stream open, and this does not close it.
            ManuallyDrop::new(unsafe { TcpStream::from_raw_fd(fd) })
        }

        pub(super) fn read(fd: i32, bytes: &mut [u8]) -> io::Result<usize> {
            borrow(fd).read(bytes)
        }

        pub(super) fn write(fd: i32, bytes: &[u8]) -> io::Result<()> {
            borrow(fd).write_all(bytes)
        }
    }
}

mod client {
    use super::*;

    use std::cmp::Reverse;
    use std::collections::{BinaryHeap, VecDeque};
    use std::fmt;

    /// A pseudo-random sequence (splitmix64): the same in each run.
    struct Random(u64);

    impl Random {
        fn next(&mut self) -> f64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut x = self.0;
            x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((x ^ (x >> 31)) >> 11) as f64 / (1u64 << 53) as f64
        }

        /// The time to the next event of a Poisson process.
        fn gap(&mut self, per_second: f64) -> Duration {
            Duration::from_secs_f64(-(1.0 - self.next()).ln() / per_second)
        }
    }

    struct Connection {
        stream: mio::net::TcpStream,
        /// When the unanswered requests were due, and whether they stall.
        waiting: VecDeque<(Instant, bool)>,
        /// Bytes of the next answer that have come.
        n_read: usize,
    }

    impl Connection {
        fn send(&mut self, due: Instant, compute_us: u32) -> io::Result<()> {
            self.waiting.push_back((due, compute_us > 0));
            // So few bytes always find room.
            self.stream.write_all(&message(compute_us))
        }

        /// Calls `f` for each answer that has come.
        fn receive(&mut self, mut f: impl FnMut(Duration, bool)) -> io::Result<()> {
            let mut bytes = [0; 16 * MESSAGE_BYTES];
            loop {
                match self.stream.read(&mut bytes) {
                    Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                    Ok(n) => self.n_read += n,
                    Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                    Err(e) if e.kind() == ErrorKind::Interrupted => {}
                    Err(e) => return Err(e),
                }
                while self.n_read >= MESSAGE_BYTES {
                    self.n_read -= MESSAGE_BYTES;
                    let (due, stalls) = self.waiting.pop_front().expect("an answer to a request");
                    f(due.elapsed(), stalls);
                }
            }
        }
    }

    struct Connections {
        poll: Poll,
        events: Events,
        all: Vec<Connection>,
    }

    impl Connections {
        fn new(address: SocketAddr, n: usize) -> io::Result<Connections> {
            let poll = Poll::new()?;
            let all = (0..n).map(|i| {
                let stream = TcpStream::connect(address)?;
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
                let mut stream = mio::net::TcpStream::from_std(stream);
                poll.registry()
                    .register(&mut stream, Token(i), Interest::READABLE)?;
                Ok(Connection {
                    stream,
                    waiting: VecDeque::new(),
                    n_read: 0,
                })
            });
            let all = all.collect::<io::Result<_>>()?;
            // Each is accepted, and has its task.
            thread::sleep(Duration::from_millis(200));
            Ok(Connections {
                poll,
                events: Events::with_capacity(n),
                all,
            })
        }

        fn n_waiting(&self) -> usize {
            self.all.iter().map(|c| c.waiting.len()).sum()
        }

        /// Waits until `until` or for the next answers, and calls `f` for each: its connection,
        /// its latency, and whether it was to a stall.
        fn receive(
            &mut self,
            until: Instant,
            mut f: impl FnMut(usize, Duration, bool),
        ) -> io::Result<()> {
            let left = until.saturating_duration_since(Instant::now());
            // epoll waits in milliseconds: the rest of one is spent asking.
            let whole = Duration::from_millis(left.as_millis() as u64);
            match self.poll.poll(&mut self.events, Some(whole)) {
                Err(e) if e.kind() == ErrorKind::Interrupted => return Ok(()),
                r => r?,
            }
            for event in &self.events {
                let i = event.token().0;
                self.all[i].receive(|latency, stalls| f(i, latency, stalls))?;
            }
            if self.events.is_empty() && !left.is_zero() {
                thread::sleep(until.saturating_duration_since(Instant::now()).min(TURN));
            }
            Ok(())
        }
    }

    /// The client looks for answers at least this often while it waits to send.
    const TURN: Duration = Duration::from_micros(50);

    pub(super) struct Results {
        all: Latencies,
        plain: Latencies,
        per_second: f64,
    }

    impl fmt::Display for Results {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            let all = |q| self.all.quantile_us(q);
            write!(
                f,
                "per_second={:.0} p50_us={:.0} p99_us={:.0} p999_us={:.0} plain_p99_us={:.0}",
                self.per_second,
                all(0.5),
                all(0.99),
                all(0.999),
                self.plain.quantile_us(0.99)
            )
        }
    }

    /// Requests at `rate`, of which a share stalls. `per_second` counts the answers that came in
    /// time; latencies are those of all requests, also those answered after the end.
    pub(super) fn open_loop(
        address: SocketAddr,
        n: usize,
        rate: f64,
        (share, stall_us): (f64, u32),
        duration: Duration,
    ) -> io::Result<Results> {
        const DRAIN: Duration = Duration::from_secs(10);
        let mut connections = Connections::new(address, n)?;
        let mut random = Random(1);
        let begin = Instant::now();
        let end = begin + duration;
        let per_connection = rate / n as f64;
        let mut due: BinaryHeap<_> = (0..n)
            .map(|i| Reverse((begin + random.gap(per_connection), i)))
            .collect();
        let (mut all, mut plain) = (Latencies::new(), Latencies::new());
        let mut n_in_time = 0;
        while Instant::now() < end {
            while let Some(&Reverse((at, i))) = due.peek()
                && at <= Instant::now()
            {
                due.pop();
                due.push(Reverse((at + random.gap(per_connection), i)));
                let compute_us = if random.next() < share { stall_us } else { 0 };
                connections.all[i].send(at, compute_us)?;
            }
            let next = due.peek().map_or(end, |Reverse((at, _))| *at);
            connections.receive(next.min(end), |_, latency, stalls| {
                n_in_time += 1;
                all.record(latency);
                if !stalls {
                    plain.record(latency);
                }
            })?;
        }
        while connections.n_waiting() > 0 && end.elapsed() < DRAIN {
            connections.receive(Instant::now() + TURN, |_, latency, stalls| {
                all.record(latency);
                if !stalls {
                    plain.record(latency);
                }
            })?;
        }
        let per_second = f64::from(n_in_time) / duration.as_secs_f64();
        Ok(Results {
            all,
            plain,
            per_second,
        })
    }

    /// One stall on an otherwise idle server, and what becomes of requests that come meanwhile.
    pub(super) fn alone(address: SocketAddr, n: usize, rounds: usize) -> io::Result<()> {
        const STALL_US: u32 = 8_000;
        const LATER: Duration = Duration::from_millis(1);
        // A client that waits for the stall waits for the rest of it.
        const WAITED: Duration = Duration::from_millis(5);
        let mut connections = Connections::new(address, n)?;
        let mut random = Random(1);
        let mut latencies = Latencies::new();
        let (mut n_sent, mut n_waited) = (0u32, 0u32);
        for round in 0..rounds + 10 {
            let is_warm = round >= 10;
            let stalled = (random.next() * n as f64) as usize;
            connections.all[stalled].send(Instant::now(), STALL_US)?;
            thread::sleep(LATER);
            for i in (0..n).filter(|&i| i != stalled) {
                connections.all[i].send(Instant::now(), 0)?;
            }
            while connections.n_waiting() > 0 {
                connections.receive(Instant::now() + LATER, |_, latency, stalls| {
                    if is_warm && !stalls {
                        n_sent += 1;
                        n_waited += u32::from(latency >= WAITED);
                        latencies.record(latency);
                    }
                })?;
            }
            // The server falls asleep.
            thread::sleep(Duration::from_millis(20));
        }
        println!(
            "waited={:.3} p50_us={:.0} p99_us={:.0}",
            f64::from(n_waited) / f64::from(n_sent),
            latencies.quantile_us(0.5),
            latencies.quantile_us(0.99)
        );
        Ok(())
    }
}

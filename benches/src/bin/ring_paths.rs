//! The kernel's costs of several ways to ask for one thing: bare rings with the
//! flags of a P's, without a runtime. CPU time of the thread that serves, for each operation;
//! contenders in turn, medians of the rounds, least and most.
//!
//! - `accept`: connections made by a plain thread, `--batch` at a time: one-shot accepts with
//!   the peer's address, multishot ones with a system call for the address, and without
//! - `recv`: messages of `--bytes` on `--connections` connections, sent by a plain thread:
//!   one-shot receives into own buffers, with registered files, and into provided buffers;
//!   multishot ones, and bundles
//!
//! A runtime adds its own part to each, which is the same for all contenders or larger for
//! multishot ones: these figures are the most that there is to gain.
#![expect(clippy::print_stdout, reason = "the result")]
#![expect(
    unsafe_code,
    reason = "a ring reads memory that it is given the address of"
)]

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::ptr;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use io_uring::squeue::{Entry, Flags};
use io_uring::types::{BufRingEntry, Fd, Fixed};
use io_uring::{IoUring, cqueue, opcode};
use rustix::time::{ClockId, clock_gettime};
use windlass::net::TcpOptions;

#[derive(Parser)]
struct Args {
    what: What,
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Connections that are made before the first is waited for.
    #[arg(long, default_value_t = 16)]
    batch: usize,
    #[arg(long, default_value_t = 64)]
    connections: usize,
    /// The length of a message.
    #[arg(long, default_value_t = 64)]
    bytes: usize,
}

#[derive(Clone, Copy, ValueEnum)]
enum What {
    Accept,
    Recv,
}

fn main() -> io::Result<()> {
    let args = Args::parse();
    match args.what {
        What::Accept => accept(&args),
        What::Recv => recv(&args),
    }
}

/// One contender: its name, and what does so many operations and says what they took.
type Contender<'a> = (&'a str, Box<dyn FnMut(usize) -> io::Result<Duration> + 'a>);

fn race(
    title: &str,
    rounds: usize,
    ops: usize,
    mut contenders: Vec<Contender<'_>>,
) -> io::Result<()> {
    let n = contenders.len();
    let mut all = vec![Vec::new(); n];
    for round in 0..=rounds {
        for i in (0..n).map(|i| (i + round) % n) {
            let ns = contenders[i].1(ops)?.as_nanos() as u64 / ops as u64;
            // The first is to warm up.
            if round > 0 {
                all[i].push(ns);
            }
        }
    }
    for ((name, _), mut ns) in contenders.iter().zip(all) {
        ns.sort_unstable();
        let (median, least, most) = (ns[ns.len() / 2], ns[0], ns[ns.len() - 1]);
        println!("{title} {name}: cpu_ns={median} least={least} most={most}");
    }
    Ok(())
}

/// CPU time of the calling thread so far.
fn thread_cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

/// A ring as a P has it.
struct Ring(IoUring);

impl Ring {
    fn new() -> io::Result<Ring> {
        let mut builder = IoUring::builder();
        builder
            .setup_coop_taskrun()
            .setup_taskrun_flag()
            .setup_submit_all()
            .setup_cqsize(4096);
        Ok(Ring(builder.build(256)?))
    }

    /// Queues an entry.
    ///
    /// # Safety
    ///
    /// What it points at stays until it has completed.
    unsafe fn push(&mut self, entry: &Entry) -> io::Result<()> {
        // SAFETY: by this function's contract.
        while unsafe { self.0.submission().push(entry) }.is_err() {
            self.0.submit()?;
        }
        Ok(())
    }

    /// The next completion. Submits what is queued when there is none left.
    fn next(&mut self) -> io::Result<cqueue::Entry> {
        loop {
            if let Some(completion) = self.0.completion().next() {
                return Ok(completion);
            }
            self.0.submit_and_wait(1)?;
        }
    }
}

/// The result of a completion, as a length or a descriptor.
fn result(completion: &cqueue::Entry) -> io::Result<usize> {
    let r = completion.result();
    usize::try_from(r).map_err(|_| io::Error::from_raw_os_error(-r))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Accept {
    OneShot,
    Multishot,
    MultishotWithoutAddress,
}

fn accept(args: &Args) -> io::Result<()> {
    let contender = |how: Accept| -> io::Result<_> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let addr = listener.local_addr()?;
        let mut ring = Ring::new()?;
        let mut is_armed = false;
        let batch = args.batch;
        Ok(move |ops: usize| {
            let client = thread::spawn(move || connect(addr, ops, batch));
            let before = thread_cpu_time();
            for _ in 0..ops {
                accept_one(&mut ring, &listener, how, &mut is_armed)?;
            }
            let took = thread_cpu_time() - before;
            client.join().expect("the client does not panic")?;
            Ok(took)
        })
    };
    let contenders: Vec<Contender<'_>> = vec![
        ("one-shot", Box::new(contender(Accept::OneShot)?)),
        ("multishot", Box::new(contender(Accept::Multishot)?)),
        (
            "multishot without address",
            Box::new(contender(Accept::MultishotWithoutAddress)?),
        ),
    ];
    let title = format!("accept_{}", args.batch);
    race(&title, args.rounds, 8_192, contenders)
}

/// Accepts a connection and closes it.
fn accept_one(
    ring: &mut Ring,
    listener: &TcpListener,
    how: Accept,
    is_armed: &mut bool,
) -> io::Result<()> {
    let fd = Fd(listener.as_raw_fd());
    // SAFETY: plain numbers, for which zeros are valid.
    let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let mut len = size_of_val(&storage) as libc::socklen_t;
    if how == Accept::OneShot {
        let entry = opcode::Accept::new(fd, (&raw mut storage).cast(), &raw mut len)
            .flags(libc::SOCK_CLOEXEC);
        // SAFETY: the address is waited for below.
        unsafe { ring.push(&entry.build()) }?;
    } else if !*is_armed {
        let entry = opcode::AcceptMulti::new(fd).flags(libc::SOCK_CLOEXEC);
        // SAFETY: it points at nothing.
        unsafe { ring.push(&entry.build()) }?;
        *is_armed = true;
    }
    let completion = ring.next()?;
    *is_armed = cqueue::more(completion.flags());
    let stream = result(&completion)? as i32;
    // SAFETY: the kernel has just made this descriptor.
    let stream = TcpStream::from(unsafe { OwnedFd::from_raw_fd(stream) });
    if how == Accept::Multishot {
        std::hint::black_box(stream.peer_addr()?);
    }
    std::hint::black_box(storage);
    Ok(())
}

/// Connects `ops` times, and waits until each is closed.
fn connect(addr: SocketAddr, ops: usize, batch: usize) -> io::Result<()> {
    for _ in 0..ops / batch {
        let streams: Vec<_> = (0..batch)
            .map(|_| TcpStream::connect(addr))
            .collect::<io::Result<_>>()?;
        for mut stream in streams {
            stream.read_to_end(&mut Vec::new())?;
            // Closed with a reset: else thousands of ports would wait for late packets.
            let stream = windlass::net::TcpStream::from(stream);
            TcpOptions::new().linger(Duration::ZERO).apply(&stream)?;
        }
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Recv {
    OneShot,
    Fixed,
    Pooled,
    Multishot,
    Bundle,
}

fn recv(args: &Args) -> io::Result<()> {
    let contender = |name, how| Ok::<_, io::Error>((name, Receiver::contender(args, how)?));
    let contenders = vec![
        contender("one-shot", Recv::OneShot)?,
        contender("one-shot, registered files", Recv::Fixed)?,
        contender("one-shot, provided buffers", Recv::Pooled)?,
        contender("multishot", Recv::Multishot)?,
        contender("multishot, bundles", Recv::Bundle)?,
    ];
    let title = format!("recv_{}x{}", args.connections, args.bytes);
    let ops = ((256 << 20) / args.bytes).clamp(2_000, 60_000);
    race(&title, args.rounds, ops, contenders)
}

const SLOT_BYTES: usize = 16 << 10;
const SLOTS: u16 = 256;
const GROUP: u16 = 0;

/// Buffers that the kernel picks from. They go back in the order in which they come, so that
/// their numbers in a bundle follow each other.
struct Pool {
    memory: Vec<u8>,
    /// A page and the entries, which begin at the page's end.
    entries: Vec<u8>,
    tail: u16,
}

impl Pool {
    fn new(ring: &Ring) -> io::Result<Pool> {
        let mut pool = Pool {
            memory: vec![0; SLOT_BYTES * usize::from(SLOTS)],
            entries: vec![0; 4096 + size_of::<BufRingEntry>() * usize::from(SLOTS)],
            tail: 0,
        };
        let at = pool.entries().expose_provenance() as u64;
        // SAFETY: the entries are zeroed, begin at a page, and live as long as the ring's user.
        unsafe {
            ring.0
                .submitter()
                .register_buf_ring_with_flags(at, SLOTS, GROUP, 0)
        }?;
        (0..SLOTS).for_each(|slot| pool.give(slot));
        Ok(pool)
    }

    fn entries(&mut self) -> *mut BufRingEntry {
        let at = self.entries.as_mut_ptr();
        at.map_addr(|at| at.next_multiple_of(4096)).cast()
    }

    fn give(&mut self, slot: u16) {
        let at = usize::from(slot) * SLOT_BYTES;
        let addr = self.memory[at..].as_mut_ptr().expose_provenance() as u64;
        let entries = self.entries();
        // SAFETY: the entry is one of the ring's, and the kernel does not read it before the tail
        // says so; the tail is aligned and shared with the kernel alone.
        unsafe {
            let entry = &mut *entries.add(usize::from(self.tail % SLOTS));
            entry.set_addr(addr);
            entry.set_len(SLOT_BYTES as u32);
            entry.set_bid(slot);
            self.tail = self.tail.wrapping_add(1);
            let tail = AtomicU16::from_ptr(BufRingEntry::tail(entries).cast_mut());
            tail.store(self.tail, Ordering::Release);
        }
    }

    /// Gives back all that a completion has taken.
    fn give_all(&mut self, completion: &cqueue::Entry, n_bytes: usize) {
        if let Some(first) = cqueue::buffer_select(completion.flags()) {
            for i in 0..n_bytes.div_ceil(SLOT_BYTES).max(1) {
                self.give((first + i as u16) % SLOTS);
            }
        }
    }
}

/// A server that throws away what it gets.
struct Receiver {
    ring: Ring,
    how: Recv,
    pool: Option<Pool>,
    streams: Vec<TcpStream>,
    bufs: Vec<Vec<u8>>,
    is_armed: Vec<bool>,
    /// Tells the client that all has come.
    ack: UnixStream,
}

impl Receiver {
    fn contender<'a>(
        args: &'a Args,
        how: Recv,
    ) -> io::Result<Box<dyn FnMut(usize) -> io::Result<Duration> + 'a>> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let (mut clients, mut streams) = (Vec::new(), Vec::new());
        for _ in 0..args.connections {
            clients.push(TcpStream::connect(listener.local_addr()?)?);
            clients[clients.len() - 1].set_nodelay(true)?;
            streams.push(listener.accept()?.0);
        }
        let (ack, acked) = UnixStream::pair()?;
        let ring = Ring::new()?;
        if how == Recv::Fixed {
            let fds: Vec<_> = streams.iter().map(AsRawFd::as_raw_fd).collect();
            ring.0.submitter().register_files(&fds)?;
        }
        let mut this = Receiver {
            pool: match how {
                Recv::OneShot | Recv::Fixed => None,
                _ => Some(Pool::new(&ring)?),
            },
            ring,
            how,
            bufs: vec![vec![0; SLOT_BYTES]; streams.len()],
            is_armed: vec![false; streams.len()],
            streams,
            ack,
        };
        Ok(Box::new(move |ops| {
            let sweeps = ops.div_ceil(clients.len());
            thread::scope(|s| {
                let client = s.spawn(|| send(&clients, &acked, sweeps, args.bytes));
                let before = thread_cpu_time();
                for _ in 0..sweeps {
                    this.sweep(clients.len() * args.bytes)?;
                }
                let took = thread_cpu_time() - before;
                client.join().expect("the client does not panic")?;
                Ok(took)
            })
        }))
    }

    /// Receives so many bytes in all.
    fn sweep(&mut self, mut n_left: usize) -> io::Result<()> {
        for i in 0..self.streams.len() {
            self.arm(i)?;
        }
        while n_left > 0 {
            let completion = self.ring.next()?;
            let i = completion.user_data() as usize;
            self.is_armed[i] = cqueue::more(completion.flags());
            match result(&completion) {
                Ok(n) => {
                    n_left -= n;
                    if let Some(pool) = &mut self.pool {
                        pool.give_all(&completion, n);
                    }
                }
                // The pool was empty for a moment.
                Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) => {}
                Err(e) => return Err(e),
            }
            if n_left > 0 {
                self.arm(i)?;
            }
        }
        self.ack.write_all(b"!")
    }

    fn arm(&mut self, i: usize) -> io::Result<()> {
        /// `IORING_RECVSEND_POLL_FIRST`.
        const POLL_FIRST: u16 = 1;
        if self.is_armed[i] {
            return Ok(());
        }
        self.is_armed[i] = true;
        let fd = Fd(self.streams[i].as_raw_fd());
        let buf = self.bufs[i].as_mut_ptr();
        let len = SLOT_BYTES as u32;
        let entry = match self.how {
            Recv::OneShot => opcode::Recv::new(fd, buf, len).ioprio(POLL_FIRST).build(),
            Recv::Fixed => opcode::Recv::new(Fixed(i as u32), buf, len)
                .ioprio(POLL_FIRST)
                .build(),
            Recv::Pooled => opcode::Recv::new(fd, ptr::null_mut(), 0)
                .buf_group(GROUP)
                .ioprio(POLL_FIRST)
                .build()
                .flags(Flags::BUFFER_SELECT),
            Recv::Multishot => opcode::RecvMulti::new(fd, GROUP).build(),
            Recv::Bundle => opcode::RecvMultiBundle::new(fd, GROUP).build(),
        };
        // SAFETY: the buffers live as long as the ring.
        unsafe { self.ring.push(&entry.user_data(i as u64)) }
    }
}

/// Sends a message on each connection, again and again, each time after the last ones have come.
fn send(
    clients: &[TcpStream],
    mut acked: &UnixStream,
    sweeps: usize,
    bytes: usize,
) -> io::Result<()> {
    let message = vec![b'.'; bytes];
    for _ in 0..sweeps {
        for mut client in clients {
            client.write_all(&message)?;
        }
        acked.read_exact(&mut [0])?;
    }
    Ok(())
}

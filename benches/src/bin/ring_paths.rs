//! The kernel's costs of several ways to ask for one thing: bare rings with the
//! flags of a P's, without a runtime. CPU time of the thread that serves, for each operation;
//! contenders in turn, medians of the rounds, least and most.
//!
//! - `accept`: connections made by a plain thread, `--batch` at a time: one-shot accepts with
//!   the peer's address, multishot ones with a system call for the address, and without
//! - `recv`: messages of `--bytes` on `--connections` connections, sent by a plain thread:
//!   one-shot receives into own buffers, with registered files, and into provided buffers;
//!   multishot ones, and bundles
//! - `direct`: random blocks of 4 KiB of a file with `O_DIRECT`, `--in-flight` at a time, into
//!   memory that the kernel pins for each read, and into registered memory, of this ring and
//!   cloned from another one
//! - `readiness`: a message of `--bytes` on `--ready` of `--connections` connections, heard of and
//!   received by a system call: a multishot poll for each, one epoll instance with edge-triggered
//!   interest that the ring waits for, and the same without a ring. The reply to each round, a
//!   write, is in the figure, too
//!
//! A runtime adds its own part to each, which is the same for all contenders or larger for
//! multishot ones: these figures are the most that there is to gain.
#![expect(clippy::print_stdout, reason = "the result")]
#![expect(
    unsafe_code,
    reason = "a ring reads memory that it is given the address of"
)]

use std::env;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::ptr;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use io_uring::squeue::{Entry, Flags};
use io_uring::types::{BufRingEntry, Fd, Fixed};
use io_uring::{IoUring, cqueue, opcode};
use mio::{Events, Interest, Poll, Token};
use rustix::time::{ClockId, clock_gettime};
use windlass::net::TcpOptions;
use windlass_benches::servers::raise_descriptor_limit;

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
    /// Reads of a file at a time.
    #[arg(long, default_value_t = 16)]
    in_flight: usize,
    /// Connections that have a message at a time; all of them, if it is not given.
    #[arg(long)]
    ready: Option<usize>,
}

#[derive(Clone, Copy, ValueEnum)]
enum What {
    Accept,
    Recv,
    Direct,
    Readiness,
}

fn main() -> io::Result<()> {
    let args = Args::parse();
    match args.what {
        What::Accept => accept(&args),
        What::Recv => recv(&args),
        What::Direct => direct(&args),
        What::Readiness => readiness(&args),
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
        let (clients, streams) = connections(args.connections)?;
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
                let client = s.spawn(|| send(&clients, clients.len(), &acked, sweeps, args.bytes));
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

/// So many connections: their clients' ends and their servers'.
fn connections(n: usize) -> io::Result<(Vec<TcpStream>, Vec<TcpStream>)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let (mut clients, mut streams) = (Vec::new(), Vec::new());
    for _ in 0..n {
        clients.push(TcpStream::connect(listener.local_addr()?)?);
        clients[clients.len() - 1].set_nodelay(true)?;
        streams.push(listener.accept()?.0);
    }
    Ok((clients, streams))
}

/// Sends a message on each of the next `n_ready` connections, again and again, each time after the
/// last ones have come.
fn send(
    clients: &[TcpStream],
    n_ready: usize,
    mut acked: &UnixStream,
    sweeps: usize,
    bytes: usize,
) -> io::Result<()> {
    let message = vec![b'.'; bytes];
    let mut clients = clients.iter().cycle();
    for _ in 0..sweeps {
        for mut client in clients.by_ref().take(n_ready) {
            client.write_all(&message)?;
        }
        acked.read_exact(&mut [0])?;
    }
    Ok(())
}

const BLOCK_BYTES: usize = 4096;
const BLOCKS: u64 = (256 << 20) / BLOCK_BYTES as u64;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Memory {
    Pinned,
    Registered,
    Cloned,
}

fn direct(args: &Args) -> io::Result<()> {
    let path = env::current_exe()?.with_file_name("ring_paths.data");
    let mut whole = File::create(&path)?;
    for number in 0..BLOCKS {
        whole.write_all(&[number as u8; BLOCK_BYTES])?;
    }
    whole.sync_all()?;
    let mut options = OpenOptions::new();
    let file = options
        .read(true)
        .custom_flags(libc::O_DIRECT)
        .open(&path)?;
    fs::remove_file(&path)?;
    let contender = |name, memory| {
        let mut reader = Reader::new(&file, memory, args.in_flight)?;
        let run: Box<dyn FnMut(usize) -> io::Result<Duration>> =
            Box::new(move |ops| reader.read(ops));
        Ok::<_, io::Error>((name, run))
    };
    let contenders = vec![
        contender("plain", Memory::Pinned)?,
        contender("registered", Memory::Registered)?,
        contender("registered, cloned", Memory::Cloned)?,
        contender("plain, again", Memory::Pinned)?,
    ];
    let title = format!("direct_{}", args.in_flight);
    race(&title, args.rounds, 20_000, contenders)
}

/// Reads blocks of a file.
struct Reader<'a> {
    ring: Ring,
    file: &'a File,
    memory: Memory,
    /// A block for each read in flight, from a block's boundary on.
    blocks: Vec<u8>,
    in_flight: usize,
    random: u64,
}

impl<'a> Reader<'a> {
    fn new(file: &'a File, memory: Memory, in_flight: usize) -> io::Result<Reader<'a>> {
        let mut reader = Reader {
            ring: Ring::new()?,
            file,
            memory,
            blocks: vec![0; (in_flight + 1) * BLOCK_BYTES],
            in_flight,
            random: 1,
        };
        let region = libc::iovec {
            iov_base: reader.block(0).cast(),
            iov_len: in_flight * BLOCK_BYTES,
        };
        let first = Ring::new()?;
        let register = |ring: &Ring| {
            // SAFETY: the region lives as long as the reader, which has the ring.
            unsafe { ring.0.submitter().register_buffers(&[region]) }
        };
        match memory {
            Memory::Pinned => {}
            Memory::Registered => register(&reader.ring)?,
            Memory::Cloned => {
                register(&first)?;
                clone_buffers(&first, &reader.ring)?;
            }
        }
        Ok(reader)
    }

    fn block(&mut self, slot: usize) -> *mut u8 {
        let at = self.blocks.as_mut_ptr();
        let first = at.map_addr(|at| at.next_multiple_of(BLOCK_BYTES));
        first.wrapping_add(slot * BLOCK_BYTES)
    }

    /// Reads so many blocks.
    fn read(&mut self, ops: usize) -> io::Result<Duration> {
        let before = thread_cpu_time();
        for slot in 0..self.in_flight {
            self.begin(slot)?;
        }
        for n_begun in self.in_flight..ops + self.in_flight {
            let completion = self.ring.next()?;
            if result(&completion)? != BLOCK_BYTES {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if n_begun < ops {
                self.begin(completion.user_data() as usize)?;
            }
        }
        Ok(thread_cpu_time() - before)
    }

    fn begin(&mut self, slot: usize) -> io::Result<()> {
        // Marsaglia's xorshift.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let offset = self.random % BLOCKS * BLOCK_BYTES as u64;
        let (fd, block) = (Fd(self.file.as_raw_fd()), self.block(slot));
        let len = BLOCK_BYTES as u32;
        let entry = match self.memory {
            Memory::Pinned => opcode::Read::new(fd, block, len).offset(offset).build(),
            _ => opcode::ReadFixed::new(fd, block, len, 0)
                .offset(offset)
                .build(),
        };
        // SAFETY: the block is used for one read at a time, and all are waited for.
        unsafe { self.ring.push(&entry.user_data(slot as u64)) }
    }
}

/// Gives `to` the registered memory of `from` (Linux 6.12).
fn clone_buffers(from: &Ring, to: &Ring) -> io::Result<()> {
    /// `IORING_REGISTER_CLONE_BUFFERS`.
    const CLONE_BUFFERS: u32 = 30;
    // `struct io_uring_clone_buffers`: the source, then zeros: all of it.
    let request: [u32; 8] = [from.0.as_raw_fd() as u32, 0, 0, 0, 0, 0, 0, 0];
    // SAFETY: the kernel reads the request.
    let r = unsafe {
        libc::syscall(
            libc::SYS_io_uring_register,
            to.0.as_raw_fd(),
            CLONE_BUFFERS,
            request.as_ptr(),
            1,
        )
    };
    if r < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// The most events of one call of `epoll_wait(2)`.
const EVENTS_AT_MOST: usize = 1024;

#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Polls,
    EpollInRing,
    Epoll,
}

fn readiness(args: &Args) -> io::Result<()> {
    raise_descriptor_limit();
    let n_ready = args.ready.unwrap_or(args.connections);
    let contender = |name, by| Ok::<_, io::Error>((name, Listener::contender(args, n_ready, by)?));
    let contenders = vec![
        contender("multishot polls", By::Polls)?,
        contender("epoll in the ring", By::EpollInRing)?,
        contender("epoll", By::Epoll)?,
    ];
    let title = format!("readiness_{n_ready}_of_{}", args.connections);
    race(&title, args.rounds, 40_000, contenders)
}

/// A server that receives from those that are ready.
struct Listener {
    ring: Ring,
    by: By,
    poll: Poll,
    streams: Vec<mio::net::TcpStream>,
    in_ring: Vec<libc::epoll_event>,
    events: Events,
    ack: UnixStream,
}

impl Listener {
    fn contender<'a>(
        args: &'a Args,
        n_ready: usize,
        by: By,
    ) -> io::Result<Box<dyn FnMut(usize) -> io::Result<Duration> + 'a>> {
        let (clients, accepted) = connections(args.connections)?;
        let (ack, acked) = UnixStream::pair()?;
        let poll = Poll::new()?;
        let mut streams = Vec::new();
        for (i, stream) in accepted.into_iter().enumerate() {
            stream.set_nonblocking(true)?;
            let mut stream = mio::net::TcpStream::from_std(stream);
            if by != By::Polls {
                poll.registry()
                    .register(&mut stream, Token(i), Interest::READABLE)?;
            }
            streams.push(stream);
        }
        let mut this = Listener {
            ring: Ring::new()?,
            by,
            poll,
            streams,
            in_ring: vec![libc::epoll_event { events: 0, u64: 0 }; EVENTS_AT_MOST],
            events: Events::with_capacity(EVENTS_AT_MOST),
            ack,
        };
        if by == By::Polls {
            (0..args.connections).try_for_each(|i| this.arm_poll(i))?;
        }
        Ok(Box::new(move |ops| {
            let sweeps = ops.div_ceil(n_ready);
            thread::scope(|s| {
                let client = s.spawn(|| send(&clients, n_ready, &acked, sweeps, args.bytes));
                let before = thread_cpu_time();
                for _ in 0..sweeps {
                    this.sweep(n_ready * args.bytes)?;
                }
                let took = thread_cpu_time() - before;
                client.join().expect("the client does not panic")?;
                Ok(took)
            })
        }))
    }

    /// Receives so many bytes in all.
    fn sweep(&mut self, mut n_left: usize) -> io::Result<()> {
        while n_left > 0 {
            n_left -= match self.by {
                By::Polls => self.hear_polls()?,
                By::EpollInRing => self.hear_epoll_in_ring()?,
                By::Epoll => self.hear_epoll()?,
            };
        }
        self.ack.write_all(b"!")
    }

    fn hear_polls(&mut self) -> io::Result<usize> {
        let mut n = 0;
        let mut completion = self.ring.next()?;
        loop {
            let i = completion.user_data() as usize;
            result(&completion)?;
            n += self.receive(i)?;
            if !cqueue::more(completion.flags()) {
                self.arm_poll(i)?;
            }
            match self.ring.0.completion().next() {
                Some(next) => completion = next,
                None => return Ok(n),
            }
        }
    }

    fn hear_epoll_in_ring(&mut self) -> io::Result<usize> {
        let (fd, at) = (Fd(self.poll.as_raw_fd()), self.in_ring.as_mut_ptr());
        let wait = opcode::EpollWait::new(fd, at.cast(), EVENTS_AT_MOST as u32);
        // SAFETY: the memory is not touched until this has completed, and lives as long as the ring.
        unsafe { self.ring.push(&wait.build()) }?;
        let n_events = result(&self.ring.next()?)?;
        let mut n = 0;
        for at in 0..n_events {
            n += self.receive(self.in_ring[at].u64 as usize)?;
        }
        Ok(n)
    }

    fn hear_epoll(&mut self) -> io::Result<usize> {
        self.poll.poll(&mut self.events, None)?;
        let mut n = 0;
        for event in &self.events {
            n += receive(&mut self.streams[event.token().0])?;
        }
        Ok(n)
    }

    fn arm_poll(&mut self, i: usize) -> io::Result<()> {
        let fd = Fd(self.streams[i].as_raw_fd());
        let events = (libc::POLLIN | libc::POLLRDHUP) as u32;
        let poll = opcode::PollAdd::new(fd, events).multi(true).build();
        // SAFETY: it points at nothing.
        unsafe { self.ring.push(&poll.user_data(i as u64)) }
    }

    fn receive(&mut self, i: usize) -> io::Result<usize> {
        receive(&mut self.streams[i])
    }
}

/// Receives without waiting; 0 if nothing is there. Messages are shorter than the buffer, so one call takes all.
fn receive(stream: &mut mio::net::TcpStream) -> io::Result<usize> {
    match stream.read(&mut [0; 4096]) {
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(0),
        result => result,
    }
}

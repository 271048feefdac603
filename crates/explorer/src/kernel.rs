//! The kernel behind the simulated rings.
//!
//! An operation that was submitted lies in the [`Kernel`] until that is told to complete one; it
//! then takes any that can be done now, in an order of the seed's, and does it by a system call
//! that does not wait. So completions come in any order and after any delay. Polls that stay
//! are edges of a real epoll instance each. What is cancelled completes at once, unless it was
//! done before: then its completion is on its way, and the cancel does not find it. `faults`
//! tells what else may go wrong.
//!
//! Sockets are real, and their state changes only when a thread, of which one runs at a time, or
//! the kernel here makes a system call.
//!
//! In the twin operations are done as soon as they can be, by who enters the ring: `Arrivals` tells which are.
#![allow(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use io_uring::{cqueue, squeue};

use super::faults::Faults;
use super::strategy::Rng;

/// Descriptors of rings begin here: no real one is so high.
pub(super) const FIRST_FD: i32 = 1_000_000;

/// `IORING_CQE_F_BUFFER`, with the buffer's number in the upper half.
const BUFFER: u32 = 1;
/// `IORING_CQE_F_MORE`.
const MORE: u32 = 1 << 1;
/// `IORING_CQE_F_SOCK_NONEMPTY`.
const NONEMPTY: u32 = 1 << 2;

/// `IORING_POLL_ADD_MULTI`, in the length of a poll.
const POLL_MULTI: u32 = 1;
/// `IORING_ACCEPT_MULTISHOT`.
const ACCEPT_MULTI: u16 = 1;
/// `IOSQE_BUFFER_SELECT`.
const BUFFER_SELECT: u8 = 1 << 5;

/// A submission, as the kernel has it (`struct io_uring_sqe`).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Sqe {
    opcode: u8,
    flags: u8,
    ioprio: u16,
    pub(super) fd: i32,
    off: u64,
    addr: u64,
    len: u32,
    op_flags: u32,
    pub(super) user_data: u64,
    group: u16,
    rest: [u16; 11],
}

impl Sqe {
    fn code(&self) -> u32 {
        u32::from(self.opcode)
    }

    fn is_multi(&self) -> bool {
        match self.code() {
            POLL_ADD => self.len & POLL_MULTI != 0,
            ACCEPT => self.ioprio & ACCEPT_MULTI != 0,
            _ => false,
        }
    }

    /// Whether it is an attempt, which a readiness that was told of stands behind.
    fn is_attempt(&self) -> bool {
        self.code() == RECV && self.op_flags.cast_signed() & libc::MSG_DONTWAIT != 0
    }
}

/// A completion (`struct io_uring_cqe`).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Cqe {
    pub(super) user_data: u64,
    result: i32,
    flags: u32,
}

const _: () = assert!(size_of::<Sqe>() == size_of::<squeue::Entry>());
const _: () = assert!(size_of::<Cqe>() == size_of::<cqueue::Entry>());

/// The address of what an operation's name stands for; none for wakes and answers. The low bits say
/// what that is.
pub(super) fn owner_of(name: u64) -> Option<usize> {
    let at = (name & !7) as usize;
    (at != 0).then_some(at)
}

/// An operation in the kernel.
#[derive(Debug)]
struct Operation {
    sqe: Sqe,
    /// Of a poll that stays: what tells of its edges.
    edges: Option<OwnedFd>,
    /// It is done, and its completion is on its way.
    done: Option<Cqe>,
    /// Of the twin: it was submitted, or its descriptor has become ready, and nobody has looked since.
    is_due: bool,
}

impl Operation {
    /// The descriptor that tells when it can be done.
    fn watched(&self) -> i32 {
        self.edges.as_ref().map_or(self.sqe.fd, AsRawFd::as_raw_fd)
    }
}

/// Buffers that a program has provided (`IORING_REGISTER_PBUF_RING`).
#[derive(Debug)]
struct Buffers {
    group: u16,
    entries: *const Provided,
    n: u16,
    head: u16,
}

// SAFETY: the entries are shared with the program, which keeps them mapped until the ring is closed;
// only the thread that holds the baton reads them.
unsafe impl Send for Buffers {}

/// One of them (`struct io_uring_buf`). What the first has in its last field is the tail.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Provided {
    addr: u64,
    len: u32,
    number: u16,
    tail: u16,
}

impl Buffers {
    /// How many there are to be taken.
    fn n_free(&self) -> u16 {
        // SAFETY: by `register_buffers`. The thread that wrote them gave the baton on since.
        let tail = unsafe { (&raw const (*self.entries).tail).read_volatile() };
        tail.wrapping_sub(self.head)
    }

    /// The next buffer, which stays the next until it was taken.
    fn next(&self) -> Option<Provided> {
        // SAFETY: as above; the number of entries is a power of two.
        (self.n_free() > 0).then(|| unsafe {
            self.entries
                .add(usize::from(self.head & (self.n - 1)))
                .read_volatile()
        })
    }
}

/// One ring.
#[derive(Debug, Default)]
pub(super) struct Ring {
    pub(super) submitted: VecDeque<Sqe>,
    operations: Vec<Operation>,
    pub(super) completions: VecDeque<Cqe>,
    /// The objects of the operations, as the oracle numbers them: by their names.
    owners: BTreeMap<u64, u64>,
    buffers: Vec<Buffers>,
    is_closed: bool,
}

impl Ring {
    /// Queues an entry, whose name stands for what the oracle has numbered so.
    pub(super) fn push(&mut self, sqe: Sqe, owner: Option<u64>) {
        if let Some(owner) = owner {
            self.owners.insert(sqe.user_data, owner);
        }
        self.submitted.push_back(sqe);
    }

    /// The names of what is in the ring.
    fn names(&self) -> impl Iterator<Item = u64> {
        let submitted = self.submitted.iter().map(|sqe| sqe.user_data);
        let operations = self.operations.iter().map(|op| op.sqe.user_data);
        let completions = self.completions.iter().map(|cqe| cqe.user_data);
        submitted.chain(operations).chain(completions)
    }

    pub(super) fn complete(&mut self, user_data: u64, result: i32, flags: u32) {
        self.completions.push_back(Cqe {
            user_data,
            result,
            flags,
        });
    }

    /// Ends operations that match; gives how many.
    fn cancel(&mut self, matches: impl Fn(&Sqe) -> bool) -> usize {
        let (ended, left): (Vec<_>, Vec<_>) = std::mem::take(&mut self.operations)
            .into_iter()
            .partition(|op| op.done.is_none() && matches(&op.sqe));
        self.operations = left;
        for op in &ended {
            self.complete(op.sqe.user_data, -libc::ECANCELED, 0);
        }
        ended.len()
    }

    /// Takes the first `n` entries.
    fn submit(&mut self, n: usize) {
        for sqe in self.submitted.drain(..n).collect::<Vec<_>>() {
            let edges =
                (sqe.code() == POLL_ADD && sqe.is_multi()).then(|| edges_of(sqe.fd, sqe.op_flags));
            self.operations.push(Operation {
                sqe,
                edges,
                done: None,
                is_due: true,
            });
        }
    }

    /// Whether the kernel has operations to look at.
    pub(super) fn has_due(&self) -> bool {
        self.operations.iter().any(|op| op.is_due)
    }

    /// Ends the operation at `at` with an error.
    fn fail(&mut self, at: usize, rng: &mut Rng) {
        let op = self.operations.remove(at);
        let code = op.sqe.code();
        let hidden = op.sqe.is_attempt() || code == POLL_ADD;
        let error = match Faults::error(rng, hidden) {
            // A ring lets a connect wait in a thread of the kernel instead.
            libc::EAGAIN if code == CONNECT => libc::ENOMEM,
            error => error,
        };
        self.complete(op.sqe.user_data, -error, 0);
    }

    /// Completes the operation at `at`, if it can be. A completion that comes later counts
    /// for nothing as yet.
    fn advance(&mut self, at: usize, faults: Option<Faults>, rng: &mut Rng) -> bool {
        if let Some(done) = self.operations[at].done {
            self.operations.remove(at);
            self.completions.push_back(done);
            return true;
        }
        let sqe = self.operations[at].sqe;
        let code = sqe.code();
        let Some((result, mut flags)) = self.attempt(at, faults, rng) else {
            return false;
        };
        // The end of a stream, and an error, end what completes many times.
        let may_stay = sqe.is_multi() && (result > 0 || code == ACCEPT && result == 0);
        let stays = may_stay && !faults.is_some_and(|f| f.ends(rng));
        if matches!(code, RECV | RECVMSG) && !sqe.is_multi() && ready(sqe.fd, libc::POLLIN) != 0 {
            flags |= NONEMPTY;
        }
        if stays {
            flags |= MORE;
        }
        let done = Cqe {
            user_data: sqe.user_data,
            result,
            flags,
        };
        // Completions of one request keep their order.
        if !sqe.is_multi() && faults.is_some_and(|f| f.delays(rng)) {
            self.operations[at].done = Some(done);
            return false;
        }
        if !stays {
            self.operations.remove(at);
        }
        self.completions.push_back(done);
        true
    }

    /// Does an operation if that can be done now: its result, and the flags that name a buffer.
    fn attempt(&mut self, at: usize, faults: Option<Faults>, rng: &mut Rng) -> Option<(i32, u32)> {
        let op = &self.operations[at];
        if let Some(edges) = &op.edges {
            let mut event = libc::epoll_event { events: 0, u64: 0 };
            // SAFETY: room for one event, and no waiting.
            let n = unsafe { libc::epoll_wait(edges.as_raw_fd(), &raw mut event, 1, 0) };
            let events = event.events;
            return (n == 1).then_some((events as i32, 0));
        }
        let mut sqe = op.sqe;
        let events = match sqe.is_attempt() {
            true => 0,
            false => sqe.waits_for(),
        };
        if events != 0 {
            let shown = ready(sqe.fd, events);
            if shown == 0 {
                return None;
            }
            if sqe.code() == POLL_ADD {
                return Some((i32::from(shown), 0));
            }
        }
        let takes_buffer = sqe.flags & BUFFER_SELECT != 0;
        let mut flags = 0;
        if takes_buffer {
            let buffers = self.buffers.iter().find(|b| b.group == sqe.group);
            let Some(buffer) = buffers.and_then(Buffers::next) else {
                return Some((-libc::ENOBUFS, 0));
            };
            (sqe.addr, sqe.len) = (buffer.addr, buffer.len);
            flags = BUFFER | u32::from(buffer.number) << 16;
        }
        if let Some(faults) = faults.filter(|_| sqe.may_be_short()) {
            sqe.len = faults.length(rng, sqe.len);
        }
        let result = perform(&sqe);
        // Without data the buffer stays the next one.
        if takes_buffer && result > 0 {
            let mut buffers = self.buffers.iter_mut();
            if let Some(buffers) = buffers.find(|b| b.group == sqe.group) {
                buffers.head = buffers.head.wrapping_add(1);
            }
        } else {
            flags = 0;
        }
        Some((result, flags))
    }
}

const READV: u32 = 1;
const WRITEV: u32 = 2;
const FSYNC: u32 = 3;
const POLL_ADD: u32 = 6;
const SENDMSG: u32 = 9;
const RECVMSG: u32 = 10;
const ACCEPT: u32 = 13;
const CONNECT: u32 = 16;
const READ: u32 = 22;
const WRITE: u32 = 23;
const SEND: u32 = 26;
const RECV: u32 = 27;

fn new_epoll() -> OwnedFd {
    // SAFETY: the call takes a plain integer; the descriptor that it returns is new, so nobody else closes it.
    unsafe { OwnedFd::from_raw_fd(libc::epoll_create1(libc::EPOLL_CLOEXEC)) }
}

/// An epoll instance that tells of what comes to `fd`, and not of what is there.
fn edges_of(fd: i32, events: u32) -> OwnedFd {
    let epoll = new_epoll();
    let mut event = libc::epoll_event {
        events: events | libc::EPOLLET as u32,
        u64: 0,
    };
    // SAFETY: both descriptors are open, and the event is valid.
    unsafe { libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &raw mut event) };
    epoll
}

/// The events that `fd` shows now.
fn ready(fd: i32, events: i16) -> i16 {
    let mut poll = libc::pollfd {
        fd,
        events,
        revents: 0,
    };
    // SAFETY: one valid entry, and no waiting.
    unsafe { libc::poll(&raw mut poll, 1, 0) };
    poll.revents
}

/// Whether `fd` is a socket that keeps messages apart: a part of one would lose the rest.
fn has_messages(fd: i32) -> bool {
    let (mut kind, mut len) = (0i32, size_of::<i32>() as libc::socklen_t);
    // SAFETY: the place has the length that is said.
    let r = unsafe {
        libc::getsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_TYPE,
            (&raw mut kind).cast(),
            &raw mut len,
        )
    };
    r == 0 && kind != libc::SOCK_STREAM
}

/// The kind of an operation, as its price knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Send,
    Receive,
    Other,
}

impl Sqe {
    fn kind(&self) -> Kind {
        match self.code() {
            SEND | SENDMSG | WRITE | WRITEV => Kind::Send,
            RECV | RECVMSG | READ | READV => Kind::Receive,
            _ => Kind::Other,
        }
    }

    /// The readiness that an operation needs.
    fn waits_for(&self) -> i16 {
        match self.code() {
            RECV | RECVMSG | READ | READV | ACCEPT => libc::POLLIN,
            SEND | SENDMSG | WRITE | WRITEV => libc::POLLOUT,
            POLL_ADD => self.op_flags as i16,
            _ => 0,
        }
    }

    /// Whether it may move less than it could. (Of messages only whole buffers could be left out.)
    fn may_be_short(&self) -> bool {
        let code = self.code();
        matches!(code, RECV | SEND | READ | WRITE | READV | WRITEV) && !has_messages(self.fd)
    }
}

/// The result of a system call as a completion has it.
fn result(r: isize) -> i32 {
    match r {
        0.. => r as i32,
        _ => -io::Error::last_os_error()
            .raw_os_error()
            .unwrap_or(libc::EIO),
    }
}

/// Does an operation.
fn perform(sqe: &Sqe) -> i32 {
    let Sqe {
        fd,
        off,
        addr,
        len,
        op_flags,
        ..
    } = *sqe;
    let flags = op_flags.cast_signed() | libc::MSG_DONTWAIT;
    let at = |addr: u64| std::ptr::with_exposed_provenance_mut::<libc::c_void>(addr as usize);
    // SAFETY: the runtime keeps what an entry points at valid until the operation has completed,
    // which this does; each call gets the arguments that the entry has for it.
    let r = unsafe {
        match sqe.code() {
            RECV => libc::recv(fd, at(addr), len as usize, flags),
            SEND => libc::send(fd, at(addr), len as usize, flags),
            RECVMSG => libc::recvmsg(fd, at(addr).cast(), flags),
            SENDMSG => libc::sendmsg(fd, at(addr).cast(), flags),
            ACCEPT => {
                libc::accept4(fd, at(addr).cast(), at(off).cast(), libc::SOCK_CLOEXEC) as isize
            }
            CONNECT => libc::connect(fd, at(addr).cast(), off as libc::socklen_t) as isize,
            READ if off == u64::MAX => libc::read(fd, at(addr), len as usize),
            WRITE if off == u64::MAX => libc::write(fd, at(addr), len as usize),
            READ => libc::pread(fd, at(addr), len as usize, off.cast_signed()),
            WRITE => libc::pwrite(fd, at(addr), len as usize, off.cast_signed()),
            READV => libc::readv(fd, at(addr).cast(), len.cast_signed()),
            WRITEV => libc::writev(fd, at(addr).cast(), len.cast_signed()),
            FSYNC => libc::fsync(fd) as isize,
            _ => return -libc::EOPNOTSUPP,
        }
    };
    result(r)
}

/// All rings of a schedule.
#[derive(Debug)]
pub(super) struct Kernel {
    pub(super) rings: Vec<Ring>,
    /// The epoll instances in which threads wait.
    epolls: Vec<i32>,
    pub(super) faults: Faults,
    /// Of the twin.
    arrivals: Option<Arrivals>,
}

/// Tells of descriptors for which operations wait.
#[derive(Debug)]
struct Arrivals {
    epoll: OwnedFd,
    /// The rings of the operations, by descriptor.
    waiting: BTreeMap<i32, BTreeSet<usize>>,
}

/// The most descriptors of which one look tells.
const ARRIVALS: usize = 64;

impl Arrivals {
    /// Tells once when a descriptor shows what an operation waits for, at once if it does now.
    fn arm(&mut self, fd: i32, events: i16, ring: usize) {
        self.waiting.entry(fd).or_default().insert(ring);
        let mut event = libc::epoll_event {
            events: u32::from(events.cast_unsigned()) | libc::EPOLLONESHOT as u32,
            u64: fd as u64,
        };
        let mut control = |op| {
            // SAFETY: the epoll instance is open, and the event is valid.
            unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), op, fd, &raw mut event) }
        };
        if control(libc::EPOLL_CTL_MOD) != 0 {
            control(libc::EPOLL_CTL_ADD);
        }
    }

    /// Descriptors that are ready, each with the rings that wait for it.
    fn take(&mut self) -> Vec<(i32, BTreeSet<usize>)> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; ARRIVALS];
        // SAFETY: there is room for so many events, and no waiting.
        let n = unsafe {
            let (at, room) = (events.as_mut_ptr(), ARRIVALS as i32);
            libc::epoll_wait(self.epoll.as_raw_fd(), at, room, 0)
        };
        let ready = events.iter().take(usize::try_from(n).unwrap_or(0));
        let fds = ready.map(|event| event.u64 as i32);
        fds.filter_map(|fd| self.waiting.remove_entry(&fd))
            .collect()
    }
}

/// A wait that the kernel ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum Woken {
    /// In the ring of this number.
    Ring(usize),
    /// In the epoll instance with this descriptor.
    Epoll(i32),
}

impl Kernel {
    /// A kernel without rings, whose faults the seed draws.
    pub(super) fn new(rng: &mut Rng) -> Kernel {
        Kernel {
            rings: Vec::new(),
            epolls: Vec::new(),
            faults: Faults::new(rng),
            arrivals: None,
        }
    }

    /// Becomes the kernel of the twin: without faults, and operations are done as soon as they can be.
    pub(super) fn serves_twin(&mut self) {
        self.faults = Faults::default();
        self.arrivals = Some(Arrivals {
            epoll: new_epoll(),
            waiting: BTreeMap::new(),
        });
    }

    /// Of the twin: looks what has come to sockets; gives the rings with operations for that, by descriptor.
    pub(super) fn look(&mut self) -> BTreeSet<i32> {
        let mut rings = BTreeSet::new();
        let arrived = self.arrivals.as_mut().map(Arrivals::take);
        for (fd, waiting) in arrived.into_iter().flatten() {
            for at in waiting {
                let waits = |op: &&mut Operation| op.watched() == fd;
                for op in self.rings[at].operations.iter_mut().filter(waits) {
                    op.is_due = true;
                    rings.insert(FIRST_FD + at as i32);
                }
            }
        }
        rings
    }

    /// Of the twin: the place and the kind of the operation that is due next in a ring.
    pub(super) fn next_due(&mut self, fd: i32) -> Option<(usize, Kind)> {
        let operations = &self.ring(fd)?.operations;
        let at = operations.iter().position(|op| op.is_due)?;
        Some((at, operations[at].sqe.kind()))
    }

    /// Of the twin: does the operation at `at` of a ring, or waits until that can be done. Whether it is done: not if
    /// none is due there any more.
    pub(super) fn do_due(&mut self, fd: i32, at: usize, rng: &mut Rng) -> bool {
        let Some(ring) = self.ring(fd) else {
            return false;
        };
        // Others had their turn since the look: they may have cancelled it.
        let Some(op) = ring.operations.get_mut(at).filter(|op| op.is_due) else {
            return false;
        };
        op.is_due = false;
        let (name, watched) = (op.sqe.user_data, op.watched());
        // An epoll instance shows nothing else.
        let events = match op.edges {
            Some(_) => libc::POLLIN,
            None => op.sqe.waits_for(),
        };
        let is_done = ring.advance(at, None, rng);
        let here = ring.operations.get(at);
        let stays = here.is_some_and(|op| op.sqe.user_data == name);
        if let Some(arrivals) = self.arrivals.as_mut().filter(|_| stays) {
            arrivals.arm(watched, events, (fd - FIRST_FD) as usize);
        }
        is_done
    }

    pub(super) fn has_operations(&self) -> bool {
        let mut rings = self.rings.iter();
        rings.any(|ring| !ring.operations.is_empty()) || !self.epolls.is_empty()
    }

    /// Whether something is in a ring whose frame is gone. `number_of` gives the number of what
    /// lives at an address.
    pub(super) fn has_orphan(&self, number_of: impl Fn(usize) -> Option<u64>) -> bool {
        let is_orphan = |ring: &Ring, name: u64| {
            owner_of(name).is_some_and(|at| {
                let owner = number_of(at);
                owner.is_none() || owner != ring.owners.get(&name).copied()
            })
        };
        let open = self.rings.iter().filter(|ring| !ring.is_closed);
        open.flat_map(|ring| ring.names().map(move |name| (ring, name)))
            .any(|(ring, name)| is_orphan(ring, name))
    }

    /// Completes any operation that can be, or ends the wait of a thread in an epoll instance that
    /// has events, and says which. Without faults if `stalled`, as then every thread waits.
    pub(super) fn complete_one(&mut self, rng: &mut Rng, stalled: bool) -> Option<Woken> {
        if !self.has_operations() {
            return None;
        }
        let all: Vec<(usize, usize)> = (0..self.rings.len())
            .flat_map(|r| (0..self.rings[r].operations.len()).map(move |op| (r, op)))
            .collect();
        let n = all.len() + self.epolls.len();
        let first = rng.below(n as u64) as usize;
        let faults = (!stalled).then_some(self.faults);
        if let Some(faults) = faults
            && faults.fails(rng)
            && let Some(&(r, at)) = all.get(first)
            && self.rings[r].operations[at].done.is_none()
        {
            self.rings[r].fail(at, rng);
            return Some(Woken::Ring(r));
        }
        for i in (first..n).chain(0..first) {
            match all.get(i) {
                Some(&(r, at)) => {
                    if self.rings[r].advance(at, faults, rng) {
                        return Some(Woken::Ring(r));
                    }
                }
                None => {
                    let epfd = self.epolls[i - all.len()];
                    if ready(epfd, libc::POLLIN) != 0 {
                        return Some(Woken::Epoll(epfd));
                    }
                }
            }
        }
        None
    }

    /// Records that a thread begins to wait in an epoll instance, or no longer does.
    pub(super) fn waits_in(&mut self, epfd: i32, waits: bool) {
        match waits {
            true => self.epolls.push(epfd),
            false => self.epolls.retain(|&other| other != epfd),
        }
    }

    /// The open ring with this descriptor.
    pub(super) fn ring(&mut self, fd: i32) -> Option<&mut Ring> {
        let at = usize::try_from(fd - FIRST_FD).ok()?;
        self.rings.get_mut(at).filter(|ring| !ring.is_closed)
    }

    /// Makes a ring, and gives its descriptor.
    pub(super) fn open(&mut self) -> i32 {
        self.rings.push(Ring::default());
        FIRST_FD + self.rings.len() as i32 - 1
    }

    /// Closes a ring. Gives what is wrong with that, if anything is.
    pub(super) fn close(&mut self, fd: i32) -> Option<&'static str> {
        let ring = self.ring(fd).expect("it is open");
        let has_operation = |name: &u64| owner_of(*name).is_some();
        let why = if !ring.operations.is_empty() {
            Some("a ring is closed with operations in it")
        } else if ring
            .submitted
            .iter()
            .any(|sqe| has_operation(&sqe.user_data))
        {
            Some("a ring is closed with operations that were not submitted")
        } else if ring.completions.iter().any(|c| has_operation(&c.user_data)) {
            Some("a ring is closed with completions that nobody has read")
        } else if ring.buffers.iter().any(|b| b.n_free() != b.n) {
            Some("a ring is closed while its buffers are in use")
        } else {
            None
        };
        ring.is_closed = true;
        ring.operations.clear();
        why
    }

    /// The leftovers at the end of a schedule.
    pub(super) fn leak(&self) -> Option<&'static str> {
        let any = self.rings.iter().any(|ring| !ring.is_closed);
        any.then_some("a ring is left open")
    }

    /// Takes what a ring has submitted, or as much of it as it likes to; gives how many entries.
    pub(super) fn submit(&mut self, fd: i32, rng: &mut Rng) -> Result<usize, i32> {
        let faults = self.faults;
        let ring = self.ring(fd).expect("it is open");
        let n = ring.submitted.len();
        if let Some(errno) = faults.refuses(rng) {
            return Err(errno);
        }
        let n = faults.takes(rng, n);
        ring.submit(n);
        Ok(n)
    }

    /// Ends operations of a ring that match; gives how many.
    pub(super) fn cancel(&mut self, fd: i32, matches: impl Fn(&Sqe) -> bool) -> usize {
        self.ring(fd).map_or(0, |ring| ring.cancel(matches))
    }

    /// # Safety
    ///
    /// At `addr` are so many entries, a power of two, and they stay until the ring is closed.
    pub(super) unsafe fn register_buffers(&mut self, fd: i32, addr: u64, n: u16, group: u16) {
        let ring = self.ring(fd).expect("it is open");
        ring.buffers.push(Buffers {
            group,
            entries: std::ptr::with_exposed_provenance(addr as usize),
            n,
            head: 0,
        });
    }
}

//! A simulated io_uring: what `netpoll::ring` uses of the io_uring crate, on a kernel of ours.
//!
//! An operation that was submitted lies in the [`Kernel`] until that is told to complete one; it
//! then takes any that can be done now, in an order of the seed's, and does it by a system call
//! that does not wait. So completions come in any order and after any delay. Polls that stay
//! are edges of a real epoll instance each. What is cancelled completes at once.
//!
//! Sockets are real, and their state changes only when a thread, of which one runs at a time, or
//! the kernel here makes a system call.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use io_uring::{cqueue, squeue};

use super::control::{self, Key, NEVER, me, point, with};
use super::log::What;
use super::strategy::Rng;

/// Descriptors of rings begin here: no real one is so high.
const FIRST_FD: i32 = 1_000_000;

/// `IORING_CQE_F_MORE`.
const MORE: u32 = 1 << 1;

/// `IORING_CQE_F_SOCK_NONEMPTY`.
const NONEMPTY: u32 = 1 << 2;

/// One completion in so many of a poll that stays is its last, as the kernel may have it; which
/// of these, the seed draws for the whole schedule.
const POLL_ENDS: [u64; 4] = [2, 4, 16, 64];

/// `IORING_POLL_ADD_MULTI`, in the length of a poll.
const POLL_MULTI: u32 = 1;

/// `IORING_ASYNC_CANCEL_ALL` or `_ANY`.
const CANCEL_MANY: u32 = 1 | 1 << 2;

/// A submission, as the kernel has it (`struct io_uring_sqe`).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Sqe {
    opcode: u8,
    flags: u8,
    ioprio: u16,
    fd: i32,
    off: u64,
    addr: u64,
    len: u32,
    op_flags: u32,
    user_data: u64,
    rest: [u64; 3],
}

/// A completion (`struct io_uring_cqe`).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Cqe {
    user_data: u64,
    result: i32,
    flags: u32,
}

const _: () = assert!(size_of::<Sqe>() == size_of::<squeue::Entry>());
const _: () = assert!(size_of::<Cqe>() == size_of::<cqueue::Entry>());

/// An operation in the kernel.
#[derive(Debug)]
struct Operation {
    sqe: Sqe,
    /// Of a poll that stays: what tells of its edges.
    edges: Option<OwnedFd>,
}

/// One ring.
#[derive(Debug, Default)]
struct Ring {
    submitted: VecDeque<Sqe>,
    operations: Vec<Operation>,
    completions: VecDeque<Cqe>,
    is_closed: bool,
}

impl Ring {
    fn complete(&mut self, user_data: u64, result: i32, flags: u32) {
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
            .partition(|op| matches(&op.sqe));
        self.operations = left;
        for op in &ended {
            self.complete(op.sqe.user_data, -libc::ECANCELED, 0);
        }
        ended.len()
    }

    fn submit(&mut self) -> usize {
        let n = self.submitted.len();
        while let Some(sqe) = self.submitted.pop_front() {
            match u32::from(sqe.opcode) {
                ASYNC_CANCEL => {
                    let is_any = sqe.op_flags & CANCEL_MANY != 0;
                    let n = self.cancel(|other| is_any || other.user_data == sqe.addr);
                    let result = if n == 0 { -libc::ENOENT } else { 0 };
                    self.complete(sqe.user_data, result, 0);
                }
                _ => {
                    let edges = (u32::from(sqe.opcode) == POLL_ADD && sqe.len & POLL_MULTI != 0)
                        .then(|| edges_of(sqe.fd, sqe.op_flags));
                    self.operations.push(Operation { sqe, edges });
                }
            }
        }
        n
    }
}

const READV: u32 = 1;
const WRITEV: u32 = 2;
const FSYNC: u32 = 3;
const POLL_ADD: u32 = 6;
const SENDMSG: u32 = 9;
const RECVMSG: u32 = 10;
const ACCEPT: u32 = 13;
const ASYNC_CANCEL: u32 = 14;
const CONNECT: u32 = 16;
const READ: u32 = 22;
const WRITE: u32 = 23;
const SEND: u32 = 26;
const RECV: u32 = 27;

/// An epoll instance that tells of what comes to `fd`, and not of what is there.
fn edges_of(fd: i32, events: u32) -> OwnedFd {
    // SAFETY: the call takes plain integers and gives a descriptor that is nobody else's.
    let epoll = unsafe { OwnedFd::from_raw_fd(libc::epoll_create1(libc::EPOLL_CLOEXEC)) };
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

/// The result of a system call as a completion has it.
fn result(r: isize) -> i32 {
    match r {
        0.. => r as i32,
        _ => -io::Error::last_os_error()
            .raw_os_error()
            .unwrap_or(libc::EIO),
    }
}

/// Does an operation if that can be done now: its result, and whether it stays.
fn attempt(op: &Operation) -> Option<(i32, bool)> {
    let Sqe {
        opcode,
        fd,
        off,
        addr,
        len,
        op_flags,
        ..
    } = op.sqe;
    let opcode = u32::from(opcode);
    if let Some(edges) = &op.edges {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: room for one event, and no waiting.
        let n = unsafe { libc::epoll_wait(edges.as_raw_fd(), &raw mut event, 1, 0) };
        let events = event.events;
        return (n == 1).then_some((events as i32, true));
    }
    let flags = op_flags.cast_signed() | libc::MSG_DONTWAIT;
    let at = |addr: u64| std::ptr::with_exposed_provenance_mut::<libc::c_void>(addr as usize);
    let waits_for = match opcode {
        RECV | RECVMSG | READ | READV | ACCEPT => libc::POLLIN,
        SEND | SENDMSG | WRITE | WRITEV => libc::POLLOUT,
        POLL_ADD => op_flags as i16,
        _ => 0,
    };
    let tries_once = matches!(opcode, RECV) && op_flags.cast_signed() & libc::MSG_DONTWAIT != 0;
    if waits_for != 0 && !tries_once {
        let events = ready(fd, waits_for);
        if events == 0 {
            return None;
        }
        if opcode == POLL_ADD {
            return Some((i32::from(events), false));
        }
    }
    // SAFETY: the runtime keeps what an entry points at valid until the operation has completed,
    // which this does; each call gets the arguments that the entry has for it.
    let r = unsafe {
        match opcode {
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
            _ => return Some((-libc::EOPNOTSUPP, false)),
        }
    };
    Some((result(r), false))
}

/// All rings of a schedule.
#[derive(Debug, Default)]
pub(super) struct Kernel {
    rings: Vec<Ring>,
    n_operations: usize,
    /// One of [`POLL_ENDS`], once it was drawn.
    poll_ends: Option<u64>,
}

impl Kernel {
    pub(super) fn has_operations(&self) -> bool {
        self.n_operations > 0
    }

    fn count(&mut self) {
        self.n_operations = self.rings.iter().map(|r| r.operations.len()).sum();
    }

    /// Completes any operation that can be, and gives its ring.
    pub(super) fn complete_one(&mut self, rng: &mut Rng) -> Option<usize> {
        if self.n_operations == 0 {
            return None;
        }
        let poll_ends = *self
            .poll_ends
            .get_or_insert_with(|| POLL_ENDS[rng.below(4) as usize]);
        let all: Vec<(usize, usize)> = (0..self.rings.len())
            .flat_map(|r| (0..self.rings[r].operations.len()).map(move |op| (r, op)))
            .collect();
        let first = rng.below(all.len() as u64) as usize;
        for &(r, at) in all[first..].iter().chain(&all[..first]) {
            let ring = &mut self.rings[r];
            if let Some((result, stays)) = attempt(&ring.operations[at]) {
                let stays = stays && !rng.one_in(poll_ends);
                let Sqe {
                    user_data,
                    opcode,
                    fd,
                    ..
                } = ring.operations[at].sqe;
                if !stays {
                    ring.operations.remove(at);
                }
                let is_receive = matches!(u32::from(opcode), RECV | RECVMSG);
                let flags = match stays {
                    true => MORE,
                    false if is_receive && ready(fd, libc::POLLIN) != 0 => NONEMPTY,
                    false => 0,
                };
                ring.complete(user_data, result, flags);
                self.count();
                return Some(r);
            }
        }
        None
    }

    fn ring(&mut self, fd: i32) -> Option<&mut Ring> {
        let at = usize::try_from(fd - FIRST_FD).ok()?;
        self.rings.get_mut(at).filter(|ring| !ring.is_closed)
    }
}

fn key(fd: i32) -> Key {
    Key::Ring((fd - FIRST_FD) as usize)
}

/// `IORING_REGISTER_SYNC_CANCEL` by name, or of all operations on `of`.
#[track_caller]
pub(crate) fn sync_cancel(fd: i32, user_data: u64, of: Option<i32>) -> io::Result<()> {
    point(What::Ring);
    let n = with(|c| {
        let n = c.kernel.ring(fd).map_or(0, |ring| {
            ring.cancel(|sqe| match of {
                Some(of) => sqe.fd == of,
                None => sqe.user_data == user_data,
            })
        });
        c.kernel.count();
        c.wake(key(fd), 1);
        n
    });
    match n {
        0 => Err(io::Error::from_raw_os_error(libc::ENOENT)),
        _ => Ok(()),
    }
}

/// `IORING_REGISTER_SEND_MSG_RING`.
#[track_caller]
pub(crate) fn send_msg_ring(fd: i32, user_data: u64) -> io::Result<()> {
    point(What::Ring);
    with(|c| {
        if let Some(ring) = c.kernel.ring(fd) {
            ring.complete(user_data, 0, 0);
            c.wake(key(fd), 1);
        }
    });
    Ok(())
}

/// Makes rings. What can be set makes no difference here.
#[derive(Debug)]
pub(crate) struct Builder;

impl Builder {
    pub(crate) fn dontfork(&mut self) -> &mut Builder {
        self
    }

    pub(crate) fn setup_coop_taskrun(&mut self) -> &mut Builder {
        self
    }

    pub(crate) fn setup_taskrun_flag(&mut self) -> &mut Builder {
        self
    }

    pub(crate) fn setup_submit_all(&mut self) -> &mut Builder {
        self
    }

    pub(crate) fn setup_cqsize(&mut self, _: u32) -> &mut Builder {
        self
    }

    pub(crate) fn build(&self, entries: u32) -> io::Result<IoUring> {
        assert!(me().is_some(), "rings are made inside schedules only");
        let at = with(|c| {
            c.kernel.rings.push(Ring::default());
            c.kernel.rings.len() - 1
        });
        Ok(IoUring {
            fd: FIRST_FD + at as i32,
            entries: entries as usize,
        })
    }
}

/// A ring of the kernel here.
#[derive(Debug)]
pub(crate) struct IoUring {
    fd: i32,
    entries: usize,
}

impl AsRawFd for IoUring {
    fn as_raw_fd(&self) -> i32 {
        self.fd
    }
}

impl Drop for IoUring {
    fn drop(&mut self) {
        if me().is_none() {
            return;
        }
        with(|c| {
            let ring = c.kernel.ring(self.fd).expect("it is open");
            ring.is_closed = true;
            let n = ring.operations.len();
            ring.operations.clear();
            c.kernel.count();
            if n > 0 {
                c.fail("a ring is closed with operations in it");
            }
        });
    }
}

impl IoUring {
    pub(crate) fn builder() -> Builder {
        Builder
    }

    pub(crate) fn submitter(&self) -> Submitter<'_> {
        Submitter(self)
    }

    /// # Safety
    ///
    /// None is needed here; the real one wants the caller to be the only one.
    pub(crate) unsafe fn submission_shared(&self) -> Submissions<'_> {
        Submissions(self)
    }

    /// # Safety
    ///
    /// As for the submissions.
    pub(crate) unsafe fn completion_shared(&self) -> Completions<'_> {
        Completions(self.fd, PhantomData)
    }
}

/// The submission queue.
pub(crate) struct Submissions<'a>(&'a IoUring);

impl Submissions<'_> {
    /// # Safety
    ///
    /// What the entry points at stays valid until the operation has completed.
    #[track_caller]
    pub(crate) unsafe fn push(&mut self, entry: &squeue::Entry) -> Result<(), ()> {
        // SAFETY: an entry is the kernel's structure, of the same size, and any bytes are valid.
        let sqe: Sqe = unsafe { std::mem::transmute_copy(entry) };
        with(|c| {
            let ring = c.kernel.ring(self.0.fd).expect("it is open");
            if ring.submitted.len() == self.0.entries {
                return Err(());
            }
            ring.submitted.push_back(sqe);
            Ok(())
        })
    }

    pub(crate) fn len(&self) -> usize {
        with(|c| {
            c.kernel
                .ring(self.0.fd)
                .expect("it is open")
                .submitted
                .len()
        })
    }

    pub(crate) fn taskrun(&self) -> bool {
        false
    }

    pub(crate) fn cq_overflow(&self) -> bool {
        false
    }
}

/// The completion queue.
pub(crate) struct Completions<'a>(i32, PhantomData<&'a ()>);

impl Completions<'_> {
    pub(crate) fn is_empty(&self) -> bool {
        with(|c| {
            c.kernel
                .ring(self.0)
                .expect("it is open")
                .completions
                .is_empty()
        })
    }
}

impl Iterator for Completions<'_> {
    type Item = cqueue::Entry;

    fn next(&mut self) -> Option<cqueue::Entry> {
        let cqe = with(|c| {
            c.kernel
                .ring(self.0)
                .expect("it is open")
                .completions
                .pop_front()
        })?;
        // SAFETY: an entry is the kernel's structure, of the same size, and any bytes are valid.
        Some(unsafe { std::mem::transmute::<Cqe, cqueue::Entry>(cqe) })
    }
}

/// The system calls of a ring.
#[derive(Debug)]
pub(crate) struct Submitter<'a>(&'a IoUring);

impl Submitter<'_> {
    pub(crate) fn register_iowq_max_workers(&self, _: &mut [u32; 2]) -> io::Result<()> {
        Ok(())
    }

    /// # Safety
    ///
    /// As in the io_uring crate; here nothing is registered.
    pub(crate) unsafe fn register_buf_ring_with_flags(
        &self,
        _: u64,
        _: u16,
        _: u16,
        _: u16,
    ) -> io::Result<()> {
        Err(io::Error::from_raw_os_error(libc::EINVAL))
    }

    /// `io_uring_enter(2)`.
    ///
    /// # Safety
    ///
    /// `arg` is the kernel's `struct io_uring_getevents_arg`, with a valid timespec.
    #[track_caller]
    pub(crate) unsafe fn enter<T>(
        &self,
        _: u32,
        min_complete: u32,
        _: u32,
        arg: Option<&T>,
    ) -> io::Result<usize> {
        let fd = self.0.fd;
        point(What::Ring);
        let n = with(|c| {
            let n = c.kernel.ring(fd).expect("it is open").submit();
            c.kernel.count();
            n
        });
        let me = me().expect("rings are used inside schedules only");
        if min_complete > 0 && with(|c| c.kernel.ring(fd).is_some_and(|r| r.completions.is_empty()))
        {
            // SAFETY: by this function's contract; the address of the timespec is its third word.
            let timeout_ns = arg.map_or(NEVER, |arg| unsafe {
                let at = std::ptr::from_ref(arg).cast::<u64>().add(2).read();
                let ts = std::ptr::with_exposed_provenance::<libc::timespec>(at as usize);
                ts.as_ref().map_or(NEVER, |ts| {
                    ts.tv_sec as u64 * 1_000_000_000 + ts.tv_nsec as u64
                })
            });
            control::wait(me, key(fd), control::deadline(timeout_ns));
        }
        Ok(n)
    }
}

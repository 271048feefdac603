//! A simulated io_uring: what `netpoll::ring` uses of the io_uring crate, on the kernel of
//! `kernel`.
#![allow(unsafe_code)]
#![allow(missing_docs, reason = "the names mean what they mean in io_uring")]

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};

use io_uring::{cqueue, squeue};

use super::control::{self, Key, NEVER, is_twin, me, point, point_at, with};
use super::kernel::{Cqe, FIRST_FD, Kind, Sqe, owner_of};
use super::lines::Use;
use super::log::What;
use super::machine::Prices;

fn key(fd: i32) -> Key {
    Key::Ring((fd - FIRST_FD) as usize)
}

/// The line that the twin takes for the words of a ring that the kernel shares with its program. No memory is there.
fn words(fd: i32) -> usize {
    usize::MAX / 2 + 1 + ((fd as usize) << 7)
}

/// Of the twin: the calling thread reads the words of a ring.
#[track_caller]
fn reads_words(fd: i32) {
    if is_twin() {
        point_at(What::Load, Use::Read, words(fd));
    }
}

/// Of the twin: the calling thread writes them.
#[track_caller]
fn writes_words(fd: i32) {
    point_at(What::Swap, Use::Rmw, words(fd));
}

/// Of the twin: looks which sockets have become ready, marks the operations that waited for them as due, and wakes the
/// threads that sleep in the rings of these operations.
#[track_caller]
fn tell_rings() {
    for fd in with(|c| c.kernel.look()) {
        writes_words(fd);
        with(|c| c.wake(key(fd), 1));
    }
}

/// Of the twin: the calling thread does in the kernel what is due in a ring.
#[track_caller]
fn do_due(fd: i32) {
    while let Some((at, kind)) = with(|c| c.kernel.next_due(fd)) {
        control::charge_ps(|prices| match kind {
            Kind::Send => prices.operation + prices.send,
            Kind::Receive | Kind::Other => prices.operation,
        });
        point(What::Kernel);
        let is_done = with(|c| c.kernel.do_due(fd, at, &mut c.rng));
        if is_done && kind == Kind::Receive {
            control::charge_ps(|prices| prices.receive);
        }
        tell_rings();
    }
}

/// Of the twin: `call` moves bytes, at a price, and gives how many. What it changes is seen by others when it is paid
/// for.
#[track_caller]
fn moves_bytes(price: fn(&Prices) -> u64, call: impl FnOnce() -> isize) -> isize {
    if !is_twin() || me().is_none() {
        return call();
    }
    control::charge_ps(price);
    point(What::Call);
    let n = call();
    // An error is in a word of the thread's, which other fibers would write.
    if n >= 0 {
        tell_rings();
    }
    n
}

/// A system call that sends.
#[track_caller]
pub fn sends(call: impl FnOnce() -> isize) -> isize {
    moves_bytes(|prices| prices.send, call)
}

/// A system call that receives.
#[track_caller]
pub fn receives(call: impl FnOnce() -> isize) -> isize {
    moves_bytes(|prices| prices.receive, call)
}

/// `IORING_REGISTER_SYNC_CANCEL` by name, or of all operations.
#[track_caller]
pub fn sync_cancel(fd: i32, user_data: Option<u64>) -> io::Result<()> {
    point(What::Ring);
    let n = with(|c| {
        c.check_operations();
        let n = c
            .kernel
            .cancel(fd, |sqe| user_data.is_none_or(|name| sqe.user_data == name));
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
pub fn send_msg_ring(fd: i32, user_data: u64) -> io::Result<()> {
    point(What::Ring);
    if is_twin() {
        writes_words(fd);
    }
    with(|c| {
        if let Some(errno) = c.kernel.faults.refuses(&mut c.rng) {
            return Err(io::Error::from_raw_os_error(errno));
        }
        if let Some(ring) = c.kernel.ring(fd) {
            ring.complete(user_data, 0, 0);
            c.wake(key(fd), 1);
        }
        Ok(())
    })
}

/// Whether the owner of a ring would find something to do: what other threads read in its words.
#[track_caller]
pub fn ring_has_news(fd: i32) -> bool {
    reads_words(fd);
    with(|c| {
        c.kernel
            .ring(fd)
            .is_some_and(|ring| !ring.completions.is_empty() || !ring.submitted.is_empty())
    }) || ring_has_task_work(fd)
}

/// Whether the kernel posts completions when it is entered.
pub fn ring_has_task_work(fd: i32) -> bool {
    is_twin() && with(|c| c.kernel.ring(fd).is_some_and(|ring| ring.has_due()))
}

/// `epoll_pwait2(2)` of a real epoll instance, in the schedule's time.
#[track_caller]
pub fn epoll_wait(
    epfd: BorrowedFd<'_>,
    events: &mut [libc::epoll_event],
    timeout_ns: u64,
) -> io::Result<usize> {
    let epfd = epfd.as_raw_fd();
    let mut now = || {
        let room = events.len() as i32;
        // SAFETY: there is room for so many events, and no waiting.
        let n = unsafe { libc::epoll_wait(epfd, events.as_mut_ptr(), room, 0) };
        usize::try_from(n).map_err(|_| io::Error::last_os_error())
    };
    point(What::Ring);
    let n = now()?;
    let Some(me) = me().filter(|_| n == 0 && timeout_ns > 0) else {
        return Ok(n);
    };
    if with(|c| c.kernel.faults.interrupts(&mut c.rng)) {
        return Err(io::Error::from_raw_os_error(libc::EINTR));
    }
    with(|c| c.kernel.waits_in(epfd, true));
    control::wait(me, Key::Epoll(epfd), control::deadline(timeout_ns));
    with(|c| c.kernel.waits_in(epfd, false));
    now()
}

/// Makes rings. What can be set makes no difference here.
#[derive(Debug)]
pub struct Builder;

impl Builder {
    pub fn dontfork(&mut self) -> &mut Builder {
        self
    }

    pub fn setup_coop_taskrun(&mut self) -> &mut Builder {
        self
    }

    pub fn setup_taskrun_flag(&mut self) -> &mut Builder {
        self
    }

    pub fn setup_submit_all(&mut self) -> &mut Builder {
        self
    }

    pub fn setup_cqsize(&mut self, _: u32) -> &mut Builder {
        self
    }

    pub fn build(&self, entries: u32) -> io::Result<IoUring> {
        assert!(me().is_some(), "rings are made inside schedules only");
        Ok(IoUring {
            fd: with(|c| c.kernel.open()),
            entries: entries as usize,
        })
    }
}

/// A ring of the kernel here.
#[derive(Debug)]
pub struct IoUring {
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
            if let Some(why) = c.kernel.close(self.fd) {
                c.fail(why);
            }
        });
    }
}

impl IoUring {
    pub fn builder() -> Builder {
        Builder
    }

    pub fn submitter(&self) -> Submitter<'_> {
        Submitter(self)
    }

    /// # Safety
    ///
    /// None is needed here; the real one wants the caller to be the only one.
    pub unsafe fn submission_shared(&self) -> Submissions<'_> {
        Submissions(self)
    }

    /// # Safety
    ///
    /// As for the submissions.
    pub unsafe fn completion_shared(&self) -> Completions<'_> {
        Completions(self.fd, PhantomData)
    }
}

/// The submission queue.
#[derive(Debug)]
pub struct Submissions<'a>(&'a IoUring);

impl Submissions<'_> {
    /// # Safety
    ///
    /// The memory that the entry points at stays valid until the operation has completed.
    #[track_caller]
    pub unsafe fn push(&mut self, entry: &squeue::Entry) -> Result<(), ()> {
        // SAFETY: an entry is the kernel's structure, of the same size, and any bytes are valid.
        let sqe: Sqe = unsafe { std::mem::transmute_copy(entry) };
        with(|c| {
            let owner = owner_of(sqe.user_data).and_then(|at| c.oracle.number_of(at));
            let ring = c.kernel.ring(self.0.fd).expect("it is open");
            if ring.submitted.len() == self.0.entries {
                return Err(());
            }
            ring.push(sqe, owner);
            c.check_operations();
            Ok(())
        })
    }

    pub fn len(&self) -> usize {
        with(|c| {
            c.kernel
                .ring(self.0.fd)
                .expect("it is open")
                .submitted
                .len()
        })
    }

    #[track_caller]
    pub fn taskrun(&self) -> bool {
        reads_words(self.0.fd);
        ring_has_task_work(self.0.fd)
    }

    pub fn cq_overflow(&self) -> bool {
        false
    }
}

/// The completion queue.
#[derive(Debug)]
pub struct Completions<'a>(i32, PhantomData<&'a ()>);

impl Completions<'_> {
    #[track_caller]
    pub fn is_empty(&self) -> bool {
        reads_words(self.0);
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
            c.check_operations();
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
pub struct Submitter<'a>(&'a IoUring);

impl Submitter<'_> {
    pub fn register_iowq_max_workers(&self, _: &mut [u32; 2]) -> io::Result<()> {
        Ok(())
    }

    /// # Safety
    ///
    /// At `addr` are so many entries, and they stay until the ring is closed.
    pub unsafe fn register_buf_ring_with_flags(
        &self,
        addr: u64,
        n: u16,
        group: u16,
        _: u16,
    ) -> io::Result<()> {
        // SAFETY: by this function's contract.
        with(|c| unsafe { c.kernel.register_buffers(self.0.fd, addr, n, group) });
        Ok(())
    }

    /// `io_uring_enter(2)`.
    ///
    /// # Safety
    ///
    /// `arg` is the kernel's `struct io_uring_getevents_arg`, with a valid timespec.
    #[track_caller]
    pub unsafe fn enter<T>(
        &self,
        _: u32,
        min_complete: u32,
        _: u32,
        arg: Option<&T>,
    ) -> io::Result<usize> {
        let fd = self.0.fd;
        point(What::Ring);
        let (queued, taken) = with(|c| {
            let queued = c.kernel.ring(fd).map_or(0, |ring| ring.submitted.len());
            (queued, c.kernel.submit(fd, &mut c.rng))
        });
        let n = taken.map_err(io::Error::from_raw_os_error)?;
        if is_twin() {
            // Sockets may have been closed.
            tell_rings();
            do_due(fd);
        }
        if n < queued {
            // The kernel does not wait then.
            return Ok(n);
        }
        let me = me().expect("rings are used inside schedules only");
        if min_complete > 0 && with(|c| c.kernel.ring(fd).is_some_and(|r| r.completions.is_empty()))
        {
            if with(|c| c.kernel.faults.interrupts(&mut c.rng)) {
                return match n {
                    0 => Err(io::Error::from_raw_os_error(libc::EINTR)),
                    _ => Ok(n),
                };
            }
            // SAFETY: by this function's contract; the address of the timespec is its third word.
            let timeout_ns = arg.map_or(NEVER, |arg| unsafe {
                let at = std::ptr::from_ref(arg).cast::<u64>().add(2).read();
                let ts = std::ptr::with_exposed_provenance::<libc::timespec>(at as usize);
                ts.as_ref().map_or(NEVER, |ts| {
                    ts.tv_sec as u64 * 1_000_000_000 + ts.tv_nsec as u64
                })
            });
            control::wait(me, key(fd), control::deadline(timeout_ns));
            if is_twin() {
                do_due(fd);
            }
        }
        Ok(n)
    }
}

//! `Fd`: a descriptor with its timeouts and deadlines, the only field of every net type.
//!
//! Sockets stay in blocking mode, so that descriptors can be exchanged with `std` and io_uring's
//! own polling works. A goroutine still never blocks on one: single attempts pass MSG_DONTWAIT,
//! everything else goes through the ring. A plain thread waits with `ppoll(2)`. A socket is in
//! non-blocking mode only where a call has no flag for a single attempt:
//!
//! - while `io::copy` splices from or to it;
//! - with the epoll fallback, and on a plain thread where a deadline or a context may end the wait, a
//!   listener that has accepted: until its descriptor is given away.
#![allow(unsafe_code)]

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use socket2::{Domain, SockAddr, SockRef, Socket, Type};

pub(crate) use super::limit::Direction;
use super::limit::{Limits, Made, MovableDeadline};
use super::op::{self, Deadline};
use super::sim_socket::{self, SimSocket};
use super::waits::Waits;
use crate::bubble;
use crate::g::header::{GRef, Header};
use crate::lock::{Lock, rank};
use crate::loom::native::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use crate::loom::native::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use crate::netpoll::multishot_poll::MultishotPoll;
use crate::race;
use crate::sched::wait::{cancel, current_context};
use crate::sys::clock::{self, NEVER};
use crate::sys::errno::{is_would_block, retry};
use crate::sys::request::Interest;
use crate::sys::{file, socket};

/// Timeouts and deadlines belong to the socket, so clones share them.
#[derive(Debug)]
struct Shared {
    read: DirectionState,
    write: DirectionState,
    multishot_poll: OnceLock<Arc<MultishotPoll>>,
    /// The number of bytes that the last receive of a stream with a multishot poll left. Ordering: relaxed, a
    /// hint.
    left: AtomicU32,
    /// `O_NONBLOCK` was requested: calls make one attempt. Ordering: relaxed, a setting.
    nonblocking: AtomicBool,
    /// Set for a listener that an accept has put into non-blocking mode: its cookie, which
    /// is also in [`MADE`], if the kernel has cookies.
    made_nonblocking: OnceLock<Option<u64>>,
    /// Locked while the mode changes.
    mode: Lock<Mode>,
    /// A timeout was set here, so it may differ from the socket's own. Ordering: relaxed, a
    /// setting.
    has_own_timeouts: AtomicBool,
    /// Set in a simulation.
    sim: OnceLock<SimSocket>,
}

/// The number of receives that wait one by one before the stream gets a multishot poll: arming and
/// stopping a poll takes two system calls. Of packets, see [`Fd::note_waited_packet`].
const POLL_AFTER_WAITS: u8 = 4;
/// The stream gets no multishot poll.
const NO_POLL: u8 = u8::MAX;

/// The use of non-blocking mode.
#[derive(Debug, Default)]
struct Mode {
    /// The calls of handles that share this which depend on the mode now: copies that splice, accepts.
    n_users: usize,
    /// The socket's cookie, if it is listed in [`SPLICED`].
    listed: Option<u64>,
}

/// The cookies of listeners that windlass itself has put into non-blocking mode. If a
/// duplicate of such a descriptor is adopted, its mode does not mean that its owner wants single
/// attempts. One entry for each `Shared` concerned.
static MADE: Mutex<Vec<u64>> = Mutex::new(Vec::new());

/// The mode of sockets that are being spliced. Locked while their mode changes: handles that were
/// adopted one by one know nothing of each other, and the last splice ends the mode.
static SPLICED: Mutex<Vec<u64>> = Mutex::new(Vec::new());

fn lock(cookies: &'static Mutex<Vec<u64>>) -> MutexGuard<'static, Vec<u64>> {
    cookies.lock().unwrap_or_else(PoisonError::into_inner)
}

fn remove_one(cookies: &mut Vec<u64>, cookie: Option<u64>) {
    if let Some(at) = cookies.iter().position(|&c| Some(c) == cookie) {
        cookies.swap_remove(at);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(&mut cookie) = self.made_nonblocking.get_mut() {
            remove_one(&mut lock(&MADE), cookie);
        }
        // The poll would keep the file open.
        if let Some(poll) = self.multishot_poll.get() {
            poll.stop();
        }
    }
}

/// The time limits of one direction.
#[derive(Debug)]
struct DirectionState {
    /// The longest wait of each call, in nanoseconds; `NEVER` if there is no limit. Ordering: relaxed, a setting.
    timeout_ns: AtomicU64,
    /// The deadline of all calls together.
    limit: MovableDeadline,
}

impl DirectionState {
    fn new(first: Option<NonNull<Header>>) -> DirectionState {
        DirectionState {
            timeout_ns: AtomicU64::new(NEVER),
            limit: MovableDeadline::new(first),
        }
    }
}

impl Limits for Shared {
    fn new(first: Option<(Direction, NonNull<Header>)>) -> Shared {
        let first_of = |direction| first.filter(|f| f.0 == direction).map(|f| f.1);
        Shared {
            read: DirectionState::new(first_of(Direction::Read)),
            write: DirectionState::new(first_of(Direction::Write)),
            multishot_poll: OnceLock::new(),
            left: AtomicU32::new(0),
            nonblocking: AtomicBool::new(false),
            made_nonblocking: OnceLock::new(),
            mode: Lock::new(rank::MODE, Mode::default()),
            has_own_timeouts: AtomicBool::new(false),
            sim: OnceLock::new(),
        }
    }

    fn limit(&self, direction: Direction) -> &MovableDeadline {
        &self.side(direction).limit
    }
}

impl Shared {
    #[inline]
    fn side(&self, direction: Direction) -> &DirectionState {
        match direction {
            Direction::Read => &self.read,
            Direction::Write => &self.write,
        }
    }
}

/// A socket. Most have no deadlines, are not cloned, and need no more than this.
#[derive(Debug)]
pub(crate) struct Fd {
    fd: OwnedFd,
    /// The last receive left data in the socket. Ordering: relaxed, a hint.
    maybe_readable: AtomicBool,
    /// The number of receives of a stream that waited, up to [`POLL_AFTER_WAITS`], from which on the
    /// stream may have a multishot poll; or [`NO_POLL`]. Of packets, [`POLL_AFTER_WAITS`] for each that
    /// was waited for, less those that attempts found; it wraps. Ordering: relaxed, a hint.
    n_waits: AtomicU8,
    /// Sends are system calls, also those that wait ([`socket::reads_before_it_fails`]).
    sends_by_calls: bool,
    shared: Made<Shared>,
}

#[cfg(not(any(loom, explore)))]
const _: () = assert!(size_of::<Fd>() <= 16, "an idle connection pays for it");

impl Direction {
    /// The `poll(2)` events to wait for.
    pub(crate) fn poll_events(self) -> i16 {
        let interest = match self {
            Direction::Read => Interest::Read,
            Direction::Write => Interest::Write,
        };
        interest.poll_events() as i16
    }
}

impl From<OwnedFd> for Fd {
    fn from(fd: OwnedFd) -> Fd {
        let sim = sim_socket::of_descriptor(fd.as_fd());
        Fd::new(fd, sim)
    }
}

impl From<Fd> for OwnedFd {
    fn from(fd: Fd) -> OwnedFd {
        if let Some(sim) = fd.sim_socket() {
            sim.give_away(fd.as_fd());
        }
        let Some(shared) = fd.shared.get() else {
            return fd.fd;
        };
        if shared.multishot_poll.get().is_some() {
            // The next owner may not expect the control message that comes with each receive.
            let _ = socket::set_says_left(fd.as_fd(), false);
        }
        if shared.made_nonblocking.get().is_some() && !fd.is_nonblocking() {
            // Cannot fail: setting the flag has worked on this descriptor.
            let _ = socket2::SockRef::from(&fd).set_nonblocking(false);
        }
        if shared.has_own_timeouts.load(Ordering::Relaxed) {
            let socket = socket2::SockRef::from(&fd);
            // The kernel counts in microseconds, and zero means no timeout.
            let whole = |timeout: Duration| timeout.max(Duration::from_micros(1));
            // No socket refuses a timeout that is not zero.
            let _ = socket.set_read_timeout(fd.get_timeout(Direction::Read).map(whole));
            let _ = socket.set_write_timeout(fd.get_timeout(Direction::Write).map(whole));
        }
        fd.fd
    }
}

impl AsFd for Fd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Fd {
    fn new(fd: OwnedFd, sim: Option<SimSocket>) -> Fd {
        let shared = Made::<Shared>::nothing();
        if let Some(sim) = sim {
            shared.make().sim.get_or_init(|| sim);
        }
        Fd {
            fd,
            maybe_readable: AtomicBool::new(false),
            n_waits: AtomicU8::new(0),
            sends_by_calls: false,
            shared,
        }
    }

    /// The simulated socket behind this descriptor; `None` outside of simulations.
    #[inline]
    pub(crate) fn sim_socket(&self) -> Option<&SimSocket> {
        match cfg!(feature = "sim") {
            true => self.shared.get()?.sim.get(),
            false => None,
        }
    }

    /// The deadline of a call on the simulated socket that begins now; `None` if it does not wait.
    pub(super) fn sim_deadline(&self, direction: Direction) -> io::Result<Option<Deadline<'_>>> {
        match self.is_nonblocking() {
            true => Ok(None),
            false => self.deadline(direction).map(Some),
        }
    }

    /// A connection that a simulated listener has accepted.
    pub(super) fn with_sim_socket(fd: OwnedFd, sim: SimSocket) -> Fd {
        Fd::new(fd, Some(sim))
    }

    /// Refuses a descriptor from outside in a simulation, unless it is of a socket of its own.
    fn refuse_foreign(fd: BorrowedFd<'_>) {
        if sim_socket::is_simulated(fd) {
            return;
        }
        let _ = fd;
        bubble::refuse(
            "a socket of the system",
            "in a simulation, make sockets with windlass::net",
        );
    }

    /// Takes a new socket that may be for Unix datagrams.
    pub(crate) fn of_any_kind(fd: OwnedFd) -> Fd {
        let mut fd = Fd::from(fd);
        fd.sends_by_calls = socket::reads_before_it_fails(fd.as_fd());
        fd
    }

    /// Takes a socket that may have been used elsewhere, with its mode and its timeouts. It may be of
    /// another kind than the type that it is made into.
    pub(crate) fn adopt(fd: OwnedFd) -> Fd {
        Fd::refuse_foreign(fd.as_fd());
        let fd = Fd::of_any_kind(fd);
        let socket = socket2::SockRef::from(&fd);
        // If they cannot be read, as it is no socket, it has neither.
        if let Ok(Some(timeout)) = socket.read_timeout() {
            fd.store_timeout(Direction::Read, Some(timeout));
        }
        if let Ok(Some(timeout)) = socket.write_timeout() {
            fd.store_timeout(Direction::Write, Some(timeout));
        }
        if file::is_nonblocking(fd.as_fd()).unwrap_or(false) {
            let socket = socket2::SockRef::from(&fd);
            let cookie = socket.cookie();
            let is_in = |cookies| cookie.as_ref().is_ok_and(|c| lock(cookies).contains(c));
            let is_made = is_in(&MADE) || is_in(&SPLICED);
            if !is_made {
                fd.shared.make().nonblocking.store(true, Ordering::Relaxed);
            } else if socket.is_listener().unwrap_or(false) {
                fd.note_made_nonblocking();
            }
        }
        fd
    }

    // Calls that never wait.

    pub(crate) fn bind(&self, addr: &SockAddr) -> io::Result<()> {
        on_sim_socket!(self, sim => sim.bind(addr));
        SockRef::from(self).bind(addr)
    }

    pub(crate) fn listen(&self, backlog: i32) -> io::Result<()> {
        on_sim_socket!(self, sim => sim.listen(backlog));
        SockRef::from(self).listen(backlog)
    }

    /// Sets the peer of a socket for packets.
    pub(crate) fn connect_now(&self, addr: &SockAddr) -> io::Result<()> {
        on_sim_socket!(self, sim => sim.connect_now(addr));
        retry(|| SockRef::from(self).connect(addr))
    }

    pub(crate) fn local_addr(&self) -> io::Result<SockAddr> {
        on_sim_socket!(self, sim => sim.local_addr());
        SockRef::from(self).local_addr()
    }

    pub(crate) fn peer_addr(&self) -> io::Result<SockAddr> {
        on_sim_socket!(self, sim => sim.peer_addr());
        SockRef::from(self).peer_addr()
    }

    pub(crate) fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        on_sim_socket!(self, sim => sim.shut_down(how));
        race::sends();
        SockRef::from(self).shutdown(how)
    }

    pub(crate) fn take_error(&self) -> io::Result<Option<io::Error>> {
        on_sim_socket!(self, sim => sim.take_error());
        SockRef::from(self).take_error()
    }

    /// Joins a multicast group of IPv4, or leaves it.
    pub(crate) fn set_member_v4(
        &self,
        group: &Ipv4Addr,
        at: &Ipv4Addr,
        joins: bool,
    ) -> io::Result<()> {
        on_sim_socket!(self, sim => sim.set_member((*group).into(), joins));
        match joins {
            true => SockRef::from(self).join_multicast_v4(group, at),
            false => SockRef::from(self).leave_multicast_v4(group, at),
        }
    }

    /// Joins a multicast group of IPv6, or leaves it.
    pub(crate) fn set_member_v6(&self, group: &Ipv6Addr, at: u32, joins: bool) -> io::Result<()> {
        on_sim_socket!(self, sim => sim.set_member((*group).into(), joins));
        match joins {
            true => SockRef::from(self).join_multicast_v6(group, at),
            false => SockRef::from(self).leave_multicast_v6(group, at),
        }
    }

    /// Two Unix sockets that are connected to each other.
    pub(crate) fn pair(kind: Type) -> io::Result<(Fd, Fd)> {
        let of = |socket| Fd::of_any_kind(OwnedFd::from(socket));
        if bubble::is_inside() {
            let new = || Socket::new(Domain::UNIX, kind, None).map(of);
            let (a, b) = (new()?, new()?);
            if let (Some(a), Some(b)) = (a.sim_socket(), b.sim_socket()) {
                a.pair(b)?;
            }
            return Ok((a, b));
        }
        let (a, b) = Socket::pair(Domain::UNIX, kind, None)?;
        Ok((of(a), of(b)))
    }

    pub(crate) fn try_clone(&self) -> io::Result<Fd> {
        Ok(Fd {
            fd: self.fd.try_clone()?,
            maybe_readable: AtomicBool::new(self.maybe_readable()),
            n_waits: AtomicU8::new(0),
            sends_by_calls: self.sends_by_calls,
            shared: self.shared.share(),
        })
    }

    /// Sets a timeout; `InvalidInput` for zero, as `std`.
    pub(crate) fn set_timeout(&self, direction: Direction, d: Option<Duration>) -> io::Result<()> {
        if d.is_some_and(|d| d.is_zero()) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "cannot set a timeout of zero: pass None to wait without limit",
            ));
        }
        self.store_timeout(direction, d);
        self.shared
            .make()
            .has_own_timeouts
            .store(true, Ordering::Relaxed);
        Ok(())
    }

    fn store_timeout(&self, direction: Direction, d: Option<Duration>) {
        let ns = d.map_or(NEVER, |d| u64::try_from(d.as_nanos()).unwrap_or(NEVER));
        let side = self.shared.make().side(direction);
        side.timeout_ns.store(ns, Ordering::Relaxed);
    }

    pub(crate) fn get_timeout(&self, direction: Direction) -> Option<Duration> {
        let side = self.shared.get()?.side(direction);
        let ns = side.timeout_ns.load(Ordering::Relaxed);
        (ns != NEVER).then(|| Duration::from_nanos(ns))
    }

    /// Sets the deadline of all calls, including those that are waiting.
    pub(crate) fn set_deadline(&self, direction: Direction, at: Option<Instant>) {
        let at_ns = at.map_or(NEVER, clock::instant_ns);
        self.shared.make().limit(direction).set(at_ns, |g, wait| {
            // SAFETY: the limit returns the addresses that goroutines registered: slots of the
            // slab.
            let g = unsafe { GRef::from_raw(g) };
            cancel::wake_by(g, wait, at_ns);
        });
    }

    /// The deadline of a call that begins now. `WouldBlock` if it has passed; the current context's
    /// error if that is done.
    #[inline]
    pub(crate) fn deadline(&self, direction: Direction) -> io::Result<Deadline<'_>> {
        current_context::check()?;
        let Some(shared) = self.shared.get() else {
            return Ok(Deadline::not_made(&self.shared, direction));
        };
        let side = shared.side(direction);
        let at_ns = match side.timeout_ns.load(Ordering::Relaxed) {
            NEVER => NEVER,
            ns => clock::now_ns().saturating_add(ns),
        };
        let deadline = Deadline::movable(at_ns, &side.limit);
        if side.limit.ns() != NEVER && deadline.has_passed() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(deadline)
    }

    /// Makes calls on this socket and its clones return `WouldBlock` instead of waiting.
    pub(crate) fn set_nonblocking(&self, on: bool) -> io::Result<()> {
        let shared = self.shared.make();
        let mode = shared.mode.lock();
        self.set_mode(on || mode.n_users > 0)?;
        let was_on = shared.nonblocking.swap(on, Ordering::Relaxed);
        if was_on != on
            && let Some(&Some(cookie)) = shared.made_nonblocking.get()
        {
            let mut made = lock(&MADE);
            match on {
                true => made.retain(|&c| c != cookie),
                false => made.push(cookie),
            }
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn is_nonblocking(&self) -> bool {
        let shared = self.shared.get();
        shared.is_some_and(|shared| shared.nonblocking.load(Ordering::Relaxed))
    }

    /// Makes an attempt in the mode that was requested, which lasts until the attempt has ended. `None` if
    /// calls wait.
    pub(super) fn attempt<T>(&self, attempt: impl FnOnce() -> T) -> Option<T> {
        if !self.is_nonblocking() {
            return None;
        }
        let mut mode = self.shared.make().mode.lock();
        // A clone may have ended the mode.
        self.is_nonblocking().then(|| {
            mode.n_users += 1;
            drop(mode);
            let _in_mode = NonBlocking(self);
            attempt()
        })
    }

    #[inline]
    pub(super) fn sends_by_calls(&self) -> bool {
        self.sends_by_calls
    }

    /// Records that accepts put the listener into non-blocking mode.
    fn note_made_nonblocking(&self) {
        self.shared.make().made_nonblocking.get_or_init(|| {
            let cookie = socket2::SockRef::from(self).cookie().ok();
            lock(&MADE).extend(cookie);
            cookie
        });
    }

    /// Begins an accept that puts the listener into non-blocking mode. No clone ends the mode before the
    /// guard is dropped: an attempt would block its thread.
    pub(super) fn accepting(&self) -> NonBlocking<'_> {
        self.note_made_nonblocking();
        self.shared.make().mode.lock().n_users += 1;
        NonBlocking(self)
    }

    /// Sets the socket's mode. It stays non-blocking while a copy of another handle splices.
    fn set_mode(&self, nonblocking: bool) -> io::Result<()> {
        let socket = socket2::SockRef::from(self);
        let spliced = lock(&SPLICED);
        let is_spliced = || socket.cookie().is_ok_and(|c| spliced.contains(&c));
        socket.set_nonblocking(nonblocking || !spliced.is_empty() && is_spliced())
    }

    /// Puts the socket into non-blocking mode until the guard is dropped.
    pub(crate) fn splicing(&self) -> io::Result<NonBlocking<'_>> {
        let mut mode = self.shared.make().mode.lock();
        if mode.n_users == 0 {
            let socket = socket2::SockRef::from(self);
            let mut spliced = lock(&SPLICED);
            socket.set_nonblocking(true)?;
            if !self.is_nonblocking() {
                mode.listed = socket.cookie().ok();
                spliced.extend(mode.listed);
            }
        }
        mode.n_users += 1;
        Ok(NonBlocking(self))
    }

    #[inline]
    pub(super) fn maybe_readable(&self) -> bool {
        self.maybe_readable.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set_maybe_readable(&self, maybe: bool) {
        self.maybe_readable.store(maybe, Ordering::Relaxed);
    }

    /// The multishot poll, if there is one and it is of use.
    #[inline]
    pub(super) fn multishot_poll(&self) -> Option<&Arc<MultishotPoll>> {
        let poll = self.shared.get()?.multishot_poll.get();
        poll.filter(|poll| !poll.is_over())
    }

    /// As `recv(2)` on a stream with a multishot poll, and returns a lower bound of the bytes left,
    /// as far as it is known. The socket is asked for it, which takes a tenth of a µs, only where
    /// it may be 0.
    ///
    /// # Safety
    ///
    /// The buffer is valid for writes of `len` bytes.
    pub(super) unsafe fn recv_left_now(
        &self,
        buf: *mut u8,
        len: usize,
    ) -> io::Result<(usize, Option<u32>)> {
        let left = &self.shared.make().left;
        let known = left.load(Ordering::Relaxed);
        if known as usize <= len {
            // SAFETY: by this function's contract.
            let (n, now_left) = retry(|| unsafe { socket::recv_left_now(self.as_fd(), buf, len) })?;
            left.store(now_left.unwrap_or(0), Ordering::Relaxed);
            return Ok((n, now_left));
        }
        // SAFETY: by this function's contract.
        let n = retry(|| unsafe { socket::recv_now(self.as_fd(), buf, len, 0) })?;
        // A clone may have taken some of the rest, or urgent data may have cut this receive short.
        let now_left = (n == len).then(|| known - len as u32);
        left.store(now_left.unwrap_or(0), Ordering::Relaxed);
        Ok((n, now_left))
    }

    /// Counts a receive of a stream that waited by itself.
    #[inline]
    pub(super) fn note_waited(&self) {
        let n = self.n_waits.load(Ordering::Relaxed);
        if n < POLL_AFTER_WAITS {
            self.n_waits.store(n + 1, Ordering::Relaxed);
        } else if n == POLL_AFTER_WAITS && !op::is_epoll_here() {
            self.make_multishot_poll();
        }
    }

    /// Counts a packet that was waited for. `true` if others may have come with it: attempts have found
    /// [`POLL_AFTER_WAITS`] for each that was, or it is the 64th without.
    #[inline]
    pub(super) fn note_waited_packet(&self) -> bool {
        let n = self.n_waits.load(Ordering::Relaxed);
        let next = n.wrapping_add(POLL_AFTER_WAITS);
        self.n_waits.store(next, Ordering::Relaxed);
        n < POLL_AFTER_WAITS
    }

    /// An attempt has found a packet.
    #[inline]
    pub(super) fn note_found_packet(&self) {
        let n = self.n_waits.load(Ordering::Relaxed);
        self.n_waits.store(n.saturating_sub(1), Ordering::Relaxed);
    }

    /// Gives the socket a multishot poll, if it reports how much a receive has left, as TCP does. A buffer that
    /// was not filled is no proof that the socket is empty: a receive also stops at urgent data, and
    /// where descriptors were passed.
    #[cold]
    fn make_multishot_poll(&self) {
        if socket::set_says_left(self.as_fd(), true).is_ok() {
            self.shared
                .make()
                .multishot_poll
                .get_or_init(|| Arc::new(MultishotPoll::new()));
        }
        self.n_waits.store(NO_POLL, Ordering::Relaxed);
    }

    /// Makes a call on a plain thread: polls until the deadline, and attempts.
    pub(super) fn on_thread<T>(
        &self,
        events: i16,
        deadline: Deadline<'_>,
        mut now: impl FnMut() -> io::Result<T>,
    ) -> io::Result<T> {
        let mut waits = Waits::new(events, deadline);
        loop {
            waits.wait(self.as_fd())?;
            let r = now();
            if !is_would_block(&r) {
                return r;
            }
        }
    }
}

/// A socket in non-blocking mode.
#[derive(Debug)]
pub(crate) struct NonBlocking<'a>(&'a Fd);

impl Drop for NonBlocking<'_> {
    fn drop(&mut self) {
        let Shared {
            mode,
            made_nonblocking,
            ..
        } = self.0.shared.make();
        let mut mode = mode.lock();
        mode.n_users -= 1;
        if mode.n_users == 0 {
            remove_one(&mut lock(&SPLICED), mode.listed.take());
            if !self.0.is_nonblocking() && made_nonblocking.get().is_none() {
                // Cannot fail: setting the flag has worked on this descriptor.
                let _ = self.0.set_mode(false);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_listener_that_the_poller_made_non_blocking_is_listed_once() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let fd = Fd::from(OwnedFd::from(listener));
        let cookie = socket2::SockRef::from(&fd).cookie().unwrap();
        let n_listed = || lock(&MADE).iter().filter(|&&c| c == cookie).count();
        fd.note_made_nonblocking();
        for _ in 0..3 {
            fd.set_nonblocking(false).unwrap();
            assert_eq!(n_listed(), 1);
        }
        fd.set_nonblocking(true).unwrap();
        assert_eq!(n_listed(), 0);
        fd.set_nonblocking(false).unwrap();
        assert_eq!(n_listed(), 1);
        drop(fd);
        assert_eq!(n_listed(), 0);
    }
}

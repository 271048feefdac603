//! `Waits`: the waits of one call for its descriptor, between attempts that find nothing.
//!
//! A call makes an attempt. If that finds nothing, it waits until the descriptor is ready, and makes
//! another one. But `poll(2)` may report a descriptor for which every attempt finds nothing:
//!
//! - An error queue with an entry in it (`IP_RECVERR`, `SO_TIMESTAMPING`, `MSG_ZEROCOPY`) is shown as
//!   `POLLERR` until the program reads it.
//! - A Unix datagram socket without a peer is shown as writable while its receiver has no room.
//!
//! A wait that only polls would end at once each time, also after the deadline. So:
//!
//! - The deadline belongs to the call, not to each wait. It is checked after every wait in vain.
//! - If the descriptor is not ready any more, another call was faster: this one waits as before.
//! - If only an error is shown, the kernel reports truly that there is nothing to read or no room. The
//!   call waits for the next change ([`Waits::for_change`]).
//! - If the descriptor is shown as ready, attempts are made at once, up to [`AT_ONCE`] of them, and
//!   then after pauses that grow. Changes would not do here: the attempts cause some themselves.
//!
//! A change is what an epoll instance with an edge-triggered interest reports. It is made for this
//! call, and polled as the descriptor was: by a ring, by the P's epoll instance, or by a plain thread.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::limit::Deadline;
use crate::sched::wait::{current_context, points, sleep};
use crate::sys::clock;
use crate::sys::epoll::{self, NO_EVENT};
use crate::sys::socket;
use crate::util::ladder;

/// The number of attempts in vain that are made at once for a descriptor that is shown as ready.
const AT_ONCE: u8 = 8;

/// The first pause between two attempts that no event announces. The longest is [`ladder::HOG_NS`].
const PAUSE_NS: u64 = 5 * ladder::TICK_NS;

/// The waits of one call for `events` of one descriptor.
#[derive(Debug)]
pub(crate) struct Waits<'a> {
    pub(super) events: i16,
    pub(super) deadline: Deadline<'a>,
    has_waited: bool,
    n_at_once: u8,
    pause_ns: u64,
    /// An epoll instance that reports changes of the descriptor.
    changes: Option<OwnedFd>,
}

impl<'a> Waits<'a> {
    /// Waits that end at the deadline, with `WouldBlock`.
    pub(crate) fn new(events: i16, deadline: Deadline<'a>) -> Waits<'a> {
        Waits {
            events,
            deadline,
            has_waited: false,
            n_at_once: 0,
            pause_ns: PAUSE_NS,
            changes: None,
        }
    }

    /// Waits until another attempt is worthwhile. `fd` is the same each time; `poll` waits for
    /// events of a descriptor.
    ///
    /// # Errors
    ///
    /// `WouldBlock` at the deadline; the context's if that is done; those of `poll`.
    pub(super) fn wait_by<P>(&mut self, fd: BorrowedFd<'_>, poll: P) -> io::Result<()>
    where
        P: FnOnce(BorrowedFd<'_>, i16, Deadline<'_>) -> io::Result<()>,
    {
        if !self.has_waited {
            self.has_waited = true;
            return poll(fd, self.events, self.deadline);
        }
        self.wait_again(fd, poll)
    }

    /// Waits after a wait in vain.
    #[cold]
    fn wait_again<P>(&mut self, fd: BorrowedFd<'_>, poll: P) -> io::Result<()>
    where
        P: FnOnce(BorrowedFd<'_>, i16, Deadline<'_>) -> io::Result<()>,
    {
        self.check()?;
        let shown = socket::poll_now(fd, self.events)?;
        if shown == 0 {
            (self.n_at_once, self.pause_ns) = (0, PAUSE_NS);
            return poll(fd, self.events, self.deadline);
        }
        if shown & self.events == 0 {
            return self.for_change(fd, poll);
        }
        if self.n_at_once < AT_ONCE {
            self.n_at_once += 1;
            return Ok(());
        }
        self.pause()
    }

    /// Waits until something has happened to the descriptor since the last such wait. The first one
    /// ends at once, so that nothing is missed that happened since the last attempt.
    fn for_change<P>(&mut self, fd: BorrowedFd<'_>, poll: P) -> io::Result<()>
    where
        P: FnOnce(BorrowedFd<'_>, i16, Deadline<'_>) -> io::Result<()>,
    {
        if self.changes.is_none() {
            self.changes = changes_of(fd, self.events);
        }
        let Some(changes) = &self.changes else {
            // No descriptor is left, or epoll takes none of this kind.
            return self.pause();
        };
        poll(changes.as_fd(), libc::POLLIN, self.deadline)?;
        // The report is taken, so that the next wait does not see it again.
        match epoll::wait_ms(changes.as_fd(), &mut [NO_EVENT], 0) {
            Ok(_) => Ok(()),
            Err(_) => self.pause(),
        }
    }

    /// Waits for a while where no event announces that another attempt is worthwhile.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if the deadline has passed; the context's if that is done.
    pub(super) fn pause(&mut self) -> io::Result<()> {
        self.check()?;
        let until_ns = clock::now_ns() + self.pause_ns;
        self.pause_ns = (2 * self.pause_ns).min(ladder::HOG_NS);
        Ok(sleep::sleep_until(until_ns.min(self.deadline.ns()))?)
    }

    /// Fails if the wait must not begin.
    fn check(&self) -> io::Result<()> {
        points::cancel_point()?;
        current_context::check()?;
        match self.deadline.has_passed() {
            true => Err(io::ErrorKind::WouldBlock.into()),
            false => Ok(()),
        }
    }
}

/// An epoll instance that is readable when one of `events`, or an error, is new on `fd`.
pub(super) fn changes_of(fd: BorrowedFd<'_>, events: i16) -> Option<OwnedFd> {
    let changes = epoll::create().ok()?;
    let events = u32::from(events.cast_unsigned()) | libc::EPOLLET.cast_unsigned();
    epoll::set(changes.as_fd(), fd, events, 0).ok()?;
    Some(changes)
}

//! Accepting all connections to a listener, with one request that stays armed
//! (`netpoll::multi`).

use std::fmt;
use std::io;
use std::iter::FusedIterator;
use std::os::fd::{AsFd, OwnedFd};

use super::fd::{Direction, Fd};
use super::op::is_denial;
use super::subscription::{Kind, Subscription};
use crate::netpoll::multi::Came;

/// The connections to a listener, one after the other: what `accept_stream` of a listener gives.
///
/// One request to the kernel stays armed, instead of one for each connection, and the kernel
/// accepts ahead of the goroutine that asks. With 16 connections that nobody has asked for it is
/// told to stop until they have been taken; those that it has accepted by then, at most as many as
/// had queued up, are kept. [`AcceptStream::finish`] gives what was accepted ahead, so
/// that no connection is lost; dropping the value closes it. Both wait until the kernel has
/// stopped, which takes some microseconds.
///
/// What the kernel accepts for one of these is that one's: several at a listener do not share the
/// work as several goroutines do that call `accept`. The address of the peer is what the connection
/// says (`peer_addr`). On a plain thread, and over epoll, it is the same as accepting one by one.
///
/// As an iterator it never ends; after an error it may be asked again.
pub struct AcceptStream<'a, T> {
    connections: Subscription<'a>,
    /// Makes a stream of a socket that was accepted just now.
    stream_of: fn(OwnedFd) -> T,
}

impl Fd {
    /// Accepts all that come, as streams of some type.
    pub(crate) fn accept_stream<T>(&self, stream_of: fn(OwnedFd) -> T) -> AcceptStream<'_, T> {
        AcceptStream {
            connections: Subscription::new(self, Kind::Connections),
            stream_of,
        }
    }
}

impl<T: From<OwnedFd>> AcceptStream<'_, T> {
    /// Gives the next connection.
    ///
    /// # Blocking
    ///
    /// As accepting.
    ///
    /// # Errors
    ///
    /// As accepting. A timeout, a deadline or a context that ends the wait takes nothing: a
    /// connection that comes later is given by the next call.
    pub fn accept(&mut self) -> io::Result<T> {
        let fd = self.connections.fd;
        let deadline = fd.deadline(Direction::Read)?;
        match self.connections.next(deadline)? {
            Some(Came::Accepted(connection)) => Ok((self.stream_of)(connection)),
            // The ring may be denied such requests; if it is a firewall's error this fails, too.
            Some(Came::Failed(errno)) if is_denial(errno) => {
                fd.accept().map(|(fd, _)| (self.stream_of)(fd.into()))
            }
            Some(Came::Failed(errno)) => {
                let e = io::Error::from_raw_os_error(errno);
                fd.hold_back(&e)?;
                Err(e)
            }
            Some(Came::Bytes { .. } | Came::End | Came::Starved) => {
                unreachable!("a listener receives nothing")
            }
            None => fd
                .accept()
                .map(|(fd, _)| (self.stream_of)(OwnedFd::from(fd))),
        }
    }

    /// Ends accepting: gives the connections that were accepted and not asked for. Those that come
    /// later stay in the listener's queue.
    ///
    /// An error that nobody has asked for is not told: none of those that there are takes a
    /// connection along, and they are met again by whoever accepts next.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine, or blocks the thread, until the kernel has stopped, which takes
    /// some microseconds.
    #[must_use = "connections that are dropped are closed"]
    pub fn finish(self) -> Vec<T> {
        self.stop();
        std::iter::from_fn(|| self.connections.take())
            .filter_map(|came| match came {
                Came::Accepted(connection) => Some((self.stream_of)(connection)),
                _ => None,
            })
            .collect()
    }
}

impl<T> AcceptStream<'_, T> {
    /// Waits until the kernel has stopped, if it has not.
    fn stop(&self) {
        if self.connections.is_armed() {
            self.connections.stop();
            self.connections.fd.hand_wake_on();
        }
    }
}

/// Waits for the kernel, as [`AcceptStream::finish`] does, but for a goroutine that unwinds: the
/// listener is not accepted from behind the back of who drops this.
impl<T> Drop for AcceptStream<'_, T> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.stop();
        }
    }
}

impl<T: From<OwnedFd>> Iterator for AcceptStream<'_, T> {
    type Item = io::Result<T>;

    fn next(&mut self) -> Option<io::Result<T>> {
        Some(self.accept())
    }
}

impl<T: From<OwnedFd>> FusedIterator for AcceptStream<'_, T> {}

impl<T> fmt::Debug for AcceptStream<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcceptStream")
            .field("fd", &self.connections.fd.as_fd())
            .field("is_armed", &self.connections.is_armed())
            .finish_non_exhaustive()
    }
}

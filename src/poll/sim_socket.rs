//! A program's hold on a simulated socket, and waiting for it.
//!
//! In a simulation a socket or a pipe end is a number in the run's network (`bubble::net`). Its
//! descriptor is a real one, of a socket of the same family and type that is never bound or
//! connected: options are set and read there, duplicates are known by its cookie, and a read or a
//! write of it by other means fails.
//!
//! A call begins with a switch point. Then it is attempted; if it would have to wait, the goroutine
//! parks until the network wakes it, and tries again. Between the attempt and the park another
//! goroutine may run, so the commit of the park looks once more.

use std::cell::Cell;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;

use socket2::{Domain, SockAddr, SockRef, Socket, Type};

use super::op::Deadline;
use crate::bubble;
use crate::bubble::Bubble;
use crate::bubble::net::address::Id;
use crate::bubble::net::descriptors::{placeholder_like, to_address, to_sock_addr};
use crate::bubble::net::dice::Dice;
use crate::bubble::net::network::Network;
use crate::bubble::net::socket::Side;
use crate::g::status::Reason;
use crate::race;
use crate::sched::types::current;
use crate::sched::types::m::Carrier;
use crate::sched::wait::current_context;
use crate::sched::wait::park::{self, Caller};
use crate::sched::wait::points;
use crate::sys::errno::is_would_block;

/// A hold on a simulated socket or pipe end. The last one closes it.
#[derive(Debug)]
pub(crate) struct SimSocket {
    id: Id,
    /// The run that it belongs to.
    serial: u64,
}

impl Drop for SimSocket {
    fn drop(&mut self) {
        if let Some(bubble) = bubble::current().filter(|bubble| bubble.serial() == self.serial) {
            bubble.net(|net, dice| net.release(dice, self.id));
            wake();
        }
    }
}

/// Makes those runnable whose waits the network has ended.
fn wake() {
    if let Some(sim) = current::m().and_then(Carrier::simulation) {
        sim.wake_network();
    }
}

/// The cookie of a descriptor, if it is a socket's.
fn cookie(fd: BorrowedFd<'_>) -> Option<u64> {
    SockRef::from(&fd).cookie().ok()
}

/// The simulated socket of a descriptor.
fn find(bubble: &Bubble, fd: BorrowedFd<'_>) -> Option<Id> {
    let cookie = cookie(fd)?;
    bubble.net(|net, _| net.find(cookie))
}

/// Makes a simulated socket for the descriptor `fd`, or finds the one that it has. `None` outside
/// of simulations.
///
/// # Panics
///
/// If the descriptor is of another kind.
pub(super) fn of_descriptor(fd: BorrowedFd<'_>) -> Option<SimSocket> {
    let bubble = bubble::current()?;
    let hold = |id| SimSocket {
        id,
        serial: bubble.serial(),
    };
    if let Some(id) = find(&bubble, fd) {
        bubble.net(|net, _| net.adopt(id, fd.as_raw_fd()));
        return Some(hold(id));
    }
    let host = bubble.current_host();
    let made = fd.try_clone_to_owned().and_then(|placeholder| {
        let socket = SockRef::from(&fd);
        let (domain, is_stream) = (socket.domain()?, socket.r#type()? == Type::STREAM);
        let is_v6 = domain == Domain::IPV6;
        if !is_stream {
            // A receive by other means than windlass returns at once, and a send fails. The kernel
            // says that it is not connected, and notes it all the same.
            let _ = socket.shutdown(Shutdown::Both);
        }
        bubble.net(|net, _| match (domain, is_stream) {
            (Domain::UNIX, _) => net.add_unix(host, is_stream, placeholder),
            (_, true) => net.add_tcp(host, is_v6, placeholder),
            (_, false) => net.add_udp(host, is_v6, placeholder),
        })
    });
    match made {
        Ok(id) => Some(hold(id)),
        Err(e) if std::thread::panicking() => {
            let _ = e;
            None
        }
        Err(e) => panic!("windlass: a simulated socket cannot be made: {e}"),
    }
}

/// Whether the descriptor is of a simulated socket.
pub(super) fn is_simulated(fd: BorrowedFd<'_>) -> bool {
    bubble::current().is_some_and(|bubble| find(&bubble, fd).is_some())
}

/// The hold on the simulated socket or pipe end that has the descriptor `fd`, if there is one.
pub(crate) fn adopt(fd: BorrowedFd<'_>) -> Option<SimSocket> {
    let bubble = bubble::current()?;
    find(&bubble, fd).and_then(|_| of_descriptor(fd))
}

/// Makes a simulated pipe: its reader and its writer.
///
/// # Errors
///
/// If the process or the system is out of descriptors.
pub(crate) fn pipe() -> io::Result<Option<[(OwnedFd, SimSocket); 2]>> {
    let Some(bubble) = bubble::current() else {
        return Ok(None);
    };
    let placeholder = || Socket::new(Domain::UNIX, Type::STREAM, None).map(OwnedFd::from);
    let (reader, writer) = (placeholder()?, placeholder()?);
    let host = bubble.current_host();
    let (own_reader, own_writer) = (reader.try_clone()?, writer.try_clone()?);
    let (r, w) = bubble.net(|net, _| net.add_pipe(host, own_reader, own_writer))?;
    let hold = |id| SimSocket {
        id,
        serial: bubble.serial(),
    };
    Ok(Some([(reader, hold(r)), (writer, hold(w))]))
}

/// Waits until a simulated socket is ready. `None` if `fd` is no simulated socket.
pub(super) fn wait_until(
    fd: BorrowedFd<'_>,
    reads: bool,
    deadline: Deadline<'_>,
) -> Option<io::Result<()>> {
    let bubble = bubble::current()?;
    let id = find(&bubble, fd)?;
    let side = if reads { Side::Read } else { Side::Write };
    let ready = |net: &mut Network, _: &dyn Dice| match net.is_ready(id, side) {
        true => Ok(()),
        false => Err(io::ErrorKind::WouldBlock.into()),
    };
    let _received = race::receives();
    Some(run(Some(deadline), |_| (id, side), ready))
}

/// The beginning of each call: a switch point, and the end of a goroutine that is to end.
fn enter() -> io::Result<Rc<Bubble>> {
    points::switch_point();
    points::cancel_point()?;
    bubble::current().ok_or_else(of_another_run)
}

fn of_another_run() -> io::Error {
    io::Error::other("the socket belongs to a simulation that is over, or to another one")
}

/// Makes a call, and waits where it would block; without a deadline it makes one attempt, as a socket in
/// non-blocking mode.
fn run<T>(
    deadline: Option<Deadline<'_>>,
    waits_for: impl Fn(&Network) -> (Id, Side),
    mut call: impl FnMut(&mut Network, &dyn Dice) -> io::Result<T>,
) -> io::Result<T> {
    loop {
        let bubble = enter()?;
        let result = bubble.net(&mut call);
        wake();
        let Some(deadline) = deadline.filter(|_| is_would_block(&result)) else {
            return result;
        };
        wait(deadline, &waits_for)?;
    }
}

/// Waits until another attempt is worthwhile.
///
/// # Errors
///
/// `WouldBlock` at the deadline, and in a destructor while the goroutine unwinds; the context's.
fn wait(deadline: Deadline<'_>, waits_for: impl Fn(&Network) -> (Id, Side)) -> io::Result<()> {
    current_context::check()?;
    let Caller::Goroutine(g) = park::caller() else {
        return Err(io::ErrorKind::WouldBlock.into());
    };
    let _waiting = deadline.enter(g);
    if deadline.has_passed() {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    let simulation = || {
        current::m()
            .and_then(Carrier::simulation)
            .expect("the M carries out a simulation")
    };
    let ticket = simulation().next_ticket();
    let (id, side) = simulation().bubble.net(|net, _| waits_for(net));
    let chain = park::chain_of(g);
    let waits = Cell::new(false);
    park::park_until::<false>(
        park::enter(),
        Reason::SimulatedIo,
        || deadline.ns().min(chain.deadline_ns()),
        chain,
        |g, wait, m, is_done| {
            let sim = m.simulation().expect("the M carries out a simulation");
            sim.bubble.net(|net, _| {
                waits.set(!is_done && !net.is_ready(id, side));
                if waits.get() {
                    net.wait(id, side, ticket);
                    sim.waiting.borrow_mut().insert(ticket, (g, wait));
                }
                waits.get()
            })
        },
        || waits.get() && !simulation().waiting.borrow().contains_key(&ticket),
    );
    let sim = simulation();
    if sim.waiting.borrow_mut().remove(&ticket).is_some() {
        sim.bubble.net(|net, _| net.end_wait(id, side, ticket));
    }
    points::cancel_point()?;
    current_context::check()?;
    Ok(())
}

impl SimSocket {
    /// Makes a call, and waits where it would block. What it waits for is `side`.
    fn run<T>(
        &self,
        deadline: Option<Deadline<'_>>,
        side: Side,
        call: impl FnMut(&mut Network, &dyn Dice) -> io::Result<T>,
    ) -> io::Result<T> {
        self.check()?;
        let _received = race::receives();
        run(deadline, |_| (self.id, side), call)
    }

    /// Makes a call that never waits.
    fn call<T>(
        &self,
        call: impl FnOnce(&mut Network, &dyn Dice) -> io::Result<T>,
    ) -> io::Result<T> {
        self.check()?;
        race::sends();
        let bubble = enter()?;
        let result = bubble.net(call);
        wake();
        result
    }

    fn check(&self) -> io::Result<()> {
        match bubble::current() {
            Some(bubble) if bubble.serial() == self.serial => Ok(()),
            _ => Err(of_another_run()),
        }
    }

    /// A descriptor of the socket leaves windlass.
    pub(crate) fn give_away(&self, fd: BorrowedFd<'_>) {
        if let Some(bubble) = bubble::current().filter(|bubble| bubble.serial() == self.serial) {
            bubble.net(|net, _| net.give_away(self.id, fd.as_raw_fd()));
        }
    }

    pub(crate) fn bind(&self, addr: &SockAddr) -> io::Result<()> {
        self.call(|net, _| net.bind_to(self.id, &to_address(addr)))
    }

    pub(crate) fn listen(&self, backlog: i32) -> io::Result<()> {
        self.call(|net, _| net.listen(self.id, backlog))
    }

    pub(crate) fn local_addr(&self) -> io::Result<SockAddr> {
        self.check()?;
        let bubble = bubble::current().ok_or_else(of_another_run)?;
        to_sock_addr(&bubble.net(|net, _| net.local_addr(self.id))?)
    }

    pub(crate) fn peer_addr(&self) -> io::Result<SockAddr> {
        self.check()?;
        let bubble = bubble::current().ok_or_else(of_another_run)?;
        to_sock_addr(&bubble.net(|net, _| net.peer_addr(self.id))?)
    }

    pub(crate) fn shut_down(&self, how: Shutdown) -> io::Result<()> {
        self.call(|net, dice| net.shut_down(dice, self.id, how))
    }

    pub(crate) fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.call(|net, _| net.take_error(self.id))
    }

    /// Connects a socket for packets, which takes no time.
    pub(crate) fn connect_now(&self, addr: &SockAddr) -> io::Result<()> {
        self.call(|net, dice| net.connect(dice, self.id, &to_address(addr)))
    }

    /// Connects a stream. `WouldBlock` at the deadline.
    pub(crate) fn connect(&self, addr: &SockAddr, deadline: Deadline<'_>) -> io::Result<()> {
        self.check()?;
        race::sends();
        let to = to_address(addr);
        let mut has_begun = false;
        run(
            Some(deadline),
            |net| net.connect_waits_for(self.id, &to),
            |net, dice| match std::mem::replace(&mut has_begun, true) {
                false => net.connect(dice, self.id, &to),
                true => net.connected(dice, self.id, &to),
            },
        )
    }

    /// Accepts a connection: its descriptor, its hold, and the address of its peer.
    pub(crate) fn accept(
        &self,
        deadline: Option<Deadline<'_>>,
        of: BorrowedFd<'_>,
    ) -> io::Result<(OwnedFd, SimSocket, SockAddr)> {
        self.run(deadline, Side::Read, |net, _| {
            if !net.is_ready(self.id, Side::Read) {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let fd = placeholder_like(of)?;
            let (id, peer) = net.accept(self.id, fd.try_clone()?)?;
            // A hold is not dropped in here.
            let peer = to_sock_addr(&peer)?;
            let hold = SimSocket {
                id,
                serial: self.serial,
            };
            Ok((fd, hold, peer))
        })
    }

    /// Reads from a stream, or receives a packet; with `peeks` the bytes stay.
    pub(crate) fn read(
        &self,
        deadline: Option<Deadline<'_>>,
        bufs: &mut [IoSliceMut<'_>],
        peeks: bool,
    ) -> io::Result<usize> {
        self.run(deadline, Side::Read, |net, dice| {
            net.read(dice, self.id, bufs, peeks)
        })
    }

    pub(crate) fn receive_from(
        &self,
        deadline: Option<Deadline<'_>>,
        buf: &mut [u8],
        peeks: bool,
    ) -> io::Result<(usize, SockAddr)> {
        let (n, from) = self.run(deadline, Side::Read, |net, dice| {
            net.receive_from(dice, self.id, &mut [IoSliceMut::new(buf)], peeks)
        })?;
        Ok((n, to_sock_addr(&from)?))
    }

    pub(crate) fn receive_fds(
        &self,
        deadline: Option<Deadline<'_>>,
        buf: &mut [u8],
    ) -> io::Result<(usize, Vec<OwnedFd>)> {
        self.run(deadline, Side::Read, |net, dice| {
            net.receive_fds(dice, self.id, &mut [IoSliceMut::new(buf)])
        })
    }

    /// Writes to a stream, or sends a packet.
    pub(crate) fn write(
        &self,
        deadline: Option<Deadline<'_>>,
        bufs: &[IoSlice<'_>],
        to: Option<&SockAddr>,
    ) -> io::Result<usize> {
        self.check()?;
        race::sends();
        let to = to.map(to_address);
        run(
            deadline,
            |net| net.write_waits_for(self.id, to.as_ref()),
            |net, dice| net.write(dice, self.id, bufs, to.as_ref()),
        )
    }

    /// Sends bytes together with duplicates of descriptors.
    pub(crate) fn write_fds(
        &self,
        deadline: Option<Deadline<'_>>,
        buf: &[u8],
        fds: &[BorrowedFd<'_>],
    ) -> io::Result<usize> {
        self.check()?;
        race::sends();
        let duplicates = || fds.iter().map(BorrowedFd::try_clone_to_owned).collect();
        run(
            deadline,
            |net| net.write_waits_for(self.id, None),
            |net, dice| net.write_fds(dice, self.id, buf, duplicates),
        )
    }

    /// Connects two new Unix sockets.
    pub(crate) fn pair(&self, other: &SimSocket) -> io::Result<()> {
        self.call(|net, _| net.pair(self.id, other.id))
    }

    /// Joins a multicast group, or leaves it.
    pub(crate) fn set_member(&self, group: IpAddr, joins: bool) -> io::Result<()> {
        self.call(|net, _| net.set_member(self.id, group, joins))
    }
}

/// The addresses of a host by its name, in the network of the run; `None` outside of simulations.
pub(crate) fn look_up(host: &str, port: u16) -> Option<io::Result<Vec<SocketAddr>>> {
    bubble::current()?;
    let look_up = || {
        current_context::check()?;
        let ips = enter()?.net(|net, dice| net.look_up(dice, host))?;
        Ok(ips
            .into_iter()
            .map(|ip| SocketAddr::new(ip, port))
            .collect())
    };
    Some(look_up())
}

/// Removes the file of a Unix socket's path on the host of the caller. `false` if it has no such
/// socket.
pub(crate) fn unlink(path: &Path) -> bool {
    bubble::current().is_some_and(|bubble| {
        let host = bubble.current_host();
        bubble.net(|net, _| net.unlink(host, path.as_os_str().as_bytes()))
    })
}

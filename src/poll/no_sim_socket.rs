//! In the place of `sim_socket` without the feature `sim`: no descriptor is a simulated socket's.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

use socket2::SockAddr;

use super::op::Deadline;
use crate::bubble::absent;

absent! { SimSocket {
    fn give_away(BorrowedFd<'_>);
    fn bind(&SockAddr) -> io::Result<()>;
    fn listen(i32) -> io::Result<()>;
    fn local_addr() -> io::Result<SockAddr>;
    fn peer_addr() -> io::Result<SockAddr>;
    fn shut_down(Shutdown) -> io::Result<()>;
    fn take_error() -> io::Result<Option<io::Error>>;
    fn connect_now(&SockAddr) -> io::Result<()>;
    fn connect(&SockAddr, Deadline<'_>) -> io::Result<()>;
    fn accept(Option<Deadline<'_>>, BorrowedFd<'_>) -> io::Result<(OwnedFd, SimSocket, SockAddr)>;
    fn read(Option<Deadline<'_>>, &mut [IoSliceMut<'_>], bool) -> io::Result<usize>;
    fn receive_from(Option<Deadline<'_>>, &mut [u8], bool) -> io::Result<(usize, SockAddr)>;
    fn receive_fds(Option<Deadline<'_>>, &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)>;
    fn write(Option<Deadline<'_>>, &[IoSlice<'_>], Option<&SockAddr>) -> io::Result<usize>;
    fn write_fds(Option<Deadline<'_>>, &[u8], &[BorrowedFd<'_>]) -> io::Result<usize>;
    fn pair(&SimSocket) -> io::Result<()>;
    fn set_member(IpAddr, bool) -> io::Result<()>;
} }

pub(super) fn of_descriptor(_: BorrowedFd<'_>) -> Option<SimSocket> {
    None
}

pub(super) fn is_simulated(_: BorrowedFd<'_>) -> bool {
    false
}

pub(crate) fn adopt(_: BorrowedFd<'_>) -> Option<SimSocket> {
    None
}

pub(crate) fn pipe() -> io::Result<Option<[(OwnedFd, SimSocket); 2]>> {
    Ok(None)
}

pub(super) fn wait_until(_: BorrowedFd<'_>, _: bool, _: Deadline<'_>) -> Option<io::Result<()>> {
    None
}

pub(crate) fn look_up(_: &str, _: u16) -> Option<io::Result<Vec<SocketAddr>>> {
    None
}

pub(crate) fn unlink(_: &Path) -> bool {
    false
}

//! Resolves host names, and converts addresses between `std`'s form and the kernel's.
#![allow(unsafe_code)]

use std::error::Error;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::SocketAddr as UnixAddr;
use std::path::Path;
use std::vec;

use socket2::SockAddr;

use crate::bubble;
use crate::channel;
use crate::poll::fd::Fd;
use crate::sched::wait::current_context;
use crate::sched::wait::offload::{is_locked, offload};
use crate::sched::wait::park::{self, Caller};
use crate::task;

/// Resolves an address. A host name in one of `std`'s types is looked up as by [`lookup_host`]; other
/// types look theirs up by themselves, in a blocking section.
fn resolve<A: ToSocketAddrs>(addr: &A) -> io::Result<Addrs<A::Iter>> {
    if is_literal(addr) {
        return addr.to_socket_addrs().map(Addrs::Std);
    }
    if let Some(text) = text_of(addr) {
        return look_up_text(text.to_owned()).map(Addrs::Found);
    }
    if let Some((host, port)) = pair_of(addr) {
        return look_up_pair(host.to_owned(), port).map(Addrs::Found);
    }
    if bubble::is_inside() {
        return addr.to_socket_addrs().map(Addrs::Std);
    }
    task::blocking(|| addr.to_socket_addrs()).map(Addrs::Std)
}

/// Addresses that were found.
enum Addrs<I> {
    Std(I),
    Found(vec::IntoIter<SocketAddr>),
}

impl<I: Iterator<Item = SocketAddr>> Iterator for Addrs<I> {
    type Item = SocketAddr;

    fn next(&mut self) -> Option<SocketAddr> {
        match self {
            Addrs::Std(addrs) => addrs.next(),
            Addrs::Found(addrs) => addrs.next(),
        }
    }
}

/// The text of a host with its port.
fn text_of<A>(addr: &A) -> Option<&str> {
    let text = as_type::<A, &str>(addr).copied();
    let text = text.or_else(|| as_type::<A, String>(addr).map(String::as_str));
    let text = text.or_else(|| as_type::<A, &String>(addr).map(|text| text.as_str()));
    text.or_else(|| as_type::<A, &&str>(addr).map(|text| **text))
}

/// A host, and its port.
fn pair_of<A>(addr: &A) -> Option<(&str, u16)> {
    let borrowed = as_type::<A, (&str, u16)>(addr);
    let borrowed = borrowed.or_else(|| as_type::<A, &(&str, u16)>(addr).copied());
    let owned = as_type::<A, (String, u16)>(addr);
    let owned = owned.or_else(|| as_type::<A, &(String, u16)>(addr).copied());
    borrowed
        .copied()
        .or_else(|| owned.map(|(host, port)| (host.as_str(), *port)))
}

fn look_up_text(text: String) -> io::Result<vec::IntoIter<SocketAddr>> {
    if bubble::is_inside() {
        return simulated::look_up(&text);
    }
    look_up(text)
}

fn look_up_pair(host: String, port: u16) -> io::Result<vec::IntoIter<SocketAddr>> {
    if bubble::is_inside() {
        return simulated::look_up_in(&host, port);
    }
    look_up((host, port))
}

mod simulated {
    use std::io;
    use std::net::SocketAddr;
    use std::vec;

    use super::invalid;
    use crate::poll::sim_socket;

    /// Looks up a host that is given with its port, among those of the simulation.
    pub(super) fn look_up(text: &str) -> io::Result<vec::IntoIter<SocketAddr>> {
        let parts = text.rsplit_once(':');
        let (host, port) = parts.ok_or_else(|| invalid("invalid socket address"))?;
        let port = port.parse().map_err(|_| invalid("invalid port value"))?;
        look_up_in(host, port)
    }

    pub(super) fn look_up_in(host: &str, port: u16) -> io::Result<vec::IntoIter<SocketAddr>> {
        let found = sim_socket::look_up(host, port).unwrap_or_else(|| Ok(Vec::new()));
        found.map(Vec::into_iter)
    }
}

/// Looks up the addresses of a host, given with a port: `example.org:80`.
///
/// Names are looked up by libc, as in `std`: in `/etc/hosts` and by the rules of `nsswitch.conf` and
/// `resolv.conf`. In a simulation (feature `sim`) they are the names of its hosts.
///
/// # Blocking
///
/// Parks the goroutine, while a spare thread looks the name up, as in [`offload`](crate::offload). A
/// [timeout](crate::time::timeout) or a [context](crate::context) ends the wait, but not the
/// lookup: its thread goes on until libc gives up, and the end of a run waits for it. A literal
/// address needs no lookup. A plain thread looks the name up itself, and starts a thread for it inside
/// a timeout or a context. A goroutine that has locked its thread starts one, too, as that has the
/// network name space of the locked one.
///
/// # Errors
///
/// The errors of `std::net::ToSocketAddrs` for text: `InvalidInput` without a port, and what libc says
/// of the name. The error of the context, if it ended the wait.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use windlass::net::lookup_host;
/// use windlass::time::timeout;
///
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(1).build()? };
/// rt.run(|| {
///     let found = timeout(Duration::from_secs(60), || lookup_host("localhost:80"));
///     if let Ok(Ok(mut addrs)) = found {
///         assert!(addrs.all(|addr| addr.ip().is_loopback()));
///     }
///     assert!(lookup_host("127.0.0.1:80")?.eq([([127, 0, 0, 1], 80).into()]));
///     Ok::<(), std::io::Error>(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn lookup_host(host: impl Into<String>) -> io::Result<vec::IntoIter<SocketAddr>> {
    let host = host.into();
    match is_literal(&host) {
        true => host.to_socket_addrs(),
        false => look_up_text(host),
    }
}

/// Looks up a name on a spare thread; on a plain thread, there or, where a context may end the wait,
/// on a thread of its own.
fn look_up<H>(host: H) -> io::Result<vec::IntoIter<SocketAddr>>
where
    H: ToSocketAddrs<Iter = vec::IntoIter<SocketAddr>> + Send + 'static,
{
    let is_thread = matches!(park::caller(), Caller::Thread);
    if is_thread && !park::current_chain().is_some() {
        return host.to_socket_addrs();
    }
    current_context::check()?;
    let (sender, receiver) = channel::bounded(1);
    let lookup = move || {
        // Nobody may wait any more.
        let _ = sender.send(offload(move || host.to_socket_addrs()));
    };
    if is_thread || is_locked() {
        // The thread has the name spaces of the one that starts it.
        let builder = crate::loom::thread::Builder::new().name("windlass-lookup".to_owned());
        drop(builder.spawn(lookup)?);
    } else {
        drop(task::Builder::new().name("lookup_host").spawn(lookup)?);
    }
    match receiver.recv() {
        Ok(found) => found,
        Err(channel::RecvError) => {
            current_context::check()?;
            Err(io::Error::other("the lookup was cut short"))
        }
    }
}

/// The address as a `T`, if that is its type but for lifetimes.
fn as_type<A, T>(addr: &A) -> Option<&T> {
    // SAFETY:
    // - the types are the same except for lifetimes.
    // - the reference is used only while `addr` is borrowed, and its lifetimes are not stretched.
    (typeid::of::<A>() == typeid::of::<T>())
        .then(|| unsafe { &*std::ptr::from_ref(addr).cast::<T>() })
}

/// Whether the address is of one of `std`'s types and certainly needs no name lookup.
fn is_literal<A>(addr: &A) -> bool {
    let is_ip = |host: &str| host.parse::<IpAddr>().is_ok();
    let is_addr = |text: &str| text.parse::<SocketAddr>().is_ok();
    as_type::<A, SocketAddr>(addr).is_some()
        || as_type::<A, &SocketAddr>(addr).is_some()
        || as_type::<A, (IpAddr, u16)>(addr).is_some()
        || as_type::<A, &str>(addr).is_some_and(|text| is_addr(text))
        || as_type::<A, String>(addr).is_some_and(|text| is_addr(text))
        || as_type::<A, &String>(addr).is_some_and(|text| is_addr(text))
        || as_type::<A, (&str, u16)>(addr).is_some_and(|(host, _)| is_ip(host))
        || as_type::<A, (String, u16)>(addr).is_some_and(|(host, _)| is_ip(host))
}

/// Calls `f` with each address until it succeeds. Returns the error of the last one if none does.
pub(super) fn each<T>(
    addr: impl ToSocketAddrs,
    mut f: impl FnMut(&SocketAddr) -> io::Result<T>,
) -> io::Result<T> {
    let mut last = None;
    for addr in resolve(&addr)? {
        match f(&addr) {
            Ok(done) => return Ok(done),
            Err(e) => last = Some(e),
        }
    }
    Err(last.unwrap_or_else(|| invalid("could not resolve to any addresses")))
}

/// Returns the first address that `addr` resolves to.
pub(super) fn first(addr: impl ToSocketAddrs) -> io::Result<SocketAddr> {
    resolve(&addr)?
        .next()
        .ok_or_else(|| invalid("no addresses to send data to"))
}

pub(super) fn invalid(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

/// An error of the kernel, with the address that it is about.
#[derive(Debug)]
struct AtAddress {
    call: &'static str,
    addr: String,
    error: io::Error,
}

impl fmt::Display for AtAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AtAddress { call, addr, error } = self;
        write!(f, "{call} {addr}: {error}")
    }
}

impl Error for AtAddress {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.error)
    }
}

/// Adds the address to an error of the kernel. Those of contexts and timeouts stay as they are.
#[cold]
fn at(call: &'static str, addr: &SockAddr, error: io::Error) -> io::Error {
    if error.raw_os_error().is_none() {
        return error;
    }
    let addr = match (addr.as_socket(), addr.as_pathname()) {
        (Some(addr), _) => addr.to_string(),
        (_, Some(path)) => path.display().to_string(),
        _ => {
            let name = addr.as_abstract_namespace().unwrap_or_default();
            format!("@{}", name.escape_ascii())
        }
    };
    io::Error::new(error.kind(), AtAddress { call, addr, error })
}

pub(super) fn bind(fd: &Fd, addr: &SockAddr) -> io::Result<()> {
    fd.bind(addr).map_err(|e| at("bind", addr, e))
}

/// Listens at the address to which the socket is bound: several may be bound there, and one may listen.
pub(super) fn listen(fd: &Fd, addr: &SockAddr, backlog: i32) -> io::Result<()> {
    fd.listen(backlog).map_err(|e| at("listen", addr, e))
}

/// As [`Fd::connect`].
pub(super) fn connect(fd: &Fd, addr: &SockAddr, deadline_ns: u64) -> io::Result<()> {
    fd.connect(addr, deadline_ns)
        .map_err(|e| at("connect", addr, e))
}

/// As [`Fd::connect_now`].
pub(super) fn connect_now(fd: &Fd, addr: &SockAddr) -> io::Result<()> {
    fd.connect_now(addr).map_err(|e| at("connect", addr, e))
}

pub(super) fn to_std(addr: &SockAddr) -> io::Result<SocketAddr> {
    addr.as_socket().ok_or_else(not_internet)
}

pub(super) fn not_internet() -> io::Error {
    invalid("the socket's address is not an internet one")
}

/// Converts a Unix address to the kernel's form.
pub(super) fn from_unix(addr: &UnixAddr) -> io::Result<SockAddr> {
    if let Some(path) = addr.as_pathname() {
        return SockAddr::unix(path);
    }
    // An abstract name has a leading zero byte; an unnamed address has no bytes.
    let mut bytes = Vec::new();
    if let Some(name) = addr.as_abstract_name() {
        bytes.push(0);
        bytes.extend_from_slice(name);
    }
    SockAddr::unix(Path::new(std::ffi::OsStr::from_bytes(&bytes)))
}

pub(super) fn path(path: &Path) -> io::Result<SockAddr> {
    from_unix(&UnixAddr::from_pathname(path)?)
}

/// Converts a Unix address from the kernel's form.
pub(super) fn to_unix(addr: &SockAddr) -> io::Result<UnixAddr> {
    // For an unnamed socket the kernel may leave the address unwritten: its family is then 0.
    if !addr.is_unix() && addr.len() > 0 && addr.family() != 0 {
        return Err(invalid("the socket's address is not a unix one"));
    }
    if let Some(name) = addr.as_abstract_namespace() {
        return UnixAddr::from_abstract_name(name);
    }
    // A path of 108 bytes has no terminating zero, so `std`'s form cannot hold it.
    addr.as_pathname()
        .and_then(|path| UnixAddr::from_pathname(path).ok())
        .map_or_else(|| UnixAddr::from_pathname(""), Ok)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::net::{Ipv4Addr, SocketAddrV4};

    use super::*;

    #[test]
    fn literals_are_told_from_names() {
        let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, 80));
        assert!(is_literal(&addr) && is_literal(&&addr));
        assert!(is_literal(&"127.0.0.1:80") && is_literal(&"[::1]:80"));
        assert!(is_literal(&("::1", 80_u16)) && is_literal(&("10.0.0.1".to_owned(), 80_u16)));
        assert!(is_literal(&"1.2.3.4:5".to_owned()) && is_literal(&&"1.2.3.4:5".to_owned()));
        assert!(is_literal(&(IpAddr::from([1, 2, 3, 4]), 5_u16)));
        assert!(!is_literal(&"localhost:80") && !is_literal(&("localhost", 80_u16)));
        assert!(!is_literal(&"127.0.0.1") && !is_literal(&"nonsense".to_owned()));
        // Other types are not recognized, although these need no lookup.
        assert!(!is_literal(&SocketAddrV4::new(Ipv4Addr::LOCALHOST, 80)));
        assert!(!is_literal(&&[addr][..]));
    }

    #[test]
    fn unix_addresses_there_and_back() {
        let path = UnixAddr::from_pathname("/tmp/some.sock").unwrap();
        let back = to_unix(&from_unix(&path).unwrap()).unwrap();
        assert_eq!(back.as_pathname(), path.as_pathname());
        let name = UnixAddr::from_abstract_name(b"a\0name").unwrap();
        let back = to_unix(&from_unix(&name).unwrap()).unwrap();
        assert_eq!(back.as_abstract_name(), Some(&b"a\0name"[..]));
        let none = UnixAddr::from_pathname("").unwrap();
        assert!(none.is_unnamed());
        assert!(to_unix(&from_unix(&none).unwrap()).unwrap().is_unnamed());
        let longest = UnixAddr::from_abstract_name([7; 107]).unwrap();
        let back = to_unix(&from_unix(&longest).unwrap()).unwrap();
        assert_eq!(back.as_abstract_name(), Some(&[7; 107][..]));
    }
}

//! Addresses, listeners and connections: TCP, or a Unix socket that only its owner may use.

use std::fmt;
use std::fs::{self, File, Permissions, TryLockError};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use socket2::{Domain, SockAddr, SockRef, Socket, Type};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 64;

/// Where a console listens.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Address {
    /// A TCP address.
    Tcp(SocketAddr),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

impl fmt::Display for Address {
    /// As [`serve`](crate::serve) takes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(addr) => addr.fmt(f),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl Address {
    /// The address that `text` names: a path if it begins with `unix:` or has a slash, else host and port.
    pub(crate) fn parse(text: &str) -> io::Result<Address> {
        let path = text.strip_prefix("unix:");
        if let Some(path) = path.or(text.contains('/').then_some(text)) {
            return match path.is_empty() {
                true => Err(invalid("the path of the Unix socket is missing")),
                false => Ok(Address::Unix(path.into())),
            };
        }
        let mut addrs = text.to_socket_addrs().map_err(|e| {
            let why = format!("{text:?} is neither host:port nor the path of a Unix socket: {e}");
            io::Error::new(e.kind(), why)
        })?;
        let first = addrs.next();
        first
            .map(Address::Tcp)
            .ok_or_else(|| invalid(&format!("{text:?} has no address")))
    }

    /// Whether other machines can reach it.
    pub(crate) fn is_public(&self) -> bool {
        matches!(self, Address::Tcp(addr) if !is_loopback(addr.ip()))
    }
}

/// Whether an address is this machine's own, also when it is written as a mapped one.
pub(crate) fn is_loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

pub(crate) fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

/// A socket that listens.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, SocketFile),
}

impl Listener {
    pub(crate) fn bind(address: &Address) -> io::Result<Listener> {
        let bound = match address {
            Address::Tcp(addr) => TcpListener::bind(addr).map(Listener::Tcp),
            Address::Unix(path) => bind_unix(path),
        };
        bound.map_err(|e| io::Error::new(e.kind(), format!("cannot listen on {address}: {e}")))
    }

    pub(crate) fn address(&self) -> io::Result<Address> {
        Ok(match self {
            Listener::Tcp(listener) => Address::Tcp(listener.local_addr()?),
            Listener::Unix(_, file) => Address::Unix(file.path.clone()),
        })
    }

    /// Makes accepts fail, those that wait and those to come.
    pub(crate) fn close(&self) {
        let closed = match self {
            Listener::Tcp(listener) => SockRef::from(listener).shutdown(Shutdown::Both),
            Listener::Unix(listener, _) => SockRef::from(listener).shutdown(Shutdown::Both),
        };
        // TCP has no peer to tell, which is an error to the kernel.
        let _ = closed;
    }

    pub(crate) fn accept(&self) -> io::Result<Stream> {
        Ok(match self {
            Listener::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                // Events are small, and wanted at once.
                stream.set_nodelay(true)?;
                Stream::Tcp(stream)
            }
            Listener::Unix(listener, _) => Stream::Unix(listener.accept()?.0),
        })
    }
}

/// The file of a Unix socket, removed with this value.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    /// Device and inode: another process may have put its own socket there.
    id: (u64, u64),
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _turn = lock_directory(&self.path);
        if id_of(&self.path).is_ok_and(|id| id == self.id) {
            // It is left behind if that fails.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn id_of(path: &Path) -> io::Result<(u64, u64)> {
    let file = fs::symlink_metadata(path)?;
    Ok((file.dev(), file.ino()))
}

/// Binds a Unix socket with mode 0600. The file of a process that has gone is replaced.
fn bind_unix(path: &Path) -> io::Result<Listener> {
    // Also after the process has gone to another directory.
    let absolute = std::path::absolute(path)?;
    let _turn = lock_directory(&absolute);
    let socket = match private_socket(path) {
        Err(e) if e.kind() == io::ErrorKind::AddrInUse && is_left_over(path) => {
            fs::remove_file(path)?;
            private_socket(path)?
        }
        other => other?,
    };
    let file = SocketFile {
        id: id_of(path)?,
        path: absolute,
    };
    Ok(Listener::Unix(OwnedFd::from(socket).into(), file))
}

/// Keeps other consoles from the files of a directory until it is dropped: of two that find the same
/// left-over file, the second one would remove the socket of the first. Programs that hold the lock for
/// long are not waited for; in directories that may not be read there is none.
fn lock_directory(file: &Path) -> Option<File> {
    const WAITS: u32 = 100;
    const WAIT: Duration = Duration::from_millis(10);
    // The dot is in directories only. A FIFO would be waited for.
    let directory = File::open(file.parent()?.join(".")).ok()?;
    for _ in 0..WAITS {
        match directory.try_lock() {
            Ok(()) => return Some(directory),
            Err(TryLockError::WouldBlock) => thread::sleep(WAIT),
            Err(TryLockError::Error(_)) => return None,
        }
    }
    None
}

/// Linux gives the file the mode of the unbound socket, so there is no moment at which others may
/// connect.
fn private_socket(path: &Path) -> io::Result<Socket> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    let as_file = File::from(OwnedFd::from(socket.try_clone()?));
    as_file.set_permissions(Permissions::from_mode(0o600))?;
    socket.bind(&SockAddr::unix(path)?)?;
    socket.listen(BACKLOG)?;
    Ok(socket)
}

/// Whether the file is a socket on which nobody listens. One whose queue is full is not waited for.
fn is_left_over(path: &Path) -> bool {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    let connect = || {
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        socket.connect(&SockAddr::unix(path)?)
    };
    let refused = |e: io::Error| e.kind() == io::ErrorKind::ConnectionRefused;
    is_socket && connect().is_err_and(refused)
}

/// A connection.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    pub(crate) fn try_clone(&self) -> io::Result<Stream> {
        Ok(match self {
            Stream::Tcp(stream) => Stream::Tcp(stream.try_clone()?),
            Stream::Unix(stream) => Stream::Unix(stream.try_clone()?),
        })
    }

    /// Whether closing resets the connection, which the peer takes for an error. A Unix socket cannot be
    /// reset.
    pub(crate) fn resets_on_close(&self, does: bool) -> io::Result<()> {
        let linger = does.then_some(Duration::ZERO);
        match self {
            Stream::Tcp(stream) => SockRef::from(stream).set_linger(linger),
            Stream::Unix(_) => Ok(()),
        }
    }

    pub(crate) fn set_read_timeout(&self, time: Duration) -> io::Result<()> {
        let time = Some(time.max(Duration::from_millis(1)));
        match self {
            Stream::Tcp(stream) => stream.set_read_timeout(time),
            Stream::Unix(stream) => stream.set_read_timeout(time),
        }
    }

    pub(crate) fn set_write_timeout(&self, time: Duration) -> io::Result<()> {
        let time = Some(time.max(Duration::from_millis(1)));
        match self {
            Stream::Tcp(stream) => stream.set_write_timeout(time),
            Stream::Unix(stream) => stream.set_write_timeout(time),
        }
    }

    /// Reads what has come, without a wait.
    pub(crate) fn read_now(&self, buf: &mut [u8]) -> io::Result<usize> {
        let socket = match self {
            Stream::Tcp(stream) => SockRef::from(stream),
            Stream::Unix(stream) => SockRef::from(stream),
        };
        socket.set_nonblocking(true)?;
        let n = { self }.read(buf);
        socket.set_nonblocking(false)?;
        n
    }

    /// The error that the peer has caused since the last call, as a reset.
    pub(crate) fn take_error(&self) -> io::Result<Option<io::Error>> {
        match self {
            Stream::Tcp(stream) => stream.take_error(),
            Stream::Unix(stream) => stream.take_error(),
        }
    }

    pub(crate) fn shutdown(&self, how: Shutdown) {
        // It fails where the peer has gone already.
        let _ = match self {
            Stream::Tcp(stream) => stream.shutdown(how),
            Stream::Unix(stream) => stream.shutdown(how),
        };
    }
}

impl Read for &Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => (&*stream).read(buf),
            Stream::Unix(stream) => (&*stream).read(buf),
        }
    }
}

impl Write for &Stream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => (&*stream).write(buf),
            Stream::Unix(stream) => (&*stream).write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_told_apart() {
        let tcp = |text: &str| Address::Tcp(text.parse().unwrap());
        for (text, address, is_public) in [
            ("127.0.0.1:6060", tcp("127.0.0.1:6060"), false),
            ("[::1]:0", tcp("[::1]:0"), false),
            ("[::ffff:127.0.0.1]:1", tcp("[::ffff:127.0.0.1]:1"), false),
            ("0.0.0.0:6060", tcp("0.0.0.0:6060"), true),
            ("[::]:6060", tcp("[::]:6060"), true),
            ("192.0.2.1:80", tcp("192.0.2.1:80"), true),
            (
                "/run/app.sock",
                Address::Unix("/run/app.sock".into()),
                false,
            ),
            ("unix:app.sock", Address::Unix("app.sock".into()), false),
        ] {
            let parsed = Address::parse(text).unwrap();
            assert_eq!(parsed, address);
            assert_eq!(parsed.is_public(), is_public, "{text}");
        }
        for text in ["", "6060", "unix:", "127.0.0.1", "127.0.0.1:x"] {
            assert!(Address::parse(text).is_err(), "{text}");
        }
    }
}

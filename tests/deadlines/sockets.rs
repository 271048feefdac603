//! Waits of sockets, also of sockets whose error queue is never read.
#![allow(unsafe_code)]

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use socket2::{Domain, SockAddr, Socket, Type};

use windlass::context::Error;
use windlass::fs::File;
use windlass::io::{Async, copy, copy_bidirectional, wait_readable, wait_readable_timeout};
use windlass::net::{
    TcpListener, TcpOptions, TcpStream, UdpSocket, UnixDatagram, UnixListener, UnixStream,
    lookup_host,
};

use super::{FOREVER, Row, Wait, cut, ended, ended_of_goroutines, wait};
use crate::resolver::SlowName;
use crate::temp::TempDir;
use crate::util::{NOBODY, pair, wait_until};

/// A call of a stream that has received nothing.
fn of_stream(call: impl FnOnce(&mut TcpStream, Error) + Send + 'static) -> Wait {
    let (mut stream, peer) = pair();
    wait(peer, move |why| call(&mut stream, why))
}

fn of_unix_stream(call: impl FnOnce(&mut UnixStream, Error) + Send + 'static) -> Wait {
    let (mut stream, peer) = UnixStream::pair().unwrap();
    wait(peer, move |why| call(&mut stream, why))
}

fn of_listener(call: impl FnOnce(&TcpListener, Error) + Send + 'static) -> Wait {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    wait((), move |why| call(&listener, why))
}

fn of_unix_listener(call: impl FnOnce(&UnixListener, Error) + Send + 'static) -> Wait {
    let dir = TempDir::new();
    let listener = UnixListener::bind(dir.join("socket")).unwrap();
    wait(dir, move |why| call(&listener, why))
}

fn of_udp(call: impl FnOnce(&UdpSocket, Error) + Send + 'static) -> Wait {
    let (socket, peer) = (
        UdpSocket::bind("127.0.0.1:0").unwrap(),
        UdpSocket::bind("127.0.0.1:0").unwrap(),
    );
    socket.connect(peer.local_addr().unwrap()).unwrap();
    wait(peer, move |why| call(&socket, why))
}

fn of_datagram(call: impl FnOnce(&UnixDatagram, Error) + Send + 'static) -> Wait {
    let (socket, peer) = UnixDatagram::pair().unwrap();
    wait(peer, move |why| call(&socket, why))
}

/// A datagram socket whose peer has no room.
fn of_full_datagram(call: impl FnOnce(&UnixDatagram, Error) + Send + 'static) -> Wait {
    let (socket, peer) = UnixDatagram::pair().unwrap();
    socket.set_nonblocking(true).unwrap();
    while socket.send(b"x").is_ok() {}
    socket.set_nonblocking(false).unwrap();
    wait(peer, move |why| call(&socket, why))
}

/// Makes a call until it fails: first it fills what has room.
fn repeat<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<()> {
    loop {
        call()?;
    }
}

/// A listener whose queue is full, and its address.
fn full_listener(domain: Domain, addr: &SockAddr) -> (Socket, SockAddr, Vec<Socket>) {
    let listener = Socket::new(domain, Type::STREAM, None).unwrap();
    listener.bind(addr).unwrap();
    listener.listen(0).unwrap();
    let addr = listener.local_addr().unwrap();
    let mut clients = Vec::new();
    loop {
        let client = Socket::new(domain, Type::STREAM, None).unwrap();
        client.set_nonblocking(true).unwrap();
        let connected = client.connect(&addr);
        let is_tcp = domain == Domain::IPV4;
        if is_tcp {
            // The kernel answers at once, or not at all.
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        let is_full = match is_tcp {
            true => client.peer_addr().is_err(),
            false => connected.is_err(),
        };
        clients.push(client);
        if is_full {
            return (listener, addr, clients);
        }
    }
}

fn of_full_listener(call: impl FnOnce(std::net::SocketAddr, Error) + Send + 'static) -> Wait {
    let any = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    let (listener, addr, clients) = full_listener(Domain::IPV4, &any.into());
    let addr = addr.as_socket().unwrap();
    wait((listener, clients), move |why| call(addr, why))
}

fn set_option(socket: &impl AsRawFd, level: i32, option: i32, value: i32) {
    // SAFETY: the value is as long as is said, and outlives the call.
    let r = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            4,
        )
    };
    assert_eq!(r, 0, "{}", io::Error::last_os_error());
}

/// Waits until the socket reports an error that a receive does not fetch.
fn wait_for_error_queue(socket: impl AsFd) {
    wait_until(|| shows_error(&socket));
}

fn shows_error(socket: impl AsFd) -> bool {
    let mut shown = libc::pollfd {
        fd: socket.as_fd().as_raw_fd(),
        events: 0,
        revents: 0,
    };
    // SAFETY: one descriptor, valid during the call, which does not wait.
    unsafe { libc::poll(&raw mut shown, 1, 0) };
    shown.revents & libc::POLLERR != 0
}

/// A connection, whose first end has a time stamp in its error queue.
fn stamped_pair() -> (TcpStream, TcpStream) {
    const TX_SOFTWARE: i32 = 1 << 1;
    const SOFTWARE: i32 = 1 << 4;
    let (mut stream, peer) = pair();
    set_option(
        &stream,
        libc::SOL_SOCKET,
        libc::SO_TIMESTAMPING,
        TX_SOFTWARE | SOFTWARE,
    );
    stream.write_all(b"x").unwrap();
    wait_for_error_queue(&stream);
    (stream, peer)
}

fn of_stamped(call: impl FnOnce(&mut TcpStream, Error) + Send + 'static) -> Wait {
    let (mut stream, peer) = stamped_pair();
    wait(peer, move |why| call(&mut stream, why))
}

/// A socket with a refused datagram in its error queue.
fn refused() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    set_option(&socket, libc::IPPROTO_IP, libc::IP_RECVERR, 1);
    wait_until(|| {
        // More than once: the kernel reports a limited number of refusals a second.
        let _ = socket.send_to(b"x", NOBODY);
        std::thread::sleep(std::time::Duration::from_millis(1));
        shows_error(&socket)
    });
    // The error itself, which a receive would give, is fetched.
    socket.take_error().unwrap();
    wait_for_error_queue(&socket);
    socket
}

fn of_refused(call: impl FnOnce(&UdpSocket, Error) + Send + 'static) -> Wait {
    let socket = refused();
    wait((), move |why| call(&socket, why))
}

fn of_name(call: impl FnOnce(&str, Error) + Send + 'static) -> Wait {
    let name = SlowName::new();
    let host = format!("{}:80", name.0);
    wait(name, move |why| call(&host, why))
}

pub(crate) const ROWS: &[Row] = &[
    ended("TCP read", || {
        of_stream(|s, why| cut(s.read(&mut [0; 9]), why))
    }),
    ended("TCP read_vectored", || {
        of_stream(|s, why| {
            let (mut a, mut b) = ([0; 4], [0; 4]);
            cut(
                s.read_vectored(&mut [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)]),
                why,
            );
        })
    }),
    ended("TCP read_exact", || {
        of_stream(|s, why| cut(s.read_exact(&mut [0; 9]), why))
    }),
    ended("TCP peek", || {
        of_stream(|s, why| cut(s.peek(&mut [0; 9]), why))
    }),
    ended("TCP recv_owned", || {
        of_stream(|s, why| cut(s.recv_owned(), why))
    }),
    ended("TCP read with a longer timeout", || {
        of_stream(|s, why| {
            s.set_read_timeout(Some(FOREVER)).unwrap();
            cut(s.read(&mut [0; 9]), why);
        })
    }),
    ended("TCP write", || {
        of_stream(|s, why| cut(repeat(|| s.write(&[0; 1 << 16])), why))
    }),
    ended("TCP write_vectored", || {
        of_stream(|s, why| {
            let part = [0; 1 << 15];
            cut(
                repeat(|| s.write_vectored(&[IoSlice::new(&part), IoSlice::new(&part)])),
                why,
            );
        })
    }),
    ended("TCP write_all", || {
        of_stream(|s, why| cut(s.write_all(&vec![0; 64 << 20]), why))
    }),
    ended("TCP accept", || of_listener(|l, why| cut(l.accept(), why))),
    ended("TCP incoming", || {
        of_listener(|l, why| cut(l.incoming().next().unwrap(), why))
    }),
    ended("TCP accept_stream", || {
        of_listener(|l, why| cut(l.accept_stream().accept(), why))
    }),
    ended("TCP connect", || {
        of_full_listener(|addr, why| cut(TcpStream::connect(addr), why))
    }),
    ended("TCP connect_timeout", || {
        of_full_listener(|addr, why| cut(TcpStream::connect_timeout(&addr, FOREVER), why))
    }),
    ended("TcpOptions::connect", || {
        of_full_listener(|addr, why| cut(TcpOptions::new().connect(addr), why))
    }),
    ended("UDP recv", || {
        of_udp(|s, why| cut(s.recv(&mut [0; 9]), why))
    }),
    ended("UDP recv_from", || {
        of_udp(|s, why| cut(s.recv_from(&mut [0; 9]), why))
    }),
    ended("UDP peek", || {
        of_udp(|s, why| cut(s.peek(&mut [0; 9]), why))
    }),
    ended("UDP peek_from", || {
        of_udp(|s, why| cut(s.peek_from(&mut [0; 9]), why))
    }),
    ended("Unix read", || {
        of_unix_stream(|s, why| cut(s.read(&mut [0; 9]), why))
    }),
    ended("Unix recv_owned", || {
        of_unix_stream(|s, why| cut(s.recv_owned(), why))
    }),
    ended("Unix recv_with_fds", || {
        of_unix_stream(|s, why| cut(s.recv_with_fds(&mut [0; 9]), why))
    }),
    ended("Unix write", || {
        of_unix_stream(|s, why| cut(repeat(|| s.write(&[0; 1 << 16])), why))
    }),
    ended("Unix send_with_fds", || {
        of_unix_stream(|s, why| cut(repeat(|| s.send_with_fds(&[0; 1 << 16], &[])), why))
    }),
    ended("Unix accept", || {
        of_unix_listener(|l, why| cut(l.accept(), why))
    }),
    ended("Unix accept_stream", || {
        of_unix_listener(|l, why| cut(l.accept_stream().accept(), why))
    }),
    ended("Unix connect", || {
        let dir = TempDir::new();
        let path = dir.join("socket");
        let full = full_listener(Domain::UNIX, &SockAddr::unix(&path).unwrap());
        wait((dir, full), move |why| cut(UnixStream::connect(&path), why))
    }),
    ended("Unix datagram recv", || {
        of_datagram(|s, why| cut(s.recv(&mut [0; 9]), why))
    }),
    ended("Unix datagram recv_from", || {
        of_datagram(|s, why| cut(s.recv_from(&mut [0; 9]), why))
    }),
    ended("Unix datagram recv_with_fds", || {
        of_datagram(|s, why| cut(s.recv_with_fds(&mut [0; 9]), why))
    }),
    ended("Unix datagram send", || {
        of_full_datagram(|s, why| cut(s.send(b"x"), why))
    }),
    ended("Unix datagram send_with_fds", || {
        of_full_datagram(|s, why| cut(s.send_with_fds(b"x", &[]), why))
    }),
    ended("lookup_host", || {
        of_name(|name, why| cut(lookup_host(name), why))
    }),
    ended("TCP connect to a name", || {
        of_name(|name, why| cut(TcpStream::connect(name), why))
    }),
    ended("TcpOptions::connect to a name", || {
        of_name(|name, why| cut(TcpOptions::new().connect(name), why))
    }),
    ended("UDP connect to a name", || {
        of_name(|name, why| cut(UdpSocket::bind("127.0.0.1:0").unwrap().connect(name), why))
    }),
    ended("UDP send_to a name", || {
        of_name(|name, why| {
            cut(
                UdpSocket::bind("127.0.0.1:0").unwrap().send_to(b"x", name),
                why,
            )
        })
    }),
    ended("copy from a socket to a socket", || {
        let ((mut from, a), (mut to, b)) = (pair(), pair());
        wait((a, b), move |why| cut(copy(&mut from, &mut to), why))
    }),
    ended("copy from a socket to memory", || {
        of_stream(|s, why| cut(copy(s, &mut Vec::new()), why))
    }),
    ended("copy to a socket that is full", || {
        let ((mut from, mut a), (mut to, b)) = (UnixStream::pair().unwrap(), pair());
        std::thread::spawn(move || while a.write(&[0; 1 << 16]).is_ok() {});
        wait(b, move |why| cut(copy(&mut from, &mut to), why))
    }),
    ended_of_goroutines("copy_bidirectional", || {
        let ((one, a), (other, b)) = (pair(), UnixStream::pair().unwrap());
        wait((a, b), move |why| {
            cut(copy_bidirectional(&one, &other), why)
        })
    }),
    ended("UDP recv, error queue", || {
        of_refused(|s, why| cut(s.recv(&mut [0; 9]), why))
    }),
    ended("UDP recv_from, error queue", || {
        of_refused(|s, why| cut(s.recv_from(&mut [0; 9]), why))
    }),
    ended("UDP peek_from, error queue", || {
        of_refused(|s, why| cut(s.peek_from(&mut [0; 9]), why))
    }),
    ended("TCP read, error queue", || {
        of_stamped(|s, why| cut(s.read(&mut [0; 9]), why))
    }),
    ended("TCP peek, error queue", || {
        of_stamped(|s, why| cut(s.peek(&mut [0; 9]), why))
    }),
    ended("TCP recv_owned, error queue", || {
        of_stamped(|s, why| cut(s.recv_owned(), why))
    }),
    ended("TCP write, error queue", || {
        of_stamped(|s, why| cut(repeat(|| s.write(&[0; 1 << 16])), why))
    }),
    ended("File read of a socket, error queue", || {
        let (stream, peer) = stamped_pair();
        let mut file = File::from(OwnedFd::from(stream));
        wait(peer, move |why| cut(file.read(&mut [0; 9]), why))
    }),
    ended("Async read_with, error queue", || {
        let socket = std::net::UdpSocket::from(OwnedFd::from(refused()));
        let socket = Async::new(socket).unwrap();
        wait((), move |why| {
            cut(socket.read_with(|s| s.recv(&mut [0; 9])), why)
        })
    }),
    ended("copy from a socket to a socket, error queue", || {
        let ((mut from, a), (mut to, b)) = (stamped_pair(), pair());
        wait((a, b), move |why| cut(copy(&mut from, &mut to), why))
    }),
    ended("copy from a socket to memory, error queue", || {
        of_stamped(|s, why| cut(copy(s, &mut Vec::new()), why))
    }),
    ended_of_goroutines("copy_bidirectional, error queue", || {
        let ((one, a), (other, b)) = (stamped_pair(), UnixStream::pair().unwrap());
        wait((a, b), move |why| {
            cut(copy_bidirectional(&one, &other), why)
        })
    }),
    ended("wait_readable of a socket", || {
        of_stream(|s, why| cut(wait_readable(&*s), why))
    }),
    ended("wait_readable_timeout of a socket", || {
        of_stream(|s, why| cut(wait_readable_timeout(&*s, FOREVER), why))
    }),
];

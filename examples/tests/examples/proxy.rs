//! The proxy, in front of servers of `std` on plain threads.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::proxy;
use crate::server::{Server, foreign_prints};
use crate::stoppable::{start_graceful, start_stoppable};
use crate::util::Pattern;

fn start(to: SocketAddr) -> Server {
    start_graceful(move |listener, server| proxy::serve(listener, server, &to.to_string()))
}

/// A server that serves one connection.
fn upstream<T: Send + 'static>(
    serve: impl FnOnce(TcpStream) -> T + Send + 'static,
) -> (SocketAddr, JoinHandle<T>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    (
        addr,
        thread::spawn(move || serve(listener.accept().unwrap().0)),
    )
}

#[test]
fn bytes_go_both_ways_at_once() {
    const N_BYTES: usize = 8 << 20;
    fn both_ways(stream: TcpStream) -> usize {
        let pattern = Pattern::new();
        thread::scope(|scope| {
            let written = scope.spawn(|| {
                pattern.write(&mut &stream, 0, N_BYTES, 100_000)?;
                stream.shutdown(Shutdown::Write)
            });
            let n = pattern.check(&mut &stream, 30_000).unwrap();
            written.join().unwrap().unwrap();
            n
        })
    }
    let (addr, serving) = upstream(both_ways);
    let proxy = start(addr);
    assert_eq!(both_ways(proxy.connect()), N_BYTES);
    assert_eq!(serving.join().unwrap(), N_BYTES);
}

#[test]
fn the_end_of_one_direction_leaves_the_other() {
    let (addr, serving) = upstream(|mut stream| {
        let mut all = String::new();
        stream.read_to_string(&mut all).unwrap();
        // Only now, after the client has closed its sending side.
        stream.write_all(all.to_uppercase().as_bytes()).unwrap();
    });
    let proxy = start(addr);
    assert_eq!(proxy.ask(b"hello"), b"HELLO");
    serving.join().unwrap();
}

#[test]
fn a_server_that_goes_away_takes_the_client_along() {
    let (addr, serving) = upstream(|mut stream| {
        stream.read_exact(&mut [0; 5]).unwrap();
        // A byte is unread, so closing resets the connection.
    });
    let proxy = start(addr);
    let mut stream = proxy.connect();
    stream.write_all(b"hello!").unwrap();
    serving.join().unwrap();
    let mut rest = Vec::new();
    let ended = stream.read_to_end(&mut rest);
    assert!(ended.is_err() || rest.is_empty());
}

#[test]
fn without_a_server_the_client_is_sent_away() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = free.local_addr().unwrap();
    drop(free);
    let proxy = start(addr);
    assert_eq!(proxy.ask(b""), b"");
    assert_eq!(proxy.ask(b""), b"");
}

#[test]
fn curl_goes_through_it() {
    let pages = start_graceful(crate::http::serve);
    let proxy = start(pages.addr);
    let url = format!("http://{}/plaintext", proxy.addr);
    let args = ["--silent", "--show-error", "--fail", &url, &url];
    if let Some(printed) = foreign_prints("curl", &args) {
        assert_eq!(printed, "Hello, World!Hello, World!");
    }
}

/// The proxy accepts no more, and goes on with the connections that it has.
#[test]
fn connections_outlive_the_stop() {
    let (begin, begun) = mpsc::channel();
    let (addr, serving) = upstream(move |mut stream| {
        let mut all = String::new();
        (&stream).take(3).read_to_string(&mut all).unwrap();
        begin.send(()).unwrap();
        stream.read_to_string(&mut all).unwrap();
        stream.write_all(all.to_uppercase().as_bytes()).unwrap();
    });
    let to = addr.to_string();
    let serve = move |listener, server: &_| proxy::serve(listener, server, &to);
    // Without a grace: the proxy does not take a silent connection for an idle one.
    let (proxy, stopped, told) = start_stoppable(Duration::ZERO, serve);
    let mut stream = proxy.connect();
    stream.write_all(b"hel").unwrap();
    // The server behind the proxy serves one connection: this one, and none of those that come before the stop.
    begun.recv().unwrap();
    proxy.stop_accepting(&stopped);
    stream.write_all(b"lo").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "HELLO");
    serving.join().unwrap();
    assert_eq!(told.recv().unwrap(), Ok(()));
}

//! Runs an example's server in a runtime of its own, and other programs as its clients.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Output};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use windlass::channel::{Sender, bounded};
use windlass::net::{Graceful, TcpListener};

use crate::util::{self, HangGuard};

/// A server that runs until this value is dropped.
pub(crate) struct Server {
    pub(crate) addr: SocketAddr,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
    _guard: HangGuard,
}

impl Server {
    /// Runs `serve` in a goroutine, with a listener on a free port.
    pub(crate) fn start(serve: impl FnOnce(TcpListener) + Send + 'static) -> Server {
        let (stop, stopped) = bounded::<()>(0);
        let (tell, told) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            util::runtime(2).run(|| {
                let listener = TcpListener::bind("127.0.0.1:0").unwrap();
                tell.send(listener.local_addr().unwrap()).unwrap();
                windlass::spawn(move || serve(listener));
                // Waits until the sender is dropped.
                let _ = stopped.recv();
            });
        });
        Server {
            addr: told.recv().expect("the server starts"),
            stop: Some(stop),
            thread: Some(thread),
            _guard: util::hang_guard(),
        }
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.addr).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }

    /// Asks the server to stop, and waits until it has closed its listener. It has accepted all
    /// earlier connections then.
    #[allow(dead_code, reason = "not used by the tests of hyper")]
    pub(crate) fn stop_accepting(&self, server: &Graceful) {
        server.stop();
        while TcpStream::connect(self.addr).is_ok() {}
    }

    /// Sends the bytes one by one, and waits up to `step` for an answer after each. Returns the
    /// answer, and whether the server closed the connection before it had received all bytes.
    #[allow(dead_code, reason = "hyper has its own timeouts")]
    pub(crate) fn trickle(&self, bytes: &[u8], step: Duration) -> (Vec<u8>, bool) {
        let mut stream = self.connect();
        stream.set_read_timeout(Some(step)).unwrap();
        let (mut answer, mut buf) = (Vec::new(), [0; 4096]);
        for byte in bytes {
            if stream.write_all(&[*byte]).is_err() {
                return (answer, true);
            }
            match stream.read(&mut buf) {
                Ok(0) => return (answer, true),
                Ok(n) => answer.extend_from_slice(&buf[..n]),
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return (answer, true),
            }
        }
        (answer, false)
    }

    /// Sends all bytes, and returns the answer up to the end of the connection.
    pub(crate) fn ask(&self, request: &[u8]) -> Vec<u8> {
        let mut stream = self.connect();
        // A server that refuses the request may close the connection before the end of it.
        let _ = stream.write_all(request);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        match stream.read_to_end(&mut answer) {
            Ok(_) => {}
            Err(e) if e.kind() == ErrorKind::ConnectionReset => {}
            Err(e) => panic!("{e}"),
        }
        answer
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        let ended = self.thread.take().map(JoinHandle::join);
        if !std::thread::panicking() {
            ended.expect("it was started").expect("the server panicked");
        }
    }
}

/// Runs a program to its end, if it is installed. Prints a message if it is not.
pub(crate) fn foreign(program: &str, args: &[&str]) -> Option<Output> {
    match Command::new(program).args(args).output() {
        Ok(output) => Some(output),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            eprintln!("SKIPPED: {program} is not installed, so nothing is known of how it fares");
            None
        }
        Err(e) => panic!("{program}: {e}"),
    }
}

/// As [`foreign`]; the program must succeed. Returns its output.
pub(crate) fn foreign_prints(program: &str, args: &[&str]) -> Option<String> {
    let output = foreign(program, args)?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {args:?}: {stderr}");
    Some(String::from_utf8(output.stdout).unwrap())
}

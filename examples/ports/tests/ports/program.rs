//! Starts a server in a process of its own, and talks to it line by line.

use std::io::{self, BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Nothing takes so long that does not hang.
const PATIENCE: Duration = Duration::from_secs(120);

/// A server that listens on a free port. It is killed when this is dropped.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: String,
}

impl Server {
    /// Starts the program with a port of its own as the first argument.
    pub(crate) fn start(program: &str, arguments: &[&str], n_processors: usize) -> Server {
        let mut child = Command::new(program)
            .arg("127.0.0.1:0")
            .args(arguments)
            .env("WINDLASS_PROCS", n_processors.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut address = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut address).unwrap();
        let address = address.trim_end().to_owned();
        assert!(!address.is_empty(), "{program} does not start");
        Server { child, address }
    }

    pub(crate) fn n_threads(&self) -> usize {
        let tasks = format!("/proc/{}/task", self.child.id());
        std::fs::read_dir(tasks).unwrap().count()
    }

    pub(crate) fn connect(&self) -> Client {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Client(BufReader::new(stream))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A connection to a server.
pub(crate) struct Client(BufReader<TcpStream>);

impl Client {
    pub(crate) fn write(&mut self, line: &str) {
        let line = format!("{line}\n");
        self.0.get_mut().write_all(line.as_bytes()).unwrap();
    }

    /// The next line, or `None` if the server has closed the connection.
    pub(crate) fn next(&mut self) -> io::Result<Option<String>> {
        let mut line = String::new();
        let n = self.0.read_line(&mut line)?;
        Ok((n > 0).then(|| line.trim_end().to_owned()))
    }

    #[track_caller]
    pub(crate) fn expect(&mut self, expected: &str) {
        assert_eq!(self.next().unwrap().as_deref(), Some(expected));
    }

    /// The answer to a request.
    pub(crate) fn ask(&mut self, request: &str) -> String {
        self.write(request);
        self.next().unwrap().expect("the connection is open")
    }
}

/// A directory that is removed when this is dropped.
pub(crate) struct Directory(pub(crate) std::path::PathBuf);

impl Directory {
    pub(crate) fn new(name: &str) -> Directory {
        let name = format!("windlass-ports-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Directory(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

//! Servers as processes of their own, for programs that load them.

use std::io::{self, BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// A server under test, ended when dropped.
#[derive(Debug)]
pub struct Server {
    child: Child,
    address: String,
}

impl Server {
    /// Runs `command`, which prints the address it listens on as its first line.
    ///
    /// # Errors
    ///
    /// If it cannot be run, or ends without such a line.
    pub fn start(command: &mut Command) -> io::Result<Server> {
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let stdout = child.stdout.take().map(BufReader::new);
        let mut server = Server {
            child,
            address: String::new(),
        };
        if let Some(mut stdout) = stdout {
            stdout.read_line(&mut server.address)?;
        }
        server.address.truncate(server.address.trim_end().len());
        if server.address.is_empty() {
            return Err(io::Error::other("the server did not start"));
        }
        Ok(server)
    }

    /// The address that the server listens on.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The id of its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// Ends a process; that it may have ended by itself is no matter.
pub fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

/// A thousand connections need more descriptors than the usual soft limit; what is
/// started inherits this one.
pub fn raise_descriptor_limit() {
    let limits = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limits.maximum,
        ..limits
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        eprintln!("the limit on descriptors stays as it is: {error}");
    }
}

//! The graceful end of a server: it stops accepting, finishes what it has accepted, and then ends.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::time::{Duration, Instant};

use windlass::net::{TcpListener, TcpStream};
use windlass::sync::{Condvar, Mutex, MutexGuard};

use crate::accept;

/// A server that can be asked to stop. All clones are handles to the same server.
#[derive(Clone, Default)]
pub(crate) struct Graceful(Arc<Shared>);

#[derive(Default)]
struct Shared {
    /// Ordering: relaxed, with a sequentially consistent fence between the flag and a deadline on
    /// both sides: either a connection sees the flag after it has set its deadline, or the deadline
    /// of the stop replaces that of the connection.
    is_stopping: AtomicBool,
    open: Mutex<Open>,
    /// A connection has ended.
    ended: Condvar,
}

#[derive(Default)]
struct Open {
    listener: Option<Arc<TcpListener>>,
    connections: HashMap<u64, Arc<TcpStream>>,
    n_accepted: u64,
}

/// The stream of a connection, which the server can wake.
#[derive(Debug)]
pub(crate) struct Stream(pub(crate) Arc<TcpStream>);

/// A connection of a server, until it is dropped.
pub(crate) struct Member {
    server: Graceful,
    id: u64,
}

impl Graceful {
    /// Calls `serve`, which runs until `stop` has returned in a goroutine of its own. Then waits for
    /// the connections, but not longer than the limit: what is left ends with the runtime.
    ///
    /// # Errors
    ///
    /// Those of `serve`.
    #[allow(dead_code, reason = "the tests stop their servers themselves")]
    pub(crate) fn serve_until(
        stop: impl FnOnce() -> io::Result<()> + Send + 'static,
        limit: Duration,
        serve: impl FnOnce(&Graceful) -> io::Result<()>,
    ) -> io::Result<()> {
        let server = Graceful::default();
        let stopped = server.clone();
        drop(windlass::spawn(move || {
            if let Err(error) = stop() {
                eprintln!("cannot wait for the signal to stop: {error}");
            }
            stopped.stop();
        }));
        serve(&server)?;
        match server.wait(limit) {
            0 => {}
            n => eprintln!("{n} connections had not ended and were cut off"),
        }
        Ok(())
    }

    /// Runs `serve` in a goroutine of its own for each connection, until the server is asked to
    /// stop. The connections that the kernel has accepted by then are served, too. Then the
    /// listener is closed.
    ///
    /// # Errors
    ///
    /// The listener cannot accept any more.
    pub(crate) fn serve<F>(&self, listener: TcpListener, serve: F) -> io::Result<()>
    where
        F: Fn(Stream, &Member) + Clone + Send + 'static,
    {
        let listener = Arc::new(listener);
        self.open().listener = Some(Arc::clone(&listener));
        let each = |stream| self.spawn(stream, serve.clone());
        // A stop from now on sets the deadline itself, as the listener is in its list.
        if self.is_stopping() {
            listener.set_deadline(Some(Instant::now()));
        }
        let ended = accept::accept_until(&listener, || self.is_stopping(), &each);
        accept::accept_queued(&listener, each)?;
        self.open().listener = None;
        ended
    }

    fn spawn<F>(&self, stream: TcpStream, serve: F)
    where
        F: Fn(Stream, &Member) + Send + 'static,
    {
        let stream = Arc::new(stream);
        let mut open = self.open();
        open.n_accepted += 1;
        let id = open.n_accepted;
        open.connections.insert(id, Arc::clone(&stream));
        drop(open);
        let server = self.clone();
        let member = Member { server, id };
        drop(windlass::spawn(move || serve(Stream(stream), &member)));
    }

    /// Asks the server to stop. Ends the waits of the listener and of all connections for input, so
    /// that they notice it.
    pub(crate) fn stop(&self) {
        self.0.is_stopping.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let open = self.open();
        let now = Some(Instant::now());
        if let Some(listener) = &open.listener {
            listener.set_deadline(now);
        }
        for stream in open.connections.values() {
            stream.set_read_deadline(now);
        }
    }

    fn is_stopping(&self) -> bool {
        self.0.is_stopping.load(Ordering::Relaxed)
    }

    /// Waits until all connections have ended, but not longer than the limit. Returns the number of
    /// those that are left.
    pub(crate) fn wait(&self, limit: Duration) -> usize {
        let is_busy = |open: &mut Open| !open.connections.is_empty();
        let waited = self.0.ended.wait_timeout_while(self.open(), limit, is_busy);
        let (open, _) = waited.unwrap_or_else(std::sync::PoisonError::into_inner);
        open.connections.len()
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        let locked = self.0.open.lock();
        // A panic never leaves the lists half changed.
        locked.unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Member {
    /// Whether the server was asked to stop.
    pub(crate) fn is_stopping(&self) -> bool {
        self.server.is_stopping()
    }

    /// As [`is_stopping`](Member::is_stopping), for a caller that has just set a deadline for its
    /// reads: if this returns false, a stop replaces that deadline.
    pub(crate) fn is_stopping_behind_deadline(&self) -> bool {
        fence(Ordering::SeqCst);
        self.server.is_stopping()
    }
}

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        (&*self.0).read(buf)
    }
}

impl Write for Stream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        (&*self.0).write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        (&*self.0).flush()
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let closed = self.server.open().connections.remove(&self.id);
        drop(closed);
        self.server.0.ended.notify_all();
    }
}

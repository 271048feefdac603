//! The threads of a console: one that accepts, and one for each connection.
//!
//! They are plain threads with blocking calls, not goroutines: a runtime whose Ps are all stuck is the
//! one that has to be looked into.

use std::collections::HashMap;
use std::io::{self, Read};
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use windlass::Handle;

use crate::access::{self, Refusal, Token};
use crate::http::{self, Answer, Connection, NoRequest, Request, Status};
use crate::listen::{Address, Listener, Stream};
use crate::prometheus::Own;
use crate::routes;
use crate::state::Sampler;

/// Connections at once.
const CONNECTIONS: usize = 64;
/// Of those, pages that are open.
const WATCHERS: usize = 32;
/// Of those, dumps that are being taken and sent: each has a line and more for every goroutine.
const DUMPS: usize = 4;
/// Requests of one connection.
const REQUESTS: usize = 1000;
/// The pause after an accept that failed, as for lack of descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// The state that the threads share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) handle: Handle,
    pub(crate) sampler: Sampler,
    pub(crate) address: Address,
    pub(crate) own_metrics: Own,
    token: Option<Token>,
    state: Mutex<State>,
    changed: Condvar,
    /// Whether a trace, a profile or a flight record is being taken. Ordering: relaxed, it protects no data.
    is_taking: AtomicBool,
    /// Pages that are open. Ordering: relaxed, a limit.
    watchers: AtomicUsize,
    /// Dumps. Ordering: as above.
    dumps: AtomicUsize,
    /// Held while a dump is taken and made a list.
    dump: Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    is_over: bool,
    open: Connections,
}

/// The open connections, to end them.
#[derive(Debug, Default)]
struct Connections {
    all: HashMap<usize, Open>,
    next: usize,
}

#[derive(Debug)]
struct Open {
    stream: Stream,
    /// Since when it has no request that is being answered.
    idle: Option<Instant>,
}

impl Connections {
    /// Lists a connection. If there is no room, that which has had no request for longest is ended: anybody may
    /// connect and be silent, and the console is there when it is needed.
    fn add(&mut self, stream: Stream) -> Option<usize> {
        if self.all.len() >= CONNECTIONS {
            let idle = self.all.iter().filter_map(|(id, o)| Some((o.idle?, *id)));
            let (_, id) = idle.min()?;
            let left = self.all.remove(&id)?;
            left.stream.shutdown(Shutdown::Both);
        }
        let id = self.next;
        self.next += 1;
        let idle = Some(Instant::now());
        self.all.insert(id, Open { stream, idle });
        Some(id)
    }

    /// A request of it is being answered, or has been.
    fn set_idle(&mut self, id: usize, is_idle: bool) {
        if let Some(open) = self.all.get_mut(&id) {
            open.idle = is_idle.then(Instant::now);
        }
    }
}

impl Shared {
    pub(crate) fn new(
        handle: Handle,
        address: Address,
        token: Option<Token>,
        own_metrics: Own,
    ) -> Shared {
        Shared {
            sampler: Sampler::new(handle.clone()),
            handle,
            address,
            own_metrics,
            token,
            state: Mutex::default(),
            changed: Condvar::new(),
            is_taking: AtomicBool::new(false),
            watchers: AtomicUsize::new(0),
            dumps: AtomicUsize::new(0),
            dump: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a time, or for the end of the console. `true` if it has ended.
    pub(crate) fn wait(&self, time: Duration) -> bool {
        let waited = self
            .changed
            .wait_timeout_while(self.lock(), time, |state| !state.is_over);
        waited.unwrap_or_else(PoisonError::into_inner).0.is_over
    }

    /// Ends the console: its connections, and its accepts as soon as they return.
    pub(crate) fn end(&self) {
        let mut state = self.lock();
        state.is_over = true;
        self.changed.notify_all();
        for open in state.open.all.values() {
            open.stream.shutdown(Shutdown::Both);
        }
    }

    /// Waits until no connection is open, for a while.
    pub(crate) fn wait_for_connections(&self, time: Duration) {
        let waited = self
            .changed
            .wait_timeout_while(self.lock(), time, |state| !state.open.all.is_empty());
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// The right to take a trace, a profile or a flight record, and to send it.
    pub(crate) fn turn(&self) -> Option<Turn<'_>> {
        let was_taking = self.is_taking.swap(true, Ordering::Relaxed);
        (!was_taking).then(|| Turn(self))
    }

    /// A place for a page that stays open.
    pub(crate) fn watcher(&self) -> Option<Place<'_>> {
        Place::among(&self.watchers, WATCHERS)
    }

    /// A place for a dump, until it is sent.
    pub(crate) fn dump(&self) -> Option<Place<'_>> {
        Place::among(&self.dumps, DUMPS)
    }

    /// The turn to take a dump.
    pub(crate) fn lock_dump(&self) -> MutexGuard<'_, ()> {
        self.dump.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lists a connection, if there is room.
    fn open(&self, stream: &Stream) -> io::Result<Option<usize>> {
        let copy = stream.try_clone()?;
        let mut state = self.lock();
        Ok(match state.is_over {
            true => None,
            false => state.open.add(copy),
        })
    }
}

/// Held while one of them is taken and sent.
#[derive(Debug)]
pub(crate) struct Turn<'a>(&'a Shared);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.is_taking.store(false, Ordering::Relaxed);
    }
}

/// One of so many that may be at work at once.
#[derive(Debug)]
pub(crate) struct Place<'a>(&'a AtomicUsize);

impl<'a> Place<'a> {
    fn among(taken: &'a AtomicUsize, most: usize) -> Option<Place<'a>> {
        let n = taken.fetch_add(1, Ordering::Relaxed);
        let place = Place(taken);
        (n < most).then_some(place)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Takes a connection off the list when its thread ends, however it ends.
struct Listed {
    shared: Arc<Shared>,
    id: usize,
}

impl Listed {
    fn set_idle(&self, is_idle: bool) {
        self.shared.lock().open.set_idle(self.id, is_idle);
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.shared.lock().open.all.remove(&self.id);
        self.shared.changed.notify_all();
    }
}

/// Accepts connections until the console ends.
pub(crate) fn accept_all(shared: &Arc<Shared>, listener: &Listener) {
    loop {
        let accepted = listener.accept();
        if shared.lock().is_over {
            return;
        }
        match accepted {
            Ok(stream) => begin(shared, stream),
            // For lack of descriptors or memory, or because the client has gone already.
            Err(_) => _ = shared.wait(PAUSE),
        }
    }
}

/// Serves a connection by a thread of its own. If none can be had, the connection ends.
fn begin(shared: &Arc<Shared>, stream: Stream) {
    match shared.open(&stream) {
        Ok(Some(id)) => {
            let listed = Listed {
                shared: Arc::clone(shared),
                id,
            };
            let serve = move || serve(&listed, stream);
            // The closure, and with it the connection, is dropped on failure.
            let _ = thread::Builder::new()
                .name("windlass-http".to_owned())
                .spawn(serve);
        }
        Ok(None) => {
            let answer = Answer::text(http::UNAVAILABLE, "too many connections");
            // It is short, and the buffers of a new connection are empty.
            let _ = Connection::new(stream).answer(None, &answer);
        }
        Err(_) => {}
    }
}

fn serve(listed: &Listed, stream: Stream) {
    let mut connection = Connection::new(stream);
    for _ in 0..REQUESTS {
        let goes_on = match connection.request() {
            Ok(request) => {
                let goes_on = answer(listed, &mut connection, &request);
                listed.set_idle(true);
                goes_on
            }
            Err(NoRequest::Ended) => return,
            Err(NoRequest::Bad(status)) => {
                let answer = complaint(status);
                connection.answer(None, &answer).map(|()| false)
            }
        };
        match goes_on {
            Ok(true) => {}
            Ok(false) => return linger(connection.stream()),
            // The client has gone, or is too slow, or sees that the answer was cut off.
            Err(_) => return,
        }
    }
    linger(connection.stream());
}

fn answer(listed: &Listed, connection: &mut Connection, request: &Request) -> io::Result<bool> {
    let shared = &*listed.shared;
    match access::check(request, &shared.address, shared.token.as_ref()) {
        Ok(()) => {
            // Not before the check: strangers who take no answers would hold all connections.
            listed.set_idle(false);
            routes::answer(shared, connection, request)
        }
        Err(refusal) => {
            let answer = match refusal {
                Refusal::Token => Answer::text(
                    http::UNAUTHORIZED,
                    "a token is needed: Authorization: Bearer TOKEN, or ?token=TOKEN",
                )
                .with("WWW-Authenticate", "Bearer realm=\"windlass-console\""),
                Refusal::Host => Answer::text(
                    http::MISDIRECTED,
                    "without a token, this is served to localhost and loopback addresses only",
                ),
                Refusal::Site => {
                    Answer::text(http::FORBIDDEN, "pages of other sites may not ask for this")
                }
            };
            connection.answer(Some(request), &answer)?;
            Ok(request.keeps_alive)
        }
    }
}

/// The answer to a client that sent no valid request.
fn complaint(status: Status) -> Answer {
    let why = match status {
        http::NOT_ALLOWED => "only GET and HEAD are known here",
        http::TOO_LARGE => "requests have no body here",
        http::HEAD_TOO_LARGE => "a request has at most 8 KiB and 64 headers here",
        http::TIMEOUT => "the request did not arrive in time",
        http::VERSION => "only HTTP/1.0 and HTTP/1.1 are known here",
        _ => "the request is malformed",
    };
    let answer = Answer::text(status, why);
    match status {
        http::NOT_ALLOWED => answer.with("Allow", "GET, HEAD"),
        _ => answer,
    }
}

/// Ends a connection so that the client gets the answer: if bytes of it were left unread, the kernel
/// would reset the connection and discard the answer.
fn linger(mut stream: &Stream) {
    const FOR: Duration = Duration::from_secs(2);
    const BYTES: usize = 256 * 1024;
    stream.shutdown(Shutdown::Write);
    let (deadline, mut buf, mut n) = (Instant::now() + FOR, [0; 4096], 0);
    while n < BYTES {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || stream.set_read_timeout(left).is_err() {
            return;
        }
        match stream.read(&mut buf) {
            Ok(0) | Err(_) => return,
            Ok(more) => n += more,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    /// Those that are being answered are never ended, and of the others that which is so for longest.
    #[test]
    fn a_connection_takes_the_place_of_an_idle_one() {
        let mut connections = Connections::default();
        let mut clients = Vec::new();
        let mut add = |connections: &mut Connections| {
            let (client, served) = UnixStream::pair().unwrap();
            client.set_nonblocking(true).unwrap();
            clients.push(client);
            connections.add(Stream::Unix(served))
        };
        for id in 0..CONNECTIONS {
            assert_eq!(add(&mut connections), Some(id));
            connections.set_idle(id, false);
        }
        assert_eq!(add(&mut connections), None);
        connections.set_idle(7, true);
        connections.set_idle(5, true);
        assert_eq!(add(&mut connections), Some(CONNECTIONS));
        assert_eq!(add(&mut connections), Some(CONNECTIONS + 1));
        connections.set_idle(CONNECTIONS, false);
        connections.set_idle(CONNECTIONS + 1, false);
        assert_eq!(add(&mut connections), None);
        // Nothing keeps what the list has left, and what it has not taken.
        let is_closed = |mut client: &UnixStream| matches!(client.read(&mut [0]), Ok(0));
        let closed = (0..clients.len()).filter(|&i| is_closed(&clients[i]));
        let refused = [CONNECTIONS, clients.len() - 1];
        assert!(closed.eq([5, 7].into_iter().chain(refused)));
    }
}

//! The graceful end of a server: it stops accepting, finishes the requests in flight, and cancels
//! what is left after a deadline.
//!
//! Two contexts tell the connections. The outer one ends every wait of a connection, and is cancelled
//! at the deadline. The inner one ends waits for the next request only, and is cancelled by the stop.
//! Each connection has a child of its own of the inner one: its lock is then not shared, although the
//! connection enters it for each request.

use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::panic::Location;
use std::pin::Pin;
use std::time::{Duration, Instant};

use windlass_ground::std_traits::{debug_fields, fmt_as};

use super::tcp::{TcpListener, TcpStream};
use super::unix::{UnixListener, UnixStream};
use crate::context::{self, CancelRef, Context};
use crate::g::header::{GRef, OffStack, Step, Steps};
use crate::loom::native::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::loom::native::{Arc, OnceLock};
use crate::poll::off_stack::{OffStackWait, Ready};
use crate::poll::op::Deadline;
use crate::poll::ready;
use crate::sched::wait::spawn;
use crate::sync::WaitGroup;
use crate::sys::{clock, signal, socket};
use crate::task;

/// The pause after an accept that failed, but may succeed later.
const PAUSE: Duration = Duration::from_millis(5);
/// How long connections are awaited that had begun before the stop: longer than a packet takes to
/// most places and back.
const HALF_OPEN: Duration = Duration::from_millis(200);
/// The most connections that are accepted after the stop: more than a kernel's queue has by default,
/// and an end even if clients connect faster than they are accepted.
const MAX_QUEUED: usize = 1 << 16;

/// A server that can stop without losing a request, as Go's `http.Server.Shutdown`. All clones are
/// handles to the same server.
///
/// [`serve`](Graceful::serve) accepts connections and runs a goroutine for each. The handler calls
/// [`idle`](Member::idle) where it waits for the next request. After [`stop`](Graceful::stop):
///
/// 1. Connections that are in the queue of the listener are still accepted and served. Then the
///    listener is closed, and `serve` returns. [Connections at the stop](#connections-at-the-stop)
///    has the details.
/// 2. A connection that waits in `idle` waits for the [grace](Graceful::with_grace) only, because a
///    request may be on its way. A connection that works on a request finishes it.
/// 3. [`shutdown`](Graceful::shutdown) waits for them. At its deadline it cancels the context in
///    which the handlers run: their waits end with an error.
///
/// A protocol that can say so should say in its answers that no other request is awaited
/// ([`Member::is_stopping`]).
///
/// # Connections at the stop
///
/// A connection that arrives between the last accept and the close of the listener would be reset.
/// So the kernel is first told to drop the packets by which TCP connections begin
/// (`SO_ATTACH_FILTER`). The server accepts those that have begun for 200 ms, or for the grace if that
/// is shorter, and then closes the listener. A client that connects meanwhile sends its packet again after a
/// second, and is then refused, or served by another process that listens at the port. A connection is
/// still reset if its handshake began before the stop and takes longer than that. The filter is removed
/// just before the close, because another process may have the same listener. A process that is killed
/// before that leaves it to the others: there, the next `serve` removes it.
///
/// Unix sockets have no such filter: a client that connects in the microseconds between the last
/// accept and the close loses its connection. If no other process serves the path, remove the file
/// before [`stop`](Graceful::stop). Then nobody connects any more, and nothing is lost.
///
/// # Examples
///
/// A server that answers lines:
///
/// ```
/// use std::io::{BufRead, BufReader, Read, Write};
/// use std::time::Duration;
/// use windlass::net::{Graceful, Member, TcpListener, TcpStream};
///
/// fn answer(stream: TcpStream, member: &Member) -> std::io::Result<()> {
///     let mut input = BufReader::new(&stream);
///     // Another line may be in the buffer already: wait only if it is empty.
///     while !input.buffer().is_empty() || member.idle(|| input.fill_buf().map(<[u8]>::len))? > Some(0) {
///         let mut line = String::new();
///         input.read_line(&mut line)?;
///         (&stream).write_all(line.to_uppercase().as_bytes())?;
///     }
///     Ok(())
/// }
///
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
/// rt.run(|| {
///     let listener = TcpListener::bind("127.0.0.1:0")?;
///     let mut client = TcpStream::connect(listener.local_addr()?)?;
///     let server = Graceful::new();
///     let stopper = server.clone();
///     windlass::spawn(move || {
///         client.write_all(b"hello\n")?;
///         stopper.stop(); // in a program: after a signal has arrived
///         let mut answers = String::new();
///         client.read_to_string(&mut answers)?;
///         assert_eq!(answers, "HELLO\n");
///         std::io::Result::Ok(())
///     });
///     // Returns after the stop.
///     server.serve(listener, |stream, member| {
///         // An error concerns only this client.
///         let _ = answer(stream, member);
///     })?;
///     server.shutdown(Duration::from_secs(30)).unwrap();
///     std::io::Result::Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct Graceful {
    shared: Arc<Shared>,
    /// Spawns the goroutines of connections.
    builder: Option<task::Builder>,
}

struct Shared {
    grace: Duration,
    /// The context that the server was made in.
    outer: Context,
    /// In which the handlers run; cancelled at the deadline of a shutdown.
    work: (Context, CancelRef),
    /// A child of `work`, cancelled by the stop.
    open: (Context, CancelRef),
    /// Accept loops and members.
    running: WaitGroup,
    /// Ordering: relaxed; it is counted for people.
    n_members: AtomicUsize,
    /// Whether another process serves the listeners after the stop. Ordering: relaxed; the cancel that follows the store
    /// publishes it to those that see the stop.
    is_handed_over: AtomicBool,
}

/// A listener whose connections [`Graceful::serve`] can accept: [`TcpListener`] and
/// [`UnixListener`].
pub trait Listener: sealed::Accepts {
    /// The type of its connections.
    type Stream: AsFd + Send + 'static;
}

impl Listener for TcpListener {
    type Stream = TcpStream;
}

impl Listener for UnixListener {
    type Stream = UnixStream;
}

mod sealed {
    use super::{AsFd, Listener, TcpListener, TcpStream, UnixListener, UnixStream, io, socket};

    pub trait Accepts: AsFd {
        fn accept_one(&self) -> io::Result<<Self as Listener>::Stream>
        where
            Self: Listener;

        /// A poll has shown that the stream has something to read.
        fn note_readable(stream: &<Self as Listener>::Stream)
        where
            Self: Listener;

        /// Lets no further connections begin. Returns whether there is a way to do that.
        fn hold(&self) -> bool {
            false
        }

        /// Ends the effect of `hold`, also of a call by another process.
        fn release(&self) {}
    }

    impl Accepts for TcpListener {
        fn accept_one(&self) -> io::Result<TcpStream> {
            self.accept().map(|(stream, _)| stream)
        }

        fn note_readable(stream: &TcpStream) {
            stream.0.set_maybe_readable(true);
        }

        fn hold(&self) -> bool {
            socket::drop_syns(self.as_fd()).is_ok()
        }

        fn release(&self) {
            // It fails only if there can be no filter.
            let _ = socket::take_syns(self.as_fd());
        }
    }

    impl Accepts for UnixListener {
        fn accept_one(&self) -> io::Result<UnixStream> {
            self.accept().map(|(stream, _)| stream)
        }

        fn note_readable(stream: &UnixStream) {
            stream.0.set_maybe_readable(true);
        }
    }
}

impl Graceful {
    /// Creates a server whose idle connections may still send a request for 500 ms after the stop.
    ///
    /// # Blocking
    ///
    /// Never.
    #[must_use]
    pub fn new() -> Graceful {
        Graceful::with_grace(Duration::from_millis(500))
    }

    /// Creates a server whose idle connections may still send a request for `grace` after the stop:
    /// one that was sent before the client could know of the stop.
    ///
    /// # Blocking
    ///
    /// Never.
    #[must_use]
    pub fn with_grace(grace: Duration) -> Graceful {
        Graceful::with_context(&Context::background(), grace)
    }

    /// Creates a server as [`with_grace`](Graceful::with_grace) does, whose handlers run in a child
    /// of `ctx`. When `ctx` is done, all their waits end, and those for connections.
    ///
    /// # Blocking
    ///
    /// Never.
    #[must_use]
    pub fn with_context(ctx: &Context, grace: Duration) -> Graceful {
        let work = ctx.with_cancel_ref();
        let open = work.0.with_cancel_ref();
        let shared = Arc::new(Shared {
            grace,
            outer: ctx.clone(),
            work,
            open,
            running: WaitGroup::new(),
            n_members: AtomicUsize::new(0),
            is_handed_over: AtomicBool::new(false),
        });
        Graceful {
            shared,
            builder: None,
        }
    }

    /// Returns a handle to the same server whose [`serve`](Graceful::serve) spawns the goroutines of
    /// connections as `builder` says: with a name, a label, a stack size and so on. Other handles are
    /// as before, so each listener may have a builder of its own.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::net::{Graceful, TcpListener};
    /// use windlass::task;
    ///
    /// # // SAFETY: nothing here keeps a thread-local across a call that parks.
    /// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
    /// rt.run(|| {
    ///     let server = Graceful::new();
    ///     let admin = server.spawn_with(task::Builder::new().name("admin").label("admin"));
    ///     let listener = TcpListener::bind("127.0.0.1:0")?;
    ///     server.stop(); // in a program: after a signal has arrived
    ///     admin.serve(listener, |_stream, _member| {
    ///         assert_eq!(task::current().name(), Some("admin"));
    ///     })
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use = "the handle that is returned uses the builder"]
    pub fn spawn_with(&self, builder: task::Builder) -> Graceful {
        Graceful {
            shared: Arc::clone(&self.shared),
            builder: Some(builder),
        }
    }

    /// Accepts connections, and runs `handle` for each in a goroutine of its own, until the server is
    /// asked to stop. Then accepts those that the kernel has in its queue, and closes the listener.
    ///
    /// An accept that fails because descriptors or memory are short is repeated a moment later:
    /// connections that end release them. The first such error is said in a line on stderr. Several
    /// listeners may be served at the same time.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine until the stop. An ambient context ([`context`](mod@crate::context)) that
    /// is done counts as a call of [`stop`](Graceful::stop), and ends none of the waits after that.
    ///
    /// # Errors
    ///
    /// The listener cannot accept any more, or the context that the server was
    /// [made in](Graceful::with_context) is done. Or the deadline of a shutdown has passed while
    /// descriptors were short and connections in the queue. Those of [`task::Builder::spawn`], at
    /// once, for a builder that was given to [`spawn_with`](Graceful::spawn_with).
    ///
    /// # Panics
    ///
    /// If the caller is not a goroutine.
    ///
    /// # Examples
    ///
    /// See [`Graceful`].
    #[track_caller]
    pub fn serve<L, F>(&self, listener: L, handle: F) -> io::Result<()>
    where
        L: Listener,
        F: Fn(L::Stream, &Member) + Clone + Send + 'static,
    {
        self.serve_with(listener, say_once(), handle)
    }

    /// As [`serve`](Graceful::serve), and calls `on_error` with each error of an accept that is
    /// repeated, in place of the line on stderr. A report should be limited: while descriptors are
    /// short, that is every 5 ms.
    ///
    /// # Blocking
    ///
    /// As [`serve`](Graceful::serve).
    ///
    /// # Errors
    ///
    /// As [`serve`](Graceful::serve).
    ///
    /// # Panics
    ///
    /// If the caller is not a goroutine.
    #[track_caller]
    pub fn serve_with<L, F>(
        &self,
        listener: L,
        on_error: impl FnMut(&io::Error),
        handle: F,
    ) -> io::Result<()>
    where
        L: Listener,
        F: Fn(L::Stream, &Member) + Clone + Send + 'static,
    {
        let site = Location::caller();
        self.accept_all(listener, on_error, &|stream| {
            let (member, handle) = (self.member(), handle.clone());
            let run = move || {
                let work = member.context().clone();
                work.run(|| handle(stream, &member));
            };
            match &self.builder {
                None => spawn::spawn_unjoined(run, site),
                // It was checked.
                Some(builder) => drop(builder.clone().prepare()?.spawn(run, site)),
            }
            Ok(())
        })
    }

    /// Accepts connections as [`serve`](Graceful::serve) does, and calls `handle` when a request has come: when bytes
    /// are there, or the connection has ended. It returns what to do [next](Next). Between two requests, the
    /// goroutine of a connection has no stack: an idle connection costs the descriptor, its state and some 450 bytes,
    /// where one that waits in [`Member::idle`] costs at least a page more.
    ///
    /// `make` is called for each connection that is accepted, and returns the state that `handle` gets with
    /// each request. It delays other accepts, so it should not wait.
    ///
    /// `handle` has a stack and may wait, for example for the rest of a request. It must read: as long as bytes are
    /// there, it is called again. Requests that it has read already into a buffer of its own do not call it: it
    /// answers them all before it returns. An error, as a panic, ends the connection, and concerns no
    /// other one.
    ///
    /// A connection that is idle for `patience` is closed; with `Duration::MAX`, never. The server stops as
    /// [`Graceful`] says: a connection that waits for a request is idle, and one in `handle` works on it.
    ///
    /// # Blocking
    ///
    /// As [`serve`](Graceful::serve).
    ///
    /// # Errors
    ///
    /// As [`serve`](Graceful::serve).
    ///
    /// # Panics
    ///
    /// If the caller is not a goroutine.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::io::{Read, Write};
    /// use std::time::Duration;
    /// use windlass::net::{Graceful, Next, TcpListener, TcpStream};
    ///
    /// # // SAFETY: nothing here keeps a thread-local across a call that parks.
    /// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
    /// rt.run(|| {
    ///     let listener = TcpListener::bind("127.0.0.1:0")?;
    ///     let mut client = TcpStream::connect(listener.local_addr()?)?;
    ///     let server = Graceful::new();
    ///     let stopper = server.clone();
    ///     windlass::spawn(move || {
    ///         client.write_all(b"a")?;
    ///         let mut answer = [0; 2];
    ///         client.read_exact(&mut answer)?;
    ///         assert_eq!(&answer, b"1a");
    ///         client.write_all(b"b")?;
    ///         client.read_exact(&mut answer)?;
    ///         assert_eq!(&answer, b"2b");
    ///         stopper.stop(); // in a program: after a signal has arrived
    ///         std::io::Result::Ok(())
    ///     });
    ///     // The state of a connection is the number of its requests.
    ///     let answer = |mut stream: &TcpStream, n: &mut u8| {
    ///         let mut bytes = [0; 100];
    ///         let len = stream.read(&mut bytes)?;
    ///         if len == 0 {
    ///             return Ok(Next::Close);
    ///         }
    ///         *n += 1;
    ///         stream.write_all(&[b'0' + *n])?;
    ///         stream.write_all(&bytes[..len])?;
    ///         Ok(Next::Request)
    ///     };
    ///     server.serve_requests(listener, Duration::from_secs(60), |_| Ok(0), answer)?;
    ///     server.shutdown(Duration::from_secs(30)).unwrap();
    ///     std::io::Result::Ok(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn serve_requests<L, S, M, H>(
        &self,
        listener: L,
        patience: Duration,
        make: M,
        handle: H,
    ) -> io::Result<()>
    where
        L: Listener,
        S: Send + 'static,
        M: Fn(&L::Stream) -> io::Result<S>,
        H: Fn(&L::Stream, &mut S) -> io::Result<Next> + Send + Sync + 'static,
    {
        let site = Location::caller();
        let service = Arc::new(Service {
            shared: Arc::clone(&self.shared),
            context: self
                .builder
                .as_ref()
                .and_then(task::Builder::context_given)
                .cloned(),
            patience,
            note_readable: L::note_readable,
            handle,
        });
        self.accept_all(listener, say_once(), &|stream| {
            // The error concerns this connection only.
            let Ok(state) = make(&stream) else {
                return Ok(());
            };
            let requests = Steps(Requests::new(&service, stream, state));
            match &self.builder {
                None => spawn::spawn_unjoined(requests, site),
                // It was checked.
                Some(builder) => drop(builder.clone().prepare()?.spawn_body(requests, site)),
            }
            Ok(())
        })
    }

    /// Accepts connections and calls `start` with each, until the server is asked to stop. Then accepts those
    /// that the kernel has in its queue, and closes the listener.
    #[track_caller]
    fn accept_all<L: Listener>(
        &self,
        listener: L,
        mut on_error: impl FnMut(&io::Error),
        start: &impl Fn(L::Stream) -> io::Result<()>,
    ) -> io::Result<()> {
        spawn::expect_runtime();
        if let Some(builder) = &self.builder {
            builder.check()?;
        }
        // A process that was killed while it stopped may have had the same listener.
        listener.release();
        // Counted first, so that the count of a shutdown that waits cannot grow from 0.
        let _counted = Counted::new(&self.shared.running);
        let open = &self.shared.open.0;
        loop {
            let error = match serve_one(&listener, open, start) {
                Ok(()) => continue,
                Err(error) if is_permanent(&error) => return Err(error),
                Err(error) => error,
            };
            if context::check().is_err() {
                self.stop();
            }
            if self.is_stopping() {
                break;
            }
            on_error(&error);
            open.run(|| task::sleep(PAUSE));
        }
        // The ambient contexts have asked for the stop, or have no part in it.
        context::shield(|| self.serve_queue(listener, on_error, start))
    }

    /// Accepts what the kernel has in its queue at the stop, and closes the listener.
    fn serve_queue<L: Listener>(
        &self,
        listener: L,
        mut on_error: impl FnMut(&io::Error),
        start: &impl Fn(L::Stream) -> io::Result<()>,
    ) -> io::Result<()> {
        let shared = &*self.shared;
        shared.outer.run(context::check)?;
        if shared.is_handed_over.load(Ordering::Relaxed) {
            return Ok(());
        }
        let held = Held::new(&listener);
        let patience = match held.is_held {
            true => HALF_OPEN.min(shared.grace),
            false => Duration::ZERO,
        };
        let for_half_open = shared.work.0.with_timeout(patience);
        let mut n_queued = 0;
        while n_queued < MAX_QUEUED {
            let served = match for_half_open.is_done() {
                false => serve_one(&listener, &for_half_open, start),
                true if !has_connections(&listener)? => return Ok(()),
                true => {
                    // Another process may take the connection first.
                    let soon = Context::background().with_timeout(PAUSE);
                    serve_one(&listener, &soon, start)
                }
            };
            let Err(error) = served else {
                n_queued += 1;
                continue;
            };
            if is_permanent(&error) {
                return Err(error);
            }
            shared.outer.run(context::check)?;
            if is_by_context(&error) {
                continue;
            }
            // Connections must not be accepted any more, not even those in the queue.
            shared.work.0.run(context::check)?;
            on_error(&error);
            shared.work.0.run(|| task::sleep(PAUSE));
        }
        Ok(())
    }

    /// Counts the caller as a connection until the guard is dropped, for servers that accept their
    /// connections in another way. Its waits end at the deadline of a shutdown only inside
    /// [`Member::context`].
    ///
    /// # Blocking
    ///
    /// Never.
    #[must_use = "the connection is counted until this is dropped"]
    pub fn member(&self) -> Member {
        let shared = &self.shared;
        let counted = Connected::new(shared);
        Member {
            open: shared.open.0.with_cancel_ref().0,
            server: self.clone(),
            grace_ends: OnceLock::new(),
            _counted: counted,
        }
    }

    /// The number of connections that have not ended.
    #[must_use]
    pub fn n_members(&self) -> usize {
        self.shared.n_members.load(Ordering::Relaxed)
    }

    /// Asks the server to stop: see [`Graceful`]. Does nothing if it was asked before. May be called
    /// from any thread.
    ///
    /// # Blocking
    ///
    /// Does not wait for the connections.
    pub fn stop(&self) {
        self.shared.open.1.cancel();
    }

    /// As [`stop`](Graceful::stop), and leaves connections that were not accepted to another process, which serves the
    /// same listeners already: none is held up or lost. The crate windlass-handover starts such a process.
    ///
    /// # Blocking
    ///
    /// Does not wait for the connections.
    pub fn hand_over(&self) {
        self.shared.is_handed_over.store(true, Ordering::Relaxed);
        self.stop();
    }

    /// Whether the server was asked to stop.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.shared.open.0.is_done()
    }

    /// The context that is done when the server was asked to stop.
    #[must_use]
    pub fn stopping(&self) -> &Context {
        &self.shared.open.0
    }

    /// Asks the server to stop, and waits until its connections have ended, for at most `limit`. Then
    /// cancels the context in which the handlers of those that are left run, and does not wait for
    /// them.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine; blocks a plain thread. An ambient context
    /// ([`context`](mod@crate::context)) that becomes done meanwhile counts as the end of the limit. One
    /// that was done before the call does not: it may be the reason of the stop.
    ///
    /// # Errors
    ///
    /// [`Unfinished`] if connections were left, or a [`serve`](Graceful::serve) still accepted: with a TCP
    /// listener it does so for 200 ms [after the stop](#connections-at-the-stop), also if there are none.
    ///
    /// # Examples
    ///
    /// See [`Graceful`].
    pub fn shutdown(&self, limit: Duration) -> Result<(), Unfinished> {
        self.stop();
        let ctx = Context::background().with_timeout(limit);
        let wait = || self.shared.running.wait_context(&ctx);
        let waited = match context::check() {
            Ok(()) => wait(),
            Err(_) => context::shield(wait),
        };
        let n_left = self.n_members();
        self.shared.work.1.cancel();
        match waited {
            Ok(()) => Ok(()),
            Err(_) => Err(Unfinished { n_left }),
        }
    }
}

impl Default for Graceful {
    fn default() -> Graceful {
        Graceful::new()
    }
}

debug_fields!(Graceful, |this| n_members: this.n_members(), ..);

/// Reports the first error of an accept that is repeated.
fn say_once() -> impl FnMut(&io::Error) {
    let mut is_said = false;
    move |error| {
        if !std::mem::replace(&mut is_said, true) {
            signal::report(format_args!(
                "connections wait, as none can be accepted: {error}"
            ));
        }
    }
}

/// Whether every later accept fails as this one did.
fn is_permanent(error: &io::Error) -> bool {
    let permanent = [libc::EBADF, libc::EINVAL, libc::ENOTSOCK, libc::EOPNOTSUPP];
    error.raw_os_error().is_some_and(|e| permanent.contains(&e))
}

/// Whether the kernel has connections in the listener's queue.
fn has_connections(listener: &impl AsFd) -> io::Result<bool> {
    match ready::wait_until(
        listener.as_fd(),
        libc::POLLIN,
        Deadline::at(clock::now_ns()),
    ) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(e) => Err(e),
    }
}

/// Accepts a connection, in a wait that `until` ends, and starts its goroutine.
fn serve_one<L: Listener>(
    listener: &L,
    until: &Context,
    start: &impl Fn(L::Stream) -> io::Result<()>,
) -> io::Result<()> {
    start(until.run(|| listener.accept_one())?)
}

fn is_by_context(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|e| e.is::<context::Error>())
}

/// No further connections to the listener begin until this is dropped.
struct Held<'a, L: Listener> {
    listener: &'a L,
    is_held: bool,
}

impl<L: Listener> Held<'_, L> {
    fn new(listener: &L) -> Held<'_, L> {
        Held {
            listener,
            is_held: listener.hold(),
        }
    }
}

impl<L: Listener> Drop for Held<'_, L> {
    fn drop(&mut self) {
        if self.is_held {
            self.listener.release();
        }
    }
}

/// Counted in a wait group until it is dropped.
#[derive(Debug)]
struct Counted(WaitGroup);

impl Counted {
    fn new(group: &WaitGroup) -> Counted {
        group.add(1);
        Counted(group.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.done_in_place();
    }
}

/// A connection of a [`Graceful`] server, until it is dropped.
#[derive(Debug)]
pub struct Member {
    server: Graceful,
    /// A child of the server's context of this name.
    open: Context,
    /// Set when it first waits for a request after the stop.
    grace_ends: OnceLock<Option<Instant>>,
    _counted: Connected<Shared>,
}

impl Member {
    /// Waits for the next request: calls `wait`, for example a read. After the stop it waits for the
    /// [grace](Graceful::with_grace) only, and returns `None` if no request has come. The grace begins
    /// when a connection first waits for a request after the stop.
    ///
    /// `wait` is called once more if the stop has ended its first wait, so a wait that fails must
    /// have no effect. A single read has none: when it fails, no byte was taken.
    ///
    /// # Blocking
    ///
    /// As `wait`, whose waits end with the server's contexts.
    ///
    /// # Errors
    ///
    /// The errors of `wait`, such as a timeout of the stream. The error of the context of the connection
    /// ([`context`](Member::context)) or of an ambient one if that is done.
    ///
    /// # Examples
    ///
    /// See [`Graceful`].
    pub fn idle<T>(&self, mut wait: impl FnMut() -> io::Result<T>) -> io::Result<Option<T>> {
        if !self.is_stopping() {
            match self.open.run(&mut wait) {
                Err(error) if is_by_context(&error) && self.is_stopping() => {}
                waited => return waited.map(Some),
            }
        }
        let shared = &self.server.shared;
        let ends = || clock::now().checked_add(shared.grace);
        let ctx = match *self.grace_ends.get_or_init(ends) {
            Some(end) => shared.work.0.with_deadline(end),
            None => shared.work.0.clone(),
        };
        match ctx.run(wait) {
            // Not one of a context inside of `wait`.
            Err(error) if is_by_context(&error) && ctx.is_done() => {
                // Only the end of the grace is no error.
                shared.work.0.run(context::check)?;
                Ok(None)
            }
            waited => waited.map(Some),
        }
    }

    /// Whether the server was asked to stop. An answer should then say that it is the last one.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.server.is_stopping()
    }

    /// The context that is done when the server was asked to stop, for a select.
    #[must_use]
    pub fn stopping(&self) -> &Context {
        &self.open
    }

    /// The context that is done at the deadline of a shutdown. The handlers of
    /// [`Graceful::serve`] run in it.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.server.shared.work.0
    }
}

/// A part of a server that its connections have.
trait PartOf {
    fn shared(&self) -> &Shared;
}

impl PartOf for Shared {
    fn shared(&self) -> &Shared {
        self
    }
}

impl<C, H> PartOf for Service<C, H> {
    fn shared(&self) -> &Shared {
        &self.shared
    }
}

/// Counts a connection until it is dropped.
struct Connected<T: PartOf>(Arc<T>);

fmt_as!(Debug for Connected<Shared>, "Connected(..)");

impl<T: PartOf> Connected<T> {
    fn new(part: &Arc<T>) -> Connected<T> {
        part.shared().n_members.fetch_add(1, Ordering::Relaxed);
        part.shared().running.add(1);
        Connected(Arc::clone(part))
    }
}

impl<T: PartOf> Drop for Connected<T> {
    fn drop(&mut self) {
        let shared = self.0.shared();
        shared.n_members.fetch_sub(1, Ordering::Relaxed);
        shared.running.done_in_place();
    }
}

/// What a handler of [`Graceful::serve_requests`] asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Next {
    /// To be called with the next request.
    Request,
    /// The end of the connection.
    Close,
}

/// What all connections of a call of [`Graceful::serve_requests`] share.
struct Service<C, H> {
    shared: Arc<Shared>,
    /// The one that the builder of the goroutines names.
    context: Option<Context>,
    patience: Duration,
    note_readable: fn(&C),
    handle: H,
}

impl<C, H> Service<C, H> {
    /// Runs the handler in the contexts in which it is to wait.
    fn handle<S>(&self, stream: &C, state: &mut S) -> io::Result<Next>
    where
        H: Fn(&C, &mut S) -> io::Result<Next>,
    {
        (self.note_readable)(stream);
        self.shared.work.0.run(|| match &self.context {
            None => (self.handle)(stream, state),
            Some(ctx) => ctx.run(|| (self.handle)(stream, state)),
        })
    }
}

/// A connection whose goroutine has a stack while it works on a request.
struct Requests<C, S, H> {
    wait: Pin<Box<OffStackWait<Ready>>>,
    stream: C,
    state: S,
    /// When it has waited for requests long enough after the stop.
    grace_ends_ns: Option<u64>,
    /// Dropped last: when the server has ended, its connections are closed.
    connected: Connected<Service<C, H>>,
}

impl<C: AsFd, S, H> Requests<C, S, H> {
    fn new(service: &Arc<Service<C, H>>, stream: C, state: S) -> Requests<C, S, H> {
        let open = service.shared.open.0.source();
        let deadline_ns = clock::deadline_ns(service.patience);
        Requests {
            wait: OffStackWait::new(Ready::new(&stream, libc::POLLIN), deadline_ns, open),
            stream,
            state,
            grace_ends_ns: None,
            connected: Connected::new(service),
        }
    }

    /// Waits for the next request. `false` if none has come, and none will be awaited.
    ///
    /// # Errors
    ///
    /// The wait, for which the goroutine is to leave its stack.
    fn await_request(&mut self, g: GRef) -> Result<bool, OffStack> {
        loop {
            match self.wait.as_mut().step(g)? {
                Ok(()) => return Ok(true),
                Err(error) if is_by_context(&error) && self.begin_grace() => {}
                Err(_) => return Ok(false),
            }
        }
    }

    /// At the stop: the grace for a request that is on its way begins. `false` if it has begun before, or the server
    /// has not stopped.
    fn begin_grace(&mut self) -> bool {
        let shared = self.connected.0.shared();
        if self.grace_ends_ns.is_some() || !shared.open.0.is_done() {
            return false;
        }
        let ends_ns = clock::deadline_ns(shared.grace);
        self.grace_ends_ns = Some(ends_ns);
        self.wait.as_mut().set_source(shared.work.0.source());
        self.wait.as_mut().set_deadline(ends_ns);
        true
    }
}

// Nothing in it is pinned but what the box holds.
impl<C, S, H> Unpin for Requests<C, S, H> {}

impl<C, S, H> Step for Requests<C, S, H>
where
    C: AsFd,
    H: Fn(&C, &mut S) -> io::Result<Next>,
{
    type Output = ();

    fn step(mut self: Pin<&mut Self>, g: GRef) -> Result<(), OffStack> {
        let this = &mut *self;
        while this.await_request(g)? {
            let (service, stream, state) = (&*this.connected.0, &this.stream, &mut this.state);
            let wait = this.wait.as_mut();
            let Ok(Next::Request) = wait.run(|| service.handle(stream, state)) else {
                break;
            };
            match this.grace_ends_ns {
                // The wait does not look at its deadline if the next request is always there.
                Some(ends_ns) if ends_ns <= clock::now_ns() => break,
                Some(_) => {}
                None => {
                    let deadline_ns = clock::deadline_ns(this.connected.0.patience);
                    this.wait.as_mut().set_deadline(deadline_ns);
                }
            }
        }
        Ok(())
    }
}

/// [`Graceful::shutdown`] has cut connections off, because they had not ended in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unfinished {
    /// The number of connections. 0 if nothing but a [`Graceful::serve`] had not ended.
    pub n_left: usize,
}

impl fmt::Display for Unfinished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.n_left {
            0 => f.write_str("the accepts after the stop had not ended in time"),
            n => write!(f, "{n} connections had not ended in time"),
        }
    }
}

impl std::error::Error for Unfinished {}

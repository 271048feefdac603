//! Shows a live process that uses [windlass], over HTTP: a page for people, metrics for Prometheus,
//! goroutines with their stacks, CPU profiles, traces. One line in a goroutine starts it:
//!
//! ```
//! # // No goroutine here keeps a thread-local across a call that parks.
//! # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
//! # rt.run(|| {
//! # let addr = "127.0.0.1:0";
//! let console = windlass_console::serve(addr)?; // "127.0.0.1:6060", say
//! println!("see http://{}/", console.local_addr());
//! # console.shutdown();
//! # Ok::<(), std::io::Error>(())
//! # })?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! | path | what is there |
//! |---|---|
//! | `/` | a page, kept up to date: Ps by node, queues, goroutines that stand out, histograms |
//! | `/metrics` | the counters, in Prometheus' text format, and [the program's own](Console::metrics) |
//! | `/debug/goroutines` | goroutines grouped by stack; `?debug=2` one by one; `?format=json` |
//! | `/debug/leaks` | goroutines that wait for what cannot happen any more: [`Handle::leaks`](windlass::Handle::leaks); `?format=json` |
//! | `/debug/profile?seconds=10` | a CPU profile by goroutine name and label, for `go tool pprof` |
//! | `/debug/contention?seconds=10` | waits for locks, channels and the like, in the same form |
//! | `/debug/trace?seconds=5` | an execution trace, which <https://ui.perfetto.dev> opens |
//! | `/debug/flight` | the flight recorder's events, in the same form |
//! | `/debug/topology.svg` | a picture of the machine and the placement of the Ps |
//! | `/debug/state`, `/events` | what the page shows, as JSON: once, and as server-sent events |
//!
//! The page shows CPU times where the runtime measures them: `windlass::Builder::cpu_accounting(true)`.
//! Stacks and profiles need the feature `backtrace` of this crate, a default. The flight recorder is
//! `windlass::Builder::flight_recorder`.
//!
//! # Who may see it
//!
//! Names of goroutines, functions and files are private, and a profile costs the process some time.
//!
//! - On a loopback address, all users of the machine can connect. Requests whose `Host` is neither
//!   `localhost` nor a loopback address are refused, as are requests that pages of other sites make a
//!   browser send.
//! - A Unix socket has mode 0600: only the same user and root can connect.
//! - Other addresses need a [token](Console::token), which every request must have: in the header
//!   `Authorization: Bearer TOKEN`, or as the parameter `token`. The console speaks no TLS; put a proxy
//!   before it where the network is not trusted.
//!
//! At most 64 connections are open at once: one more takes the place of that which has had no request for longest, or
//! gets status 503 if all are being answered (requests that are refused do not count). Requests have at most 8 KiB and no
//! body, and slow clients are left. One
//! trace, profile or flight record is taken at a time (others get status 409), and four dumps of goroutines (others get
//! status 503).
//!
//! # How it works
//!
//! The console has plain threads of its own, one that accepts and one for each connection. So it answers
//! while all Ps are stuck, and takes none from the program. It needs nothing from the runtime but its
//! [`Handle`]. A program with a console has threads of its own, for which
//! `windlass::Builder::deadlock_detection` reports no deadlock.

mod access;
mod goroutines;
mod http;
mod json;
mod leaks;
mod listen;
mod pprof;
mod prometheus;
mod routes;
mod server;
mod state;

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use windlass::Handle;

use access::Token;
pub use listen::Address;
use listen::Listener;
use prometheus::Own;
use server::Shared;

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

/// How long the end of a console waits for its connections: one that takes a profile cannot be cut
/// short.
const ENDS_WITHIN: Duration = Duration::from_secs(2);

/// Shows the calling goroutine's runtime at `address`, until the process ends or
/// [`Server::shutdown`] is called.
///
/// `address` is `host:port`, with 0 for any free port, or the path of a Unix socket: a text with a slash
/// in it, or after `unix:`. This is [`Console::serve`] with default settings, so the address must be a
/// loopback one or a Unix socket.
///
/// # Blocking
///
/// As [`Console::serve`].
///
/// # Errors
///
/// As [`Console::serve`].
///
/// # Examples
///
/// ```
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
/// rt.run(|| {
///     let console = windlass_console::serve("127.0.0.1:0")?;
///     println!("see http://{}/", console.local_addr());
///     Ok::<(), std::io::Error>(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn serve(address: &str) -> io::Result<Server> {
    Console::new().serve(address)
}

/// The counters of a runtime and its process in Prometheus' text format, as a console serves them at `/metrics`:
/// for programs that answer such requests themselves. The content type is `text/plain; version=0.0.4`.
///
/// # Blocking
///
/// Reads files of `/proc`, for some 100 µs.
///
/// # Examples
///
/// ```
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
/// let text = windlass_console::metrics_text(&rt.handle());
/// assert!(text.contains("\nwindlass_processors 2\n"));
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use]
pub fn metrics_text(handle: &Handle) -> String {
    prometheus::page(handle, &Own::default())
}

/// Configures a console.
///
/// # Examples
///
/// ```
/// use windlass_console::Console;
///
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
/// // From any thread, also before the runtime runs.
/// let console = Console::new().handle(rt.handle()).token("0123456789abcdef-secret");
/// let server = console.serve("0.0.0.0:0")?;
/// server.shutdown();
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "a console does nothing until it serves"]
pub struct Console {
    handle: Option<Handle>,
    token: Option<Token>,
    own_metrics: Own,
}

impl Console {
    /// A console of the runtime of the goroutine that calls [`serve`](Console::serve), without a token.
    pub fn new() -> Console {
        Console::default()
    }

    /// Sets the runtime to show.
    pub fn handle(mut self, handle: Handle) -> Console {
        self.handle = Some(handle);
        self
    }

    /// Sets the token that every request must have: 16 bytes or more of printable ASCII without spaces.
    /// Take it from the environment or a file, not from the program's text.
    pub fn token(mut self, token: impl Into<String>) -> Console {
        self.token = Some(Token::new(token.into()));
        self
    }

    /// Adds metrics of the program to `/metrics`: `text` returns them in Prometheus' text format. So there is one port
    /// and one scrape. Names of metrics must differ from those of others; if the text describes the process
    /// (`process_..`), the console does not.
    ///
    /// `text` is called for each scrape, on a thread of the console. If it panics, that scrape gets no answer. It
    /// should not wait for locks that goroutines hold: a console answers while the runtime is stuck.
    ///
    /// # Examples
    ///
    /// With the crate prometheus:
    ///
    /// ```
    /// use prometheus::{TextEncoder, gather, register_int_counter};
    /// use windlass_console::Console;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # // SAFETY: nothing here keeps a thread-local across a call that parks.
    /// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
    /// let orders = register_int_counter!("orders_total", "Orders taken.")?;
    /// orders.inc();
    /// let console = Console::new()
    ///     .handle(rt.handle())
    ///     .metrics(|| TextEncoder::new().encode_to_string(&gather()).unwrap_or_default());
    /// let server = console.serve("127.0.0.1:0")?;
    /// # server.shutdown();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// With the crate metrics, whose recorder for Prometheus is in metrics-exporter-prometheus:
    ///
    /// ```
    /// use metrics_exporter_prometheus::PrometheusBuilder;
    /// use windlass_console::Console;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # // SAFETY: nothing here keeps a thread-local across a call that parks.
    /// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
    /// let recorder = PrometheusBuilder::new().install_recorder()?;
    /// metrics::counter!("orders_total").increment(1);
    /// let console = Console::new().handle(rt.handle()).metrics(move || recorder.render());
    /// let server = console.serve("127.0.0.1:0")?;
    /// # server.shutdown();
    /// # Ok(())
    /// # }
    /// ```
    pub fn metrics(mut self, text: impl Fn() -> String + Send + Sync + 'static) -> Console {
        self.own_metrics.add(text);
        self
    }

    /// Begins to serve at `address`, in the form of [`serve`](crate::serve()).
    ///
    /// The file of a Unix socket that a process has left behind is replaced.
    ///
    /// # Blocking
    ///
    /// A name in `address` is looked up, which may block the thread; numbers are not. For a Unix socket it
    /// waits until other consoles have begun in the same directory, for a second at most.
    ///
    /// # Errors
    ///
    /// - `InvalidInput` for an address that cannot be understood, for one that other machines can reach
    ///   without a token, for a token that is too short or has other characters, and on a plain thread
    ///   without [`Console::handle`].
    /// - The kernel's error if it cannot listen there, or has no thread to spare.
    pub fn serve(self, address: &str) -> io::Result<Server> {
        let Some(handle) = self.handle.or_else(Handle::try_current) else {
            return Err(listen::invalid(
                "serve was called outside of a runtime: call it in a goroutine, or set Console::handle",
            ));
        };
        if let Some(token) = &self.token {
            check_token(token.text())?;
        }
        let address = Address::parse(address)?;
        if address.is_public() && self.token.is_none() {
            return Err(listen::invalid(&format!(
                "other machines may reach {address}: set Console::token, or choose a loopback address"
            )));
        }
        let listener = Listener::bind(&address)?;
        let shared = Arc::new(Shared::new(
            handle,
            listener.address()?,
            self.token,
            self.own_metrics,
        ));
        let listener = Arc::new(listener);
        let thread = {
            let (shared, listener) = (Arc::clone(&shared), Arc::clone(&listener));
            thread::Builder::new()
                .name("windlass-console".to_owned())
                .spawn(move || server::accept_all(&shared, &listener))?
        };
        Ok(Server {
            shared,
            listener,
            thread,
        })
    }
}

fn check_token(token: &str) -> io::Result<()> {
    if token.len() < access::TOKEN_BYTES {
        let least = access::TOKEN_BYTES;
        let why = format!("a token needs {least} bytes or more, so that nobody can guess it");
        return Err(listen::invalid(&why));
    }
    if !token.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(listen::invalid(
            "a token has printable ASCII characters only, and no spaces",
        ));
    }
    Ok(())
}

/// A console that serves. It goes on when this is dropped.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    listener: Arc<Listener>,
    thread: JoinHandle<()>,
}

impl Server {
    /// Where it listens, with the port that the kernel chose, or the whole path of a Unix socket.
    #[must_use]
    pub fn local_addr(&self) -> &Address {
        &self.shared.address
    }

    /// Ends the console: it accepts no more, ends its connections, and removes the file of a Unix
    /// socket. A profile that is being taken ends by itself, later.
    ///
    /// # Blocking
    ///
    /// Blocks the thread until the console's threads have ended, for two seconds at most.
    ///
    /// # Examples
    ///
    /// ```
    /// # // SAFETY: nothing here keeps a thread-local across a call that parks.
    /// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
    /// let console = windlass_console::Console::new().handle(rt.handle());
    /// let server = console.serve("127.0.0.1:0")?;
    /// server.shutdown();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn shutdown(self) {
        self.shared.end();
        self.listener.close();
        // It cannot panic.
        let _ = self.thread.join();
        self.shared.wait_for_connections(ENDS_WITHIN);
    }
}

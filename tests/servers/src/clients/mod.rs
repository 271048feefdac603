//! The clients: what each connects to, and a short dialogue whose answers are checked.

pub mod http;
pub mod sql;
pub mod tls;

mod mail;
mod mqtt;
mod redis;

use std::error::Error;
use std::fmt::{self, Debug, Formatter};
use std::path::PathBuf;
use std::thread;

use windlass::channel::{Receiver, Sender, bounded};

use crate::servers::Kind;

/// The result of a dialogue.
pub type Result<T = ()> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// A connection. It is called with the number of the dialogue, so that no two dialogues get the same
/// answers.
type Session = Box<dyn FnMut(usize) -> Result + Send>;

/// Opens connections.
type Opener = Box<dyn Fn() -> Result<Session> + Send + Sync>;

/// A crate that is tested.
#[derive(Clone, Copy, Debug)]
pub struct Client {
    /// Its name in the tables.
    pub name: &'static str,
    /// The server that it needs.
    pub server: Kind,
    /// How many connections there are at most.
    pub limit: usize,
    /// Whether its waits may park the goroutine. Otherwise its dialogues run in `windlass::blocking`.
    pub parks: bool,
    /// Makes what all connections share.
    prepare: fn(&World) -> Result<Opener>,
}

/// The surroundings of a client.
#[derive(Clone, Debug)]
pub struct World {
    /// The port of the server, on 127.0.0.1.
    pub port: u16,
    /// The server's directory.
    pub dir: PathBuf,
    /// Where a crate that is a server itself runs.
    pub home: Home,
}

/// A way to run a function beside others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// Threads of the system.
    Threads,
    /// Goroutines.
    Goroutines,
}

impl Home {
    /// Runs `f` on a thread or a goroutine of its own.
    pub fn spawn(self, f: impl FnOnce() + Send + 'static) {
        match self {
            Home::Threads => drop(thread::spawn(f)),
            Home::Goroutines => drop(windlass::spawn(f)),
        }
    }
}

/// All clients.
pub const CLIENTS: &[Client] = &[
    Client {
        name: "redis",
        server: Kind::Redis,
        limit: 1000,
        parks: true,
        prepare: redis::plain,
    },
    Client {
        name: "redis in r2d2",
        server: Kind::Redis,
        limit: 1000,
        parks: true,
        prepare: redis::pooled,
    },
    Client {
        name: "redis in r2d2, Semaphore",
        server: Kind::Redis,
        limit: redis::POOL as usize,
        parks: true,
        prepare: redis::pooled,
    },
    Client {
        name: "mysql",
        server: Kind::MariaDb,
        limit: 100,
        parks: true,
        prepare: sql::mysql,
    },
    Client {
        name: "postgres",
        server: Kind::Postgres,
        limit: 100,
        parks: true,
        prepare: sql::postgres,
    },
    Client {
        name: "lettre",
        server: Kind::Smtp,
        limit: 100,
        parks: true,
        prepare: mail::lettre,
    },
    Client {
        name: "suppaftp",
        server: Kind::Ftp,
        limit: 100,
        parks: true,
        prepare: mail::suppaftp,
    },
    Client {
        name: "minreq",
        server: Kind::Http,
        limit: 1000,
        parks: true,
        prepare: http::minreq,
    },
    Client {
        name: "minreq, slow server",
        server: Kind::SlowHttp,
        limit: 1000,
        parks: true,
        prepare: http::minreq,
    },
    Client {
        name: "tiny_http",
        server: Kind::Nothing,
        limit: 1000,
        parks: true,
        prepare: http::tiny_http,
    },
    Client {
        name: "native-tls",
        server: Kind::NativeTls,
        limit: 100,
        parks: true,
        prepare: tls::native_tls,
    },
    Client {
        name: "native-tls, few",
        server: Kind::NativeTls,
        limit: 8,
        parks: true,
        prepare: tls::native_tls,
    },
    Client {
        name: "rustls",
        server: Kind::Rustls,
        limit: 100,
        parks: true,
        prepare: tls::rustls,
    },
    Client {
        name: "rumqttc",
        server: Kind::Mqtt,
        limit: 100,
        parks: true,
        prepare: mqtt::rumqttc,
    },
    // SQLite sleeps inside its calls while another connection writes, and its mutexes know their thread.
    Client {
        name: "rusqlite",
        server: Kind::Nothing,
        limit: 16,
        parks: false,
        prepare: sql::rusqlite,
    },
];

impl Client {
    /// The client of this name.
    ///
    /// # Errors
    ///
    /// There is none. The text lists all names.
    pub fn named(name: &str) -> Result<&'static Client> {
        let names: Vec<_> = CLIENTS.iter().map(|client| client.name).collect();
        CLIENTS
            .iter()
            .find(|client| client.name == name)
            .ok_or_else(|| format!("no client {name:?}; there are: {}", names.join(", ")).into())
    }
}

/// The connections of a client. They are opened when they are needed, and kept.
pub struct Pool {
    open: Opener,
    give: Sender<Option<Session>>,
    take: Receiver<Option<Session>>,
}

/// A connection that is out of the pool. It goes back when it is dropped.
pub struct Seat<'a> {
    pool: &'a Pool,
    session: Option<Session>,
}

impl Pool {
    /// A pool of as many connections as the client may have.
    ///
    /// # Errors
    ///
    /// Errors of the crate.
    pub fn new(client: &Client, world: &World) -> Result<Pool> {
        let (give, take) = bounded(client.limit);
        for _ in 0..client.limit {
            // There is room.
            let _ = give.send(None);
        }
        let open = (client.prepare)(world)?;
        Ok(Pool { open, give, take })
    }

    /// Waits for a connection.
    ///
    /// # Panics
    ///
    /// Not while the pool exists.
    pub fn seat(&self) -> Seat<'_> {
        let session = self.take.recv().expect("the pool has the other end");
        Seat {
            pool: self,
            session,
        }
    }
}

impl Seat<'_> {
    /// Dialogue number `i`.
    ///
    /// # Errors
    ///
    /// Errors of the crate, and wrong answers.
    pub fn talk(&mut self, i: usize) -> Result {
        let mut session = match self.session.take() {
            Some(session) => session,
            None => (self.pool.open)()?,
        };
        session(i)?;
        // A connection that failed is closed.
        self.session = Some(session);
        Ok(())
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        // There is room: this one was taken out.
        let _ = self.pool.give.send(self.session.take());
    }
}

impl Debug for Pool {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").finish_non_exhaustive()
    }
}

impl Debug for Seat<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seat").finish_non_exhaustive()
    }
}

/// Fails if the answer is another one than expected.
fn check<T: PartialEq + Debug>(got: &T, expected: &T) -> Result {
    if got == expected {
        return Ok(());
    }
    Err(format!("{got:?} instead of {expected:?}").into())
}

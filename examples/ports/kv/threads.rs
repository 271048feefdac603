//! A key-value server: a thread for each connection, SQLite as the store, and another HTTP server for
//! the keys that are not there.
//!
//! ```text
//! kv HOST:PORT DATABASE [http://HOST:PORT/PATH]
//! ```
//!
//! A request is a line, and so is its answer: `SET key value`, `GET key`, `DEL key`, `COUNT`. A key
//! that the database does not have is asked for at the given address, with the key as the last part of
//! the path, and is stored.

use std::env;
use std::error::Error;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension};

const USAGE: &str = "usage: kv HOST:PORT DATABASE [http://HOST:PORT/PATH]";

/// How long the other server may take to answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where values come from.
struct Store {
    database: Mutex<Connection>,
    upstream: Option<String>,
    agent: ureq::Agent,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let (address, path, upstream) = match &arguments[..] {
        [address, path] => (address, path, None),
        [address, path, upstream] => (address, path, Some(upstream.clone())),
        _ => {
            eprintln!("{USAGE}");
            process::exit(2);
        }
    };
    let store = Arc::new(Store::open(path, upstream)?);
    let listener = TcpListener::bind(address)?;
    println!("{}", listener.local_addr()?);
    for stream in listener.incoming() {
        let (stream, store) = (stream?, Arc::clone(&store));
        thread::spawn(move || {
            if let Err(error) = serve(&stream, &store) {
                eprintln!("a connection ends: {error}");
            }
        });
    }
    Ok(())
}

/// Answers the requests of a client until it closes the connection.
fn serve(stream: &TcpStream, store: &Store) -> io::Result<()> {
    let mut writer = stream;
    for line in BufReader::new(stream).lines() {
        let answer = match store.answer(&line?) {
            Ok(answer) => answer,
            Err(error) => format!("ERROR {error}"),
        };
        writeln!(writer, "{answer}")?;
    }
    Ok(())
}

impl Store {
    fn open(path: &str, upstream: Option<String>) -> Result<Store, rusqlite::Error> {
        let database = Connection::open(path)?;
        database.execute_batch(
            "PRAGMA synchronous = OFF;
             CREATE TABLE IF NOT EXISTS pairs (key TEXT PRIMARY KEY, value TEXT NOT NULL);",
        )?;
        let config = ureq::Agent::config_builder();
        let config = config.timeout_recv_response(Some(PATIENCE)).build();
        Ok(Store {
            database: Mutex::new(database),
            upstream,
            agent: ureq::Agent::new_with_config(config),
        })
    }

    fn answer(&self, request: &str) -> Result<String, Box<dyn Error>> {
        let mut words = request.splitn(3, ' ');
        match (words.next(), words.next(), words.next()) {
            (Some("SET"), Some(key), Some(value)) => {
                self.set(key, value)?;
                Ok("OK".into())
            }
            (Some("GET"), Some(key), None) => match self.get(key)? {
                Some(value) => Ok(format!("VALUE {value}")),
                None => Ok("NONE".into()),
            },
            (Some("DEL"), Some(key), None) => Ok(format!("{}", self.delete(key)?)),
            (Some("COUNT"), None, None) => Ok(format!("{}", self.count()?)),
            _ => Err("a request is SET key value, GET key, DEL key or COUNT".into()),
        }
    }

    fn set(&self, key: &str, value: &str) -> Result<(), rusqlite::Error> {
        let database = self.database.lock().unwrap();
        let mut insert = database.prepare("INSERT OR REPLACE INTO pairs VALUES (?1, ?2)")?;
        insert.execute([key, value])?;
        Ok(())
    }

    fn get(&self, key: &str) -> Result<Option<String>, Box<dyn Error>> {
        if let Some(value) = self.stored(key)? {
            return Ok(Some(value));
        }
        let Some(value) = self.fetch(key)? else {
            return Ok(None);
        };
        self.set(key, &value)?;
        Ok(Some(value))
    }

    fn stored(&self, key: &str) -> Result<Option<String>, rusqlite::Error> {
        let database = self.database.lock().unwrap();
        let mut select = database.prepare("SELECT value FROM pairs WHERE key = ?1")?;
        select.query_row([key], |row| row.get(0)).optional()
    }

    /// Asks the other server, without the lock.
    fn fetch(&self, key: &str) -> Result<Option<String>, ureq::Error> {
        let Some(upstream) = &self.upstream else {
            return Ok(None);
        };
        match self.agent.get(format!("{upstream}/{key}")).call() {
            Ok(mut answer) => Ok(Some(answer.body_mut().read_to_string()?)),
            Err(ureq::Error::StatusCode(404)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn delete(&self, key: &str) -> Result<usize, rusqlite::Error> {
        let database = self.database.lock().unwrap();
        database.execute("DELETE FROM pairs WHERE key = ?1", [key])
    }

    fn count(&self) -> Result<u32, rusqlite::Error> {
        let database = self.database.lock().unwrap();
        database.query_row("SELECT count(*) FROM pairs", [], |row| row.get(0))
    }
}

//! The goroutines of a server. All of them share the [`Replica`] behind one lock, and wait for one
//! another by three condition variables:
//!
//! | goroutine | does | waits for |
//! |---|---|---|
//! | of `serve` | writes records to the log, syncs, and says so | `to_save` |
//! | one for each other server | sends it what it has to know, takes the answer | `to_send`, the time |
//! | the clock | elections | the time |
//! | one for each connection | takes requests, answers | `progress` |

use std::io;
use std::sync::PoisonError;

use windlass::net::{Graceful, TcpListener, TcpStream};
use windlass::sync::{Arc, Condvar, Mutex, MutexGuard};
use windlass::time::{Duration, Instant, sleep, sleep_until};

use super::connection::Connection;
use super::log::Log;
use super::protocol::{Command, MAX_COMMAND_BYTES, Request, Response};
use super::replica::{Replica, Task};
use super::{Bug, Config};

/// How long a connection may be silent.
const IDLE: Duration = Duration::from_secs(600);

struct Server {
    config: Config,
    replica: Mutex<Replica>,
    /// There are records to save.
    to_save: Condvar,
    /// There may be something to send to other servers.
    to_send: Condvar,
    /// Something was saved, committed or confirmed, or there is another primary.
    progress: Condvar,
}

/// Serves until the disk fails. Then the process has to end, since nobody knows what the disk has: the
/// caller must not call this again in the same process.
pub(crate) fn serve(listener: TcpListener, config: Config) -> io::Error {
    match run(listener, config) {
        Ok(never) => match never {},
        Err(error) => error,
    }
}

/// A type without values.
enum Never {}

fn run(listener: TcpListener, config: Config) -> io::Result<Never> {
    let (mut log, found) = Log::open(&config.data)?;
    let server = Arc::new(Server {
        replica: Mutex::new(Replica::new(&config, found, Instant::now())),
        to_save: Condvar::new(),
        to_send: Condvar::new(),
        progress: Condvar::new(),
        config,
    });
    let n_servers = server.config.cluster.len();
    for peer in (0..n_servers).filter(|&id| id != server.config.id) {
        let server = Arc::clone(&server);
        windlass::spawn(move || server.talk_to(peer));
    }
    let ticking = Arc::clone(&server);
    windlass::spawn(move || ticking.tick());
    let accepting = Arc::clone(&server);
    windlass::spawn(move || {
        // It never stops: a server that ends loses nothing that its log has.
        let ended = Graceful::new().serve(listener, move |stream, _| {
            // Errors of a connection concern only its peer.
            let _ = accepting.talk_with(stream);
        });
        if let Err(error) = ended {
            eprintln!("cannot accept connections any more: {error}");
            std::process::exit(1);
        }
    });
    server.save_records(&mut log)
}

/// Waits for a notification. One may come without a reason, too.
fn wait<'a>(condvar: &Condvar, replica: MutexGuard<'a, Replica>) -> MutexGuard<'a, Replica> {
    let waited = condvar.wait(replica);
    waited.unwrap_or_else(PoisonError::into_inner)
}

impl Server {
    fn lock(&self) -> MutexGuard<'_, Replica> {
        let locked = self.replica.lock();
        locked.unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a step of the protocol, and wakes those that wait for what has come of it.
    fn step<T>(&self, step: impl FnOnce(&mut Replica) -> T) -> T {
        let mut replica = self.lock();
        let n_records = replica.queued;
        let outcome = step(&mut replica);
        let has_new_records = replica.queued > n_records;
        let news = std::mem::take(&mut replica.news);
        drop(replica);
        if has_new_records {
            self.to_save.notify_one();
        }
        if news.to_send {
            self.to_send.notify_all();
        }
        if news.progress {
            self.progress.notify_all();
        }
        outcome
    }

    /// Waits until a look at the replica gives something.
    fn wait_for<T>(&self, look: impl Fn(&Replica) -> Option<T>) -> T {
        let mut replica = self.lock();
        loop {
            if let Some(found) = look(&replica) {
                return found;
            }
            replica = wait(&self.progress, replica);
        }
    }

    /// Writes records to the log, and says that they are durable. All that come while the disk is busy
    /// share the next sync.
    fn save_records(&self, log: &mut Log) -> io::Result<Never> {
        let mut replica = self.lock();
        loop {
            // The look and the wait are under the lock under which records are added. What came while
            // the log was being written is seen here, although its notification met nobody.
            if self.config.bug == Some(Bug::LostWake) {
                replica = wait(&self.to_save, replica);
            }
            while !replica.has_records() {
                replica = wait(&self.to_save, replica);
            }
            let (records, last) = replica.take_records();
            drop(replica);
            log.write(&records)?;
            if self.config.bug == Some(Bug::AcknowledgeBeforeSync) {
                self.step(|replica| replica.note_saved(last, Instant::now()));
            }
            log.sync()?;
            self.step(|replica| replica.note_saved(last, Instant::now()));
            replica = self.lock();
        }
    }

    /// Elections.
    fn tick(&self) {
        loop {
            let next = self.step(|replica| replica.tick(Instant::now()));
            sleep_until(next);
        }
    }

    /// Tells another server what it has to know.
    fn talk_to(&self, peer: usize) {
        let answer = self.config.timing.answer;
        let mut connection: Option<Connection> = None;
        loop {
            let request = self.next_request(peer);
            let sent = Instant::now();
            let open = match connection.take() {
                Some(open) => Ok(open),
                None => Connection::open(self.config.cluster[peer], answer),
            };
            let asked = open.and_then(|mut open| {
                let response = open.ask(&request)?;
                connection = Some(open);
                Ok(response)
            });
            match asked {
                Ok(response) => self.step(|replica| {
                    replica.take_response(peer, &request, &response, sent, Instant::now());
                }),
                Err(_) => sleep(self.config.timing.pause),
            }
        }
    }

    /// Waits until there is something to send to another server.
    fn next_request(&self, peer: usize) -> Request {
        let mut replica = self.lock();
        loop {
            let now = Instant::now();
            replica = match replica.task_for(peer, now) {
                Task::Send(request) => return request,
                Task::WaitUntil(due) => {
                    let waited = self.to_send.wait_timeout(replica, due - now);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                Task::Wait => wait(&self.to_send, replica),
            };
        }
    }

    /// Answers the requests of one connection.
    fn talk_with(&self, stream: TcpStream) -> io::Result<()> {
        let mut connection = Connection::new(stream, IDLE)?;
        loop {
            let request = connection.request()?;
            let response = match request {
                Request::Vote {
                    term,
                    candidate,
                    last,
                } => self.answer_peer(|replica| {
                    let granted = replica.give_vote(term, candidate, last, Instant::now());
                    let term = replica.term;
                    Response::Vote { term, granted }
                }),
                Request::Append {
                    term,
                    primary,
                    previous,
                    entries,
                    commit,
                    read: _,
                } => self.answer_peer(|replica| {
                    let now = Instant::now();
                    let matched = replica.append(term, primary, previous, entries, commit, now);
                    let term = replica.term;
                    Response::Append { term, matched }
                }),
                Request::Command {
                    client,
                    number,
                    command,
                } => {
                    if command.len() > MAX_COMMAND_BYTES {
                        return Err(io::ErrorKind::InvalidInput.into());
                    }
                    self.carry_out(client, number, command)
                }
            };
            connection.answer(&response)?;
        }
    }

    /// Takes a step for another server, and waits until all that the answer promises is on disk.
    fn answer_peer(&self, step: impl FnOnce(&mut Replica) -> Response) -> Response {
        let (response, last) = self.step(|replica| (step(replica), replica.queued));
        let now = self.wait_for(|replica| (replica.saved >= last).then_some(replica.term));
        match response {
            // A later primary may have replaced the entries meanwhile.
            Response::Append { term, .. } if term != now => Response::Append {
                term: now,
                matched: Err(0),
            },
            response => response,
        }
    }

    fn carry_out(&self, client: u64, number: u64, command: Command) -> Response {
        match command {
            Command::Get { key } => {
                let reading = self.step(Replica::begin_read);
                self.wait_for(|replica| replica.read(&reading, &key))
            }
            change => {
                let proposal = self.step(|replica| replica.propose(client, number, change));
                self.wait_for(|replica| replica.outcome(&proposal))
            }
        }
    }
}

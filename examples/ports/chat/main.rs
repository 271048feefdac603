//! A chat server: what a client writes, all clients get.
//!
//! ```text
//! chat HOST:PORT
//! ```
//!
//! The first line of a client is its name. A client that reads too slowly, or is silent for too
//! long, is sent away.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Lines, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::{env, process};

use windlass::channel::{Receiver, Sender, bounded, select};
use windlass::net::{TcpListener, TcpStream};
use windlass::time::{Duration, Instant};

const BACKLOG: usize = 16;
const SILENCE: Duration = Duration::from_secs(5 * 60);

struct Client {
    id: usize,
    name: Arc<str>,
    out: Sender<String>,
}

#[derive(Clone)]
struct Room {
    join: Sender<Client>,
    leave: Sender<(usize, Arc<str>)>,
    say: Sender<String>,
}

impl Room {
    /// Starts the goroutine that has the clients to itself, so that there is no lock. Only it sends
    /// to their channels and closes them.
    fn start() -> Room {
        let (join, joining) = bounded::<Client>(0);
        let (leave, leaving) = bounded::<(usize, Arc<str>)>(0);
        let (say, said) = bounded::<String>(0);
        windlass::spawn(move || {
            let mut clients = HashMap::new();
            loop {
                select! {
                    recv(joining) -> client => {
                        let Ok(Client { id, name, out }) = client else { return };
                        clients.insert(id, out);
                        tell(&mut clients, &format!("* {name} is here"));
                    }
                    recv(leaving) -> client => {
                        let Ok((id, name)) = client else { return };
                        clients.remove(&id);
                        tell(&mut clients, &format!("* {name} has left"));
                    }
                    recv(said) -> line => {
                        let Ok(line) = line else { return };
                        tell(&mut clients, &line);
                    }
                }
            }
        });
        Room { join, leave, say }
    }

    fn serve(&self, id: usize, stream: Arc<TcpStream>) -> io::Result<()> {
        let mut lines = BufReader::new(&*stream).lines();
        let Some(name) = next_line(&stream, &mut lines)? else {
            return Ok(());
        };
        let name = Arc::<str>::from(name);
        let (out, lines_out) = bounded(BACKLOG);
        let writer = Arc::clone(&stream);
        windlass::spawn(move || {
            let written = write_lines(&writer, &lines_out);
            // The reader ends, too, as with a closed connection in Go.
            let _ = writer.shutdown(Shutdown::Both);
            written
        });
        let client = Client {
            id,
            name: Arc::clone(&name),
            out,
        };
        self.join.send(client).unwrap();
        let ended = self.pass_on(&name, &stream, &mut lines);
        self.leave.send((id, name)).unwrap();
        ended
    }

    fn pass_on(
        &self,
        name: &str,
        stream: &TcpStream,
        lines: &mut Lines<BufReader<&TcpStream>>,
    ) -> io::Result<()> {
        while let Some(line) = next_line(stream, lines)? {
            self.say.send(format!("{name}: {line}")).unwrap();
        }
        Ok(())
    }
}

/// Sends a line to all clients, but for those that read too slowly.
fn tell(clients: &mut HashMap<usize, Sender<String>>, line: &str) {
    clients.retain(|_, out| out.try_send(line.to_owned()).is_ok());
}

fn next_line(
    stream: &TcpStream,
    lines: &mut Lines<BufReader<&TcpStream>>,
) -> io::Result<Option<String>> {
    stream.set_read_deadline(Some(Instant::now() + SILENCE));
    lines.next().transpose()
}

fn write_lines(mut stream: &TcpStream, lines: &Receiver<String>) -> io::Result<()> {
    for line in lines {
        stream.write_all(format!("{line}\n").as_bytes())?;
    }
    Ok(())
}

#[windlass::main(unsafe(no_thread_local_across_waits))]
fn main() -> io::Result<()> {
    let Some(address) = env::args().nth(1) else {
        eprintln!("usage: chat HOST:PORT");
        process::exit(2);
    };
    let listener = TcpListener::bind(address)?;
    println!("{}", listener.local_addr()?);
    let room = Room::start();
    for (id, stream) in listener.incoming().enumerate() {
        let (room, stream) = (room.clone(), Arc::new(stream?));
        windlass::spawn(move || room.serve(id, stream));
    }
    Ok(())
}

//! A server is replaced under load; systemd's protocol, with its own program where it is installed.
#![allow(unsafe_code)]
#![allow(clippy::print_stdout, reason = "the server says where it listens")]

#[path = "../../../tests/util/mod.rs"]
mod util;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use windlass::net::{Graceful, Member, TcpStream as Stream};
use windlass::signal::{SIGTERM, SIGUSR2, Signals};
use windlass_handover as handover;

/// Longer than any test takes.
const FOREVER: Duration = Duration::from_secs(300);

/// Sends back its own process's number for each byte, on a line.
fn answer(mut stream: Stream, member: &Member) -> std::io::Result<()> {
    let mut byte = [0];
    while let Some(1) = member.idle(|| stream.read(&mut byte))? {
        writeln!(stream, "{}", std::process::id())?;
        if member.is_stopping() {
            break;
        }
    }
    Ok(())
}

/// A server of another test: SIGUSR2 replaces it, SIGTERM ends it.
#[test]
fn server_of_another_test() {
    let Some(case) = util::child_case() else {
        return;
    };
    util::run(2, move || {
        let signals = Signals::new([SIGTERM, SIGUSR2]).unwrap();
        let listener = handover::listen(util::own_addr()).unwrap();
        let addr = listener.local_addr().unwrap();
        // Clients that are slow to send their request are not left.
        let (passed, server) = (listener.try_clone().unwrap(), Graceful::with_grace(FOREVER));
        let stopper = server.clone();
        windlass::spawn(move || {
            while matches!(signals.recv(), Ok(SIGUSR2)) {
                match handover::replace(&[passed.as_fd()], FOREVER) {
                    Ok(_) => return stopper.hand_over(),
                    Err(error) => println!("failed: {:?}", error.kind()),
                }
            }
            handover::stopping().unwrap();
            stopper.stop();
        });
        if case == "dies" && std::env::var_os("WINDLASS_HANDOVER").is_some() {
            std::process::exit(7);
        }
        println!("serves {addr} as {}", std::process::id());
        handover::ready().unwrap();
        server
            .serve(listener, |stream, member| drop(answer(stream, member)))
            .unwrap();
        server.shutdown(FOREVER).unwrap();
    });
}

/// The lines that a server and those after it print.
struct Lines(std::io::Lines<BufReader<std::process::ChildStdout>>);

impl Lines {
    fn of(child: &mut Child) -> Lines {
        Lines(BufReader::new(child.stdout.take().unwrap()).lines())
    }

    /// The rest of the next line that begins so.
    fn next(&mut self, begin: &str) -> String {
        let mut lines = self.0.by_ref().map(Result::unwrap);
        // The harness writes the name of the test before it.
        lines
            .find_map(|line| line.split_once(begin).map(|(_, rest)| rest.to_owned()))
            .unwrap()
    }

    fn serving(&mut self) -> (SocketAddr, i32) {
        let rest = self.next("serves ");
        let (addr, pid) = rest.split_once(" as ").unwrap();
        (addr.parse().unwrap(), pid.parse().unwrap())
    }
}

fn command(case: &str) -> Command {
    let mut command = util::child_command("server_of_another_test", case);
    command.stdout(Stdio::piped());
    command
}

fn signal(pid: i32, signal: i32) {
    // SAFETY: takes plain integers; the process is one of this test, and has not ended.
    assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
}

/// One request; the number of the process that has answered it.
fn ask(stream: &mut BufReader<TcpStream>) -> std::io::Result<i32> {
    stream.get_mut().write_all(b"?")?;
    let mut line = String::new();
    stream.read_line(&mut line)?;
    line.trim_end()
        .parse()
        .map_err(|_| std::io::ErrorKind::UnexpectedEof.into())
}

fn connect(addr: SocketAddr) -> std::io::Result<BufReader<TcpStream>> {
    TcpStream::connect(addr).map(BufReader::new)
}

#[test]
fn a_server_is_replaced_ten_times_under_load_and_nothing_is_lost() {
    let _guard = util::hang_guard();
    let mut first = command("").spawn().unwrap();
    let mut lines = Lines::of(&mut first);
    let (addr, mut pid) = lines.serving();
    let (n_answers, is_over) = (
        Arc::new(AtomicUsize::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    let clients: Vec<_> = (0..8)
        .map(|_| {
            let (n_answers, is_over) = (Arc::clone(&n_answers), Arc::clone(&is_over));
            thread::spawn(move || {
                while !is_over.load(Ordering::SeqCst) {
                    // A connection for each request: one that is kept may end after any answer.
                    connect(addr)
                        .and_then(|mut stream| ask(&mut stream))
                        .unwrap();
                    n_answers.fetch_add(1, Ordering::SeqCst);
                }
            })
        })
        .collect();
    for _ in 0..10 {
        let seen = n_answers.load(Ordering::SeqCst);
        util::wait_until(|| n_answers.load(Ordering::SeqCst) > seen + 50);
        // It is answered by the process that has accepted it, also after the next one serves. The one before may
        // still take what was queued.
        let mut kept = loop {
            let mut stream = connect(addr).unwrap();
            if ask(&mut stream).unwrap() == pid {
                break stream;
            }
        };
        signal(pid, libc::SIGUSR2);
        let (same, next) = lines.serving();
        assert!(same == addr && next != pid);
        // All that is new comes to it.
        util::wait_until(|| {
            connect(addr)
                .and_then(|mut stream| ask(&mut stream))
                .unwrap()
                == next
        });
        assert_eq!(ask(&mut kept).unwrap(), pid);
        pid = next;
    }
    assert!(first.wait().unwrap().success());
    is_over.store(true, Ordering::SeqCst);
    for client in clients {
        client.join().unwrap();
    }
    eprintln!(
        "{} answers by 11 processes, none lost",
        n_answers.load(Ordering::SeqCst)
    );
    signal(pid, libc::SIGTERM);
    // The last has ended when nobody has the pipe any more.
    let rest: Vec<String> = lines.0.map(Result::unwrap).collect();
    assert!(
        !rest.iter().any(|line| line.contains("failed: ")),
        "{rest:?}"
    );
    assert!(TcpStream::connect(addr).is_err());
}

#[test]
fn the_old_process_goes_on_where_the_new_one_ends_early() {
    let _guard = util::hang_guard();
    let mut server = command("dies").spawn().unwrap();
    let mut lines = Lines::of(&mut server);
    let (addr, pid) = lines.serving();
    signal(pid, libc::SIGUSR2);
    assert_eq!(lines.next("failed: "), "UnexpectedEof");
    assert_eq!(ask(&mut connect(addr).unwrap()).unwrap(), pid);
    signal(pid, libc::SIGTERM);
    assert!(server.wait().unwrap().success());
}

/// A place for the notices that systemd would get.
fn notices(name: &str) -> (PathBuf, UnixDatagram) {
    let path = std::env::temp_dir().join(format!("windlass-{name}-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let socket = UnixDatagram::bind(&path).unwrap();
    (path, socket)
}

fn notice(socket: &UnixDatagram) -> String {
    let mut buf = [0; 100];
    let n = socket.recv(&mut buf).unwrap();
    String::from_utf8_lossy(&buf[..n]).into_owned()
}

#[test]
fn systemd_is_told() {
    let _guard = util::hang_guard();
    let (path, socket) = notices("notices");
    let mut server = command("").env("NOTIFY_SOCKET", &path).spawn().unwrap();
    let mut lines = Lines::of(&mut server);
    let (_, pid) = lines.serving();
    assert_eq!(notice(&socket), "READY=1");
    signal(pid, libc::SIGUSR2);
    let (_, next) = lines.serving();
    assert_eq!(notice(&socket), format!("MAINPID={next}\nREADY=1"));
    assert!(server.wait().unwrap().success());
    signal(next, libc::SIGTERM);
    assert_eq!(notice(&socket), "STOPPING=1");
    lines.0.for_each(drop);
    std::fs::remove_file(path).unwrap();
}

/// Starts the program that does what systemd does for a socket, at a free port, and returns its lines on stderr, the
/// first of which says that it listens. `None` if it is not installed.
///
/// Before that line, the port may still belong to the listener that has found it: a process that another test forks
/// just then has a copy until it begins its program.
fn activate(addr: SocketAddr) -> Option<(Child, BufReader<ChildStderr>)> {
    let template = command("");
    let mut activate = Command::new("systemd-socket-activate");
    activate.args(["-l", &addr.to_string()]);
    for (name, value) in template.get_envs() {
        let name = name.to_str().unwrap();
        if let Some(value) = value {
            activate.args(["-E", &format!("{name}={}", value.to_str().unwrap())]);
        }
    }
    activate
        .arg(template.get_program())
        .args(template.get_args())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = activate.spawn().ok()?;
    let mut says = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("Listening on") {
        line.clear();
        assert_ne!(says.read_line(&mut line).unwrap(), 0, "it does not listen");
    }
    Some((child, says))
}

#[test]
fn a_socket_of_systemd_is_served_and_handed_on() {
    let _guard = util::hang_guard();
    let found = std::net::TcpListener::bind(util::own_addr()).unwrap();
    let addr = found.local_addr().unwrap();
    drop(found);
    let Some((mut server, _says)) = activate(addr) else {
        eprintln!("SKIPPED: there is no systemd-socket-activate here");
        return;
    };
    // It starts the server for the first connection.
    let mut stream = connect(addr).unwrap();
    let mut lines = Lines::of(&mut server);
    let (given, pid) = lines.serving();
    assert_eq!(given, addr);
    assert_eq!(ask(&mut stream).unwrap(), pid);
    signal(pid, libc::SIGUSR2);
    let (given, next) = lines.serving();
    assert_eq!(given, addr);
    // The first process ends with its last connection.
    drop(stream);
    util::wait_until(|| ask(&mut connect(addr).unwrap()).unwrap() == next);
    signal(next, libc::SIGTERM);
    assert!(server.wait().unwrap().success());
}

/// A program of another test: takes what was passed to it.
#[test]
fn taker_of_another_test() {
    if util::child_case().is_none() {
        return;
    }
    // The descriptors of a runtime come behind the one that is passed.
    util::run(2, || {
        let sockets = handover::inherited();
        println!("took {}", sockets.len());
        let listener = windlass::net::TcpListener::from(sockets.into_iter().next().unwrap());
        println!("serves {} as 1", listener.local_addr().unwrap());
        assert!(handover::inherited().is_empty());
    });
}

/// Runs the program above with a listener as descriptor 3, and `variables` in the shell's words.
fn took(variables: &str) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let template = util::child_command("taker_of_another_test", "takes");
    let mut shell = Command::new("sh");
    shell
        .args(["-c", &format!("{variables} exec \"$0\" \"$@\" 3<&0")])
        .arg(template.get_program())
        .args(template.get_args())
        .envs(
            template
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        )
        .stdin(std::os::fd::OwnedFd::from(listener))
        .stdout(Stdio::piped());
    let mut taker = shell.spawn().unwrap();
    let mut lines = Lines::of(&mut taker);
    assert_eq!(lines.next("took "), "1");
    assert_eq!(lines.serving().0, addr);
    lines.0.for_each(drop);
    assert!(taker.wait().unwrap().success());
}

#[test]
fn no_more_is_taken_than_was_passed() {
    let _guard = util::hang_guard();
    // Neither the runtime's own descriptors nor memory for as many.
    for n in [2, 40, 2_147_483_640, 4_000_000_000_u32] {
        took(&format!("LISTEN_PID=$$ LISTEN_FDS={n}"));
    }
    // Nothing twice.
    took(&format!("WINDLASS_HANDOVER={}:3,3:3", std::process::id()));
}

//! Servers on loopback, each with its data in a temporary directory. A server ends when its `Server` is
//! dropped.
#![allow(unsafe_code)]

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use crate::clients::{Result, http, sql, tls};

/// How long a server may take to start. A busy machine has other work.
const PATIENCE: Duration = Duration::from_secs(60);

/// How many clients may wait to be accepted.
const BACKLOG: &str = "1024";

/// The address for clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// redis-server.
    Redis,
    /// MariaDB. The user root needs no password.
    MariaDb,
    /// PostgreSQL. The user postgres needs no password.
    Postgres,
    /// mosquitto. It asks nobody for a name.
    Mqtt,
    /// aiosmtpd, which answers each mail with the mail's last line.
    Smtp,
    /// pyftpdlib. Everybody may write.
    Ftp,
    /// A server of HTTP on threads of this process.
    Http,
    /// The address at which each answer takes 20 ms.
    SlowHttp,
    /// A server of native-tls on threads of this process.
    NativeTls,
    /// A server of rustls on threads of this process.
    Rustls,
    /// Only a directory.
    Nothing,
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    /// The port on 127.0.0.1, or 0 where there is no server.
    pub port: u16,
    /// The server's directory. For servers of TLS the certificate is there.
    pub dir: PathBuf,
    process: Option<Process>,
}

impl Server {
    /// Starts a server. Processes end with the calling thread, if they did not end before.
    ///
    /// # Errors
    ///
    /// The text says why there is no server: it is not installed, or it did not start.
    pub fn start(kind: Kind) -> Result<Server> {
        let dir = new_dir()?;
        let server = match kind {
            Kind::Redis => start_process(&dir, redis, accepts, libc::SIGKILL),
            Kind::MariaDb => start_process(&dir, mariadb, accepts, libc::SIGKILL),
            // At this signal it ends its children, and itself at once.
            Kind::Postgres => start_process(&dir, postgres, logs_in, libc::SIGQUIT),
            Kind::Mqtt => start_process(&dir, mosquitto, accepts, libc::SIGKILL),
            Kind::Smtp => start_python(&dir, "aiosmtpd", include_str!("../python/smtp.py")),
            Kind::Ftp => start_python(&dir, "pyftpdlib", include_str!("../python/ftp.py")),
            Kind::Http => serve(|stream| Ok(http::answer(stream, || ())?)),
            Kind::SlowHttp => serve(|stream| {
                Ok(http::answer(stream, || {
                    thread::sleep(Duration::from_millis(20))
                })?)
            }),
            Kind::NativeTls | Kind::Rustls => serve_tls(&dir, kind),
            Kind::Nothing => Ok((0, None)),
        };
        match server {
            Ok((port, process)) => Ok(Server { port, dir, process }),
            Err(e) => {
                remove(&dir);
                Err(e)
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The process first, since it writes there.
        drop(self.process.take());
        remove(&self.dir);
    }
}

/// A port, and the process that serves it, if it is not this one.
type Started = (u16, Option<Process>);

fn redis(_: &Path, port: u16) -> Result<Command> {
    let mut command = Command::new(find("redis-server", &[])?);
    command
        .args(["--bind", "127.0.0.1", "--port", &port.to_string()])
        .args(["--save", "", "--appendonly", "no"])
        .args(["--tcp-backlog", BACKLOG]);
    Ok(command)
}

/// Without the tables of `mariadb-install-db`, since it does not look for users.
fn mariadb(dir: &Path, port: u16) -> Result<Command> {
    let within = |option: &str, name: &str| {
        let mut option = OsString::from(option);
        option.push(dir.join(name));
        option
    };
    let mut command = Command::new(find("mariadbd", &["/usr/sbin".into()])?);
    command
        .args(["--no-defaults", "--skip-grant-tables"])
        .args(["--skip-name-resolve", "--bind-address=127.0.0.1"])
        .args(["--max-connections=300", "--back-log=1024"])
        .arg(format!("--port={port}"))
        .arg(within("--datadir=", ""))
        .arg(within("--socket=", "socket"))
        .arg(within("--pid-file=", "pid"));
    if is_root() {
        // It refuses to run as root if nobody says so.
        command.arg("--user=root");
    }
    Ok(command)
}

/// It refuses to run as root, so there it runs as nobody.
fn postgres(dir: &Path, port: u16) -> Result<Command> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let folders: Vec<_> = versions
        .flatten()
        .map(|version| version.path().join("bin"))
        .collect();
    let nobody = if is_root() { Some(nobody()?) } else { None };
    if let Some((uid, gid)) = nobody {
        chown(dir, Some(uid), Some(gid))?;
    }
    let program = |name: &str| -> Result<Command> {
        let mut command = Command::new(find(name, &folders)?);
        command.current_dir(dir).stdin(Stdio::null());
        if let Some((uid, gid)) = nobody {
            command.uid(uid).gid(gid);
        }
        Ok(command)
    };
    let data = dir.join("data");
    let installed = program("initdb")?
        .args(["--auth=trust", "--username=postgres", "--no-sync"])
        .arg(&data)
        .output()?;
    if !installed.status.success() {
        return Err(String::from_utf8_lossy(&installed.stderr).into());
    }
    let mut command = program("postgres")?;
    command
        .arg("-D")
        .arg(&data)
        .args(["-p", &port.to_string(), "-c", "listen_addresses=127.0.0.1"])
        .args(["-c", "fsync=off", "-c", "max_connections=150"])
        .arg("-k")
        .arg(dir);
    Ok(command)
}

fn mosquitto(dir: &Path, port: u16) -> Result<Command> {
    let config = dir.join("mosquitto.conf");
    let settings = format!("listener {port} 127.0.0.1\nallow_anonymous true\n");
    fs::write(&config, settings)?;
    let mut command = Command::new(find("mosquitto", &["/usr/sbin".into()])?);
    command.arg("-c").arg(config);
    Ok(command)
}

fn accepts(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).is_ok()
}

/// PostgreSQL accepts connections before it can use them.
fn logs_in(port: u16) -> bool {
    sql::postgres_client(port).is_ok()
}

/// Starts a program on a free port. If another program takes the port first, on another one.
fn start_process(
    dir: &Path,
    command: fn(&Path, u16) -> Result<Command>,
    is_ready: fn(u16) -> bool,
    signal: libc::c_int,
) -> Result<Started> {
    let mut cause = String::new();
    for _ in 0..3 {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        // Files of an earlier attempt may not fit.
        for entry in fs::read_dir(dir)?.flatten() {
            let _ = fs::remove_dir_all(entry.path()).or_else(|_| fs::remove_file(entry.path()));
        }
        let mut command = command(dir, port)?;
        let child = spawn(command.stdout(Stdio::null()), dir)?;
        let mut process = Process { child, signal };
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            if process.child.try_wait()?.is_some() {
                break;
            }
            if is_ready(port) {
                return Ok((port, Some(process)));
            }
            thread::sleep(Duration::from_millis(20));
        }
        drop(process);
        cause = last_words(dir);
    }
    Err(format!("it did not start: {cause}").into())
}

/// Runs a script that listens on a free port and prints it.
fn start_python(dir: &Path, module: &str, script: &str) -> Result<Started> {
    // Debian's own interpreter first, since Debian's modules are for it.
    let python = ["/usr/bin/python3", "python3"].into_iter().find(|python| {
        let status = Command::new(python)
            .args(["-c", &format!("import {module}")])
            .stderr(Stdio::null())
            .status();
        status.is_ok_and(|status| status.success())
    });
    let python = python.ok_or_else(|| format!("no python3 with {module}"))?;
    let mut command = Command::new(python);
    command.args(["-c", script]).stdout(Stdio::piped());
    let child = spawn(&mut command, dir)?;
    let mut process = Process {
        child,
        signal: libc::SIGKILL,
    };
    let mut line = String::new();
    if let Some(out) = process.child.stdout.take() {
        BufReader::new(out).read_line(&mut line)?;
    }
    let Ok(port) = line.trim().parse() else {
        drop(process);
        return Err(format!("it did not start: {}", last_words(dir)).into());
    };
    Ok((port, Some(process)))
}

/// Serves each connection on a thread of its own, as long as the process lives.
fn serve(talk: impl Fn(TcpStream) -> Result + Clone + Send + 'static) -> Result<Started> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    let accept = move || {
        while let Ok((stream, _)) = listener.accept() {
            let talk = talk.clone();
            // If a dialogue fails, its client reports that.
            thread::spawn(move || {
                give_way();
                talk(stream)
            });
        }
    };
    thread::spawn(accept);
    Ok((port, None))
}

/// Serves as [`serve`] does, with a new certificate in the directory.
fn serve_tls(dir: &Path, kind: Kind) -> Result<Started> {
    let (server, _) = tls::sides(kind).ok_or("not a server of TLS")?;
    tls::write_certificate(dir)?;
    let talk = server(dir)?;
    serve(move |stream| talk(stream))
}

/// Lets the clients go first where CPUs are scarce, as servers on other machines would: a server with a
/// hundred threads would get nearly all of the CPUs, which the clients' two Ms are on, too.
fn give_way() {
    // SAFETY: takes plain numbers; 0 is the calling thread.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 10) };
}

/// Starts a program in the directory, with its messages in a file beside it.
fn spawn(command: &mut Command, dir: &Path) -> io::Result<Child> {
    let messages = fs::File::create(messages(dir))?;
    command
        .current_dir(dir)
        .stdin(Stdio::null())
        .stderr(messages);
    let in_child = || {
        // SAFETY: takes plain numbers.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        give_way();
        Ok(())
    };
    // SAFETY: the closure makes two system calls.
    unsafe { command.pre_exec(in_child) };
    command.spawn()
}

/// A server's process, which is ended by this signal.
#[derive(Debug)]
struct Process {
    child: Child,
    signal: libc::c_int,
}

impl Drop for Process {
    fn drop(&mut self) {
        // A child that has ended and was waited for has no number any more.
        if let (Ok(None), Ok(pid)) = (
            self.child.try_wait(),
            libc::pid_t::try_from(self.child.id()),
        ) {
            // SAFETY: takes plain numbers. Nobody has waited for the child, so the number is its own.
            unsafe { libc::kill(pid, self.signal) };
            let _ = self.child.wait();
        }
    }
}

fn remove(dir: &Path) {
    let _ = fs::remove_dir_all(dir);
    let _ = fs::remove_file(messages(dir));
}

/// The file for what a server says.
fn messages(dir: &Path) -> PathBuf {
    dir.with_extension("log")
}

/// The last lines of what a server said.
fn last_words(dir: &Path) -> String {
    let text = fs::read_to_string(messages(dir)).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(3)..].join(" | ")
}

/// The path of a program, looked for in these folders and then in `PATH`.
fn find(program: &str, folders: &[PathBuf]) -> Result<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let all = folders.iter().cloned().chain(env::split_paths(&path));
    all.map(|folder| folder.join(program))
        .find(|file| file.is_file())
        .ok_or_else(|| format!("no {program}").into())
}

/// A new directory for temporary files, which other accounts may enter.
fn new_dir() -> io::Result<PathBuf> {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let n = MADE.fetch_add(1, Ordering::Relaxed);
    let dir = env::temp_dir().join(format!("windlass-servers-{}-{n}", std::process::id()));
    remove(&dir);
    fs::create_dir(&dir)?;
    Ok(dir)
}

fn is_root() -> bool {
    // SAFETY: takes nothing.
    unsafe { libc::geteuid() == 0 }
}

/// The numbers of the account nobody and of its group.
fn nobody() -> Result<(u32, u32)> {
    let accounts = fs::read_to_string("/etc/passwd")?;
    let line = accounts.lines().find(|line| line.starts_with("nobody:"));
    let mut numbers = line.ok_or("no account nobody")?.split(':').skip(2);
    let mut number = || numbers.next().unwrap_or_default().parse();
    Ok((number()?, number()?))
}

/// Raises this process's limit on descriptors as far as it may: a thousand clients have a thousand
/// sockets.
pub fn raise_descriptor_limit() {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the place for the limits is valid during both calls.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
}

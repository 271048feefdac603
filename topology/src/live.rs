//! Live figures of a running program, for `windlass-topology top`.
//!
//! A runtime that was asked to (`Builder::live_metrics`, or `WINDLASS_DEBUG=live=1`) answers on a
//! Unix socket with an abstract name made from its process id. It writes one [`Live`] as JSON to each
//! connection and closes it. Only the same user and root get an answer.

use std::{
    io,
    os::{linux::net::SocketAddrExt as _, unix::net::SocketAddr},
};
#[cfg(feature = "json")]
use std::{
    io::Read as _,
    os::unix::net::UnixStream,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

#[cfg(feature = "json")]
use serde::Deserialize;

#[cfg(feature = "json")]
use crate::peer;

/// The version of [`Live`]. It rises when a field changes its meaning or goes away; new fields may
/// come without.
pub const LIVE_SCHEMA: u32 = 1;

/// How long an answer may take: longer than any healthy process needs.
#[cfg(feature = "json")]
const PATIENCE: Duration = Duration::from_secs(5);

/// The longest answer: one of tens of thousands of Ps.
#[cfg(feature = "json")]
const MAX_BYTES: usize = 16 << 20;

/// The runtimes of a process at one moment. Counters begin at 0 when a runtime is built and never
/// decrease; the other fields are the state at that moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(Deserialize))]
pub struct Live {
    /// [`LIVE_SCHEMA`].
    pub schema: u32,
    /// The process.
    pub pid: u32,
    /// When this was read, in nanoseconds of the process's monotonic clock: for rates.
    pub at_ns: u64,
    /// In the order in which they were built.
    pub runtimes: Vec<LiveRuntime>,
}

/// One runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(Deserialize))]
pub struct LiveRuntime {
    /// The program's name for it.
    pub name: String,
    /// `io_uring` or `epoll`.
    pub poller: String,
    /// Goroutines that have not ended.
    pub goroutines: u64,
    /// Threads that run goroutines, and how many of them sleep.
    pub threads: usize,
    /// See `threads`.
    pub threads_idle: usize,
    /// Its NUMA nodes.
    pub nodes: Vec<LiveNode>,
    /// Its Ps in use.
    pub ps: Vec<LiveP>,
}

/// A NUMA node of a runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(Deserialize))]
pub struct LiveNode {
    /// The kernel's number.
    pub os_id: u32,
    /// Goroutines in the node's queue.
    pub queue: usize,
    /// Ps that are idle.
    pub idle_ps: usize,
    /// Threads that look for work.
    pub spinning: usize,
    /// Stacks that exist.
    pub stacks: usize,
}

/// A P.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(Deserialize))]
pub struct LiveP {
    /// Its number.
    pub p: usize,
    /// The CPU that its threads are pinned to, if they are.
    pub cpu: usize,
    /// The kernel's number of its node.
    pub node: u32,
    /// Goroutines in its queue.
    pub queue: u64,
    /// Operations in flight.
    pub inflight: u64,
    /// Timers armed.
    pub timers: u64,
    /// The time that its thread has slept.
    pub idle_ns: u64,
    /// Goroutines switched to.
    pub dispatches: u64,
    /// Goroutines that it took from Ps of its own node.
    pub stolen_local: u64,
    /// Goroutines that it took from Ps of other nodes.
    pub stolen_remote: u64,
    /// Operations completed.
    pub completed: u64,
    /// Times that it was taken from a goroutine that kept it, or that one was asked to give way.
    pub retaken: u64,
}

impl Live {
    /// Where a process of the caller's PID namespace answers. The name has the namespace in it, because
    /// containers that share a network have processes with the same id.
    ///
    /// # Errors
    ///
    /// Never: every process id makes a valid name.
    pub fn address(pid: u32) -> io::Result<SocketAddr> {
        use std::os::unix::fs::MetadataExt as _;
        // Without /proc, all namespaces are one.
        let namespace = std::fs::metadata("/proc/self/ns/pid").map_or(0, |file| file.ino());
        SocketAddr::from_abstract_name(format!("windlass-live-{namespace}-{pid}"))
    }

    /// Asks a process (feature `json`). Blocks the thread, for 5 s at most.
    ///
    /// # Errors
    ///
    /// - `NotFound`: there is no such process, no runtime in it answers, or it ends before it has answered.
    /// - `PermissionDenied`: it is another user's, or another process answers in its name.
    /// - `TimedOut`: it does not answer in time.
    /// - `InvalidData`: the answer is not JSON of this version, or longer than 16 MiB.
    /// - Other errors of the socket.
    #[cfg(feature = "json")]
    pub fn read(pid: u32) -> io::Result<Live> {
        let (tell, told) = mpsc::channel();
        // Also to connect may take for ever, at a socket that accepts nothing.
        let ask = move || {
            // Nobody hears it once the time is over.
            let _ = tell.send(ask(pid));
        };
        thread::Builder::new().spawn(ask)?;
        let json = told.recv_timeout(PATIENCE).map_err(|_| {
            let why = format!("process {pid} did not answer within {PATIENCE:?}");
            io::Error::new(io::ErrorKind::TimedOut, why)
        })??;
        Live::from_json(&json)
    }

    /// As JSON, in one line.
    #[must_use]
    pub fn to_json(&self) -> String {
        let runtimes = list(&self.runtimes, LiveRuntime::to_json);
        format!(
            "{{\"schema\":{},\"pid\":{},\"at_ns\":{},\"runtimes\":{runtimes}}}\n",
            self.schema, self.pid, self.at_ns,
        )
    }

    #[cfg(feature = "json")]
    fn from_json(json: &str) -> io::Result<Live> {
        let invalid = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
        let live: Live = serde_json::from_str(json)
            .map_err(|e| invalid(format!("the answer is not understood: {e}")))?;
        if live.schema != LIVE_SCHEMA {
            return Err(invalid(format!(
                "the answer has version {}, and this program knows {LIVE_SCHEMA}: take the \
                 windlass-topology of that release",
                live.schema
            )));
        }
        Ok(live)
    }
}

/// The answer of a process. Its kernel says who it is, and it has a bound in bytes and in time.
#[cfg(feature = "json")]
fn ask(pid: u32) -> io::Result<String> {
    let end = Instant::now() + PATIENCE;
    let not_found = |e: io::Error| match e.kind() {
        // Reset: the connection still waited to be accepted when the process ended.
        io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset => {
            io::Error::new(io::ErrorKind::NotFound, why_not_found(pid))
        }
        _ => e,
    };
    let denied = |why: &str| {
        let why = format!("process {pid} {why}");
        Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
    };
    let mut stream = UnixStream::connect_addr(&Live::address(pid)?).map_err(not_found)?;
    let holder = peer::pid(&stream)?;
    if holder != pid {
        let why = format!("is not asked: process {holder} answers in its name");
        return denied(&why);
    }
    let (mut json, mut piece) = (Vec::new(), [0; 16 * 1024]);
    loop {
        let left = end.saturating_duration_since(Instant::now());
        stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        match stream.read(&mut piece).map_err(not_found)? {
            0 => break,
            n => json.extend_from_slice(&piece[..n]),
        }
        if json.len() > MAX_BYTES || left.is_zero() {
            let why = format!("process {pid} answers without end");
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
    }
    if json.is_empty() {
        return denied("answers its own user and root only");
    }
    String::from_utf8(json).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e.to_string()))
}

#[cfg(feature = "json")]
fn why_not_found(pid: u32) -> String {
    let proc = std::path::Path::new("/proc");
    if proc.join("self").exists() && !proc.join(pid.to_string()).exists() {
        return format!("there is no process {pid}");
    }
    format!(
        "no windlass runtime answers in process {pid}: start it with WINDLASS_DEBUG=live=1, or build \
         it with Builder::live_metrics(true)"
    )
}

// Written by hand, so that programs with a runtime need no serde. The tests read it back with serde.

impl LiveRuntime {
    fn to_json(&self) -> String {
        format!(
            "{{\"name\":{},\"poller\":{},\"goroutines\":{},\"threads\":{},\"threads_idle\":{},\
             \"nodes\":{},\"ps\":{}}}",
            quoted(&self.name),
            quoted(&self.poller),
            self.goroutines,
            self.threads,
            self.threads_idle,
            list(&self.nodes, LiveNode::to_json),
            list(&self.ps, LiveP::to_json),
        )
    }
}

impl LiveNode {
    fn to_json(&self) -> String {
        let LiveNode {
            os_id,
            queue,
            idle_ps,
            spinning,
            stacks,
        } = self;
        format!(
            "{{\"os_id\":{os_id},\"queue\":{queue},\"idle_ps\":{idle_ps},\"spinning\":{spinning},\
             \"stacks\":{stacks}}}"
        )
    }
}

impl LiveP {
    fn to_json(&self) -> String {
        let LiveP {
            p,
            cpu,
            node,
            queue,
            inflight,
            timers,
            idle_ns,
            dispatches,
            stolen_local,
            stolen_remote,
            completed,
            retaken,
        } = self;
        format!(
            "{{\"p\":{p},\"cpu\":{cpu},\"node\":{node},\"queue\":{queue},\"inflight\":{inflight},\
             \"timers\":{timers},\"idle_ns\":{idle_ns},\"dispatches\":{dispatches},\
             \"stolen_local\":{stolen_local},\"stolen_remote\":{stolen_remote},\
             \"completed\":{completed},\"retaken\":{retaken}}}"
        )
    }
}

/// A list of JSON.
fn list<T>(items: &[T], item: impl Fn(&T) -> String) -> String {
    let items: Vec<String> = items.iter().map(item).collect();
    format!("[{}]", items.join(","))
}

/// A string of JSON.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => quoted.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(all(test, feature = "json"))]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let live = Live {
            schema: LIVE_SCHEMA,
            pid: 7,
            at_ns: u64::MAX,
            runtimes: vec![
                LiveRuntime::default(),
                LiveRuntime {
                    name: "a \"name\" of\n\u{1}two \\lines, ü 😀".to_owned(),
                    poller: "epoll".to_owned(),
                    goroutines: 1,
                    threads: 2,
                    threads_idle: 3,
                    nodes: vec![
                        LiveNode {
                            os_id: 4,
                            queue: 5,
                            idle_ps: 6,
                            spinning: 7,
                            stacks: 8,
                        },
                        LiveNode::default(),
                    ],
                    ps: vec![
                        LiveP::default(),
                        LiveP {
                            p: 9,
                            cpu: 10,
                            node: 11,
                            queue: 12,
                            inflight: 13,
                            timers: 14,
                            idle_ns: 15,
                            dispatches: 16,
                            stolen_local: 17,
                            stolen_remote: 18,
                            completed: 19,
                            retaken: 20,
                        },
                    ],
                },
            ],
        };
        let json = live.to_json();
        assert_eq!(Live::from_json(&json).unwrap(), live);
        assert_eq!(json.lines().count(), 1);
    }

    /// A process id that no process has.
    fn nobody() -> u32 {
        4_000_000_000 + std::process::id() % 1_000_000
    }

    #[test]
    fn a_process_that_ends_before_it_answers_is_not_found() {
        let pid = nobody();
        let address = Live::address(pid).unwrap();
        let listener = std::os::unix::net::UnixListener::bind_addr(&address).unwrap();
        let not_its_own = Live::read(pid).unwrap_err();
        assert_eq!(not_its_own.kind(), io::ErrorKind::PermissionDenied);
        assert!(
            not_its_own.to_string().contains("in its name"),
            "{not_its_own}"
        );
        drop(listener);
        let gone = Live::read(pid).unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::NotFound);
        assert!(
            gone.to_string().starts_with("there is no process"),
            "{gone}"
        );
    }

    /// Answers in the name of this process: first without end, then byte by byte.
    #[test]
    fn an_answer_has_an_end() {
        use std::io::Write as _;
        let pid = std::process::id();
        let address = Live::address(pid).unwrap();
        let listener = std::os::unix::net::UnixListener::bind_addr(&address).unwrap();
        let answers = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut n = 0;
            while let Ok(more) = stream.write(&[b' '; 1 << 16]) {
                n += more;
            }
            assert!(n < 2 * MAX_BYTES, "{n}");
            let (mut stream, _) = listener.accept().unwrap();
            while stream.write_all(b" ").is_ok() {
                thread::sleep(PATIENCE / 50);
            }
        });
        let endless = Live::read(pid).unwrap_err();
        assert_eq!(endless.kind(), io::ErrorKind::InvalidData, "{endless}");
        let slow = Live::read(pid).unwrap_err();
        let kinds = [
            io::ErrorKind::TimedOut,
            io::ErrorKind::InvalidData,
            io::ErrorKind::WouldBlock,
        ];
        assert!(kinds.contains(&slow.kind()), "{slow}");
        answers.join().unwrap();
    }

    #[test]
    fn what_is_not_understood_is_said() {
        let e = Live::from_json("{").unwrap_err();
        assert_eq!(e.kind(), io::ErrorKind::InvalidData);
        let later = Live {
            schema: LIVE_SCHEMA + 1,
            ..Live::default()
        };
        let e = Live::from_json(&later.to_json()).unwrap_err();
        assert!(e.to_string().contains("version 2"), "{e}");
    }
}

//! Live figures of a running program, for `windlass-topology top`.
//!
//! A runtime that was asked to (`Builder::live_metrics`, or `WINDLASS_DEBUG=live=1`) answers on a
//! Unix socket with an abstract name made from its process id. It writes one [`Live`] as JSON to each
//! connection and closes it. Only the same user and root get an answer.

use std::{
    io::{self, Read as _},
    os::linux::net::SocketAddrExt as _,
    os::unix::net::{SocketAddr, UnixStream},
    time::Duration,
};

use serde::{Deserialize, Serialize};

/// The version of [`Live`]. It rises when a field changes its meaning or goes away; new fields may
/// come without.
pub const LIVE_SCHEMA: u32 = 1;

/// How long an answer may take: longer than any healthy process needs.
const PATIENCE: Duration = Duration::from_secs(5);

/// The runtimes of a process at one moment. Counters begin at 0 when a runtime is built and never
/// decrease; the other fields are the state at that moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveRuntime {
    /// What the program calls it.
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Where a process answers.
    ///
    /// # Errors
    ///
    /// Never: every process id makes a valid name.
    pub fn address(pid: u32) -> io::Result<SocketAddr> {
        SocketAddr::from_abstract_name(format!("windlass-live-{pid}"))
    }

    /// Asks a process. Blocks the thread, for 5 s at most between two pieces of the answer.
    ///
    /// # Errors
    ///
    /// - `NotFound`: no runtime in such a process answers, or it ends before it has answered.
    /// - `PermissionDenied`: it is another user's.
    /// - `InvalidData`: the answer is not JSON of this version.
    /// - Other errors of the socket.
    pub fn read(pid: u32) -> io::Result<Live> {
        let not_found = |e: io::Error| match e.kind() {
            // Reset: the connection still waited to be accepted when the process ended.
            io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset => io::Error::new(
                io::ErrorKind::NotFound,
                format!(
                    "no windlass runtime answers in process {pid}: start it with \
                     WINDLASS_DEBUG=live=1, or build it with Builder::live_metrics(true)"
                ),
            ),
            _ => e,
        };
        let mut stream = UnixStream::connect_addr(&Live::address(pid)?).map_err(not_found)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut json = String::new();
        stream.read_to_string(&mut json).map_err(not_found)?;
        if json.is_empty() {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!("process {pid} answers its own user and root only"),
            ));
        }
        Live::from_json(&json)
    }

    /// As one line.
    ///
    /// # Panics
    ///
    /// Never: plain values are JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut json = serde_json::to_string(self).expect("plain values are JSON");
        json.push('\n');
        json
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let live = Live {
            schema: LIVE_SCHEMA,
            pid: 7,
            runtimes: vec![LiveRuntime {
                ps: vec![LiveP::default()],
                ..LiveRuntime::default()
            }],
            ..Live::default()
        };
        assert_eq!(Live::from_json(&live.to_json()).unwrap(), live);
    }

    #[test]
    fn a_process_that_ends_before_it_answers_is_not_found() {
        let pid = 4_000_000_000 + std::process::id() % 1_000_000; // no process has it
        let address = Live::address(pid).unwrap();
        let listener = std::os::unix::net::UnixListener::bind_addr(&address).unwrap();
        let reader = std::thread::spawn(move || Live::read(pid).unwrap_err());
        // Long enough to connect. A reader that is later is refused, and finds nothing either.
        std::thread::sleep(Duration::from_millis(100));
        drop(listener);
        assert_eq!(reader.join().unwrap().kind(), io::ErrorKind::NotFound);
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

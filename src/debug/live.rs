//! Live metrics for other processes: `windlass-topology top`.
//!
//! One thread for the process listens on a Unix socket. It answers each connection with the
//! counters of all runtimes that were built with `live_metrics`. The socket has an abstract name,
//! which needs no file and ends with the process. The thread sleeps in `accept`.

use std::io::{self, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::Duration;

use windlass_topology::live::{LIVE_SCHEMA, Live, LiveNode, LiveP, LiveRuntime};

use super::registry::Registry;
use crate::loom::native::atomic::{AtomicI32, Ordering};
use crate::metrics::{ByLevel, PMetrics, RuntimeMetrics};
use crate::sched::types::p::P;
use crate::sched::types::state::Sched;
use crate::sys::sched as threads;
use crate::sys::{clock, signal, socket};

/// The runtimes whose counters are served.
static REGISTRY: Registry = Registry::new();

/// The write timeout for clients that do not read.
const PATIENCE: Duration = Duration::from_secs(1);

/// The pause after an accept that failed, for example for lack of descriptors.
const PAUSE_NS: u64 = 100_000_000;

/// Serves the counters of `sched` until it is dropped. If that cannot be, for lack of a thread or because
/// another process has the name, a line on stderr says so, and the program goes on without.
pub(crate) fn register(sched: &Arc<Sched>) {
    let registered = REGISTRY.add(sched, || {
        let address = Live::address(std::process::id())?;
        let listener = UnixListener::bind_addr(&address).map_err(|e| {
            let why = format!("cannot listen on {address:?}: {e}");
            io::Error::new(e.kind(), why)
        })?;
        crate::loom::thread::Builder::new()
            .name("windlass-live".to_owned())
            .spawn(move || serve(&listener))?;
        Ok(())
    });
    if let Err(e) = registered {
        signal::report(format_args!("no live metrics: {e}"));
    }
}

/// The thread id of the serving thread, if it runs.
pub(crate) fn thread_id() -> Option<i32> {
    Some(THREAD.load(Ordering::Acquire)).filter(|&tid| tid != 0)
}

/// Ordering: stored with release by the thread when it begins.
static THREAD: AtomicI32 = AtomicI32::new(0);

fn serve(listener: &UnixListener) {
    THREAD.store(threads::gettid(), Ordering::Release);
    loop {
        match listener.accept() {
            // Errors concern only this client: it has gone or is too slow.
            Ok((stream, _)) => drop(answer(stream)),
            Err(_) => clock::nap(PAUSE_NS),
        }
    }
}

/// Names and counters are private: clients of other users, except root, get an empty answer.
fn answer(mut stream: UnixStream) -> io::Result<()> {
    let uid = socket::peer_uid(&stream)?;
    if uid != 0 && uid != threads::effective_uid() {
        return Ok(());
    }
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(now().to_json().as_bytes())
}

/// The current counters of all registered runtimes.
fn now() -> Live {
    Live {
        schema: LIVE_SCHEMA,
        pid: std::process::id(),
        at_ns: clock::now_ns(),
        runtimes: REGISTRY.runtimes().iter().map(|s| runtime(s)).collect(),
    }
}

fn runtime(sched: &Sched) -> LiveRuntime {
    let m = RuntimeMetrics::of(sched);
    let nodes = m.nodes.iter().map(|node| LiveNode {
        os_id: node.os_id,
        queue: node.queue_depth,
        idle_ps: node.idle_ps,
        spinning: node.spinning,
        stacks: node.stacks,
    });
    LiveRuntime {
        name: sched.config.name.clone(),
        poller: m.poller.to_string(),
        goroutines: m.live_goroutines,
        threads: m.threads,
        threads_idle: m.threads_idle,
        nodes: nodes.collect(),
        ps: sched.ps_in_use().map(|p| live_p(sched, p)).collect(),
    }
}

fn live_p(sched: &Sched, p: &P) -> LiveP {
    let m = PMetrics::of(p);
    let local = |by: &ByLevel| by.total() - by.remote;
    LiveP {
        p: p.idx,
        cpu: p.cpu(),
        node: sched.node_of(p).os_id,
        queue: m.queue_depth,
        inflight: m.ring_inflight,
        timers: m.timers,
        idle_ns: m.idle_time.as_nanos() as u64,
        dispatches: m.dispatches,
        stolen_local: local(&m.stolen),
        stolen_remote: m.stolen.remote,
        completed: m.ring_completed,
        retaken: m.retakes_blocking + m.retakes_hogs + m.preemptions,
    }
}

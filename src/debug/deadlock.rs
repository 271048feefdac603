//! Deadlock detection.
//!
//! In a deadlock all goroutines wait, and nothing is left that could wake one. Sysmon checks for it
//! when every P is idle. There is a deadlock if
//!
//! - no queue holds a goroutine, and no M searches for one;
//! - no timer is armed, and no operation is in flight;
//! - every live goroutine is parked, and not for an offloaded job;
//! - the process has no thread besides the runtime's own. Any other thread may hold a handle, a
//!   channel or a file by which it can wake a goroutine. That cannot be known, so its existence
//!   rules a deadlock out.
//!
//! In this state only the runtime's threads could change anything, and all of them sleep, so the
//! state is permanent. The conditions are not read at one moment. Therefore they are checked twice,
//! and no goroutine may have run in between.

use std::time::Duration;

use super::dump::Dump;
use super::live;
use super::sigquit;
use crate::g::slab;
use crate::g::status::{GKind, Reason};
use crate::loom::Ordering;
use crate::sched::types::state::{Phase, Sched};
use crate::sys::clock::{self, NEVER};
use crate::sys::{sched as threads, signal};

/// The time between the two checks.
const PAUSE: Duration = Duration::from_millis(2);

/// Ends the process with a dump if there is a deadlock. Called by sysmon.
pub(crate) fn check(sched: &Sched) {
    if !is_stuck(sched) {
        return;
    }
    let dispatches = dispatches(sched);
    clock::nap(PAUSE.as_nanos() as u64);
    if !is_stuck(sched) || self::dispatches(sched) != dispatches {
        return;
    }
    let text = format!(
        "deadlock: all goroutines of {:?} wait, and nothing is left that could wake one\n\n{}",
        sched.config.name,
        Dump::take(sched)
    );
    // Not through std: a goroutine may hold the lock of std's stderr forever.
    signal::write_stderr(text.as_bytes());
    signal::exit_now(2);
}

fn dispatches(sched: &Sched) -> u64 {
    sched.ps.iter().map(|p| p.stats.dispatches.get()).sum()
}

/// Whether all conditions hold now.
fn is_stuck(sched: &Sched) -> bool {
    sched.phase() == Phase::Running
        && no_work(sched)
        && nothing_under_way(sched)
        && all_parked(sched)
        && no_other_thread(sched)
}

fn no_work(sched: &Sched) -> bool {
    sched.n_idle.load(Ordering::SeqCst) == sched.n_procs()
        && !sched.world.has_jobs()
        && sched
            .nodes
            .iter()
            .all(|n| n.queue.len() == 0 && n.idle.n_spinning() == 0)
        && sched.ps.iter().all(|p| p.runq.is_empty())
}

fn nothing_under_way(sched: &Sched) -> bool {
    sched.ps.iter().all(|p| {
        p.timers.drop_stale();
        // An armed multishot poll of a stream without a reader wakes no goroutine.
        p.timers.next_ns() == NEVER && p.poller.counts.n_armed() == p.poller.inflight()
    })
}

/// Whether there are goroutines, and all are parked for something that only a goroutine can do.
fn all_parked(sched: &Sched) -> bool {
    let mut n = 0;
    let mut parked = true;
    slab::for_each(|g| {
        if !std::ptr::eq(g.sched(), std::ptr::from_ref(sched).cast()) {
            return;
        }
        let status = g.status.load();
        match status.kind() {
            GKind::Free | GKind::Dead => {}
            GKind::Waiting if !matches!(status.reason(), Reason::Io | Reason::Offload) => n += 1,
            _ => parked = false,
        }
    });
    parked && n > 0
}

/// Whether all threads of the process are this runtime's own or io_uring workers of the kernel.
fn no_other_thread(sched: &Sched) -> bool {
    let mut own = sched.thread_ids();
    own.push(threads::gettid());
    own.extend(sigquit::thread_id());
    own.extend(live::thread_id());
    // Without the list there may be other threads.
    let Ok(entries) = std::fs::read_dir("/proc/self/task") else {
        return false;
    };
    entries.into_iter().all(|entry| {
        let Ok(entry) = entry else { return false };
        let tid = entry.file_name().to_string_lossy().parse().unwrap_or(0);
        own.contains(&tid) || is_ring_worker(&entry.path())
    })
}

/// Whether a thread is an io_uring worker, which the kernel created and which runs no code of the
/// process.
fn is_ring_worker(task: &std::path::Path) -> bool {
    // The thread has ended meanwhile.
    let Ok(stat) = std::fs::read_to_string(task.join("stat")) else {
        return true;
    };
    // PF_IO_WORKER (include/linux/sched.h) in the flags, which are the seventh field after the
    // name.
    const PF_IO_WORKER: u64 = 0x10;
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let flags = fields
        .split_whitespace()
        .nth(6)
        .and_then(|f| f.parse::<u64>().ok());
    flags.is_some_and(|flags| flags & PF_IO_WORKER != 0)
}

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
//! A process may have several runtimes, and goroutines of one may wake those of another. A runtime
//! that is stuck wakes nobody. So the last condition is read for all stuck runtimes together: every
//! thread of the process belongs to one of them. The threads of a runtime that is not stuck, or not
//! running, are other threads.
//!
//! In this state only the threads of stuck runtimes could change anything, and all of them sleep, so
//! the state is permanent. The conditions are not read at one moment. Therefore they are checked
//! twice, and no goroutine may have run in between. A thread that is in neither list cannot come to
//! exist in between, because only a thread creates a thread.
//!
//! # In a test harness
//!
//! `#[windlass::test]` makes a function that libtest calls. The process then has one thread that
//! belongs to no runtime and never ends before the tests do: the main thread, in which libtest waits
//! for their results. It runs no code of the program but tests themselves (with one test thread),
//! and in these it is a runtime's own. So it wakes nobody, and is not counted among the other
//! threads. The threads of other tests are counted. They end with their tests, or are those of
//! runtimes that are stuck, too.
//!
//! But the main thread creates the threads of the tests that have not begun. Between the end of one
//! test and the begin of the next there may be no other thread for a while. So the main thread must
//! wait for others, in the same wait at both checks. A test reports its result before its thread
//! ends. Therefore a main thread that waits while there is no other thread has no test left to begin,
//! and a deadlock is reported when all other tests have ended.

use std::time::Duration;

use super::dump::Dump;
use super::live;
use super::registry::Registry;
use super::sigquit;
use crate::g::slab;
use crate::g::status::{GKind, Reason};
use crate::loom::native::{Arc, Mutex};
use crate::sched::types::state::{Phase, Sched};
use crate::sys::clock::{self, NEVER};
use crate::sys::{signal, tasks};

/// The time between the two checks.
const PAUSE: Duration = Duration::from_millis(2);

/// The first line of the report, as Go prints it.
const HEADLINE: &str = "fatal error: all goroutines are asleep - deadlock!";

/// The runtimes of the process, without simulated ones.
static RUNTIMES: Registry = Registry::new();

/// Makes a runtime known to the checks of all. Its own check is one of `debug_hooks`.
pub(crate) fn register(sched: &Arc<Sched>) {
    let known = RUNTIMES.add(sched, || Ok(()));
    debug_assert!(known.is_ok(), "there is no thread to be started");
}

/// Ends the process with a dump if there is a deadlock. Called by sysmon.
pub(crate) fn check(sched: &Sched) {
    if !is_stuck(sched) {
        return;
    }
    // Held by the sysmon of another runtime, which checks the same.
    static CHECKING: Mutex<()> = Mutex::new(());
    let Ok(_checking) = CHECKING.try_lock() else {
        return;
    };
    let runtimes = RUNTIMES.runtimes();
    let Some(seen) = Stuck::find(&runtimes) else {
        return;
    };
    clock::nap(PAUSE.as_nanos() as u64);
    if Stuck::find(&runtimes).as_ref() != Some(&seen) {
        return;
    }
    // Not through std: a goroutine may hold the lock of std's stderr forever.
    signal::write_stderr(report(&runtimes, &seen).as_bytes());
    signal::exit_now(2);
}

/// The stuck runtimes, if the process has no threads but theirs.
#[derive(Debug, PartialEq, Eq)]
struct Stuck {
    /// Their positions in the list.
    which: Vec<usize>,
    /// How often goroutines of theirs were resumed.
    dispatches: u64,
    /// How often the main thread of a test harness was switched, which waits for the tests.
    harness_switches: Option<u64>,
}

impl Stuck {
    fn find(runtimes: &[Arc<Sched>]) -> Option<Stuck> {
        let all = runtimes.iter().enumerate();
        let (which, stuck): (Vec<_>, Vec<&Sched>) = all
            .filter(|(_, sched)| is_stuck(sched))
            .map(|(idx, sched)| (idx, &**sched))
            .unzip();
        if stuck.is_empty() || !no_other_thread(&stuck) {
            return None;
        }
        let harness_switches = match harness_thread(&stuck) {
            Some(tid) => Some(tasks::switches_if_it_waits(tid)?),
            None => None,
        };
        // After the conditions: what runs while they are read is counted.
        let dispatches = stuck.iter().map(|sched| dispatches(sched)).sum();
        Some(Stuck {
            which,
            dispatches,
            harness_switches,
        })
    }
}

/// The text that the process leaves behind.
fn report(runtimes: &[Arc<Sched>], stuck: &Stuck) -> String {
    let mut text = format!("{HEADLINE}\n");
    for &idx in &stuck.which {
        text.push_str(&format!("\n{}", Dump::take(&runtimes[idx])));
    }
    text
}

fn dispatches(sched: &Sched) -> u64 {
    sched.ps.iter().map(|p| p.stats.dispatches.get()).sum()
}

/// Whether all conditions but that on threads hold now.
fn is_stuck(sched: &Sched) -> bool {
    sched.phase() == Phase::Running
        && no_work(sched)
        && nothing_under_way(sched)
        && all_parked(sched)
}

fn no_work(sched: &Sched) -> bool {
    sched.n_idle() == sched.n_procs()
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
    slab::all().for_each(|g| {
        if !sched.owns(g) {
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

/// Whether all threads of the process are those of these runtimes, or io_uring workers of the kernel.
fn no_other_thread(stuck: &[&Sched]) -> bool {
    let mut own: Vec<i32> = stuck.iter().flat_map(|sched| sched.thread_ids()).collect();
    own.extend(sigquit::thread_id());
    own.extend(live::thread_id());
    own.extend(harness_thread(stuck));
    tasks::are_all(|tid| own.contains(&tid))
}

/// The main thread, if it is that of a test harness and not one of these runtimes' own.
fn harness_thread(stuck: &[&Sched]) -> Option<i32> {
    let in_harness = stuck.iter().any(|sched| sched.config.in_test_harness);
    // It has the process's number.
    let main = i32::try_from(std::process::id())
        .ok()
        .filter(|_| in_harness)?;
    let is_own = |sched: &&Sched| sched.thread_ids().into_iter().any(|tid| tid == main);
    (!stuck.iter().any(is_own)).then_some(main)
}

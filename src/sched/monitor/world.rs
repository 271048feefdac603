//! Stopping the world: for a moment no P is in use, so that the runtime's configuration (how many
//! Ps there are) can be changed, or all of its state inspected.
//!
//! Goroutines may go on computing meanwhile, without a P, as in Go's system calls; they stop at
//! their next call into the runtime. So stopping needs no goroutine's cooperation, and is bounded:
//!
//! | P is                              | how it stops                               |
//! |-----------------------------------|--------------------------------------------|
//! | held by an M in the scheduler, or | the M sees it in the P's status before its |
//! | whose goroutine enters it soon    | next dispatch, and waits there             |
//! | idle                              | claimed: its M stays asleep, or waits      |
//! |                                   | where it wakes, until it is notified       |
//! | given to an M that is yet to wake | taken back                                 |
//! | in a blocking section             | retaken, as for a hand-off                 |
//! | held by a goroutine that computes | retaken after 100 µs, as from a hog (see   |
//! |                                   | `sysmon`)                                  |
//!
//! Retaking a P from a goroutine that computes needs `membarrier(2)`. Where that is denied, a
//! goroutine that does not call the runtime for 10 ms makes the stop fail. An M in the scheduler
//! that gets no CPU for a second makes it fail everywhere. The job then receives an error, and the
//! world restarts unchanged.
//!
//! Only sysmon stops the world, on request. It holds no P to run goroutines on, and it alone takes
//! Ps from Ms and gives them to other Ms: a P without an M is in its [`UnownedPs`] or dead, nowhere
//! else.
//!
//! A stopped world does not stop threads without a P. They may still push to node queues and make
//! goroutines runnable; both are safe at any time.

use std::io;

use super::retake::{UnownedPs, owner_of, retake_running, retake_syscall};
use crate::loom::native::atomic::Ordering;
use crate::loom::native::mpsc::{SyncSender, sync_channel};
use crate::sched::proc::spare::take_back;
use crate::sched::types::p::P;
use crate::sched::types::state::{Phase, Sched};
use crate::sched::wait::wake;
use crate::sys::clock;
use crate::util::ladder;

/// How long a P has to stop by itself before it is retaken.
const STOPS_BY_ITSELF_NS: u64 = ladder::SLICE_NS / 2;
/// If the world has not stopped within this time, the stop fails: its threads get no CPU.
const STOP_WITHIN_NS: u64 = 1_000_000_000;

/// Runs `f` in a stopped world and returns its result. Blocks the thread, so a goroutine calls
/// it on another thread (`offload`). `None` if there is no run: then the caller has the runtime
/// to itself, unless a run begins.
pub(crate) fn in_stopped_world<T: Send + 'static>(
    sched: &Sched,
    f: impl FnOnce(&Sched, io::Result<()>) -> T + Send + 'static,
) -> Option<T> {
    let (tell, told) = sync_channel(1);
    let tell: SyncSender<T> = tell;
    {
        let mut jobs = sched.world.jobs();
        // Jobs are cleared, under this lock, after the phases in which sysmon serves them.
        if !matches!(sched.phase(), Phase::Running | Phase::Cancelling) {
            return None;
        }
        jobs.push(Box::new(move |sched, stopped| {
            let _ = tell.send(f(sched, stopped));
        }));
        sched.world.note_job();
    }
    sched.sysmon.note.wake();
    told.recv().ok()
}

/// Called at the end of a run, after its phase was set: drops pending jobs without an answer.
pub(crate) fn refuse_jobs(sched: &Sched) {
    sched.world.clear();
}

/// Requests that a P stops. `false` for a dead one.
fn ask_to_stop(p: &P) -> bool {
    let asked = p.status.ask_to_stop();
    if asked && p.status.is_leaving() {
        // Its M may sleep in the ring, waiting for completions.
        p.poller.wake();
    }
    asked
}

/// Stops the world, runs `job`, and restarts the world.
pub(crate) fn run_stopped(unowned: &mut UnownedPs<'_>, job: impl FnOnce(&Sched, io::Result<()>)) {
    let sched = unowned.sched();
    let mut asleep = Vec::new();
    let stopped = stop(unowned, &mut asleep);
    let dead: Vec<&P> = sched.ps.iter().filter(|p| p.status.is_dead()).collect();
    job(sched, stopped);
    sched.ps.iter().for_each(|p| p.status.go_on());
    asleep.into_iter().for_each(wake::notify);
    for p in dead {
        if !p.status.is_dead() {
            unowned.take(p);
        }
    }
    unowned.give_all();
}

/// Requests that all Ps stop, waits until they have, and retakes those that do not stop by
/// themselves. Idle Ps are claimed.
fn stop<'a>(unowned: &mut UnownedPs<'a>, asleep: &mut Vec<&'a P>) -> io::Result<()> {
    let sched = unowned.sched();
    let mut running: Vec<&P> = sched
        .ps
        .iter()
        .filter(|p| ask_to_stop(p) && !unowned.has(p))
        .collect();
    // ORDERING: a P that falls asleep becomes claimable and then checks whether it must stop.
    asleep.extend(running.extract_if(.., |p| wake::claim(sched, p)));
    let asked_ns = clock::now_ns();
    loop {
        let waited_ns = clock::now_ns() - asked_ns;
        running.retain(|&p| {
            if p.status.is_stopped() {
                return false;
            }
            if take_now(sched, p, waited_ns) {
                unowned.take(p);
                return false;
            }
            // Makes the holder check its status at the next dispatch. It may overwrite this
            // with a write of its own: then the next round repeats it.
            p.local.pace.measure_next();
            true
        });
        if running.is_empty() {
            return Ok(());
        }
        if waited_ns > stop_within_ns(sched) {
            return Err(not_stopped(sched));
        }
        clock::nap(ladder::GRACE_NS);
    }
}

fn stop_within_ns(sched: &Sched) -> u64 {
    if sched.membarrier {
        STOP_WITHIN_NS
    } else {
        ladder::HOG_NS
    }
}

fn not_stopped(sched: &Sched) -> io::Error {
    let why = if sched.membarrier {
        "its threads get no CPU, the machine is overloaded"
    } else {
        "a goroutine keeps its processor, and membarrier(2), which takes it away, is denied here"
    };
    io::Error::new(
        io::ErrorKind::TimedOut,
        format!("cannot stop the world: {why}"),
    )
}

/// Takes a P from an M that is in a blocking section, has not yet woken up to pick the P up, or has
/// computed for a while since the request to stop.
fn take_now(sched: &Sched, p: &P, waited_ns: u64) -> bool {
    let m_id = p.syscall.load(Ordering::Acquire);
    if m_id != 0 {
        return retake_syscall(p, m_id);
    }
    let Some(m) = owner_of(p) else {
        return false;
    };
    take_back(sched, m, p) || waited_ns >= STOPS_BY_ITSELF_NS && retake_running(m, p, true)
}

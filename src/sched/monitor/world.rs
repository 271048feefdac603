//! Stopping the world: for a moment nobody uses a P, so that the shape of the runtime
//! may change (how many Ps there are) or be looked at as a whole.
//!
//! Goroutines may go on computing meanwhile, without a P, as in Go's system calls;
//! they stop at their next call into the runtime. So stopping needs no goroutine's
//! help, and is bounded:
//!
//! | P is                              | how it stops                               |
//! |-----------------------------------|--------------------------------------------|
//! | held by an M in the scheduler, or | the M sees it in the P's fate before its   |
//! | whose goroutine calls it soon     | next dispatch, and waits there             |
//! | idle                              | claimed: its M sleeps on, or waits where   |
//! |                                   | it wakes, until it is notified             |
//! | given to an M that is yet to wake | taken back                                 |
//! | in a blocking section             | taken, as for a hand-off                   |
//! | held by a goroutine that computes | taken after 100 µs, as from a hog          |
//!
//! Taking from a goroutine that computes needs `membarrier(2)`. Where that is denied, one
//! that does not call the runtime for 10 ms makes the stop fail. So does, everywhere, an M
//! in the scheduler that gets no CPU for a second. Then the job is told of the failure,
//! and the world goes on as it was.
//!
//! One thread stops worlds: sysmon, at the request of others. It holds no P to run
//! goroutines on, and all takings and givings of Ps are its own: a P that nobody runs is
//! in its [`UnownedPs`] or dead, nowhere else.
//!
//! What a stopped world does not stop: threads without a P. They may still push to node
//! queues and make goroutines runnable; both are safe against everybody.

use std::io;

use crate::config::HOG_AFTER;
use crate::loom::native::atomic::Ordering;
use crate::loom::native::mpsc::{SyncSender, sync_channel};
use crate::sched::proc::leave;
use crate::sched::proc::run;
use crate::sched::types::p::P;
use crate::sched::types::state::{Phase, Sched};
use crate::sched::types::trace::EventKind;
use crate::sched::wait::handoff::owner_of;
use crate::sys::clock;
use crate::util::chaos::{self, Point};

/// How long a P has to stop by itself before it is taken.
const STOPS_BY_ITSELF_NS: u64 = 100_000;
/// A world that does not stop within this goes on: its threads get no CPU.
const STOP_WITHIN_NS: u64 = 1_000_000_000;
/// Pause between two looks at who has stopped.
const LOOK_EVERY_NS: u64 = 20_000;

impl Sched {
    /// Runs `f` in a stopped world and gives what it gave. Blocks the thread, so a
    /// goroutine calls it on another (`offload`). `None` if no run is going on: then
    /// the caller has the world to itself, unless one begins.
    pub(crate) fn in_stopped_world<T: Send + 'static>(
        &self,
        f: impl FnOnce(&Sched, io::Result<()>) -> T + Send + 'static,
    ) -> Option<T> {
        let (tell, told) = sync_channel(1);
        let tell: SyncSender<T> = tell;
        {
            let mut jobs = self.world.jobs();
            // Jobs are cleared, under this lock, after the phases in which sysmon serves them.
            if !matches!(self.phase(), Phase::Running | Phase::Cancelling) {
                return None;
            }
            jobs.push(Box::new(move |sched, stopped| {
                let _ = tell.send(f(sched, stopped));
            }));
            self.world.note_job();
        }
        self.sysmon.note.wake();
        told.recv().ok()
    }

    /// The end of a run, after its phase was set: whoever still asks gets no answer.
    pub(crate) fn refuse_jobs(&self) {
        self.world.clear();
    }

    /// Asks a P to stop. `false` for a dead one.
    fn ask_to_stop(&self, p: &P) -> bool {
        let asked = p.status.ask_to_stop();
        if asked && p.status.is_leaving() {
            // It waits for completions.
            p.poller.wake();
        }
        asked
    }

    /// Claims this very P if it is idle. `true` gives the duty to notify it.
    fn claim(&self, p: &P) -> bool {
        let idle = &self.node_of(p).idle;
        let is_claimed = idle.claim(p.at_in_node);
        if is_claimed {
            idle.add_spinner();
        }
        is_claimed
    }

    /// Wakes the M of this very P, if it sleeps.
    pub(crate) fn wake_sleeper(&self, p: &P) {
        if self.claim(p) {
            self.notify(p);
        }
    }
}

impl Sched {
    /// Gives a P that nobody holds to a spare M, or to a new one. `false` if
    /// there can be none now.
    pub(crate) fn hand_off(&self, p: &P) -> bool {
        self.handoffs.fetch_add(1, Ordering::Relaxed);
        p.taken.handoffs.fetch_add(1, Ordering::Relaxed);
        self.trace_other(EventKind::HandOff, Some(p), None);
        chaos::pause(Point::HandOff);
        match self.give_to_spare(p, None) {
            Some(m) => {
                m.note.wake();
                true
            }
            None => run::start_m(self, p),
        }
    }
}

/// The Ps that sysmon holds: taken from an M, or come to life, and not yet given to an M.
pub(crate) struct UnownedPs<'a> {
    sched: &'a Sched,
    ps: Vec<&'a P>,
}

impl<'a> UnownedPs<'a> {
    /// Holds all Ps in use but the first, which is M0's.
    pub(crate) fn new(sched: &'a Sched) -> UnownedPs<'a> {
        let ps = sched.ps_in_use().skip(1).collect();
        UnownedPs { sched, ps }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ps.is_empty()
    }

    /// Takes a P over that no M holds any more.
    pub(crate) fn take(&mut self, p: &'a P) {
        // Its last M may get another: nobody shall take that one for this.
        p.owner.store(std::ptr::null_mut(), Ordering::Release);
        self.ps.push(p);
    }

    /// Gives every P to an M; keeps those that no thread can be had for.
    pub(crate) fn give_all(&mut self) {
        let sched = self.sched;
        self.ps.retain(|p| !leave::bury(p) && !sched.hand_off(p));
    }

    /// Stops the world, does `job`, and lets the world go on.
    pub(crate) fn in_stopped_world(&mut self, job: impl FnOnce(&Sched, io::Result<()>)) {
        let sched = self.sched;
        let mut asleep = Vec::new();
        let stopped = self.stop(&mut asleep);
        let dead: Vec<&P> = sched.ps.iter().filter(|p| p.status.is_dead()).collect();
        job(sched, stopped);
        sched.ps.iter().for_each(|p| p.status.go_on());
        asleep.into_iter().for_each(|p| sched.notify(p));
        for p in dead {
            if !p.status.is_dead() {
                self.take(p);
            }
        }
        self.give_all();
    }

    /// Asks all Ps to stop, waits until they have, and takes those that do not by themselves.
    /// Those that were idle are claimed.
    fn stop(&mut self, asleep: &mut Vec<&'a P>) -> io::Result<()> {
        let sched = self.sched;
        let is_mine = |p: &P| self.ps.iter().any(|mine| mine.idx == p.idx);
        let mut running: Vec<&P> = sched
            .ps
            .iter()
            .filter(|p| sched.ask_to_stop(p) && !is_mine(p))
            .collect();
        // ORDERING: a P that falls asleep becomes claimable and then looks whether it shall stop.
        asleep.extend(running.extract_if(.., |p| sched.claim(p)));
        let asked_ns = clock::now_ns();
        loop {
            let waited_ns = clock::now_ns() - asked_ns;
            running.retain(|&p| {
                if p.status.is_stopped() {
                    return false;
                }
                if take_now(sched, p, waited_ns) {
                    self.take(p);
                    return false;
                }
                // Seen at its next dispatch, unless the holder is just writing here: then next time.
                p.local.set_budget(0);
                true
            });
            if running.is_empty() {
                return Ok(());
            }
            if waited_ns > stop_within_ns(sched) {
                return Err(not_stopped(sched));
            }
            clock::nap(LOOK_EVERY_NS);
        }
    }
}

fn stop_within_ns(sched: &Sched) -> u64 {
    if sched.membarrier {
        STOP_WITHIN_NS
    } else {
        HOG_AFTER.as_nanos() as u64
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

/// Takes a P from an M that is in a blocking section, has not woken up to it yet, or has
/// computed for a while since it was asked to stop.
fn take_now(sched: &Sched, p: &P, waited_ns: u64) -> bool {
    let m_id = p.syscall.load(Ordering::Acquire);
    if m_id != 0 {
        return sched.retake_syscall(p, m_id);
    }
    let Some(m) = owner_of(sched, p) else {
        return false;
    };
    sched.take_back(m, p)
        || waited_ns >= STOPS_BY_ITSELF_NS
            && !sched.request_preempt(m, p)
            && sched.retake_running(m, p)
}

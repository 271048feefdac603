//! Threads that compute without a P: sysmon has taken it, and their goroutines have not come back yet.
//!
//! Such a thread is left as it is at first, and then given a lower priority than the thread that has its P now. The
//! kernel posts the completion of an operation on the thread that submitted it, when that enters the kernel or is
//! interrupted: while operations are in flight, sysmon interrupts these threads. How long they compute tells how
//! early Ps should be taken ([`RetakeDelay`]).

use super::due_work::{self, RetakeDelay};
use crate::config::HOG_NICE;
use crate::loom::Ordering;
use crate::sched::types::m::{Carrier, RETAKEN};
use crate::sched::types::state::Sched;
use crate::sys::affinity;
use crate::sys::clock::{self, NEVER};
use crate::sys::sched as threads;
use crate::util::ladder;

/// A thread that has lost its P is left as it is for this long. The kernel gives a thread a new time
/// slice when its priority or mask changes, so that the P's new M would wait for that slice.
const SETTLED_AFTER_NS: u64 = ladder::SLICE_NS / 2;
/// A thread without a P that has used no CPU time for this long blocks, or gets none.
const BLOCKS_AFTER_NS: u64 = 10 * ladder::HOG_NS;

/// All threads that run on without the P that they had.
#[derive(Debug)]
pub(crate) struct Stragglers<'a> {
    sched: &'a Sched,
    all: Vec<Straggler<'a>>,
    can_renice: bool,
}

/// A thread that computes without a P.
#[derive(Debug)]
struct Straggler<'a> {
    m: &'a Carrier,
    tid: i32,
    is_demoted: bool,
    /// Its CPU time when its goroutine was first seen to compute, if it lost its P for due work.
    /// `None` once [`RetakeDelay`] has learned from it.
    begin_cpu_ns: Option<u64>,
    /// Its CPU time when it lost its P.
    lost_cpu_ns: u64,
    /// Its CPU time, and when that was found to have advanced.
    cpu_ns: Option<u64>,
    advanced_ns: u64,
    /// When its CPU time was last read.
    read_ns: u64,
}

impl<'a> Stragglers<'a> {
    pub(crate) fn new(sched: &'a Sched) -> Stragglers<'a> {
        Stragglers {
            sched,
            all: Vec::new(),
            can_renice: can_renice(),
        }
    }

    /// `m` has just lost its P. Its goroutine computes since its thread's CPU clock was at `begin_cpu_ns`, if that
    /// counts. Returns when to look at it.
    pub(crate) fn add(&mut self, m: &'a Carrier, begin_cpu_ns: Option<u64>, now_ns: u64) -> u64 {
        let tid = m.tid.load(Ordering::Relaxed);
        let cpu_ns = clock::thread_cpu_ns(tid);
        self.all.retain(|straggler| !std::ptr::eq(straggler.m, m));
        self.all.push(Straggler {
            m,
            tid,
            is_demoted: false,
            begin_cpu_ns,
            lost_cpu_ns: cpu_ns.unwrap_or(0),
            cpu_ns,
            advanced_ns: now_ns,
            read_ns: now_ns,
        });
        now_ns + SETTLED_AFTER_NS
    }

    /// Forgets those that are back, lowers the priority of the others, and interrupts them where completions may
    /// wait for that. Returns when to do so again.
    pub(crate) fn serve(&mut self, now_ns: u64, delay: &mut RetakeDelay) -> u64 {
        let can_renice = self.can_renice;
        self.all.retain_mut(|straggler| {
            // ORDERING: acquire; `note_length` reads what the M has stored before this.
            let is_back = straggler.m.access.load(Ordering::Acquire) != RETAKEN;
            let computes = !is_back && straggler.computes(now_ns);
            if computes {
                straggler.demote_once(can_renice);
            }
            straggler.note_length(delay, is_back);
            computes
        });
        if self.all.is_empty() {
            return NEVER;
        }
        let unsettled = self.all.iter().filter(|straggler| !straggler.is_demoted);
        let settled_ns = unsettled.map(|straggler| straggler.read_ns + SETTLED_AFTER_NS);
        settled_ns
            .min()
            .unwrap_or(NEVER)
            .min(self.interrupt(now_ns))
    }

    /// Makes the kernel post the completions that wait for these threads. Returns when to look for more.
    fn interrupt(&self, now_ns: u64) -> u64 {
        let in_flight = || {
            let ps = self.sched.ps_in_use();
            ps.filter(|p| p.poller.inflight() > 0)
        };
        if in_flight().next().is_none() {
            return NEVER;
        }
        if in_flight().any(|p| p.poller.owes_completions()) {
            // Without it the completions come at the next tick of the kernel's clock.
            let _ = threads::membarrier();
        }
        now_ns + due_work::NUDGE_EVERY_NS
    }
}

impl Straggler<'_> {
    /// Whether it has used CPU time lately, as far as is known: the clock of a thread is a system call away.
    fn computes(&mut self, now_ns: u64) -> bool {
        let wait_ns = match self.is_demoted {
            true => BLOCKS_AFTER_NS / 2,
            false => SETTLED_AFTER_NS,
        };
        if now_ns.saturating_sub(self.read_ns) >= wait_ns {
            self.read_ns = now_ns;
            let cpu_ns = clock::thread_cpu_ns(self.tid);
            if cpu_ns > self.cpu_ns {
                (self.cpu_ns, self.advanced_ns) = (cpu_ns, now_ns);
            }
        }
        now_ns - self.advanced_ns < BLOCKS_AFTER_NS
    }

    /// Lowers its priority when its CPU time has advanced since it lost its P.
    fn demote_once(&mut self, can_renice: bool) {
        let has_advanced = self.cpu_ns.unwrap_or(0) > self.lost_cpu_ns;
        // A thread or child that it is starting would inherit the priority.
        let is_starting = || self.m.is_widened.load(Ordering::SeqCst);
        if !self.is_demoted && has_advanced && !is_starting() {
            demote(self.m, self.tid, can_renice);
            self.is_demoted = true;
        }
    }

    /// Reports for how long its goroutine has computed, when it is back or that is known to be long. One
    /// that was back at once has computed beside nobody.
    fn note_length(&mut self, delay: &mut RetakeDelay, is_back: bool) {
        let Some(begin_ns) = self.begin_cpu_ns else {
            return;
        };
        let cpu_ns = match is_back {
            true => self.m.back_cpu_ns.load(Ordering::Relaxed),
            false => self.cpu_ns.unwrap_or(0),
        };
        let computed_ns = cpu_ns.saturating_sub(begin_ns);
        if !is_back && due_work::is_brief(computed_ns) {
            return;
        }
        if cpu_ns.saturating_sub(self.lost_cpu_ns) >= due_work::SHORT_CPU_NS {
            delay.note(computed_ns);
        }
        self.begin_cpu_ns = None;
    }
}

/// Whether a thread may raise its priority again after lowering it; tried out on this thread. `false` in a
/// process of another priority than the usual one, which is left alone.
fn can_renice() -> bool {
    let tid = threads::gettid();
    threads::is_usual(tid) && threads::set_nice(tid, 1).is_ok() && threads::set_nice(tid, 0).is_ok()
}

/// Lowers the priority of a thread that computes without a P, so that the P's new M keeps the core, and
/// gives it a usual time slice, so that the M's is the shorter one. Lets it run on any CPU: several such
/// threads may have been pinned to one. The thread restores both when it enters the scheduler
/// (`run::lost_p`), and pins itself when it takes a P. What it starts gets the usual priority (`children`). A
/// thread whose priority is not the usual one keeps it: a goroutine may have locked it and set that.
fn demote(m: &Carrier, tid: i32, can_renice: bool) {
    let sched = m.sched();
    let can_renice = can_renice && threads::is_usual(tid);
    m.demoted.store(can_renice, Ordering::SeqCst);
    let is_lowered = can_renice && m.set_nice(tid, HOG_NICE).is_ok();
    // The mask of a thread that a goroutine has locked may have been set on purpose.
    let is_freed = sched.pin && !m.is_locked();
    if is_freed {
        m.doubt_pin();
        sched
            .offload
            .with_mask(|mask| affinity::restore_thread(tid, mask));
    }
    // ORDERING: the M stores `access` and then reads `demoted`. So either it reads `true`, after
    // the priority was lowered, or this load sees that it is back.
    let is_back = m.access.load(Ordering::SeqCst) != RETAKEN;
    if is_back || !is_lowered {
        if is_lowered {
            let _ = m.set_nice(tid, 0);
        }
        m.demoted.store(false, Ordering::Relaxed);
    }
    if is_back
        && is_freed
        && let Some(cpu) = m.cpu()
    {
        // If it pins itself to another CPU now, `cpu_mask` finds the wrong mask within seconds.
        affinity::pin_thread(tid, cpu);
    }
}

//! Taking a P from its M, and finding another one for it: sysmon's part of the hand-off of a P.
//!
//! Only sysmon takes Ps and finds Ms for them. A P that no M holds, and that is on its way to none, is in its
//! [`UnownedPs`] or dead.
//!
//! | the P is                              | sysmon takes it by               | its M finds out                      |
//! |---------------------------------------|----------------------------------|--------------------------------------|
//! | in a blocking section                 | [`retake_syscall`]: a CAS on     | at the end of the section: its own   |
//! |                                       | `P::syscall`                     | CAS fails (`wait::handoff`)          |
//! | given up by its M                     | the same, from `LEFT`            | it gave the P up (`proc::leave`)     |
//! | held by a goroutine that computes     | [`retake_running`]: membarrier,  | at its next entry: RETAKEN           |
//! |                                       | a CAS on `M::access`             | (`wait::handoff`, `queue::access`)   |
//! | on its way to a spare M               | `spare::take_back`, to stop the  | it does not: it sleeps on            |
//! |                                       | world                            |                                      |
//!
//! An M that has lost its P runs its goroutine up to the next entry into the scheduler, queues it on its node
//! (`run::lost_p`), and becomes a spare. The P goes to a spare M (`proc::spare`), else to a new thread
//! (`proc::threads`). Without either it stays here, and sysmon is woken when there is a thread. Its goroutines and
//! timers go to others. If its poller has something, sysmon calls an M that sleeps with another P: that M gives
//! its own P up.
#![allow(unsafe_code)]

use super::resize;
use crate::loom::Ordering;
use crate::loom::native::atomic::AtomicBool;
use crate::sched::proc::leave;
use crate::sched::proc::spare::give_to_spare;
use crate::sched::proc::threads::start_m;
use crate::sched::types::events::EventKind;
use crate::sched::types::m::Carrier;
use crate::sched::types::p::P;
use crate::sched::types::state::Sched;
use crate::sched::wait::wake;
use crate::sys::clock::NEVER;
use crate::sys::sched::membarrier;
use crate::util::chaos::{self, Point};

/// The M that holds `p`, or that `p` was given to. For sysmon only.
pub(crate) fn owner_of(p: &P) -> Option<&Carrier> {
    // SAFETY: an owner is an M in a box of `Sched::ms`. Boxes are freed at the end of a run, after sysmon has been
    // joined, and no P has an owner from then on (`runtime::end_ms`); an M whose thread ends stays in its box. The
    // caller is sysmon, and a `Carrier` may be read by any thread.
    unsafe { p.owner().cast::<Carrier>().as_ref() }
}

/// Retakes `p` out of the blocking section of the M with this id.
pub(crate) fn retake_syscall(p: &P, m_id: u64) -> bool {
    p.syscall
        .compare_exchange(m_id, 0, Ordering::AcqRel, Ordering::Relaxed)
        .is_ok()
}

/// Requests that the goroutine on `m`, which holds `p`, yields at its next entry.
pub(crate) fn request_preempt(m: &Carrier, p: &P) {
    let dispatches = p.stats.dispatches.get();
    if m.seems_to_hold(p) {
        m.preempt_at.store(dispatches, Ordering::Relaxed);
        m.words().ask();
    }
}

/// Retakes `p` from `m`, whose goroutine has run for long. If it is inside the scheduler just now, or the P may
/// not be taken, requests that it yields at its next entry. `false` then, and if `m` holds another P or is in a
/// blocking section by now.
pub(crate) fn retake_running(m: &Carrier, p: &P, may_take: bool) -> bool {
    request_preempt(m, p);
    may_take && m.sched().membarrier && m.words().take(p, || membarrier().is_ok())
}

/// Whether `p` may be taken from an M that does not serve it: there is a thread for it, or it has something that the M
/// of another P can do (`share_left`, `call_ms`).
pub(crate) fn may_take(sched: &Sched, p: &P, now_ns: u64) -> bool {
    has_thread_for_p(sched) || has_due_work(p, now_ns) && has_heir(sched, p)
}

fn has_due_work(p: &P, now_ns: u64) -> bool {
    !p.runq.is_empty() || p.timers.next_ns() <= now_ns || has_news(p)
}

fn has_heir(sched: &Sched, p: &P) -> bool {
    let is_heir = |other: &P| other.idx != p.idx && is_served(other);
    sched.ps_in_use().any(is_heir)
}

/// Whether a P has an M, which is in no blocking section.
fn is_served(p: &P) -> bool {
    !p.owner().is_null() && p.syscall.load(Ordering::Relaxed) == 0
}

/// Whether there is a thread for one more P. If not, sysmon is woken as soon as there is one.
fn has_thread_for_p(sched: &Sched) -> bool {
    let may_start = || sched.n_ms.load(Ordering::Relaxed) < sched.config.max_threads;
    if may_start() {
        return true;
    }
    let mut ms = sched.ms.lock();
    // Again, as a thread that ends asks for the flag under the lock.
    let is_there = may_start() || !ms.spare.is_empty();
    ms.is_wanted |= !is_there;
    is_there
}

/// The Ps that sysmon holds: retaken from an M, or newly in use, and not yet given to an M.
pub(crate) struct UnownedPs<'a> {
    sched: &'a Sched,
    ps: Vec<&'a P>,
}

impl<'a> UnownedPs<'a> {
    /// Starts with all Ps in use but the first, which is M0's.
    pub(crate) fn new(sched: &'a Sched) -> UnownedPs<'a> {
        let ps = sched.ps_in_use().skip(1).collect();
        UnownedPs { sched, ps }
    }

    pub(crate) fn sched(&self) -> &'a Sched {
        self.sched
    }

    pub(crate) fn has(&self, p: &P) -> bool {
        self.ps.iter().any(|own| own.idx == p.idx)
    }

    /// How many there are, if none has work.
    pub(crate) fn n_idle(&self) -> Option<usize> {
        let has_work = self.ps.iter().any(|p| p.has_work());
        (!has_work).then_some(self.ps.len())
    }

    /// Takes over a P that no M holds any more.
    pub(crate) fn take(&mut self, p: &'a P) {
        // Its last M may get another P, which must not be retaken in place of this one.
        p.owner.store(std::ptr::null_mut(), Ordering::Release);
        self.ps.push(p);
    }

    /// As [`UnownedPs::take`], for a P that was retaken, and gives it on.
    pub(crate) fn hand_on(&mut self, p: &'a P) {
        self.sched.retakes.fetch_add(1, Ordering::Relaxed);
        self.take(p);
        self.give_all();
    }

    /// Gives every P to an M; keeps those for which no thread is available. Those with work come first: only
    /// the holder of a P sees that its operations have completed. So the first for which there is no thread ends it,
    /// or a thread that becomes free just then would go to one without work. Sysmon comes again for that thread.
    pub(crate) fn give_all(&mut self) {
        let sched = self.sched;
        // An M that gets its P now is not to give it up at once.
        set_call(&sched.sysmon.calls_busy_m, false);
        self.ps.sort_by_key(|p| (!has_news(p), !p.has_work()));
        let mut has_thread = true;
        self.ps.retain(|p| {
            let stays = !leave::try_to_end(p);
            has_thread = has_thread && (!stays || hand_off(sched, p));
            stays && !has_thread
        });
        self.share_left();
        self.call_ms();
    }

    /// Moves the goroutines and timers of the Ps that are left to others.
    fn share_left(&self) {
        let sched = self.sched;
        let has_any = |p: &&&P| !p.runq.is_empty() || p.timers.next_ns() != NEVER;
        for p in self.ps.iter().filter(has_any) {
            if let Some(heir) = sched.ps_in_use().find(|p| is_served(p)) {
                resize::hand_over(sched, p, heir);
                wake::wake_sleeper(sched, heir);
                wake::wake_in(sched, sched.live_node(p.node_idx), None);
            }
        }
    }

    /// Wakes the M of an idle P if the poller of one that is left has something: it finds nothing to run, and
    /// becomes a spare (`leave::is_called`). Where no M is idle, a busy one does that (`leave::is_called_away`); this
    /// moves what its P has to others. Repeated in each round.
    fn call_ms(&self) {
        let sched = self.sched;
        let calls = self.ps.iter().any(|p| has_news(p));
        set_call(&sched.sysmon.calls_ms, calls);
        let may_come = |p: &&P| {
            let is_idle = sched.node_of(p).idle.is_idle(p.at_in_node);
            is_idle && owner_of(p).is_some_and(|m| !m.is_locked())
        };
        match sched.ps_in_use().find(may_come) {
            Some(p) if calls => wake::wake_sleeper(sched, p),
            idle => set_call(&sched.sysmon.calls_busy_m, calls && idle.is_none()),
        }
    }
}

/// Sets whether Ms are called. Writes only what changes: all Ms read it.
fn set_call(call: &AtomicBool, calls: bool) {
    if call.load(Ordering::Relaxed) != calls {
        call.store(calls, Ordering::Relaxed);
    }
}

/// Whether the poller of a P has something for goroutines.
fn has_news(p: &P) -> bool {
    p.poller.inflight() > 0 && p.poller.has_news()
}

/// Gives a P that nobody holds to a spare M, or to a new one. `false` if there can be none now.
fn hand_off(sched: &Sched, p: &P) -> bool {
    sched.handoffs.fetch_add(1, Ordering::Relaxed);
    p.taken.handoffs.fetch_add(1, Ordering::Relaxed);
    sched.trace_other(EventKind::HandOff, Some(p), None);
    chaos::pause(Point::HandOff);
    match give_to_spare(sched, p, None) {
        Some(m) => {
            m.note.wake();
            true
        }
        None => start_m(sched, p),
    }
}

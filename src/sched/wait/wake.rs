//! Making goroutines runnable, and waking an M for them.
#![allow(unsafe_code)]

use super::handoff::Section;
use super::home;
use crate::g::header::GRef;
use crate::g::list::GList;
use crate::g::status::{Reason, WaitId, Why};
use crate::loom::native::atomic::Ordering;
use crate::loom::native::futex;
use crate::loom::native::{PoisonError, RwLock};
use crate::loom::oracle;
use crate::race;
use crate::sched::numa::policy::{self, Wake, WakeView};
use crate::sched::queue::idle::WakeMethod;
use crate::sched::types::current;
use crate::sched::types::events::EventKind;
use crate::sched::types::m::M;
use crate::sched::types::p::P;
use crate::sched::types::sampling;
use crate::sched::types::state::{Node, Sched};
use crate::util::chaos::{self, Point};
use crate::util::ladder;

/// Read-locked by a thread that is not an M of the runtime while it wakes one of its goroutines,
/// and write-locked once at the end of a run: a scheduler is not torn down under a waker that has
/// just taken a wake token.
static GRACE: RwLock<()> = RwLock::new(());

/// Waits until no outside waker uses a scheduler whose goroutines have all ended.
pub(crate) fn wait_for_outside_wakers() {
    drop(GRACE.write().unwrap_or_else(PoisonError::into_inner));
}

/// Ends one particular wait of `g`, from any thread. `true` if this caller took the wake token.
/// Never blocks, and leaves the calling goroutine on its thread; makes at most one system call.
pub(crate) fn wake(g: GRef, wait: WaitId) -> bool {
    let is_own = current::m().is_some_and(|m| m.sched().owns(g));
    if is_own && let Some(section) = Section::enter_in_place() {
        if !g.status.wake(wait) {
            return false;
        }
        note_woken(g, wait);
        ready(section.m(), g);
        return true;
    }
    if !g.status.wake(wait) {
        return false;
    }
    note_woken(g, wait);
    ready_from_outside(g);
    true
}

/// The caller has taken the wake token of `g`. An unparker may have found the wait by the status word, and in a context
/// the commit reads the stack.
#[inline(always)]
fn note_woken(g: GRef, wait: WaitId) {
    if wait.why() == Why::cancellable(Reason::Park, true) {
        oracle::commit_is_over(g.as_ptr());
    }
    chaos::pause(Point::Wake);
}

/// Queues `g`, whose wake token the caller has taken, in its own runtime.
pub(crate) fn ready_from_outside(g: GRef) {
    let _grace = GRACE.read().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: the token says that `g` was waiting, so its runtime has a live goroutine until `g` is
    // queued, and the run cannot end while the grace lock is held.
    let sched = unsafe { &*g.sched().cast::<Sched>() };
    race::readies(g.as_ptr());
    inject(sched, g);
}

/// As [`ready_from_outside`], for a canceller that found the wait in the status word and took its
/// token. Calls `first` before it queues `g`.
pub(crate) fn ready_cancelled(g: GRef, first: impl FnOnce(&Sched)) {
    let _grace = GRACE.read().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: as in `ready_from_outside`.
    let sched = unsafe { &*g.sched().cast::<Sched>() };
    first(sched);
    race::readies(g.as_ptr());
    inject(sched, g);
}

/// Makes `g` the next goroutine to run on this M's P, or sends it home. The goroutine that it
/// displaces from runnext goes to the tail of the queue. Only then is there work for another M, so
/// only then is one woken.
#[inline(always)]
pub(crate) fn ready(m: &M, g: GRef) {
    race::readies(g.as_ptr());
    if !m.p().observes_wakes() || keep_or_send_home(m, g) {
        ready_here(m, g);
    }
}

/// As [`ready`], for a goroutine that runs here.
#[inline(always)]
pub(crate) fn ready_here(m: &M, g: GRef) {
    debug_assert!(m.sched().owns(g), "a goroutine of another runtime");
    if chaos::coin(Point::Tail) {
        return push_and_wake(m, g);
    }
    if let Some(kicked) = m.p().runq.set_runnext(g) {
        push_and_wake(m, kicked);
    }
}

/// `g` was made runnable here: `true` if the caller is to queue it; else it was sent to its home node.
#[cold]
#[inline(never)]
pub(crate) fn keep_or_send_home(m: &M, g: GRef) -> bool {
    let p = m.p();
    p.trace_ready(g);
    if p.is_numa()
        && let Some(node_idx) = home::when_ready(m, g)
    {
        send_to(m.sched(), node_idx, g);
        return false;
    }
    true
}

/// `g` is about to run on this M's P: `true` if it may; else it was sent to a node where it may.
#[cold]
#[inline(never)]
pub(crate) fn admit_or_send_home(m: &M, g: GRef) -> bool {
    match home::when_dispatched(m, g) {
        None => true,
        Some(node_idx) => {
            send_to(m.sched(), node_idx, g);
            false
        }
    }
}

/// Queues a goroutine behind others, for which an M may be woken.
#[inline(never)]
pub(crate) fn push_and_wake(m: &M, g: GRef) {
    push_local(m, g);
    wake_for_surplus(m.sched(), m.p());
}

/// Whether a completion may go to runnext, ahead of the queue. In a longer queue (a busy server's, full of other
/// completions) that would only make the others' latency uneven.
#[inline(always)]
fn may_overtake(p: &P) -> bool {
    p.runq.len() < ladder::BATCH as usize / 2
}

/// Queues goroutines whose operations have completed, as [`ready_all`] does.
pub(crate) fn ready_completed(m: &M, gs: GList) {
    if !gs.is_empty() {
        m.p().local.slice.note_completions();
    }
    ready_all(m, gs);
}

/// Queues goroutines that became runnable together: the first in runnext, if few wait, the rest at
/// the tail.
pub(crate) fn ready_all(m: &M, mut gs: GList) {
    let p = m.p();
    let is_plain = gs.len() == 1 && !p.observes_wakes() && may_overtake(p);
    match is_plain.then(|| gs.pop()).flatten() {
        Some(g) => {
            debug_assert!(m.sched().owns(g), "a goroutine of another runtime");
            race::readies(g.as_ptr());
            if let Some(kicked) = p.runq.set_runnext(g) {
                push_and_wake(m, kicked);
            }
        }
        None => ready_many(m, gs),
    }
}

#[inline(never)]
fn ready_many(m: &M, mut gs: GList) {
    let p = m.p();
    let mut n_here = 0;
    let mut kicked = None;
    let mut is_next = may_overtake(p);
    while let Some(g) = gs.pop() {
        debug_assert!(m.sched().owns(g), "a goroutine of another runtime");
        race::readies(g.as_ptr());
        if p.observes_wakes() && !keep_or_send_home(m, g) {
            continue;
        }
        n_here += 1;
        if std::mem::take(&mut is_next) {
            kicked = p.runq.set_runnext(g);
        } else {
            push_local(m, g);
        }
    }
    let surplus = n_here > 1 || kicked.is_some();
    if let Some(kicked) = kicked {
        push_local(m, kicked);
    }
    if surplus {
        wake_for_surplus(m.sched(), p);
    }
}

/// Queues goroutines whose timers expired. If few goroutines wait, the first goes to runnext, as in
/// [`ready_all`]. Otherwise they go to the head of the queue, up to their share of dispatches. A
/// queue that is nearly full overflows before that, because overflow is taken from the head.
pub(crate) fn ready_expired(m: &M, mut gs: GList) {
    let p = m.p();
    if gs.is_empty() || may_overtake(p) && !p.slice_is_over() {
        return ready_all(m, gs);
    }
    let mut first = [None; ladder::BATCH as usize];
    // Goroutines of a chain do not count: they may be those that timers woke, and the queue has none of their turns.
    let dispatches = p.stats.dispatches.get() - p.stats.runnext_dispatches.get();
    let n_overtake = p.local.timers.overtakers(dispatches, gs.len());
    for place in &mut first[..n_overtake] {
        *place = gs
            .pop()
            .filter(|&g| !p.observes_wakes() || keep_or_send_home(m, g));
    }
    ready_all(m, gs);
    let n_first = first.iter().flatten().count();
    if n_first > 0 {
        // For more than those: others may be pushed before they run.
        let over = p.runq.make_room(n_first + first.len());
        if !over.is_empty() {
            overflow(m, over);
        }
    }
    for g in first.into_iter().rev().flatten() {
        if let Err(g) = p.runq.push_first(g) {
            push_local(m, g);
        }
    }
    if n_first > 0 {
        wake_for_surplus(m.sched(), p);
    }
}

/// Appends to the local queue; overflow goes to the node's queue.
#[inline]
pub(crate) fn push_local(m: &M, g: GRef) {
    debug_assert!(m.sched().owns(g), "a goroutine of another runtime");
    if let Err(over) = m.p().runq.push(g) {
        overflow(m, over);
    }
}

#[cold]
fn overflow(m: &M, over: GList) {
    let p = m.p();
    p.stats.overflows.add(1);
    m.sched().node_of(p).queue.push_all(over);
}

/// Queues a runnable G from outside in its home node's queue, and wakes a P there.
pub(crate) fn inject(sched: &Sched, g: GRef) {
    sched.trace_other(EventKind::Ready, None, Some(g));
    send_to(sched, sched.live_node_idx(g.home()), g);
}

/// Queues a runnable G in a node's queue, and wakes a P there.
pub(crate) fn send_to(sched: &Sched, node_idx: usize, g: GRef) {
    debug_assert!(sched.owns(g), "a goroutine of another runtime");
    #[cfg(feature = "sim")]
    if sched.config.is_simulated() && !current::m().is_some_and(|m| std::ptr::eq(m.sched, sched)) {
        sched.met_outside.store(true, Ordering::Relaxed);
    }
    let node = &sched.nodes[node_idx];
    sampling::stamp_injected(g);
    node.queue.push(g);
    chaos::pause(Point::Push);
    wake_in(sched, node, None);
    // All Ps may be in blocking sections: then sysmon must retake one.
    let awaits_work = &sched.sysmon.awaits_work;
    if awaits_work.load(Ordering::SeqCst) && awaits_work.swap(false, Ordering::SeqCst) {
        sched.sysmon.note.wake();
    }
}

/// After a push to `p`'s queue: wakes at most one M of its node, and one of another node if its queue has passed a power
/// of two.
#[inline]
pub(crate) fn wake_for_surplus(sched: &Sched, p: &P) {
    chaos::pause(Point::Push);
    if !sched.idle_nodes.any_after_push() {
        return;
    }
    let node = sched.node_of(p);
    if p.is_numa() && p.runq.published.is_far_from(p.runq.len()) && sched.publish(p) {
        wake_for_published(sched, p);
    }
    // Without the NUMA policy all Ps are equal.
    if sched.idle_nodes.has(&node.idle) || sched.config.numa.is_flat() {
        wake_in(sched, node, Some(p));
    }
}

/// Called when `p` has published a longer queue: a thief of another node may have read the old
/// length just before, and gone to sleep. Ps of its own node were woken at the push.
#[cold]
pub(crate) fn wake_for_published(sched: &Sched, p: &P) {
    let node = sched.node_of(p);
    if sched.idle_nodes.any() && !node.idle.any_idle() {
        wake_in(sched, node, Some(p));
    }
}

/// Wakes the idle P of `node` that is nearest to `near`, unless an M spins there; a P of
/// another node only if this one has no idle P and a backlog.
pub(crate) fn wake_in(sched: &Sched, node: &Node, near: Option<&P>) {
    let here = WakeView {
        spinning: node.idle.n_spinning(),
        any_idle: any_idle(sched, node),
        n_ps: node.n_live.load(Ordering::Relaxed),
    };
    let backlog = || match sched.config.numa.is_flat() {
        // Without the NUMA policy all Ps are equal.
        true => usize::MAX,
        false => node.queue.summary.runnable(),
    };
    let others = node.remote_peers.neighbours.iter();
    let others = others
        .map(|n| &sched.nodes[n.node_idx])
        .filter(|n| any_idle(sched, n) && n.idle.n_spinning() == 0);
    match policy::whom_to_wake(here, backlog, others) {
        Wake::Nobody => {}
        Wake::Here => wake_spinner(sched, node, near, 1),
        Wake::Other(other) => wake_spinner(sched, other, near, 1),
    }
}

/// Whether a P of `node` is idle; see [`IdleNodes::any_idle`](crate::sched::queue::idle::IdleNodes::any_idle).
fn any_idle(sched: &Sched, node: &Node) -> bool {
    let wakes = || wake_spinner(sched, node, None, 1);
    sched.idle_nodes.any_idle(&node.idle, wakes)
}

/// Wakes the idle P of `node` that is nearest to `near`, unless `most` Ms spin there.
pub(crate) fn wake_spinner(sched: &Sched, node: &Node, near: Option<&P>, most: u32) {
    let mut from = near;
    while node.idle.begin_wake(most) {
        chaos::pause(Point::Notify);
        if let Some(p) = claim_idle(sched, node, from.take()) {
            if let Some(near) = near {
                near.stats.wakes_sent.add(1);
                if near.node_idx != p.node_idx {
                    near.stats.wakes_remote.add(1);
                }
            }
            return notify(p);
        }
        // All idle Ps woke by themselves. Others may have become idle since, and pushers have left their work to
        // this spinner, which there is not.
        if !node.idle.stop_spinning() {
            return;
        }
    }
}

/// Claims the idle P of `node` that is nearest to `near`.
fn claim_idle<'a>(sched: &'a Sched, node: &Node, near: Option<&P>) -> Option<&'a P> {
    let claim = |idx: usize| {
        let p = &sched.ps[idx];
        (node.ps.contains(&idx) && node.idle.is_idle(p.at_in_node) && node.idle.claim(p.at_in_node))
            .then_some(p)
    };
    if let Some(near) = near.filter(|near| node.ps.contains(&near.idx)) {
        let mut by_distance = near.levels.iter().flat_map(|l| l.victims.iter());
        return by_distance.find_map(|&idx| claim(idx));
    }
    node.ps.clone().find_map(claim)
}

/// Wakes the M of this P, if it sleeps.
pub(crate) fn wake_sleeper(sched: &Sched, p: &P) {
    if claim(sched, p) {
        notify(p);
    }
}

/// Claims this P if it is idle. With `true` the caller must notify it.
pub(crate) fn claim(sched: &Sched, p: &P) -> bool {
    let idle = &sched.node_of(p).idle;
    let is_claimed = idle.claim(p.at_in_node);
    if is_claimed {
        idle.add_spinner();
    }
    is_claimed
}

/// Wakes the M of a P that the caller claimed.
pub(crate) fn notify(p: &P) {
    chaos::pause(Point::Notify);
    match p.word.notify() {
        WakeMethod::Nothing => {}
        WakeMethod::Futex => futex::wake_one(p.word.futex()),
        WakeMethod::Ring => p.poller.wake(),
    }
}

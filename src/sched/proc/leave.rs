//! How an M serves a request to its P: it waits while the world is stopped, retires a P that
//! leaves, and gives up a P with nothing to run if another needs a thread, or one with goroutines if no M is idle.

use super::sleep::stop_spinning;
use crate::g::list::GList;
use crate::loom::Ordering;
use crate::sched::types::m::M;
use crate::sched::types::p::P;
use crate::sched::wait::handoff::{LEFT, bump};
use crate::sched::wait::wake;
use crate::sys::clock;
use crate::util::ladder;

/// Serves the request to the M's P, between two dispatches. Afterwards the M may have no P.
#[cold]
#[inline(never)]
pub(crate) fn serve_request(m: &M) {
    stop_spinning(m);
    let p = m.p();
    p.status.wait_while_stopped();
    if p.status.is_leaving() {
        leave(m, p);
    } else if is_called(m, p) || is_called_away(m) && answer_call(m) {
        p.poller.flush();
        leave_to_sysmon(m, p);
    }
}

/// Whether `m` is to give up its P, which has nothing to run, because another P needs a thread.
pub(crate) fn is_called(m: &M, p: &P) -> bool {
    m.sched().sysmon.calls_ms.load(Ordering::Relaxed) && p.runq.is_empty() && !m.is_locked()
}

/// Whether an M with goroutines to run is to give up its P, because another P needs a thread and no M is idle.
#[inline]
pub(crate) fn is_called_away(m: &M) -> bool {
    let is_called = m.sched().sysmon.calls_busy_m.load(Ordering::Relaxed);
    is_called && !m.is_locked() && !m.handed_work.is_there()
}

/// Whether `m` is the first to answer.
fn answer_call(m: &M) -> bool {
    let call = &m.sched().sysmon.calls_busy_m;
    call.swap(false, Ordering::Relaxed)
}

/// Gives up the P of `m`. Sysmon finds it in a blocking section from which no M returns, and retakes it at once,
/// with or without work: an unowned P must become idle, so that it can be woken for other Ps' work and is counted
/// as idle.
pub(crate) fn leave_to_sysmon(m: &M, p: &P) {
    m.set_p(None);
    bump(&p.syscalltick);
    p.syscall.store(LEFT, Ordering::Release);
    m.sched().sysmon.note.wake();
}

/// Moves the goroutines of its local queue to `gs`.
pub(crate) fn take_queue(p: &P, gs: &mut GList) {
    gs.extend_one(p.runq.take_runnext());
    while let Some(g) = p.runq.pop() {
        gs.push(g);
    }
}

/// The last step of a P that leaves, by its holder: `true` if it is dead now. `false`
/// if it may not go: something is in flight, it shall stop, or it is in use again.
pub(crate) fn try_to_end(p: &P) -> bool {
    p.status.is_leaving() && p.poller.inflight() == 0 && p.status.end()
}

/// Gets rid of what a leaving P still has, and then of the P. One step, so that a stop of
/// the world does not wait for long.
pub(crate) fn leave(m: &M, p: &P) {
    let sched = m.sched();
    let mut gs = GList::new();
    if p.poller.inflight() > 0 {
        p.poller.cancel_all(&mut gs);
        p.poller.flush();
        p.poller.wait(clock::now_ns() + ladder::LATE_NS);
        p.poller.reap(&mut gs);
    }
    take_queue(p, &mut gs);
    sched.publish(p);
    if !gs.is_empty() {
        let node = sched.live_node(p.node_idx);
        node.queue.push_all(gs);
        wake::wake_in(sched, node, None);
    }
    if try_to_end(p) {
        m.set_p(None);
    }
}

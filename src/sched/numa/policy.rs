//! NUMA scheduling decisions, as pure functions of plain numbers.
//!
//! Memory of another node is slower to access, and a goroutine that runs on another node than its
//! home drags its stack and its data across. So work stays on its node while that node keeps up,
//! and leaves when it does not: no node stays idle for long beside an overloaded one. These two
//! goals conflict; this module draws the line between them.
//!
//! The scheduler calls these functions with values of its atomics. A simulator of large machines
//! calls them with simulated values (`policy_sim_tests`). They have no side effects.
//!
//! 1. *Gate* ([`may_look_away`], [`may_steal_remote`]). A thief considers other nodes once its own
//!    is dry: two sweeps of its Ps found nothing, its ring has no completions, and the node's queue
//!    is empty. It may then take from a node with more runnable goroutines than idle Ps, or from
//!    one where a goroutine has waited for long. The farther away the node, the longer that must
//!    be.
//! 2. *Work conservation* ([`is_starved`]). A node that has been idle for a millisecond while
//!    another needs help may take any goroutine that waits there.
//! 3. *Batch* ([`remote_batch`]). One theft feeds the node: the thief takes one goroutine for
//!    itself and one for each idle P of its node. Thefts are serialised: at most one P of a node
//!    steals from a given other node at a time (the rest get [`StealDenied::PairBusy`]).
//! 4. *Waking* ([`whom_to_wake`]). Work wakes a P of its own node. It wakes a P of the nearest
//!    other node that has an idle one only if its own has no idle P and more goroutines wait than
//!    there are Ps.
//! 5. *Home* ([`where_to_run`], [`after_remote`]). A goroutine woken from another node goes home if
//!    a P is idle there; otherwise it runs where it was woken. After eight times away in a row,
//!    that node becomes its home.
//!
//! Rejected:
//!
//! - A probability of remote steals that falls with the distance (NUMA-WS, libfork): every idle P
//!   touches remote memory all the time.
//! - A single thief per node that alone may steal remotely (HPX): its node is stranded while it is
//!   busy.
//! - No stealing between nodes (oneTBB's arenas, Seastar): the user must split the work.

use crate::util::ladder;
use windlass_topology::steal::patience;

/// Fruitless sweeps of its own node before a thief considers other nodes.
pub(crate) const LOCAL_SWEEPS: u32 = 2;
/// Maximum number of goroutines that a thief takes from another node at once.
pub(crate) const REMOTE_MAX: usize = 64;
/// How many times in a row a goroutine runs on, or is woken from, another node than its home before
/// that node becomes its home.
pub(crate) const TIMES_AWAY: u8 = 8;

/// A thief's view of another node: one cache line (`sched::numa::summary`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeView {
    /// Goroutines in its queues that a thief may take.
    pub(crate) runnable: usize,
    /// Ps that sleep or spin: they will take some of the runnable goroutines.
    pub(crate) idle: usize,
    /// How long the goroutine at the head of a queue has waited; 0 if unknown.
    pub(crate) oldest_wait_ns: u64,
    /// Something waits behind a goroutine that does not switch out: an expired timer, or the
    /// goroutine that its P would run next.
    pub(crate) is_stuck: bool,
}

/// A thief's view of its own node.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OwnView {
    /// Sweeps that have just found nothing.
    pub(crate) dry_sweeps: u32,
    /// Its ring has completions to reap.
    pub(crate) ring_has_work: bool,
    /// Goroutines in the node's queue.
    pub(crate) queued: usize,
}

/// Why a thief was denied a remote steal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StealDenied {
    /// At least as many Ps are idle there as goroutines wait, and no wait is known to be long.
    NoSurplus = 0,
    /// As `NoSurplus`, but a wait there is known, and is too short for this distance.
    TooYoung,
    /// Another P of the thief's node is stealing there.
    PairBusy,
    /// All waiting goroutines are bound to their node.
    Bound,
}

/// Number of reasons.
pub(crate) const N_DENIALS: usize = 4;

/// Whether a thief may steal from another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Pass,
    /// There is nothing to take.
    Nothing,
    Denied(StealDenied),
}

/// Whether a thief has tried everything that comes before other nodes.
pub(crate) fn may_look_away(own: OwnView) -> bool {
    own.dry_sweeps >= LOCAL_SWEEPS && !own.ring_has_work && own.queued == 0
}

/// Whether a thief may take from a node at this distance.
pub(crate) fn may_steal_remote(victim: NodeView, distance: u32, is_starved: bool) -> Verdict {
    if is_starved && (victim.runnable > 0 || victim.is_stuck) {
        return Verdict::Pass;
    }
    if victim.runnable == 0 {
        return Verdict::Nothing;
    }
    let is_old = u128::from(victim.oldest_wait_ns) >= patience(distance).as_nanos();
    match victim.oldest_wait_ns {
        _ if victim.runnable > victim.idle || is_old => Verdict::Pass,
        0 => Verdict::Denied(StealDenied::NoSurplus),
        _ => Verdict::Denied(StealDenied::TooYoung),
    }
}

/// How many goroutines a thief takes from one queue of another node, while `idle_beside` Ps of its
/// own node are idle.
pub(crate) fn remote_batch(available: usize, idle_beside: usize) -> usize {
    available.div_ceil(2).min(idle_beside + 1).min(REMOTE_MAX)
}

/// Whether a node cannot run its work by itself: it has too few Ps, or its Ps do not get to the
/// work.
pub(crate) fn needs_help(node: NodeView) -> bool {
    node.runnable > node.idle
        || node.is_stuck && node.idle == 0
        || node.runnable > 0 && node.oldest_wait_ns >= ladder::LATE_NS
}

/// Whether a node whose Ps have all been idle for `idle_ns` may take work of another node without
/// passing the gate.
pub(crate) fn is_starved(idle_ns: u64, another_needs_help: bool) -> bool {
    idle_ns >= ladder::LATE_NS && another_needs_help
}

/// A waker's view of the node on which it queued work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WakeView {
    /// Ms that spin there: they will find the work.
    pub(crate) spinning: u32,
    pub(crate) any_idle: bool,
    pub(crate) n_ps: usize,
}

/// The node of which a P is woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wake<N> {
    Nobody,
    Here,
    Other(N),
}

/// Which P to wake for work queued on a node. `backlog` counts the goroutines that wait there.
/// `others` yields the other nodes with an idle P and no spinning M, nearest first. Both are
/// evaluated only if needed.
pub(crate) fn whom_to_wake<N>(
    here: WakeView,
    backlog: impl FnOnce() -> usize,
    mut others: impl Iterator<Item = N>,
) -> Wake<N> {
    if here.spinning != 0 {
        return Wake::Nobody;
    }
    if here.any_idle {
        return Wake::Here;
    }
    match others.next() {
        Some(other) if backlog() > here.n_ps => Wake::Other(other),
        _ => Wake::Nobody,
    }
}

/// Idle Ps of a node that wake one after the other: that takes 5 µs for each.
const MOST_IN_A_CHAIN: usize = 8;

/// Whether an M that stops spinning, and leaves `n_waiting` goroutines for others, wakes two Ms.
/// Else only the last one to stop wakes one.
pub(crate) fn wakes_two(n_waiting: usize, n_idle: impl FnOnce() -> usize) -> bool {
    n_waiting >= 2 && n_idle() > MOST_IN_A_CHAIN
}

/// Whether one more M may spin: at most half of a node's busy Ps do.
pub(crate) fn may_spin(n_spinning: usize, n_busy: usize) -> bool {
    2 * n_spinning < n_busy
}

/// A waker's view of a goroutine whose home is another node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RemoteWake {
    pub(crate) is_bound: bool,
    /// It has run: its stack is on its home node.
    pub(crate) has_run: bool,
    /// A P is idle at home.
    pub(crate) home_is_idle: bool,
    /// Times away in a row, before this one.
    pub(crate) times_away: u8,
}

/// Where a goroutine that was made runnable away from home is queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WakePlacement {
    Home,
    Here,
    /// Here, and this node becomes its home.
    MovesHere,
}

/// Decides where a goroutine whose home is another node runs next.
pub(crate) fn where_to_run(g: RemoteWake) -> WakePlacement {
    if g.is_bound || !g.has_run {
        return WakePlacement::Home;
    }
    match after_remote(g.times_away) {
        None => WakePlacement::MovesHere,
        Some(_) if g.home_is_idle => WakePlacement::Home,
        Some(_) => WakePlacement::Here,
    }
}

/// Counts one more time away: the new count in a row, or `None` if the goroutine moves.
pub(crate) fn after_remote(times_away: u8) -> Option<u8> {
    Some(times_away + 1).filter(|&n| n < TIMES_AWAY)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn view(runnable: usize, idle: usize, oldest_wait_us: u64) -> NodeView {
        NodeView {
            runnable,
            idle,
            oldest_wait_ns: oldest_wait_us * 1000,
            is_stuck: false,
        }
    }

    #[test]
    fn a_thief_looks_at_home_first() {
        let dry = OwnView {
            dry_sweeps: LOCAL_SWEEPS,
            ..OwnView::default()
        };
        assert!(may_look_away(dry));
        let one_sweep = LOCAL_SWEEPS - 1;
        assert!(!may_look_away(OwnView {
            dry_sweeps: one_sweep,
            ..dry
        }));
        assert!(!may_look_away(OwnView {
            ring_has_work: true,
            ..dry
        }));
        assert!(!may_look_away(OwnView { queued: 1, ..dry }));
    }

    #[test]
    fn the_gate_opens_for_surplus_and_for_age() {
        use StealDenied::{NoSurplus, TooYoung};
        let gate = |view, distance| may_steal_remote(view, distance, false);
        assert_eq!(gate(view(0, 0, 0), 10), Verdict::Nothing);
        assert_eq!(gate(view(1, 0, 0), 40), Verdict::Pass);
        assert_eq!(gate(view(3, 3, 0), 16), Verdict::Denied(NoSurplus));
        // The greater the distance, the longer the goroutine must have waited.
        for (distance, us) in [(16, 20), (21, 50), (32, 200)] {
            let denied = Verdict::Denied(TooYoung);
            assert_eq!(gate(view(3, 3, us - 1), distance), denied);
            assert_eq!(gate(view(3, 3, us), distance), Verdict::Pass);
        }
    }

    #[test]
    fn a_starved_node_passes_the_gate() {
        assert_eq!(may_steal_remote(view(1, 5, 0), 40, true), Verdict::Pass);
        assert_eq!(may_steal_remote(view(0, 0, 0), 16, true), Verdict::Nothing);
        let stuck = NodeView {
            is_stuck: true,
            ..NodeView::default()
        };
        assert_eq!(may_steal_remote(stuck, 16, true), Verdict::Pass);
        assert_eq!(may_steal_remote(stuck, 16, false), Verdict::Nothing);
        assert!(needs_help(stuck));
        assert!(needs_help(view(1, 0, 0)));
        // Its idle Ps wake up one after the other, so some goroutines are left for other nodes.
        assert!(needs_help(view(9, 8, 0)));
        assert!(!needs_help(view(0, 0, 0)));
        // Its own idle Ps are waking up, unless the wait has lasted too long.
        assert!(!needs_help(view(1, 1, 999)));
        assert!(needs_help(view(1, 1, 1000)));
        assert!(!is_starved(ladder::LATE_NS - 1, true));
        assert!(!is_starved(ladder::LATE_NS, false));
        assert!(is_starved(ladder::LATE_NS, true));
    }

    #[test]
    fn one_trip_feeds_the_idle_and_no_more() {
        assert_eq!(remote_batch(1, 7), 1);
        assert_eq!(remote_batch(9, 7), 5);
        assert_eq!(remote_batch(100, 7), 8);
        assert_eq!(remote_batch(100, 0), 1);
        assert_eq!(remote_batch(1000, 200), REMOTE_MAX);
    }

    #[test]
    fn work_wakes_its_own_node_first() {
        let none = || panic!("not asked");
        let here = WakeView {
            spinning: 0,
            any_idle: true,
            n_ps: 4,
        };
        assert_eq!(whom_to_wake(here, none, [1, 2].into_iter()), Wake::Here);
        let looks = WakeView {
            spinning: 1,
            ..here
        };
        assert_eq!(whom_to_wake(looks, none, [1].into_iter()), Wake::Nobody);
        let busy = WakeView {
            any_idle: false,
            ..here
        };
        let wake = |backlog, others: &[u8]| whom_to_wake(busy, || backlog, others.iter().copied());
        assert_eq!(wake(4, &[1, 2]), Wake::Nobody);
        assert_eq!(wake(5, &[1, 2]), Wake::Other(1));
        assert_eq!(wake(5, &[]), Wake::Nobody);
    }

    #[test]
    fn many_idle_ps_wake_in_a_tree() {
        assert!(wakes_two(2, || MOST_IN_A_CHAIN + 1));
        assert!(!wakes_two(2, || MOST_IN_A_CHAIN));
        assert!(!wakes_two(1, || panic!("not asked")));
    }

    #[test]
    fn at_most_half_of_the_busy_look_for_work() {
        assert!(may_spin(0, 1));
        assert!(!may_spin(1, 2));
        assert!(may_spin(1, 3));
        assert!(!may_spin(0, 0));
    }

    #[test]
    fn a_goroutine_goes_home_or_is_pulled_and_at_last_moves() {
        let g = RemoteWake {
            is_bound: false,
            has_run: true,
            home_is_idle: true,
            times_away: 0,
        };
        assert_eq!(where_to_run(g), WakePlacement::Home);
        let pulled = RemoteWake {
            home_is_idle: false,
            ..g
        };
        assert_eq!(where_to_run(pulled), WakePlacement::Here);
        let last = TIMES_AWAY - 1;
        assert_eq!(
            where_to_run(RemoteWake {
                times_away: last,
                ..g
            }),
            WakePlacement::MovesHere
        );
        let bound = RemoteWake {
            is_bound: true,
            times_away: last,
            ..pulled
        };
        assert_eq!(where_to_run(bound), WakePlacement::Home);
        // A goroutine spawned for another node has no data here.
        let fresh = RemoteWake {
            has_run: false,
            ..pulled
        };
        assert_eq!(where_to_run(fresh), WakePlacement::Home);
        assert_eq!(after_remote(0), Some(1));
        assert_eq!(after_remote(last), None);
    }
}

#[cfg(all(test, not(loom)))]
#[path = "policy_sim_tests.rs"]
mod sim_tests;

//! What a runtime on several NUMA nodes decides, as functions of plain numbers.
//!
//! Memory of another node is slower to reach, and a goroutine that runs away from home
//! drags its stack and its data behind it. So work stays on its node while the node can do
//! it, and leaves when it cannot: no node idles for long beside one that has too much.
//! These two pull against each other, and everything here is about where the line is.
//!
//! The scheduler asks these functions with what its atomics say; a simulator of large
//! machines asks them with what it made up (`policy_sim_tests`). They touch nothing.
//!
//! 1. *Gate* ([`may_look_away`], [`may_steal_remote`]). A thief looks at other nodes when its own is dry:
//!    two sweeps of all its Ps found nothing, its ring has nothing, the node's queue is empty.
//!    It then takes from a node that has more than its own idle Ps will fetch in a moment, or
//!    where something has waited for long, the longer the farther away that node is.
//! 2. *Work conservation* ([`is_starved`]). A node that has been idle for a millisecond while
//!    another needs help takes whatever waits there.
//! 3. *Batch* ([`remote_batch`]). One trip feeds the node: the thief brings one goroutine for
//!    itself and one for each idle P beside it. And one trip at a time: of the Ps of a node,
//!    one steals from a given other node ([`StealDenied::PairBusy`] for the rest).
//! 4. *Waking* ([`whom_to_wake`]). Work wakes a P of its own node; one of another node only
//!    if none is idle here and more waits than there are Ps, the nearest such node's.
//! 5. *Home* ([`where_to_run`], [`after_remote`]). A goroutine woken from another node goes home if
//!    a P is idle there, else it runs where it was woken; after eight times away in a row,
//!    it moves.
//!
//! Turned down: a chance to steal from afar that falls with the distance (NUMA-WS; libfork):
//! every idle P then touches remote memory all the time; one thief per node that alone may
//! leave it (HPX): a busy one leaves its node stranded; and no stealing between nodes at all
//! (oneTBB's arenas, Seastar): the user must split the work.

use windlass_topology::steal::patience;

/// Sweeps of the own node that must have found nothing before a thief looks at others.
pub(crate) const LOCAL_SWEEPS: u32 = 2;
/// The most that a thief takes from another node at once.
pub(crate) const REMOTE_MAX: usize = 64;
/// How often in a row a goroutine runs away from home, or is woken from away, until it moves.
pub(crate) const TIMES_AWAY: u8 = 8;
/// How long a node may be idle while another has more than it can do.
pub(crate) const STARVED_AFTER_NS: u64 = 1_000_000;

/// What a thief knows of another node: one line of memory (`sched::numa::summary`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeView {
    /// Goroutines that wait in its queues, where a thief may take them.
    pub(crate) runnable: usize,
    /// Ps that sleep or look for work: they will take some of it.
    pub(crate) idle: usize,
    /// For how long the one at the head of a queue has waited; 0 if that is not known.
    pub(crate) oldest_wait_ns: u64,
    /// Something else waits behind a goroutine that does not come back: a timer that is
    /// due, or what its P would run next.
    pub(crate) is_stuck: bool,
}

/// What a thief knows of its own node.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OwnView {
    /// Sweeps that found nothing, just now.
    pub(crate) dry_sweeps: u32,
    /// Its ring has something to reap.
    pub(crate) ring_has_work: bool,
    /// Goroutines in the node's queue.
    pub(crate) queued: usize,
}

/// Why a thief was turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StealDenied {
    /// As many Ps are idle there as goroutines wait, and they have not waited for long.
    NoSurplus = 0,
    /// As before, but something there is known to wait: not long enough for this distance.
    TooYoung,
    /// Another P of the thief's node is stealing there.
    PairBusy,
    /// All that waits is bound to its node.
    Bound,
}

/// How many reasons there are.
pub(crate) const N_DENIALS: usize = 4;

/// What a thief that stands before another node is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Pass,
    /// Nothing is there to be taken.
    Nothing,
    Denied(StealDenied),
}

/// Whether a thief has done what comes before looking at other nodes.
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

/// How many of the goroutines in one queue of another node a thief takes, beside which so
/// many Ps of its node have nothing to do.
pub(crate) fn remote_batch(available: usize, idle_beside: usize) -> usize {
    available.div_ceil(2).min(idle_beside + 1).min(REMOTE_MAX)
}

/// Whether a node cannot do by itself what it has: for lack of Ps, or because those that it
/// has do not come.
pub(crate) fn needs_help(node: NodeView) -> bool {
    node.runnable > node.idle
        || node.is_stuck && node.idle == 0
        || node.runnable > 0 && node.oldest_wait_ns >= STARVED_AFTER_NS
}

/// Whether a node, all of whose Ps have been idle for so long, may take what another has
/// without asking at the gate.
pub(crate) fn is_starved(idle_ns: u64, another_needs_help: bool) -> bool {
    idle_ns >= STARVED_AFTER_NS && another_needs_help
}

/// What a waker knows of the node where it has left work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WakeView {
    /// Ms that look for work there: they will find it.
    pub(crate) spinning: u32,
    pub(crate) any_idle: bool,
    pub(crate) n_ps: usize,
}

/// Of which node a P is woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wake<N> {
    Nobody,
    Here,
    Other(N),
}

/// Whom work wakes that was left on a node. `backlog` counts what waits there, and `others`
/// are the other nodes that have an idle P and nobody who looks for work, nearest first: both
/// are asked only if they matter.
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

/// Whether one more M may look for work: at most half of a node's busy Ps do.
pub(crate) fn may_spin(n_spinning: usize, n_busy: usize) -> bool {
    2 * n_spinning < n_busy
}

/// What a waker knows of a goroutine whose home is another node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RemoteWake {
    pub(crate) is_bound: bool,
    /// It has run: its stack is at home.
    pub(crate) has_run: bool,
    /// A P is idle at home.
    pub(crate) home_is_idle: bool,
    /// Times away in a row, before this one.
    pub(crate) times_away: u8,
}

/// Where a goroutine is queued that was made runnable away from home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WakePlacement {
    Home,
    Here,
    /// Here, which is its home from now on.
    MovesHere,
}

/// Where a goroutine whose home is another node runs next.
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

/// One more time away: how many in a row it makes, `None` if the goroutine moves.
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
        // The farther, the longer it must have waited.
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
        // Its idle Ps wake up one after the other: it has enough for others.
        assert!(needs_help(view(9, 8, 0)));
        assert!(!needs_help(view(0, 0, 0)));
        // Its own idle Ps are on their way, unless they do not come.
        assert!(!needs_help(view(1, 1, 999)));
        assert!(needs_help(view(1, 1, 1000)));
        assert!(!is_starved(STARVED_AFTER_NS - 1, true));
        assert!(!is_starved(STARVED_AFTER_NS, false));
        assert!(is_starved(STARVED_AFTER_NS, true));
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
        // One that was spawned for another node has nothing here.
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

//! Derived from a plan: ranks of victims, the order of waking, and how long a remote thief waits.

use std::time::Duration;

use crate::{Level, LevelKind, Plan};

/// How far a P is from another in steal order: 0 is itself, 1 its nearest level, and so on.
///
/// # Panics
///
/// If the plan has no such Ps.
///
/// # Examples
///
/// ```
/// use windlass_topology::{Request, Topology, plan, steal};
///
/// let machine = Topology::synthetic("numa:2 core:2 pu:1")?;
/// let plan = plan(&machine, &Request::default())?;
/// assert_eq!(steal::ranks(&plan, 0), [0, 1, 2, 2]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn ranks(plan: &Plan, thief: usize) -> Vec<usize> {
    let mut ranks = vec![0; plan.ps.len()];
    for (position, level) in plan.ps[thief].levels.iter().enumerate() {
        for &victim in &level.victims {
            ranks[victim] = position + 1;
        }
    }
    ranks
}

/// The order in which idle Ps are woken for a P that has surplus work, in groups of equal rank.
///
/// A P that has the waker early in its own steal order finds the work soon, so it is woken first: the
/// order is a column of the steal matrix, sorted.
///
/// # Panics
///
/// If the plan has no such P.
///
/// # Examples
///
/// ```
/// use windlass_topology::{Request, Topology, plan, steal};
///
/// let machine = Topology::synthetic("numa:2 core:2 pu:1")?;
/// let plan = plan(&machine, &Request::default())?;
/// let groups: Vec<Vec<usize>> = steal::wake_order(&plan, 3).into_iter().map(|g| g.ps).collect();
/// assert_eq!(groups, [vec![2], vec![0, 1]]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn wake_order(plan: &Plan, waker: usize) -> Vec<WakeGroup> {
    let n_ps = plan.ps.len();
    let mut order: Vec<(WakeKey, usize)> = (waker + 1..n_ps)
        .chain(0..waker)
        .filter_map(|p| Some((wake_key(plan, p, waker)?, p)))
        .collect();
    order.sort_by_key(|&(key, _)| key); // stable: upwards from the waker inside a group
    let groups = order.chunk_by(|a, b| a.0 == b.0);
    let group = |members: &[(WakeKey, usize)]| WakeGroup {
        kind: members[0].0.0,
        distance: members[0].0.1,
        ps: members.iter().map(|&(_, p)| p).collect(),
    };
    groups.map(group).collect()
}

/// Ps that are equally good to wake.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(serde::Serialize))]
pub struct WakeGroup {
    /// The nearest thing (core, cache, node) that they share with the P that has work.
    pub kind: LevelKind,
    /// Distance from their node to that of the P that has work.
    pub distance: u32,
    /// Positions in [`Plan::ps`], upwards from the waker's own and round the end.
    pub ps: Vec<usize>,
}

/// Kind, distance, and position among the levels of that kind.
type WakeKey = (LevelKind, u32, usize);

/// Where a thief has a victim in its order.
fn wake_key(plan: &Plan, thief: usize, victim: usize) -> Option<WakeKey> {
    let levels = &plan.ps[thief].levels;
    // Victims go upwards from the thief and round the end.
    let n_ps = plan.ps.len();
    let way = |p: &usize| (p + n_ps - thief) % n_ps;
    let has_victim = |level: &Level| {
        level
            .victims
            .binary_search_by_key(&way(&victim), way)
            .is_ok()
    };
    let position = levels.iter().position(has_victim)?;
    let kind = levels[position].kind;
    let first = levels.iter().position(|level| level.kind == kind)?;
    let nth = match kind {
        LevelKind::Remote => 0, // the distance says it
        _ => position - first,
    };
    Some((kind, levels[position].distance, nth))
}

/// How long the oldest goroutine of another node must have waited before it may be taken though its
/// node has idle Ps: the farther, the longer. Above 30 is what Linux itself calls too far.
///
/// # Examples
///
/// ```
/// use windlass_topology::steal::patience;
///
/// assert_eq!(patience(12).as_micros(), 20);
/// assert_eq!(patience(21).as_micros(), 50);
/// assert_eq!(patience(32).as_micros(), 200);
/// ```
#[must_use]
pub fn patience(distance: u32) -> Duration {
    Duration::from_micros(match distance {
        ..=20 => 20,
        21..=30 => 50,
        _ => 200,
    })
}

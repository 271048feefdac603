//! Changing the number of Ps: in a stopped world, or without a run.
//!
//! All Ps that there may ever be are made with the runtime; most of what they need comes
//! when they are first used. [`Fate`](super::fate::Fate) says which are in use.
//!
//! A P that leaves loses its goroutines to the node queue and its timers to a P in use
//! at once, in the stopped world, where nobody else touches either. Its operations in
//! flight would keep the world waiting: its M asks the kernel to cancel them when the
//! world goes on, and a goroutine whose operation is cancelled unasked submits it again,
//! on the P where it then runs (`io::op`).

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use windlass_topology::{Plan, Request, Topology, default_processors, plan};

use super::m::M;
use super::near;
use super::p::P;
use super::state::{Node, Sched};
use crate::g::list::GList;
use crate::sys::clock;
use crate::util::placed::Placed;

/// How long a leaving P waits for completions between two cancels.
const DRAIN_NS: u64 = 1_000_000;

impl Sched {
    /// Ps in use.
    pub(crate) fn ps_in_use(&self) -> impl Iterator<Item = &P> {
        self.ps.iter().filter(|p| p.fate.is_in_use())
    }

    /// How many Ps are in use.
    #[inline]
    pub(crate) fn n_procs(&self) -> usize {
        self.n_procs.load(Ordering::Relaxed)
    }

    /// Changes which Ps are in use, in a stopped world or without a run: to those on the
    /// CPUs that the plan for `n` chooses.
    ///
    /// # Errors
    ///
    /// The plan's, and what keeps a ring from being made; then nothing has changed.
    pub(crate) fn resize(&self, n: usize) -> io::Result<()> {
        let chosen = self.place.choose(&self.ps, n)?;
        let all = || self.ps.iter().zip(&chosen);
        for node in &self.nodes {
            let used = node.ps.clone().filter(|&i| chosen[i]);
            self.open_pollers(node, used.map(|i| &self.ps[i]).collect())?;
        }
        let leaving: Vec<&P> = all()
            .filter(|&(p, &used)| !used && p.fate.is_in_use())
            .map(|(p, _)| p)
            .collect();
        for (p, &used) in all() {
            if used {
                p.fate.come_into_use();
            } else {
                p.fate.begin_leaving();
            }
        }
        for node in &self.nodes {
            let n_live = node
                .ps
                .clone()
                .filter(|&i| self.ps[i].fate.is_in_use())
                .count();
            node.n_live.store(n_live, Ordering::SeqCst);
        }
        self.n_procs.store(n, Ordering::SeqCst);
        leaving.into_iter().for_each(|p| self.empty(p));
        self.rescue_queues();
        Ok(())
    }

    /// Has the kernel make what pollers are yet without, on a thread of their node: it takes
    /// the memory of a ring from where the caller runs.
    fn open_pollers(&self, node: &Node, ps: Vec<&P>) -> io::Result<()> {
        let Some(first) = ps.iter().find(|p| !p.poller.is_open()) else {
            return Ok(());
        };
        near::on_node(first.cpu, node.memory, || {
            ps.iter().try_for_each(|p| p.poller.open())
        })
    }

    /// Without a run nobody holds a P: those that leave are gone.
    pub(crate) fn bury_all(&self) {
        self.ps.iter().for_each(|p| {
            bury(p);
        });
    }

    /// Moves what a P has to others, but for its operations.
    fn empty(&self, p: &P) {
        let mut gs = GList::new();
        take_queue(p, &mut gs);
        self.publish(p);
        self.live_node(p.node_idx).queue.push_all(gs);
        self.heir_of(p).timers.adopt(p.timers.take_all());
        p.flush_caches(&self.node_of(p).stacks);
    }

    /// A P in use, as near to `p` as can be.
    fn heir_of(&self, p: &P) -> &P {
        let near = p.levels.iter().flat_map(|l| l.victims.iter());
        near.map(|&i| &self.ps[i])
            .chain(&self.ps)
            .find(|p| p.fate.is_in_use())
            .expect("at least one P is in use")
    }

    /// Moves goroutines out of the queues of nodes that have no P in use: a pusher from
    /// outside may have read an old number.
    pub(crate) fn rescue_queues(&self) {
        for (i, node) in self.nodes.iter().enumerate() {
            if node.queue.len() == 0 || node.n_live.load(Ordering::Relaxed) != 0 {
                continue;
            }
            let to = self.live_node(i);
            to.queue.push_all(node.queue.pop_batch(1, usize::MAX));
            self.wake_in(to, None);
        }
    }
}

fn take_queue(p: &P, gs: &mut GList) {
    gs.extend_one(p.runq.take_runnext());
    while let Some(g) = p.runq.pop() {
        gs.push(g);
    }
}

/// The last step of a P that leaves, by its holder: `true` if it is dead now. `false`
/// if it may not go: something is in flight, it shall stop, or it is in use again.
pub(crate) fn bury(p: &P) -> bool {
    p.fate.is_leaving() && p.poller.inflight() == 0 && p.fate.end()
}

/// Gets rid of what a leaving P still has, and then of the P. One step, so that a stop of
/// the world does not wait for long.
pub(crate) fn leave(m: &M, p: &P) {
    let sched = m.sched();
    let mut gs = GList::new();
    if p.poller.inflight() > 0 {
        p.poller.cancel_all(&mut gs);
        p.poller.flush();
        p.poller.wait(clock::now_ns() + DRAIN_NS);
        p.poller.reap(&mut gs);
    }
    take_queue(p, &mut gs);
    sched.publish(p);
    if !gs.is_empty() {
        let node = sched.live_node(p.node_idx);
        node.queue.push_all(gs);
        sched.wake_in(node, None);
    }
    if bury(p) {
        m.set_p(None);
    }
}

/// Where Ps may be placed: asked again whenever their number changes.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) topology: Topology,
    pub(crate) nodes: Option<Vec<u32>>,
    /// Whether the number of Ps is the default one, which changes with the CPU quota.
    /// Ordering: relaxed, a setting.
    pub(crate) follows_quota: AtomicBool,
}

impl Place {
    /// How many Ps there are unless somebody says: as many as the CPUs allowed on the
    /// nodes chosen, up to the CPU quota.
    pub(crate) fn default_processors(&self) -> usize {
        default_processors(&self.topology).min(self.n_cpus()).max(1)
    }

    /// CPUs that may be used.
    pub(crate) fn n_cpus(&self) -> usize {
        let request = Request {
            nodes: self.nodes.clone(),
            ..Request::default()
        };
        plan(&self.topology, &request).map_or(1, |plan| plan.ps.len())
    }

    /// Where `n` Ps go.
    ///
    /// # Errors
    ///
    /// `InvalidInput`: there is no such node, or no Ps, or too many.
    pub(crate) fn plan(&self, n: usize) -> io::Result<Plan> {
        let request = Request {
            n_ps: Some(n),
            nodes: self.nodes.clone(),
            ..Request::default()
        };
        plan(&self.topology, &request).map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e))
    }

    /// Which of the Ps that exist are in use when there are `n`.
    fn choose(&self, ps: &Placed<P>, n: usize) -> io::Result<Vec<bool>> {
        if n > ps.len() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "set_processors({n}): this runtime was built for at most {}; \
                     Builder::max_processors raises that",
                    ps.len()
                ),
            ));
        }
        let plan = self.plan(n)?;
        let mut chosen = vec![false; ps.len()];
        for planned in &plan.ps {
            let free = |i: &usize| !chosen[*i];
            let same = (0..ps.len())
                .filter(free)
                .find(|&i| ps[i].cpu == planned.cpu);
            // The larger plan has every CPU of the smaller one; if not, any P will do.
            if let Some(i) = same.or_else(|| (0..ps.len()).find(|i| !chosen[*i])) {
                chosen[i] = true;
            }
        }
        Ok(chosen)
    }
}

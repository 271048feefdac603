//! A simulation of large machines, with a clock and random numbers of its own. The tests here have 8 nodes
//! of 128 Ps each; `theory` has those for which queueing theory has formulas.
//!
//! Every decision about nodes is made by `policy`, called as the scheduler calls it; only the
//! durations are invented. A goroutine computes for some microseconds and ends. A P whose goroutine
//! ends takes the next from its queue, from its node's queue, from a P of its node, or from another
//! node through the gate; otherwise it spins for 20 µs, if it may, and sleeps. Work wakes sleepers,
//! and sysmon checks the nodes every millisecond. Summaries are as stale as in the scheduler: a P
//! publishes the length of its queue every 10 µs, when it runs dry, and when it queues work while
//! some P is idle.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use windlass_ground::random::Random;

use super::*;
use crate::util::ladder;

const NODES: usize = 8;
const PS_PER_NODE: usize = 128;

const SPIN_NS: u64 = 20_000;
const LOOK_NS: u64 = 2_000;
const WAKE_NS: u64 = 30_000;
const PUBLISH_NS: u64 = 10_000;
const REBALANCE_NS: u64 = 1_000_000;
const QUEUE: usize = 256;
/// By this time, a load that began at time 0 has woken all the Ps that it needs.
const WARM_NS: u64 = 10_000_000;

/// Two packages of four nodes each.
fn distance(a: usize, b: usize) -> u32 {
    match (a == b, a / 4 == b / 4) {
        (true, _) => 10,
        (_, true) => 16,
        _ => 32,
    }
}

/// A goroutine.
#[derive(Clone, Copy, Debug)]
struct G {
    /// How long it computes, on a P of full speed.
    work_ns: u64,
    /// When it became runnable.
    since_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Doing {
    Running,
    Spinning {
        until_ns: u64,
    },
    Asleep,
    /// Notified: it wakes up as a spinner.
    Waking,
}

#[derive(Debug)]
struct SimP {
    ring: VecDeque<G>,
    doing: Doing,
    published: usize,
    published_at_ns: u64,
    came_back_empty: bool,
}

#[derive(Debug, Default)]
struct SimNode {
    queue: VecDeque<G>,
    /// Goroutines in the queues of its Ps: as published, and the actual number.
    in_rings: usize,
    truly_in_rings: usize,
    idle: usize,
    spinning: usize,
    starved: bool,
    /// Since when all its Ps are asleep.
    idle_since_ns: u64,
    /// How many goroutines were taken from its queue, now and at the last round: if equal, the
    /// head has not changed.
    n_taken: u64,
    seen_taken: u64,
    surveyed_at_ns: u64,
    waiting_since_ns: u64,
}

#[derive(Debug, Default)]
struct Counts {
    stolen_near: u64,
    stolen_far: u64,
    denials: u64,
    failed_searches: u64,
    /// The failed searches that some node permitted, in vain.
    let_in: u64,
    /// The most remote lines that one failed search read of one node, and how many searches read
    /// how many (the last entry is for as many or more).
    most_lines_of_a_node: usize,
    searches_by_lines: [u64; 6],
    longest_idle_while_needed_ns: u64,
    ended: u64,
}

impl Counts {
    /// Prints the numbers that docs/NUMA.md quotes.
    #[allow(
        clippy::print_stderr,
        reason = "shown where somebody asks, by --nocapture"
    )]
    fn tell(&self, load: &str) {
        eprintln!("{load}: {self:?}");
    }

    /// A failed search reads one line of a node. A search permitted because that line was slightly
    /// stale also reads the queue that has run dry since, seldom two; and such searches are few.
    fn assert_few_lines(&self) {
        let n_more: u64 = self.searches_by_lines[2..].iter().sum();
        assert!(n_more <= self.let_in, "{self:?}");
        assert!(self.most_lines_of_a_node <= 3, "{self:?}");
        assert!(self.let_in * 500 <= self.failed_searches, "{self:?}");
    }
}

/// The next event: its time, a number that keeps the order, and its kind.
type Event = Reverse<(u64, u64, What)>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    /// The P has no goroutine, any more or yet.
    Free(usize),
    /// A goroutine arrives at a node from outside, and schedules the next one.
    Arrive(usize),
    /// The next request of [`Requests`](theory::Requests) arrives.
    Request,
    Rebalance,
}

struct Sim {
    now_ns: u64,
    n_events: u64,
    events: BinaryHeap<Event>,
    ps: Vec<SimP>,
    nodes: Vec<SimNode>,
    ps_per_node: usize,
    distance: fn(usize, usize) -> u32,
    /// How often slower than others the Ps of each node are.
    slowness: Vec<u64>,
    random: Random,
    counts: Counts,
    /// How long each goroutine that has begun had waited.
    waits_ns: Vec<u64>,
    requests: Option<theory::Requests>,
    /// Since when some node has more goroutines than its idle and spinning Ps will take.
    surplus_since_ns: Option<u64>,
    /// The mean time between two arrivals at each node; 0 for a node without arrivals.
    every_ns: Vec<u64>,
    mean_work_ns: u64,
}

impl Sim {
    fn new(seed: u64, mean_work_ns: u64) -> Sim {
        Sim::machine(NODES, PS_PER_NODE, distance, seed, mean_work_ns)
    }

    fn machine(
        n_nodes: usize,
        ps_per_node: usize,
        distance: fn(usize, usize) -> u32,
        seed: u64,
        mean_work_ns: u64,
    ) -> Sim {
        let p = || SimP {
            ring: VecDeque::new(),
            doing: Doing::Asleep,
            published: 0,
            published_at_ns: 0,
            came_back_empty: false,
        };
        let node = || SimNode {
            idle: ps_per_node,
            ..SimNode::default()
        };
        let mut sim = Sim {
            now_ns: 0,
            n_events: 0,
            events: BinaryHeap::new(),
            ps: std::iter::repeat_with(p)
                .take(n_nodes * ps_per_node)
                .collect(),
            nodes: std::iter::repeat_with(node).take(n_nodes).collect(),
            ps_per_node,
            distance,
            slowness: vec![1; n_nodes],
            random: Random::new(seed),
            counts: Counts::default(),
            waits_ns: Vec::new(),
            requests: None,
            surplus_since_ns: None,
            every_ns: vec![0; n_nodes],
            mean_work_ns,
        };
        sim.at(REBALANCE_NS, What::Rebalance);
        sim
    }

    fn at(&mut self, at_ns: u64, what: What) {
        self.n_events += 1;
        self.events.push(Reverse((at_ns, self.n_events, what)));
    }

    /// Goroutines arrive at a node at a rate that keeps its Ps busy for `percent` of the time.
    fn arrive_at(&mut self, node: usize, percent: u64) {
        self.every_ns[node] = self.mean_work_ns * 100 / (self.ps_per_node as u64 * percent);
        self.at(0, What::Arrive(node));
    }

    /// From half to one and a half times `mean`.
    fn about(&self, mean_ns: u64) -> u64 {
        mean_ns / 2 + self.random.below(mean_ns.max(1) as usize) as u64
    }

    fn run(&mut self, until_ns: u64) {
        let is_due = |e: &Event| e.0.0 <= until_ns;
        while self.events.peek().is_some_and(is_due)
            && let Some(Reverse((at_ns, _, what))) = self.events.pop()
        {
            self.now_ns = at_ns;
            match what {
                What::Free(p) => self.find(p),
                What::Arrive(node) => self.arrive(node),
                What::Request => self.request(),
                What::Rebalance => self.rebalance(),
            }
            self.look_for_violations();
        }
    }

    /// Changes the queue of a P.
    fn with_ring<T>(&mut self, p: usize, f: impl FnOnce(&mut VecDeque<G>) -> T) -> T {
        let ring = &mut self.ps[p].ring;
        let before = ring.len();
        let value = f(ring);
        let node = &mut self.nodes[p / self.ps_per_node];
        node.truly_in_rings = node.truly_in_rings + ring.len() - before;
        value
    }

    /// Records how long a node has been idle while there was a surplus elsewhere: by the actual
    /// numbers, not the summaries.
    fn look_for_violations(&mut self) {
        let has_surplus = |n: &SimNode| n.truly_in_rings + n.queue.len() > n.idle + n.spinning;
        if !self.nodes.iter().any(has_surplus) {
            self.surplus_since_ns = None;
            return;
        }
        let surplus_since_ns = *self.surplus_since_ns.get_or_insert(self.now_ns);
        for node in self.nodes.iter().filter(|n| n.idle == self.ps_per_node) {
            let idle_ns = self.now_ns - node.idle_since_ns.max(surplus_since_ns);
            let longest = &mut self.counts.longest_idle_while_needed_ns;
            *longest = idle_ns.max(*longest);
        }
    }

    fn arrive(&mut self, node: usize) {
        let every_ns = self.every_ns[node];
        let work_ns = self.about(self.mean_work_ns);
        self.arrive_on(
            node * self.ps_per_node + self.random.below(self.ps_per_node),
            work_ns,
        );
        let next_ns = self.now_ns + self.about(every_ns).max(1);
        self.at(next_ns, What::Arrive(node));
    }

    /// A running P spawned a goroutine; if this one does not run, it comes from outside.
    fn arrive_on(&mut self, p: usize, work_ns: u64) {
        let since_ns = self.now_ns;
        let g = G { work_ns, since_ns };
        if self.ps[p].doing == Doing::Running {
            self.spawn(p, g);
        } else {
            let node = p / self.ps_per_node;
            self.nodes[node].queue.push_back(g);
            self.wake_in(node);
        }
    }

    /// A goroutine on `p` spawns another.
    fn spawn(&mut self, p: usize, g: G) {
        let node = p / self.ps_per_node;
        self.with_ring(p, |ring| ring.push_back(g));
        if self.ps[p].ring.len() > QUEUE {
            let half: Vec<G> = self.with_ring(p, |ring| ring.drain(..QUEUE / 2).collect());
            self.nodes[node].queue.extend(half);
        }
        if self.nodes.iter().any(|n| n.idle > 0) {
            self.publish(p);
            self.wake_in(node);
        } else if self.now_ns >= self.ps[p].published_at_ns + PUBLISH_NS {
            self.publish(p);
        }
    }

    fn publish(&mut self, p: usize) {
        let len = self.ps[p].ring.len();
        let before = std::mem::replace(&mut self.ps[p].published, len);
        self.ps[p].published_at_ns = self.now_ns;
        let node = &mut self.nodes[p / self.ps_per_node];
        node.in_rings = node.in_rings + len - before;
    }

    fn view(&self, node: usize) -> NodeView {
        let n = &self.nodes[node];
        NodeView {
            runnable: n.queue.len() + n.in_rings,
            idle: n.idle + n.spinning,
            oldest_wait_ns: match n.waiting_since_ns {
                // The goroutine that was seen waiting has left.
                _ if n.seen_taken != n.n_taken => 0,
                0 => 0,
                since_ns if since_ns == n.surveyed_at_ns => 0,
                since_ns => self.now_ns - since_ns,
            },
            is_stuck: false,
        }
    }

    /// The other nodes, nearest first.
    fn neighbours(&self, node: usize) -> Vec<usize> {
        let n_nodes = self.nodes.len();
        let others = (1..n_nodes).map(|i| (node + i) % n_nodes);
        let mut others: Vec<usize> = others.collect();
        others.sort_by_key(|&other| (self.distance)(node, other));
        others
    }

    fn wake_in(&mut self, node: usize) {
        let n = &self.nodes[node];
        let here = WakeView {
            spinning: n.spinning as u32,
            any_idle: n.idle > 0,
            n_ps: self.ps_per_node,
        };
        let backlog = || self.view(node).runnable;
        let others = self.neighbours(node).into_iter();
        let others = others.filter(|&o| self.nodes[o].spinning == 0 && self.nodes[o].idle > 0);
        match whom_to_wake(here, backlog, others) {
            Wake::Nobody => {}
            Wake::Here => self.wake_one(node),
            Wake::Other(other) => self.wake_one(other),
        }
    }

    fn wake_one(&mut self, node: usize) {
        let first = node * self.ps_per_node;
        let sleeper =
            (first..first + self.ps_per_node).find(|&p| self.ps[p].doing == Doing::Asleep);
        let Some(p) = sleeper else { return };
        self.nodes[node].idle -= 1;
        self.nodes[node].spinning += 1;
        self.ps[p].doing = Doing::Waking;
        let awake_ns = self.now_ns + self.about(WAKE_NS);
        self.at(awake_ns, What::Free(p));
    }

    /// The steps of an M without a goroutine.
    fn find(&mut self, p: usize) {
        let node = p / self.ps_per_node;
        match self.ps[p].doing {
            Doing::Running => self.counts.ended += 1,
            // It counts as a spinner already.
            Doing::Waking => {
                let until_ns = self.now_ns + SPIN_NS;
                self.ps[p].doing = Doing::Spinning { until_ns };
            }
            Doing::Spinning { .. } | Doing::Asleep => {}
        }
        if let Some(g) = self.near_at_hand(p) {
            return self.begin(p, g);
        }
        self.publish(p);
        if self.ps[p].doing == Doing::Running {
            let n_busy = self.ps_per_node - self.nodes[node].idle;
            if !may_spin(self.nodes[node].spinning, n_busy) {
                return self.sleep(p);
            }
            self.nodes[node].spinning += 1;
            let until_ns = self.now_ns + SPIN_NS;
            self.ps[p].doing = Doing::Spinning { until_ns };
        }
        if let Some(g) = self.steal_near(p).or_else(|| self.steal_far(p)) {
            return self.begin(p, g);
        }
        match self.ps[p].doing {
            Doing::Spinning { until_ns } if self.now_ns < until_ns => {
                self.at(self.now_ns + LOOK_NS, What::Free(p));
            }
            _ => self.sleep(p),
        }
    }

    fn near_at_hand(&mut self, p: usize) -> Option<G> {
        if let Some(g) = self.with_ring(p, VecDeque::pop_front) {
            return Some(g);
        }
        let node = &mut self.nodes[p / self.ps_per_node];
        let share = (node.queue.len() / self.ps_per_node + 1)
            .min(128)
            .min(node.queue.len());
        node.n_taken += share as u64;
        let mut batch: VecDeque<G> = node.queue.drain(..share).collect();
        let first = batch.pop_front()?;
        self.with_ring(p, |ring| ring.append(&mut batch));
        Some(first)
    }

    fn begin(&mut self, p: usize, g: G) {
        let node = p / self.ps_per_node;
        let was_spinning = matches!(self.ps[p].doing, Doing::Spinning { .. });
        self.ps[p].doing = Doing::Running;
        if self.now_ns >= self.ps[p].published_at_ns + PUBLISH_NS {
            self.publish(p);
        }
        self.waits_ns.push(self.now_ns - g.since_ns);
        let work_ns = g.work_ns * self.slowness[node];
        self.at(self.now_ns + work_ns, What::Free(p));
        if was_spinning {
            self.stop_spinning(p);
        }
    }

    /// `sched::proc::sleep::stop_spinning`.
    fn stop_spinning(&mut self, p: usize) {
        let node = p / self.ps_per_node;
        self.nodes[node].spinning -= 1;
        let n_waiting = self.ps[p].ring.len() + self.nodes[node].queue.len();
        if wakes_two(n_waiting, || self.nodes[node].idle) {
            for _ in 0..2 {
                if self.nodes[node].spinning < n_waiting {
                    self.wake_one(node);
                }
            }
        } else if self.nodes[node].spinning == 0 && self.has_work_near(p) {
            self.wake_in(node);
        }
    }

    fn has_work_near(&self, p: usize) -> bool {
        let node = p / self.ps_per_node;
        let mut rings = self.ps[node * self.ps_per_node..(node + 1) * self.ps_per_node].iter();
        !self.nodes[node].queue.is_empty() || rings.any(|p| !p.ring.is_empty())
    }

    /// A sweep of its own node; a second one would find the same, because no time passes.
    fn steal_near(&mut self, p: usize) -> Option<G> {
        let first = p / self.ps_per_node * self.ps_per_node;
        let start = self.random.below(self.ps_per_node);
        let all = (0..self.ps_per_node).map(|i| first + (start + i) % self.ps_per_node);
        let victim = { all }.find(|&v| !self.ps[v].ring.is_empty())?;
        let n = self.ps[victim].ring.len().div_ceil(2);
        self.counts.stolen_near += n as u64;
        let mut taken: VecDeque<G> = self.with_ring(victim, |ring| ring.drain(..n).collect());
        let g = taken.pop_back();
        self.with_ring(p, |ring| ring.append(&mut taken));
        self.publish(victim);
        g
    }

    fn steal_far(&mut self, p: usize) -> Option<G> {
        let node = p / self.ps_per_node;
        let own = OwnView {
            dry_sweeps: LOCAL_SWEEPS,
            ring_has_work: false,
            queued: self.nodes[node].queue.len(),
        };
        if !may_look_away(own) {
            return None;
        }
        self.ps[p].came_back_empty = false;
        let mut lines = vec![0; self.nodes.len()];
        let mut was_let_in = false;
        for victim in self.neighbours(node) {
            lines[victim] += 1;
            let view = self.view(victim);
            match may_steal_remote(
                view,
                (self.distance)(node, victim),
                self.nodes[node].starved,
            ) {
                Verdict::Nothing => continue,
                Verdict::Denied(_) => {
                    self.counts.denials += 1;
                    continue;
                }
                Verdict::Pass => {}
            }
            was_let_in = true;
            match self.take_from(victim, node, p, &mut lines[victim]) {
                Some(g) => return Some(g),
                None => self.ps[p].came_back_empty = true,
            }
        }
        self.counts.failed_searches += 1;
        self.counts.let_in += u64::from(was_let_in);
        let most = lines.into_iter().max().unwrap_or(0);
        let counts = &mut self.counts;
        counts.most_lines_of_a_node = counts.most_lines_of_a_node.max(most);
        counts.searches_by_lines[most.min(counts.searches_by_lines.len() - 1)] += 1;
        None
    }

    /// `lines` counts the lines read besides the summary; the bits of the Ps are in the summary. Takes
    /// from one ring, where the scheduler goes on to others.
    fn take_from(&mut self, victim: usize, node: usize, p: usize, lines: &mut usize) -> Option<G> {
        let n_idle = self.nodes[node].idle + self.nodes[node].spinning - 1;
        let n = remote_batch(self.nodes[victim].queue.len(), n_idle);
        self.nodes[victim].n_taken += n as u64;
        let mut taken: Vec<G> = self.nodes[victim].queue.drain(..n).collect();
        let start = self.random.below(self.ps_per_node);
        for i in 0..self.ps_per_node {
            let from = victim * self.ps_per_node + (start + i) % self.ps_per_node;
            if !taken.is_empty() {
                break;
            }
            // Its bit.
            if self.ps[from].published == 0 {
                continue;
            }
            *lines += 1;
            let n = remote_batch(self.ps[from].ring.len(), n_idle);
            taken.extend(self.with_ring(from, |ring| ring.drain(..n).collect::<Vec<_>>()));
            self.publish(from);
        }
        self.counts.stolen_far += taken.len() as u64;
        let first = taken.pop()?;
        self.nodes[node].starved = false;
        self.nodes[node].queue.extend(taken);
        self.publish(p);
        Some(first)
    }

    fn sleep(&mut self, p: usize) {
        let node = p / self.ps_per_node;
        let is_starved = self.nodes[node].starved;
        let may_steal = |other: usize| {
            may_steal_remote(self.view(other), (self.distance)(node, other), is_starved)
                == Verdict::Pass
        };
        let far =
            !self.ps[p].came_back_empty && (0..self.nodes.len()).any(|n| n != node && may_steal(n));
        if far || self.has_work_near(p) {
            self.at(self.now_ns + LOOK_NS, What::Free(p));
            return;
        }
        if matches!(self.ps[p].doing, Doing::Spinning { .. }) {
            self.nodes[node].spinning -= 1;
        }
        self.ps[p].doing = Doing::Asleep;
        self.nodes[node].idle += 1;
        self.nodes[node].idle_since_ns = self.now_ns;
    }

    /// Sysmon's round: `sched::monitor::rebalance`.
    fn rebalance(&mut self) {
        for p in 0..self.ps.len() {
            self.publish(p);
        }
        for node in &mut self.nodes {
            let stands_still = node.seen_taken == node.n_taken;
            node.seen_taken = node.n_taken;
            node.surveyed_at_ns = self.now_ns;
            if node.queue.is_empty() {
                node.waiting_since_ns = 0;
            } else if node.waiting_since_ns == 0 || !stands_still {
                node.waiting_since_ns = self.now_ns;
            }
        }
        for node in 0..self.nodes.len() {
            let view = self.view(node);
            let mut wanted = if needs_help(view) { view.runnable } else { 0 };
            for other in self.neighbours(node) {
                let o = &mut self.nodes[other];
                if wanted == 0 || o.spinning != 0 || o.idle == 0 {
                    continue;
                }
                let all_idle = o.idle == self.ps_per_node;
                let idle_ns = if all_idle {
                    self.now_ns - o.idle_since_ns
                } else {
                    0
                };
                o.starved |= is_starved(idle_ns, true);
                self.wake_one(other);
                wanted -= 1;
            }
        }
        self.at(self.now_ns + REBALANCE_NS, What::Rebalance);
    }

    fn remote_share(&self) -> f64 {
        let far = self.counts.stolen_far as f64;
        far / (far + self.counts.stolen_near as f64)
    }
}

#[test]
fn balanced_load_stays_at_home() {
    for (seed, percent) in [(1, 50), (2, 80), (3, 90)] {
        let mut sim = Sim::new(seed, 100_000);
        (0..NODES).for_each(|node| sim.arrive_at(node, percent));
        // All Ps sleep at first, and wake up one after the other: meanwhile there is a surplus.
        sim.run(WARM_NS);
        sim.counts = Counts::default();
        sim.run(WARM_NS + 4_000_000);
        let counts = &sim.counts;
        assert!(counts.ended > 15_000, "{counts:?}");
        assert!(counts.stolen_near > 400, "{counts:?}");
        let share = sim.remote_share();
        counts.tell(&format!("at {percent} %: {:.3} % remote", share * 100.0));
        assert!(share < 0.05, "at {percent} %: {counts:?}");
        counts.assert_few_lines();
    }
}

#[test]
fn a_failed_search_reads_one_line_of_each_node() {
    let mut sim = Sim::new(4, 100_000);
    (0..NODES).for_each(|node| sim.arrive_at(node, 60));
    sim.run(WARM_NS);
    sim.counts = Counts::default();
    sim.run(WARM_NS + 5_000_000);
    assert!(sim.counts.failed_searches > 1_000, "{:?}", sim.counts);
    assert_eq!(sim.counts.most_lines_of_a_node, 1, "{:?}", sim.counts);
    assert_eq!(sim.counts.let_in, 0, "{:?}", sim.counts);
}

/// All work arrives at one node, or at two far from each other: four times what they can run.
#[test]
fn skewed_load_leaves_no_node_idle_for_long() {
    for (seed, busy) in [(5, vec![0]), (6, vec![1, 6])] {
        let mut sim = Sim::new(seed, 50_000);
        busy.iter().for_each(|&node| sim.arrive_at(node, 400));
        sim.run(10_000_000);
        let counts = &sim.counts;
        counts.tell(&format!("all to {busy:?}"));
        counts.assert_few_lines();
        assert!(counts.stolen_far > 1_000, "{counts:?}");
        assert!(
            counts.longest_idle_while_needed_ns <= ladder::LATE_NS,
            "{counts:?}"
        );
    }
}

/// Slightly more than one node can run. No push wakes another node for it, so sysmon does.
#[test]
fn a_small_surplus_reaches_a_node_that_is_idle() {
    let mut sim = Sim::new(7, 2_000_000);
    sim.arrive_at(3, 110);
    sim.run(40_000_000);
    let counts = &sim.counts;
    assert!(counts.stolen_far > 0, "{counts:?}");
    assert!(counts.longest_idle_while_needed_ns > 0, "{counts:?}");
    // As many nodes are woken as goroutines wait: the others are idle until those have arrived.
    let there_ns = REBALANCE_NS + 4 * WAKE_NS;
    assert!(
        counts.longest_idle_while_needed_ns <= there_ns,
        "{counts:?}"
    );
}

#[test]
fn the_simulation_is_the_same_each_time() {
    let run = |seed| {
        let mut sim = Sim::new(seed, 50_000);
        (0..NODES).for_each(|node| sim.arrive_at(node, 70));
        sim.run(2_000_000);
        format!("{:?}", sim.counts)
    };
    assert_eq!(run(8), run(8));
    assert_ne!(run(8), run(9));
}

#[path = "policy_theory_tests.rs"]
mod theory;

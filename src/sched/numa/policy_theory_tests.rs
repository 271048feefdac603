//! The policy against queueing theory.
//!
//! Requests arrive at random (a Poisson process), each computes for a time that is exponential, and the mean time
//! between its arrival and its beginning is what counts. For `c` CPUs behind one queue this is M/M/c, whose mean
//! has a formula (Erlang's C); for a queue at each CPU it is M/M/1. The means of both do not depend on the
//! order in which requests are taken, so a scheduler that moves requests is compared with them fairly.
//!
//! Three kinds of machines are beside one another: queues as the formulas have them, simulated, which shows that
//! the arrivals and the clock are right; the formula itself; and [`Sim`], with windlass's decisions
//! and its costs: a sleeper needs 30 µs to wake up, a spinner looks every 2 µs.
//!
//! `make theory` writes the tables of docs/NUMA.md.

use std::fmt::Write as _;

use super::*;

/// 960,000 requests a second, 100 µs each: 96 CPUs are busy all the time.
const EVERY_NS: f64 = 1e9 / 960_000.0;
const SERVICE_NS: f64 = 100_000.0;
const BUSY_CPUS: f64 = 96.0;
/// The mean time in a queue that is asked for.
const ASKED_US: f64 = 50.0;
/// The connections of a skewed load: the k-th has 1/k of the requests of the first.
const CONNECTIONS: usize = 10_000;

/// Requests from outside, and the P at which each arrives.
#[derive(Debug)]
pub(super) struct Requests {
    /// For each P the share of requests that arrive there or at one before it.
    up_to: Vec<f64>,
}

impl Requests {
    /// As many at each P.
    fn even(n_ps: usize) -> Requests {
        Requests::of_weights(vec![1.0; n_ps])
    }

    /// Of connections whose rates follow Zipf's law, each at a P that was drawn for it.
    fn skewed(n_ps: usize, random: &Random) -> Requests {
        let mut weights = vec![0.0; n_ps];
        for connection in 1..=CONNECTIONS {
            weights[random.below(n_ps)] += 1.0 / connection as f64;
        }
        Requests::of_weights(weights)
    }

    fn of_weights(weights: Vec<f64>) -> Requests {
        let all: f64 = weights.iter().sum();
        let mut sum = 0.0;
        let up_to = weights.iter().map(|weight| {
            sum += weight / all;
            sum
        });
        Requests {
            up_to: up_to.collect(),
        }
    }

    fn draw(&self, random: &Random) -> usize {
        let share = uniform(random);
        let p = self.up_to.partition_point(|&up_to| up_to <= share);
        p.min(self.up_to.len() - 1)
    }

    /// The shares of groups of Ps that follow one another.
    fn shares(&self, per_group: usize) -> Vec<f64> {
        let ends = self
            .up_to
            .chunks(per_group)
            .map(|group| group[group.len() - 1]);
        let mut before = 0.0;
        let share = |end| end - std::mem::replace(&mut before, end);
        ends.map(share).collect()
    }
}

/// In [0, 1).
fn uniform(random: &Random) -> f64 {
    random.below(1 << 32) as f64 / (1_u64 << 32) as f64
}

fn exponential(random: &Random, mean: f64) -> f64 {
    -mean * (1.0 - uniform(random)).ln()
}

impl Sim {
    /// A request arrives, and schedules the next one.
    pub(super) fn request(&mut self) {
        let requests = self.requests.as_ref().expect("they arrive");
        let p = requests.draw(&self.random);
        let work_ns = exponential(&self.random, SERVICE_NS) as u64;
        self.arrive_on(p, work_ns);
        let next_ns = self.now_ns + exponential(&self.random, EVERY_NS).round() as u64;
        self.at(next_ns, What::Request);
    }
}

/// Mean and 99th percentile of the time in queues, in microseconds.
#[derive(Clone, Copy, Debug)]
struct Waits {
    mean_us: f64,
    p99_us: f64,
}

impl Waits {
    fn of(mut waits_ns: Vec<u64>) -> Waits {
        let n = waits_ns.len();
        assert!(n > 10_000, "{n} requests say nothing");
        let sum: u64 = waits_ns.iter().sum();
        let (_, p99, _) = waits_ns.select_nth_unstable(n * 99 / 100);
        Waits {
            mean_us: sum as f64 / n as f64 / 1e3,
            p99_us: *p99 as f64 / 1e3,
        }
    }
}

/// A group of CPUs behind one queue.
#[derive(Clone, Copy, Debug)]
struct Pool {
    cpus: usize,
    slowness: u64,
}

impl Pool {
    fn of(cpus: usize) -> Pool {
        Pool { cpus, slowness: 1 }
    }
}

/// Pools as the formulas have them, without any cost: each takes its requests in their order.
fn pools(pools: &[Pool], requests: &Requests, seconds: f64) -> Waits {
    let cpus = |pool: &Pool| vec![pool.slowness; pool.cpus];
    let queues: Vec<Vec<u64>> = pools.iter().map(cpus).collect();
    let n_ps: usize = pools.iter().map(|pool| pool.cpus).sum();
    let per_pool = n_ps / pools.len();
    queues_before(&queues, seconds, |random| requests.draw(random) / per_pool)
}

/// Queues, each before CPUs that are so often slower than others; `choose` gives the queue of the next request.
fn queues_before(queues: &[Vec<u64>], seconds: f64, choose: impl Fn(&Random) -> usize) -> Waits {
    let random = Random::new(1);
    let free_at_0 = |cpus: &Vec<u64>| {
        cpus.iter()
            .map(|&slowness| Reverse((0, slowness)))
            .collect()
    };
    let mut free_at: Vec<BinaryHeap<Reverse<(u64, u64)>>> = queues.iter().map(free_at_0).collect();
    let (mut now, mut waits_ns) = (0.0, Vec::new());
    while now < seconds * 1e9 {
        now += exponential(&random, EVERY_NS);
        let queue = &mut free_at[choose(&random)];
        let Reverse((free_ns, slowness)) = queue.pop().expect("a queue has CPUs");
        let begins_ns = free_ns.max(now as u64);
        let work_ns = exponential(&random, SERVICE_NS) as u64 * slowness;
        queue.push(Reverse((begins_ns + work_ns, slowness)));
        if now >= WARM_NS as f64 {
            waits_ns.push(begins_ns - now as u64);
        }
    }
    Waits::of(waits_ns)
}

/// windlass on a machine of equal nodes, some of them slow.
fn windlass(n_ps: usize, slowness: &[u64], requests: Requests, seconds: f64) -> Waits {
    let n_nodes = slowness.len();
    let mut sim = Sim::machine(n_nodes, n_ps / n_nodes, between, 2, SERVICE_NS as u64);
    sim.slowness = slowness.to_vec();
    sim.requests = Some(requests);
    sim.at(0, What::Request);
    sim.run(WARM_NS);
    sim.waits_ns.clear();
    sim.run((seconds * 1e9) as u64);
    Waits::of(sim.waits_ns)
}

/// Two sockets, each of one or two nodes.
fn between(a: usize, b: usize) -> u32 {
    match (a == b, a / 2 == b / 2) {
        (true, _) => 10,
        (_, true) => 21,
        _ => 32,
    }
}

/// The mean time in the queue of M/M/c in units of the mean service time, with `busy` CPUs' worth of work; infinite if
/// these are all or more.
///
/// Erlang's B by its recursion, from it C, the probability to wait: C / (c - busy).
fn mean_wait(cpus: usize, busy: f64) -> f64 {
    let c = cpus as f64;
    // Shares of the work are sums of fractions.
    if busy > c - 1e-9 {
        return f64::INFINITY;
    }
    let b = (1..=cpus).fold(1.0, |b, k| busy * b / (k as f64 + busy * b));
    let wait = b / (1.0 - busy / c * (1.0 - b));
    wait / (c - busy)
}

/// The same of pools that do not help one another, in microseconds.
fn mean_of_pools_us(pools: &[Pool], shares: &[f64]) -> f64 {
    let weighted = pools.iter().zip(shares).map(|(pool, share)| {
        let slowness = pool.slowness as f64;
        let wait = mean_wait(pool.cpus, BUSY_CPUS * share * slowness);
        share * wait * slowness * SERVICE_NS / 1e3
    });
    weighted.sum()
}

/// The fewest CPUs in so many equal pools that keep the mean.
fn needed(n_pools: usize) -> usize {
    let us = |per_pool: usize| {
        let pools = vec![Pool::of(per_pool); n_pools];
        mean_of_pools_us(&pools, &vec![1.0 / n_pools as f64; n_pools])
    };
    let enough = (1..1000).find(|&per_pool| us(per_pool) <= ASKED_US + 1e-6);
    enough.expect("some number is enough") * n_pools
}

#[test]
fn the_formulas_give_the_published_numbers() {
    // One CPU, half busy: the utilisation over what is left of it. Two CPUs, half busy: a third waits.
    assert!((mean_wait(1, 0.5) - 1.0).abs() < 1e-9);
    assert!((mean_wait(2, 1.0) - 1.0 / 3.0).abs() < 1e-9);
    assert!(mean_wait(96, 96.0).is_infinite());
    assert_eq!(needed(1), 98);
    // A queue for each core: three times as many CPUs as are busy.
    let at = |cpus: usize| mean_wait(1, BUSY_CPUS / cpus as f64) * SERVICE_NS / 1e3;
    assert!(at(288) <= ASKED_US + 1e-6 && at(287) > ASKED_US);
}

/// The arrivals and the clock of the simulation are those of the formulas.
#[test]
fn simulated_pools_wait_as_long_as_the_formulas_say() {
    for (n_pools, n_ps) in [(1, 104), (4, 112), (128, 128)] {
        let all = vec![Pool::of(n_ps / n_pools); n_pools];
        let said_us = mean_of_pools_us(&all, &vec![1.0 / n_pools as f64; n_pools]);
        let seen_us = pools(&all, &Requests::even(n_ps), 2.0).mean_us;
        let error = seen_us / said_us - 1.0;
        assert!(error.abs() < 0.05, "{n_pools}: {seen_us} for {said_us}");
    }
}

/// windlass is as good as one queue but for the time to wake up, on one node and on four; a queue for each core
/// needs many times as long.
#[test]
fn the_gate_keeps_the_mean_of_one_queue() {
    let wake_us = WAKE_NS as f64 / 1e3;
    for (n_nodes, n_ps) in [(1, 104), (2, 104), (4, 112)] {
        let seen_us = windlass(n_ps, &vec![1; n_nodes], Requests::even(n_ps), 0.08).mean_us;
        let one_queue_us = mean_of_pools_us(&[Pool::of(n_ps)], &[1.0]);
        assert!(
            seen_us >= 0.8 * one_queue_us,
            "{n_nodes}: {seen_us} for {one_queue_us}"
        );
        assert!(
            seen_us <= one_queue_us + wake_us,
            "{n_nodes}: {seen_us} for {one_queue_us}"
        );
    }
}

const BEGIN: &str = "<!-- written by `make theory` -->\n";
const END: &str = "<!-- to here -->\n";

/// The page has the values of the formulas; with `WINDLASS_BLESS` all tables are written anew, which takes minutes.
#[test]
fn the_docs_have_the_tables() {
    let mut docs = include_str!("../../../docs/NUMA.md").to_owned();
    let (before, rest) = docs
        .split_once(BEGIN)
        .expect("a mark where the tables begin");
    let (_, after) = rest.split_once(END).expect("a mark where they end");
    if std::env::var_os("WINDLASS_BLESS").is_some() {
        let tables = [needed_table(), even_table(), skewed_table(), slow_table()].join("\n");
        docs = format!("{before}{BEGIN}\n{tables}\n{END}{after}");
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/NUMA.md");
        std::fs::write(page, &docs).unwrap();
    }
    for n_ps in [98, 100, 104, 112, 120, 128] {
        let one_us = mean_of_pools_us(&[Pool::of(n_ps)], &[1.0]);
        assert!(
            docs.contains(&format!("| {n_ps} | {}, ", us(one_us))),
            "{n_ps}"
        );
    }
    let needed = [1, 2, 4].map(|n_pools| needed(n_pools).to_string());
    assert!(docs.contains(&format!("| {} | 288 |", needed.join(" | "))));
}

/// Longer where the queues are long, as their lengths then change slowly.
fn seconds(n_ps: usize) -> f64 {
    if n_ps <= 100 { 8.0 } else { 2.0 }
}

/// `3.7`, `52`, `no bound`.
fn us(us: f64) -> String {
    match us {
        us if us.is_infinite() => "no bound".to_owned(),
        us if us < 10.0 => format!("{us:.1}"),
        us => format!("{us:.0}"),
    }
}

/// The formula's mean and the simulated one.
fn both(all: &[Pool], requests: &Requests, n_ps: usize) -> String {
    let shares = requests.shares(n_ps / all.len());
    let said_us = mean_of_pools_us(all, &shares);
    if said_us.is_infinite() {
        return us(said_us);
    }
    let seen = pools(all, requests, seconds(n_ps));
    format!("{}, {}", us(said_us), us(seen.mean_us))
}

/// windlass's mean and 99th percentile, if the Ps can be divided by the nodes.
fn cell(n_ps: usize, slowness: &[u64], requests: Requests) -> String {
    if !n_ps.is_multiple_of(slowness.len()) {
        return "–".to_owned();
    }
    let seen = windlass(n_ps, slowness, requests, seconds(n_ps));
    format!("{} ({})", us(seen.mean_us), us(seen.p99_us))
}

fn equal(n_pools: usize, n_ps: usize) -> Vec<Pool> {
    vec![Pool::of(n_ps / n_pools); n_pools]
}

fn even_table() -> String {
    let mut table = String::from(
        "| Ps | one queue | a queue for each of four nodes | a queue for each P | windlass, 1 node | 2 nodes | 4 nodes |\n\
         |---|---|---|---|---|---|---|\n",
    );
    for n_ps in [96, 98, 100, 104, 112, 120, 128] {
        let even = || Requests::even(n_ps);
        let one = both(&equal(1, n_ps), &even(), n_ps);
        let four = match n_ps % 4 {
            0 => both(&equal(4, n_ps), &even(), n_ps),
            _ => "–".to_owned(),
        };
        let each = both(&equal(n_ps, n_ps), &even(), n_ps);
        let gate = [1, 2, 4].map(|n_nodes| match n_ps {
            96 => "–".to_owned(),
            _ => cell(n_ps, &vec![1; n_nodes], even()),
        });
        let _ = writeln!(
            table,
            "| {n_ps} | {one} | {four} | {each} | {} |",
            gate.join(" | ")
        );
    }
    table
}

fn needed_table() -> String {
    let each = (BUSY_CPUS * (1.0 + SERVICE_NS / 1e3 / ASKED_US)).ceil();
    let gate = [1, 2, 4].map(|n_nodes| {
        let holds = |n_ps: &usize| {
            let even = Requests::even(*n_ps);
            windlass(*n_ps, &vec![1; n_nodes], even, seconds(*n_ps)).mean_us <= ASKED_US
        };
        let first = needed(1).next_multiple_of(n_nodes);
        let enough = (first..).step_by(n_nodes).find(holds);
        enough.map_or(String::new(), |n_ps| n_ps.to_string())
    });
    format!(
        "| CPUs for a mean of 50 µs | one queue | for each of two nodes | for each of four nodes | for each P | \
         windlass, 1 node | 2 nodes | 4 nodes |\n|---|---|---|---|---|---|---|---|\n\
         | formula; windlass simulated | {} | {} | {} | {each} | {} |\n",
        needed(1),
        needed(2),
        needed(4),
        gate.join(" | ")
    )
}

fn skewed_table() -> String {
    let mut table = String::from(
        "| Ps, skewed | one queue | a queue for each of four nodes | a queue for each P | windlass, 1 node | 2 nodes | 4 nodes |\n\
         |---|---|---|---|---|---|---|\n",
    );
    for n_ps in [104, 112, 128] {
        let skewed = || Requests::skewed(n_ps, &Random::new(3));
        let queues = [1, 4, n_ps].map(|n_pools| both(&equal(n_pools, n_ps), &skewed(), n_ps));
        let gate = [1, 2, 4].map(|n_nodes| cell(n_ps, &vec![1; n_nodes], skewed()));
        let (queues, gate) = (queues.join(" | "), gate.join(" | "));
        let _ = writeln!(table, "| {n_ps} | {queues} | {gate} |");
    }
    table
}

/// Of one queue before CPUs of two speeds there is no formula, but that of as many fast ones as can do as much.
fn slow_table() -> String {
    let mut table = String::from(
        "| Ps, one node of four slow | as many fast ones, one queue | one queue | a queue for each node | windlass, 4 nodes |\n\
         |---|---|---|---|---|\n",
    );
    for n_ps in [112, 120, 128] {
        let even = || Requests::even(n_ps);
        let mut by_node = equal(4, n_ps);
        by_node[0].slowness = 2;
        let as_many = n_ps - n_ps / 8;
        let said_us = mean_of_pools_us(&[Pool::of(as_many)], &[1.0]);
        let all = by_node
            .iter()
            .flat_map(|node| vec![node.slowness; node.cpus]);
        let one_us = queues_before(&[all.collect()], seconds(n_ps), |_| 0).mean_us;
        let four = both(&by_node, &even(), n_ps);
        let gate = cell(n_ps, &[2, 1, 1, 1], even());
        let (said, one) = (us(said_us), us(one_us));
        let _ = writeln!(
            table,
            "| {n_ps} | {as_many}: {said} | {one} | {four} | {gate} |"
        );
    }
    table
}

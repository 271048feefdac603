//! Simulated clusters of examples/replicated: the servers of the example, on hosts whose power goes and
//! whose links fail, and clients whose answers are checked.
//!
//! `WINDLASS_CLUSTER_HOURS` says how many hours of virtual time the correct clusters run.

#[path = "replicated/history.rs"]
mod history;
#[path = "../replicated/mod.rs"]
mod replicated;

use std::net::SocketAddr;
use std::sync::Arc;

use windlass::channel::{Receiver, unbounded};
use windlass::net::TcpListener;
use windlass::sim::{self, Disk, Failure, Faults, Host, Link, Network, Report, Sim};
use windlass::time::{Duration, Instant, sleep, sleep_until};

use history::History;
use replicated::{Bug, Client, Command, Config, Timing};

// SAFETY: nothing of a thread is kept across a call into windlass.
#[allow(unsafe_code)]
const PROMISE: windlass::Promise = unsafe { windlass::Promise::no_thread_local_across_waits() };

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

const N_SERVERS: u8 = 3;
const N_CLIENTS: u64 = 3;

/// Slower than in a building, so that most of an hour is not heartbeats.
const TIMING: Timing = Timing {
    heartbeat: Duration::from_secs(10),
    election: Duration::from_secs(30),
    answer: Duration::from_secs(10),
    pause: Duration::from_secs(2),
};

/// The length of a run, most of it with faults.
const RUN: Duration = Duration::from_secs(3600);
/// The last part of a run, in which nothing fails any more.
const CALM: Duration = Duration::from_secs(600);
/// How long a fault lasts.
const FAULT: Duration = Duration::from_secs(120);
/// How long a client tries. What it gives up may still take effect.
const PATIENCE: Duration = Duration::from_secs(600);
/// The time of a command when nothing fails: four ways over links, and two syncs. A command that has to be
/// sent again takes longer, as the client does that after `TIMING.answer`.
const QUICK: Duration = Duration::from_secs(1);

/// Hosts that fail in all the ways there are.
fn world() -> Sim {
    let faults = Faults::network()
        .partitions(0.1)
        .one_way_partitions(0.1)
        .resets(0.1)
        .crashes(0.1)
        .pauses(0.1)
        .slow_disks(0.1)
        .failing_disks(0.02)
        .full_disks(0.02)
        .at_most(FAULT)
        .until(RUN - CALM);
    Sim::new(PROMISE)
        .link(Link::new().latency_between(MS, 20 * MS))
        .disk(Disk::new().sync_time(MS..=50 * MS))
        .faults(faults)
        .steps(u64::MAX)
}

/// One run: the servers, the clients, and what happens to them.
fn cluster(bug: Option<Bug>) {
    let begun = Instant::now();
    let end_of_faults = begun + RUN - CALM;
    let history = Arc::new(History::default());
    let servers = Arc::new(Servers::start(bug));
    let nemesis = Arc::clone(&servers);
    let mut work = vec![windlass::spawn(move || {
        nemesis.isolate_until(end_of_faults)
    })];
    for id in 1..=N_CLIENTS {
        let mut user = User::new(id, &servers, &history);
        work.push(windlass::spawn(move || user.work_until(end_of_faults)));
    }
    work.into_iter().for_each(|each| each.join().unwrap());
    // The last faults end, and the cluster finds a primary.
    sleep(2 * FAULT);
    let mut crowd: Vec<User> = (N_CLIENTS + 1..)
        .map(|id| User::new(id, &servers, &history))
        .take(6)
        .collect();
    for user in &mut crowd {
        user.work_once(PATIENCE);
    }
    // Without one backup nothing is committed that the primary itself has not on disk.
    let backup = (crowd[0].client.server() + 1) % servers.hosts.len();
    servers.hosts[backup].crash();
    for _ in 0..5 {
        crowd = work_at_once(crowd);
    }
    servers.hosts[backup].restart();
    sleep_until(begun + RUN);
    if let Err(why) = history.check() {
        panic!("{why}");
    }
    let (n_calls, n_answers) = history.counts();
    assert!(
        n_answers >= n_calls / 10 * 9,
        "only {n_answers} of {n_calls} commands were answered"
    );
}

/// Each user carries out a command, all at the same time. As nothing fails, none takes long.
fn work_at_once(users: Vec<User>) -> Vec<User> {
    let working = users.into_iter().map(|mut user| {
        windlass::spawn(move || {
            let begun = Instant::now();
            user.work_once(PATIENCE);
            (user, begun.elapsed())
        })
    });
    let working: Vec<_> = working.collect();
    let done = working.into_iter().map(|user| {
        let (user, time) = user.join().unwrap();
        assert!(
            time < QUICK,
            "a command took {time:?}, although nothing had failed"
        );
        user
    });
    done.collect()
}

/// The hosts of a cluster.
struct Servers {
    cluster: Vec<SocketAddr>,
    hosts: Vec<Host>,
}

impl Servers {
    fn start(bug: Option<Bug>) -> Servers {
        Servers::start_with_seeds(bug, |_| sim::draw(u32::MAX).into())
    }

    /// Starts servers with the seed that each place in the cluster gives.
    fn start_with_seeds(bug: Option<Bug>, seed: fn(usize) -> u64) -> Servers {
        let cluster: Vec<SocketAddr> = (1..=N_SERVERS)
            .map(|n| SocketAddr::from(([10, 0, 0, n], 7000)))
            .collect();
        let (failed, failures) = unbounded();
        let hosts: Vec<Host> = (0..cluster.len())
            .map(|id| {
                let (cluster, failed) = (cluster.clone(), failed.clone());
                sim::host(&format!("server-{id}"), cluster[id].ip(), move || {
                    let listener = TcpListener::bind(cluster[id]).unwrap();
                    let config = Config {
                        cluster: cluster.clone(),
                        id,
                        data: "/data".into(),
                        timing: TIMING,
                        seed: seed(id),
                        bug,
                    };
                    // The disk has failed. The process ends, and is started again.
                    drop(replicated::serve(listener, config));
                    failed.send(id).unwrap();
                })
            })
            .collect();
        let restarted = hosts.clone();
        windlass::spawn(move || restart_each(&restarted, &failures));
        Servers { cluster, hosts }
    }

    /// Takes the power from all servers at once, for a while.
    fn cut_power(&self) {
        self.hosts.iter().for_each(|host| host.crash());
        sleep(SECOND * (1 + sim::draw(30)));
        self.hosts.iter().for_each(|host| host.restart());
    }

    /// Now and then cuts the links of one server to the others. Clients reach it all the while.
    fn isolate_until(&self, end: Instant) {
        loop {
            sleep(SECOND * (30 + sim::draw(240)));
            if Instant::now() >= end {
                return;
            }
            let alone = self.hosts[sim::draw(N_SERVERS.into()) as usize];
            let others = || self.hosts.iter().filter(|&&host| host != alone);
            others().for_each(|&host| Network::partition(alone, host));
            sleep(SECOND * (60 + sim::draw(60)));
            others().for_each(|&host| Network::heal(alone, host));
        }
    }
}

fn restart_each(hosts: &[Host], failures: &Receiver<usize>) {
    for id in failures {
        hosts[id].crash();
        sleep(5 * SECOND);
        hosts[id].restart();
    }
}

/// A client, and what it does.
struct User {
    client: Client,
    id: u64,
    n_values: u32,
    /// The value of each key when it was last seen.
    seen: [Option<String>; 3],
    servers: Arc<Servers>,
    history: Arc<History>,
}

impl User {
    fn new(id: u64, servers: &Arc<Servers>, history: &Arc<History>) -> User {
        User {
            client: Client::new(servers.cluster.clone(), id, TIMING),
            id,
            n_values: 0,
            seen: Default::default(),
            servers: Arc::clone(servers),
            history: Arc::clone(history),
        }
    }

    fn work_until(&mut self, end: Instant) {
        loop {
            sleep(SECOND * (1 + sim::draw(30)));
            if Instant::now() >= end {
                return;
            }
            let has_changed = self.work_once(PATIENCE);
            // The worst moment: a change was acknowledged just now.
            if has_changed && sim::draw(50) == 49 {
                self.servers.cut_power();
            }
        }
    }

    /// Carries out a command that is drawn. Returns whether it was a change and was answered.
    fn work_once(&mut self, patience: Duration) -> bool {
        let key = sim::draw(self.seen.len() as u32) as usize;
        self.n_values += 1;
        let value = format!("{}.{}", self.id, self.n_values);
        let expected = self.seen[key].clone();
        let name = format!("key-{key}");
        let command = match sim::draw(4) {
            0 => Command::Put {
                key: name,
                value: value.clone(),
            },
            1 => Command::Swap {
                key: name,
                expected: expected.clone(),
                value: value.clone(),
            },
            _ => Command::Get { key: name },
        };
        let call = self.history.call(&command);
        let Ok(before) = self.client.call(command.clone(), patience) else {
            return false;
        };
        self.history.answer(call, before.clone());
        let (is_change, now) = match command {
            Command::Put { .. } => (true, Some(value)),
            Command::Swap { .. } if before == expected => (true, Some(value)),
            _ => (false, before),
        };
        self.seen[key] = now;
        is_change
    }
}

/// Runs clusters for so many hours, on two threads. Each simulation has a thread of its own.
fn run_hours(hours: u64) -> Vec<Report> {
    let n_runs = (hours * 3600).div_ceil(2 * RUN.as_secs());
    let threads = [1, 1 + n_runs].map(|first| {
        std::thread::spawn(move || {
            let sim = world().seed(first).seeds(n_runs);
            sim.run(|| cluster(None))
                .unwrap_or_else(|failure| panic!("{failure}"))
        })
    });
    threads.map(|thread| thread.join().unwrap()).into()
}

#[test]
fn clusters_are_linearizable_and_go_on() {
    let hours = std::env::var("WINDLASS_CLUSTER_HOURS");
    let hours = hours.map_or(4, |hours| hours.parse().expect("a number of hours"));
    let begun = std::time::Instant::now();
    let reports = run_hours(hours);
    let runs = || reports.iter().flat_map(|report| &report.runs);
    let time: Duration = runs().map(|run| run.elapsed).sum();
    let steps: u64 = runs().map(|run| run.steps).sum();
    eprintln!(
        "{} runs, {:.0} cluster hours, {steps} steps: {:.1} s",
        runs().count(),
        time.as_secs_f64() / 3600.0,
        begun.elapsed().as_secs_f64()
    );
    if std::env::vars_os().all(|(name, _)| !name.to_string_lossy().starts_with("WINDLASS_SIM")) {
        assert!(time >= Duration::from_secs(3600 * hours));
    }
}

/// Seeds that differ in the same bits as the places of the servers, as ids of processes do that start one
/// after another.
#[test]
fn servers_with_similar_seeds_do_not_stand_for_election_together_for_ever() {
    let sim = Sim::new(PROMISE).seeds(20).link(Link::new().latency(MS));
    let outcome = sim.run(|| {
        let servers = Servers::start_with_seeds(None, |id| 100 + id as u64);
        let mut client = Client::new(servers.cluster.clone(), 1, TIMING);
        for _ in 0..3 {
            let begun = Instant::now();
            let get = Command::Get { key: "key".into() };
            client.call(get, PATIENCE).unwrap();
            let time = begun.elapsed();
            assert!(time < 6 * TIMING.election, "no primary for {time:?}");
            let down = servers.hosts.iter().filter(|host| !host.is_up());
            down.for_each(|host| host.restart());
            servers.hosts[client.server()].crash();
        }
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}

/// The failure of the first seed that finds a bug.
fn find(bug: Bug) -> Failure {
    let sim = world().seed(1).seeds(50).shorten(false);
    let failure = sim
        .run(|| cluster(Some(bug)))
        .expect_err("the bug is found");
    eprintln!("{bug:?} is found by seed {}", failure.seed());
    failure
}

#[test]
fn an_acknowledgement_before_the_sync_is_found() {
    let failure = find(Bug::AcknowledgeBeforeSync).to_string();
    assert!(failure.contains("not linearizable"), "{failure}");
}

#[test]
fn a_stale_read_after_failover_is_found() {
    let failure = find(Bug::StaleRead).to_string();
    assert!(failure.contains("not linearizable"), "{failure}");
}

#[test]
fn a_lost_wake_in_the_batcher_is_found() {
    let failure = find(Bug::LostWake).to_string();
    assert!(failure.contains("although nothing had failed"), "{failure}");
}

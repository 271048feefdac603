//! The workloads: programs of the public interface, which run on the twin and on this machine alike.

use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

use windlass::channel::bounded;
use windlass::net::{TcpListener, TcpStream};
use windlass::sync::Mutex;
use windlass::task::JoinHandle;
use windlass::{Builder, Runtime, sleep, spawn, yield_now};

#[cfg(explore)]
use crate::clock::current_cpu;
use crate::clock::{LONGER, begin_costs, charge, end_costs, now_ns};
#[cfg(explore)]
use crate::events::{Figure, Searches};

/// A workload: goroutines that repeat one operation on each P.
#[derive(Clone, Copy)]
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    /// One operation.
    #[cfg_attr(
        not(explore),
        allow(dead_code, reason = "the tables of the twin have it")
    )]
    pub(crate) what: &'static str,
    /// How long it is measured.
    span: Duration,
    /// Operations between two readings of the clock.
    batch: u64,
    start: fn(u64, Window) -> Vec<JoinHandle<f64>>,
}

pub(crate) const ALL: &[Workload] = &[
    Workload {
        name: "spawn",
        what: "a goroutine is spawned and joined, on each P by one",
        span: Duration::from_micros(100),
        batch: BATCH,
        start: spawn_and_join,
    },
    Workload {
        name: "yield",
        what: "a goroutine yields, two on each P",
        span: Duration::from_micros(50),
        batch: BATCH,
        start: yields,
    },
    Workload {
        name: "pairs",
        what: "a value goes to and fro between two goroutines, a pair on each P",
        span: Duration::from_micros(100),
        batch: BATCH,
        start: pairs,
    },
    Workload {
        name: "mutex",
        what: "one lock for all is taken for 100 ns, then 1 µs of work without it",
        span: Duration::from_micros(300),
        batch: 1,
        start: mutex,
    },
    Workload {
        name: "sleepers",
        what: "a goroutine sleeps for 100 µs, four on each P",
        span: Duration::from_millis(4),
        batch: 1,
        start: sleepers,
    },
    Workload {
        name: "echo",
        what: "64 bytes go to a server goroutine over TCP and come back, two connections on each P",
        span: Duration::from_millis(1),
        batch: 1,
        start: echo,
    },
    Workload {
        name: "one-to-all",
        what: "one goroutine sends work of 5 µs, one on each P receives",
        span: Duration::from_millis(3),
        batch: 1,
        start: one_to_all,
    },
];

/// Operations between two readings of the clock, where they are short.
const BATCH: u64 = 16;

/// The time until each P has found a goroutine, in which goroutines compute, and how long they do so between two
/// operations; and the time in which caches fill.
const SPREAD: Duration = Duration::from_millis(3);
const COMPUTE: Duration = Duration::from_micros(100);
const WARM_UP: Duration = Duration::from_micros(10);

/// On more Ps it takes longer until each has found one. Short operations are measured for a shorter time there: the
/// host of the twin does all of them.
const MANY_PS: u32 = 64;

/// The time in which operations count.
#[derive(Clone, Copy, Debug)]
struct Window {
    from_ns: u64,
    to_ns: u64,
    compute: Duration,
    batch: u64,
}

impl Window {
    fn new(workload: &Workload, n_ps: u32) -> Window {
        let times = n_ps.div_ceil(MANY_PS);
        let from_ns = now_ns() + (SPREAD * times + WARM_UP).as_nanos() as u64;
        Window {
            from_ns,
            to_ns: from_ns + LONGER * workload.span_on(n_ps).as_nanos() as u64,
            compute: COMPUTE * times,
            batch: workload.batch,
        }
    }

    /// Repeats `op` until the window ends: operations for each ns of it. All goroutines of a workload do so in the
    /// same window, so that the sum of what they return is the throughput.
    fn rate(self, mut op: impl FnMut()) -> f64 {
        let mut batch = || (0..self.batch).for_each(|_| op());
        let warm_up_ns = self.from_ns - WARM_UP.as_nanos() as u64;
        while now_ns() < warm_up_ns {
            let left_ns = warm_up_ns.saturating_sub(now_ns());
            charge(self.compute.min(Duration::from_nanos(left_ns)));
            batch();
        }
        while now_ns() < self.from_ns {
            batch();
        }
        begin_costs();
        let begin_ns = now_ns();
        let mut n = 0;
        let mut end_ns = begin_ns;
        while end_ns < self.to_ns {
            batch();
            n += self.batch;
            end_ns = now_ns();
        }
        end_costs();
        // One that has come late was idle before.
        let span_ns = (end_ns - begin_ns).max(self.to_ns - self.from_ns);
        n as f64 / span_ns as f64
    }
}

impl Workload {
    /// Runs it as the program of a runtime with so many Ps: the operations of all together for each ns.
    pub(crate) fn run(self, rt: &Runtime, n_ps: u32) -> f64 {
        rt.run(move || {
            let all = (self.start)(u64::from(n_ps), Window::new(&self, n_ps));
            all.into_iter().map(|g| g.join().expect("it ends")).sum()
        })
    }

    /// How long it is measured on so many Ps.
    pub(crate) fn span_on(&self, n_ps: u32) -> Duration {
        match self.batch {
            1 => self.span,
            _ => self.span * MANY_PS / MANY_PS.max(n_ps),
        }
    }
}

#[expect(unsafe_code, reason = "the builder's contract")]
pub(crate) fn build(builder: Builder) -> Runtime {
    // SAFETY: nothing here keeps a thread-local across a call that parks.
    unsafe { builder.build() }.expect("a runtime")
}

/// Runs `f` in `n` goroutines.
fn on_each(n: u64, f: impl Fn() -> f64 + Send + Sync + 'static) -> Vec<JoinHandle<f64>> {
    let f = Arc::new(f);
    let start = |_| {
        let f = Arc::clone(&f);
        spawn(move || f())
    };
    (0..n).map(start).collect()
}

fn spawn_and_join(n_ps: u64, window: Window) -> Vec<JoinHandle<f64>> {
    on_each(n_ps, move || {
        window.rate(|| spawn(|| ()).join().expect("it ends"))
    })
}

fn yields(n_ps: u64, window: Window) -> Vec<JoinHandle<f64>> {
    on_each(2 * n_ps, move || window.rate(yield_now))
}

fn pairs(n_ps: u64, window: Window) -> Vec<JoinHandle<f64>> {
    on_each(n_ps, move || {
        let (to, at) = bounded::<u64>(1);
        let (back, answer) = bounded::<u64>(1);
        let other = spawn(move || {
            at.iter()
                .for_each(|n| back.send(n).expect("it is received"))
        });
        let mut n = 0;
        let rate = window.rate(|| {
            n += 1;
            to.send(n).expect("it is received");
            assert_eq!(answer.recv(), Ok(n));
        });
        drop(to);
        other.join().expect("it ends");
        rate
    })
}

fn mutex(n_ps: u64, window: Window) -> Vec<JoinHandle<f64>> {
    let number = Arc::new(Mutex::new(0));
    on_each(n_ps, move || {
        window.rate(|| {
            let mut held = number.lock().expect("nobody panics");
            charge(Duration::from_nanos(100));
            *held += 1;
            drop(held);
            charge(Duration::from_micros(1));
        })
    })
}

fn sleepers(n_ps: u64, window: Window) -> Vec<JoinHandle<f64>> {
    on_each(4 * n_ps, move || {
        window.rate(|| sleep(Duration::from_micros(100)))
    })
}

fn echo(n_ps: u64, window: Window) -> Vec<JoinHandle<f64>> {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it has one");
    let connect = |_| {
        let client = TcpStream::connect(address).expect("it listens");
        let (server, _) = listener.accept().expect("it has connected");
        for end in [&client, &server] {
            end.set_nodelay(true).expect("TCP can do that");
        }
        (client, server)
    };
    let connections: Vec<_> = (0..2 * n_ps).map(connect).collect();
    let start = |(client, server)| spawn(move || exchange(client, server, window));
    connections.into_iter().map(start).collect()
}

/// Sends to a server goroutine and waits for the answer, again and again.
fn exchange(mut client: TcpStream, mut server: TcpStream, window: Window) -> f64 {
    let mut bytes = [7; 64];
    let other = spawn(move || {
        while server.read_exact(&mut bytes).is_ok() {
            server.write_all(&bytes).expect("it is received");
        }
    });
    let rate = window.rate(|| {
        client.write_all(&bytes).expect("it is received");
        client.read_exact(&mut bytes).expect("it is sent");
    });
    drop(client);
    other.join().expect("it ends");
    rate
}

fn one_to_all(n_ps: u64, window: Window) -> Vec<JoinHandle<f64>> {
    let (to, at) = bounded::<()>(256);
    drop(spawn(move || while to.send(()).is_ok() {}));
    on_each(n_ps, move || {
        window.rate(|| {
            at.recv().expect("it is sent");
            charge(Duration::from_micros(5));
        })
    })
}

/// Goroutines of a burst, and how long each computes.
#[cfg(explore)]
const BURST: u64 = 10_000;
#[cfg(explore)]
const BURST_WORK: Duration = Duration::from_micros(50);

/// A burst: times in ns since its first spawn.
#[cfg(explore)]
#[derive(Debug)]
pub(crate) struct Burst {
    /// All goroutines are spawned.
    pub(crate) spawned_ns: u64,
    /// The first goroutine on each CPU begins, in order of time. The first of all is the one that spawns.
    pub(crate) begun_ns: Vec<u64>,
    /// All goroutines have ended.
    pub(crate) ended_ns: u64,
    pub(crate) searches: [Figure; 4],
}

/// Spawns 10,000 goroutines into an idle machine.
#[cfg(explore)]
pub(crate) fn burst(rt: &Runtime) -> Burst {
    rt.run(|| {
        // All Ms fall asleep.
        sleep(Duration::from_millis(20));
        let before = Searches::so_far(rt);
        begin_costs();
        let begin_ns = now_ns();
        let mut first = std::collections::BTreeMap::from([(current_cpu(), 0)]);
        let work = move || {
            let seen = (current_cpu(), now_ns() - begin_ns);
            charge(BURST_WORK);
            seen
        };
        let all: Vec<_> = (0..BURST).map(|_| spawn(work)).collect();
        let spawned_ns = now_ns() - begin_ns;
        let mut ended_ns = 0;
        for g in all {
            let (cpu, at_ns) = g.join().expect("it ends");
            let seen_ns = first.entry(cpu).or_insert(at_ns);
            *seen_ns = at_ns.min(*seen_ns);
            ended_ns = ended_ns.max(at_ns + BURST_WORK.as_nanos() as u64);
        }
        end_costs();
        let mut begun_ns: Vec<_> = first.into_values().collect();
        begun_ns.sort_unstable();
        Burst {
            spawned_ns,
            begun_ns,
            ended_ns,
            searches: before.until(&Searches::so_far(rt)),
        }
    })
}

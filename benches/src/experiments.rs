//! The experiments that `compare` runs: their programs, and the figures of each.

use crate::runtimes::Name;

/// A program that is run, and which of its figures are shown.
#[derive(Debug)]
pub struct Experiment {
    /// Its name, in the tables and for `--only`.
    pub name: &'static str,
    /// The program.
    pub what: What,
}

/// The program of an experiment.
#[derive(Debug)]
pub enum What {
    /// A program that ends by itself and prints its figures as `key=value`.
    Program {
        /// The program in Rust and its arguments; that of the runtime comes last.
        rust: &'static [&'static str],
        /// The word for `gobench`, if Go takes part.
        go: Option<&'static str>,
        /// The keys of the figures and their names.
        figures: &'static [(&'static str, &'static str)],
        /// The programs in Rust that there are.
        runtimes: &'static [Name],
    },
    /// A program that starts the server of each contender, and prints its figures as `key=value`.
    /// All take part but windlass over epoll.
    OwnServers {
        /// The program.
        program: &'static str,
        /// Its arguments, after the contender.
        arguments: &'static [&'static str],
        /// The keys of the figures and their names.
        figures: &'static [(&'static str, &'static str)],
    },
    /// A server, and a client to load it.
    Server {
        /// The program in Rust, if this is not for Go alone.
        rust: Option<&'static str>,
        /// The word for `gobench`.
        go: &'static str,
        /// HTTP/1.1, or else echo.
        http: bool,
        /// Of the client.
        connections: usize,
    },
}

const MICRO: &[(&str, &str)] = &[("ns", "ns/op"), ("cpu_ns", "cpu-ns/op")];
const READS: &[(&str, &str)] = &[
    ("per_second", "reads/s (more is better)"),
    ("cpu_ns", "cpu-ns/read"),
];
const SERVER: &[(&str, &str)] = &[
    ("cpu_us", "server cpu-us/request"),
    ("per_second", "requests/s (more is better)"),
    ("mean_us", "us, mean"),
    ("p50_us", "us, p50"),
    ("p99_us", "us, p99"),
    ("max_us", "us, longest"),
];
const LATENCY: &[(&str, &str)] = &[
    ("idle_p50_us", "us, idle, p50"),
    ("idle_p99_us", "us, idle, p99"),
    ("busy_p50_us", "us, busy, p50"),
    ("busy_p99_us", "us, busy, p99"),
];
const MEMORY: &[(&str, &str)] = &[("bytes", "bytes/task")];
const CLOSE: &[(&str, &str)] = &[
    ("close_ns", "ns/task to end on close"),
    ("bytes", "bytes/task"),
];
const SLEEP: &[(&str, &str)] = &[("p50_us", "us late, p50"), ("p99_us", "us late, p99")];

const TAIL: &[(&str, &str)] = &[
    ("p50_us", "us, p50"),
    ("p99_us", "us, p99"),
    ("max_us", "us, longest"),
];
const STALLS: &[(&str, &str)] = &[
    ("p50_us", "us, p50"),
    ("p99_us", "us, p99"),
    ("p999_us", "us, p99.9"),
];
const OVERLOAD: &[(&str, &str)] = &[
    ("per_second", "requests/s (more is better)"),
    ("p50_us", "us, p50"),
    ("p99_us", "us, p99"),
];
const ONE_STALL: &[(&str, &str)] = &[
    ("waited", "share that waited for the stall"),
    ("p50_us", "us, p50"),
    ("p99_us", "us, p99"),
];
const SLEEPS: &[(&str, &str)] = &[
    ("late_50_p50_us", "50 us: us late, p50"),
    ("late_50_p99_us", "50 us: us late, p99"),
    ("late_200_p50_us", "200 us: us late, p50"),
    ("late_200_p99_us", "200 us: us late, p99"),
    ("late_800_p50_us", "800 us: us late, p50"),
    ("late_800_p99_us", "800 us: us late, p99"),
    ("late_1500_p50_us", "1.5 ms: us late, p50"),
    ("late_1500_p99_us", "1.5 ms: us late, p99"),
    ("late_2900_p50_us", "2.9 ms: us late, p50"),
    ("late_2900_p99_us", "2.9 ms: us late, p99"),
];

/// Contenders with tasks that move between threads.
const TASKS: &[Name] = &[Name::Windlass, Name::Tokio, Name::May];
/// Contenders with connections.
pub const CONNECTIONS: &[Name] = &[
    Name::Windlass,
    Name::Tokio,
    Name::May,
    Name::Monoio,
    Name::Compio,
];
/// Contenders that read files by other means than may's, which is to block.
const FILES: &[Name] = &[
    Name::Windlass,
    Name::Tokio,
    Name::Monoio,
    Name::Compio,
    Name::Threads,
];

/// All of them, in the order of the tables.
pub const EXPERIMENTS: &[Experiment] = &[
    program("yield", &["micro", "yield"], "yield", MICRO),
    program("spawn_one", &["micro", "spawn-one"], "spawn-one", MICRO),
    program(
        "spawn_batch",
        &["micro", "spawn-batch"],
        "spawn-batch",
        MICRO,
    ),
    program("ping_pong", &["micro", "ping-pong"], "ping-pong", MICRO),
    program("skynet", &["micro", "skynet"], "skynet", MICRO),
    program("sleepers", &["micro", "sleepers"], "sleepers", MICRO),
    program("deadlines", &["micro", "deadlines"], "deadlines", MICRO),
    program(
        "chan_unbuffered",
        &["micro", "chan-unbuffered"],
        "chan-unbuffered",
        MICRO,
    ),
    program(
        "chan_buffered",
        &["micro", "chan-buffered"],
        "chan-buffered",
        MICRO,
    ),
    program("chan_pairs", &["micro", "chan-pairs"], "chan-pairs", MICRO),
    program("chan_mpmc", &["micro", "chan-mpmc"], "chan-mpmc", MICRO),
    program(
        "mutex_alone",
        &["micro", "mutex-alone"],
        "mutex-alone",
        MICRO,
    ),
    program(
        "mutex_contended",
        &["micro", "mutex-contended"],
        "mutex-contended",
        MICRO,
    ),
    stream("stream_16k", &["micro", "stream-16k"], "stream-16k"),
    stream("stream_512", &["micro", "stream-512"], "stream-512"),
    reads("reads_cached", &["random_reads", "cached"]),
    reads("reads_direct", &["random_reads", "direct"]),
    program(
        "memory_parked",
        &["parked_memory", "parked"],
        "parked-memory",
        MEMORY,
    ),
    program(
        "memory_spawned",
        &["parked_memory", "spawned"],
        "spawned-memory",
        MEMORY,
    ),
    program("close_parked", &["close_parked"], "close-parked", CLOSE),
    program(
        "sleep_overshoot",
        &["sleep_overshoot"],
        "sleep-overshoot",
        SLEEP,
    ),
    program("latency_busy", &["latency_busy"], "latency-busy", LATENCY),
    gap(
        "gap_echo_pairs_2",
        &["gaps", "echo-pairs-2"],
        "gap-echo-pairs-2",
        TAIL,
    ),
    gap(
        "gap_echo_pairs_4",
        &["gaps", "echo-pairs-4"],
        "gap-echo-pairs-4",
        TAIL,
    ),
    gap(
        "gap_echo_yields_2",
        &["gaps", "echo-yields-2"],
        "gap-echo-yields-2",
        TAIL,
    ),
    gap(
        "gap_echo_yields_4",
        &["gaps", "echo-yields-4"],
        "gap-echo-yields-4",
        TAIL,
    ),
    gap("gap_sleeps", &["gaps", "sleeps"], "gap-sleeps", SLEEPS),
    gap(
        "gap_wake_elsewhere",
        &["gaps", "wake-elsewhere"],
        "gap-wake-elsewhere",
        TAIL,
    ),
    gap(
        "gap_locked_peer",
        &["gaps", "locked-peer"],
        "gap-locked-peer",
        MICRO,
    ),
    gap(
        "gap_sleep_hogs_1",
        &["gaps", "sleep-hogs-1"],
        "gap-sleep-hogs-1",
        TAIL,
    ),
    gap(
        "gap_sleep_hogs_2",
        &["gaps", "sleep-hogs-2"],
        "gap-sleep-hogs-2",
        TAIL,
    ),
    gap(
        "gap_sleep_hogs_4",
        &["gaps", "sleep-hogs-4"],
        "gap-sleep-hogs-4",
        TAIL,
    ),
    gap(
        "gap_sleep_forks_1",
        &["gaps", "sleep-forks-1"],
        "gap-sleep-forks-1",
        TAIL,
    ),
    gap(
        "gap_sleep_forks_2",
        &["gaps", "sleep-forks-2"],
        "gap-sleep-forks-2",
        TAIL,
    ),
    stalls("stalls_15", &["--load", "0.15"], STALLS),
    stalls("stalls_40", &["--load", "0.40"], STALLS),
    stalls("stalls_64", &["--load", "0.64"], STALLS),
    stalls("stalls_120", &["--load", "1.20"], OVERLOAD),
    stalls("stalls_alone", &["--alone"], ONE_STALL),
    server("echo_1", Some("echo_server"), "echo", false, 1),
    server("echo_64", Some("echo_server"), "echo", false, 64),
    server("echo_1000", Some("echo_server"), "echo", false, 1000),
    server("http_64", Some("http_server"), "http-raw", true, 64),
    server("http_1000", Some("http_server"), "http-raw", true, 1000),
    server("http_64_nethttp", None, "http", true, 64),
];

const fn program(
    name: &'static str,
    rust: &'static [&'static str],
    go: &'static str,
    figures: &'static [(&'static str, &'static str)],
) -> Experiment {
    with(TASKS, name, rust, Some(go), figures)
}

/// An experiment that sends and receives: for all that have connections.
const fn stream(name: &'static str, rust: &'static [&'static str], go: &'static str) -> Experiment {
    with(CONNECTIONS, name, rust, Some(go), MICRO)
}

/// An experiment that reads files: without Go.
const fn reads(name: &'static str, rust: &'static [&'static str]) -> Experiment {
    with(FILES, name, rust, None, READS)
}

/// An experiment at which Go's scheduler is slow: for windlass and Go alone.
const fn gap(
    name: &'static str,
    rust: &'static [&'static str],
    go: &'static str,
    figures: &'static [(&'static str, &'static str)],
) -> Experiment {
    with(&[Name::Windlass], name, rust, Some(go), figures)
}

/// Requests that make the server compute.
const fn stalls(
    name: &'static str,
    arguments: &'static [&'static str],
    figures: &'static [(&'static str, &'static str)],
) -> Experiment {
    Experiment {
        name,
        what: What::OwnServers {
            program: "stalls",
            arguments,
            figures,
        },
    }
}

const fn with(
    runtimes: &'static [Name],
    name: &'static str,
    rust: &'static [&'static str],
    go: Option<&'static str>,
    figures: &'static [(&'static str, &'static str)],
) -> Experiment {
    Experiment {
        name,
        what: What::Program {
            rust,
            go,
            figures,
            runtimes,
        },
    }
}

const fn server(
    name: &'static str,
    rust: Option<&'static str>,
    go: &'static str,
    http: bool,
    connections: usize,
) -> Experiment {
    Experiment {
        name,
        what: What::Server {
            rust,
            go,
            http,
            connections,
        },
    }
}

impl Experiment {
    /// The keys of the figures that are shown, and their units.
    pub fn figures(&self) -> &'static [(&'static str, &'static str)] {
        match self.what {
            What::Program { figures, .. } | What::OwnServers { figures, .. } => figures,
            What::Server { .. } => SERVER,
        }
    }
}

//! The tables of the page: which figures they have, in which order, and which of them are drawn.

/// One table of the page, with its chart.
#[derive(Debug)]
pub struct Topic {
    /// Its name in the template, and of its chart.
    pub name: &'static str,
    /// The columns. A contender that did not take part has dashes.
    pub contenders: &'static [&'static str],
    /// The rows, in groups of one experiment or of one kind.
    pub groups: &'static [&'static [Figure]],
}

/// One row of a table.
#[derive(Debug)]
pub struct Figure {
    /// The experiment of `compare`.
    pub experiment: &'static str,
    /// The key of its figure.
    pub key: &'static str,
    /// The experiment, for a reader.
    pub label: &'static str,
    /// The unit of the figure.
    pub unit: &'static str,
    /// Whether the topic's chart shows it.
    pub is_drawn: bool,
}

/// In the chart and in the table.
const fn drawn(
    experiment: &'static str,
    key: &'static str,
    label: &'static str,
    unit: &'static str,
) -> Figure {
    Figure {
        experiment,
        key,
        label,
        unit,
        is_drawn: true,
    }
}

/// In the table only.
const fn listed(
    experiment: &'static str,
    key: &'static str,
    label: &'static str,
    unit: &'static str,
) -> Figure {
    Figure {
        experiment,
        key,
        label,
        unit,
        is_drawn: false,
    }
}

/// A micro benchmark: time, and CPU time.
const fn micro(experiment: &'static str, label: &'static str, unit: &'static str) -> [Figure; 2] {
    [
        drawn(experiment, "ns", label, unit),
        listed(experiment, "cpu_ns", "– CPU time", unit),
    ]
}

/// A server under load.
const fn server(experiment: &'static str, label: &'static str) -> [Figure; 6] {
    [
        drawn(experiment, "cpu_us", label, "µs a request"),
        listed(experiment, "per_second", "– rate", "requests/s"),
        listed(experiment, "mean_us", "– latency, mean", "µs"),
        listed(experiment, "p50_us", "– latency, p50", "µs"),
        listed(experiment, "p99_us", "– latency, p99", "µs"),
        listed(experiment, "max_us", "– latency, longest", "µs"),
    ]
}

/// A server under load, in the table only.
const fn listed_server(experiment: &'static str, label: &'static str) -> [Figure; 6] {
    let mut figures = server(experiment, label);
    figures[0].is_drawn = false;
    figures
}

/// How late something is: the median, which is drawn, and the tail.
const fn late(experiment: &'static str, label: &'static str) -> [Figure; 3] {
    [
        drawn(experiment, "p50_us", label, "µs"),
        listed(experiment, "p99_us", "– p99", "µs"),
        listed(experiment, "max_us", "– longest", "µs"),
    ]
}

/// Requests beside others that compute: the median and the tail, which is drawn.
const fn stalls(experiment: &'static str, label: &'static str) -> [Figure; 3] {
    [
        listed(experiment, "p50_us", label, "µs"),
        drawn(experiment, "p99_us", "– p99", "µs"),
        listed(experiment, "p999_us", "– p99.9", "µs"),
    ]
}

const TASKS: &[&str] = &["windlass", "tokio", "may", "go"];
const CONNECTIONS: &[&str] = &[
    "windlass",
    "windlass-epoll",
    "tokio",
    "may",
    "go",
    "monoio",
    "compio",
];
const STREAMS: &[&str] = &["windlass", "tokio", "may", "go", "monoio", "compio"];
const FILES: &[&str] = &["windlass", "tokio", "monoio", "compio", "threads"];
const GO: &[&str] = &["windlass", "go"];
const STALLS: &[&str] = &[
    "windlass",
    "tokio",
    "may",
    "go",
    "monoio",
    "compio",
    "threads",
    "epoll-loop",
];

/// The figures of the picture that README.md shows.
pub const HEADLINE: &[(&str, &str)] = &[
    ("spawn_one", "ns"),
    ("chan_unbuffered", "ns"),
    ("echo_64", "cpu_us"),
    ("http_64", "cpu_us"),
    ("latency_busy", "busy_p50_us"),
    ("memory_parked", "bytes"),
];

/// All topics, in the order of the page.
pub const TOPICS: &[Topic] = &[
    Topic {
        name: "tasks",
        contenders: TASKS,
        groups: &[
            &micro("yield", "yield, 1,000 tasks", "ns a yield"),
            &micro("spawn_one", "spawn and join one", "ns a task"),
            &micro("spawn_batch", "spawn and join a batch", "ns a task"),
            &micro("ping_pong", "park and unpark", "ns a hand-over"),
            &micro("skynet", "skynet, a million leaves", "ns a leaf"),
        ],
    },
    Topic {
        name: "channels",
        contenders: TASKS,
        groups: &[
            &micro(
                "chan_unbuffered",
                "channel without buffer, one pair",
                "ns a round trip",
            ),
            &micro(
                "chan_buffered",
                "channel with a buffer of one",
                "ns a round trip",
            ),
            &micro("chan_pairs", "a thousand pairs", "ns a round trip"),
            &micro("chan_mpmc", "4 senders, 4 receivers", "ns a message"),
            &micro("mutex_alone", "mutex, one task", "ns a lock"),
            &micro("mutex_contended", "mutex, 64 tasks", "ns a lock"),
        ],
    },
    Topic {
        name: "timers",
        contenders: TASKS,
        groups: &[&[
            listed("sleepers", "ns", "100,000 sleepers", "ns a sleep"),
            drawn(
                "sleepers",
                "cpu_ns",
                "100,000 sleepers: CPU time",
                "ns a sleep",
            ),
            listed(
                "deadlines",
                "ns",
                "deadlines that do not pass",
                "ns a deadline",
            ),
            drawn(
                "deadlines",
                "cpu_ns",
                "deadlines that do not pass: CPU time",
                "ns a deadline",
            ),
            drawn(
                "sleep_overshoot",
                "p50_us",
                "sleep of 50 µs: late, p50",
                "µs",
            ),
            drawn(
                "sleep_overshoot",
                "p99_us",
                "sleep of 50 µs: late, p99",
                "µs",
            ),
        ]],
    },
    Topic {
        name: "memory",
        contenders: TASKS,
        groups: &[&[
            drawn("memory_parked", "bytes", "parked task: memory", "bytes"),
            drawn(
                "memory_spawned",
                "bytes",
                "task that has not begun",
                "bytes",
            ),
            drawn(
                "close_parked",
                "close_ns",
                "a million tasks end by a close",
                "ns a task",
            ),
            listed(
                "close_parked",
                "bytes",
                "– memory while they wait",
                "bytes a task",
            ),
        ]],
    },
    Topic {
        name: "servers",
        contenders: CONNECTIONS,
        groups: &[
            &server("echo_1", "echo, 1 connection: server CPU"),
            &server("echo_64", "echo, 64 connections: server CPU"),
            &server("echo_1000", "echo, 1,000 connections: server CPU"),
            &server("http_64", "HTTP, 64 connections: server CPU"),
            &server("http_1000", "HTTP, 1,000 connections: server CPU"),
            &listed_server(
                "http_64_nethttp",
                "HTTP, 64 connections, Go's net/http: server CPU",
            ),
        ],
    },
    Topic {
        name: "latency",
        contenders: TASKS,
        groups: &[&[
            drawn("latency_busy", "idle_p50_us", "round trip, idle, p50", "µs"),
            listed("latency_busy", "idle_p99_us", "round trip, idle, p99", "µs"),
            drawn(
                "latency_busy",
                "busy_p50_us",
                "round trip, all workers busy, p50",
                "µs",
            ),
            listed(
                "latency_busy",
                "busy_p99_us",
                "round trip, all workers busy, p99",
                "µs",
            ),
        ]],
    },
    Topic {
        name: "stalls",
        contenders: STALLS,
        groups: &[
            &stalls("stalls_15", "15 % of the CPUs: p50"),
            &stalls("stalls_40", "40 % of the CPUs: p50"),
            &stalls("stalls_64", "64 % of the CPUs: p50"),
            &[
                drawn(
                    "stalls_120",
                    "per_second",
                    "120 % of the CPUs: rate",
                    "requests/s",
                ),
                listed("stalls_120", "p50_us", "– p50", "µs"),
                listed("stalls_120", "p99_us", "– p99", "µs"),
                drawn(
                    "stalls_alone",
                    "waited",
                    "one stall: share that waits for it",
                    "of 1",
                ),
                listed("stalls_alone", "p50_us", "– p50", "µs"),
                listed("stalls_alone", "p99_us", "– p99", "µs"),
            ],
        ],
    },
    Topic {
        name: "gaps",
        contenders: GO,
        groups: &[
            &late(
                "gap_echo_pairs_2",
                "echo beside 2 ping-pong pairs per P, p50",
            ),
            &late(
                "gap_echo_pairs_4",
                "echo beside 4 ping-pong pairs per P, p50",
            ),
            &late("gap_echo_yields_2", "echo beside 2 yield loops per P, p50"),
            &late("gap_echo_yields_4", "echo beside 4 yield loops per P, p50"),
            &[
                listed(
                    "gap_sleeps",
                    "late_50_p50_us",
                    "sleep of 50 µs: late, p50",
                    "µs",
                ),
                listed("gap_sleeps", "late_50_p99_us", "– p99", "µs"),
                drawn(
                    "gap_sleeps",
                    "late_200_p50_us",
                    "sleep of 200 µs: late, p50",
                    "µs",
                ),
                listed("gap_sleeps", "late_200_p99_us", "– p99", "µs"),
                listed(
                    "gap_sleeps",
                    "late_800_p50_us",
                    "sleep of 800 µs: late, p50",
                    "µs",
                ),
                listed("gap_sleeps", "late_800_p99_us", "– p99", "µs"),
                drawn(
                    "gap_sleeps",
                    "late_1500_p50_us",
                    "sleep of 1.5 ms: late, p50",
                    "µs",
                ),
                listed("gap_sleeps", "late_1500_p99_us", "– p99", "µs"),
                listed(
                    "gap_sleeps",
                    "late_2900_p50_us",
                    "sleep of 2.9 ms: late, p50",
                    "µs",
                ),
                listed("gap_sleeps", "late_2900_p99_us", "– p99", "µs"),
            ],
            &late("gap_wake_elsewhere", "wake from a busy P, p50"),
            &micro("gap_locked_peer", "round trip with a locked thread", "ns"),
            &late("gap_sleep_hogs_1", "sleep beside 1 hog per P: late, p50"),
            &late("gap_sleep_hogs_2", "sleep beside 2 hogs per P: late, p50"),
            &late("gap_sleep_hogs_4", "sleep beside 4 hogs per P: late, p50"),
            &late(
                "gap_sleep_forks_1",
                "sleep beside 1 fork-join per P: late, p50",
            ),
            &late(
                "gap_sleep_forks_2",
                "sleep beside 2 fork-joins per P: late, p50",
            ),
        ],
    },
    Topic {
        name: "streams",
        contenders: STREAMS,
        groups: &[
            &micro("stream_16k", "messages of 16 KiB", "ns a message"),
            &micro("stream_512", "messages of 512 bytes", "ns a message"),
        ],
    },
    Topic {
        name: "files",
        contenders: FILES,
        groups: &[&[
            drawn(
                "reads_cached",
                "per_second",
                "reads from the page cache",
                "reads/s",
            ),
            drawn(
                "reads_cached",
                "cpu_ns",
                "reads from the page cache: CPU time",
                "ns a read",
            ),
            drawn(
                "reads_direct",
                "per_second",
                "reads with O_DIRECT",
                "reads/s",
            ),
            drawn(
                "reads_direct",
                "cpu_ns",
                "reads with O_DIRECT: CPU time",
                "ns a read",
            ),
        ]],
    },
];

impl Topic {
    /// The rows.
    pub fn figures(&self) -> impl Iterator<Item = &'static Figure> {
        self.groups.iter().copied().flatten()
    }

    /// The experiments of this topic, each once.
    pub fn experiments(&self) -> Vec<&'static str> {
        let mut names: Vec<_> = self.figures().map(|f| f.experiment).collect();
        names.dedup();
        names
    }
}

/// A figure by its experiment and key.
pub fn figure(experiment: &str, key: &str) -> Option<&'static Figure> {
    let mut figures = TOPICS.iter().flat_map(Topic::figures);
    figures.find(|figure| figure.experiment == experiment && figure.key == key)
}

/// The label of the figure `at` of a topic; one that continues the row before begins with that
/// one's.
pub fn full_label(topic: &Topic, at: usize) -> String {
    let labels: Vec<_> = topic.figures().map(|figure| figure.label).collect();
    let Some(rest) = labels[at].strip_prefix("– ") else {
        return labels[at].to_owned();
    };
    let mut heads = labels[..at].iter().rev();
    let head = heads.find(|label| !label.starts_with("– ")).unwrap_or(&"");
    let head = head.split(": ").next().unwrap_or(head);
    let head = head.strip_suffix(", p50").unwrap_or(head);
    format!("{head}: {rest}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::experiments::EXPERIMENTS;

    #[test]
    fn every_figure_that_compare_measures_has_its_row() {
        let measured: Vec<_> = EXPERIMENTS
            .iter()
            .flat_map(|e| e.figures().iter().map(|(key, _)| (e.name, *key)))
            .collect();
        let all = || TOPICS.iter().flat_map(Topic::figures);
        let listed: Vec<_> = all().map(|f| (f.experiment, f.key)).collect();
        let unique: BTreeSet<_> = listed.iter().collect();
        assert_eq!(unique.len(), listed.len(), "a figure is listed twice");
        assert_eq!(unique, measured.iter().collect());
    }

    #[test]
    fn the_headline_is_of_figures_that_there_are() {
        for (experiment, key) in HEADLINE {
            assert!(figure(experiment, key).is_some(), "{experiment}, {key}");
        }
    }

    #[test]
    fn a_row_that_continues_another_is_named_after_it() {
        let servers = TOPICS.iter().find(|topic| topic.name == "servers").unwrap();
        assert_eq!(full_label(servers, 0), "echo, 1 connection: server CPU");
        assert_eq!(full_label(servers, 4), "echo, 1 connection: latency, p99");
        let gaps = TOPICS.iter().find(|topic| topic.name == "gaps").unwrap();
        assert_eq!(
            full_label(gaps, 1),
            "echo beside 2 ping-pong pairs per P: p99"
        );
    }
}

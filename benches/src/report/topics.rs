//! The tables of the page: which figures they have, in which order, and which of them are drawn.

/// One table of the page, with its chart.
#[derive(Debug)]
pub struct Topic {
    /// Its name in the template, and of its chart.
    pub name: &'static str,
    /// The columns. A contender that did not take part has dashes.
    pub contenders: &'static [&'static str],
    /// The rows.
    pub figures: &'static [Figure],
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
    /// What the figure counts.
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
        figures: &[
            drawn("yield", "ns", "yield, 1,000 tasks", "ns a yield"),
            listed("yield", "cpu_ns", "– CPU time", "ns a yield"),
            drawn("spawn_one", "ns", "spawn and join one", "ns a task"),
            listed("spawn_one", "cpu_ns", "– CPU time", "ns a task"),
            drawn("spawn_batch", "ns", "spawn and join a batch", "ns a task"),
            listed("spawn_batch", "cpu_ns", "– CPU time", "ns a task"),
            drawn("ping_pong", "ns", "park and unpark", "ns a hand-over"),
            listed("ping_pong", "cpu_ns", "– CPU time", "ns a hand-over"),
            drawn("skynet", "ns", "skynet, a million leaves", "ns a leaf"),
            listed("skynet", "cpu_ns", "– CPU time", "ns a leaf"),
        ],
    },
    Topic {
        name: "channels",
        contenders: TASKS,
        figures: &[
            drawn(
                "chan_unbuffered",
                "ns",
                "channel without buffer, one pair",
                "ns a round trip",
            ),
            listed("chan_unbuffered", "cpu_ns", "– CPU time", "ns a round trip"),
            drawn(
                "chan_buffered",
                "ns",
                "channel with a buffer of one",
                "ns a round trip",
            ),
            listed("chan_buffered", "cpu_ns", "– CPU time", "ns a round trip"),
            drawn("chan_pairs", "ns", "a thousand pairs", "ns a round trip"),
            listed("chan_pairs", "cpu_ns", "– CPU time", "ns a round trip"),
            drawn("chan_mpmc", "ns", "4 senders, 4 receivers", "ns a message"),
            listed("chan_mpmc", "cpu_ns", "– CPU time", "ns a message"),
            drawn("mutex_alone", "ns", "mutex, one task", "ns a lock"),
            listed("mutex_alone", "cpu_ns", "– CPU time", "ns a lock"),
            drawn("mutex_contended", "ns", "mutex, 64 tasks", "ns a lock"),
            listed("mutex_contended", "cpu_ns", "– CPU time", "ns a lock"),
        ],
    },
    Topic {
        name: "timers",
        contenders: TASKS,
        figures: &[
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
        ],
    },
    Topic {
        name: "memory",
        contenders: TASKS,
        figures: &[
            drawn("memory_parked", "bytes", "task that waits", "bytes"),
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
        ],
    },
    Topic {
        name: "servers",
        contenders: CONNECTIONS,
        figures: &[
            drawn(
                "echo_1",
                "cpu_us",
                "echo, 1 connection: server CPU",
                "µs a request",
            ),
            listed("echo_1", "per_second", "– rate", "requests/s"),
            listed("echo_1", "p50_us", "– latency, p50", "µs"),
            listed("echo_1", "p99_us", "– latency, p99", "µs"),
            drawn(
                "echo_64",
                "cpu_us",
                "echo, 64 connections: server CPU",
                "µs a request",
            ),
            listed("echo_64", "per_second", "– rate", "requests/s"),
            listed("echo_64", "p50_us", "– latency, p50", "µs"),
            listed("echo_64", "p99_us", "– latency, p99", "µs"),
            drawn(
                "echo_1000",
                "cpu_us",
                "echo, 1,000 connections: server CPU",
                "µs a request",
            ),
            listed("echo_1000", "per_second", "– rate", "requests/s"),
            listed("echo_1000", "p50_us", "– latency, p50", "µs"),
            listed("echo_1000", "p99_us", "– latency, p99", "µs"),
            drawn(
                "http_64",
                "cpu_us",
                "HTTP, 64 connections: server CPU",
                "µs a request",
            ),
            listed("http_64", "per_second", "– rate", "requests/s"),
            listed("http_64", "p50_us", "– latency, p50", "µs"),
            listed("http_64", "p99_us", "– latency, p99", "µs"),
            drawn(
                "http_1000",
                "cpu_us",
                "HTTP, 1,000 connections: server CPU",
                "µs a request",
            ),
            listed("http_1000", "per_second", "– rate", "requests/s"),
            listed("http_1000", "p50_us", "– latency, p50", "µs"),
            listed("http_1000", "p99_us", "– latency, p99", "µs"),
            listed(
                "http_64_nethttp",
                "cpu_us",
                "HTTP, 64 connections, Go's net/http: server CPU",
                "µs a request",
            ),
            listed("http_64_nethttp", "per_second", "– rate", "requests/s"),
            listed("http_64_nethttp", "p50_us", "– latency, p50", "µs"),
            listed("http_64_nethttp", "p99_us", "– latency, p99", "µs"),
        ],
    },
    Topic {
        name: "latency",
        contenders: TASKS,
        figures: &[
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
        ],
    },
    Topic {
        name: "gaps",
        contenders: GO,
        figures: &[
            drawn(
                "gap_echo_pairs_2",
                "p50_us",
                "echo beside 2 ping-pong pairs per P, p50",
                "µs",
            ),
            listed("gap_echo_pairs_2", "p99_us", "– p99", "µs"),
            listed("gap_echo_pairs_2", "max_us", "– longest", "µs"),
            drawn(
                "gap_echo_pairs_4",
                "p50_us",
                "echo beside 4 ping-pong pairs per P, p50",
                "µs",
            ),
            listed("gap_echo_pairs_4", "p99_us", "– p99", "µs"),
            listed("gap_echo_pairs_4", "max_us", "– longest", "µs"),
            drawn(
                "gap_echo_yields_2",
                "p50_us",
                "echo beside 2 yield loops per P, p50",
                "µs",
            ),
            listed("gap_echo_yields_2", "p99_us", "– p99", "µs"),
            listed("gap_echo_yields_2", "max_us", "– longest", "µs"),
            drawn(
                "gap_echo_yields_4",
                "p50_us",
                "echo beside 4 yield loops per P, p50",
                "µs",
            ),
            listed("gap_echo_yields_4", "p99_us", "– p99", "µs"),
            listed("gap_echo_yields_4", "max_us", "– longest", "µs"),
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
            drawn(
                "gap_wake_elsewhere",
                "p50_us",
                "wake from a busy P, p50",
                "µs",
            ),
            listed("gap_wake_elsewhere", "p99_us", "– p99", "µs"),
            listed("gap_wake_elsewhere", "max_us", "– longest", "µs"),
            drawn(
                "gap_locked_peer",
                "ns",
                "round trip with a locked thread",
                "ns",
            ),
            listed("gap_locked_peer", "cpu_ns", "– CPU time", "ns"),
            drawn(
                "gap_sleep_hogs_1",
                "p50_us",
                "sleep beside 1 hog per P: late, p50",
                "µs",
            ),
            listed("gap_sleep_hogs_1", "p99_us", "– p99", "µs"),
            listed("gap_sleep_hogs_1", "max_us", "– longest", "µs"),
            drawn(
                "gap_sleep_hogs_2",
                "p50_us",
                "sleep beside 2 hogs per P: late, p50",
                "µs",
            ),
            listed("gap_sleep_hogs_2", "p99_us", "– p99", "µs"),
            listed("gap_sleep_hogs_2", "max_us", "– longest", "µs"),
            drawn(
                "gap_sleep_hogs_4",
                "p50_us",
                "sleep beside 4 hogs per P: late, p50",
                "µs",
            ),
            listed("gap_sleep_hogs_4", "p99_us", "– p99", "µs"),
            listed("gap_sleep_hogs_4", "max_us", "– longest", "µs"),
        ],
    },
    Topic {
        name: "streams",
        contenders: STREAMS,
        figures: &[
            drawn("stream_16k", "ns", "messages of 16 KiB", "ns a message"),
            listed("stream_16k", "cpu_ns", "– CPU time", "ns a message"),
            drawn("stream_512", "ns", "messages of 512 bytes", "ns a message"),
            listed("stream_512", "cpu_ns", "– CPU time", "ns a message"),
        ],
    },
    Topic {
        name: "files",
        contenders: FILES,
        figures: &[
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
        ],
    },
];

impl Topic {
    /// The experiments of this topic, each once.
    pub fn experiments(&self) -> Vec<&'static str> {
        let mut names: Vec<_> = self.figures.iter().map(|f| f.experiment).collect();
        names.dedup();
        names
    }
}

/// A figure by its experiment and key.
pub fn figure(experiment: &str, key: &str) -> Option<&'static Figure> {
    let mut figures = TOPICS.iter().flat_map(|topic| topic.figures);
    figures.find(|figure| figure.experiment == experiment && figure.key == key)
}

/// The label of a row; one that continues the row before begins with that one's.
pub fn full_label(topic: &Topic, at: usize) -> String {
    let label = topic.figures[at].label;
    let Some(rest) = label.strip_prefix("– ") else {
        return label.to_owned();
    };
    let before = topic.figures[..at].iter().rev();
    let mut heads = before.filter(|figure| !figure.label.starts_with("– "));
    let head = heads.next().map_or("", |figure| figure.label);
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
        let all = || TOPICS.iter().flat_map(|topic| topic.figures);
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
        assert_eq!(full_label(servers, 3), "echo, 1 connection: latency, p99");
        let gaps = TOPICS.iter().find(|topic| topic.name == "gaps").unwrap();
        assert_eq!(
            full_label(gaps, 1),
            "echo beside 2 ping-pong pairs per P: p99"
        );
    }
}

//! `/metrics`: the counters in Prometheus' text format.
//!
//! Counters of a P have the labels `p` and `node`. A P that is no longer in use keeps its samples, so that
//! none ever falls. Histograms are those of all Ps together.

use std::fmt::{self, Write as _};
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use windlass::Handle;
use windlass::metrics::{ByLevel, Histogram, NodeMetrics, PMetrics, RuntimeMetrics};

/// The content type of the format.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Functions that return the program's own metrics, as text of the format.
#[derive(Clone, Default)]
pub(crate) struct Own(Vec<Arc<dyn Fn() -> String + Send + Sync>>);

impl Own {
    pub(crate) fn add(&mut self, text: impl Fn() -> String + Send + Sync + 'static) {
        self.0.push(Arc::new(text));
    }

    fn text(&self) -> String {
        let mut out = String::new();
        for text in &self.0 {
            out.push_str(&text());
            if !out.is_empty() && !out.ends_with('\n') {
                out.push('\n');
            }
        }
        out
    }
}

impl fmt::Debug for Own {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Own").field(&self.0.len()).finish()
    }
}

/// All metrics of a runtime and its process, and the program's own.
pub(crate) fn page(handle: &Handle, own: &Own) -> String {
    let own = own.text();
    let mut out = Exposition::default();
    let m = handle.metrics();
    about_the_runtime(&mut out, handle.name(), &m);
    about_labels(&mut out, &m);
    about_nodes(&mut out, &m);
    about_ps(&mut out, &m);
    histograms(&mut out, &m.total(), m.cpu_accounting);
    // Libraries for metrics may describe the process, too, and no metric may be there twice.
    if !own.contains("# TYPE process_") {
        about_the_process(&mut out);
    }
    out.0 + &own
}

#[derive(Clone, Copy)]
enum Kind {
    Counter,
    Gauge,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        })
    }
}

/// Names of labels with their values.
type Labels<'a> = &'a [(&'a str, &'a str)];

/// The text. Writing to a string cannot fail.
#[derive(Default)]
struct Exposition(String);

impl Exposition {
    fn begin(&mut self, name: &str, kind: impl fmt::Display, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: Labels<'_>, value: impl fmt::Display) {
        self.0.push_str(name);
        for (i, (label, value)) in labels.iter().enumerate() {
            let begin = if i == 0 { '{' } else { ',' };
            let _ = write!(self.0, "{begin}{label}=\"{}\"", Escaped(value));
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.0, "{end} {value}");
    }

    /// A metric of one sample.
    fn one(&mut self, name: &str, kind: Kind, help: &str, value: impl fmt::Display) {
        self.begin(name, kind, help);
        self.sample(name, &[], value);
    }

    /// A histogram. The runtime counts values, and does not add them up: the sum is an estimate.
    fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram, scale: Scale) {
        self.begin(name, "histogram", help);
        let bucket = format!("{name}_bucket");
        let (mut count, mut sum) = (0, 0.0);
        for (range, n) in histogram.buckets() {
            count += n;
            // A value in a bucket counts as the middle of it, in the last bucket as its beginning.
            let (middle, le) = match range.end {
                u64::MAX => (range.start as f64, "+Inf".to_owned()),
                end => ((range.start + end) as f64 / 2.0, scale.bound(end)),
            };
            sum += n as f64 * middle;
            self.sample(&bucket, &[("le", &le)], count);
        }
        if histogram.buckets().next().is_none() {
            self.sample(&bucket, &[("le", "+Inf")], 0);
        }
        self.sample(&format!("{name}_sum"), &[], scale.value(sum));
        self.sample(&format!("{name}_count"), &[], count);
    }
}

/// The unit of a histogram's values.
#[derive(Clone, Copy)]
enum Scale {
    /// Nanoseconds, shown as seconds.
    Time,
    /// Whole numbers.
    Number,
}

impl Scale {
    /// The largest value below `end`.
    fn bound(self, end: u64) -> String {
        match self {
            Scale::Time => self.value(end as f64).to_string(),
            Scale::Number => (end - 1).to_string(),
        }
    }

    fn value(self, value: f64) -> f64 {
        match self {
            Scale::Time => value / 1e9,
            Scale::Number => value,
        }
    }
}

/// The value of a label, as the format wants it.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '\\' => f.write_str("\\\\")?,
                '"' => f.write_str("\\\"")?,
                '\n' => f.write_str("\\n")?,
                // The format would take them as they are, and so would a terminal.
                c if c.is_control() => write!(f, "\\\\x{:02x}", u32::from(c))?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

fn about_the_runtime(out: &mut Exposition, name: &str, m: &RuntimeMetrics) {
    use Kind::{Counter, Gauge};
    let poller = m.poller.to_string();
    let help = "The runtime, with its name and the kernel interface that it waits by.";
    out.begin("windlass_info", Gauge, help);
    out.sample(
        "windlass_info",
        &[("runtime", name), ("poller", &poller)],
        1,
    );
    let help = "Goroutines that have not ended.";
    out.one("windlass_goroutines", Gauge, help, m.live_goroutines);
    out.one("windlass_processors", Gauge, "Ps in use.", m.ps.len());
    let help = "Ps whose threads run on another NUMA node than their memory.";
    out.one("windlass_processors_away", Gauge, help, m.ps_away);
    out.one(
        "windlass_threads",
        Gauge,
        "Threads that run goroutines.",
        m.threads,
    );
    let help = "Threads that run goroutines and sleep: spare ones, and those of idle Ps.";
    out.one("windlass_threads_idle", Gauge, help, m.threads_idle);
    let help = "Goroutines spawned from outside the runtime.";
    out.one(
        "windlass_spawned_outside_total",
        Counter,
        help,
        m.spawned_outside,
    );
    let help = "Ps that were retaken from goroutines that blocked or computed for too long.";
    out.one("windlass_retakes_total", Counter, help, m.retakes);
    let help = "Ps that were handed to another thread.";
    out.one("windlass_handoffs_total", Counter, help, m.handoffs);
    let help = "How often the Ps were placed again because the usable CPUs had changed.";
    out.one("windlass_replans_total", Counter, help, m.replans);
    let help = "How often the kernel refused to place memory on a NUMA node.";
    out.one(
        "windlass_placement_refusals_total",
        Counter,
        help,
        m.placement_refusals,
    );
    let help = "Goroutines that ended by a panic of which nobody was told.";
    let name = "windlass_detached_panics_total";
    out.one(name, Counter, help, m.detached_panics);
    if m.cpu_accounting {
        let help = "CPU time of goroutines that computed on after their P was retaken.";
        let seconds = m.cpu_time_without_p.as_secs_f64();
        out.one(
            "windlass_cpu_without_p_seconds_total",
            Counter,
            help,
            seconds,
        );
    }
}

fn about_labels(out: &mut Exposition, m: &RuntimeMetrics) {
    if m.labels.is_empty() {
        return;
    }
    let name = "windlass_label_spawned_total";
    out.begin(
        name,
        Kind::Counter,
        "Goroutines that were given this label, or have inherited it.",
    );
    for label in &m.labels {
        out.sample(name, &[("label", &label.name)], label.spawned);
    }
    if m.cpu_accounting {
        let name = "windlass_label_cpu_seconds_total";
        out.begin(
            name,
            Kind::Counter,
            "CPU time of goroutines with this label.",
        );
        for label in &m.labels {
            out.sample(
                name,
                &[("label", &label.name)],
                label.cpu_time.as_secs_f64(),
            );
        }
    }
}

/// A metric of a node: name, kind, help, value.
type OfNode = (&'static str, Kind, &'static str, fn(&NodeMetrics) -> f64);

const OF_NODES: &[OfNode] = &[
    (
        "windlass_node_idle_processors",
        Kind::Gauge,
        "Ps of the NUMA node that are idle.",
        |n| n.idle_ps as f64,
    ),
    (
        "windlass_node_searching_threads",
        Kind::Gauge,
        "Threads that search for work.",
        |n| n.spinning as f64,
    ),
    (
        "windlass_node_queue_goroutines",
        Kind::Gauge,
        "Goroutines in the node's queue.",
        |n| n.queue_depth as f64,
    ),
    (
        "windlass_node_stacks",
        Kind::Gauge,
        "Goroutine stacks that exist, in use or free.",
        |n| n.stacks as f64,
    ),
    (
        "windlass_node_stacks_free",
        Kind::Gauge,
        "Goroutine stacks that are free.",
        |n| n.stacks_free as f64,
    ),
    (
        "windlass_node_starvations_total",
        Kind::Counter,
        "How often the node was idle for long while another one had a surplus.",
        |n| n.starvations as f64,
    ),
    (
        "windlass_node_idle_while_needed_seconds_total",
        Kind::Counter,
        "How long the node was idle while another one had a surplus.",
        |n| n.idle_while_needed.as_secs_f64(),
    ),
];

fn about_nodes(out: &mut Exposition, m: &RuntimeMetrics) {
    for (name, kind, help, value) in OF_NODES {
        out.begin(name, kind, help);
        for node in &m.nodes {
            out.sample(name, &[("node", &node.os_id.to_string())], value(node));
        }
    }
}

/// A metric of a P: name, kind, help, value.
type OfP = (&'static str, Kind, &'static str, fn(&PMetrics) -> f64);

fn seconds(time: Duration) -> f64 {
    time.as_secs_f64()
}

const OF_PS: &[OfP] = &[
    (
        "windlass_dispatches_total",
        Kind::Counter,
        "Goroutines switched to.",
        |p| p.dispatches as f64,
    ),
    (
        "windlass_runnext_dispatches_total",
        Kind::Counter,
        "Goroutines switched to that inherited the time slice of the one before.",
        |p| p.runnext_dispatches as f64,
    ),
    (
        "windlass_spawned_total",
        Kind::Counter,
        "Goroutines spawned.",
        |p| p.spawned as f64,
    ),
    (
        "windlass_started_total",
        Kind::Counter,
        "Goroutines that ran for the first time.",
        |p| p.started as f64,
    ),
    (
        "windlass_finished_total",
        Kind::Counter,
        "Goroutines that ended.",
        |p| p.finished as f64,
    ),
    (
        "windlass_parks_total",
        Kind::Counter,
        "How often goroutines parked.",
        |p| p.parks as f64,
    ),
    (
        "windlass_sleeps_total",
        Kind::Counter,
        "How often the thread of the P went to sleep.",
        |p| p.idles as f64,
    ),
    (
        "windlass_idle_seconds_total",
        Kind::Counter,
        "How long the thread of the P slept.",
        |p| seconds(p.idle_time),
    ),
    (
        "windlass_wakes_total",
        Kind::Counter,
        "How often this P woke another one.",
        |p| p.wakes as f64,
    ),
    (
        "windlass_wakes_received_total",
        Kind::Counter,
        "How often another thread woke the P.",
        |p| p.wakes_received as f64,
    ),
    (
        "windlass_wakes_useless_total",
        Kind::Counter,
        "How often the P was woken and found nothing to run.",
        |p| p.wakes_useless as f64,
    ),
    (
        "windlass_overflows_total",
        Kind::Counter,
        "How often the local queue was full, so that a part of it went to the node's queue.",
        |p| p.overflows as f64,
    ),
    (
        "windlass_steal_failures_total",
        Kind::Counter,
        "Searches of all other Ps that found nothing.",
        |p| p.steal_failures as f64,
    ),
    (
        "windlass_steal_denials_total",
        Kind::Counter,
        "Steals that another node denied.",
        |p| p.gate_denials.total() as f64,
    ),
    (
        "windlass_blocking_sections_total",
        Kind::Counter,
        "Blocking sections that goroutines began.",
        |p| p.blocking_sections as f64,
    ),
    (
        "windlass_retakes_blocking_total",
        Kind::Counter,
        "How often the P was retaken from a blocking section.",
        |p| p.retakes_blocking as f64,
    ),
    (
        "windlass_retakes_hogs_total",
        Kind::Counter,
        "How often the P was retaken from a goroutine that computed.",
        |p| p.retakes_hogs as f64,
    ),
    (
        "windlass_retakes_due_total",
        Kind::Counter,
        "Of those, how often it was early, because a timer was due or a completion waited.",
        |p| p.retakes_due as f64,
    ),
    (
        "windlass_preemptions_total",
        Kind::Counter,
        "Goroutines that gave way because others waited for long.",
        |p| p.preemptions as f64,
    ),
    (
        "windlass_io_timeouts_total",
        Kind::Counter,
        "Operations that were cancelled, as by a deadline.",
        |p| p.io_timeouts as f64,
    ),
    (
        "windlass_ring_enters_total",
        Kind::Counter,
        "System calls for the ring.",
        |p| p.ring_enters as f64,
    ),
    (
        "windlass_ring_submitted_total",
        Kind::Counter,
        "Operations submitted.",
        |p| p.ring_submitted as f64,
    ),
    (
        "windlass_ring_completed_total",
        Kind::Counter,
        "Operations completed.",
        |p| p.ring_completed as f64,
    ),
    (
        "windlass_queue_goroutines",
        Kind::Gauge,
        "Goroutines in the local queue.",
        |p| p.queue_depth as f64,
    ),
    (
        "windlass_ring_operations",
        Kind::Gauge,
        "Operations in flight.",
        |p| p.ring_inflight as f64,
    ),
    (
        "windlass_ring_armed_operations",
        Kind::Gauge,
        "Operations in flight that stay armed without a waiting goroutine.",
        |p| p.ring_armed as f64,
    ),
    (
        "windlass_timers",
        Kind::Gauge,
        "Timers that are armed.",
        |p| p.timers as f64,
    ),
    (
        "windlass_stacks_cached",
        Kind::Gauge,
        "Free stacks in the cache of the P.",
        |p| p.stacks_cached as f64,
    ),
];

const CPU: OfP = (
    "windlass_cpu_seconds_total",
    Kind::Counter,
    "CPU time of goroutines.",
    |p| seconds(p.cpu_time),
);

fn about_ps(out: &mut Exposition, m: &RuntimeMetrics) {
    let in_use = m.places.iter().zip(&m.ps);
    let retired = m.retired.iter().map(|(place, p)| (place, p));
    let mut rows: Vec<_> = in_use.chain(retired).collect();
    rows.sort_by_key(|(place, _)| place.index);
    let rows: Vec<(String, String, &PMetrics)> = rows
        .into_iter()
        .map(|(place, p)| (place.index.to_string(), place.node.to_string(), p))
        .collect();
    let cpu = m.cpu_accounting.then_some(&CPU);
    for (name, kind, help, value) in OF_PS.iter().chain(cpu) {
        out.begin(name, kind, help);
        for (p, node, metrics) in &rows {
            out.sample(name, &[("p", p), ("node", node)], value(metrics));
        }
    }
    let by_level = |of: fn(&PMetrics) -> &ByLevel, name: &str, help: &str, out: &mut Exposition| {
        out.begin(name, Kind::Counter, help);
        for (p, node, metrics) in &rows {
            let by = of(metrics);
            let levels = [
                ("smt", by.smt),
                ("l2", by.l2),
                ("l3", by.l3),
                ("node", by.node),
                ("remote", by.remote),
            ];
            for (level, n) in levels {
                out.sample(name, &[("p", p), ("node", node), ("from", level)], n);
            }
        }
    };
    let help = "Successful steals, by the distance of the victim.";
    by_level(|p| &p.steals, "windlass_steals_total", help, out);
    let help = "Goroutines stolen, by the distance of the victim.";
    by_level(|p| &p.stolen, "windlass_stolen_total", help, out);
}

fn histograms(out: &mut Exposition, total: &PMetrics, cpu_accounting: bool) {
    let name = "windlass_queue_delay_seconds";
    let help = "How long goroutines were runnable before they ran (a sample; sums are estimates).";
    out.histogram(name, help, &total.queue_delays, Scale::Time);
    let name = "windlass_poll_gap_seconds";
    let help = "Time between two looks at a ring with operations in flight (a sample).";
    out.histogram(name, help, &total.poll_gaps, Scale::Time);
    if cpu_accounting {
        let name = "windlass_run_slice_seconds";
        let help = "How long goroutines ran before they parked, yielded or ended.";
        out.histogram(name, help, &total.run_slices, Scale::Time);
    }
    let name = "windlass_ring_batch_operations";
    let help = "Completions for each reading of the ring.";
    out.histogram(name, help, &total.ring_batch_sizes, Scale::Number);
    let name = "windlass_ring_submit_operations";
    let help = "Operations for each submission.";
    out.histogram(name, help, &total.ring_submit_sizes, Scale::Number);
}

/// The usual metrics of a process; those that `/proc` does not show are left out.
fn about_the_process(out: &mut Exposition) {
    if let Some(seconds) = cpu_seconds() {
        let help = "CPU time of the process, in user and kernel mode.";
        out.one("process_cpu_seconds_total", Kind::Counter, help, seconds);
    }
    if let Some(bytes) = status_value("VmRSS:").map(|kib| kib * 1024) {
        let help = "Resident memory of the process.";
        out.one("process_resident_memory_bytes", Kind::Gauge, help, bytes);
    }
    if let Some(bytes) = status_value("VmSize:").map(|kib| kib * 1024) {
        let help = "Virtual memory of the process.";
        out.one("process_virtual_memory_bytes", Kind::Gauge, help, bytes);
    }
    if let Some(n) = status_value("Threads:") {
        out.one("process_threads", Kind::Gauge, "Threads of the process.", n);
    }
    if let Ok(fds) = fs::read_dir("/proc/self/fd") {
        let help = "Open file descriptors of the process.";
        // One is that of the directory.
        out.one(
            "process_open_fds",
            Kind::Gauge,
            help,
            fds.count().saturating_sub(1),
        );
    }
    if let Some(n) = max_fds() {
        let help = "How many file descriptors the process may have.";
        out.one("process_max_fds", Kind::Gauge, help, n);
    }
}

/// The soft limit for descriptors; `None` also where there is none.
fn max_fds() -> Option<u64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// A number of `/proc/self/status`.
pub(crate) fn status_value(name: &str) -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// User and system time of the process.
fn cpu_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The name before may have spaces and parentheses.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut times = rest.split_whitespace().skip(11);
    let mut ticks = || times.next()?.parse::<u64>().ok();
    // The kernel shows user programs hundredths of a second, on all machines.
    Some((ticks()? + ticks()?) as f64 / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        let mut out = Exposition::default();
        out.sample("a", &[("b", "c\"d\\e\nf"), ("g", "")], 1);
        assert_eq!(out.0, "a{b=\"c\\\"d\\\\e\\nf\",g=\"\"} 1\n");
    }

    #[test]
    fn a_histogram_without_buckets_is_whole() {
        let mut out = Exposition::default();
        out.histogram("h", "Help.", &Histogram::default(), Scale::Time);
        let lines: Vec<_> = out.0.lines().skip(2).collect();
        assert_eq!(lines, ["h_bucket{le=\"+Inf\"} 0", "h_sum 0", "h_count 0"]);
    }

    #[test]
    fn the_process_is_described() {
        assert!(cpu_seconds().is_some());
        assert!(max_fds().unwrap() > 0);
        assert!(status_value("VmRSS:").unwrap() > 0);
        assert_eq!(status_value("Nothing:"), None);
    }
}

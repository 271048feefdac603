//! Rates of a running program, from two readings.

use std::fmt::Write as _;

use super::Paint;
use crate::live::{Live, LiveNode, LiveP, LiveRuntime};

/// A share of goroutines taken from other nodes above this is highlighted.
const REMOTE_SHARE: f64 = 0.05;

/// A screen: what the runtimes of `now` did since `before`.
#[must_use]
pub fn live(before: &Live, now: &Live, paint: Paint) -> String {
    let mut text = String::new();
    let seconds = now.at_ns.saturating_sub(before.at_ns).max(1) as f64 / 1e9;
    for (i, runtime) in now.runtimes.iter().enumerate() {
        // A runtime that has come or gone meanwhile has moved the others.
        let known = before.runtimes.get(i).filter(|b| b.name == runtime.name);
        let nothing = LiveRuntime::default();
        let screen = Screen {
            before: known.unwrap_or(&nothing),
            now: runtime,
            seconds,
            paint,
        };
        if i > 0 {
            text.push('\n');
        }
        screen.head(&mut text, now.pid);
        screen.nodes(&mut text);
        screen.ps(&mut text);
    }
    if now.runtimes.is_empty() {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "process {}: no runtime any more", now.pid);
    }
    text
}

struct Screen<'a> {
    before: &'a LiveRuntime,
    now: &'a LiveRuntime,
    seconds: f64,
    paint: Paint,
}

/// Events of a P, or of several, in a second.
#[derive(Default)]
struct Rates {
    dispatches: f64,
    local: f64,
    remote: f64,
    completed: f64,
    retaken: f64,
    busy: f64,
    n: usize,
}

impl Rates {
    fn add(&mut self, other: &Rates) {
        self.dispatches += other.dispatches;
        self.local += other.local;
        self.remote += other.remote;
        self.completed += other.completed;
        self.retaken += other.retaken;
        self.busy += other.busy;
        self.n += other.n;
    }

    fn remote_share(&self) -> f64 {
        let all = self.local + self.remote;
        if all > 0.0 { self.remote / all } else { 0.0 }
    }

    /// The columns that nodes and Ps have in common.
    fn columns(&self, paint: Paint) -> String {
        let share = format!("{:>6.1}%", self.remote_share() * 100.0);
        let share = match self.remote_share() {
            s if s > REMOTE_SHARE => paint.fair(share),
            _ => share,
        };
        let busy = self.busy / self.n.max(1) as f64 * 100.0;
        format!(
            "{busy:>5.0}% {:>11.0} {:>9.0} {:>9.0} {share} {:>9.0} {:>7.1}",
            self.dispatches, self.local, self.remote, self.completed, self.retaken
        )
    }
}

const COLUMNS: &str = " busy  dispatch/s   local/s  remote/s  remote    ring/s retake/s";

impl Screen<'_> {
    fn head(&self, text: &mut String, pid: u32) {
        let n = self.now;
        // The process names them as it likes.
        let plain = |text: &str| text.replace(char::is_control, "\u{fffd}");
        let title = format!("process {pid}, runtime {}", plain(&n.name));
        let _ = writeln!(
            text,
            "{}: {} Ps over {}, {} goroutines, {} threads ({} asleep)",
            self.paint.title(title),
            n.ps.len(),
            plain(&n.poller),
            n.goroutines,
            n.threads,
            n.threads_idle
        );
    }

    fn nodes(&self, text: &mut String) {
        let head = format!("node   Ps idle  queue  local queues {COLUMNS}");
        let _ = writeln!(text, "{}", self.paint.dim(head));
        for node in &self.now.nodes {
            self.node(text, node);
        }
    }

    fn node(&self, text: &mut String, node: &LiveNode) {
        let own = || self.now.ps.iter().filter(|p| p.node == node.os_id);
        let mut rates = Rates::default();
        own().for_each(|p| rates.add(&self.rates(p)));
        let queued: u64 = own().map(|p| p.queue).sum();
        let _ = writeln!(
            text,
            "{:>4} {:>4} {:>4} {:>6}        {queued:>6} {}",
            node.os_id,
            rates.n,
            node.idle_ps,
            node.queue,
            rates.columns(self.paint)
        );
    }

    fn ps(&self, text: &mut String) {
        let head = format!("   P  CPU node  queue inflight timers {COLUMNS}");
        let _ = writeln!(text, "{}", self.paint.dim(head));
        for p in &self.now.ps {
            let _ = writeln!(
                text,
                "{:>4} {:>4} {:>4} {:>6} {:>8} {:>6} {}",
                p.p,
                p.cpu,
                p.node,
                p.queue,
                p.inflight,
                p.timers,
                self.rates(p).columns(self.paint)
            );
        }
    }

    fn rates(&self, p: &LiveP) -> Rates {
        let nothing = LiveP::default();
        let before = self.before.ps.iter().find(|b| b.p == p.p);
        let before = before.unwrap_or(&nothing);
        let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / self.seconds;
        let idle = rate(p.idle_ns, before.idle_ns) / 1e9;
        Rates {
            dispatches: rate(p.dispatches, before.dispatches),
            local: rate(p.stolen_local, before.stolen_local),
            remote: rate(p.stolen_remote, before.stolen_remote),
            completed: rate(p.completed, before.completed),
            retaken: rate(p.retaken, before.retaken),
            busy: (1.0 - idle).clamp(0.0, 1.0),
            n: 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two nodes of a P each; a second passes, in which P 1 takes from P 0.
    fn looks() -> (Live, Live) {
        let p = |p: usize, node| LiveP {
            p,
            cpu: p * 4,
            node,
            ..LiveP::default()
        };
        let node = |os_id| LiveNode {
            os_id,
            ..LiveNode::default()
        };
        let before = Live {
            pid: 42,
            at_ns: 5_000_000_000,
            runtimes: vec![LiveRuntime {
                name: "server".to_owned(),
                poller: "io_uring".to_owned(),
                goroutines: 3,
                threads: 4,
                threads_idle: 1,
                nodes: vec![node(0), node(1)],
                ps: vec![p(0, 0), p(1, 1)],
            }],
            ..Live::default()
        };
        let mut now = before.clone();
        now.at_ns += 2_000_000_000;
        let [first, second] = &mut now.runtimes[0].ps[..] else {
            unreachable!("there are two");
        };
        (first.dispatches, first.queue, first.idle_ns) = (2_000, 7, 500_000_000);
        (second.stolen_local, second.stolen_remote) = (60, 40);
        (before, now)
    }

    #[test]
    fn rates_are_by_the_second_and_nodes_are_sums() {
        let (before, now) = looks();
        let text = live(&before, &now, Paint::Plain);
        let lines: Vec<Vec<&str>> = text
            .lines()
            .map(|l| l.split_whitespace().collect())
            .collect();
        assert!(text.starts_with("process 42, runtime server: 2 Ps over io_uring, 3 goroutines"));
        assert_eq!(
            lines[2],
            [
                "0", "1", "0", "0", "7", "75%", "1000", "0", "0", "0.0%", "0", "0.0"
            ]
        );
        assert_eq!(lines[3][7..10], ["30", "20", "40.0%"]);
        assert_eq!(lines[5][..6], ["0", "0", "0", "7", "0", "0"]);
        assert_eq!(lines[6][..3], ["1", "4", "1"]);
    }

    #[test]
    fn names_do_not_command_the_terminal() {
        let (before, mut now) = looks();
        now.runtimes[0].name = "a\x1b]0;title\x07\u{9b}2J".to_owned();
        now.runtimes[0].poller = "\x1b[31m".to_owned();
        let text = live(&before, &now, Paint::Plain);
        assert!(
            !text.chars().any(|c| c.is_control() && c != '\n'),
            "{text:?}"
        );
        let json = now.to_json();
        assert!(!json.trim_end().chars().any(char::is_control), "{json:?}");
    }

    #[test]
    fn a_runtime_that_is_new_is_shown_since_its_beginning() {
        let (_, now) = looks();
        let nobody = Live {
            at_ns: now.at_ns - 1_000_000_000,
            ..Live::default()
        };
        let text = live(&nobody, &now, Paint::Plain);
        assert!(text.contains("2000"), "{text}");
        assert!(live(&now, &nobody, Paint::Plain).contains("no runtime any more"));
    }
}

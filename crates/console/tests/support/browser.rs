//! Headless Chromium, where it is installed, told what to do through its pipe for debuggers.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// A browser with one page.
pub(crate) struct Browser {
    process: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    session: Option<String>,
    next: u64,
    /// The errors that the page has reported.
    pub(crate) complaints: Vec<String>,
    profile: PathBuf,
}

impl Browser {
    /// `None` where there is no Chromium.
    pub(crate) fn start() -> Option<Browser> {
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
                 --disable-dev-shm-usage --hide-scrollbars \
                 --host-resolver-rules='MAP * ~NOTFOUND, EXCLUDE 127.0.0.1' --user-data-dir=\"$1\" \
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

    /// The value of a script, or that of the promise which it returns.
    pub(crate) fn evaluate(&mut self, script: &str) -> Value {
        let params = json!({ "expression": script, "returnByValue": true, "awaitPromise": true });
        self.ask("Runtime.evaluate", params)["result"]["value"].clone()
    }

    /// Waits until a script says `true`.
    pub(crate) fn wait_for(&mut self, script: &str) {
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

    pub(crate) fn open(&mut self, url: &str) {
        self.ask("Page.navigate", json!({ "url": url }));
    }

    pub(crate) fn look(&mut self, width: u32, height: u32, scheme: &str) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600 });
        self.ask("Emulation.setDeviceMetricsOverride", size);
        let scheme = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.ask("Emulation.setEmulatedMedia", scheme);
    }

    pub(crate) fn picture(&mut self) -> Vec<u8> {
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

//! The page in a browser.
//!
//! `WINDLASS_CONSOLE_PICTURES=DIR` also writes the pictures of docs/OBSERVABILITY.md there.

mod support;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use support::browser::Browser;
use support::{build, hang_guard, tcp};
use windlass::topology::Topology;
use windlass::{Builder, blocking, channel, sleep, spawn, task};
use windlass_console::Console;

const TOKEN: &str = "token/with+signs&more";

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
            // The pages that it links to are there.
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
            // Where another process serves since, as after an upgrade, the page begins anew.
            let lengths = browser.evaluate(
                "[{ pid: 1, at: 0 }, { pid: 1, at: 1 }, { pid: 1, at: .5 }]
                     .map(other => (update({ ...past[0], ...other }), past.length))",
            );
            assert_eq!(lengths, json!([1, 2, 1]));
        });
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(browser.complaints.is_empty(), "{:?}", browser.complaints);
    server.shutdown();
    browser.wait_for("document.querySelector('#link.lost') !== null");
}

//! Lines that name their goroutine, whichever thread it runs on.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use log::{Level, Log, Record};
use windlass::task;

use crate::logging;
use crate::util::run;

/// The text of several writers.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Written {
    fn lines(&self) -> Vec<String> {
        let bytes = self.0.lock().unwrap().clone();
        let text = String::from_utf8(bytes).unwrap();
        text.lines().map(str::to_owned).collect()
    }
}

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Runs `f` on goroutines with names, which wait in between, and on one without. Returns their numbers.
fn on_goroutines(f: impl Fn(&str) + Clone + Send + 'static) -> Vec<u64> {
    run(2, move || {
        let tasks: Vec<_> = (0..20)
            .map(|n| {
                let f = f.clone();
                let work = move || {
                    f("begins");
                    windlass::sleep(Duration::from_millis(n % 3));
                    f("ends");
                };
                match n {
                    0 => windlass::spawn(work),
                    _ => task::Builder::new()
                        .name(format!("worker {n}"))
                        .spawn(work)
                        .unwrap(),
                }
            })
            .collect();
        let ids = tasks.iter().map(|task| task.task().id()).collect();
        tasks.into_iter().for_each(|task| task.join().unwrap());
        ids
    })
}

/// Each goroutine has its two lines, in their order.
#[track_caller]
fn has_lines(written: &Written, ids: &[u64], line: impl Fn(&str, &str) -> String) {
    let lines = written.lines();
    assert_eq!(lines.len(), 2 * ids.len(), "{lines:?}");
    for (n, id) in ids.iter().enumerate() {
        let caller = match n {
            0 => format!("[G{id}]"),
            n => format!("[G{id} worker {n}]"),
        };
        let of_it: Vec<_> = lines.iter().filter(|line| line.contains(&caller)).collect();
        assert_eq!(of_it, [&line(&caller, "begins"), &line(&caller, "ends")]);
    }
}

#[test]
fn lines_of_log_name_their_goroutine() {
    let written = Written::default();
    let lines = Arc::new(logging::Lines::new(written.clone()));
    let log = Arc::clone(&lines);
    let ids = on_goroutines(move |what| {
        log.log(
            &Record::builder()
                .level(Level::Info)
                .args(format_args!("{what}"))
                .build(),
        );
    });
    has_lines(&written, &ids, |caller, what| {
        format!("INFO {caller} {what}")
    });
    // On a plain thread, with its name.
    let thread = std::thread::Builder::new().name("plain".to_owned());
    let log = move || {
        lines.log(
            &Record::builder()
                .level(Level::Warn)
                .args(format_args!("!"))
                .build(),
        )
    };
    thread.spawn(log).unwrap().join().unwrap();
    assert_eq!(written.lines().last().unwrap(), "WARN [thread plain] !");
}

#[test]
fn lines_of_tracing_name_their_goroutine_and_its_span() {
    let written = Written::default();
    let writer = written.clone();
    let subscriber = tracing::Dispatch::new(logging::subscriber(move || writer.clone()));
    let ids = on_goroutines(move |what| {
        // Nothing waits inside: the default is the thread's.
        tracing::dispatcher::with_default(&subscriber, || {
            let span = tracing::info_span!("request", id = 7);
            span.in_scope(|| tracing::info!("{what}"));
        });
    });
    has_lines(&written, &ids, |caller, what| {
        format!("{caller}  INFO request{{id=7}}: {what}")
    });
}

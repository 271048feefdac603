//! Calls of libc do on a goroutine what they do on a thread: the same result, error and data.
#![allow(unsafe_code)]

mod cases;
mod files;
mod handlers;
mod tools;

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Runs `f` as the first goroutine of a runtime with one P. Ends the process if that takes longer than
/// a minute: nothing else would end a thread that waits in the kernel.
fn run<T: Send>(f: impl FnOnce(&windlass::Runtime) -> T + Send) -> T {
    let (done, ended) = mpsc::channel::<()>();
    let test = thread::current().name().unwrap_or("?").to_owned();
    let watch = thread::spawn(move || {
        if ended.recv_timeout(Duration::from_secs(60)) == Err(mpsc::RecvTimeoutError::Timeout) {
            eprintln!("{test} took a minute");
            std::process::abort();
        }
    });
    // SAFETY: the goroutines of these tests keep nothing of a thread across a call that waits.
    let rt = unsafe {
        windlass_hook::install();
        windlass::Builder::new().processors(1).build().unwrap()
    };
    let result = rt.run(|| f(&rt));
    drop(done);
    watch.join().unwrap();
    result
}

/// A case that never ends ends the process, with its name.
struct Watched(#[expect(dead_code)] mpsc::Sender<()>);

impl Watched {
    fn begin(name: &'static str) -> Watched {
        let (ends, ended) = mpsc::channel::<()>();
        thread::spawn(move || {
            let time = Duration::from_secs(20);
            if ended.recv_timeout(time) == Err(mpsc::RecvTimeoutError::Timeout) {
                eprintln!("{name}: it does not end");
                std::process::abort();
            }
        });
        Watched(ends)
    }
}

/// Differences that docs/decisions/hook.md lists. The second word is how it puts them.
const DIFFERENT: &[(&str, &str)] = &[
    ("read: a pipe, a signal", "does not fail with `EINTR`"),
    ("poll: a signal", "does not fail with `EINTR`"),
    ("nanosleep: a signal", "does not fail with `EINTR`"),
];

#[test]
fn calls_do_on_a_goroutine_as_on_a_thread() {
    let doc = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/decisions/hook.md");
    let doc = std::fs::read_to_string(doc).unwrap();
    let cases = cases::all();
    assert!(cases.len() >= 120, "{}", cases.len());
    for (name, why) in DIFFERENT {
        assert!(cases.iter().any(|(case, _)| case == name), "{name}");
        assert!(doc.contains(why), "{why}");
    }
    let threads = cases.iter().map(|&(name, f)| {
        let watched = Watched::begin(name);
        let did = thread::spawn(f).join().unwrap();
        drop(watched);
        did
    });
    let threads: Vec<_> = threads.collect();
    let goroutines = run(|_| {
        let run_one = |&(name, f): &cases::Case| {
            let _watched = Watched::begin(name);
            windlass::spawn(f)
                .join()
                .unwrap_or_else(|_| panic!("{name}"))
        };
        cases.iter().map(run_one).collect::<Vec<_>>()
    });
    let mut different = Vec::new();
    for (((name, _), thread), goroutine) in cases.iter().zip(&threads).zip(&goroutines) {
        let may_differ = DIFFERENT.iter().any(|(case, _)| case == name);
        if (thread != goroutine) != may_differ {
            different.push(format!(
                "{name}\n  thread:    {thread}\n  goroutine: {goroutine}"
            ));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}

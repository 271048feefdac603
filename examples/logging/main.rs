//! Log lines that name their goroutine: with the crate log, or with tracing and its spans.
//!
//! ```text
//! cargo run --features logging --example logging -- log
//! cargo run --features logging --example logging -- tracing
//! ```
//!
//! In execution traces the spans of the second are regions. examples/logging/mod.rs has all that a program needs for either.

#[path = "mod.rs"]
mod logging;

use std::io;
use std::time::Duration;

#[allow(unsafe_code, reason = "every program has to promise this")]
#[windlass::main(unsafe(no_thread_local_across_waits))]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    match std::env::args().nth(1).as_deref() {
        Some("log") => {
            log::set_boxed_logger(Box::new(logging::Lines::new(io::stderr())))?;
            log::set_max_level(log::LevelFilter::Info);
        }
        Some("tracing") => {
            tracing::subscriber::set_global_default(logging::subscriber(io::stderr))?;
        }
        _ => return Err("usage: logging log|tracing".into()),
    }
    let workers: Vec<_> = (1..=3)
        .map(|n| {
            let worker = windlass::task::Builder::new().name(format!("worker {n}"));
            worker.spawn(move || work(n))
        })
        .collect::<Result<_, _>>()?;
    for worker in workers {
        worker.join().expect("a worker does not panic");
    }
    Ok(())
}

fn work(n: u64) {
    let span = tracing::info_span!("work", n);
    let _entered = span.enter();
    log::info!("begins");
    tracing::info!("begins");
    windlass::sleep(Duration::from_millis(10 * n));
    log::info!("ends");
    tracing::info!("ends");
}

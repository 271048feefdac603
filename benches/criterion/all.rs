//! `cargo bench`: the benches of windlass, tokio and may. `windlass_benches::suite` says how they are
//! run; the other files here are the benches.

mod channel;
mod echo;
mod mutex;
mod ping_pong;
mod skynet;
mod sleepers;
mod spawn_join;
mod stream;
mod yields;

use std::io;
use std::process::ExitCode;

use criterion::Criterion;
use windlass_benches::runtimes::Runtimes;
use windlass_benches::suite::{self, Args, Times};
use windlass_benches::{arguments, numa, scale, summary};

fn main() -> ExitCode {
    if scale::is_asked_for_a_point() {
        return ExitCode::SUCCESS;
    }
    let args = arguments::parse::<Args>();
    let done = match &args.one {
        Some(name) => one(name, args.full),
        None => suite::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    }
}

/// Runs one bench in this process.
fn one(name: &str, full: bool) -> io::Result<()> {
    let bench = match name {
        "yield" => yields::bench,
        "spawn_join" => spawn_join::bench,
        "ping_pong" => ping_pong::bench,
        "mutex" => mutex::bench,
        "channel" => channel::bench,
        "echo" => echo::bench,
        "stream" => stream::bench,
        "sleepers" => sleepers::bench,
        "skynet" => skynet::bench,
        "numa" => {
            numa::write(&suite::own_json(name));
            return Ok(());
        }
        "scale" => return scale::write(&suite::own_json(name)),
        _ => return Err(io::Error::other(format!("there is no bench {name}"))),
    };
    bench(&mut criterion(full), &Runtimes::start());
    Ok(())
}

/// The crate's resamples take as long as its measurements, so they are fewer by default.
fn criterion(full: bool) -> Criterion {
    let times = Times::of(full);
    Criterion::default()
        .output_directory(&summary::directory())
        .warm_up_time(times.warm_up)
        .measurement_time(times.measurement)
        .nresamples(if full { 100_000 } else { 10_000 })
}

//! Skynet: a tree of goroutines with fan-out ten. Each leaf returns its number, each node the sum
//! of its children; a million leaves make 1,111,111 goroutines.
//!
//! ```text
//! cargo run --release --example skynet -- [--leaves N] [--rounds N] [--procs N]
//! ```
//!
//! It measures the cost of spawning, joining and stealing when goroutines do nothing else. The
//! number of stacks in the last line is small because a goroutine gets its stack only when it first
//! runs.
#![expect(clippy::print_stdout, reason = "prints what it has measured")]

#[path = "../support/args.rs"]
mod args;

use std::io;
use std::time::Instant;

const USAGE: &str = "usage: skynet [--leaves N] [--rounds N] [--procs N]";
const FAN_OUT: u64 = 10;

/// The sum of `leaves` consecutive numbers from `first` on.
fn skynet(first: u64, leaves: u64) -> u64 {
    if leaves == 1 {
        return first;
    }
    let part = leaves / FAN_OUT;
    let children: [_; FAN_OUT as usize] = std::array::from_fn(|i| {
        let first = first + i as u64 * part;
        windlass::spawn(move || skynet(first, part))
    });
    children
        .into_iter()
        .map(|child| child.join().expect("a child should not panic"))
        .sum()
}

fn main() -> io::Result<()> {
    let mut args = args::Args::of_process(USAGE);
    let leaves: u64 = args.value("--leaves", 1_000_000);
    let rounds: u32 = args.value("--rounds", 5);
    let procs = args.optional("--procs");
    args.finish();
    let Some(depth) = (0..=10).find(|&depth| FAN_OUT.pow(depth) == leaves) else {
        eprintln!("--leaves: choose a power of ten, up to 10,000,000,000");
        std::process::exit(2);
    };
    let n_goroutines: u64 = (0..=depth).map(|level| FAN_OUT.pow(level)).sum();

    let mut builder = windlass::Builder::new().name("skynet");
    if let Some(n) = procs {
        builder = builder.processors(n);
    }
    #[expect(
        unsafe_code,
        reason = "the promise that windlass asks of every program"
    )]
    // SAFETY: no goroutine of this program keeps a thread-local borrow across a call that parks.
    let runtime = unsafe { builder.build()? };
    println!("{leaves} leaves on {} Ps", runtime.processors());
    runtime.run(|| {
        for _ in 0..rounds {
            let begin = Instant::now();
            let sum = skynet(0, leaves);
            let time = begin.elapsed();
            assert_eq!(
                sum,
                leaves * (leaves - 1) / 2,
                "every leaf should count once"
            );
            let each_ns = time.as_nanos() / u128::from(n_goroutines);
            println!("sum {sum} in {time:.1?}, {each_ns} ns a goroutine");
        }
    });

    let metrics = runtime.metrics();
    let total = metrics.total();
    println!(
        "{} spawned, {} parks, {} steals of {} goroutines, {} stacks",
        total.spawned,
        total.parks,
        total.steals.total(),
        total.stolen.total(),
        metrics.stacks
    );
    Ok(())
}

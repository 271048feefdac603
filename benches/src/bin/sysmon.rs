//! What does windlass's monitor thread cost? CPU time of the thread, in percent of a CPU, and how often it
//! sleeps, beside 4 goroutines for each P that
//!
//! - `timers`: yield 50 times and sleep 1 ms, in turn
//! - `sections`: half of them read a small file in `blocking`, the others yield
//! - `hogs`: one of four computes for 1 ms, the others sleep for 1 ms
//!
//! More Ps than CPUs show how the cost grows with the Ps, but their threads also wait for a CPU, which real ones
//! would not. Give one `--workers` after the other, on a quiet machine.
//!
//! `sysmon timers --workers 64`
#![expect(clippy::print_stdout, reason = "the result")]

use std::fs;
use std::hint::spin_loop;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use windlass::{blocking, sleep, spawn, yield_now};
use windlass_benches::runtimes;

const SHORT: Duration = Duration::from_millis(1);

#[derive(Parser)]
struct Args {
    shape: Shape,
    #[arg(long, default_value_t = runtimes::workers())]
    workers: usize,
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
}

/// The work of the goroutines.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Shape {
    Timers,
    Sections,
    Hogs,
}

fn main() {
    let args = Args::parse();
    let file = std::env::temp_dir().join(format!("windlass-sysmon-{}", std::process::id()));
    fs::write(&file, [0; 4096]).expect("the folder of temporary files can be written");
    runtimes::windlass(args.workers).run(|| {
        let ends = Arc::new(AtomicBool::new(false));
        let all: Vec<_> = (0..4 * args.workers)
            .map(|i| {
                let (ends, file) = (Arc::clone(&ends), file.clone());
                spawn(move || {
                    while !ends.load(Ordering::Relaxed) {
                        turn(args.shape, i, &file);
                    }
                })
            })
            .collect();
        sleep(Duration::from_millis(300));
        let (before, began) = (cost_of_sysmon(), Instant::now());
        sleep(Duration::from_secs_f64(args.seconds));
        let (after, seconds) = (cost_of_sysmon(), began.elapsed().as_secs_f64());
        println!(
            "percent_of_a_cpu={:.2} naps_per_s={:.0}",
            100.0 * (after.cpu_s - before.cpu_s) / seconds,
            (after.n_naps - before.n_naps) / seconds,
        );
        ends.store(true, Ordering::Relaxed);
        all.into_iter().for_each(|one| one.join().unwrap());
    });
    fs::remove_file(file).expect("it was written");
}

/// A part of the work of the `i`th goroutine.
fn turn(shape: Shape, i: usize, file: &Path) {
    match (shape, i % 4) {
        (Shape::Timers, _) => {
            (0..50).for_each(|_| yield_now());
            sleep(SHORT);
        }
        (Shape::Sections, 0 | 1) => {
            blocking(|| fs::read(file)).expect("it is there");
        }
        (Shape::Sections, _) => yield_now(),
        (Shape::Hogs, 0) => {
            let began = Instant::now();
            while began.elapsed() < SHORT {
                spin_loop();
            }
            yield_now();
        }
        (Shape::Hogs, _) => sleep(SHORT),
    }
}

struct Cost {
    cpu_s: f64,
    n_naps: f64,
}

/// The CPU time that the monitor thread has used, and how often it has slept.
fn cost_of_sysmon() -> Cost {
    let task = task_of_sysmon().expect("windlass has a monitor thread");
    let read = |name| fs::read_to_string(task.join(name)).expect("/proc is there");
    let cpu_ns = read("schedstat");
    let status = read("status");
    let naps = status
        .lines()
        .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    let number = |text: Option<&str>| text.and_then(|text| text.trim().parse::<f64>().ok());
    Cost {
        cpu_s: number(cpu_ns.split_ascii_whitespace().next()).expect("as proc(5) says") / 1e9,
        n_naps: number(naps).expect("as proc(5) says"),
    }
}

fn task_of_sysmon() -> Option<PathBuf> {
    let tasks = fs::read_dir("/proc/self/task").ok()?;
    let mut paths = tasks.filter_map(|task| Some(task.ok()?.path()));
    paths.find(|path| {
        let name = fs::read_to_string(path.join("comm"));
        name.is_ok_and(|name| name.trim_end().ends_with("-sysmon"))
    })
}

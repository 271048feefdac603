//! The runtime on machines of 2 to 512 CPUs that are simulated with the price of cache lines
//! (`make scale`; docs/SCALE.md). Built without `--cfg explore` it runs the workloads on this
//! machine, to compare.
#![allow(clippy::print_stdout, reason = "a program that prints tables")]

mod clock;
mod workloads;
#[cfg(explore)]
mod machines;
#[cfg(explore)]
mod known;
#[cfg(explore)]
mod chart;
#[cfg(explore)]
mod short;
#[cfg(explore)]
mod page;
#[cfg(explore)]
mod events;
#[cfg(explore)]
mod table;

#[cfg(explore)]
fn main() -> std::process::ExitCode {
    table::main()
}

#[cfg(not(explore))]
fn main() {
    use workloads::{ALL, build};

    let n_cpus = std::thread::available_parallelism().map_or(1, usize::from);
    for n_ps in [1, 2].into_iter().filter(|&n| n <= n_cpus) {
        let rt = build(windlass::Builder::new().processors(n_ps));
        for workload in ALL {
            // The least disturbed of several runs.
            let runs = (0..9).map(|_| 1.0 / workload.run(&rt, n_ps as u32));
            let best = runs.fold(f64::INFINITY, f64::min);
            println!("{:<12} {n_ps} Ps {best:>9.1} ns", workload.name);
        }
    }
}

//! Fork-join: what does a fork cost, and how well do the forks of one computation use all CPUs?
//!
//! ```text
//! fork_join [WORKLOAD..] [--only CONTENDER] [--runs N] [--workers N] [--log-size N] [--cut N] [--full]
//! ```
//!
//! Workloads: `fib` (a fork for each call above the cut), `tree` (the sum of a binary tree, a fork for
//! each node), `quicksort` (of random u32), `mergesort` (of chunks that are read from files).
//!
//! Contenders: `serial`, `windlass` (join), `spawn` (a goroutine for each fork), `rayon` (join),
//! `chili`, and for `quicksort` `par` (`windlass::par::sort_unstable`) and `par_sort` (rayon's
//! `par_sort_unstable`). They take turns. The table has the median and the range of `--runs` rounds,
//! and the median of the process's CPU time. `--full` chooses the sizes of the literature: fib(32),
//! a tree of 2^27 nodes (needs 4 GB), a sort of 10^8 numbers.
//!
//! A chunk of `mergesort` is read from a file in the temporary directory, which the first round
//! brings into the page cache.
#![allow(unsafe_code)]
#![allow(clippy::print_stdout)]

use std::io::{self, Read};
use std::num::NonZero;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rayon::slice::ParallelSliceMut;

/// The workloads, for a contender whose `join` has a context as its first argument, and passes one
/// to each closure.
macro_rules! workloads {
    ($name:ident, $context:ty, $join:path, $file:path) => {
        mod $name {
            use super::*;

            pub(super) fn fib(c: &mut $context, n: u32, cut: u32) -> u64 {
                if n <= cut {
                    return fib_alone(n);
                }
                let (a, b) = $join(c, |c| fib(c, n - 1, cut), |c| fib(c, n - 2, cut));
                a + b
            }

            pub(super) fn tree(c: &mut $context, node: &Tree) -> u64 {
                let (l, r) = $join(
                    c,
                    |c| node.left.as_ref().map_or(0, |n| tree(c, n)),
                    |c| node.right.as_ref().map_or(0, |n| tree(c, n)),
                );
                node.value + l + r
            }

            pub(super) fn quicksort(c: &mut $context, all: &mut [u32]) {
                if all.len() <= SORTED_ALONE {
                    return all.sort_unstable();
                }
                let (low, high) = partition(all);
                $join(c, |c| quicksort(c, low), |c| quicksort(c, high));
            }

            pub(super) fn mergesort(c: &mut $context, files: &[PathBuf]) -> Vec<u32> {
                if let [file] = files {
                    let mut bytes = Vec::new();
                    let open = <$file>::open(file);
                    open.and_then(|mut f| f.read_to_end(&mut bytes)).unwrap();
                    return sorted_numbers(&bytes);
                }
                let (left, right) = files.split_at(files.len() / 2);
                let (left, right) = $join(c, |c| mergesort(c, left), |c| mergesort(c, right));
                merge(&left, &right)
            }
        }
    };
}

#[inline]
fn call_both<RA, RB>(
    (): &mut (),
    a: impl FnOnce(&mut ()) -> RA,
    b: impl FnOnce(&mut ()) -> RB,
) -> (RA, RB) {
    (a(&mut ()), b(&mut ()))
}

#[inline]
fn windlass_join<RA: Send, RB: Send>(
    (): &mut (),
    a: impl FnOnce(&mut ()) -> RA + Send,
    b: impl FnOnce(&mut ()) -> RB + Send,
) -> (RA, RB) {
    windlass::join(|| a(&mut ()), || b(&mut ()))
}

#[inline]
fn spawn_both<RA: Send, RB: Send>(
    (): &mut (),
    a: impl FnOnce(&mut ()) -> RA + Send,
    b: impl FnOnce(&mut ()) -> RB + Send,
) -> (RA, RB) {
    windlass::scope(|s| {
        let b = s.spawn(|| b(&mut ()));
        let a = a(&mut ());
        (a, b.join().unwrap())
    })
}

#[inline]
fn rayon_join<RA: Send, RB: Send>(
    (): &mut (),
    a: impl FnOnce(&mut ()) -> RA + Send,
    b: impl FnOnce(&mut ()) -> RB + Send,
) -> (RA, RB) {
    rayon::join(|| a(&mut ()), || b(&mut ()))
}

#[inline]
fn chili_join<RA: Send, RB: Send>(
    c: &mut chili::Scope<'_>,
    a: impl FnOnce(&mut chili::Scope<'_>) -> RA + Send,
    b: impl FnOnce(&mut chili::Scope<'_>) -> RB + Send,
) -> (RA, RB) {
    c.join(a, b)
}

workloads!(serial, (), call_both, std::fs::File);
workloads!(windlass_joins, (), windlass_join, windlass::fs::File);
workloads!(spawns, (), spawn_both, windlass::fs::File);
workloads!(rayon_joins, (), rayon_join, std::fs::File);
workloads!(chili_joins, chili::Scope<'_>, chili_join, std::fs::File);

fn fib_alone(n: u32) -> u64 {
    if n < 2 {
        return u64::from(n);
    }
    fib_alone(n - 1) + fib_alone(n - 2)
}

fn forks_of_fib(n: u32, cut: u32) -> u64 {
    if n <= cut {
        return 0;
    }
    1 + forks_of_fib(n - 1, cut) + forks_of_fib(n - 2, cut)
}

struct Tree {
    value: u64,
    left: Option<Box<Tree>>,
    right: Option<Box<Tree>>,
}

impl Tree {
    /// A tree whose nodes lie in memory in an order that favours neither a walk to the left first
    /// (as most contenders do) nor one to the right first (as chili does).
    fn new(depth: u32, sides: &mut impl Iterator<Item = u32>) -> Tree {
        let mut child = || (depth > 1).then(|| Box::new(Tree::new(depth - 1, &mut *sides)));
        let (first, second) = (child(), child());
        let is_left_first = sides.next().is_some_and(|side| side & 1 == 0);
        let (left, right) = match is_left_first {
            true => (first, second),
            false => (second, first),
        };
        Tree {
            value: 1,
            left,
            right,
        }
    }
}

/// Below this length a slice is sorted by `sort_unstable`.
const SORTED_ALONE: usize = 4096;

/// Divides a slice by a pivot, the median of three.
fn partition(all: &mut [u32]) -> (&mut [u32], &mut [u32]) {
    let (mid, last) = (all.len() / 2, all.len() - 1);
    let mut three = [(all[0], 0), (all[mid], mid), (all[last], last)];
    three.sort_unstable();
    all.swap(three[1].1, last);
    let pivot = all[last];
    let mut n_low = 0;
    for i in 0..last {
        let value = all[i];
        all.swap(i, n_low);
        n_low += usize::from(value < pivot);
    }
    all.swap(n_low, last);
    let (low, high) = all.split_at_mut(n_low);
    (low, &mut high[1..])
}

fn sorted_numbers(bytes: &[u8]) -> Vec<u32> {
    let words = bytes.chunks_exact(4);
    let mut numbers: Vec<u32> = words
        .map(|w| u32::from_ne_bytes([w[0], w[1], w[2], w[3]]))
        .collect();
    numbers.sort_unstable();
    numbers
}

fn merge(left: &[u32], right: &[u32]) -> Vec<u32> {
    let mut all = Vec::with_capacity(left.len() + right.len());
    let (mut l, mut r) = (0, 0);
    while l < left.len() && r < right.len() {
        let takes_left = left[l] <= right[r];
        all.push(if takes_left { left[l] } else { right[r] });
        l += usize::from(takes_left);
        r += usize::from(!takes_left);
    }
    all.extend_from_slice(&left[l..]);
    all.extend_from_slice(&right[r..]);
    all
}

/// A sequence of numbers that only look random.
fn numbers(n: usize) -> impl Iterator<Item = u32> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u32
    })
    .take(n)
}

struct Settings {
    workers: usize,
    runs: usize,
    log_size: Option<u32>,
    cut: Option<u32>,
    full: bool,
    only: Option<String>,
}

struct Pools {
    windlass: windlass::Runtime,
    rayon: rayon::ThreadPool,
    chili: chili::ThreadPool,
}

/// A contender's run of a workload: prepares its input, and returns what the work cost.
type Run<'a> = Box<dyn FnMut(&Pools) -> Cost + 'a>;

/// A workload: its name with its size, how many forks it makes, and its contenders.
struct Race<'a> {
    name: String,
    forks: u64,
    contenders: Vec<(&'static str, Run<'a>)>,
}

/// Wall time, and CPU time of the process.
type Cost = (Duration, Duration);

fn cpu_time() -> Duration {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the structure is valid, and every Linux has this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut now) };
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

fn timed<T: PartialEq + std::fmt::Debug>(expected: &T, f: impl FnOnce() -> T) -> Cost {
    let (begin, cpu_begin) = (Instant::now(), cpu_time());
    let result = f();
    let cost = (begin.elapsed(), cpu_time() - cpu_begin);
    assert_eq!(&result, expected);
    cost
}

fn fib(settings: &Settings) -> Race<'static> {
    let n = settings.log_size.unwrap_or(32);
    let cut = settings.cut.unwrap_or(12);
    let sum = fib_alone(n);
    Race {
        name: format!("fib({n}), cut at {cut}"),
        forks: forks_of_fib(n, cut),
        contenders: vec![
            (
                "serial",
                Box::new(move |_| timed(&sum, || serial::fib(&mut (), n, cut))),
            ),
            (
                "windlass",
                Box::new(move |p| {
                    p.windlass
                        .run(|| timed(&sum, || windlass_joins::fib(&mut (), n, cut)))
                }),
            ),
            (
                "spawn",
                Box::new(move |p| {
                    p.windlass
                        .run(|| timed(&sum, || spawns::fib(&mut (), n, cut)))
                }),
            ),
            (
                "rayon",
                Box::new(move |p| {
                    timed(&sum, || {
                        p.rayon.install(|| rayon_joins::fib(&mut (), n, cut))
                    })
                }),
            ),
            (
                "chili",
                Box::new(move |p| timed(&sum, || chili_joins::fib(&mut p.chili.scope(), n, cut))),
            ),
        ],
    }
}

fn tree(settings: &Settings) -> Race<'static> {
    let depth = settings
        .log_size
        .unwrap_or(if settings.full { 27 } else { 22 });
    let root: &'static Tree = Box::leak(Box::new(Tree::new(depth, &mut numbers(1 << depth))));
    let sum = (1 << depth) - 1;
    Race {
        name: format!("sum of a tree of 2^{depth} nodes"),
        forks: sum,
        contenders: vec![
            (
                "serial",
                Box::new(move |_| timed(&sum, || serial::tree(&mut (), root))),
            ),
            (
                "windlass",
                Box::new(move |p| {
                    p.windlass
                        .run(|| timed(&sum, || windlass_joins::tree(&mut (), root)))
                }),
            ),
            (
                "spawn",
                Box::new(move |p| {
                    p.windlass
                        .run(|| timed(&sum, || spawns::tree(&mut (), root)))
                }),
            ),
            (
                "rayon",
                Box::new(move |p| {
                    timed(&sum, || {
                        p.rayon.install(|| rayon_joins::tree(&mut (), root))
                    })
                }),
            ),
            (
                "chili",
                Box::new(move |p| timed(&sum, || chili_joins::tree(&mut p.chili.scope(), root))),
            ),
        ],
    }
}

/// The cost of `sort` for a new copy of the numbers.
fn sorting(n: usize, sort: impl Fn(&Pools, &mut [u32]) -> Cost) -> impl FnMut(&Pools) -> Cost {
    move |pools| {
        let mut all: Vec<_> = numbers(n).collect();
        let cost = sort(pools, &mut all);
        assert!(all.is_sorted());
        cost
    }
}

fn quicksort(settings: &Settings) -> Race<'static> {
    let n = match settings.log_size {
        Some(log) => 1 << log,
        None if settings.full => 100_000_000,
        None => 4_000_000,
    };
    Race {
        name: format!("quicksort of {n} u32"),
        forks: (n / SORTED_ALONE) as u64,
        contenders: vec![
            (
                "serial",
                Box::new(sorting(n, |_, all| {
                    timed(&(), || serial::quicksort(&mut (), all))
                })),
            ),
            (
                "windlass",
                Box::new(sorting(n, |p, all| {
                    p.windlass
                        .run(|| timed(&(), || windlass_joins::quicksort(&mut (), all)))
                })),
            ),
            (
                "spawn",
                Box::new(sorting(n, |p, all| {
                    p.windlass
                        .run(|| timed(&(), || spawns::quicksort(&mut (), all)))
                })),
            ),
            (
                "rayon",
                Box::new(sorting(n, |p, all| {
                    timed(&(), || {
                        p.rayon.install(|| rayon_joins::quicksort(&mut (), all))
                    })
                })),
            ),
            (
                "chili",
                Box::new(sorting(n, |p, all| {
                    timed(&(), || chili_joins::quicksort(&mut p.chili.scope(), all))
                })),
            ),
            (
                "par",
                Box::new(sorting(n, |p, all| {
                    p.windlass
                        .run(|| timed(&(), || windlass::par::sort_unstable(all)))
                })),
            ),
            (
                "par_sort",
                Box::new(sorting(n, |p, all| {
                    timed(&(), || p.rayon.install(|| all.par_sort_unstable()))
                })),
            ),
        ],
    }
}

/// A folder with files of random numbers, removed in the end.
struct Files(PathBuf, Vec<PathBuf>);

impl Files {
    fn new(n: usize, numbers_each: usize) -> io::Result<Files> {
        let folder = std::env::temp_dir().join(format!("fork_join-{}", std::process::id()));
        std::fs::create_dir(&folder)?;
        let mut files = Files(folder, Vec::new());
        let mut numbers = numbers(n * numbers_each);
        for i in 0..n {
            let path = files.0.join(i.to_string());
            let bytes: Vec<u8> = numbers
                .by_ref()
                .take(numbers_each)
                .flat_map(u32::to_ne_bytes)
                .collect();
            std::fs::write(&path, bytes)?;
            files.1.push(path);
        }
        Ok(files)
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn mergesort(files: &Files, numbers_each: usize) -> Race<'_> {
    let n = files.1.len();
    let total = n * numbers_each;
    let files = &files.1[..];
    Race {
        name: format!("mergesort of {n} files of {numbers_each} u32"),
        forks: n as u64 - 1,
        contenders: vec![
            (
                "serial",
                Box::new(move |_| timed(&total, || serial::mergesort(&mut (), files).len())),
            ),
            (
                "windlass",
                Box::new(move |p| {
                    p.windlass
                        .run(|| timed(&total, || windlass_joins::mergesort(&mut (), files).len()))
                }),
            ),
            (
                "spawn",
                Box::new(move |p| {
                    p.windlass
                        .run(|| timed(&total, || spawns::mergesort(&mut (), files).len()))
                }),
            ),
            (
                "rayon",
                Box::new(move |p| {
                    timed(&total, || {
                        p.rayon
                            .install(|| rayon_joins::mergesort(&mut (), files).len())
                    })
                }),
            ),
            (
                "chili",
                Box::new(move |p| {
                    timed(&total, || {
                        chili_joins::mergesort(&mut p.chili.scope(), files).len()
                    })
                }),
            ),
        ],
    }
}

/// Runs the contenders in turn, and prints their times.
fn run(mut race: Race<'_>, pools: &Pools, settings: &Settings) {
    race.contenders
        .retain(|(name, _)| settings.only.as_deref().is_none_or(|only| only == *name));
    let mut costs = vec![Vec::new(); race.contenders.len()];
    for _ in 0..settings.runs {
        for ((_, run), costs) in race.contenders.iter_mut().zip(&mut costs) {
            costs.push(run(pools));
        }
    }
    println!(
        "{}, {} forks, {} workers",
        race.name, race.forks, settings.workers
    );
    println!(
        "  {:<10} {:>10} {:>10} {:>10} {:>12} {:>10} {:>12}",
        "", "median ms", "min", "max", "ns a fork", "CPU ms", "ns a fork"
    );
    let median = |times: &mut Vec<Duration>| {
        times.sort_unstable();
        times[times.len() / 2]
    };
    let ms = |d: Duration| d.as_secs_f64() * 1e3;
    let ns_each = |d: Duration| d.as_secs_f64() * 1e9 / race.forks as f64;
    for ((name, _), costs) in race.contenders.iter().zip(costs) {
        let (mut times, mut cpu): (Vec<_>, Vec<_>) = costs.into_iter().unzip();
        let (time, cpu) = (median(&mut times), median(&mut cpu));
        println!(
            "  {name:<10} {:>10.2} {:>10.2} {:>10.2} {:>12.1} {:>10.2} {:>12.1}",
            ms(time),
            ms(times[0]),
            ms(times[times.len() - 1]),
            ns_each(time),
            ms(cpu),
            ns_each(cpu),
        );
    }
}

fn usage(why: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("{why}; see the head of src/main.rs"),
    )
}

fn main() -> io::Result<()> {
    let cpus = std::thread::available_parallelism()?.get();
    let mut settings = Settings {
        workers: cpus,
        runs: 5,
        log_size: None,
        cut: None,
        full: false,
        only: None,
    };
    let mut workloads = Vec::new();
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || {
            args.next()
                .ok_or_else(|| usage(&format!("{arg} needs a value")))
        };
        let number = |text: String| {
            text.parse()
                .map_err(|_| usage(&format!("{text} is no number")))
        };
        match arg.as_str() {
            "--runs" => settings.runs = number(value()?)?,
            "--workers" => settings.workers = number(value()?)?,
            "--log-size" => settings.log_size = Some(number(value()?)? as u32),
            "--cut" => settings.cut = Some(number(value()?)? as u32),
            "--only" => settings.only = Some(value()?),
            "--full" => settings.full = true,
            // cargo bench adds it.
            "--bench" => {}
            _ => workloads.push(arg),
        }
    }
    if workloads.is_empty() {
        workloads = ["fib", "tree", "quicksort", "mergesort"]
            .map(str::to_owned)
            .to_vec();
    }
    // SAFETY: no workload keeps a thread-local across a call that parks.
    let windlass = unsafe {
        windlass::Builder::new()
            .processors(settings.workers)
            .build()?
    };
    let threads = rayon::ThreadPoolBuilder::new().num_threads(settings.workers);
    let pools = Pools {
        windlass,
        rayon: threads.build().map_err(io::Error::other)?,
        chili: chili::ThreadPool::with_config(chili::Config {
            thread_count: NonZero::new(settings.workers),
            ..chili::Config::default()
        }),
    };
    for workload in &workloads {
        match workload.as_str() {
            "fib" => run(fib(&settings), &pools, &settings),
            "tree" => run(tree(&settings), &pools, &settings),
            "quicksort" => run(quicksort(&settings), &pools, &settings),
            "mergesort" => {
                let numbers_each = 1 << settings.log_size.unwrap_or(18);
                let files = Files::new(64, numbers_each)?;
                run(mergesort(&files, numbers_each), &pools, &settings);
            }
            _ => return Err(usage(&format!("{workload} is no workload"))),
        }
    }
    Ok(())
}

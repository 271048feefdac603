//! One table of what criterion benches have measured, with a column for each runtime.
//!
//! Each criterion bench is a program of its own, and cargo runs them one after the other. Criterion
//! leaves its estimates in files, of which this module reads those that are newer than the cargo
//! command that runs now: results of earlier commands are still there, and are not shown.
//!
//! A bench that was named (`cargo bench --bench yield`) prints the table itself, because no other one
//! follows. Otherwise the last bench prints it, which does nothing else: `zz_summary`.
#![expect(clippy::print_stdout, reason = "the table")]

use std::collections::BTreeMap;
use std::env;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process;
use std::time::{Duration, SystemTime};

use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;

/// Where criterion is to write: `CRITERION_HOME`, or the folder `criterion` in cargo's target
/// directory, which is found by where this program lies.
///
/// Criterion's own rule calls `cargo metadata`, and reads a relative `CARGO_TARGET_DIR` from
/// another working directory than cargo does.
pub fn directory() -> PathBuf {
    if let Some(home) = env::var_os("CRITERION_HOME") {
        return home.into();
    }
    // TARGET/release/deps/PROGRAM
    let program = env::current_exe().unwrap_or_default();
    let target = program.ancestors().nth(3).unwrap_or(Path::new("target"));
    target.join("criterion")
}

/// To be called at the end of each bench: prints the table if no other bench follows.
pub fn after_bench() {
    match Cargo::that_runs_this() {
        Some(cargo) if !cargo.names_benches => {}
        Some(cargo) => print(cargo.started),
        // Started by hand.
        None => print(Process::of(process::id()).map_or(SystemTime::UNIX_EPOCH, |p| p.started)),
    }
}

/// The last bench: prints the table of all that the cargo command has run.
pub fn after_all() {
    match Cargo::that_runs_this() {
        // Then each bench has printed it.
        Some(cargo) if cargo.names_benches => {}
        Some(cargo) => print(cargo.started),
        None => eprintln!("zz_summary: no cargo command runs this, so nothing is its result"),
    }
}

/// Prints what was measured since `earliest`, if there is anything: `-- --list` measures nothing.
fn print(earliest: SystemTime) {
    let rows = rows(&read(&directory(), earliest));
    if !rows.is_empty() {
        println!("\n{}", table(&rows));
    }
}

/// A process, as far as it matters here.
struct Process {
    name: String,
    parent: u32,
    started: SystemTime,
}

impl Process {
    fn of(pid: u32) -> Option<Process> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (name, parent, since_boot) = parse_stat(&stat)?;
        let up = Duration::try_from(clock_gettime(ClockId::Boottime)).ok()?;
        Some(Process {
            name,
            parent,
            started: SystemTime::now() - up.saturating_sub(since_boot),
        })
    }
}

/// The name, the parent and the start of a process: fields 2, 4 and 22 of proc_pid_stat(5).
fn parse_stat(stat: &str) -> Option<(String, u32, Duration)> {
    const TICK: Duration = Duration::from_millis(10); // USER_HZ is 100 on every Linux
    // The name may hold anything, so it ends with the last bracket.
    let (head, rest) = stat.rsplit_once(')')?;
    let (_, name) = head.split_once('(')?;
    let fields: Vec<_> = rest.split_ascii_whitespace().collect();
    let parent = fields.get(4 - 3)?.parse().ok()?;
    let ticks = fields.get(22 - 3)?.parse().ok()?;
    Some((name.to_owned(), parent, TICK.checked_mul(ticks)?))
}

/// The cargo command that runs this program.
struct Cargo {
    started: SystemTime,
    /// Whether it names the benches to run, of which each is then the last one.
    names_benches: bool,
}

impl Cargo {
    /// The nearest ancestor of that name: a runner may be between.
    fn that_runs_this() -> Option<Cargo> {
        let mut process = Process::of(process::id())?;
        loop {
            let pid = process.parent;
            process = Process::of(pid)?;
            if process.name == "cargo" {
                let command_line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
                return Some(Cargo {
                    started: process.started,
                    names_benches: names_benches(&String::from_utf8_lossy(&command_line)),
                });
            }
        }
    }
}

/// Whether a command line, with NUL after each word, has cargo's option `--bench NAME`.
fn names_benches(command_line: &str) -> bool {
    let mut words = command_line.split('\0');
    words
        .by_ref()
        .take_while(|word| *word != "--")
        .any(|word| word == "--bench" || word.starts_with("--bench="))
}

/// Criterion's estimate for one function of a group.
#[derive(Clone, Debug, PartialEq)]
struct Estimate {
    group: String,
    function: String,
    /// Of one element, in ns.
    time: Interval,
    measured: SystemTime,
}

/// An estimate, and its confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Interval {
    point: f64,
    lower: f64,
    upper: f64,
}

impl Interval {
    fn overlaps(self, other: Interval) -> bool {
        self.lower <= other.upper && other.lower <= self.upper
    }
}

/// All estimates below a directory that are not older than `earliest`.
fn read(directory: &Path, earliest: SystemTime) -> Vec<Estimate> {
    let mut estimates = Vec::new();
    let Ok(entries) = fs::read_dir(directory) else {
        return estimates;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        if !path.is_dir() {
            continue;
        }
        if entry.file_name() == "new" {
            estimates.extend(read_one(&path, earliest));
        } else {
            estimates.append(&mut read(&path, earliest));
        }
    }
    estimates
}

fn read_one(folder: &Path, earliest: SystemTime) -> Option<Estimate> {
    let file = folder.join("estimates.json");
    let measured = fs::metadata(&file).ok()?.modified().ok()?;
    if measured < earliest {
        return None;
    }
    let json = |path: &Path| serde_json::from_slice::<Value>(&fs::read(path).ok()?).ok();
    let (id, estimates) = (json(&folder.join("benchmark.json"))?, json(&file)?);
    // As criterion itself shows: the slope where samples differ in length, else the mean.
    let shown = [&estimates["slope"], &estimates["mean"]];
    let shown = shown.into_iter().find(|estimate| estimate.is_object())?;
    let throughput = &id["throughput"];
    let elements = throughput["Elements"]
        .as_f64()
        .or_else(|| throughput["ElementsAndBytes"]["elements"].as_f64())
        .unwrap_or(1.0);
    let per_element = |ns: &Value| Some(ns.as_f64()? / elements);
    let confidence = &shown["confidence_interval"];
    Some(Estimate {
        group: id["group_id"].as_str()?.to_owned(),
        function: id["function_id"].as_str()?.to_owned(),
        time: Interval {
            point: per_element(&shown["point_estimate"])?,
            lower: per_element(&confidence["lower_bound"])?,
            upper: per_element(&confidence["upper_bound"])?,
        },
        measured,
    })
}

/// A row: the group, and the times by function.
type Row = (String, BTreeMap<String, Interval>);

/// In the order in which they were measured.
fn rows(estimates: &[Estimate]) -> Vec<Row> {
    let mut sorted: Vec<_> = estimates.iter().collect();
    sorted.sort_by_key(|estimate| estimate.measured);
    let mut rows: Vec<Row> = Vec::new();
    for estimate in sorted {
        let at = rows.iter().position(|(group, _)| *group == estimate.group);
        let at = at.unwrap_or_else(|| {
            rows.push((estimate.group.clone(), BTreeMap::new()));
            rows.len() - 1
        });
        rows[at].1.insert(estimate.function.clone(), estimate.time);
    }
    rows
}

const OURS: &str = "windlass";
/// The columns that come first; others follow by name.
const FIRST: [&str; 3] = [OURS, "tokio", "may"];

fn table(rows: &[Row]) -> String {
    let all = || rows.iter().flat_map(|(_, times)| times.keys());
    let is_there = |name: &&str| all().any(|function| function == name);
    let mut columns: Vec<&str> = FIRST.into_iter().filter(is_there).collect();
    let mut others: Vec<&str> = all().map(String::as_str).collect();
    others.retain(|name| !FIRST.contains(name));
    others.sort_unstable();
    others.dedup();
    columns.extend(others);

    let mut lines = vec![vec!["bench".to_owned()]];
    lines[0].extend(columns.iter().map(ToString::to_string));
    lines[0].push(format!("{OURS} is"));
    for (group, times) in rows {
        let mut line = vec![group.clone()];
        line.extend(columns.iter().map(|&name| cell(times, name)));
        line.push(verdict(times));
        lines.push(line);
    }

    let mut text = String::from(
        "Time of one operation (a yield, a message, a round trip ...). *: the fastest, or several \
         whose\n95 % confidence intervals overlap. Last column: against the fastest of the others.\n\n",
    );
    let widths: Vec<_> = (0..lines[0].len())
        .map(|i| lines.iter().map(|line| line[i].chars().count()).max())
        .map(Option::unwrap_or_default)
        .collect();
    let last = widths.len() - 1;
    for line in &lines {
        let mut row = String::new();
        for (i, (cell, &width)) in line.iter().zip(&widths).enumerate() {
            // Writing to a string does not fail.
            let _ = match i {
                0 => write!(row, "{cell:<width$}"),
                _ if i == last => write!(row, "   {cell}"),
                _ => write!(row, "  {cell:>width$}"),
            };
        }
        text.push_str(row.trim_end());
        text.push('\n');
    }
    text
}

fn fastest<'a>(times: impl Iterator<Item = &'a Interval>) -> Option<Interval> {
    times.copied().min_by(|a, b| a.point.total_cmp(&b.point))
}

fn cell(times: &BTreeMap<String, Interval>, name: &str) -> String {
    let (Some(&time), Some(best)) = (times.get(name), fastest(times.values())) else {
        return "-".to_owned();
    };
    // With nobody beside it, nobody is the fastest.
    let wins = times.len() > 1 && time.overlaps(best);
    format!("{}{}", if wins { "*" } else { "" }, short(time.point))
}

/// How our time stands to the best of the others.
fn verdict(times: &BTreeMap<String, Interval>) -> String {
    let others = times.iter().filter(|(name, _)| *name != OURS);
    let (Some(&ours), Some(other)) = (times.get(OURS), fastest(others.map(|(_, time)| time)))
    else {
        return String::new();
    };
    if ours.overlaps(other) {
        return "as fast".to_owned();
    }
    let ratio = other.point / ours.point;
    if ratio > 1.0 {
        format!("{ratio:.2}x faster")
    } else {
        format!("{:.2}x slower", 1.0 / ratio)
    }
}

/// Three digits and a unit.
fn short(ns: f64) -> String {
    let (value, unit) = match ns {
        ns if ns >= 1e9 => (ns / 1e9, "s"),
        ns if ns >= 1e6 => (ns / 1e6, "ms"),
        ns if ns >= 1e3 => (ns / 1e3, "us"),
        ns => (ns, "ns"),
    };
    let decimals = match value {
        v if v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.decimals$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder that goes with this.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path = env::temp_dir().join(format!("summary-{name}-{}", process::id()));
            fs::create_dir_all(&path).unwrap();
            Folder(path)
        }

        /// Writes the files that criterion writes.
        fn measure(&self, group: &str, function: &str, throughput: &str, estimates: &str) {
            let folder = self.0.join(group).join(function).join("new");
            fs::create_dir_all(&folder).unwrap();
            let id = format!(
                r#"{{"group_id":"{group}","function_id":"{function}","throughput":{throughput}}}"#
            );
            fs::write(folder.join("benchmark.json"), id).unwrap();
            fs::write(folder.join("estimates.json"), estimates).unwrap();
        }

        fn age(&self, group: &str, function: &str, by: Duration) {
            let file = self.0.join(group).join(function).join("new/estimates.json");
            let file = fs::File::options().append(true).open(file).unwrap();
            file.set_modified(SystemTime::now() - by).unwrap();
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn estimate(ns: f64) -> String {
        let (lower, upper) = (ns * 0.99, ns * 1.01);
        format!(
            r#"{{"confidence_interval":{{"lower_bound":{lower},"upper_bound":{upper}}},"point_estimate":{ns}}}"#
        )
    }

    fn mean(ns: f64) -> String {
        format!(r#"{{"mean":{},"slope":null}}"#, estimate(ns))
    }

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn a_row_for_each_bench_and_a_column_for_each_runtime() {
        let folder = Folder::new("rows");
        folder.measure("yield", "windlass", r#"{"Elements":1000}"#, &mean(42_000.0));
        folder.measure("yield", "tokio", r#"{"Elements":1000}"#, &mean(84_000.0));
        folder.measure("yield", "may", r#"{"Elements":1000}"#, &mean(84_500.0));
        let both = r#"{"ElementsAndBytes":{"elements":4,"bytes":65536}}"#;
        folder.measure("stream", "windlass", both, &mean(8e6));
        folder.measure("stream", "tokio", both, &mean(4e6));
        let slope = format!(r#"{{"mean":{},"slope":{}}}"#, estimate(9.0), estimate(30.0));
        folder.measure("mutex", "windlass", "null", &slope);
        folder.measure("mutex", "std", "null", &mean(30.1));
        // The rows come in the order in which they were measured.
        for (age, group) in [(3, "yield"), (2, "stream"), (1, "mutex")] {
            for function in ["windlass", "tokio", "may", "std"] {
                if folder.0.join(group).join(function).exists() {
                    folder.age(group, function, Duration::from_secs(age));
                }
            }
        }
        let text = table(&rows(&read(&folder.0, SystemTime::now() - HOUR)));
        let lines: Vec<Vec<_>> = text
            .lines()
            .skip_while(|line| !line.is_empty())
            .skip(1)
            .map(|line| line.split("  ").filter(|cell| !cell.is_empty()).collect())
            .map(|cells: Vec<&str>| cells.into_iter().map(str::trim).collect())
            .collect();
        assert_eq!(
            lines,
            [
                vec!["bench", "windlass", "tokio", "may", "std", "windlass is"],
                vec![
                    "yield",
                    "*42.0 ns",
                    "84.0 ns",
                    "84.5 ns",
                    "-",
                    "2.00x faster"
                ],
                vec!["stream", "2.00 ms", "*1.00 ms", "-", "-", "2.00x slower"],
                vec!["mutex", "*30.0 ns", "-", "-", "*30.1 ns", "as fast"],
            ]
        );
    }

    #[test]
    fn results_of_earlier_commands_are_left_out() {
        let folder = Folder::new("stale");
        folder.measure("yield", "windlass", "null", &mean(1.0));
        folder.measure("echo", "windlass", "null", &mean(1.0));
        folder.measure("echo", "tokio", "null", &mean(1.0));
        folder.age("yield", "windlass", HOUR * 2);
        // One runtime of a bench that was measured again for another one.
        folder.age("echo", "tokio", HOUR * 2);
        let rows = rows(&read(&folder.0, SystemTime::now() - HOUR));
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].0, "echo");
        assert_eq!(rows[0].1.keys().collect::<Vec<_>>(), ["windlass"]);
        assert!(!table(&rows).contains("*1"), "nobody wins alone");
    }

    #[test]
    fn a_folder_that_is_not_there_has_no_rows() {
        assert!(read(Path::new("/nowhere/at/all"), SystemTime::UNIX_EPOCH).is_empty());
    }

    #[test]
    fn benches_are_named_before_the_dashes_only() {
        assert!(names_benches("cargo\0bench\0--bench\0yield\0"));
        assert!(names_benches("cargo\0bench\0--bench=yield\0--\0--quick\0"));
        assert!(!names_benches("cargo\0bench\0--\0--bench\0"));
        assert!(!names_benches("cargo\0bench\0--benches\0"));
    }

    #[test]
    fn the_start_of_a_process_is_found() {
        let stat = "7 (a) b (c) R 41 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 250 20";
        let (name, parent, since_boot) = parse_stat(stat).unwrap();
        assert_eq!((name.as_str(), parent), ("a) b (c", 41));
        assert_eq!(since_boot, Duration::from_millis(2500));
        let own = Process::of(process::id()).unwrap();
        let age = own.started.elapsed().unwrap_or_default();
        assert!(age < HOUR, "this test has not run for {age:?}");
    }

    /// Cargo runs benches in the order of their names.
    #[test]
    fn the_summary_is_the_last_bench() {
        let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/criterion/Cargo.toml");
        let manifest = fs::read_to_string(manifest).unwrap();
        let (_, benches) = manifest.split_once("[[bench]]").unwrap();
        let (benches, _) = benches.split_once("[dev-dependencies]").unwrap();
        let mut names: Vec<_> = benches
            .lines()
            .filter_map(|line| line.strip_prefix("name = "))
            .collect();
        names.sort_unstable();
        assert!(names.len() > 2);
        assert_eq!(names.last(), Some(&r#""zz_summary""#));
    }
}

//! What criterion benches have measured, as rows with a cell for each runtime.
//!
//! Criterion leaves its estimates in files, of which this module reads those that are newer than the
//! run: results of earlier ones are still there, and are not shown.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde_json::Value;

use crate::results::{Row, Summary};

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

/// Criterion's estimate for one function of a group.
#[derive(Clone, Debug, PartialEq)]
struct Estimate {
    group: String,
    function: String,
    /// Of one element, in ns; least and most are the ends of the 95 % confidence interval.
    time: Summary,
    measured: SystemTime,
}

/// What was measured since `earliest`: the rows in the order in which they were measured.
pub fn measured(earliest: SystemTime) -> Vec<Row> {
    rows(read(&directory(), earliest))
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
        time: Summary {
            median: per_element(&shown["point_estimate"])?,
            min: per_element(&confidence["lower_bound"])?,
            max: per_element(&confidence["upper_bound"])?,
            rounds: 1,
        },
        measured,
    })
}

/// A row for each group, in the order in which they were measured, with times in ns.
fn rows(mut estimates: Vec<Estimate>) -> Vec<Row> {
    estimates.sort_by_key(|estimate| estimate.measured);
    let mut rows: Vec<Row> = Vec::new();
    for estimate in estimates {
        let at = rows.iter().position(|row| row.experiment == estimate.group);
        let at = at.unwrap_or_else(|| {
            rows.push(Row {
                experiment: estimate.group,
                key: "ns".into(),
                unit: "ns".into(),
                cells: Vec::new(),
            });
            rows.len() - 1
        });
        rows[at].cells.push((estimate.function, estimate.time));
    }
    rows
}

#[cfg(test)]
mod tests {
    use std::process;
    use std::time::Duration;

    use super::*;
    use crate::report::verdict::Verdict;

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
        let rows = rows(read(&folder.0, SystemTime::now() - HOUR));
        let ns = |row: &Row, name: &str| {
            let cell = row.cells.iter().find(|(function, _)| function == name);
            cell.map(|(_, time)| time.median)
        };
        let table: Vec<_> = rows
            .iter()
            .map(|row| {
                let names = ["windlass", "tokio", "may", "std"];
                (row.experiment.as_str(), names.map(|name| ns(row, name)))
            })
            .collect();
        assert_eq!(
            table,
            [
                ("yield", [Some(42.0), Some(84.0), Some(84.5), None]),
                ("stream", [Some(2e6), Some(1e6), None, None]),
                ("mutex", [Some(30.0), None, None, Some(30.1)]),
            ]
        );
        assert_eq!(
            Verdict::of(&rows[0]).words(),
            "ahead of tokio by a factor of 2.0"
        );
        assert_eq!(
            Verdict::of(&rows[1]).words(),
            "loses to tokio by a factor of 2.0"
        );
        assert_eq!(Verdict::of(&rows[2]).words(), "level with std");
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
        let rows = rows(read(&folder.0, SystemTime::now() - HOUR));
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].experiment, "echo");
        let names: Vec<_> = rows[0].cells.iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["windlass"]);
    }

    #[test]
    fn a_folder_that_is_not_there_has_no_rows() {
        assert!(read(Path::new("/nowhere/at/all"), SystemTime::UNIX_EPOCH).is_empty());
    }
}

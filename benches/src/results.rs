//! Results of `compare` as JSON: the machine, how it was measured, and a row for each figure.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

use serde_json::{Map, Value, json};

/// One cell of a table: the figures of all rounds, summed up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// The middle one, or the mean of the two in the middle.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The most.
    pub max: f64,
    /// How many rounds gave a figure.
    pub rounds: usize,
}

impl Summary {
    /// Of the figures of some rounds; `None` without any.
    pub fn of(samples: &[f64]) -> Option<Summary> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (&min, &max) = (sorted.first()?, sorted.last()?);
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 {
            sorted[middle]
        } else {
            f64::midpoint(sorted[middle - 1], sorted[middle])
        };
        Some(Summary {
            median,
            min,
            max,
            rounds: sorted.len(),
        })
    }

    /// An infinite figure, of something that never came, is the string "never": JSON has no
    /// infinity.
    fn json(self) -> Value {
        let number = |v: f64| {
            if v.is_finite() {
                json!(v)
            } else {
                json!("never")
            }
        };
        json!({
            "median": number(self.median),
            "min": number(self.min),
            "max": number(self.max),
            "rounds": self.rounds,
        })
    }
}

/// One figure of one experiment, for all contenders that gave it.
#[derive(Clone, Debug)]
pub struct Row {
    /// The experiment's name.
    pub experiment: String,
    /// The figure's key, as the programs print it.
    pub key: String,
    /// The unit, for a reader.
    pub unit: String,
    /// Contenders in the order of the table.
    pub cells: Vec<(String, Summary)>,
}

impl Row {
    fn json(&self) -> Value {
        let cells: Map<_, _> = self
            .cells
            .iter()
            .map(|(contender, summary)| (contender.clone(), summary.json()))
            .collect();
        json!({
            "experiment": self.experiment,
            "key": self.key,
            "unit": self.unit,
            "contenders": cells,
        })
    }
}

/// The machine and the sources, as far as they can be found out: `null` where they cannot.
pub fn machine() -> Value {
    let first_line = |path: &str| {
        let text = fs::read_to_string(path).ok()?;
        Some(text.lines().next()?.to_owned())
    };
    json!({
        "cpu": cpu_model(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default()),
        "cpus": std::thread::available_parallelism().ok().map(usize::from),
        "kernel": first_line("/proc/sys/kernel/osrelease"),
        "commit": git(&["rev-parse", "HEAD"]),
        "changed_since_commit": git(&["status", "--porcelain", "--untracked-files=no"])
            .map(|changes| !changes.is_empty()),
    })
}

/// The load averages of 1, 5 and 15 minutes; `null` without proc(5).
pub fn load_average() -> Value {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let loads: Vec<f64> = text
        .split_ascii_whitespace()
        .take(3)
        .filter_map(|load| load.parse().ok())
        .collect();
    if loads.len() == 3 {
        json!(loads)
    } else {
        Value::Null
    }
}

fn cpu_model(cpuinfo: &str) -> Option<String> {
    let line = cpuinfo
        .lines()
        .find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git")
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(arguments)
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

/// The whole file: `run` says how it was measured.
pub fn document(machine: Value, run: Value, rows: &[Row]) -> Value {
    let rows: Vec<_> = rows.iter().map(Row::json).collect();
    json!({ "machine": machine, "run": run, "rows": rows })
}

/// Writes the file, with a line break at its end.
///
/// # Errors
///
/// Those of writing.
pub fn write(path: &Path, document: &Value) -> io::Result<()> {
    fs::write(path, format!("{document:#}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_have_the_median_and_the_range() {
        assert_eq!(Summary::of(&[]), None);
        let odd = Summary::of(&[3.0, 1.0, 8.0]).unwrap();
        assert_eq!(
            (odd.median, odd.min, odd.max, odd.rounds),
            (3.0, 1.0, 8.0, 3)
        );
        let even = Summary::of(&[4.0, 1.0, 2.0, 9.0]).unwrap();
        assert_eq!((even.median, even.rounds), (3.0, 4));
    }

    #[test]
    fn a_document_reads_back_as_it_was_written() {
        let row = Row {
            experiment: "latency_busy".into(),
            key: "busy_p50_us".into(),
            unit: "us, busy, p50".into(),
            cells: vec![
                ("windlass".into(), Summary::of(&[2.5, 1.5, 3.5]).unwrap()),
                ("may".into(), Summary::of(&[f64::INFINITY]).unwrap()),
            ],
        };
        let document = document(machine(), json!({ "rounds": 3, "steal": 0.01 }), &[row]);
        let path = std::env::temp_dir().join(format!("compare-{}.json", std::process::id()));
        write(&path, &document).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let read: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read, document);
        let contenders = &read["rows"][0]["contenders"];
        assert_eq!(contenders["windlass"]["median"], 2.5);
        assert_eq!(contenders["windlass"]["max"], 3.5);
        assert_eq!(contenders["may"]["median"], "never");
        assert!(read["machine"]["kernel"].is_string());
    }

    #[test]
    fn the_cpu_is_named_where_the_kernel_names_it() {
        let text = "processor\t: 0\nmodel name\t: Some CPU 9000\n";
        assert_eq!(cpu_model(text).as_deref(), Some("Some CPU 9000"));
        assert_eq!(cpu_model("processor\t: 0\n"), None);
    }
}

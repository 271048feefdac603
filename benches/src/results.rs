//! Results of `compare` and `numa` as JSON: the machine, the runs, and a row for each figure.
//!
//! ```json
//! {
//!   "machine": { "cpu": .., "kernel": .., "commit": .., "versions": { "tokio": .. } },
//!   "runs": [{ "program": "compare", "command": .., "date": .., "rounds": 5, "steal": 0.01, .. }],
//!   "rows": [{ "experiment": "yield", "key": "ns", "unit": "ns/op", "run": 0,
//!              "contenders": { "windlass": { "median": .., "min": .., "max": .., "rounds": 5 } } }]
//! }
//! ```
//!
//! A row names its run by number, because a file may be the sum of several runs ([`merge`]).

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

    fn read(value: &Value) -> Option<Summary> {
        let number = |key: &str| match &value[key] {
            Value::String(word) if word == "never" => Some(f64::INFINITY),
            number => number.as_f64(),
        };
        Some(Summary {
            median: number("median")?,
            min: number("min")?,
            max: number("max")?,
            rounds: usize::try_from(value["rounds"].as_u64()?).ok()?,
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

#[cfg(test)]
impl Row {
    /// A row of these samples, for tests.
    pub(crate) fn of(experiment: &str, key: &str, cells: &[(&str, &[f64])]) -> Row {
        let cells = cells.iter().map(|(name, samples)| {
            let summary = Summary::of(samples).expect("there are samples");
            ((*name).to_owned(), summary)
        });
        Row {
            experiment: experiment.to_owned(),
            key: key.to_owned(),
            unit: String::new(),
            cells: cells.collect(),
        }
    }
}

impl Row {
    /// The row that a document holds; its contenders are sorted by name then.
    pub fn read(value: &Value) -> Option<Row> {
        let cells = value["contenders"].as_object()?;
        Some(Row {
            experiment: value["experiment"].as_str()?.to_owned(),
            key: value["key"].as_str()?.to_owned(),
            unit: value["unit"].as_str()?.to_owned(),
            cells: cells
                .iter()
                .map(|(name, cell)| Some((name.clone(), Summary::read(cell)?)))
                .collect::<Option<_>>()?,
        })
    }

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
            "run": 0,
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
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    json!({
        "cpu": cpu_model(&cpuinfo),
        "cpus": std::thread::available_parallelism().ok().map(usize::from),
        "virtual": has_hypervisor(&cpuinfo),
        "memory_gib": memory_gib(&meminfo),
        "nodes": nodes(),
        "kernel": first_line("/proc/sys/kernel/osrelease"),
        "commit": git(&["rev-parse", "HEAD"]),
        "changed_since_commit": git(&MEASURED).map(|changes| !changes.is_empty()),
        "versions": versions(),
    })
}

/// Asks git for changes of what is measured: a page of docs/ that was edited is none.
const MEASURED: [&str; 8] = [
    "status",
    "--porcelain",
    "--untracked-files=no",
    "--",
    ":/src",
    ":/topology",
    ":/benches",
    ":/Cargo.lock",
];

/// The compilers, and the crates that windlass is compared with.
fn versions() -> Value {
    let lock = concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.lock");
    let lock = fs::read_to_string(lock).unwrap_or_default();
    // "rustc 1.95.0 (...)" and "go version go1.27.3 linux/amd64"
    let word = |program: &str, argument: &str, nth| {
        let text = output_of(Command::new(program).arg(argument))?;
        let word = text.split_ascii_whitespace().nth(nth)?;
        Some(word.trim_start_matches("go").to_owned())
    };
    json!({
        "rustc": word("rustc", "--version", 1),
        "go": word("go", "version", 2),
        "tokio": locked_version(&lock, "tokio"),
        "may": locked_version(&lock, "may"),
        "monoio": locked_version(&lock, "monoio"),
        "compio": locked_version(&lock, "compio"),
    })
}

fn locked_version(lock: &str, package: &str) -> Option<String> {
    let name = format!("name = \"{package}\"");
    let mut lines = lock.lines().skip_while(|line| *line != name);
    let version = lines.nth(1)?.strip_prefix("version = \"")?;
    Some(version.trim_end_matches('"').to_owned())
}

fn has_hypervisor(cpuinfo: &str) -> bool {
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags"));
    flags.is_some_and(|flags| flags.split_ascii_whitespace().any(|f| f == "hypervisor"))
}

fn memory_gib(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find(|line| line.starts_with("MemTotal:"))?;
    let kib: u64 = line.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some((kib + (1 << 19)) >> 20)
}

fn nodes() -> Option<usize> {
    let is_node = |name: &str| {
        let number = name.strip_prefix("node");
        number.is_some_and(|number| number.parse::<u32>().is_ok())
    };
    let entries = fs::read_dir("/sys/devices/system/node").ok()?;
    let names = entries.flatten().map(|entry| entry.file_name());
    let found = names.filter(|name| name.to_str().is_some_and(is_node));
    Some(found.count())
}

/// The time now, as `2026-11-23 05:50 UTC`; `null` without date(1).
pub fn date() -> Value {
    json!(output_of(
        Command::new("date").args(["-u", "+%Y-%m-%d %H:%M UTC"])
    ))
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
    let mut git = Command::new("git");
    output_of(git.current_dir(env!("CARGO_MANIFEST_DIR")).args(arguments))
}

fn output_of(command: &mut Command) -> Option<String> {
    let output = command.output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

/// The whole file of one run: `run` says how it was measured.
pub fn document(machine: Value, run: Value, rows: &[Row]) -> Value {
    let rows: Vec<_> = rows.iter().map(Row::json).collect();
    json!({ "machine": machine, "runs": [run], "rows": rows })
}

/// Adds a later document's rows to those of an earlier one, in place of those for the same figures.
///
/// # Errors
///
/// Says why if the two were measured on different machines, or of different commits.
pub fn merge(earlier: &Value, later: &Value) -> Result<Value, String> {
    same_machine(&earlier["machine"], &later["machine"])?;
    let list = |document: &Value, key: &str| document[key].as_array().cloned().unwrap_or_default();
    let figure = |row: &Value| (row["experiment"].clone(), row["key"].clone());
    let (runs, new) = (list(earlier, "runs"), list(later, "rows"));
    let replaced: Vec<_> = new.iter().map(figure).collect();
    let mut rows = list(earlier, "rows");
    rows.retain(|row| !replaced.contains(&figure(row)));
    for mut row in new {
        row["run"] = json!(runs.len() as u64 + row["run"].as_u64().unwrap_or(0));
        rows.push(row);
    }
    let runs: Vec<_> = runs.into_iter().chain(list(later, "runs")).collect();
    // Runs of which no row is left go.
    let mut kept = Vec::new();
    for (i, run) in runs.into_iter().enumerate() {
        let of_run = |row: &&mut Value| row["run"] == json!(i);
        let number = json!(kept.len());
        let mut is_used = false;
        for row in rows.iter_mut().filter(of_run) {
            row["run"] = number.clone();
            is_used = true;
        }
        if is_used {
            kept.push(run);
        }
    }
    Ok(json!({ "machine": later["machine"], "runs": kept, "rows": rows }))
}

/// Whether what was measured on two machines can stand in one table.
///
/// # Errors
///
/// Says in what they differ.
pub fn same_machine(earlier: &Value, later: &Value) -> Result<(), String> {
    let keys = ["commit", "changed_since_commit", "cpu", "cpus", "kernel"];
    for key in keys.into_iter().chain(["memory_gib", "nodes", "versions"]) {
        if earlier[key] != later[key] {
            let (earlier, later) = (&earlier[key], &later[key]);
            return Err(format!("{key} was {earlier} and is {later}"));
        }
    }
    Ok(())
}

/// The experiments of which a document has rows of at least so many rounds.
pub fn measured(document: &Value, rounds: usize) -> Vec<String> {
    let rows = document["rows"].as_array().into_iter().flatten();
    let mut names: Vec<String> = rows
        .filter(|row| {
            let run = row["run"].as_u64().unwrap_or(0) as usize;
            document["runs"][run]["rounds"].as_u64() >= Some(rounds as u64)
        })
        .filter_map(|row| Some(row["experiment"].as_str()?.to_owned()))
        .collect();
    names.dedup();
    names
}

/// Reads a file that [`write()`] has written.
///
/// # Errors
///
/// Those of reading, and `InvalidData` for what is no JSON.
pub fn read(path: &Path) -> io::Result<Value> {
    Ok(serde_json::from_str(&fs::read_to_string(path)?)?)
}

/// Writes the file as a whole or not at all, with a line break at its end.
///
/// # Errors
///
/// Those of writing.
pub fn write(path: &Path, document: &Value) -> io::Result<()> {
    let new = path.with_extension("json.new");
    fs::write(&new, text(document))?;
    fs::rename(&new, path)
}

/// One line for each run and each row, so that a diff shows which have changed.
fn text(document: &Value) -> String {
    let lines = |key: &str| {
        let list = document[key].as_array().into_iter().flatten();
        let lines: Vec<_> = list.map(|value| format!("    {value}")).collect();
        lines.join(",\n")
    };
    format!(
        "{{\n  \"machine\": {},\n  \"runs\": [\n{}\n  ],\n  \"rows\": [\n{}\n  ]\n}}\n",
        document["machine"],
        lines("runs"),
        lines("rows")
    )
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
        let rows = text.lines().filter(|line| line.contains("\"experiment\""));
        assert_eq!(rows.count(), 1, "a row is a line:\n{text}");
        assert_eq!(
            Row::read(&read["rows"][0]).unwrap().cells[0].1.median,
            f64::INFINITY
        );
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

    fn one_row(experiment: &str, median: f64, run: &str) -> Value {
        let row = Row {
            experiment: experiment.into(),
            key: "ns".into(),
            unit: "ns/op".into(),
            cells: vec![("windlass".into(), Summary::of(&[median]).unwrap())],
        };
        let machine = json!({ "commit": "abc", "cpus": 2 });
        document(machine, json!({ "command": run, "rounds": 3 }), &[row])
    }

    #[test]
    fn runs_are_merged_row_by_row() {
        let (a, b) = (
            one_row("yield", 1.0, "first"),
            one_row("skynet", 2.0, "second"),
        );
        let both = merge(&a, &b).unwrap();
        assert_eq!(both["runs"].as_array().unwrap().len(), 2);
        assert_eq!(both["rows"][0]["run"], 0);
        assert_eq!(both["rows"][1]["run"], 1);
        // A figure that is there already: the row goes, and the run that it was the only one of.
        let again = merge(&both, &one_row("yield", 3.0, "third")).unwrap();
        assert_eq!(again["runs"].as_array().unwrap().len(), 2);
        assert_eq!(again["runs"][1]["command"], "third");
        let rows = again["rows"].as_array().unwrap();
        assert_eq!(
            (rows.len(), &rows[0]["run"], &rows[1]["run"]),
            (2, &json!(0), &json!(1))
        );
        assert_eq!(rows[1]["contenders"]["windlass"]["median"], 3.0);
        assert_eq!(measured(&again, 3), ["skynet", "yield"]);
        assert!(measured(&again, 4).is_empty());
    }

    #[test]
    fn results_of_another_commit_are_not_merged() {
        let (a, mut b) = (one_row("yield", 1.0, "a"), one_row("skynet", 2.0, "b"));
        b["machine"]["commit"] = json!("def");
        let why = merge(&a, &b).unwrap_err();
        assert_eq!(why, "commit was \"abc\" and is \"def\"");
    }

    #[test]
    fn versions_are_those_that_cargo_has_locked() {
        let lock = "[[package]]\nname = \"tokio-rustls\"\nversion = \"0.26.0\"\n\n\
            [[package]]\nname = \"tokio\"\nversion = \"1.54.1\"\n";
        assert_eq!(locked_version(lock, "tokio").as_deref(), Some("1.54.1"));
        assert_eq!(locked_version(lock, "may"), None);
    }

    #[test]
    fn memory_is_rounded_to_gib() {
        assert_eq!(memory_gib("MemTotal:       25165000 kB\n"), Some(24));
        assert!(has_hypervisor("flags\t\t: fpu hypervisor lm\n"));
        assert!(!has_hypervisor("flags\t\t: fpu lm\n"));
    }
}

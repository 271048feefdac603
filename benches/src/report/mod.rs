//! docs/BENCHMARKS.md, its charts and README.md's headline, made of the JSON that `compare` and
//! the bench `numa` write.
//!
//! - [`topics`]: the tables of the page: which figures they have, in which order
//! - [`verdict`]: how windlass stands in a row, and how figures are written
//! - [`chart`]: the pictures; [`curve`]: those of the bench `scale`, which are not on the page
//! - [`page`]: the text of `template.md` with the tables put in
//!
//! Everything is made of the results alone, so that a test can make it again and compare.

pub mod chart;
pub mod curve;
pub mod page;
pub mod topics;
pub mod verdict;

use std::fs;
use std::io;
use std::path::Path;

use serde_json::Value;

use crate::results::{self, Row};

/// Where results that are checked in lie, below the root.
pub const RESULTS: &str = "docs/benchmarks";
/// Where the charts lie.
pub const CHARTS: &str = "docs/img/bench";
/// The page.
pub const PAGE: &str = "docs/BENCHMARKS.md";
/// The page that shows the headline.
pub const README: &str = "README.md";

/// One document of results: what [`results::write`] has written.
#[derive(Clone, Debug)]
pub struct Results {
    /// The machine and the sources.
    pub machine: Value,
    /// How each run was made.
    pub runs: Vec<Value>,
    /// Each row, and the number of its run.
    pub rows: Vec<(Row, usize)>,
}

impl Results {
    /// Of a document.
    ///
    /// # Errors
    ///
    /// Says which part of it is not as it should be.
    pub fn of(document: &Value) -> Result<Results, String> {
        let list = |key: &str| {
            let list = document[key].as_array();
            list.ok_or_else(|| format!("the document has no list of {key}"))
        };
        let runs = list("runs")?.clone();
        let mut rows = Vec::new();
        for value in list("rows")? {
            let run = value["run"].as_u64().map(|run| run as usize);
            let run = run.filter(|run| *run < runs.len());
            let row = Row::read(value).zip(run);
            rows.push(row.ok_or_else(|| format!("no row with a run: {value}"))?);
        }
        Ok(Results {
            machine: document["machine"].clone(),
            runs,
            rows,
        })
    }

    /// The row of one figure.
    pub fn row(&self, experiment: &str, key: &str) -> Option<&(Row, usize)> {
        let is_it = |(row, _): &&(Row, usize)| row.experiment == experiment && row.key == key;
        self.rows.iter().find(is_it)
    }

    fn program(&self) -> &str {
        let first = self.runs.first();
        first.map_or("", |run| run["program"].as_str().unwrap_or(""))
    }
}

/// All that the page is made of.
#[derive(Clone, Debug, Default)]
pub struct Input {
    /// Of `compare`.
    pub compare: Option<Results>,
    /// Of the bench `numa`, one for each machine.
    pub numa: Vec<Results>,
}

impl Input {
    /// Reads these files. Those of `compare` have to be of one commit and one machine.
    ///
    /// # Errors
    ///
    /// Those of reading, and `InvalidData` for what are no results.
    pub fn read<P: AsRef<Path>>(paths: &[P]) -> io::Result<Input> {
        let mut compared: Option<Value> = None;
        let mut numa = Vec::new();
        for path in paths.iter().map(AsRef::as_ref) {
            let invalid = |why| {
                let why = format!("{}: {why}", path.display());
                io::Error::new(io::ErrorKind::InvalidData, why)
            };
            let document = results::read(path)?;
            let results = Results::of(&document).map_err(invalid)?;
            match results.program() {
                "numa" => numa.push(results),
                "compare" => {
                    compared = Some(match compared.take() {
                        None => document,
                        Some(earlier) => results::merge(&earlier, &document).map_err(invalid)?,
                    });
                }
                other => return Err(invalid(format!("results of {other:?}, which has no page"))),
            }
        }
        let invalid = |why| io::Error::new(io::ErrorKind::InvalidData, why);
        Ok(Input {
            compare: compared
                .map(|document| Results::of(&document).map_err(invalid))
                .transpose()?,
            numa,
        })
    }

    /// Reads the results that are checked in, in the order of their names.
    ///
    /// # Errors
    ///
    /// As [`Input::read`].
    pub fn checked_in(root: &Path) -> io::Result<Input> {
        let mut paths = files(&root.join(RESULTS))?;
        paths.retain(|path| path.ends_with(".json"));
        let paths: Vec<_> = paths
            .iter()
            .map(|name| root.join(RESULTS).join(name))
            .collect();
        Input::read(&paths)
    }
}

/// A file to write: its path below the root, and its text.
pub type File = (String, String);

/// The page, README.md with its headline, and the charts. `readme` is README.md as it is.
///
/// # Errors
///
/// Says what is wrong with the template, or with README.md.
pub fn render(input: &Input, readme: &str) -> Result<Vec<File>, String> {
    let mut files = vec![
        (PAGE.to_owned(), page::page(input, page::TEMPLATE)?),
        (README.to_owned(), page::readme(input, readme)?),
    ];
    for (name, svg) in chart::charts(input) {
        files.push((format!("{CHARTS}/{name}.svg"), svg));
    }
    Ok(files)
}

/// Writes these files below the root, and removes charts that are no more.
///
/// # Errors
///
/// Those of writing and removing.
pub fn write(root: &Path, rendered: &[File]) -> io::Result<()> {
    fs::create_dir_all(root.join(CHARTS))?;
    for (path, text) in rendered {
        fs::write(root.join(path), text)?;
    }
    for name in files(&root.join(CHARTS))? {
        let path = format!("{CHARTS}/{name}");
        if !rendered.iter().any(|(rendered, _)| *rendered == path) {
            fs::remove_file(root.join(path))?;
        }
    }
    Ok(())
}

/// The names of the files in a folder, sorted.
fn files(folder: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        names.extend(entry?.file_name().into_string());
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> &'static Path {
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
    }

    /// After a change of the template, the charts or the results: `make benchmarks-page`.
    #[test]
    fn the_page_and_its_charts_are_those_of_the_results() {
        let input = Input::checked_in(root()).unwrap();
        let readme = fs::read_to_string(root().join(README)).unwrap();
        let rendered = render(&input, &readme).unwrap();
        let stale: Vec<_> = rendered
            .iter()
            .filter(|(path, text)| {
                fs::read_to_string(root().join(path)).ok().as_ref() != Some(text)
            })
            .map(|(path, _)| path)
            .collect();
        assert!(
            stale.is_empty(),
            "not as rendered: {stale:?}; `make benchmarks-page` does it"
        );
        for name in files(&root().join(CHARTS)).unwrap() {
            let path = format!("{CHARTS}/{name}");
            let is_rendered = rendered.iter().any(|(rendered, _)| *rendered == path);
            assert!(is_rendered, "{path} is of no chart");
        }
    }

    #[test]
    fn without_any_result_there_is_still_a_page() {
        let readme = "a\n<!-- numbers -->\nold\n<!-- /numbers -->\nb\n";
        let rendered = render(&Input::default(), readme).unwrap();
        assert_eq!(rendered.len(), 2, "no chart");
        assert!(rendered[0].1.contains("Not measured yet."));
        assert!(!rendered[1].1.contains("old"));
    }

    #[test]
    fn a_document_without_runs_is_refused() {
        let document = serde_json::json!({ "machine": {}, "rows": [] });
        assert!(Results::of(&document).is_err());
        let row = serde_json::json!({
            "experiment": "yield", "key": "ns", "unit": "ns/op", "run": 1, "contenders": {},
        });
        let document = serde_json::json!({ "machine": {}, "runs": [{}], "rows": [row] });
        assert!(Results::of(&document).is_err(), "there is no run 1");
    }
}

//! Makes docs/BENCHMARKS.md, its charts and README.md's headline of results: `make benchmarks-page`.
//!
//! Without arguments it takes the results that are checked in, docs/benchmarks/*.json. Other files
//! show what a run would look like on the page; the test of `report` compares with those checked in.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use windlass_benches::report::{self, Input};

#[derive(Parser)]
struct Args {
    /// Files that `compare --json` or the bench `numa --json` have written.
    results: Vec<PathBuf>,
    /// The folder that has README.md and docs/.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/.."))]
    root: PathBuf,
}

fn main() -> ExitCode {
    let args = Args::parse();
    match render(&args.root, &args.results) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("render: {error}");
            ExitCode::FAILURE
        }
    }
}

fn render(root: &Path, results: &[PathBuf]) -> io::Result<()> {
    let input = match results {
        [] => Input::checked_in(root)?,
        files => Input::read(files)?,
    };
    let readme = fs::read_to_string(root.join(report::README))?;
    let files = report::render(&input, &readme).map_err(io::Error::other)?;
    report::write(root, &files)
}

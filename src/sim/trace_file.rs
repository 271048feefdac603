//! The file that a trace is written to.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::PathBuf;

use super::failure::Failure;
use super::report::Report;
use super::trace::Taken;
use crate::loom::native::{Mutex, PoisonError};

/// A file for traces.
#[derive(Clone, Debug)]
pub(super) struct TraceFile {
    path: PathBuf,
    /// All simulations of the process write to it.
    is_shared: bool,
}

/// Locked while a file is written, as simulations run on several threads. The shared files that have
/// the trace of a failure.
static FAILED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

impl TraceFile {
    pub(super) fn of_program(path: PathBuf) -> TraceFile {
        TraceFile {
            path,
            is_shared: false,
        }
    }

    pub(super) fn of_environment(path: PathBuf) -> TraceFile {
        TraceFile {
            path,
            is_shared: true,
        }
    }

    /// Before a long search: whether the file can be written at all.
    ///
    /// # Errors
    ///
    /// The fault, in words.
    pub(super) fn check(&self) -> Result<(), String> {
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.path);
        file.map(drop).map_err(|e| self.complaint(&e))
    }

    fn complaint(&self, e: &io::Error) -> String {
        format!("the trace cannot be written to {:?}: {e}", self.path)
    }

    /// Writes the trace of a run, and adds to a failure where it is.
    ///
    /// # Panics
    ///
    /// If it cannot be written, and no run has failed.
    pub(super) fn write(
        &self,
        taken: &Taken,
        outcome: Result<Report, Failure>,
    ) -> Result<Report, Failure> {
        let mut failed = FAILED.lock().unwrap_or_else(PoisonError::into_inner);
        // The next test must not replace the trace that the user looks for.
        if self.is_shared && outcome.is_ok() && failed.contains(&self.path) {
            return outcome;
        }
        if self.is_shared && outcome.is_err() && !failed.contains(&self.path) {
            failed.push(self.path.clone());
        }
        let written = File::create(&self.path).and_then(|file| taken.run.write(file));
        let written = written.map_err(|e| self.complaint(&e));
        drop(failed);
        match (outcome, written) {
            (Ok(report), Ok(())) => Ok(report),
            (Ok(_), Err(complaint)) => panic!("windlass: {complaint}"),
            (Err(failure), Ok(())) => {
                let which = if taken.is_shorter {
                    "the shortest"
                } else {
                    "this"
                };
                let text = format!("the trace of {which} run is in {:?}", self.path);
                Err(failure.with_trace(text))
            }
            (Err(failure), Err(complaint)) => Err(failure.with_trace(complaint)),
        }
    }
}

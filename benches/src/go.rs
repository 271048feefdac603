//! Go's twins of the workloads: one program, `benches/go`, built where Go is installed.

use std::env;
use std::io;
use std::path::Path;
use std::process::Command;

/// The name of the program.
pub const PROGRAM: &str = "gobench";

/// Builds the program in a folder; false if there is no Go.
///
/// # Errors
///
/// If it does not compile.
pub fn build(folder: &Path) -> io::Result<bool> {
    if !is_there() {
        return Ok(false);
    }
    let status = Command::new("go")
        .args(["build", "-o"])
        .arg(folder.join(PROGRAM))
        .arg(".")
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/go"))
        .env("GOTOOLCHAIN", "local")
        .status()?;
    if status.success() {
        Ok(true)
    } else {
        Err(io::Error::other("go build failed"))
    }
}

/// Whether `go` is on the PATH.
pub fn is_there() -> bool {
    is_on_path("go")
}

/// Whether a program is on the PATH.
pub fn is_on_path(program: &str) -> bool {
    env::var_os("PATH")
        .is_some_and(|path| env::split_paths(&path).any(|folder| folder.join(program).is_file()))
}

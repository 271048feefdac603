//! Reads files that libhwloc parses in a child process.
//!
//! libhwloc trusts its XML: a file that lacks one attribute can crash it. A child that crashes is an
//! error message in the parent.

use std::{
    os::unix::process::ExitStatusExt as _,
    path::Path,
    process::{Command, ExitCode, Stdio},
};

use windlass_topology::Topology;

use super::Outcome;

/// The name of the hidden command that the child runs.
pub(crate) const READ_XML: &str = "read-xml";

/// Reads a file of hwloc's XML in a child process.
pub(crate) fn xml_file(path: &Path) -> Result<Topology, String> {
    // Works also where the program's file is gone.
    let mut child = Command::new("/proc/self/exe");
    child
        .args([READ_XML, "--"])
        .arg(path)
        .stdin(Stdio::null())
        .stderr(Stdio::null()); // libhwloc's own words
    let Ok(output) = child.output() else {
        // No process can be started here, or there is no /proc.
        return Topology::from_xml_file(path).map_err(|error| error.to_string());
    };
    let text = String::from_utf8_lossy(&output.stdout);
    match output.status.signal() {
        None if output.status.success() => {
            Topology::from_json(&text).map_err(|error| error.to_string())
        }
        None if !text.is_empty() => Err(text.into_owned()),
        signal => {
            let how = signal.map_or(String::new(), |signal| format!(" (signal {signal})"));
            let path = path.display();
            Err(format!(
                "libhwloc crashed{how} while it read {path}: the file is damaged, or of a newer \
                 version; lstopo --export-xml-flags v2 writes what all read"
            ))
        }
    }
}

/// The child's part: the machine as JSON, or the reason why there is none, on standard output.
pub(crate) fn read_xml(path: &Path) -> Outcome {
    let (text, code) = match Topology::from_xml_file(path) {
        Ok(topology) => (topology.to_json(), ExitCode::SUCCESS),
        Err(error) => (error.to_string(), ExitCode::from(2)),
    };
    Outcome {
        text: text.into_bytes(),
        code,
    }
}

//! Running other programs.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{
    Pid, Signal, WaitOptions, getpid, kill_process_group, set_child_subreaper, waitpgid,
};

/// The exit status of timeout(1) when it has ended the command.
const TOOK_TOO_LONG: i32 = 124;

/// From now on the processes that a child leaves behind become children of this process.
/// [`output_of`] waits for them, so what they have used counts as this program's.
///
/// # Errors
///
/// Those of prctl(2).
pub fn adopt_orphans() -> io::Result<()> {
    Ok(set_child_subreaper(Some(getpid()))?)
}

/// A command on these CPUs.
pub fn pinned(cpus: Option<&str>, program: &Path) -> Command {
    match cpus {
        Some(cpus) => {
            let mut command = Command::new("taskset");
            command.args(["--cpu-list", cpus]).arg(program);
            command
        }
        None => Command::new(program),
    }
}

/// A command on these CPUs that is ended if it takes longer.
pub fn limited(seconds: u64, cpus: Option<&str>, program: &Path) -> Command {
    let inner = pinned(cpus, program);
    let mut command = Command::new("timeout");
    command
        .arg(seconds.to_string())
        .arg(inner.get_program())
        .args(inner.get_args());
    command
}

/// The text that a command has written to stdout.
///
/// # Errors
///
/// If it cannot be run, fails, or took longer than [`limited`] lets it. Then what it has started is
/// ended, too.
pub fn output_of(command: &mut Command) -> io::Result<String> {
    command.stdout(Stdio::piped()).stderr(Stdio::inherit());
    let child = command.spawn()?;
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let output = child.wait_with_output()?;
    if !output.status.success() {
        let reason = match output.status.code() {
            Some(TOOK_TOO_LONG) => {
                if let Some(group) = group {
                    reap(group);
                }
                "took too long".to_owned()
            }
            _ => output.status.to_string(),
        };
        return Err(io::Error::other(reason));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Ends the processes that a command of [`limited`] has left when it was ended, such as the server
/// of a client, and waits for them.
fn reap(group: Pid) {
    // If they are gone, there is nothing to end.
    let _ = kill_process_group(group, Signal::KILL);
    while waitpgid(group, WaitOptions::empty()).is_ok() {}
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Clock ticks of CPU time of the children that were waited for: fields 16 and 17 of
    /// proc_pid_stat(5).
    fn ticks_of_children() -> u64 {
        let stat = fs::read_to_string("/proc/self/stat").unwrap();
        let (_, fields) = stat.rsplit_once(')').unwrap();
        let ticks = fields.split_ascii_whitespace().skip(13).take(2);
        ticks.map(|n| n.parse::<u64>().unwrap()).sum()
    }

    #[test]
    fn what_a_command_leaves_is_ended_and_counts() {
        adopt_orphans().unwrap();
        let before = ticks_of_children();
        // It does not wait for its child, which does not heed the signal.
        let script = "(trap '' TERM; while :; do :; done) >/dev/null & exec sleep 100";
        let mut command = limited(1, None, Path::new("sh"));
        let error = output_of(command.args(["-c", script])).unwrap_err();
        assert_eq!(error.to_string(), "took too long");
        assert!(ticks_of_children() > before + 5);
    }

    #[test]
    fn output_and_failures_come_back() {
        let mut command = limited(100, None, Path::new("echo"));
        assert_eq!(output_of(command.arg("word")).unwrap(), "word\n");
        let failed = output_of(&mut pinned(None, Path::new("false"))).unwrap_err();
        assert_eq!(failed.to_string(), "exit status: 1");
    }
}

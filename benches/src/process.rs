//! Memory and CPU time of a process, from the kernel.

use std::fs;
use std::io;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The bytes of this process that are in memory.
///
/// # Errors
///
/// If `/proc` is not there or does not read as proc(5) says.
pub fn resident_bytes() -> io::Result<u64> {
    resident_bytes_of(std::process::id())
}

/// The bytes of the process `pid` that are in memory.
///
/// # Errors
///
/// If there is no such process, or `/proc` does not read as proc(5) says.
pub fn resident_bytes_of(pid: u32) -> io::Result<u64> {
    status_bytes(pid, "VmRSS:")
}

/// The bytes of page tables of this process, which are in no other count.
///
/// # Errors
///
/// As [`resident_bytes`].
pub fn page_table_bytes() -> io::Result<u64> {
    status_bytes(std::process::id(), "VmPTE:")
}

fn status_bytes(pid: u32, name: &str) -> io::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let kib: Option<u64> = status
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .and_then(|rest| rest.trim().strip_suffix(" kB"))
        .and_then(|kib| kib.parse().ok());
    kib.map(|kib| kib * 1024)
        .ok_or_else(|| io::Error::other(format!("no {name} in /proc/PID/status")))
}

/// CPU time that this process has used so far, with all its threads, to the ns.
pub fn own_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// CPU time a process has used so far, with all its threads.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuTime {
    /// In user mode.
    pub user: Duration,
    /// In the kernel.
    pub system: Duration,
}

impl CpuTime {
    /// Of the process `pid`; the kernel counts in hundredths of a second.
    ///
    /// # Errors
    ///
    /// If there is no such process.
    pub fn of(pid: u32) -> io::Result<CpuTime> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        parse_stat(&stat).ok_or_else(|| io::Error::other("no CPU times in /proc/PID/stat"))
    }

    /// Both together.
    pub fn total(self) -> Duration {
        self.user + self.system
    }

    /// The time used since `earlier`.
    pub fn since(self, earlier: CpuTime) -> CpuTime {
        CpuTime {
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
        }
    }
}

/// CPU time that the threads which a process has now have used so far, to the ns.
///
/// # Errors
///
/// If there is no such process, or `/proc/PID/task/TID/schedstat` does not read as the kernel's
/// `sched-stats.rst` says.
pub fn run_time(pid: u32) -> io::Result<Duration> {
    let mut total = Duration::ZERO;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        // One that has ended meanwhile is left out.
        let Ok(stat) = fs::read_to_string(thread?.path().join("schedstat")) else {
            continue;
        };
        let ns = stat
            .split_ascii_whitespace()
            .next()
            .and_then(|ns| ns.parse().ok());
        total += Duration::from_nanos(ns.ok_or_else(|| io::Error::other("no schedstat"))?);
    }
    Ok(total)
}

/// Fields 14 and 15 of proc_pid_stat(5). Field 2, the name, is in brackets and may
/// hold anything, so the count begins after the last bracket, with field 3.
fn parse_stat(stat: &str) -> Option<CpuTime> {
    const TICK: Duration = Duration::from_millis(10); // USER_HZ is 100 on every Linux
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(14 - 3);
    let mut next = || -> Option<Duration> { Some(TICK * fields.next()?.parse().ok()?) };
    Some(CpuTime {
        user: next()?,
        system: next()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_and_spaces_is_skipped() {
        let stat = "7 (a) b (c) R 1 2 3 4 5 6 7 8 9 10 250 31 0 0 20 0";
        let time = parse_stat(stat).unwrap();
        assert_eq!(time.user, Duration::from_millis(2500));
        assert_eq!(time.system, Duration::from_millis(310));
    }

    #[test]
    fn this_process_has_memory_and_time() {
        assert!(resident_bytes().unwrap() > 100_000);
        assert!(own_cpu_time() > Duration::ZERO);
        assert!(CpuTime::of(std::process::id()).is_ok());
        assert!(CpuTime::of(u32::MAX).is_err());
        assert!(run_time(std::process::id()).unwrap() > Duration::ZERO);
        assert!(run_time(u32::MAX).is_err());
    }
}

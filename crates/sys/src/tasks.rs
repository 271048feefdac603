//! The threads of this process, by `/proc/self/task`.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::futex;

/// The directory with an entry for each thread.
const TASKS: &str = "/proc/self/task";

/// Whether each thread of the process is one of which `is_known` says so by its id, or an io_uring worker of the
/// kernel. `false` if that cannot be known.
#[must_use]
pub fn are_all(is_known: impl Fn(i32) -> bool) -> bool {
    let Ok(entries) = std::fs::read_dir(TASKS) else {
        return false;
    };
    let mut n_listed = 0;
    let only_known = entries.into_iter().all(|entry| {
        n_listed += 1;
        let Ok(entry) = entry else { return false };
        let tid = entry.file_name().to_string_lossy().parse().unwrap_or(0);
        tid > 0 && is_known(tid) || is_ring_worker(&entry.path())
    });
    only_known && is_complete(n_listed)
}

/// How often a thread was switched, if it waits for another thread now.
#[must_use]
pub fn switches_if_it_waits(tid: i32) -> Option<u64> {
    let read = |file: &str| std::fs::read_to_string(format!("{TASKS}/{tid}/{file}"));
    let waits = match read("syscall") {
        // The number of the call, or `running`.
        Ok(call) => call.split_whitespace().next()? == futex::NUMBER.to_string(),
        // A kernel without this file. A thread that sleeps may wait for something else.
        Err(_) => is_asleep(tid)?,
    };
    let status = read("status").ok().filter(|_| waits)?;
    let switches = status.lines().filter_map(|line| {
        let (name, n) = line.split_once(':')?;
        let n = n.trim().parse::<u64>().ok()?;
        name.ends_with("voluntary_ctxt_switches").then_some(n)
    });
    Some(switches.sum())
}

/// Whether a thread waits in the kernel, if that can be known.
#[must_use]
pub fn is_asleep(tid: i32) -> Option<bool> {
    let stat = std::fs::read_to_string(format!("{TASKS}/{tid}/stat")).ok()?;
    Some(stat_field(&stat, 0)? == "S")
}

/// A field of a `stat` file, counted from that behind the name.
fn stat_field(stat: &str, n: usize) -> Option<&str> {
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(n)
}

/// Whether a list of so many threads has all of them. The kernel ends a listing early if the thread
/// that it has come to ends.
fn is_complete(n_listed: u64) -> bool {
    // The links are `.`, `..` and one for each thread.
    std::fs::metadata(TASKS).is_ok_and(|tasks| tasks.nlink() <= n_listed + 2)
}

/// Whether a thread is an io_uring worker, which the kernel created and which runs no code of the
/// process.
fn is_ring_worker(task: &Path) -> bool {
    // The thread has ended meanwhile.
    let Ok(stat) = std::fs::read_to_string(task.join("stat")) else {
        return true;
    };
    // PF_IO_WORKER (include/linux/sched.h) in the flags, which are the seventh field after the
    // name.
    const PF_IO_WORKER: u64 = 0x10;
    let flags = stat_field(&stat, 6).and_then(|f| f.parse::<u64>().ok());
    flags.is_some_and(|flags| flags & PF_IO_WORKER != 0)
}

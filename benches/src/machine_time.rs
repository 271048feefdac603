//! CPU time of the machine that went to others than this program.

use std::fs;
use std::io;

/// CPU time in ticks since the machine's start.
#[derive(Clone, Copy, Debug)]
pub struct MachineTime {
    /// Of all CPUs, idle or not.
    all: u64,
    /// Time of programs, in and outside of the kernel.
    used: u64,
    /// Time that the host took.
    steal: u64,
    /// Time of this program and of its children that have ended.
    ours: u64,
}

/// Shares of the CPU time of a while.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shares {
    /// The part that the host took.
    pub steal: f64,
    /// The part that other programs used: all but this one and its children.
    pub others: f64,
}

impl MachineTime {
    /// Until now.
    ///
    /// # Errors
    ///
    /// Those of reading proc(5).
    pub fn now() -> io::Result<MachineTime> {
        let machine = fs::read_to_string("/proc/stat")?;
        let process = fs::read_to_string("/proc/self/stat")?;
        Ok(MachineTime::parse(&machine, &process))
    }

    fn parse(machine: &str, process: &str) -> MachineTime {
        let numbers = |text: &str, skip, take| -> Vec<u64> {
            let words = text.split_ascii_whitespace().skip(skip).take(take);
            words.filter_map(|word| word.parse().ok()).collect()
        };
        // proc_stat(5): user, nice, system, idle, iowait, irq, softirq, steal; what follows is
        // counted in these already. Interrupts are nobody's.
        let cpu = numbers(machine.lines().next().unwrap_or_default(), 1, 8);
        // proc_pid_stat(5): the name ends with the last bracket; utime, stime, cutime and cstime
        // are fields 14 to 17.
        let fields = process.rsplit_once(')').map_or("", |(_, fields)| fields);
        let at = |i: usize| cpu.get(i).copied().unwrap_or(0);
        MachineTime {
            all: cpu.iter().sum(),
            used: at(0) + at(1) + at(2),
            steal: at(7),
            ours: numbers(fields, 11, 4).iter().sum(),
        }
    }

    /// The shares since an earlier time.
    pub fn since(self, earlier: MachineTime) -> Shares {
        let all = self.all.saturating_sub(earlier.all).max(1) as f64;
        let used = self.used.saturating_sub(earlier.used);
        let ours = self.ours.saturating_sub(earlier.ours);
        Shares {
            steal: self.steal.saturating_sub(earlier.steal) as f64 / all,
            others: used.saturating_sub(ours) as f64 / all,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_work_of_others_is_what_is_not_ours() {
        let process = |ours: &str| format!("7 (a ) b) S 1 7 7 0 -1 0 0 0 0 0 {ours} 20 0");
        let before = MachineTime::parse("cpu  10 0 10 100 0 0 0 0 0 0\n", &process("1 2 3 4"));
        let after = MachineTime::parse("cpu  50 10 20 150 5 3 2 40 0 0\n", &process("11 2 13 4"));
        let shares = after.since(before);
        assert_eq!(shares.steal, 40.0 / 160.0);
        assert_eq!(
            shares.others,
            40.0 / 160.0,
            "60 ticks were used, 20 of them by us"
        );
    }

    #[test]
    fn this_machine_has_such_times() {
        let now = MachineTime::now().unwrap();
        assert!(now.all > 0);
        assert!(now.ours <= now.all);
    }
}

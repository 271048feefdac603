//! Whether memory is short: the kernel counts how long tasks wait for it (pressure stall information).

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Memory counts as short if some task waited for 1/`SHORT_FROM` of the time.
const SHORT_FROM: u64 = 100;

/// The readings of a file of pressure, as `/proc/pressure/memory`.
#[derive(Debug)]
pub struct Pressure {
    file: Option<File>,
    /// The least time between two readings.
    every_ns: u64,
    /// When it was read last, and the µs of waiting then.
    last: Option<(u64, u64)>,
}

impl Pressure {
    /// Opens a file of pressure, to be read once in `every_ns` at most. One that cannot be read says that memory is not
    /// short.
    pub fn open(path: Option<&Path>, every_ns: u64) -> Pressure {
        Pressure {
            file: path.and_then(|path| File::open(path).ok()),
            every_ns,
            last: None,
        }
    }

    /// Reads the file, if it is time to. Whether some task waited for memory in a hundredth of the time since the last reading. If that is
    /// long ago, the sum says nothing of now.
    pub fn is_high(&mut self, now_ns: u64) -> bool {
        let since_ns = self.last.map(|(at_ns, _)| now_ns.saturating_sub(at_ns));
        if since_ns.is_some_and(|since_ns| since_ns < self.every_ns) {
            return false;
        }
        let Some(total_us) = self.read() else {
            return false;
        };
        let last = self.last.replace((now_ns, total_us));
        let last = last.filter(|_| since_ns.is_some_and(|ns| ns <= 2 * self.every_ns));
        last.is_some_and(|last| is_short(last, (now_ns, total_us)))
    }

    fn read(&self) -> Option<u64> {
        let mut text = [0; 256];
        let n = self.file.as_ref()?.read_at(&mut text, 0).ok()?;
        total_us(std::str::from_utf8(&text[..n]).ok()?)
    }
}

/// The sum in the line `some avg10=0.00 avg60=0.00 avg300=0.00 total=5773753`.
fn total_us(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with("some "))?;
    let (_, total) = line.split_once("total=")?;
    total.parse().ok()
}

/// From one reading, a time in ns and a sum in µs, to the next.
fn is_short(before: (u64, u64), now: (u64, u64)) -> bool {
    let waited_ns = now.1.saturating_sub(before.1).saturating_mul(1000);
    waited_ns > 0 && waited_ns >= now.0.saturating_sub(before.0) / SHORT_FROM
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_of_some_is_read() {
        let text = "some avg10=0.00 avg60=0.00 avg300=0.00 total=5773753\n\
                    full avg10=0.00 avg60=0.00 avg300=0.00 total=846862\n";
        assert_eq!(total_us(text), Some(5_773_753));
        assert_eq!(total_us("full total=1\n"), None);
        assert_eq!(total_us("some total=x\n"), None);
    }

    #[test]
    fn a_hundredth_of_the_time_is_much() {
        let second = 1_000_000_000;
        assert!(is_short((0, 0), (second, 10_000)));
        assert!(!is_short((0, 0), (second, 9_999)));
        assert!(!is_short((5, 7), (5, 7)));
    }

    #[test]
    fn without_a_file_memory_is_not_short() {
        let mut none = Pressure::open(None, 0);
        assert!(!none.is_high(0) && !none.is_high(1_000_000_000));
        let missing = Path::new("/proc/no/such/file");
        assert!(!Pressure::open(Some(missing), 0).is_high(1));
    }
}

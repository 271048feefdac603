//! How far a run is, on the standard error: a line that is drawn anew in a terminal, elsewhere a line
//! for each bench.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use super::Bench;

/// A run of benches that take about so long.
#[derive(Debug)]
pub struct Progress {
    takes: Vec<Duration>,
    /// How many have begun.
    begun: usize,
    now: String,
    since: Instant,
    in_terminal: bool,
}

impl Progress {
    /// Nothing has begun.
    pub fn new(takes: &[Duration]) -> Progress {
        Progress {
            takes: takes.to_vec(),
            begun: 0,
            now: String::new(),
            since: Instant::now(),
            in_terminal: io::stderr().is_terminal(),
        }
    }

    /// The next bench begins.
    pub fn begin(&mut self, bench: &Bench) {
        self.begun += 1;
        let (number, all) = (self.begun, self.takes.len());
        let seconds = self.takes.get(number - 1).map_or(0, Duration::as_secs);
        self.now = format!(
            "{number} of {all}: {}, {}, {seconds} s",
            bench.name, bench.about
        );
        self.since = Instant::now();
        if !self.in_terminal {
            let left = self.left(Duration::ZERO).as_secs();
            eprintln!("bench {}; about {left} s left in all", self.now);
        }
    }

    /// How long all that is not over will take, so long after the last bench began.
    fn left(&self, ago: Duration) -> Duration {
        let running = self.begun.saturating_sub(1);
        let current = self.takes.get(running).copied().unwrap_or_default();
        let others: Duration = self.takes.iter().skip(self.begun).sum();
        current.saturating_sub(ago) + others
    }

    /// Draws the line, in a terminal.
    pub fn draw(&self) {
        if !self.in_terminal {
            return;
        }
        let all: Duration = self.takes.iter().sum();
        let left = self.left(self.since.elapsed());
        let part = 1.0 - left.as_secs_f64() / all.as_secs_f64().max(1e-9);
        let text = format!("{}; about {} s left", self.now, left.as_secs());
        redraw(&bar(part, &text));
    }

    /// The screen is free again.
    pub fn end(&self) {
        if self.in_terminal {
            redraw("");
        }
    }
}

/// Puts this in the place of the terminal's last line.
pub fn redraw(line: &str) {
    // A failed write loses only the line.
    let _ = write!(io::stderr(), "\r\x1b[K{line}");
}

/// A bar that is filled to this part, and what goes with it.
pub fn bar(part: f64, text: &str) -> String {
    const WIDTH: usize = 20;
    let part = part.clamp(0.0, 1.0);
    let filled = (part * WIDTH as f64) as usize;
    let (done, to_do) = ("#".repeat(filled), "-".repeat(WIDTH - filled));
    format!("[{done}{to_do}] {:3.0} % {text}", part * 100.0)
}

#[cfg(test)]
mod tests {
    use super::super::BENCHES;
    use super::*;

    #[test]
    fn the_line_says_what_runs_and_how_long_it_takes() {
        let mut progress = Progress::new(&[Duration::from_secs(12), Duration::from_secs(30)]);
        progress.begin(&BENCHES[0]);
        assert_eq!(
            progress.now,
            "1 of 2: yield, giving way with full run queues, 12 s"
        );
        assert_eq!(progress.left(Duration::from_secs(5)).as_secs(), 37);
        progress.begin(&BENCHES[1]);
        assert_eq!(progress.left(Duration::from_secs(20)).as_secs(), 10);
        assert_eq!(
            progress.left(Duration::from_secs(99)).as_secs(),
            0,
            "it is late"
        );
    }

    #[test]
    fn a_bar_is_filled_by_its_part() {
        assert_eq!(bar(0.25, "echo"), "[#####---------------]  25 % echo");
        assert_eq!(bar(7.0, "echo"), "[####################] 100 % echo");
    }
}

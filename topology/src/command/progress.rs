//! A bar on the terminal for what takes seconds.

use std::io::{self, IsTerminal as _, Write as _};

const WIDTH: usize = 30;

/// A bar on standard error; nothing where that is no terminal.
pub(crate) struct Bar {
    what: &'static str,
    is_shown: bool,
}

impl Bar {
    pub(crate) fn new(what: &'static str) -> Self {
        Self {
            what,
            is_shown: io::stderr().is_terminal(),
        }
    }

    /// Draws it anew over itself, and wipes it away at the end.
    pub(crate) fn show(&mut self, done: usize, all: usize) {
        if self.is_shown {
            // A terminal that cannot be written to needs no bar.
            let _ = write!(io::stderr(), "\r{}", line(self.what, done, all));
            let _ = io::stderr().flush();
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if self.is_shown {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

fn line(what: &str, done: usize, all: usize) -> String {
    let filled = (done * WIDTH).checked_div(all).unwrap_or(WIDTH);
    let (bar, rest) = ("#".repeat(filled), " ".repeat(WIDTH - filled));
    format!("[{bar}{rest}] {done}/{all} {what}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_fills() {
        assert_eq!(
            line("pairs", 0, 4),
            format!("[{}] 0/4 pairs", " ".repeat(30))
        );
        assert!(line("pairs", 2, 4).starts_with("[###############  "));
        assert_eq!(
            line("pairs", 4, 4),
            format!("[{}] 4/4 pairs", "#".repeat(30))
        );
        assert_eq!(
            line("pairs", 0, 0),
            format!("[{}] 0/0 pairs", "#".repeat(30))
        );
    }
}

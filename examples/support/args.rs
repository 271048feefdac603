//! Command lines of the form `--name value`.

use std::fmt::Display;
use std::process::exit;
use std::str::FromStr;

/// The options that have not been taken yet.
pub(crate) struct Args {
    usage: &'static str,
    pairs: Vec<(String, String)>,
}

impl Args {
    /// Reads the process's command line. `--help` prints the usage and ends the process. A line of
    /// another form ends it with status 2.
    pub(crate) fn of_process(usage: &'static str) -> Args {
        Args::of_words(usage, std::env::args().skip(1))
    }

    /// As [`of_process`](Args::of_process), with other words.
    #[expect(clippy::print_stdout, reason = "asked for by the user")]
    pub(crate) fn of_words(usage: &'static str, mut words: impl Iterator<Item = String>) -> Args {
        let mut args = Args {
            usage,
            pairs: Vec::new(),
        };
        while let Some(name) = words.next() {
            if name == "--help" || name == "-h" {
                println!("{usage}");
                exit(0);
            }
            let value = words
                .next()
                .unwrap_or_else(|| args.fail(format_args!("{name}: no value")));
            args.pairs.push((name, value));
        }
        args
    }

    /// Takes the value of an option, if it was given.
    pub(crate) fn optional<T: FromStr>(&mut self, name: &str) -> Option<T> {
        let position = self.pairs.iter().position(|(given, _)| given == name)?;
        let (_, value) = self.pairs.remove(position);
        let parsed = value.parse().ok();
        Some(parsed.unwrap_or_else(|| self.fail(format_args!("{name}: {value:?} will not do"))))
    }

    /// Takes the value of an option, or the default.
    pub(crate) fn value<T: FromStr>(&mut self, name: &str, default: T) -> T {
        self.optional(name).unwrap_or(default)
    }

    /// Ends the process if there is an option that was not taken.
    pub(crate) fn finish(self) {
        if let Some((name, _)) = self.pairs.first() {
            self.fail(format_args!("{name}: not known, or given twice"));
        }
    }

    fn fail(&self, why: impl Display) -> ! {
        eprintln!("{why}\n{}", self.usage);
        exit(2)
    }
}

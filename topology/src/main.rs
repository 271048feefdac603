//! `windlass-topology`: shows a machine, and where the Ps of a runtime would go on it.

mod command;

use std::{
    io::{self, Write as _},
    process::ExitCode,
};

use clap::Parser as _;

fn main() -> ExitCode {
    let cli = match command::args::Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() => return refuse(&one_line(&error.to_string())),
        Err(help_or_version) => help_or_version.exit(),
    };
    let result = command::run(cli).and_then(|outcome| {
        print(&outcome.text)?;
        Ok(outcome.code)
    });
    result.unwrap_or_else(|message| refuse(&message))
}

/// One line for the user, and the exit code of bad input.
fn refuse(message: &str) -> ExitCode {
    // Nobody is left to tell when standard error is closed too.
    let _ = writeln!(io::stderr(), "windlass-topology: {message}");
    ExitCode::from(2)
}

/// What clap says in several lines: its first paragraph, and where help is.
fn one_line(message: &str) -> String {
    let paragraph = message.split("\n\n").next().unwrap_or(message);
    let words: Vec<&str> = paragraph.split_whitespace().collect();
    let words = words.join(" ");
    let words = words.strip_prefix("error: ").unwrap_or(&words);
    format!("{words}; see --help")
}

/// Writes to standard output. A reader that has seen enough (`| head`) is no error: `false`.
fn print(text: &[u8]) -> Result<bool, String> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(format!("cannot write to standard output: {error}"))
        }
        written => Ok(written.is_ok()),
    }
}

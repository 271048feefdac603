//! `windlass-topology`: shows a machine, and where the Ps of a runtime would go on it.

mod command;

use std::{
    io::{self, Write as _},
    process::ExitCode,
};

use clap::{
    Parser as _,
    error::{ContextKind, ContextValue, ErrorKind},
};

fn main() -> ExitCode {
    let cli = match command::args::Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() => return refuse(&one_line(&error)),
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
    // Names of files and words of strangers do not command the terminal.
    let message = message.replace(|c: char| c.is_control() && c != '\n', "\u{fffd}");
    // If standard error is closed too, the exit code has to do.
    let _ = writeln!(io::stderr(), "windlass-topology: {message}");
    ExitCode::from(2)
}

/// The error of clap in one line: its first paragraph, what was meant most likely, and where help is.
fn one_line(error: &clap::Error) -> String {
    let message = error.to_string();
    let paragraph = message.split("\n\n").next().unwrap_or(&message);
    let words: Vec<&str> = paragraph.split_whitespace().collect();
    let words = words.join(" ");
    let words = words.strip_prefix("error: ").unwrap_or(&words);
    match suggestion(error) {
        Some(suggestion) => format!("{words}; did you mean '{suggestion}'? See --help"),
        None => format!("{words}; see --help"),
    }
}

/// The word that was probably meant by an unknown one.
fn suggestion(error: &clap::Error) -> Option<String> {
    let text = |kind| match error.get(kind)? {
        ContextValue::String(text) => Some(text.clone()),
        ContextValue::Strings(texts) => texts.first().cloned(),
        _ => None,
    };
    let formats = ["json", "svg", "dot", "text"];
    let unknown =
        text(ContextKind::InvalidArg).filter(|_| error.kind() == ErrorKind::UnknownArgument);
    let format = unknown.and_then(|word| formats.into_iter().find(|f| word == format!("--{f}")));
    format
        .map(|format| format!("--format {format}"))
        .or_else(|| text(ContextKind::SuggestedSubcommand))
        .or_else(|| text(ContextKind::SuggestedArg))
        .or_else(|| text(ContextKind::SuggestedValue))
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

//! Arguments of the benches, where a wrong one gets one line.

use std::env;
use std::ffi::OsString;
use std::process;

use clap::Parser;
use clap::error::ErrorKind;

/// The arguments of this program. It ends here if they ask for help, or if one is wrong.
pub fn parse<A: Parser>() -> A {
    read(env::args_os()).unwrap_or_else(|e| match e {
        Wrong::Asked(e) => e.exit(),
        Wrong::Because(line) => refuse(&line),
    })
}

/// Ends the program with one line that says why.
pub fn refuse(why: &str) -> ! {
    eprintln!("{why}");
    process::exit(2)
}

/// Why there are no arguments.
#[derive(Debug)]
pub enum Wrong {
    /// Help was asked for.
    Asked(clap::Error),
    /// One of them is wrong: the line that says which.
    Because(String),
}

/// Of a command line.
///
/// # Errors
///
/// See [`Wrong`].
pub fn read<A: Parser>(words: impl IntoIterator<Item = OsString>) -> Result<A, Wrong> {
    A::try_parse_from(words).map_err(|e| match e.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Wrong::Asked(e),
        _ => Wrong::Because(one_line(&e.to_string())),
    })
}

/// The first line of a message of clap's, which goes on with hints.
fn one_line(message: &str) -> String {
    let line = message.lines().next().unwrap_or_default();
    let line = line.strip_prefix("error: ").unwrap_or(line);
    format!("{line}; --help lists the arguments")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Parser)]
    struct Args {
        #[arg(long, default_value_t = 1)]
        rounds: usize,
    }

    fn line(words: &[&str]) -> String {
        let words = ["bench"].iter().chain(words).map(OsString::from);
        match read::<Args>(words) {
            Ok(args) => format!("{} rounds", args.rounds),
            Err(Wrong::Because(line)) => line,
            Err(Wrong::Asked(e)) => format!("help: {:?}", e.kind()),
        }
    }

    #[test]
    fn a_wrong_argument_gets_one_line() {
        assert_eq!(line(&["--rounds", "3"]), "3 rounds");
        assert_eq!(
            line(&["--round", "3"]),
            "unexpected argument '--round' found; --help lists the arguments"
        );
        assert_eq!(
            line(&["--rounds", "many"]),
            "invalid value 'many' for '--rounds <ROUNDS>': invalid digit found in string; --help lists the arguments"
        );
        assert_eq!(line(&["--help"]), "help: DisplayHelp");
    }
}

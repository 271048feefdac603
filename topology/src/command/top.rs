//! Looks at a running program again and again.

use std::{
    io::{self, IsTerminal as _},
    thread,
};

use windlass_topology::{live::Live, render};

use super::args::{self, Format};
use crate::print;

/// Puts the cursor into the corner and wipes what is there.
const HOME: &str = "\x1b[H\x1b[J";

/// Shows screens as they come. Gives what is left to say.
///
/// # Errors
///
/// If the first look fails, or standard output does.
pub(super) fn top(args: &args::Top) -> Result<String, String> {
    let look = || Live::read(args.pid);
    let mut before = look().map_err(|error| error.to_string())?;
    let text = matches!(args.look.format, Format::Text);
    let is_screen = text && io::stdout().is_terminal();
    let mut n_shown = 0;
    if !text && !print(before.to_json().as_bytes())? {
        return Ok(String::new());
    }
    n_shown += u64::from(!text);
    while args.count.is_none_or(|count| n_shown < count) {
        thread::sleep(args.interval);
        let now = match look() {
            Ok(now) => now,
            Err(error) if error.kind() == io::ErrorKind::NotFound => break,
            Err(error) => return Err(error.to_string()),
        };
        let frame = if text {
            render::live(&before, &now, args.look.paint())
        } else {
            now.to_json()
        };
        let wipe = if is_screen { HOME } else { "" };
        if !print(format!("{wipe}{frame}").as_bytes())? {
            break;
        }
        n_shown += 1;
        before = now;
    }
    Ok(String::new())
}

//! The text of a schedule: its choices with commas between them, `1x3` for three times 1.

use std::fmt;
use std::num::ParseIntError;

/// Text has no more choices than this: a wrong digit must not take all memory.
const MOST_CHOICES: usize = 100_000_000;

/// Writes choices.
pub fn write(f: &mut fmt::Formatter<'_>, choices: &[u32]) -> fmt::Result {
    if choices.is_empty() {
        return f.write_str("0");
    }
    for (at, same) in choices.chunk_by(|a, b| a == b).enumerate() {
        let comma = if at == 0 { "" } else { "," };
        match same.len() {
            1 => write!(f, "{comma}{}", same[0])?,
            n => write!(f, "{comma}{}x{n}", same[0])?,
        }
    }
    Ok(())
}

/// Reads choices. An error says that a part is no number, or that there are too many.
pub fn parse(text: &str) -> Result<Vec<u32>, ParseIntError> {
    let mut choices = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (choice, n) = part.split_once('x').unwrap_or((part, "1"));
        let n: usize = n.parse()?;
        if choices.len().saturating_add(n) > MOST_CHOICES {
            // The error of a number that is too large.
            return Err("256".parse::<u8>().expect_err("255 is the largest"));
        }
        choices.extend(std::iter::repeat_n(choice.parse::<u32>()?, n));
    }
    Ok(choices)
}

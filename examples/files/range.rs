//! The header `Range`.

use std::ops::Range;

/// The requested part of a page.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part {
    All,
    /// A range inside the page, not empty.
    Bytes(Range<u64>),
    /// A range that lies wholly behind its end.
    None,
}

/// Parses `bytes=1-5`, `bytes=5-` and `bytes=-5` (the last five) for a page of `len` bytes. For a
/// malformed range, another unit or several parts, the whole page is served, as the standard
/// allows.
pub(super) fn parse(value: &[u8], len: u64) -> Part {
    let Some(part) = parse_one(value) else {
        return Part::All;
    };
    let (begin, end) = match part {
        (None, None) => return Part::All,
        (None, Some(n)) => (len - n.min(len), len),
        (Some(first), None) => (first, len),
        (Some(first), Some(last)) if first <= last => (first, last.saturating_add(1).min(len)),
        (Some(_), Some(_)) => return Part::All,
    };
    match begin < end {
        true => Part::Bytes(begin..end),
        false => Part::None,
    }
}

/// The numbers before and after the dash.
fn parse_one(value: &[u8]) -> Option<(Option<u64>, Option<u64>)> {
    let text = std::str::from_utf8(value).ok()?;
    let (unit, part) = text.split_once('=')?;
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return None;
    }
    let (first, last) = part.trim().split_once('-')?;
    Some((number(first)?, number(last)?))
}

/// A number; `None` for no digits; one that is too large becomes the maximum.
fn number(digits: &str) -> Option<Option<u64>> {
    if digits.is_empty() {
        return Some(None);
    }
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    Some(Some(digits.parse().unwrap_or(u64::MAX)))
}

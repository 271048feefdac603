//! Requests: arrays of bulk strings, or words in a line.
//!
//! When more bytes arrive, the parser continues where it stopped. So a request that arrives byte by
//! byte costs no more than one that arrives whole. The parser stores no bytes, and does not trust
//! lengths: memory is allocated for bytes received, not for bytes announced.

use std::fmt;
use std::ops::{Index, Range};

/// The longest request.
pub(super) const MAX_REQUEST_BYTES: usize = 64 << 20;
/// The longest line.
const MAX_LINE_BYTES: usize = 64 << 10;
/// The most words of a request.
const MAX_ARGS: i64 = 1 << 20;

/// Why a request is invalid. The texts are those of Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Malformed {
    Line,
    Count,
    Length,
    /// A bulk string must start here, and something else does.
    Type(u8),
    /// A bulk string without a line end.
    Unterminated,
    TooLong,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Malformed::Line => "too big inline request",
            Malformed::Count => "invalid multibulk length",
            Malformed::Length => "invalid bulk length",
            Malformed::Type(b) => {
                return write!(f, "expected '$', got '{}'", b.escape_ascii());
            }
            Malformed::Unterminated => "expected a line end behind a bulk string",
            Malformed::TooLong => "too big request",
        };
        f.write_str(text)
    }
}

/// The progress of parsing the request at the start of a buffer. Positions are relative to the
/// request's first byte.
#[derive(Debug, Default)]
pub(super) struct Parser {
    args: Vec<Range<usize>>,
    /// Everything before this is parsed.
    at: usize,
    /// There is no line end between `at` and this.
    searched: usize,
    /// The number of arguments still to come, if the request is an array.
    n_left: Option<usize>,
    /// The length of the bulk string that begins at `at`.
    bulk_bytes: Option<usize>,
}

impl Parser {
    /// Continues parsing `bytes`, which begin with the request. Returns the request's length once
    /// it is complete; it may have no arguments at all.
    pub(super) fn advance(&mut self, bytes: &[u8]) -> Result<Option<usize>, Malformed> {
        if self.n_left.is_none() {
            match bytes.first() {
                None => return Ok(None),
                Some(b'*') => {
                    let Some(count) = self.line(bytes)? else {
                        return Ok(None);
                    };
                    let n = number(&bytes[count]).filter(|&n| n <= MAX_ARGS);
                    let n = n.ok_or(Malformed::Count)?;
                    self.n_left = Some(usize::try_from(n).unwrap_or(0));
                }
                Some(_) => return self.words(bytes),
            }
        }
        while self.n_left > Some(0) {
            if !self.bulk(bytes)? {
                return Ok(None);
            }
            self.n_left = self.n_left.map(|n| n - 1);
        }
        Ok(Some(self.at))
    }

    /// The arguments of a complete request.
    pub(super) fn args<'a>(&'a self, bytes: &'a [u8]) -> Args<'a> {
        Args {
            bytes,
            places: &self.args,
        }
    }

    /// Starts with the next request.
    pub(super) fn reset(&mut self) {
        self.args.clear();
        self.args.shrink_to(1024);
        self.at = 0;
        self.searched = 0;
        self.n_left = None;
        self.bulk_bytes = None;
    }

    /// Parses one bulk string, if all of it has arrived.
    fn bulk(&mut self, bytes: &[u8]) -> Result<bool, Malformed> {
        let n_bytes = match self.bulk_bytes {
            Some(n) => n,
            None => {
                match bytes.get(self.at) {
                    None => return Ok(false),
                    Some(b'$') => {}
                    Some(&other) => return Err(Malformed::Type(other)),
                }
                let Some(length) = self.line(bytes)? else {
                    return Ok(false);
                };
                let n = number(&bytes[length]).and_then(|n| usize::try_from(n).ok());
                let n = n.filter(|&n| n <= MAX_REQUEST_BYTES);
                *self.bulk_bytes.insert(n.ok_or(Malformed::Length)?)
            }
        };
        let end = self.at + n_bytes;
        if end + 2 > MAX_REQUEST_BYTES {
            return Err(Malformed::TooLong);
        }
        match bytes.get(end..end + 2) {
            None => return Ok(false),
            Some(b"\r\n") => {}
            Some(_) => return Err(Malformed::Unterminated),
        }
        self.args.push(self.at..end);
        self.at = end + 2;
        self.searched = self.at;
        self.bulk_bytes = None;
        Ok(true)
    }

    /// Parses a line with a length, if all of it has arrived. Returns the range between its first
    /// byte and its line end.
    fn line(&mut self, bytes: &[u8]) -> Result<Option<Range<usize>>, Malformed> {
        let Some(end) = self.find_line_end(bytes)? else {
            return Ok(None);
        };
        let begin = self.at + 1;
        if !bytes[begin..end].ends_with(b"\r") {
            return Err(match self.n_left {
                None => Malformed::Count,
                Some(_) => Malformed::Length,
            });
        }
        self.at = end + 1;
        self.searched = self.at;
        Ok(Some(begin..end - 1))
    }

    /// Parses a line of words, as people type it.
    fn words(&mut self, bytes: &[u8]) -> Result<Option<usize>, Malformed> {
        let Some(end) = self.find_line_end(bytes)? else {
            return Ok(None);
        };
        let mut begin = 0;
        for (at, byte) in bytes[..=end].iter().enumerate() {
            if byte.is_ascii_whitespace() {
                if begin < at {
                    self.args.push(begin..at);
                }
                begin = at + 1;
            }
        }
        Ok(Some(end + 1))
    }

    /// The position of the newline that ends the line at `at`.
    fn find_line_end(&mut self, bytes: &[u8]) -> Result<Option<usize>, Malformed> {
        let found = bytes[self.searched..].iter().position(|&b| b == b'\n');
        let end = found.map(|n| self.searched + n);
        self.searched = bytes.len();
        match end.unwrap_or(bytes.len()) - self.at {
            n if n > MAX_LINE_BYTES => Err(Malformed::Line),
            _ => Ok(end),
        }
    }
}

/// A decimal number with digits only.
pub(super) fn number(digits: &[u8]) -> Option<i64> {
    // `parse` would also accept a plus sign.
    if digits.first() == Some(&b'+') {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// The arguments of a request; the first is the command's name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Args<'a> {
    bytes: &'a [u8],
    places: &'a [Range<usize>],
}

impl<'a> Args<'a> {
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    pub(super) fn get(&self, i: usize) -> Option<&'a [u8]> {
        self.places.get(i).map(|place| &self.bytes[place.clone()])
    }

    /// All arguments from the `i`th on.
    pub(super) fn from(self, i: usize) -> impl Iterator<Item = &'a [u8]> + Clone {
        let places = self.places.get(i..).unwrap_or_default();
        places.iter().map(move |place| &self.bytes[place.clone()])
    }

    /// The `i`th argument as a number.
    pub(super) fn number(&self, i: usize) -> Option<i64> {
        number(self.get(i)?)
    }
}

impl Index<usize> for Args<'_> {
    type Output = [u8];

    fn index(&self, i: usize) -> &[u8] {
        &self.bytes[self.places[i].clone()]
    }
}

/// The arguments of a request, kept for later.
#[derive(Debug)]
pub(super) struct OwnedArgs {
    bytes: Vec<u8>,
    places: Vec<Range<usize>>,
}

impl OwnedArgs {
    pub(super) fn args(&self) -> Args<'_> {
        Args {
            bytes: &self.bytes,
            places: &self.places,
        }
    }

    /// The memory that they take.
    pub(super) fn n_bytes(&self) -> usize {
        size_of_val(self) + self.bytes.len() + size_of_val(&*self.places)
    }
}

impl From<Args<'_>> for OwnedArgs {
    fn from(args: Args<'_>) -> OwnedArgs {
        let mut bytes = Vec::with_capacity(args.from(0).map(<[u8]>::len).sum());
        let mut places = Vec::with_capacity(args.len());
        for arg in args.from(0) {
            let begin = bytes.len();
            bytes.extend_from_slice(arg);
            places.push(begin..bytes.len());
        }
        OwnedArgs { bytes, places }
    }
}

//! The head of a request: parsed by httparse, with the meaning of the headers that define where the
//! request ends.

use std::mem::MaybeUninit;

use httparse::{Error, Header, Status};

use super::answer::{self, Answer};

/// The most headers in a request.
const MAX_HEADERS: usize = 64;

/// The parts of a request that the server uses.
pub(crate) struct Request<'a> {
    pub(crate) method: &'a str,
    /// The path of the target, without a query.
    pub(crate) path: &'a str,
    /// The requested range of the page, if not all of it.
    pub(crate) range: Option<&'a [u8]>,
    /// Send the page only if it differs from the version that the client has.
    pub(crate) if_none_match: Option<&'a [u8]>,
    pub(crate) if_modified_since: Option<&'a [u8]>,
    /// Send the range only if the page is the version of which the client has parts.
    pub(crate) if_range: Option<&'a [u8]>,
    /// Whether the client speaks HTTP/1.0.
    pub(super) is_http_10: bool,
    /// Whether the connection is kept alive after this request.
    pub(super) keep_alive: bool,
    /// The length of the body that follows the head.
    pub(super) body_bytes: u64,
    /// Whether the client waits for permission to send the body.
    pub(super) expects_continue: bool,
}

/// Parses the request at the start of `bytes`. Returns it with the length of its head, or nothing
/// if the head is incomplete, or the answer that refuses it.
pub(super) fn parse(bytes: &[u8]) -> Result<Option<(Request<'_>, usize)>, Answer> {
    let mut headers = [const { MaybeUninit::uninit() }; MAX_HEADERS];
    let mut head = httparse::Request::new(&mut []);
    let head_bytes = match head.parse_with_uninit_headers(bytes, &mut headers) {
        Ok(Status::Complete(n)) => n,
        Ok(Status::Partial) => return Ok(None),
        Err(Error::TooManyHeaders) => return Err(answer::HEAD_TOO_LARGE),
        Err(_) => return Err(answer::BAD_REQUEST),
    };
    if has_bare_line_feed(&bytes[..head_bytes]) {
        return Err(answer::BAD_REQUEST);
    }
    let (Some(method), Some(target), Some(version)) = (head.method, head.path, head.version) else {
        return Err(answer::BAD_REQUEST);
    };
    let mut request = Request {
        method,
        path: path_of(target),
        range: None,
        if_none_match: None,
        if_modified_since: None,
        if_range: None,
        is_http_10: version == 0,
        keep_alive: version >= 1,
        body_bytes: 0,
        expects_continue: false,
    };
    request.read_headers(head.headers)?;
    Ok(Some((request, head_bytes)))
}

/// Whether a line ends without a carriage return. The standard allows a server to accept that or to
/// refuse it; a proxy that does not accept it would see other headers.
fn has_bare_line_feed(head: &[u8]) -> bool {
    let mut lines = head.split(|&byte| byte == b'\n');
    // Behind the last line feed there is nothing.
    lines.next_back();
    lines.any(|line| !line.ends_with(b"\r"))
}

/// `/a` from `/a?b` and from `http://host/a`.
fn path_of(target: &str) -> &str {
    let target = match target.strip_prefix("http://") {
        None => target,
        Some(rest) => rest.find('/').map_or("/", |host_bytes| &rest[host_bytes..]),
    };
    target.split_once('?').map_or(target, |(path, _)| path)
}

impl<'a> Request<'a> {
    /// If this server and a proxy in front of it disagreed about the end of a request, a client
    /// could smuggle a request in. So ambiguous requests are refused.
    fn read_headers(&mut self, headers: &[Header<'a>]) -> Result<(), Answer> {
        let mut n_hosts = 0;
        let mut length: Option<u64> = None;
        let mut is_encoded = false;
        for &Header { name, value } in headers {
            // Most other headers differ from these in length already.
            let is = |known: &str| name.eq_ignore_ascii_case(known);
            match name.len() {
                4 if is("host") => n_hosts += 1,
                5 if is("range") => self.range = Some(value),
                6 if is("expect") => {
                    self.expects_continue = value.eq_ignore_ascii_case(b"100-continue")
                }
                8 if is("if-range") => self.if_range = Some(value),
                10 if is("connection") => self.read_connection(value),
                13 if is("if-none-match") => self.if_none_match = Some(value),
                14 if is("content-length") => {
                    let n = number(value).ok_or(answer::BAD_REQUEST)?;
                    if length.is_some_and(|before| before != n) {
                        return Err(answer::BAD_REQUEST);
                    }
                    length = Some(n);
                }
                17 if is("transfer-encoding") => is_encoded = true,
                17 if is("if-modified-since") => self.if_modified_since = Some(value),
                _ => {}
            }
        }
        if n_hosts > 1 || (n_hosts == 0 && !self.is_http_10) {
            return Err(answer::BAD_REQUEST);
        }
        if is_encoded {
            let is_ambiguous = length.is_some() || self.is_http_10;
            return Err(if is_ambiguous {
                answer::BAD_REQUEST
            } else {
                answer::NOT_IMPLEMENTED
            });
        }
        self.body_bytes = length.unwrap_or(0);
        Ok(())
    }

    fn read_connection(&mut self, value: &[u8]) {
        for option in value.split(|&b| b == b',').map(<[u8]>::trim_ascii) {
            if option.eq_ignore_ascii_case(b"close") {
                self.keep_alive = false;
            } else if option.eq_ignore_ascii_case(b"keep-alive") && self.is_http_10 {
                self.keep_alive = true;
            }
        }
    }
}

/// Decimal digits only, as the standard requires; a number that is too large becomes the maximum.
fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |n, digit| {
        digit
            .is_ascii_digit()
            .then(|| n.saturating_mul(10).saturating_add(u64::from(digit - b'0')))
    })
}

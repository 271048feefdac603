//! As much of HTTP/1.1 as the console needs: requests without a body, answers of known length or in
//! chunks, connections that are used again. Each step has a deadline and a bound. Clients of HTTP/1.0
//! get answers that end with the connection instead of chunks.

use std::io::{self, BufWriter, Read, Write};
use std::time::{Duration, Instant};

use crate::listen::Stream;

/// The longest request.
const HEAD_BYTES: usize = 8 * 1024;
const HEADERS: usize = 64;
/// How long a request may take to arrive, how long a connection may be silent before it, and how long
/// the client may be slow to take an answer.
const ARRIVES_WITHIN: Duration = Duration::from_secs(10);
const SILENT_FOR: Duration = Duration::from_secs(30);
const TAKES_WITHIN: Duration = Duration::from_secs(10);
/// The longest time for a whole answer that is in memory, and for one that is made as it is sent, once it
/// is there.
const TAKEN_WITHIN: Duration = Duration::from_secs(30);
const ANSWER_WITHIN: Duration = Duration::from_secs(120);

/// A request.
#[derive(Debug)]
pub(crate) struct Request {
    /// Whether the answer is to have no body.
    pub(crate) is_head: bool,
    /// Whether the connection goes on afterwards.
    pub(crate) keeps_alive: bool,
    /// Whether the client understands chunks: it speaks HTTP/1.1.
    takes_chunks: bool,
    host: Option<String>,
    path: String,
    parameters: Vec<(String, String)>,
    headers: Vec<(String, String)>,
}

impl Request {
    /// The path, decoded.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// The name by which the client calls this server, with the port if it was given: the authority of the
    /// target if that has one, else the header.
    pub(crate) fn host(&self) -> Option<&str> {
        self.host.as_deref()
    }

    /// The values of a header, by its name in lower case.
    pub(crate) fn headers(&self, name: &'static str) -> impl Iterator<Item = &str> {
        let named = self.headers.iter().filter(move |(n, _)| n == name);
        named.map(|(_, value)| &**value)
    }

    /// The value of a header, by its name in lower case. `None` if there are several.
    pub(crate) fn header(&self, name: &'static str) -> Option<&str> {
        let mut found = self.headers(name);
        let value = found.next();
        value.filter(|_| found.next().is_none())
    }

    /// The first value of a parameter.
    pub(crate) fn parameter(&self, name: &str) -> Option<&str> {
        let found = self.parameters.iter().find(|(n, _)| n == name);
        found.map(|(_, value)| &**value)
    }
}

/// The reason why no request came.
#[derive(Debug)]
pub(crate) enum NoRequest {
    /// The connection has ended, or was silent for too long.
    Ended,
    /// The client is to be told, and the connection ends.
    Bad(Status),
}

/// A status, with what it is called.
pub(crate) type Status = (u16, &'static str);

pub(crate) const OK: Status = (200, "OK");
pub(crate) const BAD_REQUEST: Status = (400, "Bad Request");
pub(crate) const UNAUTHORIZED: Status = (401, "Unauthorized");
pub(crate) const FORBIDDEN: Status = (403, "Forbidden");
pub(crate) const NOT_FOUND: Status = (404, "Not Found");
pub(crate) const NOT_ALLOWED: Status = (405, "Method Not Allowed");
pub(crate) const TIMEOUT: Status = (408, "Request Timeout");
pub(crate) const CONFLICT: Status = (409, "Conflict");
pub(crate) const TOO_LARGE: Status = (413, "Content Too Large");
pub(crate) const MISDIRECTED: Status = (421, "Misdirected Request");
pub(crate) const HEAD_TOO_LARGE: Status = (431, "Request Header Fields Too Large");
pub(crate) const INTERNAL: Status = (500, "Internal Server Error");
pub(crate) const NOT_IMPLEMENTED: Status = (501, "Not Implemented");
pub(crate) const UNAVAILABLE: Status = (503, "Service Unavailable");
pub(crate) const VERSION: Status = (505, "HTTP Version Not Supported");

/// A connection, and the bytes that were read ahead.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: Stream,
    ahead: Vec<u8>,
    /// Whether the client was seen to have closed its half.
    is_half_closed: bool,
    /// When the answer must be out.
    deadline: Instant,
}

impl Connection {
    pub(crate) fn new(stream: Stream) -> Connection {
        Connection {
            stream,
            ahead: Vec::new(),
            is_half_closed: false,
            deadline: Instant::now() + ANSWER_WITHIN,
        }
    }

    pub(crate) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Waits for the next request.
    pub(crate) fn request(&mut self) -> Result<Request, NoRequest> {
        let mut deadline = Instant::now() + SILENT_FOR;
        let mut has_begun = false;
        loop {
            if let Some(request) = self.parse()? {
                return Ok(request);
            }
            if self.ahead.len() >= HEAD_BYTES {
                return Err(NoRequest::Bad(HEAD_TOO_LARGE));
            }
            if !has_begun && !self.ahead.is_empty() {
                has_begun = true;
                deadline = Instant::now() + ARRIVES_WITHIN;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let late = match has_begun {
                true => NoRequest::Bad(TIMEOUT),
                false => NoRequest::Ended,
            };
            if left.is_zero() || self.stream.set_read_timeout(left).is_err() {
                return Err(late);
            }
            let mut buf = [0; 2048];
            let room = buf.len().min(HEAD_BYTES - self.ahead.len());
            match (&self.stream).read(&mut buf[..room]) {
                Ok(0) => return Err(NoRequest::Ended),
                Ok(n) => self.ahead.extend_from_slice(&buf[..n]),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Err(late),
                Err(_) => return Err(NoRequest::Ended),
            }
        }
    }

    /// Takes a request out of what was read, if it is there as a whole.
    fn parse(&mut self) -> Result<Option<Request>, NoRequest> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS];
        let mut parsed = httparse::Request::new(&mut headers);
        let n = match parsed.parse(&self.ahead) {
            Ok(httparse::Status::Complete(n)) => n,
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(httparse::Error::TooManyHeaders) => return Err(NoRequest::Bad(HEAD_TOO_LARGE)),
            Err(httparse::Error::Version) => return Err(NoRequest::Bad(VERSION)),
            Err(_) => return Err(NoRequest::Bad(BAD_REQUEST)),
        };
        // The parser takes these for line ends, and other servers and proxies do not.
        if has_bare_lf(&self.ahead[..n]) {
            return Err(NoRequest::Bad(BAD_REQUEST));
        }
        let request = understand(&parsed).map_err(NoRequest::Bad)?;
        self.ahead.drain(..n);
        Ok(Some(request))
    }

    /// Sends an answer whose length is known.
    pub(crate) fn answer(&mut self, request: Option<&Request>, answer: &Answer) -> io::Result<()> {
        self.deadline = Instant::now() + TAKEN_WITHIN;
        let keeps_alive = request.is_some_and(|r| r.keeps_alive);
        let mut head = answer.head(keeps_alive);
        head.push_str(&format!("Content-Length: {}\r\n\r\n", answer.body.len()));
        let mut out = head.into_bytes();
        if !request.is_some_and(|r| r.is_head) {
            out.extend_from_slice(&answer.body);
        }
        self.write_all(&out)
    }

    /// From now on there is time for a part of an answer.
    fn begin_part(&mut self) {
        self.deadline = Instant::now() + ANSWER_WITHIN;
    }

    /// Sends an answer of unknown length: `f` writes it.
    pub(crate) fn answer_in_chunks(
        &mut self,
        request: &Request,
        answer: &Answer,
        f: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> io::Result<()> {
        self.begin_chunks(request, answer)?;
        self.end_chunks(request, f)
    }

    /// Sends the head of an answer of unknown length. It is sent in chunks, or to a client of HTTP/1.0 up
    /// to the end of the connection. If [`end_chunks`](Connection::end_chunks) does not follow, or fails,
    /// the client sees that the answer was cut off.
    pub(crate) fn begin_chunks(&mut self, request: &Request, answer: &Answer) -> io::Result<()> {
        let mut head = answer.head(request.keeps_alive);
        if request.takes_chunks {
            head.push_str("Transfer-Encoding: chunked\r\n");
        } else {
            // Only a reset tells such a client that an answer is not complete.
            self.stream.resets_on_close(true)?;
        }
        head.push_str("\r\n");
        self.begin_part();
        self.write_all(head.as_bytes())
    }

    /// Sends a part of an answer of unknown length.
    pub(crate) fn chunk(&mut self, request: &Request, part: &[u8]) -> io::Result<()> {
        self.begin_part();
        match request.takes_chunks {
            true => Chunks(self).write_all(part),
            false => self.write_all(part),
        }
    }

    /// Sends the rest of an answer of unknown length: `f` writes it.
    pub(crate) fn end_chunks(
        &mut self,
        request: &Request,
        f: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> io::Result<()> {
        self.begin_part();
        if !request.takes_chunks {
            let mut out = BufWriter::with_capacity(32 * 1024, &mut *self);
            f(&mut out)?;
            out.flush()?;
            drop(out);
            return self.stream.resets_on_close(false);
        }
        let mut out = BufWriter::with_capacity(32 * 1024, Chunks(self));
        f(&mut out)?;
        out.flush()?;
        drop(out);
        self.write_all(b"0\r\n\r\n")
    }

    /// Whether the client has gone while its answer is made. What it sends meanwhile is kept, up to the
    /// size of a request; one that sends more is not watched.
    ///
    /// A client that has closed its half of the connection may wait for the answer, or be gone. So it gets
    /// a part of the answer, once, by `sign`: a socket that was closed says by an error that it is.
    pub(crate) fn has_lost_client(
        &mut self,
        sign: impl FnOnce(&mut Connection) -> io::Result<()>,
    ) -> bool {
        if self.is_half_closed {
            return !matches!(self.stream.take_error(), Ok(None));
        }
        let mut buf = [0; HEAD_BYTES];
        let room = HEAD_BYTES.saturating_sub(self.ahead.len());
        if room == 0 {
            return false;
        }
        match self.stream.read_now(&mut buf[..room]) {
            Ok(0) => {
                self.is_half_closed = true;
                sign(self).is_err()
            }
            Ok(n) => {
                self.ahead.extend_from_slice(&buf[..n]);
                false
            }
            Err(e) => !matches!(
                e.kind(),
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
            ),
        }
    }

    /// Sends the head of an answer that ends with the connection.
    pub(crate) fn begin_events(&mut self, answer: &Answer) -> io::Result<()> {
        let mut head = answer.head(false);
        head.push_str("\r\n");
        self.event(&head)
    }

    /// Sends a part of such an answer.
    pub(crate) fn event(&mut self, text: &str) -> io::Result<()> {
        self.begin_part();
        self.write_all(text.as_bytes())
    }
}

impl Write for Connection {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_write_timeout(left.min(TAKES_WITHIN))?;
        (&self.stream).write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes each buffer as a chunk.
struct Chunks<'a>(&'a mut Connection);

impl Write for Chunks<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        // A chunk of no bytes would be the end.
        if !buf.is_empty() {
            let size = format!("{:x}\r\n", buf.len());
            self.0.write_all(size.as_bytes())?;
            self.0.write_all(buf)?;
            self.0.write_all(b"\r\n")?;
        }
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Whether a line of a head ends with LF alone.
fn has_bare_lf(head: &[u8]) -> bool {
    head.split_inclusive(|&b| b == b'\n')
        .any(|line| line.ends_with(b"\n") && !line.ends_with(b"\r\n"))
}

/// The request that was parsed, or why it is refused.
fn understand(parsed: &httparse::Request<'_, '_>) -> Result<Request, Status> {
    let is_head = match parsed.method {
        Some("GET") => false,
        Some("HEAD") => true,
        _ => return Err(NOT_ALLOWED),
    };
    let mut headers = Vec::new();
    for header in parsed.headers.iter() {
        let value = std::str::from_utf8(header.value).map_err(|_| BAD_REQUEST)?;
        headers.push((header.name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let values = |name: &'static str| {
        let of = move |(n, _): &&(String, String)| n == name;
        headers.iter().filter(of).map(|(_, value)| &**value)
    };
    // Where a body would end is then uncertain, and none is expected.
    if values("transfer-encoding").next().is_some() || values("content-length").any(|n| n != "0") {
        return Err(TOO_LARGE);
    }
    let is_1_1 = parsed.version == Some(1);
    let n_hosts = values("host").count();
    if n_hosts > 1 || is_1_1 && n_hosts == 0 {
        return Err(BAD_REQUEST);
    }
    let wishes = |wish: &str| {
        let mut wishes = values("connection").flat_map(|v| v.split(','));
        wishes.any(|w| w.trim().eq_ignore_ascii_case(wish))
    };
    let keeps_alive = is_1_1 && !wishes("close");
    let mut target = parsed.path.unwrap_or_default();
    let mut host = values("host").next().map(str::to_owned);
    // Also the form that proxies get is to be understood. It says itself whose it is.
    if let Some((scheme, rest)) = target.split_once("://")
        && scheme.eq_ignore_ascii_case("http")
    {
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        host = Some(authority.to_owned());
        target = match path.is_empty() {
            true => "/",
            false => path,
        };
    }
    if !target.starts_with('/') {
        return Err(BAD_REQUEST);
    }
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut parameters = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        parameters.push((decode(name, true)?, decode(value, true)?));
    }
    Ok(Request {
        is_head,
        keeps_alive,
        takes_chunks: is_1_1,
        host,
        path: decode(path, false)?,
        parameters,
        headers,
    })
}

/// Undoes percent-encoding; in a query, a plus sign is a space.
fn decode(text: &str, is_query: bool) -> Result<String, Status> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'%' => {
                let mut digit = || {
                    let digit = bytes.next().and_then(|b| char::from(b).to_digit(16));
                    digit.map(|d| d as u8).ok_or(BAD_REQUEST)
                };
                digit()? << 4 | digit()?
            }
            b'+' if is_query => b' ',
            byte => byte,
        });
    }
    String::from_utf8(out).map_err(|_| BAD_REQUEST)
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: Status,
    content_type: &'static str,
    /// More header lines.
    more: String,
    body: Vec<u8>,
}

impl Answer {
    pub(crate) fn new(content_type: &'static str, body: impl Into<Vec<u8>>) -> Answer {
        Answer {
            status: OK,
            content_type,
            more: String::new(),
            body: body.into(),
        }
    }

    /// An answer of a sentence.
    pub(crate) fn text(status: Status, text: &str) -> Answer {
        let mut answer = Answer::new(crate::TEXT, format!("{text}\n"));
        answer.status = status;
        answer
    }

    /// Adds a header. Names and values are the console's own.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Answer {
        self.more.push_str(&format!("{name}: {value}\r\n"));
        self
    }

    fn head(&self, keeps_alive: bool) -> String {
        let (code, reason) = self.status;
        let connection = match keeps_alive {
            true => "keep-alive",
            false => "close",
        };
        format!(
            "HTTP/1.1 {code} {reason}\r\n\
             Content-Type: {}\r\n\
             Connection: {connection}\r\n\
             Cache-Control: no-store\r\n\
             X-Content-Type-Options: nosniff\r\n\
             Referrer-Policy: no-referrer\r\n\
             Cross-Origin-Resource-Policy: same-origin\r\n\
             {}",
            self.content_type, self.more
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Request, Status> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS];
        let mut parsed = httparse::Request::new(&mut headers);
        match parsed.parse(text.as_bytes()) {
            Ok(httparse::Status::Complete(_)) => understand(&parsed),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn requests_are_understood() {
        let request = parsed(
            "GET /debug/x%20y?seconds=2.5&token=a%2Bb+c&flag HTTP/1.1\r\nHost: a\r\nX: 1\r\nX: 2\r\n\r\n",
        );
        let request = request.unwrap();
        assert_eq!(request.path(), "/debug/x y");
        assert_eq!(request.parameter("seconds"), Some("2.5"));
        assert_eq!(request.parameter("token"), Some("a+b c"));
        assert_eq!(request.parameter("flag"), Some(""));
        assert_eq!(request.parameter("other"), None);
        assert_eq!(
            (request.header("host"), request.header("x")),
            (Some("a"), None)
        );
        assert!(request.headers("x").eq(["1", "2"]));
        assert_eq!(request.host(), Some("a"));
        assert!(request.keeps_alive && !request.is_head);
        let old = parsed("HEAD http://host:1/a HTTP/1.0\r\n\r\n").unwrap();
        assert_eq!(
            (old.path(), old.keeps_alive, old.is_head),
            ("/a", false, true)
        );
        assert_eq!(old.host(), Some("host:1"));
        let whole = parsed("GET HTTP://a:1 HTTP/1.1\r\nHost: b\r\n\r\n").unwrap();
        assert_eq!((whole.path(), whole.host()), ("/", Some("a:1")));
    }

    #[test]
    fn bad_requests_are_refused() {
        for (text, status) in [
            ("POST / HTTP/1.1\r\nHost: a\r\n\r\n", NOT_ALLOWED),
            ("GET / HTTP/1.1\r\n\r\n", BAD_REQUEST),
            ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", BAD_REQUEST),
            ("GET x HTTP/1.1\r\nHost: a\r\n\r\n", BAD_REQUEST),
            ("GET http://a?b HTTP/1.1\r\nHost: a\r\n\r\n", BAD_REQUEST),
            ("GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n", BAD_REQUEST),
            ("GET /%4 HTTP/1.1\r\nHost: a\r\n\r\n", BAD_REQUEST),
            ("GET /%ff HTTP/1.1\r\nHost: a\r\n\r\n", BAD_REQUEST),
            ("GET /?a=%zz HTTP/1.1\r\nHost: a\r\n\r\n", BAD_REQUEST),
            (
                "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n",
                TOO_LARGE,
            ),
            (
                "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
                TOO_LARGE,
            ),
        ] {
            assert_eq!(parsed(text).unwrap_err(), status, "{text}");
        }
    }

    /// A connection is used for longer than one answer may take.
    #[test]
    fn the_time_for_an_answer_begins_with_it() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let served = Stream::Tcp(listener.accept().unwrap().0);
        let request = parsed("GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        let mut connection = Connection::new(served);
        let answer = Answer::new(crate::TEXT, "");
        for i in 0..3 {
            connection.deadline = Instant::now();
            let sent = match i {
                0 => connection.answer(Some(&request), &answer),
                1 => connection.answer_in_chunks(&request, &answer, |out| out.write_all(b"part")),
                _ => connection.begin_events(&answer),
            };
            sent.unwrap();
        }
        drop(connection);
        let mut all = String::new();
        client.read_to_string(&mut all).unwrap();
        assert_eq!(all.matches("HTTP/1.1 200").count(), 3, "{all}");
    }

    /// Without chunks only a reset shows that.
    #[test]
    fn old_clients_see_that_an_answer_was_cut_off() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        for is_whole in [true, false] {
            let addr = listener.local_addr().unwrap();
            let mut client = std::net::TcpStream::connect(addr).unwrap();
            let served = Stream::Tcp(listener.accept().unwrap().0);
            let request = parsed("GET / HTTP/1.0\r\n\r\n").unwrap();
            let mut connection = Connection::new(served);
            let answer = Answer::new(crate::TEXT, "");
            let sent = connection.answer_in_chunks(&request, &answer, |out| {
                out.write_all(b"a part")?;
                match is_whole {
                    true => Ok(()),
                    false => Err(io::ErrorKind::Other.into()),
                }
            });
            assert_eq!(sent.is_ok(), is_whole);
            drop(connection);
            let mut answer = String::new();
            let read = client.read_to_string(&mut answer);
            assert_eq!(read.is_ok(), is_whole, "{answer}");
            assert!(!is_whole || answer.ends_with("\r\n\r\na part"), "{answer}");
        }
    }
}

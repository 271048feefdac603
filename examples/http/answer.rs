//! Answers as bytes that are ready to send.

use std::borrow::Cow;
use std::io;

use super::request::Request;

/// An answer without the `Connection` header.
pub(crate) struct Answer {
    /// The status line and the headers, each with its line end.
    head: Cow<'static, str>,
    body: Body,
}

/// The body that follows the head, which contains its length.
pub(crate) enum Body {
    Text(&'static str),
    /// A body that is sent piece by piece, after the output buffer.
    Long(Box<dyn Long>),
}

/// A body that is too long to be held in memory.
pub(crate) trait Long: Send {
    /// The next piece of it; empty at its end. The peer must take each piece in the time that it has
    /// for a whole short answer, so the pieces should not be larger than 64 KiB. An error closes the
    /// connection, so that the peer notices the missing part.
    fn next_piece(&mut self) -> io::Result<&[u8]>;
}

impl Answer {
    pub(crate) const fn fixed(head: &'static str, body: &'static str) -> Answer {
        Answer {
            head: Cow::Borrowed(head),
            body: Body::Text(body),
        }
    }

    pub(crate) fn new(head: String, body: Body) -> Answer {
        Answer {
            head: Cow::Owned(head),
            body,
        }
    }
}

pub(crate) const METHOD_NOT_ALLOWED: Answer = Answer::fixed(
    "HTTP/1.1 405 Method Not Allowed\r\nAllow: GET, HEAD\r\nContent-Length: 0\r\n",
    "",
);

/// Declares answers without a body.
macro_rules! empty {
    ($($name:ident = $status:literal;)*) => {$(
        pub(crate) const $name: Answer =
            Answer::fixed(concat!("HTTP/1.1 ", $status, "\r\nContent-Length: 0\r\n"), "");
    )*};
}

empty! {
    BAD_REQUEST = "400 Bad Request";
    FORBIDDEN = "403 Forbidden";
    NOT_FOUND = "404 Not Found";
    TIMEOUT = "408 Request Timeout";
    BODY_TOO_LARGE = "413 Content Too Large";
    HEAD_TOO_LARGE = "431 Request Header Fields Too Large";
    INTERNAL_ERROR = "500 Internal Server Error";
    NOT_IMPLEMENTED = "501 Not Implemented";
}

/// The interim answer for a client that asks before it sends a body.
pub(super) const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// The answer to one request.
pub(super) struct Reply {
    answer: Answer,
    /// Whether the request was a HEAD.
    without_body: bool,
    /// The `Connection` header, if one is needed, and the empty line.
    ending: &'static str,
}

const GO_ON: &str = "\r\n";
const GO_ON_10: &str = "Connection: keep-alive\r\n\r\n";
const CLOSE: &str = "Connection: close\r\n\r\n";

impl Reply {
    pub(super) fn new(answer: Answer, request: &Request<'_>) -> Reply {
        let ending = match (request.keep_alive, request.is_http_10) {
            (true, false) => GO_ON,
            (true, true) => GO_ON_10,
            (false, _) => CLOSE,
        };
        Reply {
            answer,
            without_body: request.method == "HEAD",
            ending,
        }
    }

    /// Makes it the last answer on the connection.
    pub(super) fn last(answer: Answer) -> Reply {
        Reply {
            answer,
            without_body: false,
            ending: CLOSE,
        }
    }

    /// Makes it the last answer on the connection if it is not yet.
    pub(super) fn close(&mut self) {
        self.ending = CLOSE;
    }

    pub(super) fn closes(&self) -> bool {
        self.ending.len() == CLOSE.len()
    }

    /// Writes it to the output; returns the body that must be sent after the output.
    pub(super) fn write_to(self, output: &mut Vec<u8>) -> Option<Box<dyn Long>> {
        output.extend_from_slice(self.answer.head.as_bytes());
        output.extend_from_slice(self.ending.as_bytes());
        match self.answer.body {
            _ if self.without_body => None,
            Body::Text(text) => {
                output.extend_from_slice(text.as_bytes());
                None
            }
            Body::Long(long) => Some(long),
        }
    }
}

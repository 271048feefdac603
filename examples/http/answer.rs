//! What the server can answer, as bytes that are ready to send.

use super::request::Request;

/// An answer but for the `Connection` header.
#[derive(Clone, Copy)]
pub(super) struct Answer {
    head: &'static str,
    body: &'static str,
}

pub(super) const PLAINTEXT: Answer = Answer {
    head: "HTTP/1.1 200 OK\r\n\
        Server: windlass\r\n\
        Content-Type: text/plain\r\n\
        Content-Length: 13\r\n",
    body: "Hello, World!",
};

pub(super) const JSON: Answer = Answer {
    head: "HTTP/1.1 200 OK\r\n\
        Server: windlass\r\n\
        Content-Type: application/json\r\n\
        Content-Length: 27\r\n",
    body: r#"{"message":"Hello, World!"}"#,
};

// The lengths above are written by hand.
const _: () = assert!(PLAINTEXT.body.len() == 13 && JSON.body.len() == 27);

pub(super) const METHOD_NOT_ALLOWED: Answer = Answer {
    head: "HTTP/1.1 405 Method Not Allowed\r\nAllow: GET, HEAD\r\nContent-Length: 0\r\n",
    body: "",
};

/// Declares answers without a body.
macro_rules! empty {
    ($($name:ident = $status:literal;)*) => {$(
        pub(super) const $name: Answer = Answer {
            head: concat!("HTTP/1.1 ", $status, "\r\nContent-Length: 0\r\n"),
            body: "",
        };
    )*};
}

empty! {
    BAD_REQUEST = "400 Bad Request";
    NOT_FOUND = "404 Not Found";
    TIMEOUT = "408 Request Timeout";
    BODY_TOO_LARGE = "413 Content Too Large";
    HEAD_TOO_LARGE = "431 Request Header Fields Too Large";
    NOT_IMPLEMENTED = "501 Not Implemented";
}

/// What a client is told that asks before it sends a body.
pub(super) const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// The answer to one request.
pub(super) struct Reply {
    answer: Answer,
    /// The request was a HEAD.
    without_body: bool,
    /// The `Connection` header, where one is needed, and the empty line.
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

    /// The last answer on a connection.
    pub(super) fn last(answer: Answer) -> Reply {
        Reply {
            answer,
            without_body: false,
            ending: CLOSE,
        }
    }

    pub(super) fn closes(&self) -> bool {
        self.ending.len() == CLOSE.len()
    }

    pub(super) fn write_to(&self, output: &mut Vec<u8>) {
        output.extend_from_slice(self.answer.head.as_bytes());
        output.extend_from_slice(self.ending.as_bytes());
        if !self.without_body {
            output.extend_from_slice(self.answer.body.as_bytes());
        }
    }
}

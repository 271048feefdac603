//! The pages of the usual web server benchmarks.

use super::answer::{self, Answer};
use super::request::Request;

const PLAINTEXT_BODY: &str = "Hello, World!";
const PLAINTEXT_HEAD: &str = "HTTP/1.1 200 OK\r\n\
    Server: windlass\r\n\
    Content-Type: text/plain\r\n\
    Content-Length: 13\r\n";

const JSON_BODY: &str = r#"{"message":"Hello, World!"}"#;
const JSON_HEAD: &str = "HTTP/1.1 200 OK\r\n\
    Server: windlass\r\n\
    Content-Type: application/json\r\n\
    Content-Length: 27\r\n";

// The lengths above are constants written by hand.
const _: () = assert!(PLAINTEXT_BODY.len() == 13 && JSON_BODY.len() == 27);

/// Answers `/plaintext` and `/json`.
pub(crate) fn page(request: &Request<'_>) -> Answer {
    let (head, body) = match request.path {
        "/plaintext" => (PLAINTEXT_HEAD, PLAINTEXT_BODY),
        "/json" => (JSON_HEAD, JSON_BODY),
        _ => return answer::NOT_FOUND,
    };
    match request.method {
        "GET" | "HEAD" => Answer::fixed(head, body),
        _ => answer::METHOD_NOT_ALLOWED,
    }
}

//! The examples' parsers, and the properties that must hold for all bytes. Included by
//! examples/tests/parsers.rs, which generates the bytes, and by tests/fuzz, where a fuzzer does.

#[allow(dead_code, reason = "only what it answers is of interest")]
#[path = "../../http/answer.rs"]
mod answer;
#[path = "../../files/path.rs"]
pub(crate) mod path;
#[allow(dead_code, reason = "only parsing is of interest")]
#[path = "../../resp/protocol.rs"]
mod protocol;
#[path = "../../files/range.rs"]
mod range;
#[allow(dead_code, reason = "what it says of pages is of no interest")]
#[path = "../../http/request.rs"]
mod request;

mod file_properties;
mod http_properties;
mod resp_properties;

pub(crate) use file_properties::{opened_file, range_header, range_of};
pub(crate) use http_properties::request_head;
pub(crate) use resp_properties::resp_requests;

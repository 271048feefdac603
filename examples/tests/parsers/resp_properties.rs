//! RESP requests: the result does not depend on how they are split, and a parsed request can be
//! formatted again.

use super::protocol::{Malformed, Parser};

/// The limit on the bytes of an incomplete request.
const MAX_BYTES_HELD: usize = 64 << 20;

type Requests = (Vec<Vec<Vec<u8>>>, Result<usize, Malformed>);

/// Parses requests, giving the parser more bytes in steps of the sizes in `steps`, repeatedly.
/// Returns the requests with the unparsed rest, or with the error.
fn read(bytes: &[u8], steps: &[u8]) -> Requests {
    let mut parser = Parser::default();
    let mut requests = Vec::new();
    let (mut begin, mut end) = (0, 0);
    let mut steps = steps.iter().cycle();
    loop {
        match parser.advance(&bytes[begin..end]) {
            Err(malformed) => return (requests, Err(malformed)),
            Ok(Some(n_bytes)) => {
                assert!(n_bytes > 0 && begin + n_bytes <= end, "{n_bytes} bytes");
                let args = parser.args(&bytes[begin..end]);
                let all: Vec<_> = args.from(0).map(<[u8]>::to_vec).collect();
                assert_eq!(all.len(), args.len());
                assert!((0..args.len()).all(|i| args[i] == all[i]));
                assert_eq!(args.get(all.len()), None);
                let n_held: usize = all.iter().map(Vec::len).sum();
                assert!(all.len() <= n_bytes && n_held <= n_bytes);
                requests.push(all);
                begin += n_bytes;
                parser.reset();
            }
            Ok(None) if end == bytes.len() => return (requests, Ok(end - begin)),
            Ok(None) => {
                assert!(end - begin < MAX_BYTES_HELD, "waits for more and more");
                let step = steps.next().map_or(usize::MAX, |&n| usize::from(n).max(1));
                end = end.saturating_add(step).min(bytes.len());
            }
        }
    }
}

fn said_again(requests: &[Vec<Vec<u8>>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for request in requests {
        bytes.extend(format!("*{}\r\n", request.len()).bytes());
        for word in request {
            bytes.extend(format!("${}\r\n", word.len()).bytes());
            bytes.extend_from_slice(word);
            bytes.extend_from_slice(b"\r\n");
        }
    }
    bytes
}

/// Checks the result of parsing `bytes`, whole and split.
pub(crate) fn resp_requests(bytes: &[u8], steps: &[u8]) {
    let whole = read(bytes, &[]);
    assert_eq!(read(bytes, steps), whole, "in pieces of {steps:?}");
    assert_eq!(read(bytes, &[1]), whole, "byte by byte");
    let again = said_again(&whole.0);
    assert_eq!(read(&again, steps), (whole.0, Ok(0)));
}

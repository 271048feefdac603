//! The head of an HTTP request: its end and the length of the body do not depend on the parser.

use super::request;

/// Checks the result of parsing `bytes`.
pub(crate) fn request_head(bytes: &[u8]) {
    let Ok(Some((read, head_bytes))) = request::parse(bytes) else {
        return;
    };
    assert!(head_bytes > 0 && head_bytes <= bytes.len());
    assert!(!read.path.contains('?'));
    let head = &bytes[..head_bytes];
    let line_feeds = (0..head_bytes).filter(|&at| head[at] == b'\n');
    assert!(line_feeds.into_iter().all(|at| head[..at].ends_with(b"\r")));
    // The bytes behind it do not matter, and an incomplete head is never answered.
    let again = request::parse(head).ok().flatten().map(|(_, n)| n);
    assert_eq!(again, Some(head_bytes));
    for n in (0..head_bytes).step_by(1 + head_bytes / 200) {
        assert!(matches!(request::parse(&head[..n]), Ok(None)), "{n} bytes");
    }
    // A second parser, line by line, finds the same body.
    let lengths = values_of(head, b"content-length");
    assert!(
        lengths
            .iter()
            .all(|value| length(value) == length(lengths[0]))
    );
    let body_bytes = lengths.first().map_or(Some(0), |value| length(value));
    assert_eq!(body_bytes, Some(u128::from(read.body_bytes)));
    assert!(values_of(head, b"transfer-encoding").is_empty());
    assert!(values_of(head, b"host").len() <= 1);
}

/// The values of a header, in the order of their lines.
fn values_of<'a>(head: &'a [u8], name: &[u8]) -> Vec<&'a [u8]> {
    let lines = head.split(|&b| b == b'\n');
    let pairs = lines.filter_map(|line| {
        let colon = line.iter().position(|&b| b == b':')?;
        let (before, behind) = (&line[..colon], &line[colon + 1..]);
        before
            .eq_ignore_ascii_case(name)
            .then(|| behind.trim_ascii())
    });
    pairs.collect()
}

fn length(value: &[u8]) -> Option<u128> {
    let digits = std::str::from_utf8(value).ok()?;
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    // A number that is too long for this type is too long for any page.
    let n = digits.parse().unwrap_or(u128::MAX);
    Some(n.min(u128::from(u64::MAX)))
}

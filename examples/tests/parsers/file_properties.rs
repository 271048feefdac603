//! The file that a path names, and the part of it that a range names.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use super::path::{self, Name};
use super::range::{self, Part};

/// Checks what a `Range` header means for pages of several lengths.
pub(crate) fn range_header(value: &[u8]) {
    let mut last = None;
    for len in [0, 1, 2, 10, 100, 65_536, u64::MAX - 1, u64::MAX] {
        let part = range::parse(value, len);
        if let Part::Bytes(bytes) = &part {
            assert!(bytes.start < bytes.end && bytes.end <= len, "{bytes:?}");
        }
        // Whether the header is valid does not depend on the page.
        let is_all = part == Part::All;
        assert_eq!(*last.get_or_insert(is_all), is_all, "of {len} bytes");
    }
}

/// Checks the result for `bytes=first-last` against the standard.
pub(crate) fn range_of(first: Option<u64>, last: Option<u64>, len: u64) {
    let shown = |n: Option<u64>| n.map_or(String::new(), |n| n.to_string());
    let value = format!("bytes={}-{}", shown(first), shown(last));
    let wide = |n: u64| u128::from(n);
    let (begin, end) = match (first, last) {
        (None, None) => return assert_eq!(range::parse(value.as_bytes(), len), Part::All),
        (Some(first), Some(last)) if first > last => {
            return assert_eq!(range::parse(value.as_bytes(), len), Part::All);
        }
        (None, Some(n)) => (wide(len).saturating_sub(wide(n)), wide(len)),
        (Some(first), None) => (wide(first), wide(len)),
        (Some(first), Some(last)) => (wide(first), (wide(last) + 1).min(wide(len))),
    };
    let expected = match begin < end {
        true => Part::Bytes(begin as u64..end as u64),
        false => Part::None,
    };
    assert_eq!(range::parse(value.as_bytes(), len), expected, "{value}");
}

/// Checks the file that a request's path names.
fn file_name(text: &str) {
    let Ok(name) = Name::parse(text) else {
        return;
    };
    let path = name.path();
    assert!(!path.is_empty() && !path.starts_with(b"/") && !path.contains(&0));
    let parts: Vec<_> = path.split(|&b| b == b'/').collect();
    assert!(parts.iter().all(|part| !part.is_empty() && *part != b".."));
    assert!(path == b"." || parts.iter().all(|part| *part != b"."));
    let is_hidden = |part: &&[u8]| part.len() > 1 && part[0] == b'.' && *part != b".well-known";
    assert_eq!(parts.iter().any(is_hidden), name.is_hidden());
    // A redirect leads to the same place on the same server.
    let directory = name.as_directory();
    assert!(
        directory.starts_with('/') && !directory.starts_with("//"),
        "{directory}"
    );
    let Ok(there) = Name::parse(&directory) else {
        panic!("{directory} is no path");
    };
    assert!(there.is_directory && there.path() == path);
}

/// Opens the file that a path names beneath `root`, which is `place`: no file outside is opened.
pub(crate) fn opened_file(root: &OwnedFd, place: &Path, text: &str) {
    file_name(text);
    // Paths that were not checked must not lead out either.
    let checked = Name::parse(text).map(|name| name.path());
    for path in checked.iter().map(Vec::as_slice).chain([text.as_bytes()]) {
        if let Ok(file) = path::open_beneath(root, path) {
            let link = format!("/proc/self/fd/{}", file.as_raw_fd());
            let opened = std::fs::read_link(link).unwrap();
            assert!(opened.starts_with(place), "{text:?} opens {opened:?}");
        }
    }
}

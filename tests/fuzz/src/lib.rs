//! Checks of the targets: see examples/tests/parsers.

#[path = "../../../examples/tests/parsers/mod.rs"]
mod parsers;

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::OnceLock;

/// The first byte says how many more there are that cut the rest into pieces.
pub fn resp(data: &[u8]) {
    let Some((&n, rest)) = data.split_first() else {
        return;
    };
    let (steps, bytes) = rest.split_at(usize::from(n % 8).min(rest.len()));
    parsers::resp_requests(bytes, steps);
}

/// The head of a request.
pub fn http(data: &[u8]) {
    parsers::request_head(data);
}

/// A `Range` header, and its numbers.
pub fn range(data: &[u8]) {
    parsers::range_header(data);
    let mut words = data.chunks_exact(8).map(|word| {
        // Every other one is small.
        let n = u64::from_le_bytes(word.try_into().expect("it has eight bytes"));
        if n & 1 == 0 { n >> 1 } else { n >> 48 }
    });
    let (first, last, len) = (words.next(), words.next(), words.next());
    parsers::range_of(first, last, len.unwrap_or(100));
}

/// The path of a request, beneath a directory beside which there is a secret.
pub fn path(data: &[u8]) {
    static SITE: OnceLock<(OwnedFd, PathBuf)> = OnceLock::new();
    let (root, place) = SITE.get_or_init(|| site().expect("a directory of this process's own"));
    if let Ok(text) = std::str::from_utf8(data) {
        parsers::opened_file(root, place, text);
    }
}

/// Stays when the process ends: a fuzzer may end it at any time.
fn site() -> std::io::Result<(OwnedFd, PathBuf)> {
    let dir = std::env::temp_dir().join("windlass-fuzz-path");
    let root = dir.join("root");
    std::fs::create_dir_all(root.join("a/b"))?;
    for file in ["secret", "root/c", "root/a/c", "root/a/b/c"] {
        std::fs::write(dir.join(file), b"")?;
    }
    let links = [
        ("../../secret", "a/out"),
        ("/proc/self/root", "a/up"),
        ("b/../c", "a/in"),
    ];
    for (to, name) in links {
        match std::os::unix::fs::symlink(to, root.join(name)) {
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
            made => made?,
        }
    }
    let place = root.canonicalize()?;
    Ok((std::fs::File::open(&place)?.into(), place))
}

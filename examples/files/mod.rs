//! The files of a directory as the pages of a site.
//!
//! Nothing outside the directory is served: not through `..`, an escape, or a symbolic link that
//! leads out, not even through a link that is created between a check and its use. The kernel
//! itself resolves each name beneath the directory (`openat2(2)`). Files whose names begin with a
//! dot are not served either.

mod path;
mod range;

use std::fmt::Write as _;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use windlass::fs::{File, Metadata};
use windlass::net::{Graceful, TcpListener};

use crate::http::answer::{self, Body, Long};
use crate::http::{self, Answer, Patience, Request};
use path::Name;
use range::Part;

/// The number of bytes read and sent at a time.
const CHUNK_BYTES: usize = 64 * 1024;
/// The file that is served for a directory.
const INDEX: &[u8] = b"index.html";

/// A directory to serve.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    root: Arc<OwnedFd>,
}

impl Site {
    /// Fails if there is no such directory, or the kernel cannot resolve names beneath one.
    pub(crate) fn open(root: &Path) -> io::Result<Site> {
        let root = OwnedFd::from(std::fs::File::open(root)?);
        path::open_beneath(&root, b".")?;
        Ok(Site {
            root: Arc::new(root),
        })
    }

    /// Serves until the server is asked to stop.
    ///
    /// # Errors
    ///
    /// The listener cannot accept any more.
    #[allow(dead_code, reason = "the tests have other timeouts")]
    pub(crate) fn serve(self, listener: TcpListener, server: &Graceful) -> io::Result<()> {
        self.serve_with(listener, server, Patience::default())
    }

    /// As [`serve`](Site::serve), with other timeouts.
    pub(crate) fn serve_with(
        self,
        listener: TcpListener,
        server: &Graceful,
        patience: Patience,
    ) -> io::Result<()> {
        let answer = move |request: &Request<'_>| self.answer(request);
        http::serve_with(listener, server, patience, answer)
    }

    fn answer(&self, request: &Request<'_>) -> Answer {
        if !matches!(request.method, "GET" | "HEAD") {
            return answer::METHOD_NOT_ALLOWED;
        }
        let Ok(name) = Name::parse(request.path) else {
            return answer::BAD_REQUEST;
        };
        if name.is_hidden() {
            return answer::NOT_FOUND;
        }
        self.find(&name, request).unwrap_or_else(|error| {
            match error.raw_os_error() {
                // A symbolic link that leads out, or too many of them.
                Some(libc::EXDEV | libc::ELOOP) => answer::FORBIDDEN,
                // A socket, or a device without a driver.
                Some(libc::ENXIO) => answer::FORBIDDEN,
                _ => match error.kind() {
                    ErrorKind::NotFound | ErrorKind::NotADirectory => answer::NOT_FOUND,
                    ErrorKind::InvalidFilename => answer::NOT_FOUND,
                    ErrorKind::PermissionDenied => answer::FORBIDDEN,
                    _ => answer::INTERNAL_ERROR,
                },
            }
        })
    }

    fn find(&self, name: &Name<'_>, request: &Request<'_>) -> io::Result<Answer> {
        let mut path = name.path();
        let mut file = path::open_beneath(&self.root, &path)?;
        let mut metadata = file.metadata()?;
        if metadata.is_dir() {
            if !name.is_directory {
                return Ok(moved(&name.as_directory()));
            }
            path.push(b'/');
            path.extend_from_slice(INDEX);
            file = path::open_beneath(&self.root, &path)?;
            metadata = file.metadata()?;
        } else if name.is_directory {
            return Err(ErrorKind::NotADirectory.into());
        }
        if !metadata.is_file() {
            // A pipe or a device, which has no length.
            return Ok(answer::FORBIDDEN);
        }
        Ok(page(file, &metadata, content_type(&path), request))
    }
}

/// Redirects the client to the same path with a slash at the end.
fn moved(location: &str) -> Answer {
    let head =
        format!("HTTP/1.1 301 Moved Permanently\r\nLocation: {location}\r\nContent-Length: 0\r\n");
    Answer::new(head, Body::Text(""))
}

/// Identifies one version of a file.
struct Version {
    etag: String,
    modified: SystemTime,
}

impl Version {
    fn of(metadata: &Metadata) -> Version {
        let (s, ns) = (metadata.mtime(), metadata.mtime_nsec());
        // In seconds, as in the header. A time before 1970 counts as 1970.
        let since = Duration::from_secs(u64::try_from(s).unwrap_or(0));
        Version {
            etag: format!("\"{s:x}-{ns:x}-{:x}\"", metadata.len()),
            modified: SystemTime::UNIX_EPOCH + since,
        }
    }

    /// Whether the client has this version already.
    fn is_known(&self, request: &Request<'_>) -> bool {
        if let Some(tags) = request.if_none_match {
            // If there are tags, the date is ignored.
            return tags
                .split(|&b| b == b',')
                .map(<[u8]>::trim_ascii)
                .any(|tag| {
                    tag == b"*" || tag.strip_prefix(b"W/").unwrap_or(tag) == self.etag.as_bytes()
                });
        }
        let since = request.if_modified_since.and_then(date);
        since.is_some_and(|since| self.modified <= since)
    }

    /// Whether parts of this version fit to the parts that the client has.
    fn fits(&self, request: &Request<'_>) -> bool {
        match request.if_range {
            None => true,
            Some(tag) if tag.starts_with(b"\"") => tag == self.etag.as_bytes(),
            Some(value) => date(value) == Some(self.modified),
        }
    }
}

fn date(text: &[u8]) -> Option<SystemTime> {
    httpdate::parse_http_date(std::str::from_utf8(text).ok()?).ok()
}

fn page(file: File, metadata: &Metadata, content_type: &str, request: &Request<'_>) -> Answer {
    let version = Version::of(metadata);
    let len = metadata.len();
    let is_known = version.is_known(request);
    let part = match request.range {
        Some(range) if request.method == "GET" && version.fits(request) => range::parse(range, len),
        _ => Part::All,
    };
    let (status, bytes, place) = match part {
        _ if is_known => ("304 Not Modified", 0..0, None),
        Part::All => ("200 OK", 0..len, None),
        Part::Bytes(bytes) => {
            let place = format!("{}-{}/{len}", bytes.start, bytes.end - 1);
            ("206 Partial Content", bytes, Some(place))
        }
        Part::None => ("416 Range Not Satisfiable", 0..0, Some(format!("*/{len}"))),
    };
    let mut head = format!(
        "HTTP/1.1 {status}\r\nServer: windlass\r\nAccept-Ranges: bytes\r\nETag: {}\r\n\
         Last-Modified: {}\r\n",
        version.etag,
        httpdate::fmt_http_date(version.modified),
    );
    if is_known {
        // Without a length: it would have to be that of the page.
        return Answer::new(head, Body::Text(""));
    }
    if let Some(place) = place {
        let _ = write!(head, "Content-Range: bytes {place}\r\n");
    }
    let _ = write!(
        head,
        "X-Content-Type-Options: nosniff\r\nContent-Type: {content_type}\r\n\
         Content-Length: {}\r\n",
        bytes.end - bytes.start
    );
    let chunk = vec![0; (bytes.end - bytes.start).min(CHUNK_BYTES as u64) as usize];
    Answer::new(head, Body::Long(Box::new(Piece { file, bytes, chunk })))
}

/// The part of a file that is left to send.
struct Piece {
    file: File,
    bytes: std::ops::Range<u64>,
    chunk: Vec<u8>,
}

impl Long for Piece {
    fn next_piece(&mut self) -> io::Result<&[u8]> {
        let left = self.bytes.end - self.bytes.start;
        if left == 0 {
            return Ok(&[]);
        }
        let n = left.min(self.chunk.len() as u64) as usize;
        let n = self.file.read_at(&mut self.chunk[..n], self.bytes.start)?;
        if n == 0 {
            // The file was truncated after its length was sent.
            return Err(ErrorKind::UnexpectedEof.into());
        }
        self.bytes.start += n as u64;
        Ok(&self.chunk[..n])
    }
}

fn content_type(path: &[u8]) -> &'static str {
    let extension = path.rsplit(|&b| b == b'.').next().unwrap_or_default();
    match extension.to_ascii_lowercase().as_slice() {
        b"html" | b"htm" => "text/html; charset=utf-8",
        b"css" => "text/css; charset=utf-8",
        b"js" | b"mjs" => "text/javascript; charset=utf-8",
        b"json" => "application/json",
        b"txt" | b"md" | b"rs" | b"toml" => "text/plain; charset=utf-8",
        b"svg" => "image/svg+xml",
        b"png" => "image/png",
        b"jpg" | b"jpeg" => "image/jpeg",
        b"gif" => "image/gif",
        b"webp" => "image/webp",
        b"ico" => "image/x-icon",
        b"pdf" => "application/pdf",
        b"wasm" => "application/wasm",
        b"woff2" => "font/woff2",
        b"mp4" => "video/mp4",
        _ => "application/octet-stream",
    }
}

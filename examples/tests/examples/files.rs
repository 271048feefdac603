//! The file server: files that are served and files that are not, ranges, and curl.
#![allow(unsafe_code)]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant, SystemTime};

use crate::files::Site;
use crate::http::Patience;
use crate::server::{Server, foreign_prints};
use crate::stoppable::start_graceful;
use crate::temp::TempDir;

/// A directory with files, and secret files beside it.
struct Fixture {
    dir: TempDir,
    server: Server,
}

const LONG_BYTES: usize = 1_000_000;

fn long() -> Vec<u8> {
    (0..LONG_BYTES).map(|n| (n % 251) as u8).collect()
}

fn start() -> Fixture {
    start_with(Patience::default())
}

fn start_with(patience: Patience) -> Fixture {
    let dir = TempDir::new();
    let root = dir.path().join("root");
    let write = |name: &str, bytes: &[u8]| std::fs::write(root.join(name), bytes).unwrap();
    std::fs::create_dir_all(root.join("sub/.git")).unwrap();
    std::fs::create_dir(root.join("empty")).unwrap();
    write("a.txt", b"hello");
    write("nothing.css", b"");
    write("with space & more.html", b"odd");
    write("sub/index.html", b"the index");
    write("sub/.git/config", b"secret");
    write(".env", b"secret");
    write("long.bin", &long());
    std::fs::write(dir.path().join("secret"), b"secret").unwrap();
    symlink("../secret", root.join("out")).unwrap();
    symlink("/etc", root.join("etc")).unwrap();
    symlink("a.txt", root.join("in")).unwrap();
    symlink("loop", root.join("loop")).unwrap();
    dir_fifo(&dir);
    // The socket's file stays when the listener is gone.
    UnixListener::bind(root.join("socket")).unwrap();
    let site = Site::open(&root).unwrap();
    let server =
        start_graceful(move |listener, server| site.serve_with(listener, server, patience));
    Fixture { dir, server }
}

fn dir_fifo(dir: &TempDir) {
    std::fs::rename(dir.fifo("fifo"), dir.path().join("root/fifo")).unwrap();
}

/// A parsed answer.
struct Answer {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }
}

impl Fixture {
    fn ask(&self, method: &str, path: &str, headers: &str) -> Answer {
        let request =
            format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n");
        let bytes = self.server.ask(request.as_bytes());
        let end = bytes
            .windows(4)
            .position(|w| w == b"\r\n\r\n")
            .expect("a whole head")
            + 4;
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        Answer {
            status: head[9..12].parse().unwrap(),
            body: bytes[end..].to_vec(),
            head,
        }
    }

    fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, "")
    }
}

#[test]
fn files_are_served() {
    let site = start();
    let cases: &[(&str, &[u8], &str)] = &[
        ("/a.txt", b"hello", "text/plain; charset=utf-8"),
        ("/a.txt?query=1", b"hello", "text/plain; charset=utf-8"),
        ("//a.txt", b"hello", "text/plain; charset=utf-8"),
        ("/%61.txt", b"hello", "text/plain; charset=utf-8"),
        ("/in", b"hello", "application/octet-stream"),
        ("/nothing.css", b"", "text/css; charset=utf-8"),
        (
            "/with%20space%20&%20more.html",
            b"odd",
            "text/html; charset=utf-8",
        ),
        ("/sub/", b"the index", "text/html; charset=utf-8"),
        ("/sub/index.html", b"the index", "text/html; charset=utf-8"),
        ("/long.bin", &long(), "application/octet-stream"),
    ];
    for (path, body, content_type) in cases {
        let answer = site.get(path);
        assert_eq!(answer.status, 200, "{path}");
        assert!(answer.body == *body, "{path}");
        assert_eq!(answer.header("Content-Type"), Some(*content_type), "{path}");
        assert_eq!(
            answer.header("Content-Length"),
            Some(&*body.len().to_string()),
            "{path}"
        );
        let answer = site.ask("HEAD", path, "");
        assert_eq!((answer.status, answer.body.len()), (200, 0), "{path}");
        assert_eq!(
            answer.header("Content-Length"),
            Some(&*body.len().to_string()),
            "{path}"
        );
    }
}

#[test]
fn a_directory_is_named_with_a_slash() {
    let site = start();
    for (path, location) in [("/sub", "/sub/"), ("//sub", "/sub/"), ("/%73ub", "/%73ub/")] {
        let answer = site.get(path);
        assert_eq!(
            (answer.status, answer.header("Location")),
            (301, Some(location)),
            "{path}"
        );
    }
    assert_eq!(site.get("/a.txt/").status, 404);
    assert_eq!(site.get("/empty/").status, 404);
    assert_eq!(site.get("/").status, 404);
}

#[test]
fn nothing_else_is_served() {
    let site = start();
    let cases = [
        ("/none", 404),
        ("/a.txt/b", 404),
        ("/.env", 404),
        ("/%2eenv", 404),
        ("/sub/.git/config", 404),
        ("/.well-known/none", 404),
        ("/../secret", 400),
        ("/sub/../../secret", 400),
        ("/sub/../a.txt", 400),
        ("/./a.txt", 400),
        ("/%2e%2e/secret", 400),
        ("/%2E./secret", 400),
        ("/..%2fsecret", 400),
        ("/sub%2findex.html", 400),
        ("/a.txt%00", 400),
        ("/a%", 400),
        ("/a%4", 400),
        ("/a%4g", 400),
        ("/a%+4", 400),
        ("a.txt", 400),
        ("/..\\secret", 404),
        ("/%252e%252e/secret", 404),
        ("/out", 403),
        ("/etc", 403),
        ("/etc/passwd", 403),
        ("/loop", 403),
        ("/fifo", 403),
        ("/socket", 403),
    ];
    for (path, status) in cases {
        let answer = site.get(path);
        assert_eq!(answer.status, status, "{path}");
        assert!(answer.body.is_empty(), "{path}");
    }
    let long = format!("/{}", "x".repeat(8000));
    assert_eq!(site.get(&long).status, 404);
    let deep = "/x".repeat(4000);
    assert_eq!(site.get(&deep).status, 404);
    for method in ["POST", "PUT", "DELETE"] {
        let answer = site.ask(method, "/a.txt", "");
        assert_eq!(
            (answer.status, answer.header("Allow")),
            (405, Some("GET, HEAD"))
        );
    }
    // The secret files are still there, and no request waits for a pipe.
    assert!(site.dir.path().join("secret").exists());
}

#[test]
fn parts_of_a_file_are_served() {
    let site = start();
    let all = long();
    let n = LONG_BYTES;
    let parts = [
        ("bytes=0-0", 0..1),
        ("bytes=5-9", 5..10),
        ("Bytes=999990-", n - 10..n),
        ("bytes=-10", n - 10..n),
        ("bytes=-99999999", 0..n),
        ("bytes=0-99999999999999999999", 0..n),
        ("bytes=100000-899999", 100_000..900_000),
    ];
    for (range, bytes) in parts {
        let answer = site.ask("GET", "/long.bin", &format!("Range: {range}\r\n"));
        let place = format!("bytes {}-{}/{n}", bytes.start, bytes.end - 1);
        assert_eq!(
            (answer.status, answer.header("Content-Range")),
            (206, Some(&*place)),
            "{range}"
        );
        assert!(answer.body == all[bytes], "{range}");
    }
    let beyond = format!("bytes */{n}");
    for range in [
        "bytes=1000000-",
        "bytes=1000000-1000001",
        "bytes=-0",
        "bytes=99999999999999999999-",
    ] {
        let answer = site.ask("GET", "/long.bin", &format!("Range: {range}\r\n"));
        assert_eq!(
            (answer.status, answer.header("Content-Range")),
            (416, Some(&*beyond)),
            "{range}"
        );
        assert!(answer.body.is_empty(), "{range}");
    }
    for range in [
        "bytes=9-5",
        "bytes=x-",
        "bytes=-",
        "bytes=",
        "bytes",
        "lines=0-1",
        "bytes=0-1,5-6",
        "bytes=+0-1",
    ] {
        let answer = site.ask("GET", "/long.bin", &format!("Range: {range}\r\n"));
        assert_eq!((answer.status, answer.body.len()), (200, n), "{range}");
    }
    // Ranges apply to GET only; an empty file has none.
    assert_eq!(
        site.ask("HEAD", "/long.bin", "Range: bytes=0-0\r\n").status,
        200
    );
    assert_eq!(
        site.ask("GET", "/nothing.css", "Range: bytes=0-0\r\n")
            .status,
        416
    );
}

#[test]
fn what_the_client_has_is_not_sent_again() {
    let site = start();
    let first = site.get("/a.txt");
    let tag = first.header("ETag").unwrap();
    let date = first.header("Last-Modified").unwrap();
    let early = "Thu, 01 Jan 1970 00:00:00 GMT";
    let cases = [
        (format!("If-None-Match: {tag}\r\n"), 304),
        (format!("If-None-Match: \"other\", W/{tag}\r\n"), 304),
        ("If-None-Match: *\r\n".to_owned(), 304),
        ("If-None-Match: \"other\"\r\n".to_owned(), 200),
        (format!("If-Modified-Since: {date}\r\n"), 304),
        (format!("If-Modified-Since: {early}\r\n"), 200),
        ("If-Modified-Since: tomorrow\r\n".to_owned(), 200),
        // Tags take precedence over dates.
        (
            format!("If-None-Match: \"other\"\r\nIf-Modified-Since: {date}\r\n"),
            200,
        ),
        (format!("Range: bytes=0-1\r\nIf-Range: {tag}\r\n"), 206),
        (format!("Range: bytes=0-1\r\nIf-Range: {date}\r\n"), 206),
        (
            "Range: bytes=0-1\r\nIf-Range: \"other\"\r\n".to_owned(),
            200,
        ),
        (format!("Range: bytes=0-1\r\nIf-Range: {early}\r\n"), 200),
        (format!("Range: bytes=0-1\r\nIf-None-Match: {tag}\r\n"), 304),
    ];
    for (headers, status) in cases {
        let answer = site.ask("GET", "/a.txt", &headers);
        assert_eq!(answer.status, status, "{headers}");
        assert_eq!(answer.body.is_empty(), status == 304, "{headers}");
    }
    // A new version has a new tag.
    let file = std::fs::File::options()
        .write(true)
        .open(site.dir.path().join("root/a.txt"))
        .unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000))
        .unwrap();
    let second = site.get("/a.txt");
    assert_ne!(second.header("ETag"), Some(tag));
    assert_eq!(
        second.header("Last-Modified"),
        Some("Sun, 09 Sep 2001 01:46:40 GMT")
    );
}

#[test]
fn one_connection_gets_many_files() {
    let site = start();
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").into_bytes();
    let requests = [get("/a.txt"), get("/long.bin"), get("/none"), get("/a.txt")].concat();
    let answers = site.server.ask(&requests);
    let n = |text: &[u8]| answers.windows(text.len()).filter(|w| *w == text).count();
    assert_eq!(
        (n(b"HTTP/1.1 200 OK"), n(b"HTTP/1.1 404 Not Found")),
        (3, 1)
    );
    assert_eq!(n(b"\r\n\r\nhello"), 2);
    assert!(answers.len() > LONG_BYTES);
}

#[test]
fn a_file_that_was_cut_ends_the_connection() {
    let site = start();
    // Sparse, and longer than the sockets between client and server can buffer.
    let path = site.dir.path().join("root/huge.bin");
    let file = std::fs::File::create(&path).unwrap();
    file.set_len(1 << 30).unwrap();
    let mut stream = site.server.connect();
    std::io::Write::write_all(&mut stream, b"GET /huge.bin HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut head = [0; 100];
    std::io::Read::read_exact(&mut stream, &mut head).unwrap();
    file.set_len(10).unwrap();
    let rest = std::io::copy(&mut stream, &mut std::io::sink());
    assert!(rest.map_or(true, |n| n < 1 << 30));
}

/// A reader that takes a little, again and again: each of the server's writes makes some progress,
/// but a piece of 64 KiB takes longer than it may.
#[test]
fn a_reader_that_is_too_slow_is_cut_off() {
    let site = start_with(Patience {
        answer: Duration::from_secs(2),
        ..Patience::default()
    });
    let path = site.dir.path().join("root/huge.bin");
    let file = std::fs::File::create(path).unwrap();
    file.set_len(1 << 30).unwrap();
    let mut stream = connect_in_small_segments(site.server.addr);
    stream
        .write_all(b"GET /huge.bin HTTP/1.1\r\nHost: x\r\n\r\n")
        .unwrap();
    let begin = Instant::now();
    let mut buffer = [0; 1600];
    while matches!(stream.read(&mut buffer), Ok(1..)) {
        assert!(begin.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A connection with segments and buffers as small as those over a slow network, so that the server
/// can write often.
fn connect_in_small_segments(addr: SocketAddr) -> TcpStream {
    // SAFETY: makes a descriptor that has no other owner.
    let socket = unsafe {
        let fd = libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
        assert!(fd >= 0);
        TcpStream::from_raw_fd(fd)
    };
    for (level, option, value) in [
        (libc::SOL_SOCKET, libc::SO_RCVBUF, 2048),
        (libc::IPPROTO_TCP, libc::TCP_MAXSEG, 536),
    ] {
        let value: libc::c_int = value;
        let len = size_of_val(&value) as libc::socklen_t;
        // SAFETY: the option's value is an integer that lives until the call returns.
        let set = unsafe {
            let value = (&raw const value).cast();
            libc::setsockopt(socket.as_raw_fd(), level, option, value, len)
        };
        assert_eq!(set, 0);
    }
    let to = libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: addr.port().to_be(),
        sin_addr: libc::in_addr {
            s_addr: u32::from(Ipv4Addr::LOCALHOST).to_be(),
        },
        sin_zero: [0; 8],
    };
    // SAFETY: the address has the given size, and lives until the call returns.
    let connected = unsafe {
        let len = size_of_val(&to) as libc::socklen_t;
        libc::connect(socket.as_raw_fd(), (&raw const to).cast(), len)
    };
    assert_eq!(connected, 0);
    socket
}

#[test]
fn curl_fetches_files() {
    let site = start();
    let got = site.dir.path().join("got");
    let got = got.to_str().unwrap();
    let url = format!("http://{}/long.bin", site.server.addr);
    let fetch = |more: &[&str]| {
        let common = ["--silent", "--show-error", "--fail", "--output", got, &url];
        foreign_prints("curl", &[&common[..], more].concat())
    };
    if fetch(&[]).is_none() {
        return;
    }
    assert!(std::fs::read(got).unwrap() == long());
    // Continues an interrupted download.
    std::fs::File::options()
        .write(true)
        .open(got)
        .unwrap()
        .set_len(1000)
        .unwrap();
    fetch(&["--continue-at", "-"]).unwrap();
    assert!(std::fs::read(got).unwrap() == long());
    // Sent unchanged, the path leads out.
    let url = format!("http://{}/../secret", site.server.addr);
    let args = [
        "--silent",
        "--path-as-is",
        "--write-out",
        "%{http_code}",
        &url,
    ];
    assert_eq!(foreign_prints("curl", &args).unwrap(), "400");
}

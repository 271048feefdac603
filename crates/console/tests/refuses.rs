//! Requests that are refused: strangers, bad requests, too many of them.

mod support;

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use support::{
    PATIENCE, build, console, get, get_with, hang_guard, read_answer, read_head, runtime, send,
    tcp, wait_until,
};
use windlass::Builder;
use windlass_console::{Address, Console};

const TOKEN: &str = "a-token-of-this-test";

#[test]
fn other_machines_need_a_token() {
    let _guard = hang_guard();
    let rt = runtime(1);
    let open = |address: &str, token: Option<&str>| {
        let console = Console::new().handle(rt.handle());
        match token {
            Some(token) => console.token(token).serve(address),
            None => console.serve(address),
        }
    };
    let refused = open("0.0.0.0:0", None).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
    assert!(
        refused.to_string().contains("set Console::token"),
        "{refused}"
    );
    for token in [
        "short",
        "",
        "has spaces, and is long enough",
        "ümläute-ümläute-ümläute",
    ] {
        let refused = open("127.0.0.1:0", Some(token)).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{token}");
    }
    let server = open("0.0.0.0:0", Some(TOKEN)).unwrap();
    let mut addr = tcp(&server);
    addr.set_ip(std::net::Ipv4Addr::LOCALHOST.into());
    let bearer = |token: &str| format!("Authorization: Bearer {token}\r\n");
    let status = |path: &str, headers: &str| get_with(addr, path, headers).status;
    assert_eq!(status("/metrics", ""), 401);
    assert_eq!(status("/", ""), 401);
    assert_eq!(status("/metrics", &bearer(&TOKEN[1..])), 401);
    assert_eq!(status("/metrics", &bearer(&format!("{TOKEN}x"))), 401);
    assert_eq!(status("/metrics", &bearer(&TOKEN.to_uppercase())), 401);
    assert_eq!(
        status("/metrics", &format!("Authorization: Basic {TOKEN}\r\n")),
        401
    );
    // Two of them: which one counts?
    assert_eq!(status("/metrics", &(bearer(TOKEN) + &bearer("x"))), 401);
    assert_eq!(status("/metrics?token=", ""), 401);
    assert_eq!(status("/metrics", &bearer(TOKEN)), 200);
    assert_eq!(status(&format!("/metrics?token={TOKEN}"), ""), 200);
    assert_eq!(
        status("/metrics", &format!("authorization: bearer {TOKEN}\r\n")),
        200
    );
    let unauthorized = get(addr, "/");
    assert!(
        unauthorized
            .header("www-authenticate")
            .starts_with("Bearer")
    );
    // Its name does not matter then.
    let named = format!(
        "GET /metrics HTTP/1.1\r\nHost: example.org\r\n{}\r\n",
        bearer(TOKEN)
    );
    assert_eq!(send(addr, named.as_bytes()).unwrap().status, 200);
    for shown in [
        format!("{:?}", Console::new().token(TOKEN)),
        format!("{server:?}"),
    ] {
        assert!(!shown.contains(TOKEN), "{shown}");
    }
    server.shutdown();
}

/// A page of another site, whose name leads here, must not read what a browser may.
#[test]
fn without_a_token_only_local_names_are_served() {
    let _guard = hang_guard();
    let rt = runtime(1);
    let (server, addr) = console(&rt);
    let status = |host: &str| {
        let request = format!("GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n");
        send(addr, request.as_bytes()).unwrap().status
    };
    for host in ["localhost", "localhost:1", "127.0.0.1", "[::1]:6060"] {
        assert_eq!(status(host), 200, "{host}");
    }
    for host in [
        "example.org",
        "localhost.example.org",
        "10.0.0.1",
        "127.0.0.1.example.org",
        "",
    ] {
        assert_eq!(status(host), 421, "{host}");
    }
    // The header Host, which HTTP/1.0 does not require, is needed here.
    assert_eq!(send(addr, b"GET / HTTP/1.0\r\n\r\n").unwrap().status, 421);
    for (site, path, expected) in [
        ("cross-site", "/debug/profile?seconds=1", 403),
        ("same-site", "/metrics", 403),
        ("cross-site", "/", 403),
        (
            "cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document",
            "/",
            200,
        ),
        (
            "cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document",
            "/debug/goroutines",
            403,
        ),
        (
            "cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: iframe",
            "/",
            403,
        ),
        ("same-origin\r\nSec-Fetch-Site: cross-site", "/metrics", 403),
        ("same-origin", "/debug/state", 200),
        ("none", "/metrics", 200),
    ] {
        let header = format!("Sec-Fetch-Site: {site}\r\n");
        assert_eq!(
            get_with(addr, path, &header).status,
            expected,
            "{site} {path}"
        );
    }
    server.shutdown();
}

/// Browsers that do not send `Sec-Fetch-Site` name the page's site in other headers.
#[test]
fn pages_of_other_sites_may_not_ask() {
    let _guard = hang_guard();
    let rt = runtime(1);
    let (server, addr) = console(&rt);
    for (header, expected) in [
        (format!("Origin: http://{addr}"), 200),
        (format!("Referer: http://{addr}/debug/goroutines?a=b"), 200),
        ("Origin: null".to_owned(), 403),
        ("Origin: http://example.org".to_owned(), 403),
        (format!("Origin: https://{addr}"), 403),
        ("Referer: http://example.org/a".to_owned(), 403),
        // Another server of this machine.
        ("Origin: http://localhost:1".to_owned(), 403),
        (format!("Referer: http://{addr}.example.org/"), 403),
        (
            format!("Origin: http://{addr}\r\nReferer: http://example.org/"),
            403,
        ),
    ] {
        let refused_only = (expected == 403).then_some("/debug/trace?seconds=0.001");
        for path in ["/debug/state", "/metrics"].into_iter().chain(refused_only) {
            let answer = get_with(addr, path, &format!("{header}\r\n"));
            assert_eq!(answer.status, expected, "{header} {path}");
            // And what they get, they may not read.
            assert_eq!(answer.header("access-control-allow-origin"), "");
            assert_eq!(answer.header("cross-origin-resource-policy"), "same-origin");
        }
    }
    // A request whose target names somebody else.
    for target in [
        "http://example.org/metrics",
        "HTTP://user@localhost/metrics",
    ] {
        let request = format!("GET {target} HTTP/1.1\r\nHost: {addr}\r\n\r\n");
        assert_eq!(send(addr, request.as_bytes()).unwrap().status, 421);
    }
    let request = format!("GET http://{addr}/metrics HTTP/1.1\r\nHost: example.org\r\n\r\n");
    assert_eq!(send(addr, request.as_bytes()).unwrap().status, 200);
    // A browser asks this before it lets a page send headers of its own.
    let preflight = format!(
        "OPTIONS /metrics HTTP/1.1\r\nHost: {addr}\r\nOrigin: http://example.org\r\n\
         Access-Control-Request-Method: GET\r\n\r\n"
    );
    let answer = send(addr, preflight.as_bytes()).unwrap();
    assert_eq!(answer.status, 405);
    assert_eq!(answer.header("access-control-allow-origin"), "");
    server.shutdown();
}

fn socket_path(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!(
        "windlass-console-{name}-{}.sock",
        std::process::id()
    ))
}

#[test]
fn a_unix_socket_is_its_owners() {
    let _guard = hang_guard();
    let rt = runtime(1);
    let path = socket_path("own");
    let address = format!("unix:{}", path.display());
    let server = Console::new().handle(rt.handle()).serve(&address).unwrap();
    assert_eq!(server.local_addr(), &Address::Unix(path.clone()));
    assert_eq!(server.local_addr().to_string(), address);
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut stream = UnixStream::connect(&path).unwrap();
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: whatever\r\n\r\n")
        .unwrap();
    let answer = read_answer(&mut BufReader::new(stream)).unwrap();
    assert_eq!(answer.status, 200);
    // Somebody serves there.
    let taken = Console::new()
        .handle(rt.handle())
        .serve(&address)
        .unwrap_err();
    assert_eq!(taken.kind(), io::ErrorKind::AddrInUse, "{taken}");
    server.shutdown();
    assert!(!path.exists());
    // A process that was killed leaves its file behind.
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let server = Console::new()
        .handle(rt.handle())
        .serve(path.to_str().unwrap());
    server.unwrap().shutdown();
    assert!(!path.exists());
    // Other files stay.
    std::fs::write(&path, "precious").unwrap();
    let refused = Console::new().handle(rt.handle()).serve(&address);
    assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::AddrInUse);
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    std::fs::remove_file(&path).unwrap();
}

/// A process that listens and accepts nothing, as it is stopped, is there.
#[test]
fn a_socket_whose_queue_is_full_is_taken() {
    let _guard = hang_guard();
    let rt = runtime(1);
    let path = socket_path("full");
    let address = socket2::SockAddr::unix(&path).unwrap();
    let socket = || socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None);
    let listener = socket().unwrap();
    listener.bind(&address).unwrap();
    listener.listen(0).unwrap();
    let _first = UnixStream::connect(&path).unwrap();
    let taken = Console::new().handle(rt.handle());
    let taken = taken.serve(path.to_str().unwrap()).unwrap_err();
    assert_eq!(taken.kind(), io::ErrorKind::AddrInUse, "{taken}");
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn consoles_of_a_directory_begin_one_after_the_other() {
    let _guard = hang_guard();
    let rt = runtime(1);
    let directory = socket_path("directory");
    std::fs::create_dir(&directory).unwrap();
    let lock = File::open(&directory).unwrap();
    lock.lock().unwrap();
    let path = directory.join("own");
    let handle = rt.handle();
    let address = path.to_str().unwrap().to_owned();
    let waits = thread::spawn(move || Console::new().handle(handle).serve(&address));
    thread::sleep(Duration::from_millis(50));
    assert!(!path.exists());
    lock.unlock().unwrap();
    let server = waits.join().unwrap().unwrap();
    // One that begins finds the file of one that ends, or its own.
    lock.lock().unwrap();
    let ends = thread::spawn(|| server.shutdown());
    thread::sleep(Duration::from_millis(50));
    assert!(path.exists());
    lock.unlock().unwrap();
    ends.join().unwrap();
    assert!(!path.exists());
    // The socket is removed, also from a relative path in another directory.
    std::env::set_current_dir(&directory).unwrap();
    let server = Console::new()
        .handle(rt.handle())
        .serve("unix:own")
        .unwrap();
    std::env::set_current_dir("/").unwrap();
    match server.local_addr() {
        Address::Unix(path) => assert!(path.is_absolute() && path.exists(), "{path:?}"),
        other => panic!("{other}"),
    }
    server.shutdown();
    std::fs::remove_dir(&directory).unwrap();
}

/// A folder that is missing may be made by somebody else, and be none.
#[test]
fn a_fifo_in_the_path_is_not_waited_for() {
    let _guard = hang_guard();
    let rt = runtime(1);
    let fifo = socket_path("fifo");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status();
    assert!(made.unwrap().success());
    let refused = Console::new().handle(rt.handle());
    let refused = refused.serve(fifo.join("socket").to_str().unwrap());
    assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::NotADirectory);
    std::fs::remove_file(&fifo).unwrap();
}

#[test]
fn bad_requests_get_an_answer() {
    let _guard = hang_guard();
    let rt = runtime(1);
    let (server, addr) = console(&rt);
    let many_headers = "X: y\r\n".repeat(100);
    let long = "x".repeat(10_000);
    for (request, status) in [
        ("POST / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), 405),
        (
            "DELETE /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(),
            405,
        ),
        (
            "GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(),
            404,
        ),
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), 400),
        ("GET / HTTP/1.1\nHost: localhost\n\n".to_owned(), 400),
        (
            "GET / HTTP/1.1\r\nHost: localhost\nX: y\r\n\r\n".to_owned(),
            400,
        ),
        ("GET / HTTP/1.1\r\nHost: localhost\r\n\n".to_owned(), 400),
        (
            "\nGET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(),
            400,
        ),
        ("GET / HTTP/1.1\r\nHost : localhost\r\n\r\n".to_owned(), 400),
        (
            "GET / HTTP/1.1\r\nHost: localhost\r\n folded\r\n\r\n".to_owned(),
            400,
        ),
        (
            "GET / HTTP/1.1\r\nHost: localhost\r\nX: a\rb\r\n\r\n".to_owned(),
            400,
        ),
        (
            "GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n".to_owned(),
            400,
        ),
        (
            "GET /?a=%e2%28 HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(),
            400,
        ),
        (
            "GET /metrics%00 HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(),
            404,
        ),
        (
            "GET /debug/../metrics HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(),
            404,
        ),
        ("GET  / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), 400),
        ("GET / HTTP/3.0\r\nHost: localhost\r\n\r\n".to_owned(), 505),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(), 505),
        ("\u{1}\u{2}\u{3}\r\n\r\n".to_owned(), 400),
        (
            "GET /%zz HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(),
            400,
        ),
        (
            "GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc".to_owned(),
            413,
        ),
        (
            format!("GET / HTTP/1.1\r\nHost: localhost\r\n{many_headers}\r\n"),
            431,
        ),
        (
            format!("GET /{long} HTTP/1.1\r\nHost: localhost\r\n\r\n"),
            431,
        ),
        (
            format!("GET / HTTP/1.1\r\nHost: localhost\r\nX: {long}\r\n\r\n"),
            431,
        ),
    ] {
        let answer = send(addr, request.as_bytes()).unwrap();
        assert_eq!(answer.status, status, "{request:.60}");
        assert!(answer.text().ends_with('\n'));
        if status == 405 {
            assert_eq!(answer.header("allow"), "GET, HEAD");
        }
    }
    for bad in [
        "seconds=0",
        "seconds=-1",
        "seconds=1e9",
        "seconds=x",
        "seconds=",
        "seconds=nan",
        "seconds=inf",
    ] {
        for path in ["trace", "profile"] {
            let answer = get(addr, &format!("/debug/{path}?{bad}"));
            assert_eq!(answer.status, 400, "{path} {bad}");
        }
    }
    server.shutdown();
}

/// Whatever comes, the next client is served.
#[test]
fn noise_does_no_harm() {
    let _guard = hang_guard();
    let rt = runtime(1);
    let (server, addr) = console(&rt);
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    let whole =
        b"GET /debug/goroutines?format=json&limit=1 HTTP/1.1\r\nHost: localhost\r\nX: y\r\n\r\n";
    for i in 0..300 {
        let mut request = whole.to_vec();
        for _ in 0..=random() % 4 {
            let at = random() as usize % request.len();
            match random() % 3 {
                0 => request[at] = random() as u8,
                1 => request.truncate(at + 1),
                _ => request.insert(at, random() as u8),
            }
        }
        let mut stream = TcpStream::connect(addr).unwrap();
        // It may be refused before it is sent as a whole.
        let _ = stream.write_all(&request);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let read = stream.read_to_end(&mut answer);
        assert!(
            read.is_err() || answer.is_empty() || answer.starts_with(b"HTTP/1.1 "),
            "{i}"
        );
    }
    assert_eq!(get(addr, "/metrics").status, 200);
    server.shutdown();
}

#[test]
fn a_connection_is_used_again() {
    let _guard = hang_guard();
    let rt = runtime(1);
    let (server, addr) = console(&rt);
    let mut stream = TcpStream::connect(addr).unwrap();
    let request =
        |path: &str, more: &str| format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{more}\r\n");
    // Three at once, the second of them in chunks.
    let all = request("/metrics", "")
        + &request("/debug/trace?seconds=0.01", "")
        + &request("/nothing", "");
    stream.write_all(all.as_bytes()).unwrap();
    let mut from = BufReader::new(stream.try_clone().unwrap());
    for status in [200, 200, 404] {
        let answer = read_answer(&mut from).unwrap();
        assert_eq!(answer.status, status);
        assert_eq!(answer.header("connection"), "keep-alive");
    }
    // In pieces; and a HEAD, whose answer has no body.
    for piece in [
        "HEAD /met",
        "rics HTTP/1.1\r\nHo",
        "st: localhost\r\n\r",
        "\n",
    ] {
        stream.write_all(piece.as_bytes()).unwrap();
        std::thread::sleep(Duration::from_millis(5));
    }
    let head = read_head(&mut from).unwrap();
    assert!(head.header("content-length").parse::<usize>().unwrap() > 1000);
    for path in ["/debug/trace", "/debug/profile", "/events"] {
        let head = format!("HEAD {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        assert_eq!(read_head(&mut from).unwrap().status, 200, "{path}");
    }
    drop((stream, from));
    let mut stream = TcpStream::connect(addr).unwrap();
    stream
        .write_all(request("/", "Connection: close\r\n").as_bytes())
        .unwrap();
    let mut from = BufReader::new(stream);
    assert_eq!(
        read_answer(&mut from).unwrap().header("connection"),
        "close"
    );
    assert_eq!(from.read(&mut [0; 1]).unwrap(), 0);
    server.shutdown();
}

#[test]
fn connections_are_limited() {
    let _guard = hang_guard();
    let rt = runtime(1);
    let (server, addr) = console(&rt);
    // Each is known to be open when it has been answered.
    let connect = || {
        let mut stream = TcpStream::connect(addr).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
            .write_all(b"GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n")
            .unwrap();
        let answer = read_answer(&mut BufReader::new(stream.try_clone().unwrap()));
        (stream, answer.map(|a| a.status).unwrap_or(0))
    };
    let open: Vec<_> = (0..64).map(|_| connect()).collect();
    assert!(open.iter().all(|(_, status)| *status == 404));
    // One more takes the place of one of them: the console's threads note in any order since when theirs is silent.
    let (one_more, status) = connect();
    assert_eq!(status, 404);
    let goes_on = |mut stream: &TcpStream| {
        let asked = stream.write_all(b"GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n");
        asked.is_ok() && read_answer(&mut BufReader::new(stream)).is_ok()
    };
    assert_eq!(open.iter().filter(|(it, _)| goes_on(it)).count(), 63);
    drop(one_more);
    server.shutdown();
}

/// Strangers cannot keep those out who have the token, by asking and taking no answers.
#[test]
fn refused_requests_hold_no_connections() {
    let _guard = hang_guard();
    let rt = runtime(1);
    let path = socket_path("refused");
    let console = Console::new().handle(rt.handle()).token(TOKEN);
    let server = console.serve(path.to_str().unwrap()).unwrap();
    let connect = || UnixStream::connect(&path).unwrap();
    let strangers: Vec<_> = (0..64).map(|_| connect()).collect();
    for stranger in &strangers {
        stranger.set_nonblocking(true).unwrap();
    }
    // Until no thread of the console reads, as all of them send.
    let refused = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(100);
    let asks = |mut stranger: &UnixStream| stranger.write(&refused).is_ok();
    let mut n_silent = 0;
    while n_silent < 20 {
        n_silent += 1;
        for stranger in &strangers {
            while asks(stranger) {
                n_silent = 0;
            }
        }
        thread::sleep(Duration::from_millis(5));
    }
    let mut stream = connect();
    write!(
        stream,
        "GET /metrics?token={TOKEN} HTTP/1.1\r\nHost: a\r\n\r\n"
    )
    .unwrap();
    let answer = read_answer(&mut BufReader::new(stream)).unwrap();
    assert_eq!(answer.status, 200);
    drop(strangers);
    server.shutdown();
}

#[test]
fn one_trace_or_profile_at_a_time() {
    let _guard = hang_guard();
    let rt = runtime(1);
    let (server, addr) = console(&rt);
    let mut first = TcpStream::connect(addr).unwrap();
    first
        .write_all(b"GET /debug/trace?seconds=60 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .unwrap();
    // The head comes when it has begun.
    let head = read_head(&mut BufReader::new(&first)).unwrap();
    assert_eq!(head.status, 200);
    for path in ["trace?seconds=1", "profile?seconds=1", "flight"] {
        assert_eq!(get(addr, &format!("/debug/{path}")).status, 409, "{path}");
    }
    // The rest is served, and the end does not wait for the trace.
    assert_eq!(get(addr, "/metrics").status, 200);
    server.shutdown();
}

/// The record is large, and stays in memory until a slow client has read it.
#[test]
fn one_flight_record_at_a_time() {
    let _guard = hang_guard();
    let rt = build(Builder::new().processors(1).flight_recorder(4 << 20));
    rt.run(|| (0..100_000).for_each(|_| windlass::yield_now()));
    let path = socket_path("flight");
    let console = Console::new().handle(rt.handle());
    let server = console.serve(path.to_str().unwrap()).unwrap();
    let ask = || {
        let mut stream = UnixStream::connect(&path).unwrap();
        stream
            .write_all(b"GET /debug/flight HTTP/1.1\r\nHost: localhost\r\n\r\n")
            .unwrap();
        let head = read_head(&mut BufReader::new(&stream)).unwrap();
        (stream, head.status)
    };
    let slow = ask();
    assert_eq!((slow.1, ask().1), (200, 409));
    drop(slow);
    wait_until(|| ask().1 == 200);
    server.shutdown();
}

/// A dump is large, and stays in memory until a slow client has read it.
#[test]
fn dumps_are_limited() {
    let _guard = hang_guard();
    let path = socket_path("dumps");
    let path = path.to_str().unwrap();
    runtime(1).run(|| {
        // More than the buffers of a socket hold.
        let name = "x".repeat(4000);
        for _ in 0..500 {
            let builder = windlass::task::Builder::new().name(&name);
            drop(builder.spawn(windlass::task::park).unwrap());
        }
        let server = windlass_console::serve(path).unwrap();
        windlass::blocking(|| {
            let ask = || {
                let mut stream = UnixStream::connect(path).unwrap();
                stream
                    .write_all(b"GET /debug/goroutines?debug=2 HTTP/1.1\r\nHost: localhost\r\n\r\n")
                    .unwrap();
                let head = read_head(&mut BufReader::new(&stream)).unwrap();
                (stream, head.status)
            };
            let slow: Vec<_> = (0..4).map(|_| ask()).collect();
            assert!(slow.iter().all(|(_, status)| *status == 200));
            assert_eq!(ask().1, 503);
            drop(slow);
            wait_until(|| ask().1 == 200);
            server.shutdown();
        });
    });
}

#[test]
fn the_end_frees_the_address_and_ends_pages() {
    let _guard = hang_guard();
    let rt = runtime(1);
    // No other test is there, so that none gets the port.
    let server = Console::new().handle(rt.handle()).serve("127.0.0.9:0");
    let server = server.unwrap();
    let addr = tcp(&server);
    let mut page = TcpStream::connect(addr).unwrap();
    page.write_all(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .unwrap();
    let mut from = BufReader::new(page);
    assert_eq!(read_head(&mut from).unwrap().status, 200);
    let _idle = TcpStream::connect(addr).unwrap();
    server.shutdown();
    let mut rest = Vec::new();
    // Cut off, gently or not.
    let _ = from.read_to_end(&mut rest);
    assert!(TcpStream::connect(addr).is_err());
    TcpListener::bind(addr).unwrap();
}

#[test]
fn a_console_needs_a_runtime() {
    let _guard = hang_guard();
    let refused = windlass_console::serve("127.0.0.1:0").unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
    assert!(refused.to_string().contains("Console::handle"), "{refused}");
    let rt = runtime(1);
    rt.run(|| {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap().to_string();
        let refused = windlass_console::serve(&address).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
        assert!(refused.to_string().contains(&address), "{refused}");
        let server = windlass_console::serve("localhost:0").unwrap();
        // It goes on without its handle.
        let addr = tcp(&server);
        drop(server);
        windlass::blocking(|| assert_eq!(get(addr, "/metrics").status, 200));
    });
}

//! The QUIC example: server and client over loopback, and over simulated networks that lose packets.

#[path = "../quic/mod.rs"]
mod quic;
#[path = "../../tests/util/temp.rs"]
mod temp;
#[path = "../../tests/util/mod.rs"]
mod util;

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::{Buf, Bytes};
use windlass::future::block_on;
use windlass::net::UdpSocket;
use windlass::sim::{self, Link, Network, Sim};
use windlass::time::{Duration, Instant};

use quic::{Connection, Endpoint, HTTP_0_9, HTTP_3, Identity};

/// Sends `n` bytes over a stream, and receives them meanwhile.
fn comes_back(connection: &Connection, n: usize) {
    let (mut send, mut receive) = connection.open().unwrap();
    let sent: Vec<_> = (0..n).map(|i| (i % 251) as u8).collect();
    let same = sent.clone();
    let sends = windlass::spawn(move || {
        send.write_all(b"GET /echo\r\n").unwrap();
        send.write_all(&same).unwrap();
        send.finish().unwrap();
    });
    let mut echo = Vec::new();
    receive.read_to_end(&mut echo).unwrap();
    sends.join().unwrap();
    assert!(echo == sent);
}

/// A server that runs until it is dropped, and its certificate.
fn serve(addr: &str, identity: Identity, seed: Option<[u8; 32]>) -> Arc<Endpoint> {
    let config = identity.server_config().unwrap();
    let socket = UdpSocket::bind(addr).unwrap();
    let endpoint = Arc::new(Endpoint::new(socket, Some(config), seed).unwrap());
    let served = Arc::clone(&endpoint);
    drop(windlass::spawn(move || quic::serve(&served)));
    endpoint
}

fn client(seed: Option<[u8; 32]>, addr: &str) -> Endpoint {
    Endpoint::new(UdpSocket::bind(addr).unwrap(), None, seed).unwrap()
}

#[test]
fn pages_and_echoes_on_many_streams() {
    util::run(2, || {
        let identity = Identity::new(&["localhost"]).unwrap();
        let config = quic::client_config(&identity.cert, HTTP_0_9).unwrap();
        let server = serve("127.0.0.1:0", identity, None);
        let endpoint = client(None, "127.0.0.1:0");
        let to = server.local_addr().unwrap();
        let connection = endpoint.connect(to, "localhost", config.clone()).unwrap();
        assert_eq!(quic::get(&connection, "/").unwrap(), b"Hello over QUIC\n");
        assert_eq!(quic::get(&connection, "/none").unwrap(), b"");
        // More than fits into the windows, on several streams at once.
        let fetches: Vec<_> = (0..8)
            .map(|i| {
                let connection = connection.clone();
                let path = format!("/bytes/{}", 2_000_000 + i);
                windlass::spawn(move || quic::get(&connection, &path).unwrap().len())
            })
            .collect();
        for (i, fetch) in fetches.into_iter().enumerate() {
            assert_eq!(fetch.join().unwrap(), 2_000_000 + i);
        }
        comes_back(&connection, 3_000_000);
        // Connections beside each other, from one socket.
        for _ in 0..20 {
            let other = endpoint.connect(to, "localhost", config.clone()).unwrap();
            assert_eq!(quic::get(&other, "/bytes/9").unwrap(), b"wwwwwwwww");
        }
        // The end of the server ends the connection.
        server.close();
        let e = quic::get(&connection, "/").unwrap_err();
        assert!(e.to_string().contains("closed"), "{e}");
    });
}

#[test]
fn a_server_that_is_not_trusted_is_not_asked() {
    util::run(1, || {
        let server = serve("127.0.0.1:0", Identity::new(&["localhost"]).unwrap(), None);
        let other = Identity::new(&["localhost"]).unwrap();
        let config = quic::client_config(&other.cert, HTTP_0_9).unwrap();
        let endpoint = client(None, "127.0.0.1:0");
        let e = endpoint
            .connect(server.local_addr().unwrap(), "localhost", config)
            .unwrap_err();
        assert!(e.to_string().contains("certificate"), "{e}");
    });
}

/// h3's own client, on the same streams.
#[test]
fn http3_answers() {
    util::run(2, || {
        let identity = Identity::new(&["localhost"]).unwrap();
        let config = quic::client_config(&identity.cert, HTTP_3).unwrap();
        let server = serve("127.0.0.1:0", identity, None);
        let endpoint = client(None, "127.0.0.1:0");
        let to = server.local_addr().unwrap();
        let connection = endpoint.connect(to, "localhost", config).unwrap();
        let (mut driver, http) = block_on(h3::client::new(quic::Quic(connection))).unwrap();
        let drives =
            windlass::spawn(move || block_on(std::future::poll_fn(|cx| driver.poll_close(cx))));
        let fetch = |method: &str, path: &str, body: &[u8]| {
            let (mut http, body) = (http.clone(), Bytes::copy_from_slice(body));
            let uri = format!("https://localhost{path}");
            let request = http::Request::builder().method(method).uri(uri).body(());
            windlass::spawn(move || {
                block_on(async {
                    let stream = http.send_request(request.unwrap()).await.unwrap();
                    let (mut send, mut receive) = stream.split();
                    let sends = windlass::spawn(move || {
                        block_on(async {
                            // An answer may come without all of it.
                            if send.send_data(body).await.is_ok() {
                                let _ = send.finish().await;
                            }
                        });
                    });
                    let response = receive.recv_response().await.unwrap();
                    let mut page = Vec::new();
                    while let Some(mut part) = receive.recv_data().await.unwrap() {
                        page.extend_from_slice(&part.copy_to_bytes(part.remaining()));
                    }
                    sends.join().unwrap();
                    (response.status().as_u16(), page)
                })
            })
        };
        let page = fetch("GET", "/", b"").join().unwrap();
        assert_eq!(page, (200, b"Hello over QUIC\n".to_vec()));
        assert_eq!(fetch("GET", "/none", b"").join().unwrap().0, 404);
        assert_eq!(fetch("POST", "/", b"").join().unwrap().0, 404);
        let sent: Vec<_> = (0..2_000_000).map(|i| (i % 251) as u8).collect();
        // More than fits into the windows, on two streams at once.
        let echoes: Vec<_> = (0..2).map(|_| fetch("POST", "/echo", &sent)).collect();
        for echo in echoes {
            let (status, echo) = echo.join().unwrap();
            assert!(status == 200 && echo == sent);
        }
        server.close();
        drives.join().unwrap();
    });
}

/// A client of which no part is ours: curl, with ngtcp2 and nghttp3. PyPI has it, as Debian's curl has no HTTP/3.
#[test]
fn http3_answers_curl() {
    let Some(python) = python_with_curl() else {
        return eprintln!("SKIPPED: no curl with HTTP/3 here (`make clients` fetches it)");
    };
    util::run(2, || {
        let identity = Identity::new(&["localhost"]).unwrap();
        let folder = temp::TempDir::new();
        let cert = folder.path().join("cert.pem");
        std::fs::write(&cert, &identity.pem).unwrap();
        let server = serve("127.0.0.1:0", identity, None);
        let port = server.local_addr().unwrap().port().to_string();
        let mut command = windlass::process::Command::new(python);
        command.args(["-c", CURL, &port]).arg(&cert);
        let output = command.output().unwrap();
        let (said, error) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        assert!(output.status.success(), "{said}{error}");
        assert_eq!(said.trim_end(), "all came");
        server.close();
    });
}

/// The client's program.
const CURL: &str = "
import sys
import curl_cffi as curl
port, cert = sys.argv[1:]
session = curl.Session(http_version='v3only', verify=cert, timeout=100)
def ask(method, path, body=None):
    answer = session.request(method, f'https://localhost:{port}{path}', data=body)
    assert answer.http_version == 30, answer.http_version
    return answer.status_code, answer.content
assert ask('GET', '/') == (200, b'Hello over QUIC\\n')
assert ask('GET', '/none')[0] == 404
# An answer that does not wait for the request's body.
assert ask('POST', '/', bytes(5_000_000))[0] == 404
# Over the same connection.
for n in [0, 1, 1_000_000]:
    assert ask('GET', f'/bytes/{n}') == (200, b'w' * n)
body = bytes(i % 251 for i in range(1_000_000))
assert ask('POST', '/echo', body) == (200, body)
# Many streams at once.
import asyncio
async def all():
    async with curl.AsyncSession(http_version='v3only', verify=cert, timeout=100) as session:
        pages = [session.get(f'https://localhost:{port}/bytes/{n}') for n in range(50)]
        for n, page in enumerate(await asyncio.gather(*pages)):
            assert page.content == b'w' * n
asyncio.run(all())
# Of a server that is not trusted, nothing is asked.
try:
    curl.get(f'https://localhost:{port}/', http_version='v3only', timeout=100)
except curl.requests.exceptions.RequestException as e:
    assert 'certificate' in str(e).lower(), e
else:
    raise AssertionError('it is trusted')
print('all came')
";

/// Python with curl, as scripts/clients.sh installs it.
fn python_with_curl() -> Option<PathBuf> {
    // Beside the folder for files of tests.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let environment = target.join("clients/kosoku");
    let mut versions = std::fs::read_dir(environment.join("lib")).ok()?;
    let has = versions.any(|version| {
        let packages = version.unwrap().path().join("site-packages");
        packages.join("curl_cffi").exists()
    });
    has.then(|| environment.join("bin/python"))
}

/// A goroutine that waits for nobody is idle: the handshake is given up in virtual time.
#[test]
fn a_server_that_is_away_is_given_up() {
    let report = Sim::new(util::PROMISE).seed(0).seeds(4).run(|| {
        let identity = identity_of_one_length();
        let config = quic::client_config(&identity.cert, HTTP_0_9).unwrap();
        let began = Instant::now();
        let endpoint = client(Some([1; 32]), "127.0.0.1:0");
        let to = "127.0.0.1:9".parse().unwrap();
        endpoint.connect(to, "localhost", config).unwrap_err();
        assert!(began.elapsed() >= Duration::from_secs(30));
    });
    report.unwrap();
}

/// Signatures of Ed25519 all have one length, so that two runs of a simulation have packets of the same lengths.
fn identity_of_one_length() -> Identity {
    Identity::with_key(&["localhost"], &rcgen::PKCS_ED25519).unwrap()
}

/// Every byte comes over links that lose, double, delay and reorder packets.
#[test]
fn bytes_come_over_bad_links() {
    let link = Link::new()
        .latency_between(Duration::from_millis(1), Duration::from_millis(30))
        .loss(0.05)
        .duplication(0.02)
        .reordering(0.05);
    let sim = Sim::new(util::PROMISE).seed(0).seeds(6).may_panic(false);
    let report = sim.run(move || {
        Network::set_all_links(link);
        let identity = identity_of_one_length();
        let config = quic::client_config(&identity.cert, HTTP_0_9).unwrap();
        let identity = std::sync::Mutex::new(Some(identity));
        let server = sim::host("server", [10, 0, 0, 1], move || {
            let identity = identity.lock().unwrap().take().unwrap();
            let endpoint = serve("0.0.0.0:443", identity, Some([1; 32]));
            windlass::sleep(Duration::from_secs(600));
            endpoint.close();
        });
        let endpoint = client(Some([2; 32]), "0.0.0.0:0");
        let to = (server.ip(), 443).into();
        let connection = endpoint.connect(to, "localhost", config).unwrap();
        comes_back(&connection, 200_000);
        assert!(connection.lost_packets() > 0, "the link lost none");
    });
    report.unwrap();
}

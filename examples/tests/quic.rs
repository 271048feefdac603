//! The QUIC example: server and client over loopback, and over simulated networks that lose packets.

#[path = "../quic/mod.rs"]
mod quic;
#[path = "../../tests/util/mod.rs"]
mod util;

use std::io::{Read, Write};
use std::sync::Arc;

use windlass::net::UdpSocket;
use windlass::sim::{self, Link, Network, Sim};
use windlass::time::{Duration, Instant};

use quic::{Connection, Endpoint, Identity};

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
        let config = quic::client_config(&identity.cert).unwrap();
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
        let config = quic::client_config(&other.cert).unwrap();
        let endpoint = client(None, "127.0.0.1:0");
        let e = endpoint
            .connect(server.local_addr().unwrap(), "localhost", config)
            .unwrap_err();
        assert!(e.to_string().contains("certificate"), "{e}");
    });
}

/// A goroutine that waits for nobody is idle: the handshake is given up in virtual time.
#[test]
fn a_server_that_is_away_is_given_up() {
    let report = Sim::new(util::PROMISE).seed(0).seeds(4).run(|| {
        let identity = Identity::new(&["localhost"]).unwrap();
        let config = quic::client_config(&identity.cert).unwrap();
        let began = Instant::now();
        let endpoint = client(Some([1; 32]), "127.0.0.1:0");
        let to = "127.0.0.1:9".parse().unwrap();
        endpoint.connect(to, "localhost", config).unwrap_err();
        assert!(began.elapsed() >= Duration::from_secs(30));
    });
    report.unwrap();
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
        let identity = Identity::new(&["localhost"]).unwrap();
        let config = quic::client_config(&identity.cert).unwrap();
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

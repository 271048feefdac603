//! A server of HTTP/3, and of HTTP/0.9 over QUIC, the protocol by which QUIC libraries test each other; a client of the
//! latter.
//!
//! ```text
//! cargo run --release --features quic --example quic -- [--addr HOST:PORT] >cert.pem
//! curl --http3-only --cacert cert.pem https://localhost:4433/bytes/1000
//! cargo run --release --features quic --example quic -- --get HOST:PORT --path /bytes/1000 --cert cert.pem
//! ```
//!
//! The server listens on 127.0.0.1:4433 by default, and prints the certificate that it has made for localhost, which
//! the client is to trust. Ctrl-c or SIGTERM stop it. Pages: `/`, `/bytes/N`, `/echo` (with HTTP/3 by POST).
//!
//! If `curl --version` does not name HTTP3, PyPI has a curl that knows it: `make clients` installs it for the tests.
//!
//! ```text
//! target/clients/kosoku/bin/python -c 'import curl_cffi as curl
//! print(curl.get("https://localhost:4433/", http_version="v3only", verify="cert.pem").text)'
//! ```
//!
//! The protocol is the crate quinn-proto, which makes no system call. `endpoint.rs` brings it onto a `UdpSocket` with
//! blocking calls: streams implement `Read` and `Write`, and park the goroutine. HTTP/3 is the crate h3: `http3.rs` gives it
//! these streams.
#![expect(clippy::print_stdout, reason = "prints the certificate, or the page")]

#[path = "../support/args.rs"]
mod args;
#[path = "mod.rs"]
mod quic;
#[path = "../support/signals.rs"]
mod signals;

use std::io::{self, Write};
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use windlass::net::{ToSocketAddrs, UdpSocket};

use quic::{Endpoint, Identity};

const USAGE: &str = "usage: quic [--addr HOST:PORT]
       quic --get HOST:PORT [--path PATH] --cert FILE.pem";

fn main() -> io::Result<()> {
    let mut args = args::Args::of_process(USAGE);
    let addr = args.value("--addr", "127.0.0.1:4433".to_owned());
    let (server, cert): (Option<String>, Option<String>) =
        (args.optional("--get"), args.optional("--cert"));
    let path = args.value("--path", "/".to_owned());
    args.finish();

    #[expect(
        unsafe_code,
        reason = "the promise that windlass asks of every program"
    )]
    // SAFETY: no goroutine of this program keeps a thread-local borrow across a call that parks.
    let runtime = unsafe { windlass::Builder::new().name("quic").build()? };
    runtime.run(|| match (server, cert) {
        (Some(server), Some(cert)) => get(&server, &path, &cert),
        (None, None) => serve(&addr),
        _ => Err(io::Error::other("--get and --cert go together")),
    })
}

fn serve(addr: &str) -> io::Result<()> {
    let signals = signals::StopSignals::register()?;
    let identity = Identity::new(&["localhost"])?;
    let pem = identity.pem.clone();
    let config = identity.server_config()?;
    let endpoint = Arc::new(Endpoint::new(UdpSocket::bind(addr)?, Some(config), None)?);
    eprintln!("listens on {}", endpoint.local_addr()?);
    print!("{pem}");
    io::stdout().flush()?;
    let served = Arc::clone(&endpoint);
    let serves = windlass::spawn(move || quic::serve(&served));
    signals.wait()?;
    endpoint.close();
    serves.join().map_err(|_| io::Error::other("it panicked"))
}

fn get(server: &str, path: &str, cert: &str) -> io::Result<()> {
    let cert = CertificateDer::from_pem_file(cert).map_err(io::Error::other)?;
    let config = quic::client_config(&cert, quic::HTTP_0_9)?;
    let mut addrs = server.to_socket_addrs()?;
    let to = addrs.next().ok_or_else(|| io::Error::other("no address"))?;
    let own = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let endpoint = Endpoint::new(UdpSocket::bind(own)?, None, None)?;
    let connection = endpoint.connect(to, "localhost", config)?;
    io::stdout().write_all(&quic::get(&connection, path)?)
}

//! Fetching a page over TLS.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use windlass::net::TcpStream;

const TIMEOUT: Duration = Duration::from_secs(30);
const MAX_PAGE_BYTES: u64 = 256 << 20;
const MAX_HEADERS: usize = 100;

/// The answer of a server.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

/// The settings of a client that trusts the certificates in PEM text.
pub(crate) fn trusting(pem: &[u8]) -> io::Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    // The system's list may contain certificates that rustls does not support.
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(pem).flatten());
    if roots.is_empty() {
        return Err(io::Error::other("no certificate to trust"));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// Fetches `https://host[:port]/path`.
pub(crate) fn get(url: &str, config: Arc<ClientConfig>) -> io::Result<Page> {
    let Some(rest) = url.strip_prefix("https://") else {
        return Err(io::Error::other("the address does not begin with https://"));
    };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let path = if path.is_empty() { "/" } else { path };
    if rest.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err(io::Error::other("the address has spaces in it"));
    }
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) => (host, port.parse().map_err(io::Error::other)?),
        None => (authority, 443),
    };
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    let tcp = TcpStream::connect((host, port))?;
    tcp.set_read_timeout(Some(TIMEOUT))?;
    tcp.set_write_timeout(Some(TIMEOUT))?;
    let tls = ClientConnection::new(config, name).map_err(io::Error::other)?;
    let mut stream = StreamOwned::new(tls, tcp);
    // In HTTP/1.0 the body ends with the connection.
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {authority}\r\n\r\n")?;
    stream.flush()?;
    let mut answer = Vec::new();
    // An attacker who cuts the connection cannot send TLS's closing message, so a missing one is an
    // error.
    (&mut stream)
        .take(MAX_PAGE_BYTES)
        .read_to_end(&mut answer)?;
    page_of(answer)
}

fn page_of(answer: Vec<u8>) -> io::Result<Page> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut head = httparse::Response::new(&mut headers);
    let parsed = head.parse(&answer).map_err(io::Error::other)?;
    let (httparse::Status::Complete(head_bytes), Some(status)) = (parsed, head.code) else {
        return Err(io::Error::other("the answer has no end"));
    };
    let body = answer[head_bytes..].to_vec();
    Ok(Page { status, body })
}

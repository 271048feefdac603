//! HTTP over TLS: rustls's blocking stream on top of a stream of windlass.

use std::io::{self, Read, Write};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use windlass::net::{Graceful, Member, TcpListener, TcpStream};

use crate::http::connection::Transport;
use crate::http::{Connection, Idle, Patience, page};
use crate::serve::complain;

/// A certificate with its chain, and its private key.
pub(crate) struct Identity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl Identity {
    /// Reads PEM files.
    #[allow(dead_code, reason = "the tests have no files")]
    pub(crate) fn from_files(cert: &str, key: &str) -> io::Result<Identity> {
        let told = |file: &str, e| io::Error::other(format!("{file}: {e}"));
        let chain = CertificateDer::pem_file_iter(cert)
            .and_then(Iterator::collect)
            .map_err(|e| told(cert, e))?;
        let key = PrivateKeyDer::from_pem_file(key).map_err(|e| told(key, e))?;
        Ok(Identity { chain, key })
    }

    /// Makes a self-signed certificate for some names. Also returns it as PEM, for clients that are
    /// to trust it.
    pub(crate) fn self_signed(names: &[&str]) -> io::Result<(Identity, String)> {
        let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
        let made = rcgen::generate_simple_self_signed(names).map_err(io::Error::other)?;
        let pem = made.cert.pem();
        let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
        let chain = vec![made.cert.into()];
        Ok((Identity { chain, key }, pem))
    }

    /// The settings of a server with this identity.
    pub(crate) fn server_config(self) -> io::Result<Arc<ServerConfig>> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| {
                builder
                    .with_no_client_auth()
                    .with_single_cert(self.chain, self.key)
            })
            .map_err(io::Error::other)?;
        // A client that reconnects resumes its session, which needs no signature.
        config.ticketer = rustls::crypto::ring::Ticketer::new().map_err(io::Error::other)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

/// Serves the pages of httpd until the server is asked to stop.
///
/// # Errors
///
/// The listener cannot accept any more.
pub(crate) fn serve(
    listener: TcpListener,
    server: &Graceful,
    config: &Arc<ServerConfig>,
) -> io::Result<()> {
    serve_with(listener, server, config, Patience::default())
}

/// As [`serve`], with other timeouts. The handshake counts as part of the wait for the first
/// request.
pub(crate) fn serve_with(
    listener: TcpListener,
    server: &Graceful,
    config: &Arc<ServerConfig>,
    patience: Patience,
) -> io::Result<()> {
    let config = Arc::clone(config);
    server.serve_with(listener, complain(), move |stream, member| {
        // Errors of a connection concern only its peer: it has gone, or does not trust the
        // certificate.
        let _ = serve_one(stream, Arc::clone(&config), patience, member);
    })
}

fn serve_one(
    stream: TcpStream,
    config: Arc<ServerConfig>,
    patience: Patience,
    member: &Member,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let tls = ServerConnection::new(config).map_err(io::Error::other)?;
    let stream = Tls(StreamOwned::new(tls, stream));
    Connection::new(stream, &page, patience, Idle::Parked(member)).run()?;
    Ok(())
}

struct Tls(StreamOwned<ServerConnection, TcpStream>);

impl Read for Tls {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf)
    }
}

impl Write for Tls {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Transport for Tls {
    fn tcp(&self) -> &TcpStream {
        &self.0.sock
    }

    /// The peer then knows that the answer is complete.
    fn close(&mut self) -> io::Result<()> {
        self.0.conn.send_close_notify();
        self.0.flush()
    }
}

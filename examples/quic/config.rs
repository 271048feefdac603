//! Settings of TLS and of the transport.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use quinn_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn_proto::{ClientConfig, IdleTimeout, ServerConfig, TransportConfig, VarInt};
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::{HTTP_0_9, HTTP_3};

/// A connection without a packet for so long is over.
const IDLE: Duration = Duration::from_secs(30);

/// Streams of one direction that a peer may have open. HTTP/3 has three in each direction, and a client may open some
/// that mean nothing.
const UNI_STREAMS: VarInt = VarInt::from_u32(16);

/// A certificate, and its key.
pub(crate) struct Identity {
    pub(crate) cert: CertificateDer<'static>,
    /// The certificate as text.
    #[allow(dead_code, reason = "the tests need no text")]
    pub(crate) pem: String,
    key: PrivateKeyDer<'static>,
}

impl Identity {
    /// Makes a certificate for some names, with a key that all clients know.
    ///
    /// # Errors
    ///
    /// A name is none.
    pub(crate) fn new(names: &[&str]) -> io::Result<Identity> {
        Identity::with_key(names, &rcgen::PKCS_ECDSA_P256_SHA256)
    }

    /// As [`Identity::new`], with a key of this kind.
    ///
    /// # Errors
    ///
    /// A name is none.
    pub(crate) fn with_key(
        names: &[&str],
        kind: &'static rcgen::SignatureAlgorithm,
    ) -> io::Result<Identity> {
        let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
        let key = rcgen::KeyPair::generate_for(kind).map_err(io::Error::other)?;
        let params = rcgen::CertificateParams::new(names).map_err(io::Error::other)?;
        let cert = params.self_signed(&key).map_err(io::Error::other)?;
        Ok(Identity {
            pem: cert.pem(),
            cert: cert.into(),
            key: PrivateKeyDer::Pkcs8(key.serialize_der().into()),
        })
    }

    /// The settings of a server with this identity.
    ///
    /// # Errors
    ///
    /// The key is not that of the certificate.
    pub(crate) fn server_config(self) -> io::Result<ServerConfig> {
        let mut tls = rustls::ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .and_then(|tls| {
                tls.with_no_client_auth()
                    .with_single_cert(vec![self.cert], self.key)
            })
            .map_err(io::Error::other)?;
        tls.alpn_protocols = vec![HTTP_3.to_vec(), HTTP_0_9.to_vec()];
        let tls = QuicServerConfig::try_from(tls).map_err(io::Error::other)?;
        let mut config = ServerConfig::with_crypto(Arc::new(tls));
        config.transport_config(transport());
        Ok(config)
    }
}

/// The settings of a client that trusts a certificate, and speaks a protocol.
///
/// # Errors
///
/// It is none.
pub(crate) fn client_config(
    trusted: &CertificateDer<'static>,
    protocol: &[u8],
) -> io::Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).map_err(io::Error::other)?;
    let mut tls = rustls::ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![protocol.to_vec()];
    let tls = QuicClientConfig::try_from(tls).map_err(io::Error::other)?;
    let mut config = ClientConfig::new(Arc::new(tls));
    config.transport_config(transport());
    Ok(config)
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn transport() -> Arc<TransportConfig> {
    let mut transport = TransportConfig::default();
    let idle = IdleTimeout::try_from(IDLE).ok();
    transport
        .max_idle_timeout(idle)
        .max_concurrent_uni_streams(UNI_STREAMS);
    Arc::new(transport)
}

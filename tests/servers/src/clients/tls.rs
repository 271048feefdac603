//! native-tls, which is OpenSSL here, and rustls. Each dialogue is a handshake and an echo.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

use ::native_tls::{Certificate, HandshakeError, Identity, TlsAcceptor, TlsConnector};
use ::rustls::pki_types::pem::PemObject;
use ::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use ::rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned,
};
use openssl::asn1::Asn1Time;
use openssl::ec::{EcGroup, EcKey};
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::PKey;
use openssl::x509::extension::SubjectAlternativeName;
use openssl::x509::{X509Builder, X509NameBuilder};

use super::{Opener, Result, World, check};
use crate::servers::Kind;

/// Serves one connection, or uses one.
pub type Talk = Arc<dyn Fn(TcpStream) -> Result + Send + Sync>;

/// Makes one side of the dialogue. Fails if the certificate in the directory cannot be read.
pub type Side = fn(&Path) -> Result<Talk>;

/// The server's and the client's side of a server of TLS, `None` for others.
pub fn sides(kind: Kind) -> Option<(Side, Side)> {
    match kind {
        Kind::NativeTls => Some((native_tls_server, native_tls_client)),
        Kind::Rustls => Some((rustls_server, rustls_client)),
        _ => None,
    }
}

/// How many bytes are echoed.
const LEN: usize = 16;

/// A new certificate for localhost and its key, as `certificate.pem` and `key.pem` in the directory.
///
/// # Errors
///
/// Errors of OpenSSL and of the file system.
pub fn write_certificate(dir: &Path) -> Result {
    let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1)?;
    let key = PKey::from_ec_key(EcKey::generate(&group)?)?;
    let mut name = X509NameBuilder::new()?;
    name.append_entry_by_text("CN", "localhost")?;
    let name = name.build();
    let mut builder = X509Builder::new()?;
    builder.set_version(2)?;
    builder.set_subject_name(&name)?;
    builder.set_issuer_name(&name)?;
    builder.set_pubkey(&key)?;
    builder.set_not_before(&*Asn1Time::days_from_now(0)?)?;
    builder.set_not_after(&*Asn1Time::days_from_now(2)?)?;
    let names = SubjectAlternativeName::new()
        .dns("localhost")
        .build(&builder.x509v3_context(None, None))?;
    builder.append_extension(names)?;
    builder.sign(&key, MessageDigest::sha256())?;
    fs::write(dir.join("certificate.pem"), builder.build().to_pem()?)?;
    fs::write(dir.join("key.pem"), key.private_key_to_pem_pkcs8()?)?;
    Ok(())
}

/// Sends what was received.
fn echo(mut stream: impl Read + Write) -> Result {
    let mut bytes = [0; LEN];
    stream.read_exact(&mut bytes)?;
    stream.write_all(&bytes)?;
    stream.flush()?;
    Ok(())
}

/// Gets back what was sent.
fn exchange(mut stream: impl Read + Write) -> Result {
    let (sent, mut received) = (*b"a text of 16 B: ", [0; LEN]);
    stream.write_all(&sent)?;
    stream.flush()?;
    stream.read_exact(&mut received)?;
    check(&received, &sent)
}

/// `HandshakeError` holds the connection, and so is no error to hand on.
fn shaken<S>(result: std::result::Result<S, HandshakeError<TcpStream>>) -> Result<S> {
    result.map_err(|e| e.to_string().into())
}

/// The server's side of native-tls.
fn native_tls_server(dir: &Path) -> Result<Talk> {
    let certificate = fs::read(dir.join("certificate.pem"))?;
    let key = fs::read(dir.join("key.pem"))?;
    let acceptor = TlsAcceptor::new(Identity::from_pkcs8(&certificate, &key)?)?;
    Ok(Arc::new(move |stream| {
        echo(shaken(acceptor.accept(stream))?)
    }))
}

/// The client's side of native-tls.
fn native_tls_client(dir: &Path) -> Result<Talk> {
    let certificate = Certificate::from_pem(&fs::read(dir.join("certificate.pem"))?)?;
    let connector = TlsConnector::builder()
        .disable_built_in_roots(true)
        .add_root_certificate(certificate)
        .build()?;
    Ok(Arc::new(move |stream| {
        exchange(shaken(connector.connect("localhost", stream))?)
    }))
}

/// The server's side of rustls.
fn rustls_server(dir: &Path) -> Result<Talk> {
    let certificate = CertificateDer::from_pem_file(dir.join("certificate.pem"))?;
    let key = PrivateKeyDer::from_pem_file(dir.join("key.pem"))?;
    let config = ServerConfig::builder().with_no_client_auth();
    let config = Arc::new(config.with_single_cert(vec![certificate], key)?);
    Ok(Arc::new(move |stream| {
        let connection = ServerConnection::new(Arc::clone(&config))?;
        echo(StreamOwned::new(connection, stream))
    }))
}

/// The client's side of rustls.
fn rustls_client(dir: &Path) -> Result<Talk> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(dir.join("certificate.pem"))?)?;
    let config = ClientConfig::builder().with_root_certificates(roots);
    let mut config = config.with_no_client_auth();
    // Each handshake is a whole one, as those of native-tls are.
    config.resumption = ::rustls::client::Resumption::disabled();
    let (config, name) = (Arc::new(config), ServerName::try_from("localhost")?);
    Ok(Arc::new(move |stream| {
        let connection = ClientConnection::new(Arc::clone(&config), name.clone())?;
        exchange(StreamOwned::new(connection, stream))
    }))
}

/// A new connection for each dialogue.
fn opener(world: &World, talk: Talk) -> Opener {
    let port = world.port;
    Box::new(move || {
        let talk = Arc::clone(&talk);
        Ok(Box::new(move |_| {
            talk(TcpStream::connect(("127.0.0.1", port))?)
        }))
    })
}

pub(super) fn native_tls(world: &World) -> Result<Opener> {
    Ok(opener(world, native_tls_client(&world.dir)?))
}

pub(super) fn rustls(world: &World) -> Result<Opener> {
    Ok(opener(world, rustls_client(&world.dir)?))
}

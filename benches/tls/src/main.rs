//! rustls over windlass's blocking streams, beside tokio-rustls: handshakes a second, and
//! bytes a second on few connections, each with the CPU time of the server.
//!
//! `tls --rounds 5 --seconds 3 --workers 2` starts the servers in turn, each a process of its
//! own, and loads them from plain threads. Every handshake is a whole one: clients keep no
//! tickets. Both sides use the same provider (ring) and the suite that they agree on.
#![expect(clippy::print_stdout, reason = "the result")]

use std::env;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use ::tokio::io::{AsyncReadExt, AsyncWriteExt};
use clap::{Parser, Subcommand};
use rustls::client::Resumption;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned,
};
use windlass_benches::process::CpuTime;
use windlass_benches::runtimes::{self, Name};

#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    role: Option<Role>,
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// How long a server is loaded.
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    #[arg(long, default_value_t = runtimes::workers())]
    workers: usize,
    /// Threads that make handshakes, or take bytes on a connection each.
    #[arg(long, default_value_t = 4)]
    clients: usize,
}

#[derive(Subcommand)]
enum Role {
    /// One server; takes its certificate and key from its input, and prints its address.
    Serve {
        runtime: Name,
        #[arg(long)]
        workers: usize,
    },
}

/// The bytes that a server sends at a time, and those that a client asks for.
const CHUNK_BYTES: usize = 64 << 10;
const BULK_BYTES: u64 = 4 << 20;

fn main() -> io::Result<()> {
    let args = Args::parse();
    match args.role {
        Some(Role::Serve { runtime, workers }) => serve(runtime, workers),
        None => compare(&args),
    }
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn serve(runtime: Name, workers: usize) -> io::Result<()> {
    let mut pem = Vec::new();
    io::stdin().read_to_end(&mut pem)?;
    let chain = CertificateDer::pem_slice_iter(&pem)
        .collect::<Result<_, _>>()
        .map_err(io::Error::other)?;
    let key = PrivateKeyDer::from_pem_slice(&pem).map_err(io::Error::other)?;
    let config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .map_err(io::Error::other)?;
    let config = Arc::new(config);
    match runtime {
        Name::Windlass => runtimes::windlass(workers).run(move || windlass(config)),
        Name::Tokio => runtimes::tokio(workers).run(tokio(config)),
        other => other.has_no_twin(),
    }
}

fn windlass(config: Arc<ServerConfig>) -> io::Result<()> {
    let listener = windlass::net::TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        let tls = ServerConnection::new(Arc::clone(&config)).map_err(io::Error::other)?;
        // A client that goes away has what it wanted.
        windlass::spawn(move || answer(StreamOwned::new(tls, stream)));
    }
}

/// Sends as many bytes as the client asks for, until it asks for no more.
fn answer(mut stream: impl Read + Write) -> io::Result<()> {
    let chunk = vec![b'.'; CHUNK_BYTES];
    let mut wanted = [0; 8];
    loop {
        stream.read_exact(&mut wanted)?;
        let mut n_left = u64::from_le_bytes(wanted);
        while n_left > 0 {
            let n = n_left.min(chunk.len() as u64);
            stream.write_all(&chunk[..n as usize])?;
            n_left -= n;
        }
        stream.flush()?;
    }
}

async fn tokio(config: Arc<ServerConfig>) -> io::Result<()> {
    let listener = ::tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    let acceptor = tokio_rustls::TlsAcceptor::from(config);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let acceptor = acceptor.clone();
        ::tokio::spawn(async move { answer_async(acceptor.accept(stream).await?).await });
    }
}

async fn answer_async(
    mut stream: tokio_rustls::server::TlsStream<::tokio::net::TcpStream>,
) -> io::Result<()> {
    let chunk = vec![b'.'; CHUNK_BYTES];
    let mut wanted = [0; 8];
    loop {
        stream.read_exact(&mut wanted).await?;
        let mut n_left = u64::from_le_bytes(wanted);
        while n_left > 0 {
            let n = n_left.min(chunk.len() as u64);
            stream.write_all(&chunk[..n as usize]).await?;
            n_left -= n;
        }
        stream.flush().await?;
    }
}

/// A server, which ends with this.
struct Server {
    child: Child,
    addr: SocketAddr,
}

impl Server {
    fn start(runtime: Name, workers: usize, pem: &str) -> io::Result<Server> {
        let mut child = Command::new(env::current_exe()?)
            .args(["serve", &runtime.to_string(), "--workers"])
            .arg(workers.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        stdin
            .ok_or_else(|| io::Error::other("no pipe"))?
            .write_all(pem.as_bytes())?;
        let mut line = String::new();
        let stdout = stdout.ok_or_else(|| io::Error::other("no pipe"))?;
        BufReader::new(stdout).read_line(&mut line)?;
        let addr = line.trim().parse().map_err(io::Error::other)?;
        Ok(Server { child, addr })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Results of a load: operations a second, and CPU time of the server for each, in µs.
#[derive(Clone, Copy)]
struct Figures {
    per_second: f64,
    cpu_us: f64,
}

fn compare(args: &Args) -> io::Result<()> {
    let names = vec!["localhost".to_owned()];
    let made = rcgen::generate_simple_self_signed(names).map_err(io::Error::other)?;
    let pem = made.cert.pem() + &made.signing_key.serialize_pem();
    let config = trusting(made.cert.der().clone())?;
    let runtimes = [Name::Windlass, Name::Tokio];
    for (what, load) in [("handshakes", handshakes as Load), ("MiB", bulk as Load)] {
        let mut all = [Vec::new(), Vec::new()];
        for round in 0..args.rounds {
            for i in 0..runtimes.len() {
                let i = (i + round) % runtimes.len();
                let server = Server::start(runtimes[i], args.workers, &pem)?;
                all[i].push(measure(&server, args, &config, load)?);
            }
        }
        for (name, figures) in runtimes.iter().zip(all) {
            let median = |of: fn(&Figures) -> f64| {
                let mut values: Vec<_> = figures.iter().map(of).collect();
                values.sort_by(f64::total_cmp);
                let (least, most) = (values[0], values[values.len() - 1]);
                format!("{:.1} ({least:.1}-{most:.1})", values[values.len() / 2])
            };
            println!(
                "{what} {name}: per_second={} server_cpu_us={}",
                median(|f| f.per_second),
                median(|f| f.cpu_us)
            );
        }
    }
    Ok(())
}

/// The settings of a client that makes every handshake anew.
fn trusting(cert: CertificateDer<'static>) -> io::Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    roots.add(cert).map_err(io::Error::other)?;
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// Loads a server until the given time; gives how many operations that were.
type Load = fn(SocketAddr, &Arc<ClientConfig>, Instant) -> io::Result<f64>;

fn measure(
    server: &Server,
    args: &Args,
    config: &Arc<ClientConfig>,
    load: Load,
) -> io::Result<Figures> {
    let before = CpuTime::of(server.child.id())?;
    let begin = Instant::now();
    let until = begin + Duration::from_secs(args.seconds);
    let n = thread::scope(|s| {
        let clients: Vec<_> = (0..args.clients)
            .map(|_| s.spawn(|| load(server.addr, config, until)))
            .collect();
        let ended = clients.into_iter().map(|client| client.join());
        ended
            .map(|n| n.expect("a client does not panic"))
            .sum::<io::Result<f64>>()
    })?;
    let seconds = begin.elapsed().as_secs_f64();
    let cpu = CpuTime::of(server.child.id())?.since(before).total();
    Ok(Figures {
        per_second: n / seconds,
        cpu_us: cpu.as_secs_f64() * 1e6 / n,
    })
}

fn connect(
    addr: SocketAddr,
    config: &Arc<ClientConfig>,
) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
    let tcp = TcpStream::connect(addr)?;
    tcp.set_nodelay(true)?;
    let name = ServerName::try_from("localhost").map_err(io::Error::other)?;
    let tls = ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)?;
    Ok(StreamOwned::new(tls, tcp))
}

fn ask(stream: &mut (impl Read + Write), n_bytes: u64, buf: &mut [u8]) -> io::Result<()> {
    stream.write_all(&n_bytes.to_le_bytes())?;
    stream.flush()?;
    let mut n_left = n_bytes;
    while n_left > 0 {
        let most = n_left.min(buf.len() as u64) as usize;
        match stream.read(&mut buf[..most])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => n_left -= n as u64,
        }
    }
    Ok(())
}

/// Connections that get a byte each.
fn handshakes(addr: SocketAddr, config: &Arc<ClientConfig>, until: Instant) -> io::Result<f64> {
    let mut n = 0.0;
    while Instant::now() < until {
        ask(&mut connect(addr, config)?, 1, &mut [0])?;
        n += 1.0;
    }
    Ok(n)
}

/// MiB on one connection.
fn bulk(addr: SocketAddr, config: &Arc<ClientConfig>, until: Instant) -> io::Result<f64> {
    let mut stream = connect(addr, config)?;
    let mut buf = vec![0; CHUNK_BYTES];
    let mut n = 0.0;
    while Instant::now() < until {
        ask(&mut stream, BULK_BYTES, &mut buf)?;
        n += BULK_BYTES as f64 / f64::from(1 << 20);
    }
    Ok(n)
}

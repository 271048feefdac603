//! Costs: equal requests in four ways, with the CPU time of each.

use std::error::Error;
use std::io;
use std::str::FromStr;
use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Request, Uri};
use windlass::future::{self, block_on};
use windlass::net::TcpStream;
use windlass_hyper::Io;

use crate::reactor::{self, Reactor};

/// The place where futures are polled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum By {
    /// tokio alone, in a task for each.
    Tokio,
    /// tokio's thread, for goroutines that wait.
    Spawned,
    /// The goroutines, inside the tokio runtime.
    Entered,
    /// The goroutines, with hyper over windlass-hyper.
    Native,
}

impl FromStr for By {
    type Err = ();

    fn from_str(name: &str) -> Result<By, ()> {
        Ok(match name {
            "tokio" => By::Tokio,
            "spawned" => By::Spawned,
            "entered" => By::Entered,
            "native" => By::Native,
            _ => return Err(()),
        })
    }
}

/// The cost of some requests.
#[derive(Debug)]
pub(crate) struct Cost {
    pub(crate) n_requests: usize,
    elapsed: Duration,
    cpu: Duration,
    n_threads: usize,
}

impl std::fmt::Display for Cost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let n = self.n_requests as f64;
        write!(
            f,
            "{:.0} requests/s, {:.1} µs of CPU time each, {} threads",
            n / self.elapsed.as_secs_f64(),
            self.cpu.as_secs_f64() * 1e6 / n,
            self.n_threads
        )
    }
}

type Failed = Box<dyn Error + Send + Sync>;

/// Asks for the page as often as is said, on so many connections at the same time.
pub(crate) fn measure(
    reactor: &Reactor,
    by: By,
    url: &str,
    n_requests: usize,
    n_connections: usize,
) -> Result<Cost, Failed> {
    let n_each = n_requests / n_connections;
    let client = reqwest::Client::builder().build()?;
    let (began, cpu) = (Instant::now(), cpu_time()?);
    windlass::scope(|s| {
        let askers: Vec<_> = (0..n_connections)
            .map(|_| s.spawn(|| ask(reactor, by, client.clone(), url, n_each)))
            .collect();
        let ended = askers.into_iter().map(|asker| asker.join());
        ended
            .collect::<Vec<_>>()
            .into_iter()
            .try_for_each(|asked| asked.unwrap_or_else(|_| Err("an asker panicked".into())))
    })?;
    Ok(Cost {
        n_requests: n_each * n_connections,
        elapsed: began.elapsed(),
        cpu: cpu_time()? - cpu,
        n_threads: std::fs::read_dir("/proc/self/task")?.count(),
    })
}

fn ask(
    reactor: &Reactor,
    by: By,
    client: reqwest::Client,
    url: &str,
    n: usize,
) -> Result<(), Failed> {
    let owned = url.to_owned();
    let mut pages = (0..n).map(move |_| (client.clone(), owned.clone()));
    match by {
        By::Tokio => reactor.run(async move {
            for (client, url) in pages {
                reactor::fetch(&client, &url).await?;
            }
            Ok(())
        }),
        By::Spawned => pages.try_for_each(|(client, url)| {
            reactor.run(async move { reactor::fetch(&client, &url).await })?;
            Ok(())
        }),
        By::Entered => pages.try_for_each(|(client, url)| {
            reactor.enter(reactor::fetch(&client, &url))?;
            Ok(())
        }),
        By::Native => native(&url.parse()?, n),
    }
}

fn native(uri: &Uri, n: usize) -> Result<(), Failed> {
    let authority = uri.authority().ok_or("no host in the address")?.as_str();
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let stream = TcpStream::connect(authority)?;
    stream.set_nodelay(true)?;
    block_on(async {
        let (mut sender, connection) = http1::handshake(Io::new(stream)).await?;
        drop(future::spawn(connection));
        for _ in 0..n {
            sender.ready().await?;
            let request = Request::get(path).header("host", authority);
            let answer = sender.send_request(request.body(Empty::<Bytes>::new())?);
            answer.await?.into_body().collect().await?;
        }
        Ok(())
    })
}

/// The CPU time of the process, which the kernel tells in hundredths of a second.
fn cpu_time() -> io::Result<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // The name before it may have spaces.
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let ticks = fields.split_whitespace().skip(11).take(2);
    let n_ticks: u64 = ticks.filter_map(|n| n.parse::<u64>().ok()).sum();
    Ok(Duration::from_millis(10 * n_ticks))
}

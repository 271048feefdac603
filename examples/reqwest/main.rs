//! Fetches pages with reqwest, which needs tokio, from goroutines.
//!
//! ```text
//! cargo run --release --features reqwest --example reqwest -- --url http://example.org/[,..]
//! cargo run --release --features reqwest --example reqwest -- --url http://127.0.0.1:8080/plaintext \
//!     --load REQUESTS [--by tokio|spawned|entered|native] [--connections N] [--procs N]
//! ```
//!
//! Prints status, length and address of each page; several addresses are separated by commas. Exits
//! with status 1 if a page could not be fetched. With `--load` it fetches one page again and again,
//! and says what that costs: by tokio alone, by futures that tokio's thread polls for goroutines
//! (the default), by futures that goroutines poll inside the tokio runtime, or by hyper over
//! windlass-hyper. examples/reqwest/mod.rs has what a program needs, in one page.
#![expect(clippy::print_stdout, reason = "prints what it has fetched")]

#[path = "../support/args.rs"]
mod args;
#[path = "load.rs"]
mod load;
#[path = "mod.rs"]
mod reactor;

use std::io;
use std::process::ExitCode;

use reactor::Reactor;

const USAGE: &str = "usage: reqwest --url http://HOST[:PORT]/PATH[,..] [--load REQUESTS] \
    [--by tokio|spawned|entered|native] [--connections N] [--procs N]";

fn main() -> io::Result<ExitCode> {
    let mut args = args::Args::of_process(USAGE);
    let urls = args.value("--url", String::new());
    let n_requests: usize = args.value("--load", 0);
    let Ok(by) = args.value("--by", "spawned".to_owned()).parse() else {
        eprintln!("{USAGE}");
        return Ok(ExitCode::from(2));
    };
    let n_connections = args.value("--connections", 64).max(1);
    let procs = args.optional("--procs");
    args.finish();

    let mut builder = windlass::Builder::new().name("reqwest");
    if let Some(n) = procs {
        builder = builder.processors(n);
    }
    #[expect(
        unsafe_code,
        reason = "the promise that windlass asks of every program"
    )]
    // SAFETY: no goroutine of this program keeps a thread-local borrow across a call that parks.
    let runtime = unsafe { builder.build()? };
    runtime.run(|| {
        let reactor = Reactor::start()?;
        if n_requests > 0 {
            let cost = load::measure(&reactor, by, &urls, n_requests, n_connections);
            println!("{by:?}: {}", cost.map_err(io::Error::other)?);
            return Ok(ExitCode::SUCCESS);
        }
        Ok(match fetch_all(&reactor, &urls) {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        })
    })
}

/// All at once, each for a goroutine of its own.
fn fetch_all(reactor: &Reactor, urls: &str) -> bool {
    let client = reqwest::Client::new();
    windlass::scope(|s| {
        let fetches: Vec<_> = urls
            .split(',')
            .map(|url| {
                let (client, url) = (client.clone(), url.to_owned());
                s.spawn(|| {
                    let page = reactor.run(async move {
                        let page = reactor::fetch(&client, &url).await;
                        (url, page)
                    });
                    match page {
                        (url, Ok((status, n_bytes))) => {
                            println!("{status} {n_bytes:>9} {url}");
                            true
                        }
                        (url, Err(error)) => {
                            eprintln!("{url}: {error}");
                            false
                        }
                    }
                })
            })
            .collect();
        // All are waited for, whether or not one failed.
        let ended = fetches.into_iter().map(|fetch| fetch.join());
        let ended: Vec<_> = ended.collect();
        ended.into_iter().all(|fetched| fetched.unwrap_or(false))
    })
}

//! Fetches pages with ureq, all at once, each in a goroutine of its own.
//!
//! ```text
//! cargo run --release --features ureq --example fetch -- --url http://example.org/[,..] [--seconds N]
//! ```
//!
//! Prints status, length and address of each page; several addresses are separated by commas. Each
//! page may take 30 seconds unless `--seconds` is given. Exits with status 1 if a page could not be
//! fetched. examples/fetch/mod.rs connects ureq to windlass's sockets.
#![expect(clippy::print_stdout, reason = "prints what it has fetched")]

#[path = "../support/args.rs"]
mod args;
#[path = "mod.rs"]
mod transport;

use std::io;
use std::process::ExitCode;
use std::time::Duration;

const USAGE: &str = "usage: fetch --url http://HOST[:PORT]/PATH[,..] [--seconds N]";

fn main() -> io::Result<ExitCode> {
    let mut args = args::Args::of_process(USAGE);
    let urls = args.value("--url", String::new());
    let seconds = args.value("--seconds", 30);
    args.finish();

    #[expect(
        unsafe_code,
        reason = "the promise that windlass asks of every program"
    )]
    // SAFETY: no goroutine of this program keeps a thread-local borrow across a call that parks.
    let runtime = unsafe { windlass::Builder::new().build()? };
    let is_fetched = runtime.run(|| {
        let agent = transport::agent(Duration::from_secs(seconds));
        let fetches: Vec<_> = urls
            .split(',')
            .map(|url| {
                let (url, agent) = (url.to_owned(), agent.clone());
                windlass::spawn(move || {
                    let page = fetch(&agent, &url);
                    (url, page)
                })
            })
            .collect();
        let mut is_fetched = true;
        for fetch in fetches {
            let Ok((url, page)) = fetch.join() else {
                is_fetched = false;
                continue;
            };
            match page {
                Ok((status, n_bytes)) => println!("{status} {n_bytes:>9} {url}"),
                Err(error) => {
                    eprintln!("{url}: {error}");
                    is_fetched = false;
                }
            }
        }
        is_fetched
    });
    Ok(match is_fetched {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

fn fetch(agent: &ureq::Agent, url: &str) -> Result<(u16, u64), ureq::Error> {
    let mut answer = agent.get(url).call()?;
    let n_bytes = io::copy(&mut answer.body_mut().as_reader(), &mut io::sink())?;
    Ok((answer.status().as_u16(), n_bytes))
}

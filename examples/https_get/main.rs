//! Fetches pages over HTTPS, all at once, each in a goroutine of its own.
//!
//! ```text
//! cargo run --release --features tls --example https_get -- --url https://example.org/ [--ca FILE.pem]
//! ```
//!
//! Prints status, length and address of each page; several addresses are separated by commas.
//! Trusts the certificates that the system trusts, or those in a file. Exits with status 1 if a
//! page could not be fetched.
#![expect(clippy::print_stdout, reason = "prints what it has fetched")]

#[path = "../support/args.rs"]
mod args;
#[path = "../tls/client.rs"]
mod client;

use std::io;
use std::process::ExitCode;
use std::sync::Arc;

const USAGE: &str = "usage: https_get --url https://HOST[:PORT]/PATH[,..] [--ca FILE.pem]";
/// The file in which most distributions store trusted certificates.
const SYSTEM_CA: &str = "/etc/ssl/certs/ca-certificates.crt";

fn main() -> io::Result<ExitCode> {
    let mut args = args::Args::of_process(USAGE);
    let urls = args.value("--url", String::new());
    let ca = args.value("--ca", SYSTEM_CA.to_owned());
    args.finish();

    let trusted = client::trusting(&std::fs::read(ca)?)?;
    #[expect(
        unsafe_code,
        reason = "the promise that windlass asks of every program"
    )]
    // SAFETY: no goroutine of this program keeps a thread-local borrow across a call that parks.
    let runtime = unsafe { windlass::Builder::new().build()? };
    let is_fetched = runtime.run(|| {
        let fetches: Vec<_> = urls
            .split(',')
            .map(|url| {
                let (url, trusted) = (url.to_owned(), Arc::clone(&trusted));
                windlass::spawn(move || {
                    let page = client::get(&url, trusted);
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
                Ok(page) => println!("{} {:>9} {url}", page.status, page.body.len()),
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

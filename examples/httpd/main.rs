//! A web server: `GET /plaintext` and `GET /json` over HTTP/1.1.
//!
//! ```text
//! cargo run --release --example httpd -- [--addr HOST:PORT] [--procs N] [--grace SECONDS]
//! curl http://127.0.0.1:8080/plaintext
//! ```
//!
//! It listens on 127.0.0.1:8080 by default, on every CPU available to it. Ctrl-c or SIGTERM stop
//! it: it accepts no more connections, answers all requests on those that it has, and exits with
//! status 0. An idle connection may still send a request during the grace, 2 seconds by default.
//! What takes longer than 30 seconds in all is cut off. SIGUSR2 replaces it by a new process of its
//! program, without a lost connection; it takes its socket from systemd, too. If it cannot listen, the status is 1. The
//! server itself is in examples/http.

#[path = "../support/args.rs"]
mod args;
#[path = "../http/mod.rs"]
mod http;
#[path = "mod.rs"]
mod httpd;
#[path = "../support/linger.rs"]
mod linger;
#[path = "../support/serve.rs"]
mod serve;
#[path = "../support/signals.rs"]
mod signals;

fn main() -> std::io::Result<()> {
    httpd::run(args::Args::of_process(httpd::USAGE))
}

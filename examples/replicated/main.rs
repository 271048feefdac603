//! A key-value store on several servers, which goes on while most of them work.
//!
//! ```text
//! C=127.0.0.1:7001,127.0.0.1:7002,127.0.0.1:7003
//! cargo run --release --example replicated -- --cluster $C --serve 0 --data data/0 &
//! cargo run --release --example replicated -- --cluster $C --serve 1 --data data/1 &
//! cargo run --release --example replicated -- --cluster $C --serve 2 --data data/2 &
//! cargo run --release --example replicated -- --cluster $C --put greeting --value hello
//! cargo run --release --example replicated -- --cluster $C --get greeting
//! cargo run --release --example replicated -- --cluster $C --swap greeting --expected hello --value bye
//! ```
//!
//! `--put` and `--swap` print the value that was there before. The servers and the client are in
//! examples/replicated/mod.rs, which explains them.
#![expect(clippy::print_stdout, reason = "prints values, and where it listens")]

#[path = "../support/args.rs"]
mod args;
#[path = "mod.rs"]
mod replicated;
#[path = "../support/signals.rs"]
mod signals;

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use replicated::{Client, Command, Config, Timing};
use windlass::net::TcpListener;
use windlass::time::Duration;

const USAGE: &str = "\
usage: replicated --cluster ADDR,ADDR,.. --serve N --data DIR
       replicated --cluster ADDR,ADDR,.. --get KEY
       replicated --cluster ADDR,ADDR,.. --put KEY --value VALUE
       replicated --cluster ADDR,ADDR,.. --swap KEY [--expected VALUE] --value VALUE
ADDR is an address and a port; --serve takes the place of a server in the list, from 0.
--swap without --expected expects that there is no value.";

/// How long the client tries.
const PATIENCE: Duration = Duration::from_secs(10);

/// The work that the command line asks for.
enum Work {
    Serve(Config),
    Call(Vec<SocketAddr>, Command),
}

fn main() -> ExitCode {
    let work = work(args::Args::of_process(USAGE));
    let builder = windlass::Builder::new().name("replicated");
    #[expect(
        unsafe_code,
        reason = "the promise that windlass asks of every program"
    )]
    // SAFETY: no goroutine of this program keeps a thread-local borrow across a call that parks.
    let runtime = unsafe { builder.build() };
    let done = runtime.and_then(|runtime| runtime.run(|| carry_out(work)));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("replicated: {error}");
            ExitCode::FAILURE
        }
    }
}

fn work(mut args: args::Args) -> Work {
    let list: String = args.value("--cluster", String::new());
    let cluster: Result<Vec<SocketAddr>, _> = list.split(',').map(str::parse).collect();
    let Ok(cluster) = cluster else {
        usage("--cluster: give the addresses of all servers, such as 127.0.0.1:7001")
    };
    let value = args.optional::<String>("--value");
    let has_value = value.is_some();
    let value = value.unwrap_or_default();
    let expected = args.optional::<String>("--expected");
    let serve = args.optional::<usize>("--serve");
    let data = args.optional::<PathBuf>("--data");
    let get = args.optional::<String>("--get");
    let put = args.optional::<String>("--put");
    let swap = args.optional::<String>("--swap");
    args.finish();
    match (serve, data, get, put, swap) {
        (Some(id), Some(data), None, None, None) if id < cluster.len() => Work::Serve(Config {
            cluster,
            id,
            data,
            timing: Timing::default(),
            seed: random(),
            bug: None,
        }),
        (None, None, Some(key), None, None) => Work::Call(cluster, Command::Get { key }),
        (None, None, None, Some(key), None) if has_value => {
            Work::Call(cluster, Command::Put { key, value })
        }
        (None, None, None, None, Some(key)) if has_value => Work::Call(
            cluster,
            Command::Swap {
                key,
                expected,
                value,
            },
        ),
        _ => usage("give --serve with --data, or --get, or --put or --swap with --value"),
    }
}

fn usage(why: &str) -> ! {
    eprintln!("{why}\n{USAGE}");
    std::process::exit(2)
}

/// A number that hardly any other process has.
fn random() -> u64 {
    RandomState::new().hash_one(std::process::id())
}

fn carry_out(work: Work) -> io::Result<()> {
    match work {
        Work::Serve(config) => {
            let listener = TcpListener::bind(config.cluster[config.id])?;
            println!("{}", listener.local_addr()?);
            let serving = windlass::spawn(move || replicated::serve(listener, config));
            windlass::spawn(move || {
                let failed = serving.join();
                if let Ok(error) = failed {
                    eprintln!("replicated: the log cannot be written: {error}");
                }
                std::process::exit(1)
            });
            // The run ends with this goroutine, and ends all others.
            signals::StopSignals::register()?.wait()
        }
        Work::Call(cluster, command) => {
            let mut client = Client::new(cluster, random(), Timing::default());
            match client.call(command, PATIENCE)? {
                Some(value) => println!("{value}"),
                None => eprintln!("there was no value"),
            }
            Ok(())
        }
    }
}

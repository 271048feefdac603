//! Measures the clients: `cargo run --release -p windlass-servers -- [CLIENT ...]`. `--stacks` instead
//! shows how much of their stacks they use.
//!
//! Each figure is a process of its own, in which a thousand goroutines on two Ps, or a thousand threads,
//! use a client beside a neighbour: a client of an echo server, whose round trips are timed. First all
//! go on as fast as they can; then at half the rate that threads have reached. The servers are other
//! processes.
#![allow(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "what is measured blocks")]
#![allow(clippy::print_stdout, reason = "it prints tables")]

use std::io::{Read, Write};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use windlass::net::{TcpListener, TcpStream};
use windlass::sync::Mutex;
use windlass_servers::{
    CLIENTS, Client, Home, Pool, Result, Server, World, high_water_kib, raise_descriptor_limit, tls,
};

/// The first argument of a process that measures one figure.
const CHILD: &str = "--child";

/// Goroutines or threads that use a client.
const ALL: usize = 1000;

/// How long each of the two loads is measured, and how long it runs before that.
const WINDOW: Duration = Duration::from_millis(1200);
const BEFORE: Duration = Duration::from_millis(300);

/// A figure that takes longer is given up.
const LIMIT: Duration = Duration::from_secs(20);

/// How a client is used.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// By threads of the system.
    Threads,
    /// By goroutines, which block their threads.
    Unmodified,
    /// By goroutines, with windlass-hook.
    Hook,
    /// By goroutines, with windlass-hook, in `windlass_hook::paused`.
    Paused,
    /// By goroutines, in `windlass::blocking`.
    Blocking,
    /// By goroutines, in `windlass::offload`.
    Offload,
}

/// In the order of the columns.
const MODES: [(&str, Mode); 6] = [
    ("threads", Mode::Threads),
    ("unmodified", Mode::Unmodified),
    ("hook", Mode::Hook),
    ("paused", Mode::Paused),
    ("blocking", Mode::Blocking),
    ("offload", Mode::Offload),
];

/// The measurements of one process.
#[derive(Clone, Copy)]
struct Figure {
    /// Dialogues in a second, as fast as they can.
    per_second: f64,
    /// The neighbour's slow round trips meanwhile: 99 % are faster.
    p99: Duration,
    /// CPU time of the process for each of these dialogues.
    cpu: Duration,
    /// The share of half the rate of threads that was reached, and the neighbour's slow round trips
    /// meanwhile.
    reached: f64,
    half_p99: Duration,
    /// Threads of the process at the end.
    threads: usize,
}

fn main() -> ExitCode {
    raise_descriptor_limit();
    let args: Vec<String> = std::env::args().skip(1).collect();
    let done = match args.first().map(String::as_str) {
        Some(CHILD) => measure(&args[1..]),
        Some("--stacks") => stacks(),
        _ => tables(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("servers: {e}");
            ExitCode::FAILURE
        }
    }
}

/// Measures the clients of these names, or all, and prints three tables.
fn tables(names: &[String]) -> Result {
    let named = names.iter().map(|name| Client::named(name));
    let mut clients = named.collect::<Result<Vec<_>>>()?;
    if clients.is_empty() {
        clients = CLIENTS.iter().collect();
    }
    let echo = echo_server();
    let [mut rates, mut waits, mut cpu] = [const { String::new() }; 3];
    for client in clients {
        let server = match Server::start(client.server) {
            Ok(server) => server,
            Err(cause) => {
                println!("SKIPPED {}: {cause}", client.name);
                continue;
            }
        };
        rates += &format!("| {} | {} |", client.name, client.limit);
        waits += &format!("| {} | {} |", client.name, client.limit);
        cpu += &format!("| {} | {} |", client.name, client.limit);
        let mut of_threads = 0.0;
        for (name, mode) in MODES {
            if matches!(mode, Mode::Hook | Mode::Paused) && !client.parks {
                rates += " – |";
                cpu += " – |";
                waits += " – |";
                continue;
            }
            let Some(figure) = child(client, name, &server, echo, of_threads) else {
                rates += &format!(" not in {} s |", LIMIT.as_secs());
                cpu += " – |";
                waits += " – |";
                continue;
            };
            let rate = figure.per_second;
            cpu += &format!(" {:.0} |", figure.cpu.as_secs_f64() * 1e6);
            if mode == Mode::Threads {
                of_threads = rate;
                rates += &format!(" {rate:.0}/s |");
            } else {
                let (share, threads) = (rate / of_threads, figure.threads);
                rates += &format!(" {share:.2}, {threads} threads |");
            }
            let (half, full) = (ms(figure.half_p99), ms(figure.p99));
            // A client that cannot keep up is as busy as it can be.
            let note = if figure.reached < 0.95 { "*" } else { "" };
            waits += &format!(" {half}{note} / {full} |");
        }
        rates.push('\n');
        cpu.push('\n');
        waits.push('\n');
    }
    let columns = "| client | connections | threads | unmodified | hook | `paused` | `blocking` | `offload` |";
    let line = "|---|---|---|---|---|---|---|---|";
    println!("Throughput beside threads\n\n{columns}\n{line}\n{rates}");
    println!(
        "p99 of the neighbour in ms: at half load / at full load; *: half load was not reached; none: no round trip\n"
    );
    println!("{columns}\n{line}\n{waits}");
    println!("CPU time of the client's process for a dialogue in µs, at full load\n");
    println!("{columns}\n{line}\n{cpu}");
    Ok(())
}

fn ms(time: Duration) -> String {
    if time.is_zero() {
        return "none".into();
    }
    format!("{:.2}", time.as_secs_f64() * 1e3)
}

/// A server on a P of its own that sends back what each connection sends. It runs as long as the
/// process.
fn echo_server() -> u16 {
    let (found, port) = std::sync::mpsc::channel();
    thread::spawn(move || {
        // SAFETY: nothing here keeps a thread-local across a call that parks.
        let rt = unsafe { windlass::Builder::new().processors(1).build() };
        rt.expect("there is a poller").run(|| {
            let listener = TcpListener::bind("127.0.0.1:0").expect("there are ports");
            let addr = listener.local_addr().expect("it is bound");
            found.send(addr.port()).expect("somebody waits for it");
            while let Ok((stream, _)) = listener.accept() {
                windlass::spawn(move || std::io::copy(&mut &stream, &mut &stream));
            }
        });
    });
    port.recv().expect("the server has started")
}

/// Measures one figure in a process of its own, or gives up.
fn child(client: &Client, mode: &str, server: &Server, echo: u16, rate: f64) -> Option<Figure> {
    let exe = std::env::current_exe().expect("it runs");
    let mut command = Command::new(exe);
    command.args([CHILD, mode, client.name]).arg(&server.dir);
    command.args([server.port.to_string(), echo.to_string(), rate.to_string()]);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("this program can be started");
    let end = Instant::now() + LIMIT;
    while matches!(child.try_wait(), Ok(None)) && Instant::now() < end {
        thread::sleep(Duration::from_millis(20));
    }
    let _ = child.kill();
    let _ = child.wait();
    let mut line = String::new();
    child.stdout.take()?.read_to_string(&mut line).ok()?;
    let mut numbers = line.split_whitespace();
    let mut number = || numbers.next()?.parse::<f64>().ok();
    Some(Figure {
        per_second: number()?,
        p99: Duration::from_secs_f64(number()?),
        cpu: Duration::from_secs_f64(number()?),
        reached: number()?,
        half_p99: Duration::from_secs_f64(number()?),
        threads: number()? as usize,
    })
}

/// Prints one figure as numbers.
fn measure(args: &[String]) -> Result {
    let [mode, name, dir, port, echo, of_threads] = args else {
        return Err(format!("{CHILD} is for the program itself").into());
    };
    let mode = MODES.iter().find(|(name, _)| name == mode);
    let mode = mode.ok_or("no such mode")?.1;
    let client = Client::named(name)?;
    let threads = mode == Mode::Threads;
    let world = World {
        port: port.parse()?,
        dir: dir.into(),
        home: if threads {
            Home::Threads
        } else {
            Home::Goroutines
        },
    };
    let (echo, of_threads): (u16, f64) = (echo.parse()?, of_threads.parse()?);
    let measure = || -> Result<()> {
        let (per_second, p99, cpu) = load(client, mode, &world, echo, None)?;
        let half = if threads { per_second } else { of_threads } / 2.0;
        let (rate, half_p99, _) = load(client, mode, &world, echo, Some(half))?;
        let (p99, half_p99) = (p99.as_secs_f64(), half_p99.as_secs_f64());
        let threads = std::fs::read_dir("/proc/self/task")?.count();
        let cpu = cpu.as_secs_f64();
        println!(
            "{per_second} {p99} {cpu} {} {half_p99} {threads}",
            rate / half
        );
        Ok(())
    };
    if threads {
        return measure();
    }
    if matches!(mode, Mode::Hook | Mode::Paused) {
        // SAFETY: the clients keep no thread-local across a call that parks.
        unsafe { windlass_hook::install() };
    }
    // SAFETY: as above.
    let rt = unsafe { windlass::Builder::new().processors(2).build()? };
    rt.run(measure)?;
    // Goroutines that block their thread need not end.
    std::io::stdout().flush()?;
    std::process::exit(0);
}

type Task = Box<dyn FnOnce() + Send>;

/// Starts a goroutine or a thread, and returns what joins it.
fn spawn(mode: Mode, f: impl FnOnce() + Send + 'static) -> Task {
    if mode == Mode::Threads {
        let builder = thread::Builder::new().stack_size(256 << 10);
        let handle = builder.spawn(f).expect("there are threads");
        Box::new(move || handle.join().expect("it does not panic"))
    } else {
        let handle = windlass::spawn(f);
        Box::new(move || handle.join().expect("it does not panic"))
    }
}

/// State that the goroutines or threads of one load share.
struct Load {
    pool: Pool,
    mode: Mode,
    begin: Instant,
    /// The time from one dialogue of a goroutine to its next, if they are not to be as fast as they
    /// can.
    period: Option<Duration>,
    done: AtomicUsize,
    over: AtomicBool,
}

impl Load {
    /// Goroutine or thread number `i`.
    fn run(&self, i: usize) -> Result {
        // The first dialogues are spread evenly.
        let mut due = self.begin + self.period.unwrap_or_default() * i as u32 / ALL as u32;
        while !self.over.load(Ordering::Relaxed) {
            if let Some(period) = self.period {
                windlass::sleep(due.saturating_duration_since(Instant::now()));
                due += period;
            }
            let mut seat = self.pool.seat();
            if self.over.load(Ordering::Relaxed) {
                break;
            }
            match self.mode {
                Mode::Paused => windlass_hook::paused(|| seat.talk(i))?,
                Mode::Blocking => windlass::blocking(|| seat.talk(i))?,
                Mode::Offload => windlass::offload(|| seat.talk(i))?,
                _ => seat.talk(i)?,
            }
            self.done.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Dialogues in a second at this rate, or as fast as they can be, the neighbour's p99, and the CPU time of a
/// dialogue.
fn load(
    client: &Client,
    mode: Mode,
    world: &World,
    echo: u16,
    rate: Option<f64>,
) -> Result<(f64, Duration, Duration)> {
    let load = Arc::new(Load {
        pool: Pool::new(client, world)?,
        mode,
        begin: Instant::now(),
        period: rate.map(|rate| Duration::from_secs_f64(ALL as f64 / rate)),
        done: AtomicUsize::new(0),
        over: AtomicBool::new(false),
    });
    let tasks: Vec<_> = (0..ALL)
        .map(|i| {
            let (load, name) = (Arc::clone(&load), client.name);
            spawn(mode, move || {
                if let Err(e) = load.run(i) {
                    eprintln!("{name}: {e}");
                }
            })
        })
        .collect();
    windlass::sleep(BEFORE);
    let trips = Arc::new(Mutex::new(Vec::new()));
    let neighbour = {
        let (load, trips) = (Arc::clone(&load), Arc::clone(&trips));
        spawn(mode, move || {
            let times = round_trips(echo, &load.over).expect("the echo server is there");
            *trips.lock().expect("nobody panicked") = times;
        })
    };
    let (before, begin, cpu) = (
        load.done.load(Ordering::Relaxed),
        Instant::now(),
        cpu_time(),
    );
    windlass::sleep(WINDOW);
    let done = load.done.load(Ordering::Relaxed) - before;
    let cpu = (cpu_time() - cpu).div_f64(done.max(1) as f64);
    let per_second = done as f64 / begin.elapsed().as_secs_f64();
    load.over.store(true, Ordering::Relaxed);
    neighbour();
    tasks.into_iter().for_each(|join| join());
    let mut trips = trips.lock().expect("nobody panicked");
    trips.sort_unstable();
    let p99 = trips.get(trips.len() * 99 / 100).copied();
    Ok((per_second, p99.unwrap_or_default(), cpu))
}

/// The CPU time of this process.
fn cpu_time() -> Duration {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the place for the time is valid.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut now) };
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Sends 64 bytes and waits for the echo, every millisecond.
fn round_trips(port: u16, over: &AtomicBool) -> Result<Vec<Duration>> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_nodelay(true)?;
    let (mut trips, mut bytes) = (Vec::new(), [7; 64]);
    while !over.load(Ordering::Relaxed) {
        let begin = Instant::now();
        stream.write_all(&bytes)?;
        stream.read_exact(&mut bytes)?;
        trips.push(begin.elapsed());
        windlass::sleep(Duration::from_millis(1));
    }
    Ok(trips)
}

/// Prints how much of its stack each client uses for its first dialogue, and each server of TLS.
fn stacks() -> Result {
    // SAFETY: the clients keep no thread-local across a call that parks.
    unsafe { windlass_hook::install() };
    println!("| client | KiB |\n|---|---|");
    for client in CLIENTS {
        let server = match Server::start(client.server) {
            Ok(server) => server,
            Err(cause) => {
                println!("| {} | SKIPPED: {cause} |", client.name);
                continue;
            }
        };
        let world = World {
            port: server.port,
            dir: server.dir.clone(),
            home: Home::Goroutines,
        };
        // SAFETY: as above.
        let rt = unsafe { windlass::Builder::new().processors(2).build()? };
        let kib = rt.run(|| {
            let pool = Pool::new(client, &world)?;
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(high_water_kib(move || {
                if client.parks {
                    pool.seat().talk(1).expect("the server answers");
                } else {
                    windlass::blocking(|| pool.seat().talk(1)).expect("the database answers");
                }
            }))
        })?;
        println!("| {} | {kib} |", client.name);
        if let Some((serve, connect)) = tls::sides(client.server) {
            let kib = of_server(serve(&server.dir)?, connect(&server.dir)?)?;
            println!("| {}, server | {kib} |", client.name);
        }
    }
    Ok(())
}

/// The stack that a server of TLS uses for one connection. Its client is a thread.
fn of_server(serve: tls::Talk, connect: tls::Talk) -> Result<usize> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let addr = listener.local_addr()?;
    let client = thread::spawn(move || connect(std::net::TcpStream::connect(addr)?));
    // SAFETY: as in `stacks`.
    let rt = unsafe { windlass::Builder::new().processors(1).build()? };
    let kib = rt.run(|| {
        let (stream, _) = listener.accept().expect("the client is there");
        high_water_kib(move || serve(stream).expect("the client talks TLS"))
    });
    client.join().expect("it does not panic")?;
    Ok(kib)
}

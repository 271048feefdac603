//! `windlass-topology`: prints a machine, and where the Ps of a runtime would go on it.

use std::{
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Parser, ValueEnum};
use windlass_topology::{
    Plan, Policy, Request, Source, Topology, cpu_quota, default_processors, parse_cpu_list, plan,
    render,
};

/// Prints a machine, and where the Ps of a windlass runtime would go on it.
///
/// Without --synthetic, --machine, --xml or --sysfs it is the machine it runs on.
#[derive(Debug, Parser)]
#[command(name = "windlass-topology", version)]
struct Args {
    /// Text for people, or JSON for programs
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,

    /// How many Ps [default: the allowed CPUs of the nodes, capped by the cgroup's CPU quota]
    #[arg(long, value_name = "N")]
    procs: Option<usize>,

    /// Ps on these nodes only, such as 0,1 or 0-3
    #[arg(long, value_name = "LIST", value_parser = node_list)]
    nodes: Option<List>,

    /// What to do with fewer Ps than CPUs
    #[arg(long, value_enum, default_value_t = PolicyArg::Spread)]
    policy: PolicyArg,

    /// As if in a cpuset of these CPUs, such as 0-3,8
    #[arg(long, value_name = "LIST", value_parser = cpu_list)]
    cpus: Option<List>,

    /// Print also whom each P steals from (JSON always has it)
    #[arg(long)]
    steal: bool,

    /// A machine described in hwloc's words, such as "pack:2 [numa] l3:2 core:4 pu:2"
    #[arg(long, value_name = "STRING", group = "input")]
    synthetic: Option<String>,

    /// A machine recorded with --record
    #[arg(long, value_name = "FILE", group = "input")]
    machine: Option<PathBuf>,

    /// A machine recorded with lstopo --of xml
    #[arg(long, value_name = "FILE", group = "input")]
    xml: Option<PathBuf>,

    /// A machine whose /sys and /proc are copied below this folder
    #[arg(long, value_name = "DIR", group = "input")]
    sysfs: Option<PathBuf>,

    /// Distances between the nodes, row by row, such as "10,21;21,10"
    #[arg(long, value_name = "ROWS", value_parser = slit)]
    slit: Option<Slit>,

    /// Write the machine to this file as JSON, for --machine
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    Text,
    Json,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum PolicyArg {
    /// Over all nodes evenly, in a node over its caches
    Spread,
    /// In as few nodes as possible
    Pack,
}

/// Ids of CPUs or nodes. A struct of its own, for clap takes a `Vec` for an option given many times.
#[derive(Clone, Debug)]
struct List(Vec<usize>);

/// Distances by row.
#[derive(Clone, Debug)]
struct Slit(Vec<Vec<u32>>);

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            // Nobody is left to tell when standard error is closed too.
            let _ = writeln!(io::stderr(), "windlass-topology: {message}");
            ExitCode::from(2)
        }
    }
}

fn run(args: &Args) -> Result<(), String> {
    let topology = machine(args)?;
    if let Some(path) = &args.record {
        let cannot = |error| format!("cannot write {}: {error}", path.display());
        fs::write(path, topology.to_json()).map_err(cannot)?;
    }
    let plan = plan(&topology, &request(args, &topology)).map_err(|error| error.to_string())?;
    print(&report(args, &topology, &plan))
}

/// The machine that the arguments name.
fn machine(args: &Args) -> Result<Topology, String> {
    let mut topology = if let Some(description) = &args.synthetic {
        Topology::synthetic(description)
    } else if let Some(path) = &args.machine {
        let json = read(path)?;
        Topology::from_json(&json)
    } else if let Some(path) = &args.xml {
        Topology::from_xml_file(path)
    } else if let Some(path) = &args.sysfs {
        Topology::from_sysfs(path)
    } else {
        Topology::detect()
    }
    .map_err(|error| error.to_string())?;
    if let Some(Slit(rows)) = &args.slit {
        topology = topology
            .with_distances(rows)
            .map_err(|error| error.to_string())?;
    }
    if let Some(List(cpus)) = &args.cpus {
        topology = topology
            .restrict_to_cpus(cpus)
            .map_err(|error| error.to_string())?;
    }
    Ok(topology)
}

/// The plan that the arguments ask for. The default number of Ps is the runtime's own; with a list of
/// nodes no more than their CPUs.
fn request(args: &Args, topology: &Topology) -> Request {
    let nodes: Option<Vec<u32>> = args.nodes.as_ref().map(|List(ids)| {
        ids.iter()
            .map(|&id| u32::try_from(id).expect("a list has no id above a million"))
            .collect()
    });
    let n_ps = args.procs.or_else(|| {
        let n_usable = match &nodes {
            None => usize::MAX,
            Some(os_ids) => topology
                .pus()
                .iter()
                .filter(|pu| pu.allowed && os_ids.contains(&topology.nodes()[pu.node].os_id))
                .count(),
        };
        // 0 is for `plan` to explain: the node is unknown, or has no CPU to use.
        Some(default_processors(topology).min(n_usable)).filter(|&n_ps| n_ps > 0)
    });
    let policy = match args.policy {
        PolicyArg::Spread => Policy::Spread,
        PolicyArg::Pack => Policy::Pack,
    };
    Request {
        n_ps,
        nodes,
        policy,
        ..Request::default()
    }
}

fn report(args: &Args, topology: &Topology, plan: &Plan) -> String {
    let is_here = *topology.source() == Source::ThisMachine;
    let quota = if is_here { cpu_quota() } else { None };
    if let Format::Json = args.format {
        return render::json(topology, plan, quota);
    }
    let mut parts = vec![render::tree(topology), render::distances(topology)];
    if let Some(quota) = quota {
        parts.push(format!("CPU quota of the cgroup: {quota:.2} CPUs\n"));
    }
    parts.push(render::placement(topology, plan));
    if args.steal {
        parts.push(render::steal_order(plan));
    }
    parts.join("\n")
}

/// Writes to standard output. A reader that has seen enough (`| head`) is no error.
fn print(text: &str) -> Result<(), String> {
    let mut stdout = io::stdout().lock();
    match stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
    {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(format!("cannot write to standard output: {error}"))
        }
        _ => Ok(()),
    }
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

fn node_list(text: &str) -> Result<List, String> {
    list(text, "nodes")
}

fn cpu_list(text: &str) -> Result<List, String> {
    list(text, "CPUs")
}

fn list(text: &str, what: &str) -> Result<List, String> {
    let ids = parse_cpu_list(text).ok_or_else(|| format!("not a list of {what}, such as 0-3,8"))?;
    if ids.is_empty() {
        Err(format!("the list of {what} is empty"))
    } else {
        Ok(List(ids))
    }
}

fn slit(text: &str) -> Result<Slit, String> {
    let value = |value: &str| {
        value
            .trim()
            .parse::<u32>()
            .map_err(|_| format!("{value:?} is not a distance such as 21"))
    };
    let row = |row: &str| row.split(',').map(value).collect();
    text.split(';')
        .map(row)
        .collect::<Result<_, String>>()
        .map(Slit)
}

//! The command line's options.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use windlass_topology::{Policy, Threads, parse_cpu_list};

/// Shows a machine as windlass sees it: its nodes and caches, where Ps go, and their steal order.
///
/// Without a command it is `show`, and takes its options. Without --synthetic, --recorded, --xml or
/// --sysfs it is about the machine it runs on.
#[derive(Debug, Parser)]
#[command(
    name = "windlass-topology",
    version,
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  windlass-topology                        this machine on one screen
  windlass-topology --recorded server.json another one
  windlass-topology ps                     where the Ps of a runtime go, and which CPUs get none
  windlass-topology steal 3                the steal order and the wake order of P 3
  windlass-topology doctor || exit 1       for CI: fails where a runtime would not work as meant
  windlass-topology tree --synthetic 'pack:2 [numa] l3:4 core:8 pu:2' --format svg >machine.svg
  windlass-topology steal 0 --synthetic 'numa:4 core:8 pu:2' \\
      --slit '10,12,32,32;12,10,32,32;32,32,10,12;32,32,12,10'
  windlass-topology record >machine.json   then, elsewhere: windlass-topology ps --recorded machine.json"
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,

    #[command(flatten)]
    pub(crate) show: Show,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// The machine, its limits and its kernel on one screen
    #[command(after_help = "\
Examples:
  windlass-topology show --recorded server.json
  windlass-topology show --format json | jq .plan.dropped")]
    Show(Show),
    /// Package, node, L3, L2, core, CPU as an indented tree
    #[command(after_help = "\
Examples:
  windlass-topology tree
  windlass-topology tree --format dot | dot -Tpng >machine.png")]
    Tree(Tree),
    /// The same as nested boxes
    #[command(after_help = "\
Examples:
  windlass-topology art --width 200
  windlass-topology art --synthetic 'pack:2 [numa] l3:2 core:4 pu:2' --ascii")]
    Art(Art),
    /// Where each P goes, and which CPUs get none and why
    #[command(after_help = "\
Examples:
  windlass-topology ps --procs 6 --threads never
  windlass-topology ps --nodes 1 --policy pack --format svg >ps.svg")]
    Ps(Ps),
    /// The order in which each P steals from the others and wakes them, nearest first
    #[command(after_help = "\
Examples:
  windlass-topology steal 3
  windlass-topology steal --matrix --synthetic 'numa:4 core:2 pu:2'
  windlass-topology steal --format svg >matrix.svg")]
    Steal(Steal),
    /// How far the nodes are from one another
    #[command(after_help = "\
Examples:
  windlass-topology distances --measured
  windlass-topology distances --measured --format svg >distances.svg")]
    Distances(Distances),
    /// What limits the number of processors, and which limit binds
    #[command(after_help = "\
Examples:
  windlass-topology limits
  taskset -c 0-3 windlass-topology limits")]
    Limits(Limits),
    /// Whether a host is fit for windlass; exit code 1 if it is not
    #[command(after_help = "\
Of a machine that is elsewhere its nodes, devices and limits are judged. What only its kernel can say is
listed: run doctor there.

Exit code: 0 if windlass works as meant, 1 if something fails (with --strict also if something is
only slower or smaller than it could be), 2 for a wrong command line.")]
    Doctor(Doctor),
    /// What the Ps of a running program do: queues, steals from near and far, completions
    #[command(after_help = "\
The program must have been asked to tell: by WINDLASS_DEBUG=live=1 in its environment, or by
Builder::live_metrics(true). It answers its own user and root.

Examples:
  windlass-topology top 4711
  windlass-topology top 4711 --interval 0.2 --count 1
  windlass-topology top 4711 --format json | jq .runtimes[0].ps")]
    Top(Top),
    /// What differs between two machines; exit code 1 if anything does
    #[command(after_help = "\
A machine is `this`, a file of `record`, a file of hwloc that ends in .xml, or `synthetic:STRING`.

Examples:
  windlass-topology diff before.json this
  windlass-topology diff 'synthetic:numa:2 core:8 pu:2' server.json")]
    Diff(Diff),
    /// Write a machine as JSON, for --recorded elsewhere, or for hwloc; with nothing private in it
    #[command(after_help = "\
Examples:
  windlass-topology record >server.json
  windlass-topology ps --recorded server.json
  windlass-topology record --format xml --recorded server.json >server.xml; lstopo -i server.xml")]
    Record(Record),
    /// Write the manual page, of this program or of one of its commands
    Man(Man),
    /// Write a script that completes command lines in a shell
    #[command(after_help = "\
Example:
  windlass-topology completions bash >/etc/bash_completion.d/windlass-topology")]
    Completions(Completions),
    /// What a child process does for --xml: see `foreign`
    #[command(name = super::foreign::READ_XML, hide = true)]
    ReadXml(ReadXml),
}

/// Which machine.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Input {
    /// A machine described in hwloc's words, such as "pack:2 [numa] l3:2 core:4 pu:2"
    #[arg(long, value_name = "STRING", group = "input", help_heading = "Machine")]
    pub(crate) synthetic: Option<String>,

    /// A machine recorded with `record`
    #[arg(long, value_name = "FILE", group = "input", help_heading = "Machine")]
    pub(crate) recorded: Option<PathBuf>,

    /// A machine recorded with `lstopo --of xml`
    #[arg(long, value_name = "FILE", group = "input", help_heading = "Machine")]
    pub(crate) xml: Option<PathBuf>,

    /// A machine whose /sys and /proc are copied below this folder
    #[arg(long, value_name = "DIR", group = "input", help_heading = "Machine")]
    pub(crate) sysfs: Option<PathBuf>,

    /// Distances between the nodes, row by row, such as "10,21;21,10"
    #[arg(long, value_name = "MATRIX", value_parser = slit, help_heading = "Machine")]
    pub(crate) slit: Option<Slit>,

    /// As if in a cpuset of these CPUs, such as 0-3,8
    #[arg(long, value_name = "LIST", value_parser = cpu_list, help_heading = "Machine")]
    pub(crate) cpus: Option<List>,
}

/// Where the Ps go.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Placement {
    /// How many Ps [default: as many as a runtime would have]
    #[arg(long, value_name = "N", help_heading = "Placement")]
    pub(crate) procs: Option<usize>,

    /// Ps on these nodes only, such as 0,1 or 0-3
    #[arg(long, value_name = "LIST", value_parser = node_list, help_heading = "Placement")]
    pub(crate) nodes: Option<List>,

    /// What to do with fewer Ps than CPUs
    #[arg(long, value_enum, default_value_t, help_heading = "Placement")]
    pub(crate) policy: PolicyArg,

    /// What to do with the second and further threads of a core
    #[arg(long, value_enum, default_value_t, help_heading = "Placement")]
    pub(crate) threads: ThreadsArg,

    /// Use also CPUs that were isolated at boot
    #[arg(long, help_heading = "Placement")]
    pub(crate) isolated: bool,
}

/// How it is written.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Look<F: ValueEnum + Clone + Default + Send + Sync + 'static> {
    /// What to write
    #[arg(long, value_enum, default_value_t, help_heading = "Output")]
    pub(crate) format: F,

    /// Whether text has colours; `auto`: on a terminal, unless NO_COLOR is set
    #[arg(
        long,
        value_enum,
        default_value_t,
        value_name = "WHEN",
        help_heading = "Output"
    )]
    pub(crate) color: Color,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    #[default]
    Auto,
    Always,
    Never,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    #[default]
    Text,
    /// For programs
    Json,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum PictureFormat {
    /// For people
    #[default]
    Text,
    /// For programs
    Json,
    /// A picture
    Svg,
    /// A graph for Graphviz
    Dot,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum PolicyArg {
    /// Over all nodes evenly, in a node over its caches
    #[default]
    Spread,
    /// In as few nodes as possible
    Pack,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum ThreadsArg {
    /// Every core has a P before any core has two
    #[default]
    Last,
    /// One P for each core
    Never,
    /// A core that has a P is filled before the next one
    Together,
}

impl From<PolicyArg> for Policy {
    fn from(policy: PolicyArg) -> Self {
        match policy {
            PolicyArg::Spread => Self::Spread,
            PolicyArg::Pack => Self::Pack,
        }
    }
}

impl From<ThreadsArg> for Threads {
    fn from(threads: ThreadsArg) -> Self {
        match threads {
            ThreadsArg::Last => Self::Last,
            ThreadsArg::Never => Self::Never,
            ThreadsArg::Together => Self::Together,
        }
    }
}

#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Show {
    #[command(flatten)]
    pub(crate) input: Input,
    #[command(flatten)]
    pub(crate) placement: Placement,
    #[command(flatten)]
    pub(crate) look: Look<Format>,
}

#[derive(Debug, Args)]
pub(crate) struct Tree {
    #[command(flatten)]
    pub(crate) input: Input,
    #[command(flatten)]
    pub(crate) look: Look<PictureFormat>,
}

#[derive(Debug, Args)]
pub(crate) struct Art {
    /// The most columns to use [default: those of the terminal in $COLUMNS, or 100]
    #[arg(long, value_name = "COLUMNS")]
    pub(crate) width: Option<usize>,

    /// Draw with + - | alone
    #[arg(long)]
    pub(crate) ascii: bool,

    #[command(flatten)]
    pub(crate) input: Input,
    #[command(flatten)]
    pub(crate) look: Look<Format>,
}

#[derive(Debug, Args)]
pub(crate) struct Ps {
    #[command(flatten)]
    pub(crate) input: Input,
    #[command(flatten)]
    pub(crate) placement: Placement,
    #[command(flatten)]
    pub(crate) look: Look<PictureFormat>,
}

#[derive(Debug, Args)]
pub(crate) struct Steal {
    /// Only this P; without it all, as a picture the matrix
    pub(crate) p: Option<usize>,

    /// As a square of numbers, thief by victim
    #[arg(long)]
    pub(crate) matrix: bool,

    #[command(flatten)]
    pub(crate) input: Input,
    #[command(flatten)]
    pub(crate) placement: Placement,
    #[command(flatten)]
    pub(crate) look: Look<PictureFormat>,
}

#[derive(Debug, Args)]
pub(crate) struct Distances {
    /// Measure too how long a cache line takes, between nodes and between level 3 caches (this
    /// machine only; some ms for each pair)
    #[arg(long)]
    pub(crate) measured: bool,

    #[command(flatten)]
    pub(crate) input: Input,
    #[command(flatten)]
    pub(crate) look: Look<PictureFormat>,
}

#[derive(Debug, Args)]
pub(crate) struct Limits {
    #[command(flatten)]
    pub(crate) input: Input,
    #[command(flatten)]
    pub(crate) look: Look<Format>,
}

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Fail also where windlass works, but slower or smaller than it could
    #[arg(long)]
    pub(crate) strict: bool,

    #[command(flatten)]
    pub(crate) input: Input,
    #[command(flatten)]
    pub(crate) look: Look<Format>,
}

#[derive(Debug, Args)]
pub(crate) struct Top {
    /// The process
    #[arg(value_name = "PID")]
    pub(crate) pid: u32,

    /// Seconds between two looks
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    pub(crate) interval: Duration,

    /// How many screens, or with `--format json` readings [default: until the process ends]
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<u64>,

    #[command(flatten)]
    pub(crate) look: Look<Format>,
}

#[derive(Debug, Args)]
pub(crate) struct Diff {
    /// A machine
    #[arg(value_name = "A")]
    pub(crate) first: String,
    /// Another one
    #[arg(value_name = "B")]
    pub(crate) second: String,

    #[command(flatten)]
    pub(crate) look: Look<Format>,
}

#[derive(Debug, Args)]
pub(crate) struct Record {
    /// Where to write it [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// For which program
    #[arg(long, value_enum, default_value_t, help_heading = "Output")]
    pub(crate) format: RecordFormat,

    #[command(flatten)]
    pub(crate) input: Input,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum RecordFormat {
    /// For --recorded, with all that windlass knows
    #[default]
    Json,
    /// hwloc's XML, for --xml and lstopo -i
    Xml,
    /// hwloc's description, for --synthetic and lstopo -i; of regular machines only
    Synthetic,
}

#[derive(Debug, Args)]
pub(crate) struct Man {
    /// One of the commands
    pub(crate) command: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ReadXml {
    pub(crate) path: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Completions {
    pub(crate) shell: Shell,
}

/// Ids of CPUs or nodes. A struct of its own, for clap takes a `Vec` for an option given many times.
#[derive(Clone, Debug)]
pub(crate) struct List(pub(crate) Vec<usize>);

/// Distances by row.
#[derive(Clone, Debug)]
pub(crate) struct Slit(pub(crate) Vec<Vec<u32>>);

fn interval(text: &str) -> Result<Duration, String> {
    let seconds = text
        .parse()
        .map_err(|_| "not a number of seconds".to_owned())?;
    if !(0.01..=3600.0).contains(&seconds) {
        return Err("choose between 0.01 and 3600 seconds".to_owned());
    }
    Ok(Duration::from_secs_f64(seconds))
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

//! Runs the commands: arguments in, text out.

pub(crate) mod args;
mod foreign;
mod input;
mod progress;
mod show;
mod top;

use std::{env, fs, io::IsTerminal as _, process::ExitCode};

use clap::{CommandFactory as _, ValueEnum};
use serde::Serialize;
use windlass_topology::{
    Plan, Topology,
    diff::diff,
    doctor::{Host, Status, examine, examine_elsewhere},
    export,
    limits::cpu_limits,
    measure, render,
    render::{Paint, dot, json, svg},
};

use args::{Cli, Color, Command, Format, Look, PictureFormat, RecordFormat};

/// The text that a command writes, and its exit code.
pub(crate) struct Outcome {
    pub(crate) text: Vec<u8>,
    pub(crate) code: ExitCode,
}

impl From<String> for Outcome {
    fn from(text: String) -> Self {
        Self {
            text: text.into_bytes(),
            code: ExitCode::SUCCESS,
        }
    }
}

/// Runs the command that the arguments name.
///
/// # Errors
///
/// One line for the user.
pub(crate) fn run(cli: Cli) -> Result<Outcome, String> {
    match cli.command.unwrap_or(Command::Show(cli.show)) {
        Command::Show(args) => show(&args).map(Outcome::from),
        Command::Tree(args) => tree(&args).map(Outcome::from),
        Command::Art(args) => art(&args).map(Outcome::from),
        Command::Ps(args) => ps(&args).map(Outcome::from),
        Command::Steal(args) => steal(&args).map(Outcome::from),
        Command::Distances(args) => distances(&args).map(Outcome::from),
        Command::Limits(args) => limits(&args).map(Outcome::from),
        Command::Doctor(args) => doctor(&args),
        Command::Top(args) => top::top(&args).map(Outcome::from),
        Command::Diff(args) => difference(&args),
        Command::Record(args) => record(&args).map(Outcome::from),
        Command::Man(args) => man(&args),
        Command::ReadXml(args) => Ok(foreign::read_xml(&args.path)),
        Command::Completions(args) => {
            let mut text = Vec::new();
            let mut command = Cli::command();
            clap_complete::generate(args.shell, &mut command, "windlass-topology", &mut text);
            Ok(Outcome {
                text,
                code: ExitCode::SUCCESS,
            })
        }
    }
}

impl<F: ValueEnum + Clone + Default + Send + Sync + 'static> Look<F> {
    /// Colours on terminals only, and not where NO_COLOR or TERM forbids them.
    fn paint(&self) -> Paint {
        let is_set = |name: &str| env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_dumb = env::var_os("TERM").is_some_and(|term| term == "dumb");
        let on_terminal = || std::io::stdout().is_terminal() && !is_dumb && !is_set("NO_COLOR");
        match self.color {
            Color::Always => Paint::Ansi,
            Color::Auto if on_terminal() => Paint::Ansi,
            Color::Auto | Color::Never => Paint::Plain,
        }
    }
}

fn show(args: &args::Show) -> Result<String, String> {
    #[derive(Serialize)]
    struct Body<'a> {
        machine: &'a Topology,
        host: Option<&'a Host>,
        plan: &'a Plan,
    }
    let topology = args.input.machine()?;
    let plan = args.placement.plan(&topology)?;
    let host = input::is_this_machine(&topology).then(Host::read);
    Ok(match args.look.format {
        Format::Text => show::summary(&topology, &plan, host.as_ref(), args.look.paint()),
        Format::Json => json::view(
            "show",
            Body {
                machine: &topology,
                host: host.as_ref(),
                plan: &plan,
            },
        ),
    })
}

fn tree(args: &args::Tree) -> Result<String, String> {
    let topology = args.input.machine()?;
    Ok(match args.look.format {
        PictureFormat::Text => render::tree(&topology, args.look.paint()),
        PictureFormat::Json => json::tree(&topology),
        PictureFormat::Svg => svg::tree(&topology),
        PictureFormat::Dot => dot::tree(&topology),
    })
}

fn art(args: &args::Art) -> Result<String, String> {
    let topology = args.input.machine()?;
    let width = args.width.unwrap_or_else(input::columns);
    Ok(match args.look.format {
        Format::Text => render::art(&topology, width, args.ascii, args.look.paint()),
        Format::Json => json::tree(&topology),
    })
}

fn ps(args: &args::Ps) -> Result<String, String> {
    let topology = args.input.machine()?;
    let plan = args.placement.plan(&topology)?;
    Ok(match args.look.format {
        PictureFormat::Text => render::placement(&topology, &plan, args.look.paint()),
        PictureFormat::Json => json::placement(&plan),
        PictureFormat::Svg => svg::placement(&topology, &plan),
        PictureFormat::Dot => dot::placement(&topology, &plan),
    })
}

fn steal(args: &args::Steal) -> Result<String, String> {
    let topology = args.input.machine()?;
    let plan = args.placement.plan(&topology)?;
    let only = args.p;
    if let Some(p) = only.filter(|&p| p >= plan.ps.len()) {
        let last = plan.ps.len() - 1;
        return Err(format!("no P {p}; there are 0-{last}"));
    }
    let paint = args.look.paint();
    Ok(match (args.look.format, only) {
        (PictureFormat::Text, _) if args.matrix => render::steal_matrix(&plan, paint),
        (PictureFormat::Text, _) => render::steal_order(&plan, only, paint),
        (PictureFormat::Json, _) => json::steal(&plan, only),
        (PictureFormat::Svg, Some(p)) if !args.matrix => svg::steal(&topology, &plan, p),
        (PictureFormat::Svg, _) => svg::steal_matrix(&plan),
        (PictureFormat::Dot, _) => dot::steal(&topology, &plan, only),
    })
}

fn distances(args: &args::Distances) -> Result<String, String> {
    let topology = args.input.machine()?;
    if args.measured && !input::is_this_machine(&topology) {
        return Err("only this machine can be measured; leave out --measured".to_owned());
    }
    let measured = args.measured.then(|| {
        let mut bar = progress::Bar::new("pairs");
        measure::measure(&topology, |done, all| bar.show(done, all))
    });
    let measured = measured.as_ref();
    let paint = args.look.paint();
    Ok(match args.look.format {
        PictureFormat::Text => {
            let mut text = render::distances(&topology, paint);
            if let Some(measured) = measured {
                text.push('\n');
                text += &render::measured(measured, paint);
            }
            text
        }
        PictureFormat::Json => json::distances(&topology, measured),
        PictureFormat::Svg => svg::distances(&topology, measured),
        PictureFormat::Dot => dot::distances(&topology, measured),
    })
}

fn limits(args: &args::Limits) -> Result<String, String> {
    let topology = args.input.machine()?;
    let is_plain_here = args.input.is_here() && args.input.cpus.is_none();
    let mut limits = match topology.limits() {
        Some(limits) => limits.clone(),
        // Nothing is known of limits: only which CPUs are allowed.
        None => windlass_topology::CpuLimits {
            online: topology.pus().iter().map(|pu| pu.cpu).collect(),
            isolated: topology.isolated_cpus().to_vec(),
            ..Default::default()
        },
    };
    if is_plain_here {
        limits = cpu_limits();
    } else if topology.allowed_cpus() != limits.allowed() {
        limits.affinity = Some(topology.allowed_cpus());
    }
    Ok(match args.look.format {
        Format::Text => render::limits(&limits, args.look.paint()),
        Format::Json => json::limits(&limits),
    })
}

fn doctor(args: &args::Doctor) -> Result<Outcome, String> {
    #[derive(Serialize)]
    struct Body<'a> {
        findings: &'a [windlass_topology::doctor::Finding],
        worst: Status,
        host: Option<&'a Host>,
    }
    let topology = args.input.machine()?;
    let host = input::is_this_machine(&topology).then(Host::read);
    let findings = match &host {
        Some(host) => examine(host, &topology),
        None => examine_elsewhere(&topology),
    };
    let statuses = findings.iter().map(|finding| finding.status);
    let worst = statuses.max().unwrap_or(Status::Good);
    let text = match args.look.format {
        Format::Text => show::findings(&findings, args.look.paint()),
        Format::Json => json::view(
            "doctor",
            Body {
                findings: &findings,
                worst,
                host: host.as_ref(),
            },
        ),
    };
    let limit = if args.strict {
        Status::Warning
    } else {
        Status::Failure
    };
    Ok(Outcome {
        text: text.into_bytes(),
        code: ExitCode::from(u8::from(worst >= limit)),
    })
}

fn difference(args: &args::Diff) -> Result<Outcome, String> {
    #[derive(Serialize)]
    struct Body<'a> {
        changes: &'a [windlass_topology::diff::Change],
    }
    let (a, b) = (input::named(&args.first)?, input::named(&args.second)?);
    let changes = diff(&a, &b);
    let text = match args.look.format {
        Format::Text => show::changes(&changes, args.look.paint()),
        Format::Json => json::view("diff", Body { changes: &changes }),
    };
    Ok(Outcome {
        text: text.into_bytes(),
        code: ExitCode::from(u8::from(!changes.is_empty())),
    })
}

fn record(args: &args::Record) -> Result<String, String> {
    let topology = args.input.machine()?;
    let text = match args.format {
        RecordFormat::Json => topology.to_json(),
        RecordFormat::Xml => export::xml(&topology)
            .map_err(|reason| format!("cannot write this machine as XML: {reason}"))?,
        RecordFormat::Synthetic => {
            let description = export::synthetic(&topology);
            description.map_err(|reason| format!("cannot describe this machine: {reason}"))? + "\n"
        }
    };
    let Some(path) = &args.output else {
        return Ok(text);
    };
    let cannot = |error| format!("cannot write {}: {error}", path.display());
    fs::write(path, text).map_err(cannot)?;
    Ok(String::new())
}

fn man(args: &args::Man) -> Result<Outcome, String> {
    let mut command = Cli::command();
    command.build();
    let command = match &args.command {
        None => command,
        Some(name) => {
            let found = command.find_subcommand(name);
            let found = found.ok_or_else(|| format!("no command {name:?}; see --help"))?;
            let page = format!("windlass-topology-{name}");
            found.clone().name(page.clone()).bin_name(page)
        }
    };
    let mut text = Vec::new();
    clap_mangen::Man::new(command)
        .render(&mut text)
        .map_err(|error| format!("cannot make the manual page: {error}"))?;
    Ok(Outcome {
        text,
        code: ExitCode::SUCCESS,
    })
}

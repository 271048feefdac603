//! Makes a machine and a plan from the options.

use std::{fs, path::Path};

use windlass_topology::{
    Plan, Request, Source, Topology, default_processors, limits::capped_processors, parse_cpu_list,
    placement::usable_cpus, plan,
};

use super::{
    args::{Input, List, Placement, Slit},
    foreign,
};

impl Input {
    /// Whether it is about the machine it runs on.
    pub(crate) fn is_here(&self) -> bool {
        self.synthetic.is_none()
            && self.recorded.is_none()
            && self.xml.is_none()
            && self.sysfs.is_none()
    }

    /// The machine that the arguments name.
    pub(crate) fn machine(&self) -> Result<Topology, String> {
        let mut topology = match &self.xml {
            Some(path) => foreign::xml_file(path)?,
            None => self.without_xml()?,
        };
        if let Some(Slit(rows)) = &self.slit {
            topology = topology
                .with_distances(rows)
                .map_err(|error| error.to_string())?;
        }
        if let Some(List(cpus)) = &self.cpus {
            topology = topology
                .restrict_to_cpus(cpus)
                .map_err(|error| error.to_string())?;
        }
        Ok(topology)
    }

    fn without_xml(&self) -> Result<Topology, String> {
        let topology = if let Some(description) = &self.synthetic {
            Topology::synthetic(description)
        } else if let Some(path) = &self.recorded {
            Topology::from_json(&read(path)?)
        } else if let Some(path) = &self.sysfs {
            Topology::from_sysfs(path)
        } else {
            Topology::detect()
        };
        topology.map_err(|error| error.to_string())
    }
}

/// A machine in one word, for `diff`.
pub(crate) fn named(name: &str) -> Result<Topology, String> {
    let input = match (name, name.strip_prefix("synthetic:")) {
        ("this", _) => Input::default(),
        (_, Some(description)) => Input {
            synthetic: Some(description.to_owned()),
            ..Input::default()
        },
        (path, None) if path.ends_with(".xml") => Input {
            xml: Some(path.into()),
            ..Input::default()
        },
        (path, None) => Input {
            recorded: Some(path.into()),
            ..Input::default()
        },
    };
    let topology = input.machine();
    topology.map_err(|error| format!("{name}: {error}"))
}

impl Placement {
    /// The plan that the arguments ask for. The default number of Ps is the runtime's own; with more
    /// to ask for, no more than the CPUs that remain.
    pub(crate) fn plan(&self, topology: &Topology) -> Result<Plan, String> {
        let nodes = self.nodes.as_ref().map(|List(ids)| {
            let os_id = |&id: &usize| u32::try_from(id).expect("a list has no id above a million");
            ids.iter().map(os_id).collect()
        });
        let mut request = Request {
            n_ps: self.procs,
            nodes,
            policy: self.policy.into(),
            threads: self.threads.into(),
            isolated: self.isolated,
        };
        if request.n_ps.is_none() {
            // `plan` explains which CPUs cannot be used.
            let n_usable = usable_cpus(topology, &request).map_or(0, |cpus| cpus.len());
            let quota = topology.limits().and_then(|limits| limits.quota);
            let asks = self.isolated || self.nodes.is_some();
            request.n_ps = Some(if asks {
                capped_processors(n_usable, quota)
            } else {
                default_processors(topology).min(n_usable)
            })
            .filter(|&n_ps| n_ps > 0 && n_usable > 0);
        }
        plan(topology, &request).map_err(|error| error.to_string())
    }
}

/// Whether the machine is the one this program runs on, so that its kernel can be asked.
pub(crate) fn is_this_machine(topology: &Topology) -> bool {
    *topology.source() == Source::ThisMachine
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

/// The width of the terminal, from `COLUMNS`, which shells set.
pub(crate) fn columns() -> usize {
    let columns = std::env::var("COLUMNS").ok();
    let columns = columns.and_then(|text| parse_cpu_list(&text)?.first().copied());
    columns.filter(|&columns| columns >= 20).unwrap_or(100)
}

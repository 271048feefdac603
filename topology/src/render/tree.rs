//! The machine as an indented tree.

use std::fmt::{Display, Write as _};

use super::{
    paint::{Ink, Paint},
    words::{
        bytes, cache_title, core_title, cpu_note, device_title, devices_of, memory, node_title,
        package_name, source, summary,
    },
};
use crate::{Pu, Topology, format_cpu_list};

/// The machine as a tree: package with its model, node with its devices, L3, L2, core with its L1, CPU.
///
/// A group that spans two branches (a node of two packages, say) is shown in both, each time with
/// the CPUs of that branch, and its devices in the first. Nodes without CPUs come last, and then devices of which the
/// node is unknown.
///
/// # Examples
///
/// ```
/// use windlass_topology::{Topology, render::{self, Paint}};
///
/// let machine = Topology::synthetic("pack:1 core:2 pu:2")?;
/// assert_eq!(
///     render::tree(&machine, Paint::Plain),
///     "\
/// machine (synthetic \"pack:1 core:2 pu:2\"): 1 node, 1 package, 2 cores, 4 CPUs
/// package 0
///   node 0: 1.0 GiB
///     core 0: CPU 0, CPU 1
///     core 1: CPU 2, CPU 3
/// "
/// );
/// # Ok::<(), windlass_topology::Error>(())
/// ```
#[must_use]
pub fn tree(topology: &Topology, paint: Paint) -> String {
    let source = source(topology);
    let title = paint.title(format_args!("machine ({source})"));
    let mut out = format!("{title}: {}\n", summary(topology));
    let pus: Vec<&Pu> = topology.pus().iter().collect();
    branch(&mut out, topology, &pus, &LEVELS, 0, paint);
    for node in topology.nodes().iter().filter(|node| node.cpus.is_empty()) {
        let name = paint.ink(Ink::Node, format_args!("node {}", node.os_id));
        line(
            &mut out,
            0,
            format_args!("{name}: {}, no CPUs", memory(node)),
        );
        devices(&mut out, topology, Some(node.os_id), 1);
    }
    if devices_of(topology, None).next().is_some() {
        line(&mut out, 0, "on an unknown node");
        devices(&mut out, topology, None, 1);
    }
    if !topology.offline_cpus().is_empty() {
        let cpus = format_cpu_list(topology.offline_cpus());
        line(&mut out, 0, paint.dim(format_args!("offline: CPU {cpus}")));
    }
    out
}

/// The question of a level of the tree about a CPU: the position of its group, if it has one.
pub(crate) type GroupOf = fn(&Pu) -> Option<usize>;
/// The title of that group.
type Title = fn(&Topology, usize) -> String;

const LEVELS: [(GroupOf, Title, Ink); 4] = [
    (
        |pu| Some(pu.package),
        |topology, package| {
            let name = format!("package {}", package_name(topology, package));
            match &topology.packages()[package].model {
                Some(model) => format!("{name}: {model}"),
                None => name,
            }
        },
        Ink::Title,
    ),
    (
        |pu| Some(pu.node),
        |topology, node| node_title(&topology.nodes()[node]),
        Ink::Node,
    ),
    (
        |pu| pu.l3,
        |topology, l3| cache_title("L3", &topology.l3s()[l3], l3),
        Ink::None,
    ),
    (
        |pu| pu.l2,
        |topology, l2| cache_title("L2", &topology.l2s()[l2], l2),
        Ink::None,
    ),
];

/// The tree of some CPUs; `depth` counts the levels that have a line.
fn branch(
    out: &mut String,
    topology: &Topology,
    pus: &[&Pu],
    levels: &[(GroupOf, Title, Ink)],
    depth: usize,
    paint: Paint,
) {
    let Some(((group_of, title, ink), deeper)) = levels.split_first() else {
        return cores(out, topology, pus, depth, paint);
    };
    for (group, members) in grouped(pus, *group_of) {
        match group {
            Some(group) => {
                line(out, depth, paint.ink(*ink, title(topology, group)));
                if *ink == Ink::Node && topology.nodes()[group].cpus[0] == members[0].cpu {
                    devices(
                        out,
                        topology,
                        Some(topology.nodes()[group].os_id),
                        depth + 1,
                    );
                }
                branch(out, topology, &members, deeper, depth + 1, paint);
            }
            None => branch(out, topology, &members, deeper, depth, paint),
        }
    }
}

fn devices(out: &mut String, topology: &Topology, node: Option<u32>, depth: usize) {
    for device in devices_of(topology, node) {
        line(out, depth, device_title(device));
    }
}

fn cores(out: &mut String, topology: &Topology, pus: &[&Pu], depth: usize, paint: Paint) {
    for (core, members) in grouped(pus, |pu| Some(pu.core)) {
        let core = core.expect("every CPU has a core");
        let cpu = |pu: &&Pu| match cpu_note(topology, pu) {
            Some(note) => paint.dim(format_args!("CPU {} ({note})", pu.cpu)),
            None => format!("CPU {}", pu.cpu),
        };
        let members: Vec<String> = members.iter().map(cpu).collect();
        let mut title = core_title(topology, core);
        let core = &topology.cores()[core];
        for (name, size) in [("L1d", core.l1d_bytes), ("L1i", core.l1i_bytes)] {
            if let Some(size) = size {
                let _ = write!(title, ", {name} {}", bytes(size));
            }
        }
        line(out, depth, format_args!("{title}: {}", members.join(", ")));
    }
}

/// Parts CPUs by group; groups by position, those without first.
pub(crate) fn grouped<'a>(pus: &[&'a Pu], group_of: GroupOf) -> Vec<(Option<usize>, Vec<&'a Pu>)> {
    let mut groups = std::collections::BTreeMap::<_, Vec<&Pu>>::new();
    for &pu in pus {
        groups.entry(group_of(pu)).or_default().push(pu);
    }
    groups.into_iter().collect()
}

fn line(out: &mut String, depth: usize, text: impl Display) {
    let _ = writeln!(out, "{:1$}{text}", "", depth * 2);
}

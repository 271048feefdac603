//! Views for programs. docs/TOPOLOGY.md describes every field.

use serde::Serialize;

use crate::{
    CpuLimits, Distances, DroppedCpu, Level, Plan, PlanNode, SCHEMA, Topology,
    measure::Measured,
    pretty,
    steal::{self, WakeGroup},
};

/// Any view: its [`SCHEMA`], its name, then its own fields.
#[derive(Debug, Serialize)]
struct View<'a, T> {
    schema: u32,
    view: &'a str,
    #[serde(flatten)]
    body: T,
}

/// A view of this name with these fields.
///
/// # Panics
///
/// If the value is not made of maps with strings for keys, lists, numbers and strings.
#[must_use]
pub fn view(view: &str, body: impl Serialize) -> String {
    let view = View {
        schema: SCHEMA,
        view,
        body,
    };
    pretty::to_json(&view)
}

/// The machine, for the views `tree` and `art`.
#[must_use]
pub fn tree(topology: &Topology) -> String {
    #[derive(Serialize)]
    struct Body<'a> {
        machine: &'a Topology,
    }
    view("tree", Body { machine: topology })
}

/// Where each P is.
#[must_use]
pub fn placement(plan: &Plan) -> String {
    #[derive(Serialize)]
    struct Place {
        p: usize,
        cpu: usize,
        core: usize,
        l2: Option<usize>,
        l3: Option<usize>,
        package: usize,
        node: u32,
    }
    #[derive(Serialize)]
    struct Body<'a> {
        nodes: &'a [PlanNode],
        ps: Vec<Place>,
        dropped: &'a [DroppedCpu],
    }
    let place = |p: &crate::PlannedP| Place {
        p: p.index,
        cpu: p.cpu,
        core: p.core,
        l2: p.l2,
        l3: p.l3,
        package: p.package,
        node: plan.nodes[p.node].os_id,
    };
    view(
        "ps",
        Body {
            nodes: &plan.nodes,
            ps: plan.ps.iter().map(place).collect(),
            dropped: &plan.dropped,
        },
    )
}

/// The steal order and the wake order of each P, or of one, and the ranks of its victims.
#[must_use]
pub fn steal(plan: &Plan, only: Option<usize>) -> String {
    #[derive(Serialize)]
    struct Thief<'a> {
        p: usize,
        cpu: usize,
        node: u32,
        levels: Vec<Gated<'a>>,
        wakes: Vec<WakeGroup>,
    }
    #[derive(Serialize)]
    struct Gated<'a> {
        #[serde(flatten)]
        level: &'a Level,
        gated: bool,
        patience_us: Option<u64>,
    }
    #[derive(Serialize)]
    struct Body<'a> {
        ps: Vec<Thief<'a>>,
        matrix: Vec<Vec<usize>>,
    }
    fn gated(level: &Level) -> Gated<'_> {
        let is_remote = level.kind == crate::LevelKind::Remote;
        let patience = steal::patience(level.distance).as_micros() as u64;
        Gated {
            level,
            gated: is_remote,
            patience_us: is_remote.then_some(patience),
        }
    }
    let thief = |p: &'_ usize| {
        let p = &plan.ps[*p];
        Thief {
            p: p.index,
            cpu: p.cpu,
            node: plan.nodes[p.node].os_id,
            levels: p.levels.iter().map(gated).collect(),
            wakes: steal::wake_order(plan, p.index),
        }
    };
    let chosen: Vec<usize> = match only {
        Some(p) => vec![p],
        None => (0..plan.ps.len()).collect(),
    };
    let matrix = chosen.iter().map(|&p| steal::ranks(plan, p)).collect();
    view(
        "steal",
        Body {
            ps: chosen.iter().map(thief).collect(),
            matrix,
        },
    )
}

/// How far the nodes are from one another.
#[must_use]
pub fn distances(topology: &Topology, measured: Option<&Measured>) -> String {
    #[derive(Serialize)]
    struct Body<'a> {
        nodes: Vec<u32>,
        distances: &'a Distances,
        measured: Option<&'a Measured>,
    }
    view(
        "distances",
        Body {
            nodes: topology.nodes().iter().map(|node| node.os_id).collect(),
            distances: topology.distances(),
            measured,
        },
    )
}

/// The limits of the number of processors.
#[must_use]
pub fn limits(limits: &CpuLimits) -> String {
    #[derive(Serialize)]
    struct Step {
        limit: crate::limits::Cap,
        processors: usize,
    }
    #[derive(Serialize)]
    struct Body<'a> {
        limits: &'a CpuLimits,
        steps: Vec<Step>,
        processors: usize,
        capped_by: crate::limits::Cap,
    }
    let step = |(limit, processors)| Step { limit, processors };
    view(
        "limits",
        Body {
            limits,
            steps: limits.steps().into_iter().map(step).collect(),
            processors: limits.processors(),
            capped_by: limits.cap(),
        },
    )
}

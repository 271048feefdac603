//! Any plan of any machine is what a plan must be.

use std::sync::OnceLock;

use proptest::prelude::*;
use windlass_topology::{
    PlanError, Policy, Request, Threads, Topology, placement::usable_cpus, plan,
};

use crate::util::{check_plan, synthetic};

mod util;

/// Shapes that differ in which levels exist; made once, as hwloc takes its time.
fn machines() -> &'static [Topology] {
    static MACHINES: OnceLock<Vec<Topology>> = OnceLock::new();
    MACHINES.get_or_init(|| {
        [
            "pu:1",
            "core:3 pu:1",
            "core:2 pu:4",
            "pack:2 [numa] l3:2 core:2 pu:2",
            "pack:2 group:2 [numa] l2:2 core:2 pu:1",
            "pack:1 [numa] l3:16 core:2 pu:1",
            "pack:2 [numa] l3:11 core:1 pu:2",
            "numa:8 core:1 pu:2",
            "pack:1 l3:1 group:3 [numa] core:2 pu:2",
            "pack:2 [numa] core:2 pu:2(indexes=0,9,2,11,4,13,6,15)",
        ]
        .map(synthetic)
        .into()
    })
}

prop_compose! {
    /// Distances with few distinct values, so that many are equal; asymmetric.
    fn slit(n_nodes: usize)(
        values in prop::collection::vec(prop::sample::select(vec![10, 12, 21, 31, 254]), n_nodes * n_nodes)
    ) -> Vec<Vec<u32>> {
        let value = |from, to| if from == to { 10 } else { values[from * n_nodes + to] };
        (0..n_nodes).map(|from| (0..n_nodes).map(|to| value(from, to)).collect()).collect()
    }
}

prop_compose! {
    fn cases()(which in 0..machines().len())(
        which in Just(which),
        rows in slit(machines()[which].nodes().len()),
        keep in prop::collection::vec(prop::bool::weighted(0.7), machines()[which].pus().len()),
        n_ps in prop::option::of(1_usize..70),
        nodes in prop::option::of(prop::collection::vec(0_u32..8, 1..4)),
        pack in any::<bool>(),
        kinds in prop::collection::vec((prop::bool::weighted(0.2), prop::bool::weighted(0.3)), machines()[which].pus().len()),
        isolated in any::<bool>(),
        threads in prop::sample::select(vec![Threads::Last, Threads::Never, Threads::Together]),
    ) -> (Topology, Request) {
        let machine = machines()[which].with_distances(&rows).unwrap();
        let pus = machine.pus().iter().zip(keep);
        let cpus: Vec<usize> = pus.filter(|(_, keep)| *keep).map(|(pu, _)| pu.cpu).collect();
        let machine = machine.restrict_to_cpus(&cpus).unwrap_or(machine);
        let machine = with_kinds(&machine, &kinds);
        let policy = if pack { Policy::Pack } else { Policy::Spread };
        (machine, Request { n_ps, nodes, policy, threads, isolated })
    }
}

/// The machine with some CPUs isolated and some cores fast.
fn with_kinds(machine: &Topology, kinds: &[(bool, bool)]) -> Topology {
    let mut json: serde_json::Value = serde_json::from_str(&machine.to_json()).unwrap();
    let pus = machine.pus().iter().zip(kinds);
    let isolated = pus
        .filter(|(_, (isolated, _))| *isolated)
        .map(|(pu, _)| pu.cpu);
    json["isolated_cpus"] = isolated.collect::<Vec<_>>().into();
    for (position, (_, fast)) in (0..machine.cores().len()).zip(kinds) {
        json["cores"][position]["performance"] = u32::from(*fast).into();
    }
    Topology::from_json(&json.to_string()).unwrap()
}

proptest! {
    #[test]
    fn plans_hold_together((machine, request) in cases()) {
        match plan(&machine, &request) {
            Ok(plan) => {
                let usable = usable_cpus(&machine, &request).unwrap();
                check_usable(&machine, &request, &usable);
                check_dropped(&machine, &plan);
                check_fast_first(&machine, &request, &usable, &plan);
                prop_assert_eq!(plan.ps.len(), request.n_ps.unwrap_or(usable.len()));
                prop_assert!(plan.ps.iter().all(|p| usable.contains(&p.cpu)));
                let machine = machine.restrict_to_cpus(&usable).unwrap();
                check_plan(&machine, &plan);
                check_evenness(&machine, &plan);
            }
            Err(error) => prop_assert!(
                matches!(
                    error,
                    PlanError::UnknownNode { .. } | PlanError::NodeNotAllowed(_)
                ) && request.nodes.is_some(),
                "{}", error
            ),
        }
    }

    #[test]
    fn a_machine_survives_json((machine, _) in cases()) {
        prop_assert_eq!(Topology::from_json(&machine.to_json()).unwrap(), machine);
    }

    #[test]
    fn no_description_is_too_odd(description in "(pack|numa|l3|core|pu|\\[numa\\]|[0-9]|:|\\(|\\)|\\[|\\]| ){0,12}") {
        let _ = Topology::synthetic(&description);
    }

    #[test]
    fn no_json_is_too_odd(position in 0_usize..4000, byte in any::<u8>()) {
        let mut json = machines()[3].to_json().into_bytes();
        let position = position % json.len();
        json[position] = byte;
        if let Ok(machine) = Topology::from_json(&String::from_utf8_lossy(&json)) {
            check_plan(&machine, &plan(&machine, &Request::default()).unwrap());
        }
    }
}

/// Allowed CPUs of the nodes asked for, all of them or one for each core.
fn check_usable(machine: &Topology, request: &Request, usable: &[usize]) {
    let on_node = |cpu: &usize| {
        let os_id = machine.nodes()[machine.pu(*cpu).unwrap().node].os_id;
        request
            .nodes
            .as_ref()
            .is_none_or(|nodes| nodes.contains(&os_id))
    };
    let core = |cpu: &usize| machine.pu(*cpu).unwrap().core;
    let mut expected: Vec<usize> = machine.allowed_cpus();
    expected.retain(on_node);
    let is_isolated = |cpu: &usize| machine.isolated_cpus().contains(cpu);
    if !request.isolated && !expected.iter().all(is_isolated) {
        expected.retain(|cpu| !is_isolated(cpu));
    }
    if request.threads == Threads::Never {
        let mut cores = std::collections::BTreeSet::new();
        expected.retain(|cpu| cores.insert(core(cpu)));
    }
    assert_eq!(usable, expected);
}

/// No P is on a slow core while a fast one has none, unless asked for few nodes or full cores.
fn check_fast_first(
    machine: &Topology,
    request: &Request,
    usable: &[usize],
    plan: &windlass_topology::Plan,
) {
    if request.policy == Policy::Pack || request.threads == Threads::Together {
        return;
    }
    let core = |cpu: usize| machine.pu(cpu).unwrap().core;
    let is_fast = |core: usize| machine.cores()[core].performance > 0;
    let used: Vec<usize> = plan.ps.iter().map(|p| core(p.cpu)).collect();
    let unused_fast = usable
        .iter()
        .any(|&cpu| is_fast(core(cpu)) && !used.contains(&core(cpu)));
    assert!(!unused_fast || used.iter().all(|&core| is_fast(core)));
}

/// Every CPU either has a P or a reason, never both.
fn check_dropped(machine: &Topology, plan: &windlass_topology::Plan) {
    let with_p = plan.ps.iter().map(|p| p.cpu);
    let mut with_p: Vec<usize> = with_p.collect();
    with_p.dedup();
    let mut all: Vec<usize> = plan.dropped.iter().map(|dropped| dropped.cpu).collect();
    assert!(all.is_sorted_by(|a, b| a < b));
    all.extend(with_p);
    all.sort_unstable();
    let cpus: Vec<usize> = machine.pus().iter().map(|pu| pu.cpu).collect();
    assert_eq!(all, cpus);
}

/// No CPU has two Ps more than another; one core of a machine has two only when all have one.
fn check_evenness(machine: &Topology, plan: &windlass_topology::Plan) {
    let on = |cpu: &usize| plan.ps.iter().filter(|p| p.cpu == *cpu).count();
    let counts: Vec<usize> = machine.allowed_cpus().iter().map(on).collect();
    let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
    assert!(most - least <= 1, "{counts:?}");
}

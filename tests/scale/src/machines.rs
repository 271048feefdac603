//! The machines: their topologies, as hwloc describes them, and their prices. docs/SCALE.md has the
//! source of each price.

use windlass::explore::machine::{Machine, Place, Prices};
use windlass::topology::Topology;

/// A machine that can be asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Model {
    pub(crate) name: &'static str,
    description: &'static str,
    /// Nanoseconds for which a line is on its way: between threads of a core, cores of a level 3 cache, such caches of
    /// a node, and nodes.
    transfer_ns: [u64; 4],
}

/// Of a monolithic server die, and between its sockets: Xeon Platinum 8275CL in
/// <https://github.com/nviennot/core-to-core-latency>, of which a transfer is what it calls latency.
const MESH_NS: [u64; 4] = [8, 47, 47, 134];
/// Of eight cores to a level 3 cache, and several of those to a socket: EPYC 7R13 there.
const CHIPLETS_NS: [u64; 4] = [10, 23, 107, 197];

pub(crate) const ALL: &[Model] = &[
    Model {
        name: "1x8",
        description: "numa:1 l3:1 core:8 pu:1",
        transfer_ns: MESH_NS,
    },
    Model {
        name: "1x72",
        description: "numa:1 l3:1 core:72 pu:1",
        transfer_ns: MESH_NS,
    },
    Model {
        name: "2x32smt",
        description: "numa:2 l3:1 core:16 pu:2",
        transfer_ns: MESH_NS,
    },
    Model {
        name: "4x28",
        description: "numa:4 l3:1 core:28 pu:1",
        transfer_ns: MESH_NS,
    },
    Model {
        name: "8x64",
        description: "numa:8 l3:8 core:8 pu:1",
        transfer_ns: CHIPLETS_NS,
    },
];

const fn ns(ns: u64) -> u64 {
    ns * 1_000
}

impl Model {
    pub(crate) fn topology(&self) -> Topology {
        Topology::synthetic(self.description).expect("the description is valid")
    }

    /// What the twin needs of it.
    pub(crate) fn machine(&self, topology: &Topology) -> Machine {
        let place = |pu: &windlass::topology::Pu| Place {
            core: pu.core,
            l3: pu.l3.unwrap_or(pu.node),
            node: pu.node,
        };
        Machine {
            cpus: topology.pus().iter().map(place).collect(),
            prices: Prices {
                between: 100,
                rmw: 5_500,
                transfer: self.transfer_ns.map(ns),
                first: ns(20),
                pause: ns(40),
                clock: ns(20),
                switch: 1_500,
                syscall: ns(150),
                send: ns(3_100),
                receive: ns(550),
                operation: ns(1_800),
                sleep: ns(800),
                wake: ns(1_000),
                wake_latency: ns(3_000),
                thread_switch: ns(1_500),
                slice: ns(100_000),
                start: ns(15_000),
            },
        }
    }
}

//! Functions that the tests share.
#![allow(dead_code)] // each test file uses a part of it

use std::{
    env, fs,
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicUsize, Ordering},
};

use windlass_topology::{LevelKind, Plan, Request, Topology, plan};

/// A plan in short: a line per P, `cpu@node: level distance [victims] ..`, the node by OS id.
pub(crate) fn show(plan: &Plan) -> Vec<String> {
    plan.ps
        .iter()
        .map(|p| {
            let mut line = format!("{}@{}:", p.cpu, plan.nodes[p.node].os_id);
            for level in &p.levels {
                let name = match level.kind {
                    LevelKind::Smt => "smt",
                    LevelKind::L2 => "l2",
                    LevelKind::L3 => "l3",
                    LevelKind::Node => "node",
                    LevelKind::Remote => "remote",
                };
                line += &format!(" {name} {} {:?}", level.distance, level.victims);
            }
            line
        })
        .collect()
}

/// The plan of a machine with the default request.
pub(crate) fn shown(machine: &Topology) -> Vec<String> {
    show(&plan(machine, &Request::default()).unwrap())
}

/// The CPUs of a plan's Ps.
pub(crate) fn cpus(machine: &Topology, request: &Request) -> Vec<usize> {
    plan(machine, request)
        .unwrap()
        .ps
        .iter()
        .map(|p| p.cpu)
        .collect()
}

pub(crate) fn synthetic(description: &str) -> Topology {
    Topology::synthetic(description).unwrap()
}

pub(crate) fn n_ps(n_ps: usize) -> Request {
    Request {
        n_ps: Some(n_ps),
        ..Request::default()
    }
}

/// Checks the properties of every plan, whatever the machine.
pub(crate) fn check_plan(machine: &Topology, plan: &Plan) {
    let n_ps = plan.ps.len();
    // Nodes: in order, none empty, their Ps contiguous and in order.
    let of_nodes: Vec<usize> = plan.nodes.iter().flat_map(|node| node.ps.clone()).collect();
    assert_eq!(of_nodes, (0..n_ps).collect::<Vec<_>>());
    assert!(plan.nodes.is_sorted_by(|a, b| a.index < b.index));
    for (position, node) in plan.nodes.iter().enumerate() {
        assert!(!node.ps.is_empty());
        assert_eq!(machine.nodes()[node.index].os_id, node.os_id);
        assert!(node.ps.iter().all(|&p| plan.ps[p].node == position));
    }
    for (index, p) in plan.ps.iter().enumerate() {
        assert_eq!(p.index, index);
        let pu = machine.pu(p.cpu).unwrap();
        assert!(pu.allowed);
        assert_eq!(
            (pu.core, pu.package, pu.l2, pu.l3),
            (p.core, p.package, p.l2, p.l3)
        );
        assert_eq!(plan.nodes[p.node].index, pu.node);
        // Every other P once.
        let mut victims: Vec<usize> = p.levels.iter().flat_map(|l| l.victims.clone()).collect();
        victims.sort_unstable();
        assert_eq!(
            victims,
            (0..n_ps)
                .filter(|&other| other != index)
                .collect::<Vec<_>>()
        );
        // Nearest first, and no level in vain.
        assert!(p.levels.is_sorted_by(|a, b| a.kind <= b.kind));
        let remote: Vec<_> = p
            .levels
            .iter()
            .filter(|l| l.kind == LevelKind::Remote)
            .collect();
        assert!(remote.is_sorted_by(|a, b| a.distance < b.distance));
        for level in &p.levels {
            assert!(!level.victims.is_empty());
            let wrapped = |&victim: &usize| (victim + n_ps - index) % n_ps;
            assert!(level.victims.is_sorted_by_key(wrapped));
            for &victim in &level.victims {
                let other = &plan.ps[victim];
                let to = plan.nodes[other.node].index;
                assert_eq!(level.distance, machine.distance(pu.node, to));
                assert_eq!(level.kind == LevelKind::Remote, p.node != other.node);
                assert_eq!(
                    level.kind == LevelKind::Smt,
                    p.node == other.node && p.core == other.core
                );
            }
        }
    }
    // Even use: no CPU has two Ps more than another that could have been chosen.
    let n_usable = machine.allowed_cpus().len();
    if n_ps <= n_usable {
        let mut cpus: Vec<usize> = plan.ps.iter().map(|p| p.cpu).collect();
        cpus.sort_unstable();
        assert!(cpus.is_sorted_by(|a, b| a < b), "a CPU has two Ps");
    }
}

/// A folder of its own below the build folder, removed at the end.
#[derive(Debug)]
pub(crate) struct Dir(PathBuf);

impl Dir {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("windlass-topology-{}-{number}", process::id());
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file, and the folders on the way to it.
    pub(crate) fn write(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Makes a symbolic link, and the folders on the way to it.
    pub(crate) fn link(&self, path: &str, target: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(target, path).unwrap();
    }

    /// A PCI device in a copy of `/sys`, on the bus and in the tree of devices.
    pub(crate) fn pci(&self, address: &str, class: &str, node: &str, cpus: &str) {
        let folder = format!("devices/pci0000:00/{address}");
        for (file, text) in [
            ("class", class),
            ("numa_node", node),
            ("local_cpulist", cpus),
        ] {
            self.write(&format!("sys/{folder}/{file}"), &format!("{text}\n"));
        }
        let bus = format!("sys/bus/pci/devices/{address}");
        self.link(&bus, &format!("../../../{folder}"));
    }

    /// A device of a class in a copy of `/sys`, behind a folder of the tree of devices.
    pub(crate) fn class(&self, class: &str, name: &str, behind: &str) {
        let folder = format!("devices/{behind}/{class}/{name}");
        self.write(&format!("sys/{folder}/uevent"), "");
        self.link(&format!("sys/{folder}/device"), "../..");
        let entry = format!("sys/class/{class}/{name}");
        self.link(&entry, &format!("../../{folder}"));
    }

    /// A CPU in a copy of `/sys`: its package, its core, and the CPUs that share its caches.
    pub(crate) fn cpu(&self, cpu: usize, package: u32, core: &str, l2: &str, l3: &str) {
        let at = |name: &str| format!("sys/devices/system/cpu/cpu{cpu}/{name}");
        self.write(&at("topology/physical_package_id"), &format!("{package}\n"));
        self.write(&at("topology/core_id"), "0\n");
        self.write(&at("topology/thread_siblings_list"), &format!("{core}\n"));
        let levels = [
            (0, 1, "Data", core, "48K"),
            (1, 1, "Instruction", core, "32K"),
            (2, 2, "Unified", l2, "1024K"),
            (3, 3, "Unified", l3, "32768K"),
        ];
        for (index, level, kind, shared, size) in levels {
            if shared.is_empty() {
                continue;
            }
            let file = |name: &str| at(&format!("cache/index{index}/{name}"));
            self.write(&file("level"), &format!("{level}\n"));
            self.write(&file("type"), &format!("{kind}\n"));
            self.write(&file("shared_cpu_list"), &format!("{shared}\n"));
            self.write(&file("size"), &format!("{size}\n"));
        }
    }

    /// A node in a copy of `/sys`, and its row of distances.
    pub(crate) fn node(&self, node: u32, cpus: &str, memory_kb: u64, distance: &str) {
        let at = |name: &str| format!("sys/devices/system/node/node{node}/{name}");
        self.write(&at("cpulist"), &format!("{cpus}\n"));
        self.write(
            &at("meminfo"),
            &format!(
                "Node {node} MemTotal:  {memory_kb} kB\nNode {node} MemFree:  {} kB\n",
                memory_kb / 2
            ),
        );
        self.write(&at("distance"), &format!("{distance}\n"));
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Compares with a file in tests/expected, or writes it where `WINDLASS_BLESS` is set.
pub(crate) fn expect(name: &str, actual: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/expected")
        .join(name);
    if env::var_os("WINDLASS_BLESS").is_some() {
        fs::write(&path, actual).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        expected == actual,
        "not what {} has (WINDLASS_BLESS=1 writes it anew):\n{actual}",
        path.display()
    );
}

/// A machine from tests/machines.
pub(crate) fn recorded(name: &str) -> Topology {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/machines")
        .join(name);
    Topology::from_json(&fs::read_to_string(path).unwrap()).unwrap()
}
